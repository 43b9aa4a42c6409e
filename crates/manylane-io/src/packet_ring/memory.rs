//! The memory of a ring: an anonymous mapping, or a mapping of a memfd.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use manylane_sync::blocks::Statuses;
use manylane_sync::counters::SharedLevel;
use manylane_sync::primitive::foreign::AtomicU64;

use super::RingError;
use super::layout::{Count, InBlock, Layout, PAGE};
use crate::syscall::check;

/// A mapping laid out as a ring.
///
/// # Invariants
///
/// 1. `base` points at `layout.len()` mapped, readable, writable bytes, aligned to a page. If they belong to a
///    memfd, it cannot shrink (`F_SEAL_SHRINK`).
/// 2. Only `Drop` unmaps them, and the inaccessible page on either side.
/// 3. Each side that keeps to the protocol accesses the words of [`InBlock`], [`Count`] and `SLEEPS` through atomics
///    only; the code here trusts their values no further than that they are words.
pub(super) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// Whether `Drop` also frees the pages of the memfd.
    frees_pages: SharedLevel,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}
// SAFETY: `&self` gives out atomics and raw pointers only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of this process.
    pub fn anonymous(layout: Layout) -> Result<Memory, RingError> {
        let memory = Memory::map(layout, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        memory.populate()
    }

    /// Maps a memfd that is as long as `layout` requires, and sealed so that it stays so.
    pub fn shared(layout: Layout, memfd: BorrowedFd<'_>) -> Result<Memory, RingError> {
        Memory::map(layout, libc::MAP_SHARED, memfd.as_raw_fd())
    }

    /// Allocates the pages now and reports failure, so that a worker's later write takes no page fault.
    /// (MAP_POPULATE would neither report failure nor map shared pages for writing.)
    pub fn populate(self) -> Result<Memory, RingError> {
        // SAFETY: the mapping is ours (madvise(2)).
        let populated = unsafe {
            let base = self.base.as_ptr().cast();
            libc::madvise(base, self.layout.len(), libc::MADV_POPULATE_WRITE)
        };
        check(populated).map_err(|source| RingError::Refused { step: "madvise", source })?;
        Ok(self)
    }

    fn map(layout: Layout, flags: libc::c_int, fd: libc::c_int) -> Result<Memory, RingError> {
        let refused = |step| move |source| RingError::Refused { step, source };
        // Between two inaccessible pages: a stray access beyond the ring faults and harms nothing.
        let apart = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping at an address of the kernel's choice touches no memory of ours (mmap(2)).
        let outer = unsafe {
            libc::mmap(ptr::null_mut(), layout.len() + 2 * PAGE, libc::PROT_NONE, apart, -1, 0)
        };
        if outer == libc::MAP_FAILED {
            return Err(refused("mmap")(io::Error::last_os_error()));
        }
        let outer = NonNull::new(outer.cast()).expect("the kernel maps nothing at address 0");
        // SAFETY: inside what was just mapped.
        let base = unsafe { outer.add(PAGE) };
        let frees_pages = SharedLevel::default();
        let memory = Memory { base, layout, frees_pages }; // From here on `Drop` unmaps.
        // SAFETY: it replaces part of what was just mapped, to which no pointer exists yet.
        let inner = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = flags | libc::MAP_FIXED;
            libc::mmap(base.as_ptr().cast(), layout.len(), protection, flags, fd, 0)
        };
        if inner == libc::MAP_FAILED {
            return Err(refused("mmap")(io::Error::last_os_error()));
        }
        Ok(memory)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// When the last lane is dropped, the pages of the memfd are freed, too, even if another process has the memfd.
    /// Then the memfd is empty, and reads as zeroes.
    pub fn free_pages_at_end(&self) {
        self.frees_pages.set(1);
    }

    /// The start of the bytes that are written once, before another thread or process has access.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The word `sleeps`, or a count.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.layout.len(), "no word of the ring");
        // SAFETY: mapped for as long as `self` lives and aligned (invariants 1 and 2, just asserted);
        // every 8 bytes are a word; invariant 3.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    pub fn count(&self, lane: u32, count: Count) -> &AtomicU64 {
        self.word(self.layout.lane(lane) + 8 * count as usize)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.frees_pages.load() != 0 {
            // SAFETY: the mapping is ours, and a reader in another process reads whole words that it does
            // not trust (madvise(2); invariant 3).
            let freed = unsafe {
                libc::madvise(self.base.as_ptr().cast(), self.layout.len(), libc::MADV_REMOVE)
            };
            // The kernel refuses mappings that are locked, private or sealed against writing, and this is none of them.
            debug_assert!(freed == 0, "{}", io::Error::last_os_error());
        }
        // SAFETY: `map` made exactly these mappings, and each holder of a pointer into them holds `self`.
        unsafe {
            let outer = self.base.sub(PAGE);
            libc::munmap(outer.as_ptr().cast(), self.layout.len() + 2 * PAGE)
        };
    }
}

/// The blocks of one lane.
///
/// # Invariants
///
/// 1. `first` points at `count` blocks of `block_size` bytes in `memory`.
pub(super) struct Blocks {
    first: NonNull<u8>,
    count: u32,
    block_size: usize,
    lane: u32,
    memory: Arc<Memory>,
}

// SAFETY: the pointer leads into `memory`, which is `Send` and which it keeps.
unsafe impl Send for Blocks {}
// SAFETY: as for `Memory`.
unsafe impl Sync for Blocks {}

impl Blocks {
    pub fn new(memory: Arc<Memory>, lane: u32) -> Blocks {
        let layout = memory.layout;
        // SAFETY: inside the mapping, by the invariant of `Layout`.
        let first = unsafe { memory.base.add(layout.first_block(lane)) };
        Blocks { first, count: layout.blocks(), block_size: layout.block_size(), lane, memory }
    }

    pub fn block_size(&self) -> usize {
        self.block_size
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether both are the same blocks.
    pub fn is_same(&self, other: &Blocks) -> bool {
        self.first == other.first
    }

    /// The lane's own word.
    pub fn total(&self, count: Count) -> &AtomicU64 {
        self.memory.count(self.lane, count)
    }

    /// The start of a block.
    #[inline]
    pub fn block(&self, block: u32) -> NonNull<u8> {
        assert!(block < self.count, "the lane has no such block");
        // SAFETY: just asserted; invariant 1.
        unsafe { self.first.add(block as usize * self.block_size) }
    }

    /// A word of a block's header.
    #[inline]
    pub fn word(&self, block: u32, word: InBlock) -> &AtomicU64 {
        // SAFETY: a block is at least a page long, aligned to one, and mapped while `memory` lives; the
        // words are its first, for atomics only (invariant 3 of `Memory`).
        unsafe { self.block(block).cast::<AtomicU64>().add(word as usize).as_ref() }
    }
}

impl Statuses for Blocks {
    type Word = AtomicU64;

    #[inline]
    fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    fn status(&self, block: u32) -> &AtomicU64 {
        self.word(block, InBlock::Status)
    }
}
