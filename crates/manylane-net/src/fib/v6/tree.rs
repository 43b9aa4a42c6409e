//! A search tree over elementary intervals, packed in cache lines of eight words.
//!
//! | line  | word 0                  | words 1 to 4   | words 5 to 7                           |
//! |-------|-------------------------|----------------|----------------------------------------|
//! | inner | line of the first child | keys           | keys (7 in all; the children are 8)    |
//! | leaf  | key                     | keys (5 in all)| 6 values of 32 bits, the low half first|
//!
//! A key is the *last* of the addresses before a boundary. The child, or the value, for an address
//! is the one whose number is the count of keys below the address: comparisons and a sum, no branch.
//! A missing key is `u64::MAX`, which is below no address. The children of a line are neighbours; one
//! such family, up to 8 lines, is all that has to be in one piece.
//!
//! A tree of up to 6 intervals is one line, up to 48 two, up to 384 three.
//!
//! A *word of the way* is what leads on, in `direct` and among a leaf's values: a next-hop id, or
//! [`TREE`], the inner levels (3 bits) and the root's line (28 bits).

use manylane_sync::words::{Words, WordsMut};

use crate::fib::arena::Arena;
use crate::fib::interval::{Interval, Owner};

/// In a word of the way: there is a tree.
pub const TREE: u32 = 1 << 31;

/// Words of a line.
pub const LINE_WORDS: usize = 8;

/// The most inner levels of a tree: 12 million intervals.
pub const LEVELS_MAX: u32 = 7;

const LEVEL: u32 = 1 << 28;
const LINE: u32 = LEVEL - 1;

/// Children of an inner line.
const CHILDREN: usize = 8;
/// Values of a leaf.
const VALUES: usize = 6;
/// The first word of a leaf that holds values.
const VALUES_AT: usize = VALUES - 1;

/// The first word of the line that `way`, which leads to a tree, leads to.
#[inline(always)]
pub fn line_at(way: u32) -> usize {
    (way & LINE) as usize * LINE_WORDS
}

/// Whether `way`, which leads to a tree, leads to a leaf of it.
#[inline(always)]
pub fn is_leaf(way: u32) -> bool {
    way & !TREE < LEVEL
}

/// The way on from an inner line to `child`.
#[inline(always)]
fn one_level_down(way: u32, child: u32) -> u32 {
    ((way & !LINE) - LEVEL) | child
}

/// One line further on the way to `key`: from an inner line to a child, from a leaf to its value.
#[inline(always)]
pub fn step(nodes: &Words<u64>, way: u32, key: u64) -> u32 {
    let at = line_at(way);
    // Once for the line: the compiler drops the check of each of its words.
    assert!(at + LINE_WORDS <= nodes.len(), "a line out of bounds");
    if is_leaf(way) {
        let number = below(nodes, at..at + VALUES_AT, key);
        (nodes.load(at + VALUES_AT + number / 2) >> (32 * (number % 2))) as u32
    } else {
        let child = nodes.load(at) as u32 + below(nodes, at + 1..at + CHILDREN, key) as u32;
        one_level_down(way, child)
    }
}

/// All lines of the tree that `way` leads to: the value at `key`, which may lead to another tree.
#[inline(always)]
pub fn walk(nodes: &Words<u64>, mut way: u32, key: u64) -> u32 {
    // Bounded: `LEVELS_MAX` inner lines and the leaf.
    for _ in 0..=(way & !TREE) / LEVEL {
        way = step(nodes, way, key);
    }
    way
}

/// How many of the keys in `words` are below `key`.
#[inline(always)]
fn below(nodes: &Words<u64>, words: std::ops::Range<usize>, key: u64) -> usize {
    words.map(|word| usize::from(nodes.load(word) < key)).sum()
}

/// The writer's side of all trees.
pub(super) struct Trees {
    nodes: WordsMut<u64>,
    /// As readers see it.
    view: Words<u64>,
    free: Arena,
    /// By line and value: the owner's depth (`Owner`), 0 for a value that leads to a tree.
    depths: Vec<[u8; VALUES]>,
}

/// Where a value lies, and the last key that it is for.
struct Place {
    line: usize,
    number: usize,
    last: u64,
}

