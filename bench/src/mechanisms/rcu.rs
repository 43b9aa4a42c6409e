//! What do grace periods cost, and is the memory of what waits for them bounded?
//!
//! | figure                 | what is done                                                          |
//! |------------------------|-----------------------------------------------------------------------|
//! | `quiescent_ns`         | a reader is quiescent in a tight loop, without a writer                  |
//! | `quiescent_gp_ns`      | the same while a writer starts grace periods as fast as it can        |
//! | `offline_online_ns`    | leaving and returning, without a writer                                |
//! | `retire_ns`            | 64 indices retired, one `quiescent`, what is over reclaimed; for each |
//! | `retire_box_ns`        | 64-byte boxes instead, made and freed, a reader beside it (`_r1`)     |
//! | `epoch_defer_ns`       | crossbeam-epoch instead: 64 boxes deferred under one pin              |
//! | `epoch_defer_flush_ns` | and a `flush` after them: it frees little by itself (see below)       |
//! | `box_ns`               | making and freeing such boxes alone: part of the two above            |
//! | `epoch_pin_ns`         | what crossbeam-epoch has instead of `quiescent`: pin and unpin        |
//! | `synchronize_*_ns_r*`  | 20,000 in a row beside a reader that turns every 0, 1 or 10 us        |
//! | `ticket_*_ns_r*`       | `start` and `is_over` instead: never gives up the core                |
//! | `limbo_*`              | a writer that never pauses, a reader that turns every 10 us           |
//! | `epoch_garbage_max*`   | the same writer and reader with crossbeam-epoch, without and with `flush` |
//!
//! The latencies include a look at the clock (`clock_ns`). `--peer` measures manylane beside another library, with these
//! loops, gaps and counts ([`peer`]).
//!
//! crossbeam-epoch looks for what it can free at every 128th pin, and then at 8 bags of 64 objects: 64
//! deferred under each pin are more than that. `flush` looks at once. Its `Guard::defer` of a box is
//! `defer_destroy` of that box without `unsafe`.
//!
//! Not measured here: more than one reader, readers that sleep.
//!
//! Needs two cores with nothing else on them.

pub mod peer;

use std::array;

use crossbeam_epoch::{Collector, Guard};
use manylane_sync::rcu::Limbo;

use super::{Plan, interleave};
use crate::prelude::*;

/// As many as the peer has room for: each adds a line to what a writer scans.
const READERS_MAX: usize = 8;
const SYNCHRONIZES: usize = 20_000;
const SYNCHRONIZES_QUICK: usize = 500;
/// Fewer than a writer without pause retires in 10 us, so that the bound is met.
const BOUND: usize = 512;
/// Enough not to be met.
const ROOM: usize = 4096;

const GAPS: [(&str, Duration); 3] =
    [("r0", Duration::ZERO), ("r1", Duration::from_micros(1)), ("r10", Duration::from_micros(10))];

pub fn run(plan: &Plan, output: &Output) -> Result {
    let synchronizes = if plan.pace.quick { SYNCHRONIZES_QUICK } else { SYNCHRONIZES };
    output.note(&format!(
        "a domain of {READERS_MAX}, one reader; crossbeam-epoch; limbo of {BOUND}; each latency includes \
         one look at the clock"
    ));
    let round = |bench: &mut Bench| {
        bench.time("clock_ns", 1, |_, lap| times(&lap, || _ = black_box(Instant::now())))?;
        quiescent(bench)?;
        offline_online(bench)?;
        epoch_pin(bench)?;
        reclaim(bench)?;
        for gap in GAPS {
            grace_period(bench, "synchronize", gap, synchronizes, &Domain::synchronize)?;
            grace_period(bench, "ticket", gap, synchronizes, &wait_by_ticket)?;
        }
        limbo_bound(bench)?;
        epoch_garbage(bench)
    };
    interleave(plan, output, round, |rounds| {
        rounds.ratio("retire_over_epoch_flush", "retire_box_ns", "epoch_defer_flush_ns");
        rounds.ratio("retire_over_epoch_flush_r1", "retire_box_ns_r1", "epoch_defer_flush_ns_r1");
    })
}

#[inline(always)]
fn times(lap: &Lap<'_>, mut operation: impl FnMut()) -> Share {
    lap.run(|| {
        for _ in 0..BATCH {
            operation();
        }
    })
}

/// What the readers' side pays.
fn quiescent(bench: &mut Bench) -> Result {
    let domain = Domain::new(READERS_MAX);
    // The reader is behind a reference, as in a worker: what it saw last is loaded, not kept in a register.
    let quiescent = |lap: Lap<'_>| {
        let mut reader = register(&domain);
        times(&lap, || black_box(&mut reader).quiescent())
    };
    bench.time("quiescent_ns", 1, |_, lap| quiescent(lap))?;
    let slice = bench.slice(2, |thread, lap| match thread {
        0 => quiescent(lap),
        _ => times(&lap, || _ = domain.start()),
    })?;
    bench.ns("quiescent_gp_ns", of(&slice, 0));
    Ok(())
}

