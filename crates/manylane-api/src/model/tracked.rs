//! Connections that an accelerator forwards one by one, and the thread that looks after them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiError;

/// A protocol whose connections are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransportProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl TransportProtocol {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            TransportProtocol::Tcp => "tcp",
            TransportProtocol::Udp => "udp",
        }
    }
}

impl fmt::Display for TransportProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TransportProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<TransportProtocol, String> {
        match text {
            "tcp" => Ok(TransportProtocol::Tcp),
            "udp" => Ok(TransportProtocol::Udp),
            _ => Err(format!("{text:?} is neither tcp nor udp")),
        }
    }
}

/// Which entries of the flow table to list: the body of `POST /v1/accelerate/flows/table`. An omitted field chooses all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrackedFlowsRequest {
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
    /// Entries of a page: 1 to 1000, by default 100.
    pub limit: usize,
    /// Entries before the page; by default none.
    pub offset: usize,
}

impl Default for TrackedFlowsRequest {
    fn default() -> TrackedFlowsRequest {
        TrackedFlowsRequest {
            port: None,
            address: None,
            protocol: None,
            transport_port: None,
            translated: None,
            limit: 100,
            offset: 0,
        }
    }
}

impl TrackedFlowsRequest {
    /// Whether the page is one that can be listed.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        check_limit(self.limit)
    }
}

/// Whether a page can have this many entries.
pub(super) fn check_limit(limit: usize) -> Result<(), ApiError> {
    match (1..=FLOWS_PAGE_MAX).contains(&limit) {
        true => Ok(()),
        false => Err(ApiError {
            error: format!("a page cannot have {limit} entries"),
            help: format!("1 to {FLOWS_PAGE_MAX} are possible; `offset` leads to later ones"),
        }),
    }
}

/// Entries of a page, at most.
pub const FLOWS_PAGE_MAX: usize = 1000;

/// A page of the flow table, the largest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrackedFlows {
    /// Entries that the request chooses, on all pages.
    pub total: u64,
    /// Packets of all these, in both directions.
    pub packets: u64,
    /// Bytes of all these, from the IP header on.
    pub bytes: u64,
    /// All entries in use.
    pub used: u64,
    /// Entries that the table has room for.
    pub capacity: u64,
    /// Entries before this page.
    pub offset: u64,
    /// The directions of all entries that the request chooses, added up by ingress interface and tier.
    #[serde(default)]
    pub sums: Vec<TrackedSum>,
    /// The page. Entries that went meanwhile are missing.
    pub flows: Vec<TrackedFlow>,
}

/// Directions of connections with the same ingress interface and the same tier, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrackedSum {
    /// The interface by which the packets arrive.
    pub ingress: String,
    /// The tier that forwards these directions now: that of the ingress interface, or `kernel`.
    pub tier: String,
    /// The directions.
    pub directions: u64,
    /// Packets that manylane forwarded, also before the tier became this one.
    pub packets: u64,
    /// The bytes of these packets, from the IP header on.
    pub bytes: u64,
}

/// An entry of the flow table: a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrackedFlow {
    /// The connection's id in conntrack, as `conntrack -L -o id` prints it.
    pub id: u32,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The source, address and port, of the original direction's packets as they arrive.
    pub source: String,
    /// Their destination as they arrive.
    pub destination: String,
    /// Their source as they leave.
    pub translated_source: String,
    /// Their destination as they leave.
    pub translated_destination: String,
    /// What is translated: `none`, `snat`, `dnat` or `both`.
    pub nat: String,
    /// The direction of the connection's opener.
    pub original: TrackedDirection,
    /// The direction of replies.
    pub reply: TrackedDirection,
    /// Seconds since the connection was entered.
    pub age_s: u64,
    /// Seconds since the last packet that manylane forwarded; none if it forwarded none.
    pub idle_s: Option<u64>,
    /// Seconds until conntrack forgets the connection, unless it is used.
    pub expires_s: u64,
    /// How the connection's end becomes known: `announced` by the kernel, or `polled` by manylane.
    pub end: String,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrackedDirection {
    /// The interface by which its packets arrive.
    pub ingress: String,
    /// The interface by which its packets leave.
    pub egress: String,
    /// `forwarded` by manylane, or by the `kernel`.
    pub state: String,
    /// The tier that forwards: that of the ingress interface, or `kernel`.
    pub tier: String,
    /// Why the kernel forwards, in a word; empty if manylane forwards.
    pub reason: String,
    /// The same as a sentence.
    pub explanation: String,
    /// Packets that manylane forwarded.
    pub packets: u64,
    /// The bytes of these packets, from the IP header on.
    pub bytes: u64,
    /// Packets that manylane left to the kernel since the connection was entered, modulo 65,536.
    pub passed: u16,
}

