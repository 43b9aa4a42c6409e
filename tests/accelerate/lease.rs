//! Tables that the accelerator no longer keeps true are not used past a bound: the route is changed while the
//! accelerator is stopped, and the last packet by the old route is looked for.
//!
//! Two bounds hold, and neither depends on when a thread of the test has a core:
//!
//! 1. A datagram that is *sent* when `limit` is over, and a tick, does not arrive: the program sees it after the lease has
//!    lapsed.
//! 2. By the kernel's receive timestamps, none arrives later than `limit` and [`UNDER_WAY`] after the change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::skip;
use manylane_lab::{SERVER_V4, Steady, SteadyOptions, Topology, until};
use nix::sys::signal::Signal;

#[test]
fn a_stopped_accelerator_forwards_by_old_routes_no_longer_than_its_lease() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    for limit in [200, 1000] {
        let accelerated = start(&topology, limit);
        is_forwarded(&accelerated, &stream);
        accelerated.signal(Signal::SIGSTOP);
        is_not_outlived(&topology, &stream, limit, "SIGSTOP");
        accelerated.signal(Signal::SIGCONT);
        is_back(&topology, &accelerated, &stream);
    }
}

/// As a paused machine: no signal tells the process.
#[test]
fn a_frozen_accelerator_forwards_by_old_routes_no_longer_than_its_lease() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    let accelerated = start(&topology, 200);
    is_forwarded(&accelerated, &stream);
    let freezer = match Freezer::of(accelerated.pid()) {
        Ok(freezer) => freezer,
        Err(error) => return skip(format!("the freezer (cgroups(7)) is not to be had: {error}")),
    };
    freezer.set(true);
    is_not_outlived(&topology, &stream, 200, "the freezer");
    freezer.set(false);
    is_back(&topology, &accelerated, &stream);
}

/// The route is taken away; whatever arrives after that was sent by tables that are not true.
fn is_not_outlived(topology: &Topology, stream: &Steady, limit: u64, how: &str) {
    topology.tool("r1", "ip route replace blackhole 10.2.0.1/32");
    let (changed, mark) = (Instant::now(), stream.mark());
    // The sender pauses a millisecond at least before each.
    let lapsed = stream.after(limit + TICK_MS + 1);
    assert!(changed.elapsed() >= Duration::from_millis(limit), "the lease has lapsed by {lapsed}");
    // Far past the bound: what a lease without an end lets through arrives meanwhile.
    let end = stream.after(2 * limit + 500);
    let by_old = stream.arrived(mark..end);
    let last = stream.last_arrival(0..end).expect("some arrived before");
    let outlived = last.saturating_duration_since(changed);
    println!(
        "{how}, lease {limit} ms: {by_old} datagrams by the old route, the last after {outlived:?}"
    );
    let sent_late = stream.arrived(lapsed..end);
    assert_eq!(sent_late, 0, "{how}: were sent when the lease had lapsed, and arrived");
    let bound = Duration::from_millis(limit) + UNDER_WAY;
    assert!(
        outlived <= bound,
        "{how}: the last arrived after {outlived:?}, the bound is {bound:?}"
    );
}

fn is_back(topology: &Topology, accelerated: &Accelerated, stream: &Steady) {
    accelerated.wait_for_no_difference();
    topology.tool("r1", "ip route del blackhole 10.2.0.1/32");
    is_forwarded(accelerated, stream);
}

fn start(topology: &Topology, limit: u64) -> Accelerated {
    let limit = limit.to_string();
    let (router, program) = (topology.host("r1"), env!("CARGO_BIN_EXE_manylane"));
    Accelerated::start_with(router, program, &["lan", "wan"], &["--lease", &limit])
}

fn stream(topology: &Topology) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had")
}

fn is_forwarded(accelerated: &Accelerated, stream: &Steady) {
    let before = accelerated.forwarded();
    until("datagrams go the fast way", || match accelerated.forwarded() {
        now if now > before + 50 => Ok(()),
        _ => Err(format!("{:#?}", accelerated.ports())),
    });
    stream.arrives("by the fast way");
}

/// A control group of the freezer (version 1 or 2) with one process in it; gone when dropped.
struct Freezer {
    folder: PathBuf,
    is_unified: bool,
}

impl Freezer {
    fn of(pid: u32) -> io::Result<Freezer> {
        let mut why = io::Error::other("no cgroup hierarchy has one");
        for (root, is_unified) in [
            ("/sys/fs/cgroup/freezer", false),
            ("/sys/fs/cgroup", true),
            ("/sys/fs/cgroup/unified", true),
        ] {
            let file = if is_unified { "cgroup.procs" } else { "tasks" };
            if !Path::new(root).join(file).exists() {
                continue;
            }
            let folder = Path::new(root).join(format!("manylane-test-{}", process::id()));
            let freezer = Freezer { folder, is_unified };
            match fs::create_dir(&freezer.folder)
                .and_then(|()| fs::write(freezer.folder.join("cgroup.procs"), pid.to_string()))
            {
                Ok(()) if freezer.folder.join(freezer.file()).exists() => return Ok(freezer),
                Ok(()) => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn file(&self) -> &'static str {
        if self.is_unified { "cgroup.freeze" } else { "freezer.state" }
    }

    fn set(&self, frozen: bool) {
        let word = match (self.is_unified, frozen) {
            (true, true) => "1",
            (true, false) => "0",
            (false, true) => "FROZEN",
            (false, false) => "THAWED",
        };
        fs::write(self.folder.join(self.file()), word).expect("the group is ours");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // Its process has to be elsewhere first.
        let _ =
            fs::write(self.folder.join(self.file()), if self.is_unified { "0" } else { "THAWED" });
        let above = self.folder.parent().expect("it is below a root").join("cgroup.procs");
        for pid in fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default().lines()
        {
            let _ = fs::write(&above, pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// How long the tick may be by which programs know the end of a lease: HZ=100 is the longest.
const TICK_MS: u64 = 10;

/// How long a datagram that was decided upon within the lease may take to the server's socket: the kernel hands it from
/// one end of a veth to the other when the processor has time for its softirq. An order below what a lease without an end
/// would let through.
const UNDER_WAY: Duration = Duration::from_millis(250);
