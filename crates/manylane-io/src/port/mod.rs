//! Ports: where packets enter and leave.
//!
//! An open port has two kinds of parts: a [`Receiver`] for each receive queue, owned by one worker, and a
//! [`Transmitter`] for each worker, so that no queue has two owners and no worker locks. [`Receiving`] assigns
//! the device's transmit queues to workers.
//!
//! | driver        | what it is                                               |
//! |---------------|----------------------------------------------------------|
//! | [`af_xdp`]    | a queue of a network device, through an AF_XDP socket    |
//! | [`af_packet`] | a network device, through packet sockets                 |
//! | [`tap`]       | a wire to the host's own stack                           |
//! | [`pcap`]      | capture files: packets out of one, packets into one      |
//! | [`memory`]    | functions that make and take frames, or a wire in memory |
//! | [`tee`]       | wraps any of these: copies its packets elsewhere         |
//! | [`fault`]     | wraps any of these: drops, delays or damages its packets |
//!
//! A port knows no protocol above Ethernet. The port reports what it knows of a frame in the frame's metadata.
//!
//! May use: `manylane-frame`, `manylane-sync`, and this crate's `bpf`, `interface`, `netlink`, `eventfd`, `poll`.
//! Touched by: workers, each its own receivers and transmitters; the control thread, which opens and closes ports.

pub mod af_packet;
pub mod af_xdp;
pub mod fault;
mod losses;
pub mod memory;
pub mod pcap;
mod receiver;
#[cfg(test)]
mod rig;
pub mod tap;
pub mod tee;
mod transmit_queue;
mod transmitter;
mod vnet;
mod write;

use std::os::fd::BorrowedFd;

pub use fault::FaultCounts;
pub use losses::Losses;
pub use receiver::Receiver;
pub use tee::CopyCounts;
pub use transmit_queue::Receiving;
pub use transmitter::{Fate, Sent, Transmitter};
pub use vnet::PACKET_MAX;

/// Returns the time in nanoseconds, counted from any moment.
pub type Clock = Box<dyn FnMut() -> u64 + Send>;

/// The event that wakes a worker for an idle receiver.
pub enum Wait<'r> {
    /// This descriptor becomes readable.
    Readable(BorrowedFd<'r>),
    /// Time passes: frames may arrive after this many nanoseconds.
    After(u64),
    /// The sender rings the worker's doorbell.
    Doorbell,
    /// No more frames will arrive.
    Done,
}

impl Wait<'_> {
    /// Limits the wait to `due_ns` nanoseconds, if given.
    fn at_most(self, due_ns: Option<u64>) -> Self {
        let Some(due_ns) = due_ns else { return self };
        Wait::After(match self {
            Wait::After(wait_ns) => due_ns.min(wait_ns),
            // A wait is for one event: check the descriptor by the clock meanwhile.
            Wait::Readable(_) => due_ns.min(LOOK_AGAIN_NS),
            // A worker always waits for its bell too.
            Wait::Doorbell | Wait::Done => due_ns,
        })
    }
}

/// How soon to check again for frames whose queue cannot end the sleep.
const LOOK_AGAIN_NS: u64 = 1_000_000;
