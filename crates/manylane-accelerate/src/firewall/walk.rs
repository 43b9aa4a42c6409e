//! The way of a class of packets through the chains of a table.

use super::Options;
use super::bits::Truth;
use super::evaluate::{Registers, Step, evaluate};
use super::lookup::Found;
use super::obstacle::Cause;
use super::packet::View;
use super::rules::{Block, Decision, Resolved, Rules, Spot, Table};

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
#[derive(Clone, Copy, Default)]
struct Outcome {
    accepts: Reach,
    /// Past the end of the chain, or back by `return`.
    falls: Reach,
    /// The first obstacle that flows of all kinds meet, or else the first that some meet.
    obstacle: Option<(bool, Block)>,
    /// A rule did more than to let packets pass to the next one.
    matters: bool,
}

impl Outcome {
    fn meet(&mut self, asks: bool, block: Block) {
        self.matters = true;
        match &self.obstacle {
            Some((true, _)) if !asks => {}
            Some(_) => return,
            None => {}
        }
        self.obstacle = Some((asks, block));
    }

    /// What a chain that is jumped to adds, but for the way back.
    fn add(&mut self, asks: bool, other: &Outcome) {
        self.accepts = join(self.accepts, behind(asks, other.accepts));
        self.matters |= !other.only_falls();
        if let Some((further, block)) = other.obstacle {
            self.meet(asks || further, block);
        }
    }

    fn only_falls(&self) -> bool {
        self.accepts.is_none() && self.obstacle.is_none()
    }
}

/// The rules of a table's chains that matter to the flows of a class, by the number of the chain. The
/// other rules let all packets of the class pass to the next rule.
pub(super) type Live = Box<[Option<Box<[u32]>>]>;

/// What is noted of a question about a class.
#[derive(Default)]
pub(super) struct Notes {
    /// Rules that count.
    pub(super) counters: Vec<Spot>,
    /// Rules that check the reverse path.
    pub(super) reverse_path: Vec<Spot>,
    /// Sets that were looked up in: their table and number.
    pub(super) sets: Vec<(usize, usize)>,
    pub(super) live: Vec<Option<Box<[u32]>>>,
}

/// A walk through the chains of one table at one hook.
pub(super) struct Walk<'w> {
    number: usize,
    table: &'w Table,
    view: View<'w>,
    options: Options,
    /// What has been found out about chains that several rules lead to: it does not depend on the caller. Empty as long as
    /// none was met.
    known: Vec<Option<Outcome>>,
    live: Option<&'w Live>,
    notes: Option<&'w mut Notes>,
    /// Expressions that may still be evaluated.
    budget: &'w mut u64,
}

