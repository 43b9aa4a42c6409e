//! Rulesets that firewalls write.

use std::path::Path;

use manylane_accelerate::firewall::{
    Answer, Cause, Firewall, Flow, Options, Packet, Port, Protocol, Tuple,
};
use manylane_io::namespace::Host;
use manylane_io::netlink::kernel::Family;
use manylane_lab::scenario::{has, skip};
use manylane_lab::tools::tool;

/// What the evaluator has to say about a port pair.
#[derive(Debug, PartialEq)]
enum Said {
    Yes,
    No(Cause, &'static str),
    PerFlow(Cause, &'static str),
}

use Said::{No, PerFlow, Yes};

/// A namespace with these rules, or nothing and a line that says why.
pub fn loaded(files: &[&str]) -> Option<Host> {
    if !has("nft") || !has("iptables-nft") {
        return None;
    }
    let host = match Host::start("rules") {
        Ok(host) => host,
        Err(error) => {
            skip(error);
            return None;
        }
    };
    // A rule may name an interface by its number.
    tool(&host, "ip link set lo up").expect("the namespace has it");
    for file in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/firewall").join(file);
        let program = match path.extension().and_then(|end| end.to_str()) {
            Some("v4") => "iptables-nft-restore",
            Some("v6") => "ip6tables-nft-restore",
            _ => "nft -f",
        };
        tool(&host, &format!("{program} {}", path.display())).expect("the file is a ruleset");
    }
    Some(host)
}

pub fn packet([from, to]: [&str; 2], family: Family, protocol: Protocol) -> Packet {
    let port = |name: &str, index| Port { name: name.into(), index };
    Packet {
        ingress: port(from, 11),
        egress: port(to, 12),
        family,
        protocol,
        mark: Some(0),
        flow: None,
    }
}

pub fn read(host: &Host) -> Firewall {
    host.run(Firewall::read).expect("root may read it")
}

fn said(answer: Answer) -> (Option<Cause>, bool, String) {
    match answer {
        Answer::Yes(_) => (None, false, String::new()),
        Answer::No(obstacle) => (Some(obstacle.cause), false, obstacle.to_string()),
        Answer::AskPerFlow(obstacle) => (Some(obstacle.cause), true, obstacle.to_string()),
    }
}

/// Holds what is said of TCP and UDP against what has to be said.
fn check(files: &[&str], table: &[([&str; 2], Family, Said)]) {
    let Some(host) = loaded(files) else { return };
    let firewall = read(&host);
    for (ports, family, wanted) in table {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let packet = packet(*ports, *family, protocol);
            let (cause, asks, text) = said(firewall.may(&packet, Options::default()));
            let what = format!("{files:?} {ports:?} {family:?} {protocol:?}: {text}");
            match wanted {
                Yes => assert_eq!(cause, None, "{what}"),
                No(wanted, words) | PerFlow(wanted, words) => {
                    assert_eq!(cause.as_ref(), Some(wanted), "{what}");
                    assert!(text.contains(words), "{what}");
                }
            }
            assert_eq!(asks, matches!(wanted, PerFlow(..)), "{what}");
        }
    }
}

const V4: Family = Family::V4;
const V6: Family = Family::V6;

#[test]
fn firewalld_accepts_all_and_checks_the_reverse_path_of_ipv6() {
    let files = ["firewalld.nft"];
    let pairs = [["lan", "wan"], ["wan", "lan"], ["dmz", "wan"]];
    let rows: Vec<_> =
        pairs.into_iter().flat_map(|pair| [(pair, V4, Yes), (pair, V6, Yes)]).collect();
    check(&files, &rows);
    let Some(host) = loaded(&files) else { return };
    let answer = read(&host).may(&packet(["lan", "wan"], V6, Protocol::Tcp), Options::default());
    let Answer::Yes(provisos) = answer else { panic!("{answer:?}") };
    let [place] = &provisos.reverse_path[..] else { panic!("{provisos:?}") };
    assert!(place.rule.ends_with("fib saddr . mark . iif oif missing drop"), "{place}");
}

