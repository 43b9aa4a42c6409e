//! The worker tier, set by name on veth: threads of the accelerator receive the packets, and transmit them.
//!
//! The hosts fill in their checksums themselves, as for the driver tier: a veth's driver does not see that they are
//! still to be. Needs root.

pub(super) mod bed;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::thread;

use crate::account::{Account, count_all_packets};
use bed::{
    Hung, both_by_workers, by_workers, changed, dropped, forwarded_by, in_tier, is_forwarded_by,
    set, start, switches,
};
use manylane_api::accelerate::AcceleratedPort;
use manylane_lab::accelerated::{
    Accelerated, IN_A_ROW, IN_A_ROW_BY_TWO_QUEUES, plain_hosts, topology,
};
use manylane_lab::scenario::all_answered;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Steady, SteadyOptions, TcpTransfer, TransferEnd,
    tcp_transfer, udp_stream, until,
};
use nix::sys::signal::Signal;

#[test]
fn packets_are_forwarded_by_workers_and_counted_once() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for workers in ["1", "2"] {
        let accelerated = start(&topology, &["--tier", "workers", "--workers", workers]);
        let [client, server] = ["client", "server"].map(|name| topology.host(name));
        both_by_workers(&accelerated);
        for (from, to) in
            [(client, SERVER_V4), (client, SERVER_V6), (server, CLIENT_V4), (server, CLIENT_V6)]
        {
            all_answered(from, to, 56);
            all_answered(from, to, 3000); // In fragments.
        }
        for to in [SERVER_V4, SERVER_V6] {
            let report = tcp_transfer(client, server, to, 4 << 20).expect("sockets are to be had");
            assert!(report.is_intact(), "{report:?}");
            let report = udp_stream(client, server, to, 5000, 1000, 5000).expect("they are");
            assert_eq!((report.sent, report.received), (5000, 5000), "{report:?}");
        }
        accelerated.assert_balanced();
        let ledger = accelerated.ledger();
        println!("{ledger:#?}");
        assert!(ledger.tiers["workers"] > 10_000, "{ledger:#?}");
        assert!(ledger.tiers["workers"] > 5 * ledger.tiers["ingress"], "{ledger:#?}");
        assert_eq!(ledger.tiers["driver"], 0, "{ledger:#?}");
        accelerated.wait_for_no_difference();
    }
}

/// Every tier to every other, while a connection and a stream run. Lost packets are counted.
#[test]
fn a_port_changes_its_tier_under_traffic() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, &["--tier", "ingress"]);
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    count_all_packets(&topology);
    let before = Account::now(&topology, Some(&accelerated));
    let options = SteadyOptions { per_second: 5000, ..SteadyOptions::to(SERVER_V4) };
    let stream = Steady::start(client, server, options).expect("sockets are to be had");
    let should_continue = Mutex::new(true);
    let lock = || should_continue.lock().expect("nobody panics with the lock");
    thread::scope(|scope| {
        let end = TransferEnd(&should_continue);
        let connection = scope.spawn(|| {
            let transfer = TcpTransfer { destination: SERVER_V6, bytes: u64::MAX };
            transfer.run(client, server, &|| *lock())
        });
        for tier in [
            "workers", "driver", "ingress", "workers", "ingress", "driver", "workers", "kernel",
            "workers", "auto",
        ] {
            let (mark, before) = (stream.mark(), stream.arrivals().late);
            for name in ["lan", "wan"] {
                set(&accelerated, name, tier);
            }
            let shown = if tier == "auto" { "ingress" } else { tier };
            for name in ["lan", "wan"] {
                in_tier(&accelerated, name, shown);
            }
            let forwarded = forwarded_by(&accelerated, shown);
            stream.after(500);
            let seen = stream.arrives(tier);
            let (late, missing) = (stream.arrivals().late - before, stream.missing(mark..seen));
            println!("to {tier}: {late} late, {missing} missing of {}", seen - mark);
            assert!(late <= LATE_MAX, "{late} came late when it changed to {tier}");
            if shown != "kernel" {
                let now = forwarded_by(&accelerated, shown);
                assert!(now > forwarded, "nothing was forwarded by {tier}");
            }
        }
        drop(end);
        let report = connection.join().expect("it does not panic").expect("sockets are to be had");
        println!("TCP: {} and {} bytes", report.up.received, report.down.received);
        assert!(report.is_intact(), "{report:?}");
        assert!(report.up.received > 1 << 20, "{report:?}");
    });
    drop(stream);
    accelerated.assert_balanced();
    before.settle(&LOST_BY_CHANGES, || Account::now(&topology, Some(&accelerated)));
    assert!(dropped(&accelerated) <= DROPPED_MAX, "{:#?}", accelerated.ledger());
}

