//! What does it bring to hand received packets to another core, and what does it cost?
//!
//! One queue, two cores. A frame is 64 bytes, written by what stands for the device, to a destination drawn
//! inside announced prefixes; the workers are the product's, with a full table, between memory ports.
//!
//! | name              | how                                                                             |
//! |-------------------|---------------------------------------------------------------------------------|
//! | `one_core`        | one worker receives and forwards                                                |
//! | `spliced`         | the source's: one core receives, and splices lists to the other's locked queue, which forwards all |
//! | `spliced_by_flow` | `spliced` with manylane's steering: the receiver keeps a share of the flows      |
//! | `handoff`         | manylane's rings                                                                |
//! | `ideal`           | two workers, a queue for each                                                   |
//!
//! `baseline/handoff.rs` has the list. A receiver that keeps a share keeps the one with which it forwards most, found by
//! trial in the first round, which warms up; a worker that rebalances finds it by its load.
//!
//! | figure                              | what                                                          |
//! |-------------------------------------|---------------------------------------------------------------|
//! | `<name>_mpps`                       | forwarded while the receiver always has frames to receive     |
//! | `gain`, `spliced_gain`, `spliced_by_flow_gain`, `ideal_gain` | over `one_core`                      |
//! | `steering_gain`                     | `spliced_by_flow` over `spliced`: what it brings to keep a share of the flows |
//! | `rings_gain`                        | `handoff` over `spliced_by_flow`: what the rings bring besides |
//! | `of_ideal`                          | `handoff` over `ideal`                                        |
//! | `share`                             | part of the frames that `handoff` hands on                    |
//! | `even_mpps`, `even_gain`            | `handoff` as it begins: half of the buckets for each          |
//! | `transfer_ns`                       | two lines of a frame to another core and back, and nothing else (`transfer.rs`) |
//! | `receive_ns`                        | a frame, made by the device and given back                    |
//! | `cost_ns`, `cost_out_ns`, `cost_in_ns` | what a frame handed on costs more: both sides, the receiver, the other |
//! | `<name>_latency_ns_p50`, `_p99`, `_p999` | from due to transmitted, at 0.8 of the `_mpps` just measured |
//! | `goodput_at_3x`                     | forwarded at 3 times that, over it; also `one_core_...`, `spliced_...` |
//! | `lost_<place>_at_<load>`            | of a million frames offered to `handoff`: `port` (its ring of 2048), `backlog` (no place in the ring between the workers), `elephants` (flow limit), `other` |
//! | `refused`                           | packets that found no place between the workers, for each one forwarded, in the `_mpps` row |
//! | `moving_mpps`, `moving_over_still`  | `handoff` while hundreds of buckets are wanted elsewhere every 2 ms |
//! | `moves_per_s`                       | buckets that went there: an error if none did                 |
//! | `<name>_reordered`                  | late frames (RFC 4737), in all of a row's slices: an error unless 0; `order.rs` says how |
//! | `<name>_duplicated`                 | frames received twice: an error unless 0                      |
//! | `reordering_n_max`, `reordering_extent_max` | of all rows                                           |
//!
//! Figures that end in `_heavy` have 300 ns more for each frame, alike for all: the source's regime, where a frame cost
//! a kernel's price. With `_heavy` the worker that forwards has all of it, so that a design that forwards everything on
//! the other core can gain no more than receiving costs. `_heavy_30_70` and `_heavy_50_50` give the worker that receives
//! 30 and 50 % of it, as a driver with interrupts, allocations and DMA mappings has: there the source's gain of 1.43 is
//! possible. Of those two only the rates are measured. `_zipf`: a heavy-tailed mix of flows.
//! After each slice every frame is accounted for, or it is an error.
//!
//! Not measured here: more than two cores, devices (see `veth.rs`), other frames than 64 bytes.
//!
//! Needs two cores with nothing else on them.

mod contestant;
mod order;
mod sink;
mod stamp;
mod transfer;
pub mod veth;

use super::{Plan, interleave};
use crate::baseline::handoff::Links;
use crate::histogram::Snapshot;
use crate::prelude::*;
use crate::router;
use contestant::{Contestant, Counts, Ground, Measured, PLACES, PORTS, Steering};
use order::BUCKETS;
use sink::Extra;
use stamp::{Mix, Traffic, device};
use transfer::Transfer;

const FRAMES: u32 = 16_384;
const WORKERS: usize = 9;
const HEAVY_NS: f64 = 300.0;
/// What a latency is measured at, of the capacity.
const LATENCY_LOAD: f64 = 0.8;
const LOADS: [(&str, f64); 4] = [("08x", LATENCY_LOAD), ("1x", 1.0), ("15x", 1.5), ("3x", 3.0)];
const MOVES: Duration = Duration::from_millis(2);

