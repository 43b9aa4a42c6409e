//! A connection as conntrack has it: whether it may be forwarded, and how long it lives unused.

use std::time::Duration;

use manylane_io::netlink::conntrack::{self, Change, Connection, Status, Tcp, Timeouts};
use manylane_net::transit::flows::{Direction, FlowUse, Tuple};
use manylane_net::wire::protocol;

use super::refusal::Refusal;

/// Whether a connection may be forwarded, whatever rules and routes say.
pub(super) fn check(connection: &Connection) -> Result<(), Refusal> {
    let Connection { original, reply, status, tcp, .. } = connection;
    let refuse = |is_so: bool, why: Refusal| if is_so { Err(why) } else { Ok(()) };
    refuse(status.intersects(FLOW_TABLE), Refusal::Offloaded)?;
    refuse(status.intersects(NEVER), Refusal::Unknown)?;
    let is_settled = status.contains(SETTLED);
    let is_established = match original.protocol {
        protocol::TCP => tcp.is_some_and(|tcp| tcp.state == Tcp::ESTABLISHED),
        protocol::UDP => true,
        _ => false,
    };
    refuse(!is_settled || !is_established, Refusal::Unsettled)?;
    let Connection { has_helper, has_sequence_adjustment, has_synproxy, .. } = *connection;
    let is_helped = status.intersects(HELPED);
    refuse(is_helped || has_helper || has_sequence_adjustment || has_synproxy, Refusal::Helped)?;
    refuse(connection.zone != 0, Refusal::Zone)?;
    // What is translated follows from the tuples; conntrack says so as well, or something else happens to it.
    let source =
        (original.source, original.source_port) != (reply.destination, reply.destination_port);
    let destination =
        (original.destination, original.destination_port) != (reply.source, reply.source_port);
    let is_told = status.contains(Status::SOURCE_NAT) == source
        && status.contains(Status::DESTINATION_NAT) == destination;
    let is_one_family = original.source.is_ipv4() == reply.source.is_ipv4();
    refuse(!is_told || !is_one_family || original.protocol != reply.protocol, Refusal::Translation)
}

/// Its tuples, as the table has them.
pub(super) fn tuples(connection: &Connection) -> [Tuple; 2] {
    [connection.original, connection.reply].map(tuple)
}

/// A tuple as the table has it.
pub(super) fn tuple(tuple: conntrack::Tuple) -> Tuple {
    let conntrack::Tuple { source, destination, source_port, destination_port, protocol } = tuple;
    Tuple { source, destination, source_port, destination_port, protocol }
}

/// A tuple as conntrack has it.
pub(super) fn asked(tuple: Tuple) -> conntrack::Tuple {
    let Tuple { source, destination, source_port, destination_port, protocol } = tuple;
    conntrack::Tuple { source, destination, source_port, destination_port, protocol }
}

/// A change of nothing, which looks for a connection.
pub(super) fn nothing(tuple: Tuple) -> Change {
    Change { tuple: asked(tuple), liberal: false, timeout: None }
}

/// A packet's ends as it leaves, by the tuples of both directions as they arrive.
pub(super) fn sent(tuples: [Tuple; 2], direction: Direction) -> Tuple {
    tuples[1 - direction as usize].inverted()
}

/// How long a connection lives unused, in seconds, if that is not as the kernel's settings say; 0 if it is.
///
/// The kernel has just seen a packet of it, and has set the connection's time then, by the settings or by a rule's policy
/// (`ct timeout set`), which no message tells. So what is left now is the whole time, but for the moments since.
pub(super) fn own_timeout(connection: &Connection, timeouts: &Timeouts) -> u32 {
    let left = connection.timeout.unwrap_or_default();
    let is_whole = |whole: Duration| left <= whole && whole - left <= MOMENTS;
    let by_settings = match connection.original.protocol {
        protocol::TCP => {
            is_whole(timeouts.tcp_established) || is_whole(timeouts.tcp_unacknowledged)
        }
        _ => is_whole(timeouts.udp_stream) || is_whole(timeouts.udp),
    };
    match by_settings {
        true => 0,
        false => u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1),
    }
}

/// How long the kernel would let a connection live from its last packet on, had it seen that.
pub(super) fn whole_timeout(
    protocol: u8,
    own: u32,
    timeouts: &Timeouts,
    uses: &[FlowUse; 2],
) -> Duration {
    match (own, protocol) {
        (0, protocol::TCP) => {
            // Data that no later packet without data may acknowledge.
            let is_open = uses.iter().all(|one| one.has_payload);
            let Timeouts { tcp_established, tcp_unacknowledged, .. } = *timeouts;
            if is_open { tcp_established.min(tcp_unacknowledged) } else { tcp_established }
        }
        (0, _) => timeouts.udp_stream,
        (own, _) => Duration::from_secs(own.into()),
    }
}

const SETTLED: Status = Status(Status::SEEN_REPLY.0 | Status::ASSURED.0 | Status::CONFIRMED.0);
const NEVER: Status = Status(Status::DYING.0 | Status::TEMPLATE.0 | Status::NAT_CLASH.0);
const HELPED: Status = Status(Status::HELPER.0 | Status::SEQUENCE_ADJUST.0);
const FLOW_TABLE: Status = Status(Status::OFFLOAD.0 | Status::HARDWARE_OFFLOAD.0);

/// What may have passed since the kernel saw the packet, and what it rounds down.
const MOMENTS: Duration = Duration::from_secs(3);
