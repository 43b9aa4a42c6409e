//! Rules of a few lines. The tests of `tests/differential/firewall/` have real and random ones.

use manylane_io::netlink::nftables::expression::{
    Comparison, Data, Expression, Extension, PayloadBase, Verdict,
};
use manylane_io::netlink::nftables::ruleset::{Rule, RuleChain, RuleTable, Ruleset};
use manylane_io::netlink::nftables::set::{Element, Keys, Set};
use manylane_io::netlink::nftables::{Base, SetName};

use super::*;

fn verdict(verdict: Verdict) -> Expression {
    Expression::Immediate { to: 0, data: Data::Verdict(verdict) }
}

fn other(name: &str) -> Expression {
    Expression::Other { name: name.into() }
}

/// The destination port is this.
fn port(number: u16) -> [Expression; 2] {
    let load = Expression::Payload { to: 0, base: PayloadBase::Transport, offset: 2, length: 2 };
    let data = number.to_be_bytes().to_vec();
    [load, equal(data)]
}

fn equal(data: Vec<u8>) -> Expression {
    Expression::Compare { from: 0, comparison: Comparison::Equal, data }
}

fn chain(name: &str, base: Option<Base>, rules: Vec<Vec<Expression>>) -> RuleChain {
    let rule = |(at, expressions)| Rule { handle: at as u64 + 1, expressions };
    RuleChain { name: name.into(), base, rules: rules.into_iter().enumerate().map(rule).collect() }
}

fn base(hook: Hook, kind: &str, drops: bool) -> Option<Base> {
    Some(Base { hook, priority: 0, kind: kind.into(), drops, devices: vec!["lan".into()] })
}

fn table(family: TableFamily, chains: Vec<RuleChain>) -> RuleTable {
    let (name, is_dormant, is_legacy) = ("t".into(), false, false);
    RuleTable { family, name, is_dormant, is_legacy, chains, sets: Vec::new() }
}

/// A table whose forward chain has these rules and drops the rest.
fn forward(rules: Vec<Vec<Expression>>) -> RuleTable {
    table(TableFamily::Inet, vec![chain("forward", base(Hook::Forward, "filter", true), rules)])
}

