//! Ways through a few rules. That the kernel agrees is a scenario's (`tests/accelerate/why.rs`).

use manylane_io::netlink::nftables::expression::{Bitwise, Comparison, Data, Verdict};
use manylane_io::netlink::nftables::ruleset::{Rule, RuleChain, RuleTable, Ruleset};

use super::*;
use crate::firewall::{Port, Protocol, Tuple};

fn verdict(verdict: Verdict) -> Expression {
    Expression::Immediate { to: 0, data: Data::Verdict(verdict) }
}

fn other(name: &str) -> Expression {
    Expression::Other { name: name.into() }
}

fn counter() -> Expression {
    Expression::Counter { packets: 0 }
}

/// `ct state` has one of these bits.
fn state(bits: u32) -> [Expression; 3] {
    let operation = Bitwise::MaskXor { mask: bits.to_ne_bytes().into(), xor: vec![0; 4] };
    [
        Expression::Ct { to: 0, key: 0, direction: None },
        Expression::Bitwise { from: 0, to: 0, length: 4, operation },
        Expression::Compare { from: 0, comparison: Comparison::NotEqual, data: vec![0; 4] },
    ]
}

fn to_port(number: u16) -> [Expression; 2] {
    [
        Expression::Payload { to: 0, base: PayloadBase::Transport, offset: 2, length: 2 },
        Expression::Compare {
            from: 0,
            comparison: Comparison::Equal,
            data: number.to_be_bytes().into(),
        },
    ]
}

fn rule(parts: &[&[Expression]]) -> Vec<Expression> {
    parts.concat()
}

fn chain(name: &str, base: Option<Base>, rules: Vec<Vec<Expression>>) -> RuleChain {
    let rule = |(at, expressions)| Rule { handle: at as u64 + 10, expressions };
    RuleChain { name: name.into(), base, rules: rules.into_iter().enumerate().map(rule).collect() }
}

fn base(hook: Hook, priority: i32, kind: &str, drops: bool) -> Option<Base> {
    Some(Base { hook, priority, kind: kind.into(), drops, devices: Vec::new() })
}

fn firewall(chains: Vec<RuleChain>) -> Firewall {
    let (name, is_dormant, is_legacy) = ("t".into(), false, false);
    let family = TableFamily::Inet;
    let table = RuleTable { family, name, is_dormant, is_legacy, chains, sets: Vec::new() };
    Firewall::of(Ruleset { tables: vec![table] })
}

