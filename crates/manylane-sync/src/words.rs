//! Tables of plain words: one writer, any number of readers.
//!
//! | side          | may                                                    |
//! |---------------|--------------------------------------------------------|
//! | [`WordsMut`]  | `load`, `store`, `publish`, hand out readers           |
//! | [`Words`]     | `load`, `prefetch`, be cloned and sent anywhere        |
//!
//! `a_published_record_is_seen_whole` in `tests/loom.rs` explores them at small size; a table of its own user has its
//! own model, as `manylane-net`'s `transit/flows/explored.rs`.
//!
//! The memory belongs to an *owner* that each side keeps alive: a box, or a mapping. Under loom a box only: loom's atomics
//! are larger than the word.

use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::primitive::{AtomicU16, AtomicU32, AtomicU64, Ordering};

pub mod wide;

/// What keeps the memory of a table alive.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// One width of word.
pub trait Word: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// The atomic of that width.
    type Atomic: Sync;
    #[doc(hidden)]
    #[cfg_attr(manylane_counted, track_caller)]
    fn load(atomic: &Self::Atomic, ordering: Ordering) -> Self;
    #[doc(hidden)]
    #[cfg_attr(manylane_counted, track_caller)]
    fn store(atomic: &Self::Atomic, value: Self, ordering: Ordering);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl sealed::Sealed for $word {}

        impl Word for $word {
            type Atomic = $atomic;

            #[inline(always)]
            #[cfg_attr(manylane_counted, track_caller)]
            fn load(atomic: &$atomic, ordering: Ordering) -> $word {
                atomic.load(ordering)
            }

            #[inline(always)]
            #[cfg_attr(manylane_counted, track_caller)]
            fn store(atomic: &$atomic, value: $word, ordering: Ordering) {
                atomic.store(value, ordering)
            }
        }
    };
}

word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);

/// The readers' side of a table.
///
/// # Invariants
///
/// 1. `base` points at `len` atomics of width `W`, aligned and initialised.
/// 2. `owner` keeps that memory mapped for as long as it lives.
/// 3. All access to the memory, from this process, is through atomics of this width.
pub struct Words<W: Word> {
    base: NonNull<W::Atomic>,
    len: usize,
    owner: Owner,
    width: PhantomData<W>,
}

// SAFETY: a `Words` is a shared borrow of atomics, which are `Sync`, plus an owner that is `Send` and
// `Sync` itself. Nothing in it belongs to a thread.
unsafe impl<W: Word> Send for Words<W> {}
// SAFETY: as for `Send`: `load` and `prefetch` take `&self` and reach only atomics.
unsafe impl<W: Word> Sync for Words<W> {}

impl Words<u64> {
    /// Adds the words from `first` on to `sums`, one to each, modulo 2^64: counters of one writer. Each is loaded by itself.
    ///
    /// # Panics
    ///
    /// When the last is out of bounds.
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn add_to(&self, first: usize, sums: &mut [u64]) {
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = sum.wrapping_add(self.load(first + place));
        }
    }
}

impl<W: Word> Clone for Words<W> {
    fn clone(&self) -> Self {
        Words { base: self.base, len: self.len, owner: self.owner.clone(), width: PhantomData }
    }
}

