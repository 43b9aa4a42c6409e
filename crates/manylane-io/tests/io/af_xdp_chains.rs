//! AF_XDP ports and packets larger than a frame, with the kernel at the other end. Needs root.

use crate::common;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::packet;
use crate::common::xdp::{
    Lab, OUR_MAC, OUR_V4, OUR_V6, PEER_MAC, PEER_V4, PEER_V6, parts, payload, receive, reclaim,
    set_up, wait_until,
};
use manylane_frame::vocabulary::{Checksum, PortId, WorkerId};
use manylane_frame::{Batch, Frame};
use manylane_io::bpf::{Attach, Mode};
use manylane_io::netlink::LinkEnd;
use manylane_io::poll::poll;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Receiver};
use manylane_io::port::{Fate, Receiving};

const MTU: u32 = 9000;
const ONE_WORKER: [WorkerId; 1] = [WorkerId(0)];

/// In and out, with both sizes of frames, in both modes, for both families: whole, in as few frames as
/// hold it, and a packet still when it is completed.
#[test]
fn a_jumbo_packet_is_received_and_sent_whole() {
    for (frame_size, frames, mode) in
        [(2048, 6, Mode::Native), (4096, 3, Mode::Native), (2048, 6, Mode::Generic)]
    {
        let Some(mut lab) = Lab::new(1, frame_size) else { return };
        lab.set_mtu(MTU);
        let config = AfXdpConfig { attach: Attach::Only(mode), ..AfXdpConfig::default() };
        let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
        assert_eq!((opened.facts.frames_max, &opened.facts.single_because), (18, &None));
        let (port, mut receivers, mut transmitters) = parts(opened);
        assert_eq!(transmitters[0].offload().frames_max, 18);
        receivers[0].prime(&mut lab.pool);

        for (peer, us, room) in [(PEER_V4, OUR_V4, 8972), (PEER_V6, OUR_V6, 8952)] {
            let text = pattern(room);
            let mut batch = Batch::new();
            lab.peer_sends(peer, us, &text, 1);
            receive(&mut lab, &mut receivers, &mut batch, 1);
            let frame = batch.pop().expect("one came");
            let meta = lab.region.meta(&frame);
            assert_eq!((meta.frames(), meta.packet_len()), (frames, 9014));
            assert_eq!((meta.ingress, meta.checksum), (PortId(3), Checksum::Unknown));
            assert!(lab.bytes(&frame).ends_with(&text), "{mode} {frame_size}");
            lab.pool.give_back(frame);

            let socket = lab.peer_socket(peer);
            let bytes = datagram(us, peer, &text);
            let frame = lab.packet(&bytes, frame_size as usize - 256);
            batch.push(frame).expect("it is empty");
            let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ());
            assert_eq!((sent.frames, sent.bytes), (1, 9014));
            assert_eq!(transmitters[0].in_flight(), frames);
            transmitters[0].flush();
            assert_eq!(payload(&socket), text);
            let mut entries = Vec::new();
            reclaim(&mut receivers[0], &mut lab.pool, frames, |meta| entries.push(meta.ingress));
            assert_eq!(entries, [PortId(9)], "one packet, whatever it lay in");
            receivers[0].receive(&mut lab.pool, &mut batch);
            assert!(batch.is_empty());
        }
        assert_eq!(receivers[0].losses().expect("the socket is open"), Default::default());
        assert_eq!(transmitters[0].losses(), Default::default());
        lab.close(port, receivers, transmitters);
        lab.assert_all_home();
    }
}

