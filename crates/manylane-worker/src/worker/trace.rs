//! A worker's side of a trace: stages of the packets that an operator follows.
//!
//! Without a trace this costs a worker one load a turn. With one, batches take ways of their own, out of line:
//! each packet received is looked at and gets a number or none, and what has a number is recorded at each stage
//! (`trace`). The number stays with the packet, and is removed before its frame leaves.
//!
//! | stage                     | recorded in                                           |
//! |---------------------------|-------------------------------------------------------|
//! | received                  | `Work::number`                                        |
//! | steered, taken            | `Work::note_steered`, `note_taken`                    |
//! | checked, routed, neighbour | `Work::explain_all`, before the rules see the packets |
//! | rewritten, queued         | `Work::note_forwarded`                                   |
//! | released, given up        | `hold.rs`, by `explain` and `note_released`          |
//! | error, reply, delivered, prepared, held | `dispatch.rs`, `prepare.rs`, `hold.rs`     |
//! | transmitted               | `Work::transmit_observed`                             |
//! | dropped                   | `Work::note_drop`                                     |

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{Batch, Frame, Region, Trace, View};
use manylane_net::forward::{
    Explanation, Fate, Finding, Forwarder, Origin, PrepareError, Verdict, Verdicts,
};
use manylane_net::wire::ethernet::{self, HEADER_LEN, Tags, VLAN_TAG_LEN};
use manylane_net::wire::ip;
use manylane_sync::rcu::Guard;

use super::turn::Turn;
use super::{Clock, Egress, Work};
use crate::recorder::{Recorder, Session};
use crate::stage::{Header, Made, Stage, What};
use manylane_frame::vocabulary::Points;

/// A worker's side of a trace.
pub struct Tracer {
    recorder: Recorder,
    clock: Clock,
    /// The trace that was running when the turn began; 0 for none.
    session: u16,
    /// Tables change between turns only, as in a test that turns workers by hand: then an explanation and a verdict
    /// differ only where a generation does.
    #[doc(hidden)]
    pub writes_alone: bool,
}

/// A numbered packet, and what the tables said of it before the rules saw it.
pub(super) struct Explained {
    trace: Trace,
    /// Its place in the batch.
    place: usize,
    explanation: Explanation,
    at_ns: u64,
    /// Of routes and of neighbours.
    generations: (u32, u32),
}

impl Tracer {
    /// For one worker.
    pub fn new(recorder: Recorder, clock: Clock) -> Tracer {
        Tracer { recorder, clock, session: 0, writes_alone: false }
    }

    /// Looks whether a trace runs; returns the point that it observes.
    #[inline]
    pub(super) fn begin_turn(&mut self, guard: Guard<'_>) -> Points {
        let found = self.recorder.sessions.enter(guard);
        match found.is_empty() {
            true => Points::NONE,
            false => self.enter(guard),
        }
    }

    #[cold]
    fn enter(&mut self, guard: Guard<'_>) -> Points {
        let session = self.recorder.sessions.enter(guard).iter().next();
        self.session = session.map_or(0, |hook| hook.wanted.number);
        if self.session == 0 { Points::NONE } else { Points::TRACE }
    }

    /// Whether, while a trace runs, a packet is one of its.
    pub(super) fn of(&self, view: View<'_>, frame: &Frame) -> Option<Trace> {
        let trace = view.meta(frame).trace();
        (trace.session == self.session && trace != Trace::NONE).then_some(trace)
    }

    /// The daemon's time.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Records a stage of a packet.
    pub(super) fn note(&mut self, trace: Trace, what: What) {
        self.note_at(trace, self.clock.now_ns(), what);
    }

    /// Records a stage of a moment ago.
    pub(super) fn note_at(&mut self, Trace { session, number }: Trace, time_ns: u64, what: What) {
        let stage = Stage { session, number: number.into(), time_ns, what };
        match self.recorder.ring.push(stage) {
            Ok(()) => self.recorder.ring.submit(),
            Err(_) => _ = self.recorder.lost.add(1),
        }
    }

    /// Records that a packet is dropped.
    #[cold]
    pub(super) fn note_drop(&mut self, view: View<'_>, frame: &mut Frame, reason: DropReason) {
        if let Some(trace) = self.remove_trace(view, frame) {
            self.note(trace, What::Dropped(reason));
        }
    }

