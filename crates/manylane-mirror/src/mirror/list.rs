//! What the tables have, some at a time, to be shown: a million routes are not listed in one go.

use std::collections::HashMap;
use std::net::IpAddr;

use manylane_net::fib::{IpPrefix, NextHopId};
use manylane_net::transit::TransitMut;

use super::Mirror;
use super::diff::neighbour_state;
use crate::destination::Via;
use crate::resolve::{Plain, Resolved};
use manylane_api::accelerate::MirroredNeighbour;
use manylane_api::{MemberStatus, RouteKind, RouteStatus};

impl Mirror<TransitMut> {
    /// At most `max` routes behind the first `skip` of them: those for IPv4, then those for IPv6. Routes that appear
    /// or vanish in between move the others.
    pub fn list_routes(&self, skip: usize, max: usize) -> Vec<RouteStatus> {
        let tables = self.tables();
        let ipv4 = tables.routes4().map(|(prefix, id)| (IpPrefix::from(prefix), id));
        let ipv6 = tables.routes6().map(|(prefix, id)| (IpPrefix::from(prefix), id));
        let mut known: HashMap<NextHopId, Option<RouteStatus>> = HashMap::new();
        let routes = ipv4.chain(ipv6).skip(skip).take(max);
        let of_route = |(prefix, id): (IpPrefix, NextHopId)| {
            let status = known.entry(id).or_insert_with(|| self.leads(id)).clone()?;
            Some(RouteStatus { prefix: prefix.to_string(), ..status })
        };
        // A missing default route has an id, too.
        let listed: Vec<_> = routes.map(of_route).collect();
        listed.into_iter().flatten().collect()
    }

    /// How many [`list_routes`](Mirror::list_routes) goes through.
    pub fn listed_len(&self) -> usize {
        let (ipv4, ipv6) = self.tables().routes_len();
        ipv4 + ipv6
    }

    /// All neighbours that the kernel knows.
    pub fn list_neighbours(&self) -> Vec<MirroredNeighbour> {
        let mut used: Vec<(u32, IpAddr)> =
            self.targets.slots().map(|(via, _)| (via.link, via.gateway)).collect();
        used.sort_unstable();
        let neighbours = self.kernel.neighbours().map(|neighbour| {
            let state = neighbour_state(&self.kernel, neighbour.link, neighbour.address);
            let (state, mac) = match state.split_once(' ') {
                Some((state, mac)) => (state.to_owned(), Some(mac.to_owned())),
                None => (state, None),
            };
            MirroredNeighbour {
                interface: self.kernel.name(neighbour.link),
                address: neighbour.address.to_string(),
                mac,
                state,
                used: used.binary_search(&(neighbour.link, neighbour.address)).is_ok(),
            }
        });
        neighbours.collect()
    }

    /// What prefixes of an id lead to, without the prefix.
    fn leads(&self, id: NextHopId) -> Option<RouteStatus> {
        let resolved = self.view().resolved(self.targets.destination(id)?);
        let of = |kind, via: Option<Via>| RouteStatus {
            prefix: String::new(),
            kind,
            via: via.map(|via| via.gateway.to_string()),
            port: via.map(|via| self.kernel.name(via.link)),
            group: Vec::new(),
        };
        Some(match resolved {
            Resolved::Via(via) => of(RouteKind::Via, Some(via)),
            Resolved::OnLink { link, .. } => {
                RouteStatus { port: Some(self.kernel.name(link)), ..of(RouteKind::Connected, None) }
            }
            Resolved::Many(members) => {
                let weights: u32 = members.iter().map(|member| u32::from(member.weight)).sum();
                let member = |member: &crate::Member| MemberStatus {
                    via: member.via.gateway.to_string(),
                    port: self.kernel.name(member.via.link),
                    weight: member.weight,
                    share: f64::from(member.weight) / f64::from(weights.max(1)),
                };
                let group = members.iter().map(member).collect();
                RouteStatus { group, ..of(RouteKind::Group, None) }
            }
            Resolved::Plain(plain) => of(
                match plain {
                    Plain::Local => RouteKind::Local,
                    Plain::Broadcast => RouteKind::Broadcast,
                    Plain::Blackhole => RouteKind::Blackhole,
                    Plain::Unreachable => RouteKind::Unreachable,
                    Plain::Prohibit => RouteKind::Prohibit,
                    Plain::Kernel => RouteKind::Kernel,
                },
                None,
            ),
        })
    }
}
