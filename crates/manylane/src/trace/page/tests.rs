//! Pages, word for word.

use jiff::tz::TimeZone;

use super::*;
use crate::trace::follow::Follow;
use crate::trace::follow::tests::{SEES_ALL, drop_of, event, see, with};
use crate::trace::headers::tests::{echo, echo_v6};
use manylane_io::netlink::nftables::TableFamily;
use manylane_io::netlink::nftables::expression::{Data, Expression};
use manylane_io::netlink::nftables::ruleset::{Rule, RuleChain, RuleTable, Ruleset};

const RECEIVE: u8 = 0;
const TRANSMIT: u8 = 1;
const KERNEL: u8 = 3;
const LATE: u64 = 1_000_000_000_000;

fn names() -> Names {
    let immediate = |verdict| Expression::Immediate { to: 0, data: Data::Verdict(verdict) };
    let rule = |handle, expressions| Rule { handle, expressions };
    let rules = vec![
        rule(3, vec![Expression::Counter { packets: 1 }]),
        rule(5, vec![immediate(RuleVerdict::Drop)]),
    ];
    let table = RuleTable {
        family: TableFamily::Ip,
        name: "filter".into(),
        is_dormant: false,
        is_legacy: false,
        chains: vec![RuleChain { name: "forward".into(), base: None, rules }],
        sets: Vec::new(),
    };
    let port = |name: &str| (name.to_owned(), "driver".to_owned());
    Names {
        ports: BTreeMap::from([(1, port("lan")), (2, port("wan"))]),
        devices: BTreeMap::from([(3, "wan".to_owned())]),
        rules: Firewall::of(Ruleset { tables: vec![table] }),
        since_1970_ns: 1_795_301_999_000_000_000,
        sees: SEES_ALL,
    }
}

/// The page of the only packet.
fn page(follow: &mut Follow) -> Page {
    Page::of(follow.finish(LATE).first().expect("there is one"), &names())
}

fn block(follow: &mut Follow) -> String {
    page(follow).block(&mut LocalTime::of(TimeZone::UTC))
}

fn rule(handle: u64, verdict: RuleVerdict) -> TraceEvent {
    event("forward", TraceStep::Rule(handle), verdict)
}

fn received(packet: &[u8]) -> TraceEvent {
    with(event("received", TraceStep::Rule(2), RuleVerdict::Continue), packet)
}

#[test]
fn a_forwarded_packet_has_two_lines_and_the_result() {
    let mut follow = Follow::new(1, None, SEES_ALL);
    see(&mut follow, 100, RECEIVE, &echo_v6(1, 5, 64));
    see(&mut follow, 3_300, TRANSMIT, &echo_v6(1, 5, 63));
    let wanted = "\
packet 1, 22:59:59.000000100
  +0.000 000 000  driver   received            by lan, CPU 0, 118 bytes: 2001:db8:1::1 > 2001:db8:2::1 ICMPv6, hop limit 64
  +0.000 003 200  driver   transmitted         by wan: 2001:db8:1::1 > 2001:db8:2::1 ICMPv6, hop limit 63
  driver: transmitted by wan

";
    assert_eq!(block(&mut follow), wanted);
}

fn dropped_by_a_rule() -> Follow {
    let (packet, hop) = (echo(1, 9, 5, 64), echo(1, 9, 5, 63));
    let mut follow = Follow::new(1, None, SEES_ALL);
    see(&mut follow, 100, RECEIVE, &packet);
    see(&mut follow, 3_300, KERNEL, &packet);
    follow.event(received(&packet), 1);
    follow.event(with(rule(3, RuleVerdict::Continue), &hop), 1);
    follow.event(rule(5, RuleVerdict::Drop), 1);
    follow.dropped(drop_of(&hop, 10_100));
    follow
}

