//! `Arc` and `Weak` with an upgrade that is one addition.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
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
/// # What of `Arc` is here
///
/// | of `Arc` and `Weak`                                  | here                                                    |
/// |------------------------------------------------------|---------------------------------------------------------|
/// | `new`, `clone`, `drop`, `downgrade`, `upgrade`       | as there; `upgrade` is one addition, without a loop     |
/// | `strong_count`, `weak_count`, `ptr_eq`               | as there                                                |
/// | `try_unwrap`, `into_inner`, `unwrap_or_clone`        | as there                                                |
/// | `Weak::new`, `Default`, `From<T>`, `Deref`, `AsRef`, `Borrow`, comparison, `Hash`, `Debug`, `Display` | as there |
/// | `get_mut`, `make_mut`                                | no: see below                                           |
/// | `new_cyclic`                                         | no: an `upgrade` would have to acquire the value that a count of one announces, and it is relaxed |
/// | `?Sized` values: `Arc<str>`, `Arc<dyn Trait>`        | no: stable Rust unsizes no pointer but its own; `Shared<Box<dyn Trait>>` is |
/// | `into_raw`, `from_raw`, `as_ptr`, `pin`              | no: no user                                             |
///
/// `get_mut` has to know that no other owner and no weak handle exists, at one time. The two counts are two
/// words: between looks at them, an owner can make a weak handle and go, or a weak handle can become an owner and go.
/// `Arc` locks the weak count meanwhile, and `downgrade` spins; here no thread waits. The only owner can
/// take the value out with [`Shared::try_unwrap`], change it, and share it anew: a weak handle to the old one finds it
/// dead.
///
/// # Invariants
///
/// 1. `block` is a leaked `Box` that is freed only when `weak` comes to 0.
/// 2. `weak` is the number of `WeakShared`s, plus one until the last put of `count` is done.
/// 3. `value` is destroyed, or taken out, by the killer of `count` only; each `Shared` is one reference.
pub struct Shared<T> {
    block: NonNull<Block<T>>,
    /// Dropping one may drop a `T`.
    owns: PhantomData<Block<T>>,
}

/// What becomes a [`Shared`] if the value still lives, as `std::sync::Weak`.
pub struct WeakShared<T> {
    /// `None`: of no value, ever.
    block: Option<NonNull<Block<T>>>,
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

    /// The number of weak handles, as far as one look can tell.
    pub fn weak_count(this: &Shared<T>) -> u64 {
        this.count().touch();
        // SAFETY: invariants 1 and 2: the block is there while `this` is. Only the atomic is borrowed.
        let weak = unsafe { &(*this.block.as_ptr()).weak };
        // Relaxed: the number is old when it is read. Less the owners' one.
        weak.load(Ordering::Relaxed) - 1
    }

    /// Whether both own one value.
    pub fn ptr_eq(this: &Shared<T>, other: &Shared<T>) -> bool {
        this.block == other.block
    }

    /// The value, if `this` is its only owner; else `this`. Weak handles find the value dead. Of several owners that
    /// try at once, all may get their handle back: see [`Shared::into_inner`].
    pub fn try_unwrap(this: Shared<T>) -> Result<T, Shared<T>> {
        let mut value = None;
        // SAFETY: invariants 1 and 2: the block is there until this put is done. Only the count is borrowed.
        let count = unsafe { &(*this.block.as_ptr()).count };
        // SAFETY: `put_only` calls this as the killer.
        let last = count.put_only(|| value = Some(unsafe { Shared::take(this.block) }));
        let Some(last) = last else { return Err(this) };
        let block = ManuallyDrop::new(this).block; // The reference is put.
        if last {
            // Invariant 2: the one that all owners have together.
            drop(WeakShared { block: Some(block), owns: PhantomData });
        }
        Ok(value.expect("the killer takes it"))
    }

