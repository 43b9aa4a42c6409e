//! Export of what a router has forwarded, to collectors on the network.
//!
//! | Room           | Holds                                                                                    |
//! |----------------|------------------------------------------------------------------------------------------|
//! | `collector.rs` | [`Collector`]: an address, a socket that never waits, and counts of what it did not take   |
//!
//! A collector knows nothing of what messages mean.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod collector;

pub use collector::{Collector, CollectorAddress, CollectorStatus, Destination, Transport};
