use super::*;
use crate::primitive::AtomicUsize;
use crate::refcount::faults;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn the_last_put_destroys_and_releases() {
    let (count, mut destroyed) = (DebtRef::new(1), false);
    assert!(count.get());
    count.get_held();
    assert_eq!(count.read(), 3);
    assert!(!count.put(never));
    assert!(!count.put(never));
    assert!(count.put(|| destroyed = true));
    assert!(destroyed);
    assert_eq!(count.read(), 0);
    assert!(!count.get());
    assert!(!count.get());
    assert_eq!(word(&count), NONE | DEAD, "failed attempts do not add up");
}

/// The steps of a race, one after the other: `a` hits zero, `b` revives, hits zero and kills.
#[test]
fn whoever_settles_last_releases() {
    let count = DebtRef::new(1);
    let a = count.put_fast().expect("a hits zero");
    assert!(count.get(), "b revives");
    assert_eq!(word(&count), NONE + 1 + OWED_ONE);
    let mut destroyed = false;
    assert!(!count.put(|| destroyed = true), "b kills, but a is still to come");
    assert!(destroyed);
    assert!(count.put_slow(a, never), "a is the last to touch the count");
}

#[test]
fn a_panic_while_destroying_settles() {
    let count = DebtRef::new(1);
    let a = count.put_fast().expect("a hits zero");
    assert!(count.get(), "b revives");
    let panicked = catch_unwind(AssertUnwindSafe(|| count.put(|| panic!("as the test wants"))));
    assert!(panicked.is_err());
    assert!(count.put_slow(a, never), "a can still be the last");
}

#[test]
fn a_count_that_overflows_is_never_dead() {
    let before = faults().overflows;
    let count = DebtRef::new(DebtRef::REFERENCES_MAX);
    assert!(count.get());
    assert!(faults().overflows > before);
    assert_eq!(word(&count), PINNED);
    for _ in 0..3 {
        assert!(!count.put(never));
        assert!(count.get());
        count.get_held();
    }
    assert!(count.read() > DebtRef::REFERENCES_MAX);
}

#[test]
fn a_pinned_count_does_not_drift_away() {
    for drifted in [PINNED - DRIFT - 1, PINNED + DRIFT + 1] {
        let count = DebtRef::with_word(drifted);
        assert!(count.get());
        assert_eq!(word(&count), PINNED);
        let count = DebtRef::with_word(drifted);
        assert!(!count.put(never));
        assert_eq!(word(&count), PINNED);
    }
}

#[test]
fn a_put_too_many_is_counted_and_does_not_revive() {
    let before = faults().underflows;
    let count = DebtRef::new(1);
    assert!(count.put(|| ()));
    assert!(!count.put(never));
    assert!(faults().underflows > before);
    assert_eq!(word(&count), NONE | DEAD);
    assert!(!count.get());
}

/// The pin meets a zero-hitter at work: the object is leaked, not freed, and no debt is forged.
#[test]
fn a_put_too_many_beside_the_last_one_leaks() {
    for others_owed in [0, 1] {
        let count = DebtRef::with_word(NONE + 1 + others_owed * OWED_ONE);
        let last = count.put_fast().expect("it hits zero");
        assert!(!count.put(never), "the one too many");
        assert!(!count.put_slow(last, never), "the last one finds it pinned");
        assert_eq!(word(&count) & (DEAD | REFS), PINNED);
        assert!(count.get() && !count.put(never));
    }
}

/// Between a put too many and its pinning, the word is below its zone; it may also die there.
#[test]
fn a_get_below_the_zone_pins_or_fails() {
    let count = DebtRef::with_word(NONE - 1);
    assert!(count.get());
    assert_eq!(word(&count), PINNED);
    let count = DebtRef::with_word((NONE - 1) | DEAD);
    assert!(!count.get());
    assert_eq!(word(&count), (NONE - 1) | DEAD);
}

#[test]
#[should_panic(expected = "cloned without a holder")]
fn a_dead_reference_is_not_cloned() {
    let count = DebtRef::new(1);
    assert!(count.put(|| ()));
    count.get_held();
}

#[test]
fn what_is_owed_is_a_number_with_a_sign() {
    assert!(owes_more(NONE, NONE.wrapping_sub(OWED_ONE)), "0 after -1");
    assert!(!owes_more(NONE.wrapping_sub(OWED_ONE), NONE), "-1 after 0");
    assert!(owes_more(NONE + 3 * OWED_ONE, NONE + OWED_ONE));
    assert!(!owes_more(NONE, NONE));
}

#[test]
fn the_only_holder_puts_and_kills_in_one_step() {
    let (count, mut destroyed) = (DebtRef::new(2), false);
    assert_eq!(count.put_only(never), None, "another holds");
    assert!(!count.put(never));
    assert_eq!(count.put_only(|| destroyed = true), Some(true));
    assert!(destroyed && !count.get());
    assert_eq!(word(&count), NONE | DEAD);
    assert_eq!(DebtRef::with_word(PINNED).put_only(never), None, "never freed");
}

/// As `whoever_settles_last_releases`: `b` revives, and kills without hitting zero.
#[test]
fn the_only_holder_leaves_the_memory_to_one_that_still_settles() {
    let count = DebtRef::new(1);
    let a = count.put_fast().expect("a hits zero");
    assert!(count.get(), "b revives");
    let mut destroyed = false;
    assert_eq!(count.put_only(|| destroyed = true), Some(false), "a is still to come");
    assert!(destroyed);
    assert!(count.put_slow(a, never), "a is the last to touch the count");
}

/// Threads take and put as fast as they can until all references are put: hitting zero, reviving and killing in all
/// orders.
#[test]
fn four_threads_destroy_once_and_release_once() {
    for _ in 0..if cfg!(miri) { 3 } else { 500 } {
        let count = DebtRef::new(4);
        let (destroyed, released) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let put = || {
            if count.put(|| {
                destroyed.fetch_add(1, Ordering::Relaxed);
            }) {
                assert_eq!(destroyed.load(Ordering::Relaxed), 1, "released before destroyed");
                released.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    put();
                    (0..200).filter(|_| count.get()).for_each(|_| put());
                });
            }
        });
        assert_eq!(destroyed.into_inner(), 1);
        assert_eq!(released.into_inner(), 1);
        assert_eq!(word(&count) & !OWED, NONE | DEAD);
    }
}

#[test]
fn the_count_is_one_word() {
    assert_eq!(size_of::<DebtRef>(), 8);
}

const OWED: u64 = !(DEAD | REFS);

fn never() {
    panic!("destroyed under a holder");
}

fn word(count: &DebtRef) -> u64 {
    count.word.load(Ordering::Relaxed)
}
