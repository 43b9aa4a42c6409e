//! A Linux router's own forwarding, taken over where that is faster: what `manylane accelerate` is, without its
//! command line.
//!
//! | Room            | Contents                                                                         | May use                 |
//! |-----------------|----------------------------------------------------------------------------------|-------------------------|
//! | [`programs`]    | the BPF programs that forward, their tables in memory, their loader; `unsafe`    | nothing                 |
//! | [`gate`]        | which interfaces the kernel would only route by                                  | `programs`              |
//! | [`firewall`]    | what the rules of the kernel would do to packets of established connections      | nothing                 |
//! | `lane`          | connections that may be forwarded: found, approved, renewed, let go              | `firewall`, `programs`, `questions` |
//! | `nat_log`       | translations that begin and end, for collectors                                  | nothing                 |
//! | `questions`     | questions to a thread                                                            | nothing                 |
//! | [`accelerator`] | the threads, the lease, the tiers, the ledger, workers on AF_XDP                 | all above               |
//!
//! The model of the kernel's routing, and the edits that bring the tables up to it, are the crate `manylane-mirror`.
//!
//! Only [`programs`] has `unsafe`: it gives the kernel addresses (bpf(2)) and maps what programs read.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod accelerator;
pub mod firewall;
#[cfg(test)]
mod fixtures;
pub mod gate;
mod lane;
mod nat_log;
#[allow(
    unsafe_code,
    reason = "system calls that take addresses, and memory shared with the kernel"
)]
pub mod programs;
mod questions;

#[cfg(test)]
mod message_tests;
