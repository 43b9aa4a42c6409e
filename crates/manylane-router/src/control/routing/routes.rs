//! Routes: entered, changed, removed, listed, and looked up.

use std::net::IpAddr;
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{EditError, IpPrefix, NextHopId};
use manylane_net::neighbour::Key;
use manylane_net::nexthop::ids::{
    BLACKHOLE, BROADCAST, CONNECTED, GROUP, LOCAL, NEIGHBOUR, PROHIBIT, UNREACHABLE, connected_id,
    fixed_id, neighbour_id,
};
use manylane_net::nexthop::{GroupId, NextHop};

use super::{Effects, Routing, RoutingError};
use crate::config::{Route, RouteTarget};

impl Routing {
    /// Adds a static route, or has the prefix lead elsewhere. What waits in a worker goes the new way, before
    /// anything newer.
    pub fn add_route(
        &mut self,
        route: &Route,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<(), RoutingError> {
        let id = match route.target {
            RouteTarget::Group(ref hops) => self.group(hops, now, effects)?,
            RouteTarget::Via { next_hop, port } => {
                let slot = self.pin(Key { port, addr: next_hop }, now, effects)?;
                neighbour_id(slot)
            }
            RouteTarget::OnLink { port } => connected_id(port),
            RouteTarget::Blackhole => fixed_id(BLACKHOLE),
            RouteTarget::Unreachable => fixed_id(UNREACHABLE),
            RouteTarget::Prohibit => fixed_id(PROHIBIT),
        };
        let prefix = prefix_of(route);
        self.change(prefix, id, effects)?;
        self.rest_if_down(prefix, id, effects);
        if let NextHop::Group(group) = self.meaning(id) {
            *self.group_users.entry(group).or_default() += 1;
        }
        Ok(())
    }

    /// All routes, with what they lead to: IPv4 before IPv6, by prefix.
    pub fn routes(&self) -> impl Iterator<Item = (IpPrefix, NextHop<Key>)> {
        let ipv4 = self.ipv4.routes().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        let ipv6 = self.ipv6.routes().map(|(prefix, id)| (IpPrefix::V6(prefix), id));
        ipv4.chain(ipv6).map(|(prefix, id)| (prefix, self.meaning(id)))
    }

    /// The prefix that leads packets to `addr`, and the number of its next hop.
    pub fn longest(&self, addr: IpAddr) -> Option<(IpPrefix, NextHopId)> {
        match addr {
            IpAddr::V4(addr) => {
                self.ipv4.lookup(addr).map(|(prefix, id)| (IpPrefix::V4(prefix), id))
            }
            IpAddr::V6(addr) => {
                self.ipv6.lookup(addr).map(|(prefix, id)| (IpPrefix::V6(prefix), id))
            }
        }
    }

    /// Has a prefix lead elsewhere; packets that a worker holds may be for that prefix.
    pub(super) fn change(
        &mut self,
        prefix: IpPrefix,
        id: NextHopId,
        effects: &mut Effects,
    ) -> Result<(), RoutingError> {
        self.next_hops.step();
        let inserted = self.insert(prefix, id);
        self.next_hops.step();
        effects.published = true;
        inserted
    }

    pub(super) fn insert(&mut self, prefix: IpPrefix, id: NextHopId) -> Result<(), RoutingError> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.insert(prefix, id),
            IpPrefix::V6(prefix) => self.ipv6.insert(prefix, id),
        }
        .map(drop)
        .map_err(|source| RoutingError::Fib { prefix, source })
    }

    pub(super) fn remove(&mut self, prefix: IpPrefix) -> Result<(), EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.remove(prefix),
            IpPrefix::V6(prefix) => self.ipv6.remove(prefix),
        }
        .map(drop)
    }

    pub(super) fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.route(prefix),
            IpPrefix::V6(prefix) => self.ipv6.route(prefix),
        }
    }

    pub(super) fn meaning(&self, id: NextHopId) -> NextHop<Key> {
        match id.raw() {
            LOCAL => NextHop::Local,
            BROADCAST => NextHop::Broadcast,
            BLACKHOLE => NextHop::Blackhole,
            UNREACHABLE => NextHop::Unreachable,
            PROHIBIT => NextHop::Prohibit,
            raw if raw >= NEIGHBOUR => match self.neighbours.entry(u32::from(raw - NEIGHBOUR)) {
                Some(entry) => NextHop::Via(entry.key),
                None => NextHop::None,
            },
            raw if raw >= GROUP => NextHop::Group(GroupId(raw - GROUP)),
            raw if raw >= CONNECTED => NextHop::Connected(PortId(raw - CONNECTED)),
            _ => NextHop::None,
        }
    }
}

pub(super) fn prefix_of(route: &Route) -> IpPrefix {
    IpPrefix::new(route.prefix.network(), route.prefix.length())
        .expect("the configuration refuses host bits")
}
