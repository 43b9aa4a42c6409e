//! What next-hop ids mean: ids, and the slots of neighbours and the groups that they lead to.

use super::adjacency::{Adjacency, address_words};
use super::{TransitMut, take, waiting};
use crate::fib::{EditError, Ipv4Prefix, NextHopId};
use crate::nexthop::{GroupId, GroupsFull, Member, NextHop};
use crate::transit::layout::{RECORD_WORDS, RECORDS, record};
use crate::transit::own::is_own;

/// The record of a slot that has none.
const NO_RECORD: u32 = 0;

impl TransitMut {
    /// An id for a next hop; it leads nowhere yet. `None` when all are in use or wait.
    pub fn take_id(&mut self) -> Option<NextHopId> {
        let raw = u16::try_from(take(&mut self.ids)?).expect("ids are below 2^15");
        let id = NextHopId::new(raw).expect("0 was taken at the start");
        self.next_hops.set(id, NextHop::None);
        Some(id)
    }

    /// Gives back an id that no route has any more.
    ///
    /// # Panics
    ///
    /// When it is not in use: it would be two routes' next hop.
    pub fn retire_id(&mut self, id: NextHopId) {
        self.ids.retire(id.raw().into());
    }

    /// Sets what `id` means. All its routes follow at once. `Via` names a slot.
    pub fn set_next_hop(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        let (was, is) = (is_own(self.next_hop(id)), is_own(next_hop));
        let affected: Vec<Ipv4Prefix> = if was != is && self.own.has_routes(id) {
            self.ipv4.routes().filter(|route| route.1 == id).map(|route| route.0).collect()
        } else {
            Vec::new()
        };
        if is {
            affected.iter().for_each(|prefix| self.own.add(*prefix));
        }
        self.next_hops.set(id, next_hop);
        if was {
            affected.iter().for_each(|prefix| self.own.remove(*prefix));
        }
    }

    /// What `id` means.
    pub fn next_hop(&self, id: NextHopId) -> NextHop<u32> {
        self.next_hops.get(id)
    }

    /// A slot for a neighbour, unresolved. `None` when all are in use or wait.
    pub fn take_slot(&mut self) -> Option<u32> {
        let slot = take(&mut self.slots)?;
        // Its last neighbour's, which no reader has found since the slot's own grace period.
        self.replace_record(slot, NO_RECORD);
        Some(slot)
    }

    /// Says how a slot's neighbour is reached, or that it cannot be sent to. Packets see the former or this;
    /// flows of groups move to members that can be reached. `None` is never refused.
    pub fn set_slot(&mut self, slot: u32, way: Option<Adjacency>) -> Result<(), EditError> {
        if way == self.adjacency(slot) {
            return Ok(());
        }
        match way {
            Some(way) => {
                let record = self.write_record(&way)?;
                self.replace_record(slot, record);
                self.next_hops.set_resolved(slot, true);
            }
            None => {
                self.next_hops.set_resolved(slot, false);
                self.replace_record(slot, NO_RECORD);
            }
        }
        Ok(())
    }

    /// How a slot's neighbour is reached.
    pub fn adjacency(&self, slot: u32) -> Option<Adjacency> {
        let record = self.record_of.load(slot as usize);
        if record == NO_RECORD {
            return None;
        }
        let first = record as usize * RECORD_WORDS;
        let words = std::array::from_fn(|place| self.records.load(first + place));
        Some(Adjacency::of(&words))
    }

    /// Gives back a slot that nothing leads to any more. The slot keeps its record until another neighbour has it, for
    /// packets that are on their way to it.
    ///
    /// # Panics
    ///
    /// When it is not in use: it would be two neighbours'.
    pub fn retire_slot(&mut self, slot: u32) {
        self.slots.retire(slot);
    }

    /// Makes a group, to which no next hop leads yet.
    ///
    /// # Panics
    ///
    /// With no or more than [`MEMBERS_MAX`](crate::nexthop::MEMBERS_MAX) members, two of one slot, or a weight of 0.
    pub fn add_group(&mut self, members: &[Member]) -> Result<GroupId, GroupsFull> {
        let record_of = &self.record_of;
        self.next_hops.add_group(members, |slot| record_of.load(slot as usize) != NO_RECORD)
    }

    /// Gives a group other members, or weights. Only the flows move that must.
    ///
    /// # Panics
    ///
    /// As [`TransitMut::add_group`], and without such a group.
    pub fn set_members(&mut self, group: GroupId, members: &[Member]) {
        let record_of = &self.record_of;
        let has_address = |slot: u32| record_of.load(slot as usize) != NO_RECORD;
        self.next_hops.set_members(group, members, has_address);
    }

    /// A group's members, and how many of its buckets each has at present.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = (Member, usize)> {
        self.next_hops.members(group)
    }

    /// Takes a group away that no next hop leads to any more.
    ///
    /// # Panics
    ///
    /// Without such a group.
    pub fn remove_group(&mut self, group: GroupId) {
        self.next_hops.remove_group(group);
    }

    /// Writes a record that no reader finds yet.
    fn write_record(&mut self, way: &Adjacency) -> Result<u32, EditError> {
        let Some(number) = take(&mut self.record_numbers) else {
            // Records are twice as many as slots: those that are not in use wait.
            let waiting = waiting(&self.record_numbers);
            let waiting_max = RECORDS - self.record_numbers.levels().in_use;
            return Err(EditError::Busy { waiting, waiting_max });
        };
        self.stamp = self.stamp.wrapping_add(1);
        let mut words = [0; RECORD_WORDS];
        words[record::EGRESS_INTERFACE] = way.egress_ifindex;
        words[record::EGRESS_PORT] = way.egress_port.into();
        words[record::MTU] = way.mtu;
        words[record::ADDRESSES..record::ADDRESSES + 3]
            .copy_from_slice(&address_words(way.destination, way.source));
        record::STAMPS.into_iter().for_each(|place| words[place] = self.stamp);
        for (at, word) in (number as usize * RECORD_WORDS..).zip(words) {
            // Relaxed: invariant 2. A reader that finds the number has loaded it after `replace_record` published it.
            self.records.store(at, word);
        }
        Ok(number)
    }

    /// Lets readers find another record for a slot. The former one waits.
    fn replace_record(&mut self, slot: u32, number: u32) {
        let former = self.record_of.load(slot as usize);
        self.record_of.publish(slot as usize, number);
        if former != NO_RECORD {
            self.record_numbers.retire(former);
        }
    }
}
