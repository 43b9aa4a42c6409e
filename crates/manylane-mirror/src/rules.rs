//! Rules of the routing policy (ip-rule(8)): the order in which tables are read, and for which packets.
//!
//! The usual rules are local, main and default, for all packets: their tables are merged into one. Others are listed,
//! in the kernel's order, each with what the program does about it:
//!
//! | rule                                                        | its packets                                  |
//! |-------------------------------------------------------------|----------------------------------------------|
//! | for all, to the table local, the first one                  | the merged tables, if local has the address    |
//! | to the table main                                           | the merged tables; the kernel while             |
//! |                                                             | the table default has routes, but for the usual pair |
//! | to local or an empty default again, l3mdev without a VRF, nop | the next rule: this one changes nothing    |
//! | to another table: of the first fifteen of these             | that table ([`policy`](super::policy))        |
//! | unreachable, prohibit, blackhole                            | refused                                      |
//! | to more tables; by mark, user, ports and the like; goto     | the kernel                                   |
//!
//! Selectors besides from, to, iif and dsfield only narrow a rule: a packet of another source does not match it, whatever
//! the mark. All packets are the kernel's, and its ports stay there, when the rule for local is not the first one,
//! when none for all packets reads main, or when the list has no room for all rules.

use manylane_io::netlink::kernel::{Family, Link, Rule};
use manylane_net::transit::layout::{FURTHER_TABLES, RULES};

use super::changes::Changes;
use super::constants::{
    ACTION_BLACKHOLE, ACTION_NOP, ACTION_PROHIBIT, ACTION_TABLE, ACTION_UNREACHABLE, RULE_INVERT,
    TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN,
};
use super::names;
use super::routes::USUAL;

/// The rules, by family and priority.
#[derive(Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

/// What becomes of packets that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The merged tables route them, if local has their address.
    Local,
    /// The merged tables route them.
    Merged,
    /// This table routes them.
    Table(u32),
    /// The rule refuses them: unreachable, prohibit or blackhole.
    Nowhere,
    /// The kernel routes them.
    Kernel,
}

/// What a family's rules come to.
pub(super) enum Plan<'a> {
    /// The merged tables say it all.
    Usual,
    /// Rule by rule.
    Listed(Vec<(&'a Rule, Step)>),
    /// All packets are the kernel's.
    Refused(RefusedRules),
}

/// Why the rules of a family keep all ports in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRules {
    /// What is so.
    pub what: String,
    /// Why that matters.
    pub why: &'static str,
}

impl Rules {
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// A rule is there. Says whether that is news.
    pub fn insert(&mut self, rule: &Rule, changes: &mut Changes) -> bool {
        let rule = without_state(rule);
        if self.rules.contains(&rule) {
            return false;
        }
        let former = [Family::V4, Family::V6].map(|family| self.tables(family));
        // Behind those of its priority, as the kernel puts it.
        let order = |rule: &Rule| (rule.family, rule.priority);
        let at = self.rules.partition_point(|other| order(other) <= order(&rule));
        self.rules.insert(at, rule);
        self.changed(former, changes);
        true
    }

    /// A rule is gone.
    pub fn remove(&mut self, rule: &Rule, changes: &mut Changes) -> bool {
        let rule = without_state(rule);
        let Some(at) = self.rules.iter().position(|other| *other == rule) else { return false };
        let former = [Family::V4, Family::V6].map(|family| self.tables(family));
        self.rules.remove(at);
        self.changed(former, changes);
        true
    }

    fn changed(&self, former: [[bool; 3]; 2], changes: &mut Changes) {
        changes.is_policy = true;
        changes.is_everything |=
            former != [Family::V4, Family::V6].map(|family| self.tables(family));
    }

    /// Which of the usual tables are merged, by their place in [`USUAL`]. Before any rule was heard: all but
    /// IPv6's default table.
    pub fn tables(&self, family: Family) -> [bool; 3] {
        if !self.rules.iter().any(|rule| rule.family == family) {
            return [true, true, family == Family::V4];
        }
        let reads = |table: u32| {
            move |rule: &Rule| rule.family == family && is_plain(rule) && rule.table == table
        };
        USUAL.map(|table| self.rules.iter().any(reads(table)))
    }

    /// What the rules of a family come to. `has_default`: the table default has routes.
    pub fn plan(&self, family: Family, has_vrf: bool, has_default: bool) -> Plan<'_> {
        let own = self.rules.iter().filter(|rule| rule.family == family);
        plan(own.filter(|rule| !is_idle(rule, has_vrf)).collect(), family, has_default)
    }
}

/// Why these rules keep all ports in the kernel, of both families, if they do.
pub fn refused_rules(rules: &[Rule], links: &[Link]) -> Vec<RefusedRules> {
    let has_vrf = links.iter().any(is_vrf);
    let of_family = |family| {
        let own = rules.iter().filter(|rule| rule.family == family && !is_idle(rule, has_vrf));
        match plan(own.collect(), family, false) {
            Plan::Refused(refused) => Some(refused),
            _ => None,
        }
    };
    [Family::V4, Family::V6].into_iter().filter_map(of_family).collect()
}

/// Whether it is a device whose members have a table of their own.
pub(super) fn is_vrf(link: &Link) -> bool {
    link.kind.as_deref() == Some("vrf")
}

