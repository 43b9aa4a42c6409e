//! The mirror is as the kernel: links cut in every way and back, next hops replaced, messages lost, routes of all
//! kinds. The tests read `show mirror --diff`, and check that traffic follows.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::{Hop, Hops, Route};
use manylane_lab::accelerated::{Accelerated, topology};
use manylane_lab::{Steady, SteadyOptions, Topology, until};
use nix::sys::signal::Signal;

/// Two ways from the router to the server, which has an address behind both.
const TWO_WAYS: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
    link r1:alt 10.3.0.254/24 2001:db8:3::fe/64 -- server:eth1 10.3.0.1/24 2001:db8:3::1/64
";
const WAN: &str =
    "r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64";
const BEHIND_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 128, 0, 1));
const BEHIND_V6: &str = "2001:db8:128::1";

/// The better way is cut, and comes back.
#[test]
fn traffic_follows_when_links_are_cut_in_any_way_and_come_back() {
    let Some(topology) = make() else { return };
    prefer_wan(&topology);
    let streams = streams(&topology);
    let accelerated = start(&topology);
    leaves_by(&accelerated, &streams, "wan");

    for (how, host, cut, back) in [
        ("set down", "r1", "ip link set wan down", &["ip link set wan up"][..]),
        ("carrier lost", "server", "ip link set eth0 down", &["ip link set eth0 up"]),
        (
            "address removed",
            "r1",
            "ip addr del 10.2.0.254/24 dev wan",
            &["ip addr add 10.2.0.254/24 dev wan"],
        ),
        ("peer gone", "server", "ip link del eth0", &["a new one"]),
    ] {
        let marks = streams.each_ref().map(Steady::mark);
        let begun = Instant::now();
        topology.tool(host, cut);
        accelerated.wait_for_no_difference();
        println!("{how}: as the kernel after {:?}, ip(8) included", begun.elapsed());
        // IPv6 keeps its address where only IPv4's is removed.
        let followers = if how == "address removed" { &streams[..1] } else { &streams[..] };
        for (stream, mark) in followers.iter().zip(marks) {
            let seen = stream.arrives(&format!("{how}: by the other way"));
            println!("{how}: {} of {} are missing since", stream.missing(mark..seen), seen - mark);
        }
        let mark = followers.iter().map(|stream| stream.after(20)).collect::<Vec<_>>();
        let sent = sent_by_wan(&accelerated);
        let alt = accelerated.port("alt").sent;
        for (stream, mark) in followers.iter().zip(mark) {
            let end = stream.after(300);
            stream.arrives("all before it have arrived");
            assert_eq!(stream.missing(mark..end), 0, "{how}: {:?}", stream.arrivals());
        }
        if followers.len() == streams.len() {
            assert_eq!(sent_by_wan(&accelerated), sent, "{how}: none to the dead exit");
        }
        assert!(accelerated.port("alt").sent > alt, "{how}: by us, the other way");

        for line in back {
            match *line {
                // Of the same names, and other numbers.
                "a new one" => topology.connect(WAN).unwrap_or_else(|error| panic!("{error}")),
                line => drop(topology.tool(host, line)),
            }
        }
        // The kernel forgets routes with the link or the address they need; a new link has other settings.
        follow_the_carrier(&topology);
        prefer_wan(&topology);
        accelerated.wait_for_no_difference();
        leaves_by(&accelerated, &streams, "wan");
    }
    assert_eq!(accelerated.diff(), Vec::<String>::new());
}

/// As many routes by one object as the Internet has: one message of the kernel says all.
#[test]
fn a_next_hop_is_replaced_under_all_of_its_routes() {
    let Some(topology) = make() else { return };
    topology.tool("r1", "ip nexthop add id 1 via 10.2.0.1 dev wan");
    topology.tool("r1", "ip nexthop add id 2 via 10.3.0.1 dev alt");
    topology.tool("r1", "ip nexthop add id 10 group 1");
    topology.tool("r1", &format!("ip route add {BEHIND_V4}/32 nhid 10"));
    add_routes(&topology, 900_000, 24, |destination| Route::by_next_hop(destination, 24, 1));
    let streams = [stream(&topology, BEHIND_V4)];
    let accelerated = start(&topology);
    accelerated.wait_for_no_difference();
    leaves_by(&accelerated, &streams, "wan");

    let (mark, resyncs) = (streams[0].mark(), accelerated.mirror().overruns);
    topology.tool("r1", "ip nexthop replace id 1 via 10.3.0.1 dev alt");
    leaves_by(&accelerated, &streams, "alt");
    let end = streams[0].arrives("by the other way");
    assert_eq!(streams[0].missing(mark..end), 0, "no gap");
    accelerated.wait_for_no_difference();
    println!("overruns: {}", accelerated.mirror().overruns - resyncs);

    // A group, a member more, a member less.
    topology.tool("r1", "ip nexthop replace id 1 via 10.2.0.1 dev wan");
    topology.tool("r1", "ip nexthop replace id 10 group 1/2");
    accelerated.wait_for_no_difference();
    topology.tool("r1", "ip nexthop del id 2");
    accelerated.wait_for_no_difference();
    leaves_by(&accelerated, &streams, "wan");
}

