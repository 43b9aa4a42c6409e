//! AF_XDP ports on veth, with the kernel at the other end. Needs root.
//!
//! Each test's thread is the router, in an anonymous namespace; its peers are hosts with sockets.

use crate::common;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::xdp::{
    Lab, OUR_MAC, OUR_V4, OUR_V6, PEER_MAC, PEER_V4, PEER_V6, parts, payload, receive, reclaim,
    set_up, wait_until,
};
use manylane_frame::Batch;
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_io::bpf::{Attach, Mode, XskProgram};
use manylane_io::netlink::LinkEnd;
use manylane_io::port::af_xdp::{
    AfXdp, AfXdpConfig, Closed, OpenError, Receiver, Transmitter, Umem,
};
use manylane_io::port::{Fate, Receiving};

#[test]
fn what_a_peer_sends_arrives_with_its_facts() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, AfXdpConfig::default()) else { return };
    assert_eq!(opened.facts.driver, "veth");
    assert_eq!((opened.facts.mode, opened.facts.zero_copy), (Mode::Native, false));
    assert_eq!((opened.facts.mac, opened.facts.mtu, opened.facts.queues), (OUR_MAC, 1500, 1));
    let (port, mut receivers, transmitters) = parts(opened);
    let mut batch = Batch::new();
    receivers[0].receive(&mut lab.pool, &mut batch); // Posts the first frames.
    assert_eq!(receivers[0].posted(), 1024);

    for (from, to, text) in [(PEER_V4, OUR_V4, "four"), (PEER_V6, OUR_V6, "six")] {
        lab.peer_sends(from, to, text.as_bytes(), 1);
        receive(&mut lab, &mut receivers, &mut batch, 1);
        let frame = batch.iter().next().expect("one came");
        let bytes = lab.region.bytes(frame);
        assert!(bytes.ends_with(text.as_bytes()), "{bytes:x?}");
        assert_eq!(bytes[..12], [OUR_MAC, PEER_MAC].concat());
        let meta = lab.region.meta(frame);
        assert_eq!((meta.ingress, meta.queue), (PortId(3), QueueId(0)));
        assert_eq!(meta.checksum, Checksum::Unknown, "a veth's peer leaves checksums undone");
        lab.pool.give_back_all(&mut batch);
    }
    assert_eq!(receivers[0].losses().expect("the socket is open"), Default::default());
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

#[test]
fn what_we_send_arrives_at_the_peer() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, AfXdpConfig::default()) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    for (from, to) in [(OUR_V4, PEER_V4), (OUR_V6, PEER_V6)] {
        let socket = lab.peer_socket(to);
        let mut batch = lab.datagrams(from, to, 64);
        assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 64);
        transmitters[0].flush();
        assert_eq!(transmitters[0].in_flight(), 0, "two kicks of 32 each");
        for number in 0..64u8 {
            assert_eq!(payload(&socket), [number]);
        }
        let mut entries = Vec::new();
        reclaim(&mut receivers[0], &mut lab.pool, 64, |meta| entries.push(meta.ingress));
        assert_eq!(entries, [PortId(9); 64], "the hook sees where each frame came from");
    }
    assert_eq!(transmitters[0].losses(), Default::default());
    let closed = lab.close(port, receivers, transmitters);
    assert_eq!((closed.completed, closed.unsent, closed.unread), (0, 0, 0));
    lab.assert_all_home();
}

