//! These designs inside a forwarding worker: what share of the whole the memory of packets is.
//!
//! A worker of the product forwards between two memory ports with a full table, destinations drawn
//! inside announced prefixes. With `manylane` that is all. With the others that worker forwards
//! too, and for each frame that it receives, the device takes memory as their scheme has it, and gives it back
//! when the frame has left. Of that memory only the head is touched, which is to their advantage; the frame itself still
//! comes from the pool, which is not, and costs what `manylane_ns` says.
//!
//! `_held`: memory is given back only after 16 turns, up to 1024 packets together, as where a driver reclaims its
//! transmit ring when it is full: here a list of 128 is too short. In these rows `manylane`, too, takes a frame more for
//! each packet, from a second pool, so that all rows differ in the scheme alone.
//!
//! | figure                                | what                                                      |
//! |---------------------------------------|-----------------------------------------------------------|
//! | `forward_*_ns_64`, `_1514`            | a frame, as fast as it goes                               |
//! | `forward_*_cpu_ns_64`, `_1514`        | the thread's CPU time for it, by the kernel's account     |
//! | `forward_*_latency_ns_64_p50`, ...    | from due to transmitted, at 80 % of what was just measured |
//! | `*_overruns_ring256`, `_ring1024`     | frames in a million that find no descriptor: bursts of 2048 |
//! |                                       | at 25 Gbit/s, once in a millisecond; without a name, manylane |
//! | `forward_*_held_ns`, `_held_cpu_ns`, `*_overruns_held_ring256` | these three with 64 bytes, `_held` |
//! | `forward_gain_64`, `_1514`, `_held`   | `before_best` over `manylane`, by CPU time; with the prefixes of `mod.rs` |
//! | `list_forward_gain_held`              | `hotlist128` over `hotlist1024`                           |
//! | `allocator_calls_per_frame`           | by the worker's thread, over 10 million frames            |
//! | `allocator_calls_per_frame_odd`       | the same where every fourth frame is an exception (`exceptions.rs`)  |

use super::exceptions::Exceptions;
use super::scheme::{Allocated, FILLED, Manylane, Scheme};
use super::{FRAMES, RATIOS, push_best};
use crate::baseline::calls::calls;
use crate::baseline::frame::{Glibc, Mimalloc, Packets, Snmalloc};
use crate::histogram::{self, Snapshot};
use crate::prelude::*;
use crate::router::{self, Ground, Place};
use manylane_lab::device::{ARRIVED, LOST, targets, write_ipv4};

/// Frames without fragments that Ethernet has: the smallest and the largest.
const LENGTHS: [usize; 2] = [64, 1514];
const SCHEMES: usize = 6;
/// After how many turns memory is given back in `_held` rows.
const HELD: u32 = 16;
const RINGS: [u64; 2] = [256, 1024];
const COUNTED: u64 = 10_000_000;
const COUNTED_QUICK: u64 = 200_000;
/// Part of the capacity at which latency is measured.
const LOAD: f64 = 0.8;
const MANYLANE: &str = "manylane";

/// One worker for each scheme, all over the same tables.
pub struct Forwarding {
    lanes: Vec<Mutex<Lane>>,
    exceptions: Mutex<Exceptions>,
    counted: u64,
    _ground: Ground,
}

/// A worker, and the switch and counters of its device.
struct Lane {
    name: &'static str,
    lane: router::Lane,
    switch: Switch,
    device: CounterReader,
    /// After how many of them memory is given back.
    turns: WordsMut<u32>,
    latencies: [CounterReader; 2],
}

impl Forwarding {
    pub fn new(quick: bool) -> Result<Forwarding> {
        let prefixes = Prefixes::synthetic();
        let ground = Ground::with_table(SCHEMES, FRAMES, &prefixes)?;
        let frames = Arc::new(Frames::new(&prefixes));
        let at = (&ground, &frames);
        let lanes = vec![
            Lane::new("before", at, Allocated::new(Packets::<Glibc>::before()))?,
            Lane::new("snmalloc", at, Allocated::new(Packets::<Snmalloc>::before()))?,
            Lane::new("mimalloc", at, Allocated::new(Packets::<Mimalloc>::before()))?,
            Lane::new("hotlist128", at, Allocated::new(Packets::<Snmalloc>::fix(128)))?,
            Lane::new("hotlist1024", at, Allocated::new(Packets::<Snmalloc>::fix(1024)))?,
            Lane::new(MANYLANE, at, Manylane::<FILLED>::new(&ground.depot))?,
        ];
        let lanes = lanes.into_iter().map(Mutex::new).collect();
        let exceptions = Mutex::new(Exceptions::new()?);
        let counted = if quick { COUNTED_QUICK } else { COUNTED };
        Ok(Forwarding { lanes, exceptions, counted, _ground: ground })
    }

