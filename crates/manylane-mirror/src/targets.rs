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
//!
//! This file counts the prefixes that lead to an id, and notes what is to be written; `words` writes it, `shown` tells of it.

mod shown;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use manylane_io::netlink::kernel::Family;
use manylane_net::fib::NextHopId;
use manylane_net::nexthop::{GroupId, NextHop};
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
    pub fn new(writer: &mut dyn TableWriter) -> Targets {
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
        writer: &mut dyn TableWriter,
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
        writer: &mut dyn TableWriter,
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
    pub fn sweep(&mut self, writer: &mut dyn TableWriter) {
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
