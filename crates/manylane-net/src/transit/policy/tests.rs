//! Ranges are the answers of the longest prefixes, and replaced ones stay for their readers.

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_sync::rcu::{Domain, Reader};
use proptest::prelude::*;

use super::super::layout::{FURTHER, FURTHER_TABLES, TABLES};
use super::super::{Memory, Sizes, TransitMut};
use super::ranges::ranges;
use super::*;
use crate::fib::{EditError, Limits, NextHopId};

/// Prefixes of one family, each once, with few different bits, so that they contain each other.
fn prefixes() -> impl Strategy<Value = Vec<(IpPrefix, u16)>> {
    let one = (0u8..4, 0u8..8, 0u8..=128, 1u16..4);
    (any::<bool>(), prop::collection::vec(one, 0..40)).prop_map(|(is_ipv6, all)| {
        let prefix = |(high, low, len, id): (u8, u8, u8, u16)| {
            let (high, low) = (u32::from(high) << 30, u32::from(low).wrapping_mul(0x2492_4925));
            let prefix = match is_ipv6 {
                true => {
                    let bits = u128::from(high) << 96 | u128::from(low) << 50 | u128::from(low);
                    let bits = bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                    IpPrefix::new(Ipv6Addr::from_bits(bits).into(), len)
                }
                false => {
                    let len = len.min(32);
                    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                    IpPrefix::new(Ipv4Addr::from_bits((high | low) & mask).into(), len)
                }
            };
            (prefix.expect("no bits below"), id)
        };
        let mut all: Vec<_> = all.into_iter().map(prefix).collect();
        all.sort_by_key(|(prefix, _)| (prefix.addr(), prefix.len()));
        all.dedup_by_key(|(prefix, _)| *prefix);
        all
    })
}

#[test]
fn ranges_are_what_the_longest_prefixes_say() {
    let id = |raw: u16| NextHopId::new(raw).expect("small and not 0");
    let mut bed = Bed::new();
    let table = bed.tables.take_table().expect("one");
    let bed = RefCell::new(bed);
    proptest!(|(all in prefixes())| {
        let ranges = ranges(all.iter().map(|&(prefix, raw)| (prefix, id(raw))));
        prop_assert_eq!(ranges[0].0, 0);
        prop_assert!(ranges.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1));
        let mut bed = bed.borrow_mut();
        let routes = all.iter().map(|&(prefix, raw)| (prefix, id(raw)));
        bed.tables.set_table(table, routes).expect("there is room");
        bed.grace();
        let policy = bed.tables.reader().policy;
        // Both ends of each prefix, and what is beside them.
        for (prefix, _) in &all {
            let (first, mask) = network(*prefix);
            for address in [first, first | !mask, first.wrapping_sub(1), (first | !mask).wrapping_add(1)] {
                let contains = |prefix: &IpPrefix| {
                    let (first, mask) = network(*prefix);
                    address & mask == first
                };
                let longest = all.iter().filter(|(prefix, _)| contains(prefix)).max_by_key(|(prefix, _)| prefix.len());
                let said = policy.in_table(usize::from(table.0), address);
                prop_assert_eq!(said, longest.map_or(0, |&(_, raw)| raw.into()), "{:x}", address);
            }
        }
    });
}

#[test]
fn what_is_replaced_stays_until_nobody_can_read_it() {
    let mut bed = Bed::new();
    let (id, other) = (bed.id(), bed.id());
    let prefix: IpPrefix = "10.0.0.0/8".parse().expect("a prefix");
    let table = bed.tables.take_table().expect("one");
    bed.tables.set_table(table, [(prefix, id)]).expect("there is room");
    let policy = bed.tables.reader().policy;
    let root = policy.roots.load(usize::from(table.0));
    let words = |root: u64| -> Vec<u64> {
        let (at, ranges) = (root as u32 as usize, (root >> 32) as usize);
        (at..at + ranges * RANGE_WORDS).map(|at| policy.further.load(at)).collect()
    };
    let former = words(root);
    assert_eq!(former.len(), 3 * RANGE_WORDS, "nothing, the network, nothing");
    let mut changes = 0;
    let busy = loop {
        match bed.tables.set_table(table, [(prefix, [id, other][changes % 2])]) {
            Ok(()) => changes += 1,
            Err(busy) => break busy,
        }
        assert_eq!(words(root), former, "somebody may read it");
    };
    assert_eq!(busy, EditError::Busy { waiting: changes, waiting_max: changes });
    assert_eq!(bed.tables.waiting(), changes);
    bed.grace();
    assert_eq!(bed.tables.set_table(table, [(prefix, id)]), Ok(()));
}

