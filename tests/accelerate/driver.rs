//! The driver tier, set by name on veth: forwarded in the driver, changed while traffic flows, left where a device
//! does not keep its word, and told.
//!
//! The hosts' ends have GRO, without which a veth takes nothing that is redirected, and fill in their checksums
//! themselves: a veth's driver does not see that they are still to be. Needs root.

use std::sync::Mutex;
use std::thread;

use crate::account::{Account, count_all_packets};
use manylane_api::Setting;
use manylane_api::accelerate::{AcceleratedFlow, AcceleratedFlows};
use manylane_lab::accelerated::{
    Accelerated, IN_A_ROW, IN_A_ROW_BY_TWO_QUEUES, plain_hosts, topology,
};
use manylane_lab::scenario::all_answered;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Steady, SteadyOptions, TcpTransfer, Topology,
    TransferEnd, ping, tcp_transfer, udp_stream, until,
};
use nix::sys::signal::Signal;

#[test]
fn packets_are_forwarded_in_the_driver_and_counted_once() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, &["--tier", "driver"]);
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for name in ["lan", "wan"] {
        let port = in_driver(&accelerated, name);
        assert!(port.tier_reasons[0].what.contains("software device"), "{port:#?}");
    }
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
    let ledger = accelerated.ledger();
    println!("{ledger:#?}");
    assert!(ledger.tiers["driver"] > 10_000, "{ledger:#?}");
    assert!(ledger.tiers["driver"] > 5 * ledger.tiers["ingress"], "{ledger:#?}");
    accelerated.assert_balanced();
    accelerated.wait_for_no_difference();
}

/// Every tier to every other, while a connection and a stream run.
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
        let mut changes = 0;
        for tier in [
            "driver", "ingress", "driver", "kernel", "driver", "auto", "kernel", "ingress",
            "driver",
        ] {
            let (mark, late) = (stream.mark(), stream.arrivals().late);
            for name in ["lan", "wan"] {
                set(&accelerated, name, tier);
            }
            let shown = if tier == "auto" { "ingress" } else { tier };
            for name in ["lan", "wan"] {
                accelerated.wait_for_tier(name, shown);
            }
            if tier == "driver" {
                both_in(&accelerated, "driver");
            }
            let before = forwarded_by(&accelerated, shown);
            stream.after(500);
            if shown != "kernel" {
                // The connection has nearly all packets.
                let is_it = |flow: &AcceleratedFlow| {
                    flow.by == shown
                        && flow.port == "lan"
                        && flow.flow.contains("> [2001:db8:2::1]:")
                };
                // On a busy machine the lease may lapse for a moment: then the kernel has them.
                until(&format!("the connection is forwarded by {tier}"), || {
                    let flows = accelerated.post::<AcceleratedFlows>("/v1/accelerate/flows");
                    let flows = flows.expect("it answers");
                    if flows.flows.iter().any(is_it) { Ok(()) } else { Err(format!("{flows:#?}")) }
                });
            }
            let seen = stream.arrives(tier);
            let late = stream.arrivals().late - late;
            println!(
                "to {tier}: {late} late, {} missing of {}",
                stream.missing(mark..seen),
                seen - mark
            );
            assert!(late <= LATE_MAX, "{late} came late when it changed to {tier}");
            if shown != "kernel" {
                assert!(
                    forwarded_by(&accelerated, shown) > before,
                    "nothing was forwarded by {tier}"
                );
            }
            changes += 1;
        }
        drop(end);
        let report = connection.join().expect("it does not panic").expect("sockets are to be had");
        println!(
            "{changes} changes; TCP: {} and {} bytes",
            report.up.received, report.down.received
        );
        assert!(report.is_intact(), "{report:?}");
        assert!(report.up.received > 1 << 20, "{report:?}");
    });
    drop(stream);
    accelerated.assert_balanced();
    // Both send as fast as the other takes: a veth keeps 256 frames for its other end. What a queue of the router has
    // when the driver's program leaves, its veth frees.
    let fate = before.settle(&FULL_VETH, || Account::now(&topology, Some(&accelerated)));
    assert!(fate.missing <= MISSING_MAX, "{fate:#?}");
}

