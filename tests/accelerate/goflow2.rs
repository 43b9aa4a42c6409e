//! What another program makes of flow records and samples: goflow2, whose sums are held against the packets that were sent,
//! against `show flows`, and against the ledger. Over IPv4 and IPv6, translated. Needs root, and the `GOFLOW2` of
//! `tests/goflow2.sh`.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};

use manylane_api::accelerate::{ExportStatus, TrackedFlow};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{has, skip, spawn_in};
use manylane_lab::stateful::Rules;
use manylane_lab::tools::mortal;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, WAN_V4, WAN_V6, until};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::talk::{PACKETS, Talk, tracked};

/// Packets of each family, in pieces whose samples fit the collector's socket.
const PIECES: u64 = 10;
const PIECE: u64 = 50_000;
/// One packet in how many is a sample.
const RATE: u64 = 100;

#[test]
fn sums_of_records_are_exact_and_those_of_samples_are_near() {
    if !["nft", "conntrack"].iter().all(|program| has(program)) {
        return;
    }
    let Some(program) = std::env::var_os("GOFLOW2") else {
        return skip("GOFLOW2 is not set: tests/goflow2.sh prints it");
    };
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let goflow2 = Goflow2::start(&topology, Path::new(&program));
    Rules::Masquerade.load(topology.host("r1"), ["lan", "wan"]).expect("nft takes them");
    let to = SERVER_V4;
    let arguments = [
        ["--tier", "driver"],
        ["--ipfix", &format!("udp://{to}:{IPFIX_PORT}")],
        ["--ipfix-active", "1"],
        ["--sflow", &format!("{to}:{SFLOW_PORT}")],
        ["--sflow-rate", &RATE.to_string()],
    ];
    let manylane = env!("CARGO_BIN_EXE_manylane");
    let (router, arguments) = (topology.host("r1"), arguments.concat());
    let accelerated = Accelerated::start_with(router, manylane, &["lan", "wan"], &arguments);
    for name in ["lan", "wan"] {
        accelerated.wait_for_tier(name, "driver");
    }
    let mut bed = Bed { accelerated, goflow2, sent: [0; 2] };
    let talks = FAMILIES.map(|family| Talk::open(&topology, [family.client, family.server]));
    until("both connections are forwarded", || {
        bed.each(&talks, |talk| {
            talk.ask(20);
            20
        });
        let flows = tracked(&bed.accelerated);
        let is_forwarded = |flow: &TrackedFlow| flow.original.packets > 0 && flow.reply.packets > 0;
        let is_done = flows.len() == 2 && flows.iter().all(is_forwarded);
        if is_done { Ok(()) } else { Err(format!("{flows:#?}")) }
    });
    for _ in 0..PIECES {
        bed.each(&talks, |talk| {
            talk.tell(PIECE);
            PIECE
        });
        bed.wait_for_samples();
    }
    bed.compare();
}

/// On a router without rules, all flow records are of samples, and goflow2 has their rate.
#[test]
fn sampled_records_have_their_rate() {
    let Some(program) = std::env::var_os("GOFLOW2") else {
        return skip("GOFLOW2 is not set: tests/goflow2.sh prints it");
    };
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let goflow2 = Goflow2::start(&topology, Path::new(&program));
    let (url, rate) = (format!("udp://{SERVER_V4}:{IPFIX_PORT}"), RATE.to_string());
    let arguments = ["--ipfix", &url, "--ipfix-sampling", &rate, "--ipfix-active", "1"];
    let manylane = env!("CARGO_BIN_EXE_manylane");
    let router = topology.host("r1");
    let mut accelerated = Accelerated::start_with(router, manylane, &["lan", "wan"], &arguments);
    let sent = FAMILIES.map(|family| {
        let talk = Talk::open(&topology, [family.client, family.server]);
        talk.ask(20);
        let before = accelerated.forwarded();
        talk.tell(PIECE);
        accelerated.forwarded() - before
    });
    accelerated.signal(Signal::SIGTERM);
    assert!(accelerated.wait().success(), "{}", accelerated.said());
    until("goflow2 has records of both families, near what was forwarded", || {
        let lines = goflow2.lines();
        assert!(lines.iter().all(|line| line.sampling_rate == RATE), "{lines:#?}");
        for (family, sent) in FAMILIES.iter().zip(sent) {
            let ends = [family.client, family.server].map(Some);
            let of_way = lines.iter().filter(|line| line.is_record() && line.ends() == ends);
            let sum: u64 = of_way.map(|line| line.packets * RATE).sum();
            let near = 5.0 * (sent as f64 * (RATE as f64 - 1.0)).sqrt();
            if sum.abs_diff(sent) as f64 > near {
                return Err(format!("{ends:?}: {sum} of {sent}"));
            }
        }
        Ok(())
    });
}

