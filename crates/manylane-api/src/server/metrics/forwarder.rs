//! What `manylane run` counts.

use std::collections::BTreeMap;
use std::fmt;

use super::{Column, Labels, Page, labels, parts, seconds, single};
use crate::model::Source;
use crate::{ListStatus, PairStatus, PortState, PortStatus, SocketStatus, WorkerStatus};

/// Writes all of it.
pub(in crate::server) fn write(
    source: &(dyn Source + 'static),
    page: &mut Page<'_>,
) -> fmt::Result {
    daemon(source, page)?;
    ports(&source.ports(), page)?;
    ledger(source, page)?;
    workers(&source.workers(), page)?;
    frames(source, page)?;
    steering(source, page)?;
    tables(source, page)?;
    sockets(source, page)
}

fn daemon(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let daemon = source.daemon();
    page.info("build", "The daemon.", [labels([("kind", "run"), ("version", &daemon.version)])])?;
    page.gauge("uptime", "seconds", "Since the daemon started.", single(daemon.uptime_s))?;
    for (name, help, number) in [
        (
            "neighbours_refused",
            "Neighbours that found no place in the table.",
            daemon.neighbours_refused,
        ),
        (
            "neighbours_reclaimed",
            "Neighbours that were forgotten to make room for others.",
            daemon.neighbours_reclaimed,
        ),
    ] {
        page.counter(name, "", help, single(number))?;
    }
    page.gauge(
        "neighbours_without_route",
        "",
        "Neighbours that workers do not find, because the FIB had no room for a route to them.",
        single(daemon.neighbours_without_route),
    )
}

fn ports(ports: &[PortStatus], page: &mut Page<'_>) -> fmt::Result {
    let info = ports.iter().map(|port| {
        labels([
            ("port", &port.name),
            ("driver", &port.driver),
            ("interface", port.interface.as_deref().unwrap_or_default()),
            ("mode", port.mode.as_deref().unwrap_or_default()),
            ("state", port.state.name()),
        ])
    });
    page.info("port", "What a port is.", info)?;
    page.gauges(PORT_GAUGES, ports, of_port)?;
    page.counters(PORT_COUNTERS, ports, of_port)?;
    let lost = ports.iter().flat_map(|port| {
        let lost = [
            ("ring_full", port.lost_ring_full),
            ("no_buffer", port.lost_no_buffer),
            ("invalid", port.lost_invalid),
            ("transmit", port.lost_transmit),
        ];
        lost.map(|(reason, n)| (labels([("port", &port.name), ("reason", reason)]), n))
    });
    let help = "Packets that the device lost: all but reason transmit before they were ours.";
    page.counter("port_lost", "packets", help, lost)?;
    let dropped = ports.iter().flat_map(|port| parts(of_port(port), "reason", &port.dropped));
    let help = "Packets that entered by the port and were dropped.";
    page.counter("port_dropped", "packets", help, dropped)?;
    let faults =
        ports.iter().filter_map(|port| Some((port, port.faults?))).flat_map(|(port, is)| {
            let faults = [
                ("dropped", is.dropped),
                ("duplicated", is.duplicated),
                ("corrupted", is.corrupted),
                ("delayed", is.delayed),
                ("reordered", is.reordered),
                ("hold_full", is.hold_full),
                ("no_frame", is.no_frame),
            ];
            faults.map(|(fault, n)| (labels([("port", &port.name), ("fault", fault)]), n))
        });
    page.counter("port_faults", "", "Packets that something was done to on purpose.", faults)?;
    let copies =
        ports.iter().filter_map(|port| Some((port, port.copies?))).flat_map(|(port, is)| {
            let copies = [
                ("copied", is.copied),
                ("no_frame", is.no_frame),
                ("unfit", is.unfit),
                ("refused", is.refused),
            ];
            copies.map(|(outcome, n)| (labels([("port", &port.name), ("outcome", outcome)]), n))
        });
    page.counter("port_copies", "", "Packets that were to be copied to a file.", copies)
}

fn of_port(port: &PortStatus) -> Labels {
    labels([("port", &port.name)])
}

const PORT_GAUGES: &[Column<PortStatus>] = &[
    ("port_up", "", "1 if packets can pass.", |port| {
        u64::from(port.state == PortState::Open && port.link_up)
    }),
    ("port_mtu", "bytes", "Largest IP packet.", |port| port.mtu.into()),
    ("port_queues", "", "Receive queues.", |port| port.queues.into()),
];

const PORT_COUNTERS: &[Column<PortStatus>] = &[
    ("port_received", "packets", "Packets received.", |port| port.received),
    ("port_received", "bytes", "Bytes received, Ethernet headers included.", |port| {
        port.received_bytes
    }),
    ("port_transmitted", "packets", "Packets transmitted by the device.", |port| port.transmitted),
    ("port_transmitted", "bytes", "Bytes transmitted, Ethernet headers included.", |port| {
        port.transmitted_bytes
    }),
    (
        "port_segments_cut",
        "",
        "Segments that packets were cut into, because the port does not.",
        |port| port.segments_cut,
    ),
    (
        "port_checksums_completed",
        "",
        "Packets whose transport checksum was computed, because the port does not.",
        |port| port.checksums_completed,
    ),
    ("port_chains_joined", "", "Packets that were copied into fewer frames.", |port| {
        port.chains_joined
    }),
];

/// The terms of the sum: received + created = transmitted + delivered + dropped + held + in flight.
fn ledger(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let ledger = source.ledger();
    for (name, help, number) in [
        ("ledger_received", "Packets received by ports.", ledger.received),
        ("ledger_transmitted", "Packets transmitted by ports.", ledger.transmitted),
        ("ledger_delivered", "Packets that ended at one of our addresses.", ledger.delivered),
    ] {
        page.counter(name, "packets", help, single(number))?;
    }
    let reasons = |map: &BTreeMap<String, u64>| parts(Labels::new(), "reason", map);
    page.counter(
        "ledger_created",
        "packets",
        "Packets that began here.",
        reasons(&ledger.created),
    )?;
    page.counter("ledger_dropped", "packets", "Packets dropped.", reasons(&ledger.dropped))?;
    page.gauge(
        "ledger_held",
        "packets",
        "Packets waiting for a neighbour's answer.",
        single(ledger.held),
    )?;
    let help = "Packets that a port took to transmit and has not finished with.";
    page.gauge("ledger_in_flight", "packets", help, single(ledger.in_flight))?;
    let help = "What the sum lacks: anything but 0 in a daemon at rest is a fault of manylane.";
    page.gauge("ledger_missing", "packets", help, single(ledger.missing))
}

fn workers(workers: &[WorkerStatus], page: &mut Page<'_>) -> fmt::Result {
    let of = |worker: &WorkerStatus| labels([("worker", &worker.worker.to_string())]);
    let time = |ns: fn(&WorkerStatus) -> u64| {
        workers.iter().map(move |worker| (of(worker), seconds(ns(worker))))
    };
    let help = "Time in turns that found something to do.";
    page.counter("worker_busy", "seconds", help, time(|worker| worker.busy_ns))?;
    let help = "Time in turns that found nothing to do, and asleep.";
    page.counter("worker_idle", "seconds", help, time(|worker| worker.idle_ns))?;
    page.counters(WORKER_COUNTERS, workers, of)?;
    page.gauges(WORKER_GAUGES, workers, of)
}

const WORKER_COUNTERS: &[Column<WorkerStatus>] = &[
    ("worker_turns", "", "Turns of the worker's loop.", |worker| worker.turns),
    ("worker_sleeps", "", "Times it went to sleep.", |worker| worker.sleeps),
    ("worker_wakeups", "", "Times another thread woke it.", |worker| worker.wakeups),
    ("worker_reports_lost", "", "Reports to the control thread that found no place.", |worker| {
        worker.reports_lost
    }),
    ("worker_orders_lost", "", "Orders that nothing could be sent for.", |worker| {
        worker.orders_lost
    }),
    ("worker_errors_suppressed", "", "ICMP errors that the rate limit held back.", |worker| {
        worker.errors_suppressed
    }),
    ("worker_received", "packets", "Packets received.", |worker| worker.received),
    ("worker_transmitted", "packets", "Packets transmitted.", |worker| worker.transmitted),
];

const WORKER_GAUGES: &[Column<WorkerStatus>] = &[
    ("worker_running", "", "1 if it runs.", |worker| u64::from(worker.state.name() == "running")),
    ("worker_held", "packets", "Packets waiting for a neighbour's answer.", |worker| worker.held),
    ("worker_free_frames", "", "Free frames it keeps to itself.", |worker| worker.frames_in_pool),
];

fn frames(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let frames = source.frames();
    let size = u64::from(frames.frame_size);
    page.gauge("frame_size", "bytes", "Bytes of a frame, headroom included.", single(size))?;
    page.gauge("frames_limit", "", "Frames in all.", single(frames.ledger.total))?;
    let holders = frames.ledger.holders.iter();
    let holders = holders.map(|at| (labels([("holder", &at.holder)]), at.frames));
    page.gauge("frames", "", "Frames, by who has them.", holders)?;
    let help = "What the sum of frames lacks: anything but 0 in a daemon at rest is a leak.";
    page.gauge("frames_missing", "", help, single(frames.ledger.missing))?;
    let of = |list: &ListStatus| labels([("worker", &list.worker.to_string())]);
    page.counters(LIST_COUNTERS, &frames.lists, of)?;
    page.gauges(LIST_GAUGES, &frames.lists, of)
}

const LIST_COUNTERS: &[Column<ListStatus>] = &[
    ("frame_list_taken", "", "Frames taken from the worker's list.", |list| list.taken),
    ("frame_list_hits", "", "Of these, frames that lay there when they were wanted.", |list| {
        list.hits
    }),
    ("frame_list_refills", "", "Times it fetched magazines from the depot.", |list| list.refills),
    ("frame_list_spills", "", "Times it brought magazines to the depot.", |list| list.spills),
    ("frame_list_starved", "", "Times there was too little to receive into.", |list| list.starved),
];

const LIST_GAUGES: &[Column<ListStatus>] = &[
    ("frame_list_level", "", "Frames in the worker's list.", |list| list.level),
    ("frame_list_limit", "", "Most frames in it.", |list| list.len),
];

fn steering(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let steering = source.steering();
    let of = |pair: &PairStatus| {
        labels([("from", &pair.from.to_string()), ("to", &pair.to.to_string())])
    };
    page.counters(PAIR_COUNTERS, &steering.pairs, of)?;
    let dropped = steering.pairs.iter().flat_map(|pair| {
        [("backlog_full", pair.backlog_full), ("flow_limit", pair.flow_limit)].map(|(reason, n)| {
            let mut labels = of(pair);
            labels.push(("reason", reason.into()));
            (labels, n)
        })
    });
    let help = "Packets dropped because the ring was full, or half full and their flow large.";
    page.counter("handoff_dropped", "packets", help, dropped)?;
    let backlog = steering.pairs.iter().map(|pair| (of(pair), pair.backlog));
    page.gauge("handoff_backlog", "packets", "Packets that wait in the ring.", backlog)?;
    let limit = u64::from(steering.netdev_max_backlog);
    page.gauge("handoff_backlog_limit", "packets", "Most packets in a ring.", single(limit))?;
    let buckets = steering.ports.iter().flat_map(|port| {
        let mut owned = BTreeMap::<u16, u64>::new();
        port.buckets.iter().for_each(|bucket| *owned.entry(bucket.worker).or_default() += 1);
        owned
            .into_iter()
            .map(|(worker, n)| (labels([("port", &port.port), ("worker", &worker.to_string())]), n))
    });
    page.gauge("steering_buckets", "", "Buckets of flows that a worker has.", buckets)?;
    for (name, help, number) in [
        ("steering_rebalanced", "Buckets moved by measured load.", steering.rebalanced),
        ("steering_order_checked", "Packets whose order was looked at.", steering.reorder_sampled),
        (
            "steering_reordered",
            "Of these, those behind a later one of their flow: 0, or manylane has an error.",
            steering.reordered,
        ),
    ] {
        page.counter(name, "", help, single(number))?;
    }
    Ok(())
}

const PAIR_COUNTERS: &[Column<PairStatus>] = &[
    ("handoff", "packets", "Packets handed from one worker to another.", |pair| pair.handed),
    ("handoff_batches", "", "Batches of them.", |pair| pair.batches),
    ("handoff_waits", "", "Times that queues began to wait since the ring had no room.", |pair| {
        pair.waits
    }),
];

fn tables(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let routes = source.route_kinds();
    let routes = routes.iter().map(|(kind, n)| (labels([("kind", kind.name())]), *n));
    page.gauge("routes", "", "Routes, by what they do.", routes.collect::<Vec<_>>())?;
    let mut neighbours = BTreeMap::<(String, &str), u64>::new();
    for is in source.neighbours() {
        *neighbours.entry((is.port, is.state.name())).or_default() += 1;
    }
    let neighbours = neighbours
        .into_iter()
        .map(|((port, state), n)| (labels([("port", &port), ("state", state)]), n));
    page.gauge("neighbours", "", "Neighbours, by what is known of them.", neighbours)?;
    let addresses = source.addresses();
    let conflicts = addresses
        .iter()
        .map(|own| (labels([("port", &own.port), ("address", &own.address)]), own.conflicts));
    let help = "Times another station laid claim to an address of ours.";
    page.counter("address_conflicts", "", help, conflicts)?;
    let in_use = addresses.iter().map(|own| {
        (labels([("port", &own.port), ("address", &own.address)]), u64::from(own.in_use))
    });
    page.gauge("address_in_use", "", "1 if we answer for it and send from it.", in_use)
}

fn sockets(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let sockets = source.sockets();
    let open = sockets.sockets.len() as u64;
    page.gauge("sockets", "", "Packet sockets that are open.", single(open))?;
    page.gauge("sockets_limit", "", "Most that may be.", single(u64::from(sockets.max)))?;
    page.gauge("sockets_memory", "bytes", "Bytes of all rings.", single(sockets.memory_bytes))?;
    page.gauge(
        "sockets_memory_limit",
        "bytes",
        "Most that they may have.",
        single(sockets.memory_max),
    )?;
    let of = |socket: &SocketStatus| labels([("socket", &socket.socket.to_string())]);
    page.counters(SOCKET_COUNTERS, &sockets.sockets, of)
}

const SOCKET_COUNTERS: &[Column<SocketStatus>] = &[
    ("socket", "packets", "Packets in the ring of a packet socket.", |socket| socket.packets),
    ("socket", "bytes", "What was kept of them.", |socket| socket.bytes),
    ("socket_lost", "packets", "Packets that found no room.", |socket| socket.lost),
];
