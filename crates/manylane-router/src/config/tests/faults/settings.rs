//! Of `[workers]`, `[frames]`, `[icmp]`, `[neighbour]` and `[api]`.

use super::Fault;

#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
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
    (&["[workers]\ncount = 5\n"], r#"error: `count` in [workers] is more than the machine has cores
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
    (&["[workers]\ncount = 3\nmax = 2\n"], r#"error: `max` in [workers] is less than `count`
 --> router.toml:3:7
  |
2 | count = 3
  |         - 3 workers
3 | max = 2
  |       ^ at most 2
  |
help: raise `max`, or leave it out: it is for workers that are added while the daemon runs"#),
    (&["[workers]\nmax = 5\n"], r#"error: `max` in [workers] is more than the machine has cores
 --> router.toml:2:7
  |
2 | max = 5
  |       ^ this process may use 4
  |
help: set fewer, or list `cores`, where a core may occur twice"#),
    (&["[workers]\ncount = 1\nmax = 3\ncores = [1, 2]\n"], r#"error: `cores` and `max` in [workers] disagree
 --> router.toml:4:9
  |
3 | max = 3
  |       - 3 workers
4 | cores = [1, 2]
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
listen = "9176"
"#], r#"error: `listen` in [api] has to be an address and a port
 --> router.toml:2:10
  |
2 | listen = "9176"
  |          ^^^^^^ not an IP address, a colon and a port
  |
help: write it as "127.0.0.1:9176" or "[::1]:9176""#),
    (&[r#"[api]
listen = "0.0.0.0:9176"
"#], r#"error: `listen` in [api] lets others than this host ask, without a token
 --> router.toml:2:10
  |
2 | listen = "0.0.0.0:9176"
  |          ^^^^^^^^^^^^^^ not a loopback address
  |
help: write 127.0.0.1 or [::1], or add `token_file`, a file that only its owner can read"#),
    (&[r#"[api]
host_name = "http://router1/"
"#], r#"error: `host_name` in [api] has to be a host's name
 --> router.toml:2:13
  |
2 | host_name = "http://router1/"
  |             ^^^^^^^^^^^^^^^^^ not letters, digits, dots and hyphens
  |
help: write the name alone, as router1.example.net"#),
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
socket = "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
"#], r#"error: `socket` in [api] cannot be a socket's path
 --> router.toml:2:10
  |
2 | socket = "/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ longer than 99 bytes
  |
help: write a short path from the root, as /run/manylane/manylane.sock"#),
    (&["[sockets]\nmax = 0\n"], r#"error: `max` in [sockets] is out of bounds
 --> router.toml:2:7
  |
2 | max = 0
  |       ^ not in 1 to 65536
  |
help: choose a number from 1 to 65536"#),
    (&["[sockets]\nmemory = 1\n"], r#"error: unknown key `memory` in [sockets]
 --> router.toml:2:1
  |
2 | memory = 1
  | ^^^^^^ no setting has this name
  |
help: did you mean `memory_max`?"#),
];
