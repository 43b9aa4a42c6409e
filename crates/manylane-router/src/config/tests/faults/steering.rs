//! Of `[steering]`, and of a port's.

use super::{Fault, LAN};

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
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
help: choose 0 to 1, or raise `count` or `max` in [workers]"#),
    (&[LAN, "steering = \"flows\"\n"], r#"error: unknown value `flows` for `steering` in [[port]]
 --> router.toml:5:12
  |
5 | steering = "flows"
  |            ^^^^^^^ not a value of `steering`
  |
help: did you mean `flow`? Known are `queue`, `flow`"#),
];
