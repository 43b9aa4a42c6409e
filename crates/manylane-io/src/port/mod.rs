//! Ports: where frames enter and leave.
//!
//! An open port is halves: a [`Receiver`] for each receive queue, owned by one worker, and a
//! [`Transmitter`] for each worker, so that no queue has two owners and no worker locks. By which of the
//! device's queues that one sends is [`Receiving`]'s to say.
//!
//! | driver        | what it is                                               |
//! |---------------|----------------------------------------------------------|
//! | [`af_xdp`]    | a queue of a network device, through an AF_XDP socket    |
//! | [`af_packet`] | a network device, through packet sockets                 |
//! | [`tap`]       | a wire to the host's own stack                           |
//! | [`pcap`]      | capture files: packets out of one, packets into one      |
//! | [`memory`]    | functions that make and take frames, or a wire in memory |
//! | [`tee`]       | wraps any of these: its packets are copied elsewhere     |
//! | [`fault`]     | wraps any of these: its packets are lost, late, damaged  |
//!
//! A port knows no protocol above Ethernet. It says what it knows of a frame in its metadata.

pub mod af_packet;
pub mod af_xdp;
pub mod fault;
mod losses;
pub mod memory;
pub mod pcap;
#[cfg(test)]
mod rig;
pub mod tap;
pub mod tee;
mod transmit_queue;
mod vnet;
mod write;

use std::os::fd::{AsFd, BorrowedFd};

pub use fault::FaultCounts;
pub use losses::Losses;
use manylane_frame::vocabulary::{Offload, PortId, QueueId};
use manylane_frame::{Batch, CHAIN_MAX, Pool};
pub use tee::CopyCounts;
pub use transmit_queue::Receiving;
pub use vnet::PACKET_MAX;

/// Tells the time, in nanoseconds since whenever its owner counts from.
pub type Clock = Box<dyn FnMut() -> u64 + Send>;

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

impl Wait<'_> {
    /// The same, but for something that is due after `due_ns` nanoseconds, if anything is.
    fn at_most(self, due_ns: Option<u64>) -> Self {
        let Some(due_ns) = due_ns else { return self };
        Wait::After(match self {
            Wait::After(wait_ns) => due_ns.min(wait_ns),
            // A wait is for one thing: look at the descriptor by the clock meanwhile.
            Wait::Readable(_) => due_ns.min(LOOK_AGAIN_NS),
            // A worker always hears its bell.
            Wait::Doorbell | Wait::Done => due_ns,
        })
    }
}

/// How soon to look again for frames whose queue cannot end the sleep.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// One receive queue of a port.
pub enum Receiver {
    /// Of a network device.
    AfXdp(Box<af_xdp::Receiver>),
    /// Of a network device, through a packet socket.
    AfPacket(Box<af_packet::Receiver>),
    /// Of a TAP interface.
    Tap(Box<tap::Receiver>),
    /// Of a capture file.
    Pcap(Box<pcap::Receiver>),
    /// In memory.
    Memory(memory::Receiver),
    /// One that is copied.
    Tee(Box<tee::Receiver>),
    /// One with faults.
    Fault(Box<fault::Receiver>),
}

