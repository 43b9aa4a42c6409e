//! What the tables say after each event. The tables are this process's own; no worker forwards by them.

mod carrier;
mod operator;
mod own;
mod packet_route;
mod removal;

use std::net::Ipv6Addr;

use manylane_frame::vocabulary::Offload;
use manylane_net::fib::{EditError, Ipv4Prefix, Ipv6Prefix};
use manylane_net::forward::Ipv4Interface;
use manylane_net::neighbour::{AdjacencyState, Header, Kind, Requester, Rewrite, State};
use manylane_net::nexthop::NextHop;
use manylane_net::nexthop::ids::{BLACKHOLE, fixed_id};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::rcu::{Domain, Index, Reader};

use super::*;
use crate::config::{Hop, Prefix, Route, RouteTarget};

/// Routing with two ports, and a worker that reads.
struct Bed {
    routing: Routing,
    effects: Effects,
    worker: Reader,
}

impl Bed {
    fn new() -> Bed {
        Bed::with(&[
            &["10.0.0.1/24", "2001:db8::1/64", "fe80::1/64"],
            &["10.0.1.1/31", "10.9.9.9/32"],
        ])
    }

    fn with(ports: &[&[&str]]) -> Bed {
        let domain = Domain::new(1);
        let limits = RoutingLimits {
            neighbours_max: 64,
            long_ipv4_routes: 8192,
            ipv6_routes: 8192,
            ..RoutingLimits::default()
        };
        let ports = (0..).zip(ports).map(|(number, addresses)| port(number, addresses)).collect();
        let routing = Routing::new(&domain, ports, limits).expect("the tables can be mapped");
        let worker = domain.register().expect("the first fits");
        Bed { routing, effects: Effects::default(), worker }
    }

    fn missing(&mut self, port: u16, addr: &str, now: u64) {
        self.routing.handle(
            Report::Missing { key: key(port, addr), requester: Requester::default() },
            at(now),
            &mut self.effects,
        );
    }

    /// A host sends an ARP request or a neighbour solicitation for one of our addresses.
    fn asks(&mut self, port: u16, addr: &str, now: u64) {
        let kind = if addr.contains(':') { Kind::Solicitation } else { Kind::ArpRequest };
        self.hear(port, addr, kind, now);
    }

    fn hear(&mut self, port: u16, addr: &str, kind: Kind, now: u64) {
        let report = Report::Answer { key: key(port, addr), mac: Some(MAC), kind };
        self.routing.handle(report, at(now), &mut self.effects);
    }

    fn tick(&mut self, now: u64) {
        self.routing.tick(at(now), &mut self.effects);
    }

    fn route(&self, prefix: &str) -> Option<NextHop<Key>> {
        let all = self.routing.routes();
        let found = all.filter(|(found, _)| found.to_string() == prefix).map(|(_, to)| to);
        found.last()
    }

    fn static_route(&mut self, prefix: &str, target: RouteTarget) {
        let (network, length) = prefix.split_once('/').unwrap();
        let prefix = Prefix::containing(network.parse().unwrap(), length.parse().unwrap());
        let route = Route { prefix, target };
        self.routing.add_route(&route, at(0), &mut self.effects).expect("there is room");
    }

    fn state(&self, port: u16, addr: &str) -> Option<State> {
        let key = key(port, addr);
        self.routing.neighbours().find(|entry| entry.key == key).map(|entry| entry.state)
    }

    fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.effects.orders)
    }

    /// Fills the FIB's limbo with edits of other routes, until the worker is quiescent.
    fn fill_limbo(&mut self) {
        let id = fixed_id(BLACKHOLE);
        let v4 = Ipv4Prefix::host([11, 0, 0, 1].into());
        let v6 = Ipv6Prefix::host(Ipv6Addr::from_bits(0x2002 << 112));
        let busy = |result| match result {
            Ok(_) => false,
            Err(EditError::Busy { .. }) => true,
            Err(error) => panic!("{error}"),
        };
        let (ipv4, ipv6) = (&mut self.routing.ipv4, &mut self.routing.ipv6);
        while !busy(ipv4.insert(v4, id)) && !busy(ipv4.remove(v4)) {}
        while !busy(ipv6.insert(v6, id)) && !busy(ipv6.remove(v6)) {}
    }

    /// Publishes for a slot that no neighbour has, until no record is free before the worker is quiescent.
    fn use_all_records(&mut self) {
        let (key, state) = (key(0, "10.0.0.200"), AdjacencyState::Unresolved);
        let rewrite =
            Rewrite { key, egress: key.port, state, header: Header::default(), mtu: 1500 };
        while self.routing.adjacencies.publish(9, &rewrite).is_ok() {}
    }
}

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn key(port: u16, addr: &str) -> Key {
    Key { port: PortId(port), addr: addr.parse().unwrap() }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn port(number: u16, addresses: &[&str]) -> RoutedPort {
    let own = |text: &&str| {
        let (address, length) = text.split_once('/').unwrap();
        InterfaceAddress { address: address.parse().unwrap(), length: length.parse().unwrap() }
    };
    let addresses: Vec<InterfaceAddress> = addresses.iter().map(own).collect();
    let has_ipv6 = addresses.iter().any(|own| own.address.is_ipv6());
    let facts = PortFacts {
        mac: Mac([2, 0, 0, 0, 0, number as u8]),
        mtu: 1500,
        offload: Offload::NONE,
        ipv4: Vec::<Ipv4Interface>::new(),
        ipv6: Vec::new(),
        link_local: has_ipv6.then(|| "fe80::1".parse().unwrap()),
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    };
    RoutedPort { facts, addresses }
}

#[test]
fn what_our_addresses_mean_is_in_the_fib() {
    let bed = Bed::new();
    let connected = |port| NextHop::Connected(PortId(port));
    let mut routes: Vec<_> =
        bed.routing.routes().map(|(prefix, to)| (prefix.to_string(), to)).collect();
    let mut expected = [
        ("10.0.0.0/24", connected(0)),
        ("10.0.0.0/32", NextHop::Broadcast),
        ("10.0.0.1/32", NextHop::Local),
        ("10.0.0.255/32", NextHop::Broadcast),
        ("10.0.1.0/31", connected(1)), // RFC 3021: no broadcasts.
        ("10.0.1.1/32", NextHop::Local),
        ("10.9.9.9/32", NextHop::Local), // Alone in its network.
        ("2001:db8::/64", connected(0)),
        ("2001:db8::/128", NextHop::Local), // Any router's: RFC 4291 §2.6.1.
        ("2001:db8::1/128", NextHop::Local),
    ]
    .map(|(prefix, to)| (prefix.to_owned(), to));
    routes.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(routes, expected);
}

#[test]
fn a_neighbour_has_a_host_route_as_long_as_it_has_an_entry() {
    let mut bed = Bed::new();
    for (addr, prefix) in [("10.0.0.9", "10.0.0.9/32"), ("2001:db8::9", "2001:db8::9/128")] {
        bed.missing(0, addr, 0);
        assert_eq!(bed.route(prefix), Some(NextHop::Via(key(0, addr))), "before it has answered");
        assert!(std::mem::take(&mut bed.effects.published));
        assert_eq!(bed.orders(), [Order::Solicit { key: key(0, addr), unicast: None }]);
    }
    for now in 1..=3 {
        bed.tick(now);
    }
    assert_eq!(bed.state(0, "10.0.0.9"), Some(State::Failed));
    assert_eq!(bed.orders().len(), 4, "three questions each");
    assert!(bed.route("10.0.0.9/32").is_some() && bed.route("2001:db8::9/128").is_some());
    for now in [5, 70] {
        bed.tick(now);
    }
    assert_eq!((bed.state(0, "10.0.0.9"), bed.state(0, "2001:db8::9")), (None, None));
    assert_eq!((bed.route("10.0.0.9/32"), bed.route("2001:db8::9/128")), (None, None));
    assert_eq!(bed.routing.host_routes.len(), 0);

    // After the worker's turn the slots are free: as many neighbours fit as before.
    bed.worker.quiescent();
    bed.tick(71);
    assert_eq!(bed.routing.adjacencies.next_quiet_slot(), None, "all were given back");
}

#[test]
fn a_host_that_asks_us_is_known() {
    let mut bed = Bed::new();
    bed.asks(0, "10.0.0.9", 0);
    assert_eq!(bed.state(0, "10.0.0.9"), Some(State::Stale));
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(key(0, "10.0.0.9"))));
    bed.asks(0, "fe80::9", 0);
    assert_eq!(bed.state(0, "fe80::9"), Some(State::Stale));
    assert_eq!(bed.route("fe80::9/128"), None, "it may be on every port");
    bed.hear(0, "10.0.0.10", Kind::Gratuitous, 0);
    assert_eq!(bed.state(0, "10.0.0.10"), None, "it only speaks of itself");
}

