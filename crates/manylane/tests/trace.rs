//! `manylane trace` against a daemon between memory ports: three workers, one queue, packets steered by flow. Needs
//! neither root nor as many cores.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::{env, fs, process};

use manylane::api::{TraceStage, TraceWhat};
use manylane::config::Environment;
use manylane::trace::together::Followed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn packets_are_followed_across_workers() {
    let router = Router::start("across");
    // The first ones wait for their neighbour.
    for port in ["west", "east"] {
        while text(&router.trace(&["--json", "-i", port]).stdout).contains("held") {}
    }
    let output = router.trace(&["-c", "200", "--json"]);
    assert_eq!((status(&output), &*text(&output.stderr)), (0, LOOKING));
    let packets: Vec<Followed> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(packets.len(), 200);
    let mut numbers: Vec<u32> = packets.iter().map(|packet| packet.packet).collect();
    numbers.sort_unstable();
    assert!((1..=200).eq(numbers), "each once");
    let mut handed_on = 0;
    for packet in &packets {
        let names: Vec<&str> = packet.stages.iter().map(|stage| stage.what.name()).collect();
        let is_handed_on = names.contains(&"taken");
        handed_on += u32::from(is_handed_on);
        let expected: &[&str] = match is_handed_on {
            true => &["received", "steered", "taken"],
            false => &["received", "steered"],
        };
        let expected =
            [expected, &["checked", "route", "neighbour", "rewritten", "queued", "transmitted"]];
        assert!(packet.complete && names == expected.concat(), "{packet:?}");
        let TraceStage { what: TraceWhat::Route { prefix, .. }, .. } = packet
            .stages
            .iter()
            .find(|stage| stage.what.name() == "route")
            .expect("it was just seen")
        else {
            panic!("{packet:?}")
        };
        let prefixes = ["10.3.0.0/16", "2001:db8:3::/48"];
        assert!(prefixes.contains(&prefix.as_deref().expect("no route changes")), "{packet:?}");
    }
    assert!((1..200).contains(&handed_on), "{handed_on}");

    let output = router.trace(&["-i", "east"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("packet 1, "), "{said}");
    for line in ["received     by east, queue 0, ", "hop limit 64 to 63", "transmitted  by north"] {
        assert!(said.contains(line), "{said}");
    }
    router.stop();
}

#[test]
fn what_cannot_be_followed_is_said() {
    let router = Router::start("said");
    let output = router.trace(&["-i", "south"]);
    let says =
        "error: the daemon refused: there is no port `south`; there are west, east, north, quiet\n";
    assert_eq!((status(&output), text(&output.stderr)), (1, says.into()));
    let output = router.trace(&["-c", "0"]);
    assert_eq!(status(&output), 2);
    // The compiler's own words, or why there is none.
    let output = router.trace(&["ip", "and", "and"]);
    assert_eq!((status(&output), output.stdout.len()), (2, 0));
    assert!(text(&output.stderr).starts_with("error: "), "{output:?}");
    let output = router.trace(&["--json", "ip6"]);
    match status(&output) {
        0 => assert!(text(&output.stdout).contains("2001:db8:"), "{output:?}"),
        _ => assert!(text(&output.stderr).contains("libpcap"), "{output:?}"),
    }
    let output = command(&["trace", "--socket", "/no/such/socket"]).output().unwrap();
    assert_eq!(status(&output), 1);
    let said = text(&output.stderr);
    assert!(said.starts_with("error: no manylane daemon answers at /no/such/socket"), "{said}");
    router.stop();
}

#[test]
fn a_trace_ends_with_who_wants_it_however_that_ends() {
    let router = Router::start("ends");
    let busy = |said: &str| said.contains("another trace is running");
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        // Nothing is received there.
        let mut waiting = router.begin_to_wait();
        assert!(busy(&text(&router.trace(&[]).stderr)));
        kill(Pid::from_raw(waiting.id() as i32), signal).unwrap();
        if signal == Signal::SIGINT {
            let output = waiting.wait_with_output().unwrap();
            let says = "stopped with 0 of 1 packets\n";
            assert_eq!((status(&output), text(&output.stderr)), (0, says.into()));
        } else {
            waiting.wait().unwrap();
        }
        // As soon as the daemon has heard of it.
        let output = loop {
            let output = router.trace(&[]);
            if !busy(&text(&output.stderr)) {
                break output;
            }
        };
        assert_eq!(status(&output), 0, "{output:?}");
    }
    let waiting = router.begin_to_wait();
    router.stop();
    let output = waiting.wait_with_output().unwrap();
    let says = "the daemon has stopped with 0 of 1 packets\n";
    assert_eq!((status(&output), text(&output.stderr)), (0, says.into()));
}

