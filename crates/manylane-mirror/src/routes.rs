//! One family's routes of all tables, compactly.
//!
//! | part      | holds                                                                              |
//! |-----------|------------------------------------------------------------------------------------|
//! | `first`   | by table, prefix and length: the record of the first route of that key, in the     |
//! |           | kernel's order; the key itself stands in the record                                |
//! | `records` | routes: their key, their body's number, the next of the same key, their neighbours |
//! |           | among those with the same body                                                     |
//! | `bodies`  | everything else that routes say, each once; by device and by next-hop object       |
//!
//! So a device leads to bodies, and a body to its routes, without a look at the others; and a million
//! IPv4 routes take 36 MB. A key has nearly always one route.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use manylane_net::fib::IpPrefix;

use super::attributes::{AttributeSets, Entry, RouteAttributes};
use super::constants::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use super::family::{Bits, Seeded};

/// Where a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key<B> {
    /// The network.
    pub address: B,
    /// The number of its table, as [`Routes::table`] gives it.
    pub table: u16,
    /// The length of its prefix.
    pub len: u8,
}

impl<B: Bits> Key<B> {
    /// Its network.
    pub fn prefix(self) -> IpPrefix {
        self.address.prefix(self.len)
    }
}

/// The tables that routing uses, in its order: local, main, default. Their numbers are their places here.
pub(super) const USUAL: [u32; 3] = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];

/// The number of the default table.
const DEFAULT: u16 = 2;

/// No record.
const NONE: u32 = u32::MAX;

/// The length of a record that is free.
const FREE: u8 = u8::MAX;

struct Record<B> {
    key: Key<B>,
    attributes: u32,
    /// The next of this key.
    behind: u32,
    /// The next and the one before with the same body; of a free record, `next` is the next free one.
    next: u32,
    previous: u32,
}

/// A table of the kernel's.
struct Table<B> {
    id: u32,
    count: usize,
    /// The number of keys of each length.
    lens: Vec<u32>,
    /// Its keys, in order; not of local and main, which are large and never listed alone.
    keys: BTreeSet<(B, u8)>,
}

/// The routes of one family.
pub(super) struct Routes<B> {
    first: HashTable<u32>,
    seed: Seeded,
    records: Vec<Record<B>>,
    free: u32,
    count: usize,
    tables: Vec<Table<B>>,
    /// What they say.
    pub attribute_sets: AttributeSets,
}

