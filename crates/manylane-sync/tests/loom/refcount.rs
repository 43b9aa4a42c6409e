//! `refcount::DebtRef`: the object is destroyed once, by the last holder, and its memory freed once,
//! after the last touch.
//!
//! The model is generic over the count: the crate's here; twins of it and other designs in `refcount_twin`. "2; 1,1"
//! reads: two holders that put a reference each, and two threads with a weak handle each, which take and put a
//! reference once. "Early": the weak handle is dropped before the last reference that was made from it. The main thread
//! is the first holder.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use manylane_sync::refcount::{DebtRef, Faults, faults};

use super::{Seen, Watched, explore};

/// What the models do with a count.
pub trait Count: Send + Sync + 'static {
    fn get(&self) -> bool;
    fn put(&self, destroy: impl FnOnce()) -> bool;
}

impl Count for DebtRef {
    fn get(&self) -> bool {
        DebtRef::get(self)
    }

    fn put(&self, destroy: impl FnOnce()) -> bool {
        DebtRef::put(self, destroy)
    }
}

/// Which threads put, and which take and put how often.
#[derive(Clone, Copy)]
pub struct Threads {
    pub name: &'static str,
    pub holders: u64,
    pub weak: &'static [u32],
    pub early: bool,
}

const fn threads(name: &'static str, holders: u64, weak: &'static [u32]) -> Threads {
    Threads { name, holders, weak, early: false }
}

const fn early(name: &'static str, holders: u64, weak: &'static [u32]) -> Threads {
    Threads { name, holders, weak, early: true }
}

pub const ONE_ONE: Threads = threads("1; 1", 1, &[1]);
pub const TWO_ONE: Threads = threads("2; 1", 2, &[1]);
pub const ONE_TWICE: Threads = threads("1; 2", 1, &[2]);
pub const ONE_TWO: Threads = threads("1; 1,1", 1, &[1, 1]);
pub const TWO_TWO_EARLY: Threads = early("2; 1,1 early", 2, &[1, 1]);

/// Every interleaving.
#[test]
fn debt_with_one_weak_thread() {
    passes(ONE_ONE, None);
    passes(early("1; 1 early", 1, &[1]), None);
    passes(TWO_ONE, None);
    passes(early("2; 1 early", 2, &[1]), None);
    passes(ONE_TWICE, None);
    passes(threads("2; 2", 2, &[2]), None);
}

/// Every interleaving. One weak thread is not enough to find `mutant_settle_without_its_fence_...`.
#[test]
fn debt_with_two_weak_threads() {
    passes(ONE_TWO, None);
}

#[test]
fn debt_with_two_weak_threads_that_let_go_early() {
    passes(early("1; 1,1 early", 1, &[1, 1]), None);
}

#[test]
fn debt_with_more_threads() {
    passes(threads("2; 1,1", 2, &[1, 1]), Some(4));
    passes(TWO_TWO_EARLY, Some(4));
    passes(threads("1; 2,1", 1, &[2, 1]), Some(4));
}

#[test]
fn debt_with_three_weak_threads() {
    passes(threads("1; 1,1,1", 1, &[1, 1, 1]), Some(4));
}

fn passes(threads: Threads, preemptions: Option<usize>) {
    let witness = Witness::new();
    explore(&format!("debt {}", threads.name), preemptions, move || {
        life(DebtRef::new(threads.holders), threads, WEAK, witness);
        assert_eq!(faults(), Faults::default(), "a right use was taken for a wrong one");
    });
    witness.assert();
}

/// What a model with weak threads should have met. For each model its own: tests run side by side.
#[derive(Clone, Copy)]
pub struct Witness {
    upgraded: &'static Seen,
    too_late: &'static Seen,
    killed: &'static Seen,
    released: &'static Seen,
}

impl Witness {
    pub fn new() -> Witness {
        let seen = |what| -> &'static Seen { Box::leak(Box::new(Seen::new(what))) };
        Witness {
            upgraded: seen("a weak thread got a reference"),
            too_late: seen("a weak thread came too late"),
            killed: seen("a weak thread destroyed"),
            released: seen("another than the killer was the last to touch the count"),
        }
    }

    fn assert(self) {
        for seen in [self.upgraded, self.too_late, self.killed, self.released] {
            seen.assert();
        }
    }
}

