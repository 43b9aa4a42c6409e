//! The ways to packet memory that are compared, behind one face.

use manylane_frame::vocabulary::{Checksum, QueueId};
use manylane_frame::{Marks, View};

use crate::baseline::frame::{Heap, Packet, Packets};
use crate::prelude::*;

/// What differs from packet to packet: the length, and the port. The product writes only metadata that differs from
/// that of the frame's last packet; the next packet has to differ, or what is measured is a comparison.
#[derive(Default)]
struct Turn {
    /// From 0.
    longer: u16,
    port: u16,
}

/// Lengths: not a power of two, so that length and port repeat together after millions of packets only.
const LENGTHS: u16 = 1021;

impl Turn {
    /// From 60 bytes to 1080.
    #[inline(always)]
    fn next(&mut self) -> (u16, Marks) {
        self.longer = if self.longer == LENGTHS - 1 { 0 } else { self.longer + 1 };
        self.port = self.port.wrapping_add(1);
        (60 + self.longer, marks(self.port))
    }
}

/// The metadata that a receiving port writes.
#[inline(always)]
fn marks(port: u16) -> Marks {
    Marks::received(PortId(port), QueueId(0), Checksum::Valid)
}

/// One thread's way to packet memory. Monomorphic in every loop.
pub trait Scheme {
    /// The memory of one packet, with its metadata filled in.
    type Frame: Send;

    /// Up to 64 of them.
    type Batch;

    fn batch() -> Self::Batch;

    fn take(&mut self) -> Self::Frame;

    /// Takes memory for one packet of `len` bytes, in several pieces where that is the scheme's way.
    fn take_large(&mut self, len: usize) -> Self::Frame;

    fn give_back(&mut self, frame: Self::Frame);

    /// Takes memory for `wanted` packets of one piece, which the batch has room for.
    fn take_into(&mut self, batch: &mut Self::Batch, wanted: usize);

    fn give_back_all(&mut self, batch: &mut Self::Batch);

    fn push(batch: &mut Self::Batch, frame: Self::Frame);

    fn drain(batch: &mut Self::Batch) -> impl ExactSizeIterator<Item = Self::Frame>;
}

/// Heads and data by way of an allocator.
pub struct Allocated<H: Heap>(Packets<H>, Turn);

impl<H: Heap> Allocated<H> {
    pub fn new(packets: Packets<H>) -> Allocated<H> {
        Allocated(packets, Turn::default())
    }
}

impl<H: Heap> Scheme for Allocated<H> {
    type Frame = Packet<H>;
    type Batch = Vec<Packet<H>>;

    fn batch() -> Vec<Packet<H>> {
        Vec::with_capacity(BATCH_MAX)
    }

    #[inline(always)]
    fn take(&mut self) -> Packet<H> {
        let (len, marks) = self.1.next();
        self.0.take(len.into(), marks)
    }

    #[inline(always)]
    fn take_large(&mut self, len: usize) -> Packet<H> {
        self.0.take(len, self.1.next().1)
    }

    #[inline(always)]
    fn give_back(&mut self, packet: Packet<H>) {
        self.0.give_back(packet);
    }

    #[inline(always)]
    fn take_into(&mut self, batch: &mut Vec<Packet<H>>, wanted: usize) {
        batch.extend((0..wanted).map(|_| Scheme::take(self)));
    }

    #[inline(always)]
    fn give_back_all(&mut self, batch: &mut Vec<Packet<H>>) {
        batch.drain(..).for_each(|packet| self.0.give_back(packet));
    }

    #[inline(always)]
    fn push(batch: &mut Vec<Packet<H>>, packet: Packet<H>) {
        batch.push(packet);
    }

    #[inline(always)]
    fn drain(batch: &mut Vec<Packet<H>>) -> impl ExactSizeIterator<Item = Packet<H>> {
        batch.drain(..)
    }
}

/// What manylane's rows write into a frame: nothing, to stand beside memory without metadata ...
pub const BARE: u8 = 0;
/// ... what the frame has from its last packet, which is a comparison ...
pub const SAME: u8 = 1;
/// ... and what differs from that.
pub const FILLED: u8 = 2;

/// Manylane's pool.
pub struct Manylane<const WHAT: u8>(Pool, Turn);

impl<const WHAT: u8> Manylane<WHAT> {
    pub fn new(depot: &Depot) -> Self {
        Manylane(depot.pool(), Turn::default())
    }

    #[inline(always)]
    fn fill_in(turn: &mut Turn, view: View<'_>, frame: &mut Frame) {
        if WHAT == BARE {
            return;
        }
        let (len, Marks { ingress, queue, checksum, .. }) = match WHAT {
            SAME => (FRAME_LEN as u16, marks(0)),
            _ => turn.next(),
        };
        view.set_window(frame, HEADROOM, HEADROOM + len);
        view.set_ingress(frame, ingress, queue, checksum);
    }
}

impl<const WHAT: u8> Scheme for Manylane<WHAT> {
    type Frame = Frame;
    type Batch = Batch;

    fn batch() -> Batch {
        Batch::new()
    }

    #[inline(always)]
    fn take(&mut self) -> Frame {
        let mut frame = self.0.take().expect(ENOUGH);
        Self::fill_in(&mut self.1, self.0.region().view(), &mut frame);
        frame
    }

    #[inline(always)]
    fn take_large(&mut self, len: usize) -> Frame {
        let mut packet = self.0.take_packet(HEADROOM, len).expect(ENOUGH);
        let view = self.0.region().view();
        let (_, Marks { ingress, queue, checksum, .. }) = self.1.next();
        view.set_ingress(&mut packet, ingress, queue, checksum);
        packet
    }

    #[inline(always)]
    fn give_back(&mut self, frame: Frame) {
        self.0.give_back(frame);
    }

    #[inline(always)]
    fn take_into(&mut self, batch: &mut Batch, wanted: usize) {
        let taken = self.0.take_into(batch, wanted);
        assert_eq!(taken, wanted, "{ENOUGH}");
        let view = self.0.region().view();
        batch.iter_mut().for_each(|frame| Self::fill_in(&mut self.1, view, frame));
    }

    #[inline(always)]
    fn give_back_all(&mut self, batch: &mut Batch) {
        self.0.give_back_all(batch);
    }

    #[inline(always)]
    fn push(batch: &mut Batch, frame: Frame) {
        batch.push(frame).expect("the batch has room");
    }

    #[inline(always)]
    fn drain(batch: &mut Batch) -> impl ExactSizeIterator<Item = Frame> {
        batch.drain()
    }
}

const ENOUGH: &str = "the region has more frames than are outstanding";

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose metadata is as before is compared, and not written.
    #[test]
    fn each_packet_of_a_frame_differs_from_the_one_before() {
        let config = RegionConfig { frames: 8192, frame_size: 2048 };
        let depot = Depot::new(Region::new(config).expect("it can be mapped"), 1).expect("first");
        let mut scheme = Manylane::<FILLED>::new(&depot);
        let mut last = vec![None; config.frames as usize];
        for outstanding in [1, 4, 64, 256, 1024, 4096] {
            for _ in 0..8 {
                let held: Vec<Frame> = (0..outstanding).map(|_| scheme.take()).collect();
                for frame in held {
                    let meta = scheme.0.region().view().meta(&frame);
                    let now = Some((meta.len(), meta.ingress));
                    let before = std::mem::replace(&mut last[frame.index() as usize], now);
                    assert_ne!(before, now, "{outstanding} outstanding");
                    scheme.give_back(frame);
                }
            }
        }
    }
}
