//! Packets lost before they could be received.

use std::ops::AddAssign;

/// A queue's lost packets since it was opened, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The queue was full, though frames were free: the worker is too slow.
    pub ring_full: u64,
    /// No frame was free: the pool is too small. In AF_XDP's zero-copy mode, how often the driver found
    /// none.
    pub no_buffer: u64,
    /// Larger than the port is configured for, or than any packet on a wire.
    pub too_large: u64,
    /// Packets whose header or file describes an impossible packet; or
    /// descriptors that the kernel or manylane rejected, which is a bug.
    pub invalid: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Losses) {
        self.ring_full += other.ring_full;
        self.no_buffer += other.no_buffer;
        self.too_large += other.too_large;
        self.invalid += other.invalid;
    }
}
