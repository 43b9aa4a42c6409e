//! [`Accelerated`]: `manylane accelerate` as a process of its own, in a router's namespace, and what it says of itself.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use manylane_io::namespace::Host;
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;

use crate::scenario::{signal, skip, spawn_in};
use crate::tools::{PATIENCE, mortal, until};
use crate::topology::Topology;
use manylane_api::accelerate::{
    AcceleratedLedger, AcceleratedPort, AcceleratorStatus, MirrorStatus,
};
use manylane_api::{Client, ClientError};

/// A topology, or nothing and a line that says why.
pub fn topology(text: &str) -> Option<Topology> {
    match Topology::make(text) {
        Ok(topology) => Some(topology),
        Err(error) => {
            skip(error);
            None
        }
    }
}

/// A client and a server, and the kernel's router between them, in the addresses of [`Lab`](super::Lab).
pub const IN_A_ROW: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
";

/// As `start`, with two queues each way on every link.
pub const IN_A_ROW_BY_TWO_QUEUES: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 queues 2 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan queues 2 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan queues 2 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 queues 2 10.2.0.1/24 2001:db8:2::1/64
";

/// Hosts as one of these two has them, whose packets have nothing beside their bytes (a veth's driver does not see that
/// a checksum is still to be filled in), and that take what a driver redirects to them. Nor do their connections send
/// more at once than a veth keeps for one end (256 frames): it drops the rest, and that of others with it.
pub fn plain_hosts(text: &str) -> Option<Topology> {
    let topology = topology(text)?;
    for host in ["client", "server"] {
        topology.tool(host, "ethtool -K eth0 gro on tx off");
        topology.set(host, "net/ipv4/tcp_wmem", "4096 65536 65536");
    }
    Some(topology)
}

/// A running accelerator. Killed when dropped, and with its host: a struct has it in front of the hosts. A test that fails
/// prints what it said, and its ledger.
pub struct Accelerated {
    child: Child,
    folder: PathBuf,
    client: Client,
}

impl Accelerated {
    /// Starts `program` (the tests' `CARGO_BIN_EXE_manylane`) on these interfaces of a router, and waits until
    /// packets are forwarded: its lease holds, and every port has the tier that the gate gives it.
    pub fn start(host: &Host, program: &str, interfaces: &[&str]) -> Accelerated {
        Accelerated::start_with(host, program, interfaces, &[])
    }

    /// As above, with more arguments.
    pub fn start_with(
        host: &Host,
        program: &str,
        interfaces: &[&str],
        arguments: &[&str],
    ) -> Accelerated {
        let mut started = Accelerated::spawn(host, program, interfaces, arguments);
        started.wait_until_it_forwards();
        started
    }

    /// Starts it and waits for nothing.
    pub fn spawn(
        host: &Host,
        program: &str,
        interfaces: &[&str],
        arguments: &[&str],
    ) -> Accelerated {
        let mut command = mortal(program);
        command.arg("accelerate").args(interfaces).args(arguments);
        Accelerated::spawn_command(host, command, "--socket")
    }

    /// Starts a command that accelerates, and that takes the path of its API's socket by this option.
    pub fn spawn_command(host: &Host, mut command: Command, socket_option: &str) -> Accelerated {
        let folder = folder_of_its_own();
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let socket = folder.join("api.sock");
        command.arg(socket_option).arg(&socket);
        let said = || File::options().create(true).append(true).open(folder.join("said"));
        let [stdout, stderr] = [said(), said()].map(|file| file.expect("the folder is ours"));
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
        let child = spawn_in(host, command);
        Accelerated { child, client: Client::new(&socket).with_patience(PATIENCE), folder }
    }

