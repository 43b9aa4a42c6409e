//! The ways to packet memory that are compared, behind one face.

use manylane_frame::View;

use crate::baseline::frame::{Heap, MARKS, Packet, Packets};
use crate::prelude::*;

/// Bytes of the packets whose memory is taken.
pub const PACKET_LEN: u16 = 64;

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

impl<H: Heap> Scheme for Packets<H> {
    type Frame = Packet<H>;
    type Batch = Vec<Packet<H>>;

    fn batch() -> Vec<Packet<H>> {
        Vec::with_capacity(BATCH_MAX)
    }

    #[inline(always)]
    fn take(&mut self) -> Packet<H> {
        Packets::take(self, PACKET_LEN.into(), MARKS)
    }

    #[inline(always)]
    fn take_large(&mut self, len: usize) -> Packet<H> {
        Packets::take(self, len, MARKS)
    }

    #[inline(always)]
    fn give_back(&mut self, packet: Packet<H>) {
        Packets::give_back(self, packet);
    }

    #[inline(always)]
    fn take_into(&mut self, batch: &mut Vec<Packet<H>>, wanted: usize) {
        batch.extend((0..wanted).map(|_| Packets::take(self, PACKET_LEN.into(), MARKS)));
    }

    #[inline(always)]
    fn give_back_all(&mut self, batch: &mut Vec<Packet<H>>) {
        batch.drain(..).for_each(|packet| Packets::give_back(self, packet));
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

/// Manylane's pool. `BARE` leaves the metadata as it is, to stand beside DPDK's mempool, which has none.
pub struct Manylane<const BARE: bool>(Pool);

impl<const BARE: bool> Manylane<BARE> {
    pub fn new(depot: &Depot) -> Self {
        Manylane(depot.pool())
    }

    #[inline(always)]
    fn fill_in(view: View<'_>, frame: &mut Frame) {
        if !BARE {
            view.set_window(frame, HEADROOM, HEADROOM + PACKET_LEN);
            view.set_ingress(frame, MARKS.ingress, MARKS.queue, MARKS.checksum);
        }
    }
}

impl<const BARE: bool> Scheme for Manylane<BARE> {
    type Frame = Frame;
    type Batch = Batch;

    fn batch() -> Batch {
        Batch::new()
    }

    #[inline(always)]
    fn take(&mut self) -> Frame {
        let mut frame = self.0.take().expect(ENOUGH);
        Self::fill_in(self.0.region().view(), &mut frame);
        frame
    }

    #[inline(always)]
    fn take_large(&mut self, len: usize) -> Frame {
        let mut packet = self.0.take_packet(HEADROOM, len).expect(ENOUGH);
        let view = self.0.region().view();
        view.set_ingress(&mut packet, MARKS.ingress, MARKS.queue, MARKS.checksum);
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
        batch.iter_mut().for_each(|frame| Self::fill_in(view, frame));
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
