//! What the kernel would do to packets besides routing them is done: filters, translation, policies, shapers, there
//! before the accelerator or added while it forwards.
//!
//! | Case                              | The kernel             | The accelerator                               |
//! |-----------------------------------|------------------------|-----------------------------------------------|
//! | nftables, forward, policy drop    | drops                  | leaves the ports to the kernel (`--flows 0`)  |
//! | legacy iptables, that policy      | drops                  | leaves them too, within a second, unnotified  |
//! | masquerade                        | changes addresses      | leaves the ports to the kernel (`--flows 0`)  |
//! | XFRM policy that blocks           | drops                  | leaves the ports to the kernel                |
//! | tc filter at the ingress          | drops                  | leaves that port to the kernel                |
//! | strict `rp_filter`, spoofed source | drops                 | leaves those packets to the kernel            |
//! | loose `rp_filter`, no IPv4 address | drops what has no way back there | leaves those packets to the kernel |
//! | TBF at the egress                 | shapes                 | queues what it forwards there                 |
//!
//! The first three concern connections, not ports, where connections are forwarded one by one: the scenarios
//! `stateful_*` have those. The tests read no clock: datagrams have numbers, and the programs count what they forward.

use std::net::IpAddr;

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::{CLIENT_V4, SERVER_V4, Steady, SteadyOptions, Topology, WAN_V4, until};
use manylane_net::wire::ethernet::Mac;

/// Something that the kernel does to packets.
struct Case {
    /// The operator's lines that begin it, and those that end it.
    on: &'static [&'static str],
    off: &'static [&'static str],
    /// What it does to datagrams.
    does: Effect,
    /// What the reason says that keeps the port in the kernel.
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Drops,
    /// The server sees packets with the router's address.
    Translates,
}

const DROP_POLICY: Case = Case {
    on: &[
        "nft add table inet filter",
        "nft add chain inet filter forward { type filter hook forward priority 0 ; policy drop ; }",
    ],
    off: &["nft delete table inet filter"],
    does: Effect::Drops,
    reason: "filter",
};

const LEGACY_IPTABLES: Case = Case {
    on: &["iptables-legacy -A FORWARD -j DROP"],
    off: &["iptables-legacy -F FORWARD"],
    does: Effect::Drops,
    reason: "iptables",
};

const MASQUERADE: Case = Case {
    on: &[
        "nft add table ip nat",
        "nft add chain ip nat out { type nat hook postrouting priority 100 ; }",
        "nft add rule ip nat out oifname wan masquerade",
    ],
    off: &["nft delete table ip nat"],
    does: Effect::Translates,
    reason: "nat",
};

const XFRM_BLOCK: Case = Case {
    on: &["ip xfrm policy add dir fwd src 10.1.0.0/24 dst 10.2.0.0/24 action block"],
    off: &["ip xfrm policy delete dir fwd src 10.1.0.0/24 dst 10.2.0.0/24"],
    does: Effect::Drops,
    reason: "xfrm",
};

/// Classic BPF: UDP (byte 23 of the frame is 17) is shot.
const TC_FILTER: Case = Case {
    on: &[
        "tc qdisc add dev lan clsact",
        "tc filter add dev lan ingress bpf da bytecode '4,48 0 0 23,21 0 1 17,6 0 0 2,6 0 0 0'",
    ],
    off: &["tc filter del dev lan ingress", "tc qdisc del dev lan clsact"],
    does: Effect::Drops,
    reason: "traffic control",
};

#[test]
fn a_forward_chain_that_drops_keeps_dropping() {
    DROP_POLICY.is_kept();
}

#[test]
fn legacy_iptables_keep_dropping() {
    if manylane_lab::scenario::has("iptables-legacy") {
        LEGACY_IPTABLES.is_kept();
    }
}

#[test]
fn masquerading_goes_on() {
    MASQUERADE.is_kept();
}

#[test]
fn a_policy_of_xfrm_that_blocks_keeps_blocking() {
    XFRM_BLOCK.is_kept();
}

#[test]
fn a_filter_of_tc_where_packets_come_in_keeps_dropping() {
    TC_FILTER.is_kept();
}

