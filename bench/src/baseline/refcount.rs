//! Known reference counts, each with the one question that matters: may I still have it (`get`), and
//! was that the last one (`put`)?
//!
//! | count          | `get`                 | `put`                 | closes the 1 -> 0 race                |
//! |----------------|-----------------------|-----------------------|---------------------------------------|
//! | [`CasRef`]     | loop                  | one subtraction       | yes: nothing revives                  |
//! | [`ArcTwin`]    | loop                  | one subtraction       | yes: as `std::sync::Weak`             |
//! | [`XaddCasRef`] | one addition          | loop                  | yes: a put that fails has its reference|
//! | [`StickyRef`]  | one addition          | one subtraction       | no: needs deferred freeing            |
//! | [`PairRef`]    | one addition          | one subtraction       | not decided: the floor          |
//!
//! The same file is compiled into the build that counts accesses, so it takes its atomics from `primitive`, and nothing
//! else. Loops give what failed to a function: one that does nothing costs nothing.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]
#![allow(dead_code, reason = "two builds use a part each")]

use manylane_sync::primitive::{AtomicU64, Ordering, fence};

macro_rules! counts {
    ($($count:ident),*) => {$(
        impl $count {
            pub fn new(references: u64) -> $count {
                $count(AtomicU64::new(references))
            }
        }
    )*};
}

counts!(CasRef, ArcTwin, XaddCasRef, StickyRef, PairRef);

/// Increment unless zero by compare-and-swap: `atomic_inc_not_zero()` of the Linux kernel, and `atomic_dec_and_test()`.
pub struct CasRef(AtomicU64);

/// What `std::sync::Weak::upgrade` and the drop of an `Arc` do to the strong count.
pub struct ArcTwin(AtomicU64);

/// Counts whose `get` is a loop that is allowed some ordering and some references, and whose `put` a subtraction.
macro_rules! loop_to_get {
    ($($count:ident: $ordering:ident $(, at most $references_max:expr)?;)*) => {$(
        impl $count {
            /// Takes a reference, unless none is left.
            #[inline(always)]
            #[must_use]
            pub fn get(&self) -> bool {
                self.get_counting(|| ())
            }

            /// As `get`; calls `failed` for each exchange that did not succeed.
            #[inline(always)]
            #[must_use]
            pub fn get_counting(&self, mut failed: impl FnMut()) -> bool {
                // Relaxed: a thread that found the object has seen it initialised; holders are ordered by their puts.
                let mut count = self.0.load(Ordering::Relaxed);
                while count != 0 {
                    $(assert!(count <= $references_max, "the count is too large");)?
                    let (more, relaxed) = (count + 1, Ordering::Relaxed);
                    match self.0.compare_exchange_weak(count, more, Ordering::$ordering, relaxed) {
                        Ok(_) => return true,
                        Err(now) => count = now,
                    }
                    failed();
                }
                false
            }

            /// Gives a reference back. True: it was the last.
            #[inline(always)]
            #[must_use]
            pub fn put(&self) -> bool {
                is_last(&self.0)
            }
        }
    )*};
}

loop_to_get! {
    // Relaxed: as the load.
    CasRef: Relaxed;
    // Acquire: as in `std`, which needs it for `Arc::new_cyclic`. As `std`: more is a leak in a loop.
    ArcTwin: Acquire, at most i64::MAX as u64;
}

/// Addition to get, compare-and-swap to put (the shape of Netty's counts): a put that has not
/// succeeded yet still has its reference, so the object stays.
pub struct XaddCasRef(AtomicU64);

impl XaddCasRef {
    const DEAD: u64 = 1 << 63;

    /// Takes a reference, unless the object is dead.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> bool {
        // Relaxed: as in `CasRef::get`. On a dead count the low bits only drift.
        self.0.fetch_add(1, Ordering::Relaxed) & Self::DEAD == 0
    }

    /// Gives a reference back. True: it was the last.
    #[inline(always)]
    #[must_use]
    pub fn put(&self) -> bool {
        self.put_counting(|| ())
    }

    /// As `put`; calls `failed` for each exchange that did not succeed.
    #[inline(always)]
    #[must_use]
    pub fn put_counting(&self, mut failed: impl FnMut()) -> bool {
        // Relaxed: the exchange orders.
        let mut count = self.0.load(Ordering::Relaxed);
        loop {
            let less = if count == 1 { Self::DEAD } else { count - 1 };
            // Release: what this holder did happens before what the last one does.
            match self.0.compare_exchange_weak(count, less, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if count == 1 => {
                    // Acquire fence: pairs with the Release of every put before.
                    fence(Ordering::Acquire);
                    return true;
                }
                Ok(_) => return false,
                Err(now) => count = now,
            }
            failed();
        }
    }
}