#[test]
fn a_packet_that_a_rule_drops_names_the_rule() {
    let wanted = "\
packet 1, 22:59:59.000000100
  +0.000 000 000  driver   received            by lan, CPU 0, 98 bytes: 10.1.0.1 > 10.2.0.9 ICMP, TTL 64
  +0.000 003 200  driver   left to the kernel  options: IPv4 options, or IPv6 hop-by-hop options or a routing header
                  nft      continue            table ip filter, chain forward, rule 1, handle 3: counter
                  nft      drop                table ip filter, chain forward, rule 2, handle 5: drop
  +0.000 010 000  kernel   dropped             NETFILTER_DROP
  driver: left to the kernel, options; nft: table ip filter chain forward rule 2 drop; kernel: dropped, NETFILTER_DROP

";
    assert_eq!(block(&mut dropped_by_a_rule()), wanted);
}

#[test]
fn the_json_has_the_same() {
    let page = page(&mut dropped_by_a_rule());
    let json = serde_json::to_value(&page).expect("it is data");
    assert_eq!(json["packet"], 1);
    assert_eq!(json["time_ns"], 1_795_301_999_000_000_100_u64);
    assert_eq!(json["complete"], true);
    let stages = json["stages"].as_array().expect("it is a list");
    let whats: Vec<_> = stages.iter().filter_map(|stage| stage["what"].as_str()).collect();
    assert_eq!(whats, ["received", "left_to_the_kernel", "decided", "decided", "dropped"]);
    let wanted = serde_json::json!({
        "place": "nft", "what": "decided", "verdict": "drop", "family": "ip", "table": "filter",
        "chain": "forward", "rule": 2, "handle": 5, "text": "drop", "by_policy": false,
    });
    assert_eq!(stages[3], wanted);
    assert_eq!(stages[4]["after_ns"], 10_000);
}

#[test]
fn ends_of_the_kernel_are_told_apart() {
    let packet = echo(1, 1, 5, 64);
    let sent = |to: &[u8]| {
        let sent = with(event("sent", TraceStep::Policy, RuleVerdict::Accept), to);
        TraceEvent { egress: Some(3), ..sent }
    };
    let policy = event("forward", TraceStep::Policy, RuleVerdict::Drop);
    let unknown = event("other", TraceStep::Rule(99), RuleVerdict::Drop);
    let delivered = event("delivered", TraceStep::Policy, RuleVerdict::Accept);
    let left = "driver: left to the kernel, options";
    for (events, result) in [
        (vec![sent(&echo(1, 1, 5, 63))], "kernel: sent by wan"),
        (
            vec![rule(3, RuleVerdict::Accept), sent(&echo(77, 1, 5, 63))],
            "nft: accepted; kernel: sent by wan",
        ),
        (vec![delivered], "kernel: delivered to the router itself"),
        (vec![policy], "nft: table ip filter chain forward policy drop; kernel: dropped"),
        (vec![unknown], "nft: table ip filter chain other rule handle 99 drop; kernel: dropped"),
        (vec![], "kernel: no end was seen"),
    ] {
        let mut follow = Follow::new(1, None, SEES_ALL);
        see(&mut follow, 100, KERNEL, &packet);
        follow.event(received(&packet), 1);
        events.into_iter().for_each(|event| follow.event(event, 1));
        let page = page(&mut follow);
        assert_eq!(page.result, format!("{left}; {result}"));
        let text = page.block(&mut LocalTime::of(TimeZone::UTC));
        let is_translated = text.contains("by wan: 10.1.0.77 > 10.2.0.1 ICMP, TTL 63\n");
        assert_eq!(is_translated, result.contains("accepted"), "{text}");
    }
}

#[test]
fn what_was_not_followed_to_its_end_says_so() {
    let mut follow = Follow::new(1, None, SEES_ALL);
    see(&mut follow, 100, RECEIVE, &echo(1, 1, 5, 64));
    let text = block(&mut follow);
    assert!(text.starts_with("packet 1, 22:59:59.000000100, not followed to its end\n"), "{text}");
    assert!(text.ends_with("\n  driver: no end was seen\n\n"), "{text}");
}
