//! What the kernel tells of changes, and what it does in silence: the tables in the documentation of
//! `netlink::kernel` are made of this. Needs root.

use crate::common;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::common::ip::{Witness, has_carrier, ip, lab};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Event, Family, Hop, NextHopKind, Route};

/// Runs commands of ip(8) one by one, and compares the announced routes and next-hop objects, except for
/// those that the kernel made by itself. `? 4 PREFIX` and `? 6 PREFIX` show the main table at that point; `carrier
/// lost`, `back` and `up` wait until that is announced for v0.
fn check(steps: &[(&str, &[&str])]) {
    let mut netlink = Netlink::open().expect("netlink is always there");
    let names: HashMap<_, _> = netlink
        .dump_links()
        .expect("root may")
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect();
    let mut witness = Witness::start();
    for &(command, expected) in steps {
        let lines: Vec<_> = match command.split_once(' ') {
            Some(("?", asked)) => present(&mut netlink, &names, asked),
            Some(("carrier", change)) => {
                match change {
                    "lost" => drop(ip("link set v1 down")),
                    "back" => drop(ip("link set v1 up")),
                    _ => drop(ip("link set v0 up")),
                }
                let is_lost = change == "lost";
                let told = witness.until(|event| has_carrier(event, "v0") == Some(!is_lost));
                told.iter().chain(&witness.told()).filter_map(|event| line(&names, event)).collect()
            }
            Some(("sysctl", setting)) => {
                let (name, value) = setting.split_once('=').expect("a name and a value");
                manylane_io::sysctl::set(name, value).expect("root may");
                Vec::new()
            }
            _ => {
                ip(command);
                witness.told().iter().filter_map(|event| line(&names, event)).collect()
            }
        };
        assert_eq!(lines, expected, "{command}");
    }
}

fn present(netlink: &mut Netlink, names: &HashMap<u32, String>, asked: &str) -> Vec<String> {
    let (family, prefix) = asked.split_once(' ').expect("a family and a prefix");
    let family = if family == "4" { Family::V4 } else { Family::V6 };
    let mut lines = Vec::new();
    let each = |route: Route| {
        if format!("{}/{}", route.destination, route.prefix_len) == prefix {
            lines.push(describe_route(names, &route));
        }
    };
    netlink.dump_routes(family, Some(254), each).expect("root may");
    lines
}

/// An event in short. Announcements of links depend on when the kernel checks their carrier.
fn line(names: &HashMap<u32, String>, event: &Event) -> Option<String> {
    let of = |route: &Route| {
        let network = format!("{}/{}", route.destination, route.prefix_len);
        let by_hand = route.protocol != libc::RTPROT_KERNEL;
        by_hand.then(|| format!("{network} {}", describe_route(names, route)).trim_end().to_owned())
    };
    Some(match event {
        Event::Route { route, is_replaced, is_appended } => {
            let how = match (is_replaced, is_appended) {
                (true, false) => "replace",
                (false, true) => "append",
                (false, false) => "add",
                (true, true) => panic!("both: {event:?}"),
            };
            format!("{how} {}", of(route)?)
        }
        Event::RouteGone(route) => format!("gone {}", of(route)?),
        Event::NextHop(object) => match &object.kind {
            NextHopKind::Group { members, .. } => format!("object {} {members:?}", object.id),
            NextHopKind::Blackhole => format!("object {} blackhole", object.id),
            NextHopKind::Via(hop) => format!("object {} {}", object.id, describe_hop(names, hop)),
            NextHopKind::Fdb => format!("object {} fdb", object.id),
        },
        Event::NextHopGone(id) => format!("object {id} gone"),
        Event::LinkGone(index) if names[index] == "v0" => "v0 gone".to_owned(),
        _ => return None,
    })
}