/// Any station on a link may claim any address. The claim brings no route.
#[test]
fn a_claim_of_an_address_from_elsewhere_is_refused() {
    let mut bed = Bed::new();
    bed.static_route("192.0.2.0/24", RouteTarget::OnLink { port: PortId(1) });
    bed.static_route("0.0.0.0/0", RouteTarget::Blackhole);
    let before: Vec<_> = bed.routing.routes().collect();
    for (port, addr) in [
        (0, "8.8.8.8"),
        (0, "10.0.1.0"),  // Port 1's.
        (0, "192.0.2.9"), // On port 1's link, by a static route.
        (1, "10.0.0.9"),
        (0, "2001:db8:1::9"),
        (1, "2001:db8::9"),
        (7, "10.0.0.9"), // No such port.
    ] {
        bed.asks(port, addr, 0);
        bed.missing(port, addr, 0);
        assert_eq!(bed.state(port, addr), None, "{addr} on {port}");
    }
    // The next three addresses are on the link, and have a meaning already.
    for addr in ["10.0.0.255", "10.0.0.0", "10.0.0.1"] {
        bed.asks(0, addr, 0);
    }
    assert_eq!(bed.routing.routes().collect::<Vec<_>>(), before);

    bed.asks(1, "192.0.2.9", 0);
    assert_eq!(bed.route("192.0.2.9/32"), Some(NextHop::Via(key(1, "192.0.2.9"))));
}

#[test]
fn a_next_hop_is_looked_for_at_once_and_never_forgotten() {
    let mut bed = Bed::new();
    for (prefix, via) in [("192.0.2.0/24", "10.0.0.9"), ("2001:db8:9::/48", "fe80::9")] {
        let next_hop = via.parse().unwrap();
        bed.static_route(prefix, RouteTarget::Via { next_hop, port: PortId(0) });
        assert_eq!(bed.orders(), [Order::Solicit { key: key(0, via), unicast: None }]);
    }
    for now in 1..200 {
        bed.tick(now);
        bed.worker.quiescent();
    }
    assert!(bed.orders().len() > 100, "it is asked for on and on");
    for (prefix, via) in [("192.0.2.0/24", "10.0.0.9"), ("2001:db8:9::/48", "fe80::9")] {
        assert_eq!(bed.route(prefix), Some(NextHop::Via(key(0, via))));
    }
    bed.hear(0, "10.0.0.9", Kind::ArpReply, 200);
    assert!(bed.state(0, "10.0.0.9").is_some_and(|state| state != State::Failed));
}

#[test]
fn every_kind_of_static_route_means_what_it_says() {
    let mut bed = Bed::new();
    for (prefix, target, expected) in [
        ("192.0.2.0/25", RouteTarget::Blackhole, NextHop::Blackhole),
        ("192.0.2.128/25", RouteTarget::Unreachable, NextHop::Unreachable),
        ("2001:db8:7::/48", RouteTarget::Prohibit, NextHop::Prohibit),
        ("::/0", RouteTarget::OnLink { port: PortId(1) }, NextHop::Connected(PortId(1))),
    ] {
        bed.static_route(prefix, target);
        assert_eq!(bed.route(prefix), Some(expected));
    }
    assert!(bed.effects.published, "what a worker holds may be for these");
}

