//! Rules and further tables, as they are written: which table routes a packet, where that is not always the same.
//!
//! | what          | written                                            | given back                               |
//! |---------------|----------------------------------------------------|------------------------------------------|
//! | further table | before a list of rules leads to it; as a whole,    | after no list does                        |
//! |               | whenever a prefix of it leads elsewhere            |                                          |
//! | list of rules | when a rule, a device that one names, or a table's state is another | when another one is written |
//!
//! A table that is not written whole yet, or that finds no room, is the kernel's: a rule to it is listed as
//! one for the kernel. So rules are obeyed at once, and what leads to a table follows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manylane_io::netlink::kernel::{Family, Rule as KernelRule};
use manylane_net::fib::{EditError, IpPrefix, NextHopId};
use manylane_net::transit::{Action, Rule, TableNumber};

use super::Mirror;
use crate::constants::{RULE_INVERT, TABLE_DEFAULT};
use crate::family::{Bits, host};
use crate::kernel::Kernel;
use crate::resolve::View;
use crate::routes::Routes;
use crate::rules::{Plan, Step, is_vrf, line};
use crate::table_writer::TableWriter;
use crate::targets::Busy;

/// Prefixes of all further tables, of both families: what a change of one rewrites is small.
const PREFIXES_MAX: usize = 65_536;

/// The further tables that rules lead to.
#[derive(Default)]
pub(super) struct Policies {
    tables: BTreeMap<(Family, u32), Table>,
    /// Lists are to be written.
    is_stale: bool,
    /// The merged tables had routes of the table default, by family.
    has_default: [bool; 2],
}

/// A further table.
struct Table {
    number: TableNumber,
    /// What its prefixes are to lead to.
    routes: BTreeMap<IpPrefix, NextHopId>,
    /// These led elsewhere, and do until it is written.
    former: Vec<NextHopId>,
    /// The table is to be written.
    is_stale: bool,
    /// The table has been written since all its prefixes were resolved.
    is_ready: bool,
    /// The table does not fit.
    is_refused: bool,
    /// Prefixes left to the kernel for want of a next-hop id.
    starved: BTreeSet<IpPrefix>,
}

impl Table {
    fn new(number: TableNumber) -> Table {
        Table {
            number,
            routes: BTreeMap::new(),
            former: Vec::new(),
            is_stale: true,
            is_ready: false,
            is_refused: false,
            starved: BTreeSet::new(),
        }
    }

    /// The table does not fit: no rule leads to it from the next list on.
    fn refuse(&mut self) {
        self.former.extend(std::mem::take(&mut self.routes).into_values());
        self.starved.clear();
        (self.is_refused, self.is_ready, self.is_stale) = (true, false, false);
    }
}

impl Policies {
    /// What is to be written still.
    pub fn pending(&self) -> usize {
        let tables = self.tables.values().filter(|table| table.is_stale);
        usize::from(self.is_stale) + tables.count()
    }

    /// The numbers of further tables.
    #[cfg(test)]
    pub fn numbers(&self) -> impl Iterator<Item = (Family, u32, TableNumber)> {
        self.tables.iter().map(|(&(family, id), table)| (family, id, table.number))
    }

    /// Further tables in use, their prefixes, and those of them that are the kernel's.
    pub fn counts(&self) -> [usize; 3] {
        let all = self.tables.values();
        let starved = all.clone().map(|table| table.starved.len()).sum();
        [self.tables.len(), all.map(|table| table.routes.len()).sum(), starved]
    }
}

impl Kernel {
    /// What a family's rules come to.
    pub(super) fn plan(&self, family: Family) -> Plan<'_> {
        let has_default = self.table_len((family, TABLE_DEFAULT)) > 0;
        self.rules.plan(family, self.links().any(is_vrf), has_default)
    }

    /// All prefixes that another table than the usual ones may have something to say of.
    fn further_prefixes(&self, family: Family, table: u32) -> Vec<IpPrefix> {
        fn keys<B: Bits>(routes: &Routes<B>, table: u32) -> Vec<IpPrefix> {
            let number = routes.table(table);
            let keys = number.into_iter().flat_map(|number| routes.in_table(number));
            keys.map(|key| key.prefix()).collect()
        }
        let mut prefixes = match family {
            Family::V4 => keys(&self.v4, table),
            Family::V6 => keys(&self.v6, table),
        };
        prefixes.extend(self.neighbour_hosts(family));
        prefixes
    }

    /// How many routes the table of this key has.
    fn table_len(&self, (family, table): (Family, u32)) -> usize {
        match family {
            Family::V4 => self.v4.table(table).map_or(0, |number| self.v4.table_len(number)),
            Family::V6 => self.v6.table(table).map_or(0, |number| self.v6.table_len(number)),
        }
    }

    fn neighbour_hosts(&self, family: Family) -> impl Iterator<Item = IpPrefix> {
        let own = move |address: &IpAddr| address.is_ipv4() == (family == Family::V4);
        self.neighbours.keys().map(|(address, _)| *address).filter(own).map(host)
    }
}

