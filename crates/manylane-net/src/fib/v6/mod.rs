//! The IPv6 table: one word for each bucket, and a small search structure for a bucket with several routes.
//!
//! | table    | word                                                                           |
//! |----------|--------------------------------------------------------------------------------|
//! | `direct` | by bucket ([`bucket`]): a next-hop id, or the way on ([`tree`])                |
//! | `index`  | entries by the next 4, 8 or 12 bits, as in `direct`                            |
//! | `leaves` | half lines and lines: up to eight intervals of half an address, and their words |
//!
//! A lookup is `direct`, entries for as long as a word leads to some, and at most one leaf; where routes are longer
//! than /64, these steps again for the lower 64 bits, without `direct`. A step is a shift, a mask and a load; a leaf is
//! up to seven comparisons: nothing else for a BPF program to do. Its loops have at most 12 steps and 16.
//!
//! A bucket is a /16. In the Internet's table of 160,147 routes, 59 buckets lead on, and a lookup reads 4.4 words or
//! leaves on average, out of 4.0 MiB.

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::wide::dispatch;
use manylane_sync::words::{Words, WordsMut};

use super::NextHop;
use leaf::FAR_WORDS;
use stage::{FEW, STAGE, Stage};
use tree::{HOST, INDEX_WORDS};

pub mod leaf;
mod plan;
mod stage;
pub mod tree;
mod writer;

#[cfg(all(test, not(manylane_loom)))]
mod tests;

pub use writer::Ipv6Writer;

/// The prefix length of a bucket.
pub(super) const BUCKET_LEN: u32 = 16;

/// Entries of `direct`.
pub const DIRECT: usize = 1 << BUCKET_LEN;

/// The bucket of the upper half of an address.
#[inline(always)]
pub fn bucket(upper: u64) -> usize {
    (upper >> (64 - BUCKET_LEN)) as usize
}

/// How many words each table of an [`Ipv6Tables`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Sizes {
    /// [`DIRECT`], always.
    pub direct: usize,
    /// Entries, in lines of 16 words.
    pub index: usize,
    /// Leaves, of four words and of eight.
    pub leaves: usize,
}

impl Ipv6Sizes {
    /// Sizes that hold `routes` routes as they are found in networks, and what waits for a grace period
    /// after a change. The Internet's table needs a quarter of the entries and an eighth of the leaves.
    pub fn for_routes(routes: usize) -> Ipv6Sizes {
        // A line of entries each: four times what the Internet's routes take. Only routes that differ in their last bits
        // alone take more, twelve lines where a /64 has up to a dozen of them. And a far leaf each: a /128 that is alone
        // in its /64.
        let index = INDEX_WORDS * routes + (1 << 18);
        let leaves = FAR_WORDS * routes + (1 << 16);
        Ipv6Sizes { direct: DIRECT, index, leaves }
    }

    /// All tables together.
    pub fn bytes(self) -> usize {
        (self.direct + self.index) * 4 + self.leaves * 8
    }
}

/// The memory of the table, handed in by the caller; all words are 0. `index` and `leaves` begin on a
/// cache line, or each of their lines lies on two.
pub struct Ipv6Tables {
    /// Next hops or the way on, by bucket.
    pub direct: WordsMut<u32>,
    /// The entries by the bits that follow.
    pub index: WordsMut<u32>,
    /// Intervals and their words.
    pub leaves: WordsMut<u64>,
}

impl Ipv6Tables {
    /// Tables in boxes.
    pub fn zeroed(sizes: Ipv6Sizes) -> Ipv6Tables {
        Ipv6Tables {
            direct: WordsMut::zeroed(sizes.direct),
            index: WordsMut::zeroed(sizes.index),
            leaves: WordsMut::zeroed(sizes.leaves),
        }
    }
}

/// The readers' side of the IPv6 table.
#[derive(Clone)]
pub struct Ipv6Fib {
    direct: Words<u32>,
    index: Words<u32>,
    leaves: Words<u64>,
}

impl Ipv6Fib {
    /// Prefetches the word that a lookup reads first.
    #[inline(always)]
    pub fn prefetch(&self, addr: u128) {
        self.direct.prefetch(bucket(upper(addr)));
    }

    /// The next hop of the longest prefix that contains `addr`; raw 0 without one.
    #[inline]
    pub fn lookup<'g>(&self, guard: Guard<'g>, addr: u128) -> Index<'g, NextHop> {
        Index::new(guard, self.find(addr))
    }

    /// The raw ids of many addresses at once: their memory is prefetched before it is needed.
    ///
    /// # Panics
    ///
    /// When `ids` is not as long as `addrs`.
    pub fn lookup_batch(&self, guard: Guard<'_>, addrs: &[u128], ids: &mut [u16]) {
        let _ = guard;
        assert_eq!(addrs.len(), ids.len(), "each address needs a place for its id");
        for (addrs, ids) in addrs.chunks(STAGE).zip(ids.chunks_mut(STAGE)) {
            if addrs.len() < FEW {
                addrs.iter().zip(ids).for_each(|(&addr, id)| *id = self.find(addr) as u16);
            } else {
                dispatch(Stage { fib: self, addrs, ids });
            }
        }
    }

    #[inline(always)]
    fn find(&self, addr: u128) -> u32 {
        let upper = upper(addr);
        let way = self.direct.load(bucket(upper));
        let way = tree::walk(&self.index, &self.leaves, way, upper, upper << BUCKET_LEN);
        if way & HOST == 0 { way } else { self.find_host(way, lower(addr)) }
    }

    /// Out of line: in the Internet's table 83 of 160,147 routes are longer than /64.
    #[inline(never)]
    fn find_host(&self, way: u32, lower: u64) -> u32 {
        tree::walk(&self.index, &self.leaves, way, lower, lower)
    }
}

#[inline(always)]
fn upper(addr: u128) -> u64 {
    (addr >> 64) as u64
}

#[inline(always)]
fn lower(addr: u128) -> u64 {
    addr as u64
}