/// The log, `show ports` and `show drops` begin with it; what is overridden by name is said in the same place.
#[test]
fn how_much_is_accelerated_is_said_first_and_why_not_more() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    say(&topology, DROP_POLICY.on);
    let filter = "table inet filter, chain forward (filter at forward): policy drop";
    let shown = |accelerated: &Accelerated, what: &str| {
        let (program, socket) = (env!("CARGO_BIN_EXE_manylane"), accelerated.socket());
        topology.tool("r1", &format!("{program} show {what} --socket {}", socket.display()))
    };
    let accelerated = start(&topology);
    accelerated.wait_for_tier("lan", "kernel");
    let none = "0 of 2 interfaces accelerated: the kernel forwards everything";
    let said = accelerated.said();
    assert!(said.starts_with(&format!("manylane: {none}\n")), "{said}");
    assert!(said.contains(&format!("\n  lan, wan: {filter}: packets that we forward")), "{said}");
    for what in ["ports", "drops"] {
        let shown = shown(&accelerated, what);
        let first = format!("{none}.\nlan, wan: {filter}\nlan");
        assert!(shown.starts_with(&first), "{shown}");
        // For each by itself where a link's event was sooner than the first look at all links.
        assert!(shown.contains(": no program has looked for "), "{shown}");
        assert!(!shown.contains("software device"), "the gate's reason counts: {shown}");
    }
    let said = shown(&accelerated, "drops");
    assert!(said.ends_with("\nThe programs have seen no packet.\n"), "{said}");
    assert!(shown(&accelerated, "ledger").contains(": no program has looked for "));
    say(&topology, DROP_POLICY.off);
    accelerated.wait_for_tier("lan", "ingress");
    assert!(shown(&accelerated, "ports").starts_with("2 of 2 interfaces accelerated.\n"));
    drop(accelerated);

    say(&topology, DROP_POLICY.on);
    let (router, program) = (topology.host("r1"), env!("CARGO_BIN_EXE_manylane"));
    let bypass = ["--bypass", "netfilter"];
    let accelerated = Accelerated::start_with(router, program, &["lan", "wan"], &bypass);
    accelerated.wait_for_tier("lan", "ingress");
    let first = "manylane: 2 of 2 interfaces accelerated; what is forwarded bypasses netfilter\n";
    let said = accelerated.said();
    assert!(said.starts_with(first) && said.contains(&format!("  lan, wan: {filter}: ")), "{said}");
    let shown = shown(&accelerated, "ports");
    let first = "2 of 2 interfaces accelerated.\nForwarded packets bypass netfilter.\n";
    assert!(shown.starts_with(first), "{shown}");
    let skipped = format!("\nlan, wan, bypassed: {filter}\n");
    assert!(shown.contains(&skipped), "{shown}");
}

/// The other end of `wan` is switched off, as a cable that is out: `wan` is up, and no packet passes.
#[test]
fn a_port_without_a_carrier_does_not_count() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let program = env!("CARGO_BIN_EXE_manylane");
    topology.tool("server", "ip link set eth0 down");
    let kernel = "a packet needs two, so the kernel forwards everything";
    let first = format!("1 of 2 interfaces accelerated: {kernel}");
    let plan = topology.tool("r1", &format!("{program} accelerate lan wan --dry-run"));
    assert!(plan.starts_with(&format!("Started now: {first}\n")), "{plan}");
    assert!(plan.contains("wan: note: the link of wan has no carrier\n"), "{plan}");

    let accelerated = start(&topology);
    until("the log has judged", || match accelerated.said() {
        said if said.contains("interfaces accelerated") => Ok(()),
        said => Err(said),
    });
    let said = accelerated.said();
    assert!(said.starts_with(&format!("manylane: {first}\n")), "{said}");
    assert!(said.contains("\nmanylane: wan: the link has no carrier: "), "{said}");
    let shown = |what: &str| {
        let socket = accelerated.socket();
        topology.tool("r1", &format!("{program} show {what} --socket {}", socket.display()))
    };
    for what in ["ports", "drops"] {
        let shown = shown(what);
        let head = format!("{first}.\nwan: the link has no carrier\n");
        assert!(shown.starts_with(&head), "{shown}");
    }
    topology.tool("server", "ip link set eth0 up");
    until("the carrier is back", || match shown("ports") {
        shown if shown.starts_with("2 of 2 interfaces accelerated.\n") => Ok(()),
        shown => Err(shown),
    });
}

impl Case {
    /// Both ways round, in a lab of its own each.
    fn is_kept(&self) {
        if let Some(topology) = topology(IN_A_ROW) {
            self.was_there_before(&topology);
        }
        if let Some(topology) = topology(IN_A_ROW) {
            self.comes_under_traffic(&topology);
        }
    }

