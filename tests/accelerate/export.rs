//! Flow records at collectors, held against the accelerator's own account: IPFIX by UDP to nfcapd(1), and by TCP over IPv6
//! to a collector whose messages tshark(1) takes apart.
//!
//! | Said by                    | Held against                                                              |
//! |----------------------------|---------------------------------------------------------------------------|
//! | nfdump                     | packets that the accelerator forwarded, by its ledger's last word         |
//! | tshark                     | these packets; no malformed packet; ends, translation, interfaces, reasons      |
//! | `show export`, `/metrics`  | the records at the collectors; a third collector is not there            |

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;

use manylane_api::Client;
use manylane_api::accelerate::{ExportStatus, LaneStatus, TrackedFlows, TrackedFlowsRequest};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::has;
use manylane_lab::stateful::Rules;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, until};
use nix::sys::signal::Signal;

use super::flows::connected;
use super::nfdump::Nfdump;
use super::tshark::Tshark;

const PORT: u16 = 9000;
/// Bytes of a payload.
const PAYLOAD: usize = 100;
/// Questions of a connection, each with an answer.
const ASKED: usize = 2500;
/// IPFIX by TCP.
const TCP_COLLECTOR: u16 = 4740;

/// A connection between the client and the server.
enum Talk {
    Udp(UdpSocket, UdpSocket),
    Tcp(TcpStream, TcpStream),
}

impl Talk {
    fn udp(topology: &Topology, [client, server]: [IpAddr; 2], port: u16) -> Talk {
        let at = |host: &str, address: IpAddr| {
            let end = SocketAddr::new(address, port);
            topology.host(host).run(move || UdpSocket::bind(end)).expect("the address is there")
        };
        let (client, server) = (at("client", client), at("server", server));
        let to = server.local_addr().expect("it is bound");
        client.connect(to).expect("a route leads there");
        Talk::Udp(client, server)
    }

    fn tcp(topology: &Topology, server: IpAddr, port: u16) -> Talk {
        let [client, server] = connected(topology, SocketAddr::new(server, port));
        Talk::Tcp(client, server)
    }

    /// A question, and its answer: one packet at a time.
    fn ask(&mut self) {
        let mut bytes = [0; PAYLOAD];
        match self {
            Talk::Udp(client, server) => {
                client.send(&bytes).expect("it is sent");
                let (_, from) = server.recv_from(&mut bytes).expect("it arrives");
                server.send_to(&bytes, from).expect("it is sent");
                client.recv(&mut bytes).expect("it arrives");
            }
            Talk::Tcp(client, server) => {
                client.write_all(&bytes).expect("it is sent");
                server.read_exact(&mut bytes).expect("it arrives");
                server.write_all(&bytes).expect("it is sent");
                client.read_exact(&mut bytes).expect("it arrives");
            }
        }
    }
}

struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    talks: Vec<Talk>,
}

impl Bed {
    /// Four more connections, which the lane forwards in both directions, and many packets of each.
    fn talk(&mut self, port: u16) {
        for ends in [[CLIENT_V4, SERVER_V4], [CLIENT_V6, SERVER_V6]] {
            self.talks.push(Talk::udp(&self.topology, ends, port));
            self.talks.push(Talk::tcp(&self.topology, ends[1], port));
        }
        let first = self.talks.len() - 4;
        until("four more connections are forwarded", || {
            (0..20).for_each(|_| self.talks[first..].iter_mut().for_each(Talk::ask));
            let request = TrackedFlowsRequest { transport_port: Some(port), ..Default::default() };
            let client = Client::new(&self.accelerated.socket());
            let flows: TrackedFlows =
                client.post("/v1/accelerate/flows/table", &request).expect("the thread answers");
            let is_forwarded = flows.total == 4
                && flows
                    .flows
                    .iter()
                    .all(|flow| [&flow.original, &flow.reply].iter().all(|side| side.packets > 0));
            if is_forwarded { Ok(()) } else { Err(format!("{flows:#?}")) }
        });
        for talk in &mut self.talks[first..] {
            (0..ASKED).for_each(|_| talk.ask());
        }
    }

    fn export(&self) -> ExportStatus {
        self.accelerated.ask("/v1/accelerate/export")
    }

    fn lane(&self) -> LaneStatus {
        self.accelerated.ask("/v1/accelerate/lane")
    }
}

