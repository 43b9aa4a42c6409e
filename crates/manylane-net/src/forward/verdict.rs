//! What is decided about a frame, and about each frame of a batch.

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{BATCH_MAX, BatchList};
use manylane_sync::rcu::Index;

use crate::neighbour::Neighbour;

/// The fate of one frame, and the frame's content when that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that is not dispatched leaks its frame"]
pub struct Verdict<'g> {
    /// What becomes of the frame.
    pub fate: Fate<'g>,
    /// What is in it.
    pub origin: Origin,
}

/// What becomes of one frame. Branded: it cannot outlive the turn that looked it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'g> {
    /// Transmit it through this port's device; its link-layer header is written, tags included.
    Transmit(PortId),
    /// Too large for this port and free to be cut: [prepare](super::Forwarder::prepare) it, then transmit the
    /// pieces by its [device](super::Forwarder::device).
    Fragment(PortId),
    /// The port does not take the packet as it is (its checksum partial, of segments, or in too many frames):
    /// [prepare](super::Forwarder::prepare) it, then transmit the result.
    Prepare(PortId),
    /// The packet was for us, and has been dealt with.
    Deliver,
    /// This neighbour has no address yet: hold it.
    Hold(Index<'g, Neighbour>),
    /// The destination is a neighbour on this port without an entry yet: report, and hold the packet.
    Glean(PortId),
    /// Count it under its reason and give the frame back.
    Drop(DropReason),
}

/// What a frame holds when its fate is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The packet that was received.
    Received,
    /// Our answer to it: the received one is delivered, this one was created.
    Reply,
    /// An error about it: the received one is dropped under this reason, this one was created.
    Error(DropReason),
}

/// The verdicts on a batch, in its order.
///
/// # Invariants
///
/// 1. Of each of the first `len` places, `egress_ports` has the port to transmit by if the packet was simply passed
///    on; else `OTHER`, and the next of `others` is its verdict.
pub struct Verdicts<'g> {
    pub(super) len: usize,
    pub(super) ingress: PortId,
    pub(super) bytes: u64,
    pub(super) egress_ports: [u16; BATCH_MAX],
    pub(super) others: BatchList<Verdict<'g>>,
}

impl Default for Verdicts<'_> {
    fn default() -> Self {
        Verdicts::new()
    }
}

/// In [`Verdicts`]: no port has this number (`config`).
pub(super) const OTHER: u16 = u16::MAX;

impl<'g> Verdicts<'g> {
    /// Of an empty batch; [`Forwarder::forward`](super::Forwarder::forward) makes them those of another.
    #[inline(always)]
    pub fn new() -> Verdicts<'g> {
        let (egress_ports, others) = ([OTHER; BATCH_MAX], BatchList::new());
        Verdicts { len: 0, ingress: PortId(0), bytes: 0, egress_ports, others }
    }

    /// For each place of the batch, in order: the index of the port that the packet leaves by, if it was
    /// received and is passed on ([`Fate::Transmit`], [`Origin::Received`]), as nearly all are. Else one
    /// beyond all ports, and the next of [`others`](Verdicts::others) tells.
    #[inline(always)]
    pub fn egress_ports(&self) -> &[u16] {
        &self.egress_ports[..self.len]
    }

    /// The port that all packets of the batch leave by, as in [`egress_ports`](Verdicts::egress_ports), if it is the same.
    #[inline(always)]
    pub fn one_egress(&self) -> Option<u16> {
        let &first = self.egress_ports().first()?;
        // Without a branch on each: many at a time.
        let others = self.egress_ports().iter().fold(0, |others, egress| others | (egress ^ first));
        (others == 0 && first != OTHER).then_some(first)
    }

    /// The verdicts on packets that are not simply passed on, in the batch's order.
    #[inline(always)]
    pub fn others(&self) -> &[Verdict<'g>] {
        self.others.as_slice()
    }

    /// All verdicts, in the batch's order.
    pub fn list(&self) -> Vec<Verdict<'g>> {
        let mut others = self.others().iter();
        let verdict = |&egress| match egress {
            OTHER => *others.next().expect("invariant 1"),
            egress => Verdict::received(Fate::Transmit(PortId(egress))),
        };
        self.egress_ports().iter().map(verdict).collect()
    }

    /// The verdict on the packet at one place of the batch.
    pub fn at(&self, place: usize) -> Verdict<'g> {
        match self.egress_ports()[place] {
            OTHER => {
                let before = self.egress_ports()[..place].iter();
                // Invariant 1.
                self.others()[before.filter(|&&egress| egress == OTHER).count()]
            }
            egress => Verdict::received(Fate::Transmit(PortId(egress))),
        }
    }

    /// The port whose device received the batch.
    #[inline(always)]
    pub fn ingress(&self) -> PortId {
        self.ingress
    }

    /// The bytes of the batch as it was received.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'g> Verdict<'g> {
    #[inline(always)]
    pub(super) fn received(fate: Fate<'g>) -> Verdict<'g> {
        Verdict { fate, origin: Origin::Received }
    }

    #[inline(always)]
    pub(super) fn drop(reason: DropReason) -> Verdict<'g> {
        Verdict::received(Fate::Drop(reason))
    }
}
