//! The same, inside a forwarding worker: what the memory of packets is of the whole.
//!
//! A worker of the product forwards between two memory ports with a full table, destinations drawn
//! inside announced prefixes. With `manylane` that is all. With the others the same worker does the
//! same, and for each frame that is received, memory is taken as their scheme has it, and given back
//! when the frame has left. That memory is not touched but for its head, which is to their advantage; that
//! the frame itself still comes from the pool is not, and costs what `manylane_ns` says.
//!
//! | figure                                | what                                                      |
//! |---------------------------------------|-----------------------------------------------------------|
//! | `forward_*_ns_64`, `_1514`            | a frame, as fast as it goes                               |
//! | `forward_*_cpu_ns_64`, `_1514`        | the thread's CPU time for it, by the kernel's account     |
//! | `forward_*_latency_ns_64_p50`, ...    | from due to transmitted, at 80 % of what was just measured |
//! | `*_overruns_ring256`, `_ring1024`     | frames in a million that find no descriptor: bursts of 2048 |
//! |                                       | at 25 Gbit/s, once in a millisecond; without a name, manylane |
//! | `forward_gain_64`, `_1514`            | `before` over `manylane`, by CPU time                     |
//! | `allocator_calls_per_frame`           | by the worker's thread, over 10 million frames            |
//! | `allocator_calls_per_frame_odd`       | the same where every fourth frame is an odd one (`odd.rs`) |

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manylane::control::routing::Routing;
use manylane::stats::{PortCount, StatsReader};
use manylane::worker::{Clock, Worker};
use manylane_frame::vocabulary::PortId;
use manylane_frame::{BATCH_MAX, Batch, Depot, Pool, Region, RegionConfig};
use manylane_net::icmp::RateLimit;
use manylane_sync::counters::CounterReader;
use manylane_sync::rcu::Domain;
use nix::time::{ClockId, clock_gettime};

use super::FRAMES;
use super::device::{self, ARRIVED, Arrival, Device, LENGTHS, OVERRUNS, Switch, Targets};
use super::odd::Odd;
use super::scheme::Scheme;
use crate::baseline::calls::calls;
use crate::baseline::frame::{Glibc, Packets};
use crate::figure::Rounds;
use crate::forward::{load, pin_next_hops, routing, worker};
use crate::histogram::Snapshot;
use crate::prefixes::Prefixes;
use crate::threads::Team;

const SCHEMES: usize = 4;
const RINGS: [u64; 2] = [256, 1024];
const COUNTED: u64 = 10_000_000;
const COUNTED_QUICK: u64 = 200_000;
/// Part of the capacity at which latency is measured.
const LOAD: f64 = 0.8;

/// One worker for each scheme, all over the same tables.
pub struct Forwarding {
    lanes: Vec<Mutex<Lane>>,
    odd: Mutex<Odd>,
    counted: u64,
    _routing: Routing,
}

/// A worker, and the switch and counters of its device.
struct Lane {
    name: &'static str,
    worker: Worker,
    clock: Clock,
    switch: Switch,
    stats: StatsReader,
    device: CounterReader,
    latencies: [CounterReader; 2],
}

impl Forwarding {
    /// Loads the table and prepares the workers.
    pub fn new(quick: bool) -> io::Result<Forwarding> {
        let domain = Domain::new(SCHEMES);
        let mut routing = routing(&domain)?;
        let hops = pin_next_hops(&mut routing)?;
        let prefixes = Prefixes::synthetic();
        load(&mut routing, &prefixes, &hops)?;
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        let region = region.map_err(io::Error::other)?;
        let depot = Depot::new(region, SCHEMES).expect("the region is new");
        let targets = Arc::new(Targets::new(&prefixes));
        let lane = |name, scheme: Option<Packets<Glibc>>| {
            Lane::new(name, &domain, &routing, depot.pool(), &targets, scheme).map(Mutex::new)
        };
        let lanes = vec![
            lane("before", Some(Packets::before()))?,
            lane("hotlist128", Some(Packets::hot_list(128)))?,
            lane("hotlist1024", Some(Packets::hot_list(1024)))?,
            lane(MANYLANE, None)?,
        ];
        let odd = Mutex::new(Odd::new()?);
        let counted = if quick { COUNTED_QUICK } else { COUNTED };
        Ok(Forwarding { lanes, odd, counted, _routing: routing })
    }

    /// Measures everything once.
    pub fn round(&mut self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        for (length, bytes) in LENGTHS.iter().enumerate() {
            for lane in &self.lanes {
                capacity_and_latency(team, rounds, lane, length, &bytes.to_string())?;
            }
        }
        for ring in RINGS {
            for lane in &self.lanes {
                overruns(team, rounds, lane, ring)?;
            }
        }
        let manylane = self.lanes.last().expect("there are four");
        lock(manylane).switch.set(0, Arrival::Always);
        let counted = self.counted;
        let calls = calls_per_frame(team, manylane, counted, |lane| lane.turn())?;
        rounds.push("allocator_calls_per_frame", "calls", calls);
        let calls = calls_per_frame(team, &self.odd, counted, Odd::turn)?;
        rounds.push("allocator_calls_per_frame_odd", "calls", calls);
        lock(&self.odd).check()
    }

    /// What the rounds give together.
    pub fn ratios(rounds: &mut Rounds) {
        for bytes in LENGTHS {
            rounds.ratio(
                &format!("hotlist_forward_gain_{bytes}"),
                &format!("forward_before_cpu_ns_{bytes}"),
                &format!("forward_hotlist1024_cpu_ns_{bytes}"),
            );
            rounds.ratio(
                &format!("forward_gain_{bytes}"),
                &format!("forward_before_cpu_ns_{bytes}"),
                &format!("forward_manylane_cpu_ns_{bytes}"),
            );
        }
    }
}

