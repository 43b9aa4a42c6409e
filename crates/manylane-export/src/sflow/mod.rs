//! sFlow version 5: datagrams with packet samples, counter samples and discarded packets.
//!
//! | File          | Holds                                                                               |
//! |---------------|-------------------------------------------------------------------------------------|
//! | `writer.rs`   | numbers and addresses, as XDR has them (RFC 4506)                                   |
//! | `flow.rs`     | a packet sample: header, VLANs, route, translation                                  |
//! | `counters.rs` | a counter sample: the generic counters of an interface                              |
//! | `discard.rs`  | a discarded packet, and the reasons that the standard has                           |
//! | `datagram.rs` | [`Datagrams`]: samples, put together and numbered                                   |
//! | `sender.rs`   | [`Sender`]: datagrams to every collector                                            |
//! | `options.rs`  | what an operator chooses, and how it is read                                        |
//!
//! The formats are those of sflow_version_5.txt and sflow_drops.txt (sflow.org), with the compact encoding of interfaces:
//! manylane has none whose number is above 2^24. The code is manylane's own: of the crates with `sflow` in their names,
//! `sflow`, `sflow-parser` and `flowparser-sflow` decode and do not encode, and `frameassembly` writes a datagram's header
//! without samples.

mod counters;
mod datagram;
mod discard;
mod flow;
mod options;
mod sender;
#[cfg(test)]
mod tests;
mod writer;

pub use counters::InterfaceCounters;
pub use datagram::{Agent, Datagram, Datagrams};
pub use discard::{DiscardReason, DiscardedPacket};
pub use flow::{FlowSample, Header, Output, Router, Switch, Translation};
pub use options::{POLLING, RATE, RATE_MAX, SflowOptions, read_collector, read_rate};
pub use sender::{REPORTS, Sender};

/// The port of collectors.
pub const PORT: u16 = 6343;
