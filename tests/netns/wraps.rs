//! Captures, copies and faults, with kernels at the far ends: packets out of a file reach a host, copies
//! are what tcpdump reads, and TCP is right through every injected fault.

use crate::scenario;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::scenario::Scenario;
use manylane_api::{FaultStatus, PortStatus, Source};
use manylane_io::netlink::Netlink;
use manylane_lab::scenario::{Running, all_answered, assert_balanced, has, lab, spawn_in};
use manylane_lab::{
    CLIENT_V6, Host, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer,
};
use manylane_router::control::Daemon;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// The router's address in the capture.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Datagrams of one frame and of many, some to be cut into fragments for their exit: a host puts them
/// together again, and has each once and in order.
#[test]
fn packets_out_of_a_capture_reach_a_host() {
    const PACKETS: u16 = 13;
    let place = Place::new("replay");
    for (wan, mtu) in [("af_packet", 1500), ("af_xdp", 1500), ("af_packet", 9000), ("af_xdp", 9000)]
    {
        let Some(lab) = lab(LabOptions::default()) else { return };
        for (host, link) in [(&lab.server, "eth0"), (&lab.router, "wan")] {
            let set = host.run(move || Netlink::open()?.set_mtu(link, mtu));
            set.expect("a veth takes 9000");
        }
        let bind = |host: &Host| host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)));
        let socket = bind(&lab.server).expect("the port is free");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it is not zero");
        // The kernel counts more memory than bytes for large packets: by default, a slow reader may lose one.
        setsockopt(&socket, RcvBufForce, &(4 << 20)).expect("root may");

        let len = |number| match number {
            6 => 60_000,
            _ => [18, 1400, 3000, 8900][usize::from(number) % 4],
        };
        let capture = place.file("in.pcap");
        let packets = (0..PACKETS).map(|number| datagram(number, len(number)));
        fs::write(&capture, pcap(packets)).expect("the folder is ours");
        let more = format!(
            "[[port]]\nname = \"file\"\ndriver = \"pcap\"\naddresses = [\"10.7.0.254/24\"]\n\
             mac = \"02:00:00:00:00:07\"\nread = {capture:?}\ntiming = \"original\"\n\
             [neighbour]\nhold_per_entry = 4096\nhold_per_worker = 4096\n"
        );
        let options = RouterOptions { drivers: ["af_packet", wan], more, ..Default::default() };
        let config = scenario::config(&lab, &options).unwrap_or_else(|error| panic!("{error}"));
        let daemon = lab.router.run(move || Daemon::start(config));
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let mut bytes = [0; 65_536];
        for number in 0..PACKETS {
            let (received, from) =
                socket.recv_from(&mut bytes).unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(from, (SENDER, PORT).into());
            let intact = bytes[..received] == payload(number, len(number));
            assert!(intact, "{wan}, MTU {mtu}: datagram {number} is of {received} bytes");
        }
        let ledger = lab.router.run(move || daemon.stop());
        assert_balanced(&ledger);
        let file = ledger.per_port.iter().find(|port| port.port == "file").expect("it is there");
        assert_eq!(file.received, u64::from(PACKETS), "{file:?}");
    }
}