/// The sticky counter of Anderson, Blelloch and Wei (PLDI 2022, section 4.3): zero is made final by an exchange, which
/// a reader of a zero may do for the put that is late.
///
/// The put that came to zero touches the word again, and meanwhile another may have freed it: the
/// authors' libraries free later.
pub struct StickyRef(AtomicU64);

impl StickyRef {
    /// Zero is final.
    const ZERO: u64 = 1 << 63;
    /// A reader made it final, and no put has claimed the death yet.
    const HELPED: u64 = 1 << 62;

    /// Takes a reference, unless zero is final.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> bool {
        // Relaxed: as in `CasRef::get`.
        self.0.fetch_add(1, Ordering::Relaxed) & Self::ZERO == 0
    }

    /// Gives a reference back. True: it was the last.
    #[inline(always)]
    #[must_use]
    pub fn put(&self) -> bool {
        // Release: what this holder did happens before what the last one does.
        self.0.fetch_sub(1, Ordering::Release) == 1 && self.claim()
    }

    /// The references; a zero that it reports is final.
    pub fn read(&self) -> u64 {
        let count = self.0.load(Ordering::Relaxed);
        if count == 0 {
            let helped = Self::ZERO | Self::HELPED;
            // Relaxed: nothing is read by this answer.
            let done = self.0.compare_exchange(0, helped, Ordering::Relaxed, Ordering::Relaxed);
            return done.map_or_else(Self::references, |_| 0);
        }
        Self::references(count)
    }

    fn references(count: u64) -> u64 {
        if count & Self::ZERO == 0 { count } else { 0 }
    }

    #[cold]
    fn claim(&self) -> bool {
        // Acquire: pairs with the Release of every put before.
        match self.0.compare_exchange(0, Self::ZERO, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            // Acquire: as above, where a reader was faster.
            Err(now) if now & Self::HELPED != 0 => {
                self.0.swap(Self::ZERO, Ordering::Acquire) & Self::HELPED != 0
            }
            Err(_) => false,
        }
    }
}

/// An addition and a subtraction, and nothing is decided: no count can be cheaper.
pub struct PairRef(AtomicU64);

impl PairRef {
    /// Adds one. What was there before.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        // Relaxed: as cheap as the others'.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes one off. What was there before.
    #[inline(always)]
    pub fn put(&self) -> u64 {
        // Release: as the others'.
        self.0.fetch_sub(1, Ordering::Release)
    }
}

/// Takes one off, and says whether it was the last.
#[inline(always)]
fn is_last(count: &AtomicU64) -> bool {
    // Release: what this holder did happens before what the last one does.
    if count.fetch_sub(1, Ordering::Release) != 1 {
        return false;
    }
    // Acquire fence: pairs with the Release of every put before.
    fence(Ordering::Acquire);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! the_last_put_is_final {
        ($($name:ident: $count:ty,)*) => {$(
            #[test]
            fn $name() {
                let count = <$count>::new(1);
                assert!(count.get());
                assert!(!count.put());
                assert!(count.put());
                assert!(!count.get());
            }
        )*};
    }

    the_last_put_is_final! {
        cas_is_final: CasRef,
        arc_is_final: ArcTwin,
        xadd_cas_is_final: XaddCasRef,
        sticky_is_final: StickyRef,
    }

    #[test]
    fn a_sticky_zero_that_was_read_is_claimed_by_the_put_that_is_late() {
        let count = StickyRef::new(1);
        assert_eq!(count.read(), 1);
        assert_eq!(count.0.fetch_sub(1, Ordering::Relaxed), 1); // The first half of a put.
        assert_eq!(count.read(), 0);
        assert!(!count.get());
        assert_eq!(
            count.0.fetch_sub(1, Ordering::Relaxed),
            1 | StickyRef::ZERO | StickyRef::HELPED
        );
        assert!(count.claim(), "the second half");
        assert!(!count.claim(), "once");
    }

    #[test]
    fn a_pair_says_what_was_there() {
        let count = PairRef::new(5);
        assert_eq!((count.get(), count.put(), count.get()), (5, 6, 5));
    }
}
