//! `manylane capture` at `manylane accelerate`: transit in each tier, what workers drop and why, what is left to the kernel
//! and why, filters, and that nothing of a capture stays, however it ends. Needs root.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use manylane_accelerate::programs::programs_named;
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, has, signal, skip};
use manylane_lab::tools::mortal;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, Steady, SteadyOptions, Topology, ping, until,
};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::workers::bed::{Hung, changed, is_forwarded_by};

pub(super) const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");
/// The name of the programs of captures.
const NAME: &str = "manylane_capt";

/// A running `manylane capture`. Killed when dropped.
struct Capture {
    child: Child,
    folder: PathBuf,
}

impl Capture {
    /// Starts it, and waits until it captures.
    fn start(accelerated: &Accelerated, arguments: &[&str]) -> Capture {
        Capture::start_by(mortal(MANYLANE), accelerated, arguments)
    }

    /// As above, by this command.
    fn start_by(mut command: Command, accelerated: &Accelerated, arguments: &[&str]) -> Capture {
        let number = {
            let mut number = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
            *number += 1;
            *number
        };
        let name = format!("manylane-capture-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let file = |name: &str| File::create(folder.join(name)).expect("the folder is ours");
        command.arg("capture").args(arguments).arg("--socket").arg(accelerated.socket());
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let child = command.spawn().expect("the program is there");
        let capture = Capture { child, folder };
        until("it captures", || {
            let said = capture.said();
            if said.contains("listening on") { Ok(()) } else { Err(said) }
        });
        capture
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("err")).unwrap_or_default()
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("out")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for lines that have all of these words, and no others with them.
    fn wait_for(&self, words: &[&str], count: usize) {
        until(&format!("{count} lines have {words:?}"), || {
            let lines = self.lines();
            let is_it = |line: &&String| words.iter().all(|word| line.contains(word));
            if lines.iter().filter(is_it).count() == count { Ok(()) } else { Err(lines.join("\n")) }
        });
    }

    /// Ends it as Ctrl-C does. Returns its messages.
    fn end(mut self) -> String {
        signal(&self.child, Signal::SIGINT);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The command may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

static NUMBER: Mutex<u32> = Mutex::new(0);

/// One at a time: the programs of captures are counted on the whole machine.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn start(topology: &Topology, tier: &str) -> Accelerated {
    let host = topology.host("r1");
    let accelerated = Accelerated::start_with(host, MANYLANE, &["lan", "wan"], &["--tier", tier]);
    for name in ["lan", "wan"] {
        accelerated.wait_for_tier(name, tier);
    }
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    // Neighbours are known then.
    for (from, to) in [(client, SERVER_V4), (client, SERVER_V6), (server, CLIENT_V4)] {
        all_answered(from, to, 56);
    }
    let forwarded = accelerated.forwarded();
    until("packets are forwarded", || {
        for to in [SERVER_V4, SERVER_V6] {
            all_answered(client, to, 56);
        }
        match accelerated.forwarded() - forwarded {
            12.. => Ok(()),
            few => Err(few),
        }
    });
    accelerated
}

fn programs() -> usize {
    programs_named(NAME).expect("root may ask")
}

pub(super) fn none_is_left() {
    until("no program of a capture is left", || match programs() {
        0 => Ok(()),
        some => Err(some),
    });
}

#[test]
fn transit_is_seen_in_each_tier_and_what_is_left_to_the_kernel() {
    let _alone = alone();
    for tier in ["ingress", "driver", "workers"] {
        let Some(topology) = plain_hosts(IN_A_ROW) else { return };
        let accelerated = start(&topology, tier);
        let client = topology.host("client");
        let capture =
            Capture::start(&accelerated, &["--point", "rx,tx,drop,kernel", "icmp", "or", "icmp6"]);
        assert!(programs() > 0);
        let forwarded = accelerated.forwarded();
        all_answered(client, SERVER_V4, 1400);
        all_answered(client, SERVER_V6, 1400);
        for (from, to, len) in [(CLIENT_V4, SERVER_V4, 1408), (CLIENT_V6, SERVER_V6, 1408)] {
            for (from, to, ports) in [(from, to, ["lan", "wan"]), (to, from, ["wan", "lan"])] {
                let flow = format!("{from} > {to}: ICMP");
                let echo = format!("length {len}");
                capture.wait_for(&[&format!(" {} rx ", ports[0]), &flow, "echo", &echo], 3);
                // Where the kernel forwarded it, for a moment, no program saw it leave.
                let left = capture.lines().iter().filter(|line| line.contains(" kernel(")).count();
                if left == 0 {
                    capture.wait_for(&[&format!(" {} tx ", ports[1]), &flow, "echo", &echo], 3);
                }
            }
        }
        assert!(accelerated.forwarded() > forwarded);
        topology
            .try_tool("client", "ping -c 1 -t 1 -W 1 10.2.0.1")
            .expect_err("it is not answered");
        capture.wait_for(&[" lan kernel(ttl) ", "10.1.0.1 > 10.2.0.1"], 1);
        let said = capture.end();
        assert!(said.contains("\n0 packets lost"), "{said}");
        none_is_left();
        accelerated.assert_balanced();
    }
}

/// What lies in a worker's ring while its route goes is dropped: each such packet is seen, and no other.
#[test]
fn packets_that_workers_drop_are_seen_with_the_reason() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "workers");
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    for (destination, route) in
        [(SERVER_V4, "blackhole 10.2.0.1/32"), (SERVER_V6, "blackhole 2001:db8:2::1/128")]
    {
        let capture = Capture::start(&accelerated, &["--point", "drop", "udp"]);
        let stream = Steady::start(client, server, SteadyOptions::to(destination))
            .expect("sockets are to be had");
        is_forwarded_by(&accelerated, "workers");
        let before = changed(&accelerated);
        let hung = Hung::stop(accelerated.pid(), "worker 0");
        until("frames are queued", || match accelerated.ledger().queued {
            queued if queued >= 10 => Ok(()),
            queued => Err(queued),
        });
        topology.tool("r1", &format!("ip route add {route}"));
        accelerated.wait_for_no_difference();
        drop(hung);
        until("what was queued has been decided upon", || match accelerated.ledger() {
            ledger if ledger.queued == 0 => Ok(()),
            ledger => Err(format!("{ledger:#?}")),
        });
        drop(stream);
        let dropped = (changed(&accelerated) - before) as usize;
        assert!(dropped >= 10, "{route}: {:#?}", accelerated.ledger());
        let to = format!("> {destination}.");
        capture.wait_for(&[" lan drop(decision_changed) w0 IP", &to, "UDP, length "], dropped);
        topology.tool("r1", &format!("ip route del {route}"));
        let said = capture.end();
        assert!(said.contains("\n0 packets lost"), "{said}");
    }
    none_is_left();
}

