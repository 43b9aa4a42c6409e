//! The worker's half of a verdict: each frame is queued, prepared, delivered, held or dropped.

use manylane_frame::vocabulary::{Created, DropReason};
use manylane_frame::{Batch, Frame, Trace};
use manylane_net::forward::{Fate, Origin, Verdict, Verdicts};
use manylane_net::neighbour::Key;
use manylane_net::nexthop::ids::{connected_id, neighbour_id};

use super::turn::Turn;
use super::{Egress, Work};
use crate::stage::What;
use crate::stats::PortCount;

impl Work {
    /// Carries the verdicts on a batch into effect, in the batch's order.
    #[inline(never)]
    pub(super) fn dispatch_all<'g>(
        &mut self,
        turn: Turn<'g>,
        batch: &mut Batch,
        verdicts: &Verdicts<'g>,
    ) {
        // To one port, as on a router with one uplink: no frame needs a look of its own.
        if let Some(egress) = verdicts.one_egress()
            && self.egresses[usize::from(egress)].waiting.append(batch)
        {
            return;
        }
        let mut others = verdicts.others().iter();
        batch.drain_with(verdicts.egress_ports(), |frame, &egress| {
            let egress = usize::from(egress);
            match self.egresses.get_mut(egress) {
                Some(Egress { waiting, .. }) => {
                    if let Err(frame) = waiting.push(frame) {
                        self.queue_when_full(turn.guard, egress, frame);
                    }
                }
                None => {
                    let verdict = others.next().expect("there is one for each that does not leave");
                    self.dispatch(turn, frame, verdict);
                }
            }
        });
    }

    /// Carries one verdict into effect.
    #[cold]
    #[doc(hidden)]
    pub fn dispatch<'g>(&mut self, turn: Turn<'g>, mut frame: Frame, verdict: &Verdict<'g>) {
        let ingress = self.pool.region().meta(&frame).ingress;
        let trace = self.trace_of(&frame);
        if let Some(trace) = trace {
            self.note_dispatch(trace, verdict);
        }
        match verdict.origin {
            Origin::Received => {}
            Origin::Reply => {
                self.stats.count(ingress, PortCount::Delivered, 1);
                self.stats.created(ingress, Created::Reply);
            }
            Origin::Error(reason) => {
                self.stats.dropped(ingress, reason);
                self.stats.created(ingress, Created::Error);
                self.count_unkept(ingress, reason);
            }
        }
        match verdict.fate {
            Fate::Transmit(port) => self.queue(turn.guard, port, frame),
            Fate::Fragment(port) | Fate::Prepare(port) => match trace {
                None => self.prepare(turn.guard, port, frame),
                Some(trace) => self.prepare_traced(turn.guard, port, frame, trace),
            },
            Fate::Deliver => {
                self.stats.count(ingress, PortCount::Delivered, 1);
                if trace.is_some() {
                    self.pool.region().view().set_trace(&mut frame, Trace::NONE);
                }
                self.pool.give_back(frame);
            }
            Fate::Hold(neighbour) => {
                let key = self.forwarder.key(turn.guard, neighbour);
                if key.addr.is_unspecified() {
                    // The neighbour was removed, after it had failed, while this packet was on its way to it.
                    return self.drop_frame(turn.guard, frame, DropReason::NeighbourFailed);
                }
                self.hold(turn, key, neighbour_id(neighbour.raw()), frame);
            }
            Fate::Glean(port) => match self.forwarder.destination(&frame) {
                Some(addr) => {
                    let key = Key { port, addr };
                    self.request_neighbour(&frame, key, turn.now_ns);
                    self.hold(turn, key, connected_id(port), frame);
                }
                None => self.drop_frame(turn.guard, frame, DropReason::Truncated),
            },
            Fate::Drop(reason) => self.drop_frame(turn.guard, frame, reason),
        }
    }

    /// Sends the redirects that are due about packets that are being passed on.
    #[cold]
    pub(super) fn redirect<'g>(&mut self, turn: Turn<'g>, batch: &Batch, verdicts: &Verdicts<'g>) {
        for (frame, verdict) in batch.iter().zip(&verdicts.list()) {
            let made = self.forwarder.redirect(&mut turn.lend(&mut self.pool), frame, verdict);
            let Some((made, fate)) = made else { continue };
            if let Some(trace) = self.trace_of(frame) {
                self.tracer.note(trace, What::Redirected);
            }
            let ingress = self.pool.region().meta(&made).ingress;
            self.stats.created(ingress, Created::Redirect);
            let verdict = Verdict { fate, origin: Origin::Received };
            self.dispatch(turn, made, &verdict);
        }
    }
}
