//! The memory layout of a ring.

use super::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, BLOCKS_MAX, BLOCKS_MIN, LANES_MAX, RingConfig, RingError,
};

/// The sizes of a ring, checked.
///
/// # Invariants
///
/// 1. The sizes are within the bounds of the room's constants, and `block_size` is a power of two; so nothing
///    below overflows, and each object at an offset ends within `len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    block_size: u32,
    blocks: u32,
    lanes: u32,
}

/// The offset of the word `sleeps`.
pub(super) const SLEEPS: usize = LINES;
/// The offset of a block's first record. A block's status and header words are on cache lines of their own.
pub(super) const BLOCK_HEADER: usize = LINES;
/// A pair of cache lines: x86 fetches them together.
const LINES: usize = 128;
/// Blocks are aligned to it.
pub(super) const PAGE: usize = 4096;

/// The words that a lane writes and its reader reads, from [`Layout::lane`] on.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Packets = 0,
    Bytes = 1,
    Lost = 2,
    Clamped = 3,
}

impl Count {
    /// Every count, in order.
    pub const ALL: [Count; 4] = [Count::Packets, Count::Bytes, Count::Lost, Count::Clamped];
}

/// The words at the start of a block.
#[derive(Clone, Copy)]
pub(super) enum InBlock {
    Status = 0,
    Generation = 1,
    Packets = 2,
    Bytes = 3,
}

impl Layout {
    pub fn new(block_size: u32, blocks: u32, lanes: u32) -> Result<Layout, RingError> {
        if !block_size.is_power_of_two() || !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block_size)
        {
            return Err(RingError::BlockSize(block_size));
        }
        if !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
            return Err(RingError::Blocks(blocks));
        }
        if !(1..=LANES_MAX).contains(&lanes) {
            return Err(RingError::Lanes(lanes));
        }
        Ok(Layout { block_size, blocks, lanes })
    }

    pub fn of(config: &RingConfig, lanes: u32) -> Result<Layout, RingError> {
        Layout::new(config.block_size, config.blocks, lanes)
    }

    pub fn block_size(&self) -> usize {
        self.block_size as usize
    }

    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The offset of a lane's counts.
    pub fn lane(&self, lane: u32) -> usize {
        assert!(lane < self.lanes, "the ring has no such lane");
        SLEEPS + LINES + LINES * lane as usize
    }

    /// The offset of a lane's first block; the others follow.
    pub fn first_block(&self, lane: u32) -> usize {
        assert!(lane < self.lanes, "the ring has no such lane");
        self.head() + lane as usize * self.blocks as usize * self.block_size()
    }

    /// The length of the ring, in bytes.
    pub fn len(&self) -> usize {
        self.head() + self.lanes as usize * self.blocks as usize * self.block_size()
    }

    /// The length of the part before the blocks, in whole pages.
    fn head(&self) -> usize {
        (SLEEPS + LINES + LINES * self.lanes as usize).next_multiple_of(PAGE)
    }
}
