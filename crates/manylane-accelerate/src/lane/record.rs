//! What the lane remembers of an entry, beside the table.

use std::collections::{BTreeMap, BTreeSet};

use manylane_net::transit::flows::FlowNumber;

/// Of one entry; 28 bytes, since a million of them are to be no burden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The connection's id in conntrack.
    pub id: u32,
    /// Packets of both directions at the last sweep, modulo 2^32.
    pub packets: u32,
    /// When conntrack forgets it at the earliest: tenths of a second from the lane's start on.
    pub expires: u32,
    /// How long conntrack remembers it unused, in seconds; 0 if that is as the kernel's settings say.
    pub timeout: u32,
    /// When it was entered: seconds from the lane's start on.
    pub admitted: u32,
    /// Packets of each direction that the kernel had at the last sweep.
    pub passed: [u16; 2],
    /// `IPS_*`.
    pub status: u16,
    pub(in crate::lane) flags: u8,
}

impl Record {
    /// A record that is in use.
    pub fn live() -> Record {
        Record { flags: LIVE, ..Record::default() }
    }

    /// Whether it is in use.
    pub fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    /// Whether its connection was found by the comparison that runs.
    pub fn is_found(&self) -> bool {
        self.flags & FOUND != 0
    }

    /// Notes that.
    pub fn set_found(&mut self, is_found: bool) {
        self.set(FOUND, is_found);
    }

    /// Whether packets have followed it since conntrack was last given its time.
    pub fn is_used(&self) -> bool {
        self.flags & USED != 0
    }

    /// Notes that.
    pub fn set_used(&mut self, is_used: bool) {
        self.set(USED, is_used);
    }

    /// Whether the kernel has seen packets since then, too.
    pub fn has_passed(&self) -> bool {
        self.flags & PASSED != 0
    }

    /// Notes that.
    pub fn set_passed(&mut self, has_passed: bool) {
        self.set(PASSED, has_passed);
    }

    fn set(&mut self, flag: u8, is_so: bool) {
        self.flags = if is_so { self.flags | flag } else { self.flags & !flag };
    }
}

const LIVE: u8 = 1;
const FOUND: u8 = 2;
const USED: u8 = 4;
const PASSED: u8 = 8;

/// Of all entries.
#[derive(Default)]
pub(super) struct Records {
    list: Vec<Record>,
    /// Marks, of connections that rules let pass for their mark.
    pub marks: BTreeMap<u32, u32>,
    /// Connections whose end the kernel does not announce.
    pub silent: Silent,
}

/// Connections whose end the kernel does not announce: they are looked for in turn.
#[derive(Default)]
pub(super) struct Silent {
    numbers: BTreeSet<u32>,
    /// Where each round continues.
    next: [u32; 2],
}

/// In which order, and how, these connections are looked for. Each round has a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Whether conntrack has the connection.
    Presence,
    /// Whether the connection is still the same.
    Identity,
}

impl Silent {
    /// Their number.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether no entry is one of them.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether an entry is one of them.
    pub fn contains(&self, FlowNumber(number): FlowNumber) -> bool {
        self.numbers.contains(&number)
    }

    /// An entry is one of them.
    pub fn insert(&mut self, FlowNumber(number): FlowNumber) {
        self.numbers.insert(number);
    }

    /// The next ones of a round, each once.
    pub fn take(&mut self, round: Round, count: usize) -> Vec<FlowNumber> {
        let next = &mut self.next[round as usize];
        let (behind, before) = (self.numbers.range(*next..), self.numbers.range(..*next));
        let taken: Vec<_> = behind.chain(before).take(count).copied().map(FlowNumber).collect();
        if let Some(FlowNumber(last)) = taken.last() {
            *next = last + 1;
        }
        taken
    }
}

impl Records {
    /// Places, in use or not.
    pub fn places(&self) -> u32 {
        self.list.len() as u32
    }

    /// What is remembered of an entry.
    pub fn get(&self, FlowNumber(number): FlowNumber) -> Option<&Record> {
        self.list.get(number as usize).filter(|record| record.is_live())
    }

    /// The record, to be changed.
    pub fn get_mut(&mut self, FlowNumber(number): FlowNumber) -> Option<&mut Record> {
        self.list.get_mut(number as usize).filter(|record| record.is_live())
    }

    /// Remembers an entry.
    pub fn set(&mut self, FlowNumber(number): FlowNumber, record: Record) {
        let place = number as usize;
        if place >= self.list.len() {
            self.list.resize(place + 1, Record::default());
        }
        self.list[place] = record;
    }

    /// Forgets an entry.
    pub fn remove(&mut self, FlowNumber(number): FlowNumber) {
        self.list[number as usize] = Record::default();
        self.marks.remove(&number);
        self.silent.numbers.remove(&number);
    }

    /// Entries at `from..to` that are in use.
    pub fn live(&self, from: u32, to: u32) -> impl Iterator<Item = FlowNumber> + use<> {
        let to = to.min(self.places());
        let live: Vec<_> = (from..to)
            .filter(|&number| self.list[number as usize].is_live())
            .map(FlowNumber)
            .collect();
        live.into_iter()
    }
}
