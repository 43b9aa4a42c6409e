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
//!
//! The writer, too, has the words of a /16 only here, but while it changes them.

use std::collections::BTreeMap;
use std::ops::Range;

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::{Words, WordsMut};

use super::direct::{Direct, DirectMut};
use super::{BLOCKS, DIRECT, LIST};
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

/// Words of `chunks` that suffice for two million routes, wherever they lie, and a tenth of the chunks a second time: a
/// route begins one word of its /16's and ends one, two bytes each, and a chunk has 42 bytes more, in lines of 64.
pub const CHUNKS: usize = 4 * BLOCKS * LINE_WORDS + REACH;
const _: () = assert!((52 * BLOCKS + 2 * 2_000_000) / 32 * 11 / 10 <= 4 * BLOCKS);

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
        word_of(self.direct.load(slot / SLOTS), slot, |at| self.chunks.load(at))
    }
}

/// The word of a /24, by the word of its /16 in `direct`.
#[inline(always)]
fn word_of(word: u32, slot: usize, chunks: impl Fn(usize) -> u64) -> u16 {
    if word & CHUNK == 0 {
        return word as u16;
    }
    let first = (word & !CHUNK) as usize * LINE_WORDS;
    let (part, bit) = (slot % SLOTS / 64, slot % 64);
    let until = chunks(first + part) << (63 - bit);
    let before = (chunks(first + BIT_WORDS) >> (16 * part)) as u16;
    let place = FIRST + usize::from(before) + until.count_ones() as usize - 1;
    (chunks(first + place / 4) >> (16 * (place % 4))) as u16
}

/// The words of a /16.
type Block = [u16; SLOTS];

/// The writer's side.
///
/// # Invariants
///
/// 1. The lines of a chunk are in use (`direct` names the first), or in the limbo, or in `unlinked`, or free.
/// 2. A /16 whose word is [`UNKNOWN`] and should not be is in `unpacked`.
/// 3. A /16 that is neither `open` nor in `unpacked` is as readers see it.
pub struct PackedMut {
    direct: WordsMut<u32>,
    chunks: WordsMut<u64>,
    lines: Arena,
    /// Lines that no reader finds any more: first and how many.
    limbo: Limbo<(u32, u32)>,
    /// Retired chunks for which the limbo had no room.
    unlinked: Vec<(u32, u32)>,
    /// The /16 that was changed last.
    open: Option<(usize, Box<Block>)>,
    /// Other /16s that readers do not see as they are: the memory had no room for their chunks.
    unpacked: BTreeMap<usize, Box<Block>>,
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
            lines: Arena::new(chunks.len().saturating_sub(REACH) / LINE_WORDS),
            limbo: Limbo::new(domain.clone(), waiting_max),
            unlinked: Vec::new(),
            open: None,
            unpacked: BTreeMap::new(),
            direct,
            chunks,
        }
    }

    /// The word of all /24s of a /16, if they are alike and readers see it so.
    fn only_word(&self, block: usize) -> Option<u16> {
        let is_open = self.open.as_ref().is_some_and(|(open, _)| *open == block);
        let word = self.direct.load(block);
        let is_only = word & CHUNK == 0 && !is_open && !self.unpacked.contains_key(&block);
        is_only.then_some(word as u16)
    }

    /// The words of a /16, to be changed. Those of the /16 before are packed, or stay as they are until they can be.
    fn open(&mut self, block: usize) -> &mut Block {
        if let Some((last, words)) = self.open.take_if(|(last, _)| *last != block)
            && !self.pack(last, &words)
        {
            self.unpacked.insert(last, words);
        }
        let PackedMut { direct, chunks, open, unpacked, .. } = self;
        let (_, words) = open.get_or_insert_with(|| {
            let waiting = unpacked.remove(&block);
            (block, waiting.unwrap_or_else(|| Box::new(unpack(direct.load(block), chunks))))
        });
        words
    }

    /// Makes a /16 what readers see, or [`UNKNOWN`] where that is not possible now: whether it was.
    fn pack(&mut self, block: usize, words: &Block) -> bool {
        let mut chunk = Chunk::of(words);
        let word = self.direct.load(block);
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
    fn publish(&mut self, block: usize, word: u32, old: Option<u32>) {
        let old = old.map(|line| (line, self.chunk_lines(line)));
        // Readers that find the line find what was stored before this.
        self.direct.publish(block, word);
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
        DIRECT
    }

    fn word(&self, slot: usize) -> u16 {
        let block = slot / SLOTS;
        let open = self.open.as_ref().filter(|(open, _)| *open == block);
        let words = open.map(|(_, words)| words).or_else(|| self.unpacked.get(&block));
        match words {
            Some(words) => words[slot % SLOTS],
            None => word_of(self.direct.load(block), slot, |at| self.chunks.load(at)),
        }
    }

    fn set(&mut self, slot: usize, word: u16) {
        if self.word(slot) != word {
            self.open(slot / SLOTS)[slot % SLOTS] = word;
        }
    }

    fn fill(&mut self, slots: Range<usize>, word: u16) -> Vec<usize> {
        let (mut lists, mut first) = (Vec::new(), slots.start);
        while first < slots.end {
            let block = first / SLOTS;
            let end = slots.end.min((block + 1) * SLOTS);
            match self.only_word(block) {
                Some(only) if only == word => (),
                Some(only) if only & LIST == 0 && end - first == SLOTS => {
                    self.publish(block, word.into(), None);
                }
                _ => {
                    let words = &mut self.open(block)[first % SLOTS..][..end - first];
                    for (slot, old) in (first..end).zip(words) {
                        if *old & LIST == 0 {
                            *old = word;
                        } else {
                            lists.push(slot);
                        }
                    }
                }
            }
            first = end;
        }
        lists
    }

    fn flush(&mut self) {
        let mut changed = std::mem::take(&mut self.unpacked);
        changed.extend(self.open.take());
        changed.retain(|block, words| !self.pack(*block, words));
        self.unpacked = changed;
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

/// The words of a /16, by its word in `direct`.
fn unpack(word: u32, chunks: &WordsMut<u64>) -> Block {
    let mut words = [word as u16; SLOTS];
    if word & CHUNK == 0 {
        return words;
    }
    let first = (word & !CHUNK) as usize * LINE_WORDS;
    let mut place = FIRST;
    for part in 0..BIT_WORDS {
        let mut bits = chunks.load(first + part);
        while bits != 0 {
            let slot = bits.trailing_zeros() as usize;
            let word = (chunks.load(first + place / 4) >> (16 * (place % 4))) as u16;
            bits &= bits - 1;
            place += 1;
            let end = if bits == 0 { SLOTS } else { part * 64 + bits.trailing_zeros() as usize };
            // Behind the last one of a part, what the next part changes is written over.
            words[part * 64 + slot..end].fill(word);
        }
    }
    words
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