/// A regime: the end of its figures' names, what comes, and the percent of the extra work that receiving and
/// forwarding have.
struct Scene {
    suffix: &'static str,
    mix: Mix,
    extra: [u64; 2],
}

const SCENES: [Scene; 6] = [
    Scene { suffix: "", mix: Mix::Even, extra: [0, 0] },
    Scene { suffix: "_zipf", mix: Mix::HeavyTailed, extra: [0, 0] },
    Scene { suffix: "_heavy", mix: Mix::Even, extra: [0, 100] },
    Scene { suffix: "_zipf_heavy", mix: Mix::HeavyTailed, extra: [0, 100] },
    Scene { suffix: "_heavy_30_70", mix: Mix::Even, extra: [30, 70] },
    Scene { suffix: "_heavy_50_50", mix: Mix::Even, extra: [50, 50] },
];

pub fn run(plan: &Plan, output: &Output) -> Result {
    let prefixes = &Prefixes::synthetic();
    output.note(&format!(
        "{} IPv4 prefixes, 64-byte frames, random destinations; one queue, two cores",
        prefixes.ipv4.len()
    ));
    let traffic = Arc::new(Traffic::new(prefixes));
    let switch = Switch::default();
    let ground = Ground {
        router: router::Ground::with_table(WORKERS, FRAMES, prefixes)?,
        traffic: traffic.clone(),
        switch: switch.reader(),
        links: Links::new(FRAMES),
    };
    let mut lab = Lab {
        all: [
            Contestant::apart("one_core", &ground, 1)?,
            Contestant::spliced("spliced", &ground, false)?,
            Contestant::spliced("spliced_by_flow", &ground, true)?,
            Contestant::handoff(&ground)?,
            Contestant::apart("ideal", &ground, 2)?,
        ],
        generator: Mutex::new((device(switch.reader(), traffic), ground.router.depot.pool())),
        ground: &ground,
        switch: Mutex::new(switch),
        transfer: Transfer::new(),
        steps: None,
        shares: [None; SCENES.len()],
        quick: plan.pace.quick,
    };
    interleave(plan, output, |bench| lab.round(bench), ratios)
}

impl Scene {
    /// Only the rates are measured.
    fn is_brief(&self) -> bool {
        self.extra[0] > 0
    }

    /// Of `steps`, those of receiving and of forwarding.
    fn extra(&self, steps: u64) -> Extra {
        let [received, forwarded] = self.extra.map(|percent| (steps * percent / 100) as u32);
        Extra { received, forwarded }
    }
}

/// The places of [`Lab::all`].
const ONE_CORE: usize = 0;
const SPLICED_BY_FLOW: usize = 2;
const HANDOFF: usize = 3;
const IDEAL: usize = 4;

/// Everything that is measured. `W` writes the generator's frames.
struct Lab<'a, W> {
    all: [Contestant; 5],
    /// A device and a pool without a worker around them.
    generator: Mutex<(Device<W>, Pool)>,
    ground: &'a Ground,
    switch: Mutex<Switch>,
    transfer: Transfer,
    /// Of extra work, that take [`HEAVY_NS`].
    steps: Option<u64>,
    /// By scene: what is handed on, by `spliced_by_flow` and by `handoff`.
    shares: [Option<[f64; 2]>; SCENES.len()],
    quick: bool,
}

