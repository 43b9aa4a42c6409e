//! Threads that measure side by side, pinned and started together, and what they measured.
//!
//! A slice is a stretch of time in which one or two threads repeat something. A slice counts if nothing disturbed it,
//! by three conditions that were set before anything was measured, as parts of its length:
//!
//! - the threads began within 4 %,
//! - they ended within 4 %,
//! - no thread was away for more than 4 %: a thread looks at its clock every 100 us at the latest, so more than 250 us
//!   between two looks mean that another process had the core; such pauses add up.
//!
//! Otherwise it is refused and measured again, five times in all. Without the first two conditions, a slice in which the
//! threads hardly met would pass for contention that costs nothing; without the third, so would one with a thread that
//! lost its core in the middle. The thread that drives the others sleeps meanwhile.

mod alone;
mod spans;

use std::panic;
use std::sync::{Barrier, PoisonError};

use nix::time::{ClockId, clock_gettime};

use crate::cause::{Account, Stretch};
use crate::prelude::*;
use crate::progress;
pub use alone::{alone, judged};
pub use spans::Span;

/// How many operations a loop does without asking anything.
pub const BATCH: u64 = 64;

const TOLERANCE: f64 = 0.04;
/// By how much of a slice the ends may differ where one pause is so long.
const OWN_PAUSE: f64 = 0.25;
const ATTEMPTS: usize = 5;
/// A look at the clock takes about 25 ns: 0.05 % of what is between two of them.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);
/// Batches between two looks, where the compiler has found that a batch does nothing.
const STEP_MAX: u64 = 1 << 32;
const PAUSE: Duration = Duration::from_micros(250);
/// 4 % of half a second: no slice is meant to be that long.
const HOPELESS: Duration = Duration::from_millis(20);

/// Two cores to measure on, and the rounds measured there.
pub struct Bench {
    cores: Vec<usize>,
    slice: Duration,
    tolerance: f64,
    pauses: f64,
    refused: usize,
    /// All figures so far.
    pub rounds: Rounds,
}

impl Bench {
    /// On `cores` or, without them, on the last two of the cores that this process may use. `quick` slices are short and
    /// always count.
    pub fn new(cores: &Option<Vec<usize>>, quick: bool) -> Result<Bench> {
        let cores = match cores {
            Some(cores) => cores.clone(),
            None => affinity::cores()?.into_iter().rev().take(2).collect(),
        };
        match cores[..] {
            [one, other] if one != other => {}
            _ => return Err(format!("two cores are needed, not {cores:?}").into()),
        }
        let slice = Duration::from_millis(if quick { 4 } else { 100 });
        let tolerance = if quick { f64::INFINITY } else { TOLERANCE };
        let rounds = Rounds::default();
        Ok(Bench { cores, slice, tolerance, pauses: tolerance, refused: 0, rounds })
    }

    /// For work that pauses by itself, in system calls: its pauses look like another process's.
    pub fn allow_pauses(&mut self) {
        self.pauses = f64::INFINITY;
        self.tolerance = self.tolerance.max(OWN_PAUSE);
    }

    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Limits the length of slices, where many are to be measured.
    pub fn shorten(&mut self, slice: Duration) {
        self.slice = self.slice.min(slice);
    }

    pub fn slice_length(&self) -> Duration {
        self.slice
    }

    /// Prints all figures, and how many slices did not count.
    pub fn print(&self, output: &Output) -> Result {
        output.figure("slices_refused", "count", &[self.refused as f64]);
        self.rounds.print(output)
    }

    pub fn push(&mut self, name: &str, unit: &'static str, value: Option<f64>) {
        self.rounds.push(name, unit, value);
    }

    /// Adds this round's value of a figure in nanoseconds.
    pub fn ns(&mut self, name: &str, value: Option<f64>) {
        self.push(name, "ns", value);
    }

