//! Every table of the kernel's routing is read as ip(8) shows it. Needs root.

use crate::common;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::common::ip::{ip, ip_json, lab, try_ip};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Family, Hop, NextHopKind, Route};
use serde_json::Value;

fn netlink() -> Netlink {
    Netlink::open().expect("netlink is always there")
}

#[test]
fn links_are_read() {
    let Some(host) = lab("links") else { return };
    host.run(|| {
        ip("link set v0 mtu 1400 address 02:00:00:00:00:05");
        for optional in ["link add br0 type bridge", "link add mv0 link w0 type macvlan"] {
            if let Err(complaint) = try_ip(optional) {
                eprintln!("this kernel does not {optional}: {complaint}");
            }
        }
        let _ = try_ip("link set v1 master br0");
        let links = netlink().dump_links().expect("root may");
        let names: HashMap<_, _> =
            links.iter().map(|link| (link.name.as_str(), link.index)).collect();
        let number = |name: &Value| name.as_str().map(|name| names[name]);
        let shown = ip_json("link show");
        assert_eq!(links.len(), shown.len());
        for (link, shown) in links.iter().zip(&shown) {
            let info = |key: &str| shown["linkinfo"][key].as_str();
            assert_eq!(Some(u64::from(link.index)), shown["ifindex"].as_u64());
            assert_eq!(Some(link.name.as_str()), shown["ifname"].as_str());
            assert_eq!(link.kind.as_deref(), info("info_kind"), "{}", link.name);
            assert_eq!(link.member_kind.as_deref(), info("info_slave_kind"), "{}", link.name);
            assert_eq!(Some(u64::from(link.mtu)), shown["mtu"].as_u64());
            assert_eq!(Some(link.qdisc.as_str()), shown["qdisc"].as_str());
            assert_eq!(link.lower, number(&shown["link"]), "{}", link.name);
            assert_eq!(link.master, number(&shown["master"]), "{}", link.name);
            assert!(!link.lower_is_elsewhere);
            assert_eq!(link.vlan, None);
            let mac = link.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
            assert_eq!(mac.as_deref(), shown["address"].as_str());
            assert_eq!(Some(u64::from(link.queues.0)), shown["num_rx_queues"].as_u64());
            assert_eq!(Some(u64::from(link.queues.1)), shown["num_tx_queues"].as_u64());
            let operstate = ["UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING"];
            let operstate = operstate.into_iter().chain(["DORMANT", "UP"]);
            assert_eq!(operstate.clone().nth(link.operstate.into()), shown["operstate"].as_str());
            let flags = shown["flags"].as_array().expect("a list");
            let has = |name: &str| flags.iter().any(|flag| flag == name);
            assert_eq!(link.flags & libc::IFF_UP as u32 != 0, has("UP"));
            assert_eq!(link.flags & libc::IFF_LOWER_UP as u32 != 0, has("LOWER_UP"));
        }
        assert_eq!(links.iter().filter(|link| link.mtu == 1400).count(), 1);
    });
}

/// A link whose other end is in another namespace says so: the number is of that one.
#[test]
fn a_peer_in_another_namespace_is_elsewhere() {
    let (Some(here), Some(there)) = (common::host("here"), common::host("there")) else { return };
    let end = manylane_io::netlink::LinkEnd::new;
    common::connect(&here, end("h0"), &there, end("t0"));
    here.run(|| {
        let links = netlink().dump_links().expect("root may");
        let link = links.iter().find(|link| link.name == "h0").expect("it was just made");
        assert!(link.lower_is_elsewhere && link.lower.is_some(), "{link:?}");
    });
}

#[test]
fn addresses_are_read() {
    let Some(host) = lab("addresses") else { return };
    host.run(|| {
        ip("addr add 10.9.0.1 peer 10.9.0.2/30 dev v0");
        ip("addr add fd09::1 peer fd09::2/126 dev w0 nodad");
        let mut read: Vec<_> = netlink()
            .dump_addresses()
            .expect("root may")
            .into_iter()
            .map(|address| (address.link, address.address, address.prefix_len, address.scope))
            .collect();
        let mut expected = Vec::new();
        for link in ip_json("-N addr show") {
            for address in link["addr_info"].as_array().expect("a list") {
                expected.push((
                    number(&link["ifindex"]) as u32,
                    address["local"].as_str().expect("text").parse::<IpAddr>().expect("one"),
                    number(&address["prefixlen"]) as u8,
                    number(&address["scope"]) as u8,
                ));
            }
        }
        read.sort();
        expected.sort();
        assert_eq!(read, expected);
        assert_eq!(read.len(), 8);
    });
}

