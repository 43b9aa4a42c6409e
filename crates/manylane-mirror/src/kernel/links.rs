//! Links, and what the kernel does by itself when one goes or returns.
//!
//! The kernel sends few messages about that: 100,000 routes that an interface takes along are gone without one
//! each. So the same rule is applied here at once, on the message about the link.
//!
//! | event                 | IPv4 routes                          | IPv6 routes                | next-hop objects         |
//! |-----------------------|--------------------------------------|----------------------------|--------------------------|
//! | set down              | gone when all ways are dead, but     | gone when all ways are     | gone, from groups too;   |
//! |                       | those of scope host                  | dead                       | their routes with them   |
//! | carrier lost          | stay; not used with `ignore_routes_with_linkdown` | as IPv4       | as set down              |
//! | device gone           | gone when one way was by it          | without the ways by it     | as set down              |
//! | last IPv4 address gone| gone when all ways are dead          | nothing                    | nothing                  |
//! | set up                | ways by it live again                | with the carrier           | do not return            |
//! | carrier, an address   | ways by it live again                | as IPv4                    | do not return            |
//!
//! By `fib_sync_down_dev` and `fib_sync_up` in `net/ipv4/fib_semantics.c`, `fib6_ifdown` in `net/ipv6/route.c`
//! and `nexthop_flush_dev` in `net/ipv4/nexthop.c`. A way is dead when its device is down or was left without
//! an address; the latter is noted at the way, as the kernel does, the former follows from the links.

use std::collections::BTreeMap;
use std::net::IpAddr;

use manylane_io::netlink::kernel::{Family, Hop, Link, Netconf};

use super::edit::{Parts, each_family};
use crate::attributes::{AttributeSets, RouteAttributes, is_at};
use crate::changes::Changes;
use crate::constants::{
    HOP_DEAD, LOWER_UP, RUNNING, SCOPE_HOST, TYPE_BROADCAST, TYPE_MULTICAST, TYPE_UNICAST, UP,
};
use crate::family::Bits;
use crate::kernel::Kernel;
use crate::routes::Routes;

/// Links and their settings.
#[derive(Default)]
pub(crate) struct Links {
    /// By index.
    pub links: BTreeMap<u32, Link>,
    /// By index and family; -1 are those of all.
    pub netconf: BTreeMap<(i32, Family), Netconf>,
}

impl Links {
    /// Whether the kernel uses this way at all.
    fn is_alive(&self, hop: &Hop) -> bool {
        self.links.get(&hop.link).is_none_or(is_up) && hop.flags & HOP_DEAD == 0
    }

    /// Whether something can be sent there.
    fn carries(&self, link: u32) -> bool {
        let carries = |link: &Link| link.flags & (UP | LOWER_UP) == UP | LOWER_UP;
        self.links.get(&link).is_some_and(carries)
    }

    /// Whether a hop that the kernel reports dead is so by itself, and not because of its device.
    fn is_dead_itself(&self, family: Family, hop: &Hop) -> bool {
        hop.flags & HOP_DEAD != 0 && self.is_chosen(family, hop)
    }

    /// Whether the kernel chooses a route with this way. (Whether it is dead although its device is up does not
    /// matter: then another way of its route lives, or the route is gone.)
    fn is_chosen(&self, family: Family, hop: &Hop) -> bool {
        let Some(link) = self.links.get(&hop.link) else { return true };
        is_up(link) && (has_carrier(link) || !self.ignores_linkdown(hop.link, family))
    }

    /// Whether the kernel chooses a route with this body.
    pub fn is_usable(&self, family: Family, attributes: &RouteAttributes) -> bool {
        // Own addresses are ours, and nowhere is nowhere, whatever becomes of a device.
        let has_ways = match attributes.kind {
            TYPE_UNICAST | TYPE_MULTICAST => true,
            TYPE_BROADCAST => family == Family::V4,
            _ => false,
        };
        !has_ways
            || family == Family::V4 && attributes.scope == SCOPE_HOST
            || attributes.hops.is_empty()
            || attributes.hops.iter().any(|hop| self.is_chosen(family, hop))
    }

