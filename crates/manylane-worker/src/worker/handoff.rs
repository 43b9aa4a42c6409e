//! Hand-off: received by one worker, forwarded by another, in order.
//!
//! Where a port has fewer queues than the machine has workers, one worker receives and others forward: the receiver
//! looks at each packet's flow, keeps its own share of the batch and pushes the rest into rings, one for
//! each pair of workers. The worker that pops a packet forwards it as if it had received it. [`manylane_sync::handoff`]
//! decides which worker has which bucket of flows, and when that may change; this room holds a worker's part, and the
//! back-pressure when another worker is slow.
//!
//! | when                                   | what                                                        |
//! |----------------------------------------|-------------------------------------------------------------|
//! | before a queue is received from        | every worker that has buckets of its port has room for a batch, or the queue waits: what comes meanwhile lies in the port's ring, and is lost there if it is too much |
//! | one has none for [`STALL_MAX_NS`]       | the queue is received from again for the other workers' sake, unless no other has room; packets for the full one are dropped |
//! | a backlog is more than half full       | a flow with more than half of its last packets is dropped (`flow_limit`) |
//! | no place for a packet in hand          | it is dropped (`backlog_full`); never reordered, never forwarded here  |
//! | buckets of a port have long waited to move | it is not received from for a moment (`withhold`) |
//! | at most half full                      | it may be waited for again                                  |
//!
//! So a worker that stops costs the others a pause of [`STALL_MAX_NS`], once, and no more until it has
//! recovered; one that is merely slow costs the others what it would cost them in the port's ring, that
//! time, and then nothing. When it takes again, the next turn of the receiver sees the room.
//!
//! A packet counts as gone when its device says that it has taken it, or finished with it where
//! workers send by several of its queues: what a worker transmitted is noted at the end of a turn, and
//! announced at the end of the first turn that finds that so.

mod counts;
mod links;
mod mesh;
mod pause;
mod sample;
mod turn;

use manylane_frame::vocabulary::{DropReason, PortId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Holder, Meta, Packet, Region, Steered, Trace, View};
use manylane_net::wire::flow::FlowKey;
use manylane_sync::handoff::{Completions, GROUP, Handed, OrderSample, Steering};
use manylane_sync::words::Words;

use super::queue_handover::ReleaseRequests;

use counts::{HandOffCounts, OwnCount, PairCount};
pub use counts::{HandOffReader, frames_between};
use links::{InTransit, Inbound, Outbound, StagedBatch};
pub use mesh::Mesh;
use pause::ReceivePause;

/// Settings that workers follow from turn to turn; control publishes them.
pub mod limits {
    use manylane_sync::words::WordsMut;

