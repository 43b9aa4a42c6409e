//! A writer that remembers and checks its edits, and is busy when the test says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use manylane_net::fib::{EditError, IpPrefix, Ipv4Prefix, Ipv6Prefix, Limits, NextHopId};
use manylane_net::nexthop::{GroupId, GroupsFull, Member, NextHop};
use manylane_net::transit::{Action, Adjacency, Memory, Rule, Sizes, TableNumber, TransitMut};

use manylane_sync::rcu::Domain;

use crate::table_writer::{Bounds, TableWriter};

/// Tables in maps. Whatever is given back is free again after [`Fake::grace`].
pub struct Fake {
    pub routes: BTreeMap<IpPrefix, NextHopId>,
    pub words: BTreeMap<NextHopId, NextHop<u32>>,
    pub slots: BTreeMap<u32, Option<Adjacency>>,
    pub groups: BTreeMap<GroupId, Vec<Member>>,
    /// Further tables in use, with what is written of them.
    pub tables: HashMap<TableNumber, BTreeMap<IpPrefix, NextHopId>>,
    /// The rules of IPv4, and of IPv6.
    pub rules: [Vec<Rule>; 2],
    free_tables: Vec<TableNumber>,
    gone_tables: Vec<TableNumber>,
    /// Prefixes that a further table has room for.
    pub table_max: usize,
    free_ids: Vec<NextHopId>,
    free_slots: Vec<u32>,
    free_groups: Vec<GroupId>,
    gone_ids: Vec<NextHopId>,
    gone_slots: Vec<u32>,
    gone_groups: Vec<GroupId>,
    bounds: Bounds,
    groups_max: usize,
    routes_max: usize,
    /// Which of the next edits that can be busy are: a bit each, from the lowest; then none.
    pub busy: u64,
    /// How many edits were made.
    pub edits: usize,
}

impl Fake {
    pub fn new() -> Fake {
        Fake::with(Bounds { ids: 1000, slots: 1000 }, 100, usize::MAX)
    }

    pub fn with(bounds: Bounds, groups_max: usize, routes_max: usize) -> Fake {
        let id = |raw: usize| NextHopId::new(raw as u16).expect("small and not 0");
        Fake {
            routes: BTreeMap::new(),
            words: BTreeMap::new(),
            slots: BTreeMap::new(),
            groups: BTreeMap::new(),
            tables: HashMap::new(),
            rules: Default::default(),
            free_tables: numbers(),
            gone_tables: Vec::new(),
            table_max: usize::MAX,
            free_ids: (1..=bounds.ids).rev().map(id).collect(),
            free_slots: (0..bounds.slots as u32).rev().collect(),
            free_groups: (0..groups_max as u16).rev().map(GroupId).collect(),
            gone_ids: Vec::new(),
            gone_slots: Vec::new(),
            gone_groups: Vec::new(),
            bounds,
            groups_max,
            routes_max,
            busy: 0,
            edits: 0,
        }
    }

    /// A grace period is over.
    pub fn grace(&mut self) {
        self.free_ids.append(&mut self.gone_ids);
        self.free_slots.append(&mut self.gone_slots);
        self.free_groups.append(&mut self.gone_groups);
        self.free_tables.append(&mut self.gone_tables);
    }

    /// What everything leads to has to be there.
    pub fn check(&self) {
        for (prefix, id) in &self.routes {
            assert!(self.words.contains_key(id), "{prefix} leads to {id}, which was given back");
        }
        for (prefix, id) in self.tables.values().flatten() {
            assert!(self.words.contains_key(id), "further {prefix} leads to {id}, given back");
        }
        for rule in self.rules.iter().flatten() {
            if let Action::Table(table) = rule.action {
                assert!(self.tables.contains_key(&table), "{rule:?} leads to a table given back");
            }
        }
        for (id, word) in &self.words {
            match word {
                NextHop::Via(slot) => assert!(self.slots.contains_key(slot), "{id}: slot {slot}"),
                NextHop::Group(group) => {
                    assert!(self.groups.contains_key(group), "{id}: {group:?}")
                }
                _ => (),
            }
        }
        for (group, members) in &self.groups {
            for member in members {
                assert!(self.slots.contains_key(&member.slot), "{group:?}: slot {}", member.slot);
            }
        }
    }

    fn is_busy(&mut self) -> bool {
        let is_busy = self.busy & 1 == 1;
        self.busy >>= 1;
        is_busy
    }

    fn edit(&mut self) -> Result<(), EditError> {
        if self.is_busy() {
            return Err(EditError::Busy { waiting: 1, waiting_max: 1 });
        }
        self.edits += 1;
        Ok(())
    }
}

