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
//! | file       | what is in it                                                       |
//! |------------|---------------------------------------------------------------------|
//! | `messages` | [`Report`] and [`Action`]: what the table hears, and what it wants   |
//! | `bounds`   | [`TableConfig`], and what is counted or said where a bound is reached |
//! | `slots`    | which entry has which slot; making room                             |
//! | `ask`      | timers, and whether their questions may be sent                     |
//! | `lane`     | which question gets a token first                                   |
//! | `demand`   | what speaks for an unknown neighbour being there                    |
//! | `rank`     | which entry is given up first                                       |
//! | `carrier`  | ports that lose their carrier, and get it back                      |

mod ask;
mod bounds;
mod carrier;
mod demand;
mod lane;
mod messages;
mod rank;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use manylane_frame::vocabulary::PortId;

use super::Key;
use super::adjacency::AdjacencyState;
use super::bucket::Bucket;
use super::entry::{self, Entry, Event, Question, Timing, Trust};
pub use bounds::{TableConfig, TableCounts, TableFull};
use demand::Demand;
pub use demand::Requester;
use lane::Timer;
pub use messages::{Action, Report};
use rank::Rank;
use slots::Slot;

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

#[cfg(all(test, not(manylane_loom)))]
mod tests;