/// More than a socket holds, while the mirror does not read: all is read anew, and what was true all along stays.
#[test]
fn messages_that_are_lost_lead_to_a_resync() {
    let Some(topology) = make() else { return };
    prefer_wan(&topology);
    let streams = [stream(&topology, BEHIND_V4)];
    let accelerated = start(&topology);
    leaves_by(&accelerated, &streams, "wan");
    let (resyncs, mark) = (accelerated.mirror().overruns, streams[0].mark());
    accelerated.signal(Signal::SIGSTOP);
    let index = index(&topology, "wan");
    add_routes(&topology, 150_000, 28, move |destination| {
        Route::new(destination, 28, Hops::One(Some(Hop::via(index, [10, 2, 0, 1].into()))))
    });
    accelerated.signal(Signal::SIGCONT);
    until("all was read anew", || match accelerated.mirror() {
        mirror if mirror.overruns > resyncs => Ok(()),
        mirror => Err(format!("{mirror:?}")),
    });
    accelerated.wait_for_no_difference();
    leaves_by(&accelerated, &streams, "wan");
    let end = streams[0].arrives("after it");
    assert_eq!(streams[0].missing(mark..end), 0, "no gap");
}

/// What ip(8) can say, there before and added later; then all of it is taken away.
#[test]
fn routes_of_all_kinds_are_mirrored() {
    let kinds = [
        "ip route add 10.200.0.0/24 via 10.2.0.1",
        "ip route add 10.200.1.0/24 dev wan",
        "ip route add blackhole 10.200.2.0/24",
        "ip route add prohibit 10.200.3.0/24",
        "ip route add unreachable 10.200.4.0/24",
        "ip route add throw 10.200.5.0/24",
        "ip route add 10.200.6.0/24 nexthop via 10.2.0.1 weight 1 nexthop via 10.3.0.1 weight 3",
        "ip route add 10.200.7.0/24 via 10.2.0.1 metric 100",
        "ip route add 10.200.7.0/24 via 10.3.0.1 metric 50",
        "ip route add 10.200.8.0/24 via 10.2.0.1 mtu 1300",
        "ip route add 10.200.9.0/24 via 10.2.0.1 tos 0x10",
        "ip route add 10.200.10.1/32 via 10.3.0.1",
        "ip route add 10.200.11.0/24 via inet6 2001:db8:2::1 dev wan",
        "ip route add 10.200.12.0/24 via 10.77.0.1 dev wan onlink",
        "ip route add 10.200.13.0/24 encap seg6 mode encap segs fd00::1 dev wan",
        "ip route add 10.200.14.0/24 via 10.2.0.1 table 100",
        "ip route add default via 10.3.0.1",
        "ip nexthop add id 1 via 10.2.0.1 dev wan",
        "ip nexthop add id 2 via 10.3.0.1 dev alt",
        "ip nexthop add id 3 blackhole",
        "ip nexthop add id 4 via 2001:db8:2::1 dev wan",
        "ip nexthop add id 5 via 2001:db8:3::1 dev alt",
        "ip nexthop add id 10 group 1,2/2,3",
        "ip nexthop add id 11 group 4/5",
        "ip route add 10.201.0.0/24 nhid 1",
        "ip route add 10.201.1.0/24 nhid 10",
        "ip route add 10.201.2.0/24 nhid 3",
        "ip route add 2001:db8:201::/48 nhid 4",
        "ip route add 2001:db8:202::/48 nhid 11",
        "ip route add 2001:db8:203::/48 via 2001:db8:2::1",
        "ip route append 2001:db8:203::/48 via 2001:db8:3::1",
        "ip route add blackhole 2001:db8:204::/48",
        "ip route add prohibit 2001:db8:205::/48",
        "ip route add unreachable 2001:db8:206::/48",
        "ip route add 2001:db8:207::/48 dev wan",
        "ip route add 2001:db8:208::/48 via 2001:db8:2::1 metric 10",
        "ip route add 2001:db8:208::/48 via 2001:db8:3::1 metric 20",
        "ip route add default via 2001:db8:3::1",
        "ip addr add 10.4.0.1/32 dev lo",
        "ip addr add 2001:db8:4::1/128 dev lo",
        "ip addr add 10.5.0.1 peer 10.5.0.2 dev wan",
        "ip neigh add 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud permanent",
        "ip neigh add 2001:db8:2::9 lladdr 02:00:00:00:00:09 dev wan nud permanent",
        "ip neigh add proxy 10.2.0.10 dev wan",
    ];
    let undone = |line: &str| -> Option<String> {
        let line = line.replacen(" append ", " del ", 1).replacen(" add ", " del ", 1);
        // An object takes its routes along; a group its members do not.
        (!line.starts_with("ip nexthop del id")).then_some(line)
    };
    let Some(topology) = make() else { return };
    let (before, later) = kinds.split_at(kinds.len() / 2);
    before.iter().for_each(|line| drop(topology.tool("r1", line)));
    let accelerated = start(&topology);
    accelerated.wait_for_no_difference();
    for line in later {
        topology.tool("r1", line);
        accelerated.wait_for_no_difference();
    }
    println!("{:#?}", accelerated.mirror());
    // Rules: without one that reads main for all, all is the kernel's, and well when it is back.
    topology.tool("r1", "ip -6 rule del priority 32766");
    accelerated.wait_for_tier("lan", "kernel");
    topology.tool("r1", "ip -6 rule add priority 32766 lookup main");
    accelerated.wait_for_tier("lan", "ingress");
    accelerated.wait_for_no_difference();
    // A link goes and comes with all that depends on it.
    for line in ["ip link set alt down", "ip link set alt up"] {
        topology.tool("r1", line);
        accelerated.wait_for_no_difference();
    }
    for line in kinds.iter().rev().filter_map(|line| undone(line)) {
        // Some went with the link.
        let _ = topology.try_tool("r1", &line);
        accelerated.wait_for_no_difference();
    }
    topology.tool("r1", "ip nexthop flush");
    accelerated.wait_for_no_difference();
}

