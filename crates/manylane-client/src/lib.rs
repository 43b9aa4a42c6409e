//! Packet sockets of a daemon in another process.
//!
//! [`RemoteSocket`] has the words of packet(7), as the daemon's own `PacketSocket` has inside the daemon. One
//! connection is one socket: it closes when it is dropped, or when its process ends, however that comes about.
//! The connection carries no packets: workers copy them into memory that both processes have, and a call is
//! made only to be woken. A slow reader loses packets, which are counted for it ([`lost`](Statistics::lost)), and costs
//! workers no more than a fast one.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use manylane_client::{Options, Points, RemoteSocket, protocol};
//!
//! # fn main() -> Result<(), manylane_client::RemoteError> {
//! let options = Options { points: Points::RECEIVE | Points::DROP, snap: 128, ..Options::default() };
//! let mut socket = RemoteSocket::open(Path::new("/run/manylane/manylane.sock.capture"), &options)?;
//! socket.bind(Some("lan"), protocol::IPV6)?; // From here on nothing else is given.
//! while socket.wait(None)? {
//!     while let Some(block) = socket.receive() {
//!         for packet in block.packets() {
//!             println!("{} {} bytes", packet.record.point, packet.record.len);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Capture`] is the same with packets of all workers in order of time.
//!
//! | file         | what                                                          |
//! |--------------|---------------------------------------------------------------|
//! | `connection` | [`Connection`]: requests to the daemon                   |
//! | `ring`       | [`RemoteSocket`]: blocks, and being woken                     |
//! | `accelerated` | [`AcceleratedCapture`]: a capture of `manylane accelerate`   |
//! | `rings`      | [`CpuRings`]: packets that programs in the kernel have copied |
//! | `copied`     | [`Copied`]: such a packet                                     |
//! | `workers`    | packets that workers of `manylane accelerate` have copied     |
//! | `order`      | [`Capture`]: packets in order of time                         |
//! | `error`      | [`RemoteError`]                                               |
//! | `message`    | what travels between a client and the daemon                  |
//!
//! The daemon's side is `socket/remote` of `manylane-router`. The mode of the
//! socket's file says which users may connect (its owner and the group `manylane-capture`), within the bounds of `[sockets]`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

mod accelerated;
mod connection;
mod copied;
mod error;
pub mod message;
mod order;
mod ring;
mod rings;
mod workers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use manylane_io::packet_ring::RingConfig;
use manylane_net::filter::Program;

pub use accelerated::{AcceleratedCapture, CaptureOptions};
pub use connection::Connection;
pub use copied::Copied;
pub use error::RemoteError;
pub use order::{Capture, InOrder, Round};
pub use ring::RemoteSocket;
pub use rings::{CpuRings, SETTLED, WORKERS_SETTLED};
pub use workers::{FRONT, UNSENT, front};

pub use manylane_frame::vocabulary::Points;
pub use manylane_io::packet_ring::{Fanout, RING, Statistics, protocol};
pub use message::{Counts, Kind, Port, Refusal};

/// What a new socket is like. All of it but the ring can be changed later.
#[derive(Clone, Debug)]
pub struct Options {
    /// A port's name; all ports without one.
    pub port: Option<String>,
    /// In host byte order; see [`protocol`].
    pub protocol: u16,
    /// Where packets are seen.
    pub points: Points,
    /// What is let pass; everything without one.
    pub filter: Option<Program>,
    /// Bytes to keep of each packet, 0 for all.
    pub snap: u32,
    /// The ring, for each worker.
    pub ring: RingConfig,
    /// The fanout group to join.
    pub fanout: Option<(u16, Fanout)>,
}

impl Default for Options {
    /// Every packet that any port receives, whole, by a small ring.
    fn default() -> Options {
        Options {
            port: None,
            protocol: protocol::ALL,
            points: Points::RECEIVE,
            filter: None,
            snap: 0,
            ring: RING,
            fanout: None,
        }
    }
}

/// Where a daemon listens for packet sockets whose API's socket is at `api`.
pub fn path_beside(api: &Path) -> PathBuf {
    let mut path = OsString::from(api);
    path.push(".capture");
    path.into()
}

#[cfg(test)]
mod message_tests;
