//! TAP ports, with the kernel at the other end. Needs root.
//!
//! Each test's thread is the host behind the TAP, in an anonymous namespace.

use crate::common;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::packet;
use crate::common::wire::{self, End};
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, SegmentKind, Segments, WorkerId};
use manylane_frame::{Batch, Depot, Frame, Pool, RESERVE, Region, RegionConfig};
use manylane_io::interface::Interface;
use manylane_io::namespace::Namespace;
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::poll::poll;
use manylane_io::port::af_packet::{AfPacket, AfPacketConfig};
use manylane_io::port::tap::{OpenError, Opened, Receiver, Tap, TapConfig, Transmitter};
use manylane_io::port::{self, Losses, Receiving};

const FRAMES: u32 = 4096;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST_V4: &str = "10.0.0.1:7000";
const OUR_V4: &str = "10.0.0.2:9000";

#[test]
fn what_the_host_sends_arrives_with_what_it_knows() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1) else { return };
    assert_eq!((opened.facts.mac, opened.facts.mtu, opened.facts.created), (OUR_MAC, 1500, true));
    assert_eq!(opened.facts.host_mac, Interface::read("t0").expect("it was made").mac);
    let Opened { port, facts, mut receivers, transmitters } = opened;
    host_socket().send_to(b"four", OUR_V4).expect("the neighbour is known");
    let mut batch = lab.receive(&mut receivers, 1);
    let frame = &batch.as_slice()[0];
    let bytes = lab.region.bytes(frame);
    assert!(bytes.ends_with(b"four"), "{bytes:x?}");
    assert_eq!(bytes[..12], [OUR_MAC, facts.host_mac].concat());
    let meta = lab.region.meta(frame);
    assert_eq!((meta.ingress, meta.queue, meta.head()), (PortId(3), QueueId(0), 256));
    assert_eq!(meta.checksum, Checksum::Partial { start: 256 + 34, offset: 6 });
    assert_eq!(meta.segments, Segments::NONE);
    lab.pool.give_back_all(&mut batch);
    assert_eq!(receivers[0].losses(), Losses::default());
    assert!(receivers[0].posted() >= 32, "32 follow the first");
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
    assert!(Interface::read("t0").is_err(), "it has gone with the port");
}

#[test]
fn segments_stay_whole_both_ways() {
    for frame_size in [2048, 4096] {
        let Some(mut lab) = Lab::new(frame_size) else { return };
        let Some(opened) = lab.open(1, 2) else { return };
        let Opened { port, mut receivers, mut transmitters, .. } = opened;
        let socket = host_socket();
        let datagrams: Vec<u8> = (0..40 * 1400u32).map(|place| (place / 1400) as u8).collect();
        send_segments(&socket, &datagrams, 1400);
        let mut batch = lab.receive(&mut receivers, 1);
        let frame = &mut batch.as_mut_slice()[0];
        let (view, meta) = (lab.region.view(), lab.region.meta(frame));
        assert_eq!(meta.packet_len(), 42 + datagrams.len());
        assert_eq!(meta.segments, Segments { kind: SegmentKind::Udp, ecn: false, size: 1400 });
        assert_eq!(meta.checksum, Checksum::Partial { start: 290, offset: 6 });
        let mut bytes = vec![0; 65_536];
        let count = view.copy_to(frame, 42, &mut bytes);
        assert_eq!(bytes[..count], datagrams);

        // Back to where it came from: addresses and ports change places, so no sum changes.
        let bytes = view.bytes_mut(frame);
        for (at, len) in [(0, 6), (26, 4), (34, 2)] {
            bytes[at..at + 2 * len].rotate_left(len);
        }
        let mut entries = Vec::new();
        let sent = transmitters[1].transmit(&mut lab.pool, &mut batch, |entry| entries.push(entry));
        assert_eq!((sent.frames, sent.bytes as usize), (1, 42 + datagrams.len()));
        assert_eq!(entries, [PortId(3)]);
        for number in 0..40 {
            assert_eq!(payload(&socket), [number; 1400]);
        }
        port.close(receivers, transmitters, &mut lab.pool);
        lab.assert_all_home();
    }
}

