//! Samples for sFlow collectors: sums at the collector are those of the packets, in each tier and of what is left to the
//! kernel, and each sample tells the packet's way. Needs root.

mod decoder;

use std::io::Write as _;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;

pub use decoder::assert_near;
use decoder::{Collector, Flow};
use manylane_api::Client;
use manylane_api::accelerate::{ExportStatus, SflowStatus};
use manylane_io::interface::Interface;
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts, topology};
use manylane_lab::generator::VlanLink;
use manylane_lab::scenario::{all_answered, has};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, Rules, SERVER_V4, SERVER_V6, Topology, WAN_V4, WAN_V6, udp_stream, until,
};

use super::nfdump::Nfdump;
use super::tshark::Tshark;

#[test]
fn sums_at_the_collector_are_those_of_the_packets_at_ingress() {
    sums_are_right("ingress");
}

#[test]
fn sums_at_the_collector_are_those_of_the_packets_in_the_driver() {
    sums_are_right("driver");
}

#[test]
fn sums_at_the_collector_are_those_of_the_packets_by_workers() {
    sums_are_right("workers");
}

/// By the tier, one packet in ten: 10,000 packets of each family, 2,000 by a router, and some that no route is for.
fn sums_are_right(tier: &str) {
    let Some((topology, mut collector)) = hosts() else { return };
    let nfdump = Nfdump::start((topology.host("server"), SERVER_V4), "sfcapd", 6343);
    let arguments = ["--tier", tier, "--sflow-rate", "20", "--sflow-polling", "1"];
    let accelerated = start(&topology, &[&arguments[..], &COLLECTORS].concat());
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for name in ["lan", "wan"] {
        accelerated.wait_for_tier(name, tier);
    }
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(client, to, 56);
    }
    set_rate(&accelerated, "10");
    settle(&accelerated, &mut collector);
    collector.forget();

    let before = accelerated.port("lan").tiers[tier];
    for (to, slices) in [(SERVER_V4, 5), (SERVER_V6, 5), (BEHIND, 1)] {
        for _ in 0..slices {
            let report = udp_stream(client, server, to, SLICE, SIZE, 0);
            let report = report.expect("they have sockets");
            assert_eq!(report.sent, report.received, "{report:?}");
            // A socket has room for the samples of one slice, not of all.
            settle(&accelerated, &mut collector);
            nfdump.iter().for_each(|nfdump| nfdump.wait_until_read(server));
        }
    }
    let forwarded = accelerated.port("lan").tiers[tier] - before;
    assert!(forwarded > 21_000, "by {tier}: {forwarded}");
    client.run(|| {
        let socket = UdpSocket::bind("10.1.0.1:0").expect("the address is there");
        for _ in 0..5000 {
            socket.send_to(&[0; SIZE], SocketAddr::from((NOWHERE, 7))).expect("it has a route");
        }
    });
    let no_route = accelerated.port("lan").passed["no_route"];
    assert!(no_route > 1000, "left to the kernel: {no_route}");
    settle(&accelerated, &mut collector);

    let lan = index(&topology, "lan");
    let wan = index(&topology, "wan");
    for (to, packets, output, route) in [
        (SERVER_V4, 10_000, wan, Some(("0.0.0.0", 24, 24))),
        (SERVER_V6, 10_000, wan, Some(("::", 64, 64))),
        (BEHIND, 2000, wan, Some(("10.2.0.1", 24, 16))),
        (NOWHERE, no_route, 1 << 30 | 6, None),
    ] {
        let flows = collector.udp_to(to);
        let sum: u64 = flows.iter().map(|flow| u64::from(flow.rate)).sum();
        assert_near(sum, packets, 10, &format!("{tier}, to {to}"));
        let route = route.map(|(hop, from, to)| (hop.parse().expect("an address"), from, to));
        let len = SIZE as u32 + if to.is_ipv4() { 14 + 20 + 8 + 4 } else { 14 + 40 + 8 + 4 };
        for flow in flows {
            assert_eq!((flow.input, flow.rate, flow.drops), (lan, 10, 0), "{flow:?}");
            assert_eq!(flow.frame_len, len, "{flow:?}");
            // Where the kernel forwarded, nothing is known of the way.
            if flow.output != 0 {
                assert_eq!((flow.output, flow.router), (output, route), "{flow:?}");
            }
        }
    }
    assert_eq!(collector.agents, ["10.2.0.254".parse::<IpAddr>().expect("an address")]);
    let reports = collector.discarded.iter().filter(|one| (one.0, one.1) == (lan, 6)).count();
    assert!((1..=500).contains(&reports), "{reports} of {no_route}");
    until("counters tell of all packets", || {
        collector.read();
        let last = collector.counters.iter().rev().find(|one| one.0 == lan);
        match last {
            Some((_, bytes, packets, _)) if *packets > 22_000 && *bytes > 22_000 * 142 => Ok(()),
            last => Err(format!("{last:?}")),
        }
    });
    let status: ExportStatus = accelerated.ask(EXPORT);
    let [fine, six, refused] = &status.collectors[..] else { panic!("{status:#?}") };
    assert_eq!((fine.lost_messages, six.lost_messages), (0, 0), "{status:#?}");
    assert!(refused.refused_messages > 0, "{status:#?}");
    is_shown(&topology, &accelerated, no_route);
    for (to, sum) in nfdump.map(|nfdump| sums(nfdump, &topology)).into_iter().flatten() {
        assert_near(sum, if to == BEHIND { 2000 } else { 10_000 }, 10, &format!("nfdump: {to}"));
    }
}