const MANYLANE: &str = "manylane";

fn capacity_and_latency(
    team: &mut Team,
    rounds: &mut Rounds,
    lane: &Mutex<Lane>,
    length: usize,
    bytes: &str,
) -> io::Result<()> {
    let name = lock(lane).name;
    let cpu_ns = Mutex::new(0.0);
    lock(lane).switch.set(length, Arrival::Always);
    let before = lock(lane).counts();
    let slice = team.slice(1, |_, lap| {
        let mut lane = lock(lane);
        let start = cpu_time();
        let share = lap.run_of(BATCH_MAX as u64, || _ = lane.turn());
        let used = cpu_time().saturating_sub(start);
        *lock(&cpu_ns) = used.as_nanos() as f64 / share.operations() as f64;
        share
    })?;
    let after = lock(lane).counts();
    if after[0] == before[0] || after[0] - before[0] != after[1] - before[1] {
        return Err(io::Error::other(format!("{name}: not every frame was forwarded")));
    }
    let ns = slice.as_ref().map(|slice| slice.ns());
    let cpu_ns = slice.as_ref().map(|_| *lock(&cpu_ns));
    rounds.push(&format!("forward_{name}_ns_{bytes}"), "ns", ns);
    rounds.push(&format!("forward_{name}_cpu_ns_{bytes}"), "ns", cpu_ns);

    let mut latency = None;
    if let Some(ns) = ns {
        lock(lane).switch.set(length, Arrival::Every((ns * 1000.0 / LOAD) as u64));
        let before = Snapshot::of(&lock(lane).latencies);
        let slice = team.slice(1, |_, lap| {
            let mut lane = lock(lane);
            lap.run_of(1, || _ = lane.turn())
        })?;
        let after = Snapshot::of(&lock(lane).latencies);
        latency = slice.map(|_| (after, before));
    }
    for (part_name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let value = latency.as_ref().and_then(|(after, before)| after.quantile_since(before, part));
        rounds.push(&format!("forward_{name}_latency_ns_{bytes}_{part_name}"), "ns", value);
    }
    Ok(())
}

fn overruns(team: &mut Team, rounds: &mut Rounds, lane: &Mutex<Lane>, ring: u64) -> io::Result<()> {
    lock(lane).switch.set(0, Arrival::Bursts(ring));
    let device = lock(lane).device.clone();
    let counts = || [ARRIVED, OVERRUNS].map(|count| device.load(count));
    let before = counts();
    let slice = team.slice(1, |_, lap| {
        let mut lane = lock(lane);
        lap.run_of(1, || _ = lane.turn())
    })?;
    let after = counts();
    let [arrived, overruns] = [0, 1].map(|count| (after[count] - before[count]) as f64);
    let prefix = match lock(lane).name {
        MANYLANE => String::new(),
        name => format!("{name}_"),
    };
    let value = slice.map(|_| overruns / arrived * 1e6);
    rounds.push(&format!("{prefix}overruns_ring{ring}"), "ppm", value);
    Ok(())
}

/// Over so many frames, or a few more.
fn calls_per_frame<L: Send>(
    team: &mut Team,
    lane: &Mutex<L>,
    counted: u64,
    turn: impl Fn(&mut L) -> usize + Sync,
) -> io::Result<Option<f64>> {
    let per_frame = Mutex::new(0.0);
    let slice = team.slice(1, |_, lap| {
        let mut lane = lock(lane);
        let mut watch = lap.start();
        let mut forward = |at_least| {
            let mut frames = 0;
            while frames < at_least {
                for _ in 0..16 {
                    frames += turn(&mut lane) as u64;
                }
                watch.look();
            }
            frames
        };
        forward(counted / 16); // Warms up.
        let before = calls();
        let frames = forward(counted);
        let made = calls() - before;
        *lock(&per_frame) = made as f64 / frames as f64;
        watch.share(frames)
    })?;
    Ok(slice.map(|_| *lock(&per_frame)))
}

impl Lane {
    fn new<S: Scheme + Send + 'static>(
        name: &'static str,
        domain: &Domain,
        routing: &Routing,
        pool: Pool,
        targets: &Arc<Targets>,
        scheme: Option<S>,
    ) -> io::Result<Lane>
    where
        S::Batch: Send,
    {
        let switch = Switch::new();
        let mut device = Device::new(&switch, targets.clone(), scheme);
        let counters = device.counters();
        let source =
            move |pool: &mut Pool, batch: &mut Batch, now_ns| device.receive(pool, batch, now_ns);
        let clock = Clock::start();
        let [(first, first_late), (second, second_late)] =
            [(); 2].map(|()| device::sink(&switch, clock));
        let limit = RateLimit::new(1000, 50);
        let (worker, stats) =
            worker(domain, routing, pool, vec![Box::new(source)], [first, second], limit, clock)?;
        let latencies = [first_late, second_late];
        Ok(Lane { name, worker, clock, switch, stats, device: counters, latencies })
    }

    #[inline(always)]
    fn turn(&mut self) -> usize {
        self.worker.turn(self.clock.now_ns())
    }

    /// Frames received and transmitted so far.
    fn counts(&self) -> [u64; 2] {
        let sum = |what| (0..2).map(|port| self.stats.port(PortId(port), what)).sum();
        [PortCount::Received, PortCount::Transmitted].map(sum)
    }
}

/// What the kernel says that this thread has used.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