    /// Frames that a worker takes in a turn, at least those of one queue (`netdev_budget`).
    pub const BUDGET: usize = 0;
    /// Frames that it takes from one queue or ring at a time (`dev_weight`).
    pub const WEIGHT: usize = 1;
    /// Frames that wait in a ring (`netdev_max_backlog`).
    pub const MAX_BACKLOG: usize = 2;
    /// Changes with what is wanted of buckets, and with the next.
    pub const GENERATION: usize = 3;
    /// Workers check the order of one flow in N when its packets leave; 0 for none.
    pub const REORDER_SAMPLE: usize = 4;
    /// Which time of looking that is, from 1.
    pub const SAMPLE_PERIOD: usize = 5;
    /// How many words.
    const WORDS: usize = 6;

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
pub const STALL_MAX_NS: u64 = 1_000_000;

/// How soon to look again: whether a device has taken what it was given, and what waits for that.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// How soon to look again whether a worker has room: nothing tells. What else comes meanwhile waits as long.
const BLOCKED_NS: u64 = 50_000;

/// One worker's hand-off.
pub struct HandOff {
    own: u16,
    /// By which packets are hashed: one key for all workers, and secret.
    key: FlowKey,
    steering: Steering,
    completions: Completions,
    /// By worker; none to ourselves, nor from a worker that receives nothing for others.
    outbound: Vec<Option<Outbound>>,
    /// By receiver.
    inbound: Vec<Option<Inbound>>,
    /// The receiver to begin with.
    next: usize,
    /// Packets on their way, by worker; empty between batches.
    staged: Vec<StagedBatch>,
    /// Packets that find no place; empty between batches.
    refused: Vec<(Frame, DropReason)>,
    /// By port: whether packets are steered one by one.
    by_flow: Vec<bool>,
    /// By port: whether that is to be published though it is not steered one by one.
    changed: Vec<bool>,
    /// The generation at which buckets last followed the map, and how many had to wait.
    generation: u32,
    waiting: usize,
    /// When those that wait are looked at again, frames of theirs or not.
    apply_map_at_ns: u64,
    pause: ReceivePause,
    limits: Words<u32>,
    /// What was noted waits for devices to take it.
    noted: bool,
    /// In this turn, a queue was not received from.
    blocked: bool,
    /// No bucket waits to move, and every worker that the queue being received from may steer to has room for
    /// all that is admitted.
    all_have_room: bool,
    /// The receiver of the packets being forwarded.
    receiver: u8,
    counts: HandOffCounts,
    /// The numbers by which workers check the order.
    order: OrderSample,
    /// One flow in N is checked; 0 for none.
    sample_one_in: u32,
    sample_period: u32,
    /// Packets are looked at one by one: to be numbered, or for a trace.
    examines: bool,
    traced: bool,
    /// Packets with a trace's number that have just been steered: into which bucket, and to which worker.
    steered: Vec<(Trace, u8, WorkerId)>,
    pub(super) release_requests: ReleaseRequests,
    /// Breaks the rule that what is popped has not left yet.
    #[cfg(feature = "broken-rules")]
    announces_what_is_popped: bool,
    /// Breaks the rule that what was transmitted has not left before its device has taken it.
    #[cfg(feature = "broken-rules")]
    announces_what_is_noted: bool,
}

impl HandOff {
    /// How many packets of a queue of `port` may be received now, `weight` at most; none when it is to wait.
    fn admit(&mut self, port: PortId, weight: usize, now_ns: u64) -> Option<usize> {
        if !self.by_flow[port.index()] {
            return Some(weight);
        }
        if self.waiting > 0 && self.pause.applies(port, now_ns) {
            self.apply_map_at_ns = now_ns; // With the next turn, so that it is over soon.
            self.blocked = true;
            return None;
        }
        let max_backlog = self.limits.load(limits::MAX_BACKLOG) as usize;
        let wanted = weight.min(max_backlog);
        let mut others = self.steering.steers_to(port.index(), self.own);
        let (mut full, mut may_wait) = (false, false);
        self.all_have_room = self.waiting == 0;
        for (worker, link) in self.outbound.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            if !self.steering.steers_to(port.index(), worker as u16) {
                link.is_known = false; // Other receivers' batches may have filled the room.
                continue;
            }
            link.measure_room(max_backlog, wanted);
            if !link.is_busy {
                link.stalled_until_ns = None;
            }
            self.all_have_room &= !link.is_busy && link.room >= wanted;
            if link.room >= wanted {
                others = true;
                continue;
            }
            full = true;
            let until = *link.stalled_until_ns.get_or_insert_with(|| {
                self.counts.of(worker, PairCount::Waits, 1);
                now_ns + STALL_MAX_NS
            });
            may_wait |= now_ns < until;
        }
        if full && (may_wait || !others) {
            self.blocked = true;
            return None;
        }
        Some(wanted)
    }

