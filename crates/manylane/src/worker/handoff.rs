//! Hand-off: received by one worker, forwarded by another, in order.
//!
//! Where a port has fewer queues than there are workers, who receives is not who forwards: the receiver
//! looks at each packet's flow, keeps its own share of the batch and pushes the rest into rings, one for
//! each pair of workers. Whoever pops a packet forwards it as if it had received it. Which bucket of flows
//! goes where, and when that may change, is [`manylane_sync::handoff`]'s; here is what a worker does about
//! it, and what happens when somebody is slow.
//!
//! | when                                   | what                                                        |
//! |----------------------------------------|-------------------------------------------------------------|
//! | before a queue is received from        | every worker that has buckets of its port has room for a batch, or the queue waits: what comes meanwhile lies in the port's ring, and is lost there if it is too much |
//! | one has none for [`PATIENCE_NS`]       | the queue goes on for the others' sake, unless there are none; what is for the full one is dropped |
//! | a backlog is more than half full       | a flow with more than half of its last packets is dropped (`flow_limit`) |
//! | no place for a packet in hand          | it is dropped (`backlog_full`); never reordered, never forwarded here  |
//! | at most half full                      | it may be waited for again                                  |
//!
//! So a worker that stops costs the others a pause of [`PATIENCE_NS`], once, and no more until it has
//! recovered; one that is merely slow costs the others what it would cost them in the port's ring, that
//! time, and then nothing. When it takes again, the next turn of the receiver sees the room.
//!
//! Whether a packet has left is known when its device says that it has taken it: what a worker transmitted
//! is noted at the end of a turn, and announced at the end of the first turn that finds it taken.

mod counts;
mod mesh;

use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{Batch, Frame, Holder, Meta, Region, Steered, View};
use manylane_io::eventfd::EventFd;
use manylane_net::wire::ethernet::{HEADER_LEN, Tags, VLAN_TAG_LEN};
use manylane_net::wire::flow::flow_hash;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::{Completions, GROUP, Handed, Steering};
use manylane_sync::rcu::Guard;
use manylane_sync::ring::{Consumer, Producer};
use manylane_sync::words::Words;

use super::Work;
use super::flow_limit::FlowLimit;
use crate::stats::PortCount;

pub use counts::HandOffReader;
use counts::{HandOffCounts, OwnCount, PairCount};
pub use mesh::Mesh;

/// Settings that workers follow from turn to turn; control publishes them.
pub mod limits {
    use manylane_sync::words::WordsMut;

    /// Frames that a worker takes in a turn, at least those of one queue (`netdev_budget`).
    pub const BUDGET: usize = 0;
    /// Frames that it takes from one queue or ring at a time (`dev_weight`).
    pub const WEIGHT: usize = 1;
    /// Frames that wait in a ring (`netdev_max_backlog`).
    pub const MAX_BACKLOG: usize = 2;
    /// Changes with what is wanted of buckets.
    pub const GENERATION: usize = 3;
    /// How many there are.
    const WORDS: usize = 4;

    /// The writer's side of them, by the names that the configuration has.
    pub fn words(netdev_max_backlog: u32, netdev_budget: u32, dev_weight: u32) -> WordsMut<u32> {
        let mut words = WordsMut::zeroed(WORDS);
        words.publish(MAX_BACKLOG, netdev_max_backlog);
        words.publish(BUDGET, netdev_budget);
        words.publish(WEIGHT, dev_weight);
        words
    }
}

/// How long a queue waits for a worker that has no room. As much comes meanwhile as a port's ring of 2048
/// takes at two million packets a second.
pub const PATIENCE_NS: u64 = 1_000_000;

/// How soon to look again: whether a device has taken what it was given, and what waits for that.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Frames of packets in a ring behind the first of each: as many as packets, and one batch more.
const fn surplus_max(capacity: usize) -> u64 {
    capacity as u64
}

