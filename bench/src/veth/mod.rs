//! What does `manylane accelerate` gain over the kernel's own router, and what happens when it ends?
//!
//! Three network namespaces on veth links, of this process (`manylane::lab`). The router's kernel forwards, alone
//! or accelerated; both are there at once, in hosts of their own, and are measured in turn (A B, A B, ...).
//!
//! | group     | figures                                                       | what is done                                  |
//! |-----------|---------------------------------------------------------------|-----------------------------------------------|
//! | `rate`    | `kernel_mpps`, `driver_mpps`, `workers_mpps`, `driver_over_kernel`, ... | 64-byte frames, one flow, a few routes, three sinks: `tiers.rs` |
//! |           | `ingress_mpps`, `ingress_over_kernel`                         | the same with the plain sink                  |
//! | `full`    | the same with `_full`                                         | 65,536 flows, the Internet's table            |
//! | `tcp`     | `tcp_kernel_gbps`, `tcp_gbps`, `tcp_over_kernel`, with `_8`   | iperf3, 1 and 8 connections, default offloads |
//! | `latency` | `ping_kernel_p50_us`, `ping_p50_us`, `ping_over_kernel`, `_p99` | ping, the next when the last is answered    |
//! | `idle`    | `idle_percent`                                                | no traffic: of one core, all our threads      |
//! | `gap`     | `gap_kill_ms`, `gap_kill_lost`, `stale_ms`                    | SIGKILL; SIGSTOP and a route that goes        |
//! | `mirror`  | `mirror_load_s`, `mirror_lag_ms`, `mirror_flap_ms`            | the full table; 10,000 changes a second       |
//! | `churn`   | `churn_mpps`, `churn_paused_mpps`, `churn_slowdown`           | the same changes, followed, and not           |
//!
//! `*_over_kernel` is above 1 where manylane is better: for times it is the kernel's by ours. `gap_kill_ms` is the
//! longest time without a datagram around the end; `stale_ms` from a route's removal to the last datagram by it;
//! `mirror_lag_ms` how far the mirror is behind, the 99th percentile of looks.
//!
//! Frames come from a program that the kernel runs on and on (XDP live frames): no gaps, and the cheapest that
//! there is. Their destination is a neighbour whose MAC address nobody has, so that the server drops them first
//! thing: what is measured is the router. Generator and router share a core, as softirqs do on veth.
//!
//! Not asked here: hardware, what `manylane run` does.
//!
//! Needs root, iperf3, and for figures that mean something a machine with nothing else on it.

mod bed;
mod child;
mod end;
mod mirror;
mod rate;
mod tcp;
mod tiers;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use manylane::lab::{Pinger, SERVER_V4, Topology, ping};
use manylane_io::affinity;

use crate::figure::{Output, Rounds, quantile};
use crate::prefixes::Prefixes;
use crate::tcp::{Stop, can_run};
use bed::Bed;

pub use child::serve;
pub use rate::send;

/// How to measure.
pub struct Plan {
    /// One short round.
    pub quick: bool,
    /// How many rounds.
    pub runs: usize,
    /// The table to load; a synthetic one without.
    pub prefixes: Option<PathBuf>,
    /// Only groups whose names begin so.
    pub only: String,
}

impl Plan {
    fn has(&self, group: &str) -> bool {
        group.starts_with(&self.only)
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.runs.max(1) }
    }

    /// How long each frame rate is measured.
    fn slice(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 1500 })
    }

    fn table(&self) -> io::Result<Prefixes> {
        match &self.prefixes {
            Some(path) => Prefixes::read(path),
            None => {
                let mut table = Prefixes::synthetic();
                if self.quick {
                    table.ipv4.truncate(QUICK_TABLE);
                    table.ipv6.truncate(QUICK_TABLE / 5);
                }
                Ok(table)
            }
        }
    }
}

