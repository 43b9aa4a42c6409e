//! AF_PACKET ports on veth, with the kernel or another such port at the other end. Needs root.
//!
//! Each test's thread is the router, in an anonymous namespace; its peers are hosts with sockets.

mod lab;

use crate::common;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::packet;
use crate::common::wire::{self, End};
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, SegmentKind, Segments};
use manylane_frame::{Batch, Depot, Frame, Pool, RESERVE, Region, RegionConfig};
use manylane_io::namespace::{Host, Namespace};
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::poll::poll;
use manylane_io::port::af_packet::{
    AfPacket, AfPacketConfig, Closed, OpenError, Opened, Receiver, Transmitter,
};
use manylane_io::port::{self, Losses};

use lab::*;

const FRAMES: u32 = 8192;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Between two packets of a sender that continues.
const PAUSE: Duration = Duration::from_micros(50);
const OUR_V4: &str = "10.0.0.1:7000";
const PEER_V4: &str = "10.0.0.2:9000";
const ALL_HOME: Closed = Closed { posted: 64 * 33, unread: 0 };

#[test]
fn what_a_peer_sends_arrives_with_what_the_kernel_knows() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    assert_eq!((opened.facts.mac, opened.facts.mtu), (OUR_MAC, 1500));
    assert_eq!(opened.facts.driver, "veth");
    let Opened { port, mut receivers, transmitters, .. } = opened;
    lab.peer_sends(b"four", 1);
    let batch = &mut lab.receive(&mut receivers, 1);
    let frame = &batch.as_slice()[0];
    let bytes = lab.region.bytes(frame);
    assert!(bytes.ends_with(b"four"), "{bytes:x?}");
    assert_eq!(bytes[..12], [OUR_MAC, PEER_MAC].concat());
    let meta = lab.region.meta(frame);
    assert_eq!((meta.ingress, meta.queue, meta.head()), (PortId(3), QueueId(0), 256));
    // The transport header is behind 14 bytes of Ethernet's and 20 of IPv4's.
    assert_eq!(meta.checksum, Checksum::Partial { start: 256 + 34, offset: 6 });
    assert_eq!(meta.segments, Segments::NONE);
    lab.pool.give_back_all(batch);
    assert_eq!(receivers[0].losses(), Losses::default());
    assert_eq!(receivers[0].posted(), ALL_HOME.posted - 1);
    assert_eq!(port.close(receivers, transmitters, &mut lab.pool).unread, 0);
    lab.assert_all_home();
}

/// Forty datagrams that the peer leaves to its device to cut come as one packet, and leave as one.
#[test]
fn segments_stay_whole_both_ways() {
    for frame_size in [2048, 4096] {
        let Some(mut lab) = Lab::new(frame_size) else { return };
        let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
        let Opened { port, mut receivers, mut transmitters, .. } = opened;
        let datagrams: Vec<u8> = (0..40 * 1400u32).map(|place| (place / 1400) as u8).collect();
        lab.peer_sends_segments(&datagrams, 1400);
        let mut batch = lab.receive(&mut receivers, 1);
        let frame = &mut batch.as_mut_slice()[0];
        let (view, meta) = (lab.region.view(), lab.region.meta(frame));
        assert_eq!(meta.packet_len(), 42 + datagrams.len());
        assert_eq!(meta.segments, Segments { kind: SegmentKind::Udp, ecn: false, size: 1400 });
        assert_eq!(meta.checksum, Checksum::Partial { start: 290, offset: 6 });
        assert!(frame.is_chained());
        let mut bytes = vec![0; 65_536];
        let count = view.copy_to(frame, 42, &mut bytes);
        assert_eq!(bytes[..count], datagrams);

        // Back to where it came from: addresses and ports change places, so no sum changes.
        let bytes = view.bytes_mut(frame);
        let swap = |bytes: &mut [u8], at: usize, len: usize| {
            bytes[at..at + 2 * len].rotate_left(len);
        };
        swap(bytes, 0, 6);
        swap(bytes, 26, 4);
        swap(bytes, 34, 2);
        let socket = lab.peer_socket(PEER_V4);
        let mut entries = Vec::new();
        let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, |entry| entries.push(entry));
        assert_eq!((sent.frames, sent.bytes as usize), (1, 42 + datagrams.len()));
        assert_eq!(entries, [PortId(3)]);
        for number in 0..40 {
            assert_eq!(payload(&socket), [number; 1400]);
        }
        port.close(receivers, transmitters, &mut lab.pool);
        lab.assert_all_home();
    }
}

