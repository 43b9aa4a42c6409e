//! What somebody keeps of a route longer than a turn.
//!
//! A worker's turn needs none of this: it reads next hop and adjacency under its guard. Who sends to one
//! destination again and again, or hands packets on with their way already found, keeps a *dst*: next
//! hop, port, MTU and flags as they were when it looked.
//!
//! | side        | thread               | may                                                          |
//! |-------------|----------------------|--------------------------------------------------------------|
//! | [`DstsMut`] | control              | publish and withdraw by next-hop id; say that routes changed |
//! | [`Dsts`]    | any, with a guard    | [`borrow`](Dsts::borrow), uncounted, to the guard's end      |
//! |             |                      | [`hold`](Dsts::hold), counted: a [`DstRef`], to its [`put`](Dsts::put) |
//!
//! A dst does not change; it is replaced. [`Dsts::is_stale`] says when to look again: each change of
//! routes is a new *generation*, so that one comparison answers for all of them. There is no cache of
//! dsts by destination: a lookup costs 2 ns, and a cache has to be emptied at each generation.
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
//! The table keeps one reference of each record, so that a count never dies. A withdrawn record can be
//! found by nobody once its grace period is over; and then, when the table's reference is the only one,
//! nobody can make another. Then it is free. A [`DstRef`] that is dropped without a `put` keeps its
//! record for ever; [`DstsMut::held`] shows it.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

use std::fmt;
use std::mem::{align_of, offset_of, size_of};

use manylane_frame::vocabulary::PortId;
use manylane_sync::CacheAligned;
use manylane_sync::primitive::{Arc, AtomicU64, Ordering, fence};
use manylane_sync::rcu::{Domain, Guard, Index, Limbo};
use manylane_sync::refcount::RcuRef;
use manylane_sync::words::{Words, WordsMut};

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
    /// It is for us.
    pub const LOCAL: Flags = Flags(1);
    /// Packets are to be dropped in silence.
    pub const BLACKHOLE: Flags = Flags(2);
    /// Packets are to be dropped, and their senders told.
    pub const REJECT: Flags = Flags(4);
    /// It was made for one holder, who shares it with nobody: what costs something to prepare is not
    /// worth keeping beside it.
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
const LINE: usize = 64;
const PAIR: usize = 2 * LINE;

/// Layout is a promise: see the table above.
const _: () = {
    assert!(offset_of!(Record, facts) == 0 && offset_of!(Record, count) == PAIR);
    assert!(size_of::<[AtomicU64; WORDS]>() <= LINE, "the facts are one line");
    assert!(size_of::<RcuRef>() <= 8, "a count");
    assert!(size_of::<CacheAligned<RcuRef>>() == PAIR, "and nothing beside it");
    assert!(size_of::<Record>() == 2 * PAIR && align_of::<Record>() == PAIR);
};

/// A slot that has no dst.
const NOTHING: u32 = 0;

/// Every record is published, held by somebody, or waits for its grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DstsInUse {
    /// The records there are.
    pub records: usize,
    /// How many somebody still holds of those withdrawn.
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
    generation: WordsMut<u32>,
    free: Vec<u32>,
    limbo: Limbo<u32>,
    /// Past their grace period, and not yet put by all.
    held: Vec<u32>,
}

/// Everybody's side. A clone touches a count of its own: make one for each thread, not for each packet.
#[derive(Clone)]
pub struct Dsts {
    records: Arc<Vec<Record>>,
    current: Words<u32>,
    generation: Words<u32>,
}

/// The number stands in the middle of 256 bytes, as the adjacencies' generation does, and for its reasons.
const GENERATION_WORDS: usize = 64;
const GENERATION: usize = GENERATION_WORDS / 2;