/// The ingress tier takes over the queues of a worker that hangs; when the worker continues, it has them again.
#[test]
fn a_worker_that_hangs_is_passed_by() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    count_all_packets(&topology);
    // With two, one receives by lan, and the other one has to take back what that worker sends by wan.
    for (workers, hangs) in [("1", 0), ("2", 0), ("2", 1)] {
        let what = format!("worker {hangs} of {workers}");
        let accelerated = start(&topology, &["--tier", "workers", "--workers", workers]);
        both_by_workers(&accelerated);
        let before = Account::now(&topology, Some(&accelerated));
        let stream = Steady::start(client, server, SteadyOptions::to(SERVER_V4))
            .expect("sockets are to be had");
        is_forwarded_by(&accelerated, "workers");
        let hung = Hung::stop(accelerated.pid(), &format!("worker {hangs}"));
        is_forwarded_by(&accelerated, "ingress");
        assert!(accelerated.port("lan").worker_absent > 0, "{what}");
        let mark = stream.arrives("while it hangs");
        stream.after(500);
        let seen = stream.arrives("while it hangs");
        assert_eq!(stream.missing(mark..seen), 0, "while {what} hangs");
        // No other thread waits for it: routes change.
        topology.tool("r1", "ip route add 10.9.0.0/16 via 10.2.0.1");
        accelerated.wait_for_no_difference();
        topology.tool("r1", "ip route del 10.9.0.0/16");
        drop(hung);
        is_forwarded_by(&accelerated, "workers");
        let mark = stream.mark();
        stream.after(500);
        let seen = stream.arrives("when it goes on");
        assert_eq!(stream.missing(mark..seen), 0, "when {what} goes on");
        drop(stream);
        accelerated.assert_balanced();
        // What found no room in its rings; what was there has a route still, unless the lease lapsed meanwhile.
        let places = ["ledger worker_full", "ledger decision_changed"];
        let fate = before.settle(&places, || Account::now(&topology, Some(&accelerated)));
        println!("{what}: {fate:?}");
    }
}

/// Its sockets cannot be taken back meanwhile; requests are answered, packets are forwarded, and the process can end.
#[test]
fn a_worker_that_hangs_keeps_nobody_from_changing_the_tier_and_from_ending() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let stream =
        Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had");
    let mut accelerated = start(&topology, &["--tier", "workers"]);
    both_by_workers(&accelerated);
    let hung = Hung::stop(accelerated.pid(), "worker 0");
    for name in ["lan", "wan"] {
        set(&accelerated, name, "driver");
        let port = accelerated.wait_for_tier(name, "ingress");
        assert!(
            port.tier_reasons.iter().any(|reason| reason.what.contains("being closed")),
            "{port:#?}"
        );
    }
    is_forwarded_by(&accelerated, "ingress");
    drop(hung);
    for name in ["lan", "wan"] {
        in_tier(&accelerated, name, "driver");
        set(&accelerated, name, "workers");
        by_workers(&accelerated, name);
    }
    let _hung = Hung::stop(accelerated.pid(), "worker 0");
    accelerated.signal(Signal::SIGTERM);
    // Which a thread that is looked at does not outlive.
    let mark = stream.arrives("while it ends");
    stream.after(100);
    let seen = stream.arrives("while it ends");
    assert_eq!(stream.missing(mark..seen), 0, "while it ends");
    drop(_hung);
    assert!(accelerated.wait().success(), "{}", accelerated.said());
}

