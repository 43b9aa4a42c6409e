//! The program that forwards, on links between hosts. Needs root.

use crate::common;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::packet::{V4, V6, address, v4, v6};
use crate::rig::*;
use manylane_accelerate::programs::{Attached, Link, NAME, attached};
use manylane_io::bpf::MuteProgram;
use manylane_io::interface::Interface;
use manylane_io::namespace::Host;
use manylane_io::netlink::{LinkEnd, Netlink, Route};
use manylane_io::poll::poll;
use manylane_io::station::Station;

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";
const INGRESS_MAC: [u8; 6] = crate::packet::OURS;
const SOURCE: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SINK: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// A host on either side of a router whose kernel forwards nothing.
struct Lab {
    source: Host,
    router: Host,
    sink: Host,
}

impl Lab {
    fn new() -> Option<Lab> {
        Lab::with_mtu(None)
    }

    fn with_mtu(mtu: Option<u32>) -> Option<Lab> {
        let [source, router, sink] = ["source", "router", "sink"].map(common::host);
        let lab = Lab { source: source?, router: router?, sink: sink? };
        [&lab.source, &lab.router, &lab.sink].into_iter().for_each(common::silence);
        let end = |name: &str, mac| LinkEnd { mtu, ..LinkEnd::new(name).mac(mac) };
        common::connect(&lab.source, end("s0", SOURCE), &lab.router, end("r0", INGRESS_MAC));
        common::connect(&lab.router, end("r1", EGRESS_MAC), &lab.sink, end("d0", SINK));
        Some(lab)
    }

    fn interface(&self, name: &'static str) -> Interface {
        self.router.run(move || Interface::read(name).expect("it was just made"))
    }

    /// The tables know both links: r0 is port 3 and r1 port 4, both ways; 198.51.100.0/24 and 2001:db8::/24 are
    /// behind r1, 192.0.2.0/24 behind r0.
    fn rig(&self) -> Option<Rig> {
        let mut rig = Rig::new()?;
        let both = ["r0", "r1"].map(|name| self.interface(name).index);
        for (port, (interface, mac)) in (3..).zip(both.into_iter().zip([INGRESS_MAC, EGRESS_MAC])) {
            rig.tables.port_of.store(interface as usize, port as u16);
            rig.port_with(port, mac, INGRESS | EGRESS | FORWARDING);
        }
        rig.record_to(1, (both[1], 4), 1500, [SINK, EGRESS_MAC]);
        rig.record_to(3, (both[0], 3), 1500, [SOURCE, INGRESS_MAC]);
        Some(rig)
    }

    fn attach(&self, rig: Rig, name: &'static str) -> (Rig, Link) {
        self.router.run(move || {
            let interface = Interface::read(name).expect("it was just made");
            let link = rig.fast.attach(&interface).expect("root may");
            (rig, link)
        })
    }
}

#[test]
fn frames_cross_the_router_with_all_that_they_carry() {
    let Some(lab) = Lab::new() else { return };
    let Some(rig) = lab.rig() else { return };
    let (mut rig, link) = lab.attach(rig, "r0");
    assert_eq!((link.interface(), link.program()), ("r0", rig.fast.program()));
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let aged = |mut frame: Vec<u8>| {
        frame[..12].copy_from_slice(&[SINK, EGRESS_MAC].concat());
        frame
    };
    let four = |ttl| V4 { ttl, ..v4(TO) };
    let six = |hop_limit| V6 { hop_limit, payload: vec![7; 1460], ..v6(TO6) };
    let counters = rig.fast.counters();
    for (sent, expected) in
        [(four(64).frame(), aged(four(63).frame())), (six(64).frame(), aged(six(63).frame()))]
    {
        let before = [3, 4].map(|port| counters.port(port));
        source.send(&sent).expect("the link is up");
        assert_eq!(receive(&sink), expected);
        let [ingress, egress] = difference(before, [3, 4].map(|port| counters.port(port)));
        let len = sent.len() as u64;
        assert_eq!((ingress[0], ingress[31], ingress.iter().sum::<u64>()), (1, len, len + 1));
        assert_eq!((egress[30], egress[29], egress.iter().sum::<u64>()), (1, len, len + 1));
    }

    // A tag without a port, then with one; of either kind.
    for (number, (tpid, ad)) in [([0x81, 0x00], 0), ([0x88, 0xa8], 1)].into_iter().enumerate() {
        let mut tagged = four(64).frame();
        tagged.splice(12..12, [tpid[0], tpid[1], 0xa0, 100]);
        let before = counters.port(3);
        source.send(&tagged).expect("the link is up");
        until(|| counters.port(3)[5] == before[5] + 1);
        rig.tables.vlan_port.store((3 * 2 + ad) * 4096 + 100, 5 + number as u16);
        rig.port(5 + number, 0);
        source.send(&tagged).expect("the link is up");
        until(|| counters.port(5 + number as u16)[25] == 1);
        rig.port(5 + number, INGRESS | FORWARDING);
        source.send(&tagged).expect("the link is up");
        assert_eq!(receive(&sink), aged(four(63).frame()), "without a tag");
        assert_eq!(counters.port(5 + number as u16)[0], 1);
    }

    drop(link);
    let at = lab.interface("r0");
    assert_eq!(lab.router.run(move || attached(&at)).expect("it is there").programs, []);
    let before = counters.port(3);
    source.send(&four(64).frame()).expect("the link is up");
    source.send(&[0xff; 60]).expect("the link is up");
    assert_eq!(counters.port(3), before, "nobody counts any more");
}

