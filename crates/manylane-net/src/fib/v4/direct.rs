//! What stands for a /24: its word, however words are kept.
//!
//! | kept as    | a lookup loads       | room for the Internet's table | for                                        |
//! |------------|----------------------|-------------------------------|--------------------------------------------|
//! | plain      | 1 line               | 32 MiB                        | workers, which prefetch a batch's lines    |
//! | [`Packed`](super::Packed) | 3 lines, or 2        | 4 to 6 MiB                    | programs, which have one packet at a time  |

use std::ops::Range;

use manylane_sync::words::{Words, WordsMut};

use super::LIST;

/// The readers' side of the words.
pub trait Direct: Clone {
    /// Prefetches the word of /24 `slot`, or the words that lead to it.
    fn prefetch(&self, slot: usize);
    /// The word of /24 `slot`.
    fn word(&self, slot: usize) -> u16;
}

/// The writer's side.
pub trait DirectMut {
    /// What readers have.
    type Reader: Direct;
    /// The number of /24s, from the first on.
    fn slots(&self) -> usize;
    /// The word that was set last.
    fn word(&self, slot: usize) -> u16;
    /// Sets a word. Readers see it after [`DirectMut::flush`] at the latest.
    fn set(&mut self, slot: usize, word: u16);
    /// Sets the words of these /24s, but of those that have lists: returns them.
    fn fill(&mut self, slots: Range<usize>, word: u16) -> Vec<usize>;
    /// Makes all that was set what readers see.
    fn flush(&mut self);
    /// Uses again what a grace period has freed.
    fn reclaim(&mut self);
    /// How many parts wait for a grace period.
    fn waiting(&self) -> usize;
    /// A readers' side.
    fn reader(&self) -> Self::Reader;
    /// Bytes that lookups may read.
    fn bytes_used(&self) -> usize;
}

impl Direct for Words<u16> {
    #[inline(always)]
    fn prefetch(&self, slot: usize) {
        Words::prefetch(self, slot);
    }

    #[inline(always)]
    fn word(&self, slot: usize) -> u16 {
        self.load(slot)
    }
}

impl DirectMut for WordsMut<u16> {
    type Reader = Words<u16>;

    fn slots(&self) -> usize {
        self.len()
    }

    fn word(&self, slot: usize) -> u16 {
        self.load(slot)
    }

    fn set(&mut self, slot: usize, word: u16) {
        self.publish(slot, word);
    }

    fn fill(&mut self, slots: Range<usize>, word: u16) -> Vec<usize> {
        let mut lists = Vec::new();
        for slot in slots {
            if self.load(slot) & LIST == 0 {
                self.publish(slot, word);
            } else {
                lists.push(slot);
            }
        }
        lists
    }

    fn flush(&mut self) {}

    fn reclaim(&mut self) {}

    fn waiting(&self) -> usize {
        0
    }

    fn reader(&self) -> Words<u16> {
        WordsMut::reader(self)
    }

    fn bytes_used(&self) -> usize {
        self.len() * 2
    }
}
