//! `manylane show` of `manylane accelerate`.

use std::collections::BTreeMap;

use super::extent::{grouped, unseen};
use super::{flows, line, or_dash, parts};
use crate::terminal::table::{bytes, count, lay_out, signed};
use manylane_api::accelerate::{
    AcceleratedLedger, AcceleratedPort, AcceleratorConfig, LeaseStatus, MirrorStatus,
    MirroredNeighbour, PassedStatus, ReasonStatus, RouteCounts, WaitStatus, Why, WhyChain,
    WhyKernel, WhyStep,
};

pub(crate) fn ports(ports: &[AcceleratedPort]) -> String {
    let set_up = ports.iter().map(|port| {
        vec![
            port.name.clone(),
            or_dash(&port.mac),
            state(port),
            tier(port),
            port.mtu.to_string(),
            port.programs.join("\n"),
        ]
    });
    let set_up = lay_out(&["Port", "MAC", "State", "Tier", ">MTU", "Programs before"], set_up);
    let counters = ports.iter().map(|port| {
        vec![
            port.name.clone(),
            count(port.seen),
            count(port.forwarded),
            bytes(port.forwarded_bytes),
            count(total(&port.passed)),
            count(port.sent),
            bytes(port.sent_bytes),
            count(
                port.device_dropped
                    .saturating_add(port.queue_dropped)
                    .saturating_add(total(&port.dropped)),
            ),
        ]
    });
    let titles =
        ["Port", ">Seen", ">Forwarded", ">Bytes", ">To the kernel", ">Sent", ">Bytes", ">Lost"];
    let counters = lay_out(&titles, counters);
    format!("{set_up}\n{counters}{}", port_reasons(ports))
}

/// Why these ports have their tiers, and what the operator bypasses.
pub(crate) fn port_reasons(ports: &[AcceleratedPort]) -> String {
    let of_port = |port: &AcceleratedPort| {
        let all = [
            (String::new(), &port.reasons),
            (", bypassed".into(), &port.bypassed),
            (format!(", tier {}", tier(port)), &port.tier_reasons),
        ];
        let named = all.map(|(kind, reasons)| {
            let named = |one: &ReasonStatus| (port.name.clone(), (kind.clone(), one.clone()));
            reasons.iter().map(named).collect::<Vec<_>>()
        });
        named.concat()
    };
    reasons(ports.iter().flat_map(of_port))
}

/// One word, if ingress and egress have one tier.
fn tier(port: &AcceleratedPort) -> String {
    match port.egress_tier == port.tier || port.egress_tier.is_empty() {
        true => port.tier.clone(),
        false => format!("{}, egress {}", port.tier, port.egress_tier),
    }
}

fn state(port: &AcceleratedPort) -> String {
    let mut words = vec![match (port.index, port.link_up) {
        (None, _) => "missing",
        (Some(_), true) => "up",
        (Some(_), false) => "down",
    }];
    words.push(match (port.ingress, port.egress) {
        (true, true) => "ingress and egress",
        (true, false) => "ingress only",
        (false, true) => "egress only",
        (false, false) => "neither ingress nor egress",
    });
    if !port.attached {
        words.push("no program");
    }
    words.join(", ")
}

/// Why interfaces are left to the kernel, and what to do: some lines for each reason, with the names of all that have
/// the reason, and its kind.
fn reasons(reasons: impl IntoIterator<Item = (String, (String, ReasonStatus))>) -> String {
    let lines = |(names, (kind, reason)): (String, (String, ReasonStatus))| {
        let command = match reason.command.as_str() {
            "" => String::new(),
            command => format!("  changed by: {command}\n"),
        };
        format!("\n{names}{kind}: {}\n  {}\n{command}", reason.what, reason.why)
    };
    grouped(reasons).into_iter().map(lines).collect()
}

