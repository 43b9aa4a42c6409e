//! Packets copied to packet sockets.
//!
//! Without a socket this costs a worker one load a turn. With some, what they want is looked up once a turn, and
//! where a batch passes one of their points, each hook is found anew: what a socket was bound to before its
//! last `bind` returned is not shown, whatever a turn began with (`socket`).

use manylane_frame::vocabulary::{Checksum, Created, DropReason, Point, PortId, QueueId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Frame, HEADROOM, Region};
use manylane_io::packet_ring::Record;
use manylane_net::filter::{Columns, TOGETHER_MAX};
use manylane_net::forward::Former;
use manylane_net::wire::flow::FlowKey;
use manylane_sync::hook::{Hook, HookReader};
use manylane_sync::rcu::Guard;
use manylane_sync::words::Words;

use super::{Clock, Work};
use manylane_frame::vocabulary::Points;
use manylane_io::packet_ring::Fanout;

use crate::hooks::{InjectorEnd, Member, Target};
use passing::{Laps, Passed, Passing};

mod passing;

const _: () = assert!(BATCH_MAX <= TOGETHER_MAX);

/// A worker's side of packet sockets.
pub struct Observers {
    hooks: HookReader<Target>,
    worker: WorkerId,
    clock: Clock,
    /// Nanoseconds from 1970 to the clock's start.
    epoch: Words<u64>,
    /// The points that sockets or a trace observe, since the turn began.
    points: Points,
    /// Whether a block may wait for more packets.
    is_open: bool,
    /// Packets that groups have shared in turn.
    turn: u32,
    /// By which groups share flows: one key for all workers, and secret.
    key: FlowKey,
    /// For the filters.
    columns: Columns,
    /// Of the worker that sends what sockets send.
    pub(super) injected: Option<InjectorEnd>,
}

impl Observers {
    /// For one worker.
    pub fn new(
        hooks: HookReader<Target>,
        worker: WorkerId,
        clock: Clock,
        epoch: Words<u64>,
        key: FlowKey,
        injected: Option<InjectorEnd>,
    ) -> Observers {
        let points = Points::NONE;
        let (is_open, turn, columns) = (false, 0, Columns::default());
        Observers { hooks, worker, clock, epoch, points, is_open, turn, key, columns, injected }
    }

    /// Looks up the observed points; whether they differ from the former ones.
    #[inline]
    fn begin_turn(&mut self, guard: Guard<'_>, traced: Points) -> bool {
        let found = self.hooks.enter(guard);
        let points = match found.is_empty() {
            true => traced,
            false => found.iter().fold(traced, |points, hook| points | hook.wanted.points),
        };
        std::mem::replace(&mut self.points, points) != points
    }

    /// Whether a socket observes packets at this point.
    #[inline(always)]
    pub(super) fn observes(&self, point: Point) -> bool {
        self.points.has(point)
    }

    /// Whether a socket or a trace observes one of these points: then the out-of-line code runs.
    #[inline(always)]
    pub(super) fn observes_any(&self, points: Points) -> bool {
        self.points.has_any(points)
    }

    /// Shows what was received by `port`, as it came.
    #[inline(always)]
    pub(super) fn received(
        &mut self,
        guard: Guard<'_>,
        region: &Region,
        port: PortId,
        batch: &Batch,
    ) {
        if self.observes(Point::Receive) {
            self.show(guard, region, Point::Receive, port, batch.as_slice());
        }
    }

    /// Shows frames that passed `point` of `port`.
    #[cold]
    #[inline(never)]
    pub(super) fn show(
        &mut self,
        guard: Guard<'_>,
        region: &Region,
        point: Point,
        port: PortId,
        frames: &[Frame],
    ) {
        for frames in frames.chunks(BATCH_MAX) {
            self.give_all(guard, point, &Passed::of(region.view(), frames, port), port);
        }
    }

    /// Shows a packet that is dropped, if a socket observes drops.
    #[cold]
    pub(super) fn show_dropped(
        &mut self,
        guard: Guard<'_>,
        region: &Region,
        frame: &Frame,
        reason: DropReason,
    ) {
        if self.observes(Point::Drop) {
            self.show_drop(guard, region, frame, reason);
        }
    }

