//! The `manylane` command as a user meets it: words, exit statuses, the streams of messages.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use manylane_api::{
    AddressStatus, ApiError, CaptureFile, CaptureRequest, Daemon, DropStatus, FramesStatus, Ledger,
    NeighbourStatus, PortStatus, RouteStatus, SetError, Setting, SettingValue, Socket,
    SocketsStatus, Source, SteeringStatus, TraceLines, TraceRequest, WorkerStatus, serve,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime;
use tokio::sync::oneshot;

#[test]
fn a_good_file_is_checked_with_status_0() {
    let output = manylane(&["run", &example("memory.toml"), "--check"]);
    assert_eq!((status(&output), text(&output.stderr)), (0, String::new()));
    let said = text(&output.stdout);
    assert!(said.contains("memory.toml: good; 4 ports, 2 routes, 1 worker on core "), "{said}");
    assert!(said.contains("\nframes of 2048 bytes"), "{said}");
    assert!(said.contains("\nheld for neighbours  1 x 1024  "), "{said}");
    assert!(said.contains("\n  source (memory): 10.1.0.254/24, 2001:db8:1::fe/64\n"), "{said}");
}

#[test]
fn a_port_that_is_all_vlans_is_shown_by_them() {
    let place = Place::new("trunk");
    let file = place.folder.join("trunk.toml");
    let trunk = "[workers]\ncount = 1\n[[port]]\nname = \"trunk\"\ndriver = \"memory\"\n\
                 [[port.vlan]]\nid = 200\ntag = \"802.1ad\"\ninner = 7\naddresses = [\"10.1.0.1/24\"]\n";
    fs::write(&file, trunk).unwrap();
    let output = manylane(&["run", &file.display().to_string(), "--check"]);
    let said = text(&output.stdout);
    assert!(said.contains("\n  trunk (memory): no addresses\n"), "{said}");
    let vlan = "\n  trunk.200.7 (802.1ad 200, 802.1Q 7 on trunk): 10.1.0.1/24\n";
    assert!(said.contains(vlan), "{said}");
}

/// Daemons share a standard error: a line that is written in pieces mixes with the lines of others. A socket of
/// datagrams keeps the pieces apart.
#[test]
fn a_line_of_standard_error_is_written_in_one_piece() {
    let place = Place::new("pieces");
    let socket = place.socket();
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let piece = || {
        let mut bytes = [0; 4096];
        let len = ours.recv(&mut bytes).unwrap();
        text(&bytes[..len])
    };
    let start = |words: &[&str]| {
        let theirs = OwnedFd::from(theirs.try_clone().unwrap());
        command(words).stdout(Stdio::null()).stderr(theirs).spawn().unwrap()
    };
    let mut show = start(&["show", "ports", "--socket", &socket]);
    let said = piece();
    assert!(said.starts_with("error: ") && said.ends_with('\n'), "{said:?}");
    assert_eq!(show.wait().unwrap().code(), Some(1));
    let mut daemon = start(&["run", &example("memory.toml"), "--socket", &socket]);
    assert_eq!(piece(), "manylane: forwarding; SIGINT or SIGTERM ends it\n");
    kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM).unwrap();
    let said = piece();
    assert!(said.starts_with("manylane: ") && said.ends_with("missing 0\n"), "{said:?}");
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_bad_file_is_told_on_standard_error_with_status_2() {
    let place = Place::new("bad");
    let file = place.folder.join("bad.toml");
    let good = fs::read_to_string(example("memory.toml")).unwrap();
    let bad = good.replace("mtu = 1500", "mtu = \"1500\"");
    let line =
        1 + bad.lines().position(|line| line.starts_with("mtu")).expect("the example sets it");
    fs::write(&file, bad).unwrap();
    let file = file.display().to_string();
    // Without `--check` as well: nothing is opened before everything is checked.
    for words in [&["run", &file, "--check"][..], &["run", &file]] {
        let output = manylane(words);
        assert_eq!((status(&output), text(&output.stdout)), (2, String::new()));
        let said = text(&output.stderr);
        assert!(said.starts_with("error: `mtu` in [[port]] has to be a whole number\n"), "{said}");
        assert!(said.contains(&format!("bad.toml:{line}:7\n")), "{said}");
        assert!(
            said.ends_with("help: write digits, without quotes or a decimal point\n"),
            "{said}"
        );
    }
}