/// A port at either end of the wire, and the kernel between, which looks at what it carries: a whole TCP
/// segment with CWR, over both families, in as many frames as it likes.
#[test]
fn marks_and_bytes_come_out_as_they_went_in() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    let (far, mut far_exit) = lab.far_port();
    for (kind, header) in [(SegmentKind::Tcp4, 20), (SegmentKind::Tcp6, 40)] {
        let bytes = packet::tcp((PEER_MAC, OUR_MAC), kind == SegmentKind::Tcp6, 60_000);
        for parts in [36, 40, 64] {
            let mut frame = lab.chain(&bytes, parts);
            let checksum = Checksum::Partial { start: 300 + 14 + header, offset: 16 };
            let segments = Segments { kind, ecn: true, size: 1448 };
            let marks = lab.region.meta_mut(&mut frame);
            (marks.checksum, marks.segments) = (checksum, segments);
            let mut batch = Batch::new();
            batch.push(frame).expect("it is empty");
            far_exit[0].transmit(&mut lab.pool, &mut batch, |_| ());
            assert_eq!(far_exit[0].losses(), Default::default());

            let mut batch = lab.receive(&mut receivers, 1);
            let frame = &batch.as_slice()[0];
            let meta = lab.region.meta(frame);
            assert_eq!(meta.segments, segments);
            let start = 256 + 14 + header;
            assert_eq!(meta.checksum, Checksum::Partial { start, offset: 16 });
            assert_eq!(meta.frames(), 1 + (bytes.len() - 1792).div_ceil(2048));
            assert_eq!(lab.bytes(frame), bytes);
            lab.pool.give_back_all(&mut batch);
        }
    }
    port.close(receivers, transmitters, &mut lab.pool);
    lab.close_far(far, far_exit);
    lab.assert_all_home();
}

/// Kernels at both ends, their default offloads, and two ports as a wire between them.
#[test]
fn tcp_passes_in_whole_segments() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(other) = common::host("other") else { return };
    common::silence(&other);
    common::connect_here(LinkEnd::new("r1"), &other, LinkEnd::new("o0"));
    common::address(&other, "o0", "10.0.0.3", 24);
    let Some(one) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let config = AfPacketConfig::default();
    let two = AfPacket::open(&lab.region, PortId(4), "r1", 1, 1, config).expect("as the first");

    let (one_port, one) = end(one);
    let (two_port, two) = end(two);
    let server = other.run(|| TcpListener::bind("10.0.0.3:5000")).expect("it is free");
    let peer = Arc::new(lab.peer);
    let client = peer.clone();
    let transfer = wire::tcp(
        server,
        move || client.run(|| TcpStream::connect("10.0.0.3:5000")).expect("it listens"),
        8 << 20,
    );
    let mut ends = [one, two];
    let [there, back] = wire::carry(&mut ends, &mut lab.pool, || transfer.is_finished());
    transfer.join().expect("every byte came");
    assert!(there.largest > 30_000 && there.segmented > 0, "{there:?}");
    assert!(there.packets < (8 << 20) / 1448, "{there:?}: fewer than there are segments");
    assert!(back.packets > 0, "{back:?}");
    let [one, two] = ends;
    close(one_port, one, &mut lab.pool);
    close(two_port, two, &mut lab.pool);
    all_home(&mut lab.pool);
}

