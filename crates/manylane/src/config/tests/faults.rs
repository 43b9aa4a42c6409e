//! What an operator may get wrong, and what is said to it.

/// A port without a device.
pub(super) const LAN: &str = r#"[[port]]
name = "lan"
driver = "memory"
addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
"#;

/// A port with one.
const WAN: &str = r#"[[port]]
name = "wan"
driver = "af_xdp"
interface = "eth0"
addresses = ["10.2.0.254/24"]
"#;

/// A port that is files.
const FILE: &str = r#"[[port]]
name = "file"
driver = "pcap"
addresses = ["10.7.0.254/24"]
"#;

/// A text, in parts, and what is said to it.
#[rustfmt::skip]
pub(super) const FAULTS: &[(&[&str], &str)] = &[
    // toml
    (&["[workers\ncount = 1\n"], r#"error: this is not TOML
 --> router.toml:1:9
  |
1 | [workers
  |         ^ unclosed table, expected `]`
  |
help: look for a missing quote, bracket or `=`, or a key written twice"#),
    (&["[workers]\ncount = 1\ncount = 2\n"], r#"error: this is not TOML
 --> router.toml:3:1
  |
3 | count = 2
  | ^^^^^ duplicate key
  |
help: look for a missing quote, bracket or `=`, or a key written twice"#),
    (&[LAN, r#"mtu = "1500
"#], r#"error: this is not TOML
 --> router.toml:5:12
  |
5 | mtu = "1500
  |            ^ invalid basic string, expected `"`
  |
help: look for a missing quote, bracket or `=`, or a key written twice"#),
    // keys
    (&["[wrokers]\ncount = 1\n"], r#"error: unknown key `wrokers` in the file
 --> router.toml:1:2
  |
1 | [wrokers]
  |  ^^^^^^^ no setting has this name
  |
help: did you mean `workers`?"#),
    (&["[ports]\nx = 1\n"], r#"error: unknown key `ports` in the file
 --> router.toml:1:2
  |
1 | [ports]
  |  ^^^^^ no setting has this name
  |
help: did you mean `port`?"#),
    (&["[workers]\ncuont = 1\n"], r#"error: unknown key `cuont` in [workers]
 --> router.toml:2:1
  |
2 | cuont = 1
  | ^^^^^ no setting has this name
  |
help: did you mean `count`?"#),
    (&[LAN, "mtuu = 1500\n"], r#"error: unknown key `mtuu` in [[port]]
 --> router.toml:5:1
  |
5 | mtuu = 1500
  | ^^^^ no setting has this name
  |
help: did you mean `mtu`?"#),
    (&[LAN, "colour = 1\n"], r#"error: unknown key `colour` in [[port]]
 --> router.toml:5:1
  |
5 | colour = 1
  | ^^^^^^ no setting has this name
  |
help: there are `name`, `driver`, `interface`, `addresses`, `mtu`, `checksum`, `mode`, `workers`, `steering`, `rx_ring`, `tx_ring`, `mac`, `queues`, `peer`, `generate`, `multi_buffer`, `read`, `timing`, `passes`, `bytes_max`, `write`, `snap_len`, `memory_bytes`, `tee`, `fault`, `vlan`"#),
    (&[LAN, "[port.generate]\nrate = 5\n"], r#"error: unknown key `rate` in [port.generate]
 --> router.toml:6:1
  |
6 | rate = 5
  | ^^^^ no setting has this name
  |
help: there are `source`, `destination`, `flows`, `size`, `packets_per_second`, `packets`, `seed`"#),
    (&[LAN, r#"[[route]]
prefx = "0.0.0.0/0"
"#], r#"error: unknown key `prefx` in [[route]]
 --> router.toml:6:1
  |
6 | prefx = "0.0.0.0/0"
  | ^^^^^ no setting has this name
  |
help: did you mean `prefix`?"#),
    (&["workers = 1\n"], r#"error: `workers` has to be a table
 --> router.toml:1:11
  |
1 | workers = 1
  |           ^ this is a whole number
  |
help: write [workers] on a line of its own, and its keys below"#),
    (&["port = 5\n"], r#"error: `port` has to be a list of tables
 --> router.toml:1:8
  |
1 | port = 5
  |        ^ this is a whole number
  |
help: write [[port]], with two brackets, once for each"#),
    (&[r#"[port]
name = "lan"
"#], r#"error: `port` has to be a list of tables
 --> router.toml:1:1
  |
1 | [port]
  | ^^^^^^ this is a table
  |
help: write [[port]], with two brackets, once for each"#),
    (&["route = [1]\n", LAN], r#"error: `route` has to be a list of tables
 --> router.toml:1:10
  |
1 | route = [1]
  |          ^ this is a whole number
  |
help: write [[route]], with two brackets, once for each"#),
    (&[LAN, "generate = 5\n"], r#"error: `generate` has to be a table
 --> router.toml:5:12
  |
5 | generate = 5
  |            ^ this is a whole number
  |
help: write [port.generate] on a line of its own, and its keys below"#),
    (&["[workers]\n"], r#"error: missing table [[port]] in the file
 --> router.toml:1:1
  |
1 | [workers]
  | ^ this names no port
  |
help: add a [[port]] with `name`, `driver` and `addresses` for each interface"#),
    (&[""], r#"error: missing table [[port]] in the file
 --> router.toml:1:1
  |
1 |
  | ^ this names no port
  |
help: add a [[port]] with `name`, `driver` and `addresses` for each interface"#),
    // workers
    (&["[workers]\ncount = 0\n"], r#"error: `count` in [workers] is out of bounds
 --> router.toml:2:9
  |
2 | count = 0
  |         ^ not in 1 to 128
  |
help: choose a number from 1 to 128"#),
    (&["[workers]\ncount = 129\n"], r#"error: `count` in [workers] is out of bounds
 --> router.toml:2:9
  |
2 | count = 129
  |         ^^^ not in 1 to 128
  |
help: choose a number from 1 to 128"#),
    (&["[workers]\ncount = 5\n"], r#"error: `count` in [workers] is more than there are cores
 --> router.toml:2:9
  |
2 | count = 5
  |         ^ this process may use 4
  |
help: set fewer, or list `cores`, where a core may occur twice"#),
    (&[r#"[workers]
count = "two"
"#], r#"error: `count` in [workers] has to be a whole number
 --> router.toml:2:9
  |
2 | count = "two"
  |         ^^^^^ this is a text
  |
help: write digits, without quotes or a decimal point"#),
    (&["[workers]\ncount = 1.5\n"], r#"error: `count` in [workers] has to be a whole number
 --> router.toml:2:9
  |
2 | count = 1.5
  |         ^^^ this is a number with a fraction
  |
help: write digits, without quotes or a decimal point"#),
    (&["[workers]\ncount = -1\n"], r#"error: `count` in [workers] is out of bounds
 --> router.toml:2:9
  |
2 | count = -1
  |         ^^ not in 1 to 128
  |
help: choose a number from 1 to 128"#),
    (&["[workers]\ncores = 1\n"], r#"error: `cores` in [workers] has to be a list
 --> router.toml:2:9
  |
2 | cores = 1
  |         ^ this is a whole number
  |
help: put the values in [ and ]"#),
    (&["[workers]\ncores = [1, 4]\n"], r#"error: no such core for `cores` in [workers]
 --> router.toml:2:13
  |
2 | cores = [1, 4]
  |             ^ this core is not there, or not allowed
  |
help: choose among the cores this process may use: 0, 1, 2, 3"#),
    (&["[workers]\ncores = []\n"], r#"error: `cores` in [workers] is out of bounds
 --> router.toml:2:9
  |
2 | cores = []
  |         ^^ 0 cores
  |
help: list 1 to 128 cores, or leave `cores` out"#),
    (&["[workers]\ncount = 1\ncores = [1, 2]\n"], r#"error: `cores` and `count` in [workers] disagree
 --> router.toml:3:9
  |
2 | count = 1
  |         - 1 workers
3 | cores = [1, 2]
  |         ^^^^^^ 2 cores
  |
help: list one core for each worker, or leave one of the two keys out"#),
    (&["[workers]\nidle_spin_us = 1000001\n"], r#"error: `idle_spin_us` in [workers] is out of bounds
 --> router.toml:2:16
  |
2 | idle_spin_us = 1000001
  |                ^^^^^^^ not in 0 to 1000000
  |
help: choose a number from 0 to 1000000"#),
    // frames icmp neighbour api
    (&["[frames]\nsize = 3000\n"], r#"error: `size` in [frames] is neither 2048 nor 4096
 --> router.toml:2:8
  |
2 | size = 3000
  |        ^^^^ not a frame size of AF_XDP
  |
help: choose 2048, or 4096 for an MTU above 1774"#),
    (&["[frames]\nsize = true\n"], r#"error: `size` in [frames] has to be a whole number
 --> router.toml:2:8
  |
2 | size = true
  |        ^^^^ this is true or false
  |
help: write digits, without quotes or a decimal point"#),
    (&["[frames]\ncount = 10\n"], r#"error: `count` in [frames] is out of bounds
 --> router.toml:2:9
  |
2 | count = 10
  |         ^^ not in 1024 to 4194304
  |
help: choose a number from 1024 to 4194304"#),
    (&["[frames]\nhot_list_len = 64\n"], r#"error: `hot_list_len` in [frames] is out of bounds
 --> router.toml:2:16
  |
2 | hot_list_len = 64
  |                ^^ not in 128 to 8192
  |
help: choose a number from 128 to 8192"#),
    (&["[icmp]\nerrors_per_second = 1000001\n"], r#"error: `errors_per_second` in [icmp] is out of bounds
 --> router.toml:2:21
  |
2 | errors_per_second = 1000001
  |                     ^^^^^^^ not in 0 to 1000000
  |
help: choose a number from 0 to 1000000"#),
    (&["[icmp]\nerrors_burst = 0\n"], r#"error: `errors_burst` in [icmp] is out of bounds
 --> router.toml:2:16
  |
2 | errors_burst = 0
  |                ^ not in 1 to 10000
  |
help: choose a number from 1 to 10000"#),
    (&["[neighbour]\nentries_max = 1\n"], r#"error: `entries_max` in [neighbour] is out of bounds
 --> router.toml:2:15
  |
2 | entries_max = 1
  |               ^ not in 16 to 30000
  |
help: choose a number from 16 to 30000"#),
    (&["[neighbour]\nhold_per_entry = 2000\n"], r#"error: `hold_per_entry` in [neighbour] is more than `hold_per_worker`
 --> router.toml:2:18
  |
2 | hold_per_entry = 2000
  |                  ^^^^ 2000 against 1024
  |
help: one neighbour's packets count for the worker too: raise `hold_per_worker`"#),
    (&["[neighbour]\nhold_per_worker = 100\n"], r#"error: `hold_per_entry` in [neighbour] is more than `hold_per_worker`
 --> router.toml:2:19
  |
2 | hold_per_worker = 100
  |                   ^^^ 101 against 100
  |
help: one neighbour's packets count for the worker too: raise `hold_per_worker`"#),
    (&["[neighbour]\nhold_per_worker = 99999999999999999999\n"], r#"error: `hold_per_worker` in [neighbour] is out of bounds
 --> router.toml:2:19
  |
2 | hold_per_worker = 99999999999999999999
  |                   ^^^^^^^^^^^^^^^^^^^^ not in 1 to 65536
  |
help: choose a number from 1 to 65536"#),
    (&[r#"[api]
socket = "manylane.sock"
"#], r#"error: `socket` in [api] cannot be a socket's path
 --> router.toml:2:10
  |
2 | socket = "manylane.sock"
  |          ^^^^^^^^^^^^^^^ not an absolute path
  |
help: write a short path from the root, as /run/manylane/manylane.sock"#),
    (&[r#"[api]
socket = "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
"#], r#"error: `socket` in [api] cannot be a socket's path
 --> router.toml:2:10
  |
2 | socket = "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ longer than 107 bytes
  |
help: write a short path from the root, as /run/manylane/manylane.sock"#),
    // port
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
help: did you mean `af_xdp`? There are `auto`, `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`"#),
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
    // steering
    (&["[steering]\nnetdev_max_backlog = 10\n"], r#"error: `netdev_max_backlog` in [steering] is out of bounds
 --> router.toml:2:22
  |
2 | netdev_max_backlog = 10
  |                      ^^ not in 64 to 32768
  |
help: choose a number from 64 to 32768"#),
    (&["[steering]\nnetdev_maxbacklog = 1000\n"], r#"error: unknown key `netdev_maxbacklog` in [steering]
 --> router.toml:2:1
  |
2 | netdev_maxbacklog = 1000
  | ^^^^^^^^^^^^^^^^^ no setting has this name
  |
help: did you mean `netdev_max_backlog`?"#),
    (&["[workers]\ncount = 2\n[steering]\nreceivers = [0, 2]\n"], r#"error: no such worker for `receivers` in [steering]
 --> router.toml:4:17
  |
4 | receivers = [0, 2]
  |                 ^ the workers are 0 to 1
  |
help: choose 0 to 1, or raise `count` in [workers]"#),
    (&[LAN, "steering = \"flows\"\n"], r#"error: unknown value `flows` for `steering` in [[port]]
 --> router.toml:5:12
  |
5 | steering = "flows"
  |            ^^^^^^^ not a value of `steering`
  |
help: did you mean `flow`? There are `queue`, `flow`"#),
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
help: did you mean `repair`? There are `repair`, `trust`"#),
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
    (&[LAN, "workers = [0, 1]\n"], r#"error: `workers` in [[port]] is not as long as there are queues
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
    (&[WAN, "workers = []\n"], r#"error: `workers` in [[port]] is not as long as there are queues
 --> router.toml:6:11
  |
6 | workers = []
  |           ^^ for 0 queues; a port has 1 to 256
  |
help: list one worker for each queue, or leave `workers` out"#),
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
help: write where packets go, for example `destination = "10.2.0.0/16"`"#),
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
    // ports
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
    // route
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
help: did you mean `lan`? There are `lan`"#),
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
help: did you mean `blackhole`? There are `blackhole`, `unreachable`, `prohibit`"#),
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
    // captures, copies, faults
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
    // static neighbours
    (&[LAN, r#"[neighbour]
duplicate_detection = "srtict"
"#], r#"error: unknown value `srtict` for `duplicate_detection` in [neighbour]
 --> router.toml:6:23
  |
6 | duplicate_detection = "srtict"
  |                       ^^^^^^^^ not a value of `duplicate_detection`
  |
help: did you mean `strict`? There are `optimistic`, `strict`, `off`"#),
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
help: did you mean `lan`? There are `lan`"#),
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

    // sub-interfaces
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
help: did you mean `802.1q`? There are `802.1q`, `802.1ad`"#),
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
];
