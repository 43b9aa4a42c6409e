//! What becomes of each frame, done: the worker's half of a verdict.

use manylane_frame::vocabulary::{Checksum, Created, DropReason, PortId, QueueId};
use manylane_frame::{Batch, Frame, Holder, Trace};
use manylane_io::port::Sent;
use manylane_net::fib::NextHopId;
use manylane_net::forward::{Fate, Origin, PrepareError, Prepared, Turn, Verdict, Verdicts};
use manylane_net::neighbour::{HOLD_MAX_NS, Key};
use manylane_sync::rcu::{Guard, Index};

use super::turn::Tally;
use super::{AwaitedNeighbour, Egress, Order, Pending, PriorHold, Work};
use crate::stage::What;
use crate::stats::{PortCount, WorkerCount};
use manylane_frame::vocabulary::Points;
use manylane_net::nexthop::ids::{connected_id, neighbour_id};

impl Work {
    /// Carries out the verdicts on a batch, in its order.
    #[inline(never)]
    pub(super) fn dispatch_all<'g>(
        &mut self,
        guard: Guard<'g>,
        batch: &mut Batch,
        verdicts: &Verdicts<'g>,
        now_ns: u64,
    ) {
        // To one port, as on a router with one uplink: its frames need no look each.
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
                        self.queue_when_full(guard, egress, frame);
                    }
                }
                None => {
                    let verdict = others.next().expect("there is one for each that does not leave");
                    self.dispatch(guard, frame, verdict, now_ns);
                }
            }
        });
    }

    /// Carries out one verdict.
    #[cold]
    #[doc(hidden)]
    pub fn dispatch<'g>(
        &mut self,
        guard: Guard<'g>,
        mut frame: Frame,
        verdict: &Verdict<'g>,
        now_ns: u64,
    ) {
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
            }
        }
        match verdict.fate {
            Fate::Transmit(port) => self.queue(guard, port, frame),
            Fate::Fragment(port) | Fate::Prepare(port) => match trace {
                None => self.prepare(guard, port, frame),
                Some(trace) => self.prepare_traced(guard, port, frame, trace),
            },
            Fate::Deliver => {
                self.stats.count(ingress, PortCount::Delivered, 1);
                if trace.is_some() {
                    self.pool.region().view().set_trace(&mut frame, Trace::NONE);
                }
                self.pool.give_back(frame);
            }
            Fate::Hold(neighbour) => {
                let key = self.forwarder.key(guard, neighbour);
                if key.addr.is_unspecified() {
                    // It was removed, after it had failed, while this packet was on its way to it.
                    return self.drop_frame(guard, frame, DropReason::NeighbourFailed);
                }
                self.hold(guard, key, neighbour_id(neighbour.raw()), frame, now_ns);
            }
            Fate::Glean(port) => match self.forwarder.destination(&frame) {
                Some(addr) => {
                    let key = Key { port, addr };
                    self.request_neighbour(key, now_ns);
                    self.hold(guard, key, connected_id(port), frame, now_ns);
                }
                None => self.drop_frame(guard, frame, DropReason::Truncated),
            },
            Fate::Drop(reason) => self.drop_frame(guard, frame, reason),
        }
    }

    /// Sends the redirects that are due about packets that are being passed on.
    #[cold]
    pub(super) fn redirect<'g>(
        &mut self,
        guard: Guard<'g>,
        batch: &Batch,
        verdicts: &Verdicts<'g>,
        now_ns: u64,
    ) {
        for (frame, verdict) in batch.iter().zip(&verdicts.list()) {
            let made = self.forwarder.redirect(
                &mut Turn { guard, pool: &mut self.pool, now_ns },
                frame,
                verdict,
            );
            let Some((made, fate)) = made else { continue };
            if let Some(trace) = self.trace_of(frame) {
                self.tracer.note(trace, What::Redirected);
            }
            let ingress = self.pool.region().meta(&made).ingress;
            self.stats.created(ingress, Created::Redirect);
            let verdict = Verdict { fate, origin: Origin::Received };
            self.dispatch(guard, made, &verdict, now_ns);
        }
    }

    /// Puts a frame behind those that wait for the end of the turn.
    pub(super) fn queue(&mut self, guard: Guard<'_>, port: PortId, frame: Frame) {
        if let Err(frame) = self.egresses[port.index()].waiting.push(frame) {
            self.queue_when_full(guard, port.index(), frame);
        }
    }

    /// As `queue`, where no more can wait.
    #[cold]
    fn queue_when_full(&mut self, guard: Guard<'_>, port: usize, frame: Frame) {
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

    /// As `transmit_port`, where nobody looks.
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
            // The ring is full. Let the device look, take back what it has finished, and try again.
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

    /// As `drop_frame`, where nobody looks any more.
    pub(super) fn discard(&mut self, frame: Frame, reason: DropReason) {
        let ingress = self.pool.region().meta(&frame).ingress;
        self.stats.dropped(ingress, reason);
        self.pool.give_back(frame);
    }

    /// Makes of a packet what its egress takes, and queues that in order.
    pub(super) fn prepare(&mut self, guard: Guard<'_>, port: PortId, frame: Frame) {
        self.prepare_as(guard, port, frame, |_, _, _| {});
    }

    /// The same. `made` is told how it was made into which pieces, or of the packet that could not be.
    #[inline(always)]
    pub(super) fn prepare_as(
        &mut self,
        guard: Guard<'_>,
        port: PortId,
        frame: Frame,
        made: impl FnOnce(&mut Work, &mut Result<Prepared, PrepareError>, &mut [Frame]),
    ) {
        let ingress = self.pool.region().meta(&frame).ingress;
        let mut pieces = std::mem::take(&mut self.pieces);
        let sample = self.samples_order().then(|| self.pool.region().meta(&frame).sample());
        let mut prepared = self.forwarder.prepare(&mut self.pool, frame, port, &mut pieces);
        let port = self.forwarder.device(port);
        made(self, &mut prepared, &mut pieces);
        match prepared {
            Ok(Prepared { completed, joined, cut, fragments }) => {
                let stats = &mut self.stats;
                stats.created_many(ingress, Created::Segment, cut.into());
                stats.created_many(ingress, Created::Fragment, fragments.into());
                let segments = if cut > 0 { cut + 1 } else { 0 };
                stats.count(port, PortCount::SegmentsCut, segments.into());
                stats.count(port, PortCount::ChecksumsCompleted, completed.into());
                stats.count(port, PortCount::ChainsJoined, joined.into());
            }
            Err(PrepareError { frame, reason }) => self.drop_frame(guard, frame, reason),
        }
        for mut piece in pieces.drain(..) {
            if let Some(sample) = sample {
                self.pool.region().view().set_sample(&mut piece, sample); // It leaves in the packet's place.
            }
            self.queue(guard, port, piece);
        }
        self.pieces = pieces;
    }

    /// ReleaseRequests the control thread for a neighbour that nobody has heard of: with the first frame that is
    /// held for it, and again every second, since a report may find no place.
    fn request_neighbour(&mut self, key: Key, now_ns: u64) {
        let held = self.awaited.iter_mut().find(|held| held.key == key);
        let prior_hold = self.prior_hold.as_mut().filter(|prior_hold| prior_hold.key == key);
        let asked = held.map(|held| &mut held.requested_ns);
        match asked.or(prior_hold.map(|prior_hold| &mut prior_hold.requested_ns)) {
            Some(requested_ns) if now_ns.saturating_sub(*requested_ns) < REQUEST_INTERVAL_NS => {
                return;
            }
            Some(requested_ns) => *requested_ns = now_ns,
            None => {}
        }
        self.forwarder.report_missing_key(key);
    }

    /// Holds a frame for a neighbour, whose dst this is.
    fn hold(&mut self, guard: Guard<'_>, key: Key, dst: NextHopId, mut frame: Frame, now_ns: u64) {
        if self.is_draining() {
            return self.drop_frame(guard, frame, DropReason::WorkerRemoved);
        }
        let Some(dst) = self.dsts.borrow(
            guard,
            Index::<()>::new(guard, dst.raw().into()),
            self.batch_generation,
        ) else {
            // It was removed while this packet was on its way to it.
            return self.drop_frame(guard, frame, DropReason::NeighbourFailed);
        };
        let slot = dst.facts().neighbour;
        let region = self.pool.region();
        let (ingress, frames) = (region.meta(&frame).ingress, region.meta(&frame).frames());
        region.note(&frame, Holder::Hold);
        let trace = self.trace_of(&frame);
        let Work { holds, stats, pool, prior_hold, handoff, observers, tracer, .. } = self;
        let steered = handoff
            .as_ref()
            .map(|handoff| handoff.steered(pool.region(), &mut frame, prior_hold.is_some()));
        if let (Some(handoff), Some(steered)) = (&*handoff, steered)
            && handoff.release_requests.is_requested_by(steered.receiver)
        {
            return self.drop_frame(guard, frame, DropReason::QueueMoved);
        }
        let since_ns = prior_hold.map_or(now_ns, |prior_hold| prior_hold.since_ns);
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
            observers.show_dropped(guard, pool.region(), &oldest, DropReason::HoldOverflow);
            if observers.observes_any(Points::TRACE) {
                tracer.note_drop(pool.region().view(), &mut oldest, DropReason::HoldOverflow);
            }
            stats.dropped(ingress, DropReason::HoldOverflow);
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
            Err(frame) => return self.drop_frame(guard, frame, DropReason::HoldFull),
        }
        // All that is held was looked up at one generation, or is to be looked up again.
        if self.awaited.is_empty()
            || (self.batch_generation.wrapping_sub(self.held_generation) as i32) < 0
        {
            self.held_generation = self.batch_generation;
        }
        let Work { awaited, dsts, .. } = self;
        match awaited.iter_mut().find(|held| held.key == key) {
            // Only its link was known.
            Some(held) if slot.is_some() && slot != dsts.facts(&held.dst).neighbour => {
                let former = std::mem::replace(&mut held.dst, dsts.hold(dst));
                dsts.put(guard, former);
            }
            Some(_) => {}
            None => {
                let requested_ns = requested_ns.unwrap_or(now_ns);
                awaited.push(AwaitedNeighbour { key, dst: dsts.hold(dst), requested_ns });
            }
        }
        // The verdict is as old as the batch. If the neighbour has answered since, frames behind this
        // one may have a verdict to leave: then this one leaves now, behind those held before (I3).
        if !self.is_waiting(guard, key, slot) {
            match self.is_current(self.held_generation) {
                true => _ = self.release(guard, key, now_ns),
                false => _ = self.reroute_held(guard, Vec::new(), now_ns),
            }
        }
    }

    /// Whether what was looked up at this generation is what a lookup finds now.
    #[inline(always)]
    #[doc(hidden)]
    pub fn is_current(&self, batch_generation: u32) -> bool {
        batch_generation.is_multiple_of(2)
            && self.forwarder.tables().next_hops.generation() == batch_generation
    }

    /// Looks up again what is held, and what waits of the packets behind it, and carries all of it out: for
    /// when routes change. A flow that goes another way goes there in its order (I3; `nexthop` says why the
    /// newest is looked at first). Returns how many frames it was.
    ///
    /// Where a change is still under way after some looks, the last one is good enough for flows that leave,
    /// and the next turn looks again for those that wait. Nothing waits for the control thread (I4).
    #[cold]
    #[doc(hidden)]
    pub fn reroute_held<'g>(
        &mut self,
        guard: Guard<'g>,
        newer: Vec<Pending<'g>>,
        now_ns: u64,
    ) -> usize {
        let mut list = Vec::with_capacity(self.holds.len() + newer.len());
        for &AwaitedNeighbour { key, requested_ns, .. } in &self.awaited {
            let since_ns = self.holds.since_ns(key);
            let prior_hold = since_ns.map(|since_ns| PriorHold { since_ns, key, requested_ns });
            let held = self.holds.take(key);
            list.extend(held.map(|frame| Pending { frame, verdict: None, prior_hold }));
        }
        list.iter().for_each(|held| self.no_longer_held(&held.frame));
        list.extend(newer);
        let mut batch_generation = 0;
        let mut explained = Vec::new();
        for _ in 0..LOOKUPS_MAX {
            batch_generation = self.forwarder.tables().next_hops.generation();
            for (place, Pending { frame, verdict, .. }) in list.iter_mut().enumerate().rev() {
                let origin = match *verdict {
                    None => Origin::Received,
                    Some(Verdict { fate: Fate::Hold(_) | Fate::Glean(_), origin }) => origin,
                    Some(_) => continue,
                };
                explained.extend(self.explain(guard, place, frame));
                let look =
                    self.forwarder.resume(&mut Turn { guard, pool: &mut self.pool, now_ns }, frame);
                // What the packet was made of is counted when it is carried out, once.
                let origin = if origin == Origin::Received { look.origin } else { origin };
                *verdict = Some(Verdict { origin, ..look });
            }
            if self.is_current(batch_generation) {
                break;
            }
        }
        self.held_generation = batch_generation;
        let frames = list.len();
        let former = self.prior_hold;
        for (place, Pending { frame, verdict, prior_hold }) in list.into_iter().enumerate() {
            (self.batch_generation, self.prior_hold) = (batch_generation, prior_hold);
            let verdict = verdict.expect("each was looked up");
            self.note_rerouted(&explained, place, &frame, &verdict);
            self.dispatch(guard, frame, &verdict, now_ns);
        }
        self.prior_hold = former;
        let Work { awaited, holds, dsts, .. } = self;
        for held in awaited.extract_if(.., |held| !holds.contains(held.key)) {
            dsts.put(guard, held.dst);
        }
        frames
    }

    /// As [`settle`](Work::settle), for a batch that was judged while routes changed. What does not wait keeps its
    /// verdict, and its place.
    #[cold]
    pub(super) fn reroute_batch<'g>(
        &mut self,
        guard: Guard<'g>,
        batch: &mut Batch,
        verdicts: &Verdicts<'g>,
        now_ns: u64,
    ) {
        let frames = batch.drain().zip(verdicts.list());
        let pending = frames.map(|(frame, verdict)| Pending {
            frame,
            verdict: Some(verdict),
            prior_hold: None,
        });
        self.reroute_held(guard, pending.collect(), now_ns);
    }

    /// Whether what is held for `key` must go on waiting. While its dst is held, the slot is no other's.
    fn is_waiting(&self, guard: Guard<'_>, key: Key, slot: Option<u32>) -> bool {
        self.forwarder.is_waiting(guard, key, slot.map(|slot| Index::new(guard, slot)))
    }

    /// Sends on what is held for neighbours that are resolved, or lost, by now; before anything newer
    /// goes to them, so that holding reorders nothing (I3). Returns how many frames moved.
    #[inline]
    #[doc(hidden)]
    pub fn release_held(&mut self, guard: Guard<'_>, now_ns: u64) -> usize {
        if self.awaited.is_empty() { 0 } else { self.release_ready(guard, now_ns) }
    }

    #[cold]
    fn release_ready(&mut self, guard: Guard<'_>, now_ns: u64) -> usize {
        let is_current = self.is_current(self.held_generation);
        let mut moved = if is_current { 0 } else { self.reroute_held(guard, Vec::new(), now_ns) };
        // For the way to sleep. Here each is looked at: a verdict may know of an adjacency whose generation
        // is still to come.
        self.neighbour_generation = self.forwarder.tables().adjacencies.generation();
        let mut at = 0;
        while let Some(AwaitedNeighbour { key, dst, .. }) = self.awaited.get(at) {
            let (key, slot) = (*key, self.dsts.facts(dst).neighbour);
            if self.is_waiting(guard, key, slot) {
                at += 1;
            } else {
                moved += self.release(guard, key, now_ns); // The next one has come to its place.
            }
        }
        while let Some(key) = self.holds.expired(now_ns, HOLD_MAX_NS) {
            let HeldRange { first, end, prior_hold } = self.take_held(guard, key);
            for at in first..end {
                let mut frame = self.released[at].take().expect("each place is emptied once");
                self.batch_generation = self.forwarder.tables().next_hops.generation();
                if let Some(trace) = self.trace_of(&frame) {
                    let waited_ns = prior_hold
                        .map_or(0, |prior_hold| now_ns.saturating_sub(prior_hold.since_ns));
                    self.tracer.note(trace, What::GivenUp { waited_ns });
                }
                let verdict = self
                    .forwarder
                    .give_up(&mut Turn { guard, pool: &mut self.pool, now_ns }, &mut frame);
                self.dispatch(guard, frame, &verdict, now_ns);
            }
            self.released.truncate(first);
            moved += end - first;
        }
        moved
    }

    /// Sends on what is held for one neighbour, oldest first. Returns how many frames there were.
    fn release(&mut self, guard: Guard<'_>, key: Key, now_ns: u64) -> usize {
        let HeldRange { first, end, prior_hold } = self.take_held(guard, key);
        let former = std::mem::replace(&mut self.prior_hold, prior_hold);
        for at in first..end {
            let mut frame = self.released[at].take().expect("each place is emptied once");
            let explained = self.explain(guard, at, &frame);
            let verdict = self
                .forwarder
                .resume(&mut Turn { guard, pool: &mut self.pool, now_ns }, &mut frame);
            if let Some(explained) = explained {
                self.note_released(&explained, &frame, &verdict);
            }
            if !self.is_current(self.held_generation) {
                let prior_hold = self.prior_hold;
                let mut newer = vec![Pending { frame, verdict: Some(verdict), prior_hold }];
                let rest = self.released.drain(at + 1..end).flatten();
                newer.extend(rest.map(|frame| Pending { frame, verdict: None, prior_hold }));
                self.reroute_held(guard, newer, now_ns);
                break;
            }
            self.batch_generation = self.held_generation;
            self.dispatch(guard, frame, &verdict, now_ns);
        }
        self.prior_hold = former;
        self.released.truncate(first);
        end - first
    }

    /// Moves what is held for `key` to a place in `released`, oldest first.
    ///
    /// All are out of the hold before the first is dealt with: a frame may come to be held again, and
    /// even to be released again, meanwhile. Then its places in the list are behind ours.
    fn take_held(&mut self, guard: Guard<'_>, key: Key) -> HeldRange {
        let Work { awaited, dsts, released, holds, .. } = self;
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
            let frame = self.released[at].take().expect("it was just put there");
            self.no_longer_held(&frame);
            self.released[at] = Some(frame);
        }
        HeldRange { first, end, prior_hold }
    }

    /// Drops what is held of what came by receivers that ask for it.
    #[cold]
    pub(super) fn drop_held_on_request(&mut self, guard: Guard<'_>) {
        for at in 0..self.awaited.len() {
            let key = self.awaited[at].key;
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
                    unreachable!("there was room for more");
                });
                assert!(again.is_ok(), "all of them had a place");
            }
        }
        let Work { awaited, holds, dsts, .. } = self;
        for held in awaited.extract_if(.., |held| !holds.contains(held.key)) {
            dsts.put(guard, held.dst);
        }
    }

    /// Gives back what is still held when the worker stops, or leaves.
    #[doc(hidden)]
    pub fn drop_held(&mut self, guard: Guard<'_>) {
        for held in self.awaited.drain(..) {
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

    /// Sends what the control thread asked for. What there is no frame for waits for one, and what comes behind
    /// it waits in the ring.
    #[inline]
    pub(super) fn send_orders(&mut self, guard: Guard<'_>) -> usize {
        let mut moved = 0;
        while let Some(order) = self.order.take().or_else(|| self.orders.pop()) {
            let Some(mut frame) = self.pool.take() else {
                self.order = Some(order);
                break;
            };
            moved += 1;
            let (key, created, made) = self.write_order(order, &mut frame);
            match made {
                Some(port) => {
                    self.stats.created(key.port, created);
                    self.queue(guard, port, frame);
                }
                // A port without an address of that family asks nobody; or it was lost just now.
                None => {
                    self.stats.worker(WorkerCount::OrdersLost, 1);
                    self.pool.give_back(frame);
                }
            }
        }
        if moved > 0 {
            self.orders.release();
        }
        moved
    }

    /// Writes the packet that the control thread wants into a fresh frame; says whom it is about, what it is,
    /// and by which port's device it leaves.
    fn write_order(&mut self, order: Order, frame: &mut Frame) -> (Key, Created, Option<PortId>) {
        let (Order::Solicit { key, .. } | Order::Probe { key } | Order::Announce { key }) = order;
        let region = self.pool.region();
        region.set_ingress(frame, key.port, QueueId(0), Checksum::Valid);
        region.meta_mut(frame).own = true;
        let (created, device) = match order {
            Order::Solicit { unicast, .. } => {
                (Created::Solicitation, self.forwarder.solicit(frame, key, unicast))
            }
            Order::Probe { .. } => (Created::Solicitation, self.forwarder.probe(frame, key)),
            Order::Announce { .. } => (Created::Announcement, self.forwarder.announce(frame, key)),
        };
        (key, created, device)
    }

    fn count_held(&mut self, ingress: PortId, by: i64) {
        self.stats.change(ingress, PortCount::Held, by);
    }

    fn no_longer_held(&mut self, frame: &Frame) {
        let meta = self.pool.region().meta(frame);
        let ingress = meta.ingress;
        if let Some(handoff) = &mut self.handoff {
            handoff.note_released(meta);
        }
        self.count_held(ingress, -1);
    }
}

/// How often to look again while routes change. A change is some hundred stores: it is over before.
const LOOKUPS_MAX: usize = 4;

/// How often to ask for a neighbour that nobody has heard of.
const REQUEST_INTERVAL_NS: u64 = 1_000_000_000;

/// Where in `released` a neighbour's frames are, and how long they have waited.
struct HeldRange {
    first: usize,
    end: usize,
    prior_hold: Option<PriorHold>,
}

/// What a device took, and how much of it was finished at once.
struct Transmitted {
    sent: Sent,
    completed: u64,
}
