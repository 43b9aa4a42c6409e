//! Anonymous memory, on huge pages where the kernel has some.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use manylane_sync::words::{Owner, Word, WordsMut};

/// Private, zeroed memory of this process.
///
/// # Invariants
///
/// 1. `base` points at `len` mapped, readable, writable bytes, aligned to [`HUGE_PAGE`].
/// 2. Only `Drop` unmaps them.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    huge: bool,
}

/// The size and alignment of a huge page on x86_64.
pub const HUGE_PAGE: usize = 2 << 20;

// SAFETY: a mapping belongs to the process, not to a thread, and `Mapping` gives out no reference.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` zeroed bytes, rounded up to whole huge pages: reserved huge pages if the machine has
    /// enough (`vm.nr_hugepages`), else normal pages that the kernel may join (`MADV_HUGEPAGE`).
    pub fn new(len: usize) -> io::Result<Mapping> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_long)?;
        // Of this size, whatever the machine's default is: of 1 GiB, `len` would not be a multiple.
        if let Ok(base) = map(len, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB) {
            return Ok(Mapping { base, len, huge: true });
        }
        // Over-allocate by one huge page and give back what lies before and after the aligned part.
        let start = map(len.checked_add(HUGE_PAGE).ok_or_else(too_long)?, 0)?;
        let before = start.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `before < HUGE_PAGE`, so the result is inside the mapping just made.
        let base = unsafe { start.add(before) };
        // SAFETY: `base + len` is at most the end of the mapping just made.
        let end = unsafe { base.add(len) };
        unmap(start, before);
        unmap(end, HUGE_PAGE - before);
        // SAFETY: `base` and `len` are the mapping that is left (madvise(2)). The advice changes
        // speed, not content, so that its failure is nothing to report.
        let advised = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(Mapping { base, len, huge: advised == 0 })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether huge pages back it, or may.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// A zeroed table of `len` words in a mapping of its own.
    pub fn words<W: Word>(len: usize) -> io::Result<WordsMut<W>> {
        // What does not fit a `usize` fits no memory; wrapped around, it would.
        let bytes = len.checked_mul(size_of::<W>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(bytes)?;
        let base = mapping.base.cast::<W>();
        let owner: Owner = Arc::new(mapping);
        // SAFETY: the three debts of `from_mapping`:
        // 1. by invariant 1 the mapping is aligned, long enough, and zero, which every word may be;
        // 2. by invariant 2 it stays mapped while `owner` lives, and is writable;
        // 3. `owner` was made here and hands out nothing, so only the table reaches the memory.
        Ok(unsafe { WordsMut::from_mapping(base, len, owner) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn map(len: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing that
    // exists (mmap(2)).
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

fn unmap(base: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the callers pass part of a mapping made by `map` that nothing refers to any more:
        // in `new` no other thread has seen it yet, in `drop` the owner is gone (`Mapping` invariant 2).
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_zero_aligned_and_writable() {
        let mut words = Mapping::words::<u64>(1 << 18).expect("2 MiB can be mapped");
        assert_eq!(words.load((1 << 18) - 1), 0);
        words.store(5, 7);
        assert_eq!(words.reader().load(5), 7);
        let mapping = Mapping::new(1).expect("2 MiB can be mapped");
        assert_eq!(mapping.base().as_ptr().align_offset(HUGE_PAGE), 0);
        assert_eq!((mapping.len(), mapping.is_empty()), (HUGE_PAGE, false));
    }

    /// A length that wraps around would map a little and promise a lot.
    #[test]
    fn a_length_beyond_all_memory_is_refused() {
        for len in [usize::MAX, usize::MAX / 8 + 2, usize::MAX / 16] {
            assert!(Mapping::words::<u64>(len).is_err(), "{len} words");
        }
        assert!(Mapping::new(usize::MAX - HUGE_PAGE).is_err());
    }
}
