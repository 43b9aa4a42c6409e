//! What the mirror's model takes of memory: a full table in a bounded part of it, and nothing for a message that
//! says nothing new. Needs no root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use allocation_counter::measure;
use manylane_io::netlink::kernel::{Event, Family, Hop, Hops, NextHop, NextHopKind, Route};
use manylane_mirror::{Dump, Limits, Mirror};
use manylane_net::transit::{Memory, Sizes, TransitMut};
use manylane_sync::rcu::Domain;

/// As many as the Internet has, IPv4 and IPv6, with 40 routers to send to.
const ROUTES: [(Family, u32); 2] = [(Family::V4, 900_000), (Family::V6, 160_000)];

#[test]
fn a_full_table_takes_less_than_150_mb_while_it_grows_too() {
    let mut dump = Dump::new(Limits::default());
    let taken = measure(|| {
        for (family, routes) in ROUTES {
            (0..routes).for_each(|number| dump.route(&route(family, number)));
        }
    });
    let (held, most) = (taken.bytes_current, taken.bytes_max);
    let routes = ROUTES.map(|(family, _)| dump.kernel().routes_len(family));
    assert_eq!(routes, ROUTES.map(|(_, routes)| routes as usize));
    assert!(held < 100_000_000 && most < 150_000_000, "{held} bytes, {most} at most");
}

#[test]
fn a_message_that_says_nothing_new_allocates_nothing() {
    let memory = Memory::zeroed(&Sizes::for_routes(100, 1000));
    let tables = TransitMut::new(memory, Domain::new(1), &manylane_net::fib::Limits::default());
    let mut mirror = Mirror::new(tables, Limits::default());
    let hop = hop(Family::V4, 1);
    mirror.event(&Event::NextHop(NextHop {
        id: 1,
        family: None,
        protocol: 4,
        kind: NextHopKind::Via(hop),
    }));
    let told = |number: u32| {
        // By an object, by one router, by two.
        let mut route =
            route(if number.is_multiple_of(2) { Family::V4 } else { Family::V6 }, number);
        match number % 3 {
            0 => route.next_hop = Some(1),
            1 => (),
            _ => {
                let hops = route.hops.as_slice().iter();
                let other = hops.clone().map(|hop| Hop { link: hop.link + 1, ..*hop });
                route.hops = Hops::Many(hops.copied().chain(other).collect());
            }
        }
        Event::Route { route, is_replaced: true, is_appended: false }
    };
    let events: Vec<Event> = (0..3000).map(told).collect();
    let mut news = 0;
    let mut hear = || events.iter().filter(|event| mirror.event(event)).count();
    let taken = measure(|| news = hear());
    assert_eq!(news, events.len(), "all are new");
    assert!(taken.count_total > 0, "they were counted");
    while mirror.apply(0, 1000).pending > 0 {}
    let mut hear = || events.iter().filter(|event| mirror.event(event)).count();
    let taken = measure(|| news = hear());
    assert_eq!((news, taken.count_total), (0, 0), "they are known");
    assert!(!mirror.is_pending());
}

fn route(family: Family, number: u32) -> Route {
    let (destination, prefix_len): (IpAddr, u8) = match family {
        Family::V4 => (Ipv4Addr::from_bits(number << 8).into(), 24),
        Family::V6 => (Ipv6Addr::from_bits(0x2001 << 112 | u128::from(number) << 80).into(), 48),
    };
    Route {
        table: 254,
        destination,
        prefix_len,
        source: None,
        tos: 0,
        priority: 20,
        kind: 1,
        protocol: 186,
        scope: 0,
        flags: 0,
        next_hop: None,
        hops: Hops::One(Some(hop(family, number % 40))),
        mtu: None,
        is_expiring: false,
    }
}

fn hop(family: Family, router: u32) -> Hop {
    let gateway = match family {
        Family::V4 => Ipv4Addr::from_bits(0x0a00_0000 + router).into(),
        Family::V6 => Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(router)).into(),
    };
    Hop { link: 2, gateway: Some(gateway), weight: 1, flags: 0, is_encapsulated: false }
}
