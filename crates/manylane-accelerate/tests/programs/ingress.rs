//! The program that forwards in the kernel: each of its verdicts, by a packet of its own. Needs root.

use crate::common;
use crate::packet::{OURS, TCP, V4, V6, address, checksum, message, tcp, udp, v4, v6};
use crate::rig::*;
use manylane_accelerate::programs::{SampledBy, Ticks, TryOptions};
use manylane_io::affinity;

/// The places of verdicts, in the order of `tables.h`.
const FORWARDED: u8 = 0;
const LAPSED: u8 = 1;
const NOT_FOR_US: u8 = 2;
const LINK_GROUP: u8 = 3;
const NOT_IP: u8 = 4;
const MALFORMED: u8 = 6;
const BAD_CHECKSUM: u8 = 7;
const OPTIONS: u8 = 8;
const EXPIRED: u8 = 9;
const MARTIAN: u8 = 10;
const LOCAL: u8 = 11;
const GROUP_ADDRESS: u8 = 12;
const NO_ROUTE: u8 = 13;
const NOWHERE: u8 = 14;
const UNRESOLVED: u8 = 15;
const TOO_BIG: u8 = 16;
const SAME_PORT: u8 = 17;
const REVERSE_PATH: u8 = 18;
const NOT_FORWARDING: u8 = 19;
const EGRESS_KERNEL: u8 = 20;
const MULTIPATH: u8 = 21;
const KERNEL_ROUTE: u8 = 22;
const EXTENSION: u8 = 23;
const SEGMENTS: u8 = 24;
const NOT_INGRESS: u8 = 25;

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";

