//! Where an operator looks for a flow: `show flows`, the API, `manylane top` in a terminal, the dashboard in a browser.
//!
//! One connection of each family is in the lane, with its translation. The others are the kernel's: one for a rule, one for
//! too few packets, one since it ends, and one for a helper, where the kernel has one.
//!
//! | Shown                         | Held against                                                          |
//! |-------------------------------|-----------------------------------------------------------------------|
//! | sums by port and tier         | the sum of the table's entries, and the whole of the page             |
//! | what the kernel forwards      | the connections that the test opened, each with its own reason        |
//! | `top`, the page of the daemon | these connections, reasons and sums                                   |
//!
//! The tests read no clock but conntrack's: a UDP connection is assured some seconds after its first packet.

use std::fs;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use manylane_api::Client;
use manylane_api::accelerate::{
    KernelFlow, KernelFlows, KernelFlowsRequest, TrackedDirection, TrackedFlows,
    TrackedFlowsRequest, TrackedSum,
};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::has;
use manylane_lab::stateful::Rules;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, WAN_V4, until};

use crate::browser::Browser;
use crate::flows::{Datagrams, Stream};
use crate::terminal::Top;

const CLIENT_PORT: u16 = 4000;
/// The server's port of connections in the lane.
const LANE: u16 = 9000;
/// Of those that a rule keeps.
const RULED: u16 = 9001;
/// Of one that has too few packets.
const YOUNG: u16 = 9002;
/// Of one that a helper reads.
const HELPED: u16 = 9003;
/// Of one that ends.
const ENDING: u16 = 9004;
/// Of one that conntrack counts.
const COUNTED: u16 = 9005;

/// A connection that ends is one for as long as the test takes.
const HOURS_S: &str = "36000";

const PROGRAM: &str = env!("CARGO_BIN_EXE_manylane");
const ADDRESS: &str = "127.0.0.1:9176";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    folder: PathBuf,
}