impl Receiver {
    /// Receives up to `batch.room()` frames at the end of `batch`; returns how many.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.receive(pool, batch),
            Receiver::AfPacket(queue) => queue.receive(pool, batch),
            Receiver::Tap(queue) => queue.receive(pool, batch),
            Receiver::Pcap(queue) => queue.receive(pool, batch, now_ns),
            Receiver::Memory(queue) => queue.receive(pool, batch, now_ns),
            Receiver::Tee(tee) => tee.receive(pool, batch, now_ns),
            Receiver::Fault(fault) => fault.receive(pool, batch, now_ns),
        }
    }

    /// Gives the device frames to receive into, before the first [`receive`](Receiver::receive) does.
    pub fn prime(&mut self, pool: &mut Pool) {
        match self {
            Receiver::AfXdp(queue) => queue.prime(pool),
            Receiver::AfPacket(queue) => queue.prime(pool),
            Receiver::Tap(queue) => drop(queue.prime(pool)),
            Receiver::Pcap(_) | Receiver::Memory(_) => {}
            Receiver::Tee(tee) => tee.inner.prime(pool),
            Receiver::Fault(fault) => fault.inner.prime(pool),
        }
    }

    /// Takes back what was sent by this queue's device, for whichever worker. Calls `completed` with the
    /// port of entry of each frame.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool, mut completed: impl FnMut(PortId)) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.reclaim(pool, |meta| completed(meta.ingress)),
            Receiver::AfPacket(_) | Receiver::Tap(_) | Receiver::Pcap(_) | Receiver::Memory(_) => 0,
            // By a pointer: a closure in a closure would have no end.
            Receiver::Tee(tee) => tee.inner.reclaim(pool, &mut completed as &mut dyn FnMut(PortId)),
            Receiver::Fault(fault) => {
                fault.inner.reclaim(pool, &mut completed as &mut dyn FnMut(PortId))
            }
        }
    }

    /// The port it belongs to.
    pub fn port(&self) -> PortId {
        match self {
            Receiver::AfXdp(queue) => queue.port(),
            Receiver::AfPacket(queue) => queue.port(),
            Receiver::Tap(queue) => queue.port(),
            Receiver::Pcap(queue) => queue.port(),
            Receiver::Memory(queue) => queue.port(),
            Receiver::Tee(tee) => tee.inner.port(),
            Receiver::Fault(fault) => fault.inner.port(),
        }
    }

    /// Its number in the port.
    pub fn queue(&self) -> QueueId {
        match self {
            Receiver::AfXdp(queue) => queue.queue(),
            Receiver::AfPacket(queue) => queue.queue(),
            Receiver::Tap(queue) => queue.queue(),
            Receiver::Pcap(queue) => queue.queue(),
            Receiver::Memory(queue) => queue.queue(),
            Receiver::Tee(tee) => tee.inner.queue(),
            Receiver::Fault(fault) => fault.inner.queue(),
        }
    }

    /// What to wait for when there is nothing to receive.
    pub fn wait(&self) -> Wait<'_> {
        match self {
            Receiver::AfXdp(queue) => Wait::Readable(queue.as_fd()),
            Receiver::AfPacket(queue) => Wait::Readable(queue.as_fd()),
            Receiver::Tap(queue) => Wait::Readable(queue.as_fd()),
            Receiver::Pcap(queue) => queue.wait(),
            Receiver::Memory(queue) => queue.wait(),
            Receiver::Tee(tee) => tee.wait(),
            Receiver::Fault(fault) => fault.wait(),
        }
    }

    /// What was lost before it could be received, since the port was opened. May be a system call.
    pub fn losses(&self) -> Losses {
        match self {
            // The one failure would be a closed socket.
            Receiver::AfXdp(queue) => queue.losses().unwrap_or_default(),
            Receiver::AfPacket(queue) => queue.losses(),
            Receiver::Tap(queue) => queue.losses(),
            Receiver::Pcap(queue) => queue.losses(),
            Receiver::Memory(_) => Losses::default(),
            Receiver::Tee(tee) => tee.inner.losses(),
            Receiver::Fault(fault) => fault.inner.losses(),
        }
    }

    /// Frames that lie at the device, waiting to be received into, or received and not taken; and copies
    /// that are late on purpose.
    pub fn posted(&self) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.posted(),
            Receiver::AfPacket(queue) => queue.posted(),
            Receiver::Tap(queue) => queue.posted(),
            Receiver::Pcap(_) => 0,
            Receiver::Memory(queue) => queue.waiting(),
            Receiver::Tee(tee) => tee.inner.posted() + tee.held(),
            Receiver::Fault(fault) => fault.inner.posted() + fault.held(),
        }
    }

    /// Frames taken back after they were sent, in all, by whichever transmitter.
    pub fn returned(&self) -> u64 {
        match self {
            Receiver::AfXdp(queue) => queue.returned(),
            Receiver::AfPacket(_) | Receiver::Tap(_) | Receiver::Pcap(_) | Receiver::Memory(_) => 0,
            Receiver::Tee(tee) => tee.inner.returned(),
            Receiver::Fault(fault) => fault.inner.returned(),
        }
    }

    /// Whether frames wait that no descriptor tells of.
    pub fn has_frames(&self) -> bool {
        match self {
            Receiver::AfXdp(_) | Receiver::AfPacket(_) | Receiver::Tap(_) | Receiver::Pcap(_) => {
                false
            }
            Receiver::Memory(queue) => queue.waiting() > 0,
            Receiver::Tee(tee) => tee.inner.has_frames(),
            Receiver::Fault(fault) => fault.inner.has_frames(),
        }
    }

    /// What was done to its packets on purpose.
    pub fn faults(&self) -> FaultCounts {
        match self {
            Receiver::Tee(tee) => tee.inner.faults(),
            Receiver::Fault(fault) => fault.inner.faults() + fault.counts(),
            _ => FaultCounts::default(),
        }
    }

    /// What became of copies of its packets.
    pub fn copies(&self) -> CopyCounts {
        match self {
            Receiver::Tee(tee) => tee.inner.copies() + tee.counts(),
            Receiver::Fault(fault) => fault.inner.copies(),
            _ => CopyCounts::default(),
        }
    }

    /// Takes the device's queue out of what wraps it, to be closed. What is held goes back to `pool`; the
    /// ways out of copies come to `others`.
    pub fn unwrapped(self, pool: &mut Pool, others: &mut Vec<Transmitter>) -> Receiver {
        match self {
            Receiver::Tee(tee) => {
                let (inner, other) = tee.into_parts();
                other.unwrapped_copies(pool, others);
                inner.unwrapped(pool, others)
            }
            Receiver::Fault(fault) => fault.close(pool).unwrapped(pool, others),
            device => device,
        }
    }
}

