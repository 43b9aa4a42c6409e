//! Attacks on the daemon's API and on the commands that query it, as processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");
const NOBODY: u32 = 65534;
/// Only a failure waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user without privileges answers at the socket's path, and root asks.
#[test]
fn what_a_stranger_answers_is_neither_saved_nor_sent_to_it() {
    if !geteuid().is_root() {
        println!("SKIPPED what_a_stranger_answers...: needs root, to be two users");
        return;
    }
    let folder = Folder::new("stranger");
    // The build's folder may be closed to other users.
    let program = folder.0.join("manylane");
    fs::copy(MANYLANE, &program).unwrap();
    let file = folder.configuration();
    let mut command = Command::new(&program);
    let daemon = Daemon::start(command.uid(NOBODY).gid(NOBODY), &folder, &file);
    let (text, victim) = (fs::read_to_string(&file).unwrap(), folder.0.join("victim.toml"));
    for words in [
        &["config", "save"][..],
        &["config", "save", victim.to_str().unwrap()],
        &["config", "diff"],
    ] {
        let refused = daemon.ask(words);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("user 65534 listens at"), "{words:?}: {said}");
    }
    assert!(!victim.exists(), "root wrote what the stranger answered");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Its counters can be read, as before.
    assert!(daemon.ask(&["show", "ports"]).status.success());
}

/// A daemon that has lost its privileges and its mind must not choose what root overwrites.
#[test]
fn only_a_configuration_is_overwritten_without_being_named() {
    let folder = Folder::new("named");
    let file = folder.configuration();
    // By a path of the folder that it starts in: later commands run elsewhere.
    let mut command = Command::new(MANYLANE);
    let daemon = Daemon::start(
        command.current_dir(&folder.0),
        &folder,
        Path::new(file.file_name().unwrap()),
    );
    let status: Value = serde_json::from_slice(&daemon.ask(&["config", "show", "--json"]).stdout)
        .expect("it is JSON");
    assert_eq!(status["file"], file.to_str().unwrap(), "the daemon knows its file's folder");
    assert!(daemon.ask(&["config", "diff"]).status.success());
    let running = fs::read_to_string(&file).unwrap();
    fs::write(&file, "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    let refused = daemon.ask(&["config", "save"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("which is no valid configuration; to write it all the same"), "{said}");
    assert!(fs::read_to_string(&file).unwrap().starts_with("root:"));
    assert!(daemon.ask(&["config", "save", file.to_str().unwrap()]).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), running);
    // What it runs by is what the file says now.
    assert!(daemon.ask(&["config", "save"]).status.success());
}

/// Connections until the process has no descriptor left; and when they end, all is as before.
#[test]
fn a_daemon_without_descriptors_answers_again_when_clients_leave() {
    let folder = Folder::new("descriptors");
    let file = folder.configuration();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 48 && exec \"$0\" \"$@\"", MANYLANE]);
    let daemon = Daemon::start(&mut command, &folder, &file);
    let mut idle = Vec::new();
    let is_exhausted = (1..=4).flat_map(|host| (0..16).map(move |_| host)).any(|host| {
        let mut stream = daemon.connect_from([127, 0, 0, host]);
        let is_answered = stream.write_all(HEAD).is_ok() && stream.read_exact(&mut [0; 12]).is_ok();
        idle.push(stream);
        !is_answered
    });
    assert!(is_exhausted, "48 descriptors suffice for 64 connections");
    // The client that finds no descriptor is not left to wait.
    let refused = daemon.ask(&["show", "ports"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("closed the connection without an answer"), "{said}");
    assert!(said.contains("file descriptor") && !said.contains("root"), "{said}");
    drop(idle);
    let answers = (0..1000).map(|_| daemon.ask(&["show", "ports"]).status.success());
    assert!(answers.into_iter().any(|is_answered| is_answered), "it does not come back");
    let mut stream = daemon.connect_from([127, 0, 0, 1]);
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let bound = "manylane_api_refused_total{bound=\"no_descriptor\"} ";
    let counted = page.lines().find_map(|line| line.strip_prefix(bound)).expect("it is counted");
    assert!(counted.parse::<u64>().unwrap() >= 2, "{counted}");
}