/// Kernels at both ends, their default offloads, and two ports of different drivers as a wire; by both
/// families.
#[test]
fn tcp_passes_in_whole_segments() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(far) = common::host("far").map(Arc::new) else { return };
    common::silence(&far);
    common::skip_duplicate_detection(&far);
    manylane_io::sysctl::set("net/ipv6/conf/default/accept_dad", "0").expect("as root");
    common::connect_here(LinkEnd::new("r0"), &far, LinkEnd::new("f0").mac(OUR_MAC));
    common::address(&far, "f0", "10.0.0.2", 24);
    common::address(&far, "f0", "fd00::2", 64);
    let Some(opened) = lab.open(1, 1) else { return };
    manylane_io::sysctl::set("net/ipv6/conf/t0/disable_ipv6", "0").expect("as root");
    let host_v6 = "fd00::1".parse().expect("an address");
    Netlink::open().and_then(|mut nl| nl.add_address("t0", host_v6, 64)).expect("it has none");
    let Opened { port: tap, receivers, mut transmitters, .. } = opened;
    let transmitter = transmitters.pop().expect("one worker, one transmitter");
    let one = End {
        receivers: receivers.into_iter().map(|r| port::Receiver::Tap(Box::new(r))).collect(),
        transmitter: port::Transmitter::Tap(Box::new(transmitter)),
    };
    let config = AfPacketConfig::default();
    let opened = AfPacket::open(&lab.region, PortId(4), "r0", 1, 1, config).expect("as root");
    let (wire_port, receivers, mut transmitters) =
        (opened.port, opened.receivers, opened.transmitters);
    let transmitter = transmitters.pop().expect("one worker, one transmitter");
    let two = End {
        receivers: receivers.into_iter().map(|r| port::Receiver::AfPacket(Box::new(r))).collect(),
        transmitter: port::Transmitter::AfPacket(Box::new(transmitter)),
    };
    let mut ends = [one, two];
    for (from_host, to) in [
        (true, "10.0.0.2:5000"),
        (true, "[fd00::2]:5000"),
        (false, "10.0.0.1:5000"),
        (false, "[fd00::1]:5000"),
    ] {
        let bind = move || TcpListener::bind(to).expect("it is free");
        let connect = move || TcpStream::connect(to).expect("it listens");
        let transfer = if from_host {
            let server = far.run(bind);
            let host = Namespace::of_this_thread().expect("root may");
            let client = move || {
                host.enter().expect("root may");
                connect()
            };
            wire::tcp(server, client, 8 << 20)
        } else {
            let far = far.clone();
            wire::tcp(bind(), move || far.run(connect), 8 << 20)
        };
        let seen = wire::carry(&mut ends, &mut lab.pool, || transfer.is_finished());
        transfer.join().expect("every byte came");
        let there = seen[usize::from(!from_host)];
        assert!(there.largest > 30_000 && there.segmented > 0, "{there:?}");
        assert!(there.packets < (8 << 20) / 1448, "{to}: {there:?}: fewer than there are segments");
    }
    let [one, two] = ends;
    drop((one.transmitter, two.transmitter));
    let taps = one.receivers.into_iter().map(|receiver| match receiver {
        port::Receiver::Tap(receiver) => *receiver,
        _ => unreachable!("it was made here"),
    });
    tap.close(taps.collect(), Vec::new(), &mut lab.pool);
    let sockets = two.receivers.into_iter().map(|receiver| match receiver {
        port::Receiver::AfPacket(receiver) => *receiver,
        _ => unreachable!("it was made here"),
    });
    wire_port.close(sockets.collect(), Vec::new(), &mut lab.pool);
    lab.assert_all_home();
}

