//! Of captures, copies and faults.

use super::{FILE, Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[WAN, "multi_buffer = 1\n"], r#"error: `multi_buffer` in [[port]] has to be true or false
 --> router.toml:6:16
  |
6 | multi_buffer = 1
  |                ^ this is a whole number
  |
help: write it without quotes"#),
    (&[LAN, "multi_buffer = true\n"], r#"error: misplaced key `multi_buffer` in [[port]]
 --> router.toml:5:1
  |
5 | multi_buffer = true
  | ^^^^^^^^^^^^ only a port with `driver = "auto"` or `driver = "af_xdp"` has it
  |
help: remove the key, or change `driver`"#),
    (&[WAN, "rx_ring = 64\n"], r#"error: `rx_ring` in [[port]] is out of bounds
 --> router.toml:6:11
  |
6 | rx_ring = 64
  |           ^^ not in 128 to 8192
  |
help: choose a number from 128 to 8192"#),
    (&[WAN, "tx_ring = 64\n"], r#"error: `tx_ring` in [[port]] is out of bounds
 --> router.toml:6:11
  |
6 | tx_ring = 64
  |           ^^ not in 128 to 8192
  |
help: choose a number from 128 to 8192"#),
    (&[LAN, "mtu = 9000\n[port.generate]\nsource = \"10.1.0.1\"\ndestination = \"10.2.0.0/16\"\nsize = 1793\n"], r#"error: `size` in [port.generate] is more than a frame holds
 --> router.toml:9:8
  |
9 | size = 1793
  |        ^^^^ 1792 bytes fit into a frame of 2048
  |
help: choose a number from 64 to 1792: the generator writes single frames"#),
    (&[FILE], r#"error: missing key `read` in [[port]]
 --> router.toml:1:1
  |
1 | [[port]]
  | ^^^^^^^^ this has no `read`
  |
help: name a capture: `read = "in.pcap"`, `write = "out.pcapng"`, or both"#),
    (&[FILE, "read = \"\"\n"], r#"error: `read` in [[port]] cannot be a file's path
 --> router.toml:5:8
  |
5 | read = ""
  |        ^^ empty
  |
help: name a capture file, from the root or from where the daemon is started"#),
    (&[FILE, "write = \"out.pcapng\"\npasses = 2\n"], r#"error: misplaced key `passes` in [[port]]
 --> router.toml:6:1
  |
6 | passes = 2
  | ^^^^^^ the port has no `read`
  |
help: remove the key, or add `read`"#),
    (&[FILE, "read = \"in.pcap\"\nsnap_len = 100\n"], r#"error: misplaced key `snap_len` in [[port]]
 --> router.toml:6:1
  |
6 | snap_len = 100
  | ^^^^^^^^ the port has no `write`
  |
help: remove the key, or add `write`"#),
    (&[FILE, "read = \"in.pcap\"\ntiming = \"quick\"\n"], r#"error: unknown value `quick` for `timing` in [[port]]
 --> router.toml:6:10
  |
6 | timing = "quick"
  |          ^^^^^^^ not a value of `timing`
  |
help: choose one of `original`, `fast`"#),
    (&[FILE, "read = \"a.pcap\"\nwrite = \"a.pcap\"\n"], r#"error: `a.pcap` in [[port]] is used twice
 --> router.toml:6:9
  |
5 | read = "a.pcap"
  |        -------- and read here
6 | write = "a.pcap"
  |         ^^^^^^^^ written here
  |
help: give each capture that is written a file of its own"#),
    (&[FILE, "write = \"a.pcapng\"\n", LAN, "[port.tee]\nwrite = \"a.pcapng\"\n"], r#"error: `a.pcapng` in [[port]] is used twice
  --> router.toml:11:9
   |
 5 | write = "a.pcapng"
   |         ---------- and written here
...
11 | write = "a.pcapng"
   |         ^^^^^^^^^^ written here
   |
help: give each capture that is written a file of its own"#),
    (&[FILE, "write = \"a.pcapng\"\nmemory_bytes = 1000\n"], r#"error: `memory_bytes` in [[port]] is out of bounds
 --> router.toml:6:16
  |
6 | memory_bytes = 1000
  |                ^^^^ not in 524288 to 1073741824
  |
help: choose a number from 524288 to 1073741824"#),
    (&[LAN, "read = \"in.pcap\"\n"], r#"error: misplaced key `read` in [[port]]
 --> router.toml:5:1
  |
5 | read = "in.pcap"
  | ^^^^ only a port with `driver = "pcap"` has it
  |
help: remove the key, or change `driver`"#),
    (&[LAN, "[port.tee]\ndirection = \"both\"\n"], r#"error: missing key `write` in [port.tee]
 --> router.toml:5:1
  |
5 | [port.tee]
  | ^^^^^^^^^^ this has no `write`
  |
help: name the capture, for example `write = "lan.pcapng"`"#),
    (&[LAN, "[port.tee]\nwrite = \"a.pcapng\"\ndirection = \"in\"\n"], r#"error: unknown value `in` for `direction` in [port.tee]
 --> router.toml:7:13
  |
7 | direction = "in"
  |             ^^^^ not a value of `direction`
  |
help: choose one of `both`, `receive`, `transmit`"#),
    (&[LAN, "[port.fault]\n"], r#"error: missing key `receive` in [port.fault]
 --> router.toml:5:1
  |
5 | [port.fault]
  | ^^^^^^^^^^^^ this has no `receive`
  |
help: add [port.fault.receive] or [port.fault.transmit], with `drop = 0.01` for example"#),
    (&[LAN, "[port.fault]\ndrop = 0.5\n"], r#"error: unknown key `drop` in [port.fault]
 --> router.toml:6:1
  |
6 | drop = 0.5
  | ^^^^ no setting has this name
  |
help: there are `receive`, `transmit`"#),
    (&[LAN, "[port.fault.receive]\ndrop = 1.5\n"], r#"error: `drop` in [port.fault.receive] is out of bounds
 --> router.toml:6:8
  |
6 | drop = 1.5
  |        ^^^ not in 0 to 1
  |
help: choose a number from 0 to 1"#),
    (&[LAN, "[port.fault.receive]\ndrop = \"0.5\"\n"], r#"error: `drop` in [port.fault.receive] has to be a number
 --> router.toml:6:8
  |
6 | drop = "0.5"
  |        ^^^^^ this is a text
  |
help: write it without quotes, for example 0.01"#),
    (&[LAN, "[port.fault.transmit]\ndelay = 1\ndelay_us = [5000, 1000]\n"], r#"error: `delay_us` in [port.fault.transmit] is no range
 --> router.toml:7:12
  |
7 | delay_us = [5000, 1000]
  |            ^^^^^^^^^^^^ one delay, or the shortest and the longest
  |
help: write for example `delay_us = [1000, 5000]`"#),
    (&[LAN, "[port.fault.transmit]\nreorder_packets = 0\n"], r#"error: `reorder_packets` in [port.fault.transmit] is out of bounds
 --> router.toml:6:19
  |
6 | reorder_packets = 0
  |                   ^ not in 1 to 65536
  |
help: choose a number from 1 to 65536"#),
    (&[LAN, "[port.fault.transmit]\nframes_max = 32\n"], r#"error: `frames_max` in [port.fault.transmit] is out of bounds
 --> router.toml:6:14
  |
6 | frames_max = 32
  |              ^^ not in 64 to 65536
  |
help: choose a number from 64 to 65536"#),
];
