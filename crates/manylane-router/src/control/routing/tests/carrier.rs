//! Ports that lose their carrier, and get it back.

use super::*;

fn via(next_hop: &str, port: u16) -> RouteTarget {
    RouteTarget::Via { next_hop: next_hop.parse().unwrap(), port: PortId(port) }
}

fn hop(next_hop: &str, port: u16) -> Hop {
    Hop { next_hop: next_hop.parse().unwrap(), port: PortId(port), weight: 1 }
}

fn carrier(bed: &mut Bed, port: u16, has_carrier: bool, now: u64) {
    bed.effects.published = false;
    bed.routing.set_carrier(PortId(port), has_carrier, at(now), &mut bed.effects);
    assert!(bed.effects.published, "workers look again at what they hold");
}

fn prefixes(bed: &Bed) -> Vec<String> {
    let mut all: Vec<_> = bed.routing.routes().map(|(prefix, _)| prefix.to_string()).collect();
    all.sort();
    all
}

#[test]
fn routes_by_a_port_without_a_carrier_are_out_until_it_is_back() {
    let mut bed = Bed::new();
    bed.static_route("192.0.2.0/24", via("10.0.0.9", 0));
    bed.static_route("192.0.0.0/16", via("10.0.1.0", 1));
    bed.static_route("198.51.100.0/24", RouteTarget::OnLink { port: PortId(0) });
    bed.static_route("2001:db8:9::/48", via("fe80::9", 0));
    bed.static_route("203.0.113.0/24", RouteTarget::Blackhole);
    let before = prefixes(&bed);
    bed.asks(0, "10.0.0.7", 0);
    bed.asks(0, "2001:db8::7", 0);

    carrier(&mut bed, 0, false, 1);
    let expected = [
        "10.0.0.0/32",
        "10.0.0.1/32", // Ours, by any port.
        "10.0.0.255/32",
        "10.0.0.9/32", // A next hop: refused.
        "10.0.1.0/31",
        "10.0.1.0/32",
        "10.0.1.1/32",
        "10.9.9.9/32",
        "192.0.0.0/16", // What a packet to 192.0.2.0/24 finds now.
        "2001:db8::/128",
        "2001:db8::1/128",
        "203.0.113.0/24",
    ];
    assert_eq!(prefixes(&bed), expected);
    assert_eq!(bed.state(0, "10.0.0.9"), Some(State::Failed));
    assert_eq!(bed.state(0, "10.0.0.7"), None, "another station may be there afterwards");

    bed.missing(0, "10.0.0.7", 2);
    bed.orders();
    for now in 2..20 {
        bed.worker.quiescent();
        bed.tick(now);
    }
    let there = |order: &Order| {
        let (Order::Solicit { key, .. } | Order::Probe { key } | Order::Announce { key }) = order;
        key.port == PortId(0)
    };
    assert!(!bed.orders().iter().any(there), "nobody can hear it");

    carrier(&mut bed, 0, true, 20);
    assert_eq!(prefixes(&bed), before);
    let asked = bed.orders();
    for next_hop in ["10.0.0.9", "fe80::9"] {
        let question = Order::Solicit { key: key(0, next_hop), unicast: None };
        assert!(asked.contains(&question), "{next_hop} is looked for at once: {asked:?}");
    }
}

/// The finding: fourteen of forty flows were sent by a dead port until its neighbour had been given up.
#[test]
fn a_group_leaves_a_member_whose_port_has_no_carrier_at_once() {
    for [here, there] in [["10.0.0.2", "10.0.1.0"], ["2001:db8::2", "fe80::2"]] {
        let mut bed = Bed::with(&[
            &["10.0.0.1/24", "2001:db8::1/64", "fe80::1/64"],
            &["10.0.1.1/31", "2001:db8:1::1/64", "fe80::1/64"],
        ]);
        let prefix = if here.contains(':') { "2001:db8:9::/48" } else { "192.0.2.0/24" };
        let hops = vec![hop(here, 0), hop(there, 1)];
        bed.static_route(prefix, RouteTarget::Group(hops));
        let solicited = Kind::Advertisement { router: true, solicited: true, overrides: true };
        let kind = if here.contains(':') { solicited } else { Kind::ArpReply };
        for (port, addr) in [(0, here), (1, there)] {
            bed.hear(port, addr, kind, 0);
        }
        let Some(NextHop::Group(id)) = bed.route(prefix) else { panic!("it is a group") };
        let shares =
            |bed: &Bed| Vec::from_iter(bed.routing.groups()[&id].iter().map(|member| member.share));
        assert_eq!(shares(&bed), [0.5, 0.5]);
        carrier(&mut bed, 0, false, 1);
        assert_eq!(shares(&bed), [0.0, 1.0]);
        carrier(&mut bed, 1, false, 2);
        assert_eq!(bed.route(prefix), None, "without any next hop it is out");
        carrier(&mut bed, 0, true, 3);
        assert_eq!(bed.route(prefix), Some(NextHop::Group(id)));
        bed.hear(0, here, kind, 3);
        assert_eq!(shares(&bed), [1.0, 0.0]);
        carrier(&mut bed, 1, true, 4);
        bed.hear(1, there, kind, 4);
        assert_eq!(shares(&bed), [0.5, 0.5]);
    }
}

