use super::*;
use crate::CacheAligned;
use crate::primitive::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier, Weak};

/// Random operations on both, side by side: whatever can be observed is the same.
#[test]
fn means_what_arc_and_weak_mean() {
    let mut values = 0;
    for seed in 1..=if cfg!(miri) { 10 } else { 300 } {
        let mut random = Random(seed);
        let mut pair = Pair::new();
        for _ in 0..200 {
            pair.step(&mut random);
            pair.compare();
        }
        let Pair { strong, weak, drops } = pair;
        values += drops.len();
        drop((strong, weak));
        assert!(drops.iter().all(|(std, ours)| count(std) == 1 && count(ours) == 1));
    }
    assert!(values > if cfg!(miri) { 30 } else { 1000 }, "too few values died in between");
}

/// A value whose owners all come from upgrades dies at some moment, once.
#[test]
fn upgrades_and_drops_in_four_threads_drop_the_value_once() {
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Probe { alive: AtomicBool::new(true), drops: drops.clone() };
        let owner = Shared::new(value);
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (weak, start) = (Shared::downgrade(&owner), start.clone());
                std::thread::spawn(move || {
                    start.wait();
                    for _ in 0..if cfg!(miri) { 30 } else { 2000 } {
                        let Some(owner) = weak.clone().upgrade() else { break };
                        let another = owner.clone();
                        drop(owner);
                        assert!(another.alive.load(Ordering::Relaxed), "used after its drop");
                    }
                })
            })
            .collect();
        let weak = Shared::downgrade(&owner);
        drop(owner);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(count(&drops), 1);
        assert!(weak.upgrade().is_none());
        assert_eq!(weak_handles(&weak), 1, "the owners' share of the memory was released once");
    }
}

#[test]
fn a_value_that_panics_in_its_drop_is_dead_and_released() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as the test wants");
        }
    }

    let owner = Shared::new(Bomb);
    let weak = Shared::downgrade(&owner);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(owner))).expect_err("the drop panics");
    assert_eq!(panic.downcast_ref(), Some(&"as the test wants"));
    assert!(weak.upgrade().is_none());
    assert_eq!(weak_handles(&weak), 1, "the owners' share of the memory was released");
}

#[test]
fn a_value_that_upgrades_itself_in_its_drop_finds_itself_dead() {
    struct Selfish(std::cell::RefCell<Option<WeakShared<Selfish>>>);
    impl Drop for Selfish {
        fn drop(&mut self) {
            let weak = self.0.take().expect("the test put it there");
            assert!(weak.upgrade().is_none());
            assert_eq!(weak.clone().strong_count(), 0);
        }
    }

    let owner = Shared::new(Selfish(None.into()));
    *owner.0.borrow_mut() = Some(Shared::downgrade(&owner));
    drop(owner);
}

/// The steps of a race, one after the other: the value is taken out while a thread that hit zero is still to settle.
#[test]
fn a_value_is_taken_out_once_and_weak_handles_find_it_dead() {
    let owner = Shared::new(String::from("via 192.0.2.1"));
    let (weak, other) = (Shared::downgrade(&owner), owner.clone());
    let owner = Shared::try_unwrap(owner).expect_err("another owns it");
    drop(other);
    assert_eq!(Shared::try_unwrap(owner).as_deref(), Ok("via 192.0.2.1"));
    assert!(weak.upgrade().is_none());
    assert_eq!(weak_handles(&weak), 1, "the owners' share of the memory was released");
    let owner = Shared::new(7);
    assert_eq!(Shared::into_inner(owner.clone()), None);
    assert_eq!(Shared::unwrap_or_clone(owner.clone()), 7);
    assert_eq!(Shared::into_inner(owner), Some(7));
}

#[test]
fn a_weak_handle_to_nothing_stays_one() {
    let none = WeakShared::<String>::new();
    assert!(none.upgrade().is_none() && none.clone().upgrade().is_none());
    assert_eq!(WeakShared::<String>::default().strong_count(), none.strong_count());
    let owner = Shared::<String>::default();
    assert!(none.ptr_eq(&WeakShared::default()) && !none.ptr_eq(&Shared::downgrade(&owner)));
}

#[test]
fn an_owner_compares_hashes_and_shows_as_its_value() {
    use std::collections::{BTreeSet, HashSet};
    let [one, same, two] = [1, 1, 2].map(Shared::from);
    assert!(one == same && one < two && !Shared::ptr_eq(&one, &same));
    assert_eq!((format!("{one} {two:?}"), *one.as_ref()), ("1 2".into(), 1));
    assert!(BTreeSet::from([one.clone(), two.clone()]).contains(&1));
    assert!(HashSet::from([one, two]).contains(&2));
}

