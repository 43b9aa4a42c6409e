//! Keys of the whole daemon, of routes and of neighbours.

use super::Kind::{Number, Numbers, Text, Texts, Truth, Word};
use super::{Key, THE_FILE, Table, key, table};

pub(super) const TABLES: &[Table] = &[
    Table { header: THE_FILE, keys: FILE },
    Table { header: "[workers]", keys: WORKERS },
    Table { header: "[frames]", keys: FRAMES },
    Table { header: "[steering]", keys: STEERING },
    Table { header: "[icmp]", keys: ICMP },
    Table { header: "[neighbour]", keys: NEIGHBOUR },
    Table { header: "[[neighbour.static]]", keys: STATIC },
    Table { header: "[sockets]", keys: SOCKETS },
    Table { header: "[sflow]", keys: SFLOW },
    Table { header: "[api]", keys: API },
    Table { header: "[[route]]", keys: ROUTE },
];

#[rustfmt::skip]
const FILE: &[Key] = &[
    table("workers", "[workers]", "The forwarding threads."),
    table("frames", "[frames]", "The frame pool."),
    table("steering", "[steering]", "How workers hand packets on to each other."),
    table("icmp", "[icmp]", "Limits of ICMP errors."),
    table("neighbour", "[neighbour]", "The neighbour table."),
    table("sockets", "[sockets]", "Bounds of packet sockets and captures."),
    table("sflow", "[sflow]", "Samples of packets, for sFlow collectors."),
    table("api", "[api]", "Where the daemon answers."),
    table("port", "[[port]]", "Where frames enter and leave; at least one."),
    table("route", "[[route]]", "Static routes."),
];

#[rustfmt::skip]
const WORKERS: &[Key] = &[
    key("count", Number(1, 128, ""), "one fewer than the cores", "1",
        "How many workers forward from the start.")
        .live("config set workers N"),
    key("max", Number(1, 128, ""), "as many as `count`", "2",
        "How many workers may run at most."),
    key("cores", Numbers(0, 65_535, ""), "the last cores that the process may use", "[1]",
        "Where each worker is pinned."),
    key("idle_spin_us", Number(0, 1_000_000, "microseconds"), "50", "50",
        "How long an idle worker spins before it sleeps."),
];

#[rustfmt::skip]
const FRAMES: &[Key] = &[
    key("size", Number(2048, 4096, "bytes, one of the two"), "2048", "4096",
        "Bytes of a frame, headroom included: larger ones need fewer for a large packet."),
    key("count", Number(1024, 4_194_304, "frames"), "what ports and workers can hold, added up", "26816",
        "Frames in all; with fewer than the default, rings are shorter."),
    key("hot_list_len", Number(128, 8192, "frames"), "1024", "1024",
        "Free frames that a worker keeps to itself.")
        .live("config set frames.hot_list_len N"),
    key("spare_queues", Number(0, 64, "queues"), "1", "1",
        "Receive queues to come that the default of `count` suffices for."),
];

#[rustfmt::skip]
const STEERING: &[Key] = &[
    key("netdev_max_backlog", Number(64, 32_768, "packets"), "1000", "1000",
        "Packets that wait in the ring from one worker to another.")
        .live("config set steering.netdev_max_backlog N"),
    key("netdev_budget", Number(1, 65_536, "packets"), "300", "300",
        "Packets that a worker takes in a turn.")
        .live("config set steering.netdev_budget N"),
    key("dev_weight", Number(1, 64, "packets"), "64", "64",
        "Packets that a worker takes from one queue or ring at a time.")
        .live("config set steering.dev_weight N"),
    key("rebalance", Truth, "false", "true",
        "Whether buckets of flows are moved from busy workers to idle ones.")
        .live("config set steering.rebalance true"),
    key("receivers", Numbers(0, 65_535, "workers"), "[]", "[0]",
        "Workers with rings to the others, besides owners of queues that are steered by flow."),
];

#[rustfmt::skip]
const ICMP: &[Key] = &[
    key("errors_per_second", Number(0, 1_000_000, "errors"), "1000", "1000",
        "ICMP errors a second that one worker may send, and as many again about packets that are too big."),
    key("errors_burst", Number(1, 10_000, "errors"), "50", "50",
        "ICMP errors that one worker may send at once after a silence, and as many again about packets that are too big."),
    key("redirects", Truth, "false", "true",
        "Whether senders on the router's link are sent redirects to a better next hop."),
];

