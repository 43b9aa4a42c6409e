//! What the programs have counted: a row of places for each port, on each CPU.

use manylane_sync::words::Words;

use super::memory::{PLACES, PORTS};

/// Reads what programs count. Programs add without an atomic instruction, each CPU to its own rows; a sum over CPUs
/// that are at work is as old as its oldest part.
#[derive(Clone)]
pub struct Counters {
    words: Words<u64>,
    cpus: usize,
}

impl Counters {
    pub(super) fn new(words: Words<u64>, cpus: usize) -> Counters {
        Counters { words, cpus }
    }

    /// The counters of a port, of all CPUs together: by the verdict's number packets received, and from place
    /// 29 bytes and packets sent, and bytes received and forwarded. Zeroes for a port
    /// that cannot be.
    pub fn port(&self, port: u16) -> [u64; PLACES] {
        let mut sums = [0u64; PLACES];
        if usize::from(port) < PORTS {
            for cpu in 0..self.cpus {
                self.words.add_to((cpu * PORTS + usize::from(port)) * PLACES, &mut sums);
            }
        }
        sums
    }
}
