//! The rules of legacy tables, in the words of [`nftables`](crate::netlink::nftables): one reader can judge both. The
//! conditions of an entry itself become expressions, as iptables-nft writes them; matches and targets stay.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::{Entry, Hooks, Kind, TARGET_BYTES, TRANSIT, V4, V6, name, read, u16_at};
use crate::netlink::nftables::expression::{
    Bitwise, Comparison, Data, Expression, Extension, PayloadBase, Verdict,
};
use crate::netlink::nftables::ruleset::{Rule, RuleChain, RuleTable};
use crate::netlink::nftables::{Base, Hook, TableFamily};

/// Reads the legacy tables that are in use in the calling thread's network namespace: the chains that routed packets
/// traverse, and those that rules jump to.
pub fn ruleset() -> io::Result<Vec<RuleTable>> {
    let mut tables = Vec::new();
    for kind in [&V4, &V6] {
        let names = match fs::read_to_string(kind.names) {
            Ok(names) => names,
            // A kernel without legacy iptables.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for table in names.lines() {
            let (hooks, entries) = read(kind, table)?;
            tables.push(converted(kind, table, &hooks, &entries));
        }
    }
    Ok(tables)
}

fn converted(kind: &Kind, table: &str, hooks: &Hooks, entries: &[u8]) -> RuleTable {
    let mut places = Places { kind, entries, names: BTreeMap::new() };
    places.name_chains(hooks);
    let chains = places.names.iter().map(|(&at, (name, hook))| {
        let base = hook.map(|hook| places.base(table, hooks, hook));
        RuleChain { name: name.clone(), rules: places.rules(at, *hook, hooks), base }
    });
    RuleTable {
        family: if kind.is_v6 { TableFamily::Ip6 } else { TableFamily::Ip },
        name: table.into(),
        is_dormant: false,
        is_legacy: true,
        chains: chains.collect(),
        sets: Vec::new(),
    }
}

/// The chains of a table, by the offset of their first rule: name, and the hook's number for a base chain.
struct Places<'e> {
    kind: &'e Kind,
    entries: &'e [u8],
    names: BTreeMap<usize, (String, Option<usize>)>,
}