#[test]
fn files_have_whole_packets_and_reasons() {
    let _alone = alone();
    if !has("tshark") {
        return skip("tshark is not there");
    }
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for tier in ["ingress", "workers"] {
        a_file_has_whole_packets_and_reasons(&topology, tier);
    }
}

fn a_file_has_whole_packets_and_reasons(topology: &Topology, tier: &str) {
    let accelerated = start(topology, tier);
    let capture =
        Capture::start(&accelerated, &["--point", "tx,kernel", "-w", "-", "-i", "wan", "icmp6"]);
    let client = topology.host("client");
    all_answered(client, SERVER_V6, 1400);
    // Not the port's.
    all_answered(client, SERVER_V4, 56);
    topology
        .try_tool("server", "ping -c 1 -t 1 -W 1 2001:db8:1::1")
        .expect_err("it is not answered");
    let file = capture.folder.join("out");
    let shown = until("all packets are in the file", || {
        let shown = tshark(&file);
        let lines = shown.lines().count();
        if lines >= 4 { Ok(shown) } else { Err(shown) }
    });
    let lines: Vec<_> = shown.lines().collect();
    let sent: Vec<_> =
        lines.iter().filter(|line| line.starts_with("wan\t1462\t1462\t63")).collect();
    assert_eq!(sent.len(), 3, "{shown}");
    let left: Vec<_> = lines.iter().filter(|line| line.contains("kernel ttl: ")).collect();
    assert_eq!(left.len(), 1, "{shown}");
    assert!(left[0].starts_with("wan:kernel\t118\t118\t1\t"), "{shown}");
    capture.end();
    none_is_left();
}

