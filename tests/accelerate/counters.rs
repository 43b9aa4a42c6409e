//! The kernel's counters, tier by tier: a table of `docs/tiers.md` says which of them have a tier's packets, and this test
//! compares the table with the counters, packet for packet; and `show ports` and `/metrics` have all packets under the names of IF-MIB. On veth. Needs root.
//!
//! The router filters by connection, so that conntrack and nftables count, too; but for workers, which leave such packets to
//! the ingress tier. Both hosts send nothing but the packets of
//! two settled connections, one of each family. On a busy machine the lease may lapse for a moment, and the kernel then
//! forwards some of the packets: a counter that lacks a tier's packets has these all the same.

use std::fs;
use std::path::Path;

use manylane_api::Client;
use manylane_api::accelerate::{InterfaceCounters, TrackedFlows, TrackedFlowsRequest};
use manylane_io::netlink::{Netlink, Statistics};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::has;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Topology, tool, until};

use super::account::count_all_packets;
use super::talk::{PACKETS, Talk};

/// The head of the table, in the page.
const HEAD: &str = "| counter, on veth | `kernel` | `ingress` | `driver` | `workers` |";
/// The rows of the table, and what is read for each: its growth is of the packets of both families, or of one.
const ROWS: [(&str, Of, Read); 13] = [
    ("`ip -s link`, RX of the ingress interface", Of::Both, |at| at.lan.received),
    ("`ip -s link`, TX of the egress interface", Of::Both, |at| at.wan.transmitted),
    ("`ethtool -S`, `rx_queue_0_xdp_packets` of the ingress interface", Of::Both, |at| {
        at.ethtool("rx_queue_0_xdp_packets")
    }),
    ("`ethtool -S`, `rx_queue_0_xdp_redirect` of the ingress interface", Of::Both, |at| {
        at.ethtool("rx_queue_0_xdp_redirect")
    }),
    ("`ethtool -S`, `tx_queue_0_xdp_xmit` of the egress interface", Of::Both, |at| {
        at.ethtool("tx_queue_0_xdp_xmit")
    }),
    ("`tc -s qdisc` of the egress interface", Of::Both, |at| at.qdisc),
    ("`/proc/net/snmp`, `Ip InReceives`", Of::V4, |at| at.protocol("Ip", "InReceives")),
    ("`/proc/net/snmp`, `Ip ForwDatagrams`", Of::V4, |at| at.protocol("Ip", "ForwDatagrams")),
    ("`/proc/net/snmp6`, `Ip6InReceives`", Of::V6, |at| at.protocol("Ip6", "InReceives")),
    ("`/proc/net/snmp6`, `Ip6OutForwDatagrams`", Of::V6, |at| {
        at.protocol("Ip6", "OutForwDatagrams")
    }),
    ("`conntrack -L`, `packets=` of IPv4", Of::V4, |at| at.tracked[0]),
    ("`conntrack -L`, `packets=` of IPv6", Of::V6, |at| at.tracked[1]),
    ("nftables, `counter` of a rule", Of::Both, |at| at.rule),
];

type Read = fn(&Now) -> u64;

/// The packets that a counter counts.
#[derive(Clone, Copy)]
enum Of {
    Both,
    V4,
    V6,
}

