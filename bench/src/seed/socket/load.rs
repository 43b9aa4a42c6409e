//! The workers beside which sockets are opened: two of the product's, each on a core of its own, between memory
//! ports.

use std::io;
use std::net::Ipv4Addr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use manylane::control::routing::Routing;
use manylane::stats::{PortCount, StatsReader};
use manylane::worker::handoff::limits;
use manylane::worker::{Clock, STOP, Worker};
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{BATCH_MAX, Batch, Depot, HEADROOM, Pool, Region, RegionConfig};
use manylane_io::affinity;
use manylane_io::port::memory::{Next, Sink, Source};
use manylane_net::fib::Ipv4Prefix;
use manylane_net::icmp::RateLimit;
use manylane_sync::rcu::Domain;
use manylane_sync::words::{Words, WordsMut};

use crate::forward::{FRAME_LEN, Place, ipv4_template, pin_next_hops, routing, stopped, worker_at};
use crate::threads::Team;

/// As many as run, and one that the bench turns itself.
const WORKERS: usize = 3;
const FRAMES: u32 = 8192;
const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// How often an idle worker looks whether there is anything.
const IDLE_NS: u64 = 10_000_000;

/// What workers stand on.
pub struct Bed {
    /// Whose readers they are.
    pub domain: Domain,
    routing: Routing,
    depot: Depot,
    clock: Clock,
}

/// How packets come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// None: workers sleep.
    Idle,
    /// As fast as they are taken.
    Always,
    /// One every so many picoseconds, to each worker.
    Every(u64),
}

const IDLE: u64 = 0;
const ALWAYS: u64 = 1;

impl Arrival {
    fn word(self) -> u64 {
        match self {
            Arrival::Idle => IDLE,
            Arrival::Always => ALWAYS,
            Arrival::Every(gap_ps) => gap_ps.max(ALWAYS + 1),
        }
    }
}

impl Bed {
    /// Tables with one route.
    pub fn new() -> io::Result<Bed> {
        let domain = Domain::new(WORKERS);
        let mut routing = routing(&domain)?;
        let (hops, _) = pin_next_hops(&mut routing)?;
        let everywhere = Ipv4Prefix::containing(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length");
        routing.ipv4_mut().load([(everywhere, hops[0])]).map_err(io::Error::other)?;
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        let depot = Depot::new(region.map_err(io::Error::other)?, WORKERS).expect("it is new");
        Ok(Bed { domain, routing, depot, clock: Clock::start() })
    }

    /// A worker's place, its packets numbered.
    fn place(&self, id: u16, len: usize, arrival: Words<u64>, phase: Words<u32>) -> Place {
        let sink = || -> Sink { Box::new(|_, _| ()) };
        Place {
            id: WorkerId(id),
            sources: vec![source(len, arrival)],
            sinks: [sink(), sink()],
            errors: RateLimit::new(1000, 50),
            handoff: None,
            limits: limits::words(1000, 300, 64).reader(),
            phase,
            taps: None,
        }
    }

    /// Nanoseconds a frame of one worker, made as `tap` has it. An error when a frame was not forwarded.
    pub fn cost(
        &self,
        team: &mut Team,
        mut tap: impl FnMut(Place) -> Place,
    ) -> io::Result<Option<f64>> {
        let mut arrival = WordsMut::zeroed(1);
        arrival.publish(0, Arrival::Always.word());
        let place = tap(self.place(0, FRAME_LEN, arrival.reader(), stopped()));
        let (worker, stats) =
            worker_at(&self.domain, &self.routing, self.depot.pool(), place, self.clock)?;
        let worker = std::sync::Mutex::new(worker);
        let slice = team.slice(1, |_, lap| {
            let mut worker = worker.lock().expect("one thread has it");
            lap.run_of(BATCH_MAX as u64, || {
                worker.turn(self.clock.now_ns());
            })
        })?;
        end(worker.into_inner().expect("the slice is over"));
        check(&[stats])?;
        Ok(slice.map(|slice| slice.ns()))
    }
}

/// Two workers, running.
pub struct Load {
    arrival: WordsMut<u64>,
    phase: WordsMut<u32>,
    threads: Vec<JoinHandle<Worker>>,
    stats: Vec<StatsReader>,
}

impl Load {
    /// Begins one on each of these cores, idle, with packets of `len` bytes. `tap` makes each look at sockets.
    pub fn begin(
        bed: &Bed,
        cores: &[usize],
        len: usize,
        mut tap: impl FnMut(Place) -> Place,
    ) -> io::Result<Load> {
        let (arrival, phase) = (WordsMut::zeroed(1), WordsMut::zeroed(1));
        let mut load = Load { arrival, phase, threads: Vec::new(), stats: Vec::new() };
        for (id, &core) in (0..).zip(cores) {
            let place = tap(bed.place(id, len, load.arrival.reader(), load.phase.reader()));
            let (worker, stats) =
                worker_at(&bed.domain, &bed.routing, bed.depot.pool(), place, bed.clock)?;
            let run = move || {
                // Without the core it runs elsewhere, and what is measured beside it has a worse time.
                let _ = affinity::pin(core);
                worker.run()
            };
            let thread = thread::Builder::new().name(format!("worker-{id}"));
            load.threads.push(thread.spawn(run)?);
            load.stats.push(stats);
        }
        Ok(load)
    }

