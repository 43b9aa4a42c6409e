//! A router with established connections through it, and their packets.

use std::cell::Cell;
use std::net::IpAddr;

use etherparse::PacketBuilder;
use manylane_accelerate::firewall::{Flow, Packet, Port, Protocol, Tuple};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::expression::Expression;
use manylane_io::netlink::nftables::ruleset::{Ruleset, ruleset};
use manylane_io::station::Station;
use manylane_lab::accelerated::topology;
use manylane_lab::scenario::has;
use manylane_lab::tools::until;
use manylane_lab::topology::Topology;

use super::random::Random;

const TEXT: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";

/// Tables that stay: translation, tracking, and a counter behind everything else.
const KEEPER: &str = "
table ip keeper {
    chain before { type nat hook prerouting priority dstnat;
        ip daddr 10.9.7.0/24 dnat to 10.9.99.1; }
    chain behind { type nat hook postrouting priority srcnat;
        ip saddr 10.8.7.0/24 snat to 10.9.98.1; }
}
table inet keeper {
    chain last { type filter hook postrouting priority 2000; ct state established counter; }
}
";

/// The connections' marks, while they are made.
const MARKS: &str = "
table inet marks {
    chain marks { type filter hook forward priority -400;
        meta l4proto { tcp, udp } th dport 400-499 ct mark set 0x4
        meta l4proto { tcp, udp } th sport 400-499 ct mark set 0x4
    }
}
";

/// Client, router, server, and connections between the first and the last.
pub struct Connections {
    pub topology: Topology,
    pub flows: Vec<Flow>,
    /// The program that has loaded the rules on trial.
    pub loaded: Cell<&'static str>,
    ports: [Port; 2],
    client: Station,
    server: Station,
    /// Of the client, of the router towards it; of the server, of the router towards it.
    macs: [[u8; 6]; 4],
}