/// The kernel would move a flow to the queue by which its answer was written.
#[test]
fn a_flow_stays_in_its_queue_whichever_worker_answers() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(3, 3) else { return };
    let Opened { port, facts, mut receivers, mut transmitters } = opened;
    let sockets: Vec<_> = (0..16)
        .map(|flow| UdpSocket::bind(("10.0.0.1", 7000 + flow)).expect("it is free"))
        .collect();
    let mut homes = std::collections::HashMap::new();
    for _ in 0..4 {
        for socket in &sockets {
            socket.send_to(b"?", OUR_V4).expect("the neighbour is known");
        }
        let mut batch = lab.receive(&mut receivers, sockets.len());
        for frame in batch.iter() {
            let flow = lab.region.bytes(frame)[34..36].to_vec();
            let queue = lab.region.meta(frame).queue;
            assert_eq!(*homes.entry(flow).or_insert(queue), queue, "a flow has moved");
        }
        lab.pool.give_back_all(&mut batch);
        for (place, socket) in sockets.iter().enumerate() {
            let to = socket.local_addr().expect("it is bound");
            let mut batch = lab.datagram(facts.host_mac, &to.to_string(), b"!");
            let exits = transmitters.len();
            transmitters[place % exits].transmit(&mut lab.pool, &mut batch, |_| ());
            assert_eq!(payload(socket), b"!");
        }
    }
    let mut queues: Vec<_> = homes.values().collect();
    queues.sort_unstable();
    queues.dedup();
    assert_eq!((homes.len(), queues.len()), (16, 3));
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// By that number the host forwards it, too. Worker 0 owns queue 1, worker 1 queues 0 and 2, worker 2 none.
#[test]
fn the_host_records_by_which_queue_a_worker_wrote() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let owners = [WorkerId(1), WorkerId(0), WorkerId(1)];
    let receiving = Receiving { owners: &owners, elsewhere: &[None; 3] };
    let Some(opened) = lab.open_receiving(receiving, TapConfig::default()) else { return };
    let Opened { port, facts, receivers, mut transmitters } = opened;
    let socket = host_socket();
    tell_the_queue(&socket);
    for (transmitter, queue) in transmitters.iter_mut().zip([1, 0, 2]) {
        assert_eq!(transmitter.queue(), QueueId(queue));
        let mut batch = lab.datagram(facts.host_mac, HOST_V4, &[0; 16]);
        transmitter.transmit(&mut lab.pool, &mut batch, |_| ());
        assert_eq!(payload(&socket).len(), usize::from(queue) + 1, "recorded is one more");
    }
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// Cuts each datagram off after as many bytes as its `queue_mapping` says (socket(7), linux/filter.h).
fn tell_the_queue(socket: &UdpSocket) {
    let instruction = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let queue = (libc::SKF_AD_OFF + libc::SKF_AD_QUEUE) as u32;
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, queue),
        instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, UDP_HEADER),
        instruction(libc::BPF_RET | BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: setsockopt(2) reads the program and the instructions that it points at, which outlive the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

const UDP_HEADER: u32 = 8;
/// linux/filter.h: what is returned is the accumulator.
const BPF_A: u32 = 0x10;

#[test]
fn losses_have_the_right_name() {
    let Some(mut lab) = Lab::with_frames(2048, 33 + RESERVE as u32) else { return };
    let Some(opened) = lab.open(1, 1) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    let socket = host_socket();
    let send = |count| (0..count).for_each(|_| drop(socket.send_to(b"?", OUR_V4)));
    // The interface has as many places as its `txqueuelen`: 500 or 1000.
    send(2000);
    let slow = receivers[0].losses();
    assert!(slow.ring_full >= 1000 && slow.no_buffer == 0, "{slow:?}");
    let mut batch = Batch::new();
    assert_eq!(receivers[0].receive(&mut lab.pool, &mut batch), 1, "a packet needs 33 at hand");
    assert_eq!(receivers[0].receive(&mut lab.pool, &mut batch), 0, "there is none");
    send(11);
    let dry = receivers[0].losses();
    assert_eq!(dry.ring_full, slow.ring_full);
    assert!(dry.no_buffer >= 10, "{dry:?}: one had a place, at most");
    lab.pool.give_back_all(&mut batch);
    let mut received = 1;
    while receivers[0].receive(&mut lab.pool, &mut batch) > 0 {
        received += batch.len() as u64;
        lab.pool.give_back_all(&mut batch);
    }
    assert_eq!(received + dry.ring_full + dry.no_buffer, 2011);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// A read truncates silently: the largest packet must not look truncated.
#[test]
fn the_largest_packet_arrives_and_a_larger_one_is_counted() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let config = TapConfig { packet_max: 1792, ..TapConfig::default() }; // A frame's room.
    let Some(opened) = lab.open_with(1, 1, config) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    let socket = host_socket();
    Netlink::open().and_then(|mut netlink| netlink.set_mtu("t0", 9000)).expect("root may");
    for payload in [1750, 4000, 1750] {
        socket.send_to(&vec![7; payload], OUR_V4).expect("the neighbour is known");
    }
    let mut batch = lab.receive(&mut receivers, 2);
    for frame in batch.iter() {
        assert_eq!(lab.region.meta(frame).packet_len(), 1792);
    }
    assert_eq!(receivers[0].losses(), Losses { too_large: 1, ..Losses::default() });
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

#[test]
fn what_the_host_refuses_is_dropped_and_what_it_cannot_take_now_stays() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1) else { return };
    let Opened { port, facts, receivers, mut transmitters } = opened;
    let socket = host_socket();
    let mut batch = Batch::new();
    for number in 0..8u8 {
        let mut one = lab.datagram(facts.host_mac, HOST_V4, &[number]);
        batch.push(one.pop().expect("there is one")).expect("a batch holds 64");
    }
    let wrong = Checksum::Partial { start: 2000, offset: 6 }; // Out of the packet.
    lab.region.meta_mut(&mut batch.as_mut_slice()[3]).checksum = wrong;
    let mut completed = 0;
    let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, |_| completed += 1);
    assert_eq!((sent.frames, completed, transmitters[0].losses().dropped), (8, 8, 1));
    for number in (0..8).filter(|number| *number != 3) {
        assert_eq!(payload(&socket), [number]);
    }

    Netlink::open().and_then(|mut netlink| netlink.set_down("t0")).expect("root may");
    let mut batch = lab.datagram(facts.host_mac, HOST_V4, b"later");
    assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 0);
    assert_eq!((batch.len(), transmitters[0].losses().refused), (1, 1));
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// An interface made by another program stays unchanged, and stays when the port closes.
#[test]
fn an_existing_interface_is_attached_to() {
    for kind in [&["mode", "tap"][..], &["mode", "tap", "multi_queue"]] {
        let Some(mut lab) = Lab::new(2048) else { return };
        let made = Command::new("ip").args(["tuntap", "add", "dev", "t0"]).args(kind).status();
        assert!(made.expect("iproute2 is there").success());
        for _ in 0..2 {
            let Some(opened) = lab.open(1, 1) else { return };
            assert!(!opened.facts.created);
            let Opened { port, receivers, transmitters, .. } = opened;
            let busy = lab.try_open("t0", 1, TapConfig::default());
            match kind.len() {
                2 => assert!(matches!(busy, Err(OpenError::Busy { .. }))),
                _ => drop(busy.expect("another queue")), // The receiver primed nothing, so it has no frames.
            }
            port.close(receivers, transmitters, &mut lab.pool);
            lab.assert_all_home();
        }
        let host = Interface::read("t0").expect("it is not ours to remove");
        let config = TapConfig { mac: Some(host.mac), ..TapConfig::default() };
        let same = lab.try_open("t0", 1, config).err().expect("it would be both ends'");
        assert!(matches!(same, OpenError::SameMac { .. }), "{same}");
    }
}