/// The router's own stack has the address and a socket, and hears nothing as long as the port is open.
#[test]
fn the_hosts_own_stack_hears_nothing_until_the_port_closes() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let address = "10.0.0.1".parse().expect("it is one");
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.add_address("r0", address, 24).expect("it has none yet");
    let socket = UdpSocket::bind(OUR_V4).expect("the address is there");
    socket.set_nonblocking(true).expect("any socket can");
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    // What becomes of a packet is decided by the time the next one is here.
    lab.peer_sends(b"to the port", 2);
    let mut batch = lab.receive(&mut receivers, 2);
    lab.pool.give_back_all(&mut batch);
    let heard = socket.recv(&mut [0; 64]).expect_err("the stack is muted");
    assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock);
    port.close(receivers, transmitters, &mut lab.pool);

    lab.peer_sends(b"to the stack", 1);
    socket.set_nonblocking(false).expect("any socket can");
    assert_eq!(payload(&socket), b"to the stack");
}

/// The kernel removes the outer tag before any socket sees the packet; a second tag stays in the bytes.
#[test]
fn tags_are_put_back_where_they_were() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    let (far, mut far_exit) = lab.far_port();
    let plain = lab.datagram(&[7; 100]);
    let (dot1q, dot1ad) = ([0x81, 0, 0xe0, 42], [0x88, 0xa8, 0x10, 99]);
    for tags in [vec![dot1q], vec![dot1ad], vec![dot1ad, dot1q], vec![[0x81, 0, 0, 0]]] {
        let bytes = [&plain[..12], &tags.concat(), &plain[12..]].concat();
        let mut batch = Batch::new();
        batch.push(lab.chain(&bytes, 1)).expect("it is empty");
        far_exit[0].transmit(&mut lab.pool, &mut batch, |_| ());
        let mut batch = lab.receive(&mut receivers, 1);
        assert_eq!(lab.bytes(&batch.as_slice()[0]), bytes);
        lab.pool.give_back_all(&mut batch);
    }
    port.close(receivers, transmitters, &mut lab.pool);
    lab.close_far(far, far_exit);
    lab.assert_all_home();
}

/// A packet that can never leave must not keep those behind it.
#[test]
fn refused_packets_are_dropped_and_the_rest_is_sent() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let Opened { port, receivers, mut transmitters, .. } = opened;
    let socket = lab.peer_socket(PEER_V4);
    let mut batch = Batch::new();
    for number in 0..64u8 {
        let len = if number % 8 == 3 { 2000 } else { 1 };
        let bytes = packet::udp(
            (OUR_MAC, OUR_V4.parse().expect("an address")),
            (PEER_MAC, PEER_V4.parse().expect("an address")),
            &vec![number; len],
        );
        batch.push(lab.chain(&bytes, 2)).expect("a batch holds 64");
    }
    // Marks that point out of the packet.
    let wrong = Checksum::Partial { start: 2000, offset: 6 };
    lab.region.meta_mut(&mut batch.as_mut_slice()[20]).checksum = wrong;
    let mut completed = 0;
    let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, |_| completed += 1);
    assert_eq!((sent.frames, completed), (64, 64));
    assert_eq!(transmitters[0].losses().dropped, 9);
    for number in (0..64).filter(|number| number % 8 != 3 && *number != 20) {
        assert_eq!(payload(&socket), [number]);
    }
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// Past the queueing discipline no code segments what the device cannot, so segments are not offered; checksums are
/// completed nevertheless.
#[test]
fn a_bypass_takes_all_but_segments() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let config = AfPacketConfig { bypass: true, ..AfPacketConfig::default() };
    let Some(opened) = lab.open(1, 1, config) else { return };
    let Opened { port, receivers, mut transmitters, .. } = opened;
    let offload = transmitters[0].offload();
    assert_eq!((offload.frames_max, offload.checksum, offload.segments), (64, true, false));
    let (far, far_exit) = lab.far_port();
    let (far_port, mut far_receivers) = far;
    let bytes = packet::tcp((OUR_MAC, PEER_MAC), false, 1400);
    let mut frame = lab.chain(&bytes, 3);
    let checksum = Checksum::Partial { start: 300 + 34, offset: 16 };
    lab.region.meta_mut(&mut frame).checksum = checksum;
    let mut batch = Batch::new();
    batch.push(frame).expect("it is empty");
    assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 1);
    assert_eq!(transmitters[0].losses(), Default::default());
    let mut batch = lab.receive(&mut far_receivers, 1);
    let frame = &batch.as_slice()[0];
    assert_eq!(lab.bytes(frame), bytes);
    let checksum = Checksum::Partial { start: 256 + 34, offset: 16 };
    assert_eq!(lab.region.meta(frame).checksum, checksum);
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.close_far((far_port, far_receivers), far_exit);
    lab.assert_all_home();
}

