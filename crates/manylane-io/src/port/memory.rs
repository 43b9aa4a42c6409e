//! Ports in memory, for tests, the demo and the benches.
//!
//! A function (a generator, an injector) or the wires of another memory port feed a receive queue; a transmitter ends
//! in a function (a sink, a checker) or in such wires: its own wire to each queue of the far end, selected by flow
//! hash, as a device selects a queue. The crates above define what a function generates or checks; this room only calls
//! it.
//!
//! Packets in several frames, with incomplete checksums or unsegmented, cross a wire unchanged: the far end sees
//! the same metadata.

use std::sync::Arc;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Batch, CHAIN_MAX, Frame, Holder, Marks, Pool, Region, View};
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Sent, Wait};
use crate::eventfd::EventFd;

/// Generates packets: takes frames from the pool, as many as [`Pool::may_receive`] allows, fills in window and
/// bytes, and pushes up to `batch.room()` of them. Its last argument is the time in nanoseconds.
pub type Source = Box<dyn FnMut(&mut Pool, &mut Batch, u64) -> Next + Send>;

/// Receives the packets that a port transmits, each by the handle of its first frame.
pub type Sink = Box<dyn FnMut(&Region, &[Frame]) + Send>;

/// Computes a flow's hash from a packet's first frame; the hash selects a receive queue at a wire's far end.
pub type FlowHash = fn(&[u8]) -> u32;

/// When a source may have more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Now.
    More,
    /// After this many nanoseconds.
    After(u64),
    /// When another thread rings the worker's doorbell.
    Doorbell,
    /// Never again.
    Done,
}

/// A receive queue in memory.
pub struct Receiver {
    /// The marks of each packet: complete, so that one store writes them.
    marks: Marks,
    feed: Feed,
}

enum Feed {
    Source {
        source: Source,
        next: Next,
        not_before_ns: u64,
        now_ns: u64,
        /// The source sets checksum and segments.
        marks: bool,
    },
    /// One wire from each worker of the far end.
    Wires(Vec<FarEnd>),
    /// No packet ever arrives.
    Nothing,
}

/// The receiving end of a wire.
struct FarEnd {
    wire: Consumer<Frame>,
    surplus: Arc<SharedCount>,
}

impl Receiver {
    /// A queue of `port` that `source` feeds.
    pub fn from_source(port: PortId, queue: QueueId, source: Source) -> Receiver {
        let feed =
            Feed::Source { source, next: Next::More, not_before_ns: 0, now_ns: 0, marks: false };
        Receiver::of(port, queue, feed)
    }

    fn of(port: PortId, queue: QueueId, feed: Feed) -> Receiver {
        Receiver { marks: Marks::received(port, queue, Checksum::Valid), feed }
    }

    /// A queue of `port` that receives nothing.
    pub fn silent(port: PortId, queue: QueueId) -> Receiver {
        Receiver::of(port, queue, Feed::Nothing)
    }

    /// Marks packets that arrive as valid with `checksum` instead, to stand for a device that cannot verify
    /// checksums.
    pub fn with_checksum(mut self, checksum: Checksum) -> Receiver {
        self.marks.checksum = checksum;
        self
    }

    /// Keeps the checksum and segments of each packet as its source has set them
    /// ([`Region::set_entry`], then the marks), to stand for a device that leaves work undone. Without
    /// this a source need not set any.
    pub fn with_marks(mut self) -> Receiver {
        if let Feed::Source { marks, .. } = &mut self.feed {
            *marks = true;
        }
        self
    }