fn describe_route(names: &HashMap<u32, String>, route: &Route) -> String {
    let mut words = Vec::new();
    if ![0, 1024].contains(&route.priority) {
        words.push(format!("metric {}", route.priority));
    }
    match route.kind {
        libc::RTN_UNICAST => {}
        libc::RTN_BLACKHOLE => words.push("blackhole".to_owned()),
        kind => words.push(format!("type {kind}")),
    }
    words.extend(route.next_hop.map(|id| format!("id {id}")));
    words.extend(route.hops.as_slice().iter().map(|hop| describe_hop(names, hop)));
    words.join(" ")
}

fn describe_hop(names: &HashMap<u32, String>, hop: &Hop) -> String {
    let gateway = hop.gateway.map_or_else(|| "link".to_owned(), |gateway| gateway.to_string());
    let dead = if hop.flags & 1 != 0 { "!" } else { "" };
    let weight = if hop.weight == 1 { String::new() } else { format!("*{}", hop.weight) };
    format!("{dead}{gateway}@{}{weight}", names[&hop.link])
}

#[test]
fn ipv4_routes_of_one_prefix_and_metric_are_a_list() {
    let Some(host) = lab("list4") else { return };
    host.run(|| {
        check(&[
            ("route add 192.0.2.0/24 via 10.0.0.2", &["add 192.0.2.0/24 10.0.0.2@v0"]),
            ("route append 192.0.2.0/24 via 10.0.0.4", &["append 192.0.2.0/24 10.0.0.4@v0"]),
            // In front of the others, and nothing says so.
            ("route prepend 192.0.2.0/24 via 10.0.0.5", &["add 192.0.2.0/24 10.0.0.5@v0"]),
            ("? 4 192.0.2.0/24", &["10.0.0.5@v0", "10.0.0.2@v0", "10.0.0.4@v0"]),
            ("route replace 192.0.2.0/24 via 10.0.0.6", &["replace 192.0.2.0/24 10.0.0.6@v0"]),
            ("? 4 192.0.2.0/24", &["10.0.0.6@v0", "10.0.0.2@v0", "10.0.0.4@v0"]),
            ("route del 192.0.2.0/24 via 10.0.0.2", &["gone 192.0.2.0/24 10.0.0.2@v0"]),
            (
                "route add 192.0.2.0/24 via 10.0.0.7 metric 5",
                &["add 192.0.2.0/24 metric 5 10.0.0.7@v0"],
            ),
            ("route replace 192.0.3.0/24 via 10.0.0.6", &["add 192.0.3.0/24 10.0.0.6@v0"]),
            ("route change 192.0.3.0/24 via 10.0.0.7", &["replace 192.0.3.0/24 10.0.0.7@v0"]),
            (
                "route replace 192.0.3.0/24 nexthop via 10.0.0.2 nexthop via 10.0.1.2 weight 4",
                &["replace 192.0.3.0/24 10.0.0.2@v0 10.0.1.2@w0*4"],
            ),
            ("route replace blackhole 192.0.3.0/24", &["replace 192.0.3.0/24 blackhole"]),
        ])
    });
}

