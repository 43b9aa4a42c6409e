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

mod endpoint;
mod packet_socket;
mod registry;
pub mod remote;
mod sockets;

use std::fmt;
use std::io;

use manylane_frame::vocabulary::PortId;
use manylane_io::packet_ring::RingError;

pub use crate::config::SocketLimits;
pub use endpoint::Endpoint;
pub use packet_socket::{PacketSocket, Received};
pub use registry::{OpenSocket, Owner};
pub use sockets::{Place, Sockets};

pub use manylane_frame::vocabulary::Points;
pub use manylane_io::packet_ring::{Fanout, RING, Statistics, protocol};

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
