//! What does `manylane accelerate` gain over the kernel's own router, and what happens when it ends?
//!
//! Three network namespaces on veth links, of this process (`manylane_lab`). The router's kernel forwards, alone
//! or accelerated; both are there at once, in hosts of their own, and are measured in turn (A B, A B, ...).
//!
//! | group     | figures                                                       | what is done                                  |
//! |-----------|---------------------------------------------------------------|-----------------------------------------------|
//! | `rate`    | `kernel_mpps`, `driver_mpps`, `workers_mpps`, `driver_over_kernel`, ... | 64-byte frames, one flow, a few routes, three sinks: `tiers.rs` |
//! |           | `ingress_mpps`, `ingress_over_kernel`                         | `rate` with the plain sink                    |
//! | `full`    | those of `rate` with `_full`                                  | 65,536 flows, the Internet's table            |
//! | `tcp`     | `tcp_kernel_gbps`, `tcp_gbps`, `tcp_over_kernel`, with `_8`   | iperf3, 1 and 8 connections, default offloads |
//! | `latency` | `ping_kernel_p50_us`, `ping_p50_us`, `ping_over_kernel`, `_p99` | ping, the next when the last is answered    |
//! | `idle`    | `idle_percent`                                                | no traffic: of one core, all our threads      |
//! | `gap`     | `gap_kill_ms`, `gap_kill_lost`, `stale_ms`                    | SIGKILL; SIGSTOP and a route that goes        |
//! | `mirror`  | `mirror_load_s`, `mirror_lag_ms`, `mirror_flap_ms`            | the full table; 10,000 changes a second       |
//! | `churn`   | `churn_mpps`, `churn_paused_mpps`, `churn_slowdown`           | the same changes, followed, and not           |
//!
//! By name only, for the lane of connections (`stateful/`):
//!
//! | group           | figures                                          | what is done                                  |
//! |-----------------|--------------------------------------------------|-----------------------------------------------|
//! | `stateful`      | `flows_driver_over_kernel`, `flow_cost_ns`, ...  | settled connections, a firewall or masquerade |
//! | `stateful_full` | those with `_full`                               | those rows by the Internet's table            |
//! | `admission`     | `admitted_per_cpu_s`, `admitted_per_s`, ...      | the lane takes 65,536 settled connections in  |
//! | `stateful_end`  | `flow_end_ms`, `flow_end_count`                  | a connection is deleted while it is forwarded |
//! | `stateful_tcp`  | those of `tcp` with `tcp_nat`                    | `tcp` through masquerade, at tcx              |
//!
//! What observation costs (`observed/`):
//!
//! | group              | figures                                           | what is done                                        |
//! |--------------------|---------------------------------------------------|-----------------------------------------------------|
//! | `observed_sflow`   | `sflow_cost_driver`, `sflow_cost_ingress`         | `rate`, with and without samples for a collector    |
//! | `observed_ipfix`   | `ipfix_cost_driver`, `ipfix_cost_ingress`         | settled connections, with and without flow records  |
//! | `observed_capture` | `capture_cost_driver_ns`, `capture_lossless_...`  | captures of nothing and of all packets; tcpdump     |
//!
//! `*_over_kernel` is above 1 where manylane is better: for times it is the kernel's by ours. `gap_kill_ms` is the
//! longest time without a datagram around the end; `stale_ms` from a route's removal to the last datagram by it;
//! `mirror_lag_ms` how far the mirror is behind, the 99th percentile of looks.
//!
//! A program that the kernel runs on and on makes the frames (XDP live frames): no gaps, and no source is cheaper.
//! Their destination is a neighbour whose MAC address no host has, so that the server drops them at once: the router is
//! what is measured. Generator and router share a core, as softirqs do on veth.
//!
//! Not measured here: hardware, what `manylane run` does.
//!
//! Needs root, iperf3, and for figures that mean something a machine with nothing else on it.

mod child;
mod end;
mod mirror;
mod observed;
mod pairs;
mod place;
mod stateful;
mod tiers;

use std::path::PathBuf;

use manylane_accelerate::accelerator::{Options, TierChoice};
use manylane_lab::crossing::prefixes_of;
use manylane_lab::load::threads_s;
use manylane_lab::{Lab, Outcome, Pinger, Rules, SERVER_V4, ping};

