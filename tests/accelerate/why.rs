//! `manylane show why` against `manylane trace`: about one packet both give one answer, by tier or reason, rule and end,
//! where manylane forwards it, and where the kernel forwards, receives or drops it. IPv4 and IPv6. Needs root.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use manylane_api::accelerate::{TransportProtocol, Why, WhyQuestion};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::has;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, until};
use serde_json::Value;

use super::capture::{MANYLANE, alone, start};
use super::flows::Datagrams;
use super::trace::page;

/// A datagram of the client.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    from: IpAddr,
    to: IpAddr,
    port: u16,
}

/// Of every datagram.
const SOURCE_PORT: u16 = 4000;

impl Datagram {
    fn send(&self, topology: &Topology) {
        let (from, to) =
            (SocketAddr::new(self.from, SOURCE_PORT), SocketAddr::new(self.to, self.port));
        topology.host("client").run(move || {
            let socket = UdpSocket::bind(from).expect("the address is there");
            // Where no route leads there, the kernel says so to the next call.
            let _ = socket.send_to(b"why", to);
        });
    }

    fn why(&self, accelerated: &Accelerated) -> Why {
        let question = WhyQuestion {
            source: self.from,
            destination: self.to,
            interface: "lan".into(),
            transport: Some((TransportProtocol::Udp, [SOURCE_PORT, self.port])),
        };
        accelerated.ask(&question.path())
    }

    /// The daemon's answer before the packet is sent, and the trace of the packet.
    fn both(&self, topology: &Topology, accelerated: &Accelerated) -> (Why, Value) {
        let filter = format!("udp dst port {} and dst host {}", self.port, self.to);
        let why = RefCell::new(Why::default());
        let traced = page(accelerated, &["--json", "-i", "lan", &filter], || {
            why.replace(self.why(accelerated));
            self.send(topology);
        });
        (why.into_inner(), serde_json::from_str(&traced).expect("it is a line of JSON"))
    }
}

/// Of a rule or policy: table, chain, number, handle, verdict.
type Decided = (String, String, Option<u64>, Option<u64>, String);

fn steps_of_trace(page: &Value) -> Vec<Decided> {
    let stages = page["stages"].as_array().expect("there are stages").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let decided = stages.filter(|stage| stage["what"] == "decided");
    decided
        .map(|stage| {
            let table = format!("{} {}", text(&stage["family"]), text(&stage["table"]));
            let [rule, handle] = ["rule", "handle"].map(|field| stage[field].as_u64());
            (table, text(&stage["chain"]), rule, handle, text(&stage["verdict"]))
        })
        .collect()
}

fn steps_of_why(why: &Why) -> Vec<Decided> {
    let chains = why.kernel.iter().flat_map(|kernel| &kernel.chains);
    chains
        .flat_map(|chain| {
            chain.steps.iter().map(|step| {
                let table = format!("{} {}", chain.family, chain.table);
                let rule = step.rule.map(|rule| rule as u64);
                (table, step.chain.clone(), rule, step.handle, step.verdict.clone())
            })
        })
        .collect()
}

/// Both give this answer. The trace also has the kernel's reason of a drop.
fn agree(topology: &Topology, accelerated: &Accelerated, datagram: Datagram, result: &str) {
    until(&format!("{datagram:?}: {result}"), || {
        let (why, traced) = datagram.both(topology, accelerated);
        let said = traced["result"].as_str().unwrap_or_default();
        let is_prefix = said == why.result || said.starts_with(&format!("{}, ", why.result));
        let is_it = is_prefix
            && why.result.ends_with(result)
            && steps_of_trace(&traced) == steps_of_why(&why);
        // A change of rules or routes that manylane has not read yet is another question.
        if is_it { Ok(()) } else { Err(format!("{why:#?}\n{traced:#}")) }
    });
}

/// To the server, in both families.
fn to_server(port: u16) -> [Datagram; 2] {
    [(CLIENT_V4, SERVER_V4), (CLIENT_V6, SERVER_V6)].map(|(from, to)| Datagram { from, to, port })
}

