//! Neighbour table: which link-layer address answers for a next hop.
//!
//! The FIB gives a next-hop IP address; this room turns it into a ready-made link-layer header, or
//! says that the packet has to wait. One table serves ARP and ND. Before changing a transition read
//! RFC 4861 §7.2.3, §7.2.5 and §7.3.2, where the state names come from (`Failed` and `Permanent` are
//! Linux's). [`entry::step`] is the table below as a function; a test walks every row, and holds
//! every pair that has no row to "nothing changes".
//!
//! | State        | Event        | Next         | Why                                               |
//! |--------------|--------------|--------------|---------------------------------------------------|
//! | none         | missing      | `Incomplete` | a packet waits: multicast a question              |
//! | none         | introduction | `Stale`      | RFC 826, §7.2.3: a station that asks us needs an answer soon |
//! | `Incomplete` | timeout      | `Incomplete` | multicast the question again                      |
//! | `Incomplete` | last timeout | `Failed`     | no answer: drop held packets                      |
//! | `Incomplete` | proof        | `Reachable`  | it answers us                                     |
//! | `Incomplete` | claim        | `Stale`      | usable at once, and proven once it is used        |
//! | `Reachable`  | timeout      | `Stale`      | usable, no longer proven                          |
//! | `Reachable`  | proof        | `Reachable`  | proven again, for another lifetime                |
//! | `Reachable`  | dispute      | `Stale`      | two stations claim it: §7.2.5 keeps the first     |
//! | `Reachable`  | claim        | `Stale`      | another station speaks for it: believed, unproven |
//! | `Stale`      | used         | `Delay`      | traffic pays for the check                        |
//! | `Stale`      | proof        | `Reachable`  | proven again                                      |
//! | `Stale`      | claim        | `Stale`      | the new link-layer address, still unproven        |
//! | `Delay`      | timeout      | `Probe`      | silent for 5 s: probe it, unicast                 |
//! | `Delay`      | proof        | `Reachable`  | proven again                                      |
//! | `Delay`      | claim        | `Stale`      | what was to be checked is no longer so            |
//! | `Probe`      | timeout      | `Probe`      | probe again                                       |
//! | `Probe`      | last timeout | `Failed`     | the host went away                                |
//! | `Probe`      | proof        | `Reachable`  | proven again                                      |
//! | `Probe`      | claim        | `Stale`      | the probed address is no longer right             |
//! | `Failed`     | timeout      | `Failed`     | from now on a packet may start over               |
//! | `Failed`     | last timeout | none         | no packet wanted it                               |
//! | `Failed`     | retry        | `Incomplete` | a next hop needs it, with or without traffic      |
//! | `Failed`     | late missing | `Incomplete` | a packet starts over                              |
//! | `Failed`     | proof        | `Reachable`  | it is back                                        |
//! | `Failed`     | claim        | `Stale`      | it is back, or says so                            |
//! | any          | set          | `Permanent`  | the operator's word                               |
//!
//! | Event        | is                                                                               |
//! |--------------|----------------------------------------------------------------------------------|
//! | missing      | a worker has a packet for it and no address                                      |
//! | late missing | a packet, after a failed entry stopped refusing                                  |
//! | used         | a worker used the address while it was `Stale`                                   |
//! | timeout      | the entry's timer; *last*: nothing left to try; *retry*: a next hop is pinned    |
//! | introduction | an ARP request for one of our addresses; a solicitation's source address         |
//! | proof        | an ARP reply while we ask; an advertisement with the solicited flag              |
//! | claim        | any other sign of life with an address we do not have, and that may override     |
//! | dispute      | an advertisement of another address without the override flag                    |
//! | set          | the operator configured it                                                       |
//!
//! Moves that tempt, and must not happen (the same test walks them):
//!
//! | State       | Event        | Not to       | Because                                            |
//! |-------------|--------------|--------------|----------------------------------------------------|
//! | none        | claim        | `Stale`      | one station could fill the table with gratuitous ARP |
//! | none        | proof        | `Reachable`  | we sent no question (§7.2.5)                       |
//! | `Reachable` | claim        | `Reachable`  | that it speaks does not prove that it hears us     |
//! | `Stale`     | timeout      | `Failed`     | no packet uses it: no reason to probe (no timer runs) |
//! | `Stale`     | dispute      | `Reachable`  | the solicited flag is not for this address         |
//! | `Probe`     | dispute      | `Stale`      | a second claimant does not save the first          |
//! | `Failed`    | missing      | `Incomplete` | a dead host must not cost a question per packet    |
//! | `Permanent` | claim        | `Stale`      | the operator's word stands                         |
//!
//! # Threads
//!
//! | thing                         | control thread                  | workers                         |
//! |-------------------------------|---------------------------------|---------------------------------|
//! | [`Table`], its entries        | owns                            | never                           |
//! | [`Report`] ring               | reads                           | write; a full ring loses nothing that matters: the next packet says it again |
//! | [`AdjacencyTable`]            | publishes                       | read through [`Adjacencies`]    |
//! | [`HoldQueues`]                | never                           | each its own                    |
//! | [`OwnTable`]                  | owns                            | read through [`OwnAddresses`]   |
//!
//! # Guarantees
//!
//! - **N1** A reader of an adjacency sees a whole old or a whole new record, never a mixture.
//! - **N2** Resolving writes no shared memory, takes no lock and never repeats a read.
//! - **N3** A reader that sees a generation sees every adjacency published before it.
//! - **N4** The table never holds more than `entries_max` entries, and never forgets a neighbour in
//!   `Reachable`, `Delay`, `Probe` or `Permanent`, or one that a next hop needs, to make room.
//!
//! Our own addresses have a table of states of their own: [`own`]. Elsewhere: ARP and ND bytes are in `wire`; the
//! mirror in `manylane` copies the kernel's own table.

pub mod adjacency;
pub mod bucket;
pub mod entry;
pub mod hold;
pub mod own;
pub mod table;

pub use adjacency::{
    Adjacencies, Adjacency, AdjacencyState, AdjacencyTable, AdjacencyWords, HEADER_MAX, Header,
    Rewrite,
};
pub use entry::{Entry, Kind, State, Timing, Trust};
pub use hold::{HOLD_MAX_NS, HoldLimits, HoldQueues};
pub use own::table::{Conflicts, OwnAction, OwnAddresses, OwnTable};
pub use own::{Claim, DuplicateDetection, OwnAddress, OwnState, OwnTiming, Standing};
pub use table::{Action, Report, Requester, Table, TableConfig, TableCounts, TableFull};

use std::fmt;
use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;

/// What names a neighbour: the link it is on and its address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The port; link-local addresses mean something only together with it.
    pub port: PortId,
    /// The neighbour's IP address.
    pub addr: IpAddr,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.addr, self.port)
    }
}

/// What an [`Index`](manylane_sync::rcu::Index) to a neighbour's slot points at: a mark for the
/// type, never a value.
#[derive(Debug)]
pub enum Neighbour {}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
