//! The control thread's table: every neighbour, its slot and its timer.
//!
//! The table decides *whether* an event reaches an entry and *when* a timer does; [`entry::step`] decides *what*
//! happens then. The table sends and publishes nothing itself: it returns [`Action`]s, in order.
//!
//! A slot's life: free, taken by an entry, left by it ([`Action::Remove`]) and, once the caller has
//! removed what leads there and a grace period has passed, free again ([`Table::free`]).
//!
//! A scan of our networks makes `Incomplete` entries as fast as it likes. Three bounds hold it: these and the failed
//! ones may take only `unproven_max` places, and an entry makes room for those only that are trusted as much; questions
//! are sent by lanes, below; and a question that finds no token waits without counting, and so does one that could not
//! be sent: for want of a place in the ring to the worker ([`Table::give_places`]), or of an address of ours to ask
//! from ([`Table::set_waiting`]). In the ring from the worker, places are reserved for what keeps known neighbours
//! alive: the use of a stale one, and a few answers a second of each that has a slot
//! (`forward::Forwarder::urgent_events`). What else answers, unasked, shares the places of the scan.
//!
//! `lane.rs` says which question gets a token first, and `rank.rs` which entry is given up first.

mod carrier;
mod demand;
mod lane;
mod rank;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use manylane_frame::vocabulary::PortId;

use super::Key;
use super::adjacency::AdjacencyState;
use super::bucket::Bucket;

use super::entry::{self, Entry, Event, Kind, Question, Timing, Trust};
use super::own::Claim;
use demand::Demand;
pub use demand::Requester;
use lane::{PASSED_OVER_MAX, Timer};
use rank::Rank;

/// What workers tell the control thread about neighbours, by ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A packet needs this neighbour's address, which is unknown.
    Missing {
        /// The neighbour.
        key: Key,
        /// The packet's sender.
        requester: Requester,
    },
    /// A packet used a stale address.
    Used {
        /// The neighbour's slot. If it has changed hands since, one neighbour too many is probed.
        slot: u32,
    },
    /// A packet showed a neighbour's address. Not for our own addresses: a claim to one of those is
    /// [`Report::Claimed`].
    Answer {
        /// The neighbour.
        key: Key,
        /// The link-layer address in the packet; an advertisement may come without.
        mac: Option<[u8; 6]>,
        /// What packet it was.
        kind: Kind,
    },
    /// Another station lays claim to an address of ours.
    Claimed {
        /// Our address.
        key: Key,
        /// The station.
        mac: [u8; 6],
        /// How.
        claim: Claim,
    },
}

/// What the control thread has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an ARP request or a neighbour solicitation.
    Solicit {
        /// The neighbour.
        key: Key,
        /// Ask only this station; `None`: all stations.
        unicast: Option<[u8; 6]>,
    },
    /// Workers must see something else: publish the adjacency.
    Publish {
        /// Where.
        slot: u32,
        /// The neighbour.
        key: Key,
        /// What a worker does with its packets.
        state: AdjacencyState,
        /// Its link-layer address, when the state is a resolved one.
        mac: Option<[u8; 6]>,
    },
    /// The neighbour is gone: remove what leads to the slot, then withdraw it.
    Remove {
        /// Where.
        slot: u32,
        /// The neighbour.
        key: Key,
    },
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Entries at most.
    pub entries_max: usize,
    /// Slots beyond that: how many may wait for their grace period before new entries are refused.
    pub spare_slots: usize,
    /// `Incomplete` and `Failed` entries at most, not counting pinned ones.
    pub unproven_max: usize,
    /// Questions a second, on all ports together.
    pub questions_per_second: u32,
    /// Questions at once.
    pub questions_burst: u32,
    /// The entries' timers; `reachable` is the base that each entry draws its own from.
    pub timing: Timing,
    /// What the draws begin with, and the key of what is remembered of addresses: no attacker may know it.
    pub seed: u64,
}

impl Default for TableConfig {
    fn default() -> Self {
        TableConfig {
            entries_max: 8192,
            spare_slots: 1024,
            unproven_max: 4096,
            questions_per_second: 1000,
            questions_burst: 100,
            timing: Timing::default(),
            seed: 0,
        }
    }
}

/// The table has no place for this neighbour: every entry is in use, or every free slot still waits for its grace
/// period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull {
    /// The neighbour without a place.
    pub key: Key,
    /// The table's bound.
    pub entries_max: usize,
}

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no place for neighbour {}: none of the {} entries can be given up; \
             try again, or raise the limit",
            self.key, self.entries_max
        )
    }
}

