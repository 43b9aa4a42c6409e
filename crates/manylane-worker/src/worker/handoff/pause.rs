//! Ports that are not received from for a moment, so that buckets of theirs can move.
//!
//! A bucket moves when nothing of it is on its way. One with an endless stream of packets does not move while a backlog
//! exists. So when buckets have waited for [`AFTER_NS`], their ports wait for them, too, for [`STALL_MAX_NS`] at
//! most; what comes meanwhile lies in the port's ring. What is held keeps its bucket all the same, so that a
//! moment in vain is followed by a longer interval.

use manylane_frame::vocabulary::PortId;

use super::STALL_MAX_NS;

/// How long buckets wait before their port does. Twice as long each time that this was in vain.
const AFTER_NS: u64 = 10_000_000;

/// The longest interval: less than a moment in six hundred.
const RARELY_NS: u64 = 640_000_000;

/// When one receiver's ports wait for its buckets.
pub(super) struct ReceivePause {
    /// By port: whether buckets of it wait to move.
    pub(super) waits: Vec<bool>,
    /// When the next moment begins, while any do.
    from_ns: u64,
    /// When the present one ends.
    until_ns: Option<u64>,
    every_ns: u64,
}

impl ReceivePause {
    pub(super) fn new(ports: usize) -> ReceivePause {
        ReceivePause { waits: vec![false; ports], from_ns: 0, until_ns: None, every_ns: AFTER_NS }
    }

    /// No bucket has waited until now.
    pub(super) fn begin(&mut self, now_ns: u64) {
        (self.until_ns, self.every_ns) = (None, AFTER_NS);
        self.from_ns = now_ns + self.every_ns;
    }

    /// Whether a port is not received from now.
    #[cold]
    pub(super) fn applies(&mut self, port: PortId, now_ns: u64) -> bool {
        if !self.waits[port.index()] || now_ns < self.from_ns {
            return false;
        }
        if now_ns < *self.until_ns.get_or_insert(now_ns + STALL_MAX_NS) {
            return true;
        }
        self.until_ns = None;
        self.every_ns = (2 * self.every_ns).min(RARELY_NS);
        self.from_ns = now_ns + self.every_ns;
        false
    }
}
