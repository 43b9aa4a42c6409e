//! What does it bring to hand received packets to another core, and what does it cost?
//!
//! One queue, two cores. A frame is 64 bytes, written by what stands for the device, to a destination drawn
//! inside announced prefixes; the workers are the product's, with a full table, between memory ports.
//!
//! | name              | how                                                                             |
//! |-------------------|---------------------------------------------------------------------------------|
//! | `one_core`        | one worker receives and forwards                                                |
//! | `spliced`         | the source's: one core receives, and splices lists to the other's locked queue, which forwards all |
//! | `spliced_by_flow` | the same with manylane's steering: the receiver keeps a share of the flows      |
//! | `handoff`         | manylane's rings                                                                |
//! | `ideal`           | two workers, a queue for each                                                   |
//!
//! `baseline/handoff.rs` has the list. Who keeps a share keeps the one with which he forwards most, found by
//! trial in the first round, which warms up; a worker that rebalances finds it by its load.
//!
//! | figure                              | what                                                          |
//! |-------------------------------------|---------------------------------------------------------------|
//! | `<name>_mpps`                       | forwarded when there is always something to receive           |
//! | `gain`, `spliced_gain`, `spliced_by_flow_gain`, `ideal_gain` | over `one_core`                      |
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
//! | `<name>_reordered`                  | frames that came late (RFC 4737), in all of a row's slices: an error unless 0; `order.rs` says how |
//! | `<name>_duplicated`                 | frames that came twice: an error unless 0                     |
//! | `reordering_n_max`, `reordering_extent_max` | of all rows                                           |
//!
//! Figures that end in `_heavy` have 300 ns more for each frame, by whoever forwards it, alike for all: the
//! source's regime, where forwarding cost a kernel's price. `_zipf`: a heavy-tailed mix of flows.
//! After each slice every frame is accounted for, or it is an error.
//!
//! Not asked here: more than two cores, devices (see `veth.rs`), other frames than 64 bytes.
//!
//! Needs two cores with nothing else on them.

mod contestant;
mod order;
mod sink;
mod traffic;
mod transfer;
pub mod veth;

use std::hint::black_box;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manylane_frame::{BATCH_MAX, Batch, Depot, Pool, Region, RegionConfig};
use manylane_sync::rcu::Domain;

use super::{Plan, interleave};
use crate::baseline::handoff::Links;
use crate::figure::{Output, Rounds};
use crate::forward::{load, pin_next_hops, routing};
use crate::histogram::Snapshot;
use crate::prefixes::Prefixes;
use crate::threads::Team;
use contestant::{Contestant, Counts, Ground, Measured, PORTS, Wheel};
use order::BUCKETS;
use traffic::{Arrival, Device, Mix, Switch, Traffic};
use transfer::Transfer;

const FRAMES: u32 = 16_384;
/// Of all contestants.
const WORKERS: usize = 9;
const HEAVY_NS: f64 = 300.0;
/// What a latency is measured at, of the capacity.
const LATENCY_LOAD: f64 = 0.8;
const LOADS: [(&str, f64); 4] = [("08x", LATENCY_LOAD), ("1x", 1.0), ("15x", 1.5), ("3x", 3.0)];
const MOVES: Duration = Duration::from_millis(2);

/// A regime: what comes, and what forwarding costs besides.
struct Scene {
    suffix: &'static str,
    mix: Mix,
    heavy: bool,
}

const SCENES: [Scene; 4] = [
    Scene { suffix: "", mix: Mix::Even, heavy: false },
    Scene { suffix: "_zipf", mix: Mix::HeavyTailed, heavy: false },
    Scene { suffix: "_heavy", mix: Mix::Even, heavy: true },
    Scene { suffix: "_zipf_heavy", mix: Mix::HeavyTailed, heavy: true },
];

/// Measures and prints.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    measure(plan, &Prefixes::synthetic(), output)
}