/// A collector at the server by TCP: all that one connection says.
fn tcp_collector(topology: &Topology) -> JoinHandle<Vec<u8>> {
    let end = SocketAddr::new(SERVER_V6, TCP_COLLECTOR);
    let listens = topology.host("server").run(move || TcpListener::bind(end));
    let listens = listens.expect("the address is there");
    std::thread::spawn(move || {
        let (mut stream, _) = listens.accept().expect("the exporter connects");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("it ends with the exporter");
        said
    })
}

#[test]
fn records_at_collectors_are_all_that_was_forwarded() {
    if !["nft", "conntrack", "tshark", "ss"].iter().all(|program| has(program)) {
        return;
    }
    let Some(topology) = topology(IN_A_ROW) else { return };
    let Some(mut nfcapd) = Nfdump::start((topology.host("server"), SERVER_V4), "nfcapd", 4739)
    else {
        return;
    };
    let by_tcp = tcp_collector(&topology);
    let router = topology.host("r1");
    Rules::Firewall.load(router, ["lan", "wan"]).expect("nft takes them");
    let away = format!("udp://{SERVER_V4}:4741");
    let arguments = [
        ["--tier", "ingress"],
        ["--ipfix", &format!("udp://{SERVER_V4}")],
        ["--ipfix", &format!("tcp://[{SERVER_V6}]:{TCP_COLLECTOR}")],
        ["--ipfix", &away],
        ["--ipfix-active", "1"],
        ["--ipfix-inactive", "2"],
        ["--ipfix-domain", "77"],
    ];
    let program = env!("CARGO_BIN_EXE_manylane");
    let accelerated =
        Accelerated::start_with(router, program, &["lan", "wan"], &arguments.concat());
    let mut bed = Bed { accelerated, topology, talks: Vec::new() };
    until("connections decide", || match bed.lane() {
        lane if lane.needed_ipv4 && lane.needed_ipv6 => Ok(()),
        lane => Err(format!("{lane:#?}")),
    });
    let indices = interfaces(&bed.topology);

    bed.talk(PORT);
    Rules::Masquerade.load(bed.topology.host("r1"), ["lan", "wan"]).expect("nft takes them");
    bed.talk(PORT + 1);
    // The last of one connection, while the others continue.
    bed.topology.tool("r1", "conntrack -D -p udp --orig-src 10.1.0.1 --dport 9001");
    until("its entry is gone", || match bed.lane() {
        lane if lane.used == 7 => Ok(()),
        lane => Err(format!("{lane:#?}")),
    });
    (0..ASKED).for_each(|_| bed.talks[0].ask());
    is_shown(&bed, &away);

    // The end has the last records of all others.
    bed.accelerated.assert_balanced();
    let Bed { mut accelerated, talks, topology } = bed;
    accelerated.signal(Signal::SIGTERM);
    assert!(accelerated.wait().success(), "{}", accelerated.said());
    let forwarded = forwarded(&accelerated.said());
    assert!(forwarded > 8 * ASKED as u64, "{forwarded}");
    let said = by_tcp.join().expect("it collects");
    nfcapd.end(topology.host("server"));
    let octets = by_tshark(&said, forwarded, indices);
    by_nfdump(&nfcapd, forwarded, octets);
    drop((talks, topology));
}

/// Of lan and of wan.
fn interfaces(topology: &Topology) -> [u32; 2] {
    ["lan", "wan"].map(|name| {
        let text = topology.tool("r1", &format!("ip -o link show dev {name}"));
        let number = text.split(':').next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{text}"))
    })
}