/// One worker's hand-off.
pub struct HandOff {
    own: u16,
    steering: Steering,
    completions: Completions,
    /// By worker; none to ourselves, nor from a worker that receives nothing for others.
    targets: Vec<Option<Target>>,
    /// By receiver.
    arrivals: Vec<Option<Arrivals>>,
    /// The receiver to begin with.
    next: usize,
    /// Packets on their way, by worker; empty between batches.
    stages: Vec<Batch>,
    /// Packets that find no place; empty between batches.
    refused: Vec<(Frame, DropReason)>,
    /// By port: whether packets are steered one by one.
    by_flow: Vec<bool>,
    /// By port: whether that is to be published though it is not steered one by one.
    changed: Vec<bool>,
    /// What the generation was when buckets were last told to follow, and how many had to wait.
    generation: u32,
    waiting: usize,
    /// When those that wait are looked at again, frames of theirs or not.
    follow_at_ns: u64,
    limits: Words<u32>,
    /// What was noted waits for devices to take it.
    noted: bool,
    /// In this turn, a queue was not received from.
    blocked: bool,
    /// No bucket waits to move, and every worker that the queue being received from may steer to has room for
    /// all that is admitted.
    calm: bool,
    counts: HandOffCounts,
    /// Breaks the rule that what is popped has not left yet.
    #[cfg(test)]
    announces_what_is_popped: bool,
}

/// The way to another worker.
struct Target {
    ring: Producer<Frame>,
    capacity: usize,
    /// Frames of packets in the ring behind the first ones. Only chains write it.
    surplus: Arc<SharedCount>,
    bell: Arc<Doorbell<EventFd>>,
    flows: FlowLimit,
    /// Packets that there is room for, as far as we have looked.
    room: usize,
    /// More than half of the backlog was taken when we last looked.
    is_busy: bool,
    /// It had no room: how long that is waited for.
    patience_until_ns: Option<u64>,
}

/// The way from another worker.
struct Arrivals {
    ring: Consumer<Frame>,
    surplus: Arc<SharedCount>,
    /// How many of the next packets have been prefetched.
    asked_for: usize,
}

impl Target {
    fn new(
        ring: Producer<Frame>,
        capacity: usize,
        surplus: Arc<SharedCount>,
        bell: &Arc<Doorbell<EventFd>>,
    ) -> Target {
        Target {
            ring,
            capacity,
            surplus,
            bell: bell.clone(),
            flows: FlowLimit::new(),
            room: 0,
            is_busy: false,
            patience_until_ns: None,
        }
    }

    /// Looks how many packets there is room for, if the last look does not show a batch's.
    #[inline]
    fn look(&mut self, max_backlog: usize, wanted: usize) {
        let beyond = self.capacity - max_backlog.min(self.capacity);
        let half = max_backlog / 2;
        // With the half still free, or a batch, whichever is more, nothing has to be known better.
        let free = self.ring.room(beyond + half.max(wanted));
        self.room = free.saturating_sub(beyond);
        let (surplus, most) = (self.surplus.load(), surplus_max(self.capacity));
        self.is_busy = self.room < half || surplus > most / 2;
        if surplus > most {
            self.room = 0;
        }
    }

    /// Whether a packet must not be handed on, and why.
    #[inline]
    fn refuses(&mut self, hash: u32, frame: &Frame) -> Option<DropReason> {
        if self.is_busy && self.flows.exceeds(hash) {
            return Some(DropReason::FlowLimit);
        }
        let chained = frame.is_chained() && self.surplus.load() > surplus_max(self.capacity);
        if self.room == 0 || chained {
            return Some(DropReason::BacklogFull);
        }
        self.room -= 1;
        None
    }
}

