//! Ports: where frames enter and leave.
//!
//! An open port is halves: a [`Receiver`] for each receive queue, owned by one worker, and a
//! [`Transmitter`] for each worker, so that no queue has two owners and no worker locks.
//!
//! | driver      | what it is                                              |
//! |-------------|---------------------------------------------------------|
//! | [`af_xdp`]  | a queue of a network device, through an AF_XDP socket   |
//! | [`memory`]  | functions that make and take frames, or a wire in memory|
//!
//! A port knows no protocol above Ethernet. It says what it knows of a frame in its metadata.

pub mod af_xdp;
pub mod memory;

use std::os::fd::{AsFd, BorrowedFd};

pub use af_xdp::Losses;
use manylane_frame::vocabulary::{Offload, PortId, QueueId};
use manylane_frame::{Batch, CHAIN_MAX, Pool};

/// What wakes a worker for a receiver that has nothing now.
pub enum Wait<'r> {
    /// This descriptor becomes readable.
    Readable(BorrowedFd<'r>),
    /// Time passes: there may be frames after so many nanoseconds.
    After(u64),
    /// Whoever sends to it rings the worker's doorbell.
    Doorbell,
    /// There will be no more.
    Done,
}

/// One receive queue of a port.
pub enum Receiver {
    /// Of a network device.
    AfXdp(Box<af_xdp::Receiver>),
    /// In memory.
    Memory(memory::Receiver),
}

impl Receiver {
    /// Receives up to `batch.room()` frames at the end of `batch`; returns how many.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.receive(pool, batch),
            Receiver::Memory(queue) => queue.receive(pool, batch, now_ns),
        }
    }

    /// Gives the device frames to receive into, before the first [`receive`](Receiver::receive) does.
    pub fn prime(&mut self, pool: &mut Pool) {
        if let Receiver::AfXdp(queue) = self {
            queue.prime(pool);
        }
    }

    /// Takes back what was sent by this queue's device, for whichever worker. Calls `completed` with the
    /// port of entry of each frame.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool, mut completed: impl FnMut(PortId)) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.reclaim(pool, |meta| completed(meta.entry)),
            Receiver::Memory(_) => 0,
        }
    }

    /// The port it belongs to.
    pub fn port(&self) -> PortId {
        match self {
            Receiver::AfXdp(queue) => queue.port(),
            Receiver::Memory(queue) => queue.port(),
        }
    }

    /// Its number in the port.
    pub fn queue(&self) -> QueueId {
        match self {
            Receiver::AfXdp(queue) => queue.queue(),
            Receiver::Memory(queue) => queue.queue(),
        }
    }

    /// What to wait for when there is nothing to receive.
    pub fn wait(&self) -> Wait<'_> {
        match self {
            Receiver::AfXdp(queue) => Wait::Readable(queue.as_fd()),
            Receiver::Memory(queue) => queue.wait(),
        }
    }

    /// What was lost before it could be received, since the port was opened. May be a system call.
    pub fn losses(&self) -> Losses {
        match self {
            // The one failure would be a closed socket.
            Receiver::AfXdp(queue) => queue.losses().unwrap_or_default(),
            Receiver::Memory(_) => Losses::default(),
        }
    }

    /// Frames that lie at the device, waiting to be received into, or received and not taken.
    pub fn posted(&self) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.posted(),
            Receiver::Memory(queue) => queue.waiting(),
        }
    }

    /// Whether frames wait that no descriptor tells of.
    pub fn has_frames(&self) -> bool {
        match self {
            Receiver::AfXdp(_) => false,
            Receiver::Memory(queue) => queue.waiting() > 0,
        }
    }
}

/// What a transmitter took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: usize,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
}

/// One worker's way out through a port.
pub enum Transmitter {
    /// Through a network device.
    AfXdp(Box<af_xdp::Transmitter>),
    /// Into memory.
    Memory(memory::Transmitter),
}

impl Transmitter {
    /// Transmits frames from the front of `batch`; what finds no place stays there, in order. Frames
    /// that are finished at once go back to `pool`, and `completed` is called with the port of entry of
    /// each; for the others that happens in [`Receiver::reclaim`].
    #[inline]
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        completed: impl FnMut(PortId),
    ) -> Sent {
        match self {
            Transmitter::AfXdp(queue) => queue.transmit(batch),
            Transmitter::Memory(queue) => queue.transmit(pool, batch, completed),
        }
    }

    /// Tells the device that frames wait, if it must be told.
    #[inline]
    pub fn flush(&mut self) {
        match self {
            Transmitter::AfXdp(queue) => queue.flush(),
            Transmitter::Memory(queue) => queue.flush(),
        }
    }

    /// Frames that the device took and did not send, since the port was opened: they come back like the
    /// others, so that nobody else knows.
    pub fn dropped(&self) -> u64 {
        match self {
            Transmitter::AfXdp(queue) => queue.losses().dropped,
            Transmitter::Memory(_) => 0,
        }
    }

    /// The receive queue of the port whose owner takes back what is sent here; `None` when frames are
    /// finished at once.
    pub fn completion_queue(&self) -> Option<QueueId> {
        match self {
            Transmitter::AfXdp(queue) => Some(queue.completion_queue()),
            Transmitter::Memory(_) => None,
        }
    }

    /// What it takes besides ordinary packets of one frame; anything else comes out wrong at the far end.
    pub fn offload(&self) -> Offload {
        match self {
            Transmitter::AfXdp(_) => Offload::NONE,
            // Who is at the far end sees the metadata too.
            Transmitter::Memory(_) => {
                Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: true }
            }
        }
    }
}
