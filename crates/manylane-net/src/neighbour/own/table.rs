//! The control thread's table of our own addresses, and the workers' side of it.
//!
//! | side           | may                                                       |
//! |----------------|-----------------------------------------------------------|
//! | [`OwnTable`]   | hear, tick, publish: the control thread                   |
//! | [`OwnAddresses`] | ask, be cloned and sent to every worker                 |
//!
//! One word for each address says what workers may do with it ([`Standing`]). Forwarded packets do not read it: only
//! ARP, neighbour discovery and the source of what we send do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_sync::words::{Words, WordsMut};

use super::{
    Claim, DuplicateDetection, OwnAddress, OwnEvent, OwnState, OwnTiming, Sends, Standing,
};
use crate::neighbour::Key;
use crate::neighbour::bucket::Bucket;

/// Our addresses, each with its state and timer.
pub struct OwnTable {
    keys: Arc<[Key]>,
    addresses: Vec<OwnAddress>,
    conflicts: Vec<Conflicts>,
    /// Whether another station's claim was reported to the operator.
    lost: Vec<bool>,
    /// When the operator was last told that an address of ours is kept.
    kept: Vec<Option<Duration>>,
    timers: BTreeSet<(Duration, usize)>,
    standings: WordsMut<u32>,
    mode: DuplicateDetection,
    bucket: Bucket,
    /// Packets that may be requested.
    places: usize,
    /// Where an address has changed: port, and whether IPv6.
    changed: BTreeSet<(PortId, bool)>,
    random: u64,
}

/// The other claimant of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// How often we heard of it.
    pub heard: u64,
    /// The station that did so last.
    pub last: Option<[u8; 6]>,
}

/// What the control thread has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnAction {
    /// Probe whether any station has it.
    Probe(Key),
    /// Announce to all stations that we have it.
    Announce(Key),
    /// Packets to it are for us from now on.
    Use(Key),
    /// The addresses are gone.
    Leave(Key),
    /// This station has our address: tell the operator, once until it is ours again.
    Lost(Key, [u8; 6]),
    /// This station claims our address, which we keep: tell the operator, once in ten minutes for each address.
    Kept(Key, [u8; 6]),
}

impl OwnTable {
    /// Our addresses, on links where others may be. `seed` differs between routers, so that two that have
    /// the same address and start together do not speak together for ever.
    pub fn new(
        keys: impl IntoIterator<Item = Key>,
        mode: DuplicateDetection,
        seed: u64,
        now: Duration,
    ) -> OwnTable {
        let keys: BTreeSet<Key> = keys.into_iter().collect();
        let mut table = OwnTable {
            standings: WordsMut::zeroed(keys.len()),
            keys: keys.into_iter().collect(),
            addresses: Vec::new(),
            conflicts: Vec::new(),
            lost: Vec::new(),
            kept: Vec::new(),
            timers: BTreeSet::new(),
            mode,
            bucket: Bucket::new(SENDS_PER_SECOND, SENDS_BURST),
            places: usize::MAX,
            changed: BTreeSet::new(),
            random: seed,
        };
        for &key in table.keys.clone().iter() {
            let draw = table.draw();
            let address = super::first(key, mode, now, &OwnTiming::of(key.addr), draw);
            let at = table.addresses.len();
            table.timers.extend(address.deadline.map(|due| (due, at)));
            table.standings.publish(at, address.standing() as u32);
            table.changed.insert(link_of(key));
            table.addresses.push(address);
            table.conflicts.push(Conflicts::default());
            table.lost.push(false);
            table.kept.push(None);
        }
        table
    }

    /// The workers' side.
    pub fn reader(&self) -> OwnAddresses {
        OwnAddresses { keys: self.keys.clone(), standings: self.standings.reader() }
    }

    /// Takes in that the station `mac` lays claim to an address of ours.
    pub fn hear(
        &mut self,
        key: Key,
        mac: [u8; 6],
        claim: Claim,
        now: Duration,
        actions: &mut Vec<OwnAction>,
    ) {
        let Ok(at) = self.keys.binary_search(&key) else { return };
        self.conflicts[at].heard += 1;
        self.conflicts[at].last = Some(mac);
        self.step(at, OwnEvent::Claimed(claim), now, actions);
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<OwnAction>) {
        while let Some(&(due, at)) = self.timers.first()
            && due <= now
            && self.places > 0
            && self.bucket.take(now, 0)
        {
            self.step(at, OwnEvent::Timeout, now, actions);
        }
    }

    /// Probes or announces the addresses of a port anew, as at the start: its carrier is back, and the link may be
    /// another (RFC 5227 §2.1). One that another station had stays unused until its probes are over.
    pub fn restart(&mut self, port: PortId, now: Duration, actions: &mut Vec<OwnAction>) {
        for at in 0..self.keys.len() {
            let key = self.keys[at];
            if key.port != port {
                continue;
            }
            let draw = self.draw();
            let anew = super::first(key, self.mode, now, &OwnTiming::of(key.addr), draw);
            let in_use = anew.in_use && self.addresses[at].in_use;
            self.replace(at, OwnAddress { in_use, ..anew }, actions);
        }
    }

