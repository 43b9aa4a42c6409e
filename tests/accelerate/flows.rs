//! What an operator sees of connections that are forwarded one by one, beside what conntrack has and what was sent.
//!
//! | Shown            | Held against                                                                |
//! |------------------|-----------------------------------------------------------------------------|
//! | `show flows`     | `conntrack -L`: ends, translation; datagrams: packets and bytes             |
//! | `show flows --diff` | nothing differs, while traffic passes and when connections are deleted   |
//! | `show why`       | the entry; a rule that was added; a connection that is deleted              |
//! | `/metrics`       | the table                                                                   |
//!
//! The tests read no clock but conntrack's: a UDP connection is assured some seconds after its first packet.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use manylane_api::Client;
use manylane_api::accelerate::{
    AcceleratedFlows, LaneStatus, TrackedDirection, TrackedFlow, TrackedFlows, TrackedFlowsRequest,
    TransportProtocol,
};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::has;
use manylane_lab::stateful::{self, Rules};
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, WAN_V4, WAN_V6, until};

const PORT: u16 = 9000;
const CLIENT_PORT: u16 = 4000;
/// Bytes of a datagram's payload.
const PAYLOAD: usize = 100;
/// Datagrams that are counted.
const COUNTED: u64 = 50;

/// A client's socket and a server's, of UDP.
pub(super) struct Datagrams {
    client: UdpSocket,
    server: UdpSocket,
}

impl Datagrams {
    /// Between these addresses, from the first port to the second.
    pub(super) fn open(
        topology: &Topology,
        [client, server]: [IpAddr; 2],
        [from, to]: [u16; 2],
    ) -> Datagrams {
        let at = |host: &str, address: IpAddr, port: u16| {
            let end = SocketAddr::new(address, port);
            topology.host(host).run(move || UdpSocket::bind(end)).expect("the address is there")
        };
        let client = at("client", client, from);
        client.connect(SocketAddr::new(server, to)).expect("a route leads there");
        Datagrams { client, server: at("server", server, to) }
    }

    /// A datagram, and its answer.
    pub(super) fn ask(&self) {
        let mut bytes = [0; 2 * PAYLOAD];
        self.client.send(&bytes[..PAYLOAD]).expect("it is sent");
        let (length, from) = self.server.recv_from(&mut bytes).expect("it arrives");
        assert_eq!(length, PAYLOAD);
        self.server.send_to(&bytes[..PAYLOAD], from).expect("it is sent");
        self.client.recv(&mut bytes).expect("it arrives");
    }
}

/// The client's and the server's end of a new connection. Each write is a packet.
pub(super) fn connected(topology: &Topology, to: SocketAddr) -> [TcpStream; 2] {
    let listens = topology.host("server").run(move || TcpListener::bind(to));
    let listens = listens.expect("the address is there");
    let client = topology.host("client").run(move || TcpStream::connect(to));
    let client = client.expect("the server listens");
    let (server, _) = listens.accept().expect("a client has connected");
    let ends = [client, server];
    ends.iter().for_each(|end| end.set_nodelay(true).expect("it is open"));
    ends
}

/// A connection of TCP, from end to end.
pub(super) struct Stream {
    pub(super) client: TcpStream,
    server: TcpStream,
}

impl Stream {
    /// To this end.
    pub(super) fn open(topology: &Topology, to: SocketAddr) -> Stream {
        let [client, server] = connected(topology, to);
        Stream { client, server }
    }

    /// Some bytes, and as many back.
    pub(super) fn ask(&mut self) {
        let mut bytes = [0; PAYLOAD];
        self.client.write_all(&bytes).expect("it is sent");
        self.server.read_exact(&mut bytes).expect("it arrives");
        self.server.write_all(&bytes).expect("it is sent");
        self.client.read_exact(&mut bytes).expect("it arrives");
    }
}

struct Bed {
    accelerated: Accelerated,
    topology: Topology,
}

impl Bed {
    fn show(&self, what: &str) -> String {
        let (program, socket) = (env!("CARGO_BIN_EXE_manylane"), self.accelerated.socket());
        self.topology.tool("r1", &format!("{program} show {what} --socket {}", socket.display()))
    }

    fn lane(&self) -> LaneStatus {
        self.accelerated.ask("/v1/accelerate/lane")
    }

    fn table(&self, request: &TrackedFlowsRequest) -> TrackedFlows {
        let client = Client::new(&self.accelerated.socket());
        client.post("/v1/accelerate/flows/table", request).expect("the lane's thread answers")
    }