    fn was_there_before(&self, topology: &Topology) {
        say(topology, self.on);
        let stream = stream(topology, SteadyOptions::to(SERVER_V4));
        let begun = stream.mark();
        self.acts_on(&stream, begun, stream.after(200));

        let accelerated = start(topology);
        let port = accelerated.wait_for_tier("lan", "kernel");
        self.is_named(&format!("{:?}", port.reasons));
        let begun = stream.after(20);
        self.acts_on(&stream, begun, stream.after(500));
        let lan = accelerated.port("lan");
        assert_eq!(lan.forwarded, 0, "{:#?}", accelerated.ports());
        assert!(lan.unseen.for_ms > Some(0), "packets pass, and none is counted: {lan:#?}");
        assert!(lan.tier_reasons.is_empty() || lan.egress, "the gate's reason counts: {lan:#?}");

        say(topology, self.off);
        accelerated.wait_for_tier("lan", "ingress");
        let after = accelerated.port("lan").unseen;
        assert!(after.for_ms.is_none() && after.total_ms >= lan.unseen.total_ms, "{after:?}");
        is_forwarded(&accelerated, &stream);
    }

    fn comes_under_traffic(&self, topology: &Topology) {
        let stream = stream(topology, SteadyOptions::to(SERVER_V4));
        let accelerated = start(topology);
        is_forwarded(&accelerated, &stream);

        let begun = stream.mark();
        say(topology, self.on);
        let is_on = stream.mark();
        let port = accelerated.wait_for_tier("lan", "kernel");
        self.is_named(&format!("{:?}", port.reasons));
        // Datagrams of before may still be on their way.
        let is_kept = stream.after(20);
        let forwarded = accelerated.port("lan").forwarded;
        let end = stream.after(500);
        self.acts_on(&stream, is_kept, end);
        assert_eq!(accelerated.port("lan").forwarded, forwarded, "none by the fast way");
        println!(
            "{:?}: {} of {} datagrams arrived that were sent while it was added, {} of {} until the port was the \
             kernel's",
            self.on.last(),
            stream.arrived(begun..is_on),
            is_on - begun,
            stream.arrived(is_on..is_kept),
            is_kept - is_on,
        );

        say(topology, self.off);
        accelerated.wait_for_tier("lan", "ingress");
        is_forwarded(&accelerated, &stream);
    }

    fn is_named(&self, reasons: &str) {
        assert!(reasons.to_lowercase().contains(self.reason), "`{}` in {reasons}", self.reason);
    }

    /// Of the datagrams of these numbers.
    fn acts_on(&self, stream: &Steady, begun: u64, end: u64) {
        match self.does {
            Effect::Drops => assert_eq!(stream.arrived(begun + 1..end), 0, "of {begun}..{end}"),
            Effect::Translates => {
                stream.arrives("translated");
                assert_eq!(stream.arrivals().source, Some(WAN_V4));
            }
        }
    }
}

/// Packets whose source is not where they come from: dropped by the kernel, even if the accelerator saw them first.
#[test]
fn strict_reverse_path_filtering_holds_for_spoofed_sources() {
    let spoofed: IpAddr = [10, 99, 0, 1].into();
    let strict = |topology: &Topology, value| {
        topology.set("r1", "net/ipv4/conf/lan/rp_filter", value);
    };
    let make = || {
        let topology = topology(IN_A_ROW)?;
        topology.tool("client", &format!("ip addr add {spoofed}/32 dev lo"));
        Some(topology)
    };
    let options = SteadyOptions { source: Some(spoofed), ..SteadyOptions::to(SERVER_V4) };

    let Some(topology) = make() else { return };
    strict(&topology, "1");
    {
        let stream = stream(&topology, options);
        let honest = self::stream(&topology, SteadyOptions::to(SERVER_V4));
        let accelerated = start(&topology);
        is_forwarded(&accelerated, &honest);
        let end = stream.after(500);
        assert_eq!(stream.arrived(0..end), 0);
        assert!(accelerated.passed("reverse_path") > 0, "{:#?}", accelerated.ledger());
    }

    let Some(topology) = make() else { return };
    let stream = stream(&topology, options);
    let accelerated = start(&topology);
    is_forwarded(&accelerated, &stream);
    strict(&topology, "1");
    until("the reverse path is looked at", || match accelerated.passed("reverse_path") {
        0 => Err(format!("{:#?}", accelerated.ledger())),
        count => Ok(count),
    });
    let begun = stream.after(20);
    let forwarded = accelerated.forwarded();
    let end = stream.after(500);
    assert_eq!(stream.arrived(begun..end), 0);
    assert_eq!(accelerated.forwarded(), forwarded, "none by the fast way");
    strict(&topology, "0");
    is_forwarded(&accelerated, &stream);
}