#[test]
fn ipv6_next_hops_via_routers_become_one_route() {
    let Some(host) = lab("list6") else { return };
    host.run(|| {
        check(&[
            ("-6 route add 2001:db8::/32 via fd00::2", &["add 2001:db8::/32 fd00::2@v0"]),
            // All ways of the route, the new one first. The table has another order.
            (
                "-6 route append 2001:db8::/32 via fd00::3",
                &["append 2001:db8::/32 fd00::3@v0 fd00::2@v0"],
            ),
            (
                "-6 route append 2001:db8::/32 via fd01::2",
                &["append 2001:db8::/32 fd01::2@w0 fd00::2@v0 fd00::3@v0"],
            ),
            ("? 6 2001:db8::/32", &["fd00::2@v0 fd00::3@v0 fd01::2@w0"]),
            // One next hop is removed: only that one is announced.
            ("-6 route del 2001:db8::/32 via fd00::3", &["gone 2001:db8::/32 fd00::3@v0"]),
            ("? 6 2001:db8::/32", &["fd00::2@v0 fd01::2@w0"]),
            (
                "-6 route append 2001:db8::/32 nexthop via fd00::4 nexthop via fd01::4",
                &["append 2001:db8::/32 fd00::2@v0 fd01::2@w0 fd00::4@v0 fd01::4@w0"],
            ),
            // One event for each next hop that was to be removed.
            (
                "-6 route del 2001:db8::/32 nexthop via fd00::2 nexthop via fd01::2",
                &["gone 2001:db8::/32 fd00::2@v0", "gone 2001:db8::/32 fd01::2@w0"],
            ),
            // All of them go.
            ("-6 route replace 2001:db8::/32 via fd00::9", &["replace 2001:db8::/32 fd00::9@v0"]),
            ("? 6 2001:db8::/32", &["fd00::9@v0"]),
            (
                "-6 route replace 2001:db8::/32 nexthop via fd00::2 nexthop via fd01::2",
                &["replace 2001:db8::/32 fd00::2@v0 fd01::2@w0"],
            ),
            ("-6 route del 2001:db8::/32", &["gone 2001:db8::/32 fd00::2@v0 fd01::2@w0"]),
        ])
    });
}

#[test]
fn ipv6_routes_without_routers_stay_apart_and_are_replaced_by_their_like() {
    let Some(host) = lab("apart6") else { return };
    host.run(|| {
        check(&[
            ("-6 route add 2001:db8::/32 dev v0", &["add 2001:db8::/32 link@v0"]),
            ("-6 route append 2001:db8::/32 dev w0", &["append 2001:db8::/32 link@w0"]),
            ("-6 route append 2001:db8::/32 via fd00::2", &["append 2001:db8::/32 fd00::2@v0"]),
            (
                "-6 route append 2001:db8::/32 via fd00::3",
                &["append 2001:db8::/32 fd00::3@v0 fd00::2@v0"],
            ),
            // Not the first of them, but the first with a router, and its siblings.
            ("-6 route replace 2001:db8::/32 via fd00::4", &["replace 2001:db8::/32 fd00::4@v0"]),
            ("? 6 2001:db8::/32", &["link@v0", "link@w0", "fd00::4@v0"]),
            ("-6 route replace 2001:db8::/32 dev v1", &["replace 2001:db8::/32 link@v1"]),
            ("? 6 2001:db8::/32", &["link@v1", "link@w0", "fd00::4@v0"]),
            // Without a route of its kind, the first of the other kind.
            ("-6 route add 2001:db8:1::/48 dev v0", &["add 2001:db8:1::/48 link@v0"]),
            (
                "-6 route replace 2001:db8:1::/48 via fd00::2",
                &["replace 2001:db8:1::/48 fd00::2@v0"],
            ),
            ("? 6 2001:db8:1::/48", &["fd00::2@v0"]),
            (
                "-6 route append 2001:db8:1::/48 via fd01::2",
                &["append 2001:db8:1::/48 fd01::2@w0 fd00::2@v0"],
            ),
            ("-6 route replace blackhole 2001:db8:1::/48", &["replace 2001:db8:1::/48 blackhole"]),
            ("? 6 2001:db8:1::/48", &["blackhole"]),
            // A next-hop object is not a router here.
            ("nexthop add id 6 via fd00::2 dev v0", &["object 6 fd00::2@v0"]),
            ("-6 route add 2001:db8:2::/48 via fd00::3", &["add 2001:db8:2::/48 fd00::3@v0"]),
            ("-6 route append 2001:db8:2::/48 nhid 6", &["append 2001:db8:2::/48 id 6 fd00::2@v0"]),
            ("? 6 2001:db8:2::/48", &["fd00::3@v0", "id 6 fd00::2@v0"]),
        ])
    });
}

