//! A leaf: it tells the few intervals of a block apart by keys, whatever bits they differ in.
//!
//! A key is the *last* of the addresses before a boundary: the number of keys
//! below the address is the number of its word. A missing key is all ones, which is below no address.
//!
//! | leaf | words of 64 bits | intervals up to | keys                                    | words           |
//! |------|------------------|-----------------|-----------------------------------------|-----------------|
//! | near | 4                | 8               | 16 bits each: the next ones of the address | 16 bits: next-hop ids |
//! | far  | 8, a cache line  | 6               | all of the half                         | 32 bits: any word |
//!
//! Both have their keys first, then the words, of several in 64 bits the low one first. A near leaf has room for an eighth
//! key, which is always missing.

use std::collections::BTreeSet;

use manylane_sync::words::wide::Wide;
use manylane_sync::words::{Words, WordsMut};

use super::tree::{NEAR, NUMBER};
use crate::fib::interval::Interval;

/// Words of a near leaf; a far one has as many again.
pub const NEAR_WORDS: usize = 4;
/// Words of a far leaf.
pub const FAR_WORDS: usize = 8;
/// Intervals of a near leaf.
pub(super) const NEAR_VALUES: usize = 8;
/// The first word of a near leaf that holds values.
const NEAR_VALUES_AT: usize = 2;
/// Intervals of a far leaf.
const FAR_VALUES: usize = 6;
/// The first word of a far leaf that holds values.
const FAR_VALUES_AT: usize = FAR_VALUES - 1;

/// The first word of a leaf.
#[inline(always)]
pub(super) fn leaf_at(way: u32) -> usize {
    (way & NUMBER) as usize * NEAR_WORDS
}

/// The word of the leaf that `way` leads to for `key`, one half of an address; `left` begins with its bits that led to no
/// entry.
#[inline(always)]
pub fn in_leaf(leaves: &Words<u64>, way: u32, key: u64, left: u64) -> u32 {
    let at = leaf_at(way);
    if way & NEAR != 0 {
        return in_near(leaves, at, left);
    }
    // Once for the line: the compiler drops the check of each of its words.
    assert!(at + FAR_WORDS <= leaves.len(), "a leaf out of bounds");
    let keys = (0..FAR_VALUES_AT).map(|word| leaves.load(at + word));
    far_value(leaves, at, keys.filter(|&last| last < key).count())
}

/// As [`in_leaf`], of a near leaf, whose keys are compared at once.
#[inline(always)]
pub(super) fn in_near_wide(wide: impl Wide, leaves: &Words<u64>, way: u32, left: u64) -> u32 {
    let at = leaf_at(way);
    assert!(at + NEAR_WORDS <= leaves.len(), "a leaf out of bounds");
    near_value(leaves, at, wide.parts_below(leaves, at, near_key(left)).count_ones() as usize / 2)
}

/// As [`in_leaf`], of a far leaf, whose keys are compared at once.
#[inline(always)]
pub(super) fn in_far_wide(wide: impl Wide, leaves: &Words<u64>, way: u32, key: u64) -> u32 {
    let at = leaf_at(way);
    let below = wide.below(leaves, at, key) & ((1 << FAR_VALUES_AT) - 1);
    far_value(leaves, at, below.count_ones() as usize)
}

#[inline(always)]
fn in_near(leaves: &Words<u64>, at: usize, left: u64) -> u32 {
    assert!(at + NEAR_WORDS <= leaves.len(), "a leaf out of bounds");
    let key = near_key(left);
    // By halves, since keys ascend.
    let half = usize::from(((leaves.load(at) >> 48) as u16) < key);
    let keys = leaves.load(at + half);
    let pair = usize::from(((keys >> 16) as u16) < key);
    let one = usize::from(((keys >> (32 * pair)) as u16) < key);
    near_value(leaves, at, 4 * half + 2 * pair + one)
}

#[inline(always)]
fn near_value(leaves: &Words<u64>, at: usize, number: usize) -> u32 {
    u32::from((leaves.load(at + NEAR_VALUES_AT + number / 4) >> (16 * (number % 4))) as u16)
}

#[inline(always)]
fn far_value(leaves: &Words<u64>, at: usize, number: usize) -> u32 {
    (leaves.load(at + FAR_VALUES_AT + number / 2) >> (32 * (number % 2))) as u32
}

/// What a near leaf compares.
#[inline(always)]
pub(super) fn near_key(left: u64) -> u16 {
    (left >> 48) as u16
}

/// A leaf that tells some intervals apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    Near,
    Far,
}

