//! The IPv6 table: one word for each bucket, and a small search tree where there is more to say.
//!
//! | table    | word                                                                           |
//! |----------|--------------------------------------------------------------------------------|
//! | `direct` | by bucket ([`bucket`]): a word of the way                                      |
//! | `nodes`  | trees, in lines of eight words ([`tree`])                                      |
//!
//! A word of the way is a next-hop id or leads to a tree over the upper 64 bits of the address. A
//! value there is a word of the way again: where routes are longer than /64 it leads to a tree over
//! the lower 64 bits. That is the end: a lookup is `direct`, a tree, and rarely a second one.
//!
//! A bucket is a /24 in 2000::/3, where the Internet is, and a /16 elsewhere. In the Internet's table
//! of 160,147 routes, 7,224 buckets have a tree, on average over 31 boundaries: 7 lines, of which a
//! lookup touches two.

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::{Words, WordsMut};

use super::NextHop;
use tree::{LINE_WORDS, TREE, line_at, step, walk};

pub mod tree;
mod writer;

#[cfg(test)]
mod tests;

pub use writer::Ipv6Writer;

/// Buckets in 2000::/3.
const BUCKETS_GLOBAL: usize = 1 << 21;

/// Entries of `direct`. (2000::/3 has /16s too, which nobody looks up.)
pub const DIRECT: usize = BUCKETS_GLOBAL + (1 << 16);

/// The bucket of the upper half of an address.
#[inline(always)]
pub fn bucket(upper: u64) -> usize {
    if is_global(upper) {
        upper as usize >> 40 & (BUCKETS_GLOBAL - 1)
    } else {
        BUCKETS_GLOBAL + (upper >> 48) as usize
    }
}

/// The prefix length of that bucket.
fn bucket_len(upper: u64) -> u8 {
    if is_global(upper) { 24 } else { 16 }
}

/// In 2000::/3.
#[inline(always)]
fn is_global(upper: u64) -> bool {
    upper >> 61 == 1
}

/// How many words each table of an [`Ipv6Tables`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Sizes {
    /// [`DIRECT`], always.
    pub direct: usize,
    /// Trees, eight words a line.
    pub nodes: usize,
}

impl Ipv6Sizes {
    /// Sizes that hold `routes` routes, wherever they lie, and what waits for a grace period after a
    /// change. The Internet's table needs a quarter of that.
    pub fn for_routes(routes: usize) -> Ipv6Sizes {
        // Two boundaries and a third of a line for each route, where they are close. A lone /128 has
        // two lines: its bucket's tree and its /64's. The rest is for the copies that wait.
        let lines = 2 * routes + 32_768;
        Ipv6Sizes { direct: DIRECT, nodes: lines * LINE_WORDS }
    }

    /// Both tables together.
    pub fn bytes(self) -> usize {
        self.direct * 4 + self.nodes * 8
    }
}

/// The memory of the table, handed in by the caller; all words are 0.
pub struct Ipv6Tables {
    /// Next hops or trees of buckets.
    pub direct: WordsMut<u32>,
    /// The trees. Begins on a cache line, or each of its lines lies on two.
    pub nodes: WordsMut<u64>,
}

impl Ipv6Tables {
    /// Tables in boxes.
    pub fn zeroed(sizes: Ipv6Sizes) -> Ipv6Tables {
        Ipv6Tables { direct: WordsMut::zeroed(sizes.direct), nodes: WordsMut::zeroed(sizes.nodes) }
    }
}

/// The readers' side of the IPv6 table.
#[derive(Clone)]
pub struct Ipv6Fib {
    direct: Words<u32>,
    nodes: Words<u64>,
}

impl Ipv6Fib {
    /// Asks for the word that a lookup reads first.
    #[inline(always)]
    pub fn prefetch(&self, addr: u128) {
        self.direct.prefetch(bucket(upper(addr)));
    }

    /// Reads that word and asks for the line that a lookup reads next, if there is one.
    #[inline(always)]
    pub fn prefetch_bucket(&self, addr: u128) {
        let way = self.direct.load(bucket(upper(addr)));
        if way & TREE != 0 {
            self.nodes.prefetch(line_at(way));
        }
    }

    /// The next hop of the longest prefix that contains `addr`; raw 0 when there is none.
    #[inline]
    pub fn lookup<'g>(&self, guard: Guard<'g>, addr: u128) -> Index<'g, NextHop> {
        let mut way = self.direct.load(bucket(upper(addr)));
        if way & TREE != 0 {
            way = walk(&self.nodes, way, upper(addr));
        }
        if way & TREE != 0 {
            way = walk(&self.nodes, way, lower(addr));
        }
        Index::new(guard, way)
    }

    /// The raw ids of many addresses at once. They go one line at a time, all of them, so that the
    /// memory of each is asked for one round before it is read.
    ///
    /// # Panics
    ///
    /// When `ids` is not as long as `addrs`.
    pub fn lookup_batch(&self, guard: Guard<'_>, addrs: &[u128], ids: &mut [u16]) {
        let _ = guard;
        assert_eq!(addrs.len(), ids.len(), "each address needs a place for its id");
        for (addrs, ids) in addrs.chunks(super::STAGE).zip(ids.chunks_mut(super::STAGE)) {
            self.lookup_stage(addrs, ids);
        }
    }

    fn lookup_stage(&self, addrs: &[u128], ids: &mut [u16]) {
        addrs.iter().for_each(|&addr| self.prefetch(addr));
        // Who is still on the way: place in the batch, word of the way, half that the tree is over.
        let mut on_the_way = [(0u8, 0u32, 0u64); super::STAGE];
        let mut left = 0;
        for (place, (&addr, id)) in addrs.iter().zip(&mut *ids).enumerate() {
            let way = self.direct.load(bucket(upper(addr)));
            if way & TREE == 0 {
                *id = way as u16;
            } else {
                self.nodes.prefetch(line_at(way));
                on_the_way[left] = (place as u8, way, upper(addr));
                left += 1;
            }
        }
        // Bounded: a round is a line of a tree, and there are two trees of `LEVELS_MAX` + 1 lines.
        while left > 0 {
            let mut kept = 0;
            for walker in 0..left {
                let (place, way, half) = on_the_way[walker];
                let next = step(&self.nodes, way, half);
                if next & TREE == 0 {
                    ids[usize::from(place)] = next as u16;
                    continue;
                }
                self.nodes.prefetch(line_at(next));
                // Out of a leaf into a tree: that one is over the lower half.
                let half = if tree::is_leaf(way) { lower(addrs[usize::from(place)]) } else { half };
                on_the_way[kept] = (place, next, half);
                kept += 1;
            }
            left = kept;
        }
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
