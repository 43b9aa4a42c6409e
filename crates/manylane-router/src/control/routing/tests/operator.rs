//! Edits by the operator, while the daemon runs.

use manylane_net::neighbour::AdjacencyState;
use manylane_sync::rcu::Index;

use super::*;

const BOTH: [(&str, &str); 2] = [("10.0.0.9", "10.0.0.9/32"), ("2001:db8::9", "2001:db8::9/128")];

#[test]
fn a_neighbour_is_added_to_a_running_daemon_and_deleted() {
    let mut bed = Bed::new();
    for (addr, prefix) in BOTH {
        let name = key(0, addr);
        let set = bed.routing.add_neighbour(name, MAC, at(1)).expect("there is room");
        assert_eq!((set.state, set.mac, set.since), (State::Permanent, Some(MAC), at(1)));
        assert_eq!(bed.route(prefix), Some(NextHop::Via(name)));
        // The control thread tells the workers, in its next turn.
        assert!(bed.routing.owes() && !bed.effects.published);
        bed.tick(1);
        assert!(std::mem::take(&mut bed.effects.published) && !bed.routing.owes());
        assert!(bed.orders().is_empty(), "nobody asks for it");

        bed.hear(0, addr, Kind::Gratuitous, 2);
        bed.tick(9000);
        assert_eq!(bed.state(0, addr), Some(State::Permanent), "it neither ages nor moves");

        let was = bed.routing.delete_neighbour(name, at(9001)).expect("it is there");
        assert_eq!(was, set);
        assert_eq!((bed.state(0, addr), bed.route(prefix)), (None, None));
        let again = bed.routing.delete_neighbour(name, at(9001));
        assert_eq!(again, Err(NeighbourRefused::Unknown));
        bed.tick(9001);
    }
    // The neighbour may be met again like any other.
    bed.asks(0, "10.0.0.9", 9002);
    assert_eq!(bed.state(0, "10.0.0.9"), Some(State::Stale));
}

/// Whatever is known of it: the operator knows better.
#[test]
fn a_neighbour_that_was_found_is_set_and_one_that_was_set_may_move() {
    let mut bed = Bed::new();
    bed.missing(0, "10.0.0.9", 0);
    bed.hear(0, "10.0.0.9", Kind::ArpReply, 0);
    for mac in [[2, 9, 9, 9, 9, 1], [2, 9, 9, 9, 9, 2]] {
        let set = bed.routing.add_neighbour(key(0, "10.0.0.9"), mac, at(1)).expect("it is there");
        assert_eq!((set.state, set.mac), (State::Permanent, Some(mac)));
        let slot = bed.routing.neighbours.find(key(0, "10.0.0.9")).expect("it is there").0;
        let guard = bed.worker.guard();
        let adjacency = bed.routing.adjacencies.reader().load(guard, Index::new(guard, slot));
        assert_eq!(adjacency.state(), AdjacencyState::Resolved);
        assert_eq!(adjacency.header()[10..16], mac);
    }
}

/// Routes know it by its slot: it stays, and is looked for.
#[test]
fn a_next_hop_that_is_deleted_is_looked_for_anew() {
    let mut bed = Bed::new();
    for (prefix, via) in [("192.0.2.0/24", "10.0.0.9"), ("2001:db8:9::/48", "fe80::9")] {
        let target = RouteTarget::Via { next_hop: via.parse().unwrap(), port: PortId(0) };
        bed.static_route(prefix, target);
        bed.routing.add_neighbour(key(0, via), MAC, at(1)).expect("it is there");
        bed.orders();
        let was = bed.routing.delete_neighbour(key(0, via), at(2)).expect("it is there");
        assert_eq!((was.state, bed.state(0, via)), (State::Permanent, Some(State::Incomplete)));
        assert_eq!(bed.route(prefix), Some(NextHop::Via(key(0, via))));
        bed.tick(2);
        assert_eq!(bed.orders(), [Order::Solicit { key: key(0, via), unicast: None }]);
    }
}