/// What the daemon said last.
fn forwarded(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("manylane: forwarded "));
    let number = line.and_then(|line| line.split(',').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// Two collectors are there, one is not.
fn is_shown(bed: &Bed, away: &str) {
    let status = until("all collectors were sent something", || {
        let status = bed.export();
        let states: Vec<_> = status.collectors.iter().map(|one| one.state.as_str()).collect();
        // Four translations began, and one has ended; a thread of its own logs them.
        let logged = status.nat_log.as_ref().map_or(0, |log| log.events);
        match states[..] {
            ["sending", "sending", "unreachable"] if logged >= 5 => Ok(status),
            _ => Err(format!("{status:#?}")),
        }
    });
    assert_eq!((status.active_s, status.inactive_s, status.domain), (1, 2, 77));
    assert_eq!(status.queue_lost_records, 0);
    let log = status.nat_log.as_ref().expect("translations are logged");
    assert!(log.gaps == 0 && log.trouble.is_none(), "{log:?}");
    for there in &status.collectors[..2] {
        assert!(there.sent_records > 8 && there.lost_messages == 0, "{there:?}");
    }
    assert!(status.collectors[2].refused_messages > 0, "{status:#?}");
    let socket = bed.accelerated.socket();
    let program = env!("CARGO_BIN_EXE_manylane");
    // Between a message and the answer of the host, the collector may be there.
    let shown = until("the command shows the collector that is away", || {
        let command = format!("{program} show export --socket {}", socket.display());
        let shown = bed.topology.tool("r1", &command);
        let is_away = shown.contains(&format!("{away}: Connection refused"));
        if is_away { Ok(shown) } else { Err(shown) }
    });
    assert!(shown.contains("none is missing"), "{shown}");
    let line = format!("manylane_collector_reachable{{collector=\"{away}\",protocol=\"ipfix\"}} 0");
    until("metrics have the collector that is away", || {
        let metrics = Client::new(&socket).ask_text("/metrics").expect("it answers");
        if metrics.lines().any(|one| one == line) { Ok(()) } else { Err(metrics) }
    });
}

/// nfdump's sums over all records.
fn by_nfdump(nfcapd: &Nfdump, forwarded: u64, octets: u64) {
    let text = nfcapd.print(&["-I"]);
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim_start_matches(':').trim().parse().ok());
        number.unwrap_or_else(|| panic!("{name} is not in\n{text}"))
    };
    assert_eq!(number("Packets"), forwarded, "{text}");
    assert_eq!(number("Bytes"), octets, "{text}");
    assert_eq!(number("Sequence failures"), 0, "{text}");
}

/// Messages of a connection as tshark reads them. Gives the sum of all bytes.
fn by_tshark(said: &[u8], forwarded: u64, [lan, wan]: [u32; 2]) -> u64 {
    let tshark = Tshark::of(4739, "cflow", messages(said));
    tshark.assert_well_formed();
    let fields = [
        "cflow.od_id",
        "cflow.packets",
        "cflow.octets",
        "cflow.inputint",
        "cflow.outputint",
        "cflow.flow_end_reason",
        "cflow.nat_event",
        "cflow.post_natsource_ipv4_address",
    ];
    let text = tshark.fields(&fields);
    // A line for each message, a column for each field, a word for each record.
    let words = |field: &str| -> Vec<&str> {
        let column = fields.iter().position(|one| *one == field).expect("it is one of them");
        let columns = text.lines().filter_map(|line| line.split('|').nth(column));
        columns.flat_map(|words| words.split(',')).filter(|word| !word.is_empty()).collect()
    };
    let numbers = |field: &str| -> Vec<u64> {
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{field}: {word}"));
        words(field).into_iter().map(number).collect()
    };
    assert!(numbers("cflow.od_id").contains(&77));
    let (packets, octets) = (numbers("cflow.packets"), numbers("cflow.octets"));
    assert_eq!(packets.iter().sum::<u64>(), forwarded);
    let ways = numbers("cflow.inputint").into_iter().zip(numbers("cflow.outputint"));
    let mut by_way = BTreeMap::new();
    for (way, packets) in ways.zip(&packets) {
        *by_way.entry(way).or_insert(0) += packets;
    }
    let [lan, wan] = [lan, wan].map(u64::from);
    assert_eq!(by_way.keys().copied().collect::<Vec<_>>().len(), 2, "{by_way:?}");
    assert!(by_way[&(lan, wan)] > 0 && by_way[&(wan, lan)] > 0, "{by_way:?}");
    // One connection has ended, the others were ended; before, timeouts wrote records.
    let reasons = numbers("cflow.flow_end_reason");
    let has = |reason: u64| reasons.contains(&reason);
    assert!(has(3) && has(4) && (has(1) || has(2)), "{reasons:?}");
    let events = numbers("cflow.nat_event");
    for (event, least) in [(4, 2), (5, 1), (1, 2)] {
        let count = events.iter().filter(|one| **one == event).count();
        assert!(count >= least, "{count} events {event}: {events:?}");
    }
    let translated = words("cflow.post_natsource_ipv4_address");
    assert!(translated.contains(&"10.2.0.254"), "{translated:?}");
    octets.iter().sum()
}

/// The messages of a stream.
fn messages(said: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = said;
    std::iter::from_fn(move || {
        let len = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
        let (message, next) = rest.split_at(len.into());
        rest = next;
        Some(message)
    })
}
