//! Rules of the routing policy: a packet's table, and its source's reverse path.

use super::*;
use crate::fib::IpPrefix;
use crate::transit::{Action, Rule, TableNumber};

/// By the merged tables everything goes to port 2, by a further one to port 3.
struct Policed {
    bed: Bed,
    tables: [TableNumber; 2],
    other: u32,
}

const OTHER: u32 = 13;

impl Policed {
    fn new() -> Policed {
        let mut bed = Bed::new();
        let facts = PortRecord { flags: EVERYTHING, ifindex: OTHER, mac: ours(3) };
        bed.tables.set_port(3, facts);
        let (id, other) =
            (bed.tables.take_id().expect("one"), bed.tables.take_slot().expect("one"));
        let way = Adjacency { egress_ifindex: OTHER, egress_port: 3, ..adjacency() };
        bed.tables.set_slot(other, Some(way)).expect("a record is free");
        bed.tables.set_next_hop(id, NextHop::Via(other));
        let tables = ["192.0.2.0/24", "2001:db8:2::/48"].map(|prefix| {
            let table = bed.tables.take_table().expect("one");
            bed.tables.set_table(table, [(a_prefix(prefix), id)]).expect("there is room");
            table
        });
        Policed { bed, tables, other }
    }

    /// For both families: local, this rule, the merged tables.
    fn set(&mut self, rule: impl Fn(bool, Action) -> Rule) {
        for (is_ipv6, table) in [false, true].into_iter().zip(self.tables) {
            let rules = [
                Rule::all(Action::Local),
                rule(is_ipv6, Action::Table(table)),
                Rule::all(Action::Merged),
            ];
            self.bed.tables.set_rules(is_ipv6, &rules).expect("a list is free");
            self.bed.reader.quiescent();
            self.bed.tables.reclaim();
        }
    }

    /// Both families' packets leave there.
    fn leave_by(&mut self, egress: u32) {
        for packet in [ipv4(TO), ipv6(TO6)] {
            let decided = self.bed.decide(&mut packet.clone(), &came());
            assert_eq!(decided, (Verdict::Forwarded, Some(egress)), "{packet:02x?}");
        }
    }

    fn judged(&mut self, verdict: Verdict) {
        self.bed.judged(verdict, &ipv4(TO), came());
        self.bed.judged(verdict, &ipv6(TO6), came());
    }
}

fn a_prefix(text: &str) -> IpPrefix {
    text.parse().expect("a prefix")
}

#[test]
fn each_selector_chooses() {
    let mut policed = Policed::new();
    policed.leave_by(OUT);
    policed.set(|_, action| Rule::all(action));
    policed.leave_by(OTHER);
    type Change = fn(bool, &mut Rule, bool);
    let changes: [Change; 4] = [
        |is_ipv6, rule, hits| {
            rule.from = Some(a_prefix(match (is_ipv6, hits) {
                (false, true) => "10.1.0.0/31",
                (false, false) => "10.1.0.0/32",
                (true, true) => "2001:db8:1::/127",
                (true, false) => "2001:db8:1::/128",
            }));
        },
        |is_ipv6, rule, hits| {
            rule.to = Some(a_prefix(match (is_ipv6, hits) {
                (false, true) => "192.0.2.0/24",
                (false, false) => "192.0.3.0/24",
                (true, true) => "2001:db8:2::/64",
                (true, false) => "2001:db8:2:1::/64",
            }));
        },
        |_, rule, hits| rule.ingress = Some(if hits { IN } else { OUT }),
        |_, rule, hits| rule.tos = if hits { 0 } else { 8 },
    ];
    for change in changes {
        for (hits, is_inverted) in [(true, false), (false, false), (true, true), (false, true)] {
            policed.set(|is_ipv6, action| {
                let mut rule = Rule { is_inverted, ..Rule::all(action) };
                change(is_ipv6, &mut rule, hits);
                rule
            });
            policed.leave_by(if hits != is_inverted { OTHER } else { OUT });
        }
    }
}

/// IPv4's rules are compared with the old four bits of the type of service but the lowest, IPv6's with the DSCP.
#[test]
fn the_type_of_service_is_each_familys_own() {
    let mut policed = Policed::new();
    policed.set(|_, action| Rule { tos: 0x10, ..Rule::all(action) });
    for (tos, egress_ports) in
        [(0x10, [OTHER; 2]), (0x13, [OTHER; 2]), (0xb0, [OTHER, OUT]), (0x14, [OUT; 2])]
    {
        let (mut v4, mut v6) = (ipv4(TO), ipv6(TO6));
        v4[15] = tos;
        set_checksum(&mut v4);
        (v6[14], v6[15]) = (0x60 | tos >> 4, tos << 4);
        for (mut packet, egress) in [v4, v6].into_iter().zip(egress_ports) {
            let decided = policed.bed.decide(&mut packet, &came());
            assert_eq!(decided, (Verdict::Forwarded, Some(egress)), "{tos:#x}");
        }
    }
}