#[test]
fn a_table_that_is_too_large_is_refused_and_stays_as_it_was() {
    let mut bed = Bed::new();
    let id = bed.id();
    let table = bed.tables.take_table().expect("one");
    let hosts = |count: u32| {
        let host = move |number: u32| {
            (IpPrefix::from(crate::fib::Ipv4Prefix::host(Ipv4Addr::from_bits(number * 2 + 1))), id)
        };
        (0..count).map(host)
    };
    bed.tables.set_table(table, hosts(10)).expect("there is room");
    let root = bed.tables.reader().policy.roots.load(usize::from(table.0));
    let wanted = (2 * 200_000 + 1) * RANGE_WORDS;
    let full = EditError::Full { table: "further", words: FURTHER, wanted };
    assert_eq!(bed.tables.set_table(table, hosts(200_000)), Err(full));
    assert_eq!(bed.tables.reader().policy.roots.load(usize::from(table.0)), root);
    // As large as it may be, twice: one is read while the other is written.
    bed.tables.set_table(table, hosts(65_536)).expect("there is room");
    bed.tables.set_table(table, hosts(65_535)).expect("there is room");
}

#[test]
fn numbers_of_tables_and_lists_come_back_after_a_grace_period_only() {
    let mut bed = Bed::new();
    let tables: Vec<_> = std::iter::from_fn(|| bed.tables.take_table()).collect();
    assert_eq!(tables.len(), 2 * FURTHER_TABLES);
    for &table in &tables {
        bed.tables.retire_table(table).expect("nothing waits");
    }
    let again: Vec<_> = std::iter::from_fn(|| bed.tables.take_table()).collect();
    assert!(again.iter().all(|table| !tables.contains(table)), "somebody may read them");
    assert_eq!(again.len(), 2 * FURTHER_TABLES);
    const { assert!(TABLES >= 4 * FURTHER_TABLES, "as many wait as are in use") };
    let rules = |tos| [Rule { tos, ..Rule::all(Action::Kernel) }];
    let mut changes = 0;
    let busy = loop {
        match bed.tables.set_rules(changes % 2 == 1, &rules(changes + 1)) {
            Ok(()) => changes += 1,
            Err(busy) => break busy,
        }
    };
    assert_eq!(busy, EditError::Busy { waiting: 13, waiting_max: 15 });
    assert_eq!(changes, 15);
    assert_eq!(bed.tables.rules(false), rules(15));
    assert_eq!(bed.tables.set_rules(false, &[]), Ok(()), "it needs no list");
    bed.grace();
    assert_eq!(bed.tables.set_rules(false, &rules(77)), Ok(()));
}

struct Bed {
    tables: TransitMut,
    reader: Reader,
}

impl Bed {
    fn new() -> Bed {
        let domain = Domain::new(1);
        let reader = domain.register().expect("the first fits");
        let memory = Memory::zeroed(&Sizes::for_routes(0, 0));
        Bed { tables: TransitMut::new(memory, domain, &Limits::default()), reader }
    }

    fn id(&mut self) -> NextHopId {
        self.tables.take_id().expect("one")
    }

    fn grace(&mut self) {
        for _ in 0..2 {
            self.reader.quiescent();
            self.tables.reclaim();
        }
    }
}