#[test]
fn ipv4_routes_vanish_and_partly_return_with_a_link_silently() {
    let Some(host) = lab("down4") else { return };
    host.run(|| {
        check(&[
            ("route add 192.0.2.0/24 via 10.0.0.2", &["add 192.0.2.0/24 10.0.0.2@v0"]),
            (
                "route add 192.0.3.0/24 nexthop via 10.0.0.2 nexthop via 10.0.1.2",
                &["add 192.0.3.0/24 10.0.0.2@v0 10.0.1.2@w0"],
            ),
            (
                "route add 192.0.4.0/24 nexthop via 10.0.0.2 nexthop via 10.0.0.3",
                &["add 192.0.4.0/24 10.0.0.2@v0 10.0.0.3@v0"],
            ),
            ("carrier lost", &[]),
            ("? 4 192.0.2.0/24", &["10.0.0.2@v0"]),
            ("carrier back", &[]),
            ("link set v0 down", &[]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["!10.0.0.2@v0 10.0.1.2@w0"]),
            ("? 4 192.0.4.0/24", &[]),
            ("link set v0 up", &[]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["10.0.0.2@v0 10.0.1.2@w0"]),
            ("? 4 192.0.4.0/24", &[]),
            // The last address of a link is as good as the link.
            ("route add 192.0.2.0/24 via 10.0.0.2", &["add 192.0.2.0/24 10.0.0.2@v0"]),
            ("addr del 10.0.0.1/24 dev v0", &[]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["!10.0.0.2@v0 10.0.1.2@w0"]),
            ("addr add 10.0.0.1/24 dev v0", &[]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["10.0.0.2@v0 10.0.1.2@w0"]),
            // Removing a link removes a route with one next hop on it.
            ("link del v0", &["v0 gone"]),
            ("? 4 192.0.3.0/24", &[]),
        ])
    });
}

#[test]
fn ipv6_announces_routes_removed_with_a_link_but_not_dead_next_hops() {
    let Some(host) = lab("down6") else { return };
    host.run(|| {
        check(&[
            ("-6 route add 2001:db8:2::/48 via fd00::2", &["add 2001:db8:2::/48 fd00::2@v0"]),
            (
                "-6 route add 2001:db8:3::/48 nexthop via fd00::2 nexthop via fd01::2",
                &["add 2001:db8:3::/48 fd00::2@v0 fd01::2@w0"],
            ),
            (
                "-6 route add 2001:db8:4::/48 nexthop via fd00::2 nexthop via fd00::3",
                &["add 2001:db8:4::/48 fd00::2@v0 fd00::3@v0"],
            ),
            ("carrier lost", &[]),
            ("carrier back", &[]),
            // A route that loses all next hops is announced hop by hop.
            (
                "link set v0 down",
                &[
                    "gone 2001:db8:2::/48 fd00::2@v0",
                    "gone 2001:db8:4::/48 fd00::2@v0",
                    "gone 2001:db8:4::/48 fd00::3@v0",
                ],
            ),
            ("? 6 2001:db8:3::/48", &["!fd00::2@v0 fd01::2@w0"]),
            // Not before it has a carrier.
            ("carrier up", &[]),
            ("? 6 2001:db8:3::/48", &["fd00::2@v0 fd01::2@w0"]),
            // One way of a route, with the flags that it had.
            ("link del v0", &["gone 2001:db8:3::/48 !fd00::2@v0", "v0 gone"]),
            ("? 6 2001:db8:3::/48", &["fd01::2@w0"]),
            // And a setting makes it silent.
            ("sysctl net/ipv6/route/skip_notify_on_dev_down=1", &[]),
            ("link set w0 down", &[]),
            ("? 6 2001:db8:3::/48", &[]),
        ])
    });
}

