//! What the report shows of each mechanism.

use super::plot::{Bar, Bars, Of, Role};

/// A mechanism.
pub struct Section {
    /// For links.
    pub id: &'static str,
    pub title: &'static str,
    /// What it is about, and what the source found and did.
    pub text: &'static str,
    /// The source's own figures, from its machine.
    pub source: Bars,
    /// How many times `before` the fix, rebuilt, and manylane do: figures of the first bench. Without one, the
    /// medians of the first plot's bars are compared.
    pub gains: [Option<&'static str>; 2],
    /// Whose figures follow in full.
    pub benches: &'static [&'static str],
    pub here: &'static [Bars],
}

use Role::{Before, Fix, Manylane, Other};

const fn bar(role: Role, label: &'static str, figure: &'static str) -> Bar {
    Bar { role, label, of: Of::Figure(figure) }
}

const fn stated(role: Role, label: &'static str, value: f64) -> Bar {
    Bar { role, label, of: Of::Stated { value, least: value, most: value } }
}

pub const SECTIONS: [Section; 5] = [
    Section {
        id: "neighbour",
        title: "The way out to a neighbour",
        text: "Many cores send to one neighbour. Before, each frame took the neighbour's lock to write and changed a \
            shared count twice; the source's fix keeps such results out of the header cache, and takes the lock to read. \
            manylane reads an immutable header under a grace period: no lock, no shared write.",
        source: Bars {
            bench: "the source",
            title: "160 million frames to one neighbour",
            unit: "s",
            less_is_better: true,
            logarithmic: false,
            bars: &[stated(Before, "before", 148.4), stated(Fix, "the fix", 86.5)],
        },
        gains: [Some("nocache_gain"), Some("manylane_gain")],
        benches: &["seed/neighbour"],
        here: &[
            Bars {
                bench: "seed/neighbour",
                title: "A frame's header, two cores",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before", "before_ns"),
                    bar(Fix, "the fix, rebuilt", "nocache_ns"),
                    bar(Manylane, "manylane", "manylane_ns"),
                ],
            },
            Bars {
                bench: "seed/neighbour",
                title: "The whole forwarding path, two cores",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before", "forward_before_ns"),
                    bar(Fix, "the fix, rebuilt", "forward_nocache_ns"),
                    bar(Manylane, "manylane", "forward_manylane_ns"),
                ],
            },
            Bars {
                bench: "seed/neighbour",
                title: "The source's run: so many frames by two cores",
                unit: "s",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before", "run_before_wall_s"),
                    bar(Fix, "the fix, rebuilt", "run_nocache_wall_s"),
                    bar(Manylane, "manylane", "run_manylane_wall_s"),
                ],
            },
        ],
    },
    Section {
        id: "references",
        title: "Reference counts, and grace periods",
        text: "Many cores hold one object. Before, a reference was taken by compare-and-swap, in a loop, beside fields \
            that all read; the source's fix adds without a loop, on a line of its own. manylane counts nothing within a \
            turn, which is a grace period's reader, and offers counts by one addition to whoever holds longer, with grace \
            periods (rcuref) and without (debt).",
        source: Bars {
            bench: "the source",
            title: "Gain of the fix, by machine and load",
            unit: "x",
            less_is_better: false,
            logarithmic: false,
            bars: &[
                stated(Before, "before", 1.0),
                Bar {
                    role: Fix,
                    label: "the fix",
                    of: Of::Stated { value: 4.7, least: 1.2, most: 4.7 },
                },
            ],
        },
        gains: [Some("gain_contended"), Some("gain_debt_contended")],
        benches: &["seed/refcount", "seed/rcu"],
        here: &[
            Bars {
                bench: "seed/refcount",
                title: "Take a reference and give it back, two cores",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before: compare-and-swap", "cas_ns_contended"),
                    bar(Before, "std: Weak::upgrade", "arc_upgrade_ns_contended"),
                    bar(Fix, "the fix: rcuref", "rcuref_ns_contended"),
                    bar(Manylane, "manylane: debt", "debt_ns_contended"),
                    bar(Manylane, "manylane: WeakShared", "weakshared_upgrade_ns_contended"),
                    bar(Other, "the floor: add, subtract", "fetch_add_pair_ns_contended"),
                ],
            },
            Bars {
                bench: "seed/refcount",
                title: "A received frame with all that, two cores",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before: one line", "e2e_cas_shared_ns"),
                    bar(Fix, "the fix: rcuref", "e2e_rcuref_ns"),
                    bar(Manylane, "manylane: no count", "e2e_guard_ns"),
                ],
            },
            Bars {
                bench: "seed/rcu",
                title: "Grace periods: a reader's part; an object replaced",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Other, "crossbeam-epoch: pin", "epoch_pin_ns"),
                    bar(Manylane, "manylane: quiescent", "quiescent_ns"),
                    bar(Other, "crossbeam-epoch: defer", "epoch_defer_flush_ns_r1"),
                    bar(Manylane, "manylane: retire", "retire_box_ns_r1"),
                ],
            },
            Bars {
                bench: "seed/rcu",
                title: "Grace periods: most objects that wait",
                unit: "count",
                less_is_better: true,
                logarithmic: true,
                bars: &[
                    bar(Other, "crossbeam-epoch", "epoch_garbage_max"),
                    bar(Other, "the same, with flush", "epoch_garbage_max_flushed"),
                    bar(Manylane, "manylane: bounded", "limbo_waiting_max"),
                ],
            },
        ],
    },
    Section {
        id: "handoff",
        title: "Received on one core, forwarded on another",
        text: "One receive queue, two cores. Before, who receives forwards; the source splices whole lists of packets to \
            the other core's queue, one lock and one wake-up for each. manylane has a ring for each pair of workers, no \
            lock, keeps a share of the flows where they came in, and no flow is reordered.",
        source: Bars {
            bench: "the source",
            title: "Throughput",
            unit: "x",
            less_is_better: false,
            logarithmic: false,
            bars: &[stated(Before, "before", 1.0), stated(Fix, "the fix", 1.43)],
        },
        gains: [Some("spliced_gain_heavy"), Some("gain_heavy")],
        benches: &["seed/handoff"],
        here: &[
            Bars {
                bench: "seed/handoff",
                title: "Dear forwarding: 300 ns more for each frame",
                unit: "Mpps",
                less_is_better: false,
                logarithmic: false,
                bars: &[
                    bar(Before, "before: one core", "one_core_mpps_heavy"),
                    bar(Fix, "the fix, rebuilt", "spliced_mpps_heavy"),
                    bar(Fix, "the fix, by our flows", "spliced_by_flow_mpps_heavy"),
                    bar(Manylane, "manylane", "handoff_mpps_heavy"),
                    bar(Other, "ideal: a queue for each", "ideal_mpps_heavy"),
                ],
            },
            Bars {
                bench: "seed/handoff",
                title: "Cheap forwarding: between ports in memory",
                unit: "Mpps",
                less_is_better: false,
                logarithmic: false,
                bars: &[
                    bar(Before, "before: one core", "one_core_mpps"),
                    bar(Fix, "the fix, rebuilt", "spliced_mpps"),
                    bar(Fix, "the fix, by our flows", "spliced_by_flow_mpps"),
                    bar(Manylane, "manylane", "handoff_mpps"),
                    bar(Other, "ideal: a queue for each", "ideal_mpps"),
                ],
            },
            Bars {
                bench: "seed/handoff",
                title: "Between veth devices, beside the kernel (as root)",
                unit: "Mpps",
                less_is_better: false,
                logarithmic: false,
                bars: &[
                    bar(Fix, "the kernel, with RPS", "veth_kernel_rps_mpps"),
                    bar(Other, "the kernel, threaded NAPI", "veth_kernel_threaded_mpps"),
                    bar(Before, "manylane, one worker", "veth_one_worker_mpps"),
                    bar(Manylane, "manylane, handed off", "veth_handoff_mpps"),
                ],
            },
        ],
    },
    Section {
        id: "sockets",
        title: "Packet sockets, opened, bound, closed",
        text: "Before, each bind took the hook out, waited for a grace period and put it in again. The source's fix does \
            nothing where nothing changes, and opens with protocol 0, so that nothing has to be taken out; Linux 6.18 still \
            waits 7984 us where the protocol comes first, and 16 ms to close. manylane never waits: a generation in what \
            is delivered says which binding it is of.",
        source: Bars {
            bench: "the source",
            title: "Open and bind",
            unit: "us",
            less_is_better: true,
            logarithmic: true,
            bars: &[
                stated(Before, "before", 7447.0),
                stated(Fix, "the fix", 89.0),
                stated(Other, "Linux 6.18, bind", 7984.0),
                stated(Other, "Linux 6.18, close", 16_000.0),
            ],
        },
        gains: [None, Some("gain_bind2_load")],
        benches: &["seed/socket"],
        here: &[
            Bars {
                bench: "seed/socket",
                title: "Open, then bind to a device, while workers forward",
                unit: "us",
                less_is_better: true,
                logarithmic: true,
                bars: &[
                    bar(Other, "this kernel", "kernel_bind2_us_load"),
                    bar(Before, "before: protocol first", "before_bind2_us_load"),
                    bar(Fix, "the fix: protocol 0 first", "source_bind3_us_load"),
                    bar(Manylane, "manylane: protocol first", "bind2_us_load"),
                    bar(Manylane, "another process", "remote_small_bind2_us_load"),
                ],
            },
            Bars {
                bench: "seed/socket",
                title: "Bind to another device, while workers forward",
                unit: "us",
                less_is_better: true,
                logarithmic: true,
                bars: &[
                    bar(Other, "this kernel", "kernel_rebind_us_load"),
                    bar(Before, "before", "before_rebind_us_load"),
                    bar(Fix, "the fix, rebuilt", "source_rebind_us_load"),
                    bar(Manylane, "manylane", "rebind_us_load"),
                    bar(Manylane, "another process", "remote_small_rebind_us_load"),
                ],
            },
            Bars {
                bench: "seed/socket",
                title: "Close, while workers forward",
                unit: "us",
                less_is_better: true,
                logarithmic: true,
                bars: &[
                    bar(Other, "this kernel", "kernel_close_us_load"),
                    bar(Before, "before", "before_close_us_load"),
                    bar(Fix, "the fix, rebuilt", "source_close_us_load"),
                    bar(Manylane, "manylane", "close_us_load"),
                    bar(Manylane, "another process", "remote_small_close_us_load"),
                ],
            },
        ],
    },
    Section {
        id: "frames",
        title: "Packet memory",
        text: "Before, the allocator was called for head and data of each packet. The source's fix keeps 1024 heads in a \
            list and gives data one size. manylane has one region of frames, a list for each worker, and a depot of whole \
            magazines between them: no allocator.",
        source: Bars {
            bench: "the source",
            title: "The system's share of CPU time",
            unit: "%",
            less_is_better: true,
            logarithmic: false,
            bars: &[stated(Before, "before", 32.8), stated(Fix, "the fix", 27.5)],
        },
        gains: [Some("hotlist_forward_gain_64"), Some("forward_gain_64")],
        benches: &["seed/frame"],
        here: &[
            Bars {
                bench: "seed/frame",
                title: "CPU time of a forwarded frame of 64 bytes",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before", "forward_before_cpu_ns_64"),
                    bar(Fix, "the fix, rebuilt", "forward_hotlist1024_cpu_ns_64"),
                    bar(Manylane, "manylane", "forward_manylane_cpu_ns_64"),
                ],
            },
            Bars {
                bench: "seed/frame",
                title: "Take, fill in, give back: one core",
                unit: "ns",
                less_is_better: true,
                logarithmic: false,
                bars: &[
                    bar(Before, "before: glibc", "before_ns"),
                    bar(Fix, "the fix, rebuilt", "hotlist1024_ns"),
                    bar(Other, "snmalloc", "snmalloc_ns"),
                    bar(Other, "mimalloc", "mimalloc_ns"),
                    bar(Manylane, "manylane", "manylane_ns"),
                ],
            },
            Bars {
                bench: "seed/frame",
                title: "Given back on the other core",
                unit: "ns",
                less_is_better: true,
                logarithmic: true,
                bars: &[
                    bar(Before, "before: glibc", "before_cross_ns"),
                    bar(Fix, "the fix, rebuilt", "hotlist1024_cross_ns"),
                    bar(Other, "snmalloc", "snmalloc_cross_ns"),
                    bar(Other, "mimalloc", "mimalloc_cross_ns"),
                    bar(Manylane, "manylane", "manylane_cross_ns"),
                ],
            },
        ],
    },
];

/// What `scale` models, as figures before the number of workers.
pub const MODEL: [(Role, &str, &str); 3] = [
    (Before, "before: compare-and-swap", "model_lockstep_cas_ns"),
    (Fix, "the fix: rcuref; manylane: debt", "model_lockstep_rcuref_ns"),
    (Manylane, "manylane: no count", "model_guard_ns"),
];
