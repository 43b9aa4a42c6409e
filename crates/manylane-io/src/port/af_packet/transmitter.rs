//! One worker's transmit side.

use std::io;
use std::mem;

use libc::iovec;
use manylane_frame::vocabulary::{Offload, PortId};
use manylane_frame::{BATCH_MAX, Batch, CHAIN_MAX, Pool, Region};

use super::super::Sent;
use super::super::vnet::{HEADER, Header, IOV_MAX, push_packet};
use super::socket::Socket;

/// A socket that receives nothing.
pub struct Transmitter {
    socket: Socket,
    region: Region,
    outgoing: Outgoing,
    /// Whether packets bypass the queueing discipline.
    bypass: bool,
    pub(super) port: PortId,
    losses: TransmitLosses,
}

/// A batch in the form that sendmmsg(2) takes. Capacity for the largest batch is allocated at the start, so nothing
/// moves.
struct Outgoing {
    messages: Box<[libc::mmsghdr]>,
    headers: Box<[Header]>,
    iov: Vec<iovec>,
}

// SAFETY: the pointers in `messages` and `iov` are what makes the type not `Send`. `describe`
// sets the pointers right before the system call that uses them, and we never follow them.
unsafe impl Send for Outgoing {}

/// Packets and calls that failed while sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitLosses {
    /// Packets that the kernel rejected as invalid: larger than the device's MTU, or with marks
    /// that do not fit their bytes. Their frames returned to the pool like all others.
    pub dropped: u64,
    /// Calls that ended because the socket or the device's queue was full. The packets stay queued.
    pub stalls: u64,
    /// Calls that the kernel refused: the device is down or gone. The packets stay queued.
    pub refused: u64,
}

impl Transmitter {
    pub(super) fn new(socket: Socket, region: &Region, bypass: bool, port: PortId) -> Transmitter {
        // SAFETY: all zeroes is a valid `mmsghdr`: null pointers and lengths of 0.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        let outgoing = Outgoing {
            messages: vec![message; BATCH_MAX].into(),
            headers: vec![Header::default(); BATCH_MAX].into(),
            iov: Vec::with_capacity(BATCH_MAX * IOV_MAX),
        };
        let losses = TransmitLosses::default();
        Transmitter { socket, region: region.clone(), outgoing, bypass, port, losses }
    }

    /// Sends the packets of `batch` in order, as far as the kernel accepts them; the rest stays in `batch`.
    /// Completed packets return to `pool`, after `completed` is called with the ingress port of each.
    #[inline]
    pub fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        mut completed: impl FnMut(PortId),
    ) -> Sent {
        if batch.is_empty() {
            return Sent::default();
        }
        self.outgoing.describe(&self.region, batch);
        let done = self.send(batch.len());
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

    /// Sends the first `count` messages; returns how many are completed, sent or dropped.
    #[inline]
    fn send(&mut self, count: usize) -> usize {
        let mut done = 0;
        while done < count {
            let messages = &mut self.outgoing.messages[done..count];
            // SAFETY: the debt of `Socket::send`: `describe` has put in the addresses of headers of ours
            // and of the bytes of frames that the caller's batch owns, which we borrow; its lists have not
            // moved, which it has asserted.
            let outcome = unsafe { self.socket.send(messages) };
            match outcome {
                Ok(sent) => done += sent,
                Err(error) => match self.failed(&error) {
                    true => break,
                    false => done += 1,
                },
            }
        }
        done
    }

    /// Handles the errors of `packet_snd`; returns whether the packet, and all after it, must wait.
    #[cold]
    fn failed(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            // The socket's buffer is full; the device's queue is; or memory is short now.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                self.losses.stalls += 1;
                true
            }
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                self.losses.refused += 1;
                true
            }
            // EMSGSIZE, EINVAL: the kernel will never send this packet; it must not block the others.
            _ => {
                self.losses.dropped += 1;
                false
            }
        }
    }

    /// The packets it accepts.
    pub fn offload(&self) -> Offload {
        // With the bypass no code segments what the device does not.
        Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: !self.bypass }
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

impl Outgoing {
    /// Describes the packets of `batch`, a message each.
    #[inline]
    fn describe(&mut self, region: &Region, batch: &Batch) {
        let view = region.view();
        self.iov.clear();
        let lists = self.iov.as_ptr();
        let places = self.messages.iter_mut().zip(self.headers.iter_mut());
        for (frame, (message, header)) in batch.iter().zip(places) {
            *header = Header::of(view.meta(frame));
            let first = self.iov.len();
            let base = std::ptr::from_mut(header).cast();
            self.iov.push(iovec { iov_base: base, iov_len: HEADER });
            push_packet(&mut self.iov, view, frame);
            message.msg_hdr.msg_iov = self.iov.as_mut_ptr().wrapping_add(first);
            message.msg_hdr.msg_iovlen = self.iov.len() - first;
        }
        // The kernel follows the pointers in the messages.
        assert_eq!(self.iov.as_ptr(), lists, "every possible list has room");
    }
}
