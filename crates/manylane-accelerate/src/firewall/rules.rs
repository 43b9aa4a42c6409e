//! The rules as a walk reads them: what an expression names is looked up once, when the rules are read.

use std::collections::BTreeMap;

use manylane_io::netlink::nftables::expression::{Data, Expression, Verdict};
use manylane_io::netlink::nftables::ruleset::{Rule, RuleTable, Ruleset};

use super::evaluate::Step;
use super::extension::{self, Matcher};
use super::lookup::Elements;
use super::obstacle::{Cause, Obstacle, Place};
use super::{evaluate, text};

/// All tables that packets may pass.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) tables: Vec<Table>,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    /// As it was read: what rules hold, and their texts.
    pub(super) read: RuleTable,
    /// In the order of `read`, as the sets are.
    pub(super) chains: Vec<Chain>,
    pub(super) sets: Vec<Elements>,
}

/// A chain.
#[derive(Debug)]
pub(super) struct Chain {
    /// Of each rule, for each of its expressions.
    pub(super) rules: Vec<Box<[Resolved]>>,
    /// More than one rule leads to it.
    pub(super) is_shared: bool,
}

/// What is to be known of an expression beside itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resolved {
    /// Nothing.
    Plain,
    /// What follows from it, whatever the packet.
    Always(Step),
    /// The number of the set that is looked up in.
    Set(usize),
    /// What reads its structure.
    Match(Matcher),
}

/// What a verdict means for a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Accept,
    Drop,
    Queue,
    /// The next rule.
    Continue,
    Return,
    /// The number of the chain; `None` for one that is not there.
    Jump(Option<usize>),
    Goto(Option<usize>),
    Other,
}

/// A place in a table that a question came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) table: usize,
    pub(super) chain: usize,
    /// `None` for the chain's policy.
    pub(super) rule: Option<usize>,
}

/// A place, and what is in the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) spot: Spot,
    /// The number of the expression.
    pub(super) expression: usize,
    pub(super) cause: Cause,
}

impl Rules {
    pub(super) fn of(rules: Ruleset) -> Rules {
        Rules { tables: rules.tables.into_iter().map(Table::of).collect() }
    }

    /// A place by its names.
    pub(super) fn place(&self, spot: Spot) -> Place {
        let table = &self.tables[spot.table].read;
        let chain = &table.chains[spot.chain];
        let rule = spot.rule.map(|rule| &chain.rules[rule]);
        Place {
            is_legacy: table.is_legacy,
            family: table.family.name().into(),
            table: table.name.clone(),
            chain: chain.name.clone(),
            handle: rule.map(|rule| rule.handle),
            rule: rule.map(|rule| text::rule(rule, table)).unwrap_or_default(),
        }
    }

    /// An obstacle for readers.
    pub(super) fn obstacle(&self, block: Block) -> Obstacle {
        let Block { spot, expression: number, cause } = block;
        let table = &self.tables[spot.table].read;
        let rule = spot.rule.map(|rule| &table.chains[spot.chain].rules[rule]);
        let expressions = rule.map_or(&[][..], |rule| &rule.expressions);
        let unknown = match cause {
            Cause::Unknown => expressions.get(number).and_then(|one| unknown_part(one, table)),
            _ => expressions.iter().take(number).find_map(|one| unknown_elements(one, table)),
        };
        let cure = cause.cure().map(str::to_owned);
        Obstacle { place: self.place(spot), cause, unknown, cure }
    }
}

/// The elements on which the rule depends, if they are not known: the kernel announces no change of them.
fn unknown_elements(expression: &Expression, table: &RuleTable) -> Option<String> {
    match expression {
        Expression::Match(extension) if extension.name == "set" => {
            Some("whatever its ipset holds: the kernel announces no change of ipsets".into())
        }
        Expression::Lookup { set, .. } => {
            let set = table.sets.iter().find(|one| one.name == *set && one.is_volatile)?;
            let name = &set.name;
            Some(format!("whatever set {name} holds: packets change it, or its elements expire"))
        }
        _ => None,
    }
}

