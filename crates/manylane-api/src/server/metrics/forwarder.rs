//! The metrics of `manylane run`.

use std::collections::BTreeMap;
use std::fmt;

use super::{Column, Labels, Page, export, labels, parts, seconds, single};
use crate::model::Source;
use crate::{
    ListStatus, PairStatus, PortState, PortStatus, SampleExportStatus, SocketStatus, WorkerStatus,
};

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
    let SampleExportStatus { collectors, sflow } = source.export();
    export::samples(&collectors, sflow.as_ref(), page)?;
    sockets(source, page)
}

fn daemon(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let daemon = source.daemon();
    page.info("build", "The daemon.", [labels([("kind", "run"), ("version", &daemon.version)])])?;
    page.gauge("uptime", "seconds", "Since the daemon started.", single(daemon.uptime_s))?;
    for (name, help, number) in [
        (
            "neighbours_refused",
            "Neighbours that the table had no room for.",
            daemon.neighbours_refused,
        ),
        (
            "neighbours_reclaimed",
            "Neighbours that were removed to make room for others.",
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
    page.info("port", "The driver, interface, mode and state of a port.", info)?;
    page.gauges(PORT_GAUGES, ports, of_port)?;
    page.counters(PORT_COUNTERS, ports, of_port)?;
    let lost = ports.iter().flat_map(|port| {
        let lost = [
            ("ring_full", port.lost_ring_full),
            ("no_buffer", port.lost_no_buffer),
            ("invalid", port.lost_invalid),
            ("closed", port.lost_closed),
            ("transmit", port.lost_transmit),
        ];
        lost.map(|(reason, n)| (labels([("port", &port.name), ("reason", reason)]), n))
    });
    let help =
        "Packets that the device lost: all reasons but transmit before manylane received them.";
    page.counter("port_lost", "packets", help, lost)?;
    let dropped = ports.iter().flat_map(|port| parts(of_port(port), "reason", &port.dropped));
    let help = "Packets received by the port and dropped.";
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
    page.counter("port_faults", "", "Packets with an injected fault.", faults)?;
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
        "Segments that packets were cut into, because the port does not segment.",
        |port| port.segments_cut,
    ),
    (
        "port_checksums_completed",
        "",
        "Packets whose transport checksum manylane computed, because the port does not.",
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
        ("ledger_delivered", "Packets delivered to an own address.", ledger.delivered),
    ] {
        page.counter(name, "packets", help, single(number))?;
    }
    let reasons = |map: &BTreeMap<String, u64>| parts(Labels::new(), "reason", map);
    page.counter(
        "ledger_created",
        "packets",
        "Packets that manylane created.",
        reasons(&ledger.created),
    )?;
    page.counter("ledger_dropped", "packets", "Packets dropped.", reasons(&ledger.dropped))?;
    page.gauge(
        "ledger_held",
        "packets",
        "Packets waiting for a neighbour's answer.",
        single(ledger.held),
    )?;
    let help = "Packets that a port has accepted and not completed yet.";
    page.gauge("ledger_in_flight", "packets", help, single(ledger.in_flight))?;
    let help = "Difference of the sum: any value but 0 in a daemon at rest is a fault of manylane.";
    page.gauge("ledger_missing", "packets", help, single(ledger.missing))
}

fn workers(workers: &[WorkerStatus], page: &mut Page<'_>) -> fmt::Result {
    let of = |worker: &WorkerStatus| labels([("worker", &worker.worker.to_string())]);
    let time = |ns: fn(&WorkerStatus) -> u64| {
        workers.iter().map(move |worker| (of(worker), seconds(ns(worker))))
    };
    let help = "Time in turns of the loop that found work.";
    page.counter("worker_busy", "seconds", help, time(|worker| worker.busy_ns))?;
    let help = "Time in turns that found no work, and asleep.";
    page.counter("worker_idle", "seconds", help, time(|worker| worker.idle_ns))?;
    page.counters(WORKER_COUNTERS, workers, of)?;
    page.gauges(WORKER_GAUGES, workers, of)
}

const WORKER_COUNTERS: &[Column<WorkerStatus>] = &[
    ("worker_turns", "", "Turns of the worker's loop.", |worker| worker.turns),
    ("worker_sleeps", "", "Times the worker slept.", |worker| worker.sleeps),
    ("worker_wakeups", "", "Times another thread woke the worker.", |worker| worker.wakeups),
    (
        "worker_reports_lost",
        "",
        "Reports to the control thread that were lost for want of room.",
        |worker| worker.reports_lost,
    ),
    (
        "worker_orders_lost",
        "",
        "Orders of the control thread that no frame was free for.",
        |worker| worker.orders_lost,
    ),
    ("worker_errors_suppressed", "", "ICMP errors that the rate limit held back.", |worker| {
        worker.errors_suppressed
    }),
    ("worker_received", "packets", "Packets received.", |worker| worker.received),
    ("worker_transmitted", "packets", "Packets transmitted.", |worker| worker.transmitted),
];

const WORKER_GAUGES: &[Column<WorkerStatus>] = &[
    ("worker_running", "", "1 if the worker runs.", |worker| {
        u64::from(worker.state.name() == "running")
    }),
    ("worker_held", "packets", "Packets waiting for a neighbour's answer.", |worker| worker.held),
    ("worker_free_frames", "", "Free frames in the worker's own list.", |worker| {
        worker.frames_in_pool
    }),
];

fn frames(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let frames = source.frames();
    let size = u64::from(frames.frame_size);
    page.gauge("frame_size", "bytes", "Bytes of a frame, headroom included.", single(size))?;
    page.gauge("frames_limit", "", "All frames of the pool.", single(frames.ledger.total))?;
    let holders = frames.ledger.holders.iter();
    let holders = holders.map(|at| (labels([("holder", &at.holder)]), at.frames));
    page.gauge("frames", "", "Frames, by holder.", holders)?;
    let help = "Difference of the sum of frames: any value but 0 in a daemon at rest is a leak.";
    page.gauge("frames_missing", "", help, single(frames.ledger.missing))?;
    let of = |list: &ListStatus| labels([("worker", &list.worker.to_string())]);
    page.counters(LIST_COUNTERS, &frames.lists, of)?;
    page.gauges(LIST_GAUGES, &frames.lists, of)
}

const LIST_COUNTERS: &[Column<ListStatus>] = &[
    ("frame_list_taken", "", "Frames taken from the worker's list.", |list| list.taken),
    ("frame_list_hits", "", "Frames taken that the list had without a refill.", |list| list.hits),
    ("frame_list_refills", "", "Times the worker fetched magazines from the depot.", |list| {
        list.refills
    }),
    ("frame_list_spills", "", "Times the worker returned magazines to the depot.", |list| {
        list.spills
    }),
    ("frame_list_starved", "", "Times the worker had too few frames to receive into.", |list| {
        list.starved
    }),
];

const LIST_GAUGES: &[Column<ListStatus>] = &[
    ("frame_list_level", "", "Frames in the worker's list.", |list| list.level),
    ("frame_list_limit", "", "Most frames in the list.", |list| list.len),
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
    page.gauge("handoff_backlog", "packets", "Packets in the ring now.", backlog)?;
    let limit = u64::from(steering.netdev_max_backlog);
    page.gauge("handoff_backlog_limit", "packets", "Most packets in a ring.", single(limit))?;
    let buckets = steering.ports.iter().flat_map(|port| {
        let mut owned = BTreeMap::<u16, u64>::new();
        port.buckets.iter().for_each(|bucket| *owned.entry(bucket.worker).or_default() += 1);
        owned
            .into_iter()
            .map(|(worker, n)| (labels([("port", &port.port), ("worker", &worker.to_string())]), n))
    });
    page.gauge("steering_buckets", "", "Buckets of flows that a worker owns.", buckets)?;
    for (name, help, number) in [
        ("steering_rebalanced", "Buckets moved by measured load.", steering.rebalanced),
        ("steering_order_checked", "Packets whose order was checked.", steering.reorder_sampled),
        (
            "steering_reordered",
            "Checked packets transmitted after a later packet of their flow: 0, or manylane has an error.",
            steering.reordered,
        ),
    ] {
        page.counter(name, "", help, single(number))?;
    }
    Ok(())
}

const PAIR_COUNTERS: &[Column<PairStatus>] = &[
    ("handoff", "packets", "Packets handed from one worker to another.", |pair| pair.handed),
    ("handoff_batches", "", "Batches handed from one worker to another.", |pair| pair.batches),
    (
        "handoff_waits",
        "",
        "Times that queues began to wait because the ring had no room.",
        |pair| pair.waits,
    ),
];

fn tables(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let routes = source.route_kinds();
    let routes = routes.iter().map(|(kind, n)| (labels([("kind", kind.name())]), *n));
    page.gauge("routes", "", "Routes, by kind.", routes.collect::<Vec<_>>())?;
    let mut neighbours = BTreeMap::<(String, &str), u64>::new();
    for is in source.neighbours() {
        *neighbours.entry((is.port, is.state.name())).or_default() += 1;
    }
    let neighbours = neighbours
        .into_iter()
        .map(|((port, state), n)| (labels([("port", &port), ("state", state)]), n));
    page.gauge("neighbours", "", "Neighbours, by state.", neighbours)?;
    let addresses = source.addresses();
    let conflicts = addresses
        .iter()
        .map(|own| (labels([("port", &own.port), ("address", &own.address)]), own.conflicts));
    let help = "Times another station claimed an own address.";
    page.counter("address_conflicts", "", help, conflicts)?;
    let in_use = addresses.iter().map(|own| {
        (labels([("port", &own.port), ("address", &own.address)]), u64::from(own.in_use))
    });
    page.gauge("address_in_use", "", "1 if manylane uses the address.", in_use)
}

fn sockets(source: &dyn Source, page: &mut Page<'_>) -> fmt::Result {
    let sockets = source.sockets();
    let open = sockets.sockets.len() as u64;
    page.gauge("sockets", "", "Open packet sockets.", single(open))?;
    page.gauge(
        "sockets_limit",
        "",
        "Most packet sockets that may be open.",
        single(u64::from(sockets.max)),
    )?;
    page.gauge(
        "sockets_memory",
        "bytes",
        "Bytes of all packet sockets' rings.",
        single(sockets.memory_bytes),
    )?;
    page.gauge(
        "sockets_memory_limit",
        "bytes",
        "Most bytes that the rings may have.",
        single(sockets.memory_max),
    )?;
    page.counter(
        "sockets_closed_for_time",
        "",
        "Packet sockets that were closed because they took too much of a worker's time.",
        single(sockets.closed_for_time),
    )?;
    let of = |socket: &SocketStatus| labels([("socket", &socket.socket.to_string())]);
    page.counters(SOCKET_COUNTERS, &sockets.sockets, of)?;
    let time = sockets.sockets.iter().map(|socket| (of(socket), seconds(socket.time_ns)));
    page.counter("socket_time", "seconds", "Time that workers have spent on a packet socket.", time)
}

const SOCKET_COUNTERS: &[Column<SocketStatus>] = &[
    ("socket", "packets", "Packets in the ring of a packet socket.", |socket| socket.packets),
    ("socket", "bytes", "Bytes kept of these packets.", |socket| socket.bytes),
    ("socket_lost", "packets", "Packets that the ring had no room for.", |socket| socket.lost),
];