/// Drops, duplicates, delays and changes of order, both ways, by either driver: TCP repairs them, every
/// packet and frame is accounted for, and they were counted.
#[test]
fn a_transfer_through_faults_arrives_undamaged_and_all_is_accounted_for() {
    for drivers in [["af_xdp"; 2], ["af_packet", "af_xdp"], ["af_packet"; 2]] {
        let fault = "drop = 0.01\nduplicate = 0.02\ndelay = 0.05\ndelay_us = [100, 2000]\n\
                     reorder = 0.05\nreorder_us = 2000\n";
        let more = format!(
            "[port.fault.receive]\nseed = 1\n{fault}[port.fault.transmit]\nseed = 2\n{fault}"
        );
        let options = RouterOptions { drivers, more, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        for (from, to, destination) in [(client, server, SERVER_V4), (server, client, CLIENT_V6)] {
            let report = tcp_transfer(from, to, destination, 4 << 20)
                .unwrap_or_else(|error| panic!("{drivers:?} {destination}: {error}"));
            assert!(report.is_intact(), "{drivers:?} {destination}: {report:?}");
            println!("{drivers:?} {destination}: 4 MiB each way in {:?}", report.elapsed);
        }
        let source = scenario.source();
        let ledger = scenario.finish();
        let [lan, wan] = ports(&*source);
        assert_eq!(lan.faults, None);
        let faults = wan.faults.expect("the file says so");
        println!("{drivers:?}: {faults:?}");
        let FaultStatus { dropped, duplicated, delayed, reordered, corrupted, .. } = faults;
        for count in [dropped, duplicated, delayed, reordered] {
            assert!(count > 0, "{drivers:?}: {faults:?}");
        }
        assert_eq!(corrupted, 0);
        assert!(wan.lost_transmit > 0 && wan.lost_transmit <= dropped, "{wan:?}");
        assert_balanced(&ledger);
    }
}

/// Nothing else comes that would end a worker's sleep.
#[test]
fn a_late_packet_leaves_in_its_time_while_the_worker_sleeps() {
    const DELAY: Duration = Duration::from_millis(30);
    for driver in ["af_xdp", "af_packet"] {
        let delay = format!("delay = 1\ndelay_us = [{}]\n", DELAY.as_micros());
        let more = format!("[port.fault.receive]\n{delay}[port.fault.transmit]\n{delay}");
        let options = RouterOptions { drivers: [driver; 2], more, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        for destination in [SERVER_V4, SERVER_V6] {
            let begin = Instant::now();
            all_answered(&scenario.lab.client, destination, 56);
            let elapsed = begin.elapsed();
            assert!(elapsed >= 6 * DELAY, "{driver}: three round trips took {elapsed:?}");
        }
        let source = scenario.source();
        scenario.finish();
        let [_, wan] = ports(&*source);
        assert!(wan.faults.expect("the file says so").delayed >= 12, "{wan:?}");
    }
}

/// What is on the wire is in the file: each ping four times, as tcpdump reads it.
#[test]
fn copies_are_what_tcpdump_reads() {
    if !has("tcpdump") {
        return;
    }
    let place = Place::new("tee");
    for (driver, direction) in [("af_xdp", "both"), ("af_packet", "both"), ("af_packet", "receive")]
    {
        let capture = place.file("wan.pcapng");
        let more = format!("[port.tee]\nwrite = {capture:?}\ndirection = {direction:?}\n");
        let options = RouterOptions { drivers: [driver; 2], more, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        for size in [56, 1400] {
            all_answered(&scenario.lab.client, SERVER_V4, size);
            all_answered(&scenario.lab.client, SERVER_V6, size);
        }
        let report = tcp_transfer(&scenario.lab.client, &scenario.lab.server, SERVER_V4, 1 << 20);
        assert!(report.unwrap_or_else(|error| panic!("{error}")).is_intact());
        let source = scenario.source();
        scenario.finish();
        let [_, wan] = ports(&*source);
        let copies = wan.copies.expect("the file says so");
        let both = if direction == "both" { 1 } else { 0 };
        let passed = wan.received + both * wan.transmitted;
        assert_eq!(copies.copied, passed, "{driver} {direction}: {wan:?}");

        let read = |filter: &str| {
            let mut tcpdump = Command::new("tcpdump");
            let output =
                tcpdump.arg("-nr").arg(&capture).arg(filter).output().expect("it is there");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).lines().count() as u64
        };
        assert_eq!(read(""), passed);
        for (protocol, kinds) in [("icmp", [8, 0]), ("icmp6", [128, 129])] {
            let [requests, replies] = kinds.map(|kind| read(&format!("{protocol}[0] == {kind}")));
            assert_eq!((requests, replies), (6 * both, 6), "{driver} {direction}: {protocol}");
        }
        assert!(read("tcp") > 10);
    }
}

/// A capture that comes to an end, as on a full disk, stops no forwarding, and is easy to see. Here
/// the file is a pipe whose reader is gone.
#[test]
fn a_capture_that_cannot_be_written_is_said_and_forwarding_goes_on() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let place = Place::new("full");
    let pipe = place.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "a pipe can be made");
    let reader = pipe.clone();
    let reader = thread::spawn(move || {
        let mut begin = [0; 4];
        let mut pipe = fs::File::open(reader)?;
        pipe.read_exact(&mut begin)?;
        Ok::<_, std::io::Error>((pipe, begin))
    });
    let more = format!("[port.tee]\nwrite = {pipe:?}\n");
    let options = RouterOptions { more, ..Default::default() };
    let running = Running::start(&lab, MANYLANE, &options);
    let (pipe, begin) = reader.join().expect("it does not panic").expect("a pipe can be read");
    assert_eq!(begin, [0x0a, 0x0d, 0x0d, 0x0a], "the file begins before the first packet");
    drop(pipe);
    for _ in 0..3 {
        all_answered(&lab.client, SERVER_V4, 1400);
    }
    // The log and `show ports` count alike. What waits in a sleeping worker's buffer comes with its next packet.
    let client = running.client();
    let wan = (0..100).map(|_| {
        all_answered(&lab.client, SERVER_V6, 56);
        let ports: Vec<PortStatus> = client.ask("/v1/ports").expect("it answers");
        ports[1].clone()
    });
    let counted = |wan: &PortStatus| {
        let copies = wan.copies.expect("the file says so");
        (copies.copied, copies.copied + copies.refused == wan.received + wan.transmitted)
    };
    let (copied, _) = wan.map(|wan| counted(&wan)).find(|&(_, all)| all).expect("each is counted");
    let (status, said) = running.terminate();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(said.matches("pipe: cannot write after ").count(), 2, "at once, and last: {said}");
    assert!(said.contains("; forwarding continues without the capture\n"), "{said}");
    assert!(said.contains(&format!("cannot write after {copied} packets:")), "{copied}: {said}");
}

