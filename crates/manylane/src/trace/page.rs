//! What became of a packet, as people and programs read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use manylane_accelerate::accelerator::reason_of;
use manylane_accelerate::firewall::Firewall;
use manylane_frame::vocabulary::Point;
use manylane_io::netlink::nftables::expression::Verdict as RuleVerdict;
use manylane_io::netlink::nftables::trace::{TraceEvent, TraceStep};

use super::follow::{Packet, Sees, Sight, Trace, TraceEnd};
use crate::capture::LocalTime;

/// What knows the names that numbers stand for.
#[derive(Default)]
pub(super) struct Names {
    /// Of ports: name and tier.
    pub ports: BTreeMap<u16, (String, String)>,
    /// Of devices.
    pub devices: BTreeMap<u32, String>,
    pub rules: Firewall,
    /// From 1970 to when the monotonic clock began.
    pub since_1970_ns: u64,
    pub sees: Sees,
}

/// A packet and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Page {
    /// Which packet of the trace, from 1.
    packet: usize,
    /// When it was seen first, in nanoseconds since 1970.
    time_ns: u64,
    /// Whether its end is known.
    complete: bool,
    /// All in one line.
    result: String,
    stages: Vec<Stage>,
}

/// What was done with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Stage {
    /// A tier of manylane, `nft` or `kernel`.
    place: String,
    /// Since it was seen first. nftables says no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ns: Option<u64>,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
