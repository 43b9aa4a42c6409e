//! What routes say besides their prefix: few bodies, shared by many prefixes.
//!
//! A full table has a million prefixes, and one set of attributes for each router. So a
//! route in the model is its key and the number of its attributes; a message is compared with them before
//! anything is allocated for it.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::net::IpAddr;

use manylane_io::netlink::kernel::{Family, Hop, Route};

use super::constants::{
    HOP_DEAD, PROTOCOL_RA, TYPE_ANYCAST, TYPE_BLACKHOLE, TYPE_BROADCAST, TYPE_LOCAL, TYPE_PROHIBIT,
    TYPE_UNICAST, TYPE_UNREACHABLE,
};
use super::destination::{Destination, Member, Via};
use super::family::Seeded;

/// A route without its table and prefix. The hops of one with a next-hop object are the object's: none here.
/// Their flags are the links' (`links`): 0 here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAttributes {
    /// The metric.
    pub priority: u32,
    /// Only for packets with this type of service.
    pub tos: u8,
    /// `RTN_*`.
    pub kind: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Only for packets from there.
    pub source: Option<(IpAddr, u8)>,
    /// The route's own MTU.
    pub mtu: Option<u32>,
    /// The next-hop object.
    pub next_hop: Option<u32>,
    /// The ways. Of their flags only `RTNH_F_DEAD` is kept, where it does not follow from the device.
    pub hops: Box<[Hop]>,
    /// The route expires, and the kernel reports that late or never.
    pub is_expiring: bool,
}

impl RouteAttributes {
    /// That of this route, whose ways are `hops` (see [`route_hops`]).
    fn of(route: &Route, hops: &[Hop]) -> RouteAttributes {
        RouteAttributes {
            priority: route.priority,
            tos: route.tos,
            kind: kind_of(route),
            protocol: route.protocol,
            scope: route.scope,
            source: route.source,
            mtu: route.mtu,
            next_hop: route.next_hop,
            hops: hops.iter().map(|hop| Hop { flags: 0, ..*hop }).collect(),
            is_expiring: route.is_expiring,
        }
    }

    /// Whether a message says this and nothing else.
    pub(super) fn is_described_by(&self, family: Family, route: &Route) -> bool {
        self.priority == route.priority
            && self.tos == route.tos
            && self.kind == kind_of(route)
            && self.protocol == route.protocol
            && self.scope == route.scope
            && self.source == route.source
            && self.mtu == route.mtu
            && self.next_hop == route.next_hop
            && self.is_expiring == route.is_expiring
            && same_hops(family, &self.hops, route_hops(route))
    }

    /// Whether this says what `other` says, of another model.
    pub(super) fn is_like(&self, family: Family, other: &RouteAttributes) -> bool {
        self.priority == other.priority
            && self.tos == other.tos
            && self.kind == other.kind
            && self.protocol == other.protocol
            && self.scope == other.scope
            && self.source == other.source
            && self.mtu == other.mtu
            && self.next_hop == other.next_hop
            && self.is_expiring == other.is_expiring
            && same_hops(family, &self.hops, &other.hops)
    }

    /// Whether it is a member of an IPv6 route of several ways, or such a route: `rt6_qualify_for_ecmp`.
    pub(super) fn is_sibling(&self) -> bool {
        is_sibling(self.kind, self.protocol, self.next_hop, &self.hops)
    }

    /// The destination of its prefixes, if a hop is usable now.
    pub(super) fn destination(&self) -> Destination {
        match self.kind {
            _ if self.is_expiring => Destination::Kernel,
            TYPE_LOCAL | TYPE_ANYCAST => Destination::Local,
            TYPE_BROADCAST => Destination::Broadcast,
            TYPE_BLACKHOLE => Destination::Blackhole,
            TYPE_UNREACHABLE => Destination::Unreachable,
            TYPE_PROHIBIT => Destination::Prohibit,
            TYPE_UNICAST => self.unicast(),
            // Multicast, throw, and what later kernels have.
            _ => Destination::Kernel,
        }
    }

    fn unicast(&self) -> Destination {
        let mtu = self.mtu.unwrap_or(0);
        if let Some(object) = self.next_hop {
            return Destination::Object { object, mtu };
        }
        if self.hops.iter().any(|hop| hop.is_encapsulated || hop.link == 0) {
            return Destination::Kernel;
        }
        match &*self.hops {
            [] => Destination::Kernel,
            [hop] => match hop.gateway {
                Some(gateway) => Destination::Via(Via { link: hop.link, gateway, mtu }),
                None => Destination::OnLink { link: hop.link, mtu },
            },
            hops => {
                let member = |hop: &Hop| {
                    let via = Via { link: hop.link, gateway: hop.gateway?, mtu };
                    Some(Member { via, weight: hop.weight.max(1) })
                };
                let members: Option<Vec<Member>> = hops.iter().map(member).collect();
                members.map_or(Destination::Kernel, Destination::many)
            }
        }
    }
}

