//! How fast is one TCP connection through manylane, beside the kernel's own forwarding?
//!
//! iperf3 between two hosts' kernels, their offloads at their defaults, with a third host in the middle
//! (`manylane::lab`: three network namespaces on veth links, of this process). What is in the middle:
//!
//! | name           | the router                                      | what the hosts send             |
//! |----------------|-------------------------------------------------|---------------------------------|
//! | `af_packet`    | manylane as it comes, by packet sockets         | segments of up to 64 KiB        |
//! | `af_xdp`       | the same by AF_XDP                              | packets of the MTU: 1500 bytes  |
//! | `kernel`       | the kernel of the same namespace                | segments of up to 64 KiB        |
//! | `af_xdp_jumbo` | as `af_xdp`, all links' MTU 9000, larger frames | packets of the MTU: 9000 bytes  |
//!
//! Each is measured in each round (A B C D, A B C D, ...), the first three by IPv4 and by IPv6:
//!
//! - `tcp_<name>_gbps`: what the server's program got.
//! - `tcp_<name>_retransmits`: segments that the client's kernel sent again.
//! - `tcp_<name>_cpu_s_per_gb`: seconds of all cores, for 10^9 bytes: of hosts, router and whatever else
//!   ran, and of softirqs, which the kernel counts as nobody's. `/proc/stat` has ticks of 10 ms.
//! - `tcp_<name>_worker_s_per_gb`: seconds of manylane's workers, for 10^9 bytes, with the softirqs that
//!   ran in their system calls: a part of the server's receiving. Who else ran meanwhile is not in it.
//! - `tcp_<name>_packet_bytes`: mean length of what manylane received from the client.
//! - `tcp_<name>_lost`: packets that manylane, or its queues, lost meanwhile.
//! - `<name>_over_kernel`: the first by the kernel's, round by round.
//!
//! By IPv6 it is `tcp_<name>_v6_...`. The client has the first core, the server the last, as has, by
//! the product's default, one worker: on two cores these two share one, and the client's softirqs, which
//! receive for the router, run on the other.
//!
//! Not asked here: many connections, wires, what the hosts' kernels could do alone.
//!
//! Needs root, iperf3, and for figures that mean something a machine with nothing else on it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use manylane::api::Source;
use manylane::config::ConfigError;
use manylane::control::{Daemon, StartError};
use manylane::lab::{Lab, LabError, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, ping};
use manylane_io::affinity;
use manylane_io::netlink::Netlink;
use serde_json::Value;

use crate::figure::{Output, Rounds};

/// How to measure.
pub struct Plan {
    /// One round of a second each.
    pub quick: bool,
    /// How many rounds.
    pub runs: usize,
    /// How long each connection lasts.
    pub seconds: u32,
    /// manylane's workers, on the last cores.
    pub workers: u16,
    /// Only ways whose names begin so.
    pub row: String,
}

/// Measures and prints, or says why not.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    let cores = affinity::cores()?;
    let (&[first, ..], &[.., last]) = (&cores[..], &cores[..]) else {
        unreachable!("we run on one")
    };
    match measure(plan, output, [first, last]) {
        Err(Stop::NotHere(why)) => {
            eprintln!("SKIPPED tcp: {why}");
            Ok(())
        }
        Err(Stop::Failed(why)) => Err(io::Error::other(why)),
        Ok(rounds) => rounds.print(output),
    }
}

fn measure(plan: &Plan, output: &Output, cores: [usize; 2]) -> Result<Rounds, Stop> {
    can_run()?;
    let wanted: Vec<&Way> = WAYS.iter().filter(|way| way.name.starts_with(&plan.row)).collect();
    let beds = wanted
        .iter()
        .map(|way| Bed::make(way, plan.workers, cores))
        .collect::<Result<Vec<_>, _>>()?;
    output.note(&format!(
        "client on core {}, server on core {}, {} worker(s) on the last core(s)",
        cores[0], cores[1], plan.workers
    ));
    let mut rounds = Rounds::default();
    for _ in 0..if plan.quick { 1 } else { plan.runs.max(1) } {
        for bed in &beds {
            for (suffix, destination) in bed.way.families {
                let name = format!("tcp_{}{suffix}", bed.way.name);
                bed.transfer(*destination, if plan.quick { 1 } else { plan.seconds }, 1)?
                    .push(&mut rounds, &name);
            }
        }
    }
    beds.into_iter().try_for_each(Bed::close)?;
    if plan.row.is_empty() {
        for (way, family) in
            [("af_packet", ""), ("af_xdp", ""), ("af_packet", "_v6"), ("af_xdp", "_v6")]
        {
            rounds.ratio(
                &format!("{way}_over_kernel{family}"),
                &format!("tcp_{way}{family}_gbps"),
                &format!("tcp_kernel{family}_gbps"),
            );
        }
    }
    Ok(rounds)
}

