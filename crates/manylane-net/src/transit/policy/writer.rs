//! The writer of lists of rules and of further tables.

use manylane_sync::rcu::{Domain, Limbo, Slots};
use manylane_sync::words::WordsMut;

use super::super::layout::{
    FURTHER, FURTHER_TABLES, RANGE_WORDS, RULE_LISTS, RULE_WORDS, RULES, TABLES, control, range,
    rule,
};
use super::ranges::ranges;
use super::{Action, Policy, Rule, TableNumber, halves, network};
use crate::fib::{Arena, EditError, IpPrefix, NextHopId};

/// Writes what rules and further tables say.
///
/// # Invariants
///
/// 1. A piece of `further` is one table's, or in the limbo, or free; only what is free is written.
/// 2. The words of a list are written while its number is in use and `control` does not name it yet.
pub(in super::super) struct PolicyMut {
    rules: WordsMut<u64>,
    roots: WordsMut<u64>,
    further: WordsMut<u64>,
    /// Of ranges.
    arena: Arena,
    pieces: Limbo<Piece>,
    lists: Slots,
    tables: Slots,
    /// The rules of both families, as they were set last.
    set: [Vec<Rule>; 2],
    /// The list of each family, 0 for none.
    named: [u32; 2],
    /// The piece of each table.
    places: [Option<Piece>; TABLES],
}

/// Some ranges in a row.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u32,
    len: u32,
}

/// Pieces that may wait. At more changes in a grace period, the next one waits.
const WAITING_MAX: usize = 256;

impl PolicyMut {
    pub fn new(
        rules: WordsMut<u64>,
        roots: WordsMut<u64>,
        further: WordsMut<u64>,
        domain: &Domain,
    ) -> PolicyMut {
        let numbers = |count: usize| Slots::new(count as u32, domain.clone(), None);
        let mut lists = numbers(RULE_LISTS);
        assert_eq!(lists.take(), Some(0), "nobody's");
        PolicyMut {
            rules,
            roots,
            further,
            arena: Arena::new(FURTHER / RANGE_WORDS),
            pieces: Limbo::new(domain.clone(), WAITING_MAX),
            lists,
            tables: numbers(TABLES),
            set: [Vec::new(), Vec::new()],
            named: [0; 2],
            places: [None; TABLES],
        }
    }

    pub fn reader(&self) -> Policy {
        Policy {
            rules: self.rules.reader(),
            roots: self.roots.reader(),
            further: self.further.reader(),
        }
    }

    /// The rules of a family, as they were set last.
    pub fn rules(&self, is_ipv6: bool) -> &[Rule] {
        &self.set[usize::from(is_ipv6)]
    }

    /// Routes a family's packets by these rules, in this order; without rules, by the merged tables.
    ///
    /// # Panics
    ///
    /// With more than [`RULES`] rules.
    pub fn set_rules(
        &mut self,
        is_ipv6: bool,
        rules: &[Rule],
        control: &mut WordsMut<u64>,
    ) -> Result<(), EditError> {
        assert!(rules.len() <= RULES, "{} rules of at most {RULES}", rules.len());
        let family = usize::from(is_ipv6);
        if self.set[family] == rules {
            return Ok(());
        }
        let list = if rules.is_empty() { 0 } else { self.write_list(is_ipv6, rules)? };
        let former = std::mem::replace(&mut self.named[family], list);
        let [ipv4, ipv6] = self.named.map(u64::from);
        control.publish(control::RULES, ipv4 | ipv6 << 16);
        if former != 0 {
            self.lists.retire(former);
        }
        self.set[family] = rules.to_vec();
        Ok(())
    }

