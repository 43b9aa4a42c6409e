//! Ports: where packets enter and leave.
//!
//! An open port has two kinds of parts: a [`Receiver`] for each receive queue, owned by one worker, and a
//! [`Transmitter`] for each worker, so that no queue has two owners and no worker locks. [`Receiving`] assigns
//! the device's transmit queues to workers.
//!
//! | driver        | what it is                                               |
//! |---------------|----------------------------------------------------------|
//! | [`af_xdp`]    | a queue of a network device, through an AF_XDP socket    |
//! | [`af_packet`] | a network device, through packet sockets                 |
//! | [`tap`]       | a wire to the host's own stack                           |
//! | [`pcap`]      | capture files: packets out of one, packets into one      |
//! | [`memory`]    | functions that make and take frames, or a wire in memory |
//! | [`tee`]       | wraps any of these: copies its packets elsewhere         |
//! | [`fault`]     | wraps any of these: drops, delays or damages its packets |
//!
//! A port knows no protocol above Ethernet. The port reports what it knows of a frame in the frame's metadata.
//!
//! May use: `manylane-frame`, `manylane-sync`, and this crate's `bpf`, `interface`, `netlink`, `eventfd`, `poll`.
//! Touched by: workers, each its own receivers and transmitters; the control thread, which opens and closes ports.

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

/// Returns the time in nanoseconds, counted from any moment.
pub type Clock = Box<dyn FnMut() -> u64 + Send>;

/// The event that wakes a worker for an idle receiver.
pub enum Wait<'r> {
    /// This descriptor becomes readable.
    Readable(BorrowedFd<'r>),
    /// Time passes: frames may arrive after this many nanoseconds.
    After(u64),
    /// The sender rings the worker's doorbell.
    Doorbell,
    /// No more frames will arrive.
    Done,
}

impl Wait<'_> {
    /// Limits the wait to `due_ns` nanoseconds, if given.
    fn at_most(self, due_ns: Option<u64>) -> Self {
        let Some(due_ns) = due_ns else { return self };
        Wait::After(match self {
            Wait::After(wait_ns) => due_ns.min(wait_ns),
            // A wait is for one event: check the descriptor by the clock meanwhile.
            Wait::Readable(_) => due_ns.min(LOOK_AGAIN_NS),
            // A worker always waits for its bell too.
            Wait::Doorbell | Wait::Done => due_ns,
        })
    }
}

/// How soon to check again for frames whose queue cannot end the sleep.
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
    /// One whose packets are copied.
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

    /// Posts frames to the device, before the first [`receive`](Receiver::receive) does.
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

    /// Reclaims frames that this queue's device has sent, for all workers. Calls `completed` with the
    /// ingress port of each packet.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool, mut completed: impl FnMut(PortId)) -> usize {
        match self {
            Receiver::AfXdp(queue) => queue.reclaim(pool, |meta| completed(meta.ingress)),
            Receiver::AfPacket(_) | Receiver::Tap(_) | Receiver::Pcap(_) | Receiver::Memory(_) => 0,
            // A `dyn` reference: nested closure types would recurse without end.
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

    /// The event to wait for when no frames are pending.
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

    /// The packets lost before they could be received, since the port was opened. May be a system call.
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

    /// Frames held at the device, posted or received and not read yet; and delayed copies.
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

    /// Frames reclaimed after transmission, in all, of all transmitters.
    pub fn returned(&self) -> u64 {
        match self {
            Receiver::AfXdp(queue) => queue.returned(),
            Receiver::AfPacket(_) | Receiver::Tap(_) | Receiver::Pcap(_) | Receiver::Memory(_) => 0,
            Receiver::Tee(tee) => tee.inner.returned(),
            Receiver::Fault(fault) => fault.inner.returned(),
        }
    }

    /// Whether frames are pending that no descriptor reports.
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

    /// The faults applied to its packets.
    pub fn faults(&self) -> FaultCounts {
        match self {
            Receiver::Tee(tee) => tee.inner.faults(),
            Receiver::Fault(fault) => fault.inner.faults() + fault.counts(),
            _ => FaultCounts::default(),
        }
    }

    /// The counts of its packets' copies.
    pub fn copies(&self) -> CopyCounts {
        match self {
            Receiver::Tee(tee) => tee.inner.copies() + tee.counts(),
            Receiver::Fault(fault) => fault.inner.copies(),
            _ => CopyCounts::default(),
        }
    }

    /// Unwraps the device's queue, to be closed. Held frames return to `pool`; the
    /// transmitters of copies are added to `others`.
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

/// The packets that a transmitter accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets, each by the handle of its first frame.
    pub frames: usize,
    /// Their bytes, without the frame check sequence.
    pub bytes: u64,
}

/// What happened to a packet that was to be sent when its port closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The device, or its replacement, had accepted it whole.
    Transmitted,
    /// The device had not accepted it, or not all its parts.
    Dropped,
}

/// One worker's transmit side of a port.
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
    /// One whose packets are copied.
    Tee(Box<tee::Transmitter>),
    /// One with faults.
    Fault(Box<fault::Transmitter>),
}

impl Transmitter {
    /// Transmits frames from the front of `batch`; those without room stay there, in order. Frames
    /// that are completed at once return to `pool`, and `completed` is called with the ingress port of
    /// each; for the others [`Receiver::reclaim`] does both.
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