    /// Shows a packet that is dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn show_drop(
        &mut self,
        guard: Guard<'_>,
        region: &Region,
        frame: &Frame,
        reason: DropReason,
    ) {
        let view = region.view();
        self.give(guard, reason, &Passing::of(view, frame, view.meta(frame).ingress));
    }

    /// Shows a packet that was dropped and is something else by now: its first bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn show_former(
        &mut self,
        guard: Guard<'_>,
        (port, queue): (PortId, QueueId),
        first: &[u8],
        len: u32,
        reason: DropReason,
    ) {
        self.give(guard, reason, &Passing { port, queue, len, first, chain: None });
    }

    /// What all packets of a batch have in common. The stamp is of when a batch is shown, not of when the turn began.
    fn record(&self, now_ns: u64, point: Point, reason: Option<DropReason>) -> Record {
        let time_ns = self.epoch.load(0) + now_ns;
        let (port, queue) = (PortId(0), QueueId(0));
        Record { time_ns, len: 0, port, queue, worker: self.worker, point, reason }
    }

    /// Gives packets that passed `point` of `port` to the sockets that want them.
    fn give_all(&mut self, guard: Guard<'_>, point: Point, passed: &Passed<'_>, port: PortId) {
        let worker = usize::from(self.worker.0);
        let mut laps = Laps::begin(self.clock);
        let record = self.record(laps.since_ns, point, None);
        for Hook { generation, wanted: target } in self.hooks.enter(guard).iter() {
            let wanted = target.wants_of(point, port, passed.first());
            match (target.fanout, &*target.members) {
                (None, [member]) => {
                    let lane = &*member.lanes.of[worker];
                    let columns = &mut self.columns;
                    self.is_open |=
                        passed.give(wanted, (member, lane), *generation, &record, columns);
                    laps.spent_on(lane);
                }
                (Some(mode), members) => {
                    for place in wanted {
                        let (packet, turn) = (passed.packet(place), &mut self.turn);
                        self.is_open |=
                            share(mode, members, &packet, &record, self.key, turn, &mut laps);
                    }
                }
                (None, _) => unreachable!("only a group has several members, or none"),
            }
        }
    }

    /// Gives a packet that was dropped to the sockets that want it.
    fn give(&mut self, guard: Guard<'_>, reason: DropReason, packet: &Passing<'_>) {
        let worker = usize::from(self.worker.0);
        let mut laps = Laps::begin(self.clock);
        let record = self.record(laps.since_ns, Point::Drop, Some(reason));
        for Hook { generation, wanted: target } in self.hooks.enter(guard).iter() {
            let is_wanted = target.wants(Point::Drop, packet.port, packet.first);
            match (target.fanout, &*target.members) {
                (None, [member]) => {
                    let lane = &*member.lanes.of[worker];
                    let kept = if is_wanted { packet.kept(member) } else { 0 };
                    // No other thread has a worker's lane; the lane counts a violation.
                    if kept > 0
                        && let Some(mut writer) = lane.writer()
                    {
                        packet.push(&mut writer, *generation, &record, kept);
                        self.is_open = true;
                    }
                    laps.spent_on(lane);
                }
                (Some(mode), members) if is_wanted => {
                    let turn = &mut self.turn;
                    self.is_open |=
                        share(mode, members, packet, &record, self.key, turn, &mut laps);
                }
                (Some(_), _) => {}
                (None, _) => unreachable!("only a group has several members, or none"),
            }
        }
    }

    /// Whether sockets have something to send.
    #[inline]
    pub(super) fn has_injected(&mut self) -> bool {
        self.injected.as_mut().is_some_and(|injected| !injected.to_send.is_empty())
    }

    /// Publishes all: before a sleep.
    pub(super) fn flush(&mut self, guard: Guard<'_>) {
        if self.is_open {
            self.publish(guard, None);
        }
    }

    /// Publishes what has waited long enough for more packets, or all, and wakes the reader.
    #[cold]
    #[inline(never)]
    fn publish(&mut self, guard: Guard<'_>, now_ns: Option<u64>) {
        let mut is_open = false;
        let mut laps = Laps::begin(self.clock);
        for hook in self.hooks.enter(guard).iter() {
            for member in &hook.wanted.members {
                let lane = &member.lanes.of[usize::from(self.worker.0)];
                if !lane.is_open() {
                    continue;
                }
                let Some(mut writer) = lane.writer() else { continue };
                let published = match now_ns {
                    Some(now_ns) => writer.end_turn(now_ns),
                    None => writer.publish(),
                };
                drop(writer);
                is_open |= lane.is_open();
                if published {
                    member.lanes.wake(lane);
                    laps.spent_on(lane);
                }
            }
        }
        self.is_open = is_open;
    }
}

