//! How fast the mirror reads a full table, how far it lags, and what following the kernel costs the forwarding.

use manylane_accelerate::accelerator::Options;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Change;
use manylane_lab::load::{by_nobody, rate};
use manylane_lab::{Flows, Host, Lab, Steady, SteadyOptions, tool};
use nix::sys::signal::Signal;

use super::{Plan, child};
use crate::network::{Network, PORTS, meanwhile};
use crate::prelude::*;
use crate::progress;

/// Loading, lag and the flap of a default route, by an accelerator of this process.
pub fn measure(plan: &Plan, routes: &[(IpAddr, u8)], rounds: &mut Rounds) -> Result {
    let mut network = Network::with_routes(1, routes)?;
    for _ in progress::rounds("copies the table", plan.rounds()) {
        network.stop()?;
        let took = network.accelerate(Options::new(PORTS))?;
        rounds.push("mirror_load_s", "s", Some(took.as_secs_f64()));
    }
    for _ in progress::rounds("removes the default route", plan.rounds()) {
        flap(&network.lab, rounds)?;
    }
    let source = network.accelerator().expect("it is accelerated");
    for _ in progress::rounds("follows changes", plan.rounds()) {
        let mut lags = Vec::new();
        let ((), per_second) = while_changing(&network.lab.router, routes, || {
            let begun = Instant::now();
            while begun.elapsed() < plan.slice() * 2 {
                thread::sleep(LOOK);
                let mirror = source.mirror().map_err(|error| format!("{error:?}"))?;
                lags.push(mirror.verified_ms_ago as f64);
            }
            Ok(())
        })?;
        lags.sort_by(f64::total_cmp);
        rounds.push("mirror_lag_ms", "ms", Some(quantile(&lags, 0.99)));
        rounds.push("mirror_changes_per_s", "1/s", Some(per_second));
    }
    let diff = source.diff().map_err(|error| format!("{error:?}"))?;
    match &diff[..] {
        [] => network.close(),
        lines => Err(format!("the mirror differs: {}", lines.join("; ")).into()),
    }
}

/// The time from a default route's removal to the last datagram by it.
fn flap(Lab { client, router, server }: &Lab, rounds: &mut Rounds) -> Result {
    tool(server, &format!("ip addr replace {BY_DEFAULT}/32 dev lo"))?;
    tool(router, "ip route replace default via 10.2.0.1")?;
    let to = BY_DEFAULT.parse().expect("it is an address");
    let options = SteadyOptions { per_second: 5000, ..SteadyOptions::to(to) };
    let stream = Steady::start(client, server, options)?;
    stream.arrives("by the default route");
    tool(router, "ip route del default via 10.2.0.1")?;
    let gone = Instant::now();
    stream.after(2500);
    rounds.push("mirror_flap_ms", "ms", Some(stream.last_after(gone).as_secs_f64() * 1e3));
    tool(router, "ip route add default via 10.2.0.1")?;
    stream.arrives("the default route is back");
    Ok(())
}

/// Forwarding while 10,000 routes a second change: with a mirror that follows, and with one that is paused.
pub fn churn(plan: &Plan, routes: &[(IpAddr, u8)], core: usize, rounds: &mut Rounds) -> Result {
    let network = Network::with_routes(1, routes)?;
    let lab = &network.lab;
    // The lease outlasts the pauses: the program forwards on, by tables that no longer follow the kernel.
    let served = child::start(&lab.router, 3_600_000)?;
    let _generator = lab.generate(&Flows::ipv4(), 1, core)?;
    for _ in progress::rounds("forwards during changes", plan.rounds()) {
        for (name, is_paused) in [("churn", false), ("churn_paused", true)] {
            if is_paused {
                served.signal(Signal::SIGSTOP);
            }
            let measured = while_changing(&lab.router, routes, || {
                let (frames, elapsed) = rate(plan.slice(), || lab.received())?;
                Ok(frames / elapsed / 1e6)
            });
            served.signal(Signal::SIGCONT);
            let (mpps, per_second) = measured?;
            rounds.push(&format!("{name}_mpps"), "Mpps", Some(mpps));
            rounds.push(&format!("{name}_changes_per_s"), "1/s", Some(per_second));
            // The mirror follows again before the next round.
            // A mirror that reads all tables anew does not answer.
            if !served.try_diff().is_ok_and(|lines| lines.is_empty()) {
                thread::sleep(CATCH_UP);
            }
        }
        let both = rounds.last("churn_mpps").zip(rounds.last("churn_paused_mpps"));
        let slowdown = both.map(|(followed, paused)| (1.0 - followed / paused) * 100.0);
        rounds.push("churn_slowdown", "%", slowdown);
    }
    Ok(())
}

/// Does `work` while another thread changes routes of the real mix from one neighbour to the other and back, 10,000 a
/// second as far as it can. Returns also how many a second it changed.
fn while_changing<T>(
    router: &Host,
    routes: &[(IpAddr, u8)],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let mut netlink = router.run(Netlink::open)?;
    let link = netlink.link("wan")?.index;
    let only_v4: Vec<_> = routes.iter().filter(|(address, _)| address.is_ipv4()).copied().collect();
    let begun = Instant::now();
    let (mut random, mut turn, mut count) = (Random(0x9e37_79b9_7f4a_7c15), 0, 0);
    let change = || {
        let changes: Vec<_> = (0..AT_ONCE)
            .map(|_| only_v4[random.below(only_v4.len())])
            .map(|prefix| (Change::Replace, by_nobody(link, prefix, turn % 2)))
            .collect();
        count += netlink.change_routes(changes)?.done;
        turn += 1;
        thread::sleep((EACH * turn as u32).saturating_sub(begun.elapsed()));
        Ok(())
    };
    let done = meanwhile(change, work)?;
    Ok((done, count as f64 / begun.elapsed().as_secs_f64()))
}

/// 10,000 a second.
const AT_ONCE: usize = 100;
const EACH: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(5);
/// For a mirror that reads everything anew.
const CATCH_UP: Duration = Duration::from_secs(5);
/// In no network of the lab, nor in the table: for benchmarks (RFC 2544).
const BY_DEFAULT: &str = "198.18.0.1";
