//! Ports without a carrier: routes by them are out, and packets take less specific ones, until the carrier is back.
//!
//! | without a carrier                    | what becomes of it                                                   |
//! |--------------------------------------|----------------------------------------------------------------------|
//! | a member of a group                  | its flows take the other members, at once                            |
//! | a neighbour that a next hop needs    | refuses packets; with the carrier it is looked for at once           |
//! | another neighbour                    | is forgotten; a static one refuses packets                           |
//! | a route that leads there only        | out of the FIB, and in `idle` until it is back                      |
//! | a connected network                  | out, too; if another port has the network, it is that port's         |
//! | an address of ours                   | stays; with the carrier it is probed and announced anew              |

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{IpPrefix, NextHopId};
use manylane_net::nexthop::{GroupId, NextHop};

use super::{Effects, Routing, is_busy, neighbour_id};

impl Routing {
    /// Takes in whether the device of a port has a carrier; at first, each has. Sub-interfaces share the carrier of
    /// their port.
    pub fn set_carrier(
        &mut self,
        port: PortId,
        has_carrier: bool,
        now: Duration,
        effects: &mut Effects,
    ) {
        for id in self.interfaces_by(port) {
            if self.is_removed(id) || self.is_down(id) != has_carrier {
                continue;
            }
            self.down[id.index()] = !has_carrier;
            let mut actions = std::mem::take(&mut self.actions);
            self.neighbours.set_carrier(id, has_carrier, now, &mut actions);
            self.apply(actions, effects);
            if has_carrier {
                let mut actions = std::mem::take(&mut self.own_actions);
                self.own.restart(id, now, &mut actions);
                self.apply_own(actions, effects);
            }
        }
        self.find_idle();
        self.is_idle_outdated = true;
        self.reroute_idle(effects);
    }

    /// Whether a port has no carrier.
    pub fn is_down(&self, port: PortId) -> bool {
        self.down[port.index()]
    }

    /// A port and its sub-interfaces.
    fn interfaces_by(&self, port: PortId) -> Vec<PortId> {
        let all = (0..).map(PortId).zip(&self.ports);
        let shared = all.filter(|(id, interface)| {
            *id == port || interface.facts.vlan.is_some_and(|vlan| vlan.port == port)
        });
        shared.map(|(id, _)| id).collect()
    }

    /// Lets a route that has just been added rest, if it leads only to ports without a carrier.
    pub(super) fn rest_if_down(&mut self, prefix: IpPrefix, id: NextHopId, effects: &mut Effects) {
        self.idle.remove(&prefix);
        if !self.leads_on(id, &self.groups_down()) {
            self.idle.insert(prefix, id);
            self.is_idle_outdated = true;
            self.reroute_idle(effects);
        }
    }

    /// Takes note of the routes in the FIB that lead only to ports without a carrier.
    pub(super) fn find_idle(&mut self) {
        if !self.down.contains(&true) {
            return;
        }
        let groups = self.groups_down();
        let ipv4 = self.ipv4.routes().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        let ipv6 = self.ipv6.routes().map(|(prefix, id)| (IpPrefix::V6(prefix), id));
        let hosts: HashSet<(IpPrefix, NextHopId)> =
            self.host_routes.iter().map(|(&slot, &prefix)| (prefix, neighbour_id(slot))).collect();
        // A neighbour's own route goes with the neighbour.
        let found = ipv4
            .chain(ipv6)
            .filter(|route| !self.leads_on(route.1, &groups) && !hosts.contains(route));
        let found: Vec<_> = found.collect();
        self.is_idle_outdated |= !found.is_empty();
        for (prefix, id) in found {
            self.idle.entry(prefix).or_insert(id); // What stands in for a resting route is not the route.
        }
    }

    /// Forgets routes that rest and lead to a removed port.
    pub(super) fn forget_idle(&mut self, port: PortId) {
        let mut idle = std::mem::take(&mut self.idle);
        idle.retain(|_, &mut id| match self.meaning(id) {
            NextHop::Via(key) => key.port != port,
            NextHop::Connected(egress) => egress != port,
            _ => true,
        });
        self.idle = idle;
    }

    /// Takes resting routes out of the FIB, and those back in whose ports have a carrier, as far as the tables' bounds
    /// allow by now.
    pub(super) fn reroute_idle(&mut self, effects: &mut Effects) {
        if !std::mem::take(&mut self.is_idle_outdated) {
            return;
        }
        let groups = self.groups_down();
        let hosts: HashMap<IpPrefix, u32> =
            self.host_routes.iter().map(|(&slot, &prefix)| (prefix, slot)).collect();
        self.next_hops.step();
        let mut idle = std::mem::take(&mut self.idle);
        idle.retain(|&prefix, &mut id| {
            let is_back = self.leads_on(id, &groups);
            // Meanwhile the prefix is a neighbour's, or the network of another port.
            let host = || hosts.get(&prefix).map(|&slot| neighbour_id(slot));
            let wanted = if is_back { Some(id) } else { host().or_else(|| self.network(prefix)) };
            let edited = match wanted {
                _ if self.route(prefix) == wanted => Ok(()),
                Some(id) => self.insert(prefix, id).map_err(|error| is_busy(&error)),
                None => self.remove(prefix).map_err(|_| true),
            };
            // One that finds no place is tried again with the next change of a carrier.
            self.is_idle_outdated |= edited == Err(true);
            !is_back || edited.is_err()
        });
        self.idle = idle;
        self.next_hops.step();
        effects.published = true;
    }

    /// What a prefix means that a port with a carrier has as its network.
    fn network(&self, prefix: IpPrefix) -> Option<NextHopId> {
        let ports = (0..self.ports.len() as u16).map(PortId);
        let mut up = ports.filter(|&port| !self.is_down(port) && !self.is_removed(port));
        up.find_map(|port| {
            self.connected(port).into_iter().find(|(own, _)| *own == prefix).map(|(_, id)| id)
        })
    }

    /// Whether a next hop needs no port, or one that has a carrier.
    fn leads_on(&self, id: NextHopId, groups_down: &HashSet<GroupId>) -> bool {
        // What leads to a removed port is not to return.
        let rests = |port| self.is_down(port) && !self.is_removed(port);
        match self.meaning(id) {
            NextHop::Via(key) => !rests(key.port),
            NextHop::Connected(port) => !rests(port),
            NextHop::Group(group) => !groups_down.contains(&group),
            _ => true,
        }
    }

    /// The groups whose members are all on ports without a carrier.
    fn groups_down(&self) -> HashSet<GroupId> {
        let is_down = |slot: u32| {
            let port = self.neighbours.entry(slot).map(|entry| entry.key.port);
            port.is_some_and(|port| self.is_down(port) || self.is_removed(port))
        };
        let down = self
            .groups
            .iter()
            .filter(|(members, _)| members.iter().all(|member| is_down(member.slot)));
        down.map(|(_, &group)| group).collect()
    }
}
