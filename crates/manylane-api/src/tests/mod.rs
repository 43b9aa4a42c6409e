use std::fs;
use std::io::{Read, Write};
use std::iter;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::sample::Sample;
use crate::*;

mod accelerate;
pub(crate) mod attack;
mod contract;
mod guarded;
pub(crate) mod served;

#[test]
fn what_the_daemon_says_is_what_the_client_reads() {
    let place = Place::new("answers");
    let daemon = FakeDaemon::start(&place.socket());
    let client = Client::new(&place.socket());
    assert_eq!(client.ask::<Vec<PortStatus>>("/v1/ports").unwrap(), Sample.ports());
    assert_eq!(client.ask::<Vec<WorkerStatus>>("/v1/workers").unwrap(), Sample.workers());
    assert_eq!(client.ask::<Vec<RouteStatus>>("/v1/routes").unwrap(), Sample.routes());
    assert_eq!(client.ask::<Vec<NeighbourStatus>>("/v1/neighbours").unwrap(), Sample.neighbours());
    assert_eq!(client.ask::<Vec<AddressStatus>>("/v1/addresses").unwrap(), Sample.addresses());
    assert_eq!(client.ask::<Vec<DropStatus>>("/v1/drops").unwrap(), Sample.drops());
    assert_eq!(client.ask::<Ledger>("/v1/ledger").unwrap(), Sample.ledger());
    assert_eq!(client.ask::<FramesStatus>("/v1/frames").unwrap(), Sample.frames());
    assert_eq!(client.ask::<Daemon>("/v1/daemon").unwrap(), Sample.daemon());
    daemon.stop();
    assert!(!place.socket().exists(), "the file goes with the daemon");
}

