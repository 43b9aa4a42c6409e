//! What a holder keeps of a route longer than a turn.
//!
//! A worker's turn needs none of this: it reads next hop and adjacency under its guard. Code that waits for a
//! neighbour, sends to one destination again and again, or hands packets on with their route already found, keeps a
//! *dst*: next hop, port, MTU and flags as they were at the lookup.
//!
//! | side        | thread               | may                                                          |
//! |-------------|----------------------|--------------------------------------------------------------|
//! | [`DstsMut`] | control              | publish and withdraw by next-hop id; whether one is held     |
//! | [`Dsts`]    | any, with a guard    | [`borrow`](Dsts::borrow), uncounted, to the guard's end      |
//! |             |                      | [`hold`](Dsts::hold), counted: a [`DstRef`], to its [`put`](Dsts::put) |
//!
//! A dst does not change; it is replaced. [`Dsts::is_stale`] says when to look again: it compares the [`Generation`] of
//! all routes, so that one word answers for FIB, next hops and groups. No cache finds dsts by destination: a lookup
//! costs 2 ns, and a cache has to be emptied at each generation.
//!
//! While a neighbour's dst is held, its slot cannot be reused ([`DstsMut::is_held`]): the slot's number in [`Facts`]
//! keeps its meaning.
//!
//! # Layout
//!
//! | bytes of a record | holds                               | written by                              |
//! |-------------------|-------------------------------------|-----------------------------------------|
//! | 0 to 31           | the facts, in four words            | the control thread, before publication  |
//! | 32 to 127         | nothing                             |                                         |
//! | 128 to 131        | the count                           | each hold and put, of any thread        |
//! | 132 to 255        | nothing                             |                                         |
//!
//! With the count on the facts' line, each hold would take from every core what it reads of each packet
//! (the kernel's `dst_entry` had that layout until 2023). 128 bytes, not 64: x86 fetches lines in
//! pairs. The compiler checks all this, below.
//!
//! # When a record is used again
//!
//! The table keeps one reference of each record, so that a count never dies, and a holder needs no
//! loop. A withdrawn record is free again when two things have come to pass, in this order:
//!
//! 1. *Its grace period is over.* No reader can find it any more; a reader that found it has its reference by now, or
//!    never will, and the writer sees all of these: they were taken in turns that it has seen end.
//! 2. *Then, the table's reference is the only one.* A reference is made of a reference ([`Dsts::duplicate`]) or of a
//!    turn. Such turns have ended; and in the count's modification order, which is one for all threads, whatever is
//!    made of a reference stands before that one's `put`. So 1 is final, however old the writer's look at the count is.
//!
//! The other order would not do: a turn that found the record may hold it after the writer has looked.
//! Explored in `manylane-sync`'s `tests/loom/dst.rs`, with each of the conditions left out.
//!
//! A [`DstRef`] that is dropped without a `put` keeps its record for ever, and is counted
//! ([`refs_leaked`](manylane_sync::refcount::Faults::refs_leaked)).

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

use std::collections::BTreeMap;
use std::fmt;
use std::mem::forget;

use manylane_frame::vocabulary::PortId;
use manylane_sync::CacheAligned;
use manylane_sync::primitive::{Arc, AtomicU64, Ordering, fence};
use manylane_sync::rcu::{Domain, Guard, Index, Limbo};
use manylane_sync::refcount::{Fault, RcuRef, report};
use manylane_sync::words::{Words, WordsMut};

use super::Generation;
use crate::fib::NextHopId;

/// What is kept of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The next hop that the lookup answered with.
    pub next_hop: NextHopId,
    /// The neighbour's slot, where the route leads to one.
    pub neighbour: Option<u32>,
    /// The port that packets leave by.
    pub port: PortId,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// What else is to be known.
    pub flags: Flags,
}

/// Properties of a dst, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// The packet is for us.
    pub const LOCAL: Flags = Flags(1);
    /// Packets are to be dropped in silence.
    pub const BLACKHOLE: Flags = Flags(2);
    /// Packets are to be dropped, and their senders notified.
    pub const REJECT: Flags = Flags(4);
    /// The dst was made for one holder, which does not share it: keeping costly preparations beside it is not worth
    /// while.
    pub const NOCACHE: Flags = Flags(8);

    /// Whether it has all of these.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// One dst, on two pairs of lines.
#[repr(C)]
struct Record {
    facts: CacheAligned<[AtomicU64; WORDS]>,
    count: CacheAligned<RcuRef>,
}

const WORDS: usize = 4;

