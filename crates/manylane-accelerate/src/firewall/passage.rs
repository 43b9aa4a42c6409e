//! The way of one packet through all rules of the kernel, step by step: what `manylane trace` reports of a packet, without
//! a packet.
//!
//! The rules are those that a packet meets in this order: chains of a hook by priority, chains of type `nat` for the first
//! packet of a connection only. A step is a rule that matches, or the policy of a base chain. Where it is not known whether a
//! rule matches that decides, the way ends there, as [`End::Unknown`].

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::expression::{Expression, Extension, PayloadBase};
use manylane_io::netlink::nftables::{Base, Hook, TableFamily};

use super::Firewall;
use super::bits::Truth;
use super::evaluate::{Registers, Step as Evaluated, evaluate};
use super::lookup::Found;
use super::obstacle::{Cause, Place};
use super::packet::{ClassKey, Flow, Stage, View};
use super::rules::{Decision, Resolved, Rules, Spot, Table};

/// A packet whose way is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journey {
    /// Its ports, family and protocol. The port by which it leaves has no meaning for a packet that does not.
    pub key: ClassKey,
    /// Its ends, and what is known of its connection.
    pub flow: Flow,
    /// How far its connection is.
    pub stage: Stage,
    /// Whether conntrack has no such connection: chains of type `nat` see the packet.
    pub is_first: bool,
    /// Where its route leads.
    pub target: Target,
    /// Whether the source's route leads out by the ingress port, if that is known.
    pub is_from_there: Option<bool>,
}

/// Where a packet's route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Out by another port.
    Forwarded,
    /// To this host.
    Delivered,
    /// Nowhere.
    Nowhere,
}

/// What the rules do to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The base chains, in order, up to the one that ends the way.
    pub chains: Vec<Passed>,
    /// What becomes of the packet.
    pub end: End,
}

/// A base chain, and what happens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// `ingress`, `prerouting`, `input`, `forward`, `postrouting`, `egress`.
    pub hook: &'static str,
    /// The chain's priority.
    pub priority: i32,
    /// The chain itself.
    pub place: Place,
    /// Rules that match, and the policy.
    pub steps: Vec<Step>,
}

/// A rule that matches, or a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rule, in the base chain or one behind it.
    pub place: Place,
    /// Its number in the chain, from 1; `None` for a policy.
    pub rule: Option<usize>,
    /// `accept`, `drop`, `continue`, `jump CHAIN`, ..., or `unknown`.
    pub verdict: String,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All chains let it pass.
    Accepted,
    /// A rule or policy drops it: the last step.
    Dropped,
    /// Whether the last step matches, or what it does, is not known: why.
    Unknown(String),
}

impl Firewall {
    /// What the rules do to one packet.
    pub fn passage(&self, journey: &Journey) -> Passage {
        let mut bases = self.passed(journey);
        let base = |&(table, chain): &(usize, usize)| base_of(&self.rules, table, chain);
        // Of one priority, the chain that was made last comes first (`nf_hook_entries_grow`).
        bases.reverse();
        bases.sort_by_key(|spot| (place_of(base(spot).hook), base(spot).priority));
        let mut walk = Walk {
            rules: &self.rules,
            key: journey.key.clone(),
            flow: Some(journey.flow),
            stage: journey.stage,
            journey,
            steps: Vec::new(),
            budget: BUDGET,
        };
        let mut chains = Vec::new();
        for (table, chain) in bases {
            let base = base_of(&self.rules, table, chain);
            if base.kind == "nat" && walk.stage == Stage::Untracked {
                continue;
            }
            let end = walk.base(table, chain, base);
            chains.push(Passed {
                hook: name_of(base.hook),
                priority: base.priority,
                place: self.rules.place(Spot { table, chain, rule: None }),
                steps: std::mem::take(&mut walk.steps),
            });
            if end != End::Accepted {
                return Passage { chains, end };
            }
        }
        Passage { chains, end: End::Accepted }
    }

    /// The base chains that the packet meets.
    fn passed(&self, journey: &Journey) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (number, table) in self.rules.tables.iter().enumerate() {
            if table.read.is_dormant {
                continue;
            }
            for (chain, read) in table.read.chains.iter().enumerate() {
                let is_met = |base: &&Base| journey.meets(table.read.family, base);
                if read.base.as_ref().filter(is_met).is_some() {
                    found.push((number, chain));
                }
            }
        }
        found
    }
}

