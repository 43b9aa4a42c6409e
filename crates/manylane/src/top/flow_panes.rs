//! The tables of flows: connections of the flow table, packets of a sample, and what the kernel forwards.

use std::collections::BTreeMap;

use manylane_api::accelerate::{
    KernelCounts, KernelFlow, KernelFlows, LaneStatus, TrackedDirection, TrackedFlow, TrackedFlows,
    TrackedSum,
};

use super::detail::Picked;
use super::flows::{FlowAt, Flows};
use super::panes::{Between, Cell, Pane, Row, number, text, whole};
use super::sample::Accelerator;
use crate::tables::{flows, kernel_flows};
use crate::terminal::table::count;

/// Which flows the operator wants to see, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowChoice {
    /// Those of this port only.
    pub port: Option<String>,
    /// Added up by port and tier.
    pub is_grouped: bool,
}

impl FlowChoice {
    fn takes(&self, ports: &[&str]) -> bool {
        self.port.as_ref().is_none_or(|wanted| ports.contains(&wanted.as_str()))
    }

    /// What is said of the pane, with the port that is chosen.
    fn note(&self, note: String) -> String {
        match &self.port {
            Some(port) => format!("port {port}: {note}"),
            None => note,
        }
    }
}

/// The directions of connections, where these decide: exact, not sampled.
pub fn tracked(
    between: &Between<'_>,
    former: Option<&Accelerator>,
    now: &TrackedFlows,
    choice: &FlowChoice,
) -> Pane {
    let former = former.and_then(|daemon| daemon.tracked.as_ref());
    if choice.is_grouped {
        return tracked_sums(between, former, now, choice);
    }
    let before: BTreeMap<_, _> =
        former.iter().flat_map(|table| &table.flows).map(|flow| (key(flow), flow)).collect();
    let row = |flow: &TrackedFlow, side: fn(&TrackedFlow) -> &TrackedDirection, ends: [&str; 4]| {
        let was = before.get(&key(flow)).map(|flow| side(flow));
        let is = side(flow);
        if !choice.takes(&[&is.ingress, &is.egress]) {
            return None;
        }
        let [source, destination, leaves_as, leaves_to] = ends;
        let name = format!("{source} > {destination} {}", flow.protocol);
        let (nat, leaves) = match flow.nat.as_str() {
            "none" => ("", String::new()),
            nat => (nat, format!("{leaves_as} > {leaves_to}")),
        };
        let cells = vec![
            text(&name),
            text(&is.ingress),
            text(flows::by(is)),
            number(between.rate(was.map(|was| was.packets), is.packets)),
            number(between.rate(was.map(|was| was.bytes * 8), is.bytes * 8)),
            whole(is.bytes),
            text(nat),
            text(&leaves),
        ];
        Some(Row { cells, picked: Some(picked(name, &is.ingress, Vec::new())) })
    };
    let both = |flow: &TrackedFlow| {
        let TrackedFlow { source, destination, translated_source: as_source, .. } = flow;
        let as_destination = &flow.translated_destination;
        [
            row(flow, |flow| &flow.original, [source, destination, as_source, as_destination]),
            row(flow, |flow| &flow.reply, [as_destination, as_source, destination, source]),
        ]
    };
    let rows = now.flows.iter().flat_map(both).flatten().collect();
    let note = match now.total as usize > now.flows.len() {
        true => {
            let (shown, all) = (count(now.flows.len() as u64), count(now.total));
            format!("the {shown} largest of {all} connections")
        }
        false => format!("{} connections", count(now.total)),
    };
    let columns = &["Flow", "Port", "By", ">Packets/s", ">bit/s", ">Bytes", "NAT", "Leaves as"];
    Pane { title: FLOWS, columns, optional: 2, order: 3, rows, note: choice.note(note) }
}

