//! The worker beside which sockets are opened: one of the product's, between memory ports.

use std::thread::JoinHandle;

use manylane_worker::worker::STOP;

use super::contestant::Taps;
use crate::prelude::*;
use crate::router::{self, Ground, Lane, Place, no_sinks};
use manylane_lab::device::RING;

/// As many as run, and one that the bench turns itself.
const WORKERS: usize = 2;
const FRAMES: u32 = 8192;
/// How often an idle worker looks whether it has work.
const IDLE_NS: u64 = 10_000_000;

/// Tables and memory for the workers, and for one that the bench turns itself.
pub fn ground() -> Result<Ground> {
    Ground::with_one_route(WORKERS, FRAMES)
}

/// A worker that delivers to the contestant's sockets, if one is given. Its packets have `len` bytes and are
/// numbered.
fn place<C: Taps>(
    id: u16,
    len: usize,
    switch: Reading,
    contestant: Option<&mut C>,
) -> Result<Place> {
    let source = source(len, switch);
    match contestant {
        None => Place::new(id, [source], no_sinks()),
        Some(contestant) => {
            let place = Place::new(id, [contestant.source(source)], no_sinks())?;
            Ok(Place { observers: contestant.taps(place.id), ..place })
        }
    }
}

/// Nanoseconds a frame of one worker. An error when a frame was not forwarded.
pub fn cost<C: Taps>(
    ground: &Ground,
    bench: &mut Bench,
    contestant: Option<&mut C>,
) -> Result<Option<f64>> {
    let mut switch = Switch::default();
    switch.set(Arrival::Always, 0);
    let place = place(0, FRAME_LEN, switch.reader(), contestant)?;
    let lane = Mutex::new(ground.lane(place)?);
    let slice = bench.slice(1, |_, lap| {
        let mut lane = lock(&lane);
        lap.run_of(BATCH_MAX as u64, || _ = lane.turn())
    })?;
    let Lane { worker, stats, .. } = lane.into_inner().expect("the slice is over");
    drop(worker.run().into_parts()); // Its phase is to stop: its frames return to the pool.
    router::check("a worker", &[&stats])?;
    Ok(ns_of(&slice))
}

/// Workers, running, each on a core.
pub struct Load {
    switch: Switch,
    phase: WordsMut<u32>,
    threads: Vec<JoinHandle<Worker>>,
    stats: Vec<StatsReader>,
}

impl Load {
    /// Begins one on each of these cores, idle, with packets of `len` bytes.
    pub fn begin<C: Taps>(
        ground: &Ground,
        cores: &[usize],
        len: usize,
        contestant: &mut C,
    ) -> Result<Load> {
        let (switch, phase) = (Switch::default(), WordsMut::zeroed(1));
        let mut load = Load { switch, phase, threads: Vec::new(), stats: Vec::new() };
        for (id, &core) in (0..).zip(cores) {
            let place = place(id, len, load.switch.reader(), Some(&mut *contestant))?;
            let place = Place { phase: load.phase.reader(), ..place };
            let Lane { worker, stats, .. } = ground.lane(place)?;
            let run = move || {
                // Without the core it runs elsewhere, and what is measured beside it takes longer.
                let _ = affinity::pin(core);
                worker.run()
            };
            let thread = thread::Builder::new().name(format!("worker-{id}"));
            load.threads.push(thread.spawn(run)?);
            load.stats.push(stats);
        }
        Ok(load)
    }

    /// From now on packets arrive so; returns when all workers receive them, or no more.
    pub fn set(&mut self, arrival: Arrival) {
        self.switch.set(arrival, 0);
        let counts = || -> Vec<u64> { self.stats.iter().map(received).collect() };
        let mut before = counts();
        loop {
            thread::sleep(Duration::from_nanos(IDLE_NS));
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a worker has panicked");
            let now = counts();
            let is_so = |(before, now): (&u64, &u64)| (now > before) == (arrival != Arrival::Off);
            if before.iter().zip(&now).all(is_so) {
                return;
            }
            before = now;
        }
    }

    /// Million frames a second, of all, while `meanwhile` runs.
    pub fn rate<T>(&self, meanwhile: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let count = || -> u64 { self.stats.iter().map(received).sum() };
        let (before, begin) = (count(), Instant::now());
        let done = meanwhile()?;
        let (frames, took) = (count() - before, begin.elapsed());
        Ok((frames as f64 / took.as_secs_f64() / 1e6, done))
    }

    pub fn end(mut self) -> Result {
        self.stop();
        router::check("the workers", &self.stats.iter().collect::<Vec<_>>())
    }

    fn stop(&mut self) {
        self.phase.publish(0, STOP);
        for thread in self.threads.drain(..) {
            // A sleeping worker wakes when it looks again. A panic is already unwinding, or starts to here.
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
fn source(len: usize, switch: Reading) -> Source {
    let template = ipv4_template(DESTINATION, len).0;
    let mut number = 0_u16;
    let mut device =
        Device::new(switch.clone(), RING, move |pool: &Pool, frames: &mut [Frame], _| {
            let region = pool.region().view();
            for frame in frames {
                region.set_window(frame, HEADROOM, HEADROOM + len as u16);
                let bytes = head(region.bytes_mut(frame));
                *bytes = template;
                bytes[34..36].copy_from_slice(&number.to_be_bytes());
                number = number.wrapping_add(1);
            }
        });
    Box::new(move |pool: &mut Pool, batch: &mut Batch, now_ns| {
        device.receive(pool, batch, now_ns);
        if batch.is_empty() && switch.is_off() { Next::After(IDLE_NS) } else { Next::More }
    })
}

fn received(stats: &StatsReader) -> u64 {
    stats.port(PortId(0), PortCount::Received)
}