impl Mirror<dyn TableWriter> {
    /// Notes what is to be looked at of further tables, because of what has changed.
    pub(super) fn gather_further(&mut self) {
        let Mirror { kernel, changes, policies, .. } = self;
        for (at, family) in FAMILIES.into_iter().enumerate() {
            let has_default = kernel.table_len((family, TABLE_DEFAULT)) > 0;
            changes.is_policy |=
                std::mem::replace(&mut policies.has_default[at], has_default) != has_default;
        }
        policies.is_stale |= std::mem::take(&mut changes.is_policy);
        if std::mem::take(&mut changes.is_retried) {
            for (&(family, id), table) in &mut policies.tables {
                if std::mem::take(&mut table.is_refused) {
                    table.is_stale = true;
                    let prefixes = kernel.further_prefixes(family, id);
                    changes.further.extend(prefixes.into_iter().map(|prefix| (id, prefix)));
                }
            }
        }
        if policies.tables.is_empty() {
            changes.further.clear();
            changes.is_every_neighbour = false;
            return;
        }
        if std::mem::take(&mut changes.is_every_neighbour) {
            for &(family, table) in policies.tables.keys() {
                let hosts = kernel.neighbour_hosts(family).map(|host| (table, host));
                changes.further.extend(hosts);
            }
        }
        for (_, address) in &changes.neighbours {
            let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
            let own = policies.tables.keys().filter(|(of, _)| *of == family);
            changes.further.extend(own.map(|&(_, table)| (table, host(*address))));
        }
        let is_known =
            |(table, prefix): &(u32, IpPrefix)| policies.tables.contains_key(&key(*table, *prefix));
        changes.further.retain(is_known);
    }

    /// Writes rules and further tables. Says how many edits that were.
    pub(super) fn write_policy(&mut self, prefixes_max: usize) -> Result<usize, Busy> {
        if self.policies.is_stale {
            self.open_tables()?;
        }
        let resolved = self.resolve_further(prefixes_max);
        let written = self.write_tables();
        let mut edits = written.unwrap_or(0);
        if self.policies.is_stale {
            edits += self.write_rules()?;
            self.close_tables()?;
            self.policies.is_stale = false;
        }
        resolved.and(written).map(|_| edits)
    }

    /// Takes numbers for the tables that rules lead to, and notes all their prefixes.
    fn open_tables(&mut self) -> Result<(), Busy> {
        for family in FAMILIES {
            for table in self.wanted(family) {
                if self.policies.tables.contains_key(&(family, table)) {
                    continue;
                }
                let number = self.writer.take_table().ok_or(Busy)?;
                self.policies.tables.insert((family, table), Table::new(number));
                let prefixes = self.kernel.further_prefixes(family, table);
                self.changes.further.extend(prefixes.into_iter().map(|prefix| (table, prefix)));
            }
        }
        Ok(())
    }

    /// The further tables that rules lead to.
    fn wanted(&self, family: Family) -> BTreeSet<u32> {
        let Plan::Listed(steps) = self.kernel.plan(family) else { return BTreeSet::new() };
        let tables = steps.into_iter().filter_map(|(_, step)| match step {
            Step::Table(table) => Some(table),
            _ => None,
        });
        tables.collect()
    }

    /// Looks again at what prefixes of further tables lead to.
    fn resolve_further(&mut self, prefixes_max: usize) -> Result<(), Busy> {
        for _ in 0..prefixes_max {
            let Some(&(table, prefix)) = self.changes.further.first() else { break };
            self.resolve_one(table, prefix)?;
            self.changes.further.pop_first();
        }
        Ok(())
    }