/// A number, which `ip -N -j` has as text.
fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => {
            let digits = text.trim_start_matches("0x");
            let radix = if digits.len() < text.len() { 16 } else { 10 };
            u64::from_str_radix(digits, radix).expect("a number")
        }
        Value::Null => 0,
        value => value.as_u64().expect("a number"),
    }
}

/// What is compared of a route, in words.
fn said(route: &Route, names: &HashMap<u32, String>) -> String {
    let is_host = route.prefix_len == if route.destination.is_ipv4() { 32 } else { 128 };
    let network = match (route.prefix_len, is_host) {
        (0, _) => "default".into(),
        (_, true) => route.destination.to_string(),
        (length, false) => format!("{}/{length}", route.destination),
    };
    let mut said = format!("{network} type {} table {}", route.kind, route.table);
    said += &format!(" proto {} scope {} metric {}", route.protocol, route.scope, route.priority);
    said += &format!(" tos {} mtu {:?} nhid {:?}", route.tos, route.mtu, route.next_hop);
    if let Some((from, length)) = route.source {
        said += &format!(" from {from}/{length}");
    }
    for hop in route.hops.as_slice() {
        let name = names.get(&hop.link).map_or("-", String::as_str);
        said += &format!(" [{:?} dev {name} weight {}", hop.gateway, hop.weight);
        said += &format!(" onlink {}]", hop.flags & 4 != 0);
    }
    said
}

/// A route as `ip -j -N route` shows it, which does not repeat the requested table.
fn shown(route: &Value, asked: Option<u32>) -> String {
    let kind = number(&route["type"]);
    let mut said = format!("{} type {kind}", route["dst"].as_str().expect("text"));
    let mtu = route["metrics"].as_array().and_then(|list| list[0]["mtu"].as_u64());
    let table = asked.map_or_else(|| number(&route["table"]), u64::from);
    said += &format!(" table {table} proto {}", number(&route["protocol"]));
    said += &format!(" scope {} metric {}", number(&route["scope"]), number(&route["metric"]));
    said +=
        &format!(" tos {} mtu {mtu:?} nhid {:?}", number(&route["tos"]), route["nhid"].as_u64());
    if let Some(from) = route["from"].as_str() {
        said += &format!(" from {from}");
    }
    let leads_nowhere = [6, 7, 8, 9].contains(&kind);
    let alone = [route.clone()];
    let hops = match route["nexthops"].as_array() {
        Some(hops) => hops.as_slice(),
        None if leads_nowhere => &[],
        None => &alone,
    };
    for hop in hops {
        let gateway = hop["gateway"].as_str().or(hop["via"]["host"].as_str());
        let gateway = gateway.map(|gateway| gateway.parse::<IpAddr>().expect("an address"));
        let name = hop["dev"].as_str().unwrap_or("-");
        let is_onlink = hop["flags"].as_array().is_some_and(|list| list.contains(&"onlink".into()));
        let weight = hop["weight"].as_u64().unwrap_or(1);
        said += &format!(" [{gateway:?} dev {name} weight {weight} onlink {is_onlink}]");
    }
    said
}

