//! Packets that wait for a neighbour: held, released in order, given up after a time.

use manylane_frame::vocabulary::{DropReason, Points, PortId};
use manylane_frame::{Frame, Holder, Steered};
use manylane_net::fib::NextHopId;
use manylane_net::neighbour::{HOLD_MAX_NS, Key};
use manylane_net::nexthop::dst::{Dst, DstRef};
use manylane_sync::rcu::{Guard, Index};

use super::samples::note_drop;
use super::turn::Turn;
use super::{Pending, State, Work};
use crate::stage::What;
use crate::stats::PortCount;

/// A neighbour that frames wait for.
#[doc(hidden)]
pub struct AwaitedNeighbour {
    pub key: Key,
    /// A counted reference on the frames' next hop, since it outlives the turn. With the neighbour's slot, which the
    /// reference keeps from being reused; or with the port only, when the neighbour had not been requested before.
    pub dst: DstRef,
    /// When this worker last requested the neighbour from the control thread.
    pub requested_ns: u64,
}

/// What a frame that was held keeps if it is held again: its age, and when its neighbour was requested.
/// Flows may move as often as they like; no frame is held for longer, and no neighbour is requested more often.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct PriorHold {
    pub since_ns: u64,
    pub key: Key,
    pub requested_ns: u64,
}

impl Work {
    /// Requests an unknown neighbour from the control thread: with the first frame that is
    /// held for it, and again every second, since a report may find no place.
    pub(super) fn request_neighbour(&mut self, frame: &Frame, key: Key, now_ns: u64) {
        let held = self.state.awaited.iter_mut().find(|held| held.key == key);
        let prior_hold = self.state.prior_hold.as_mut().filter(|prior_hold| prior_hold.key == key);
        let asked = held.map(|held| &mut held.requested_ns);
        match asked.or(prior_hold.map(|prior_hold| &mut prior_hold.requested_ns)) {
            Some(requested_ns) if now_ns.saturating_sub(*requested_ns) < REQUEST_INTERVAL_NS => {
                return;
            }
            Some(requested_ns) => *requested_ns = now_ns,
            None => {}
        }
        self.forwarder.report_missing_key(frame, key);
    }

    /// Holds a frame for a neighbour, whose dst this is.
    pub(super) fn hold(&mut self, turn: Turn<'_>, key: Key, dst: NextHopId, mut frame: Frame) {
        if self.is_draining() {
            return self.drop_frame(turn.guard, frame, DropReason::WorkerRemoved);
        }
        let Some(dst) = self.dsts.borrow(
            turn.guard,
            Index::<()>::new(turn.guard, dst.raw().into()),
            self.state.batch_generation,
        ) else {
            // The neighbour was removed while this packet was on its way to it.
            return self.drop_frame(turn.guard, frame, DropReason::NeighbourFailed);
        };
        let slot = dst.facts().neighbour;
        let region = self.pool.region();
        let (ingress, frames) = (region.meta(&frame).ingress, region.meta(&frame).frames());
        region.note(&frame, Holder::Hold);
        let trace = self.trace_of(&frame);
        // What was held before takes no place from others: a list of them may be on its way back.
        if self.state.prior_hold.is_none() {
            self.make_place(turn, key, frames);
        }
        let steered = self.steered(&mut frame);
        let Work {
            state: State { prior_hold, .. },
            holds,
            stats,
            pool,
            handoff,
            observers,
            tracer,
            sampler,
            ..
        } = self;
        if let (Some(handoff), Some(steered)) = (&*handoff, steered)
            && handoff.release_requests.is_requested_by(steered.receiver)
        {
            return self.drop_frame(turn.guard, frame, DropReason::QueueMoved);
        }
        let since_ns = prior_hold.map_or(turn.now_ns, |prior_hold| prior_hold.since_ns);
        let requested_ns = prior_hold
            .filter(|prior_hold| prior_hold.key == key)
            .map(|prior_hold| prior_hold.requested_ns);
        let held = holds.push(key, frame, frames, since_ns, |mut oldest| {
            let meta = pool.region().meta(&oldest);
            let ingress = meta.ingress;
            if let Some(handoff) = handoff {
                handoff.note_released(meta);
            }
            stats.change(ingress, PortCount::Held, -1);
            observers.show_dropped(turn.guard, pool.region(), &oldest, DropReason::HoldOverflow);
            if observers.observes_any(Points::TRACE) {
                tracer.note_drop(pool.region().view(), &mut oldest, DropReason::HoldOverflow);
            }
            stats.dropped(ingress, DropReason::HoldOverflow);
            note_drop(sampler, pool, &oldest, DropReason::HoldOverflow, turn.now_ns);
            pool.give_back(oldest);
        });
        match held {
            Ok(()) => {
                if let Some(trace) = trace {
                    self.tracer.note(trace, What::Held(key));
                }
                if let (Some(handoff), Some(steered)) = (&mut self.handoff, steered) {
                    handoff.note_held(steered);
                }
                self.count_held(ingress, 1);
            }
            Err(frame) => return self.drop_frame(turn.guard, frame, DropReason::HoldFull),
        }
        self.note_held_generation();
        self.note_awaited(turn, key, dst, requested_ns);
        self.release_if_answered(turn, key, slot);
    }

