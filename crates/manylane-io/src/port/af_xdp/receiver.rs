//! One queue's receive side, and the completions of its transmissions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Holder, Meta, Pool, Region};
use manylane_sync::counters::Counters;

use super::super::Losses;
use super::join::Joiner;
use super::lent::Lent;
use super::ring::{ConsumerRing, ProducerRing};
use super::socket::Socket;

/// The receive, fill and completion ring of one queue.
pub struct Receiver {
    // The rings come first: fields drop in order, and a mapping holds the socket open.
    pub(super) receive: ConsumerRing<libc::xdp_desc>,
    pub(super) fill: ProducerRing<u64>,
    pub(super) completion: ConsumerRing<u64>,
    pub(super) socket: Socket,
    pub(super) region: Region,
    /// Frames lent to the kernel for receiving.
    pub(super) posted: Lent,
    pub(super) posted_count: u32,
    /// The reclaimer's bits of frames lent for transmitting; the lenders are the transmitters.
    pub(super) completed: Lent,
    /// Frames reclaimed from the completion ring.
    pub(super) returned: u64,
    /// The same number, published to the transmitters of this queue where others use other queues (`drain.rs`).
    pub(super) completed_count: Option<Counters>,
    pub(super) port: PortId,
    pub(super) queue: QueueId,
    pub(super) checksum: Checksum,
    pub(super) joiner: Joiner,
    pub(super) takes_chains: bool,
    /// Descriptors whose address is not that of a frame lent to the kernel.
    pub(super) foreign: u64,
}

