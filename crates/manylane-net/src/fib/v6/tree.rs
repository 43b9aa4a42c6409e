//! What a bucket with longer routes has instead of a next hop: entries by address bits, and [`leaf`]s.
//!
//! | word                       | bits                                                             |
//! |----------------------------|------------------------------------------------------------------|
//! | [`LEAF`] and a number      | the leaf's place in `leaves`, in half lines                      |
//! | [`LEAF`] with [`NEAR`]     | a near leaf, else a far one                                      |
//! | [`INDEX`], the stride (bits 24 to 27), a number | where in `index`, in lines of 16 words, an entry for each of the next 4, 8 or 12 bits begins |
//! | [`HOST`] with one of these | continue with the lower 64 bits of the address                   |
//! | none of these              | a next-hop id                                                    |
//!
//! Strides are multiples of four, so that no entry crosses the middle of an address and none of the small ones two
//! cache lines. A block with few routes has no entry at all, and one leaf tells them apart. `plan` chooses leaf or strides.

use manylane_sync::words::{Words, WordsMut};

use super::leaf::{
    self, FAR_WORDS, Field, HalfLines, Leaf, NEAR_VALUES, NEAR_WORDS, in_leaf, leaf_at,
};
use super::plan;
use crate::fib::arena::Arena;
use crate::fib::interval::{Interval, Owner, Span};
use crate::fib::rib::Bits;

/// In a word: it leads to a leaf.
pub const LEAF: u32 = 1 << 31;
/// In a word: it leads to entries.
pub const INDEX: u32 = 1 << 30;
/// In a word: what it leads to is about the lower half.
pub const HOST: u32 = 1 << 29;
/// In a word that leads to a leaf: a near one.
pub const NEAR: u32 = 1 << 28;
/// Any of the first two.
pub const NODE: u32 = LEAF | INDEX;

/// Entries of the shortest stride: a cache line.
pub const INDEX_WORDS: usize = 16;
const NUMBER_BITS: u32 = 24;
/// The number's bits.
pub(super) const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

/// How many address bits the entries that `way` leads to take; 0 when it leads to none.
#[inline(always)]
pub fn stride(way: u32) -> u32 {
    way >> NUMBER_BITS & 15
}

/// The word of `index` that `way`, which leads to entries, leads to for the first bits of `key`.
#[inline(always)]
pub fn entry_at(way: u32, key: u64) -> usize {
    // In two steps, the second of 63 - stride: a stride of 0 would be one of 64.
    index_at(way) + (key >> 1 >> (63 ^ stride(way))) as usize
}

/// 1 when `way` leads to entries of this half, else 0.
#[inline(always)]
pub(super) fn is_index(way: u32) -> usize {
    (way >> 30 & !(way >> 29) & 1) as usize
}

/// 1 when `way` leads to a leaf of this half, else 0.
#[inline(always)]
pub(super) fn is_leaf(way: u32) -> usize {
    (way >> 31 & !(way >> 29) & 1) as usize
}

/// The first of the entries.
#[inline(always)]
pub(super) fn index_at(way: u32) -> usize {
    (way & NUMBER) as usize * INDEX_WORDS
}

/// All the way through one half of an address: `left` begins with the bits not yet used of `key`.
/// What comes back may be a `HOST` word.
#[inline(always)]
pub fn walk(index: &Words<u32>, leaves: &Words<u64>, way: u32, key: u64, mut left: u64) -> u32 {
    let mut way = way & !HOST;
    // Bounded: each stride takes at least four of at most 64 bits.
    while way & (INDEX | HOST) == INDEX {
        let stride = stride(way);
        // As `entry_at`, of a stride that is not 0: a shift by 64 - stride.
        way = index.load(index_at(way) + (left >> (stride.wrapping_neg() & 63)) as usize);
        left <<= stride;
    }
    if way & (LEAF | HOST) == LEAF { in_leaf(leaves, way, key, left) } else { way }
}

/// The writer's side of all entries and leaves.
pub(super) struct Trees {
    index: WordsMut<u32>,
    leaves: WordsMut<u64>,
    index_free: Arena,
    leaves_free: HalfLines,
    /// By word of `index`: the owner's depth (`Owner`), 0 for what is no next hop.
    index_depths: Vec<u8>,
    /// The owners by leaf and interval.
    leaf_depths: Vec<[u8; NEAR_VALUES]>,
    /// By the first line of entries.
    shapes: Vec<Shape>,
}

/// What the writer knows of entries.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    /// Routes, and lower halves, that are longer than what leads here.
    pub routes: u32,
    /// How many boundaries may be added or removed until the strides are chosen anew.
    pub edits_left: u32,
}