/// The same with another table.
pub fn measure(plan: &Plan, prefixes: &Prefixes, output: &Output) -> io::Result<()> {
    output.note(&format!(
        "{} IPv4 prefixes, 64-byte frames, random destinations; one queue, two cores",
        prefixes.ipv4.len()
    ));
    let domain = Domain::new(WORKERS);
    let mut routing = routing(&domain)?;
    let hops = pin_next_hops(&mut routing)?;
    load(&mut routing, prefixes, &hops)?;
    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
    let depot = Depot::new(region.map_err(io::Error::other)?, WORKERS + 1).expect("it is new");
    let traffic = Arc::new(Traffic::new(prefixes));
    let switch = Switch::new();
    let ground = Ground {
        domain: &domain,
        routing: &routing,
        depot: &depot,
        traffic: &traffic,
        switch: switch.reader(),
        links: Links::new(FRAMES),
        clock: manylane::worker::Clock::start(),
    };
    let mut lab = Lab {
        one_core: Contestant::one_core(&ground)?,
        spliced: Contestant::spliced("spliced", &ground, false)?,
        spliced_by_flow: Contestant::spliced("spliced_by_flow", &ground, true)?,
        handoff: Contestant::handoff(&ground)?,
        ideal: Contestant::ideal(&ground)?,
        generator: Mutex::new((Device::new(switch.reader(), traffic.clone()), depot.pool())),
        traffic: traffic.clone(),
        switch: Mutex::new(switch),
        transfer: Transfer::new(),
        steps: None,
        shares: [None; SCENES.len()],
        quick: plan.quick,
        scenes: plan.scenes.unwrap_or(SCENES.len()),
    };
    let scenes = lab.scenes;
    interleave(
        plan,
        output,
        |team, rounds| lab.round(team, rounds),
        |rounds| Lab::ratios(rounds, scenes),
    )
}

/// Everything that is measured.
struct Lab {
    one_core: Contestant,
    spliced: Contestant,
    spliced_by_flow: Contestant,
    handoff: Contestant,
    ideal: Contestant,
    /// A device and a pool without a worker around them.
    generator: Mutex<(Device, Pool)>,
    traffic: Arc<Traffic>,
    switch: Mutex<Switch>,
    transfer: Transfer,
    /// Of extra work, that take [`HEAVY_NS`].
    steps: Option<u64>,
    /// By scene: what is handed on, by `spliced_by_flow` and by `handoff`.
    shares: [Option<[f64; 2]>; SCENES.len()],
    quick: bool,
    scenes: usize,
}

impl Lab {
    fn round(&mut self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        for (number, scene) in SCENES.iter().enumerate().take(self.scenes) {
            self.scene(team, rounds, number, scene)?;
        }
        rounds.push("transfer_ns", "ns", self.transfer.measure(team)?);
        let all = self.all().map(Contestant::counts);
        let most = |what: fn(&Counts) -> u64| all.iter().map(what).max().unwrap_or(0) as f64;
        rounds.push("reordering_n_max", "frames", Some(most(|counts| counts.n_reordering)));
        rounds.push("reordering_extent_max", "frames", Some(most(|counts| counts.extent)));
        Ok(())
    }

    fn all(&self) -> [&Contestant; 5] {
        [&self.one_core, &self.spliced, &self.spliced_by_flow, &self.handoff, &self.ideal]
    }

