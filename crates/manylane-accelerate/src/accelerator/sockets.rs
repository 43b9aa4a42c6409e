//! Workers' sockets on ports: what is planned becomes orders, and what comes of these is heard.
//!
//! | State    | Event                                         | Next     | Why                                          |
//! |----------|-----------------------------------------------|----------|----------------------------------------------|
//! | gone     | the port is to be the workers'                | opening  | ordered                                      |
//! | opening  | they are open, on the port's interface        | open     | the tier may be entered                      |
//! | opening  | they are open, on one that it was             | stale    | another has its name                         |
//! | opening  | refused                                       | gone     | tried again once a second                    |
//! | open     | another interface has the port's name         | stale    |                                              |
//! | open, stale | nothing goes to workers there, by the tables; it is not to, or stale | closing | ordered    |
//! | closing  | they are closed                               | gone     | another tier may be entered                  |

use std::sync::{Arc, OnceLock};

use crate::programs::{Driver, IngressProgram};
use manylane_io::eventfd::EventFd;
use manylane_net::transit::Transit;
use manylane_sync::rcu::Domain;

use super::ports::Port;
use super::worker::{
    How, Report, ThreadContext, WorkerCaptures, WorkerCounts, WorkerDrops, WorkerOptions,
    WorkerThreads,
};
use manylane_api::accelerate::ReasonStatus;

/// The worker threads, from the first port of the worker tier on.
pub(super) struct WorkerTier {
    worker_context: WorkerContext,
    threads: Option<Result<WorkerThreads, String>>,
}

/// What workers are made of.
pub(super) struct WorkerContext {
    pub worker_options: WorkerOptions,
    pub domain: Domain,
    pub transit: Transit,
    pub captures: WorkerCaptures,
    /// Rung for each report.
    pub doorbell: Arc<EventFd>,
    /// For the API.
    pub counts: Arc<OnceLock<WorkerCounts>>,
    /// Where workers note what they drop, if a collector is to hear of it.
    pub drops: Option<Arc<WorkerDrops>>,
}

/// The sockets of one port.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    state: State,
    /// Why they are not open, though they should be.
    trouble: Option<String>,
    /// The next attempt waits for the next poll.
    waits: bool,
    /// The workers' memory is for other interfaces.
    is_without_memory: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Gone,
    Opening,
    Open(How),
    Stale,
    Closing,
}

impl WorkerTier {
    pub fn new(worker_context: WorkerContext) -> WorkerTier {
        WorkerTier { worker_context, threads: None }
    }

    /// Workers' memory is for this interface, too, unless they have it already.
    pub fn add_interface(&mut self, name: &str) {
        if self.threads.is_none() {
            self.worker_context.worker_options.interfaces.push(name.into());
        }
    }

    /// Hears what has come of orders. True when something has.
    pub fn receive_reports(&mut self, ports: &mut [Port]) -> bool {
        let Some(Ok(threads)) = &self.threads else { return false };
        let mut changed = false;
        for report in threads.reports() {
            changed = true;
            let number = match &report {
                Report::Opened { port, .. }
                | Report::Refused { port, .. }
                | Report::Closed { port } => *port,
            };
            let Some(port) = ports.iter_mut().find(|port| port.number == number) else { continue };
            let sockets = &mut port.driver.sockets;
            match report {
                Report::Opened { index, how, .. } => {
                    let is_same = port.index == Some(index);
                    sockets.state = if is_same { State::Open(how) } else { State::Stale };
                    sockets.trouble = None;
                }
                Report::Refused { why, .. } => {
                    (sockets.state, sockets.trouble) = (State::Gone, Some(why));
                    sockets.waits = true;
                }
                Report::Closed { .. } => sockets.state = State::Gone,
            }
        }
        changed
    }

