//! Words of /24s without repetition: what a processor's caches and its TLB have room for.
//!
//! Most neighbouring /24s have the same word. A /16 whose words are all alike is one word of `direct`. Any other has
//! a *chunk*: a bit for each /24 whose word is not that of the one before it, and these words in a row, in whole
//! cache lines (Lulea: Degermark et al., "Small Forwarding Tables for Fast Routing Lookups", SIGCOMM 1997, §3).
//!
//! | table    | word                                                                                      |
//! |----------|-------------------------------------------------------------------------------------------|
//! | `direct`  | by the first 16 bits: the word of all its /24s, or [`CHUNK`] and the number of a line     |
//! | `chunks` | lines of eight: 4 words of bits; one of 4 counts, 16 bits each; then the /24s' words, 4 in each |
//!
//! The first bit is always set. Count n says how many are in the words of bits before the n-th.
//!
//! A chunk that readers can find changes only in words of /24s, while its bits stay; each such store is of one word,
//! old or new (I6). Else a new chunk is written whole, and published by its word in `direct`. While the memory has no
//! room for it, the /16 is [`UNKNOWN`]: a reader of that word leaves the packet to the kernel.

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::{Words, WordsMut};

use super::direct::{Direct, DirectMut};
use super::{BLOCKS, DIRECT};
use crate::fib::arena::Arena;

#[cfg(all(test, not(manylane_loom)))]
mod tests;

/// In `direct`: the other bits are the number of the chunk's first line.
pub const CHUNK: u32 = 1 << 31;

/// The word of /24s without a known answer at present: the id of a next hop that is the kernel's.
pub const UNKNOWN: u16 = 0x7fff;

/// Words of a line.
pub const LINE_WORDS: usize = 8;

/// Words of bits; the one behind them has the counts.
pub const BIT_WORDS: usize = 4;

/// The place of the first /24's word, in sixteenths of bits.
pub const FIRST: usize = (BIT_WORDS + 1) * 4;

/// How many words behind the first of a chunk a lookup may reach, which needs no other bound then.
pub const REACH: usize = 128;

/// Words of `chunks` with which every /16 can have the largest chunk, and a tenth of them a second one.
pub const CHUNKS: usize = 10 * BLOCKS * LINE_WORDS + REACH;

/// /24s of a /16.
const SLOTS: usize = 256;

/// The readers' side.
#[derive(Clone)]
pub struct Packed {
    direct: Words<u32>,
    chunks: Words<u64>,
}

impl Direct for Packed {
    #[inline(always)]
    fn prefetch(&self, slot: usize) {
        self.direct.prefetch(slot / SLOTS);
    }

    #[inline(always)]
    fn word(&self, slot: usize) -> u16 {
        let word = self.direct.load(slot / SLOTS);
        if word & CHUNK == 0 {
            return word as u16;
        }
        let first = (word & !CHUNK) as usize * LINE_WORDS;
        let (part, bit) = (slot % SLOTS / 64, slot % 64);
        let until = self.chunks.load(first + part) << (63 - bit);
        let before = (self.chunks.load(first + BIT_WORDS) >> (16 * part)) as u16;
        let place = FIRST + usize::from(before) + until.count_ones() as usize - 1;
        (self.chunks.load(first + place / 4) >> (16 * (place % 4))) as u16
    }
}

/// The writer's side, with a plain copy of all words.
///
/// # Invariants
///
/// 1. The lines of a chunk are in use (`direct` names the first), or in the limbo, or in `unlinked`, or free.
/// 2. A /16 whose word is [`UNKNOWN`] and should not be is dirty.
pub struct PackedMut {
    plain: Vec<u16>,
    direct: WordsMut<u32>,
    chunks: WordsMut<u64>,
    lines: Arena,
    /// Lines that no reader finds any more: first and how many.
    limbo: Limbo<(u32, u32)>,
    /// Retired chunks for which the limbo had no room.
    unlinked: Vec<(u32, u32)>,
    /// /16s that readers do not see as they are.
    dirty: Vec<u16>,
    is_dirty: Vec<bool>,
}

impl PackedMut {
    /// Over tables whose words are all 0. At most `waiting_max` chunks wait for one grace period of the domain or
    /// another; those beyond wait for their turn.
    ///
    /// # Panics
    ///
    /// When `direct` has not a word for each /16.
    pub fn new(
        direct: WordsMut<u32>,
        chunks: WordsMut<u64>,
        domain: &Domain,
        waiting_max: usize,
    ) -> PackedMut {
        assert_eq!(direct.len(), BLOCKS, "`direct` has a word for each /16");
        PackedMut {
            plain: vec![0; DIRECT],
            lines: Arena::new(chunks.len().saturating_sub(REACH) / LINE_WORDS),
            limbo: Limbo::new(domain.clone(), waiting_max),
            unlinked: Vec::new(),
            dirty: Vec::new(),
            is_dirty: vec![false; BLOCKS],
            direct,
            chunks,
        }
    }