impl HandOff {
    /// How many packets of a queue of `port` may be received now, `weight` at most; none when it is to wait.
    fn admits(&mut self, port: PortId, weight: usize, now_ns: u64) -> Option<usize> {
        if !self.by_flow[port.index()] {
            return Some(weight);
        }
        let max_backlog = self.limits.load(limits::MAX_BACKLOG) as usize;
        let wanted = weight.min(max_backlog);
        let mut others = self.steering.steers_to(port.index(), self.own);
        let (mut full, mut patient) = (false, false);
        self.calm = self.waiting == 0;
        for (worker, target) in self.targets.iter_mut().enumerate() {
            let Some(target) = target else { continue };
            if !self.steering.steers_to(port.index(), worker as u16) {
                continue;
            }
            target.look(max_backlog, wanted);
            if !target.is_busy {
                target.patience_until_ns = None;
            }
            self.calm &= !target.is_busy && target.room >= wanted;
            if target.room >= wanted {
                others = true;
                continue;
            }
            full = true;
            let until = *target.patience_until_ns.get_or_insert(now_ns + PATIENCE_NS);
            if now_ns < until {
                patient = true;
                self.counts.of(worker, PairCount::Waits, 1);
            }
        }
        if full && (patient || !others) {
            self.blocked = true;
            return None;
        }
        Some(wanted)
    }

    /// Parts a batch that came in by `port`: our own share stays in it, the rest is pushed, each worker's at
    /// once, or refused.
    fn hand_on(&mut self, region: View<'_>, port: PortId, batch: &mut Batch) {
        let own = usize::from(self.own);
        if !self.by_flow[port.index()] {
            self.steering.keep(port.index(), batch.len());
            self.completions.take(self.own, batch.len());
            batch.iter_mut().for_each(|frame| region.set_steered(frame, None));
            return;
        }
        let mut hashes = [0; manylane_frame::BATCH_MAX];
        let mut chained = false;
        for (hash, frame) in hashes.iter_mut().zip(batch.iter()) {
            *hash = hash_of(region.bytes(frame));
            chained |= frame.is_chained();
        }
        if self.calm && !chained {
            self.part(region, port, batch, &hashes);
        } else {
            self.part_or_refuse(region, port, batch, &hashes);
        }
        std::mem::swap(batch, &mut self.stages[own]);
        self.completions.take(self.own, batch.len());
        for worker in 0..self.stages.len() {
            if !self.stages[worker].is_empty() {
                self.push(region, worker, chained);
            }
        }
    }

    /// Parts a batch of single frames when no bucket waits to move, and there is room for all.
    #[inline]
    fn part(&mut self, region: View<'_>, port: PortId, batch: &mut Batch, hashes: &[u32]) {
        let first = port.index() * GROUP;
        for (mut frame, &hash) in batch.drain().zip(hashes) {
            let bucket = bucket_of(hash);
            let steered = self.steering.steer_settled(first + usize::from(bucket));
            let worker = usize::from(steered.worker());
            steered.handed();
            let from = Steered { receiver: self.own as u8, bucket };
            region.set_steered(&mut frame, Some(from));
            self.stages[worker].push(frame).expect("a batch has no more than a batch");
        }
    }

    /// Parts any batch.
    #[inline(never)]
    fn part_or_refuse(
        &mut self,
        region: View<'_>,
        port: PortId,
        batch: &mut Batch,
        hashes: &[u32],
    ) {
        let first = port.index() * GROUP;
        for (mut frame, &hash) in batch.drain().zip(hashes) {
            let bucket = bucket_of(hash);
            let steered = self.steering.steer(first + usize::from(bucket));
            let worker = usize::from(steered.worker());
            if let Some(target) = &mut self.targets[worker]
                && let Some(reason) = target.refuses(hash, &frame)
            {
                self.refused.push((frame, reason));
                let what = match reason {
                    DropReason::FlowLimit => PairCount::FlowLimit,
                    _ => PairCount::BacklogFull,
                };
                self.counts.of(worker, what, 1);
                continue;
            }
            steered.handed();
            let from = Steered { receiver: self.own as u8, bucket };
            region.set_steered(&mut frame, Some(from));
            self.stages[worker].push(frame).expect("a batch has no more than a batch");
        }
    }