/// Scripts read these. A change here is a change of `/v1`.
#[test]
fn the_json_has_stable_names() {
    assert_eq!(
        keys(&Sample.ports()[0]),
        "port name driver chosen interface mac mtu state link_up mode zero_copy frames_max single_because queues \
         addresses checksum \
         received received_bytes transmitted transmitted_bytes lost_ring_full lost_no_buffer lost_invalid \
         lost_closed lost_transmit segments_cut checksums_completed chains_joined dropped faults copies vlan"
    );
    assert_eq!(
        keys(&FaultStatus::default()),
        "dropped duplicated corrupted delayed reordered hold_full no_frame"
    );
    assert_eq!(keys(&CopyStatus::default()), "copied no_frame unfit refused");
    assert_eq!(
        keys(&Sample.workers()[0]),
        "worker core state turns busy_percent busy_ns idle_ns sleeps wakeups reports_lost orders_lost errors_suppressed inner_checksum_partial queues received transmitted held \
         frames_in_pool"
    );
    assert_eq!(keys(&Sample.routes()[0]), "prefix kind via port");
    assert_eq!(keys(&Sample.neighbours()[0]), "port address mac state age_s");
    assert_eq!(
        keys(&Sample.addresses()[0]),
        "port address state in_use age_s conflicts claimed_by"
    );
    assert_eq!(keys(&Sample.drops()[0]), "reason explanation total ports");
    let ledger = Sample.ledger();
    assert_eq!(
        keys(&ledger),
        "received created transmitted delivered dropped held in_flight missing frames per_port"
    );
    assert_eq!(keys(&ledger.frames), "total holders missing");
    assert_eq!(keys(&ledger.frames.holders[0]), "holder frames");
    assert_eq!(
        keys(&ledger.per_port[0]),
        "port received created transmitted delivered dropped held in_flight missing"
    );
    assert_eq!(
        keys(&Sample.daemon()),
        "version pid uptime_s neighbours_refused neighbours_reclaimed neighbours_without_route"
    );

    let frames = Sample.frames();
    assert_eq!(
        keys(&frames),
        "frame_size huge_pages hot_list_len hot_list_len_max lists ledger sum"
    );
    assert_eq!(keys(&frames.lists[0]), "worker level len taken hits refills spills starved");
    assert_eq!(keys(&frames.sum[0]), "holder formula frames");
    assert_eq!(keys(&Setting::new("a", SettingValue::Number(1))), "key value");
    let values =
        [SettingValue::Number(1), SettingValue::Flag(true), SettingValue::Word("flow".into())];
    let json = serde_json::to_string(&values).unwrap();
    assert_eq!(json, r#"[1,true,"flow"]"#);
    assert_eq!(serde_json::from_str::<Vec<SettingValue>>(&json).unwrap(), values);

    let steering = Sample.steering();
    assert_eq!(
        keys(&steering),
        "netdev_max_backlog netdev_max_backlog_max netdev_budget dev_weight rebalance rebalanced \
         reorder_sample reorder_sampled reordered ports workers pairs"
    );
    assert_eq!(keys(&steering.ports[0]), "port steering why queues buckets transmit_queues");
    assert_eq!(keys(&steering.ports[0].queues[0]), "queue worker");
    assert_eq!(keys(&steering.ports[0].queues[1]), "queue worker moving_to");
    assert_eq!(keys(&steering.ports[1].buckets[11]), "worker");
    assert_eq!(keys(&steering.ports[1].buckets[12]), "worker held_by");
    assert_eq!(keys(&steering.ports[0].transmit_queues[1]), "worker queue");
    assert_eq!(keys(&steering.ports[1].transmit_queues[1]), "worker");
    assert_eq!(keys(&steering.workers[0]), "worker paused");
    assert_eq!(
        keys(&steering.pairs[0]),
        "from to handed batches backlog backlog_full flow_limit waits"
    );

    let sockets = Sample.sockets();
    assert_eq!(
        keys(&sockets),
        "sockets max per_user_max memory_bytes memory_max per_user_memory_max instructions filter_max \
         per_user_filter_max time_max closed_for_time send"
    );
    assert_eq!(
        keys(&sockets.sockets[0]),
        "socket protocol points filter_len snap ring_bytes time_ns packets bytes lost clamped stale contended"
    );
    assert_eq!(
        keys(&sockets.sockets[1]),
        "socket pid uid port protocol points filter_len snap group fanout ring_bytes time_ns packets bytes lost \
         clamped stale contended"
    );

    for route in Sample.routes() {
        assert_eq!(serde_json::to_value(route.kind).unwrap(), route.kind.name());
    }
    for state in [PortState::Open, PortState::Draining, PortState::Removed] {
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
    }
    for worker in Sample.workers() {
        assert_eq!(serde_json::to_value(worker.state).unwrap(), worker.state.name());
    }
    for neighbour in Sample.neighbours() {
        assert_eq!(serde_json::to_value(neighbour.state).unwrap(), neighbour.state.name());
    }
}

#[test]
fn a_wrong_question_is_answered_in_json_with_help() {
    let place = Place::new("wrong");
    let _daemon = FakeDaemon::start(&place.socket());
    let error = Client::new(&place.socket()).ask_text("/v1/prots").expect_err("no such path");
    assert_eq!(
        error.to_string(),
        "the daemon refused: the API has no /v1/prots; ask for /v1/ports, /v1/workers, /v1/routes, \
         /v1/neighbours, /v1/addresses, /v1/drops, /v1/ledger, /v1/frames, /v1/steering, \
         /v1/sockets, /v1/export, /v1/config or /v1/daemon"
    );

    let mut stream = UnixStream::connect(place.socket()).unwrap();
    let request = "DELETE /v1/ports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let response = response.to_lowercase();
    assert!(response.starts_with("http/1.1 405 "), "{response}");
    assert!(response.contains("content-type: application/json"), "{response}");
    assert!(response.contains("\"error\":\"/v1/ports does not take delete\""), "{response}");
    assert!(response.contains("\"help\":\"ask with get"), "{response}");
}

#[test]
fn a_setting_is_changed_by_a_put_and_a_refusal_says_why() {
    let place = Place::new("put");
    let _daemon = FakeDaemon::start(&place.socket());
    let client = Client::new(&place.socket());
    let put = |path, value| client.put::<Setting>(path, value).map_err(|error| error.to_string());
    let path = "/v1/config/frames.hot_list_len";
    assert_eq!(
        put(path, "512\n").unwrap(),
        Setting::new("frames.hot_list_len", SettingValue::Number(512))
    );
    assert_eq!(put(path, "x").unwrap_err(), "the daemon refused: not x; try another");
    assert_eq!(
        put("/v1/config/workers.count", "2").unwrap_err(),
        "the daemon refused: the setting workers.count does not exist; try another"
    );
    let error = put("/v1/frames", "1").unwrap_err();
    assert!(error.contains("/v1/frames does not take PUT; ask with GET"), "{error}");
}

#[test]
fn a_neighbour_is_set_forgotten_or_refused() {
    let place = Place::new("neighbour");
    let daemon = FakeDaemon::start(&place.socket());
    let client = Client::new(&place.socket());
    let path = |port: &str, address: &str| format!("/v1/neighbours/{port}/{address}");
    let set: NeighbourStatus =
        client.put(&path("lan", "fe80%3A%3A9"), "02:00:00:00:00:09").unwrap();
    assert_eq!((set.address.as_str(), set.state), ("fe80::9", NeighbourState::Permanent));
    let was: NeighbourStatus = client.delete(&path("lan", "10.1.0.2")).unwrap();
    assert_eq!(was, Sample.neighbours()[1]);
    let refused = |error: Result<NeighbourStatus, ClientError>| error.unwrap_err().to_string();
    let said = "the daemon refused: 10.1.0.99 is nobody; try another";
    assert_eq!(refused(client.delete(&path("lan", "10.1.0.99"))), said);
    let said = "the daemon refused: that is no address; try another";
    assert_eq!(refused(client.put(&path("lan", "10.1.0.9"), "")), said);
    let said = "the daemon refused: the table is full; try another";
    assert_eq!(refused(client.put(&path("full", "10.1.0.9"), "02:00:00:00:00:09")), said);
    let said = refused(client.delete("/v1/neighbours"));
    assert!(said.contains("/v1/neighbours does not take DELETE"), "{said}");
    daemon.stop();
}

#[test]
fn a_port_is_removed_or_refused() {
    let place = Place::new("port");
    let daemon = FakeDaemon::start(&place.socket());
    let client = Client::new(&place.socket());
    let port: PortStatus = client.delete("/v1/ports/lan").unwrap();
    assert_eq!((port.name.as_str(), port.state), ("lan", PortState::Draining));
    let refused = client.delete::<PortStatus>("/v1/ports/lane").unwrap_err().to_string();
    assert_eq!(refused, "the daemon refused: lane is no port; try another");
    daemon.stop();
}

#[test]
fn without_a_daemon_the_message_says_how_to_start_one() {
    let place = Place::new("nobody");
    let socket = place.socket();
    let expected = format!(
        "no manylane daemon answers at {}; start one with `manylane run FILE` or `manylane \
         accelerate IF...`, or name its socket with --socket",
        socket.display()
    );
    let ask = || Client::new(&socket).ask_text("/v1/ports").expect_err("nobody is there");
    assert_eq!(ask().to_string(), expected);
    left_over(&socket);
    assert_eq!(ask().to_string(), expected, "a left-over file is nobody either");
}

#[test]
fn what_is_no_manylane_daemon_is_told_apart() {
    let place = Place::new("strange");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let client = Client::new(&place.socket());
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail ESMTP\r\n").unwrap();
        // Kept until the client has gone, and never answered.
        let (mut silent, _) = listener.accept().unwrap();
        let _ = silent.read_to_end(&mut Vec::new());
    });
    let error = client.ask_text("/v1/ports").expect_err("this is not HTTP");
    assert!(matches!(error, ClientError::Unexpected { .. }), "{error}");
    let hasty = client.with_patience(Duration::from_millis(20));
    let error = hasty.ask_text("/v1/ports").expect_err("nothing is said");
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    other.join().unwrap();
}