/// An interface that the kernel keeps has the program for its samples alone.
#[test]
fn interfaces_that_the_kernel_keeps_are_sampled() {
    let Some((topology, mut collector)) = hosts() else { return };
    let arguments = ["--tier", "kernel", "--sflow-rate", "10", "--sflow", "[2001:db8:1::1]"];
    let accelerated = start(&topology, &arguments);
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for (to, slices) in [(SERVER_V4, 5), (SERVER_V6, 5)] {
        for _ in 0..slices {
            let report = udp_stream(client, server, to, SLICE, SIZE, 0);
            let report = report.expect("they have sockets");
            assert_eq!(report.sent, report.received, "{report:?}");
            settle(&accelerated, &mut collector);
        }
    }
    let ports = accelerated.ports();
    assert!(ports.iter().all(|port| port.tier == "kernel"), "{ports:#?}");
    let lan = index(&topology, "lan");
    for to in [SERVER_V4, SERVER_V6] {
        let flows = collector.udp_to(to);
        assert!(flows.iter().all(|flow| (flow.input, flow.output) == (lan, 0)), "{flows:#?}");
        let sum: u64 = flows.iter().map(|flow| u64::from(flow.rate)).sum();
        assert_near(sum, 10_000, 10, &format!("in the kernel, to {to}"));
    }
}

/// One packet in one is more than the exporter's ring holds: `drops` says how many samples are missing.
#[test]
fn lost_samples_are_told() {
    let Some((topology, mut collector)) = hosts() else { return };
    let accelerated = start(&topology, &[&["--sflow-rate", "1"][..], &COLLECTORS].concat());
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    all_answered(client, SERVER_V4, 56);
    each_is_a_sample_or_lost(&topology, &accelerated, &mut collector, || {
        udp_stream(client, server, SERVER_V4, 40_000, SIZE, 0).expect("they have sockets");
    });
}

/// The kernel receives a hundred segments and more as one packet, and not all of them are sent as samples.
#[test]
fn segments_without_a_sample_are_lost_samples() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let address = "[2001:db8:1::1]:6343".parse().expect("an address");
    let mut collector = Collector::bind(topology.host("client"), address);
    // The server wants small segments.
    topology.tool("server", "ip route add 10.1.0.0/24 via 10.2.0.254 advmss 400");
    let arguments = ["--tier", "ingress", "--sflow-rate", "1", "--sflow", "[2001:db8:1::1]"];
    let accelerated = start(&topology, &arguments);
    each_is_a_sample_or_lost(&topology, &accelerated, &mut collector, || {
        echo(&topology, SERVER_V4, 4)
    });
}

