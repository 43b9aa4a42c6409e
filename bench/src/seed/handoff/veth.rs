//! The same between devices of the kernel: a queue of a veth, two cores, beside the kernel's own steering.
//!
//! Frames of 64 bytes, of 2^14 flows to one host, from the kernel's fastest generator (`baseline/live.rs`),
//! which has the last core, and with it the softirq that receives for the router. The host they are for is
//! not the one they reach, so that it costs least. On the first core forwards:
//!
//! | name                   | who                                                                        |
//! |------------------------|----------------------------------------------------------------------------|
//! | `veth_kernel_rps_mpps` | the kernel, by RPS: to the first core, or to both, whichever was faster in the first round |
//! | `veth_kernel_threaded_mpps` | the kernel, without RPS: its receive polling in a thread on the first core |
//! | `veth_one_worker_mpps` | manylane's worker that receives, by AF_XDP                                 |
//! | `veth_handoff_mpps`    | the same, which hands `veth_share` of the flows on to a worker on the last core, beside the generator: the best of those tried in the first round |
//!
//! `veth_gain` is `veth_handoff_mpps` over the first, `veth_threaded_gain` over the second, `veth_one_worker_gain` `veth_one_worker_mpps` over the first. In the same daemon,
//! TCP by iperf3, one connection and eight, while buckets stay and while half of them change worker every
//! 10 ms: `veth_tcp_1_still_gbps`, `veth_tcp_1_moving_gbps`, `veth_tcp_1_moving_over_still`, and so on with
//! 8. `..._retransmits` are segments sent again; `..._reordering` what the client's kernel takes for
//! reordering on the way (its counts `TCPSACKReorder`, `TCPTSReorder`, `TCPRenoReorder`), `..._spurious`
//! retransmissions that the server did not need (`TCPDSACKRecv`).
//! `veth_udp_reordered`: datagrams of eight numbered streams that came late while buckets moved: an error
//! unless 0.
//!
//! Needs root, iperf3 and ethtool, and two cores with nothing else on them.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manylane::api::Source;
use manylane::control::Daemon;
use manylane::lab::{Lab, LabOptions, RouterOptions, SERVER_V4, udp_stream};
use manylane_io::affinity;
use manylane_io::interface::Interface;
use manylane_io::netlink::Netlink;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, protocol};
use manylane_sync::primitive::{AtomicBool, Ordering};

use crate::baseline::live::{self, Flows, HEADERS};
use crate::figure::{Output, Rounds};
use crate::seed::Plan;
use crate::tcp::{Bed, Stop, Way, can_run, mortal};

/// Behind the router, and nowhere.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 9));
const NOBODYS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const BUCKETS: usize = 256;
const SHARES: [usize; 6] = [16, 40, 64, 90, 115, 140];
const MOVES: Duration = Duration::from_millis(10);

static TCP: Way =
    Way { name: "handoff", driver: Some("af_xdp"), jumbo: false, families: &[("", SERVER_V4)] };

/// Measures and prints, or says why not.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    let cores = affinity::cores()?;
    let &[first, .., last] = &cores[..] else {
        eprintln!("SKIPPED seed handoff --veth: needs two cores");
        return Ok(());
    };
    match measure(plan, output, [first, last]) {
        Err(Stop::NotHere(why)) => {
            eprintln!("SKIPPED seed handoff --veth: {why}");
            Ok(())
        }
        Err(Stop::Failed(why)) => Err(io::Error::other(why)),
        Ok(rounds) => rounds.print(output),
    }
}