/// A table has no room, and what was wanted of it.
#[derive(Debug)]
pub(super) struct NoRoom {
    pub table: &'static str,
    pub words: usize,
    pub wanted: usize,
}

/// Where a value lies.
enum Place {
    Entry(usize),
    Leaf { way: u32, number: usize },
}

impl Trees {
    pub fn new(index: WordsMut<u32>, leaves: WordsMut<u64>) -> Trees {
        let (lines, half_lines) = (index.len() / INDEX_WORDS, leaves.len() / FAR_WORDS * 2);
        assert!(lines.max(half_lines) <= 1 << NUMBER_BITS, "a number has {NUMBER_BITS} bits");
        Trees {
            index_free: Arena::new(lines),
            leaves_free: HalfLines::new(half_lines as u32),
            index_depths: vec![0; index.len()],
            leaf_depths: vec![[0; NEAR_VALUES]; half_lines],
            shapes: vec![Shape::default(); lines],
            index,
            leaves,
        }
    }

    /// The readers' side.
    pub fn reader(&self) -> (Words<u32>, Words<u64>) {
        (self.index.reader(), self.leaves.reader())
    }

    /// Words in use or waiting, of `index` and of `leaves`.
    pub fn words_used(&self) -> (usize, usize) {
        let half_lines = self.leaves_free.used() as usize;
        (self.index_free.used() as usize * INDEX_WORDS, half_lines * NEAR_WORDS)
    }

    /// Writes the structure for `cut`, the intervals of a block of prefix length `pos`, which no reader can find yet.
    /// `spans` are those that made the cut. Returns the word that leads there, and its owner's depth.
    pub fn build(&mut self, cut: &[Interval], spans: &[Span], pos: u32) -> Result<Owner, NoRoom> {
        let mut taken = Vec::new();
        self.build_block(cut, spans, pos, &mut taken).inspect_err(|_| {
            for way in taken {
                self.give_back_one(way);
            }
        })
    }

    fn build_block(
        &mut self,
        cut: &[Interval],
        spans: &[Span],
        pos: u32,
        taken: &mut Vec<u32>,
    ) -> Result<Owner, NoRoom> {
        if cut.len() == 1 {
            return Ok(cut[0].owner);
        }
        if let Some(leaf) = Leaf::of(cut, pos) {
            let way = self.take_leaf(leaf)?;
            taken.push(way);
            self.write_leaf(way, cut, pos);
            return Ok(Owner { value: way, depth: 0 });
        }
        let stride = plan::stride(cut, pos);
        let way = self.take_index(stride)?;
        taken.push(way);
        let first = index_at(way);
        self.shapes[(way & NUMBER) as usize] = Shape {
            routes: spans.len() as u32,
            edits_left: 2 * spans.len() as u32 + plan::EDITS_MIN,
        };
        // Entries between two blocks with boundaries are their last interval's.
        let mut filled = 0;
        let mut before = cut[0].owner;
        for (number, inner) in plan::blocks(cut, pos, stride) {
            self.fill(first + filled..first + number, before);
            let inside = plan::longer(spans, inner[inner.len() - 1].first, pos + stride);
            let owner = self.build_block(inner, inside, pos + stride, taken)?;
            self.fill(first + number..first + number + 1, owner);
            filled = number + 1;
            before = inner[inner.len() - 1].owner;
        }
        self.fill(first + filled..first + (1 << stride), before);
        Ok(Owner { value: way, depth: 0 })
    }

    fn fill(&mut self, words: std::ops::Range<usize>, owner: Owner) {
        for at in words {
            self.index.store(at, owner.value);
            self.index_depths[at] = owner.depth;
        }
    }

    /// Makes free what `way` leads to, that no reader can be in. Not what a leaf or an entry leads to
    /// in the lower half: that has an owner of its own.
    pub fn give_back(&mut self, way: u32) {
        if way & INDEX != 0 {
            for at in index_at(way)..index_at(way) + (1 << stride(way)) {
                let inner = self.index.load(at);
                if inner & NODE != 0 && inner & HOST == 0 {
                    self.give_back(inner);
                }
            }
        }
        self.give_back_one(way);
    }