/// Layout is a promise: see the table above. Not under loom, whose atomics are larger.
#[cfg(not(manylane_loom))]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    const LINE: usize = 64;
    const PAIR: usize = 2 * LINE;
    assert!(offset_of!(Record, facts) == 0 && offset_of!(Record, count) == PAIR);
    assert!(size_of::<[AtomicU64; WORDS]>() <= LINE, "the facts are one line");
    assert!(size_of::<RcuRef>() <= 8, "a count");
    assert!(size_of::<CacheAligned<RcuRef>>() == PAIR, "and nothing beside it");
    assert!(size_of::<Record>() == 2 * PAIR && align_of::<Record>() == PAIR);
};

/// A slot that has no dst.
const NOTHING: u32 = 0;

/// Every record is published, held, or waits for its grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DstsInUse {
    /// The number of records.
    pub records: usize,
    /// How many withdrawn records are still held.
    pub held: usize,
}

impl fmt::Display for DstsInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of the {} dst records is free: {} are withdrawn and still held; publish again once \
             their holders have looked at the generation",
            self.records, self.held
        )
    }
}

impl std::error::Error for DstsInUse {}

/// The writer's side: the control thread.
pub struct DstsMut {
    records: Arc<Vec<Record>>,
    /// The record of each next-hop id.
    current: WordsMut<u32>,
    generation: Generation,
    free: Vec<u32>,
    limbo: Limbo<u32>,
    /// Past their grace period, and not yet put by all.
    held: Vec<u32>,
    /// How many withdrawn records of a next-hop id are not free yet.
    withdrawn: BTreeMap<u16, u32>,
}

/// The readers' side. A clone touches a count of its own: make one for each thread, not for each packet.
#[derive(Clone)]
pub struct Dsts {
    records: Arc<Vec<Record>>,
    current: Words<u32>,
    generation: Generation,
}

impl DstsMut {
    /// A table for next-hop ids below `next_hops` with `records` records: one for each id that is published, and one
    /// more for each that is replaced while it is held. `generation` is that of the routes.
    pub fn new(
        domain: Domain,
        next_hops: usize,
        records: usize,
        generation: Generation,
    ) -> DstsMut {
        let last = u32::try_from(records).expect("a record's index is 32 bits");
        let record = |_| Record {
            facts: CacheAligned(std::array::from_fn(|_| AtomicU64::new(0))),
            count: CacheAligned(RcuRef::new(1)), // The table's.
        };
        DstsMut {
            records: Arc::new((0..=last).map(record).collect()),
            current: WordsMut::zeroed(next_hops),
            generation,
            free: (1..=last).rev().collect(),
            limbo: Limbo::new(domain, records.max(1)),
            held: Vec::new(),
            withdrawn: BTreeMap::new(),
        }
    }

    /// A side for a thread.
    pub fn reader(&self) -> Dsts {
        Dsts {
            records: self.records.clone(),
            current: self.current.reader(),
            generation: self.generation.clone(),
        }
    }

    /// Publishes these facts for their next hop, if they are news. A holder of the former ones keeps them, and learns
    /// of it by a step of the generation after this, which is the caller's: a first dst for a next hop changes nothing
    /// for any holder.
    pub fn publish(&mut self, facts: &Facts) -> Result<(), DstsInUse> {
        self.reclaim();
        let words = encode(facts);
        let old = self.current.load(usize::from(facts.next_hop.raw()));
        // Relaxed, and below: only this thread stores.
        let is = |word: &AtomicU64| word.load(Ordering::Relaxed);
        if old != NOTHING && self.records[old as usize].facts.each_ref().map(is) == words {
            return Ok(());
        }
        let records = self.records.len() - 1;
        let in_use = DstsInUse { records, held: self.held.len() };
        let record = self.free.pop().ok_or(in_use)?;
        for (word, value) in self.records[record as usize].facts.iter().zip(words) {
            // Relaxed: no reader finds the record before `replace` has published its index.
            word.store(value, Ordering::Relaxed);
        }
        self.replace(facts.next_hop, record);
        Ok(())
    }

    /// Takes a next hop's dst away.
    pub fn withdraw(&mut self, next_hop: NextHopId) {
        self.replace(next_hop, NOTHING);
    }

    /// How many withdrawn records are still held.
    pub fn held(&mut self) -> usize {
        self.reclaim();
        self.held.len()
    }

    /// Whether a withdrawn dst of this next hop may still be held, or be about to be.
    pub fn is_held(&mut self, next_hop: NextHopId) -> bool {
        self.reclaim();
        self.withdrawn.contains_key(&next_hop.raw())
    }

    fn replace(&mut self, next_hop: NextHopId, record: u32) {
        let at = usize::from(next_hop.raw());
        let old = self.current.load(at);
        self.current.publish(at, record);
        if old != NOTHING {
            *self.withdrawn.entry(next_hop.raw()).or_default() += 1;
            let refused = self.limbo.retire(old).is_err();
            assert!(!refused, "the limbo has room for every record");
        }
    }

