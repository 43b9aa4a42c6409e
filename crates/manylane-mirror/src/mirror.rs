//! The kernel's routing, and the tables that it is written into.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

use manylane_io::netlink::kernel::{Event, Family};
use manylane_net::transit::TransitMut;

use crate::changes::Changes;
use crate::confirm::Confirm;
use crate::dump::Dump;
use crate::kernel::{Kernel, Limits};
use crate::ports::{Port, Ports};
use crate::resolve::View;
use crate::rules::{Plan, RefusedRules};
use crate::table_writer::TableWriter;
use crate::targets::Targets;

mod diff;
mod list;
mod policy;
mod resync;
mod sampled_route;
mod status;
#[cfg(test)]
mod tests;
mod why;
mod write;

pub use sampled_route::{RouteEnd, RouteQuery, SampledRoute};
pub use why::Question;
pub use write::Applied;

use policy::Policies;
use status::Statistics;
use write::Prefixes;

/// The kernel's routing, and the tables that it is written into.
///
/// Whatever the tables are, one `Mirror<dyn TableWriter>` is compiled, in this crate: each mirror dereferences to it.
pub struct Mirror<S: ?Sized = TransitMut> {
    kernel: Kernel,
    ports: Ports,
    changes: Changes,
    targets: Targets,
    prefixes: Prefixes,
    policies: Policies,
    confirm: Confirm,
    statistics: Statistics,
    writer: S,
}

impl<S: TableWriter + 'static> Mirror<S> {
    /// A mirror that knows nothing yet, over tables without routes.
    pub fn new(mut writer: S, limits: Limits) -> Mirror<S> {
        let targets = Targets::new(&mut writer);
        let mut changes = Changes::default();
        write::push_defaults(&mut changes);
        Mirror {
            kernel: Kernel::new(limits),
            ports: Ports::default(),
            changes,
            targets,
            prefixes: Prefixes::default(),
            policies: Policies::default(),
            confirm: Confirm::default(),
            statistics: Statistics::default(),
            writer,
        }
    }

    /// The tables, for what is not routing: the lease, ports' records, VLANs, seeds.
    pub fn tables_mut(&mut self) -> &mut S {
        &mut self.writer
    }

    /// The tables.
    pub fn tables(&self) -> &S {
        &self.writer
    }
}

impl<S: TableWriter + 'static> Deref for Mirror<S> {
    type Target = Mirror<dyn TableWriter>;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl<S: TableWriter + 'static> DerefMut for Mirror<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self
    }
}

impl Mirror<dyn TableWriter> {
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
    pub fn to_confirm(&mut self, now_ns: u64) -> impl Iterator<Item = (u32, IpAddr)> + use<> {
        self.confirm.next(&self.kernel, &self.targets, now_ns).into_iter()
    }

    fn view(&self) -> View<'_> {
        View { kernel: &self.kernel, ports: &self.ports }
    }
}