/// Of all owners that give up theirs for the value, one gets it.
#[test]
fn owners_in_four_threads_get_the_value_once() {
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Probe { alive: AtomicBool::new(true), drops: drops.clone() };
        let owner = Shared::new(value);
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (owner, start) = (owner.clone(), start.clone());
                std::thread::spawn(move || {
                    start.wait();
                    let value = match number % 2 {
                        0 => Shared::into_inner(owner),
                        _ => match Shared::try_unwrap(owner) {
                            Ok(value) => Some(value),
                            Err(owner) => Shared::into_inner(owner),
                        },
                    };
                    value.is_some()
                })
            })
            .collect();
        let mut got = usize::from(Shared::into_inner(owner).is_some());
        for thread in threads {
            got += usize::from(thread.join().expect("no thread panics"));
        }
        assert_eq!((got, count(&drops)), (1, 1));
    }
}

/// What the doc of `Shared` promises about lines.
#[test]
fn an_aligned_value_is_on_other_lines_than_the_counts() {
    let owner = Shared::new(CacheAligned(7_u8));
    let value: *const u8 = &**owner;
    let block = owner.block.as_ptr();
    assert_eq!(value.addr() - block.addr(), 128);
    assert_eq!(**owner, 7);
}

/// The same handles to values of both kinds.
struct Pair {
    strong: Vec<(Arc<Probe>, Shared<Probe>)>,
    weak: Vec<(Weak<Probe>, WeakShared<Probe>)>,
    /// For each value how often it was dropped.
    drops: Vec<(Arc<AtomicUsize>, Arc<AtomicUsize>)>,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair { strong: Vec::new(), weak: Vec::new(), drops: Vec::new() };
        pair.another_value();
        pair
    }

    fn another_value(&mut self) {
        let drops = (Arc::default(), Arc::default());
        let probe =
            |drops: &Arc<_>| Probe { alive: AtomicBool::new(true), drops: Arc::clone(drops) };
        self.strong.push((Arc::new(probe(&drops.0)), Shared::new(probe(&drops.1))));
        self.drops.push(drops);
    }

    fn step(&mut self, random: &mut Random) {
        let operation = random.below(9);
        match (operation, self.strong.len(), self.weak.len()) {
            (0, 0..3, _) => self.another_value(),
            (1, strong @ 1.., _) => {
                let (std, ours) = &self.strong[random.below(strong)];
                self.strong.push((std.clone(), ours.clone()));
            }
            (2 | 3, strong @ 1.., _) => drop(self.strong.swap_remove(random.below(strong))),
            (4, strong @ 1.., _) => {
                let (std, ours) = &self.strong[random.below(strong)];
                self.weak.push((Arc::downgrade(std), Shared::downgrade(ours)));
            }
            (5, _, weak @ 1..) => {
                let (std, ours) = &self.weak[random.below(weak)];
                let handles = (std.upgrade(), ours.upgrade());
                match handles {
                    (Some(std), Some(ours)) => self.strong.push((std, ours)),
                    (None, None) => {}
                    (std, ours) => panic!("std {}, ours {}", std.is_some(), ours.is_some()),
                }
            }
            (7, strong @ 1.., _) => {
                let (std, ours) = self.strong.swap_remove(random.below(strong));
                match (Arc::try_unwrap(std), Shared::try_unwrap(ours)) {
                    (Ok(std), Ok(ours)) => drop((std, ours)),
                    (Err(std), Err(ours)) => self.strong.push((std, ours)),
                    (std, ours) => panic!("std {}, ours {}", std.is_ok(), ours.is_ok()),
                }
            }
            (8, strong @ 1.., _) => {
                let (std, ours) = self.strong.swap_remove(random.below(strong));
                let inner = (Arc::into_inner(std), Shared::into_inner(ours));
                assert_eq!(inner.0.is_some(), inner.1.is_some());
            }
            (6, _, weak @ 1..) => {
                let (std, ours) = self.weak.swap_remove(random.below(weak));
                if random.below(2) == 0 {
                    self.weak.push((std.clone(), ours.clone()));
                }
            }
            _ => {}
        }
    }

    fn compare(&self) {
        for (std, ours) in &self.strong {
            assert_eq!(Arc::strong_count(std) as u64, Shared::strong_count(ours));
            assert_eq!(Arc::weak_count(std) as u64, Shared::weak_count(ours));
            for (other_std, other_ours) in &self.strong {
                assert_eq!(Arc::ptr_eq(std, other_std), Shared::ptr_eq(ours, other_ours));
            }
            assert!(ours.alive.load(Ordering::Relaxed));
        }
        for (std, ours) in &self.weak {
            assert_eq!(std.strong_count() as u64, ours.strong_count());
            for (other_std, other_ours) in &self.weak {
                assert_eq!(std.ptr_eq(other_std), ours.ptr_eq(other_ours));
            }
        }
        for (std, ours) in &self.drops {
            assert_eq!(count(std), count(ours));
        }
    }
}

struct Probe {
    alive: AtomicBool,
    drops: Arc<AtomicUsize>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Ordering::Relaxed), "dropped twice");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn count(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::Relaxed)
}

/// The weak count, of a value without owners.
fn weak_handles<T>(weak: &WeakShared<T>) -> u64 {
    let block = weak.block.expect("of a value");
    // SAFETY: the block is there while `weak` is. Only the atomic is borrowed.
    unsafe { &(*block.as_ptr()).weak }.load(Ordering::Relaxed)
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}