    /// Takes a packet's number off its frame, which ends.
    pub(super) fn remove_trace(&self, view: View<'_>, frame: &mut Frame) -> Option<Trace> {
        let trace = self.of(view, frame)?;
        view.set_trace(frame, Trace::NONE);
        Some(trace)
    }

    /// Numbers what was received and is wanted. Whatever numbers frames had is of other packets.
    #[cold]
    fn number(&mut self, guard: Guard<'_>, region: &Region, port: PortId, batch: &mut Batch) {
        let view = region.view();
        let session = self.recorder.sessions.enter(guard).iter().next();
        // The one that the turn began with, or its numbers would mean nothing until the next turn.
        let session = session.filter(|hook| hook.wanted.number == self.session);
        let session = session.map(|hook| hook.wanted.clone());
        for frame in batch.iter_mut() {
            let number = session.as_ref().and_then(|session| session.next(view, port, frame));
            let trace = number.map(|number| Trace { session: self.session, number });
            view.set_trace(frame, trace.unwrap_or(Trace::NONE));
            if let Some(trace) = trace {
                let meta = view.meta(frame);
                let (queue, len) = (meta.queue, meta.packet_len() as u32); // Of 64 frames at most.
                let header = Header::of(view.bytes(frame));
                self.note(trace, What::Received { port, queue, len, header });
            }
        }
    }
}

impl Session {
    /// The number of a packet that was received by the device of `port`, if it is to have one.
    fn next(&self, view: View<'_>, port: PortId, frame: &Frame) -> Option<u16> {
        let most = self.packets_max.load();
        let is_wanted = || {
            self.wanted.port.is_none_or(|wanted| wanted.is(port, view.bytes(frame)))
                && self.wanted.filter.run_on_frame(view, frame) > 0
        };
        if self.numbered.load() >= most || !is_wanted() {
            return None;
        }
        // Another worker may have taken the last one meanwhile. At most `PACKETS_MAX`.
        self.numbered.add_below(most).map(|before| before as u16 + 1)
    }
}

impl Work {
    /// Whether a trace runs: then the worker examines every batch.
    #[inline(always)]
    pub(super) fn traces(&self) -> bool {
        self.observers.observes_any(Points::TRACE)
    }

    /// The trace that a packet is of, if any.
    #[inline]
    pub(super) fn trace_of(&self, frame: &Frame) -> Option<Trace> {
        match self.traces() {
            false => None,
            true => self.tracer.of(self.pool.region().view(), frame),
        }
    }

