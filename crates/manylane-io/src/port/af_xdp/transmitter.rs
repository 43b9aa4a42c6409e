//! One worker's transmit side.

use std::os::fd::{AsFd, BorrowedFd};

use manylane_frame::vocabulary::{Offload, PortId, QueueId};
use manylane_frame::{Batch, Frame, Holder, Meta, Pool, Region};

use super::super::Sent;
use super::drain::Drain;
use super::lent::Lent;
use super::ring::ProducerRing;
use super::socket::{Socket, Transfer};

/// A transmit ring.
pub struct Transmitter {
    // The ring comes first: fields drop in order, and a mapping holds the socket open.
    pub(super) ring: ProducerRing<libc::xdp_desc>,
    pub(super) socket: Socket,
    pub(super) region: Region,
    /// The lender's bits of frames lent for transmitting; the reclaimer is the queue's receiver.
    pub(super) sent: Lent,
    /// Frames put on the ring.
    pub(super) lent: u64,
    /// The value of `lent` at the last [`set_drain_mark`](Transmitter::set_drain_mark).
    pub(super) drain_mark: u64,
    /// The kernel refused the last kick, since the device is down or gone.
    pub(super) is_refused: bool,
    /// Where other workers send to the port by other queues: what this queue has drained.
    pub(super) drain: Option<Drain>,
    pub(super) transfer: Transfer,
    /// The most frames of a packet.
    pub(super) frames_max: u8,
    /// Reserved slots of the ring: since the first chain, as many as the kernel may step back over.
    pub(super) spare: u32,
    pub(super) port: PortId,
    pub(super) queue: QueueId,
    pub(super) losses: TransmitLosses,
}

/// Failures while sending. None leaks a frame: each is completed or still on the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitLosses {
    /// Packets that the device dropped (its peer's queue was full, or the peer is down).
    pub dropped: u64,
    /// Kicks that sent nothing: the device or the completion ring was full. The frames stay on the ring.
    pub stalls: u64,
    /// Kicks that the kernel refused: the device is down or gone. The frames stay on the ring.
    pub refused: u64,
    /// Packets in more frames than [`offload`](Transmitter::offload) allows, or with an empty first frame:
    /// a bug of the caller. These packets were returned to the pool at once.
    pub unfit: u64,
}

