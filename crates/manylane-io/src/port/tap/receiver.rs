//! One queue's receive side.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Batch, Pool, Region};

use super::super::Losses;
use super::super::vnet::{HEADER, Lost, ReceiveBuffer, Received};
use super::counter::Counter;
use super::device::Queue;

/// A queue, and frames for one packet.
pub struct Receiver {
    queue: Queue,
    region: Region,
    buffer: ReceiveBuffer,
    pub(super) port: PortId,
    number: QueueId,
    lost: RefCell<Lost>,
    /// Only the first queue has it: the kernel counts for all queues together.
    counter: Option<RefCell<Counter>>,
    too_large: u64,
    invalid: u64,
}

impl Receiver {
    pub(super) fn new(
        queue: Queue,
        region: &Region,
        buffer_bytes: u32,
        port: PortId,
        number: QueueId,
        counter: Option<Counter>,
    ) -> Receiver {
        Receiver {
            queue,
            region: region.clone(),
            buffer: ReceiveBuffer::new(region, buffer_bytes),
            port,
            number,
            lost: RefCell::default(),
            counter: counter.map(RefCell::new),
            too_large: 0,
            invalid: 0,
        }
    }

    /// Receives pending packets, as many as `batch` has room for; returns how many.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let before = batch.len();
        // Bounded by the room at the start, even if more packets arrive: a worker never waits.
        for _ in 0..batch.room() {
            if !self.prime(pool) {
                break; // The kernel keeps the packets, and drops those beyond its queue.
            }
            // SAFETY: the debt of `Queue::read`: by `ReceiveBuffer` invariant 1 the addresses are of frames
            // that the buffer owns.
            match unsafe { self.queue.read(self.buffer.iov()) } {
                Ok(len) => self.received(len, batch),
                Err(error) => match error.raw_os_error() {
                    // A packet that the header cannot express; the kernel has dropped it.
                    Some(libc::EINVAL) => self.invalid += 1,
                    // No packet is pending, or the interface is gone (EBADFD).
                    _ => break,
                },
            }
        }
        batch.len() - before
    }

    /// Posts frames for a packet; false when `pool` has not enough.
    #[inline]
    pub fn prime(&mut self, pool: &mut Pool) -> bool {
        let full = self.buffer.fill(pool);
        let counter = &self.counter;
        self.lost.get_mut().set_dry(!full, || look(counter));
        full
    }

    #[inline]
    fn received(&mut self, len: usize, batch: &mut Batch) {
        if len < HEADER {
            self.invalid += 1;
        } else if len == self.buffer.capacity() {
            self.too_large += 1; // The buffer has room for one byte more than the largest packet.
        } else {
            match self.buffer.received(&self.region, len, self.port, self.number) {
                Received::Packet(frame) => {
                    batch.push(frame).expect("the loop is bounded by the room");
                }
                Received::InvalidHeader => self.invalid += 1,
            }
        }
    }

    /// Returns the frames to `pool`; returns how many.
    pub(super) fn close(mut self, pool: &mut Pool) -> usize {
        self.buffer.give_back(pool)
    }

    /// Frames posted for a packet.
    pub fn posted(&self) -> usize {
        self.buffer.frames()
    }

    /// The losses of this queue. The first queue also reports the packets for which the interface had no room, for all
    /// its queues. System calls: for the statistics, not for every turn.
    pub fn losses(&self) -> Losses {
        let mut lost = self.lost.borrow_mut();
        lost.add(look(&self.counter));
        Losses {
            ring_full: lost.slow,
            no_buffer: lost.no_buffer,
            too_large: self.too_large,
            invalid: self.invalid,
        }
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The queue.
    pub fn queue(&self) -> QueueId {
        self.number
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn look(counter: &Option<RefCell<Counter>>) -> u64 {
    counter.as_ref().map_or(0, |counter| counter.borrow_mut().look())
}
