//! Who forwards: the product's workers, with what is between them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylane::control::routing::Routing;
use manylane::stats::{PortCount, StatsReader};
use manylane::worker::handoff::{HandOffReader, Mesh, limits};
use manylane::worker::{Clock, HandOff, Worker};
use manylane_frame::vocabulary::{DropReason, PortId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Depot, Pool};
use manylane_io::eventfd::EventFd;
use manylane_io::port::memory::{Next, Source};
use manylane_net::icmp::RateLimit;
use manylane_net::wire::ethernet::HEADER_LEN;
use manylane_net::wire::flow::flow_hash;
use manylane_sync::counters::CounterReader;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::handoff::{RECEIVER, SteeringMap};
use manylane_sync::rcu::Domain;
use manylane_sync::words::{Words, WordsMut};

use super::order::{BUCKETS, Order};
use super::sink::{SinkCount, SinkReader, sink};
use super::traffic::{Device, DeviceCount, Reading, Traffic};
use crate::baseline::handoff::{Links, List, Queue};
use crate::forward::{FRAME_LEN, Place, stopped, worker_at};
use crate::threads::{Lap, Share, Team};

/// Frames that wait between two cores at most: the kernel's `netdev_max_backlog`.
pub const MAX_BACKLOG: u32 = 1000;
/// By which frames leave.
pub const PORTS: usize = 2;
/// So that a look at the clock comes often enough also where a frame takes 300 ns.
const TURNS: usize = 2;

/// What all stand on.
pub struct Ground<'a> {
    /// Grace periods.
    pub domain: &'a Domain,
    /// The tables.
    pub routing: &'a Routing,
    /// Frames.
    pub depot: &'a Depot,
    /// What comes.
    pub traffic: &'a Arc<Traffic>,
    /// How it comes.
    pub switch: Reading,
    /// What is next to each frame in a list.
    pub links: Links,
    /// Everybody's.
    pub clock: Clock,
}

/// One or two workers that do it in one way.
pub struct Contestant {
    /// What figures call it.
    pub name: &'static str,
    lanes: Vec<Mutex<Lane>>,
    devices: Vec<CounterReader>,
    sinks: Vec<SinkReader>,
    stats: Vec<StatsReader>,
    steering: Mutex<Steering>,
}

struct Lane {
    worker: Worker,
    clock: Clock,
    stats: StatsReader,
    /// Of who hands frames on.
    handed: Option<HandOffReader>,
    last: Busy,
}

/// What a worker did in a slice.
#[derive(Clone, Copy, Default)]
struct Busy {
    /// In turns that moved frames.
    ns: u64,
    handed: u64,
    refused: u64,
}

/// Which buckets go to the other core.
enum Steering {
    /// None, or all.
    Fixed,
    /// As these words say: 1 for those that do.
    Listed(WordsMut<u32>),
    Map(SteeringMap, WordsMut<u32>),
}

/// What was measured of a slice.
#[derive(Clone, Copy)]
pub struct Measured {
    /// Frames forwarded for each nanosecond of the slice, in both directions of time: ns a frame.
    pub ns: f64,
    /// Of that, what each worker was busy.
    pub busy_ns: [f64; 2],
    /// For each frame forwarded, those handed on.
    pub handed: f64,
    /// And those that found no place.
    pub refused: f64,
}

/// Everything counted, at a moment.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub arrived: u64,
    pub lost_port: u64,
    pub backlog_full: u64,
    pub flow_limit: u64,
    pub lost_other: u64,
    pub transmitted: u64,
    pub reordered: u64,
    pub duplicated: u64,
    /// Buckets that changed worker, seen at each port.
    pub moves: u64,
    pub n_reordering: u64,
    pub extent: u64,
}

impl Contestant {
    /// One worker receives and forwards.
    pub fn one_core(ground: &Ground<'_>) -> io::Result<Contestant> {
        Contestant::apart("one_core", ground, 1)
    }

    /// Two workers, each with a queue of its own: as far as two cores go.
    pub fn ideal(ground: &Ground<'_>) -> io::Result<Contestant> {
        Contestant::apart("ideal", ground, 2)
    }

