//! A packet socket in this process.

use std::os::fd::AsFd;
use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_io::packet_ring::{Block, Reader, RingConfig};
use manylane_io::poll::poll;
use manylane_net::filter::Program;
use manylane_sync::hook::Binding;

use super::sockets::Ring;
use super::{Endpoint, Fanout, Points, SocketError, Statistics};
use manylane_worker::hooks::Bell;

/// An open packet socket: what it is bound to, and what it was given. Dropping it closes it.
///
/// No call waits for a worker, or for a grace period, but [`wait`](PacketSocket::wait) for packets.
pub struct PacketSocket {
    endpoint: Endpoint,
    binding: Binding,
    /// There until it is dropped.
    ring: Option<Ring>,
    /// Whether another socket can have the ring.
    spare: bool,
    /// What its lanes had counted when the caller last read statistics.
    counted: Statistics,
}

/// Packets that a worker gave: a block of the ring, the worker's again when this is dropped.
pub type Received<'s> = Block<'s>;

impl PacketSocket {
    pub(super) fn new(
        endpoint: Endpoint,
        binding: Binding,
        ring: Ring,
        spare: bool,
    ) -> PacketSocket {
        let counted = Statistics::of(&ring.readers);
        PacketSocket { endpoint, binding, ring: Some(ring), spare, counted }
    }

    /// Receives packets of `protocol` at `port`, or at all ports; see [`Endpoint::bind`].
    pub fn bind(&mut self, port: Option<PortId>, protocol: u16) -> Result<(), SocketError> {
        self.endpoint.bind(port, protocol)
    }

    /// Is given packets at these points; see [`Endpoint::set_points`].
    pub fn set_points(&mut self, points: Points) -> Result<(), SocketError> {
        self.endpoint.set_points(points)
    }

    /// Is given what `filter` lets pass.
    pub fn set_filter(&mut self, filter: Program) -> Result<(), SocketError> {
        self.endpoint.set_filter(filter)
    }

    /// Keeps up to `snap` bytes of each packet, 0 for all.
    pub fn set_snap(&mut self, snap: u32) -> Result<(), SocketError> {
        self.endpoint.set_snap(snap)
    }

    /// Has a ring like this, for each worker. What the one before held is gone.
    pub fn set_ring(&mut self, config: RingConfig) -> Result<(), SocketError> {
        let ring = self.endpoint.sockets.make_ring(config)?;
        self.endpoint.set_lanes(ring.lanes.clone())?;
        self.counted = Statistics::of(&ring.readers);
        let before = self.ring.replace(ring);
        let spare = std::mem::replace(&mut self.spare, false);
        if let Some(before) = before {
            self.endpoint.sockets.put_back(before, spare);
        }
        Ok(())
    }

    /// Joins a fanout group; see [`Endpoint::join_fanout`].
    pub fn join_fanout(&mut self, group: u16, mode: Fanout) -> Result<(), SocketError> {
        self.endpoint.join_fanout(group, mode)
    }

    /// Leaves its fanout group.
    pub fn leave_fanout(&mut self) -> Result<(), SocketError> {
        self.endpoint.leave_fanout()
    }

    /// Sends a packet by the port that it is bound to; see [`Endpoint::send`].
    pub fn send(&self, bytes: &[u8]) -> Result<(), SocketError> {
        self.endpoint.send(bytes)
    }

    /// The oldest block that waits, of packets under the binding in force.
    pub fn receive(&mut self) -> Option<Received<'_>> {
        let PacketSocket { binding, ring, .. } = self;
        let Ring { lanes, readers } = ring.as_mut().expect("it is there until the drop");
        let mut oldest: Option<(usize, u64)> = None;
        for (at, reader) in readers.iter_mut().enumerate() {
            while let Some((generation, first_ns)) = reader.peek() {
                if binding.admit(generation) {
                    if oldest.is_none_or(|(_, before)| first_ns < before) {
                        oldest = Some((at, first_ns));
                    }
                    break;
                }
                lanes.stale.add(1);
                drop(reader.borrow());
            }
        }
        oldest.and_then(|(at, _)| readers[at].borrow())
    }

    /// Waits until a block can be received, for `timeout` at most. Returns whether one can. What workers have not
    /// passed on arrives when its block is full or as old as the ring says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let Ring { lanes, readers } = self.ring.as_ref().expect("it is there until the drop");
        if let Bell::Reader(event) = &lanes.bell {
            // The one failure is ENOMEM: then it looks again at once.
            readers.sleep(|| poll(&[event.as_fd()], timeout).is_ok());
            event.drain();
        }
        readers.iter().any(Reader::is_waiting)
    }

    /// What it was given since this was last asked.
    pub fn statistics(&mut self) -> Statistics {
        let ring = self.ring.as_ref().expect("it is there until the drop");
        let now = Statistics::of(&ring.readers);
        let before = std::mem::replace(&mut self.counted, now);
        Statistics { packets: now.packets - before.packets, lost: now.lost - before.lost }
    }

    /// Blocks of former bindings that were not shown.
    pub fn stale(&self) -> u64 {
        self.binding.stale()
    }

    /// What it is bound to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        self.endpoint.shut(); // First, or the next socket's packets would arrive beside ours.
        if let Some(ring) = self.ring.take() {
            self.endpoint.sockets.put_back(ring, self.spare);
        }
    }
}
