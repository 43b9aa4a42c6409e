//! What the C library's allocator does with freed memory.

/// From now on a block of 128 KiB or more is a mapping of its own, which the kernel has back once the block is freed.
///
/// glibc begins so, but raises the bound, up to 32 MiB, whenever such a block is freed (mallopt(3), `M_MMAP_THRESHOLD`): a
/// program that once read a large table keeps what it needed meanwhile. The price is a system call for each such block.
/// Other C libraries are left as they are.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes no pointer, and may be called by any thread at any time.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_set, 1, "the bound is one that mallopt(3) takes");
}

/// glibc's first bound.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// How many blocks are mappings of their own.
    fn mapped() -> usize {
        // SAFETY: mallinfo2(3) takes no pointer.
        unsafe { libc::mallinfo2() }.hblks
    }

    #[test]
    fn a_block_is_a_mapping_also_after_a_larger_one_was_freed() {
        return_large_blocks();
        drop(std::hint::black_box(vec![1u8; 16 << 20]));
        let before = mapped();
        let blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        // Another test may free some of its own meanwhile.
        assert!(mapped() > before + 32, "{before} before, {} after", mapped());
        drop(std::hint::black_box(blocks));
    }
}
