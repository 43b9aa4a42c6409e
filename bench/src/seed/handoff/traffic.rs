//! What stands for the device: frames of many flows, as fast as they are taken or when they are due.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use manylane_frame::{BATCH_MAX, Batch, Pool};
use manylane_net::wire::flow::flow_hash;
use manylane_sync::counters::{CounterReader, Counters};
use manylane_sync::words::{Words, WordsMut};

use super::order::BUCKETS;
use crate::forward::{FRAME_LEN, draw_ipv4, ipv4_template};
use crate::prefixes::{Prefixes, Random};

/// How frames come.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Arrival {
    /// No more; what lies in the ring may be taken.
    Off,
    /// As fast as they are taken.
    Always,
    /// One every so many picoseconds, whether somebody takes it or not.
    Every(u64),
}

/// Which flows, in which shares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// 2^20 flows, each as often as the others.
    Even,
    /// The nth of 2^16 flows once for n times that the first one comes (Zipf): that one is a twelfth of
    /// all frames.
    HeavyTailed,
}

const KIND: usize = 0;
const GAP_PS: usize = 1;
const MIX: usize = 2;
const WORK: usize = 3;
const EPOCH: usize = 4;
const WORDS: usize = 5;

/// Tells all devices what to do.
pub struct Switch(WordsMut<u64>);

impl Switch {
    /// For devices that have not begun.
    pub fn new() -> Switch {
        Switch(WordsMut::zeroed(WORDS))
    }

    /// What devices and sinks look at.
    pub fn reader(&self) -> Reading {
        Reading(self.0.reader())
    }

    /// From now on frames of this mix come so.
    pub fn set(&mut self, arrival: Arrival, mix: Mix) {
        let (kind, gap_ps) = match arrival {
            Arrival::Off => (0, 0),
            Arrival::Always => (1, 0),
            Arrival::Every(gap_ps) => (2, gap_ps),
        };
        self.0.store(KIND, kind);
        self.0.store(GAP_PS, gap_ps);
        self.0.store(MIX, mix as u64);
        self.0.publish(EPOCH, self.0.load(EPOCH) + 1);
    }

    /// From now on each frame that leaves is given so many steps of extra work.
    pub fn set_work(&mut self, steps: u64) {
        self.0.publish(WORK, steps);
    }
}

/// The other side of a [`Switch`].
#[derive(Clone)]
pub struct Reading(Words<u64>);

impl Reading {
    /// Steps of extra work.
    #[inline(always)]
    pub fn work(&self) -> u64 {
        self.0.load(WORK)
    }
}

/// Frames to be made: destination and header checksum in memory order, and the bucket of the flow.
type Target = (u32, u16, u8);

/// What comes, for each mix, again and again.
pub struct Traffic {
    mixes: [Vec<Target>; 2],
    template: [u8; FRAME_LEN],
}

const TARGETS: usize = 1 << 20;
const HEAVY_TAILED_FLOWS: usize = 1 << 16;

impl Traffic {
    /// To destinations inside announced prefixes.
    pub fn new(prefixes: &Prefixes) -> Traffic {
        let mut random = Random(99);
        let mut target = || {
            let address = Ipv4Addr::from(draw_ipv4(prefixes, &mut random));
            let (frame, checksum) = ipv4_template(address, FRAME_LEN);
            (address.to_bits().to_be(), checksum, flow_hash(&frame[14..]) as u8)
        };
        let even: Vec<Target> = (0..TARGETS).map(|_| target()).collect();
        // By the sums of 1/n up to each flow, one is drawn in proportion to its own.
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=HEAVY_TAILED_FLOWS)
            .map(|n| {
                sum += 1.0 / n as f64;
                sum
            })
            .collect();
        let mut random = Random(7);
        let heavy_tailed = (0..TARGETS).map(|_| {
            let at = random.below(1 << 40) as f64 / (1u64 << 40) as f64 * sum;
            even[sums.partition_point(|&sum| sum <= at).min(HEAVY_TAILED_FLOWS - 1)]
        });
        let heavy_tailed = heavy_tailed.collect();
        let template = ipv4_template(Ipv4Addr::UNSPECIFIED, FRAME_LEN).0;
        Traffic { mixes: [even, heavy_tailed], template }
    }

    /// The part of a mix that each bucket has.
    pub fn shares(&self, mix: Mix) -> [f64; BUCKETS] {
        let mut shares = [0.0; BUCKETS];
        for &(_, _, bucket) in &self.mixes[mix as usize] {
            shares[usize::from(bucket)] += 1.0 / TARGETS as f64;
        }
        shares
    }
}

/// Where a frame says what it is, behind the UDP header, where no rule looks: its place among all that its
/// device made, when it was due, its bucket.
const PLACE: usize = 42;
const DUE: usize = 50;
const BUCKET: usize = 58;

/// What a frame says.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// From 1.
    pub place: u64,
    /// 0 if it was taken as soon as it came.
    pub due_ns: u64,
    /// Of its flow.
    pub bucket: u8,
}

impl Stamp {
    /// Reads it.
    #[inline(always)]
    pub fn of(frame: &[u8]) -> Stamp {
        let frame: &[u8; FRAME_LEN] = frame.first_chunk().expect("frames have 64 bytes");
        let word = |at: usize| {
            u64::from_ne_bytes(*frame[at..].first_chunk().expect("the stamp is inside"))
        };
        Stamp { place: word(PLACE), due_ns: word(DUE), bucket: frame[BUCKET] }
    }
}