#[test]
fn routes_are_announced_again_when_their_object_changes_unless_disabled() {
    let Some(host) = lab("objects") else { return };
    host.run(|| {
        check(&[
            ("nexthop add id 1 via 10.0.0.2 dev v0", &["object 1 10.0.0.2@v0"]),
            ("nexthop add id 2 via 10.0.1.2 dev w0", &["object 2 10.0.1.2@w0"]),
            ("nexthop add id 3 group 1/2,3", &["object 3 [(1, 1), (2, 3)]"]),
            ("nexthop add id 6 via fd00::2 dev v0", &["object 6 fd00::2@v0"]),
            ("route add 192.0.2.0/24 nhid 1", &["add 192.0.2.0/24 id 1 10.0.0.2@v0"]),
            ("route add 192.0.3.0/24 nhid 3", &["add 192.0.3.0/24 id 3 10.0.0.2@v0 10.0.1.2@w0*3"]),
            ("route add 192.0.6.0/24 nhid 6", &["add 192.0.6.0/24 id 6 fd00::2@v0"]),
            ("-6 route add 2001:db8::/32 nhid 6", &["add 2001:db8::/32 id 6 fd00::2@v0"]),
            // The object first, then the routes; those of its groups, too.
            (
                "nexthop replace id 1 via 10.0.0.9 dev v0",
                &[
                    "object 1 10.0.0.9@v0",
                    "replace 192.0.2.0/24 id 1 10.0.0.9@v0",
                    "replace 192.0.3.0/24 id 3 10.0.0.9@v0 10.0.1.2@w0*3",
                ],
            ),
            (
                "nexthop replace id 6 via fd00::9 dev v0",
                &[
                    "object 6 fd00::9@v0",
                    "replace 192.0.6.0/24 id 6 fd00::9@v0",
                    "replace 2001:db8::/32 id 6 fd00::9@v0",
                ],
            ),
            (
                "nexthop replace id 3 group 1,4/2,3",
                &[
                    "object 3 [(1, 4), (2, 3)]",
                    "replace 192.0.3.0/24 id 3 10.0.0.9@v0*4 10.0.1.2@w0*3",
                ],
            ),
            // This `replace` does not mean the first of its list.
            ("route prepend 192.0.2.0/24 via 10.0.1.9", &["add 192.0.2.0/24 10.0.1.9@w0"]),
            (
                "nexthop replace id 1 via 10.0.0.8 dev v0",
                &[
                    "object 1 10.0.0.8@v0",
                    "replace 192.0.2.0/24 id 1 10.0.0.8@v0",
                    "replace 192.0.3.0/24 id 3 10.0.0.8@v0*4 10.0.1.2@w0*3",
                ],
            ),
            ("? 4 192.0.2.0/24", &["10.0.1.9@w0", "id 1 10.0.0.8@v0"]),
            ("sysctl net/ipv4/nexthop_compat_mode=0", &[]),
            ("nexthop replace id 1 via 10.0.0.7 dev v0", &["object 1 10.0.0.7@v0"]),
            ("nexthop replace id 6 via fd00::7 dev v0", &["object 6 fd00::7@v0"]),
            ("route add 192.0.7.0/24 nhid 1", &["add 192.0.7.0/24 id 1"]),
            ("route add 192.0.8.0/24 nhid 3", &["add 192.0.8.0/24 id 3"]),
            ("nexthop add id 9 via 10.0.0.2 dev v0", &["object 9 10.0.0.2@v0"]),
            ("nexthop replace id 9 blackhole", &["object 9 blackhole"]),
            // The route looks like a blackhole, and is not one any more with the next change.
            ("route add 192.0.9.0/24 nhid 9", &["add 192.0.9.0/24 blackhole id 9"]),
            ("nexthop replace id 9 via 10.0.0.3 dev v0", &["object 9 10.0.0.3@v0"]),
            ("? 4 192.0.9.0/24", &["id 9"]),
        ])
    });
}

