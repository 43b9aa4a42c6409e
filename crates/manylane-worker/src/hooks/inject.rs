//! Packets to send, from sockets to a worker.
//!
//! A worker allocates nothing: a packet's memory travels to the worker and back, by a ring each way.

use manylane_frame::vocabulary::PortId;
use manylane_sync::ring::{Consumer, Producer, ring};

/// A packet to send, with its Ethernet header, by a port's device.
#[derive(Debug, Default)]
pub struct Injected {
    /// The port whose device sends it.
    pub port: PortId,
    /// The packet, with its Ethernet header.
    pub bytes: Vec<u8>,
}

/// The sockets' end.
pub struct Injector {
    to_send: Producer<Injected>,
    done: Consumer<Injected>,
    spare: Vec<Injected>,
    made: usize,
}

/// The worker's end.
pub struct InjectorEnd {
    /// Packets that wait.
    pub to_send: Consumer<Injected>,
    /// Their memory, on its way back.
    pub done: Producer<Injected>,
}

/// Packets that wait at most.
pub const INJECTED_MAX: usize = 256;

/// Both ends of a pair of rings.
pub fn injector() -> (Injector, InjectorEnd) {
    let ((to_send, sent), (giver, done)) = (ring(INJECTED_MAX), ring(INJECTED_MAX));
    let injector = Injector { to_send, done, spare: Vec::with_capacity(INJECTED_MAX), made: 0 };
    (injector, InjectorEnd { to_send: sent, done: giver })
}

impl Injector {
    /// Passes a packet on. False when the ring is full.
    pub fn push(&mut self, port: PortId, bytes: &[u8]) -> bool {
        let waiting = self.done.waiting();
        self.spare.extend(self.done.pop_up_to(waiting));
        self.done.release();
        let mut packet = match self.spare.pop() {
            Some(packet) => packet,
            // At most one packet is made for each place of a ring, so that each finds a place, both ways.
            None if self.made < INJECTED_MAX => {
                self.made += 1;
                Injected::default()
            }
            None => return false,
        };
        packet.port = port;
        packet.bytes.clear();
        packet.bytes.extend_from_slice(bytes);
        let pushed = self.to_send.push(packet);
        assert!(pushed.is_ok(), "the ring has as many places as packets");
        self.to_send.submit();
        true
    }
}
