//! What was lost before it could be received.

use std::ops::AddAssign;

/// Packets that a queue lost since it was opened, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The queue had no place, though there were frames: the worker is too slow.
    pub ring_full: u64,
    /// There was no frame: the pool is too small. In AF_XDP's zero-copy mode, how often the driver found
    /// none.
    pub no_buffer: u64,
    /// Larger than the port provides for, or than can have been on a wire.
    pub too_large: u64,
    /// Packets that their header, or the file they are in, describes as no packet that there can be; or
    /// descriptors that the kernel, or we, did not accept, which is a bug.
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
