//! A bounded queue from one thread to one other.
//!
//! | side         | verb      | meaning                                              |
//! |--------------|-----------|------------------------------------------------------|
//! | [`Producer`] | `push`    | puts an item into a slot; the consumer sees nothing  |
//! |              | `submit`  | lets the consumer see everything pushed              |
//! | [`Consumer`] | `pop`     | takes an item out of its slot; the slot stays taken  |
//! |              | `release` | gives the emptied slots back to the producer         |
//!
//! `push_all` and `pop_up_to` do for a batch what `push` and `pop` do for an item.
//!
//! Each side keeps a copy of the other's index and looks again only when the copy says full or empty
//! (Rigtorp's optimisation): a batch costs one shared store and at most one shared load on each side.
//!
//! | word   | written by            | read by               |
//! |--------|-----------------------|-----------------------|
//! | `tail` | producer (`submit`)   | consumer (`pop`)      |
//! | `head` | consumer (`release`)  | producer (`push`)     |
//! | slots  | producer in `head..head + capacity`, consumer in `head..tail` ||
//!
//! Indices run freely and wrap; slot of index `i` is `i & mask`.

use std::mem::MaybeUninit;

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicUsize, Ordering, UnsafeCell};

struct Shared<T> {
    head: CacheAligned<AtomicUsize>,
    tail: CacheAligned<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: usize,
}

// SAFETY: only the slots are not `Sync`. The index protocol gives each slot to one side at a time (table above), and a
// ring has one producer and one consumer; `T: Send` because an item moves from one thread to the other.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The slots of `count` indices from `index` on, at most the capacity: up to the end, and from the
    /// beginning.
    #[inline(always)]
    fn run(&self, index: usize, count: usize) -> [&[UnsafeCell<MaybeUninit<T>>]; 2] {
        let (before, after) = self.slots.split_at(index & self.mask);
        let first = count.min(after.len());
        [&after[..first], &before[..count - first]]
    }
}

/// The end that puts items in.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// Index of the next slot to fill.
    tail: usize,
    /// What `shared.head` was when we last looked.
    head: usize,
}

/// The end that takes items out.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// Index of the next slot to empty.
    head: usize,
    /// What `shared.tail` was when we last looked.
    tail: usize,
}

/// A ring for at most `capacity` items, rounded up to a power of two.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        head: CacheAligned(AtomicUsize::new(0)),
        tail: CacheAligned(AtomicUsize::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        mask: capacity - 1,
    });
    let consumer = Consumer { shared: shared.clone(), head: 0, tail: 0 };
    (Producer { shared, tail: 0, head: 0 }, consumer)
}