/// The words of Wireshark's interface for extcap programs (extcap(4)): interfaces, then packets by a FIFO.
#[test]
fn wireshark_is_served_as_by_the_router() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "driver");
    let socket = accelerated.socket();
    let ask = |arguments: &[&str]| {
        let mut command = mortal(MANYLANE);
        command.arg("capture").arg("--socket").arg(&socket).args(arguments);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    };
    let list = ask(&["--extcap-interfaces", "--extcap-version=4.0"]).output();
    let list = String::from_utf8(list.expect("it is built").stdout).expect("it is text");
    for name in ["any", "lan", "wan"] {
        assert!(list.contains(&format!("interface {{value=manylane-{name}}}")), "{list}");
    }
    let folder = socket.parent().expect("it has a folder");
    let [fifo, file] = ["fifo", "captured"].map(|name| folder.join(name));
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).expect("the folder is ours");
    let mut command = ask(&["--capture", "--extcap-interface", "manylane-wan"]);
    command.args(["--extcap-capture-filter", "icmp6", "--fifo"]).arg(&fifo);
    let mut child = command.spawn().expect("it is built");
    let reader = {
        let (fifo, file) = (fifo.clone(), file.clone());
        // Opened when both ends are, and read until the other end is closed.
        thread::spawn(move || std::io::copy(&mut File::open(fifo)?, &mut File::create(file)?))
    };
    // Echo requests by wan: each is captured from when the filter is in the program.
    let client = topology.host("client");
    until("packets are in Wireshark's file", || {
        all_answered(client, SERVER_V6, 56);
        all_answered(client, SERVER_V4, 56);
        let bytes = fs::read(&file).unwrap_or_default();
        // The header of an IPv6 packet with ICMPv6 that was forwarded: its hop limit is one less.
        let packet = [&[58, 63][..], &[0x20, 1, 0x0d, 0xb8, 0, 1]].concat();
        let is_there = bytes.windows(packet.len()).any(|part| part == packet);
        if is_there { Ok(()) } else { Err(format!("{} bytes", bytes.len())) }
    });
    signal(&child, Signal::SIGTERM);
    let status = child.wait().expect("it is our child");
    assert!(status.success(), "{status}");
    reader.join().expect("it reads").expect("the FIFO is whole");
    let bytes = fs::read(&file).expect("it was written");
    let of_ipv4 = [[10, 1, 0, 1], [10, 2, 0, 1]].concat();
    assert!(!bytes.windows(8).any(|part| part == of_ipv4), "the filter lets IPv4 pass");
    none_is_left();
}

