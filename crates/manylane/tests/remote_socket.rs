//! Packet sockets of other processes, over the real socket of a daemon between ports in memory. Needs no root.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, process, thread};

use manylane_api::{BindError, Ledger};
use manylane_client::message::REQUEST_MAX;
use manylane_client::{Capture, Kind, Options, RemoteError, RemoteSocket};
use manylane_frame::vocabulary::{Point, PortId};
use manylane_io::packet_ring::RingConfig;
use manylane_net::filter::{Instruction, Program};
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;
use manylane_router::socket::remote::Listener;
use manylane_router::socket::{Fanout, Owner, Points, RING, protocol};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with,
};

/// What a member of `manylane-capture` tried against the daemon.
#[path = "remote_socket/hostile.rs"]
mod hostile;

/// One port receives IPv4, the other IPv6: after each `bind`, no packet is of another port or protocol than
/// was bound to last.
#[test]
fn what_was_bound_to_before_is_not_given() {
    let rig = Rig::start("bind", 20_000, "");
    let mut socket = rig.open(&Options { protocol: protocol::NONE, ..Options::default() });
    for round in 0..40 {
        let (name, port, of) =
            [("west", 0, protocol::IPV4), ("east", 1, protocol::IPV6)][round % 2];
        socket.bind(Some(name), of).expect("there is such a port");
        let mut seen = 0;
        while seen < 20 {
            socket.wait(None).expect("the daemon runs");
            while let Some(block) = socket.receive() {
                for packet in block.packets() {
                    assert_eq!(
                        (packet.record.port, packet.record.point),
                        (PortId(port), Point::Receive)
                    );
                    assert_eq!(packet.bytes[12..14], of.to_be_bytes(), "round {round}");
                    seen += 1;
                }
            }
        }
    }
    let refused = socket.bind(Some("nowhere"), protocol::ALL);
    assert_eq!(kind(refused), Kind::NoSuchPort);
    let counts = socket.counts().expect("the daemon runs");
    assert!(counts.packets >= 800 && counts.contended == 0, "{counts:?}");
    assert_eq!(rig.daemon.sockets().list()[0].stale, socket.stale());
    let names: Vec<_> =
        socket.ports().expect("the daemon runs").into_iter().map(|port| port.name).collect();
    assert_eq!(names, ["west", "east", "north"]);
    rig.stop();
}

/// A filter, a length and a point each change at once, and a refused one changes nothing.
#[test]
fn filter_snap_and_points_change_at_once() {
    let rig = Rig::start("filter", 20_000, "");
    let mut socket = rig.open(&Options { snap: 20, ..Options::default() });
    let take = |socket: &mut RemoteSocket| -> Vec<(Point, u16, usize)> {
        while !socket.wait(None).expect("the daemon runs") {}
        let Some(block) = socket.receive() else { return Vec::new() };
        let of = |bytes: &[u8]| u16::from_be_bytes([bytes[12], bytes[13]]);
        block
            .packets()
            .map(|packet| (packet.record.point, of(packet.bytes), packet.bytes.len()))
            .collect()
    };
    let some = |socket: &mut RemoteSocket| loop {
        let taken = take(socket);
        if !taken.is_empty() {
            return taken;
        }
    };
    assert!(some(&mut socket).iter().all(|&(point, _, len)| (point, len) == (Point::Receive, 20)));
    // ldh [12]; jeq #0x86dd, 0, 1; ret #16; ret #0
    let ipv6 = [(0x28, 0, 0, 12), (0x15, 0, 1, 0x86dd), (0x06, 0, 0, 16), (0x06, 0, 0, 0)];
    let ipv6 = ipv6.map(|(code, jt, jf, k)| Instruction { code, jt, jf, k });
    let ipv6 = Program::new(ipv6.to_vec()).expect("it is a program");
    socket.set_filter(&ipv6).expect("it is checked already");
    for _ in 0..3 {
        assert!(some(&mut socket).iter().all(|&(_, of, len)| (of, len) == (0x86dd, 16)));
    }
    socket.set_points(Points::TRANSMIT).expect("there is such a point");
    for _ in 0..3 {
        assert!(
            some(&mut socket)
                .iter()
                .all(|&(point, of, _)| (point, of) == (Point::Transmit, 0x86dd))
        );
    }
    socket.set_snap(14).expect("any length will do");
    assert!(some(&mut socket).iter().all(|&(.., len)| len == 14));
    let listed = rig.daemon.sockets().list();
    assert_eq!((listed.len(), listed[0].filter_len, listed[0].snap), (1, 4, 14));
    let Owner::Process { pid, .. } = listed[0].owner else { panic!("{listed:?}") };
    assert_eq!(pid, process::id() as i32);
    rig.stop();
}