    /// Passes a batch on that was just received by a queue, and that a socket or a trace observes.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_observed(&mut self, turn: Turn<'_>, queue: usize, batch: &mut Batch) {
        self.observe_received(turn.guard, self.queues[queue].port(), batch);
        self.forward_as_observed(turn, batch);
    }

    /// Shows what was received by `port`, and numbers it.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_received(&mut self, guard: Guard<'_>, port: PortId, batch: &mut Batch) {
        self.observers.received(guard, self.pool.region(), port, batch);
        if self.traces() {
            let Work { tracer, pool, .. } = self;
            tracer.number(guard, pool.region(), port, batch);
        }
    }

    /// As `forward_batch`, where a trace may run.
    #[cold]
    pub(super) fn forward_as_observed(&mut self, turn: Turn<'_>, batch: &mut Batch) {
        match self.traces() {
            true => self.forward_and_dispatch::<true>(turn, batch),
            false => self.forward_batch(turn, batch),
        }
    }

    /// Records where the packets of a batch were steered; a moment ago, before others could take them.
    #[cold]
    pub(super) fn note_steered(&mut self, at_ns: u64) {
        let Work { tracer, handoff: Some(handoff), .. } = self else { return };
        for (trace, bucket, to) in handoff.take_steered() {
            tracer.note_at(trace, at_ns, What::Steered { bucket, to });
        }
    }

    /// Records from which worker the packets of a batch were taken.
    #[cold]
    pub(super) fn note_taken(&mut self, batch: &Batch) {
        let Work { tracer, handoff: Some(handoff), pool, .. } = self else { return };
        for frame in batch.iter() {
            if let Some(trace) = tracer.of(pool.region().view(), frame) {
                tracer.note(trace, What::Taken { from: handoff.taken_from() });
            }
        }
    }

    /// Explains by the tables each packet of a batch that has a number.
    #[cold]
    pub(super) fn explain_all(&self, guard: Guard<'_>, batch: &Batch) -> Vec<Explained> {
        let explained = (0..).zip(batch.iter());
        explained.filter_map(|(place, frame)| self.explain(guard, place, frame)).collect()
    }

    /// Explains one packet, if it has a number.
    #[cold]
    pub(super) fn explain(
        &self,
        guard: Guard<'_>,
        place: usize,
        frame: &Frame,
    ) -> Option<Explained> {
        let trace = self.trace_of(frame)?;
        let generations = generations(&self.forwarder);
        let explanation = self.forwarder.explain(guard, frame);
        Some(Explained { trace, place, explanation, at_ns: self.tracer.now_ns(), generations })
    }

    /// Records what was found of a batch, and what of it waits to be transmitted.
    #[cold]
    pub(super) fn note_forwarded(
        &mut self,
        explained: &[Explained],
        batch: &Batch,
        verdicts: &Verdicts<'_>,
        is_current: bool,
    ) {
        let list = if explained.is_empty() { Vec::new() } else { verdicts.list() };
        for one in explained {
            let (frame, verdict) = (&batch.as_slice()[one.place], &list[one.place]);
            self.note_verdict(one, frame, verdict);
            // What is not simply passed on, and all of a batch that is looked up again, is recorded when it is
            // dispatched.
            if let (true, Some(&egress)) = (is_current, verdicts.egress_ports().get(one.place))
                && usize::from(egress) < self.egresses.len()
            {
                self.tracer.note(one.trace, What::Queued(PortId(egress)));
            }
        }
    }

    /// Records what was found of a packet, and what it was made into.
    #[cold]
    pub(super) fn note_verdict(&mut self, one: &Explained, frame: &Frame, verdict: &Verdict<'_>) {
        let Work { tracer, pool, forwarder, .. } = self;
        let &Explained { trace, explanation, at_ns, generations: before, .. } = one;
        let Explanation { ingress, finding, ttl, route, neighbour } = explanation;
        if !matches!(finding, Finding::Own) {
            tracer.note_at(trace, at_ns, What::Checked { ingress, finding });
        }
        if let Some(found) = route {
            tracer.note_at(trace, at_ns, What::Routed(found));
        }
        if let Some(via) = neighbour {
            tracer.note_at(trace, at_ns, What::Neighbour(via));
        }
        if !explanation.agrees_with(verdict) {
            // Another thread that writes may show a change before its generation does.
            let is_known = !tracer.writes_alone || before != generations(forwarder);
            debug_assert!(is_known, "{explanation:?}: {verdict:?}");
            tracer.note(trace, What::Changed);
        }
        let passes =
            matches!(verdict.fate, Fate::Transmit(_) | Fate::Fragment(_) | Fate::Prepare(_));
        if let (true, Origin::Received, Some(before)) = (passes, verdict.origin, ttl)
            && let Some((after, view)) = leaving_header(pool.region().bytes(frame))
        {
            let (destination, source) = (view.destination(), view.source());
            tracer.note(trace, What::Rewritten { ttl: (before, after), destination, source });
        }
    }

    /// Records what is being done with a packet by its verdict; the later steps record the rest.
    #[cold]
    pub(super) fn note_dispatch(&mut self, trace: Trace, verdict: &Verdict<'_>) {
        match verdict.origin {
            Origin::Received => {}
            Origin::Reply => self.tracer.note(trace, What::Reply),
            Origin::Error(reason) => self.tracer.note(trace, What::Error(reason)),
        }
        match verdict.fate {
            Fate::Transmit(port) => self.tracer.note(trace, What::Queued(port)),
            Fate::Deliver => self.tracer.note(trace, What::Delivered),
            _ => {}
        }
    }

    /// Records that a packet waits no longer, and what was found of it.
    #[cold]
    pub(super) fn note_released(&mut self, one: &Explained, frame: &Frame, verdict: &Verdict<'_>) {
        if let Some(prior_hold) = self.state.prior_hold {
            let waited_ns = self.state.now_ns.saturating_sub(prior_hold.since_ns);
            self.tracer.note_at(one.trace, one.at_ns, What::Released { waited_ns });
        }
        self.note_verdict(one, frame, verdict);
    }

    /// As `note_released`, for the packet at one place of those that were looked up again, by its last lookup.
    #[cold]
    pub(super) fn note_rerouted(
        &mut self,
        explained: &[Explained],
        place: usize,
        frame: &Frame,
        verdict: &Verdict<'_>,
    ) {
        if let Some(one) = explained.iter().rfind(|one| one.place == place) {
            self.note_released(one, frame, verdict);
        }
    }

    /// As `prepare`, of a packet with a number: all pieces get it.
    #[cold]
    pub(super) fn prepare_traced(
        &mut self,
        guard: Guard<'_>,
        port: PortId,
        mut frame: Frame,
        trace: Trace,
    ) {
        self.pool.region().view().set_trace(&mut frame, Trace::NONE); // The frame may go back to the pool.
        let device = self.forwarder.device(port);
        self.prepare_as(guard, port, frame, |work, prepared, pieces| {
            let Work { tracer, pool, .. } = work;
            let view = pool.region().view();
            match prepared {
                Ok(prepared) => {
                    let (how, count) = (Made::from(*prepared), pieces.len() as u32);
                    tracer.note(trace, What::Prepared { how, pieces: count });
                }
                Err(PrepareError { frame, .. }) => view.set_trace(frame, trace),
            }
            for piece in pieces {
                view.set_trace(piece, trace);
                tracer.note(trace, What::Queued(device));
            }
        });
    }

    /// Shows and records the drop of an observed packet.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_drop(&mut self, guard: Guard<'_>, frame: &mut Frame, reason: DropReason) {
        let Work { observers, tracer, pool, .. } = self;
        observers.show_dropped(guard, pool.region(), frame, reason);
        if observers.observes_any(Points::TRACE) {
            tracer.note_drop(pool.region().view(), frame, reason);
        }
    }

    /// Hands a port's waiting frames to its device, and records which of them it took.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_observed(&mut self, guard: Guard<'_>, port: usize) {
        let id = PortId(port as u16);
        self.show_waiting(guard, port);
        if !self.traces() {
            return self.transmit_unobserved(guard, port);
        }
        // By where their metadata is: a device may keep any of them, and a frame that has left is not ours to look
        // at any more.
        let mut departing = Vec::new();
        let Work { egresses, tracer, pool, .. } = self;
        let view = pool.region().view();
        for frame in egresses[port].waiting.iter_mut() {
            if let Some(trace) = tracer.remove_trace(view, frame) {
                departing.push((place_of(view, frame), trace));
            }
        }
        self.transmit_waiting(port);
        let Work { egresses, tracer, pool, .. } = self;
        let view = pool.region().view();
        let Egress { waiting, transmitter, .. } = &mut egresses[port];
        for frame in waiting.iter_mut() {
            let place = place_of(view, frame);
            if let Some(at) = departing.iter().position(|&(other, _)| other == place) {
                view.set_trace(frame, departing.remove(at).1);
            }
        }
        let queue = transmitter.queue();
        for (_, trace) in departing {
            tracer.note(trace, What::Transmitted { port: id, queue });
        }
        self.drop_unsent(guard, port);
    }
}

/// Where what is known of a frame is: of no other frame at the same time.
fn place_of(view: View<'_>, frame: &Frame) -> usize {
    std::ptr::from_ref(view.meta(frame)).addr()
}

/// How often routes, and what is known of neighbours, have changed.
fn generations(forwarder: &Forwarder) -> (u32, u32) {
    let tables = forwarder.tables();
    (tables.next_hops.generation(), tables.adjacencies.generation())
}

/// The TTL and the link header of an IP packet that is about to leave.
fn leaving_header(bytes: &[u8]) -> Option<(u8, ethernet::View<'_>)> {
    let link = ethernet::View::checked(bytes)?;
    let tags = [2, 1].into_iter().find(|&count| Tags::of(bytes, count).is_some()).unwrap_or(0);
    let ttl = match ip::View::quoted(bytes.get(HEADER_LEN + tags * VLAN_TAG_LEN..)?)? {
        ip::View::V4(view) => view.ttl(),
        ip::View::V6(view) => view.hop_limit(),
    };
    Some((ttl, link))
}