pub(crate) fn drops(reasons: &[PassedStatus], ports: &[AcceleratedPort]) -> String {
    let some: Vec<_> = reasons.iter().filter(|reason| reason.total > 0).collect();
    let seen = ports.iter().fold(0, |sum: u64, port| sum.saturating_add(port.seen));
    if some.is_empty() {
        return match seen {
            0 => "The programs have seen no packet.\n".into(),
            seen => format!("All {} packets that the programs saw were forwarded.\n", count(seen)),
        };
    }
    let rows = some.into_iter().map(|reason| {
        let ports =
            reason.ports.iter().map(|(port, packets)| format!("{port} {}", count(*packets)));
        vec![
            reason.reason.clone(),
            match reason.by.as_str() {
                "passed" => "to the kernel".into(),
                by => format!("lost: {by}"),
            },
            count(reason.total),
            ports.collect::<Vec<_>>().join("\n"),
            reason.explanation.clone(),
        ]
    });
    lay_out(&["Reason", "Went", ">Packets", "Port", "Why"], rows)
}

pub(crate) fn ledger(ledger: &AcceleratedLedger) -> String {
    let mut rows = vec![line("seen", ledger.seen), line("forwarded", ledger.forwarded)];
    if ledger.tiers.iter().any(|(tier, packets)| tier != "ingress" && *packets > 0) {
        rows.extend(parts("of these", &ledger.tiers));
    }
    rows.extend(parts("to the kernel", &ledger.passed));
    if !ledger.dropped.is_empty() {
        rows.extend(parts("dropped", &ledger.dropped));
    }
    if ledger.queued > 0 {
        rows.push(line("in workers' rings", ledger.queued));
    }
    rows.push(vec![String::new(), String::new()]);
    rows.push(line("sent", ledger.sent));
    rows.push(vec!["= missing".into(), signed(ledger.missing)]);
    rows.push(vec![String::new(), String::new()]);
    rows.push(line("lost: device", ledger.device_dropped));
    rows.push(line("lost: kernel", ledger.queue_dropped));
    let packets = lay_out(&["Packets", ">"], rows);
    let verdict = super::verdict(ledger.missing == 0 && ledger.missing_bytes == 0);
    let unseen = unseen(ledger.unseen.iter().map(|(name, time)| (name.as_str(), time)));
    format!("{packets}\n{verdict}\n{unseen}")
}

pub(crate) fn neighbours(neighbours: &[MirroredNeighbour]) -> String {
    if neighbours.is_empty() {
        return "No neighbours.\n".into();
    }
    let rows = neighbours.iter().map(|neighbour| {
        vec![
            neighbour.address.clone(),
            or_dash(&neighbour.mac),
            neighbour.state.clone(),
            if neighbour.used { "yes" } else { "no" }.into(),
            neighbour.interface.clone(),
        ]
    });
    lay_out(&["Address", "MAC", "State", "Used", "Interface"], rows)
}

pub(crate) fn config(config: &AcceleratorConfig) -> String {
    let or_nothing = |list: &[String]| match list {
        [] => "nothing".to_owned(),
        some => some.join(", "),
    };
    let port_tiers: Vec<_> =
        config.port_tiers.iter().map(|(port, tier)| format!("{port} {tier}")).collect();
    let rows = [
        vec!["interfaces".into(), config.interfaces.join(", ")],
        vec!["bypass".into(), or_nothing(&config.bypass)],
        vec!["tier".into(), config.tier.clone()],
        vec!["of ports".into(), or_nothing(&port_tiers)],
        vec!["lease".into(), format!("{} ms", count(config.lease_ms))],
        vec!["stale_limit".into(), format!("{} ms", count(config.stale_limit_ms))],
        vec!["workers".into(), config.workers.to_string()],
        vec!["socket".into(), or_dash(&config.socket)],
        vec!["seed".into(), format!("{:#018x}", config.seed)],
    ];
    lay_out(&["Setting", "Value"], rows)
}