fn measure(plan: &Plan, output: &Output, cores: [usize; 2]) -> Result<Rounds, Stop> {
    can_run()?;
    output.note(&format!("forwarding on core {}, generator on core {}", cores[0], cores[1]));
    let mut rounds = Rounds::default();
    let count = if plan.quick { 1 } else { plan.runs.max(5) };
    let slice = Duration::from_millis(if plan.quick { 200 } else { 1500 });
    {
        let kernel = kernel()?;
        let mut mask = (1 << cores[0], 0.0);
        for tried in [1 << cores[0], 1 << cores[0] | 1 << cores[1]] {
            kernel.router.run(move || steer(Kernel::Rps(tried)))?;
            let rate = forwarded(&kernel, cores, slice)?;
            mask = if rate > mask.1 { (tried, rate) } else { mask };
        }
        let (manylane, daemon) = manylane()?;
        let source = daemon.source();
        let mut best = (0, 0.0);
        for buckets in SHARES {
            hand_on(&*source, &["lan"], |bucket| bucket < buckets)?;
            let rate = forwarded(&manylane, cores, slice)?;
            best = if rate > best.1 { (buckets, rate) } else { best };
        }
        for _ in 0..count {
            for (name, way) in [
                ("veth_kernel_rps_mpps", Kernel::Rps(mask.0)),
                ("veth_kernel_threaded_mpps", Kernel::Threaded(cores[0])),
            ] {
                kernel.router.run(move || steer(way))?;
                rounds.push(name, "Mpps", Some(forwarded(&kernel, cores, slice)?));
            }
            for (name, buckets) in [("veth_one_worker_mpps", 0), ("veth_handoff_mpps", best.0)] {
                hand_on(&*source, &["lan"], |bucket| bucket < buckets)?;
                rounds.push(name, "Mpps", Some(forwarded(&manylane, cores, slice)?));
            }
            rounds.push("veth_share", "part", Some(best.0 as f64 / BUCKETS as f64));
        }
        rounds.ratio("veth_gain", "veth_handoff_mpps", "veth_kernel_rps_mpps");
        rounds.ratio("veth_threaded_gain", "veth_handoff_mpps", "veth_kernel_threaded_mpps");
        rounds.ratio("veth_one_worker_gain", "veth_one_worker_mpps", "veth_kernel_rps_mpps");
        let ledger = manylane.router.run(move || daemon.stop());
        if (ledger.missing, ledger.frames.missing) != (0, 0) {
            let why = format!("packets or frames are missing: {ledger:#?}");
            return Err(Stop::Failed(why));
        }
    }
    tcp(plan, cores, count, &mut rounds)?;
    Ok(rounds)
}

/// A lab whose router is the kernel.
fn kernel() -> Result<Lab, Stop> {
    let lab = Lab::three_hosts(LabOptions { kernel_router: true, ..LabOptions::default() })?;
    lab.router.run(move || {
        let mut netlink = Netlink::open().map_err(Stop::failed)?;
        netlink.add_neighbour("wan", NOBODY, NOBODYS_MAC).map_err(Stop::failed)?;
        // A veth takes frames as the generator makes them only with its own receive polling, by GRO.
        tool("ethtool", &["-K", "lan", "gro", "on"])
    })?;
    Ok(lab)
}

/// How the kernel brings what the last core receives to another.
#[derive(Clone, Copy)]
enum Kernel {
    /// To these cores, a bit each.
    Rps(u64),
    /// By a thread that receives on this core.
    Threaded(usize),
}

/// In the router's namespace.
fn steer(way: Kernel) -> Result<(), Stop> {
    let (mask, threaded) = match way {
        Kernel::Rps(mask) => (mask, 0),
        Kernel::Threaded(_) => (0, 1),
    };
    let script = format!(
        "mount --make-rprivate / && mount -t sysfs none /sys && \
         echo {mask:x} > /sys/class/net/lan/queues/rx-0/rps_cpus && \
         echo {threaded} > /sys/class/net/lan/threaded"
    );
    tool("unshare", &["--mount", "sh", "-c", &script])?;
    let Kernel::Threaded(core) = way else { return Ok(()) };
    for thread in napi_threads("lan")? {
        tool("taskset", &["-pc", &core.to_string(), &thread.to_string()])?;
    }
    Ok(())
}

