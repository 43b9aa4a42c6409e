//! What a packet must be to be forwarded, wherever to.

use super::*;
use crate::packet::{OURS, TCP, address, tcp, udp};
use manylane_accelerate::programs::{Ticks, TryOptions};

#[test]
fn a_port_forwards_what_comes_in_only_while_it_is_said_to() {
    let Some(mut rig) = Rig::new() else { return };
    let (four, six) = (v4(TO).frame(), v6(TO6).frame());
    rig.port(1, EGRESS | FORWARDING);
    assert_eq!(rig.verdict(&four), NOT_INGRESS);
    rig.port(1, INGRESS | 8);
    assert_eq!([rig.verdict(&four), rig.verdict(&six)], [NOT_FORWARDING, FORWARDED]);
    rig.port(1, INGRESS | 4);
    assert_eq!([rig.verdict(&four), rig.verdict(&six)], [FORWARDED, NOT_FORWARDING]);
    rig.port(2, 0);
    assert_eq!(rig.verdict(&four), EGRESS_KERNEL);
    rig.tables.port_of.store(1, 0);
    assert_eq!(rig.verdict(&four), NOT_INGRESS);
}

/// By the same clock as ours.
#[test]
fn after_its_lease_everything_is_the_kernels() {
    let Some(mut rig) = Rig::new() else { return };
    let frame = v4(TO).frame();
    let ticks = Ticks::open().expect("what forwards was loaded, too");
    let now = ticks.read().expect("root may");
    rig.tables.control.store(LEASE_TICKS, now + 3_600_000_000_000 / ticks.length_ns());
    assert_eq!(rig.verdict(&frame), FORWARDED);
    for end in [now, 0] {
        rig.tables.control.store(LEASE_TICKS, end);
        assert_eq!(rig.verdict(&frame), LAPSED);
    }
}

#[test]
fn ticks_pass_with_the_coarse_clock() {
    if Rig::new().is_none() {
        return;
    }
    let ticks = Ticks::open().expect("what forwards was loaded, too");
    let by_clock = || now_ns() / ticks.length_ns();
    let read = || ticks.read().expect("root may");
    let (clock, count) = (by_clock(), read());
    while by_clock() < clock + 25 {
        std::thread::yield_now();
    }
    let passed = read() - count;
    // Each pair is read one after the other.
    assert!(passed >= 24 && passed <= by_clock() - clock + 1, "{passed} ticks");
}

#[test]
fn a_frame_is_ours_by_its_address_and_type() {
    let Some(rig) = Rig::new() else { return };
    for (to, verdict) in [
        ([2, 0, 0, 0, 0, 3], NOT_FOR_US),
        ([2, 0, 0, 1, 0, 1], NOT_FOR_US),
        ([0xff; 6], LINK_GROUP),
        ([1, 0, 0x5e, 0, 0, 1], LINK_GROUP),
        (OURS, FORWARDED),
    ] {
        assert_eq!(rig.verdict(&v4(TO).frame_to(to)), verdict, "{to:02x?}");
    }
    for ether_type in [[0x08, 0x06], [0x81, 0x00], [0x88, 0xa8], [0x88, 0x47]] {
        let mut frame = v4(TO).frame();
        frame[12..14].copy_from_slice(&ether_type);
        assert_eq!(rig.verdict(&frame), NOT_IP, "{ether_type:02x?}");
    }
}

