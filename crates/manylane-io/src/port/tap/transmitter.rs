//! One worker's transmit side.

use std::io;

use libc::iovec;
use manylane_frame::vocabulary::{Offload, PortId, QueueId};
use manylane_frame::{Batch, CHAIN_MAX, Frame, Pool, Region};

use super::super::Sent;
use super::super::vnet::{HEADER, Header, IOV_MAX, push_packet};
use super::device::Queue;

/// Writes to a queue.
pub struct Transmitter {
    queue: Queue,
    region: Region,
    iov: Iov,
    pub(super) port: PortId,
    number: QueueId,
    losses: TransmitLosses,
}

/// The entries of a packet, with capacity for the largest.
struct Iov(Vec<iovec>);

// SAFETY: its pointers are what makes the type not `Send`. `send` sets them right before the system call that
// uses them, and we never follow them.
unsafe impl Send for Iov {}

/// Packets and calls that failed while sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitLosses {
    /// Packets that the kernel rejected as invalid: their marks do not fit their bytes. Their
    /// frames returned to the pool like all others.
    pub dropped: u64,
    /// Calls that failed for lack of memory. The packets stay queued.
    pub stalls: u64,
    /// Calls that the kernel refused: the interface is down or gone. The packets stay queued.
    pub refused: u64,
}

impl Transmitter {
    pub(super) fn new(queue: Queue, region: &Region, port: PortId, number: QueueId) -> Transmitter {
        let iov = Iov(Vec::with_capacity(IOV_MAX));
        let losses = TransmitLosses::default();
        Transmitter { queue, region: region.clone(), iov, port, number, losses }
    }

    /// Sends the packets of `batch` in order, as far as the host accepts them; the rest stays in `batch`.
    /// Completed packets return to `pool`, after `completed` is called with the ingress port of each.
    #[inline]
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        mut completed: impl FnMut(PortId),
    ) -> Sent {
        let done = batch.iter().position(|frame| self.send(frame).is_err()).unwrap_or(batch.len());
        let mut sent = Sent { frames: done, bytes: 0 };
        let view = self.region.view();
        for frame in &batch.as_slice()[..done] {
            let meta = view.meta(frame);
            completed(meta.ingress);
            sent.bytes += meta.packet_len() as u64;
        }
        match done == batch.len() {
            true => pool.give_back_all(batch),
            false => batch.drain().take(done).for_each(|frame| pool.give_back(frame)),
        }
        sent
    }

    /// Sends a packet; an error means that it must wait.
    #[inline]
    fn send(&mut self, frame: &Frame) -> Result<(), Wait> {
        let view = self.region.view();
        let mut header = Header::of(view.meta(frame));
        let Iov(iov) = &mut self.iov;
        iov.clear();
        iov.push(iovec { iov_base: (&raw mut header).cast(), iov_len: HEADER });
        push_packet(iov, view, frame);
        // SAFETY: the debt of `Queue::write`: the addresses are of `header` and of the bytes of `frame`,
        // which we borrow.
        match unsafe { self.queue.write(iov) } {
            Ok(()) => Ok(()),
            Err(error) => self.failed(&error),
        }
    }

    /// Handles the errors of `tun_get_user`.
    #[cold]
    fn failed(&mut self, error: &io::Error) -> Result<(), Wait> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                self.losses.stalls += 1;
                Err(Wait)
            }
            // The interface is down (EIO), or gone.
            Some(libc::EIO | libc::EBADFD) => {
                self.losses.refused += 1;
                Err(Wait)
            }
            // EINVAL: the kernel will never accept this packet; it must not block the others.
            _ => {
                self.losses.dropped += 1;
                Ok(())
            }
        }
    }

    /// The packets it accepts.
    pub fn offload(&self) -> Offload {
        Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: true }
    }

    /// The queue that it writes to.
    pub fn queue(&self) -> QueueId {
        self.number
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The failures so far.
    pub fn losses(&self) -> TransmitLosses {
        self.losses
    }
}

/// The packet, and all after it, must wait.
struct Wait;
