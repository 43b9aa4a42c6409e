//! Rules: which table routes which packets, and when that is written.

use std::net::IpAddr;

use manylane_io::netlink::kernel::{Event, Family, Route, Rule};
use manylane_net::transit::layout::{FURTHER_TABLES, RULES};
use manylane_net::transit::{Action, Rule as Written};

use super::fake::Fake;
use super::model::{addresses, is_ours, look_up, tables_choice};
use super::random::check_choice;
use super::world::{self, added, hop, ip, replaced, route, rule};
use super::{Leads, apply_event, bed, catch_up, leads, to, via, written, written_policy};
use crate::{Kernel, Mirror, Question, RouteAttributes};

/// A packet, as rules see it.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: IpAddr,
    to: IpAddr,
    entry: u32,
    tos: u8,
}

/// What the kernel does with a packet.
enum Choice {
    /// The choice depends on more than is looked at.
    Depends,
    /// A rule leads it nowhere.
    Nowhere,
    /// This route, if any.
    Route(Option<RouteAttributes>),
}

/// By ip-rule(8): rule by rule, to the first one that matches and whose table has a route.
fn kernels_way(kernel: &Kernel, packet: &Packet) -> Choice {
    let family = if packet.to.is_ipv4() { Family::V4 } else { Family::V6 };
    for rule in kernel.rules().filter(|rule| rule.family == family) {
        let is_in = |net: Option<(IpAddr, u8)>, address: IpAddr| {
            net.is_none_or(|net| crate::mirror::policy::network(net).contains(address))
        };
        let entry = rule.iif.as_ref().map(|name| kernel.link_named(name).map(|link| link.index));
        let matches = is_in(rule.from, packet.from)
            && is_in(rule.to, packet.to)
            && entry.is_none_or(|entry| entry == Some(packet.entry))
            && (rule.tos == 0 || rule.tos == packet.tos);
        let is_inverted = rule.flags & 2 != 0;
        // The test has no VRF.
        if rule.others == ["l3mdev"] && !is_inverted || rule.action == 3 {
            continue;
        }
        if is_inverted && !rule.others.is_empty() {
            return Choice::Depends;
        }
        if matches == is_inverted {
            continue;
        }
        if !rule.others.is_empty() {
            return Choice::Depends;
        }
        match rule.action {
            1 => match tables_choice(kernel, rule.table, packet.to) {
                None => return Choice::Depends,
                Some(Some(attributes)) => return Choice::Route(Some(attributes)),
                Some(None) => (),
            },
            _ => return Choice::Nowhere,
        }
    }
    Choice::Route(None)
}

/// What is written for a packet.
fn written_way(mirror: &Mirror<Fake>, packet: &Packet) -> Leads {
    let merged = look_up(&written(mirror), packet.to).expect("a default route").clone();
    let rules = &mirror.writer.rules[usize::from(packet.to.is_ipv6())];
    if rules.is_empty() {
        return merged;
    }
    for rule in rules {
        let matches = rule.from.is_none_or(|net| net.contains(packet.from))
            && rule.to.is_none_or(|net| net.contains(packet.to))
            && rule.ingress.is_none_or(|entry| entry == packet.entry)
            && (rule.tos == 0 || rule.tos == packet.tos);
        if matches == rule.is_inverted {
            continue;
        }
        match rule.action {
            Action::Local => {
                if let Leads::To("local" | "broadcast") = merged {
                    return merged;
                }
            }
            Action::Merged if merged != Leads::To("none") => return merged,
            Action::Merged => (),
            Action::Table(table) => {
                let routes = &mirror.writer.tables[&table];
                let containing = routes.iter().filter(|(prefix, _)| prefix.contains(packet.to));
                if let Some((_, id)) = containing.max_by_key(|(prefix, _)| prefix.len()) {
                    return leads(mirror, *id);
                }
            }
            Action::Nowhere => return Leads::To("nowhere"),
            Action::Kernel => return Leads::To("kernel"),
        }
    }
    Leads::To("none")
}

