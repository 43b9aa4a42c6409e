//! The API's answers as tables: what `manylane show`, the demo and others print.

pub(crate) mod accelerate;
pub(crate) mod export;
pub(crate) mod extent;
pub(crate) mod flows;
pub(crate) mod kernel_flows;
mod sockets;
mod steering;

pub(crate) use sockets::sockets;
pub(crate) use steering::steering;

use std::collections::BTreeMap;

use crate::terminal::table::{bytes, count, duration, lay_out, signed};
use manylane_api::{
    AddressStatus, DropStatus, FrameLedger, FrameLine, FramesStatus, Ledger, MemberStatus,
    NeighbourStatus, PortState, PortStatus, RouteStatus, WorkerStatus,
};

pub(crate) fn ports(ports: &[PortStatus]) -> String {
    if ports.is_empty() {
        return "No ports.\n".into();
    }
    let set_up = ports.iter().map(|port| {
        vec![
            port.name.clone(),
            format!("{}\n{}", device(port), port.mac),
            state(port),
            port.queues.to_string(),
            port.mtu.to_string(),
            port.addresses.join("\n"),
        ]
    });
    let counters = ports.iter().map(|port| {
        vec![
            port.name.clone(),
            count(port.received),
            bytes(port.received_bytes),
            count(port.transmitted),
            bytes(port.transmitted_bytes),
            count(lost(port)),
            count(total(&port.dropped)),
        ]
    });
    let set_up = lay_out(&["Port", "Device", "State", ">Queues", ">MTU", "Addresses"], set_up);
    let titles = ["Port", ">Received", ">Bytes", ">Transmitted", ">Bytes", ">Lost", ">Dropped"];
    let (counters, prepared) = (lay_out(&titles, counters), prepared(ports));
    let (faults, copies) = (faults(ports), copies(ports));
    format!("{set_up}{}{}\n{counters}{prepared}{faults}{copies}", chosen(ports), single(ports))
}

/// The device under a port.
fn device(port: &PortStatus) -> String {
    match &port.vlan {
        Some(vlan) => format!("{}, {}", vlan.port, vlan.tags),
        None => port.interface.as_ref().unwrap_or(&port.driver).clone(),
    }
}

/// Why `auto` came to be what it is, a line for each port.
fn chosen(ports: &[PortStatus]) -> String {
    let of_port = |port: &PortStatus| {
        let why = port.chosen.as_ref()?;
        Some(format!("{}: auto is {}: {why}.\n", port.name, port.driver))
    };
    ports.iter().filter_map(of_port).collect()
}

/// Why packets lie in one frame, a line for each port where they have to.
fn single(ports: &[PortStatus]) -> String {
    let of_port = |port: &PortStatus| {
        let why = port.single_because.as_ref()?;
        Some(format!("{}: packets lie in one frame: {why}.\n", port.name))
    };
    ports.iter().filter_map(of_port).collect()
}

/// What was done to packets on purpose, where it is to be done.
fn faults(ports: &[PortStatus]) -> String {
    let of_port = |port: &PortStatus| {
        let faults = port.faults?;
        Some(vec![
            port.name.clone(),
            count(faults.dropped),
            count(faults.duplicated),
            count(faults.corrupted),
            count(faults.delayed),
            count(faults.reordered),
            count(faults.hold_full.saturating_add(faults.no_frame)),
        ])
    };
    let rows: Vec<_> = ports.iter().filter_map(of_port).collect();
    let titles =
        ["Faults", ">Dropped", ">Duplicated", ">Corrupted", ">Delayed", ">Reordered", ">No place"];
    if rows.is_empty() { String::new() } else { format!("\n{}", lay_out(&titles, rows)) }
}

/// What became of copies, where ports make any.
fn copies(ports: &[PortStatus]) -> String {
    let of_port = |port: &PortStatus| {
        let copies = port.copies?;
        Some(vec![
            port.name.clone(),
            count(copies.copied),
            count(copies.no_frame),
            count(copies.unfit),
            count(copies.refused),
        ])
    };
    let rows: Vec<_> = ports.iter().filter_map(of_port).collect();
    let titles = ["Copies", ">Copied", ">No frame", ">Unfit", ">Writer full"];
    if rows.is_empty() { String::new() } else { format!("\n{}", lay_out(&titles, rows)) }
}

/// What was done to packets because their exit does not do it, if anything was.
fn prepared(ports: &[PortStatus]) -> String {
    let done = |port: &&PortStatus| {
        port.segments_cut > 0 || port.checksums_completed > 0 || port.chains_joined > 0
    };
    let rows: Vec<_> = ports
        .iter()
        .filter(done)
        .map(|port| {
            vec![
                port.name.clone(),
                count(port.segments_cut),
                count(port.checksums_completed),
                count(port.chains_joined),
            ]
        })
        .collect();
    let titles = ["Port", ">Segments cut here", ">Checksums completed", ">Packets joined"];
    if rows.is_empty() { String::new() } else { format!("\n{}", lay_out(&titles, rows)) }
}

