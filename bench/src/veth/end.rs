//! How many packets a killed accelerator loses, and how long a stopped one's tables outlive it.

use manylane_lab::accelerated::Accelerated;
use manylane_lab::{Lab, SERVER_V4, Steady, SteadyOptions, tool};
use nix::sys::signal::Signal;

use super::{Plan, child};
use crate::network::Network;
use crate::prelude::*;
use crate::progress;

pub fn measure(plan: &Plan, rounds: &mut Rounds) -> Result {
    let network = Network::with_routes(1, &[])?;
    let Lab { client, server, router } = &network.lab;
    let options = SteadyOptions { per_second: 5000, ..SteadyOptions::to(SERVER_V4) };
    let stream = Steady::start(client, server, options)?;
    for _ in progress::rounds("kills the accelerator", plan.rounds()) {
        let served = child::start(router, LEASE_MS)?;
        check_that_it_forwards(&served, &stream)?;
        let mark = stream.mark();
        stream.forget_silence();
        stream.after(BEFORE);
        served.signal(Signal::SIGKILL);
        drop(served); // Waits for its end.
        let end = stream.after(AFTER);
        stream.arrives("after the kill");
        let silence = stream.arrivals().longest_silence;
        rounds.push("gap_kill_ms", "ms", Some(silence.as_secs_f64() * 1e3));
        rounds.push("gap_kill_lost", "count", Some(stream.missing(mark..end) as f64));
    }
    for _ in progress::rounds("stops the accelerator", plan.rounds()) {
        let served = child::start(router, LEASE_MS)?;
        check_that_it_forwards(&served, &stream)?;
        served.signal(Signal::SIGSTOP);
        tool(router, &format!("ip route add blackhole {SERVER_V4}/32"))?;
        let gone = Instant::now();
        stream.after(AFTER);
        rounds.push("stale_ms", "ms", Some(stream.last_after(gone).as_secs_f64() * 1e3));
        drop(served);
        tool(router, &format!("ip route del blackhole {SERVER_V4}/32"))?;
        stream.arrives("the route is back");
    }
    Ok(())
}

fn check_that_it_forwards(served: &Accelerated, stream: &Steady) -> Result {
    stream.arrives("accelerated");
    let before = served.forwarded();
    stream.after(BEFORE);
    match served.forwarded() - before {
        0 => Err(format!("the accelerator forwards nothing: {:#?}", served.ports()).into()),
        _ => Ok(()),
    }
}

/// The default.
const LEASE_MS: u64 = 200;
/// Datagrams before the end, and after it: a tenth of a second, and three leases.
const BEFORE: u64 = 500;
const AFTER: u64 = 3000;
