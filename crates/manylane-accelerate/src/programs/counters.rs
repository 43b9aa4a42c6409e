//! What the programs have counted: a row of places for each port, on each CPU.

use std::fs;
use std::io;

use manylane_sync::words::Words;

use super::memory::{PLACES, PORTS};

/// Reads what programs count. They add without an atomic instruction, each CPU to its own rows; a sum over CPUs
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

    /// The counters of a port, of all CPUs together: by the verdict's number what came in by it, and from place
    /// 29 bytes and packets that left by it, and bytes that came in by it and were forwarded. Zeroes for a port
    /// that cannot be.
    pub fn port(&self, port: u16) -> [u64; PLACES] {
        let mut sums = [0u64; PLACES];
        if usize::from(port) < PORTS {
            for cpu in 0..self.cpus {
                let row =
                    self.words.load_array::<PLACES>((cpu * PORTS + usize::from(port)) * PLACES);
                sums.iter_mut().zip(row).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
            }
        }
        sums
    }
}

/// One more than the highest number that a CPU can have here.
pub(in crate::bpf) fn cpus() -> io::Result<usize> {
    let path = "/sys/devices/system/cpu/possible";
    let told = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {what}"));
    let text = fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
    let last = last_cpu(&text).ok_or_else(|| told(format!("not a list of CPUs: {text:?}")))?;
    Ok(last + 1)
}

/// The last number of a list such as `0-3,8`.
fn last_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        for (list, last) in [("0\n", 0), ("0-1\n", 1), ("0-3,8\n", 8), ("0,2-15\n", 15)] {
            assert_eq!(last_cpu(list), Some(last), "{list:?}");
        }
        assert_eq!((last_cpu(""), last_cpu("none\n")), (None, None));
        assert!(cpus().expect("there is a CPU") >= 1);
    }
}