    fn reclaim(&mut self) {
        self.held.extend(std::iter::from_fn(|| self.limbo.reclaim()));
        let DstsMut { records, free, held, withdrawn, .. } = self;
        held.retain(|&record| {
            let Record { facts, count } = &records[record as usize];
            let is_held = count.read() > 1;
            if !is_held {
                free.push(record);
                // Relaxed: only this thread stores.
                let next_hop = facts[0].load(Ordering::Relaxed) as u16;
                match withdrawn.get_mut(&next_hop) {
                    Some(others) if *others > 1 => *others -= 1,
                    _ => _ = withdrawn.remove(&next_hop),
                }
            }
            is_held
        });
        // Acquire fence: pairs with the Release of each holder's `put`, whose subtraction `read` has
        // seen, or one after it in the same release sequence: what they read of a record happens before
        // what is stored there next. Explored by `a_held_record_is_not_used_again`; without it,
        // `mutant_without_the_fence_...`.
        fence(Ordering::Acquire);
    }
}

/// What an index of a record stands for; never a value.
enum Mark {}

/// A dst in a turn: borrowed, uncounted. Branded: its record may be another's after the turn.
#[derive(Clone, Copy)]
pub struct Dst<'g> {
    facts: Facts,
    record: Index<'g, Mark>,
    generation: u32,
}

impl Dst<'_> {
    /// What it says.
    #[inline]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// A dst that outlives the turn: counted. To be given back with [`Dsts::put`].
#[derive(Debug)]
#[must_use = "a dst that is not put keeps its record for ever"]
pub struct DstRef {
    record: u32,
    generation: u32,
}

impl Drop for DstRef {
    fn drop(&mut self) {
        report(Fault::Leak);
    }
}

impl Dsts {
    /// How often routes have changed.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load()
    }

    /// The dst of a next hop, which a lookup under this guard has answered with. `generation` is what
    /// [`Dsts::generation`] said *before* that lookup: what changes after it is seen as a change.
    #[inline]
    pub fn borrow<'g, T>(
        &self,
        guard: Guard<'g>,
        next_hop: Index<'g, T>,
        generation: u32,
    ) -> Option<Dst<'g>> {
        let record = self.current.load(next_hop.raw() as usize);
        (record != NOTHING).then(|| {
            let facts = self.facts_at(record);
            Dst { facts, record: Index::new(guard, record), generation }
        })
    }

    /// Keeps a dst beyond the turn. One addition.
    #[inline]
    pub fn hold(&self, dst: Dst<'_>) -> DstRef {
        self.count(dst.record.raw());
        DstRef { record: dst.record.raw(), generation: dst.generation }
    }

    /// Another reference to the record.
    #[inline]
    pub fn duplicate(&self, held: &DstRef) -> DstRef {
        self.count(held.record);
        DstRef { record: held.record, generation: held.generation }
    }

    /// The facts of a held dst. Reading them touches the facts' line and no other.
    #[inline]
    pub fn facts(&self, held: &DstRef) -> Facts {
        self.facts_at(held.record)
    }

    /// Whether routes have changed since the lookup: then look again.
    #[inline]
    pub fn is_stale(&self, held: &DstRef) -> bool {
        held.generation != self.generation()
    }

    /// Gives a dst back. One subtraction.
    #[inline]
    pub fn put(&self, guard: Guard<'_>, held: DstRef) {
        let last = self.records[held.record as usize].count.put(guard);
        forget(held);
        debug_assert!(!last, "the table keeps a reference");
    }

    #[inline]
    fn count(&self, record: u32) {
        let alive = self.records[record as usize].count.get();
        debug_assert!(alive, "the table keeps a reference");
    }

    #[inline]
    fn facts_at(&self, record: u32) -> Facts {
        // Relaxed: a holder of the record's index has loaded it (Acquire) after it was published, or got it from a
        // thread that had.
        let words = self.records[record as usize].facts.each_ref();
        decode(words.map(|word| word.load(Ordering::Relaxed)))
    }
}

fn encode(facts: &Facts) -> [u64; WORDS] {
    let neighbour = facts.neighbour.map_or(0, |slot| u64::from(slot) + 1);
    [
        u64::from(facts.next_hop.raw()) | u64::from(facts.flags.0) << 16,
        u64::from(facts.port.0) | u64::from(facts.mtu) << 32,
        neighbour,
        0,
    ]
}

#[inline]
fn decode([what, port, neighbour, _]: [u64; WORDS]) -> Facts {
    Facts {
        next_hop: NextHopId::new(what as u16).unwrap_or(NextHopId::MAX), // The number was one before.
        neighbour: neighbour.checked_sub(1).map(|slot| slot as u32),
        port: PortId(port as u16),
        mtu: (port >> 32) as u32,
        flags: Flags((what >> 16) as u16),
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