impl<W: FnMut(&Pool, &mut [Frame], Run) + Send> Lab<'_, W> {
    fn round(&mut self, bench: &mut Bench) -> Result {
        for (number, scene) in SCENES.iter().enumerate() {
            self.scene(bench, number, scene)?;
        }
        self.transfer.measure(bench)?;
        let all = self.counts();
        let most = |what: fn(&Counts) -> u64| all.iter().map(what).max().unwrap_or(0) as f64;
        bench.push("reordering_n_max", "frames", Some(most(|counts| counts.n_reordering)));
        bench.push("reordering_extent_max", "frames", Some(most(|counts| counts.extent)));
        Ok(())
    }

    fn counts(&self) -> [Counts; 5] {
        self.all.each_ref().map(Contestant::counts)
    }

    fn scene(&mut self, bench: &mut Bench, number: usize, scene: &Scene) -> Result {
        let suffix = scene.suffix;
        self.set(Arrival::Off, scene.mix);
        if self.steps.is_none() {
            self.steps = steps(bench)?;
        }
        let extra = scene.extra(self.steps.unwrap_or(0));
        lock(&self.switch).set_work(extra.into_word());
        let before = self.counts();
        let shares = match self.shares[number] {
            Some(shares) => shares,
            None => self.find_shares(bench, scene)?,
        };
        self.shares[number] = Some(shares);
        let buckets = shares.map(|share| self.buckets(scene.mix, share));
        self.all[SPLICED_BY_FLOW].steer(&buckets[0]);
        self.all[HANDOFF].steer(&buckets[1]);

        let capacity_ns = self.capacities(bench, scene)?;
        if !scene.is_brief() {
            self.under_load(bench, scene, capacity_ns, &buckets[1])?;
        }
        for ((contestant, before), after) in self.all.iter().zip(before).zip(self.counts()) {
            let name = contestant.name;
            let reordered = after.reordered - before.reordered;
            let duplicated = after.duplicated - before.duplicated;
            bench.push(&format!("{name}_reordered{suffix}"), "frames", Some(reordered as f64));
            bench.push(&format!("{name}_duplicated{suffix}"), "frames", Some(duplicated as f64));
            if reordered + duplicated > 0 {
                let why = format!("{name}{suffix}: {reordered} reordered, {duplicated} duplicated");
                return Err(why.into());
            }
        }
        Ok(())
    }

    /// What each forwards while it always has frames to receive, in nanoseconds a frame.
    fn capacities(&self, bench: &mut Bench, scene: &Scene) -> Result<[Option<f64>; 5]> {
        let suffix = scene.suffix;
        let mut capacity_ns = [None; 5];
        for which in 0..capacity_ns.len() {
            let measured = self.slice(bench, which, Arrival::Always, scene.mix, 1)?;
            capacity_ns[which] = measured.map(|measured| measured.ns);
            let name = format!("{}_mpps{suffix}", self.all[which].name);
            bench.push(&name, "Mpps", measured.map(|measured| 1e3 / measured.ns));
            if which == HANDOFF {
                let handed = measured.map(|measured| measured.handed);
                bench.push(&format!("share{suffix}"), "part", handed);
                let refused = measured.map(|measured| measured.refused);
                bench.push(&format!("refused{suffix}"), "part", refused);
                if scene.extra == [0, 0] {
                    self.cost(bench, scene, measured.zip(capacity_ns[ONE_CORE]))?;
                }
            }
        }
        Ok(capacity_ns)
    }

    /// At parts and multiples of these rates, and with other buckets for the other core than `handed`.
    fn under_load(
        &self,
        bench: &mut Bench,
        scene: &Scene,
        capacity_ns: [Option<f64>; 5],
        handed: &[bool; BUCKETS],
    ) -> Result {
        let suffix = scene.suffix;
        for (which, capacity_ns) in capacity_ns.into_iter().enumerate() {
            for (load_name, load) in LOADS {
                let is_goodput = load == 3.0 && which != IDEAL;
                if which == HANDOFF || load == LATENCY_LOAD || is_goodput {
                    self.loaded(bench, which, scene, capacity_ns, (load_name, load))?;
                }
            }
        }
        self.all[HANDOFF].steer(&self.buckets(scene.mix, 0.5));
        let even = self.slice(bench, HANDOFF, Arrival::Always, scene.mix, 1)?;
        bench.push(&format!("even_mpps{suffix}"), "Mpps", even.map(|even| 1e3 / even.ns));
        self.all[HANDOFF].steer(handed);
        self.moving(bench, scene, handed)
    }

    fn set(&self, arrival: Arrival, mix: Mix) {
        lock(&self.switch).set(arrival, mix as usize);
    }

    /// One slice of a contestant, and all of its frames accounted for.
    fn slice(
        &self,
        bench: &mut Bench,
        which: usize,
        arrival: Arrival,
        mix: Mix,
        part: u32,
    ) -> Result<Option<Measured>> {
        Ok(self.slice_with(bench, which, (arrival, mix), part, |_| ())?.0)
    }

    /// As `slice`, and what was counted in the attempt that counts.
    fn slice_with(
        &self,
        bench: &mut Bench,
        which: usize,
        (arrival, mix): (Arrival, Mix),
        part: u32,
        meddle: impl Fn(&Mutex<Steering>) + Sync,
    ) -> Result<(Option<Measured>, [Seen; 2])> {
        let contestant = &self.all[which];
        let seen = || Seen { late: Snapshot::of(&contestant.late()), counts: contestant.counts() };
        let before = Mutex::new(None);
        let prepare = || {
            self.set(Arrival::Off, mix);
            contestant.drain();
            *lock(&before) = Some(seen());
            self.set(arrival, mix);
        };
        let measured = contestant.measure(bench, part, prepare, meddle)?;
        let after = seen(); // Before what is still on its way leaves, late.
        self.set(Arrival::Off, mix);
        contestant.check()?;
        let before = lock(&before).take().expect("each attempt is prepared");
        Ok((measured, [before, after]))
    }

    /// What a frame handed on costs more than one that is not.
    fn cost(&self, bench: &mut Bench, scene: &Scene, measured: Option<(Measured, f64)>) -> Result {
        self.set(Arrival::Always, scene.mix);
        let slice = bench.time(&format!("receive_ns{}", scene.suffix), 1, |_, lap| {
            let mut generator = lock(&self.generator);
            let (device, pool) = &mut *generator;
            let mut batch = Batch::new();
            lap.run_of(BATCH_MAX as u64, || {
                device.receive(pool, &mut batch, 0);
                pool.give_back_all(&mut batch);
            })
        })?;
        self.set(Arrival::Off, scene.mix);
        let costs = measured
            .zip(ns_of(&slice))
            .map(|((measured, one_ns), receive_ns)| costs(&measured, receive_ns, one_ns));
        let mut push = |name: &str, value| bench.ns(&format!("{name}{}", scene.suffix), value);
        push("cost_ns", costs.map(|[out, other]| out + other));
        push("cost_out_ns", costs.map(|costs| costs[0]));
        push("cost_in_ns", costs.map(|costs| costs[1]));
        Ok(())
    }

    fn loaded(
        &self,
        bench: &mut Bench,
        which: usize,
        scene: &Scene,
        capacity_ns: Option<f64>,
        (load_name, load): (&str, f64),
    ) -> Result {
        let Scene { suffix, mix, .. } = *scene;
        let name = self.all[which].name;
        // If the capacity is not known, what comes of this is not counted either.
        let gap_ps = (capacity_ns.unwrap_or(100.0) * 1000.0 / load) as u64;
        // A busy machine may have forwarded nothing in a trial: a part of that is none of a rate.
        let arrival = Arrival::Every(gap_ps.clamp(1, SECOND_PS));
        let (measured, [before, after]) =
            self.slice_with(bench, which, (arrival, mix), 1, |_| ())?;
        let measured = measured.zip(capacity_ns);
        if load == LATENCY_LOAD {
            for (end, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                let value = measured.and_then(|_| after.late.quantile_since(&before.late, part));
                bench.ns(&format!("{name}_latency_ns_{end}{suffix}"), value);
            }
        }
        if load == 3.0 {
            let prefix = if which == HANDOFF { String::new() } else { format!("{name}_") };
            let goodput = measured.map(|(measured, capacity_ns)| capacity_ns / measured.ns);
            bench.push(&format!("{prefix}goodput_at_3x{suffix}"), "x", goodput);
        }
        if which == HANDOFF {
            let (now, then) = (after.counts, before.counts);
            let offered = (now.arrived - then.arrived).max(1) as f64;
            for ((place, now), then) in PLACES.into_iter().zip(now.lost).zip(then.lost) {
                let lost = measured.map(|_| (now - then) as f64 / offered * 1e6);
                bench.push(&format!("lost_{place}_at_{load_name}{suffix}"), "ppm", lost);
            }
        }
        Ok(())
    }

    /// Half of the buckets change worker again and again.
    fn moving(&self, bench: &mut Bench, scene: &Scene, handed: &[bool; BUCKETS]) -> Result {
        // Turned a little further each time.
        let last = Mutex::new((Instant::now(), 0));
        let meddle = |steering: &Mutex<Steering>| {
            let mut last = lock(&last);
            if last.0.elapsed() >= MOVES {
                *last = (Instant::now(), last.1 + 1);
                let turned = |bucket| handed[(bucket + last.1 * 37) % BUCKETS];
                lock(steering).steer(&std::array::from_fn(turned));
            }
        };
        let (measured, [before, after]) =
            self.slice_with(bench, HANDOFF, (Arrival::Always, scene.mix), 1, meddle)?;
        let mpps = measured.map(|measured| 1e3 / measured.ns);
        bench.push(&format!("moving_mpps{}", scene.suffix), "Mpps", mpps);
        let moves = (after.counts.moves - before.counts.moves) as f64 / PORTS as f64;
        if moves == 0.0 && measured.is_some() && !self.quick {
            return Err("no bucket moved".into());
        }
        let moves = measured.map(|_| moves / bench.slice_length().as_secs_f64());
        bench.push(&format!("moves_per_s{}", scene.suffix), "1/s", moves);
        self.all[HANDOFF].steer(handed);
        Ok(())
    }

    /// The shares to hand on in a scene, by `spliced_by_flow` and by `handoff`: the best of some, then of some
    /// around that one.
    fn find_shares(&self, bench: &mut Bench, scene: &Scene) -> Result<[f64; 2]> {
        let mut shares = [0.6; 2];
        if !self.quick {
            for (which, share) in [SPLICED_BY_FLOW, HANDOFF].into_iter().zip(&mut shares) {
                for step in [0.08, 0.02] {
                    *share = self.best_share(bench, scene.mix, which, *share, step)?;
                }
            }
        }
        Ok(shares)
    }

    /// By trial.
    fn best_share(
        &self,
        bench: &mut Bench,
        mix: Mix,
        which: usize,
        around: f64,
        step: f64,
    ) -> Result<f64> {
        let shares = (-4..=4).map(|steps| (around + f64::from(steps) * step).min(0.98));
        let mut tried: Vec<(f64, Vec<f64>)> = shares.map(|share| (share, Vec::new())).collect();
        for _ in 0..5 {
            for (share, tried) in &mut tried {
                self.all[which].steer(&self.buckets(mix, *share));
                let measured = self.slice(bench, which, Arrival::Always, mix, 4)?;
                tried.extend(measured.map(|measured| measured.ns));
            }
        }
        let medians = tried.iter_mut().map(|(share, tried)| {
            tried.sort_by(f64::total_cmp);
            (*share, tried.get(tried.len() / 2).copied().unwrap_or(f64::INFINITY))
        });
        let best = medians.min_by(|one, other| one.1.total_cmp(&other.1));
        Ok(best.map_or(around, |(share, _)| share))
    }

    /// Buckets with that share of the frames, as far as such buckets exist.
    fn buckets(&self, mix: Mix, share: f64) -> [bool; BUCKETS] {
        let shares = self.ground.traffic.shares(mix);
        let mut order: [usize; BUCKETS] = std::array::from_fn(|bucket| bucket);
        order.sort_by(|&one, &other| shares[other].total_cmp(&shares[one]));
        // The largest first, so that the smallest fill the rest; and in each step to where more is missing, so
        // that both workers get of all sizes.
        let (mut missing, mut handed) = ([1.0 - share, share], [false; BUCKETS]);
        for bucket in order {
            handed[bucket] = missing[1] > missing[0];
            missing[usize::from(handed[bucket])] -= shares[bucket];
        }
        handed
    }
}

