//! One queue's way in, and the way back of what was sent by it.

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
    /// Frames that the kernel has for receiving.
    pub(super) posted: Lent,
    pub(super) posted_count: u32,
    /// The taker's bits of frames lent for transmitting; the givers are the transmitters.
    pub(super) completed: Lent,
    /// Frames taken back from the completion ring.
    pub(super) returned: u64,
    /// The same for those who transmit by this queue, where others transmit by others (`left.rs`).
    pub(super) told: Option<Counters>,
    pub(super) port: PortId,
    pub(super) queue: QueueId,
    pub(super) checksum: Checksum,
    pub(super) joiner: Joiner,
    pub(super) takes_chains: bool,
    /// Descriptors with the address of a frame that the kernel had not.
    pub(super) foreign: u64,
}

impl Receiver {
    /// Appends the packets that came in to `batch`, as many as it has room for, and posts new frames from
    /// `pool` in their place. Returns how many came.
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

    /// Posts all the frames that the fill ring has room for, so that nothing is lost before the first
    /// [`receive`](Receiver::receive).
    pub fn prime(&mut self, pool: &mut Pool) {
        self.refill(pool);
    }

    #[inline(always)]
    fn take(&mut self, descriptor: libc::xdp_desc, pool: &mut Pool, batch: &mut Batch) {
        let goes_on = descriptor.options & libc::XDP_PKT_CONTD != 0;
        let packet = match self.posted_frame(descriptor) {
            Some(frame) if !goes_on && self.joiner.is_idle() => Some(frame),
            frame => self.joiner.join(frame, goes_on, pool),
        };
        if let Some(packet) = packet {
            batch.push(packet).expect("`receive` has looked for room");
        }
    }

    /// The frame of a descriptor; `None` when it was not ours to take.
    #[inline(always)]
    fn posted_frame(&mut self, descriptor: libc::xdp_desc) -> Option<Frame> {
        let libc::xdp_desc { addr, len, .. } = descriptor;
        if !self.posted.turn(addr) {
            self.posted.turn(addr); // As it was.
            self.foreign += 1;
            return None;
        }
        self.posted_count -= 1;
        // SAFETY: `Region::reclaim`'s debt: the frame was lent by `refill` and not reclaimed since, for
        // its bit was set; and a descriptor on the receive ring says that the kernel is done with it.
        let mut frame = unsafe { self.region.reclaim(addr) };
        let frame_size = self.region.frame_size();
        let head = (addr as u32) & (frame_size - 1);
        let tail = (head + len).min(frame_size); // The kernel keeps a descriptor inside of a frame.
        self.region.set_window(&mut frame, head as u16, tail as u16);
        self.region.set_ingress(&mut frame, self.port, self.queue, self.checksum);
        Some(frame)
    }

    /// Posts frames wherever the fill ring has room; all of it at the first call.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) {
        // Looking at the kernel's index costs a cache line, so wait until it is worth it.
        let free = self.fill.free(REFILL_MIN);
        if free >= REFILL_MIN {
            self.post(pool, free);
        }
        // Also when the ring is full: the driver may have fallen asleep right after the last look.
        if self.fill.needs_wakeup() {
            self.socket.kick_fill();
        }
    }

    /// Posts up to `free` frames.
    #[inline]
    fn post(&mut self, pool: &mut Pool, free: u32) {
        let mut posted = 0;
        while posted < free {
            // Packets are lost here rather than half way: `Losses::no_buffer`.
            let frames = pool.may_receive((free - posted) as usize) as u32;
            if frames == 0 {
                break;
            }
            for _ in 0..frames {
                let frame = pool.take().expect("the pool has just said so");
                self.region.note(&frame, Holder::Receive(self.port));
                let address = self.region.lend(frame);
                self.posted.turn(address);
                self.fill.push(address);
            }
            posted += frames;
        }
        if posted > 0 {
            self.posted_count += posted;
            self.fill.submit();
        }
    }

    /// Gives the frames that were sent by this queue back to `pool`, calling `completed` for each packet
    /// first. Returns how many frames. They are those of all transmitters whose
    /// [`completion_queue`](super::Transmitter::completion_queue) is this one.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool, mut completed: impl FnMut(&Meta)) -> usize {
        let available = self.completion.available();
        if available == 0 {
            return 0;
        }
        while let Some(address) = self.completion.pop() {
            self.completed.turn(address);
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
        if let Some(told) = &mut self.told {
            told.set(0, self.returned);
        }
        available as usize
    }

    /// How many frames, not packets, wait to be received or reclaimed: a look before going to sleep. A
    /// sleep in poll(2) ends when one can be received, not when one can be reclaimed.
    pub fn pending(&mut self) -> usize {
        (self.receive.available() + self.completion.available()) as usize
    }

    /// Frames that lie here: in the kernel's hands for receiving, on the fill ring or with a packet that
    /// we have not read yet, or with a packet that is not whole yet.
    pub fn posted(&self) -> usize {
        self.posted_count as usize + self.joiner.frames(&self.region)
    }

    /// Frames taken back after they were sent, since the port was opened.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// What was lost at this queue, as the kernel counts it (`XDP_STATISTICS`). A system call: for the
    /// statistics, not for every turn.
    pub fn losses(&self) -> io::Result<Losses> {
        let counts = self.socket.statistics()?;
        // Copying counts a packet without a buffer as dropped (`__xsk_rcv`), and also the look at an empty
        // ring. Where packets may lie in several frames it drops none for its size, and of those without
        // enough buffers only some have found the ring quite empty.
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

    /// Packets that a program had for this socket, and that it had no place for: no frame, or none in the ring, or
    /// one that is too short. A system call, as [`losses`](Receiver::losses).
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

/// Half a batch: fewer are posted together with the next.
const REFILL_MIN: u32 = BATCH_MAX as u32 / 2;
