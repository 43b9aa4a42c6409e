//! Packet sockets, as they are shown.

use manylane_frame::vocabulary::PortId;

use super::Status;
use crate::socket::{OpenSocket, Owner};
use manylane_api::{SocketStatus, SocketsStatus};
use manylane_client::message::{Counts, names_of};

impl Status {
    pub(super) fn all_sockets(&self) -> SocketsStatus {
        let limits = self.sockets.limits();
        let name = |port: PortId| self.ports[port.index()].name.clone();
        let shown = |socket: &OpenSocket| {
            let Counts { packets, bytes, lost, clamped, contended } = socket.counts;
            let (uid, pid) = match socket.owner {
                Owner::Daemon => (None, None),
                Owner::Process { uid, pid } => (Some(uid), Some(pid)),
            };
            SocketStatus {
                socket: socket.number,
                pid,
                uid,
                port: socket.port.map(name),
                protocol: socket.protocol,
                points: names_of(socket.points),
                filter_len: socket.filter_len as u64,
                snap: socket.snap,
                group: socket.fanout.map(|(group, _)| group),
                fanout: socket.fanout.map(|(_, mode)| mode.name().into()),
                ring_bytes: socket.ring_bytes,
                time_ns: socket.time_ns,
                packets,
                bytes,
                lost,
                clamped,
                stale: socket.stale,
                contended,
            }
        };
        SocketsStatus {
            sockets: self.sockets.list().iter().map(shown).collect(),
            max: limits.max,
            per_user_max: limits.per_user_max,
            memory_bytes: self.sockets.memory(),
            memory_max: limits.memory_max,
            per_user_memory_max: limits.per_user_memory_max,
            instructions: self.sockets.instructions(),
            filter_max: limits.filter_max,
            per_user_filter_max: limits.per_user_filter_max,
            time_max: limits.time_max,
            closed_for_time: self.sockets.closed_for_time(),
            send: limits.send,
        }
    }
}
