//! Keys of ports, and of what is in them and around them.

use super::Kind::{Likelihood, Number, Numbers, Text, Texts, Truth, Word};
use super::{Key, Table, key, table};

pub(super) const TABLES: &[Table] = &[
    Table { header: "[[port]]", keys: PORT },
    Table { header: "[[port.vlan]]", keys: VLAN },
    Table { header: "[port.generate]", keys: GENERATE },
    Table { header: "[port.tee]", keys: TEE },
    Table { header: "[port.fault]", keys: FAULT },
    Table { header: "[port.fault.receive]", keys: FAULTS },
    Table { header: "[port.fault.transmit]", keys: FAULTS },
];

#[rustfmt::skip]
const PORT: &[Key] = &[
    key("name", Text("1 to 15 letters, digits, `-`, `_` or `.`"), "", "\"lan\"",
        "Its name in routes, counters and messages; no other port has it."),
    key("driver", Word(&["auto", "af_xdp", "af_packet", "tap", "pcap", "memory"]), "", "\"auto\"",
        "What the port is made of; \"auto\" decides by what the interface is."),
    key("interface", Text("a kernel interface"), "", "\"eth0\"",
        "The interface of an \"auto\", \"af_xdp\", \"af_packet\" or \"tap\" port."),
    key("addresses", Texts("addresses with the length of their network"), "none, with sub-interfaces only",
        "[\"10.1.0.254/24\", \"2001:db8:1::fe/64\"]",
        "Our addresses on the port."),
    key("mtu", Number(68, 9000, "bytes; 1280 at least with IPv6"), "the device's, or 1500", "1500",
        "The largest IP packet."),
    key("checksum", Word(&["repair", "trust"]), "repair on a veth through AF_XDP, trust elsewhere", "\"trust\"",
        "What to do about transport checksums that may be incomplete."),
    key("mode", Word(&["auto", "native", "generic"]), "\"auto\"", "\"native\"",
        "How the XDP program of an \"af_xdp\" port is attached."),
    key("workers", Numbers(0, 65_535, "workers"), "workers take turns", "[0]",
        "The owner of each receive queue.")
        .live("config set port.PORT.queue.N WORKER"),
    key("steering", Word(&["queue", "flow"]), "by flow with fewer queues than workers", "\"flow\"",
        "Which worker forwards what the port receives: the one that receives it, or that of its flow.")
        .live("config set port.PORT.steering flow"),
    key("sflow_rate", Number(1, 16_777_216, "packets"), "`rate` in [sflow]", "100",
        "One packet in as many that the port receives is a sample; only with [sflow].")
        .live("config set port.PORT.sflow_rate N"),
    key("rx_ring", Number(128, 8192, "descriptors, a power of two; from 64 in memory"), "2048", "1024",
        "Length of a receive ring."),
    key("tx_ring", Number(128, 8192, "descriptors, a power of two; from 64 in memory"), "2048", "1024",
        "Length of a transmit ring."),
    key("mac", Text("six pairs of hexadecimal digits"), "made from the port's number or the interface's",
        "\"02:00:00:00:00:09\"",
        "The address of a \"tap\", \"pcap\" or \"memory\" port."),
    key("queues", Number(1, 64, "queues"), "as many as `workers` lists, or one; \"af_packet\": one for each worker",
        "1",
        "Receive queues of an \"af_packet\", \"tap\" or \"memory\" port."),
    key("peer", Text("a memory port, which names this one too"), "none", "\"other\"",
        "The port at the other end of a memory port's wire."),
    table("generate", "[port.generate]", "Traffic for a memory port."),
    key("multi_buffer", Truth, "true", "false",
        "Whether packets may lie in several frames, where the kernel can."),
    key("read", Text("a capture of Ethernet, pcap or pcapng"), "none", "\"in.pcap\"",
        "The capture file that a \"pcap\" port receives from."),
    key("timing", Word(&["original", "fast"]), "\"original\"", "\"fast\"",
        "Whether packets arrive at their recorded times, or as fast as the worker takes them."),
    key("passes", Number(0, 4_294_967_295, "times; 0: for ever"), "1", "1",
        "How often the capture is read."),
    key("bytes_max", Number(1024, 1 << 40, "bytes"), "1073741824", "1073741824",
        "Larger captures are refused: they are read whole into memory."),
    key("write", Text("a capture to be made"), "none", "\"out.pcapng\"",
        "The capture that packets of a \"pcap\" port go into."),
    key("snap_len", Number(14, 262_144, "bytes"), "262144", "128",
        "Bytes of each packet that are kept."),
    key("memory_bytes", Number(512 << 10, 1 << 30, "bytes"), "4194304", "4194304",
        "For each queue and each worker, for packets that wait for the disk."),
    table("tee", "[port.tee]", "Copies of the port's packets in a capture."),
    table("fault", "[port.fault]", "Faults on purpose, for tests."),
    table("vlan", "[[port.vlan]]", "Sub-interfaces: frames that carry certain tags."),
];

