//! `manylane show flows` of `manylane accelerate`, and what `show why` says of a connection.

use manylane_api::accelerate::{
    AcceleratedFlow, AcceleratedFlows, LaneCount, LaneStatus, TrackedDirection, TrackedFlow,
    TrackedFlows, TrackedFlowsDiff, TrackedFlowsRequest, TrackedSum, WhyFlow,
};

use crate::terminal::table::{bytes, count, duration, lay_out, plural};

/// A page of the flow table.
pub(crate) fn page(
    page: &TrackedFlows,
    request: &TrackedFlowsRequest,
    lane: &LaneStatus,
) -> String {
    let mut text = head(page, request);
    if !page.flows.is_empty() {
        let titles = ["Connection", "NAT", "Way", "By", ">Packets", ">Bytes", ">Age", ">Idle"];
        text = text + "\n" + &lay_out(&titles, page.flows.iter().map(row)) + &reasons(&page.flows);
        text = text + "\nDirections, by port and tier:\n" + &sums(&page.sums);
    }
    text + "\n" + &status(lane)
}

fn head(page: &TrackedFlows, request: &TrackedFlowsRequest) -> String {
    let TrackedFlows { total, packets, bytes: all, used, capacity, .. } = page;
    let connections = match total {
        1 => "1 connection".into(),
        total => format!("{} connections", count(*total)),
    };
    let pages = total.div_ceil(request.limit.max(1) as u64).max(1);
    let which = match (pages, request.offset as u64 / request.limit.max(1) as u64 + 1) {
        (1, 1) => String::new(),
        (pages, number) => format!("Page {} of {}. ", count(number), count(pages)),
    };
    format!(
        "{which}{connections}, {} packets, {}; the table has {} of {} entries in use.\n",
        count(*packets),
        bytes(*all),
        count(*used),
        count(*capacity)
    )
}

/// What the directions have counted that arrive by a port and that a tier forwards.
fn sums(sums: &[TrackedSum]) -> String {
    let row = |sum: &TrackedSum| {
        let TrackedSum { ingress, tier, directions, packets, bytes: all } = sum;
        vec![ingress.clone(), tier.clone(), count(*directions), count(*packets), bytes(*all)]
    };
    lay_out(&["Port", "By", ">Directions", ">Packets", ">Bytes"], sums.iter().map(row))
}

fn row(flow: &TrackedFlow) -> Vec<String> {
    let both = |part: &dyn Fn(&TrackedDirection) -> String| {
        format!("{}\n{}", part(&flow.original), part(&flow.reply))
    };
    let translated = match flow.nat.as_str() {
        "none" => String::new(),
        "snat" => format!("snat\n{}", flow.translated_source),
        "dnat" => format!("dnat\n> {}", flow.translated_destination),
        _ => format!("{}\n> {}", flow.translated_source, flow.translated_destination),
    };
    vec![
        format!("{} {}\n> {}", flow.protocol, flow.source, flow.destination),
        translated,
        both(&|one| format!("{} > {}", one.ingress, one.egress)),
        both(&|one| by(one).to_owned()),
        both(&|one| count(one.packets)),
        both(&|one| bytes(one.bytes)),
        duration(flow.age_s),
        flow.idle_s.map_or_else(|| "-".into(), duration),
    ]
}

/// The tier that forwards, or why the kernel does.
pub(crate) fn by(direction: &TrackedDirection) -> &str {
    if direction.reason.is_empty() { &direction.tier } else { &direction.reason }
}

/// What the reasons mean, a line for each.
fn reasons(flows: &[TrackedFlow]) -> String {
    let all = flows.iter().flat_map(|flow| [&flow.original, &flow.reply]);
    let all = all.filter(|one| !one.reason.is_empty());
    let mut lines: Vec<_> =
        all.map(|one| format!("{}: {}\n", one.reason, one.explanation)).collect();
    lines.sort_unstable();
    lines.dedup();
    match lines.is_empty() {
        true => String::new(),
        false => "\nBy the kernel:\n".to_owned() + &lines.concat(),
    }
}