    /// When to call [`OwnTable::tick`] next, if nothing is heard before.
    pub fn deadline(&self) -> Option<Duration> {
        let first = self.timers.first().filter(|_| self.places > 0);
        first.map(|&(due, _)| due.max(self.bucket.ready_at(0)))
    }

    /// From now on, at most `places` packets may be requested; at first without a bound. An address without a place
    /// stays as it is, and without a deadline.
    pub fn give_places(&mut self, places: usize) {
        self.places = places;
    }

    /// Whether addresses wait for [`OwnTable::give_places`].
    pub fn needs_places(&self) -> bool {
        self.places == 0
    }

    /// The ports and families (whether IPv6) whose addresses have changed since this was last called.
    pub fn take_changed(&mut self) -> BTreeSet<(PortId, bool)> {
        std::mem::take(&mut self.changed)
    }

    /// Whether questions for neighbours must wait: no address of this family on this port may ask, and one may soon.
    /// ARP asks from an address in use, or from the unspecified one; neighbour discovery from one that is ours.
    pub fn must_wait(&self, port: PortId, is_ipv6: bool) -> bool {
        let of_link = || self.addresses.iter().filter(|own| link_of(own.key) == (port, is_ipv6));
        let asks = |own: &OwnAddress| match own.standing() {
            Standing::Ours => true,
            Standing::Tentative => !is_ipv6,
            Standing::Unused => false,
        };
        of_link().any(|own| own.state == OwnState::Probing) && !of_link().any(asks)
    }

    /// Every address, by port and address, and its other claimants.
    pub fn addresses(&self) -> impl Iterator<Item = (&OwnAddress, Conflicts)> {
        self.addresses.iter().zip(self.conflicts.iter().copied())
    }

    fn step(&mut self, at: usize, event: OwnEvent, now: Duration, actions: &mut Vec<OwnAction>) {
        let old = self.addresses[at];
        let draw = self.draw();
        let (new, sends) = super::step(&old, event, now, &OwnTiming::of(old.key.addr), draw);
        if sends.is_some() {
            if self.places == 0 {
                return; // Not defended yet: the next claim comes.
            }
            self.places -= 1;
        }
        self.replace(at, new, actions);
        self.lost[at] &= !new.in_use;
        if new.state == OwnState::Duplicate
            && let Some(mac) = self.conflicts[at].last
            && !std::mem::replace(&mut self.lost[at], true)
        {
            actions.push(OwnAction::Lost(new.key, mac));
        }
        // A claim to an address in use that is answered with an announcement: a defence.
        if let (OwnEvent::Claimed(_), Some(_), Some(mac)) = (event, sends, self.conflicts[at].last)
            && self.kept[at].is_none_or(|last| now >= last + TELL_GAP)
        {
            self.kept[at] = Some(now);
            actions.push(OwnAction::Kept(new.key, mac));
        }
        actions.extend(sends.map(|sends| match sends {
            Sends::Probe => OwnAction::Probe(new.key),
            Sends::Announcement => OwnAction::Announce(new.key),
        }));
    }

    fn replace(&mut self, at: usize, new: OwnAddress, actions: &mut Vec<OwnAction>) {
        let old = self.addresses[at];
        if (new.state, new.in_use) != (old.state, old.in_use) {
            self.changed.insert(link_of(new.key));
        }
        if let Some(due) = old.deadline {
            self.timers.remove(&(due, at));
        }
        self.timers.extend(new.deadline.map(|due| (due, at)));
        self.addresses[at] = new;
        if new.standing() != old.standing() {
            self.standings.publish(at, new.standing() as u32);
        }
        if new.in_use != old.in_use {
            actions.push(if new.in_use {
                OwnAction::Use(new.key)
            } else {
                OwnAction::Leave(new.key)
            });
        }
    }

    /// From 0 to 1000.
    fn draw(&mut self) -> u32 {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); nothing secret hangs on it.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % 1001) as u32
    }
}

fn link_of(key: Key) -> (PortId, bool) {
    (key.port, key.addr.is_ipv6())
}

/// How often the log names a station that claims an address of ours, which claims as often as it likes.
const TELL_GAP: Duration = Duration::from_secs(600);

/// Timers of all addresses together: a thousand addresses are announced in some seconds, by orders that
/// find a place in the worker's ring.
const SENDS_PER_SECOND: u32 = 500;
const SENDS_BURST: u32 = 50;

/// The workers' side.
#[derive(Clone)]
pub struct OwnAddresses {
    keys: Arc<[Key]>,
    standings: Words<u32>,
}

impl Default for OwnAddresses {
    /// Knows of no address: all are [`Standing::Ours`].
    fn default() -> Self {
        OwnAddresses { keys: Arc::new([]), standings: WordsMut::zeroed(0).reader() }
    }
}

impl OwnAddresses {
    /// How many addresses it knows of.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it knows of none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The place of an address among them.
    pub fn place(&self, key: Key) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    /// What may be done with an address of ours. One on a link without other stations is always ours.
    pub fn standing(&self, key: Key) -> Standing {
        match self.keys.binary_search(&key) {
            Ok(at) => Standing::from_word(self.standings.load(at)),
            Err(_) => Standing::Ours,
        }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
