//! Of `[sflow]`, and of rates of single ports.

use super::{Fault, LAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    (&["[sflow]\nrate = 10\n"], r#"error: missing key `collectors` in [sflow]
 --> router.toml:1:1
  |
1 | [sflow]
  | ^^^^^^^ this has no `collectors`
  |
help: list where samples go, for example `collectors = ["192.0.2.5"]`"#),
    (&["[sflow]\ncollectors = []\n"], r#"error: `collectors` in [sflow] is empty
 --> router.toml:2:14
  |
2 | collectors = []
  |              ^^ none
  |
help: list where samples go, for example `collectors = ["192.0.2.5"]`"#),
    (&["[sflow]\ncollectors = [\"tcp://192.0.2.5\"]\n"], r#"error: `tcp://192.0.2.5` in `collectors` in [sflow] is no collector
 --> router.toml:2:15
  |
2 | collectors = ["tcp://192.0.2.5"]
  |               ^^^^^^^^^^^^^^^^^ sFlow has no transport but UDP
  |
help: write HOST or HOST:PORT, with an IPv6 address in brackets"#),
    (&["[sflow]\ncollectors = [\"192.0.2.5:0\"]\n"], r#"error: `192.0.2.5:0` in `collectors` in [sflow] is no collector
 --> router.toml:2:15
  |
2 | collectors = ["192.0.2.5:0"]
  |               ^^^^^^^^^^^^^ the port is no number from 1 to 65535
  |
help: write HOST or HOST:PORT, with an IPv6 address in brackets"#),
    (&["[sflow]\ncollectors = [\"2001:db8::5\"]\n"], r#"error: `2001:db8::5` in `collectors` in [sflow] is no collector
 --> router.toml:2:15
  |
2 | collectors = ["2001:db8::5"]
  |               ^^^^^^^^^^^^^ this names no host
  |
help: write HOST or HOST:PORT, with an IPv6 address in brackets"#),
    (&["[sflow]\ncollectors = [\"192.0.2.5\", \"192.0.2.5:6343\"]\n"], r#"error: duplicate collector udp://192.0.2.5:6343 in `collectors` in [sflow]
 --> router.toml:2:28
  |
2 | collectors = ["192.0.2.5", "192.0.2.5:6343"]
  |               -----------  ^^^^^^^^^^^^^^^^ a second time
  |               |
  |               first here
  |
help: remove one of the two"#),
    (&["[sflow]\ncollectors = [\"192.0.2.5\"]\nrate = 0\n"], r#"error: `rate` in [sflow] is out of bounds
 --> router.toml:3:8
  |
3 | rate = 0
  |        ^ not in 1 to 16777216
  |
help: choose a number from 1 to 16777216"#),
    (&["[sflow]\ncollectors = [\"192.0.2.5\"]\nagent = \"router\"\n"], r#"error: `agent` in [sflow] has to be an address
 --> router.toml:3:9
  |
3 | agent = "router"
  |         ^^^^^^^^ no IP address
  |
help: write an address of this router, or leave the key out"#),
    (&[LAN, "sflow_rate = 100\n"], r#"error: misplaced key `sflow_rate` in [[port]]
 --> router.toml:5:1
  |
5 | sflow_rate = 100
  | ^^^^^^^^^^ no [sflow] names a collector
  |
help: add [sflow] with `collectors`, or remove the key"#),
];
