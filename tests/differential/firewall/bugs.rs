//! Planted bugs: the evaluator is given rules that differ from the kernel's as if it read or understood one kind of
//! expression wrongly. For each, a question exists that it answers by a yes, and the kernel by something else.

use manylane_accelerate::firewall::{Answer, Firewall, Flow, Options};
use manylane_io::iptables;
use manylane_io::netlink::nftables::Hook;
use manylane_io::netlink::nftables::expression::{Bitwise, Comparison, Data, Expression, Verdict};
use manylane_io::netlink::nftables::ruleset::{RuleTable, Ruleset};
use manylane_io::netlink::nftables::set::Keys;

use super::against::{counts, load};
use super::connections::Connections;
use super::generate::rules;
use super::random::Random;

/// A bug: its name, and what it makes of an expression.
type Wrong = fn(&mut Expression);

const BUGS: [(&str, Wrong); 48] = [
    ("cmp: equal is not", |one| {
        if let Expression::Compare { comparison, .. } = one {
            *comparison = match *comparison {
                Comparison::Equal => Comparison::NotEqual,
                Comparison::NotEqual => Comparison::Equal,
                other => other,
            };
        }
    }),
    ("cmp: less is more", |one| {
        if let Expression::Compare { comparison, .. } = one {
            *comparison = match *comparison {
                Comparison::Less => Comparison::Greater,
                Comparison::LessOrEqual => Comparison::GreaterOrEqual,
                Comparison::Greater => Comparison::Less,
                Comparison::GreaterOrEqual => Comparison::LessOrEqual,
                other => other,
            };
        }
    }),
    ("range: outside is inside", |one| {
        if let Expression::Range { is_outside, .. } = one {
            *is_outside = !*is_outside;
        }
    }),
    ("bitwise: no bit stays", |one| {
        if let Expression::Bitwise { operation: Bitwise::MaskXor { mask, .. }, .. } = one {
            mask.fill(0);
        }
    }),
    ("bitwise: no bit is masked", |one| {
        if let Expression::Bitwise { operation: Bitwise::MaskXor { mask, .. }, .. } = one {
            mask.fill(0xff);
        }
    }),
    ("byteorder: not done", |one| {
        if let Expression::ByteOrder { size, .. } = one {
            *size = 1;
        }
    }),
    ("lookup: inverted", |one| {
        if let Expression::Lookup { is_inverted, .. } = one {
            *is_inverted = !*is_inverted;
        }
    }),
    ("payload: source for destination", |one| {
        if let Expression::Payload { offset, length: 2..=16, .. } = one {
            *offset = match *offset {
                12 => 16,
                16 => 12,
                8 => 24,
                24 => 8,
                0 => 2,
                2 => 0,
                other => other,
            };
        }
    }),
    ("payload: a port for the flags", |one| {
        if let Expression::Payload { offset: offset @ 13, .. } = one {
            *offset = 0;
        }
    }),
    ("meta: ingress for egress", |one| {
        if let Expression::Meta { key, .. } = one {
            *key = match *key {
                4 => 5,
                5 => 4,
                6 => 7,
                7 => 6,
                other => other,
            };
        }
    }),
    ("meta: mark is a packet type", |one| {
        if let Expression::Meta { key: key @ 3, .. } = one {
            *key = 1;
        }
    }),
    ("meta: family for protocol", |one| {
        if let Expression::Meta { key: key @ 15, .. } = one {
            *key = 16;
        }
    }),
    ("ct: status for state", |one| {
        if let Expression::Ct { key: key @ 0, .. } = one {
            *key = 2;
        }
    }),
    ("ct: state for status", |one| {
        if let Expression::Ct { key: key @ 2, .. } = one {
            *key = 0;
        }
    }),
    ("ct: mark is the state", |one| {
        if let Expression::Ct { key: key @ 3, .. } = one {
            *key = 0;
        }
    }),
    ("ct: direction is that of the tuple", |one| {
        if let Expression::Ct { direction: Some(direction), .. } = one {
            *direction ^= 1;
        }
    }),
    ("ct: source for destination", |one| {
        if let Expression::Ct { key, .. } = one {
            *key = match *key {
                8 => 9,
                9 => 8,
                11 => 12,
                12 => 11,
                19 => 20,
                20 => 19,
                other => other,
            };
        }
    }),
    ("fib: any type is the packet's type", |one| {
        if let Expression::Fib { to, result: 3, .. } = one {
            *one = Expression::Immediate { to: *to, data: Data::Value(vec![2, 0, 0, 0]) };
        }
    }),
    ("fib: no way leads back", |one| {
        if let Expression::Fib { to, result: 1, .. } = one {
            *one = Expression::Immediate { to: *to, data: Data::Value(vec![0]) };
        }
    }),
    ("exthdr: there", |one| {
        if let Expression::ExtensionHeader { to, operation: 0, .. } = one {
            *one = Expression::Immediate { to: *to, data: Data::Value(vec![1]) };
        }
    }),
    ("meta set: nothing", |one| nothing_if(one, |one| matches!(one, Expression::MetaSet { .. }))),
    ("ct set: nothing", |one| nothing_if(one, |one| matches!(one, Expression::CtSet { .. }))),
    ("payload set: nothing", |one| {
        nothing_if(one, |one| matches!(one, Expression::PayloadSet { .. }))
    }),
    ("option set: nothing", |one| {
        nothing_if(one, |one| matches!(one, Expression::ExtensionHeaderSet { .. }))
    }),
    ("log, limit, numgen, set update: nothing", |one| {
        nothing_if(one, |one| matches!(one, Expression::Other { .. }));
    }),
    ("quota: nothing", |one| nothing_if(one, |one| matches!(one, Expression::Object { .. }))),
    ("goto comes back", |one| {
        verdict(one, |verdict| match verdict {
            Verdict::Goto(chain) => Verdict::Jump(chain),
            other => other,
        })
    }),
    ("jump does not come back", |one| {
        verdict(one, |verdict| match verdict {
            Verdict::Jump(chain) => Verdict::Goto(chain),
            other => other,
        })
    }),
    ("return accepts", |one| {
        verdict(one, |verdict| match verdict {
            Verdict::Return => Verdict::Accept,
            other => other,
        })
    }),
    ("drop goes on", |one| {
        verdict(one, |verdict| match verdict {
            Verdict::Drop => Verdict::Continue,
            other => other,
        })
    }),
    ("continue accepts", |one| {
        verdict(one, |verdict| match verdict {
            Verdict::Continue => Verdict::Accept,
            other => other,
        })
    }),
    ("conntrack of iptables: inverted", |one| invert(one, "conntrack", 148, 1)),
    ("conntrack of iptables: another direction", |one| invert(one, "conntrack", 149, 0x10)),
    ("conntrack of iptables: another status", |one| invert(one, "conntrack", 148, 0x40)),
    ("conntrack of iptables: other ports", |one| invert(one, "conntrack", 149, 0x0f)),
    ("pkttype of iptables: inverted", |one| invert(one, "pkttype", 4, 1)),
    ("helper of iptables: inverted", |one| invert(one, "helper", 0, 1)),
    ("ct: a helper is no condition", |one| {
        if let Expression::Ct { to, key: 6, .. } = one {
            *one = Expression::Immediate { to: *to, data: Data::Value(vec![0; 16]) };
        }
    }),
    ("multiport of iptables: inverted", |one| invert(one, "multiport", 47, 1)),
    ("multiport of iptables: another side", |one| invert(one, "multiport", 0, 1)),
    ("connmark of iptables: inverted", |one| invert(one, "connmark", 8, 1)),
    ("mark of iptables: inverted", |one| invert(one, "mark", 8, 1)),
    ("iprange of iptables: inverted", |one| invert(one, "iprange", 64, 0x10)),
    ("addrtype of iptables: inverted", |one| invert(one, "addrtype", 4, 2)),
    ("tcp of iptables: inverted", |one| invert(one, "tcp", 11, 2)),
    ("tcp of iptables: other flags", |one| invert(one, "tcp", 10, 0x12)),
    ("udp of iptables: inverted", |one| invert(one, "udp", 8, 2)),
    ("targets of iptables: nothing", |one| {
        nothing_if(one, |one| matches!(one, Expression::Target(_)))
    }),
];

