//! Samples for sFlow collectors: sums at the collectors are those of the ledger, for both families, with one worker and
//! with two; each sample tells the packet's way, and drops are reported. The collectors listen in the router's kernel.

#[path = "../accelerate/sflow/decoder.rs"]
#[allow(dead_code)] // This program uses a part of it.
mod decoder;
#[path = "../accelerate/nfdump.rs"]
#[allow(dead_code)] // As above.
mod nfdump;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

use manylane_api::{Client, ExportStatus, Ledger, PortLedger, Setting, SflowStatus};
use manylane_io::interface::Interface;
use manylane_io::sysctl;
use manylane_lab::generator::VlanLink;
use manylane_lab::scenario::{Running, all_answered, lab};
use manylane_lab::{
    Host, Lab, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tool, udp_stream, until,
};

use decoder::{Collector, assert_near};
use nfdump::Nfdump;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn sums_at_the_collectors_are_those_of_the_ledger() {
    sums_are_right(RouterOptions { more: MORE.into(), ..RouterOptions::default() });
}

/// Each packet is sampled by the worker that forwards it, whichever has received it.
#[test]
fn sums_at_the_collectors_are_those_of_the_ledger_with_two_workers() {
    sums_are_right(RouterOptions {
        workers: 2,
        steering: "flow",
        more: MORE.into(),
        ..RouterOptions::default()
    });
}

/// One packet in ten: 10,000 packets of each family, 2,000 by a router, and some that no route is for.
fn sums_are_right(options: RouterOptions) {
    let Some((lab, mut collector)) = hosts() else { return };
    let nfdump = Nfdump::start((&lab.router, NFDUMP), "sfcapd", 6343);
    let running = Running::start(&lab, MANYLANE, &options);
    let client = running.client();
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, to, 56);
    }
    set_rate(&client, "10");
    settle(&client, &mut collector);
    collector.forget();

    let before = of_lan(&client).received;
    for (to, slices) in [(SERVER_V4, 5), (SERVER_V6, 5), (BEHIND, 1)] {
        for _ in 0..slices {
            let report = udp_stream(&lab.client, &lab.server, to, SLICE, SIZE, 0);
            let report = report.expect("they have sockets");
            assert_eq!(report.sent, report.received, "{report:?}");
            // A socket has room for the samples of one slice, not of all.
            settle(&client, &mut collector);
            nfdump.iter().for_each(|nfdump| nfdump.wait_until_read(&lab.router));
        }
    }
    send_away(&lab, &client);
    settle(&client, &mut collector);
    running.wait_for_balance();

    let received = of_lan(&client).received - before;
    let dropped = dropped(&client);
    let sum: u64 = collector
        .flows
        .iter()
        .filter(|flow| flow.input == index(&lab, "lan"))
        .map(|flow| u64::from(flow.rate))
        .sum();
    assert_near(sum, received, 10, "all that the lan has received");
    routes_are_told(&lab, &collector);
    let sums = [(SERVER_V4, 10_000), (SERVER_V6, 10_000), (BEHIND, 2000)];
    let away = [(NOWHERE, dropped[0]), (BLACKHOLE, dropped[1])];
    for (to, packets) in sums.into_iter().chain(away) {
        let sum = collector.udp_to(to).iter().map(|flow| u64::from(flow.rate)).sum();
        assert_near(sum, packets, 10, &format!("to {to}"));
    }
    assert_eq!(collector.agents, ["127.0.0.1".parse::<IpAddr>().expect("an address")]);
    drops_are_reported(&lab, &mut collector, &client);
    counters_are_sent(&lab, &mut collector);
    is_shown(&running);
    for (to, sum) in nfdump.map(|nfdump| by_nfdump(nfdump, &lab)).into_iter().flatten() {
        let packets = if to == BEHIND { 2000 } else { 10_000 };
        assert_near(sum, packets, 10, &format!("nfdump: {to}"));
    }
    assert!(running.terminate().0.success());
}