/// In at one device, out at another, without a copy of ours: both sockets have the same memory.
#[test]
fn one_region_serves_two_devices() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(far) = common::host("far") else { return };
    let far_mac = [2, 0, 0, 0, 0, 4];
    common::silence(&far);
    common::connect_here(LinkEnd::new("r1"), &far, LinkEnd::new("f0").mac(far_mac));
    common::address(&far, "f0", "10.0.1.2", 24);
    let socket = far.run(|| UdpSocket::bind("10.0.1.2:9000")).expect("the address is there");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");

    let one_worker = [WorkerId(0)];
    let Some(entry) = lab.open(&one_worker, 1, AfXdpConfig::default()) else { return };
    let config = AfXdpConfig::default();
    let receiving = Receiving { owners: &one_worker, elsewhere: &[None] };
    let exit = AfXdp::open(&mut lab.umem, PortId(4), "r1", receiving, config);
    let (in_port, mut in_receivers, in_transmitters) = parts(entry);
    let (out_port, mut out_receivers, mut out_transmitters) = parts(exit.expect("as the first"));
    let mut batch = Batch::new();
    in_receivers[0].receive(&mut lab.pool, &mut batch);

    // The datagram carries the far host's addresses already, so that it is forwarded as it is.
    lab.peer_neighbour("10.0.0.77", far_mac);
    lab.peer_route("10.0.1.0", 24, "10.0.0.77");
    lab.peer_sends(PEER_V4, "10.0.1.2:9000", b"through", 1);
    receive(&mut lab, &mut in_receivers, &mut batch, 1);
    assert_eq!(out_transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 1);
    out_transmitters[0].flush();
    assert_eq!(payload(&socket), b"through");
    let mut entries = Vec::new();
    reclaim(&mut out_receivers[0], &mut lab.pool, 1, |meta| entries.push(meta.ingress));
    assert_eq!(entries, [PortId(3)], "it came in by the other port");

    // The first to register may go first: the second lives on.
    lab.close(in_port, in_receivers, in_transmitters);
    let mut batch = lab.datagrams_to(far_mac, "10.0.1.1:7000", "10.0.1.2:9000", 1);
    out_transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ());
    out_transmitters[0].flush();
    assert_eq!(payload(&socket), [0]);
    lab.close(out_port, out_receivers, out_transmitters);
    lab.assert_all_home();
}

#[test]
fn workers_without_a_queue_send_by_sockets_of_their_own() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(opened) = lab.open(&[WorkerId(1)], 3, AfXdpConfig::default()) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    assert_eq!(transmitters.len(), 3);
    let socket = lab.peer_socket(PEER_V6);
    for transmitter in &mut transmitters {
        assert_eq!(transmitter.completion_queue(), QueueId(0));
        let mut batch = lab.datagrams(OUR_V6, PEER_V6, 50);
        assert_eq!(transmitter.transmit(&mut lab.pool, &mut batch, |_| ()).frames, 50);
        transmitter.flush();
        for number in 0..50u8 {
            assert_eq!(payload(&socket), [number]);
        }
    }
    reclaim(&mut receivers[0], &mut lab.pool, 150, |_| ());
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// A device empties its queues in no order: what was sent by one has left when it is back. Where all send by one,
/// when it has been taken.
#[test]
fn by_several_queues_packets_have_left_when_they_are_back() {
    for (queues, workers) in [(1, 2), (2, 3)] {
        let Some(mut lab) = Lab::new(queues, 2048) else { return };
        let owners = vec![WorkerId(0); queues as usize];
        let Some(opened) = lab.open(&owners, workers, AfXdpConfig::default()) else { return };
        let (port, mut receivers, mut transmitters) = parts(opened);
        let exits: Vec<_> = transmitters.iter().map(|exit| exit.queue().0).collect();
        assert_eq!(exits, [0, (queues - 1) as u16, 0][..workers]);
        for transmitter in &mut transmitters {
            transmitter.set_drain_mark();
            assert!(transmitter.has_drained(), "it has sent nothing");
            let mut batch = lab.datagrams(OUR_V6, PEER_V6, 2);
            transmitter.transmit(&mut lab.pool, &mut batch, |_| ());
            transmitter.set_drain_mark();
            assert!(!transmitter.has_drained(), "the kernel has not been told");
            transmitter.flush();
            assert_eq!(transmitter.has_drained(), queues == 1);
        }
        for receiver in &mut receivers {
            let sent = exits.iter().filter(|&&queue| queue == receiver.queue().0).count();
            reclaim(receiver, &mut lab.pool, 2 * sent, |_| ());
        }
        assert!(transmitters.iter_mut().all(Transmitter::has_drained));
        lab.close(port, receivers, transmitters);
        lab.assert_all_home();
    }
}