/// What lies in a worker's ring while its route goes, or a filter comes, is dropped, and never sent as it was decided.
#[test]
fn what_is_queued_is_decided_upon_anew() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let accelerated = start(&topology, &["--tier", "workers", "--workers", "1"]);
    both_by_workers(&accelerated);
    let filter = "table inet t { chain c { type filter hook forward priority 0; policy drop; }; }";
    for (destination, change, undo) in [
        (SERVER_V4, "ip route add blackhole 10.2.0.1/32", "ip route del blackhole 10.2.0.1/32"),
        (
            SERVER_V6,
            "ip route add blackhole 2001:db8:2::1/128",
            "ip route del blackhole 2001:db8:2::1/128",
        ),
        (SERVER_V4, &format!("nft '{filter}'"), "nft delete table inet t"),
    ] {
        let stream = Steady::start(client, server, SteadyOptions::to(destination))
            .expect("sockets are to be had");
        is_forwarded_by(&accelerated, "workers");
        let before = changed(&accelerated);
        let hung = Hung::stop(accelerated.pid(), "worker 0");
        until("frames are queued", || match accelerated.ledger().queued {
            queued if queued >= 10 => Ok(()),
            queued => Err(queued),
        });
        topology.tool("r1", change);
        accelerated.wait_for_no_difference();
        // What the kernel, or the program, forwarded as it was before has arrived.
        stream.after(200);
        let arrived = stream.arrived(0..stream.mark());
        drop(hung);
        until("what was queued has been decided upon", || match accelerated.ledger() {
            ledger if ledger.queued == 0 => Ok(()),
            ledger => Err(format!("{ledger:#?}")),
        });
        stream.after(200);
        let dropped = changed(&accelerated) - before;
        println!("{change}: {dropped} dropped");
        assert!(dropped >= 10, "{change}: {:#?}", accelerated.ledger());
        assert_eq!(stream.arrived(0..stream.mark()), arrived, "{change}: as it was before");
        topology.tool("r1", undo);
        stream.arrives("as before");
    }
    accelerated.assert_balanced();
    let socket = accelerated.socket();
    for noun in ["drops", "ledger"] {
        let program = env!("CARGO_BIN_EXE_manylane");
        let line = format!("{program} show {noun} --socket {}", socket.display());
        let said = topology.tool("r1", &line);
        assert!(said.contains("decision_changed"), "{said}");
    }
}

/// Killed, stopped: what is left is the kernel.
#[test]
fn whatever_ends_it_the_kernel_forwards() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let stream =
        Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had");
    stream.arrives("by the kernel");
    drop(stream);
    count_all_packets(&topology);
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGABRT] {
        let before = Account::now(&topology, None);
        let stream = Steady::start(client, server, SteadyOptions::to(SERVER_V4))
            .expect("sockets are to be had");
        let mut accelerated = start(&topology, &["--tier", "workers"]);
        both_by_workers(&accelerated);
        is_forwarded_by(&accelerated, "workers");
        let mark = stream.mark();
        accelerated.signal(signal);
        accelerated.wait();
        let seen = stream.arrives(&format!("after {signal}"));
        println!("{signal}: {} of {} missing", stream.missing(mark..seen), seen - mark);
        drop(stream);
        // Frames in rings, and those received until the process's memory had been given back: its word still held. No
        // process has their counters any more.
        let fate = before.settle_after_the_daemon(&topology);
        assert!(fate.missing <= 200, "{signal}: {fate:#?}");
        let links = topology.tool("r1", "ip -d link show wan");
        assert!(!links.contains("xdp"), "{signal}: {links}");
    }
    let accelerated = start(&topology, &["--tier", "workers"]);
    both_by_workers(&accelerated);
    let before = Account::now(&topology, Some(&accelerated));
    let stream =
        Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had");
    stream.arrives("by workers");
    let stopped = stream.mark();
    accelerated.signal(Signal::SIGSTOP);
    // Until the workers' words lapse, 200 of these datagrams later, programs hand packets to rings that no worker empties.
    stream.after(500);
    let mark = stream.arrives("while it is stopped");
    assert!(stream.missing(stopped..mark) <= 400, "the words lapse");
    stream.after(500);
    let seen = stream.arrives("while it is stopped");
    assert_eq!(stream.missing(mark..seen), 0, "while it is stopped");
    accelerated.signal(Signal::SIGCONT);
    is_forwarded_by(&accelerated, "workers");
    drop(stream);
    accelerated.assert_balanced();
    // What was in the rings leaves late, unless it is no transit any more; the socket counts what found no room.
    let places = ["ledger decision_changed", "ledger worker_full"];
    before.settle(&places, || Account::now(&topology, Some(&accelerated)));
}

