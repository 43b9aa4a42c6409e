//! What prefixes lead to in the tables: next-hop ids, and the slots and groups that they need.
//!
//! | what          | shared by                     | made                         | retired                        |
//! |---------------|-------------------------------|------------------------------|--------------------------------|
//! | next-hop id   | prefixes with an equal [`Destination`]| before a prefix leads to it  | after the last one does        |
//! | slot          | ways with an equal [`Via`]    | before an id leads to it     | after the last id or group     |
//! | group         | none: one id's                | before that id leads to it   | after it leads elsewhere       |
//!
//! Both default routes have an id of their own, and one id is for all that is the kernel's. When ids, slots or
//! groups run out although none waits for a grace period, what needs one is the kernel's too: it is *starved*,
//! counted, and tried again when one is free.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use manylane_frame::vocabulary::PortId;
use manylane_io::netlink::kernel::Family;
use manylane_net::fib::NextHopId;
use manylane_net::nexthop::{GroupId, Member, NextHop};
use manylane_net::transit::Adjacency;
use manylane_net::wire::ethernet::Mac;

use super::destination::{self, Destination, Via};
use super::family::Seeded;
use super::kernel::mac_of;
use super::resolve::{Plain, Resolved, View};
use super::table_writer::TableWriter;

/// The smallest id.
const MIN: NextHopId = NextHopId::new(1).expect("it is not 0");

/// Something waits for a grace period: to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// What was requested; nothing when a pool is empty.
type Taken<T> = Result<Option<T>, Busy>;

/// Ids, slots and groups.
pub(super) struct Targets {
    ids: HashMap<Destination, NextHopId, Seeded>,
    entries: BTreeMap<NextHopId, Target>,
    /// The ids of ways by a next-hop object.
    by_object: BTreeSet<(u32, NextHopId)>,
    slots: BTreeMap<Via, Slot>,
    groups: usize,
    /// Ids that no prefix has.
    idle: BTreeSet<NextHopId>,
    /// Ids whose word is to be written (again).
    pub words: BTreeSet<NextHopId>,
    /// Slots to be written (again).
    pub stale: BTreeSet<Via>,
    /// Ids that lead to the kernel for want of slots or groups.
    starved: BTreeSet<NextHopId>,
    /// Something was given back since these were tried.
    has_freed: bool,
    /// For all that is the kernel's.
    kernel: NextHopId,
    /// Of 0/0 and ::/0.
    defaults: [NextHopId; 2],
}

/// A word, and the neighbours whose slots it leads to.
type Prepared = (NextHop<u32>, Vec<Via>);

/// What an id stands for.
struct Target {
    /// Nothing only for a missing default route.
    destination: Option<Destination>,
    /// How many prefixes lead here.
    count: u32,
    /// What is written; nothing before it ever was.
    resolved: Option<Word>,
    held: Vec<Via>,
    group: Option<GroupId>,
}

/// What an id's word was written from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Resolved(Resolved, u16),
}

struct Slot {
    number: u32,
    count: u32,
}

impl Targets {
    /// With the ids that are always there.
    pub fn new(writer: &mut impl TableWriter) -> Targets {
        let mut take = || writer.take_id().expect("fresh tables have ids");
        let (kernel, defaults) = (take(), [take(), take()]);
        writer.set_next_hop(kernel, NextHop::Kernel);
        let target = |destination| Target {
            destination,
            count: 0,
            resolved: None,
            held: Vec::new(),
            group: None,
        };
        let mut entries: BTreeMap<NextHopId, Target> =
            defaults.map(|id| (id, target(None))).into_iter().collect();
        entries.insert(kernel, target(Some(Destination::Kernel)));
        Targets {
            ids: [(Destination::Kernel, kernel)].into_iter().collect(),
            entries,
            by_object: BTreeSet::new(),
            slots: BTreeMap::new(),
            groups: 0,
            idle: BTreeSet::new(),
            words: BTreeSet::new(),
            stale: BTreeSet::new(),
            starved: BTreeSet::new(),
            has_freed: false,
            kernel,
            defaults,
        }
    }

    /// The id of a family's default route.
    pub fn default_of(&self, family: Family) -> NextHopId {
        match family {
            Family::V4 => self.defaults[0],
            Family::V6 => self.defaults[1],
        }
    }

    /// The id of what is the kernel's.
    pub fn kernel(&self) -> NextHopId {
        self.kernel
    }

