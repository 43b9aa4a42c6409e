//! The worker tier: threads of this process that forward what the program in the driver hands up to them.
//!
//! The program decides, and redirects a transit frame, unchanged, to the AF_XDP socket of the queue that received
//! it. The worker of that queue decides again, by the same tables under a guard of the domain, and sends the frame by
//! a socket of its own at the egress port. What is not transit any more is dropped: the kernel cannot have it back.
//!
//! | file        | holds                                                                             |
//! |-------------|-----------------------------------------------------------------------------------|
//! | `threads.rs`   | [`WorkerThreads`]: the mirror thread's side; it sends orders, and receives reports         |
//! | `socket_manager.rs`  | the thread that opens and closes ports' sockets, for which one may have to wait   |
//! | `turn.rs`   | a worker: its turn, the ports that it gets and returns                            |
//! | `sleep.rs`  | when it sleeps, and its word                                                      |
//! | `counts.rs` | what workers count                                                                |
//! | `drops.rs`  | packets that workers drop, for the exporter of samples                             |
//! | `copies.rs` | what workers copy for captures                                                    |
//!
//! | thread           | owns                                                      | hears            | says                     |
//! |------------------|-----------------------------------------------------------|------------------|--------------------------|
//! | mirror           | which port is to be the workers', and the flags of it     | [`Report`], a doorbell | [`Order`](threads::Order)   |
//! | socket manager            | the region, the map of sockets, ports that are open       | orders           | tasks, and what came of orders |
//! | worker, N        | its queues' receivers, a transmitter at each port, frames | tasks, a doorbell    | frames; its word         |
//!
//! # A worker that hangs
//!
//! A worker stamps a heartbeat: until when it is alive. After that time the program passes on frames received by its
//! queues. Frames in its rings wait for it, and are decided upon when it continues. A worker that sends by another
//! one's queue needs that one to take back what was sent; so it stamps only while that one turns, too.
//!
//! # A port comes and goes
//!
//! | step       | thread | what                                                                              |
//! |------------|--------|-----------------------------------------------------------------------------------|
//! | opened     | socket manager  | sockets on all queues; workers have their parts; the program knows the sockets    |
//! | in         | mirror | when the egress ports' queues are empty: flags of the port's record                      |
//! | out        | mirror | flags: the program hands up no more frames received here, or to be sent here      |
//! | emptied    | socket manager  | the sockets are out of the map; programs that ran have ended; workers receive what is there, send it, and give their parts back |
//! | closed     | socket manager  | frames on transmit rings leave, the rest is given back and counted                |
//!
//! So nothing is lost by that but what stands behind a full device. What overtakes is bounded by the rings.

mod copies;
mod counts;
mod drops;
mod sleep;
mod socket_manager;
#[cfg(test)]
mod tests;
mod threads;
mod turn;

use std::time::Duration;

use crate::programs::WORKERS_MAX;

pub use copies::reason_of;
pub(super) use copies::{WorkerCapture, WorkerCaptures};
pub(super) use counts::{WorkerCounts, WorkerRow, meaning};
pub(super) use drops::{WorkerDrop, WorkerDrops};
pub(super) use threads::{How, Report, ThreadContext, WorkerThreads};

/// How many workers, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerOptions {
    pub workers: usize,
    /// Cores to run on, in turn; any without.
    pub cores: Vec<usize>,
    /// The interfaces that may have sockets: the memory is for all of them.
    pub interfaces: Vec<String>,
    /// How long a worker may be silent.
    pub limit: Duration,
}

/// The default number of workers: one fewer than cores.
pub(super) fn by_default(cores: usize) -> usize {
    cores.saturating_sub(1).clamp(1, WORKERS_MAX)
}
