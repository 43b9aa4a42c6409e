//! `Arc` and `Weak` with an upgrade that is one addition.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::DebtRef;
use crate::primitive::{AtomicU64, Ordering, fence};

/// A value with many owners, as `std::sync::Arc`: the last one destroys it.
///
/// The counts and the value are one allocation, counts first. Where the value is read often and is
/// small, it lies on the line that each clone and drop writes, and readers pay for other threads'
/// counting: use `Shared<CacheAligned<T>>`, whose value has lines of its own.
///
/// ```
/// use manylane_sync::refcount::Shared;
///
/// let route = Shared::new("via 192.0.2.1");
/// let weak = Shared::downgrade(&route);
/// assert_eq!(weak.upgrade().as_deref(), Some(&"via 192.0.2.1")); // no loop, no grace period
/// drop(route);
/// assert!(weak.upgrade().is_none());
/// ```
///
/// # Invariants
///
/// 1. `block` is a leaked `Box` that is freed only when `weak` comes to 0.
/// 2. `weak` is the number of `WeakShared`s, plus one until the last put of `count` is done.
/// 3. `value` is destroyed by the killer of `count` only; each `Shared` is one reference.
pub struct Shared<T> {
    block: NonNull<Block<T>>,
    /// Dropping one may drop a `T`.
    owns: PhantomData<Block<T>>,
}

/// What becomes a [`Shared`] if the value still lives, as `std::sync::Weak`.
pub struct WeakShared<T> {
    block: NonNull<Block<T>>,
    owns: PhantomData<Block<T>>,
}

#[repr(C)]
struct Block<T> {
    count: DebtRef,
    /// 64 bits cannot overflow: at one addition each nanosecond, forgotten ones take 584 years.
    weak: AtomicU64,
    value: ManuallyDrop<T>,
}

// SAFETY: as for `Arc`: owners in other threads get `&T` (`T: Sync`), and the last of them drops the `T`
// (`T: Send`). The counts are atomics.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above; `&Shared` can be cloned.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as above; a weak one can become a strong one.
unsafe impl<T: Send + Sync> Send for WeakShared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for WeakShared<T> {}

impl<T> Shared<T> {
    /// Moves `value` to the heap, with one owner.
    pub fn new(value: T) -> Shared<T> {
        let (count, weak) = (DebtRef::new(1), AtomicU64::new(1));
        let block = Box::new(Block { count, weak, value: ManuallyDrop::new(value) });
        Shared { block: NonNull::from(Box::leak(block)), owns: PhantomData }
    }

    /// A weak handle to the same value.
    pub fn downgrade(this: &Shared<T>) -> WeakShared<T> {
        // SAFETY: invariants 1 and 2: the block is there while `this` is.
        unsafe { WeakShared::another(this.block) }
    }

    /// The number of owners, as far as one look can tell.
    pub fn strong_count(this: &Shared<T>) -> u64 {
        this.count().read()
    }

    #[inline(always)]
    fn count(&self) -> &DebtRef {
        // SAFETY: invariants 1 and 2: the block is there while `self` is. Only atomics are borrowed.
        unsafe { &(*self.block.as_ptr()).count }
    }

    /// The rest of a drop, where it is not plain that others own the value too.
    #[cold]
    fn drop_slow(block: NonNull<Block<T>>, old: u64) {
        let mut panic: Option<Box<dyn Any + Send>> = None;
        // SAFETY: the block is there until this put is done (invariant 2).
        let count = unsafe { &(*block.as_ptr()).count };
        let last = count.put_slow(old, || {
            // The memory has to be released, and others informed, also if the value's drop panics.
            panic = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: invariant 3: we are the killer, so no owner is left to borrow it.
                let value = unsafe { &mut (*block.as_ptr()).value };
                // SAFETY: invariant 3: once.
                unsafe { ManuallyDrop::drop(value) };
            }))
            .err();
        });
        if last {
            // Invariant 2: the one that all owners have together.
            drop(WeakShared { block, owns: PhantomData });
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariants 1 to 3: neither freed nor destroyed while `self` is a reference.
        unsafe { &(*self.block.as_ptr()).value }
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Shared<T> {
        self.count().get_held();
        Shared { block: self.block, owns: PhantomData }
    }
}

impl<T> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // After this the block may be gone, unless the answer says that more is to be done.
        if let Some(old) = self.count().put_fast() {
            Shared::drop_slow(self.block, old);
        }
    }
}

impl<T> WeakShared<T> {
    /// An owner, if the value still lives. No loop, whatever others do.
    #[inline]
    pub fn upgrade(&self) -> Option<Shared<T>> {
        let owner = || Shared { block: self.block, owns: PhantomData };
        self.count().get().then(owner)
    }

    /// The number of owners, as far as one look can tell. 0 is not death: an `upgrade` that runs beside
    /// the last drop may still succeed.
    pub fn strong_count(&self) -> u64 {
        self.count().read()
    }

    #[inline(always)]
    fn count(&self) -> &DebtRef {
        // SAFETY: `Shared` invariants 1 and 2: the block is there while `self` is.
        unsafe { &(*self.block.as_ptr()).count }
    }

    /// # Safety
    ///
    /// `block` must be there: the caller has a handle to it.
    unsafe fn another(block: NonNull<Block<T>>) -> WeakShared<T> {
        // SAFETY: the caller's duty. Only the count is borrowed: another thread may be destroying the
        // value.
        let count = unsafe { &(*block.as_ptr()).count };
        count.touch();
        // SAFETY: as above, for the weak count.
        let weak = unsafe { &(*block.as_ptr()).weak };
        // Relaxed: a thread that adds has a handle, and the new one is ordered by its own drop.
        weak.fetch_add(1, Ordering::Relaxed);
        WeakShared { block, owns: PhantomData }
    }
}

impl<T> Clone for WeakShared<T> {
    fn clone(&self) -> WeakShared<T> {
        // SAFETY: `Shared` invariants 1 and 2: the block is there while `self` is.
        unsafe { WeakShared::another(self.block) }
    }
}

impl<T> Drop for WeakShared<T> {
    fn drop(&mut self) {
        self.count().touch();
        // SAFETY: `Shared` invariants 1 and 2: the block is there until this subtraction. Only the
        // atomic is borrowed, so it may go while the call returns (see `DebtRef::put`).
        let weak = unsafe { &(*self.block.as_ptr()).weak };
        // Release: pairs with the fence below in the last thread: what we did with the block happens before it is
        // freed. Explored by `shared_...` in `tests/loom.rs`; `mutant_a_relaxed_weak_drop_...`.
        if weak.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire fence: pairs with the Release of all subtractions before.
        fence(Ordering::Acquire);
        // SAFETY: `Shared` invariants 1 and 2: it came from a `Box`, and no handle is left. The value
        // was destroyed before; `ManuallyDrop` does not do it again.
        drop(unsafe { Box::from_raw(self.block.as_ptr()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for WeakShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(WeakShared)")
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