/// A bug by what it makes of a table.
type WrongTable = fn(&mut RuleTable);

/// Bugs that concern more than one expression.
const OF_TABLES: [(&str, WrongTable); 6] = [
    ("policy: accept", |table| {
        table
            .chains
            .iter_mut()
            .filter_map(|chain| chain.base.as_mut())
            .for_each(|base| base.drops = false);
    }),
    ("raw chains see the connection", |table| {
        let bases = table.chains.iter_mut().filter_map(|chain| chain.base.as_mut());
        let bases = bases.filter(|base| base.hook == Hook::Prerouting);
        bases.for_each(|base| base.priority = base.priority.max(-150));
    }),
    ("sets: the first element is not read", |table| {
        table
            .sets
            .iter_mut()
            .filter(|set| !set.elements.is_empty())
            .for_each(|set| drop(set.elements.remove(0)));
    }),
    ("sets: an interval is its beginning", |table| {
        for element in table.sets.iter_mut().flat_map(|set| &mut set.elements) {
            if let Keys::Range(first, _) = &element.keys {
                element.keys = Keys::One(first.clone());
            }
        }
    }),
    ("sets: a range of fields is one of bytes", |table| {
        table.sets.iter_mut().for_each(|set| set.fields.clear());
    }),
    ("maps: another element's verdict", |table| {
        for set in &mut table.sets {
            let mut data: Vec<_> =
                set.elements.iter().map(|element| element.data.clone()).collect();
            data.reverse();
            set.elements.iter_mut().zip(data).for_each(|(element, data)| element.data = data);
        }
    }),
];

