//! What is exported to collectors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sflow::SflowStatus;

/// Collectors, and the messages to each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ExportStatus {
    /// The collectors, in the order in which they were named; none if nothing is exported.
    pub collectors: Vec<CollectorStatus>,
    /// A flow that lasts has a record this often, in seconds; 0 without a collector of IPFIX.
    pub active_s: u64,
    /// A flow without packets for this many seconds has its record.
    pub inactive_s: u64,
    /// The observation domain's number.
    pub domain: u32,
    /// Records that the queue to the exporter's thread had no room for: no collector has them.
    pub queue_lost_records: u64,
    /// Packets that these records tell of.
    pub queue_lost_packets: u64,
    /// The log of translations; none if it is off.
    pub nat_log: Option<NatLogStatus>,
    /// Flow records of samples; none if they are off.
    pub sampled: Option<SampledStatus>,
    /// Samples; none without a collector of sFlow.
    pub sflow: Option<SflowStatus>,
}

/// Of `manylane run`: collectors of samples, and the messages to each. As much of [`ExportStatus`] as it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SampleExportStatus {
    /// The collectors, in the order in which they were named; none if nothing is exported.
    pub collectors: Vec<CollectorStatus>,
    /// Samples; none without a collector.
    pub sflow: Option<SflowStatus>,
}

/// A collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectorStatus {
    /// Its address, as the operator wrote it.
    pub address: String,
    /// What it is sent: `ipfix`, `ipfix-sampled` or `sflow`.
    pub protocol: String,
    /// `idle`: nothing has been sent yet; `connecting`; `sending`; `unreachable`.
    pub state: String,
    /// Why it is unreachable.
    pub trouble: Option<String>,
    /// Messages that the kernel has taken.
    pub sent_messages: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Records of flows and translations in them, or samples.
    pub sent_records: u64,
    /// Messages that could not be sent.
    pub lost_messages: u64,
    /// Records in them.
    pub lost_records: u64,
    /// Messages by UDP, of those sent, for which the host reported that no program listens.
    pub refused_messages: u64,
    /// TCP connections that were opened.
    pub connections: u64,
}

/// The log of translations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NatLogStatus {
    /// Translations that began or ended.
    pub events: u64,
    /// Times that the kernel dropped announcements, since manylane was too slow: each time the log lacks some.
    pub gaps: u64,
    /// Why conntrack cannot be heard.
    pub trouble: Option<String>,
}

/// Flow records of sampled packets: those that are forwarded without an entry of the flow table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SampledStatus {
    /// The observation domain's number, which no exact record has.
    pub domain: u32,
    /// One packet in how many is a sample, as records state it.
    pub rate: u32,
    /// Samples in records, and in flows that will have a record.
    pub samples: u64,
    /// Flows that have no record yet.
    pub flows: u64,
    /// Records that were written early, since another flow needed the memory.
    pub evicted: u64,
    /// Samples that found no room in the programs' ring; some of them may belong to connections with exact records.
    pub lost: u64,
}
