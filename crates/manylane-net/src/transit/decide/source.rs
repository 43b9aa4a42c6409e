//! The way back: whether the route of a source leads out by the port that received the packet.

use manylane_sync::rcu::Guard;

use super::{Port, Transit, check};
use crate::nexthop::NextHop;
use crate::transit::layout::{UNKNOWN, flags};
use crate::transit::policy::{Found, Query};
use crate::transit::{Adjacency, Verdict};
use crate::wire::{ipv4, ipv6};

impl Transit {
    /// The kernel's check of an IPv4 source: never one of our own addresses, and by `rp_filter` one whose route leads
    /// out by the ingress port (strict), or anywhere (loose): RFC 3704 §2.2 and §2.4. Rules are applied to the reverse
    /// packet, which would be received where this one leaves.
    pub(super) fn check_source(
        &self,
        guard: Guard<'_>,
        ingress: Port,
        adjacency: &Adjacency,
        packet: ipv4::View<'_>,
    ) -> Result<(), Verdict> {
        let id = self.ipv4.lookup(guard, packet.source().to_bits());
        // The source could be one of our own. (The program reads a filter first, which knows most that are not.)
        check(id.raw() != UNKNOWN.into(), Verdict::ReversePath)?;
        let list = self.list(false);
        let next_hop = if list == 0 {
            self.next_hop(guard, id)
        } else {
            let there = self.query_ipv4(ingress, packet, id);
            let interface = adjacency.egress_ifindex;
            let back = Query { to: there.from, from: there.to, interface, ..there };
            match self.policy.find(guard, list, &back, &self.next_hops) {
                Found::Id(id) => match self.next_hop(guard, id) {
                    // A kind of route that the kernel may refuse to take for a source's.
                    NextHop::Kernel => return Err(Verdict::ReversePath),
                    next_hop => next_hop,
                },
                Found::None | Found::Nowhere => NextHop::None,
                Found::Kernel => return Err(Verdict::ReversePath),
            }
        };
        let is_right = match next_hop {
            NextHop::Local | NextHop::Broadcast => false,
            _ if !ingress.has(flags::RP_STRICT | flags::RP_LOOSE) => true,
            NextHop::Via(_) | NextHop::Group(_) | NextHop::Connected(_)
                if !ingress.has(flags::RP_STRICT) =>
            {
                true
            }
            NextHop::Via(neighbour) => self
                .record(neighbour)
                .is_ok_and(|adjacency| adjacency.egress_port == ingress.number),
            NextHop::Connected(port) => port.0 == ingress.number,
            // Every member of a group would have to be checked.
            _ => false,
        };
        check(is_right, Verdict::ReversePath)
    }

    /// Where a rule of the firewall wants it, an IPv6 source's route leads out by the ingress port.
    pub(super) fn check_source6(
        &self,
        guard: Guard<'_>,
        ingress: Port,
        packet: ipv6::View<'_>,
    ) -> Result<(), Verdict> {
        if !ingress.has(flags::RP_STRICT_V6) {
            return Ok(());
        }
        let id = self.ipv6.lookup(guard, packet.source().to_bits());
        let is_right = match self.next_hop(guard, id) {
            NextHop::Via(neighbour) => self
                .record(neighbour)
                .is_ok_and(|adjacency| adjacency.egress_port == ingress.number),
            NextHop::Connected(port) => port.0 == ingress.number,
            _ => false,
        };
        check(is_right, Verdict::ReversePath)
    }
}
