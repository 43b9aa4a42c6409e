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
