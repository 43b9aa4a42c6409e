//! One queue's receive side.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Pool, Region};

use super::super::Losses;
use super::super::vnet::{HEADER, Lost, ReceiveBuffer, Received};
use super::open::AfPacketConfig;
use super::socket::Socket;
use crate::auxiliary::{Auxiliary, Tag};

/// A socket and frames for a batch of packets.
pub struct Receiver {
    pub(super) socket: Socket,
    region: Region,
    /// One for each message of a call, in the order in which the kernel fills them.
    buffers: Box<[ReceiveBuffer]>,
    /// The first `ready` buffers are full.
    ready: usize,
    /// Only the first `used` buffers may be incomplete.
    used: usize,
    messages: Messages,
    pub(super) port: PortId,
    queue: QueueId,
    counts: RefCell<Counts>,
    /// Packets read from the socket's queue, including dropped ones.
    taken: u64,
    too_large: u64,
    invalid: u64,
}

/// The kernel's counts; reading them resets them.
#[derive(Default)]
struct Counts {
    lost: Lost,
    /// Packets that the kernel put in the socket's queue.
    queued: u64,
}

impl Receiver {
    pub(super) fn new(
        socket: Socket,
        region: &Region,
        config: &AfPacketConfig,
        port: PortId,
        queue: QueueId,
    ) -> Receiver {
        let buffers = (0..config.packets).map(|_| ReceiveBuffer::new(region, config.packet_max));
        let buffers: Box<[ReceiveBuffer]> = buffers.collect();
        Receiver {
            socket,
            region: region.clone(),
            ready: 0,
            used: buffers.len(),
            buffers,
            messages: Messages::new(),
            port,
            queue,
            counts: RefCell::default(),
            taken: 0,
            too_large: 0,
            invalid: 0,
        }
    }

