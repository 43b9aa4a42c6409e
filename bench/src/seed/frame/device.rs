//! What stands for the device of the forwarding worker: writes frames, when they are due.

use std::net::Ipv4Addr;
use std::sync::Arc;

use manylane::worker::Clock;
use manylane_frame::{BATCH_MAX, Batch, Frame, HEADROOM, Pool, Region};
use manylane_io::port::memory::{Next, Sink};
use manylane_sync::counters::Counters;
use manylane_sync::words::{Words, WordsMut};

use super::scheme::Scheme;
use crate::forward::{FRAME_LEN, draw_ipv4, ipv4_template};
use crate::histogram;
use crate::prefixes::{Prefixes, Random};

/// Frames without fragments that Ethernet has: the smallest and the largest.
pub const LENGTHS: [usize; 2] = [64, 1514];

/// How frames arrive.
#[derive(Clone, Copy)]
pub enum Arrival {
    /// As fast as the worker takes them.
    Always,
    /// One every so many picoseconds, whether the worker comes or not. Each carries the nanosecond in
    /// which it was due.
    Every(u64),
    /// In bursts, into a ring of so many descriptors: what finds none is an overrun.
    Bursts(u64),
}

/// Frames of a burst: half the largest ring of a usual NIC.
const BURST: u64 = 2048;
/// 64-byte frames back to back at 25 Gbit/s: 84 bytes on the wire.
const BURST_GAP_PS: u64 = 26_880;
/// From the start of one burst to the next, enough for the slowest to be done: 2 million frames a
/// second on average.
const BURST_PERIOD_PS: u64 = 1_000_000_000;

/// Words that the device reads.
const EPOCH: usize = 0;
const KIND: usize = 1;
const VALUE: usize = 2;
const LENGTH: usize = 3;
const WORDS: usize = 4;

/// Tells a device what to do.
pub struct Switch(WordsMut<u64>);

impl Switch {
    /// For a device that has not begun.
    pub fn new() -> Switch {
        Switch(WordsMut::zeroed(WORDS))
    }

    /// From now on, frames of the `length`th of [`LENGTHS`] arrive so.
    pub fn set(&mut self, length: usize, arrival: Arrival) {
        let (kind, value) = match arrival {
            Arrival::Always => (0, 0),
            Arrival::Every(ps) => (1, ps),
            Arrival::Bursts(ring) => (2, ring),
        };
        self.0.store(KIND, kind);
        self.0.store(VALUE, value);
        self.0.store(LENGTH, length as u64);
        self.0.publish(EPOCH, self.0.load(EPOCH) + 1);
    }
}

/// Destinations, with the header checksum of each for both lengths, in memory order.
pub struct Targets {
    frames: Vec<(u32, [u16; 2])>,
    templates: [[u8; FRAME_LEN]; 2],
    rest: [u8; LENGTHS[1] - FRAME_LEN],
}

const TARGETS: usize = 1 << 20;

impl Targets {
    /// Inside announced prefixes.
    pub fn new(prefixes: &Prefixes) -> Targets {
        let mut random = Random(99);
        let frames = (0..TARGETS).map(|_| {
            let address = draw_ipv4(prefixes, &mut random);
            (address.to_be(), LENGTHS.map(|len| ipv4_template(address.into(), len).1))
        });
        Targets {
            frames: frames.collect(),
            templates: LENGTHS.map(|len| ipv4_template(Ipv4Addr::UNSPECIFIED, len).0),
            rest: [0x5a; LENGTHS[1] - FRAME_LEN],
        }
    }
}

/// Arrived frames and overruns, in the device's counters.
pub const ARRIVED: usize = 0;
/// See [`ARRIVED`].
pub const OVERRUNS: usize = 1;

