//! The way of a class of packets through the chains of a table.

use std::collections::BTreeMap;

use manylane_io::netlink::nftables::expression::Verdict;
use manylane_io::netlink::nftables::ruleset::{Rule, RuleChain, RuleTable};

use super::Options;
use super::bits::Truth;
use super::evaluate::{Registers, Step, evaluate};
use super::obstacle::{Cause, Obstacle, Place, Provisos};
use super::packet::View;
use super::text;

/// Whether packets reach a point, and if so, whether a flow's own facts decide that: `Some(false)` means that packets
/// of every flow may.
type Reach = Option<bool>;

fn join(one: Reach, other: Reach) -> Reach {
    match (one, other) {
        (Some(one), Some(other)) => Some(one && other),
        (only, None) | (None, only) => only,
    }
}

fn behind(asks: bool, reach: Reach) -> Reach {
    reach.map(|further| further || asks)
}

/// What becomes of packets in a chain.
#[derive(Clone, Default)]
struct Outcome {
    accepts: Reach,
    /// Past the end of the chain, or back by `return`.
    falls: Reach,
    /// The first obstacle that flows of all kinds meet, or else the first that some meet.
    obstacle: Option<(bool, Obstacle)>,
}

impl Outcome {
    fn meet(&mut self, asks: bool, obstacle: Obstacle) {
        match &self.obstacle {
            Some((true, _)) if !asks => {}
            Some(_) => return,
            None => {}
        }
        self.obstacle = Some((asks, obstacle));
    }

    /// What a chain that is jumped to adds, but for the way back.
    fn add(&mut self, asks: bool, other: &Outcome) {
        self.accepts = join(self.accepts, behind(asks, other.accepts));
        if let Some((further, obstacle)) = &other.obstacle {
            self.meet(asks || *further, obstacle.clone());
        }
    }

    fn only_falls(&self) -> bool {
        self.accepts.is_none() && self.obstacle.is_none()
    }
}

/// A walk through the chains of one table at one hook.
pub(super) struct Walk<'w> {
    table: &'w RuleTable,
    view: View<'w>,
    options: Options,
    /// What has been found out about chains: it does not depend on the caller.
    known: BTreeMap<&'w str, Outcome>,
    provisos: &'w mut Provisos,
    /// Expressions that may still be evaluated.
    budget: &'w mut u64,
}