/// Turns bits of a match's structure.
fn invert(one: &mut Expression, name: &str, at: usize, bits: u8) {
    if let Expression::Match(extension) = one
        && extension.name == name
        && let Some(byte) = extension.data.get_mut(at)
    {
        *byte ^= bits;
    }
}

fn nothing_if(one: &mut Expression, is_it: fn(&Expression) -> bool) {
    if is_it(one) {
        *one = Expression::Counter { packets: 0 };
    }
}

fn verdict(one: &mut Expression, change: fn(Verdict) -> Verdict) {
    if let Expression::Immediate { data: Data::Verdict(verdict), .. } = one {
        *verdict = change(verdict.clone());
    }
}

/// The rules as a bug sees them.
fn wrong(number: usize, rules: &[RuleTable]) -> Firewall {
    let mut tables = rules.to_vec();
    for table in tables.iter_mut().filter(|table| table.name != "keeper") {
        match BUGS.get(number) {
            Some((_, bug)) => {
                let rules = table.chains.iter_mut().flat_map(|chain| &mut chain.rules);
                rules.flat_map(|rule| &mut rule.expressions).for_each(bug);
            }
            None => OF_TABLES[number - BUGS.len()].1(table),
        }
    }
    Firewall::of(Ruleset { tables })
}

fn name(number: usize) -> &'static str {
    BUGS.get(number).map_or_else(|| OF_TABLES[number - BUGS.len()].0, |bug| bug.0)
}

/// Whether the kernel contradicts a yes about this flow.
fn is_contradicted(made: &Connections, flow: &Flow, random: &mut Random) -> bool {
    let before = counts(made);
    for _ in 0..PACKETS {
        made.send(flow, random);
    }
    // A packet in a direction that no rule concerns would show that those before it have been dealt with; what is
    // dropped shows nothing. A veth's receiver runs before the sender's call returns.
    let after = counts(made);
    after.accepted < before.accepted + PACKETS || after.effects > before.effects
}

#[test]
fn each_planted_bug_is_found() {
    let mut random = Random::of_packet(11, 0);
    let Some(made) = Connections::make(32, &mut random) else { return };
    let mut open: Vec<_> = (0..BUGS.len() + OF_TABLES.len()).collect();
    let (mut tried, mut showed) = (0, Vec::new());
    for number in KNOWN.into_iter().chain(1..CASES_MAX) {
        if open.is_empty() {
            break;
        }
        tried += 1;
        let mut random = Random::of_packet(11, number);
        if load(&made, &rules(&mut random)).is_err() {
            continue;
        }
        let mut tables = made.rules().tables;
        tables.extend(made.topology.host("r1").run(iptables::ruleset).expect("root may read it"));
        let right = Firewall::of(Ruleset { tables: tables.clone() });
        let flows = made
            .flows
            .iter()
            .flat_map(|flow| [false, true].map(|is_reply| Flow { is_reply, ..*flow }));
        let is_yes = |firewall: &Firewall, flow: &Flow| {
            let answer = firewall.may(&made.question(flow, true), Options::default());
            matches!(answer, Answer::Yes(_))
        };
        let before = open.len();
        let doubtful: Vec<_> = flows.filter(|flow| !is_yes(&right, flow)).collect();
        open.retain(|&bug| {
            let wrong = wrong(bug, &tables);
            let mut said = doubtful.iter().filter(|flow| is_yes(&wrong, flow)).take(TRIES_MAX);
            !said.any(|flow| is_contradicted(&made, flow, &mut random))
        });
        showed.extend((open.len() < before).then_some(number));
    }
    let names: Vec<_> = open.into_iter().map(name).collect();
    assert!(names.is_empty(), "not found in {tried} sets of rules: {names:?}");
    eprintln!("all found in {tried} sets of rules: {showed:?} showed some");
}

/// Sets of rules that showed one of them, which saves the search; the others are searched for.
const KNOWN: [u64; 33] = [
    1, 2, 3, 4, 7, 8, 14, 29, 31, 33, 38, 43, 47, 48, 77, 89, 93, 115, 123, 136, 145, 146, 150,
    159, 198, 213, 236, 381, 389, 407, 633, 639, 896,
];
const PACKETS: u64 = 2;
const TRIES_MAX: usize = 3;
const CASES_MAX: u64 = 4000;