impl Bed {
    fn make(name: &str, more: &[&str]) -> Option<Bed> {
        let topology = topology(IN_A_ROW)?;
        Rules::Masquerade.load(topology.host("r1"), ["lan", "wan"]).expect("nft takes them");
        let folder = std::env::temp_dir().join(format!("manylane-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let token = folder.join("token");
        let mut options = fs::File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&token);
        std::io::Write::write_all(&mut file.expect("the folder is ours"), TOKEN.as_bytes())
            .expect("the folder is ours");
        let token = token.display().to_string();
        let mut arguments = vec!["--listen", ADDRESS, "--token-file", &token];
        arguments.extend(more);
        let host = topology.host("r1");
        let accelerated = Accelerated::start_with(host, PROGRAM, &["lan", "wan"], &arguments);
        Some(Bed { accelerated, topology, folder })
    }

    fn client(&self) -> Client {
        Client::new(&self.accelerated.socket())
    }

    fn show(&self, what: &str) -> String {
        let socket = self.accelerated.socket();
        self.topology.tool("r1", &format!("{PROGRAM} show {what} --socket {}", socket.display()))
    }

    fn table(&self, request: &TrackedFlowsRequest) -> TrackedFlows {
        self.client().post("/v1/accelerate/flows/table", request).expect("the thread answers")
    }

    fn kernel(&self, request: &KernelFlowsRequest) -> KernelFlows {
        self.client().post("/v1/accelerate/flows/kernel", request).expect("the thread answers")
    }

    /// The kernel's connection to this end.
    fn kept(&self, to: SocketAddr) -> Option<KernelFlow> {
        let request = KernelFlowsRequest {
            address: Some(to.ip()),
            transport_port: Some(to.port()),
            ..KernelFlowsRequest::default()
        };
        let page = self.kernel(&request);
        assert!(page.total <= 1 && page.trouble.is_none(), "{page:#?}");
        page.flows.into_iter().next()
    }

    /// Waits until a connection is the kernel's for this reason.
    fn until_kept(&self, to: SocketAddr, reason: &str, mut ask: impl FnMut()) -> KernelFlow {
        until(&format!("the connection to {to} is the kernel's: {reason}"), || {
            ask();
            match self.kept(to) {
                Some(flow) if flow.reason == reason => Ok(flow),
                other => Err(format!("{other:#?}\n{:#?}", self.table(&Default::default()))),
            }
        })
    }

    /// Waits until both directions of a connection are in the lane.
    fn until_in_lane(&self, client: IpAddr, udp: &Datagrams) {
        until(&format!("the connection of {client} is in the lane"), || {
            (0..20).for_each(|_| udp.ask());
            let request = TrackedFlowsRequest {
                address: Some(client),
                transport_port: Some(LANE),
                ..TrackedFlowsRequest::default()
            };
            let page = self.table(&request);
            let is_ours = |side: &TrackedDirection| side.state == "forwarded" && side.packets > 0;
            match page.flows.first() {
                Some(flow) if is_ours(&flow.original) && is_ours(&flow.reply) => Ok(()),
                _ => Err(format!("{page:#?}")),
            }
        });
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Everything that stays open until the end.
struct Connections {
    _datagrams: Vec<Datagrams>,
    _streams: Vec<Stream>,
    /// Of the rule that keeps the connections to [`RULED`].
    place: String,
    has_helper: bool,
}

#[test]
fn each_flow_is_shown_by_its_forwarder_and_with_its_reason() {
    if !["nft", "conntrack"].iter().all(|program| has(program)) {
        return;
    }
    let Some(bed) = Bed::make("flow-views", &["--tier", "ingress"]) else { return };
    let connections = open(&bed);
    sums_are_those_of_the_entries(&bed);
    the_kernels_are_listed(&bed, &connections);
    the_command_lists_them(&bed, &connections);
    top_shows_them(&bed, &connections);
    the_dashboard_shows_them(&bed, &connections);
    they_have_rates_where_conntrack_counts(&bed);
    bed.accelerated.assert_balanced();
}

/// Opens the connections, and waits until each is what it is to be.
fn open(bed: &Bed) -> Connections {
    let topology = &bed.topology;
    for end in ["dport", "sport"] {
        let rule = format!("udp {end} {RULED} limit rate 100000/second accept");
        topology.tool("r1", &format!("nft insert rule inet manylane_lab forward {rule}"));
    }
    let chain = topology.tool("r1", "nft -a list chain inet manylane_lab forward");
    let line = chain.lines().find(|line| line.contains(&format!("udp dport {RULED}")));
    let handle = line.and_then(|line| line.rsplit(' ').next()).expect("it has a handle");
    let place = format!("table inet manylane_lab, chain forward, handle {handle}: ");
    let helper = format!(
        "nft 'table inet helpers {{ ct helper ftp {{ type \"ftp\" protocol tcp; }}
         chain prerouting {{ type filter hook prerouting priority filter
         ct state new tcp dport {HELPED} ct helper set \"ftp\" }} }}'"
    );
    let has_helper = topology.try_tool("r1", &helper).is_ok();
    if !has_helper {
        println!("the kernel has no helper for FTP: the test goes on without a connection of one");
    }

    let (mut datagrams, mut streams) = (Vec::new(), Vec::new());
    for (client, server) in [(CLIENT_V4, SERVER_V4), (CLIENT_V6, SERVER_V6)] {
        let udp = Datagrams::open(topology, [client, server], [CLIENT_PORT, LANE]);
        bed.until_in_lane(client, &udp);
        datagrams.push(udp);
        let to = SocketAddr::new(server, RULED);
        let udp = Datagrams::open(topology, [client, server], [CLIENT_PORT + 1, RULED]);
        let flow = bed.until_kept(to, "rules", || udp.ask());
        assert!(flow.explanation.starts_with(&place), "{flow:#?}");
        datagrams.push(udp);
    }
    let young = SocketAddr::new(SERVER_V4, YOUNG);
    let mut stream = Stream::open(topology, young);
    stream.ask();
    bed.until_kept(young, "candidate", || {});
    streams.push(stream);
    if has_helper {
        let helped = SocketAddr::new(SERVER_V4, HELPED);
        let mut stream = Stream::open(topology, helped);
        stream.ask();
        bed.until_kept(helped, "helped", || {});
        streams.push(stream);
    }
    for state in ["fin_wait", "close_wait"] {
        topology.set("r1", &format!("net/netfilter/nf_conntrack_tcp_timeout_{state}"), HOURS_S);
    }
    let ending = SocketAddr::new(SERVER_V6, ENDING);
    let stream = Stream::open(topology, ending);
    stream.client.shutdown(Shutdown::Write).expect("it is open");
    bed.until_kept(ending, "closing", || {});
    streams.push(stream);
    Connections { _datagrams: datagrams, _streams: streams, place, has_helper }
}

/// Of all directions, by the port that receives them and by the tier: as `show flows` has them.
fn sums_are_those_of_the_entries(bed: &Bed) {
    let page = bed.table(&TrackedFlowsRequest::default());
    assert_eq!((page.total, page.flows.len()), (2, 2), "{page:#?}");
    let sum = |ingress: &str| {
        let sides = page.flows.iter().flat_map(|flow| [&flow.original, &flow.reply]);
        let sides: Vec<_> = sides.filter(|side| side.ingress == ingress).collect();
        assert!(sides.iter().all(|side| side.tier == "ingress"), "{page:#?}");
        TrackedSum {
            ingress: ingress.into(),
            tier: "ingress".into(),
            directions: sides.len() as u64,
            packets: sides.iter().map(|side| side.packets).sum(),
            bytes: sides.iter().map(|side| side.bytes).sum(),
        }
    };
    assert_eq!(page.sums, [sum("lan"), sum("wan")]);
    let all = |part: fn(&TrackedSum) -> u64| page.sums.iter().map(part).sum::<u64>();
    assert_eq!((all(|sum| sum.packets), all(|sum| sum.bytes)), (page.packets, page.bytes));
    let shown: TrackedFlows =
        serde_json::from_str(&bed.show("flows --json")).expect("it is the API's JSON");
    assert_eq!(shown.sums, page.sums);
    let text = squeezed(&bed.show("flows"));
    for TrackedSum { ingress, tier, directions, packets, .. } in &page.sums {
        let line = format!("\n{ingress} {tier} {directions} {packets} ");
        assert!(text.replace(',', "").contains(&line), "{line}\n{text}");
    }
}

fn the_kernels_are_listed(bed: &Bed, connections: &Connections) {
    let page = bed.kernel(&KernelFlowsRequest::default());
    let total = 4 + u64::from(connections.has_helper);
    assert_eq!((page.total, page.tracked, page.is_truncated), (total, 2, false), "{page:#?}");
    let count = |reason: &str| {
        page.reasons.iter().find(|one| one.reason == reason).map_or(0, |one| one.total)
    };
    assert_eq!(["rules", "candidate", "closing"].map(count), [2, 1, 1], "{page:#?}");
    let young = bed.kept(SocketAddr::new(SERVER_V4, YOUNG)).expect("it is open");
    assert_eq!([young.ingress.as_deref(), young.egress.as_deref()], [Some("lan"), Some("wan")]);
    let leaves: SocketAddr = young.translated_source.parse().expect("address and port");
    assert_eq!((leaves.ip(), &*young.nat), (WAN_V4, "snat"));
    assert!(young.state.contains("ESTABLISHED") && young.state.contains("assured"), "{young:#?}");

    // By reason, and page by page.
    let reason = Some("rules".to_owned());
    let ruled = bed.kernel(&KernelFlowsRequest { reason, ..Default::default() });
    assert_eq!((ruled.total, ruled.flows.len()), (2, 2));
    let mut seen: Vec<_> = (0..total as usize)
        .flat_map(|offset| {
            let one = KernelFlowsRequest { limit: 1, offset, ..Default::default() };
            bed.kernel(&one).flows
        })
        .map(|flow| (flow.source, flow.destination))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len() as u64, total, "each is on one page");
    for (port, wanted) in [("lan", total), ("wan", total)] {
        let port = Some(port.to_owned());
        let page = bed.kernel(&KernelFlowsRequest { port, limit: 1, ..Default::default() });
        assert_eq!((page.total, page.flows.len()), (wanted, 1));
    }
}

fn the_command_lists_them(bed: &Bed, connections: &Connections) {
    let shown = squeezed(&bed.show("flows --kernel"));
    let first = "connections that the kernel forwards, of ";
    assert!(shown.contains(first) && shown.contains("2 in the flow table"), "{shown}");
    let cure = "sysctl -w net.netfilter.nf_conntrack_acct=1";
    for words in [&*connections.place, "\nrules 2 ", "\ncandidate 1 ", "\nclosing 1 ", cure] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    assert!(!shown.contains("packets/s"), "{shown}");
    let shown = bed.show("flows --kernel --reason closing");
    assert!(shown.starts_with("1 connection that the kernel"), "{shown}");
    let why = format!("why {CLIENT_V4} {SERVER_V4} -i lan --protocol udp");
    let shown = bed.show(&format!("{why} --sport {} --dport {RULED}", CLIENT_PORT + 1));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("kernel: rules") && shown.contains(&connections.place), "{shown}");
}

fn top_shows_them(bed: &Bed, connections: &Connections) {
    let socket = bed.accelerated.socket().display().to_string();
    let mut top = Top::start(&["--socket", &socket, "--interval", "0.2"]);
    top.resize(40, 160);
    top.until("it is there", |screen| screen.contains("1 Ports"));
    top.press("4\r");
    let flow = format!("{CLIENT_V4}:{CLIENT_PORT} > {SERVER_V4}:{LANE} udp");
    let leaves = format!("{WAN_V4}:");
    top.until("a flow in the lane, and its translation", |screen| {
        let line = screen.lines().find(|line| line.starts_with(&flow)).unwrap_or_default();
        [" lan ", " ingress ", " snat ", &leaves].iter().all(|word| line.contains(word))
    });
    top.press("g");
    let page = bed.table(&TrackedFlowsRequest::default());
    top.until("the same sums by port and tier", |screen| {
        let lines = squeezed(screen).replace(',', "");
        page.sums.iter().all(|TrackedSum { ingress, tier, directions, packets, bytes }| {
            let begin = format!("{ingress} {tier} {directions} ");
            let end = format!(" {packets} {bytes}");
            lines.lines().any(|line| line.starts_with(&begin) && line.ends_with(&end))
        })
    });
    top.press("5");
    let reasons = [" rules ", " candidate ", " closing "];
    top.until("what the kernel forwards", |screen| {
        reasons.iter().all(|reason| screen.contains(reason))
            && (!connections.has_helper || screen.contains(" helped "))
    });
    // By reason, the last one first.
    top.press("r\r");
    let seen = top.until("the rule, and the daemon's answer", |screen| {
        screen.contains(&connections.place) && screen.contains("state: kernel: rules")
    });
    assert!(seen.contains("received by lan"), "{seen}");
    top.press("q");
    top.ends_well();
}

/// Of connections that begin when conntrack counts, and of these only.
fn they_have_rates_where_conntrack_counts(bed: &Bed) {
    bed.topology.set("r1", "net/netfilter/nf_conntrack_acct", "1");
    let to = SocketAddr::new(SERVER_V6, COUNTED);
    let mut stream = Stream::open(&bed.topology, to);
    stream.ask();
    let first = bed.until_kept(to, "candidate", || {});
    let first = first.counted.expect("conntrack counts");
    assert!(first.original_packets >= 3 && first.reply_packets >= 2, "{first:?}");
    stream.ask();
    let later = bed.kept(to).and_then(|flow| flow.counted).expect("conntrack counts");
    assert!(later.packets() > first.packets() && later.bytes() > first.bytes(), "{later:?}");
    let ruled = bed.kept(SocketAddr::new(SERVER_V4, RULED)).expect("it is open");
    assert_eq!(ruled.counted, None, "it is older");
    let shown = bed.show("flows --kernel");
    assert!(shown.contains(" packets/s, ") && shown.contains("bit/s"), "{shown}");
    assert!(!shown.contains("nf_conntrack_acct"), "{shown}");
    let socket = bed.accelerated.socket().display().to_string();
    let mut top = Top::start(&["--socket", &socket, "--interval", "0.2"]);
    top.resize(40, 200);
    top.until("it is there", |screen| screen.contains("1 Ports"));
    top.press("5");
    let end = format!("> {to} tcp");
    top.until("a rate of 0 for the connection that is counted, and none for another", |screen| {
        let line = |end: &str| screen.lines().find(|line| line.contains(end)).map(squeezed);
        let older = format!("> {SERVER_V4}:{RULED} udp");
        line(&end).is_some_and(|line| line.contains(" candidate 0 0 "))
            && line(&older).is_some_and(|line| line.contains(" rules - - "))
    });
    top.press("q");
    top.ends_well();
}

/// In the router's namespace, where the daemon listens.
fn the_dashboard_shows_them(bed: &Bed, connections: &Connections) {
    let host = bed.topology.host("r1");
    let Some(mut browser) = host.run(|| Browser::start("flow-views")) else { return };
    browser.open(&format!("http://{ADDRESS}/"));
    browser.until("!document.getElementById('login').hidden");
    browser.evaluate(&format!(
        "document.getElementById('token').value = '{TOKEN}'; document.getElementById('login').requestSubmit()"
    ));
    let has_row = |table: &str, words: &[&str]| {
        let words = words.iter().map(|word| format!("row.innerText.includes('{word}')"));
        let words = words.collect::<Vec<_>>().join(" && ");
        format!("[...document.getElementById('{table}').rows].some((row) => {words})")
    };
    let ends = [CLIENT_V4, SERVER_V4].map(|address| address.to_string());
    let [from, to] = [(&ends[0], CLIENT_PORT), (&ends[1], LANE)];
    let [from, to] = [from, to].map(|(address, port)| format!("{address}:{port}"));
    browser.until(&has_row("flows", &[&from, &to, "ingress", "snat", &WAN_V4.to_string()]));
    browser.until(&has_row("flows-sums", &["lan", "ingress"]));
    browser.evaluate("document.getElementById('kernel-list').click()");
    let ruled = format!("[{SERVER_V6}]:{RULED}");
    browser.until(&has_row("kernel", &[&ruled, "rules", &connections.place]));
    for reason in ["candidate", "closing"] {
        browser.until(&has_row("kernel", &[reason]));
    }
    // Named by its ends.
    for (field, value) in [
        ("interface", "lan".to_owned()),
        ("source", CLIENT_V6.to_string()),
        ("destination", SERVER_V6.to_string()),
        ("protocol", "udp".to_owned()),
        ("sport", (CLIENT_PORT + 1).to_string()),
        ("dport", RULED.to_string()),
    ] {
        browser.evaluate(&format!("document.getElementById('why-{field}').value = '{value}'"));
    }
    browser.evaluate("document.getElementById('why').requestSubmit()");
    browser.until(&has_row("why-answer", &["connection", "kernel: rules"]));
    browser.until(&has_row("why-answer", &[&connections.place]));
    let text = browser.text();
    assert!(!text.contains("NaN") && !text.contains("undefined"), "{text}");
}

/// Without a table what is shown is a sample, and is called so.
#[test]
fn without_a_flow_table_flows_are_shown_by_sample() {
    if !["nft", "conntrack"].iter().all(|program| has(program)) {
        return;
    }
    let Some(bed) = Bed::make("flow-samples", &["--flows", "0"]) else { return };
    let shown = bed.show("flows");
    assert!(shown.starts_with("By sample: the daemon runs with `--flows 0`"), "{shown}");
    let page = bed.kernel(&KernelFlowsRequest::default());
    assert!(page.trouble.is_some_and(|said| said.contains("--flows 0")));
    let shown = bed.show("flows --kernel");
    assert!(shown.starts_with("No connection can be explained: "), "{shown}");
    let socket = bed.accelerated.socket().display().to_string();
    let mut top = Top::start(&["--socket", &socket, "--interval", "0.2"]);
    top.resize(40, 120);
    top.until("it is there", |screen| screen.contains("1 Ports"));
    top.press("4\r");
    top.until("a sample", |screen| screen.contains("by sample (`--flows 0`)"));
    top.press("q");
    top.ends_well();
}

fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
