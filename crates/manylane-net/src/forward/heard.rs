//! How much is reported of what other stations say, and which of it must not be lost.
//!
//! Any station on a link can send advertisements and ARP packets as fast as the link takes them. Places in the ring to
//! the control thread that only answers may take are therefore for answers of neighbours that have a slot, and only for
//! [`ANSWERS_PER_SECOND`] of each; all other answers share the places of other reports.

use manylane_sync::rcu::Index;

use super::{Forwarder, REPORT_INTERVAL_NS, Tables, Turn};
use crate::neighbour::{Key, Kind, Report};
use crate::nexthop::NextHop;

/// What one worker has heard.
pub(super) struct Heard {
    /// When an answer of each neighbour's slot last took a reserved place.
    answered_ns: Vec<u64>,
    /// When a claim to each address of ours was last reported.
    claimed_ns: Vec<u64>,
    /// Link-local neighbours, which the FIB does not lead to, and their slots; sorted.
    link_local: Vec<(Key, u32)>,
    /// The generation of the neighbours that the list was made of.
    generation: Option<u32>,
    /// When it was made.
    listed_ns: u64,
}

/// A neighbour is probed once a second, and may send announcements of its own.
const ANSWERS_PER_SECOND: u64 = 4;

/// The list of link-local neighbours is made anew at most so often: looking at 9216 slots takes some 30 µs.
const LIST_INTERVAL_NS: u64 = 10_000_000;

impl Heard {
    pub fn new(tables: &Tables) -> Heard {
        let slots = tables.adjacencies.slots();
        Heard {
            answered_ns: vec![0; slots],
            claimed_ns: vec![0; tables.own.len()],
            link_local: Vec::with_capacity(slots),
            generation: None,
            listed_ns: 0,
        }
    }
}

impl Forwarder {
    /// Reports the neighbour's address that a packet shows.
    pub(super) fn heard(
        &mut self,
        turn: &Turn<'_, '_>,
        key: Key,
        mac: Option<[u8; 6]>,
        kind: Kind,
    ) {
        let event = Report::Answer { key, mac, kind };
        let slot = match kind {
            Kind::ArpReply | Kind::Advertisement { .. } => self.slot_of(turn, key),
            Kind::ArpRequest | Kind::Gratuitous | Kind::Solicitation => None,
        };
        let last_ns = slot.and_then(|slot| self.heard.answered_ns.get_mut(slot as usize));
        let interval_ns = REPORT_INTERVAL_NS / ANSWERS_PER_SECOND;
        if last_ns.is_some_and(|last_ns| is_due(last_ns, turn.now_ns, interval_ns)) {
            self.report_urgent(event);
        } else {
            self.report(event);
        }
    }

    /// Whether a claim to this address of ours is to be reported: once a second. Another one within that time
    /// changes nothing.
    pub(super) fn may_report_claim(&mut self, key: Key, now_ns: u64) -> bool {
        let place = self.tables.own.place(key);
        let last_ns = place.and_then(|place| self.heard.claimed_ns.get_mut(place));
        last_ns.is_none_or(|last_ns| is_due(last_ns, now_ns, REPORT_INTERVAL_NS))
    }

    /// The slot of the neighbour with this name, if it has one.
    fn slot_of(&mut self, turn: &Turn<'_, '_>, key: Key) -> Option<u32> {
        let NextHop::Via(neighbour) = self.next_hop(turn.guard, key.addr) else {
            return self.link_local_slot(turn, key);
        };
        let adjacencies = &self.tables.adjacencies;
        let found = adjacencies.key(adjacencies.load(turn.guard, neighbour));
        (found == key).then_some(neighbour.raw())
    }

    fn link_local_slot(&mut self, turn: &Turn<'_, '_>, key: Key) -> Option<u32> {
        if !is_link_local(key) {
            return None;
        }
        let (adjacencies, heard) = (&self.tables.adjacencies, &mut self.heard);
        let generation = Some(adjacencies.generation());
        let is_due =
            heard.generation.is_none() || turn.now_ns >= heard.listed_ns + LIST_INTERVAL_NS;
        if heard.generation != generation && is_due {
            heard.link_local.clear();
            let all = (0..adjacencies.slots() as u32).map(|slot| {
                let adjacency = adjacencies.load(turn.guard, Index::new(turn.guard, slot));
                (adjacencies.key(adjacency), slot)
            });
            heard.link_local.extend(all.filter(|&(key, _)| is_link_local(key)));
            heard.link_local.sort_unstable();
            (heard.generation, heard.listed_ns) = (generation, turn.now_ns);
        }
        let list = &heard.link_local;
        list.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| list[at].1)
    }
}

fn is_link_local(key: Key) -> bool {
    matches!(key.addr, std::net::IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// Whether `interval_ns` have passed since `last_ns`, which then is now.
fn is_due(last_ns: &mut u64, now_ns: u64, interval_ns: u64) -> bool {
    let due = *last_ns == 0 || now_ns.saturating_sub(*last_ns) >= interval_ns;
    if due {
        *last_ns = now_ns.max(1);
    }
    due
}