/// Whether no packet is changed by it.
fn is_idle(rule: &Rule, has_vrf: bool) -> bool {
    let is_of_vrfs = rule.others == ["l3mdev"] && rule.flags & RULE_INVERT == 0;
    is_of_vrfs && !has_vrf || rule.action == ACTION_NOP
}

fn plan(rules: Vec<&Rule>, family: Family, has_default: bool) -> Plan<'_> {
    if rules.is_empty() {
        return Plan::Usual; // Nothing of the family was heard.
    }
    let option = ip_option(family);
    let refused = |what: String, why| Plan::Refused(RefusedRules { what, why });
    if !rules.first().is_some_and(|rule| is_to(rule, TABLE_LOCAL)) {
        let first = rules.first().map_or_else(String::new, |rule| format!(": {}", line(rule)));
        return refused(
            format!("the first rule of `ip {option} rule` does not read the table local{first}"),
            "own addresses are looked for before all rules here",
        );
    }
    if !rules.iter().any(|rule| is_to(rule, TABLE_MAIN)) {
        return refused(
            format!("no rule of `ip {option} rule` reads the table main for all packets"),
            "local and main are one table here",
        );
    }
    let places = rules.iter().map(|rule| USUAL.iter().position(|&table| is_to(rule, table)));
    let places: Option<Vec<usize>> = places.collect();
    if places.is_some_and(|places| places.is_sorted()) {
        return Plan::Usual;
    }
    let mut tables = Vec::new();
    let mut steps = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let next_is_default = rules.get(at + 1).is_some_and(|next| is_to(next, TABLE_DEFAULT));
        let step = match (rule.action, rule.table) {
            (ACTION_TABLE, TABLE_LOCAL) if at == 0 => Some(Step::Local),
            _ if !rule.others.is_empty() => Some(Step::Kernel),
            (ACTION_TABLE, TABLE_LOCAL) => None,
            (ACTION_TABLE, TABLE_MAIN) if !has_default => Some(Step::Merged),
            (ACTION_TABLE, TABLE_MAIN) if is_to(rule, TABLE_MAIN) && next_is_default => {
                Some(Step::Merged)
            }
            (ACTION_TABLE, TABLE_DEFAULT) if !has_default => None,
            (ACTION_TABLE, TABLE_DEFAULT) if at > 0 && is_merged(&rules[at - 1..=at]) => None,
            (ACTION_TABLE, TABLE_MAIN | TABLE_DEFAULT) => Some(Step::Kernel),
            (ACTION_TABLE, table) => {
                if !tables.contains(&table) && tables.len() < FURTHER_TABLES {
                    tables.push(table);
                }
                let has_room = tables.contains(&table);
                Some(if has_room { Step::Table(table) } else { Step::Kernel })
            }
            (ACTION_BLACKHOLE | ACTION_UNREACHABLE | ACTION_PROHIBIT, _) => Some(Step::Nowhere),
            _ => Some(Step::Kernel),
        };
        steps.extend(step.map(|step| (*rule, step)));
    }
    if steps.len() > RULES {
        return refused(
            format!("`ip {option} rule` has {} rules; the program holds {RULES}", steps.len()),
            "the program matches a packet rule by rule",
        );
    }
    Plan::Listed(steps)
}

/// Whether two rules are the usual pair of main and default.
fn is_merged(pair: &[&Rule]) -> bool {
    matches!(pair, [main, default] if is_to(main, TABLE_MAIN) && is_to(default, TABLE_DEFAULT))
}

/// Whether it sends all packets to this table.
fn is_to(rule: &Rule, table: u32) -> bool {
    is_plain(rule) && rule.table == table
}

/// A rule without what changes in silence: whether its devices are there.
fn without_state(rule: &Rule) -> Rule {
    Rule { flags: rule.flags & RULE_INVERT, ..rule.clone() }
}

/// Whether it sends all packets to a table.
fn is_plain(rule: &Rule) -> bool {
    rule.action == ACTION_TABLE
        && rule.from.is_none_or(|(_, len)| len == 0)
        && rule.to.is_none_or(|(_, len)| len == 0)
        && rule.iif.is_none()
        && rule.tos == 0
        && rule.flags & RULE_INVERT == 0
        && rule.others.is_empty()
}

fn ip_option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

/// As `ip rule` shows it.
pub(super) fn line(rule: &Rule) -> String {
    let mut line = format!("ip {} rule {}:", ip_option(rule.family), rule.priority);
    if rule.flags & RULE_INVERT != 0 {
        line += " not";
    }
    match rule.from {
        Some((address, len)) => line += &format!(" from {address}/{len}"),
        None => line += " from all",
    }
    if let Some((address, len)) = rule.to {
        line += &format!(" to {address}/{len}");
    }
    if let Some(iif) = &rule.iif {
        line += &format!(" iif {iif}");
    }
    if rule.tos != 0 {
        line += &format!(" tos {:#x}", rule.tos);
    }
    for other in &rule.others {
        line += &format!(" [{other}]");
    }
    match rule.action {
        ACTION_TABLE => line += &format!(" lookup {}", names::table(rule.table)),
        ACTION_BLACKHOLE => line += " blackhole",
        ACTION_UNREACHABLE => line += " unreachable",
        ACTION_PROHIBIT => line += " prohibit",
        action => line += &format!(" action {action}"),
    }
    line
}
