//! Hosts see no difference: what they do through the kernel's router, they do through the accelerated one, with the
//! same outcome. Offloads are at their defaults.

use std::net::IpAddr;
use std::time::Duration;

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::tools::PATIENCE;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, IcmpError, LAN_V4, LAN_V6, Outcome, Pinger, SERVER_V4, SERVER_V6,
    Topology, WAN_V4, WAN_V6, tcp_transfer, udp_stream,
};

#[test]
fn what_hosts_do_has_the_same_outcome_by_the_kernel_and_accelerated() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    make_routes_to_nowhere(&topology);
    let by_the_kernel = everything(&topology);
    let accelerated =
        Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &["lan", "wan"]);
    let forwarded_by_us = everything(&topology);
    for ((what, wanted), (_, found)) in by_the_kernel.0.iter().zip(&forwarded_by_us.0) {
        assert_eq!(found, wanted, "{what}, accelerated and by the kernel");
    }
    assert_eq!(by_the_kernel.0.len(), forwarded_by_us.0.len());

    let ledger = accelerated.ledger();
    println!("{ledger:#?}");
    assert!(ledger.forwarded > 10_000, "most of it was forwarded by us: {ledger:#?}");
    for reason in ["ttl", "nowhere", "no_route", "local"] {
        assert!(ledger.passed.get(reason).is_some_and(|count| *count > 0), "{reason}: {ledger:#?}");
    }
    accelerated.wait_for_no_difference();
    accelerated.assert_balanced();
}

/// A link that carries less, behind the router: senders learn of it, or their packets are cut.
#[test]
fn path_mtu_discovery_has_the_same_outcome() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    topology.tool("r1", &format!("ip link set wan mtu {MTU}"));
    topology.tool("server", &format!("ip link set eth0 mtu {MTU}"));
    let by_the_kernel = with_a_narrow_link(&topology);
    let accelerated =
        Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &["lan", "wan"]);
    let forwarded_by_us = with_a_narrow_link(&topology);
    assert_eq!(forwarded_by_us, by_the_kernel);
    assert!(accelerated.forwarded() > 1000, "{:#?}", accelerated.ledger());
    assert!(accelerated.passed("too_big") > 0, "{:#?}", accelerated.ledger());
    accelerated.assert_balanced();
}

/// What was done, and what came of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcomes(Vec<(String, String)>);

impl Outcomes {
    fn push(&mut self, what: String, outcome: String) {
        println!("{what}: {outcome}");
        self.0.push((what, outcome));
    }
}

fn everything(topology: &Topology) -> Outcomes {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let mut outcomes = Outcomes::default();
    for (from, to) in [
        ("client", SERVER_V4),
        ("client", SERVER_V6),
        ("server", CLIENT_V4),
        ("server", CLIENT_V6),
        ("client", LAN_V4),
        ("client", WAN_V4),
        ("client", LAN_V6),
        ("client", WAN_V6),
    ] {
        let mut pinger = Pinger::open(topology.host(from), to).expect("raw sockets are to be had");
        for size in SIZES {
            let outcome = pinger.ask(size, PATIENCE).expect("it is sent");
            outcomes.push(format!("{size} bytes from {from} to {to}"), said(outcome));
        }
    }
    // traceroute(8): one more hop each time.
    for to in [SERVER_V4, SERVER_V6] {
        for hops in 1..=3 {
            let mut pinger = Pinger::open(client, to).expect("raw sockets are to be had");
            pinger.set_hops(hops).expect("it is a hop limit");
            let outcome = pinger.ask(56, PATIENCE).expect("it is sent");
            outcomes.push(format!("{hops} hops to {to}"), said(outcome));
        }
    }
    for (what, v4, v6) in NOWHERE {
        for to in [v4, v6] {
            let to: IpAddr = to.parse().expect("it is an address");
            let mut pinger = Pinger::open(client, to).expect("raw sockets are to be had");
            let patience = if what == "blackhole" { SILENCE } else { PATIENCE };
            let outcome = pinger.ask(56, patience).expect("it is sent");
            outcomes.push(format!("{what}, {to}"), said(outcome));
        }
    }
    for to in [SERVER_V4, SERVER_V6] {
        let report = tcp_transfer(client, server, to, 16 << 20).expect("sockets are to be had");
        outcomes.push(format!("TCP to {to}"), format!("intact: {}", report.is_intact()));
        let report = udp_stream(client, server, to, 5000, 1000, 5000).expect("they are");
        outcomes.push(format!("UDP to {to}"), format!("{report:?}"));
        // Fragments all the way.
        let report = udp_stream(client, server, to, 500, 9000, 500).expect("they are");
        outcomes.push(format!("large UDP to {to}"), format!("{report:?}"));
    }
    outcomes
}