/// The features lie after the peer's GRO was switched off while it was down. What is lost until that is found out is one
/// turn of the driver; then the ingress tier forwards the packets, until the kernel notifies of a change of the link.
#[test]
fn a_device_that_does_not_keep_its_word_is_left_at_once() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, &["--tier", "driver"]);
    in_driver(&accelerated, "wan");
    for line in [
        "ip link set eth0 down",
        "ethtool -K eth0 gro off",
        "ip link set eth0 up",
        "ip route replace default via 10.2.0.254",
    ] {
        topology.tool("server", line);
    }
    count_all_packets(&topology);
    // All of that was said; the tier is promoted again, since the features say that it may be.
    in_driver(&accelerated, "wan");
    let before = Account::now(&topology, Some(&accelerated));
    let stream = steady(&topology);
    let port = until("the failure is found", || match accelerated.port("wan") {
        port if port.egress_tier == "ingress" => Ok(port),
        port => Err(format!("{port:#?}")),
    });
    let said = port.tier_reasons.iter().any(|reason| reason.what.contains("refused frames"));
    assert!(said, "{port:#?}");
    let mark = stream.arrives("by the other way");
    let end = stream.after(1000);
    let seen = stream.arrives("by the other way");
    let missing = stream.missing(0..mark);
    assert_eq!(stream.missing(mark..end.min(seen)), 0, "by the other way");
    println!("{missing} of {mark} missing until it was found out");
    drop(stream);
    // The frames that the device refused: one turn of the driver on each CPU at most.
    let places = ["ledger device_dropped"];
    let fate = before.settle(&places, || Account::now(&topology, Some(&accelerated)));
    assert!((1..=64).contains(&fate.missing), "{fate:#?}");
    assert_eq!(fate.missing, missing as i64, "{fate:#?}");

    // On, without a notification here; off, and on again while it is up: now it is true.
    topology.tool("server", "ethtool -K eth0 gro on");
    topology.tool("server", "ethtool -K eth0 gro off");
    until("its features are followed", || match accelerated.port("wan") {
        port if port.egress_tier == "ingress"
            && !port.tier_reasons.iter().any(|reason| reason.what.contains("refused")) =>
        {
            Ok(())
        }
        port => Err(format!("{port:#?}")),
    });
    topology.tool("server", "ethtool -K eth0 gro on");
    in_driver(&accelerated, "wan");
    let stream = steady(&topology);
    stream.after(500);
    let seen = stream.arrives("by the driver again");
    assert_eq!(stream.missing(0..seen), 0, "by the driver again");
    assert_eq!(accelerated.port("wan").egress_tier, "driver");
}

/// Without the feature nothing is tried; the direction that may stays.
#[test]
fn what_a_driver_cannot_do_is_left_to_the_other_tiers_and_told() {
    let Some(topology) = plain_hosts(IN_A_ROW_BY_TWO_QUEUES) else { return };
    topology.tool("server", "ethtool -K eth0 gro off");
    // IPv6 keeps its addresses when a link is set down: what comes back has them.
    topology.set("r1", "net/ipv6/conf/all/keep_addr_on_down", "1");
    let accelerated = start(&topology, &["--tier", "driver"]);
    accelerated.wait_for_tier("wan", "driver");
    let port = accelerated.port("wan");
    assert_eq!(port.egress_tier, "ingress", "{port:#?}");
    let told = |name: &str, what: &str| {
        until(&format!("{name} says {what}"), || match accelerated.port(name) {
            port if port.tier_reasons.iter().any(|reason| reason.what.contains(what)) => Ok(()),
            port => Err(format!("{port:#?}")),
        });
    };
    told("wan", "takes no redirected frames");
    traffic(&topology);

    // A VLAN's tags might be beside the bytes.
    topology.tool("server", "ethtool -K eth0 gro on");
    in_driver(&accelerated, "wan");
    // A shaper would be skipped; and is not.
    topology.tool("r1", "tc qdisc add dev wan root tbf rate 1gbit burst 1mb latency 50ms");
    told("wan", "qdisc tbf");
    assert_eq!(accelerated.port("wan").egress_tier, "ingress");
    traffic(&topology);
    topology.tool("r1", "tc qdisc delete dev wan root");
    in_driver(&accelerated, "wan");

    // Down and up, another MTU, and the fast way again.
    topology.tool("r1", "ip link set wan down");
    accelerated.wait_for_tier("wan", "kernel");
    topology.tool("r1", "ip link set wan up");
    topology.tool("r1", "ip link set wan mtu 1400");
    topology.tool("server", "ip link set eth0 mtu 1400");
    topology.tool("server", "ethtool -L eth0 tx 1");
    topology.tool("r1", "ethtool -L wan rx 1 tx 1");
    in_driver(&accelerated, "wan");
    traffic(&topology);
    accelerated.assert_balanced();
}

