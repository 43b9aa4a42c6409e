//! What the scenarios in `tests/netns/` share.
//!
//! Whatever goes wrong panics: this is for tests, and what a test sees is the message.

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::config::RouterOptions;
use crate::network::{Lab, LabOptions};
use crate::ping::{IcmpError, Outcome, PATIENCE, Pinger, ping};
use crate::tools::until;
use manylane_api::{Client, Ledger};
use manylane_io::namespace::Host;

/// Says that a scenario was skipped, and why. With `CI=true` a skip is a failure: the machine of CI
/// can run every scenario.
pub fn skip(why: impl Display) {
    assert!(env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {why}");
    eprintln!("SKIPPED {why}");
}

/// A lab, or nothing and a line that says why.
pub fn lab(options: LabOptions) -> Option<Lab> {
    match Lab::three_hosts(options) {
        Ok(lab) => Some(lab),
        Err(error) => {
            skip(error);
            None
        }
    }
}

/// Whether a program is installed; if not, a line that says so.
pub fn has(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(format_args!("{program} is not installed"));
    }
    found
}

/// Every packet and every frame is accounted for, in all and by port of entry, when nothing is under way.
pub fn assert_balanced(ledger: &Ledger) {
    if let Some(missing) = missing(ledger) {
        panic!("{missing} are missing: {ledger:#?}");
    }
}

/// What is not accounted for.
fn missing(ledger: &Ledger) -> Option<String> {
    let port = ledger.per_port.iter().find(|port| port.missing != 0);
    match (ledger.missing, ledger.frames.missing) {
        (0, 0) => port.map(|port| format!("packets of {}", port.port)),
        (0, _) => Some("frames".to_owned()),
        _ => Some("packets".to_owned()),
    }
}

/// Three pings of `size` bytes, all answered, undamaged.
pub fn all_answered(host: &Host, destination: IpAddr, size: usize) {
    let report = ping(host, destination, size, 3)
        .unwrap_or_else(|error| panic!("{size} bytes to {destination}: {error}"));
    assert_eq!(report.received, 3, "{size} bytes to {destination}: {report:?}");
}

/// One ping with the given hop limit, which a host must answer with an error.
pub fn error_of(host: &Host, destination: IpAddr, size: usize, hops: u8) -> (IpAddr, IcmpError) {
    let mut pinger = Pinger::open(host, destination).expect("raw sockets are to be had");
    pinger.set_hops(hops).expect("it is a hop limit");
    // The kernel queries a missing neighbour three times, a second apart.
    match pinger.ask(size, 3 * PATIENCE) {
        Ok(Outcome::Error { from, error }) => (from, error),
        other => panic!("{size} bytes to {destination}: an error was to come, not {other:?}"),
    }
}

/// `manylane run` as a process of its own, in the router's namespace. Killed when dropped.
pub struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// Lines that no `wait_for` has consumed yet.
    said: Vec<String>,
    folder: PathBuf,
}

impl Running {
    /// Starts `program` (the tests' `CARGO_BIN_EXE_manylane`) and waits until it forwards.
    pub fn start(lab: &Lab, program: &str, options: &RouterOptions) -> Running {
        Running::start_with(lab, program, options, &[])
    }

    /// As above, with more arguments.
    pub fn start_with(
        lab: &Lab,
        program: &str,
        options: &RouterOptions,
        arguments: &[&str],
    ) -> Running {
        let folder = folder_of_its_own();
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let file = folder.join("lab.toml");
        fs::write(&file, options.text()).expect("the folder is ours");
        let mut command = Command::new(program);
        command.args(["run", &file.display().to_string()]);
        command.args(["--socket", &folder.join("api.sock").display().to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn_in(&lab.router, command);
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut running = Running { child, stderr, said: Vec::new(), folder };
        running.wait_for("forwarding");
        running
    }

    /// Waits until it has said a line with these words on standard error; returns the line, each once.
    pub fn wait_for(&mut self, words: &str) -> String {
        loop {
            if let Some(at) = self.said.iter().position(|line| line.contains(words)) {
                return self.said.remove(at);
            }
            let mut line = String::new();
            let len = self.stderr.read_line(&mut line).expect("what it says is text");
            assert!(len > 0, "`manylane run` ended: {:?}", self.said);
            self.said.push(line);
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its API listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// A client of its API.
    pub fn client(&self) -> Client {
        Client::new(&self.socket())
    }

    /// Waits until every packet and every frame is accounted for: packets that pass while counters are read are counted in a
    /// part of them.
    pub fn wait_for_balance(&self) {
        until("every packet is accounted for", || {
            let ledger: Ledger =
                self.client().ask("/v1/ledger").map_err(|error| error.to_string())?;
            missing(&ledger).map_or(Ok(()), |missing| Err(format!("{missing}: {ledger:#?}")))
        });
    }

    /// Ends it with SIGTERM: its status, and what else it said on standard error.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        signal(&self.child, Signal::SIGTERM);
        let mut said = self.said.concat();
        self.stderr.read_to_string(&mut said).expect("what it says is text");
        (self.child.wait().expect("it is our child"), said)
    }
}

/// Each thread of a process has these capabilities and can get no others, and is this user, as proc(5) has it.
pub fn assert_narrow(process: u32, capabilities: u64, user: u32) {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut looked_at = 0;
    for thread in threads.flatten() {
        // One may end meanwhile.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        let field = |name: &str| {
            let of = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            of.unwrap_or_else(|| panic!("no {name}: {status}")).trim().to_owned()
        };
        let set = |name| u64::from_str_radix(&field(name), 16).expect("it is a set");
        let sets = ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"].map(set);
        let kept = capabilities;
        assert_eq!(sets, [kept, kept, kept, 0, 0], "{status}");
        assert_eq!(field("NoNewPrivs"), "1", "{status}");
        let users = field("Uid");
        assert!(users.split_whitespace().all(|one| one == user.to_string()), "{status}");
        looked_at += 1;
    }
    assert!(looked_at > 1, "workers have threads of their own");
}

fn folder_of_its_own() -> PathBuf {
    static LAST: Mutex<u32> = Mutex::new(0);
    let mut last = LAST.lock().expect("nobody panics with the lock");
    *last += 1;
    env::temp_dir().join(format!("manylane-{}-{last}", process::id()))
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a program in the namespace of `host`: a child inherits that of the thread that makes it.
pub fn spawn_in(host: &Host, mut command: Command) -> Child {
    let program = Path::new(command.get_program()).display().to_string();
    match host.run(move || command.spawn()) {
        Ok(child) => child,
        Err(error) => panic!("cannot start {program}: {error}"),
    }
}

/// Sends a signal to a child that was not waited for yet.
pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().try_into().expect("a pid is an i32"));
    kill(pid, signal).expect("the child is ours, and not waited for");
}