/// What a reader pays that is going to sleep.
fn offline_online(bench: &mut Bench) -> Result {
    let domain = Domain::new(READERS_MAX);
    bench.time("offline_online_ns", 1, |_, lap| {
        let mut reader = register(&domain);
        times(&lap, || {
            let reader = black_box(&mut reader);
            reader.offline();
            reader.online();
        })
    })?;
    Ok(())
}

/// What crossbeam-epoch's readers pay.
fn epoch_pin(bench: &mut Bench) -> Result {
    let collector = Collector::new();
    bench.time("epoch_pin_ns", 1, |_, lap| {
        let handle = collector.register();
        times(&lap, || drop(black_box(handle.pin())))
    })?;
    Ok(())
}

/// What the writer pays for each object that it replaces, alone and with a reader beside it.
fn reclaim(bench: &mut Bench) -> Result {
    let new = || Domain::new(READERS_MAX);
    bench.time("retire_ns", 1, |_, lap| retire(&lap, &new(), || 7_u32))?;
    bench.time("box_ns", 1, |_, lap| {
        lap.run(|| {
            let boxes: [_; BATCH as usize] = array::from_fn(|_| record());
            drop(black_box(boxes));
        })
    })?;
    bench.time("retire_box_ns", 1, |_, lap| retire(&lap, &new(), record))?;
    for (name, flush) in [("epoch_defer_ns", false), ("epoch_defer_flush_ns", true)] {
        bench.time(name, 1, |_, lap| {
            let handle = Collector::new().register();
            lap.run(|| defer_batch(&handle.pin(), flush))
        })?;
    }
    let turn = GAPS[1].1;
    let slice = beside_a_reader(bench, turn, |domain, lap| retire(&lap, domain, record))?;
    bench.ns("retire_box_ns_r1", of(&slice, 0));
    let slice = beside_a_pinned_one(bench, turn, |collector, lap| {
        let handle = collector.register();
        lap.run(|| defer_batch(&handle.pin(), true))
    })?;
    bench.ns("epoch_defer_flush_ns_r1", of(&slice, 0));
    Ok(())
}

/// Retires a batch, is quiescent itself, reclaims what is over.
fn retire<T>(lap: &Lap<'_>, domain: &Domain, make: impl Fn() -> T) -> Share {
    let mut reader = register(domain);
    let mut limbo = Limbo::new(domain.clone(), ROOM);
    lap.run(|| {
        for _ in 0..BATCH {
            let mut object = make();
            // Full only when the other reader lost its core, and then the slice does not count.
            while let Err(refused) = limbo.retire(object) {
                object = refused;
                reader.quiescent();
                drain(&mut limbo);
            }
        }
        reader.quiescent();
        drain(&mut limbo);
    })
}

fn drain<T>(limbo: &mut Limbo<T>) {
    while let Some(object) = limbo.reclaim() {
        drop(black_box(object));
    }
}

fn defer_batch(guard: &Guard, flush: bool) {
    for _ in 0..BATCH {
        let object = record();
        guard.defer(move || drop(black_box(object)));
    }
    if flush {
        guard.flush();
    }
}

/// What is retired: the size of an adjacency.
fn record() -> Box<[u64; 8]> {
    Box::new(black_box([7; 8]))
}

/// Waits for a grace period, and never gives up the core.
fn wait_by_ticket(domain: &Domain) {
    let ticket = domain.start();
    while !domain.is_over(ticket) {
        spin_loop();
    }
}

/// Latencies of `wait`, one after the other, beside a reader that turns every `gap`.
fn grace_period(
    bench: &mut Bench,
    what: &str,
    (gap_name, gap): (&str, Duration),
    times: usize,
    wait: &(impl Fn(&Domain) + Sync),
) -> Result {
    let latencies = Mutex::new(Vec::new());
    let slice = beside_a_reader(bench, gap, |domain, lap| {
        let mut taken = Vec::with_capacity(times);
        let mut watch = lap.start();
        let mut before = Duration::ZERO;
        while taken.len() < times && !watch.is_hopeless() {
            wait(domain);
            let now = watch.look();
            taken.push((now - before).as_nanos() as f64);
            before = now;
        }
        let (done, hopeless) = (taken.len() as u64, watch.is_hopeless());
        *lock(&latencies) = taken;
        if hopeless { watch.give_up(done) } else { watch.share(done) }
    })?;
    let mut sorted = std::mem::take(&mut *lock(&latencies));
    sorted.sort_by(f64::total_cmp);
    for (part_name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let value = slice.as_ref().map(|_| quantile(&sorted, part));
        bench.ns(&format!("{what}_{part_name}_ns_{gap_name}"), value);
    }
    Ok(())
}