/// What it says when all workers look for packets.
const LOOKING: &str = "looking for packets; Ctrl-C ends it\n";

/// A daemon that forwards what generators make, by IPv4 from "west" and by IPv6 from "east", to "north".
struct Router {
    folder: PathBuf,
    daemon: Child,
    /// What it says: kept open, so that it can.
    said: BufReader<ChildStderr>,
}

impl Router {
    fn start(name: &str) -> Router {
        let folder = env::temp_dir().join(format!("manylane-trace-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("router.toml");
        let core = Environment::of_this_thread().cores[0];
        fs::write(&file, CONFIG.replace("CORE", &core.to_string())).unwrap();
        let (file, socket) = (file.display().to_string(), socket(&folder));
        let mut daemon =
            command(&["run", &file, "--socket", &socket]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(daemon.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "manylane: forwarding; SIGINT or SIGTERM ends it\n");
        Router { folder, daemon, said }
    }

    fn begin(&self, words: &[&str]) -> Child {
        let socket = socket(&self.folder);
        command(&[&["trace", "--socket", &socket], words].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A trace of a port that receives nothing, when all workers have heard of it.
    fn begin_to_wait(&self) -> Child {
        let mut waiting = self.begin(&["-i", "quiet"]);
        // No more than this line: the rest is for who waits for its end.
        let mut line = [0; LOOKING.len()];
        waiting.stderr.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(line, *LOOKING.as_bytes());
        waiting
    }

    fn trace(&self, words: &[&str]) -> Output {
        self.begin(words).wait_with_output().unwrap()
    }

    fn stop(mut self) {
        kill(Pid::from_raw(self.daemon.id() as i32), Signal::SIGTERM).unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(line.ends_with("missing 0\n"), "{line}");
        assert!(self.daemon.wait().unwrap().success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // It has ended, but where a test has failed.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const CONFIG: &str = r#"
[workers]
cores = [CORE, CORE, CORE]
[[port]]
name = "west"
driver = "memory"
workers = [1]
addresses = ["10.1.0.254/24"]
[port.generate]
source = "10.1.0.1"
destination = "10.3.0.0/16"
flows = 64
packets_per_second = 20000
[[port]]
name = "east"
driver = "memory"
workers = [1]
addresses = ["2001:db8:2::fe/64"]
[port.generate]
source = "2001:db8:2::1"
destination = "2001:db8:3::/48"
flows = 64
packets_per_second = 20000
[[port]]
name = "north"
driver = "memory"
workers = [1]
addresses = ["10.9.0.254/24", "2001:db8:9::fe/64"]
[[port]]
name = "quiet"
driver = "memory"
workers = [1]
addresses = ["10.8.0.254/24"]
[[route]]
prefix = "10.3.0.0/16"
via = "10.9.0.1"
[[route]]
prefix = "2001:db8:3::/48"
via = "2001:db8:9::1"
"#;

fn socket(folder: &std::path::Path) -> String {
    folder.join("api.sock").display().to_string()
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
    command.args(words).stdin(Stdio::null());
    command
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