/// What a transmitter took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets, each by the handle of its first frame.
    pub frames: usize,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
}

/// What became of a packet that was to be sent when its port closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The device, or whatever is there instead, had taken it whole.
    Transmitted,
    /// It had not, or a part of it not.
    Dropped,
}

/// One worker's way out through a port.
pub enum Transmitter {
    /// Through a network device.
    AfXdp(Box<af_xdp::Transmitter>),
    /// Through a network device, by a packet socket.
    AfPacket(Box<af_packet::Transmitter>),
    /// To the host's own stack.
    Tap(Box<tap::Transmitter>),
    /// Into a capture file.
    Pcap(Box<pcap::Transmitter>),
    /// Into memory.
    Memory(memory::Transmitter),
    /// One that is copied.
    Tee(Box<tee::Transmitter>),
    /// One with faults.
    Fault(Box<fault::Transmitter>),
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
        mut completed: impl FnMut(PortId),
    ) -> Sent {
        match self {
            Transmitter::AfXdp(queue) => {
                queue.transmit(pool, batch, |meta| completed(meta.ingress))
            }
            Transmitter::AfPacket(queue) => queue.transmit(pool, batch, completed),
            Transmitter::Tap(queue) => queue.transmit(pool, batch, completed),
            Transmitter::Pcap(queue) => queue.transmit(pool, batch, completed),
            Transmitter::Memory(queue) => queue.transmit(pool, batch, completed),
            Transmitter::Tee(tee) => tee.transmit(pool, batch, &mut completed),
            Transmitter::Fault(fault) => fault.transmit(pool, batch, &mut completed),
        }
    }

    /// Tells the device that frames wait, if it must be told.
    #[inline]
    pub fn flush(&mut self) {
        match self {
            Transmitter::AfXdp(queue) => queue.flush(),
            Transmitter::AfPacket(_) | Transmitter::Tap(_) => {}
            Transmitter::Pcap(queue) => queue.flush(),
            Transmitter::Memory(queue) => queue.flush(),
            Transmitter::Tee(tee) => tee.flush(),
            Transmitter::Fault(fault) => fault.inner.flush(),
        }
    }

    /// Notes what has been transmitted and flushed so far.
    #[inline]
    pub fn note(&mut self) {
        match self {
            Transmitter::AfXdp(queue) => queue.note(),
            Transmitter::Memory(queue) => queue.note(),
            Transmitter::AfPacket(_) | Transmitter::Tap(_) | Transmitter::Pcap(_) => {}
            Transmitter::Tee(tee) => tee.inner.note(),
            Transmitter::Fault(fault) => fault.inner.note(),
        }
    }

    /// Whether the device has taken all that was [noted](Transmitter::note), and finished with it where that
    /// matters, so that nothing which another worker transmits from now on leaves before it. What is late on
    /// purpose does not count, nor does what a device that is down has refused
    /// ([`af_xdp::Transmitter::has_taken_noted`] says what that means for the order).
    #[inline]
    pub fn has_taken_noted(&mut self) -> bool {
        match self {
            Transmitter::AfXdp(queue) => queue.has_taken_noted(),
            Transmitter::Memory(queue) => queue.has_taken_noted(),
            // Their calls return when that is so: but for a device whose queues XPS shares among cores
            // (`af_packet`). A capture's packets are by worker anyway.
            Transmitter::AfPacket(_) | Transmitter::Tap(_) | Transmitter::Pcap(_) => true,
            Transmitter::Tee(tee) => tee.inner.has_taken_noted(),
            Transmitter::Fault(fault) => fault.inner.has_taken_noted(),
        }
    }

    /// Frames that the device took and did not send, since the port was opened: they come back like the
    /// others, so that nobody else knows.
    pub fn dropped(&self) -> u64 {
        match self {
            Transmitter::AfXdp(queue) => queue.losses().dropped + queue.losses().unfit,
            Transmitter::AfPacket(queue) => queue.losses().dropped,
            Transmitter::Tap(queue) => queue.losses().dropped,
            Transmitter::Pcap(queue) => queue.counts().lost,
            Transmitter::Memory(_) => 0,
            Transmitter::Tee(tee) => tee.inner.dropped(),
            Transmitter::Fault(fault) => fault.inner.dropped() + fault.counts().dropped,
        }
    }

    /// Frames handed to the device in all, of which [`Receiver::returned`] have come back. 0 when frames are
    /// finished at once.
    pub fn lent(&self) -> u64 {
        match self {
            Transmitter::AfXdp(queue) => queue.lent(),
            Transmitter::AfPacket(_)
            | Transmitter::Tap(_)
            | Transmitter::Pcap(_)
            | Transmitter::Memory(_) => 0,
            Transmitter::Tee(tee) => tee.inner.lent(),
            Transmitter::Fault(fault) => fault.inner.lent(),
        }
    }

    /// The receive queue of the port whose owner takes back what is sent here; `None` when frames are
    /// finished at once.
    pub fn completion_queue(&self) -> Option<QueueId> {
        match self {
            Transmitter::AfXdp(queue) => Some(queue.completion_queue()),
            Transmitter::AfPacket(_)
            | Transmitter::Tap(_)
            | Transmitter::Pcap(_)
            | Transmitter::Memory(_) => None,
            Transmitter::Tee(tee) => tee.inner.completion_queue(),
            Transmitter::Fault(fault) => fault.inner.completion_queue(),
        }
    }

    /// The transmit queue that it sends by; `None` where the kernel chooses one for each packet, or there
    /// are none.
    pub fn queue(&self) -> Option<QueueId> {
        match self {
            Transmitter::AfXdp(queue) => Some(queue.queue()),
            Transmitter::Tap(queue) => Some(queue.queue()),
            Transmitter::AfPacket(_) | Transmitter::Pcap(_) | Transmitter::Memory(_) => None,
            Transmitter::Tee(tee) => tee.inner.queue(),
            Transmitter::Fault(fault) => fault.inner.queue(),
        }
    }

    /// What it takes besides ordinary packets of one frame; anything else comes out wrong at the far end.
    pub fn offload(&self) -> Offload {
        match self {
            Transmitter::AfXdp(queue) => queue.offload(),
            Transmitter::AfPacket(queue) => queue.offload(),
            Transmitter::Tap(queue) => queue.offload(),
            Transmitter::Pcap(queue) => queue.offload(),
            // Who is at the far end sees the metadata too.
            Transmitter::Memory(_) => {
                Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: true }
            }
            Transmitter::Tee(tee) => tee.inner.offload(),
            Transmitter::Fault(fault) => fault.inner.offload(),
        }
    }

    /// Frames that it took and its device has not seen: packets that are late on purpose. While there are
    /// any, [`transmit`](Transmitter::transmit) is to be called in every turn, be it with an empty batch.
    #[inline]
    pub fn held(&self) -> usize {
        match self {
            Transmitter::Fault(fault) => fault.held() + fault.inner.held(),
            Transmitter::Tee(tee) => tee.held(),
            _ => 0,
        }
    }

    /// How many nanoseconds after the last call to [`transmit`](Transmitter::transmit) the next is due,
    /// though there be nothing new; `None` when nothing is held.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            Transmitter::Fault(fault) => earlier(fault.due_ns(), fault.inner.due_ns()),
            Transmitter::Tee(tee) => tee.due_ns(),
            _ => None,
        }
    }

    /// What was done to its packets on purpose.
    pub fn faults(&self) -> FaultCounts {
        match self {
            Transmitter::Tee(tee) => tee.inner.faults(),
            Transmitter::Fault(fault) => fault.inner.faults() + fault.counts(),
            _ => FaultCounts::default(),
        }
    }

    /// What became of copies of its packets.
    pub fn copies(&self) -> CopyCounts {
        match self {
            Transmitter::Tee(tee) => tee.inner.copies() + tee.counts(),
            Transmitter::Fault(fault) => fault.inner.copies(),
            _ => CopyCounts::default(),
        }
    }

    /// Takes the device's way out out of what wraps it, to be closed. What is held is transmitted first;
    /// what finds no place is given back. `ended` is called for each that is not under way now, with its
    /// port of entry. The ways out of copies come to `others`.
    pub fn unwrapped(
        self,
        pool: &mut Pool,
        others: &mut Vec<Transmitter>,
        ended: &mut dyn FnMut(Fate, PortId),
    ) -> Transmitter {
        match self {
            Transmitter::Tee(tee) => {
                let (inner, other) = tee.into_parts();
                other.unwrapped_copies(pool, others);
                inner.unwrapped(pool, others, ended)
            }
            Transmitter::Fault(fault) => fault.close(pool, ended).unwrapped(pool, others, ended),
            device => device,
        }
    }

    /// As [`unwrapped`](Transmitter::unwrapped), for the way out of copies, of which nobody hears.
    fn unwrapped_copies(self, pool: &mut Pool, others: &mut Vec<Transmitter>) {
        let device = self.unwrapped(pool, others, &mut |_, _| {});
        others.push(device);
    }
}

/// The earlier of two moments, if there is any.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