    /// Measures a slice and adds the nanoseconds of an operation.
    pub fn time(
        &mut self,
        name: &str,
        threads: usize,
        work: impl Fn(usize, Lap<'_>) -> Share + Sync,
    ) -> Result<Option<Slice>> {
        let slice = self.slice(threads, work)?;
        self.ns(name, ns_of(&slice));
        Ok(slice)
    }

    /// Lets both threads do `work` once, started together.
    pub fn once<T: Send>(&self, work: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
        let start_line = Barrier::new(2);
        self.pinned(2, |thread| {
            start_line.wait();
            work(thread)
        })
    }

    /// Lets `threads` threads do `work`, each on its core.
    fn pinned<T: Send>(&self, threads: usize, work: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
        let member = |number: usize| {
            let core = self.cores[number];
            let pinned = affinity::pin(core);
            let done = work(number); // Also when not pinned: the others wait for us.
            pinned.map_err(|error| format!("core {core}: {error}").into()).map(|()| done)
        };
        thread::scope(|scope| {
            let member = &member;
            let running: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || member(number))).collect();
            let done = running.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panicked) => panic::resume_unwind(panicked),
            });
            done.collect()
        })
    }

    /// Nanoseconds an operation, and of all threads' CPU time.
    pub fn with_cpu(
        &mut self,
        threads: usize,
        work: impl Fn(usize, Lap<'_>) -> Share + Sync,
    ) -> Result<Option<(f64, f64)>> {
        Ok(self.slice(threads, work)?.map(|slice| (slice.ns(), slice.cpu_ns())))
    }

    /// As [`Bench::with_cpu`], of `operations` operations by each of two threads, and what a thread does more before it
    /// looks at its clock. Counts however disturbed.
    pub fn whole(
        &self,
        operations: u64,
        work: impl Fn(usize, Lap<'_>) -> Share + Sync,
    ) -> Result<(f64, f64)> {
        let slice = self.attempt(2, Duration::ZERO, operations, &work)?;
        Ok((slice.ns(), slice.cpu_ns()))
    }

    /// Lets `threads` threads do `work`, which gets the thread's number, until a slice counts. None when none does.
    pub fn slice(
        &mut self,
        threads: usize,
        work: impl Fn(usize, Lap<'_>) -> Share + Sync,
    ) -> Result<Option<Slice>> {
        self.slice_with(threads, || (), |(), number, lap| work(number, lap))
    }

    /// As [`Bench::slice`], for work that needs something fresh in each attempt, made by `prepare`.
    pub fn slice_with<P: Sync>(
        &mut self,
        threads: usize,
        prepare: impl Fn() -> P,
        work: impl Fn(&P, usize, Lap<'_>) -> Share + Sync,
    ) -> Result<Option<Slice>> {
        self.slice_by(|bench| {
            let prepared = prepare();
            let work = |number, lap: Lap<'_>| work(&prepared, number, lap);
            bench.attempt(threads, bench.slice, 0, &work)
        })
    }

    /// As [`Bench::slice`], of slices that `measure` measures, such as another program's.
    pub fn slice_by(
        &mut self,
        mut measure: impl FnMut(&Bench) -> Result<Slice>,
    ) -> Result<Option<Slice>> {
        for _ in 0..ATTEMPTS {
            let slice = measure(self)?;
            progress::tick();
            if slice.counts(self.tolerance, self.pauses) {
                return Ok(Some(slice));
            }
            self.refused += 1;
            self.rounds.blame(slice.cause(self.pauses));
        }
        Ok(None)
    }

    fn attempt(
        &self,
        threads: usize,
        slice: Duration,
        least: u64,
        work: &(impl Fn(usize, Lap<'_>) -> Share + Sync),
    ) -> Result<Slice> {
        let arrived = AtomicUsize::new(0);
        let measured = |number| {
            let (before, stretch) = (cpu_time(), Stretch::begin());
            let share = work(number, Lap { arrived: &arrived, threads, slice, least });
            let cpu = cpu_time().saturating_sub(before);
            Share { cpu, account: stretch.end(), ..share }
        };
        self.pinned(threads, measured).map(Slice)
    }
}

/// Does `work` on a thread of its own, which ends with it.
pub fn on_its_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// The CPU time that this thread has used, by the kernel's account.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Locks what a measuring thread uses alone. A panic elsewhere is reported where the thread is joined.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What [`Slice::ns`] says, if the slice counts.
pub fn ns_of(slice: &Option<Slice>) -> Option<f64> {
    slice.as_ref().map(Slice::ns)
}

/// Nanoseconds an operation of one thread, if the slice counts.
pub fn of(slice: &Option<Slice>, thread: usize) -> Option<f64> {
    slice.as_ref().map(|slice| slice.of(thread).ns())
}

/// Stops the other thread, also when ours panics.
pub struct Stopping<'a>(pub &'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        // Relaxed: only a sign; joining the thread orders the rest.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread's start line in a slice.
pub struct Lap<'a> {
    arrived: &'a AtomicUsize,
    threads: usize,
    slice: Duration,
    /// Operations that [`Lap::run`] does at least.
    least: u64,
}

impl Lap<'_> {
    /// Waits for the other threads and starts the watch.
    pub fn start(&self) -> Watch {
        // Release and Acquire: what each thread prepared is there when the others begin.
        self.arrived.fetch_add(1, Ordering::Release);
        while self.arrived.load(Ordering::Acquire) < self.threads {
            thread::yield_now();
        }
        Watch::new(Instant::now())
    }

    /// How long the slice is, for work that counts its operations itself.
    pub fn length(&self) -> Duration {
        self.slice
    }

    /// Repeats `batch`, which does [`BATCH`] operations, for the length of the slice.
    #[inline(always)]
    pub fn run(&self, batch: impl FnMut()) -> Share {
        self.run_of(BATCH, batch)
    }

    /// As [`Lap::run`], when `batch` does `operations` operations.
    #[inline(always)]
    pub fn run_of(&self, operations: u64, mut batch: impl FnMut()) -> Share {
        let mut watch = self.start();
        let mut batches = 0;
        let mut step = 1;
        loop {
            for _ in 0..step {
                batch();
            }
            batches += step;
            let before = watch.last;
            if watch.look() >= self.slice && batches * operations >= self.least {
                return watch.share(batches * operations);
            }
            // Both ways: the first batches may have run before the other thread came.
            step = match watch.last - before {
                passed if passed < BETWEEN_LOOKS => (step + step.div_ceil(2)).min(STEP_MAX),
                passed if passed > BETWEEN_LOOKS * 2 => step.div_ceil(2),
                _ => step,
            };
        }
    }
}

/// A thread's clock, which notices when the thread was away.
pub struct Watch {
    start: Instant,
    last: Instant,
    away: Duration,
}

impl Watch {
    fn new(start: Instant) -> Watch {
        Watch { start, last: start, away: Duration::ZERO }
    }

    /// The time since the start. To be called often, or the thread seems to have been away.
    #[inline]
    pub fn look(&mut self) -> Duration {
        let now = Instant::now();
        if now - self.last > PAUSE {
            self.away += now - self.last;
        }
        self.last = now;
        now - self.start
    }

    /// Whether the thread was away so long that no slice could count. Work of a fixed number of operations, not of a fixed
    /// time, checks this and gives up: the operations may take minutes on a loaded machine.
    pub fn is_hopeless(&self) -> bool {
        self.away > HOPELESS
    }

    /// The share of a thread that gave up: it does not count.
    pub fn give_up(self, operations: u64) -> Share {
        Share { away: Duration::MAX, ..self.share(operations) }
    }

    /// The thread's share, which ends at the last look.
    pub fn share(self, operations: u64) -> Share {
        let Watch { start, last, away } = self;
        Share {
            operations,
            start,
            end: last,
            away,
            cpu: Duration::ZERO,
            account: Account::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Share {
    operations: u64,
    start: Instant,
    end: Instant,
    away: Duration,
    /// CPU time, once the thread's work is over.
    cpu: Duration,
    /// The kernel's account of it, then too.
    account: Account,
}

impl Share {
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Nanoseconds an operation, of this thread.
    pub fn ns(&self) -> f64 {
        (self.end - self.start).as_nanos() as f64 / self.operations as f64
    }
}

#[derive(Debug)]
pub struct Slice(Vec<Share>);

impl Slice {
    /// Elapsed time x threads / operations, in nanoseconds: what one operation takes a thread.
    pub fn ns(&self) -> f64 {
        self.length().as_nanos() as f64 * self.0.len() as f64 / self.operations() as f64
    }

    /// CPU time of all threads for an operation, in nanoseconds.
    pub fn cpu_ns(&self) -> f64 {
        let cpu: Duration = self.0.iter().map(|share| share.cpu).sum();
        cpu.as_nanos() as f64 / self.operations() as f64
    }

    pub fn operations(&self) -> u64 {
        self.0.iter().map(|share| share.operations).sum()
    }

    pub fn of(&self, thread: usize) -> &Share {
        &self.0[thread]
    }

    /// The slower thread's operations for each of the faster one's: 1 is fair, 0 starves.
    pub fn fairness(&self) -> f64 {
        let operations = || self.0.iter().map(|share| share.operations);
        let most = operations().max().unwrap_or(0).max(1);
        operations().min().unwrap_or(0) as f64 / most as f64
    }

    /// From the first start to the last end.
    fn length(&self) -> Duration {
        let start = self.0.iter().map(|share| share.start).min();
        let end = self.0.iter().map(|share| share.end).max();
        start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
    }

    /// Why the slice does not count, by its worst thread.
    fn cause(&self, pauses: f64) -> String {
        let worst = self.0.iter().max_by_key(|share| share.away).expect("a slice has a thread");
        match worst.away {
            Duration::MAX => "the work gave up".into(),
            away if away.as_secs_f64() > pauses * self.length().as_secs_f64() => {
                worst.account.why(away)
            }
            _ => "the two threads did not begin and end together".into(),
        }
    }

    /// Whether the threads ran side by side, and all the time.
    fn counts(&self, tolerance: f64, pauses: f64) -> bool {
        let spread = |of: fn(&Share) -> Instant| {
            let times = || self.0.iter().map(of);
            times().max().zip(times().min()).map_or(Duration::ZERO, |(last, first)| last - first)
        };
        let away = self.0.iter().map(|share| share.away).max().unwrap_or_default();
        let worst = spread(|share| share.start).max(spread(|share| share.end));
        let length = self.length().as_secs_f64();
        worst.as_secs_f64() <= tolerance * length && away.as_secs_f64() <= pauses * length
    }
}

#[cfg(test)]
mod tests;
