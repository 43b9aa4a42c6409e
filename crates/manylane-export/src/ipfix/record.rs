//! What is exported.

use std::net::{IpAddr, SocketAddr};

use super::sampled::SampledFlow;
use crate::collector::Load;

/// Both ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Its source.
    pub source: SocketAddr,
    /// Its destination, of the same family.
    pub destination: SocketAddr,
}

impl Ends {
    /// These addresses and ports.
    pub fn new((source, from): (IpAddr, u16), (destination, to): (IpAddr, u16)) -> Ends {
        Ends { source: (source, from).into(), destination: (destination, to).into() }
    }
}

/// Why a flow record was written (`flowEndReason`, element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// No packet for the inactive timeout.
    IdleTimeout = 1,
    /// The flow lasts longer than the active timeout, and continues.
    ActiveTimeout = 2,
    /// The connection has ended.
    EndOfFlow = 3,
    /// The exporter or its operator ended it.
    Forced = 4,
    /// The exporter needed the flow's memory for another one.
    LackOfResources = 5,
}

/// Packets of one direction of a connection, since the record before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// As the packets arrive.
    pub received: Ends,
    /// As they leave.
    pub sent: Ends,
    /// The protocol's number.
    pub protocol: u8,
    /// The interfaces' numbers (ifIndex) by which they arrive and leave.
    pub interfaces: [u32; 2],
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub octets: u64,
    /// No packet was earlier: milliseconds since 1970.
    pub start_ms: u64,
    /// The last packet.
    pub end_ms: u64,
    /// Why the record was written.
    pub reason: EndReason,
}

/// What happened to a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatChange {
    /// The translation began.
    Created,
    /// The translation ended.
    Deleted,
}

/// A translation begins or ends (RFC 8158).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatEvent {
    /// When: milliseconds since 1970.
    pub time_ms: u64,
    /// What.
    pub change: NatChange,
    /// The connection's first packet as it arrives.
    pub received: Ends,
    /// The same packet as it leaves.
    pub sent: Ends,
    /// The protocol's number.
    pub protocol: u8,
}

/// A record for all collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of packets.
    Flow(FlowRecord),
    /// Of a translation.
    Nat(NatEvent),
    /// Of sampled packets.
    Sampled(SampledFlow),
}

impl Record {
    /// What is lost without it.
    pub(super) fn load(&self) -> Load {
        let (packets, octets) = match self {
            Record::Flow(flow) => (flow.packets, flow.octets),
            Record::Nat(_) => (0, 0),
            Record::Sampled(flow) => (flow.packets, flow.packet.octets),
        };
        Load { records: 1, packets, octets }
    }
}

impl From<FlowRecord> for Record {
    fn from(record: FlowRecord) -> Record {
        Record::Flow(record)
    }
}

impl From<NatEvent> for Record {
    fn from(event: NatEvent) -> Record {
        Record::Nat(event)
    }
}

/// What a collector has been sent (RFC 7011, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exported {
    pub domain: u32,
    pub messages: u64,
    pub flow_records: u64,
    pub octets: u64,
}

/// What a collector has not been sent (RFC 7011, section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NotSent {
    pub process: u32,
    pub flows: u64,
    pub packets: u64,
    pub octets: u64,
}

/// How an observation domain's packets are sampled (`samplingInterval`, `samplingAlgorithm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    pub domain: u32,
    /// One packet in how many.
    pub rate: u32,
}