    /// Pushes what is for another worker.
    #[inline]
    fn push(&mut self, region: View<'_>, worker: usize, chained: bool) {
        let (stage, target) = (&mut self.stages[worker], &mut self.targets[worker]);
        let target = target.as_mut().expect("only workers with a ring have buckets");
        let packets = stage.len();
        let mut frames = packets;
        for frame in stage.iter() {
            region.note(frame, Holder::Ring(worker as u16));
            if chained && frame.is_chained() {
                let surplus = region.meta(frame).frames() - 1;
                target.surplus.add(surplus as u64); // Before they can be popped.
                frames += surplus;
            }
        }
        target.ring.push_all(&mut stage.drain());
        debug_assert!(stage.is_empty(), "`look` has seen the room");
        target.ring.submit();
        target.bell.ring();
        self.counts.of(worker, PairCount::Out, packets as u64);
        self.counts.of(worker, PairCount::OutBatches, 1);
        self.counts.own(OwnCount::FramesOut, frames as u64);
    }

    /// Pops what one receiver has handed on, up to `weight` packets.
    fn pop(&mut self, receiver: usize, weight: usize, region: View<'_>) -> Batch {
        let mut batch = Batch::new();
        let Some(Arrivals { ring, surplus, asked_for }) = &mut self.arrivals[receiver] else {
            return batch;
        };
        if ring.is_empty() {
            return batch;
        }
        let mut chained = false;
        ring.pop_up_to(weight.min(manylane_frame::BATCH_MAX)).for_each(|frame| {
            chained |= frame.is_chained();
            batch.push(frame).expect("a batch holds as many");
        });
        ring.release();
        // What has come so far is on another core: asked for now, the next batch is here when it is popped.
        batch.iter().skip(*asked_for).for_each(|frame| region.prefetch_whole(frame, false));
        *asked_for =
            ring.look_ahead(manylane_frame::BATCH_MAX, |frame| region.prefetch_whole(frame, false));
        let mut frames = batch.len();
        if chained {
            for frame in batch.iter().filter(|frame| frame.is_chained()) {
                let behind = region.meta(frame).frames() - 1;
                surplus.sub(behind as u64);
                frames += behind;
            }
        }
        self.completions.take(receiver as u16, batch.len());
        self.counts.of(receiver, PairCount::In, batch.len() as u64);
        self.counts.own(OwnCount::FramesIn, frames as u64);
        batch
    }

    /// At the beginning of a turn, when nothing of an earlier one waits to be transmitted.
    fn begin_turn(&mut self, now_ns: u64) {
        self.blocked = false;
        let generation = self.limits.load(limits::GENERATION);
        let due = self.waiting > 0 && now_ns >= self.follow_at_ns;
        if due || generation != self.generation {
            self.generation = generation; // Before the look at the map: what comes later is seen later.
            self.follow_at_ns = now_ns + LOOK_AGAIN_NS;
            self.follow();
        }
    }

    #[cold]
    fn follow(&mut self) {
        if self.targets.iter().all(Option::is_none) {
            return; // Who has no rings keeps what it receives.
        }
        self.waiting = self.steering.follow();
        for (port, by_flow) in self.by_flow.iter_mut().enumerate() {
            *by_flow = !self.steering.is_kept(port);
            self.changed[port] = true;
        }
        self.counts.level(OwnCount::Waiting, self.waiting as u64);
        for (worker, _) in self.targets.iter().enumerate().filter(|(_, target)| target.is_some()) {
            let steers = |&port: &usize| self.steering.steers_to(port, worker as u16);
            let ports = (0..self.by_flow.len()).filter(steers).count();
            self.counts.followed(worker, self.generation, ports as u32);
        }
    }

    /// Whether there is something to do that no descriptor tells of.
    pub(super) fn has_work(&mut self) -> bool {
        self.blocked
            || self.limits.load(limits::GENERATION) != self.generation
            || self.arrivals.iter_mut().flatten().any(|arrivals| !arrivals.ring.is_empty())
    }

    /// How soon to look whether devices have taken what they were given.
    pub(super) fn wait_ns(&self) -> Option<u64> {
        (self.noted || self.waiting > 0).then_some(LOOK_AGAIN_NS)
    }

