//! [`Device`]: what stands for a network card in front of workers between ports in memory.
//!
//! A [`Device`] decides when frames arrive and which of them find a descriptor; its user writes them. Frames begin
//! as [`ipv4_template`] has them, to destinations drawn inside announced prefixes ([`targets`]).

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::{BATCH_MAX, Batch, Frame, HEADROOM, Pool};
use manylane_io::port::memory::{Next, Source};
use manylane_net::wire::flow::flow_hash;
use manylane_net::wire::ipv4;
use manylane_sync::counters::{CounterReader, Counters};
use manylane_sync::words::{Words, WordsMut};

use crate::network::{CLIENT_V4, CLIENT_V6};
use crate::packet::{SENDER, emit_udp, router_mac};
use crate::prefixes::{Draw, Prefixes};
use crate::random::Random;

/// Bytes of a frame, and of the headers that are written of a longer one.
pub const FRAME_LEN: usize = 64;
/// What a frame begins with.
pub type Head = [u8; FRAME_LEN];

/// The number of destinations; each frame has the next.
pub const TARGETS: usize = 1 << 20;
/// A power of two, so that batches never wrap around in the middle.
const _: () = assert!(TARGETS.is_multiple_of(BATCH_MAX));

/// The destination of frames that all have one.
pub const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

/// What differs between IPv4 frames of one length: destination and header checksum in memory order, and the bucket of
/// the flow.
#[derive(Clone, Copy)]
pub struct Target {
    address: u32,
    checksum: u16,
    /// The last byte of the flow's hash.
    pub bucket: u8,
}

/// [`TARGETS`] destinations inside announced prefixes, for frames of `len` bytes.
pub fn targets(prefixes: &Prefixes, random: &mut Random, len: usize) -> Vec<Target> {
    let target = |_| loop {
        let address = Ipv4Addr::from_bits(prefixes.ipv4.as_slice().draw(random));
        // A real table has some prefixes in space that no unicast packet has as its destination.
        if !ipv4::is_martian_destination(address) {
            let (frame, checksum) = ipv4_template(address, len);
            let bucket = flow_hash(&frame[14..]) as u8;
            break Target { address: address.to_bits().to_be(), checksum, bucket };
        }
    };
    (0..TARGETS).map(target).collect()
}

/// The beginning of a frame of `len` bytes to `destination`, and its header checksum in memory order.
pub fn ipv4_template(destination: Ipv4Addr, len: usize) -> (Head, u16) {
    let mut frame = [0; FRAME_LEN];
    emit_udp(&mut frame, len, [router_mac(0), SENDER], [CLIENT_V4, destination.into()]);
    (frame, u16::from_ne_bytes([frame[24], frame[25]]))
}

/// A frame to `destination`, and its UDP checksum in memory order.
pub fn ipv6_template(destination: Ipv6Addr) -> (Head, u16) {
    let mut frame = [0; FRAME_LEN];
    emit_udp(&mut frame, FRAME_LEN, [router_mac(0), SENDER], [CLIENT_V6, destination.into()]);
    (frame, u16::from_ne_bytes([frame[60], frame[61]]))
}

/// Writes the beginning of a frame to this destination.
#[inline(always)]
pub fn write_ipv4(bytes: &mut [u8], template: &Head, target: &Target) {
    let bytes = head(bytes);
    *bytes = *template;
    bytes[24..26].copy_from_slice(&target.checksum.to_ne_bytes());
    bytes[30..34].copy_from_slice(&target.address.to_ne_bytes());
}

/// What the bytes of a frame begin with.
#[inline(always)]
pub fn head(bytes: &mut [u8]) -> &mut Head {
    bytes.first_chunk_mut().expect("the window is longer")
}

/// Lets each frame of a batch have a window of `len` bytes at the usual place, and writes `template` there; `change` does
/// what differs.
#[inline(always)]
pub fn write_same(
    pool: &Pool,
    batch: &mut Batch,
    len: usize,
    template: &Head,
    mut change: impl FnMut(&mut Head),
) {
    let region = pool.region().view();
    for frame in batch.iter_mut() {
        region.set_window(frame, HEADROOM, HEADROOM + len as u16);
        let bytes = head(region.bytes_mut(frame));
        *bytes = *template;
        change(bytes);
    }
}

/// When frames arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// No more; what lies in the ring may be taken.
    Off,
    /// Whenever the worker looks, as many as it takes.
    Always,
    /// One at each interval, in picoseconds, whether the worker takes it or not.
    Every(u64),
    /// In bursts, into a ring with this number of descriptors.
    Bursts(u64),
}

/// Frames of a burst: half the largest ring of a usual NIC.
const BURST: u64 = 2048;
/// 64-byte frames back to back at 25 Gbit/s: 84 bytes on the wire.
const BURST_GAP_PS: u64 = 26_880;
/// From the start of one burst to the next, enough for the slowest worker to be done: 2 million frames a second on
/// average.
const BURST_PERIOD_PS: u64 = 1_000_000_000;

const EPOCH: usize = 0;
const KIND: usize = 1;
const VALUE: usize = 2;
const MIX: usize = 3;
const WORK: usize = 4;
const WORDS: usize = 5;