    /// Gives every value in `first..=last` that no longer route owns to `owner`, also in the lower
    /// halves. `way` leads to the block of prefix length `pos` that begins with `begin`; the range is
    /// one prefix, whose boundaries are there.
    pub fn paint(
        &mut self,
        way: u32,
        (begin, pos): (u64, u32),
        (first, last): (u64, u64),
        depth_max: u8,
        owner: Owner,
    ) {
        if way & HOST != 0 {
            return self.paint(way & !HOST, (0, 0), (0, u64::MAX), depth_max, owner);
        }
        if way & LEAF != 0 {
            return self.paint_leaf(way, (begin, pos), (first, last), depth_max, owner);
        }
        let below = 64 - pos - stride(way);
        let end = (1u64 << stride(way)) - 1;
        let from = first.saturating_sub(begin) >> below;
        let to = (last.saturating_sub(begin) >> below).min(end);
        for number in from..=to {
            let at = index_at(way) + number as usize;
            let word = self.index.load(at);
            if word & NODE != 0 {
                let block = (begin + (number << below), 64 - below);
                self.paint(word, block, (first, last), depth_max, owner);
            } else if self.index_depths[at] <= depth_max {
                self.publish(&Place::Entry(at), owner);
            }
        }
    }

    fn paint_leaf(
        &mut self,
        way: u32,
        block: (u64, u32),
        (first, last): (u64, u64),
        depth_max: u8,
        owner: Owner,
    ) {
        let mut start = block.0;
        for number in 0..NEAR_VALUES {
            if (first..=last).contains(&start) {
                let word = self.leaf_value(way, number);
                if word & NODE != 0 {
                    self.paint(word, (0, 0), (0, u64::MAX), depth_max, owner);
                } else if self.leaf_depths[(way & NUMBER) as usize][number] <= depth_max {
                    self.publish(&Place::Leaf { way, number }, owner);
                }
            }
            match self.leaf_key(way, number, block) {
                Some(key) => start = key + 1,
                None => return,
            }
        }
    }

    /// The last address of an interval, in the leaf of a block; `None` for the last interval.
    fn leaf_key(&self, way: u32, number: usize, (begin, pos): (u64, u32)) -> Option<u64> {
        let field = Field::of_key(way, number)?;
        let key = field.get(&self.leaves);
        if key == field.mask() {
            return None;
        }
        if way & NEAR == 0 {
            return Some(key);
        }
        let others = u64::MAX.checked_shr(pos + field.width).unwrap_or(0);
        Some(begin | key << (64 - field.width) >> pos | others)
    }

    /// Overwrites the value for `key` in the block of prefix length `pos` that `way` leads to.
    pub fn set(&mut self, way: u32, key: u64, pos: u32, owner: Owner) {
        let (mut way, mut pos, mut at) = (way, pos, 0);
        while way & (INDEX | HOST) == INDEX {
            at = entry_at(way, key << pos);
            pos += stride(way);
            way = self.index.load(at);
        }
        if way & (LEAF | HOST) != LEAF {
            return self.publish(&Place::Entry(at), owner);
        }
        let block = (key.first(pos as u8), pos);
        let keys = (0..NEAR_VALUES).map_while(|number| self.leaf_key(way, number, block));
        let number = keys.take_while(|&last| last < key).count();
        self.publish(&Place::Leaf { way, number }, owner);
    }

    /// The entry of `way` for `left`, as [`entry_at`] says: where it is, and its word.
    pub fn entry(&self, way: u32, left: u64) -> (usize, u32) {
        let at = entry_at(way, left);
        (at, self.index.load(at))
    }

    /// Overwrites an entry.
    pub fn set_entry(&mut self, at: usize, owner: Owner) {
        self.publish(&Place::Entry(at), owner);
    }

    /// What is known of the entries that `way` leads to.
    pub fn shape(&mut self, way: u32) -> &mut Shape {
        &mut self.shapes[(way & NUMBER) as usize]
    }

    fn publish(&mut self, place: &Place, owner: Owner) {
        match *place {
            Place::Entry(at) => {
                self.index_depths[at] = owner.depth;
                self.index.publish(at, owner.value);
            }
            Place::Leaf { way, number } => {
                let field = Field::of_value(way, number);
                let others = self.leaves.load(field.at) & !(field.mask() << field.shift);
                self.leaf_depths[(way & NUMBER) as usize][number] = owner.depth;
                self.leaves.publish(field.at, others | u64::from(owner.value) << field.shift);
            }
        }
    }

    fn leaf_value(&self, way: u32, number: usize) -> u32 {
        Field::of_value(way, number).get(&self.leaves) as u32
    }

