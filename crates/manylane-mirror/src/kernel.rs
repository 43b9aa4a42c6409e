//! The model: what the kernel's routing is, as far as it was heard.
//!
//! | what              | by                                   | from                                            |
//! |-------------------|--------------------------------------|-------------------------------------------------|
//! | links, settings   | index; and family                    | `RTM_NEWLINK`, `RTM_NEWNETCONF`                  |
//! | addresses         | link, address, prefix length         | `RTM_NEWADDR`                                   |
//! | routes            | table, prefix; then the kernel's order| `RTM_NEWROUTE` ([`routes`](super::routes))      |
//! | next-hop objects  | id                                   | `RTM_NEWNEXTHOP`                                |
//! | rules             | family, priority                     | `RTM_NEWRULE`                                   |
//! | neighbours        | address, link                        | `RTM_NEWNEIGH`                                  |
//!
//! What a message changes is added to [`Changes`]; one that changes nothing is dropped before anything is
//! allocated for it. What the kernel changes in silence is done here by its own rules (`links`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use manylane_io::netlink::kernel::{
    Address, Event, Family, Link, Neighbour, Netconf, NextHop, Rule,
};

use super::attributes::RouteAttributes;
use super::changes::{Changes, Neighbours};
use super::constants::{NTF_PROXY, NUD_NOARP, NUD_VALID};
use super::family::{family_of, host};
use super::routes::Routes;
use super::rules::Rules;

mod announce;
mod edit;
mod links;
mod objects;

use edit::Parts;
use links::Links;
use objects::Objects;

/// How much the model may hold. Beyond, it is not the kernel's any more: counted, and
/// [`Mirror::is_whole`](super::Mirror::is_whole) says so.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Routes of each family, in all tables.
    pub routes_max: usize,
    /// Neighbours.
    pub neighbours_max: usize,
    /// Links, addresses, rules and next-hop objects, of each.
    pub others_max: usize,
}

impl Default for Limits {
    /// The Internet's table of 2026 four times, and what a neighbour table of the kernel's largest usual size
    /// has.
    fn default() -> Limits {
        Limits { routes_max: 4_000_000, neighbours_max: 65_536, others_max: 65_536 }
    }
}

/// What the kernel's routing is.
pub struct Kernel {
    pub(super) links: Links,
    pub(super) addresses: BTreeMap<(u32, IpAddr, u8), Address>,
    pub(super) rules: Rules,
    pub(super) objects: Objects,
    pub(super) neighbours: Neighbours,
    pub(super) v4: Routes<u32>,
    pub(super) v6: Routes<u128>,
    pub(super) limits: Limits,
    /// What did not fit.
    pub(super) overflows: u64,
}

impl Kernel {
    /// Nothing is known.
    pub fn new(limits: Limits) -> Kernel {
        Kernel {
            links: Links::default(),
            addresses: BTreeMap::new(),
            rules: Rules::default(),
            objects: Objects::default(),
            neighbours: Neighbours::new(),
            v4: Routes::new(),
            v6: Routes::new(),
            limits,
            overflows: 0,
        }
    }