fn with_a_narrow_link(topology: &Topology) -> Outcomes {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let mut outcomes = Outcomes::default();
    for (to, headers) in [(SERVER_V4, 28), (SERVER_V6, 48)] {
        topology.tool("client", "ip -4 route flush cache");
        topology.tool("client", "ip -6 route flush cache");
        let fits = MTU as usize - headers;
        let mut pinger = Pinger::open(client, to).expect("raw sockets are to be had");
        for size in [fits, fits + 1] {
            let outcome = pinger.ask(size, PATIENCE).expect("it is sent");
            outcomes.push(format!("{size} bytes to {to}"), said(outcome));
        }
        // Now the client's kernel knows, and fragments by itself. But it shows the error to a raw socket before
        // it acts on it, so that a request may still leave whole, and be refused again.
        loop {
            match pinger.ask(fits + 1, PATIENCE).expect("it is sent") {
                Outcome::Error { error: IcmpError::TooBig { mtu: MTU }, .. } => {}
                outcome => break outcomes.push(format!("again to {to}"), said(outcome)),
            }
        }
        let report = tcp_transfer(client, server, to, 4 << 20).expect("sockets are to be had");
        outcomes.push(format!("TCP to {to}"), format!("intact: {}", report.is_intact()));
        let report = tcp_transfer(
            server,
            client,
            if headers == 28 { CLIENT_V4 } else { CLIENT_V6 },
            4 << 20,
        )
        .expect("sockets are to be had");
        outcomes.push(format!("TCP back from {to}"), format!("intact: {}", report.is_intact()));
    }
    // Sockets made from now on: no DF. The router cuts.
    topology.set("client", "net/ipv4/ip_no_pmtu_disc", "1");
    topology.tool("client", "ip -4 route flush cache");
    let mut pinger = Pinger::open(client, SERVER_V4).expect("raw sockets are to be had");
    for size in [1372, 1373, 1472, 5000] {
        let outcome = pinger.ask(size, PATIENCE).expect("it is sent");
        outcomes.push(format!("{size} bytes without DF"), said(outcome));
    }
    topology.set("client", "net/ipv4/ip_no_pmtu_disc", "0");
    outcomes
}

/// The outcome without the time it took.
fn said(outcome: Outcome) -> String {
    match outcome {
        Outcome::Reply { is_intact, hops_left, .. } => {
            format!("reply, intact: {is_intact}, hop limit {hops_left:?}")
        }
        other => format!("{other:?}"),
    }
}

fn make_routes_to_nowhere(topology: &Topology) {
    for (kind, v4, v6) in NOWHERE {
        if ["blackhole", "prohibit", "unreachable"].contains(&kind) {
            topology.tool("r1", &format!("ip route add {kind} {v4}/32"));
            topology.tool("r1", &format!("ip route add {kind} {v6}/128"));
        }
    }
}

const NOWHERE: [(&str, &str, &str); 5] = [
    ("blackhole", "10.66.0.1", "2001:db8:66::1"),
    ("prohibit", "10.67.0.1", "2001:db8:67::1"),
    ("unreachable", "10.68.0.1", "2001:db8:68::1"),
    ("no route", "10.69.0.1", "2001:db8:69::1"),
    ("nobody there", "10.2.0.77", "2001:db8:2::77"),
];

/// Of data: none, what ping(8) sends, what just fits and does not any more, many fragments, the most.
const SIZES: [usize; 10] = [0, 1, 56, 1400, 1452, 1453, 1472, 1473, 8000, 65_000];
const MTU: u32 = 1400;
/// No host answers, whatever the time.
const SILENCE: Duration = Duration::from_millis(300);