/// A real ping with the largest packets that the MTU has, answered in place.
#[test]
fn a_jumbo_ping_is_answered() {
    for frame_size in [2048, 4096] {
        let Some(mut lab) = Lab::new(1, frame_size) else { return };
        lab.set_mtu(MTU);
        let Some(opened) = lab.open(&ONE_WORKER, 1, AfXdpConfig::default()) else { return };
        let (port, mut receivers, mut transmitters) = parts(opened);
        receivers[0].prime(&mut lab.pool);
        for arguments in [["-4", "8972", "10.0.0.1"], ["-6", "8952", "fd00::1"]] {
            let mut ping = lab.peer.run(move || ping(arguments));
            let mut batch = Batch::new();
            while ping.try_wait().expect("it is our child").is_none() {
                let wait = Some(Duration::from_millis(100));
                poll(&[receivers[0].as_fd()], wait).expect("the socket is open");
                receivers[0].receive(&mut lab.pool, &mut batch);
                let mut answers = Batch::new();
                for mut frame in batch.drain() {
                    match answer(&lab, &mut frame) {
                        true => answers.push(frame).expect("no more than came"),
                        false => lab.pool.give_back(frame),
                    }
                }
                transmitters[0].transmit(&mut lab.pool, &mut answers, |_| ());
                assert!(answers.is_empty(), "the ring has room for all of ping's packets");
                transmitters[0].flush();
                receivers[0].reclaim(&mut lab.pool, |_| ());
            }
            let output = ping.wait_with_output().expect("it is our child");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains(" 0% packet loss"), "{text}");
        }
        lab.close(port, receivers, transmitters);
        lab.assert_all_home();
    }
}

/// In at one device, out at another, without a copy of ours.
#[test]
fn a_jumbo_packet_is_forwarded_in_its_frames() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(far) = common::host("far") else { return };
    let far_mac = [2, 0, 0, 0, 0, 4];
    common::silence(&far);
    common::connect_here(LinkEnd::new("r1"), &far, LinkEnd::new("f0").mac(far_mac));
    common::address(&far, "f0", "10.0.1.2", 24);
    lab.set_mtu(MTU);
    common::xdp::set_mtu("r1", MTU);
    far.run(|| common::xdp::set_mtu("f0", MTU));
    let socket = far.run(|| std::net::UdpSocket::bind("10.0.1.2:9000")).expect("it is there");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");

    let config = AfXdpConfig::default();
    let Some(entry) = lab.open(&ONE_WORKER, 1, config) else { return };
    let receiving = Receiving { owners: &ONE_WORKER, elsewhere: &[None] };
    let exit = AfXdp::open(&mut lab.umem, PortId(4), "r1", receiving, config);
    let (in_port, mut in_receivers, in_transmitters) = parts(entry);
    let (out_port, mut out_receivers, mut out_transmitters) = parts(exit.expect("as the first"));
    in_receivers[0].prime(&mut lab.pool);

    // The datagram carries the far host's addresses already, so that it is forwarded as it is.
    lab.peer_neighbour("10.0.0.77", far_mac);
    lab.peer_route("10.0.1.0", 24, "10.0.0.77");
    let text = pattern(8972);
    for _ in 0..50 {
        let mut batch = Batch::new();
        lab.peer_sends(PEER_V4, "10.0.1.2:9000", &text, 1);
        receive(&mut lab, &mut in_receivers, &mut batch, 1);
        assert_eq!(out_transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 1);
        out_transmitters[0].flush();
        assert_eq!(payload(&socket), text);
        let mut entries = Vec::new();
        reclaim(&mut out_receivers[0], &mut lab.pool, 6, |meta| entries.push(meta.ingress));
        assert_eq!(entries, [PortId(3)], "it came in by the other port");
    }
    lab.close(in_port, in_receivers, in_transmitters);
    lab.close(out_port, out_receivers, out_transmitters);
    lab.assert_all_home();
}

