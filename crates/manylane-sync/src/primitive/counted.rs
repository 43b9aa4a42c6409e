//! Atomics that count which of them cost another core its cache line, exactly.
//!
//! *Virtual workers* take the place of cores: [`Books::act`] names the worker that acts on this thread. Each of its
//! accesses, through the atomics and cells of [`primitive`](super) and by [`touch`], is entered with its kind, address
//! and call site, and runs through a small model of cache coherence. What a thread does while it acts for no worker
//! (preparing, looking at results) is not entered.
//!
//! # The model
//!
//! Caches without end, lines of 64 bytes, and for each line: the workers with a valid copy, and its last writer.
//!
//! | access         | the worker holds it | others hold it | last written by | is             | afterwards held by |
//! |----------------|---------------------|----------------|-----------------|----------------|--------------------|
//! | read           | yes                 |                |                 | free           | as before          |
//! | read           | no                  |                | another         | a *transfer*   | it too             |
//! | read           | no                  |                | no worker       | a first fetch  | it too             |
//! | write          | yes                 | no             |                 | free           | as before          |
//! | write          | yes                 | yes            |                 | an *upgrade*   | it alone           |
//! | write          | no                  |                | another         | a *transfer*   | it alone           |
//! | write          | no                  |                | no worker       | a first fetch  | it alone           |
//!
//! A read-modify-write is a write, also a compare-exchange that fails: x86 takes the line to try. An
//! access to several lines is entered once and goes through the model for each line.
//!
//! Not modelled: lines that leave a cache for want of room, the fetching of lines in pairs, prefetching,
//! store buffers and whatever else lets a core do several accesses while it has a line. So the counts
//! are those of the schedule, and a machine's may be lower: its cores do not stop between two accesses.
//!
//! Not seen: plain memory that no code [`touch`]es (a frame's bytes, memory of one thread), the counts of `Arc`, locks,
//! fences, the kernel.
//!
//! # Schedules
//!
//! - *Turns* ([`Books::turns`]): one thread steps the workers one after the other, a whole call each.
//!   What remains is the cost of a worker's turn though no other worker meets it in the middle.
//! - *Lockstep* ([`Books::lockstep`]): a thread for each worker, and each access passes the baton to
//!   the next. All meet all the time, and exchanges fail as they would.
//!
//! Both give equal counts each time, as far as the heap puts memory that is not aligned to lines in equal places.

mod atomics;
mod books;
mod lockstep;

pub use atomics::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
pub use books::{Books, Row, Site, WORKERS_MAX};

use std::cell::RefCell;
use std::panic::Location;

use lockstep::Baton;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// What an access is, as the rows tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An atomic load.
    Load,
    /// An atomic store.
    Store,
    /// A read-modify-write; a compare-exchange that succeeded.
    Rmw,
    /// A compare-exchange that failed.
    Failed,
    /// A read of plain memory.
    Read,
    /// A write of plain memory.
    Write,
}

/// What is done to plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Read,
    /// A write, or possibly one.
    Write,
}

/// Enters an access that is about to be made to `len` bytes of plain memory whose owner changes, such as
/// a frame's metadata.
///
/// Calls are under `cfg(manylane_counted)`: other builds have nothing to call, since even an empty function changes
/// what the compiler inlines around it.
#[track_caller]
pub fn touch(place: *const u8, len: usize, access: Access) {
    let kind = match access {
        Access::Read => Kind::Read,
        Access::Write => Kind::Write,
    };
    enter(place.addr(), len, kind);
}

/// The worker that acts on this thread.
struct Actor {
    books: Books,
    worker: usize,
    /// In lockstep, the next worker.
    baton: Option<Baton>,
}

thread_local! {
    static ACTOR: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

/// Enters an access that has just been done (atomics) or is about to be (plain memory), and in lockstep
/// lets the others have theirs.
#[track_caller]
fn enter(address: usize, len: usize, kind: Kind) {
    let site = Location::caller();
    ACTOR.with_borrow(|actor| {
        if let Some(Actor { books, worker, baton }) = actor {
            books.enter(*worker, address, len, kind, site);
            if let Some(baton) = baton {
                baton.pass(*worker);
            }
        }
    });
}

/// Lets `actor` act on this thread for the duration of `step`.
fn acting<R>(actor: Actor, step: impl FnOnce() -> R) -> R {
    /// Also when `step` panics.
    struct Exit;
    impl Drop for Exit {
        fn drop(&mut self) {
            ACTOR.set(None);
        }
    }
    ACTOR.with_borrow_mut(|acting| {
        assert!(acting.is_none(), "one worker acts at a time");
        *acting = Some(actor);
    });
    let _exit = Exit;
    step()
}

#[cfg(test)]
mod tests;