/// What the start would refuse, `--check` and `config check` refuse; a TAP that does not exist yet gets an MTU of 1500.
#[test]
fn what_a_start_would_refuse_is_not_good() {
    let place = Place::new("refused");
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let whole = fs::read(captures.join("udp.pcap")).unwrap();
    fs::write(place.folder.join("damaged.pcap"), &whole[..whole.len() - 1]).unwrap();
    fs::write(place.folder.join("good.pcap"), whole).unwrap();
    let tap = "driver = \"tap\"\ninterface = \"mlcheck0\"\n";
    let tee = |file: &str| format!("driver = \"memory\"\n[port.tee]\nwrite = \"{file}\"\n");
    for (port, said) in [
        (format!("{tap}mtu = 1501\n"), "`mtu` is 1501, and the device takes 1500"),
        (
            format!("{tap}[[port.vlan]]\nid = 7\nmtu = 1501\naddresses = [\"10.2.0.1/24\"]\n"),
            "port `p.7`: `mtu` is 1501, and the device takes 1500",
        ),
        ("driver = \"pcap\"\nread = \"no.pcap\"\n".into(), "no.pcap: cannot read the capture"),
        ("driver = \"pcap\"\nread = \"damaged.pcap\"\n".into(), "damaged.pcap: the packet"),
        (tee("no/such/folder.pcapng"), "folder.pcapng: cannot create the capture"),
        (tee("."), "cannot create the capture: Is a directory"),
        ("driver = \"af_xdp\"\ninterface = \"lo\"\n".into(), "lo: an MTU of 65536 needs larger"),
    ] {
        let wrong = format!("[[port]]\nname = \"p\"\naddresses = [\"10.1.0.1/24\"]\n{port}");
        fs::write(place.folder.join("wrong.toml"), wrong).unwrap();
        for words in [["run", "wrong.toml", "--check"], ["config", "check", "wrong.toml"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
            let output = command.args(words).current_dir(&place.folder).output().unwrap();
            let (out, complaint) = (text(&output.stdout), text(&output.stderr));
            assert_eq!((status(&output), out.as_str()), (2, ""), "{port}: {complaint}");
            assert!(complaint.starts_with("error: port `p"), "{complaint}");
            assert!(complaint.contains(said), "{complaint}");
        }
    }
    // What is checked is not made; and a start without `--check` refuses the file with that status, too.
    let good = "[[port]]\nname = \"p\"\naddresses = [\"10.1.0.1/24\"]\ndriver = \"pcap\"\n\
                read = \"good.pcap\"\nwrite = \"made.pcapng\"\n";
    fs::write(place.folder.join("good.toml"), good).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
        command.args(words).current_dir(&place.folder).output().unwrap()
    };
    let output = run(&["run", "good.toml", "--check"]);
    assert_eq!((status(&output), text(&output.stderr)), (0, String::new()));
    assert!(!place.folder.join("made.pcapng").exists());
    fs::write(place.folder.join("missing.toml"), good.replace("good.pcap", "no.pcap")).unwrap();
    let output = run(&["run", "missing.toml", "--socket", &place.socket()]);
    assert_eq!(status(&output), 2, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no.pcap: cannot read the capture"));
}

#[test]
fn a_missing_file_is_a_configuration_error() {
    let output = manylane(&["run", "/no/such/router.toml"]);
    assert_eq!(status(&output), 2);
    let said = text(&output.stderr);
    assert!(said.starts_with("error: cannot read the configuration /no/such/router.toml: "));
}

#[test]
fn wrong_usage_is_status_2_and_help_is_status_0() {
    let output = manylane(&["show", "prots"]);
    assert_eq!(status(&output), 2);
    assert!(text(&output.stderr).contains("ports"), "clap suggests the nearest");
    assert_eq!(status(&manylane(&["demo", "--seconds", "0"])), 2);
    assert_eq!(status(&manylane(&[])), 2);
    let output = manylane(&["--help"]);
    assert_eq!(status(&output), 0);
    assert!(text(&output.stdout).contains("Print tables of a running daemon"));
}

#[test]
fn without_a_daemon_show_fails_with_status_1_and_says_how_to_start_one() {
    let place = Place::new("nobody");
    let socket = place.socket();
    for json in [&[][..], &["--json"]] {
        let words = [&["show", "ports", "--socket", &socket][..], json].concat();
        let output = manylane(&words);
        assert_eq!((status(&output), text(&output.stdout)), (1, String::new()));
        assert_eq!(
            text(&output.stderr),
            format!(
                "error: no manylane daemon answers at {socket}; start one with `manylane run FILE` \
                 or `manylane accelerate IF...`, or name its socket with --socket\n"
            )
        );
    }
}

/// In one sentence, before anything is tried.
#[test]
fn without_privileges_run_says_that_it_takes_root() {
    let place = Place::new("unprivileged");
    let socket = place.socket();
    let file = place.folder.join("lo.toml");
    let port = "[[port]]\nname = \"p\"\ninterface = \"lo\"\naddresses = [\"10.1.0.1/24\"]\n";
    fs::write(&file, format!("{port}driver = \"af_packet\"\n")).unwrap();
    let manylane = env!("CARGO_BIN_EXE_manylane");
    let mut command = Command::new(manylane);
    if nix::unistd::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin,-net_raw,-bpf,-sys_admin", manylane]);
    }
    let output = command.arg("run").arg(&file).args(["--socket", &socket]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((status(&output), said.lines().count()), (1, 1), "{said}");
    let start = "error: port `p`: to open lo takes root, and this process lacks CAP_NET_ADMIN";
    assert!(said.starts_with(start), "{said}");
    assert!(!Path::new(&socket).exists());
}

/// In one sentence with both ways to start it, and not as a lock that a folder refuses.
#[test]
fn without_privileges_accelerate_says_that_it_takes_root() {
    let place = Place::new("unprivileged-accelerate");
    let socket = place.socket();
    let manylane = env!("CARGO_BIN_EXE_manylane");
    let mut command = Command::new(manylane);
    if nix::unistd::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin,-bpf,-perfmon,-sys_admin", manylane]);
    }
    let output = command.args(["accelerate", "lo", "--socket", &socket]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((status(&output), said.lines().count()), (1, 1), "{said}");
    let start = "error: to accelerate lo takes root, and this process lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON: start it \
                 with `sudo`, or as the service of the package (`systemctl start manylane-accelerate`)";
    assert!(said.starts_with(start), "{said}");
    assert!(!said.contains("lock") && !Path::new(&socket).exists(), "{said}");
}

/// The kernel's limit, in the words of a user, from daemon and client.
#[test]
fn a_socket_path_that_is_too_long_is_said_to_be() {
    let place = Place::new("long");
    let longest = format!("{}/{}", place.folder.display(), "s".repeat(200));
    let (longest, shorter) = (&longest[..108], &longest[..100]);
    let example = example("memory.toml");
    for (words, socket, complaint, code) in [
        (&["run", &example][..], longest, "a socket has at most 107; name a shorter one", 2),
        // Its neighbour for captures is eight bytes longer.
        (&["run", &example], shorter, "a socket has at most 107; name a shorter one", 2),
        (&["show", "ports"], longest, "108 bytes are more than the path of a socket has", 1),
        (&["capture", "-c", "1"], shorter, "108 bytes are more than the path of a socket has", 1),
    ] {
        let output = manylane(&[words, &["--socket", socket]].concat());
        let said = text(&output.stderr);
        assert_eq!(status(&output), code, "{said}");
        assert!(said.contains(complaint) && !said.contains("SUN_LEN"), "{said}");
        assert!(!said.contains("ask as root") && !said.contains("this user may write"), "{said}");
    }
}

#[test]
fn a_running_daemon_is_shown_as_table_and_as_json() {
    let place = Place::new("running");
    let daemon = FakeDaemon::start(&place.socket());
    let show = |words: &[&str]| {
        let socket = place.socket();
        let output = manylane(&[&["show"], words, &["--socket", &socket]].concat());
        assert_eq!((status(&output), text(&output.stderr)), (0, String::new()));
        text(&output.stdout)
    };
    assert_eq!(show(&["ports"]), "No ports.\n");
    assert_eq!(show(&["workers"]), "No workers.\n");
    assert_eq!(show(&["neigh"]), "No neighbours.\n");
    assert_eq!(show(&["drops"]), "Nothing was dropped.\n");
    assert_eq!(show(&["ports", "--json"]), "[]\n");
    assert!(show(&["routes"]).ends_with("10.255.255.0/24  blackhole  -    -\n"));
    assert!(show(&["ledger", "--json"]).starts_with("{\"received\":0,"));
    assert!(show(&["ledger"]).ends_with("Everything is accounted for.\n"));
    assert!(show(&["frames"]).contains("= total"));
    assert!(show(&["frames", "--json"]).starts_with("{\"frame_size\":0,"));
    daemon.stop();
}

#[test]
fn the_environment_names_the_socket_unless_the_command_does() {
    let place = Place::new("environment");
    let daemon = FakeDaemon::start(&place.socket());
    let other = format!("{}.none", place.socket());
    let show = |environment: &str, words: &[&str]| {
        let mut command = command(&["show", "ports"]);
        command.env("MANYLANE_SOCKET", environment).args(words).output().unwrap()
    };
    assert_eq!(text(&show(&place.socket(), &[]).stdout), "No ports.\n");
    assert_eq!(text(&show(&other, &["--socket", &place.socket()]).stdout), "No ports.\n");
    let refused = text(&show(&other, &[]).stderr);
    assert!(refused.contains(&other), "{refused}");
    daemon.stop();
}

/// In bash, as an operator types: interfaces, keys, and ports of the daemon.
#[test]
fn completions_know_interfaces_and_keys() {
    let complete = |line: &str| {
        let script = r#"
            PATH=$(dirname "$1"):$PATH
            source <(manylane completions bash)
            COMP_WORDS=($2 "$3") COMP_CWORD=$(wc -w <<<"$2")
            _manylane_known manylane "$3" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "${COMPREPLY[@]}"
        "#;
        let (before, typed) = line.rsplit_once(' ').unwrap();
        let arguments = ["-c", script, "bash", env!("CARGO_BIN_EXE_manylane"), before, typed];
        text(&Command::new("bash").args(arguments).output().unwrap().stdout)
    };
    assert_eq!(complete("manylane config explain port.mt"), "port.mtu\n");
    assert_eq!(complete("manylane config set steering.reb"), "steering.rebalance\n");
    // What is known without asking still is.
    assert!(complete("manylane conf").contains("config"));
    let names = text(&manylane(&["complete", "--", "doctor", ""]).stdout);
    let table = fs::read_to_string("/proc/net/dev").unwrap();
    for name in names.lines() {
        assert!(table.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn a_setting_of_a_running_daemon_is_changed_or_refused() {
    let place = Place::new("set");
    let daemon = FakeDaemon::start(&place.socket());
    let set_key = |key, value| {
        let socket = place.socket();
        manylane(&["config", "set", key, value, "--socket", &socket])
    };
    let set = |value| set_key("frames.hot_list_len", value);
    let output = set("512");
    assert_eq!((status(&output), text(&output.stderr)), (0, String::new()));
    assert_eq!(text(&output.stdout), "frames.hot_list_len = 512, until the daemon ends\n");
    let output = set("many");
    assert_eq!((status(&output), text(&output.stdout)), (1, String::new()));
    assert_eq!(
        text(&output.stderr),
        "error: the daemon refused: frames.hot_list_len is a number; write digits\n"
    );
    // A key is the daemon's to judge, whatever characters it has.
    for key in ["hot list", "a/b", "frames.hot_list_len?", "größe"] {
        let output = set_key(key, "many");
        let says = format!("error: the daemon refused: {key} is a number; write digits\n");
        assert_eq!(text(&output.stderr), says);
    }
    daemon.stop();
}

#[test]
fn a_neighbour_of_a_running_daemon_is_added_and_deleted() {
    let place = Place::new("neighbour");
    let daemon = FakeDaemon::start(&place.socket());
    let socket = place.socket();
    let said = |words: &[&str]| {
        let output = manylane(&[words, &["--socket", &socket]].concat());
        (status(&output), text(&output.stdout) + &text(&output.stderr))
    };
    let added = said(&["neighbour", "add", "lan", "2001:db8::9", "02:00:00:00:00:09"]);
    let says = "2001:db8::9 on lan is 02:00:00:00:00:09, until it is deleted or the daemon ends\n";
    assert_eq!(added, (0, says.into()));
    let deleted = said(&["neigh", "delete", "lan", "10.1.0.9"]);
    assert_eq!(deleted, (0, "10.1.0.9 on lan is forgotten\n".into()));
    let says = "error: the daemon refused: there is no port wan; choose among lan\n";
    assert_eq!(said(&["neighbour", "delete", "wan", "10.1.0.9"]), (1, says.into()));
    assert_eq!(said(&["neighbour", "add", "lan", "10.1.0.9"]).0, 2, "without a MAC");
    assert_eq!(
        said(&["show", "addresses"]).1,
        "No port has other stations on its link, so no own address is probed or defended; `manylane show ports` \
         lists the addresses of all ports.\n"
    );
    daemon.stop();
}

/// `manylane show routes | head -1`, where the answer is larger than the pipe.
#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let place = Place::new("pipe");
    let daemon = FakeDaemon::start(&place.socket());
    let mut show = command(&["show", "routes", "--json", "--socket", &place.socket()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(show.stdout.take());
    let output = show.wait_with_output().unwrap();
    assert_eq!((status(&output), text(&output.stderr)), (0, String::new()));
    daemon.stop();
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
    command.args(words).stdin(Stdio::null());
    command
}

fn manylane(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A directory of this test's own, removed at its end.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("manylane-cli-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Place { folder }
    }

    fn socket(&self) -> String {
        self.folder.join("api.sock").display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A daemon that has nothing but routes.
struct Routes;

impl Source for Routes {
    fn ports(&self) -> Vec<PortStatus> {
        Vec::new()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        Vec::new()
    }

    fn routes(&self) -> Vec<RouteStatus> {
        let route = |number: u32| RouteStatus {
            prefix: format!("10.{}.{}.0/24", number >> 8 & 255, number & 255),
            kind: manylane_api::RouteKind::Blackhole,
            via: None,
            port: None,
            group: Vec::new(),
        };
        (0..65_536).map(route).collect()
    }

    fn neighbours(&self) -> Vec<NeighbourStatus> {
        Vec::new()
    }

    fn addresses(&self) -> Vec<AddressStatus> {
        Vec::new()
    }

    fn drops(&self) -> Vec<DropStatus> {
        Vec::new()
    }

    fn ledger(&self) -> Ledger {
        Ledger::default()
    }

    fn frames(&self) -> FramesStatus {
        FramesStatus::default()
    }

    fn steering(&self) -> SteeringStatus {
        SteeringStatus::default()
    }

    fn sockets(&self) -> SocketsStatus {
        SocketsStatus::default()
    }

    fn daemon(&self) -> Daemon {
        Daemon::default()
    }

    fn add_neighbour(
        &self,
        port: &str,
        addr: &str,
        mac: &str,
    ) -> Result<NeighbourStatus, SetError> {
        let neighbour = NeighbourStatus {
            port: port.into(),
            address: addr.into(),
            mac: Some(mac.into()),
            state: manylane_api::NeighbourState::Permanent,
            age_s: 0,
        };
        Ok(neighbour)
    }

    fn trace(&self, _: &TraceRequest) -> Result<TraceLines, SetError> {
        Ok(TraceLines::new(String::new))
    }
    fn capture_drops(&self, _: &CaptureRequest) -> Result<CaptureFile, SetError> {
        unreachable!("nobody captures")
    }
    fn add_port(&self, _: &str) -> Result<PortStatus, manylane_api::SetError> {
        unreachable!("nobody adds")
    }
    fn remove_port(&self, _: &str) -> Result<PortStatus, manylane_api::SetError> {
        unreachable!("nobody removes")
    }

    fn delete_neighbour(&self, port: &str, addr: &str) -> Result<NeighbourStatus, SetError> {
        match port {
            "lan" => self.add_neighbour(port, addr, ""),
            _ => Err(SetError::UnknownKey(ApiError {
                error: format!("there is no port {port}"),
                help: "choose among lan".into(),
            })),
        }
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError> {
        match value.parse() {
            Ok(value) => Ok(Setting::new(key, SettingValue::Number(value))),
            Err(_) => Err(SetError::BadValue(ApiError {
                error: format!("{key} is a number"),
                help: "write digits".into(),
            })),
        }
    }
}

struct FakeDaemon {
    shutdown: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl FakeDaemon {
    /// Listens when this returns.
    fn start(path: &str) -> Self {
        let socket = Socket::bind(Path::new(path)).unwrap();
        let (shutdown, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async move { stopped.await.unwrap_or_default() };
            runtime.block_on(serve(socket, Arc::new(Routes), stopped)).unwrap();
        });
        FakeDaemon { shutdown, thread }
    }

    fn stop(self) {
        drop(self.shutdown);
        self.thread.join().unwrap();
    }
}
