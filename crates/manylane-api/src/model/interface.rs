//! An interface's counters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An interface's counters since it exists, under their names in IF-MIB (RFC 2863): the kernel's, as `ip -s link` shows them,
/// and packets that manylane forwarded and that the interface's driver does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceCounters {
    /// Octets received, as the driver counts them: most drivers from the Ethernet header on.
    #[serde(rename = "ifHCInOctets")]
    pub in_octets: u64,
    /// Packets received, but for those to groups that the driver counts.
    #[serde(rename = "ifHCInUcastPkts")]
    pub in_unicast: u64,
    /// Packets received for groups, as far as the driver counts them.
    #[serde(rename = "ifHCInMulticastPkts")]
    pub in_multicast: u64,
    /// Received packets that the device, its driver or manylane's workers dropped.
    #[serde(rename = "ifInDiscards")]
    pub in_discards: u64,
    /// Received frames with errors.
    #[serde(rename = "ifInErrors")]
    pub in_errors: u64,
    /// Octets transmitted, as the driver counts them.
    #[serde(rename = "ifHCOutOctets")]
    pub out_octets: u64,
    /// Packets transmitted, with those to groups: Linux does not tell them apart.
    #[serde(rename = "ifHCOutUcastPkts")]
    pub out_unicast: u64,
    /// Packets that the device, its driver or its queueing discipline dropped instead of sending them.
    #[serde(rename = "ifOutDiscards")]
    pub out_discards: u64,
    /// Packets that could not be transmitted for errors.
    #[serde(rename = "ifOutErrors")]
    pub out_errors: u64,
    /// The packets received that the kernel's counters lack.
    pub in_added: u64,
    /// The packets transmitted that the kernel's counters lack.
    pub out_added: u64,
}
