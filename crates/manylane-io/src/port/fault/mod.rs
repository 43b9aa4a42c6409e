//! A port with faults: drops, duplicates, damages, delays or reorders packets, by a seed.
//!
//! [`Receiver`] wraps a receive queue and [`Transmitter`] a transmitter; each has its own [`FaultConfig`] and
//! its own random draws, so that the same packets at the same times meet the same faults.
//!
//! | fault     | what happens                                                          | order            |
//! |-----------|-----------------------------------------------------------------------|------------------|
//! | drop      | the packet ends here                                                  | first            |
//! | corrupt   | one random bit of it is inverted                                      | then             |
//! | duplicate | a copy follows directly behind it, without further faults             | then             |
//! | delay     | it continues after a time; later packets overtake it                  | one of these two |
//! | reorder   | it continues after some later packets, or after a time at the latest  |                  |
//!
//! Every packet takes the same number of draws, so that changing one fault leaves the
//! others unchanged (`draw.rs`). The number of held packets is bounded (`hold.rs`): a packet that finds no room
//! continues at once.
//!
//! Packets add up. One dropped at ingress was never received, as if a wire had lost it. One
//! dropped at egress is completed and counted like a drop by a device
//! ([`dropped`](super::Transmitter::dropped)); one held at egress is in flight. A duplicate at ingress
//! is received like any packet; one at egress is in no ledger, and so marked `later`, as a copy of
//! [`tee`](super::tee) is. Frames add up too: the frames held are reported ([`posted`](super::Receiver::posted),
//! [`held`](super::Transmitter::held)).
//!
//! A packet with an incomplete checksum is damaged before the checksum is computed: no later stage can notice.
//! A packet with an incomplete checksum is damaged before the checksum is computed: no later stage can notice.

mod draw;
mod hold;
mod line;
mod receiver;
mod transmitter;

use std::ops::RangeInclusive;

pub use receiver::Receiver;
pub use transmitter::Transmitter;

/// The faults of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    /// The seed of the random draws.
    pub seed: u64,
    /// The probability that a packet is dropped, 0 to 1.
    pub drop: f64,
    /// The probability that a packet is duplicated, 0 to 1.
    pub duplicate: f64,
    /// The probability that a bit of a packet is inverted, 0 to 1.
    pub corrupt: f64,
    /// The probability that a packet is delayed, 0 to 1.
    pub delay: f64,
    /// The delay in nanoseconds.
    pub delay_ns: RangeInclusive<u64>,
    /// The probability that other packets overtake a packet, 0 to 1.
    pub reorder: f64,
    /// How many packets overtake it; at least 1.
    pub reorder_packets: u32,
    /// The time in nanoseconds after which it continues in any case.
    pub reorder_ns: u64,
    /// The most frames held. Each takes some hundred bytes of memory from the start; they are a line of the pool's
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

/// Why a fault configuration is invalid.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// A probability is not between 0 and 1.
    #[error("`{key}` is {value}, but a probability is 0 to 1; take 0 to 1")]
    Probability {
        /// The setting's name.
        key: &'static str,
        /// The value.
        value: f64,
    },
    /// The longest delay is less than the shortest.
    #[error("a delay of {} to {} ns: give the shorter one first", .0.start(), .0.end())]
    Delay(RangeInclusive<u64>),
    /// A packet that no other overtakes is not reordered.
    #[error("`reorder_packets` is 0, and no packet would overtake another: take 1 or more")]
    ReorderPackets,
}

impl FaultConfig {
    /// Checks the configuration.
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

/// Counts of applied faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets with a bit inverted.
    pub corrupted: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Packets held until others had passed.
    pub reordered: u64,
    /// Packets that were to be delayed or reordered and continued at once: the hold was full.
    pub hold_full: u64,
    /// Packets that were to be duplicated, but no frame was free.
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
