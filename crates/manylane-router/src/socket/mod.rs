//! Packet sockets: copies of what passes, for whoever asks, without a wait anywhere.
//!
//! The words and what can be observed are those of packet(7). Its waits are not: the kernel unregisters a
//! socket's hook, waits until no core can be looking at it, and registers it again, milliseconds for each
//! `bind` and `close`. Here a hook is never changed: a new one is published, the old one retired, and what
//! still comes by the old one carries its generation and is not shown ([`manylane_sync::hook`]).
//!
//! ```text
//!  bind ──> Target (what, where to) ──> hook table <── every worker looks, once for each batch
//!                                                        │ filter, copy up to snap bytes
//!  receive <── blocks of the generation in force <── lane of that worker (one for each, no shared write)
//! ```
//!
//! | file            | what                                                                            |
//! |-----------------|---------------------------------------------------------------------------------|
//! | `packet_socket` | [`PacketSocket`]: open, bind, filter, ring, fanout, receive, send, statistics    |
//! | `sockets`       | [`Sockets`]: the table's one writer, rings that are used again, bounds          |
//! | `endpoint`      | a socket without its reading end, which may be in another process              |
//! | `registry`      | the sockets that are open, for who asks                                         |
//! | `remote`        | sockets of other processes: the thread that serves them                         |
//! | `client`        | the other processes' side                                                       |
//! | `target`        | what a hook wants, and who is given it                                           |
//! | `fanout`        | which member of a group is given a packet                                       |
//! | `inject`        | packets to send, from sockets to a worker                                       |
//! | `worker/tap.rs` | the workers' side                                                               |
//!
//! Where a packet is seen ([`Point`]):
//!
//! | point    | when                                          | as                                              |
//! |----------|-----------------------------------------------|-------------------------------------------------|
//! | receive  | taken from a queue, before anything is decided | it came, tags included                          |
//! | transmit | about to be handed to a device                | it leaves; a device without room may refuse it, and then it is seen as a drop, too |
//! | drop     | a drop reason was counted                     | it was then; where an error is made of it, before that |
//!
//! Workers look once a turn at which points somebody is bound, so a socket misses what passes before their next turn.
//! Not shown at all are frames that a closing device gives back (`port_down`) and what was handed on when the daemon
//! ends (`shutdown`): no worker runs there. They are counted.
//!
//! A worker that finds no room in a lane counts the packet as lost and goes on: a reader that is slow, stopped
//! or gone costs workers no more than one that reads.

#[cfg(feature = "client")]
#[path = "../../../manylane-client/src/lib.rs"]
pub mod client;
#[cfg(feature = "daemon")]
mod endpoint;
#[path = "../../../manylane-io/src/packet_ring/fanout.rs"]
mod fanout;
#[cfg(feature = "daemon")]
#[path = "../../../manylane-worker/src/hooks/inject.rs"]
mod inject;
#[cfg(feature = "daemon")]
mod packet_socket;
#[cfg(feature = "daemon")]
mod registry;
pub mod remote;
#[cfg(feature = "daemon")]
mod sockets;
#[cfg(feature = "daemon")]
#[path = "../../../manylane-worker/src/hooks/target.rs"]
mod target;

use std::fmt;
use std::io;
use std::ops::{BitOr, BitOrAssign};

use manylane_frame::vocabulary::{Point, PortId};
use manylane_io::packet_ring::{Reader, RingConfig, RingError};

#[cfg(feature = "daemon")]
pub use endpoint::Endpoint;
pub use fanout::Fanout;
#[cfg(feature = "daemon")]
pub use inject::InjectorEnd;
#[cfg(feature = "daemon")]
pub use packet_socket::{PacketSocket, Received};
#[cfg(feature = "daemon")]
pub use registry::{OpenSocket, Owner};
#[cfg(feature = "daemon")]
pub use sockets::{Place, SocketLimits, Sockets};
#[cfg(feature = "daemon")]
pub use target::{Member, Target};

/// Protocols of packet(7), in host byte order; any other ether type is one, too.
pub mod protocol {
    /// None: nothing is received.
    pub const NONE: u16 = 0;
    /// Every protocol (`ETH_P_ALL`).
    pub const ALL: u16 = 0x0003;
    /// IEEE 802.3 frames, which have a length in place of an ether type (`ETH_P_802_2`).
    pub const IEEE_802_2: u16 = 0x0004;
    /// IPv4 (`ETH_P_IP`).
    pub const IPV4: u16 = 0x0800;
    /// ARP (`ETH_P_ARP`).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (`ETH_P_IPV6`).
    pub const IPV6: u16 = 0x86dd;
}

/// Points of attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points(u8);

