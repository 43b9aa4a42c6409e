//! A worker's turn, as far as other workers take part in it: packets handed to it, packets that it hands off, and
//! packets that have left.

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{BATCH_MAX, Batch, Frame};
use manylane_sync::rcu::Guard;

use super::limits;
use crate::stats::PortCount;
use crate::worker::Work;
use crate::worker::turn::Turn;
use manylane_frame::vocabulary::Points;

impl Work {
    /// Takes packets that other workers have handed off, up to `budget`, and forwards them. Returns how many.
    pub(in crate::worker) fn receive_handed_off(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let weight = self.limits.load(limits::WEIGHT) as usize;
        let Some(handoff) = &mut self.handoff else { return 0 };
        handoff.begin_turn(turn.now_ns);
        if handoff.release_requests.any() {
            self.drop_held_on_request(turn.guard);
        }
        let mut moved = 0;
        let mut receivers = 0;
        let mut batch = Batch::new();
        while let Some(handoff) = &mut self.handoff
            && receivers < handoff.inbound.len()
            && moved < budget
        {
            receivers += 1;
            let receiver = handoff.next;
            handoff.next = (receiver + 1) % handoff.inbound.len();
            let weight = weight.min(budget - moved);
            let mixed = handoff.pop(receiver, weight, self.pool.region().view(), &mut batch);
            if batch.is_empty() {
                continue;
            }
            #[cfg(feature = "broken-rules")]
            if handoff.announces_what_is_popped {
                handoff.completions.note();
                handoff.completions.announce();
            }
            moved += batch.len();
            if mixed {
                self.forward_runs(turn, &mut batch);
            } else {
                self.forward_batch(turn, &mut batch);
            }
        }
        moved
    }

    /// Forwards a batch, a run of packets with one ingress port at a time.
    #[inline(never)]
    fn forward_runs(&mut self, turn: Turn<'_>, batch: &mut Batch) {
        if self.traces() {
            self.note_taken(batch);
        }
        while !batch.is_empty() {
            let ingress = |frame: &Frame| self.pool.region().meta(frame).ingress;
            let first = batch.iter().next().map(ingress);
            let run = batch.iter().take_while(|frame| Some(ingress(frame)) == first).count();
            let mut part = Batch::new();
            batch.drain().take(run).for_each(|frame| part.push(frame).expect("it is no longer"));
            self.forward_as_observed(turn, &mut part);
        }
    }

    /// Receives a batch from one queue, forwards its own share and hands off the rest.
    #[inline(never)]
    pub(in crate::worker) fn receive_and_hand_off(
        &mut self,
        turn: Turn<'_>,
        queue: usize,
        weight: usize,
    ) -> usize {
        let Work { queues, handoff, pool, queue_handover, observers, .. } = self;
        let (Some(handoff), queue) = (handoff, &mut queues[queue]) else { return 0 };
        let port = queue.port();
        if queue_handover.has_pending() && queue_handover.drains(port, queue.queue()) {
            return 0;
        }
        let Some(admitted) = handoff.admit(port, weight, turn.now_ns) else { return 0 };
        let mut batch = Batch::with_room(admitted);
        let received = queue.receive(pool, &mut batch, turn.now_ns);
        if received == 0 {
            return 0;
        }
        if observers.observes_any(Points::RECEIVE.or_trace()) {
            self.hand_off_observed(turn, port, &mut batch);
            return received;
        }
        handoff.hand_off(pool.region().view(), port, &mut batch);
        if !handoff.refused.is_empty() {
            self.drop_refused(turn.guard);
        }
        if !batch.is_empty() {
            self.forward_batch(turn, &mut batch);
        }
        received
    }

    /// As above, where a packet socket or a trace observes received packets.
    #[cold]
    #[inline(never)]
    fn hand_off_observed(&mut self, turn: Turn<'_>, port: PortId, batch: &mut Batch) {
        self.observe_received(turn.guard, port, batch);
        let before_ns = self.tracer.now_ns();
        let Work { handoff: Some(handoff), pool, .. } = self else { return };
        handoff.hand_off(pool.region().view(), port, batch);
        self.note_steered(before_ns);
        if self.handoff.as_ref().is_some_and(|handoff| !handoff.refused.is_empty()) {
            self.drop_refused(turn.guard);
        }
        if !batch.is_empty() {
            self.forward_as_observed(turn, batch);
        }
    }

    /// Packets dropped here count as received here; the worker that forwards a packet counts all others.
    #[cold]
    fn drop_refused(&mut self, guard: Guard<'_>) {
        let Some(handoff) = &mut self.handoff else { return };
        let mut refused = std::mem::take(&mut handoff.refused);
        for (frame, reason) in refused.drain(..) {
            self.count_received(&frame);
            self.sample_refused(&frame, reason);
            self.drop_frame(guard, frame, reason);
        }
        if let Some(handoff) = &mut self.handoff {
            handoff.refused = refused;
        }
    }

    fn count_received(&mut self, frame: &Frame) {
        let meta = self.pool.region().meta(frame);
        self.stats.count(meta.ingress, PortCount::Received, 1);
        self.stats.count(meta.ingress, PortCount::ReceivedBytes, meta.packet_len() as u64);
    }

    /// Hands what waits to the devices, and announces to receivers which packets have left.
    pub(in crate::worker) fn transmit_and_announce(&mut self, guard: Guard<'_>) {
        if self.samples_order() {
            self.check_order(0..self.egresses.len());
        }
        self.transmit(guard);
        self.announce();
    }

    /// Announces to receivers which packets have left: what had been transmitted when that was last noted, once devices have
    /// taken it. At the end of a turn.
    fn announce(&mut self) {
        let Work { handoff, egresses, .. } = self;
        let Some(handoff) = handoff else { return };
        if !handoff.noted {
            handoff.completions.note();
            egresses.iter_mut().for_each(|egress| egress.transmitter.set_drain_mark());
        }
        handoff.noted = !egresses.iter_mut().all(|egress| egress.transmitter.has_drained());
        #[cfg(feature = "broken-rules")]
        if handoff.announces_what_is_noted {
            handoff.noted = false;
        }
        if !handoff.noted {
            handoff.completions.announce();
        }
    }

    /// Drops packets that others have handed to this worker, when no worker runs any more.
    pub(in crate::worker) fn drop_handed_off(&mut self) {
        let receivers = self.handoff.as_ref().map_or(0, |handoff| handoff.inbound.len());
        for receiver in 0..receivers {
            while let Some(handoff) = &mut self.handoff {
                let mut batch = Batch::new();
                handoff.pop(receiver, BATCH_MAX, self.pool.region().view(), &mut batch);
                if batch.is_empty() {
                    break;
                }
                batch.drain().for_each(|frame| {
                    self.count_received(&frame);
                    self.discard(frame, DropReason::Shutdown);
                });
            }
        }
    }
}
