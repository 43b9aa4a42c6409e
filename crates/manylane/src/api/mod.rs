//! The daemon's API: HTTP and JSON on a Unix socket.
//!
//! | `GET`            | Answer                       | `manylane show` |
//! |------------------|------------------------------|-----------------|
//! | `/v1/ports`      | list of [`PortStatus`]       | `ports`         |
//! | `/v1/workers`    | list of [`WorkerStatus`]     | `workers`       |
//! | `/v1/routes`     | list of [`RouteStatus`]      | `routes`        |
//! | `/v1/neighbours` | list of [`NeighbourStatus`]  | `neighbours`    |
//! | `/v1/drops`      | list of [`DropStatus`]       | `drops`         |
//! | `/v1/ledger`     | [`Ledger`]                   | `ledger`        |
//! | `/v1/frames`     | [`FramesStatus`]             | `frames`        |
//! | `/v1/daemon`     | [`Daemon`]                   |                 |
//!
//! `PUT /v1/config/frames.hot_list_len` with a number as its body (`manylane config set`) changes that
//! setting of the running daemon, and answers with the [`Setting`]; a value that cannot be is an
//! [`ApiError`] with status 400, another key one with 404.
//!
//! Every other path or method is an [`ApiError`] with status 404 or 405. Names in `model` are the JSON: they may
//! be added to, and never change.
//!
//! | Side   | File        | Runs on                                                          |
//! |--------|-------------|------------------------------------------------------------------|
//! | daemon | `server.rs` | the control thread, which takes snapshots through [`Source`]     |
//! | CLI    | `client.rs` | the calling thread, which waits                                  |
//!
//! Only the control thread answers, so no request can make a worker wait.

pub mod client;
pub mod model;
#[cfg(test)]
pub(crate) mod sample;
pub mod server;
pub mod socket;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError};
pub use model::{
    ApiError, CopyStatus, Daemon, DropStatus, FaultStatus, FrameHolder, FrameLedger, FrameLine,
    FramesStatus, Ledger, ListStatus, NeighbourState, NeighbourStatus, PortLedger, PortStatus,
    QueueName, RouteKind, RouteStatus, SetError, Setting, VlanStatus, WorkerStatus,
};
pub use server::{Source, serve};
pub use socket::{BindError, Socket};