    fn flow(&self, client: IpAddr, protocol: TransportProtocol) -> Option<TrackedFlow> {
        let (address, protocol) = (Some(client), Some(protocol));
        let request = TrackedFlowsRequest { address, protocol, ..Default::default() };
        let page = self.table(&request);
        assert!(page.total <= 1, "{page:#?}");
        page.flows.into_iter().next()
    }

    /// Asks along a connection until the table forwards both directions of it.
    fn until_forwarded(
        &self,
        client: IpAddr,
        protocol: TransportProtocol,
        mut ask: impl FnMut(),
    ) -> TrackedFlow {
        until(&format!("{protocol} of {client} is forwarded"), || {
            (0..20).for_each(|_| ask());
            let flow = self.flow(client, protocol);
            let is_forwarded =
                |side: &TrackedDirection| side.state == "forwarded" && side.packets > 0;
            match flow {
                Some(flow) if is_forwarded(&flow.original) && is_forwarded(&flow.reply) => Ok(flow),
                other => Err(format!("{other:#?}\n{:#?}", self.lane())),
            }
        })
    }
}

#[test]
fn what_is_shown_of_connections_is_what_conntrack_has_and_what_was_sent() {
    if !["nft", "conntrack"].iter().all(|program| has(program)) {
        return;
    }
    let Some(topology) = topology(IN_A_ROW) else { return };
    let program = env!("CARGO_BIN_EXE_manylane");
    let arguments = ["--tier", "ingress"];
    let accelerated =
        Accelerated::start_with(topology.host("r1"), program, &["lan", "wan"], &arguments);
    let bed = Bed { accelerated, topology };

    // Without rules no connection decides, and a sample is shown.
    assert!(!bed.lane().is_needed());
    let shown = bed.show("flows");
    assert!(shown.starts_with("By sample: no rule filters by connection"), "{shown}");
    let sample: AcceleratedFlows =
        serde_json::from_str(&bed.show("flows --json")).expect("it is the API's JSON");
    assert!(sample.one_in >= 1);

    Rules::Masquerade.load(bed.topology.host("r1"), ["lan", "wan"]).expect("nft takes them");
    until("connections decide", || match bed.lane() {
        lane if lane.needed_ipv4 && lane.needed_ipv6 => Ok(()),
        lane => Err(format!("{lane:#?}")),
    });
    let families = [(CLIENT_V4, SERVER_V4, WAN_V4, 28), (CLIENT_V6, SERVER_V6, WAN_V6, 48)];
    let mut streams = Vec::new();
    let mut datagrams = Vec::new();
    for (client, server, wan, headers) in families {
        let udp = Datagrams::open(&bed.topology, [client, server], [CLIENT_PORT, PORT]);
        let flow = bed.until_forwarded(client, TransportProtocol::Udp, || udp.ask());
        has_ends(&flow, [client, server, wan], CLIENT_PORT);
        counts(&bed, client, &udp, headers);
        datagrams.push(udp);
        let mut stream = Stream::open(&bed.topology, SocketAddr::new(server, PORT));
        let flow = bed.until_forwarded(client, TransportProtocol::Tcp, || stream.ask());
        let port = stream.client.local_addr().expect("it is connected").port();
        has_ends(&flow, [client, server, wan], port);
        streams.push(stream);
    }
    is_as_conntrack(&bed);
    pages_and_filters(&bed);
    is_counted(&bed);
    explains(&bed, &datagrams[0]);
    ends(&bed, &datagrams[0]);
    bed.accelerated.assert_balanced();
}

fn has_ends(flow: &TrackedFlow, [client, server, wan]: [IpAddr; 3], port: u16) {
    let end = |address, port| SocketAddr::new(address, port).to_string();
    assert_eq!(flow.source, end(client, port));
    assert_eq!(flow.destination, end(server, PORT));
    assert_eq!(flow.translated_destination, end(server, PORT));
    let translated: SocketAddr = flow.translated_source.parse().expect("address and port");
    assert_eq!((translated.ip(), flow.nat.as_str()), (wan, "snat"));
    assert_eq!(flow.end, "announced", "it began while manylane listened");
    let ways = [&flow.original, &flow.reply].map(|side| [&*side.ingress, &*side.egress]);
    assert_eq!(ways, [["lan", "wan"], ["wan", "lan"]]);
    assert_eq!([&*flow.original.tier, &*flow.reply.tier], ["ingress", "ingress"]);
    assert!(flow.idle_s.is_some() && flow.expires_s > 0, "{flow:#?}");
}

