//! Messages about routes, as the kernel means them.
//!
//! | family | one route is           | message                 | does                                                  |
//! |--------|------------------------|-------------------------|-------------------------------------------------------|
//! | IPv4   | prefix, table, tos,    | replaced                | instead of the first of these                         |
//! |        | metric, and what it    | appended                | behind the last of these                              |
//! |        | says                   | else                    | before the first of these (`ip route prepend`)        |
//! | IPv6   | prefix, table, metric: | by routers              | the message has all ways: instead of the former ones  |
//! |        | one with all ways by   | else                    | behind the others, unless it is by the same device    |
//! |        | routers, and others    | replaced                | instead of the first of its kind, or of any           |
//!
//! By `fib_table_insert` in `net/ipv4/fib_trie.c` and `fib6_add_rt2node` in `net/ipv6/ip6_fib.c`. When one
//! sibling of an IPv6 route goes, the message names that one; when all go, all.

use std::cmp::{Ordering, Reverse};

use manylane_io::netlink::kernel::{Family, Hop, Route};

use super::edit::Parts;
use crate::attributes::{RouteAttributes, is_at, is_sibling, route_hops};
use crate::changes::Changes;
use crate::constants::ROUTE_CLONED;
use crate::family::Bits;
use crate::kernel::Kernel;
use crate::routes::{Key, Routes};

impl Kernel {
    /// Adds a route. True if the model changed.
    pub(crate) fn set_route(
        &mut self,
        route: &Route,
        is_replaced: bool,
        is_appended: bool,
        changes: &mut Changes,
    ) -> bool {
        if route.flags & ROUTE_CLONED != 0 {
            return false;
        }
        let family = if route.destination.is_ipv4() { Family::V4 } else { Family::V6 };
        let (routes_max, len) = (self.limits.routes_max, self.routes_len(family));
        let (parts, v4, v6) = self.parts();
        let place = Place { is_replaced, is_appended, fits: len < routes_max };
        let is_news = match family {
            Family::V4 => parts.announce(v4, route, place, changes),
            Family::V6 => parts.announce(v6, route, place, changes),
        };
        is_news.unwrap_or_else(|| self.fits(false))
    }

    /// Removes a route. True if the model changed.
    pub(crate) fn remove_route(&mut self, route: &Route, changes: &mut Changes) -> bool {
        if route.flags & ROUTE_CLONED != 0 {
            return false;
        }
        let (parts, v4, v6) = self.parts();
        if route.destination.is_ipv4() {
            parts.withdraw4(v4, route, changes)
        } else {
            parts.withdraw6(v6, route, changes)
        }
    }
}

#[derive(Clone, Copy)]
struct Place {
    is_replaced: bool,
    is_appended: bool,
    fits: bool,
}

/// What is at a message's place.
#[derive(Default)]
struct Found {
    /// The last route before those that it may be one of.
    before: Option<u32>,
    /// The first of those.
    first: Option<u32>,
    /// The last.
    last: Option<u32>,
    /// The one that it is instead of when it replaces one.
    alike: Option<u32>,
    /// The one that it is a new version of.
    twin: Option<u32>,
    /// The route is known already.
    known: Option<u32>,
}