impl std::error::Error for TableFull {}

/// What reached a bound, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Entries given up for newer ones.
    pub reclaimed: u64,
    /// Neighbours that found no place.
    pub refused: u64,
    /// Answers with an address no station can have.
    pub invalid: u64,
}

/// The neighbour table.
pub struct Table {
    config: TableConfig,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    by_key: BTreeMap<Key, u32>,
    /// By urgency, each in order of deadline.
    timers: [BTreeSet<(Duration, u32)>; Timer::ALL.len()],
    /// The order of giving entries up: by rank, then the oldest.
    reclaimable: BTreeSet<(Rank, Duration, u32)>,
    unproven: usize,
    bucket: Bucket,
    /// Questions that strangers waited for, since the last for a stranger.
    passed_over: u8,
    demand: Demand,
    /// Questions that may be handed out.
    places: usize,
    /// Where no address of ours may ask yet: port, and whether IPv6.
    waiting: BTreeSet<(PortId, bool)>,
    /// Ports without a carrier.
    down: BTreeSet<PortId>,
    random: u64,
    counts: TableCounts,
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    Taken(Entry),
    /// Left, and not yet given back by [`Table::free`].
    Left,
}

impl Table {
    /// An empty table.
    pub fn new(config: TableConfig) -> Table {
        let slots = config.entries_max + config.spare_slots;
        let slots_max = u32::try_from(slots).expect("a slot's number is 32 bits");
        Table {
            slots: vec![Slot::Free; slots],
            free_slots: (0..slots_max).rev().collect(),
            by_key: BTreeMap::new(),
            timers: Default::default(),
            reclaimable: BTreeSet::new(),
            unproven: 0,
            bucket: Bucket::new(config.questions_per_second, config.questions_burst),
            passed_over: 0,
            demand: Demand::new(config.seed, config.entries_max, config.questions_per_second),
            places: usize::MAX,
            waiting: BTreeSet::new(),
            down: BTreeSet::new(),
            random: config.seed,
            counts: TableCounts::default(),
            config,
        }
    }

    /// Takes in what a worker reported.
    pub fn handle(&mut self, report: Report, now: Duration, actions: &mut Vec<Action>) {
        match report {
            Report::Missing { key, requester } => {
                let is_judged = self.find(key).is_some_and(|(_, it)| it.trust >= Trust::Expected);
                let trust = match is_judged {
                    true => Trust::Stranger,
                    false => self.demand.judge(key, requester, now),
                };
                self.hear(key, Event::Missing, trust, now, actions);
            }
            Report::Used { slot } => {
                if self.entry(slot).is_some() {
                    self.step(slot, Event::Used, now, actions);
                }
            }
            Report::Answer { key, mac, kind } => {
                if can_be_a_neighbour(key.addr) && mac.is_none_or(can_be_a_station) {
                    if !self.by_key.contains_key(&key) {
                        self.demand.spoke(key, now);
                    }
                    let event = Event::Heard { mac, kind };
                    self.hear(key, event, Trust::Stranger, now, actions);
                } else {
                    self.counts.invalid += 1;
                }
            }
            Report::Claimed { .. } => {} // Our addresses are `OwnTable`'s.
        }
    }