#[test]
fn the_page_says_which_counters_have_the_packets_of_each_tier() {
    if !["nft", "conntrack", "ethtool"].iter().all(|program| has(program)) {
        return;
    }
    let mut seen: Vec<Vec<String>> = ROWS.iter().map(|row| vec![row.0.to_owned()]).collect();
    for tier in ["kernel", "ingress", "driver", "workers"] {
        let Some(topology) = router(filters(tier)) else { return };
        let cells = Bed::start(topology, tier).observe();
        seen.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tiers.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let lines = page.lines().skip_while(|line| *line != HEAD).skip(2);
    let said: Vec<&str> = lines.take_while(|line| line.starts_with('|')).collect();
    let seen: Vec<String> = seen.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
    assert_eq!(said, seen, "docs/tiers.md has to say:\n{HEAD}\n{}", seen.join("\n"));
}

/// Packets that hosts send besides: where a busy machine takes long, they resolve their neighbours meanwhile.
const STRAY: u64 = 8;

/// Whether the router filters by connection while this tier forwards.
fn filters(tier: &str) -> bool {
    tier != "workers"
}

/// A router that filters by connection, and counts; or that does not.
fn router(has_rules: bool) -> Option<Topology> {
    let topology = plain_hosts(IN_A_ROW)?;
    if has_rules {
        topology.set("r1", "net/netfilter/nf_conntrack_acct", "1");
        topology.tool("r1", &format!("nft '{RULES}'"));
    }
    // A veth has no queueing discipline by itself, and so nothing to count.
    topology.tool("r1", "tc qdisc add dev wan root pfifo");
    count_all_packets(&topology);
    Some(topology)
}

struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    tier: &'static str,
    talks: [Talk; 2],
}

impl Bed {
    /// Both connections are settled, and forwarded by the tier.
    fn start(topology: Topology, tier: &'static str) -> Bed {
        let program = env!("CARGO_BIN_EXE_manylane");
        let router = topology.host("r1");
        let accelerated =
            Accelerated::start_with(router, program, &["lan", "wan"], &["--tier", tier]);
        for name in ["lan", "wan"] {
            accelerated.wait_for_tier(name, tier);
        }
        let ends = [[CLIENT_V4, SERVER_V4], [CLIENT_V6, SERVER_V6]];
        let talks = ends.map(|ends| Talk::open(&topology, ends));
        let bed = Bed { topology, accelerated, tier, talks };
        until("both connections are settled", || {
            bed.talks.iter().for_each(|talk| talk.ask(20));
            bed.are_settled()
        });
        bed
    }

    fn are_settled(&self) -> Result<(), String> {
        if self.tier == "kernel" {
            let text = ["ipv4", "ipv6"].map(|family| self.listed(family)).concat();
            return if text.matches("ASSURED").count() == 2 { Ok(()) } else { Err(text) };
        }
        let before = self.by_tier();
        self.talks.iter().for_each(|talk| talk.ask(20));
        let request = TrackedFlowsRequest::default();
        let client = Client::new(&self.accelerated.socket());
        let flows = client.post::<TrackedFlows>("/v1/accelerate/flows/table", &request);
        match self.by_tier() - before {
            80 => Ok(()),
            few => Err(format!("{few} of 80: {flows:#?}")),
        }
    }

    /// Packets that the tier has forwarded.
    fn by_tier(&self) -> u64 {
        self.accelerated.ledger().tiers.get(self.tier).copied().unwrap_or(0)
    }

    fn listed(&self, family: &str) -> String {
        self.topology.tool("r1", &format!("conntrack -L -f {family} -p udp"))
    }

    /// Sends the packets, and says which counters have them: a cell for each row.
    fn observe(&self) -> Vec<String> {
        let before = self.now();
        let forwarded = self.by_tier();
        self.talks.iter().for_each(|talk| talk.tell(COUNTED));
        let tier = self.tier;
        let mut by_tier = self.by_tier() - forwarded;
        if tier == "kernel" {
            by_tier = 2 * COUNTED;
        }
        println!("{tier}: {by_tier} of {} packets", 2 * COUNTED);
        assert!(by_tier > COUNTED, "{tier} forwards too few: {:#?}", self.accelerated.ports());
        let is_settled = |after: &Now| self.is_all(&before, after);
        let after = until("all packets are counted as sent", || {
            let after = self.now();
            is_settled(&after).map(|()| after)
        });
        self.is_in_metrics(&after);
        self.accelerated.assert_balanced();
        ROWS.iter()
            .map(|(name, of, read)| {
                let grown = read(&after) - read(&before);
                let all = if matches!(of, Of::Both) { 2 * COUNTED } else { COUNTED };
                println!("{tier}: {name}: {grown} of {all}");
                // Others than these packets are those that a busy machine left to the kernel.
                let left = 2 * COUNTED - by_tier;
                let has_rules = filters(tier);
                match grown {
                    _ if !has_rules && COUNT_BY_RULES.iter().any(|by| name.contains(by)) => {
                        "-".to_owned()
                    }
                    _ if (all..=all + STRAY).contains(&grown) => "yes".to_owned(),
                    _ if grown <= left + STRAY => "no".to_owned(),
                    _ => format!("{grown} of {all}"),
                }
            })
            .collect()
    }

