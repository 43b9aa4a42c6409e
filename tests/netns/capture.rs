//! `manylane capture` as a command, beside two kernels that talk: read by tcpdump and tshark through pipes, from
//! files, and as Wireshark calls it; ended by Ctrl-C, stopped, and killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use manylane_api::{SocketStatus, SocketsStatus};
use manylane_frame::vocabulary::DropReason;
use manylane_lab::scenario::{Running, all_answered, error_of, has, lab, signal, skip};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, IcmpError, LAN_V4, LAN_V6, Lab, LabOptions, RouterOptions, SERVER_V4,
    SERVER_V6, udp_stream,
};
use nix::sys::signal::Signal;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// A packet is with its reader when it has been there, and both ways to read it agree.
#[test]
fn tcpdump_and_we_show_packets_while_they_come() {
    if !has("tcpdump") {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let (ours, mut said) = rig.capture(&["--point", ALL_POINTS, WHAT_IS_COUNTED]);
    let (mut piped, pipe) = rig.capture_into("-w - --point rx,tx,drop", WHAT_IS_COUNTED);
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-n", "-t", "-l", "-r", "-"]).stdin(pipe);
    let mut tcpdump = Reader::start(tcpdump);
    for family in &FAMILIES {
        // As tcpdump has them; the rest of a line has numbers that are the kernel's choice.
        let Family { client, server, lan, nowhere, .. } = *family;
        let [echo, time_exceeded, unreachable] = family.words();
        all_answered(&rig.lab.client, server, 56);
        tcpdump.wait_for(&[format!("{client} > {server}: {echo} request"), "seq 3".into()]);
        tcpdump.wait_for(&[format!("{server} > {client}: {echo} reply"), "seq 3".into()]);
        some_datagrams(&rig.lab, server);
        tcpdump.wait_for(&[
            format!("{client}."),
            format!(" > {server}."),
            "UDP, length 100".into(),
        ]);
        error_of(&rig.lab.client, server, 56, 1);
        tcpdump.wait_for(&[format!("{lan} > {client}: {time_exceeded}")]);
        error_of(&rig.lab.client, nowhere, 56, 64);
        tcpdump.wait_for(&[format!("{lan} > {client}: {unreachable}")]);
    }
    let mut told = Vec::new();
    for _ in 0..2 * OF_A_FAMILY {
        told.push(said.next().expect("it captures until it is told").expect("it is text"));
    }
    for words in ["lan rx w0 IP ", "wan tx w0 IP6 ", "lan drop(hop_limit_exceeded) w0 IP6 "] {
        assert!(told.iter().any(|line| line.contains(words)), "{words}: {told:#?}");
    }
    assert!(piped.is_running() && tcpdump.is_running());

    // All have been read: nothing waits, and what was captured is what passed.
    let all = Counts { captured: 2 * OF_A_FAMILY, filtered: 2 * OF_A_FAMILY, lost: 0 };
    assert_eq!((ours.interrupt(), piped.interrupt()), (all, all));
    assert_eq!(said.next().map(Result::unwrap), None);
    // Behind `TIME PORT POINT WORKER`, a line is tcpdump's.
    let told: Vec<_> = told.iter().filter_map(|line| line.splitn(5, ' ').last()).collect();
    assert_eq!(told, tcpdump.end());
    rig.finish();
}

#[test]
fn files_name_ports_ways_and_reasons() {
    if !(has("tcpdump") && has("tshark")) {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let (all, drops) = (rig.file("all.pcapng"), rig.file("drops.pcapng"));
    let count = (2 * OF_A_FAMILY).to_string();
    let (of_all, _) =
        rig.capture(&["-w", &all, "-c", &count, "--point", ALL_POINTS, WHAT_IS_COUNTED]);
    let (of_drops, _) = rig.capture(&["-w", &drops, "-c", "4", "--point", "drop", WHAT_IS_COUNTED]);
    rig.talk();
    // By themselves.
    assert_eq!(of_all.end().captured, 2 * OF_A_FAMILY);
    assert_eq!(of_drops.end(), Counts { captured: 4, filtered: 4, lost: 0 });

    let lines = output(Command::new("tcpdump").args(["-n", "-t", "-r", &all]));
    assert_eq!(lines.lines().count() as u64, 2 * OF_A_FAMILY, "{lines}");
    // Numbers are those of the message, not of the packet that it quotes.
    let fields = "frame.interface_name frame.md5_hash frame.packet_flags_direction ip.src ipv6.src icmp.type \
                  icmpv6.type frame.comment";
    let (all, drops) = (tshark(&all, fields), tshark(&drops, fields));
    let mut found = BTreeMap::new();
    for row in &all {
        let [port, _, flags, v4, v6, kind, kind_v6, comment] = row.as_slice() else {
            panic!("these are not eight: {row:?}")
        };
        let way = match flags.as_str() {
            "" => "dropped",
            flags if flags.ends_with('1') => "in",
            _ => "out",
        };
        let row = [port, way, &format!("{v4}{v6}"), &format!("{kind}{kind_v6}"), comment];
        *found.entry(row.join("|")).or_insert(0) += 1;
    }
    let [hop_limit, no_route] = [DropReason::HopLimitExceeded, DropReason::NoRoute]
        .map(|reason| format!("drop {}: {}", reason.name(), reason.explanation()));
    let mut expected = BTreeMap::new();
    for Family { client, server, lan, echo, reply, time_exceeded, unreachable, .. } in FAMILIES {
        expected.extend([
            (format!("lan|in|{client}|{echo}|"), 5),
            (format!("wan|out|{client}|{echo}|"), 3),
            (format!("wan|in|{server}|{reply}|"), 3),
            (format!("lan|out|{server}|{reply}|"), 3),
            (format!("lan|in|{client}||"), DATAGRAMS),
            (format!("wan|out|{client}||"), DATAGRAMS),
            (format!("lan|out|{lan}|{time_exceeded}|"), 1),
            (format!("lan|out|{lan}|{unreachable}|"), 1),
            (format!("lan:drop|dropped|{client}|{echo}|{hop_limit}"), 1),
            (format!("lan:drop|dropped|{client}|{echo}|{no_route}"), 1),
        ]);
    }
    assert_eq!(found, expected);
    assert_eq!(expected.values().sum::<u64>(), 2 * OF_A_FAMILY);

    // What was dropped is, byte for byte, what had come; and the file of drops has nothing else.
    let of = |rows: &[Vec<String>], port: &str| -> Vec<String> {
        rows.iter().filter(|row| row[0] == port).map(|row| row[1].clone()).collect()
    };
    let (came, dropped) = (of(&all, "lan"), of(&all, "lan:drop"));
    assert!(dropped.len() == 4 && dropped.iter().all(|hash| came.contains(hash)), "{dropped:?}");
    assert_eq!((drops.len(), of(&drops, "lan:drop")), (4, dropped));
    rig.finish();
}

/// Ours is the only program in tshark's folder of such programs: in a mount namespace, so that the system's stays
/// as it is.
#[test]
fn tshark_captures_as_wireshark_does() {
    if !has("tshark") {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let Some(tshark) = rig.extcap() else { return };
    let list = output(&mut tshark(&["-D"]));
    for (port, told) in [("any", "all ports"), ("lan", "lan"), ("wan", "wan")] {
        let line = format!(". manylane-{port} (manylane: {told})\n");
        assert!(list.contains(&line), "{line}: {list}");
    }
    let mut words = vec!["-i", "manylane-wan", "-f", "icmp or icmp6", "-l", "-n"];
    words.extend(["-T", "fields", "-e", "frame.interface_name", "-e", "ip.src", "-e", "ipv6.src"]);
    words.extend(["-Y", "icmp.type == 0 || icmp.type == 8 || icmpv6.type in {128, 129}"]);
    let mut tshark = Reader::start(tshark(&words));
    // From then on packets wait for the reader of the FIFO.
    rig.pings_until(|sockets| sockets.iter().any(|socket| socket.port.as_deref() == Some("wan")));
    let lines: Vec<_> = FAMILIES
        .iter()
        .flat_map(|family| {
            all_answered(&rig.lab.client, family.server, 56);
            [family.client, family.server].map(|host| match host {
                IpAddr::V4(host) => format!("wan\t{host}\t"),
                IpAddr::V6(host) => format!("wan\t\t{host}"),
            })
        })
        .collect();
    for line in lines {
        tshark.wait_for(&[line]);
    }
    signal(&tshark.child, Signal::SIGINT);
    tshark.end();
    rig.finish();
}

/// One is stopped, one is killed, one has a filter: each has what is its own, and the router forwards.
#[test]
fn captures_end_without_disturbing_anybody() {
    if !has("tcpdump") {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let (slow, filtered) = (rig.file("slow.pcapng"), rig.file("icmp6.pcapng"));
    let (of_slow, _) = rig.capture(&["-w", &slow, "-i", "lan", "--point", "rx", "udp"]);
    let (of_icmp6, _) = rig.capture(&["-w", &filtered, "icmp6"]);
    let (mut of_killed, _unread) = rig.capture(&["-X", "--point", ALL_POINTS]);
    assert_eq!(rig.sockets().len(), 3);

    signal(&of_slow.child, Signal::SIGSTOP);
    // More than the ring of a reader who does not read, nor the pipe of one whose reader does not.
    const FLOOD: u64 = 8_000;
    let report = udp_stream(&rig.lab.client, &rig.lab.server, SERVER_V4, FLOOD, 1400, 0);
    let report = report.expect("sockets are to be had");
    assert!(report.is_perfect() && report.sent == FLOOD, "{report:?}");
    of_killed.child.kill().expect("it is our child, and not waited for");
    rig.talk();
    let empty = fs::metadata(&filtered).expect("it is there").len();
    let has_grown = || fs::metadata(&filtered).expect("it is there").len() > empty;
    rig.pings_until(|sockets| sockets.len() == 2 && has_grown());

    // The end is there before the command continues: it takes the packets that wait, and no more.
    signal(&of_slow.child, Signal::SIGINT);
    signal(&of_slow.child, Signal::SIGCONT);
    let counts = of_slow.end();
    assert_eq!(counts.filtered, FLOOD + 2 * DATAGRAMS, "{counts:?}");
    assert!(counts.lost > 0 && counts.captured > 0, "{counts:?}");
    assert_eq!(counts.captured + counts.lost, counts.filtered, "{counts:?}");
    assert_eq!(packets(&slow), counts.captured);

    let counts = of_icmp6.interrupt();
    assert!(counts.captured > 0 && counts.lost == 0, "{counts:?}");
    assert!(counts.captured <= counts.filtered, "{counts:?}");
    assert_eq!(packets(&filtered), counts.captured);
    let lines = output(Command::new("tcpdump").args(["-n", "-t", "-r", &filtered]));
    assert!(
        lines.lines().all(|line| line.starts_with("IP6 ") && line.contains("ICMP6")),
        "{lines}"
    );
    rig.finish();
}

/// Two hosts, `manylane run` between them, and the captures.
struct Rig {
    lab: Lab,
    running: Running,
}

impl Rig {
    fn start() -> Option<Rig> {
        let lab = lab(LabOptions::default())?;
        let running = Running::start(&lab, MANYLANE, &RouterOptions::default());
        for family in &FAMILIES {
            all_answered(&lab.client, family.server, 56);
        }
        Some(Rig { lab, running })
    }

    /// `manylane capture` with these words, and its lines. From here on no packet is missed.
    fn capture(&self, words: &[&str]) -> (Capturing, Lines<BufReader<ChildStdout>>) {
        let (mut capturing, out) = self.spawn(words);
        capturing.wait_until_it_listens();
        (capturing, BufReader::new(out).lines())
    }

    /// As `capture`, with packets to be read by another program. Nothing is missed after it has begun to read.
    fn capture_into(&self, words: &str, filter: &str) -> (Capturing, ChildStdout) {
        let words: Vec<_> = words.split(' ').chain([filter]).collect();
        let (mut capturing, out) = self.spawn(&words);
        capturing.wait_until_it_listens(); // All written so far fits into the pipe.
        (capturing, out)
    }

    fn spawn(&self, words: &[&str]) -> (Capturing, ChildStdout) {
        let mut command = Command::new(MANYLANE);
        command.args(["capture", "--socket"]).arg(self.running.socket()).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let out = child.stdout.take().expect("it is a pipe");
        let said = BufReader::new(child.stderr.take().expect("it is a pipe"));
        (Capturing { child, said }, out)
    }

    /// What [`OF_A_FAMILY`] counts.
    fn talk(&self) {
        for Family { server, nowhere, .. } in FAMILIES {
            all_answered(&self.lab.client, server, 56);
            some_datagrams(&self.lab, server);
            let (_, error) = error_of(&self.lab.client, server, 56, 1);
            assert_eq!(error, IcmpError::TimeExceeded);
            let (_, error) = error_of(&self.lab.client, nowhere, 56, 64);
            assert_eq!(error, IcmpError::Unreachable { code: 0 });
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        let status: SocketsStatus = self.running.client().ask("/v1/sockets").expect("it answers");
        status.sockets
    }

    /// Answered pings until something is so of the packet sockets.
    fn pings_until(&self, is_so: impl Fn(&[SocketStatus]) -> bool) {
        while !is_so(&self.sockets()) {
            for family in &FAMILIES {
                all_answered(&self.lab.client, family.server, 56);
            }
        }
    }

    /// tshark with us as its only extcap program; nothing, with a line that says why, where that cannot be.
    fn extcap(&self) -> Option<impl Fn(&[&str]) -> Command + use<>> {
        let folders = output(Command::new("tshark").args(["-G", "folders"]));
        let theirs = folders.lines().find_map(|line| {
            let (name, path) = line.split_once(':')?;
            let is_it = name.ends_with("xtcap path") && !name.starts_with("Personal");
            is_it.then(|| PathBuf::from(path.trim()))
        });
        let Some(theirs) = theirs.filter(|theirs| theirs.is_dir()) else {
            skip(format_args!("tshark has no folder of extcap programs: {folders}"));
            return None;
        };
        let ours = self.folder().join("extcap");
        fs::create_dir_all(&ours).expect("the folder is ours");
        let program = ours.join("manylane");
        let socket = self.running.socket();
        let script =
            format!("#!/bin/sh\nexec {MANYLANE} capture --socket {} \"$@\"\n", socket.display());
        fs::write(&program, script).expect("the folder is ours");
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");

        let inside = move |rest: &[&str]| {
            let mut command = Command::new("unshare");
            let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
            command.args(["--mount", "sh", "-c", script, "sh"]).arg(&ours).arg(&theirs).args(rest);
            // No preferences of the user who runs this.
            command.env("HOME", &ours).env("XDG_CONFIG_HOME", &ours);
            command
        };
        let tried = inside(&["true"]).output().expect("util-linux is everywhere");
        if !tried.status.success() {
            let complaint = String::from_utf8_lossy(&tried.stderr).into_owned();
            skip(format_args!("tshark's folder cannot be covered: {}", complaint.trim()));
            return None;
        }
        Some(move |words: &[&str]| inside(&[&["tshark"], words].concat()))
    }

    /// Its configuration's and socket's folder, which goes when it goes.
    fn folder(&self) -> PathBuf {
        self.running.socket().parent().expect("it has a folder").to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    /// The last socket has closed, and nothing is missing.
    fn finish(self) {
        self.pings_until(<[SocketStatus]>::is_empty);
        self.running.wait_for_balance();
        let (status, said) = self.running.terminate();
        assert!(status.success() && said.contains("missing 0"), "{status}: {said}");
    }
}

/// `manylane capture` as a process. Killed when dropped.
struct Capturing {
    child: Child,
    said: BufReader<ChildStderr>,
}

/// What it says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    captured: u64,
    filtered: u64,
    lost: u64,
}

impl Capturing {
    fn wait_until_it_listens(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it is text");
        assert!(line.starts_with("listening on "), "{line}");
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Ends it with Ctrl-C.
    fn interrupt(self) -> Counts {
        signal(&self.child, Signal::SIGINT);
        self.end()
    }

    /// Waits for its end.
    fn end(mut self) -> Counts {
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("it is text");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {said}");
        let mut lines = said.lines();
        let mut count = |what: &str| -> u64 {
            let line = lines.next().unwrap_or_else(|| panic!("{what} is missing: {said}"));
            let (number, rest) = line.split_once(" packet").unwrap_or_else(|| panic!("{said}"));
            assert_eq!(rest.trim_start_matches('s'), what, "{said}");
            number.parse().unwrap_or_else(|error| panic!("{error}: {said}"))
        };
        Counts {
            captured: count(" captured"),
            filtered: count(" received by filter"),
            lost: count(" lost between the workers and this command"),
        }
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        let _ = self.child.kill(); // The child may have ended, and been waited for.
        let _ = self.child.wait();
    }
}

/// Another program that reads packets and says lines. Killed when dropped.
struct Reader {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

impl Reader {
    fn start(mut command: Command) -> Reader {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program is there");
        let out = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Reader { child, out, said: Vec::new() }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits until it has said a line with all of these words.
    fn wait_for(&mut self, words: &[String]) {
        let has_all = |line: &String| words.iter().all(|word| line.contains(word.as_str()));
        while !self.said.iter().any(has_all) {
            let line = self.out.next().unwrap_or_else(|| panic!("{words:?}: {:#?}", self.said));
            self.said.push(line.expect("it is text"));
        }
    }

    /// Waits for its end: all that it said.
    fn end(mut self) -> Vec<String> {
        let mut said = std::mem::take(&mut self.said);
        said.extend(self.out.by_ref().map(|line| line.expect("it is text")));
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {said:#?}");
        said
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill(); // The child may have ended, and been waited for.
        let _ = self.child.wait();
    }
}

fn some_datagrams(lab: &Lab, server: IpAddr) {
    let report = udp_stream(&lab.client, &lab.server, server, DATAGRAMS, 100, 0);
    let report = report.expect("sockets are to be had");
    assert!(report.is_perfect(), "{server}: {report:?}");
}

/// What a program says that has to succeed.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program is there");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    String::from_utf8(output.stdout).expect("it is text")
}

/// How many packets tcpdump finds in a file, which it finds whole.
fn packets(file: &str) -> u64 {
    let said = output(Command::new("tcpdump").args(["-n", "--count", "-r", file]));
    let number = said.split_once(' ').map(|(number, _)| number.parse());
    number.unwrap_or_else(|| panic!("{said}")).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The fields of a file's packets, the first of several.
fn tshark(file: impl AsRef<Path>, fields: &str) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args([
        "-n",
        "-o",
        "frame.generate_md5_hash:TRUE",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
    ]);
    for field in fields.split_whitespace() {
        command.args(["-e", field]);
    }
    let said = output(command.arg("-r").arg(file.as_ref()));
    said.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// A version of IP in the lab, and its numbers for messages.
#[derive(Clone, Copy)]
struct Family {
    client: IpAddr,
    server: IpAddr,
    lan: IpAddr,
    nowhere: IpAddr,
    echo: u8,
    reply: u8,
    time_exceeded: u8,
    unreachable: u8,
}

impl Family {
    /// An echo, and the two errors, as tcpdump says them.
    fn words(&self) -> [String; 3] {
        let Family { server, nowhere, .. } = self;
        match self.client {
            IpAddr::V4(_) => [
                "ICMP echo".into(),
                "ICMP time exceeded in-transit".into(),
                format!("ICMP net {nowhere} unreachable"),
            ],
            IpAddr::V6(_) => [
                "ICMP6, echo".into(),
                format!("ICMP6, time exceeded in-transit for {server}"),
                format!("ICMP6, destination unreachable, unreachable route {nowhere}"),
            ],
        }
    }
}

const FAMILIES: [Family; 2] = [
    Family {
        client: CLIENT_V4,
        server: SERVER_V4,
        lan: LAN_V4,
        nowhere: IpAddr::V4(std::net::Ipv4Addr::new(10, 70, 0, 1)),
        echo: 8,
        reply: 0,
        time_exceeded: 11,
        unreachable: 3,
    },
    Family {
        client: CLIENT_V6,
        server: SERVER_V6,
        lan: LAN_V6,
        nowhere: IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0x70, 0, 0, 0, 0, 1)),
        echo: 128,
        reply: 129,
        time_exceeded: 3,
        unreachable: 1,
    },
];

/// Neither ARP nor what looks for neighbours and groups: the kernel says that when it likes.
const WHAT_IS_COUNTED: &str = "icmp or udp or icmp6[0] < 130";
const ALL_POINTS: &str = "rx,tx,drop";
const DATAGRAMS: u64 = 5;
/// Three pings there and back, datagrams there, each on two ports; two packets that arrive, are dropped, and are
/// answered.
const OF_A_FAMILY: u64 = 3 * 4 + DATAGRAMS * 2 + 2 * 3;
