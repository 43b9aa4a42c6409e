//! Routes, neighbours and own addresses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RouteStatus {
    /// The destinations.
    pub prefix: String,
    /// What becomes of packets to them.
    pub kind: RouteKind,
    /// The next hop, for `via`.
    pub via: Option<String>,
    /// The egress port's name, for `via`, `on_link`, `connected` and `local`.
    pub port: Option<String>,
    /// The next hops, for `group`; left out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<MemberStatus>,
}

/// One of the next hops of a route that has several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberStatus {
    /// The next hop.
    pub via: String,
    /// The egress port's name.
    pub port: String,
    /// The next hop's weight; its share of flows is the weight by the sum of all weights.
    pub weight: u16,
    /// The next hop's present share of flows, 0 to 1. 0: its link-layer address is unknown, and another one is known.
    pub share: f64,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// To a next hop.
    Via,
    /// To one of several next hops, by the packet's flow.
    Group,
    /// To the destination itself, by a static route.
    OnLink,
    /// To the destination itself, in a port's network.
    Connected,
    /// To ourselves.
    Local,
    /// The broadcast address of a connected network: dropped.
    Broadcast,
    /// Dropped in silence.
    Blackhole,
    /// Dropped with "unreachable".
    Unreachable,
    /// Dropped with "prohibited".
    Prohibit,
    /// Only the kernel can do it: of `accelerate`.
    Kernel,
}

/// One neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourStatus {
    /// The name of the port it is behind.
    pub port: String,
    /// Its IP address.
    pub address: String,
    /// Its link-layer address, once it has answered.
    pub mac: Option<String>,
    /// What is known of it.
    pub state: NeighbourState,
    /// Seconds since it entered this state.
    pub age_s: u64,
}

/// What is known of a neighbour, in the words of RFC 4861 §7.3.2 (`failed` is Linux's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourState {
    /// Queried, without an answer yet.
    Incomplete,
    /// Answered a short time ago.
    Reachable,
    /// Answered a long time ago.
    Stale,
    /// Used while stale; a query follows soon.
    Delay,
    /// Queried again.
    Probe,
    /// Did not answer.
    Failed,
    /// Set by the operator.
    Permanent,
}

/// One address of ours, on a link where others may have it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressStatus {
    /// The name of the port it is on.
    pub port: String,
    /// The address.
    pub address: String,
    /// Whether it is ours alone.
    pub state: AddressState,
    /// Whether we answer for it and send from it.
    pub in_use: bool,
    /// Seconds since it entered this state.
    pub age_s: u64,
    /// How often another station laid claim to it.
    pub conflicts: u64,
    /// The link-layer address of the last that did.
    pub claimed_by: Option<String>,
}

/// Whether an address of ours is ours alone (RFC 5227, RFC 4862 §5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AddressState {
    /// manylane probes the link for another station with the address.
    Probing,
    /// No station has the address; manylane announces it on the link.
    Announcing,
    /// The address is ours.
    Held,
    /// Another station has the address.
    Duplicate,
}

impl RouteKind {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            RouteKind::Via => "via",
            RouteKind::Group => "group",
            RouteKind::OnLink => "on_link",
            RouteKind::Connected => "connected",
            RouteKind::Local => "local",
            RouteKind::Broadcast => "broadcast",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            RouteKind::Kernel => "kernel",
        }
    }
}

impl AddressState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            AddressState::Probing => "probing",
            AddressState::Announcing => "announcing",
            AddressState::Held => "held",
            AddressState::Duplicate => "duplicate",
        }
    }
}

impl NeighbourState {
    /// As JSON and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Stale => "stale",
            NeighbourState::Delay => "delay",
            NeighbourState::Probe => "probe",
            NeighbourState::Failed => "failed",
            NeighbourState::Permanent => "permanent",
        }
    }
}
