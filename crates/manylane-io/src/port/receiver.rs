//! The receive side of a port: one queue of any driver.

use std::os::fd::AsFd;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Batch, Pool};

use super::{CopyCounts, FaultCounts, Losses, Transmitter, Wait};
use super::{af_packet, af_xdp, fault, memory, pcap, tap, tee};

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
