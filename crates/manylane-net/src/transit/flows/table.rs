//! The writer of the flow table.

use std::collections::VecDeque;

use manylane_sync::rcu::{Domain, Slots};
use manylane_sync::words::{Words, WordsMut};

use super::translate::differences;
use super::{BUCKET, ENTRY_WORDS, Key, Tuple, entry, words};
use crate::transit::layout::control;

/// Which packets are forwarded only with a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Required {
    /// Those of IPv4.
    pub ipv4: bool,
    /// Those of IPv6.
    pub ipv6: bool,
}

impl Required {
    /// The word of `control` that says so, and which generation of flows may be followed.
    pub(in crate::transit) fn word(self, generation: u32) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        bit(self.ipv4, control::FLOWS_V4)
            | bit(self.ipv6, control::FLOWS_V6)
            | u64::from(generation) << 32
    }
}

/// A flow of the table. Numbers are used again, after a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowNumber(pub u32);

/// A direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// As the connection's opener sends.
    Original,
    /// Replies.
    Reply,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Original, Direction::Reply];
}

/// A connection that is to have a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFlow {
    /// Of packets of the original direction, as they arrive.
    pub original: Tuple,
    /// Of replies, as they arrive.
    pub reply: Tuple,
}

/// The table has no place for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowsFull {
    /// All flows are in use, or wait for their grace period.
    Flows,
    /// The buckets of the connection's hash are full.
    Bucket,
    /// A flow has this tuple, or one with the same hash.
    Taken,
}

/// What has passed in a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowUse {
    /// Packets forwarded.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// The last 31 bits of the tick at which the last packet was forwarded; 0 if none was.
    pub used: u32,
    /// The last packet forwarded had a payload.
    pub has_payload: bool,
    /// Packets that the kernel got, modulo 2^16.
    pub left: u16,
    /// The kernel has the connection: it is being opened, closed or reset.
    pub closes: bool,
}

/// The writer of the flow table. Programs and readers look at it meanwhile.
///
/// # Invariants
///
/// 1. A place of the index leads to an entry exactly while its flow is in use.
/// 2. Words of an entry other than its state are written only while no place leads to it, and no reader can hold its
///    number: between `take` and the first place, and after a grace period behind the last.
pub struct FlowsMut {
    index: WordsMut<u64>,
    pub(super) entries: WordsMut<u64>,
    addresses: WordsMut<u64>,
    reader: FlowsReader,
    numbers: Slots,
    seed: u64,
    ends: Option<Ends>,
}

/// Flows that were taken out: programs may count packets of them until their grace period is over.
#[derive(Debug, Default)]
struct Ends {
    /// In the order in which they were retired, which is that in which they are free again.
    waiting: VecDeque<u32>,
    /// What passed in those that are free again, by direction.
    over: Vec<[FlowUse; 2]>,
}

impl FlowsMut {
    /// The writer of a table, all words 0, for as many flows as it has entries for.
    pub(in crate::transit) fn new(
        words_of: [WordsMut<u64>; 3],
        domain: Domain,
        seed: u64,
    ) -> FlowsMut {
        let reader = FlowsReader::of(&words_of);
        let [index, entries, addresses] = words_of;
        let flows = entries.len() / (2 * ENTRY_WORDS);
        let lens = [index.len(), entries.len(), addresses.len()];
        assert_eq!(lens, words(flows), "words of the flow table");
        let numbers = Slots::new(flows as u32, domain, None);
        FlowsMut { index, entries, addresses, reader, numbers, seed, ends: None }
    }

    /// Flows that the table has room for.
    pub fn capacity(&self) -> usize {
        self.entries.len() / (2 * ENTRY_WORDS)
    }

    /// Flows in use.
    pub fn len(&self) -> usize {
        self.numbers.levels().in_use
    }