    /// How a packet arrived that is about to be held, if packets are steered by flow.
    fn steered(&self, frame: &mut Frame) -> Option<Steered> {
        let is_held_again = self.state.prior_hold.is_some();
        let handoff = self.handoff.as_ref()?;
        Some(handoff.steered(self.pool.region(), frame, is_held_again))
    }

    /// Makes place for a packet that a bound of the worker would refuse: the packets that have waited longest give way,
    /// for a neighbour that is not there, most likely. So a scan of addresses that no station has keeps no packet to a
    /// station from waiting.
    fn make_place(&mut self, turn: Turn<'_>, key: Key, frames: usize) {
        while let Some(oldest) = self.holds.gives_way(key, frames, turn.now_ns) {
            let HeldRange { first, end, .. } = self.take_held(turn.guard, oldest);
            for at in first..end {
                let frame = self.state.released[at].take().expect("each place is emptied once");
                self.drop_frame(turn.guard, frame, DropReason::HoldOverflow);
            }
            self.state.released.truncate(first);
        }
    }

    /// Releases a packet that was just held, if its neighbour has answered since the verdict, which is as old as the
    /// batch: frames behind the packet may have a verdict to leave. Then the packet leaves now, behind those held
    /// before (I3).
    fn release_if_answered(&mut self, turn: Turn<'_>, key: Key, slot: Option<u32>) {
        if !self.is_waiting(turn.guard, key, slot) {
            match self.is_current(self.state.held_generation) {
                true => _ = self.release(turn, key),
                false => _ = self.reroute_held(turn, Vec::new()),
            }
        }
    }

    /// Notes the generation of a packet that is now held: all held packets were looked up at one generation, or are to
    /// be looked up again.
    fn note_held_generation(&mut self) {
        let State { awaited, batch_generation, held_generation, .. } = &mut self.state;
        if awaited.is_empty() || (batch_generation.wrapping_sub(*held_generation) as i32) < 0 {
            *held_generation = *batch_generation;
        }
    }

    /// Notes the neighbour that a held packet waits for, with a reference on its next hop.
    fn note_awaited(&mut self, turn: Turn<'_>, key: Key, dst: Dst<'_>, requested_ns: Option<u64>) {
        let slot = dst.facts().neighbour;
        let Work { state: State { awaited, .. }, dsts, .. } = self;
        match awaited.iter_mut().find(|held| held.key == key) {
            // Only its link was known.
            Some(held) if slot.is_some() && slot != dsts.facts(&held.dst).neighbour => {
                let former = std::mem::replace(&mut held.dst, dsts.hold(dst));
                dsts.put(turn.guard, former);
            }
            Some(_) => {}
            None => {
                let requested_ns = requested_ns.unwrap_or(turn.now_ns);
                awaited.push(AwaitedNeighbour { key, dst: dsts.hold(dst), requested_ns });
            }
        }
    }

    /// Whether packets held for `key` must continue to wait. While this worker holds their dst, no other neighbour gets the slot.
    fn is_waiting(&self, guard: Guard<'_>, key: Key, slot: Option<u32>) -> bool {
        self.forwarder.is_waiting(guard, key, slot.map(|slot| Index::new(guard, slot)))
    }

    /// Dispatches packets held for neighbours that are resolved, or lost, by now; before anything newer
    /// is sent to them, so that holding reorders nothing (I3). Returns how many frames moved.
    #[inline]
    #[doc(hidden)]
    pub fn release_held(&mut self, turn: Turn<'_>) -> usize {
        if self.state.awaited.is_empty() { 0 } else { self.release_ready(turn) }
    }

    #[cold]
    fn release_ready(&mut self, turn: Turn<'_>) -> usize {
        let is_current = self.is_current(self.state.held_generation);
        let mut moved = if is_current { 0 } else { self.reroute_held(turn, Vec::new()) };
        // The sleep compares this generation. Here each is looked at: a verdict may know of an adjacency whose generation
        // is still to come.
        self.state.neighbour_generation = self.forwarder.tables().adjacencies.generation();
        let mut at = 0;
        while let Some(AwaitedNeighbour { key, dst, .. }) = self.state.awaited.get(at) {
            let (key, slot) = (*key, self.dsts.facts(dst).neighbour);
            if self.is_waiting(turn.guard, key, slot) {
                at += 1;
            } else {
                moved += self.release(turn, key); // The next one has come to its place.
            }
        }
        while let Some(key) = self.holds.expired(turn.now_ns, HOLD_MAX_NS) {
            let HeldRange { first, end, prior_hold } = self.take_held(turn.guard, key);
            for at in first..end {
                let mut frame = self.state.released[at].take().expect("each place is emptied once");
                self.state.batch_generation = self.forwarder.tables().next_hops.generation();
                if let Some(trace) = self.trace_of(&frame) {
                    let waited_ns = prior_hold
                        .map_or(0, |prior_hold| turn.now_ns.saturating_sub(prior_hold.since_ns));
                    self.tracer.note(trace, What::GivenUp { waited_ns });
                }
                let verdict = self.forwarder.give_up(&mut turn.lend(&mut self.pool), &mut frame);
                self.dispatch(turn, frame, &verdict);
            }
            self.state.released.truncate(first);
            moved += end - first;
        }
        moved
    }