/// The state of the table and its thread, in some sentences.
pub(crate) fn status(lane: &LaneStatus) -> String {
    let needed = match (lane.needed_ipv4, lane.needed_ipv6) {
        (true, true) => "IPv4 and IPv6 packets are forwarded by connection.",
        (true, false) => "IPv4 packets are forwarded by connection, IPv6 packets without.",
        (false, true) => "IPv6 packets are forwarded by connection, IPv4 packets without.",
        (false, false) => "No rule filters by connection or translates: no packet needs one.",
    };
    let mut text = format!(
        "{needed}\n{} entered, {} proposed.{}{}\n",
        plural_of(lane.admitted, "connection"),
        count(lane.candidates),
        reasons_of(" Refused", &lane.refused),
        reasons_of(" Removed", &lane.removed),
    );
    if lane.is_reviewing {
        text += "Rules, routes or interfaces have changed, and entries are being reviewed.\n";
    }
    if let Some(trouble) = &lane.trouble {
        text += &format!("Connections cannot be followed: {trouble}.\n");
    }
    text + "`conntrack -L` has these connections, their states and timeouts; its own counters of packets\n\
            and bytes lack what manylane forwards, which is counted here.\n"
}

fn plural_of(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(number)) }
}

fn reasons_of(what: &str, counts: &[LaneCount]) -> String {
    let some: Vec<_> = counts
        .iter()
        .filter(|one| one.total > 0)
        .map(|one| format!("{} {}", one.reason, count(one.total)))
        .collect();
    if some.is_empty() { String::new() } else { format!("{what}: {}.", some.join(", ")) }
}

/// A sample, where no connection decides, or no table is kept.
pub(crate) fn sampled(sample: &AcceleratedFlows, lane: &LaneStatus) -> String {
    let why = match lane.capacity {
        0 => "the daemon runs with `--flows 0`, without a table of connections",
        _ => "no rule filters by connection or translates, so no table of connections is kept",
    };
    let head = format!(
        "By sample: {why}.\n\
         Of the packets of a tenth of a second, one packet in {}: {}.\n",
        count(sample.one_in),
        plural(sample.packets as usize, "packet")
    );
    if sample.flows.is_empty() {
        return head;
    }
    let rows = sample.flows.iter().map(|flow: &AcceleratedFlow| {
        let by = if flow.reason.is_empty() { &flow.by } else { &flow.reason };
        vec![flow.flow.clone(), flow.port.clone(), by.clone(), count(flow.packets)]
    });
    format!("{head}\n{}", lay_out(&["Flow", "Port", "By", ">Packets"], rows))
}

/// The comparison with conntrack.
pub(crate) fn diff(diff: &TrackedFlowsDiff) -> String {
    let TrackedFlowsDiff { compared, differences, total } = diff;
    if *total == 0 {
        let entries = match compared {
            1 => "1 entry".into(),
            compared => format!("{} entries", count(*compared)),
        };
        return format!("The flow table is as conntrack: {entries} compared.\n");
    }
    let more = total.saturating_sub(differences.len() as u64);
    let more = if more > 0 { format!("... and {} more\n", count(more)) } else { String::new() };
    let differ = if *total == 1 { "differs" } else { "differ" };
    format!(
        "{}\n{more}{} of {} entries {differ} from conntrack.\n",
        differences.join("\n"),
        count(*total),
        count(*compared)
    )
}

/// What decides about a packet's connection.
pub(crate) fn why(flow: &WhyFlow) -> String {
    lay_out(&["Connection", ""], why_rows(flow))
}

/// Its rows: what each line is about, and what is said of that.
pub(crate) fn why_rows(flow: &WhyFlow) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    match (flow.state.as_str(), flow.reason.as_str()) {
        ("forwarded", _) => row("state", "forwarded by manylane".into()),
        ("class", "") => {}
        (state, reason) => row("state", format!("{state}: {reason}")),
    }
    if !flow.explanation.is_empty() {
        row("because", flow.explanation.clone());
    }
    if let Some(entry) = &flow.entry {
        let translated = match entry.nat.as_str() {
            "none" => String::new(),
            nat => format!(
                ", {nat}: leaves as {} > {}",
                entry.translated_source, entry.translated_destination
            ),
        };
        let TrackedFlow { protocol, source, destination, .. } = entry;
        row("entry", format!("{protocol} {source} > {destination}{translated}"));
        for (name, side) in [("original", &entry.original), ("reply", &entry.reply)] {
            let packets = format!("{} packets, {}", count(side.packets), bytes(side.bytes));
            row(name, format!("{} > {}, {}: {packets}", side.ingress, side.egress, by(side)));
        }
    }
    if let Some(connection) = &flow.connection {
        row("conntrack", connection.clone());
    }
    for one in &flow.rules {
        let name = format!("{} > {}, {}", one.ingress, one.egress, one.protocol);
        let answer = one.answer.replace('_', " ");
        match &one.obstacle {
            None => row(&name, if answer == "accept" { "accepted".into() } else { answer }),
            Some(obstacle) => {
                row(&name, format!("{answer}: {}", obstacle.text));
                obstacle.cure.iter().for_each(|cure| row("to free them", cure.clone()));
            }
        }
    }
    rows
}
