//! Of the text: what TOML is not, and names that nothing has.

use super::{Fault, LAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
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
help: there are `name`, `driver`, `interface`, `addresses`, `mtu`, `checksum`, `mode`, `workers`, `steering`, `sflow_rate`, `rx_ring`, `tx_ring`, `mac`, `queues`, `peer`, `generate`, `multi_buffer`, `read`, `timing`, `passes`, `bytes_max`, `write`, `snap_len`, `memory_bytes`, `tee`, `fault`, `vlan`"#),
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
];
