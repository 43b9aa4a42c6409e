//! Egress queues: frames wait for the end of the turn, are handed to the device, or are dropped.

use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, Points, PortId, WorkerId};
use manylane_frame::{Batch, Frame};
use manylane_io::eventfd::EventFd;
use manylane_io::port::{Sent, Transmitter};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::rcu::Guard;
use manylane_sync::words::Words;

use super::Work;
use super::turn::Tally;
use crate::stats::PortCount;

/// A worker's transmitter at one port, with the frames that wait for the end of the turn.
pub struct Egress {
    #[doc(hidden)]
    pub transmitter: Transmitter,
    #[doc(hidden)]
    pub waiting: Batch,
    /// The worker that takes back transmitted frames, unless the transmitter does so at once.
    pub(super) reclaimer: Option<Reclaimer>,
    /// Frames were handed over, and the reclaimer's bell has not rung since.
    pub(super) owes_bell: bool,
    /// Its port was removed.
    pub(super) is_closed: bool,
}

impl From<(Transmitter, Option<Reclaimer>)> for Egress {
    /// An egress queue whose reclaimer takes back transmitted frames; without one the transmitter does so at once.
    fn from((transmitter, reclaimer): (Transmitter, Option<Reclaimer>)) -> Egress {
        Egress { transmitter, waiting: Batch::new(), reclaimer, owes_bell: false, is_closed: false }
    }
}

/// The worker that takes back the frames transmitted through a device: the owner of one of its receive queues.
pub struct Reclaimer {
    /// A word for each queue: the number of its owner.
    pub owners: Words<u32>,
    /// The queue's place among these words.
    pub at: usize,
    /// The workers' bells.
    pub bells: Arc<[Arc<Doorbell<EventFd>>]>,
}

impl Reclaimer {
    /// Rings the owner's bell, unless the owner is `own`.
    #[inline]
    pub(super) fn ring(&self, own: WorkerId) {
        let owner = self.owners.load(self.at);
        if owner != u32::from(own.0) {
            self.bells[owner as usize].ring();
        }
    }
}

impl Work {
    /// Puts a frame behind those that wait for the end of the turn.
    pub(super) fn queue(&mut self, guard: Guard<'_>, port: PortId, frame: Frame) {
        if let Err(frame) = self.egresses[port.index()].waiting.push(frame) {
            self.queue_when_full(guard, port.index(), frame);
        }
    }

    /// As `queue`, where no more can wait.
    #[cold]
    pub(super) fn queue_when_full(&mut self, guard: Guard<'_>, port: usize, frame: Frame) {
        if self.samples_order() {
            self.check_order(port..port + 1);
        }
        self.transmit_port(guard, port);
        let again = self.egresses[port].waiting.push(frame);
        again.expect("transmitting has emptied the batch");
    }

    /// Hands a port's waiting frames to its device. What finds no place is dropped.
    #[inline]
    pub(super) fn transmit_port(&mut self, guard: Guard<'_>, port: usize) {
        if self.observers.observes_any(Points::TRANSMIT.or_trace()) {
            return self.transmit_observed(guard, port);
        }
        self.transmit_unobserved(guard, port);
    }

    /// As `transmit_port`, without a socket or a trace.
    #[inline(always)]
    pub(super) fn transmit_unobserved(&mut self, guard: Guard<'_>, port: usize) {
        self.transmit_waiting(port);
        self.drop_unsent(guard, port);
    }

    /// Gives the device what waits, and once more what it did not take.
    #[inline(always)]
    pub(super) fn transmit_waiting(&mut self, port: usize) {
        let held = self.egresses[port].transmitter.held();
        let mut done = self.transmit_once(port);
        if !self.egresses[port].waiting.is_empty() {
            // The ring is full. Let the device look, take back the frames it has finished, and try again.
            self.egresses[port].transmitter.flush();
            self.reclaim();
            let again = self.transmit_once(port);
            done.sent.frames += again.sent.frames;
            done.sent.bytes += again.sent.bytes;
            done.completed += again.completed;
        }
        let Transmitted { sent, completed } = done;
        let id = PortId(port as u16);
        self.stats.count(id, PortCount::Sent, sent.frames as u64);
        self.stats.count(id, PortCount::SentBytes, sent.bytes);
        self.stats.count(id, PortCount::Completed, completed);
        let egress = &mut self.egresses[port];
        egress.owes_bell |= sent.frames > 0 || egress.transmitter.held() < held;
    }

    /// Drops what the device did not take.
    #[inline(always)]
    pub(super) fn drop_unsent(&mut self, guard: Guard<'_>, port: usize) {
        if !self.egresses[port].waiting.is_empty() {
            self.drop_waiting(guard, port);
        }
    }

    /// Gives the device as many of a port's waiting frames as it takes.
    #[inline]
    fn transmit_once(&mut self, port: usize) -> Transmitted {
        let Work { egresses, stats, pool, .. } = self;
        let Egress { transmitter, waiting, .. } = &mut egresses[port];
        let mut tally = Tally::default();
        let sent = transmitter.transmit(pool, waiting, |ingress| tally.add(ingress, stats));
        Transmitted { sent, completed: tally.finish(stats) }
    }

    #[cold]
    fn drop_waiting(&mut self, guard: Guard<'_>, port: usize) {
        let reason = match self.egresses[port].is_closed {
            true => DropReason::PortDown,
            false => DropReason::TransmitRingFull,
        };
        let mut unsent = std::mem::take(&mut self.egresses[port].waiting);
        for frame in unsent.drain() {
            self.drop_frame(guard, frame, reason);
        }
    }

    pub(super) fn drop_frame(&mut self, guard: Guard<'_>, mut frame: Frame, reason: DropReason) {
        if self.observers.observes_any(Points::DROP.or_trace()) {
            self.observe_drop(guard, &mut frame, reason);
        }
        self.discard(frame, reason);
    }

    /// As `drop_frame`, without a socket or a trace.
    pub(super) fn discard(&mut self, frame: Frame, reason: DropReason) {
        let ingress = self.pool.region().meta(&frame).ingress;
        self.stats.dropped(ingress, reason);
        self.sample_drop(&frame, reason);
        self.pool.give_back(frame);
    }
}

/// What a device took, and how much of it was finished at once.
struct Transmitted {
    sent: Sent,
    completed: u64,
}