    #[inline]
    pub(super) fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        let before = batch.len();
        match &mut self.feed {
            Feed::Source { source, next, not_before_ns, now_ns: seen_ns, .. } => {
                *seen_ns = now_ns;
                if *next == Next::Done || now_ns < *not_before_ns {
                    return 0;
                }
                *next = source(pool, batch, now_ns);
                if let Next::After(wait_ns) = *next {
                    *not_before_ns = now_ns + wait_ns;
                }
            }
            Feed::Wires(wires) => {
                for end in wires {
                    while !batch.is_full() {
                        let Some(frame) = end.pop(pool.region().view()) else { break };
                        batch.push(frame).expect("the batch has room");
                    }
                    end.wire.release();
                }
            }
            Feed::Nothing => return 0,
        }
        self.mark(pool.region().view(), &mut batch.as_mut_slice()[before..]);
        batch.len() - before
    }

    /// Marks packets with their ingress port and the port's metadata.
    #[inline]
    fn mark(&self, region: View<'_>, frames: &mut [Frame]) {
        if let Feed::Source { marks: false, .. } = self.feed {
            return region.mark_all(frames, self.marks);
        }
        for frame in frames {
            let Marks { checksum, segments, .. } = **region.meta(frame);
            let checksum = if checksum == Checksum::Valid { self.marks.checksum } else { checksum };
            *region.meta_mut(frame) = Marks { checksum, segments, ..self.marks };
        }
    }

    pub(super) fn wait(&self) -> Wait<'_> {
        match &self.feed {
            Feed::Source { next: Next::More, .. } => Wait::After(0),
            Feed::Source { next: Next::After(_), not_before_ns, now_ns, .. } => {
                Wait::After(not_before_ns.saturating_sub(*now_ns))
            }
            Feed::Source { next: Next::Doorbell, .. } | Feed::Wires(_) => Wait::Doorbell,
            Feed::Source { next: Next::Done, .. } | Feed::Nothing => Wait::Done,
        }
    }

    /// Frames, not packets, that wait in wires; the far end has counted them as transmitted.
    pub(super) fn waiting(&self) -> usize {
        match &self.feed {
            Feed::Wires(wires) => wires.iter().map(FarEnd::waiting).sum(),
            _ => 0,
        }
    }

    pub(super) fn port(&self) -> PortId {
        self.marks.ingress
    }

    pub(super) fn queue(&self) -> QueueId {
        self.marks.queue
    }

    /// Returns the frames that wait in wires to `pool`; returns how many.
    pub fn close(mut self, pool: &mut Pool) -> u32 {
        let mut frames = 0;
        if let Feed::Wires(wires) = &mut self.feed {
            for end in wires {
                while let Some(frame) = end.pop(pool.region().view()) {
                    frames += pool.region().meta(&frame).frames() as u32;
                    pool.give_back(frame);
                }
                end.wire.release();
            }
        }
        frames
    }
}

impl FarEnd {
    #[inline]
    fn pop(&mut self, region: View<'_>) -> Option<Frame> {
        let frame = self.wire.pop()?;
        if frame.is_chained() {
            self.surplus.sub(region.meta(&frame).frames() as u64 - 1);
        }
        Some(frame)
    }

    fn waiting(&self) -> usize {
        match self.wire.waiting() {
            0 => 0, // Frames counted in `surplus` may be unsubmitted: they cannot be popped yet.
            packets => packets + self.surplus.load() as usize,
        }
    }
}

/// One worker's transmit side in memory.
pub struct Transmitter(Egress);

enum Egress {
    Sink(Sink),
    /// Accepts nothing.
    Nothing,
    /// One wire to each receive queue of the far end, and the bell of the worker that owns it.
    Wires {
        ends: Vec<WireEnd>,
        hash: FlowHash,
    },
}

struct WireEnd {
    to: PortId,
    wire: Producer<Frame>,
    /// The number of continuation frames in the wire. Chains write this cache line, shared by two
    /// workers; single frames are not counted and cost nothing.
    surplus: Arc<SharedCount>,
    /// The maximum of `surplus`.
    surplus_max: u64,
    bell: Arc<Doorbell<EventFd>>,
    /// Frames were pushed and not submitted.
    dirty: bool,
    /// How many frames had been pushed at the last `set_drain_mark`.
    drain_mark: usize,
    /// A frame found no room in this call, so that no later one may overtake it.
    full: bool,
}

impl Transmitter {
    /// A transmitter into `sink`.
    pub fn into_sink(sink: Sink) -> Transmitter {
        Transmitter(Egress::Sink(sink))
    }

    /// A transmitter that accepts nothing, to replace one that was closed.
    pub fn closed() -> Transmitter {
        Transmitter(Egress::Nothing)
    }

    #[inline]
    pub(super) fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        mut completed: impl FnMut(PortId),
    ) -> Sent {
        let mut sent = Sent::default();
        match &mut self.0 {
            Egress::Sink(sink) => {
                sink(pool.region(), batch.as_slice());
                let region = pool.region().view();
                for packet in region.packets(batch.as_slice()) {
                    completed(packet.meta.ingress);
                    sent.bytes += packet.meta.packet_len() as u64;
                }
                sent.frames = batch.len();
                pool.give_back_all(batch);
            }
            Egress::Nothing => {}
            Egress::Wires { ends, hash } => {
                let region = pool.region().view();
                let mut unsent = Batch::new();
                for frame in batch.drain() {
                    let meta = region.meta(&frame);
                    let (entry, bytes) = (meta.ingress, meta.packet_len() as u64);
                    let end = hash(region.bytes(&frame)) as usize % ends.len();
                    region.note(&frame, Holder::Wire(ends[end].to));
                    match ends[end].push(frame, region) {
                        Ok(()) => {
                            completed(entry);
                            sent.frames += 1;
                            sent.bytes += bytes;
                        }
                        Err(frame) => unsent
                            .push(frame)
                            .expect("the new batch has room for the old one's frames"),
                    }
                }
                ends.iter_mut().for_each(|end| end.full = false);
                *batch = unsent;
            }
        }
        sent
    }

    pub(super) fn flush(&mut self) {
        if let Egress::Wires { ends, .. } = &mut self.0 {
            for end in ends.iter_mut().filter(|end| end.dirty) {
                end.wire.submit();
                end.bell.ring();
                end.dirty = false;
            }
        }
    }
}