    fn write_list(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<u32, EditError> {
        let Some(list) = super::super::writer::take(&mut self.lists) else {
            let levels = self.lists.levels();
            let waiting = levels.retired + levels.in_flight;
            return Err(EditError::Busy { waiting, waiting_max: RULE_LISTS - 1 });
        };
        let first = list as usize * RULES * RULE_WORDS;
        let words = rules.iter().flat_map(|rule| words_of(is_ipv6, rule));
        // Relaxed: invariant 2. A reader that finds the list has loaded its number after it was published.
        (first..).zip(words).for_each(|(at, word)| self.rules.store(at, word));
        if rules.len() < RULES {
            self.rules.store(first + rules.len() * RULE_WORDS + rule::HEAD, rule::END);
        }
        Ok(list)
    }

    /// A further table, without routes. `None` when all are in use or wait.
    pub fn take_table(&mut self) -> Option<TableNumber> {
        if self.tables.levels().in_use >= 2 * FURTHER_TABLES {
            return None;
        }
        let number = super::super::writer::take(&mut self.tables)?;
        self.roots.publish(number as usize, 0);
        Some(TableNumber(number as u8))
    }

    /// Makes a table have these routes, of one family, each prefix once. Refused, it is as it was.
    pub fn set_table(
        &mut self,
        table: TableNumber,
        routes: &mut dyn Iterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError> {
        self.reclaim();
        let ranges = ranges(routes);
        let place = usize::from(table.0);
        if self.places[place].is_some() && self.pieces.is_full() {
            return Err(self.busy());
        }
        let len = ranges.len() as u32;
        let Some(first) = self.arena.take(len) else {
            let full = EditError::Full {
                table: "further",
                words: FURTHER,
                wanted: ranges.len() * RANGE_WORDS,
            };
            return Err(if self.pieces.is_empty() { full } else { self.busy() });
        };
        for (at, &(address, id)) in (first as usize..).zip(&ranges) {
            let at = at * RANGE_WORDS;
            let [upper, lower] = halves(address);
            // Relaxed: invariant 1. A reader that finds the piece has loaded its root after it was published.
            self.further.store(at + range::FIRST, upper);
            self.further.store(at + range::FIRST + 1, lower);
            self.further.store(at + range::ID, id.into());
        }
        self.roots.publish(place, (u64::from(len) << 32) | (first as u64 * RANGE_WORDS as u64));
        let former = self.places[place].replace(Piece { first, len });
        self.retire(former);
        Ok(())
    }

    /// Gives back a table that no rule leads to any more. Those who are on their way to it find it as it was.
    /// Refused while too much waits.
    ///
    /// # Panics
    ///
    /// When it is not in use.
    pub fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError> {
        self.reclaim();
        if self.pieces.is_full() {
            return Err(self.busy());
        }
        self.tables.retire(table.0.into());
        let former = self.places[usize::from(table.0)].take();
        self.retire(former);
        Ok(())
    }

    fn retire(&mut self, piece: Option<Piece>) {
        if let Some(piece) = piece {
            let retired = self.pieces.retire(piece).is_ok();
            assert!(retired, "the edit has made room in the limbo");
        }
    }

    fn busy(&self) -> EditError {
        EditError::Busy { waiting: self.pieces.len(), waiting_max: WAITING_MAX }
    }

    pub fn reclaim(&mut self) {
        while let Some(Piece { first, len }) = self.pieces.reclaim() {
            self.arena.give_back(first, len);
        }
        self.lists.reclaim();
        self.tables.reclaim();
    }

    pub fn waiting(&self) -> usize {
        let numbers = [&self.lists, &self.tables].map(|numbers| {
            let levels = numbers.levels();
            levels.retired + levels.in_flight
        });
        self.pieces.len() + numbers.into_iter().sum::<usize>()
    }
}

/// A rule's words.
fn words_of(is_ipv6: bool, rule: &Rule) -> [u64; RULE_WORDS] {
    let (action, table) = match rule.action {
        Action::Local => (rule::LOCAL, 0),
        Action::Merged => (rule::MERGED, 0),
        Action::Table(TableNumber(number)) => (rule::FURTHER, number),
        Action::Nowhere => (rule::NOWHERE, 0),
        Action::Kernel => (rule::KERNEL, 0),
    };
    let tos_mask = match (rule.tos, is_ipv6) {
        (0, _) => 0,
        (_, false) => TOS_IPV4,
        (_, true) => TOS_IPV6,
    };
    let inverted = if rule.is_inverted { rule::INVERTED } else { 0 };
    let mut words = [0; RULE_WORDS];
    words[rule::HEAD] = action
        | inverted
        | u64::from(table) << rule::TABLE
        | u64::from(rule.tos) << rule::TOS
        | u64::from(tos_mask) << rule::TOS_MASK;
    words[rule::INGRESS] = rule.ingress.map_or(0, u64::from);
    for (at, prefix) in [(rule::FROM, rule.from), (rule::TO, rule.to)] {
        let (first, mask) = prefix.map_or((0, 0), network);
        words[at..at + 2].copy_from_slice(&halves(first));
        words[at + 2..at + 4].copy_from_slice(&halves(mask));
    }
    words
}

/// The bits of the type of service that IPv4's rules are compared with (`INET_DSCP_LEGACY_TOS_MASK`).
const TOS_IPV4: u8 = 0x1c;
/// IPv6's: all of the DSCP.
const TOS_IPV6: u8 = 0xfc;
