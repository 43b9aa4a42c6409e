//! Writes slots and words: first what an id needs, then its word, then it gives back what it needed before.

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::NextHopId;
use manylane_net::nexthop::{GroupId, Member, NextHop};

use super::{Busy, Slot, Targets, Word, adjacency, plain_word, weighted_via};
use crate::destination::Via;
use crate::resolve::{Resolved, View};
use crate::table_writer::TableWriter;

/// What was requested; nothing when a pool is empty.
type Taken<T> = Result<Option<T>, Busy>;

/// A word, and the neighbours whose slots it leads to.
type Prepared = (NextHop<u32>, Vec<Via>);

impl Targets {
    /// Writes the slots that are to be. First those that cannot be sent to, then the others: nothing is sent
    /// to a dead exit while others are written.
    pub fn write_slots(
        &mut self,
        writer: &mut dyn TableWriter,
        view: View<'_>,
    ) -> Result<usize, Busy> {
        let stale = std::mem::take(&mut self.stale);
        let mut resolved = Vec::new();
        let mut edits = 0;
        for via in stale {
            let Some(slot) = self.slots.get(&via) else { continue };
            match adjacency(view, via) {
                None => {
                    edits += usize::from(writer.adjacency(slot.number).is_some());
                    set_unresolved(writer, slot.number);
                }
                Some(reachable) if writer.adjacency(slot.number) != Some(reachable) => {
                    resolved.push((via, slot.number, reachable));
                }
                Some(_) => (),
            }
        }
        for (via, slot, reachable) in resolved {
            match writer.set_slot(slot, Some(reachable)) {
                Ok(()) => edits += 1,
                Err(_) => {
                    // What it says is not so any more: the kernel's until it can be written.
                    set_unresolved(writer, slot);
                    self.stale.insert(via);
                }
            }
        }
        if self.stale.is_empty() { Ok(edits) } else { Err(Busy) }
    }

    /// Writes the words that are to be.
    pub fn write_words(
        &mut self,
        writer: &mut dyn TableWriter,
        view: View<'_>,
    ) -> Result<usize, Busy> {
        let words = std::mem::take(&mut self.words);
        let mut edits = 0;
        for id in words {
            match self.entries.contains_key(&id).then(|| self.write(writer, view, id)) {
                None => (),
                Some(Ok(())) => edits += 1,
                Some(Err(Busy)) => _ = self.words.insert(id),
            }
        }
        if self.words.is_empty() { Ok(edits) } else { Err(Busy) }
    }

    /// Writes what an id leads to: first what it needs, then its word; then it gives back what it needed
    /// before.
    pub(super) fn write(
        &mut self,
        writer: &mut dyn TableWriter,
        view: View<'_>,
        id: NextHopId,
    ) -> Result<(), Busy> {
        let target = &self.entries[&id];
        let word = match &target.destination {
            None => Word::Nothing,
            Some(destination) => {
                let resolved = view.resolved(destination);
                let port = match resolved {
                    Resolved::OnLink { link, .. } => view.ports.number(link),
                    _ => 0,
                };
                Word::Resolved(resolved, port)
            }
        };
        if target.resolved.as_ref() == Some(&word) && !self.starved.contains(&id) {
            return Ok(());
        }
        let group = target.group;
        let prepared = self.prepare(writer, view, &word, group)?;
        let starved = prepared.is_none();
        let (next_hop, held) = prepared.unwrap_or((NextHop::Kernel, Vec::new()));
        if writer.next_hop(id) != next_hop {
            writer.set_next_hop(id, next_hop);
        }
        let target = self.entries.get_mut(&id).expect("it was just there");
        target.resolved = Some(word);
        target.group = match next_hop {
            NextHop::Group(group) => Some(group),
            _ => None,
        };
        let former = std::mem::replace(&mut target.held, held);
        if let Some(group) = group.filter(|&group| next_hop != NextHop::Group(group)) {
            self.drop_group(writer, group);
        }
        self.give_back(writer, &former);
        if starved {
            self.starved.insert(id);
        } else {
            self.starved.remove(&id);
        }
        Ok(())
    }