impl TableWriter for Fake {
    fn insert(&mut self, prefix: IpPrefix, id: NextHopId) -> Result<Option<NextHopId>, EditError> {
        assert!(self.words.contains_key(&id), "{prefix} to {id}, which nobody took");
        if self.routes.get(&prefix) == Some(&id) {
            return Ok(Some(id));
        }
        if !self.routes.contains_key(&prefix) && self.routes.len() >= self.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.routes_max });
        }
        self.edit()?;
        Ok(self.routes.insert(prefix, id))
    }

    fn remove(&mut self, prefix: IpPrefix) -> Result<Option<NextHopId>, EditError> {
        if !self.routes.contains_key(&prefix) {
            return Ok(None);
        }
        self.edit()?;
        Ok(self.routes.remove(&prefix))
    }

    fn load4(&mut self, routes: Vec<(Ipv4Prefix, NextHopId)>) -> Result<usize, EditError> {
        let len = routes.len();
        if len + self.routes.len() > self.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.routes_max });
        }
        self.routes.extend(routes.into_iter().map(|(prefix, id)| (prefix.into(), id)));
        Ok(len)
    }

    fn load6(&mut self, routes: Vec<(Ipv6Prefix, NextHopId)>) -> Result<usize, EditError> {
        let len = routes.len();
        if len + self.routes.len() > self.routes_max {
            return Err(EditError::TooManyRoutes { routes_max: self.routes_max });
        }
        self.routes.extend(routes.into_iter().map(|(prefix, id)| (prefix.into(), id)));
        Ok(len)
    }

    fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        self.routes.get(&prefix).copied()
    }

    fn routes(&self, each: &mut dyn FnMut(IpPrefix, NextHopId)) {
        self.routes.iter().for_each(|(prefix, id)| each(*prefix, *id));
    }

    fn take_id(&mut self) -> Option<NextHopId> {
        let id = self.free_ids.pop()?;
        self.words.insert(id, NextHop::None);
        Some(id)
    }

    fn retire_id(&mut self, id: NextHopId) {
        assert!(self.words.remove(&id).is_some(), "{id} twice");
        let further = self.tables.values().flatten();
        let used = self.routes.iter().chain(further).find(|(_, of)| **of == id);
        assert!(used.is_none(), "{id} is given back, but {used:?}");
        self.gone_ids.push(id);
    }

    fn set_next_hop(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        self.edits += 1;
        self.words.insert(id, next_hop);
        self.check();
    }

    fn next_hop(&self, id: NextHopId) -> NextHop<u32> {
        self.words[&id]
    }

    fn take_slot(&mut self) -> Option<u32> {
        if self.is_busy() && !self.gone_slots.is_empty() {
            return None;
        }
        let slot = self.free_slots.pop()?;
        self.slots.insert(slot, None);
        Some(slot)
    }

    fn set_slot(&mut self, slot: u32, adjacency: Option<Adjacency>) -> Result<(), EditError> {
        if self.slots[&slot] == adjacency {
            return Ok(());
        }
        if adjacency.is_some() {
            self.edit()?;
        } else {
            self.edits += 1;
        }
        self.slots.insert(slot, adjacency);
        Ok(())
    }

    fn adjacency(&self, slot: u32) -> Option<Adjacency> {
        self.slots[&slot]
    }

    fn retire_slot(&mut self, slot: u32) {
        assert!(self.slots.remove(&slot).is_some(), "slot {slot} twice");
        self.check();
        self.gone_slots.push(slot);
    }

    fn add_group(&mut self, members: &[Member]) -> Result<GroupId, GroupsFull> {
        check_members(members);
        let full = GroupsFull { groups_max: self.groups_max };
        if self.is_busy() && !self.gone_groups.is_empty() {
            return Err(full);
        }
        let group = self.free_groups.pop().ok_or(full)?;
        self.groups.insert(group, members.to_vec());
        self.edits += 1;
        Ok(group)
    }

    fn set_members(&mut self, group: GroupId, members: &[Member]) {
        check_members(members);
        self.edits += 1;
        self.groups.insert(group, members.to_vec()).expect("it is there");
    }

    fn members(&self, group: GroupId) -> Vec<Member> {
        self.groups[&group].clone()
    }

    fn remove_group(&mut self, group: GroupId) {
        assert!(self.groups.remove(&group).is_some(), "{group:?} twice");
        self.check();
        self.gone_groups.push(group);
    }

    fn set_rules(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<(), EditError> {
        self.edit()?;
        self.rules[usize::from(is_ipv6)] = rules.to_vec();
        self.check();
        Ok(())
    }

    fn rules(&self, is_ipv6: bool) -> &[Rule] {
        &self.rules[usize::from(is_ipv6)]
    }

    fn take_table(&mut self) -> Option<TableNumber> {
        let table = self.free_tables.pop()?;
        self.tables.insert(table, BTreeMap::new());
        Some(table)
    }

    fn set_table(
        &mut self,
        table: TableNumber,
        routes: &mut dyn Iterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError> {
        let routes: BTreeMap<IpPrefix, NextHopId> = routes.collect();
        if routes.len() > self.table_max {
            return Err(EditError::Full { table: "further", words: self.table_max, wanted: 0 });
        }
        self.edit()?;
        self.tables.insert(table, routes).expect("it is in use");
        self.check();
        Ok(())
    }

    fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError> {
        self.edit()?;
        assert!(self.tables.remove(&table).is_some(), "{table:?} twice");
        self.check();
        self.gone_tables.push(table);
        Ok(())
    }

    fn reclaim(&mut self) {}

    fn waiting(&self) -> usize {
        self.gone_ids.len() + self.gone_slots.len() + self.gone_groups.len()
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

/// Numbers of tables, as only a writer has them.
fn numbers() -> Vec<TableNumber> {
    static NUMBERS: OnceLock<Vec<TableNumber>> = OnceLock::new();
    let take_all = || {
        let memory = Memory::zeroed(&Sizes::for_routes(0, 0));
        let mut tables = TransitMut::new(memory, Domain::new(1), &Limits::default());
        std::iter::from_fn(|| tables.take_table()).collect()
    };
    NUMBERS.get_or_init(take_all).clone()
}

fn check_members(members: &[Member]) {
    assert!((2..=64).contains(&members.len()), "{} members", members.len());
    let slots: BTreeSet<u32> = members.iter().map(|member| member.slot).collect();
    assert_eq!(slots.len(), members.len(), "each once");
    assert!(members.iter().all(|member| member.weight > 0));
}
