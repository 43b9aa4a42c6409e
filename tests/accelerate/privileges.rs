//! What `manylane accelerate` may still do, once it forwards: in each of its threads, as root and as another user; that
//! this is enough to follow ports and to change tiers; and what a service manager hears of it.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use crate::messages::Page;
use manylane_api::Client;
use manylane_api::Setting;
use manylane_api::accelerate::{AcceleratedPort, AcceleratorStatus};
use manylane_lab::accelerated::{IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, assert_narrow, signal, spawn_in};
use manylane_lab::{SERVER_V4, SERVER_V6, Topology, until};
use nix::sys::signal::Signal;

/// NET_ADMIN, NET_RAW, PERFMON, BPF.
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;

#[test]
fn as_root_it_keeps_four_capabilities_and_does_its_work() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    it_does_its_work(&topology, None);
}

#[test]
fn as_another_user_it_does_the_same() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    it_does_its_work(&topology, Some(NOBODY));
}

/// All wrong requests.
#[test]
fn what_it_refuses_names_the_thing_and_the_next_step() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let running = Running::start(&topology, "refuses", None);
    running.hear("READY=1");
    let mut page = Page::new("manylane accelerate");
    let mut row = |key: &str, value: &str, names: &[&str], next: &str| {
        let refused = running.client.put::<Setting>(&format!("/v1/config/{key}"), value);
        page.row(key, &refused.expect_err(key).to_string(), names, next);
    };
    row("frames.size", "2048", &["frames.size"], "port.IF.sflow_rate can");
    row("port.lan.tier", "fast", &["\"fast\""], "auto, ingress, driver, workers and kernel are");
    row("port.none.tier", "driver", &["none"], "name one of lan, wan");
    let mut row = |path: &str, names: &[&str], next: &str| {
        let refused = running.client.ask_text(path);
        page.row(path, &refused.expect_err(path).to_string(), names, next);
    };
    let why = |rest: &str| format!("/v1/accelerate/why/{rest}");
    row(&why("none/10.1.0.1/10.2.0.1"), &["none"], "name one of lan, wan");
    row(&why("lan/10.1.0.1/there"), &["there"], "why/INTERFACE/SOURCE/DESTINATION");
    row(&why("lan/10.1.0.1/2001:db8::1"), &["10.1.0.1", "2001:db8::1"], "say two IPv4 addresses");
    row("/v1/ports", &["/v1/ports", "`manylane accelerate`"], "use /v1/daemon, or ports");
    page.finish();
    running.ends(&topology);
}

/// While nothing changes, the watchdog is fed by the thread's work alone.
#[test]
fn in_quiet_times_it_feeds_the_watchdog() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let running = Running::start(&topology, "quiet", None);
    running.hear("READY=1");
    for _ in 0..3 {
        running.hear("WATCHDOG=1");
    }
    running.ends(&topology);
}

fn it_does_its_work(topology: &Topology, user: Option<(&str, u32)>) {
    let running = Running::start(topology, user.map_or("root", |(name, _)| name), user);
    let said = running.hear("READY=1");
    assert!(said.contains("STATUS=2 of 2 interfaces accelerated"), "{said}");
    running.is_narrow(user);
    running.forwards(topology);

    // Live: into the driver, to threads of ours with new sockets, and back.
    for tier in ["driver", "workers", "ingress"] {
        for port in ["lan", "wan"] {
            let set = running.client.put::<Setting>(&format!("/v1/config/port.{port}.tier"), tier);
            set.unwrap_or_else(|error| panic!("{tier}: {error}"));
        }
        until(&format!("the tier is {tier}"), || {
            let ports = running.ports();
            match ports.iter().all(|port| port.tier == tier) {
                true => Ok(()),
                false => Err(format!("{ports:#?}")),
            }
        });
        running.forwards(topology);
        running.is_narrow(user);
    }

    // A port goes down and comes back.
    topology.tool("r1", "ip link set wan down");
    until("wan is down", || match running.port("wan").link_up {
        false => Ok(()),
        true => Err("it is up"),
    });
    topology.tool("r1", "ip link set wan up");
    topology.tool("r1", "ip -6 address replace 2001:db8:2::fe/64 dev wan nodad");
    until("wan is back", || match running.port("wan") {
        port if port.link_up && port.attached => Ok(()),
        port => Err(format!("{port:#?}")),
    });
    running.hear("WATCHDOG=1");
    running.ends(topology);
}