/// Has packets sent until samples are lost; the last sample tells how many.
fn each_is_a_sample_or_lost(
    topology: &Topology,
    accelerated: &Accelerated,
    collector: &mut Collector,
    send: impl Fn(),
) {
    let status = until("samples are lost", || {
        send();
        settle(accelerated, collector);
        all_answered(topology.host("client"), SERVER_V4, 56);
        match settle(accelerated, collector) {
            status if status.ports[0].lost > 0 => Ok(status),
            status => Err(format!("{status:#?}")),
        }
    });
    let lan = index(topology, "lan");
    let of_lan: Vec<_> = collector.flows.iter().filter(|flow| flow.input == lan).collect();
    let last = of_lan.last().expect("some");
    let port = &status.ports[0];
    assert_eq!((u64::from(last.drops), u64::from(last.pool)), (port.lost, port.pool), "{last:?}");
    assert_eq!(of_lan.len() as u64 + port.lost, port.pool, "each packet is a sample or lost");
}

#[test]
fn a_translated_packet_is_sampled_with_both_its_ends() {
    let Some((topology, mut collector)) = hosts() else { return };
    let rules = Rules::Masquerade.load(topology.host("r1"), ["lan", "wan"]);
    rules.expect("nft loads them");
    let accelerated = start(&topology, &[&["--sflow-rate", "5"][..], &COLLECTORS].concat());
    for ends in [[CLIENT_V4, WAN_V4, SERVER_V4], [CLIENT_V6, WAN_V6, SERVER_V6]] {
        is_translated(&topology, &accelerated, &mut collector, ends);
    }
    by_tshark(&collector);
}

/// tshark finds the same samples, and nothing malformed.
fn by_tshark(collector: &Collector) {
    if !has("tshark") {
        return;
    }
    let datagrams = collector.datagrams.iter().map(Vec::as_slice);
    let tshark = Tshark::of(6343, "sflow", datagrams);
    tshark.assert_well_formed();
    let text = tshark.fields(&["sflow_245.numsamples", "sflow_245.header_protocol"]);
    let columns = text.lines().filter_map(|line| line.split_once('|'));
    let (mut samples, mut headers) = (0, 0);
    for (number, protocols) in columns {
        samples += number.parse::<usize>().unwrap_or_else(|_| panic!("{text}"));
        headers += protocols.split(',').filter(|protocol| *protocol == "1").count();
    }
    let Collector { flows, counters, discarded, .. } = collector;
    assert_eq!(samples, flows.len() + counters.len() + discarded.len());
    assert_eq!(headers, flows.len(), "headers of Ethernet frames");
}

/// A frame of a VLAN that the router does not have: the kernel's, in each tier, and sampled with its tag.
#[test]
fn a_tagged_frame_is_sampled_with_its_tag() {
    for tier in ["ingress", "driver"] {
        let Some(topology) = plain_hosts(IN_A_ROW) else { return };
        let address = SocketAddr::new(SERVER_V4, 6343);
        let mut collector = Collector::bind(topology.host("server"), address);
        let arguments = ["--tier", tier, "--sflow-rate", "1", "--sflow", "10.2.0.1"];
        let accelerated = start(&topology, &arguments);
        let client = topology.host("client");
        // Else the driver's program does not see tags (docs/tiers.md).
        topology.tool("client", "ethtool -K eth0 txvlan off");
        all_answered(client, SERVER_V4, 56);
        let _in_vlan = client.run(|| {
            let interface = Interface::read("eth0").expect("it was made");
            VlanLink::attach(&interface, (0x8100, 100), None).expect("root may")
        });
        client.run(|| {
            let socket = UdpSocket::bind("10.1.0.1:0").expect("the address is there");
            for _ in 0..50 {
                socket.send_to(&[0; SIZE], (SERVER_V4, 7)).expect("it has a route");
            }
        });
        let lan = index(&topology, "lan");
        let is_tagged = |flow: &&Flow| flow.header.get(12..16) == Some(&[0x81, 0, 0, 100]);
        let tagged = until("all tagged frames are sampled", || {
            settle(&accelerated, &mut collector);
            let tagged: Vec<_> = collector.flows.iter().filter(is_tagged).cloned().collect();
            if tagged.len() >= 50 { Ok(tagged) } else { Err(format!("{}", tagged.len())) }
        });
        for flow in tagged {
            assert_eq!((flow.input, flow.output, flow.rate), (lan, 0, 1), "{tier}: {flow:?}");
            assert_eq!(flow.switch, Some([100, 0, 0, 0]), "{tier}: {flow:?}");
        }
    }
}

