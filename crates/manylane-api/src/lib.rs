//! The daemon's API: HTTP and JSON on a Unix socket.
//!
//! | `GET`            | Answer                       | `manylane show` |
//! |------------------|------------------------------|-----------------|
//! | `/v1/ports`      | list of [`PortStatus`]       | `ports`         |
//! | `/v1/workers`    | list of [`WorkerStatus`]     | `workers`       |
//! | `/v1/routes`     | list of [`RouteStatus`]      | `routes`        |
//! | `/v1/neighbours` | list of [`NeighbourStatus`]  | `neighbours`    |
//! | `/v1/addresses`  | list of [`AddressStatus`]    | `addresses`     |
//! | `/v1/drops`      | list of [`DropStatus`]       | `drops`         |
//! | `/v1/ledger`     | [`Ledger`]                   | `ledger`        |
//! | `/v1/frames`     | [`FramesStatus`]             | `frames`        |
//! | `/v1/steering`   | [`SteeringStatus`]           | `steering`      |
//! | `/v1/sockets`    | [`SocketsStatus`]            | `sockets`       |
//! | `/v1/daemon`     | [`Daemon`]                   |                 |
//! | `/v1/openapi.json` | all of this, in OpenAPI 3.1 |                |
//! | `/metrics`       | the counters for Prometheus  |                 |
//! | `/`              | the dashboard                |                 |
//!
//! `PUT /v1/config/KEY` with a value as its body (`manylane config set`) changes a setting of the running
//! daemon, and answers with the [`Setting`]; a wrong value is an [`ApiError`] with status 400, an
//! unknown key an [`ApiError`] with status 404.
//!
//! | key                                                          | value                             |
//! |--------------------------------------------------------------|-----------------------------------|
//! | `workers`                                                    | number of workers                 |
//! | `frames.hot_list_len`                                        | frames                            |
//! | `steering.netdev_max_backlog`, `.netdev_budget`, `.dev_weight` | packets                         |
//! | `steering.rebalance`                                         | `true`, `false`                   |
//! | `steering.reorder_sample`                                    | the order of one flow in this number is checked; 0 for none |
//! | `port.PORT.steering`                                         | `queue`, `flow`                   |
//! | `port.PORT.bucket.N`, `port.PORT.queue.N`                    | a worker                          |
//! | `port.PORT.buckets`                                          | `FIRST-LAST=WORKER` or `BUCKET=WORKER`, with commas: all at once, or none |
//! | `worker.N.paused`                                            | `true`, `false`                   |
//!
//! `POST /v1/config/apply` with a [`ConfigRequest`] (`manylane config apply`) makes the daemon run by another
//! configuration, all of it or nothing, and answers with a [`ConfigApplied`]; `/v1/config/diff` says what would change,
//! `/v1/config/confirm` ends a trial, `/v1/config/rollback` goes back. `GET /v1/config` is the [`ConfigStatus`]. A
//! configuration that is not valid is an [`ApiError`] with status 400; a conflict with the daemon's state has 409.
//!
//! `PUT /v1/neighbours/PORT/ADDRESS` with a link-layer address as its body (`manylane neighbour add`) sets a
//! neighbour until it is deleted or the daemon ends; `DELETE` of the same path (`manylane neighbour delete`)
//! forgets a neighbour in any state. Both answer with the [`NeighbourStatus`]: `PUT` with the new one, `DELETE` with the
//! last one. A wrong address is an [`ApiError`] with status 400, an unknown port or neighbour has 404, a full table 409.
//!
//! `DELETE /v1/ports/PORT` (`manylane port remove`) begins to remove a port, and answers with its [`PortStatus`];
//! a port that cannot be removed is an [`ApiError`] with status 400, an unknown port has 404. The removal is complete when
//! the state of the port is `removed`; its counters stay.
//!
//! `POST /v1/trace` with a [`TraceRequest`] (`manylane trace`) begins a trace, and answers with a [`TraceLine`] for
//! each line, for as long as the connection lasts: the end of the connection ends the trace. A wrong request
//! is an [`ApiError`] with status 400, an unknown port has 404, a second trace at the same time 409.
//!
//! `POST /v1/capture/drops` with a [`CaptureRequest`], or without a body, captures dropped packets for some seconds, and
//! answers with a pcapng file; a second one at a time is an [`ApiError`] with status 409.
//!
//! Every other path or method is an [`ApiError`] with status 404 or 405. Names in `model` are the JSON. Until
//! version 1.0 a release may rename them, with a line in CHANGELOG.md; later releases only add names.
//!
//! | Room        | Content                                                                | May use            |
//! |-------------|------------------------------------------------------------------------|--------------------|
//! | `model`     | the JSON, and the traits by which a daemon answers                     | nothing            |
//! | `client`    | requests to a daemon's socket; the calling thread waits               | `model`            |
//! | `dashboard` | the page for browsers                                                  | nothing            |
//! | `lock_file` | a lock that goes with its process, for what one daemon has             | nothing            |
//! | `server`    | sockets, routes with their descriptions, metrics, the page; runs on the API's thread | `model`, `dashboard`, `lock_file` |
//! | `sample`    | a daemon with fixed answers, for tests (feature `sample`)                    | `model`            |
//!
//! Each peer (a user at the socket, an address by TCP) has its share of connections, a deadline for each request and each
//! answer, and one long list at a time: [`Bounds`].
//!
//! Only the control thread answers, so no request can make a worker wait.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod client;
mod dashboard;
pub mod lock_file;
pub mod model;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod server;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError, FollowEnd};
pub use model::*;
pub use server::bounds::Bounds;
pub use server::listen::{Door, Doors, Listen, ListenError, is_loopback};
pub use server::socket::{BindError, Socket};
pub use server::{serve, socket};

/// The default path of the socket of a daemon's API.
pub const DEFAULT_SOCKET: &str = "/run/manylane/manylane.sock";

#[cfg(test)]
mod message_tests;