/// How the weak count is dropped.
#[derive(Clone, Copy)]
pub struct Weak {
    pub order: Ordering,
    pub fence: bool,
}

/// As `WeakShared::drop` does it.
pub const WEAK: Weak = Weak { order: Ordering::Release, fence: true };

/// An object with a count from birth to death.
pub fn life(count: impl Count, threads: Threads, weak: Weak, witness: Witness) {
    let object = std::sync::Arc::new(Object::new(count, threads.weak.len() as u64, weak));
    for _ in 1..threads.holders {
        let object = object.clone();
        thread::spawn(move || {
            object.value.assert_alive();
            object.put(witness);
        });
    }
    for &rounds in threads.weak {
        let object = object.clone();
        thread::spawn(move || object.upgrade_and_put(rounds, threads.early, witness));
    }
    object.value.assert_alive();
    object.put(witness);
}

/// What a count and a weak count keep. Loom watches the value and the memory; the real memory stays
/// until the last thread is gone, so that a fault is reported and not a crash.
struct Object<C> {
    counts: UnsafeCell<ManuallyDrop<Counts<C>>>,
    value: Watched,
    weak: Weak,
}

struct Counts<C> {
    strong: C,
    /// Weak handles, and one for all holders.
    weak: AtomicU64,
    memory: Memory,
}

// SAFETY: the counts are only borrowed for reading, until `free`, which loom watches by `memory`.
unsafe impl<C: Sync> Sync for Object<C> {}

impl<C: Count> Object<C> {
    fn new(strong: C, weak_threads: u64, weak: Weak) -> Object<C> {
        let counts =
            Counts { strong, weak: AtomicU64::new(weak_threads + 1), memory: Memory::new() };
        Object { counts: UnsafeCell::new(ManuallyDrop::new(counts)), value: Watched::new(1), weak }
    }

    fn counts(&self) -> &Counts<C> {
        // SAFETY: the pointer comes from the cell; for the rest see `Sync`.
        let counts = unsafe { &*self.counts.get() };
        counts.memory.touch();
        counts
    }

    fn upgrade_and_put(&self, rounds: u32, early: bool, witness: Witness) {
        for round in 1..=rounds {
            let last = round == rounds;
            if !self.counts().strong.get() {
                witness.too_late.note();
                break;
            }
            witness.upgraded.note();
            self.value.assert_alive();
            if last && early {
                self.drop_weak();
            }
            if self.put(witness) {
                witness.killed.note();
            }
            if last && early {
                return;
            }
        }
        self.drop_weak();
    }

    /// Whether it destroyed the value.
    fn put(&self, witness: Witness) -> bool {
        let mut destroyed = false;
        let last = self.counts().strong.put(|| {
            destroyed = true;
            self.value.end();
        });
        if last {
            if !destroyed {
                witness.released.note();
            }
            self.drop_weak();
        }
        destroyed
    }

    fn drop_weak(&self) {
        if self.counts().weak.fetch_sub(1, self.weak.order) != 1 {
            return;
        }
        if self.weak.fence {
            fence(Ordering::Acquire);
        }
        self.value.assert_destroyed();
        // SAFETY: once, or `Memory` fails the model; the pointer comes from the cell.
        unsafe { ManuallyDrop::drop(&mut *self.counts.get()) };
    }
}

/// Memory that can be freed, as `src/refcount/memory.rs`; for the counts of these tests.
pub struct Memory {
    bytes: Watched,
    /// Its drop lets loom check for a leak.
    _allocation: loom::alloc::Track<()>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory { bytes: Watched::new(1), _allocation: loom::alloc::Track::new(()) }
    }

    /// Called before each access.
    pub fn touch(&self) {
        assert_ne!(self.bytes.read(), GONE, "used after it was freed");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A model that fails unwinds with objects of all ages.
        if !std::thread::panicking() {
            self.touch();
            self.bytes.write(GONE);
        }
    }
}

pub const GONE: u32 = 0;

impl Watched {
    /// What every holder may do.
    pub fn assert_alive(&self) {
        assert_ne!(self.read(), GONE, "used after it was destroyed");
    }

    /// What one may do, without a holder.
    pub fn end(&self) {
        assert_ne!(self.read(), GONE, "destroyed twice");
        self.write(GONE);
    }

    pub fn assert_destroyed(&self) {
        assert_eq!(self.read(), GONE, "freed before it was destroyed");
    }
}