    /// What SNMP has of both interfaces is what the hosts at their other ends have sent and received, in packets and in
    /// octets, and no less than these packets.
    fn is_all(&self, before: &Now, after: &Now) -> Result<(), String> {
        let grown = |read: fn(&Now) -> u64| read(after) - read(before);
        let [lan_in, lan_octets, wan_out, wan_octets] = [
            grown(|at| at.shown[0].in_unicast + at.shown[0].in_multicast),
            grown(|at| at.shown[0].in_octets),
            grown(|at| at.shown[1].out_unicast),
            grown(|at| at.shown[1].out_octets),
        ];
        let sent = [grown(|at| at.client.transmitted), grown(|at| at.client.transmitted_bytes)];
        let received = [grown(|at| at.server.received), grown(|at| at.server.received_bytes)];
        let seen = [lan_in, lan_octets, wan_out, wan_octets];
        let whole = [sent, received].concat();
        if seen[..] != whole[..] {
            return Err(format!("{}: {seen:?}, and the hosts {whole:?}", self.tier));
        }
        assert!(sent[0] >= 2 * COUNTED && received[0] >= 2 * COUNTED, "{whole:?}");
        if sent[0] == 2 * COUNTED {
            // A veth whose other end polls counts a packet without its Ethernet header.
            let header = if ["driver", "workers"].contains(&self.tier) { 0 } else { ETHERNET };
            let bytes = COUNTED * (2 * header + PACKETS[0] + PACKETS[1]);
            assert_eq!(sent[1], bytes, "of known sizes");
        }
        let kernel = [after.lan.received, after.wan.transmitted];
        let added = [after.shown[0].in_added, after.shown[1].out_added];
        let shown =
            [after.shown[0].in_unicast + after.shown[0].in_multicast, after.shown[1].out_unicast];
        let sums = [kernel[0] + added[0], kernel[1] + added[1]];
        if shown == sums { Ok(()) } else { Err(format!("{shown:?} is not {kernel:?} + {added:?}")) }
    }

    /// The same numbers, for Prometheus and for people.
    fn is_in_metrics(&self, after: &Now) {
        let socket = self.accelerated.socket();
        let metrics = Client::new(&socket).ask_text("/metrics").expect("it answers");
        for (name, port, value) in [
            ("in_bytes", "lan", after.shown[0].in_octets),
            ("in_unicast_packets", "lan", after.shown[0].in_unicast),
            ("out_bytes", "wan", after.shown[1].out_octets),
            ("out_unicast_packets", "wan", after.shown[1].out_unicast),
            ("out_discards_packets", "wan", after.shown[1].out_discards),
        ] {
            let line = format!("manylane_interface_{name}_total{{port=\"{port}\"}} {value}");
            assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
        }
        let program = env!("CARGO_BIN_EXE_manylane");
        let command = format!("{program} show ports --json --socket {}", socket.display());
        let shown = self.topology.tool("r1", &command);
        let ports: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
        for (at, name, value) in [
            (0, "ifHCInOctets", after.shown[0].in_octets),
            (0, "ifHCInUcastPkts", after.shown[0].in_unicast),
            (1, "ifHCOutOctets", after.shown[1].out_octets),
            (1, "ifHCOutUcastPkts", after.shown[1].out_unicast),
        ] {
            assert_eq!(ports[at]["interface"][name], value, "{name} in {shown}");
        }
    }