/// The tables route packets as the kernel does, or leave them to the kernel.
pub fn check_packets(mirror: &Mirror<Fake>) {
    let sources = ["10.1.1.1", "10.9.0.1", "2001:db8:1::1", "2001:db8:9::1"].map(ip);
    for (number, to) in addresses(&mirror.kernel).into_iter().enumerate() {
        let from = sources[number % 2 + if to.is_ipv4() { 0 } else { 2 }];
        let (entry, tos) = (1 + (number / 2 % 4) as u32, [0, 0, 0x10][number % 3]);
        let packet = Packet { from, to, entry, tos };
        let found = written_way(mirror, &packet);
        let is_ours = is_ours(&mirror.kernel, to);
        let is_kernels = match found {
            Leads::To("kernel") => true,
            Leads::To("local" | "broadcast") => is_ours,
            _ => false,
        };
        match kernels_way(&mirror.kernel, &packet) {
            Choice::Depends => assert!(is_kernels, "{packet:?} leads to {found:?}"),
            Choice::Nowhere => {
                assert!(
                    is_kernels || found == Leads::To("nowhere"),
                    "{packet:?} leads to {found:?}"
                );
            }
            Choice::Route(attributes) => {
                check_choice(to, Some(&found), attributes, is_ours);
            }
        }
    }
}

/// A mirror with the usual rules.
fn usual() -> Mirror<Fake> {
    let mut mirror = bed();
    for family in [Family::V4, Family::V6] {
        for (priority, table) in world::USUAL_RULES {
            apply_event(&mut mirror, Event::Rule(rule(family, priority, table)));
        }
    }
    catch_up(&mut mirror);
    mirror
}

fn destination(mirror: &Mirror<Fake>, from: &str, to: &str) -> Option<Leads> {
    Some(written_way(mirror, &Packet { from: ip(from), to: ip(to), entry: 1, tos: 0 }))
}

fn far(table: u32, prefix: &str, link: u32) -> Route {
    let family = if prefix.contains(':') { Family::V6 } else { Family::V4 };
    let hop = hop(link, Some(world::router(family, link, 1)));
    Route { table, ..route(prefix, vec![hop]) }
}

#[test]
fn a_rule_leads_some_to_another_table() {
    let mut mirror = usual();
    assert_eq!(mirror.writer.rules, [vec![], vec![]], "the usual ones need no list");
    for (from, default) in [("10.9.0.0", "0.0.0.0/0"), ("2001:db8:9::", "::/0")] {
        apply_event(&mut mirror, added(far(254, default, 1)));
        apply_event(&mut mirror, added(far(100, default, 2)));
        let family = if from.contains(':') { Family::V6 } else { Family::V4 };
        let from = Some((ip(from), if from.contains(':') { 48 } else { 16 }));
        apply_event(&mut mirror, Event::Rule(Rule { from, ..rule(family, 50, 100) }));
    }
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.8.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(2, "10.1.2.1", true)]));
    let router = |link: u32| world::router(Family::V6, link, 1).to_string();
    assert_eq!(destination(&mirror, "2001:db8:9::1", "2001:db9::1"), via(&[(2, &router(2), true)]));
    assert_eq!(destination(&mirror, "2001:db8:8::1", "2001:db9::1"), via(&[(1, &router(1), true)]));
    let status = mirror.status(0);
    let counts = [status.counts.further_tables, status.counts.further_prefixes];
    assert_eq!(counts, [2, 2]);
    assert_eq!((status.refused_rules.len(), status.kernel_rules.len()), (0, 0));
    // Its route is another; the rule is gone, and with it the table.
    apply_event(&mut mirror, replaced(far(100, "0.0.0.0/0", 3)));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(3, "10.1.3.1", true)]));
    let from = Some((ip("10.9.0.0"), 16));
    apply_event(&mut mirror, Event::RuleGone(Rule { from, ..rule(Family::V4, 50, 100) }));
    catch_up(&mut mirror);
    assert_eq!((mirror.writer.rules[0].len(), mirror.writer.tables.len()), (0, 1));
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
}

#[test]
fn a_neighbour_is_reached_by_a_further_tables_network() {
    let mut mirror = usual();
    apply_event(&mut mirror, Event::Rule(rule(Family::V4, 50, 100)));
    apply_event(&mut mirror, added(Route { table: 100, ..super::connected(Family::V4, 2) }));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "10.1.2.1"), via(&[(2, "10.1.2.1", true)]));
    assert_eq!(destination(&mirror, "10.9.0.1", "10.1.2.7"), Some(Leads::Port(2)));
    let known = world::neighbour(2, ip("10.1.2.7"), 2);
    apply_event(&mut mirror, Event::Neighbour(known.clone()));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "10.1.2.7"), via(&[(2, "10.1.2.7", true)]));
    apply_event(&mut mirror, Event::NeighbourGone(known));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "10.1.2.7"), Some(Leads::Port(2)));
}