/// Measures and prints, or says why not.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    let cores = affinity::cores()?;
    let &[first, .., last] = &cores[..] else {
        eprintln!("SKIPPED veth: needs two cores");
        return Ok(());
    };
    match measure(plan, output, [first, last]) {
        Err(Stop::NotHere(why)) => {
            eprintln!("SKIPPED veth: {why}");
            Ok(())
        }
        Err(Stop::Failed(why)) => Err(io::Error::other(why)),
        Ok(rounds) => rounds.print(output),
    }
}

fn measure(plan: &Plan, output: &Output, cores: [usize; 2]) -> Result<Rounds, Stop> {
    can_run()?;
    output.note(&format!(
        "generator and router on core {}, TCP's server on core {}",
        cores[0], cores[1]
    ));
    let mut rounds = Rounds::default();
    if plan.has("rate") {
        tiers::measure(plan, &[], "", cores, &mut rounds)?;
    }
    if ["tcp", "latency", "idle"].iter().any(|group| plan.has(group)) {
        small(plan, cores, &mut rounds)?;
    }
    if plan.has("gap") {
        end::measure(plan, &mut rounds)?;
    }
    if ["full", "mirror", "churn"].iter().any(|group| plan.has(group)) {
        full(plan, cores, &mut rounds)?;
    }
    Ok(rounds)
}

/// With a few routes.
fn small(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result<(), Stop> {
    let beds = [Bed::kernel(&[])?, Bed::accelerated(&[])?];
    if plan.has("idle") {
        for _ in 0..plan.rounds() {
            rounds.push("idle_percent", "%", Some(bed::idle_percent(plan.slice())?));
        }
    }
    if plan.has("tcp") {
        tcp::measure(plan, &beds, cores, rounds)?;
    }
    if plan.has("latency") {
        latency(plan, &beds, rounds)?;
    }
    beds.into_iter().try_for_each(Bed::close)
}

/// With the Internet's table.
fn full(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result<(), Stop> {
    let routes = bed::routes(&plan.table()?);
    if plan.has("full") {
        tiers::measure(plan, &routes, "_full", cores, rounds)?;
    }
    if plan.has("mirror") {
        mirror::measure(plan, Bed::accelerated(&routes)?, &routes, rounds)?;
    }
    if plan.has("churn") {
        mirror::churn(plan, &routes, cores[0], rounds)?;
    }
    Ok(())
}

fn latency(plan: &Plan, beds: &[Bed; 2], rounds: &mut Rounds) -> Result<(), Stop> {
    let count = if plan.quick { 200 } else { 20_000 };
    for _ in 0..plan.rounds() {
        for bed in beds {
            let mut times = round_trips(bed.topology(), count)?;
            times.sort_by(f64::total_cmp);
            for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
                let name = format!("ping{}_{name}_us", bed.suffix("_kernel", ""));
                rounds.push(&name, "us", Some(quantile(&times, part)));
            }
        }
    }
    rounds.ratio("ping_over_kernel", "ping_kernel_p50_us", "ping_p50_us");
    rounds.ratio("ping_over_kernel_p99", "ping_kernel_p99_us", "ping_p99_us");
    Ok(())
}

/// Microseconds, of so many pings one after the other.
fn round_trips(topology: &Topology, count: u32) -> Result<Vec<f64>, Stop> {
    let client = topology.host("client");
    ping(client, SERVER_V4, 56, 3).map_err(Stop::failed)?; // Neighbours are known.
    let mut pinger = Pinger::open(client, SERVER_V4).map_err(Stop::failed)?;
    let mut times = Vec::new();
    for _ in 0..count {
        match pinger.ask(56, PATIENCE).map_err(Stop::failed)? {
            manylane::lab::Outcome::Reply { round_trip, is_intact: true, .. } => {
                times.push(round_trip.as_secs_f64() * 1e6);
            }
            other => return Err(Stop::Failed(format!("a ping was not answered: {other:?}"))),
        }
    }
    Ok(times)
}

const QUICK_TABLE: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(30);
