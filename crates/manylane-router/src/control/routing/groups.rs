//! Routes by several next hops.

use std::collections::BTreeMap;
use std::time::Duration;

use manylane_net::fib::NextHopId;
use manylane_net::neighbour::Key;
use manylane_net::nexthop::ids::group_id;
use manylane_net::nexthop::{BUCKETS, GroupId, Member};

use super::{Effects, Routing, RoutingError};
use crate::config::Hop;

/// A member of a group, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupMember {
    /// Which neighbour.
    pub key: Key,
    /// Its weight.
    pub weight: u16,
    /// The part of the flows that it takes at present, 0 to 1. 0: another is found, and it is not.
    pub share: f64,
}

impl Routing {
    /// Divides flows otherwise than a router with another seed: before [`Routing::tables`].
    pub fn set_flow_seed(&mut self, seed: u64) {
        self.next_hops.set_seed(seed);
    }

    /// All groups, with their members.
    pub fn groups(&self) -> BTreeMap<GroupId, Vec<GroupMember>> {
        let of_group = |&id: &GroupId| {
            let members = self.next_hops.members(id).filter_map(|(member, buckets)| {
                let key = self.neighbours.entry(member.slot)?.key;
                let share = buckets as f64 / BUCKETS as f64;
                Some(GroupMember { key, weight: member.weight, share })
            });
            (id, members.collect())
        };
        self.groups.values().map(of_group).collect()
    }

    /// The next hop of a route by these, which are pinned. Routes by the same share a group.
    pub(super) fn group(
        &mut self,
        hops: &[Hop],
        now: Duration,
        effects: &mut Effects,
    ) -> Result<NextHopId, RoutingError> {
        let mut members = Vec::with_capacity(hops.len());
        for &Hop { next_hop, port, weight } in hops {
            let slot = self.pin(Key { port, addr: next_hop }, now, effects)?;
            members.push(Member { slot, weight });
        }
        members.sort_unstable();
        if let Some(&group) = self.groups.get(&members) {
            return Ok(group_id(group));
        }
        let Routing { next_hops, neighbours, waiting, .. } = self;
        // A member that waits to be published reaches the group when it is published.
        let has_address = |slot: u32| !waiting.contains_key(&slot) && neighbours.is_resolved(slot);
        let group = next_hops.add_group(&members, has_address).map_err(RoutingError::Groups)?;
        self.groups.insert(members, group);
        Ok(group_id(group))
    }
}