    /// The way that an id stands for.
    pub fn destination(&self, id: NextHopId) -> Option<&Destination> {
        self.entries.get(&id)?.destination.as_ref()
    }

    /// The id of a way, written; the kernel's when ids run out, which is `Ok(None)`.
    pub fn id_of(
        &mut self,
        writer: &mut impl TableWriter,
        view: View<'_>,
        destination: &Destination,
    ) -> Result<Option<NextHopId>, Busy> {
        let id = match self.ids.get(destination) {
            Some(&id) => id,
            None => match writer.take_id() {
                Some(id) => self.add(id, destination),
                None if self.entries.len() >= writer.bounds().ids => return Ok(None),
                None => return Err(Busy),
            },
        };
        if id != self.kernel && self.entries[&id].resolved.is_none() {
            self.write(writer, view, id)?;
        }
        Ok(Some(id))
    }

    fn add(&mut self, id: NextHopId, destination: &Destination) -> NextHopId {
        let destination = destination.clone();
        if let Destination::Object { object, .. } = destination {
            self.by_object.insert((object, id));
        }
        self.ids.insert(destination.clone(), id);
        let target = Target {
            destination: Some(destination),
            count: 0,
            resolved: None,
            held: Vec::new(),
            group: None,
        };
        self.entries.insert(id, target);
        self.idle.insert(id);
        id
    }

    /// Gives a family's default route this way: one word.
    pub fn set_default(
        &mut self,
        writer: &mut impl TableWriter,
        view: View<'_>,
        family: Family,
        destination: Option<Destination>,
    ) {
        let id = self.default_of(family);
        let target = self.entries.get_mut(&id).expect("it is always there");
        if let Some(Destination::Object { object, .. }) = target.destination {
            self.by_object.remove(&(object, id));
        }
        if let Some(Destination::Object { object, .. }) = destination {
            self.by_object.insert((object, id));
        }
        target.destination = destination;
        if self.write(writer, view, id).is_err() {
            self.words.insert(id);
        }
    }

    /// One more prefix leads to an id.
    pub fn hold(&mut self, id: NextHopId) {
        self.idle.remove(&id);
        self.entries.get_mut(&id).expect("an id in use").count += 1;
    }

    /// One less does.
    pub fn release(&mut self, id: NextHopId) {
        let target = self.entries.get_mut(&id).expect("an id in use");
        target.count -= 1;
        if target.count == 0 && id != self.kernel && !self.defaults.contains(&id) {
            self.idle.insert(id);
        }
    }

    /// Gives back ids that no prefix has.
    pub fn sweep(&mut self, writer: &mut impl TableWriter) {
        for id in std::mem::take(&mut self.idle) {
            let target = self.entries.remove(&id).expect("an idle id is one");
            let destination = target.destination.expect("only default routes have none");
            self.ids.remove(&destination);
            if let Destination::Object { object, .. } = destination {
                self.by_object.remove(&(object, id));
            }
            self.words.remove(&id);
            self.starved.remove(&id);
            writer.retire_id(id);
            if let Some(group) = target.group {
                self.drop_group(writer, group);
            }
            self.give_back(writer, &target.held);
            self.has_freed = true;
        }
    }

    /// These next-hop objects lead elsewhere: the words of their ids are to be written.
    pub fn objects_changed(&mut self, objects: &BTreeSet<u32>) {
        for &object in objects {
            let ids = self.by_object.range((object, MIN)..=(object, NextHopId::MAX));
            self.words.extend(ids.map(|&(_, id)| id));
        }
    }

    /// A link's state, or its port, is another.
    pub fn link_changed(&mut self, link: u32) {
        let first = Via { link, gateway: Ipv4Addr::UNSPECIFIED.into(), mtu: 0 };
        let of_link = self.slots.range(first..).take_while(|(via, _)| via.link == link);
        self.stale.extend(of_link.map(|(via, _)| *via));
    }

    /// A link's number as a port is another.
    pub fn port_changed(&mut self, link: u32) {
        self.link_changed(link);
        let is_there = |target: &Target| matches!(&target.resolved, Some(Word::Resolved(Resolved::OnLink { link: of, .. }, _)) if *of == link);
        let ids = self.entries.iter().filter(|(_, target)| is_there(target));
        self.words.extend(ids.map(|(id, _)| *id));
    }

