//! The kernel's RTNL lock is held elsewhere, in another network namespace, for seconds: as long as the deletion of hundreds
//! of interfaces may take, or a driver's reset.
//!
//! | The lock is held while            | The lease                                             | Packets                     |
//! |-----------------------------------|-------------------------------------------------------|-----------------------------|
//! | nothing changes                   | is renewed, and the service manager hears of it       | are forwarded as before     |
//! | a link that came back is judged   | lapses, with its reason counted and named             | are the kernel's, whose filters hold |
//!
//! `hold_rtnl.py` holds the lock from one event to the next, so that the tests need no clock and no load. The tests
//! hold the lock for two or three seconds only, since the whole machine waits.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{self, Child, ChildStdout, Stdio};
use std::time::Duration;

use manylane_api::accelerate::{AcceleratorStatus, LeaseStatus};
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::scenario::{has, skip, spawn_in};
use manylane_lab::tools::mortal;
use manylane_lab::{SERVER_V4, Steady, SteadyOptions, Topology, until};

/// The attack, without a word of the daemon's: on a machine where containers come and go, the watchdog is not fed for as
/// long as the lock is held, and the service manager restarts a daemon that forwards well.
#[test]
fn while_the_lock_is_held_the_lease_is_renewed_and_the_watchdog_is_fed() {
    let Some(bed) = Bed::make("idle") else { return };
    let Some(holder) = Holder::hold(&bed.topology) else { return };
    let (before, begun) = (bed.lease(), bed.stream.mark());
    bed.manager_forgets();
    // In this time all is looked at that is looked at once a second.
    for _ in 0..WATCHDOGS {
        bed.hear("WATCHDOG=1");
    }
    let (after, end) = (bed.lease(), bed.stream.mark());
    assert!(after.holds && after.checks > before.checks, "{before:?} {after:?}");
    assert_eq!(after.renewals, before.renewals, "it has not lapsed");
    holder.release();
    // All datagrams that were sent meanwhile have been forwarded by now, and by us.
    bed.stream.arrives("the lock is free");
    let forwarded = bed.accelerated.forwarded() - bed.forwarded_before;
    assert!(forwarded >= end - begun, "{forwarded} of {begun}..{end}");
}

/// The attack: an interface goes down and comes up, and the daemon, which judges it and attaches its program, waits for the
/// lock; meanwhile rules are added.
#[test]
fn a_judgement_that_waits_for_the_lock_ends_the_lease_with_its_reason_and_filters_hold() {
    if !has("nft") {
        return;
    }
    let Some(bed) = Bed::make("judgement") else { return };
    let before = bed.lease();
    let Some(holder) = bed.hold_behind_the_link() else { return };
    let lapsed = until("the lease lapses", || match bed.lease() {
        lease if lease.holds => Err(format!("{lease:?}")),
        lease => Ok(lease),
    });
    // The kernel forwards, and its filters hold: while the lock is held, and when it is free.
    bed.stream.arrives("by the kernel");
    let drop_all =
        "table inet held { chain forward { type filter hook forward priority 0; policy drop; }; }";
    bed.topology.tool("r1", &format!("nft '{drop_all}'"));
    let filtered = bed.stream.after(ON_THEIR_WAY);
    let free = bed.stream.after(WATCHED);
    holder.release();
    let port = until("the gate has judged", || match bed.accelerated.port("lan") {
        port if port.reasons.is_empty() => Err(format!("{port:#?}")),
        port => Ok(port),
    });
    let end = bed.stream.after(WATCHED);
    assert_eq!(bed.stream.arrived(filtered..free), 0, "while the lock was held");
    assert_eq!(bed.stream.arrived(free..end), 0, "behind that");
    assert!(port.reasons[0].what.contains("table inet held"), "{port:#?}");

    bed.topology.tool("r1", "nft delete table inet held");
    bed.forwards();
    // Each lapse has its reason, and one of them was this wait.
    let mirror = bed.accelerated.mirror();
    let lapses: u64 = mirror.waits.iter().map(|wait| wait.lapses).sum();
    assert_eq!(lapses, mirror.lease.renewals - 1, "{mirror:#?}");
    assert!(mirror.lease.renewals > before.renewals, "{before:?} {mirror:#?}");
    let is_long = |name: &str| {
        let of = mirror.waits.iter().find(|wait| wait.activity == name);
        of.is_some_and(|wait| wait.lapses > 0 && wait.longest_ms >= lapsed.limit_ms)
    };
    // Whichever came to the lock first.
    let waited = ["gate", "programs", "dump"].into_iter().any(is_long);
    assert!(waited, "{:#?}", mirror.waits);
    let shown = bed.show("mirror");
    assert!(shown.contains("ms at most; the lease lapsed "), "{shown}");
}

/// A router that forwards, with a service manager that listens.
struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    stream: Steady,
    manager: UnixDatagram,
    folder: PathBuf,
    /// What was forwarded when the stream was known to be.
    forwarded_before: u64,
}

