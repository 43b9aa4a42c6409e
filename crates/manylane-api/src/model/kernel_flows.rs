//! Connections that the kernel forwards although packets are forwarded by connection, and what keeps each of them there.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiError;
use super::tracked::{FlowObstacle, LaneCount, TransportProtocol, check_limit};

/// Which connections of the kernel to list: the body of `POST /v1/accelerate/flows/kernel`. An omitted field chooses all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KernelFlowsRequest {
    /// An interface by which packets of either direction arrive or leave.
    pub port: Option<String>,
    /// An address of either end, before or after translation.
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// The protocol.
    pub protocol: Option<TransportProtocol>,
    /// A TCP or UDP port of either end, before or after translation.
    pub transport_port: Option<u16>,
    /// Whether the connection is translated.
    pub translated: Option<bool>,
    /// What keeps the connection in the kernel, as `reason` of the answer spells it.
    pub reason: Option<String>,
    /// Connections of a page: 1 to 1000, by default 100.
    pub limit: usize,
    /// Connections before the page; by default none.
    pub offset: usize,
}

impl Default for KernelFlowsRequest {
    fn default() -> KernelFlowsRequest {
        KernelFlowsRequest {
            port: None,
            address: None,
            protocol: None,
            transport_port: None,
            translated: None,
            reason: None,
            limit: 100,
            offset: 0,
        }
    }
}

impl KernelFlowsRequest {
    /// Whether the page is one that can be listed.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        check_limit(self.limit)
    }
}

/// A page of the connections that the kernel forwards, in the order of conntrack's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelFlows {
    /// Connections of the kernel that the request chooses, on all pages; at least as many if `is_truncated`.
    pub total: u64,
    /// Connections of conntrack that this request read.
    pub read: u64,
    /// Connections, of these, that have an entry in the flow table.
    pub tracked: u64,
    /// Connections, of these, of the router itself: no packet of theirs is forwarded.
    pub local: u64,
    /// Connections, of these, of a family whose packets are forwarded without a connection.
    pub unneeded: u64,
    /// Whether conntrack has more connections than one request reads, or the kernel more than one request explains: then
    /// a filter by address, protocol or port finds those that are missing here.
    pub is_truncated: bool,
    /// Connections before this page.
    pub offset: u64,
    /// Whether conntrack counts the packets of connections that begin now (`net.netfilter.nf_conntrack_acct`).
    #[serde(default)]
    pub counts: bool,
    /// What keeps the chosen connections in the kernel, and how many each reason keeps.
    pub reasons: Vec<LaneCount>,
    /// The page.
    pub flows: Vec<KernelFlow>,
    /// Why nothing can be listed.
    pub trouble: Option<String>,
}

/// A connection that the kernel forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelFlow {
    /// The connection's id in conntrack, as `conntrack -L -o id` prints it.
    pub id: u32,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or the protocol's number.
    pub protocol: String,
    /// The source of the original direction's packets as they arrive: address and port, or the address where the protocol
    /// has no ports.
    pub source: String,
    /// Their destination as they arrive.
    pub destination: String,
    /// Their source as they leave.
    pub translated_source: String,
    /// Their destination as they leave.
    pub translated_destination: String,
    /// What is translated: `none`, `snat`, `dnat` or `both`.
    pub nat: String,
    /// The interface by which the original direction's packets arrive, by the route of the replies; none where that route
    /// leads out by no interface that manylane forwards to.
    pub ingress: Option<String>,
    /// The interface by which they leave, by their route; none where that is no interface that manylane forwards to.
    pub egress: Option<String>,
    /// The connection as conntrack has it: the state of TCP, whether it is assured, its mark.
    pub state: String,
    /// What keeps it in the kernel, in a word.
    pub reason: String,
    /// The same as a sentence; of a rule, table, chain, handle and text.
    pub explanation: String,
    /// The rule, if one keeps it in the kernel.
    pub obstacle: Option<FlowObstacle>,
    /// What conntrack has counted; none of a connection that began while conntrack did not count.
    #[serde(default)]
    pub counted: Option<KernelCounts>,
    /// Seconds until conntrack forgets the connection, unless it is used.
    pub expires_s: Option<u64>,
}

/// Packets and bytes of a connection, as conntrack has counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelCounts {
    /// Packets of the original direction.
    pub original_packets: u64,
    /// Their bytes, from the IP header on.
    pub original_bytes: u64,
    /// Packets of the replies.
    pub reply_packets: u64,
    /// Their bytes, from the IP header on.
    pub reply_bytes: u64,
}

impl KernelCounts {
    /// Packets of both directions.
    pub fn packets(&self) -> u64 {
        self.original_packets.wrapping_add(self.reply_packets)
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.original_bytes.wrapping_add(self.reply_bytes)
    }
}
