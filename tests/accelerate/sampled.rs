//! Flow records of samples (IPFIX) at nfcapd(1): sums are near those of the packets that were forwarded without a flow table,
//! in each tier, and connections with exact records have no others. Needs root.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use manylane_api::Client;
use manylane_api::accelerate::{ExportStatus, LaneStatus, SampledStatus, TrackedFlow};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, has};
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, until};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::flows::connected;
use super::nfdump::Nfdump;
use super::sflow::assert_near;
use super::talk::{PACKETS, SERVER_PORT, Talk, tracked};

#[test]
fn sums_of_sampled_records_are_near_at_ingress() {
    sums_are_near("ingress", &[]);
}

#[test]
fn sums_of_sampled_records_are_near_in_the_driver() {
    // Records are made of the samples that sFlow takes, and of half of them here.
    sums_are_near("driver", &["--sflow", "10.2.0.1:9", "--sflow-rate", "5"]);
}

#[test]
fn sums_of_sampled_records_are_near_by_workers() {
    sums_are_near("workers", &["--flows", "0"]);
}

/// A router without rules, 10,000 packets of each family, and a connection of TCP.
fn sums_are_near(tier: &str, further: &[&str]) {
    let Some(bed) = Bed::start(&[&["--tier", tier], further].concat(), |_| {}) else { return };
    for name in ["lan", "wan"] {
        bed.accelerated.wait_for_tier(name, tier);
    }
    for to in [SERVER_V4, SERVER_V6] {
        all_answered(bed.topology.host("client"), to, 56);
    }
    let forwarded = || bed.accelerated.port("lan").tiers[tier];
    let sent = FAMILIES.map(|ends| {
        let talk = Talk::open(&bed.topology, ends);
        let before = forwarded();
        talk.tell(SENT);
        forwarded() - before
    });
    // The kernel may have forwarded some.
    assert!(sent.iter().all(|sent| *sent > SENT / 2), "by {tier}: {sent:?}");
    let [mut near, mut far] = connected(&bed.topology, SocketAddr::new(SERVER_V4, 9001));
    let mut byte = [0];
    for _ in 0..500 {
        near.write_all(&byte).expect("it is open");
        far.read_exact(&mut byte).expect("it arrives");
    }
    let status = bed.settled();
    bed.is_shown(&status);
    let lan = index(&bed.topology, "lan");
    let wan = index(&bed.topology, "wan");
    let records = bed.end();
    for ((ends, len), sent) in FAMILIES.into_iter().zip(PACKETS).zip(sent) {
        let udp = records.iter().filter(|one| one.is_between(ends) && one.proto == 17);
        let udp: Vec<_> = udp.collect();
        let (packets, bytes) = sums(&udp);
        assert_near(packets, sent, RATE, &format!("{tier}, {ends:?}"));
        assert_eq!(bytes, packets * len, "{ends:?}");
        for one in udp {
            assert_eq!((one.dst_port, one.input_snmp, one.output_snmp), (SERVER_PORT, lan, wan));
            let prefix_len = if ends[0].is_ipv4() { 24 } else { 64 };
            assert_eq!((one.src_mask, one.dst_mask), (prefix_len, prefix_len), "{one:?}");
        }
    }
    assert!(records.iter().all(|one| one.sampled == 1), "{records:#?}");
    let tcp = records.iter().find(|one| one.is_between([CLIENT_V4, SERVER_V4]) && one.proto == 6);
    assert!(tcp.is_some_and(|one| one.tcp_flags.contains("AP")), "{tcp:#?}");
}

/// Rules track IPv4 alone: IPv4 has exact records, IPv6 has sampled ones.
#[test]
fn a_connection_with_exact_records_has_no_sampled_one() {
    if !["nft", "conntrack"].iter().all(|program| has(program)) {
        return;
    }
    let Some(bed) = Bed::start(&["--tier", "ingress"], |topology| {
        for rule in [
            "add table ip filter",
            "add chain ip filter forward { type filter hook forward priority filter; policy accept; }",
            "add rule ip filter forward ct state invalid drop",
        ] {
            topology.tool("r1", &format!("nft {rule}"));
        }
    }) else {
        return;
    };
    until("connections decide, of IPv4", || {
        match bed.accelerated.ask::<LaneStatus>("/v1/accelerate/lane") {
            lane if lane.needed_ipv4 && !lane.needed_ipv6 => Ok(()),
            lane => Err(format!("{lane:#?}")),
        }
    });
    let talks = FAMILIES.map(|ends| Talk::open(&bed.topology, ends));
    until("the connection of IPv4 has an entry", || {
        talks[0].ask(20);
        let is_forwarded = |flow: &TrackedFlow| flow.original.packets > 0 && flow.reply.packets > 0;
        let flows = tracked(&bed.accelerated);
        match &flows[..] {
            [flow] if is_forwarded(flow) => Ok(()),
            _ => Err(format!("{flows:#?}")),
        }
    });
    talks[0].tell(SENT);
    all_answered(bed.topology.host("client"), SERVER_V6, 56);
    let forwarded = || bed.accelerated.port("lan").tiers["ingress"];
    let before = forwarded();
    talks[1].tell(SENT);
    let sent = forwarded() - before;
    assert!(sent > SENT / 2, "{sent}");
    let exact = tracked(&bed.accelerated)[0].original.packets;
    bed.settled();
    bed.accelerated.assert_balanced();
    let records = bed.end();
    let of = |ends| records.iter().filter(|one| one.is_between(ends)).collect::<Vec<_>>();
    let [v4, v6] = FAMILIES.map(of);
    assert!(v4.iter().all(|one| one.sampled == 0) && v6.iter().all(|one| one.sampled == 1));
    assert_eq!(sums(&v4).0, exact, "IPv4 is exact: {v4:#?}");
    assert_near(sums(&v6).0, sent, RATE, "IPv6");
}

struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    nfcapd: Nfdump,
}

impl Bed {
    /// One packet in ten, to a collector at the server. `rules` prepares the router.
    fn start(arguments: &[&str], rules: impl FnOnce(&Topology)) -> Option<Bed> {
        let topology = plain_hosts(IN_A_ROW)?;
        let nfcapd = Nfdump::start((topology.host("server"), SERVER_V4), "nfcapd", 4739)?;
        rules(&topology);
        let (url, rate) = (format!("udp://{SERVER_V4}"), RATE.to_string());
        let ipfix = ["--ipfix", &url, "--ipfix-sampling", &rate, "--ipfix-active", "1"];
        let program = env!("CARGO_BIN_EXE_manylane");
        let all = [&ipfix, arguments].concat();
        let accelerated =
            Accelerated::start_with(topology.host("r1"), program, &["lan", "wan"], &all);
        Some(Bed { accelerated, topology, nfcapd })
    }

    /// All samples have been read, and records of them written.
    fn settled(&self) -> SampledStatus {
        until("all flows have a record", || {
            let status: ExportStatus = self.accelerated.ask("/v1/accelerate/export");
            let sampled = status.sampled.clone().expect("it is on");
            let is_done = sampled.flows == 0 && sampled.samples > 0;
            assert_eq!((sampled.lost, sampled.evicted, status.queue_lost_records), (0, 0, 0));
            if is_done { Ok(sampled) } else { Err(format!("{status:#?}")) }
        })
    }

    /// The command shows the records, and metrics have the same numbers.
    fn is_shown(&self, status: &SampledStatus) {
        assert_eq!((status.domain, status.rate), (0x8000_0001, RATE as u32));
        let (socket, program) = (self.accelerated.socket(), env!("CARGO_BIN_EXE_manylane"));
        let command = format!("{program} show export --socket {}", socket.display());
        let shown = self.topology.tool("r1", &command);
        assert!(shown.contains("one packet in 10; observation domain 2147483649"), "{shown}");
        assert!(shown.contains("ipfix-sampled"), "{shown}");
        let metrics = Client::new(&socket).ask_text("/metrics").expect("it answers");
        let line = format!("manylane_ipfix_sampled_samples_total {}", status.samples);
        assert!(metrics.lines().any(|one| one == line), "{metrics}");
    }

    /// Ends the daemon and the collector. Gives all records of the collector.
    fn end(mut self) -> Vec<Record> {
        self.accelerated.signal(Signal::SIGTERM);
        assert!(self.accelerated.wait().success(), "{}", self.accelerated.said());
        self.nfcapd.end(self.topology.host("server"));
        let text = self.nfcapd.print(&["-o", "json"]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

/// A record, as nfdump has it. nfdump multiplies counts of samples by their rate.
#[derive(Debug, Deserialize)]
struct Record {
    sampled: u8,
    in_packets: u64,
    in_bytes: u64,
    proto: u8,
    #[serde(default)]
    tcp_flags: String,
    #[serde(default)]
    src4_addr: Option<IpAddr>,
    #[serde(default)]
    dst4_addr: Option<IpAddr>,
    #[serde(default)]
    src6_addr: Option<IpAddr>,
    #[serde(default)]
    dst6_addr: Option<IpAddr>,
    #[serde(default)]
    dst_port: u16,
    #[serde(default)]
    input_snmp: u32,
    #[serde(default)]
    output_snmp: u32,
    #[serde(default)]
    src_mask: u8,
    #[serde(default)]
    dst_mask: u8,
}

impl Record {
    fn is_between(&self, ends: [IpAddr; 2]) -> bool {
        [self.src4_addr.or(self.src6_addr), self.dst4_addr.or(self.dst6_addr)] == ends.map(Some)
    }
}

/// Packets and bytes.
fn sums(records: &[&Record]) -> (u64, u64) {
    records
        .iter()
        .fold((0, 0), |(packets, bytes), one| (packets + one.in_packets, bytes + one.in_bytes))
}

fn index(topology: &Topology, name: &str) -> u32 {
    let name = name.to_owned();
    let read = move || manylane_io::interface::Interface::read(&name);
    topology.host("r1").run(read).expect("it is there").index
}

const FAMILIES: [[IpAddr; 2]; 2] = [[CLIENT_V4, SERVER_V4], [CLIENT_V6, SERVER_V6]];
/// Packets of each family.
const SENT: u64 = 10_000;
/// One packet in how many is a sample.
const RATE: u64 = 10;
