//! A lock-free stack of indices, for slots that any thread may take and any thread give back.
//!
//! Treiber's stack over indices: `next[i]` is the slot below slot `i`. The head carries a tag that
//! grows by one with every push, so that a thread that was held up between reading the head and
//! exchanging it cannot take a head that went away and came back (the ABA problem). 32 bits of tag:
//! a thread would have to sleep through exactly 2^32 pushes.
//!
//! Explored by `tests/loom.rs`: `a_slot_is_handed_out_once`, `what_a_slot_held_is_seen_by_who_takes_it`.

use crate::CacheAligned;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// A stack of the indices `0..len`.
pub struct IndexStack {
    /// Tag in the upper half, top index in the lower; [`EMPTY`] when there is none.
    head: CacheAligned<AtomicU64>,
    /// Number of entries, as a hint for eyes and heuristics.
    level: CacheAligned<AtomicU32>,
    next: Box<[AtomicU32]>,
}

const EMPTY: u32 = u32::MAX;

impl IndexStack {
    /// An empty stack that can hold the indices `0..len`.
    pub fn new(len: u32) -> IndexStack {
        assert!(len < EMPTY, "an index stack holds at most 2^32 - 2 indices");
        IndexStack {
            head: CacheAligned(AtomicU64::new(pack(0, EMPTY))),
            level: CacheAligned(AtomicU32::new(0)),
            next: (0..len).map(|_| AtomicU32::new(EMPTY)).collect(),
        }
    }

    /// Puts `index` on top. It must not be on the stack already.
    pub fn push(&self, index: u32) {
        let below = &self.next[index as usize];
        // Relaxed: the exchange below checks the value and orders what matters.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            below.store(top(head), Ordering::Relaxed);
            // Release: pairs with the Acquire of `pop`. Who takes this index sees `next` and whatever
            // the pusher wrote in the slot. A later push or pop continues the release sequence: both
            // are read-modify-writes of the head.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head).wrapping_add(1), index),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // Relaxed: a hint.
        self.level.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the top index off, if there is one.
    pub fn pop(&self) -> Option<u32> {
        // Acquire: pairs with the Release of the push that put this top there, so that the read of
        // its `next` below sees that push's store or a later one. If a later one, the tag has grown
        // and the exchange fails.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = top(head);
            if index == EMPTY {
                return None;
            }
            // Relaxed: ordered by the Acquire that read `head`.
            let below = self.next[index as usize].load(Ordering::Relaxed);
            // Acquire on success: what the pusher wrote in the slot is ours to read.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head), below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // Relaxed: a hint.
                    self.level.fetch_sub(1, Ordering::Relaxed);
                    return Some(index);
                }
                Err(now) => head = now,
            }
        }
    }

    /// How many indices lie on the stack; exact when nobody pushes or pops.
    pub fn level(&self) -> u32 {
        // Relaxed: a hint. It can be one below zero for a moment, between another's exchange and add.
        (self.level.load(Ordering::Relaxed) as i32).max(0) as u32
    }
}

fn pack(tag: u32, top: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(top)
}

fn tag(head: u64) -> u32 {
    (head >> 32) as u32
}

fn top(head: u64) -> u32 {
    head as u32
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_index_pushed_is_the_first_popped() {
        let stack = IndexStack::new(3);
        assert_eq!(stack.pop(), None);
        stack.push(2);
        stack.push(0);
        assert_eq!(stack.level(), 2);
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(0), Some(2), None));
        assert_eq!(stack.level(), 0);
    }

    #[test]
    fn every_index_is_there_once_after_four_threads_shuffled_them() {
        const SLOTS: u32 = 64;
        let stack = IndexStack::new(SLOTS);
        (0..SLOTS).for_each(|index| stack.push(index));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let held: Vec<u32> = (0..3).filter_map(|_| stack.pop()).collect();
                        held.into_iter().for_each(|index| stack.push(index));
                    }
                });
            }
        });
        let mut left: Vec<u32> = std::iter::from_fn(|| stack.pop()).collect();
        left.sort_unstable();
        assert_eq!(left, (0..SLOTS).collect::<Vec<_>>());
    }
}
