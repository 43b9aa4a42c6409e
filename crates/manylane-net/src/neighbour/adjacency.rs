//! What workers read of a neighbour: a ready-made link-layer header and what belongs to it.
//!
//! | side               | may                                                   |
//! |--------------------|-------------------------------------------------------|
//! | [`AdjacencyTable`] | publish, withdraw, reuse: the control thread          |
//! | [`Adjacencies`]    | load, be cloned and sent to every worker              |
//!
//! Three tables of plain words, which may be memory that a BPF program maps too:
//!
//! | table              | one word, or record, for | holds                                        |
//! |--------------------|--------------------------|----------------------------------------------|
//! | `current: u32`     | each slot                | the index of the record that is true now     |
//! | `records: 8 x u64` | each version             | 64 bytes, immutable while a reader may look  |
//! | `generation: u32`  | all                      | how often anything was published             |
//!
//! | word of a record | holds                                                                       |
//! |------------------|-----------------------------------------------------------------------------|
//! | 0, 1, 2          | 24 bytes of link-layer header as on the wire, right-aligned                 |
//! | 3                | state (bits 0 to 7), header length (8 to 15), egress (16 to 31), MTU (32 to 63) |
//! | 4, 5             | the neighbour's address as on the wire; IPv4 as `::ffff:a.b.c.d`            |
//! | 6                | slot (bits 0 to 31), generation when published (32 to 63)                   |
//! | 7                | the port the neighbour is on (bits 0 to 15)                                 |
//!
//! # The protocol
//!
//! A change takes a free record, stores its words, publishes its index in `current[slot]` (Release),
//! then bumps the generation (Release); the old record's index goes to limbo and is free again after a
//! grace period. A reader loads `current[slot]` (Acquire), then words of that record, inside one guard.
//! So (N1) what it loads was stored before the index it found, and is not stored to again before its
//! guard ends; a header is never half of one and half of another. (N2) The reader's side of a table has
//! no store. (N3) The generation is published last. A loom twin needs one slot, two records of two
//! words, one reader with a guard and a writer that changes the slot three times: the third change
//! meets a record in limbo.
//!
//! Record 0 is never reused: it is what a slot means before it is published and after it is withdrawn.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use manylane_frame::vocabulary::PortId;
use manylane_sync::rcu::{Domain, Guard, Index, Limbo};
use manylane_sync::words::{Words, WordsMut};

use super::{Key, Neighbour};
use crate::wire::ethernet::{HEADER_LEN as ETHERNET, Tags};

/// What a worker does with a packet for this neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum AdjacencyState {
    /// No address: hold the packet and report it missing.
    #[default]
    Unresolved = 0,
    /// Put the header in front and send.
    Resolved = 1,
    /// As `Resolved`, and report the use: the address is stale and wants a check.
    ResolvedReport = 2,
    /// No answer: drop the packet, report nothing.
    Failed = 3,
}

impl AdjacencyState {
    #[inline(always)]
    fn from_bits(bits: u64) -> AdjacencyState {
        match bits & 0xff {
            1 => AdjacencyState::Resolved,
            2 => AdjacencyState::ResolvedReport,
            3 => AdjacencyState::Failed,
            _ => AdjacencyState::Unresolved,
        }
    }

    /// Whether the record has a header to send with.
    #[inline(always)]
    pub fn is_resolved(self) -> bool {
        matches!(self, AdjacencyState::Resolved | AdjacencyState::ResolvedReport)
    }
}

/// A link-layer header, right-aligned in the 24 bytes before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    bytes: [u8; HEADER_MAX],
    len: u8,
}

/// The room for a link-layer header: Ethernet (14) with up to two VLAN tags (4 each), in whole words.
pub const HEADER_MAX: usize = 24;

impl Header {
    /// An Ethernet header.
    pub fn ethernet(destination: [u8; 6], source: [u8; 6], ether_type: u16) -> Header {
        let mut header = Header::default();
        header.push_front(&ether_type.to_be_bytes());
        header.push_front(&source);
        header.push_front(&destination);
        header
    }

    /// An Ethernet header with tags, as they stand between the source and the ether type.
    pub fn tagged(destination: [u8; 6], source: [u8; 6], tags: Tags, ether_type: u16) -> Header {
        let mut header = Header::default();
        header.push_front(&ether_type.to_be_bytes());
        header.push_front(tags.as_bytes());
        header.push_front(&source);
        header.push_front(&destination);
        header
    }

    fn push_front(&mut self, part: &[u8]) {
        let end = HEADER_MAX - usize::from(self.len);
        self.bytes[end - part.len()..end].copy_from_slice(part);
        self.len += part.len() as u8;
    }

