//! Of a `[[port.vlan]]`.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[LAN, "[[port.vlan]]\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: missing key `id` in [[port.vlan]]
 --> router.toml:5:1
  |
5 | [[port.vlan]]
  | ^^^^^^^^^^^^^ this has no `id`
  |
help: write its number, for example `id = 100`"#),
    (&[LAN, "[[port.vlan]]\nid = 4095\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: `id` in [[port.vlan]] is out of bounds
 --> router.toml:6:6
  |
6 | id = 4095
  |      ^^^^ not in 1 to 4094
  |
help: choose a number from 1 to 4094"#),
    (&[LAN, "[[port.vlan]]\nid = 7\ntag = \"802.1x\"\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: unknown value `802.1x` for `tag` in [[port.vlan]]
 --> router.toml:7:7
  |
7 | tag = "802.1x"
  |       ^^^^^^^^ not a value of `tag`
  |
help: did you mean `802.1q`? Known are `802.1q`, `802.1ad`"#),
    (&[LAN, "[[port.vlan]]\nid = 7\naddresses = []\n"], r#"error: `addresses` in [[port.vlan]] is empty
 --> router.toml:7:13
  |
7 | addresses = []
  |             ^^ none
  |
help: list our addresses here, for example `addresses = ["10.1.0.254/24"]`"#),
    (&[LAN, "[[port.vlan]]\nid = 7\naddresses = [\"10.1.0.9/16\"]\n"], r#"error: overlapping networks in `addresses` of `lan.7`
 --> router.toml:7:14
  |
4 | addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
  |              --------------- here on `lan`
...
7 | addresses = ["10.1.0.9/16"]
  |              ^^^^^^^^^^^^^ 10.1.0.0/16 overlaps 10.1.0.0/24
  |
help: a network is behind one port: change an address or a length"#),
    (&[LAN, "[[port.vlan]]\nid = 7\nname = \"lan\"\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: duplicate `name` `lan` in [[port.vlan]]
 --> router.toml:7:8
  |
2 | name = "lan"
  |        ----- first here
...
7 | name = "lan"
  |        ^^^^^ a second port of this name
  |
help: give each port a name of its own"#),
    (&[LAN, "[[port.vlan]]\nid = 7\naddresses = [\"10.3.0.1/24\"]\n[[port.vlan]]\nid = 7\nname = \"x\"\naddresses = [\"10.4.0.1/24\"]\n"], r#"error: duplicate `id` in [[port.vlan]] of `lan`
 --> router.toml:9:6
  |
6 | id = 7
  |      - first here
...
9 | id = 7
  |      ^ a second sub-interface with these tags
  |
help: a VLAN is one sub-interface: put its addresses into one [[port.vlan]]"#),
    (&[LAN, "mtu = 1400\n[[port.vlan]]\nid = 7\nmtu = 1500\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: `mtu` in [[port.vlan]] is more than its port's
 --> router.toml:8:7
  |
8 | mtu = 1500
  |       ^^^^ the port's is 1400
  |
help: choose at most 1400, or raise `mtu` in [[port]]"#),
    (&[LAN, "[[port.vlan]]\nid = 7\nmtu = 1000\naddresses = [\"2001:db8:3::1/64\"]\n"], r#"error: `mtu` in [[port.vlan]] is too small for IPv6
 --> router.toml:7:7
  |
7 | mtu = 1000
  |       ^^^^ less than 1280
  |
help: choose a number from 1280 to 9000, or remove the IPv6 addresses of this port"#),
    (&[LAN, "mtu = 1287\n[[port.vlan]]\nid = 7\ntag = \"802.1ad\"\ninner = 8\naddresses = [\"10.3.0.1/24\", \"2001:db8:3::1/64\"]\n"], r#"error: `mtu` of the port leaves too little for IPv6 in [[port.vlan]]
 --> router.toml:7:6
  |
7 | id = 7
  |      ^ 1279 of 1287 bytes behind these tags, less than 1280
  |
help: set `mtu` in [[port]] to at least 1288, or remove the IPv6 addresses"#),
    (&[WAN, "mtu = 71\n[[port.vlan]]\nid = 7\ninner = 8\naddresses = [\"10.3.0.1/24\"]\n"], r#"error: `mtu` of the port leaves too little for IPv4 in [[port.vlan]]
 --> router.toml:8:6
  |
8 | id = 7
  |      ^ 67 of 71 bytes behind these tags, less than 68
  |
help: set `mtu` in [[port]] to at least 72"#),
];
