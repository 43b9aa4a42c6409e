//! The kernel's count of timer ticks (jiffies), by which programs know whether a lease is over.
//!
//! A program reads it with one load: the verifier puts that in for `bpf_jiffies64`, where the coarse clock would be a
//! call of some 20 ns. No system call tells the count, so a program of five instructions does, when it is run once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use manylane_sync::words::WordsMut;

use super::{KIND, TryOptions, trial};
use manylane_io::bpf::call::{self, Instruction};
use manylane_io::bpf::maps::Maps;
use manylane_io::syscall::check;

/// Reads the kernel's count of ticks.
pub struct Ticks {
    program: OwnedFd,
    count: WordsMut<u64>,
    length_ns: u64,
}

impl Ticks {
    /// Loads the program that tells. Needs what the program that forwards needs.
    pub fn open() -> io::Result<Ticks> {
        let mut maps = Maps::default();
        let count = maps.add::<u64>("ticks", 1).map_err(io::Error::other)?;
        let map = maps.descriptor("ticks").expect("it was just added").as_raw_fd();
        let program = call::load(KIND, "manylane_ticks", &code(map))?;
        Ok(Ticks { program, count, length_ns: length_ns()? })
    }

    /// The count now. A microsecond or two.
    pub fn read(&self) -> io::Result<u64> {
        // The program wants a frame, and does not look at it.
        trial::run(&self.program, &[0; 14], &TryOptions::default())?;
        Ok(self.count.load(0))
    }

    /// Nanoseconds from one tick to the next.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }
}

/// The coarse clock moves once in a tick.
fn length_ns() -> io::Result<u64> {
    let mut length = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_getres(2) writes one `timespec`, to `length`.
    check(unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut length) })?;
    match (length.tv_sec, u64::try_from(length.tv_nsec)) {
        (0, Ok(ns @ 1..)) => Ok(ns),
        _ => Err(io::Error::other("CLOCK_MONOTONIC_COARSE has no resolution of a tick")),
    }
}

/// Writes `bpf_jiffies64()` to where the map begins.
fn code(map: i32) -> [Instruction; 6] {
    let [a, b, c, d] = map.to_le_bytes();
    [
        // r6 = the map's memory (BPF_PSEUDO_MAP_VALUE), in two halves.
        [0x18, 0x26, 0, 0, a, b, c, d],
        [0; 8],
        // r0 = bpf_jiffies64(); *(u64 *)r6 = r0; return 0.
        [0x85, 0, 0, 0, JIFFIES64, 0, 0, 0],
        [0x7b, 0x06, 0, 0, 0, 0, 0, 0],
        [0xb7, 0, 0, 0, 0, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ]
}

/// linux/bpf.h.
const JIFFIES64: u8 = 118;
