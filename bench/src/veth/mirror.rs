//! How fast the mirror reads a full table, how far it is behind, and what following costs those who forward.
#![expect(clippy::disallowed_types, reason = "threads of the bench, not of the product")]

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use manylane::accelerate::Options;
use manylane::lab::{Host, Steady, SteadyOptions};
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Change;
use manylane_sync::primitive::{AtomicBool, AtomicU64, Ordering};
use nix::sys::signal::Signal;

use super::Plan;
use super::bed::{Bed, PORTS, route};
use super::child::Served;
use super::rate::{Generator, rate};
use crate::baseline::live::Flows;
use crate::figure::{Rounds, quantile};
use crate::prefixes::Random;
use crate::tcp::Stop;

/// Loading, lag and the flap of a default route, by an accelerator of this process.
pub fn measure(
    plan: &Plan,
    mut bed: Bed,
    routes: &[(IpAddr, u8)],
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    for _ in 0..plan.rounds() {
        bed.stop()?;
        let took = bed.accelerate(Options::new(PORTS))?;
        rounds.push("mirror_load_s", "s", Some(took.as_secs_f64()));
    }
    for _ in 0..plan.rounds() {
        flap(&bed, rounds)?;
    }
    let source = bed.source().expect("it is accelerated");
    for _ in 0..plan.rounds() {
        let mut lags = Vec::new();
        let done = while_changing(bed.topology().host("r1"), routes, || {
            let begun = Instant::now();
            while begun.elapsed() < plan.slice() * 2 {
                thread::sleep(LOOK);
                let mirror = source.mirror().map_err(|error| Stop::Failed(format!("{error:?}")))?;
                lags.push(mirror.true_ms_ago as f64);
            }
            Ok(())
        })?;
        lags.sort_by(f64::total_cmp);
        rounds.push("mirror_lag_ms", "ms", Some(quantile(&lags, 0.99)));
        rounds.push("mirror_changes_per_s", "1/s", Some(done.per_second));
    }
    let diff = source.diff().map_err(|error| Stop::Failed(format!("{error:?}")))?;
    match &diff[..] {
        [] => bed.close(),
        lines => Err(Stop::Failed(format!("the mirror differs: {}", lines.join("; ")))),
    }
}

/// From a default route's end to the last datagram by it, and from its return to the first.
fn flap(bed: &Bed, rounds: &mut Rounds) -> Result<(), Stop> {
    let topology = bed.topology();
    let tool = |host, line: String| topology.try_tool(host, &line).map_err(Stop::failed);
    tool("server", format!("ip addr replace {BY_DEFAULT}/32 dev lo"))?;
    tool("r1", "ip route replace default via 10.2.0.1".into())?;
    let to = BY_DEFAULT.parse().expect("it is an address");
    let options = SteadyOptions { per_second: 5000, ..SteadyOptions::to(to) };
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let stream = Steady::start(client, server, options).map_err(Stop::failed)?;
    stream.arrives("by the default route");
    tool("r1", "ip route del default via 10.2.0.1".into())?;
    let gone = Instant::now();
    stream.after(2500);
    let last =
        stream.arrivals().last.map_or(Duration::ZERO, |last| last.saturating_duration_since(gone));
    rounds.push("mirror_flap_ms", "ms", Some(last.as_secs_f64() * 1e3));
    tool("r1", "ip route add default via 10.2.0.1".into())?;
    stream.arrives("the default route is back");
    Ok(())
}

/// Forwarding while 10,000 routes a second change: with a mirror that follows, and with one that is paused.
pub fn churn(
    plan: &Plan,
    routes: &[(IpAddr, u8)],
    core: usize,
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    let bed = Bed::kernel(routes)?;
    let router = bed.topology().host("r1");
    // The lease outlasts the pauses: its program goes on by tables that are not followed any more.
    let served = Served::start(router, 3_600_000)?;
    let _generator = Generator::start(bed.topology(), Flows::Destinations, core)?;
    for _ in 0..plan.rounds() {
        for (name, is_paused) in [("churn_mpps", false), ("churn_paused_mpps", true)] {
            if is_paused {
                served.signal(Signal::SIGSTOP)?;
            }
            let mut mpps = 0.0;
            let measured = while_changing(router, routes, || {
                let (frames, elapsed) = rate(plan.slice(), || bed.received())?;
                mpps = frames / elapsed / 1e6;
                Ok(())
            });
            served.signal(Signal::SIGCONT)?;
            rounds.push(name, "Mpps", Some(mpps));
            let what = if is_paused { "churn_paused_changes_per_s" } else { "churn_changes_per_s" };
            rounds.push(what, "1/s", Some(measured?.per_second));
            // It follows again before the next round.
            let diff: Vec<String> = served.ask("/v1/accelerate/mirror/diff")?;
            if !diff.is_empty() {
                thread::sleep(CATCH_UP);
            }
        }
        let (followed, paused) = (rounds.last("churn_mpps"), rounds.last("churn_paused_mpps"));
        let slowdown =
            followed.zip(paused).map(|(followed, paused)| (1.0 - followed / paused) * 100.0);
        rounds.push("churn_slowdown", "%", slowdown);
    }
    Ok(())
}

/// What was changed meanwhile.
struct Done {
    per_second: f64,
}

/// Does `work` while another thread changes routes of the real mix from one neighbour to another and back, 10,000 a
/// second as far as it can.
fn while_changing(
    router: &Host,
    routes: &[(IpAddr, u8)],
    work: impl FnOnce() -> Result<(), Stop>,
) -> Result<Done, Stop> {
    let mut netlink = router.run(Netlink::open).map_err(Stop::failed)?;
    let link = netlink.link("wan").map_err(Stop::failed)?.index;
    let only_v4: Vec<_> = routes.iter().filter(|(address, _)| address.is_ipv4()).copied().collect();
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            let mut turn = 0;
            while !is_over.load(Ordering::Relaxed) {
                let changes: Vec<_> = (0..AT_ONCE)
                    .map(|_| only_v4[random.below(only_v4.len())])
                    .map(|prefix| (Change::Replace, route(link, prefix, turn % 2)))
                    .collect();
                let changed = netlink.change_routes(changes).map_err(Stop::failed)?;
                count.fetch_add(changed.done, Ordering::Relaxed);
                turn += 1;
                thread::sleep((EACH * turn as u32).saturating_sub(begun.elapsed()));
            }
            Ok::<(), Stop>(())
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        changer.join().expect("it does not panic")?;
        done
    })?;
    let per_second = count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    Ok(Done { per_second })
}

/// 10,000 a second.
const AT_ONCE: usize = 100;
const EACH: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(5);
/// For a mirror that reads all anew.
const CATCH_UP: Duration = Duration::from_secs(5);
/// In no network of the lab, nor in the table: for benchmarks (RFC 2544).
const BY_DEFAULT: &str = "198.18.0.1";