    /// By whom, and in which bucket, a packet came that is about to be held. One that nobody steered is in
    /// the bucket where it would be.
    pub(super) fn steered(&self, region: &Region, frame: &mut Frame) -> Steered {
        if let Some(steered) = region.meta(frame).steered() {
            return steered;
        }
        let bucket = bucket_of(hash_of(region.bytes(frame)));
        let steered = Steered { receiver: self.own as u8, bucket };
        region.set_steered(frame, Some(steered));
        steered
    }

    /// A packet is held.
    pub(super) fn hold(&mut self, Steered { receiver, bucket }: Steered) {
        self.completions.hold(receiver.into(), bucket.into());
    }

    /// It is not any more.
    pub(super) fn let_go(&mut self, meta: &Meta) {
        let Steered { receiver, bucket } = meta.steered().expect("what is held says how it came");
        self.completions.let_go(receiver.into(), bucket.into());
    }

    /// Whether nothing that others have handed on waits here.
    pub(super) fn has_no_arrivals(&mut self) -> bool {
        self.arrivals.iter_mut().flatten().all(|arrivals| arrivals.ring.is_empty())
    }

    /// What has been handed on by now, and may have to be waited for.
    pub(super) fn handed(&self) -> Handed {
        self.steering.handed()
    }

    /// Whether that has left.
    pub(super) fn has_completed(&mut self, handed: &mut Handed) -> bool {
        self.steering.has_completed(handed)
    }

    /// Publishes where buckets are, and what they carry.
    pub(super) fn publish(&mut self) {
        for (port, changed) in self.changed.iter_mut().enumerate() {
            if !std::mem::take(changed) && !self.by_flow[port] {
                continue;
            }
            for bucket in port * GROUP..(port + 1) * GROUP {
                self.counts.bucket(bucket, self.steering.bucket(bucket));
            }
        }
    }
}

impl Work {
    /// Takes what others have handed on, `budget` packets or a few more, and passes it on. Returns how many.
    pub(super) fn take_in(&mut self, guard: Guard<'_>, budget: usize, now_ns: u64) -> usize {
        let weight = self.limits.load(limits::WEIGHT) as usize;
        let Some(handoff) = &mut self.handoff else { return 0 };
        handoff.begin_turn(now_ns);
        let mut moved = 0;
        let mut receivers = 0;
        while let Some(handoff) = &mut self.handoff
            && receivers < handoff.arrivals.len()
            && moved < budget
        {
            receivers += 1;
            let receiver = handoff.next;
            handoff.next = (receiver + 1) % handoff.arrivals.len();
            let batch = handoff.pop(receiver, weight, self.pool.region().view());
            #[cfg(test)]
            if handoff.announces_what_is_popped {
                handoff.completions.note();
                handoff.completions.announce();
            }
            moved += batch.len();
            self.pass_on_runs(guard, batch, now_ns);
        }
        moved
    }

    /// Passes a batch on, a run of packets that came in by one port at a time.
    fn pass_on_runs(&mut self, guard: Guard<'_>, mut batch: Batch, now_ns: u64) {
        let entry = |frame: &Frame| self.pool.region().meta(frame).entry;
        let first = batch.iter().next().map(entry);
        let run = batch.iter().take_while(|frame| Some(entry(frame)) == first).count();
        if run == batch.len() {
            if run > 0 {
                self.pass_on(guard, batch, now_ns);
            }
            return;
        }
        let mut part = Batch::new();
        batch.drain().take(run).for_each(|frame| part.push(frame).expect("a part is no longer"));
        self.pass_on(guard, part, now_ns);
        self.pass_on_runs(guard, batch, now_ns);
    }