/// Worker 0 receives by all queues, worker 1 elsewhere by the third, worker 2 by none.
#[test]
fn workers_without_a_queue_send_by_the_queue_that_matches() {
    let Some(mut lab) = Lab::new(4, 2048) else { return };
    let elsewhere = [None, Some(QueueId(2)), None];
    let receiving = Receiving { owners: &[WorkerId(0); 4], elsewhere: &elsewhere };
    let Some(opened) = lab.open_receiving(receiving, AfXdpConfig::default()) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    let queues: Vec<_> = transmitters.iter().map(|exit| exit.queue().0).collect();
    assert_eq!(queues, [0, 2, 3]);
    for (socket, to) in [PEER_V4, PEER_V6].map(|to| (lab.peer_socket(to), to)) {
        let from = if to == PEER_V4 { OUR_V4 } else { OUR_V6 };
        for transmitter in &mut transmitters {
            let mut batch = lab.datagrams(from, to, 3);
            assert_eq!(transmitter.transmit(&mut lab.pool, &mut batch, |_| ()).frames, 3);
            transmitter.flush();
            (0..3).for_each(|number| assert_eq!(payload(&socket), [number]));
        }
        for queue in queues.iter().copied() {
            reclaim(&mut receivers[usize::from(queue)], &mut lab.pool, 3, |_| ());
        }
    }
    assert_eq!(receivers[1].reclaim(&mut lab.pool, |_| ()), 0, "nobody sends by it");
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

#[test]
fn every_queue_has_a_socket() {
    let Some(mut lab) = Lab::new(2, 2048) else { return };
    let owners = [WorkerId(1), WorkerId(0)];
    let Some(opened) = lab.open(&owners, 2, AfXdpConfig::default()) else { return };
    assert_eq!(opened.facts.queues, 2);
    let (port, mut receivers, mut transmitters) = parts(opened);
    assert_eq!(transmitters[0].completion_queue(), QueueId(1), "worker 0 owns queue 1");
    assert_eq!(transmitters[1].completion_queue(), QueueId(0));
    let mut batch = Batch::new();
    for receiver in &mut receivers {
        receiver.receive(&mut lab.pool, &mut batch);
    }
    // The peer's kernel chooses by core and flow: pin each sender to another.
    let cores = manylane_io::affinity::cores().expect("every thread may ask");
    for &core in &cores {
        lab.peer.run(move || manylane_io::affinity::pin(core)).expect("one of ours");
        lab.peer_sends(PEER_V4, OUR_V4, b"?", 5);
    }
    receive(&mut lab, &mut receivers, &mut batch, 5 * cores.len());
    lab.pool.give_back_all(&mut batch);
    // Both rings lead out.
    let socket = lab.peer_socket(PEER_V4);
    for transmitter in &mut transmitters {
        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 3);
        transmitter.transmit(&mut lab.pool, &mut batch, |_| ());
        transmitter.flush();
        (0..3).for_each(|number| assert_eq!(payload(&socket), [number]));
    }
    for receiver in &mut receivers {
        reclaim(receiver, &mut lab.pool, 3, |_| ());
    }
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

#[test]
fn generic_mode_does_the_same() {
    let Some(mut lab) = Lab::new(1, 4096) else { return };
    let config = AfXdpConfig { attach: Attach::Only(Mode::Generic), ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, config) else { return };
    assert_eq!(opened.facts.mode, Mode::Generic);
    let (port, mut receivers, mut transmitters) = parts(opened);
    let mut batch = Batch::new();
    receivers[0].receive(&mut lab.pool, &mut batch);
    lab.peer_sends(PEER_V6, OUR_V6, b"in", 1);
    receive(&mut lab, &mut receivers, &mut batch, 1);
    assert!(lab.region.bytes(&batch.as_slice()[0]).ends_with(b"in"));
    lab.pool.give_back_all(&mut batch);
    let socket = lab.peer_socket(PEER_V6);
    let mut batch = lab.datagrams(OUR_V6, PEER_V6, 1);
    transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ());
    transmitters[0].flush();
    assert_eq!(payload(&socket), [0]);
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// Twenty times round every ring, both ways, in order and whole.
#[test]
fn rings_go_round_and_round() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config = AfXdpConfig {
        rx_ring: 128,
        tx_ring: 128,
        fill_ring: 128,
        completion_ring: 128,
        ..AfXdpConfig::default()
    };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, config) else { return };
    let (port, mut receivers, mut transmitters) = parts(opened);
    let socket = lab.peer_socket(PEER_V4);
    let mut batch = Batch::new();
    receivers[0].receive(&mut lab.pool, &mut batch);
    for round in 0..43 {
        lab.peer_sends("10.0.0.2:0", OUR_V4, &[round], 60);
        receive(&mut lab, &mut receivers, &mut batch, 60);
        for frame in batch.iter() {
            assert_eq!(lab.region.bytes(frame).last(), Some(&round));
        }
        lab.pool.give_back_all(&mut batch);
        assert_eq!(receivers[0].posted(), 128);

        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 60);
        assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, 60);
        transmitters[0].flush();
        (0..60).for_each(|number| assert_eq!(payload(&socket), [number]));
        reclaim(&mut receivers[0], &mut lab.pool, 60, |_| ());
    }
    assert_eq!(receivers[0].losses().expect("the socket is open"), Default::default());
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

