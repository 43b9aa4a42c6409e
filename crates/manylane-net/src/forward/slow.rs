//! One frame at a time, by the rules written out in full.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::Frame;
use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_sync::rcu::{Guard, Index};

use super::{Forwarder, LINK_HEADER, NextHopMark, PortFacts, Turn, Verdict, parts, vlan};
use crate::icmp::ErrorKind;
use crate::nexthop::NextHop;
use crate::wire::ethernet::{self, Mac, ether_type};
use crate::wire::{ipv4, ipv6};

/// The receivers of a frame, by its link-layer destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressed {
    Us,
    All,
    Group,
}

/// What the rules say of a packet by its headers, before it is known whether its next hop has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Considered<'g> {
    /// Drop the packet.
    Drop(DropReason),
    /// Drop the packet, and notify its sender, if the rules allow.
    Error(ErrorKind, DropReason),
    /// Take off a tag that carries a priority only.
    Priority,
    /// ARP, to us or to all stations.
    Arp,
    /// An IPv4 packet for us.
    LocalIpv4,
    /// An IPv6 packet for us.
    LocalIpv6,
    /// Forward the packet by this next hop.
    Route(Index<'g, NextHopMark>),
}

impl Forwarder {
    /// Judges one packet.
    #[cold]
    pub(super) fn judge<'g>(&mut self, turn: &mut Turn<'g, '_>, frame: &mut Frame) -> Verdict<'g> {
        if frame.is_chained() && !parts::have_headers(turn.pool, frame) {
            return Verdict::drop(DropReason::NoFrame);
        }
        let (ingress, len) =
            (self.region.meta(frame).ingress, self.region.meta(frame).packet_len());
        match self.consider(turn.guard, ingress, self.region.bytes(frame), len) {
            Considered::Drop(reason) => Verdict::drop(reason),
            Considered::Error(kind, reason) => self.error(turn, frame, kind, reason),
            Considered::Priority => self.judge_untagged(turn, frame),
            Considered::Arp => self.local_arp(turn, frame),
            Considered::LocalIpv4 => self.local_ipv4(turn, frame),
            Considered::LocalIpv6 => self.local_ipv6(turn, frame),
            Considered::Route(id) => self.rewrite(turn, frame, id),
        }
    }