/// Headers that lie in several pieces are brought together, and what is behind them stays where it is.
#[test]
fn headers_in_several_pieces_are_brought_together() {
    let Some(lab) = Lab::with_mtu(Some(9000)) else { return };
    let Some(mut rig) = lab.rig() else { return };
    let egress = lab.interface("r1").index;
    rig.record_to(1, (egress, 4), 9000, [SINK, EGRESS_MAC]);
    let (rig, _link) = lab.attach(rig, "r0");
    let source = lab.source.run(|| Parted::open("s0"));
    let sink = lab.sink.run(|| Station::open("d0").expect("root may"));
    let four = V4 { payload: vec![7; 6000], ..v4(TO) };
    let six = V6 { payload: vec![7; 6000], ..v6(TO6) };
    for (sent, expected) in [
        (four.frame(), V4 { ttl: 63, ..four }.frame()),
        (six.frame(), V6 { hop_limit: 63, ..six }.frame()),
    ] {
        for first in [14, 33, 34, 53, 54, 60] {
            source.send(&sent, first);
            assert_eq!(receive(&sink)[12..], expected[12..], "{first} bytes first");
        }
    }
    assert_eq!(rig.fast.counters().port(3)[0], 12);
}

/// A packet socket that says how many bytes of a frame are to be in one piece (`PACKET_VNET_HDR`): of one that is
/// longer than a page, that many are.
struct Parted(std::fs::File);

impl Parted {
    fn open(interface: &str) -> Parted {
        let index = Interface::read(interface).expect("it was just made").index;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes no pointer.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        assert!(socket >= 0, "root may");
        // SAFETY: the kernel just made this descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let on: libc::c_int = 1;
        let (option, len) = (libc::PACKET_VNET_HDR, size_of_val(&on) as libc::socklen_t);
        // SAFETY: setsockopt(2) reads the integer, of the given length.
        let set = unsafe {
            let on = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, on, len)
        };
        assert_eq!(set, 0, "it is a packet socket");
        // SAFETY: all zeroes is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as i32;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: bind(2) reads the address, of the given length.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "the link is there");
        Parted(socket.into())
    }

    fn send(&self, frame: &[u8], first: u16) {
        let mut header = [0; 10]; // `struct virtio_net_hdr`.
        header[2..4].copy_from_slice(&first.to_ne_bytes());
        (&self.0).write_all(&[&header, frame].concat()).expect("the link is up");
    }
}

/// 64 KiB segments with partial checksums, in pieces of memory, both ways.
#[test]
fn a_tcp_connection_crosses_the_router() {
    let Some(lab) = Lab::new() else { return };
    let Some(rig) = lab.rig() else { return };
    let (rig, _there) = lab.attach(rig, "r0");
    let (rig, _back) = lab.attach(rig, "r1");
    let mut rig = rig;
    rig.tables.direct6.store(bucket("2a00:100::"), 3);
    for (host, name, addresses, gateway) in [
        (
            &lab.source,
            "s0",
            [("192.0.2.1", "192.0.2.9"), ("2a00:100::1", "2a00:100::9")],
            INGRESS_MAC,
        ),
        (&lab.sink, "d0", [(TO, "198.51.100.9"), (TO6, "2001:db8:2::9")], EGRESS_MAC),
    ] {
        host.run(move || {
            let mut netlink = Netlink::open().expect("netlink is always there");
            for (own, via) in addresses {
                let [own, via] = [own, via].map(address::<IpAddr>);
                let (len, all) = if own.is_ipv4() { (24, "0.0.0.0") } else { (64, "::") };
                netlink.add_address(name, own, len).expect("it has none");
                netlink.add_neighbour(name, via, gateway).expect("nobody knows it");
                netlink.add_route(&Route::via(address(all), 0, via)).expect("there is none");
            }
        });
    }
    for to in [TO, TO6] {
        let listener = lab.sink.run(move || {
            let to = SocketAddr::new(address(to), 0);
            TcpListener::bind(to).expect("the address is its own")
        });
        let to = listener.local_addr().expect("it is bound");
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("it comes whole");
            stream.write_all(&received).expect("it takes it back");
        });
        let sent: Vec<u8> = (0..4_000_000u32).map(|at| (at % 251) as u8).collect();
        let before = rig.fast.counters().port(3);
        let returned = lab.source.run({
            let sent = sent.clone();
            move || {
                let mut stream = TcpStream::connect(to).expect("it listens");
                stream.write_all(&sent).expect("it takes it");
                stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
                let mut returned = Vec::new();
                stream.read_to_end(&mut returned).expect("it comes back");
                returned
            }
        });
        echo.join().expect("it echoes");
        assert!(returned == sent, "{} of {} bytes came back", returned.len(), sent.len());
        let [after] = difference([before], [rig.fast.counters().port(3)]);
        assert!(after[31] > 4_000_000, "the kernel forwards nothing: {after:?}");
        assert!(after[31] / after[0] > 2000, "segments go as they are: {after:?}");
    }
}

