//! A port that is removed while the daemon runs.

use super::*;

fn remove(bed: &mut Bed, port: u16) {
    bed.routing.remove_port(PortId(port), at(1));
    assert!(bed.routing.owes(), "the control thread tells the workers, in its next turn");
    bed.tick(1);
    assert!(std::mem::take(&mut bed.effects.published));
}

#[test]
fn what_leads_to_a_removed_port_goes_with_it() {
    let mut bed = Bed::new();
    let via = |next_hop: &str, port| RouteTarget::Via {
        next_hop: next_hop.parse().unwrap(),
        port: PortId(port),
    };
    bed.static_route("192.0.2.0/24", via("10.0.0.9", 0));
    bed.static_route("192.0.0.0/16", via("10.0.1.0", 1));
    bed.static_route("198.51.100.0/24", RouteTarget::OnLink { port: PortId(0) });
    bed.static_route("2001:db8:9::/48", via("fe80::9", 0));
    bed.static_route("203.0.113.0/24", RouteTarget::Blackhole);
    bed.missing(0, "10.0.0.7", 0);
    bed.asks(0, "2001:db8::7", 0);
    bed.orders();
    remove(&mut bed, 0);
    let mut left: Vec<_> = bed.routing.routes().map(|(prefix, _)| prefix.to_string()).collect();
    left.sort();
    let expected = [
        "10.0.1.0/31",
        "10.0.1.0/32", // The neighbour.
        "10.0.1.1/32",
        "10.9.9.9/32",
        "192.0.0.0/16", // What a packet to 192.0.2.0/24 finds now.
        "203.0.113.0/24",
    ];
    assert_eq!(left, expected);

    // No neighbour is solicited there any more, and none becomes known.
    bed.missing(0, "10.0.0.7", 2);
    bed.asks(0, "fe80::7", 2);
    bed.hear(0, "10.0.0.9", Kind::ArpReply, 2);
    for now in 2..100 {
        bed.worker.quiescent();
        bed.tick(now);
    }
    let there = |order: &Order| {
        let (Order::Solicit { key, .. } | Order::Probe { key } | Order::Announce { key }) = order;
        key.port == PortId(0)
    };
    assert!(!bed.orders().iter().any(there));
    assert_eq!((bed.state(0, "10.0.0.7"), bed.state(0, "fe80::7")), (None, None));
    assert_eq!(bed.routing.routes().count(), expected.len());
}

/// A network that two ports have, and an anycast address of both, lead to the one that stays.
#[test]
fn what_another_port_has_too_is_its_own() {
    let mut bed = Bed::with(&[&["2001:db8::1/64"], &["2001:db8::2/64"]]);
    assert_eq!(bed.route("2001:db8::/64"), Some(NextHop::Connected(PortId(1))), "the later word");
    remove(&mut bed, 1);
    assert_eq!(bed.route("2001:db8::/64"), Some(NextHop::Connected(PortId(0))));
    assert_eq!(bed.route("2001:db8::/128"), Some(NextHop::Local), "any router's");
    assert_eq!(bed.route("2001:db8::1/128"), Some(NextHop::Local));
    assert_eq!(bed.route("2001:db8::2/128"), None);
}

#[test]
fn a_group_goes_on_with_its_other_members() {
    let mut bed = Bed::new();
    let hop =
        |addr: &str, port| Hop { next_hop: addr.parse().unwrap(), port: PortId(port), weight: 1 };
    let mixed = [hop("10.0.0.2", 0), hop("10.0.1.0", 1)];
    bed.static_route("192.0.2.0/24", RouteTarget::Group(mixed.to_vec()));
    let of_one = [hop("10.0.0.2", 0), hop("10.0.0.3", 0)];
    bed.static_route("198.51.100.0/24", RouteTarget::Group(of_one.to_vec()));
    for (port, addr) in [(0, "10.0.0.2"), (0, "10.0.0.3"), (1, "10.0.1.0")] {
        bed.hear(port, addr, Kind::ArpReply, 0);
    }
    let Some(NextHop::Group(id)) = bed.route("192.0.2.0/24") else { panic!("it is a group") };
    let shares =
        |bed: &Bed| Vec::from_iter(bed.routing.groups()[&id].iter().map(|member| member.share));
    assert_eq!(shares(&bed), [0.5, 0.5]);
    remove(&mut bed, 0);
    assert_eq!(shares(&bed), [0.0, 1.0]);
    assert_eq!(bed.route("192.0.2.0/24"), Some(NextHop::Group(id)));
    assert_eq!(bed.route("198.51.100.0/24"), None);
}

#[test]
fn routes_that_meet_a_bound_go_after_the_workers_turn() {
    let mut bed = Bed::new();
    bed.fill_limbo();
    bed.routing.remove_port(PortId(0), at(1));
    bed.tick(1);
    assert!(!bed.routing.going.is_empty(), "the worker is still at it");
    assert!(bed.route("10.0.0.1/32").is_some());
    assert_eq!(bed.routing.deadline(at(1)), Some(at(1) + RETRY));
    for now in 2..50 {
        bed.worker.quiescent();
        bed.tick(now);
    }
    assert!(bed.routing.going.is_empty());
    assert_eq!((bed.route("10.0.0.1/32"), bed.route("2001:db8::1/128")), (None, None));
}
