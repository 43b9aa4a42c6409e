//! A count for objects that are found and freed by grace periods.

use super::faults::{Fault, report};
use super::memory::Memory;
use crate::primitive::{AtomicU32, Ordering};
use crate::rcu::Guard;

/// A reference count whose `put` needs the guard under which the object is not freed.
///
/// The word holds the references minus one, so that "one" and "none" are two neighbours and the sign bit tells the fast
/// path everything:
///
/// | from          | zone      | get                        | put                                   |
/// |---------------|-----------|----------------------------|---------------------------------------|
/// | `0`           | live      | adds one                   | takes one off; from 0 it goes to `NONE`|
/// | `0x8000_0000` | saturated | stays: the object is leaked| stays                                 |
/// | `0xc000_0000` | dead      | fails                      | an underflow                          |
/// | `0xffff_ffff` | `NONE`    | revives: back to live      | an underflow                          |
///
/// Death takes two steps: the put of the last reference leaves `NONE`, and an exchange of `NONE` for `DEAD`, tried
/// once, decides. If it fails, a thread revived the object and has a put of its own, or another put that also left
/// `NONE` was faster. Each zone is rewritten to its middle by the thread that meets its edge, so that 2^28 threads
/// could race there.
///
/// Between the two steps the object may be revived, put and retired by others: that is why `put` takes
/// a [`Guard`]. What the others retired is not freed before our guard ends, so the exchange still finds
/// the word. After Linux's `rcuref` (`lib/rcuref.c`, Gleixner 2023), including its repair of 2025
/// (commit b9a49520679e): the slow path decides by the value its own subtraction returned. Read again,
/// the word may show a put that came later, and be taken for a put too many.
///
/// The guard must be of the domain in which the object is retired.
#[derive(Debug)]
pub struct RcuRef {
    word: AtomicU32,
    memory: Memory,
}

/// The largest word that is live: 2^31 references.
const LIVE_LAST: u32 = 0x7fff_ffff;
const SATURATED_FIRST: u32 = LIVE_LAST + 1;
const SATURATED: u32 = 0xa000_0000;
const DEAD_FIRST: u32 = 0xc000_0000;
const DEAD: u32 = 0xe000_0000;
/// The last reference was put; no thread has decided yet.
const NONE: u32 = 0xffff_ffff;

impl RcuRef {
    /// The most references: 2^31. One more, and the object is leaked.
    pub const REFERENCES_MAX: u32 = LIVE_LAST + 1;

    /// A count of `references`, 1 to [`RcuRef::REFERENCES_MAX`].
    pub fn new(references: u32) -> RcuRef {
        assert!((1..=Self::REFERENCES_MAX).contains(&references), "a count starts with a holder");
        RcuRef::with_word(references - 1)
    }

    fn with_word(word: u32) -> RcuRef {
        RcuRef { word: AtomicU32::new(word), memory: Memory::new() }
    }

    /// Takes a reference, unless the object is dead. The caller holds a reference already, or is under
    /// a guard since before it found the object.
    #[inline]
    #[must_use = "a reference that is not put leaks its object"]
    pub fn get(&self) -> bool {
        // Relaxed: a thread that finds the object or has a reference has seen it initialised; what the new holder does
        // is ordered by its put. Explored by `rcuref_...` in `tests/loom.rs`.
        let now = self.word().fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        now <= LIVE_LAST || self.get_slow(now)
    }

    /// Gives a reference back. True: it was the last one, `get` fails from now on, and the caller
    /// unpublishes and retires the object.
    #[inline]
    #[must_use = "the caller that puts the last reference retires the object"]
    pub fn put(&self, guard: Guard<'_>) -> bool {
        let _ = guard;
        // Release: pairs with the Acquire of the exchange in `put_slow`, by the release sequence of the
        // puts and gets between. What each holder did happens before what the last one does. Explored
        // by `rcuref_...`; `mutant_rcuref_relaxed_put_...`.
        let now = self.word().fetch_sub(1, Ordering::Release).wrapping_sub(1);
        now > LIVE_LAST && self.put_slow(now)
    }

    /// The references, as far as one look can tell. 0 is not death: a `get` may still revive the object
    /// before its last put has decided. Above [`RcuRef::REFERENCES_MAX`]: saturated.
    pub fn read(&self) -> u32 {
        // Relaxed: the number is old when it is read.
        let word = self.word().load(Ordering::Relaxed);
        if word >= DEAD_FIRST { 0 } else { word + 1 }
    }

    /// Whether `get` fails for ever.
    pub fn is_dead(&self) -> bool {
        // Relaxed: as in `read`. This answer allows no thread to free; that is for `put`'s.
        (DEAD_FIRST..NONE).contains(&self.word().load(Ordering::Relaxed))
    }

