//! A forwarding engine with no I/O in it.
#![forbid(unsafe_code)]

pub mod fib;
pub mod filter;
pub mod forward;
pub mod generate;
pub mod icmp;
pub mod neighbour;
pub mod nexthop;
pub mod transit;
pub mod wire;

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(test)]
mod errors;