/// What the device lost, either way: none of it is among the drops.
pub(crate) fn lost(port: &PortStatus) -> u64 {
    let received = [port.lost_ring_full, port.lost_no_buffer, port.lost_invalid, port.lost_closed];
    received.into_iter().chain([port.lost_transmit]).fold(0, u64::saturating_add)
}

/// `up, native, copy, repair`: what a packet meets on this port.
fn state(port: &PortStatus) -> String {
    if port.state != PortState::Open {
        return port.state.name().into();
    }
    let mut words = vec![if port.link_up { "up" } else { "down" }];
    if let Some(mode) = &port.mode {
        words.push(mode);
        words.push(if port.zero_copy { "zero copy" } else { "copy" });
    }
    if port.interface.is_some() && port.mode.is_none() {
        words.push(&port.driver);
    }
    words.push(&port.checksum);
    words.join(", ")
}

pub(crate) fn workers(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "No workers.\n".into();
    }
    let load = workers.iter().map(|worker| {
        let queues: Vec<_> = worker.queues.iter().map(ToString::to_string).collect();
        vec![
            worker.worker.to_string(),
            worker.core.map_or("any".into(), |core| core.to_string()),
            worker.state.name().into(),
            format!("{:.1} %", worker.busy_percent),
            count(worker.turns),
            count(worker.sleeps),
            count(worker.wakeups),
            queues.join(" "),
        ]
    });
    let frames = workers.iter().map(|worker| {
        vec![
            worker.worker.to_string(),
            count(worker.received),
            count(worker.transmitted),
            count(worker.held),
            count(worker.frames_in_pool),
        ]
    });
    let titles = [">Worker", ">Core", "State", ">Busy", ">Turns", ">Sleeps", ">Woken", "Queues"];
    let load = lay_out(&titles, load);
    let titles = [">Worker", ">Received", ">Transmitted", ">Held", ">Free frames"];
    format!("{load}\n{}", lay_out(&titles, frames))
}

pub(crate) fn routes(routes: &[RouteStatus]) -> String {
    if routes.is_empty() {
        return "No routes.\n".into();
    }
    let rows = routes.iter().flat_map(|route| {
        let first = vec![
            route.prefix.clone(),
            route.kind.name().into(),
            or_dash(&route.via),
            or_dash(&route.port),
        ];
        let member = |member: &MemberStatus| {
            let share = format!("{:.0} %", member.share * 100.0);
            vec![String::new(), share, member.via.clone(), member.port.clone()]
        };
        [first].into_iter().chain(route.group.iter().map(member)).collect::<Vec<_>>()
    });
    lay_out(&["Prefix", "Kind", "Via", "Port"], rows)
}

pub(crate) fn neighbours(neighbours: &[NeighbourStatus]) -> String {
    if neighbours.is_empty() {
        return "No neighbours.\n".into();
    }
    let rows = neighbours.iter().map(|neighbour| {
        vec![
            neighbour.address.clone(),
            or_dash(&neighbour.mac),
            neighbour.state.name().into(),
            duration(neighbour.age_s),
            neighbour.port.clone(),
        ]
    });
    lay_out(&["Address", "MAC", "State", ">Since", "Port"], rows)
}

pub(crate) fn addresses(addresses: &[AddressStatus]) -> String {
    if addresses.is_empty() {
        return "No port has other stations on its link, so no own address is probed or defended; `manylane show ports` \
                lists the addresses of all ports.\n"
            .into();
    }
    let rows = addresses.iter().map(|own| {
        vec![
            own.address.clone(),
            own.state.name().into(),
            if own.in_use { "yes" } else { "no" }.into(),
            duration(own.age_s),
            own.port.clone(),
            count(own.conflicts),
            or_dash(&own.claimed_by),
        ]
    });
    let titles = ["Address", "State", "In use", ">Since", "Port", ">Conflicts", "Claimed by"];
    lay_out(&titles, rows)
}

pub(crate) fn drops(drops: &[DropStatus]) -> String {
    let dropped: Vec<_> = drops.iter().filter(|reason| reason.total > 0).collect();
    if dropped.is_empty() {
        return "Nothing was dropped.\n".into();
    }
    let rows = dropped.into_iter().map(|reason| {
        let ports: Vec<_> = reason
            .ports
            .iter()
            .map(|(port, frames)| format!("{port} {}", count(*frames)))
            .collect();
        vec![
            reason.reason.clone(),
            count(reason.total),
            ports.join("\n"),
            reason.explanation.clone(),
        ]
    });
    lay_out(&["Reason", ">Packets", "Entered by", "Why"], rows)
}