    /// Orders what is planned. The tables say by now what ports' flags are. True when something has changed.
    pub fn open_and_close(
        &mut self,
        fast: &IngressProgram,
        driver: &mut Driver,
        ports: &mut [Port],
    ) -> bool {
        if self.threads.is_none() && !ports.iter().any(|port| port.driver.plan.workers) {
            return false;
        }
        let threads =
            match self.threads.get_or_insert_with(|| start(&self.worker_context, fast, driver)) {
                Ok(threads) => threads,
                Err(trouble) => {
                    let trouble = Some(trouble.clone());
                    let wanting = ports.iter_mut().filter(|port| port.driver.plan.workers);
                    return wanting.fold(false, |changed, port| {
                        let sockets = &mut port.driver.sockets;
                        let is_other = sockets.trouble != trouble;
                        sockets.trouble.clone_from(&trouble);
                        changed | is_other
                    });
                }
            };
        let mut changed = false;
        for port in ports {
            let InUse { wanted, flagged } = InUse::of(port);
            let interfaces = &self.worker_context.worker_options.interfaces;
            let is_without_memory = wanted && !interfaces.contains(&port.name);
            changed |= port.driver.sockets.is_without_memory != is_without_memory;
            port.driver.sockets.is_without_memory = is_without_memory;
            let lasting = port.driver.program.as_ref().map_or(u32::MAX, |program| program.queues());
            let sockets = &mut port.driver.sockets;
            match (sockets.state, port.index) {
                (State::Gone, Some(_)) if is_without_memory => {}
                (State::Gone, Some(index)) if wanted && !sockets.waits => {
                    threads.open(port.number, &port.name, index, lasting);
                    sockets.state = State::Opening;
                    changed = true;
                }
                (State::Open(_), _) if !wanted && !flagged => {
                    threads.close(port.number);
                    sockets.state = State::Closing;
                    changed = true;
                }
                (State::Stale, _) => {
                    threads.close(port.number);
                    sockets.state = State::Closing;
                    changed = true;
                }
                _ => {}
            }
            if !wanted && sockets.trouble.is_some() {
                (sockets.trouble, sockets.waits) = (None, false);
            }
        }
        changed
    }

    /// Ends them.
    pub fn end_workers(&mut self) {
        self.threads = None;
    }
}

/// What a port is to the workers.
struct InUse {
    /// The port is planned for the workers, and its program is attached.
    wanted: bool,
    /// The tables say that it is.
    flagged: bool,
}

impl InUse {
    fn of(port: &Port) -> InUse {
        let driver = &port.driver;
        let plan = &driver.plan;
        let has_program = driver.is_attached() || !plan.ingress;
        InUse {
            wanted: plan.workers && (plan.ingress || plan.egress) && has_program,
            flagged: driver.by_workers && (driver.ingress || driver.egress),
        }
    }
}

impl Sockets {
    /// Whether the worker tier may be entered.
    pub fn are_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether another one may.
    pub fn are_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// The port has another interface now, or none.
    pub fn forget(&mut self) {
        if self.are_open() {
            self.state = State::Stale;
        }
        (self.trouble, self.waits) = (None, false);
    }

    /// Permits the next attempt.
    pub fn retry(&mut self) {
        self.waits = false;
    }

    /// What is to be said of them, on a port that is to be the workers', or not.
    pub fn reasons(&self, wanted: bool) -> Vec<ReasonStatus> {
        let said = |what: String, why: &str| ReasonStatus {
            what,
            why: why.into(),
            command: String::new(),
        };
        let mut reasons = Vec::new();
        match self.state {
            State::Open(How { queues, workers, zero_copy }) => {
                let plural = |number: u64| if number == 1 { "" } else { "s" };
                let what = format!(
                    "{queues} queue{}, {workers} worker{}",
                    plural(queues.into()),
                    plural(workers as u64)
                );
                reasons.push(said(what, match zero_copy {
                    true => "zero copy: the device reads and writes workers' memory",
                    false => "the kernel copies: the driver has no zero copy for AF_XDP, or refused it",
                }));
            }
            // Tried again, it is as it was before, until it is otherwise.
            State::Opening if self.trouble.is_some() => {}
            State::Opening => {
                reasons.push(said(
                    "workers' sockets are being opened".into(),
                    "until then it is not theirs",
                ));
            }
            State::Closing | State::Stale => {
                let why =
                    "what workers have of it is sent first; where one hangs, it is waited for";
                reasons.push(said("workers' sockets are being closed".into(), why));
            }
            State::Gone => {}
        }
        if self.is_without_memory && wanted {
            reasons.push(said(
                "the workers' memory has no room for another interface".into(),
                "it was sized when workers started; restart `manylane accelerate` with this interface",
            ));
        }
        if let Some(trouble) = self.trouble.as_ref().filter(|_| wanted) {
            reasons.push(said(trouble.clone(), "it is tried again once a second"));
        }
        reasons
    }
}

fn start(
    worker_context: &WorkerContext,
    fast: &IngressProgram,
    driver: &mut Driver,
) -> Result<WorkerThreads, String> {
    let context = ThreadContext {
        worker_options: worker_context.worker_options.clone(),
        workers: driver.take_workers(),
        grace: fast.grace(),
        domain: worker_context.domain.clone(),
        transit: worker_context.transit.clone(),
        captures: worker_context.captures.clone(),
        doorbell: worker_context.doorbell.clone(),
        drops: worker_context.drops.clone(),
    };
    let threads =
        WorkerThreads::start(context).map_err(|error| format!("no thread for workers: {error}"))?;
    // No other thread sets the counts, and once is enough.
    let _ = worker_context.counts.set(threads.counts());
    Ok(threads)
}
