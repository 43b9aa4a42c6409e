//! Grace periods that can only be waited for by a call that blocks, waited for by a thread of its own.
//!
//! The kernel's BPF programs read tables too, and report to no domain. Their grace period is a system call that returns
//! after 8 to 44 ms. One *reclaim thread* makes it; writers request a *round* of it and look, without waiting, whether
//! it is over. The thread takes the newest request, so that one call serves all requests made before it began.
//!
//! | side           | type             | does                                                        |
//! |----------------|------------------|-------------------------------------------------------------|
//! | writers        | [`Rounds`]       | `request`, then ring the reclaim thread; `is_over`          |
//! | reclaim thread | [`RoundsWaiter`] | `run`, while it `is_asked`; then ring the writers           |
//!
//! | word        | written by               | read by                       |
//! |-------------|--------------------------|-------------------------------|
//! | `requested` | writers (`request`)      | reclaim thread (`run`)        |
//! | `completed` | reclaim thread (`run`)   | writers (`is_over`)           |
//!
//! How the sides sleep is the caller's: by a [`Doorbell`](crate::doorbell::Doorbell) each, say.

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicU64, Ordering};

/// The writers' side.
#[derive(Clone)]
pub struct Rounds(Arc<Shared>);

/// The reclaim thread's side. A `Rounds` has one.
pub struct RoundsWaiter {
    shared: Arc<Shared>,
    /// What `shared.completed` holds.
    completed: u64,
}

struct Shared {
    requested: CacheAligned<AtomicU64>,
    completed: CacheAligned<AtomicU64>,
}

/// A round that was requested. Rounds are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Round(u64);

/// Both sides.
pub fn rounds() -> (Rounds, RoundsWaiter) {
    let word = || CacheAligned(AtomicU64::new(0));
    let shared = Arc::new(Shared { requested: word(), completed: word() });
    (Rounds(shared.clone()), RoundsWaiter { shared, completed: 0 })
}

impl Rounds {
    /// Requests a round that begins after this call.
    pub fn request(&self) -> Round {
        // Release: pairs with the Acquire load in `RoundsWaiter::run`: what we unpublished before is unpublished for
        // the readers that the round waits for, before it begins. Of several writers' requests the thread takes the
        // newest, and is ordered after all: each add continues the others' release sequence. Explored by
        // `slots_f_a_slot_is_free_when_neither_side_looks`.
        Round(self.0.requested.fetch_add(1, Ordering::Release) + 1)
    }

    /// Whether a round that began after the request is over.
    pub fn is_over(&self, round: Round) -> bool {
        // Acquire: pairs with the Release store in `RoundsWaiter::run`: what the waited-for did last
        // with the object happens before what we do with it.
        // Explored by `slots_f_a_slot_is_free_when_neither_side_looks`.
        self.0.completed.load(Ordering::Acquire) >= round.0
    }
}

impl RoundsWaiter {
    /// Whether a request is waiting.
    pub fn is_asked(&self) -> bool {
        // Relaxed: only whether to call `run`, which looks again.
        self.shared.requested.load(Ordering::Relaxed) != self.completed
    }

    /// Runs one round for all requests, if any wait, and returns whether it did. `wait` blocks until every reader at
    /// the time of the call has finished; if it fails, or panics, the requests stand.
    pub fn run<E>(&mut self, wait: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        // Acquire: pairs with the Release in `Rounds::request`, see there. Taken before `wait`: a request made
        // meanwhile may have unpublished something too late for it.
        let newest = self.shared.requested.load(Ordering::Acquire);
        if newest == self.completed {
            return Ok(false);
        }
        wait()?;
        self.completed = newest;
        // Release: pairs with the Acquire in `Rounds::is_over`, see there.
        self.shared.completed.store(newest, Ordering::Release);
        Ok(true)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_call_serves_all_that_was_requested_before_it() {
        let (rounds, mut waiter) = rounds();
        assert_eq!(waiter.run(never), Ok(false));
        let [one, two] = [rounds.request(), rounds.clone().request()];
        assert!(waiter.is_asked() && one < two && !rounds.is_over(one));
        let mut late = None;
        let ran = waiter.run(|| {
            late = Some(rounds.request());
            Ok::<(), ()>(())
        });
        assert_eq!(ran, Ok(true));
        let late = late.expect("the round was run");
        assert_eq!([one, two, late].map(|round| rounds.is_over(round)), [true, true, false]);
        assert!(waiter.is_asked());
    }

    #[test]
    fn a_call_that_fails_completes_nothing() {
        let (rounds, mut waiter) = rounds();
        let round = rounds.request();
        assert_eq!(waiter.run(|| Err("no memory")), Err("no memory"));
        assert!(waiter.is_asked() && !rounds.is_over(round));
        assert_eq!(waiter.run(|| Ok::<(), ()>(())), Ok(true));
        assert!(!waiter.is_asked() && rounds.is_over(round));
    }

    fn never() -> Result<(), ()> {
        panic!("nothing is left to wait for")
    }
}
