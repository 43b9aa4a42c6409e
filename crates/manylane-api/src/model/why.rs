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
