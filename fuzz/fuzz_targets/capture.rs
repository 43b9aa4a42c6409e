//! Any messages, by the socket for captures of a running daemon: each is answered or hung up on, in its own connection alone;
//! no bound is passed; and when the connection has ended, nothing of its socket is left.
//!
//! ```sh
//! cargo fuzz run --sanitizer none --features libfuzzer capture -- -max_total_time=60
//! ```
//!
//! The input is messages, each ended by a byte 255, which no JSON has. The seeds are what `manylane-client` sends: a first
//! message that opens a socket, and some that change it. The daemon has ports in memory, and no traffic but what the
//! messages send. Not looked for: descriptors that come with a message (`remote_socket.rs`), slowness.
#![no_main]

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, process, thread};

use libfuzzer_sys::fuzz_target;
use manylane_client::message::{ANSWER_MAX, Answer, REQUEST_MAX};
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;
use manylane_router::socket::remote::Listener;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with,
};

/// Bounds that inputs reach. Rings of more than a megabyte are made by another thread.
const CONFIG: &str = r#"
[workers]
cores = [CORE]
[sockets]
max = 8
memory_max = 4194304
filter_max = 64
send = true
[[port]]
name = "lan"
driver = "memory"
addresses = ["10.1.0.254/24", "2001:db8:1::fe/64"]
[[port]]
name = "wan"
driver = "memory"
addresses = ["10.2.0.254/24", "2001:db8:2::fe/64"]
"#;

const MEMORY_MAX: u64 = 4 << 20;
const FILTER_MAX: u64 = 64;

/// A daemon that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Inputs between two looks at what is left: workers let go within a turn, and to wait for it after each is slow.
const LOOK: u32 = 64;

struct Rig {
    daemon: Daemon,
    path: PathBuf,
}

fuzz_target!(|input: &[u8]| {
    static RIG: OnceLock<Rig> = OnceLock::new();
    static INPUTS: AtomicU32 = AtomicU32::new(1);
    let rig = RIG.get_or_init(start);
    let connection = connected(rig);
    let mut is_open = false;
    for message in input.split(|&byte| byte == 255).take(32) {
        let message = &message[..message.len().min(REQUEST_MAX + 1)];
        let mut none = SendAncillaryBuffer::default();
        let sent = sendmsg(&connection, &[IoSlice::new(message)], &mut none, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(message.len()), "it still listens");
        let mut answer = vec![0; ANSWER_MAX];
        let (len, _) = recv(&connection, &mut answer[..], RecvFlags::empty()).expect("it answers");
        if message.is_empty() {
            assert_eq!(len, 0, "nothing said is an end");
            break;
        }
        match serde_json::from_slice(&answer[..len]).expect("it is an answer") {
            Answer::Refused(refusal) => assert!(!refusal.error.is_empty()),
            Answer::Opened { .. } => {
                assert!(!is_open, "a connection is one socket");
                is_open = true;
            }
            Answer::Ports { ports } => assert_eq!(ports.len(), 2),
            Answer::Done { .. } | Answer::Statistics(_) => assert!(is_open),
            Answer::Captures { .. } => panic!("a router's sockets have other rings"),
        }
        let sockets = rig.daemon.sockets();
        assert!(sockets.instructions() <= FILTER_MAX);
        assert!(sockets.memory() <= MEMORY_MAX);
    }
    drop(connection);
    if INPUTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK) {
        let sockets = rig.daemon.sockets();
        while !sockets.list().is_empty() || sockets.memory() > 0 {
            thread::yield_now();
        }
        assert_eq!(sockets.instructions(), 0);
    }
});

fn start() -> Rig {
    let environment = Environment::of_this_thread();
    let text = CONFIG.replace("CORE", &environment.cores[0].to_string());
    let config = Config::parse(&text, "fuzz.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let folder = env::temp_dir().join(format!("manylane-fuzz-{}", process::id()));
    let listener = Listener::bind(&folder.join("api.sock")).expect("nobody else has this name");
    let path = listener.path().to_owned();
    let mut daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
    daemon.listen(listener).expect("threads are to be had");
    Rig { daemon, path }
}

/// A new connection. Those of earlier inputs may not have ended yet: then the daemon says that too many sockets are open.
fn connected(rig: &Rig) -> OwnedFd {
    while !rig.daemon.sockets().list().is_empty() {
        thread::yield_now();
    }
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let fd = fd.expect("sockets are to be had");
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&fd, direction, Some(PATIENCE)).expect("it is a socket");
    }
    connect(&fd, &SocketAddrUnix::new(&rig.path).expect("it is short")).expect("it listens");
    fd
}
