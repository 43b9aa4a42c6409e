//! One frame at a time, by the rules written out in full.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::DropReason;
use manylane_frame::{Frame, Pool};
use manylane_sync::rcu::{Guard, Index};

use super::{Forwarder, PortFacts, Verdict, parts};
use crate::icmp::ErrorKind;
use crate::nexthop::NextHop;
use crate::wire::ethernet::{self, Mac, ether_type};
use crate::wire::{ipv4, ipv6};

/// Whom a frame is for, by its link-layer destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressed {
    Us,
    All,
    Group,
}

impl Forwarder {
    /// Judges one packet.
    #[cold]
    pub(super) fn judge<'g>(
        &mut self,
        guard: Guard<'g>,
        pool: &mut Pool,
        frame: &mut Frame,
        now_ns: u64,
    ) -> Verdict<'g> {
        if frame.is_chained() && !parts::have_headers(pool, frame) {
            return Verdict::drop(DropReason::NoFrame);
        }
        let facts = self.port(self.region.meta(frame).entry);
        let Some(view) = ethernet::View::checked(self.region.bytes(frame)) else {
            return Verdict::drop(DropReason::Truncated);
        };
        let Some(addressed) = facts.addressed(view.destination()) else {
            return Verdict::drop(DropReason::NotForUs);
        };
        match view.ether_type() {
            ether_type::IPV4 => self.judge_ipv4(guard, pool, frame, addressed, now_ns),
            ether_type::IPV6 => self.judge_ipv6(guard, pool, frame, addressed, now_ns),
            ether_type::ARP => self.local_arp(pool, frame),
            tag if ethernet::is_vlan(tag) => self.judge_tagged(guard, pool, frame, now_ns),
            _ => Verdict::drop(DropReason::UnknownEtherType),
        }
    }

    /// The order of RFC 1812 §5.2.1, but that broadcasts are known before anybody is told of anything:
    /// header, options, destination ours?, TTL, route.
    fn judge_ipv4<'g>(
        &mut self,
        guard: Guard<'g>,
        pool: &mut Pool,
        frame: &mut Frame,
        addressed: Addressed,
        now_ns: u64,
    ) -> Verdict<'g> {
        let (front, len) = parts::front(&self.region, frame);
        let Some(view) = ipv4::View::front(front, len) else {
            return Verdict::drop(DropReason::Ipv4HeaderInvalid);
        };
        if !view.has_valid_checksum() {
            return Verdict::drop(DropReason::Ipv4ChecksumInvalid);
        }
        let (destination, ttl) = (view.destination(), view.ttl());
        if destination.is_multicast() {
            return Verdict::drop(DropReason::MulticastNotRouted);
        }
        if addressed != Addressed::Us || destination == Ipv4Addr::BROADCAST {
            return Verdict::drop(DropReason::LinkBroadcast);
        }
        if ipv4::is_martian_source(view.source()) {
            return Verdict::drop(DropReason::MartianSource);
        }
        if ipv4::is_martian_destination(destination) {
            return Verdict::drop(DropReason::MartianDestination);
        }
        let id = self.tables.ipv4.lookup(guard, destination.into());
        let next_hop = self.tables.next_hops.load(guard, id);
        // Before options and TTL: nobody is told about a broadcast (RFC 1812 §4.3.2.7).
        if next_hop == NextHop::Broadcast {
            return Verdict::drop(DropReason::DirectedBroadcast);
        }
        match view.options() {
            ipv4::Options::Harmless => {}
            ipv4::Options::SourceRoute => return Verdict::drop(DropReason::Ipv4SourceRoute),
            ipv4::Options::Malformed { pointer } => {
                // RFC 1812 §4.3.3.5.
                let kind = ErrorKind::ParameterProblem { pointer: u32::from(pointer) };
                return self.error(guard, pool, frame, kind, DropReason::Ipv4HeaderInvalid, now_ns);
            }
        }
        if next_hop == NextHop::Local {
            return self.local_ipv4(guard, pool, frame, now_ns);
        }
        if ttl <= 1 {
            // RFC 1812 §5.3.1.
            return self.expired(guard, pool, frame, now_ns);
        }
        self.rewrite(guard, pool, frame, id, now_ns)
    }

    /// As `judge_ipv4`, by RFC 8200 §3 and the scopes of RFC 4291 §2.5 and §2.7.
    fn judge_ipv6<'g>(
        &mut self,
        guard: Guard<'g>,
        pool: &mut Pool,
        frame: &mut Frame,
        addressed: Addressed,
        now_ns: u64,
    ) -> Verdict<'g> {
        let entry = self.region.meta(frame).entry;
        let (front, len) = parts::front(&self.region, frame);
        let Some(view) = ipv6::View::front(front, len) else {
            return Verdict::drop(DropReason::Ipv6HeaderInvalid);
        };
        let (source, destination) = (view.source(), view.destination());
        if destination.is_multicast() {
            // What we listen to is for us; the rest would have to be routed.
            return if self.port(entry).listens_to(destination) {
                self.local_ipv6(guard, pool, frame, now_ns)
            } else {
                Verdict::drop(DropReason::MulticastNotRouted)
            };
        }
        if addressed != Addressed::Us {
            return Verdict::drop(DropReason::LinkBroadcast);
        }
        if destination.is_unicast_link_local() {
            return if self.uses(entry, destination) {
                self.local_ipv6(guard, pool, frame, now_ns)
            } else {
                Verdict::drop(DropReason::LinkLocalScope)
            };
        }
        if ipv6::is_martian_destination(destination) {
            return Verdict::drop(DropReason::MartianDestination);
        }
        let id = self.tables.ipv6.lookup(guard, destination.into());
        if self.tables.next_hops.load(guard, id) == NextHop::Local {
            return self.local_ipv6(guard, pool, frame, now_ns);
        }
        if ipv6::is_martian_source(source) {
            return Verdict::drop(DropReason::MartianSource);
        }
        if view.hop_limit() <= 1 {
            return self.expired(guard, pool, frame, now_ns);
        }
        // RFC 4007 §9: every way on leaves the link, if only because we do not send redirects instead.
        if source.is_unicast_link_local() && self.leads_on(guard, id) {
            let reason = DropReason::LinkLocalScope;
            return self.error(guard, pool, frame, ErrorKind::BeyondScope, reason, now_ns);
        }
        self.rewrite(guard, pool, frame, id, now_ns)
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
        )
    }

    fn expired<'g>(
        &mut self,
        guard: Guard<'g>,
        pool: &mut Pool,
        frame: &mut Frame,
        now_ns: u64,
    ) -> Verdict<'g> {
        let reason = DropReason::HopLimitExceeded;
        self.error(guard, pool, frame, ErrorKind::TimeExceeded, reason, now_ns)
    }
}

impl PortFacts {
    /// Whom a frame to this MAC address is for; `None` when it is not for us.
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
        let ours = self.ipv6.iter().chain([&self.link_local]).chain(&self.anycast).copied();
        [ipv6::ALL_NODES, ALL_ROUTERS].into_iter().chain(ours.map(ipv6::solicited_node))
    }
}

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
