//! Packet sockets: copies of what passes, for any process that opens one, without a wait anywhere.
//!
//! The words and what can be observed are those of packet(7). Its waits are not: the kernel unregisters a
//! socket's hook, waits until no core can be looking at it, and registers it again, milliseconds for each
//! `bind` and `close`. Here a hook is never changed: a new one is published, the old one retired, and what
//! still arrives by the old one carries its generation and is not shown ([`manylane_sync::hook`]).
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
//! | `sockets`       | [`Sockets`]: the table's one writer, and what sockets share                     |
//! | `sockets/rings` | rings: made, paid for out of one bound, used again                              |
//! | `sockets/groups` | fanout groups: sockets that share what arrives                                 |
//! | `endpoint`      | a socket without its reading end, which may be in another process              |
//! | `registry`      | the sockets that are open, for the API                                          |
//! | `remote`        | sockets of other processes: the thread that serves them                         |
//!
//! What a hook wants, which member of a group is given a packet, and packets to send are `manylane_worker::hooks`; the
//! workers' side is `worker/observers.rs`, the other processes' `manylane-client`.
//!
//! Where a packet is seen (`Point`):
//!
//! | point    | when                                          | as                                              |
//! |----------|-----------------------------------------------|-------------------------------------------------|
//! | receive  | taken from a queue, before anything is decided | it came, tags included                          |
//! | transmit | about to be handed to a device                | it leaves; a device without room may refuse it, and then it is seen as a drop, too |
//! | drop     | a drop reason was counted                     | it was then; where an error is made of it, before that |
//!
//! Workers look once a turn at which points a socket is bound, so a socket misses what passes before their next turn.
//! Not shown at all are frames that a closing device gives back (`port_down`) and what was handed on when the daemon
//! ends (`shutdown`): no worker runs there. Counters have these frames.
//!
//! A worker that finds no room in a lane counts the packet as lost and continues: a reader that is slow, stopped
//! or gone costs workers no more than one that reads.

mod endpoint;
mod error;
mod packet_socket;
mod registry;
pub mod remote;
mod sockets;

pub use crate::config::SocketLimits;
pub use endpoint::Endpoint;
pub use error::SocketError;
pub use packet_socket::{PacketSocket, Received};
pub use registry::{OpenSocket, Owner};
pub use sockets::{Place, Sockets};

pub use manylane_frame::vocabulary::Points;
pub use manylane_io::packet_ring::{Fanout, RING, Statistics, protocol};