/// A comparison of the flow table with conntrack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrackedFlowsDiff {
    /// Entries that were compared.
    pub compared: u64,
    /// Entries that differ from conntrack at a second look, too: a line for each, 1000 at most.
    pub differences: Vec<String>,
    /// Entries that differ.
    pub total: u64,
}

/// The thread that looks after connections, and its table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneStatus {
    /// Whether IPv4 packets are forwarded by connection only, since rules filter by connection or translate.
    pub needed_ipv4: bool,
    /// Whether IPv6 packets are.
    pub needed_ipv6: bool,
    /// The generation of approvals that is in force: it grows when rules, ports or families change.
    pub generation: u32,
    /// Entries that the table has room for; 0 if manylane was started without a table.
    pub capacity: u64,
    /// Entries in use: connections.
    pub used: u64,
    /// Entries, of these, whose end the kernel does not announce.
    pub polled: u64,
    /// Connections that the programs proposed: directions with enough packets.
    pub candidates: u64,
    /// Connections that were entered.
    pub admitted: u64,
    /// Connections that were proposed and stay in the kernel, by reason.
    pub refused: Vec<LaneCount>,
    /// Entries that were removed, by reason.
    pub removed: Vec<LaneCount>,
    /// Timeouts that manylane renewed in conntrack.
    pub renewed: u64,
    /// Connections that were made liberal about TCP windows once more, since the kernel had seen packets of them.
    pub relaxed: u64,
    /// How often notifications were lost, and all entries were compared with conntrack.
    pub resyncs: u64,
    /// How often all entries were reviewed.
    pub reviews: u64,
    /// Directions that are forwarded from another interface than before, since their packets arrive by that one.
    pub moved: u64,
    /// Whether a review is not over yet.
    pub is_reviewing: bool,
    /// Why connections cannot be followed.
    pub trouble: Option<String>,
}

impl LaneStatus {
    /// Whether connections decide about some packets, so that the table is where flows are.
    pub fn is_needed(&self) -> bool {
        self.needed_ipv4 || self.needed_ipv6 || self.used > 0
    }
}

/// How often something was the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneCount {
    /// The reason's name.
    pub reason: String,
    /// The meaning.
    pub explanation: String,
    /// How often.
    pub total: u64,
}

/// What becomes of a packet whose connection decides, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyFlow {
    /// `forwarded`: by manylane. `kernel`: by the kernel. `class`: the question has no ports, so the answer is about all
    /// connections between two interfaces.
    pub state: String,
    /// Why the kernel forwards, in a word.
    pub reason: String,
    /// The same as a sentence.
    pub explanation: String,
    /// The entry of the flow table, if the connection has one.
    pub entry: Option<TrackedFlow>,
    /// The connection as conntrack has it, if the table does not have it.
    pub connection: Option<String>,
    /// What the rules do, by direction and protocol.
    pub rules: Vec<WhyRules>,
}

/// What the rules do to packets of established connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyRules {
    /// The interface by which the packets arrive.
    pub ingress: String,
    /// The interface by which they leave.
    pub egress: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// `accept`: all of them are accepted, and nothing else is done. `per_flow`: addresses, ports or marks decide.
    /// `kernel`: only the kernel can do what the rules say.
    pub answer: String,
    /// The first rule that is in the way, or that needs more than the interfaces.
    pub obstacle: Option<FlowObstacle>,
}

/// A rule, or a chain's policy, that keeps packets in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowObstacle {
    /// The family of the table: `inet`, `ip`, `ip6`, `netdev`.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The rule's handle, or its number in a table of legacy iptables; none for a policy.
    pub handle: Option<u64>,
    /// The rule's text; empty for a policy.
    pub rule: String,
    /// Whether the table is one of legacy iptables.
    pub is_legacy: bool,
    /// All of it, as a sentence.
    pub text: String,
    /// The smallest change that frees established connections and takes no protection away.
    pub cure: Option<String>,
}
