//! Routes changed in bulk: their events, losses, and that each route arrives as sent. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::common::ip::{ip, lab};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Change, Event, Family, Group, Hop, Hops, Read, Route, Watch};

#[test]
fn a_loss_is_reported_until_the_queue_was_empty() {
    let Some(host) = lab("overrun") else { return };
    host.run(|| {
        let mut watch = Watch::open(&[Group::Routes(Family::V4)], 4096).expect("root may listen");
        let mut netlink = Netlink::open().expect("netlink is always there");
        let link = netlink.link("v0").expect("it is there").index;
        let hop = Hop::via(link, "10.0.0.2".parse().expect("v4"));
        let loaded = netlink.load_routes(routes(Family::V4, 10_000, hop)).expect("all are new");
        assert_eq!(loaded, 10_000);
        let mut events = 0;
        let mut read = |watch: &mut Watch| watch.read(&mut |_| events += 1).expect("it goes on");
        let first = read(&mut watch);
        assert!(first.overrun && !first.more && first.events < 10_000, "{first:?}");
        assert_eq!(read(&mut watch), Read::default(), "it was told, and the queue is empty");
        ip("route add 192.0.2.0/24 via 10.0.0.2");
        let after = read(&mut watch);
        assert_eq!(after, Read { events: 1, overrun: false, more: false }, "nothing is lost now");
        assert_eq!(events, first.events + 1);
    });
}

#[test]
fn one_read_has_a_bound_and_nothing_is_lost_by_it() {
    let Some(host) = lab("bound") else { return };
    host.run(|| {
        let groups = [Group::Routes(Family::V4), Group::Routes(Family::V6)];
        let mut watch = Watch::open(&groups, 64 << 20).expect("root may listen");
        let mut netlink = Netlink::open().expect("netlink is always there");
        let link = netlink.link("v0").expect("it is there").index;
        let both = [Family::V4, Family::V6].map(|family| {
            let gateway = if family == Family::V4 { "10.0.0.2" } else { "fd00::2" };
            let hop = Hop::via(link, gateway.parse().expect("an address"));
            assert_eq!(netlink.load_routes(routes(family, 3000, hop)).expect("new"), 3000);
            (family, hop)
        });
        let mut seen = Vec::new();
        let mut each = |event| match event {
            Event::Route { route, is_replaced: false, is_appended: false } => seen.push(route),
            event => panic!("{event:?}"),
        };
        let first = watch.read(&mut each).expect("nothing is wrong");
        assert_eq!((first.events, first.overrun, first.more), (4096, false, true));
        let second = watch.read(&mut each).expect("nothing is wrong");
        assert_eq!((second.events, second.overrun, second.more), (6000 - 4096, false, false));
        // In the kernel's order, and as the table has them.
        let made: Vec<_> =
            both.iter().flat_map(|&(family, hop)| routes(family, 3000, hop)).collect();
        assert_eq!(
            seen.iter().map(|route| route.destination).collect::<Vec<_>>(),
            made.iter().map(|route| route.destination).collect::<Vec<_>>()
        );
        let mut table = Vec::new();
        for family in [Family::V4, Family::V6] {
            netlink.dump_routes(family, Some(254), |route| table.push(route)).expect("root may");
        }
        table.retain(|route| route.protocol == libc::RTPROT_STATIC);
        table.sort_by_key(|route| route.destination);
        seen.sort_by_key(|route| route.destination);
        assert_eq!(seen, table);
    });
}

#[test]
fn routes_are_changed_by_the_thousand_and_refusals_are_named() {
    let Some(host) = lab("bulk") else { return };
    host.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        let index = |netlink: &mut Netlink, name| netlink.link(name).expect("it is there").index;
        let (v0, w0) = (index(&mut netlink, "v0"), index(&mut netlink, "w0"));
        let address = |text: &str| text.parse::<IpAddr>().expect("the test wrote it");
        for (family, first, second) in
            [(Family::V4, "10.0.0.2", "10.0.1.2"), (Family::V6, "fd00::2", "fd01::2")]
        {
            let count = |netlink: &mut Netlink, gateway: IpAddr| {
                let mut count = 0;
                let each = |route: Route| {
                    let hops = route.hops.as_slice();
                    count += u64::from(hops.iter().any(|hop| hop.gateway == Some(gateway)));
                };
                netlink.dump_routes(family, Some(254), each).expect("root may");
                count
            };
            let (first, second) = (address(first), address(second));
            let before = || routes(family, 1000, Hop::via(v0, first));
            let after = || routes(family, 1000, Hop::via(w0, second));
            assert_eq!(netlink.load_routes(before()).expect("all are new"), 1000);
            assert_eq!(count(&mut netlink, first), 1000);
            let again = netlink.load_routes(before()).expect_err("they are there");
            assert!(again.is_existing(), "{again}");
            let replaces = after().map(|route| (Change::Replace, route));
            assert_eq!(
                netlink.change_routes(replaces).and_then(|all| all.all()).expect("each"),
                1000
            );
            assert_eq!((count(&mut netlink, first), count(&mut netlink, second)), (0, 1000));
            // Every second one is refused, and the others are done.
            let mixed = after().zip(0..).map(|(route, number)| match number % 2 {
                0 => (Change::Delete, route),
                _ => (Change::Add, route),
            });
            let changed = netlink.change_routes(mixed).expect("the socket works");
            assert_eq!((changed.done, changed.refused), (500, 500));
            assert_eq!(count(&mut netlink, second), 500);
            let refusal = changed.all().expect_err("half of them").to_string();
            let (destination, prefix_len) = network(family, 1);
            let told = format!("cannot add the route {destination}/{prefix_len} in table 254: ");
            assert!(refusal.starts_with(&told), "{refusal}");
        }
    });
}