impl Connections {
    /// Makes the network and this many connections; nothing where that cannot be done.
    pub fn make(count: usize, random: &mut Random) -> Option<Connections> {
        if !["nft", "iptables-nft", "conntrack"].iter().all(|program| has(program)) {
            return None;
        }
        let topology = topology(TEXT)?;
        for line in [
            "ip route add 10.8.0.0/16 via 10.1.0.1",
            "ip route add 10.9.0.0/16 via 10.2.0.1",
            "ip -6 route add 2001:db8:8::/48 via 2001:db8:1::1",
            "ip -6 route add 2001:db8:9::/48 via 2001:db8:2::1",
        ] {
            topology.tool("r1", line);
        }
        topology.load(KEEPER);
        topology.load(MARKS);
        for (name, value) in [
            ("net/netfilter/nf_conntrack_tcp_be_liberal", "1"),
            ("net/netfilter/nf_conntrack_udp_timeout", "36000"),
            ("net/netfilter/nf_conntrack_udp_timeout_stream", "36000"),
            ("net/netfilter/nf_conntrack_tcp_timeout_max_retrans", "36000"),
            ("net/netfilter/nf_conntrack_tcp_timeout_unacknowledged", "36000"),
        ] {
            topology.set("r1", name, value);
        }
        let mac = |host: &str, name: &str| topology.mac(host, name).expect("it is there");
        let macs =
            [mac("client", "eth0"), mac("r1", "lan"), mac("server", "eth0"), mac("r1", "wan")];
        // So that the router looks for no neighbour meanwhile: the answer would move a counter on trial.
        for (gateway, [a, b, c, d, e, f], port) in [
            ("10.1.0.1", macs[0], "lan"),
            ("2001:db8:1::1", macs[0], "lan"),
            ("10.2.0.1", macs[2], "wan"),
            ("2001:db8:2::1", macs[2], "wan"),
        ] {
            let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
            topology.tool("r1", &format!("ip neigh replace {gateway} lladdr {mac} dev {port}"));
        }
        let station = |host: &str| {
            topology.host(host).run(|| Station::open("eth0")).expect("root may open it")
        };
        let (client, server) = (station("client"), station("server"));
        let port = |name: &'static str| {
            let link = topology.host("r1").run(move || Netlink::open()?.link(name));
            Port { name: name.into(), index: link.expect("it is there").index }
        };
        let ports = [port("lan"), port("wan")];
        let flows = (0..count).map(|number| flow(number, random)).collect();
        let made =
            Connections { topology, flows, loaded: Cell::new(""), ports, client, server, macs };
        made.establish();
        made.topology.tool("r1", "nft delete table inet marks");
        Some(made)
    }

    /// A handshake each; for UDP, a packet each way.
    fn establish(&self) {
        let before = self.accepted();
        let mut random = Random::of_packet(1, 1);
        for flow in &self.flows {
            let reply = Flow { is_reply: true, ..*flow };
            self.send_flags(flow, Some((true, false)), &mut random);
            self.send_flags(&reply, Some((true, true)), &mut random);
            self.send(flow, &mut random);
            self.send(&reply, &mut random);
        }
        // The first packet of each way of a neighbour may be held; all are established in the end.
        let wanted = before + 2 * self.flows.len() as u64;
        self.until_accepted(wanted);
        // In place of two seconds of packets.
        for family in ["ipv4", "ipv6"] {
            self.topology.tool("r1", &format!("conntrack -U -f {family} -p udp -u ASSURED"));
        }
    }

    /// Sends one plain packet of a flow.
    pub fn send(&self, flow: &Flow, random: &mut Random) {
        self.send_flags(flow, None, random);
    }

    /// Sends one packet, plain or with the flags SYN and ACK as given.
    fn send_flags(&self, flow: &Flow, syn: Option<(bool, bool)>, random: &mut Random) {
        let ends = flow.received();
        let [from, to] = if flow.is_reply { [2, 3] } else { [0, 1] };
        let builder = PacketBuilder::ethernet2(self.macs[from], self.macs[to]);
        let hops = 64 - random.below(32) as u8;
        let builder = match (ends.source, ends.destination) {
            (IpAddr::V4(source), IpAddr::V4(to)) => {
                builder.ipv4(source.octets(), to.octets(), hops)
            }
            (IpAddr::V6(source), IpAddr::V6(to)) => {
                builder.ipv6(source.octets(), to.octets(), hops)
            }
            _ => panic!("an address of each version: {ends:?}"),
        };
        let payload = random.below(60);
        let payload = random.bytes(payload);
        let mut frame = Vec::new();
        let written = if protocol(flow) == Protocol::Udp {
            builder.udp(ends.source_port, ends.destination_port).write(&mut frame, &payload)
        } else {
            let number = 1000 + u32::from(syn.is_none());
            let mut tcp = builder.tcp(ends.source_port, ends.destination_port, number, 4000);
            tcp = match syn {
                Some((true, true)) => tcp.syn().ack(1001),
                Some(_) => tcp.syn(),
                None if random.percent(30) => tcp.ack(1001).psh(),
                None => tcp.ack(1001),
            };
            let payload = if syn.is_some() { &[][..] } else { &payload[..] };
            tcp.write(&mut frame, payload)
        };
        written.expect("memory takes it");
        let station = if flow.is_reply { &self.server } else { &self.client };
        station.send(&frame).expect("the link is up");
    }

    /// The question about all connections like this one, or about itself.
    pub fn question(&self, flow: &Flow, is_about_flow: bool) -> Packet {
        let [lan, wan] = &self.ports;
        let (ingress, egress) = if flow.is_reply { (wan, lan) } else { (lan, wan) };
        Packet {
            ingress: ingress.clone(),
            egress: egress.clone(),
            family: if flow.original.source.is_ipv4() { Family::V4 } else { Family::V6 },
            protocol: protocol(flow),
            mark: Some(0),
            flow: is_about_flow.then_some(*flow),
        }
    }

    /// How many packets the router has sent behind all of its rules.
    pub fn accepted(&self) -> u64 {
        let rules = self.rules();
        let last = rules
            .tables
            .iter()
            .find(|table| table.name == "keeper" && table.family.name() == "inet");
        let rules =
            last.into_iter().flat_map(|table| table.chains.iter().flat_map(|chain| &chain.rules));
        rules.flat_map(|rule| &rule.expressions).map(counted).sum()
    }

    /// Waits until that many have been sent.
    pub fn until_accepted(&self, wanted: u64) {
        until(&format!("{wanted} packets are accepted"), || match self.accepted() {
            count if count >= wanted => Ok(()),
            count => Err(format!("{count} are")),
        });
    }

    /// The rules of nftables in the router.
    pub fn rules(&self) -> Ruleset {
        self.topology.host("r1").run(ruleset).expect("root may read it")
    }
}