/// What does not fit stays with the caller, and nothing overtakes.
#[test]
fn a_full_ring_leaves_the_rest_in_the_batch() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config = AfXdpConfig { tx_ring: 128, ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, config) else { return };
    let (port, receivers, mut transmitters) = parts(opened);
    for expected in [50, 50, 28] {
        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 50);
        assert_eq!(transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ()).frames, expected);
        let left: Vec<u8> =
            batch.iter().filter_map(|frame| lab.region.bytes(frame).last().copied()).collect();
        assert_eq!(left, Vec::from_iter(expected as u8..50));
        lab.pool.give_back_all(&mut batch);
    }
    assert_eq!(transmitters[0].in_flight(), 128);
    let closed = lab.close(port, receivers, transmitters);
    assert_eq!((closed.completed, closed.unsent), (128, 0), "closing sends what it can");
    lab.assert_all_home();
}

/// Unread and unsent frames, frames on the fill ring: all are returned, under their names, and the
/// interface can be opened again at once.
#[test]
fn a_closed_port_gives_every_frame_back() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    for round in 0..5 {
        let Some(opened) = lab.open(&[WorkerId(0)], 2, AfXdpConfig::default()) else { return };
        let (port, mut receivers, mut transmitters) = parts(opened);
        let mut batch = Batch::new();
        receivers[0].receive(&mut lab.pool, &mut batch);
        lab.peer_sends(PEER_V4, OUR_V4, b"unread", 7);
        wait_until(|| receivers[0].pending() == 7);

        let socket = lab.peer_socket(PEER_V4);
        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 5);
        transmitters[1].transmit(&mut lab.pool, &mut batch, |_| ());
        transmitters[1].flush();
        (0..5).for_each(|number| assert_eq!(payload(&socket), [number]));

        set_up(false);
        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 3);
        transmitters[0].transmit(&mut lab.pool, &mut batch, |_| ());
        transmitters[0].flush();
        assert_eq!(transmitters[0].in_flight(), 3, "the device is down");
        assert!(transmitters[0].losses().refused > 0);

        let mut fates = Vec::new();
        let closed = port.close(receivers, transmitters, &mut lab.pool, |fate, meta| {
            assert_eq!(meta.ingress, PortId(9));
            fates.push(fate);
        });
        let expected =
            Closed { completed: 5, unsent: 3, posted: 1017, unread: 7, lost: 7, ..closed };
        assert_eq!(closed, expected, "round {round}");
        assert_eq!((closed.uncompleted, closed.held), (0, 0));
        assert_eq!(fates.iter().filter(|fate| **fate == Fate::Dropped).count(), 3);
        lab.assert_all_home();
        set_up(true);
    }
}

/// Flows may change their worker while a device is down, and what it refused leaves when it comes up.
#[test]
fn frames_refused_by_a_device_that_is_down_are_not_waited_for() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let Some(opened) = lab.open(&[WorkerId(0)], 2, AfXdpConfig::default()) else { return };
    let (port, receivers, mut transmitters) = parts(opened);
    let socket = lab.peer_socket(PEER_V4);
    set_up(false);
    for transmitter in &mut transmitters {
        let mut batch = lab.datagrams(OUR_V4, PEER_V4, 3);
        transmitter.transmit(&mut lab.pool, &mut batch, |_| ());
        transmitter.set_drain_mark();
        assert!(!transmitter.has_drained(), "nobody has asked the device");
        transmitter.flush();
        assert_eq!(transmitter.in_flight(), 3);
        assert!(transmitter.has_drained());
    }
    set_up(true);
    for transmitter in &mut transmitters {
        transmitter.flush();
        assert_eq!(transmitter.in_flight(), 0);
        assert!(transmitter.has_drained());
        (0..3).for_each(|number| assert_eq!(payload(&socket), [number]));
    }
    port.close(receivers, transmitters, &mut lab.pool, |_, _| ());
    lab.assert_all_home();
}

