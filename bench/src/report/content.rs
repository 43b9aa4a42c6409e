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
    /// How many times as good as `before` the fix, rebuilt, and manylane are: figures of the first bench. Without one, the
    /// medians of the first plot's bars are compared.
    pub gains: [Option<&'static str>; 2],
    /// Whose figures follow in full.
    pub benches: &'static [&'static str],
    pub here: &'static [Bars],
}

const fn before(label: &'static str, figure: &'static str) -> Bar {
    Bar { role: Role::Before, label, of: Of::Figure(figure) }
}

const fn fix(label: &'static str, figure: &'static str) -> Bar {
    Bar { role: Role::Fix, label, of: Of::Figure(figure) }
}

const fn ours(label: &'static str, figure: &'static str) -> Bar {
    Bar { role: Role::Manylane, label, of: Of::Figure(figure) }
}

const fn other(label: &'static str, figure: &'static str) -> Bar {
    Bar { role: Role::Other, label, of: Of::Figure(figure) }
}

/// What the source published.
const fn stated(role: Role, label: &'static str, value: f64) -> Bar {
    Bar { role, label, of: Of::Stated { value, least: value, most: value } }
}

/// A plot in which less is better.
const fn less(
    bench: &'static str,
    title: &'static str,
    unit: &'static str,
    bars: &'static [Bar],
) -> Bars {
    Bars { bench, title, unit, less_is_better: true, logarithmic: false, bars }
}

const fn more(bars: Bars) -> Bars {
    Bars { less_is_better: false, ..bars }
}

const fn logarithmic(bars: Bars) -> Bars {
    Bars { logarithmic: true, ..bars }
}