/// What a device counts.
#[repr(usize)]
#[derive(Clone, Copy)]
pub enum DeviceCount {
    /// Frames that came.
    Arrived,
    /// Frames that found no descriptor: they are lost.
    Lost,
    /// Frames that were taken.
    Taken,
}

/// Descriptors of its ring: the most that many NICs have.
const RING: u64 = 2048;

/// The receiving half of a device.
pub struct Device {
    switch: Reading,
    traffic: Arc<Traffic>,
    counters: Counters,
    epoch: u64,
    arrival: Arrival,
    mix: usize,
    /// Frames made so far.
    made: u64,
    /// When the next frame is due.
    due_ps: u64,
    /// What lies in the ring: when the first was due, and how many follow at the same distance.
    queued: VecDeque<(u64, u64)>,
    free: u64,
}

impl Device {
    /// One that does as it is told.
    pub fn new(switch: Reading, traffic: Arc<Traffic>) -> Device {
        Device {
            switch,
            traffic,
            counters: Counters::new(3),
            epoch: 0,
            arrival: Arrival::Off,
            mix: 0,
            made: 0,
            due_ps: 0,
            queued: VecDeque::with_capacity(RING as usize),
            free: RING,
        }
    }

    /// See [`DeviceCount`].
    pub fn counters(&self) -> CounterReader {
        self.counters.reader()
    }

    /// The frames that have come, as many as fit.
    #[inline]
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) {
        if self.switch.0.load(EPOCH) != self.epoch {
            self.begin(now_ns * 1000);
        }
        let room = pool.may_receive(batch.room());
        let before = batch.len();
        match self.arrival {
            Arrival::Always => {
                pool.take_into(batch, room);
                self.write(pool, batch, before, 0, 0);
                self.counters.add(DeviceCount::Arrived as usize, (batch.len() - before) as u64);
            }
            Arrival::Every(gap_ps) => {
                self.arrive(now_ns * 1000, gap_ps);
                self.take_queued(pool, batch, room, gap_ps);
            }
            Arrival::Off => self.take_queued(pool, batch, room, 0),
        }
        self.counters.add(DeviceCount::Taken as usize, (batch.len() - before) as u64);
    }

    #[cold]
    fn begin(&mut self, now_ps: u64) {
        self.epoch = self.switch.0.load(EPOCH);
        self.mix = self.switch.0.load(MIX) as usize;
        self.arrival = match self.switch.0.load(KIND) {
            0 => Arrival::Off,
            1 => Arrival::Always,
            _ => Arrival::Every(self.switch.0.load(GAP_PS)),
        };
        self.due_ps = now_ps;
    }

    /// Lets what is due by now find descriptors, or not.
    #[inline]
    fn arrive(&mut self, now_ps: u64, gap_ps: u64) {
        if self.due_ps > now_ps {
            return;
        }
        let came = (now_ps - self.due_ps) / gap_ps + 1;
        let placed = came.min(self.free);
        if placed > 0 {
            self.queued.push_back((self.due_ps, placed));
            self.free -= placed;
        }
        self.due_ps += came * gap_ps;
        self.counters.add(DeviceCount::Arrived as usize, came);
        self.counters.add(DeviceCount::Lost as usize, came - placed);
    }

    #[inline]
    fn take_queued(&mut self, pool: &mut Pool, batch: &mut Batch, mut room: usize, gap_ps: u64) {
        while room > 0
            && let Some((due_ps, frames)) = self.queued.front_mut()
        {
            let before = batch.len();
            let wanted = room.min(*frames as usize);
            let taken = pool.take_into(batch, wanted);
            let first_ps = *due_ps;
            *due_ps += taken as u64 * gap_ps;
            *frames -= taken as u64;
            if *frames == 0 {
                self.queued.pop_front();
            }
            self.free += taken as u64;
            room -= wanted;
            self.write(pool, batch, before, first_ps, gap_ps);
        }
    }

    /// Writes the frames of a batch from `from` on.
    #[inline(always)]
    fn write(&mut self, pool: &Pool, batch: &mut Batch, from: usize, due_ps: u64, gap_ps: u64) {
        let (region, traffic) = (pool.region().view(), &*self.traffic);
        let targets = &traffic.mixes[self.mix];
        let mut due_ps = due_ps;
        for bytes in region.land(&mut batch.as_mut_slice()[from..], FRAME_LEN as u16) {
            let (address, checksum, bucket) = targets[self.made as usize % TARGETS];
            self.made += 1;
            let bytes = bytes.first_chunk_mut::<FRAME_LEN>();
            let bytes = bytes.expect("the window is as long");
            *bytes = traffic.template;
            bytes[24..26].copy_from_slice(&checksum.to_ne_bytes());
            bytes[30..34].copy_from_slice(&address.to_ne_bytes());
            bytes[PLACE..PLACE + 8].copy_from_slice(&self.made.to_ne_bytes());
            bytes[DUE..DUE + 8].copy_from_slice(&(due_ps / 1000).to_ne_bytes());
            bytes[BUCKET] = bucket;
            due_ps += gap_ps;
        }
    }
}

const _: () = assert!(BATCH_MAX as u64 <= RING);
