//! A worker's path into a file.

use std::sync::Arc;
use std::time::SystemTime;

use manylane_frame::vocabulary::{Offload, PortId};
use manylane_frame::{Batch, CHAIN_MAX, Frame, Pool, View};
use manylane_sync::doorbell::Doorbell;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::super::{Clock, Sent};
use crate::eventfd::EventFd;

/// A lane: its packets are recorded in the file that a [`Writer`](super::Writer) writes.
pub struct Transmitter {
    port: PortId,
    clock: Clock,
    snap_len: usize,
    filling: Option<Vec<u8>>,
    full: Producer<LaneMessage>,
    empty: Consumer<Vec<u8>>,
    bell: Arc<Doorbell<EventFd>>,
    counts: LaneCounts,
}

/// The counts of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Packets passed to the writer.
    pub recorded: u64,
    /// Packets lost because no buffer was free: the disk is too slow, or the writer has failed.
    pub lost: u64,
}

/// The direction of a packet, as a capture records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Transmitted.
    Out,
}

/// A message of a lane to the writer.
pub(super) enum LaneMessage {
    /// Consecutive records: each a [`Record`] and its bytes.
    Records(Vec<u8>),
    /// The lane has ended.
    End,
}

/// The metadata of a recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub time_ns: u64,
    /// The number of bytes that follow.
    pub captured: u32,
    /// The packet's length.
    pub len: u32,
    pub direction: Direction,
}

/// The writer's end of a lane.
pub(super) struct LaneEnd {
    pub full: Consumer<LaneMessage>,
    pub empty: Producer<Vec<u8>>,
}

/// A lane of `buffers` buffers; `bell` rings when a full one is passed to the writer.
pub(super) fn lane(
    port: PortId,
    clock: Clock,
    snap_len: u32,
    buffers: usize,
    bell: Arc<Doorbell<EventFd>>,
) -> (Transmitter, LaneEnd) {
    let (full, records) = ring(buffers + 1); // One more for the end.
    let (mut emptied, empty) = ring(buffers);
    for _ in 0..buffers {
        emptied.push(Vec::with_capacity(BUFFER)).expect("there is a place for each buffer");
    }
    emptied.submit();
    let snap_len = snap_len as usize;
    let counts = LaneCounts::default();
    let transmitter =
        Transmitter { port, clock, snap_len, filling: None, full, empty, bell, counts };
    (transmitter, LaneEnd { full: records, empty: emptied })
}

impl Transmitter {
    /// Records all packets of `batch` and returns their frames; packets without a buffer are lost and counted.
    #[inline]
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        mut completed: impl FnMut(PortId),
    ) -> Sent {
        let view = pool.region().view();
        self.record(view, batch.as_slice(), Direction::Out);
        let mut sent = Sent { frames: batch.len(), bytes: 0 };
        for frame in batch.iter() {
            let meta = view.meta(frame);
            completed(meta.ingress);
            sent.bytes += meta.packet_len() as u64;
        }
        pool.give_back_all(batch);
        sent
    }

    /// Records packets, which stay their owner's.
    #[inline]
    pub fn record(&mut self, view: View<'_>, frames: &[Frame], direction: Direction) {
        if frames.is_empty() {
            return;
        }
        let time_ns = (self.clock)();
        for frame in frames {
            let len = view.meta(frame).packet_len();
            let captured = len.min(self.snap_len);
            let record = Record { time_ns, captured: captured as u32, len: len as u32, direction };
            match self.place(RECORD + captured) {
                Some(buffer) => {
                    record.write(buffer);
                    let mut left = captured;
                    for part in view.parts(frame) {
                        let part = &part[..part.len().min(left)];
                        buffer.extend_from_slice(part);
                        left -= part.len();
                    }
                    self.counts.recorded += 1;
                }
                None => self.counts.lost += 1,
            }
        }
    }

    /// Passes the buffer to the writer if the writer waits for it; otherwise a fuller buffer is better. So a
    /// sleeping worker may keep a partly filled buffer until it wakes, or ends.
    #[inline]
    pub fn flush(&mut self) {
        if self.filling.is_some() && self.full.is_drained() {
            self.hand_over();
        }
    }

    /// The packets it accepts.
    pub fn offload(&self) -> Offload {
        Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: true }
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// Its counts.
    pub fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// The buffer that has `needed` bytes left, if any has.
    #[inline]
    fn place(&mut self, needed: usize) -> Option<&mut Vec<u8>> {
        if self.filling.as_ref().is_some_and(|buffer| buffer.capacity() - buffer.len() < needed) {
            self.hand_over();
        }
        if self.filling.is_none() {
            self.filling = self.empty.pop();
            self.empty.release();
        }
        self.filling.as_mut()
    }

    fn hand_over(&mut self) {
        if let Some(buffer) = self.filling.take() {
            self.push(LaneMessage::Records(buffer));
        }
    }

    fn push(&mut self, message: LaneMessage) {
        let pushed = self.full.push(message);
        assert!(pushed.is_ok(), "the ring has a place for each buffer, and for the end");
        self.full.submit();
        self.bell.ring();
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        self.hand_over();
        self.push(LaneMessage::End);
    }
}

impl Record {
    fn write(self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.capacity() - buffer.len() >= RECORD, "a buffer does not grow");
        buffer.extend_from_slice(&self.time_ns.to_ne_bytes());
        buffer.extend_from_slice(&self.captured.to_ne_bytes());
        buffer.extend_from_slice(&self.len.to_ne_bytes());
        buffer.push(self.direction as u8);
    }

    /// The first record of `bytes`, its packet's bytes, and the rest; `None` at the end.
    pub(super) fn read(bytes: &[u8]) -> Option<(Record, &[u8], &[u8])> {
        let (time_ns, bytes) = bytes.split_first_chunk()?;
        let (captured, bytes) = bytes.split_first_chunk()?;
        let (len, bytes) = bytes.split_first_chunk()?;
        let (&direction, bytes) = bytes.split_first()?;
        let record = Record {
            time_ns: u64::from_ne_bytes(*time_ns),
            captured: u32::from_ne_bytes(*captured),
            len: u32::from_ne_bytes(*len),
            direction: if direction == 0 { Direction::In } else { Direction::Out },
        };
        let (packet, rest) = bytes.split_at(record.captured as usize);
        Some((record, packet, rest))
    }
}

/// A clock of the time of day, for the times in a capture.
pub fn wall_clock() -> Clock {
    Box::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // An earlier time than 1970 means that the clock is not set; after 2554 the number overflows.
        since.map_or(0, |since| since.as_nanos() as u64)
    })
}

/// The bytes of a record before the packet's.
const RECORD: usize = 8 + 4 + 4 + 1;

/// The bytes of a buffer: several of the largest packets.
pub(super) const BUFFER: usize = 256 << 10;