#[test]
fn routes_are_read() {
    let Some(host) = lab("routes") else { return };
    host.run(|| {
        ip("nexthop add id 1 via 10.0.0.2 dev v0");
        ip("nexthop add id 2 via 10.0.1.2 dev w0");
        ip("nexthop add id 3 group 1/2,3");
        ip("nexthop add id 6 via fd00::2 dev v0");
        for route in [
            "default via 10.0.0.2",
            "default via 10.0.1.2 metric 7",
            "192.0.2.0/24 via inet6 fd01::2 dev w0",
            "192.0.3.0/24 nexthop via inet6 fd01::2 dev w0 weight 3 nexthop via 10.0.1.2 onlink dev w0",
            "192.0.4.0/24 via 10.0.1.2 mtu 1300 metric 5 tos 0x10",
            "throw 192.0.5.0/24 table 5000",
            "blackhole 192.0.6.0/24",
            "unreachable 192.0.7.1",
            "10.44.0.0/16 nhid 3",
            "10.45.0.0/16 nhid 6",
            "198.51.100.0/24 dev v0 proto 186",
        ] {
            ip(&format!("-4 route add {route}"));
        }
        for route in [
            "default via fd00::2",
            "2001:db8:1::/48 from fd05::/16 via fd01::2",
            "prohibit 2001:db8:2::/48",
            "2001:db8:3::/48 nexthop via fd00::2 weight 200 nexthop via fd01::2",
            "2001:db8:4::/48 nhid 6 table 5001",
            "2001:db8:5::/48 dev v0 mtu 1300",
        ] {
            ip(&format!("-6 route add {route}"));
        }
        let mut netlink = netlink();
        let links = netlink.dump_links().expect("root may").into_iter();
        let names = links.map(|link| (link.index, link.name)).collect();
        for (family, option) in [(Family::V4, "-4"), (Family::V6, "-6")] {
            for (table, word) in [(None, "all"), (Some(254), "main"), (Some(5000), "5000")] {
                let mut read = Vec::new();
                let count = netlink
                    .dump_routes(family, table, |route| {
                        assert!(!route.hops.as_slice().iter().any(|hop| hop.is_encapsulated));
                        assert!(!route.is_expiring);
                        read.push(said(&route, &names));
                    })
                    .expect("root may");
                // For a table without routes ip(8) complains, or is silent.
                let list = try_ip(&format!("-j -d -N {option} route show table {word}"));
                let list: Vec<Value> = list.ok().map_or_else(Vec::new, |list| {
                    serde_json::from_str(&list).expect("ip(8) prints JSON")
                });
                let mut expected: Vec<_> = list.iter().map(|route| shown(route, table)).collect();
                read.sort();
                expected.sort();
                assert_eq!(read, expected);
                assert_eq!(count, read.len() as u64);
                assert!(word != "all" || count > 10);
            }
        }
    });
}

/// `ip -j` shows these with the same key twice, so the test says itself what is true.
#[test]
fn a_route_with_encapsulation_is_one_for_the_kernel() {
    let Some(host) = lab("encap") else { return };
    host.run(|| {
        let mut tried = 0;
        for (family, route) in [
            (Family::V4, "192.0.2.0/24 encap ip id 5 dst 10.0.0.3 dev w0"),
            (Family::V4, "192.0.2.0/24 encap mpls 100 via 10.0.1.2"),
            (Family::V6, "2001:db8::/48 encap seg6 mode encap segs fd01::9 dev w0"),
            (Family::V6, "2001:db8::/48 encap seg6local action End dev w0"),
            (
                Family::V6,
                "2001:db8::/48 nexthop via fd01::2 encap ip6 id 5 dst fd00::3 nexthop via fd00::2",
            ),
        ] {
            let option = if family == Family::V4 { "-4" } else { "-6" };
            if let Err(complaint) = try_ip(&format!("{option} route add {route}")) {
                eprintln!("this kernel has no {route}: {complaint}");
                continue;
            }
            tried += 1;
            let mut hops = Vec::new();
            netlink()
                .dump_routes(family, Some(254), |route| {
                    if route.prefix_len == if family == Family::V4 { 24 } else { 48 }
                        && route.protocol == libc::RTPROT_BOOT
                    {
                        hops.extend_from_slice(route.hops.as_slice());
                    }
                })
                .expect("root may");
            assert!(hops[0].is_encapsulated, "{route}: {hops:?}");
            assert!(!hops.iter().skip(1).any(|hop| hop.is_encapsulated), "{route}: {hops:?}");
            ip(&format!("{option} route flush proto boot"));
        }
        assert!(tried > 0 || std::env::var("CI").is_err(), "no encapsulation at all");
    });
}

#[test]
fn an_expiring_route_is_marked() {
    let Some(host) = lab("expires") else { return };
    host.run(|| {
        ip("-6 route add 2001:db8:1::/48 via fd00::2 expires 1000");
        ip("-6 route add 2001:db8:2::/48 via fd00::2");
        let mut read = Vec::new();
        let each = |route: Route| read.push((route.prefix_len, route.is_expiring));
        netlink().dump_routes(Family::V6, Some(254), each).expect("root may");
        read.retain(|&(prefix_len, _)| prefix_len == 48);
        assert_eq!(read, [(48, true), (48, false)]);
    });
}