/// A flow to this port, without a translation.
fn flow(destination_port: u16) -> Flow {
    let (source, destination) = ([10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let original = Tuple { source, source_port: 4000, destination, destination_port };
    Flow { mark: Some(0), zone: Some(0), ..Flow::new(original, original.inverted(), false) }
}

fn packet() -> Packet {
    let port = |name: &str, index| Port { name: name.into(), index };
    Packet {
        ingress: port("lan", 2),
        egress: port("wan", 3),
        family: Family::V4,
        protocol: Protocol::Tcp,
        mark: Some(0),
        flow: None,
    }
}

fn answer_with(table: RuleTable, options: Options) -> Answer {
    Firewall::of(Ruleset { tables: vec![table] }).may(&packet(), options)
}

fn answer(table: RuleTable) -> Answer {
    answer_with(table, Options::default())
}

/// What is in the way: the cause, whether a flow decides, and the handle.
fn said(answer: &Answer) -> Option<(Cause, bool, Option<u64>)> {
    match answer {
        Answer::Yes(_) => None,
        Answer::No(one) => Some((one.cause, false, one.place.handle)),
        Answer::AskPerFlow(one) => Some((one.cause, true, one.place.handle)),
    }
}

#[test]
fn a_counter_is_a_proviso_or_an_obstacle() {
    let counting =
        || forward(vec![vec![Expression::Counter { packets: 0 }, verdict(Verdict::Accept)]]);
    let Answer::Yes(provisos) = answer(counting()) else { panic!("a counter is no obstacle") };
    assert_eq!(provisos.counters.len(), 1);
    assert_eq!(
        provisos.counters[0].to_string(),
        "table inet t, chain forward, handle 1: `counter accept`"
    );
    let strict = answer_with(counting(), Options { exact_counters: true });
    assert_eq!(said(&strict), Some((Cause::Counter, false, Some(1))));
}

#[test]
fn an_expression_that_nobody_knows_is_never_a_yes() {
    let unknown = forward(vec![vec![other("future"), verdict(Verdict::Accept)]]);
    let Answer::No(obstacle) = answer(unknown) else { panic!("unknown is never a yes") };
    assert_eq!((obstacle.cause, obstacle.unknown.as_deref()), (Cause::Unknown, Some("future")));
    let extension = Extension { name: "future".into(), revision: 0, data: Vec::new() };
    let matched = forward(vec![vec![Expression::Match(extension)], vec![verdict(Verdict::Accept)]]);
    assert_eq!(said(&answer(matched)), Some((Cause::Unknown, false, Some(1))));
}

#[test]
fn every_effect_by_name_is_an_obstacle() {
    for (name, cause) in [
        ("log", Cause::Log),
        ("limit", Cause::Limit),
        ("quota", Cause::Quota),
        ("connlimit", Cause::ConnectionLimit),
        ("queue", Cause::Queue),
        ("dup", Cause::Duplicate),
        ("fwd", Cause::Redirect),
        ("tproxy", Cause::Proxy),
        ("synproxy", Cause::Proxy),
        ("notrack", Cause::Notrack),
        ("numgen", Cause::NumberGenerator),
        ("dynset", Cause::SetUpdate),
        ("flow_offload", Cause::FlowOffload),
        ("reject", Cause::Reject),
    ] {
        let rules = forward(vec![vec![other(name)], vec![verdict(Verdict::Accept)]]);
        assert_eq!(said(&answer(rules)), Some((cause, false, Some(1))), "{name}");
    }
}

#[test]
fn what_a_flow_decides_is_asked_and_what_no_flow_decides_is_a_no() {
    let [load, compare] = port(22);
    let dropped =
        forward(vec![vec![load, compare, verdict(Verdict::Drop)], vec![verdict(Verdict::Accept)]]);
    assert_eq!(said(&answer(dropped)), Some((Cause::Drop, true, Some(1))));
    // The packet's length is no flow's.
    let length = Expression::Meta { to: 0, key: 0 };
    let compare = Expression::Compare { from: 0, comparison: Comparison::Equal, data: vec![0; 4] };
    let dropped = forward(vec![
        vec![length, compare, verdict(Verdict::Drop)],
        vec![verdict(Verdict::Accept)],
    ]);
    assert_eq!(said(&answer(dropped)), Some((Cause::Drop, false, Some(1))));
}

#[test]
fn a_chain_that_only_comes_back_decides_nothing() {
    let [load, compare] = port(22);
    let rules = vec![vec![load, compare, verdict(Verdict::Jump("own".into()))], vec![other("log")]];
    let mut table = forward(rules);
    table.chains.push(chain("own", None, vec![vec![verdict(Verdict::Return)]]));
    // All flows reach the second rule.
    assert_eq!(said(&answer(table)), Some((Cause::Log, false, Some(2))));
}

#[test]
fn chains_that_the_packets_do_not_pass_are_not_in_the_way() {
    let drops = |family, hook, kind: &str| {
        table(family, vec![chain("c", base(hook, kind, true), Vec::new())])
    };
    for (family, hook, kind, is_passed) in [
        (TableFamily::Inet, Hook::Forward, "filter", true),
        (TableFamily::Ip, Hook::Postrouting, "filter", true),
        (TableFamily::Ip6, Hook::Forward, "filter", false),
        (TableFamily::Inet, Hook::Postrouting, "nat", false),
        (TableFamily::Inet, Hook::Input, "filter", false),
        (TableFamily::Bridge, Hook::Forward, "filter", false),
        (TableFamily::Netdev, Hook::Ingress, "filter", true),
        // Its device is the ingress.
        (TableFamily::Netdev, Hook::Egress, "filter", false),
    ] {
        let is_in_the_way = said(&answer(drops(family, hook, kind))).is_some();
        assert_eq!(is_in_the_way, is_passed, "{family} {hook:?} {kind}");
    }
    let dormant =
        RuleTable { is_dormant: true, ..drops(TableFamily::Inet, Hook::Forward, "filter") };
    assert_eq!(said(&answer(dormant)), None);
}

#[test]
fn a_set_that_packets_change_is_not_known() {
    let lookup = |set: &str| Expression::Lookup {
        set: set.into(),
        from: 0,
        to: None,
        is_inverted: false,
        is_verdict: false,
    };
    let load = Expression::Meta { to: 0, key: 16 };
    for (is_volatile, wanted) in [(false, None), (true, Some((Cause::Drop, false, Some(1))))] {
        let udp = Element { keys: Keys::One(vec![17]), data: None, stateful: Vec::new() };
        let (name, elements) = ("s".into(), vec![udp]);
        let set = Set { name, key_bytes: 1, is_volatile, elements, ..Set::default() };
        let rules = vec![
            vec![load.clone(), lookup("s"), verdict(Verdict::Drop)],
            vec![verdict(Verdict::Accept)],
        ];
        let table = RuleTable { sets: vec![set], ..forward(rules) };
        let answer = answer(table);
        assert_eq!(said(&answer), wanted);
        if let Answer::No(obstacle) = answer {
            let words = "drops such packets (whatever set s holds: packets change it, or its elements expire)";
            assert!(obstacle.to_string().ends_with(words), "{obstacle}");
        }
    }
}

#[test]
fn what_an_ipset_holds_is_not_known_and_the_obstacle_says_so() {
    let set = Extension { name: "set".into(), revision: 4, data: vec![0; 8] };
    let rules =
        vec![vec![Expression::Match(set), verdict(Verdict::Drop)], vec![verdict(Verdict::Accept)]];
    let Answer::No(obstacle) = answer(forward(rules)) else { panic!("it may drop any") };
    let words =
        "drops such packets (whatever its ipset holds: the kernel announces no change of ipsets)";
    assert!(obstacle.to_string().ends_with(words), "{obstacle}");
}

#[test]
fn too_many_rules_are_a_no_with_that_reason() {
    let elements = |count: u32| {
        let one = |key: u32| Element {
            keys: Keys::One(key.to_be_bytes().to_vec()),
            data: None,
            stateful: Vec::new(),
        };
        (0..count).map(one).collect()
    };
    let set = Set { name: "s".into(), key_bytes: 4, elements: elements(10_000), ..Set::default() };
    let lookup = Expression::Lookup {
        set: "s".into(),
        from: 4,
        to: None,
        is_inverted: false,
        is_verdict: false,
    };
    // Keys that are not known are compared with each element, those that are known are not.
    let length = Expression::Meta { to: 4, key: 0 };
    let known = Expression::Immediate { to: 4, data: Data::Value(vec![0xff; 4]) };
    for (load, wanted) in [(length, Cause::TooMany), (known, Cause::Policy)] {
        let rules = vec![vec![load, lookup.clone()]; 1001];
        let table = RuleTable { sets: vec![set.clone()], ..forward(rules) };
        assert_eq!(said(&answer(table)).map(|said| said.0), Some(wanted));
    }
}

#[test]
fn an_obstacle_names_its_rule_and_a_change_that_protects_as_before() {
    let [load, compare] = port(22);
    let rules = forward(vec![vec![load, compare, other("log")], vec![verdict(Verdict::Accept)]]);
    let Answer::AskPerFlow(obstacle) = answer(rules) else { panic!("ports decide") };
    let text = "table inet t, chain forward, handle 1: `tcp dport 22 log`: logs such packets";
    assert_eq!(obstacle.to_string(), text);
    assert!(obstacle.cure.expect("it has one").contains("ct state new"));
    for cause in
        [Cause::Drop, Cause::Policy, Cause::Reject, Cause::Limit, Cause::Quota, Cause::Notrack]
    {
        assert_eq!(cause.cure(), None, "{cause:?} protects");
    }
}

#[test]
fn a_class_is_decided_once_and_asks_for_the_flows_that_are_left() {
    let [load, compare] = port(22);
    let [load_other, compare_other] = port(23);
    let rules = vec![
        // Of no class with these ports.
        vec![Expression::Meta { to: 0, key: 16 }, equal(vec![17]), verdict(Verdict::Drop)],
        vec![Expression::Counter { packets: 0 }],
        vec![load, compare, verdict(Verdict::Jump("own".into()))],
        vec![load_other, compare_other, verdict(Verdict::Jump("own".into()))],
        vec![verdict(Verdict::Accept)],
    ];
    let mut table = forward(rules);
    let [load, compare] = port(23);
    let own = vec![vec![load, compare, verdict(Verdict::Return)], vec![verdict(Verdict::Drop)]];
    table.chains.push(chain("own", None, own));
    let firewall = Firewall::of(Ruleset { tables: vec![table] });
    let class = firewall.class(&packet().class(), Options::default());
    assert_eq!(class.allows_all(), None);
    for (port, is_allowed) in [(22, false), (23, true), (24, true), (0xffff, true)] {
        let flow = flow(port);
        assert_eq!(class.allows(&flow), is_allowed, "{port}");
        let answer = class.may(&flow);
        let asked = firewall.may(&Packet { flow: Some(flow), ..packet() }, Options::default());
        assert_eq!(answer, asked, "{port}");
        let wanted = (!is_allowed).then_some((Cause::Drop, false, Some(2)));
        assert_eq!(said(&answer), wanted, "{port}");
    }
    assert_eq!(class.provisos().counters.len(), 1);
    let strict = firewall.class(&packet().class(), Options { exact_counters: true });
    assert_eq!(strict.allows_all(), Some(false));
    let udp = ClassKey { protocol: Protocol::Udp, ..packet().class() };
    assert_eq!(firewall.class(&udp, Options::default()).allows_all(), Some(false));
}

#[test]
fn a_class_says_which_sets_it_reads_and_whether_the_reverse_path_is_checked() {
    let named = |name: &str| Set { name: name.into(), key_bytes: 2, ..Set::default() };
    let lookup = |set: &str| Expression::Lookup {
        set: set.into(),
        from: 0,
        to: None,
        is_inverted: false,
        is_verdict: false,
    };
    let [load, _] = port(0);
    let fib = Expression::Fib { to: 0, result: 1, flags: 1 | 8 | 0x20 };
    let rules = vec![
        vec![load.clone(), lookup("read"), verdict(Verdict::Drop)],
        vec![fib, equal(vec![0]), verdict(Verdict::Drop)],
        vec![verdict(Verdict::Accept)],
        vec![load, lookup("behind"), verdict(Verdict::Drop)],
    ];
    let table = RuleTable { sets: vec![named("read"), named("behind")], ..forward(rules) };
    let firewall = Firewall::of(Ruleset { tables: vec![table] });
    let class = firewall.class(&packet().class(), Options::default());
    assert_eq!((class.allows_all(), class.checks_reverse_path()), (Some(true), true));
    let reads = |family, table: &str, set: &str| {
        class.reads(&SetName { family, table: table.into(), set: set.into() })
    };
    assert!(reads(TableFamily::Inet, "t", "read"));
    assert!(!reads(TableFamily::Ip, "t", "read") && !reads(TableFamily::Inet, "u", "read"));
    assert!(!reads(TableFamily::Inet, "t", "behind"), "no packet comes by");
}

/// The answer about one flow, where a rule drops those whose property is this.
fn about(flow: Flow, key: u32, direction: Option<u8>, data: Vec<u8>) -> Answer {
    let load = Expression::Ct { to: 0, key, direction };
    let rules =
        vec![vec![load, equal(data), verdict(Verdict::Drop)], vec![verdict(Verdict::Accept)]];
    let firewall = Firewall::of(Ruleset { tables: vec![forward(rules)] });
    firewall.class(&packet().class(), Options::default()).may(&flow)
}

#[test]
fn of_a_connection_only_what_stays_so_is_known() {
    // Security mark, expiration, labels, events, id: they may be anything, and change without a word.
    for (key, bytes) in [(4, 4), (5, 4), (13, 16), (18, 4), (23, 4)] {
        let answer = about(flow(22), key, None, vec![0; bytes]);
        assert_eq!(said(&answer), Some((Cause::Drop, false, Some(1))), "{key}");
    }
    // Packets, bytes and their quotient: the kernel does not count what it does not see.
    for key in [14, 15, 16] {
        let answer = about(flow(22), key, None, vec![0xff; 8]);
        assert_eq!(said(&answer), Some((Cause::ConnectionBytes, false, Some(1))), "{key}");
    }
    let is_yes = |answer| matches!(answer, Answer::Yes(_));
    // A zone: other than 0 it may be that of one direction.
    for (zone, direction, is_known) in [
        (Some(0), None, true),
        (Some(0), Some(1), true),
        (Some(5), None, true),
        (Some(5), Some(1), false),
        (None, None, false),
    ] {
        let answer = about(Flow { zone, ..flow(22) }, 17, direction, vec![7, 0]);
        assert_eq!(is_yes(answer), is_known, "{zone:?} {direction:?}");
    }
    // The name of the helper that expected it.
    let name = || b"ftp\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    for (status, is_known) in [(Some(0x0e), true), (Some(0x0f), false), (None, false)] {
        let answer = about(Flow { status, ..flow(22) }, 6, None, name());
        assert_eq!(is_yes(answer), is_known, "{status:?}");
    }
}

/// Another program may have made the connection: what its status says counts, and not what the tuples say.
#[test]
fn the_status_is_the_one_that_conntrack_has() {
    let is_yes = |status, data: u32| {
        let answer = about(Flow { status, ..flow(22) }, 2, None, data.to_ne_bytes().to_vec());
        matches!(answer, Answer::Yes(_))
    };
    // Without it, some bits may be set or not: whether a rule drops 0x0e is not known then.
    assert!(!is_yes(None, 0x0e) && !is_yes(None, 0x8e), "not translated, and no more is known");
    assert!(is_yes(None, 0x1e) && is_yes(None, 0x0c) && is_yes(None, 0x4e));
    assert!(!is_yes(Some(0x18e), 0x18e) && is_yes(Some(0x18e), 0x0e) && is_yes(Some(0x18e), 0x19e));
    // A fixed timeout may come at any time.
    assert!(!is_yes(Some(0x18e), 0x58e) && !is_yes(Some(0x58e), 0x18e));
}

/// Threads share it, and each may keep classes of its own.
#[test]
fn rules_and_classes_go_from_thread_to_thread() {
    fn goes<T: Send + Sync + Clone>() {}
    goes::<Firewall>();
    goes::<Class>();
}
