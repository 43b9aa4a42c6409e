//! A port with faults: packets are dropped, duplicated, damaged, late or out of order, by a seed.
//!
//! [`Receiver`] wraps a receive queue and [`Transmitter`] a way out; each has its own [`FaultConfig`] and
//! draws its own lots, so that the same packets at the same times meet the same faults.
//!
//! | fault     | what happens                                                          | order            |
//! |-----------|-----------------------------------------------------------------------|------------------|
//! | drop      | the packet ends here                                                  | first            |
//! | corrupt   | one bit of it, any, is another                                        | then             |
//! | duplicate | a copy goes on right behind it, without further faults                | then             |
//! | delay     | it goes on after a time; those behind pass it                         | one of these two |
//! | reorder   | it goes on after some of those behind it, or after a time at the latest|                 |
//!
//! Every packet takes the same number of lots, whatever they say, so that a fault more or less leaves the
//! others where they were (`draw.rs`). What is held is bounded (`hold.rs`): a packet that finds no place
//! goes on at once.
//!
//! Packets add up. What is dropped on the way in was never received, as if a wire had lost it. What is
//! dropped on the way out is completed and counted like what a device drops
//! ([`dropped`](super::Transmitter::dropped)); what is held there is in flight. A duplicate on the way in
//! is received like any packet; one on the way out is in no ledger, and so marked `later`, as a copy of
//! [`tee`](super::tee) is. The same of frames: what is held is told ([`posted`](super::Receiver::posted),
//! [`held`](super::Transmitter::held)).
//!
//! A packet whose checksum is still to be completed is damaged before it is: nobody behind will notice.

mod draw;
mod hold;
mod line;
mod receiver;
mod transmitter;

use std::fmt;
use std::ops::RangeInclusive;

pub use receiver::Receiver;
pub use transmitter::Transmitter;

/// The faults of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    /// What the lots are drawn from.
    pub seed: u64,
    /// How likely a packet is dropped, 0 to 1.
    pub drop: f64,
    /// How likely a packet is duplicated, 0 to 1.
    pub duplicate: f64,
    /// How likely a bit of a packet is inverted, 0 to 1.
    pub corrupt: f64,
    /// How likely a packet is late, 0 to 1.
    pub delay: f64,
    /// By how many nanoseconds.
    pub delay_ns: RangeInclusive<u64>,
    /// How likely a packet is passed by others, 0 to 1.
    pub reorder: f64,
    /// By how many; at least 1.
    pub reorder_packets: u32,
    /// After how many nanoseconds it goes on in any case.
    pub reorder_ns: u64,
    /// Most frames that are held: some hundred bytes of memory each, from the start, and a line of the pool's
    /// sum for each queue and each worker.
    pub frames_max: u32,
}

impl Default for FaultConfig {
    fn default() -> FaultConfig {
        FaultConfig {
            seed: 0,
            drop: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            delay: 0.0,
            delay_ns: 1_000_000..=1_000_000,
            reorder: 0.0,
            reorder_packets: 3,
            reorder_ns: 10_000_000,
            frames_max: 1024,
        }
    }
}

/// Faults that cannot be.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum FaultError {
    /// A probability is not between 0 and 1.
    Probability {
        /// Which.
        key: &'static str,
        /// What it is.
        value: f64,
    },
    /// The longest delay is less than the shortest.
    Delay(RangeInclusive<u64>),
    /// A packet that is passed by none is not out of order.
    ReorderPackets,
}

impl FaultConfig {
    /// Whether there can be such faults.
    pub fn check(&self) -> Result<(), FaultError> {
        let FaultConfig { drop, duplicate, corrupt, delay, reorder, .. } = *self;
        for (key, value) in [
            ("drop", drop),
            ("duplicate", duplicate),
            ("corrupt", corrupt),
            ("delay", delay),
            ("reorder", reorder),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(FaultError::Probability { key, value });
            }
        }
        if self.delay_ns.is_empty() {
            return Err(FaultError::Delay(self.delay_ns.clone()));
        }
        if self.reorder_packets == 0 {
            return Err(FaultError::ReorderPackets);
        }
        Ok(())
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::Probability { key, value } => {
                write!(f, "`{key}` is {value}, and a probability is not; take 0 to 1")
            }
            FaultError::Delay(delay_ns) => write!(
                f,
                "a delay of {} to {} ns: give the shorter one first",
                delay_ns.start(),
                delay_ns.end()
            ),
            FaultError::ReorderPackets => f.write_str(
                "`reorder_packets` is 0, and no packet would pass another: take 1 or more",
            ),
        }
    }
}

impl std::error::Error for FaultError {}

/// What was done to packets on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets duplicated: so many more.
    pub duplicated: u64,
    /// Packets with a bit inverted.
    pub corrupted: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Packets held until others had passed.
    pub reordered: u64,
    /// Packets that were to be delayed or reordered and went on at once: as many are held as may be.
    pub hold_full: u64,
    /// Packets that were to be duplicated, and there was no frame.
    pub no_frame: u64,
}

impl std::ops::Add for FaultCounts {
    type Output = FaultCounts;

    fn add(self, other: FaultCounts) -> FaultCounts {
        FaultCounts {
            dropped: self.dropped + other.dropped,
            duplicated: self.duplicated + other.duplicated,
            corrupted: self.corrupted + other.corrupted,
            delayed: self.delayed + other.delayed,
            reordered: self.reordered + other.reordered,
            hold_full: self.hold_full + other.hold_full,
            no_frame: self.no_frame + other.no_frame,
        }
    }
}

#[cfg(test)]
mod tests;