impl DstsMut {
    /// A table for next-hop ids below `next_hops` with so many `records`: one for each id that is
    /// published, and one more for each that is replaced while somebody holds it.
    pub fn new(domain: Domain, next_hops: usize, records: usize) -> DstsMut {
        let last = u32::try_from(records).expect("a record's index is 32 bits");
        let record = |_| Record {
            facts: CacheAligned([const { AtomicU64::new(0) }; WORDS]),
            count: CacheAligned(RcuRef::new(1)), // The table's.
        };
        DstsMut {
            records: Arc::new((0..=last).map(record).collect()),
            current: WordsMut::zeroed(next_hops),
            generation: WordsMut::zeroed(GENERATION_WORDS),
            free: (1..=last).rev().collect(),
            limbo: Limbo::new(domain, records.max(1)),
            held: Vec::new(),
        }
    }

    /// A side for a thread.
    pub fn reader(&self) -> Dsts {
        Dsts {
            records: self.records.clone(),
            current: self.current.reader(),
            generation: self.generation.reader(),
        }
    }

    /// Lets everybody see these facts for their next hop, from a new generation on. Who holds the former
    /// ones keeps them.
    pub fn publish(&mut self, facts: &Facts) -> Result<(), DstsInUse> {
        self.reclaim();
        let records = self.records.len() - 1;
        let in_use = DstsInUse { records, held: self.held.len() };
        let record = self.free.pop().ok_or(in_use)?;
        for (word, value) in self.records[record as usize].facts.iter().zip(encode(facts)) {
            // Relaxed: nobody finds the record before `replace` has published its index.
            word.store(value, Ordering::Relaxed);
        }
        self.replace(facts.next_hop, record);
        Ok(())
    }

    /// Takes a next hop's dst away; a new generation.
    pub fn withdraw(&mut self, next_hop: NextHopId) {
        self.replace(next_hop, NOTHING);
    }

    /// A new generation: a route changed, and what somebody holds may not be its answer any more. After
    /// the change.
    pub fn announce(&mut self) {
        self.generation.publish(GENERATION, self.generation.load(GENERATION).wrapping_add(1));
    }

    /// How many withdrawn records somebody still holds.
    pub fn held(&mut self) -> usize {
        self.reclaim();
        self.held.len()
    }

    fn replace(&mut self, next_hop: NextHopId, record: u32) {
        let at = usize::from(next_hop.raw());
        let old = self.current.load(at);
        self.current.publish(at, record);
        self.announce();
        if old != NOTHING {
            let refused = self.limbo.retire(old).is_err();
            assert!(!refused, "limbo has room for all there is");
        }
    }

    fn reclaim(&mut self) {
        self.held.extend(std::iter::from_fn(|| self.limbo.reclaim()));
        let DstsMut { records, free, held, .. } = self;
        held.retain(|&record| {
            let is_held = records[record as usize].count.read() > 1;
            if !is_held {
                free.push(record);
            }
            is_held
        });
        // Acquire fence: pairs with the Release of each holder's `put`, whose subtraction `read` has
        // seen: what they read of a record happens before what is stored there next.
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

impl Dsts {
    /// How often routes have changed.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(GENERATION)
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

    /// Another reference to the same.
    #[inline]
    pub fn duplicate(&self, held: &DstRef) -> DstRef {
        self.count(held.record);
        DstRef { record: held.record, generation: held.generation }
    }

    /// What a held dst says. It touches the facts' line and no other.
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
        debug_assert!(!last, "the table keeps a reference");
    }

    #[inline]
    fn count(&self, record: u32) {
        let alive = self.records[record as usize].count.get();
        debug_assert!(alive, "the table keeps a reference");
    }

    #[inline]
    fn facts_at(&self, record: u32) -> Facts {
        // Relaxed: who has the record's index has loaded it (Acquire) after it was published, or got it
        // from somebody who had.
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
        next_hop: NextHopId::new(what as u16).unwrap_or(NextHopId::MAX), // It was one.
        neighbour: neighbour.checked_sub(1).map(|slot| slot as u32),
        port: PortId(port as u16),
        mtu: (port >> 32) as u32,
        flags: Flags((what >> 16) as u16),
    }
}

#[cfg(test)]
mod tests {
    use manylane_sync::rcu::Reader;

    use super::*;

    const HOP: NextHopId = NextHopId::new(7).expect("it is small");