/// Datagrams that are sent are counted, each with its IP header; those that a busy machine left to the kernel, as left.
fn counts(bed: &Bed, client: IpAddr, udp: &Datagrams, headers: usize) {
    let look = || {
        let flow = bed.flow(client, TransportProtocol::Udp).expect("it is in use");
        let lapsed = bed.accelerated.passed("lapsed");
        let passed = u64::from(flow.original.passed) + u64::from(flow.reply.passed);
        (flow, lapsed + passed, bed.accelerated.forwarded())
    };
    let (before, left_before, forwarded_before) = look();
    (0..COUNTED).for_each(|_| udp.ask());
    let (after, left, forwarded) = look();
    let mut packets = 0;
    for (is, was) in [(&after.original, &before.original), (&after.reply, &before.reply)] {
        let direction = is.packets - was.packets;
        assert_eq!(is.bytes - was.bytes, direction * (headers + PAYLOAD) as u64);
        assert!(direction <= COUNTED, "{is:#?}");
        packets += direction;
    }
    assert_eq!(packets + (left - left_before), 2 * COUNTED, "{before:#?}\n{after:#?}");
    assert_eq!(packets, forwarded - forwarded_before, "no other packets are forwarded");
}

/// Each entry is one of conntrack's connections, with the same translation.
fn is_as_conntrack(bed: &Bed) {
    let page = bed.table(&TrackedFlowsRequest::default());
    assert_eq!((page.total, page.used), (4, 4), "{page:#?}");
    let connections =
        stateful::connections(bed.topology.host("r1"), "").expect("conntrack lists them");
    for flow in &page.flows {
        let text = |end: &SocketAddr| end.to_string();
        let found = connections.iter().find(|one| {
            let [source, destination] = one.original.each_ref().map(text);
            (&one.protocol, source, destination)
                == (&flow.protocol, flow.source.clone(), flow.destination.clone())
        });
        let found = found.unwrap_or_else(|| panic!("{flow:#?} is not in {connections:#?}"));
        let [from, to] = found.reply.each_ref().map(text);
        assert_eq!((&from, &to), (&flow.translated_destination, &flow.translated_source));
        assert!(found.is_assured && found.is_translated(), "{found:?}");
    }
    let shown = bed.show("flows --diff");
    assert_eq!(shown, "The flow table is as conntrack: 4 entries compared.\n");
}

/// The same entries, page by page and by each filter.
fn pages_and_filters(bed: &Bed) {
    let all = bed.table(&TrackedFlowsRequest::default());
    let bytes = |flow: &TrackedFlow| flow.original.bytes + flow.reply.bytes;
    assert!(all.flows.is_sorted_by(|one, other| bytes(one) >= bytes(other)), "{all:#?}");
    // An acknowledgement may have passed since they were added up.
    assert!(all.bytes <= all.flows.iter().map(bytes).sum::<u64>(), "{all:#?}");
    for (place, flow) in all.flows.iter().enumerate() {
        let request = TrackedFlowsRequest { limit: 1, offset: place, ..Default::default() };
        let page = bed.table(&request);
        assert_eq!((page.total, page.flows.len()), (4, 1));
        assert_eq!((page.flows[0].id, &page.flows[0].source), (flow.id, &flow.source));
    }
    for (filter, wanted) in [
        ("--nat --port wan", 4),
        ("--protocol tcp", 2),
        ("--protocol udp --transport-port 4000", 2),
        ("--address 2001:db8:2::fe", 2),
        ("--address 10.9.9.9", 0),
    ] {
        let shown = bed.show(&format!("flows {filter}"));
        let connections = format!("{wanted} connections, ");
        assert!(shown.starts_with(&connections), "{filter}: {shown}");
        assert!(shown.contains("`conntrack -L` has these connections"), "{shown}");
    }
    let shown = bed.show("flows --limit 3 --page 2");
    assert!(shown.starts_with("Page 2 of 2. 4 connections, "), "{shown}");
}