pub(crate) fn mirror(answer: &MirrorStatus) -> String {
    let (mirror, counts) = (&answer.mirror, &answer.mirror.counts);
    let us = |ns: u64| format!("{} µs", count(ns / 1000));
    let number = |name: &str, number: usize| line(name, number as u64);
    let rows = [
        vec!["as the kernel's".into(), format!("{} ms ago", count(answer.verified_ms_ago))],
        vec!["edits behind".into(), us(mirror.lag_ns)],
        vec!["at most so far".into(), us(mirror.lag_max_ns)],
        number("edits that wait", mirror.pending),
        line("edits made", mirror.edits),
        line("epoch", mirror.epoch),
        line("messages heard", mirror.events),
        line("of these, changes", mirror.changes),
        line("messages lost", answer.overruns),
        line("read to be sure", answer.confirmations),
        line("waits for programs", answer.grace_periods),
    ];
    let work = lay_out(&["Mirror", ">"], rows);
    let of = |name: &str, [ipv4, ipv6]: [usize; 2]| {
        vec![name.to_owned(), count(ipv4 as u64), count(ipv6 as u64)]
    };
    let both = [&mirror.ipv4, &mirror.ipv6];
    type Part = fn(&RouteCounts) -> usize;
    let parts: [(&str, Part); 13] = [
        ("= routes", |counts| counts.routes),
        ("by one router, or none", |counts| counts.single_path),
        ("by several", |counts| counts.multipath),
        ("by a next-hop object", |counts| counts.objects),
        ("local", |counts| counts.local),
        ("broadcast", |counts| counts.broadcast),
        ("multicast", |counts| counts.multicast),
        ("blackhole", |counts| counts.blackhole),
        ("unreachable", |counts| counts.unreachable),
        ("prohibit", |counts| counts.prohibit),
        ("throw, others", |counts| counts.throw + counts.others),
        ("of all, not used", |counts| counts.unused),
        ("of all, encapsulated", |counts| counts.encapsulated),
    ];
    let rows = parts.iter().map(|(name, part)| of(name, both.map(part)));
    let rows: Vec<_> =
        rows.filter(|row| row[0].starts_with('=') || row[1] != "0" || row[2] != "0").collect();
    let routes = lay_out(&["Routes", ">IPv4", ">IPv6"], rows);
    let rows = [
        number("links", counts.links),
        number("addresses", counts.addresses),
        number("rules", counts.rules),
        number("neighbours", counts.neighbours),
        number("next-hop objects", counts.next_hop_objects),
        number("next hops in use", counts.ids),
        number("neighbours in use", counts.slots),
        number("of these, resolved", counts.resolved),
        number("groups in use", counts.groups),
        number("further tables", counts.further_tables),
        number("their prefixes", counts.further_prefixes),
        number("wait for programs", counts.waiting),
    ];
    let others = lay_out(&["Others", ">"], rows);
    format!("{work}\n{routes}\n{others}\n{}\n{}", lease(&answer.lease), troubles(answer))
}

/// What is not as it should be, a line each.
fn troubles(answer: &MirrorStatus) -> String {
    let mirror = &answer.mirror;
    let mut lines = String::new();
    if !mirror.is_complete {
        lines += &format!(
            "All ports are the kernel's: {} routes and {} prefixes found no room.\n",
            count(mirror.overflows),
            count(mirror.refused as u64)
        );
    }
    if mirror.starved > 0 {
        lines += &format!(
            "The kernel's for want of next hops, neighbours or groups: {}.\n",
            count(mirror.starved as u64)
        );
    }
    for refused in &mirror.refused_rules {
        lines += &format!("All ports are the kernel's: {refused}.\n");
    }
    for rule in &mirror.kernel_rules {
        lines += &format!("Packets that reach it are the kernel's: {rule}.\n");
    }
    if let Some(trouble) = &answer.grace_error {
        lines += &format!("The programs could not be waited for: {trouble}.\n");
    }
    for WaitStatus { activity, meaning, longest_ms, lapses } in &answer.waits {
        let lapsed = match *lapses {
            0 => String::new(),
            lapses => format!("; the lease lapsed {} by that", times(lapses)),
        };
        lines += &format!(
            "Waited for ({activity}): {meaning},\n  {} ms at most{lapsed}.\n",
            count(*longest_ms)
        );
    }
    lines
}

