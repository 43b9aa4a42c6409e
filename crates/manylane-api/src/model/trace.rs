//! A trace's request and its answers: the names are the JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RouteKind;

/// What to follow: the body of `POST /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRequest {
    /// Number of packets.
    pub count: u32,
    /// A program of classic BPF, each instruction as `code`, `jt`, `jf`, `k`: the program selects packets. The daemon
    /// checks it.
    pub filter: Vec<(u16, u8, u8, u32)>,
    /// The name of the ingress port; without it, any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// One line of the answer. Empty lines say that the trace still runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceLine {
    /// The trace has begun: every worker looks for packets.
    Armed,
    /// A stage of a packet. The stages of one worker are in order; stages of several workers need not be.
    Stage(TraceStage),
    /// Workers had no room to record some stages.
    Lost {
        /// Stages lost since the trace began.
        stages: u64,
        /// Packets found so far.
        packets: u32,
    },
}

/// One stage of one packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceStage {
    /// The packet's number in the trace, from 1.
    pub packet: u32,
    /// The worker.
    pub worker: u16,
    /// Time of the stage, in nanoseconds since the daemon's start.
    pub time_ns: u64,
    /// The stage.
    #[serde(flatten)]
    pub what: TraceWhat,
}

/// The stage of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum TraceWhat {
    /// Received.
    Received {
        /// The port.
        port: String,
        /// Its receive queue.
        queue: u16,
        /// Bytes, link header included.
        length: u32,
        /// Its headers in a line.
        header: String,
    },
    /// Steered by flow: to another worker, or to this one.
    Steered {
        /// The flow's bucket.
        bucket: u8,
        /// The worker that owns the bucket.
        to: u16,
    },
    /// Taken from the worker that received the packet.
    Taken {
        /// The worker that received the packet.
        from: u16,
    },
    /// The worker checked the headers.
    Checked {
        /// The ingress port for counters: a sub-interface, if the packet has its tags.
        port: String,
        /// `forward`, `local`, `drop`, or `error`: a drop with an ICMP error to the sender, where the rules allow one.
        finding: String,
        /// Why the worker drops the packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The worker looked up the destination.
    Route {
        /// The destination.
        destination: String,
        /// The matching prefix; none without a route, or if the route has changed since.
        prefix: Option<String>,
        /// The route's kind; none without a route.
        kind: Option<RouteKind>,
        /// The number of the next hop, 0 for none.
        next_hop: u16,
    },
    /// The next hop's neighbour; of a group, the neighbour for the packet's flow.
    Neighbour {
        /// The group's number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<u16>,
        /// The port that leads to the neighbour.
        port: String,
        /// The neighbour's IP address.
        address: String,
        /// `resolved`, `stale`, `unresolved` or `failed`.
        state: String,
        /// The neighbour's link-layer address, if it is known.
        mac: Option<String>,
        /// The largest IP packet that the neighbour may receive.
        mtu: u32,
    },
    /// The tables changed in the meantime: the packet's fate may differ from the stages before.
    Changed,
    /// TTL and link header are ready to transmit.
    Rewritten {
        /// TTL or hop limit before.
        ttl_before: u8,
        /// TTL or hop limit after.
        ttl_after: u8,
        /// The link header's destination.
        destination: String,
        /// The link header's source.
        source: String,
    },
    /// The packet was dropped and became an ICMP error to its sender.
    Error {
        /// Why.
        reason: String,
        /// The reason in a sentence.
        explanation: String,
    },
    /// The packet was for an own address and became the answer.
    Reply,
    /// An ICMP redirect informs the sender of a better next hop.
    Redirected,
    /// The packet was prepared for its egress port.
    Prepared {
        /// `checksum` completed, `joined`, cut into `segments`, into `fragments`.
        how: Vec<String>,
        /// Packets after the preparation.
        pieces: u32,
    },
    /// The packet waits for a neighbour's answer.
    Held {
        /// The port.
        port: String,
        /// The neighbour's address.
        address: String,
    },
    /// The neighbour answered: the packet is looked up again.
    Released {
        /// Nanoseconds that the packet waited.
        waited_ns: u64,
    },
    /// The neighbour did not answer: the wait ends.
    GivenUp {
        /// Nanoseconds that the packet waited.
        waited_ns: u64,
    },
    /// The packet is queued for transmission at the end of the turn.
    Queued {
        /// The egress port.
        port: String,
    },
    /// The port's device accepted the packet.
    Transmitted {
        /// The port.
        port: String,
        /// The transmit queue; none where the kernel chooses one, or the device has none.
        queue: Option<u16>,
    },
    /// The packet was for an own address.
    Delivered,
    /// The packet was dropped.
    Dropped {
        /// Why.
        reason: String,
        /// The reason in a sentence.
        explanation: String,
    },
}

impl TraceWhat {
    /// The stage's name, as the JSON has it.
    pub fn name(&self) -> &'static str {
        match self {
            TraceWhat::Received { .. } => "received",
            TraceWhat::Steered { .. } => "steered",
            TraceWhat::Taken { .. } => "taken",
            TraceWhat::Checked { .. } => "checked",
            TraceWhat::Route { .. } => "route",
            TraceWhat::Neighbour { .. } => "neighbour",
            TraceWhat::Changed => "changed",
            TraceWhat::Rewritten { .. } => "rewritten",
            TraceWhat::Error { .. } => "error",
            TraceWhat::Reply => "reply",
            TraceWhat::Redirected => "redirected",
            TraceWhat::Prepared { .. } => "prepared",
            TraceWhat::Held { .. } => "held",
            TraceWhat::Released { .. } => "released",
            TraceWhat::GivenUp { .. } => "given_up",
            TraceWhat::Queued { .. } => "queued",
            TraceWhat::Transmitted { .. } => "transmitted",
            TraceWhat::Delivered => "delivered",
            TraceWhat::Dropped { .. } => "dropped",
        }
    }

    /// Change of the number of packets on their way. A received packet has ended when the sum is 0.
    pub fn packets(&self) -> i64 {
        match self {
            TraceWhat::Received { .. } => 1,
            TraceWhat::Prepared { pieces, .. } => i64::from(*pieces) - 1,
            TraceWhat::Transmitted { .. } | TraceWhat::Delivered | TraceWhat::Dropped { .. } => -1,
            _ => 0,
        }
    }
}

/// The lines of a running trace, as stages arrive. Dropping this ends the trace.
pub struct TraceLines(Box<dyn FnMut() -> String + Send>);

impl TraceLines {
    /// Lines that `next` returns: whole lines since its last call, or nothing.
    pub fn new(next: impl FnMut() -> String + Send + 'static) -> TraceLines {
        TraceLines(Box::new(next))
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> String {
        (self.0)()
    }
}