fn is_counted(bed: &Bed) {
    let lane = bed.lane();
    let metrics = Client::new(&bed.accelerated.socket()).ask_text("/metrics").expect("it answers");
    for (name, value) in [
        ("manylane_lane_answers", 1),
        ("manylane_lane_needed{family=\"ipv6\"}", 1),
        ("manylane_lane_connections", lane.used),
        ("manylane_lane_capacity", lane.capacity),
        ("manylane_lane_admitted_total", lane.admitted),
        ("manylane_lane_refused_total{reason=\"full\"}", 0),
    ] {
        let line = format!("{name} {value}");
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
    assert!(lane.used == 4 && lane.admitted >= 4 && lane.trouble.is_none(), "{lane:#?}");
}

/// The entry, the rule that takes it from us, and what is known without a connection.
fn explains(bed: &Bed, udp: &Datagrams) {
    let why = format!("why {CLIENT_V4} {SERVER_V4} -i lan");
    let of = |sport: u16| format!("{why} --protocol udp --sport {sport} --dport {PORT}");
    let shown = bed.show(&of(CLIENT_PORT));
    assert!(shown.starts_with("Forwarded by wan to "), "{shown}");
    assert!(shown.contains("forwarded by manylane") && shown.contains("snat: "), "{shown}");
    let shown = bed.show(&of(CLIENT_PORT + 1));
    assert!(shown.starts_with("Left to the kernel (no_flow)"), "{shown}");
    assert!(shown.contains("kernel: unknown"), "{shown}");
    let shown = bed.show(&why);
    assert!(shown.contains("lan > wan, tcp") && shown.contains("accepted"), "{shown}");

    let rule = "ip saddr 10.1.0.1 udp dport 9000 limit rate 100000/second accept";
    bed.topology.tool("r1", &format!("nft insert rule inet manylane_lab forward {rule}"));
    until("the rule has its connection", || {
        udp.ask();
        match bed.flow(CLIENT_V4, TransportProtocol::Udp) {
            Some(flow) if flow.original.reason == "rules" => Ok(()),
            flow => Err(format!("{flow:#?}")),
        }
    });
    let chain = bed.topology.tool("r1", "nft -a list chain inet manylane_lab forward");
    let line = chain.lines().find(|line| line.contains("limit rate")).expect("it was added");
    let handle = line.rsplit(' ').next().expect("it has a handle");
    let place = format!("table inet manylane_lab, chain forward, handle {handle}: ");
    let flow = bed.flow(CLIENT_V4, TransportProtocol::Udp).expect("replies are still ours");
    let direction = &flow.original;
    assert!(direction.explanation.starts_with(&place), "{direction:#?}");
    assert!(direction.explanation.ends_with("limits their rate"), "{direction:#?}");
    assert_eq!((&*direction.state, &*direction.tier), ("kernel", "kernel"));
    assert_eq!(flow.reply.state, "forwarded", "{flow:#?}");
    for question in [of(CLIENT_PORT), why] {
        let shown = bed.show(&question).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&place) && shown.contains("limits their rate"), "{shown}");
    }
    // Other connections have the rules' word that they had.
    let tcp = bed.flow(CLIENT_V4, TransportProtocol::Tcp).expect("it is in use");
    assert_eq!(tcp.original.state, "forwarded", "{tcp:#?}");
    bed.topology.tool("r1", &format!("nft delete rule inet manylane_lab forward handle {handle}"));
    bed.until_forwarded(CLIENT_V4, TransportProtocol::Udp, || udp.ask());
}

/// A connection that conntrack has no longer is no entry any more.
fn ends(bed: &Bed, udp: &Datagrams) {
    let removed = |reason: &str| {
        let lane = bed.lane();
        lane.removed.iter().find(|one| one.reason == reason).map_or(0, |one| one.total)
    };
    let before = removed("ended");
    bed.topology.tool("r1", "conntrack -D -p udp --orig-src 10.1.0.1");
    until("the entry is gone", || match bed.flow(CLIENT_V4, TransportProtocol::Udp) {
        None => Ok(()),
        flow => Err(format!("{flow:#?}")),
    });
    assert_eq!(removed("ended"), before + 1);
    let shown = bed.show("flows --diff");
    assert_eq!(shown, "The flow table is as conntrack: 3 entries compared.\n");
    // Its next packets make a new one, which is not settled yet.
    udp.ask();
    let why = format!(
        "why {CLIENT_V4} {SERVER_V4} -i lan --protocol udp --sport {CLIENT_PORT} --dport {PORT}"
    );
    let shown = bed.show(&why);
    assert!(shown.contains("kernel: unsettled") && shown.contains("not assured"), "{shown}");
}