/// The receiving half.
pub struct Device<S: Scheme> {
    switch: Words<u64>,
    targets: Arc<Targets>,
    next: usize,
    counters: Counters,
    epoch: u64,
    arrival: Arrival,
    length: usize,
    /// When the next frame is due.
    due_ps: u64,
    /// Frames of this burst that have arrived.
    arrived: u64,
    /// Descriptors in use.
    queued: u64,
    /// What the frames would lie in, if not in the region.
    scheme: Option<S>,
    memory: S::Batch,
}

impl<S: Scheme> Device<S> {
    /// With memory of `scheme` for each frame, beside the frame itself.
    pub fn new(switch: &Switch, targets: Arc<Targets>, scheme: Option<S>) -> Device<S> {
        Device {
            switch: switch.0.reader(),
            targets,
            next: 0,
            counters: Counters::new(2),
            epoch: 0,
            arrival: Arrival::Always,
            length: 0,
            due_ps: 0,
            arrived: 0,
            queued: 0,
            scheme,
            memory: S::batch(),
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> manylane_sync::counters::CounterReader {
        self.counters.reader()
    }

    /// The frames that have come, up to a batch.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> Next {
        let now_ps = now_ns * 1000;
        if self.switch.load(EPOCH) != self.epoch {
            self.begin(now_ps);
        }
        let first_due_ps = self.due_ps;
        let frames = match self.arrival {
            Arrival::Always => BATCH_MAX,
            Arrival::Every(gap_ps) => self.due(now_ps, gap_ps),
            Arrival::Bursts(ring) => self.burst(now_ps, ring),
        };
        if let Some(scheme) = &mut self.scheme {
            // The frames of the last turn have left: their memory is free, and new frames need some.
            scheme.give_back_all(&mut self.memory);
            scheme.take_into(&mut self.memory, frames);
        }
        pool.take_into(batch, frames);
        self.write(pool.region(), batch);
        if let Arrival::Every(gap_ps) = self.arrival {
            let mut due_ps = first_due_ps;
            for frame in batch.iter_mut() {
                let bytes = pool.region().bytes_mut(frame);
                bytes[STAMP..STAMP + 8].copy_from_slice(&(due_ps / 1000).to_ne_bytes());
                due_ps += gap_ps;
            }
        }
        Next::More
    }

    #[cold]
    fn begin(&mut self, now_ps: u64) {
        self.epoch = self.switch.load(EPOCH);
        self.length = self.switch.load(LENGTH) as usize;
        let value = self.switch.load(VALUE);
        self.arrival = match self.switch.load(KIND) {
            0 => Arrival::Always,
            1 => Arrival::Every(value),
            _ => Arrival::Bursts(value),
        };
        self.due_ps = now_ps;
        (self.arrived, self.queued) = (0, 0);
    }

    /// How many are due, up to a batch.
    #[inline]
    fn due(&mut self, now_ps: u64, gap_ps: u64) -> usize {
        let mut frames = 0;
        while frames < BATCH_MAX && self.due_ps <= now_ps {
            self.due_ps += gap_ps;
            frames += 1;
        }
        frames
    }

    /// Lets what has arrived since the last call find descriptors, or not; then the worker takes a
    /// batch, with new memory in its descriptors.
    #[inline]
    fn burst(&mut self, now_ps: u64, ring: u64) -> usize {
        while self.due_ps <= now_ps {
            let due = (now_ps - self.due_ps) / BURST_GAP_PS + 1;
            let came = due.min(BURST - self.arrived);
            let placed = came.min(ring - self.queued);
            self.queued += placed;
            self.counters.add(ARRIVED, came);
            self.counters.add(OVERRUNS, came - placed);
            self.arrived += came;
            self.due_ps += came * BURST_GAP_PS;
            if self.arrived == BURST {
                self.arrived = 0;
                self.due_ps += BURST_PERIOD_PS - BURST * BURST_GAP_PS;
            }
        }
        let frames = self.queued.min(BATCH_MAX as u64);
        self.queued -= frames;
        frames as usize
    }

    #[inline]
    fn write(&mut self, region: &Region, batch: &mut Batch) {
        let first = self.next;
        self.next = (first + BATCH_MAX) & (TARGETS - 1);
        let (region, targets) = (region.view(), &*self.targets);
        let len = LENGTHS[self.length];
        let template = &targets.templates[self.length];
        for (frame, (address, checksums)) in batch.iter_mut().zip(&targets.frames[first..]) {
            region.set_window(frame, HEADROOM, HEADROOM + len as u16);
            let (headers, rest) = region.bytes_mut(frame).split_at_mut(FRAME_LEN);
            headers.copy_from_slice(template);
            headers[24..26].copy_from_slice(&checksums[self.length].to_ne_bytes());
            headers[30..34].copy_from_slice(&address.to_ne_bytes());
            rest.copy_from_slice(&targets.rest[..len - FRAME_LEN]);
        }
    }
}

/// Where a frame says when it was due: behind the UDP header, where no rule looks.
const STAMP: usize = 48;

/// The transmitting half: counts how long after its due time each frame left, when they have one.
pub fn sink(switch: &Switch, clock: Clock) -> (Sink, manylane_sync::counters::CounterReader) {
    let switch = switch.0.reader();
    let mut latencies = histogram::counters();
    let reader = latencies.reader();
    let sink = move |region: &Region, frames: &[Frame]| {
        if switch.load(KIND) != 1 {
            return;
        }
        let now_ns = clock.now_ns();
        for frame in frames {
            let stamp = region.bytes(frame)[STAMP..].first_chunk().expect("the frame has 64 bytes");
            let late_ns = now_ns.saturating_sub(u64::from_ne_bytes(*stamp));
            latencies.add(histogram::bucket(late_ns), 1);
        }
    };
    (Box::new(sink), reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::frame::{Glibc, Packets};

    /// All that comes in a burst finds a descriptor or is an overrun, whenever the worker looks.
    #[test]
    fn a_burst_fills_the_ring_and_the_rest_overruns() {
        let mut device = device(Arrival::Bursts(256));
        assert_eq!(device.burst(0, 256), 1);
        let end_ps = BURST * BURST_GAP_PS;
        assert_eq!(device.burst(end_ps, 256), 64);
        let counters = device.counters();
        assert_eq!((counters.load(ARRIVED), counters.load(OVERRUNS)), (2048, 2047 - 256));
        let taken: usize = (0..4).map(|_| device.burst(end_ps, 256)).sum();
        assert_eq!(taken, 256 - 64, "and then it is empty");
        assert_eq!(device.burst(BURST_PERIOD_PS - 1, 256), 0);
        assert_eq!(device.burst(BURST_PERIOD_PS, 256), 1);
    }

    #[test]
    fn a_worker_that_comes_in_time_has_no_overruns() {
        let mut device = device(Arrival::Bursts(256));
        let taken: usize = (0..BURST).map(|at| device.burst(at * BURST_GAP_PS, 256)).sum();
        assert_eq!(taken as u64, BURST);
        assert_eq!(device.counters().load(OVERRUNS), 0);
    }

    #[test]
    fn frames_are_due_whether_the_worker_comes_or_not() {
        let mut device = device(Arrival::Every(1000));
        assert_eq!(device.due(9_999, 1000), 10);
        assert_eq!(device.due(9_999, 1000), 0);
        assert_eq!(device.due(1_000_000, 1000), BATCH_MAX);
        assert_eq!(device.due_ps, 74_000, "the others wait");
    }

    fn device(arrival: Arrival) -> Device<Packets<Glibc>> {
        let mut switch = Switch::new();
        switch.set(0, arrival);
        let targets =
            Targets { frames: Vec::new(), templates: [[0; FRAME_LEN]; 2], rest: [0; 1450] };
        let mut device = Device::new(&switch, Arc::new(targets), None);
        device.begin(0);
        device
    }
}
