//! Scenarios of the accelerator: a kernel's router between two hosts, and `manylane accelerate` beside it.
//!
//! One file is one scenario; `cargo test -p manylane --test accelerate lease::` runs its tests. The tests need root,
//! and print `SKIPPED` without it. The rules of `tests/netns/main.rs` hold here too.

#[path = "../messages/mod.rs"]
#[allow(dead_code, unused_macros)] // The pages of errors are in the crates.
mod messages;

#[path = "../../crates/manylane-api/tests/browser/mod.rs"]
#[allow(dead_code, reason = "other tests ask for more")]
mod browser;
#[path = "../../crates/manylane/tests/terminal/mod.rs"]
#[allow(dead_code, reason = "other tests ask for more")]
mod terminal;

mod account;
mod bird;
mod capture;
mod counters;
mod diamond;
mod driver;
mod export;
mod fail_open;
mod filters;
mod flow_views;
mod flows;
mod frr;
mod gate_doctor;
mod gate_stateful;
mod goflow2;
mod hosts;
mod keepalives;
mod lease;
mod mirror;
mod missing;
mod nfdump;
mod privileges;
mod reload;
mod rtnl;
mod rules;
mod sampled;
mod sflow;
mod stateful_changes;
mod stateful_rules;
mod stateful_traffic;
mod table;
mod talk;
mod trace;
mod transit;
mod tshark;
mod why;
mod workers;
mod wrong_daemon;