    fn apart(name: &'static str, ground: &Ground<'_>, workers: usize) -> io::Result<Contestant> {
        let mut seats = Seats::new(ground);
        for _ in 0..workers {
            let mut device = seats.device();
            let source = move |pool: &mut Pool, batch: &mut Batch, now_ns| {
                device.receive(pool, batch, now_ns);
                Next::More
            };
            let books = [(); PORTS].map(|()| Order::books(1).remove(0));
            seats.seat(Some(Box::new(source)), books, None, None)?;
        }
        Ok(seats.contestant(name, Steering::Fixed))
    }

    /// One receives and splices all to the other's queue, or only what `by_flow` is steered there.
    pub fn spliced(
        name: &'static str,
        ground: &Ground<'_>,
        by_flow: bool,
    ) -> io::Result<Contestant> {
        let mut seats = Seats::new(ground);
        let [ours, theirs] = books_of_two();
        let queue = Arc::new(Queue::new(&ground.links));
        let handed = WordsMut::zeroed(BUCKETS);
        let mut splicer = Splicer {
            device: seats.device(),
            received: List::new(&ground.links),
            queue: queue.clone(),
            bell: Doorbell::new(EventFd::open()?),
            handed: by_flow.then(|| handed.reader()),
        };
        let source = move |pool: &mut Pool, batch: &mut Batch, now_ns| {
            splicer.receive(pool, batch, now_ns);
            Next::More
        };
        seats.seat(Some(Box::new(source)), ours, None, None)?;
        let mut list = List::new(&ground.links);
        let source = move |pool: &mut Pool, batch: &mut Batch, _| {
            let region = pool.region().view();
            if list.len() == 0 && queue.len() > 0 {
                queue.take(&mut list);
            }
            while !batch.is_full()
                && let Some(frame) = list.pop()
            {
                region.prefetch_landed(&frame, FRAME_LEN as u16);
                batch.push(frame).expect("it is not full");
            }
            Next::More
        };
        seats.seat(Some(Box::new(source)), theirs, None, None)?;
        let steering = if by_flow { Steering::Listed(handed) } else { Steering::Fixed };
        Ok(seats.contestant(name, steering))
    }

    /// One receives and hands on to the other by manylane's rings.
    pub fn handoff(ground: &Ground<'_>) -> io::Result<Contestant> {
        let mut seats = Seats::new(ground);
        let [ours, theirs] = books_of_two();
        let map = SteeringMap::new(PORTS * BUCKETS, RECEIVER);
        let limits = limits::words(MAX_BACKLOG, 300, 64);
        let bell = || EventFd::open().map(|fd| Arc::new(Doorbell::new(fd)));
        let bells = [bell()?, bell()?];
        let capacity = MAX_BACKLOG as usize;
        let reader = limits.reader();
        let mesh = Mesh::lay(&[true, false], capacity, &bells, &map.reader(), PORTS, &reader);
        let mut ends = mesh.ends.into_iter();
        let mut end = || ends.next().expect("one for each worker");
        let mut device = seats.device();
        let source = move |pool: &mut Pool, batch: &mut Batch, now_ns| {
            device.receive(pool, batch, now_ns);
            Next::More
        };
        let limited = Some(limits.reader());
        let (handoff, handed) = end();
        seats.seat(Some(Box::new(source)), ours, Some((handoff, handed)), limited.clone())?;
        let (handoff, handed) = end();
        seats.seat(None, theirs, Some((handoff, handed)), limited)?;
        Ok(seats.contestant("handoff", Steering::Map(map, limits)))
    }

    /// Sends these buckets to the other core, from the first frame after this on. Nothing is on its way.
    pub fn steer(&self, handed: &[bool; BUCKETS]) {
        lock(&self.steering).steer(handed);
        self.settle();
    }