/// What is sent by one socket is seen by another where it is transmitted.
#[test]
fn what_is_sent_is_transmitted_as_it_is() {
    let rig = Rig::start("send", 100, "[sockets]\nsend = true\n");
    let sees = Options { protocol: 0x88b5, points: Points::TRANSMIT, ..Options::default() };
    let (mut sees, mut sends) = (rig.open(&sees), rig.open(&Options::default()));
    assert_eq!(kind(sends.send(&[0; 60])), Kind::NotBound);
    sends.bind(Some("north"), protocol::NONE).expect("there is such a port");
    assert_eq!(kind(sends.send(&[0; 9])), Kind::Length);
    let mut frame = [b'\n'; 60]; // As what separates it from its request.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    sends.send(&frame).expect("it is as long as it may be");
    while !sees.wait(None).expect("the daemon runs") {}
    let block = sees.receive().expect("it waits");
    assert_eq!(block.packets().map(|packet| packet.bytes.to_vec()).collect::<Vec<_>>(), [frame]);
    drop(block);
    rig.stop();
}

/// All workers' packets in order of time, but for those that are counted as late.
#[test]
fn a_capture_is_in_order() {
    let rig = Rig::start("order", 20_000, "");
    let mut capture = Capture::open(
        &rig.path,
        &Options { points: Points::RECEIVE | Points::TRANSMIT, ..Options::default() },
    )
    .expect("the daemon runs");
    let (mut last_ns, mut late, mut seen, mut workers) = (0, 0, 0, BTreeSet::new());
    while seen < 2000 || workers.len() < 2 {
        capture.wait(None).expect("the daemon runs");
        while let Some(mut round) = capture.receive() {
            for packet in round.packets() {
                late += u64::from(packet.record.time_ns < last_ns);
                last_ns = last_ns.max(packet.record.time_ns);
                workers.insert(packet.record.worker);
                seen += 1;
            }
        }
    }
    assert_eq!(capture.late(), late);
    rig.stop();
}

/// Two members of a group are given each packet once, all of a flow to one.
#[test]
fn a_group_shares_packets() {
    let rig = Rig::start("fanout", 20_000, "");
    let member =
        Options { protocol: protocol::IPV4, fanout: Some((7, Fanout::Hash)), ..Options::default() };
    let mut members = [rig.open(&member), rig.open(&member)];
    let other = Options { fanout: Some((7, Fanout::Cpu)), ..member.clone() };
    assert_eq!(kind(RemoteSocket::open(&rig.path, &other)), Kind::Fanout);
    // Whatever the first was given when it was alone is of its own generation.
    members[0].set_snap(100).expect("any length will do");
    let mut flows = [BTreeSet::new(), BTreeSet::new()];
    while flows.iter().any(|flows| flows.len() < 5) {
        for (member, flows) in members.iter_mut().zip(&mut flows) {
            while let Some(block) = member.receive() {
                flows.extend(block.packets().map(|packet| packet.bytes[26..38].to_vec()));
            }
        }
        thread::yield_now();
    }
    assert!(flows[0].is_disjoint(&flows[1]));
    members[0].leave_fanout().expect("it is in one");
    let fanouts: Vec<_> = rig.daemon.sockets().list().iter().map(|socket| socket.fanout).collect();
    assert_eq!(fanouts, [None, Some((7, Fanout::Hash))]);
    rig.stop();
}

/// Sleeps without a time limit, and is woken by packets; then by the daemon's end, when all waiting packets have been
/// received.
#[test]
fn a_sleeper_is_woken_by_packets_and_by_the_end() {
    let rig = Rig::start("wake", 200, "");
    let mut socket = rig.open(&Options::default());
    let reader = thread::spawn(move || {
        let (mut woken, mut blocks) = (0, 0);
        loop {
            match socket.wait(None) {
                Ok(_) => woken += 1,
                Err(error) => break (woken, blocks, socket, error),
            }
            while socket.receive().is_some() {
                blocks += 1;
            }
        }
    });
    let sockets = rig.daemon.sockets();
    while sockets.list()[0].counts.packets < 20 {
        thread::yield_now();
    }
    rig.stop();
    let (woken, blocks, mut socket, error) = reader.join().expect("it does not panic");
    assert!(woken > 0 && blocks > 0, "{woken}, {blocks}");
    assert!(matches!(error, RemoteError::Gone { .. }), "{error}");
    assert!(matches!(socket.bind(None, protocol::IPV4), Err(RemoteError::Gone { .. })));
}