impl<'w> Walk<'w> {
    /// A walk for a question about a class, with notes.
    pub(super) fn of_class(
        rules: &'w Rules,
        table: usize,
        view: View<'w>,
        options: Options,
        notes: &'w mut Notes,
        budget: &'w mut u64,
    ) -> Walk<'w> {
        let chains = rules.tables[table].chains.len();
        notes.live = (0..chains).map(|_| None).collect();
        Walk { notes: Some(notes), ..Walk::new(rules, table, view, options, budget) }
    }

    /// A walk for one flow, past the rules that matter to its class.
    pub(super) fn of_flow(
        rules: &'w Rules,
        table: usize,
        view: View<'w>,
        options: Options,
        live: &'w Live,
        budget: &'w mut u64,
    ) -> Walk<'w> {
        Walk { live: Some(live), ..Walk::new(rules, table, view, options, budget) }
    }

    fn new(
        rules: &'w Rules,
        number: usize,
        view: View<'w>,
        options: Options,
        budget: &'w mut u64,
    ) -> Walk<'w> {
        let table = &rules.tables[number];
        Walk { number, table, view, options, known: Vec::new(), live: None, notes: None, budget }
    }

    /// What is in the way in a base chain: whether a flow's own facts decide it, and what it is.
    pub(super) fn base(&mut self, chain: usize, drops: bool) -> Option<(bool, Block)> {
        let mut outcome = self.chain(chain, 0);
        if let (true, Some(asks)) = (drops, outcome.falls) {
            outcome.meet(asks, self.block(chain, None, 0, Cause::Policy));
        }
        outcome.obstacle
    }

    fn chain(&mut self, number: usize, depth: usize) -> Outcome {
        let table = self.table;
        let chain = &table.chains[number];
        if chain.is_shared {
            self.known.resize(table.chains.len(), None);
            if let Some(known) = self.known[number] {
                return known;
            }
        }
        let mut outcome = Outcome::default();
        if depth > DEPTH_MAX {
            outcome.meet(false, self.block(number, None, 0, Cause::TooMany));
            return outcome;
        }
        let reach = match self.live.and_then(|live| live[number].as_ref()) {
            Some(live) => {
                let rules = live.iter().map(|&rule| rule as usize);
                self.rules(number, rules, depth, &mut outcome)
            }
            None => self.rules(number, 0..chain.rules.len(), depth, &mut outcome),
        };
        outcome.falls = join(outcome.falls, reach);
        if chain.is_shared {
            self.known[number] = Some(outcome);
        }
        outcome
    }

    /// Which packets reach the end of a chain.
    fn rules(
        &mut self,
        chain: usize,
        rules: impl Iterator<Item = usize>,
        depth: usize,
        outcome: &mut Outcome,
    ) -> Reach {
        let mut reach = Some(false);
        let mut live = Vec::new();
        for rule in rules {
            let Some(asks) = reach else { break };
            let mattered = std::mem::take(&mut outcome.matters);
            reach = self.rule(&At { chain, rule, asks, here: asks, depth }, outcome);
            if outcome.matters && self.notes.is_some() {
                live.push(rule as u32);
            }
            outcome.matters |= mattered;
        }
        if let Some(notes) = &mut self.notes {
            notes.live[chain] = Some(live.into());
        }
        reach
    }

    /// Which packets reach the rule behind this one, of those that reach this one.
    fn rule(&mut self, at: &At, outcome: &mut Outcome) -> Reach {
        let At { chain, rule, asks, .. } = *at;
        let expressions = &self.table.read.chains[chain].rules[rule].expressions;
        let resolved = &self.table.chains[chain].rules[rule];
        let mut registers = Registers::new();
        let mut here = asks;
        // Those that the rule does not match.
        let mut next = None;
        for (number, (expression, resolved)) in expressions.iter().zip(resolved).enumerate() {
            let step = self.budget.checked_sub(1).and_then(|left| {
                *self.budget = left;
                evaluate(expression, *resolved, &mut registers, self.table, &self.view, self.budget)
            });
            let Some(step) = step else {
                outcome.meet(false, self.block(chain, Some(rule), number, Cause::TooMany));
                return None;
            };
            if let Some(notes) = &mut self.notes {
                notes.take(*resolved, step, self.number, (chain, rule));
            }
            match step {
                Step::Next | Step::ReversePath | Step::If(Truth::Yes) => {}
                Step::If(Truth::No) => return join(next, Some(here)),
                Step::If(Truth::Maybe { asks: further }) => {
                    here |= further;
                    next = join(next, Some(here));
                }
                Step::Count if !self.options.exact_counters => {}
                Step::Count => {
                    outcome.meet(here, self.block(chain, Some(rule), number, Cause::Counter));
                    return next;
                }
                Step::Effect(cause) => {
                    outcome.meet(here, self.block(chain, Some(rule), number, cause));
                    return next;
                }
                Step::Decided(decision) => {
                    let at = At { here, ..*at };
                    let (continues, ends) = self.decide(&at, number, decision, here, outcome);
                    // Where nothing ends, all packets reach the next rule.
                    return if ends { join(next, continues) } else { Some(asks) };
                }
                Step::Map { set, from } => {
                    let at = At { here, ..*at };
                    return self.map(&at, number, set, from, (&registers, next), outcome);
                }
            }
        }
        // Whether it matched or not: the next rule.
        Some(asks)
    }

    /// A verdict map: the verdicts of the elements that the key may be.
    fn map(
        &mut self,
        at: &At,
        expression: usize,
        set: usize,
        from: usize,
        (registers, mut next): (&Registers, Reach),
        outcome: &mut Outcome,
    ) -> Reach {
        let (read, elements) = (&self.table.read.sets[set], &self.table.sets[set]);
        let key = registers.read(from, read.key_bytes);
        let spot = Spot { table: self.number, chain: at.chain, rule: Some(at.rule) };
        let block = |cause| Block { spot, expression, cause };
        let Some(found) = elements.find(read, key, self.budget) else {
            outcome.meet(false, block(Cause::TooMany));
            return None;
        };
        let one;
        let (list, is_there) = match &found {
            Found::Known(None) => (&[][..], Truth::No),
            Found::Known(Some(element)) => {
                one = [(*element, Truth::Yes)];
                (&one[..], Truth::Yes)
            }
            Found::Some { elements, is_there } => (&elements[..], *is_there),
        };
        if let Some(cause) = list.iter().find_map(|(element, _)| elements.effect(*element)) {
            outcome.meet(at.here, block(cause));
            return next;
        }
        let mut ends = false;
        match is_there {
            Truth::Yes => {}
            Truth::No => next = join(next, Some(at.here)),
            Truth::Maybe { asks } => next = join(next, Some(at.here | asks)),
        }
        for &(element, truth) in list {
            let here = match truth {
                Truth::No => continue,
                Truth::Yes => at.here,
                Truth::Maybe { asks } => at.here | asks,
            };
            let decision = elements.decision(element);
            let (continues, has_ended) = self.decide(at, expression, decision, here, outcome);
            next = join(next, continues);
            ends |= has_ended;
        }
        // Nothing ends here, so all packets reach the next rule.
        if ends { next } else { Some(at.asks) }
    }

    /// Which packets reach what is behind the rule, and whether any does not.
    fn decide(
        &mut self,
        at: &At,
        expression: usize,
        decision: Decision,
        here: bool,
        outcome: &mut Outcome,
    ) -> (Reach, bool) {
        let cause = match decision {
            Decision::Continue => return (Some(here), false),
            Decision::Accept => {
                outcome.matters = true;
                outcome.accepts = join(outcome.accepts, Some(here));
                return (None, true);
            }
            Decision::Return => {
                outcome.matters = true;
                outcome.falls = join(outcome.falls, Some(here));
                return (None, true);
            }
            Decision::Jump(Some(chain)) => {
                let inside = self.chain(chain, at.depth + 1);
                outcome.add(here, &inside);
                return (behind(here, inside.falls), !inside.only_falls());
            }
            Decision::Goto(Some(chain)) => {
                let inside = self.chain(chain, at.depth + 1);
                outcome.matters = true;
                outcome.add(here, &inside);
                outcome.falls = join(outcome.falls, behind(here, inside.falls));
                return (None, true);
            }
            Decision::Drop => Cause::Drop,
            Decision::Queue => Cause::Queue,
            Decision::Jump(None) | Decision::Goto(None) | Decision::Other => Cause::Unknown,
        };
        outcome.meet(here, self.block(at.chain, Some(at.rule), expression, cause));
        (None, true)
    }

    fn block(&self, chain: usize, rule: Option<usize>, expression: usize, cause: Cause) -> Block {
        Block { spot: Spot { table: self.number, chain, rule }, expression, cause }
    }
}

impl Notes {
    /// Notes what a rule does or reads.
    fn take(
        &mut self,
        resolved: Resolved,
        step: Step,
        table: usize,
        (chain, rule): (usize, usize),
    ) {
        let spot = Spot { table, chain, rule: Some(rule) };
        match step {
            Step::Count => note(&mut self.counters, spot),
            Step::ReversePath => note(&mut self.reverse_path, spot),
            _ => {}
        }
        if let Resolved::Set(set) = resolved
            && !self.sets.contains(&(table, set))
        {
            self.sets.push((table, set));
        }
    }
}

/// A rule, and which packets it concerns.
#[derive(Clone, Copy)]
struct At {
    chain: usize,
    rule: usize,
    /// Of those that reach the rule.
    asks: bool,
    /// Of those that it matches.
    here: bool,
    depth: usize,
}

/// Each rule once, and not more than a reader may want.
fn note(spots: &mut Vec<Spot>, spot: Spot) {
    if spots.len() < NOTES_MAX && !spots.contains(&spot) {
        spots.push(spot);
    }
}

/// The kernel refuses deeper jumps (`NFT_JUMP_STACK_SIZE`); iptables has no such bound.
const DEPTH_MAX: usize = 64;
const NOTES_MAX: usize = 64;
