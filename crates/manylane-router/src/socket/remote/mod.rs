//! Packet sockets for other processes.
//!
//! The daemon listens beside its API's socket ([`path_beside`]), for its owner and the group `manylane-capture`. One
//! connection is one socket, which closes with it. [`message`] is what travels; the answer to `open` brings two
//! descriptors (`SCM_RIGHTS` in unix(7)): the ring's memfd, and what the reader is woken by.
//!
//! That is an eventfd of the daemon's, but in an epoll instance, edge-triggered: the reader can sleep on it as on
//! the eventfd itself, and cannot fill it, nor take `O_NONBLOCK` from it, so that to wake a reader never waits.
//!
//! | file       | what                                                              |
//! |------------|-------------------------------------------------------------------|
//! | `message`  | requests and answers                                              |
//! | `listener` | [`Listener`]: the socket's file, who connects                     |
//! | `server`   | [`Server`]: the thread, its bounds, waking readers                |
//! | `connection` | one process, what it asks for                                   |
//! | `maker`    | a thread that makes large rings meanwhile                         |
//!
//! The other side is [`client`](super::client).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(feature = "daemon")]
mod connection;
#[cfg(feature = "daemon")]
mod listener;
#[cfg(feature = "daemon")]
mod maker;
#[path = "../../../../manylane-client/src/message.rs"]
pub mod message;
#[cfg(feature = "daemon")]
mod server;

#[cfg(feature = "daemon")]
pub use listener::Listener;
#[cfg(feature = "daemon")]
pub use server::Server;

/// Where a daemon listens for packet sockets whose API's socket is at `api`.
pub fn path_beside(api: &Path) -> PathBuf {
    let mut path = OsString::from(api);
    path.push(".capture");
    path.into()
}
