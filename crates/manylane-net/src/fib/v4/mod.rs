//! The IPv4 table: one word for each /24, and a short sorted list for a /24 with longer routes.
//!
//! | table    | word                                                                               |
//! |----------|------------------------------------------------------------------------------------|
//! | `direct` | by the address' first 24 bits: a next-hop id, or [`LIST`] and the /24's number in its /16 |
//! | `blocks` | by the address' first 16 bits: where in `groups` that /16's directory begins       |
//! | `groups` | directory + number: where in `ranges` the /24's list begins                        |
//! | `ranges` | n (1 to 256), then n entries `start << 16 \| id`, sorted; the first start is 0     |
//!
//! The answer is the last entry whose start is at most the address' last 8 bits. A prefix up to /24 costs one load. A
//! longer one costs three more and at most 8 steps of a binary search. A list has only the boundaries that exist, so
//! 300,000 host routes in as many /24s take 4 words each, where 256-entry groups (DIR-24-8) would take 150 MB.
//!
//! `direct` is a plain array, or packed to a seventh of its size ([`Direct`]).
//!
//! A number stays with its /24 until no reader can have it any more (`writer.rs` retires it), so
//! `direct`, `blocks` and `groups` may be read one after the other.

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::{Words, WordsMut};

use super::NextHop;

mod direct;
mod packed;
mod writer;

#[cfg(all(test, not(manylane_loom)))]
mod tests;

pub use direct::{Direct, DirectMut};
pub use packed::{CHUNKS, Packed, PackedMut, UNKNOWN};
pub use writer::Ipv4Writer;

/// In `direct`: the other bits are the number of a /24 that has a list.
pub const LIST: u16 = 0x8000;

/// Entries of `direct`.
pub const DIRECT: usize = 1 << 24;

/// Entries of `blocks`.
pub const BLOCKS: usize = 1 << 16;

/// Addresses whose memory a batch lookup prefetches before it reads any of it.
const STAGE: usize = 64;

/// How many words each table of an [`Ipv4Tables`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Sizes {
    /// [`DIRECT`], always.
    pub direct: usize,
    /// [`BLOCKS`], always.
    pub blocks: usize,
    /// Directories: two words for each /24 with a list, at least four for each /16.
    pub groups: usize,
    /// Lists.
    pub ranges: usize,
}

impl Ipv4Sizes {
    /// Sizes that hold `long_routes` routes longer than /24, wherever they lie, and those that wait
    /// for a grace period after a change. Shorter ones need no room.
    pub fn for_long_routes(long_routes: usize) -> Ipv4Sizes {
        // k routes make a list of at most 2k + 2 words; rounded up to four, that is at most 4k. Half as
        // much again for what waits, and for pieces that do not fit together.
        let ranges = 6 * long_routes + 16_384;
        // A directory is a power of two, and the old one waits while the new one is in use.
        let groups = 4 * long_routes.min(DIRECT) + 16_384;
        Ipv4Sizes { direct: DIRECT, blocks: BLOCKS, groups, ranges }
    }

    /// All tables together.
    pub fn bytes(self) -> usize {
        self.direct * 2 + (self.blocks + self.groups + self.ranges) * 4
    }
}

/// The memory of the table, handed in by the caller; all words are 0.
pub struct Ipv4Tables<D = WordsMut<u16>> {
    /// Next hops of /24s.
    pub direct: D,
    /// Directories of /16s.
    pub blocks: WordsMut<u32>,
    /// Lists of /24s.
    pub groups: WordsMut<u32>,
    /// The lists.
    pub ranges: WordsMut<u32>,
}

impl Ipv4Tables {
    /// Tables in boxes.
    pub fn zeroed(sizes: Ipv4Sizes) -> Ipv4Tables {
        Ipv4Tables {
            direct: WordsMut::zeroed(sizes.direct),
            blocks: WordsMut::zeroed(sizes.blocks),
            groups: WordsMut::zeroed(sizes.groups),
            ranges: WordsMut::zeroed(sizes.ranges),
        }
    }
}

/// The readers' side of the IPv4 table.
#[derive(Clone)]
pub struct Ipv4Fib<D: Direct = Words<u16>> {
    direct: D,
    blocks: Words<u32>,
    groups: Words<u32>,
    ranges: Words<u32>,
}

impl<D: Direct> Ipv4Fib<D> {
    /// Prefetches the word that [`Ipv4Fib::lookup`] reads first.
    #[inline(always)]
    pub fn prefetch(&self, addr: u32) {
        self.direct.prefetch(addr as usize >> 8);
    }

    /// The next hop of the longest prefix that contains `addr`; raw 0 without one.
    #[inline]
    pub fn lookup<'g>(&self, guard: Guard<'g>, addr: u32) -> Index<'g, NextHop> {
        Index::new(guard, self.find(addr).into())
    }

    /// The raw ids of many addresses at once: their memory is prefetched before it is needed.
    ///
    /// # Panics
    ///
    /// When `ids` is not as long as `addrs`.
    pub fn lookup_batch(&self, guard: Guard<'_>, addrs: &[u32], ids: &mut [u16]) {
        let _ = guard;
        assert_eq!(addrs.len(), ids.len(), "each address needs a place for its id");
        for (addrs, ids) in addrs.chunks(STAGE).zip(ids.chunks_mut(STAGE)) {
            addrs.iter().for_each(|&addr| self.prefetch(addr));
            for (&addr, id) in addrs.iter().zip(ids) {
                *id = self.find(addr);
            }
        }
    }

    #[inline(always)]
    fn find(&self, addr: u32) -> u16 {
        let word = self.direct.word(addr as usize >> 8);
        if word & LIST == 0 { word } else { self.find_in_list(addr, word & !LIST) }
    }

    /// Out of line: in the Internet's table 451 of 16 million /24s come here.
    #[inline(never)]
    fn find_in_list(&self, addr: u32, number: u16) -> u16 {
        let directory = self.blocks.load(addr as usize >> 16) as usize;
        let list = self.groups.load(directory + usize::from(number)) as usize;
        let low = addr & 0xff;
        // The answer is one of `left` entries from `at`; the first one always begins in time.
        let (mut at, mut left) = (list + 1, self.ranges.load(list) as usize);
        // At most 8 steps: a list has at most 256 entries.
        while left > 1 {
            let half = left / 2;
            if self.ranges.load(at + half) >> 16 <= low {
                at += half;
            }
            left -= half;
        }
        // The low half; the start is above it.
        self.ranges.load(at) as u16
    }
}
