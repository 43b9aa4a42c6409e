//! Everything that the kernel has, at one time.

use manylane_io::netlink::kernel::{
    Address, Event, Family, Link, Neighbour, Netconf, NextHop, Route, Rule,
};

use super::changes::Changes;
use super::kernel::{Kernel, Limits};

/// The kernel's tables, as dumps say them: a model of its own. Routes are taken one by one, so that a million of
/// them need no list.
///
/// The order of the calls matters: links and settings first, then addresses, next-hop objects, rules, neighbours,
/// then routes.
pub struct Dump {
    pub(super) kernel: Kernel,
    changes: Changes,
}

impl Dump {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Dump {
        Dump { kernel: Kernel::new(limits), changes: Changes::default() }
    }

    /// All but the routes, in the right order.
    pub fn with(
        limits: Limits,
        links: Vec<Link>,
        netconf: Vec<Netconf>,
        addresses: Vec<Address>,
        next_hops: Vec<NextHop>,
        rules: Vec<Rule>,
        neighbours: Vec<Neighbour>,
    ) -> Dump {
        let mut dump = Dump::new(limits);
        links.into_iter().map(Event::Link).for_each(|event| dump.apply_event(&event));
        netconf.into_iter().map(Event::Netconf).for_each(|event| dump.apply_event(&event));
        addresses.into_iter().map(Event::Address).for_each(|event| dump.apply_event(&event));
        next_hops.into_iter().map(Event::NextHop).for_each(|event| dump.apply_event(&event));
        rules.into_iter().map(Event::Rule).for_each(|event| dump.apply_event(&event));
        neighbours.into_iter().map(Event::Neighbour).for_each(|event| dump.apply_event(&event));
        dump
    }

    /// A route, in the kernel's order.
    pub fn route(&mut self, route: &Route) {
        self.kernel.set_route(route, false, true, &mut self.changes);
        self.changes.prefixes.clear();
        self.changes.further.clear();
    }

    /// Reserves memory for `routes` routes of a family.
    pub fn reserve(&mut self, family: Family, routes: usize) {
        match family {
            Family::V4 => self.kernel.v4.reserve(routes),
            Family::V6 => self.kernel.v6.reserve(routes),
        }
    }

    /// The model that it makes.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn apply_event(&mut self, event: &Event) {
        self.kernel.apply_event(event, &mut self.changes);
    }
}

impl Extend<Route> for Dump {
    fn extend<I: IntoIterator<Item = Route>>(&mut self, routes: I) {
        routes.into_iter().for_each(|route| self.route(&route));
    }
}