/// How much waits when a writer never pauses: up to the bound, then objects are handed back.
fn limbo_bound(bench: &mut Bench) -> Result {
    let counts = [const { AtomicU64::new(0) }; 2];
    let slice = beside_a_reader(bench, GAPS[2].1, |domain, lap| {
        let mut limbo = Limbo::new(domain.clone(), BOUND);
        let (mut waiting_max, mut refused) = (0, 0);
        let share = lap.run(|| {
            for object in 0..BATCH {
                if limbo.retire(black_box(object)).is_err() {
                    refused += 1;
                    drain(&mut limbo); // The edit waits, and tries again with the next one.
                }
                waiting_max = waiting_max.max(limbo.len());
            }
        });
        for (count, seen) in counts.iter().zip([waiting_max as u64, refused]) {
            count.store(seen, Ordering::Relaxed);
        }
        share
    })?;
    let [waiting_max, refused] = counts.map(|count| count.into_inner() as f64);
    let seen = |value: &dyn Fn(&Slice) -> f64| slice.as_ref().map(value);
    bench.push("limbo_bound", "count", Some(BOUND as f64));
    bench.push("limbo_waiting_max", "count", seen(&|_| waiting_max));
    let reached = if waiting_max as usize == BOUND { 1.0 } else { 0.0 };
    bench.push("limbo_bound_reached", "count", seen(&|_| reached));
    let attempts = |slice: &Slice| slice.of(0).operations() as f64;
    bench.push("limbo_refused_per_retire", "x", seen(&|slice| refused / attempts(slice)));
    let turns = |slice: &Slice| slice.of(1).operations() as f64;
    let accepted = |slice: &Slice| (attempts(slice) - refused) / turns(slice);
    bench.push("limbo_accepted_per_turn", "count", seen(&accepted));
    Ok(())
}

/// The same where nothing is handed back: the most that was deferred and not freed yet.
fn epoch_garbage(bench: &mut Bench) -> Result {
    for (name, flush) in [("epoch_garbage_max", false), ("epoch_garbage_max_flushed", true)] {
        let garbage = AtomicU64::new(0);
        let slice = beside_a_pinned_one(bench, GAPS[2].1, |collector, lap| {
            FREED.store(0, Ordering::Relaxed);
            let handle = collector.register();
            let (mut deferred, mut most) = (0, 0);
            let share = lap.run(|| {
                let guard = handle.pin();
                for _ in 0..BATCH {
                    guard.defer(|| FREED.fetch_add(1, Ordering::Relaxed));
                }
                if flush {
                    guard.flush();
                }
                deferred += BATCH;
                most = most.max(deferred - FREED.load(Ordering::Relaxed));
            });
            garbage.store(most, Ordering::Relaxed);
            share
        })?;
        let garbage = garbage.into_inner() as f64;
        bench.push(name, "count", slice.map(|_| garbage));
    }
    Ok(())
}

/// What crossbeam-epoch freed of the slice's garbage, and of no other: a collector frees the rest of it
/// before the next slice begins. Static, since deferred functions outlive every borrow.
static FREED: AtomicU64 = AtomicU64::new(0);

/// The first thread does `work`, the second is a reader that is quiescent every `gap`.
fn beside_a_reader(
    bench: &mut Bench,
    gap: Duration,
    work: impl Fn(&Domain, Lap<'_>) -> Share + Sync,
) -> Result<Option<Slice>> {
    beside(
        bench,
        || Domain::new(READERS_MAX),
        work,
        |domain, lap, stop| {
            let mut reader = register(domain);
            turn(&lap, gap, stop, || (), |()| reader.quiescent())
        },
    )
}

/// As `beside`, for crossbeam-epoch: the second thread is pinned for `gap`, again and again.
fn beside_a_pinned_one(
    bench: &mut Bench,
    gap: Duration,
    work: impl Fn(&Collector, Lap<'_>) -> Share + Sync,
) -> Result<Option<Slice>> {
    beside(bench, Collector::new, work, |collector, lap, stop| {
        let handle = collector.register();
        turn(&lap, gap, stop, || handle.pin(), drop)
    })
}

fn beside<P: Sync>(
    bench: &mut Bench,
    prepare: impl Fn() -> P,
    work: impl Fn(&P, Lap<'_>) -> Share + Sync,
    reader: impl Fn(&P, Lap<'_>, &AtomicBool) -> Share + Sync,
) -> Result<Option<Slice>> {
    let fresh = || (prepare(), AtomicBool::new(false));
    bench.slice_with(2, fresh, |(prepared, stop), thread, lap| match thread {
        0 => {
            let _stopping = Stopping(stop);
            work(prepared, lap)
        }
        _ => reader(prepared, lap, stop),
    })
}

/// Turns until `stop` is set: what `begin` gives is held for `gap`, and goes to `end`.
#[inline(always)]
fn turn<G>(
    lap: &Lap<'_>,
    gap: Duration,
    stop: &AtomicBool,
    begin: impl Fn() -> G,
    mut end: impl FnMut(G),
) -> Share {
    let mut watch = lap.start();
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        let held = begin();
        if !gap.is_zero() {
            let until = watch.look() + gap;
            while watch.look() < until {}
        }
        end(held);
        turns += 1;
        if turns % LOOK_EVERY == 0 {
            watch.look();
        }
    }
    watch.look();
    watch.share(turns)
}

/// Turns without a gap between looks at the clock; a few microseconds.
const LOOK_EVERY: u64 = 1024;

fn register(domain: &Domain) -> Reader {
    domain.register().expect("the domain has more places than we have threads")
}
