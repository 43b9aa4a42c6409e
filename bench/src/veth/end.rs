//! What is lost when an accelerator is killed, and how long tables outlive one that is stopped.

use std::time::{Duration, Instant};

use manylane::lab::{SERVER_V4, Steady, SteadyOptions};
use nix::sys::signal::Signal;

use super::Plan;
use super::bed::Bed;
use super::child::Served;
use crate::figure::Rounds;
use crate::tcp::Stop;

/// Both, round by round.
pub fn measure(plan: &Plan, rounds: &mut Rounds) -> Result<(), Stop> {
    let bed = Bed::kernel(&[])?;
    let topology = bed.topology();
    let [client, server, router] = ["client", "server", "r1"].map(|name| topology.host(name));
    let options = SteadyOptions { per_second: 5000, ..SteadyOptions::to(SERVER_V4) };
    let stream = Steady::start(client, server, options).map_err(Stop::failed)?;
    for _ in 0..plan.rounds() {
        let served = Served::start(router, LEASE_MS)?;
        goes_the_fast_way(&served, &stream)?;
        let mark = stream.mark();
        stream.forget_silence();
        stream.after(BEFORE);
        served.signal(Signal::SIGKILL)?;
        drop(served); // It waits for the end.
        let end = stream.after(AFTER);
        stream.arrives("after the kill");
        let silence = stream.arrivals().longest_silence;
        rounds.push("gap_kill_ms", "ms", Some(silence.as_secs_f64() * 1e3));
        rounds.push("gap_kill_lost", "count", Some(stream.missing(mark..end) as f64));
    }
    for _ in 0..plan.rounds() {
        let served = Served::start(router, LEASE_MS)?;
        goes_the_fast_way(&served, &stream)?;
        served.signal(Signal::SIGSTOP)?;
        let tool = |line: &str| topology.try_tool("r1", line).map_err(Stop::failed);
        tool(&format!("ip route add blackhole {SERVER_V4}/32"))?;
        let gone = Instant::now();
        stream.after(AFTER);
        let last = stream
            .arrivals()
            .last
            .map_or(Duration::ZERO, |last| last.saturating_duration_since(gone));
        rounds.push("stale_ms", "ms", Some(last.as_secs_f64() * 1e3));
        drop(served);
        tool(&format!("ip route del blackhole {SERVER_V4}/32"))?;
        stream.arrives("the route is back");
    }
    Ok(())
}

fn goes_the_fast_way(served: &Served, stream: &Steady) -> Result<(), Stop> {
    stream.arrives("accelerated");
    let ports =
        || served.ask::<Vec<manylane::api::accelerate::AcceleratedPort>>("/v1/accelerate/ports");
    let before: u64 = ports()?.iter().map(|port| port.forwarded).sum();
    stream.after(BEFORE);
    let after: u64 = ports()?.iter().map(|port| port.forwarded).sum();
    match after - before {
        0 => Err(Stop::Failed(format!("nothing is forwarded by us: {:#?}", ports()?))),
        _ => Ok(()),
    }
}

/// The default.
const LEASE_MS: u64 = 200;
/// Datagrams before the end, and after it: a tenth of a second, and three leases.
const BEFORE: u64 = 500;
const AFTER: u64 = 3000;