#[test]
fn what_cannot_be_a_neighbour_is_refused() {
    use NeighbourRefused::*;
    let mut bed = Bed::new();
    bed.static_route("192.0.2.0/24", RouteTarget::OnLink { port: PortId(1) });
    for (port, addr, mac, why) in [
        (0, "10.0.0.9", [1, 0, 0, 0, 0, 9], NotAStation),
        (0, "10.0.0.9", [0; 6], NotAStation),
        (0, "224.0.0.9", MAC, NotAHost("a multicast address")),
        (0, "10.0.0.255", MAC, NotAHost("the network's broadcast address")),
        (0, "10.0.0.0", MAC, NotAHost("the network's own address")),
        (0, "10.0.0.1", MAC, Own),
        (0, "10.0.1.1", MAC, Own), // On the other port.
        (0, "fe80::1", MAC, Own),
        (0, "10.0.1.0", MAC, NotOnLink),
        (0, "8.8.8.8", MAC, NotOnLink),
        (0, "192.0.2.9", MAC, NotOnLink),
        (1, "2001:db8::9", MAC, NotOnLink),
        (1, "fe80::9", MAC, NotOnLink), // The port has no IPv6.
    ] {
        let refused = bed.routing.add_neighbour(key(port, addr), mac, at(0));
        assert_eq!(refused, Err(why), "{addr} on {port}");
        assert_eq!(bed.state(port, addr), None);
    }
    assert!(!bed.routing.owes());
    bed.routing.add_neighbour(key(1, "192.0.2.9"), MAC, at(0)).expect("it is on that link");
    bed.routing.add_neighbour(key(1, "10.0.1.0"), MAC, at(0)).expect("RFC 3021");
    bed.routing.add_neighbour(key(0, "fe80::9"), MAC, at(0)).expect("on every link with IPv6");
}

/// The file does not know the link-local address that a port has by itself.
#[test]
fn the_configuration_is_not_believed_about_ourselves() {
    let mut bed = Bed::with(&[&["10.0.0.1/24", "2001:db8::1/64"]]);
    let own = key(0, "fe80::1");
    let refused = bed.routing.set_neighbour(own, MAC, at(0), &mut bed.effects);
    assert!(matches!(refused, Err(RoutingError::Own { .. })), "{refused:?}");
    let hop = Hop { next_hop: own.addr, port: own.port, weight: 1 };
    for target in
        [RouteTarget::Via { next_hop: own.addr, port: own.port }, RouteTarget::Group(vec![hop])]
    {
        let prefix = Prefix::containing("2001:db8:9::".parse().unwrap(), 48);
        let refused = bed.routing.add_route(&Route { prefix, target }, at(0), &mut bed.effects);
        let said = refused.expect_err("it is ours").to_string();
        assert!(said.starts_with("fe80::1, in a [[route]]"), "{said}");
        assert_eq!(bed.route("2001:db8:9::/48"), None);
    }
    assert_eq!(bed.state(0, "fe80::1"), None);
}

/// Static ones are never given up: when the table has nothing else, the next is refused.
#[test]
fn a_table_of_static_neighbours_refuses_another() {
    let mut bed = Bed::new();
    for host in 2..66 {
        let name = key(0, &format!("10.0.0.{host}"));
        bed.routing.add_neighbour(name, MAC, at(0)).expect("there is room for 64");
    }
    let refused = bed.routing.add_neighbour(key(0, "10.0.0.66"), MAC, at(0));
    assert!(matches!(refused, Err(NeighbourRefused::Full(full)) if full.entries_max == 64));
    bed.missing(0, "10.0.0.67", 0);
    assert_eq!(bed.state(0, "10.0.0.67"), None);
    bed.routing.delete_neighbour(key(0, "10.0.0.2"), at(0)).expect("it is there");
    bed.routing.add_neighbour(key(0, "10.0.0.66"), MAC, at(0)).expect("its place is free");
}