/// Sets what devices do.
pub struct Switch(WordsMut<u64>);

impl Default for Switch {
    fn default() -> Switch {
        Switch(WordsMut::zeroed(WORDS))
    }
}

impl Switch {
    /// What a device reads.
    pub fn reader(&self) -> Reading {
        Reading(self.0.reader())
    }

    /// From now on, frames of this mix, whose meaning is the writer's, arrive so.
    pub fn set(&mut self, arrival: Arrival, mix: usize) {
        let (kind, value) = match arrival {
            Arrival::Off => (0, 0),
            Arrival::Always => (1, 0),
            Arrival::Every(gap_ps) => (2, gap_ps),
            Arrival::Bursts(ring) => (3, ring),
        };
        self.0.store(KIND, kind);
        self.0.store(VALUE, value);
        self.0.store(MIX, mix as u64);
        self.0.publish(EPOCH, self.0.load(EPOCH) + 1);
    }

    /// From now on, each frame that leaves is given `steps` steps of extra work.
    pub fn set_work(&mut self, steps: u64) {
        self.0.publish(WORK, steps);
    }
}

/// What devices, and what stands behind the workers, read of a [`Switch`].
#[derive(Clone)]
pub struct Reading(Words<u64>);

impl Reading {
    /// The steps of extra work for each frame that leaves.
    #[inline(always)]
    pub fn work(&self) -> u64 {
        self.0.load(WORK)
    }

    /// Whether frames say when they were due.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.0.load(KIND) == 2
    }

    /// Whether no more frames arrive.
    #[inline(always)]
    pub fn is_off(&self) -> bool {
        self.0.load(KIND) == 0
    }
}

/// Frames that the device counts: those that arrived ...
pub const ARRIVED: usize = 0;
/// ... and those of them that found no descriptor.
pub const LOST: usize = 1;

/// Descriptors of a device's ring: the most that many NICs have.
pub const RING: u64 = 2048;
const _: () = assert!(BATCH_MAX as u64 <= RING);

/// Frames that a writer writes.
pub struct Run {
    /// The mix of [`Switch::set`].
    pub mix: usize,
    /// When the first was due, and how long after it each of the others; 0 but for [`Arrival::Every`].
    pub due_ps: u64,
    /// See `due_ps`.
    pub gap_ps: u64,
}

/// The receiving half of a device. `W` writes the frames of a run into memory of the pool.
pub struct Device<W> {
    switch: Reading,
    write: W,
    counters: Counters,
    epoch: u64,
    arrival: Arrival,
    mix: usize,
    /// Descriptors, but for [`Arrival::Bursts`].
    ring: u64,
    gap_ps: u64,
    /// Frames that arrive before a pause, and how many of them have.
    burst: u64,
    arrived: u64,
    due_ps: u64,
    /// Whether it leaves the pool's reserve, as a port of the product does: batches may then be smaller than they could be.
    leaves_reserve: bool,
    /// What lies in the ring: when the first was due, and how many follow at the same distance.
    queued: VecDeque<(u64, u64)>,
    free: u64,
}

impl<W: FnMut(&Pool, &mut [Frame], Run)> Device<W> {
    /// A device with a ring of `ring` descriptors.
    pub fn new(switch: Reading, ring: u64, write: W) -> Device<W> {
        Device {
            switch,
            write,
            counters: Counters::new(2),
            epoch: 0,
            arrival: Arrival::Off,
            mix: 0,
            ring,
            gap_ps: 0,
            burst: u64::MAX,
            arrived: 0,
            due_ps: 0,
            leaves_reserve: false,
            queued: VecDeque::with_capacity(RING as usize),
            free: ring,
        }
    }

    /// This device, which then leaves the pool's reserve.
    pub fn leaving_reserve(self) -> Device<W> {
        Device { leaves_reserve: true, ..self }
    }

    /// See [`ARRIVED`] and [`LOST`].
    pub fn counters(&self) -> CounterReader {
        self.counters.reader()
    }

