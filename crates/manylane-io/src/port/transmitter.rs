//! The transmit side of a port: one worker's, of any driver.

use manylane_frame::vocabulary::{Offload, PortId, QueueId};
use manylane_frame::{Batch, CHAIN_MAX, Pool};

use super::{CopyCounts, FaultCounts};
use super::{af_packet, af_xdp, fault, memory, pcap, tap, tee};

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
    /// each; for the others [`Receiver::reclaim`](super::Receiver::reclaim) does both.
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

    /// Frames lent to the device in all; [`Receiver::returned`](super::Receiver::returned) counts those that came back. 0 when frames are
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
    pub(super) fn unwrapped_copies(self, pool: &mut Pool, others: &mut Vec<Transmitter>) {
        let device = self.unwrapped(pool, others, &mut |_, _| {});
        others.push(device);
    }
}

/// The earlier of two moments, if any.
pub(super) fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