    /// Lets everything that has come leave. An error when a packet is missing then.
    pub fn check(&self) -> io::Result<()> {
        self.settle();
        let counts = self.counts();
        let lost = counts.lost_port + counts.backlog_full + counts.flow_limit + counts.lost_other;
        if counts.arrived != counts.transmitted + lost {
            let Counts { arrived, transmitted, .. } = counts;
            let name = self.name;
            let why = format!("{name}: {arrived} came, {transmitted} left, {lost} were lost");
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Lets everything leave that has come. What arrives must be off.
    pub fn settle(&self) {
        let mut quiet = 0;
        let mut before = self.counts();
        while quiet < 4 {
            let mut moved = 0;
            for lane in &self.lanes {
                let mut lane = lock(lane);
                let now_ns = lane.clock.now_ns();
                moved += lane.worker.turn(now_ns);
            }
            let now = self.counts();
            let still = moved == 0
                && (now.arrived, now.transmitted) == (before.arrived, before.transmitted);
            quiet = if still { quiet + 1 } else { 0 };
            before = now;
        }
    }

    /// Lets the workers turn for a slice, each attempt after `prepare`; `meddle` is called now and then by the last
    /// of them.
    pub fn measure(
        &self,
        team: &mut Team,
        part: u32,
        prepare: impl Fn(),
        meddle: impl Fn(&mut Wheel<'_>) + Sync,
    ) -> io::Result<Option<Measured>> {
        let last = self.lanes.len() - 1;
        let slice = team.slice_with(self.lanes.len(), prepare, |(), thread, lap| {
            lock(&self.lanes[thread]).run(&lap, part, || {
                if thread == last {
                    meddle(&mut Wheel(&self.steering));
                }
            })
        })?;
        let Some(slice) = slice else { return Ok(None) };
        let frames = slice.operations() as f64;
        let busy = |lane: &Mutex<Lane>| lock(lane).last;
        let mut busy_ns = [0.0; 2];
        for (busy_ns, lane) in busy_ns.iter_mut().zip(&self.lanes) {
            *busy_ns = busy(lane).ns as f64 / frames;
        }
        let Busy { handed, refused, .. } = busy(&self.lanes[0]);
        let ns = slice.ns() / self.lanes.len() as f64;
        let [handed, refused] = [handed, refused].map(|those| those as f64 / frames);
        Ok(Some(Measured { ns, busy_ns, handed, refused }))
    }

    /// The sinks' counts of lateness.
    pub fn late(&self) -> Vec<CounterReader> {
        self.sinks.iter().map(|sink| sink.late.clone()).collect()
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        let device = |what| self.devices.iter().map(|device| device.load(what as usize)).sum();
        let sink = |what| self.sinks.iter().map(move |sink| sink.counters.load(what as usize));
        let dropped = |reason| -> u64 {
            self.stats.iter().map(|stats| stats.dropped(PortId(0), reason)).sum()
        };
        let all: u64 = DropReason::ALL.iter().map(|&reason| dropped(reason)).sum();
        let backlog_full = dropped(DropReason::BacklogFull);
        let flow_limit = dropped(DropReason::FlowLimit);
        Counts {
            arrived: device(DeviceCount::Arrived),
            lost_port: device(DeviceCount::Lost),
            backlog_full,
            flow_limit,
            lost_other: all - backlog_full - flow_limit,
            transmitted: self.stats.iter().map(transmitted).sum(),
            reordered: sink(SinkCount::Reordered).sum(),
            duplicated: sink(SinkCount::Duplicated).sum(),
            moves: sink(SinkCount::Moves).sum(),
            n_reordering: sink(SinkCount::NReordering).max().unwrap_or(0),
            extent: sink(SinkCount::Extent).max().unwrap_or(0),
        }
    }
}

/// The steering while workers turn.
pub struct Wheel<'a>(&'a Mutex<Steering>);

impl Wheel<'_> {
    /// Wants these buckets to go to the other core.
    pub fn steer(&mut self, handed: &[bool; BUCKETS]) {
        lock(self.0).steer(handed);
    }
}

impl Steering {
    fn steer(&mut self, handed: &[bool; BUCKETS]) {
        match self {
            Steering::Fixed => {}
            Steering::Listed(words) => {
                for (bucket, &handed) in handed.iter().enumerate() {
                    words.publish(bucket, handed.into());
                }
            }
            Steering::Map(map, limits) => {
                for (bucket, &handed) in handed.iter().enumerate() {
                    map.want(bucket, handed.into());
                }
                limits.publish(limits::GENERATION, limits.load(limits::GENERATION) + 1);
            }
        }
    }
}

impl Lane {
    #[inline(always)]
    fn run(&mut self, lap: &Lap<'_>, part: u32, mut meddle: impl FnMut()) -> Share {
        let counts = |lane: &Lane| {
            let handed = lane.handed.as_ref().map_or(0, |handed| handed.handed_to(1));
            [transmitted(&lane.stats), handed, refused(&lane.stats)]
        };
        let before = counts(self);
        let length = lap.length() / part;
        let mut busy_ns = 0;
        let mut watch = lap.start();
        let mut now_ns = self.clock.now_ns();
        loop {
            for _ in 0..TURNS {
                let moved = self.worker.turn(now_ns);
                let end_ns = self.clock.now_ns();
                busy_ns += if moved > 0 { end_ns - now_ns } else { 0 };
                now_ns = end_ns;
            }
            meddle();
            if watch.look() >= length {
                break;
            }
        }
        let after = counts(self);
        let [transmitted, handed, refused] = std::array::from_fn(|at| after[at] - before[at]);
        self.last = Busy { ns: busy_ns, handed, refused };
        watch.share(transmitted)
    }
}

fn refused(stats: &StatsReader) -> u64 {
    let reasons = [DropReason::BacklogFull, DropReason::FlowLimit];
    reasons.map(|reason| stats.dropped(PortId(0), reason)).iter().sum()
}

fn transmitted(stats: &StatsReader) -> u64 {
    stats.port(PortId(0), PortCount::Transmitted)
}

/// The receiving half of the source's way.
struct Splicer {
    device: Device,
    received: List,
    queue: Arc<Queue>,
    bell: Doorbell<EventFd>,
    /// Which buckets the other core has; none: it has all.
    handed: Option<Words<u32>>,
}

impl Splicer {
    #[inline]
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) {
        if self.queue.len() + BATCH_MAX > MAX_BACKLOG as usize {
            return; // Better than the source, which would drop the list.
        }
        let mut received = Batch::new();
        self.device.receive(pool, &mut received, now_ns);
        match &self.handed {
            None => received.drain().for_each(|frame| self.received.push(frame)),
            Some(handed) => {
                let region = pool.region().view();
                for frame in received.drain() {
                    let hash = flow_hash(&region.bytes(&frame)[HEADER_LEN..]);
                    if handed.load(hash as usize % BUCKETS) != 0 {
                        self.received.push(frame);
                    } else {
                        batch.push(frame).expect("as many as were received fit in");
                    }
                }
            }
        }
        if self.received.len() > 0 {
            self.queue.put(&mut self.received);
            self.bell.ring();
        }
    }
}

