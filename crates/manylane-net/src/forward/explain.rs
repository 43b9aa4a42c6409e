//! Why a packet is forwarded as it is: what the tables say, read before the packet is judged.
//!
//! For an operator that traces a packet. The explanation reads what `judge` reads (`Forwarder::consider`, `member`),
//! and changes nothing; the verdict alone decides. Where no table changes in between, both agree
//! ([`Explanation::agrees_with`]).

use std::net::IpAddr;

use manylane_frame::Frame;
use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_sync::rcu::{Guard, Index};

use super::slow::Considered;
use super::{Fate, Forwarder, NextHopMark, Origin, Verdict, parts, rewrite};
use crate::neighbour::{AdjacencyState, Key, Neighbour};
use crate::nexthop::{GroupId, NextHop};
use crate::wire::ethernet::{ADDRESSES_LEN, HEADER_LEN, Mac, VLAN_TAG_LEN};
use crate::wire::ip;

/// What the tables say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The port it counts as received by: a sub-interface, if it has the tags of one.
    pub ingress: PortId,
    /// What its headers say.
    pub finding: Finding,
    /// Its TTL or hop limit as it came.
    pub ttl: Option<u8>,
    /// What was found for its destination, if that was looked up.
    pub route: Option<Found>,
    /// The neighbour that the route leads to, if it leads to one.
    pub neighbour: Option<Via>,
}

/// What a packet's headers say, and its route where that is the packet's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The packet is to be forwarded.
    Forward,
    /// The packet is one of ours, about to be sent.
    Own,
    /// The packet is for us.
    Local,
    /// The packet is to be dropped.
    Drop(DropReason),
    /// The packet is to be dropped, and its sender notified, if the rules allow.
    Error(DropReason),
}

/// What the FIB says of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The destination.
    pub destination: IpAddr,
    /// The number of the next hop; 0 for no route.
    pub id: u16,
    /// What that leads to; a neighbour's slot.
    pub next_hop: NextHop<u32>,
}

/// What is known of a packet's neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The group that it was chosen of, by the packet's flow.
    pub group: Option<GroupId>,
    /// Its slot.
    pub slot: u32,
    /// Its port and address; `::` if it has just been removed.
    pub key: Key,
    /// What is done with packets to it.
    pub state: AdjacencyState,
    /// Its link-layer address, if that is known.
    pub mac: Option<Mac>,
    /// The largest IP packet that may be sent to it.
    pub mtu: u32,
    /// The port whose device its packets leave by.
    pub egress: PortId,
}

impl Explanation {
    /// Whether this verdict is one that the tables lead to, as they were. A packet may be dropped for want of a frame
    /// whatever they say, or for a fault found at the egress.
    pub fn agrees_with(&self, verdict: &Verdict<'_>) -> bool {
        if verdict.fate == Fate::Drop(DropReason::NoFrame) {
            return true;
        }
        let is_dropped =
            |reason| (verdict.fate, verdict.origin) == (Fate::Drop(reason), Origin::Received);
        let is_error = |reason| is_dropped(reason) || verdict.origin == Origin::Error(reason);
        match self.finding {
            Finding::Drop(reason) => is_dropped(reason),
            Finding::Error(reason) => is_error(reason),
            Finding::Local => !leaves(verdict.fate) || verdict.origin != Origin::Received,
            Finding::Forward | Finding::Own => match (self.neighbour, self.route) {
                (Some(via), _) => via.agrees_with(verdict),
                (None, Some(Found { next_hop: NextHop::Connected(port), .. })) => {
                    verdict.fate == Fate::Glean(port)
                }
                // Of our own: no route, or back to the station that asked on its link.
                _ => self.finding == Finding::Own,
            },
        }
    }
}

impl Via {
    fn agrees_with(&self, verdict: &Verdict<'_>) -> bool {
        let reason = match verdict.origin {
            Origin::Error(reason) => Some(reason),
            _ => None,
        };
        match (self.state, verdict.fate) {
            (AdjacencyState::Unresolved, fate) => {
                matches!(fate, Fate::Hold(slot) if slot.raw() == self.slot)
            }
            (AdjacencyState::Failed, Fate::Drop(dropped)) => {
                reason.unwrap_or(dropped) == DropReason::NeighbourFailed
            }
            (AdjacencyState::Failed, _) => reason == Some(DropReason::NeighbourFailed),
            (_, Fate::Transmit(port)) => reason.is_some() || port == self.egress,
            (_, Fate::Fragment(port) | Fate::Prepare(port)) => {
                reason.is_some() || port == self.key.port
            }
            // Too big, or not what its port claims it to be.
            (_, fate) => reason.is_some() || matches!(fate, Fate::Drop(_)),
        }
    }
}

/// Whether a packet is transmitted, now or later.
fn leaves(fate: Fate<'_>) -> bool {
    !matches!(fate, Fate::Deliver | Fate::Drop(_))
}