/// The client's own descriptors: privilege would not help. The client inherits only the standard ones.
#[test]
fn a_client_without_descriptors_is_not_told_to_be_root() {
    let output = Command::new("sh")
        .args([
            "-c",
            "exec 3>&- 4>&- 5>&-; ulimit -n 4 && exec \"$0\" show ports --socket /nowhere/s",
            MANYLANE,
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("raise its limit (`ulimit -n`") && !said.contains("root"), "{said}");
}

/// No process is left to wait for a lock that another user holds.
#[test]
fn a_start_behind_a_held_lock_ends_with_the_holders_name() {
    let folder = Folder::new("lock");
    let file = folder.configuration();
    let lock = folder.0.join("api.sock.lock");
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let output = folder.run(&mut Command::new(MANYLANE), &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!("process {} (", process::id());
    assert!(said.contains(&expected) && said.contains("end it, or name another socket"), "{said}");
    // A lock on the folder itself, which any user may take, is in no start's way.
    drop(held);
    let of_folder = fs::File::open(&folder.0).unwrap();
    of_folder.lock().unwrap();
    let daemon = Daemon::start(&mut Command::new(MANYLANE), &folder, &file);
    assert!(daemon.ask(&["show", "ports"]).status.success());
}

#[test]
fn a_configuration_larger_than_a_request_is_refused_by_the_bounds_name() {
    let folder = Folder::new("large");
    let file = folder.configuration();
    let daemon = Daemon::start(&mut Command::new(MANYLANE), &folder, &file);
    let large = folder.0.join("large.toml");
    let text = fs::read_to_string(&file).unwrap();
    // Above the bound of the library, which was 2 MB.
    fs::write(&large, text.clone() + &"# a comment\n".repeat(300_000)).unwrap();
    let output = daemon.ask(&["config", "diff", large.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing to change\n", "{output:?}");
    fs::write(&large, text + &"# a comment\n".repeat(1_500_000)).unwrap();
    for action in ["diff", "apply"] {
        let output = daemon.ask(&["config", action, large.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("which is 16 MiB as JSON"), "{said}");
    }
}

const HEAD: &[u8] = b"HEAD /v1/daemon HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A folder that every user may write, removed behind the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("manylane-attack-{}-{name}", process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        Folder(folder)
    }

    fn configuration(&self) -> PathBuf {
        let example = format!("{}/../../examples/memory.toml", env!("CARGO_MANIFEST_DIR"));
        let file = self.0.join("router.toml");
        fs::copy(example, &file).unwrap();
        file
    }

    /// `manylane run` by a command that ends in its program.
    fn run<'c>(&self, command: &'c mut Command, file: &Path) -> &'c mut Command {
        let socket = self.0.join("api.sock");
        command.arg("run").arg(file).arg("--socket").arg(socket).args(["--listen", "127.0.0.1:0"])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Daemon {
    process: Child,
    address: SocketAddr,
    socket: PathBuf,
}

impl Daemon {
    fn start(command: &mut Command, folder: &Folder, file: &Path) -> Daemon {
        let process = folder.run(command, file).stderr(Stdio::piped()).spawn().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let mut daemon = Daemon { process, address, socket: folder.0.join("api.sock") };
        let mut said = String::new();
        let mut lines = BufReader::new(daemon.process.stderr.take().unwrap());
        while !said.contains("forwarding; SIGINT") {
            let read = lines.read_line(&mut said).unwrap();
            assert!(read > 0, "it has ended: {said}");
        }
        let (_, rest) = said.split_once("the API answers at http://").expect("it says where");
        daemon.address = rest.split('/').next().unwrap().parse().unwrap();
        // Later lines need a reader, or the daemon could not write them.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        daemon
    }

    fn ask(&self, words: &[&str]) -> Output {
        Command::new(MANYLANE).args(words).arg("--socket").arg(&self.socket).output().unwrap()
    }

    fn connect_from(&self, host: [u8; 4]) -> TcpStream {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream: TcpStream = socket.into();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGINT);
        let _ = self.process.wait();
    }
}
