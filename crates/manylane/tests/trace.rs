//! `manylane trace` against a daemon between memory ports: three workers, one queue, packets steered by flow. Needs
//! neither root nor as many cores.

use std::io::Read;
use std::process::{Child, Output, Stdio};

use manylane_api::{TraceStage, TraceWhat};
use manylane_router::trace::together::Followed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use router::{Router, command};

mod router;

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
    let says = "error: the daemon refused: port `south` does not exist; there are west, east, north, quiet\n";
    assert_eq!((status(&output), text(&output.stderr)), (1, says.into()));
    let output = router.trace(&["-c", "0"]);
    assert_eq!(status(&output), 2);
    // The compiler's own words, or why no compiler answers.
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

impl Router {
    fn begin(&self, words: &[&str]) -> Child {
        let socket = self.socket();
        command(&[&["trace", "--socket", &socket], words].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A trace of a port that receives nothing, when all workers have heard of it.
    fn begin_to_wait(&self) -> Child {
        let mut waiting = self.begin(&["-i", "quiet"]);
        // No more than this line: the rest is for the test that waits for the trace's end.
        let mut line = [0; LOOKING.len()];
        waiting.stderr.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(line, *LOOKING.as_bytes());
        waiting
    }

    fn trace(&self, words: &[&str]) -> Output {
        self.begin(words).wait_with_output().unwrap()
    }
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
