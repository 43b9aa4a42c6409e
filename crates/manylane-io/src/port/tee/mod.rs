//! A port whose packets are also copied elsewhere: to a capture file, or to another port.
//!
//! [`Receiver`] wraps a receive queue and copies received packets; [`Transmitter`] wraps a transmitter and
//! copies the packets that it accepted. Both copy to any transmitter: [`pcap`](super::pcap) records the
//! bytes, all others send frames of the pool. A copy never delays its packet, nor causes its loss.
//!
//! A copy is in no ledger of packets, as a capture is not: it is neither received nor created, and its
//! completion is not reported. So it is marked `later`, like the parts that a device holds of a packet. Frames
//! add up as always. A counter counts each copy without a frame, and each that the other transmitter does not accept
//! ([`Offload`]) or has no room for.
//!
//! At most [`COPIES_MAX`] frames of copies, and the rest of a packet, are collected before they are sent. The ring of
//! the other transmitter bounds those that it keeps. Frames that it lends to a device are not in this port's
//! [`lent`](super::Transmitter::lent), though they are among those that the device returns.

use manylane_frame::vocabulary::{Checksum, Offload, PortId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Pool};

use super::pcap::Direction;
use super::transmitter::earlier;
use super::write::copy;
use super::{Receiver as AnyReceiver, Sent, Transmitter as AnyTransmitter, Wait};

/// A receive queue whose packets are copied.
pub struct Receiver {
    pub(super) inner: AnyReceiver,
    copies: Copies,
}

/// A transmitter whose packets are copied.
pub struct Transmitter {
    pub(super) inner: AnyTransmitter,
    copies: Copies,
}

/// Counts of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Packets copied: the file or the other transmitter has them.
    pub copied: u64,
    /// Packets not copied because no frame was free.
    pub no_frame: u64,
    /// Packets not copied because the other transmitter would have sent them wrong: chains, segments, or
    /// incomplete checksums.
    pub unfit: u64,
    /// Packets copied in vain: the file's writer, or the other transmitter, had no room.
    pub refused: u64,
}

impl std::ops::Add for CopyCounts {
    type Output = CopyCounts;

    fn add(self, other: CopyCounts) -> CopyCounts {
        CopyCounts {
            copied: self.copied + other.copied,
            no_frame: self.no_frame + other.no_frame,
            unfit: self.unfit + other.unfit,
            refused: self.refused + other.refused,
        }
    }
}

/// The destination of copies.
struct Copies {
    to: AnyTransmitter,
    takes: Offload,
    counts: CopyCounts,
}

impl Receiver {
    /// Copies the packets that `inner` receives to `to`.
    pub fn new(inner: AnyReceiver, to: AnyTransmitter) -> Receiver {
        Receiver { inner, copies: Copies::new(to) }
    }

    /// As [`AnyReceiver::receive`].
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        let received = self.inner.receive(pool, batch, now_ns);
        let new = batch.len() - received..;
        if let AnyTransmitter::Pcap(file) = &mut self.copies.to {
            // Directly into the file's buffer: no frame, no extra copy.
            let before = file.counts();
            file.record(pool.region().view(), &batch.as_slice()[new], Direction::In);
            self.copies.counts.copied += file.counts().recorded - before.recorded;
            self.copies.counts.refused += file.counts().lost - before.lost;
        } else {
            let mut copies = Batch::new();
            let mut frames = 0;
            for frame in &batch.as_slice()[new] {
                match self.copies.make(pool, frame) {
                    Ok(copy) => {
                        frames += pool.region().meta(&copy).frames();
                        copies.push(copy).expect("as many as were received fit in");
                    }
                    Err(why) => self.copies.failed(why),
                }
                if frames >= COPIES_MAX {
                    self.copies.send(pool, &mut copies);
                    frames = 0;
                }
            }
            self.copies.send(pool, &mut copies);
        }
        // In every turn, also for records that remain in a file's buffer.
        self.copies.to.flush();
        received
    }

    /// As [`AnyReceiver::wait`], and for packets that the copies' transmitter holds.
    pub(super) fn wait(&self) -> Wait<'_> {
        self.inner.wait().at_most(self.copies.to.due_ns())
    }

    /// Frames that the copies' transmitter holds.
    pub(super) fn held(&self) -> usize {
        self.copies.to.held()
    }

    /// The counts of copies.
    pub fn counts(&self) -> CopyCounts {
        self.copies.counts
    }

    /// Returns the wrapped queue, and the transmitter of the copies.
    pub fn into_parts(self) -> (AnyReceiver, AnyTransmitter) {
        (self.inner, self.copies.to)
    }
}

impl Transmitter {
    /// Copies the packets that `inner` accepts to `to`.
    pub fn new(inner: AnyTransmitter, to: AnyTransmitter) -> Transmitter {
        Transmitter { inner, copies: Copies::new(to) }
    }