/// One sentence: manylane or the kernel forwards.
fn lease(lease: &LeaseStatus) -> String {
    let tables = match lease.tables.as_str() {
        "current" => "the tables are as the kernel's",
        "stale" => "the tables are behind the kernel's",
        _ => "the tables have not been filled yet",
    };
    let renewed = match lease.renewals {
        0 | 1 => String::new(),
        renewals => format!(" The lease has lapsed {} so far.", times(renewals - 1)),
    };
    match lease.holds {
        true => {
            format!("The lease holds for {} ms more: {tables}.{renewed}", count(lease.remaining_ms))
        }
        false => format!("The lease has lapsed, and the kernel forwards: {tables}.{renewed}"),
    }
}

fn times(number: u64) -> String {
    match number {
        1 => "once".into(),
        number => format!("{} times", count(number)),
    }
}

pub(crate) fn diff(lines: &[String]) -> String {
    match lines {
        [] => "The mirror is as the kernel.\n".into(),
        lines => lines.join("\n") + "\n",
    }
}

/// Whether manylane forwards a packet, in a sentence.
pub(crate) fn verdict(why: &Why) -> String {
    match (&why.egress, &why.to) {
        (Some(egress), Some(to)) => format!("Forwarded by {egress} to {to}."),
        _ => format!("Left to the kernel ({}): {}", why.verdict, why.explanation),
    }
}

pub(crate) fn why(why: &Why) -> String {
    let mut text = verdict(why) + "\n";
    if let Some(mirror) = &why.mirror {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        mirror.rule.iter().for_each(|rule| row("rule", rule.clone()));
        mirror.prefix.iter().for_each(|prefix| row("prefix", prefix.clone()));
        mirror.routes.iter().for_each(|route| row("route", route.clone()));
        for hop in &mirror.hops {
            let usable = if hop.is_usable { "" } else { ", cannot be sent to" };
            let way = format!(
                "{} on {}, {}, MTU {}{usable}",
                hop.gateway, hop.egress, hop.neighbour, hop.mtu
            );
            row("next hop", way);
        }
        row("so", mirror.reason.clone());
        if mirror.is_pending {
            row("but", "edits wait: the tables may say something older".into());
        }
        text = text + "\n" + &lay_out(&["Mirror", ""], rows);
    }
    if let Some(flow) = &why.flow {
        text = text + "\n" + &flows::why(flow);
    }
    if let Some(kernel) = &why.kernel {
        text = text + "\n" + &lay_out(&["Kernel", ""], kernel_rows(kernel));
    }
    let gate = |reason: &ReasonStatus| ("gate".to_owned(), (String::new(), reason.clone()));
    text += &reasons(why.reasons.iter().map(gate));
    if !why.result.is_empty() {
        text = text + "\n" + &why.result + "\n";
    }
    text
}

/// What the kernel would do with a packet: what each line is about, and what is said of that.
fn kernel_rows(kernel: &WhyKernel) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("conntrack", kernel.connection.clone());
    for chain in &kernel.chains {
        for step in &chain.steps {
            row(&chain.hook, rule(chain, step));
        }
    }
    row("route", kernel.route.clone());
    if let (Some(gateway), Some(neighbour)) = (&kernel.gateway, &kernel.neighbour) {
        row("neighbour", format!("{gateway}, {neighbour}"));
    }
    row("so", format!("{}: {}", kernel.verdict, kernel.explanation));
    rows
}

/// A rule as `manylane trace` prints one.
fn rule(chain: &WhyChain, step: &WhyStep) -> String {
    let WhyChain { family, table, is_legacy, .. } = chain;
    let legacy = if *is_legacy { "legacy iptables, " } else { "" };
    let mut text =
        format!("{}: {legacy}table {family} {table}, chain {}", step.verdict, step.chain);
    step.rule.iter().for_each(|rule| text += &format!(", rule {rule}"));
    step.handle.iter().for_each(|handle| text += &format!(", handle {handle}"));
    if step.by_policy {
        text += ", policy";
    }
    step.text.iter().for_each(|rule| text += &format!(": {rule}"));
    text
}

fn total(parts: &BTreeMap<String, u64>) -> u64 {
    // The numbers are another process's: a nonsense sum must not be a panic here.
    parts.values().fold(0, |sum, part| sum.saturating_add(*part))
}