/// A contestant while it is put together.
struct Seats<'a> {
    ground: &'a Ground<'a>,
    lanes: Vec<Mutex<Lane>>,
    devices: Vec<CounterReader>,
    sinks: Vec<SinkReader>,
    stats: Vec<StatsReader>,
}

impl<'a> Seats<'a> {
    fn new(ground: &'a Ground<'a>) -> Seats<'a> {
        let (lanes, devices, sinks, stats) = Default::default();
        Seats { ground, lanes, devices, sinks, stats }
    }

    fn device(&mut self) -> Device {
        let device = Device::new(self.ground.switch.clone(), self.ground.traffic.clone());
        self.devices.push(device.counters());
        device
    }

    fn seat(
        &mut self,
        source: Option<Source>,
        books: [Order; PORTS],
        handoff: Option<(HandOff, HandOffReader)>,
        limited: Option<Words<u32>>,
    ) -> io::Result<()> {
        let Ground { domain, routing, depot, clock, .. } = *self.ground;
        let sinks = books.map(|order| {
            let (sink, reader) = sink(order, self.ground.switch.clone(), clock);
            self.sinks.push(reader);
            sink
        });
        let (handoff, handed) = handoff.unzip();
        let place = Place {
            id: WorkerId(self.lanes.len() as u16),
            sources: source.into_iter().collect(),
            sinks,
            errors: RateLimit::new(1000, 50),
            handoff: handoff.map(Box::new),
            limits: limited.unwrap_or_else(|| limits::words(MAX_BACKLOG, 300, 64).reader()),
            phase: stopped(),
            taps: None,
        };
        let (worker, stats) = worker_at(domain, routing, depot.pool(), place, clock)?;
        self.stats.push(stats.clone());
        self.lanes.push(Mutex::new(Lane { worker, clock, stats, handed, last: Busy::default() }));
        Ok(())
    }

    fn contestant(self, name: &'static str, steering: Steering) -> Contestant {
        let Seats { lanes, devices, sinks, stats, .. } = self;
        let steering = Mutex::new(steering);
        Contestant { name, lanes, devices, sinks, stats, steering }
    }
}

/// By worker, then by port.
fn books_of_two() -> [[Order; PORTS]; 2] {
    let mut ports = [(); PORTS].map(|()| Order::books(2));
    [0; 2].map(|first| ports.each_mut().map(|books| books.remove(first)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
