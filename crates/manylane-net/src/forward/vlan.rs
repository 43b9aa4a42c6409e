//! VLANs: tags of IEEE 802.1Q and 802.1ad, taken off at ingress and put on at egress.
//!
//! To every rule a sub-interface is a port like others, with its own addresses, neighbours, MTU and counts. The
//! difference is here, at both ends of the rules, so that in between an Ethernet header of 14 bytes stands in front of
//! every packet:
//!
//! | where                  | what                                                                    |
//! |------------------------|-------------------------------------------------------------------------|
//! | [`Forwarder::sort`]    | a port with sub-interfaces: tags off, and the ingress port is the VLAN  |
//! | `consider_tagged`      | a tag that no sub-interface has: none at all if it says VLAN 0, or a drop |
//! | [`Forwarder::egress`]  | the egress port decides the tags, whatever the frame arrived with       |
//! | [`Forwarder::prepare`] | as `egress`, for each piece of a packet that was cut                    |
//!
//! A frame with two tags belongs to the sub-interface with both, else to none: the outer one's sub-interface would see
//! a tag. Priority and drop eligibility are not looked at and leave as 0.

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_frame::{Frame, Pool, Region};

use super::slow::Considered;
use super::{Fate, Forwarder, PortFacts, PrepareError, Prepared, Turn, Verdict, prepare};
use crate::wire::ethernet::{ADDRESSES_LEN, Tags, VLAN_TAG_LEN};

/// What a sub-interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The port whose device has its frames.
    pub port: PortId,
    /// What these carry; not [`Tags::NONE`].
    pub tags: Tags,
}

/// Frames of a batch received by a sub-interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// The sub-interface.
    pub port: PortId,
    /// How many.
    pub frames: u64,
    /// Their bytes, without tags.
    pub bytes: u64,
}

impl Forwarder {
    /// Takes the tags of sub-interfaces of `ingress` off a batch from its device. From here on the sub-interfaces are
    /// the ingress ports of these frames.
    #[inline(never)]
    pub(super) fn sort(&mut self, ingress: PortId, frames: &mut [Frame]) {
        self.sorted.clear();
        for frame in frames {
            let found = self.port(ingress).sub_interface(self.region.bytes(frame));
            let Some((tags, port)) = found else { continue };
            untag(&self.region, frame, tags);
            self.region.meta_mut(frame).ingress = port;
            let bytes = self.region.meta(frame).packet_len() as u64;
            match self.sorted.last_mut() {
                Some(last) if last.port == port => {
                    (last.frames, last.bytes) = (last.frames + 1, last.bytes + bytes);
                }
                _ => self.sorted.push(Sorted { port, frames: 1, bytes }),
            }
        }
    }

    /// Frames of the last batch received by sub-interfaces of its port, which [`Verdicts`](super::Verdicts) counts too.
    /// To be drained before the next batch.
    pub fn sorted(&mut self) -> std::vec::Drain<'_, Sorted> {
        self.sorted.drain(..)
    }

    /// Whether any did.
    #[inline(always)]
    pub fn has_sorted(&self) -> bool {
        !self.sorted.is_empty()
    }

    /// Judges a frame without the tag of VLAN 0 that it has.
    #[cold]
    pub(super) fn judge_untagged<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
    ) -> Verdict<'g> {
        untag(&self.region, frame, VLAN_TAG_LEN);
        self.judge(turn, frame)
    }

    /// Egress by `port`, link-layer header in front: as it is, with the port's tags, or to be prepared for a port that
    /// does not take the packet.
    pub(super) fn egress<'g>(&self, frame: &mut Frame, port: PortId) -> Fate<'g> {
        let facts = self.port(port);
        if !prepare::takes(facts.offload, self.region.meta(frame)) {
            return Fate::Prepare(port);
        }
        let Some(vlan) = facts.vlan else { return Fate::Transmit(port) };
        match tag(&self.region, frame, vlan.tags) {
            Some(()) => Fate::Transmit(vlan.port),
            None => Fate::Drop(DropReason::Truncated),
        }
    }

    /// Makes of a packet what `port` takes, as its fate says, and adds that to `pieces`: to be transmitted
    /// by [`Forwarder::device`]. As [`prepare()`], with the port's tags.
    pub fn prepare(
        &self,
        pool: &mut Pool,
        frame: Frame,
        port: PortId,
        pieces: &mut Vec<Frame>,
    ) -> Result<Prepared, PrepareError> {
        let PortFacts { offload, mtu, vlan, .. } = self.port(port);
        let first = pieces.len();
        let prepared = prepare::prepare(pool, frame, *offload, *mtu, pieces)?;
        if let Some(vlan) = vlan {
            for piece in &mut pieces[first..] {
                // Pieces begin where received packets do, behind the headroom: this does not fail.
                let tagged = tag(pool.region(), piece, vlan.tags);
                debug_assert!(tagged.is_some(), "a frame has headroom");
            }
        }
        Ok(prepared)
    }

    /// The port whose device has the frames of `port`: itself, or what it is a VLAN of.
    #[inline]
    pub fn device(&self, port: PortId) -> PortId {
        self.port(port).vlan.map_or(port, |vlan| vlan.port)
    }
}

impl PortFacts {
    /// The sub-interface that a frame belongs to by its tags, and how many bytes these are.
    pub(super) fn sub_interface(&self, frame: &[u8]) -> Option<(usize, PortId)> {
        let tags = Tags::of(frame, 2).or_else(|| Tags::of(frame, 1))?;
        let at = self.vlans.binary_search_by_key(&tags, |&(tags, _)| tags).ok()?;
        Some((tags.as_bytes().len(), self.vlans[at].1))
    }
}

/// A frame to us with a tag that none of the port's sub-interfaces has. In VLAN 0 are those that belong to none,
/// and have the tag for its priority (IEEE 802.1Q §6.9.1).
pub(super) fn consider_tagged<'g>(bytes: &[u8]) -> Considered<'g> {
    let is_priority = Tags::of(bytes, 1).is_some_and(|tags| tags.is_priority());
    match is_priority && Tags::of(bytes, 2).is_none() {
        true => Considered::Priority,
        false => Considered::Drop(DropReason::UnknownVlan),
    }
}

/// Takes `len` bytes of tags off.
fn untag(region: &Region, frame: &mut Frame, len: usize) {
    region.bytes_mut(frame).copy_within(..ADDRESSES_LEN, len);
    region.pull_front(frame, len as u16);
}

/// Puts `tags` between the addresses and the ether type. What the marks count from the slot's start stays
/// true. `None` when the frame has no headroom for them, or no header.
fn tag(region: &Region, frame: &mut Frame, tags: Tags) -> Option<()> {
    let tags = tags.as_bytes();
    if region.meta(frame).len() < ADDRESSES_LEN {
        return None;
    }
    region.push_front(frame, tags.len() as u16).ok()?;
    let bytes = region.bytes_mut(frame);
    bytes.copy_within(tags.len()..tags.len() + ADDRESSES_LEN, 0);
    bytes[ADDRESSES_LEN..][..tags.len()].copy_from_slice(tags);
    Some(())
}