fn tracked_sums(
    between: &Between<'_>,
    former: Option<&TrackedFlows>,
    now: &TrackedFlows,
    choice: &FlowChoice,
) -> Pane {
    let row = |sum: &TrackedSum| {
        let is_it = |was: &&TrackedSum| (&was.ingress, &was.tier) == (&sum.ingress, &sum.tier);
        let was = former.and_then(|table| table.sums.iter().find(is_it));
        Row::from(vec![
            text(&sum.ingress),
            text(&sum.tier),
            whole(sum.directions),
            number(between.rate(was.map(|was| was.packets), sum.packets)),
            number(between.rate(was.map(|was| was.bytes * 8), sum.bytes * 8)),
            whole(sum.packets),
            whole(sum.bytes),
        ])
    };
    let rows = now.sums.iter().filter(|sum| choice.takes(&[&sum.ingress])).map(row).collect();
    let note = choice.note(format!("{} connections, by port and tier", count(now.total)));
    let columns = &["Port", "By", ">Directions", ">Packets/s", ">bit/s", ">Packets", ">Bytes"];
    Pane { title: FLOWS, columns, optional: 0, order: 3, rows, note }
}

/// What tells connections apart: a former one may have had these ends.
fn key(flow: &TrackedFlow) -> (u32, &str, &str, &str) {
    (flow.id, &flow.protocol, &flow.source, &flow.destination)
}

/// The flows of packets that `manylane run` has received.
pub fn received(flows: &Flows, share: f64, trouble: Option<&str>, choice: &FlowChoice) -> Pane {
    let rows = flows.by_flow.iter().filter(|(at, _)| choice.takes(&[&at.port]));
    let row = |(at, packets): (&FlowAt, &u64)| {
        let share = shares(*packets, flows, share);
        Row::from([text(&at.flow), text(&at.port)].into_iter().chain(share).collect::<Vec<_>>())
    };
    let columns = &["Flow", "Port", ">%", ">About/s"];
    let note = choice.note(match trouble {
        None if flows.packets > 0 => format!("of the last {} sampled packets", flows.packets),
        trouble => no_sample(trouble),
    });
    Pane { title: FLOWS, columns, optional: 0, order: 2, rows: rows.map(row).collect(), note }
}

/// The flows of packets that an accelerator's programs have noted, with the tier that forwards each, or why the kernel does.
pub fn sampled(
    flows: &Flows,
    share: f64,
    trouble: Option<&str>,
    lane: Option<&LaneStatus>,
    choice: &FlowChoice,
) -> Pane {
    let chosen = flows.by_flow.iter().filter(|(at, _)| choice.takes(&[&at.port]));
    let without = match lane {
        Some(lane) if lane.capacity == 0 => "`--flows 0`",
        Some(lane) if lane.is_needed() => "the table does not answer",
        _ => "no rule filters by connection",
    };
    let note = choice.note(match trouble {
        None if flows.packets > 0 => {
            format!("by sample ({without}): of the last {} packets", flows.packets)
        }
        trouble => format!("by sample ({without}): {}", no_sample(trouble)),
    });
    if choice.is_grouped {
        let mut sums = BTreeMap::<_, u64>::new();
        chosen.for_each(|(at, packets)| *sums.entry((&at.port, &at.by)).or_default() += packets);
        let row = |((port, by), packets): ((&String, &String), u64)| {
            let share = shares(packets, flows, share);
            Row::from([text(port), text(by)].into_iter().chain(share).collect::<Vec<_>>())
        };
        let columns = &["Port", "By", ">%", ">About/s"];
        let rows = sums.into_iter().map(row).collect();
        return Pane { title: FLOWS, columns, optional: 0, order: 2, rows, note };
    }
    let row = |(at, packets): (&FlowAt, &u64)| {
        let cells = [text(&at.flow), text(&at.port), text(&at.by)].into_iter();
        let said = vec![format!("by sample: {packets} of {} packets, {}", flows.packets, at.by)];
        Row {
            cells: cells.chain(shares(*packets, flows, share)).collect(),
            picked: Some(picked(at.flow.clone(), &at.port, said)),
        }
    };
    let columns = &["Flow", "Port", "By", ">%", ">About/s"];
    Pane { title: FLOWS, columns, optional: 0, order: 3, rows: chosen.map(row).collect(), note }
}

fn shares(packets: u64, flows: &Flows, received: f64) -> [Cell; 2] {
    let share = packets as f64 / flows.packets as f64;
    [number(Some(share * 100.0)), number(Some(share * received))]
}