use crate::network::{Network, PORTS, ask, is_unavailable, needs};
use crate::prelude::*;
use crate::progress;

/// What does `manylane accelerate` gain over the kernel's router, and what happens when it ends?
#[derive(clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    table: Table,
    /// Only groups whose names begin so: rate, full, tcp, latency, idle, gap, mirror, churn, stateful, stateful_full,
    /// admission, stateful_end, stateful_tcp, observed_sflow, observed_ipfix, observed_capture
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    /// The child that accelerates: its API's socket
    #[arg(long, hide = true)]
    serve: Option<PathBuf>,
    /// The child's lease in milliseconds
    #[arg(long, hide = true, default_value_t = 200)]
    lease: u64,
}

/// The groups, and under which name the bound of each is known: groups of one name share networks.
const GROUPS: [(&str, &str); 16] = [
    ("rate", "veth/rate"),
    ("tcp", "veth/few"),
    ("latency", "veth/few"),
    ("idle", "veth/few"),
    ("gap", "veth/gap"),
    ("full", "veth/full"),
    ("mirror", "veth/mirror"),
    ("churn", "veth/churn"),
    ("stateful", "veth/stateful"),
    ("stateful_full", "veth/stateful_full"),
    ("admission", "veth/admission"),
    ("stateful_end", "veth/stateful_end"),
    ("stateful_tcp", "veth/stateful_tcp"),
    ("observed_sflow", "veth/observed_sflow"),
    ("observed_ipfix", "veth/observed_ipfix"),
    ("observed_capture", "veth/observed_capture"),
];

/// The bounds of the groups whose names begin so.
pub fn bounds_of(only: &str) -> Vec<&'static str> {
    let wanted = GROUPS.iter().filter(|(group, _)| group.starts_with(only));
    let mut bounds: Vec<_> = wanted.map(|(_, bound)| *bound).collect();
    bounds.dedup();
    bounds
}

impl Plan {
    fn questions(&self) -> Vec<&'static str> {
        bounds_of(&self.only)
    }

    fn has(&self, groups: &[&str]) -> bool {
        groups.iter().any(|group| group.starts_with(&self.only))
    }

    fn rounds(&self) -> usize {
        self.pace.rounds(1, 7, 1)
    }

    /// Rounds of each kind of flows: they are many kinds.
    fn flow_rounds(&self) -> usize {
        self.pace.rounds(1, 3, 1)
    }

    /// The figure of a measurement that is refused, by the inner error, where the kernel forwarded too many of the frames.
    ///
    /// The kernel forwards while other programs keep the accelerator from a core for longer than the lease. A tiny run
    /// shows that everything works, not that the machine is quiet, so it takes a refused figure again.
    fn attempt<T>(&self, mut measure: impl FnMut() -> Result<Result<T, String>>) -> Result<T> {
        let mut left = if self.pace.quick { QUICK_ATTEMPTS } else { 1 };
        loop {
            left -= 1;
            match measure()? {
                Ok(figure) => return Ok(figure),
                Err(cause) if left == 0 => return Err(cause.into()),
                Err(_) => {}
            }
        }
    }

    fn slice(&self) -> Duration {
        Duration::from_millis(if self.pace.quick { 200 } else { 750 })
    }
}

pub fn run(plan: &Plan) -> Result {
    if let Some(socket) = &plan.serve {
        return child::serve(socket, plan.lease);
    }
    if !GROUPS.iter().any(|(group, _)| group.starts_with(&plan.only)) {
        let groups = GROUPS.map(|(group, _)| group).join(", ");
        return Err(format!("--only {}: the groups are {groups}", plan.only).into());
    }
    progress::promise("veth", progress::bound(&plan.questions()));
    let output = Output::new("veth", plan.pace.json).named(!plan.only.is_empty());
    ask("veth", 2, |cores| measure(plan, &output, cores))
}

