//! What is sampled for sFlow collectors.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Samples for sFlow collectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SflowStatus {
    /// The router's address, as collectors know it; missing until a collector can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub agent: Option<IpAddr>,
    /// Milliseconds between two samples of an interface's counters.
    pub polling_ms: u64,
    /// Packet samples made: those that programs or workers noted, and the exporter has read.
    pub samples: u64,
    /// Discarded packets reported.
    pub discarded: u64,
    /// Discarded packets that were not reported: too many in a second.
    pub unreported: u64,
    /// The ports, in the order in which they were named.
    pub ports: Vec<SflowPort>,
}

/// What is sampled of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SflowPort {
    /// Of `accelerate` the name of the port's interface, of `run` the port's.
    pub name: String,
    /// One packet in how many is sampled; 0 before the first.
    pub rate: u32,
    /// Packets that could have been samples.
    pub pool: u64,
    /// Samples that programs or workers noted, and that were not lost.
    pub noted: u64,
    /// Samples that were lost: the exporter was too slow, or one packet of segments had more than 64.
    pub lost: u64,
    /// Discarded packets that programs or workers did not note: too many in a second.
    pub unreported: u64,
}
