//! IPFIX (RFC 7011): records of flows and of translations (RFC 8158), as messages.
//!
//! | File          | Holds                                                                                     |
//! |---------------|-------------------------------------------------------------------------------------------|
//! | `record.rs`   | [`FlowRecord`], [`NatEvent`], statistics: what is exported                                  |
//! | `sampled.rs`  | [`SampledFlows`]: samples of packets become records of sampled flows                       |
//! | `template.rs` | which information elements a record has, each with what writes it                          |
//! | `message.rs`  | `MessageBuilder`: headers, sets, lengths                                                  |
//! | `session.rs`  | `Session`: one collector's sequence number, and when it is sent templates and statistics  |
//! | `exporter.rs` | [`Exporter`]: the thread that sends what other threads hand over                           |
//!
//! All but `exporter.rs` is pure: no socket, no clock, no thread.
//!
//! # Why this is our own code
//!
//! `netgauze-flow-pkt`, `netflow_parser` and `flowscope` encode IPFIX, too. The first two decode first of all: each field
//! of a record is an allocated value of an enumeration of all of IANA's elements, and neither counts sequence numbers or
//! bounds a message. The third does, as a part of a tracker for captures with its own record, which has no translated
//! addresses. What is left to write for fixed templates is this room.

mod exporter;
mod message;
mod record;
mod sampled;
mod session;
mod template;
#[cfg(test)]
mod tests;

pub use exporter::{ExportStatus, Exporter, ExporterOptions, ExporterWatch, RecordSender};
pub use message::{MESSAGE_MAX, MessageBuilder};
pub use record::{EndReason, Ends, FlowRecord, NatChange, NatEvent, Record};
pub use sampled::{
    SampledCounts, SampledFlow, SampledFlows, SampledKey, SampledPacket, SampledTerms,
};

/// IANA's port for IPFIX by UDP and TCP.
pub const PORT: u16 = 4739;