    /// `now` is what our own addition left: not live.
    #[cold]
    fn get_slow(&self, now: u32) -> bool {
        if now >= DEAD_FIRST {
            // Relaxed: no thread relies on it. Dead is final, so this plain store loses no reference.
            self.word().store(DEAD, Ordering::Relaxed);
            return false;
        }
        // Relaxed: a saturated object is never freed, so nothing is ordered.
        self.word().store(SATURATED, Ordering::Relaxed);
        if now == SATURATED_FIRST {
            report(Fault::Overflow);
        }
        true
    }

    /// `now` is what our own subtraction left: not live. The word is not read again.
    #[cold]
    fn put_slow(&self, now: u32) -> bool {
        if now == NONE {
            // Acquire: pairs with the Release of every put. Relaxed on failure: we leave. The guard
            // keeps the word where it is since our subtraction. `mutant_rcuref_relaxed_death_...`.
            return self
                .word()
                .compare_exchange(NONE, DEAD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        }
        if now >= DEAD_FIRST {
            // Relaxed: as in `get_slow`. If a last put has not decided yet, its exchange fails now, and
            // the object is leaked.
            self.word().store(DEAD, Ordering::Relaxed);
            report(Fault::Underflow);
        } else {
            // Relaxed: as in `get_slow`.
            self.word().store(SATURATED, Ordering::Relaxed);
        }
        false
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        self.memory.touch();
        &self.word
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::rcu::{Domain, Reader};
    use crate::refcount::faults;

    #[test]
    fn the_last_put_is_the_only_one_that_says_so() {
        let reader = reader();
        let count = RcuRef::new(1);
        assert!(count.get());
        assert_eq!(count.read(), 2);
        assert!(!count.put(reader.guard()));
        assert!(!count.is_dead());
        assert!(count.put(reader.guard()));
        assert!(count.is_dead());
        assert_eq!(count.read(), 0);
        assert!(!count.get());
        assert_eq!(word(&count), DEAD, "a failed get leaves the middle of the zone");
    }

    #[test]
    fn an_object_without_references_lives_until_its_last_put_has_decided() {
        let count = RcuRef::with_word(NONE);
        assert_eq!((count.read(), count.is_dead()), (0, false));
        assert!(count.get(), "revived");
        assert!(!count.put_slow(NONE), "the put that was beaten leaves");
        assert!(count.put(reader().guard()));
    }

    #[test]
    fn a_count_that_overflows_is_never_dead() {
        let (reader, before) = (reader(), faults().overflows);
        let count = RcuRef::new(RcuRef::REFERENCES_MAX);
        assert!(count.get());
        assert!(faults().overflows > before);
        assert_eq!(word(&count), SATURATED);
        for _ in 0..3 {
            assert!(!count.put(reader.guard()));
            assert_eq!(word(&count), SATURATED);
            assert!(count.get());
        }
        assert!(!count.is_dead());
    }

    #[test]
    fn a_put_too_many_is_counted_and_does_not_revive() {
        let (reader, before) = (reader(), faults().underflows);
        let count = RcuRef::new(1);
        assert!(count.put(reader.guard()));
        assert!(!count.put(reader.guard()));
        assert!(faults().underflows > before);
        assert_eq!(word(&count), DEAD);
        assert!(!count.get());
    }

    /// The saturation meets a last put between its two steps: the object is leaked, not freed.
    #[test]
    fn a_put_too_many_beside_the_last_one_leaks() {
        let count = RcuRef::with_word(NONE);
        assert!(!count.put(reader().guard()));
        assert!(!count.put_slow(NONE), "the last put's second step");
        assert!(!count.get());
    }

    #[test]
    fn every_zone_has_room_for_threads_that_race_at_its_edges() {
        let reader = reader();
        const RACE: u32 = 1 << 28;
        for word in [SATURATED - RACE, SATURATED + RACE, DEAD_FIRST - 1] {
            let count = RcuRef::with_word(word);
            assert!(count.get() || word == DEAD_FIRST - 1, "{word:#x}: saturated");
            assert!(!count.put(reader.guard()), "{word:#x}: never the last");
        }
        for word in [DEAD - RACE, DEAD + RACE] {
            assert!(!RcuRef::with_word(word).get(), "{word:#x}: dead");
            assert!(!RcuRef::with_word(word).put(reader.guard()), "{word:#x}: dead");
        }
    }

    /// Threads take and put as fast as they can until all references are put.
    #[test]
    fn four_threads_make_one_last_put() {
        let domain = Domain::new(4);
        for _ in 0..200 {
            let count = RcuRef::new(4);
            let last: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let reader = domain.register().expect("there is a slot for each");
                            let mut last = usize::from(count.put(reader.guard()));
                            for _ in 0..200 {
                                if count.get() {
                                    last += usize::from(count.put(reader.guard()));
                                }
                            }
                            last
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert_eq!(last, 1);
            assert!(count.is_dead());
        }
    }

    #[test]
    fn the_count_is_one_word() {
        assert_eq!(size_of::<RcuRef>(), 4);
    }

    fn reader() -> Reader {
        Domain::new(1).register().expect("the first fits")
    }

    fn word(count: &RcuRef) -> u32 {
        count.word.load(Ordering::Relaxed)
    }
}