impl Trees {
    /// No trees, in `nodes`.
    pub fn new(nodes: WordsMut<u64>) -> Trees {
        let lines = nodes.len() / LINE_WORDS;
        assert!(lines <= 1 << 28, "a line's number has 28 bits");
        Trees {
            view: nodes.reader(),
            free: Arena::new(lines),
            depths: vec![[0; VALUES]; lines],
            nodes,
        }
    }

    /// The readers' side.
    pub fn reader(&self) -> Words<u64> {
        self.view.clone()
    }

    /// Lines in use or waiting.
    pub fn lines_used(&self) -> usize {
        self.free.used() as usize
    }

    /// Lines in all.
    pub fn lines_len(&self) -> usize {
        self.free.len() as usize
    }

    /// Writes the tree of `cut`, that nobody can find yet. On an error says how many lines it needs.
    pub fn build(&mut self, cut: &[Interval]) -> Result<u32, usize> {
        let mut families = Vec::new();
        let way = self.build_families(cut, &mut families);
        way.ok_or_else(|| {
            for (first, lines) in families {
                self.free.give_back(first, lines);
            }
            lines_needed(cut.len())
        })
    }

    /// Level by level from the leaves up. Adds what it took to `families`.
    fn build_families(&mut self, cut: &[Interval], families: &mut Vec<(u32, u32)>) -> Option<u32> {
        let mut lines = cut.len().div_ceil(VALUES);
        let mut children: Vec<u32> = Vec::new(); // The families of the level below.
        for level in 0..=LEVELS_MAX {
            let mut family = 0;
            let mut firsts = Vec::with_capacity(lines.div_ceil(CHILDREN));
            for number in 0..lines {
                if number % CHILDREN == 0 {
                    let len = CHILDREN.min(lines - number) as u32;
                    family = self.free.take(len)?;
                    families.push((family, len));
                    firsts.push(family);
                }
                let line = family as usize + number % CHILDREN;
                if level == 0 {
                    self.write_leaf(line, &cut[number * VALUES..]);
                } else {
                    // From the first interval of a child to the first of the next.
                    let stride = VALUES * CHILDREN.pow(level - 1);
                    let parts = cut[number * CHILDREN * stride..].iter().step_by(stride);
                    let at = line * LINE_WORDS;
                    self.nodes.store(at, children[number].into());
                    self.write_keys(at + 1..at + CHILDREN, parts.take(CHILDREN));
                }
            }
            if lines == 1 {
                return Some(TREE | (level * LEVEL) | family);
            }
            lines = firsts.len();
            children = firsts;
        }
        None
    }

    /// Makes the lines of a tree free, that no reader can be in.
    pub fn give_back(&mut self, way: u32) {
        self.give_back_below(way);
        self.free.give_back(way & LINE, 1);
    }

    fn give_back_below(&mut self, way: u32) {
        if is_leaf(way) {
            return;
        }
        let at = line_at(way);
        let family = self.nodes.load(at) as u32;
        let keys = (at + 1..at + CHILDREN).take_while(|&at| self.nodes.load(at) != u64::MAX);
        let len = 1 + keys.count() as u32;
        for child in family..family + len {
            self.give_back_below(one_level_down(way, child));
        }
        self.free.give_back(family, len);
    }

    /// Gives every value in `first..=last` that no longer route owns to `owner`, also in the trees
    /// below. `first` and `last + 1` are boundaries of the tree, or outside of what it is for.
    pub fn paint(&mut self, way: u32, (first, last): (u64, u64), depth_max: u8, owner: Owner) {
        let mut key = first;
        loop {
            let place = self.place(way, key);
            let value = self.value(&place);
            if value & TREE != 0 {
                self.paint(value, (0, u64::MAX), depth_max, owner);
            } else if self.depths[place.line][place.number] <= depth_max {
                self.set_value(&place, owner);
            }
            if place.last >= last {
                return;
            }
            key = place.last + 1;
        }
    }

    /// Overwrites the value at `key`.
    pub fn set(&mut self, way: u32, key: u64, owner: Owner) {
        let place = self.place(way, key);
        self.set_value(&place, owner);
    }

    fn place(&self, mut way: u32, key: u64) -> Place {
        let mut last = u64::MAX;
        loop {
            let at = line_at(way);
            let keys = if is_leaf(way) { at..at + VALUES_AT } else { at + 1..at + CHILDREN };
            let number = below(&self.view, keys.clone(), key);
            // The next key; the least of them all, as a line may have none left.
            if let Some(next) = keys.clone().nth(number) {
                last = last.min(self.nodes.load(next));
            }
            if is_leaf(way) {
                return Place { line: at / LINE_WORDS, number, last };
            }
            way = step(&self.view, way, key);
        }
    }