/// Whatever one client sends, leaves unread, or leaves unsaid: another's socket works as before.
#[test]
fn nonsense_harms_only_who_sends_it() {
    let rig = Rig::start("garbage", 2000, "");
    let mut good = rig.open(&Options::default());
    let say = |fd: &OwnedFd, bytes: &[u8]| {
        sendmsg(
            fd,
            &[IoSlice::new(bytes)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
    };
    let answer = |fd: &OwnedFd| {
        let mut answer = vec![0; REQUEST_MAX];
        let (len, _) = recv(fd, &mut answer[..], RecvFlags::empty()).expect("it answers");
        String::from_utf8(answer[..len].to_vec()).expect("it is text")
    };
    let open = br#"{"request":"open","protocol":3,"block_size":4096,"blocks":2,"retire_ns":1000}"#;
    let nonsense: [&[u8]; 9] = [
        b"\0",
        b"\n\n",
        b"{}",
        b"null",
        &[b'['; 5000],
        br#"{"request":"close"}"#,
        br#"{"request":"bind","protocol":70000}"#,
        br#"{"request":"bind","protocol":3}"#,
        &vec![b' '; REQUEST_MAX + 1],
    ];
    let bad = rig.connect();
    for what in nonsense {
        say(&bad, what).expect("it listens");
        assert!(
            answer(&bad).contains(r#""kind":"bad_request""#),
            "{:?}",
            String::from_utf8_lossy(what)
        );
    }
    for (text, kind) in [
        (r#"{"request":"open","protocol":3,"block_size":4097,"blocks":2,"retire_ns":0}"#, "ring"),
        (
            r#"{"request":"open","protocol":3,"block_size":4096,"blocks":2,"retire_ns":0,"filter":[[0,0,0,0]]}"#,
            "filter",
        ),
        (
            r#"{"request":"open","protocol":3,"block_size":4096,"blocks":2,"retire_ns":0,"filter":[]}"#,
            "filter",
        ),
        (
            r#"{"request":"open","protocol":3,"block_size":4096,"blocks":2,"retire_ns":0,"points":["up"]}"#,
            "bad_request",
        ),
    ] {
        say(&bad, text.as_bytes()).expect("it listens");
        assert!(answer(&bad).contains(&format!("\"kind\":\"{kind}\"")), "{text}");
    }
    say(&bad, open).expect("it listens");
    assert!(answer(&bad).contains("opened"));
    say(&bad, open).expect("it listens");
    assert!(answer(&bad).contains("bad_request"), "one connection is one socket");
    // The daemon hangs up on a client that never reads: at some time it takes no more requests.
    while say(&bad, br#"{"request":"ports"}"#).is_ok() {}
    // Nothing said is an end, too.
    let silent = rig.connect();
    say(&silent, b"").expect("it listens");
    assert_eq!(recv(&silent, &mut [0; 9][..], RecvFlags::empty()).map(|(len, _)| len), Ok(0));
    let _never_says_anything = rig.connect();
    for round in 0..100 {
        let port = [None, Some("west")][round % 2];
        good.bind(port, protocol::IPV4).expect("it answers others meanwhile");
    }
    while !good.wait(None).expect("the daemon runs") {}
    rig.stop();
}

/// Sockets come and go, some without a word, while packets pass: no packet is lost, and in the end neither a
/// socket nor memory of one is left.
#[test]
fn hundreds_come_and_go_and_forwarding_loses_nothing() {
    let rig = Rig::start("many", 30_000, "[sockets]\nper_user_max = 100\n");
    thread::scope(|scope| {
        for thread in 0..3 {
            let rig = &rig;
            scope.spawn(move || {
                let mut open = Vec::new();
                for round in 0..100 {
                    let mut socket = rig.open(&Options { snap: 64, ..Options::default() });
                    let port = ["west", "east", "north"][(thread + round) % 3];
                    socket.bind(Some(port), protocol::ALL).expect("there is such a port");
                    open.push(socket);
                    if round % 10 == 9 {
                        open.clear();
                    }
                }
            });
        }
    });
    rig.await_nothing();
    rig.stop();
}

/// A process that is killed leaves nothing behind.
#[test]
fn a_killed_reader_leaves_nothing() {
    let rig = Rig::start("killed", 1000, "");
    let mut child = child("a_reader_of_its_own", &rig.path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("we can run ourselves");
    let said = BufReader::new(child.stdout.take().expect("it is piped"));
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("open 1")));
    assert!(rig.daemon.sockets().list().len() == 1 && rig.daemon.sockets().memory() > 0);
    child.kill().expect("it waits for us");
    child.wait().expect("it is our child");
    rig.await_nothing();
    rig.stop();
}

/// Each bound refuses with its own words, and what was refused takes nothing.
#[test]
fn bounds_are_refused() {
    let bounds = "[sockets]\nmax = 4\nper_user_max = 2\nmemory_max = 2097152\n\
                  per_user_memory_max = 1048576\n";
    let rig = Rig::start("bounds", 100, bounds);
    let large = Options {
        ring: RingConfig { block_size: 1 << 20, blocks: 4, ..RING },
        ..Options::default()
    };
    let refused = RemoteSocket::open(&rig.path, &large);
    assert_eq!(kind(refused), Kind::Memory);
    let closed = RemoteSocket::open(&rig.path, &Options { port: Some("nowhere".into()), ..large });
    assert_eq!(kind(closed), Kind::NoSuchPort, "before a ring is made");
    let said = hostile::as_a_user(&rig, "a_reader_of_its_own");
    assert!(said.contains("open 2") && said.contains("`per_user_max`"), "{said}");
    rig.await_nothing();
    if rustix::process::getuid().is_root() {
        let open: Vec<_> = (0..4).map(|_| rig.open(&Options::default())).collect();
        let refused = RemoteSocket::open(&rig.path, &Options::default());
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("`max`")));
        assert_eq!(kind(refused), Kind::TooMany);
        drop(open);
    }
    rig.await_nothing();
    rig.stop();
}

/// The daemon makes a large ring beside other work, also while clients disconnect.
#[test]
fn large_rings_come_and_go() {
    let rig = Rig::start("large", 2000, "");
    let ring = RingConfig { block_size: 1 << 20, blocks: 8, retire_ns: 1_000_000 };
    let large = Options { ring, ..Options::default() };
    let mut socket = rig.open(&large);
    while !socket.wait(None).expect("the daemon runs") {}
    assert_eq!(rig.daemon.sockets().list()[0].ring_bytes, rig.daemon.sockets().memory());
    let gone = rig.connect();
    let open =
        br#"{"request":"open","protocol":3,"block_size":1048576,"blocks":16,"retire_ns":1000}"#;
    let sent = sendmsg(
        &gone,
        &[IoSlice::new(open)],
        &mut SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL,
    );
    assert_eq!(sent, Ok(open.len()));
    drop(gone);
    rig.open(&Options::default())
        .bind(Some("west"), protocol::IPV4)
        .expect("it answers others meanwhile");
    drop(socket);
    rig.await_nothing();
    rig.stop();
}

/// A second daemon does not get the first one's socket, and a dead daemon's file does not block a start.
#[test]
fn one_daemon_listens() {
    let rig = Rig::start("second", 100, "");
    let api = rig.directory.join("api.sock");
    assert!(matches!(Listener::bind(&api), Err(BindError::Answered { .. })));
    assert_eq!(fs::metadata(&rig.path).expect("it is there").permissions().mode() & 0o777, 0o660);
    let directory = rig.directory.clone();
    rig.stop();
    fs::create_dir_all(&directory).expect("the system has a directory for us");
    let dead = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let path = manylane_client::path_beside(&api);
    let address = SocketAddrUnix::new(&path).expect("it is short");
    rustix::net::bind(dead.expect("sockets are to be had"), &address).expect("the name is free");
    let missing = RemoteSocket::open(&path, &Options::default());
    assert!(matches!(missing, Err(RemoteError::NoDaemon { .. })));
    drop(Listener::bind(&api).expect("nobody listens"));
    assert!(!path.exists());
    fs::remove_dir_all(&directory).expect("it is ours");
}

/// Not a test: what the tests above run as a process of its own. Opens sockets until it is refused or told enough, and
/// waits until its input ends.
#[test]
#[ignore = "run by other tests"]
fn a_reader_of_its_own() {
    let path = env::var_os("MANYLANE_TEST_SOCKET").map(PathBuf::from).expect("a test says where");
    let mut open = Vec::new();
    loop {
        match RemoteSocket::open(&path, &Options::default()) {
            Ok(socket) => open.push(socket),
            Err(error) => break println!("\n{error}"),
        }
        println!("\nopen {}", open.len());
        if open.len() == 1 && std::io::stdin().lines().next().is_some() {
            break;
        }
    }
}

/// One of the tests that others run, as a process of its own.
fn child(test: &str, path: &Path) -> Command {
    let mut child = Command::new(env::current_exe().expect("we are a file"));
    child.args(["--exact", test, "--ignored", "--nocapture"]);
    child.env("MANYLANE_TEST_SOCKET", path).stdout(Stdio::piped());
    child
}

fn kind<T>(outcome: Result<T, RemoteError>) -> Kind {
    let error = outcome.err().expect("it is refused");
    error.refusal().unwrap_or_else(|| panic!("{error}")).kind
}

fn connected(path: &Path) -> OwnedFd {
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let fd = fd.expect("sockets are to be had");
    let address = SocketAddrUnix::new(path).expect("it is short");
    connect(fd.as_fd(), &address).expect("it listens");
    fd
}

/// A daemon of two workers and three ports; two of the ports receive a given number of packets a second, for the third.
struct Rig {
    daemon: Daemon,
    directory: PathBuf,
    path: PathBuf,
}

impl Rig {
    fn start(name: &str, rate: u32, more: &str) -> Rig {
        Rig::start_after(name, rate, more, |_| {})
    }

    /// Calls `before` while no thread serves the listening socket yet.
    fn start_after(name: &str, rate: u32, more: &str, before: impl FnOnce(&Listener)) -> Rig {
        let environment = Environment::of_this_thread();
        let core = environment.cores[0];
        let port = |name: &str, owner: u32, v4: &str, v6: &str, stream: &str| {
            let stream = match stream {
                "" => String::new(),
                stream => {
                    format!("[port.generate]\n{stream}\nflows = 64\npackets_per_second = {rate}\n")
                }
            };
            format!(
                "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\nworkers = [{owner}]\n\
                 addresses = [\"{v4}\", \"{v6}\"]\n{stream}"
            )
        };
        let v4 = "source = \"10.1.0.1\"\ndestination = \"10.3.0.0/16\"";
        let v6 = "source = \"2001:db8:2::1\"\ndestination = \"2001:db8:3::/48\"";
        let ports = [
            port("west", 0, "10.1.0.254/24", "2001:db8:1::fe/64", v4),
            port("east", 1, "10.2.0.254/24", "2001:db8:2::fe/64", v6),
            port("north", 0, "10.9.0.254/24", "2001:db8:9::fe/64", ""),
        ];
        let text = format!(
            "[workers]\ncores = [{core}, {core}]\n{more}{}\
             [[route]]\nprefix = \"10.3.0.0/16\"\nvia = \"10.9.0.1\"\n\
             [[route]]\nprefix = \"2001:db8:3::/48\"\nvia = \"2001:db8:9::1\"\n",
            ports.concat()
        );
        let config = Config::parse(&text, "remote.toml", &environment);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let directory = env::temp_dir().join(format!("manylane-{name}-{}", process::id()));
        let listener =
            Listener::bind(&directory.join("api.sock")).expect("nobody else has this name");
        let path = listener.path().to_owned();
        let mut daemon = Daemon::start(config).unwrap_or_else(|error| panic!("{error}"));
        before(&listener);
        daemon.listen(listener).expect("threads are to be had");
        Rig { daemon, directory, path }
    }

    fn open(&self, options: &Options) -> RemoteSocket {
        RemoteSocket::open(&self.path, options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A connection that can say anything.
    fn connect(&self) -> OwnedFd {
        connected(&self.path)
    }

    /// Until all sockets of others are closed, and workers have let go of their rings.
    fn await_nothing(&self) {
        let sockets = self.daemon.sockets();
        while !sockets.list().is_empty() || sockets.memory() > 0 {
            thread::yield_now();
        }
    }

    fn stop(self) -> Ledger {
        let ledger = self.daemon.stop();
        assert_eq!((ledger.missing, ledger.frames.missing), (0, 0), "{ledger:#?}");
        assert!(ledger.per_port.iter().all(|port| port.missing == 0), "{ledger:#?}");
        fs::remove_dir_all(&self.directory).expect("it is ours");
        ledger
    }
}