#[test]
fn a_table_without_a_route_leads_to_the_next_rule() {
    let mut policed = Policed::new();
    policed.set(|_, action| Rule::all(action));
    for table in policed.tables {
        policed.bed.tables.set_table(table, []).expect("there is room");
    }
    policed.leave_by(OUT);
    // Nor does a rule whose table refuses it: the default route is missing.
    let id = policed.bed.tables.take_id().expect("one");
    for (table, prefix) in policed.tables.into_iter().zip(["0.0.0.0/0", "::/0"]) {
        policed.bed.tables.set_table(table, [(a_prefix(prefix), id)]).expect("there is room");
    }
    policed.leave_by(OUT);
    policed.bed.tables.set_next_hop(id, NextHop::Via(policed.other));
    policed.leave_by(OTHER);
    policed.bed.tables.set_next_hop(id, NextHop::Unreachable);
    policed.judged(Verdict::Nowhere);
    // And behind the last rule is nothing.
    policed.bed.tables.set_next_hop(id, NextHop::None);
    policed.bed.tables.set_next_hop(policed.bed.id, NextHop::None);
    policed.judged(Verdict::NoRoute);
}

#[test]
fn what_only_the_kernel_can_ask_for_is_its() {
    let mut policed = Policed::new();
    policed.set(|_, _| Rule::all(Action::Kernel));
    policed.judged(Verdict::KernelRoute);
    policed.set(|_, _| Rule::all(Action::Nowhere));
    policed.judged(Verdict::Nowhere);
    policed.set(|_, _| Rule { ingress: Some(OTHER), ..Rule::all(Action::Kernel) });
    policed.leave_by(OUT);
    // The rule is applied to the reverse of an IPv4 packet too.
    policed.set(|_, _| Rule { ingress: Some(OUT), ..Rule::all(Action::Kernel) });
    policed.bed.judged(Verdict::ReversePath, &ipv4(TO), came());
    policed.bed.judged(Verdict::Forwarded, &ipv6(TO6), came());
}

/// Our own addresses are in the merged tables, and come before every rule.
#[test]
fn local_comes_first() {
    let mut policed = Policed::new();
    policed.set(|_, action| Rule::all(action));
    for next_hop in [NextHop::Local, NextHop::Broadcast] {
        policed.bed.tables.set_next_hop(policed.bed.id, next_hop);
        policed.judged(Verdict::Local);
    }
    for next_hop in [NextHop::Unreachable, NextHop::Kernel, NextHop::None] {
        policed.bed.tables.set_next_hop(policed.bed.id, next_hop);
        policed.leave_by(OTHER);
    }
}

/// The kernel applies the rules to a packet from the destination to the source, received where this one leaves.
#[test]
fn a_source_is_looked_up_the_other_way() {
    let mut policed = Policed::new();
    let back = policed.bed.tables.take_id().expect("one");
    policed.bed.tables.set_next_hop(back, NextHop::Connected(PortId(1)));
    let table = policed.bed.tables.take_table().expect("one");
    let source = a_prefix("10.1.0.0/24");
    policed.bed.tables.set_table(table, [(source, back)]).expect("there is room");
    let mut rules = |verdict: Verdict, flags: u32, rules: &[Rule]| {
        policed.bed.set_flags(1, EVERYTHING | flags);
        policed.bed.tables.set_rules(false, rules).expect("a list is free");
        policed.bed.reader.quiescent();
        policed.bed.tables.reclaim();
        policed.bed.judged(verdict, &ipv4(TO), came());
    };
    let all = Rule::all(Action::Merged);
    let [local, merged] = [Action::Local, Action::Merged].map(Rule::all);
    let to = |action| Rule { to: Some(source), ..Rule::all(action) };
    let by = |ingress| Rule { ingress: Some(ingress), ..Rule::all(Action::Table(table)) };
    let from = Rule { from: Some(a_prefix("192.0.2.0/24")), ..Rule::all(Action::Table(table)) };
    for flags in [flags::RP_STRICT, flags::RP_LOOSE] {
        rules(Verdict::ReversePath, flags, &[local, all]);
        rules(Verdict::Forwarded, flags, &[local, by(OUT), merged]);
        rules(Verdict::ReversePath, flags, &[local, by(IN), merged]);
        rules(Verdict::Forwarded, flags, &[local, from, merged]);
        rules(Verdict::Forwarded, flags, &[local, to(Action::Table(table)), merged]);
        rules(Verdict::ReversePath, flags, &[local, to(Action::Nowhere), merged]);
    }
    rules(Verdict::Forwarded, 0, &[local, all]);
    rules(Verdict::Forwarded, 0, &[local, to(Action::Nowhere), merged]);
    // What the kernel would find by that rule is not known.
    rules(Verdict::ReversePath, 0, &[local, to(Action::Kernel), merged]);
    policed.bed.tables.set_next_hop(back, NextHop::Local);
    let back = [local, to(Action::Table(table)), merged];
    policed.bed.tables.set_rules(false, &back).expect("a list is free");
    policed.bed.judged(Verdict::ReversePath, &ipv4(TO), came());
}
