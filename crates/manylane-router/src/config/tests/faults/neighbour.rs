//! Of a `[[neighbour.static]]`.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[LAN, r#"[neighbour]
duplicate_detection = "srtict"
"#], r#"error: unknown value `srtict` for `duplicate_detection` in [neighbour]
 --> router.toml:6:23
  |
6 | duplicate_detection = "srtict"
  |                       ^^^^^^^^ not a value of `duplicate_detection`
  |
help: did you mean `strict`? Known are `optimistic`, `strict`, `off`"#),
    (&[LAN, r#"[[neighbour.static]]
address = "10.1.0.9"
mac = "02:00:00:00:00:09"
"#], r#"error: missing key `port` in [[neighbour.static]]
 --> router.toml:5:1
  |
5 | [[neighbour.static]]
  | ^^^^^^^^^^^^^^^^^^^^ this has no `port`
  |
help: name the port it is behind: `port = "NAME"`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lam"
address = "10.1.0.9"
mac = "02:00:00:00:00:09"
"#], r#"error: unknown `port` `lam` in [[neighbour.static]]
 --> router.toml:6:8
  |
6 | port = "lam"
  |        ^^^^^ no port has this name
  |
help: did you mean `lan`? Known are `lan`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
mac = "02:00:00:00:00:09"
"#], r#"error: missing key `address` in [[neighbour.static]]
 --> router.toml:5:1
  |
5 | [[neighbour.static]]
  | ^^^^^^^^^^^^^^^^^^^^ this has no `address`
  |
help: write the neighbour's address, for example `address = "10.1.0.1"`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.1.0.9/24"
mac = "02:00:00:00:00:09"
"#], r#"error: `address` `10.1.0.9/24` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "10.1.0.9/24"
  |           ^^^^^^^^^^^^^ not an IP address
  |
help: write an address without a length, for example `10.1.0.1`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "224.0.0.9"
mac = "02:00:00:00:00:09"
"#], r#"error: `address` `224.0.0.9` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "224.0.0.9"
  |           ^^^^^^^^^^^ a multicast address
  |
help: write one station's address"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.1.0.254"
mac = "02:00:00:00:00:09"
"#], r#"error: `address` `10.1.0.254` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "10.1.0.254"
  |           ^^^^^^^^^^^^ our own address on `lan`
  |
help: write the address of another station"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.1.0.255"
mac = "02:00:00:00:00:09"
"#], r#"error: `address` `10.1.0.255` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "10.1.0.255"
  |           ^^^^^^^^^^^^ the network's broadcast address
  |
help: write a host's address"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.9.0.9"
mac = "02:00:00:00:00:09"
"#], r#"error: `address` `10.9.0.9` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "10.9.0.9"
  |           ^^^^^^^^^^ not on the link of `lan`
  |
help: write an address of a network of this port, or of a [[route]] to its link"#),
    (&[WAN, r#"[[neighbour.static]]
port = "wan"
address = "fe80::9"
mac = "02:00:00:00:00:09"
"#], r#"error: `port` `wan` in [[neighbour.static]] has no IPv6 address
 --> router.toml:8:11
  |
8 | address = "fe80::9"
  |           ^^^^^^^^^ an IPv6 neighbour on it
  |
help: add an IPv6 address to `addresses` of `wan`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.1.0.9"
"#], r#"error: missing key `mac` in [[neighbour.static]]
 --> router.toml:5:1
  |
5 | [[neighbour.static]]
  | ^^^^^^^^^^^^^^^^^^^^ this has no `mac`
  |
help: write its link-layer address, for example `mac = "02:00:00:00:00:01"`"#),
    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.1.0.9"
mac = "01:00:5e:00:00:09"
"#], r#"error: `mac` in [[neighbour.static]] is not a station's address
 --> router.toml:8:7
  |
8 | mac = "01:00:5e:00:00:09"
  |       ^^^^^^^^^^^^^^^^^^^ a group's address: the first byte is odd
  |
help: write six pairs of hexadecimal digits, for example `02:00:00:00:00:01`"#),

    (&[LAN, r#"[[neighbour.static]]
port = "lan"
address = "10.9.0.200"
mac = "02:00:00:00:00:09"
[[route]]
prefix = "10.9.0.0/24"
port = "lan"
[[route]]
prefix = "10.9.0.128/25"
via = "10.1.0.1"
"#], r#"error: `address` `10.9.0.200` in [[neighbour.static]] cannot be a neighbour's
 --> router.toml:7:11
  |
7 | address = "10.9.0.200"
  |           ^^^^^^^^^^^^ not on the link of `lan`
  |
help: write an address of a network of this port, or of a [[route]] to its link"#),
];