#[test]
fn the_kernels_losses_have_their_reasons() {
    let Some(mut lab) = Lab::without_ipv6() else { return };
    let config =
        AfXdpConfig { rx_ring: 128, fill_ring: 256, multi_buffer: false, ..AfXdpConfig::default() };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, config) else { return };
    let (port, mut receivers, transmitters) = parts(opened);
    let losses = |receiver: &Receiver| receiver.losses().expect("the socket is open");

    lab.peer_sends(PEER_V4, OUR_V4, b"nothing is posted yet", 10);
    wait_until(|| losses(&receivers[0]).no_buffer == 10);
    assert_eq!(losses(&receivers[0]).ring_full, 0);

    let mut batch = Batch::new();
    receivers[0].receive(&mut lab.pool, &mut batch);
    lab.peer_sends(PEER_V4, OUR_V4, b"nobody reads", 200);
    wait_until(|| losses(&receivers[0]).ring_full == 200 - 128);
    receive(&mut lab, &mut receivers, &mut batch, 64);
    lab.pool.give_back_all(&mut batch);
    receive(&mut lab, &mut receivers, &mut batch, 64);
    lab.pool.give_back_all(&mut batch);

    lab.set_mtu(3000);
    lab.peer_sends(PEER_V4, OUR_V4, &[0; 2500], 4);
    wait_until(|| losses(&receivers[0]).too_large == 4);
    assert_eq!(losses(&receivers[0]).invalid, 0);
    lab.close(port, receivers, transmitters);
    lab.assert_all_home();
}

#[test]
fn the_program_redirects_only_queues_that_have_a_socket() {
    const XDP_PASS: u32 = 2;
    const XDP_REDIRECT: u32 = 4;
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let Some(opened) = lab.open(&[WorkerId(0)], 1, AfXdpConfig::default()) else { return };
    let (port, receivers, transmitters) = parts(opened);
    let mut program = XskProgram::load(1).expect("another was just loaded");
    assert_eq!(program.verdict(&[0; 60]).expect("the kernel tries it"), XDP_PASS);
    program.set_socket(0, receivers[0].as_fd()).expect("the socket is bound");
    assert_eq!(program.verdict(&[0; 60]).expect("the kernel tries it"), XDP_REDIRECT);
    assert!(program.set_socket(1, receivers[0].as_fd()).is_err(), "there is one place");
    lab.close(port, receivers, transmitters);
}

#[test]
fn a_port_that_cannot_work_is_refused_with_the_fix() {
    let Some(mut lab) = Lab::new(1, 2048) else { return };
    let owners = [WorkerId(0)];
    lab.set_mtu(1775);
    let single = AfXdpConfig { multi_buffer: false, ..AfXdpConfig::default() };
    let too_large = lab.try_open(&owners, single).err().expect("1774 is the most");
    assert!(matches!(too_large, OpenError::MtuTooLarge { mtu: 1775, frames_max: 1, .. }));
    lab.set_mtu(32_239);
    let too_large = lab.try_open(&owners, AfXdpConfig::default()).err().expect("18 frames are");
    assert!(matches!(too_large, OpenError::MtuTooLarge { mtu: 32_239, frames_max: 18, .. }));
    lab.set_mtu(1774);
    let two = [WorkerId(0), WorkerId(0)];
    let owners_error = lab.try_open(&two, AfXdpConfig::default()).err().expect("one queue");
    assert!(matches!(owners_error, OpenError::Owners { queues: 1, owners: 2, .. }));
    let Some(opened) = lab.open(&owners, 1, AfXdpConfig::default()) else { return };
    let taken = lab.try_open(&owners, AfXdpConfig::default()).err().expect("one program a device");
    assert!(taken.to_string().contains("bpftool net shows whose"), "{taken}");
    let (port, receivers, transmitters) = parts(opened);
    lab.close(port, receivers, transmitters);

    let config = AfXdpConfig::default();
    let receiving = Receiving { owners: &owners, elsewhere: &[None] };
    let gone = AfXdp::open(&mut lab.umem, PortId(0), "eth7", receiving, config);
    let gone = gone.err().expect("there is none").to_string();
    assert!(
        gone.starts_with("interface eth7 does not exist; existing interfaces: lo, r0"),
        "{gone}"
    );
}

/// The two halves of a queue can be with different threads, as receiver and transmitters are.
#[test]
fn the_parts_can_go_to_threads() {
    fn goes<T: Send>() {}
    goes::<Receiver>();
    goes::<Transmitter>();
    goes::<AfXdp>();
    goes::<Umem>();
}