fn no_sample(trouble: Option<&str>) -> String {
    match trouble {
        Some(trouble) => format!("no sample: {trouble}"),
        None => "no packet was received".into(),
    }
}

/// Connections that the kernel forwards, and what keeps each there.
pub fn kernel(
    between: &Between<'_>,
    former: Option<&Accelerator>,
    now: &Accelerator,
    choice: &FlowChoice,
) -> Pane {
    let none = Vec::new();
    let former = former.and_then(|daemon| daemon.kernel.as_ref()?.as_ref().ok());
    let flows_before = former.iter().flat_map(|page| &page.flows);
    let before: BTreeMap<_, _> =
        flows_before.map(|flow| (kernel_flows::key(flow), flow.counted)).collect();
    let (flows, note) = match (&now.kernel, &now.lane) {
        (_, Some(lane)) if lane.capacity == 0 => (&none, "`--flows 0`: no flow table".into()),
        (_, Some(lane)) if !lane.is_needed() => {
            (&none, "no rule filters by connection or translates".into())
        }
        (None, _) => (&none, "select this pane to read conntrack".into()),
        (Some(Err(error)), _) => (&none, format!("no answer: {error}")),
        (Some(Ok(page)), _) => (&page.flows, kernel_note(page)),
    };
    let is_chosen = |flow: &&KernelFlow| {
        let ports = [&flow.ingress, &flow.egress].map(|port| port.as_deref().unwrap_or_default());
        choice.takes(&ports)
    };
    let row = |flow: &KernelFlow| {
        let KernelFlow { source, destination, protocol, reason, explanation, .. } = flow;
        let name = format!("{source} > {destination} {protocol}");
        let port = flow.ingress.as_deref().unwrap_or_default();
        let was = before.get(&kernel_flows::key(flow)).copied().flatten();
        let rate = |of: fn(&KernelCounts) -> u64| {
            let now = flow.counted.as_ref()?;
            between.rate(was.as_ref().map(of), of(now))
        };
        let cells = vec![
            text(&name),
            text(if port.is_empty() { "-" } else { port }),
            text(reason),
            number(rate(KernelCounts::packets)),
            number(rate(|counted| counted.bytes().saturating_mul(8))),
            text(explanation),
        ];
        Row { cells, picked: Some(picked(name, port, kernel_said(flow))) }
    };
    let rows = flows.iter().filter(is_chosen).map(row).collect();
    let columns =
        &["Connection", "Port", "Reason", ">Packets/s", ">bit/s", "What keeps it in the kernel"];
    Pane { title: KERNEL, columns, optional: 0, order: 2, rows, note: choice.note(note) }
}

fn kernel_note(page: &KernelFlows) -> String {
    if let Some(trouble) = &page.trouble {
        return trouble.clone();
    }
    let reasons = page.reasons.iter().map(|one| format!("{} {}", one.reason, count(one.total)));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let first = match page.total as usize > page.flows.len() {
        true => format!("the first {} of ", count(page.flows.len() as u64)),
        false => String::new(),
    };
    let least = if page.is_truncated { "at least " } else { "" };
    let colon = if reasons.is_empty() { "" } else { ": " };
    let counts = if page.counts { "" } else { "; no rates: net.netfilter.nf_conntrack_acct is 0" };
    format!("{first}{least}{} connections{colon}{reasons}{counts}", count(page.total))
}

fn kernel_said(flow: &KernelFlow) -> Vec<String> {
    let mut said = vec![format!("{}: {}", flow.reason, flow.explanation)];
    let cure = flow.obstacle.as_ref().and_then(|obstacle| obstacle.cure.as_ref());
    said.extend(cure.map(|cure| format!("to free them: {cure}")));
    said.push(format!("conntrack: {}", flow.state));
    if flow.nat != "none" {
        let KernelFlow { nat, translated_source, translated_destination, .. } = flow;
        said.push(format!("{nat}: leaves as {translated_source} > {translated_destination}"));
    }
    said
}

fn picked(flow: String, port: &str, said: Vec<String>) -> Picked {
    Picked { flow, port: port.to_owned(), said }
}

const FLOWS: &str = "Flows";
/// The title of the pane that has to be selected to have rows.
pub const KERNEL: &str = "Kernel";
