//! Connections that are worth a flow, as the program at ingress tells of them.

use std::os::fd::{AsFd, BorrowedFd};

use manylane_io::bpf::maps::RingReader;
use manylane_net::transit::flows::Tuple;
use manylane_sync::words::WordsMut;

/// A direction of a connection that may be worth a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Both ends of its packets, as they arrive.
    pub tuple: Tuple,
    /// The port that received the last one.
    pub ingress: u8,
}

/// Reads what the program has found worth a flow. Readable while something is there.
pub struct Candidates {
    ring: RingReader,
    /// Where programs count; they write it, too.
    sketch: WordsMut<u32>,
}

impl Candidates {
    pub(super) fn new(ring: RingReader, sketch: WordsMut<u32>) -> Candidates {
        Candidates { ring, sketch }
    }

    /// Forgets how often a direction was reported, by its [hash](manylane_net::transit::flows::FlowsMut::hash): the direction
    /// has its flow, and is worth another one as soon as any, when that is gone.
    pub fn forget(&mut self, hash: u64) {
        let first = hash as usize & (self.sketch.len() - 1) & !(BUCKET - 1);
        let cell =
            (first..first + BUCKET).find(|&at| u64::from(self.sketch.load(at) >> 16) == hash >> 48);
        // A program that counts at the same moment may write over it: then the program reports the direction a little
        // later.
        if let Some(cell) = cell {
            self.sketch.store(cell, 0);
        }
    }

    /// Takes up to `max` candidates.
    pub fn take(&mut self, max: usize) -> Vec<Candidate> {
        let mut found = Vec::new();
        while found.len() < max {
            let Some(record) = self.ring.next(read) else { break };
            found.extend(record);
        }
        found
    }
}

impl AsFd for Candidates {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// A `struct candidate` of `candidates.h`. `None` for anything shorter.
fn read(bytes: &[u8]) -> Option<Candidate> {
    let words: &[u8; 48] = bytes.first_chunk()?;
    let (words, _) = words.as_chunks();
    let word = |at: usize| u64::from_ne_bytes(words[at]);
    let tuple = Tuple::of_words([word(0), word(1), word(2), word(3)], word(4));
    Some(Candidate { tuple, ingress: word(5) as u8 })
}

/// `SKETCH_BUCKET` of `candidates.h`.
const BUCKET: usize = 8;