#[test]
fn an_ipv4_packet_is_sent_on_one_hop_older() {
    let Some(rig) = Rig::new() else { return };
    for (tos, priority) in
        [(0, 0), (0x08, 2), (0x10, 6), (0x18, 4), (0xb8, 4), (0x03, 0), (0xe4, 0)]
    {
        for ttl in [2, 64, 255] {
            let sent = V4 { tos, ttl, ..v4(TO) };
            let tried = rig.try_frame(&sent.frame());
            let expected = V4 { ttl: ttl - 1, ..sent }.frame();
            assert_eq!((tried.verdict, tried.ingress, tried.egress), (FORWARDED, 1, Some(2)));
            assert_eq!(tried.frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
            assert_eq!(tried.frame[12..], expected[12..], "ttl {ttl}");
            assert_eq!(tried.priority, priority, "tos {tos:02x}");
        }
    }
}

#[test]
fn some_packets_are_noted_while_somebody_asks() {
    let Some(mut rig) = Rig::new() else { return };
    // One CPU's places.
    affinity::pin(affinity::cores().expect("there are some")[0]).expect("it may run there");
    let mut samples = rig.fast.take_samples().expect("nobody has them");
    let mut padded = V4 { payload: Vec::new(), ..v4(TO) }.frame();
    padded.resize(60, 0);
    let cases = [
        (V4 { payload: vec![7; 500], ..v4(TO) }.frame(), FORWARDED, 56),
        (V6 { payload: vec![7; 500], ..v6(TO6) }.frame(), FORWARDED, 56),
        (padded, FORWARDED, 48),
        (v4(TO).frame(), FORWARDED, 28),
        (V4 { ttl: 1, ..v4(TO) }.frame(), EXPIRED, 28),
    ];
    rig.try_frame(&cases[0].0);
    samples.begin(0);
    cases.iter().for_each(|(frame, ..)| _ = rig.try_frame(frame));
    let noted = samples.end().expect("the kernel waits");
    rig.try_frame(&cases[0].0);
    assert_eq!(noted.len(), cases.len(), "{noted:?}");
    for (noted, (frame, verdict, own)) in noted.iter().zip(&cases) {
        let by = if *verdict == FORWARDED { SampledBy::Ingress } else { SampledBy::Kernel };
        assert_eq!((noted.port, noted.verdict, noted.by), (1, *verdict, by));
        assert_eq!(noted.len as usize, frame.len());
        assert_eq!(noted.bytes[..*own], frame[12..12 + own], "as it came");
    }

    let count = |rig: &Rig, times: u32| (0..times).for_each(|_| _ = rig.try_frame(&cases[0].0));
    for (shift, times, expected) in [(0, 100, 64..=64), (0, 1, 1..=1), (4, 640, 10..=63)] {
        samples.begin(shift);
        count(&rig, times);
        let noted = samples.end().expect("the kernel waits").len();
        assert!(expected.contains(&noted), "of {times} packets, one in 2^{shift}: {noted}");
    }
    assert_eq!(samples.end().expect("the kernel waits"), [], "nobody has asked");
}

/// Where the checksum's carry comes around, and every other place.
#[test]
fn the_header_checksum_stays_right_whatever_it_is() {
    let Some(rig) = Rig::new() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for tail in 0..=0xffffu16 {
        let mut sent = v4(TO).frame();
        sent[18..20].copy_from_slice(&tail.to_be_bytes()); // The identification.
        sent[24..26].fill(0);
        let sum = checksum(&sent[14..34]);
        if tail % 97 != 0 && !(0xfd00..=0xffff).contains(&sum) && sum > 0x0300 {
            continue;
        }
        sent[24..26].copy_from_slice(&sum.to_be_bytes());
        let tried = rig.fast.try_packet(&sent, &TryOptions::default()).expect("it is tried");
        assert_eq!(tried.0, REDIRECT, "{sum:04x}");
        let left = checksum(&tried.1[14..34]);
        assert!(left == 0 || left == 0xffff, "{sum:04x} became wrong");
        seen.insert(sum);
    }
    assert!(seen.contains(&0xfeff) && seen.contains(&0xfffe) && seen.len() > 1500);
}

#[test]
fn an_ipv6_packet_is_sent_on_one_hop_older() {
    let Some(rig) = Rig::new() else { return };
    for hop_limit in [2, 64, 255] {
        let sent = V6 { hop_limit, ..v6(TO6) };
        let tried =
            rig.try_with(&sent.frame(), &TryOptions { priority: 3, ..TryOptions::default() });
        let expected = V6 { hop_limit: hop_limit - 1, ..sent }.frame();
        assert_eq!((tried.verdict, tried.ingress, tried.egress), (FORWARDED, 1, Some(2)));
        assert_eq!(tried.frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!((&tried.frame[12..], tried.priority), (&expected[12..], 3));
    }
}

/// A receiver behind its own kernel believes that sum.
#[test]
fn the_sum_that_a_device_has_told_stays_right() {
    let Some(rig) = Rig::new() else { return };
    let summed = TryOptions { is_summed: true, ..TryOptions::default() };
    if rig.fast.try_packet(&[0; 14], &summed).is_err() {
        return common::skip("summed packets: the kernel cannot try them before Linux 6.17");
    }
    for ttl in [2, 3, 64, 255] {
        for (from, to) in [(0, 0), (1, 0xff), (0xffff, 0xffff), (0x1234, 0xedcb)] {
            let payload = udp(from, to);
            let four = V4 { ttl, payload: payload.clone(), ..v4(TO) };
            assert_eq!(rig.try_with(&four.frame(), &summed).verdict, FORWARDED);
            let six = V6 { hop_limit: ttl, payload, ..v6(TO6) };
            assert_eq!(rig.try_with(&six.frame(), &summed).verdict, FORWARDED);
        }
    }
}

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
    }
    for bucket in 0..(1 << 21) + (1 << 16) {
        rig.tables.direct6.store(bucket, 1);
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
fn only_a_neighbour_is_sent_to() {
    let Some(mut rig) = Rig::new() else { return };
    for (kind, verdict) in [
        (0, NO_ROUTE),
        (2, UNRESOLVED),
        (3, LOCAL),
        (4, LOCAL),
        (5, NOWHERE),
        (6, NOWHERE),
        (7, NOWHERE),
        (9, KERNEL_ROUTE),
        (10, NO_ROUTE),
    ] {
        rig.hop(1, kind, 1);
        let found = [rig.verdict(&v4(TO).frame()), rig.verdict(&v6(TO6).frame())];
        assert_eq!(found, [verdict; 2], "kind {kind}");
    }
    rig.hop(1, VIA, 2);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED);
    rig.hop(1, VIA, 1);
    rig.tables.records.store(16 + 15, 6);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED, "its stamps differ");
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
    assert_eq!(rig.verdict(&v6("2a00::1").frame()), NO_ROUTE);
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

#[test]
fn a_source_is_looked_up_where_that_is_asked_for() {
    let Some(mut rig) = Rig::new() else { return };
    let from = |from: &str| V4 { from: address(from), ..v4(TO) }.frame();
    rig.hop(4, CONNECTED, 1);
    rig.hop(5, CONNECTED, 2);
    rig.hop(6, GROUP, 0);
    rig.hop(7, 5, 0);
    rig.hop(8, VIA, 9); // Its MAC address is unknown.
    for id in 4..9 {
        rig.route4(&format!("10.0.{id}.0"), id);
    }
    for (source, loose, strict) in [
        ("192.0.2.1", FORWARDED, FORWARDED),
        (TO, FORWARDED, REVERSE_PATH),
        ("10.0.4.1", FORWARDED, FORWARDED),
        ("10.0.5.1", FORWARDED, REVERSE_PATH),
        ("10.0.6.1", FORWARDED, REVERSE_PATH),
        ("10.0.7.1", REVERSE_PATH, REVERSE_PATH),
        ("10.0.8.1", FORWARDED, REVERSE_PATH),
        ("10.0.9.1", REVERSE_PATH, REVERSE_PATH),
    ] {
        let found = [0, RP_LOOSE, RP_STRICT].map(|flags| {
            rig.port(1, INGRESS | EGRESS | FORWARDING | flags);
            rig.verdict(&from(source))
        });
        assert_eq!(found, [FORWARDED, loose, strict], "{source}");
    }
    rig.port(1, INGRESS | FORWARDING | RP_STRICT);
    assert_eq!(rig.verdict(&v6(TO6).frame()), FORWARDED, "IPv6 has no such setting");
}

/// The writer sets the bits of all addresses that are ours, and of others by chance.
#[test]
fn one_of_our_own_addresses_is_no_source() {
    let Some(mut rig) = Rig::new() else { return };
    let from = |from: &str| V4 { from: address(from), ..v4(TO) }.frame();
    rig.hop(4, 3, 0);
    rig.hop(5, 4, 0);
    rig.hop(6, CONNECTED, 1);
    for (id, verdict) in [(4, REVERSE_PATH), (5, REVERSE_PATH), (6, FORWARDED)] {
        rig.route4(&format!("10.0.{id}.0"), id);
        let source = format!("10.0.{id}.1");
        rig.may_be_ours(&source);
        for flags in [0, RP_LOOSE] {
            rig.port(1, INGRESS | EGRESS | FORWARDING | flags);
            assert_eq!(rig.verdict(&from(&source)), verdict, "{source}");
        }
    }
}

#[test]
fn the_routes_of_a_16_are_found_in_its_chunk() {
    let Some(mut rig) = Rig::new() else { return };
    // In 203.0.0.0/16, at line 5: id 1 from .3.0 to .66.255, 2 up to .199.255, then 1; nothing before.
    let (block, first) = (0xcb00, 5 * 8);
    for (at, word) in [1 | 1 << 3, 1 << 3, 0, 1 << 8].into_iter().enumerate() {
        rig.tables.chunks4.store(first + at, word);
    }
    rig.tables.chunks4.store(first + 4, 3 << 48 | 3 << 32 | 2 << 16);
    rig.tables.chunks4.store(first + 5, 1 << 48 | 2 << 32 | 1 << 16);
    rig.tables.direct4.store(block, 1 << 31 | 5);
    rig.hop(2, 3, 0);
    for number in 0..=255u8 {
        let verdict = match number {
            0..3 => NO_ROUTE,
            3..67 | 200.. => FORWARDED,
            67..200 => LOCAL,
        };
        assert_eq!(rig.verdict(&v4(&format!("203.0.{number}.1")).frame()), verdict, "{number}");
    }
    // A /16 without a chunk.
    rig.tables.direct4.store(block + 1, 1);
    assert_eq!(rig.verdict(&v4("203.1.255.1").frame()), FORWARDED);
    // Out of every bound: no route, and no harm.
    rig.tables.direct4.store(block, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.3.1").frame()), NO_ROUTE);
    rig.tables.direct4.store(block, 1 << 31 | 5);
    (0..5).for_each(|at| rig.tables.chunks4.store(first + at, u64::MAX));
    assert_eq!(rig.verdict(&v4("203.0.255.1").frame()), NO_ROUTE);
}

#[test]
fn longer_routes_are_found_in_lists() {
    let Some(mut rig) = Rig::new() else { return };
    // In 203.0.113.0/24: id 1 from .64 to .127, else 0; in 203.0.114.0/24 one for each address.
    let at = 0xcb00;
    rig.tables.blocks4.store(at, 100);
    for (number, list) in [(0, 10), (1, 500)] {
        rig.tables.groups4.store(100 + number, list);
    }
    for (place, word) in [3, 0, 64 << 16 | 1, 128 << 16].into_iter().enumerate() {
        rig.tables.ranges4.store(10 + place, word);
    }
    rig.tables.ranges4.store(500, 256);
    for low in 0..256 {
        rig.tables.ranges4.store(501 + low, (low as u32) << 16 | (low as u32 % 3));
    }
    rig.route4("203.0.113.0", 0x8000);
    rig.route4("203.0.114.0", 0x8001);
    rig.hop(2, 3, 0);
    for low in 0..=255u8 {
        let verdict = if (64..128).contains(&low) { FORWARDED } else { NO_ROUTE };
        assert_eq!(rig.verdict(&v4(&format!("203.0.113.{low}")).frame()), verdict, "{low}");
        let verdict = [NO_ROUTE, FORWARDED, LOCAL][usize::from(low) % 3];
        assert_eq!(rig.verdict(&v4(&format!("203.0.114.{low}")).frame()), verdict, "{low}");
    }
    // Out of every bound: no route, and no harm.
    rig.tables.groups4.store(100, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
    rig.tables.blocks4.store(at, u32::MAX);
    assert_eq!(rig.verdict(&v4("203.0.113.1").frame()), NO_ROUTE);
}

#[test]
fn longer_ipv6_routes_are_found_in_trees() {
    const LEAF: u32 = 1 << 31;
    const INDEX: u32 = 1 << 30;
    const HOST: u32 = 1 << 29;
    let Some(mut rig) = Rig::new() else { return };
    rig.hop(2, 3, 0);
    let to = |rig: &Rig, text: &str| rig.verdict(&v6(text).frame());
    let top = bucket("2a01:100::");
    // A leaf: up to 2a01:1ff::/32 nothing, then one network by next hop 1, then nothing.
    let key = |text: &str| (address::<std::net::Ipv6Addr>(text).to_bits() >> 64) as u64 - 1;
    let leaf = |rig: &mut Rig, line: usize, keys: &[u64], values: &[u32]| {
        for place in 0..5 {
            let key = keys.get(place).copied().unwrap_or(u64::MAX);
            rig.tables.leaves6.store(line * 8 + place, key);
        }
        for (place, pair) in values.chunks(2).enumerate() {
            let high = u64::from(pair.get(1).copied().unwrap_or(0));
            rig.tables.leaves6.store(line * 8 + 5 + place, high << 32 | u64::from(pair[0]));
        }
    };
    leaf(&mut rig, 3, &[key("2a01:150::"), key("2a01:151::")], &[0, 1, 2]);
    rig.tables.direct6.store(top, LEAF | 3);
    for (text, verdict) in [
        ("2a01:100::1", NO_ROUTE),
        ("2a01:14f:ffff:ffff::1", NO_ROUTE),
        ("2a01:150::1", FORWARDED),
        ("2a01:150:ffff:ffff::1", FORWARDED),
        ("2a01:151::1", LOCAL),
        ("2a01:1ff::1", LOCAL),
    ] {
        assert_eq!(to(&rig, text), verdict, "{text}");
    }
    // All six intervals.
    let keys = [0x110u64, 0x120, 0x130, 0x140, 0x150].map(|at| (0x2a01u64 << 48 | at << 32) - 1);
    leaf(&mut rig, 4, &keys, &[1, 2, 1, 2, 1, 2]);
    rig.tables.direct6.store(top, LEAF | 4);
    for number in 0..6 {
        let verdict = [FORWARDED, LOCAL][number % 2];
        assert_eq!(to(&rig, &format!("2a01:1{number}5::1")), verdict, "{number}");
    }
    // Entries by 8 bits, then by 4, then a leaf of lower halves.
    rig.tables.direct6.store(top, INDEX | 2 << 27 | 8);
    rig.tables.index6.store(8 * 16 + 0x42, INDEX | 1 << 27 | 100);
    rig.tables.index6.store(8 * 16 + 0x43, 1);
    rig.tables.index6.store(100 * 16 + 0x7, HOST | LEAF | 5);
    leaf(&mut rig, 5, &[0x11, 0x22], &[0, 1, 2]);
    for (text, verdict) in [
        ("2a01:143::1", FORWARDED),
        ("2a01:144::1", NO_ROUTE),
        ("2a01:142:8000::1", NO_ROUTE),
        ("2a01:142:7000::11", NO_ROUTE),
        ("2a01:142:7000::12", FORWARDED),
        ("2a01:142:7000::22", FORWARDED),
        ("2a01:142:7000::23", LOCAL),
    ] {
        assert_eq!(to(&rig, text), verdict, "{text}");
    }
    // Lower halves by entries of all 64 bits, and elsewhere by 48.
    rig.tables.index6.store(100 * 16 + 0x7, HOST | INDEX | 1 << 27 | 200);
    for step in 0..16 {
        let way = if step == 15 { 1 } else { INDEX | 1 << 27 | (201 + step) };
        rig.tables.index6.store((200 + step as usize) * 16 + 0xa, way);
    }
    assert_eq!(to(&rig, "2a01:142:7000::aaaa:aaaa:aaaa:aaaa"), FORWARDED);
    assert_eq!(to(&rig, "2a01:142:7000::aaaa:aaaa:aaaa:aaab"), NO_ROUTE);
    rig.tables.direct6.store(bucket("fd00::"), INDEX | 1 << 27 | 300);
    for step in 0..12 {
        let way = if step == 11 { 1 } else { INDEX | 1 << 27 | (301 + step) };
        rig.tables.index6.store((300 + step as usize) * 16 + 0xb, way);
    }
    assert_eq!(to(&rig, "fd00:bbbb:bbbb:bbbb::1"), FORWARDED);
    assert_eq!(to(&rig, "fd00:bbbb:bbbb:bbba::1"), NO_ROUTE);
    // Out of every bound.
    for way in [LEAF | 0x7ff_ffff, INDEX | 3 << 27 | 0x7ff_ffff, HOST | LEAF | 0x7ff_ffff] {
        rig.tables.direct6.store(top, way);
        assert_eq!(to(&rig, "2a01:142::1"), NO_ROUTE);
    }
}

/// What `FlowKey::seeded` and `bucket` of `manylane-net` say of these packets, with this seed.
#[test]
fn a_flow_stays_with_its_bucket() {
    let Some(mut rig) = Rig::new() else { return };
    rig.tables.control.store(1, 0x1122_3344_5566_7788);
    // Bucket b leads to slot b + 1000, and that to record b + 1000, whose number is in the address.
    rig.hop(1, GROUP, 300);
    for bucket in 0..512 {
        rig.record(1000 + bucket, 77, 2, 1500);
        rig.tables.record_of.store(1000 + bucket, 1000 + bucket as u32);
        rig.tables.buckets.store(300 * 512 + bucket, 1000 + bucket as u16);
    }
    assert_eq!(rig.verdict(&v4(TO).frame()), MULTIPATH, "nobody said that it may");
    assert_eq!(rig.verdict(&v6(TO6).frame()), MULTIPATH);
    let found = |rig: &Rig, frame: &[u8]| {
        let tried = rig.try_frame(frame);
        assert_eq!(tried.verdict, FORWARDED);
        u16::from_be_bytes([tried.frame[4], tried.frame[5]]) - 1000
    };
    rig.tables.control.store(2, 1 | 2);
    let only_addresses = [found(&rig, &v4(TO).frame()), found(&rig, &v6(TO6).frame())];
    rig.tables.control.store(2, 1 | 2 | 4 | 8);
    let frames = hashed();
    let buckets: Vec<u16> = frames.iter().map(|(_, frame)| found(&rig, frame)).collect();
    for ((what, _), (found, expected)) in frames.iter().zip(buckets.iter().zip(EXPECTED)) {
        assert_eq!(*found, expected, "{what}: {buckets:?}");
    }
    let part = |name: &str| {
        let at = frames.iter().position(|(what, _)| *what == name).expect("it is one of them");
        buckets[at]
    };
    assert_eq!(only_addresses, [part("a fragment"), part("no next header")]);
    for kind in [3, 4, 5, 11, 12] {
        let error = V4 { protocol: 1, payload: message(kind), ..v4(TO) };
        assert_eq!(rig.verdict(&error.frame()), MULTIPATH, "ICMP {kind}");
    }
    for kind in [1, 2, 3, 4, 127] {
        let error = V6 { next_header: 58, payload: message(kind), ..v6(TO6) };
        assert_eq!(rig.verdict(&error.frame()), MULTIPATH, "ICMPv6 {kind}");
    }
    for (number, len) in [(44, 8), (51, 24), (60, 8)] {
        assert_eq!(rig.verdict(&v6(TO6).behind(number, len).frame()), MULTIPATH, "{number}");
    }
    rig.tables.buckets.store(300 * 512 + usize::from(part("UDP")), 4000);
    assert_eq!(rig.verdict(&v4(TO).frame()), UNRESOLVED, "of the flow's bucket");
}

/// Packets of each row of `flow.h`.
fn hashed() -> Vec<(&'static str, Vec<u8>)> {
    let four = |protocol, payload: Vec<u8>| V4 { protocol, payload, ..v4(TO) }.frame();
    let six = |next_header, payload: Vec<u8>| V6 { next_header, payload, ..v6(TO6) }.frame();
    vec![
        ("UDP", v4(TO).frame()),
        ("UDP, another port", four(17, udp(1001, 2000))),
        ("TCP", four(6, tcp(0, 5))),
        ("SCTP", four(132, vec![9; 12])),
        ("DCCP", four(33, vec![9; 12])),
        ("UDP-Lite", four(136, vec![9; 12])),
        ("GRE", four(47, vec![9; 12])),
        ("three bytes of TCP", four(6, vec![9; 3])),
        ("a fragment", V4 { fragment: 0x2000, ..v4(TO) }.frame()),
        ("a later fragment", V4 { fragment: 0x00b9, ..v4(TO) }.frame()),
        ("not to be cut", V4 { fragment: 0x4000, ..v4(TO) }.frame()),
        ("ping", four(1, message(8))),
        ("half a message", four(1, vec![3; 7])),
        ("UDP v6", v6(TO6).frame()),
        ("TCP v6", six(6, tcp(8, 5))),
        ("UDP v6, another port", six(17, udp(1000, 2001))),
        ("ping v6", six(58, message(128))),
        ("no next header", six(59, Vec::new())),
        ("three bytes of UDP v6", six(17, vec![9; 3])),
    ]
}

const EXPECTED: [u16; 19] =
    [221, 389, 105, 246, 378, 317, 129, 129, 129, 129, 221, 129, 129, 333, 291, 432, 390, 390, 390];

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one `timespec`.
    let returned = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    assert_eq!(returned, 0, "the clock is there");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
