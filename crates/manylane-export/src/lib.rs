//! Export of what a router has forwarded, to collectors on the network.
//!
//! | Room           | Holds                                                                                    |
//! |----------------|------------------------------------------------------------------------------------------|
//! | `collector/`   | [`Collector`]: an address, a socket that never waits, and counts of what was lost         |
//! | `ipfix/`       | [`Exporter`](ipfix::Exporter): records of flows and of translations (RFC 7011, RFC 8158) |
//! | `sflow/`       | sFlow version 5: samples, and the datagrams that carry them                              |
//!
//! A collector knows nothing of what messages mean.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod collector;
pub mod ipfix;
pub mod sflow;

pub use collector::{
    AddressError, Collector, CollectorAddress, CollectorStatus, Destination, Transport,
};