    fn ignores_linkdown(&self, link: u32, family: Family) -> bool {
        let settings = i32::try_from(link).ok().and_then(|link| self.netconf.get(&(link, family)));
        settings.and_then(|settings| settings.ignore_routes_with_linkdown).unwrap_or(false)
    }

    /// Settings are now so. Says whether that is news.
    pub fn set_netconf(&mut self, news: &Netconf) -> bool {
        let known = self.netconf.entry((news.link, news.family)).or_insert_with(|| Netconf {
            forwarding: None,
            rp_filter: None,
            ignore_routes_with_linkdown: None,
            ..news.clone()
        });
        let former = known.clone();
        known.forwarding = news.forwarding.or(known.forwarding);
        known.rp_filter = news.rp_filter.or(known.rp_filter);
        let ignores = news.ignore_routes_with_linkdown;
        known.ignore_routes_with_linkdown = ignores.or(known.ignore_routes_with_linkdown);
        *known != former
    }
}

/// Whether it is wanted up.
pub(crate) fn is_up(link: &Link) -> bool {
    link.flags & UP != 0
}

/// Whether the kernel's routing thinks that it has a carrier (`fib_netdev_event`).
pub(crate) fn has_carrier(link: &Link) -> bool {
    link.flags & (RUNNING | LOWER_UP) != 0
}

impl Kernel {
    /// A link is now so. Says whether that is news.
    pub(crate) fn set_link(&mut self, link: &Link, changes: &mut Changes) -> bool {
        let index = link.index;
        if self.links.links.get(&index) == Some(link) {
            return false;
        }
        // A rule may be about it, by its name.
        changes.is_policy = true;
        let Some(former) = self.links.links.insert(index, link.clone()) else {
            changes.links.insert(index);
            self.update_dead_hops(index, changes);
            return true;
        };
        let (was_up, carried) = (is_up(&former), has_carrier(&former));
        if !was_up && is_up(link) {
            mark(&mut self.v4.attribute_sets, index, false);
            mark(&mut self.v6.attribute_sets, index, !has_carrier(link));
        }
        if !carried && is_up(link) && has_carrier(link) {
            mark(&mut self.v6.attribute_sets, index, false);
        }
        if was_up && !is_up(link) {
            each_family!(self, |parts, routes| {
                parts.drop_dead(routes, index, false, changes);
            });
        }
        if was_up && carried && !(is_up(link) && has_carrier(link)) {
            self.flush_objects(index, changes);
        }
        if (was_up, carried) != (is_up(link), has_carrier(link)) {
            self.update_dead_hops(index, changes);
            changes.is_unconfirmed = true;
        }
        let of_slots = |link: &Link| (link.flags & (UP | LOWER_UP), link.mac, link.mtu);
        if of_slots(&former) != of_slots(link) {
            changes.links.insert(index);
        }
        // The kernel lowers the MTU of IPv6 routes with the device's, and raises it again.
        changes.is_unconfirmed |= former.mtu != link.mtu;
        true
    }

    /// A link is gone, and all that was on it.
    pub(crate) fn remove_link(&mut self, index: u32, changes: &mut Changes) -> bool {
        let known = self.links.links.remove(&index).is_some();
        changes.is_policy = true;
        // The `Link` of a device that is gone has no port: no hop by it lives.
        self.flush_objects(index, changes);
        for number in self.v4.attribute_sets.of_link(index) {
            let (parts, v4, _) = self.parts();
            parts.remove_attributes(v4, number, changes);
        }
        for number in self.v6.attribute_sets.of_link(index) {
            let (parts, _, v6) = self.parts();
            let attributes = &v6.attribute_sets.get(number).attributes;
            let left: Box<[Hop]> =
                attributes.hops.iter().filter(|hop| hop.link != index).copied().collect();
            if left.is_empty() {
                parts.remove_attributes(v6, number, changes);
            } else {
                let attributes = RouteAttributes { hops: left, ..attributes.clone() };
                parts.exchange_attributes(v6, number, attributes, changes);
            }
        }
        self.addresses.retain(|&(link, ..), _| link != index);
        let number = i32::try_from(index).unwrap_or(i32::MAX);
        self.links.netconf.retain(|&(link, _), _| link != number);
        let neighbours: Vec<(IpAddr, u32)> =
            self.neighbours.keys().filter(|&&(_, link)| link == index).copied().collect();
        for (address, link) in neighbours {
            self.remove_neighbour(link, address, changes);
        }
        changes.links.insert(index);
        changes.is_unconfirmed |= known;
        known
    }