    pub fn round(&mut self, bench: &mut Bench) -> Result {
        for (length, bytes) in LENGTHS.into_iter().enumerate() {
            let end = format!("_{bytes}");
            for lane in &self.lanes {
                let ns = capacity(bench, lane, length, ["", &end])?;
                latency(bench, lane, length, &end, ns)?;
            }
            push_best(bench, "forward_", &format!("_cpu_ns{end}"));
        }
        for ring in RINGS {
            for lane in &self.lanes {
                overruns(bench, lane, "", ring)?;
            }
        }
        for lane in &self.lanes {
            lock(lane).turns.publish(0, HELD);
            capacity(bench, lane, 0, ["_held", ""])?;
            overruns(bench, lane, "held_", RINGS[0])?;
            lock(lane).turns.publish(0, 1);
            lock(lane).lane.turn(); // Gives back what is held.
        }
        push_best(bench, "forward_", "_held_cpu_ns");
        let manylane = self.lanes.last().expect("it is the last of them");
        lock(manylane).switch.set(Arrival::Always, 0);
        let calls = calls_per_frame(bench, manylane, self.counted, |lane| lane.lane.turn())?;
        bench.push("allocator_calls_per_frame", "calls", calls);
        let calls = calls_per_frame(bench, &self.exceptions, self.counted, Exceptions::turn)?;
        bench.push("allocator_calls_per_frame_odd", "calls", calls);
        lock(&self.exceptions).check()
    }

    pub fn ratios(rounds: &mut Rounds) {
        let lengths = LENGTHS.map(|bytes| (format!("_{bytes}"), format!("_cpu_ns_{bytes}")));
        let held = [("_held".to_owned(), "_held_cpu_ns".to_owned())];
        for (end, rest) in lengths.into_iter().chain(held) {
            for [prefix, over, under] in RATIOS {
                let [over, under] = [over, under].map(|of| format!("forward_{of}{rest}"));
                rounds.ratio(&format!("{prefix}forward_gain{end}"), &over, &under);
            }
        }
        let [over, under] = [128, 1024].map(|len| format!("forward_hotlist{len}_held_cpu_ns"));
        rounds.ratio("list_forward_gain_held", &over, &under);
    }
}

/// As fast as it goes; the figures' names have these ends before and after `ns`.
fn capacity(
    bench: &mut Bench,
    lane: &Mutex<Lane>,
    length: usize,
    [before_ns, after_ns]: [&str; 2],
) -> Result<Option<f64>> {
    let name = lock(lane).name;
    lock(lane).switch.set(Arrival::Always, length);
    let before = lock(lane).lane.counts();
    let measured = bench.with_cpu(1, |_, lap| {
        let mut lane = lock(lane);
        lap.run_of(BATCH_MAX as u64, || _ = lane.lane.turn())
    })?;
    let after = lock(lane).lane.counts();
    if after[0] == before[0] || after[0] - before[0] != after[1] - before[1] {
        return Err(format!("{name}: not every frame was forwarded").into());
    }
    let ns = measured.map(|(ns, _)| ns);
    bench.ns(&format!("forward_{name}{before_ns}_ns{after_ns}"), ns);
    let cpu_ns = measured.map(|(_, cpu_ns)| cpu_ns);
    bench.ns(&format!("forward_{name}{before_ns}_cpu_ns{after_ns}"), cpu_ns);
    Ok(ns)
}

/// At a part of the capacity of a frame each `ns`.
fn latency(
    bench: &mut Bench,
    lane: &Mutex<Lane>,
    length: usize,
    end: &str,
    ns: Option<f64>,
) -> Result {
    let name = lock(lane).name;
    let mut latency = None;
    if let Some(ns) = ns {
        lock(lane).switch.set(Arrival::Every((ns * 1000.0 / LOAD) as u64), length);
        let before = Snapshot::of(&lock(lane).latencies);
        let slice = one_by_one(bench, lane)?;
        let after = Snapshot::of(&lock(lane).latencies);
        latency = slice.map(|_| (after, before));
    }
    for (part_name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let value = latency.as_ref().and_then(|(after, before)| after.quantile_since(before, part));
        bench.ns(&format!("forward_{name}_latency_ns{end}_{part_name}"), value);
    }
    Ok(())
}

/// A slice of turns with a look at the clock after each.
fn one_by_one(bench: &mut Bench, lane: &Mutex<Lane>) -> Result<Option<Slice>> {
    bench.slice(1, |_, lap| {
        let mut lane = lock(lane);
        lap.run_of(1, || _ = lane.lane.turn())
    })
}