    /// The header's own bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[HEADER_MAX - usize::from(self.len)..]
    }
}

/// What to publish for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Its neighbour.
    pub key: Key,
    /// The port whose device it is reached by: `key.port`, or what that is a VLAN of.
    pub egress: PortId,
    /// What a worker does with its packets.
    pub state: AdjacencyState,
    /// The bytes in front of the packet; empty unless the state is a resolved one.
    pub header: Header,
    /// The largest IP packet that may be sent to it.
    pub mtu: u32,
}

/// The memory that adjacencies live in.
///
/// For one cache line a record, `records` must begin on a multiple of 64 bytes, as a mapping does. A
/// box need not: then a record lies on two lines, and costs a reader both.
pub struct AdjacencyWords {
    /// One word for each slot.
    pub current: WordsMut<u32>,
    /// [`AdjacencyWords::records_len`] words, for as many slots.
    pub records: WordsMut<u64>,
}

/// Words in a record: 64 bytes.
pub const RECORD_WORDS: usize = 8;

impl AdjacencyWords {
    /// How many words `records` should have: every slot can be published, all of them can change
    /// within one grace period, and a few more.
    pub const fn records_len(slots: usize) -> usize {
        (1 + 2 * slots + SPARE_RECORDS) * RECORD_WORDS
    }

    /// Tables of this process's own.
    pub fn boxed(slots: usize) -> AdjacencyWords {
        AdjacencyWords {
            current: WordsMut::zeroed(slots),
            records: WordsMut::zeroed(AdjacencyWords::records_len(slots)),
        }
    }
}

const SPARE_RECORDS: usize = 64;

/// Every record is published or waits for its grace period. Try again after the workers' next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsInUse {
    /// The number of records.
    pub records: u32,
    /// How many of them wait for a grace period.
    pub waiting: u32,
}

impl fmt::Display for RecordsInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no adjacency record is free: {} of {} wait for a grace period; \
             publish again once every worker has finished its turn",
            self.waiting, self.records
        )
    }
}

impl std::error::Error for RecordsInUse {}

/// The writer's side: the control thread.
pub struct AdjacencyTable {
    words: AdjacencyWords,
    generation: WordsMut<u32>,
    free_records: Vec<u32>,
    quiet_slots: Vec<u32>,
    records_in_limbo: u32,
    limbo: Limbo<Retired>,
}

/// What no reader can find any more.
enum Retired {
    Record(u32),
    /// A withdrawn slot; its record goes before it.
    Slot(u32),
}

/// The generation stands in the middle of 256 bytes, so that no other allocation's writes can share
/// its cache line, or the pair of lines x86 fetches, with what every worker reads every turn.
const GENERATION_WORDS: usize = 64;
const GENERATION: usize = GENERATION_WORDS / 2;

/// The record of a slot that has none: unresolved.
const NOTHING: u32 = 0;

impl AdjacencyTable {
    /// A table with nothing published. What `words` held before is lost.
    ///
    /// # Panics
    ///
    /// When `words.records` is not made of whole records, or has fewer than one for each slot and two
    /// more: then a change could never be published.
    pub fn new(domain: Domain, mut words: AdjacencyWords) -> AdjacencyTable {
        let slots = words.current.len();
        assert_eq!(words.records.len() % RECORD_WORDS, 0, "a record is {RECORD_WORDS} words");
        let records = words.records.len() / RECORD_WORDS;
        assert!(records >= slots + 2, "{slots} slots need more than {records} records");
        let records = u32::try_from(records).expect("a record's index is 32 bits");
        for word in 0..RECORD_WORDS {
            words.records.store(word, 0);
        }
        for slot in 0..slots {
            words.current.publish(slot, NOTHING);
        }
        AdjacencyTable {
            words,
            generation: WordsMut::zeroed(GENERATION_WORDS),
            free_records: (1..records).rev().collect(),
            quiet_slots: Vec::new(),
            records_in_limbo: 0,
            // Each record and each slot is in limbo once at most: `retire` cannot refuse.
            limbo: Limbo::new(domain, records as usize + slots),
        }
    }

    /// A readers' side.
    pub fn reader(&self) -> Adjacencies {
        Adjacencies {
            current: self.words.current.reader(),
            records: self.words.records.reader(),
            generation: self.generation.reader(),
        }
    }

    /// Lets workers see `rewrite` for `slot` from now on; each packet sees the old or the new one.
    pub fn publish(&mut self, slot: u32, rewrite: &Rewrite) -> Result<(), RecordsInUse> {
        self.reclaim();
        let Some(record) = self.free_records.pop() else {
            return Err(RecordsInUse {
                records: (self.words.records.len() / RECORD_WORDS) as u32,
                waiting: self.records_in_limbo,
            });
        };
        let words = encode(slot, self.generation().wrapping_add(1), rewrite);
        for (at, word) in (record as usize * RECORD_WORDS..).zip(words) {
            self.words.records.store(at, word);
        }
        self.replace(slot, record);
        Ok(())
    }