#[test]
fn ufw_accepts_all_and_its_counters_would_stand_still() {
    let files = ["ufw.v4", "ufw.v6"];
    check(
        &files,
        &[
            (["lan", "wan"], V4, Yes),
            (["wan", "lan"], V4, Yes),
            (["lan", "wan"], V6, Yes),
            (["wan", "lan"], V6, Yes),
        ],
    );
    let Some(host) = loaded(&files) else { return };
    let strict = Options { exact_counters: true };
    let answer = read(&host).may(&packet(["lan", "wan"], V4, Protocol::Tcp), strict);
    let (cause, asks, text) = said(answer);
    assert_eq!((cause, asks), (Some(Cause::Counter), false), "{text}");
}

#[test]
fn docker_asks_for_the_addresses_of_what_goes_to_a_container() {
    let raw = "table ip raw, chain PREROUTING";
    check(
        &["docker.v4"],
        &[
            (["docker0", "wan"], V4, Yes),
            (["wan", "docker0"], V4, PerFlow(Cause::Drop, raw)),
            (["lan", "wan"], V4, No(Cause::Policy, "table ip filter, chain FORWARD")),
            (["lan", "wan"], V6, Yes),
        ],
    );
}

#[test]
fn libvirt_asks_for_the_network_of_its_guests() {
    check(
        &["libvirt.nft"],
        &[
            (["lan", "wan"], V4, Yes),
            (["virbr0", "wan"], V4, PerFlow(Cause::Reject, "chain guest_output")),
            (["wan", "virbr0"], V4, PerFlow(Cause::Reject, "chain guest_input")),
        ],
    );
    let Some(host) = loaded(&["libvirt.nft"]) else { return };
    let firewall = read(&host);
    for (guest, is_accepted) in [("192.168.122.7", true), ("192.168.123.7", false)] {
        let original = Tuple {
            source: guest.parse().expect("it is an address"),
            source_port: 4000,
            destination: "203.0.113.5".parse().expect("it is an address"),
            destination_port: 443,
        };
        // Masqueraded, as libvirt does.
        let reply = Tuple {
            destination: "198.51.100.1".parse().expect("it is an address"),
            ..original.inverted()
        };
        for (ports, is_reply) in [(["virbr0", "wan"], false), (["wan", "virbr0"], true)] {
            let flow = Flow::new(original, reply, is_reply);
            let packet = Packet { flow: Some(flow), ..packet(ports, V4, Protocol::Tcp) };
            let answer = firewall.may(&packet, Options::default());
            let is_yes = matches!(answer, Answer::Yes(_));
            assert_eq!(is_yes, is_accepted, "{guest} {is_reply} {answer:?}");
        }
    }
}

#[test]
fn fw4_and_vyos_accept_all() {
    check(
        &["fw4.nft"],
        &[
            (["br-lan", "wan"], V4, Yes),
            (["wan", "br-lan"], V4, Yes),
            (["br-lan", "wan"], V6, Yes),
            (["wan", "br-lan"], V6, Yes),
        ],
    );
    check(
        &["vyos.nft"],
        &[(["lan", "wan"], V4, Yes), (["wan", "lan"], V4, Yes), (["lan", "wan"], V6, Yes)],
    );
}

#[test]
fn rules_by_hand_show_what_is_in_the_way() {
    check(
        &["by-hand.nft"],
        &[
            (["lan", "wan"], V4, Yes),
            (["lan", "wan"], V6, Yes),
            (
                ["wan", "lan"],
                V4,
                PerFlow(Cause::Drop, "iifname \"wan\" meta nfproto ipv4 ip saddr @blocked drop"),
            ),
            (["lan", "dmz"], V4, No(Cause::PacketChange, "oifname \"dmz\" meta mark set")),
            (["dmz", "lan"], V4, No(Cause::Limit, "iifname \"dmz\" limit rate")),
        ],
    );
}
