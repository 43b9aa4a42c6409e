//! How fast is one TCP connection through manylane, beside the kernel's own forwarding?
//!
//! iperf3 between two hosts' kernels, their offloads at their defaults, with a third host in the middle
//! (`manylane_lab`: three network namespaces on veth links, of this process). What is in the middle:
//!
//! | name           | the router                                      | what the hosts send             |
//! |----------------|-------------------------------------------------|---------------------------------|
//! | `af_packet`    | manylane as it comes, by packet sockets         | segments of up to 64 KiB        |
//! | `af_xdp`       | manylane by AF_XDP                              | packets of the MTU: 1500 bytes  |
//! | `kernel`       | the kernel of the same namespace                | segments of up to 64 KiB        |
//! | `af_xdp_jumbo` | as `af_xdp`, all links' MTU 9000, larger frames | packets of the MTU: 9000 bytes  |
//!
//! Each is measured in each round (A B C D, A B C D, ...), the first three by IPv4 and by IPv6:
//!
//! - `tcp_<name>_gbps`: what the server's program got.
//! - `tcp_<name>_retransmits`: segments that the client's kernel sent again.
//! - `tcp_<name>_cpu_s_per_gb`: seconds of all cores, for 10^9 bytes: of hosts, router and whatever else ran, and of
//!   softirqs, which the kernel counts for no process. `/proc/stat` has ticks of 10 ms.
//! - `tcp_<name>_worker_s_per_gb`: seconds of manylane's workers, for 10^9 bytes, with the softirqs that ran in their
//!   system calls: a part of the server's receiving. Other processes that ran meanwhile are not in it.
//! - `tcp_<name>_packet_bytes`: mean length of what manylane received from the client.
//! - `tcp_<name>_lost`: packets that manylane, or its queues, lost meanwhile.
//! - `<name>_over_kernel`: the first by the kernel's, round by round.
//!
//! By IPv6 it is `tcp_<name>_v6_...`. The client has the first core, the server the last, as has, by
//! the product's default, one worker: on two cores these two share one, and the client's softirqs, which
//! receive for the router, run on the other.
//!
//! Not measured here: many connections, wires, what the hosts' kernels could do alone.
//!
//! Needs root, iperf3, and for figures that mean something a machine with nothing else on it.

use manylane_api::{PortStatus, Source};
use manylane_lab::load::{busy_s, threads_s};
use manylane_lab::{RouterOptions, SERVER_V4, SERVER_V6};

use crate::network::{Network, ask};
use crate::prelude::*;
use crate::progress;

/// How fast is one TCP connection through manylane, beside the kernel's forwarding?
#[derive(clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pace: Pace,
    /// How long each connection lasts
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// How many workers, on the last cores
    #[arg(long, default_value_t = 1)]
    workers: u16,
    /// Only routers whose names begin so, such as `af_packet`: for a profiler
    #[arg(long, value_name = "NAME", default_value = "")]
    row: String,
}

pub fn run(plan: &Plan) -> Result {
    let output = plan.pace.output("tcp").named(!plan.row.is_empty());
    ask("tcp", 1, |cores| measure(plan, &output, cores)?.print(&output))
}

/// Name, manylane's driver (without one, the kernel forwards), MTU, and destinations with the ends of their names.
type Router = (&'static str, Option<&'static str>, u32, &'static [(&'static str, IpAddr)]);

const BOTH: &[(&str, IpAddr)] = &[("", SERVER_V4), ("_v6", SERVER_V6)];

const ROUTERS: [Router; 4] = [
    ("af_packet", Some("af_packet"), 1500, BOTH),
    ("af_xdp", Some("af_xdp"), 1500, BOTH),
    ("kernel", None, 1500, BOTH),
    ("af_xdp_jumbo", Some("af_xdp"), 9000, &[("", SERVER_V4)]),
];