impl Bed {
    fn make(name: &str) -> Option<Bed> {
        let topology = topology(IN_A_ROW)?;
        // Not one that packets pass: the kernel uses a link that came up when it has had the lock once more.
        topology.tool("r1", "ip link add spare type veth peer name other");
        topology.tool("r1", "ip link set other up");
        topology.tool("r1", "ip link set spare up");
        let folder = std::env::temp_dir().join(format!("manylane-rtnl-{}-{name}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let manager = UnixDatagram::bind(folder.join("notify")).expect("the folder is ours");
        // A bound for a test that would fail: the daemon has a twentieth.
        manager.set_read_timeout(Some(Duration::from_secs(60))).expect("it is not zero");
        let mut command = mortal(env!("CARGO_BIN_EXE_manylane"));
        command.args(["accelerate", "lan", "wan", "spare", "--flows", "0"]);
        command.env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", "900000");
        let mut accelerated = Accelerated::spawn_command(topology.host("r1"), command, "--socket");
        accelerated.wait_until_it_forwards();
        let [client, server] = ["client", "server"].map(|name| topology.host(name));
        let stream = Steady::start(client, server, SteadyOptions::to(SERVER_V4));
        let stream = stream.expect("sockets are to be had");
        let mut bed = Bed { topology, accelerated, stream, manager, folder, forwarded_before: 0 };
        bed.forwarded_before = bed.forwards();
        Some(bed)
    }

    /// Waits until programs forward datagrams; how many packets have by then.
    fn forwards(&self) -> u64 {
        let before = self.accelerated.forwarded();
        until("datagrams go the fast way", || match self.accelerated.forwarded() {
            now if now > before + 100 => Ok(now),
            _ => Err(format!("{:#?}", self.accelerated.ports())),
        })
    }

    fn lease(&self) -> LeaseStatus {
        self.accelerated.ask::<AcceleratorStatus>("/v1/daemon").lease
    }

    fn show(&self, what: &str) -> String {
        let (program, socket) = (env!("CARGO_BIN_EXE_manylane"), self.accelerated.socket());
        self.topology.tool("r1", &format!("{program} show {what} --socket {}", socket.display()))
    }

    /// Reads what the service manager has heard so far; the daemon waits while the socket is full.
    fn manager_forgets(&self) {
        self.manager.set_nonblocking(true).expect("it is open");
        while self.manager.recv(&mut [0; 4096]).is_ok() {}
        self.manager.set_nonblocking(false).expect("it is open");
    }

    /// Waits for a message with these words.
    fn hear(&self, words: &str) {
        let mut message = [0; 4096];
        loop {
            let received = self.manager.recv(&mut message);
            let len = received.unwrap_or_else(|error| panic!("{words} was to come: {error}"));
            if String::from_utf8_lossy(&message[..len]).contains(words) {
                return;
            }
        }
    }

    /// Lets `spare` go down and come up, and holds the lock from then on: the kernel gives it to those that wait for it in
    /// their order, first to `ip`, whose change the daemon is notified of, then to the holder. Where the daemon was sooner
    /// than the holder, once more.
    fn hold_behind_the_link(&self) -> Option<Holder> {
        for _ in 0..ROUNDS_MAX {
            self.topology.tool("r1", "ip link set spare down");
            until("spare is down", || match self.accelerated.port("spare") {
                port if port.attached || port.link_up => Err(format!("{port:#?}")),
                _ => Ok(()),
            });
            let first = Holder::hold(&self.topology)?;
            let mut up = mortal("ip");
            up.args(["link", "set", "spare", "up"]);
            let mut up = spawn_in(self.topology.host("r1"), up);
            waits_for_the_lock(&up);
            let second = Holder::start(&self.topology);
            waits_for_the_lock(&second.child);
            first.release();
            let second = second.wait_until_held();
            let status = up.wait().expect("it is our child");
            assert!(status.success(), "{status}");
            let second = second?;
            // The thread waits for the lock, or has had it: then its lease is renewed on and on.
            let checks = self.lease().checks;
            self.stream.after(WATCHED);
            if self.lease().checks == checks {
                return Some(second);
            }
            // Where `ip` was behind the holder, the lock has expired: that round is lost, too.
            drop(second);
        }
        panic!("in {ROUNDS_MAX} rounds the daemon was always sooner than the holder");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until one of the process's threads sleeps in the kernel where the lock is waited for.
fn waits_for_the_lock(child: &Child) {
    until("it waits for the lock", || {
        let threads = fs::read_dir(format!("/proc/{}/task", child.id()));
        let stacks = threads.into_iter().flatten().flatten();
        let stacks = stacks.map(|thread| fs::read_to_string(thread.path().join("stack")));
        let stacks: Vec<_> = stacks.map(Result::unwrap_or_default).collect();
        let waits =
            |stack: &String| ["rtnl_newlink", "dev_ethtool"].iter().any(|at| stack.contains(at));
        if stacks.iter().any(waits) { Ok(()) } else { Err(stacks.join("\n")) }
    });
}

/// `hold_rtnl.py` in a network namespace of its own. Killed when dropped, which frees the lock.
struct Holder {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Holder {
    /// Holds the lock. `None` where this kernel has no userfaultfd.
    fn hold(topology: &Topology) -> Option<Holder> {
        Holder::start(topology).wait_until_held()
    }

    fn start(topology: &Topology) -> Holder {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/accelerate/hold_rtnl.py");
        let mut command = mortal("python3");
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The client's namespace is not the router's.
        let mut child = spawn_in(topology.host("client"), command);
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Holder { child, said }
    }

    fn wait_until_held(mut self) -> Option<Holder> {
        let said = self.line();
        if said != "held\n" {
            skip(format!("the lock cannot be held here: {said:?}"));
            return None;
        }
        Some(self)
    }

    fn release(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.line(), "released\n");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it is our child");
        line
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The child may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three in 900 ms: more than the second between two looks at everything. Other processes wait for the lock meanwhile.
const WATCHDOGS: u32 = 8;
/// Of the lease, half a second is more than twice that; datagrams are sent one a millisecond.
const WATCHED: u64 = 500;
/// What is sent before another thread runs.
const ON_THEIR_WAY: u64 = 50;
/// The daemon has to be sooner than a process that waits already.
const ROUNDS_MAX: u32 = 20;