/// A connection of the client's, with the router's address at the server.
fn is_translated(
    topology: &Topology,
    accelerated: &Accelerated,
    collector: &mut Collector,
    [inside, outside, server]: [IpAddr; 3],
) {
    let [lan, wan] = ["lan", "wan"].map(|name| index(topology, name));
    let [there, back] = until("both directions are sampled with their new ends", || {
        echo(topology, server, 64);
        settle(accelerated, collector);
        let with =
            |new: [IpAddr; 2]| collector.flows.iter().find(|flow| flow.nat == Some(new)).cloned();
        match [with([outside, server]), with([server, inside])] {
            [Some(there), Some(back)] => Ok([there, back]),
            _ => Err(format!("{:#?}", accelerated.ports())),
        }
    });
    assert_eq!([(there.input, there.output), (back.input, back.output)], [(lan, wan), (wan, lan)]);
    // Of the source in a header, of its length, and of the ports.
    let (at, len, ports) = if server.is_ipv4() { (26, 4, 34) } else { (22, 16, 54) };
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let received = |[source, destination]: [IpAddr; 2]| [octets(source), octets(destination)];
    for (flow, ends) in [(&there, [inside, server]), (&back, [server, outside])] {
        assert_eq!(flow.header[at..at + 2 * len], received(ends).concat(), "as received");
    }
    let port =
        |flow: &Flow, at: usize| u32::from(flow.header[at]) << 8 | u32::from(flow.header[at + 1]);
    assert_eq!(there.nat_ports.map(|new| new[1]), Some(port(&there, ports + 2)), "{there:?}");
    assert_eq!(back.nat_ports.map(|new| new[0]), Some(port(&back, ports)), "{back:?}");
}