/// A veth takes no MTU above 3506 while its peer has a program that takes frames in one piece only. The peer is another
/// machine's end of the cable: its MTU is not ours to bound.
#[test]
fn the_peers_mtu_is_not_bounded_by_the_tier() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for tier in ["driver", "workers"] {
        let accelerated = start(&topology, &["--tier", tier]);
        both_in(&accelerated, tier);
        topology.tool("client", "ip link set eth0 mtu 9000");
        both_in(&accelerated, tier);
        let [client, server] = ["client", "server"].map(|name| topology.host(name));
        for to in [SERVER_V4, SERVER_V6] {
            let report = tcp_transfer(client, server, to, 1 << 20).expect("they are to be had");
            assert!(report.is_intact(), "{tier}: {report:?}");
        }
        if tier == "driver" {
            // Larger than the path behind the router: the first packet is answered with the path's MTU.
            topology.tool("r1", "ip link set lan mtu 9000");
            traffic(&topology);
            for to in [SERVER_V4, SERVER_V6] {
                ping(client, to, 8000, 1).expect("sockets are to be had");
                all_answered(client, to, 8000);
            }
            topology.tool("r1", "ip link set lan mtu 1500");
        }
        topology.tool("client", "ip link set eth0 mtu 1500");
        accelerated.assert_balanced();
    }
}

/// Another program in the driver runs, and stays.
#[test]
fn a_place_that_is_taken_is_left_alone() {
    use manylane_io::interface::Interface;
    use manylane_lab::generator::LiveSink;
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let other = topology.host("r1").run(|| {
        let interface = Interface::read("wan").expect("it is there");
        LiveSink::attach(&interface).expect("root may")
    });
    let accelerated = start(&topology, &["--tier", "driver"]);
    accelerated.wait_for_tier("lan", "driver");
    let port = accelerated.port("wan");
    assert_eq!(port.tier, "ingress", "{port:#?}");
    assert!(
        port.tier_reasons.iter().any(|reason| reason.what.contains("XDP program")),
        "{port:#?}"
    );
    drop(other);
    // The accelerator finds this out without a notification.
    accelerated.wait_for_tier("wan", "driver");
}

/// Named, or chosen by `auto`, and shown with the reason.
#[test]
fn every_choice_is_shown_with_its_reason() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, &["--port-tier", "wan=driver"]);
    in_driver(&accelerated, "wan");
    let lan = accelerated.port("lan");
    assert_eq!((lan.tier.as_str(), lan.wanted_tier.as_str()), ("ingress", "auto"), "{lan:#?}");
    assert!(lan.tier_reasons[0].what.contains("a software device (veth)"), "{lan:#?}");
    let refused = |key: &str, value: &str| {
        let put = accelerated.put::<serde_json::Value>(&format!("/v1/config/{key}"), value);
        put.expect_err("it cannot be").to_string()
    };
    assert!(refused("port.eth7.tier", "driver").contains("eth7 is not accelerated"));
    assert!(refused("port.lan.tier", "fast").contains("no tier"));
    assert!(refused("lease", "1").contains("cannot be set"));
    let doctor =
        topology.try_tool("r1", &format!("{} doctor lan wan", env!("CARGO_BIN_EXE_manylane")));
    let doctor = doctor.expect("all may be accelerated");
    assert!(doctor.contains("a software device (veth)"), "{doctor}");
    assert!(!doctor.contains("tier driver"), "it is not offered: {doctor}");
    for (tier, is_warned) in [("driver", true), ("workers", true), ("ingress", false)] {
        let set = accelerated.put::<Setting>("/v1/config/port.lan.tier", tier).expect("it may be");
        let what = format!("the tier is set to {tier}, on a software device (veth)");
        let warns = set.warning.is_some_and(|warning| warning.starts_with(&what));
        assert_eq!(warns, is_warned, "{tier}");
    }
    traffic(&topology);
}