/// A port of each tier, and a second one of the workers': each packet takes the tier that both of its ports allow.
#[test]
fn tiers_are_mixed_on_one_router() {
    let Some(topology) = topology(STAR) else { return };
    for host in ["a", "b", "c", "d"] {
        topology.tool(host, "ethtool -K eth0 gro on tx off");
    }
    let program = env!("CARGO_BIN_EXE_manylane");
    let accelerated = Accelerated::start_with(
        topology.host("r1"),
        program,
        &["pa", "pb", "pc", "pd"],
        &["--port-tier", "pa=driver", "--port-tier", "pb=workers", "--port-tier", "pd=workers"],
    );
    for (name, tier) in [("pa", "driver"), ("pb", "workers"), ("pc", "ingress"), ("pd", "workers")]
    {
        in_tier(&accelerated, name, tier);
    }
    // Until the mirror has heard of all stations, the kernel forwards to those that are left.
    until("each tier forwards", || {
        for from in 1..=4u16 {
            for to in (1..=4u16).filter(|to| *to != from) {
                let host = topology.host(["a", "b", "c", "d"][usize::from(from) - 1]);
                all_answered(host, Ipv4Addr::new(10, to as u8, 0, 1).into(), 56);
                let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, to, 0, 0, 0, 0, 1);
                all_answered(host, ipv6.into(), 1200);
            }
        }
        let [b, d] = ["pb", "pd"].map(|name| accelerated.port(name).tiers["workers"]);
        match accelerated.ledger() {
            ledger if ledger.tiers["ingress"] > 0 && b > 0 && d > 0 => Ok(()),
            ledger => Err(format!("{ledger:#?}")),
        }
    });
    accelerated.assert_balanced();
    let ledger = accelerated.ledger();
    println!("{ledger:#?}");
    assert!(ledger.dropped.is_empty(), "{ledger:#?}");
    let [b, d, c, a] = ["pb", "pd", "pc", "pa"].map(|name| accelerated.port(name));
    assert!(b.tiers["workers"] > 0 && d.tiers["workers"] > 0, "{b:#?}\n{d:#?}");
    assert_eq!((a.tiers["workers"], c.tiers["workers"]), (0, 0), "{a:#?}\n{c:#?}");
}

/// Each queue has its worker, and each flow one queue: none is reordered, and both workers work.
#[test]
fn two_workers_have_a_queue_each() {
    let Some(topology) = plain_hosts(IN_A_ROW_BY_TWO_QUEUES) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let accelerated = start(&topology, &["--tier", "workers", "--workers", "2"]);
    for name in ["lan", "wan"] {
        let port = by_workers(&accelerated, name);
        let said = |what: &str| port.tier_reasons.iter().any(|reason| reason.what == what);
        assert!(said("2 queues, 2 workers"), "{port:#?}");
    }
    let streams: Vec<_> = (0..8)
        .map(|number| {
            let to = if number % 2 == 0 { SERVER_V4 } else { SERVER_V6 };
            let options = SteadyOptions { per_second: 500, ..SteadyOptions::to(to) };
            Steady::start(client, server, options).expect("sockets are to be had")
        })
        .collect();
    is_forwarded_by(&accelerated, "workers");
    let ran = || ["worker 0", "worker 1"].map(|name| switches(accelerated.pid(), name));
    let before = ran();
    for stream in &streams {
        let mark = stream.mark();
        stream.after(250);
        let seen = stream.arrives("by two workers");
        assert_eq!((stream.missing(mark..seen), stream.arrivals().late), (0, 0));
    }
    let after = ran();
    println!("{before:?} to {after:?} sleeps");
    drop(streams);
    accelerated.assert_balanced();
    // Asleep between two packets, or hardly ever: 4000 a second arrive.
    assert!(before.iter().zip(&after).all(|(before, after)| after > &(before + 100)));
}

