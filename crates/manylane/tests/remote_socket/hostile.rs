use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, thread};

use manylane_client::{Kind, Options, RemoteSocket};
use manylane_io::rights::pass_rights;
use manylane_net::filter::{Instruction, Program};
use manylane_router::socket::{Points, protocol};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{Rig, child, connected, kind};

/// A client closed its sockets and kept their memfds: 1448 MiB of the daemon's memory where 64 MiB were allowed, and 0
/// were reported. Now a closed ring whose memfd a client keeps has no pages when the daemon says that its bytes are free.
#[test]
fn a_client_that_keeps_the_memfd_of_a_closed_socket_keeps_no_memory() {
    let rig = Rig::start("memfd", 2000, "[sockets]\nmemory_max = 33554432\n");
    // Small rings are freed by the thread that serves, large ones by another.
    let small = br#"{"request":"open","protocol":3,"block_size":4096,"blocks":8,"retire_ns":1000}"#;
    let large =
        br#"{"request":"open","protocol":3,"block_size":1048576,"blocks":12,"retire_ns":1000}"#;
    let mut kept = Vec::new();
    for open in [&small[..], large, large, small] {
        let connection = rig.connect();
        say(&connection, open);
        let (answer, [ring, _bell]) = answer_with_descriptors(&connection);
        assert!(answer.contains("opened"), "{answer}");
        let ring = File::from(ring);
        assert_eq!(held(&ring), rig.daemon.sockets().memory(), "all that is open");
        drop(connection);
        rig.await_nothing();
        kept.push(ring);
    }
    assert_eq!(kept.iter().map(held).sum::<u64>(), 0, "what the daemon counts as free is free");
    rig.stop();
}

/// A user had as much of the rings' memory as all together. Now a user has a bound, which says so.
#[test]
fn a_user_has_a_share_of_the_memory() {
    let bounds = "[sockets]\nmemory_max = 33554432\nper_user_memory_max = 1048576\n";
    let rig = Rig::start("share", 100, bounds);
    let said = as_a_user(&rig, "a_reader_of_its_own");
    assert!(said.contains("open 3") && said.contains("`per_user_memory_max`"), "{said}");
    rig.await_nothing();
    rig.stop();
}

/// Sixty-four sockets with filters of 4096 instructions brought a worker from 1,000,000 packets a second to under 1000.
/// Now a user's filters have a bound, at all points together, and those of all users have one.
#[test]
fn the_sum_of_filters_is_bounded() {
    let bounds = "[sockets]\nfilter_max = 9000\nper_user_filter_max = 4500\n";
    let rig = Rig::start("filters", 100, bounds);
    let said = as_a_user(&rig, "hostile::a_costly_reader");
    assert!(said.contains("open 1\n") && !said.contains("open 2\n"), "{said}");
    assert!(said.contains("Cost") && said.contains("`per_user_filter_max`"), "{said}");
    rig.await_nothing();
    if rustix::process::getuid().is_root() {
        let options = |len| Options { filter: Some(long_filter(len)), ..Options::default() };
        let (mut one, other) = (rig.open(&options(4000)), rig.open(&options(4000)));
        assert_eq!(rig.daemon.sockets().instructions(), 8000);
        let refused = RemoteSocket::open(&rig.path, &options(1001));
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("`filter_max`")));
        assert_eq!(kind(refused), Kind::Cost);
        // What is bound to nothing costs nothing, until it is bound.
        let mut two = rig.open(&Options { protocol: protocol::NONE, ..options(1001) });
        assert_eq!(kind(two.bind(None, protocol::ALL)), Kind::Cost);
        assert_eq!(kind(one.set_points(Points::RECEIVE | Points::DROP)), Kind::Cost);
        one.set_filter(&long_filter(2000)).expect("less is always allowed");
        one.set_points(Points::RECEIVE | Points::DROP).expect("now it fits");
        assert_eq!(rig.daemon.sockets().instructions(), 8000);
        drop((one, two, other));
    }
    rig.await_nothing();
    assert_eq!(rig.daemon.sockets().instructions(), 0);
    rig.stop();
}