fn measure(plan: &Plan, output: &Output, cores: [usize; 2]) -> Result<Rounds> {
    let wanted = ROUTERS.iter().filter(|router| router.0.starts_with(&plan.row));
    let network = |&(name, driver, mtu, families): &Router| -> Result<_> {
        let mut network = match driver {
            None => Network::of_kernel(1)?,
            Some(driver) => Network::of_daemon(&options(plan.workers, driver, mtu), mtu)?,
        };
        let destinations: Vec<_> = families.iter().map(|(_, to)| *to).collect();
        network.serve_tcp(cores, &destinations)?;
        Ok((name, families, network))
    };
    let networks = wanted.map(network).collect::<Result<Vec<_>>>()?;
    output.note(&format!(
        "client on core {}, server on core {}, {} worker(s) on the last core(s)",
        cores[0], cores[1], plan.workers
    ));
    let mut rounds = Rounds::default();
    let seconds = if plan.pace.quick { 1 } else { plan.seconds };
    for _ in progress::rounds("transfers", plan.pace.rounds(1, 5, 1)) {
        for (name, families, network) in &networks {
            for (suffix, to) in *families {
                transfer(network, *to, seconds, &mut rounds, &format!("tcp_{name}{suffix}"))?;
            }
        }
    }
    networks.into_iter().try_for_each(|(.., network)| network.close())?;
    if plan.row.is_empty() {
        for (name, family) in
            [("af_packet", ""), ("af_xdp", ""), ("af_packet", "_v6"), ("af_xdp", "_v6")]
        {
            let [over, under] = [name, "kernel"].map(|who| format!("tcp_{who}{family}_gbps"));
            rounds.ratio(&format!("{name}_over_kernel{family}"), &over, &under);
        }
    }
    Ok(rounds)
}

/// manylane between these drivers. A jumbo frame takes more memory than a frame has by default.
pub fn options(workers: u16, driver: &'static str, mtu: u32) -> RouterOptions {
    let more = if mtu > 1500 { "[frames]\nsize = 4096\n" } else { "" }.into();
    RouterOptions { workers, drivers: [driver; 2], more, ..RouterOptions::default() }
}

fn transfer(
    network: &Network,
    to: IpAddr,
    seconds: u32,
    rounds: &mut Rounds,
    name: &str,
) -> Result {
    let source = network.daemon();
    let taken = || Ok::<_, Error>([busy_s()?, threads_s(|name| name.starts_with("worker-"))?]);
    progress::tick();
    let (before, passed) = (taken()?, source.as_deref().map(passed));
    let transfer = network.transfer(to, seconds, 1)?;
    let after = taken()?;
    let per_gb = |which: usize| (after[which] - before[which]) / transfer.gigabytes;
    let mut push = |what: &str, unit, value| {
        rounds.push(&format!("{name}_{what}"), unit, Some(value));
    };
    push("gbps", "Gb/s", transfer.gbps);
    push("retransmits", "count", transfer.retransmits);
    push("cpu_s_per_gb", "s/GB", per_gb(0));
    if let (Some(source), Some(before)) = (source, passed) {
        let now = self::passed(&*source);
        let [packets, bytes, lost] = std::array::from_fn(|count| now[count] - before[count]);
        push("worker_s_per_gb", "s/GB", per_gb(1));
        push("packet_bytes", "B", bytes as f64 / packets.max(1) as f64);
        push("lost", "count", lost as f64);
    }
    Ok(())
}

/// manylane's counts of packets and bytes that the port to the client received, and of packets that both ports lost.
fn passed(source: &dyn Source) -> [u64; 3] {
    let ports = source.ports();
    let lost = |port: &PortStatus| {
        let of_queues = port.lost_ring_full + port.lost_no_buffer + port.lost_invalid;
        of_queues + port.lost_transmit + port.dropped.values().sum::<u64>()
    };
    [ports[0].received, ports[0].received_bytes, ports.iter().map(lost).sum()]
}