#[test]
fn a_port_that_cannot_work_is_refused_with_the_fix() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1) else { return };
    let error = |name: &str, queues, config: TapConfig| {
        lab.try_open(name, queues, config).err().expect("it is refused")
    };
    let config = TapConfig::default();
    let lo = error("lo", 1, config);
    assert!(matches!(lo, OpenError::NotTap { .. }), "{lo}");
    assert!(lo.to_string().ends_with("choose another driver, or an unused name"), "{lo}");
    let two = error("t0", 2, config);
    assert!(matches!(two, OpenError::OtherQueues { queues: 2, .. }), "{two}");
    assert!(two.to_string().contains("`ip tuntap add dev t0 mode tap multi_queue`"), "{two}");
    let long = error("a-name-of-sixteen", 1, config);
    assert!(matches!(long, OpenError::Name { .. }), "{long}");
    assert!(long.to_string().contains("`a-name-of-sixteen`: an interface's name has 1 to 15"));
    let small = error("t1", 1, TapConfig { packet_max: 1517, ..config });
    assert!(matches!(small, OpenError::PacketMax { least: 1518, .. }), "{small}");
    assert!(small.to_string().starts_with("t1: packet_max = 1517: take 1518 "), "{small}");
    let group = error("t1", 1, TapConfig { mac: Some([1, 0, 0, 0, 0, 1]), ..config });
    assert!(matches!(group, OpenError::NoStation { .. }), "{group}");
    assert!(
        group.to_string().starts_with("t1: `mac` is 01:00:00:00:00:01, a group address"),
        "{group}"
    );
    assert!(Interface::read("t1").is_err(), "nothing is left behind");
    let Opened { port, receivers, transmitters, .. } = opened;
    port.close(receivers, transmitters, &mut lab.pool);
}

#[test]
fn the_parts_can_go_to_threads() {
    fn goes<T: Send>() {}
    goes::<Receiver>();
    goes::<Transmitter>();
    goes::<Tap>();
}

/// A host (this thread) without IPv6's own chatter; a region and its pool.
struct Lab {
    region: Region,
    pool: Pool,
    frames: u32,
}

impl Lab {
    /// `None` (and a line that says why) when we may not.
    fn new(frame_size: u32) -> Option<Lab> {
        Lab::with_frames(frame_size, FRAMES)
    }

