//! The same between devices of the kernel: a queue of a veth, two cores, beside the kernel's own steering.
//!
//! Frames of 64 bytes, of 2^14 flows to one host, from the kernel's fastest generator (XDP live
//! frames), which has the last core, and with it the softirq that receives for the router. The frames are for another host
//! than the one that they reach, so that it costs least. On the first core forwards:
//!
//! | name                   | forwarder                                                                  |
//! |------------------------|----------------------------------------------------------------------------|
//! | `veth_kernel_rps_mpps` | the kernel, by RPS: to the first core, or to both, whichever was faster in the first round |
//! | `veth_kernel_threaded_mpps` | the kernel, without RPS: its receive polling in a thread on the first core |
//! | `veth_one_worker_mpps` | manylane's worker that receives, by AF_XDP                                 |
//! | `veth_handoff_mpps`    | that worker, which hands `veth_share` of the flows on to a worker on the last core, beside the generator: the best of those tried in the first round |
//!
//! `veth_gain` is `veth_handoff_mpps` over the first, `veth_threaded_gain` over the second; `veth_one_worker_gain` is
//! `veth_one_worker_mpps` over the first. In the same daemon, TCP by iperf3, one connection and eight, while buckets
//! stay and while half of them change worker every 10 ms: `veth_tcp_1_still_gbps`, `veth_tcp_1_moving_gbps`,
//! `veth_tcp_1_moving_over_still`, and so on with
//! 8. `..._retransmits` are segments sent again; `..._reordering` what the client's kernel takes for
//! reordering on the way (its counts `TCPSACKReorder`, `TCPTSReorder`, `TCPRenoReorder`), `..._spurious`
//! retransmissions that the server did not need (`TCPDSACKRecv`). `veth_udp_reordered`: datagrams of eight numbered
//! streams that came late while buckets moved: an error unless 0.
//!
//! Needs root, iperf3 and ethtool, and two cores with nothing else on them.

use std::fs;

use manylane_api::Source;
use manylane_lab::load::{NOBODY, NOBODYS_MAC, rate};
use manylane_lab::{Flows, Lab, RouterOptions, SERVER_V4, tool, udp_stream};
use manylane_net::wire::ethernet::Mac;

use crate::mechanisms::Plan;
use crate::network::{Network, ask, meanwhile};
use crate::prelude::*;
use crate::progress;
use crate::tcp::options;

const FLOWS: u16 = 1 << 14;
const BUCKETS: usize = 256;
const SHARES: [usize; 6] = [16, 40, 64, 90, 115, 140];
const MOVES: Duration = Duration::from_millis(10);

pub fn run(plan: &Plan, output: &Output) -> Result {
    ask("compare handoff --veth", 2, |cores| {
        output.note(&format!("forwarding on core {}, generator on core {}", cores[0], cores[1]));
        let mut rounds = Rounds::default();
        frames(plan, cores, &mut rounds)?;
        tcp(plan, cores, &mut rounds)?;
        rounds.print(output)
    })
}

fn count(plan: &Plan) -> usize {
    plan.pace.rounds(1, 9, 5)
}

fn frames(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    let slice = Duration::from_millis(if plan.pace.quick { 200 } else { 1500 });
    // Behind the router; no host has it.
    let to = NOBODY[0][0];
    let forwarded = |Network { lab, .. }: &Network| -> Result<f64> {
        progress::tick();
        let _generator = lab.generate(&Flows::to(to), FLOWS, cores[1])?;
        let (frames, elapsed) = rate(slice, || lab.received())?;
        Ok(frames / elapsed / 1e6)
    };
    let kernel = Network::with_routes(1, &[])?;
    let mut mask = (1 << cores[0], 0.0);
    for tried in [1 << cores[0], 1 << cores[0] | 1 << cores[1]] {
        steer(&kernel.lab, Kernel::Rps(tried))?;
        let rate = forwarded(&kernel)?;
        mask = if rate > mask.1 { (tried, rate) } else { mask };
    }
    // Worker 0, on the first core, receives from the client.
    let more = format!(
        "[[neighbour.static]]\nport = \"wan\"\naddress = \"{to}\"\nmac = \"{}\"\n",
        Mac(NOBODYS_MAC)
    );
    let options = RouterOptions { workers: 2, more, ..RouterOptions::default() };
    let manylane = Network::of_daemon(&options, 1500)?;
    let source = manylane.daemon().expect("it runs the daemon");
    let mut best = (0, 0.0);
    for buckets in SHARES {
        hand_on(&*source, &["lan"], |bucket| bucket < buckets)?;
        let rate = forwarded(&manylane)?;
        best = if rate > best.1 { (buckets, rate) } else { best };
    }
    for _ in progress::rounds("forwards frames", count(plan)) {
        let ways = [("rps", Kernel::Rps(mask.0)), ("threaded", Kernel::Threaded(cores[0]))];
        for (name, way) in ways {
            steer(&kernel.lab, way)?;
            rounds.push(&format!("veth_kernel_{name}_mpps"), "Mpps", Some(forwarded(&kernel)?));
        }
        for (name, buckets) in [("veth_one_worker_mpps", 0), ("veth_handoff_mpps", best.0)] {
            hand_on(&*source, &["lan"], |bucket| bucket < buckets)?;
            rounds.push(name, "Mpps", Some(forwarded(&manylane)?));
        }
        rounds.push("veth_share", "part", Some(best.0 as f64 / BUCKETS as f64));
    }
    rounds.ratio("veth_gain", "veth_handoff_mpps", "veth_kernel_rps_mpps");
    rounds.ratio("veth_threaded_gain", "veth_handoff_mpps", "veth_kernel_threaded_mpps");
    rounds.ratio("veth_one_worker_gain", "veth_one_worker_mpps", "veth_kernel_rps_mpps");
    manylane.close()
}