    /// An address came: IPv4's ways by its link live again.
    pub(crate) fn address_added(&mut self, link: u32, family: Family) {
        if family == Family::V4 {
            mark(&mut self.v4.attribute_sets, link, false);
        }
    }

    /// An address went. With the last IPv4 one, IPv4 goes from its link.
    pub(crate) fn address_removed(&mut self, link: u32, address: IpAddr, changes: &mut Changes) {
        // The kernel removes routes that name the address as their source, and sends no message.
        changes.is_unconfirmed = true;
        let mut left = self.addresses.range((link, IpAddr::V4(0.into()), 0)..);
        let is_last = left.next().is_none_or(|(&(of, other, _), _)| of != link || other.is_ipv6());
        if address.is_ipv4() && is_last {
            let (parts, v4, _) = self.parts();
            parts.drop_dead(v4, link, true, changes);
            mark(&mut v4.attribute_sets, link, true);
        }
    }

    /// Whether something can be sent to a link's neighbours. Where one way by it is dead, none is sent to, whichever
    /// routes a neighbour is a router of.
    pub(crate) fn can_send(&self, link: u32) -> bool {
        self.links.carries(link)
            && !self.v4.attribute_sets.has_dead(link)
            && !self.v6.attribute_sets.has_dead(link)
    }

    /// Looks again at whether routes by this device are used.
    pub(crate) fn update_dead_hops(&mut self, link: u32, changes: &mut Changes) {
        each_family!(self, |parts, routes| parts.update_dead_hops(routes, link, changes));
    }
}

/// Says that ways by this device, of routes with others, are dead, or live.
fn mark(attribute_sets: &mut AttributeSets, link: u32, is_dead: bool) {
    for number in attribute_sets.of_link(link) {
        attribute_sets
            .mark(number, |hop| if hop.link == link { is_dead } else { hop.flags & HOP_DEAD != 0 });
    }
}

impl Parts<'_> {
    /// Takes away the routes by this device whose ways are all dead. `is_forced`: those of scope
    /// host, too, which otherwise stay while their device is down.
    fn drop_dead<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        link: u32,
        is_forced: bool,
        changes: &mut Changes,
    ) {
        for number in routes.attribute_sets.of_link(link) {
            let attributes = &routes.attribute_sets.get(number).attributes;
            let stays = B::FAMILY == Family::V4 && attributes.scope == SCOPE_HOST && !is_forced;
            let is_dead = |hop: &Hop| is_forced && hop.link == link || !self.links.is_alive(hop);
            if !stays && attributes.hops.iter().all(is_dead) {
                self.remove_attributes(routes, number, changes);
            }
        }
    }

    /// Hears of the flags of a body's ways.
    pub fn set_dead_flags<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        number: u32,
        kernel_hops: &[Hop],
    ) {
        if kernel_hops.len() > 1 {
            let is_it = |hop: &Hop, other: &&Hop| is_at(hop, other);
            routes.attribute_sets.mark(number, |hop| {
                let kernel_hop = kernel_hops.iter().find(|kernel_hop| is_it(hop, kernel_hop));
                kernel_hop
                    .is_some_and(|kernel_hop| self.links.is_dead_itself(B::FAMILY, kernel_hop))
            });
        }
    }

    fn update_dead_hops<B: Bits>(&self, routes: &mut Routes<B>, link: u32, changes: &mut Changes) {
        for number in routes.attribute_sets.of_link(link) {
            let entry = routes.attribute_sets.get(number);
            let usable = self.links.is_usable(B::FAMILY, &entry.attributes);
            if usable != entry.usable {
                routes.attribute_sets.get_mut(number).usable = usable;
                self.touch_attributes(routes, number, changes);
            }
        }
    }
}
