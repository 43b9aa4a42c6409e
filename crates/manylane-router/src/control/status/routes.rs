//! Routes, put into words.

use std::collections::BTreeMap;

use manylane_api::{MemberStatus, RouteKind, RouteStatus};
use manylane_net::fib::IpPrefix;
use manylane_net::neighbour::Key;
use manylane_net::nexthop::NextHop;

use super::{Status, unpoisoned};
use crate::control::routing::GroupMember;

impl Status {
    pub(super) fn all_routes(&self) -> Vec<RouteStatus> {
        // Copied under the lock, put into words after: the control thread waits for the lock.
        let (routes, groups) = {
            let routing = unpoisoned(&self.routing);
            (routing.routes().collect::<Vec<_>>(), routing.groups())
        };
        let on_link = unpoisoned(&self.on_link).clone();
        let of_member = |member: &GroupMember| MemberStatus {
            via: member.key.addr.to_string(),
            port: self.name(member.key.port),
            weight: member.weight,
            share: member.share,
        };
        let of_route = |(prefix, next_hop): (IpPrefix, NextHop<Key>)| {
            let prefix: String = prefix.to_string();
            let members = match next_hop {
                NextHop::Group(id) => groups.get(&id).map(|group| group.iter().map(of_member)),
                _ => None,
            };
            let (kind, via, port) = match next_hop {
                NextHop::Via(Key { port, addr }) => {
                    (RouteKind::Via, Some(addr.to_string()), Some(port))
                }
                NextHop::Group(_) => (RouteKind::Group, None, None),
                NextHop::Connected(port) if on_link.contains(&prefix) => {
                    (RouteKind::OnLink, None, Some(port))
                }
                NextHop::Connected(port) => (RouteKind::Connected, None, Some(port)),
                NextHop::Local => (RouteKind::Local, None, None),
                NextHop::Blackhole => (RouteKind::Blackhole, None, None),
                NextHop::Prohibit => (RouteKind::Prohibit, None, None),
                NextHop::Broadcast => (RouteKind::Broadcast, None, None),
                NextHop::Unreachable | NextHop::None | NextHop::Kernel => {
                    (RouteKind::Unreachable, None, None)
                }
            };
            let group = members.into_iter().flatten().collect();
            RouteStatus { prefix, kind, via, port: port.map(|port| self.name(port)), group }
        };
        routes.into_iter().map(of_route).collect()
    }

    pub(super) fn count_routes(&self) -> BTreeMap<RouteKind, u64> {
        let mut kinds = BTreeMap::new();
        let on_link = unpoisoned(&self.on_link).clone();
        let routing = unpoisoned(&self.routing);
        for (prefix, next_hop) in routing.routes() {
            let kind = match next_hop {
                NextHop::Via(_) => RouteKind::Via,
                NextHop::Group(_) => RouteKind::Group,
                // The one kind for which a prefix is put into words: its routes are as many as the interfaces.
                NextHop::Connected(_) if on_link.contains(&prefix.to_string()) => RouteKind::OnLink,
                NextHop::Connected(_) => RouteKind::Connected,
                NextHop::Local => RouteKind::Local,
                NextHop::Blackhole => RouteKind::Blackhole,
                NextHop::Prohibit => RouteKind::Prohibit,
                NextHop::Broadcast => RouteKind::Broadcast,
                NextHop::Unreachable | NextHop::None | NextHop::Kernel => RouteKind::Unreachable,
            };
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }
}