/// What the loader writes is what the dump reads: every field that it can say.
#[test]
fn a_loaded_route_is_read_as_it_was_meant() {
    let Some(host) = lab("meant") else { return };
    host.run(|| {
        ip("nexthop add id 6 via fd00::2 dev v0");
        let mut netlink = Netlink::open().expect("netlink is always there");
        let index = |netlink: &mut Netlink, name| netlink.link(name).expect("it is there").index;
        let (v0, w0) = (index(&mut netlink, "v0"), index(&mut netlink, "w0"));
        let address = |text: &str| text.parse::<IpAddr>().expect("the test wrote it");
        let via = |link, gateway| Hop::via(link, address(gateway));
        let one = |hop| Hops::One(Some(hop));
        let weighted = |hop, weight| Hop { weight, ..hop };
        let v4 = |text, hops| Route { table: 700, ..Route::new(address(text), 24, hops) };
        let v6 =
            |text, hops| Route { table: 700, priority: 9, ..Route::new(address(text), 48, hops) };
        let meant = [
            v4("192.0.2.0", one(via(v0, "10.0.0.2"))),
            Route { tos: 0x10, priority: 5, mtu: Some(1300), ..v4("192.0.3.0", one(Hop::on(v0))) },
            v4("192.0.4.0", one(via(w0, "fd01::2"))),
            v4(
                "192.0.5.0",
                Hops::Many(vec![via(v0, "10.0.0.2"), weighted(via(w0, "fd01::2"), 256)]),
            ),
            Route { kind: libc::RTN_BLACKHOLE, ..v4("192.0.6.0", Hops::One(None)) },
            v6("2001:db8:1::", one(via(v0, "fd00::2"))),
            Route { source: Some((address("fd05::"), 16)), ..v6("2001:db8:2::", one(Hop::on(v0))) },
            v6(
                "2001:db8:3::",
                Hops::Many(vec![weighted(via(v0, "fd00::2"), 7), via(w0, "fd01::2")]),
            ),
            Route { kind: libc::RTN_UNREACHABLE, ..v6("2001:db8:4::", Hops::One(None)) },
        ];
        assert_eq!(netlink.load_routes(meant.clone()).expect("all are new"), 9);
        let mut read = Vec::new();
        for family in [Family::V4, Family::V6] {
            netlink.dump_routes(family, Some(700), |route| read.push(route)).expect("root may");
        }
        for (meant, read) in meant.iter().zip(&read) {
            assert_eq!(meant, read);
        }
        assert_eq!(read.len(), meant.len());
        let deletes = meant.into_iter().map(|route| (Change::Delete, route));
        let deleted = netlink.change_routes(deletes).and_then(|all| all.all()).expect("each");
        assert_eq!(deleted, 9);

        let by_object = Route::by_next_hop(address("2001:db8:5::"), 48, 6);
        netlink.load_routes([by_object]).expect("the object is there");
        let mut ids = Vec::new();
        let each = |route: Route| ids.extend(route.next_hop);
        netlink.dump_routes(Family::V6, Some(254), each).expect("root may");
        assert_eq!(ids, [6]);

        let wrapped = Hop { is_encapsulated: true, ..Hop::on(v0) };
        let refused = netlink.load_routes([v4("192.0.7.0", one(wrapped))]).expect_err("not ours");
        assert!(refused.to_string().contains("encapsulation"), "{refused}");
    });
}

/// The `number`th IPv4 or IPv6 network of a documentation prefix's size and more.
fn network(family: Family, number: u32) -> (IpAddr, u8) {
    match family {
        Family::V4 => (Ipv4Addr::from_bits(0x1400_0000 + (number << 8)).into(), 24),
        Family::V6 => {
            let bits = 0x2001_0db8 << 96 | u128::from(number) << 64;
            (Ipv6Addr::from_bits(bits).into(), 64)
        }
    }
}

fn routes(family: Family, count: u32, hop: Hop) -> impl Iterator<Item = Route> {
    (0..count).map(move |number| {
        let (destination, prefix_len) = network(family, number);
        Route::new(destination, prefix_len, Hops::One(Some(hop)))
    })
}
