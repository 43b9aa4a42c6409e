//! `refcount::RcuRef` with the grace periods under which it is right: the last holder is one, comes
//! after all others, and what it retires is not freed under a put.
//!
//! The main thread holds a reference at the start and puts it; each reader looks the object up, takes a reference, uses
//! the object and puts it. The thread that puts the last one unpublishes and retires, in the crate's `Domain` and
//! `Limbo`.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo, Reader};
use manylane_sync::refcount::{Faults, RcuRef, faults};

use super::refcount::Memory;
use super::{Seen, Watched, explore};

/// What the model does with a count.
trait Count: Send + Sync + 'static {
    fn get(&self) -> bool;
    fn put(&self, reader: &Reader) -> bool;
}

impl Count for RcuRef {
    fn get(&self) -> bool {
        RcuRef::get(self)
    }

    fn put(&self, reader: &Reader) -> bool {
        RcuRef::put(self, reader.guard())
    }
}

#[test]
fn rcuref_dies_once_and_is_freed_after_every_put() {
    for (name, readers, preemptions) in [("1 reader", 1, None), ("2 readers", 2, Some(4))] {
        let witness = Witness::new();
        explore(&format!("rcuref, {name}"), preemptions, move || {
            life(RcuRef::new(1), readers, Under::Guard, witness);
            assert_eq!(faults(), Faults::default(), "a right use was taken for a wrong one");
        });
        witness.assert();
    }
}

#[test]
fn the_twin_of_rcuref_passes() {
    static REVIVED: Seen = Seen::new("a put found its object revived or dead");
    explore("rcuref twin", None, || life(Twin::new(SOURCE), 1, Under::Guard, Witness::new()));
    explore("rcuref twin, 2 readers", Some(2), || {
        life(Twin { beaten: Some(&REVIVED), ..Twin::new(SOURCE) }, 2, Under::Guard, Witness::new());
    });
    REVIVED.assert();
}

macro_rules! mutant {
    ($name:ident, $expected:literal, $rules:expr, $readers:expr, $under:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), Some(3), || {
                life(Twin::new($rules), $readers, $under, Witness::new())
            });
        }
    };
}

// Revived, put and retired by a reader, the object is freed between our two steps.
mutant!(
    mutant_rcuref_put_outside_the_guard_touches_freed_memory,
    "Causality violation",
    SOURCE,
    1,
    Under::Nothing
);
mutant!(
    mutant_rcuref_relaxed_put_lets_the_last_holder_be_first,
    "Causality violation",
    Rules { put: Ordering::Relaxed, ..SOURCE },
    1,
    Under::Guard
);
mutant!(
    mutant_rcuref_relaxed_death_lets_the_last_holder_be_first,
    "Causality violation",
    Rules { death: Ordering::Relaxed, ..SOURCE },
    1,
    Under::Guard
);
mutant!(
    mutant_rcuref_death_by_release_lets_the_last_holder_be_first,
    "Causality violation",
    Rules { death: Ordering::Release, ..SOURCE },
    1,
    Under::Guard
);
// Linux until 2025 (commit b9a49520679e).
mutant!(
    mutant_rcuref_that_reads_again_blames_the_innocent,
    "imbalanced put",
    Rules { reads_again: true, ..SOURCE },
    1,
    Under::Guard
);
mutant!(
    mutant_rcuref_whose_death_takes_one_step_is_used_after_it,
    "Causality violation",
    Rules { two_steps: false, ..SOURCE },
    1,
    Under::Guard
);

/// Where the main thread puts.
#[derive(Clone, Copy)]
enum Under {
    Guard,
    /// Offline: the crate's `put` does not allow it.
    Nothing,
}

/// What the model should have met.
#[derive(Clone, Copy)]
struct Witness {
    too_late: &'static Seen,
    reader_was_last: &'static Seen,
    freed_early: &'static Seen,
}

impl Witness {
    fn new() -> Witness {
        let seen = |what| -> &'static Seen { Box::leak(Box::new(Seen::new(what))) };
        Witness {
            too_late: seen("a reader found the object dead"),
            reader_was_last: seen("a reader put the last reference"),
            freed_early: seen("the object was freed before all threads were done"),
        }
    }

    fn assert(self) {
        [self.too_late, self.reader_was_last, self.freed_early]
            .iter()
            .for_each(|seen| seen.assert());
    }
}