/// The kernel would swallow a packet of 19 frames, and take half of one with an empty frame for another.
#[test]
fn what_the_kernel_would_swallow_does_not_get_there() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let Some(opened) = lab.open(&ONE_WORKER, 1, AfXdpConfig::default()) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    let socket = lab.peer_socket(PEER_V4);
    let text = pattern(18 * 64 - 42);
    let bytes = datagram(OUR_V4, PEER_V4, &text);
    let mut batch = Batch::new();
    batch.push(lab.packet(&bytes, 64)).expect("one");
    let longer = [bytes.as_slice(), b"!"].concat();
    batch.push(lab.packet(&longer, 64)).expect("two");
    let headless = lab.part(b"");
    batch.push(with_parts(&mut lab, headless, &[&bytes])).expect("three");
    let gaps = lab.part(&bytes[..100]);
    let gaps = with_parts(&mut lab, gaps, &[b"", &bytes[100..101], b"", b"", &bytes[101..], b""]);
    batch.push(gaps).expect("four");

    let mut ended = Vec::new();
    let entry = |meta: &manylane_frame::Meta| ended.push((meta.ingress, meta.frames()));
    let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, entry);
    assert_eq!((sent.frames, batch.len()), (4, 0));
    assert_eq!(ended, [(PortId(9), 19), (PortId(9), 2)], "two ended here");
    assert_eq!(transmitters[0].losses().unfit, 2);
    assert_eq!(transmitters[0].in_flight(), 18 + 3);
    transmitters[0].flush();
    assert_eq!(payload(&socket), text);
    assert_eq!(payload(&socket), text);
    reclaim(&mut receivers[0], &mut lab.pool, 18 + 3, |_| ());
    assert_eq!(receivers[0].losses().expect("the socket is open").invalid, 0);
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// All frames of a packet get on the ring or none, nothing overtakes, and the slots that the kernel may
/// step back over stay free.
#[test]
fn a_full_ring_leaves_whole_packets_in_the_batch() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config = AfXdpConfig { tx_ring: 128, ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
    let (port, receivers, mut transmitters) = parts(opened);
    let mut batch = Batch::new();
    for number in 0..20 {
        let bytes = datagram(OUR_V4, PEER_V4, &[number; 600]);
        let part = if number == 19 { 1000 } else { 100 }; // Seven frames each, and one for the last.
        batch.push(lab.packet(&bytes, part)).expect("a batch holds 64");
    }
    let sent = transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ());
    assert_eq!(sent.frames, 15, "15 times 7 and 17 to spare leave no room for 7 of 128");
    assert_eq!(transmitters[0].in_flight(), 105);
    let left = batch.iter().map(|frame| lab.bytes(frame)[641]);
    assert_eq!(left.collect::<Vec<_>>(), [15, 16, 17, 18, 19], "the small one did not overtake");
    lab.pool.give_back_all(&mut batch);
    let mut fates = Vec::new();
    let closed = port.close(receivers, transmitters, &mut lab.pool, |fate, _| fates.push(fate));
    assert_eq!((closed.completed, closed.unsent), (105, 0));
    assert_eq!(fates, [Fate::Transmitted; 15]);
    lab.assert_all_home();
}

/// The kernel takes 32 frames at a time, and drops a partly taken packet when the port closes.
#[test]
fn a_packet_of_which_the_kernel_has_a_part_is_lost_whole() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let Some(opened) = lab.open(&ONE_WORKER, 1, AfXdpConfig::default()) else { return };
    let (port, receivers, mut transmitters) = parts(opened);
    let mut batch = Batch::new();
    for _ in 0..3 {
        let bytes = datagram(OUR_V4, PEER_V4, &pattern(18 * 64 - 42));
        batch.push(lab.packet(&bytes, 64)).expect("a batch holds 64");
    }
    assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 3);
    // poll(2) sends once.
    poll(&[transmitters[0].as_fd()], Some(Duration::ZERO)).expect("the socket is open");
    assert_eq!(transmitters[0].in_flight(), 3 * 18 - 32);
    set_up(false);
    let mut fates = Vec::new();
    let closed = port.close(receivers, transmitters, &mut lab.pool, |fate, meta| {
        assert_eq!(meta.ingress, PortId(9));
        fates.push(fate);
    });
    assert_eq!((closed.completed, closed.unsent, closed.uncompleted), (18, 2 * 18, 0));
    assert_eq!(fates, [Fate::Transmitted, Fate::Dropped, Fate::Dropped]);
    lab.assert_all_home();
}

