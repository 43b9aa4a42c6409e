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
//! daemon, and answers with the [`Setting`]; a value that cannot be is an [`ApiError`] with status 400, an
//! unknown key one with 404.
//!
//! | key                                                          | value                             |
//! |--------------------------------------------------------------|-----------------------------------|
//! | `workers`                                                    | how many there are                |
//! | `frames.hot_list_len`                                        | frames                            |
//! | `steering.netdev_max_backlog`, `.netdev_budget`, `.dev_weight` | packets                         |
//! | `steering.rebalance`                                         | `true`, `false`                   |
//! | `steering.reorder_sample`                                    | flows of which one is looked at, 0 for none |
//! | `port.PORT.steering`                                         | `queue`, `flow`                   |
//! | `port.PORT.bucket.N`, `port.PORT.queue.N`                    | a worker                          |
//! | `port.PORT.buckets`                                          | `FIRST-LAST=WORKER` or `BUCKET=WORKER`, with commas: all at once, or none |
//! | `worker.N.paused`                                            | `true`, `false`                   |
//!
//! `POST /v1/config/apply` with a [`ConfigRequest`] (`manylane config apply`) makes the daemon run by another
//! configuration, all of it or nothing, and answers with a [`ConfigApplied`]; `/v1/config/diff` says what would change,
//! `/v1/config/confirm` ends a trial, `/v1/config/rollback` goes back. `GET /v1/config` is the [`ConfigStatus`]. What is
//! not valid is an [`ApiError`] with status 400, what does not fit the moment one with 409.
//!
//! `PUT /v1/neighbours/PORT/ADDRESS` with a link-layer address as its body (`manylane neighbour add`) sets a
//! neighbour until it is deleted or the daemon ends; `DELETE` of the same path (`manylane neighbour delete`)
//! forgets one, whatever is known of it. Both answer with the [`NeighbourStatus`]: as it is now, as it was
//! then. What cannot be a neighbour is an [`ApiError`] with status 400, an unknown port or neighbour one with
//! 404, a full table one with 409.
//!
//! `DELETE /v1/ports/PORT` (`manylane port remove`) begins to remove a port, and answers with its [`PortStatus`];
//! one that cannot go is an [`ApiError`] with status 400, an unknown one with 404. It is done when the state of the
//! port is `removed`; its counters stay.
//!
//! `POST /v1/trace` with a [`TraceRequest`] (`manylane trace`) begins a trace, and answers with a [`TraceLine`] for
//! each line, for as long as the connection lasts: when who asked is gone, so is the trace. What cannot be followed
//! is an [`ApiError`] with status 400, an unknown port one with 404, a second trace one with 409.
//!
//! `POST /v1/capture/drops` with a [`CaptureRequest`], or without a body, captures what is dropped for some seconds, and
//! answers with a pcapng file; a second one at a time is an [`ApiError`] with status 409.
//!
//! Every other path or method is an [`ApiError`] with status 404 or 405. Names in `model` are the JSON: they may
//! be added to, and never change.
//!
//! | Room        | What it holds                                                          | May use            |
//! |-------------|------------------------------------------------------------------------|--------------------|
//! | `model`     | the JSON, and the traits by which a daemon answers                     | nothing            |
//! | `client`    | questions to a daemon's socket; the calling thread waits               | `model`            |
//! | `dashboard` | the page for browsers                                                  | nothing            |
//! | `server`    | sockets, routes with their descriptions, metrics, the page; runs on the API's thread | `model`, `dashboard` |
//! | `sample`    | a daemon that is none, for tests (feature `sample`)                    | `model`            |
//!
//! Only the control thread answers, so no request can make a worker wait.
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod client;
mod dashboard;
pub mod model;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod server;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError, FollowEnd};
pub use model::*;
pub use server::listen::{Door, Doors, Listen, ListenError, is_loopback};
pub use server::socket::{BindError, Socket};
pub use server::{serve, socket};

/// Where a daemon's API listens unless it is told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/manylane/api.sock";

#[cfg(test)]
mod message_tests;