impl<T: Send> Producer<T> {
    /// Puts `item` in the next slot, or hands it back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.free() == 0 {
            return Err(item);
        }
        self.shared.slots[self.tail & self.shared.mask].with_mut(|slot| {
            // SAFETY: `free` says that this index is below `head + capacity`, so the slot is ours until the next
            // `submit`: the consumer stays below `tail`, and the ring has one producer (`&mut self`, no Clone). The
            // pointer comes from the cell, so it is valid and aligned.
            unsafe { (*slot).write(item) };
        });
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Lets the consumer see everything pushed since the last call.
    #[inline]
    pub fn submit(&mut self) {
        // Release: pairs with the Acquire load in `Consumer::look`. The pushes are sequenced before
        // this store, so either
        // - the consumer loads first, sees the old tail and stays out of our slots, or
        // - it loads after, sees the new tail and, by the pairing, the items below it.
        // One store covers the whole batch; that is why `push` does not submit.
        // Explored by `ring_items_arrive_whole_and_in_order`.
        self.shared.tail.store(self.tail, Ordering::Release);
    }

    /// Pushes items until none is left or the ring is full, and returns how many. What did not fit is still in `items`,
    /// the next one first.
    #[inline]
    pub fn push_all(&mut self, items: &mut impl ExactSizeIterator<Item = T>) -> usize {
        let room = self.room(items.len()).min(items.len());
        let mut pushed = 0;
        let mut filled = 0; // Slots of the runs before and of this one.
        for slots in self.shared.run(self.tail, room) {
            for (slot, item) in slots.iter().zip(&mut *items) {
                slot.with_mut(|slot| {
                    // SAFETY: `room` says that `run`'s indices are below `head + capacity`; then as in
                    // `push`.
                    unsafe { (*slot).write(item) };
                });
                pushed += 1;
            }
            filled += slots.len();
            if pushed < filled {
                break; // The iterator said too much: no slot may be left out before the next run.
            }
        }
        self.tail = self.tail.wrapping_add(pushed);
        pushed
    }

    /// How many items can be pushed at least: 0 only when the ring is full.
    #[inline]
    pub fn free(&mut self) -> usize {
        self.room(1)
    }

    /// How many items can be pushed. Looks at the consumer's index only when its copy shows less room
    /// than `wanted`, so an answer of `wanted` or more may be too low, a lower one was true just now.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        let capacity = self.shared.mask + 1;
        if capacity - self.tail.wrapping_sub(self.head) < wanted {
            // Acquire: pairs with the Release in `Consumer::release`, see there: the consumer has moved
            // the items out of the slots below before we write there again.
            self.head = self.shared.head.load(Ordering::Acquire);
        }
        capacity - self.tail.wrapping_sub(self.head)
    }

    /// How many items have been pushed so far, modulo the size of a word.
    #[inline]
    pub fn pushed(&self) -> usize {
        self.tail
    }

    /// Whether the consumer has emptied the slots of the first `items` that were ever pushed.
    #[inline]
    pub fn has_emptied(&mut self, items: usize) -> bool {
        let left = |head: usize| items.wrapping_sub(head) as isize;
        if left(self.head) > 0 {
            // Acquire: as in `is_drained`.
            self.head = self.shared.head.load(Ordering::Acquire);
        }
        left(self.head) <= 0
    }

    /// Whether the consumer has emptied the ring.
    pub fn is_drained(&self) -> bool {
        // Acquire: as in `room`; a producer that sees the ring empty sees what the consumer did with the items.
        // Explored by `what_was_done_with_the_items_is_seen_by_who_sees_the_ring_drained`.
        self.shared.head.load(Ordering::Acquire) == self.tail
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest item out, if the ring has any. Its slot is given back by [`Consumer::release`].
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail && !self.look() {
            return None;
        }
        let item = self.shared.slots[self.head & self.shared.mask].with(|slot| {
            // SAFETY: the index is below `tail`, so by the pairing in `look` the producer has written the item and will
            // not touch the slot before `release`. We read it once: `head` moves on, and the ring has one consumer
            // (`&mut self`, no Clone).
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        Some(item)
    }

    /// Pops the oldest items, `items_max` at most, after at most one look at the producer's index.
    /// Items that the iterator does not take stay in the ring.
    #[inline]
    pub fn pop_up_to(&mut self, items_max: usize) -> impl ExactSizeIterator<Item = T> {
        self.look_for(items_max);
        let left = self.tail.wrapping_sub(self.head).min(items_max);
        PopUpTo { shared: &self.shared, head: &mut self.head, left }
    }

    /// Looks at the producer's index if fewer than `items` items are known to be in the ring.
    #[inline]
    pub fn look_for(&mut self, items: usize) {
        if self.tail.wrapping_sub(self.head) < items {
            self.look();
        }
    }

    /// Shows the items that will be popped next, `items_max` at most, of those known to be in the ring, without the
    /// first `known`; returns how many are known with these. No look at the producer's index.
    #[inline]
    pub fn look_ahead(&self, known: usize, items_max: usize, mut see: impl FnMut(&T)) -> usize {
        let seen = self.tail.wrapping_sub(self.head).min(items_max);
        let known = known.min(seen);
        for slots in self.shared.run(self.head.wrapping_add(known), seen - known) {
            for slot in slots {
                slot.with(|slot| {
                    // SAFETY: the index is between `head` and `tail`: as in `pop`, but the item stays, and
                    // the reference ends before we can pop it (`&self`).
                    see(unsafe { (*slot).assume_init_ref() });
                });
            }
        }
        seen
    }

    /// Gives the slots of all popped items back.
    #[inline]
    pub fn release(&mut self) {
        // Release: pairs with the Acquire in `Producer::room`: our reads of the slots come before the
        // producer's next writes. Explored by `ring_items_arrive_whole_and_in_order`.
        self.shared.head.store(self.head, Ordering::Release);
    }

    /// How many items wait. Another look at the producer's index: for idle moments, not for each pop.
    pub fn waiting(&self) -> usize {
        // Acquire: as in `look`, so that a thread that sees an item counted can also pop it.
        self.shared.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Whether the ring is empty.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.tail && !self.look()
    }

    /// Looks at the producer's index; true when an item can be popped.
    #[inline]
    fn look(&mut self) -> bool {
        // Acquire: pairs with the Release in `Producer::submit`, see there.
        self.tail = self.shared.tail.load(Ordering::Acquire);
        self.head != self.tail
    }
}

/// The items of one `pop_up_to`: it moves the consumer's head.
struct PopUpTo<'c, T> {
    shared: &'c Shared<T>,
    head: &'c mut usize,
    /// How many of the slots from `head` on are below `tail`, and wanted.
    left: usize,
}

impl<T> Iterator for PopUpTo<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let item = self.shared.slots[*self.head & self.shared.mask].with(|slot| {
            // SAFETY: `left` was not 0, so the index is below `tail`; then as in `Consumer::pop`.
            unsafe { (*slot).assume_init_read() }
        });
        *self.head = self.head.wrapping_add(1);
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    /// For `for_each` and the like: two runs of slots, without a look at the mask for each.
    #[inline]
    fn fold<B, F: FnMut(B, T) -> B>(self, init: B, mut f: F) -> B {
        let mut folded = init;
        let runs = self.shared.run(*self.head, self.left);
        let mut popped = Popped { head: self.head, items: 0 };
        for slots in runs {
            for slot in slots {
                let item = slot.with(|slot| {
                    // SAFETY: as in `next`: `left` items are in the ring.
                    unsafe { (*slot).assume_init_read() }
                });
                popped.items += 1; // First: `f` may panic with the item in hand.
                folded = f(folded, item);
            }
        }
        folded
    }
}

/// Moves the consumer's head when a fold ends, or is left by a panic: one store for all.
struct Popped<'c> {
    head: &'c mut usize,
    items: usize,
}

impl Drop for Popped<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.head = self.head.wrapping_add(self.items);
    }
}

impl<T> ExactSizeIterator for PopUpTo<'_, T> {}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone (they hold the `Arc`), and their `Drop` wrote their indices here: also
        // what was pushed and never submitted lies below `tail`.
        // Relaxed: dropping the last `Arc` has synchronised with both ends.
        // Explored by `what_nobody_popped_is_dropped_once`.
        let mut head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        while head != tail {
            self.slots[head & self.mask].with_mut(|slot| {
                // SAFETY: between head and tail the slots hold items that no other thread will take.
                unsafe { (*slot).assume_init_drop() };
            });
            head = head.wrapping_add(1);
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // Submit what was pushed, so that the items are seen by the consumer or dropped with the ring.
        // Release: as in `submit`.
        self.shared.tail.store(self.tail, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // Release: as in `release`; popped items must not be dropped again with the ring.
        self.shared.head.store(self.head, Ordering::Release);
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