impl Places<'_> {
    fn name_chains(&mut self, hooks: &Hooks) {
        for (hook, name) in TRANSIT {
            if hooks.valid >> hook & 1 != 0 {
                let first = hooks.first[hook] as usize;
                self.names.insert(first, (name.into(), Some(hook)));
            }
        }
        // The head of a chain of the operator's is an entry with the target `ERROR`, which holds the name.
        let mut at = 0;
        while let Some(entry) = Entry::at(self.kind, self.entries, at) {
            at += entry.length;
            let target = &entry.bytes[entry.target..];
            if name(target) == b"ERROR" {
                let text = target.get(TARGET_BYTES..).unwrap_or_default();
                let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
                let text = String::from_utf8_lossy(text).into_owned();
                self.names.entry(at).or_insert((text, None));
            }
        }
    }

    fn base(&self, table: &str, hooks: &Hooks, hook: usize) -> Base {
        let policy = Entry::at(self.kind, self.entries, hooks.policy[hook] as usize);
        Base {
            hook: match hook {
                0 => Hook::Prerouting,
                2 => Hook::Forward,
                _ => Hook::Postrouting,
            },
            // `NF_IP_PRI_*`.
            priority: match (table, hook) {
                ("raw", _) => -300,
                ("mangle", _) => -150,
                ("nat", 0) => -100,
                ("nat", _) => 100,
                ("security", _) => 50,
                _ => 0,
            },
            kind: if table == "nat" { "nat".into() } else { "filter".into() },
            // What cannot be read accepts nothing.
            drops: policy.and_then(|entry| entry.verdict()) != Some(ACCEPT),
            devices: Vec::new(),
        }
    }

    /// The rules from this offset to the chain's policy, or to the head of the next chain.
    fn rules(&self, first: usize, hook: Option<usize>, hooks: &Hooks) -> Vec<Rule> {
        let policy = hook.map(|hook| hooks.policy[hook] as usize);
        let mut rules = Vec::new();
        let mut at = first;
        while let Some(entry) = Entry::at(self.kind, self.entries, at) {
            if policy == Some(at) || name(&entry.bytes[entry.target..]) == b"ERROR" {
                break;
            }
            at += entry.length;
            let mut expressions = self.conditions(&entry);
            expressions.extend(self.matches(&entry));
            expressions.push(Expression::Counter { packets: 0 });
            expressions.extend(self.target(&entry, at));
            rules.push(Rule { handle: rules.len() as u64 + 1, expressions });
        }
        rules
    }

    /// Addresses, interfaces, protocol and fragments: `struct ipt_ip`, `struct ip6t_ip6`.
    fn conditions(&self, entry: &Entry<'_>) -> Vec<Expression> {
        let (width, addresses) = if self.kind.is_v6 { (16, [8, 24]) } else { (4, [12, 16]) };
        let inverted = entry.bytes[if self.kind.is_v6 { 132 } else { 83 }];
        let part = |place: usize, width: usize| entry.bytes[place..place + width].to_vec();
        let mut found = Vec::new();
        for (number, offset) in addresses.into_iter().enumerate() {
            let (address, mask) = (part(number * width, width), part((2 + number) * width, width));
            if mask.iter().any(|&byte| byte != 0) {
                found.push(network(offset, width));
                found.push(masked(mask));
                found.push(compare(address, inverted & (8 << number) != 0));
            }
        }
        let names = 4 * width;
        for (number, key) in [NFT_META_IIFNAME, NFT_META_OIFNAME].into_iter().enumerate() {
            let mask = part(names + 32 + number * 16, 16);
            let length = mask.iter().take_while(|&&byte| byte == 0xff).count();
            if length > 0 {
                found.push(Expression::Meta { to: 0, key });
                found.push(compare(
                    part(names + number * 16, length),
                    inverted & (1 << number) != 0,
                ));
            }
        }
        let protocol = u16_at(entry.bytes, names + 64).unwrap_or(0);
        if protocol != 0 {
            found.push(Expression::Meta { to: 0, key: NFT_META_L4PROTO });
            found.push(compare(vec![protocol as u8], inverted & 0x40 != 0));
        }
        let asks_fragments = !self.kind.is_v6 && entry.bytes[82] & 1 != 0;
        if asks_fragments {
            found.push(network(6, 2));
            found.push(masked(vec![0x1f, 0xff]));
            found.push(compare(vec![0, 0], inverted & 0x20 == 0));
        }
        found
    }

    fn matches(&self, entry: &Entry<'_>) -> Vec<Expression> {
        let mut found = Vec::new();
        let mut at = self.kind.entry_bytes;
        while at < entry.target {
            let length = u16_at(entry.bytes, at).map_or(0, usize::from);
            match entry.bytes.get(at..at + length) {
                Some(part) if length >= TARGET_BYTES => {
                    found.push(Expression::Match(extension(part)));
                }
                _ => {
                    found.push(Expression::Other { name: "a match that cannot be read".into() });
                    break;
                }
            }
            at += length;
        }
        found
    }

    /// The target; `next` is the offset of the entry behind this one, to which a rule without a target leads.
    fn target(&self, entry: &Entry<'_>, next: usize) -> Option<Expression> {
        let target = &entry.bytes[entry.target..];
        let Some(number) = entry.verdict() else {
            return Some(Expression::Target(extension(target)));
        };
        let is_goto = entry.bytes[if self.kind.is_v6 { 131 } else { 82 }]
            & if self.kind.is_v6 { 4 } else { 2 }
            != 0;
        let verdict = match number {
            ACCEPT => Verdict::Accept,
            -1 => Verdict::Drop,
            -4 => Verdict::Queue,
            -5 => Verdict::Return,
            to if to >= 0 && to as usize == next => return None,
            to => match self.names.get(&(to as usize)) {
                Some((name, _)) if is_goto => Verdict::Goto(name.clone()),
                Some((name, _)) => Verdict::Jump(name.clone()),
                None => Verdict::Other(to),
            },
        };
        Some(Expression::Immediate { to: 0, data: Data::Verdict(verdict) })
    }
}

fn network(offset: usize, length: usize) -> Expression {
    Expression::Payload { to: 0, base: PayloadBase::Network, offset, length }
}

fn masked(mask: Vec<u8>) -> Expression {
    let (length, xor) = (mask.len(), vec![0; mask.len()]);
    Expression::Bitwise { from: 0, to: 0, length, operation: Bitwise::MaskXor { mask, xor } }
}

fn compare(data: Vec<u8>, is_inverted: bool) -> Expression {
    let comparison = if is_inverted { Comparison::NotEqual } else { Comparison::Equal };
    Expression::Compare { from: 0, comparison, data }
}

/// A match or target with its header.
fn extension(part: &[u8]) -> Extension {
    Extension {
        name: String::from_utf8_lossy(name(part)).into_owned(),
        revision: part.get(31).copied().unwrap_or(0).into(),
        data: part.get(TARGET_BYTES..).unwrap_or_default().to_vec(),
    }
}

/// `-NF_ACCEPT - 1`.
const ACCEPT: i32 = -2;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_L4PROTO: u32 = 16;