#[test]
fn next_hop_objects_go_by_hand_with_an_event_and_with_their_link_without() {
    let Some(host) = lab("gone") else { return };
    host.run(|| {
        check(&[
            ("nexthop add id 1 via 10.0.0.2 dev v0", &["object 1 10.0.0.2@v0"]),
            ("nexthop add id 2 via 10.0.1.2 dev w0", &["object 2 10.0.1.2@w0"]),
            ("nexthop add id 3 group 1/2", &["object 3 [(1, 1), (2, 1)]"]),
            ("route add 192.0.2.0/24 nhid 1", &["add 192.0.2.0/24 id 1 10.0.0.2@v0"]),
            ("route add 192.0.3.0/24 nhid 3", &["add 192.0.3.0/24 id 3 10.0.0.2@v0 10.0.1.2@w0"]),
            // Its IPv4 routes are removed silently; groups are announced, their routes are not.
            ("nexthop del id 1", &["object 1 gone", "object 3 [(2, 1)]"]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["id 3 10.0.1.2@w0"]),
            ("nexthop del id 2", &["object 2 gone", "object 3 gone"]),
            ("? 4 192.0.3.0/24", &[]),
            // IPv6 says it, and after the object.
            ("nexthop add id 6 via fd00::2 dev v0", &["object 6 fd00::2@v0"]),
            ("nexthop add id 8 group 6", &["object 8 [(6, 1)]"]),
            ("-6 route add 2001:db8:6::/48 nhid 6", &["add 2001:db8:6::/48 id 6 fd00::2@v0"]),
            ("-6 route add 2001:db8:8::/48 nhid 8", &["add 2001:db8:8::/48 id 8 fd00::2@v0"]),
            (
                "nexthop del id 6",
                &[
                    "object 6 gone",
                    "gone 2001:db8:6::/48 id 6 fd00::2@v0",
                    "object 8 gone",
                    "gone 2001:db8:8::/48 id 8 fd00::2@v0",
                ],
            ),
            // With a carrier goes the object, without a word, and out of its group, too.
            ("nexthop add id 1 via 10.0.0.2 dev v0", &["object 1 10.0.0.2@v0"]),
            ("nexthop add id 2 via 10.0.1.2 dev w0", &["object 2 10.0.1.2@w0"]),
            ("nexthop add id 3 group 1/2", &["object 3 [(1, 1), (2, 1)]"]),
            ("nexthop add id 6 via fd00::2 dev v0", &["object 6 fd00::2@v0"]),
            ("route add 192.0.2.0/24 nhid 1", &["add 192.0.2.0/24 id 1 10.0.0.2@v0"]),
            ("route add 192.0.3.0/24 nhid 3", &["add 192.0.3.0/24 id 3 10.0.0.2@v0 10.0.1.2@w0"]),
            ("-6 route add 2001:db8:6::/48 nhid 6", &["add 2001:db8:6::/48 id 6 fd00::2@v0"]),
            ("carrier lost", &["gone 2001:db8:6::/48 id 6 fd00::2@v0"]),
            ("? 4 192.0.2.0/24", &[]),
            ("? 4 192.0.3.0/24", &["id 3 10.0.1.2@w0"]),
        ]);
        let objects = Netlink::open().and_then(|mut netlink| netlink.dump_next_hops());
        let objects = objects.expect("root may");
        assert_eq!(objects.iter().map(|object| object.id).collect::<Vec<_>>(), [2, 3]);
        assert!(
            matches!(&objects[1].kind, NextHopKind::Group { members, .. } if *members == [(2, 1)])
        );
    });
}