/// Hosts as they are by default leave checksums to a device, and veth is none: their packets pass by `ingress`, and the
/// ports leave the tier. With hosts that fill checksums in, and the tier set again, they are in it.
fn open_checksums(tier: &str) {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for host in ["client", "server"] {
        // As in `plain_hosts`, but for the checksums.
        topology.tool(host, "ethtool -K eth0 gro on");
        topology.set(host, "net/ipv4/tcp_wmem", "4096 65536 65536");
    }
    let accelerated = start(&topology, &["--tier", tier]);
    both_in(&accelerated, tier);
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(client, to, 56); // So that neighbours are known.
        let report = udp_stream(client, server, to, 30, 100, 1000).expect("they are");
        assert!(report.is_perfect(), "{to}: {report:?}");
    }
    both_in(&accelerated, tier);
    // Most of sixty: the first ones may meet a neighbour that is not resolved.
    assert!(accelerated.port("lan").partial_checksums >= 50, "{:#?}", accelerated.port("lan"));
    // Until both have left: what the kernel says of a link, such as that its addresses are ready, makes the port forget
    // what it received before.
    let transfer = || {
        for to in [SERVER_V4, SERVER_V6] {
            let report = tcp_transfer(client, server, to, 1 << 20).expect("sockets are to be had");
            assert!(report.is_intact(), "{to}: {report:?}");
        }
    };
    transfer();
    for name in ["lan", "wan"] {
        let port = until("the port leaves the tier", || match accelerated.port(name) {
            port if port.tier == "ingress" => Ok(port),
            port => {
                transfer();
                Err(format!("{port:#?}"))
            }
        });
        assert_eq!(port.egress_tier, tier, "what leaves is complete: {port:#?}");
        let mut reasons = port.tier_reasons.iter();
        let said = reasons.any(|reason| reason.what.contains("still to be filled in"));
        assert!(said, "{port:#?}");
    }
    traffic(&topology);
    for host in ["client", "server"] {
        topology.tool(host, "ethtool -K eth0 tx off");
    }
    for name in ["lan", "wan"] {
        set(&accelerated, name, tier);
    }
    both_in(&accelerated, tier);
    let (before, open) = (forwarded_by(&accelerated, tier), accelerated.ports());
    traffic(&topology);
    assert!(forwarded_by(&accelerated, tier) > before + 1000, "{:#?}", accelerated.ledger());
    for (port, before) in accelerated.ports().iter().zip(open) {
        // By chance one in 65,535.
        assert!(port.partial_checksums <= before.partial_checksums + 2, "{port:#?}");
    }
    both_in(&accelerated, tier);
    accelerated.assert_balanced();
}

#[test]
fn open_checksums_are_left_to_ingress_by_the_driver() {
    open_checksums("driver");
}

#[test]
fn open_checksums_are_left_to_ingress_before_workers_see_them() {
    open_checksums("workers");
}