/// What is in the middle.
pub struct Way {
    /// What figures call it.
    pub name: &'static str,
    /// manylane's driver; without it, the kernel forwards.
    pub driver: Option<&'static str>,
    /// Whether packets may have 9000 bytes.
    pub jumbo: bool,
    /// Where connections go, and what the names of their figures end in.
    pub families: &'static [(&'static str, IpAddr)],
}

const BOTH: &[(&str, IpAddr)] = &[("", SERVER_V4), ("_v6", SERVER_V6)];

const WAYS: [Way; 4] = [
    Way { name: "af_packet", driver: Some("af_packet"), jumbo: false, families: BOTH },
    Way { name: "af_xdp", driver: Some("af_xdp"), jumbo: false, families: BOTH },
    Way { name: "kernel", driver: None, jumbo: false, families: BOTH },
    Way { name: "af_xdp_jumbo", driver: Some("af_xdp"), jumbo: true, families: &[("", SERVER_V4)] },
];

/// Three hosts and what is in the middle. Between transfers all of it sleeps.
pub struct Bed {
    way: &'static Way,
    // The fields drop in order: the server's end and the daemon's need the hosts.
    _server: Server,
    daemon: Option<Daemon>,
    lab: Lab,
}

impl Bed {
    /// Makes them, with so many workers, and the hosts on these cores.
    pub fn make(way: &'static Way, workers: u16, [first, last]: [usize; 2]) -> Result<Bed, Stop> {
        let kernel_router = way.driver.is_none();
        let lab = Lab::three_hosts(LabOptions { kernel_router, ..LabOptions::default() })?;
        if way.jumbo {
            make_jumbo(&lab)?;
        }
        let daemon = match way.driver {
            None => None,
            Some(driver) => {
                let more = if way.jumbo { "[frames]\nsize = 4096\n" } else { "" }.into();
                let drivers = [driver; 2];
                let options = RouterOptions { workers, drivers, more, ..RouterOptions::default() };
                let config = lab.config(&options)?;
                Some(lab.router.run(move || Daemon::start(config))?)
            }
        };
        // What a host starts has the core of its thread.
        lab.client.run(move || affinity::pin(first))?;
        lab.server.run(move || affinity::pin(last))?;
        let server = Server::start(&lab)?;
        for (_, destination) in way.families {
            ping(&lab.client, *destination, 56, 3).map_err(Stop::failed)?; // Neighbours are known.
        }
        Ok(Bed { way, _server: server, daemon, lab })
    }

    /// What the daemon says, if there is one.
    pub fn source(&self) -> Option<Arc<dyn Source>> {
        self.daemon.as_ref().map(Daemon::source)
    }