    fn resolve_one(&mut self, id_of_table: u32, prefix: IpPrefix) -> Result<(), Busy> {
        let Mirror { writer, kernel, ports, targets, policies, changes, .. } = self;
        let [_, len, _] = policies.counts();
        let Some(table) = policies.tables.get_mut(&key(id_of_table, prefix)) else { return Ok(()) };
        if table.is_refused {
            // The table may have become smaller.
            let has_room =
                kernel.table_len(key(id_of_table, prefix)) < (PREFIXES_MAX - len) / 8 * 7;
            changes.is_retried |= has_room;
            return Ok(());
        }
        let view = View { kernel, ports };
        let id = match view.resolve_further(id_of_table, prefix) {
            None => None,
            Some(_) if len >= PREFIXES_MAX && !table.routes.contains_key(&prefix) => {
                table.refuse();
                policies.is_stale = true;
                return Ok(());
            }
            Some(destination) => match targets.id_of(writer, view, &destination) {
                Ok(Some(id)) => {
                    table.starved.remove(&prefix);
                    Some(id)
                }
                Ok(None) => {
                    table.starved.insert(prefix);
                    Some(targets.kernel())
                }
                Err(Busy) => {
                    targets.sweep(writer);
                    return Err(Busy);
                }
            },
        };
        let former = match id {
            Some(id) => table.routes.insert(prefix, id),
            None => table.routes.remove(&prefix),
        };
        if former != id {
            id.into_iter().for_each(|id| targets.hold(id));
            table.former.extend(former);
            table.is_stale = true;
        }
        Ok(())
    }

    /// Writes the stale tables whose prefixes are all resolved.
    fn write_tables(&mut self) -> Result<usize, Busy> {
        let Mirror { writer, targets, policies, changes, .. } = self;
        let waits: BTreeSet<(Family, u32)> =
            changes.further.iter().map(|&(table, prefix)| key(table, prefix)).collect();
        let (mut edits, mut is_busy) = (0, false);
        for (key, table) in &mut policies.tables {
            if !table.is_stale || waits.contains(key) {
                continue;
            }
            let mut routes = table.routes.iter().map(|(prefix, id)| (*prefix, *id));
            match writer.set_table(table.number, &mut routes) {
                Ok(()) => {
                    table.former.drain(..).for_each(|id| targets.release(id));
                    table.is_stale = false;
                    policies.is_stale |= !std::mem::replace(&mut table.is_ready, true);
                    edits += 1;
                }
                Err(EditError::Busy { .. }) => is_busy = true,
                Err(_) => {
                    table.refuse();
                    policies.is_stale = true;
                }
            }
        }
        if is_busy { Err(Busy) } else { Ok(edits) }
    }

    /// Writes the lists of rules.
    fn write_rules(&mut self) -> Result<usize, Busy> {
        let mut edits = 0;
        for family in FAMILIES {
            let rules = self.listed(family);
            if self.writer.rules(family == Family::V6) != rules {
                self.writer.set_rules(family == Family::V6, &rules).map_err(|_| Busy)?;
                edits += 1;
            }
        }
        Ok(edits)
    }

    /// The rules of a family, as they are to be written now.
    pub(super) fn listed(&self, family: Family) -> Vec<Rule> {
        match self.kernel.plan(family) {
            Plan::Usual => Vec::new(),
            Plan::Refused(_) => vec![Rule::all(Action::Kernel)],
            Plan::Listed(steps) => {
                steps.into_iter().map(|(rule, step)| self.rule(family, rule, step)).collect()
            }
        }
    }

    fn rule(&self, family: Family, rule: &KernelRule, step: Step) -> Rule {
        let is_inverted = rule.flags & RULE_INVERT != 0;
        if is_inverted && !rule.others.is_empty() {
            // An inverted rule with unknown selectors matches unknown packets.
            return Rule::all(Action::Kernel);
        }
        let action = match step {
            Step::Local => Action::Local,
            Step::Merged => Action::Merged,
            Step::Nowhere => Action::Nowhere,
            Step::Kernel => Action::Kernel,
            Step::Table(table) => match self.policies.tables.get(&(family, table)) {
                Some(table) if table.is_ready => Action::Table(table.number),
                _ => Action::Kernel,
            },
        };
        let interface =
            |name: &str| self.kernel.link_named(name).map_or(NO_INTERFACE, |link| link.index);
        Rule {
            from: rule.from.map(network),
            to: rule.to.map(network),
            ingress: rule.iif.as_deref().map(interface),
            tos: rule.tos,
            is_inverted,
            action,
        }
    }

