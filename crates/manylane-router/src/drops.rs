//! `DropsFile`: a pcapng file of what a daemon drops, written in the daemon itself, on request.

use std::time::{SystemTime, UNIX_EPOCH};

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_io::packet_ring::RingConfig;
use manylane_io::pcapng::{Captured, Interface, Memory, Section, Terms};

use crate::socket::{PacketSocket, Points, SocketError, Sockets, protocol};

/// A file of drops, and the socket that receives them.
pub(crate) struct DropsFile {
    socket: PacketSocket,
    /// None when it has ended.
    section: Option<Section>,
    written: Memory,
    names: Vec<String>,
    left: u32,
    lost: u64,
}

impl DropsFile {
    /// Begins one, of at most `packets`, each of at most `snap` bytes, on ports with these names and descriptions.
    pub(crate) fn begin(
        sockets: &Sockets,
        ports: Vec<(String, String)>,
        packets: u32,
        snap: u32,
    ) -> Result<DropsFile, SocketError> {
        let mut socket = sockets.open(protocol::NONE)?;
        socket.set_ring(RING)?;
        socket.set_snap(snap)?;
        socket.set_points(Points::DROP)?;
        let interfaces: Vec<Interface> = ports
            .iter()
            .map(|(name, description)| Interface {
                name: name.clone(),
                description: description.clone(),
            })
            .collect();
        let written = Memory::default();
        let terms = Terms { snap, filter: None };
        let section = Section::begin(Box::new(written.clone()), &interfaces, &terms, now_ns());
        let section = Some(section.expect("memory takes all that is written to it"));
        // Last: from here on packets are copied.
        socket.bind(None, protocol::ALL)?;
        let names = ports.into_iter().map(|(name, _)| name).collect();
        Ok(DropsFile { socket, section, written, names, left: packets, lost: 0 })
    }

    /// The bytes of the file since the last call, and whether that is all: when it has its last packet, or
    /// `is_over`.
    pub(crate) fn next(&mut self, is_over: bool) -> (Vec<u8>, bool) {
        let Some(mut section) = self.section.take() else { return (Vec::new(), true) };
        for _ in 0..ROUNDS {
            let Some(block) = self.socket.receive() else { break };
            for packet in block.packets() {
                let Some(left) = self.left.checked_sub(1) else { break };
                self.left = left;
                let record = &packet.record;
                let interface = record.port.index();
                let PortId(number) = record.port;
                let Some(name) = self.names.get(interface) else { continue };
                let captured = Captured {
                    time_ns: record.time_ns,
                    len: record.len,
                    bytes: packet.bytes,
                    port: record.port,
                    port_name: name,
                    queue: record.queue.0,
                    worker: record.worker.0,
                    point: record.point,
                    reason: record.reason.map(DropReason::name),
                    explanation: record.reason.map(DropReason::explanation),
                };
                let written = section.packet(number.into(), &captured, 0);
                written.expect("memory takes all that is written to it");
            }
        }
        self.lost += self.socket.statistics().lost;
        let is_last = is_over || self.left == 0;
        let done = match is_last {
            true => section.end(self.lost, now_ns()),
            false => section.flush().map(|()| self.section = Some(section)),
        };
        done.expect("memory takes all that is written to it");
        (self.written.take(), is_last)
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 // 584 years.
}

/// 1 MiB for each worker: the API's thread looks every 10 ms.
const RING: RingConfig = RingConfig { block_size: 128 << 10, blocks: 8, retire_ns: 10_000_000 };

/// Blocks at a time, so that no part of the file has more than some MiB.
const ROUNDS: usize = 32;
