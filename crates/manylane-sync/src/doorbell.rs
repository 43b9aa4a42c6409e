//! Wake a sleeper, and only a sleeper.
//!
//! A worker without work *announces* that it will sleep, looks once more, and sleeps. A thread that has work for it
//! looks for the announcement after publishing the work, and only then pays for a wake-up. The caller supplies the
//! means to wake (an eventfd, a condition variable) as a [`Wake`].
//!
//! No wake-up is lost: `tests/loom.rs`, `no_wake_up_is_lost`.

use crate::CacheAligned;
use crate::primitive::{AtomicBool, Ordering, fence};

/// What ends a sleep. A wake that comes before the sleep must end it too, as an eventfd's does.
pub trait Wake {
    /// Ends the current sleep, or the next one.
    fn wake(&self);
}

/// One sleeper's bell; any thread may ring it.
pub struct Doorbell<W> {
    asleep: CacheAligned<AtomicBool>,
    wake: W,
}

impl<W: Wake> Doorbell<W> {
    /// The bell of a sleeper that is awake.
    pub fn new(wake: W) -> Doorbell<W> {
        Doorbell { asleep: CacheAligned(AtomicBool::new(false)), wake }
    }

    /// For the sleeper: sleeps by `wait`, unless `has_work` finds something to do after all. `None` when it did not
    /// sleep.
    pub fn sleep<R>(&self, has_work: impl FnOnce() -> bool, wait: impl FnOnce() -> R) -> Option<R> {
        // Relaxed: the fence orders it.
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst fence, partner of the one in `ring`:
        // - if this fence is first, the ringer's load after its fence sees `asleep` and wakes us;
        // - if the ringer's is first, our look after the fence sees the work it published.
        fence(Ordering::SeqCst);
        let slept = if has_work() { None } else { Some(wait()) };
        // Relaxed: a ringer that still sees `true` wakes us once too often, which costs and harms not.
        self.asleep.store(false, Ordering::Relaxed);
        slept
    }

    /// For the thread that gave the sleeper work: wakes it if it sleeps. Call after publishing the work.
    /// Returns whether it had to.
    pub fn ring(&self) -> bool {
        // SeqCst fence: partner and the two cases are at the fence in `sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let asleep = self.asleep.load(Ordering::Relaxed);
        if asleep {
            self.wake.wake();
        }
        asleep
    }

    /// What wakes the sleeper, for it to sleep on.
    pub fn waker(&self) -> &W {
        &self.wake
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Count(Cell<u32>);

    impl Wake for Count {
        fn wake(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let bell = Doorbell::new(Count(Cell::new(0)));
        assert!(!bell.ring());
        assert_eq!(bell.sleep(|| false, || bell.ring()), Some(true));
        assert_eq!(bell.sleep(|| true, || ()), None, "work found at the last look");
        assert!(!bell.ring());
        assert_eq!(bell.waker().0.get(), 1);
    }
}
