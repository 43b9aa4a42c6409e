//! One worker's way out.

use std::os::fd::{AsFd, BorrowedFd};

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Batch, Holder, Region};

use super::super::Sent;
use super::lent::Lent;
use super::ring::ProducerRing;
use super::socket::{Socket, Transfer};

/// A transmit ring.
pub struct Transmitter {
    // The ring comes first: fields drop in order, and a mapping holds the socket open.
    pub(super) ring: ProducerRing<libc::xdp_desc>,
    pub(super) socket: Socket,
    pub(super) region: Region,
    /// The giver's bits of frames lent for transmitting; the taker is the queue's receiver.
    pub(super) sent: Lent,
    /// Frames put on the ring.
    pub(super) lent: u64,
    pub(super) transfer: Transfer,
    pub(super) port: PortId,
    pub(super) queue: QueueId,
    pub(super) losses: TransmitLosses,
}

/// What went wrong while sending. None of it leaks a frame: each is completed or still on the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitLosses {
    /// Frames that the device dropped (its peer's queue was full, or the peer is down).
    pub dropped: u64,
    /// Kicks that moved nothing: the device or the completion ring was full. The frames stay.
    pub stalls: u64,
    /// Kicks that the kernel refused: the device is down or gone. The frames stay.
    pub refused: u64,
}

impl Transmitter {
    /// Puts the frames of `batch` on the ring, in order, as many as fit; the rest stays in `batch`.
    /// Returns how many. They leave with the next [`flush`](Transmitter::flush).
    ///
    /// Every frame has at least an Ethernet header: the kernel would keep an empty one until the port
    /// closes.
    #[inline]
    pub fn transmit(&mut self, batch: &mut Batch) -> Sent {
        let count = self.ring.free(batch.len() as u32).min(batch.len() as u32) as usize;
        let mut sent = Sent { frames: count, bytes: 0 };
        if count == 0 {
            return sent;
        }
        for frame in batch.drain().take(count) {
            let len = self.region.meta(&frame).len() as u32;
            debug_assert!(len >= 14, "a frame of {len} bytes");
            sent.bytes += u64::from(len);
            self.region.note(&frame, Holder::Transmit(self.port));
            let addr = self.region.lend(frame);
            self.sent.turn(addr);
            self.ring.push(libc::xdp_desc { addr, len, options: 0 });
        }
        self.ring.submit();
        self.lent += count as u64;
        sent
    }

    /// Makes the kernel send what is on the ring, as far as the device takes it. Cheap when there is
    /// nothing. Call it in every turn, also when nothing was added: what did not leave stays.
    #[inline]
    pub fn flush(&mut self) {
        let waiting = self.ring.waiting();
        if waiting > 0 {
            match self.transfer {
                Transfer::Copy => self.kick_until_empty(waiting),
                Transfer::ZeroCopy if self.ring.needs_wakeup() => drop(self.kick()),
                Transfer::ZeroCopy => {} // The driver is at it.
            }
        }
    }

    /// Copying is done by this thread, inside of the system call, 32 frames at a time
    /// (`TX_BATCH_SIZE` in net/xdp/xsk.c).
    fn kick_until_empty(&mut self, mut waiting: u32) {
        // Each kick but the last moves something, so there are at most as many as frames.
        let kicks_max = waiting + 1;
        for _ in 0..kicks_max {
            let kicked = self.kick();
            let left = self.ring.waiting();
            match kicked {
                Kicked::Refused => return,
                Kicked::Dropped => {} // One frame is off the ring, whether the index says so or not.
                Kicked::Done if left == waiting => return,
                Kicked::Again if left == waiting => {
                    self.losses.stalls += 1;
                    return;
                }
                Kicked::Done | Kicked::Again => {}
            }
            if left == 0 {
                return;
            }
            waiting = left;
        }
    }

    /// One system call, and what the errors of `__xsk_generic_xmit` mean.
    fn kick(&mut self) -> Kicked {
        let Err(error) = self.socket.kick_transmit() else { return Kicked::Done };
        match error.raw_os_error() {
            // The batch is over, the device's queue is full, or the completion ring is.
            Some(libc::EAGAIN) => Kicked::Again,
            // "SKB completed but not sent": its frame comes back like any other.
            Some(libc::EBUSY) => {
                self.losses.dropped += 1;
                Kicked::Dropped
            }
            // ENOBUFS: no memory for the copy now. The frames stay.
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                self.losses.stalls += 1;
                Kicked::Refused
            }
            // ENETDOWN, ENXIO: the device is down or gone.
            _ => {
                self.losses.refused += 1;
                Kicked::Refused
            }
        }
    }

    /// Frames on the ring: lent, and not taken by the kernel yet. What it has taken comes back by the
    /// [completion queue](Transmitter::completion_queue).
    pub fn in_flight(&mut self) -> usize {
        self.ring.waiting() as usize
    }

    /// Frames put on the ring since the port was opened.
    pub fn lent(&self) -> u64 {
        self.lent
    }

    /// The queue whose receiver reclaims what is sent here.
    ///
    /// When that is another worker's and its completion ring is full, sending stalls until it
    /// reclaims: wake it.
    pub fn completion_queue(&self) -> QueueId {
        self.queue
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// What went wrong so far.
    pub fn losses(&self) -> TransmitLosses {
        self.losses
    }
}

impl AsFd for Transmitter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

enum Kicked {
    /// The kernel has sent what it could, or the driver has been told.
    Done,
    /// There is more, or no room.
    Again,
    /// The device dropped one.
    Dropped,
    /// Not now.
    Refused,
}
