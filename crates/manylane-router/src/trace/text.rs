//! A packet as people read it: a block of lines, one for each stage, with the time since the one before.

use std::fmt::Write;

use super::together::Followed;
use manylane_api::{RouteKind, TraceStage, TraceWhat};

/// The block of one packet, with an empty line behind it.
pub fn block(followed: &Followed) -> String {
    let mut text = format!("packet {}", followed.packet);
    if let Some(first) = followed.stages.first() {
        // Writing to a string does not fail.
        let _ = write!(text, ", {} s after the daemon's start", seconds(first.time_ns));
    }
    if !followed.complete {
        text += ", not followed to its end";
    }
    text.push('\n');
    let is_ipv6 = |what: &TraceWhat| matches!(what, TraceWhat::Route { destination, .. } if destination.contains(':'));
    let hops = match followed.stages.iter().any(|stage| is_ipv6(&stage.what)) {
        true => "hop limit",
        false => "TTL",
    };
    let mut before = followed.stages.first().map_or(0, |first| first.time_ns);
    for TraceStage { worker, time_ns, what, .. } in &followed.stages {
        let delta = seconds(time_ns.saturating_sub(before));
        let name = what.name().replace('_', " ");
        let _ = writeln!(text, "  +{delta}  worker {worker}  {name:<11}  {}", describe(what, hops));
        before = *time_ns;
    }
    text.push('\n');
    text
}

/// Seconds with nine digits, in groups of three.
fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    format!("{whole}.{:03} {:03} {:03}", rest / 1_000_000, rest / 1000 % 1000, rest % 1000)
}

/// What a stage says; `hops` is what the packet's family calls its TTL.
fn describe(what: &TraceWhat, hops: &str) -> String {
    match what {
        TraceWhat::Received { port, queue, length, header } => {
            format!("by {port}, queue {queue}, {length} bytes: {header}")
        }
        TraceWhat::Steered { bucket, to } => {
            format!("its flow is in bucket {bucket}, which worker {to} has")
        }
        TraceWhat::Taken { from } => format!("from worker {from}, which received it"),
        TraceWhat::Checked { port, finding, reason } => {
            let found = match (&**finding, reason) {
                ("forward", _) => "to be passed on".into(),
                ("local", _) => "for us".into(),
                (_, Some(reason)) => format!("to be dropped: {reason}"),
                (other, None) => other.to_owned(),
            };
            format!("received by {port}, {found}")
        }
        TraceWhat::Route { destination, prefix, kind, next_hop } => match (prefix, kind) {
            (_, None) => format!("{destination}: no route"),
            (Some(prefix), Some(kind)) => {
                format!("{destination} is in {prefix}, {}, next hop {next_hop}", does(*kind))
            }
            (None, Some(kind)) => {
                format!("{destination}, {}, next hop {next_hop}; another by now", does(*kind))
            }
        },
        TraceWhat::Neighbour { group, port, address, state, mac, mtu } => {
            let mac = mac.as_ref().map_or(String::new(), |mac| format!(" at {mac}"));
            let of = group.map_or(String::new(), |group| format!(", the flow's of group {group}"));
            format!("{address} on {port}{mac}: {state}, MTU {mtu}{of}")
        }
        TraceWhat::Changed => "the tables changed meanwhile".into(),
        TraceWhat::Rewritten { ttl_before, ttl_after, destination, source } => {
            format!("{hops} {ttl_before} to {ttl_after}, {source} > {destination}")
        }
        TraceWhat::Error { reason, explanation } => {
            format!("dropped as {reason} ({explanation}); an ICMP error informs its sender")
        }
        TraceWhat::Reply => "delivered; this is our answer".into(),
        TraceWhat::Redirected => "its sender is sent a redirect to a better next hop".into(),
        TraceWhat::Prepared { how, pieces } => match pieces {
            1 => how.join(", "),
            _ => format!("{}: {pieces} packets", how.join(", ")),
        },
        TraceWhat::Held { port, address } => format!("until {address} on {port} answers"),
        TraceWhat::Released { waited_ns } | TraceWhat::GivenUp { waited_ns } => {
            format!("after {} s", seconds(*waited_ns))
        }
        TraceWhat::Queued { port } => format!("for {port}"),
        TraceWhat::Transmitted { port, queue } => match queue {
            Some(queue) => format!("by {port}, queue {queue}"),
            None => format!("by {port}"),
        },
        TraceWhat::Delivered => "to ourselves".into(),
        TraceWhat::Dropped { reason, explanation } => format!("{reason}: {explanation}"),
    }
}

fn does(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Via => "to a neighbour",
        RouteKind::Group => "to one of a group, by flow",
        RouteKind::OnLink => "on link",
        RouteKind::Connected => "a connected network",
        RouteKind::Local => "our own",
        RouteKind::Broadcast => "a broadcast address",
        RouteKind::Blackhole => "dropped in silence",
        RouteKind::Unreachable => "unreachable",
        RouteKind::Prohibit => "prohibited",
        RouteKind::Kernel => "the kernel's",
    }
}