/// Each sample has the packet's length, ingress and egress, next hop and prefixes.
fn routes_are_told(lab: &Lab, collector: &Collector) {
    let (lan, wan) = (index(lab, "lan"), index(lab, "wan"));
    for (to, output, route) in [
        (SERVER_V4, wan, Some(("0.0.0.0", 24, 24))),
        (SERVER_V6, wan, Some(("::", 64, 64))),
        (BEHIND, wan, Some(("10.2.0.1", 24, 16))),
        (NOWHERE, 1 << 30 | 6, None),
        (BLACKHOLE, 1 << 30 | 269, None),
    ] {
        let route = route.map(|(hop, from, to)| (hop.parse().expect("an address"), from, to));
        let len = SIZE as u32 + if to.is_ipv4() { 14 + 20 + 8 + 4 } else { 14 + 40 + 8 + 4 };
        let flows = collector.udp_to(to);
        assert!(!flows.is_empty(), "{to}");
        for flow in flows {
            assert_eq!((flow.input, flow.rate, flow.drops), (lan, 10, 0), "{flow:?}");
            assert_eq!((flow.frame_len, flow.switch), (len, None), "{flow:?}");
            assert_eq!((flow.output, flow.router), (output, route), "{flow:?}");
        }
    }
}

/// Each dropped packet is reported or counted, at most a hundred in a second.
fn drops_are_reported(lab: &Lab, collector: &mut Collector, client: &Client) {
    until("each dropped packet is reported or counted", || {
        let status = settle(client, collector);
        let ledger: Ledger = client.ask("/v1/ledger").expect("it answers");
        let dropped: u64 = REPORTED.iter().filter_map(|reason| ledger.dropped.get(*reason)).sum();
        let unreported: u64 = status.ports.iter().map(|port| port.unreported).sum();
        let all = status.discarded + status.unreported + unreported;
        if all == dropped { Ok(()) } else { Err(format!("{all} of {dropped}: {status:#?}")) }
    });
    // Of two workers, one may have had all the room of a second.
    let lan = index(lab, "lan");
    let is_ours = |one: &&(u32, u32, u32)| one.0 == lan && [6, 269].contains(&one.1);
    let reports = collector.discarded.iter().filter(is_ours).count();
    assert!((1..=1000).contains(&reports), "{reports}");
}

fn counters_are_sent(lab: &Lab, collector: &mut Collector) {
    let lan = index(lab, "lan");
    until("counters tell of all packets", || {
        collector.read();
        let last = collector.counters.iter().rev().find(|one| one.0 == lan);
        match last {
            Some((_, bytes, packets, _)) if *packets > 22_000 && *bytes > 22_000 * 142 => Ok(()),
            last => Err(format!("{last:?}")),
        }
    });
}

/// The command shows collectors and ports, and metrics have the same numbers.
fn is_shown(running: &Running) {
    let socket = running.socket().display().to_string();
    let shown = Command::new(MANYLANE).args(["show", "export", "--socket", &socket]).output();
    let shown = String::from_utf8(shown.expect("it is built").stdout).expect("it is text");
    for part in ["udp://127.0.0.1:9", "sflow", "sFlow agent 127.0.0.1", "every 1 s", "\nlan "] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("Observation domain"), "{shown}");
    let metrics = running.client().ask_text("/metrics").expect("it answers");
    for line in [
        "manylane_sflow_port_rate_packets{port=\"lan\"} 10",
        "manylane_collector_lost_records_total{collector=\"udp://127.0.0.1:6343\",protocol=\"sflow\"} 0",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
}

