//! Which part of a table is free: an allocator that keeps its books outside the table.
//!
//! Best fit, joining neighbours (Knuth, TAOCP 1, §2.5): a piece has exactly the requested length, and an empty arena is
//! whole again whatever happened before. Large pieces come from the end of a free one, small ones from its beginning,
//! so that long-lived small pieces do not cut up the room for large ones: with a buddy system, which has no such sides,
//! a fifth of a table was once enough to fill it.

use std::collections::{BTreeMap, BTreeSet};

/// The free pieces of `len` units.
pub(crate) struct Arena {
    used: u32,
    /// Free pieces: first unit and length. No two of them touch.
    by_first: BTreeMap<u32, u32>,
    /// The free pieces again, by length and first unit.
    by_len: BTreeSet<(u32, u32)>,
}

/// From this length on a piece is large.
const LARGE: u32 = 8;

impl Arena {
    /// An arena of `len` free units.
    pub fn new(len: usize) -> Arena {
        let len = u32::try_from(len).expect("a table's offsets are 32 bits");
        let mut arena = Arena { used: len, by_first: BTreeMap::new(), by_len: BTreeSet::new() };
        arena.give_back(0, len);
        arena
    }

    /// The first of `len` free units; `None` without such a piece.
    pub fn take(&mut self, len: u32) -> Option<u32> {
        let &(piece_len, piece) = self.by_len.range((len, 0)..).next()?;
        self.forget(piece, piece_len);
        let rest = piece_len - len;
        let (first, rest_first) =
            if len >= LARGE { (piece + rest, piece) } else { (piece, piece + len) };
        if rest > 0 {
            self.note(rest_first, rest);
        }
        self.used += len;
        Some(first)
    }

    /// Makes `len` units from `first` free.
    pub fn give_back(&mut self, mut first: u32, mut len: u32) {
        if len == 0 {
            return;
        }
        self.used -= len;
        if let Some((&before, &before_len)) = self.by_first.range(..first).next_back()
            && before + before_len >= first
        {
            debug_assert_eq!(before + before_len, first, "given back twice");
            self.forget(before, before_len);
            (first, len) = (before, before_len + len);
        }
        if let Some(&after_len) = self.by_first.get(&(first + len)) {
            self.forget(first + len, after_len);
            len += after_len;
        }
        self.note(first, len);
    }

    /// The units taken.
    pub fn used(&self) -> u32 {
        self.used
    }

    fn note(&mut self, first: u32, len: u32) {
        self.by_first.insert(first, len);
        self.by_len.insert((len, first));
    }

    fn forget(&mut self, first: u32, len: u32) {
        self.by_first.remove(&first);
        self.by_len.remove(&(len, first));
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::fib::testing::Random;

    #[test]
    fn pieces_never_overlap_and_join_again() {
        let mut random = Random(1);
        let mut arena = Arena::new(1000);
        let mut owner = vec![0; 1000];
        let mut pieces: Vec<(u32, u32)> = Vec::new();
        for round in 1..4000 {
            if random.below(2) == 0 || pieces.is_empty() {
                let len = 1 + random.below(40) as u32;
                let Some(first) = arena.take(len) else { continue };
                for unit in &mut owner[first as usize..(first + len) as usize] {
                    assert_eq!(*unit, 0, "taken twice");
                    *unit = round;
                }
                pieces.push((first, len));
            } else {
                let (first, len) = pieces.swap_remove(random.below(pieces.len() as u64) as usize);
                owner[first as usize..(first + len) as usize].fill(0);
                arena.give_back(first, len);
            }
            assert_eq!(arena.used(), pieces.iter().map(|&(_, len)| len).sum::<u32>());
        }
        for (first, len) in pieces {
            arena.give_back(first, len);
        }
        assert_eq!(arena.take(1000), Some(0), "all pieces have joined");
    }

    #[test]
    fn a_full_arena_gives_nothing() {
        let mut arena = Arena::new(16);
        assert_eq!(arena.take(17), None);
        assert_eq!(arena.take(2), Some(0), "a small one from the beginning");
        assert_eq!(arena.take(9), Some(7), "a large one from the end");
        assert_eq!(arena.take(6), None);
        assert_eq!(arena.take(5), Some(2));
        assert_eq!(arena.take(1), None);
        assert_eq!(arena.used(), 16);
        assert_eq!(Arena::new(0).take(1), None);
    }
}