impl Forwarder {
    /// What the tables say of a packet that is about to be judged: by [`Forwarder::forward`], as it was
    /// received, tags included, or by [`Forwarder::resume`], as it was held. Changes nothing.
    #[cold]
    pub fn explain(&self, guard: Guard<'_>, frame: &Frame) -> Explanation {
        let (view, meta) = (self.region.view(), self.region.meta(frame));
        let mut bytes = vec![0; meta.packet_len().min(parts::capacity(&self.region))];
        let copied = view.copy_to(frame, 0, &mut bytes);
        bytes.truncate(copied);
        let (mut ingress, mut len) = (meta.ingress, meta.packet_len());
        if meta.own {
            return self.explain_own(guard, ingress, &bytes);
        }
        if let Some((tags, port)) = self.port(ingress).sub_interface(&bytes) {
            bytes.drain(ADDRESSES_LEN..ADDRESSES_LEN + tags);
            (ingress, len) = (port, len - tags);
        }
        let mut considered = self.consider(guard, ingress, &bytes, len);
        if considered == Considered::Priority {
            bytes.drain(ADDRESSES_LEN..ADDRESSES_LEN + VLAN_TAG_LEN);
            considered = self.consider(guard, ingress, &bytes, len - VLAN_TAG_LEN);
        }
        let front = bytes.get(HEADER_LEN..).unwrap_or_default();
        let (mut route, mut neighbour) = (None, None);
        let finding = match considered {
            Considered::Drop(reason) => Finding::Drop(reason),
            Considered::Error(_, reason) => Finding::Error(reason),
            Considered::Priority => Finding::Drop(DropReason::UnknownVlan), // The frame had two.
            Considered::Arp => Finding::Local,
            Considered::LocalIpv4 | Considered::LocalIpv6 => {
                let found = rewrite::destination(&bytes).map(|to| self.found(guard, to));
                // A group, or a link-local address, is not looked up.
                route = found.filter(|found| found.next_hop == NextHop::Local);
                Finding::Local
            }
            Considered::Route(_) => {
                route = rewrite::destination(&bytes).map(|to| self.found(guard, to));
                neighbour = route.and_then(|found| self.via(guard, found, front));
                route.map_or(Finding::Drop(DropReason::NoRoute), end)
            }
        };
        Explanation { ingress, finding, ttl: ttl(front), route, neighbour }
    }

    fn explain_own(&self, guard: Guard<'_>, ingress: PortId, bytes: &[u8]) -> Explanation {
        let front = bytes.get(HEADER_LEN..).unwrap_or_default();
        let route = rewrite::destination(bytes).map(|to| self.found(guard, to));
        let neighbour = route.and_then(|found| self.via(guard, found, front));
        Explanation { ingress, finding: Finding::Own, ttl: ttl(front), route, neighbour }
    }

    fn found(&self, guard: Guard<'_>, destination: IpAddr) -> Found {
        let id: Index<'_, NextHopMark> = match destination {
            IpAddr::V4(to) => self.tables.ipv4.lookup(guard, to.into()),
            IpAddr::V6(to) => self.tables.ipv6.lookup(guard, to.into()),
        };
        let next_hop = match self.tables.next_hops.load(guard, id) {
            NextHop::Via(slot) => NextHop::Via(slot.raw()),
            NextHop::None => NextHop::None,
            NextHop::Group(group) => NextHop::Group(group),
            NextHop::Connected(port) => NextHop::Connected(port),
            NextHop::Local => NextHop::Local,
            NextHop::Broadcast => NextHop::Broadcast,
            NextHop::Blackhole => NextHop::Blackhole,
            NextHop::Unreachable => NextHop::Unreachable,
            NextHop::Prohibit => NextHop::Prohibit,
            NextHop::Kernel => NextHop::Kernel,
        };
        Found { destination, id: id.raw() as u16, next_hop }
    }

    /// The neighbour that a route leads a packet to, which begins with `front` behind its link header.
    fn via(&self, guard: Guard<'_>, found: Found, front: &[u8]) -> Option<Via> {
        let (slot, group): (Index<'_, Neighbour>, _) = match found.next_hop {
            NextHop::Via(slot) => (Index::new(guard, slot), None),
            NextHop::Group(group) => {
                (self.tables.next_hops.member(guard, group, front), Some(group))
            }
            _ => return None,
        };
        let adjacency = self.tables.adjacencies.load(guard, slot);
        let mut header = [0; HEADER_LEN];
        adjacency.write_untagged(&mut header);
        let mac = header.first_chunk().map(|&mac| Mac(mac));
        Some(Via {
            group,
            slot: slot.raw(),
            key: self.tables.adjacencies.key(adjacency),
            state: adjacency.state(),
            mac: mac.filter(|_| adjacency.state().is_resolved()),
            mtu: adjacency.mtu(),
            egress: adjacency.egress(),
        })
    }
}

/// What a route makes of a packet, as `Forwarder::rewrite` has it.
fn end(found: Found) -> Finding {
    match found.next_hop {
        NextHop::Via(_) | NextHop::Group(_) | NextHop::Connected(_) => Finding::Forward,
        NextHop::Local => Finding::Local,
        NextHop::Blackhole => Finding::Drop(DropReason::Blackhole),
        NextHop::Broadcast => Finding::Drop(DropReason::DirectedBroadcast),
        NextHop::Prohibit => Finding::Error(DropReason::RouteProhibited),
        NextHop::Unreachable => Finding::Error(DropReason::RouteUnreachable),
        NextHop::None | NextHop::Kernel => Finding::Error(DropReason::NoRoute),
    }
}

/// The TTL or hop limit of a packet that begins so.
fn ttl(front: &[u8]) -> Option<u8> {
    match ip::View::quoted(front)? {
        ip::View::V4(view) => Some(view.ttl()),
        ip::View::V6(view) => Some(view.hop_limit()),
    }
}
