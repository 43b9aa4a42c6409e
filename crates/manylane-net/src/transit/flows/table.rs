//! The writer of the flow table.

use std::collections::VecDeque;

use manylane_sync::rcu::{Domain, Slots};
use manylane_sync::words::{Words, WordsMut};

use super::owners::Owners;
use super::translate::differences;
use super::{ADDRESS_WORDS, BUCKET, ENTRY_WORDS, Key, Tuple, entry, words};
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
    /// The homes of the connection's hash are taken, and the buckets of the index that would lead elsewhere are full.
    Bucket,
    /// A flow has this tuple, or the index leads to one with the same hash.
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
/// 1. The ends of an entry are those of its flow exactly while that is in use; else they are 0, or `entry::REMOVED`, and
///    match no packet's.
/// 2. Words of an entry other than its state and that bit are written only while no reader can hold it: before its ends
///    are there, and after a grace period behind the bit.
/// 3. An entry that is not in a home of its hash has a place of the index, which leads to it.
pub struct FlowsMut {
    index: WordsMut<u64>,
    pub(super) entries: WordsMut<u64>,
    addresses: WordsMut<u64>,
    reader: FlowsReader,
    numbers: Slots,
    pub(super) owners: Owners,
    seed: u64,
    /// Flows that were taken out, in that order, which is the one in which they are free again. Until their grace period
    /// is over, programs may count packets of them.
    waiting: VecDeque<u32>,
    /// What passed in those that are free again, by direction; `None` where no reader asks.
    ended: Option<Vec<[FlowUse; 2]>>,
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
        FlowsMut {
            index,
            entries,
            addresses,
            reader,
            numbers: Slots::new(flows as u32, domain, None),
            owners: Owners::new(flows),
            seed,
            waiting: VecDeque::new(),
            ended: None,
        }
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
        if self.numbers.levels().free == 0 {
            self.reclaim_numbers();
        }
        let homes = hashes.map(|hash| self.reader.homes(hash));
        let original = self.owners.find(homes[0], None).ok_or(FlowsFull::Flows)?;
        let reply = self.owners.find(homes[1], Some(original)).ok_or(FlowsFull::Flows)?;
        let entries = [original, reply];
        let places =
            self.places_for(hashes, [0, 1].map(|side| !homes[side].contains(&entries[side])))?;
        let number = self.numbers.take().ok_or(FlowsFull::Flows)?;
        self.owners.take(number, entries);
        for (direction, tuple) in tuples.into_iter().enumerate() {
            self.write(entries[direction], tuple, tuples[1 - direction].inverted());
        }
        for direction in [0, 1] {
            let ends =
                keys[direction].ends | u64::from(entries[1 - direction]) << entry::OTHER_FROM;
            // Release: pairs with the Acquire load of ends in `FlowsReader::ends`, and with the addresses that a program
            // computes from the ends. Both see the words above, of both entries.
            self.entries.publish(entries[direction] as usize * ENTRY_WORDS + entry::ENDS, ends);
            if let Some(place) = places[direction] {
                let word =
                    u64::from(tag(hashes[direction])) << 32 | u64::from(entries[direction] + 1);
                // Relaxed: the index says where to look. A reader compares what it finds.
                self.index.store(place, word);
            }
        }
        Ok(FlowNumber(number))
    }

    /// Writes an entry that no reader finds: all words but its ends.
    fn write(&mut self, entry: u32, tuple: Tuple, to: Tuple) {
        let [key, new] = [tuple, to].map(Key::of);
        let [addresses, ports] = differences(tuple, to).map(u64::from);
        let is_ipv6 = tuple.is_ipv6();
        let mut words = [0; ENTRY_WORDS];
        if !is_ipv6 {
            words[entry::ADDRESSES] = key.addresses[0];
            words[entry::NEW_ADDRESSES] = new.addresses[0];
        }
        words[entry::NEW_PORTS] = new.ends & 0xffff_ffff | addresses << 32 | ports << 48;
        words[entry::STATE] = if tuple != to { entry::TRANSLATED << 48 } else { 0 };
        for (at, word) in words.into_iter().enumerate().filter(|&(at, _)| at != entry::ENDS) {
            // Relaxed: invariant 2. A reader that has the entry has loaded the ends that `insert` publishes behind these.
            // Explored by `a_program_follows_a_connection_whole_or_not_at_all`, as are the grace periods.
            self.entries.store(entry as usize * ENTRY_WORDS + at, word);
        }
        for (at, word) in (entry as usize * ADDRESS_WORDS..).zip(key.addresses) {
            self.addresses.store(at, if is_ipv6 { word } else { 0 });
        }
    }

    /// Lets packets of a direction follow the flow, by these ports, as long as the generation is in force; or none, with
    /// generation 0.
    pub fn approve(
        &mut self,
        number: FlowNumber,
        direction: Direction,
        generation: u32,
        [ingress, egress]: [u8; 2],
    ) {
        let at = self.first_word(number, direction) + entry::STATE;
        let flags = self.entries.load(at) & (0xffff << 48);
        let ports = u64::from(ingress) << 32 | u64::from(egress) << 40;
        // Release: pairs with the Acquire load in `FlowsReader::state`. A reader that follows the approval sees what the
        // approval rests on. Explored by `no_program_follows_what_was_approved_before_the_generation_was_raised`.
        self.entries.publish(at, flags | ports | u64::from(generation));
    }

    /// What a direction was approved for: the generation, and the ports.
    pub fn approved(&self, number: FlowNumber, direction: Direction) -> (u32, [u8; 2]) {
        let at = self.first_word(number, direction) + entry::STATE;
        let state = self.entries.load(at);
        (state as u32, [(state >> 32) as u8, (state >> 40) as u8])
    }

    /// Takes a flow out. Its packets are the kernel's from now on, and its number waits for its grace period.
    ///
    /// # Panics
    ///
    /// Without such a flow.
    pub fn remove(&mut self, number: FlowNumber) {
        for direction in Direction::BOTH {
            let entry = self.owners.entry(number, direction);
            let key = self.reader.key(entry);
            let hash = key.hash(self.seed);
            if !self.reader.homes(hash).contains(&entry) {
                let place = places(hash, self.index.len())
                    .find(|&place| self.index.load(place) as u32 == entry + 1);
                self.index.store(place.expect("invariant 3"), 0);
            }
            let at = self.first_word(number, direction) + entry::ENDS;
            // Relaxed: a reader that still finds the entry follows it as one that found it before; so all else stays.
            self.entries.store(at, self.entries.load(at) | entry::REMOVED);
        }
        self.numbers.retire(number.0);
        self.waiting.push_back(number.0);
    }

    /// Keeps what passed in flows that are taken out, until [`take_ended`](FlowsMut::take_ended): those whose grace periods
    /// end from now on.
    pub fn keep_ends(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// What passed in flows that were taken out, by direction, to the last packet: their grace periods are over. In the
    /// order in which they were taken out, each once.
    pub fn take_ended(&mut self) -> Vec<[FlowUse; 2]> {
        self.ended.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The flow, and its direction, of packets with this tuple.
    pub fn find(&self, tuple: Tuple) -> Option<(FlowNumber, Direction)> {
        self.reader.find(&Key::of(tuple), self.seed).map(|entry| self.owners.flow(entry))
    }

    /// The tuple of a direction's packets, as they arrive.
    pub fn tuple(&self, number: FlowNumber, direction: Direction) -> Tuple {
        self.reader.key(self.owners.entry(number, direction)).tuple()
    }

    /// The hash of a direction's tuple, by which programs look it up.
    pub fn hash(&self, number: FlowNumber, direction: Direction) -> u64 {
        Key::of(self.tuple(number, direction)).hash(self.seed)
    }

    /// What has passed in a direction.
    pub fn use_of(&self, number: FlowNumber, direction: Direction) -> FlowUse {
        let first = self.first_word(number, direction);
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

    /// Takes back numbers and their entries; what has passed in their flows is read before any is used again.
    fn reclaim_numbers(&mut self) {
        let freed = self.numbers.reclaim();
        for _ in 0..freed {
            let number = self.waiting.pop_front().expect("as many wait as were taken out");
            let use_of =
                Direction::BOTH.map(|direction| self.use_of(FlowNumber(number), direction));
            self.owners.release(number);
            if let Some(ended) = &mut self.ended {
                ended.push(use_of);
            }
        }
    }

    /// Where programs look for a hash first.
    #[cfg(all(test, not(manylane_loom)))]
    pub(super) fn homes(&self, hash: u64) -> [u32; 2] {
        self.reader.homes(hash)
    }

    /// The first word of a direction's entry.
    pub(super) fn first_word(&self, number: FlowNumber, direction: Direction) -> usize {
        self.owners.entry(number, direction) as usize * ENTRY_WORDS
    }

    /// Places of the index for those directions that have no home.
    fn places_for(
        &self,
        hashes: [u64; 2],
        strays: [bool; 2],
    ) -> Result<[Option<usize>; 2], FlowsFull> {
        let original = strays[0].then(|| self.place(hashes[0], None)).transpose()?;
        let reply = strays[1].then(|| self.place(hashes[1], original)).transpose()?;
        let bucket = |place: usize| place / BUCKET / 2;
        // The first of two equal tags would hide the other.
        if tag(hashes[0]) == tag(hashes[1])
            && original.map(bucket) == reply.map(bucket)
            && original.is_some()
        {
            return Err(FlowsFull::Taken);
        }
        Ok([original, reply])
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

    /// The entry with this key: in a home of its hash, or where the index leads.
    pub fn find(&self, key: &Key, seed: u64) -> Option<u32> {
        let hash = key.hash(seed);
        let home = self.homes(hash).into_iter().find(|&entry| self.has(entry, key));
        home.or_else(|| self.stray(hash).filter(|&entry| self.has(entry, key)))
    }

    /// Whether an entry has this key; as in the program, addresses are loaded only of one with these ends.
    fn has(&self, entry: u32, key: &Key) -> bool {
        self.ends(entry) == key.ends && self.addresses(entry, key.is_ipv6()) == key.addresses
    }

    /// Where the entry of a hash is, if it is free when the flow begins: two lines side by side, the likelier one first.
    pub fn homes(&self, hash: u64) -> [u32; 2] {
        let entries = (self.entries.len() / ENTRY_WORDS) as u64;
        let home = (((hash & 0xffff_ffff) * entries) >> 32) as u32;
        [home, home ^ 1]
    }

    /// The entry to which the index leads.
    fn stray(&self, hash: u64) -> Option<u32> {
        let word = places(hash, self.index.len())
            .map(|place| self.index.load(place))
            .find(|word| (word >> 32) as u32 == tag(hash))?;
        let entry = (word as u32).checked_sub(1)?;
        ((entry as usize) < self.entries.len() / ENTRY_WORDS).then_some(entry)
    }

    /// The key of an entry; of a free one none that a packet has.
    pub fn key(&self, entry: u32) -> Key {
        let key = Key { addresses: [0; 4], ends: self.ends(entry) };
        Key { addresses: self.addresses(entry, key.is_ipv6()), ..key }
    }

    /// What identifies an entry beside its addresses, and whether its flow was taken out. Loaded first, with Acquire: the
    /// other words are those of the flow with these ends.
    fn ends(&self, entry: u32) -> u64 {
        let word = self.entries.load(entry as usize * ENTRY_WORDS + entry::ENDS);
        word & (entry::REMOVED | (entry::REMOVED - 1))
    }

    fn addresses(&self, entry: u32, is_ipv6: bool) -> [u64; 4] {
        match is_ipv6 {
            true => self.addresses.load_array(entry as usize * ADDRESS_WORDS),
            false => {
                let at = entry as usize * ENTRY_WORDS + entry::ADDRESSES;
                [self.entries.load(at), 0, 0, 0]
            }
        }
    }

    /// The entry of the other direction.
    pub fn other(&self, entry: u32) -> u32 {
        let ends = self.entries.load(entry as usize * ENTRY_WORDS + entry::ENDS);
        (ends >> entry::OTHER_FROM) as u32
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