    /// What the rules say of a packet of `len` bytes that was received by `ingress` and begins with `bytes`. Changes
    /// nothing, so that a trace can call it too.
    pub(super) fn consider<'g>(
        &self,
        guard: Guard<'g>,
        ingress: PortId,
        bytes: &[u8],
        len: usize,
    ) -> Considered<'g> {
        let Some(view) = ethernet::View::checked(bytes) else {
            return Considered::Drop(DropReason::Truncated);
        };
        let Some(addressed) = self.port(ingress).addressed(view.destination()) else {
            return Considered::Drop(DropReason::NotForUs);
        };
        let (front, front_len) = (&bytes[LINK_HEADER..], len - LINK_HEADER);
        match view.ether_type() {
            ether_type::IPV4 => self.consider_ipv4(guard, front, front_len, addressed),
            ether_type::IPV6 => self.consider_ipv6(guard, ingress, front, front_len, addressed),
            ether_type::ARP => Considered::Arp,
            tag if ethernet::is_vlan(tag) => vlan::consider_tagged(bytes),
            _ => Considered::Drop(DropReason::UnknownEtherType),
        }
    }

    /// The order of RFC 1812 §5.2.1, but that broadcasts are recognised before any sender is notified:
    /// header, options, destination ours?, TTL, route.
    fn consider_ipv4<'g>(
        &self,
        guard: Guard<'g>,
        front: &[u8],
        len: usize,
        addressed: Addressed,
    ) -> Considered<'g> {
        let Some(view) = ipv4::View::front(front, len) else {
            return Considered::Drop(DropReason::Ipv4HeaderInvalid);
        };
        if !view.has_valid_checksum() {
            return Considered::Drop(DropReason::Ipv4ChecksumInvalid);
        }
        let (destination, ttl) = (view.destination(), view.ttl());
        if destination.is_multicast() {
            return Considered::Drop(DropReason::MulticastNotRouted);
        }
        if addressed != Addressed::Us || destination == Ipv4Addr::BROADCAST {
            return Considered::Drop(DropReason::LinkBroadcast);
        }
        if ipv4::is_martian_source(view.source()) {
            return Considered::Drop(DropReason::MartianSource);
        }
        if ipv4::is_martian_destination(destination) {
            return Considered::Drop(DropReason::MartianDestination);
        }
        let id = self.tables.ipv4.lookup(guard, destination.into());
        let next_hop = self.tables.next_hops.load(guard, id);
        // Before options and TTL: no error is sent about a broadcast (RFC 1812 §4.3.2.7).
        if next_hop == NextHop::Broadcast {
            return Considered::Drop(DropReason::DirectedBroadcast);
        }
        match view.options() {
            ipv4::Options::Harmless => {}
            ipv4::Options::SourceRoute => return Considered::Drop(DropReason::Ipv4SourceRoute),
            ipv4::Options::Malformed { pointer } => {
                // RFC 1812 §4.3.3.5.
                let kind = ErrorKind::ParameterProblem { pointer: u32::from(pointer) };
                return Considered::Error(kind, DropReason::Ipv4HeaderInvalid);
            }
        }
        if next_hop == NextHop::Local {
            return Considered::LocalIpv4;
        }
        if ttl <= 1 {
            // RFC 1812 §5.3.1.
            return EXPIRED;
        }
        Considered::Route(id)
    }

    /// As `consider_ipv4`, by RFC 8200 §3 and the scopes of RFC 4291 §2.5 and §2.7.
    fn consider_ipv6<'g>(
        &self,
        guard: Guard<'g>,
        ingress: PortId,
        front: &[u8],
        len: usize,
        addressed: Addressed,
    ) -> Considered<'g> {
        let Some(view) = ipv6::View::front(front, len) else {
            return Considered::Drop(DropReason::Ipv6HeaderInvalid);
        };
        let (source, destination) = (view.source(), view.destination());
        if let Some(wrong) = view.length_objection()
            && !ipv6::is_martian_destination(destination)
        {
            return match wrong {
                ipv6::Objection::Length { pointer } => {
                    let kind = ErrorKind::ParameterProblem { pointer };
                    Considered::Error(kind, DropReason::Ipv6HeaderInvalid)
                }
                _ => Considered::Drop(DropReason::Ipv6HeaderInvalid),
            };
        }
        if destination.is_multicast() {
            // What we listen to is for us; the rest would have to be routed.
            return if self.port(ingress).listens_to(destination) {
                Considered::LocalIpv6
            } else {
                Considered::Drop(DropReason::MulticastNotRouted)
            };
        }
        if addressed != Addressed::Us {
            return Considered::Drop(DropReason::LinkBroadcast);
        }
        if destination.is_unicast_link_local() {
            return if self.uses(ingress, destination) {
                Considered::LocalIpv6
            } else {
                Considered::Drop(DropReason::LinkLocalScope)
            };
        }
        if ipv6::is_martian_destination(destination) {
            return Considered::Drop(DropReason::MartianDestination);
        }
        let id = self.tables.ipv6.lookup(guard, destination.into());
        if self.tables.next_hops.load(guard, id) == NextHop::Local {
            return Considered::LocalIpv6;
        }
        if ipv6::is_martian_source(source) {
            return Considered::Drop(DropReason::MartianSource);
        }
        if view.hop_limit() <= 1 {
            return EXPIRED;
        }
        // RFC 4007 §9: every way on leaves the link, if only because we do not send redirects instead.
        if source.is_unicast_link_local() && self.leads_on(guard, id) {
            return Considered::Error(ErrorKind::BeyondScope, DropReason::LinkLocalScope);
        }
        Considered::Route(id)
    }

    /// Whether a next hop is a neighbour, known or not, and so no reason to drop a packet by itself.
    fn leads_on<'g, T>(&self, guard: Guard<'g>, id: Index<'g, T>) -> bool {
        !matches!(
            self.tables.next_hops.load(guard, id),
            NextHop::None
                | NextHop::Local
                | NextHop::Broadcast
                | NextHop::Blackhole
                | NextHop::Unreachable
                | NextHop::Prohibit
                | NextHop::Kernel
        )
    }
}

/// RFC 1812 §5.3.1, RFC 4443 §3.3.
const EXPIRED: Considered<'static> =
    Considered::Error(ErrorKind::TimeExceeded, DropReason::HopLimitExceeded);

impl PortFacts {
    /// The receivers of a frame to this MAC address; `None` when we are not among them.
    fn addressed(&self, destination: Mac) -> Option<Addressed> {
        if destination == self.mac {
            return Some(Addressed::Us);
        }
        if destination.is_broadcast() {
            return Some(Addressed::All);
        }
        let groups = self.groups().map(Mac::ipv6_multicast);
        groups.into_iter().any(|group| group == destination).then_some(Addressed::Group)
    }

    /// Whether packets to this IPv6 group are for us.
    fn listens_to(&self, group: Ipv6Addr) -> bool {
        self.groups().any(|ours| ours == group)
    }

    /// The groups a router belongs to on a link (RFC 4291 §2.8): all nodes, all routers, and the
    /// solicited-node group of each of its addresses, anycast too.
    fn groups(&self) -> impl Iterator<Item = Ipv6Addr> {
        let ours = self.ipv6.iter().chain(&self.link_local).chain(&self.anycast).copied();
        [ipv6::ALL_NODES, ALL_ROUTERS].into_iter().chain(ours.map(ipv6::solicited_node))
    }
}

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
