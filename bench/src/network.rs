//! The network bed of `veth`, `tcp` and `compare handoff --veth`: the three hosts of a [`Lab`].
//!
//! The router forwards by its kernel alone, by its kernel with `manylane accelerate`, or by `manylane run`. Several
//! networks exist at once and are measured in turn; between measurements all of them sleep.

use std::fmt;
use std::process::{Command, Stdio};

use manylane_accelerate::accelerator::{Accelerator, Options};
use manylane_api::Source;
use manylane_api::accelerate::Accelerated;
use manylane_lab::load::{TcpServer, Transfer};
use manylane_lab::{Lab, LabOptions, RouterOptions, ping};
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

use crate::prelude::*;
use crate::progress;

/// The router's interfaces: to the client, and to the server.
pub const PORTS: [&str; 2] = ["lan", "wan"];

/// This machine lacks something that a question needs.
#[derive(Debug)]
struct NotHere(String);

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotHere {}

fn failed(error: impl fmt::Display, is_unavailable: bool) -> Error {
    let why = error.to_string();
    if is_unavailable { NotHere(why).into() } else { why.into() }
}

/// Measures and prints, on the first and the last core, or prints why this machine cannot: it has fewer than `cores_min`
/// cores, this user is not root, or a program is missing.
pub fn ask(question: &str, cores_min: usize, measure: impl FnOnce([usize; 2]) -> Result) -> Result {
    let cores = affinity::cores()?;
    let measured = match cores[..] {
        [first, ..] if cores.len() >= cores_min => {
            can_run().and_then(|()| measure([first, cores[cores.len() - 1]]))
        }
        _ => Err(failed("needs two cores", true)),
    };
    match measured {
        Err(error) if is_unavailable(&error) => {
            eprintln!("SKIPPED {question}: {error}");
            Ok(())
        }
        measured => measured,
    }
}

/// Whether this machine lacks something.
pub fn is_unavailable(error: &Error) -> bool {
    error.is::<NotHere>()
}

fn can_run() -> Result {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(failed("needs root", true));
    }
    needs(&["iperf3", "setpriv", "timeout"])
}

/// An error that says which of these programs is missing on this machine, if one is.
pub fn needs(programs: &[&str]) -> Result {
    for program in programs {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Err(failed(format!("{program} is not installed"), true));
        }
    }
    Ok(())
}

/// Starts `manylane run` in the namespace of this thread.
pub fn start(text: &str, environment: &Environment<'_>) -> Result<Daemon> {
    let config = Config::parse(text, "bench.toml", environment)?;
    Daemon::start(config).map_err(|error| failed(&error, error.is_unavailable()))
}

/// Ends a daemon. An error says that packets or frames are missing.
pub fn stop(daemon: Daemon) -> Result {
    let ledger = daemon.stop();
    match (ledger.missing, ledger.frames.missing) {
        (0, 0) => Ok(()),
        _ => Err(format!("packets or frames are missing: {ledger:#?}").into()),
    }
}

/// Does `work` while another thread does `other`, again and again.
pub fn meanwhile<T>(
    mut other: impl FnMut() -> Result + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                other()?;
            }
            Ok::<_, Error>(())
        });
        let stopping = Stopping(&is_over);
        let done = work();
        drop(stopping);
        beside.join().expect("it does not panic")?;
        done
    })
}

/// Three hosts, and the router's forwarder. The fields drop in order: processes and forwarder need the hosts.
pub struct Network {
    iperf: Option<TcpServer>,
    accelerator: Option<Accelerator>,
    daemon: Option<Daemon>,
    pub lab: Lab,
}

impl Network {
    fn new(options: LabOptions) -> Result<Network> {
        let lab = Lab::three_hosts(options).map_err(|error| failed(error, true))?;
        Ok(Network { iperf: None, accelerator: None, daemon: None, lab })
    }

    /// The kernel routes, offloads at their defaults; every link has this number of queues.
    pub fn of_kernel(queues: u32) -> Result<Network> {
        Network::new(LabOptions { queues, kernel_router: true, ..LabOptions::default() })
    }

    /// The kernel routes, with these routes ([`Lab::load_routes`]).
    pub fn with_routes(queues: u32, routes: &[(IpAddr, u8)]) -> Result<Network> {
        let network = Network::of_kernel(queues)?;
        if !routes.is_empty() {
            progress::doing(&format!("loads {} routes into the router's kernel", routes.len()));
        }
        network.lab.load_routes(routes)?;
        Ok(network)
    }

    /// As [`Network::with_routes`], accelerated.
    pub fn accelerated(queues: u32, routes: &[(IpAddr, u8)], options: Options) -> Result<Network> {
        let mut network = Network::with_routes(queues, routes)?;
        network.accelerate(options)?;
        Ok(network)
    }

    /// `manylane run` routes; the router's kernel has no address, no IPv6, and forwards nothing. Links have `mtu`.
    pub fn of_daemon(options: &RouterOptions, mtu: u32) -> Result<Network> {
        let mut network = Network::new(LabOptions { mtu, ..LabOptions::default() })?;
        let text = options.text();
        let run = move || start(&text, &Environment::of_this_thread());
        network.daemon = Some(network.lab.router.run(run)?);
        Ok(network)
    }

    /// Starts the accelerator: how long that took.
    pub fn accelerate(&mut self, options: Options) -> Result<Duration> {
        let begun = Instant::now();
        let accelerator = self.lab.router.run(move || Accelerator::start(options));
        let accelerator = accelerator.map_err(|error| failed(&error, error.is_unavailable()))?;
        let took = begun.elapsed();
        for port in accelerator.source().ports() {
            if !port.ingress {
                return Err(format!("{} is not accelerated: {port:#?}", port.name).into());
            }
        }
        self.accelerator = Some(accelerator);
        Ok(took)
    }

    /// Ends the accelerator and the daemon. An error says that packets or frames are missing.
    pub fn stop(&mut self) -> Result {
        if let Some(accelerator) = self.accelerator.take() {
            let ledger = self.lab.router.run(move || accelerator.stop());
            if (ledger.missing, ledger.missing_bytes) != (0, 0) {
                return Err(format!("packets are missing: {ledger:#?}").into());
            }
        }
        match self.daemon.take() {
            Some(daemon) => self.lab.router.run(move || stop(daemon)),
            None => Ok(()),
        }
    }

    pub fn close(mut self) -> Result {
        self.stop()
    }

    pub fn accelerator(&self) -> Option<Arc<dyn Accelerated>> {
        self.accelerator.as_ref().map(Accelerator::source)
    }

    pub fn daemon(&self) -> Option<Arc<dyn Source>> {
        self.daemon.as_ref().map(Daemon::source)
    }

    /// Lets client and server run on these cores, with iperf3 at the server; neighbours on the way are known then.
    pub fn serve_tcp(&mut self, cores: [usize; 2], destinations: &[IpAddr]) -> Result {
        self.iperf = Some(self.lab.serve_tcp(cores)?);
        for destination in destinations {
            ping(&self.lab.client, *destination, 56, 3)?;
        }
        Ok(())
    }

    /// Sends by iperf3 from the client for `seconds`, by `connections` at once.
    pub fn transfer(&self, to: IpAddr, seconds: u32, connections: u32) -> Result<Transfer> {
        let server = self.iperf.as_ref().ok_or("nothing serves TCP")?;
        Ok(self.lab.transfer(server, to, seconds, connections)?)
    }
}