#[test]
fn headers_that_do_not_fit_are_the_kernels() {
    let Some(rig) = Rig::new() else { return };
    for (what, packet) in [
        ("version 6", V4 { first: 0x65, ..v4(TO) }),
        ("a header of 16 bytes", V4 { first: 0x44, ..v4(TO) }),
        ("a header longer than the packet", V4 { first: 0x4f, ..v4(TO) }),
        ("a total length inside the header", V4 { longer: -13, ..v4(TO) }),
        ("a total length behind the bytes", V4 { longer: 1, ..v4(TO) }),
    ] {
        assert_eq!(rig.verdict(&packet.frame()), MALFORMED, "{what}");
    }
    for (what, packet) in [
        ("version 4", V6 { first: 0x40, ..v6(TO6) }),
        ("a length behind the bytes", V6 { longer: 1, ..v6(TO6) }),
    ] {
        assert_eq!(rig.verdict(&packet.frame()), MALFORMED, "{what}");
    }
    let (four, six) = (v4(TO).frame(), v6(TO6).frame());
    for len in 14..34 {
        // Some kernels try no packet without its header.
        match rig.fast.try_packet(&four[..len], &TryOptions::default()) {
            Ok((action, ..)) => assert_eq!(action, NEXT),
            Err(error) => assert!(error.to_string().contains("Invalid argument"), "{error}"),
        }
    }
    // Ethernet's padding may be there; anything more the kernel cuts off.
    let mut padded = V4 { payload: udp(1, 2)[..8].to_vec(), ..v4(TO) }.frame();
    padded.resize(60, 0);
    assert_eq!(rig.verdict(&padded), FORWARDED);
    padded.push(0);
    assert_eq!(rig.verdict(&padded), MALFORMED);
    let mut odd = six.clone();
    odd[20] = 59;
    odd.truncate(54);
    odd[18..20].fill(0);
    assert_eq!(rig.verdict(&odd), FORWARDED, "no payload at all");
    for bit in 0..160 {
        let mut bad = four.clone();
        bad[14 + bit / 8] ^= 1 << (bit % 8);
        assert!([MALFORMED, BAD_CHECKSUM].contains(&rig.verdict(&bad)), "bit {bit}");
    }
}

#[test]
fn options_are_the_kernels() {
    let Some(rig) = Rig::new() else { return };
    for len in [4, 20, 40] {
        let mut options = vec![1; len];
        options[len - 1] = 0;
        let packet = V4 { first: 0x45 + len as u8 / 4, options, ..v4(TO) };
        let frame = packet.frame();
        assert_eq!(rig.verdict(&frame), OPTIONS, "{len} bytes");
        let mut bad = frame.clone();
        bad[14 + 20 + len - 1] ^= 0x40;
        assert_eq!(rig.verdict(&bad), BAD_CHECKSUM, "{len} bytes");
    }
    assert_eq!(rig.verdict(&v6(TO6).behind(0, 8).frame()), OPTIONS);
    assert_eq!(rig.verdict(&v6(TO6).behind(43, 24).frame()), OPTIONS);
    for (number, len) in [(60, 8), (44, 8), (51, 24)] {
        assert_eq!(rig.verdict(&v6(TO6).behind(number, len).frame()), FORWARDED, "{number}");
    }
}

#[test]
fn addresses_that_a_router_does_not_forward_are_the_kernels() {
    let Some(mut rig) = Rig::new() else { return };
    // Whatever the routes say.
    for at in 0..1 << 16 {
        rig.tables.direct4.store(at, 1);
        rig.tables.direct6.store(at, 1);
    }
    for (text, source, destination) in [
        ("0.1.2.3", MARTIAN, MARTIAN),
        ("127.0.0.1", MARTIAN, MARTIAN),
        ("224.0.0.5", MARTIAN, GROUP_ADDRESS),
        ("239.255.255.255", MARTIAN, GROUP_ADDRESS),
        ("240.0.0.1", MARTIAN, MARTIAN),
        ("255.255.255.255", MARTIAN, MARTIAN),
        ("1.0.0.0", FORWARDED, FORWARDED),
        ("126.255.255.255", FORWARDED, FORWARDED),
        ("128.0.0.0", FORWARDED, FORWARDED),
        ("223.255.255.255", FORWARDED, FORWARDED),
    ] {
        let from = V4 { from: address(text), ..v4(TO) };
        let found = [rig.verdict(&from.frame()), rig.verdict(&v4(text).frame())];
        assert_eq!(found, [source, destination], "{text}");
    }
    for (text, source, destination) in [
        ("::", MARTIAN, MARTIAN),
        ("::1", MARTIAN, MARTIAN),
        ("::ffff:1.2.3.4", MARTIAN, MARTIAN),
        ("::2", FORWARDED, FORWARDED),
        ("::1.2.3.4", FORWARDED, FORWARDED),
        ("64:ff9b::1", FORWARDED, FORWARDED),
        ("fd00::1", FORWARDED, FORWARDED),
        ("fe7f::1", FORWARDED, FORWARDED),
        ("fe80::1", MARTIAN, MARTIAN),
        ("febf::1", MARTIAN, MARTIAN),
        ("fec0::1", FORWARDED, FORWARDED),
        ("ff0e::1", MARTIAN, GROUP_ADDRESS),
        ("ff02::1", MARTIAN, GROUP_ADDRESS),
    ] {
        let from = V6 { from: address(text), ..v6(TO6) };
        let found = [rig.verdict(&from.frame()), rig.verdict(&v6(text).frame())];
        assert_eq!(found, [source, destination], "{text}");
    }
}