fn journey(destination_port: u16) -> Journey {
    let port = |name: &str, index| Port { name: name.into(), index };
    let (source, destination) = ([10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let original = Tuple { source, source_port: 4000, destination, destination_port };
    Journey {
        key: ClassKey {
            ingress: port("lan", 2),
            egress: port("wan", 3),
            family: Family::V4,
            protocol: Protocol::Tcp,
            mark: Some(0),
        },
        flow: Flow {
            mark: Some(0),
            zone: Some(0),
            status: Some(0),
            ..Flow::new(original, original.inverted(), false)
        },
        stage: Stage::New,
        is_first: true,
        target: Target::Forwarded,
        is_from_there: Some(true),
    }
}

/// Chain, number of the rule, verdict.
fn steps(passage: &Passage) -> Vec<(&str, Option<usize>, &str)> {
    let all = passage.chains.iter().flat_map(|chain| &chain.steps);
    all.map(|step| (step.place.chain.as_str(), step.rule, step.verdict.as_str())).collect()
}

#[test]
fn a_first_packet_meets_other_rules_than_an_established_connection() {
    let firewall = firewall(vec![
        chain("after", base(Hook::Postrouting, 100, "nat", false), vec![vec![other("masq")]]),
        chain(
            "forward",
            base(Hook::Forward, 0, "filter", true),
            vec![
                rule(&[&[counter()]]),
                rule(&[&state(2), &[verdict(Verdict::Accept)]]),
                vec![verdict(Verdict::Jump("services".into()))],
            ],
        ),
        chain("services", None, vec![rule(&[&to_port(80), &[verdict(Verdict::Accept)]])]),
        chain("early", base(Hook::Prerouting, -300, "filter", false), vec![]),
    ]);
    let first = firewall.passage(&journey(80));
    assert_eq!(first.end, End::Accepted);
    let to_services = [
        ("early", None, "accept"),
        ("forward", Some(1), "continue"),
        ("forward", Some(3), "jump services"),
    ];
    let accepted = [("services", Some(1), "accept"), ("after", Some(1), "accept")];
    assert_eq!(steps(&first), [&to_services[..], &accepted].concat());
    assert_eq!(first.chains[1].steps[0].place.handle, Some(10));
    let refused = firewall.passage(&journey(81));
    assert_eq!(refused.end, End::Dropped);
    assert_eq!(steps(&refused), [&to_services[..], &[("forward", None, "drop")]].concat());
    let established =
        firewall.passage(&Journey { stage: Stage::Established, is_first: false, ..journey(81) });
    assert_eq!(established.end, End::Accepted);
    let by_state = [("early", None, "accept"), ("forward", Some(1), "continue")];
    assert_eq!(steps(&established), [&by_state[..], &[("forward", Some(2), "accept")]].concat());
    // A packet for the router meets neither chain.
    let delivered = firewall.passage(&Journey { target: Target::Delivered, ..journey(81) });
    assert_eq!(steps(&delivered), [("early", None, "accept")]);
}

#[test]
fn what_is_not_known_ends_the_way_only_if_it_decides() {
    let forward =
        |rules| firewall(vec![chain("f", base(Hook::Forward, 0, "filter", false), rules)]);
    let limited = forward(vec![vec![other("limit"), other("log")], vec![verdict(Verdict::Drop)]]);
    let passage = limited.passage(&journey(80));
    assert_eq!(steps(&passage), [("f", Some(1), "unknown"), ("f", Some(2), "drop")]);
    assert_eq!(passage.end, End::Dropped);
    let limited = forward(vec![vec![other("limit"), verdict(Verdict::Drop)]]);
    let passage = limited.passage(&journey(80));
    assert_eq!(steps(&passage), [("f", Some(1), "unknown")]);
    assert!(matches!(passage.end, End::Unknown(_)), "{passage:?}");
    // A rule that certainly does not match may have an unknown part.
    let passes = forward(vec![rule(&[&to_port(22), &[other("limit"), verdict(Verdict::Drop)]])]);
    assert_eq!(passes.passage(&journey(80)).end, End::Accepted);
    for (unknown, end) in [("future", "does not know"), ("queue", "user space")] {
        let passage = forward(vec![vec![other(unknown)]]).passage(&journey(80));
        let End::Unknown(why) = &passage.end else { panic!("{passage:?}") };
        assert!(why.contains(end), "{why}");
    }
}

#[test]
fn a_packet_that_is_not_tracked_has_no_connection_and_no_translation() {
    let firewall = firewall(vec![
        chain("raw", base(Hook::Prerouting, -300, "filter", false), vec![vec![other("notrack")]]),
        chain(
            "forward",
            base(Hook::Forward, 0, "filter", false),
            vec![rule(&[&state(8), &[verdict(Verdict::Drop)]]), rule(&[&state(64), &[counter()]])],
        ),
        chain("nat", base(Hook::Postrouting, 100, "nat", false), vec![vec![other("masq")]]),
    ]);
    let passage = firewall.passage(&journey(80));
    let raw = [("raw", Some(1), "continue"), ("raw", None, "accept")];
    let forward = [("forward", Some(2), "continue"), ("forward", None, "accept")];
    assert_eq!(steps(&passage), [&raw[..], &forward].concat());
}

#[test]
fn of_one_priority_the_youngest_chain_comes_first() {
    let one = |name: &str| chain(name, base(Hook::Forward, 0, "filter", false), vec![]);
    let passage = firewall(vec![one("older"), one("younger")]).passage(&journey(80));
    assert_eq!(steps(&passage), [("younger", None, "accept"), ("older", None, "accept")]);
}