#[rustfmt::skip]
const VLAN: &[Key] = &[
    key("id", Number(1, 4094, ""), "", "100",
        "The number in the tag."),
    key("tag", Word(&["802.1q", "802.1ad"]), "\"802.1q\"", "\"802.1ad\"",
        "The kind of the tag."),
    key("inner", Number(1, 4094, ""), "none", "7",
        "A second tag, 802.1Q, in the first."),
    key("name", Text("1 to 15 letters, digits, `-`, `_` or `.`"), "the port's, with the numbers behind",
        "\"customer\"",
        "Its name in routes, counters and messages."),
    key("addresses", Texts("addresses with the length of their network"), "",
        "[\"10.4.0.254/24\", \"2001:db8:4::fe/64\"]",
        "Our addresses on the sub-interface."),
    key("mtu", Number(68, 9000, "bytes; 1280 at least with IPv6"),
        "the port's, less what tags take beyond one of 802.1Q", "1492",
        "The largest IP packet."),
];

#[rustfmt::skip]
const GENERATE: &[Key] = &[
    key("source", Text("an IP address, without a length"), "", "\"10.1.0.1\"",
        "The packets' source."),
    key("destination", Text("a network and its length"), "", "\"10.2.0.0/16\"",
        "Destinations are drawn from it."),
    key("flows", Number(1, 1_048_576, "flows"), "64", "64",
        "How many different flows."),
    key("size", Number(64, 9014, "bytes, Ethernet header included"), "64", "128",
        "Bytes of a frame; at most the MTU, and one frame of the pool."),
    key("packets_per_second", Number(1, 1_000_000_000, "packets"), "as fast as possible", "1000",
        "How fast."),
    key("packets", Number(1, u64::MAX, "packets"), "until the daemon stops", "1000000",
        "How many."),
    key("seed", Number(0, u64::MAX, ""), "1", "7",
        "Same seed, same packets."),
];

#[rustfmt::skip]
const TEE: &[Key] = &[
    key("write", Text("a capture to be made"), "", "\"lan.pcapng\"",
        "The capture."),
    key("direction", Word(&["both", "receive", "transmit"]), "\"both\"", "\"receive\"",
        "Which packets are copied."),
    key("snap_len", Number(14, 262_144, "bytes"), "262144", "128",
        "Bytes of each packet that are kept."),
    key("memory_bytes", Number(512 << 10, 1 << 30, "bytes"), "4194304", "4194304",
        "For each queue and each worker, for packets that wait for the disk."),
];

#[rustfmt::skip]
const FAULT: &[Key] = &[
    table("receive", "[port.fault.receive]", "Faults between the wire and the router."),
    table("transmit", "[port.fault.transmit]", "Faults between the router and the wire."),
];

#[rustfmt::skip]
const FAULTS: &[Key] = &[
    key("seed", Number(0, u64::MAX, ""), "0", "1",
        "The same packets at the same times meet the same faults."),
    key("drop", Likelihood, "0", "0.01",
        "How likely a packet is lost."),
    key("duplicate", Likelihood, "0", "0.001",
        "How likely it comes twice."),
    key("corrupt", Likelihood, "0", "0.0001",
        "How likely one bit of it is another."),
    key("delay", Likelihood, "0", "0.1",
        "How likely it comes late."),
    key("delay_us", Numbers(1, 60_000_000, "microseconds"), "1000", "[1000, 5000]",
        "The shortest delay and the longest, or one delay."),
    key("reorder", Likelihood, "0", "0.01",
        "How likely others pass it by."),
    key("reorder_packets", Number(1, 65_536, "packets"), "3", "3",
        "How many pass it by."),
    key("reorder_us", Number(1, 60_000_000, "microseconds"), "10000", "10000",
        "For how long it waits for them at most."),
    key("frames_max", Number(64, 65_536, "frames"), "1024", "1024",
        "Frames held at a time, for each queue and each worker."),
];