/// Sizes from one byte to the MTU, round every ring, both ways, with and without chains in a batch.
#[test]
fn sizes_of_all_kinds_go_round_and_round() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    lab.set_mtu(MTU);
    let config = AfXdpConfig {
        rx_ring: 128,
        tx_ring: 128,
        fill_ring: 128,
        completion_ring: 128,
        ..AfXdpConfig::default()
    };
    let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    let socket = lab.peer_socket(PEER_V4);
    receivers[0].prime(&mut lab.pool);
    let (mut sent, mut completed, mut lent) = (0, 0, 0);
    for round in 0..60 {
        let sizes: Vec<usize> = (0..8).map(|n| 1 + (round * 8 + n) * 18_731 % 8972).collect();
        let mut batch = Batch::new();
        for &size in &sizes {
            lab.peer_sends("10.0.0.2:0", OUR_V4, &pattern(size), 1);
        }
        receive(&mut lab, &mut receivers, &mut batch, 8);
        for (frame, &size) in batch.iter().zip(&sizes) {
            let bytes = lab.bytes(frame);
            assert_eq!(lab.region.meta(frame).frames(), bytes.len().div_ceil(1792));
            assert_eq!(&bytes[42..42 + size], pattern(size), "round {round}");
        }
        lab.pool.give_back_all(&mut batch);
        receivers[0].prime(&mut lab.pool);

        for &size in &sizes {
            let bytes = datagram(OUR_V4, PEER_V4, &pattern(size));
            let frame = lab.packet(&bytes, 1792);
            lent += lab.region.meta(&frame).frames();
            batch.push(frame).expect("a batch holds 64");
        }
        while !batch.is_empty() {
            sent += transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames;
            transmitters[0].flush();
            lent -= receivers[0].reclaim(&mut lab.pool, |_| completed += 1);
        }
        for &size in &sizes {
            assert_eq!(payload(&socket), pattern(size), "round {round}");
        }
    }
    wait_until(|| {
        transmitters[0].flush();
        lent -= receivers[0].reclaim(&mut lab.pool, |_| completed += 1);
        lent == 0
    });
    assert_eq!((sent, completed), (480, 480));
    assert_eq!(receivers[0].losses().expect("the socket is open"), Default::default());
    assert_eq!(transmitters[0].losses().unfit, 0);
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// Too few buffers for a packet are none, also when some are left.
#[test]
fn a_packet_without_enough_buffers_is_counted_as_such() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    lab.set_mtu(MTU);
    let config = AfXdpConfig { fill_ring: 128, ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
    let (port, mut receivers, transmitters) = parts(opened);
    let losses = |receiver: &Receiver| receiver.losses().expect("the socket is open");
    receivers[0].prime(&mut lab.pool);
    lab.peer_sends(PEER_V4, OUR_V4, &pattern(8972), 25);
    wait_until(|| losses(&receivers[0]).no_buffer == 25 - 128 / 6);
    let mut batch = Batch::new();
    receive(&mut lab, &mut receivers, &mut batch, 128 / 6);
    lab.pool.give_back_all(&mut batch);
    assert_eq!((losses(&receivers[0]).too_large, losses(&receivers[0]).invalid), (0, 0));
    let closed = lab.close(port, receivers, transmitters);
    assert_eq!((closed.posted, closed.unread), (128, 0));
    lab.assert_all_home();
}