    /// Takes `slot` away from a neighbour that is gone. First make sure that no route leads there any
    /// more; then, once no worker can hold the slot, [`AdjacencyTable::next_quiet_slot`] returns it.
    pub fn withdraw(&mut self, slot: u32) {
        self.replace(slot, NOTHING);
        self.retire(Retired::Slot(slot));
    }

    /// A withdrawn slot whose grace period is over, for [`Table::free`](super::Table::free). Call
    /// until `None`.
    pub fn next_quiet_slot(&mut self) -> Option<u32> {
        self.reclaim();
        self.quiet_slots.pop()
    }

    /// How often anything was published.
    pub fn generation(&self) -> u32 {
        self.generation.load(GENERATION)
    }

    /// Lets workers look again at the packets they hold: a neighbour can be found where it was not before, such as by a
    /// new route.
    pub fn announce(&mut self) {
        self.generation.publish(GENERATION, self.generation().wrapping_add(1));
    }

    fn replace(&mut self, slot: u32, record: u32) {
        let old = self.words.current.load(slot as usize);
        self.words.current.publish(slot as usize, record);
        self.announce();
        if old != NOTHING {
            self.records_in_limbo += 1;
            self.retire(Retired::Record(old));
        }
    }

    fn retire(&mut self, object: Retired) {
        let refused = self.limbo.retire(object).is_err();
        assert!(!refused, "the limbo has room for every record: some slot was withdrawn twice");
    }

    fn reclaim(&mut self) {
        while let Some(object) = self.limbo.reclaim() {
            match object {
                Retired::Record(record) => {
                    self.records_in_limbo -= 1;
                    self.free_records.push(record);
                }
                Retired::Slot(slot) => self.quiet_slots.push(slot),
            }
        }
    }
}

fn encode(slot: u32, generation: u32, rewrite: &Rewrite) -> [u64; RECORD_WORDS] {
    let [h0, h1, h2] = words_of(rewrite.header.bytes);
    let facts = rewrite.state as u64
        | u64::from(rewrite.header.len) << 8
        | u64::from(rewrite.egress.0) << 16
        | u64::from(rewrite.mtu) << 32;
    let addr = match rewrite.key.addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let [a0, a1] = words_of(addr.octets());
    let version = u64::from(slot) | u64::from(generation) << 32;
    [h0, h1, h2, facts, a0, a1, version, rewrite.key.port.0.into()]
}

/// `bytes` as words that have them in this order in memory.
fn words_of<const BYTES: usize, const WORDS: usize>(bytes: [u8; BYTES]) -> [u64; WORDS] {
    let (chunks, rest) = bytes.as_chunks::<8>();
    assert!(chunks.len() == WORDS && rest.is_empty(), "{BYTES} bytes are not {WORDS} words");
    std::array::from_fn(|word| u64::from_ne_bytes(chunks[word]))
}

/// The readers' side: one for each worker.
#[derive(Clone)]
pub struct Adjacencies {
    current: Words<u32>,
    records: Words<u64>,
    generation: Words<u32>,
}