    /// Makes a /16 what readers see, or [`UNKNOWN`] where that is not possible now: whether it was.
    fn pack(&mut self, block: u16) -> bool {
        let mut chunk = Chunk::of(&self.plain[usize::from(block) * SLOTS..][..SLOTS]);
        let word = self.direct.load(block.into());
        let old = (word & CHUNK != 0).then_some(word & !CHUNK);
        if chunk.words == 1 {
            let word = chunk.word(0);
            self.publish(block, u32::from(word), old);
            return true;
        }
        chunk.count();
        if let Some(line) = old
            && self.change_in_place(line, &chunk)
        {
            return true;
        }
        let Some(line) = self.lines.take(lines(chunk.words)) else {
            self.publish(block, UNKNOWN.into(), old);
            return false;
        };
        for (at, said) in (line as usize * LINE_WORDS..).zip(chunk.used()) {
            self.chunks.store(at, *said);
        }
        self.publish(block, CHUNK | line, old);
        true
    }

    /// Gives a /16 another word; its old chunk waits for its readers.
    fn publish(&mut self, block: u16, word: u32, old: Option<u32>) {
        let old = old.map(|line| (line, self.chunk_lines(line)));
        // Readers that find the line find what was stored before this.
        self.direct.publish(block.into(), word);
        if let Some(lines) = old
            && let Err(lines) = self.limbo.retire(lines)
        {
            self.unlinked.push(lines);
        }
    }

    /// Where all bits stay, changes what differs.
    fn change_in_place(&mut self, line: u32, chunk: &Chunk) -> bool {
        let first = line as usize * LINE_WORDS;
        if (0..BIT_WORDS).any(|at| self.chunks.load(first + at) != chunk.bits[at]) {
            return false;
        }
        for (at, word) in chunk.used().iter().enumerate().skip(BIT_WORDS + 1) {
            if self.chunks.load(first + at) != *word {
                self.chunks.publish(first + at, *word);
            }
        }
        true
    }

    /// The lines of the chunk that begins there.
    fn chunk_lines(&self, line: u32) -> u32 {
        let first = line as usize * LINE_WORDS;
        let words: u32 = (0..BIT_WORDS).map(|at| self.chunks.load(first + at).count_ones()).sum();
        lines(words as usize)
    }
}

impl DirectMut for PackedMut {
    type Reader = Packed;

    fn slots(&self) -> usize {
        self.plain.len()
    }

    fn word(&self, slot: usize) -> u16 {
        self.plain[slot]
    }

    fn set(&mut self, slot: usize, word: u16) {
        if self.plain[slot] == word {
            return;
        }
        self.plain[slot] = word;
        let block = slot / SLOTS;
        if !self.is_dirty[block] {
            self.is_dirty[block] = true;
            self.dirty.push(block as u16);
        }
    }

    fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|block| {
            let is_packed = self.pack(*block);
            self.is_dirty[usize::from(*block)] = !is_packed;
            !is_packed
        });
        self.dirty = dirty;
    }

    fn reclaim(&mut self) {
        while let Some((first, len)) = self.limbo.reclaim() {
            self.lines.give_back(first, len);
        }
        while !self.limbo.is_full()
            && let Some(lines) = self.unlinked.pop()
        {
            let retired = self.limbo.retire(lines).is_ok();
            debug_assert!(retired, "`limbo` has room");
        }
        self.flush();
    }

    fn waiting(&self) -> usize {
        self.limbo.len() + self.unlinked.len()
    }

    fn reader(&self) -> Packed {
        Packed { direct: self.direct.reader(), chunks: self.chunks.reader() }
    }

    fn bytes_used(&self) -> usize {
        self.direct.len() * 4 + self.lines.used() as usize * LINE_WORDS * 8
    }
}

/// What a chunk says, in the making.
struct Chunk {
    /// As it lies in memory: bits, counts, words.
    bits: [u64; WORDS_MAX],
    /// How many words of /24s.
    words: usize,
}

impl Chunk {
    /// Of the words of a /16, without counts yet.
    fn of(plain: &[u16]) -> Chunk {
        let mut chunk = Chunk { bits: [0; WORDS_MAX], words: 0 };
        let mut last = None;
        for (slot, word) in plain.iter().enumerate() {
            if last != Some(word) {
                chunk.bits[slot / 64] |= 1 << (slot % 64);
                let place = FIRST + chunk.words;
                chunk.bits[place / 4] |= u64::from(*word) << (16 * (place % 4));
                chunk.words += 1;
                last = Some(word);
            }
        }
        chunk
    }

    fn word(&self, number: usize) -> u16 {
        let place = FIRST + number;
        (self.bits[place / 4] >> (16 * (place % 4))) as u16
    }

    fn count(&mut self) {
        let mut before = 0;
        for at in 0..BIT_WORDS {
            self.bits[BIT_WORDS] |= u64::from(before) << (16 * at);
            before += self.bits[at].count_ones();
        }
    }

    fn used(&self) -> &[u64] {
        &self.bits[..(FIRST + self.words).div_ceil(4)]
    }
}

/// The lines of a chunk with `words` words of /24s.
fn lines(words: usize) -> u32 {
    (FIRST + words).div_ceil(4 * LINE_WORDS) as u32
}

/// Words of the largest chunk.
const WORDS_MAX: usize = (FIRST + SLOTS).div_ceil(4);
