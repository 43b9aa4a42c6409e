//! Records: the metadata in front of a packet's bytes.

use manylane_frame::vocabulary::{DropReason, Point, PortId, QueueId, WorkerId};

/// A packet's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes on the wire, over all its frames.
    pub len: u32,
    /// The port that it arrived by, or is about to leave by.
    pub port: PortId,
    /// The queue of that port.
    pub queue: QueueId,
    /// The worker that captured it.
    pub worker: WorkerId,
    /// Where in the forwarding path it was captured.
    pub point: Point,
    /// Why it was dropped, at [`Point::Drop`].
    pub reason: Option<DropReason>,
}

/// A [`Record`] as it lies in a ring. Any bits are valid; the packet's bytes follow.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Header {
    time_ns: u64,
    /// The number of packet bytes that follow.
    captured: u32,
    len: u32,
    port: u16,
    queue: u16,
    worker: u16,
    point: u8,
    reason: u8,
}

/// The bytes of a record before the packet's.
pub(super) const HEADER: usize = size_of::<Header>();
/// The alignment of records.
pub(super) const ALIGN: usize = align_of::<Header>();

const NO_REASON: u8 = u8::MAX;
const _: () = assert!(DropReason::COUNT < NO_REASON as usize && HEADER == 24 && ALIGN == 8);

impl Header {
    #[inline(always)]
    pub fn new(record: &Record, captured: u32) -> Header {
        Header {
            time_ns: record.time_ns,
            captured,
            len: record.len,
            port: record.port.0,
            queue: record.queue.0,
            worker: record.worker.0,
            point: record.point as u8,
            reason: record.reason.map_or(NO_REASON, |reason| reason as u8),
        }
    }

    /// The number of packet bytes that follow, by the header.
    pub fn captured(&self) -> usize {
        self.captured as usize
    }

    /// `None` if the point or the reason is unknown.
    pub fn record(&self) -> Option<Record> {
        let reason = match self.reason {
            NO_REASON => None,
            reason => Some(*DropReason::ALL.get(usize::from(reason))?),
        };
        Some(Record {
            time_ns: self.time_ns,
            len: self.len,
            port: PortId(self.port),
            queue: QueueId(self.queue),
            worker: WorkerId(self.worker),
            point: *Point::ALL.get(usize::from(self.point))?,
            reason,
        })
    }
}
