//! The messages between a daemon and a process with a packet socket.
//!
//! JSON, one message in each datagram of a `SOCK_SEQPACKET` connection; a packet to be sent stands behind its
//! request, after a newline. Names may be added to, and never change.

use manylane_frame::vocabulary::Point;
use manylane_io::packet_ring::RingConfig;
use manylane_net::filter::Instruction;
use serde::{Deserialize, Serialize};

use manylane_frame::vocabulary::Points;
use manylane_io::packet_ring::{Fanout, Totals};

/// Bytes of a request, at most: the longest filter, or the longest packet, and words around it.
pub const REQUEST_MAX: usize = 128 << 10;

/// Bytes of an answer, at most: all ports.
pub const ANSWER_MAX: usize = 128 << 10;

/// A client's request. Each request has one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The connection's socket, once. Answered with [`Answer::Opened`], a memfd and an eventfd.
    Open(Open),
    /// What packet(7) calls so.
    Bind(Bind),
    /// Changes what is named.
    Set(Set),
    /// Joins a fanout group, or makes it.
    Join(Join),
    /// Leaves the fanout group, if it is in one.
    Leave,
    /// Sends the packet behind the newline by the port that the socket is bound to.
    Send,
    /// What the socket was given, answered with [`Answer::Statistics`].
    Statistics {
        /// Blocks that the reader has not shown: for `manylane show sockets`.
        #[serde(default)]
        stale: Option<u64>,
    },
    /// Names and numbers of ports, answered with [`Answer::Ports`].
    Ports,
    /// The connection's capture, once, where the daemon is `manylane accelerate`: answered with [`Answer::Captures`].
    Capture(Wanted),
}

/// What a capture of `manylane accelerate` wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// A port's name; all ports without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// `rx`, `tx`, `drop`, `kernel`.
    pub points: Vec<String>,
    /// Instructions of classic BPF: code, jt, jf, k.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Vec<(u16, u8, u8, u32)>>,
    /// Bytes to keep of each packet, 0 for all.
    pub snap: u32,
}

/// What a new socket is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// Where, and of what.
    #[serde(flatten)]
    pub bind: Bind,
    /// What else it wants; what is missing is as with an in-process socket.
    #[serde(flatten)]
    pub set: Set,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of each worker's lane.
    pub blocks: u32,
    /// How long packets may wait for a block to be full, in nanoseconds.
    pub retire_ns: u64,
    /// The fanout group to join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Join>,
}

/// What a socket is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// A port's name; all ports without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// In host byte order, as [`protocol`](manylane_io::packet_ring::protocol) has them.
    pub protocol: u16,
}

/// What else a socket wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// Points of attachment: `rx`, `tx`, `drop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<Vec<String>>,
    /// Instructions of classic BPF: code, jt, jf, k.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Vec<(u16, u8, u8, u32)>>,
    /// Bytes to keep of each packet, 0 for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<u32>,
}

/// Membership of a fanout group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Its number.
    pub group: u16,
    /// Its mode, as [`Fanout::WORDS`] has them.
    pub mode: String,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The ring, and the descriptor that wakes its reader.
    Opened {
        /// Of the binding in force: blocks of another are stale.
        generation: u64,
    },
    /// The daemon has carried out the request.
    Done {
        /// Of the binding in force: blocks of another are stale.
        generation: u64,
    },
    /// What the daemon has counted.
    Statistics(Counts),
    /// The ports.
    Ports {
        /// By number.
        ports: Vec<Port>,
    },
    /// The capture runs. With it comes the table of the programs' rings ([`rings`](manylane_io::bpf::rings)); behind that the
    /// workers' packet ring, if the capture has one.
    Captures {
        /// How many CPUs have words in the table.
        cpus: u64,
        /// Bytes of each ring.
        ring_bytes: u64,
        /// Bytes of the table.
        table_bytes: u64,
        /// Why the reader has to filter all packets itself, if it has to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        untranslated: Option<String>,
        /// Whether a packet ring of workers comes, too.
        #[serde(default)]
        workers: bool,
    },
    /// The daemon refused the request; everything is as before.
    Refused(Refusal),
}

/// What a socket was given since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets in its ring, those that were read included.
    pub packets: u64,
    /// What was kept of them.
    pub bytes: u64,
    /// Packets that found no room.
    pub lost: u64,
    /// Packets cut shorter than the wanted length, because no block is so large.
    pub clamped: u64,
    /// Batches that a worker could not show, as another had its lane: never, unless something is wrong.
    pub contended: u64,
}

impl Counts {
    /// What all lanes of a ring have counted, and how often a worker found its lane taken by another.
    pub fn of(Totals { packets, bytes, lost, clamped }: Totals, contended: u64) -> Counts {
        Counts { packets, bytes, lost, clamped, contended }
    }

    /// What was counted after `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            lost: self.lost - before.lost,
            clamped: self.clamped - before.clamped,
            contended: self.contended - before.contended,
        }
    }
}

/// A port's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its number, as packets have it.
    pub port: u16,
    /// Its name.
    pub name: String,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub kind: Kind,
    /// For people, with what to do.
    pub error: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The message is no request, or the socket's state does not allow the request.
    BadRequest,
    /// As many sockets are open as may be, of all or of this user.
    TooMany,
    /// Rings have as much memory as they may have.
    Memory,
    /// The system refused something, as memory or a descriptor.
    System,
    /// A ring cannot be so.
    Ring,
    /// No port has this name.
    NoSuchPort,
    /// The filter was refused.
    Filter,
    /// Not now: try again.
    Busy,
    /// What a fanout group's rules forbid.
    Fanout,
    /// The socket is bound to nothing.
    NotBound,
    /// No packet is so long, or so short.
    Length,
    /// The socket would cost workers more than its user's sockets, or all together, may: by its filter, or by its share of
    /// a worker's time. In the second case the daemon closes the socket without a request.
    Cost,
    /// The configuration does not allow it.
    Forbidden,
    /// The daemon is `manylane accelerate`, which has captures and no packet sockets.
    Accelerates,
    /// One that a later daemon has.
    #[serde(other)]
    Unknown,
}

impl Open {
    /// The ring's sizes.
    pub fn ring(&self) -> RingConfig {
        let Open { block_size, blocks, retire_ns, .. } = *self;
        RingConfig { block_size, blocks, retire_ns }
    }
}

impl Join {
    /// As a request says it.
    pub fn new(group: u16, mode: Fanout) -> Join {
        Join { group, mode: mode.name().into() }
    }
}

/// Points by their names.
pub fn names_of(points: Points) -> Vec<String> {
    let names = Point::ALL.iter().filter(|point| points.has(**point));
    names.map(|point| point.name().into()).collect()
}

/// Instructions as a request has them.
pub fn tuples_of(filter: &[Instruction]) -> Vec<(u16, u8, u8, u32)> {
    filter.iter().map(|&Instruction { code, jt, jf, k }| (code, jt, jf, k)).collect()
}