    /// As [`AnyTransmitter::transmit`].
    pub(super) fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        completed: &mut dyn FnMut(PortId),
    ) -> Sent {
        let mut sent = self.transmit_some(pool, batch, completed);
        let mut last = sent.frames;
        while last > 0 && !batch.is_empty() {
            let more = self.transmit_some(pool, batch, completed);
            last = more.frames;
            sent.frames += more.frames;
            sent.bytes += more.bytes;
        }
        sent
    }

    /// Transmits packets from the front of `batch`, as many as may be copied at a time. Copies are made
    /// before the packets leave our hands; the copies of packets without room are discarded.
    fn transmit_some(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        completed: &mut dyn FnMut(PortId),
    ) -> Sent {
        let mut frames = 0;
        let within = |frame: &&Frame| {
            let room = frames < COPIES_MAX;
            frames += pool.region().meta(frame).frames();
            room
        };
        let count = batch.iter().take_while(within).count();
        let mut chunk = Batch::new();
        let mut copies = [const { None }; BATCH_MAX];
        for (place, frame) in copies.iter_mut().zip(batch.drain().take(count)) {
            *place = Some((frame.index(), self.copies.make(pool, &frame)));
            chunk.push(frame).expect("as many as came out fit in");
        }
        let sent = self.inner.transmit(pool, &mut chunk, completed);

        // A remaining frame never left our hands, so that its index is still its own.
        let mut left = chunk.iter().map(Frame::index).peekable();
        let mut taken = Batch::new();
        for (index, copy) in copies.into_iter().flatten() {
            match (left.next_if_eq(&index), copy) {
                (None, Ok(copy)) => taken.push(copy).expect("as many as came out fit in"),
                (None, Err(why)) => self.copies.failed(why),
                (Some(_), Ok(copy)) => pool.give_back(copy),
                (Some(_), Err(_)) => {}
            }
        }
        self.copies.send(pool, &mut taken);
        for frame in batch.drain() {
            chunk.push(frame).expect("as many as came out fit in");
        }
        *batch = chunk;
        sent
    }

    /// As [`AnyTransmitter::flush`].
    pub(super) fn flush(&mut self) {
        self.inner.flush();
        self.copies.to.flush();
    }

    /// The counts of copies.
    pub fn counts(&self) -> CopyCounts {
        self.copies.counts
    }

    /// As [`AnyTransmitter::held`], with the packets that the copies' transmitter holds.
    pub(super) fn held(&self) -> usize {
        self.inner.held() + self.copies.to.held()
    }

    /// As [`AnyTransmitter::due_ns`].
    pub(super) fn due_ns(&self) -> Option<u64> {
        earlier(self.inner.due_ns(), self.copies.to.due_ns())
    }

    /// Returns the wrapped transmitter, and that of the copies.
    pub fn into_parts(self) -> (AnyTransmitter, AnyTransmitter) {
        (self.inner, self.copies.to)
    }
}

/// Why a packet is not copied.
enum Lack {
    Frames,
    Offload,
}

impl Copies {
    fn new(to: AnyTransmitter) -> Copies {
        Copies { takes: to.offload(), to, counts: CopyCounts::default() }
    }

    fn make(&self, pool: &mut Pool, frame: &Frame) -> Result<Frame, Lack> {
        let meta = pool.region().meta(frame);
        let Offload { frames_max, checksum, segments } = self.takes;
        if meta.frames() > frames_max.into()
            || (matches!(meta.checksum, Checksum::Partial { .. }) && !checksum)
            || (meta.segments.any() && !segments)
        {
            return Err(Lack::Offload);
        }
        let mut copy = copy(pool, frame).ok_or(Lack::Frames)?;
        pool.region().meta_mut(&mut copy).later = true;
        Ok(copy)
    }

    fn failed(&mut self, why: Lack) {
        match why {
            Lack::Frames => self.counts.no_frame += 1,
            Lack::Offload => self.counts.unfit += 1,
        }
    }

    /// Sends copies, and returns the frames of those without room. Completions are not reported.
    fn send(&mut self, pool: &mut Pool, copies: &mut Batch) {
        if copies.is_empty() && self.to.held() == 0 {
            return;
        }
        let lost_before = self.lost();
        let sent = self.to.transmit(pool, copies, |_| {});
        let lost = self.lost() - lost_before;
        self.counts.copied += sent.frames as u64 - lost;
        self.counts.refused += copies.len() as u64 + lost;
        pool.give_back_all(copies);
    }

    /// Packets that the file accepted and lost.
    fn lost(&self) -> u64 {
        match &self.to {
            AnyTransmitter::Pcap(file) => file.counts().lost,
            _ => 0,
        }
    }
}

/// The most frames of copies collected, except for the rest of a packet.
pub const COPIES_MAX: usize = 128;

#[cfg(test)]
mod tests;