#[test]
fn next_hop_objects_are_read() {
    let Some(host) = lab("objects") else { return };
    host.run(|| {
        for object in [
            "id 1 via 10.0.0.2 dev v0",
            "id 2 via 10.0.1.2 dev w0 protocol 186",
            "id 3 group 1/2,3",
            "id 4 group 1,200/2 type resilient buckets 8",
            "id 5 blackhole",
            "id 6 via fd00::2 dev v0 onlink",
            "id 7 via fd00::3 fdb",
            "id 8 group 7 fdb",
            "id 9 dev v0",
            "id 10 encap ip id 5 dst 10.0.0.3 dev v0",
        ] {
            if let Err(complaint) = try_ip(&format!("nexthop add {object}")) {
                eprintln!("this kernel has no {object}: {complaint}");
            }
        }
        let mut netlink = netlink();
        let links = netlink.dump_links().expect("root may");
        let objects = netlink.dump_next_hops().expect("root may");
        let shown = ip_json("-N nexthop show");
        assert_eq!(objects.len(), shown.len());
        for (object, shown) in objects.iter().zip(&shown) {
            // With encapsulation the object has two keys `id`, and the last one wins.
            if shown.get("encap").is_none() {
                assert_eq!(u64::from(object.id), number(&shown["id"]));
            }
            let is_fdb = shown.get("fdb").is_some();
            match &object.kind {
                NextHopKind::Fdb => assert!(is_fdb),
                _ if is_fdb => panic!("{object:?} is a bridge's"),
                NextHopKind::Blackhole => assert!(shown.get("blackhole").is_some()),
                NextHopKind::Group { members, is_resilient } => {
                    let list = shown["group"].as_array().expect("a list").iter();
                    let weight = |member: &Value| member["weight"].as_u64().unwrap_or(1) as u16;
                    let expected: Vec<_> =
                        list.map(|member| (number(&member["id"]) as u32, weight(member))).collect();
                    assert_eq!(*members, expected);
                    assert_eq!(*is_resilient, shown["type"] == "resilient");
                }
                NextHopKind::Via(hop) => {
                    let name = shown["dev"].as_str().expect("text");
                    let link = links.iter().find(|link| link.name == name).expect("it is there");
                    let gateway = shown["gateway"].as_str();
                    let gateway = gateway.map(|text| text.parse().expect("an address"));
                    let flags = shown["flags"].as_array().expect("a list");
                    let expected = Hop {
                        gateway,
                        flags: if flags.contains(&"onlink".into()) { 4 } else { 0 },
                        is_encapsulated: shown.get("encap").is_some(),
                        ..Hop::on(link.index)
                    };
                    assert_eq!(*hop, expected, "{shown}");
                }
            }
        }
        assert_eq!(objects[1].protocol, 186);
        assert_eq!(objects[1].family, Some(Family::V4));
    });
}

#[test]
fn rules_are_read() {
    let Some(host) = lab("rules") else { return };
    host.run(|| {
        let rules = [
            ("not from 10.5.0.0/16 iif w0 table 500", &[][..]),
            ("to 10.5.0.0/16 tos 0x10 table 500", &[]),
            ("fwmark 5/7 table 500", &["mark"]),
            ("uidrange 5-7 table 500", &["user"]),
            ("ipproto tcp dport 80 table 500", &["ports", "protocol"]),
            ("oif w0 table 500", &["egress interface"]),
            ("l3mdev", &["l3mdev"]),
            ("suppress_prefixlength 0 table main", &["suppression"]),
            ("suppress_ifgroup 5 table main", &["suppression"]),
            ("goto 30000", &["goto"]),
            ("realms 5 table 500", &["realm"]),
            ("tun_id 5 table 500", &["tunnel"]),
            ("blackhole from 192.0.2.1", &[]),
        ];
        for (place, (rule, _)) in rules.iter().enumerate() {
            ip(&format!("rule add priority {} {rule}", 1000 + place));
        }
        ip("-6 rule add from fd05::/16 priority 77 prohibit");
        let read = netlink().dump_rules().expect("root may");
        let shown = [ip_json("-4 -N rule show"), ip_json("-6 -N rule show")].concat();
        assert_eq!(read.len(), shown.len());
        let prefix = |address: &Value, length: &Value, all: u8| match address.as_str() {
            None | Some("all") => None,
            Some(text) => {
                let length = length.as_u64().map_or(all, |length| length as u8);
                Some((text.parse::<IpAddr>().expect("an address"), length))
            }
        };
        for (rule, shown) in read.iter().zip(&shown) {
            let all = if rule.family == Family::V4 { 32 } else { 128 };
            assert_eq!(u64::from(rule.priority), number(&shown["priority"]));
            assert_eq!(u64::from(rule.table), number(&shown["table"]), "{shown}");
            assert_eq!(rule.from, prefix(&shown["src"], &shown["srclen"], all), "{shown}");
            assert_eq!(rule.to, prefix(&shown["dst"], &shown["dstlen"], all), "{shown}");
            assert_eq!(rule.iif.as_deref(), shown["iif"].as_str());
            assert_eq!(u64::from(rule.tos), number(&shown["tos"]));
            assert_eq!(rule.flags & 2 != 0, shown.get("not").is_some(), "{rule:?}");
            if let Some(place) = rule.priority.checked_sub(1000)
                && let Some((_, others)) = rules.get(place as usize)
            {
                assert_eq!(rule.others, *others, "{shown}");
            } else {
                assert!(rule.others.is_empty());
            }
        }
        let actions: Vec<_> = read.iter().filter(|rule| rule.action != 1).collect();
        let actions: Vec<_> = actions.iter().map(|rule| (rule.priority, rule.action)).collect();
        assert_eq!(actions, [(1009, 2), (1012, 6), (77, 8)], "goto, blackhole, prohibit");
    });
}

