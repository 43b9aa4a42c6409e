//! [`Sampler`]: queries the daemon again and again, on a thread of its own.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Happening;
use super::detail::Picked;
use super::flows::{self, Flows};
use manylane_api::accelerate::{
    AcceleratedLedger, AcceleratedPort, AcceleratorStatus, KernelFlows, KernelFlowsRequest,
    LaneStatus, PassedStatus, TrackedFlows, TrackedFlowsRequest, Why,
};
use manylane_api::{
    Client, ClientError, Daemon, DropStatus, Ledger, PortStatus, SteeringStatus, WorkerStatus,
};

/// What a daemon said at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Instant,
    pub of: Of,
}

/// The answers, by the kind of daemon.
#[derive(Clone, Debug)]
pub enum Of {
    /// `manylane run`.
    Forwarder(Box<Forwarder>),
    /// `manylane accelerate`.
    Accelerator(Box<Accelerator>),
}

#[derive(Clone, Debug, Default)]
pub struct Forwarder {
    pub daemon: Daemon,
    pub ports: Vec<PortStatus>,
    pub workers: Vec<WorkerStatus>,
    pub drops: Vec<DropStatus>,
    pub ledger: Ledger,
    pub steering: SteeringStatus,
    /// Of the packets that were looked at after this.
    pub flows: Flows,
    /// Why none were.
    pub flows_trouble: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Accelerator {
    pub daemon: AcceleratorStatus,
    pub ports: Vec<AcceleratedPort>,
    pub drops: Vec<PassedStatus>,
    pub ledger: AcceleratedLedger,
    /// The thread that looks after connections, if it answers.
    pub lane: Option<LaneStatus>,
    /// The largest connections, where connections decide: then no packet is looked at.
    pub tracked: Option<TrackedFlows>,
    /// Connections that the kernel forwards, if the operator looks at these.
    pub kernel: Option<Result<KernelFlows, String>>,
    /// Of the packets that were looked at after this.
    pub flows: Flows,
    /// Why none were.
    pub flows_trouble: Option<String>,
}

/// What the operator looks at, beside what is queried in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Connections of this port only.
    pub port: Option<String>,
    /// Connections that the kernel forwards: to list them, the daemon reads conntrack.
    pub kernel: bool,
}

/// Queries everything once.
pub fn take(client: &Client, watched: &Watched) -> Result<Sample, ClientError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    let Kind { kind } = client.ask("/v1/daemon")?;
    if kind == "accelerate" {
        let ports = client.ask("/v1/accelerate/ports")?;
        let at = Instant::now();
        let lane: Option<LaneStatus> = client.ask("/v1/accelerate/lane").ok();
        let is_needed = lane.as_ref().is_some_and(LaneStatus::is_needed);
        let accelerator = Accelerator {
            daemon: client.ask("/v1/daemon")?,
            ports,
            drops: client.ask("/v1/accelerate/drops")?,
            ledger: client.ask("/v1/accelerate/ledger")?,
            tracked: is_needed.then(|| tracked(client, watched)).flatten(),
            kernel: watched.kernel.then(|| kernel(client, watched)),
            lane,
            flows: Flows::default(),
            flows_trouble: None,
        };
        return Ok(Sample { at, of: Of::Accelerator(Box::new(accelerator)) });
    }
    let ports = client.ask("/v1/ports")?;
    let at = Instant::now();
    let forwarder = Forwarder {
        daemon: client.ask("/v1/daemon")?,
        ports,
        workers: client.ask("/v1/workers")?,
        drops: client.ask("/v1/drops")?,
        ledger: client.ask("/v1/ledger")?,
        steering: client.ask("/v1/steering")?,
        flows: Flows::default(),
        flows_trouble: None,
    };
    Ok(Sample { at, of: Of::Forwarder(Box::new(forwarder)) })
}

/// Connections of the table. Without an answer the next sample tries again.
fn tracked(client: &Client, watched: &Watched) -> Option<TrackedFlows> {
    let largest = TrackedFlowsRequest {
        port: watched.port.clone(),
        limit: TRACKED,
        ..TrackedFlowsRequest::default()
    };
    client.post("/v1/accelerate/flows/table", &largest).ok()
}

/// Connections that the kernel forwards.
fn kernel(client: &Client, watched: &Watched) -> Result<KernelFlows, String> {
    let first = KernelFlowsRequest {
        port: watched.port.clone(),
        limit: TRACKED,
        ..KernelFlowsRequest::default()
    };
    client.post("/v1/accelerate/flows/kernel", &first).map_err(|error| error.to_string())
}

/// What the daemon says of a flow.
fn why(client: &Client, picked: &Picked) -> Result<Why, String> {
    let question = picked.question().ok_or("no daemon knows this flow by its ends")?;
    client.ask(&question.path()).map_err(|error| error.to_string())
}

/// Connections that are looked at: more than fit a screen, since of the largest ones some rest.
const TRACKED: usize = 200;

/// How often to query the daemon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each time after so long.
    Every(Duration),
    /// Not at all.
    Paused,
}

/// What the thread that queries is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Query at this pace from now on.
    Pace(Pace),
    /// Query this from now on, and at once.
    Watch(Watched),
    /// Request what the daemon says of this flow.
    Ask(Picked),
}

/// The thread that queries; when this is dropped, the thread ends after the answer that it waits for.
pub struct Sampler {
    orders: Sender<Order>,
}

impl Sampler {
    /// Queries the daemon at `socket`, and sends each answer to `answers`.
    pub fn start(
        socket: &Path,
        interval: Duration,
        answers: Sender<Happening>,
    ) -> io::Result<Sampler> {
        let client = Client::new(socket);
        let (orders, received) = mpsc::channel();
        let work = move || {
            // A first rate soon: one sample was taken before this.
            let mut pace = Pace::Every(interval.min(SOON));
            let mut next = Pace::Every(interval);
            let mut watched = Watched::default();
            loop {
                let order = match pace {
                    Pace::Every(interval) => received.recv_timeout(interval),
                    Pace::Paused => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match order {
                    Ok(Order::Pace(changed)) => {
                        (pace, next) = (changed, changed);
                        continue;
                    }
                    Ok(Order::Ask(picked)) => {
                        let why = Box::new(why(&client, &picked));
                        if answers.send(Happening::Why(picked, why)).is_err() {
                            return;
                        }
                        continue;
                    }
                    Ok(Order::Watch(changed)) => {
                        watched = changed;
                        if pace == Pace::Paused {
                            continue;
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => pace = next,
                }
                let answer = take(&client, &watched).map(|sample| with_flows(&client, sample));
                if answers.send(Happening::Answer(answer)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("sampler".into()).spawn(work)?;
        Ok(Sampler { orders })
    }

    /// Has the thread do this next.
    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order); // The thread ends only after this.
    }
}

/// After the counters, which are of one time; those of the flows are of a little later.
fn with_flows(client: &Client, mut sample: Sample) -> Sample {
    let (sampled, flows, trouble) = match &mut sample.of {
        Of::Forwarder(daemon) => {
            (flows::sample(client), &mut daemon.flows, &mut daemon.flows_trouble)
        }
        Of::Accelerator(daemon) if daemon.tracked.is_some() => return sample,
        Of::Accelerator(daemon) => {
            (flows::accelerated(client), &mut daemon.flows, &mut daemon.flows_trouble)
        }
    };
    match sampled {
        Ok(sampled) => *flows = sampled,
        Err(why) => *trouble = Some(why),
    }
    sample
}

const SOON: Duration = Duration::from_millis(200);
