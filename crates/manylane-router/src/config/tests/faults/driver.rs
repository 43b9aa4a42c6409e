//! Of what a `[[port]]` is made of.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    // af_xdp
    (&[r#"[[port]]
name = "wan"
driver = "af_xdp"
addresses = ["10.2.0.254/24"]
"#], r#"error: missing key `interface` in [[port]]
 --> router.toml:1:1
  |
1 | [[port]]
  | ^^^^^^^^ this has no `interface`
  |
help: name the kernel's interface, for example `interface = "eth0"`"#),
    (&[r#"[[port]]
name = "wan"
driver = "af_xdp"
interface = "eth2"
addresses = ["10.2.0.254/24"]
"#], r#"error: `interface` `eth2` in [[port]] does not exist
 --> router.toml:4:13
  |
4 | interface = "eth2"
  |             ^^^^^^ not in this network namespace
  |
help: there are `eth0`, `eth1`"#),
    (&[WAN, r#"mode = "skb"
"#], r#"error: unknown value `skb` for `mode` in [[port]]
 --> router.toml:6:8
  |
6 | mode = "skb"
  |        ^^^^^ not a value of `mode`
  |
help: choose one of `auto`, `native`, `generic`"#),
    (&[WAN, r#"mac = "02:00:00:00:00:01"
"#], r#"error: misplaced key `mac` in [[port]]
 --> router.toml:6:1
  |
6 | mac = "02:00:00:00:00:01"
  | ^^^ only a port with `driver = "tap"`, `driver = "pcap"` or `driver = "memory"` has it
  |
help: remove the key, or change `driver`"#),
    (&[WAN, "queues = 4\n"], r#"error: misplaced key `queues` in [[port]]
 --> router.toml:6:1
  |
6 | queues = 4
  | ^^^^^^ only a port with `driver = "af_packet"`, `driver = "tap"` or `driver = "memory"` has it
  |
help: remove the key, or change `driver`"#),
    (&[WAN, r#"peer = "lan"
"#], r#"error: misplaced key `peer` in [[port]]
 --> router.toml:6:1
  |
6 | peer = "lan"
  | ^^^^ only a port with `driver = "memory"` has it
  |
help: remove the key, or change `driver`"#),
    (&[WAN, "[port.generate]\nflows = 1\n"], r#"error: misplaced key `generate` in [[port]]
 --> router.toml:6:7
  |
6 | [port.generate]
  |       ^^^^^^^^ only a port with `driver = "memory"` has it
  |
help: remove the key, or change `driver`"#),
    // memory
    (&[LAN, r#"interface = "eth0"
"#], r#"error: misplaced key `interface` in [[port]]
 --> router.toml:5:1
  |
5 | interface = "eth0"
  | ^^^^^^^^^ only a port with `driver = "auto"`, `driver = "af_xdp"`, `driver = "af_packet"` or `driver = "tap"` has it
  |
help: remove the key, or change `driver`"#),
    (&[LAN, r#"mode = "native"
"#], r#"error: misplaced key `mode` in [[port]]
 --> router.toml:5:1
  |
5 | mode = "native"
  | ^^^^ only a port with `driver = "af_xdp"` has it
  |
help: remove the key, or change `driver`"#),
    (&[LAN, r#"mac = "02:00:00:00:01"
"#], r#"error: `mac` in [[port]] is not a station's address
 --> router.toml:5:7
  |
5 | mac = "02:00:00:00:01"
  |       ^^^^^^^^^^^^^^^^ not a MAC address
  |
help: write six pairs of hexadecimal digits, for example `02:00:00:00:00:01`"#),
    (&[LAN, r#"mac = "03:00:00:00:00:01"
"#], r#"error: `mac` in [[port]] is not a station's address
 --> router.toml:5:7
  |
5 | mac = "03:00:00:00:00:01"
  |       ^^^^^^^^^^^^^^^^^^^ a group's address: the first byte is odd
  |
help: write six pairs of hexadecimal digits, for example `02:00:00:00:00:01`"#),
    (&[LAN, r#"mac = "00:00:00:00:00:00"
"#], r#"error: `mac` in [[port]] is not a station's address
 --> router.toml:5:7
  |
5 | mac = "00:00:00:00:00:00"
  |       ^^^^^^^^^^^^^^^^^^^ all zero
  |
help: write six pairs of hexadecimal digits, for example `02:00:00:00:00:01`"#),
    (&[LAN, "queues = 65\n"], r#"error: `queues` in [[port]] is out of bounds
 --> router.toml:5:10
  |
5 | queues = 65
  |          ^^ not in 1 to 64
  |
help: choose a number from 1 to 64"#),
    (&[LAN, "peer = 1\n"], r#"error: `peer` in [[port]] has to be a text
 --> router.toml:5:8
  |
5 | peer = 1
  |        ^ this is a whole number
  |
help: put it in double quotes"#),
    (&[LAN, r#"peer = "lna"
"#], r#"error: `peer` `lna` in [[port]] cannot be the other end
 --> router.toml:5:8
  |
5 | peer = "lna"
  |        ^^^^^ no port has this name
  |
help: choose among `lan`"#),
    (&[LAN, r#"peer = "lan"
"#], r#"error: `peer` `lan` in [[port]] cannot be the other end
 --> router.toml:5:8
  |
5 | peer = "lan"
  |        ^^^^^ the port itself
  |
help: name another memory port"#),
    (&[WAN, LAN, r#"peer = "wan"
"#], r#"error: `peer` `wan` in [[port]] cannot be the other end
  --> router.toml:10:8
   |
10 | peer = "wan"
   |        ^^^^^ not a memory port
   |
help: name a port with `driver = "memory"`"#),
    (&[LAN, r#"peer = "b"
"#, r#"[[port]]
name = "b"
driver = "memory"
addresses = ["10.3.0.1/24"]
peer = "c"
[[port]]
name = "c"
driver = "memory"
addresses = ["10.4.0.1/24"]
"#], r#"error: `peer` `c` in [[port]] cannot be the other end
  --> router.toml:10:8
   |
 5 | peer = "b"
   |        --- by this
...
10 | peer = "c"
   |        ^^^ `b` is wired to `lan`
   |
help: a wire has two ends: let both ports name each other"#),
    (&[LAN, r#"peer = "b"
"#, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
"#, r#"[[port]]
name = "b"
driver = "memory"
addresses = ["10.3.0.1/24"]
"#], r#"error: `peer` `b` in [[port]] cannot be the other end
 --> router.toml:5:8
  |
5 | peer = "b"
  |        ^^^ a wire with a generator on it
6 | [port.generate]
  | --------------- the generator
  |
help: a port has one far end: remove `peer` or [port.generate]"#),
    // generate
    (&[LAN, r#"[port.generate]
destination = "10.2.0.0/16"
"#], r#"error: missing key `source` in [port.generate]
 --> router.toml:5:1
  |
5 | [port.generate]
  | ^^^^^^^^^^^^^^^ this has no `source`
  |
help: write the packets' source, for example `source = "10.1.0.1"`"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1/24"
"#], r#"error: `source` in [port.generate] cannot send packets
 --> router.toml:6:10
  |
6 | source = "10.1.0.1/24"
  |          ^^^^^^^^^^^^^ not an IP address
  |
help: write one address, no length"#),
    (&[LAN, r#"[port.generate]
source = "224.0.0.1"
"#], r#"error: `source` in [port.generate] cannot send packets
 --> router.toml:6:10
  |
6 | source = "224.0.0.1"
  |          ^^^^^^^^^^^ a multicast address
  |
help: write a unicast address"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.254"
"#], r#"error: `source` in [port.generate] cannot send packets
 --> router.toml:6:10
  |
6 | source = "10.1.0.254"
  |          ^^^^^^^^^^^^ this port's own address
  |
help: write a neighbour's address: what claims to be from us is dropped"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
"#], r#"error: missing key `destination` in [port.generate]
 --> router.toml:5:1
  |
5 | [port.generate]
  | ^^^^^^^^^^^^^^^ this has no `destination`
  |
help: write the destination of the packets, for example `destination = "10.2.0.0/16"`"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.1/16"
"#], r#"error: `destination` in [port.generate] is not a prefix
 --> router.toml:7:15
  |
7 | destination = "10.2.0.1/16"
  |               ^^^^^^^^^^^^^ bits are set behind the first 16
  |
help: write `10.2.0.0/16`, or `10.2.0.1/32` for this one address"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "2001:db8:2::/64"
"#], r#"error: `source` and `destination` in [port.generate] are of different families
 --> router.toml:7:15
  |
6 | source = "10.1.0.1"
  |          ---------- IPv4
7 | destination = "2001:db8:2::/64"
  |               ^^^^^^^^^^^^^^^^^ IPv6
  |
help: write an IPv4 prefix, or change `source`"#),
    (&[LAN, r#"[port.generate]
source = "2001:db8:1::1"
destination = "10.2.0.0/16"
"#], r#"error: `source` and `destination` in [port.generate] are of different families
 --> router.toml:7:15
  |
6 | source = "2001:db8:1::1"
  |          --------------- IPv6
7 | destination = "10.2.0.0/16"
  |               ^^^^^^^^^^^^^ IPv4
  |
help: write an IPv6 prefix, or change `source`"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "0.0.0.0/0"
"#], r#"error: `destination` in [port.generate] is nowhere to send packets to
 --> router.toml:7:15
  |
7 | destination = "0.0.0.0/0"
  |               ^^^^^^^^^^^ the unspecified address
  |
help: write a prefix of unicast addresses"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
size = 63
"#], r#"error: `size` in [port.generate] is out of bounds
 --> router.toml:8:8
  |
8 | size = 63
  |        ^^ not in 64 to 9014
  |
help: choose a number from 64 to 9014"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
size = 1515
"#], r#"error: `size` in [port.generate] is more than the port's MTU
 --> router.toml:8:8
  |
8 | size = 1515
  |        ^^^^ 1514 is MTU and Ethernet header
  |
help: choose a number from 64 to 1514, or raise `mtu`"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
flows = 0
"#], r#"error: `flows` in [port.generate] is out of bounds
 --> router.toml:8:9
  |
8 | flows = 0
  |         ^ not in 1 to 1048576
  |
help: choose a number from 1 to 1048576"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
packets_per_second = 0
"#], r#"error: `packets_per_second` in [port.generate] is out of bounds
 --> router.toml:8:22
  |
8 | packets_per_second = 0
  |                      ^ not in 1 to 1000000000
  |
help: choose a number from 1 to 1000000000"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
packets = 0
"#], r#"error: `packets` in [port.generate] is out of bounds
 --> router.toml:8:11
  |
8 | packets = 0
  |           ^ not in 1 to 18446744073709551615
  |
help: choose a number from 1 to 18446744073709551615"#),
    (&[LAN, r#"[port.generate]
source = "10.1.0.1"
destination = "10.2.0.0/16"
seed = -1
"#], r#"error: `seed` in [port.generate] is out of bounds
 --> router.toml:8:8
  |
8 | seed = -1
  |        ^^ not in 0 to 18446744073709551615
  |
help: choose a number from 0 to 18446744073709551615"#),
];
