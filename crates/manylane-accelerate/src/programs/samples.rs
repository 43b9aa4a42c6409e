//! Headers of sampled packets, noted by programs on request: flows, and what becomes of them.

use std::io;

use manylane_sync::words::{Words, WordsMut};

use super::grace::Grace;

/// Has programs note packets. Without a request a packet costs them one load more.
pub struct Samples {
    /// The sampler writes the request here; programs write the rest.
    words: WordsMut<u64>,
    noted: Words<u64>,
    cpus: usize,
    grace: Grace,
    /// The number of samplings.
    asked: u64,
}

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The ingress port's number; 0 if it is none of ours.
    pub port: u16,
    /// The verdict's number.
    pub verdict: u8,
    /// The tier that forwarded the packet.
    pub by: SampledBy,
    /// Its bytes, in all.
    pub len: u32,
    /// Its first bytes, from the Ethernet type on. What such a packet is too short for is not defined: 28, 48 or all
    /// of these bytes are its own.
    pub bytes: [u8; BYTES],
}

/// The tier that forwards a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledBy {
    /// None of ours: the kernel.
    Kernel,
    /// The program at tcx.
    Ingress,
    /// The program in the driver.
    Driver,
    /// A worker.
    Workers,
}

impl Samples {
    pub(super) fn new(words: WordsMut<u64>, cpus: usize, grace: Grace) -> Samples {
        Samples { noted: words.reader(), words, cpus, grace, asked: 0 }
    }

    /// From now on one packet in 2^`shift` is noted, by chance: up to 64 on each CPU.
    pub fn begin(&mut self, shift: u32) {
        self.asked += 1;
        self.words.publish(ASKED, self.asked << 8 | u64::from(shift.min(SHIFT_MAX)));
    }

    /// Ends that, and waits until every program has ended that may be about to note one. What was noted since it
    /// began, by CPU, in its order there.
    pub fn end(&mut self) -> io::Result<Vec<Sample>> {
        let asked = self.words.load(ASKED);
        self.words.publish(ASKED, 0);
        // So that what is read below was written before: programs order nothing by themselves.
        self.grace.wait()?;
        let mut samples = Vec::new();
        for cpu in 0..self.cpus {
            let first = WORDS + cpu * WORDS_OF_CPU;
            if asked == 0 || self.noted.load(first) != asked {
                continue;
            }
            let count = self.noted.load(first + 1).min(SAMPLES as u64) as usize;
            let place = |sample| self.noted.load_array::<WORDS>(first + (1 + sample) * WORDS);
            samples.extend((0..count).map(place).map(Sample::of));
        }
        Ok(samples)
    }
}

impl Sample {
    fn of([what, words @ ..]: [u64; WORDS]) -> Sample {
        let mut bytes = [0; BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let by = SampledBy::of(what);
        let (port, verdict) = ((what & 0xff) as u16, (what >> 8) as u8);
        Sample { port, verdict, by, len: (what >> 32) as u32, bytes }
    }
}

impl SampledBy {
    /// As programs write it, from bit 16 on.
    pub(super) fn of(what: u64) -> SampledBy {
        match what >> 16 & 0xff {
            1 => SampledBy::Ingress,
            2 => SampledBy::Driver,
            3 => SampledBy::Workers,
            _ => SampledBy::Kernel,
        }
    }
}

/// The number of words for `cpus` CPUs.
pub(super) fn words(cpus: usize) -> usize {
    WORDS + cpus * WORDS_OF_CPU
}

// As in `sample.h`.
const ASKED: usize = 0;
const WORDS: usize = 8;
const SAMPLES: usize = 64;
const WORDS_OF_CPU: usize = (SAMPLES + 1) * WORDS;
const BYTES: usize = (WORDS - 1) * 8;
/// What the program's mask has room for.
const SHIFT_MAX: u32 = 31;