#[test]
fn the_last_hop_of_a_packet_is_the_kernels() {
    let Some(rig) = Rig::new() else { return };
    for left in [0, 1] {
        assert_eq!(rig.verdict(&V4 { ttl: left, ..v4(TO) }.frame()), EXPIRED);
        assert_eq!(rig.verdict(&V6 { hop_limit: left, ..v6(TO6) }.frame()), EXPIRED);
    }
}

#[test]
fn a_packet_longer_than_the_way_is_the_kernels() {
    let Some(mut rig) = Rig::new() else { return };
    rig.record(1, 77, 2, 600);
    for (len, verdict) in [(580, FORWARDED), (581, TOO_BIG)] {
        assert_eq!(rig.verdict(&V4 { payload: vec![0; len], ..v4(TO) }.frame()), verdict);
        assert_eq!(rig.verdict(&V6 { payload: vec![0; len - 20], ..v6(TO6) }.frame()), verdict);
    }
}

/// Judged by what their segments will be.
#[test]
fn segments_are_as_long_as_their_headers_and_size() {
    let Some(mut rig) = Rig::new() else { return };
    rig.record(1, 77, 2, 600);
    let four = V4 { protocol: TCP, payload: tcp(12, 1400), ..v4(TO) };
    let six = V6 { next_header: TCP, payload: tcp(12, 1400), ..v6(TO6) };
    for (more, verdict) in [(0, FORWARDED), (1, TOO_BIG)] {
        assert_eq!(rig.try_segments(&four.frame(), 548 + more).verdict, verdict);
        assert_eq!(rig.try_segments(&six.frame(), 528 + more).verdict, verdict);
        let long = six.clone().behind(60, 16).behind(51, 24).behind(60, 8);
        assert_eq!(rig.try_segments(&long.frame(), 480 + more).verdict, verdict);
    }
    let udp = V4 { payload: vec![0; 1400], ..v4(TO) };
    let part = V4 { fragment: 0x2000, ..four.clone() };
    let mut short = four.clone();
    short.payload[12] = 0x40;
    let mut cut = four.clone();
    cut.payload.truncate(31);
    for packet in [udp, part, short, cut] {
        assert_eq!(rig.try_segments(&packet.frame(), 500).verdict, SEGMENTS);
    }
    let udp = V6 { payload: vec![0; 1400], ..v6(TO6) };
    assert_eq!(rig.try_segments(&udp.frame(), 500).verdict, SEGMENTS);
    let chain = |count| (0..count).fold(six.clone(), |packet, _| packet.behind(60, 8)).frame();
    assert_eq!(rig.try_segments(&chain(6), 400).verdict, FORWARDED);
    assert_eq!(rig.try_segments(&chain(7), 400).verdict, EXTENSION);
    for (number, len) in [(44, 8), (0, 8)] {
        let odd = six.clone().behind(number, len).behind(60, 8);
        assert_eq!(rig.try_segments(&odd.frame(), 400).verdict, EXTENSION, "{number}");
    }
    let mut endless = six.clone().behind(60, 8);
    endless.payload[1] = 255;
    assert_eq!(rig.try_segments(&endless.frame(), 400).verdict, EXTENSION);
}

#[test]
fn a_packet_that_turns_around_is_the_kernels_while_redirects_are_sent() {
    let Some(mut rig) = Rig::new() else { return };
    rig.hop(1, VIA, 3);
    let (four, six) = (v4(TO).frame(), v6(TO6).frame());
    for (flags, verdicts) in [
        (0, [FORWARDED, FORWARDED]),
        (64, [SAME_PORT, FORWARDED]),
        (128, [FORWARDED, SAME_PORT]),
        (REDIRECTS, [SAME_PORT, SAME_PORT]),
    ] {
        rig.port(1, INGRESS | EGRESS | FORWARDING | flags);
        assert_eq!([rig.verdict(&four), rig.verdict(&six)], verdicts);
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one `timespec`.
    let returned = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    assert_eq!(returned, 0, "the clock is there");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