/// Gives a packet to one member of a group. Whether it found room.
fn share(
    mode: Fanout,
    members: &[Member],
    packet: &Passing<'_>,
    record: &Record,
    key: FlowKey,
    turn: &mut u32,
    laps: &mut Laps,
) -> bool {
    *turn = turn.wrapping_add(1);
    let hash = || key.frame_hash(packet.first);
    let first = mode.choose(members.len(), hash, *turn, record.worker.0, packet.queue.0);
    let tries = if mode == Fanout::Rollover { members.len() } else { 1 };
    let worker = usize::from(record.worker.0);
    let mut last = None;
    for at in 0..tries {
        let member = &members[(first + at) % members.len()];
        let kept = packet.kept(member);
        // Each pays for its own filter: a member with a long one does not burden the others.
        laps.spent_on(&member.lanes.of[worker]);
        if kept == 0 {
            continue;
        }
        let stamp = member.generation.expect("a member has one of its own");
        // A member that is passed over has lost nothing.
        if at + 1 < tries
            && !member.lanes.of[worker].writer().is_some_and(|mut to| to.has_room(stamp, kept))
        {
            last = Some((member, stamp, kept));
            continue;
        }
        last = Some((member, stamp, kept));
        break;
    }
    // Where none has room, the last that wants it loses it.
    let Some((member, stamp, kept)) = last else { return false };
    let lane = &member.lanes.of[worker];
    let given =
        lane.writer().is_some_and(|mut writer| packet.push(&mut writer, stamp, record, kept));
    laps.spent_on(lane);
    given
}

impl Work {
    /// Looks up the observed points. Once a turn.
    #[inline]
    pub(super) fn begin_observing(&mut self, guard: Guard<'_>) {
        let traced = self.tracer.begin_turn(guard);
        let has_changed = self.observers.begin_turn(guard, traced);
        if has_changed || self.sampler.is_some() {
            let keeps = self.observers.observes(Point::Drop) || self.samples_former();
            self.forwarder.keep_former(keeps);
        }
        if let (true, Some(handoff)) = (has_changed, &mut self.handoff) {
            handoff.set_traced(!traced.is_empty());
        }
    }

    /// Passes on what readers wait for. At the end of a turn.
    #[inline]
    pub(super) fn end_observing(&mut self, guard: Guard<'_>) {
        if self.forwarder.has_former() {
            self.show_all_former(guard);
        }
        if self.observers.is_open {
            self.observers.publish(guard, Some(self.state.now_ns));
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.submit();
        }
    }

    /// Shows the frames that wait for a port's device, if a socket observes them.
    #[cold]
    pub(super) fn show_waiting(&mut self, guard: Guard<'_>, port: usize) {
        if self.observers.observes(Point::Transmit) {
            let Work { observers, pool, egresses, .. } = self;
            let (id, waiting) = (PortId(port as u16), egresses[port].waiting.as_slice());
            observers.show(guard, pool.region(), Point::Transmit, id, waiting);
        }
    }

    #[cold]
    fn show_all_former(&mut self, guard: Guard<'_>) {
        let shows = self.observers.observes(Point::Drop);
        while let Some(former) = self.forwarder.next_former() {
            self.sample_former(&former);
            if shows {
                let Former { ingress, queue, bytes, len, reason } = former;
                self.observers.show_former(guard, (ingress, queue), &bytes, len, reason);
            }
        }
    }

    /// Sends what sockets send, as it is.
    #[cold]
    #[inline(never)]
    pub(super) fn send_injected(&mut self, guard: Guard<'_>) -> usize {
        let mut moved = 0;
        while let Some(injected) = &mut self.observers.injected
            && let Some(packet) = injected.to_send.pop()
        {
            moved += 1;
            // A socket bound before the packet was pushed sees it, whenever the turn began.
            self.begin_observing(guard);
            self.send_copy(guard, packet.port, &packet.bytes);
            if let Some(injected) = &mut self.observers.injected {
                let given = injected.done.push(packet);
                debug_assert!(given.is_ok(), "the ring has as many places as packets");
            }
        }
        if let Some(injected) = &mut self.observers.injected {
            injected.to_send.release();
            injected.done.submit();
        }
        moved
    }

    fn send_copy(&mut self, guard: Guard<'_>, port: PortId, bytes: &[u8]) {
        self.stats.created(port, Created::Injected);
        let Some(mut frame) = self.pool.take_packet(HEADROOM, bytes.len()) else {
            self.stats.dropped(port, DropReason::NoFrame);
            if self.observers.observes(Point::Drop) {
                let (of, len) = ((port, QueueId(0)), bytes.len() as u32); // At most an MTU.
                self.observers.show_former(guard, of, bytes, len, DropReason::NoFrame);
            }
            return;
        };
        let view = self.pool.region().view();
        view.set_ingress(&mut frame, port, QueueId(0), Checksum::Valid);
        view.meta_mut(&mut frame).own = true;
        let mut rest = bytes;
        for part in view.parts_mut(&mut frame) {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
        match frame.is_chained() {
            true => self.prepare(guard, port, frame),
            false => self.queue(guard, port, frame),
        }
    }
}
