//! The metrics of `manylane accelerate`.

use std::fmt;

use super::{Column, Labels, Page, export, interface, labels, lane, parts, seconds, single};
use crate::accelerate::{Accelerated, AcceleratedPort, MirrorStatus, RouteCounts, WaitStatus};

/// Writes all of it.
pub(in crate::server) fn write(
    source: &(dyn Accelerated + 'static),
    page: &mut Page<'_>,
) -> fmt::Result {
    daemon(source, page)?;
    let all = source.ports();
    ports(&all, page)?;
    interface::write(&all, page)?;
    ledger(source, page)?;
    lane::write(source.lane().ok(), page)?;
    export::write(&source.export(), page)?;
    mirror(source.mirror().ok(), page)
}

fn daemon(source: &dyn Accelerated, page: &mut Page<'_>) -> fmt::Result {
    let daemon = source.daemon();
    let build = labels([("kind", "accelerate"), ("version", &daemon.version)]);
    page.info("build", "The daemon.", [build])?;
    page.gauge("uptime", "seconds", "Since the daemon started.", single(daemon.uptime_s))?;
    let lease = daemon.lease;
    let help = "1 if manylane forwards now; if not, the kernel forwards.";
    page.gauge("lease_holds", "", help, single(u64::from(lease.holds)))?;
    let remaining = lease.remaining_ms as f64 / 1e3;
    page.gauge("lease_remaining", "seconds", "Until the lease lapses.", single(remaining))?;
    let help = "How often the lease began: once, and once more after each lapse.";
    page.counter("lease_renewals", "", help, single(lease.renewals))?;
    let help =
        "How often the mirror thread has decided on the lease: unchanged while that thread hangs.";
    page.counter("lease_checks", "", help, single(lease.checks))
}

fn ports(ports: &[AcceleratedPort], page: &mut Page<'_>) -> fmt::Result {
    let info = ports.iter().map(|port| {
        labels([
            ("port", &port.name),
            ("tier", &port.tier),
            ("egress_tier", &port.egress_tier),
            ("wanted_tier", &port.wanted_tier),
        ])
    });
    page.info("accelerated_port", "The tier that forwards at an interface.", info)?;
    page.gauges(PORT_GAUGES, ports, of_port)?;
    page.counters(PORT_COUNTERS, ports, of_port)?;
    let tiers = ports.iter().flat_map(|port| parts(of_port(port), "tier", &port.tiers));
    let help = "Packets received here and forwarded, by the tier that forwarded them.";
    page.counter("accelerated_port_forwarded_by_tier", "packets", help, tiers)?;
    let passed = ports.iter().flat_map(|port| parts(of_port(port), "reason", &port.passed));
    let help = "Packets received here and left to the kernel.";
    page.counter("accelerated_port_passed", "packets", help, passed)?;
    let dropped = ports.iter().flat_map(|port| parts(of_port(port), "reason", &port.dropped));
    let help = "Packets received here and dropped by workers.";
    page.counter("accelerated_port_dropped", "packets", help, dropped)
}

fn of_port(port: &AcceleratedPort) -> Labels {
    labels([("port", &port.name)])
}

const PORT_GAUGES: &[Column<AcceleratedPort>] = &[
    ("accelerated_port_up", "", "1 if the interface is up and has a carrier.", |port| {
        port.link_up.into()
    }),
    ("accelerated_port_ingress", "", "1 if manylane may forward packets received here.", |port| {
        port.ingress.into()
    }),
    ("accelerated_port_egress", "", "1 if manylane may transmit packets here.", |port| {
        port.egress.into()
    }),
    ("accelerated_port_attached", "", "1 if manylane's program is attached.", |port| {
        port.attached.into()
    }),
    ("accelerated_port_queued", "packets", "Packets in workers' rings now.", |port| port.queued),
];

const PORT_COUNTERS: &[Column<AcceleratedPort>] = &[
    (
        "accelerated_port_unseen",
        "seconds",
        "Time without manylane's program: packets that passed then are counted nowhere.",
        |port| port.unseen.total_ms / 1000,
    ),
    ("accelerated_port_seen", "packets", "Packets that the programs saw, on receive.", |port| {
        port.seen
    }),
    (
        "accelerated_port_forwarded",
        "packets",
        "Packets, of those seen, that manylane forwarded.",
        |port| port.forwarded,
    ),
    ("accelerated_port_forwarded", "bytes", "Bytes of forwarded packets.", |port| {
        port.forwarded_bytes
    }),
    (
        "accelerated_port_sent",
        "packets",
        "Packets that manylane transmitted here, from any ingress port.",
        |port| port.sent,
    ),
    ("accelerated_port_sent", "bytes", "Bytes that manylane transmitted here.", |port| {
        port.sent_bytes
    }),
    (
        "accelerated_port_driver_refused",
        "packets",
        "Packets forwarded by the next tier, because the port was leaving the driver tier.",
        |port| port.driver_refused,
    ),
    (
        "accelerated_port_partial_checksums",
        "packets",
        "Packets left to the ingress tier, because their checksum was still to be filled in.",
        |port| port.partial_checksums,
    ),
    (
        "accelerated_port_worker_absent",
        "packets",
        "Packets forwarded by the next tier, because their worker did not run.",
        |port| port.worker_absent,
    ),
    (
        "accelerated_port_device_dropped",
        "packets",
        "Packets, manylane's or the kernel's, that the device dropped on transmit.",
        |port| port.device_dropped,
    ),
    (
        "accelerated_port_queue_dropped",
        "packets",
        "Packets, manylane's or the kernel's, that the queueing discipline dropped.",
        |port| port.queue_dropped,
    ),
];

/// The terms of the sum: seen = forwarded + passed + dropped + queued, forwarded = sent.
fn ledger(source: &dyn Accelerated, page: &mut Page<'_>) -> fmt::Result {
    let ledger = source.ledger();
    for (name, help, number) in [
        ("seen", "Packets that the programs saw, on receive.", ledger.seen),
        ("forwarded", "Packets that manylane forwarded, counted at ingress.", ledger.forwarded),
        ("sent", "Packets that manylane forwarded, counted at egress.", ledger.sent),
        ("device_dropped", "Packets that devices dropped.", ledger.device_dropped),
        ("queue_dropped", "Packets that queueing disciplines dropped.", ledger.queue_dropped),
    ] {
        page.counter(&format!("accelerated_ledger_{name}"), "packets", help, single(number))?;
    }
    for (name, help, by) in [
        ("passed", "Packets that were left to the kernel.", &ledger.passed),
        ("dropped", "Packets that workers dropped.", &ledger.dropped),
    ] {
        let by = parts(Labels::new(), "reason", by);
        page.counter(&format!("accelerated_ledger_{name}"), "packets", help, by)?;
    }
    let help = "Packets in workers' rings now.";
    page.gauge("accelerated_ledger_queued", "packets", help, single(ledger.queued))?;
    let help =
        "Forwarded less sent: any value but 0, when no packets pass, is a fault of manylane.";
    page.gauge("accelerated_ledger_missing", "packets", help, single(ledger.missing))?;
    let help = "Forwarded bytes less sent bytes.";
    page.gauge("accelerated_ledger_missing", "bytes", help, single(ledger.missing_bytes))
}

/// The mirror's metrics; without an answer of its thread, only that it did not answer.
fn mirror(status: Option<MirrorStatus>, page: &mut Page<'_>) -> fmt::Result {
    let help = "1 if the mirror's thread answered this scrape.";
    page.gauge("mirror_answers", "", help, single(u64::from(status.is_some())))?;
    let all: Vec<MirrorStatus> = status.into_iter().collect();
    let none = |_: &MirrorStatus| Labels::new();
    page.counters(MIRROR_COUNTERS, &all, none)?;
    page.gauges(MIRROR_GAUGES, &all, none)?;
    let time = |value: fn(&MirrorStatus) -> f64| {
        all.iter().map(move |status| (Labels::new(), value(status)))
    };
    let waits = || all.iter().flat_map(|status| &status.waits);
    let of = |wait: &WaitStatus| labels([("activity", wait.activity.as_str())]);
    let help =
        "Times that the lease lapsed, by what the mirror's thread did instead of prolonging it.";
    page.counter("mirror_lapses", "", help, waits().map(|wait| (of(wait), wait.lapses)))?;
    let help = "The longest time that the mirror's thread took for one activity at once.";
    let longest = waits().map(|wait| (of(wait), wait.longest_ms as f64 / 1e3));
    page.gauge("mirror_wait_max", "seconds", help, longest)?;
    let help = "Since the tables were last verified to be as the kernel's.";
    page.gauge("mirror_age", "seconds", help, time(|status| status.verified_ms_ago as f64 / 1e3))?;
    let help = "How long the oldest waiting edit has waited.";
    page.gauge("mirror_lag", "seconds", help, time(|status| seconds(status.mirror.lag_ns)))?;
    let help = "The longest that an edit has waited so far.";
    page.gauge(
        "mirror_lag_max",
        "seconds",
        help,
        time(|status| seconds(status.mirror.lag_max_ns)),
    )?;
    let routes = all
        .iter()
        .flat_map(|status| [("ipv4", &status.mirror.ipv4), ("ipv6", &status.mirror.ipv6)]);
    let routes = routes.flat_map(|(family, counts)| {
        kinds(counts).map(|(kind, n)| (labels([("family", family), ("kind", kind)]), n as u64))
    });
    page.gauge("mirror_routes", "", "Routes of the kernel, by kind.", routes)
}

fn kinds(counts: &RouteCounts) -> [(&'static str, usize); 11] {
    [
        ("single_path", counts.single_path),
        ("multipath", counts.multipath),
        ("objects", counts.objects),
        ("local", counts.local),
        ("broadcast", counts.broadcast),
        ("multicast", counts.multicast),
        ("blackhole", counts.blackhole),
        ("unreachable", counts.unreachable),
        ("prohibit", counts.prohibit),
        ("throw", counts.throw),
        ("others", counts.others),
    ]
}

const MIRROR_COUNTERS: &[Column<MirrorStatus>] = &[
    (
        "mirror_overruns",
        "",
        "Times that the mirror lost messages of the kernel and read all tables anew.",
        |is| is.overruns,
    ),
    (
        "mirror_confirmations",
        "",
        "Times that the mirror read all tables anew without a loss, to verify them.",
        |is| is.confirmations,
    ),
    ("mirror_grace_periods", "", "Times that the mirror waited for the programs.", |is| {
        is.grace_periods
    }),
    ("mirror_events", "", "Messages received from the kernel.", |is| is.mirror.events),
    ("mirror_changes", "", "Messages that changed the model.", |is| is.mirror.changes),
    ("mirror_resyncs", "", "Dumps of the kernel that the mirror compared the model with.", |is| {
        is.mirror.resyncs
    }),
    ("mirror_resync_differences", "", "Differences that the comparisons found.", |is| {
        is.mirror.resync_differences
    }),
    ("mirror_edits", "", "Edits of the programs' tables.", |is| is.mirror.edits),
    ("mirror_busy", "", "Times that edits waited for a grace period.", |is| is.mirror.busy),
    ("mirror_overflows", "", "Routes that the model had no room for.", |is| is.mirror.overflows),
];

const MIRROR_GAUGES: &[Column<MirrorStatus>] = &[
    ("mirror_complete", "", "1 if the tables have all routes of the kernel.", |is| {
        is.mirror.is_complete.into()
    }),
    ("mirror_edits_pending", "", "Edits that wait.", |is| is.mirror.pending as u64),
    ("mirror_refused_prefixes", "", "Prefixes that the tables had no room for.", |is| {
        is.mirror.refused as u64
    }),
    (
        "mirror_starved",
        "",
        "Prefixes and next hops that the kernel forwards, for want of ids, slots or groups.",
        |is| is.mirror.starved as u64,
    ),
    ("mirror_neighbours", "", "Neighbours of the kernel.", |is| is.mirror.counts.neighbours as u64),
    ("mirror_neighbours_used", "", "Resolved neighbours in the tables.", |is| {
        is.mirror.counts.resolved as u64
    }),
    ("mirror_next_hops", "", "Next-hop ids in use.", |is| is.mirror.counts.ids as u64),
    ("mirror_groups", "", "Groups of next hops in use.", |is| is.mirror.counts.groups as u64),
];