impl Leaf {
    /// The smaller one that has room for `cut`, the intervals of a block of prefix length `pos`.
    pub fn of(cut: &[Interval], pos: u32) -> Option<Leaf> {
        let is_near = |interval: &Interval| (interval.first << pos) << 16 == 0;
        let is_id = |interval: &Interval| interval.owner.value <= u16::MAX.into();
        if cut.len() <= NEAR_VALUES && cut[1..].iter().all(is_near) && cut.iter().all(is_id) {
            Some(Leaf::Near)
        } else {
            (cut.len() <= FAR_VALUES).then_some(Leaf::Far)
        }
    }
}

/// A key or a value in a leaf.
pub(super) struct Field {
    /// The word of `leaves`.
    pub at: usize,
    pub shift: u32,
    pub width: u32,
}

impl Field {
    /// The key of an interval, the last address in it; the last interval has none.
    pub fn of_key(way: u32, number: usize) -> Option<Field> {
        let at = leaf_at(way);
        if way & NEAR != 0 {
            Some(Field { at: at + number / 4, shift: 16 * (number as u32 % 4), width: 16 })
        } else {
            (number < FAR_VALUES_AT).then(|| Field { at: at + number, shift: 0, width: 64 })
        }
    }

    /// The word of an interval.
    pub fn of_value(way: u32, number: usize) -> Field {
        let at = leaf_at(way);
        if way & NEAR != 0 {
            let (at, shift) = (at + NEAR_VALUES_AT + number / 4, 16 * (number as u32 % 4));
            Field { at, shift, width: 16 }
        } else {
            let (at, shift) = (at + FAR_VALUES_AT + number / 2, 32 * (number as u32 % 2));
            Field { at, shift, width: 32 }
        }
    }

    /// All ones.
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// As it is.
    pub fn get(&self, leaves: &WordsMut<u64>) -> u64 {
        leaves.load(self.at) >> self.shift & self.mask()
    }
}

/// Which half lines of `leaves` are free.
pub(super) struct HalfLines {
    /// Those below have been given out once.
    fresh: u32,
    /// How many exist: an even number.
    len: u32,
    /// Whole lines, by their first halves.
    lines: Vec<u32>,
    /// Halves whose other half is in use.
    halves: BTreeSet<u32>,
}

impl HalfLines {
    /// All of `len` are free.
    pub fn new(len: u32) -> HalfLines {
        HalfLines { fresh: 0, len, lines: Vec::new(), halves: BTreeSet::new() }
    }

    /// A half line for a near leaf, a whole one for a far leaf: the number of its first half.
    pub fn take(&mut self, leaf: Leaf) -> Option<u32> {
        if leaf == Leaf::Near
            && let Some(half) = self.halves.pop_first()
        {
            return Some(half);
        }
        let line = self.lines.pop().or_else(|| {
            let line = self.fresh;
            self.fresh += if line < self.len { 2 } else { 0 };
            (line < self.fresh).then_some(line)
        })?;
        if leaf == Leaf::Near {
            self.halves.insert(line + 1);
        }
        Some(line)
    }

    /// Makes it free.
    pub fn give_back(&mut self, leaf: Leaf, number: u32) {
        if leaf == Leaf::Far || self.halves.remove(&(number ^ 1)) {
            self.lines.push(number & !1);
        } else {
            self.halves.insert(number);
        }
    }

    /// Half lines taken.
    pub fn used(&self) -> u32 {
        self.fresh - 2 * self.lines.len() as u32 - self.halves.len() as u32
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::fib::testing::Random;

    #[test]
    fn half_lines_never_overlap_and_join_again() {
        let mut random = Random(1);
        let mut free = HalfLines::new(200);
        let mut taken: Vec<(Leaf, u32)> = Vec::new();
        let halves = |&(leaf, first): &(Leaf, u32)| first..first + 1 + u32::from(leaf == Leaf::Far);
        for _ in 0..4000 {
            if random.below(2) == 0 || taken.is_empty() {
                let leaf = if random.below(3) == 0 { Leaf::Far } else { Leaf::Near };
                let Some(first) = free.take(leaf) else { continue };
                assert!(leaf == Leaf::Near || first % 2 == 0, "a far leaf is one line");
                let is_new = |half| !taken.iter().any(|taken| halves(taken).contains(&half));
                assert!(halves(&(leaf, first)).all(|half| half < 200 && is_new(half)));
                taken.push((leaf, first));
            } else {
                let at = random.below(taken.len() as u64) as usize;
                let (leaf, first) = taken.swap_remove(at);
                free.give_back(leaf, first);
            }
            assert_eq!(free.used() as usize, taken.iter().flat_map(halves).count());
        }
        taken.drain(..).for_each(|(leaf, first)| free.give_back(leaf, first));
        assert!((0..100).all(|_| free.take(Leaf::Far).is_some()), "all halves have joined");
        assert_eq!((free.take(Leaf::Far), free.take(Leaf::Near)), (None, None));
    }
}
