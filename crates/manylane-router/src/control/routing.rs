//! The writer's side of every table, and the rules by which it changes.
//!
//! What each next-hop id leads to is said in `manylane_net::nexthop::ids`.
//!
//! A neighbour on a connected network gets a host route to its id as soon as a packet or an ARP or ND question names
//! it, so that a worker finds it by the same lookup as everything else. A neighbour that a static route goes
//! through is pinned.
//!
//! An edit that meets a bound (a table full of what waits for its grace period) stays aside and is
//! tried again after the workers' next turn; nothing blocks, and nothing is lost. A newer edit of the
//! same neighbour takes its place: only the last word counts, and each slot has one at most.
//!
//! | File             | Holds                                                                     |
//! |------------------|---------------------------------------------------------------------------|
//! | `build.rs`       | all tables, in memory of their own                                        |
//! | `carrier.rs`     | ports without a carrier: routes by them rest until it is back             |
//! | `connected.rs`   | what the addresses of ports mean, and which stations are on a link        |
//! | `routes.rs`      | routes: entered, changed, removed, listed, looked up                      |
//! | `groups.rs`      | routes by several next hops                                               |
//! | `edit.rs`        | what the neighbour table orders: adjacencies, host routes, questions      |
//! | `own.rs`         | our own addresses, as far as others may have them                         |
//! | `operator.rs`    | neighbours by the operator's word                                         |
//! | `removal.rs`     | a port that is removed                                                    |
//! | `packet_route.rs` | the route of a packet that was noted for a collector                      |
//! | `transaction.rs` | routes and neighbours of another configuration                            |
//!
//! These files may use the configuration and the crates below this one; nothing else of `control`.

mod build;
mod carrier;
mod connected;
mod edit;
mod error;
mod groups;
mod operator;
mod own;
mod packet_route;
mod removal;
mod routes;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{IpPrefix, Ipv4Writer, Ipv6Writer, NextHopId};
use manylane_net::forward::{PortFacts, Tables};
use manylane_net::neighbour::{
    Action, AdjacencyTable, Entry, Key, OwnAction, OwnTable, Report, Table, TableCounts, Timing,
};
use manylane_net::nexthop::dst::{Dsts, DstsMut};
use manylane_net::nexthop::ids::neighbour_id;
use manylane_net::nexthop::{GroupId, Member, NextHopsMut};

use crate::config::{self, InterfaceAddress};
use manylane_worker::Order;

use edit::slot_of;

pub use build::{ipv4_tables, ipv6_tables};
pub use error::RoutingError;
pub use groups::GroupMember;
pub use manylane_net::nexthop::ids::{GROUPS_MAX, NEIGHBOURS_MAX, PORTS_MAX};
pub use operator::NeighbourRefused;
pub use packet_route::PacketRoute;
pub use transaction::is_busy;

const _: () = assert!(GROUPS_MAX == config::GROUPS_MAX, "the configuration bounds the groups");

/// All tables, to write.
pub struct Routing {
    ipv4: Ipv4Writer,
    ipv6: Ipv6Writer,
    next_hops: NextHopsMut,
    adjacencies: AdjacencyTable,
    /// The dsts of neighbours, and of ports for addresses that are not neighbours yet.
    dsts: DstsMut,
    neighbours: Table,
    /// Groups, by their members: routes with the same ones share a group.
    groups: HashMap<Vec<Member>, GroupId>,
    /// How many routes of the configuration lead to a group.
    group_users: HashMap<GroupId, usize>,
    ports: Vec<RoutedPort>,
    /// Host routes that neighbours brought, by slot.
    host_routes: HashMap<u32, IpPrefix>,
    /// Slots whose grace period is over, and whose dst a worker still holds.
    outlived: Vec<u32>,
    /// Edits that met a bound, by slot.
    waiting: BTreeMap<u32, Action>,
    /// By port: whether it was removed.
    removed: Vec<bool>,
    /// Routes of removed ports that are still there.
    going: Vec<Going>,
    /// By port: whether it has no carrier.
    down: Vec<bool>,
    /// Routes that only lead to ports without a carrier: what each leads to when it is back.
    idle: BTreeMap<IpPrefix, NextHopId>,
    /// Whether the FIB lacks an edit of those.
    is_idle_outdated: bool,
    given_up: u64,
    actions: Vec<Action>,
    /// Our own addresses, where others may have them.
    own: OwnTable,
    own_actions: Vec<OwnAction>,
    /// What the control thread must still do after edits by other threads.
    owed: Effects,
}

/// A port, as routing sees it.
pub struct RoutedPort {
    /// What workers know of it.
    pub facts: PortFacts,
    /// Our addresses there with their networks.
    pub addresses: Vec<InterfaceAddress>,
}

/// A route that goes with its port.
struct Going {
    prefix: IpPrefix,
    /// What it leads to.
    was: NextHopId,
    /// What another port has it lead to from then on.
    then: Option<NextHopId>,
}

/// Bounds of the tables.
#[derive(Clone, Copy, Debug)]
pub struct RoutingLimits {
    /// Neighbours, resolved or not.
    pub neighbours_max: usize,
    /// IPv4 routes longer than /24, host routes of neighbours included.
    pub long_ipv4_routes: usize,
    /// IPv6 routes, host routes of neighbours included.
    pub ipv6_routes: usize,
    /// The timers of neighbours' entries.
    pub timing: Timing,
    /// What the neighbour table's draws and memory begin with: no attacker may know it.
    pub seed: u64,
}