/// Named, never chosen by `auto`, and shown with the reason where it cannot be.
#[test]
fn what_cannot_be_the_workers_is_told() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for (host, interface) in [("server", "eth0"), ("r1", "wan")] {
        topology.tool(host, &format!("ip link set {interface} mtu 9000"));
    }
    let accelerated = start(&topology, &["--port-tier", "wan=workers"]);
    let wan = accelerated.wait_for_tier("wan", "ingress");
    let says = |port: &AcceleratedPort, what: &str| {
        port.tier_reasons.iter().any(|reason| reason.what.contains(what))
    };
    assert!(says(&wan, "the MTU of wan is 9000"), "{wan:#?}");
    assert_eq!(accelerated.port("lan").wanted_tier, "auto");
    let program = env!("CARGO_BIN_EXE_manylane");
    let doctor = topology.try_tool("r1", &format!("{program} doctor lan wan"));
    let doctor = doctor.expect("all may be accelerated");
    assert!(doctor.contains("the MTU of wan is 9000"), "{doctor}");
    let plan = format!("{program} accelerate lan wan --dry-run --tier workers");
    let plan = topology.tool("r1", &plan);
    let tier = |name: &str| {
        let of_port = |line: &&str| line.starts_with(name);
        plan.lines().find(of_port).and_then(|line| line.split_whitespace().nth(1))
    };
    assert_eq!((tier("lan"), tier("wan")), (Some("workers"), Some("ingress")), "{plan}");
    for (host, interface) in [("server", "eth0"), ("r1", "wan")] {
        topology.tool(host, &format!("ip link set {interface} mtu 1500"));
    }
    by_workers(&accelerated, "wan");
    // A shaper would be skipped; and is not.
    topology.tool("r1", "tc qdisc add dev wan root tbf rate 1gbit burst 1mb latency 50ms");
    until("wan is not sent by", || match accelerated.port("wan") {
        port if port.egress_tier == "ingress" && says(&port, "qdisc tbf") => Ok(()),
        port => Err(format!("{port:#?}")),
    });
    topology.tool("r1", "tc qdisc delete dev wan root");
    by_workers(&accelerated, "wan");
    topology.tool("r1", "ip link set wan down");
    accelerated.wait_for_tier("wan", "kernel");
    topology.tool("r1", "ip link set wan up");
    by_workers(&accelerated, "wan");
    // Gone, and another one of its name.
    topology.tool("r1", "ip link del wan");
    accelerated.wait_for_tier("wan", "kernel");
    topology
        .connect(
            "r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64",
        )
        .expect("the name is free");
    topology.tool("server", "ethtool -K eth0 tx off");
    topology.tool("server", "ip route replace default via 10.2.0.254");
    by_workers(&accelerated, "wan");
    set(&accelerated, "lan", "workers");
    by_workers(&accelerated, "lan");
    // Until the new one's neighbour is known, the kernel has packets to it.
    until("packets are forwarded by workers", || {
        all_answered(topology.host("client"), SERVER_V4, 56);
        let ledger = accelerated.ledger();
        if ledger.tiers["workers"] > 0 { Ok(()) } else { Err(format!("{ledger:#?}")) }
    });
    accelerated.assert_balanced();
    let mut refused =
        Accelerated::spawn(topology.host("server"), program, &["eth0"], &["--workers", "0"]);
    assert!(!refused.wait().success(), "{}", refused.said());
    let mut refused =
        Accelerated::spawn(topology.host("server"), program, &["eth0"], &["--worker-cores", "999"]);
    assert!(!refused.wait().success(), "{}", refused.said());
    assert!(refused.said().contains("core 999 is not ours"), "{}", refused.said());
}

/// Four hosts around a router.
const STAR: &str = "
    host a via 10.1.0.254 2001:db8:1::fe
    host b via 10.2.0.254 2001:db8:2::fe
    host c via 10.3.0.254 2001:db8:3::fe
    host d via 10.4.0.254 2001:db8:4::fe
    router r1
    link a:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:pa 10.1.0.254/24 2001:db8:1::fe/64
    link b:eth0 10.2.0.1/24 2001:db8:2::1/64 -- r1:pb 10.2.0.254/24 2001:db8:2::fe/64
    link c:eth0 10.3.0.1/24 2001:db8:3::1/64 -- r1:pc 10.3.0.254/24 2001:db8:3::fe/64
    link d:eth0 10.4.0.1/24 2001:db8:4::1/64 -- r1:pd 10.4.0.254/24 2001:db8:4::fe/64
";

/// Datagrams that another one overtakes when a port changes its tier: what is in a worker's rings, or in a veth's queue
/// while it changes the way by which its ends hand frames over.
const LATE_MAX: u64 = 256;
/// Where packets are lost when ports change their tiers under a load that fills queues: in the workers' rings, and where
/// a veth has no room for its other end.
const LOST_BY_CHANGES: [&str; 6] = [
    "ledger decision_changed",
    "ledger worker_full",
    "ledger worker_unsent",
    "ledger worker_lost",
    "r1 lan tx_dropped",
    "r1 wan tx_dropped",
];
/// Packets that may be dropped by ten such changes: one leaves all to the kernel, which may not have back what is in the
/// rings of both ports.
const DROPPED_MAX: u64 = 2 * 1024;
