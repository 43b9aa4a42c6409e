//! The API of a daemon as a process: by TCP, and watched. No privilege is needed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn a_daemon_is_asked_by_tcp_and_watched() {
    let router = Router::start("asked", &["--listen", "127.0.0.1:0"]);
    let (head, page) = router.get("/metrics");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(page.starts_with("# HELP manylane_") && !page.contains("# EOF"));
    let received = |page: &str| {
        let line =
            page.lines().find(|line| line.starts_with("manylane_ledger_received_packets_total "));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = received(&page);
    let (_, ledger) = router.get("/v1/ledger");
    let ledger: Value = serde_json::from_str(&ledger).unwrap();
    let between = ledger["received"].as_u64().unwrap();
    let after = received(&router.get("/metrics").1);
    assert!(before <= between && between <= after, "{before}, {between}, {after}");
    let (_, document) = router.get("/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert!(document["paths"]["/v1/ports"]["get"].is_object());

    let socket = router.folder.join("api.sock").display().to_string();
    let watch = |more: &[&str]| {
        let mut words = vec!["show", "ports", "--watch", "0.1", "--socket", &socket];
        words.extend(more);
        let mut shown = Command::new(MANYLANE).args(&words).stdout(Stdio::piped()).spawn().unwrap();
        (BufReader::new(shown.stdout.take().unwrap()), shown)
    };
    let (mut lines, mut json) = watch(&["--json"]);
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let ports: Value = serde_json::from_str(&line).expect("each line is a document");
        assert_eq!(ports[0]["name"], "source");
    }
    interrupt(&json);
    assert_eq!(json.wait().unwrap().code(), Some(0), "an interrupt is the way out");

    let (lines, mut table) = watch(&[]);
    let mut seen = 0;
    for line in lines.lines().map_while(Result::ok) {
        assert!(!line.contains('\x1b'), "no terminal, no control sequences");
        seen += usize::from(line.starts_with("Per second"));
        if seen == 2 {
            break;
        }
    }
    assert_eq!(seen, 2);
    // Its reader has gone meanwhile: that ends it as well as an interrupt does.
    interrupt(&table);
    assert_eq!(table.wait().unwrap().code(), Some(0));
}

#[test]
fn a_listener_that_cannot_be_is_told_before_anything_starts() {
    for (words, said) in [
        (&["--listen", "0.0.0.0:0"][..], "other hosts could use 0.0.0.0:0"),
        (
            &["--listen", "localhost"],
            "write an IP address and a port, as 127.0.0.1:9176 or [::1]:9176",
        ),
        (&["--listen", "9176"], "the address is missing; for this host alone write 127.0.0.1:9176"),
        (
            &["--listen", ":9176"],
            "the address is missing; for this host alone write 127.0.0.1:9176",
        ),
        (&["--listen", "::1:9176"], "write an IP address and a port"),
        (&["--token-file", "/nowhere/token"], "cannot read the token in /nowhere/token"),
    ] {
        let output = Command::new(MANYLANE)
            .args(["run", &example(), "--check"])
            .args(words)
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(said), "{complaint}");
        let output = Command::new(MANYLANE).args(["accelerate", "none0"]).args(words).output();
        let output = output.unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(said), "{complaint}");
    }
}

/// A daemon with ports in memory.
struct Router {
    folder: PathBuf,
    address: SocketAddr,
    process: Child,
}

impl Router {
    fn start(name: &str, words: &[&str]) -> Router {
        let folder = std::env::temp_dir().join(format!("manylane-tcp-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("api.sock").display().to_string();
        let mut process = Command::new(MANYLANE)
            .args(["run", &example(), "--socket", &socket])
            .args(words)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = None;
        for line in BufReader::new(process.stderr.as_mut().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once("the API answers at http://") {
                address = rest.split('/').next().unwrap().parse().ok();
            }
            if line.contains("forwarding") {
                break;
            }
        }
        let address = address.expect("it says where it listens");
        Router { folder, address, process }
    }

    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        interrupt(&self.process);
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn interrupt(process: &Child) {
    let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGINT);
}

fn example() -> String {
    format!("{}/../../examples/memory.toml", env!("CARGO_MANIFEST_DIR"))
}