#[test]
fn while_the_device_is_down_packets_stay_with_the_caller() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 2, AfPacketConfig::default()) else { return };
    let Opened { port, mut receivers, mut transmitters, .. } = opened;
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.set_down("r0").expect("root may");
    let bytes = lab.datagram(b"later");
    let mut batch = Batch::new();
    (0..3).for_each(|_| batch.push(lab.chain(&bytes, 1)).expect("it is empty"));
    assert_eq!(transmitters[1].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 0);
    assert_eq!(batch.len(), 3);
    assert_eq!(transmitters[1].losses().refused, 1);
    let mut nothing = Batch::new();
    assert_eq!(receivers[0].receive(&mut lab.pool, &mut nothing), 0, "said once, then nothing");

    netlink.set_up("r0").expect("root may");
    let socket = lab.peer_socket(PEER_V4);
    let peer_hears = |bytes: &[u8]| assert_eq!(payload(&socket), bytes);
    let bytes = packet::udp(
        (OUR_MAC, OUR_V4.parse().expect("an address")),
        (PEER_MAC, PEER_V4.parse().expect("an address")),
        b"now",
    );
    lab.pool.give_back_all(&mut batch);
    batch.push(lab.chain(&bytes, 1)).expect("it is empty");
    wait_until(|| transmitters[1].transmit(&mut lab.pool, &mut batch, |_| ()).frames == 1);
    peer_hears(b"now");
    lab.peer_sends(b"and back", 1);
    let mut batch = lab.receive(&mut receivers, 1);
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// A flow stays in its queue, no packet arrives twice, and all queues get some.
#[test]
fn several_queues_share_by_flow() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let config = AfPacketConfig { packet_max: 1518, ..AfPacketConfig::default() };
    let Some(opened) = lab.open(3, 1, config) else { return };
    let Opened { port, mut receivers, mut transmitters, .. } = opened;
    let mut homes = std::collections::HashMap::new();
    for round in 0..4u8 {
        lab.peer.run(move || {
            for flow in 0..16 {
                let socket = UdpSocket::bind(("10.0.0.2", 9000 + flow)).expect("it is free");
                socket.send_to(&[round], OUR_V4).expect("the neighbour is known");
            }
        });
        let mut batch = lab.receive(&mut receivers, 16);
        for frame in batch.iter() {
            let flow = lab.region.bytes(frame)[34..36].to_vec();
            let queue = lab.region.meta(frame).queue;
            assert_eq!(*homes.entry(flow).or_insert(queue), queue, "a flow has moved");
            assert_eq!(lab.region.bytes(frame)[42], round);
        }
        lab.pool.give_back_all(&mut batch);
    }
    let mut queues: Vec<_> = homes.values().collect();
    queues.sort_unstable();
    queues.dedup();
    assert_eq!((homes.len(), queues.len()), (16, 3));

    // What we send is not received again.
    let bytes = lab.datagram(b"out");
    let mut batch = Batch::new();
    (0..20).for_each(|_| batch.push(lab.chain(&bytes, 1)).expect("a batch holds 64"));
    assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 20);
    lab.peer_sends(b"in", 1);
    let mut batch = lab.receive(&mut receivers, 1);
    lab.pool.give_back_all(&mut batch);
    assert_eq!(port.close(receivers, transmitters, &mut lab.pool).unread, 0);
    lab.assert_all_home();
}

