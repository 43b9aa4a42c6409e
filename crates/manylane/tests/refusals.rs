//! The page of what a daemon refuses: each wrong request to its API, held against what a message has to
//! have. With `--nocapture` it is printed, to be read. No privilege is needed.

#[path = "../../../tests/messages/mod.rs"]
#[allow(dead_code, unused_macros)] // The pages of errors are in the crates.
mod messages;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;

use manylane_api::{Client, ClientError, TraceRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use messages::Page;

#[test]
fn settings() {
    let router = Router::start("settings");
    let mut page = Page::new("PUT /v1/config/KEY");
    let mut row = |key: &str, value: &str, names: &[&str], next: &str| {
        let refused = router.client.put::<Value>(&format!("/v1/config/{key}"), value);
        page.row(key, &said(refused), names, next);
    };
    row("colour", "red", &["`colour`"], "there are `workers`, `frames.hot_list_len`");
    row("frames.hot_list_len", "7", &["frames.hot_list_len", "7"], "from 128 to 8192");
    row("frames.hot_list_len", "8192", &["8192", "3 workers"], "choose at most");
    row("steering.netdev_budget", "0", &["steering.netdev_budget"], "choose a number from");
    row(
        "steering.netdev_max_backlog",
        "32768",
        &["32768", "1024"],
        "start with more in [steering]",
    );
    row("steering.rebalance", "maybe", &["steering.rebalance", "maybe"], "`true` or `false`");
    row("steering.reorder_sample", "-1", &["steering.reorder_sample", "-1"], "choose");
    row("workers", "none", &["none"], "choose");
    row("workers", "9", &["9"], "choose");
    row("worker.7.paused", "true", &["worker 7"], "there are 0 to 2");
    row("worker.2.paused", "true", &["worker 2"], "set workers to at least 3");
    row("worker.0.paused", "perhaps", &["worker.0.paused"], "`true` or `false`");
    row("worker.1.paused", "true", &["worker 1", "`direct`"], "set port.direct.steering to `flow`");
    row("port.none.steering", "flow", &["`none`"], "there are `source`, `direct`");
    row("port.source.steering", "chance", &["chance"], "choose `queue` or `flow`");
    row("port.source.sflow_rate", "5", &["no sFlow collector"], "start with [sflow]");
    row("port.none.bucket.1", "0", &["`none`"], "there are `source`");
    row("port.source.bucket.256", "0", &["256"], "there are 0 to 255");
    row("port.source.bucket.1", "7", &["worker 7"], "there are 0 to 2");
    row("port.source.bucket.1", "2", &["worker 2"], "set workers to at least 3");
    row("port.direct.bucket.1", "0", &["`direct`"], "set port.direct.steering to `flow`");
    row("port.source.buckets", "1-2", &["port.source.buckets", "`1-2`"], "write BUCKET=WORKER");
    row("port.source.buckets", "9-8=1", &["`9-8=1`"], "write BUCKET=WORKER");
    row("port.source.queue.1", "0", &["`source`", "queue 1"], "there is 0");
    row("port.direct.queue.2", "0", &["`direct`", "queue 2"], "there are 0 to 1");
    row("port.direct.queue.0", "1", &["queue 0", "`direct`"], "list its `workers`");
    page.finish();
    router.stop();
}

#[test]
fn neighbours_and_ports() {
    let router = Router::start("neighbours");
    let mut page = Page::new("PUT and DELETE /v1/neighbours/PORT/ADDRESS");
    let mac = "02:00:00:00:00:77";
    let mut put = |port: &str, addr: &str, mac: &str, names: &[&str], next: &str| {
        let path = format!("/v1/neighbours/{port}/{addr}");
        page.row(
            &format!("{port} {addr}"),
            &said(router.client.put::<Value>(&path, mac)),
            names,
            next,
        );
    };
    put("none", "10.1.0.9", mac, &["port none"], "choose among source");
    put("source", "10.1", mac, &["10.1"], "as 10.1.0.1 or fe80::1");
    put("source", "10.1.0.9", "mac", &["mac"], "as 02:00:00:00:00:01");
    put("source", "10.1.0.9", "01:00:00:00:00:77", &["10.1.0.9", "source"], "name another station");
    put("source", "10.1.0.254", mac, &["10.1.0.254", "our own"], "name another station");
    put("source", "10.1.0.255", mac, &["10.1.0.255"], "name another station");
    put("source", "198.51.100.1", mac, &["198.51.100.1", "link"], "name the port whose network");
    for last in 1..=16 {
        let known =
            router.client.put::<Value>(&format!("/v1/neighbours/direct/10.2.0.{last}"), mac);
        if last < 16 {
            known.unwrap_or_else(|error| panic!("{last}: {error}"));
        }
    }
    put("direct", "10.2.0.17", mac, &["10.2.0.17", "16"], "raise `entries_max`");
    let gone = router.client.delete::<Value>("/v1/neighbours/source/10.1.0.200");
    page.row("DELETE", &said(gone), &["10.1.0.200", "source"], "`manylane show neighbours`");
    page.finish();

    let mut page = Page::new("PUT /v1/ports/PORT");
    let mut row = |port: &str, names: &[&str], next: &str| {
        let refused = router.client.put::<Value>(&format!("/v1/ports/{port}"), "");
        page.row(port, &said(refused), names, next);
    };
    row("eth7", &["`eth7`", "needs a restart"], "check it with `manylane config check /");
    row("source", &["`source`", "exists already"], "`manylane show ports` lists");
    page.finish();

    let mut page = Page::new("DELETE /v1/ports/PORT");
    let mut row = |port: &str, names: &[&str], next: &str| {
        let refused = router.client.delete::<Value>(&format!("/v1/ports/{port}"));
        page.row(port, &said(refused), names, next);
    };
    row("none", &["`none`"], "there are `source`");
    row("left", &["`left`", "wire"], "start without both");
    row("tagged", &["`tagged`", "`tagged.100`"], "start without its [[port.vlan]]");
    row("tagged.100", &["sub-interface of `tagged`"], "there are `source`");
    page.finish();
    router.stop();
}

#[test]
fn configurations() {
    let router = Router::start("configurations");
    let mut page = Page::new("POST /v1/config/...");
    let mut row = |path: &str, body: Value, names: &[&str], next: &str| {
        let refused = router.client.post::<Value>(&format!("/v1/config/{path}"), &body);
        page.row(path, &said(refused), names, next);
    };
    row("diff", json!({"txet": ""}), &["`text`"], "send `text`");
    row("diff", json!({"text": "[wrokers]\n"}), &["wrokers"], "did you mean `workers`?");
    row("diff", json!({"text": "count = ["}), &["1"], "TOML");
    let fewer = CONFIG.replace("count = 2", "count = 1");
    row("apply", json!({"text": fewer}), &["worker 1", "`direct`"], "correct that, and apply");
    let more = CONFIG.replace("max = 3", "max = 4").replace("[0, 0, 0]", "[0, 0, 0, 0]");
    row("apply", json!({"text": more}), &["workers.max"], "start the daemon anew");
    let trial = |seconds: f64| json!({"text": CONFIG, "confirm_within_s": seconds});
    row("apply", trial(0.5), &["0.5 s"], "choose 1 to 86400 seconds");
    row("confirm", json!(null), &["nothing is on trial"], "--confirm-within");
    row("rollback", json!(null), &["to go back to"], "`manylane config apply FILE`");
    router.client.post::<Value>("/v1/config/apply", &trial(600.0)).expect("it is the same");
    row("apply", trial(600.0), &["on trial"], "`manylane config confirm`");
    page.finish();
    router.stop();
}

#[test]
fn traces_captures_and_paths() {
    let router = Router::start("traces");
    let mut page = Page::new("POST /v1/trace, /v1/capture/drops, and what there is not");
    let mut row = |path: &str, body: Value, names: &[&str], next: &str| {
        let refused = router.client.post_text(path, &body);
        page.row(path, &said(refused), names, next);
    };
    let filter = json!([[6, 0, 0, 65535]]);
    row("/v1/trace", json!({"count": true}), &["true"], "send `count`, `filter`");
    row(
        "/v1/trace",
        json!({"count": 1, "filter": [[6, 0]]}),
        &["filter"],
        "send `count`, `filter`",
    );
    row("/v1/trace", json!({"count": 1, "filter": []}), &["filter"], "libpcap's compiler");
    row("/v1/trace", json!({"count": 0, "filter": filter}), &["0 packets"], "trace 1 to");
    let of_none = json!({"count": 1, "filter": filter, "port": "none"});
    row("/v1/trace", of_none, &["`none`"], "there are source");
    row("/v1/capture/drops", json!({"seconds": "5"}), &["\"5\""], "send `seconds`, `packets`");
    row("/v1/capture/drops", json!({"seconds": 31}), &["seconds", "31"], "1 to 30");
    row("/v1/capture/drops", json!({"snap": 1}), &["snap", "1"], "14 to");
    row("/v1/ports", json!(null), &["/v1/ports", "POST"], "ask with GET");
    let nothing = said(router.client.ask_text("/v1/prots"));
    page.row("/v1/prots", &nothing, &["/v1/prots"], "ask for /v1/ports");

    // The first daemon gets the socket.
    let request = TraceRequest { count: 1, filter: vec![(6, 0, 0, 0)], port: None };
    let body = serde_json::to_string(&request).expect("it is a plain structure");
    let second = Client::new(&router.socket());
    let mut refused = None;
    let looked = router.client.follow("/v1/trace", body, std::future::pending(), |_| {
        // On a thread of its own: this one is at work for the first.
        let ask = || second.post_text("/v1/trace", &request);
        refused.get_or_insert_with(|| thread::scope(|scope| scope.spawn(ask).join()));
        std::ops::ControlFlow::Break(())
    });
    looked.expect("nobody else traces");
    let refused = said(refused.expect("it says that it is armed").expect("it does not panic"));
    page.row("/v1/trace, twice", &refused, &["another trace"], "end that `manylane trace`");
    page.finish();
    router.stop();
}

/// What the daemon said, as the commands print it.
fn said<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> String {
    match answer {
        Err(error @ ClientError::Refused(_)) => error.to_string(),
        other => panic!("it was not refused: {other:?}"),
    }
}

/// A daemon as a process.
struct Router {
    child: Child,
    folder: PathBuf,
    client: Client,
}

impl Router {
    fn start(name: &str) -> Router {
        let folder =
            std::env::temp_dir().join(format!("manylane-refusals-{name}-{}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes folders");
        fs::write(folder.join("router.toml"), CONFIG).expect("the folder is ours");
        let mut child = Command::new(env!("CARGO_BIN_EXE_manylane"))
            .args(["run", "router.toml", "--socket", "./api.sock"])
            .current_dir(&folder)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let forwards = lines.any(|line| line.is_ok_and(|line| line.contains("forwarding")));
        assert!(forwards, "the daemon did not start");
        let client = Client::new(&folder.join("api.sock"));
        Router { child, folder, client }
    }

    fn socket(&self) -> PathBuf {
        Path::new(&self.folder).join("api.sock")
    }

    fn stop(mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, Signal::SIGINT).expect("it is ours");
        assert!(self.child.wait().expect("it is ours").success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.folder);
    }
}

const CONFIG: &str = r#"
[workers]
count = 2
max = 3
cores = [0, 0, 0]

[neighbour]
entries_max = 16

[[port]]
name = "source"
driver = "memory"
addresses = ["10.1.0.254/24"]

[port.generate]
source = "10.1.0.1"
destination = "10.9.0.0/16"
packets_per_second = 100

[[port]]
name = "direct"
driver = "memory"
queues = 2
steering = "queue"
addresses = ["10.2.0.254/24"]

[[port]]
name = "left"
driver = "memory"
peer = "right"
addresses = ["10.3.0.254/24"]

[[port]]
name = "right"
driver = "memory"
addresses = ["10.4.0.254/24"]

[[port]]
name = "tagged"
driver = "memory"
addresses = ["10.5.0.254/24"]

[[port.vlan]]
id = 100
addresses = ["10.6.0.254/24"]
"#;