impl Default for RoutingLimits {
    fn default() -> Self {
        RoutingLimits {
            neighbours_max: 8192,
            long_ipv4_routes: 65_536,
            ipv6_routes: 65_536,
            timing: Timing::default(),
            seed: 0,
        }
    }
}

/// What the control thread must do after an edit: for the workers and for the operator.
#[derive(Debug, Default)]
pub struct Effects {
    /// Questions to send.
    pub orders: Vec<Order>,
    /// Whether something was published that a sleeping worker may wait for.
    pub published: bool,
    /// Addresses of ours that turned out to be another station's: for the operator.
    pub duplicates: Vec<(Key, [u8; 6])>,
    /// Addresses of ours that another station claims, and that stay ours: for the operator.
    pub kept: Vec<(Key, [u8; 6])>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        let no_news = self.duplicates.is_empty() && self.kept.is_empty();
        self.orders.is_empty() && !self.published && no_news
    }
}

impl Routing {
    /// The workers' sides of all tables.
    pub fn tables(&self) -> Tables {
        Tables {
            ipv4: self.ipv4.reader(),
            ipv6: self.ipv6.reader(),
            next_hops: self.next_hops.reader(),
            adjacencies: self.adjacencies.reader(),
            ports: self.ports.iter().map(|port| port.facts.clone()).collect(),
            own: self.own.reader(),
        }
    }

    /// What workers keep of a route while they wait for its neighbour.
    pub fn dsts(&self) -> Dsts {
        self.dsts.reader()
    }

    /// Enters a neighbour that routes lead through, and looks for it; it keeps its slot.
    pub fn pin(
        &mut self,
        key: Key,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<u32, RoutingError> {
        self.check_own(key)?;
        let mut actions = std::mem::take(&mut self.actions);
        let slot = self.neighbours.pin(key, now, &mut actions).map_err(RoutingError::Neighbour);
        self.apply(actions, effects);
        slot
    }

    /// Takes in what a worker reported.
    pub fn handle(&mut self, report: Report, now: Duration, effects: &mut Effects) {
        if let Report::Claimed { key, mac, claim } = report {
            return self.claimed(key, mac, claim, now, effects);
        }
        if !self.concerns_us(report) {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.neighbours.handle(report, now, &mut actions);
        self.apply(actions, effects);
    }

    /// Lets time pass: timers, edits that wait, memory whose grace period is over.
    pub fn tick(&mut self, now: Duration, effects: &mut Effects) {
        self.pay(effects);
        self.ipv4.reclaim();
        self.ipv6.reclaim();
        self.free_slots();
        self.remove_routes(effects);
        self.reroute_idle(effects);
        // Each stays aside until it is done: the edit of a neighbour's new slot looks whether its old one waits.
        let waiting: Vec<Action> = self.waiting.values().copied().collect();
        for action in waiting {
            if self.edit(action, effects)
                && let Some(slot) = slot_of(action)
            {
                self.waiting.remove(&slot);
            }
        }
        self.tick_own(now, effects); // First: a neighbour that waits for an address of ours as the source of its question can send it now.
        let mut actions = std::mem::take(&mut self.actions);
        self.neighbours.tick(now, &mut actions);
        self.apply(actions, effects);
    }

    /// From now on, at most `places` orders may be given, those included that [`Routing::owes`] says. What finds no
    /// place is not sent, and does not count as sent. Half for each table.
    pub fn give_places(&mut self, places: usize) {
        let places = places.saturating_sub(self.owed.orders.len());
        self.own.give_places(places / 2);
        self.neighbours.give_places(places - places / 2);
    }

    /// Lets neighbours have the slots that no worker can know of any more.
    fn free_slots(&mut self) {
        let Routing { adjacencies, outlived, dsts, neighbours, .. } = self;
        outlived.extend(std::iter::from_fn(|| adjacencies.next_quiet_slot()));
        outlived.retain(|&slot| {
            let is_held = dsts.is_held(neighbour_id(slot));
            if !is_held {
                neighbours.free(slot);
            }
            is_held
        });
    }

    /// When to call [`Routing::tick`] next, if nothing is reported before.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let waits = !self.going.is_empty()
            || self.is_idle_outdated
            || !self.waiting.is_empty()
            || self.neighbours.needs_places()
            || self.own.needs_places();
        let retry = waits.then(|| now + RETRY);
        [self.neighbours.deadline(), self.own.deadline(), retry].into_iter().flatten().min()
    }

    /// The IPv4 routes' writer, to load a full table.
    pub fn ipv4_mut(&mut self) -> &mut Ipv4Writer {
        &mut self.ipv4
    }

    /// The IPv6 routes' writer, to load a full table.
    pub fn ipv6_mut(&mut self) -> &mut Ipv6Writer {
        &mut self.ipv6
    }

    /// All neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = &Entry> {
        self.neighbours.entries().map(|(_, entry)| entry)
    }

    /// What is known of a port.
    pub fn facts(&self, port: PortId) -> &PortFacts {
        &self.ports[port.index()].facts
    }

    /// What reached the neighbour table's bounds.
    pub fn neighbour_counts(&self) -> TableCounts {
        self.neighbours.counts()
    }

    /// Neighbours that the FIB had no place for: workers do not find them.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}

/// How soon to try an edit or an order again: after the workers' next turn, sleepers being offline.
pub(super) const RETRY: Duration = Duration::from_millis(1);