fn overruns(bench: &mut Bench, lane: &Mutex<Lane>, held: &str, ring: u64) -> Result {
    lock(lane).switch.set(Arrival::Bursts(ring), 0);
    let device = lock(lane).device.clone();
    let counts = || [ARRIVED, LOST].map(|count| device.load(count));
    let before = counts();
    let slice = one_by_one(bench, lane)?;
    let after = counts();
    let [arrived, overruns] = [0, 1].map(|count| (after[count] - before[count]) as f64);
    let prefix = match lock(lane).name {
        MANYLANE => String::new(),
        name => format!("{name}_"),
    };
    let value = slice.map(|_| overruns / arrived * 1e6);
    bench.push(&format!("{prefix}overruns_{held}ring{ring}"), "ppm", value);
    Ok(())
}

/// Over `counted` frames, or a few more.
fn calls_per_frame<L: Send>(
    bench: &mut Bench,
    lane: &Mutex<L>,
    counted: u64,
    turn: impl Fn(&mut L) -> usize + Sync,
) -> Result<Option<f64>> {
    let per_frame = Mutex::new(0.0);
    let slice = bench.slice(1, |_, lap| {
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
    fn new<S: Scheme<Batch: Send> + Send + 'static>(
        name: &'static str,
        (ground, frames): (&Ground, &Arc<Frames>),
        mut scheme: S,
    ) -> Result<Lane> {
        let switch = Switch::default();
        let (frames, mut next) = (frames.clone(), 0);
        let mut device =
            Device::new(switch.reader(), u64::MAX, move |pool: &Pool, batch: &mut [Frame], run| {
                frames.write(pool.region(), batch, &mut next, run);
            });
        let counters = device.counters();
        let mut turns = WordsMut::zeroed(1);
        turns.publish(0, 1);
        let (until, is_own) = (turns.reader(), name == MANYLANE);
        let mut memory: Vec<S::Batch> = (0..HELD).map(|_| S::batch()).collect();
        let mut held = 0;
        let source = move |pool: &mut Pool, batch: &mut Batch, now_ns| {
            device.receive(pool, batch, now_ns);
            let turns = until.load(0) as usize;
            // The frames of the last turns have left: their memory is free, and new frames need some.
            if held >= turns {
                memory[..held].iter_mut().for_each(|batch| scheme.give_back_all(batch));
                held = 0;
            }
            // The product's own frame is enough, but where the others hold memory longer.
            if !(batch.is_empty() || is_own && turns == 1) {
                scheme.take_into(&mut memory[held], batch.len());
                held += 1;
            }
            Next::More
        };
        let [(first, first_late), (second, second_late)] =
            [(); 2].map(|()| sink(switch.reader(), ground.clock));
        let source: Source = Box::new(source);
        let lane = ground.lane(Place::new(0, [source], [first, second])?)?;
        let latencies = [first_late, second_late];
        Ok(Lane { name, lane, switch, device: counters, turns, latencies })
    }
}

/// What the device writes: headers to destinations inside announced prefixes, and bytes behind them.
struct Frames {
    targets: [Vec<Target>; 2],
    templates: [Head; 2],
    rest: [u8; LENGTHS[1] - FRAME_LEN],
}

impl Frames {
    fn new(prefixes: &Prefixes) -> Frames {
        Frames {
            targets: LENGTHS.map(|len| targets(prefixes, &mut Random(99), len)),
            templates: LENGTHS.map(|len| ipv4_template(Ipv4Addr::UNSPECIFIED, len).0),
            rest: [0x5a; LENGTHS[1] - FRAME_LEN],
        }
    }

    /// Writes frames of the `mix`th length, and the nanosecond when each was due.
    #[inline(always)]
    fn write(&self, region: &Region, frames: &mut [Frame], next: &mut usize, run: Run) {
        let (region, len, template) = (region.view(), LENGTHS[run.mix], &self.templates[run.mix]);
        let mut due_ps = run.due_ps;
        for frame in frames {
            let target = &self.targets[run.mix][*next % TARGETS];
            *next += 1;
            region.set_window(frame, HEADROOM, HEADROOM + len as u16);
            let (headers, rest) = region.bytes_mut(frame).split_at_mut(FRAME_LEN);
            write_ipv4(headers, template, target);
            rest.copy_from_slice(&self.rest[..len - FRAME_LEN]);
            if run.gap_ps > 0 {
                headers[STAMP..STAMP + 8].copy_from_slice(&(due_ps / 1000).to_ne_bytes());
                due_ps += run.gap_ps;
            }
        }
    }
}

/// Where a frame says when it was due: behind the UDP header, where no rule looks.
const STAMP: usize = 48;

/// The transmitting half: counts how long after its due time each frame left, when they have one.
fn sink(switch: Reading, clock: Clock) -> (Sink, CounterReader) {
    let mut latencies = histogram::counters();
    let reader = latencies.reader();
    let sink = move |region: &Region, frames: &[Frame]| {
        if !switch.is_timed() {
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
