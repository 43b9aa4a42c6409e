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
mod tests {
    use super::*;

    #[test]
    fn a_slice_counts_when_its_threads_agree() {
        let epoch = Instant::now();
        for (one, other) in [((0, 1000, 5), (3, 1001, 5)), ((0, 1000, 40), (40, 1000, 5))] {
            let [one, other] =
                [one, other].map(|(start, end, away)| share(epoch, start, end, away));
            assert!(slice([one, other]).counts(TOLERANCE, TOLERANCE));
        }
    }

    #[test]
    fn a_slice_is_refused_when_a_thread_comes_late_leaves_early_or_was_away() {
        let epoch = Instant::now();
        let good = share(epoch, 0, 1000, 5);
        for bad in [(41, 1000, 5), (0, 959, 5), (0, 1000, 41)] {
            let bad = share(epoch, bad.0, bad.1, bad.2);
            assert!(!slice([good, bad]).counts(TOLERANCE, TOLERANCE), "{bad:?}");
            assert!(!slice([bad, good]).counts(TOLERANCE, TOLERANCE), "{bad:?}");
            assert!(slice([bad, good]).counts(f64::INFINITY, f64::INFINITY), "a quick one counts");
        }
    }

    /// The wall time is shared by all threads: two of them with 1000 operations each in 1000 us took
    /// one microsecond each, not half.
    #[test]
    fn the_cost_is_what_a_thread_sees() {
        let epoch = Instant::now();
        let even = slice([share(epoch, 0, 1000, 5), share(epoch, 0, 1000, 5)]);
        assert_eq!((even.ns(), even.fairness()), (1000.0, 1.0));
        let mut less = share(epoch, 0, 1000, 5);
        less.operations = 250;
        let uneven = slice([less, share(epoch, 0, 1000, 5)]);
        assert_eq!((uneven.ns(), uneven.fairness()), (1600.0, 0.25));
        assert_eq!((uneven.of(0).ns(), uneven.of(1).ns()), (4000.0, 1000.0));
    }

    #[test]
    fn threads_do_their_own_work_and_a_lap_counts_every_batch() {
        let mut bench = Bench::new(&None, true).expect("this test needs two cores");
        let batches = [const { AtomicUsize::new(0) }; 2];
        let work = |number: usize, lap: Lap<'_>| {
            lap.run(|| {
                batches[number].fetch_add(1, Ordering::Relaxed);
            })
        };
        let slice = bench.slice(2, work).expect("the cores are ours").expect("a quick one counts");
        for (number, batches) in batches.iter().enumerate() {
            let operations = batches.load(Ordering::Relaxed) as u64 * BATCH;
            assert!(operations > 0);
            assert_eq!(slice.of(number).operations, operations);
        }
        assert_eq!(bench.refused, 0);
    }

    #[test]
    fn a_slice_that_never_counts_is_given_up_with_its_cause() {
        let mut bench = Bench::new(&None, true).expect("this test needs two cores");
        (bench.tolerance, bench.pauses) = (-1.0, 0.0);
        let asleep = |_, lap: Lap<'_>| lap.run(|| thread::sleep(Duration::from_millis(1)));
        let slice = bench.time("asleep_ns", 1, asleep).expect("the core is ours");
        assert!(slice.is_none());
        let output = Output::new("test", true);
        bench.rounds.print(&output).expect("it is a warning");
        let why = &output.into_parts().1[0].refused;
        assert!(
            why.starts_with("1 of 1 rounds do not count: ") && !why.ends_with("not known"),
            "{why}"
        );
        assert_eq!(bench.refused, ATTEMPTS);
    }

    #[test]
    fn a_watch_adds_up_the_pauses_that_are_too_long_for_its_own_thread() {
        let now = Instant::now();
        let ago = |us| now - Duration::from_micros(us);
        let mut watch = Watch { start: ago(5000), last: ago(5000), away: Duration::ZERO };
        watch.look();
        let first = watch.away;
        assert!(first >= Duration::from_micros(5000), "the whole pause counts: {first:?}");
        watch.last -= Duration::from_micros(1000);
        watch.look();
        assert!(watch.away - first >= Duration::from_micros(1000), "and so does the next one");
        // A clock that has not moved.
        let mut short = Watch::new(Instant::now() + Duration::from_secs(60));
        short.look();
        assert_eq!(short.away, Duration::ZERO);
    }

    #[test]
    fn a_share_that_was_given_up_does_not_count_however_long_it_took() {
        let now = Instant::now();
        let start = now - Duration::from_secs(1);
        let mut watch = Watch { start, last: now - HOPELESS, away: Duration::ZERO };
        watch.last -= Duration::from_micros(1);
        assert!(!watch.is_hopeless());
        watch.look();
        assert!(watch.is_hopeless());
        let gave_up = watch.give_up(7);
        assert_eq!(gave_up.operations(), 7);
        assert!(!Slice(vec![gave_up]).counts(TOLERANCE, TOLERANCE));
        assert!(Slice(vec![gave_up]).counts(f64::INFINITY, f64::INFINITY), "a quick one counts");
    }

    #[test]
    fn one_core_twice_is_refused() {
        let refused = Bench::new(&Some(vec![0, 0]), true).err().expect("they are one core");
        assert_eq!(refused.to_string(), "two cores are needed, not [0, 0]");
    }

    fn share(epoch: Instant, start: u64, end: u64, away: u64) -> Share {
        let at = |us| epoch + Duration::from_micros(us);
        let (away, cpu) = (at(away) - epoch, Duration::ZERO);
        Share {
            operations: 1000,
            start: at(start),
            end: at(end),
            away,
            cpu,
            account: Account::default(),
        }
    }

    fn slice(shares: [Share; 2]) -> Slice {
        Slice(shares.to_vec())
    }
}