/// How the kernel brings what the last core receives to another.
#[derive(Clone, Copy)]
enum Kernel {
    /// To these cores, a bit each.
    Rps(u64),
    /// By a thread that receives on this core.
    Threaded(usize),
}

fn steer(Lab { router, .. }: &Lab, way: Kernel) -> Result {
    let (mask, threaded) = match way {
        Kernel::Rps(mask) => (mask, 0),
        Kernel::Threaded(_) => (0, 1),
    };
    let script = format!(
        "mount --make-rprivate / && mount -t sysfs none /sys && \
         echo {mask:x} > /sys/class/net/lan/queues/rx-0/rps_cpus && \
         echo {threaded} > /sys/class/net/lan/threaded"
    );
    tool(router, &format!("unshare --mount sh -c '{script}'"))?;
    let Kernel::Threaded(core) = way else { return Ok(()) };
    for thread in napi_threads("lan")? {
        tool(router, &format!("taskset -pc {core} {thread}"))?;
    }
    Ok(())
}

/// The kernel's threads that poll this interface, named `napi/<interface>-<number>`. Threads of
/// an interface elsewhere may have that name too, and then run on that core as well.
fn napi_threads(interface: &str) -> Result<Vec<u32>> {
    let name = format!("napi/{interface}-");
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has just ended has none.
        let its = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if its.starts_with(&name) {
            threads.push(process);
        }
    }
    Ok(threads)
}

/// Lets worker 1 have these buckets of the ports, and worker 0 the others.
fn hand_on(source: &dyn Source, ports: &[&str], is_handed: impl Fn(usize) -> bool) -> Result {
    let worker = |bucket| format!("{bucket}={}", u8::from(is_handed(bucket)));
    let buckets = (0..BUCKETS).map(worker).collect::<Vec<_>>().join(",");
    for port in ports {
        let key = format!("port.{port}.buckets");
        source.set(&key, &buckets).map_err(|error| format!("{key}: {error:?}"))?;
    }
    Ok(())
}

fn tcp(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    let mut network = Network::of_daemon(&options(2, "af_xdp", 1500), 1500)?;
    network.serve_tcp(cores, &[SERVER_V4])?;
    let source = network.daemon().expect("it runs the daemon");
    let seconds = if plan.pace.quick { 1 } else { 3 };
    for _ in progress::rounds("transfers by TCP", count(plan)) {
        for connections in [1, 8] {
            for (moves, end) in [(false, "still"), (true, "moving")] {
                let name = format!("veth_tcp_{connections}_{end}");
                hand_on(&*source, &["lan", "wan"], |bucket| bucket % 2 == 1)?;
                let before = network.lab.client_reordering()?;
                let transfer = || network.transfer(SERVER_V4, seconds, connections);
                let transfer = while_moving(&source, moves, transfer)?;
                let after = network.lab.client_reordering()?;
                rounds.push(&format!("{name}_gbps"), "Gb/s", Some(transfer.gbps));
                let counts = [
                    ("retransmits", transfer.retransmits),
                    ("reordering", (after[0] - before[0]) as f64),
                    ("spurious", (after[1] - before[1]) as f64),
                ];
                for (what, value) in counts {
                    rounds.push(&format!("{name}_{what}"), "count", Some(value));
                }
            }
        }
        let reordered = while_moving(&source, true, || streams(&network.lab))?;
        rounds.push("veth_udp_reordered", "count", Some(reordered as f64));
        if reordered > 0 {
            return Err(format!("{reordered} datagrams were reordered").into());
        }
    }
    for connections in [1, 8] {
        let name = format!("veth_tcp_{connections}_moving");
        let [over, under] =
            ["moving", "still"].map(|end| format!("veth_tcp_{connections}_{end}_gbps"));
        rounds.ratio(&format!("{name}_over_still"), &over, &under);
    }
    network.close()
}

/// Does it while buckets move, or not.
fn while_moving<R>(
    source: &Arc<dyn Source>,
    moves: bool,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if !moves {
        return work();
    }
    let mut turned = 0;
    let turn = || {
        hand_on(&**source, &["lan", "wan"], |bucket| (bucket + turned) % 2 == 1)?;
        turned += 1;
        thread::sleep(MOVES);
        Ok(())
    };
    meanwhile(turn, work)
}

/// How many datagrams of numbered streams come late.
fn streams(Lab { client, server, .. }: &Lab) -> Result<u64> {
    thread::scope(|scope| {
        let stream = || {
            let report = udp_stream(client, server, SERVER_V4, 2000, 200, 4000)?;
            Ok(report.reordered + report.duplicated)
        };
        let streams: Vec<_> = (0..8).map(|_| scope.spawn(stream)).collect();
        streams.into_iter().map(|stream| stream.join().expect("it does not panic")).sum()
    })
}