fn ratios(rounds: &mut Rounds) {
    for scene in SCENES {
        let suffix = scene.suffix;
        for [name, over, under] in [
            ["gain", "handoff", "one_core"],
            ["spliced_gain", "spliced", "one_core"],
            ["spliced_by_flow_gain", "spliced_by_flow", "one_core"],
            ["steering_gain", "spliced_by_flow", "spliced"],
            ["rings_gain", "handoff", "spliced_by_flow"],
            ["ideal_gain", "ideal", "one_core"],
            ["of_ideal", "handoff", "ideal"],
            ["even_gain", "even", "one_core"],
            ["moving_over_still", "moving", "handoff"],
        ]
        .into_iter()
        .take(if scene.is_brief() { 7 } else { 9 })
        {
            let [over, under] = [over, under].map(|name| format!("{name}_mpps{suffix}"));
            rounds.ratio(&format!("{name}{suffix}"), &over, &under);
        }
    }
}

const SECOND_PS: u64 = 1_000_000_000_000;

/// What the receiver, and the other, are busier for a frame handed on than for one that stays. One that was
/// refused has been received and looked at too.
fn costs(measured: &Measured, receive_ns: f64, one_ns: f64) -> [f64; 2] {
    let Measured { busy_ns: [receiver, other], handed, refused, .. } = *measured;
    let forward_ns = one_ns - receive_ns;
    let kept = 1.0 - handed;
    let out = receiver - receive_ns * (1.0 + refused) - kept * forward_ns;
    [out / (handed + refused), other / handed - forward_ns]
}

/// Everything counted of a contestant, at a moment.
struct Seen {
    late: Snapshot,
    counts: Counts,
}

/// How many steps of extra work take [`HEAVY_NS`].
fn steps(bench: &mut Bench) -> Result<Option<u64>> {
    const STEPS: u64 = 256;
    let slice = bench.slice(1, |_, lap| {
        let mut state = 1;
        let share = lap.run_of(16, || {
            (0..16).for_each(|place| state = sink::work(state ^ place, STEPS));
        });
        black_box(state);
        share
    })?;
    Ok(slice.map(|slice| (HEAVY_NS * STEPS as f64 / slice.ns()) as u64))
}