#[test]
fn neighbours_are_read() {
    let Some(host) = lab("neighbours") else { return };
    host.run(|| {
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent");
        ip("neigh add fd00::9 lladdr 02:00:00:00:00:09 dev v0 router nud stale");
        ip("neigh add 10.0.0.7 dev v0 nud failed");
        ip("neigh add proxy 10.0.0.33 dev v0");
        let mut read: Vec<_> = netlink()
            .dump_neighbours()
            .expect("root may")
            .into_iter()
            .filter(|neighbour| neighbour.state != libc::NUD_NOARP) // Groups, which ip(8) hides.
            .map(|neighbour| {
                let state = match neighbour.state {
                    libc::NUD_PERMANENT => "PERMANENT",
                    libc::NUD_STALE => "STALE",
                    libc::NUD_FAILED => "FAILED",
                    state => panic!("state {state}"),
                };
                let mac = neighbour.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
                let is_router = neighbour.flags & libc::NTF_ROUTER != 0;
                (neighbour.address.to_string(), mac, state.to_string(), is_router)
            })
            .collect();
        let mut expected: Vec<_> = ip_json("neigh show")
            .iter()
            .map(|shown| {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let address = text(&shown["dst"]).expect("text");
                let state = text(&shown["state"][0]).expect("text");
                (address, text(&shown["lladdr"]), state, shown.get("router").is_some())
            })
            .collect();
        read.sort();
        expected.sort();
        assert_eq!(read, expected);
        assert_eq!(read.len(), 3);
    });
}

#[test]
fn settings_are_read() {
    let Some(host) = lab("settings") else { return };
    common::setting(&host, "net/ipv4/conf/v0/rp_filter", "2");
    common::setting(&host, "net/ipv4/conf/w0/forwarding", "1");
    common::setting(&host, "net/ipv6/conf/all/forwarding", "1");
    common::setting(&host, "net/ipv4/conf/all/ignore_routes_with_linkdown", "1");
    host.run(|| {
        let mut netlink = netlink();
        let links = netlink.dump_links().expect("root may");
        let read = netlink.dump_netconf().expect("root may");
        let shown = [ip_json("-4 netconf show"), ip_json("-6 netconf show")].concat();
        assert_eq!(read.len(), shown.len());
        for (netconf, shown) in read.iter().zip(&shown) {
            let name = match netconf.link {
                -1 => "all",
                -2 => "default",
                index => {
                    let link = links.iter().find(|link| link.index as i32 == index);
                    &link.expect("it is there").name
                }
            };
            assert_eq!(Some(name), shown["interface"].as_str());
            let family = if netconf.family == Family::V4 { "inet" } else { "inet6" };
            assert_eq!(Some(family), shown["family"].as_str());
            assert_eq!(netconf.forwarding, shown["forwarding"].as_bool());
            let rp_filter = netconf.rp_filter.map(|mode| ["off", "strict", "loose"][mode as usize]);
            assert_eq!(rp_filter, shown["rp_filter"].as_str());
            let ignores = shown["ignore_routes_with_linkdown"].as_bool();
            assert_eq!(netconf.ignore_routes_with_linkdown, ignores);
        }
    });
}