impl<W: Word> Words<W> {
    /// The number of words.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The word at `index`.
    ///
    /// # Panics
    ///
    /// When `index` is out of bounds.
    #[inline(always)]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self, index: usize) -> W {
        // Acquire: pairs with the Release store in `WordsMut::publish`. A reader of an index published there also sees
        // the record that was stored before it. On x86 this is a plain load.
        // Explored by `a_published_record_is_seen_whole`.
        W::load(self.word(index), Ordering::Acquire)
    }

    /// The `N` words from `first` on, each loaded by itself: a record that is not changed while it can
    /// be found.
    ///
    /// # Panics
    ///
    /// When the last is out of bounds.
    #[inline(always)]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load_array<const N: usize>(&self, first: usize) -> [W; N] {
        let last = first.checked_add(N).filter(|&end| end <= self.len);
        assert!(last.is_some(), "word out of bounds");
        std::array::from_fn(|place| {
            // SAFETY: `first + place < first + N <= len` (just asserted); the rest as in `word`.
            let word = unsafe { self.base.add(first + place).as_ref() };
            W::load(word, Ordering::Acquire) // Acquire: as in `load`.
        })
    }

    /// Prefetches the cache line of the word at `index`, a hint; without effect for an index out of bounds.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        prefetch_line(self.base.as_ptr().wrapping_add(index).cast());
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &W::Atomic {
        assert!(index < self.len, "word out of bounds");
        // SAFETY: `index < len` (just asserted), so by invariant 1 the element lies inside the allocation, aligned and
        // initialised; by invariant 2 it stays mapped while `self` is borrowed, and by invariant 3 it is written only
        // through an atomic.
        unsafe { self.base.add(index).as_ref() }
    }
}

/// The writer's side of a table. A table has one.
pub struct WordsMut<W: Word>(Words<W>);

impl<W: Word> WordsMut<W> {
    /// A table of `len` zero words in a box.
    pub fn zeroed(len: usize) -> WordsMut<W>
    where
        W::Atomic: Default + Send + 'static,
    {
        let words: Box<[W::Atomic]> = (0..len).map(|_| W::Atomic::default()).collect();
        let owner = Arc::new(words);
        // From where the box stays: a pointer into a box may not be used after the box has moved.
        let base = NonNull::from(&**owner).cast::<W::Atomic>();
        WordsMut(Words { base, len, owner, width: PhantomData })
    }

    /// A table over memory that `owner` keeps mapped.
    ///
    /// # Safety
    ///
    /// 1. `base` points at `len` words, aligned to their size and initialised.
    /// 2. The memory stays mapped and writable for as long as `owner` lives.
    /// 3. While it does, this process reaches it only through the returned table and its readers.
    ///
    /// # Panics
    ///
    /// Under loom, whose atomics do not fit a mapping.
    pub unsafe fn from_mapping(base: NonNull<W>, len: usize, owner: Owner) -> WordsMut<W> {
        if cfg!(manylane_loom) {
            panic!("loom's atomics do not fit a mapping");
        }
        // An atomic has the size and bit validity of its word; the alignment is debt 1.
        WordsMut(Words { base: base.cast(), len, owner, width: PhantomData })
    }

    /// A readers' side of the same table.
    pub fn reader(&self) -> Words<W> {
        self.0.clone()
    }

    /// Parts the table: the words from `at` on become a table with a writer of its own, this one keeps those before.
    /// Readers made before still reach all of them.
    ///
    /// # Panics
    ///
    /// When `at` is beyond the end.
    pub fn split_off(&mut self, at: usize) -> WordsMut<W> {
        let tail = self.0.len.checked_sub(at).expect("split beyond the end");
        // SAFETY: `at <= len`, so by invariant 1 of `Words` the address lies in the allocation or at its end.
        let base = unsafe { self.0.base.add(at) };
        self.0.len = at;
        WordsMut(Words { base, len: tail, owner: self.0.owner.clone(), width: PhantomData })
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The word at `index`, as the writer left it.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn load(&self, index: usize) -> W {
        // Relaxed: the only writer is this thread.
        W::load(self.0.word(index), Ordering::Relaxed)
    }

    /// Writes a word that no reader looks at yet, or that stands for itself.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn store(&mut self, index: usize, value: W) {
        // Relaxed: readers that follow a published index are ordered by that index's Release.
        W::store(self.0.word(index), value, Ordering::Relaxed)
    }

    /// Writes a word and lets readers who see it see everything stored before it.
    #[inline]
    #[cfg_attr(manylane_counted, track_caller)]
    pub fn publish(&mut self, index: usize, value: W) {
        // Release: pairs with the Acquire load in `Words::load`, see there.
        W::store(self.0.word(index), value, Ordering::Release)
    }
}

