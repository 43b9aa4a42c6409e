//! The mirror: the kernel's routing, written into the tables that programs forward by.
//!
//! A pure state machine: no socket, no clock, no thread. Its inputs are the kernel's events and dumps, and time as
//! an argument; a [`TableWriter`] receives edits of the tables.
//!
//! | file         | what is in it                                                                        |
//! |--------------|--------------------------------------------------------------------------------------|
//! | `kernel`     | the model: links, addresses, routes, next-hop objects, rules, neighbours, settings   |
//! | `routes`, `attributes` | a million routes of it, compactly; from devices and objects to their routes      |
//! | `announce`, `links`, `objects`, `rules` | what messages mean, and what the kernel does in silence       |
//! | `edit`       | changes of routes in the model                                                       |
//! | `changes`    | what is to be looked at again                                                        |
//! | `resolve`, `destination` | what a prefix leads to, from the model alone                                     |
//! | `targets`    | next-hop ids, slots, groups: what is shared, and by how many                         |
//! | `write`, `writer` | edits, in order, again when something was busy                                    |
//! | `policy`     | edits of rules and further tables, beyond the usual ones                             |
//! | `dump`, `resync` | all tables at once: the first load, and differences later                        |
//! | `confirm`    | neighbours to be kept alive in the kernel                                            |
//! | `diff`, `status`, `why`, `sampled_route`, `list` | what is shown of it                                               |
//!
//! # From a message to a packet's way
//!
//! 1. [`Mirror::event`] changes the model and notes what is to be looked at: prefixes, next-hop objects, slots.
//! 2. [`Mirror::apply`] writes: first slots that lead to dead exits, so that nothing is sent there; then words of
//!    ids, by which any number of prefixes change at once; then prefixes, one by one, each to what the model
//!    says *then*. So it does not matter how often a prefix changed since.
//! 3. What a prefix is to lead to is written whole before it does, and retired after nothing does.
//!
//! | change                                     | edits                                                    |
//! |--------------------------------------------|----------------------------------------------------------|
//! | a next-hop object, whatever its routes     | one word                                                 |
//! | a default route comes, goes, changes       | one word: it always has its own id                       |
//! | a link goes down                           | a word for each neighbour there; then a route at a time  |
//! | a member of a group is dead                | its slot; the others take over its flows                 |
//!
//! After any events the tables say what they would say if they were written from the model as it is then
//! (`tests`: random events, a side that is busy at random).
//!
//! # Bounds
//!
//! [`Limits`] bound the model, the tables' sizes what is written. A route that does not fit would leave its packets
//! to a shorter prefix: then [`Mirror::is_whole`] is false, and all ports are the kernel's. Where next-hop ids,
//! slots or groups run out, only what needs one is the kernel's. All of it is counted ([`MirrorState`](manylane_api::accelerate::MirrorState)).

use std::net::IpAddr;

use manylane_io::netlink::kernel::{Event, Family};
use manylane_net::transit::TransitMut;

mod announce;
mod attributes;
mod changes;
mod confirm;
mod constants;
mod destination;
mod diff;
mod dump;
mod edit;
mod family;
mod kernel;
mod links;
mod list;
mod names;
mod objects;
mod pause;
mod policy;
mod ports;
mod resolve;
mod resync;
mod routes;
mod rules;
mod sampled_route;
mod status;
mod table_writer;
mod targets;
mod why;
mod write;

#[cfg(test)]
mod tests;

pub use attributes::RouteAttributes;
pub use destination::{Destination, Member, Via};
pub use dump::Dump;
pub use kernel::{Kernel, Limits};
pub use names::neighbour_state;
pub use ports::{Port, PortFacts, port_flags};
pub use rules::{RefusedRules, refused_rules};
pub use sampled_route::{RouteEnd, RouteQuery, SampledRoute};
pub use table_writer::{Bounds, TableWriter};
pub use why::Question;
pub use write::Applied;

use changes::Changes;
use confirm::Confirm;
use policy::Policies;
use ports::Ports;
use resolve::View;
use rules::Plan;
use status::Statistics;
use targets::Targets;
use write::Prefixes;

/// The kernel's routing, and the tables that it is written into.
pub struct Mirror<S = TransitMut> {
    writer: S,
    kernel: Kernel,
    ports: Ports,
    changes: Changes,
    targets: Targets,
    prefixes: Prefixes,
    policies: Policies,
    confirm: Confirm,
    statistics: Statistics,
}

impl<S: TableWriter> Mirror<S> {
    /// A mirror that knows nothing yet, over tables without routes.
    pub fn new(mut writer: S, limits: Limits) -> Mirror<S> {
        let targets = Targets::new(&mut writer);
        let mut changes = Changes::default();
        write::push_defaults(&mut changes);
        Mirror {
            writer,
            kernel: Kernel::new(limits),
            ports: Ports::default(),
            changes,
            targets,
            prefixes: Prefixes::default(),
            policies: Policies::default(),
            confirm: Confirm::default(),
            statistics: Statistics::default(),
        }
    }

    /// Hears something of the kernel. Says whether it is news.
    pub fn event(&mut self, event: &Event) -> bool {
        let is_news = self.kernel.apply_event(event, &mut self.changes);
        self.statistics.events += 1;
        self.statistics.news += u64::from(is_news);
        is_news
    }

    /// Says which devices are ports, all of them. What leads by others is the kernel's.
    pub fn set_ports(&mut self, ports: &[Port]) {
        let links = self.ports.set(ports);
        for &link in &links {
            self.targets.port_changed(link);
        }
        if !links.is_empty() {
            // Neighbours have routes of their own on ports only.
            self.kernel.touch_neighbours(&mut self.changes);
        }
    }

    /// The model.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The tables, for what is not routing: the lease, ports' records, VLANs, seeds.
    pub fn tables_mut(&mut self) -> &mut S {
        &mut self.writer
    }

    /// The tables.
    pub fn tables(&self) -> &S {
        &self.writer
    }

    /// Whether the tables have all that the kernel has. If not, its ports have to stay the kernel's.
    pub fn is_whole(&self) -> bool {
        self.kernel.overflows == 0 && self.prefixes.refused() == 0
    }

    /// Whether the kernel may have changed more than it said, since the last call: a dump will tell,
    /// [`Mirror::resync`] or [`Mirror::diff`]. So it is after a link or an address came or went.
    pub fn take_unconfirmed(&mut self) -> bool {
        std::mem::take(&mut self.changes.is_unconfirmed)
    }

    /// Why the program cannot follow the rules of the routing policy: while the list has an entry, all ports have to
    /// stay the kernel's.
    pub fn refused_rules(&self) -> Vec<RefusedRules> {
        let plans = [Family::V4, Family::V6].map(|family| self.kernel.plan(family));
        let refused = |plan| match plan {
            Plan::Refused(refused) => Some(refused),
            _ => None,
        };
        plans.into_iter().filter_map(refused).collect()
    }

    /// Neighbours that packets are sent to and that the kernel has not heard of for a while, to be confirmed
    /// (`NTF_USE`); `now_ns` is any monotonic clock. A few at a time: see `confirm`.
    pub fn to_confirm(&mut self, now_ns: u64) -> impl Iterator<Item = (u32, IpAddr)> + use<S> {
        self.confirm.next(&self.kernel, &self.targets, now_ns).into_iter()
    }

    fn view(&self) -> View<'_> {
        View { kernel: &self.kernel, ports: &self.ports }
    }
}