impl Journey {
    fn meets(&self, family: TableFamily, base: &Base) -> bool {
        let ClassKey { ingress, egress, .. } = &self.key;
        let is_there = match (base.hook, self.target) {
            (Hook::Ingress, _) => base.is_at(&ingress.name),
            (Hook::Prerouting, _) | (Hook::Input, Target::Delivered) => true,
            (Hook::Forward | Hook::Postrouting, Target::Forwarded) => true,
            (Hook::Egress, Target::Forwarded) => base.is_at(&egress.name),
            _ => false,
        };
        let is_its = match family {
            TableFamily::Inet => base.hook != Hook::Egress,
            TableFamily::Ip => self.key.family == Family::V4,
            TableFamily::Ip6 => self.key.family == Family::V6,
            TableFamily::Netdev => matches!(base.hook, Hook::Ingress | Hook::Egress),
            TableFamily::Bridge | TableFamily::Arp => false,
        };
        is_there && is_its && (self.is_first || base.kind != "nat")
    }
}

fn place_of(hook: Hook) -> usize {
    HOOKS.iter().position(|(one, _)| *one == hook).unwrap_or(HOOKS.len())
}

fn name_of(hook: Hook) -> &'static str {
    HOOKS.iter().find(|(one, _)| *one == hook).map_or("output", |(_, name)| name)
}

/// In the order of a packet's way.
const HOOKS: [(Hook, &str); 6] = [
    (Hook::Ingress, "ingress"),
    (Hook::Prerouting, "prerouting"),
    (Hook::Input, "input"),
    (Hook::Forward, "forward"),
    (Hook::Postrouting, "postrouting"),
    (Hook::Egress, "egress"),
];

/// A packet in the midst of its walk through the rules.
struct Walk<'w> {
    rules: &'w Rules,
    /// With the packet's mark, as long as it is known.
    key: ClassKey,
    /// None where the packet has been given other ends.
    flow: Option<Flow>,
    stage: Stage,
    journey: &'w Journey,
    steps: Vec<Step>,
    budget: u64,
}

/// Where a chain leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leads {
    /// To the end of the chain, or back.
    Falls,
    Ends(End),
}

