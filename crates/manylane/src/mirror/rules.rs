//! Rules of the routing policy (ip-rule(8)): whether they are the usual ones, and in which order tables are read.

use manylane_io::netlink::kernel::{Family, Link, Rule};

use super::changes::Changes;
use super::constants::{ACTION_TABLE, RULE_INVERT};
use super::routes::USUAL;

/// The rules, by family and priority.
#[derive(Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
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
        if self.rules.contains(rule) {
            return false;
        }
        let former = [Family::V4, Family::V6].map(|family| self.tables(family));
        // Behind those of its priority, as the kernel puts it.
        let order = |rule: &Rule| (rule.family, rule.priority);
        let at = self.rules.partition_point(|other| order(other) <= order(rule));
        self.rules.insert(at, rule.clone());
        changes.is_everything |=
            former != [Family::V4, Family::V6].map(|family| self.tables(family));
        true
    }

    /// A rule is gone.
    pub fn remove(&mut self, rule: &Rule, changes: &mut Changes) -> bool {
        let Some(at) = self.rules.iter().position(|other| other == rule) else { return false };
        let former = [Family::V4, Family::V6].map(|family| self.tables(family));
        self.rules.remove(at);
        changes.is_everything |=
            former != [Family::V4, Family::V6].map(|family| self.tables(family));
        true
    }

    /// Which of the usual tables are read, by their place in [`USUAL`]. Before any rule was heard: all but
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

    /// The rules that send some packets elsewhere than through local, main and default, in this order; as
    /// lines to show. While there are any, the tables do not say what the kernel does.
    pub fn unmergeable<'a>(&self, mut links: impl Iterator<Item = &'a Link>) -> Vec<String> {
        let mut lines = Vec::new();
        let has_vrf = links.any(|link| link.kind.as_deref() == Some("vrf"));
        for family in [Family::V4, Family::V6] {
            let own = || self.rules.iter().filter(move |rule| rule.family == family);
            let mut place = 0;
            for rule in own() {
                if rule.others == ["l3mdev"] && !has_vrf {
                    continue;
                }
                match USUAL.iter().position(|&table| is_plain(rule) && table == rule.table) {
                    Some(at) if at >= place => place = at,
                    _ => lines.push(line(rule)),
                }
            }
            let tables = self.tables(family);
            for (at, name) in [(0, "local"), (1, "main")] {
                if !tables[at] {
                    let family = ip_option(family);
                    lines.push(format!("no rule of `ip {family} rule` reads the table {name}"));
                }
            }
        }
        lines
    }
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
        ACTION_TABLE => line += &format!(" lookup {}", rule.table),
        action => line += &format!(" action {action}"),
    }
    line
}
