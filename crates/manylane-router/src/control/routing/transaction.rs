//! Static routes and neighbours of another configuration, while packets pass.

use std::time::Duration;

use manylane_net::fib::EditError;
use manylane_net::neighbour::Key;
use manylane_net::nexthop::ids::{group_id, neighbour_id};
use manylane_net::nexthop::{GroupId, Member};

use super::routes::prefix_of;
use super::{Effects, Going, Routing, RoutingError};
use crate::config::{Hop, Route, RouteTarget, StaticNeighbour};

impl Routing {
    /// Has a prefix lead where `after` says, which was led by `before`: one of them, or both with the same prefix. A
    /// packet takes the one or the other. Refused, nothing has changed; refused as busy, it is to be tried again after a
    /// turn of the workers. From another thread than the control thread: ring its bell afterwards.
    pub fn replace_route(
        &mut self,
        before: Option<&Route>,
        after: Option<&Route>,
        now: Duration,
    ) -> Result<(), RoutingError> {
        let mut effects = Effects::default();
        let done = match after {
            Some(route) => {
                // What is still to go would take the new one along.
                let prefix = prefix_of(route);
                let pending = self.going.iter().position(|going| going.prefix == prefix);
                let pending = pending.map(|at| self.going.swap_remove(at));
                let pins = self.pins(route);
                let added = self.add_route(route, now, &mut effects);
                if added.is_err() {
                    self.going.extend(pending);
                    for (key, before) in pins {
                        while self.pins_of(key) > before {
                            self.unpin(key);
                        }
                    }
                    self.let_go_of_groups();
                }
                added
            }
            None => Ok(()),
        };
        if done.is_ok()
            && let Some(route) = before
        {
            if after.is_none() {
                self.take_away(route, &mut effects);
            }
            self.was_led_by(route);
        }
        self.owe(effects);
        done
    }

    /// Sets the neighbour of `after`, or forgets that of `before`. For the thread, see [`Routing::replace_route`].
    pub fn replace_neighbour(
        &mut self,
        before: Option<StaticNeighbour>,
        after: Option<StaticNeighbour>,
        now: Duration,
    ) -> Result<(), RoutingError> {
        let key = |one: StaticNeighbour| Key { port: one.port, addr: one.address };
        if let Some(one) = after {
            let mut effects = Effects::default();
            let set = self.set_neighbour(key(one), one.mac, now, &mut effects);
            self.owe(effects);
            return set.map(drop);
        }
        if let Some(one) = before {
            // An operator may have deleted it by hand.
            let _ = self.delete_neighbour(key(one), now);
        }
        Ok(())
    }

    fn take_away(&mut self, route: &Route, effects: &mut Effects) {
        let prefix = prefix_of(route);
        let idle = self.idle.remove(&prefix);
        let Some(was) = self.route(prefix) else { return };
        if idle.is_some_and(|id| id != was) {
            return; // What is there in its place stays.
        }
        // A neighbour that the route stood before is found again.
        let slot =
            self.host_routes.iter().find(|(_, host)| **host == prefix).map(|(slot, _)| *slot);
        self.going.push(Going { prefix, was, then: slot.map(neighbour_id) });
        self.remove_routes(effects);
    }

    /// A route that was there has gone, or leads elsewhere.
    fn was_led_by(&mut self, route: &Route) {
        if let RouteTarget::Group(hops) = &route.target
            && let Some(group) = self.group_of(hops)
            && let Some(users) = self.group_users.get_mut(&group)
        {
            *users -= 1;
        }
        for (key, pins) in self.pins(route) {
            if pins > 0 {
                self.unpin(key);
            }
        }
        self.let_go_of_groups();
    }

    /// The neighbours that it leads through, and how many routes do.
    fn pins(&self, route: &Route) -> Vec<(Key, u32)> {
        let keys = route.next_hops().map(|(port, addr)| Key { port, addr });
        keys.map(|key| (key, self.pins_of(key))).collect()
    }

    fn pins_of(&self, key: Key) -> u32 {
        self.neighbours.find(key).map_or(0, |(_, entry)| entry.pins)
    }

    fn unpin(&mut self, key: Key) {
        if let Some((slot, _)) = self.neighbours.find(key) {
            self.neighbours.unpin(slot);
        }
    }

    fn group_of(&self, hops: &[Hop]) -> Option<GroupId> {
        let member = |hop: &Hop| {
            let key = Key { port: hop.port, addr: hop.next_hop };
            self.neighbours.find(key).map(|(slot, _)| Member { slot, weight: hop.weight })
        };
        let mut members: Vec<Member> = hops.iter().map(member).collect::<Option<_>>()?;
        members.sort_unstable();
        self.groups.get(&members).copied()
    }

    /// Groups that no route leads to any more, and none will be led away from.
    pub(super) fn let_go_of_groups(&mut self) {
        let Routing { groups, group_users, going, next_hops, .. } = self;
        groups.retain(|_, group| {
            let is_used = group_users.get(group).is_some_and(|users| *users > 0)
                || going.iter().any(|going| going.was == group_id(*group));
            if !is_used {
                group_users.remove(group);
                next_hops.remove_group(*group);
            }
            is_used
        });
    }
}

/// Whether it will do after a turn of the workers.
pub fn is_busy(error: &RoutingError) -> bool {
    matches!(error, RoutingError::Fib { source: EditError::Busy { .. }, .. })
}