impl Transmitter {
    /// Marks the packets transmitted so far.
    pub(super) fn set_drain_mark(&mut self) {
        if let Egress::Wires { ends, .. } = &mut self.0 {
            ends.iter_mut().for_each(|end| end.drain_mark = end.wire.pushed());
        }
    }

    /// Whether the far end has received all marked packets: it polls its wires one after another.
    pub(super) fn has_drained(&mut self) -> bool {
        match &mut self.0 {
            Egress::Sink(_) | Egress::Nothing => true,
            Egress::Wires { ends, .. } => {
                ends.iter_mut().all(|end| end.wire.has_emptied(end.drain_mark))
            }
        }
    }
}

impl WireEnd {
    #[inline]
    fn push(&mut self, frame: Frame, region: View<'_>) -> Result<(), Frame> {
        if self.full {
            return Err(frame);
        }
        let surplus = match frame.is_chained() {
            true => region.meta(&frame).frames() as u64 - 1,
            false => 0,
        };
        if surplus > 0 && self.surplus.load() + surplus > self.surplus_max {
            self.full = true;
            return Err(frame);
        }
        let pushed = self.wire.push(frame);
        self.full = pushed.is_err();
        self.dirty |= pushed.is_ok();
        if surplus > 0 && pushed.is_ok() {
            self.surplus.add(surplus); // Before `submit`, after which the far end may subtract it.
        }
        pushed
    }
}