#[test]
fn a_disk_that_is_full_already_is_told_at_the_start() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let place = Place::new("full-already");
    let options =
        RouterOptions { more: "[port.tee]\nwrite = \"/dev/full\"\n".into(), ..Default::default() };
    let file = place.file("router.toml");
    fs::write(&file, options.text()).expect("the folder is ours");
    let mut command = Command::new(MANYLANE);
    command.arg("run").arg(&file).arg("--socket").arg(place.file("api.sock"));
    command.stderr(Stdio::piped());
    let output = spawn_in(&lab.router, command).wait_with_output().expect("it is our child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "error: port `wan`: /dev/full: cannot write after 0 packets: No space left on device";
    assert!(said.starts_with(why), "{said}");
}

/// The ports of the usual lab, as they are shown.
fn ports(source: &dyn Source) -> [PortStatus; 2] {
    source.ports().try_into().expect("there are two")
}

/// The sender of the datagrams, by and to port [`PORT`].
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const PORT: u16 = 4711;

fn payload(number: u16, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u16 ^ number) as u8).collect()
}

/// A datagram to the server, as it comes to the router.
fn datagram(number: u16, len: usize) -> Vec<u8> {
    let IpAddr::V4(server) = SERVER_V4 else { unreachable!("its name says so") };
    let mut udp = [PORT, PORT, 8 + len as u16, 0].map(u16::to_be_bytes).concat();
    udp.extend(payload(number, len)); // IPv4 lets UDP go without a checksum.
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp.len() as u16).to_be_bytes());
    ip.extend(number.to_be_bytes());
    ip.extend([0, 0, 64, 17, 0, 0]);
    ip.extend(SENDER.octets());
    ip.extend(server.octets());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC[..], &[2, 0, 0, 0, 0, 1], &[0x08, 0x00], &ip, &udp].concat()
}

/// A capture of packets a millisecond apart.
fn pcap(packets: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let header = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 262_144, 1u32];
    let mut file = header.map(u32::to_le_bytes).concat();
    for (number, packet) in (0..).zip(packets) {
        let len = packet.len() as u32;
        file.extend([1, 1000 * number, len, len].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    file
}

/// A folder of its own, gone when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("manylane-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("there is a folder for such files");
        Place(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.0).join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // The folder may be gone.
    }
}
