//! A port whose packets are also copied elsewhere: to a capture file, or to another port.
//!
//! [`Receiver`] wraps a receive queue and copies what is received; [`Transmitter`] wraps a way out and
//! copies what that has taken. Both copy to a transmitter, which is any: [`pcap`](super::pcap) records the
//! bytes, all others send frames of the pool. A packet is never late for its copy, and never lost.
//!
//! A copy is in no ledger of packets, as a capture is not: it is neither received nor created, and nobody
//! hears of its completion. So it is marked `later`, as parts are that a device has on their own. Frames
//! add up as always. For a copy that there is no frame for, or that the other way out does not take
//! ([`Offload`]) or has no place for, a counter goes up.
//!
//! Copies in hand are at most [`COPIES_MAX`] frames and the rest of a packet; then they are sent. What the
//! other way out keeps is bounded by its ring. Frames that it lends to a device are not in this port's
//! [`lent`](super::Transmitter::lent), though they are among those that the device returns.

use manylane_frame::vocabulary::{Checksum, Offload, PortId};
use manylane_frame::{BATCH_MAX, Batch, Frame, Pool};

use super::pcap::Direction;
use super::write::copy;
use super::{Receiver as AnyReceiver, Sent, Transmitter as AnyTransmitter, Wait, earlier};

/// A receive queue that is copied.
pub struct Receiver {
    pub(super) inner: AnyReceiver,
    copies: Copies,
}

/// A way out that is copied.
pub struct Transmitter {
    pub(super) inner: AnyTransmitter,
    copies: Copies,
}

/// What became of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Packets copied: the file or the other way out has them.
    pub copied: u64,
    /// Packets not copied for want of frames.
    pub no_frame: u64,
    /// Packets not copied because the other way out would have sent them wrong: chains, segments, or
    /// checksums that nobody would complete.
    pub unfit: u64,
    /// Packets copied in vain: the file's writer, or the other way out, had no place.
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

/// Where copies go.
struct Copies {
    to: AnyTransmitter,
    takes: Offload,
    counts: CopyCounts,
}

impl Receiver {
    /// Copies to `to` what `inner` receives.
    pub fn new(inner: AnyReceiver, to: AnyTransmitter) -> Receiver {
        Receiver { inner, copies: Copies::new(to) }
    }

    /// As [`AnyReceiver::receive`].
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> usize {
        let received = self.inner.receive(pool, batch, now_ns);
        let new = batch.len() - received..;
        if let AnyTransmitter::Pcap(file) = &mut self.copies.to {
            // Straight into the file's buffer: no frame, no copy more.
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
        // In every turn, also for what a file has from turns before.
        self.copies.to.flush();
        received
    }

    /// As [`AnyReceiver::wait`]: also for what the copies' way out holds.
    pub(super) fn wait(&self) -> Wait<'_> {
        self.inner.wait().at_most(self.copies.to.due_ns())
    }

    /// Frames that the copies' way out holds.
    pub(super) fn held(&self) -> usize {
        self.copies.to.held()
    }

    /// What became of copies.
    pub fn counts(&self) -> CopyCounts {
        self.copies.counts
    }

    /// Takes the queue out again, and the way out of the copies.
    pub fn into_parts(self) -> (AnyReceiver, AnyTransmitter) {
        (self.inner, self.copies.to)
    }
}

impl Transmitter {
    /// Copies to `to` what `inner` takes.
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

    /// Transmits packets from the front of `batch`, as many as may be copied at a time. They are copied
    /// before they are out of our hands; the copies of those that find no place go back.
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

        // A frame that is left was never given up, so that its number is still its own.
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

    /// What became of copies.
    pub fn counts(&self) -> CopyCounts {
        self.copies.counts
    }

    /// As [`AnyTransmitter::held`]: also what the copies' way out holds.
    pub(super) fn held(&self) -> usize {
        self.inner.held() + self.copies.to.held()
    }

    /// As [`AnyTransmitter::due_ns`].
    pub(super) fn due_ns(&self) -> Option<u64> {
        earlier(self.inner.due_ns(), self.copies.to.due_ns())
    }

    /// Takes the way out out again, and that of the copies.
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

    /// Sends copies, and gives back what finds no place. Nobody hears of completions.
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

    /// Packets that the file took and lost.
    fn lost(&self) -> u64 {
        match &self.to {
            AnyTransmitter::Pcap(file) => file.counts().lost,
            _ => 0,
        }
    }
}

/// Most frames of copies in hand, but for the rest of a packet.
pub const COPIES_MAX: usize = 128;

#[cfg(test)]
mod tests;