fn life(count: impl Count, readers: usize, under: Under, witness: Witness) {
    let domain = Domain::new(readers + 1);
    let mut main = domain.register().expect("there is a slot for each");
    let object = Arc::new(Object::new(count, readers + 1));
    let threads: Vec<_> = (1..=readers)
        .map(|me| {
            let (domain, object) = (domain.clone(), object.clone());
            let mut reader = domain.register().expect("there is a slot for each");
            thread::spawn(move || {
                if !object.published.load(Ordering::Acquire) {
                    return;
                }
                if !object.counted().count.get() {
                    witness.too_late.note();
                    return;
                }
                if object.use_and_put(me, &reader) {
                    witness.reader_was_last.note();
                    object.retire(&domain, &mut reader, witness);
                }
            })
        })
        .collect();
    if let Under::Nothing = under {
        main.offline();
    }
    if object.use_and_put(0, &main) {
        object.retire(&domain, &mut main, witness);
    }
    drop(main);
    for thread in threads {
        thread.join().expect("no reader panics");
    }
    assert!(!object.published.load(Ordering::Acquire), "nobody put the last reference");
    object.free_if_waiting();
}

struct Object<C> {
    published: AtomicBool,
    counted: UnsafeCell<ManuallyDrop<Counted<C>>>,
    /// Read by holders until it is freed.
    value: Watched,
    /// What each holder did with the object, for the last one to see.
    used: Vec<Watched>,
}

struct Counted<C> {
    count: C,
    /// For the twin; the crate's count has its own.
    memory: Memory,
}

const DONE: u32 = 2;

// SAFETY: the count is only borrowed for reading, until `free`, which loom watches by `memory`.
unsafe impl<C: Sync> Sync for Object<C> {}
// SAFETY: as above.
unsafe impl<C: Send> Send for Object<C> {}

impl<C: Count> Object<C> {
    fn new(count: C, holders: usize) -> Object<C> {
        let counted = Counted { count, memory: Memory::new() };
        Object {
            published: AtomicBool::new(true),
            counted: UnsafeCell::new(ManuallyDrop::new(counted)),
            value: Watched::new(1),
            used: (0..holders).map(|_| Watched::new(1)).collect(),
        }
    }

    fn counted(&self) -> &Counted<C> {
        // SAFETY: the pointer comes from the cell; for the rest see `Sync`.
        let counted = unsafe { &*self.counted.get() };
        counted.memory.touch();
        counted
    }

    /// Whether it was the last reference.
    fn use_and_put(&self, me: usize, reader: &Reader) -> bool {
        self.value.assert_alive();
        self.used[me].write(1);
        if !self.counted().count.put(reader) {
            return false;
        }
        for used in &self.used {
            assert_ne!(used.read(), DONE, "a second last holder");
            used.write(DONE);
        }
        true
    }

    fn retire(&self, domain: &Domain, reader: &mut Reader, witness: Witness) {
        self.published.store(false, Ordering::Release);
        let mut limbo = Limbo::new(domain.clone(), 1);
        assert!(limbo.retire(()).is_ok(), "there is room");
        reader.quiescent();
        // One look: waiting would add executions, not cases.
        if limbo.reclaim().is_some() {
            witness.freed_early.note();
            self.free();
        }
    }

    fn free(&self) {
        self.value.end();
        // SAFETY: once, by `value`; the pointer comes from the cell.
        unsafe { ManuallyDrop::drop(&mut *self.counted.get()) };
    }

    /// At the end, when no thread runs any more.
    fn free_if_waiting(&self) {
        if self.value.read() != super::refcount::GONE {
            self.free();
        }
    }
}

#[derive(Clone, Copy)]
struct Rules {
    put: Ordering,
    death: Ordering,
    reads_again: bool,
    two_steps: bool,
}

const SOURCE: Rules =
    Rules { put: Ordering::Release, death: Ordering::Acquire, reads_again: false, two_steps: true };

/// Without the saturated zone.
struct Twin {
    word: AtomicU32,
    memory: Memory,
    rules: Rules,
    beaten: Option<&'static Seen>,
}

const NONE: u32 = u32::MAX;
const DEAD: u32 = 0xe000_0000;

impl Twin {
    fn new(rules: Rules) -> Twin {
        Twin { word: AtomicU32::new(0), memory: Memory::new(), rules, beaten: None }
    }

    fn word(&self) -> &AtomicU32 {
        self.memory.touch();
        &self.word
    }
}

impl Count for Twin {
    fn get(&self) -> bool {
        let now = self.word().fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if now >> 31 == 0 {
            return true;
        }
        self.word().store(DEAD, Ordering::Relaxed);
        false
    }

    fn put(&self, _: &Reader) -> bool {
        let mut now = self.word().fetch_sub(1, self.rules.put).wrapping_sub(1);
        if now >> 31 == 0 {
            return false;
        }
        if self.rules.reads_again {
            now = self.word().load(Ordering::Relaxed);
            if now >> 31 == 0 {
                return false;
            }
        }
        assert_eq!(now, NONE, "imbalanced put");
        if !self.rules.two_steps {
            return true;
        }
        let death = self.word().compare_exchange(NONE, DEAD, self.rules.death, Ordering::Relaxed);
        if death.is_err()
            && let Some(beaten) = self.beaten
        {
            beaten.note();
        }
        death.is_ok()
    }
}