    #[test]
    fn facts_are_read_as_they_were_published() {
        let (mut dsts, reader) = bed(4);
        let side = dsts.reader();
        assert!(borrow(&side, &reader).is_none());
        for facts in [
            facts(1500),
            Facts { neighbour: None, flags: Flags::LOCAL, mtu: u32::MAX, ..facts(0) },
            Facts {
                neighbour: Some(u32::MAX),
                port: PortId(u16::MAX),
                flags: Flags(u16::MAX),
                ..facts(0)
            },
        ] {
            dsts.publish(&facts).expect("there is room");
            let dst = borrow(&side, &reader).expect("it is published");
            assert_eq!(*dst.facts(), facts);
            let held = side.hold(dst);
            assert_eq!(side.facts(&held), facts);
            side.put(reader.guard(), held);
        }
        dsts.withdraw(HOP);
        assert!(borrow(&side, &reader).is_none());
    }

    #[test]
    fn a_held_dst_outlives_its_turn_and_its_withdrawal() {
        let (mut dsts, mut reader) = bed(2);
        let side = dsts.reader();
        dsts.publish(&facts(1500)).expect("there is room");
        let held = side.hold(borrow(&side, &reader).expect("it is published"));
        let twin = side.duplicate(&held);
        dsts.publish(&facts(1400)).expect("there is a second record");
        let in_use = DstsInUse { records: 2, held: 0 };
        assert_eq!(dsts.publish(&facts(1300)), Err(in_use), "the first waits for its grace period");
        reader.quiescent();
        let in_use = DstsInUse { records: 2, held: 1 };
        assert_eq!(dsts.publish(&facts(1300)), Err(in_use), "and then for its holders");
        side.put(reader.guard(), held);
        assert_eq!((dsts.held(), side.facts(&twin).mtu), (1, 1500));
        side.put(reader.guard(), twin);
        assert_eq!(dsts.held(), 0);
        dsts.publish(&facts(1300)).expect("it is free");
        assert_eq!(borrow(&side, &reader).expect("it is published").facts().mtu, 1300);
    }

    #[test]
    fn a_borrowed_dst_keeps_its_record_to_the_end_of_the_turn() {
        let (mut dsts, mut reader) = bed(2);
        let side = dsts.reader();
        dsts.publish(&facts(1500)).expect("there is room");
        let dst = borrow(&side, &reader).expect("it is published");
        dsts.publish(&facts(1400)).expect("there is a second record");
        assert!(dsts.publish(&facts(1300)).is_err());
        let held = side.hold(dst); // In the same turn that is not too late.
        assert_eq!(side.facts(&held).mtu, 1500);
        reader.quiescent();
        assert!(dsts.publish(&facts(1300)).is_err());
        side.put(reader.guard(), held);
        assert!(dsts.publish(&facts(1300)).is_ok());
    }

    #[test]
    fn every_change_is_a_new_generation() {
        let (mut dsts, mut reader) = bed(4);
        let side = dsts.reader();
        let changes: [fn(&mut DstsMut); 3] = [
            |dsts| dsts.publish(&facts(1400)).expect("there is room"),
            |dsts| dsts.announce(),
            |dsts| dsts.withdraw(HOP),
        ];
        for change in changes {
            dsts.publish(&facts(1500)).expect("there is room");
            let held = side.hold(borrow(&side, &reader).expect("it is published"));
            assert!(!side.is_stale(&held));
            change(&mut dsts);
            assert!(side.is_stale(&held));
            side.put(reader.guard(), held);
            reader.quiescent();
        }
    }

    fn bed(records: usize) -> (DstsMut, Reader) {
        let domain = Domain::new(1);
        let reader = domain.register().expect("the first fits");
        (DstsMut::new(domain, 16, records), reader)
    }

    fn facts(mtu: u32) -> Facts {
        let (port, flags) = (PortId(3), Flags::default());
        Facts { next_hop: HOP, neighbour: Some(0), port, mtu, flags }
    }

    fn borrow<'g>(side: &Dsts, reader: &'g Reader) -> Option<Dst<'g>> {
        let generation = side.generation();
        side.borrow(reader.guard(), Index::<()>::new(reader.guard(), HOP.raw().into()), generation)
    }
}