/// One-way wires from a port with a transmitter for each of `workers` to the receive queues of `to`.
///
/// A wire holds `capacity` packets, and as many continuation frames, or one
/// packet's ([`CHAIN_MAX`]): two lines of the pool's sum. `bells` are the doorbells of the workers that own the queues,
/// one per queue. Returns the receivers of `to`, one per queue, and the transmitters towards it, one per worker.
pub fn wires(
    to: PortId,
    workers: usize,
    bells: &[Arc<Doorbell<EventFd>>],
    capacity: usize,
    hash: FlowHash,
) -> (Vec<Receiver>, Vec<Transmitter>) {
    let mut ends: Vec<Vec<WireEnd>> = (0..workers).map(|_| Vec::new()).collect();
    let receivers = (0..).zip(bells).map(|(queue, bell)| {
        let wires = ends.iter_mut().map(|ends| {
            let (producer, consumer) = ring(capacity);
            let surplus = Arc::new(SharedCount::default());
            ends.push(WireEnd {
                to,
                wire: producer,
                surplus: surplus.clone(),
                surplus_max: capacity.max(CHAIN_MAX) as u64, // Or a packet would wait for ever.
                bell: bell.clone(),
                dirty: false,
                drain_mark: 0,
                full: false,
            });
            FarEnd { wire: consumer, surplus }
        });
        let feed = Feed::Wires(wires.collect());
        Receiver::of(to, QueueId(queue), feed)
    });
    let receivers = receivers.collect();
    let transmitters =
        ends.into_iter().map(|ends| Transmitter(Egress::Wires { ends, hash })).collect();
    (receivers, transmitters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::vocabulary::{SegmentKind, Segments};
    use manylane_frame::{Depot, RegionConfig};

    const PARTIAL: Checksum = Checksum::Partial { start: 290, offset: 16 };
    const TCP: Segments = Segments { kind: SegmentKind::Tcp4, ecn: false, size: 1448 };

    /// The far end is in the same process: a wire in memory completes no checksum and segments nothing.
    #[test]
    fn a_wire_keeps_what_is_known_of_a_packet() {
        let (mut pool, mut batch) = (pool(), Batch::new());
        let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
        let mut frame = packet(&mut pool, &[b"head", b"and more"]);
        let marks = pool.region().view().meta_mut(&mut frame);
        (marks.checksum, marks.segments, marks.own) = (PARTIAL, TCP, true);
        send(&mut transmitters[0], &mut pool, frame);
        assert_eq!(receivers[0].receive(&mut pool, &mut batch, 0), 1);
        let meta = pool.region().meta(&batch.as_slice()[0]);
        assert_eq!((meta.ingress, meta.queue, meta.own), (PortId(7), QueueId(0), false));
        assert_eq!((meta.checksum, meta.segments, meta.frames()), (PARTIAL, TCP, 2));
        pool.give_back_all(&mut batch);
        assert_all_home(&mut pool);
    }

    #[test]
    fn a_device_that_does_not_know_still_passes_on_what_it_was_told() {
        let (mut pool, mut batch) = (pool(), Batch::new());
        let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
        let mut receiver = receivers.remove(0).with_checksum(Checksum::Unknown);
        for checksum in [Checksum::Valid, PARTIAL] {
            let mut frame = packet(&mut pool, &[b"packet"]);
            pool.region().view().meta_mut(&mut frame).checksum = checksum;
            send(&mut transmitters[0], &mut pool, frame);
        }
        assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 2);
        let known: Vec<_> = batch.iter().map(|frame| pool.region().meta(frame).checksum).collect();
        assert_eq!(known, [Checksum::Unknown, PARTIAL]);
        pool.give_back_all(&mut batch);
        assert_all_home(&mut pool);
    }

    #[test]
    fn packets_are_sent_and_frames_wait() {
        let mut pool = pool();
        let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 8, |_| 0);
        let mut batch = Batch::new();
        for parts in [&[&b"one"[..]][..], &[b"two", b"2"], &[b"three", b"3", b"", b"3"]] {
            batch.push(packet(&mut pool, parts)).expect("a batch holds 64");
        }
        let mut completed = 0;
        let sent = transmitters[0].transmit(&mut pool, &mut batch, |_| completed += 1);
        assert_eq!((sent, completed), (Sent { frames: 3, bytes: 3 + 4 + 7 }, 3));
        assert_eq!(receivers[0].waiting(), 0, "nobody has been told yet");
        transmitters[0].flush();
        assert_eq!(receivers[0].waiting(), 1 + 2 + 4);
        assert_eq!(receivers.remove(0).close(&mut pool), 7);
        assert_all_home(&mut pool);
    }

    /// A pool has few frames; long packets must not keep more of them than the wire's sum allows.
    #[test]
    fn a_wire_is_full_of_frames_before_it_is_full_of_chains() {
        let mut pool = pool();
        let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 100, |_| 0);
        let mut batch = Batch::new();
        for _ in 0..5 {
            batch.push(packet(&mut pool, &[&b"part"[..]; 33])).expect("a batch holds 64");
        }
        batch.push(packet(&mut pool, &[b"single"])).expect("a batch holds 64");
        let sent = transmitters[0].transmit(&mut pool, &mut batch, |_| ());
        assert_eq!((sent.frames, batch.len()), (3, 3), "32 more each; none passes the fourth");
        transmitters[0].flush();
        assert_eq!(receivers[0].waiting(), 3 * 33);
        let mut far = Batch::new();
        assert_eq!(receivers[0].receive(&mut pool, &mut far, 0), 3);
        assert_eq!(transmitters[0].transmit(&mut pool, &mut batch, |_| ()).frames, 3);
        pool.give_back_all(&mut far);
        transmitters[0].flush();
        assert_eq!(receivers.remove(0).close(&mut pool), 2 * 33 + 1);
        assert_all_home(&mut pool);
    }

    #[test]
    fn a_sink_sees_whole_packets() {
        let mut pool = pool();
        let (tell, told) = std::sync::mpsc::channel();
        let mut transmitter = Transmitter::into_sink(Box::new(move |region, frames| {
            for frame in frames {
                let bytes: Vec<u8> = region.view().parts(frame).flatten().copied().collect();
                tell.send(bytes).expect("the test listens");
            }
        }));
        let mut batch = Batch::new();
        batch.push(packet(&mut pool, &[b"in ", b"two"])).expect("it is empty");
        let sent = transmitter.transmit(&mut pool, &mut batch, |_| ());
        assert_eq!(sent, Sent { frames: 1, bytes: 6 });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"in two"]);
        assert_all_home(&mut pool);
    }

    /// A reused frame may have any marks: those that a source does not set must not remain.
    #[test]
    fn a_source_says_only_when_asked_what_is_left_to_do() {
        for (asked, checksum, segments) in
            [(true, PARTIAL, TCP), (false, Checksum::Valid, Segments::NONE)]
        {
            let (mut pool, mut batch) = (pool(), Batch::new());
            let source: Source = Box::new(|pool, batch, _| {
                let mut frame = packet(pool, &[b"head", b"tail"]);
                let marks = pool.region().view().meta_mut(&mut frame);
                (marks.checksum, marks.segments) = (PARTIAL, TCP);
                batch.push(frame).expect("it is empty");
                Next::Done
            });
            let receiver = Receiver::from_source(PortId(7), QueueId(1), source);
            let mut receiver = if asked { receiver.with_marks() } else { receiver };
            assert_eq!(receiver.receive(&mut pool, &mut batch, 0), 1);
            let meta = pool.region().meta(&batch.as_slice()[0]);
            assert_eq!((meta.ingress, meta.queue, meta.frames()), (PortId(7), QueueId(1), 2));
            assert_eq!((meta.checksum, meta.segments), (checksum, segments));
            pool.give_back_all(&mut batch);
            assert_all_home(&mut pool);
        }
    }

    /// Both ends on threads of their own, a short wire that is full most of the time, packets of 1 to 5
    /// frames: they arrive whole and in order, and every frame is returned.
    #[test]
    fn chains_cross_a_wire_between_two_workers() {
        const PACKETS: u32 = 20_000;
        let depot = depot();
        let (mut receivers, mut transmitters) = wires(PortId(7), 1, &[bell()], 4, |_| 0);
        let (mut receiver, mut transmitter) = (receivers.remove(0), transmitters.remove(0));
        std::thread::scope(|scope| {
            // Short lists, or the receiver's would keep all frames.
            let (mut near, mut far) = (depot.pool_of(128), depot.pool_of(128));
            scope.spawn(move || {
                let (mut batch, mut made) = (Batch::new(), 0_u32);
                while made < PACKETS || !batch.is_empty() {
                    while made < PACKETS && batch.len() < 8 {
                        let number = made.to_be_bytes();
                        let parts = [&number[..]; 5];
                        let frame = packet(&mut near, &parts[..1 + made as usize % 5]);
                        batch.push(frame).expect("8 fit");
                        made += 1;
                    }
                    transmitter.transmit(&mut near, &mut batch, |_| ());
                    transmitter.flush();
                    std::thread::yield_now();
                }
            });
            let (mut batch, mut seen) = (Batch::new(), 0_u32);
            while seen < PACKETS {
                receiver.receive(&mut far, &mut batch, 0);
                for frame in batch.iter() {
                    let expected = seen.to_be_bytes();
                    let frames = 1 + seen as usize % 5;
                    assert_eq!(far.region().meta(frame).frames(), frames);
                    assert!(far.region().view().parts(frame).all(|part| part == expected));
                    seen += 1;
                }
                far.give_back_all(&mut batch);
                std::thread::yield_now();
            }
            assert_eq!((receiver.waiting(), receiver.close(&mut far)), (0, 0));
        });
        assert_all_home(&mut depot.pool());
    }

    fn send(transmitter: &mut Transmitter, pool: &mut Pool, frame: Frame) {
        let mut batch = Batch::new();
        batch.push(frame).expect("it is empty");
        assert_eq!(transmitter.transmit(pool, &mut batch, |_| ()).frames, 1);
        transmitter.flush();
    }

    fn packet(pool: &mut Pool, parts: &[&[u8]]) -> Frame {
        let mut packet: Option<Frame> = None;
        for bytes in parts {
            let mut frame = pool.take().expect("there are frames");
            let view = pool.region().view();
            view.set_window(&mut frame, 256, 256 + bytes.len() as u16);
            view.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
            view.bytes_mut(&mut frame).copy_from_slice(bytes);
            match &mut packet {
                Some(first) => view.append(first, frame).expect("at most 64"),
                None => packet = Some(frame),
            }
        }
        packet.expect("there is a part")
    }

    fn bell() -> Arc<Doorbell<EventFd>> {
        Arc::new(Doorbell::new(EventFd::open().expect("descriptors are to be had")))
    }

    fn pool() -> Pool {
        depot().pool()
    }

    fn depot() -> Depot {
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        Depot::new(region.expect("2 MiB can be mapped"), 4).expect("the first taker")
    }

    fn assert_all_home(pool: &mut Pool) {
        let frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
        assert_eq!(frames.len(), FRAMES as usize);
        frames.into_iter().for_each(|frame| pool.give_back(frame));
    }

    const FRAMES: u32 = 1024;
}