impl Receiver {
    /// Appends pending packets to `batch`, as many as it has room for, and posts new frames from
    /// `pool` in their place. Returns how many were received.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let before = batch.len();
        if self.receive.available() > 0 {
            while !batch.is_full() {
                let Some(descriptor) = self.receive.pop() else { break };
                self.take(descriptor, pool, batch);
            }
            self.receive.release();
        }
        self.refill(pool);
        batch.len() - before
    }

    /// Posts as many frames as the fill ring has room for, so that no packet is lost before the first
    /// [`receive`](Receiver::receive).
    pub fn prime(&mut self, pool: &mut Pool) {
        self.refill(pool);
    }

    #[inline(always)]
    fn take(&mut self, descriptor: libc::xdp_desc, pool: &mut Pool, batch: &mut Batch) {
        let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
        let packet = match self.posted_frame(descriptor) {
            Some(frame) if !more && self.joiner.is_idle() => Some(frame),
            frame => self.joiner.join(frame, more, pool),
        };
        if let Some(packet) = packet {
            batch.push(packet).expect("`receive` has checked the room");
        }
    }

    /// The frame of a descriptor; `None` when the kernel did not have that frame.
    #[inline(always)]
    fn posted_frame(&mut self, descriptor: libc::xdp_desc) -> Option<Frame> {
        let libc::xdp_desc { addr, len, .. } = descriptor;
        if !self.posted.toggle(addr) {
            self.posted.toggle(addr); // As before.
            self.foreign += 1;
            return None;
        }
        self.posted_count -= 1;
        // SAFETY: `Region::reclaim`'s debt: the frame was lent by `refill` and not reclaimed since, for
        // its bit was set; and a descriptor on the receive ring says that the kernel is done with it.
        let mut frame = unsafe { self.region.reclaim(addr) };
        let frame_size = self.region.frame_size();
        let head = (addr as u32) & (frame_size - 1);
        let tail = (head + len).min(frame_size); // The kernel keeps a descriptor inside a frame.
        self.region.set_window(&mut frame, head as u16, tail as u16);
        self.region.set_ingress(&mut frame, self.port, self.queue, self.checksum);
        Some(frame)
    }

    /// Posts frames wherever the fill ring has room; fills it at the first call.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) {
        // Reading the kernel's index costs a cache line, so wait until enough slots are free.
        let free = self.fill.free(REFILL_MIN);
        if free >= REFILL_MIN {
            self.post(pool, free);
        }
        // Also when the ring is full: the driver may have gone to sleep right after the last check.
        if self.fill.needs_wakeup() {
            self.socket.kick_fill();
        }
    }

    /// Posts up to `free` frames.
    #[inline]
    fn post(&mut self, pool: &mut Pool, free: u32) {
        let mut posted = 0;
        while posted < free {
            // Drop packets here rather than half way through the router: `Losses::no_buffer`.
            let frames = pool.may_receive((free - posted) as usize) as u32;
            if frames == 0 {
                break;
            }
            for _ in 0..frames {
                let frame = pool.take().expect("the pool has just said so");
                self.region.note(&frame, Holder::Receive(self.port));
                let address = self.region.lend(frame);
                self.posted.toggle(address);
                self.fill.push(address);
            }
            posted += frames;
        }
        if posted > 0 {
            self.posted_count += posted;
            self.fill.submit();
        }
    }

    /// Returns the frames sent by this queue to `pool`, after `completed` is called for each packet.
    /// Returns how many frames: those of all transmitters whose
    /// [`completion_queue`](super::Transmitter::completion_queue) is this one.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool, mut completed: impl FnMut(&Meta)) -> usize {
        let available = self.completion.available();
        if available == 0 {
            return 0;
        }
        while let Some(address) = self.completion.pop() {
            self.completed.toggle(address);
            // SAFETY: `Region::reclaim`'s debt: the kernel puts an address on the completion ring once
            // for each time it was on a transmit ring, after its last access (af_xdp.rst, "UMEM
            // Completion Ring"); transmitters put the address of a frame there when they lend it.
            let frame = unsafe { self.region.reclaim(address) };
            let meta = self.region.meta(&frame);
            if !meta.later {
                completed(meta);
            }
            pool.give_back(frame);
        }
        self.completion.release();
        self.returned += u64::from(available);
        if let Some(count) = &mut self.completed_count {
            count.set(0, self.returned);
        }
        available as usize
    }

    /// How many frames, not packets, are ready to be received or reclaimed: the last check before sleeping. poll(2)
    /// wakes for a frame to receive, not for one to reclaim.
    pub fn pending(&mut self) -> usize {
        (self.receive.available() + self.completion.available()) as usize
    }

    /// Frames held here: lent to the kernel for receiving, on the fill ring, in an unread
    /// packet, or in an incomplete one.
    pub fn posted(&self) -> usize {
        self.posted_count as usize + self.joiner.frames(&self.region)
    }

    /// Frames reclaimed after transmission, since the port was opened.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// The losses of this queue, as the kernel counts them (`XDP_STATISTICS`). A system call: for the
    /// statistics, not for every turn.
    pub fn losses(&self) -> io::Result<Losses> {
        let counts = self.socket.statistics()?;
        // Copy mode counts a packet without a buffer as dropped (`__xsk_rcv`), and also counts the check of the empty
        // ring. Where packets may lie in several frames the kernel drops none for its size, and of those without
        // enough buffers only some have found the ring completely empty.
        let empty = counts.rx_fill_ring_empty_descs;
        let (no_buffer, too_large) = match self.takes_chains {
            true => (counts.rx_dropped, self.joiner.too_large()),
            false => (empty, counts.rx_dropped.saturating_sub(empty)),
        };
        Ok(Losses {
            ring_full: counts.rx_ring_full,
            no_buffer,
            too_large,
            invalid: counts.rx_invalid_descs + counts.tx_invalid_descs + self.foreign,
        })
    }

    /// Packets that a program directed to this socket and the socket refused: no frame, no room in the ring, or
    /// a frame too short. A system call, as [`losses`](Receiver::losses).
    pub fn refused(&self) -> io::Result<u64> {
        let counts = self.socket.statistics()?;
        Ok(counts.rx_dropped + counts.rx_ring_full)
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

/// Half a batch: fewer frames wait and are posted together with the next.
const REFILL_MIN: u32 = BATCH_MAX as u32 / 2;
