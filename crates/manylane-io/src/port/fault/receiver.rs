//! Faults at ingress.

use manylane_frame::{BATCH_MAX, Batch, Pool};

use super::super::{Receiver as AnyReceiver, Wait};
use super::line::Line;
use super::{FaultConfig, FaultCounts};

/// A receive queue with faults.
pub struct Receiver {
    pub(in super::super) inner: AnyReceiver,
    line: Line,
    /// The time of the last call.
    now_ns: u64,
}

impl Receiver {
    /// Applies faults to the packets that `inner` receives.
    ///
    /// # Panics
    ///
    /// When the configuration is invalid ([`FaultConfig::check`]).
    pub fn new(inner: AnyReceiver, config: FaultConfig) -> Receiver {
        let number = u64::from(inner.queue().0) << 1;
        // The packets that one call leaves, and those that two batches produce.
        let line = Line::new(config, number, false, 3 * BATCH_MAX);
        Receiver { inner, line, now_ns: 0 }
    }

    /// As [`AnyReceiver::receive`].
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        self.now_ns = now_ns;
        let before = batch.len();
        self.line.hold.release(now_ns);
        if self.line.hold.ready() < batch.room() {
            let mut new = Batch::new();
            self.inner.receive(pool, &mut new, now_ns);
            for frame in new.drain() {
                self.line.apply(pool, frame, now_ns);
            }
        }
        while !batch.is_full() {
            let Some(packet) = self.line.hold.pop() else { break };
            batch.push(packet.frame).expect("there is room");
        }
        batch.len() - before
    }

    /// As [`AnyReceiver::wait`], and for held packets.
    pub fn wait(&self) -> Wait<'_> {
        let due_ns = self.line.hold.due_ns().map(|due_ns| due_ns.saturating_sub(self.now_ns));
        self.inner.wait().at_most(due_ns)
    }

    /// The number of frames held.
    pub fn held(&self) -> usize {
        self.line.hold.frames()
    }

    /// The applied faults.
    pub fn counts(&self) -> FaultCounts {
        self.line.counts
    }

    /// Returns the held frames to `pool`, as never received, and the wrapped queue.
    pub fn close(mut self, pool: &mut Pool) -> AnyReceiver {
        self.line.hold.release(u64::MAX);
        while let Some(packet) = self.line.hold.pop() {
            pool.give_back(packet.frame);
        }
        self.inner
    }
}
