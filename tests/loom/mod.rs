//! What every model of every crate begins with: [`explore`] runs it, [`Seen`] says what it met.

#![allow(
    clippy::disallowed_types,
    reason = "std's atomics, which loom does not see, taken from `primitive`: they are the test's own"
)]

use manylane_sync::primitive::foreign::{AtomicU64, Ordering};

const MAX_BRANCHES: usize = 20_000;

/// Runs `model` in every execution with at most `preemptions` preemptions (`None`: in every one), and
/// reports their number.
pub(crate) fn explore(
    name: &str,
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) {
    let executions = std::sync::Arc::new(AtomicU64::new(0));
    let started = std::time::Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    // Loom counts each load: of a map of buckets, several hundred at a time.
    builder.max_branches = MAX_BRANCHES;
    let count = executions.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!(
        "{name}: {} executions, bound {preemptions:?}, {:.1} s",
        executions.load(Ordering::Relaxed),
        started.elapsed().as_secs_f32()
    );
}

/// What happened in at least one execution: a test that never met the interesting case shows nothing.
pub(crate) struct Seen {
    what: &'static str,
    times: AtomicU64,
}

impl Seen {
    pub const fn new(what: &'static str) -> Seen {
        Seen { what, times: AtomicU64::new(0) }
    }

    pub fn note(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    /// Fails if it did not happen since the last call.
    pub fn assert(&self) {
        assert_ne!(self.times.swap(0, Ordering::Relaxed), 0, "no execution in which {}", self.what);
    }
}