    fn value(&self, place: &Place) -> u32 {
        let word = self.nodes.load(place.line * LINE_WORDS + VALUES_AT + place.number / 2);
        (word >> (32 * (place.number % 2))) as u32
    }

    fn set_value(&mut self, place: &Place, owner: Owner) {
        let at = place.line * LINE_WORDS + VALUES_AT + place.number / 2;
        let shift = 32 * (place.number % 2);
        let others = self.nodes.load(at) & !(u64::from(u32::MAX) << shift);
        self.depths[place.line][place.number] = owner.depth;
        self.nodes.publish(at, others | u64::from(owner.value) << shift);
    }

    /// Writes a leaf of the first intervals in `cut`.
    fn write_leaf(&mut self, line: usize, cut: &[Interval]) {
        let cut = &cut[..cut.len().min(VALUES)];
        let at = line * LINE_WORDS;
        self.write_keys(at..at + VALUES_AT, cut.iter());
        for pair in 0..VALUES / 2 {
            let value = |number: usize| cut.get(number).map_or(0, |i| u64::from(i.owner.value));
            let word = value(2 * pair) | value(2 * pair + 1) << 32;
            self.nodes.store(at + VALUES_AT + pair, word);
        }
        for (depth, interval) in self.depths[line].iter_mut().zip(cut) {
            *depth = interval.owner.depth;
        }
    }

    /// Writes the keys between `parts`: one before each but the first.
    fn write_keys<'a>(
        &mut self,
        words: std::ops::Range<usize>,
        parts: impl Iterator<Item = &'a Interval>,
    ) {
        let keys = parts.skip(1).map(|part| part.first - 1);
        for (word, key) in words.zip(keys.chain(std::iter::repeat(u64::MAX))) {
            self.nodes.store(word, key);
        }
    }
}

fn lines_needed(intervals: usize) -> usize {
    let (mut lines, mut all) = (intervals.div_ceil(VALUES), 0);
    while lines > 1 {
        all += lines;
        lines = lines.div_ceil(CHILDREN);
    }
    all + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::testing::Random;

    /// Each number of lines and levels, one more and one less, with keys at both ends of the range.
    #[test]
    fn a_tree_of_any_size_finds_every_interval() {
        let mut random = Random(7);
        let mut trees = Trees::new(WordsMut::zeroed(8 * 4096));
        for intervals in (2..60).chain([383, 384, 385, 3071, 3072, 3073, 5000]) {
            let mut firsts: Vec<u64> = (1..intervals - 1).map(|_| random.next()).collect();
            firsts.extend([0, u64::MAX]);
            firsts.sort_unstable();
            firsts.dedup();
            let cut: Vec<Interval> = (1..)
                .zip(&firsts)
                .map(|(value, &first)| Interval { first, owner: Owner { value, depth: 1 } })
                .collect();
            let way = trees.build(&cut).expect("there is room");
            assert_eq!(trees.lines_used(), lines_needed(cut.len()));
            for (number, interval) in cut.iter().enumerate() {
                let value = interval.owner.value;
                assert_eq!(walk(&trees.view, way, interval.first), value, "{intervals}");
                let last = cut.get(number + 1).map_or(u64::MAX, |next| next.first - 1);
                assert_eq!(walk(&trees.view, way, last), value, "{intervals}");
                let place = trees.place(way, interval.first);
                assert_eq!((trees.value(&place), place.last), (value, last), "{intervals}");
            }
            trees.give_back(way);
            assert_eq!(trees.lines_used(), 0);
        }
    }

    #[test]
    fn a_typical_bucket_is_seven_lines_in_two_levels() {
        let mut trees = Trees::new(WordsMut::zeroed(8 * 16));
        let owner = Owner { value: 1, depth: 1 };
        let cut: Vec<Interval> =
            (0..32).map(|number| Interval { first: number * 100, owner }).collect();
        let way = trees.build(&cut).expect("there is room");
        assert_eq!((way & !TREE) / LEVEL, 1);
        assert_eq!(trees.lines_used(), 7);
        assert_eq!(trees.build(&cut[..10]).ok().map(|way| (way & !TREE) / LEVEL), Some(1));
        assert_eq!(trees.build(&cut), Err(7), "16 lines have no room for another");
    }
}
