//! Faults at egress.

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Pool};

use super::super::{Clock, Fate, Sent, Transmitter as AnyTransmitter};
use super::hold::Packet;
use super::line::Line;
use super::{FaultConfig, FaultCounts};

/// A transmitter with faults.
pub struct Transmitter {
    pub(in super::super) inner: AnyTransmitter,
    line: Line,
    clock: Clock,
    /// The clock's time at the last call.
    now_ns: u64,
}

impl Transmitter {
    /// Applies faults to the packets of `worker`'s transmitter; `clock` may count from any moment.
    ///
    /// # Panics
    ///
    /// When the configuration is invalid ([`FaultConfig::check`]).
    pub fn new(
        inner: AnyTransmitter,
        worker: WorkerId,
        config: FaultConfig,
        clock: Clock,
    ) -> Transmitter {
        let number = u64::from(worker.0) << 1 | 1;
        // The packets that one batch produces, when none remained before.
        let line = Line::new(config, number, true, 2 * BATCH_MAX);
        Transmitter { inner, line, clock, now_ns: 0 }
    }

    /// As [`AnyTransmitter::transmit`], and sends held packets that are due. Accepts no new packets while its device
    /// has no room for ready ones.
    pub(in super::super) fn transmit(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        completed: &mut dyn FnMut(PortId),
    ) -> Sent {
        self.now_ns = (self.clock)();
        self.line.hold.release(self.now_ns);
        self.send(pool, completed);
        let mut sent = Sent::default();
        if self.line.hold.ready() == 0 {
            for frame in batch.drain() {
                let meta = pool.region().meta(&frame);
                sent.frames += 1;
                sent.bytes += meta.packet_len() as u64;
                let ingress = meta.ingress;
                if !self.line.apply(pool, frame, self.now_ns) {
                    completed(ingress);
                }
            }
            self.send(pool, completed);
        }
        sent
    }

    /// The number of frames held.
    pub fn held(&self) -> usize {
        self.line.hold.frames()
    }

    /// How long after the last look at the clock a packet is due.
    pub(in super::super) fn due_ns(&self) -> Option<u64> {
        self.line.hold.due_ns().map(|due_ns| due_ns.saturating_sub(self.now_ns))
    }

    /// The applied faults.
    pub fn counts(&self) -> FaultCounts {
        self.line.counts
    }

    /// Transmits the held packets, due or not, and returns the wrapped transmitter. Packets without room
    /// return to `pool`. `ended` is called for both, unless they are in flight.
    pub(in super::super) fn close(
        mut self,
        pool: &mut Pool,
        ended: &mut dyn FnMut(Fate, PortId),
    ) -> AnyTransmitter {
        self.line.hold.release(u64::MAX);
        self.send(pool, &mut |entry| ended(Fate::Transmitted, entry));
        self.inner.flush();
        while let Some(Packet { frame, .. }) = self.line.hold.pop() {
            let meta = pool.region().meta(&frame);
            if !meta.later {
                ended(Fate::Dropped, meta.ingress);
            }
            pool.give_back(frame);
        }
        self.inner
    }

    /// Passes ready packets to the device, in order, as far as it has room.
    fn send(&mut self, pool: &mut Pool, completed: &mut dyn FnMut(PortId)) {
        loop {
            // Runs of copies and of originals alternate: a copy's completion is not reported.
            let mut run = Batch::new();
            let mut copies = false;
            while !run.is_full()
                && let Some(packet) = self.line.hold.pop()
            {
                let copy = pool.region().meta(&packet.frame).later;
                if run.is_empty() {
                    copies = copy;
                } else if copy != copies {
                    self.line.hold.put_back(packet);
                    break;
                }
                run.push(packet.frame).expect("there is room");
            }
            match copies {
                true => self.inner.transmit(pool, &mut run, |_| {}),
                // Also with an empty batch: the transmitter may hold packets itself.
                false => self.inner.transmit(pool, &mut run, &mut *completed),
            };
            let stuck = !run.is_empty();
            while let Some(frame) = run.pop() {
                let frames = pool.region().meta(&frame).frames();
                self.line.hold.put_back(Packet { frame, frames });
            }
            if stuck || self.line.hold.ready() == 0 {
                return;
            }
        }
    }
}