#[test]
fn an_answer_without_a_packet_is_that_with_one() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for tier in ["ingress", "driver"] {
        let accelerated = start(&topology, tier);
        for datagram in to_server(5000) {
            agree(&topology, &accelerated, datagram, &format!("{tier}: transmitted by wan"));
        }
        let left = |reason: &str, end: &str| {
            format!("{tier}: left to the kernel, {reason}; kernel: {end}")
        };
        let elsewhere = ["10.9.0.1", "2001:db8:9::1"].map(|to| to.parse().expect("an address"));
        for (datagram, to) in to_server(5000).into_iter().zip(elsewhere) {
            let datagram = Datagram { to, ..datagram };
            agree(&topology, &accelerated, datagram, &left("no_route", "dropped"));
        }
        let own =
            ["10.1.0.254", "2001:db8:1::fe"].map(|to| to.parse::<IpAddr>().expect("as above"));
        for (datagram, to) in to_server(5001).into_iter().zip(own) {
            let end = SocketAddr::new(to, 5001);
            let bind = move || UdpSocket::bind(end);
            let _receives = topology.host("r1").run(bind).expect("the address is there");
            let datagram = Datagram { to, ..datagram };
            let end = left("local", "delivered to the router itself");
            agree(&topology, &accelerated, datagram, &end);
        }
    }
}

/// Base chains of some priorities, jumps, a drop by a rule and one by a policy, a translation.
const RULES: &str = "
    table inet filter {
        chain early { type filter hook prerouting priority raw; udp dport 5009 counter; }
        chain forward {
            type filter hook forward priority filter; policy drop;
            counter
            ct state established,related accept
            udp dport 5001 drop
            udp dport 5002 jump services
            udp dport 5003 accept
            udp dport 5004 limit rate 1000/second accept
        }
        chain services { meta l4proto udp counter; udp dport 5002 accept; }
        chain younger { type filter hook forward priority filter; udp dport 5003 counter; }
        chain postrouting { type nat hook postrouting priority srcnat; udp dport 5003 masquerade; }
    }";

#[test]
fn the_rules_that_a_packet_meets_are_known_without_it() {
    let _alone = alone();
    if !has("nft") || !has("conntrack") {
        return;
    }
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    topology.tool("r1", &format!("nft '{RULES}'"));
    let accelerated = start_with_rules(&topology);
    let by = |end: &str| format!("ingress: left to the kernel, no_flow; {end}");
    for (port, end) in [
        (5001, "nft: table inet filter chain forward rule 3 drop; kernel: dropped"),
        (5002, "nft: accepted; kernel: sent by wan"),
        (5003, "nft: accepted; kernel: sent by wan"),
        (5008, "nft: table inet filter chain forward policy drop; kernel: dropped"),
        (5009, "nft: table inet filter chain forward policy drop; kernel: dropped"),
    ] {
        for datagram in to_server(port) {
            agree(&topology, &accelerated, datagram, &by(end));
        }
    }
    // Whether a limit is used up, only the kernel knows.
    for datagram in to_server(5004) {
        let why = datagram.why(&accelerated);
        let end = "nft: table inet filter chain forward rule 6 unknown; kernel: unknown";
        assert_eq!(why.result, by(end), "{why:#?}");
        let socket = accelerated.socket();
        let text = topology.tool("r1", &format!(
            "{MANYLANE} show why {} {} -i lan --protocol udp --sport {SOURCE_PORT} --dport 5004 --socket {}",
            datagram.from, datagram.to, socket.display()
        ));
        for words in [
            "unknown: table inet filter, chain forward, rule 6, handle ",
            "none: taken for the first packet of a connection",
            "dev wan",
            end,
        ] {
            assert!(text.contains(words), "no {words:?} in\n{text}");
        }
    }
    // A connection in the lane, which the rules would accept.
    for [client, server] in [[CLIENT_V4, SERVER_V4], [CLIENT_V6, SERVER_V6]] {
        let talk = Datagrams::open(&topology, [client, server], [SOURCE_PORT, 5002]);
        let datagram = Datagram { from: client, to: server, port: 5002 };
        until("the connection is in the lane", || {
            (0..20).for_each(|_| talk.ask());
            let why = datagram.why(&accelerated);
            if why.forwarded { Ok(()) } else { Err(format!("{why:#?}")) }
        });
        drop(talk);
        agree(&topology, &accelerated, datagram, "ingress: transmitted by wan");
    }
    accelerated.assert_balanced();
}

fn start_with_rules(topology: &Topology) -> Accelerated {
    let host = topology.host("r1");
    let accelerated =
        Accelerated::start_with(host, MANYLANE, &["lan", "wan"], &["--tier", "ingress"]);
    for name in ["lan", "wan"] {
        accelerated.wait_for_tier(name, "ingress");
    }
    accelerated
}
