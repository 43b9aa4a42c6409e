//! [`Sampler`]: queries the daemon again and again, on a thread of its own.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Happening;
use super::flows::{self, Flows};
use manylane_api::accelerate::{
    AcceleratedLedger, AcceleratedPort, AcceleratorStatus, LaneStatus, PassedStatus, TrackedFlows,
    TrackedFlowsRequest,
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
    /// The largest connections, where connections decide: then no packet is looked at.
    pub tracked: Option<TrackedFlows>,
    /// Of the packets that were looked at after this.
    pub flows: Flows,
    /// Why none were.
    pub flows_trouble: Option<String>,
}

/// Queries everything once.
pub fn take(client: &Client) -> Result<Sample, ClientError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    let Kind { kind } = client.ask("/v1/daemon")?;
    if kind == "accelerate" {
        let ports = client.ask("/v1/accelerate/ports")?;
        let at = Instant::now();
        let accelerator = Accelerator {
            daemon: client.ask("/v1/daemon")?,
            ports,
            drops: client.ask("/v1/accelerate/drops")?,
            ledger: client.ask("/v1/accelerate/ledger")?,
            tracked: tracked(client),
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

/// Connections, where they decide. Without an answer the next sample tries again.
fn tracked(client: &Client) -> Option<TrackedFlows> {
    let lane: LaneStatus = client.ask("/v1/accelerate/lane").ok()?;
    let largest = TrackedFlowsRequest { limit: TRACKED, ..TrackedFlowsRequest::default() };
    let ask = || client.post("/v1/accelerate/flows/table", &largest).ok();
    lane.is_needed().then(ask).flatten()
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

/// The thread that queries; when this is dropped, the thread ends after the answer that it waits for.
pub struct Sampler {
    pace: Sender<Pace>,
}

impl Sampler {
    /// Queries the daemon at `socket`, and sends each answer to `answers`.
    pub fn start(
        socket: &Path,
        interval: Duration,
        answers: Sender<Happening>,
    ) -> io::Result<Sampler> {
        let client = Client::new(socket);
        let (pace, paces) = mpsc::channel();
        let work = move || {
            // A first rate soon: one sample was taken before this.
            let mut pace = Pace::Every(interval.min(SOON));
            let mut next = Pace::Every(interval);
            loop {
                let changed = match pace {
                    Pace::Every(interval) => paces.recv_timeout(interval),
                    Pace::Paused => paces.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match changed {
                    Ok(changed) => {
                        (pace, next) = (changed, changed);
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => pace = next,
                }
                let answer = take(&client).map(|sample| with_flows(&client, sample));
                if answers.send(Happening::Answer(answer)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("sampler".into()).spawn(work)?;
        Ok(Sampler { pace })
    }

    /// Asks at this pace from now on.
    pub fn set_pace(&self, pace: Pace) {
        let _ = self.pace.send(pace); // The thread ends only after this.
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
