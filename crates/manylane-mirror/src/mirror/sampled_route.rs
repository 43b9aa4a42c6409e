//! The routes of sampled packets: prefixes, next hop, VLANs.

use std::net::IpAddr;

use super::Mirror;
use super::why::Routed;
use crate::destination::Via;
use crate::kernel::mac_of;
use crate::resolve::{Plain, Resolved};
use crate::table_writer::TableWriter;

/// A packet whose route is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteQuery {
    /// The packet's source.
    pub source: IpAddr,
    /// Its destination; behind a translation, the new one.
    pub destination: IpAddr,
    /// The ingress interface.
    pub ingress: u32,
    /// The egress interface and the neighbour's Ethernet address, if they are known.
    pub egress: Option<(u32, [u8; 6])>,
}

/// The route of a packet, as the mirror knows it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledRoute {
    /// Length of the prefix that leads to the source; 0 without a route.
    pub source_len: u8,
    /// Length of the prefix that leads to the destination.
    pub destination_len: u8,
    /// The next router; `None` where the destination is on the link, or where it is not known.
    pub next_hop: Option<IpAddr>,
    /// Where the route of the destination leads.
    pub end: RouteEnd,
    /// VLANs of the ingress and the egress interface.
    pub vlans: [Option<u16>; 2],
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEnd {
    /// To another host.
    Host,
    /// To this host.
    Here,
    /// Nowhere, in silence.
    Blackhole,
    /// Nowhere; the sender receives an ICMP unreachable.
    Unreachable,
    /// Nowhere; the sender receives an ICMP prohibited.
    Prohibit,
    /// No route leads there.
    Nothing,
    /// Only the kernel knows.
    Unknown,
}

impl Mirror<dyn TableWriter> {
    /// The route of a packet.
    pub fn sampled_route(&self, question: &RouteQuery) -> SampledRoute {
        let &RouteQuery { source, destination, ingress, egress } = question;
        let vlan = |link: u32| self.kernel.link(link)?.vlan.map(|(_, vlan)| vlan);
        let mut route = SampledRoute {
            source_len: match self.routed(Some(destination), source, egress.map(|egress| egress.0))
            {
                Routed::Destination(found) => found.prefix.len(),
                _ => 0,
            },
            destination_len: 0,
            next_hop: None,
            end: RouteEnd::Unknown,
            vlans: [vlan(ingress), egress.and_then(|(link, _)| vlan(link))],
        };
        let found = match self.routed(Some(source), destination, Some(ingress)) {
            Routed::Destination(found) => found,
            Routed::Nothing => return SampledRoute { end: RouteEnd::Nothing, ..route },
            // `ip rule` has blackhole, unreachable and prohibit, too: the model does not tell them apart.
            Routed::Nowhere(_) => return SampledRoute { end: RouteEnd::Unreachable, ..route },
            Routed::Kernel(_) => return route,
        };
        route.destination_len = found.prefix.len();
        let vias: Vec<Via> = match self.view().resolved(&found.destination) {
            Resolved::Plain(plain) => return SampledRoute { end: end_of(plain), ..route },
            Resolved::OnLink { .. } => Vec::new(),
            Resolved::Via(via) => vec![via],
            Resolved::Many(members) => members.iter().map(|member| member.via).collect(),
        };
        route.end = RouteEnd::Host;
        let leads_there = |via: &&Via| match egress {
            None => vias.len() == 1,
            Some((link, mac)) => {
                let neighbour = self.kernel.neighbour(via.link, via.gateway);
                via.link == link && neighbour.and_then(mac_of) == Some(mac)
            }
        };
        let via = vias.iter().find(leads_there);
        route.next_hop = via.map(|via| via.gateway).filter(|gateway| *gateway != destination);
        route
    }
}

fn end_of(plain: Plain) -> RouteEnd {
    match plain {
        Plain::Local | Plain::Broadcast => RouteEnd::Here,
        Plain::Blackhole => RouteEnd::Blackhole,
        Plain::Unreachable => RouteEnd::Unreachable,
        Plain::Prohibit => RouteEnd::Prohibit,
        Plain::Kernel => RouteEnd::Unknown,
    }
}
