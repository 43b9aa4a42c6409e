//! A worker that drains and stops while traffic flows, and may start again.
//!
//! | phase     | the control thread says so                         | the worker                                |
//! |-----------|----------------------------------------------------|-------------------------------------------|
//! | [`RUN`]   | when its thread begins                             | turns                                     |
//! | [`DRAIN`] | when it wants none of its buckets and queues there | drops held packets, and packets that it would hold: a held packet keeps its bucket |
//! | [`END`]   | when each receiver has moved its buckets elsewhere, and its queues are others' | turns until devices have taken all; then it returns its frames to the depot, and its thread ends |
//! | [`STOP`]  | when the daemon ends                               | drops held packets; its thread ends      |
//!
//! A bucket moves when all of it has left, so at [`END`] nothing is on its way to the worker, and nothing of
//! it can be passed by what others transmit from now on. The worker keeps its sockets, rings and counters.

use super::{Work, Worker};

/// The phase word: continue.
pub const RUN: u32 = 0;
/// Return from [`Worker::run`].
pub const STOP: u32 = 1;
/// Hold nothing any more.
pub const DRAIN: u32 = 2;
/// Return from [`Worker::run`] when all has left: nothing comes any more.
pub const END: u32 = 3;

impl Worker {
    /// Begins, for the first time or again.
    #[doc(hidden)]
    pub fn start(&mut self) {
        self.work.state.applied_phase = RUN;
        self.reader.online();
    }

    /// Executes the queue tasks of a worker that has stopped.
    pub fn serve_handover(&mut self) {
        self.work.serve_handover();
    }

    /// Whether another turn is to follow.
    #[inline]
    #[doc(hidden)]
    pub fn should_continue(&mut self) -> bool {
        if self.work.queue_handover.has_tasks() || self.work.queue_handover.has_pending() {
            self.work.serve_handover();
        }
        let phase = self.work.phase.load(0);
        phase == self.work.state.applied_phase && phase == RUN || self.apply_phase(phase)
    }

    #[cold]
    fn apply_phase(&mut self, phase: u32) -> bool {
        if phase != self.work.state.applied_phase {
            self.work.state.applied_phase = phase;
            if self.work.is_draining() {
                self.work.begin_observing(self.reader.guard()); // The worker may have slept since it last looked.
                self.work.drop_held(self.reader.guard());
            }
        }
        match phase {
            STOP => false,
            END => !self.work.has_drained(),
            _ => true,
        }
    }

    /// Stops, perhaps until the next start: its frames return to the depot, and no grace period waits for it.
    pub fn stop(&mut self) {
        self.work.begin_observing(self.reader.guard());
        self.work.drop_held(self.reader.guard());
        self.work.observers.flush(self.reader.guard());
        self.work.pool.empty();
        self.work.publish_levels();
        self.reader.offline();
    }
}

impl Work {
    /// Whether it is to hold nothing any more.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state.applied_phase, DRAIN | END)
    }

    /// Whether devices have taken all that it transmitted, late or not.
    fn has_drained(&mut self) -> bool {
        let Work { handoff, egresses, .. } = self;
        let is_inbound_empty = handoff.as_mut().is_none_or(|handoff| handoff.is_inbound_empty());
        // Later than what the hand-off may have noted: it waits for more, and for nothing that is to come.
        let taken = egresses.iter_mut().all(|egress| {
            egress.transmitter.set_drain_mark();
            egress.transmitter.held() == 0 && egress.transmitter.has_drained()
        });
        is_inbound_empty && taken
    }
}
