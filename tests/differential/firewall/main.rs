//! What the evaluator of the firewall's rules says, held against rules that firewalls write, and against the kernel.
//!
//! | file              | holds                                                                                     |
//! |-------------------|-------------------------------------------------------------------------------------------|
//! | `fixtures.rs`     | rulesets of `testdata/firewall/`, and what the evaluator says of each                     |
//! | `generate.rs`     | random rules, for nft, iptables-nft and legacy iptables                                   |
//! | `connections.rs`  | a router with established connections, and their packets                                  |
//! | `against.rs`      | where the evaluator says yes, the kernel accepts and does nothing else                    |
//! | `cost.rs`         | what a question costs                                                                     |
//! | `bugs.rs`         | planted bugs, which that comparison finds                                                 |
//!
//! `FIREWALL_PACKETS=1000000 cargo test -p manylane-accelerate --test firewall against` sends a million packets.
//! All tests need root, and print `SKIPPED` without it.

mod against;
mod bugs;
mod connections;
mod cost;
mod fixtures;
mod generate;
#[allow(dead_code, reason = "others use what is left")]
#[path = "../random.rs"]
mod random;