fn tshark(file: &Path) -> String {
    let fields =
        ["frame.interface_name", "frame.len", "frame.cap_len", "ipv6.hlim", "frame.comment"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", "icmpv6.type == 128", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let Output { stdout, .. } = command.output().expect("it is there");
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Asks the API for a file of drops. Returns its answer's status, when the file has ended.
fn ask_for_drops(accelerated: &Accelerated, request: &str, file: &Path) -> Child {
    let mut command = mortal("curl");
    command.args(["-sS", "-X", "POST", "-d", request, "-w", "%{http_code}", "-o"]).arg(file);
    command.arg("--unix-socket").arg(accelerated.socket());
    command.arg("http://manylane/v1/capture/drops").stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("it is there")
}

fn status_of(mut asked: Child) -> String {
    let mut status = String::new();
    let mut out = asked.stdout.take().expect("it is piped");
    out.read_to_string(&mut status).expect("it is text");
    asked.wait().expect("it is our child");
    status
}

/// The interface and the comment of each packet.
fn comments(file: &Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-e", "frame.interface_name"]);
    let Output { stdout, .. } =
        command.args(["-e", "frame.comment"]).output().expect("it is there");
    String::from_utf8_lossy(&stdout).lines().map(str::to_owned).collect()
}

/// What the dashboard's button gets: a file that ends by its count or its time, one at a time.
#[test]
fn the_api_has_a_file_of_what_workers_drop_and_what_the_kernel_gets() {
    let _alone = alone();
    if !has("tshark") || !has("curl") {
        return skip("tshark or curl is not there");
    }
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "workers");
    let folder = std::env::temp_dir().join(format!("manylane-drops-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let [file, other] = ["drops.pcapng", "other"].map(|name| folder.join(name));
    let expired = || {
        for to in ["10.2.0.1", "2001:db8:2::1"] {
            let ping = format!("ping -c 1 -t 1 -W 1 {to}");
            topology.try_tool("client", &ping).expect_err("it is not answered");
        }
    };

    let asked = ask_for_drops(&accelerated, r#"{"seconds": 30, "packets": 3}"#, &file);
    until("it captures", || if programs() > 0 { Ok(()) } else { Err("not yet") });
    let refused = ask_for_drops(&accelerated, "{}", &other);
    assert_eq!(status_of(refused), "409");
    let said = fs::read_to_string(&other).expect("it has answered");
    assert!(said.contains("another capture of drops runs"), "{said}");
    // Four packets: the file has three.
    (0..2).for_each(|_| expired());
    assert_eq!(status_of(asked), "200");
    assert_eq!(comments(&file).len(), 3, "{:#?}", comments(&file));
    none_is_left();

    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let found = until("all that is to be there is in a file", || {
        let asked = ask_for_drops(&accelerated, r#"{"seconds": 5, "packets": 100000}"#, &file);
        until("it captures", || if programs() > 0 { Ok(()) } else { Err("not yet") });
        expired();
        let stream = Steady::start(client, server, SteadyOptions::to(SERVER_V4))
            .expect("sockets are to be had");
        is_forwarded_by(&accelerated, "workers");
        let hung = Hung::stop(accelerated.pid(), "worker 0");
        until("frames are queued", || match accelerated.ledger().queued {
            queued if queued >= 10 => Ok(()),
            queued => Err(queued),
        });
        topology.tool("r1", "ip route add blackhole 10.2.0.1/32");
        accelerated.wait_for_no_difference();
        drop(hung);
        assert_eq!(status_of(asked), "200");
        drop(stream);
        topology.tool("r1", "ip route del blackhole 10.2.0.1/32");
        let all = comments(&file);
        let has = |begin: &str| all.iter().filter(|line| line.starts_with(begin)).count();
        // On a slow machine the file may end before.
        match ["lan:kernel\tkernel ttl: ", "lan:drop\tdrop decision_changed: "].map(has) {
            [expired, changed] if expired >= 2 && changed >= 10 => Ok(all),
            other => Err(format!("{other:?} of {}", all.len())),
        }
    });
    let is_known = |line: &String| line.contains("\tkernel ") || line.contains("\tdrop ");
    assert!(found.iter().all(is_known), "{found:#?}");
    none_is_left();
    accelerated.assert_balanced();
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_filter_limits_what_is_captured_and_a_wrong_one_is_refused() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "ingress");
    let client = topology.host("client");
    // Two at once see what each wants.
    let six = Capture::start(&accelerated, &["--point", "rx", "icmp6[0] = 128"]);
    let four = Capture::start(&accelerated, &["--point", "rx", "-s", "60", "icmp[0] == 8"]);
    all_answered(client, SERVER_V4, 56);
    all_answered(client, SERVER_V6, 56);
    six.wait_for(&["ICMP6, echo request"], 3);
    four.wait_for(&["ICMP echo request"], 3);
    assert!(six.lines().iter().all(|line| line.contains("IP6 ")), "{:?}", six.lines());
    assert!(four.lines().iter().all(|line| line.contains("IP 10.")), "{:?}", four.lines());
    // The first one goes, and the other continues.
    six.end();
    all_answered(client, SERVER_V4, 56);
    four.wait_for(&["ICMP echo request"], 6);
    four.end();
    none_is_left();
    for (arguments, words) in [
        (&["port port"][..], "the filter `port port` is wrong: "),
        (&["-i", "nowhere"], "port `nowhere` does not exist; existing ports: lan, wan, and `any`"),
    ] {
        let mut command = Command::new(MANYLANE);
        command.arg("capture").args(arguments).arg("--socket").arg(accelerated.socket());
        let output = command.output().expect("the program is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(programs(), 0);
}

#[test]
fn nothing_stays_of_a_capture_or_a_daemon_that_is_killed() {
    let _alone = alone();
    for tier in ["ingress", "driver"] {
        let Some(topology) = plain_hosts(IN_A_ROW) else { return };
        let mut accelerated = start(&topology, tier);
        let client = topology.host("client");
        let mut capture = Capture::start(&accelerated, &["--point", "rx,tx,kernel"]);
        assert!(programs() > 0);
        capture.child.kill().expect("it is ours");
        let status = capture.child.wait().expect("it is ours");
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
        none_is_left();
        all_answered(client, SERVER_V4, 56);
        let mut capture = Capture::start(&accelerated, &["--point", "rx,tx,kernel"]);
        accelerated.signal(Signal::SIGKILL);
        accelerated.wait();
        none_is_left();
        let status = capture.child.wait().expect("it is ours");
        assert_eq!(status.code(), Some(1));
        let mut said = String::new();
        File::open(capture.folder.join("err"))
            .and_then(|mut file| file.read_to_string(&mut said))
            .expect("it is there");
        assert!(said.contains("error: the daemon has ended the capture"), "{said}");
        assert_eq!(ping(client, SERVER_V4, 56, 3).expect("sockets are to be had").received, 3);
    }
}

/// The daemon makes the rings, and a reader needs no right but to connect.
#[test]
fn another_user_may_capture_where_the_socket_lets_it() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "ingress");
    let client = topology.host("client");
    let folder = std::env::temp_dir().join(format!("manylane-reader-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    // The build's own folder may be closed to others.
    let program = folder.join("manylane");
    fs::copy(MANYLANE, &program).expect("there is room");
    let by_nobody = || {
        let mut command = mortal("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
        command
    };
    let output = by_nobody()
        .args(["capture", "-c", "1", "--socket"])
        .arg(accelerated.socket())
        .output()
        .expect("setpriv is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error: you may not capture by "), "{said}");
    let socket = manylane_client::path_beside(&accelerated.socket());
    fs::set_permissions(socket, Permissions::from_mode(0o666)).expect("it is ours");
    let mut captures: Vec<_> = (0..4)
        .map(|_| Capture::start_by(by_nobody(), &accelerated, &["--point", "rx", "icmp"]))
        .collect();
    all_answered(client, SERVER_V4, 56);
    captures.iter().for_each(|capture| capture.wait_for(&["ICMP echo request"], 3));
    let output = by_nobody()
        .args(["capture", "-c", "1", "--socket"])
        .arg(accelerated.socket())
        .output()
        .expect("setpriv is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("this user has 4 captures open; close one"), "{said}");
    captures.drain(..).for_each(|capture| drop(capture.end()));
    none_is_left();
    let _ = fs::remove_dir_all(&folder);
}