impl Transmitter {
    /// Puts the packets of `batch` on the ring, in order, as many as fit; the rest stays in `batch`.
    /// Returns how many. The next [`flush`](Transmitter::flush) sends them. `completed` is called for
    /// unfit packets, which end here.
    ///
    /// Every packet begins with at least an Ethernet header: the kernel would keep an empty frame until
    /// the port closes.
    #[inline]
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        completed: impl FnMut(&Meta),
    ) -> Sent {
        if batch.iter().any(Frame::is_chained) {
            return self.transmit_chains(pool, batch, completed);
        }
        let count = self.room(batch.len() as u32).min(batch.len() as u32) as usize;
        let mut sent = Sent { frames: count, bytes: 0 };
        if count == 0 {
            return sent;
        }
        for frame in batch.drain().take(count) {
            let len = self.region.meta(&frame).len() as u32;
            debug_assert!(len >= 14, "a frame of {len} bytes");
            sent.bytes += u64::from(len);
            self.push(frame, len, 0);
        }
        self.submit();
        sent
    }

    /// As [`transmit`](Transmitter::transmit), with packets in several frames among them: all frames of
    /// a packet get on the ring, or none.
    #[cold]
    fn transmit_chains(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        mut completed: impl FnMut(&Meta),
    ) -> Sent {
        self.spare = u32::from(self.frames_max) - 1;
        let mut sent = Sent::default();
        let mut unsent = Batch::new();
        for frame in batch.drain() {
            let meta = self.region.meta(&frame);
            let (frames, bytes) = (meta.frames() as u32, meta.packet_len() as u64);
            if frames > u32::from(self.frames_max) || meta.is_empty() {
                completed(meta);
                self.losses.unfit += 1;
                pool.give_back(frame);
            } else if unsent.is_empty() && self.room(frames) >= frames {
                self.push_packet(pool, frame, bytes as usize);
            } else {
                unsent.push(frame).expect("the new batch has room for the old one's frames");
                continue;
            }
            sent.frames += 1;
            sent.bytes += bytes;
        }
        *batch = unsent;
        self.submit();
        sent
    }

    /// Puts a packet of `bytes` on the ring, frame by frame.
    fn push_packet(&mut self, pool: &mut Pool, frame: Frame, mut bytes: usize) {
        let mut next = Some(frame);
        while let Some(frame) = next {
            let (part, rest) = self.region.view().split(frame);
            next = rest;
            let len = self.region.meta(&part).len();
            if len == 0 {
                pool.give_back(part); // The kernel rejects an empty part, and would drop the packet.
                continue;
            }
            bytes -= len;
            let options = if bytes > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.push(part, len as u32, options);
        }
    }

    #[inline(always)]
    fn push(&mut self, frame: Frame, len: u32, options: u32) {
        self.region.note(&frame, Holder::Transmit(self.port));
        let addr = self.region.lend(frame);
        self.sent.toggle(addr);
        self.lent += 1;
        self.ring.push(libc::xdp_desc { addr, len, options });
    }

    /// Shows the pushed entries to the kernel.
    #[inline(always)]
    fn submit(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.set_submitted(self.lent);
        }
        self.ring.submit();
    }

    /// How many descriptors may be pushed, when `wanted` are needed.
    #[inline(always)]
    fn room(&mut self, wanted: u32) -> u32 {
        self.ring.free(wanted + self.spare).saturating_sub(self.spare)
    }

    /// Makes the kernel send the ring's packets, as far as the device accepts them. Cheap when the ring is
    /// empty. Call it in every turn, even when nothing was added: unsent packets stay on the ring.
    #[inline]
    pub fn flush(&mut self) {
        let waiting = self.ring.waiting();
        if waiting > 0 {
            match self.transfer {
                Transfer::CopyChains | Transfer::Copy => self.kick_until_empty(waiting),
                Transfer::ZeroCopy if self.ring.needs_wakeup() => drop(self.kick()),
                Transfer::ZeroCopy => self.is_refused = false, // The driver is working on it.
            }
        }
    }

    /// In copy mode this thread copies inside the system call, 32 frames at a time
    /// (`TX_BATCH_SIZE` in net/xdp/xsk.c): more than a packet has, so that each call sends one.
    fn kick_until_empty(&mut self, mut waiting: u32) {
        // Each kick but the last makes progress, so the number of frames bounds the number of kicks.
        let kicks_max = waiting + 1;
        for _ in 0..kicks_max {
            let kicked = self.kick();
            let remaining = self.ring.waiting();
            match kicked {
                Kicked::Refused => return,
                Kicked::Dropped => {} // One packet is off the ring, even if the index has not moved.
                Kicked::Done if remaining == waiting => return,
                Kicked::Again if remaining == waiting => {
                    self.losses.stalls += 1;
                    return;
                }
                Kicked::Done | Kicked::Again => {}
            }
            if remaining == 0 {
                return;
            }
            waiting = remaining;
        }
    }

    /// Makes one system call and handles the errors of `__xsk_generic_xmit`.
    fn kick(&mut self) -> Kicked {
        self.is_refused = false;
        let Err(error) = self.socket.kick_transmit() else { return Kicked::Done };
        match error.raw_os_error() {
            // The batch is over, or the device's queue or the completion ring is full.
            Some(libc::EAGAIN) => Kicked::Again,
            // "SKB completed but not sent": the kernel completes its frame like any other.
            Some(libc::EBUSY) => {
                self.losses.dropped += 1;
                Kicked::Dropped
            }
            // ENOBUFS: memory for the copy is short now. The frames stay on the ring.
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                self.losses.stalls += 1;
                Kicked::Refused
            }
            // ENETDOWN, ENXIO: the device is down or gone.
            _ => {
                self.losses.refused += 1;
                self.is_refused = true;
                Kicked::Refused
            }
        }
    }

    /// Frames on the ring: lent, and not accepted by the kernel yet. Accepted ones come back by the
    /// [completion queue](Transmitter::completion_queue).
    pub fn in_flight(&mut self) -> usize {
        self.ring.waiting() as usize
    }

    /// Marks the frames put on the ring so far.
    pub fn set_drain_mark(&mut self) {
        if let (Some(drain), true) = (&mut self.drain, self.drain_mark != self.lent) {
            drain.restart();
        }
        self.drain_mark = self.lent;
    }

    /// Whether all marked frames are ahead of what any other worker sends from now on, or are refused.
    ///
    /// The kernel must have accepted them. In copy mode the device has them then; otherwise the driver serves the
    /// sockets of a queue in the order in which they filled their rings. Where all workers send by one queue
    /// of the device that is enough; otherwise the device must have completed them.
    ///
    /// A device that is down sends no packets, and may be down for days: waiting for it would keep every
    /// flow on its worker meanwhile, at all ports. The refused frames stay on the ring, since
    /// the kernel may retry them at any moment, and so cannot be withdrawn. When the device comes up, each
    /// worker's next [`flush`](Transmitter::flush) sends its own ring, in no order among workers: of a
    /// flow that changed its worker while the device was down, at most a ring's packets may then leave behind
    /// newer ones, once.
    pub fn has_drained(&mut self) -> bool {
        let taken = self.lent - u64::from(self.ring.waiting()) >= self.drain_mark;
        self.is_refused || taken && self.drain.as_mut().is_none_or(Drain::has_drained)
    }

    /// Frames put on the ring since the port was opened.
    pub fn lent(&self) -> u64 {
        self.lent
    }

    /// The packets it accepts: those in several frames where the kernel supports them.
    pub fn offload(&self) -> Offload {
        Offload { frames_max: self.frames_max, ..Offload::NONE }
    }

    /// The descriptors that the kernel has not sent, oldest first. The kernel must not send any meanwhile.
    pub(super) fn unsent(&mut self) -> Vec<libc::xdp_desc> {
        // Includes the accepted parts of a packet whose other parts the kernel lacks: it drops those.
        self.ring.untaken(|entry| entry.options & libc::XDP_PKT_CONTD != 0)
    }

    /// The device's transmit queue that it sends by.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// The queue whose receiver reclaims the frames sent here: the one with the same number.
    ///
    /// When another worker owns it and its completion ring is full, sending stalls until that worker
    /// reclaims: wake it.
    pub fn completion_queue(&self) -> QueueId {
        self.queue
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

impl AsFd for Transmitter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

enum Kicked {
    /// The kernel has sent what it could, or the driver was notified.
    Done,
    /// Packets remain, or the device has no room.
    Again,
    /// The device dropped one packet.
    Dropped,
    /// The kernel refuses for now.
    Refused,
}