    /// Makes what a word needs. Nothing when a pool is empty.
    fn prepare(
        &mut self,
        writer: &mut dyn TableWriter,
        view: View<'_>,
        word: &Word,
        group: Option<GroupId>,
    ) -> Result<Option<Prepared>, Busy> {
        let members = match word {
            Word::Nothing => return Ok(Some((NextHop::None, Vec::new()))),
            Word::Resolved(Resolved::Plain(plain), _) => {
                return Ok(Some((plain_word(*plain), Vec::new())));
            }
            Word::Resolved(Resolved::OnLink { .. }, port) => {
                return Ok(Some((NextHop::Connected(PortId(*port)), Vec::new())));
            }
            Word::Resolved(Resolved::Via(via), _) => {
                let Some((held, _)) = self.take_slots(writer, view, &[(*via, 1)])? else {
                    return Ok(None);
                };
                return Ok(Some((NextHop::Via(self.slots[via].number), held)));
            }
            Word::Resolved(Resolved::Many(members), _) => members,
        };
        let wanted: Vec<(Via, u16)> = members.iter().map(weighted_via).collect();
        let Some((held, members)) = self.take_slots(writer, view, &wanted)? else {
            return Ok(None);
        };
        if let Some(group) = group {
            writer.set_members(group, &members);
            return Ok(Some((NextHop::Group(group), held)));
        }
        match writer.add_group(&members) {
            Ok(group) => {
                self.groups += 1;
                Ok(Some((NextHop::Group(group), held)))
            }
            Err(full) => {
                self.undo(writer, &held);
                if self.groups >= full.groups_max { Ok(None) } else { Err(Busy) }
            }
        }
    }

    /// Slots for these, each held once more. Nothing when slots run out.
    fn take_slots(
        &mut self,
        writer: &mut dyn TableWriter,
        view: View<'_>,
        wanted: &[(Via, u16)],
    ) -> Taken<(Vec<Via>, Vec<Member>)> {
        let mut held = Vec::with_capacity(wanted.len());
        let mut members = Vec::with_capacity(wanted.len());
        for &(via, weight) in wanted {
            if !self.slots.contains_key(&via) {
                let Some(number) = writer.take_slot() else {
                    let is_all = self.slots.len() >= writer.bounds().slots;
                    self.undo(writer, &held);
                    return if is_all { Ok(None) } else { Err(Busy) };
                };
                if writer.set_slot(number, adjacency(view, via)).is_err() {
                    // As unresolved, it is the kernel's.
                    self.stale.insert(via);
                }
                self.slots.insert(via, Slot { number, count: 0 });
            }
            let slot = self.slots.get_mut(&via).expect("it is there by now");
            slot.count += 1;
            held.push(via);
            members.push(Member { slot: slot.number, weight });
        }
        Ok(Some((held, members)))
    }

    /// Gives back what was taken in vain; no other id can use more than before.
    fn undo(&mut self, writer: &mut dyn TableWriter, held: &[Via]) {
        let has_freed = self.has_freed;
        self.give_back(writer, held);
        self.has_freed = has_freed;
    }

    pub(super) fn give_back(&mut self, writer: &mut dyn TableWriter, held: &[Via]) {
        for via in held {
            let slot = self.slots.get_mut(via).expect("a held slot");
            slot.count -= 1;
            if slot.count == 0 {
                writer.retire_slot(slot.number);
                self.slots.remove(via);
                self.stale.remove(via);
                self.has_freed = true;
            }
        }
    }

    pub(super) fn drop_group(&mut self, writer: &mut dyn TableWriter, group: GroupId) {
        writer.remove_group(group);
        self.groups -= 1;
        self.has_freed = true;
    }
}

fn set_unresolved(writer: &mut dyn TableWriter, slot: u32) {
    let refused = writer.set_slot(slot, None).is_err();
    debug_assert!(!refused, "it needs no record");
}