    /// Splits a batch received by `port`: our own share stays in it, the rest is pushed, each worker's at
    /// once, or refused.
    fn hand_off(&mut self, region: View<'_>, port: PortId, batch: &mut Batch) {
        let own = usize::from(self.own);
        self.receiver = self.own as u8;
        if !self.by_flow[port.index()] {
            self.steering.keep(port.index(), batch.len());
            self.completions.take(self.own, batch.len());
            if self.examines {
                self.clear_samples(region, batch);
            }
            return;
        }
        let chained = batch.has_chains();
        if self.all_have_room && !chained {
            self.split(region, port, batch);
        } else {
            self.split_or_refuse(region, port, batch);
        }
        if self.examines {
            self.examine_stages(region);
        }
        std::mem::swap(batch, &mut self.staged[own].frames);
        self.completions.take(self.own, batch.len());
        for worker in 0..self.staged.len() {
            if !self.staged[worker].frames.is_empty() {
                self.push(region, port, worker, chained);
            }
        }
    }

    /// Parts a batch of single frames when no bucket waits to move, and every worker has room.
    #[inline]
    fn split(&mut self, region: View<'_>, port: PortId, batch: &mut Batch) {
        let HandOff { steering, staged, key, .. } = self;
        let key = *key;
        let mut steered = steering.batch(port.index(), batch.len());
        let look = |packet: Packet<'_>| {
            (steered.worker(bucket_of(key.frame_hash(packet.bytes))), packet.meta.head())
        };
        batch.drain_packets(region, look, |frame, (worker, head)| {
            staged[usize::from(worker)].push(frame, head);
        });
        for (worker, StagedBatch { frames, .. }) in (0..).zip(staged) {
            if !frames.is_empty() {
                steering.handed_all(worker, frames.len());
            }
        }
    }

    /// Splits any batch.
    #[inline(never)]
    fn split_or_refuse(&mut self, region: View<'_>, port: PortId, batch: &mut Batch) {
        let first = port.index() * GROUP;
        let max_backlog = self.limits.load(limits::MAX_BACKLOG) as usize;
        let wanted = batch.len();
        for frame in batch.drain() {
            let hash = self.key.frame_hash(region.bytes(&frame));
            let steered = self.steering.steer(first + usize::from(bucket_of(hash)));
            let worker = usize::from(steered.worker());
            let link = self.outbound[worker].as_mut();
            let refused = link.and_then(|link| {
                if !link.is_known {
                    link.measure_room(max_backlog, wanted); // The bucket has just moved there.
                }
                link.refuses(hash, &frame)
            });
            if let Some(reason) = refused {
                self.refused.push((frame, reason));
                let what = match reason {
                    DropReason::FlowLimit => PairCount::FlowLimit,
                    _ => PairCount::BacklogFull,
                };
                self.counts.of(worker, what, 1);
                continue;
            }
            steered.handed();
            let head = region.meta(&frame).head();
            self.staged[worker].push(frame, head);
        }
    }

    /// Pushes what is for another worker.
    #[inline]
    fn push(&mut self, region: View<'_>, port: PortId, worker: usize, chained: bool) {
        let (StagedBatch { frames: stage, heads }, link) =
            (&mut self.staged[worker], &mut self.outbound[worker]);
        let link = link.as_mut().expect("only workers with a ring have buckets");
        let packets = stage.len();
        let mut frames = packets;
        stage.iter().for_each(|frame| region.note(frame, Holder::Ring(worker as u16)));
        if chained {
            for frame in stage.iter().filter(|frame| frame.is_chained()) {
                let surplus = region.meta(frame).frames() - 1;
                link.surplus.add(surplus as u64); // Before they can be popped.
                frames += surplus;
            }
        }
        let packet = |(frame, &head)| InTransit { frame, head, ingress: port };
        link.ring.push_all(&mut stage.drain().zip(&heads[..packets]).map(packet));
        debug_assert!(stage.is_empty(), "`measure_room` has seen the room");
        // Before they can be popped, so that what is counted as popped was counted here.
        self.counts.of(worker, PairCount::Out, packets as u64);
        self.counts.of(worker, PairCount::OutBatches, 1);
        self.counts.own(OwnCount::FramesOut, frames as u64);
        link.ring.submit();
        link.bell.ring();
    }

    /// Pops packets that one receiver has handed off, up to `weight` packets, into an empty batch. Whether several
    /// ports received them.
    #[inline]
    fn pop(&mut self, receiver: usize, weight: usize, region: View<'_>, batch: &mut Batch) -> bool {
        let Some(Inbound { ring, surplus, prefetched }) = &mut self.inbound[receiver] else {
            return false;
        };
        let weight = weight.min(BATCH_MAX);
        ring.look_for(weight);
        // The lines prefetched last time are on their way to this core; now the others.
        let ask = |packet: &InTransit| region.prefetch_packet(&packet.frame, packet.head);
        let packets = ring.look_ahead(*prefetched, weight, ask);
        if packets == 0 {
            return false;
        }
        // A trace looks at each batch as at one of several ports.
        let (mut chained, mut first, mut differs) = (false, None, u16::from(self.traced));
        batch.extend(ring.pop_up_to(packets).map(|InTransit { frame, ingress, .. }| {
            chained |= frame.is_chained();
            differs |= ingress.0 ^ first.get_or_insert(ingress).0;
            frame
        }));
        ring.release();
        // What has come so far is on another core: with the prefetch now, the next batch is here when it is popped.
        *prefetched = ring.look_ahead(0, BATCH_MAX, ask);
        let mut frames = batch.len();
        if chained {
            for frame in batch.iter().filter(|frame| frame.is_chained()) {
                let behind = region.meta(frame).frames() - 1;
                surplus.sub(behind as u64);
                frames += behind;
            }
        }
        self.receiver = receiver as u8;
        self.completions.take(receiver as u16, batch.len());
        self.counts.of(receiver, PairCount::In, batch.len() as u64);
        self.counts.own(OwnCount::FramesIn, frames as u64);
        differs != 0
    }

    /// At the beginning of a turn, when nothing of an earlier one waits to be transmitted.
    fn begin_turn(&mut self, now_ns: u64) {
        self.blocked = false;
        let generation = self.limits.load(limits::GENERATION);
        let due = self.waiting > 0 && now_ns >= self.apply_map_at_ns;
        if due || generation != self.generation {
            self.generation = generation; // Before the look at the map: what comes later is seen later.
            self.sample_period = self.limits.load(limits::SAMPLE_PERIOD);
            self.sample_one_in = self.limits.load(limits::REORDER_SAMPLE);
            self.examines = self.traced || self.sample_one_in != 0;
            self.apply_map_at_ns = now_ns + LOOK_AGAIN_NS;
            self.apply_map(now_ns);
        }
    }

    #[cold]
    fn apply_map(&mut self, now_ns: u64) {
        if self.outbound.iter().all(Option::is_none) {
            return; // A worker without rings keeps the packets it receives.
        }
        let began = self.waiting == 0;
        self.waiting = self.steering.follow();
        if began || self.waiting == 0 {
            self.pause.begin(now_ns);
        }
        for (port, by_flow) in self.by_flow.iter_mut().enumerate() {
            *by_flow = !self.steering.is_kept(port);
            self.pause.waits[port] = self.waiting > 0 && self.steering.waits(port);
            self.changed[port] = true;
        }
        self.counts.level(OwnCount::Waiting, self.waiting as u64);
        for (worker, _) in self.outbound.iter().enumerate().filter(|(_, link)| link.is_some()) {
            let steers = |&port: &usize| self.steering.steers_to(port, worker as u16);
            let ports = (0..self.by_flow.len()).filter(steers).count();
            self.counts.set_applied(worker, self.generation, ports as u32);
        }
    }

    /// Hears whether a trace runs.
    pub(super) fn set_traced(&mut self, traced: bool) {
        self.traced = traced;
        self.examines = traced || self.sample_one_in != 0;
    }

    /// The packets with a number that were steered since the last call: into which bucket, and to which worker.
    pub(super) fn take_steered(&mut self) -> impl Iterator<Item = (Trace, u8, WorkerId)> {
        self.steered.drain(..)
    }

    /// The receiver of the packets being forwarded.
    pub(super) fn taken_from(&self) -> WorkerId {
        WorkerId(self.receiver.into())
    }

    /// Whether a ring or the map holds work that no descriptor announces.
    pub(super) fn has_work(&mut self) -> bool {
        self.limits.load(limits::GENERATION) != self.generation
            || self.inbound.iter_mut().flatten().any(|inbound| !inbound.ring.is_empty())
    }

    /// Whether a queue was not received from, so that packets in one are nothing to stay awake for.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// How soon to look whether devices have taken what they were given.
    pub(super) fn wait_ns(&self) -> Option<u64> {
        let waits = self.noted || self.waiting > 0;
        let blocked = self.blocked.then_some(BLOCKED_NS);
        blocked.or(waits.then_some(LOOK_AGAIN_NS))
    }

    /// Notes the receiver and the bucket of a packet that is about to be held; one that `was_held` before has the note.
    pub(super) fn steered(&self, region: &Region, frame: &mut Frame, was_held: bool) -> Steered {
        if was_held {
            return region.meta(frame).steered().expect("what is held says how it came");
        }
        let bucket = bucket_of(self.key.frame_hash(region.bytes(frame)));
        let steered = Steered { receiver: self.receiver, bucket };
        region.set_steered(frame, Some(steered));
        steered
    }

    /// A packet is held.
    pub(super) fn note_held(&mut self, Steered { receiver, bucket, .. }: Steered) {
        self.completions.hold(receiver.into(), bucket.into());
    }

    /// The packet is not held any more.
    pub(super) fn note_released(&mut self, meta: &Meta) {
        let Steered { receiver, bucket, .. } =
            meta.steered().expect("what is held says how it came");
        self.completions.let_go(receiver.into(), bucket.into());
    }

    /// Whether no packet from another worker waits here.
    pub(super) fn is_inbound_empty(&mut self) -> bool {
        self.inbound.iter_mut().flatten().all(|inbound| inbound.ring.is_empty())
    }

    /// The packets handed off by now, which may have to be waited for.
    pub(super) fn handed(&self) -> Handed {
        self.steering.handed()
    }

    /// Whether that has left.
    pub(super) fn has_completed(&mut self, handed: &mut Handed) -> bool {
        self.steering.has_completed(handed)
    }

    /// Requests that no worker hold packets which this worker received.
    pub(super) fn request_release(&mut self) {
        self.release_requests.begin(self.own);
        self.outbound.iter().flatten().for_each(|link| _ = link.bell.ring());
    }

    /// Which worker this is.
    pub(super) fn own(&self) -> u16 {
        self.own
    }

    /// Publishes where buckets are, and their packet counts.
    pub(super) fn publish(&mut self) {
        for (port, changed) in self.changed.iter_mut().enumerate() {
            if !std::mem::take(changed) && !self.by_flow[port] {
                continue;
            }
            for bucket in port * GROUP..(port + 1) * GROUP {
                self.counts.set_bucket(bucket, self.steering.bucket(bucket));
            }
        }
    }
}

#[cfg(feature = "broken-rules")]
impl HandOff {
    /// Publishes where a bucket is and its packet count, for tests of readers.
    pub fn publish_bucket(&mut self, bucket: usize, worker: u16, frames: u32) {
        self.counts.set_bucket(bucket, (worker, frames));
    }
}

#[cfg(feature = "broken-rules")]
impl super::Worker {
    /// Breaks the rule that what is popped has not left yet, for a test of the tests.
    pub fn set_announces_what_is_popped(&mut self, broken: bool) {
        if let Some(handoff) = &mut self.work.handoff {
            handoff.announces_what_is_popped = broken;
        }
    }

    /// Breaks the rule that what was transmitted has not left before its device has taken it, alike.
    pub fn set_announces_what_is_noted(&mut self, broken: bool) {
        if let Some(handoff) = &mut self.work.handoff {
            handoff.announces_what_is_noted = broken;
        }
    }
}

/// The bucket of a flow.
#[inline]
fn bucket_of(hash: u32) -> u8 {
    const { assert!(GROUP == 256, "a bucket is a byte") };
    hash as u8
}
