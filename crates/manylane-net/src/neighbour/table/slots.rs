//! Which entry has which slot, its place in the order of timers, and in that of giving entries up.

use std::time::Duration;

use super::rank::Rank;
use super::{Action, Table};
use crate::neighbour::entry::{Entry, Trust};

#[derive(Clone, Copy)]
pub(super) enum Slot {
    Free,
    Taken(Entry),
    /// Left, and not yet given back by [`Table::free`].
    Left,
}

impl Table {
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

    /// A slot for a new entry, given up by another if need be.
    pub(super) fn make_room(
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

    pub(super) fn remove(&mut self, slot: u32, now: Duration, actions: &mut Vec<Action>) {
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

    pub(super) fn occupy(&mut self, slot: u32, entry: Entry) {
        self.slots[slot as usize] = Slot::Taken(entry);
        self.by_key.insert(entry.key, slot);
        self.link(slot);
    }

    pub(super) fn replace(&mut self, slot: u32, entry: Entry) {
        self.unlink(slot);
        self.slots[slot as usize] = Slot::Taken(entry);
        self.link(slot);
    }

    pub(super) fn link(&mut self, slot: u32) {
        if let Some((timer, due, slot)) = self.timer(slot) {
            self.timers[timer as usize].insert((due, slot));
        }
        if let Some(place) = self.place(slot) {
            self.unproven += usize::from(place.0 < Rank::Stale);
            self.reclaimable.insert(place);
        }
    }

    pub(super) fn unlink(&mut self, slot: u32) {
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
}