    /// Waits until its lease holds.
    pub fn wait_until_it_forwards(&mut self) {
        until("`manylane accelerate` forwards", || {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                panic!("`manylane accelerate` ended ({status}):\n{}", self.said());
            }
            match self.client.ask::<AcceleratorStatus>("/v1/daemon") {
                Ok(status) if status.lease.holds => Ok(()),
                Ok(status) => Err(format!("{status:?}")),
                Err(error) => Err(format!("{error}\n{}", self.said())),
            }
        });
    }

    /// The daemon's messages so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its API listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// Asks its API.
    ///
    /// # Panics
    ///
    /// If the daemon does not answer, with its messages.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> T {
        self.try_ask(path).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.said()))
    }

    /// Asks its API.
    pub fn try_ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.client.ask(path)
    }

    /// Posts nothing to a path of its API.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.client.post(path, &())
    }

    /// Puts a value to a path of its API.
    pub fn put<T: DeserializeOwned>(&self, path: &str, value: &str) -> Result<T, ClientError> {
        self.client.put(path, value)
    }

    /// `show ports`.
    pub fn ports(&self) -> Vec<AcceleratedPort> {
        self.ask("/v1/accelerate/ports")
    }

    /// One of them, by its name.
    pub fn port(&self, name: &str) -> AcceleratedPort {
        let ports = self.ports();
        let found = ports.iter().position(|port| port.name == name);
        ports[found.unwrap_or_else(|| panic!("no port {name}: {ports:#?}"))].clone()
    }

    /// Packets that were forwarded, by all ports together.
    pub fn forwarded(&self) -> u64 {
        self.ports().iter().map(|port| port.forwarded).sum()
    }

    /// Packets that all ports left to the kernel, by the name of the reason.
    pub fn passed(&self, reason: &str) -> u64 {
        self.ports().iter().filter_map(|port| port.passed.get(reason)).sum()
    }

    /// Waits until a port has this tier; what it is like then.
    pub fn wait_for_tier(&self, name: &str, tier: &str) -> AcceleratedPort {
        until(&format!("{name} is in tier {tier}"), || match self.port(name) {
            port if port.tier == tier => Ok(port),
            port => Err(format!("{port:#?}")),
        })
    }

    /// `show mirror`.
    pub fn mirror(&self) -> MirrorStatus {
        self.ask("/v1/accelerate/mirror")
    }

    /// Waits until the mirror is as the kernel is: `show mirror --diff` has nothing to say.
    pub fn wait_for_no_difference(&self) {
        until("the mirror is as the kernel", || match self.try_diff() {
            Ok(lines) if lines.is_empty() => Ok(()),
            Ok(lines) => Err(lines.join("\n")),
            // While the mirror reads all tables anew, its thread does not answer.
            Err(error) => Err(error.to_string()),
        });
    }

    /// `show mirror --diff`.
    pub fn diff(&self) -> Vec<String> {
        self.try_diff().unwrap_or_else(|error| panic!("{error}\n{}", self.said()))
    }

    /// The same where it may be refused.
    pub fn try_diff(&self) -> Result<Vec<String>, ClientError> {
        self.post("/v1/accelerate/mirror/diff")
    }

    /// `show ledger`. While packets pass, its two sides are of two moments.
    pub fn ledger(&self) -> AcceleratedLedger {
        self.ask("/v1/accelerate/ledger")
    }

    /// Every packet that was forwarded was sent, as far as our programs know; traffic has to rest.
    pub fn assert_balanced(&self) {
        until("what was forwarded was sent", || match self.ledger() {
            ledger if (ledger.missing, ledger.missing_bytes, ledger.queued) == (0, 0, 0) => Ok(()),
            ledger => Err(format!("{ledger:#?}")),
        });
        let ledger = self.ledger();
        let passed: u64 = ledger.passed.values().sum();
        let dropped: u64 = ledger.dropped.values().sum();
        assert_eq!(ledger.seen, ledger.forwarded + passed + dropped, "{ledger:#?}");
    }

    /// Sends it a signal.
    pub fn signal(&self, number: Signal) {
        signal(&self.child, number);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it is our child")
    }
}

impl Drop for Accelerated {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would end the process.
            let ledger = self.client.ask::<AcceleratedLedger>("/v1/accelerate/ledger");
            eprintln!("`manylane accelerate` said:\n{}\n{ledger:#?}", self.said());
        }
        // Neither can fail in a way that matters: it may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder_of_its_own() -> PathBuf {
    static LAST: Mutex<u32> = Mutex::new(0);
    let mut last = LAST.lock().expect("nobody panics with the lock");
    *last += 1;
    env::temp_dir().join(format!("manylane-accelerate-{}-{last}", process::id()))
}