enum What {
    Received {
        port: String,
        cpu: u32,
        length: u32,
        header: String,
    },
    Transmitted {
        port: String,
        header: String,
    },
    LeftToTheKernel {
        reason: String,
        explanation: String,
    },
    Decided {
        verdict: String,
        family: String,
        table: String,
        chain: String,
        /// The rule's number in its chain, from 1, if the rule is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        handle: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        by_policy: bool,
    },
    Unlisted {
        events: usize,
    },
    /// By the kernel, which may still wait for the neighbour's address.
    Sent {
        port: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        header: Option<String>,
    },
    Delivered,
    Dropped {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Page {
    pub fn of(packet: &Packet, names: &Names) -> Page {
        let begun = packet.sights.first().map_or(0, |first| first.time_ns);
        let tier = packet.sights.first().map_or_else(String::new, |first| names.tier(first.port));
        let mut stages: Vec<_> = packet
            .sights
            .iter()
            .map(|sight| Stage {
                place: tier.clone(),
                after_ns: Some(sight.time_ns.saturating_sub(begun)),
                what: names.sight(sight),
            })
            .collect();
        let mut behind = |place: &str, after_ns, what| {
            stages.push(Stage { place: place.into(), after_ns, what });
        };
        if let Some(trace) = &packet.trace {
            trace.events.iter().for_each(|event| behind("nft", None, names.event(event)));
            if trace.unlisted > 0 {
                behind("nft", None, What::Unlisted { events: trace.unlisted });
            }
            match trace.end {
                Some(TraceEnd::Sent(device)) => {
                    let is_translated = !trace.last.have_ends_of(&packet.headers);
                    let header = is_translated.then(|| trace.last.line().into());
                    behind("kernel", None, What::Sent { port: names.device(device), header });
                }
                Some(TraceEnd::Delivered) => behind("kernel", None, What::Delivered),
                Some(TraceEnd::Dropped) | None => {}
            }
        }
        if let Some((time, reason)) = &packet.dropped {
            let after = time.saturating_sub(begun);
            behind("kernel", Some(after), What::Dropped { reason: Some(reason.clone()) });
        }
        Page {
            packet: packet.number,
            time_ns: begun.saturating_add(names.since_1970_ns),
            complete: packet.is_complete,
            result: result(packet, &tier, names),
            stages,
        }
    }

    /// A block of lines, with an empty one behind it.
    pub fn block(&self, time: &mut LocalTime) -> String {
        let mut text = format!("packet {}, ", self.packet);
        time.write(self.time_ns, &mut text);
        text += if self.complete { "\n" } else { ", not followed to its end\n" };
        for Stage { place, after_ns, what } in &self.stages {
            let after = after_ns.map_or_else(String::new, |after| format!("+{}", seconds(after)));
            let (name, detail) = described(what);
            let line = format!("  {after:<14}  {place:<7}  {name:<18}  {detail}");
            // A string takes everything.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text, "  {}\n", self.result);
        text
    }
}

impl Names {
    fn port(&self, port: u16) -> String {
        self.ports.get(&port).map_or_else(|| "?".into(), |(name, _)| name.clone())
    }

    /// What handles packets of a port.
    fn tier(&self, port: u16) -> String {
        self.ports.get(&port).map_or_else(|| "manylane".into(), |(_, tier)| tier.clone())
    }

    fn device(&self, device: Option<u32>) -> String {
        let known = device.and_then(|device| self.devices.get(&device));
        known.cloned().unwrap_or_else(|| "?".into())
    }

    fn sight(&self, sight: &Sight) -> What {
        let header = sight.headers.line().to_owned();
        let port = self.port(sight.port);
        match sight.point {
            Point::Transmit => What::Transmitted { port, header },
            Point::Kernel => {
                let known = reason_of(sight.point, sight.verdict);
                let (reason, explanation) = known.unwrap_or(("?", "?"));
                What::LeftToTheKernel { reason: reason.into(), explanation: explanation.into() }
            }
            Point::Drop => {
                let known = reason_of(sight.point, sight.verdict);
                What::Dropped { reason: known.map(|(reason, _)| reason.into()) }
            }
            _ => What::Received { port, cpu: sight.cpu, length: sight.len, header },
        }
    }

    fn event(&self, event: &TraceEvent) -> What {
        let TraceEvent { family, table, chain, step, .. } = event;
        let handle = match step {
            TraceStep::Rule(handle) => Some(*handle),
            TraceStep::End | TraceStep::Return | TraceStep::Policy => None,
        };
        let known = handle.and_then(|handle| self.rules.rule(*family, table, chain, handle));
        let (rule, text) = known.unzip();
        What::Decided {
            verdict: verdict(&event.verdict),
            family: family.name().into(),
            table: table.clone(),
            chain: chain.clone(),
            rule,
            handle,
            text,
            by_policy: *step == TraceStep::Policy,
        }
    }
}

fn verdict(verdict: &RuleVerdict) -> String {
    match verdict {
        RuleVerdict::Accept => "accept".into(),
        RuleVerdict::Drop => "drop".into(),
        RuleVerdict::Queue => "queue".into(),
        RuleVerdict::Continue => "continue".into(),
        RuleVerdict::Break => "break".into(),
        RuleVerdict::Return => "return".into(),
        RuleVerdict::Jump(chain) => format!("jump {chain}"),
        RuleVerdict::Goto(chain) => format!("goto {chain}"),
        RuleVerdict::Other(STOLEN) => "stolen".into(),
        RuleVerdict::Other(number) => format!("verdict {number}"),
    }
}

/// All in one line: what the tier did, the rule that decided, what the kernel did.
fn result(packet: &Packet, tier: &str, names: &Names) -> String {
    let mut parts = Vec::new();
    parts.push(match packet.end().map(|end| names.sight(end)) {
        Some(What::Transmitted { port, .. }) => format!("{tier}: transmitted by {port}"),
        Some(What::LeftToTheKernel { reason, .. }) => {
            format!("{tier}: left to the kernel, {reason}")
        }
        Some(What::Dropped { reason: Some(reason) }) => format!("{tier}: dropped, {reason}"),
        Some(_) => format!("{tier}: dropped"),
        None => format!("{tier}: no end was seen"),
    });
    if packet.end().is_some_and(|end| end.point == Point::Kernel) {
        parts.extend(packet.trace.as_ref().and_then(|trace| decided(trace, names)));
        parts.push(match (&packet.dropped, packet.trace.as_ref().and_then(|trace| trace.end)) {
            (Some((_, reason)), _) => format!("kernel: dropped, {reason}"),
            (None, Some(TraceEnd::Dropped)) => "kernel: dropped".into(),
            (None, Some(TraceEnd::Delivered)) => "kernel: delivered to the router itself".into(),
            (None, Some(TraceEnd::Sent(device))) => {
                format!("kernel: sent by {}", names.device(device))
            }
            (None, None) if names.sees == Sees::default() => "kernel: not followed".into(),
            (None, None) => "kernel: no end was seen".into(),
        });
    }
    parts.join("; ")
}

/// The rule that dropped the packet; or that none did, if the packet met any.
fn decided(trace: &Trace, names: &Names) -> Option<String> {
    let dropped = trace.events.iter().find(|event| event.verdict == RuleVerdict::Drop);
    let Some(event) = dropped else {
        return (!trace.events.is_empty()).then(|| "nft: accepted".into());
    };
    let What::Decided { family, table, chain, rule, handle, .. } = names.event(event) else {
        return None;
    };
    let by = match (rule, handle) {
        (Some(rule), _) => format!("rule {rule}"),
        (None, Some(handle)) => format!("rule handle {handle}"),
        (None, None) => "policy".into(),
    };
    Some(format!("nft: table {family} {table} chain {chain} {by} drop"))
}

/// A stage's name, and the rest of it.
fn described(what: &What) -> (String, String) {
    let (name, detail) = match what {
        What::Received { port, cpu, length, header } => {
            ("received", format!("by {port}, CPU {cpu}, {length} bytes: {header}"))
        }
        What::Transmitted { port, header } => ("transmitted", format!("by {port}: {header}")),
        What::LeftToTheKernel { reason, explanation } => {
            ("left to the kernel", format!("{reason}: {explanation}"))
        }
        What::Decided { verdict, family, table, chain, rule, handle, text, by_policy } => {
            let mut detail = format!("table {family} {table}, chain {chain}");
            if let Some(rule) = rule {
                // A string takes everything.
                let _ = write!(detail, ", rule {rule}");
            }
            if let Some(handle) = handle {
                let _ = write!(detail, ", handle {handle}");
            }
            if *by_policy {
                detail += ", policy";
            }
            if let Some(text) = text {
                let _ = write!(detail, ": {text}");
            }
            (verdict.as_str(), detail)
        }
        What::Unlisted { events } => ("...", format!("{events} more rules")),
        What::Sent { port, header } => {
            let header = header.as_ref().map_or_else(String::new, |header| format!(": {header}"));
            ("sent", format!("by {port}{header}"))
        }
        What::Delivered => ("delivered", "to the router itself".into()),
        What::Dropped { reason } => ("dropped", reason.clone().unwrap_or_default()),
    };
    (name.into(), detail)
}

/// Seconds with nine digits, in groups of three.
fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    format!("{whole}.{:03} {:03} {:03}", rest / 1_000_000, rest / 1000 % 1000, rest % 1000)
}

/// `NF_STOLEN`: the rule keeps the packet.
const STOLEN: i32 = 2;

#[cfg(test)]
mod tests;
