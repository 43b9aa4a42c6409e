//! What is known of a frame, and of the packet that begins in it.

use std::num::NonZeroU64;
use std::ops::Deref;

use crate::vocabulary::{Checksum, PortId, QueueId, Segments};

/// What is known of one frame: one cache line, apart from the packet's bytes.
///
/// # Invariants
///
/// 1. `head + len <= frame_size`: the window never leaves its slot.
/// 2. `next` is 0, or 1 + the index of the frame that holds the packet's next bytes. That one belongs to
///    this frame: it has no `Frame`, and is in no pool, not lent, and no other's `next`.
/// 3. If a frame has a `Frame`: `following` frames follow it, the last of them `last`, with `following_len` bytes
///    together. With none, all three are 0, and so is `next`.
///
/// `View::bytes` relies on the first, `chain.rs` on all. The fields are private to this room.
/// Nothing gives out a `&mut Meta`: with two, windows of two regions could be exchanged, and one may be
/// of smaller frames.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Meta {
    /// Where 16 bytes are written at once.
    pub(super) marks: Marks,
    pub(super) head: u16,
    pub(super) len: u16,
    pub(super) next: u32,
    pub(super) last: u32,
    pub(super) following_len: u32,
    pub(super) following: u8,
    /// One more than the receiver's number, or 0; and the bucket.
    pub(super) steered: [u8; 2],
    pub(super) trace: Trace,
    pub(super) sample: Sample,
    /// What `marks` are, in one word ([`Marks::word`]); 0 when they may have been changed since that was noted.
    pub(super) word: u64,
}

/// How a packet reached the worker that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// The worker that received it, below 255.
    pub receiver: u8,
    /// Its flow's bucket.
    pub bucket: u8,
}

/// A packet's place among those of its flow, to look at its order when it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Which flow.
    pub flow: u64,
    /// Later packets of the flow have higher ones, modulo 2^32.
    pub number: u32,
    /// In which time of looking this was noted; 0 for none. What another time has left means nothing.
    pub period: u32,
}

/// The packet's number in a trace, if an operator traces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Which trace; 0 for none. What another one has left means nothing.
    pub session: u16,
    /// Which of its packets. What is made of a packet has its number.
    pub number: u16,
}

impl Trace {
    /// Of a packet that is not traced.
    pub const NONE: Trace = Trace { session: 0, number: 0 };
}

const _: () = assert!(size_of::<Meta>() == 64, "one cache line");
const _: () = assert!(size_of::<Marks>() == 16, "one store");

/// What is known of a packet besides its bytes, for ports and rules to read and write: in the first frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Marks {
    /// The port the frame was received by, or that caused it: the ledger's first key.
    pub ingress: PortId,
    /// The receive queue the frame was received by.
    pub queue: QueueId,
    /// What the port knows of the transport checksum.
    pub checksum: Checksum,
    /// Whether we made the packet ourselves: then no rule for received packets applies to it.
    pub own: bool,
    /// Whether the frame is a later part of a packet, on its own only because a device has the parts.
    pub later: bool,
    /// Whether the packet stands for several.
    pub segments: Segments,
}

impl Marks {
    /// Of a plain packet received by `queue` of `ingress`.
    #[inline(always)]
    pub const fn received(ingress: PortId, queue: QueueId, checksum: Checksum) -> Marks {
        Marks { ingress, queue, checksum, own: false, later: false, segments: Segments::NONE }
    }

    /// All of them in one word, if they are [of a plain packet](Marks::received) without work left to do on its
    /// checksum: so a receiver of many alike packets sees at a glance that a frame has these marks from its life
    /// before.
    #[inline(always)]
    pub(super) fn word(&self) -> Option<NonZeroU64> {
        let Marks { ingress, queue, checksum, own, later, segments } = *self;
        let unknown = match checksum {
            Checksum::Valid => 0,
            Checksum::Unknown => 1,
            Checksum::Partial { .. } => return None,
        };
        if own || later || segments != Segments::NONE {
            return None;
        }
        NonZeroU64::new(1 << 33 | unknown << 32 | u64::from(queue.0) << 16 | u64::from(ingress.0))
    }
}

impl Meta {
    /// The marks, to change.
    #[inline(always)]
    pub(super) fn marks_mut(&mut self) -> &mut Marks {
        self.word = 0;
        &mut self.marks
    }

    /// Bytes of the packet in this frame.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Length of the packet in bytes, with what lies in the frames that follow.
    #[inline(always)]
    pub fn packet_len(&self) -> usize {
        self.len() + self.following_len as usize
    }

    /// Number of frames that the packet lies in.
    #[inline(always)]
    pub fn frames(&self) -> usize {
        1 + usize::from(self.following)
    }

    /// Where the window begins, in bytes from the start of the slot.
    #[inline(always)]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// How the packet arrived, if it has been held: as last [set](super::View::set_steered).
    #[inline(always)]
    pub fn steered(&self) -> Option<Steered> {
        let [number, bucket] = self.steered;
        number.checked_sub(1).map(|receiver| Steered { receiver, bucket })
    }

    /// Its place in its flow, when that was last [set](super::View::set_sample).
    #[inline]
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Whether the packet is traced, as last [set](super::View::set_trace).
    #[inline]
    pub fn trace(&self) -> Trace {
        self.trace
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cuts the bytes in this frame to at most `len`.
    #[inline(always)]
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len()) as u16; // The length only shrank: invariant 1.
    }
}

impl Deref for Meta {
    type Target = Marks;

    #[inline(always)]
    fn deref(&self) -> &Marks {
        &self.marks
    }
}