    /// Adds the frames that have arrived, as many as fit.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) {
        if self.switch.0.load(EPOCH) != self.epoch {
            self.begin(now_ns * 1000);
        }
        let room = batch.room();
        let room = if self.leaves_reserve { pool.may_receive(room) } else { room };
        if self.arrival == Arrival::Always {
            let before = batch.len();
            let taken = pool.take_into(batch, room);
            let run = Run { mix: self.mix, due_ps: 0, gap_ps: 0 };
            (self.write)(pool, &mut batch.as_mut_slice()[before..], run);
            self.counters.add(ARRIVED, taken as u64);
            return;
        }
        if self.arrival != Arrival::Off {
            self.arrive(now_ns * 1000);
        }
        let mix = self.mix;
        let gap_ps = if let Arrival::Every(gap_ps) = self.arrival { gap_ps } else { 0 };
        self.take_queued(room, |write, wanted, due_ps| {
            let before = batch.len();
            let taken = pool.take_into(batch, wanted);
            write(pool, &mut batch.as_mut_slice()[before..], Run { mix, due_ps, gap_ps });
            taken
        });
    }

    #[cold]
    fn begin(&mut self, now_ps: u64) {
        self.epoch = self.switch.0.load(EPOCH);
        self.mix = self.switch.0.load(MIX) as usize;
        let value = self.switch.0.load(VALUE);
        (self.arrival, self.gap_ps, self.burst) = match self.switch.0.load(KIND) {
            0 => (Arrival::Off, self.gap_ps, u64::MAX),
            1 => (Arrival::Always, 0, u64::MAX),
            2 => (Arrival::Every(value), value, u64::MAX),
            _ => (Arrival::Bursts(value), BURST_GAP_PS, BURST),
        };
        (self.due_ps, self.arrived) = (now_ps, 0);
        if self.arrival != Arrival::Off {
            self.queued.clear();
            self.free = if let Arrival::Bursts(ring) = self.arrival { ring } else { self.ring };
        }
    }

    /// Lets what is due by now find descriptors, or not.
    #[inline]
    fn arrive(&mut self, now_ps: u64) {
        while self.due_ps <= now_ps {
            let due = (now_ps - self.due_ps) / self.gap_ps + 1;
            let came = due.min(self.burst - self.arrived);
            let placed = came.min(self.free);
            if placed > 0 {
                self.queued.push_back((self.due_ps, placed));
                self.free -= placed;
            }
            self.counters.add(ARRIVED, came);
            self.counters.add(LOST, came - placed);
            self.due_ps += came * self.gap_ps;
            self.arrived += came;
            if self.arrived == self.burst {
                self.arrived = 0;
                self.due_ps += BURST_PERIOD_PS - BURST * BURST_GAP_PS;
            }
        }
    }

    /// Lets `take` have up to `room` frames, run by run: it gets a number and when the first was due, and returns the
    /// number that memory sufficed for.
    #[inline]
    fn take_queued(&mut self, mut room: usize, mut take: impl FnMut(&mut W, usize, u64) -> usize) {
        while room > 0
            && let Some((due_ps, frames)) = self.queued.front_mut()
        {
            let wanted = room.min(*frames as usize);
            let taken = take(&mut self.write, wanted, *due_ps) as u64;
            *due_ps += taken * self.gap_ps;
            *frames -= taken;
            if *frames == 0 {
                self.queued.pop_front();
            }
            self.free += taken;
            room -= wanted;
        }
    }
}

/// What a memory port receives from a device.
pub fn source<W>(mut device: Device<W>) -> Source
where
    W: FnMut(&Pool, &mut [Frame], Run) + Send + 'static,
{
    Box::new(move |pool: &mut Pool, batch: &mut Batch, now_ns| {
        device.receive(pool, batch, now_ns);
        Next::More
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames of a burst find a descriptor or are lost, whenever the worker looks.
    #[test]
    fn a_burst_fills_the_ring_and_the_rest_overruns() {
        let mut device = device(Arrival::Bursts(256));
        assert_eq!(taken(&mut device, 0), 1);
        let end_ps = BURST * BURST_GAP_PS;
        assert_eq!(taken(&mut device, end_ps), 64);
        let counters = device.counters();
        assert_eq!((counters.load(ARRIVED), counters.load(LOST)), (2048, 2047 - 256));
        let rest: usize = (0..4).map(|_| taken(&mut device, end_ps)).sum();
        assert_eq!(rest, 256 - 64, "and then it is empty");
        assert_eq!(taken(&mut device, BURST_PERIOD_PS - 1), 0);
        assert_eq!(taken(&mut device, BURST_PERIOD_PS), 1);
    }

    #[test]
    fn a_worker_that_comes_in_time_has_no_overruns() {
        let mut device = device(Arrival::Bursts(256));
        let all: usize = (0..BURST).map(|at| taken(&mut device, at * BURST_GAP_PS)).sum();
        assert_eq!(all as u64, BURST);
        assert_eq!(device.counters().load(LOST), 0);
    }

    #[test]
    fn frames_are_due_whether_the_worker_comes_or_not() {
        let mut device = device(Arrival::Every(1000));
        assert_eq!(taken(&mut device, 9_999), 10);
        assert_eq!(taken(&mut device, 9_999), 0);
        assert_eq!(taken(&mut device, 1_000_000), BATCH_MAX);
        assert_eq!(device.queued, [(74_000, 991 - BATCH_MAX as u64)], "the others wait");
    }

    fn taken<W: FnMut(&Pool, &mut [Frame], Run)>(device: &mut Device<W>, now_ps: u64) -> usize {
        let mut all = 0;
        device.arrive(now_ps);
        device.take_queued(BATCH_MAX, |_, wanted, _| {
            all += wanted;
            wanted
        });
        all
    }

    fn device(arrival: Arrival) -> Device<impl FnMut(&Pool, &mut [Frame], Run)> {
        let mut switch = Switch::default();
        switch.set(arrival, 0);
        let mut device = Device::new(switch.reader(), u64::MAX, |_: &Pool, _: &mut [Frame], _| ());
        device.begin(0);
        device
    }
}