/// A program that was there before runs first, and our program never sees the packets that it keeps.
#[test]
fn it_comes_last_in_the_chain() {
    let Some(lab) = Lab::new() else { return };
    let Some(rig) = lab.rig() else { return };
    let before = lab.interface("r0");
    let look = |interface: &Interface| {
        let interface = interface.clone();
        lab.router.run(move || attached(&interface)).expect("it is there")
    };
    let Attached { programs, revision } = look(&before);
    assert_eq!(programs, []);
    let mute = lab.router.run({
        let interface = before.clone();
        move || {
            let program = MuteProgram::load().expect("it loads where ours does");
            program.attach(&interface).expect("root may")
        }
    });
    let (rig, link) = lab.attach(rig, "r0");
    let after = look(&before);
    let names: Vec<_> = after.programs.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["mute", NAME]);
    assert_eq!(after.programs[1].0, rig.fast.program());
    assert_ne!(after.revision, revision);

    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let counters = rig.fast.counters();
    source.send(&v4(TO).frame()).expect("the link is up");
    drop(mute);
    source.send(&v4("203.0.113.7").frame()).expect("the link is up");
    until(|| counters.port(3)[13] == 1);
    assert_eq!(counters.port(3).iter().sum::<u64>(), 1, "the first was the other's");
    drop(link);
    assert_eq!(look(&before).programs, []);
}

#[test]
fn an_interface_that_is_gone_is_named() {
    let Some(lab) = Lab::new() else { return };
    let Some(rig) = lab.rig() else { return };
    let gone = lab.interface("r0");
    lab.router.run(|| {
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.delete_link("r0").expect("it is there");
    });
    let error = lab.router.run(move || rig.fast.attach(&gone).map(drop).expect_err("it is gone"));
    let error = error.to_string();
    assert!(error.contains("r0") && error.contains("; the interface is gone"), "{error}");
}

/// No program of ours may forward once no process answers for it (I7).
#[test]
fn it_leaves_with_a_process_that_is_killed() {
    let Some(lab) = Lab::new() else { return };
    if Rig::new().is_none() {
        return;
    }
    let at = lab.interface("r0");
    lab.router.run(move || {
        // The child lives in this thread's namespace.
        let mut child = Command::new(std::env::current_exe().expect("we run from a file"))
            .args(["--exact", "links::holds_the_program_of_r0", "--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("we can be run again");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        lines.map_while(Result::ok).find(|line| line.contains("attached")).expect("it attaches");
        assert_eq!(attached(&at).expect("it is there").programs.len(), 1);
        child.kill().expect("it is ours"); // SIGKILL
        child.wait().expect("it is ours");
        until(|| attached(&at).expect("it is there").programs.is_empty());
    });
}

#[test]
#[ignore = "the victim in it_leaves_with_a_process_that_is_killed"]
fn holds_the_program_of_r0() {
    let facts = Interface::read("r0").expect("the parent made it");
    let rig = Rig::new().expect("it loaded a moment ago");
    let _link = rig.fast.attach(&facts).expect("it is the first");
    println!("attached");
    loop {
        thread::park();
    }
}

/// While packets arrive, by two threads at a time.
#[test]
fn waiting_for_programs_to_end_returns() {
    let Some(lab) = Lab::new() else { return };
    let Some(rig) = lab.rig() else { return };
    let (rig, _link) = lab.attach(rig, "r0");
    let source = lab.source.run(|| Station::open("s0").expect("root may"));
    let (sender, done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let mut grace = rig.fast.grace();
                scope.spawn(move || (0..5).for_each(|_| grace.wait().expect("it is waited for")))
            })
            .collect();
        let traffic = scope.spawn(move || {
            let frame = v4(TO).frame();
            while done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                source.send(&frame).expect("the link is up");
            }
        });
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it ends"));
        drop(sender);
        traffic.join().expect("it ends");
    });
    assert!(rig.fast.counters().port(3)[0] > 0);
}

/// Those that were added since.
fn difference<const N: usize>(before: [[u64; 32]; N], after: [[u64; 32]; N]) -> [[u64; 32]; N] {
    std::array::from_fn(|at| std::array::from_fn(|place| after[at][place] - before[at][place]))
}

fn receive(station: &Station) -> Vec<u8> {
    let mut buffer = [0; 10_000];
    let ready = poll(&[station.as_fd()], Some(Duration::from_secs(20))).expect("one descriptor");
    assert!(ready.is_ready(0), "nothing came");
    station.receive(&mut buffer).expect("it is up").expect("it is ready").to_vec()
}

fn until(true_by_then: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !true_by_then() {
        assert!(Instant::now() < end, "it does not happen");
        thread::yield_now();
    }
}