    /// Receives pending packets, as many as `batch` has room for, by one system call; returns how many.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        self.prime(pool);
        let count = self.ready.min(batch.room());
        if count == 0 {
            return 0; // The kernel keeps the packets, and drops those beyond its buffer.
        }
        let messages = self.messages.prepare(&mut self.buffers[..count]);
        // SAFETY: the debt of `Socket::receive`: `prepare` has put in the addresses of frames that the
        // buffers own, by `ReceiveBuffer` invariant 1, and of `self.messages`' own control buffers.
        let came = match unsafe { self.socket.receive(messages) } {
            Ok(came) => came,
            Err(error) => return self.failed(&error),
        };
        self.used = self.used.max(came);
        self.taken += came as u64;
        let before = batch.len();
        for place in 0..came {
            if let Some(frame) = self.take(place) {
                batch
                    .push(frame)
                    .expect("the kernel returns no more packets than there is room for");
            }
        }
        batch.len() - before
    }

    /// Posts frames for a whole batch of packets, as far as `pool` has them.
    #[inline]
    pub fn prime(&mut self, pool: &mut Pool) {
        let used = &mut self.buffers[..self.used];
        match used.iter_mut().all(|buffer| buffer.fill(pool)) {
            true => (self.ready, self.used) = (self.buffers.len(), 0),
            false => self.gather(),
        }
        let Receiver { socket, counts, .. } = self;
        let Counts { lost, queued } = counts.get_mut();
        lost.set_dry(self.ready == 0, || look(socket, queued));
    }

    /// Moves complete buffers to the front, then those that lack fewest frames: complete ones receive packets even
    /// when the pool has no replacements.
    #[cold]
    fn gather(&mut self) {
        self.buffers.sort_unstable_by_key(|buffer| Reverse(buffer.frames()));
        self.ready = self.buffers.partition_point(ReceiveBuffer::is_full);
        self.used = self.buffers.len();
    }

    /// Takes the packet that the kernel has put in a buffer.
    #[inline(always)]
    fn take(&mut self, place: usize) -> Option<Frame> {
        let message = &self.messages.headers[place];
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            self.too_large += 1;
            return None;
        }
        let len = message.msg_len as usize;
        if len < HEADER {
            self.invalid += 1;
            return None;
        }
        let received = self.buffers[place].received(&self.region, len, self.port, self.queue);
        let Received::Packet(mut frame) = received else {
            self.invalid += 1;
            return None;
        };
        if let Some(tag) = self.messages.tag(place) {
            put_tag_back(&self.region, &mut frame, tag);
        }
        Some(frame)
    }

    /// Handles the errors of `packet_recvmsg`: each but the first two has cost a packet.
    #[cold]
    fn failed(&mut self, error: &io::Error) -> usize {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => {} // The queue is empty.
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {} // Returned once when the device goes down.
            // EINVAL: segments of a kind that the header cannot express.
            _ => {
                self.taken += 1;
                self.invalid += 1;
            }
        }
        0
    }

    /// Returns the frames to `pool`; returns how many, and how many packets were unread.
    pub(super) fn close(mut self, pool: &mut Pool) -> (usize, usize) {
        let lost = look(&self.socket, &mut self.counts.get_mut().queued);
        self.counts.get_mut().lost.add(lost);
        let unread = self.counts.get_mut().queued.saturating_sub(self.taken) as usize;
        drop(self.socket);
        (self.buffers.iter_mut().map(|buffer| buffer.give_back(pool)).sum(), unread)
    }

    /// Frames posted for packets.
    pub fn posted(&self) -> usize {
        self.buffers.iter().map(ReceiveBuffer::frames).sum()
    }

    /// The losses of this queue. A system call: for the statistics, not for every turn.
    pub fn losses(&self) -> Losses {
        let counts = &mut *self.counts.borrow_mut();
        let lost = look(&self.socket, &mut counts.queued);
        counts.lost.add(lost);
        Losses {
            ring_full: counts.lost.slow,
            no_buffer: counts.lost.no_buffer,
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
        self.queue
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Adds to `queued` what the kernel has counted since the last call; returns the packets lost since.
fn look(socket: &Socket, queued: &mut u64) -> u64 {
    // The one failure would be a closed socket.
    let counts = socket.counts().unwrap_or_default();
    *queued += counts.queued;
    counts.dropped
}

/// The messages of a call, with a buffer each for auxiliary data.
struct Messages {
    headers: Box<[libc::mmsghdr]>,
    auxiliary: Box<[Auxiliary]>,
}

// SAFETY: the pointers in `headers` are what makes the type not `Send`. `prepare` sets the pointers right
// before the system call that uses them, and we never follow them.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Messages {
        // SAFETY: all zeroes is a valid `mmsghdr`: null pointers and lengths of 0.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        Messages {
            headers: vec![header; BATCH_MAX].into(),
            auxiliary: vec![Auxiliary::new(); BATCH_MAX].into(),
        }
    }

    /// Messages that point into `buffers`, which are complete.
    #[inline(always)]
    fn prepare(&mut self, buffers: &mut [ReceiveBuffer]) -> &mut [libc::mmsghdr] {
        let parts = self.headers.iter_mut().zip(self.auxiliary.iter_mut());
        for ((header, auxiliary), buffer) in parts.zip(buffers.iter_mut()) {
            let header = &mut header.msg_hdr;
            let iov = buffer.iov();
            (header.msg_iov, header.msg_iovlen) = (iov.as_mut_ptr(), iov.len());
            header.msg_control = ptr::from_mut(auxiliary).cast();
            header.msg_controllen = size_of::<Auxiliary>(); // The kernel replaced it by the length it wrote.
        }
        &mut self.headers[..buffers.len()]
    }

    /// The tag that the kernel removed from the packet of a message.
    #[inline(always)]
    fn tag(&self, place: usize) -> Option<Tag> {
        self.auxiliary[place].tag(self.headers[place].msg_hdr.msg_controllen)
    }
}

/// Inserts a tag between the addresses and the ethertype. Marks count from the slot's start and stay valid.
#[cold]
fn put_tag_back(region: &Region, frame: &mut Frame, tag: Tag) {
    if region.meta(frame).len() < ADDRESSES || region.push_front(frame, tag.len() as u16).is_err() {
        return; // Too short for a frame: the rules drop it.
    }
    let bytes = region.bytes_mut(frame);
    bytes.copy_within(tag.len()..tag.len() + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + tag.len()].copy_from_slice(&tag);
}

/// The two addresses of an Ethernet header, in bytes.
const ADDRESSES: usize = 12;