/// A network that two ports have is that one's which has a carrier.
#[test]
fn what_another_port_has_too_is_its_own_meanwhile() {
    let mut bed = Bed::with(&[&["2001:db8::1/64"], &["2001:db8::2/64"]]);
    let network = "2001:db8::/64";
    let by = |port| Some(NextHop::Connected(PortId(port)));
    assert_eq!(bed.route(network), by(1), "the later word");
    carrier(&mut bed, 1, false, 1);
    assert_eq!(bed.route(network), by(0));
    carrier(&mut bed, 0, false, 2);
    assert_eq!(bed.route(network), None);
    carrier(&mut bed, 0, true, 3);
    assert_eq!(bed.route(network), by(0));
    carrier(&mut bed, 1, true, 4);
    assert_eq!(bed.route(network), by(1));
}

#[test]
fn a_static_neighbour_is_used_again_with_the_carrier() {
    let mut bed = Bed::new();
    let host = key(0, "10.0.0.8");
    let slot =
        bed.routing.set_neighbour(host, MAC, at(0), &mut bed.effects).expect("there is room");
    carrier(&mut bed, 0, false, 1);
    assert!(!bed.routing.neighbours.is_resolved(slot));
    carrier(&mut bed, 0, true, 2);
    assert!(bed.routing.neighbours.is_resolved(slot));
    assert_eq!(bed.state(0, "10.0.0.8"), Some(State::Permanent));
}

/// A configuration that is applied meanwhile says what returns with the carrier.
#[test]
fn routes_that_change_without_a_carrier_return_as_they_are_then() {
    let mut bed = Bed::new();
    let route = |prefix: &str, target| {
        let (network, length) = prefix.split_once('/').unwrap();
        let prefix = Prefix::containing(network.parse().unwrap(), length.parse().unwrap());
        Route { prefix, target }
    };
    let [gone, changed] = ["192.0.2.0/24", "198.51.100.0/24"];
    let [before, after] = [via("10.0.0.9", 0), via("10.0.1.0", 1)];
    for prefix in [gone, changed] {
        bed.static_route(prefix, before.clone());
    }
    carrier(&mut bed, 0, false, 1);
    let mut replace = |before: Option<Route>, after: Option<Route>| {
        let done = bed.routing.replace_route(before.as_ref(), after.as_ref(), at(2));
        done.expect("there is room");
    };
    replace(Some(route(gone, before.clone())), None);
    replace(Some(route(changed, before.clone())), Some(route(changed, after)));
    replace(None, Some(route("203.0.113.0/24", before)));
    assert_eq!(bed.route("203.0.113.0/24"), None, "its port has none");
    let other = Some(NextHop::Via(key(1, "10.0.1.0")));
    assert_eq!((bed.route(gone), bed.route(changed)), (None, other));
    carrier(&mut bed, 0, true, 3);
    assert_eq!((bed.route(gone), bed.route(changed)), (None, other));
    assert_eq!(bed.route("203.0.113.0/24"), Some(NextHop::Via(key(0, "10.0.0.9"))));
}

#[test]
fn a_removed_port_takes_its_resting_routes_along() {
    let mut bed = Bed::new();
    bed.static_route("192.0.2.0/24", via("10.0.0.9", 0));
    carrier(&mut bed, 0, false, 1);
    bed.routing.remove_port(PortId(0), at(2));
    bed.routing.set_carrier(PortId(0), true, at(3), &mut bed.effects);
    bed.tick(3);
    assert_eq!((bed.route("192.0.2.0/24"), bed.route("10.0.0.0/24")), (None, None));
}

#[test]
fn routes_that_meet_a_bound_leave_and_return_after_the_workers_turn() {
    let mut bed = Bed::new();
    let network = "10.0.1.0/31";
    for (has_carrier, expected) in [(false, None), (true, Some(NextHop::Connected(PortId(1))))] {
        bed.fill_limbo();
        let was = bed.route(network);
        bed.routing.set_carrier(PortId(1), has_carrier, at(1), &mut bed.effects);
        assert_eq!(bed.route(network), was, "the worker is still at it");
        assert_eq!(bed.routing.deadline(at(1)), Some(at(1) + RETRY));
        for now in 2..50 {
            bed.worker.quiescent();
            bed.tick(now);
        }
        assert_eq!(bed.route(network), expected);
        assert!(!bed.routing.is_idle_outdated);
    }
}