    /// All links, by index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.links.values()
    }

    /// A link.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.links.get(&index)
    }

    /// The link of this name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links().find(|link| link.name == name)
    }

    /// Settings of a link; of all, for index -1.
    pub fn netconf(&self, link: i32, family: Family) -> Option<&Netconf> {
        self.links.netconf.get(&(link, family))
    }

    /// All addresses of ours, by link.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.values()
    }

    /// All rules, by family and priority.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// All next-hop objects, by id.
    pub fn next_hops(&self) -> impl Iterator<Item = &NextHop> + Clone {
        self.objects.iter()
    }

    /// All neighbours, by address.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values()
    }

    /// A neighbour.
    pub fn neighbour(&self, link: u32, address: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(address, link))
    }

    /// The number of a family's routes, in all tables.
    pub fn routes_len(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.v4.len(),
            Family::V6 => self.v6.len(),
        }
    }

    /// What a family's routes say besides their prefixes, each once, and how many say so.
    pub fn attribute_sets(
        &self,
        family: Family,
    ) -> Box<dyn Iterator<Item = (&RouteAttributes, u32)> + '_> {
        match family {
            Family::V4 => {
                Box::new(self.v4.attribute_sets.iter().map(|(_, e)| (&e.attributes, e.count)))
            }
            Family::V6 => {
                Box::new(self.v6.attribute_sets.iter().map(|(_, e)| (&e.attributes, e.count)))
            }
        }
    }

    /// Hears something. Says whether it is news.
    pub(super) fn apply_event(&mut self, event: &Event, changes: &mut Changes) -> bool {
        match event {
            Event::Link(link) => {
                let fits = self.links.links.len() < self.limits.others_max
                    || self.links.links.contains_key(&link.index);
                self.fits(fits) && self.set_link(link, changes)
            }
            Event::LinkGone(index) => self.remove_link(*index, changes),
            Event::Address(address) => self.set_address(address),
            Event::AddressGone(address) => self.remove_address(address, changes),
            Event::Route { route, is_replaced, is_appended } => {
                self.set_route(route, *is_replaced, *is_appended, changes)
            }
            Event::RouteGone(route) => self.remove_route(route, changes),
            Event::NextHop(object) => self.set_object(object, changes),
            Event::NextHopGone(id) => self.remove_object(*id, changes),
            Event::Rule(rule) => {
                let fits = self.rules.len() < self.limits.others_max;
                self.fits(fits) && self.rules.insert(rule, changes)
            }
            Event::RuleGone(rule) => self.rules.remove(rule, changes),
            Event::Neighbour(neighbour) => self.set_neighbour(neighbour, changes),
            Event::NeighbourGone(neighbour) => {
                // A proxy entry says nothing of a neighbour.
                neighbour.flags & NTF_PROXY == 0
                    && self.remove_neighbour(neighbour.link, neighbour.address, changes)
            }
            Event::Netconf(netconf) => {
                let is_news = self.links.set_netconf(netconf);
                if is_news && let Ok(link) = u32::try_from(netconf.link) {
                    self.update_dead_hops(link, changes);
                }
                is_news
            }
        }
    }

    /// Counts what does not fit.
    pub(super) fn fits(&mut self, fits: bool) -> bool {
        self.overflows += u64::from(!fits);
        fits
    }

    pub(super) fn parts(&mut self) -> (Parts<'_>, &mut Routes<u32>, &mut Routes<u128>) {
        let Kernel { links, objects, neighbours, v4, v6, .. } = self;
        (Parts { links, objects, neighbours }, v4, v6)
    }

    /// The parts, where nothing is changed.
    pub(super) fn shared_parts(&self) -> Parts<'_> {
        Parts { links: &self.links, objects: &self.objects, neighbours: &self.neighbours }
    }

    /// Whether a device has an IPv4 address.
    pub(super) fn has_ipv4(&self, link: u32) -> bool {
        let first = (link, IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let next = self.addresses.range(first..).next();
        next.is_some_and(|(&(of, address, _), _)| of == link && address.is_ipv4())
    }

    fn set_address(&mut self, address: &Address) -> bool {
        let key = (address.link, address.address, address.prefix_len);
        let fits =
            self.addresses.len() < self.limits.others_max || self.addresses.contains_key(&key);
        if !self.fits(fits) {
            return false;
        }
        let former = self.addresses.insert(key, address.clone());
        if former.is_none() {
            self.address_added(address.link, family_of(host(address.address)));
        }
        former.as_ref() != Some(address)
    }

    fn remove_address(&mut self, address: &Address, changes: &mut Changes) -> bool {
        let key = (address.link, address.address, address.prefix_len);
        let was_known = self.addresses.remove(&key).is_some();
        if was_known {
            self.address_removed(address.link, address.address, changes);
        }
        was_known
    }

    fn set_neighbour(&mut self, neighbour: &Neighbour, changes: &mut Changes) -> bool {
        let key = (neighbour.address, neighbour.link);
        if neighbour.flags & NTF_PROXY != 0 || self.neighbours.get(&key) == Some(neighbour) {
            return false;
        }
        if neighbour.state & NUD_NOARP != 0 {
            // The kernel makes such ones in silence, for groups and broadcasts.
            return self.remove_neighbour(neighbour.link, neighbour.address, changes);
        }
        let fits = self.neighbours.len() < self.limits.neighbours_max
            || self.neighbours.contains_key(&key);
        if !self.fits(fits) {
            return false;
        }
        let former = self.neighbours.insert(key, neighbour.clone());
        if former.as_ref().and_then(mac_of) != mac_of(neighbour) {
            self.neighbour_changed(neighbour.link, neighbour.address, changes);
        }
        true
    }

    pub(super) fn remove_neighbour(
        &mut self,
        link: u32,
        address: IpAddr,
        changes: &mut Changes,
    ) -> bool {
        let Some(former) = self.neighbours.remove(&(address, link)) else { return false };
        if mac_of(&former).is_some() {
            self.neighbour_changed(link, address, changes);
        }
        true
    }

    fn neighbour_changed(&self, link: u32, address: IpAddr, changes: &mut Changes) {
        changes.neighbours.insert((link, address));
        changes.prefixes.push(host(address));
    }

    /// All neighbours may have another way to themselves.
    pub(super) fn touch_neighbours(&self, changes: &mut Changes) {
        changes.is_every_neighbour = true;
        for (address, _) in self.neighbours.keys() {
            changes.prefixes.push(host(*address));
        }
    }
}

/// The address that a neighbour can be sent to by.
pub(super) fn mac_of(neighbour: &Neighbour) -> Option<[u8; 6]> {
    neighbour.mac.filter(|_| neighbour.state & NUD_VALID != 0)
}