/// What a worker keeps across its turns means what it meant: a slot is no other's while its dst is held.
#[test]
fn a_slot_is_given_on_when_nobody_holds_its_dst() {
    let mut bed = Bed::new();
    let (was, next) = (key(0, "10.0.0.9"), key(0, "10.0.0.10"));
    bed.missing(0, "10.0.0.9", 0);
    let (slot, _) = bed.routing.neighbours.find(was).expect("it is asked for");
    let dsts = bed.routing.dsts();
    let guard = bed.worker.guard();
    let id = Index::<()>::new(guard, neighbour_id(slot).raw().into());
    let dst = dsts.borrow(guard, id, 0).expect("each neighbour has one");
    assert_eq!((dst.facts().neighbour, dst.facts().mtu), (Some(slot), 1500));
    let held = dsts.hold(dst);
    bed.routing.delete_neighbour(was, at(0)).expect("it is there");
    for now in 0..3 {
        bed.worker.quiescent();
        bed.tick(now);
        bed.missing(0, "10.0.0.10", now);
        let (other, _) = bed.routing.neighbours.find(next).expect("it is asked for");
        assert_ne!(other, slot);
        bed.routing.delete_neighbour(next, at(now)).expect("it is there");
    }
    assert_eq!(dsts.facts(&held).neighbour, Some(slot));
    assert_eq!(bed.routing.outlived, [slot]);
    dsts.put(bed.worker.guard(), held);
    bed.worker.quiescent();
    bed.tick(3);
    assert!(bed.routing.outlived.is_empty());
}

/// The FIB's limbo is full until the worker's turn ends: nothing is lost, and nothing is done twice.
#[test]
fn as_many_neighbours_as_may_be_configured_have_ids() {
    let limits = RoutingLimits {
        neighbours_max: 30_000,
        long_ipv4_routes: 64,
        ipv6_routes: 64,
        ..RoutingLimits::default()
    };
    Routing::new(&Domain::new(1), Vec::new(), limits).expect("the tables can be mapped");
}

/// By one group for all routes with the same members; a member that is not found is left out while another is.
#[test]
fn a_route_by_several_next_hops_goes_by_those_that_are_found() {
    let mut bed = Bed::new();
    let hop = |addr: &str, weight| Hop { next_hop: addr.parse().unwrap(), port: PortId(0), weight };
    let hops = [hop("10.0.0.2", 3), hop("10.0.0.3", 1)];
    let reversed = [hops[1], hops[0]];
    bed.static_route("192.0.2.0/24", RouteTarget::Group(hops.to_vec()));
    bed.static_route("198.51.100.0/24", RouteTarget::Group(reversed.to_vec()));
    let six = [hop("2001:db8::2", 1), hop("fe80::3", 1)];
    bed.static_route("2001:db8:9::/48", RouteTarget::Group(six.to_vec()));
    let group = |bed: &Bed, prefix| match bed.route(prefix) {
        Some(NextHop::Group(group)) => group,
        other => panic!("{other:?}"),
    };
    let id = group(&bed, "192.0.2.0/24");
    assert_eq!(group(&bed, "198.51.100.0/24"), id);
    assert_ne!(group(&bed, "2001:db8:9::/48"), id);
    assert_eq!(bed.orders().len(), 4, "each is asked for at once, once");

    let shares =
        |bed: &Bed| Vec::from_iter(bed.routing.groups()[&id].iter().map(|member| member.share));
    assert_eq!(shares(&bed), [0.75, 0.25]);
    bed.hear(0, "10.0.0.3", Kind::ArpReply, 0);
    assert_eq!(shares(&bed), [0.0, 1.0]);
    bed.hear(0, "10.0.0.2", Kind::ArpReply, 0);
    assert_eq!(shares(&bed), [0.75, 0.25]);

    // 10.0.0.2 goes away: it is used, checked, asked, and gives no answer.
    let slot = bed.routing.neighbours.find(key(0, "10.0.0.2")).expect("it is pinned").0;
    for now in 30..120 {
        bed.hear(0, "10.0.0.3", Kind::ArpReply, now);
        bed.tick(now);
        bed.routing.handle(Report::Used { slot }, at(now), &mut bed.effects);
        bed.worker.quiescent();
        if bed.state(0, "10.0.0.2") == Some(State::Failed) {
            break;
        }
        assert_eq!(shares(&bed), [0.75, 0.25], "at {now}, {:?}", bed.state(0, "10.0.0.2"));
    }
    assert_eq!(shares(&bed), [0.0, 1.0]);
    bed.hear(0, "10.0.0.2", Kind::ArpRequest, 130);
    assert_eq!(shares(&bed), [0.75, 0.25], "it is back");
}