/// `manylane accelerate` with a service manager.
struct Running {
    child: Child,
    client: Client,
    manager: UnixDatagram,
    folder: PathBuf,
}

impl Running {
    fn start(topology: &Topology, name: &str, user: Option<(&str, u32)>) -> Running {
        let name = format!("manylane-privileges-{}-{name}", process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let manager = UnixDatagram::bind(folder.join("notify")).expect("the folder is ours");
        manager.set_read_timeout(Some(Duration::from_secs(30))).expect("it is not zero");
        let socket = folder.join("api.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
        command.args(["accelerate", "lan", "wan", "--socket"]).arg(&socket);
        command.env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", "3000000");
        if let Some((user, number)) = user {
            command.args(["--user", user]);
            // The accelerator may take its socket away in the end, and notify the manager.
            for path in [folder.clone(), folder.join("notify")] {
                chown(path, Some(number), None).expect("we are root");
            }
        }
        command.stdin(Stdio::null());
        let child = spawn_in(topology.host("r1"), command);
        Running { child, client: Client::new(&socket), manager, folder }
    }

    /// Where a container's root may not lift the limit of locked memory, it keeps the right to pass it (IPC_LOCK).
    fn is_narrow(&self, user: Option<(&str, u32)>) {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.child.id()));
        let limits = limits.expect("it runs");
        let locked = limits.lines().find(|line| line.starts_with("Max locked memory"));
        let is_lifted = locked.is_some_and(|line| line.contains("unlimited"));
        let kept = if is_lifted { KEPT } else { KEPT | 1 << 14 };
        assert_narrow(self.child.id(), kept, user.map_or(0, |(_, number)| number));
    }

    /// Waits for a message with these words.
    fn hear(&self, words: &str) -> String {
        let mut message = [0; 4096];
        loop {
            let received = self.manager.recv(&mut message);
            let len = received.unwrap_or_else(|error| panic!("{words} was to come: {error}"));
            let text = String::from_utf8_lossy(&message[..len]).into_owned();
            if text.contains(words) {
                return text;
            }
        }
    }

    fn ports(&self) -> Vec<AcceleratedPort> {
        self.client.ask("/v1/accelerate/ports").expect("it answers")
    }

    fn port(&self, name: &str) -> AcceleratedPort {
        self.ports().into_iter().find(|port| port.name == name).expect("it is there")
    }

    /// Traffic passes, and by us.
    fn forwards(&self, topology: &Topology) {
        let forwarded = || self.ports().iter().map(|port| port.forwarded).sum::<u64>();
        let before = forwarded();
        until("packets pass by us", || {
            for destination in [SERVER_V4, SERVER_V6] {
                all_answered(topology.host("client"), destination, 56);
            }
            let (now, status) = (forwarded(), self.client.ask::<AcceleratorStatus>("/v1/daemon"));
            if now > before { Ok(()) } else { Err(format!("{status:?} {:#?}", self.ports())) }
        });
    }

    /// Nothing is left: no program, no socket.
    fn ends(mut self, topology: &Topology) {
        signal(&self.child, Signal::SIGTERM);
        self.hear("STOPPING=1");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
        let links = topology.tool("r1", "ip -details link show");
        assert!(!links.contains("prog/xdp"), "{links}");
        assert!(!Path::new(&self.folder.join("api.sock")).exists(), "the socket is left");
        all_answered(topology.host("client"), SERVER_V4, 56);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        // Of a user who is not root it becomes the folder; it was root's.
        let _ = chown("/run/manylane", Some(0), Some(0));
    }
}

/// Debian's.
const NOBODY: (&str, u32) = ("nobody", 65534);