/// One event of each kind that the routes' tests do not see.
#[test]
fn every_kind_of_change_is_announced() {
    let Some(host) = lab("kinds") else { return };
    host.run(|| {
        let mut witness = Witness::start();
        let told = |witness: &mut Witness, command: &str| {
            ip(command);
            witness.told()
        };
        let ip = |text: &str| text.parse::<IpAddr>().expect("the test wrote it");

        let events = told(&mut witness, "addr add 10.7.0.1/24 dev v0");
        assert!(matches!(&events[0], Event::Address(address) if address.address == ip("10.7.0.1")));
        let events = told(&mut witness, "addr del 10.7.0.1/24 dev v0");
        assert!(matches!(&events[0], Event::AddressGone(address) if address.prefix_len == 24));

        let events = told(&mut witness, "rule add from 10.5.0.0/16 table 500 priority 7");
        let [Event::Rule(added)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((added.priority, added.table), (7, 500));
        let added = added.clone();
        let events = told(&mut witness, "rule del priority 7");
        assert_eq!(events, [Event::RuleGone(added)]);

        let neighbour = "neigh add fd00::9 lladdr 02:00:00:00:00:09 dev v0 nud permanent";
        let events = told(&mut witness, neighbour);
        let [Event::Neighbour(added)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((added.address, added.mac), (ip("fd00::9"), Some([2, 0, 0, 0, 0, 9])));
        let events = told(&mut witness, "neigh del fd00::9 dev v0");
        let is_gone = |event: &Event|
             matches!(event, Event::NeighbourGone(gone) if gone.address == ip("fd00::9"));
        assert!(events.last().is_some_and(is_gone), "{events:?}");

        let events = told(&mut witness, "link set v0 mtu 1400");
        let is_change = |event: &Event| matches!(event, Event::Link(link) if link.mtu == 1400);
        assert!(events.iter().any(is_change), "{events:?}");

        for name in ["net/ipv4/conf/v0/forwarding", "net/ipv6/conf/v0/forwarding"] {
            manylane_io::sysctl::set(name, "1").expect("root may");
            let is_change = |event: &Event| {
                matches!(event, Event::Netconf(netconf)
                    if netconf.link > 0 && netconf.forwarding == Some(true))
            };
            let events = witness.told();
            assert!(events.iter().any(is_change), "{events:?}");
        }
        manylane_io::sysctl::set("net/ipv4/conf/all/rp_filter", "2").expect("root may");
        let events = witness.told();
        let [Event::Netconf(netconf)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((netconf.link, netconf.forwarding, netconf.rp_filter), (-1, None, Some(2)));
    });
}

#[test]
fn a_resolved_neighbour_is_announced_and_a_permanent_one_is_left_alone() {
    let names = ["asking", "asked"];
    let [Some(asking), Some(asked)] = names.map(common::host) else { return };
    [&asking, &asked].into_iter().for_each(common::skip_duplicate_detection);
    let end = manylane_io::netlink::LinkEnd::new;
    common::connect(&asking, end("a0"), &asked, end("b0"));
    for (host, name, v4, v6) in
        [(&asking, "a0", "10.0.0.1", "fd00::1"), (&asked, "b0", "10.0.0.2", "fd00::2")]
    {
        common::address(host, name, v4, 24);
        common::address(host, name, v6, 64);
    }
    asking.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        let link = netlink.link("a0").expect("it is there").index;
        let mut witness = Witness::start();
        for address in ["10.0.0.2", "fd00::2"] {
            let address = address.parse().expect("the test wrote it");
            netlink.resolve_neighbour(link, address).expect("root may");
            witness.until(|event| {
                matches!(event, Event::Neighbour(neighbour) if neighbour.address == address
                    && neighbour.mac.is_some() && neighbour.state == libc::NUD_REACHABLE)
            });
            netlink.resolve_neighbour(link, address).expect("it is known, which does no harm");
        }
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev a0 nud permanent");
        let address: IpAddr = "10.0.0.9".parse().expect("the test wrote it");
        netlink.resolve_neighbour(link, address).expect("nothing is done");
        let known = netlink.dump_neighbours().expect("root may");
        let permanent = known.iter().find(|neighbour| neighbour.address == address);
        let permanent = permanent.expect("it was just made");
        assert_eq!(
            (permanent.state, permanent.mac),
            (libc::NUD_PERMANENT, Some([2, 0, 0, 0, 0, 9]))
        );
        let wrong = netlink.resolve_neighbour(9999, address).expect_err("there is no such link");
        assert!(
            wrong.to_string().starts_with("cannot resolve the neighbour 10.0.0.9 on link 9999")
        );
    });
}
