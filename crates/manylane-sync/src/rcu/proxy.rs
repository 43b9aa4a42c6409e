//! A reader that stands for readers that can only be waited for by a call that blocks.
//!
//! The kernel's BPF programs read tables too, and say so to no domain. Their grace period is a system call
//! that returns after 8 to 44 ms, when every program has ended that ran when it was made. A *reclaim
//! thread* makes it, and says to the domain what follows:
//!
//! | step                        | what is then true of each program                                     |
//! |-----------------------------|-----------------------------------------------------------------------|
//! | `let token = proxy.begin()` | what was unpublished before the ticket `token` is, for the call       |
//! | the call that blocks        | it has ended, or began after the call did and finds none of that      |
//! | `proxy.end(token)`          | tickets up to `token` are over, as far as the programs are concerned  |
//!
//! So everything that waits for grace periods of the domain, [`Limbo`](super::Limbo)s and [`Slots`](super::Slots),
//! waits for the programs too, and for workers, and knows nothing of either. An object retired during a call waits for
//! the next: the caller rings the reclaim thread while anything waits.
//!
//! [`Rounds`](super::Rounds) do the same beside a domain, for one table; a proxy does it inside.
//!
//! # Guarantee
//!
//! - **G** What a program found before a grace period began is not freed until a call has returned that was
//!   made after it began, or while the program could not find it any more.
//!
//! Explored in `tests/loom/proxy.rs`.

use super::{Domain, OFFLINE, Slot, TooManyReaders};
use crate::primitive::{Ordering, fence};

/// The reclaim thread's side: the reader of a domain shared by all programs that a call waits for.
///
/// Once it is there, nothing is over before it has said so. Make it before the first program can run.
/// Dropped, also by a panic, it says nothing any more, and nothing is over ever again: writers run short and
/// say so, and nothing is used early. [`Proxy::leave`] is the other way.
pub struct Proxy {
    domain: Domain,
    slot: usize,
}

/// Up to which ticket the next call counts.
#[must_use = "a token that is not ended with lets nothing be over"]
#[derive(Debug)]
pub struct ProxyToken(u64);

impl Domain {
    /// A reader that stands for others.
    pub fn proxy(&self) -> Result<Proxy, TooManyReaders> {
        let proxy = Proxy { domain: self.clone(), slot: self.take_slot()? };
        // Release: as in `Reader::online`, for the slot's last owner.
        proxy.slot().seen.store(NEVER, Ordering::Release);
        // SeqCst fence: as in `Reader::online`, whose partner and two cases are at the fence in `Domain::start`. The
        // reads of programs come after it: they run once a proxy exists.
        fence(Ordering::SeqCst);
        Ok(proxy)
    }
}

/// The token before the first ticket: a proxy has never been quiescent. The programs it stands for may read what was
/// published before it was made.
const NEVER: u64 = 1;

impl Proxy {
    /// Before the call that blocks.
    pub fn begin(&self) -> ProxyToken {
        // Acquire: pairs with the Release in `Domain::start`. What was unpublished before the ticket is unpublished
        // before the call that follows is made; and a program that begins to read after that call was made sees what
        // its caller saw: the call promises that (for RCU, Documentation/RCU/Design/ Requirements: "Grace-Period
        // Guarantee" and its memory barriers).
        // Now and not after the call: what is unpublished meanwhile may have been found by a program that
        // began after the call did, for which it does not wait.
        // Explored by `rcu_g_a_call_waits_for_what_was_unpublished_before_it`; the mutant that takes its
        // token after the call frees what a program has found.
        ProxyToken(self.domain.0.token.load(Ordering::Acquire))
    }

    /// After the call has returned. If it failed, do not: drop the token, and begin anew.
    pub fn end(&mut self, token: ProxyToken) {
        // Release: pairs with the Acquire in `Domain::is_over` and `Domain::passed`. What programs did before the call
        // returned happens before that (the call's other promise), and so before what the writer does with the objects
        // that they had found.
        // Explored by `rcu_g_...`; the mutant with a relaxed store lets the writer be first.
        self.slot().seen.store(token.0, Ordering::Release);
    }

    /// Ends the proxy, and leaves the domain: after a call that was made when no program could begin again.
    pub fn leave(self) {
        // Release, both: as in `Reader::offline` and when a reader is dropped.
        self.slot().seen.store(OFFLINE, Ordering::Release);
        self.slot().taken.store(false, Ordering::Release);
    }

    fn slot(&self) -> &Slot {
        &self.domain.0.slots[self.slot]
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::super::Limbo;
    use super::*;

    #[test]
    fn nothing_is_over_before_a_call_that_was_made_after_it_began() {
        let domain = Domain::new(2);
        let mut proxy = domain.proxy().expect("the first fits");
        let mut worker = domain.register().expect("there is room for two");
        let early = domain.start();
        let token = proxy.begin();
        let late = domain.start();
        worker.quiescent();
        assert_eq!([early, late].map(|ticket| domain.is_over(ticket)), [false; 2]);
        proxy.end(token);
        assert_eq!([early, late].map(|ticket| domain.is_over(ticket)), [true, false]);
        assert_eq!(domain.passed(), early);
        let token = proxy.begin();
        proxy.end(token);
        assert!(domain.is_over(late));
    }

    #[test]
    fn a_call_that_failed_ends_nothing() {
        let domain = Domain::new(1);
        let proxy = domain.proxy().expect("the first fits");
        let mut limbo = Limbo::new(domain.clone(), 4);
        limbo.retire('a').expect("there is room");
        drop(proxy.begin());
        assert_eq!(limbo.reclaim(), None);
        proxy.leave();
        assert_eq!(limbo.reclaim(), Some('a'), "no reader is left to wait for");
        assert!(domain.register().is_ok(), "nor in its place");
    }

    #[test]
    fn a_proxy_that_was_dropped_frees_nothing() {
        let domain = Domain::new(1);
        let proxy = domain.proxy().expect("the first fits");
        let ticket = domain.start();
        drop(proxy);
        assert!(!domain.is_over(ticket) && domain.register().is_err());
    }

    #[test]
    fn a_proxy_takes_a_readers_place() {
        let domain = Domain::new(1);
        let _proxy = domain.proxy().expect("the first fits");
        assert_eq!(domain.proxy().err(), Some(TooManyReaders { readers_max: 1 }));
    }
}