    /// Whether no flow is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a flow, whose packets are the kernel's until it is [approved](FlowsMut::approve), but counted as left to it.
    pub fn insert(&mut self, flow: NewFlow) -> Result<FlowNumber, FlowsFull> {
        let tuples = [flow.original, flow.reply];
        let keys = tuples.map(Key::of);
        let hashes = keys.map(|key| key.hash(self.seed));
        if self.find(flow.original).is_some() || self.find(flow.reply).is_some() {
            return Err(FlowsFull::Taken);
        }
        let [original, reply] = [self.place(hashes[0], None)?, self.place(hashes[1], None)?];
        // Both may have found the same place.
        let reply = if reply == original { self.place(hashes[1], Some(original))? } else { reply };
        if tag(hashes[0]) == tag(hashes[1]) && reply / BUCKET / 2 == original / BUCKET / 2 {
            return Err(FlowsFull::Taken);
        }
        if self.numbers.levels().free == 0 {
            self.reclaim_numbers();
        }
        let number = self.numbers.take().ok_or(FlowsFull::Flows)?;
        let is_ipv6 = flow.original.is_ipv6();
        for (direction, tuple) in tuples.into_iter().enumerate() {
            let to = tuples[1 - direction].inverted();
            let is_translated = tuple != to;
            let [key, new] = [keys[direction], Key::of(to)];
            let [addresses, ports] = differences(tuple, to).map(u64::from);
            let first = (number as usize * 2 + direction) * ENTRY_WORDS;
            let mut words = [0; ENTRY_WORDS];
            if !is_ipv6 {
                words[entry::ADDRESSES] = key.addresses[0];
                words[entry::NEW_ADDRESSES] = new.addresses[0];
            }
            words[entry::ENDS] = key.ends;
            words[entry::NEW_PORTS] = new.ends & 0xffff_ffff | addresses << 32 | ports << 48;
            words[entry::STATE] = if is_translated { entry::TRANSLATED << 48 } else { 0 };
            for (at, word) in (first..).zip(words) {
                // Relaxed: invariant 2. A reader that finds the entry has loaded a place that `publish` wrote below.
                // Explored by `a_program_follows_a_connection_whole_or_not_at_all`, as are the places and grace periods.
                self.entries.store(at, word);
            }
            for (at, word) in (number as usize * 8 + direction * 4..).zip(key.addresses) {
                self.addresses.store(at, if is_ipv6 { word } else { 0 });
            }
        }
        for (direction, (place, hash)) in
            [(original, hashes[0]), (reply, hashes[1])].into_iter().enumerate()
        {
            let word = u64::from(number * 2 + direction as u32 + 1);
            // Release: pairs with the Acquire load of a place in `FlowsReader::find`, and with the address that a program
            // computes from the place. Both see the words above.
            self.index.publish(place, u64::from(tag(hash)) << 32 | word);
        }
        Ok(FlowNumber(number))
    }

    /// Lets packets of a direction follow the flow, by these ports, as long as the generation is in force; or none, with
    /// generation 0.
    pub fn approve(
        &mut self,
        FlowNumber(number): FlowNumber,
        direction: Direction,
        generation: u32,
        [ingress, egress]: [u8; 2],
    ) {
        let at = (number as usize * 2 + direction as usize) * ENTRY_WORDS + entry::STATE;
        let flags = self.entries.load(at) & (0xffff << 48);
        let ports = u64::from(ingress) << 32 | u64::from(egress) << 40;
        // Release: pairs with the Acquire load in `FlowsReader::state`. A reader that follows the approval sees what the
        // approval rests on. Explored by `no_program_follows_what_was_approved_before_the_generation_was_raised`.
        self.entries.publish(at, flags | ports | u64::from(generation));
    }

    /// What a direction was approved for: the generation, and the ports.
    pub fn approved(&self, FlowNumber(number): FlowNumber, direction: Direction) -> (u32, [u8; 2]) {
        let at = (number as usize * 2 + direction as usize) * ENTRY_WORDS + entry::STATE;
        let state = self.entries.load(at);
        (state as u32, [(state >> 32) as u8, (state >> 40) as u8])
    }

    /// Takes a flow out. Its packets are the kernel's from now on, and its number waits for its grace period.
    ///
    /// # Panics
    ///
    /// Without such a flow.
    pub fn remove(&mut self, FlowNumber(number): FlowNumber) {
        for direction in Direction::BOTH {
            let tuple = self.tuple(FlowNumber(number), direction);
            let entry = number * 2 + direction as u32;
            let hash = Key::of(tuple).hash(self.seed);
            let place = places(hash, self.index.len())
                .find(|&place| self.index.load(place) as u32 == entry + 1);
            self.index.publish(place.expect("invariant 1"), 0);
        }
        self.numbers.retire(number);
        if let Some(ends) = &mut self.ends {
            ends.waiting.push_back(number);
        }
    }

    /// Keeps what passed in flows that are taken out from now on, until [`take_ended`](FlowsMut::take_ended). To be called
    /// before any flow has been taken out.
    pub fn keep_ends(&mut self) {
        self.ends.get_or_insert_default();
    }

    /// What passed in flows that were taken out, by direction, to the last packet: their grace periods are over. In the
    /// order in which they were taken out, each once.
    pub fn take_ended(&mut self) -> Vec<[FlowUse; 2]> {
        self.ends.as_mut().map(|ends| std::mem::take(&mut ends.over)).unwrap_or_default()
    }

    /// The flow, and its direction, of packets with this tuple.
    pub fn find(&self, tuple: Tuple) -> Option<(FlowNumber, Direction)> {
        let entry = self.reader.find(&Key::of(tuple), self.seed)?;
        let direction = if entry % 2 == 0 { Direction::Original } else { Direction::Reply };
        Some((FlowNumber(entry / 2), direction))
    }