#[rustfmt::skip]
const NEIGHBOUR: &[Key] = &[
    key("entries_max", Number(16, 30_000, "neighbours"), "8192", "8192",
        "Neighbours in all."),
    key("hold_per_entry", Number(1, 65_536, "packets"), "101", "101",
        "Packets that wait for one neighbour's answer, per worker; at most `hold_per_worker`."),
    key("hold_per_worker", Number(1, 65_536, "packets"), "1024", "1024",
        "Packets that wait for any neighbour, per worker."),
    key("duplicate_detection", Word(&["optimistic", "strict", "off"]), "\"optimistic\"", "\"strict\"",
        "Whether our addresses are probed: `optimistic` uses them meanwhile and keeps an IPv4 address that another station claims, `strict` does neither."),
    key("base_reachable_time_ms", Number(1000, 3_600_000, "milliseconds"), "30000", "30000",
        "How long an answer proves that a neighbour is there: 0.5 to 1.5 times this, by chance."),
    key("retrans_time_ms", Number(100, 60_000, "milliseconds"), "1000", "1000",
        "How long the router waits for an answer before it sends another question, or gives up."),
    key("delay_first_probe_time", Number(1, 300, "seconds"), "5", "5",
        "How long a neighbour in use that is not proven any more may show by itself that it is there."),
    key("mcast_solicit", Number(1, 100, "questions"), "3", "3",
        "Questions to all stations before an unknown neighbour is given up."),
    key("ucast_solicit", Number(1, 100, "questions"), "3", "3",
        "Questions to a known neighbour before it is given up."),
    key("gc_stale_time", Number(1, 86_400, "seconds"), "60", "60",
        "How long a neighbour that does not answer, and that no packet needs, stays in the table."),
    table("static", "[[neighbour.static]]", "Neighbours that are never solicited and never forgotten."),
];

#[rustfmt::skip]
const STATIC: &[Key] = &[
    key("port", Text("a port or sub-interface"), "", "\"lan\"",
        "What the neighbour is behind.")
        .live("neighbour add PORT ADDRESS MAC"),
    key("address", Text("an IP address, without a length"), "", "\"10.1.0.2\"",
        "The neighbour's address.")
        .live("neighbour add PORT ADDRESS MAC"),
    key("mac", Text("six pairs of hexadecimal digits"), "", "\"02:00:00:00:00:02\"",
        "The neighbour's link-layer address.")
        .live("neighbour add PORT ADDRESS MAC"),
];

#[rustfmt::skip]
const SOCKETS: &[Key] = &[
    key("max", Number(1, 65_536, "sockets"), "1024", "1024",
        "Packet sockets and captures in all."),
    key("per_user_max", Number(1, 65_536, "sockets"), "64", "64",
        "Those of one user of other processes, but root."),
    key("memory_max", Number(1 << 20, 1 << 40, "bytes"),
        "a sixteenth of the machine's memory, at least 67108864", "1073741824",
        "Memory of all their rings."),
    key("per_user_memory_max", Number(1 << 20, 1 << 40, "bytes"), "half of `memory_max`", "268435456",
        "Memory of the rings of one user of other processes, but root."),
    key("filter_max", Number(1, 16_777_216, "instructions"), "16384", "16384",
        "Filters of all sockets of other processes, each counted at each of its points."),
    key("per_user_filter_max", Number(1, 16_777_216, "instructions"), "4096", "8192",
        "Those of one user, but root."),
    key("time_max", Number(1, 100, "percent"), "50", "20",
        "A worker's time that sockets of users but root may take; beyond it the costliest are closed. 100: no bound."),
    key("send", Truth, "false", "true",
        "Whether sockets of other processes may send packets."),
];

#[rustfmt::skip]
const SFLOW: &[Key] = &[
    key("collectors", Texts("hosts, each with or without a port"), "",
        "[\"192.0.2.5\", \"[2001:db8::5]:6343\"]",
        "Where samples go, by UDP; the port is 6343 without another."),
    key("rate", Number(1, 16_777_216, "packets"), "1000", "1000",
        "One received packet in as many is a sample.")
        .live("config set port.PORT.sflow_rate N"),
    key("polling", Number(1, 3600, "seconds"), "20", "20",
        "How often the counters of ports are sent."),
    key("agent", Text("an IP address"), "that by which the router reaches the first collector", "\"192.0.2.1\"",
        "The router's address, as collectors know it."),
];

#[rustfmt::skip]
const API: &[Key] = &[
    key("socket", Text("a path from the root, at most 99 bytes"), "\"/run/manylane/manylane.sock\"",
        "\"/run/manylane/manylane.sock\"",
        "Where the daemon answers; captures are beside it."),
    key("listen", Text("an IP address and a port"), "none", "\"127.0.0.1:9176\"",
        "Where it answers by TCP too; elsewhere than on this host only with `token_file`."),
    key("token_file", Text("a path"), "none", "\"/etc/manylane/token\"",
        "A file with the token that requests by TCP have to have."),
    key("host_name", Text("a host's name"), "none", "\"router1.example.net\"",
        "A name of this host, that requests by TCP may name."),
];

#[rustfmt::skip]
const ROUTE: &[Key] = &[
    key("prefix", Text("a network and its length"), "", "\"2001:db8:9::/48\"",
        "The destinations. No two routes share a prefix."),
    key("via", Text("a router's address, or a list of them; ADDRESS%PORT says its port"), "none",
        "\"10.1.0.1\"",
        "The next hop, or several: each flow takes one of them."),
    key("weights", Numbers(1, 256, ""), "equal ones", "[3, 1]",
        "Parts of the flows, one for each next hop of a list."),
    key("port", Text("a port or sub-interface"), "the one whose network has `via`", "\"lan\"",
        "What the route leaves by; alone, its destinations are on the link itself."),
    key("type", Word(&["blackhole", "unreachable", "prohibit"]), "none: forwarded", "\"blackhole\"",
        "Drops the packets: in silence, or with one of two ICMP errors."),
];
