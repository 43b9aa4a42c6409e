//! `manylane demo`: each act shows its parts and its ledger, with and without a terminal, and nothing stays behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU16;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use manylane_lab::scenario::{lab, signal};
use manylane_lab::{LabOptions, until};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

#[test]
fn the_whole_demo_accounts_for_everything_in_both_acts() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    let output = demo(&["--seconds", "2", ROUTES]).wait_with_output().expect("it is our child");
    let said = said(output, 0);
    let mut rest = &said[..];
    for part in [
        "First act: speed up an existing Linux router.",
        " IPv6 prefixes of testdata/prefixes.txt.gz",
        " s  the router's kernel has ",
        " s  the kernel         IPv4 ",
        " s  the kernel         IPv6 ",
        " s  `manylane accelerate` starts",
        " s  manylane, ingress  IPv6 ",
        " s  manylane, ingress  IPv4 ",
        " s  manylane enters the driver",
        " s  manylane, driver   IPv4 ",
        " s  manylane, driver   IPv6 ",
        " s  `kill -KILL` ends manylane",
        " s  the kernel again   IPv6 ",
        " s  the kernel again   IPv4 ",
        "\nSmall packets",
        "\nthe kernel        IPv4  ",
        "\nmanylane, driver  IPv4  █",
        "\nOn two other ports",
        "\nTCP delivered ",
        "\nLedger of `manylane accelerate`",
        "\nEverything is accounted for.",
        "\nSecond act: `manylane run`",
        " s  manylane run: received ",
        "\nBusy: worker 0",
        "\nPing, IPv4",
        "\nTCP, IPv6",
        "\nEverything is accounted for.",
        "\nWhat next?",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in its place:\n{said}"));
        rest = &rest[at + part.len()..];
    }
    assert!(!said.contains('\x1b'), "a transcript has no escape codes:\n{said}");
    the_first_ledger_adds_up(&said);
}

/// All packets that manylane has seen are in one of its two sums, and each tier has forwarded some.
fn the_first_ledger_adds_up(said: &str) {
    let line = |begin: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("no line `{begin}`:\n{said}")).trim().to_owned()
    };
    let number = |text: &str| -> u64 {
        let digits = text.split(' ').next().expect("`split` has a first part").replace(',', "");
        digits.parse().unwrap_or_else(|_| panic!("`{text}` begins with no number"))
    };
    let [seen, forwarded, left] =
        ["  packets seen", "= forwarded", "+ left to the kernel"].map(|begin| number(&line(begin)));
    assert_eq!(seen, forwarded + left, "{said}");
    let missing = line("  forwarded, less sent");
    assert_eq!(number(&missing), 0, "{said}");
    let tiers = line("= forwarded");
    assert!(tiers.contains("(driver ") && tiers.contains(", ingress "), "{tiers}");
}

#[test]
fn on_a_terminal_bars_are_drawn_in_their_place() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    let size = PtySize { rows: 24, cols: 80, ..PtySize::default() };
    let pair = native_pty_system().openpty(size).expect("terminals are to be had");
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_manylane"));
    // Slices of half a second: on a loaded machine, none of the shorter ones may have a packet.
    command.args(["demo", "--seconds", "8", ROUTES]);
    command.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(command).expect("the program is there");
    drop(pair.slave); // So that the end of the output is seen.
    let mut output = pair.master.try_clone_reader().expect("the terminal is open");
    let lines = |number| NonZeroU16::new(number).expect("it is not zero");
    let mut parser = vt100::Parser::new(lines(24), lines(80), 0);
    let mut screens = Vec::new();
    let mut bytes = [0; 1 << 16];
    // A terminal whose last process has ended gives an error for an end.
    while let Ok(length @ 1..) = output.read(&mut bytes) {
        // A busy machine reads several pictures at once.
        for line in bytes[..length].split_inclusive(|&byte| byte == b'\n') {
            parser.process(line);
            screens.push(parser.screen().contents());
        }
    }
    assert_eq!(child.wait().expect("it is our child").exit_code(), 0, "{:?}", screens.last());

    // How long a bar is, and whether it grows, is what this machine does meanwhile.
    let has_rate = |screen: &str, name: &str| {
        let rate = screen.lines().find_map(|line| line.strip_prefix(name));
        rate.is_some_and(|rate| rate.contains(|letter: char| letter.is_ascii_digit()))
    };
    let drawn = |name: &str| screens.iter().filter(|screen| has_rate(screen, name)).count();
    for name in ["the kernel        IPv4", "manylane, ingress IPv4", "manylane, driver  IPv4"] {
        assert!(drawn(name) > 1, "{name} is shown while it lasts:\n{screens:#?}");
    }
    for screen in &screens {
        let pictures = screen.lines().filter(|line| line.starts_with("Small packets ")).count();
        assert!(pictures <= 1, "a picture takes the place of the one before:\n{screen}");
    }
    let last = screens.last().expect("it has written");
    assert!(last.contains("What next?") && last.contains("manylane doctor"), "{last}");
    assert!(!parser.screen().hide_cursor() && !parser.screen().alternate_screen());
}

