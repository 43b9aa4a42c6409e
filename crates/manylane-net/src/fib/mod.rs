//! The FIB: which next hop a destination address leads to, by longest prefix match.
//!
//! A prefix has a [`NextHopId`]; a lookup answers with the id of the longest prefix that contains the address, or 0
//! without one. One table per family, [`v4`] and [`v6`], exact for every set of prefixes. Both live in
//! [`Words`](manylane_sync::words::Words) that the caller hands in, and are walked by index in bounded loops, so that a
//! BPF program can walk them too. Batches with AVX-512 ([`wide`](manylane_sync::words::wide)) walk the same structure.
//!
//! | side                          | thread  | may                                             |
//! |-------------------------------|---------|-------------------------------------------------|
//! | `Ipv4Writer`, `Ipv6Writer`    | control | insert, remove, load, list; keeps the exact RIB |
//! | `Ipv4Fib`, `Ipv6Fib` (clones) | workers | look up under an RCU guard                      |
//!
//! # What a change does to the words
//!
//! The long prefixes alone decide which *boundaries* are stored; a *value* (a next-hop id) is one field of one word. So
//! an edit is of one of two kinds:
//!
//! - **in place**: a next hop changes, or a short prefix comes or goes. The values it owns are
//!   overwritten one word at a time. Nothing is allocated, so a default route over 300,000 lists
//!   needs no room. Beside each value the writer keeps the length of the prefix that owns it: an
//!   edit overwrites what longer prefixes do not own.
//! - **by copy**: a long prefix comes or goes. The one list or leaf that holds it is written anew in
//!   unused memory, then published by one store; the old one is *retired*, and its memory is used
//!   again after a grace period. (Now and then it is what leads there, to have better strides.)
//!
//! # The protocol, for a loom twin
//!
//! 1. The writer stores a new structure's words from the leaves up; the last store, a
//!    [`publish`](manylane_sync::words::WordsMut::publish) (Release) of the one word that leads to it,
//!    is what readers find it by. Every load of a reader is an Acquire.
//! 2. A structure that no word leads to any more goes to the limbo and is not written until its grace
//!    period is over. A reader that found it before reads it as it was.
//! 3. A value is overwritten by `publish`, in place, in what is reachable; boundaries never are.
//!
//! So a lookup meets for each word an old or a new value, never a mixture, and answers with a route that was in the
//! table at some moment during the lookup (invariant I6). The Release also makes a next hop's record visible to a
//! reader that finds its id, if the record was stored before the route.
//! A twin needs three words and two threads: *direct* (leads to list 0 or 1), two lists of one
//! boundary and one value; the writer flips between them by 1 to 3, the reader checks that the value
//! belongs to the boundary it read.
//!
//! # Bounds
//!
//! Every edit is checked before it changes anything, and never waits. [`EditError::Busy`] says that
//! the memory or the queue it needs is in use until the next grace period: call `reclaim` and repeat.
//! [`EditError::Full`] says that the tables are too small. Taking a route away never fails with `Full`: without room
//! for the smaller copy, the values are overwritten in place and the boundaries stay until the next edit there.
//!
//! Elsewhere: what stands behind an id is `nexthop`'s; where routes come from is `manylane`'s mirror.

use std::fmt;
use std::num::NonZeroU16;

mod arena;
mod interval;
mod prefix;
mod rib;
pub mod v4;
pub mod v6;

#[cfg(all(test, not(manylane_loom)))]
mod testing;

pub(crate) use arena::Arena;
pub use prefix::{IpPrefix, Ipv4Prefix, Ipv6Prefix, PrefixError};
pub use v4::{Ipv4Fib, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Packed, PackedMut};
pub use v6::{Ipv6Fib, Ipv6Sizes, Ipv6Tables, Ipv6Writer};

/// What an id of a route stands for: the brand of [`Index`](manylane_sync::rcu::Index).
pub enum NextHop {}

/// The number of a next hop: 1 to 32,767. In the tables, 0 is "no route".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopId(NonZeroU16);

impl NextHopId {
    /// The largest: the top bit of a word says that it is no id.
    pub const MAX: NextHopId = NextHopId(NonZeroU16::new(0x7fff).expect("it is not 0"));

    /// The id `raw`, unless it is 0 or above [`NextHopId::MAX`].
    pub const fn new(raw: u16) -> Option<NextHopId> {
        match NonZeroU16::new(raw) {
            Some(id) if raw <= NextHopId::MAX.raw() => Some(NextHopId(id)),
            _ => None,
        }
    }

    /// As tables hold it.
    #[inline(always)]
    pub const fn raw(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for NextHopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "next hop {}", self.0)
    }
}

/// How much a writer may hold at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Routes in the table.
    pub routes_max: usize,
    /// Retired lists and leaves that wait for a grace period: structural edits per grace period, twice.
    pub waiting_max: usize,
}

impl Default for Limits {
    /// Twice the Internet's IPv4 table of 2026, and 2,000 structural edits per grace period.
    fn default() -> Limits {
        Limits { routes_max: 2_000_000, waiting_max: 4096 }
    }
}

/// The most that one edit retires: a list and a directory, or the old parts of both halves.
const EDIT_RETIRES: usize = 2;

/// Why an edit was refused. The table is unchanged, and correct.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// What it needs waits for a grace period, or for the next. Repeat it after a turn of the workers,
    /// and perhaps once more after another.
    Busy {
        /// Retired lists and leaves that wait.
        waiting: usize,
        /// How many may.
        waiting_max: usize,
    },
    /// A table is too small. Nothing waits, so only larger tables or fewer routes help.
    Full {
        /// Which table.
        table: &'static str,
        /// The words it has.
        words: usize,
        /// The words that the edit needed in one piece.
        wanted: usize,
    },
    /// The table has the most routes already.
    TooManyRoutes {
        /// The bound.
        routes_max: usize,
    },
    /// A load needs an empty table; a table with routes is brought up to date by edits.
    NotEmpty {
        /// The routes it has.
        routes: usize,
    },
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::Busy { waiting, waiting_max } => write!(
                f,
                "{waiting} of at most {waiting_max} retired parts of the tables wait for a grace period: \
                 repeat the edit after their readers' next turn"
            ),
            EditError::Full { table, words, wanted } => write!(
                f,
                "the FIB's table `{table}` of {words} words has no room for {wanted} more: \
                 make it larger"
            ),
            EditError::TooManyRoutes { routes_max } => {
                write!(f, "the FIB has {routes_max} routes, as many as it may: raise the limit")
            }
            EditError::NotEmpty { routes } => {
                write!(f, "the FIB has {routes} routes: load an empty one, or edit this one")
            }
        }
    }
}

impl std::error::Error for EditError {}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_leave_zero_and_the_top_bit_to_the_tables() {
        assert_eq!(NextHopId::new(0), None);
        assert_eq!(NextHopId::new(1).map(NextHopId::raw), Some(1));
        assert_eq!(NextHopId::new(0x7fff), Some(NextHopId::MAX));
        assert_eq!(NextHopId::new(0x8000), None);
    }

    #[test]
    fn a_refusal_names_its_bound_and_the_next_step() {
        let full = EditError::Full { table: "ranges", words: 16, wanted: 4 };
        assert_eq!(
            full.to_string(),
            "the FIB's table `ranges` of 16 words has no room for 4 more: make it larger"
        );
        let busy = EditError::Busy { waiting: 8, waiting_max: 8 };
        assert!(busy.to_string().starts_with("8 of at most 8 retired"));
    }
}
