//! Carries out what the neighbour table orders: adjacencies, host routes, and questions.

use std::net::IpAddr;

use manylane_net::fib::{EditError, NextHopId};
use manylane_net::neighbour::{Action, Header, Key, Rewrite};
use manylane_net::nexthop::dst::{Facts, Flags};
use manylane_net::nexthop::ids::{NEIGHBOUR, neighbour_id};
use manylane_net::wire::ethernet::{Tags, ether_type};

use super::connected::{host, is_link_local};
use super::{Effects, Routing, RoutingError};
use manylane_worker::Order;

impl Routing {
    pub(super) fn apply(&mut self, mut actions: Vec<Action>, effects: &mut Effects) {
        actions.drain(..).for_each(|action| self.act(action, effects));
        self.actions = actions; // Its memory serves the next time.
    }

    /// Does what the neighbour table orders. What meets a bound waits, and so does what comes after it
    /// for the same slot.
    fn act(&mut self, action: Action, effects: &mut Effects) {
        let Some(slot) = slot_of(action) else {
            self.edit(action, effects);
            return;
        };
        if self.waiting.contains_key(&slot) || !self.edit(action, effects) {
            self.waiting.insert(slot, action);
        }
    }

    /// One action, done; false when it met a bound and changed nothing that matters.
    pub(super) fn edit(&mut self, action: Action, effects: &mut Effects) -> bool {
        match action {
            Action::Publish { slot, key, state, mac } => {
                let port = &self.ports[key.port.index()].facts;
                let ether_type = match key.addr {
                    IpAddr::V4(_) => ether_type::IPV4,
                    IpAddr::V6(_) => ether_type::IPV6,
                };
                let (tags, egress) =
                    port.vlan.map_or((Tags::NONE, key.port), |vlan| (vlan.tags, vlan.port));
                let mac = mac.unwrap_or_default();
                let header = Header::tagged(mac, port.mac.0, tags, ether_type);
                let rewrite = Rewrite { key, egress, state, header, mtu: port.mtu };
                // Before the adjacency: a worker that finds the neighbour unresolved holds packets for it, by its dst.
                let facts = Facts {
                    next_hop: neighbour_id(slot),
                    neighbour: Some(slot),
                    port: key.port,
                    mtu: port.mtu,
                    flags: Flags::default(),
                };
                if self.dsts.publish(&facts).is_err() {
                    return false;
                }
                // A group's flows leave a member before its address is lost, and return once it has one.
                if !state.is_resolved() {
                    self.next_hops.set_resolved(slot, false);
                }
                if self.adjacencies.publish(slot, &rewrite).is_err() {
                    return false;
                }
                if state.is_resolved() {
                    self.next_hops.set_resolved(slot, true);
                }
                effects.published = true;
                self.add_host_route(slot, key)
            }
            Action::Remove { slot, .. } => {
                if let Some(&prefix) = self.host_routes.get(&slot) {
                    // A static route may have taken its place.
                    let is_ours = self.route(prefix) == Some(neighbour_id(slot));
                    if is_ours && self.remove(prefix).is_err() {
                        return false;
                    }
                    self.host_routes.remove(&slot);
                }
                self.adjacencies.withdraw(slot);
                self.dsts.withdraw(neighbour_id(slot));
                true
            }
            Action::Solicit { key, unicast } => {
                effects.orders.push(Order::Solicit { key, unicast });
                true
            }
        }
    }

    /// Lets workers find a neighbour by the FIB; false when it must be tried again.
    fn add_host_route(&mut self, slot: u32, key: Key) -> bool {
        let prefix = host(key.addr);
        // A link-local address is no route: it may exist on every port.
        if is_link_local(key.addr) || self.host_routes.contains_key(&slot) {
            return true;
        }
        let former = self.route(prefix).map(|id| self.former_slot(id, key));
        match former {
            None if !self.is_on_link(key) => return true,
            Some(None) => return true, // Not this neighbour's, such as a static host route: it stays.
            None | Some(Some(_)) => {}
        }
        match self.insert(prefix, neighbour_id(slot)) {
            Ok(()) => {
                former.flatten().map(|former| self.host_routes.remove(&former));
                self.host_routes.insert(slot, prefix);
                self.adjacencies.announce(); // Packets that were held before the slot existed find it now.
                true
            }
            Err(RoutingError::Fib { source: EditError::Busy { .. }, .. }) => false,
            Err(_) => {
                self.given_up += 1; // Trying again would not help.
                true
            }
        }
    }

    /// The slot that `id` stands for, if it is one that `key` has left and that waits to be removed.
    fn former_slot(&self, id: NextHopId, key: Key) -> Option<u32> {
        let slot = u32::from(id.raw().checked_sub(NEIGHBOUR)?);
        match self.waiting.get(&slot) {
            Some(Action::Remove { key: former, .. }) if *former == key => Some(slot),
            _ => None,
        }
    }
}

/// The slot that an action edits; a question edits none.
pub(super) fn slot_of(action: Action) -> Option<u32> {
    match action {
        Action::Publish { slot, .. } | Action::Remove { slot, .. } => Some(slot),
        Action::Solicit { .. } => None,
    }
}
