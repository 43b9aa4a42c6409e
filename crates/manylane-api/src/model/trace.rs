//! What is asked of a trace, and what it answers: the names are the JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RouteKind;

/// What to follow: the body of `POST /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRequest {
    /// How many packets.
    pub count: u32,
    /// A program of classic BPF, each instruction as `code`, `jt`, `jf`, `k`: which packets. The daemon checks it.
    pub filter: Vec<(u16, u8, u8, u32)>,
    /// The name of the port they are received by; any without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// One line of the answer. Empty lines say that the trace still runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceLine {
    /// From now on packets are looked for: every worker has heard of it.
    Armed,
    /// Something was done with a packet. Each worker's are in order, several workers' need not be.
    Stage(TraceStage),
    /// So many stages were not recorded, since workers found no place for them.
    Lost {
        /// How many, from the beginning.
        stages: u64,
        /// How many packets were found until then.
        packets: u32,
    },
}

/// One thing that was done with one packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceStage {
    /// Which packet of the trace, from 1.
    pub packet: u32,
    /// The worker that did it.
    pub worker: u16,
    /// When, in nanoseconds from the daemon's start.
    pub time_ns: u64,
    /// What was done.
    #[serde(flatten)]
    pub what: TraceWhat,
}

/// What was done.
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
    /// Steered by its flow: to another worker, or kept by this one.
    Steered {
        /// The flow's bucket.
        bucket: u8,
        /// The worker that has it.
        to: u16,
    },
    /// Taken from the worker that received it.
    Taken {
        /// That one.
        from: u16,
    },
    /// Its headers were looked at.
    Checked {
        /// The port it counts as received by: a sub-interface, if it has the tags of one.
        port: String,
        /// `forward`, `local`, `drop` or `error`: a drop that its sender is told of, if one may be.
        finding: String,
        /// Why it is to be dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Its destination was looked up.
    Route {
        /// The destination.
        destination: String,
        /// The prefix that it was found by; none if there is no route, or another by now.
        prefix: Option<String>,
        /// What that does; none without a route.
        kind: Option<RouteKind>,
        /// The number of the next hop, 0 for none.
        next_hop: u16,
    },
    /// The neighbour that its next hop is, or that its flow has of a group.
    Neighbour {
        /// The group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<u16>,
        /// The port it is on.
        port: String,
        /// Its address.
        address: String,
        /// `resolved`, `stale`, `unresolved` or `failed`.
        state: String,
        /// Its link-layer address, if that is known.
        mac: Option<String>,
        /// The largest IP packet that may be sent to it.
        mtu: u32,
    },
    /// The tables changed in the meantime: what became of it may be another thing than they said.
    Changed,
    /// TTL and link header are as they leave.
    Rewritten {
        /// TTL or hop limit before.
        ttl_before: u8,
        /// And after.
        ttl_after: u8,
        /// The link header's destination.
        destination: String,
        /// The link header's source.
        source: String,
    },
    /// It was dropped, and made into an error to its sender.
    Error {
        /// Why.
        reason: String,
        /// The same, for people.
        explanation: String,
    },
    /// It was for us, and was made into our answer.
    Reply,
    /// Its sender is told of a better way by a redirect.
    Redirected,
    /// It was made into what its way out takes.
    Prepared {
        /// `checksum` completed, `joined`, cut into `segments`, into `fragments`.
        how: Vec<String>,
        /// Packets there are now.
        pieces: u32,
    },
    /// It waits for a neighbour.
    Held {
        /// The port.
        port: String,
        /// The neighbour's address.
        address: String,
    },
    /// It waits no longer, and is looked up again.
    Released {
        /// How long it has waited.
        waited_ns: u64,
    },
    /// It waits no longer: the neighbour did not answer.
    GivenUp {
        /// How long it has waited.
        waited_ns: u64,
    },
    /// It waits for the end of the turn, to leave.
    Queued {
        /// By this port.
        port: String,
    },
    /// The device of a port has taken it.
    Transmitted {
        /// The port.
        port: String,
        /// Its transmit queue; none where the kernel chooses one, or there are none.
        queue: Option<u16>,
    },
    /// It was for us.
    Delivered,
    /// It was dropped.
    Dropped {
        /// Why.
        reason: String,
        /// The same, for people.
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

    /// How many packets more than before are on their way: what was received has ended when there are none.
    pub fn packets(&self) -> i64 {
        match self {
            TraceWhat::Received { .. } => 1,
            TraceWhat::Prepared { pieces, .. } => i64::from(*pieces) - 1,
            TraceWhat::Transmitted { .. } | TraceWhat::Delivered | TraceWhat::Dropped { .. } => -1,
            _ => 0,
        }
    }
}

/// The lines of a trace that runs, as they come. It ends when this is dropped.
pub struct TraceLines(Box<dyn FnMut() -> String + Send>);

impl TraceLines {
    /// Of what `next` has to say since it was last asked: whole lines, or nothing.
    pub fn new(next: impl FnMut() -> String + Send + 'static) -> TraceLines {
        TraceLines(Box::new(next))
    }

    /// What there is to say since the last call.
    pub fn take(&mut self) -> String {
        (self.0)()
    }
}