fn make() -> Option<Topology> {
    let topology = topology(TWO_WAYS)?;
    topology.tool("server", &format!("ip addr add {BEHIND_V4}/32 dev lo"));
    topology.tool("server", &format!("ip addr add {BEHIND_V6}/128 dev lo"));
    follow_the_carrier(&topology);
    Some(topology)
}

fn follow_the_carrier(topology: &Topology) {
    for interface in ["all", "lan", "wan", "alt"] {
        for version in ["ipv4", "ipv6"] {
            let name = format!("net/{version}/conf/{interface}/ignore_routes_with_linkdown");
            topology.set("r1", &name, "1");
        }
    }
    // IPv6 keeps its addresses when a link is set down: what comes back has them.
    topology.set("r1", "net/ipv6/conf/wan/keep_addr_on_down", "1");
    topology.set("server", "net/ipv6/conf/eth0/keep_addr_on_down", "1");
}

/// The routes to the server's address, as far as they are not there.
fn prefer_wan(topology: &Topology) {
    for (metric, v4, v6) in [(10, "10.2.0.1", "2001:db8:2::1"), (20, "10.3.0.1", "2001:db8:3::1")] {
        topology.tool("r1", &format!("ip route replace {BEHIND_V4}/32 via {v4} metric {metric}"));
        topology.tool("r1", &format!("ip route replace {BEHIND_V6}/128 via {v6} metric {metric}"));
    }
}

/// Adds routes to `count` networks of this length, one after the other.
fn add_routes(
    topology: &Topology,
    count: u32,
    length: u8,
    route: impl Fn(IpAddr) -> Route + Send + 'static,
) {
    let base = u32::from(Ipv4Addr::new(20, 0, 0, 0));
    let routes = move || {
        let network = |n: u32| Ipv4Addr::from(base + (n << (32 - length)));
        let routes = (0..count).map(|n| route(network(n).into()));
        Netlink::open()?.load_routes(routes)
    };
    let added = topology.host("r1").run(routes);
    assert_eq!(added.unwrap_or_else(|error| panic!("{error}")), u64::from(count));
}

fn index(topology: &Topology, link: &'static str) -> u32 {
    let link = topology.host("r1").run(move || Netlink::open()?.link(link));
    link.unwrap_or_else(|error| panic!("{error}")).index
}

fn start(topology: &Topology) -> Accelerated {
    let interfaces = ["lan", "wan", "alt"];
    Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &interfaces)
}

fn stream(topology: &Topology, to: IpAddr) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let options = SteadyOptions { per_second: 500, ..SteadyOptions::to(to) };
    Steady::start(client, server, options).expect("sockets are to be had")
}

fn streams(topology: &Topology) -> [Steady; 2] {
    [BEHIND_V4, BEHIND_V6.parse().expect("it is an address")].map(|to| stream(topology, to))
}

fn sent_by_wan(accelerated: &Accelerated) -> u64 {
    accelerated.port("wan").sent
}

/// Waits until all streams leave by this port, and only by it, by us.
fn leaves_by(accelerated: &Accelerated, streams: &[Steady], name: &str) {
    let other = if name == "wan" { "alt" } else { "wan" };
    until(&format!("traffic leaves by {name}"), || {
        let before = [name, other].map(|name| accelerated.port(name).sent);
        let forwarded = accelerated.forwarded();
        for stream in streams {
            stream.after(50);
        }
        let after = [name, other].map(|name| accelerated.port(name).sent);
        let all = 45 * streams.len() as u64; // The counters are read one after the other.
        if after[0] >= before[0] + all && after[1] == before[1] {
            Ok(())
        } else {
            Err(format!("{before:?}, {after:?}, {forwarded}; {:#?}", accelerated.ledger()))
        }
    });
    for stream in streams {
        stream.arrives(&format!("by {name}"));
    }
}