    /// Notifies the device of pending frames, if it needs that.
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

    /// Marks the packets transmitted and flushed so far.
    #[inline]
    pub fn set_drain_mark(&mut self) {
        match self {
            Transmitter::AfXdp(queue) => queue.set_drain_mark(),
            Transmitter::Memory(queue) => queue.set_drain_mark(),
            Transmitter::AfPacket(_) | Transmitter::Tap(_) | Transmitter::Pcap(_) => {}
            Transmitter::Tee(tee) => tee.inner.set_drain_mark(),
            Transmitter::Fault(fault) => fault.inner.set_drain_mark(),
        }
    }

    /// Whether the device has accepted all [marked](Transmitter::set_drain_mark) packets, and completed them where that
    /// matters, so that no packet which another worker transmits from now on leaves before them. Packets delayed on
    /// purpose do not count, nor do those that a device that is down has refused
    /// ([`af_xdp::Transmitter::has_drained`] describes the effect on the order).
    #[inline]
    pub fn has_drained(&mut self) -> bool {
        match self {
            Transmitter::AfXdp(queue) => queue.has_drained(),
            Transmitter::Memory(queue) => queue.has_drained(),
            // Their calls return only then, except for a device whose queues XPS distributes among cores
            // (`af_packet`). A capture file orders packets per worker anyway.
            Transmitter::AfPacket(_) | Transmitter::Tap(_) | Transmitter::Pcap(_) => true,
            Transmitter::Tee(tee) => tee.inner.has_drained(),
            Transmitter::Fault(fault) => fault.inner.has_drained(),
        }
    }

    /// Frames that the device accepted and did not send, since the port was opened: they come back like the
    /// others, so that only this count shows them.
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

    /// Frames lent to the device in all; [`Receiver::returned`] counts those that came back. 0 when frames are
    /// completed at once.
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

    /// The receive queue of the port whose owner reclaims the frames sent here; `None` when frames are
    /// completed at once.
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

    /// The transmit queue that it sends by; `None` where the kernel selects one for each packet, or the driver
    /// has none.
    pub fn queue(&self) -> Option<QueueId> {
        match self {
            Transmitter::AfXdp(queue) => Some(queue.queue()),
            Transmitter::Tap(queue) => Some(queue.queue()),
            Transmitter::AfPacket(_) | Transmitter::Pcap(_) | Transmitter::Memory(_) => None,
            Transmitter::Tee(tee) => tee.inner.queue(),
            Transmitter::Fault(fault) => fault.inner.queue(),
        }
    }

    /// The packets it accepts besides plain ones of one frame; the far end would get any other wrong.
    pub fn offload(&self) -> Offload {
        match self {
            Transmitter::AfXdp(queue) => queue.offload(),
            Transmitter::AfPacket(queue) => queue.offload(),
            Transmitter::Tap(queue) => queue.offload(),
            Transmitter::Pcap(queue) => queue.offload(),
            // The far end sees the metadata too.
            Transmitter::Memory(_) => {
                Offload { frames_max: CHAIN_MAX as u8, checksum: true, segments: true }
            }
            Transmitter::Tee(tee) => tee.inner.offload(),
            Transmitter::Fault(fault) => fault.inner.offload(),
        }
    }

    /// Frames accepted but not passed to its device: packets delayed on purpose. While any are
    /// held, call [`transmit`](Transmitter::transmit) in every turn, if need be with an empty batch.
    #[inline]
    pub fn held(&self) -> usize {
        match self {
            Transmitter::Fault(fault) => fault.held() + fault.inner.held(),
            Transmitter::Tee(tee) => tee.held(),
            _ => 0,
        }
    }

    /// How many nanoseconds after the last call to [`transmit`](Transmitter::transmit) the next is due,
    /// even without new packets; `None` when no frame is held.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            Transmitter::Fault(fault) => earlier(fault.due_ns(), fault.inner.due_ns()),
            Transmitter::Tee(tee) => tee.due_ns(),
            _ => None,
        }
    }

    /// The faults applied to its packets.
    pub fn faults(&self) -> FaultCounts {
        match self {
            Transmitter::Tee(tee) => tee.inner.faults(),
            Transmitter::Fault(fault) => fault.inner.faults() + fault.counts(),
            _ => FaultCounts::default(),
        }
    }

    /// The counts of its packets' copies.
    pub fn copies(&self) -> CopyCounts {
        match self {
            Transmitter::Tee(tee) => tee.inner.copies() + tee.counts(),
            Transmitter::Fault(fault) => fault.inner.copies(),
            _ => CopyCounts::default(),
        }
    }

    /// Unwraps the device's transmitter, to be closed. Held packets are transmitted first;
    /// those without room return to `pool`. `ended` is called with the ingress port of each that is not in flight
    /// now. The transmitters of copies are added to `others`.
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

    /// As [`unwrapped`](Transmitter::unwrapped), for a transmitter of copies, whose completions are not reported.
    fn unwrapped_copies(self, pool: &mut Pool, others: &mut Vec<Transmitter>) {
        let device = self.unwrapped(pool, others, &mut |_, _| {});
        others.push(device);
    }
}

/// The earlier of two moments, if any.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