/// Where the bounds on filters are wide, workers' time has one: the daemon closes the costliest sockets and says why, and
/// another's socket stays.
#[test]
fn sockets_that_take_too_much_of_a_workers_time_are_closed() {
    let bounds = "[sockets]\nfilter_max = 1000000\nper_user_filter_max = 1000000\nper_user_max = 9\ntime_max = 20\n";
    let rig = Rig::start("time", 200_000, bounds);
    let mut innocent = rig.open(&Options { snap: 64, ..Options::default() });
    let said = as_a_user(&rig, "hostile::a_costly_reader_that_stays");
    // How many it gets before its time is measured is for the machine's speed to say.
    assert!(said.contains("open 1\n"), "{said}");
    assert!(said.contains("closed: Some(Cost)") && said.contains("`time_max`"), "{said}");
    // Nor does it help to open others at once.
    assert!(said.contains("refused: Some(Cost)") && !said.contains("again open"), "{said}");
    let closed = rig.daemon.sockets().closed_for_time();
    assert!((1..=8).contains(&closed), "{closed}");
    for _ in 0..10 {
        while !innocent.wait(None).expect("it is open") {}
        while innocent.receive().is_some() {}
    }
    drop(innocent);
    rig.await_nothing();
    rig.stop();
}

/// Not a test: opens sockets with the longest filters until it is refused, or has eight.
#[test]
#[ignore = "run by other tests"]
fn a_costly_reader() {
    open_costly_sockets();
}

