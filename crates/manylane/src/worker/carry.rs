//! What becomes of each frame, done: the worker's half of a verdict.

use manylane_frame::vocabulary::{Checksum, Created, DropReason, PortId, QueueId};
use manylane_frame::{Frame, Holder};
use manylane_io::port::Sent;
use manylane_net::forward::{Fate, Origin, PrepareError, Prepared, Verdict};
use manylane_net::neighbour::{HOLD_MAX_NS, Key};
use manylane_sync::rcu::{Guard, Index};

use super::turn::Tally;
use super::{Exit, HeldFor, Order, Work};
use crate::stats::PortCount;

impl Work {
    /// Carries out one verdict. The ordinary one first.
    #[inline(always)]
    pub(super) fn carry_out<'g>(
        &mut self,
        guard: Guard<'g>,
        frame: Frame,
        verdict: &Verdict<'g>,
        now_ns: u64,
    ) {
        match verdict {
            Verdict { fate: Fate::Transmit(port), origin: Origin::Received } => {
                self.queue(*port, frame);
            }
            _ => self.carry_out_odd(guard, frame, verdict, now_ns),
        }
    }

    #[cold]
    fn carry_out_odd<'g>(
        &mut self,
        guard: Guard<'g>,
        frame: Frame,
        verdict: &Verdict<'g>,
        now_ns: u64,
    ) {
        let entry = self.pool.region().meta(&frame).entry;
        match verdict.origin {
            Origin::Received => {}
            Origin::Reply => {
                self.stats.count(entry, PortCount::Delivered, 1);
                self.stats.created(entry, Created::Reply);
            }
            Origin::Error(reason) => {
                self.stats.dropped(entry, reason);
                self.stats.created(entry, Created::Error);
            }
        }
        match verdict.fate {
            Fate::Transmit(port) => self.queue(port, frame),
            Fate::Fragment(port) | Fate::Prepare(port) => self.prepare(port, frame),
            Fate::Deliver => {
                self.stats.count(entry, PortCount::Delivered, 1);
                self.pool.give_back(frame);
            }
            Fate::Hold(_) if self.flows_moved() => self.judge_again(guard, frame, now_ns),
            Fate::Hold(neighbour) => {
                let key = self.forwarder.key(guard, neighbour);
                if key.addr.is_unspecified() {
                    // It was removed, after it had failed, while this packet was on its way to it.
                    return self.drop_frame(frame, DropReason::NeighbourFailed);
                }
                self.hold(guard, key, Some(neighbour.raw()), frame, now_ns);
            }
            Fate::Glean(port) => match self.forwarder.destination(&frame) {
                Some(addr) => {
                    let key = Key { port, addr };
                    self.ask_for(key, now_ns);
                    self.hold(guard, key, None, frame, now_ns);
                }
                None => self.drop_frame(frame, DropReason::Truncated),
            },
            Fate::Drop(reason) => self.drop_frame(frame, reason),
        }
    }

    /// Puts a frame behind those that wait for the end of the turn.
    #[inline(always)]
    fn queue(&mut self, port: PortId, frame: Frame) {
        if let Err(frame) = self.exits[port.index()].waiting.push(frame) {
            self.transmit_port(port.index());
            let again = self.exits[port.index()].waiting.push(frame);
            again.expect("transmitting has emptied the batch");
        }
    }

    /// Hands a port's waiting frames to its device. What finds no place is dropped.
    #[inline]
    pub(super) fn transmit_port(&mut self, port: usize) {
        let held = self.exits[port].transmitter.held();
        let mut done = self.hand_over(port);
        if !self.exits[port].waiting.is_empty() {
            // The ring is full. Let the device look, take back what it has finished, and try again.
            self.exits[port].transmitter.flush();
            self.reclaim();
            let again = self.hand_over(port);
            done.sent.frames += again.sent.frames;
            done.sent.bytes += again.sent.bytes;
            done.completed += again.completed;
        }
        let HandedOver { sent, completed } = done;
        let id = PortId(port as u16);
        self.stats.count(id, PortCount::Sent, sent.frames as u64);
        self.stats.count(id, PortCount::SentBytes, sent.bytes);
        self.stats.count(id, PortCount::Completed, completed);
        let exit = &mut self.exits[port];
        exit.owing |= sent.frames > 0 || exit.transmitter.held() < held;
        if !self.exits[port].waiting.is_empty() {
            self.drop_waiting(port);
        }
    }

    /// Gives the device as many of a port's waiting frames as it takes.
    #[inline]
    fn hand_over(&mut self, port: usize) -> HandedOver {
        let Work { exits, stats, pool, .. } = self;
        let Exit { transmitter, waiting, .. } = &mut exits[port];
        let mut tally = Tally::default();
        let mut completed = 0;
        let sent = transmitter.transmit(pool, waiting, |entry| {
            completed += 1;
            tally.add(entry, stats);
        });
        tally.settle(stats);
        HandedOver { sent, completed }
    }

    #[cold]
    fn drop_waiting(&mut self, port: usize) {
        let mut left = std::mem::take(&mut self.exits[port].waiting);
        for frame in left.drain() {
            self.drop_frame(frame, DropReason::TransmitRingFull);
        }
    }

    pub(super) fn drop_frame(&mut self, frame: Frame, reason: DropReason) {
        let entry = self.pool.region().meta(&frame).entry;
        self.stats.dropped(entry, reason);
        self.pool.give_back(frame);
    }

    /// Makes of a packet what its exit takes, and queues that in order.
    fn prepare(&mut self, port: PortId, frame: Frame) {
        let entry = self.pool.region().meta(&frame).entry;
        let mut pieces = std::mem::take(&mut self.pieces);
        let prepared = self.forwarder.prepare(&mut self.pool, frame, port, &mut pieces);
        let port = self.forwarder.device(port);
        match prepared {
            Ok(Prepared { completed, joined, cut, fragments }) => {
                let stats = &mut self.stats;
                stats.created_many(entry, Created::Segment, cut.into());
                stats.created_many(entry, Created::Fragment, fragments.into());
                let segments = if cut > 0 { cut + 1 } else { 0 };
                stats.count(port, PortCount::SegmentsCut, segments.into());
                stats.count(port, PortCount::ChecksumsCompleted, completed.into());
                stats.count(port, PortCount::ChainsJoined, joined.into());
            }
            Err(PrepareError { frame, reason }) => self.drop_frame(frame, reason),
        }
        pieces.drain(..).for_each(|piece| self.queue(port, piece));
        self.pieces = pieces;
    }

    /// Asks the control thread for a neighbour that nobody has heard of: with the first frame that is
    /// held for it, and again every second, since a report may find no place.
    fn ask_for(&mut self, key: Key, now_ns: u64) {
        match self.held_for.iter_mut().find(|held| held.key == key) {
            Some(held) if now_ns.saturating_sub(held.asked_ns) < ASK_INTERVAL_NS => return,
            Some(held) => held.asked_ns = now_ns,
            None => {}
        }
        self.forwarder.report_missing_key(key);
    }

    fn hold(
        &mut self,
        guard: Guard<'_>,
        key: Key,
        slot: Option<u32>,
        mut frame: Frame,
        now_ns: u64,
    ) {
        let region = self.pool.region();
        let (entry, frames) = (region.meta(&frame).entry, region.meta(&frame).frames());
        region.note(&frame, Holder::Hold);
        let Work { holds, stats, pool, handoff, .. } = self;
        let steered = handoff.as_mut().map(|handoff| handoff.steered(pool.region(), &mut frame));
        let held = holds.push(key, frame, frames, now_ns, |oldest| {
            let meta = pool.region().meta(&oldest);
            let entry = meta.entry;
            if let Some(handoff) = handoff {
                handoff.let_go(meta);
            }
            stats.change(entry, PortCount::Held, -1);
            stats.dropped(entry, DropReason::HoldOverflow);
            pool.give_back(oldest);
        });
        match held {
            Ok(()) => {
                if let (Some(handoff), Some(steered)) = (&mut self.handoff, steered) {
                    handoff.hold(steered);
                }
                self.held_changed(entry, 1);
            }
            Err(frame) => return self.drop_frame(frame, DropReason::HoldFull),
        }
        match self.held_for.iter_mut().find(|held| held.key == key) {
            Some(held) => held.slot = slot.or(held.slot),
            None => self.held_for.push(HeldFor { key, slot, asked_ns: now_ns }),
        }
        // The verdict is as old as the batch. If the neighbour has answered since, frames behind this
        // one may have a verdict to leave: then this one leaves now, behind those held before (I3).
        if !self.is_waiting(guard, key, slot) {
            self.release(guard, key, now_ns);
        }
    }

    /// Whether flows have moved to other members of their groups since what is held was last judged.
    fn flows_moved(&self) -> bool {
        self.forwarder.tables().next_hops.moves() != self.moves
    }

    /// Judges a packet that was to be held when flows moved: its verdict may be older. What it finds, what
    /// is held of its flow must find too, and first (I3).
    fn judge_again(&mut self, guard: Guard<'_>, mut frame: Frame, now_ns: u64) {
        self.judge_held(guard, now_ns);
        let verdict = self.forwarder.resume(guard, &mut self.pool, &mut frame, now_ns);
        let moves = self.moves;
        if self.flows_moved() {
            self.judge_held(guard, now_ns);
        }
        let late = self.moves != moves;
        // Held, it is judged no more today; but if it is older than the last look, again in the next turn.
        self.carry_out(guard, frame, &verdict, now_ns);
        if late {
            self.moves = self.moves.wrapping_sub(1);
        }
    }

    /// Judges everything held anew: where a flow's bucket has moved, it leaves by its new neighbour, or
    /// waits for that. Returns how many frames were held.
    #[cold]
    fn judge_held(&mut self, guard: Guard<'_>, now_ns: u64) -> usize {
        // Before the first look: what moves later is another reason to look.
        self.moves = self.forwarder.tables().next_hops.moves();
        let mut moved = 0;
        for _ in 0..self.held_for.len() {
            // What comes to be held again is behind those that have not been judged yet.
            let Some(&HeldFor { key, .. }) = self.held_for.first() else { break };
            moved += self.release(guard, key, now_ns);
        }
        moved
    }

    /// Whether what is held for `key` must go on waiting. The slot may have been another's since it
    /// was kept; the engine compares its key.
    fn is_waiting(&self, guard: Guard<'_>, key: Key, slot: Option<u32>) -> bool {
        self.forwarder.is_waiting(guard, key, slot.map(|slot| Index::new(guard, slot)))
    }

    /// Sends on what is held for neighbours that are resolved, or lost, by now; before anything newer
    /// goes to them, so that holding reorders nothing (I3). Returns how many frames moved.
    #[inline]
    pub(super) fn release_held(&mut self, guard: Guard<'_>, now_ns: u64) -> usize {
        if self.held_for.is_empty() { 0 } else { self.release_ready(guard, now_ns) }
    }

    #[cold]
    fn release_ready(&mut self, guard: Guard<'_>, now_ns: u64) -> usize {
        self.generation = self.forwarder.tables().adjacencies.generation();
        let mut moved = if self.flows_moved() { self.judge_held(guard, now_ns) } else { 0 };
        let mut at = 0;
        while let Some(&HeldFor { key, slot, .. }) = self.held_for.get(at) {
            if self.is_waiting(guard, key, slot) {
                at += 1;
            } else {
                moved += self.release(guard, key, now_ns); // The next one has come to its place.
            }
        }
        while let Some(key) = self.holds.expired(now_ns, HOLD_MAX_NS) {
            moved += self.empty_hold(key, |work, mut frame| {
                let verdict = work.forwarder.give_up(guard, &mut work.pool, &mut frame, now_ns);
                work.carry_out(guard, frame, &verdict, now_ns);
            });
        }
        moved
    }

    /// Sends on what is held for one neighbour, oldest first.
    fn release(&mut self, guard: Guard<'_>, key: Key, now_ns: u64) -> usize {
        self.empty_hold(key, |work, mut frame| {
            let verdict = work.forwarder.resume(guard, &mut work.pool, &mut frame, now_ns);
            work.carry_out(guard, frame, &verdict, now_ns);
        })
    }

    /// Does something with each frame that is held for `key`, oldest first. Returns how many there were.
    ///
    /// All are out of the hold before the first is dealt with: a frame may come to be held again, and
    /// even to be released again, meanwhile. Then its places in the list are behind ours.
    fn empty_hold(&mut self, key: Key, mut deal: impl FnMut(&mut Work, Frame)) -> usize {
        self.held_for.retain(|held| held.key != key);
        let first = self.released.len();
        self.released.extend(self.holds.take(key).map(Some));
        let end = self.released.len();
        for at in first..end {
            let frame = self.released[at].take().expect("each place is emptied once, here");
            self.no_longer_held(&frame);
            deal(self, frame);
        }
        self.released.truncate(first);
        end - first
    }

    /// Gives back what is still held when the worker stops.
    pub(super) fn drop_held(&mut self) {
        self.held_for.clear();
        let frames: Vec<Frame> = self.holds.drain_all().collect();
        for frame in frames {
            self.no_longer_held(&frame);
            self.drop_frame(frame, DropReason::Shutdown);
        }
    }

    /// Sends what the control thread asked for.
    #[inline]
    pub(super) fn carry_out_orders(&mut self) -> usize {
        let mut moved = 0;
        while let Some(order) = self.orders.pop() {
            moved += 1;
            let Some(mut frame) = self.pool.take() else { continue };
            let (key, created, made) = self.write_order(order, &mut frame);
            match made {
                Some(port) => {
                    self.stats.created(key.port, created);
                    self.queue(port, frame);
                }
                // A port without an address of that family asks nobody.
                None => self.pool.give_back(frame),
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
        region.set_entry(frame, key.port, QueueId(0), Checksum::Valid);
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

    fn held_changed(&mut self, entry: PortId, by: i64) {
        self.stats.change(entry, PortCount::Held, by);
    }

    fn no_longer_held(&mut self, frame: &Frame) {
        let meta = self.pool.region().meta(frame);
        let entry = meta.entry;
        if let Some(handoff) = &mut self.handoff {
            handoff.let_go(meta);
        }
        self.held_changed(entry, -1);
    }
}

/// How often to ask for a neighbour that nobody has heard of.
const ASK_INTERVAL_NS: u64 = 1_000_000_000;

/// What a device took, and how much of it was finished at once.
struct HandedOver {
    sent: Sent,
    completed: u64,
}