    /// Drops `this`, but for the value: the last owner gets it. Of several owners that all do so, exactly one.
    pub fn into_inner(this: Shared<T>) -> Option<T> {
        let mut value = None;
        let block = ManuallyDrop::new(this).block;
        // SAFETY: invariants 1 and 2: the block is there until this put is done. Only the count is borrowed.
        let count = unsafe { &(*block.as_ptr()).count };
        // SAFETY: `put` calls this as the killer.
        let last = count.put(|| value = Some(unsafe { Shared::take(block) }));
        if last {
            // Invariant 2: the one that all owners have together.
            drop(WeakShared { block: Some(block), owns: PhantomData });
        }
        value
    }

    /// The value, if `this` is its only owner; else a clone of it.
    pub fn unwrap_or_clone(this: Shared<T>) -> T
    where
        T: Clone,
    {
        Shared::try_unwrap(this).unwrap_or_else(|this| T::clone(&this))
    }

    /// Moves the value out.
    ///
    /// # Safety
    ///
    /// The caller is the killer of the block's count, and calls this once.
    unsafe fn take(block: NonNull<Block<T>>) -> T {
        // SAFETY: invariant 3, by the caller's duty: no owner is left to borrow it.
        let value = unsafe { &mut (*block.as_ptr()).value };
        // SAFETY: as above: once, and no other thread destroys it.
        unsafe { ManuallyDrop::take(value) }
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
            drop(WeakShared { block: Some(block), owns: PhantomData });
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
    /// A handle to no value, without memory: no upgrade succeeds.
    pub const fn new() -> WeakShared<T> {
        WeakShared { block: None, owns: PhantomData }
    }

    /// An owner, if the value still lives. No loop, whatever others do.
    #[inline]
    pub fn upgrade(&self) -> Option<Shared<T>> {
        let block = self.block?;
        let owner = || Shared { block, owns: PhantomData };
        self.count()?.get().then(owner)
    }

    /// The number of owners, as far as one look can tell. 0 is not death: an `upgrade` that runs beside
    /// the last drop may still succeed.
    pub fn strong_count(&self) -> u64 {
        self.count().map_or(0, DebtRef::read)
    }

    /// Whether both are handles to one value, or both to none.
    pub fn ptr_eq(&self, other: &WeakShared<T>) -> bool {
        self.block == other.block
    }

    #[inline(always)]
    fn count(&self) -> Option<&DebtRef> {
        // SAFETY: `Shared` invariants 1 and 2: the block is there while `self` is.
        self.block.map(|block| unsafe { &(*block.as_ptr()).count })
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
        WeakShared { block: Some(block), owns: PhantomData }
    }
}

impl<T> Default for WeakShared<T> {
    fn default() -> WeakShared<T> {
        WeakShared::new()
    }
}

impl<T> Clone for WeakShared<T> {
    fn clone(&self) -> WeakShared<T> {
        match self.block {
            // SAFETY: `Shared` invariants 1 and 2: the block is there while `self` is.
            Some(block) => unsafe { WeakShared::another(block) },
            None => WeakShared::new(),
        }
    }
}

impl<T> Drop for WeakShared<T> {
    fn drop(&mut self) {
        let (Some(block), Some(count)) = (self.block, self.count()) else { return };
        count.touch();
        // SAFETY: `Shared` invariants 1 and 2: the block is there until this subtraction. Only the
        // atomic is borrowed, so it may go while the call returns (see `DebtRef::put`).
        let weak = unsafe { &(*block.as_ptr()).weak };
        // Release: pairs with the fence below in the last thread: what we did with the block happens before it is
        // freed. Explored by `shared_...` in `tests/loom.rs`; `mutant_a_relaxed_weak_drop_...`.
        if weak.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire fence: pairs with the Release of all subtractions before.
        fence(Ordering::Acquire);
        // SAFETY: `Shared` invariants 1 and 2: it came from a `Box`, and no handle is left. The value
        // was destroyed or taken before; `ManuallyDrop` does not do it again.
        drop(unsafe { Box::from_raw(block.as_ptr()) });
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared::new(value)
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared::new(T::default())
    }
}

impl<T> AsRef<T> for Shared<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> Borrow<T> for Shared<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: PartialOrd> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Shared<T>) -> Option<std::cmp::Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord> Ord for Shared<T> {
    fn cmp(&self, other: &Shared<T>) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: fmt::Display> fmt::Display for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
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