pub(crate) fn ledger(ledger: &Ledger) -> String {
    let entered = ledger.received.saturating_add(total(&ledger.created));
    let mut rows = vec![line("received", ledger.received)];
    rows.extend(parts("created", &ledger.created));
    rows.push(line("= entered", entered));
    rows.push(vec![String::new(), String::new()]);
    rows.push(line("transmitted", ledger.transmitted));
    rows.push(line("delivered", ledger.delivered));
    rows.extend(parts("dropped", &ledger.dropped));
    rows.push(line("held for a neighbour", ledger.held));
    rows.push(line("in flight", ledger.in_flight));
    rows.push(vec!["= missing".into(), signed(ledger.missing)]);
    let packets = lay_out(&["Packets", ">"], rows);

    let frames = places(&ledger.frames);

    let per_port = ledger.per_port.iter().map(|port| {
        vec![
            port.port.clone(),
            count(port.received),
            count(port.created),
            count(port.transmitted),
            count(port.delivered),
            count(port.dropped),
            count(port.held),
            count(port.in_flight),
            signed(port.missing),
        ]
    });
    let titles = [
        "Ingress",
        ">Received",
        ">Created",
        ">Transmitted",
        ">Delivered",
        ">Dropped",
        ">Held",
        ">In flight",
        ">Missing",
    ];
    let per_port = lay_out(&titles, per_port);
    let verdict = verdict(ledger.missing == 0 && ledger.frames.missing == 0);
    format!("{packets}\n{per_port}\n{frames}\n{verdict}\n")
}

fn verdict(complete: bool) -> &'static str {
    if complete {
        "Everything is accounted for."
    } else {
        "Not everything is accounted for. While packets pass, counters are read one after another.\n\
         If this stays when they stop, it is a fault of manylane: please report it."
    }
}

pub(crate) fn frames(frames: &FramesStatus) -> String {
    let lists = frames.lists.iter().map(|list| {
        vec![
            list.worker.to_string(),
            count(list.level),
            count(list.len),
            count(list.taken),
            share(list.hits, list.taken),
            count(list.refills),
            count(list.spills),
            count(list.starved),
        ]
    });
    let titles =
        [">Worker", ">List", ">Length", ">Taken", ">Hits", ">Refills", ">Spills", ">Starved"];
    let lists = lay_out(&titles, lists);
    let places = places(&frames.ledger);
    let sum = sum(&frames.sum, frames.ledger.total);
    let verdict = verdict(frames.ledger.missing == 0);
    format!("{lists}\n{places}\n{sum}\n{verdict}\n")
}

/// Where the frames are.
fn places(ledger: &FrameLedger) -> String {
    let mut rows: Vec<_> =
        ledger.holders.iter().map(|place| line(&place.holder, place.frames)).collect();
    rows.push(line("= total", ledger.total));
    rows.push(vec!["missing".into(), signed(ledger.missing)]);
    lay_out(&["Frames", ">"], rows)
}

/// How many frames each place can hold, and how many frames exist.
pub(crate) fn sum(lines: &[FrameLine], total: u64) -> String {
    let mut rows: Vec<_> = lines
        .iter()
        .map(|line| vec![line.holder.clone(), line.formula.clone(), count(line.frames)])
        .collect();
    let needed = lines.iter().map(|line| line.frames).fold(0, u64::saturating_add);
    rows.push(vec!["= needed".into(), String::new(), count(needed)]);
    rows.push(vec!["there are".into(), String::new(), count(total)]);
    lay_out(&["At most", "", ">Frames"], rows)
}

/// `99.98 %` of something.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        // Rounded down: 100 % is all of them.
        _ => format!("{:.2} %", (part as f64 / whole as f64 * 10_000.0).floor() / 100.0),
    }
}

fn total(parts: &BTreeMap<String, u64>) -> u64 {
    // The numbers are another process's: a nonsense sum must not be a panic here.
    parts.values().fold(0, |sum, part| sum.saturating_add(*part))
}

/// One line of a sum.
fn line(name: &str, number: u64) -> Vec<String> {
    vec![name.into(), count(number)]
}

/// One line for each part that is not zero, or one for all.
fn parts(name: &str, parts: &BTreeMap<String, u64>) -> Vec<Vec<String>> {
    let lines: Vec<_> = parts
        .iter()
        .filter(|(_, number)| **number > 0)
        .map(|(part, number)| line(&format!("{name}: {part}"), *number))
        .collect();
    if lines.is_empty() { vec![line(name, 0)] } else { lines }
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".into())
}
