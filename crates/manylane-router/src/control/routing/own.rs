//! Our own addresses, as far as others may have them too: timers, claims, and what they mean for the FIB.

use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::neighbour::{
    Claim, Conflicts, DuplicateDetection, Key, OwnAction, OwnAddress, OwnTable,
};
use manylane_net::nexthop::ids::{BLACKHOLE, LOCAL, fixed_id};

use super::connected::{host, is_link_local};
use super::{Effects, RoutedPort, Routing};
use manylane_worker::Order;

impl Routing {
    /// From now on, probes whether our addresses on these ports are ours alone, and announces them. Call it before
    /// routes, whose next hops are resolved from these addresses, and before [`Routing::tables`], which has
    /// the workers' side.
    pub fn watch_own(
        &mut self,
        ports: impl IntoIterator<Item = PortId>,
        mode: DuplicateDetection,
        now: Duration,
    ) {
        let keys: Vec<Key> = ports
            .into_iter()
            .flat_map(|port| self.ports[port.index()].own_keys(port).collect::<Vec<_>>())
            .collect();
        // No two routers have one seed: what one draws, the other does not.
        let seed = self.ports.iter().fold(0, |seed: u64, port| {
            let [a, b, c, d, e, f] = port.facts.mac.0;
            seed.rotate_left(7) ^ u64::from_be_bytes([0, 0, a, b, c, d, e, f])
        });
        self.own = OwnTable::new(keys, mode, seed, now);
        let unused = self.own.addresses().filter(|(own, _)| !own.in_use).map(|(own, _)| own.key);
        for key in unused.collect::<Vec<_>>() {
            self.lead_own(key, false, &mut Effects::default());
        }
        self.follow_own();
    }

    /// Our addresses where others may be, and which stations else lay claim to them.
    pub fn own_addresses(&self) -> impl Iterator<Item = (&OwnAddress, Conflicts)> {
        self.own.addresses()
    }

    pub(super) fn claimed(
        &mut self,
        key: Key,
        mac: [u8; 6],
        claim: Claim,
        now: Duration,
        effects: &mut Effects,
    ) {
        let mut actions = std::mem::take(&mut self.own_actions);
        self.own.hear(key, mac, claim, now, &mut actions);
        self.apply_own(actions, effects);
    }

    pub(super) fn tick_own(&mut self, now: Duration, effects: &mut Effects) {
        let mut actions = std::mem::take(&mut self.own_actions);
        self.own.tick(now, &mut actions);
        self.apply_own(actions, effects);
    }

    pub(super) fn apply_own(&mut self, mut actions: Vec<OwnAction>, effects: &mut Effects) {
        for action in actions.drain(..) {
            let (OwnAction::Probe(key)
            | OwnAction::Announce(key)
            | OwnAction::Use(key)
            | OwnAction::Leave(key)
            | OwnAction::Lost(key, _)
            | OwnAction::Kept(key, _)) = action;
            if self.is_removed(key.port) {
                continue;
            }
            match action {
                OwnAction::Probe(key) => effects.orders.push(Order::Probe { key }),
                OwnAction::Announce(key) => effects.orders.push(Order::Announce { key }),
                OwnAction::Use(key) => self.lead_own(key, true, effects),
                OwnAction::Leave(key) => self.lead_own(key, false, effects),
                OwnAction::Lost(key, mac) => effects.duplicates.push((key, mac)),
                OwnAction::Kept(key, mac) => effects.kept.push((key, mac)),
            }
        }
        self.own_actions = actions; // Its memory serves the next time.
        self.follow_own();
    }

    /// Lets neighbours wait, or be solicited, by what has become of the source addresses of solicitations.
    fn follow_own(&mut self) {
        for (port, is_ipv6) in self.own.take_changed() {
            let waits = self.own.must_wait(port, is_ipv6);
            self.neighbours.set_waiting(port, is_ipv6, waits);
        }
    }

    /// Packets to an address of ours are for us while it is in use, and dropped in silence while it is not
    /// (RFC 4862 §5.4). A link-local one has no route: workers read its standing. Another next hop for a
    /// route that exists is one word for the FIB: it meets no bound.
    fn lead_own(&mut self, key: Key, in_use: bool, effects: &mut Effects) {
        if is_link_local(key.addr) {
            return;
        }
        let id = fixed_id(if in_use { LOCAL } else { BLACKHOLE });
        if self.change(host(key.addr), id, effects).is_err() {
            self.given_up += 1;
        }
    }
}

impl RoutedPort {
    /// Our addresses on this port, the link-local one included if the port has IPv6.
    pub(in crate::control) fn own_keys(&self, port: PortId) -> impl Iterator<Item = Key> {
        let link_local = self.facts.link_local.map(Into::into);
        let ours = self.addresses.iter().map(|own| own.address).chain(link_local);
        ours.map(move |addr| Key { port, addr })
    }
}
