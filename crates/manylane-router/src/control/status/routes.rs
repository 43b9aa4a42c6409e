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
            let kind = kind(next_hop, || on_link.contains(&prefix));
            let (via, port) = match next_hop {
                NextHop::Via(Key { port, addr }) => (Some(addr.to_string()), Some(port)),
                NextHop::Connected(port) => (None, Some(port)),
                _ => (None, None),
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
            let kind = kind(next_hop, || on_link.contains(&prefix.to_string()));
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }
}

/// The kind of a route, by its next hop. Only connected routes, which are as many as the interfaces, call `is_on_link`:
/// it may have to put a prefix into words.
fn kind(next_hop: NextHop<Key>, is_on_link: impl Fn() -> bool) -> RouteKind {
    match next_hop {
        NextHop::Via(_) => RouteKind::Via,
        NextHop::Group(_) => RouteKind::Group,
        NextHop::Connected(_) if is_on_link() => RouteKind::OnLink,
        NextHop::Connected(_) => RouteKind::Connected,
        NextHop::Local => RouteKind::Local,
        NextHop::Blackhole => RouteKind::Blackhole,
        NextHop::Prohibit => RouteKind::Prohibit,
        NextHop::Broadcast => RouteKind::Broadcast,
        NextHop::Unreachable | NextHop::None | NextHop::Kernel => RouteKind::Unreachable,
    }
}
