//! Random rules and random connections: where the evaluator says yes, the kernel accepts and does nothing else.

use manylane_accelerate::firewall::{Answer, Firewall, Options};
use manylane_io::netlink::nftables::expression::Expression;
use manylane_io::netlink::nftables::ruleset::Ruleset;

use super::connections::{Connections, Load, counted};
use super::generate::{Rules, rules};
use super::random::Random;

/// Rules in the router, in place of those before.
pub fn load(made: &Connections, rules: &Rules) -> Result<(), String> {
    const EMPTY: &str = "*raw\nCOMMIT\n*mangle\nCOMMIT\n*filter\nCOMMIT\n";
    for (program, empty) in [
        ("nft -f", "table inet t\ndelete table inet t\n"),
        ("iptables-nft-restore", EMPTY),
        ("iptables-legacy-restore", EMPTY),
    ] {
        if program != rules.program && made.loaded.get() == program {
            made.topology.try_load(program, empty)?;
        }
    }
    made.loaded.set(rules.program);
    made.topology.try_load(rules.program, &rules.text)
}

/// What the kernel's counters say: packets accepted, rules with a counter, and of these those that do something.
pub struct Counts {
    pub accepted: u64,
    /// The counters in front of what has an effect.
    pub effects: u64,
    /// All counters of the rules on trial.
    pub all: u64,
}

pub fn counts(made: &Connections) -> Counts {
    let rules = made.rules();
    let is_keeper = |name: &str| name == "keeper";
    let sum = |only_effects: bool| -> u64 {
        let tables = rules.tables.iter().filter(|table| !is_keeper(&table.name));
        let all = tables.flat_map(|table| table.chains.iter().flat_map(|chain| &chain.rules));
        let all = all.filter(|rule| !only_effects || rule.expressions.iter().any(has_effect));
        all.flat_map(|rule| &rule.expressions).map(counted).sum()
    };
    Counts { accepted: made.accepted(), effects: sum(true), all: sum(false) }
}

fn has_effect(expression: &Expression) -> bool {
    use Expression::{CtSet, ExtensionHeaderSet, MetaSet, Object, Other, PayloadSet, Target};
    matches!(
        expression,
        CtSet { .. }
            | ExtensionHeaderSet { .. }
            | MetaSet { .. }
            | Object { .. }
            | Other { .. }
            | PayloadSet { .. }
            | Target(_)
    )
}

/// The firewall of these rules and of the router's legacy tables.
pub fn firewall(made: &Connections, rules: Option<Ruleset>) -> Firewall {
    let legacy =
        made.topology.host("r1").run(manylane_io::iptables::ruleset).expect("root may read it");
    let mut rules = rules.unwrap_or_else(|| made.rules());
    rules.tables.extend(legacy);
    Firewall::of(rules)
}

fn is_yes(answer: &Answer) -> bool {
    matches!(answer, Answer::Yes(_))
}

#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    refused: usize,
    packets: u64,
    yes: usize,
    of_class: usize,
    asked: usize,
    no: usize,
}

/// One set of rules, against all flows, `each` packets of those that are accepted.
fn try_rules(made: &Connections, rules: &Rules, each: u64, random: &mut Random, tally: &mut Tally) {
    let firewall = firewall(made, None);
    let strict = Options { exact_counters: true };
    let mut sure = Vec::new();
    let mut uncounted = Vec::new();
    for flow in &made.flows {
        for is_reply in [false, true] {
            let flow = manylane_accelerate::firewall::Flow { is_reply, ..*flow };
            let class = firewall.may(&made.question(&flow, false), Options::default());
            let own = firewall.may(&made.question(&flow, true), Options::default());
            match (&class, &own) {
                (Answer::Yes(_), own) => {
                    assert!(is_yes(own), "of all, but not {flow:?}: {own:?}\n{rules:?}")
                }
                (Answer::No(no), own) => {
                    assert!(!is_yes(own), "of none ({no}), but {flow:?}\n{rules:?}")
                }
                (Answer::AskPerFlow(_), _) => {}
            }
            tally.of_class += usize::from(is_yes(&class));
            tally.yes += usize::from(is_yes(&own));
            tally.asked += usize::from(matches!(own, Answer::AskPerFlow(_)));
            tally.no += usize::from(matches!(own, Answer::No(_)));
            if is_yes(&own) {
                match is_yes(&firewall.may(&made.question(&flow, true), strict)) {
                    true => uncounted.push(flow),
                    false => sure.push(flow),
                }
            }
        }
    }
    let mut before = counts(made);
    for (flows, moves_counters) in [(uncounted, false), (sure, true)] {
        for flow in &flows {
            (0..each).for_each(|_| made.send(flow, random));
        }
        let sent = flows.len() as u64 * each;
        tally.packets += sent;
        made.until_accepted(before.accepted + sent);
        let after = counts(made);
        assert_eq!(after.accepted, before.accepted + sent, "{rules:?}");
        assert_eq!(after.effects, before.effects, "an effect on one of {flows:?}\n{rules:?}");
        assert!(moves_counters || after.all == before.all, "a counter moved\n{rules:?}");
        before = after;
    }
}

#[test]
fn where_the_evaluator_says_yes_the_kernel_accepts_and_does_nothing_else() {
    let asked = std::env::var("FIREWALL_PACKETS").ok().and_then(|count| count.parse().ok());
    let (wanted, each) = asked.map_or((12_000, 3), |wanted: u64| (wanted, 40));
    let seed = 7;
    let mut random = Random::of_packet(seed, 0);
    let Some(made) = Connections::make(48, &mut random) else { return };
    let mut tally = Tally::default();
    while tally.packets < wanted {
        let mut random = Random::of_packet(seed, 1 + tally.cases as u64);
        let rules = rules(&mut random);
        tally.cases += 1;
        match load(&made, &rules) {
            Ok(()) => try_rules(&made, &rules, each, &mut random, &mut tally),
            Err(error) if std::env::var_os("FIREWALL_REFUSED").is_some() => {
                eprintln!("{error}\n{rules:?}")
            }
            Err(_) => tally.refused += 1,
        }
    }
    eprintln!("{tally:?}");
    assert!(tally.refused * 4 < tally.cases, "most rules can be loaded: {tally:?}");
    // A comparison in which nothing is accepted compares nothing.
    assert!(tally.yes > tally.no / 8 && tally.of_class > 0 && tally.no > 0, "{tally:?}");
}