    /// Whether a table is written, as a whole.
    pub(super) fn is_written(&self, family: Family, table: u32) -> bool {
        self.policies.tables.get(&(family, table)).is_some_and(|table| table.is_ready)
    }

    /// Gives back the tables that no rule leads to any more, and the room of those that are refused.
    fn close_tables(&mut self) -> Result<(), Busy> {
        for table in self.policies.tables.values_mut().filter(|table| table.is_refused) {
            if !table.former.is_empty() {
                self.writer.set_table(table.number, &mut std::iter::empty()).map_err(|_| Busy)?;
                table.former.drain(..).for_each(|id| self.targets.release(id));
            }
        }
        let mut wanted = BTreeSet::new();
        for family in FAMILIES {
            wanted.extend(self.wanted(family).into_iter().map(|table| (family, table)));
        }
        let gone: Vec<(Family, u32)> =
            self.policies.tables.keys().filter(|key| !wanted.contains(key)).copied().collect();
        for key in gone {
            let table = &self.policies.tables[&key];
            self.writer.retire_table(table.number).map_err(|_| Busy)?;
            let table = self.policies.tables.remove(&key).expect("it was just there");
            let ids = table.routes.into_values().chain(table.former);
            ids.for_each(|id| self.targets.release(id));
            self.changes.further.retain(|&(table, prefix)| self::key(table, prefix) != key);
            self.changes.is_retried = true;
        }
        Ok(())
    }

    /// Prefixes that could have no next-hop id are tried again.
    pub(super) fn retry_starved_further(&mut self) {
        for (&(_, id), table) in &self.policies.tables {
            self.changes.further.extend(table.starved.iter().map(|prefix| (id, *prefix)));
        }
    }

    /// The rules whose packets are the kernel's, as lines to show.
    pub fn kernel_rules(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for family in FAMILIES {
            let Plan::Listed(steps) = self.kernel.plan(family) else { continue };
            for (rule, step) in steps {
                let table = match step {
                    Step::Table(table) => self.policies.tables.get(&(family, table)),
                    _ => None,
                };
                let why = match (step, table) {
                    (Step::Kernel, _) if !rule.others.is_empty() => {
                        "it matches more than addresses"
                    }
                    (Step::Kernel, _) => {
                        "only the kernel can do it, or the rules use too many tables"
                    }
                    (_, Some(table)) if table.is_refused => "the table is too large",
                    _ => continue,
                };
                lines.push(format!("{}: {why}", line(rule)));
            }
        }
        lines
    }

    /// How rules and further tables are written otherwise than the model says, as lines.
    pub(super) fn written_policy(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for family in FAMILIES {
            if self.writer.rules(family == Family::V6) != self.listed(family) {
                lines.push(format!("! the rules of {family:?} are written otherwise"));
            }
        }
        let view = self.view();
        for (&(family, id), table) in &self.policies.tables {
            if table.is_refused {
                continue;
            }
            let known = self.kernel.further_prefixes(family, id);
            let known: BTreeSet<IpPrefix> =
                known.into_iter().chain(table.routes.keys().copied()).collect();
            let is_other = |prefix: &&IpPrefix| {
                let written = table.routes.get(prefix).and_then(|id| self.targets.destination(*id));
                !table.starved.contains(prefix)
                    && written != view.resolve_further(id, **prefix).as_ref()
            };
            let others = known.iter().filter(is_other);
            lines.extend(
                others.map(|prefix| format!("! table {id}: {prefix} is written otherwise")),
            );
            if table.is_stale {
                lines.push(format!("! table {id} of {family:?} is not written yet"));
            }
        }
        lines
    }
}

/// A rule's network. The kernel keeps bits behind it, and compares none of them.
pub(super) fn network((address, len): (IpAddr, u8)) -> IpPrefix {
    match address {
        IpAddr::V4(address) => address.to_bits().prefix(len),
        IpAddr::V6(address) => address.to_bits().prefix(len),
    }
}

/// The table that has this prefix.
fn key(table: u32, prefix: IpPrefix) -> (Family, u32) {
    (crate::family::family_of(prefix), table)
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// No interface has this number.
const NO_INTERFACE: u32 = u32::MAX;