/// What kind of route it is. The kernel reports an IPv4 route with a blackhole for a next-hop object as a blackhole,
/// and does not report it again when the object becomes another: the object says it.
fn kind_of(route: &Route) -> u8 {
    match route.kind {
        TYPE_BLACKHOLE if route.next_hop.is_some() => TYPE_UNICAST,
        kind => kind,
    }
}

/// The ways that a route says itself.
pub(super) fn route_hops(route: &Route) -> &[Hop] {
    if route.next_hop.is_some() { &[] } else { route.hops.as_slice() }
}

/// Whether these are ways of an IPv6 route that others of its metric join (`rt6_qualify_for_ecmp`): by routers,
/// and not learnt from their advertisements.
pub(super) fn is_sibling(kind: u8, protocol: u8, next_hop: Option<u32>, hops: &[Hop]) -> bool {
    kind == TYPE_UNICAST
        && protocol != PROTOCOL_RA
        && next_hop.is_none()
        && !hops.is_empty()
        && hops.iter().all(|hop| hop.gateway.is_some())
}

/// Whether two hops are one, but for their weights.
pub(super) fn is_at(one: &Hop, other: &Hop) -> bool {
    same_hop(&Hop { weight: other.weight, ..*one }, other)
}

/// Whether two hops are one, whatever has become of it.
fn same_hop(one: &Hop, other: &Hop) -> bool {
    one.link == other.link
        && one.gateway == other.gateway
        && one.weight == other.weight
        && one.is_encapsulated == other.is_encapsulated
}

/// Whether these are the same ways. The kernel begins an IPv6 message with whichever sibling it is about, and
/// refuses a second one like it: there the order says nothing. A single way has no weight in messages.
fn same_hops(family: Family, one: &[Hop], other: &[Hop]) -> bool {
    one.len() == other.len()
        && match family {
            _ if one.len() == 1 => is_at(&one[0], &other[0]),
            Family::V4 => one.iter().zip(other).all(|(one, other)| same_hop(one, other)),
            Family::V6 => {
                one.iter().all(|hop| other.iter().any(|other| same_hop(hop, other)))
                    && other.iter().all(|hop| one.iter().any(|one| same_hop(hop, one)))
            }
        }
}

/// The bodies of one family's routes, each once.
pub(super) struct AttributeSets {
    family: Family,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// The newest entry of each hash.
    by_hash: HashMap<u64, u32>,
    /// By each device of their ways.
    by_link: BTreeSet<(u32, u32)>,
    by_object: BTreeSet<(u32, u32)>,
    /// By each device by which a way is dead.
    dead: BTreeSet<(u32, u32)>,
    /// The devices for which that has changed.
    pub changed: BTreeSet<u32>,
    seed: Seeded,
}

/// A set of attributes and its routes.
pub(super) struct Entry {
    /// The attributes.
    pub attributes: RouteAttributes,
    /// What it leads to.
    pub destination: Destination,
    /// The first of its routes; they are a list ([`super::routes`]).
    pub first: Option<u32>,
    /// The number of these routes.
    pub count: u32,
    /// Whether the kernel would use it now: false where all ways are dead.
    pub usable: bool,
    hash: u64,
    /// The entry before this one with the same hash.
    same_hash: Option<u32>,
}

impl AttributeSets {
    pub fn new(family: Family) -> AttributeSets {
        AttributeSets {
            family,
            entries: Vec::new(),
            free: Vec::new(),
            by_hash: HashMap::new(),
            by_link: BTreeSet::new(),
            by_object: BTreeSet::new(),
            dead: BTreeSet::new(),
            changed: BTreeSet::new(),
            seed: Seeded::default(),
        }
    }

    /// The number of bodies.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn get(&self, number: u32) -> &Entry {
        self.entries[number as usize].as_ref().expect("a route has its attributes")
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Entry {
        self.entries[number as usize].as_mut().expect("a route has its attributes")
    }

    /// The number of this route's attributes; true if they are new and no route has them yet.
    pub fn of(&mut self, route: &Route) -> (u32, bool) {
        let hash = self.hash(route.priority, kind_of(route), route.next_hop, route_hops(route));
        let family = self.family;
        if let Some(number) =
            self.find(hash, |attributes| attributes.is_described_by(family, route))
        {
            return (number, false);
        }
        (self.add(RouteAttributes::of(route, route_hops(route)), hash), true)
    }

