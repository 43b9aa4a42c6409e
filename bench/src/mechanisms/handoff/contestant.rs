//! The contestants: the product's workers, with what is between them.

use manylane_frame::vocabulary::DropReason;
use manylane_net::wire::ethernet::HEADER_LEN;
use manylane_net::wire::flow::flow_hash;
use manylane_sync::handoff::{RECEIVER, SteeringMap};
use manylane_worker::worker::HandOff;
use manylane_worker::worker::handoff::{HandOffReader, limits};

use super::order::{BUCKETS, Order};
use super::sink::{DUPLICATED, EXTENT, MOVES, N_REORDERING, REORDERED, SinkReader, sink};
use super::stamp::{Traffic, device};
use crate::baseline::handoff::{Links, List, Queue};
use crate::prelude::*;
use crate::router::{self, Bell, MAX_BACKLOG, Place, bell, mesh};
use manylane_lab::device::{ARRIVED, LOST, source};

pub const PORTS: usize = 2;
/// So that a look at the clock comes often enough also where a frame takes 300 ns.
const TURNS: usize = 2;

pub struct Ground {
    pub router: router::Ground,
    pub traffic: Arc<Traffic>,
    pub switch: Reading,
    /// What is next to each frame in a list.
    pub links: Links,
}

pub struct Contestant {
    pub name: &'static str,
    lanes: Vec<Mutex<Lane>>,
    devices: Vec<CounterReader>,
    sinks: Vec<SinkReader>,
    stats: Vec<StatsReader>,
    steering: Mutex<Steering>,
}

struct Lane {
    lane: router::Lane,
    /// Of a worker that hands frames on.
    handed: Option<HandOffReader>,
    last: Busy,
}

#[derive(Clone, Copy, Default)]
struct Busy {
    /// In turns that moved frames.
    ns: u64,
    handed: u64,
    refused: u64,
}

/// Which buckets go to the other core.
pub enum Steering {
    /// None, or all.
    Fixed,
    /// As these words say: 1 for those that do.
    Listed(WordsMut<u32>),
    Map(SteeringMap, WordsMut<u32>),
}

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

/// Where a frame may be lost.
pub const PLACES: [&str; 4] = ["port", "backlog", "elephants", "other"];

#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub arrived: u64,
    /// By [`PLACES`].
    pub lost: [u64; 4],
    pub transmitted: u64,
    pub reordered: u64,
    pub duplicated: u64,
    /// Buckets that changed worker, seen at each port.
    pub moves: u64,
    pub n_reordering: u64,
    pub extent: u64,
}

impl Contestant {
    /// `one_core`: one worker receives and forwards. `ideal`: two workers, each with a queue of its own: as far as two
    /// cores go.
    pub fn apart(name: &'static str, ground: &Ground, workers: usize) -> Result<Contestant> {
        let mut made = Contestant::new(name, Steering::Fixed);
        for _ in 0..workers {
            let source = source(made.device(ground));
            let books = [(); PORTS].map(|()| Order::books(1).remove(0));
            made.seat(ground, Some(source), books, None)?;
        }
        Ok(made)
    }

    /// One worker receives and splices all to the other's queue, or only what `by_flow` is steered there.
    pub fn spliced(name: &'static str, ground: &Ground, by_flow: bool) -> Result<Contestant> {
        let [ours, theirs] = books_of_two();
        let queue = Arc::new(Queue::new(&ground.links));
        let words = WordsMut::zeroed(BUCKETS);
        let handed = by_flow.then(|| words.reader());
        let steering = if by_flow { Steering::Listed(words) } else { Steering::Fixed };
        let mut made = Contestant::new(name, steering);
        let mut splicer = Splicer {
            device: made.device(ground),
            received: List::new(&ground.links),
            queue: queue.clone(),
            bell: bell()?,
            handed,
        };
        let source: Source = Box::new(move |pool: &mut Pool, batch: &mut Batch, now_ns| {
            splicer.receive(pool, batch, now_ns);
            Next::More
        });
        made.seat(ground, Some(source), ours, None)?;
        let mut list = List::new(&ground.links);
        let source: Source = Box::new(move |pool: &mut Pool, batch: &mut Batch, _| {
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
        });
        made.seat(ground, Some(source), theirs, None)?;
        Ok(made)
    }

    /// One worker receives and hands on to the other by manylane's rings.
    pub fn handoff(ground: &Ground) -> Result<Contestant> {
        let [ours, theirs] = books_of_two();
        let map = SteeringMap::new(PORTS * BUCKETS, RECEIVER);
        let limits = limits::words(MAX_BACKLOG, 300, 64);
        let reader = limits.reader();
        let mesh = mesh(&[bell()?, bell()?], &map, PORTS, &reader);
        let mut ends = mesh.ends.into_iter().map(|end| (end, reader.clone()));
        let mut made = Contestant::new("handoff", Steering::Map(map, limits));
        let source = source(made.device(ground));
        made.seat(ground, Some(source), ours, ends.next())?;
        made.seat(ground, None, theirs, ends.next())?;
        Ok(made)
    }

