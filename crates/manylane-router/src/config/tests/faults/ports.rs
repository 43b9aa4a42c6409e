//! Of several `[[port]]` together.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[LAN, r#"[[port]]
name = "lan"
driver = "memory"
addresses = ["10.3.0.1/24"]
"#], r#"error: duplicate `name` `lan` in [[port]]
 --> router.toml:6:8
  |
2 | name = "lan"
  |        ----- first here
...
6 | name = "lan"
  |        ^^^^^ a second port of this name
  |
help: give each port a name of its own"#),
    (&[WAN, r#"[[port]]
name = "b"
driver = "af_xdp"
interface = "eth0"
addresses = ["10.3.0.1/24"]
"#], r#"error: duplicate `interface` `eth0` in [[port]]
 --> router.toml:9:13
  |
4 | interface = "eth0"
  |             ------ first here
...
9 | interface = "eth0"
  |             ^^^^^^ a second port on this interface
  |
help: an interface is one port: put its addresses into one [[port]]"#),
    (&[LAN, r#"[[port]]
name = "b"
driver = "memory"
addresses = ["10.1.0.254/16"]
"#], r#"error: duplicate address 10.1.0.254 in `addresses` in [[port]]
 --> router.toml:8:14
  |
4 | addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
  |              --------------- here on `lan`
...
8 | addresses = ["10.1.0.254/16"]
  |              ^^^^^^^^^^^^^^^ a second port with this address
  |
help: give each port an address of its own"#),
    (&[LAN, r#"[[port]]
name = "b"
driver = "memory"
addresses = ["10.1.0.1/16"]
"#], r#"error: overlapping networks in `addresses` of `b`
 --> router.toml:8:14
  |
4 | addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
  |              --------------- here on `lan`
...
8 | addresses = ["10.1.0.1/16"]
  |              ^^^^^^^^^^^^^ 10.1.0.0/16 overlaps 10.1.0.0/24
  |
help: a network is behind one port: change an address or a length"#),
    (&[LAN, r#"[[port]]
name = "b"
driver = "memory"
addresses = ["2001:db8:1::fe/64"]
"#], r#"error: duplicate address 2001:db8:1::fe in `addresses` in [[port]]
 --> router.toml:8:14
  |
4 | addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
  |                               ------------------- here on `lan`
...
8 | addresses = ["2001:db8:1::fe/64"]
  |              ^^^^^^^^^^^^^^^^^^^ a second port with this address
  |
help: give each port an address of its own"#),
];