/// The part of an expression that is not known.
fn unknown_part(expression: &Expression, table: &RuleTable) -> Option<String> {
    Some(match expression {
        Expression::Lookup { set, is_verdict, .. } => {
            let Some(found) = table.sets.iter().find(|one| one.name == *set) else {
                return Some(format!("set {set}"));
            };
            let stateful = found.elements.iter().flat_map(|element| &element.stateful);
            let unknown =
                |name: &&String| matches!(evaluate::by_name(name), Step::Effect(Cause::Unknown));
            match stateful.into_iter().find(unknown) {
                Some(name) => name.clone(),
                None if found.is_volatile && *is_verdict => {
                    format!("map {set}, which packets change")
                }
                None => format!("set {set}"),
            }
        }
        Expression::Object { name, .. } => format!("object {name}"),
        Expression::Match(extension) => format!("match {}", extension.name),
        Expression::Target(extension) => format!("target {}", extension.name),
        Expression::Other { name } => name.clone(),
        Expression::Immediate {
            data: Data::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)),
            ..
        } => format!("chain {chain}"),
        _ => return None,
    })
}

impl Table {
    fn of(read: RuleTable) -> Table {
        let names = Names::of(&read);
        let mut callers = vec![0u32; read.chains.len()];
        let sets: Vec<_> = read
            .sets
            .iter()
            .map(|set| Elements::of(set, |verdict| names.decision(verdict)))
            .collect();
        let mut chains = Vec::new();
        for chain in &read.chains {
            let rules = chain.rules.iter().map(|rule| names.rule(rule, &read));
            let rules: Vec<Box<[Resolved]>> = rules.collect();
            for resolved in rules.iter().flat_map(|rule| rule.iter()) {
                match resolved {
                    Resolved::Always(Step::Decided(decision)) => decision.count(&mut callers),
                    Resolved::Set(set) => {
                        sets[*set].decisions().iter().for_each(|one| one.count(&mut callers));
                    }
                    _ => {}
                }
            }
            chains.push(Chain { rules, is_shared: false });
        }
        for (chain, callers) in chains.iter_mut().zip(callers) {
            chain.is_shared = callers > 1;
        }
        Table { read, chains, sets }
    }
}

impl Decision {
    /// Counts the rule at the chain that it leads to.
    fn count(self, callers: &mut [u32]) {
        if let Decision::Jump(Some(chain)) | Decision::Goto(Some(chain)) = self {
            callers[chain] += 1;
        }
    }
}

/// The numbers of a table's chains and sets.
struct Names<'r> {
    chains: BTreeMap<&'r str, usize>,
    sets: BTreeMap<&'r str, usize>,
}

impl<'r> Names<'r> {
    fn of(table: &'r RuleTable) -> Names<'r> {
        let chains = table.chains.iter().enumerate();
        let sets = table.sets.iter().enumerate();
        Names {
            // Of several of a name, the first.
            chains: chains.rev().map(|(number, chain)| (chain.name.as_str(), number)).collect(),
            sets: sets.rev().map(|(number, set)| (set.name.as_str(), number)).collect(),
        }
    }

    fn decision(&self, verdict: &Verdict) -> Decision {
        let number = |chain: &String| self.chains.get(chain.as_str()).copied();
        match verdict {
            Verdict::Accept => Decision::Accept,
            Verdict::Drop => Decision::Drop,
            Verdict::Queue => Decision::Queue,
            Verdict::Continue | Verdict::Break => Decision::Continue,
            Verdict::Return => Decision::Return,
            Verdict::Jump(chain) => Decision::Jump(number(chain)),
            Verdict::Goto(chain) => Decision::Goto(number(chain)),
            Verdict::Other(_) => Decision::Other,
        }
    }

    fn rule(&self, rule: &Rule, table: &RuleTable) -> Box<[Resolved]> {
        let resolved = |expression: &Expression| match expression {
            Expression::Immediate { data: Data::Verdict(verdict), .. } => {
                Resolved::Always(Step::Decided(self.decision(verdict)))
            }
            Expression::Lookup { set, .. } => match self.sets.get(set.as_str()) {
                Some(&number) => Resolved::Set(number),
                None => Resolved::Always(Step::Effect(Cause::Unknown)),
            },
            Expression::Match(one) => extension::matcher(one),
            other => evaluate::always(other, table).map_or(Resolved::Plain, Resolved::Always),
        };
        rule.expressions.iter().map(resolved).collect()
    }
}