/// What a stack left to its device to cut is no packet, and nothing says how to cut it.
#[test]
fn generic_mode_does_not_let_uncut_packets_in() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config = AfXdpConfig { attach: Attach::Only(Mode::Generic), ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
    let (port, mut receivers, transmitters) = parts(opened);
    receivers[0].prime(&mut lab.pool);
    let socket = lab.peer_socket(PEER_V4);
    let (size, fd) = (1000, socket.as_raw_fd());
    // SAFETY: setsockopt(2) reads the 4 bytes of `size`.
    let set = unsafe {
        let value = (&raw const size).cast::<libc::c_int>();
        libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, value.cast(), 4)
    };
    assert_eq!(set, 0);
    socket.send_to(&pattern(8000), OUR_V4).expect("the neighbour is known");
    let mut batch = Batch::new();
    wait_until(|| {
        receivers[0].receive(&mut lab.pool, &mut batch);
        receivers[0].losses().expect("the socket is open").too_large == 1
    });
    lab.peer_sends("10.0.0.2:0", OUR_V4, b"ordinary", 1);
    receive(&mut lab, &mut receivers, &mut batch, 1);
    assert!(lab.bytes(&batch.as_slice()[0]).ends_with(b"ordinary"));
    lab.pool.give_back_all(&mut batch);
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// Frames of unread packets are returned like the others.
#[test]
fn unread_jumbo_packets_are_returned() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    lab.set_mtu(MTU);
    let Some(opened) = lab.open(&ONE_WORKER, 1, AfXdpConfig::default()) else { return };
    let (port, mut receivers, transmitters) = parts(opened);
    receivers[0].prime(&mut lab.pool);
    lab.peer_sends(PEER_V4, OUR_V4, &pattern(8972), 7);
    wait_until(|| receivers[0].pending() == 7 * 6);
    let closed = lab.close(port, receivers, transmitters);
    assert_eq!((closed.posted, closed.unread, closed.lost), (1024 - 42, 42, 7));
    lab.assert_all_home();
}

#[test]
fn without_multi_buffer_the_port_reports_it() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config = AfXdpConfig { multi_buffer: false, ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&ONE_WORKER, 1, config) else { return };
    assert_eq!(opened.facts.frames_max, 1);
    assert_eq!(opened.facts.single_because.as_deref(), Some("multi_buffer = false"));
    let (port, receivers, mut transmitters) = parts(opened);
    assert_eq!(transmitters[0].offload().frames_max, 1);
    let mut batch = Batch::new();
    let bytes = datagram(OUR_V4, PEER_V4, b"in two frames");
    batch.push(lab.packet(&bytes, 50)).expect("one");
    let mut ended = 0;
    transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ended += 1);
    assert_eq!((ended, transmitters[0].losses().unfit, transmitters[0].in_flight()), (1, 1, 0));
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// Bytes that tell their place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

fn datagram(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
    packet::udp((OUR_MAC, from), (PEER_MAC, to), payload)
}

fn with_parts(lab: &mut Lab, mut frame: Frame, parts: &[&[u8]]) -> Frame {
    for bytes in parts {
        let part = lab.part(bytes);
        lab.region.view().append(&mut frame, part).expect("at most 64");
    }
    frame
}

/// Sends five at once, and ends with the fifth answer. Else it waits twice its interval, however late we are to answer.
fn ping([family, size, address]: [&'static str; 3]) -> Child {
    Command::new("ping")
        .args([family, "-M", "do", "-c", "5", "-l", "5", "-i", "5", "-W", "5", "-s", size, address])
        .stdout(Stdio::piped())
        .spawn()
        .expect("iputils-ping is there")
}

/// Makes the answer of an echo request, in place; false when it is none.
fn answer(lab: &Lab, frame: &mut Frame) -> bool {
    let bytes = lab.region.bytes_mut(frame);
    let (addresses, length, icmp, request, reply) = match (bytes[12], bytes[13]) {
        (0x08, 0x00) => (26, 4, 34, 8, 0),
        (0x86, 0xdd) => (22, 16, 54, 128, 129),
        _ => return false,
    };
    if bytes[0] & 1 == 1 || bytes[icmp] != request {
        return false;
    }
    let (to, from) = bytes[..12].split_at_mut(6);
    to.swap_with_slice(from);
    let (from, to) = bytes[addresses..addresses + 2 * length].split_at_mut(length);
    from.swap_with_slice(to);
    // The sum holds the type's byte: RFC 1624, equation 3.
    let sum = u16::from_be_bytes([bytes[icmp + 2], bytes[icmp + 3]]);
    let sum = u32::from(!sum) + u32::from(!(u16::from(request) << 8)) + (u32::from(reply) << 8);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[icmp] = reply;
    bytes[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    true
}
