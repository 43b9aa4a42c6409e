//! The routing policy (ip-rule(8)), where it is more than the usual three rules: which table routes a packet.
//!
//! The tables local, main and default are *merged* into one ([`fib`](crate::fib)). With only the usual rules the merged
//! table says all, and nothing of this room is read. With others, a packet follows a list of at most [`RULES`] rules,
//! in order, to the first one that matches and whose table has a route:
//!
//! | a rule says         | a packet that matches                                                             |
//! |---------------------|-----------------------------------------------------------------------------------|
//! | [`Action::Local`]   | uses the merged tables if these say `Local` or `Broadcast`: the whole local table  |
//! | [`Action::Merged`]  | uses the merged tables, if they have a route                                       |
//! | [`Action::Table`]   | uses a further table, if that has a route                                          |
//! | [`Action::Nowhere`] | is refused: the kernel notifies the sender                                         |
//! | [`Action::Kernel`]  | is the kernel's: the rule matches on something that is not looked at here          |
//!
//! By `fib_rules_lookup` and `fib_rule_match` in the kernel's net/core/fib_rules.c. The program has the same in
//! `rules.h`.
//!
//! # Words
//!
//! | table     | word                                                                                          |
//! |-----------|-----------------------------------------------------------------------------------------------|
//! | `rules`   | [`layout::rule`](super::layout::rule), by list and rule; the list is named in `control`       |
//! | `roots`   | by the number of a further table: its first word in `further`, and from bit 32 how many ranges |
//! | `further` | ranges: upper and lower half of the first address, next-hop id; sorted, the first is address 0 |
//!
//! The answer of a further table is the last range that begins at the address or before: a binary search, of
//! at most 18 steps. Lists and ranges are never changed while they can be found: a change writes all of the
//! table, or the list, anew, then publishes its one word. What it was before is used again after a grace
//! period, as the numbers of lists and of tables are. A further table is what is small; for the one
//! that has the Internet's routes, the merged ones are.

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::Words;

use super::layout::{RANGE_WORDS, RULE_WORDS, RULES, UNKNOWN, range, rule};
use crate::fib::{IpPrefix, NextHop as NextHopMark};
use crate::neighbour::Neighbour;
use crate::nexthop::{NextHop, NextHops};

mod ranges;
#[cfg(all(test, not(manylane_loom)))]
mod tests;
mod writer;

pub(super) use writer::PolicyMut;

/// The number of a further table, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableNumber(u8);

/// What becomes of packets that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The merged tables answer, if the answer is from the local one; the first rule of each list.
    Local,
    /// The merged tables say it.
    Merged,
    /// A further table says it.
    Table(TableNumber),
    /// The packets are refused.
    Nowhere,
    /// The packets are the kernel's.
    Kernel,
}

/// A rule of the routing policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Packets from there.
    pub from: Option<IpPrefix>,
    /// Packets to there.
    pub to: Option<IpPrefix>,
    /// Packets received by the interface of this index.
    pub ingress: Option<u32>,
    /// Packets with this type of service; 0 for all.
    pub tos: u8,
    /// The rule matches what would not match otherwise.
    pub is_inverted: bool,
    /// What becomes of them.
    pub action: Action,
}

impl Rule {
    /// A rule for all packets.
    pub fn all(action: Action) -> Rule {
        Rule { from: None, to: None, ingress: None, tos: 0, is_inverted: false, action }
    }
}

/// What rules look at of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    /// An IPv4 address is in the upper 32 bits.
    pub to: u128,
    pub from: u128,
    /// The index of the ingress interface.
    pub interface: u32,
    pub tos: u8,
    /// What the merged tables say of `to`.
    pub merged: u32,
}

/// What rules lead to.
pub(super) enum Found<'g> {
    /// This id.
    Id(Index<'g, NextHopMark>),
    /// No table has a route.
    None,
    /// Nowhere.
    Nowhere,
    /// The kernel.
    Kernel,
}

/// A readers' side.
#[derive(Clone)]
pub(super) struct Policy {
    pub rules: Words<u64>,
    pub roots: Words<u64>,
    pub further: Words<u64>,
}

impl Policy {
    /// What the rules of a list say.
    pub fn find<'g>(
        &self,
        guard: Guard<'g>,
        list: usize,
        query: &Query,
        next_hops: &NextHops,
    ) -> Found<'g> {
        // The route could be of the local table, which is read first.
        if query.merged == UNKNOWN.into() {
            return Found::Kernel;
        }
        for number in 0..RULES {
            let at = (list * RULES + number) * RULE_WORDS;
            let words: [u64; RULE_WORDS] = self.rules.load_array(at);
            let head = words[rule::HEAD];
            if head & 0xff == rule::END {
                break;
            }
            if matches(query, &words) == (head & rule::INVERTED != 0) {
                continue;
            }
            let kind = |id: u32| -> NextHop<Index<'g, Neighbour>> {
                next_hops.load(guard, Index::<NextHopMark>::new(guard, id))
            };
            match head & 0xff {
                rule::LOCAL => {
                    let merged = kind(query.merged);
                    if matches!(merged, NextHop::Local | NextHop::Broadcast) {
                        return Found::Id(Index::new(guard, query.merged));
                    }
                }
                rule::MERGED => {
                    if kind(query.merged) != NextHop::None {
                        return Found::Id(Index::new(guard, query.merged));
                    }
                }
                rule::FURTHER => {
                    let id = self.in_table((head >> rule::TABLE & 0xff) as usize, query.to);
                    if kind(id) != NextHop::None {
                        return Found::Id(Index::new(guard, id));
                    }
                }
                rule::NOWHERE => return Found::Nowhere,
                _ => return Found::Kernel,
            }
        }
        Found::None
    }

    /// The next hop of an address in a further table.
    fn in_table(&self, table: usize, address: u128) -> u32 {
        let root = self.roots.load(table);
        let (mut at, mut left) = ((root & 0xffff_ffff) as usize, (root >> 32) as usize);
        if left == 0 {
            return 0;
        }
        while left > 1 {
            let (half, middle) = (left / 2, at + left / 2 * RANGE_WORDS);
            let words: [u64; 2] = self.further.load_array(middle + range::FIRST);
            if address >= address_of(words) {
                at = middle;
            }
            left -= half;
        }
        self.further.load(at + range::ID) as u32
    }
}

/// Whether a packet is as a rule's words say.
fn matches(query: &Query, words: &[u64; RULE_WORDS]) -> bool {
    let pair = |at: usize| address_of([words[at], words[at + 1]]);
    let head = words[rule::HEAD];
    let (tos, tos_mask) = ((head >> rule::TOS) as u8, (head >> rule::TOS_MASK) as u8);
    let ingress = words[rule::INGRESS];
    (query.from ^ pair(rule::FROM)) & pair(rule::FROM + 2) == 0
        && (query.to ^ pair(rule::TO)) & pair(rule::TO + 2) == 0
        && (query.tos ^ tos) & tos_mask == 0
        && (ingress == 0 || ingress == query.interface.into())
}

fn address_of([upper, lower]: [u64; 2]) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// An IPv4 address where those of both families have one form.
pub(super) fn of_ipv4(address: u32) -> u128 {
    u128::from(address) << 96
}

/// The first address of a prefix, and the bits that its addresses share.
fn network(prefix: IpPrefix) -> (u128, u128) {
    let first = match prefix {
        IpPrefix::V4(prefix) => of_ipv4(prefix.addr().to_bits()),
        IpPrefix::V6(prefix) => prefix.addr().to_bits(),
    };
    (first, !u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0))
}