    /// Dispatches the packets held for one neighbour, oldest first. Returns the number of frames.
    fn release(&mut self, turn: Turn<'_>, key: Key) -> usize {
        let HeldRange { first, end, prior_hold } = self.take_held(turn.guard, key);
        let former = std::mem::replace(&mut self.state.prior_hold, prior_hold);
        for at in first..end {
            let mut frame = self.state.released[at].take().expect("each place is emptied once");
            let explained = self.explain(turn.guard, at, &frame);
            let verdict = self.forwarder.resume(&mut turn.lend(&mut self.pool), &mut frame);
            if let Some(explained) = explained {
                self.note_released(&explained, &frame, &verdict);
            }
            if !self.is_current(self.state.held_generation) {
                let prior_hold = self.state.prior_hold;
                let mut newer = vec![Pending { frame, verdict: Some(verdict), prior_hold }];
                let rest = self.state.released.drain(at + 1..end).flatten();
                newer.extend(rest.map(|frame| Pending { frame, verdict: None, prior_hold }));
                self.reroute_held(turn, newer);
                break;
            }
            self.state.batch_generation = self.state.held_generation;
            self.dispatch(turn, frame, &verdict);
        }
        self.state.prior_hold = former;
        self.state.released.truncate(first);
        end - first
    }

    /// Moves what is held for `key` to a place in `released`, oldest first.
    ///
    /// All are out of the hold before the first is dealt with: a frame may come to be held again, and
    /// even to be released again, meanwhile. Then its places in the list are behind ours.
    fn take_held(&mut self, guard: Guard<'_>, key: Key) -> HeldRange {
        let Work { state: State { awaited, released, .. }, dsts, holds, .. } = self;
        let mut prior_hold = None;
        for AwaitedNeighbour { dst, requested_ns, .. } in
            awaited.extract_if(.., |held| held.key == key)
        {
            prior_hold =
                holds.since_ns(key).map(|since_ns| PriorHold { since_ns, key, requested_ns });
            dsts.put(guard, dst);
        }
        let first = released.len();
        released.extend(holds.take(key).map(Some));
        let end = released.len();
        for at in first..end {
            let frame = self.state.released[at].take().expect("it was just put there");
            self.no_longer_held(&frame);
            self.state.released[at] = Some(frame);
        }
        HeldRange { first, end, prior_hold }
    }

    /// Drops held packets of receivers that have requested their release.
    #[cold]
    pub(super) fn drop_held_on_request(&mut self, guard: Guard<'_>) {
        for at in 0..self.state.awaited.len() {
            let key = self.state.awaited[at].key;
            let Some(since_ns) = self.holds.since_ns(key) else { continue };
            let frames: Vec<Frame> = self.holds.take(key).collect();
            for frame in frames {
                let meta = self.pool.region().meta(&frame);
                let (steered, frames) = (meta.steered(), meta.frames());
                let receiver = steered.expect("what is held says how it came").receiver;
                let handoff = self.handoff.as_ref();
                if handoff.is_some_and(|handoff| handoff.release_requests.is_requested_by(receiver))
                {
                    self.no_longer_held(&frame);
                    self.drop_frame(guard, frame, DropReason::QueueMoved);
                    continue;
                }
                let again = self.holds.push(key, frame, frames, since_ns, |_| {
                    unreachable!("the queue had room for more");
                });
                assert!(again.is_ok(), "all of them had a place");
            }
        }
        let Work { state: State { awaited, .. }, holds, dsts, .. } = self;
        for held in awaited.extract_if(.., |held| !holds.contains(held.key)) {
            dsts.put(guard, held.dst);
        }
    }

    /// Gives back what is still held when the worker stops, or drains.
    #[doc(hidden)]
    pub fn drop_held(&mut self, guard: Guard<'_>) {
        for held in self.state.awaited.drain(..) {
            self.dsts.put(guard, held.dst);
        }
        let reason =
            if self.is_draining() { DropReason::WorkerRemoved } else { DropReason::Shutdown };
        let frames: Vec<Frame> = self.holds.drain_all().collect();
        for frame in frames {
            self.no_longer_held(&frame);
            self.drop_frame(guard, frame, reason);
        }
    }

    fn count_held(&mut self, ingress: PortId, by: i64) {
        self.stats.change(ingress, PortCount::Held, by);
    }

    pub(super) fn no_longer_held(&mut self, frame: &Frame) {
        let meta = self.pool.region().meta(frame);
        let ingress = meta.ingress;
        if let Some(handoff) = &mut self.handoff {
            handoff.note_released(meta);
        }
        self.count_held(ingress, -1);
    }
}

/// How often to request an unknown neighbour.
const REQUEST_INTERVAL_NS: u64 = 1_000_000_000;

/// Where in `released` a neighbour's frames are, and how long they have waited.
struct HeldRange {
    first: usize,
    end: usize,
    prior_hold: Option<PriorHold>,
}
