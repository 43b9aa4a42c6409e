//! A port that is removed: what led to it leads elsewhere, or nowhere.

use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{IpPrefix, NextHopId};
use manylane_net::neighbour::Key;
use manylane_net::nexthop::NextHop;
use manylane_net::nexthop::ids::{BLACKHOLE, LOCAL, fixed_id};

use super::{Effects, Going, Routing};

impl Routing {
    /// Removes all routes and neighbours of a port, as a kernel does whose interface goes: packets take less
    /// specific routes, or have none. A group of next hops continues with its other members. From another thread
    /// than the control thread: ring its bell afterwards.
    pub fn remove_port(&mut self, port: PortId, now: Duration) {
        let going: Vec<(IpPrefix, NextHopId)> = self.routes_by(port).collect();
        self.removed[port.index()] = true;
        // Networks and addresses that another port has too are that one's now.
        let others = (0..).map(PortId).zip(&self.removed).filter(|&(_, &removed)| !removed);
        let others: Vec<PortId> = others.map(|(other, _)| other).collect();
        let shared: Vec<(IpPrefix, NextHopId)> =
            others.into_iter().flat_map(|other| self.connected(other)).collect();
        for (prefix, was) in going {
            let then = shared.iter().find(|(other, _)| *other == prefix).map(|&(_, id)| id);
            self.going.push(Going { prefix, was, then });
        }
        let mut effects = Effects::default();
        let mut actions = std::mem::take(&mut self.actions);
        // A neighbour that is still known there, as a member of a group, is solicited no more.
        for is_ipv6 in [false, true] {
            self.neighbours.set_waiting(port, is_ipv6, true);
        }
        self.neighbours.forget_port(port, now, &mut actions);
        self.apply(actions, &mut effects);
        self.remove_routes(&mut effects);
        self.forget_idle(port);
        self.find_idle();
        self.reroute_idle(&mut effects);
        self.owe(effects);
    }

    /// Whether a port was removed.
    pub fn is_removed(&self, port: PortId) -> bool {
        self.removed[port.index()]
    }

    /// Removes what is to go, as far as the tables' bounds allow by now.
    pub(super) fn remove_routes(&mut self, effects: &mut Effects) {
        if self.going.is_empty() {
            return;
        }
        self.next_hops.step();
        let mut going = std::mem::take(&mut self.going);
        going.retain(|&Going { prefix, was, then }| match then {
            // One that is not there any more has gone with its neighbour.
            _ if self.route(prefix) != Some(was) => false,
            Some(id) => self.insert(prefix, id).is_err(),
            None => self.remove(prefix).is_err(),
        });
        self.going = going;
        self.next_hops.step();
        self.let_go_of_groups();
        effects.published = true;
    }

    /// The prefixes that lead to a port or to our addresses there.
    fn routes_by(&self, port: PortId) -> impl Iterator<Item = (IpPrefix, NextHopId)> {
        let own = self.connected(port);
        let is_own = move |prefix: IpPrefix, id: NextHopId| {
            let found = own.iter().find(|(own, _)| *own == prefix);
            // An address that another station has is a blackhole meanwhile.
            found.is_some_and(|&(_, meant)| {
                id == meant || meant == fixed_id(LOCAL) && id == fixed_id(BLACKHOLE)
            })
        };
        let groups = self.groups();
        let routes = self.ipv4.routes().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        let routes =
            routes.chain(self.ipv6.routes().map(|(prefix, id)| (IpPrefix::V6(prefix), id)));
        let leads_there = move |&(prefix, id): &(IpPrefix, NextHopId)| match self.meaning(id) {
            NextHop::Via(Key { port: egress, .. }) | NextHop::Connected(egress) => egress == port,
            NextHop::Group(group) => groups
                .get(&group)
                .is_some_and(|members| members.iter().all(|member| member.key.port == port)),
            _ => is_own(prefix, id),
        };
        routes.filter(leads_there)
    }
}