impl<'w> Walk<'w> {
    pub(super) fn new(
        table: &'w RuleTable,
        view: View<'w>,
        options: Options,
        provisos: &'w mut Provisos,
        budget: &'w mut u64,
    ) -> Walk<'w> {
        Walk { table, view, options, known: BTreeMap::new(), provisos, budget }
    }

    /// What is in the way in a base chain: whether a flow's own facts decide it, and what it is.
    pub(super) fn base(&mut self, chain: &'w RuleChain, drops: bool) -> Option<(bool, Obstacle)> {
        let mut outcome = self.chain(&chain.name, 0);
        if let (true, Some(asks)) = (drops, outcome.falls) {
            let place = self.place(chain, None);
            outcome.meet(asks, obstacle(place, Cause::Policy, None));
        }
        outcome.obstacle
    }

    fn chain(&mut self, name: &str, depth: usize) -> Outcome {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let table = self.table;
        let mut outcome = Outcome::default();
        let Some(chain) = table.chains.iter().find(|chain| chain.name == name) else {
            let place = self.nowhere(name);
            outcome.meet(false, obstacle(place, Cause::Unknown, Some("no such chain".into())));
            return outcome;
        };
        if depth > DEPTH_MAX {
            outcome.meet(false, obstacle(self.place(chain, None), Cause::TooMany, None));
            return outcome;
        }
        let mut reach = Some(false);
        for rule in &chain.rules {
            let Some(asks) = reach else { break };
            reach = self.rule(chain, rule, asks, depth, &mut outcome);
        }
        outcome.falls = join(outcome.falls, reach);
        self.known.insert(&chain.name, outcome.clone());
        outcome
    }

    /// Which packets reach the rule behind this one, of those that reach this one.
    fn rule(
        &mut self,
        chain: &'w RuleChain,
        rule: &'w Rule,
        asks: bool,
        depth: usize,
        outcome: &mut Outcome,
    ) -> Reach {
        let mut registers = Registers::new();
        let mut here = asks;
        // Those that the rule does not match.
        let mut next = None;
        for expression in &rule.expressions {
            if !self.spend(expression) {
                outcome.meet(false, self.obstacle(chain, rule, Cause::TooMany, None));
                return None;
            }
            match evaluate(expression, &mut registers, self.table, &self.view) {
                Step::Next | Step::If(Truth::Yes) => {}
                Step::If(Truth::No) => return join(next, Some(here)),
                Step::If(Truth::Maybe { asks: further }) => {
                    here |= further;
                    next = join(next, Some(here));
                }
                Step::Count => {
                    if self.options.exact_counters {
                        outcome.meet(here, self.obstacle(chain, rule, Cause::Counter, None));
                        return next;
                    }
                    let place = self.place(chain, Some(rule));
                    note(&mut self.provisos.counters, place);
                }
                Step::ReversePath => {
                    let place = self.place(chain, Some(rule));
                    note(&mut self.provisos.reverse_path, place);
                }
                Step::Effect(cause, unknown) => {
                    outcome.meet(here, self.obstacle(chain, rule, cause, unknown));
                    return next;
                }
                Step::Verdicts(verdicts, is_there) => {
                    return self.verdicts(
                        &At { chain, rule, asks, here, depth },
                        verdicts,
                        is_there,
                        next,
                        outcome,
                    );
                }
            }
        }
        // Whether it matched or not: the next rule.
        Some(asks)
    }

    fn verdicts(
        &mut self,
        at: &At<'w>,
        verdicts: Vec<(Truth, Verdict)>,
        is_there: Truth,
        mut next: Reach,
        outcome: &mut Outcome,
    ) -> Reach {
        let mut ends = false;
        match is_there {
            Truth::Yes => {}
            Truth::No => next = join(next, Some(at.here)),
            Truth::Maybe { asks } => next = join(next, Some(at.here | asks)),
        }
        for (truth, verdict) in verdicts {
            let here = match truth {
                Truth::No => continue,
                Truth::Yes => at.here,
                Truth::Maybe { asks } => at.here | asks,
            };
            let (goes_on, has_ended) = self.verdict(at, verdict, here, outcome);
            next = join(next, goes_on);
            ends |= has_ended;
        }
        // Nothing ends here, so all packets reach the next rule.
        if ends { next } else { Some(at.asks) }
    }

    /// Which packets reach what is behind the rule, and whether any does not.
    fn verdict(
        &mut self,
        at: &At<'w>,
        verdict: Verdict,
        here: bool,
        outcome: &mut Outcome,
    ) -> (Reach, bool) {
        let cause = match verdict {
            Verdict::Accept => {
                outcome.accepts = join(outcome.accepts, Some(here));
                return (None, true);
            }
            Verdict::Continue | Verdict::Break => return (Some(here), false),
            Verdict::Return => {
                outcome.falls = join(outcome.falls, Some(here));
                return (None, true);
            }
            Verdict::Jump(name) => {
                let inside = self.chain(&name, at.depth + 1);
                outcome.add(here, &inside);
                return (behind(here, inside.falls), !inside.only_falls());
            }
            Verdict::Goto(name) => {
                let inside = self.chain(&name, at.depth + 1);
                outcome.add(here, &inside);
                outcome.falls = join(outcome.falls, behind(here, inside.falls));
                return (None, true);
            }
            Verdict::Drop => Cause::Drop,
            Verdict::Queue => Cause::Queue,
            Verdict::Other(_) => Cause::Unknown,
        };
        outcome.meet(here, self.obstacle(at.chain, at.rule, cause, None));
        (None, true)
    }

    /// False when the budget is used up.
    fn spend(
        &mut self,
        expression: &manylane_io::netlink::nftables::expression::Expression,
    ) -> bool {
        use manylane_io::netlink::nftables::expression::Expression;
        let elements = match expression {
            Expression::Lookup { set, .. } => {
                let set = self.table.sets.iter().find(|one| one.name == *set);
                set.map_or(0, |set| set.elements.len())
            }
            _ => 0,
        };
        let cost = 1 + elements as u64;
        let is_left = *self.budget >= cost;
        *self.budget = self.budget.saturating_sub(cost);
        is_left
    }

    fn obstacle(
        &self,
        chain: &RuleChain,
        rule: &Rule,
        cause: Cause,
        unknown: Option<String>,
    ) -> Obstacle {
        obstacle(self.place(chain, Some(rule)), cause, unknown)
    }

    fn place(&self, chain: &RuleChain, rule: Option<&Rule>) -> Place {
        let mut place = self.nowhere(&chain.name);
        if let Some(rule) = rule {
            place.handle = Some(rule.handle);
            place.rule = text::rule(rule, self.table);
        }
        place
    }

    fn nowhere(&self, chain: &str) -> Place {
        Place {
            is_legacy: self.table.is_legacy,
            family: self.table.family.name().into(),
            table: self.table.name.clone(),
            chain: chain.into(),
            handle: None,
            rule: String::new(),
        }
    }
}

/// A rule, and which packets its verdict concerns.
struct At<'w> {
    chain: &'w RuleChain,
    rule: &'w Rule,
    /// Of those that reach the rule.
    asks: bool,
    /// Of those that it matches.
    here: bool,
    depth: usize,
}

fn obstacle(place: Place, cause: Cause, unknown: Option<String>) -> Obstacle {
    let cure = cause.cure().map(str::to_owned);
    Obstacle { place, cause, unknown, cure }
}

/// Each rule once, and not more than a reader may want.
fn note(places: &mut Vec<Place>, place: Place) {
    if places.len() < PROVISOS_MAX && !places.contains(&place) {
        places.push(place);
    }
}

/// The kernel refuses deeper jumps (`NFT_JUMP_STACK_SIZE`); iptables has no such bound.
const DEPTH_MAX: usize = 64;
const PROVISOS_MAX: usize = 64;