    fn with_frames(frame_size: u32, frames: u32) -> Option<Lab> {
        Namespace::new_for_this_thread().map_err(common::skip).ok()?;
        manylane_io::sysctl::set("net/ipv6/conf/default/disable_ipv6", "1").expect("as root");
        let region = Region::new(RegionConfig { frames, frame_size });
        let region = region.expect("16 MiB can be mapped");
        let depot = Depot::new(region.clone(), 4).expect("the first taker");
        let pool = depot.pool_of(frames);
        Some(Lab { region, pool, frames })
    }

    /// Opens `t0` as port 3, and gives the host an address; `None` (and a line that says why)
    /// without TAP.
    fn open(&mut self, queues: u16, workers: usize) -> Option<Opened> {
        self.open_with(queues, workers, TapConfig::default())
    }

    fn open_with(&mut self, queues: u16, workers: usize, config: TapConfig) -> Option<Opened> {
        let owners: Vec<_> = (0..queues).map(|queue| WorkerId(queue % workers as u16)).collect();
        self.open_receiving(Receiving { owners: &owners, elsewhere: &vec![None; workers] }, config)
    }

    fn open_receiving(&mut self, receiving: Receiving<'_>, config: TapConfig) -> Option<Opened> {
        let config = TapConfig { mac: Some(OUR_MAC), ..config };
        match Tap::open(&self.region, PortId(3), "t0", receiving, config) {
            Ok(opened) => {
                let mut netlink = Netlink::open().expect("netlink is always there");
                let [host, ours] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("one"));
                let _ = netlink.add_address("t0", host, 24); // The interface may have it.
                netlink.add_neighbour("t0", ours, OUR_MAC).expect("root may");
                Some(opened)
            }
            Err(error) if error.is_unavailable() => {
                common::skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn try_open(&self, name: &str, queues: u16, config: TapConfig) -> Result<Opened, OpenError> {
        let owners = vec![WorkerId(0); queues.into()];
        let receiving = Receiving { owners: &owners, elsewhere: &[None] };
        Tap::open(&self.region, PortId(5), name, receiving, config)
    }

    /// Receives until `count` packets are there, no more.
    fn receive(&mut self, receivers: &mut [Receiver], count: usize) -> Batch {
        let mut batch = Batch::new();
        while batch.len() < count {
            let fds: Vec<_> = receivers.iter().map(|receiver| receiver.as_fd()).collect();
            let ready = poll(&fds, Some(Duration::from_secs(5))).expect("the queues are open");
            assert!(ready.any(), "{} of {count} came", batch.len());
            for receiver in receivers.iter_mut() {
                receiver.receive(&mut self.pool, &mut batch);
            }
        }
        assert_eq!(batch.len(), count);
        batch
    }

    /// A datagram of ours to the host, alone.
    fn datagram(&mut self, host_mac: [u8; 6], to: &str, payload: &[u8]) -> Batch {
        let [from, to] = [OUR_V4, to].map(|text| text.parse::<SocketAddr>().expect("one"));
        let bytes = packet::udp((OUR_MAC, from), (host_mac, to), payload);
        let mut frame: Frame = self.pool.take().expect("there are plenty");
        self.region.set_window(&mut frame, 256, 256 + bytes.len() as u16);
        self.region.set_ingress(&mut frame, PortId(9), QueueId(0), Checksum::Valid);
        self.region.bytes_mut(&mut frame).copy_from_slice(&bytes);
        let mut batch = Batch::new();
        batch.push(frame).expect("it is empty");
        batch
    }

    /// Every frame is free again: the conservation of frames (I2).
    fn assert_all_home(&mut self) {
        let frames: Vec<_> = std::iter::from_fn(|| self.pool.take()).collect();
        let count = frames.len();
        frames.into_iter().for_each(|frame| self.pool.give_back(frame));
        assert_eq!(count, self.frames as usize);
    }
}

fn host_socket() -> UdpSocket {
    UdpSocket::bind(HOST_V4).expect("the address is the host's")
}

/// Sends `payload` as datagrams of `size` bytes that the device is to cut (udp(7), `UDP_SEGMENT`).
fn send_segments(socket: &UdpSocket, payload: &[u8], size: i32) {
    // SAFETY: setsockopt(2) reads the 4 bytes of `size`.
    let set = unsafe {
        let value = (&raw const size).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
    };
    assert_eq!(set, 0);
    socket.send_to(payload, OUR_V4).expect("the neighbour is known");
}

fn payload(socket: &UdpSocket) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
    let mut bytes = [0; 2048];
    let (length, _) = socket.recv_from(&mut bytes).expect("a datagram comes");
    bytes[..length].to_vec()
}