impl<B: Bits> Routes<B> {
    pub fn new() -> Routes<B> {
        let mut routes = Routes {
            first: HashTable::new(),
            seed: Seeded::default(),
            records: Vec::new(),
            free: NONE,
            count: 0,
            tables: Vec::new(),
            attribute_sets: AttributeSets::new(B::FAMILY),
        };
        for (number, id) in USUAL.into_iter().enumerate() {
            assert_eq!(routes.table_mut(id), Some(number as u16), "the first ones");
        }
        routes
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The number of a table that has had a route.
    pub fn table(&self, id: u32) -> Option<u16> {
        self.tables.iter().position(|table| table.id == id).map(|at| at as u16)
    }

    /// The number of a table; none when all numbers are in use.
    pub fn table_mut(&mut self, id: u32) -> Option<u16> {
        if let Some(number) = self.table(id) {
            return Some(number);
        }
        let number = u16::try_from(self.tables.len()).ok()?;
        let lens = vec![0; usize::from(B::WIDTH) + 1];
        self.tables.push(Table { id, count: 0, lens, keys: BTreeSet::new() });
        Some(number)
    }

    /// The kernel's number of a table.
    pub fn table_id(&self, number: u16) -> u32 {
        self.tables[usize::from(number)].id
    }

    /// All tables: their number, and how many routes are in each.
    pub fn tables(&self) -> impl Iterator<Item = (u32, usize)> {
        self.tables.iter().map(|table| (table.id, table.count))
    }

    /// Whether a table has prefixes of this length.
    pub fn has_len(&self, table: u16, len: u8) -> bool {
        self.tables[usize::from(table)].lens[usize::from(len)] > 0
    }

    /// How many routes a table has.
    pub fn table_len(&self, table: u16) -> usize {
        self.tables[usize::from(table)].count
    }

    /// The routes of a key, in the kernel's order.
    pub fn list(&self, key: Key<B>) -> impl Iterator<Item = u32> {
        let is_of = |&index: &u32| self.record(index).key == key;
        let mut at = self.first.find(self.seed.hash_one(key), is_of).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let index = (at != NONE).then_some(at)?;
            at = self.record(index).behind;
            Some(index)
        })
    }

    /// What a route says.
    pub fn entry(&self, index: u32) -> &Entry {
        self.attribute_sets.get(self.record(index).attributes)
    }

    /// What a route says.
    pub fn attributes(&self, index: u32) -> &RouteAttributes {
        &self.entry(index).attributes
    }

    /// The number of what a route says.
    pub fn attributes_number(&self, index: u32) -> u32 {
        self.record(index).attributes
    }

    /// Where a route is.
    pub fn key(&self, index: u32) -> Key<B> {
        self.record(index).key
    }

    /// Adds a route with this body behind another one of its key, or as the first.
    pub fn insert(&mut self, key: Key<B>, behind: Option<u32>, attributes: u32) -> u32 {
        let index = self.take();
        let follower = match behind {
            Some(before) => {
                let before = &mut self.records[before as usize];
                debug_assert!(before.key == key);
                std::mem::replace(&mut before.behind, index)
            }
            None => self.set_first(key, index),
        };
        let table = &mut self.tables[usize::from(key.table)];
        table.count += 1;
        if behind.is_none() && follower == NONE {
            table.lens[usize::from(key.len)] += 1;
            if key.table >= DEFAULT {
                table.keys.insert((key.address, key.len));
            }
        }
        self.count += 1;
        let record = Record { key, attributes, behind: follower, next: NONE, previous: NONE };
        self.records[index as usize] = record;
        self.link(index);
        index
    }

    /// Takes a route away; its body, too, if it was the last with it.
    pub fn remove(&mut self, index: u32) {
        let Record { key, behind, .. } = *self.record(index);
        self.unlink(index);
        let before = self.list(key).take_while(|&other| other != index).last();
        let table = &mut self.tables[usize::from(key.table)];
        table.count -= 1;
        match before {
            Some(before) => self.records[before as usize].behind = behind,
            None if behind != NONE => _ = self.set_first(key, behind),
            None => {
                table.lens[usize::from(key.len)] -= 1;
                let place = self.first.find_entry(self.seed.hash_one(key), |&at| at == index);
                place.expect("it is the first").remove();
                if key.table >= DEFAULT {
                    table.keys.remove(&(key.address, key.len));
                }
            }
        }
        self.count -= 1;
        let record = &mut self.records[index as usize];
        (record.key.len, record.next) = (FREE, self.free);
        self.free = index;
    }

    /// Gives a route another body.
    pub fn exchange(&mut self, index: u32, attributes: u32) {
        if self.record(index).attributes != attributes {
            self.unlink(index);
            self.records[index as usize].attributes = attributes;
            self.link(index);
        }
    }

    /// The routes with this body.
    pub fn of_attributes(&self, attributes: u32) -> impl Iterator<Item = u32> {
        let mut at = self.attribute_sets.get(attributes).first;
        std::iter::from_fn(move || {
            let index = at?;
            at = some(self.record(index).next);
            Some(index)
        })
    }

    /// All keys, in no order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key<B>> {
        self.first.iter().map(|&index| self.record(index).key)
    }

    /// The prefixes of the usual tables, each once.
    pub fn usual_prefixes(&self) -> impl Iterator<Item = IpPrefix> {
        let is_first = |key: &Key<B>| {
            usize::from(key.table) < USUAL.len() && !self.is_in(0..key.table, key.address, key.len)
        };
        self.keys().filter(is_first).map(Key::prefix)
    }

    /// Whether a usual table has this prefix.
    pub fn is_usual(&self, address: B, len: u8) -> bool {
        self.is_in(0..USUAL.len() as u16, address, len)
    }

    fn is_in(&self, mut tables: Range<u16>, address: B, len: u8) -> bool {
        tables.any(|table| self.has(Key { address, table, len }))
    }

    /// Whether a key has routes.
    pub fn has(&self, key: Key<B>) -> bool {
        self.list(key).next().is_some()
    }

    /// The keys of these tables, which are usual ones, that begin in `first..=last`.
    pub fn in_tables(&self, tables: Range<u16>, first: B, last: B) -> Vec<Key<B>> {
        if tables.start >= DEFAULT {
            let keys = &self.tables[usize::from(DEFAULT)].keys;
            let range = keys.range((first, 0)..=(last, B::WIDTH));
            return range.map(|&(address, len)| Key { address, table: DEFAULT, len }).collect();
        }
        let is_in =
            |key: &Key<B>| tables.contains(&key.table) && (first..=last).contains(&key.address);
        self.keys().filter(is_in).collect()
    }

    /// The keys of another table than local and main, in order.
    pub fn in_table(&self, table: u16) -> impl Iterator<Item = Key<B>> {
        let keys = self.tables[usize::from(table)].keys.iter();
        keys.map(move |&(address, len)| Key { address, table, len })
    }

    /// Reserves memory for `routes` more routes.
    pub fn reserve(&mut self, routes: usize) {
        let Routes { first, records, seed, .. } = self;
        first.reserve(routes, |&index| seed.hash_one(records[index as usize].key));
        self.records.reserve_exact(routes);
    }

    /// A route is now the first one of its key; returns the former, or `NONE`.
    fn set_first(&mut self, key: Key<B>, index: u32) -> u32 {
        let Routes { first, records, seed, .. } = self;
        let key_of = |index: u32| records[index as usize].key;
        let hash = seed.hash_one(key);
        match first.entry(hash, |&at| key_of(at) == key, |&at| seed.hash_one(key_of(at))) {
            Place::Occupied(mut place) => std::mem::replace(place.get_mut(), index),
            Place::Vacant(place) => {
                place.insert(index);
                NONE
            }
        }
    }

    fn record(&self, index: u32) -> &Record<B> {
        &self.records[index as usize]
    }

    /// A free record.
    fn take(&mut self) -> u32 {
        if let Some(index) = some(self.free) {
            self.free = self.record(index).next;
            return index;
        }
        if self.records.len() == self.records.capacity() {
            // An eighth more, not as much again: most of the memory is here.
            self.records.reserve_exact(self.records.len() / 8 + 64);
        }
        let key = Key { address: B::ZERO, table: 0, len: FREE };
        self.records.push(Record { key, attributes: 0, behind: NONE, next: NONE, previous: NONE });
        self.records.len() as u32 - 1
    }

    /// Adds a route to those with its body.
    fn link(&mut self, index: u32) {
        let entry = self.attribute_sets.get_mut(self.record(index).attributes);
        entry.count += 1;
        let next = entry.first.replace(index).unwrap_or(NONE);
        if let Some(next) = some(next) {
            self.records[next as usize].previous = index;
        }
        let record = &mut self.records[index as usize];
        (record.next, record.previous) = (next, NONE);
    }

    fn unlink(&mut self, index: u32) {
        let Record { attributes, next, previous, .. } = *self.record(index);
        let entry = self.attribute_sets.get_mut(attributes);
        entry.count -= 1;
        let is_last = entry.count == 0;
        match some(previous) {
            Some(previous) => self.records[previous as usize].next = next,
            None => entry.first = some(next),
        }
        if let Some(next) = some(next) {
            self.records[next as usize].previous = previous;
        }
        if is_last {
            self.attribute_sets.remove(attributes);
        }
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    use manylane_io::netlink::kernel::{Hop, Hops, Route};
    use proptest::prelude::*;

    use crate::constants::TABLE_MAIN;

    /// What is listed is what a plain list of the same edits has, through all three ways to it.
    #[test]
    fn edits_of_a_list_are_edits_of_the_table() {
        proptest!(ProptestConfig::with_cases(64), |(edits in prop::collection::vec((0u32..6, 0u32..4, 0u8..3), 0..60))| {
            let mut routes = Routes::<u32>::new();
            let table = routes.table_mut(TABLE_MAIN).expect("the first");
            let mut plain: Vec<(u32, u32)> = Vec::new();
            for (address, gateway, what) in edits {
                let key = Key { address: address << 8, table, len: 24 };
                let last = routes.list(key).last();
                match what {
                    0 => {
                        let (attributes, _) = routes.attribute_sets.of(&route(gateway));
                        routes.insert(key, last, attributes);
                        plain.push((address, gateway));
                    }
                    1 => if let Some(at) = plain.iter().rposition(|&(of, _)| of == address) {
                        routes.remove(last.expect("both have it"));
                        plain.remove(at);
                    },
                    _ => if let Some(at) = plain.iter().rposition(|&(of, _)| of == address) {
                        let (attributes, _) = routes.attribute_sets.of(&route(gateway));
                        routes.exchange(last.expect("both have it"), attributes);
                        plain[at].1 = gateway;
                    },
                }
            }
            prop_assert_eq!(routes.len(), plain.len());
            for address in 0..6 {
                let key = Key { address: address << 8, table, len: 24 };
                let listed = routes.list(key).map(|index| gateway_of(routes.attributes(index)));
                let wanted = plain.iter().filter(|&&(of, _)| of == address).map(|&(_, via)| via);
                prop_assert!(listed.eq(wanted));
            }
            let mut with_body: Vec<(u32, u32)> = Vec::new();
            for (number, entry) in routes.attribute_sets.iter() {
                prop_assert_eq!(routes.of_attributes(number).count(), entry.count as usize);
                with_body.extend(routes.of_attributes(number).map(|index| (routes.key(index).address >> 8, gateway_of(&entry.attributes))));
            }
            with_body.sort_unstable();
            plain.sort_unstable();
            prop_assert_eq!(with_body, plain);
            prop_assert_eq!(routes.attribute_sets.of_link(7).len(), routes.attribute_sets.len());
        });
    }

    fn route(gateway: u32) -> Route {
        let via = IpAddr::from([10, 0, 0, gateway as u8]);
        let hop = Hop { link: 7, gateway: Some(via), weight: 1, flags: 0, is_encapsulated: false };
        Route::new(IpAddr::from([0, 0, 0, 0]), 24, Hops::One(Some(hop)))
    }

    fn gateway_of(attributes: &RouteAttributes) -> u32 {
        let gateway = attributes.hops[0].gateway.and_then(u32::of).expect("it has one");
        gateway & 0xff
    }
}