#[test]
fn what_only_the_kernel_can_ask_is_its_for_whom_it_may_concern() {
    let mut mirror = usual();
    apply_event(&mut mirror, added(far(254, "0.0.0.0/0", 1)));
    let from = Some((ip("10.9.1.7"), 16));
    apply_event(
        &mut mirror,
        Event::Rule(Rule { from, others: vec!["mark"], ..rule(Family::V4, 50, 100) }),
    );
    apply_event(&mut mirror, Event::Rule(Rule { action: 7, to: from, ..rule(Family::V4, 60, 0) }));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.8.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), to("kernel"));
    assert_eq!(destination(&mirror, "10.8.0.1", "10.9.2.2"), to("nowhere"));
    assert_eq!(
        mirror.kernel_rules(),
        ["ip -4 rule 50: from 10.9.1.7/16 [mark] lookup 100: it matches more than addresses"]
    );
    assert_eq!(mirror.writer.tables.len(), 0, "nobody is led there");
    let why = |source: &str| {
        let (source, destination) = (Some(ip(source)), ip("198.51.100.1"));
        mirror.why(&Question { source, destination, ingress: None })
    };
    assert_eq!(
        (why("10.9.0.1").verdict.as_str(), why("10.8.0.1").verdict.as_str()),
        ("kernel_route", "forwarded")
    );
    assert!(why("10.9.0.1").rule.is_some_and(|rule| rule.contains("[mark]")));
    // Which packets an inverted one does not match is not known.
    apply_event(
        &mut mirror,
        Event::Rule(Rule { from, flags: 2, others: vec!["user"], ..rule(Family::V4, 40, 100) }),
    );
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.8.0.1", "198.51.100.1"), to("kernel"));
}

/// Of two that differ only in what only the kernel reads, one stays when the other goes.
#[test]
fn rules_that_differ_in_what_only_the_kernel_asks_are_two() {
    let mut mirror = usual();
    apply_event(&mut mirror, added(far(254, "0.0.0.0/0", 1)));
    let from = Some((ip("10.9.0.0"), 16));
    let by_port = |port: u8| {
        let rest = vec![23, 0, port, 0, port, 0];
        Rule { from, others: vec!["ports"], rest, ..rule(Family::V4, 50, 100) }
    };
    apply_event(&mut mirror, Event::Rule(by_port(53)));
    apply_event(&mut mirror, Event::Rule(by_port(80)));
    apply_event(&mut mirror, Event::RuleGone(by_port(53)));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), to("kernel"));
    apply_event(&mut mirror, Event::RuleGone(by_port(80)));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
}

/// What a custom rule reads of main is not what default has.
#[test]
fn the_table_default_is_no_part_of_main() {
    let mut mirror = usual();
    apply_event(&mut mirror, added(far(254, "198.51.100.0/24", 1)));
    let from = Some((ip("10.9.0.0"), 16));
    apply_event(&mut mirror, Event::Rule(Rule { from, ..rule(Family::V4, 50, 254) }));
    apply_event(&mut mirror, Event::Rule(Rule { action: 8, from, ..rule(Family::V4, 60, 0) }));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
    assert_eq!(destination(&mirror, "10.9.0.1", "203.0.113.1"), to("nowhere"));
    apply_event(&mut mirror, added(far(253, "203.0.113.0/24", 2)));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.8.0.1", "203.0.113.1"), via(&[(2, "10.1.2.1", true)]));
    assert_eq!(destination(&mirror, "10.9.0.1", "203.0.113.1"), to("kernel"));
}

#[test]
fn a_device_gives_its_name_to_another() {
    let mut mirror = usual();
    let iif = Some("uplink".to_owned());
    apply_event(&mut mirror, Event::Rule(Rule { iif, action: 6, ..rule(Family::V4, 50, 0) }));
    catch_up(&mut mirror);
    let ingress = |mirror: &Mirror<Fake>| mirror.writer.rules[0][1].ingress;
    assert_eq!(ingress(&mirror), Some(u32::MAX), "nobody has it");
    let mut link = world::link(2, world::WORKS);
    link.name = "uplink".to_owned();
    apply_event(&mut mirror, Event::Link(link.clone()));
    catch_up(&mut mirror);
    assert_eq!(ingress(&mirror), Some(2));
    link.name = "eth2".to_owned();
    apply_event(&mut mirror, Event::Link(link));
    catch_up(&mut mirror);
    assert_eq!(ingress(&mirror), Some(u32::MAX));
}

