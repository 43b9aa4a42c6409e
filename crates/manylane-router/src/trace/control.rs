//! One trace at a time: begun, read, ended.

use std::sync::{Arc, Mutex, MutexGuard};

use manylane_frame::vocabulary::WorkerId;
use manylane_sync::counters::SharedCount;
use manylane_sync::hook::{Hooks, Socket};
use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::ring::{Consumer, ring};

use manylane_worker::recorder::{PACKETS_MAX, Recorder, Session, Wanted};
use manylane_worker::stage::Stage;
use manylane_worker::{Clock, Tracer};

/// Why a trace did not begin.
#[non_exhaustive]
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Another client has one.
    #[error("another trace is running; end that `manylane trace`, or wait until it is done")]
    Running,
    /// The requested number of packets cannot be followed.
    #[error("{0} packets cannot be traced; trace 1 to {max}", max = PACKETS_MAX)]
    Count(u32),
    /// Traces begin and end faster than workers turn.
    #[error("too many traces began just now; try again")]
    Busy,
}

/// A daemon's traces. A handle: clones share the traces.
#[derive(Clone)]
pub struct Traces(Arc<Mutex<Control>>);

struct Control {
    domain: Domain,
    hooks: Hooks<Session>,
    /// By worker.
    recorded: Vec<Recorded>,
    /// Of the last trace.
    session: u16,
    is_running: bool,
}

/// What one worker has recorded.
struct Recorded {
    ring: Consumer<Stage>,
    lost: Arc<SharedCount>,
}

/// A trace that is running, until this is dropped.
pub struct Trace {
    traces: Traces,
    session: Session,
    hook: Option<Socket>,
    /// Until all workers know of it.
    heard: Limbo<()>,
    lost_before: u64,
}

/// How far a trace is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracing {
    /// All workers look for packets.
    pub is_armed: bool,
    /// Packets that were found.
    pub packets: u32,
    /// Stages that found no place in a worker's ring.
    pub lost: u64,
}

impl Traces {
    /// No trace, for `workers` workers, members of `domain`. Beside it the workers' sides.
    pub fn new(domain: &Domain, workers: usize, clock: Clock) -> (Traces, Vec<Tracer>) {
        let hooks = Hooks::new(domain.clone(), 1, RETIRED_MAX);
        let (mut recorded, mut tracers) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (producer, consumer) = ring(STAGES);
            let lost = Arc::<SharedCount>::default();
            recorded.push(Recorded { ring: consumer, lost: lost.clone() });
            let recorder = Recorder { sessions: hooks.reader(), ring: producer, lost };
            tracers.push(Tracer::new(recorder, clock));
        }
        let control =
            Control { domain: domain.clone(), hooks, recorded, session: 0, is_running: false };
        (Traces(Arc::new(Mutex::new(control))), tracers)
    }

    /// Begins a trace, if none is running.
    pub fn begin(&self, wanted: Wanted) -> Result<Trace, TraceError> {
        if !(1..=PACKETS_MAX).contains(&wanted.count) {
            return Err(TraceError::Count(wanted.count));
        }
        let mut control = self.lock();
        if control.is_running {
            return Err(TraceError::Running);
        }
        let number = control.session.wrapping_add(1).max(1); // 0 is no trace's.
        let session = Session {
            number,
            wanted: Arc::new(wanted),
            packets_max: Arc::default(),
            numbered: Arc::default(),
        };
        let (hook, _) = control.hooks.open().expect("the one place is free: no trace is running");
        if control.hooks.bind(&hook, Some(session.clone())).is_err() {
            control.hooks.close(hook);
            return Err(TraceError::Busy);
        }
        (control.session, control.is_running) = (number, true);
        // What an earlier trace has left.
        control.recorded.iter_mut().for_each(|of| of.take(|_| {}));
        let lost_before = control.lost();
        let mut heard = Limbo::new(control.domain.clone(), 1);
        let retired = heard.retire(());
        assert!(retired.is_ok(), "the table has room for the one");
        drop(control);
        Ok(Trace { traces: self.clone(), session, hook: Some(hook), heard, lost_before })
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.0.lock().expect("who begins and ends traces does not panic")
    }
}

impl Control {
    fn lost(&self) -> u64 {
        self.recorded.iter().map(|of| of.lost.load()).sum()
    }
}

impl Recorded {
    fn take(&mut self, mut each: impl FnMut(Stage)) {
        while let Some(stage) = self.ring.pop() {
            each(stage);
        }
        self.ring.release();
    }
}

impl Trace {
    /// Gives `each` what workers have recorded since the last call, each worker's in order; says how far the
    /// trace is. Never waits; to be called every few milliseconds, or rings become full.
    pub fn read(&mut self, mut each: impl FnMut(WorkerId, Stage)) -> Tracing {
        let count = u64::from(self.session.wanted.count);
        // Then every worker has begun a turn since the session was published, or begins with a look at it when it
        // wakes (guarantee A of `rcu`): from now on none passes a numbered packet on unseen.
        while self.heard.reclaim().is_some() {}
        let is_armed = self.heard.is_empty();
        let mut control = self.traces.lock();
        let session = self.session.number;
        for (worker, recorded) in (0..).map(WorkerId).zip(&mut control.recorded) {
            recorded.take(|stage| {
                if stage.session == session {
                    each(worker, stage);
                }
            });
        }
        let Session { packets_max: most, numbered, .. } = &self.session;
        let packets = numbered.load().min(most.load());
        if is_armed {
            // The rings are empty now: the next packets' stages have a place.
            most.add((packets + PACKETS_AT_ONCE).min(count).saturating_sub(most.load()));
        }
        Tracing { is_armed, packets: packets as u32, lost: control.lost() - self.lost_before }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut control = self.traces.lock();
        if let Some(hook) = self.hook.take() {
            control.hooks.close(hook);
        }
        control.is_running = false;
    }
}

/// Stages that wait to be read, for each worker.
const STAGES: usize = 1024;

/// Packets that get a number between two reads: this many find places for all stages, unless they are cut into many
/// pieces or wait, all, for a neighbour that is resolved at once.
const PACKETS_AT_ONCE: u64 = 48;

/// Sessions that wait for a grace period: a turn of each worker.
const RETIRED_MAX: u32 = 16;