    /// The number of this body, new if it must be.
    pub fn number(&mut self, mut attributes: RouteAttributes) -> (u32, bool) {
        if let [hop] = &mut *attributes.hops {
            hop.flags = 0;
        }
        let hash =
            self.hash(attributes.priority, attributes.kind, attributes.next_hop, &attributes.hops);
        let family = self.family;
        if let Some(number) = self.find(hash, |other| other.is_like(family, &attributes)) {
            return (number, false);
        }
        (self.add(attributes, hash), true)
    }

    /// Takes a body away that no route has.
    pub fn remove(&mut self, number: u32) {
        let entry = self.entries[number as usize].take().expect("it is there");
        debug_assert!(entry.count == 0 && entry.first.is_none());
        if self.by_hash.get(&entry.hash) == Some(&number) {
            match entry.same_hash {
                Some(before) => _ = self.by_hash.insert(entry.hash, before),
                None => _ = self.by_hash.remove(&entry.hash),
            }
        } else {
            let mut at = self.by_hash.get(&entry.hash).copied();
            while let Some(other) = at {
                let other = self.get_mut(other);
                if other.same_hash == Some(number) {
                    other.same_hash = entry.same_hash;
                    break;
                }
                at = other.same_hash;
            }
        }
        for hop in &entry.attributes.hops {
            self.by_link.remove(&(hop.link, number));
            if self.dead.remove(&(hop.link, number)) {
                self.changed.insert(hop.link);
            }
        }
        if let Some(object) = entry.attributes.next_hop {
            self.by_object.remove(&(object, number));
        }
        self.free.push(number);
    }

    /// Those with a way by this device.
    pub fn of_link(&self, link: u32) -> Vec<u32> {
        self.by_link.range((link, 0)..=(link, u32::MAX)).map(|&(_, number)| number).collect()
    }

    /// Those with this next-hop object.
    pub fn of_object(&self, object: u32) -> Vec<u32> {
        self.by_object.range((object, 0)..=(object, u32::MAX)).map(|&(_, number)| number).collect()
    }

    /// Says which of a body's ways are dead, if it has several.
    pub fn mark(&mut self, number: u32, is_dead: impl Fn(&Hop) -> bool) {
        let entry = self.entries[number as usize].as_mut().expect("a route has its attributes");
        if entry.attributes.hops.len() < 2 {
            return;
        }
        let mut changed = Vec::new();
        for hop in &mut entry.attributes.hops {
            let flags = if is_dead(hop) { HOP_DEAD } else { 0 };
            if std::mem::replace(&mut hop.flags, flags) != flags {
                changed.push(hop.link);
            }
        }
        for link in changed {
            let hops = &self.get(number).attributes.hops;
            let is_dead = hops.iter().any(|hop| hop.link == link && hop.flags & HOP_DEAD != 0);
            let is_news = match is_dead {
                true => self.dead.insert((link, number)),
                false => self.dead.remove(&(link, number)),
            };
            if is_news {
                self.changed.insert(link);
            }
        }
    }

    /// Whether a way by this device is dead.
    pub fn has_dead(&self, link: u32) -> bool {
        self.dead.range((link, 0)..=(link, u32::MAX)).next().is_some()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let numbered = (0u32..).zip(&self.entries);
        numbered.filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    fn add(&mut self, attributes: RouteAttributes, hash: u64) -> u32 {
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        for hop in &attributes.hops {
            self.by_link.insert((hop.link, number));
            if hop.flags & HOP_DEAD != 0 && self.dead.insert((hop.link, number)) {
                self.changed.insert(hop.link);
            }
        }
        if let Some(object) = attributes.next_hop {
            self.by_object.insert((object, number));
        }
        let same_hash = self.by_hash.insert(hash, number);
        let destination = attributes.destination();
        let entry =
            Entry { attributes, destination, first: None, count: 0, usable: true, hash, same_hash };
        match self.entries.get_mut(number as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        number
    }

    fn find(&self, hash: u64, is_it: impl Fn(&RouteAttributes) -> bool) -> Option<u32> {
        let mut at = self.by_hash.get(&hash).copied();
        while let Some(number) = at {
            let entry = self.get(number);
            if is_it(&entry.attributes) {
                return Some(number);
            }
            at = entry.same_hash;
        }
        None
    }

    /// The hops add up in any order.
    fn hash(&self, priority: u32, kind: u8, next_hop: Option<u32>, hops: &[Hop]) -> u64 {
        let weight = |hop: &Hop| if hops.len() > 1 { hop.weight } else { 1 };
        let hop = |hop: &Hop| self.seed.hash_one((hop.link, hop.gateway, weight(hop)));
        let hops = hops.iter().map(hop).fold(0u64, u64::wrapping_add);
        self.seed.hash_one((priority, kind, next_hop, hops))
    }
}
