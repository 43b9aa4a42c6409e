//! Ports in memory: what tests, the demo and the benches use.
//!
//! A receive queue is fed by a function (a generator, an injector) or by the wires of another memory
//! port; a transmitter ends in a function (a sink, a checker) or in such wires. Which frames a function
//! makes and what it checks is the business of the crates above: here it is only called.

use std::sync::Arc;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Batch, Frame, Holder, Pool, Region};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Sent, Wait};
use crate::eventfd::EventFd;

/// Makes frames: takes them from the pool, as many as [`Pool::may_receive`] says, fills in window and
/// bytes, and pushes up to `batch.room()` of them. Gets the time in nanoseconds.
pub type Source = Box<dyn FnMut(&mut Pool, &mut Batch, u64) -> Next + Send>;

/// Sees the frames that a port transmits.
pub type Sink = Box<dyn FnMut(&Region, &[Frame]) + Send>;

/// Chooses among the receive queues of a wire's far end; the hash of a flow.
pub type FlowHash = fn(&[u8]) -> u32;

/// When a source may have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Now.
    More,
    /// After so many nanoseconds.
    After(u64),
    /// When somebody rings the worker's doorbell.
    Doorbell,
    /// Never again.
    Done,
}

/// A receive queue in memory.
pub struct Receiver {
    port: PortId,
    queue: QueueId,
    checksum: Checksum,
    feed: Feed,
}

enum Feed {
    Source {
        source: Source,
        next: Next,
        not_before_ns: u64,
        now_ns: u64,
    },
    /// One wire from each worker of the far end.
    Wires(Vec<Consumer<Frame>>),
    /// Nothing ever comes.
    Nothing,
}

impl Receiver {
    /// A queue of `port` that `source` feeds.
    pub fn from_source(port: PortId, queue: QueueId, source: Source) -> Receiver {
        let feed = Feed::Source { source, next: Next::More, not_before_ns: 0, now_ns: 0 };
        Receiver { port, queue, checksum: Checksum::Valid, feed }
    }

    /// A queue of `port` that nothing comes from.
    pub fn silent(port: PortId, queue: QueueId) -> Receiver {
        Receiver { port, queue, checksum: Checksum::Valid, feed: Feed::Nothing }
    }

    /// The queue with frames marked as `checksum`, to stand for a device that does not know.
    pub fn with_checksum(self, checksum: Checksum) -> Receiver {
        Receiver { checksum, ..self }
    }

    #[inline]
    pub(super) fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        let before = batch.len();
        match &mut self.feed {
            Feed::Source { source, next, not_before_ns, now_ns: seen_ns } => {
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
                for wire in wires {
                    while !batch.is_full() {
                        let Some(frame) = wire.pop() else { break };
                        batch.push(frame).expect("the batch has room");
                    }
                    wire.release();
                }
            }
            Feed::Nothing => return 0,
        }
        let region = pool.region().view();
        for frame in &mut batch.as_mut_slice()[before..] {
            match self.feed {
                // What a wire brings keeps what is known of its checksum and segments.
                Feed::Wires(_) => {
                    let marks = region.meta_mut(frame);
                    (marks.entry, marks.queue, marks.own) = (self.port, self.queue, false);
                    if marks.checksum == Checksum::Valid {
                        marks.checksum = self.checksum;
                    }
                }
                _ => region.set_entry(frame, self.port, self.queue, self.checksum),
            }
        }
        batch.len() - before
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

    /// Frames that wait in wires; the far end counts them as transmitted already.
    pub(super) fn waiting(&self) -> usize {
        match &self.feed {
            Feed::Wires(wires) => wires.iter().map(Consumer::waiting).sum(),
            _ => 0,
        }
    }

    pub(super) fn port(&self) -> PortId {
        self.port
    }

    pub(super) fn queue(&self) -> QueueId {
        self.queue
    }

    /// Gives back what still waits in wires; returns how many frames that were.
    pub fn close(mut self, pool: &mut Pool) -> u32 {
        let mut frames = 0;
        if let Feed::Wires(wires) = &mut self.feed {
            for wire in wires {
                while let Some(frame) = wire.pop() {
                    pool.give_back(frame);
                    frames += 1;
                }
                wire.release();
            }
        }
        frames
    }
}

/// One worker's way out into memory.
pub struct Transmitter(Exit);

enum Exit {
    Sink(Sink),
    /// One wire to each receive queue of the far end, and the bell of the worker that owns it.
    Wires {
        ends: Vec<WireEnd>,
        hash: FlowHash,
    },
}

struct WireEnd {
    to: PortId,
    wire: Producer<Frame>,
    bell: Arc<Doorbell<EventFd>>,
    /// Frames were pushed and not submitted.
    dirty: bool,
    /// A frame found no place in this call, so that none after it may pass it.
    full: bool,
}

impl Transmitter {
    /// A way out that ends in `sink`.
    pub fn into_sink(sink: Sink) -> Transmitter {
        Transmitter(Exit::Sink(sink))
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
            Exit::Sink(sink) => {
                sink(pool.region(), batch.as_slice());
                let region = pool.region().view();
                for frame in batch.iter() {
                    let meta = region.meta(frame);
                    completed(meta.entry);
                    sent.bytes += meta.packet_len() as u64;
                }
                sent.frames = batch.len();
                pool.give_back_all(batch);
            }
            Exit::Wires { ends, hash } => {
                let region = pool.region().view();
                let mut left = Batch::new();
                for frame in batch.drain() {
                    let (entry, len) =
                        (region.meta(&frame).entry, region.meta(&frame).packet_len());
                    let end = hash(region.bytes(&frame)) as usize % ends.len();
                    region.note(&frame, Holder::Wire(ends[end].to));
                    match ends[end].push(frame) {
                        Ok(()) => {
                            completed(entry);
                            sent.frames += 1;
                            sent.bytes += len as u64;
                        }
                        Err(frame) => left.push(frame).expect("as many as came out fit in"),
                    }
                }
                ends.iter_mut().for_each(|end| end.full = false);
                *batch = left;
            }
        }
        sent
    }

    pub(super) fn flush(&mut self) {
        if let Exit::Wires { ends, .. } = &mut self.0 {
            for end in ends.iter_mut().filter(|end| end.dirty) {
                end.wire.submit();
                end.bell.ring();
                end.dirty = false;
            }
        }
    }
}

impl WireEnd {
    fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.full {
            return Err(frame);
        }
        let pushed = self.wire.push(frame);
        self.full = pushed.is_err();
        self.dirty |= pushed.is_ok();
        pushed
    }
}

/// Wires one way from a port with a transmitter for each of `workers` to the receive queues of `to`.
///
/// `bells` are the doorbells of the workers that own the queues, one per queue. Returns the receivers
/// of `to`, one per queue, and the transmitters towards it, one per worker.
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
            let bell = bell.clone();
            ends.push(WireEnd { to, wire: producer, bell, dirty: false, full: false });
            consumer
        });
        let feed = Feed::Wires(wires.collect());
        Receiver { port: to, queue: QueueId(queue), checksum: Checksum::Valid, feed }
    });
    let receivers = receivers.collect();
    let transmitters =
        ends.into_iter().map(|ends| Transmitter(Exit::Wires { ends, hash })).collect();
    (receivers, transmitters)
}
