//! The verdict of an accelerator on a packet, and why.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::accelerate::ReasonStatus;
use super::tracked::{TransportProtocol, WhyFlow};

/// A packet in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyQuestion {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The ingress interface.
    pub interface: String,
    /// The protocol, and the source and destination port; without, any.
    pub transport: Option<(TransportProtocol, [u16; 2])>,
}

impl WhyQuestion {
    /// Where the daemon answers it: below `/v1/accelerate/why/`.
    pub fn path(&self) -> String {
        let WhyQuestion { source, destination, interface, transport } = self;
        let words = [interface.clone(), source.to_string(), destination.to_string()];
        let words = words.map(|word| percent_encoded(&word)).join("/");
        let transport = transport
            .map_or_else(String::new, |(protocol, [from, to])| format!("/{protocol}/{from}/{to}"));
        format!("/v1/accelerate/why/{words}{transport}")
    }
}

/// As one segment of a path (RFC 3986 §2.1, §2.3).
fn percent_encoded(text: &str) -> String {
    let of_byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(of_byte).collect()
}

/// The verdict on a packet, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Whether manylane forwards the packet.
    pub forwarded: bool,
    /// The verdict's name.
    pub verdict: String,
    /// The meaning.
    pub explanation: String,
    /// The egress interface, if manylane forwards the packet.
    pub egress: Option<String>,
    /// The destination's Ethernet address, if manylane forwards the packet.
    pub to: Option<String>,
    /// What the gate found against the ingress interface.
    pub reasons: Vec<ReasonStatus>,
    /// Rule, table, route and neighbour in the mirror.
    pub mirror: Option<MirrorWhy>,
    /// Where packets are forwarded by connection: the connection, and what the rules do to it.
    #[serde(default)]
    pub flow: Option<WhyFlow>,
    /// The tier of the ingress interface.
    #[serde(default)]
    pub tier: String,
    /// What the kernel does with the packet, if manylane leaves the packet to the kernel.
    #[serde(default)]
    pub kernel: Option<WhyKernel>,
    /// All in one line, as `manylane trace` has it of a packet.
    #[serde(default)]
    pub result: String,
}

/// What the kernel would do with a packet: rules, route and neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyKernel {
    /// `sent`, `delivered`, `dropped`, or `unknown` where manylane cannot say.
    pub verdict: String,
    /// Why.
    pub explanation: String,
    /// What conntrack knows of the packet's connection; without one, the packet is taken for the first of a connection.
    pub connection: String,
    /// The kernel's route for the packet, or why the kernel has none.
    pub route: String,
    /// The interface by which the packet would leave.
    pub egress: Option<String>,
    /// The next hop, or the destination where it is a neighbour.
    pub gateway: Option<String>,
    /// The state of that neighbour in the kernel.
    pub neighbour: Option<String>,
    /// The base chains of nftables and of legacy iptables that the packet meets, in order, up to the one that drops the
    /// packet or where manylane cannot say more.
    pub chains: Vec<WhyChain>,
}

/// A base chain that a packet meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyChain {
    /// The hook: `ingress`, `prerouting`, `input`, `forward`, `postrouting` or `egress`.
    pub hook: String,
    /// The priority among the chains of that hook.
    pub priority: i32,
    /// The table's family.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// Whether the table is one of legacy iptables.
    pub is_legacy: bool,
    /// The rules that match, in order, and the policy where it decides.
    pub steps: Vec<WhyStep>,
}

/// A rule that matches, or a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyStep {
    /// The rule's chain: the base chain, or one behind it.
    pub chain: String,
    /// The rule's number in its chain, from 1.
    pub rule: Option<usize>,
    /// The rule's handle; in a legacy table its number.
    pub handle: Option<u64>,
    /// The rule's text.
    pub text: Option<String>,
    /// `accept`, `drop` (also of a rule that rejects), `continue`, `return`, `queue`, `jump CHAIN`, `goto CHAIN`, or
    /// `unknown` where manylane cannot say whether the rule matches, or what it does.
    pub verdict: String,
    /// Whether this is the chain's policy.
    pub by_policy: bool,
}

/// The mirror's answer on a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorWhy {
    /// The verdict's name: `forwarded`, or why the kernel gets the packet. The mirror ignores facts that only a real
    /// packet has: MAC address, TTL, length, options, flow.
    pub verdict: String,
    /// Why the mirror has this verdict.
    pub reason: String,
    /// The rule that selects the table.
    pub rule: Option<String>,
    /// The table.
    pub table: Option<u32>,
    /// The longest matching prefix in the table.
    pub prefix: Option<String>,
    /// The prefix's routes in the model; the first is used.
    pub routes: Vec<String>,
    /// The next hops of the route; the packet's flow selects one.
    pub hops: Vec<WhyHop>,
    /// The interfaces by which such packets leave.
    #[serde(default)]
    pub egress: Vec<String>,
    /// Whether edits wait: then the programs' tables may be older than this answer.
    pub is_pending: bool,
}

/// One next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyHop {
    /// The neighbour.
    #[schema(value_type = String)]
    pub gateway: IpAddr,
    /// The egress interface.
    pub egress: String,
    /// The next hop's share of flows is its weight by the sum of all weights.
    pub weight: u16,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The neighbour's state in the kernel.
    pub neighbour: String,
    /// Whether manylane can transmit packets to the neighbour.
    pub is_usable: bool,
}
