//! The worker tier: threads of this process that forward what the program in the driver hands up to them.
//!
//! The program decides, and a frame that is transit goes as it came to the AF_XDP socket of the queue that it came in
//! by. The worker of that queue decides again, by the same tables under a guard of the domain, and sends the frame by
//! a socket of its own at the egress. What is not transit any more is dropped: the kernel cannot have it back.
//!
//! | file        | holds                                                                             |
//! |-------------|-----------------------------------------------------------------------------------|
//! | `threads.rs`   | [`WorkerThreads`]: the mirror thread's side; it orders, and is told                         |
//! | `socket_manager.rs`  | the thread that opens and closes ports' sockets, for which one may have to wait   |
//! | `turn.rs`   | a worker: its turn, what it gives and takes                                       |
//! | `sleep.rs`  | when it sleeps, and its word                                                      |
//! | `counts.rs` | what workers count                                                                |
//!
//! | thread           | owns                                                      | hears            | says                     |
//! |------------------|-----------------------------------------------------------|------------------|--------------------------|
//! | mirror           | which port is to be the workers', and the flags of it     | [`Report`], a doorbell | [`Order`](threads::Order)   |
//! | socket manager            | the region, the map of sockets, ports that are open       | orders           | tasks, and what came of orders |
//! | worker, N        | its queues' receivers, a transmitter at each port, frames | tasks, a doorbell    | frames; its word         |
//!
//! # A worker that hangs
//!
//! A worker stamps a word: until when it is known to turn. When that is over the program passes on what comes in by its
//! queues. What lies in its rings waits for it, and is decided upon when it goes on. A worker that sends by another
//! one's queue needs that one to take back what was sent; so it stamps only while that one turns, too.
//!
//! # A port comes and goes
//!
//! | step       | who    | what                                                                              |
//! |------------|--------|-----------------------------------------------------------------------------------|
//! | opened     | socket manager  | sockets on all queues; workers have their parts; the program knows the sockets    |
//! | in         | mirror | when the egress ports' queues are empty: flags of the port's record                      |
//! | out        | mirror | flags: the program hands up nothing more that comes in, or is to leave, here      |
//! | emptied    | socket manager  | the sockets are out of the map; programs that ran have ended; workers receive what is there, send it, and give their parts back |
//! | closed     | socket manager  | what is on transmit rings leaves, the rest comes home: it is counted              |
//!
//! So nothing is lost by that but what stands behind a full device. What overtakes is bounded by the rings.

mod counts;
mod sleep;
mod socket_manager;
#[cfg(test)]
mod tests;
mod threads;
mod turn;

use std::time::Duration;

use crate::programs::WORKERS_MAX;

pub(super) use counts::{WorkerCounts, WorkerRow, meaning};
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
