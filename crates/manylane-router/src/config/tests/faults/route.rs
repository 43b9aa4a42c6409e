//! Of a `[[route]]`.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[LAN, r#"[[route]]
via = "10.1.0.1"
"#], r#"error: missing key `prefix` in [[route]]
 --> router.toml:5:1
  |
5 | [[route]]
  | ^^^^^^^^^ this has no `prefix`
  |
help: write the destinations, for example `prefix = "0.0.0.0/0"`"#),
    (&[LAN, r#"[[route]]
prefix = "10.0.0.0"
via = "10.1.0.1"
"#], r#"error: `prefix` in [[route]] is not a prefix
 --> router.toml:6:10
  |
6 | prefix = "10.0.0.0"
  |          ^^^^^^^^^^ an address without a prefix length
  |
help: write `10.0.0.0/32`, or the length of a network"#),
    (&[LAN, r#"[[route]]
prefix = "default"
via = "10.1.0.1"
"#], r#"error: `prefix` in [[route]] is not a prefix
 --> router.toml:6:10
  |
6 | prefix = "default"
  |          ^^^^^^^^^ not ADDRESS/LENGTH
  |
help: write a network and its length, for example `10.0.0.0/8`"#),
    (&[LAN, r#"[[route]]
prefix = "10.5.1.0/16"
via = "10.1.0.1"
"#], r#"error: `prefix` in [[route]] is not a prefix
 --> router.toml:6:10
  |
6 | prefix = "10.5.1.0/16"
  |          ^^^^^^^^^^^^^ bits are set behind the first 16
  |
help: write `10.5.0.0/16`, or `10.5.1.0/32` for this one address"#),
    (&[LAN, r#"[[route]]
prefix = "2001:db8::1/64"
via = "2001:db8:1::1"
"#], r#"error: `prefix` in [[route]] is not a prefix
 --> router.toml:6:10
  |
6 | prefix = "2001:db8::1/64"
  |          ^^^^^^^^^^^^^^^^ bits are set behind the first 64
  |
help: write `2001:db8::/64`, or `2001:db8::1/128` for this one address"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
"#], r#"error: missing key `via` in [[route]]
 --> router.toml:5:1
  |
5 | [[route]]
  | ^^^^^^^^^ this has no `via`
  |
help: write `via = "ADDRESS"`, or `port = "NAME"` for destinations on that link, or `type = "blackhole"`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = []
"#], r#"error: `via` in [[route]] has no next hop, or too many
 --> router.toml:7:7
  |
7 | via = []
  |       ^^ there are 0
  |
help: write 1 to 64"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = ["10.1.0.1", "10.1.0.2"]
weights = [1]
"#], r#"error: `weights` in [[route]] do not fit `via`
 --> router.toml:8:11
  |
7 | via = ["10.1.0.1", "10.1.0.2"]
  |       ------------------------ these
8 | weights = [1]
  |           ^^^ 1 weights
  |
help: write one for each of the 2 next hops"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = ["10.1.0.1", "10.1.0.1%lan"]
"#], r#"error: duplicate next hop `10.1.0.1%lan` in [[route]]
 --> router.toml:7:20
  |
7 | via = ["10.1.0.1", "10.1.0.1%lan"]
  |        ----------  ^^^^^^^^^^^^^^ a second time
  |        |
  |        first here
  |
help: write it once, and give it more weight"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = ["10.1.0.1", "10.9.0.1"]
"#], r#"error: `via` `10.9.0.1` in [[route]] cannot be the next hop
 --> router.toml:7:20
  |
7 | via = ["10.1.0.1", "10.9.0.1"]
  |                    ^^^^^^^^^^ not in a network of any port
  |
help: write an address in one of 10.1.0.0/24"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1"
weights = [2]
"#], r#"error: misplaced key `weights` in [[route]]
 --> router.toml:8:1
  |
8 | weights = [2]
  | ^^^^^^^ one next hop takes all packets
  |
help: remove `weights`, or write several: `via = ["10.2.0.1", "10.3.0.1"]`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1/24"
"#], r#"error: `via` `10.1.0.1/24` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "10.1.0.1/24"
  |       ^^^^^^^^^^^^^ not an IP address
  |
help: write the router's address without a length, for example `10.2.0.1`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.9.0.1"
"#], r#"error: `via` `10.9.0.1` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "10.9.0.1"
  |       ^^^^^^^^^^ not in a network of any port
  |
help: write an address in one of 10.1.0.0/24"#),
    (&[WAN, r#"[[route]]
prefix = "::/0"
via = "2001:db8:9::1"
"#], r#"error: `via` `2001:db8:9::1` in [[route]] cannot be the next hop
 --> router.toml:8:7
  |
8 | via = "2001:db8:9::1"
  |       ^^^^^^^^^^^^^^^ not in a network of any port
  |
help: add an IPv6 address to the port it is behind"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.254"
"#], r#"error: `via` `10.1.0.254` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "10.1.0.254"
  |       ^^^^^^^^^^^^ our own address on `lan`
  |
help: write the address of another router there"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.255"
"#], r#"error: `via` `10.1.0.255` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "10.1.0.255"
  |       ^^^^^^^^^^^^ the network's broadcast address
  |
help: write a host's address in 10.1.0.0/24"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "2001:db8:1::1"
"#], r#"error: `via` `2001:db8:1::1` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "2001:db8:1::1"
  |       ^^^^^^^^^^^^^^^ of the other family
  |
help: write an IPv4 address: 0.0.0.0/0 is IPv4"#),
    (&[LAN, r#"[[route]]
prefix = "::/0"
via = "10.1.0.1"
"#], r#"error: `via` `10.1.0.1` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "10.1.0.1"
  |       ^^^^^^^^^^ of the other family
  |
help: write an IPv6 address: ::/0 is IPv6"#),
    (&[LAN, r#"[[route]]
prefix = "::/0"
via = "fe80::1"
"#], r#"error: `via` `fe80::1` in [[route]] cannot be the next hop
 --> router.toml:7:7
  |
7 | via = "fe80::1"
  |       ^^^^^^^^^ link-local, without a port
  |
help: add `port = "NAME"`: a link-local address does not say which link"#),
    (&[WAN, r#"[[route]]
prefix = "::/0"
via = "fe80::1"
port = "wan"
"#], r#"error: `port` `wan` in [[route]] has no IPv6 address
 --> router.toml:8:7
  |
8 | via = "fe80::1"
  |       ^^^^^^^^^ an IPv6 route through it
  |
help: add an IPv6 address to `addresses` of `wan`"#),
    (&[LAN, WAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1"
port = "wan"
"#], r#"error: `via` `10.1.0.1` in [[route]] cannot be the next hop
  --> router.toml:12:7
   |
12 | via = "10.1.0.1"
   |       ^^^^^^^^^^ not in a network of `wan`
   |
help: it is behind `lan`: name that port, or remove `port`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1"
port = "lam"
"#], r#"error: unknown `port` `lam` in [[route]]
 --> router.toml:8:8
  |
8 | port = "lam"
  |        ^^^^^ no port has this name
  |
help: did you mean `lan`? Known are `lan`"#),
    (&[WAN, r#"[[route]]
prefix = "2001:db8:9::/48"
port = "wan"
"#], r#"error: `port` `wan` in [[route]] has no IPv6 address
 --> router.toml:8:1
  |
8 | port = "wan"
  | ^^^^ an IPv6 route through it
  |
help: add an IPv6 address to `addresses` of `wan`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
type = "blackhol"
"#], r#"error: unknown value `blackhol` for `type` in [[route]]
 --> router.toml:7:8
  |
7 | type = "blackhol"
  |        ^^^^^^^^^^ not a value of `type`
  |
help: did you mean `blackhole`? Known are `blackhole`, `unreachable`, `prohibit`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1"
type = "blackhole"
"#], r#"error: misplaced key `via` in [[route]]
 --> router.toml:7:1
  |
7 | via = "10.1.0.1"
  | ^^^ a route with `type` drops its packets
  |
help: remove `type`, or remove `via` and `port`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
port = "lan"
type = "prohibit"
"#], r#"error: misplaced key `port` in [[route]]
 --> router.toml:7:1
  |
7 | port = "lan"
  | ^^^^ a route with `type` drops its packets
  |
help: remove `type`, or remove `via` and `port`"#),
    (&[LAN, r#"[[route]]
prefix = "0.0.0.0/0"
via = "10.1.0.1"
"#, r#"[[route]]
prefix = "0.0.0.0/0"
type = "blackhole"
"#], r#"error: duplicate `prefix` 0.0.0.0/0 in [[route]]
 --> router.toml:9:10
  |
6 | prefix = "0.0.0.0/0"
  |          ----------- first here
...
9 | prefix = "0.0.0.0/0"
  |          ^^^^^^^^^^^ a second route to it
  |
help: keep one of the two"#),
    (&[LAN, r#"[[route]]
prefix = "10.1.0.0/24"
type = "blackhole"
"#], r#"error: duplicate `prefix` 10.1.0.0/24 in [[route]]
 --> router.toml:6:10
  |
6 | prefix = "10.1.0.0/24"
  |          ^^^^^^^^^^^^^ connected: `lan` has an address in it
  |
help: remove the route: a port's networks are routed without one"#),
    (&[LAN, r#"[[route]]
prefix = "10.1.0.254/32"
type = "blackhole"
"#], r#"error: `prefix` 10.1.0.254/32 in [[route]] is our own address
 --> router.toml:6:10
  |
6 | prefix = "10.1.0.254/32"
  |          ^^^^^^^^^^^^^^^ on `lan`
  |
help: remove the route: packets to our own addresses stay here"#),
    (&[LAN, r#"[[route]]
prefix = "224.0.0.0/4"
via = "10.1.0.1"
"#], r#"error: `prefix` 224.0.0.0/4 in [[route]] is never forwarded
 --> router.toml:6:10
  |
6 | prefix = "224.0.0.0/4"
  |          ^^^^^^^^^^^^^ multicast destinations
  |
help: remove the route"#),
    (&[LAN, r#"[[route]]
prefix = "ff00::/8"
port = "lan"
"#], r#"error: `prefix` ff00::/8 in [[route]] is never forwarded
 --> router.toml:6:10
  |
6 | prefix = "ff00::/8"
  |          ^^^^^^^^^^ multicast destinations
  |
help: remove the route"#),
    (&[LAN, r#"[[route]]
prefix = "127.0.0.0/8"
via = "10.1.0.1"
"#], r#"error: `prefix` 127.0.0.0/8 in [[route]] is never forwarded
 --> router.toml:6:10
  |
6 | prefix = "127.0.0.0/8"
  |          ^^^^^^^^^^^^^ loopback destinations
  |
help: remove the route"#),
    (&[LAN, r#"[[route]]
prefix = "fe80::/10"
port = "lan"
"#], r#"error: `prefix` fe80::/10 in [[route]] is never forwarded
 --> router.toml:6:10
  |
6 | prefix = "fe80::/10"
  |          ^^^^^^^^^^^ link-local destinations
  |
help: remove the route"#),
];