    /// The hosts.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Sends for so long, by so many connections at once.
    pub fn transfer(
        &self,
        destination: IpAddr,
        seconds: u32,
        connections: u32,
    ) -> Result<Transfer, Stop> {
        let source = self.source();
        let before = (source.as_deref().map(Passed::now), busy_s()?, workers_s()?);
        // More than a client needs that waits for nothing.
        let patience = (seconds + 20).to_string();
        let mut command = mortal("timeout");
        command.args(["--signal", "KILL", &patience, "setpriv", "--pdeathsig", "KILL", "iperf3"]);
        command.args(["--json", "--connect-timeout", "5000", "--time", &seconds.to_string()]);
        command.args(["--client", &destination.to_string()]);
        command.args(["--parallel", &connections.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let output = self.lab.client.run(move || command.output())?;
        let (busy_s, workers_s) = (busy_s()? - before.1, workers_s()? - before.2);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let end = &said["end"];
        let received = &end["sum_received"];
        let (Some(bits_per_second), Some(bytes), Some(retransmits)) = (
            received["bits_per_second"].as_f64(),
            received["bytes"].as_f64(),
            end["sum_sent"]["retransmits"].as_f64(),
        ) else {
            return Err(self.broken(destination, output.status, &said["error"]));
        };
        if bytes == 0.0 {
            return Err(self.broken(destination, output.status, &"nothing arrived".into()));
        }
        let passed = source.map(|source| Passed::now(&*source)).zip(before.0);
        Ok(Transfer {
            gbps: bits_per_second / 1e9,
            retransmits,
            cpu_s_per_gb: busy_s / (bytes / 1e9),
            worker_s_per_gb: workers_s / (bytes / 1e9),
            passed: passed.map(|(after, before)| after.since(&before)),
        })
    }

    fn broken(&self, destination: IpAddr, status: ExitStatus, error: &Value) -> Stop {
        Stop::Failed(format!("{} to {destination}: iperf3: {error} ({status})", self.way.name))
    }

    /// Ends it all. An error says that packets or frames are nowhere.
    pub fn close(self) -> Result<(), Stop> {
        let Bed { way, daemon, lab, .. } = self;
        let Some(daemon) = daemon else { return Ok(()) };
        let ledger = lab.router.run(move || daemon.stop());
        match (ledger.missing, ledger.frames.missing) {
            (0, 0) => Ok(()),
            _ => Err(Stop::Failed(format!(
                "{}: packets or frames are missing: {ledger:#?}",
                way.name
            ))),
        }
    }
}

fn make_jumbo(lab: &Lab) -> Result<(), Stop> {
    for (host, links) in
        [(&lab.client, &["eth0"][..]), (&lab.router, &["lan", "wan"]), (&lab.server, &["eth0"])]
    {
        let mtus = move || {
            let mut netlink = Netlink::open()?;
            links.iter().try_for_each(|link| netlink.set_mtu(link, 9000))
        };
        host.run(mtus).map_err(Stop::failed)?;
    }
    Ok(())
}

/// A program that the kernel ends when its parent ends, whatever ends that.
pub fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// iperf3, serving one connection after the other.
struct Server(Child);

impl Server {
    fn start(lab: &Lab) -> Result<Server, Stop> {
        let mut command = mortal("iperf3");
        command.args(["--server", "--forceflush"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = lab.server.run(move || command.spawn())?;
        let stdout = child.stdout.take().expect("it is a pipe");
        let server = Server(child);
        let mut lines = BufReader::new(stdout).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("listening"))) {
            return Err(Stop::Failed("iperf3 does not serve".into()));
        }
        // What it says of transfers nobody reads, and it must not wait for us.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a connection was like, or several.
pub struct Transfer {
    /// Goodput, of all together.
    pub gbps: f64,
    /// Segments sent again.
    pub retransmits: f64,
    cpu_s_per_gb: f64,
    worker_s_per_gb: f64,
    /// What manylane saw of it.
    passed: Option<Passed>,
}

impl Transfer {
    fn push(&self, rounds: &mut Rounds, name: &str) {
        let mut push = |what: &str, unit, value| {
            rounds.push(&format!("{name}_{what}"), unit, Some(value));
        };
        push("gbps", "Gb/s", self.gbps);
        push("retransmits", "count", self.retransmits);
        push("cpu_s_per_gb", "s/GB", self.cpu_s_per_gb);
        if let Some(passed) = &self.passed {
            push("worker_s_per_gb", "s/GB", self.worker_s_per_gb);
            push("packet_bytes", "B", passed.bytes as f64 / passed.packets.max(1) as f64);
            push("lost", "count", passed.lost as f64);
        }
    }
}

/// Counters of manylane's.
struct Passed {
    /// Of the port to the client.
    packets: u64,
    bytes: u64,
    /// Of both ports.
    lost: u64,
}

impl Passed {
    fn now(source: &dyn Source) -> Passed {
        let ports = source.ports();
        let lost = |port: &manylane::api::PortStatus| {
            let of_queues = port.lost_ring_full + port.lost_no_buffer + port.lost_invalid;
            of_queues + port.lost_transmit + port.dropped.values().sum::<u64>()
        };
        Passed {
            packets: ports[0].received,
            bytes: ports[0].received_bytes,
            lost: ports.iter().map(lost).sum(),
        }
    }

    fn since(&self, before: &Passed) -> Passed {
        Passed {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            lost: self.lost - before.lost,
        }
    }
}

/// Seconds that all cores have been busy since the machine started, interrupts included.
fn busy_s() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    Ok(busy_ticks(&stat).ok_or_else(|| io::Error::other("/proc/stat has no sum"))? as f64 / 100.0)
}

/// proc_stat(5): `cpu user nice system idle iowait irq softirq steal ...`, in ticks (USER_HZ: 100).
fn busy_ticks(stat: &str) -> Option<u64> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = &ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

/// Seconds that the workers' threads of this process have run, to the nanosecond (schedstats.rst).
fn workers_s() -> io::Result<f64> {
    let mut ns = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // One that has just ended has no name.
        if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-")) {
            let said = fs::read_to_string(task.join("schedstat"))?;
            ns += said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(ns as f64 / 1e9)
}

/// Whether this user and this machine have what it takes.
pub fn can_run() -> Result<(), Stop> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err(Stop::NotHere("needs root".into()));
    }
    for program in ["iperf3", "setpriv", "timeout"] {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            return Err(Stop::NotHere(format!("{program} is not installed")));
        }
    }
    Ok(())
}

/// Why there are no figures.
pub enum Stop {
    /// This machine has not what it takes.
    NotHere(String),
    /// It should have worked.
    Failed(String),
}

impl Stop {
    /// It should have worked.
    pub fn failed(error: impl std::error::Error) -> Stop {
        Stop::Failed(error.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::failed(error)
    }
}

impl From<ConfigError> for Stop {
    fn from(error: ConfigError) -> Stop {
        Stop::failed(error)
    }
}

impl From<LabError> for Stop {
    fn from(error: LabError) -> Stop {
        Stop::NotHere(error.to_string())
    }
}

impl From<StartError> for Stop {
    fn from(error: StartError) -> Stop {
        match error.is_unavailable() {
            true => Stop::NotHere(error.to_string()),
            false => Stop::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        assert_eq!(busy_ticks("intr 1 2 3"), None);
    }
}