    /// From now on packets come so; returns when both workers know.
    pub fn set(&mut self, arrival: Arrival) {
        self.arrival.publish(0, arrival.word());
        let counts = || -> Vec<u64> { self.stats.iter().map(received).collect() };
        // Each worker's batches come, or have ended; levels of counters tell.
        let mut before = counts();
        loop {
            thread::sleep(Duration::from_nanos(IDLE_NS));
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a worker has panicked");
            let now = counts();
            let is_so = |(before, now): (&u64, &u64)| (now > before) == (arrival != Arrival::Idle);
            if before.iter().zip(&now).all(is_so) {
                return;
            }
            before = now;
        }
    }

    /// Million frames a second, of both, while `meanwhile` runs.
    pub fn rate<T>(&self, meanwhile: impl FnOnce() -> io::Result<T>) -> io::Result<(f64, T)> {
        let count = || -> u64 { self.stats.iter().map(received).sum() };
        let (before, begin) = (count(), Instant::now());
        let done = meanwhile()?;
        let (frames, took) = (count() - before, begin.elapsed());
        Ok((frames as f64 / took.as_secs_f64() / 1e6, done))
    }

    /// Ends them. An error when a frame was not forwarded.
    pub fn end(mut self) -> io::Result<()> {
        self.stop();
        check(&self.stats)
    }

    fn stop(&mut self) {
        self.phase.publish(0, STOP);
        for thread in self.threads.drain(..) {
            // Who sleeps wakes when he looks again. A panic has been seen, or is to be.
            match thread.join() {
                Err(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
                ended => drop(ended),
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Numbered packets to one destination. Of a longer one only the headers are written.
fn source(len: usize, arrival: Words<u64>) -> Source {
    let template = ipv4_template(DESTINATION, len).0;
    let (mut number, mut due_ps) = (0_u16, 0);
    Box::new(move |pool: &mut Pool, batch: &mut Batch, now_ns| {
        let count = match arrival.load(0) {
            IDLE => return Next::After(IDLE_NS),
            ALWAYS => BATCH_MAX,
            gap_ps => {
                let now_ps = now_ns * 1000;
                // Who is late by more than a ring of a device has lost the rest.
                due_ps = due_ps.max(now_ps.saturating_sub(gap_ps * RING));
                let due = now_ps.saturating_sub(due_ps) / gap_ps;
                let count = due.min(BATCH_MAX as u64);
                due_ps += count * gap_ps;
                count as usize
            }
        };
        pool.take_into(batch, count);
        let region = pool.region().view();
        for frame in batch.iter_mut() {
            region.set_window(frame, HEADROOM, HEADROOM + len as u16);
            let bytes = region.bytes_mut(frame).first_chunk_mut::<FRAME_LEN>();
            let bytes = bytes.expect("the window was just set");
            *bytes = template;
            bytes[34..36].copy_from_slice(&number.to_be_bytes());
            number = number.wrapping_add(1);
        }
        Next::More
    })
}

const RING: u64 = 2048;

fn received(stats: &StatsReader) -> u64 {
    stats.port(PortId(0), PortCount::Received)
}

fn end(worker: Worker) {
    drop(worker.run().into_parts()); // Its phase is to stop: what it has goes home.
}

fn check(stats: &[StatsReader]) -> io::Result<()> {
    let sum = |what| -> u64 {
        let ports = [PortId(0), PortId(1)];
        stats.iter().flat_map(|stats| ports.map(|port| stats.port(port, what))).sum()
    };
    match (sum(PortCount::Received), sum(PortCount::Transmitted)) {
        (received, transmitted) if received == transmitted => Ok(()),
        (received, transmitted) => {
            let why = format!("of {received} frames {transmitted} were forwarded");
            Err(io::Error::other(why))
        }
    }
}