    fn now(&self) -> Now {
        let of = |host: &str, interface: &'static str| statistics(&self.topology, host, interface);
        let ports = ["lan", "wan"].map(|name| self.accelerated.port(name));
        let shown = ports.map(|port| port.interface.expect("the interface is there"));
        let ethtool = ["lan", "wan"].map(|name| {
            let line = format!("ethtool -S {name}");
            tool(self.topology.host("r1"), &line).expect("a veth has counters")
        });
        let protocols = ["snmp", "snmp6"].map(|file| {
            let read = move || fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            self.topology.host("r1").run(read).expect("proc is mounted")
        });
        let qdisc = self.topology.tool("r1", "tc -s qdisc show dev wan");
        let (mut rule, mut tracked) = (0, [0; 2]);
        if filters(self.tier) {
            let rules = self.topology.tool("r1", "nft list chain inet counted forward");
            rule = word_after(&rules, "counter packets ");
            tracked = ["ipv4", "ipv6"].map(|family| word_after(&self.listed(family), "packets="));
        }
        Now {
            lan: of("r1", "lan"),
            wan: of("r1", "wan"),
            client: of("client", "eth0"),
            server: of("server", "eth0"),
            shown,
            ethtool: ethtool.concat(),
            protocols: protocols.concat(),
            qdisc: word_after(&qdisc, " bytes "),
            rule,
            tracked,
        }
    }
}

/// All counters at one moment.
struct Now {
    lan: Statistics,
    wan: Statistics,
    client: Statistics,
    server: Statistics,
    /// Of lan and wan, by the API.
    shown: [InterfaceCounters; 2],
    ethtool: String,
    protocols: String,
    qdisc: u64,
    rule: u64,
    tracked: [u64; 2],
}

impl Now {
    /// Of lan's queue that receives, or of wan's that transmits: the other ones have none of the packets.
    fn ethtool(&self, name: &str) -> u64 {
        let lines = self.ethtool.lines().filter_map(|line| line.trim().split_once(": "));
        let counts = lines.filter(|(its, _)| *its == name).map(|(_, count)| count);
        counts.map(|count| count.trim().parse::<u64>().expect("a number")).sum()
    }

    /// proc_pid_net(5): `Ip: NAMES`, `Ip: NUMBERS` of IPv4, and `Ip6NAME NUMBER` of IPv6.
    fn protocol(&self, protocol: &str, name: &str) -> u64 {
        let of_ipv6 = format!("{protocol}{name}");
        let mut lines = self.protocols.lines();
        if let Some(line) = lines.find(|line| line.split_whitespace().next() == Some(&of_ipv6)) {
            return word_after(line, &of_ipv6);
        }
        let head = format!("{protocol}: ");
        let mut pair = self.protocols.lines().filter_map(|line| line.strip_prefix(&head));
        let (names, numbers) = (pair.next().expect("names"), pair.next().expect("numbers"));
        let at = names.split(' ').position(|its| its == name).expect("it is counted");
        numbers.split(' ').nth(at).and_then(|number| number.parse().ok()).expect("a number")
    }
}

/// The number behind these letters.
fn word_after(text: &str, letters: &str) -> u64 {
    let rest = text.split_once(letters).unwrap_or_else(|| panic!("{letters} is not in\n{text}")).1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {letters} in\n{text}"))
}

fn statistics(topology: &Topology, host: &str, interface: &'static str) -> Statistics {
    let read = move || {
        let mut netlink = Netlink::open()?;
        let index = netlink.link(interface)?.index;
        Ok::<_, manylane_io::netlink::NetlinkError>((index, netlink.statistics()?))
    };
    let (index, all) = topology.host(host).run(read).expect("the kernel answers");
    all.into_iter().find(|link| link.index == index).expect("it is there")
}

/// Parts of the names of rows that count only where rules filter.
const COUNT_BY_RULES: [&str; 2] = ["conntrack", "nftables"];
const RULES: &str = "table inet counted {
    chain forward {
        type filter hook forward priority filter; policy drop
        ct state established,related counter accept
        iifname lan ct state new accept
    }
}";
/// Packets of each connection.
const COUNTED: u64 = 2000;
/// Bytes before an IP packet.
const ETHERNET: u64 = 14;