#[test]
fn rules_that_cannot_be_followed_are_refused_and_named() {
    let mut mirror = usual();
    apply_event(
        &mut mirror,
        Event::Rule(Rule { others: vec!["l3mdev"], ..rule(Family::V4, 1000, 0) }),
    );
    catch_up(&mut mirror);
    assert_eq!((mirror.refused_rules(), mirror.writer.rules[0].len()), (vec![], 0), "no VRF");
    // Local is not the first.
    apply_event(&mut mirror, Event::RuleGone(rule(Family::V4, 0, 255)));
    let said = |mirror: &Mirror<Fake>| -> Vec<String> {
        mirror.refused_rules().into_iter().map(|refused| refused.what).collect()
    };
    assert!(said(&mirror)[0].ends_with("table local: ip -4 rule 32766: from all lookup main"));
    catch_up(&mut mirror);
    assert_eq!(mirror.writer.rules[0], [Written::all(Action::Kernel)]);
    apply_event(&mut mirror, Event::Rule(rule(Family::V4, 0, 255)));
    // No rule reads main for all.
    apply_event(&mut mirror, Event::RuleGone(rule(Family::V6, 32_766, 254)));
    assert!(said(&mirror)[0].contains("`ip -6 rule` reads the table main"), "{:?}", said(&mirror));
    apply_event(&mut mirror, Event::Rule(rule(Family::V6, 32_766, 254)));
    assert_eq!(said(&mirror), Vec::<String>::new());
    // As many as have room, and one more.
    for number in 0..RULES as u32 - 2 {
        let from = Some((world::router(Family::V4, number, 0), 24));
        apply_event(&mut mirror, Event::Rule(Rule { from, ..rule(Family::V4, 100, 7) }));
    }
    catch_up(&mut mirror);
    assert_eq!((said(&mirror).len(), mirror.writer.rules[0].len()), (0, RULES));
    apply_event(&mut mirror, Event::Rule(Rule { tos: 4, ..rule(Family::V4, 100, 7) }));
    assert!(said(&mirror)[0].contains("33 rules; the program holds 32"), "{:?}", said(&mirror));
}

#[test]
fn tables_that_do_not_fit_are_the_kernels() {
    let mut mirror = usual();
    for table in 0..=FURTHER_TABLES as u32 {
        apply_event(&mut mirror, added(far(1000 + table, "0.0.0.0/0", 1)));
        let iif = Some(format!("eth{table}"));
        apply_event(&mut mirror, Event::Rule(Rule { iif, ..rule(Family::V4, 100, 1000 + table) }));
    }
    catch_up(&mut mirror);
    assert_eq!(mirror.writer.tables.len(), FURTHER_TABLES);
    assert_eq!(mirror.kernel_rules().len(), 1);
    // One that is too large; smaller, it is tried again.
    let mut mirror = usual();
    mirror.writer.table_max = 3;
    apply_event(&mut mirror, Event::Rule(rule(Family::V4, 100, 100)));
    for prefix in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"] {
        apply_event(&mut mirror, added(far(100, prefix, 2)));
    }
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "10.2.0.1"), to("kernel"));
    assert!(mirror.kernel_rules()[0].ends_with("the table is too large"));
    assert_eq!(mirror.status(0).counts.further_prefixes, 0, "its room is given back");
    apply_event(&mut mirror, Event::RouteGone(far(100, "10.1.0.0/16", 2)));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "10.2.0.1"), via(&[(2, "10.1.2.1", true)]));
    assert_eq!(mirror.kernel_rules(), Vec::<String>::new());
}

/// A rule is obeyed at once; a table that cannot be written yet is the kernel's until it is.
#[test]
fn a_table_that_waits_is_the_kernels() {
    let mut mirror = usual();
    apply_event(&mut mirror, added(far(254, "0.0.0.0/0", 1)));
    catch_up(&mut mirror);
    apply_event(&mut mirror, added(far(100, "0.0.0.0/0", 1)));
    apply_event(&mut mirror, Event::Rule(rule(Family::V4, 100, 100)));
    // Its one prefix, and its two steps: the table is busy, the list is not.
    mirror.writer.busy = 1;
    let applied = mirror.apply(0, 100);
    assert!(applied.is_busy && applied.pending > 0, "{applied:?}");
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), to("kernel"));
    catch_up(&mut mirror);
    assert_eq!(destination(&mirror, "10.9.0.1", "198.51.100.1"), via(&[(1, "10.1.1.1", true)]));
    assert_eq!(written_policy(&mirror).1[&(Family::V4, 100)].len(), 1);
}