    fn write_leaf(&mut self, way: u32, cut: &[Interval], pos: u32) {
        let at = leaf_at(way);
        let mut words = [0; FAR_WORDS];
        let mut put = |field: Field, value: u64| words[field.at - at] |= value << field.shift;
        for number in 0..NEAR_VALUES {
            if let Some(field) = Field::of_key(way, number) {
                let key = cut.get(number + 1).map_or(field.mask(), |next| match next.first - 1 {
                    last if way & NEAR != 0 => leaf::near_key(last << pos).into(),
                    last => last,
                });
                put(field, key);
            }
        }
        for (number, interval) in cut.iter().enumerate() {
            put(Field::of_value(way, number), interval.owner.value.into());
        }
        let len = if way & NEAR != 0 { NEAR_WORDS } else { FAR_WORDS };
        (at..).zip(&words[..len]).for_each(|(at, &word)| self.leaves.store(at, word));
        for (depth, interval) in self.leaf_depths[(way & NUMBER) as usize].iter_mut().zip(cut) {
            *depth = interval.owner.depth;
        }
    }

    fn take_leaf(&mut self, leaf: Leaf) -> Result<u32, NoRoom> {
        let (wanted, kind) = match leaf {
            Leaf::Near => (NEAR_WORDS, NEAR),
            Leaf::Far => (FAR_WORDS, 0),
        };
        let number = self.leaves_free.take(leaf);
        let number = number.ok_or(NoRoom { table: "leaves", words: self.leaves.len(), wanted })?;
        Ok(LEAF | kind | number)
    }

    fn take_index(&mut self, stride: u32) -> Result<u32, NoRoom> {
        let (words, wanted) = (self.index.len(), 1 << stride);
        let line = self.index_free.take((wanted / INDEX_WORDS) as u32);
        let line = line.ok_or(NoRoom { table: "index", words, wanted })?;
        Ok(INDEX | stride << NUMBER_BITS | line)
    }

    fn give_back_one(&mut self, way: u32) {
        if way & LEAF != 0 {
            let leaf = if way & NEAR != 0 { Leaf::Near } else { Leaf::Far };
            self.leaves_free.give_back(leaf, way & NUMBER);
        } else {
            let lines = (1usize << stride(way)) / INDEX_WORDS;
            self.index_free.give_back(way & NUMBER, lines as u32);
        }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::fib::testing::Random;

    /// Every number of intervals around a leaf's, and more; boundaries at both ends of the range, all
    /// over it, close together, and where the keys of a near leaf have them.
    #[test]
    fn what_was_built_finds_every_interval() {
        let mut random = Random(7);
        let mut trees = Trees::new(WordsMut::zeroed(16 << 12), WordsMut::zeroed(8 << 12));
        let places: [fn(u64) -> u64; 4] =
            [|bits| bits, |bits| bits >> 44, |bits| bits & 0xffff << 48, |bits| bits & 15 << 60];
        for (intervals, place) in
            (2..40).chain([500, 3000]).flat_map(|n| places.map(|place| (n, place)))
        {
            let mut firsts: Vec<u64> = (1..intervals).map(|_| place(random.next())).collect();
            firsts.extend([0, place(u64::MAX)]);
            firsts.sort_unstable();
            firsts.dedup();
            let cut: Vec<Interval> = (1..)
                .zip(&firsts)
                .map(|(value, &first)| Interval { first, owner: Owner { value, depth: 1 } })
                .collect();
            let way = trees.build(&cut, &[], 0).expect("there is room").value;
            let (index, leaves) = trees.reader();
            for (number, interval) in cut.iter().enumerate() {
                let last = cut.get(number + 1).map_or(u64::MAX, |next| next.first - 1);
                for key in [interval.first, last] {
                    assert_eq!(walk(&index, &leaves, way, key, key), interval.owner.value);
                }
            }
            trees.give_back(way);
            assert_eq!(trees.words_used(), (0, 0));
        }
    }

    #[test]
    fn a_build_without_room_takes_nothing() {
        let mut trees = Trees::new(WordsMut::zeroed(16), WordsMut::zeroed(16));
        let owner = Owner { value: 1, depth: 1 };
        let cut: Vec<Interval> =
            (0..64).map(|number| Interval { first: number << 58, owner }).collect();
        let refused = trees.build(&cut, &[], 0).expect_err("it needs more");
        assert_eq!((refused.table, refused.wanted), ("index", 256));
        assert_eq!(trees.words_used(), (0, 0));
        // Four neighbours in each of four blocks: a line of entries, and a leaf for each block.
        let first = |number: u64| (number / 4) << 60 | (number % 4);
        let cut: Vec<Interval> =
            (0..16).map(|number| Interval { first: first(number), owner }).collect();
        let refused = trees.build(&cut, &[], 0).expect_err("it needs more");
        assert_eq!((refused.table, refused.wanted), ("leaves", 8));
        assert_eq!(trees.words_used(), (0, 0));
        trees.build(&cut[..8], &[], 0).expect("two leaves are there");
    }
}