    /// Receives a batch from one queue, passes its own share on and hands on the rest.
    #[inline(never)]
    pub(super) fn receive_and_hand_on(
        &mut self,
        guard: Guard<'_>,
        queue: usize,
        weight: usize,
        now_ns: u64,
    ) -> usize {
        let Work { queues, handoff, pool, desk, .. } = self;
        let (Some(handoff), queue) = (handoff, &mut queues[queue]) else { return 0 };
        let port = queue.port();
        if desk.is_leaving() && desk.leaves(port, queue.queue()) {
            return 0;
        }
        let Some(admitted) = handoff.admits(port, weight, now_ns) else { return 0 };
        let mut batch = Batch::with_room(admitted);
        let received = queue.receive(pool, &mut batch, now_ns);
        if received == 0 {
            return 0;
        }
        handoff.hand_on(pool.region().view(), port, &mut batch);
        if !handoff.refused.is_empty() {
            self.drop_refused();
        }
        if !batch.is_empty() {
            self.pass_on(guard, batch, now_ns);
        }
        received
    }

    /// What is dropped here has been received here; all else is counted by whoever passes it on.
    #[cold]
    fn drop_refused(&mut self) {
        let Some(handoff) = &mut self.handoff else { return };
        let mut refused = std::mem::take(&mut handoff.refused);
        for (frame, reason) in refused.drain(..) {
            self.drop_received(frame, reason);
        }
        if let Some(handoff) = &mut self.handoff {
            handoff.refused = refused;
        }
    }

    fn drop_received(&mut self, frame: Frame, reason: DropReason) {
        let meta = self.pool.region().meta(&frame);
        let (entry, bytes) = (meta.entry, meta.packet_len() as u64);
        self.stats.count(entry, PortCount::Received, 1);
        self.stats.count(entry, PortCount::ReceivedBytes, bytes);
        self.drop_frame(frame, reason);
    }

    /// Tells receivers what has left: what had been transmitted when that was last noted, once devices have
    /// taken it. At the end of a turn.
    pub(super) fn announce(&mut self) {
        let Work { handoff, exits, .. } = self;
        let Some(handoff) = handoff else { return };
        if !handoff.noted {
            handoff.completions.note();
            exits.iter_mut().for_each(|exit| exit.transmitter.note());
        }
        handoff.noted = !exits.iter_mut().all(|exit| exit.transmitter.has_taken_noted());
        if !handoff.noted {
            handoff.completions.announce();
        }
    }

    /// Drops what others have handed on to this worker, when none runs any more.
    pub(super) fn drop_handed_on(&mut self) {
        let receivers = self.handoff.as_ref().map_or(0, |handoff| handoff.arrivals.len());
        for receiver in 0..receivers {
            while let Some(handoff) = &mut self.handoff {
                let mut batch = handoff.pop(receiver, usize::MAX, self.pool.region().view());
                if batch.is_empty() {
                    break;
                }
                batch.drain().for_each(|frame| self.drop_received(frame, DropReason::Shutdown));
            }
        }
    }
}

#[cfg(test)]
impl super::Worker {
    /// Breaks the rule that what is popped has not left yet, for a test of the tests.
    pub fn set_announces_what_is_popped(&mut self, broken: bool) {
        if let Some(handoff) = &mut self.work.handoff {
            handoff.announces_what_is_popped = broken;
        }
    }
}

/// The hash of the flow that a frame belongs to, whatever tags are in front of it.
#[inline(always)]
fn hash_of(frame: &[u8]) -> u32 {
    match frame.get(HEADER_LEN - 2..) {
        Some([0x08, 0x00, packet @ ..] | [0x86, 0xdd, packet @ ..]) => flow_hash(packet),
        _ => hash_of_tagged(frame),
    }
}

#[inline(never)]
fn hash_of_tagged(frame: &[u8]) -> u32 {
    let tags = [2, 1].iter().find(|&&count| Tags::of(frame, count).is_some()).unwrap_or(&0);
    frame.get(HEADER_LEN + tags * VLAN_TAG_LEN..).map_or(0, flow_hash)
}

/// The bucket of a flow.
#[inline]
fn bucket_of(hash: u32) -> u8 {
    const { assert!(GROUP == 256, "a bucket is a byte") };
    hash as u8
}