/// Tagged frames on both links: a sample shows the packet with its tag, and tells both VLANs.
#[test]
fn a_sample_tells_the_vlans_at_both_ends() {
    let Some((lab, mut collector)) = hosts() else { return };
    let _in_vlans = [(&lab.client, 100), (&lab.server, 200)].map(|(host, id)| tagged(host, id));
    let more = "[sflow]\ncollectors = [\"[::1]\"]\nrate = 1\n";
    let options = RouterOptions {
        vlans: ["id = 100", "id = 200"],
        more: more.into(),
        ..RouterOptions::default()
    };
    let running = Running::start(&lab, MANYLANE, &options);
    let client = running.client();
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, to, 56);
        let report = udp_stream(&lab.client, &lab.server, to, 50, SIZE, 0);
        assert_eq!(report.expect("they have sockets").received, 50);
    }
    settle(&client, &mut collector);
    let (lan, wan) = (index(&lab, "lan"), index(&lab, "wan"));
    let tagged: Vec<_> = collector
        .flows
        .iter()
        .filter(|flow| flow.header.len() == 128 && flow.input == lan && flow.output == wan)
        .collect();
    assert!(tagged.len() >= 100, "{}", tagged.len());
    for flow in tagged {
        assert_eq!(flow.header[12..16], [0x81, 0, 0, 100], "{flow:?}");
        assert_eq!(flow.switch, Some([100, 0, 200, 0]), "{flow:?}");
    }
    assert!(running.terminate().0.success());
}

