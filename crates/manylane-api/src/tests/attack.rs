//! Clients that want the API for themselves: each test is an attack, and what others have of the API meanwhile.
//!
//! Deadlines are arguments here. A test waits for the end of a connection, for an answer or for a count, and never for
//! a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::served::{Answer, Kind, Served, exchange, folder, token_file};
use crate::accelerate::*;
use crate::sample::accelerate::Sample as AcceleratorSample;
use crate::{
    ApiError, Bounds, CaptureFile, CaptureRequest, Client, ClientError, ConfigApplied,
    ConfigRequest, Listen, RouteStatus, SetError, Setting,
};

pub(crate) const SOON: Duration = Duration::from_millis(100);
/// No test waits for so long.
const NEVER: Duration = Duration::from_secs(3600);
const HOST: [&str; 1] = ["Host: localhost"];

/// Bounds that no test reaches but by naming them.
pub(crate) fn patient() -> Bounds {
    Bounds { head: NEVER, body: NEVER, stalled: NEVER, turn: NEVER, ..Bounds::default() }
}

pub(crate) fn loopback() -> Listen {
    Listen { address: Some("127.0.0.1:0".parse().unwrap()), ..Listen::default() }
}

fn error(answer: &Answer) -> ApiError {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// The deadline counts from the first byte: each further byte used to begin it anew.
#[test]
fn a_head_that_arrives_byte_by_byte_does_not_keep_its_place() {
    let bounds = Bounds { head: SOON, connections: 1, ..patient() };
    let served = Served::bounded(Kind::Forwarder, "drip", &loopback(), bounds);
    let mut slow = served.connect();
    slow.set_nodelay(true).unwrap();
    slow.write_all(b"GET /v1/ports HTTP/1.1\r\nX: ").unwrap();
    let mut written = 0_u64;
    // Ends when the server closes the connection: one byte after the other for as long as it takes them.
    while slow.write_all(b"x").is_ok() {
        written += 1;
        thread::yield_now();
        assert!(written < 100_000_000, "the connection stays open");
    }
    assert_eq!(served.reached("no_request"), 1);
    assert_eq!(served.ask_tcp("GET", "/v1/ports", &HOST).status, 200);
}

/// Reading used to be the only thing that a deadline counted for.
#[test]
fn clients_that_pipeline_and_never_read_lose_their_places() {
    let bounds = Bounds { stalled: SOON, connections: 2, ..patient() };
    let served = Served::bounded(Kind::Forwarder, "pipeline", &loopback(), bounds);
    let greedy = [(); 2].map(|()| {
        let mut stream = served.connect();
        thread::spawn(move || {
            let request = b"GET /v1/steering HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
            // Ends when the server closes the connection.
            while stream.write_all(&request).is_ok() {}
        })
    });
    greedy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(served.ask_tcp("GET", "/v1/ports", &HOST).status, 200);
    assert_eq!(served.reached("not_read"), 2);
}

#[test]
fn one_address_cannot_take_all_places() {
    let bounds = Bounds { connections: 3, per_peer: 2, ..patient() };
    let served = Served::bounded(Kind::Forwarder, "peers", &loopback(), bounds);
    let idle = [(); 2].map(|()| {
        let mut stream = served.connect();
        // An answer proves that it has a place.
        stream.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    });
    let refused = served.ask_tcp("GET", "/v1/ports", &HOST);
    assert_eq!(refused.status, 503);
    let said = error(&refused).error;
    assert_eq!(said, "127.0.0.1 has all connections to the API that one peer may have");
    let other = exchange(served.connect_from("127.0.0.2"), "GET", "/v1/ports", &HOST, "");
    assert_eq!(other.status, 200);
    assert_eq!(served.reached("peer_connections"), 1);
    drop(idle);
}

/// One user of the socket keeps to its share, and the answer says so in words.
#[test]
fn a_user_that_has_all_its_connections_is_told_so() {
    let bounds = Bounds { per_peer: 2, ..patient() };
    let served = Served::bounded(Kind::Forwarder, "users", &Listen::default(), bounds);
    let idle = [(); 2].map(|()| {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        stream.write_all(b"HEAD / HTTP/1.1\r\nHost: manylane\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    });
    let refused = Client::new(&served.socket()).ask_text("/v1/ports").expect_err("both are taken");
    let ClientError::Refused(said) = &refused else { panic!("{refused}") };
    let user = nix::unistd::geteuid();
    let expected = format!("user {user} has all connections to the API that one peer may have");
    assert_eq!(said.error, expected);
    drop(idle);
}

#[test]
fn a_body_that_does_not_arrive_is_not_waited_for() {
    let bounds = Bounds { body: SOON, ..patient() };
    let served = Served::bounded(Kind::Forwarder, "body", &Listen::default(), bounds);
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    let head = "PUT /v1/config/workers HTTP/1.1\r\nHost: manylane\r\nContent-Length: 9\r\n\r\n1";
    stream.write_all(head.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    assert!(said.contains("did not arrive within 0.1 s"), "{said}");
    assert_eq!(served.reached("slow_body"), 1);
}

/// Only its head arrives: the size that it claims is enough to refuse it.
#[test]
fn a_request_larger_than_its_bound_is_refused_with_the_bound() {
    let served = Served::bounded(Kind::Forwarder, "large", &Listen::default(), patient());
    for (method, path, bytes, bound) in [
        ("PUT", "/v1/config/workers", (1_u64 << 20) + 1, "1 MiB"),
        ("POST", "/v1/trace", 1 << 40, "1 MiB"),
        ("POST", "/v1/config/apply", (16 << 20) + 1, "16 MiB"),
        ("POST", "/v1/config/diff", 1 << 40, "16 MiB"),
    ] {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: manylane\r\nContent-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 413 "), "{path}: {said}");
        let bound = format!("the request has more than {bound}, and the API takes no more");
        assert!(said.contains(&bound), "{path}: {said}");
    }
    assert_eq!(served.reached("too_large"), 4);
}

/// Without `Content-Length` only its bytes say how large it is.
#[test]
fn a_request_in_chunks_is_bounded_too() {
    let served = Served::bounded(Kind::Forwarder, "chunks", &Listen::default(), patient());
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    let head =
        "PUT /v1/config/workers HTTP/1.1\r\nHost: manylane\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [&b"10000\r\n"[..], &[b'1'; 0x10000], b"\r\n"].concat();
    let mut chunks = 0;
    // Ends when the server has had enough.
    while stream.write_all(&chunk).is_ok() {
        chunks += 1;
        assert!(chunks < 1000, "the server takes all of it");
    }
    assert_eq!(served.reached("too_large"), 1);
}

/// Two million bytes used to be a library's bound, and its message the answer.
#[test]
fn a_configuration_of_ten_megabytes_is_applied() {
    let served = Served::bounded(Kind::Forwarder, "ten", &Listen::default(), patient());
    let text = "# a comment\n".repeat(900_000);
    assert!(text.len() > 10_000_000);
    let request = ConfigRequest { text, name: Some("file".into()), confirm_within_s: None };
    let client = Client::new(&served.socket());
    let applied: ConfigApplied = client.post("/v1/config/apply", &request).expect("it fits");
    assert_eq!(applied.trial, None);
}

#[test]
fn without_the_token_a_place_lasts_for_one_answer_and_no_body_is_read() {
    let folder = folder("attack-token");
    let token_file = Some(token_file(&folder, "0123456789abcdef", 0o600));
    let listen = Listen { token_file, ..loopback() };
    let served = Served::bounded(Kind::Forwarder, "once", &listen, patient());
    for (request, status) in [
        ("GET / HTTP/1.1\r\n", 200),
        ("GET /v1/routes HTTP/1.1\r\n", 401),
        // The body never comes, and is not waited for.
        ("POST /v1/config/apply HTTP/1.1\r\nContent-Length: 1000000\r\n", 401),
    ] {
        let mut stream = served.connect();
        let request = format!("{request}Host: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("the server closes it");
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        assert!(said.contains("connection: close\r\n"), "{said}");
    }
    // With the token it lasts.
    let mut stream = served.connect();
    let request = "HEAD /v1/ports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("it is open");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// An accelerator that compares for as long as the test wants.
struct Comparing {
    begun: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Accelerated for Comparing {
    fn daemon(&self) -> AcceleratorStatus {
        AcceleratorSample.daemon()
    }
    fn ports(&self) -> Vec<AcceleratedPort> {
        AcceleratorSample.ports()
    }
    fn states(&self) -> Vec<AcceleratedPort> {
        AcceleratorSample.states()
    }
    fn drops(&self) -> Vec<PassedStatus> {
        AcceleratorSample.drops()
    }
    fn ledger(&self) -> AcceleratedLedger {
        AcceleratorSample.ledger()
    }
    fn flows(&self) -> Result<AcceleratedFlows, AskError> {
        AcceleratorSample.flows()
    }
    fn config(&self) -> AcceleratorConfig {
        AcceleratorSample.config()
    }
    fn capture_drops(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError> {
        AcceleratorSample.capture_drops(request)
    }
    fn set(&self, key: &str, value: &str) -> Result<Setting, AskError> {
        AcceleratorSample.set(key, value)
    }
    fn add_port(&self, name: &str) -> Result<AcceleratedPort, AskError> {
        AcceleratorSample.add_port(name)
    }
    fn mirror(&self) -> Result<MirrorStatus, AskError> {
        AcceleratorSample.mirror()
    }
    fn diff(&self) -> Result<Vec<String>, AskError> {
        self.begun.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        Ok(vec!["a difference".into()])
    }
    fn routes(&self) -> Result<Vec<RouteStatus>, AskError> {
        AcceleratorSample.routes()
    }
    fn neighbours(&self) -> Result<Vec<MirroredNeighbour>, AskError> {
        AcceleratorSample.neighbours()
    }
    fn lane(&self) -> Result<LaneStatus, AskError> {
        AcceleratorSample.lane()
    }
    fn tracked_flows(&self, request: &TrackedFlowsRequest) -> Result<TrackedFlows, AskError> {
        self.begun.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        AcceleratorSample.tracked_flows(request)
    }
    fn kernel_flows(&self, request: &KernelFlowsRequest) -> Result<KernelFlows, AskError> {
        self.begun.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        AcceleratorSample.kernel_flows(request)
    }
    fn tracked_flows_diff(&self) -> Result<TrackedFlowsDiff, AskError> {
        self.begun.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        AcceleratorSample.tracked_flows_diff()
    }
    fn export(&self) -> ExportStatus {
        AcceleratorSample.export()
    }
    fn why(&self, question: &WhyQuestion) -> Result<Why, AskError> {
        AcceleratorSample.why(question)
    }
}

/// Clients that compared in a loop kept the mirror's thread from what it is for.
#[test]
fn the_mirror_is_compared_once_at_a_time_and_others_are_answered_meanwhile() {
    const DIFF: &str = "/v1/accelerate/mirror/diff";
    let said = "another comparison of the mirror with the kernel runs";
    is_compared_once_at_a_time::<Vec<String>>("compare", DIFF, said);
}

/// A comparison takes the lane's thread, too.
#[test]
fn the_flow_table_is_compared_once_at_a_time_and_others_are_answered_meanwhile() {
    const DIFF: &str = "/v1/accelerate/flows/diff";
    let said = "another comparison of the flow table with conntrack runs";
    is_compared_once_at_a_time::<TrackedFlowsDiff>("compare-flows", DIFF, said);
}

fn is_compared_once_at_a_time<T: DeserializeOwned + Send + 'static>(
    name: &str,
    path: &'static str,
    said: &str,
) {
    let (begin, begun) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let source = Arc::new(Comparing { begun: Mutex::new(begin), go_on: Mutex::new(go_on) });
    let serve =
        async move |doors, stopped| crate::server::accelerate::serve(doors, source, stopped).await;
    let served = Served::answering(name, &loopback(), patient(), serve);
    assert_eq!(served.ask("GET", path, "").status, 405);
    assert_eq!(served.ask_tcp("POST", path, &HOST).status, 403, "a token is wanted");
    let client = Client::new(&served.socket());
    let first = {
        let client = client.clone();
        thread::spawn(move || client.post::<T>(path, &()))
    };
    begun.recv().expect("it has begun");
    let refused = client.post::<T>(path, &()).map(drop).expect_err("one at a time").to_string();
    assert!(refused.contains(said), "{refused}");
    assert_eq!(served.ask("POST", path, "").status, 409);
    assert_eq!(served.ask("GET", "/v1/accelerate/ports", "").status, 200);
    go.send(()).unwrap();
    first.join().unwrap().expect("it was compared");
    go.send(()).unwrap();
    client.post::<T>(path, &()).expect("the next one is compared");
    assert_eq!(begun.try_iter().count(), 1, "the refused ones never began");
}

/// A page of a million flows is many questions to the lane's thread: one page at a time for each client.
#[test]
fn a_client_reads_one_page_of_the_flow_table_at_a_time() {
    const TABLE: &str = "/v1/accelerate/flows/table";
    const KERNEL: &str = "/v1/accelerate/flows/kernel";
    let (begin, begun) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let source = Arc::new(Comparing { begun: Mutex::new(begin), go_on: Mutex::new(go_on) });
    let serve =
        async move |doors, stopped| crate::server::accelerate::serve(doors, source, stopped).await;
    let bounds = Bounds { turn: SOON, ..patient() };
    let served = Served::answering("pages", &loopback(), bounds, serve);
    assert_eq!(served.ask("GET", TABLE, "").status, 405);
    assert_eq!(served.ask_tcp("POST", TABLE, &HOST).status, 403, "a token is wanted");
    for (wrong, said) in [
        (r#"{"limit":1001}"#, "1 to 1000 are possible"),
        (r#"{"limit":0}"#, "a page cannot have 0 entries"),
        (r#"{"protocol":"icmp"}"#, "unknown variant"),
        (r#"{"address":"here"}"#, "no request for flows"),
        (r#"{"sort":"age"}"#, "unknown field"),
        ("[", "no request for flows"),
    ] {
        let answer = served.ask("POST", TABLE, wrong);
        assert!(answer.status == 400 && answer.body.contains(said), "{wrong}: {}", answer.body);
        let answer = served.ask("POST", KERNEL, wrong);
        assert!(answer.status == 400 && answer.body.contains(said), "{wrong}: {}", answer.body);
    }
    assert_eq!(served.ask_tcp("POST", KERNEL, &HOST).status, 403, "a token is wanted");
    let client = Client::new(&served.socket());
    let first = {
        let client = client.clone();
        let all = TrackedFlowsRequest::default();
        thread::spawn(move || client.post::<TrackedFlows>(TABLE, &all))
    };
    begun.recv().expect("it has begun");
    assert_eq!(served.ask("POST", TABLE, "").status, 503);
    assert_eq!(served.reached("turn"), 1);
    assert_eq!(served.ask("POST", KERNEL, "").status, 503, "it takes the same turn");
    assert_eq!(served.reached("turn"), 2);
    assert_eq!(served.ask("GET", "/v1/accelerate/lane", "").status, 200);
    go.send(()).unwrap();
    assert_eq!(first.join().unwrap().expect("it was listed").total, 2);
    assert_eq!(begun.try_iter().count(), 0, "the refused one never began");
}