#[test]
fn arguments_that_cannot_be_are_refused_by_name() {
    for (arguments, expected) in [
        (&["--sflow", "127.0.0.1", "--sflow-rate", "0"][..], "one packet in 0 cannot be sampled"),
        (&["--sflow", "no-such-host.invalid"], "does not resolve"),
        (&["--sflow", "127.0.0.1", "--sflow", "127.0.0.1:6343"], "have one address"),
        (&["--sflow", "tcp://127.0.0.1"], "no transport that manylane knows"),
        (&["--sflow", "127.0.0.1", "--sflow-port-rate", "eth9=5"], "none of the interfaces"),
        (&["--sflow-rate", "5"], "--sflow <HOST[:PORT]>"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_manylane"))
            .args(["accelerate", "lan", "wan", "--socket", "/nonexistent/api.sock"])
            .args(arguments)
            .output();
        let output = output.expect("it is built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    }
}

/// The command shows collectors and ports, and metrics have the same numbers.
fn is_shown(topology: &Topology, accelerated: &Accelerated, discarded: u64) {
    let socket = accelerated.socket();
    let program = env!("CARGO_BIN_EXE_manylane");
    let shown =
        topology.tool("r1", &format!("{program} show export --socket {}", socket.display()));
    for part in ["udp://10.2.0.1:9", "sflow", "sFlow agent 10.2.0.254", "every 1 s", "\nlan "] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("Observation domain"), "{shown}");
    let sflow = until("each discarded packet is reported or counted", || {
        let sflow = sflow(accelerated);
        let unreported: u64 = sflow.ports.iter().map(|port| port.unreported).sum();
        let all = sflow.discarded + sflow.unreported + unreported;
        if all == discarded { Ok(sflow) } else { Err(format!("{all} of {discarded}: {sflow:#?}")) }
    });
    let port = sflow.ports.iter().find(|port| port.name == "lan").expect("it is one");
    let metrics = Client::new(&socket).ask_text("/metrics").expect("it answers");
    for line in [
        format!("manylane_sflow_port_pool_packets_total{{port=\"lan\"}} {}", port.pool),
        "manylane_collector_lost_records_total{collector=\"udp://10.2.0.1:6343\",protocol=\"sflow\"} 0"
            .into(),
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
}

/// Three hosts, and a collector at the client's.
fn hosts() -> Option<(Topology, Collector)> {
    let topology = plain_hosts(IN_A_ROW)?;
    topology.tool("server", "ip address add 10.3.0.1/32 dev lo");
    topology.tool("r1", "ip route add 10.3.0.0/16 via 10.2.0.1");
    let address = "[2001:db8:1::1]:6343".parse().expect("an address");
    let collector = Collector::bind(topology.host("client"), address);
    Some((topology, collector))
}

fn start(topology: &Topology, arguments: &[&str]) -> Accelerated {
    let program = env!("CARGO_BIN_EXE_manylane");
    Accelerated::start_with(topology.host("r1"), program, &["lan", "wan"], arguments)
}

fn set_rate(accelerated: &Accelerated, rate: &str) {
    let path = "/v1/config/port.lan.sflow_rate";
    accelerated.put::<serde_json::Value>(path, rate).expect("it is a rate");
    let refused = accelerated.put::<serde_json::Value>(path, "0").expect_err("it is none");
    assert!(refused.to_string().contains("one packet in 0"), "{refused}");
}

/// A connection of the client's, blocks of 64 KiB there and back. (`tcp_transfer` wants the client's own address.)
fn echo(topology: &Topology, server: IpAddr, blocks: u64) {
    let bind = move || TcpListener::bind((server, 0));
    let listener = topology.host("server").run(bind).expect("the address is there");
    let to = listener.local_addr().expect("it is bound");
    let near =
        topology.host("client").run(move || TcpStream::connect(to)).expect("the router forwards");
    let (far, _) = listener.accept().expect("it is connected");
    thread::scope(|scope| {
        scope.spawn(|| {
            std::io::copy(&mut &far, &mut &far).and_then(|_| far.shutdown(Shutdown::Write))
        });
        scope.spawn(|| {
            for _ in 0..blocks {
                (&near).write_all(&[7; 1 << 16]).expect("it is open");
            }
            near.shutdown(Shutdown::Write).expect("it is open");
        });
        let back = std::io::copy(&mut &near, &mut std::io::sink()).expect("it is open");
        assert_eq!(back, blocks << 16);
    });
}

fn sflow(accelerated: &Accelerated) -> SflowStatus {
    let status: ExportStatus = accelerated.ask(EXPORT);
    status.sflow.expect("there are collectors")
}

/// Waits until the collector has all samples, and no more are made.
fn settle(accelerated: &Accelerated, collector: &mut Collector) -> SflowStatus {
    let mut before = u64::MAX;
    until("the collector has all samples", || {
        let status = sflow(accelerated);
        let pool: u64 = status.ports.iter().map(|port| port.pool).sum();
        let noted: u64 = status.ports.iter().map(|port| port.noted).sum();
        let is_still = std::mem::replace(&mut before, pool) == pool;
        collector.read();
        let received = collector.total + collector.flows.len() as u64;
        if is_still && noted == status.samples && received == noted {
            return Ok(status);
        }
        Err(format!("{received} samples received; {status:#?}"))
    })
}

fn index(topology: &Topology, name: &str) -> u32 {
    let name = name.to_owned();
    let read = move || Interface::read(&name);
    topology.host("r1").run(read).expect("it is there").index
}

/// The packets to each address, as nfdump adds samples up.
fn sums(mut nfdump: Nfdump, topology: &Topology) -> Vec<(IpAddr, u64)> {
    nfdump.end(topology.host("server"));
    let sum = |to: IpAddr| {
        let filter = format!("proto udp and dst ip {to}");
        let text = nfdump.print(&["-q", "-N", "-A", "dstip", "-o", "fmt:%pkt", &filter]);
        let sum = text.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum();
        (to, sum)
    };
    [SERVER_V4, SERVER_V6, BEHIND].map(sum).into()
}

/// A real collector, ours, and one that is not there.
const COLLECTORS: [&str; 6] =
    ["--sflow", "10.2.0.1", "--sflow", "udp://[2001:db8:1::1]", "--sflow", "10.2.0.1:9"];
const SIZE: usize = 100;
/// Packets.
const SLICE: u64 = 2000;
const EXPORT: &str = "/v1/accelerate/export";
/// Behind the server, which is the router to it.
const BEHIND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 1));
/// No route of the router's leads there.
const NOWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));
