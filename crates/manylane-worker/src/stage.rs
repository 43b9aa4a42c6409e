//! What was done with a packet, as a worker records it.

use manylane_frame::vocabulary::{DropReason, PortId, QueueId, WorkerId};
use manylane_net::forward::{Finding, Found, Prepared, Via};
use manylane_net::neighbour::Key;
use manylane_net::wire::ethernet::Mac;

/// One thing that was done with one packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Which trace.
    pub session: u16,
    /// Which of its packets, from 1.
    pub number: u32,
    /// When, on the daemon's clock.
    pub time_ns: u64,
    /// What was done.
    pub what: What,
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Taken from a queue: the packet gets its number.
    Received {
        /// The port.
        port: PortId,
        /// Its queue.
        queue: QueueId,
        /// Bytes of the packet, link header included.
        len: u32,
        /// Its first bytes.
        header: Header,
    },
    /// Steered by its flow.
    Steered {
        /// The flow's bucket.
        bucket: u8,
        /// The worker that has the bucket: another one, or this one.
        to: WorkerId,
    },
    /// Taken from the ring of the worker that received it.
    Taken {
        /// That worker.
        from: WorkerId,
    },
    /// Looked at.
    Checked {
        /// The port it counts as received by.
        ingress: PortId,
        /// What was found.
        finding: Finding,
    },
    /// Its destination was looked up.
    Routed(Found),
    /// Its next hop's neighbour was looked at.
    Neighbour(Via),
    /// The tables changed while the rules saw it: its fate may differ from what they said.
    Changed,
    /// The packet is as it is to leave, but for tags.
    Rewritten {
        /// TTL or hop limit as it came, and as it leaves.
        ttl: (u8, u8),
        /// Where its link header goes.
        destination: Mac,
        /// What that comes from.
        source: Mac,
    },
    /// The received packet is dropped, and what is in its frame from here on is an error about that.
    Error(DropReason),
    /// The received packet is delivered, and what is in its frame from here on is our answer.
    Reply,
    /// A redirect about it was made.
    Redirected,
    /// Made into what its egress port takes; all pieces have its number.
    Prepared {
        /// How.
        how: Made,
        /// The number of pieces now.
        pieces: u32,
    },
    /// Waits for a neighbour.
    Held(Key),
    /// Waits no longer: that is known by now, or routes have changed.
    Released {
        /// How long it has prior_hold.
        waited_ns: u64,
    },
    /// Waits no longer: the neighbour did not answer.
    GivenUp {
        /// How long it has prior_hold, if that is known.
        waited_ns: u64,
    },
    /// Put behind what leaves by a port at the end of the turn.
    Queued(PortId),
    /// Handed to the port's device.
    Transmitted {
        /// The port.
        port: PortId,
        /// Its transmit queue, where the kernel does not choose one.
        queue: Option<QueueId>,
    },
    /// Delivered: the packet was for us.
    Delivered,
    /// Dropped.
    Dropped(DropReason),
}

/// How a packet was made into what its egress port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Its checksum was completed.
    pub completed: bool,
    /// Its frames were joined.
    pub joined: bool,
    /// The packet was cut into segments.
    pub segments: bool,
    /// The packet was cut into fragments.
    pub fragments: bool,
}

impl From<Prepared> for Made {
    fn from(Prepared { completed, joined, cut, fragments }: Prepared) -> Made {
        Made { completed, joined, segments: cut > 0, fragments: fragments > 0 }
    }
}

/// Bytes of a packet that are kept: Ethernet with two tags, IPv6 and the first words behind it.
pub const HEADER_LEN_MAX: usize = 14 + 8 + 40 + 14;

/// A packet's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; HEADER_LEN_MAX],
    len: u8,
}

impl Header {
    /// Of a packet that begins so.
    pub fn of(packet: &[u8]) -> Header {
        let len = packet.len().min(HEADER_LEN_MAX);
        let mut bytes = [0; HEADER_LEN_MAX];
        bytes[..len].copy_from_slice(&packet[..len]);
        Header { bytes, len: len as u8 }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}
