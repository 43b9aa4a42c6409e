//! What does observation cost?
//!
//! A whole daemon forwards between ports in memory, from a generator, with one worker on a core of its own. On another
//! core its API answers, as in `manylane run`, all queries of `top`, the dashboard and Prometheus: counters, metrics, the
//! routes' and frames' tables, and the next 32 packets as a trace. Time is cut into slices of a quarter of a second: in
//! every second one a client sends all queries, once.
//!
//! `observation_cost` is by how many percent the worker forwards less when a client does so once a second: the frames that
//! slices with queries lack beside their neighbours, as a share of what is forwarded in a second. (Over whole seconds, the
//! difference would be less than that of any two seconds on one machine.)
//!
//! Needs two cores; with one it is left out.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread::JoinHandle;

use manylane_api::{self, Client, Socket, Source, TraceLine, TraceRequest, TraceWhat};
use manylane_router::config::Environment;
use manylane_router::control::Daemon;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::network;
use crate::prelude::{Arc, Duration, Instant, Output, Result, affinity, io, thread};
use crate::progress;
use crate::threads::on_its_own_thread;

const CONFIG: &str = r#"
[workers]
count = 1

[[port]]
name = "source"
driver = "memory"
addresses = ["10.1.0.254/24"]

[port.generate]
source = "10.1.0.1"
destination = "10.4.0.0/16"
flows = 4096
size = 64

[[port]]
name = "sink"
driver = "memory"
addresses = ["10.5.0.254/24"]

[[route]]
prefix = "10.4.0.0/16"
via = "10.5.0.1"
"#;

const PATHS: [&str; 10] = [
    "/metrics",
    "/v1/daemon",
    "/v1/ports",
    "/v1/workers",
    "/v1/drops",
    "/v1/ledger",
    "/v1/steering",
    "/v1/frames",
    "/v1/routes",
    "/v1/neighbours",
];

/// What `top` queries.
const TRACED: u32 = 32;
const PATIENCE: Duration = Duration::from_millis(200);

/// Longer than a question takes.
const SLICE: Duration = Duration::from_millis(250);

/// So often a worker that has forwarded nothing is given another slice.
const SLICES_MAX: u32 = 100;

/// How often an observer queries.
const INTERVAL_S: f64 = 1.0;

/// Measures and prints; the worker runs on `core`, of these.
pub fn cost(quick: bool, runs: usize, core: usize, cores: &[usize], output: &Output) -> Result {
    // The calling thread has been pinned to `core` before; a new one can have another.
    match on_its_own_thread(|| measure(quick, runs, core, cores))? {
        Some(percent) => output.figure("observation_cost", "%", &percent),
        None => eprintln!("SKIPPED observation_cost: needs two cores"),
    }
    Ok(())
}

fn measure(quick: bool, runs: usize, core: usize, cores: &[usize]) -> Result<Option<Vec<f64>>> {
    let Some(&away) = cores.iter().find(|away| **away != core) else { return Ok(None) };
    affinity::pin(away)?; // And with this thread those that it starts, but for the worker.
    let pairs = if quick { 1 } else { 8 };
    let lab = Lab::start(core)?;
    lab.slice(true)?; // Warms up.
    let mut percent = Vec::new();
    for _ in progress::rounds("observes", runs) {
        let mut lost_s = 0.0;
        for pair in 0..pairs {
            // Each comes first as often as second: what drifts favours neither.
            let asked_first = pair % 2 == 0;
            let first = lab.slice(asked_first)?;
            let second = lab.slice(!asked_first)?;
            progress::tick();
            let (asked, alone) = if asked_first { (first, second) } else { (second, first) };
            lost_s += (1.0 - asked.rate / alone.rate) * asked.seconds;
        }
        percent.push(lost_s / f64::from(pairs) / INTERVAL_S * 100.0);
    }
    lab.stop()?;
    Ok(Some(percent))
}

struct Slice {
    seconds: f64,
    rate: f64,
}

struct Lab {
    daemon: Daemon,
    source: Arc<dyn Source>,
    client: Client,
    stop: oneshot::Sender<()>,
    api: JoinHandle<io::Result<()>>,
    folder: PathBuf,
}

impl Lab {
    /// The control thread, the API and this thread on one core, the worker on another.
    fn start(core: usize) -> Result<Lab> {
        let here = Environment::of_this_thread();
        let daemon = network::start(CONFIG, &Environment { cores: vec![core as u16], ..here })?;
        let folder =
            std::env::temp_dir().join(format!("manylane-bench-observation-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = folder.join("api.sock");
        let socket = Socket::bind(&path)?;
        let (stop, stopped) = oneshot::channel();
        let source = daemon.source();
        let served = source.clone();
        let api = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let stopped = async { stopped.await.unwrap_or_default() };
            runtime.block_on(manylane_api::serve(socket, served, stopped))
        });
        Ok(Lab { daemon, source, client: Client::new(&path), stop, api, folder })
    }

    /// What is forwarded in a slice, in which a client queries everything, or nothing.
    fn slice(&self, asked: bool) -> Result<Slice> {
        let (start, before) = (Instant::now(), self.forwarded());
        if asked {
            self.ask()?;
        }
        // On a machine that does other work, the worker may have no core for a whole slice.
        for _ in 0..SLICES_MAX {
            thread::sleep((start + SLICE).saturating_duration_since(Instant::now()));
            let frames = self.forwarded() - before;
            let seconds = start.elapsed().as_secs_f64();
            if frames > 0 {
                return Ok(Slice { seconds, rate: frames as f64 / seconds });
            }
            thread::sleep(SLICE);
        }
        Err("observation_cost: nothing was forwarded".into())
    }

    fn forwarded(&self) -> u64 {
        self.source.ledger().transmitted
    }

    fn ask(&self) -> Result {
        for path in PATHS {
            self.client.ask_text(path)?;
        }
        // `BPF_RET | BPF_K`: every packet.
        let request = TraceRequest { count: TRACED, filter: vec![(6, 0, 0, u32::MAX)], port: None };
        let body = serde_json::to_string(&request).expect("numbers become JSON");
        let patience = async { tokio::time::sleep(PATIENCE).await };
        let mut packets = 0;
        self.client.follow("/v1/trace", body, patience, |line| {
            // Empty lines are signs of life.
            if let Ok(TraceLine::Stage(stage)) = serde_json::from_str(line)
                && let TraceWhat::Received { .. } = stage.what
            {
                packets += 1;
            }
            if packets < TRACED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(())
    }

    /// An error where packets are missing.
    fn stop(self) -> Result {
        let _ = self.stop.send(()); // The API ends before only if it fails, as it says then.
        let served = self.api.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ended = network::stop(self.daemon);
        fs::remove_dir_all(&self.folder)?;
        served?;
        ended
    }
}
