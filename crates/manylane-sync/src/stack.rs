//! A lock-free stack of indices, for slots that any thread may take and any thread give back.
//!
//! Treiber's stack over indices: `next[i]` is the slot below slot `i`. The head carries a tag that
//! grows by one with every push, so that a thread that was held up between reading the head and
//! exchanging it cannot take a head that went away and came back (the ABA problem). 32 bits of tag:
//! a thread would have to sleep through exactly 2^32 pushes.
//!
//! Several indices are pushed or popped by one exchange: threads contend for the head's line.
//!
//! Explored by `tests/loom.rs`: `a_slot_is_handed_out_once`, `what_a_slot_held_is_seen_by_who_takes_it`, and for
//! several at once by `several_slots_`.

use crate::CacheAligned;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// A stack of the indices `0..len`.
pub struct IndexStack {
    /// Tag in the upper half, top index in the lower; [`EMPTY`] when the stack has none.
    head: CacheAligned<AtomicU64>,
    next: Box<[AtomicU32]>,
}

const EMPTY: u32 = u32::MAX;

impl IndexStack {
    /// An empty stack that can hold the indices `0..len`.
    pub fn new(len: u32) -> IndexStack {
        assert!(len < EMPTY, "an index stack holds at most 2^32 - 2 indices");
        IndexStack {
            head: CacheAligned(AtomicU64::new(pack(0, EMPTY))),
            next: (0..len).map(|_| AtomicU32::new(EMPTY)).collect(),
        }
    }

    /// Puts `index` on top. The index must not be on the stack already.
    #[inline]
    pub fn push(&self, index: u32) {
        self.push_all(&[index]);
    }

    /// Puts `indices` on top, the first one uppermost. None may be on the stack already, or occur twice.
    #[inline]
    pub fn push_all(&self, indices: &[u32]) {
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else { return };
        for pair in indices.windows(2) {
            // Relaxed: published by the exchange below.
            self.next[pair[0] as usize].store(pair[1], Ordering::Relaxed);
        }
        let below = &self.next[last as usize];
        // Relaxed: the exchange below checks the value and orders what matters.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            below.store(top(head), Ordering::Relaxed);
            // Release: pairs with the Acquire of `pop_into`. A thread that takes these indices sees `next` and whatever
            // the pusher wrote in the slots. A later push or pop continues the release sequence: both are
            // read-modify-writes of the head.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head).wrapping_add(1), first),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the top index off, if the stack has any.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let mut index = [EMPTY];
        (self.pop_into(&mut index) == 1).then_some(index[0])
    }

    /// Takes as many indices off as the stack has and as fit into `indices`, the uppermost first; returns how many.
    #[inline]
    pub fn pop_into(&self, indices: &mut [u32]) -> usize {
        // Acquire: pairs with the Release of the push that put this top in place, and, since the head is only read,
        // modified and written, with those of all pushes below it: the reads of `next` see their stores or later ones.
        // If a later one, another thread has taken that index off and pushes it again: either its push has grown the
        // tag already, or the top is another still, and the exchange fails. With an equal tag nothing was pushed, so
        // that what lies under an unchanged top is unchanged.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let mut index = top(head);
            let mut popped = 0;
            for place in &mut *indices {
                // Relaxed: ordered by the Acquire that read `head`. Out of bounds is the stack's end.
                let Some(next) = self.next.get(index as usize) else { break };
                *place = index;
                popped += 1;
                index = next.load(Ordering::Relaxed);
            }
            if popped == 0 {
                return 0;
            }
            // Acquire on success: what the pushers wrote in the slots is ours to read.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head), index),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return popped,
                Err(now) => head = now,
            }
        }
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
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(0), Some(2), None));
    }

    #[test]
    fn several_go_on_and_come_off_in_order() {
        let stack = IndexStack::new(5);
        stack.push(4);
        stack.push_all(&[]);
        stack.push_all(&[3, 0, 2]);
        let mut two = [0; 2];
        assert_eq!((stack.pop_into(&mut two), two), (2, [3, 0]));
        assert_eq!(stack.pop_into(&mut []), 0);
        let mut more = [9; 4];
        assert_eq!((stack.pop_into(&mut more), more), (2, [2, 4, 9, 9]));
        assert_eq!(stack.pop_into(&mut more), 0);
    }

    #[test]
    fn every_index_is_there_once_after_four_threads_shuffled_them() {
        const SLOTS: u32 = 64;
        let stack = IndexStack::new(SLOTS);
        (0..SLOTS).for_each(|index| stack.push(index));
        std::thread::scope(|scope| {
            for several in 1..=4 {
                let stack = &stack;
                scope.spawn(move || {
                    let mut held = [0; 4];
                    for _ in 0..20_000 {
                        let popped = stack.pop_into(&mut held[..several]);
                        stack.push_all(&held[..popped]);
                    }
                });
            }
        });
        let mut left: Vec<u32> = std::iter::from_fn(|| stack.pop()).collect();
        left.sort_unstable();
        assert_eq!(left, (0..SLOTS).collect::<Vec<_>>());
    }
}