/// Packets lost to a slow worker, and those lost for lack of frames, have different names.
#[test]
fn losses_have_the_right_name() {
    let Some(mut lab) = Lab::with_frames(2048, 8 + RESERVE as u32) else { return };
    let config =
        AfPacketConfig { packet_max: 1518, receive_buffer: 40_000, ..AfPacketConfig::default() };
    let Some(opened) = lab.open(1, 1, config) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    lab.peer_sends(b"nobody reads", 200);
    wait_until(|| receivers[0].losses().ring_full > 0);
    let mut batch = lab.receive(&mut receivers, 8);
    let slow = receivers[0].losses();
    assert_eq!(slow.no_buffer, 0);
    let mut more = Batch::new();
    assert_eq!(receivers[0].receive(&mut lab.pool, &mut more), 0, "there is no frame");
    lab.peer_sends(b"no frames", 200);
    wait_until(|| receivers[0].losses().no_buffer > 0);
    assert_eq!(receivers[0].losses().ring_full, slow.ring_full);

    // All that was not lost is still there, and every packet is accounted for.
    lab.pool.give_back_all(&mut batch);
    let mut received = 8;
    while receivers[0].receive(&mut lab.pool, &mut batch) > 0 {
        received += batch.len() as u64;
        lab.pool.give_back_all(&mut batch);
    }
    let Losses { ring_full, no_buffer, too_large, invalid } = receivers[0].losses();
    assert_eq!(received + ring_full + no_buffer, 400);
    assert_eq!((too_large, invalid), (0, 0));
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// Posted frames receive packets even when the pool has none to replace them.
#[test]
fn a_dry_pool_keeps_no_packet_from_frames_that_lie_ready() {
    let Some(mut lab) = Lab::with_frames(2048, 64 + RESERVE as u32) else { return };
    let config = AfPacketConfig { packet_max: 1518, ..AfPacketConfig::default() };
    let Some(opened) = lab.open(1, 1, config) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    let mut batch = Batch::new();
    for sum in [10, 40, 64] {
        lab.peer_sends(b"?", sum - batch.len());
        while batch.len() < sum {
            let fds = [receivers[0].as_fd()];
            assert!(poll(&fds, Some(Duration::from_secs(5))).expect("it is open").any());
            let came = receivers[0].receive(&mut lab.pool, &mut batch);
            assert!(came > 0, "{} frames lie ready", receivers[0].posted());
        }
        assert_eq!((batch.len(), receivers[0].posted()), (sum, 64 - sum));
    }
    assert_eq!(receivers[0].losses(), Losses::default());
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

#[test]
fn a_packet_larger_than_provided_for_is_counted_and_costs_no_frame() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let config = AfPacketConfig { packet_max: 9018, ..AfPacketConfig::default() };
    assert_eq!(config.frames_posted(2048), 64 * 5);
    let Some(opened) = lab.open(1, 1, config) else { return };
    let Opened { port, mut receivers, transmitters, .. } = opened;
    lab.peer_sends_segments(&[1; 14_000], 1400);
    lab.peer_sends(b"small", 1);
    let mut batch = lab.receive(&mut receivers, 1);
    assert_eq!(receivers[0].losses(), Losses { too_large: 1, ..Losses::default() });
    lab.pool.give_back_all(&mut batch);
    port.close(receivers, transmitters, &mut lab.pool);
    lab.assert_all_home();
}

/// Unread packets are lost, and counted; the interface can be opened again at once.
#[test]
fn a_closed_port_gives_every_frame_back() {
    let Some(mut lab) = Lab::new(2048) else { return };
    for round in 0..5 {
        let Some(opened) = lab.open(1, 2, AfPacketConfig::default()) else { return };
        let Opened { port, mut receivers, transmitters, .. } = opened;
        let mut batch = Batch::new();
        receivers[0].receive(&mut lab.pool, &mut batch);
        lab.peer_sends(b"unread", 1);
        let fds = [receivers[0].as_fd()];
        assert!(poll(&fds, Some(Duration::from_secs(5))).expect("it is open").any());
        let closed = port.close(receivers, transmitters, &mut lab.pool);
        assert_eq!(closed, Closed { unread: 1, ..ALL_HOME }, "round {round}");
        lab.assert_all_home();
    }
}

/// What arrives while a port closes is lost with a counter, or the stack's.
#[test]
fn a_packet_that_no_closing_socket_has_is_the_stacks() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let address = "10.0.0.1".parse().expect("it is one");
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.add_address("r0", address, 24).expect("it has none yet");
    let socket = UdpSocket::bind(OUR_V4).expect("the address is there");
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).expect("root may");
    for round in 0..5 {
        let Some(opened) = lab.open(2, 1, AfPacketConfig::default()) else { return };
        let Opened { port, receivers, transmitters, .. } = opened;
        let (stop, stopped) = mpsc::channel::<()>();
        let (sent, closed) = thread::scope(|scope| {
            let peer = &lab.peer;
            let sender = scope.spawn(|| {
                peer.run(move || {
                    let socket = UdpSocket::bind("10.0.0.2:0").expect("the address is the peer's");
                    let send = || socket.send_to(b"on and on", OUR_V4).expect("we know it");
                    let mut sent = 0;
                    // A thousand a second or more: fewer than a socket has room for, in the time of five closings.
                    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(PAUSE) {
                        send();
                        sent += 1;
                    }
                    sent
                })
            });
            let fds: Vec<_> = receivers.iter().map(|receiver| receiver.as_fd()).collect();
            assert!(poll(&fds, None).expect("they are open").any());
            let closed = port.close(receivers, transmitters, &mut lab.pool);
            // The stack receives by now.
            socket.peek(&mut [0; 64]).expect("the address is there");
            drop(stop);
            (sender.join().expect("it does not panic"), closed)
        });
        assert!(closed.unread > 0);
        for _ in closed.unread..sent {
            assert_eq!(payload(&socket), b"on and on", "round {round}: {closed:?} of {sent}");
        }
        socket.set_nonblocking(true).expect("any socket can");
        assert!(socket.recv(&mut [0; 64]).is_err(), "round {round}: {closed:?} of {sent}");
        socket.set_nonblocking(false).expect("any socket can");
        lab.assert_all_home();
    }
}