    /// Lets time pass: timers that are over, and questions that waited for a token.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<Action>) {
        while let Some(slot) = self.next_due(Timer::Quiet, now) {
            self.step(slot, Event::Timeout, now, actions);
        }
        for timer in Timer::asking() {
            while self.ask_next(timer, now, actions) {}
        }
    }

    /// From now on, at most `places` questions may be handed out; at first without a bound. An entry without a place
    /// waits, without a deadline.
    pub fn give_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Whether questions wait for [`Table::give_places`].
    pub fn needs_places(&self) -> bool {
        self.places == 0
    }

    /// From now on, neighbours of this family on this port are not searched for, or are again: we have no address yet
    /// to send questions from.
    pub fn set_waiting(&mut self, port: PortId, is_ipv6: bool, waits: bool) {
        let keys = self.keys_of(port);
        let slots = keys.iter().filter(|key| key.addr.is_ipv6() == is_ipv6);
        let slots: Vec<u32> = slots.map(|key| self.by_key[key]).collect();
        slots.iter().for_each(|&slot| self.unlink(slot));
        match waits {
            true => self.waiting.insert((port, is_ipv6)),
            false => self.waiting.remove(&(port, is_ipv6)),
        };
        slots.iter().for_each(|&slot| self.link(slot));
    }

    /// When to call [`Table::tick`] next, if nothing is reported before.
    pub fn deadline(&self) -> Option<Duration> {
        let ready = |timer: Timer| {
            let &(due, _) = self.timers[timer as usize].first()?;
            match timer {
                Timer::Quiet => Some(due),
                _ if self.places == 0 => None,
                _ => Some(due.max(self.bucket.ready_at(self.reserve(timer)))),
            }
        };
        Timer::ALL.into_iter().filter_map(ready).min()
    }

    /// Enters a neighbour that a next hop needs, looks for it, and keeps its slot until as many
    /// [`Table::unpin`]s.
    pub fn pin(
        &mut self,
        key: Key,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<u32, TableFull> {
        self.hear(key, Event::Missing, Trust::Known, now, actions);
        let (slot, entry) = self.find(key).ok_or_else(|| self.full(key))?;
        let pinned = Entry { pins: entry.pins + 1, ..*entry };
        self.replace(slot, pinned);
        Ok(slot)
    }

    /// Takes back one [`Table::pin`]. The entry stays and ages like any other.
    ///
    /// # Panics
    ///
    /// When the slot is not pinned.
    pub fn unpin(&mut self, slot: u32) {
        let entry = *self.entry(slot).expect("a pinned slot has an entry");
        let pins = entry.pins.checked_sub(1).expect("a slot is unpinned as often as it was pinned");
        self.replace(slot, Entry { pins, ..entry });
    }

    /// Sets a neighbour's address by the operator's word.
    pub fn set(
        &mut self,
        key: Key,
        mac: [u8; 6],
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Result<u32, TableFull> {
        self.hear(key, Event::Set(mac), Trust::Known, now, actions);
        self.find(key).map(|(slot, _)| slot).ok_or_else(|| self.full(key))
    }

    /// Forgets a neighbour, whatever its state; one that a next hop needs is looked for anew. Returns whether the table
    /// had one.
    pub fn forget(&mut self, key: Key, now: Duration, actions: &mut Vec<Action>) -> bool {
        let Some((slot, entry)) = self.find(key) else { return false };
        let entry = *entry;
        let pins = entry.pins;
        match entry::first(key, Event::Missing, now) {
            // The same slot: next hops know the neighbour by it.
            Some(anew) if pins > 0 => {
                self.replace(slot, Entry { pins, trust: entry.trust, ..anew });
                actions.push(self.publish(slot));
                self.ask_now(slot, now, actions);
            }
            _ => self.remove(slot, now, actions),
        }
        true
    }

    /// Forgets every neighbour of a port: it went down, or the other end changed.
    pub fn forget_port(&mut self, port: PortId, now: Duration, actions: &mut Vec<Action>) {
        for key in self.keys_of(port) {
            self.forget(key, now, actions);
        }
    }

    /// Publishes every neighbour of a port again: its own address or MTU changed.
    pub fn publish_port(&self, port: PortId, actions: &mut Vec<Action>) {
        let slots = self.by_key.range(keys_on(port)).map(|(_, &slot)| self.publish(slot));
        actions.extend(slots);
    }

    /// Gives back a slot that was left, after its grace period.
    ///
    /// # Panics
    ///
    /// When the slot is still taken: it would get two owners.
    pub fn free(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        assert!(matches!(state, Slot::Left), "slot {slot} is given back without having been left");
        *state = Slot::Free;
        self.free_slots.push(slot);
    }

    /// The slots of the table: how large [`AdjacencyWords`](super::AdjacencyWords) must be.
    pub fn slots_max(&self) -> usize {
        self.slots.len()
    }

    /// The number of neighbours.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// What reached a bound so far.
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// A neighbour by its name.
    pub fn find(&self, key: Key) -> Option<(u32, &Entry)> {
        let &slot = self.by_key.get(&key)?;
        self.entry(slot).map(|entry| (slot, entry))
    }

    /// A neighbour by its slot.
    pub fn entry(&self, slot: u32) -> Option<&Entry> {
        match self.slots.get(slot as usize)? {
            Slot::Taken(entry) => Some(entry),
            Slot::Free | Slot::Left => None,
        }
    }

    /// Every neighbour with its slot, by port and address. [`Entry::age`] takes the time.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.by_key.values().filter_map(|&slot| self.entry(slot).map(|entry| (slot, entry)))
    }

    /// An event for a neighbour that may have to be created.
    fn hear(
        &mut self,
        key: Key,
        event: Event,
        trust: Trust,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if let Some(&slot) = self.by_key.get(&key) {
            let entry = *self.entry(slot).expect("its key leads there");
            if trust > entry.trust {
                self.replace(slot, Entry { trust, ..entry });
            }
            self.step(slot, event, now, actions);
            self.ask_now(slot, now, actions);
        } else if let Some(entry) = entry::first(key, event, now) {
            let entry = Entry { trust: trust.max(entry.trust), ..entry };
            let Some(slot) = self.make_room(&entry, now, actions) else {
                self.counts.refused += 1;
                return;
            };
            self.occupy(slot, entry);
            actions.push(self.publish(slot));
            self.ask_now(slot, now, actions);
        }
    }

    fn step(&mut self, slot: u32, event: Event, now: Duration, actions: &mut Vec<Action>) {
        let old = *self.entry(slot).expect("a timer or a key leads only to a taken slot");
        let timing = Timing { reachable: self.draw_reachable(), ..self.config.timing };
        let (new, wanted) = entry::step(&old, event, now, &timing);
        if wanted.remove {
            return self.remove(slot, now, actions);
        }
        if new != old {
            self.replace(slot, new);
        }
        if let Some(question) = wanted.solicit {
            let unicast = match question {
                Question::Everybody => None,
                Question::Itself(mac) => Some(mac),
            };
            self.places = self.places.saturating_sub(1);
            actions.push(Action::Solicit { key: new.key, unicast });
        }
        if wanted.publish {
            actions.push(self.publish(slot));
        }
    }

    /// Sends the question of this slot if it is due and a token is left, before older ones that wait:
    /// under a flood of them an answer must find an entry that was not given up meanwhile.
    fn ask_now(&mut self, slot: u32, now: Duration, actions: &mut Vec<Action>) {
        let Some((timer, due, _)) = self.timer(slot) else { return };
        if self.passed_over >= PASSED_OVER_MAX {
            self.ask_next(Timer::Stranger, now, actions);
        }
        // The stranger may be this one.
        if timer != Timer::Quiet && due <= now && self.timer(slot) == Some((timer, due, slot)) {
            self.ask(timer, slot, now, actions);
        }
    }

    /// Sends the question of this lane that waits longest, if one is due and a token is left.
    fn ask_next(&mut self, timer: Timer, now: Duration, actions: &mut Vec<Action>) -> bool {
        if timer.is_before_strangers() && self.passed_over >= PASSED_OVER_MAX {
            self.ask_next(Timer::Stranger, now, actions);
        }
        let slot = self.next_due(timer, now);
        slot.is_some_and(|slot| self.ask(timer, slot, now, actions))
    }

    /// Sends a question that is due, if a token is left for its lane.
    fn ask(&mut self, timer: Timer, slot: u32, now: Duration, actions: &mut Vec<Action>) -> bool {
        let may = self.places > 0 && self.bucket.take(now, self.reserve(timer));
        if may {
            if timer.is_before_strangers() {
                self.passed_over = self.passed_over.saturating_add(1);
            } else if timer == Timer::Stranger {
                self.passed_over = 0;
            }
            self.step(slot, Event::Timeout, now, actions);
        }
        may
    }

    fn next_due(&self, timer: Timer, now: Duration) -> Option<u32> {
        self.timers[timer as usize].first().filter(|(due, _)| *due <= now).map(|&(_, slot)| slot)
    }

    fn timer(&self, slot: u32) -> Option<(Timer, Duration, u32)> {
        let entry = self.entry(slot)?;
        if self.down.contains(&entry.key.port) {
            return None;
        }
        let timer = Timer::of(entry, &self.config.timing);
        if timer != Timer::Quiet
            && self.waiting.contains(&(entry.key.port, entry.key.addr.is_ipv6()))
        {
            return None;
        }
        Some((timer, entry.deadline?, slot))
    }

    /// Tokens a question must leave in the bucket.
    fn reserve(&self, timer: Timer) -> u32 {
        timer.reserve(self.config.questions_burst, self.passed_over)
    }

    /// A slot for a new entry, given up by another if need be.
    fn make_room(
        &mut self,
        entry: &Entry,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Option<u32> {
        let rank = Rank::of(entry).filter(|&rank| rank < Rank::Stale);
        if let Some(rank) = rank
            && self.unproven >= self.config.unproven_max
        {
            self.reclaim(rank, now, actions)?;
        } else if self.by_key.len() >= self.config.entries_max {
            self.reclaim(Rank::Stale, now, actions)?;
        }
        self.free_slots.pop()
    }

    /// Gives up the least valuable entry, of `worst` at best.
    fn reclaim(&mut self, worst: Rank, now: Duration, actions: &mut Vec<Action>) -> Option<()> {
        // Without a free slot the sacrifice would be for nothing.
        self.free_slots.last()?;
        let &(_, _, slot) = self.reclaimable.first().filter(|(rank, _, _)| *rank <= worst)?;
        self.counts.reclaimed += 1;
        self.remove(slot, now, actions);
        Some(())
    }

    fn remove(&mut self, slot: u32, now: Duration, actions: &mut Vec<Action>) {
        let entry = *self.entry(slot).expect("only a taken slot is left");
        match entry.trust {
            Trust::Known => self.demand.answered(entry.key, now),
            Trust::Expected if entry.mac.is_some() => self.demand.spoke(entry.key, now),
            Trust::Expected | Trust::Modest | Trust::Wanted | Trust::Stranger => {}
        }
        self.unlink(slot);
        self.by_key.remove(&entry.key);
        self.slots[slot as usize] = Slot::Left;
        actions.push(Action::Remove { slot, key: entry.key });
    }

    fn occupy(&mut self, slot: u32, entry: Entry) {
        self.slots[slot as usize] = Slot::Taken(entry);
        self.by_key.insert(entry.key, slot);
        self.link(slot);
    }

    fn replace(&mut self, slot: u32, entry: Entry) {
        self.unlink(slot);
        self.slots[slot as usize] = Slot::Taken(entry);
        self.link(slot);
    }

    fn link(&mut self, slot: u32) {
        if let Some((timer, due, slot)) = self.timer(slot) {
            self.timers[timer as usize].insert((due, slot));
        }
        if let Some(place) = self.place(slot) {
            self.unproven += usize::from(place.0 < Rank::Stale);
            self.reclaimable.insert(place);
        }
    }

    fn unlink(&mut self, slot: u32) {
        if let Some((timer, due, slot)) = self.timer(slot) {
            self.timers[timer as usize].remove(&(due, slot));
        }
        if let Some(place) = self.place(slot) {
            self.unproven -= usize::from(place.0 < Rank::Stale);
            self.reclaimable.remove(&place);
        }
    }

    /// The entry's place among those that may be given up.
    fn place(&self, slot: u32) -> Option<(Rank, Duration, u32)> {
        let entry = self.entry(slot).filter(|entry| entry.pins == 0)?;
        Some((Rank::of(entry)?, entry.since, slot))
    }

    fn publish(&self, slot: u32) -> Action {
        let entry = self.entry(slot).expect("only a taken slot is published");
        let (state, mac) = match self.down.contains(&entry.key.port) {
            false => (entry.adjacency_state(), entry.mac),
            true => (AdjacencyState::Failed, None),
        };
        Action::Publish { slot, key: entry.key, state, mac }
    }

    fn keys_of(&self, port: PortId) -> Vec<Key> {
        self.by_key.range(keys_on(port)).map(|(&key, _)| key).collect()
    }

    fn full(&self, key: Key) -> TableFull {
        TableFull { key, entries_max: self.config.entries_max }
    }

    /// `REACHABLE_TIME`: the base times 0.5 to 1.5 (RFC 4861 §6.3.2).
    fn draw_reachable(&mut self) -> Duration {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); nothing secret hangs on it.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandths = 500 + (z ^ (z >> 31)) % 1001;
        self.config.timing.reachable * thousandths as u32 / 1000
    }
}

fn keys_on(port: PortId) -> std::ops::RangeInclusive<Key> {
    let first = Key { port, addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    first..=Key { port, addr: IpAddr::V6(Ipv6Addr::from(u128::MAX)) }
}

/// No station has a group address, nor the unspecified one (RFC 1812 §3.3.2).
fn can_be_a_station(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// An ARP probe (RFC 5227) and a solicitation that looks for duplicates have the unspecified address as source.
fn can_be_a_neighbour(addr: IpAddr) -> bool {
    let broadcast = addr == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(addr.is_unspecified() || addr.is_multicast() || addr.is_loopback() || broadcast)
}

#[cfg(test)]
mod tests;
