//! Counters that one thread writes and any thread reads.
//!
//! The owner adds by load and store: no locked operation, and no line that another worker writes. A
//! reader sees each counter whole, but not all of them at one moment; at quiescence (the owner has
//! stopped adding, and the reader learnt that by an Acquire) the sums are exact.
//! Explored by `tests/loom.rs`: `counters_add_up_at_quiescence`.

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicU32, AtomicU64, Ordering};

/// The owner's side of a block of counters.
pub struct Counters(CounterReader);

/// A reader's side of a block of counters.
#[derive(Clone)]
pub struct CounterReader(Arc<Block>);

/// Whole line pairs, so that no other allocation shares one.
struct Block {
    cells: Box<[CacheAligned<[AtomicU64; LANE]>]>,
    len: usize,
}

/// Counters in one cache-line pair.
const LANE: usize = 16;

impl Counters {
    /// `len` counters, all zero.
    pub fn new(len: usize) -> Counters {
        let lanes = len.div_ceil(LANE);
        let cells =
            (0..lanes).map(|_| CacheAligned(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        Counters(CounterReader(Arc::new(Block { cells, len })))
    }

    /// A side for another thread to read.
    pub fn reader(&self) -> CounterReader {
        self.0.clone()
    }

    /// Adds `n` to the counter at `index`.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn add(&mut self, index: usize, n: u64) {
        let cell = self.0.cell(index);
        // Relaxed, load and store instead of an add: we are the only writer (`&mut self`, no Clone).
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the counter at `index`, for a level rather than a count.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn set(&mut self, index: usize, value: u64) {
        // Relaxed: as for `add`.
        self.0.cell(index).store(value, Ordering::Relaxed);
    }

    /// The counter at `index`.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self, index: usize) -> u64 {
        self.0.load(index)
    }
}

impl CounterReader {
    /// The counter at `index`.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self, index: usize) -> u64 {
        // Relaxed: a counter orders nothing. A thread that needs the final sum has synchronised otherwise.
        self.cell(index).load(Ordering::Relaxed)
    }

    /// The number of counters.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the set has no counters.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    #[inline]
    fn cell(&self, index: usize) -> &AtomicU64 {
        &self.0.cells[index / LANE].0[index % LANE]
    }
}

/// A count that any thread changes: a locked operation each time, so for what happens per magazine, not
/// per frame.
#[derive(Debug, Default)]
pub struct SharedCount(AtomicU64);

impl SharedCount {
    /// Adds `n`; returns what it was.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn add(&self, n: u64) -> u64 {
        // Relaxed: a counter orders nothing.
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// Adds 1 and returns what it was, unless it is `most` or more already.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn add_below(&self, most: u64) -> Option<u64> {
        let mut now = self.load();
        while now < most {
            // Relaxed, both: as above.
            match self.0.compare_exchange_weak(now, now + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(before) => return Some(before),
                Err(other) => now = other,
            }
        }
        None
    }

    /// Takes `n` away.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn sub(&self, n: u64) {
        // Relaxed: as above.
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// The count; exact when no thread changes it.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// A level that one thread at a time sets, and any thread reads: no locked operation. A thread that hands on the right
/// to set it does so in order (by a lock-free stack, or a ring).
#[derive(Debug, Default)]
pub struct SharedLevel(AtomicU32);

impl SharedLevel {
    /// Sets it.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn set(&self, level: u32) {
        // Relaxed: a level orders nothing.
        self.0.store(level, Ordering::Relaxed);
    }

    /// The level: what this thread set, if no other thread has had the right since.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self) -> u32 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_the_owner_added() {
        let mut counters = Counters::new(20);
        let reader = counters.reader();
        counters.add(17, 3);
        counters.add(17, 4);
        counters.set(0, 9);
        assert_eq!((reader.load(17), reader.load(0), reader.load(1)), (7, 9, 0));
    }
}