/// Each request of a command that only `manylane accelerate` can do, as `show` sends it.
#[test]
fn what_only_accelerate_does_is_answered_in_the_words_of_an_operator() {
    let place = Place::new("wrong");
    let daemon = FakeDaemon::start(&place.socket());
    let client = Client::new(&place.socket());
    for (path, instead) in [
        ("/v1/why/lan/10.1.0.1/10.2.0.1", "`manylane trace`"),
        ("/v1/mirror", "`manylane show routes`"),
        ("/v1/mirror/diff", "`manylane show routes`"),
        ("/v1/accelerate/ports", "`manylane show ports`"),
    ] {
        let error = client.ask_text(path).expect_err("it is the other daemon");
        assert!(matches!(error, ClientError::WrongDaemon(_)), "{error}");
        let said = error.to_string();
        assert!(said.starts_with("this is `manylane run`: "), "{said}");
        assert!(said.contains(instead) && !said.contains("/v1"), "{said}");
    }
    daemon.stop();
}

/// A daemon that hangs in the middle of an answer, or has no place for another connection.
#[test]
fn a_daemon_that_hangs_is_not_waited_for_without_end() {
    let place = Place::new("hangs");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let patient = |ms| Client::new(&place.socket()).with_patience(Duration::from_millis(ms));
    // A busy machine needs longer for the first line: until it came, the next client waits twice as long.
    for patience_ms in iter::successors(Some(20), |ms| Some(ms * 2)) {
        let listener = listener.try_clone().unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer before its request would be an error of its own.
            let _ = stream.read(&mut [0; 4096]);
            let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n1\n\r\n";
            let _ = stream.write_all(begun.as_bytes());
            let _ = stream.read_to_end(&mut Vec::new()); // Until the client has gone.
        });
        let mut lines = 0;
        let count = |_: &str| {
            lines += 1;
            std::ops::ControlFlow::Continue(())
        };
        let client = patient(patience_ms);
        let followed = client.follow("/v1/trace", String::new(), std::future::pending(), count);
        let error = followed.expect_err("nothing more is said");
        assert!(matches!(error, ClientError::Silent { .. }), "{error}");
        other.join().unwrap();
        if lines == 1 {
            break;
        }
    }
    // unix(7): a connection that is not accepted waits, up to the length of the queue.
    let mut waiting = Vec::new();
    let refused = loop {
        let probe = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let probe = probe.unwrap();
        probe.set_nonblocking(true).unwrap();
        match probe.connect(&socket2::SockAddr::unix(place.socket()).unwrap()) {
            Ok(()) => waiting.push(probe),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let error = patient(20).ask_text("/v1/ports").expect_err("nothing is accepted");
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
}

#[test]
fn a_second_daemon_is_refused_and_the_first_keeps_answering() {
    let place = Place::new("second");
    let daemon = FakeDaemon::start(&place.socket());
    let error = Socket::bind(&place.socket()).expect_err("it is taken");
    assert_eq!(
        error.to_string(),
        format!(
            "a manylane daemon already answers at {}; stop it, or name another socket with \
             --socket",
            place.socket().display()
        )
    );
    Client::new(&place.socket()).ask_text("/v1/ports").unwrap();
    daemon.stop();
    Socket::bind(&place.socket()).expect("it is free again");
}

#[test]
fn a_left_over_socket_is_replaced_in_a_directory_made_for_it() {
    let place = Place::new("left");
    let socket = place.folder.join("new/deep/api.sock");
    drop(Socket::bind(&socket).unwrap());
    assert!(!socket.exists());
    left_over(&socket);
    let bound = Socket::bind(&socket).unwrap();
    assert_eq!(bound.path(), socket);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new("file");
    fs::write(place.socket(), "precious").unwrap();
    let error = Socket::bind(&place.socket()).expect_err("it is a file");
    assert!(error.to_string().contains("exists and is not a socket; remove it"), "{error}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "precious");
    let below = place.socket().join("api.sock");
    let error = Socket::bind(&below).expect_err("a file is no directory");
    assert!(error.to_string().contains("cannot create the directory of the socket"), "{error}");
}

#[test]
fn two_daemons_that_start_together_get_one_socket() {
    let place = Place::new("race");
    for _ in 0..50 {
        left_over(&place.socket());
        let start = |path: PathBuf| thread::spawn(move || Socket::bind(&path));
        let both = [start(place.socket()), start(place.socket())];
        let bound: Vec<_> = both.into_iter().filter_map(|bind| bind.join().unwrap().ok()).collect();
        // The winner's socket lives on in its thread's result, so the loser finds it answering.
        assert_eq!(bound.len(), 1);
    }
}

/// A client that connects and says nothing, or half a question, must not keep a daemon.
#[test]
fn a_daemon_stops_although_a_client_lingers() {
    let place = Place::new("linger");
    let daemon = FakeDaemon::start(&place.socket());
    let mut half = UnixStream::connect(place.socket()).unwrap();
    half.write_all(b"GET /v1/ports HT").unwrap();
    let _silent = UnixStream::connect(place.socket()).unwrap();
    daemon.stop();
}

/// A directory of this test's own, removed at its end.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("manylane-api-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Place { folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The server side, on a thread.
struct FakeDaemon {
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// Listens when this returns.
    fn start(path: &Path) -> Self {
        let socket = Socket::bind(path).unwrap();
        let (shutdown, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async move { stopped.await.unwrap_or_default() };
            runtime.block_on(serve(socket, Arc::new(Sample), stopped)).unwrap();
        });
        FakeDaemon { shutdown: Some(shutdown), thread: Some(thread) }
    }

    fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.join();
    }
}

/// The file of a daemon that was killed.
fn left_over(path: &Path) {
    let _ = fs::remove_file(path);
    drop(UnixListener::bind(path).unwrap());
    assert!(path.exists());
}

fn keys(value: &impl Serialize) -> String {
    // A value's map is sorted; the text has the order of the struct.
    let text = serde_json::to_string(value).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    keys.sort_by_key(|key| text.find(&format!("\"{key}\":")));
    keys.join(" ")
}
