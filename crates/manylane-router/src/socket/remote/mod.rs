//! Packet sockets for other processes.
//!
//! The daemon listens beside its API's socket (`manylane_client::path_beside`), for its owner and the group `manylane-capture`. One
//! connection is one socket, which closes with it. `manylane_client::message` is what travels; the answer to `open` brings two
//! descriptors (`SCM_RIGHTS` in unix(7)): the ring's memfd, and what the reader is woken by.
//!
//! The reader's descriptor is an eventfd of the daemon's, but in an epoll instance, edge-triggered: the reader can
//! sleep on it as on the eventfd itself, and cannot fill it, nor take `O_NONBLOCK` from it, so that to wake a reader
//! never waits.
//!
//! | file       | what                                                              |
//! |------------|-------------------------------------------------------------------|
//! | `message`  | requests and answers                                              |
//! | `listener` | [`Listener`]: the socket's file, processes that connect           |
//! | `server`   | [`Server`]: the thread, its bounds, waking readers                |
//! | `connection` | one process, its requests                                       |
//! | `ahead`    | what the next socket needs, made when it is quiet                 |
//! | `maker`    | a thread that makes large rings meanwhile                         |
//! | `closer`   | closes connections by which descriptors have come                 |
//! | `overload` | which sockets take too much of workers' time                      |
//!
//! The other side is crate `manylane-client`.

mod ahead;
mod closer;
mod connection;
mod listener;
mod maker;
mod overload;
mod server;

pub use listener::Listener;
pub use server::Server;