/// Killed, stopped: what is left is the kernel.
#[test]
fn whatever_ends_it_the_kernel_forwards() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let stream = steady(&topology);
    stream.arrives("by the kernel");
    drop(stream);
    count_all_packets(&topology);
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGABRT] {
        let before_start = Account::now(&topology, None);
        let stream = steady(&topology);
        let mut accelerated = start(&topology, &["--tier", "driver"]);
        both_in(&accelerated, "driver");
        let before = forwarded_by(&accelerated, "driver");
        until("the driver forwards", || match forwarded_by(&accelerated, "driver") {
            now if now > before => Ok(()),
            now => Err(now),
        });
        let mark = stream.mark();
        accelerated.signal(signal);
        accelerated.wait();
        let seen = stream.arrives(&format!("after {signal}"));
        println!("{signal}: {} of {} missing", stream.missing(mark..seen), seen - mark);
        drop(stream);
        // Nothing but what a veth frees when a program leaves its device.
        let fate = before_start.settle(&[], || Account::now(&topology, None));
        assert!(fate.freed <= 64 && fate.missing == fate.freed, "{signal}: {fate:#?}");
        let links = topology.tool("r1", "ip -d link show wan");
        assert!(!links.contains("xdp"), "{signal}: {links}");
    }
    let accelerated = start(&topology, &["--tier", "driver"]);
    both_in(&accelerated, "driver");
    let stream = steady(&topology);
    let mark = stream.mark();
    accelerated.signal(Signal::SIGSTOP);
    let forwarded = || kernel_forwarded(&topology);
    let before = forwarded();
    until("the kernel forwards while it is stopped", || match forwarded() {
        now if now > before + 100 => Ok(()),
        now => Err(now),
    });
    let seen = stream.arrives("while it is stopped");
    assert_eq!(stream.missing(mark..seen), 0, "while it is stopped");
    accelerated.signal(Signal::SIGCONT);
    let before = forwarded_by(&accelerated, "driver");
    until("the driver forwards again", || match forwarded_by(&accelerated, "driver") {
        now if now > before => Ok(()),
        now => Err(now),
    });
}

fn start(topology: &Topology, arguments: &[&str]) -> Accelerated {
    let program = env!("CARGO_BIN_EXE_manylane");
    Accelerated::start_with(topology.host("r1"), program, &["lan", "wan"], arguments)
}

/// A stream from the client to the server.
fn steady(topology: &Topology) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had")
}

fn set(accelerated: &Accelerated, name: &str, tier: &str) {
    let path = format!("/v1/config/port.{name}.tier");
    // The daemon refuses while its mirror thread has no core for seconds, and may have set the tier then.
    until(&path, || accelerated.put::<serde_json::Value>(&path, tier));
}

/// Waits until both directions of a port are in the driver.
fn in_driver(accelerated: &Accelerated, name: &str) -> manylane_api::accelerate::AcceleratedPort {
    until(&format!("{name} is in the driver"), || match accelerated.port(name) {
        port if port.tier == "driver" && port.egress_tier == "driver" => Ok(port),
        port => Err(format!("{port:#?}")),
    })
}

/// Waits until both directions of both ports are in a tier.
fn both_in(accelerated: &Accelerated, tier: &str) {
    for name in ["lan", "wan"] {
        until(&format!("{name} is in the tier {tier}"), || match accelerated.port(name) {
            port if port.tier == tier && port.egress_tier == tier => Ok(()),
            port => Err(format!("{port:#?}")),
        });
    }
}

fn forwarded_by(accelerated: &Accelerated, tier: &str) -> u64 {
    accelerated.ledger().tiers.get(tier).copied().unwrap_or(0)
}

/// `ForwDatagrams` of the router (proc_pid_net(5)).
fn kernel_forwarded(topology: &Topology) -> u64 {
    let text = topology.host("r1").run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.expect("it is always there");
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let [names, numbers] = [lines.next(), lines.next()].map(|line| line.expect("two lines"));
    let place = names.split(' ').position(|name| name == "ForwDatagrams").expect("it is counted");
    numbers.split(' ').nth(place).and_then(|number| number.parse().ok()).expect("a number")
}

fn traffic(topology: &Topology) {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(client, to, 56);
        let report = tcp_transfer(client, server, to, 1 << 20).expect("sockets are to be had");
        assert!(report.is_intact(), "{report:?}");
    }
}

/// Packets that may be missing after nine such changes: two queues of a veth.
const MISSING_MAX: i64 = 2 * 256;
/// Where packets are lost when a host sends more than a veth keeps for its other end.
const FULL_VETH: [&str; 2] = ["r1 lan tx_dropped", "r1 wan tx_dropped"];
/// Datagrams that another one overtakes when a port changes its tier: those that stand in a veth's queue while it
/// changes the way by which its ends hand frames over.
const LATE_MAX: u64 = 64;