/// Not a test: likewise, and waits until one of them is closed.
#[test]
#[ignore = "run by other tests"]
fn a_costly_reader_that_stays() {
    let mut open = open_costly_sockets();
    let begun = Instant::now();
    let error = loop {
        let briefly = Some(Duration::from_millis(1));
        if let Some(error) = open.iter_mut().find_map(|one| one.wait(briefly).err()) {
            break error;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no socket was closed");
    };
    let kind = error.refusal().map(|refusal| refusal.kind);
    println!("\nclosed: {kind:?} {error}");
    drop(open);
    match open_costly_sockets().len() {
        0 => {}
        some => println!("\nagain open: {some}"),
    }
}

fn open_costly_sockets() -> Vec<RemoteSocket> {
    let path = env::var_os("MANYLANE_TEST_SOCKET").map(PathBuf::from).expect("a test says where");
    let options = Options { filter: Some(long_filter(4096)), ..Options::default() };
    let mut open = Vec::new();
    while open.len() < 8 {
        match RemoteSocket::open(&path, &options) {
            Ok(socket) => open.push(socket),
            Err(error) => {
                let kind = error.refusal().map(|refusal| refusal.kind);
                println!("\nrefused: {kind:?} {error}");
                break;
            }
        }
        println!("\nopen {}", open.len());
    }
    open
}

/// A filter that runs through all its instructions and accepts nothing.
fn long_filter(len: usize) -> Program {
    let load = Instruction { code: 0x00, jt: 0, jf: 0, k: 0 }; // ld #0
    let reject = Instruction { code: 0x06, jt: 0, jf: 0, k: 0 }; // ret #0
    let mut filter = vec![load; len - 1];
    filter.push(reject);
    Program::new(filter).expect("it is a program")
}

/// A user who might capture might also send, as the router. Now the operator allows it, or not.
#[test]
fn nobody_sends_unless_the_configuration_says_so() {
    let rig = Rig::start("forbidden", 100, "");
    let sees = Options { protocol: 0x88b5, points: Points::TRANSMIT, ..Options::default() };
    let (sees, mut sends) = (rig.open(&sees), rig.open(&Options::default()));
    sends.bind(Some("north"), protocol::NONE).expect("there is such a port");
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let error = sends.send(&frame).expect_err("it is not allowed");
    assert!(error.to_string().contains("`send = true` in [sockets]"), "{error}");
    assert_eq!(error.refusal().map(|refusal| refusal.kind), Some(Kind::Forbidden));
    drop((sees, sends));
    let ledger = rig.stop();
    assert_eq!(ledger.created.get("injected").copied().unwrap_or(0), 0);
}

/// A process passed descriptors whose closing waits for a silent peer: the thread that serves captures hung, and with it
/// the daemon's end. Now others are served at once, and the daemon ends, while that close still waits: as one of ours does
/// that began before.
#[test]
fn a_descriptor_that_blocks_in_close_delays_nobody() {
    let (ours, our_peer) = lingering();
    let waits = thread::spawn(move || drop(ours));
    let mut kept = Vec::new();
    let rig = Rig::start_after("lingers", 100, "", |listener| {
        // As kernels before 6.16 have it: the message arrives.
        let _ = pass_rights(listener, true);
        let first = connected(listener.path());
        let (passed, peer) = lingering();
        pass(&first, br#"{"request":"ports"}"#, &passed).expect("nobody refuses it");
        // Behind a message that says nothing, by a connection that has ended.
        let second = connected(listener.path());
        let (behind, other_peer) = lingering();
        say(&second, b"");
        pass(&second, b"", &behind).expect("nobody refuses it");
        kept.extend([(Some(first), peer), (None, other_peer)]);
        drop((passed, behind)); // The daemon has not received them yet: so these are not the last.
    });
    let mut other = rig.open(&Options::default());
    for round in 0..100 {
        let port = [None, Some("west")][round % 2];
        other.bind(port, protocol::IPV4).expect("it answers others meanwhile");
    }
    drop(other);
    rig.await_nothing();
    rig.stop();
    assert!(!waits.is_finished(), "the daemon has waited as long as a close waits");
    drop((our_peer, kept)); // The peers hang up, which ends each close.
    waits.join().expect("it does not panic");
}

/// Where the kernel can (6.16), a message that brings descriptors does not even arrive.
#[test]
fn the_kernel_refuses_descriptors_to_the_daemon() {
    let rig = Rig::start("rights", 100, "");
    let connection = rig.connect();
    if pass_rights(&connection, true).is_err() {
        return println!("SKIPPED: this kernel has no SO_PASSRIGHTS");
    }
    let null = File::open("/dev/null").expect("there is one");
    let refused = pass(&connection, br#"{"request":"ports"}"#, &null);
    assert_eq!(refused, Err(Errno::PERM));
    rig.stop();
}

/// A TCP socket whose close waits, for 30 s: it has something to send, and its peer does not take it.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
    let address = listener.local_addr().expect("it is bound");
    let mut sender = TcpStream::connect(address).expect("it listens");
    let (peer, _) = listener.accept().expect("it has connected");
    sender.set_nonblocking(true).expect("it is a socket");
    while sender.write(&[0; 65_536]).is_ok() {}
    set_socket_linger(&sender, Some(Duration::from_secs(30))).expect("it is a socket");
    (sender, peer)
}

/// Says something and passes a descriptor with it.
fn pass(connection: &OwnedFd, bytes: &[u8], what: &impl AsFd) -> Result<usize, Errno> {
    let rights = [what.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
    sendmsg(connection, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// What one of our programs says that runs as another user than root, or as ourselves if we are not.
pub(super) fn as_a_user(rig: &Rig, test: &str) -> String {
    fs::set_permissions(&rig.path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let mut user = child(test, &rig.path);
    if rustix::process::getuid().is_root() {
        user.uid(65_534);
    }
    let output = user.stdin(Stdio::null()).output().expect("we can run ourselves");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that a file has in memory.
fn held(file: &File) -> u64 {
    file.metadata().expect("it is open").blocks() * 512
}

fn say(connection: &OwnedFd, bytes: &[u8]) {
    let mut none = SendAncillaryBuffer::default();
    let sent = sendmsg(connection, &[IoSlice::new(bytes)], &mut none, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// The answer to `open`, and what it brings.
fn answer_with_descriptors(connection: &OwnedFd) -> (String, [OwnedFd; 2]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut answer = vec![0; 4096];
    let mut parts = [IoSliceMut::new(&mut answer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(connection, &mut parts, &mut control, flags).expect("it answers");
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let rights: Vec<OwnedFd> = rights.flatten().collect();
    answer.truncate(received.bytes);
    let answer = String::from_utf8(answer).expect("it is text");
    let rights = rights.try_into().unwrap_or_else(|_| panic!("no two descriptors: {answer}"));
    (answer, rights)
}