    /// The tuple of a direction's packets, as they arrive.
    pub fn tuple(&self, FlowNumber(number): FlowNumber, direction: Direction) -> Tuple {
        self.reader.key(number * 2 + direction as u32).tuple()
    }

    /// The hash of a direction's tuple, by which programs look it up.
    pub fn hash(&self, number: FlowNumber, direction: Direction) -> u64 {
        Key::of(self.tuple(number, direction)).hash(self.seed)
    }

    /// What has passed in a direction.
    pub fn use_of(&self, FlowNumber(number): FlowNumber, direction: Direction) -> FlowUse {
        let first = (number as usize * 2 + direction as usize) * ENTRY_WORDS;
        let word = self.entries.load(first + entry::USE);
        FlowUse {
            packets: self.entries.load(first + entry::PACKETS),
            bytes: self.entries.load(first + entry::BYTES),
            used: word as u32 >> 1,
            has_payload: word & 1 == 1,
            left: (word >> 32) as u16,
            closes: word >> 48 != 0,
        }
    }

    /// Takes back numbers whose grace period is over, and begins one for those that were taken out since. Says how many
    /// wait: while any do, the caller has to run one.
    pub fn reclaim(&mut self) -> usize {
        self.reclaim_numbers();
        let levels = self.numbers.levels();
        levels.retired + levels.in_flight
    }

    /// Takes back numbers; what has passed in their flows is read before any is used again.
    fn reclaim_numbers(&mut self) {
        let freed = self.numbers.reclaim();
        let Some(mut ends) = self.ends.take() else { return };
        for number in ends.waiting.drain(..freed.min(ends.waiting.len())) {
            let use_of = |direction| self.use_of(FlowNumber(number), direction);
            ends.over.push(Direction::BOTH.map(use_of));
        }
        self.ends = Some(ends);
    }

    /// A place for a hash that is not `but`.
    fn place(&self, hash: u64, but: Option<usize>) -> Result<usize, FlowsFull> {
        let mut free = None;
        for place in places(hash, self.index.len()) {
            match self.index.load(place) {
                0 if Some(place) != but => free = free.or(Some(place)),
                word if (word >> 32) as u32 == tag(hash) => return Err(FlowsFull::Taken),
                _ => {}
            }
        }
        free.ok_or(FlowsFull::Bucket)
    }
}

/// The readers' side of the flow table.
#[derive(Clone)]
pub(in crate::transit) struct FlowsReader {
    index: Words<u64>,
    entries: Words<u64>,
    addresses: Words<u64>,
}

impl FlowsReader {
    /// The readers' side of these words.
    pub fn of([index, entries, addresses]: &[WordsMut<u64>; 3]) -> FlowsReader {
        let [index, entries, addresses] = [index, entries, addresses].map(WordsMut::reader);
        FlowsReader { index, entries, addresses }
    }

    /// The entry with this key.
    pub fn find(&self, key: &Key, seed: u64) -> Option<u32> {
        let hash = key.hash(seed);
        let word = places(hash, self.index.len())
            .map(|place| self.index.load(place))
            .find(|word| (word >> 32) as u32 == tag(hash))?;
        let entry = (word as u32).checked_sub(1)?;
        let is_there = (entry as usize) < self.entries.len() / ENTRY_WORDS;
        (is_there && self.key(entry) == *key).then_some(entry)
    }

    /// The key of an entry.
    pub fn key(&self, entry: u32) -> Key {
        let first = entry as usize * ENTRY_WORDS;
        let ends = self.entries.load(first + entry::ENDS);
        let mut key = Key { addresses: [0; 4], ends };
        if key.is_ipv6() {
            key.addresses = self.addresses.load_array(entry as usize * 4);
        } else {
            key.addresses[0] = self.entries.load(first + entry::ADDRESSES);
        }
        key
    }

    /// The word of an entry's state, and whether the kernel has the connection.
    pub fn state(&self, entry: u32) -> (u64, bool) {
        let first = entry as usize * ENTRY_WORDS;
        (self.entries.load(first + entry::STATE), self.entries.load(first + entry::USE) >> 48 != 0)
    }

    /// By how much sums grow for an entry's addresses and ports.
    pub fn differences(&self, entry: u32) -> [u16; 2] {
        let word = self.entries.load(entry as usize * ENTRY_WORDS + entry::NEW_PORTS);
        [(word >> 32) as u16, (word >> 48) as u16]
    }
}

/// The places where a hash may be.
fn places(hash: u64, words: usize) -> impl Iterator<Item = usize> {
    let first = hash as usize & (words - 1) & !(BUCKET - 1);
    (first..first + BUCKET).chain((first ^ BUCKET)..(first ^ BUCKET) + BUCKET)
}

/// What of a hash is in its place; never 0.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
