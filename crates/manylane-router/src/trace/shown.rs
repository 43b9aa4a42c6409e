//! A stage in words: names for numbers.

use manylane_frame::vocabulary::{DropReason, PortId, WorkerId};
use manylane_net::forward::{Finding, Found, Via};
use manylane_net::neighbour::AdjacencyState;
use manylane_net::nexthop::NextHop;

use super::{Made, Stage, What};
use manylane_api::{RouteKind, TraceStage, TraceWhat};
use manylane_net::wire::summary as header;

/// What knows the names that numbers stand for.
pub trait Names {
    /// A port's name.
    fn port(&self, port: PortId) -> String;
    /// The prefix that a destination is found by, if it still leads to the same next hop; and whether that is an
    /// on-link route.
    fn prefix(&self, found: &Found) -> Option<(String, bool)>;
}

/// What `worker` has recorded.
pub fn shown(worker: WorkerId, stage: Stage, names: &impl Names) -> TraceStage {
    let Stage { number, time_ns, what, .. } = stage;
    TraceStage { packet: number, worker: worker.0, time_ns, what: what_of(what, names) }
}

fn what_of(what: What, names: &impl Names) -> TraceWhat {
    match what {
        What::Received { port, queue, len, header } => TraceWhat::Received {
            port: names.port(port),
            queue: queue.0,
            length: len,
            header: header::line(header.bytes()),
        },
        What::Steered { bucket, to } => TraceWhat::Steered { bucket, to: to.0 },
        What::Taken { from } => TraceWhat::Taken { from: from.0 },
        What::Checked { ingress, finding } => {
            let (finding, reason) = match finding {
                Finding::Forward | Finding::Own => ("forward", None),
                Finding::Local => ("local", None),
                Finding::Drop(reason) => ("drop", Some(reason.name().into())),
                Finding::Error(reason) => ("error", Some(reason.name().into())),
            };
            TraceWhat::Checked { port: names.port(ingress), finding: finding.into(), reason }
        }
        What::Routed(found) => route(found, names),
        What::Neighbour(via) => neighbour(via, names),
        What::Changed => TraceWhat::Changed,
        What::Rewritten { ttl: (ttl_before, ttl_after), destination, source } => {
            TraceWhat::Rewritten {
                ttl_before,
                ttl_after,
                destination: destination.to_string(),
                source: source.to_string(),
            }
        }
        What::Error(reason) => {
            let (reason, explanation) = why(reason);
            TraceWhat::Error { reason, explanation }
        }
        What::Reply => TraceWhat::Reply,
        What::Redirected => TraceWhat::Redirected,
        What::Prepared { how, pieces } => {
            let Made { completed, joined, segments, fragments } = how;
            let all = [
                (completed, "checksum"),
                (joined, "joined"),
                (segments, "segments"),
                (fragments, "fragments"),
            ];
            let how = all.iter().filter(|(is_so, _)| *is_so).map(|&(_, name)| name.into());
            TraceWhat::Prepared { how: how.collect(), pieces }
        }
        What::Held(key) => {
            TraceWhat::Held { port: names.port(key.port), address: key.addr.to_string() }
        }
        What::Released { waited_ns } => TraceWhat::Released { waited_ns },
        What::GivenUp { waited_ns } => TraceWhat::GivenUp { waited_ns },
        What::Queued(port) => TraceWhat::Queued { port: names.port(port) },
        What::Transmitted { port, queue } => {
            TraceWhat::Transmitted { port: names.port(port), queue: queue.map(|queue| queue.0) }
        }
        What::Delivered => TraceWhat::Delivered,
        What::Dropped(reason) => {
            let (reason, explanation) = why(reason);
            TraceWhat::Dropped { reason, explanation }
        }
    }
}

fn why(reason: DropReason) -> (String, String) {
    (reason.name().into(), reason.explanation().into())
}

fn route(found: Found, names: &impl Names) -> TraceWhat {
    let (prefix, is_on_link) = names.prefix(&found).unzip();
    let kind = match found.next_hop {
        NextHop::None | NextHop::Kernel => None,
        NextHop::Via(_) => Some(RouteKind::Via),
        NextHop::Group(_) => Some(RouteKind::Group),
        NextHop::Connected(_) if is_on_link == Some(true) => Some(RouteKind::OnLink),
        NextHop::Connected(_) => Some(RouteKind::Connected),
        NextHop::Local => Some(RouteKind::Local),
        NextHop::Broadcast => Some(RouteKind::Broadcast),
        NextHop::Blackhole => Some(RouteKind::Blackhole),
        NextHop::Unreachable => Some(RouteKind::Unreachable),
        NextHop::Prohibit => Some(RouteKind::Prohibit),
    };
    TraceWhat::Route {
        destination: found.destination.to_string(),
        prefix,
        kind,
        next_hop: found.id,
    }
}

fn neighbour(via: Via, names: &impl Names) -> TraceWhat {
    let state = match via.state {
        AdjacencyState::Resolved => "resolved",
        AdjacencyState::ResolvedReport => "stale",
        AdjacencyState::Unresolved => "unresolved",
        AdjacencyState::Failed => "failed",
    };
    TraceWhat::Neighbour {
        group: via.group.map(|group| group.0),
        port: names.port(via.key.port),
        address: via.key.addr.to_string(),
        state: state.into(),
        mac: via.mac.map(|mac| mac.to_string()),
        mtu: via.mtu,
    }
}