/// Loads rules in the router.
pub trait Load {
    fn load(&self, rules: &str);
    /// The same where the kernel or the program may refuse.
    fn try_load(&self, program: &str, rules: &str) -> Result<(), String>;
}

impl Load for Topology {
    fn load(&self, rules: &str) {
        self.try_load("nft -f", rules).unwrap_or_else(|error| panic!("{error}: {rules}"));
    }

    fn try_load(&self, program: &str, rules: &str) -> Result<(), String> {
        let name =
            format!("firewall-rules-{}-{:?}", std::process::id(), std::thread::current().id());
        let file = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        std::fs::write(&file, rules).expect("the temporary folder can be written");
        let loaded = self.try_tool("r1", &format!("{program} {}", file.display()));
        std::fs::remove_file(&file).expect("we wrote it");
        loaded.map(drop).map_err(|error| error.to_string())
    }
}

// `IPS_*`: seen reply, assured, confirmed.
const ESTABLISHED: u32 = 0x0e;
const SNAT: u32 = 0x10;
const DNAT: u32 = 0x20;
/// The tables of the keeper have looked at it.
const NAT_DONE: u32 = 0x180;

/// The packets that an expression has counted.
pub fn counted(expression: &Expression) -> u64 {
    match expression {
        Expression::Counter { packets } => *packets,
        _ => 0,
    }
}

/// UDP for connections from odd ports.
pub fn protocol(flow: &Flow) -> Protocol {
    let port = flow.original.source_port;
    if port % 2 == 1 { Protocol::Udp } else { Protocol::Tcp }
}

/// A connection. Every fourth is IPv6; of the others some are translated, as the keeper's rules say.
fn flow(number: usize, random: &mut Random) -> Flow {
    let is_v6 = number % 4 == 3;
    let (third, fourth) = (random.pick(&[0, 1, 7, 20]), random.pick(&[1, 2, 9, 200]));
    let far = (random.pick(&[0, 1, 7, 40]), random.pick(&[1, 2, 77]));
    let address = |network: u16, (third, fourth): (u8, u8)| -> IpAddr {
        match is_v6 {
            true => [0x2001, 0xdb8, network, 0, 0, 0, third.into(), fourth.into()].into(),
            false => [10, network as u8, third, fourth].into(),
        }
    };
    let original = Tuple {
        source: address(8, (third, fourth)),
        source_port: 2000 + number as u16,
        destination: address(9, far),
        destination_port: random.pick(&[22, 53, 80, 443, 400, 450, 8080]),
    };
    let mut reply = original.inverted();
    if !is_v6 && far.0 == 7 {
        reply.source = [10, 9, 99, 1].into();
    }
    if !is_v6 && third == 7 {
        reply.destination = [10, 9, 98, 1].into();
    }
    let is_marked = (400..500).contains(&original.destination_port);
    let mut status = ESTABLISHED;
    if !is_v6 {
        status |= NAT_DONE;
        status |= if third == 7 { SNAT } else { 0 };
        status |= if far.0 == 7 { DNAT } else { 0 };
    }
    Flow {
        mark: Some(if is_marked { 4 } else { 0 }),
        zone: Some(0),
        // Not always known.
        status: (!number.is_multiple_of(3)).then_some(status),
        ..Flow::new(original, reply, false)
    }
}
