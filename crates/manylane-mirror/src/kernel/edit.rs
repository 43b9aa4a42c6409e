//! Changes of routes in the model, and what is to be looked at because of each.

use manylane_io::netlink::kernel::Route;

use super::links::Links;
use super::objects::Objects;
use crate::attributes::{RouteAttributes, route_hops};
use crate::changes::{Changes, Neighbours};
use crate::destination::Destination;
use crate::family::Bits;
use crate::routes::{Key, Routes, USUAL};

/// What a change of routes looks at besides them.
pub(crate) struct Parts<'a> {
    pub links: &'a Links,
    pub objects: &'a Objects,
    pub neighbours: &'a Neighbours,
}

/// Runs a body for the routes of each family, with the other parts beside.
macro_rules! each_family {
    ($kernel:expr, |$parts:ident, $routes:ident| $attributes:expr) => {{
        {
            let ($parts, $routes, _) = $kernel.parts();
            $attributes;
        }
        {
            let ($parts, _, $routes) = $kernel.parts();
            $attributes;
        }
    }};
}
pub(crate) use each_family;

impl Parts<'_> {
    /// The number of this route's body, new if it must be.
    pub fn attributes_of<B: Bits>(&self, routes: &mut Routes<B>, route: &Route) -> u32 {
        let (number, is_new) = routes.attribute_sets.of(route);
        if is_new {
            self.set_usable_of_new(routes, number);
        }
        self.set_dead_flags(routes, number, route_hops(route));
        number
    }

    /// Gives all routes of a body this one.
    pub fn exchange_attributes<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        number: u32,
        attributes: RouteAttributes,
        changes: &mut Changes,
    ) {
        let indices: Vec<u32> = routes.of_attributes(number).collect();
        for index in indices {
            self.exchange(routes, index, attributes.clone(), changes);
        }
    }

    /// Gives a route this body.
    pub fn exchange<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        index: u32,
        attributes: RouteAttributes,
        changes: &mut Changes,
    ) {
        let (number, is_new) = routes.attribute_sets.number(attributes);
        if is_new {
            self.set_usable_of_new(routes, number);
        }
        self.exchange_number(routes, index, number, changes);
    }

    /// Gives a route the body of this number.
    pub fn exchange_number<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        index: u32,
        number: u32,
        changes: &mut Changes,
    ) {
        let key = routes.key(index);
        let was_said = has_routes(routes, key);
        self.touch_route(routes, index, changes);
        routes.exchange(index, number);
        self.touch_route(routes, index, changes);
        self.touch_if(routes, key, was_said, changes);
    }

    /// Adds a route with this body behind another one of its key, or as the first.
    pub fn insert<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        key: Key<B>,
        behind: Option<u32>,
        attributes: u32,
        changes: &mut Changes,
    ) {
        let was_said = has_routes(routes, key);
        let index = routes.insert(key, behind, attributes);
        self.touch_route(routes, index, changes);
        self.touch_if(routes, key, was_said, changes);
    }

    /// Takes a route away.
    pub fn remove<B: Bits>(&self, routes: &mut Routes<B>, index: u32, changes: &mut Changes) {
        let key = routes.key(index);
        let was_said = has_routes(routes, key);
        self.touch_route(routes, index, changes);
        routes.remove(index);
        self.touch_if(routes, key, was_said, changes);
    }

    /// Takes all routes of a body away.
    pub fn remove_attributes<B: Bits>(
        &self,
        routes: &mut Routes<B>,
        number: u32,
        changes: &mut Changes,
    ) {
        let indices: Vec<u32> = routes.of_attributes(number).collect();
        for index in indices {
            self.remove(routes, index, changes);
        }
    }

    /// The routes of a body are used, or not any more.
    pub fn touch_attributes<B: Bits>(
        &self,
        routes: &Routes<B>,
        number: u32,
        changes: &mut Changes,
    ) {
        for index in routes.of_attributes(number) {
            self.touch_route(routes, index, changes);
            self.touch_behind(routes, routes.key(index), changes);
        }
    }

    /// A route's prefix is to be looked at, and the neighbours in it.
    pub fn touch_route<B: Bits>(&self, routes: &Routes<B>, index: u32, changes: &mut Changes) {
        let key = routes.key(index);
        let is_on_link = key.len == 0 && self.is_on_link(routes, key.table);
        if is_usual(key) {
            changes.touch(self.neighbours, key.prefix(), is_on_link);
        } else {
            let table = routes.table_id(key.table);
            changes.touch_further(self.neighbours, table, key.prefix(), is_on_link);
        }
    }

    /// What a key has may be something else altogether.
    pub fn touch_key<B: Bits>(&self, routes: &Routes<B>, key: Key<B>, changes: &mut Changes) {
        if is_usual(key) {
            changes.touch(self.neighbours, key.prefix(), true);
            self.touch_behind(routes, key, changes);
        } else {
            let table = routes.table_id(key.table);
            changes.touch_further(self.neighbours, table, key.prefix(), true);
        }
    }

    /// Whether one of the default routes of a table, or of all usual ones, is one of a connected network.
    fn is_on_link<B: Bits>(&self, routes: &Routes<B>, table: u16) -> bool {
        let usual = 0..USUAL.len() as u16;
        let tables = if usual.contains(&table) { usual } else { table..table + 1 };
        let mut all = tables.flat_map(|table| routes.list(Key { address: B::ZERO, table, len: 0 }));
        all.any(|index| match routes.entry(index).destination {
            Destination::OnLink { .. } => true,
            Destination::Object { object, .. } => self.objects.is_on_link(object),
            _ => false,
        })
    }

    fn touch_if<B: Bits>(
        &self,
        routes: &Routes<B>,
        key: Key<B>,
        was_said: bool,
        changes: &mut Changes,
    ) {
        if has_routes(routes, key) != was_said {
            self.touch_behind(routes, key, changes);
        }
    }

    /// A table says something of a prefix, or says nothing more: what lies in it in later tables is hidden by it, or not
    /// any more. Hidden ones are few: prefixes of the local table that are no hosts hardly ever come or go, and the
    /// default table is all but empty.
    pub fn touch_behind<B: Bits>(&self, routes: &Routes<B>, key: Key<B>, changes: &mut Changes) {
        if !is_usual(key) || key.len == B::WIDTH {
            return;
        }
        let later = key.table + 1..USUAL.len() as u16;
        if later.clone().all(|table| routes.table_len(table) == 0) {
            return;
        }
        let last = key.address.last(key.len);
        let behind = routes.in_tables(later, key.address, last);
        for prefix in behind.into_iter().filter(|other| other.len > key.len).map(Key::prefix) {
            changes.touch(self.neighbours, prefix, true);
        }
    }

    fn set_usable_of_new<B: Bits>(&self, routes: &mut Routes<B>, number: u32) {
        let entry = routes.attribute_sets.get_mut(number);
        entry.usable = self.links.is_usable(B::FAMILY, &entry.attributes);
    }
}

/// Whether routing looks at its table.
fn is_usual<B>(key: Key<B>) -> bool {
    usize::from(key.table) < USUAL.len()
}

/// Whether a table says anything of a prefix: a route that is used, or one that the kernel has to choose.
fn has_routes<B: Bits>(routes: &Routes<B>, key: Key<B>) -> bool {
    routes.list(key).any(|index| {
        let entry = routes.entry(index);
        entry.usable || entry.attributes.tos != 0 || entry.attributes.source.is_some()
    })
}