#[test]
fn a_port_that_cannot_work_is_refused_with_the_fix() {
    let Some(mut lab) = Lab::new(2048) else { return };
    let Some(opened) = lab.open(1, 1, AfPacketConfig::default()) else { return };
    let Opened { port, receivers, transmitters, .. } = opened;
    port.close(receivers, transmitters, &mut lab.pool);
    let open = |name: &str, packet_max| {
        let config = AfPacketConfig { packet_max, ..AfPacketConfig::default() };
        AfPacket::open(&lab.region, PortId(3), name, 1, 1, config).err().expect("it is refused")
    };
    let small = open("r0", 1517);
    assert!(matches!(small, OpenError::PacketMax { packet_max: 1517, least: 1518, .. }), "{small}");
    assert!(small.to_string().starts_with("r0: packet_max = 1517: take 1518 "), "{small}");
    let large = open("r0", 100_000);
    assert!(large.to_string().ends_with(" to 65597"), "{large}");
    let gone = open("eth7", 65_607).to_string();
    assert!(
        gone.starts_with("interface eth7 does not exist; existing interfaces: lo, r0"),
        "{gone}"
    );
}

#[test]
fn the_parts_can_go_to_threads() {
    fn goes<T: Send>() {}
    goes::<Receiver>();
    goes::<Transmitter>();
    goes::<AfPacket>();
}
