//! A forwarding engine with no I/O in it.
//!
//! | room          | what it is                                                       | stands on                  |
//! |---------------|------------------------------------------------------------------|----------------------------|
//! | [`wire`]      | wire formats, as checked views of bytes                          |                            |
//! | [`fib`]       | longest-prefix match, edited while workers look up               |                            |
//! | [`filter`]    | classic BPF: checked once, then run for each packet              |                            |
//! | [`icmp`]      | errors and echo: when one may be sent, and its bytes             | `wire`                     |
//! | [`neighbour`] | states of neighbours and of our own addresses; held packets      | `wire`                     |
//! | [`nexthop`]   | what a route leads to: a neighbour, a group, ourselves           | `fib`, `neighbour`         |
//! | [`forward`]   | batch in, verdicts out: the rules of a router                    | all of the above           |
//! | [`transit`]   | the decision of the kernel's program, over tables shared with it | `forward` and what it uses |
//! | [`generate`]  | streams of packets that prove order and integrity                | `icmp`, `wire`             |
//!
//! A room may use the rooms that its row names, the frames of [`manylane_frame`] and the tables and guards of
//! [`manylane_sync`]. No room makes a system call, starts a thread or reads a clock: time is an argument. Workers call
//! `forward`, one engine each; the control thread writes the tables.
#![doc = include_str!("../front.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod fib;
pub mod filter;
pub mod forward;
pub mod generate;
pub mod icmp;
pub mod neighbour;
pub mod nexthop;
pub mod transit;
pub mod wire;

#[cfg(all(test, not(manylane_loom)))]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(all(test, not(manylane_loom)))]
mod message_tests;

/// The code of README.md runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