    /// Without workers yet.
    fn new(name: &'static str, steering: Steering) -> Contestant {
        let (lanes, devices, sinks, stats) = Default::default();
        Contestant { name, lanes, devices, sinks, stats, steering: Mutex::new(steering) }
    }

    fn device(
        &mut self,
        ground: &Ground,
    ) -> Device<impl FnMut(&Pool, &mut [Frame], Run) + Send + use<>> {
        let device = device(ground.switch.clone(), ground.traffic.clone());
        self.devices.push(device.counters());
        device
    }

    /// Adds a worker.
    fn seat(
        &mut self,
        Ground { router, switch, .. }: &Ground,
        source: Option<Source>,
        books: [Order; PORTS],
        handoff: Option<End>,
    ) -> Result {
        let sinks = books.map(|order| {
            let (sink, reader) = sink(order, switch.clone(), router.clock);
            self.sinks.push(reader);
            sink
        });
        let mut place = Place::new(self.lanes.len() as u16, source, sinks)?;
        let handed = handoff.map(|((handoff, handed), limits)| {
            (place.handoff, place.limits) = (Some(Box::new(handoff)), limits);
            handed
        });
        let lane = router.lane(place)?;
        self.stats.push(lane.stats.clone());
        self.lanes.push(Mutex::new(Lane { lane, handed, last: Busy::default() }));
        Ok(())
    }

    /// Sends these buckets to the other core, from the first frame after this on. Nothing is on its way.
    pub fn steer(&self, handed: &[bool; BUCKETS]) {
        lock(&self.steering).steer(handed);
        self.drain();
    }

    /// Lets everything that has come leave. An error when a packet is missing then.
    pub fn check(&self) -> Result {
        self.drain();
        let counts = self.counts();
        let lost: u64 = counts.lost.iter().sum();
        if counts.arrived != counts.transmitted + lost {
            let Counts { arrived, transmitted, .. } = counts;
            let name = self.name;
            let why = format!("{name}: {arrived} came, {transmitted} left, {lost} were lost");
            return Err(why.into());
        }
        Ok(())
    }

    /// Lets everything leave that has arrived. Arrival must be off.
    pub fn drain(&self) {
        let mut quiet = 0;
        let mut before = self.counts();
        while quiet < 4 {
            let mut moved = 0;
            for lane in &self.lanes {
                moved += lock(lane).lane.turn();
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
        bench: &mut Bench,
        part: u32,
        prepare: impl Fn(),
        meddle: impl Fn(&Mutex<Steering>) + Sync,
    ) -> Result<Option<Measured>> {
        let last = self.lanes.len() - 1;
        let slice = bench.slice_with(self.lanes.len(), prepare, |(), thread, lap| {
            lock(&self.lanes[thread]).run(&lap, part, || {
                if thread == last {
                    meddle(&self.steering);
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

    pub fn counts(&self) -> Counts {
        let device = |what| self.devices.iter().map(|device| device.load(what)).sum();
        let sink = |what| self.sinks.iter().map(move |sink| sink.counters.load(what));
        let dropped = |reason| -> u64 {
            self.stats.iter().map(|stats| stats.dropped(PortId(0), reason)).sum()
        };
        let all: u64 = DropReason::ALL.iter().map(|&reason| dropped(reason)).sum();
        let backlog_full = dropped(DropReason::BacklogFull);
        let flow_limit = dropped(DropReason::FlowLimit);
        Counts {
            arrived: device(ARRIVED),
            lost: [device(LOST), backlog_full, flow_limit, all - backlog_full - flow_limit],
            transmitted: self.stats.iter().map(transmitted).sum(),
            reordered: sink(REORDERED).sum(),
            duplicated: sink(DUPLICATED).sum(),
            moves: sink(MOVES).sum(),
            n_reordering: sink(N_REORDERING).max().unwrap_or(0),
            extent: sink(EXTENT).max().unwrap_or(0),
        }
    }
}

impl Steering {
    /// Wants these buckets to go to the other core, also while workers turn.
    pub fn steer(&mut self, handed: &[bool; BUCKETS]) {
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
            [transmitted(&lane.lane.stats), handed, refused(&lane.lane.stats)]
        };
        let before = counts(self);
        let length = lap.length() / part;
        let mut busy_ns = 0;
        let mut watch = lap.start();
        let router::Lane { worker, clock, .. } = &mut self.lane;
        let mut now_ns = clock.now_ns();
        loop {
            for _ in 0..TURNS {
                let moved = worker.turn(now_ns);
                let end_ns = clock.now_ns();
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

/// The receiving half of the source's design.
struct Splicer<W> {
    device: Device<W>,
    received: List,
    queue: Arc<Queue>,
    bell: Bell,
    /// Which buckets the other core has; none: it has all.
    handed: Option<Words<u32>>,
}

impl<W: FnMut(&Pool, &mut [Frame], Run)> Splicer<W> {
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

/// A worker's end of the hand-off, and its limits.
type End = ((HandOff, HandOffReader), Words<u32>);

/// By worker, then by port.
fn books_of_two() -> [[Order; PORTS]; 2] {
    let mut ports = [(); PORTS].map(|()| Order::books(2));
    [0; 2].map(|first| ports.each_mut().map(|books| books.remove(first)))
}
