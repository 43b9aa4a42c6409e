//! `manylane demo`: it ends well, says so, and leaves nothing behind when it is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use manylane_lab::LabOptions;
use manylane_lab::scenario::{lab, signal};
use nix::sys::signal::Signal;
use nix::unistd::Uid;

#[test]
fn the_demo_accounts_for_everything_also_after_one_that_was_killed() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    good(demo(&["--seconds", "3"]).wait_with_output().expect("it is our child"), 0);

    let mut killed = demo(&["--seconds", "60"]);
    wait_for_a_table(&mut killed);
    signal(&killed, Signal::SIGKILL);
    killed.wait().expect("it is our child");

    good(demo(&["--seconds", "3"]).wait_with_output().expect("it is our child"), 0);
}

#[test]
fn a_signal_ends_the_demo_with_its_summary() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    for (number, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut demo = demo(&["--seconds", "60"]);
        let mut said = wait_for_a_table(&mut demo);
        signal(&demo, number);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut said, &mut rest).expect("it writes text");
        let mut output = demo.wait_with_output().expect("it is our child");
        output.stdout = rest.into_bytes();
        good(output, status);
    }
}

#[test]
fn without_privilege_the_demo_runs_in_memory_and_says_why() {
    let output = demo(&["--memory", "--seconds", "1"]).wait_with_output().expect("our child");
    good_in_memory(output, "Why in memory: --memory.");

    if Uid::effective().is_root() {
        // Where anybody may read it: a build may be in a folder of root's own.
        let folder = std::env::temp_dir().join(format!("manylane-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let program = folder.join("manylane");
        std::fs::copy(env!("CARGO_BIN_EXE_manylane"), &program).expect("there is room for it");
        let mut command = command(&program, &["--seconds", "1"]);
        let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output();
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        good_in_memory(output.expect("anybody may run it"), "Why in memory: not root: ");
    }
}

/// Owns nothing (Debian's `nobody`, and any other number would do).
const NOBODY: u32 = 65_534;

fn demo(words: &[&str]) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_manylane"));
    command(program, words).spawn().expect("the program is there")
}

fn command(program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .arg("demo")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn wait_for_a_table(demo: &mut Child) -> impl BufRead + use<> {
    let mut said = BufReader::new(demo.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    while !line.contains("Busy:") {
        line.clear();
        assert_ne!(said.read_line(&mut line).expect("it writes text"), 0, "it ended early");
    }
    said
}

fn good_in_memory(output: Output, why: &str) {
    let said = good_ledger(output, 0);
    assert!(said.contains(why), "{said}");
    for port in ["west4", "east4", "west6", "east6"] {
        assert!(said.contains(port), "{said}");
    }
}

fn good(output: Output, status: i32) {
    let said = good_ledger(output, status);
    for line in ["Ping, IPv4", "Ping, IPv6", "UDP, IPv6", "TCP, IPv4", "TCP, IPv6"] {
        assert!(said.contains(line), "{said}");
    }
}

fn good_ledger(output: Output, status: i32) -> String {
    let [said, complaint] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    assert_eq!(output.status.code(), Some(status), "{said}\n{complaint}");
    assert_eq!(complaint, "");
    assert!(said.contains("Everything is accounted for."), "{said}");
    said
}