impl Adjacencies {
    /// How often anything was published, wrapping. A worker reads it before anything else in its turn:
    /// if it is not what the last turn read, what the worker holds may have its answer (N3), and an answer that arrives
    /// later in the turn changes it again.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation.load(GENERATION)
    }

    /// What is true of a neighbour now. Two loads on the way and four of one cache line; no store, no
    /// lock, no second try (N2).
    ///
    /// # Panics
    ///
    /// When the index was not made from a slot of this table.
    #[inline]
    pub fn load<'g>(&self, guard: Guard<'g>, index: Index<'g, Neighbour>) -> Adjacency<'g> {
        let record = self.current.load(index.raw() as usize);
        let [a, b, c, facts] = self.records.load_array(record as usize * RECORD_WORDS);
        Adjacency { header: [a, b, c], facts, record: Index::new(guard, record) }
    }

    /// The neighbour's current record, whose cache line is prefetched. Without a neighbour, a record that is never
    /// [`plain`](Adjacencies::plain).
    ///
    /// # Panics
    ///
    /// When the index was not made from a slot of this table.
    #[inline(always)]
    pub fn prefetch<'g>(
        &self,
        guard: Guard<'g>,
        index: Option<Index<'g, Neighbour>>,
    ) -> Index<'g, Record> {
        let record = index.map_or(NOTHING, |index| self.current.load(index.raw() as usize));
        self.records.prefetch(record as usize * RECORD_WORDS);
        Index::new(guard, record)
    }

    /// The adjacency in a record, if packets may simply be sent behind its Ethernet header: it is
    /// [`AdjacencyState::Resolved`], and has no tag. One comparison.
    ///
    /// # Panics
    ///
    /// When the index is of no record of this table.
    #[inline(always)]
    pub fn plain<'g>(&self, record: Index<'g, Record>) -> Option<Adjacency<'g>> {
        let [b, c, facts] = self.records.load_array(record.raw() as usize * RECORD_WORDS + 1);
        // Of an Ethernet header's 14 bytes none is in the first word.
        let is_plain = facts as u16 == AdjacencyState::Resolved as u16 | (ETHERNET as u16) << 8;
        is_plain.then_some(Adjacency { header: [0, b, c], facts, record })
    }

    /// How many neighbours the table has places for.
    pub fn slots(&self) -> usize {
        self.current.len()
    }

    /// Which neighbour `adjacency` was loaded for.
    #[inline]
    pub fn key(&self, adjacency: Adjacency<'_>) -> Key {
        Key { port: self.port(adjacency), addr: self.addr(adjacency) }
    }

    /// The port the neighbour is on, from the record that `adjacency` was loaded from.
    #[inline]
    pub fn port(&self, adjacency: Adjacency<'_>) -> PortId {
        let base = adjacency.record.raw() as usize * RECORD_WORDS;
        PortId(self.records.load(base + 7) as u16)
    }

    /// The neighbour's address, from the record that `adjacency` was loaded from: what to hold a packet
    /// for. `::` where nothing is published.
    #[inline]
    pub fn addr(&self, adjacency: Adjacency<'_>) -> IpAddr {
        let base = adjacency.record.raw() as usize * RECORD_WORDS;
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&self.records.load(base + 4).to_ne_bytes());
        octets[8..].copy_from_slice(&self.records.load(base + 5).to_ne_bytes());
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    }

    /// The generation at which the record that `adjacency` was loaded from was published.
    pub fn published(&self, adjacency: Adjacency<'_>) -> u32 {
        (self.records.load(adjacency.record.raw() as usize * RECORD_WORDS + 6) >> 32) as u32
    }
}

/// One adjacency, by value. Branded: its record may be another's after the turn.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency<'g> {
    header: [u64; 3],
    facts: u64,
    record: Index<'g, Record>,
}

/// What a record is: a mark for the type of an index, never a value.
pub enum Record {}

impl Adjacency<'_> {
    /// What to do with a packet.
    #[inline(always)]
    pub fn state(self) -> AdjacencyState {
        AdjacencyState::from_bits(self.facts)
    }

    /// The header, right-aligned: the last [`Adjacency::header_len`] bytes are to stand before the IP
    /// header. Copying all 24 is one fixed-size copy into the headroom.
    #[inline(always)]
    pub fn header(self) -> [u8; HEADER_MAX] {
        let mut bytes = [0; HEADER_MAX];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(self.header) {
            *chunk = word.to_ne_bytes();
        }
        bytes
    }

    /// Writes the last 14 bytes of the header, an Ethernet header without a tag, by two stores, the second over the end
    /// of the first. (Through `header` they would be stored in words and read across them, which the processor does not
    /// forward.)
    #[inline(always)]
    pub fn write_ethernet(self, to: &mut [u8; 14]) {
        let [_, b, c] = self.header.map(u64::from_le);
        if let Some(first) = to.first_chunk_mut() {
            *first = (b >> 16).to_le_bytes();
        }
        if let Some(last) = to.last_chunk_mut() {
            *last = c.to_le_bytes();
        }
    }

    /// How long the header is; 0 unless resolved.
    #[inline(always)]
    pub fn header_len(self) -> u8 {
        (self.facts >> 8) as u8
    }

    /// Writes an Ethernet header: this one without its tags.
    pub fn write_untagged(self, to: &mut [u8; ETHERNET]) {
        let header = self.header();
        let start = HEADER_MAX.saturating_sub(self.header_len().into()).min(HEADER_MAX - ETHERNET);
        to[..12].copy_from_slice(&header[start..start + 12]);
        to[12..].copy_from_slice(&header[HEADER_MAX - 2..]);
    }

    /// The port whose device packets leave by.
    #[inline(always)]
    pub fn egress(self) -> PortId {
        PortId((self.facts >> 16) as u16)
    }

    /// The largest IP packet that may be sent to it.
    #[inline(always)]
    pub fn mtu(self) -> u32 {
        (self.facts >> 32) as u32
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
