//! How often a thread calls the allocator, and how many of its bytes the thread holds.
//!
//! The counts are the thread's own words, so that they cost an addition each and disturb no other thread: what the
//! allocator itself costs is measured with them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts.
pub struct Counting;

#[global_allocator]
static GLOBAL: Counting = Counting;

thread_local! {
    /// Constant and without a destructor, so that reading it allocates nothing and works at any time.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// Wraps around below 0 where a thread gives back what others took; differences are right.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Calls of the allocator by this thread so far, of each kind.
pub fn calls() -> u64 {
    CALLS.get()
}

/// Bytes that this thread took and has not given back since `before`, which [`held`] returned.
pub fn held_since(before: usize) -> usize {
    HELD.get().wrapping_sub(before)
}

/// What [`held_since`] counts from.
pub fn held() -> usize {
    HELD.get()
}

fn count(more: usize, less: usize) {
    CALLS.set(CALLS.get() + 1);
    HELD.set(HELD.get().wrapping_add(more).wrapping_sub(less));
}

// SAFETY: `System` keeps the promises of a `GlobalAlloc`, and every method hands its arguments to the
// same method of `System`. Counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's debts are the same: a layout of a size other than 0.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's debts are the same: memory of this allocator, which is `System`'s, and
        // the layout that it was allocated with.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: as in `dealloc`, and the new size is the caller's to keep in bounds.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_counts_for_the_thread_that_makes_it() {
        let before = calls();
        let mut bytes: Vec<u8> = Vec::with_capacity(10);
        bytes.reserve_exact(1000);
        drop(bytes);
        assert_eq!(calls() - before, 3, "one each to get, to grow and to give back");
        let before = held();
        let mut bytes: Vec<u8> = Vec::with_capacity(10);
        bytes.reserve_exact(1000);
        assert_eq!(held_since(before), 1000);
        drop(bytes);
        assert_eq!(held_since(before), 0);
        let before = calls();
        let other = std::thread::spawn(|| {
            let own = calls();
            drop(std::hint::black_box(Box::new(1)));
            calls() - own
        });
        let other = other.join().expect("it only allocates");
        assert_eq!(other, 2);
        assert!(calls() - before < 64, "starting a thread takes a few");
    }
}
