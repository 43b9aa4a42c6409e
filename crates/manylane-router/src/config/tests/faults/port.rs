//! Of a `[[port]]` by itself.

use super::{Fault, LAN, WAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&[r#"[[port]]
driver = "memory"
"#], r#"error: missing key `name` in [[port]]
 --> router.toml:1:1
  |
1 | [[port]]
  | ^^^^^^^^ this has no `name`
  |
help: name the port, for example `name = "lan"`"#),
    (&[r#"[[port]]
name = "a-long-name-for-a-port"
"#], r#"error: `name` in [[port]] cannot be a port's name
 --> router.toml:2:8
  |
2 | name = "a-long-name-for-a-port"
  |        ^^^^^^^^^^^^^^^^^^^^^^^^ too long
  |
help: use 1 to 15 letters, digits, `-`, `_` or `.`"#),
    (&[r#"[[port]]
name = "lan port"
"#], r#"error: `name` in [[port]] cannot be a port's name
 --> router.toml:2:8
  |
2 | name = "lan port"
  |        ^^^^^^^^^^ has a character that no name has
  |
help: use 1 to 15 letters, digits, `-`, `_` or `.`"#),
    (&[r#"[[port]]
name = ""
"#], r#"error: `name` in [[port]] cannot be a port's name
 --> router.toml:2:8
  |
2 | name = ""
  |        ^^ empty
  |
help: use 1 to 15 letters, digits, `-`, `_` or `.`"#),
    (&[r#"[[port]]
name = "lan"
"#], r#"error: missing key `driver` in [[port]]
 --> router.toml:1:1
  |
1 | [[port]]
  | ^^^^^^^^ this has no `driver`
  |
help: write `driver = "auto"` for an interface, or `driver = "memory"` for none"#),
    (&[r#"[[port]]
name = "lan"
driver = "af-xdp"
"#], r#"error: unknown value `af-xdp` for `driver` in [[port]]
 --> router.toml:3:10
  |
3 | driver = "af-xdp"
  |          ^^^^^^^^ not a value of `driver`
  |
help: did you mean `af_xdp`? Known are `auto`, `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`"#),
    (&[r#"[[port]]
name = "lan"
driver = "dpdk"
"#], r#"error: unknown value `dpdk` for `driver` in [[port]]
 --> router.toml:3:10
  |
3 | driver = "dpdk"
  |          ^^^^^^ not a value of `driver`
  |
help: choose one of `auto`, `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`"#),
    (&[r#"[[port]]
name = "lan"
driver = "tee"
"#], r#"error: `driver` `tee` in [[port]] is no driver
 --> router.toml:3:10
  |
3 | driver = "tee"
  |          ^^^^^ it wraps a port of any driver
  |
help: choose the port's driver, and add [port.tee] below it"#),
    (&[r#"[[port]]
name = "host"
driver = "tap"
addresses = ["10.9.0.254/24"]
"#, "interface = \"a/b\"\n"], r#"error: `interface` `a/b` in [[port]] cannot be made
 --> router.toml:5:13
  |
5 | interface = "a/b"
  |             ^^^^^ not a name that an interface can have
  |
help: use 1 to 15 characters without space, `/`, `:` and `%`"#),
    (&[r#"[[port]]
name = "host"
driver = "af_packet"
addresses = ["10.9.0.254/24"]
"#, "rx_ring = 64\n"], r#"error: misplaced key `rx_ring` in [[port]]
 --> router.toml:5:1
  |
5 | rx_ring = 64
  | ^^^^^^^ only a port with `driver = "auto"`, `driver = "af_xdp"` or `driver = "memory"` has it
  |
help: remove the key, or change `driver`"#),
    (&[r#"[[port]]
name = "host"
driver = "auto"
addresses = ["10.9.0.254/24"]
"#, "interface = \"eth2\"\n"], r#"error: `interface` `eth2` in [[port]] does not exist
 --> router.toml:5:13
  |
5 | interface = "eth2"
  |             ^^^^^^ not in this network namespace
  |
help: there are `eth0`, `eth1`"#),
    (&["[frames]\nspare_queues = 65\n"], r#"error: `spare_queues` in [frames] is out of bounds
 --> router.toml:2:16
  |
2 | spare_queues = 65
  |                ^^ not in 0 to 64
  |
help: choose a number from 0 to 64"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#], r#"error: missing key `addresses` in [[port]]
 --> router.toml:1:1
  |
1 | [[port]]
  | ^^^^^^^^ this has no `addresses`
  |
help: list our addresses here, for example `addresses = ["10.1.0.254/24"]`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, "addresses = []\n"], r#"error: `addresses` in [[port]] is empty
 --> router.toml:4:13
  |
4 | addresses = []
  |             ^^ none
  |
help: list our addresses here, for example `addresses = ["10.1.0.254/24"]`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = "10.1.0.1/24"
"#], r#"error: `addresses` in [[port]] has to be a list
 --> router.toml:4:13
  |
4 | addresses = "10.1.0.1/24"
  |             ^^^^^^^^^^^^^ this is a text
  |
help: put the values in [ and ]"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, "addresses = [10]\n"], r#"error: `addresses` in [[port]] has to be a text
 --> router.toml:4:14
  |
4 | addresses = [10]
  |              ^^ this is a whole number
  |
help: put it in double quotes"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.1"]
"#], r#"error: `10.1.0.1` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0.1"]
  |              ^^^^^^^^^^ an address without a prefix length
  |
help: write an address and the length of its network, for example `10.1.0.254/24`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0/24"]
"#], r#"error: `10.1.0/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0/24"]
  |              ^^^^^^^^^^^ `10.1.0` is not an IP address
  |
help: write an address and the length of its network, for example `10.1.0.254/24`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["lan"]
"#], r#"error: `lan` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["lan"]
  |              ^^^^^ not ADDRESS/LENGTH
  |
help: write an address and the length of its network, for example `10.1.0.254/24`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.1/33"]
"#], r#"error: `10.1.0.1/33` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0.1/33"]
  |              ^^^^^^^^^^^^^ the length of an IPv4 prefix is 0 to 32
  |
help: write an address and the length of its network, for example `10.1.0.254/24`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["2001:db8::1/129"]
"#], r#"error: `2001:db8::1/129` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["2001:db8::1/129"]
  |              ^^^^^^^^^^^^^^^^^ the length of an IPv6 prefix is 0 to 128
  |
help: write an address and the length of its network, for example `10.1.0.254/24`"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.1/0"]
"#], r#"error: `10.1.0.1/0` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0.1/0"]
  |              ^^^^^^^^^^^^ the network would be everything
  |
help: write the length of the port's own network; for a default route use [[route]]"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["224.0.0.5/24"]
"#], r#"error: `224.0.0.5/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["224.0.0.5/24"]
  |              ^^^^^^^^^^^^^^ a multicast address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["ff02::1/64"]
"#], r#"error: `ff02::1/64` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["ff02::1/64"]
  |              ^^^^^^^^^^^^ a multicast address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["127.0.0.1/8"]
"#], r#"error: `127.0.0.1/8` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["127.0.0.1/8"]
  |              ^^^^^^^^^^^^^ a loopback address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["::1/128"]
"#], r#"error: `::1/128` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["::1/128"]
  |              ^^^^^^^^^ a loopback address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["0.0.0.0/24"]
"#], r#"error: `0.0.0.0/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["0.0.0.0/24"]
  |              ^^^^^^^^^^^^ the unspecified address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["::/64"]
"#], r#"error: `::/64` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["::/64"]
  |              ^^^^^^^ the unspecified address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["0.1.2.3/24"]
"#], r#"error: `0.1.2.3/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["0.1.2.3/24"]
  |              ^^^^^^^^^^^^ in 0.0.0.0/8, which names no host
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["250.0.0.1/24"]
"#], r#"error: `250.0.0.1/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["250.0.0.1/24"]
  |              ^^^^^^^^^^^^^^ in 240.0.0.0/4, which is reserved
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["255.255.255.255/32"]
"#], r#"error: `255.255.255.255/32` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["255.255.255.255/32"]
  |              ^^^^^^^^^^^^^^^^^^^^ the broadcast address
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["::ffff:10.1.0.1/120"]
"#], r#"error: `::ffff:10.1.0.1/120` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["::ffff:10.1.0.1/120"]
  |              ^^^^^^^^^^^^^^^^^^^^^ an IPv4-mapped address, which never is on a wire
  |
help: give the port a unicast address of the network it is in"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.0/24"]
"#], r#"error: `10.1.0.0/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0.0/24"]
  |              ^^^^^^^^^^^^^ the network's own address
  |
help: write a host's address in 10.1.0.0/24"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.255/24"]
"#], r#"error: `10.1.0.255/24` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["10.1.0.255/24"]
  |              ^^^^^^^^^^^^^^^ the network's broadcast address
  |
help: write a host's address in 10.1.0.0/24"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["2001:db8:1::/64"]
"#], r#"error: `2001:db8:1::/64` in `addresses` cannot be a port's address
 --> router.toml:4:14
  |
4 | addresses = ["2001:db8:1::/64"]
  |              ^^^^^^^^^^^^^^^^^ the network's subnet-router anycast address
  |
help: write a host's address in 2001:db8:1::/64"#),
    (&[r#"[[port]]
name = "x"
driver = "memory"
"#, r#"addresses = ["10.1.0.1/24", "10.1.0.1/16"]
"#], r#"error: duplicate address 10.1.0.1 in `addresses` in [[port]]
 --> router.toml:4:29
  |
4 | addresses = ["10.1.0.1/24", "10.1.0.1/16"]
  |              -------------  ^^^^^^^^^^^^^ a second time on this port
  |              |
  |              first here
  |
help: remove one of the two"#),
    (&[LAN, "mtu = 1279\n"], r#"error: `mtu` in [[port]] is too small for IPv6
 --> router.toml:5:7
  |
5 | mtu = 1279
  |       ^^^^ less than 1280
  |
help: choose a number from 1280 to 9000, or remove the IPv6 addresses of this port"#),
    (&[LAN, "mtu = 67\n"], r#"error: `mtu` in [[port]] is out of bounds
 --> router.toml:5:7
  |
5 | mtu = 67
  |       ^^ not in 68 to 9000
  |
help: choose a number from 68 to 9000"#),
    (&[LAN, "mtu = 9001\n"], r#"error: `mtu` in [[port]] is out of bounds
 --> router.toml:5:7
  |
5 | mtu = 9001
  |       ^^^^ not in 68 to 9000
  |
help: choose a number from 68 to 9000"#),
    (&[WAN, "mtu = 2000\nmulti_buffer = false\n"], r#"error: `mtu` in [[port]] is more than a frame holds
 --> router.toml:6:7
  |
6 | mtu = 2000
  |       ^^^^ 1774 bytes fit into a frame of 2048
  |
help: set `size = 4096` in [frames], or `multi_buffer = true`"#),
    (&[WAN, "mtu = 9000\nmulti_buffer = false\n"], r#"error: `mtu` in [[port]] is more than a frame holds
 --> router.toml:6:7
  |
6 | mtu = 9000
  |       ^^^^ 1774 bytes fit into a frame of 2048
  |
help: set `multi_buffer = true`, or at most 3822 with `size = 4096` in [frames]"#),
    (&[LAN, r#"checksum = "repiar"
"#], r#"error: unknown value `repiar` for `checksum` in [[port]]
 --> router.toml:5:12
  |
5 | checksum = "repiar"
  |            ^^^^^^^^ not a value of `checksum`
  |
help: did you mean `repair`? Known are `repair`, `trust`"#),
    (&[LAN, "rx_ring = 32\n"], r#"error: `rx_ring` in [[port]] is out of bounds
 --> router.toml:5:11
  |
5 | rx_ring = 32
  |           ^^ not in 64 to 8192
  |
help: choose a number from 64 to 8192"#),
    (&[LAN, "rx_ring = 1500\n"], r#"error: `rx_ring` in [[port]] is not a power of two
 --> router.toml:5:11
  |
5 | rx_ring = 1500
  |           ^^^^ a ring's length is 128, 256, 512 and so on
  |
help: choose 1024 or 2048"#),
    (&[LAN, "tx_ring = 16384\n"], r#"error: `tx_ring` in [[port]] is out of bounds
 --> router.toml:5:11
  |
5 | tx_ring = 16384
  |           ^^^^^ not in 64 to 8192
  |
help: choose a number from 64 to 8192"#),
    (&[LAN, "workers = [3]\n"], r#"error: no such worker for `workers` in [[port]]
 --> router.toml:5:12
  |
5 | workers = [3]
  |            ^ the workers are 0 to 2
  |
help: choose 0 to 2, or raise `count` in [workers]"#),
    (&[LAN, "workers = [0, 1]\n"], r#"error: `workers` in [[port]] has another length than the port has queues
 --> router.toml:5:11
  |
5 | workers = [0, 1]
  |           ^^^^^^ for 2 queues; the port has 1
  |
help: list one worker for each queue, or leave `workers` out"#),
    (&[LAN, "workers = 0\n"], r#"error: `workers` in [[port]] has to be a list
 --> router.toml:5:11
  |
5 | workers = 0
  |           ^ this is a whole number
  |
help: put the values in [ and ]"#),
    (&[WAN, "workers = []\n"], r#"error: `workers` in [[port]] has another length than the port has queues
 --> router.toml:6:11
  |
6 | workers = []
  |           ^^ for 0 queues; a port has 1 to 256
  |
help: list one worker for each queue, or leave `workers` out"#),
];