    /// A neighbour is another.
    pub fn neighbour_changed(&mut self, link: u32, gateway: IpAddr) {
        let range = Via { link, gateway, mtu: 0 }..=Via { link, gateway, mtu: u32::MAX };
        self.stale.extend(self.slots.range(range).map(|(via, _)| *via));
    }

    /// What was starved is tried again when something was given back. Says whether prefixes may be, too.
    pub fn retry_starved(&mut self) -> bool {
        let has_freed = std::mem::take(&mut self.has_freed);
        if has_freed {
            self.words.extend(&self.starved);
        }
        has_freed
    }

    /// Writes the slots that are to be. First those that cannot be sent to, then the others: nothing is sent
    /// to a dead exit while others are written.
    pub fn write_slots(
        &mut self,
        writer: &mut impl TableWriter,
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
        writer: &mut impl TableWriter,
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
    fn write(
        &mut self,
        writer: &mut impl TableWriter,
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
        writer: &mut impl TableWriter,
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
        writer: &mut impl TableWriter,
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
    fn undo(&mut self, writer: &mut impl TableWriter, held: &[Via]) {
        let has_freed = self.has_freed;
        self.give_back(writer, held);
        self.has_freed = has_freed;
    }

    fn give_back(&mut self, writer: &mut impl TableWriter, held: &[Via]) {
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

    fn drop_group(&mut self, writer: &mut impl TableWriter, group: GroupId) {
        writer.remove_group(group);
        self.groups -= 1;
        self.has_freed = true;
    }

    /// What is to be written still.
    pub fn pending(&self) -> usize {
        self.words.len() + self.stale.len()
    }

    /// Ids, slots and groups in use, and ids without what they need.
    pub fn counts(&self) -> [usize; 4] {
        [self.entries.len(), self.slots.len(), self.groups, self.starved.len()]
    }

    /// All ids and their ways.
    pub fn iter(&self) -> impl Iterator<Item = (NextHopId, Option<&Destination>, u32)> {
        self.entries.iter().map(|(id, target)| (*id, target.destination.as_ref(), target.count))
    }

    /// All slots: their neighbours and numbers.
    pub fn slots(&self) -> impl Iterator<Item = (Via, u32)> {
        self.slots.iter().map(|(via, slot)| (*via, slot.number))
    }

    /// What the model says that the word of an id is; nothing where it is starved.
    pub fn wanted(&self, view: View<'_>, id: NextHopId) -> Option<NextHop<Vec<(Via, u16)>>> {
        let target = self.entries.get(&id)?;
        if self.starved.contains(&id) {
            return None;
        }
        let Some(destination) = &target.destination else { return Some(NextHop::None) };
        Some(match view.resolved(destination) {
            Resolved::Plain(plain) => plain_word(plain),
            Resolved::OnLink { link, .. } => NextHop::Connected(PortId(view.ports.number(link))),
            Resolved::Via(via) => NextHop::Via(vec![(via, 1)]),
            Resolved::Many(members) => NextHop::Via(members.iter().map(weighted_via).collect()),
        })
    }
}

fn weighted_via(member: &destination::Member) -> (Via, u16) {
    (member.via, member.weight)
}

fn plain_word<N>(plain: Plain) -> NextHop<N> {
    match plain {
        Plain::Local => NextHop::Local,
        Plain::Broadcast => NextHop::Broadcast,
        Plain::Blackhole => NextHop::Blackhole,
        Plain::Unreachable => NextHop::Unreachable,
        Plain::Prohibit => NextHop::Prohibit,
        Plain::Kernel => NextHop::Kernel,
    }
}

fn set_unresolved(writer: &mut impl TableWriter, slot: u32) {
    let refused = writer.set_slot(slot, None).is_err();
    debug_assert!(!refused, "it needs no record");
}

/// How a router is reached now; nothing if it cannot be.
pub(super) fn adjacency(view: View<'_>, via: Via) -> Option<Adjacency> {
    let link = view.kernel.link(via.link)?;
    let mac = link.mac?;
    let neighbour = view.kernel.neighbour(via.link, via.gateway)?;
    let destination = mac_of(neighbour)?;
    view.kernel.can_send(via.link).then_some(Adjacency {
        egress_ifindex: via.link,
        egress_port: view.ports.number(via.link),
        mtu: if via.mtu == 0 { link.mtu } else { link.mtu.min(via.mtu) },
        destination: Mac(destination),
        source: Mac(mac),
    })
}