pub const SECTIONS: [Section; 5] = [
    Section {
        id: "neighbour",
        title: "The header for a neighbour",
        text: "Many cores send to one neighbour. Before, each frame took the neighbour's lock to write and changed a \
            shared count twice; the source's fix keeps such results out of the header cache, and takes the lock to read. \
            manylane reads an immutable header under a grace period: no lock, no shared write.",
        source: less(
            "the source",
            "160 million frames to one neighbour",
            "s",
            &[stated(Role::Before, "before", 148.4), stated(Role::Fix, "the fix", 86.5)],
        ),
        gains: [Some("nocache_gain"), Some("manylane_gain")],
        benches: &["seed/neighbour"],
        here: &[
            less(
                "seed/neighbour",
                "A frame's header, two cores",
                "ns",
                &[
                    before("before", "before_ns"),
                    fix("the fix, rebuilt", "nocache_ns"),
                    ours("manylane", "manylane_ns"),
                ],
            ),
            less(
                "seed/neighbour",
                "The whole forwarding path, two cores",
                "ns",
                &[
                    before("before", "forward_before_ns"),
                    fix("the fix, rebuilt", "forward_nocache_ns"),
                    ours("manylane", "forward_manylane_ns"),
                ],
            ),
            less(
                "seed/neighbour",
                "The source's run: so many frames by two cores",
                "s",
                &[
                    before("before", "run_before_wall_s"),
                    fix("the fix, rebuilt", "run_nocache_wall_s"),
                    ours("manylane", "run_manylane_wall_s"),
                ],
            ),
        ],
    },
    Section {
        id: "references",
        title: "Reference counts, and grace periods",
        text: "Many cores hold one object. Before, a reference was taken by compare-and-swap, in a loop, beside fields \
            that all read; the source's fix adds without a loop, on a line of its own. manylane counts nothing within a \
            turn, which is a grace period's reader, and offers counts by one addition for longer holds, with grace \
            periods (rcuref) and without (debt).",
        source: more(less(
            "the source",
            "Gain of the fix, by machine and load",
            "x",
            &[
                stated(Role::Before, "before", 1.0),
                Bar {
                    role: Role::Fix,
                    label: "the fix",
                    of: Of::Stated { value: 4.7, least: 1.2, most: 4.7 },
                },
            ],
        )),
        gains: [Some("gain_contended"), Some("gain_debt_contended")],
        benches: &["seed/refcount", "seed/rcu"],
        here: &[
            less(
                "seed/refcount",
                "Take a reference and give it back, two cores",
                "ns",
                &[
                    before("before: compare-and-swap", "cas_ns_contended"),
                    before("std: Weak::upgrade", "arc_upgrade_ns_contended"),
                    fix("the fix: rcuref", "rcuref_ns_contended"),
                    ours("manylane: debt", "debt_ns_contended"),
                    ours("manylane: WeakShared", "weakshared_upgrade_ns_contended"),
                    other("the floor: add, subtract", "fetch_add_pair_ns_contended"),
                ],
            ),
            less(
                "seed/refcount",
                "A received frame with all that, two cores",
                "ns",
                &[
                    before("before: one line", "e2e_cas_shared_ns"),
                    fix("the fix: rcuref", "e2e_rcuref_ns"),
                    ours("manylane: no count", "e2e_guard_ns"),
                ],
            ),
            less(
                "seed/rcu",
                "Grace periods: a reader's part; an object replaced",
                "ns",
                &[
                    other("crossbeam-epoch: pin", "epoch_pin_ns"),
                    ours("manylane: quiescent", "quiescent_ns"),
                    other("crossbeam-epoch: defer", "epoch_defer_flush_ns_r1"),
                    ours("manylane: retire", "retire_box_ns_r1"),
                ],
            ),
            logarithmic(less(
                "seed/rcu",
                "Grace periods: most objects that wait",
                "count",
                &[
                    other("crossbeam-epoch", "epoch_garbage_max"),
                    other("the same, with flush", "epoch_garbage_max_flushed"),
                    ours("manylane: bounded", "limbo_waiting_max"),
                ],
            )),
        ],
    },
    Section {
        id: "handoff",
        title: "Received on one core, forwarded on another",
        text: "One receive queue, two cores. Before, the receiving core forwards; the source splices whole lists of packets to \
            the other core's queue, one lock and one wake-up for each. manylane has a ring for each pair of workers, no \
            lock, keeps a share of the flows where they came in, and no flow is reordered.",
        source: more(less(
            "the source",
            "Throughput",
            "x",
            &[stated(Role::Before, "before", 1.0), stated(Role::Fix, "the fix", 1.43)],
        )),
        gains: [Some("spliced_gain_heavy"), Some("gain_heavy")],
        benches: &["seed/handoff"],
        here: &[
            more(less(
                "seed/handoff",
                "Dear forwarding: 300 ns more for each frame",
                "Mpps",
                &[
                    before("before: one core", "one_core_mpps_heavy"),
                    fix("the fix, rebuilt", "spliced_mpps_heavy"),
                    fix("the fix, by our flows", "spliced_by_flow_mpps_heavy"),
                    ours("manylane", "handoff_mpps_heavy"),
                    other("ideal: a queue for each", "ideal_mpps_heavy"),
                ],
            )),
            more(less(
                "seed/handoff",
                "Cheap forwarding: between ports in memory",
                "Mpps",
                &[
                    before("before: one core", "one_core_mpps"),
                    fix("the fix, rebuilt", "spliced_mpps"),
                    fix("the fix, by our flows", "spliced_by_flow_mpps"),
                    ours("manylane", "handoff_mpps"),
                    other("ideal: a queue for each", "ideal_mpps"),
                ],
            )),
            more(less(
                "seed/handoff",
                "Between veth devices, beside the kernel (as root)",
                "Mpps",
                &[
                    fix("the kernel, with RPS", "veth_kernel_rps_mpps"),
                    other("the kernel, threaded NAPI", "veth_kernel_threaded_mpps"),
                    before("manylane, one worker", "veth_one_worker_mpps"),
                    ours("manylane, handed off", "veth_handoff_mpps"),
                ],
            )),
        ],
    },
    Section {
        id: "sockets",
        title: "Packet sockets, opened, bound, closed",
        text: "Before, each bind took the hook out, waited for a grace period and put it in again. The source's fix does \
            nothing where nothing changes, and opens with protocol 0, so that nothing has to be taken out; Linux 6.18 still \
            waits 7984 us where the protocol comes first, and 16 ms to close. manylane never waits: a generation in what \
            is delivered says which binding it is of.",
        source: logarithmic(less(
            "the source",
            "Open and bind",
            "us",
            &[
                stated(Role::Before, "before", 7447.0),
                stated(Role::Fix, "the fix", 89.0),
                stated(Role::Other, "Linux 6.18, bind", 7984.0),
                stated(Role::Other, "Linux 6.18, close", 16_000.0),
            ],
        )),
        gains: [None, Some("gain_bind2_load")],
        benches: &["seed/socket"],
        here: &[
            logarithmic(less(
                "seed/socket",
                "Open, then bind to a device, while workers forward",
                "us",
                &[
                    other("this kernel", "kernel_bind2_us_load"),
                    before("before: protocol first", "before_bind2_us_load"),
                    fix("the fix: protocol 0 first", "source_bind3_us_load"),
                    ours("manylane: protocol first", "bind2_us_load"),
                    ours("another process", "remote_small_bind2_us_load"),
                ],
            )),
            logarithmic(less(
                "seed/socket",
                "Bind to another device, while workers forward",
                "us",
                &[
                    other("this kernel", "kernel_rebind_us_load"),
                    before("before", "before_rebind_us_load"),
                    fix("the fix, rebuilt", "source_rebind_us_load"),
                    ours("manylane", "rebind_us_load"),
                    ours("another process", "remote_small_rebind_us_load"),
                ],
            )),
            logarithmic(less(
                "seed/socket",
                "Close, while workers forward",
                "us",
                &[
                    other("this kernel", "kernel_close_us_load"),
                    before("before", "before_close_us_load"),
                    fix("the fix, rebuilt", "source_close_us_load"),
                    ours("manylane", "close_us_load"),
                    ours("another process", "remote_small_close_us_load"),
                ],
            )),
        ],
    },
    Section {
        id: "frames",
        title: "Packet memory",
        text: "Before, the allocator was called for head and data of each packet. The source's fix keeps 1024 heads in a \
            list and gives data one size. manylane has one region of frames, a list for each worker, and a depot of whole \
            magazines between them: no allocator.",
        source: less(
            "the source",
            "The system's share of CPU time",
            "%",
            &[stated(Role::Before, "before", 32.8), stated(Role::Fix, "the fix", 27.5)],
        ),
        gains: [Some("hotlist_forward_gain_64"), Some("forward_gain_64")],
        benches: &["seed/frame"],
        here: &[
            less(
                "seed/frame",
                "CPU time of a forwarded frame of 64 bytes",
                "ns",
                &[
                    before("before", "forward_before_cpu_ns_64"),
                    fix("the fix, rebuilt", "forward_hotlist1024_cpu_ns_64"),
                    ours("manylane", "forward_manylane_cpu_ns_64"),
                ],
            ),
            less(
                "seed/frame",
                "Take, fill in, give back: one core",
                "ns",
                &[
                    before("before: glibc", "before_ns"),
                    fix("the fix, rebuilt", "hotlist1024_ns"),
                    other("snmalloc", "snmalloc_ns"),
                    other("mimalloc", "mimalloc_ns"),
                    ours("manylane", "manylane_ns"),
                ],
            ),
            logarithmic(less(
                "seed/frame",
                "Given back on the other core",
                "ns",
                &[
                    before("before: glibc", "before_cross_ns"),
                    fix("the fix, rebuilt", "hotlist1024_cross_ns"),
                    other("snmalloc", "snmalloc_cross_ns"),
                    other("mimalloc", "mimalloc_cross_ns"),
                    ours("manylane", "manylane_cross_ns"),
                ],
            )),
        ],
    },
];

/// What `scale` models, as figures before the number of workers.
pub const MODEL: [(Role, &str, &str); 3] = [
    (Role::Before, "before: compare-and-swap", "model_lockstep_cas_ns"),
    (Role::Fix, "the fix: rcuref; manylane: debt", "model_lockstep_rcuref_ns"),
    (Role::Manylane, "manylane: no count", "model_guard_ns"),
];