impl Parts<'_> {
    /// Adds a route. True if the model changed; nothing when the route does not fit.
    fn announce<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        route: &Route,
        place: Place,
        changes: &mut Changes,
    ) -> Option<bool> {
        let key = key_of(routes, route)?;
        let found = match B::FAMILY {
            Family::V4 => find4(routes, key, route),
            Family::V6 => find6(routes, key, route),
        };
        if let Some(index) = found.known {
            self.set_dead_flags(routes, routes.attributes_number(index), route_hops(route));
            return Some(false);
        }
        let instead_of = match B::FAMILY {
            _ if place.is_replaced => found.alike.or(found.first),
            Family::V4 => None,
            Family::V6 => found.twin,
        };
        if B::FAMILY == Family::V6
            && !place.is_replaced
            && let Some(index) = found.twin
            && self.join(routes, index, route, changes)
        {
            return Some(true);
        }
        if let Some(index) = instead_of {
            let number = self.attributes_of(routes, route);
            self.exchange_number(routes, index, number, changes);
            if let Some(twin) = found.twin.filter(|&twin| twin != index) {
                // The kernel may then have the route twice; the model has one.
                self.remove(routes, twin, changes);
            }
            return Some(true);
        }
        if !place.fits {
            return None;
        }
        let behind = match B::FAMILY {
            Family::V4 if !place.is_appended => found.before,
            _ => found.last.or(found.before),
        };
        let number = self.attributes_of(routes, route);
        self.insert(routes, key, behind, number, changes);
        Some(true)
    }

    /// A way joins others that differ in more than that. The message says what is true of the new one; a dump says
    /// what is true of the first.
    fn join(
        &self,
        routes: &mut Routes<impl Bits>,
        index: u32,
        route: &Route,
        changes: &mut Changes,
    ) -> bool {
        let attributes = routes.attributes(index);
        let stays = |hop: &Hop| route_hops(route).iter().any(|other| is_at(hop, other));
        let is_other = attributes.mtu != route.mtu || attributes.protocol != route.protocol;
        if !attributes.is_sibling() || !is_other || !attributes.hops.iter().any(stays) {
            return false;
        }
        let hops = route_hops(route).iter().map(|hop| Hop { flags: 0, ..*hop }).collect();
        let attributes = RouteAttributes { hops, ..attributes.clone() };
        // The message does not say which hop has which MTU.
        changes.is_unconfirmed = true;
        self.exchange(routes, index, attributes, changes);
        self.set_dead_flags(routes, routes.attributes_number(index), route_hops(route));
        true
    }

    fn withdraw4(&self, routes: &mut Routes<u32>, route: &Route, changes: &mut Changes) -> bool {
        let Some(key) = key_of(routes, route) else { return false };
        let same =
            |&index: &u32| order4(routes.attributes(index)) == (Reverse(route.tos), route.priority);
        let is_described_by =
            |&index: &u32| routes.attributes(index).is_described_by(Family::V4, route);
        let candidates = {
            let mut candidates = routes.list(key).filter(same);
            (candidates.next(), candidates.next())
        };
        let index = match routes.list(key).filter(same).find(is_described_by) {
            Some(index) => index,
            None => match candidates {
                // An earlier message was missed: the message can mean this route only.
                (Some(index), None) if routes.attributes(index).kind == route.kind => index,
                (None, _) => return false,
                _ => {
                    changes.is_unconfirmed = true;
                    return false;
                }
            },
        };
        self.remove(routes, index, changes);
        true
    }

    fn withdraw6(&self, routes: &mut Routes<u128>, route: &Route, changes: &mut Changes) -> bool {
        let Some(key) = key_of(routes, route) else { return false };
        let found = find6(routes, key, route);
        let Some(index) = found.twin else {
            changes.is_unconfirmed |= found.first.is_some();
            return false;
        };
        let attributes = routes.attributes(index);
        let gone = route_hops(route);
        if !attributes.is_sibling() {
            self.remove(routes, index, changes);
            return true;
        }
        let goes = |hop: &Hop| gone.iter().any(|gone| is_at(gone, hop));
        let left: Box<[Hop]> = attributes.hops.iter().filter(|hop| !goes(hop)).copied().collect();
        if left.len() == attributes.hops.len() {
            return false;
        }
        if left.is_empty() {
            self.remove(routes, index, changes);
        } else {
            let attributes = RouteAttributes { hops: left, ..attributes.clone() };
            self.exchange(routes, index, attributes, changes);
        }
        true
    }
}

/// A route's key; nothing if the family differs, the prefix is invalid, or the model has too many tables.
fn key_of<B: Bits>(routes: &mut Routes<B>, route: &Route) -> Option<Key<B>> {
    let address = B::of(route.destination).filter(|_| route.prefix_len <= B::WIDTH)?;
    let table = routes.table_mut(route.table)?;
    Some(Key { address: address.first(route.prefix_len), table, len: route.prefix_len })
}

fn order4(attributes: &RouteAttributes) -> (Reverse<u8>, u32) {
    (Reverse(attributes.tos), attributes.priority)
}

/// IPv4: the greater type of service first, then the lower metric.
fn find4<B: Bits>(routes: &Routes<B>, key: Key<B>, route: &Route) -> Found {
    let mut found = Found::default();
    let wanted = (Reverse(route.tos), route.priority);
    for index in routes.list(key) {
        let attributes = routes.attributes(index);
        match order4(attributes).cmp(&wanted) {
            Ordering::Less => found.before = Some(index),
            Ordering::Equal => {
                found.first = found.first.or(Some(index));
                found.last = Some(index);
                if attributes.is_described_by(Family::V4, route) {
                    found.known = Some(index);
                }
            }
            Ordering::Greater => break,
        }
    }
    found
}

/// IPv6: the lower metric first. (Where sources are, in a tree of their own: here by them, then.)
fn find6<B: Bits>(routes: &Routes<B>, key: Key<B>, route: &Route) -> Found {
    let mut found = Found::default();
    let hops = route_hops(route);
    let joins = is_sibling(route.kind, route.protocol, route.next_hop, hops);
    for index in routes.list(key) {
        let attributes = routes.attributes(index);
        match (attributes.source, attributes.priority).cmp(&(route.source, route.priority)) {
            Ordering::Less => found.before = Some(index),
            Ordering::Equal => {
                found.first = found.first.or(Some(index));
                found.last = Some(index);
                if attributes.is_described_by(Family::V6, route) {
                    found.known = Some(index);
                }
                let is_alike = attributes.is_sibling() == joins;
                if is_alike && found.alike.is_none() {
                    found.alike = Some(index);
                }
                if is_alike && found.twin.is_none() && (joins || is_version(attributes, route)) {
                    found.twin = Some(index);
                }
            }
            Ordering::Greater => break,
        }
    }
    found
}

/// Whether a route that others do not join is a new version of this: `rt6_duplicate_nexthop`.
fn is_version(attributes: &RouteAttributes, route: &Route) -> bool {
    let hops = route_hops(route);
    attributes.kind == route.kind
        && attributes.next_hop == route.next_hop
        && match (hops, &*attributes.hops) {
            ([hop, ..], [own, ..]) => is_at(hop, own),
            ([], _) => true,
            _ => false,
        }
}