/// Measures group by group, and prints each group's figures at its end. When a group fails, the others are still measured.
fn measure(plan: &Plan, output: &Output, cores: [usize; 2]) -> Result {
    output.note(&format!(
        "generator and router on core {}, TCP's server on core {}",
        cores[0], cores[1]
    ));
    let (mut routes, mut failures) = (None, Vec::new());
    for bound in plan.questions() {
        progress::question(bound);
        let mut rounds = Rounds::default();
        let measured = match bound {
            "veth/rate" => tiers::measure(plan, &[], "", cores, &mut rounds),
            "veth/few" => with_few_routes(plan, cores, &mut rounds),
            "veth/gap" => end::measure(plan, &mut rounds),
            "veth/stateful" => stateful::measure(plan, &[], "", cores, &mut rounds),
            "veth/admission" => stateful::admission(plan, cores, &mut rounds),
            "veth/stateful_end" => stateful::end(plan, &mut rounds),
            "veth/stateful_tcp" => tcp_masqueraded(plan, cores, &mut rounds),
            "veth/observed_sflow" => observed::samples(plan, cores, &mut rounds),
            "veth/observed_ipfix" => observed::records(plan, cores, &mut rounds),
            "veth/observed_capture" => observed::captures(plan, cores, &mut rounds),
            _ => {
                let routes = match &mut routes {
                    Some(routes) => routes,
                    none => none.insert(internet(plan)?),
                };
                with_full_table(plan, bound, routes, cores, &mut rounds)
            }
        };
        match measured.and_then(|()| rounds.print(output)) {
            Err(error) if is_unavailable(&error) => return Err(error),
            Err(error) => failures.push(format!("{bound}: {error}")),
            Ok(()) => {}
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// The kernel and the accelerator, and what the names of their figures have for each.
type Both = [(&'static str, Network); 2];

fn with_few_routes(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    let mut both = [
        ("_kernel", Network::with_routes(1, &[])?),
        ("", Network::accelerated(1, &[], Options::new(PORTS))?),
    ];
    if plan.has(&["idle"]) {
        for _ in progress::rounds("idles", plan.rounds()) {
            rounds.push("idle_percent", "%", Some(idle_percent(plan.slice())?));
        }
    }
    if plan.has(&["tcp"]) {
        tcp(plan, &mut both, cores, rounds, "")?;
    }
    if plan.has(&["latency"]) {
        latency(plan, &both, rounds)?;
    }
    both.into_iter().try_for_each(|(_, network)| network.close())
}

/// The Internet's table, as routes.
fn internet(plan: &Plan) -> Result<Vec<(IpAddr, u8)>> {
    let mut table = plan.table.read()?;
    if plan.table.prefixes.is_none() && plan.pace.quick {
        table.ipv4.truncate(QUICK_TABLE);
        table.ipv6.truncate(QUICK_TABLE / 5);
    }
    Ok(prefixes_of(&table))
}

fn with_full_table(
    plan: &Plan,
    bound: &str,
    routes: &[(IpAddr, u8)],
    cores: [usize; 2],
    rounds: &mut Rounds,
) -> Result {
    match bound {
        "veth/full" => tiers::measure(plan, routes, "_full", cores, rounds),
        "veth/stateful_full" => stateful::measure(plan, routes, "_full", cores, rounds),
        "veth/mirror" => mirror::measure(plan, routes, rounds),
        _ => mirror::churn(plan, routes, cores[0], rounds),
    }
}

/// iperf3, the hosts' offloads at their defaults, with 1 and with 8 connections. Figures' names have `kind`.
fn tcp(plan: &Plan, both: &mut Both, cores: [usize; 2], rounds: &mut Rounds, kind: &str) -> Result {
    for (_, network) in &mut *both {
        network.serve_tcp(cores, &[SERVER_V4])?;
    }
    let seconds = if plan.pace.quick { 1 } else { 3 };
    let counts = [(1, ""), (8, "_8")];
    for _ in progress::rounds("transfers by TCP", plan.rounds()) {
        for (connections, suffix) in counts {
            for (router, network) in &*both {
                progress::tick();
                let passed = Passed::until_now(network);
                let gbps = network.transfer(SERVER_V4, seconds, connections)?.gbps;
                let left = if kind.is_empty() { None } else { passed.left_to_kernel(network) };
                let gbps = left.map_or(Ok(gbps), Err).map_err(|cause| rounds.blame(cause)).ok();
                rounds.push(&format!("tcp{kind}{router}_gbps{suffix}"), "Gb/s", gbps);
            }
        }
    }
    for (_, suffix) in counts {
        let [over, under] = ["", "_kernel"].map(|router| format!("tcp{kind}{router}_gbps{suffix}"));
        rounds.ratio(&format!("tcp{kind}_over_kernel{suffix}"), &over, &under);
    }
    Ok(())
}

/// As `tcp`, masqueraded: by the kernel, and by the lane at tcx, which sees the segments that hosts' offloads make.
fn tcp_masqueraded(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    needs(&["nft"])?;
    let options = Options { tier: TierChoice::Ingress, ..Options::new(PORTS) };
    let mut both =
        [("_kernel", Network::with_routes(1, &[])?), ("", Network::accelerated(1, &[], options)?)];
    for (_, network) in &both {
        Rules::Masquerade.load(&network.lab.router, PORTS)?;
    }
    tcp(plan, &mut both, cores, rounds, "_nat")?;
    both.into_iter().try_for_each(|(_, network)| network.close())
}

/// What an accelerator's programs have seen, and forwarded.
struct Passed {
    seen: u64,
    forwarded: u64,
}

impl Passed {
    fn until_now(network: &Network) -> Passed {
        let ledger = network.accelerator().map(|source| source.ledger()).unwrap_or_default();
        Passed { seen: ledger.seen, forwarded: ledger.forwarded }
    }

    /// Why what has passed since is the kernel's figure and not the accelerator's, if it is.
    fn left_to_kernel(self, network: &Network) -> Option<String> {
        let source = network.accelerator()?;
        let now = Passed::until_now(network);
        let seen = (now.seen - self.seen).max(1);
        let share = (now.forwarded - self.forwarded) as f64 / seen as f64;
        let refused = source.ports().iter().find(|port| !port.ingress).map(place::refusal);
        let of_lane = || format!("the lane forwards {:.1} % of the packets", share * 100.0);
        (share < place::SHARE_MIN).then(|| refused.unwrap_or_else(of_lane))
    }
}

fn latency(plan: &Plan, both: &Both, rounds: &mut Rounds) -> Result {
    let count = if plan.pace.quick { 200 } else { 20_000 };
    for _ in progress::rounds("pings", plan.rounds()) {
        for (router, network) in both {
            progress::tick();
            let mut times = round_trips(&network.lab, count)?;
            times.sort_by(f64::total_cmp);
            for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
                let time = quantile(&times, part);
                rounds.push(&format!("ping{router}_{name}_us"), "us", Some(time));
            }
        }
    }
    rounds.ratio("ping_over_kernel", "ping_kernel_p50_us", "ping_p50_us");
    rounds.ratio("ping_over_kernel_p99", "ping_kernel_p99_us", "ping_p99_us");
    Ok(())
}

/// Microseconds, of `count` pings one after the other.
fn round_trips(Lab { client, .. }: &Lab, count: u32) -> Result<Vec<f64>> {
    ping(client, SERVER_V4, 56, 3)?; // Neighbours are known.
    let mut pinger = Pinger::open(client, SERVER_V4)?;
    let round_trip = |_| match pinger.ask(56, PATIENCE)? {
        Outcome::Reply { round_trip, is_intact: true, .. } => Ok(round_trip.as_secs_f64() * 1e6),
        other => Err(format!("a ping was not answered: {other:?}").into()),
    };
    (0..count).map(round_trip).collect()
}

/// Of one core, what the threads of all accelerators of this process take while no packet passes.
fn idle_percent(slice: Duration) -> Result<f64> {
    let threads_s = || threads_s(|name| ["mirror", "reclaim", "lane", "api"].contains(&name));
    let (begun, before) = (Instant::now(), threads_s()?);
    thread::sleep(slice);
    Ok((threads_s()? - before) / begun.elapsed().as_secs_f64() * 100.0)
}

const QUICK_TABLE: usize = 20_000;
const QUICK_ATTEMPTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_by_how_its_name_begins() {
        assert_eq!(bounds_of("stateful").len(), 4);
        assert_eq!(bounds_of("stateful_tcp"), ["veth/stateful_tcp"]);
        assert_eq!(bounds_of("observed").len(), 3);
        assert_eq!(bounds_of("tcp"), ["veth/few"]);
        assert!(bounds_of("nonsense").is_empty());
    }
}
