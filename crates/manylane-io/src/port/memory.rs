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
    /// ([`View::set_ingress`](manylane_frame::View::set_ingress), then the marks), to stand for a device that leaves work undone. Without
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
mod tests;