    fn scene(
        &mut self,
        team: &mut Team,
        rounds: &mut Rounds,
        number: usize,
        scene: &Scene,
    ) -> io::Result<()> {
        let suffix = scene.suffix;
        self.set(Arrival::Off, scene.mix);
        if self.steps.is_none() {
            self.steps = steps(team)?;
        }
        let steps = if scene.heavy { self.steps.unwrap_or(0) } else { 0 };
        lock(&self.switch).set_work(steps);
        let before = self.all().map(Contestant::counts);
        let shares = match self.shares[number] {
            Some(shares) => shares,
            None => self.find_shares(team, scene)?,
        };
        self.shares[number] = Some(shares);
        let buckets = shares.map(|share| self.buckets(scene.mix, share));
        self.spliced_by_flow.steer(&buckets[0]);
        self.handoff.steer(&buckets[1]);

        let mut capacity_ns = [None; 5];
        for which in 0..capacity_ns.len() {
            let measured = self.slice(team, which, Arrival::Always, scene.mix, 1)?;
            capacity_ns[which] = measured.map(|measured| measured.ns);
            let name = self.all()[which].name;
            rounds.push(
                &format!("{name}_mpps{suffix}"),
                "Mpps",
                measured.map(|measured| 1e3 / measured.ns),
            );
            if which == HANDOFF {
                let handed = measured.map(|measured| measured.handed);
                rounds.push(&format!("share{suffix}"), "part", handed);
                let refused = measured.map(|measured| measured.refused);
                rounds.push(&format!("refused{suffix}"), "part", refused);
                if !scene.heavy {
                    let one_ns = capacity_ns[ONE_CORE];
                    self.cost(team, rounds, scene, measured.zip(one_ns))?;
                }
            }
        }
        for (which, capacity_ns) in capacity_ns.into_iter().enumerate() {
            for (load_name, load) in LOADS {
                let is_latency = load == LATENCY_LOAD;
                let is_goodput = load == 3.0 && which != IDEAL;
                if which == HANDOFF || is_latency || is_goodput {
                    self.loaded(team, rounds, which, scene, capacity_ns, load_name, load)?;
                }
            }
        }
        self.handoff.steer(&self.buckets(scene.mix, 0.5));
        let even = self.slice(team, HANDOFF, Arrival::Always, scene.mix, 1)?;
        rounds.push(&format!("even_mpps{suffix}"), "Mpps", even.map(|even| 1e3 / even.ns));
        self.handoff.steer(&buckets[1]);
        self.moving(team, rounds, scene, &buckets[1])?;
        for (contestant, before) in self.all().into_iter().zip(before) {
            let after = contestant.counts();
            let name = contestant.name;
            let reordered = after.reordered - before.reordered;
            let duplicated = after.duplicated - before.duplicated;
            rounds.push(&format!("{name}_reordered{suffix}"), "frames", Some(reordered as f64));
            rounds.push(&format!("{name}_duplicated{suffix}"), "frames", Some(duplicated as f64));
            if reordered + duplicated > 0 {
                let why = format!("{name}{suffix}: {reordered} reordered, {duplicated} duplicated");
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    fn set(&self, arrival: Arrival, mix: Mix) {
        lock(&self.switch).set(arrival, mix);
    }

    /// One slice of a contestant, and all of its frames accounted for.
    fn slice(
        &self,
        team: &mut Team,
        which: usize,
        arrival: Arrival,
        mix: Mix,
        part: u32,
    ) -> io::Result<Option<Measured>> {
        self.slice_with(team, which, arrival, mix, part, |_| ()).map(|(measured, _)| measured)
    }

    /// The same, and what was counted in the attempt that counts.
    fn slice_with(
        &self,
        team: &mut Team,
        which: usize,
        arrival: Arrival,
        mix: Mix,
        part: u32,
        meddle: impl Fn(&mut Wheel<'_>) + Sync,
    ) -> io::Result<(Option<Measured>, [Seen; 2])> {
        let contestant = self.all()[which];
        let seen = || Seen { late: Snapshot::of(&contestant.late()), counts: contestant.counts() };
        let before = Mutex::new(None);
        let prepare = || {
            self.set(Arrival::Off, mix);
            contestant.settle();
            *lock(&before) = Some(seen());
            self.set(arrival, mix);
        };
        let measured = contestant.measure(team, part, prepare, meddle)?;
        let after = seen(); // Before what is still on its way leaves, late.
        self.set(Arrival::Off, mix);
        contestant.check()?;
        let before = lock(&before).take().expect("each attempt is prepared");
        Ok((measured, [before, after]))
    }

    /// What a frame handed on costs more than one that is not.
    fn cost(
        &mut self,
        team: &mut Team,
        rounds: &mut Rounds,
        scene: &Scene,
        measured: Option<(Measured, f64)>,
    ) -> io::Result<()> {
        let receive_ns = self.receive_ns(team, scene.mix)?;
        let suffix = scene.suffix;
        rounds.push(&format!("receive_ns{suffix}"), "ns", receive_ns);
        let costs = measured
            .zip(receive_ns)
            .map(|((measured, one_ns), receive_ns)| costs(&measured, receive_ns, one_ns));
        let sum = costs.map(|[out, other]| out + other);
        rounds.push(&format!("cost_ns{suffix}"), "ns", sum);
        rounds.push(&format!("cost_out_ns{suffix}"), "ns", costs.map(|costs| costs[0]));
        rounds.push(&format!("cost_in_ns{suffix}"), "ns", costs.map(|costs| costs[1]));
        Ok(())
    }

    /// A frame, made and given back.
    fn receive_ns(&mut self, team: &mut Team, mix: Mix) -> io::Result<Option<f64>> {
        self.set(Arrival::Always, mix);
        let generator = &self.generator;
        let slice = team.slice(1, |_, lap| {
            let mut generator = lock(generator);
            let (device, pool) = &mut *generator;
            let mut batch = Batch::new();
            lap.run_of(BATCH_MAX as u64, || {
                device.receive(pool, &mut batch, 0);
                pool.give_back_all(&mut batch);
            })
        })?;
        self.set(Arrival::Off, mix);
        Ok(slice.map(|slice| slice.ns()))
    }

    #[allow(clippy::too_many_arguments, reason = "one row")]
    fn loaded(
        &mut self,
        team: &mut Team,
        rounds: &mut Rounds,
        which: usize,
        scene: &Scene,
        capacity_ns: Option<f64>,
        load_name: &str,
        load: f64,
    ) -> io::Result<()> {
        let suffix = scene.suffix;
        let name = self.all()[which].name;
        // If the capacity is not known, what comes of this is not counted either.
        let gap_ps = (capacity_ns.unwrap_or(100.0) * 1000.0 / load) as u64;
        // A busy machine may have forwarded nothing in a trial: a part of that is none of a rate.
        let arrival = Arrival::Every(gap_ps.clamp(1, SECOND_PS));
        let (measured, [before, after]) =
            self.slice_with(team, which, arrival, scene.mix, 1, |_| ())?;
        let measured = measured.zip(capacity_ns);
        if load == LATENCY_LOAD {
            for (end, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                let value = measured.and_then(|_| after.late.quantile_since(&before.late, part));
                rounds.push(&format!("{name}_latency_ns_{end}{suffix}"), "ns", value);
            }
        }
        if load == 3.0 {
            let prefix = if which == HANDOFF { String::new() } else { format!("{name}_") };
            let goodput = measured.map(|(measured, capacity_ns)| capacity_ns / measured.ns);
            rounds.push(&format!("{prefix}goodput_at_3x{suffix}"), "x", goodput);
        }
        if which == HANDOFF {
            let (now, then) = (after.counts, before.counts);
            let offered = (now.arrived - then.arrived).max(1) as f64;
            for (place, lost) in [
                ("port", now.lost_port - then.lost_port),
                ("backlog", now.backlog_full - then.backlog_full),
                ("elephants", now.flow_limit - then.flow_limit),
                ("other", now.lost_other - then.lost_other),
            ] {
                let lost = measured.map(|_| lost as f64 / offered * 1e6);
                rounds.push(&format!("lost_{place}_at_{load_name}{suffix}"), "ppm", lost);
            }
        }
        Ok(())
    }

    /// Half of the buckets change worker again and again.
    fn moving(
        &mut self,
        team: &mut Team,
        rounds: &mut Rounds,
        scene: &Scene,
        handed: &[bool; BUCKETS],
    ) -> io::Result<()> {
        // Turned a little further each time.
        let last = Mutex::new((Instant::now(), 0));
        let meddle = |wheel: &mut Wheel<'_>| {
            let mut last = lock(&last);
            if last.0.elapsed() >= MOVES {
                *last = (Instant::now(), last.1 + 1);
                wheel
                    .steer(&std::array::from_fn(|bucket| handed[(bucket + last.1 * 37) % BUCKETS]));
            }
        };
        let (measured, [before, after]) =
            self.slice_with(team, HANDOFF, Arrival::Always, scene.mix, 1, meddle)?;
        let mpps = measured.map(|measured| 1e3 / measured.ns);
        rounds.push(&format!("moving_mpps{}", scene.suffix), "Mpps", mpps);
        let moves = (after.counts.moves - before.counts.moves) as f64 / PORTS as f64;
        if moves == 0.0 && measured.is_some() && !self.quick {
            return Err(io::Error::other("no bucket moved"));
        }
        let moves = measured.map(|_| moves / team.slice_length().as_secs_f64());
        rounds.push(&format!("moves_per_s{}", scene.suffix), "1/s", moves);
        self.handoff.steer(handed);
        Ok(())
    }

    /// The shares to hand on in a scene, by `spliced_by_flow` and by `handoff`: the best of some, then of some
    /// around that one.
    fn find_shares(&mut self, team: &mut Team, scene: &Scene) -> io::Result<[f64; 2]> {
        let mut shares = [0.6; 2];
        if !self.quick {
            for (which, share) in [SPLICED_BY_FLOW, HANDOFF].into_iter().zip(&mut shares) {
                for step in [0.08, 0.02] {
                    *share = self.best_share(team, scene, which, *share, step)?;
                }
            }
        }
        Ok(shares)
    }

    /// By trial.
    fn best_share(
        &mut self,
        team: &mut Team,
        scene: &Scene,
        which: usize,
        around: f64,
        step: f64,
    ) -> io::Result<f64> {
        let shares: Vec<f64> =
            (-4..=4).map(|steps| (around + f64::from(steps) * step).min(0.98)).collect();
        let mut tried: Vec<Vec<f64>> = vec![Vec::new(); shares.len()];
        for _ in 0..5 {
            for (&share, tried) in shares.iter().zip(&mut tried) {
                let buckets = self.buckets(scene.mix, share);
                self.all()[which].steer(&buckets);
                let measured = self.slice(team, which, Arrival::Always, scene.mix, 4)?;
                tried.extend(measured.map(|measured| measured.ns));
            }
        }
        let median = |tried: &mut Vec<f64>| {
            tried.sort_by(f64::total_cmp);
            tried.get(tried.len() / 2).copied().unwrap_or(f64::INFINITY)
        };
        let medians = shares.iter().zip(tried.iter_mut().map(median));
        let best = medians.min_by(|one, other| one.1.total_cmp(&other.1));
        Ok(best.map_or(around, |(&share, _)| share))
    }

    /// Buckets with that share of the frames, as far as there are such.
    fn buckets(&self, mix: Mix, share: f64) -> [bool; BUCKETS] {
        let shares = self.traffic.shares(mix);
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

    fn ratios(rounds: &mut Rounds, scenes: usize) {
        for Scene { suffix, .. } in SCENES.into_iter().take(scenes) {
            let mut over = |name: &str, over: &str, under: &str| {
                let [over, under] = [over, under].map(|name| format!("{name}_mpps{suffix}"));
                rounds.ratio(&format!("{name}{suffix}"), &over, &under);
            };
            over("gain", "handoff", "one_core");
            over("even_gain", "even", "one_core");
            over("spliced_gain", "spliced", "one_core");
            over("spliced_by_flow_gain", "spliced_by_flow", "one_core");
            over("ideal_gain", "ideal", "one_core");
            over("of_ideal", "handoff", "ideal");
            over("moving_over_still", "moving", "handoff");
        }
    }
}

/// In the order of [`Lab::all`].
const ONE_CORE: usize = 0;
const SPLICED_BY_FLOW: usize = 2;
const HANDOFF: usize = 3;
const IDEAL: usize = 4;
/// Picoseconds in a second.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many steps of extra work take [`HEAVY_NS`].
fn steps(team: &mut Team) -> io::Result<Option<u64>> {
    const STEPS: u64 = 256;
    let slice = team.slice(1, |_, lap| {
        let mut state = 1;
        let share = lap.run_of(16, || {
            (0..16).for_each(|place| state = sink::work(state ^ place, STEPS));
        });
        black_box(state);
        share
    })?;
    Ok(slice.map(|slice| (HEAVY_NS * STEPS as f64 / slice.ns()) as u64))
}
