//! Tens of thousands of connections that are older than the accelerator, whose ends the kernel does not announce.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use manylane_lab::scenario::has;
use manylane_lab::stateful::{self, Connection, Datagrams};
use manylane_lab::{Host, Topology, until};
use nix::sys::signal::Signal;

use super::bed::{Bed, Plan, TIERS};

/// Of each family: a tick does not look for all of them.
const COUNT: u32 = 10_000;
/// The destinations are behind the server's link.
const ROUTES: [(&str, &str); 2] = [
    ("r1", "ip route add 10.128.0.0/9 via 10.2.0.1"),
    ("r1", "ip route add 2001:db8:8000::/33 via 2001:db8:2::1"),
];
const PORTS: [&str; 2] = ["lan", "wan"];
const SOURCES: [&str; 2] = ["10.1.0.1", "2001:db8:1::1"];

/// Connections of one family, as the kernel has settled them.
struct Older {
    datagrams: Datagrams,
    settled: Vec<Connection>,
    /// The client's kernel answers nothing.
    _taker: UdpSocket,
}

fn hosts(topology: &Topology) -> [&Host; 3] {
    ["client", "r1", "server"].map(|name| topology.host(name))
}

impl Older {
    fn settle(topology: &Topology, source: &str, destination: fn(u32) -> IpAddr) -> Older {
        let [client, router, server] = hosts(topology);
        let source: SocketAddr = (source.parse::<IpAddr>().expect("an address"), 4000).into();
        let taker = client.run(move || UdpSocket::bind(source)).expect("the port is free");
        let destinations = (0..COUNT).map(|number| (destination(number), 9).into()).collect();
        let datagrams = Datagrams { source, destinations };
        let settled = datagrams.establish(client, (router, PORTS), server);
        let settled = settled.unwrap_or_else(|error| panic!("{error}"));
        assert!(settled.len() == COUNT as usize && settled.iter().all(Connection::is_translated));
        Older { datagrams, settled, _taker: taker }
    }

    /// A datagram of each direction of each.
    fn exchange(&self, topology: &Topology) {
        let [client, router, server] = hosts(topology);
        let sent = self.datagrams.send(client, (router, PORTS[0]));
        let sent = sent.and_then(|()| stateful::answer((router, PORTS[1]), server, &self.settled));
        sent.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn twenty_thousand_older_connections_are_all_forwarded() {
    if !has("conntrack") {
        return;
    }
    for tier in TIERS {
        let plan = Plan { lines: &ROUTES, ..Plan::default() };
        let Some(topology) = plan.network(tier) else { return };
        for name in ["udp_timeout", "udp_timeout_stream"] {
            topology.set("r1", &format!("net/netfilter/nf_conntrack_{name}"), "3600");
        }
        // No other process of this machine may listen while they begin.
        topology.set("r1", EVENTS, "0");
        let older = [
            Older::settle(&topology, SOURCES[0], |number| {
                Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 1).to_bits() + number).into()
            }),
            Older::settle(&topology, SOURCES[1], |number| {
                Ipv6Addr::new(0x2001, 0xdb8, 0x8000, 0, 0, 0, 1, number as u16).into()
            }),
        ];
        topology.set("r1", EVENTS, "2");
        let mut bed = Bed::beside(topology, tier, plan);
        for is_restarted in [false, true] {
            if is_restarted {
                bed.accelerated.signal(Signal::SIGKILL);
                bed.accelerated.wait();
                bed.accelerate_again();
            }
            all_by_lane(&bed, &older);
            let lane = bed.lane();
            assert_eq!(lane.polled, u64::from(2 * COUNT), "{lane:#?}");
        }
        // No packet says that these end, and no notification does.
        bed.topology.tool("r1", "conntrack -D -f ipv4 -p udp --orig-dst 10.128.0.77");
        until("the entry of a deleted connection is gone", || used(&bed, 2 * COUNT - 1));
        bed.topology.tool("r1", "conntrack -F");
        until("no entry is left", || used(&bed, 0));
        bed.finish();
    }
}

/// Waits until all connections have an entry, and manylane forwards all that they send.
fn all_by_lane(bed: &Bed<'_>, older: &[Older; 2]) {
    let all = u64::from(2 * 2 * COUNT);
    until("all older connections are forwarded", || {
        let before = bed.passed();
        older.iter().for_each(|one| one.exchange(&bed.topology));
        used(bed, 2 * COUNT)?;
        let passed = bed.passed().since(before);
        // A busy machine's queues may have dropped some.
        match passed.by_kernel_unlapsed() == 0 && passed.by_lane * 10 > all * 9 {
            true => Ok(()),
            false => Err(format!("{passed}: {:#?}", bed.accelerated.ledger().passed)),
        }
    });
}

/// Whether the lane has this many entries.
fn used(bed: &Bed<'_>, count: u32) -> Result<(), String> {
    let lane = bed.lane();
    if lane.used == u64::from(count) { Ok(()) } else { Err(format!("{lane:#?}")) }
}

const EVENTS: &str = "net/netfilter/nf_conntrack_events";