/// Mistakes that are seen when the daemon starts: with the words that `manylane accelerate` has for them.
#[test]
fn collectors_that_cannot_be_are_refused_by_name() {
    let folder = std::env::temp_dir().join(format!("manylane-sflow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let file = folder.join("memory.toml");
    for (collectors, expected) in [
        ("\"no-such-host.invalid\"", "does not resolve"),
        ("\"127.0.0.1\", \"localhost:6343\"", "have one address"),
    ] {
        let text = format!(
            "[sflow]\ncollectors = [{collectors}]\n[[port]]\nname = \"lan\"\ndriver = \"memory\"\n\
             addresses = [\"10.1.0.254/24\"]\n"
        );
        std::fs::write(&file, text).expect("the folder is ours");
        let output = Command::new(MANYLANE)
            .args(["run", &file.display().to_string()])
            .args(["--socket", &folder.join("api.sock").display().to_string()])
            .output();
        let output = output.expect("it is built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{collectors}: {said}");
        assert_eq!(output.status.code(), Some(2), "{collectors}: {said}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// Client, router, server, and a collector of ours in the router's kernel.
fn hosts() -> Option<(Lab, Collector)> {
    let lab = lab(LabOptions::default())?;
    for (host, line) in
        [(&lab.server, "ip address add 10.3.0.1/32 dev lo"), (&lab.router, "ip link set lo up")]
    {
        tool(host, line).unwrap_or_else(|error| panic!("{error}"));
    }
    // The router's kernel has no IPv6 but here.
    let enabled = lab.router.run(|| sysctl::set("net/ipv6/conf/lo/disable_ipv6", "0"));
    enabled.expect("root may");
    let address = "[::1]:6343".parse().expect("an address");
    let collector = Collector::bind(&lab.router, address);
    Some((lab, collector))
}

/// Puts a host's link into a VLAN.
fn tagged(host: &Host, id: u16) -> VlanLink {
    let attached = host.run(move || {
        let interface = Interface::read("eth0").expect("it was made");
        VlanLink::attach(&interface, (0x8100, id), None)
    });
    attached.unwrap_or_else(|error| panic!("{error}"))
}

/// Sends packets that the router has no way for, by turns, and so few at once that no queue between workers limits them.
fn send_away(lab: &Lab, client: &Client) {
    let socket = lab.client.run(|| UdpSocket::bind("10.1.0.1:0")).expect("the address is there");
    let mut sent = dropped(client).iter().sum::<u64>();
    let mut to = [NOWHERE, BLACKHOLE].into_iter().cycle();
    for _ in 0..6000 / AWAY {
        for to in to.by_ref().take(AWAY) {
            // The router reports an error, which a later call returns in place of sending.
            sent += u64::from(socket.send_to(&[0; SIZE], SocketAddr::from((to, 7))).is_ok());
        }
        until("the router drops them", || match dropped(client).iter().sum::<u64>() {
            all if all == sent => Ok(()),
            all => Err(format!("{all} of {sent}")),
        });
    }
}

fn set_rate(client: &Client, rate: &str) {
    let path = "/v1/config/port.lan.sflow_rate";
    client.put::<Setting>(path, rate).expect("it is a rate");
    let refused = client.put::<Setting>(path, "0").expect_err("it is none");
    assert!(refused.to_string().contains("one packet in 0"), "{refused}");
    let unknown = client.put::<Setting>("/v1/config/port.dmz.sflow_rate", "5").expect_err("none");
    assert!(unknown.to_string().contains("there are `lan`, `wan`"), "{unknown}");
}

/// Waits until the collector has all samples, and no more are made.
fn settle(client: &Client, collector: &mut Collector) -> SflowStatus {
    let mut before = u64::MAX;
    until("the collector has all samples", || {
        let status: ExportStatus = client.ask("/v1/export").expect("it answers");
        let status = status.sflow.expect("there are collectors");
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

/// What the ledger says of the lan. All that it has received could have been samples.
fn of_lan(client: &Client) -> PortLedger {
    until("the pool is what the ledger has", || {
        let status: ExportStatus = client.ask("/v1/export").expect("it answers");
        let ledger: Ledger = client.ask("/v1/ledger").expect("it answers");
        let lan = ledger.per_port.into_iter().find(|port| port.port == "lan").expect("it is one");
        let sflow = status.sflow.expect("there are collectors");
        let pool = sflow.ports.iter().find(|port| port.name == "lan").expect("it is one").pool;
        if pool == lan.received { Ok(lan) } else { Err(format!("{pool} of {}", lan.received)) }
    })
}

/// Packets without a route, and to a blackhole.
fn dropped(client: &Client) -> [u64; 2] {
    let ledger: Ledger = client.ask("/v1/ledger").expect("it answers");
    ["no_route", "blackhole"].map(|reason| ledger.dropped.get(reason).copied().unwrap_or(0))
}

fn index(lab: &Lab, name: &str) -> u32 {
    let name = name.to_owned();
    let read = move || Interface::read(&name);
    lab.router.run(read).expect("it is there").index
}

/// The packets to each address, as nfdump adds samples up.
fn by_nfdump(mut nfdump: Nfdump, lab: &Lab) -> Vec<(IpAddr, u64)> {
    nfdump.end(&lab.router);
    let sum = |to: IpAddr| {
        let filter = format!("proto udp and dst ip {to}");
        let text = nfdump.print(&["-q", "-N", "-A", "dstip", "-o", "fmt:%pkt", &filter]);
        let sum = text.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum();
        (to, sum)
    };
    [SERVER_V4, SERVER_V6, BEHIND].map(sum).into()
}

/// A real collector, ours, and one that is not there.
const MORE: &str = "[sflow]\n\
    collectors = [\"127.0.0.1\", \"udp://[::1]\", \"127.0.0.1:9\"]\nrate = 20\npolling = 1\n\
    [[route]]\nprefix = \"10.3.0.0/16\"\nvia = \"10.2.0.1\"\n\
    [[route]]\nprefix = \"203.0.113.0/24\"\ntype = \"blackhole\"\n";
const NFDUMP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The reasons of drops that are reported.
const REPORTED: [&str; 18] = [
    "truncated",
    "unknown_vlan",
    "ipv4_header_invalid",
    "ipv4_checksum_invalid",
    "ipv4_source_route",
    "ipv6_header_invalid",
    "martian_source",
    "martian_destination",
    "directed_broadcast",
    "link_local_scope",
    "hop_limit_exceeded",
    "no_route",
    "blackhole",
    "too_big",
    "neighbour_failed",
    "hold_overflow",
    "hold_full",
    "transmit_ring_full",
];
const SIZE: usize = 100;
/// Packets.
const SLICE: u64 = 2000;
/// Packets without a way: a worker's queue limits flows when it has 512.
const AWAY: usize = 400;
/// Behind the server, which is the router to it.
const BEHIND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1));
/// No route of the router's leads there.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const BLACKHOLE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