impl Points {
    /// None.
    pub const NONE: Points = Points(0);
    /// What is received.
    pub const RECEIVE: Points = Points::of(Point::Receive);
    /// What is transmitted.
    pub const TRANSMIT: Points = Points::of(Point::Transmit);
    /// What is dropped.
    pub const DROP: Points = Points::of(Point::Drop);
    /// All of them, for a trace: no point of a socket.
    pub(crate) const TRACE: Points = Points(1 << 7);

    /// This one.
    pub const fn of(point: Point) -> Points {
        Points(1 << point as u8)
    }

    /// Whether this one is among them.
    #[inline(always)]
    pub const fn has(self, point: Point) -> bool {
        self.0 & Points::of(point).0 != 0
    }

    /// Whether any of these is among them.
    #[inline(always)]
    pub(crate) const fn has_any(self, others: Points) -> bool {
        self.0 & others.0 != 0
    }

    /// These, and a trace's.
    pub(crate) const fn or_trace(self) -> Points {
        Points(self.0 | Points::TRACE.0)
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Points {
    type Output = Points;

    fn bitor(self, other: Points) -> Points {
        Points(self.0 | other.0)
    }
}

impl BitOrAssign for Points {
    fn bitor_assign(&mut self, other: Points) {
        *self = *self | other;
    }
}

/// What a socket has been given since it was last asked (packet(7), `PACKET_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that its filter let pass, lost ones included.
    pub packets: u64,
    /// Packets that found no room in its ring.
    pub lost: u64,
}

/// What a socket has unless it asks for another: half of the kernel's default of 208 KiB for each worker.
pub const RING: RingConfig = RingConfig { block_size: 32 << 10, blocks: 4, retire_ns: 1_000_000 };

impl Statistics {
    /// What lanes have counted since they were made.
    pub(super) fn of(readers: &[Reader]) -> Statistics {
        readers.iter().map(Reader::totals).fold(Statistics::default(), |sum, lane| Statistics {
            packets: sum.packets + lane.packets + lane.lost,
            lost: sum.lost + lane.lost,
        })
    }
}

/// Why a socket did not do what it was asked for. It is as it was.
#[non_exhaustive]
#[derive(Debug)]
pub enum SocketError {
    /// There are as many sockets as there may be.
    TooMany {
        /// The bound.
        max: u32,
    },
    /// The system gave no descriptor to be woken by.
    Wake(io::Error),
    /// Rings would take more memory than they may.
    Memory {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// The system gave no memory for a ring, or a ring cannot be so.
    Ring(RingError),
    /// There is no such port.
    NoSuchPort(PortId),
    /// More bindings have changed in one turn of a worker than are kept apart: try again.
    Busy,
    /// The group has another mode, or other bindings.
    GroupDiffers,
    /// The group has as many members as it may have.
    GroupFull,
    /// Packets come by the group: leave it before binding to something else.
    InGroup,
    /// A socket that is bound to nothing cannot join a group, nor send without a port.
    NotBound,
    /// So many packets wait to be sent that no more fit: try again.
    SendFull,
    /// No packet has so many bytes there.
    Length {
        /// Bytes.
        len: usize,
        /// Bytes of the largest.
        max: usize,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::TooMany { max } => {
                write!(
                    f,
                    "there are {max} packet sockets already; close one, or raise `max` in [sockets]"
                )
            }
            SocketError::Memory { wanted, left } => write!(
                f,
                "the ring would take {wanted} bytes and {left} are left; ask for less, close a socket, or raise \
                 `memory_max` in [sockets]"
            ),
            SocketError::Ring(source) => write!(f, "{source}"),
            SocketError::Wake(source) => {
                write!(
                    f,
                    "cannot make an eventfd to wake the reader by: {source}; close sockets, or raise `ulimit -n`"
                )
            }
            SocketError::NoSuchPort(port) => {
                write!(f, "there is no {port}; `manylane show ports` lists those there are")
            }
            SocketError::Busy => {
                f.write_str("too many bindings changed within one turn of a worker; try again")
            }
            SocketError::GroupDiffers => f.write_str(
                "the fanout group has another mode, protocol, port or points; name another group",
            ),
            SocketError::GroupFull => f.write_str("the fanout group is full; name another"),
            SocketError::InGroup => {
                f.write_str("the socket is a member of a fanout group; leave it first")
            }
            SocketError::NotBound => f.write_str("the socket is bound to no port; bind it first"),
            SocketError::SendFull => f.write_str("too many packets wait to be sent; try again"),
            SocketError::Length { len, max } => {
                write!(f, "a packet of {len} bytes cannot be sent: make it 14 to {max} bytes long")
            }
        }
    }
}

impl std::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SocketError::Ring(source) => Some(source),
            SocketError::Wake(source) => Some(source),
            _ => None,
        }
    }
}
