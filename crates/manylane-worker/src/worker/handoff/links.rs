//! The rings between two workers: the packets in them, and the room left.

use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{BATCH_MAX, Batch, Frame};
use manylane_io::eventfd::EventFd;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::ring::{Consumer, Producer};

use crate::worker::flow_limit::FlowLimit;

/// Frames of packets in a ring behind the first of each: as many as packets, and one batch more.
const fn surplus_max(capacity: usize) -> u64 {
    capacity as u64
}

/// Packets for one worker.
pub(super) struct StagedBatch {
    pub(super) frames: Batch,
    /// Where the bytes of each begin.
    pub(super) heads: [u16; BATCH_MAX],
}

impl Default for StagedBatch {
    fn default() -> StagedBatch {
        StagedBatch { frames: Batch::new(), heads: [0; BATCH_MAX] }
    }
}

impl StagedBatch {
    #[inline(always)]
    pub(super) fn push(&mut self, frame: Frame, head: u16) {
        const { assert!(BATCH_MAX.is_power_of_two(), "or its places could not be masked") };
        self.heads[self.frames.len() & (BATCH_MAX - 1)] = head;
        self.frames.push(frame).expect("there is a place for each head");
    }
}

/// A packet in a ring.
pub(super) struct InTransit {
    pub(super) frame: Frame,
    /// Where its bytes begin in the slot, and its ingress port: its new worker prefetches and reads both
    /// before it has the frame's lines.
    pub(super) head: u16,
    pub(super) ingress: PortId,
}

/// The ring to another worker.
pub(super) struct Outbound {
    pub(super) ring: Producer<InTransit>,
    pub(super) capacity: usize,
    /// Frames of packets in the ring behind the first ones. Only chains write it.
    pub(super) surplus: Arc<SharedCount>,
    pub(super) bell: Arc<Doorbell<EventFd>>,
    pub(super) flows: FlowLimit,
    /// Packets that fit, at the last measurement.
    pub(super) room: usize,
    /// The room was measured for the queue being received from.
    pub(super) is_known: bool,
    /// More than half of the backlog was taken when we last looked.
    pub(super) is_busy: bool,
    /// The ring had no room: how long the queue waits for it.
    pub(super) stalled_until_ns: Option<u64>,
}

/// The ring from another worker.
pub(super) struct Inbound {
    pub(super) ring: Consumer<InTransit>,
    pub(super) surplus: Arc<SharedCount>,
    /// How many of the next packets have been prefetched.
    pub(super) prefetched: usize,
}

impl Outbound {
    pub(super) fn new(
        ring: Producer<InTransit>,
        capacity: usize,
        surplus: Arc<SharedCount>,
        bell: &Arc<Doorbell<EventFd>>,
    ) -> Outbound {
        Outbound {
            ring,
            capacity,
            surplus,
            bell: bell.clone(),
            flows: FlowLimit::new(),
            room: 0,
            is_known: false,
            is_busy: false,
            stalled_until_ns: None,
        }
    }

    /// Measures how many packets fit, if the last measurement does not show room for a batch.
    #[inline]
    pub(super) fn measure_room(&mut self, max_backlog: usize, wanted: usize) {
        let beyond = self.capacity - max_backlog.min(self.capacity);
        let half = max_backlog / 2;
        self.is_known = true;
        // With the half still free, or a batch, whichever is more, nothing has to be known better.
        let free = self.ring.room(beyond + half.max(wanted));
        self.room = free.saturating_sub(beyond);
        let (surplus, most) = (self.surplus.load(), surplus_max(self.capacity));
        self.is_busy = self.room < half || surplus > most / 2;
        if surplus > most {
            self.room = 0;
        }
    }

    /// Whether a packet must not be handed off, and why.
    #[inline]
    pub(super) fn refuses(&mut self, hash: u32, frame: &Frame) -> Option<DropReason> {
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