struct Family {
    client: IpAddr,
    server: IpAddr,
    /// The client's address behind the router.
    outside: IpAddr,
    /// Bytes of a packet.
    bytes: u64,
}

const FAMILIES: [Family; 2] = [
    Family { client: CLIENT_V4, server: SERVER_V4, outside: WAN_V4, bytes: PACKETS[0] },
    Family { client: CLIENT_V6, server: SERVER_V6, outside: WAN_V6, bytes: PACKETS[1] },
];

struct Bed {
    accelerated: Accelerated,
    goflow2: Goflow2,
    /// Packets from the client to the server, of each family.
    sent: [u64; 2],
}

impl Bed {
    /// Has each connection send packets, and counts those of the client.
    fn each(&mut self, talks: &[Talk; 2], send: impl Fn(&Talk) -> u64) {
        for (talk, sent) in talks.iter().zip(&mut self.sent) {
            *sent += send(talk);
        }
    }

    /// All samples so far are at the collector, and none is lost.
    fn wait_for_samples(&self) {
        until("goflow2 has all samples", || {
            let export: ExportStatus = self.accelerated.ask("/v1/accelerate/export");
            let sflow = export.sflow.expect("there is a collector");
            let noted: u64 = sflow.ports.iter().map(|port| port.noted).sum();
            let received = self.goflow2.lines().iter().filter(|line| line.is_sample()).count();
            assert!(sflow.ports.iter().all(|port| port.lost == 0), "{sflow:#?}");
            match received as u64 == noted {
                true => Ok(()),
                false => Err(format!("{received} of {noted}")),
            }
        });
    }

    fn compare(mut self) {
        self.accelerated.assert_balanced();
        self.wait_for_samples();
        let shown = tracked(&self.accelerated);
        let ledger = self.accelerated.ledger();
        self.accelerated.signal(Signal::SIGTERM);
        assert!(self.accelerated.wait().success(), "{}", self.accelerated.said());
        // The last records are sent at the end.
        let lines = until("goflow2 has records of all packets", || {
            let lines = self.goflow2.lines();
            let packets: u64 =
                lines.iter().filter(|line| line.is_record()).map(|line| line.packets).sum();
            let is_all = packets == ledger.forwarded;
            if is_all { Ok(lines) } else { Err(format!("{packets} of {}", ledger.forwarded)) }
        });
        let sent: u64 = self.sent.iter().sum();
        assert!(ledger.forwarded >= sent / 10 * 9, "{} of {sent}", ledger.forwarded);
        println!(
            "{sent} packets, forwarded {}: {} records, {} samples",
            ledger.forwarded,
            lines.iter().filter(|line| line.is_record()).count(),
            lines.iter().filter(|line| line.is_sample()).count()
        );
        for (family, sent) in FAMILIES.iter().zip(self.sent) {
            are_exact(family, &lines, &shown);
            are_near(family, &lines, sent);
        }
    }
}