/// Prefetches the cache line that `value` begins on. A hint: it never faults and changes nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// Prefetches the cache line at `address`, wherever that leads: nothing is read.
#[inline(always)]
pub fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: `_mm_prefetch` asks only for SSE, which every x86_64 has; it dereferences nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch`], for a line that is about to be written: the core gets it as its own, so that it need not request
/// the line again.
#[inline(always)]
pub fn prefetch_to_write<T: ?Sized>(value: &T) {
    prefetch_line_to_write(std::ptr::from_ref(value).cast());
}

/// As [`prefetch_line`], for a line that is about to be written.
#[inline(always)]
pub fn prefetch_line_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a processor without `prefetchw` takes it for a no-op, as every x86_64 does (Intel SDM, vol. 2,
    // PREFETCHW); it dereferences nothing, changes no flag, and needs no stack. The intrinsic would become a plain
    // prefetch where the compiler does not target a later processor.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address.addr(),
            options(nostack, preserves_flags, nomem)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_the_writer_published() {
        let mut table = WordsMut::<u32>::zeroed(4);
        let reader = table.reader();
        table.store(1, 7);
        table.publish(0, 1);
        assert_eq!(reader.load(reader.load(0) as usize), 7);
        assert_eq!((reader.len(), table.len()), (4, 4));
    }

    #[test]
    fn readers_outlive_the_writer() {
        let mut table = WordsMut::<u16>::zeroed(1);
        table.publish(0, 9);
        let reader = table.reader();
        drop(table);
        assert_eq!(reader.load(0), 9);
    }

    #[test]
    fn parts_have_a_writer_each_and_readers_of_all() {
        let mut head = WordsMut::<u64>::zeroed(5);
        let reader = head.reader();
        let mut tail = head.split_off(3);
        assert_eq!((head.len(), tail.len(), tail.reader().len(), reader.len()), (3, 2, 2, 5));
        head.publish(2, 20);
        tail.publish(0, 30);
        assert_eq!(reader.load_array::<5>(0), [0, 0, 20, 30, 0]);
        assert_eq!(tail.split_off(2).len(), 0, "at its end");
        let beyond = std::panic::AssertUnwindSafe(|| head.store(3, 1));
        assert!(std::panic::catch_unwind(beyond).is_err(), "no more its own");
    }

    #[test]
    #[should_panic(expected = "word out of bounds")]
    fn a_word_out_of_bounds_is_refused() {
        WordsMut::<u64>::zeroed(2).load(2);
    }

    #[test]
    fn a_record_is_loaded_whole_or_not_at_all() {
        let mut table = WordsMut::<u64>::zeroed(5);
        (0..5).for_each(|index| table.store(index, index as u64));
        let reader = table.reader();
        assert_eq!(reader.load_array::<3>(2), [2, 3, 4]);
        for first in [3, usize::MAX] {
            let beyond = std::panic::AssertUnwindSafe(|| reader.load_array::<3>(first));
            assert!(std::panic::catch_unwind(beyond).is_err(), "from {first}");
        }
    }

    #[test]
    fn counters_are_added_modulo_their_width() {
        let mut table = WordsMut::<u64>::zeroed(4);
        (0..4).for_each(|index| table.store(index, index as u64));
        let (reader, mut sums) = (table.reader(), [10, u64::MAX]);
        reader.add_to(2, &mut sums);
        assert_eq!(sums, [12, 2]);
        let beyond = std::panic::AssertUnwindSafe(|| reader.add_to(3, &mut [0; 2]));
        assert!(std::panic::catch_unwind(beyond).is_err(), "the last is out of bounds");
    }

    #[test]
    fn a_prefetch_out_of_bounds_is_nothing() {
        let words = WordsMut::<u64>::zeroed(2).reader();
        [2, 1 << 40, usize::MAX].into_iter().for_each(|index| words.prefetch(index));
    }
}