/// What a rule comes to.
enum Comes {
    /// The rule does not match.
    No,
    /// The rule matches, and does this.
    To(Does),
    /// The rule may match. What it would do, if that is known.
    Maybe(Option<Does>),
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Does {
    Decide(Decision),
    Reject,
    /// Changes the packet's source, and accepts the packet.
    TranslateSource,
    /// What comes behind the rule is not known, for this reason.
    Lose(&'static str),
}

/// What is known while a rule is evaluated.
#[derive(Default)]
struct Sofar {
    is_maybe: bool,
    /// A register holds what is not known, though it may seem so.
    is_vague: bool,
    loses: Option<&'static str>,
}

impl Walk<'_> {
    fn base(&mut self, table: usize, chain: usize, base: &Base) -> End {
        match self.chain(table, chain, base, 0) {
            Leads::Ends(end) => end,
            Leads::Falls => {
                let verdict = if base.drops { "drop" } else { "accept" };
                self.step(Spot { table, chain, rule: None }, verdict.into());
                if base.drops { End::Dropped } else { End::Accepted }
            }
        }
    }

    fn chain(&mut self, table: usize, chain: usize, base: &Base, depth: usize) -> Leads {
        if depth > DEPTH_MAX {
            return Leads::Ends(End::Unknown("the rules are too many or too deep".into()));
        }
        for rule in 0..self.rules.tables[table].chains[chain].rules.len() {
            let spot = Spot { table, chain, rule: Some(rule) };
            let does = match self.rule(table, (chain, rule), base) {
                Comes::No => continue,
                Comes::To(does) => does,
                Comes::Maybe(does) => {
                    self.step(spot, "unknown".into());
                    match does {
                        Some(Does::Decide(Decision::Continue)) => continue,
                        Some(Does::Lose(why)) => return Leads::Ends(End::Unknown(why.into())),
                        _ => return Leads::Ends(End::Unknown(WHETHER.into())),
                    }
                }
            };
            if let Some(end) = self.apply(&does, spot, base, depth) {
                return end;
            }
        }
        Leads::Falls
    }

    /// What follows from a rule that matches; `None` for the next rule.
    fn apply(&mut self, does: &Does, spot: Spot, base: &Base, depth: usize) -> Option<Leads> {
        let read = &self.rules.tables[spot.table].read;
        let named = |chain: usize| &read.chains[chain].name;
        let verdict = match does {
            Does::Decide(Decision::Continue) => "continue".into(),
            Does::Decide(Decision::Accept) | Does::TranslateSource => "accept".into(),
            Does::Decide(Decision::Drop) => "drop".into(),
            Does::Decide(Decision::Queue) => "queue".into(),
            Does::Decide(Decision::Return) => "return".into(),
            Does::Decide(Decision::Jump(Some(chain))) => format!("jump {}", named(*chain)),
            Does::Decide(Decision::Goto(Some(chain))) => format!("goto {}", named(*chain)),
            // As nftables reports it; the rule's text says `reject`.
            Does::Reject => "drop".into(),
            Does::Decide(_) | Does::Lose(_) => "unknown".into(),
        };
        self.step(spot, verdict);
        let end = match does {
            Does::Decide(Decision::Continue) => return None,
            Does::Decide(Decision::Accept) => End::Accepted,
            Does::TranslateSource => {
                self.flow = None;
                End::Accepted
            }
            Does::Decide(Decision::Drop) | Does::Reject => End::Dropped,
            Does::Decide(Decision::Return) => return Some(Leads::Falls),
            Does::Decide(Decision::Jump(Some(chain))) => {
                return match self.chain(spot.table, *chain, base, depth + 1) {
                    Leads::Falls => None,
                    ends => Some(ends),
                };
            }
            Does::Decide(Decision::Goto(Some(chain))) => {
                return Some(self.chain(spot.table, *chain, base, depth + 1));
            }
            Does::Decide(Decision::Queue) => End::Unknown("a program in user space decides".into()),
            Does::Decide(Decision::Jump(None) | Decision::Goto(None) | Decision::Other) => {
                End::Unknown("manylane does not know its verdict".into())
            }
            Does::Lose(why) => End::Unknown((*why).into()),
        };
        Some(Leads::Ends(end))
    }

    fn step(&mut self, spot: Spot, verdict: String) {
        let place = self.rules.place(spot);
        self.steps.push(Step { place, rule: spot.rule.map(|rule| rule + 1), verdict });
    }

    fn rule(&mut self, table: usize, (chain, rule): (usize, usize), base: &Base) -> Comes {
        let table = &self.rules.tables[table];
        let expressions = &table.read.chains[chain].rules[rule].expressions;
        let resolved = &table.chains[chain].rules[rule];
        let mut registers = Registers::new();
        let mut sofar = Sofar::default();
        for (expression, resolved) in expressions.iter().zip(resolved) {
            if let Some(does) = translation(expression) {
                return sofar.comes(does);
            }
            let step = self.evaluate(expression, *resolved, &mut registers, table, base);
            let Some(step) = step else {
                return Comes::Maybe(Some(Does::Lose("the rules are too many or too deep")));
            };
            match step {
                Evaluated::Next | Evaluated::Count => {}
                Evaluated::ReversePath => match self.journey.is_from_there {
                    Some(true) => {}
                    Some(false) => match expression {
                        Expression::Fib { to, .. } => registers.set(*to, &[0]),
                        _ => return Comes::No,
                    },
                    None => (sofar.is_maybe, sofar.is_vague) = (true, true),
                },
                Evaluated::If(Truth::Yes) => {}
                Evaluated::If(Truth::No) if sofar.is_vague => sofar.is_maybe = true,
                Evaluated::If(Truth::No) => return Comes::No,
                Evaluated::If(Truth::Maybe { .. }) => sofar.is_maybe = true,
                Evaluated::Effect(cause) => {
                    if let Some(does) = self.effect(cause, expression, &mut sofar) {
                        return sofar.comes(does);
                    }
                }
                Evaluated::Decided(decision) => return sofar.comes(Does::Decide(decision)),
                Evaluated::Map { set, from } => {
                    return self.map(table, set, from, &registers, sofar);
                }
            }
        }
        match sofar.loses {
            Some(why) => sofar.comes(Does::Lose(why)),
            None => sofar.comes(Does::Decide(Decision::Continue)),
        }
    }

    fn evaluate(
        &mut self,
        expression: &Expression,
        resolved: Resolved,
        registers: &mut Registers,
        table: &Table,
        base: &Base,
    ) -> Option<Evaluated> {
        self.budget = self.budget.checked_sub(1)?;
        let view = View::of_stage(self.stage, &self.key, self.flow.as_ref(), base);
        evaluate(expression, resolved, registers, table, &view, &mut self.budget)
    }

    /// What an expression does beside deciding; `None` where the next one follows.
    fn effect(&mut self, cause: Cause, expression: &Expression, sofar: &mut Sofar) -> Option<Does> {
        match cause {
            Cause::Drop | Cause::Policy => return Some(Does::Decide(Decision::Drop)),
            Cause::Reject => return Some(Does::Reject),
            Cause::Queue => return Some(Does::Decide(Decision::Queue)),
            Cause::Log
            | Cause::Duplicate
            | Cause::SetUpdate
            | Cause::SegmentSize
            | Cause::FlowOffload
            | Cause::Counter
            | Cause::Trace => {}
            // Such a rule matches until its limit is used up.
            Cause::Limit | Cause::Quota | Cause::ConnectionLimit => sofar.is_maybe = true,
            Cause::NumberGenerator | Cause::ConnectionBytes => {
                (sofar.is_maybe, sofar.is_vague) = (true, true);
            }
            Cause::PacketChange => {
                // Only the mark is looked at by routing and by other rules.
                let is_mark = matches!(expression, Expression::MetaSet { key: META_MARK })
                    || matches!(expression, Expression::Target(Extension { name, .. }) if name == "MARK");
                self.key.mark = self.key.mark.filter(|_| !is_mark);
            }
            Cause::ConnectionChange => {
                if let Some(flow) = &mut self.flow {
                    (flow.mark, flow.status) = (None, None);
                }
            }
            Cause::Notrack if sofar.is_maybe => sofar.loses = Some(WHETHER),
            Cause::Notrack => self.stage = Stage::Untracked,
            Cause::Rewrite if keeps_ends(expression, self.key.family) => {}
            Cause::Rewrite => sofar.loses = Some("the rule writes the packet"),
            Cause::Redirect | Cause::Proxy => {
                return Some(Does::Lose("the rule sends it elsewhere"));
            }
            Cause::Unknown | Cause::TooMany => {
                return Some(Does::Lose("manylane does not know a part of the rule"));
            }
        }
        None
    }

    /// The verdict of a map.
    fn map(
        &mut self,
        table: &Table,
        set: usize,
        from: usize,
        registers: &Registers,
        sofar: Sofar,
    ) -> Comes {
        let (read, elements) = (&table.read.sets[set], &table.sets[set]);
        let key = registers.read(from, read.key_bytes).filter(|_| !sofar.is_vague);
        match elements.find(read, key, &mut self.budget) {
            Some(Found::Known(None)) => Comes::No,
            Some(Found::Known(Some(element))) => {
                sofar.comes(Does::Decide(elements.decision(element)))
            }
            Some(Found::Some { .. }) => Comes::Maybe(None),
            None => Comes::Maybe(Some(Does::Lose("the rules are too many or too deep"))),
        }
    }
}

impl Sofar {
    fn comes(&self, does: Does) -> Comes {
        match (self.is_maybe, self.loses) {
            (true, _) => Comes::Maybe(Some(does)),
            (false, Some(why)) if does == Does::Decide(Decision::Continue) => {
                Comes::To(Does::Lose(why))
            }
            (false, _) => Comes::To(does),
        }
    }
}

/// What a translation does: these stand in chains of type `nat`.
fn translation(expression: &Expression) -> Option<Does> {
    let name = match expression {
        Expression::Other { name } => name,
        Expression::Target(extension) => &extension.name,
        _ => return None,
    };
    match name.as_str() {
        "masq" | "MASQUERADE" | "SNAT" => Some(Does::TranslateSource),
        "nat" | "redir" | "DNAT" | "REDIRECT" | "NETMAP" => {
            Some(Does::Lose("the rule translates its ends"))
        }
        _ => None,
    }
}

/// Whether what an expression writes leaves all bytes alone that are known of the packet.
fn keeps_ends(expression: &Expression, family: Family) -> bool {
    match expression {
        Expression::PayloadSet { base: PayloadBase::Network, offset, length } => {
            // In front of IPv4's fragment offset, or its TTL; IPv6's traffic class and flow label, or its hop limit.
            let places = match family {
                Family::V4 => [0..6, 8..9],
                Family::V6 => [0..4, 7..8],
            };
            places.iter().any(|place| place.start <= *offset && offset + length <= place.end)
        }
        Expression::Target(extension) => {
            ["DSCP", "TOS", "ECN", "TTL", "HL", "CHECKSUM"].contains(&extension.name.as_str())
        }
        _ => false,
    }
}

fn base_of(rules: &Rules, table: usize, chain: usize) -> &Base {
    let base = rules.tables[table].read.chains[chain].base.as_ref();
    base.expect("it is one of the base chains")
}

/// Why a way ends at a rule that may match.
const WHETHER: &str = "whether the rule matches depends on what only a packet, or the kernel, has";
/// linux/netfilter/nf_tables.h.
const META_MARK: u32 = 3;
/// The kernel refuses deeper jumps (`NFT_JUMP_STACK_SIZE`); iptables has no such bound.
const DEPTH_MAX: usize = 64;
/// Expressions and elements of sets that one question may look at.
const BUDGET: u64 = 1_000_000;

#[cfg(test)]
mod tests;