#[test]
fn a_signal_ends_either_act_with_its_summary_and_nothing_stays() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    for (number, status, moment, summary) in [
        (Signal::SIGINT, 130, "`manylane accelerate` starts", "TCP delivered "),
        (Signal::SIGTERM, 143, "manylane, ingress  IPv6", "Ledger of `manylane accelerate`"),
        (Signal::SIGINT, 130, "manylane run: received", "TCP, IPv6"),
    ] {
        let mut demo = demo(&["--seconds", "6", ROUTES]);
        let mut begin = wait_for(&mut demo, moment);
        let namespaces = namespaces_of(&demo);
        signal(&demo, number);
        let mut rest = String::new();
        begin.read_to_string(&mut rest).expect("it writes text");
        let mut output = demo.wait_with_output().expect("it is our child");
        output.stdout = rest.into_bytes();
        let said = said(output, status);
        assert!(said.contains(summary), "after `{moment}`: {said}");
        assert!(!said.contains("What next?"), "{said}");
        nothing_is_in(&namespaces);
    }
}

#[test]
fn killed_it_leaves_no_process_in_its_namespaces_and_can_be_shown_again() {
    if lab(LabOptions::default()).is_none() {
        return;
    }
    let mut killed = demo(&["--seconds", "60", ROUTES]);
    wait_for(&mut killed, "manylane, ingress  IPv6");
    let namespaces = namespaces_of(&killed);
    signal(&killed, Signal::SIGKILL);
    killed.wait().expect("it is our child");
    nothing_is_in(&namespaces);

    let again = demo(&["--seconds", "1", ROUTES]).wait_with_output().expect("it is our child");
    let said = said(again, 0);
    assert!(said.contains("What next?"), "{said}");
}

#[test]
fn without_privilege_the_demo_runs_in_memory_and_says_why() {
    let output = demo(&["--memory", "--seconds", "1"]).wait_with_output().expect("our child");
    good_in_memory(output, "Why in memory: --memory.");

    if Uid::effective().is_root() {
        // Where any user may read it: a build may be in a folder of root's own.
        let folder = std::env::temp_dir().join(format!("manylane-demo-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let program = folder.join("manylane");
        fs::copy(env!("CARGO_BIN_EXE_manylane"), &program).expect("there is room for it");
        let mut command = command(&program, &["--seconds", "1"]);
        let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output();
        fs::remove_dir_all(&folder).expect("the folder is ours");
        good_in_memory(output.expect("any user may run it"), "Why in memory: not root: ");
    }
}

/// Owns nothing (Debian's `nobody`, and any other number would do).
const NOBODY: u32 = 65_534;
/// Enough for both IP versions; `accelerate_table` loads them all.
const ROUTES: &str = "--routes=20000";

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

/// Reads until a line has these words.
fn wait_for(demo: &mut Child, words: &str) -> BufReader<ChildStdout> {
    let mut output = BufReader::new(demo.stdout.take().expect("it is a pipe"));
    let (mut said, mut line) = (String::new(), String::new());
    while !line.contains(words) {
        said += &line;
        line.clear();
        let length = output.read_line(&mut line).expect("it writes text");
        assert_ne!(length, 0, "it ended before `{words}`:\n{said}");
    }
    output
}

/// The network namespaces of a demo's threads, without ours.
fn namespaces_of(demo: &Child) -> BTreeSet<PathBuf> {
    let ours = fs::read_link("/proc/self/ns/net").expect("it is always there");
    let mut namespaces = of_tasks(&PathBuf::from(format!("/proc/{}", demo.id())));
    namespaces.remove(&ours);
    assert!(namespaces.len() >= 3, "its hosts have namespaces of their own: {namespaces:?}");
    namespaces
}

/// The network namespaces of a process's threads; none if it has gone.
fn of_tasks(process: &Path) -> BTreeSet<PathBuf> {
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_link(task.path().join("ns/net")).ok()).collect()
}

/// Waits until no process of this machine is in any of these namespaces, so that the kernel takes them away.
fn nothing_is_in(namespaces: &BTreeSet<PathBuf>) {
    until("no process is in the demo's namespaces", || {
        let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
        let inside = |process: &PathBuf| !of_tasks(process).is_disjoint(namespaces);
        match processes.map(|process| process.path()).find(inside) {
            Some(process) => Err(process.display().to_string()),
            None => Ok(()),
        }
    });
}

fn good_in_memory(output: Output, why: &str) {
    let said = said(output, 0);
    assert!(said.contains("Everything is accounted for."), "{said}");
    assert!(said.contains(why), "{said}");
    for port in ["west4", "east4", "west6", "east6"] {
        assert!(said.contains(port), "{said}");
    }
}

fn said(output: Output, status: i32) -> String {
    let [said, complaint] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    assert_eq!(output.status.code(), Some(status), "{said}\n{complaint}");
    assert_eq!(complaint, "");
    said
}
