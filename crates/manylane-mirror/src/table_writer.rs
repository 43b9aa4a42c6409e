//! The side that is written: what the mirror needs of the tables.
//!
//! The product's is [`TransitMut`], in memory that programs and workers read. Tests have a writer that remembers, and
//! that is busy when they say so.

use manylane_net::fib::{EditError, IpPrefix, Ipv4Prefix, Ipv6Prefix, NextHopId};
use manylane_net::nexthop::{GroupId, GroupsFull, Member, NextHop};
use manylane_net::transit::{Adjacency, Rule, TableNumber, TransitMut, layout};

/// The size of each pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Next-hop ids.
    pub ids: usize,
    /// Slots of neighbours.
    pub slots: usize,
}

/// The tables' writer. What is retired comes again after a grace period; until then a call that is short of it
/// says [`EditError::Busy`], or nothing, and has changed nothing.
pub trait TableWriter {
    /// Adds a route, or gives it another next hop. Returns the one it had.
    fn insert(&mut self, prefix: IpPrefix, id: NextHopId) -> Result<Option<NextHopId>, EditError>;
    /// Takes a route away. Returns the next hop it had.
    fn remove(&mut self, prefix: IpPrefix) -> Result<Option<NextHopId>, EditError>;
    /// Fills the IPv4 table, which is empty.
    fn load4(&mut self, routes: Vec<(Ipv4Prefix, NextHopId)>) -> Result<usize, EditError>;
    /// Fills the IPv6 table, which is empty.
    fn load6(&mut self, routes: Vec<(Ipv6Prefix, NextHopId)>) -> Result<usize, EditError>;
    /// The next hop of exactly this prefix.
    fn route(&self, prefix: IpPrefix) -> Option<NextHopId>;
    /// All routes.
    fn routes(&self, each: &mut dyn FnMut(IpPrefix, NextHopId));
    /// An id for a next hop; it leads nowhere yet.
    fn take_id(&mut self) -> Option<NextHopId>;
    /// Gives back an id that no route has any more.
    fn retire_id(&mut self, id: NextHopId);
    /// Sets what an id means: all its routes follow at once.
    fn set_next_hop(&mut self, id: NextHopId, next_hop: NextHop<u32>);
    /// What an id means.
    fn next_hop(&self, id: NextHopId) -> NextHop<u32>;
    /// A slot for a neighbour, unresolved.
    fn take_slot(&mut self) -> Option<u32>;
    /// Says how a slot's neighbour is reached, or that it cannot be sent to, which is never refused.
    fn set_slot(&mut self, slot: u32, adjacency: Option<Adjacency>) -> Result<(), EditError>;
    /// How a slot's neighbour is reached.
    fn adjacency(&self, slot: u32) -> Option<Adjacency>;
    /// Gives back a slot that nothing leads to any more.
    fn retire_slot(&mut self, slot: u32);
    /// Makes a group.
    fn add_group(&mut self, members: &[Member]) -> Result<GroupId, GroupsFull>;
    /// Gives a group other members.
    fn set_members(&mut self, group: GroupId, members: &[Member]);
    /// A group's members, by slot.
    fn members(&self, group: GroupId) -> Vec<Member>;
    /// Takes a group away that no next hop leads to any more.
    fn remove_group(&mut self, group: GroupId);
    /// Routes a family's packets by these rules; by the merged tables, if the list is empty.
    fn set_rules(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<(), EditError>;
    /// The rules of a family, as they were set last.
    fn rules(&self, is_ipv6: bool) -> &[Rule];
    /// A further table, without routes.
    fn take_table(&mut self) -> Option<TableNumber>;
    /// Makes a further table have these routes.
    fn set_table(
        &mut self,
        table: TableNumber,
        routes: &mut dyn Iterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError>;
    /// Gives back a further table that no rule leads to any more.
    fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError>;
    /// Takes back what has had its grace period, and begins one.
    fn reclaim(&mut self);
    /// How much waits for a grace period.
    fn waiting(&self) -> usize;
    /// The sizes of the pools.
    fn bounds(&self) -> Bounds;
}

impl TableWriter for TransitMut {
    fn insert(&mut self, prefix: IpPrefix, id: NextHopId) -> Result<Option<NextHopId>, EditError> {
        TransitMut::insert(self, prefix, id)
    }

    fn remove(&mut self, prefix: IpPrefix) -> Result<Option<NextHopId>, EditError> {
        TransitMut::remove(self, prefix)
    }

    fn load4(&mut self, routes: Vec<(Ipv4Prefix, NextHopId)>) -> Result<usize, EditError> {
        TransitMut::load4(self, routes)
    }

    fn load6(&mut self, routes: Vec<(Ipv6Prefix, NextHopId)>) -> Result<usize, EditError> {
        TransitMut::load6(self, routes)
    }

    fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        TransitMut::route(self, prefix)
    }

    fn routes(&self, each: &mut dyn FnMut(IpPrefix, NextHopId)) {
        self.routes4().for_each(|(prefix, id)| each(prefix.into(), id));
        self.routes6().for_each(|(prefix, id)| each(prefix.into(), id));
    }

    fn take_id(&mut self) -> Option<NextHopId> {
        TransitMut::take_id(self)
    }

    fn retire_id(&mut self, id: NextHopId) {
        TransitMut::retire_id(self, id);
    }

    fn set_next_hop(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        TransitMut::set_next_hop(self, id, next_hop);
    }

    fn next_hop(&self, id: NextHopId) -> NextHop<u32> {
        TransitMut::next_hop(self, id)
    }

    fn take_slot(&mut self) -> Option<u32> {
        TransitMut::take_slot(self)
    }

    fn set_slot(&mut self, slot: u32, adjacency: Option<Adjacency>) -> Result<(), EditError> {
        TransitMut::set_slot(self, slot, adjacency)
    }

    fn adjacency(&self, slot: u32) -> Option<Adjacency> {
        TransitMut::adjacency(self, slot)
    }

    fn retire_slot(&mut self, slot: u32) {
        TransitMut::retire_slot(self, slot);
    }

    fn add_group(&mut self, members: &[Member]) -> Result<GroupId, GroupsFull> {
        TransitMut::add_group(self, members)
    }

    fn set_members(&mut self, group: GroupId, members: &[Member]) {
        TransitMut::set_members(self, group, members);
    }

    fn members(&self, group: GroupId) -> Vec<Member> {
        TransitMut::members(self, group).map(|(member, _)| member).collect()
    }

    fn remove_group(&mut self, group: GroupId) {
        TransitMut::remove_group(self, group);
    }

    fn set_rules(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<(), EditError> {
        TransitMut::set_rules(self, is_ipv6, rules)
    }

    fn rules(&self, is_ipv6: bool) -> &[Rule] {
        TransitMut::rules(self, is_ipv6)
    }

    fn take_table(&mut self) -> Option<TableNumber> {
        TransitMut::take_table(self)
    }

    fn set_table(
        &mut self,
        table: TableNumber,
        routes: &mut dyn Iterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError> {
        TransitMut::set_table(self, table, routes)
    }

    fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError> {
        TransitMut::retire_table(self, table)
    }

    fn reclaim(&mut self) {
        TransitMut::reclaim(self);
    }

    fn waiting(&self) -> usize {
        TransitMut::waiting(self)
    }

    fn bounds(&self) -> Bounds {
        // Number 0 is no id.
        Bounds { ids: layout::NEXT_HOPS - 1, slots: layout::SLOTS }
    }
}