/// Records of both directions add up to what `show flows` has counted, to the packet and to the byte.
fn are_exact(family: &Family, lines: &[Line], shown: &[TrackedFlow]) {
    let Family { client, server, outside, bytes } = *family;
    let flow = shown.iter().find(|flow| flow.source.contains(&client.to_string()));
    let flow = flow.unwrap_or_else(|| panic!("{client} is not in {shown:#?}"));
    let ways = [([client, server], &flow.original), ([server, outside], &flow.reply)];
    for (ends, direction) in ways {
        let of_way = |line: &&Line| line.is_record() && line.ends() == ends.map(Some);
        let of_way: Vec<_> = lines.iter().filter(of_way).collect();
        let packets: u64 = of_way.iter().map(|line| line.packets).sum();
        let octets: u64 = of_way.iter().map(|line| line.bytes).sum();
        assert_eq!((packets, octets), (direction.packets, direction.bytes), "{ends:?}");
        assert_eq!(octets, packets * bytes, "{ends:?}");
    }
}

/// Samples stand for what was sent, within five standard deviations: their number is binomial.
fn are_near(family: &Family, lines: &[Line], sent: u64) {
    let ends = [family.client, family.server].map(Some);
    let of_way = |line: &&Line| line.is_sample() && line.ends() == ends;
    let of_way: Vec<_> = lines.iter().filter(of_way).collect();
    let sum: u64 = of_way.iter().map(|line| line.packets * line.sampling_rate).sum();
    let deviation = (sent as f64 * (RATE as f64 - 1.0)).sqrt();
    println!("samples of {ends:?}: {sum} of {sent}, deviation {deviation:.0}");
    assert!(sum.abs_diff(sent) as f64 <= 5.0 * deviation, "{ends:?}: {sum} of {sent}");
    // Ethernet's header and checksum are in a frame's length.
    let lengths: BTreeMap<u64, usize> = of_way.iter().fold(BTreeMap::new(), |mut all, line| {
        *all.entry(line.bytes).or_default() += 1;
        all
    });
    assert_eq!(lengths.into_keys().collect::<Vec<_>>(), [family.bytes + 18], "{ends:?}");
}

/// A line of goflow2's JSON: a record of IPFIX, or a sample.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    packets: u64,
    bytes: u64,
    sampling_rate: u64,
    src_addr: String,
    dst_addr: String,
}

impl Line {
    fn is_record(&self) -> bool {
        self.kind == "IPFIX"
    }

    fn is_sample(&self) -> bool {
        self.kind == "SFLOW_5"
    }

    fn ends(&self) -> [Option<IpAddr>; 2] {
        [&self.src_addr, &self.dst_addr].map(|text| text.parse().ok())
    }
}

/// goflow2 at the server, until it is dropped.
struct Goflow2 {
    child: Child,
    folder: PathBuf,
}

impl Goflow2 {
    fn start(topology: &Topology, program: &Path) -> Goflow2 {
        let folder = std::env::temp_dir().join(format!("manylane-goflow2-{}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let mut command = mortal(program);
        let listen = format!("netflow://{SERVER_V4}:{IPFIX_PORT},sflow://{SERVER_V4}:{SFLOW_PORT}");
        command.args(["-listen", &listen, "-addr", "127.0.0.1:8080", "-transport.file"]);
        command.arg(folder.join(LINES));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn_in(topology.host("server"), command);
        let goflow2 = Goflow2 { child, folder };
        until("goflow2 listens", || {
            let sockets = topology.tool("server", "ss -Hlun");
            let ports = [IPFIX_PORT, SFLOW_PORT].map(|port| format!(":{port} "));
            let is_there = ports.iter().all(|port| sockets.contains(port));
            if is_there { Ok(()) } else { Err(sockets) }
        });
        goflow2
    }

    /// All whole records that it has written. Its threads write a record and the end of its line by two calls, so that
    /// two records may be in one line.
    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.folder.join(LINES)).unwrap_or_default();
        let read = serde_json::Deserializer::from_str(&text).into_iter();
        let whole = read.take_while(|line| !line.as_ref().is_err_and(serde_json::Error::is_eof));
        whole.map(|line| line.unwrap_or_else(|error| panic!("{error} in {text}"))).collect()
    }
}

impl Drop for Goflow2 {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const LINES: &str = "lines";
const IPFIX_PORT: u16 = 2055;
const SFLOW_PORT: u16 = 6343;