#[test]
fn edits_that_meet_a_bound_are_done_after_the_workers_turn() {
    let mut bed = Bed::new();
    bed.asks(0, "10.0.0.8", 0);
    bed.fill_limbo();
    for addr in ["10.0.0.9", "2001:db8::9"] {
        bed.missing(0, addr, 0);
    }
    assert_eq!((bed.route("10.0.0.9/32"), bed.route("2001:db8::9/128")), (None, None));
    assert_eq!(bed.routing.deadline(at(0)), Some(RETRY));
    bed.tick(0);
    assert_eq!(bed.route("10.0.0.9/32"), None, "the worker is still at it");

    // A newer word about the same neighbour takes the place of the one that waits.
    bed.hear(0, "10.0.0.9", Kind::ArpReply, 0);
    assert_eq!(bed.routing.waiting.len(), 2);
    bed.worker.quiescent();
    bed.effects.published = false;
    bed.tick(0);
    assert!(bed.effects.published && bed.routing.waiting.is_empty());
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(key(0, "10.0.0.9"))));
    assert_eq!(bed.route("2001:db8::9/128"), Some(NextHop::Via(key(0, "2001:db8::9"))));
    assert_eq!(bed.routing.given_up(), 0);
}

/// A host fails and is removed, cannot be removed yet, and comes back: its route leads to its new slot.
#[test]
fn a_neighbour_that_comes_back_takes_its_route_over() {
    let mut bed = Bed::new();
    bed.missing(0, "10.0.0.9", 0);
    for now in 1..=5 {
        bed.tick(now);
    }
    bed.fill_limbo();
    bed.tick(70);
    assert_eq!(bed.state(0, "10.0.0.9"), None);
    assert_eq!(bed.routing.waiting.len(), 1, "the route could not go");
    bed.missing(0, "10.0.0.9", 71);
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(key(0, "10.0.0.9"))));
    bed.worker.quiescent();
    bed.tick(71);
    assert!(bed.routing.waiting.is_empty());
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(key(0, "10.0.0.9"))));
    assert_eq!(bed.routing.host_routes.len(), 1);
}

/// As above, and the new slot has the smaller number, so that its edit is tried again first.
#[test]
fn a_neighbour_that_comes_back_in_a_slot_before_its_own_takes_its_route_over() {
    let mut bed = Bed::new();
    bed.missing(0, "10.0.0.8", 0);
    bed.missing(0, "10.0.0.9", 10);
    for now in 1..=70 {
        bed.worker.quiescent();
        bed.tick(now); // The first has failed and is removed; its slot is free again.
    }
    bed.fill_limbo();
    bed.tick(75);
    bed.use_all_records();
    assert_eq!((bed.state(0, "10.0.0.8"), bed.state(0, "10.0.0.9")), (None, None));
    assert_eq!(bed.routing.waiting.len(), 1, "the second's route could not go");
    bed.missing(0, "10.0.0.9", 76);
    assert_eq!(bed.routing.waiting.len(), 2, "nor could it be led to its new slot");
    bed.worker.quiescent();
    bed.tick(76);
    assert!(bed.routing.waiting.is_empty());
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(key(0, "10.0.0.9"))));
}

#[test]
fn a_static_host_route_outlives_the_neighbour() {
    let mut bed = Bed::new();
    bed.static_route("10.0.0.8/32", RouteTarget::Blackhole);
    bed.missing(0, "10.0.0.8", 0);
    assert_eq!(bed.route("10.0.0.8/32"), Some(NextHop::Blackhole), "it came first");
    bed.missing(0, "10.0.0.9", 0);
    bed.static_route("10.0.0.9/32", RouteTarget::Prohibit);
    for now in [1, 2, 3, 5, 70] {
        bed.tick(now);
    }
    assert_eq!(bed.routing.neighbours().count(), 0);
    assert_eq!(bed.route("10.0.0.8/32"), Some(NextHop::Blackhole));
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Prohibit));
}

#[test]
fn the_operators_word_stands() {
    let mut bed = Bed::new();
    let set = key(0, "10.0.0.9");
    bed.routing.set_neighbour(set, MAC, at(0), &mut bed.effects).expect("there is room");
    assert_eq!(bed.state(0, "10.0.0.9"), Some(State::Permanent));
    assert_eq!(bed.route("10.0.0.9/32"), Some(NextHop::Via(set)));
    assert!(bed.effects.published && bed.effects.orders.is_empty());
}