/// The kernel's threads that poll this interface. They are named `napi/<interface>-<number>`; so may be those of
/// an interface elsewhere, which then run on that core as well.
fn napi_threads(interface: &str) -> io::Result<Vec<u32>> {
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

/// A lab whose router is manylane: worker 0, on the first core, receives from the client.
fn manylane() -> Result<(Lab, Daemon), Stop> {
    let lab = Lab::three_hosts(LabOptions::default())?;
    let [a, b, c, d, e, f] = NOBODYS_MAC;
    let more = format!(
        "[[neighbour.static]]\nport = \"wan\"\naddress = \"{NOBODY}\"\n\
         mac = \"{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\"\n"
    );
    let options = RouterOptions { workers: 2, more, ..RouterOptions::default() };
    let config = lab.config(&options)?;
    let daemon = lab.router.run(move || Daemon::start(config))?;
    Ok((lab, daemon))
}

/// Lets worker 1 have these buckets of the ports, and worker 0 the others.
fn hand_on(
    source: &dyn Source,
    ports: &[&str],
    is_handed: impl Fn(usize) -> bool,
) -> Result<(), Stop> {
    let worker = |bucket| format!("{bucket}={}", u8::from(is_handed(bucket)));
    let buckets = (0..BUCKETS).map(worker).collect::<Vec<_>>().join(",");
    for port in ports {
        let key = format!("port.{port}.buckets");
        source.set(&key, &buckets).map_err(|error| Stop::Failed(format!("{key}: {error:?}")))?;
    }
    Ok(())
}

/// Million frames a second that reach the server.
fn forwarded(lab: &Lab, [_, last]: [usize; 2], slice: Duration) -> Result<f64, Stop> {
    let _generator = Generator::start(lab, last)?;
    let received = || lab.server.run(|| received("eth0"));
    thread::sleep(slice / 4); // It starts, and rings fill.
    let (start, before) = (Instant::now(), received()?);
    thread::sleep(slice);
    let after = received()?;
    Ok((after - before) as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// Frames that this interface of this thread's namespace has received.
fn received(interface: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let found = text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then(|| numbers.split_whitespace().nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| io::Error::other(format!("{interface} is not in /proc/net/dev")))
}

/// A child that sends from the client.
struct Generator(Child);

impl Generator {
    fn start(lab: &Lab, core: usize) -> Result<Generator, Stop> {
        let mac = lab.router.run(|| Interface::read("lan")).map_err(Stop::failed)?.mac;
        let program = std::env::current_exe()?;
        let child = lab.client.run(move || {
            affinity::pin(core)?;
            let index = Interface::read("eth0").map_err(io::Error::other)?.index;
            let [a, b, c, d, e, f] = mac;
            let live = format!("{index},{a},{b},{c},{d},{e},{f}");
            let mut command = mortal(&program.to_string_lossy());
            command.args(["seed", "handoff", "--live", &live]).stdin(Stdio::null());
            command.spawn()
        })?;
        Ok(Generator(child))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the child does: `live` is the interface's index and the router's MAC address.
pub fn send(live: &str) -> io::Result<()> {
    let numbers: Result<Vec<u32>, _> = live.split(',').map(str::parse).collect();
    let Ok([interface, mac @ ..]) = numbers.as_deref() else {
        return Err(io::Error::other("an index and a MAC address are needed"));
    };
    let mac: [u8; 6] = std::array::from_fn(|at| mac.get(at).map_or(0, |&byte| byte as u8));
    let mut headers = [0; HEADERS];
    ethernet::emit(&mut headers, Mac(mac), Mac([2, 0, 0, 0, 0, 1]), ether_type::IPV4)
        .expect("it fits");
    let IpAddr::V4(destination) = NOBODY else { unreachable!("it is written above") };
    let header = ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::UDP,
        source: Ipv4Addr::new(10, 1, 0, 1),
        destination,
    };
    header.emit(&mut headers[14..], 30).expect("it fits");
    headers[37] = 9; // Port, and length below; without a checksum.
    headers[39] = 30;
    live::send(&headers, *interface, Flows::Ports)
}

fn tcp(
    plan: &Plan,
    [first, last]: [usize; 2],
    count: usize,
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    let bed = Bed::make(&TCP, 2, [first, last])?;
    let source = bed.source().expect("it is manylane");
    let seconds = if plan.quick { 1 } else { 3 };
    for _ in 0..count {
        for connections in [1, 8] {
            for moves in [false, true] {
                let name =
                    format!("veth_tcp_{connections}_{}", if moves { "moving" } else { "still" });
                hand_on(&*source, &["lan", "wan"], |bucket| bucket % 2 == 1)?;
                let before = client_counts(bed.lab())?;
                let transfer =
                    while_moving(&source, moves, || bed.transfer(SERVER_V4, seconds, connections))?;
                let after = client_counts(bed.lab())?;
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
        let reordered = while_moving(&source, true, || streams(bed.lab()))?;
        rounds.push("veth_udp_reordered", "count", Some(reordered as f64));
        if reordered > 0 {
            return Err(Stop::Failed(format!("{reordered} datagrams were reordered")));
        }
    }
    for connections in [1, 8] {
        let name = |moves: &str| format!("veth_tcp_{connections}_{moves}_gbps");
        rounds.ratio(
            &format!("veth_tcp_{connections}_moving_over_still"),
            &name("moving"),
            &name("still"),
        );
    }
    bed.close()
}

/// Does it while buckets move, or not.
fn while_moving<R>(
    source: &Arc<dyn Source>,
    moves: bool,
    work: impl FnOnce() -> Result<R, Stop>,
) -> Result<R, Stop> {
    let is_done = AtomicBool::new(!moves);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut turned = 0;
            while !is_done.load(Ordering::Relaxed) {
                hand_on(&**source, &["lan", "wan"], |bucket| (bucket + turned) % 2 == 1)?;
                turned += 1;
                thread::sleep(MOVES);
            }
            Ok::<(), Stop>(())
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        mover.join().expect("it does not panic")?;
        done
    })
}

/// How many datagrams of numbered streams come late.
fn streams(lab: &Lab) -> Result<u64, Stop> {
    thread::scope(|scope| {
        let stream = || {
            let report = udp_stream(&lab.client, &lab.server, SERVER_V4, 2000, 200, 4000);
            report.map(|report| report.reordered + report.duplicated).map_err(Stop::failed)
        };
        let streams: Vec<_> = (0..8).map(|_| scope.spawn(stream)).collect();
        streams.into_iter().map(|stream| stream.join().expect("it does not panic")).sum()
    })
}

/// Of the client's kernel: times that it took something for reordering, and retransmissions that were not
/// needed.
fn client_counts(lab: &Lab) -> Result<[u64; 2], Stop> {
    let text = lab.client.run(|| fs::read_to_string("/proc/thread-self/net/netstat"))?;
    let count = |name| tcp_count(&text, name).unwrap_or(0);
    let reordering = ["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"].map(count);
    Ok([reordering.iter().sum(), count("TCPDSACKRecv")])
}

/// proc_pid_net(5): lines in pairs, names and numbers, that begin alike.
fn tcp_count(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|its| its == name)?;
    numbers.split(' ').nth(at)?.parse().ok()
}

fn tool(program: &str, arguments: &[&str]) -> Result<(), Stop> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(|error| Stop::NotHere(format!("{program}: {error}")))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(Stop::Failed(format!("{program} {arguments:?}: {said}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_stands_below_its_name() {
        let text = "TcpExt: A TCPDSACKRecv B\nTcpExt: 1 23 4\nIpExt: TCPDSACKRecv\nIpExt: 9\n";
        assert_eq!(tcp_count(text, "TCPDSACKRecv"), Some(23));
        assert_eq!(tcp_count(text, "C"), None);
    }
}