/// A loose filter lets pass whatever has a route, unless the ingress interface has no IPv4 address.
#[test]
fn loose_reverse_path_filtering_is_strict_where_there_is_no_address() {
    let spoofed: IpAddr = [10, 99, 0, 1].into();
    let Some(topology) = topology(IN_A_ROW) else { return };
    let mac = Mac(topology.mac("r1", "lan").expect("it is there"));
    let gateway = format!("ip neigh replace 10.1.0.254 lladdr {mac} dev eth0 nud permanent");
    topology.tool("client", &gateway);
    topology.tool("client", &format!("ip addr add {spoofed}/32 dev lo"));
    topology.tool("r1", &format!("ip route add {spoofed}/32 dev wan"));
    topology.set("r1", "net/ipv4/conf/lan/rp_filter", "2");
    let options = SteadyOptions { source: Some(spoofed), ..SteadyOptions::to(SERVER_V4) };
    let stream = stream(&topology, options);
    let accelerated = start(&topology);
    is_forwarded(&accelerated, &stream);
    topology.tool("r1", "ip addr del 10.1.0.254/24 dev lan");
    until("the reverse path is looked at", || match accelerated.passed("reverse_path") {
        0 => Err(format!("{:#?}", accelerated.ledger())),
        count => Ok(count),
    });
    let begun = stream.after(20);
    let forwarded = accelerated.forwarded();
    let end = stream.after(500);
    assert_eq!(stream.arrived(begun..end), 0);
    assert_eq!(accelerated.forwarded(), forwarded, "none by the fast way");
    topology.tool("r1", "ip addr add 10.1.0.254/24 dev lan");
    is_forwarded(&accelerated, &stream);
}

/// The ingress tier queues: what it forwards is shaped as what the kernel forwards.
#[test]
fn a_shaper_where_packets_go_out_sees_all_of_them() {
    const SLOW: &str = "tc qdisc add dev wan root tbf rate 200kbit burst 4k limit 6k";
    for is_there_before in [true, false] {
        let Some(topology) = topology(IN_A_ROW) else { return };
        if is_there_before {
            topology.tool("r1", SLOW);
        }
        let stream = stream(&topology, SteadyOptions::to(SERVER_V4));
        let accelerated = start(&topology);
        if !is_there_before {
            is_forwarded(&accelerated, &stream);
            topology.tool("r1", SLOW);
        }
        let begun = stream.after(20);
        let before = shaped(&topology);
        let end = stream.after(3000);
        let after = shaped(&topology);
        // Those that waited in the shaper when the counting began, and those that waited at its end.
        let waiting = 2 * 6 * 1024 / 64;
        let arrived = stream.arrived(begun..end);
        assert!(
            after.dropped > before.dropped,
            "more was offered than passes: {before:?} {after:?}"
        );
        assert!(
            arrived <= after.sent - before.sent + waiting,
            "{arrived} arrived, past the shaper: {before:?} {after:?}"
        );
        println!(
            "there before: {is_there_before}; {arrived} of {} arrived, lan is {}",
            end - begun,
            accelerated.port("lan").tier
        );
    }
}

#[derive(Debug)]
struct Shaped {
    sent: u64,
    dropped: u64,
}

/// What the shaper has let pass, and what not.
fn shaped(topology: &Topology) -> Shaped {
    let shown = topology.tool("r1", "tc -s -json qdisc show dev wan");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("tc writes JSON");
    let count = |name: &str| {
        let of_tbf = shown.as_array().into_iter().flatten().find(|one| one["kind"] == "tbf");
        of_tbf.and_then(|one| one[name].as_u64()).unwrap_or_else(|| panic!("{name}: {shown}"))
    };
    Shaped { sent: count("packets"), dropped: count("drops") }
}

/// Without connections that are forwarded one by one.
fn start(topology: &Topology) -> Accelerated {
    let (router, program) = (topology.host("r1"), env!("CARGO_BIN_EXE_manylane"));
    Accelerated::start_with(router, program, &["lan", "wan"], &["--flows", "0"])
}

fn stream(topology: &Topology, options: SteadyOptions) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    Steady::start(client, server, options).expect("sockets are to be had")
}

/// Waits until datagrams arrive that went the fast way, from their own source.
fn is_forwarded(accelerated: &Accelerated, stream: &Steady) {
    let before = accelerated.forwarded();
    until("datagrams go the fast way", || match accelerated.forwarded() {
        now if now > before + 100 => Ok(()),
        _ => Err(format!("{:#?}", accelerated.ports())),
    });
    stream.arrives("by the fast way");
    let source = stream.arrivals().source;
    assert!(source == Some(CLIENT_V4) || source == Some([10, 99, 0, 1].into()), "{source:?}");
}

fn say(topology: &Topology, lines: &[&str]) {
    for line in lines {
        topology.tool("r1", line);
    }
}
