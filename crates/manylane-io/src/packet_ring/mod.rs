//! Packet rings: copies of packets, in blocks, from the workers to one reader, which may be slow, dead,
//! or another process that writes anything it likes into the ring.
//!
//! Modelled on packet(7)'s `TPACKET_V3`, with its terms. A ring has one *lane* for each worker, so that
//! no two workers write the same memory. A lane consists of blocks; a block holds *records*, a packet each;
//! all packets of a block arrived by one binding, whose generation the block carries. The worker publishes a
//! block when it is full, when the generation changes, when it has been open for `retire_ns`
//! (`tp_retire_blk_tov`), and before the worker sleeps. When the next block is still the reader's, the packet is
//! lost, and counted where the reader sees it.
//!
//! | side   | type      | does                                                                  |
//! |--------|-----------|-----------------------------------------------------------------------|
//! | worker | [`Lane`]  | shared by `Arc`; `writer` for a batch                                 |
//! | worker | [`Writer`]| `push` a packet, `end_turn`, `publish` before sleeping                |
//! | waker  | [`Lane`]  | `published` and `reader_sleeps`; in a thread of its own, [`Watch`]    |
//! | reader | [`Reader`]| `borrow` a [`Block`] of one lane, read its packets, return it         |
//! | reader | [`Readers`]| all lanes: `sleep` until a block is published                        |
//!
//! In one process [`lanes`] creates both ends; [`Readers::recycle`] reuses them for another socket without a system
//! call. Across processes [`create_shared`] creates the lanes and a sealed memfd, and [`open_shared`] opens the readers
//! of that.
//!
//! A reader in another process can still slow a worker down by returning the memory's pages to the kernel
//! (`FALLOC_FL_PUNCH_HOLE`, which no seal forbids that lets the reader write its words): the worker's next copy then
//! takes page faults. That time counts as the socket's.
//!
//! A reader in another process can also keep the memfd, or its mapping, when the daemon has closed the socket. So the
//! daemon itself returns the pages once no worker writes to the ring
//! ([`Lane::free_pages_at_end`]). The seals allow that, and forbid to shrink the memfd, which would be an end for later
//! accesses, too: shrinking by the reader would be an end for the daemon. The reader can fill the hole again, by pages of
//! its own: the kernel charges a page of a memfd to the process that touches it first, so the reader gains nothing that it
//! could not have by a memfd of its own.
//!
//! `manylane_sync::blocks` orders the blocks and decides which side may touch each.
//!
//! May use: `manylane-sync`, the vocabulary of `manylane-frame`, system calls. Touched by: workers (writing), one
//! reader per ring, in this process or another, and the thread that wakes readers.
//!
//! # Memory layout
//!
//! | offset                             | content                                                  |
//! |------------------------------------|----------------------------------------------------------|
//! | 0                                  | the header: magic, version, sizes                        |
//! | 128                                | the word `sleeps`                                        |
//! | 256 + 128 x lane                   | the lane's counts of written and lost packets            |
//! | a page, + `block_size` x block     | lane 0's blocks, then lane 1's, ...                      |
//! | in a block, 0                      | status, generation, packets, bytes: a word each          |
//! | in a block, 128                    | records: a header of 24 bytes, the bytes kept of the packet, padding to 8 |
//!
//! All numbers are in the machine's byte order: both ends are on one machine.

#![allow(
    clippy::disallowed_types,
    reason = "words in memory that another process maps: `foreign` is for them"
)]

use std::io;

mod fanout;
mod lane;
mod layout;
mod memory;
mod reader;
mod record;
mod shared;
mod terms;

pub use fanout::{Fanout, MEMBERS_MAX};
pub use lane::{Lane, Totals, Watch, Writer, lanes};
pub use reader::{Block, Packet, Packets, Position, Reader, Readers};
pub use record::Record;
pub use shared::{create_shared, open_shared};
pub use terms::{RING, Statistics, protocol};

/// The sizes of a ring, as in `struct tpacket_req3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Bytes of a block: a power of two from [`BLOCK_SIZE_MIN`] to [`BLOCK_SIZE_MAX`].
    pub block_size: u32,
    /// Blocks of each lane, from [`BLOCKS_MIN`] to [`BLOCKS_MAX`].
    pub blocks: u32,
    /// How long a block with packets may stay open, in nanoseconds.
    pub retire_ns: u64,
}

/// The smallest block: a page.
pub const BLOCK_SIZE_MIN: u32 = 4 << 10;
/// The largest block.
pub const BLOCK_SIZE_MAX: u32 = 4 << 20;
/// Fewest blocks of a lane: one to read while one is written.
pub const BLOCKS_MIN: u32 = 2;
/// Most blocks of a lane.
pub const BLOCKS_MAX: u32 = 1024;
/// Most lanes of a ring.
pub const LANES_MAX: u32 = 1024;

impl Default for RingConfig {
    /// 2 MiB for each lane, libpcap's size of a ring, in blocks that are published within 10 ms.
    fn default() -> RingConfig {
        RingConfig { block_size: 256 << 10, blocks: 8, retire_ns: 10_000_000 }
    }
}

impl RingConfig {
    /// How many bytes of memory a ring of `lanes` lanes takes.
    pub fn bytes(&self, lanes: u32) -> Result<u64, RingError> {
        layout::Layout::new(self.block_size, self.blocks, lanes).map(|layout| layout.len() as u64)
    }
}

/// Why a ring could not be created or opened.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The block size is out of bounds, or no power of two.
    #[error(
        "invalid block size of {0} bytes: take a power of two from {BLOCK_SIZE_MIN} to {BLOCK_SIZE_MAX}"
    )]
    BlockSize(u32),
    /// The number of blocks is out of bounds.
    #[error("invalid size of a packet ring, {0} blocks: take {BLOCKS_MIN} to {BLOCKS_MAX}")]
    Blocks(u32),
    /// The number of lanes is out of bounds.
    #[error("invalid size of a packet ring, {0} lanes: take 1 to {LANES_MAX}, one for each worker")]
    Lanes(u32),
    /// The kernel refused one step, named by its system call.
    #[error("no memory for a packet ring ({step}: {source}): request fewer or smaller blocks")]
    Refused {
        /// The system call.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The descriptor is not that of a ring.
    #[error("the descriptor is not that of a packet ring: {0}; use the one that the daemon sent")]
    NotARing(&'static str),
    /// The descriptor is that of a ring of another version.
    #[error(
        "the packet ring is of version {theirs:#x}, but this program reads {ours:#x}: use the program that came with the \
         daemon"
    )]
    OtherVersion {
        /// The version of the ring.
        theirs: u64,
        /// The version that this program reads.
        ours: u64,
    },
}

#[cfg(test)]
mod tests;
