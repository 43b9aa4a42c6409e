//! Where a packet's route leads: by rules, or by the usual table; of a group, to the member that takes the flow.

use manylane_sync::rcu::{Guard, Index};

use super::{Port, Transit, check};
use crate::fib::NextHop as NextHopMark;
use crate::neighbour::Neighbour;
use crate::nexthop::{GroupId, NextHop};
use crate::transit::Verdict;
use crate::transit::layout::{self, control};
use crate::transit::policy::{Found, Query, of_ipv4};
use crate::wire::flow::FlowKey;
use crate::wire::ip::{Fragment, View};
use crate::wire::{icmp, icmpv6, ipv4, ipv6, protocol};

impl Transit {
    /// What the route of an IPv4 packet leads to.
    pub(super) fn route_ipv4<'g>(
        &self,
        guard: Guard<'g>,
        ingress: Port,
        packet: ipv4::View<'_>,
    ) -> Result<NextHop<Index<'g, Neighbour>>, Verdict> {
        let destination = packet.destination();
        let id = self.ipv4.lookup(guard, destination.to_bits());
        let id = match self.list(false) {
            0 => id,
            list => {
                let query = self.query_ipv4(ingress, packet, id);
                found(self.policy.find(guard, list, &query, &self.next_hops))?
            }
        };
        Ok(self.next_hop(guard, id))
    }

    /// As `route_ipv4`, for IPv6.
    pub(super) fn route_ipv6<'g>(
        &self,
        guard: Guard<'g>,
        ingress: Port,
        packet: ipv6::View<'_>,
    ) -> Result<NextHop<Index<'g, Neighbour>>, Verdict> {
        let (source, destination) = (packet.source(), packet.destination());
        let id = self.ipv6.lookup(guard, destination.to_bits());
        let id = match self.list(true) {
            0 => id,
            list => {
                let query = Query {
                    to: destination.to_bits(),
                    from: source.to_bits(),
                    interface: self.interface(ingress),
                    tos: packet.traffic_class(),
                    merged: id.raw(),
                };
                found(self.policy.find(guard, list, &query, &self.next_hops))?
            }
        };
        Ok(self.next_hop(guard, id))
    }

    /// The list of a family's rules; 0 with only the usual ones.
    pub(super) fn list(&self, is_ipv6: bool) -> usize {
        let lists = self.control.load(control::RULES);
        (lists >> (16 * u32::from(is_ipv6)) & 0xffff) as usize % layout::RULE_LISTS
    }

    pub(super) fn query_ipv4(
        &self,
        ingress: Port,
        packet: ipv4::View<'_>,
        id: Index<'_, NextHopMark>,
    ) -> Query {
        Query {
            to: of_ipv4(packet.destination().to_bits()),
            from: of_ipv4(packet.source().to_bits()),
            interface: self.interface(ingress),
            tos: packet.tos(),
            merged: id.raw(),
        }
    }

    /// The neighbour that a next hop is, or one of a group, by the packet's flow.
    pub(super) fn neighbour<'g>(
        &self,
        guard: Guard<'g>,
        packet: &View<'_>,
        next_hop: NextHop<Index<'g, Neighbour>>,
    ) -> Result<Index<'g, Neighbour>, Verdict> {
        match next_hop {
            NextHop::Via(neighbour) => Ok(neighbour),
            NextHop::Group(group) => self.member(guard, packet, group),
            NextHop::Connected(_) => Err(Verdict::Unresolved),
            NextHop::Local | NextHop::Broadcast => Err(Verdict::Local),
            NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit => Err(Verdict::Nowhere),
            NextHop::Kernel => Err(Verdict::KernelRoute),
            NextHop::None => Err(Verdict::NoRoute),
        }
    }

    /// The member of a group that takes a packet's flow, where that is ours to say.
    fn member<'g>(
        &self,
        guard: Guard<'g>,
        packet: &View<'_>,
        group: GroupId,
    ) -> Result<Index<'g, Neighbour>, Verdict> {
        let multipath = self.control.load(control::MULTIPATH);
        let (allowed, by_ports) = match packet {
            View::V4(_) => (control::MULTIPATH_V4, control::PORTS_V4),
            View::V6(_) => (control::MULTIPATH_V6, control::PORTS_V6),
        };
        check(multipath & allowed != 0, Verdict::Multipath)?;
        let seed = self.control.load(control::SEED);
        let hash = flow_hash(&FlowKey::seeded(seed), packet, multipath & by_ports != 0)
            .ok_or(Verdict::Multipath)?;
        Ok(self.next_hops.member_by(guard, group, seed, hash))
    }

    pub(super) fn next_hop<'g>(
        &self,
        guard: Guard<'g>,
        id: Index<'g, NextHopMark>,
    ) -> NextHop<Index<'g, Neighbour>> {
        self.next_hops.load(guard, id)
    }
}

/// The id that rules lead to, or the verdict.
fn found(found: Found<'_>) -> Result<Index<'_, NextHopMark>, Verdict> {
    match found {
        Found::Id(id) => Ok(id),
        Found::None => Err(Verdict::NoRoute),
        Found::Nowhere => Err(Verdict::Nowhere),
        Found::Kernel => Err(Verdict::KernelRoute),
    }
}

/// The hash by which a group's member is chosen; `None` for packets for which only the kernel should choose: errors,
/// which take the path of their flow, and packets with extension headers in front of their ports.
fn flow_hash(key: &FlowKey, packet: &View<'_>, by_ports: bool) -> Option<u32> {
    if matches!(packet, View::V6(view) if ipv6::is_extension(view.next_header())) {
        return None;
    }
    let transport = packet.transport()?;
    if transport.fragment != Fragment::None {
        return Some(key.address_hash(packet));
    }
    let message = packet.packet().get(transport.offset..)?;
    if by_ports && protocol::has_ports(transport.protocol) {
        return Some(key.flow_hash(packet.packet()));
    }
    let is_error = match (transport.protocol, message) {
        (protocol::ICMP, &[kind, _, _, _, _, _, _, _, ..]) => icmp::is_error(kind),
        (protocol::ICMPV6, &[kind, _, _, _, _, _, _, _, ..]) => icmpv6::is_error(kind),
        _ => false,
    };
    (!is_error).then(|| key.address_hash(packet))
}
