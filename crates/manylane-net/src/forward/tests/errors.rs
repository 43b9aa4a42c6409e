//! ICMP errors: when, from which address, to which address, about what.

use std::net::IpAddr;

use manylane_frame::vocabulary::DropReason;

use super::super::{AdjacencyState, Origin, RateLimit};
use super::bed::*;
use crate::wire::ethernet::Mac;
use crate::wire::ip::View;
use crate::wire::{icmp, icmpv6, ipv4, protocol};

/// What an error says, and about which packet.
struct SentError {
    source: IpAddr,
    destination: IpAddr,
    kind: u8,
    code: u8,
    word: u32,
    quoted: Vec<u8>,
}

/// Reads an error and holds it to what is true of all.
fn read(outcome: &Outcome) -> SentError {
    assert!(outcome.own);
    let packet = &outcome.bytes[14..];
    match View::checked(packet).expect("an error is a packet") {
        View::V4(view) => {
            assert!(view.has_valid_checksum());
            assert_eq!((view.ttl(), view.protocol()), (64, protocol::ICMP));
            assert!(packet.len() <= 576 && packet.len() == usize::from(view.total_len()));
            let message = icmp::View::checked(view.payload()).unwrap();
            assert!(message.has_valid_checksum());
            SentError {
                source: view.source().into(),
                destination: view.destination().into(),
                kind: message.kind(),
                code: message.code(),
                word: message.word(),
                quoted: message.quoted().expect("errors quote").to_vec(),
            }
        }
        View::V6(view) => {
            assert_eq!((view.hop_limit(), view.next_header()), (64, protocol::ICMPV6));
            assert!(packet.len() <= 1280 && packet.len() == 40 + view.payload().len());
            let message = icmpv6::View::checked(view.payload()).unwrap();
            assert!(message.has_valid_checksum(view.source(), view.destination()));
            SentError {
                source: view.source().into(),
                destination: view.destination().into(),
                kind: message.kind(),
                code: message.code(),
                word: message.word(),
                quoted: message.quoted().expect("errors quote").to_vec(),
            }
        }
    }
}

#[test]
fn the_sender_is_told_what_happened_to_its_packet() {
    use DropReason::*;
    let mut bed = Bed::new();
    bed.publish(2, AdjacencyState::Failed, 1500);
    bed.publish(6, AdjacencyState::Failed, 1500);
    bed.publish(1, AdjacencyState::Resolved, 1000);
    bed.publish(5, AdjacencyState::Resolved, 1280);
    let short4 = |to: &str| V4 { ttl: 1, ..V4::udp(to, 10) };
    let short6 = |to: &str| V6 { hop_limit: 1, ..V6::udp(to, 10) };
    let options = |options: &[u8]| V4 { options: options.to_vec(), ..V4::udp("8.8.8.8", 10) };
    // RFC 1812 §4.3.3.5: the pointer is the upper byte of the word.
    let at = |pointer: u32| (12, 0, pointer << 24);
    for (what, frame, reason, (kind, code, word)) in [
        ("an option of length 1", options(&[7, 1, 0, 0]).frame(), Ipv4HeaderInvalid, at(20)),
        ("a long option", options(&[1, 7, 9, 0]).frame(), Ipv4HeaderInvalid, at(21)),
        ("TTL 1", short4("198.51.100.9").frame(), HopLimitExceeded, (11, 0, 0)),
        ("TTL 0", V4 { ttl: 0, ..short4("8.8.8.8") }.frame(), HopLimitExceeded, (11, 0, 0)),
        ("no route", V4::udp("8.8.8.8", 10).frame(), NoRoute, (3, 0, 0)),
        ("unreachable", V4::udp("203.0.113.65", 10).frame(), RouteUnreachable, (3, 1, 0)),
        ("prohibited", V4::udp("203.0.113.129", 10).frame(), RouteProhibited, (3, 13, 0)),
        ("a dead neighbour", V4::udp("198.18.0.1", 10).frame(), NeighbourFailed, (3, 1, 0)),
        ("no service", V4::udp("10.0.0.1", 10).frame(), LocalNoService, (3, 3, 0)),
        ("on another port", V4::udp("10.0.2.1", 10).frame(), LocalNoService, (3, 3, 0)),
        (
            "too big to be cut",
            V4 { fragment: 0x4000, ..V4::udp("198.51.100.9", 973) }.frame(),
            TooBig,
            (3, 4, 1000),
        ),
        ("hop limit 1", short6("2001:db8:b::9").frame(), HopLimitExceeded, (3, 0, 0)),
        (
            "hop limit 0",
            V6 { hop_limit: 0, ..short6("2001::") }.frame(),
            HopLimitExceeded,
            (3, 0, 0),
        ),
        ("no IPv6 route", V6::udp("2001::", 10).frame(), NoRoute, (1, 0, 0)),
        ("unreachable", V6::udp("2001:db8:f1::", 10).frame(), RouteUnreachable, (1, 0, 0)),
        ("prohibited", V6::udp("2001:db8:f2::", 10).frame(), RouteProhibited, (1, 1, 0)),
        ("a dead neighbour", V6::udp("2001:db8:c::", 10).frame(), NeighbourFailed, (1, 3, 0)),
        ("no service", V6::udp("2001:db8::1", 10).frame(), LocalNoService, (1, 4, 0)),
        ("too big", V6::udp("2001:db8:b::", 1233).frame(), TooBig, (2, 0, 1280)),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!(outcome.said, Said::Transmit(0), "{what}");
        assert_eq!(outcome.origin, Origin::Error(reason), "{what}");
        let told = read(&outcome);
        assert_eq!((told.kind, told.code, told.word), (kind, code, word), "{what}");
        let stations = (&outcome.bytes[..6], &outcome.bytes[6..12]);
        assert_eq!(stations, (&station(0).0[..], &ours(0).0[..]), "{what}");
        let (from, to): (IpAddr, IpAddr) = match View::checked(&frame[14..]).unwrap() {
            // As IPv6 has it, from where a packet for us went; else from the port that the error leaves by.
            View::V4(view) if reason == LocalNoService => {
                (view.destination().into(), view.source().into())
            }
            View::V4(view) => ([10, 0, 0, 1].into(), view.source().into()),
            View::V6(view) => ("2001:db8::1".parse().unwrap(), view.source().into()),
        };
        assert_eq!((told.source, told.destination), (from, to), "{what}");
        assert_eq!(told.quoted, frame[14..][..told.quoted.len()], "{what}: as it came");
        let longest = if to.is_ipv4() { 548 } else { 1232 };
        assert_eq!(told.quoted.len(), (frame.len() - 14).min(longest), "{what}");
    }
}

/// The error is routed like any packet: its path need not be the one the packet took.
#[test]
fn an_error_takes_the_fibs_way_to_the_sender() {
    let mut bed = Bed::new();
    let from_elsewhere = V4 { source: [198, 18, 3, 3].into(), ..V4::udp("8.8.8.8", 0) };
    let outcome = bed.judge(0, &from_elsewhere.frame());
    assert_eq!(outcome.said, Said::Transmit(2));
    assert_eq!(outcome.bytes[..6], station(2).0);

    bed.publish(2, AdjacencyState::Unresolved, 1500);
    let outcome = bed.judge(0, &from_elsewhere.frame());
    assert_eq!(outcome.said, Said::Hold(2));
    assert_eq!(outcome.origin, Origin::Error(DropReason::NoRoute));

    let from_nowhere = V4 { source: [9, 9, 9, 9].into(), ..V4::udp("8.8.8.8", 0) };
    let outcome = bed.judge(0, &from_nowhere.frame());
    assert_eq!(outcome.said, Said::Drop(DropReason::NoRoute));
    assert_eq!(outcome.origin, Origin::Error(DropReason::NoRoute));
}

/// A link-local sender can only be answered on its link, and from a link-local address.
#[test]
fn a_link_local_sender_is_told_on_its_link() {
    let mut bed = Bed::new();
    let packet = V6 { source: "fe80::7".parse().unwrap(), ..V6::udp("2001::", 10) };
    let outcome = bed.judge(0, &packet.frame());
    assert_eq!(outcome.said, Said::Transmit(0));
    assert_eq!(outcome.bytes[..6], station(0).0);
    assert_eq!(read(&outcome).source, IpAddr::V6(link_local(0)));

    let mut from_a_group = packet.frame();
    from_a_group[6..12].copy_from_slice(&Mac::BROADCAST.0);
    let outcome = bed.judge(0, &from_a_group);
    assert_eq!(outcome.said, Said::Drop(DropReason::NoRoute), "else all would hear it");
}

/// No other station has an address of ours: what claims to come from one is neither taken nor answered.
#[test]
fn what_comes_from_an_address_of_ours_gets_no_answer() {
    let mut bed = Bed::new();
    for ours in ["10.0.0.1", "10.0.2.1"] {
        let from = |packet: V4| V4 { source: ours.parse().unwrap(), ..packet };
        for (packet, reason) in [
            (V4::ping("10.0.1.1"), DropReason::MartianSource),
            (V4::udp("10.0.0.1", 10), DropReason::MartianSource),
            (V4::udp("8.8.8.8", 10), DropReason::NoRoute),
            (V4 { ttl: 1, ..V4::udp("198.51.100.9", 10) }, DropReason::HopLimitExceeded),
        ] {
            let outcome = bed.judge(0, &from(packet).frame());
            assert_eq!(outcome.said, Said::Drop(reason), "from {ours}");
            assert_eq!(outcome.origin, Origin::Received, "from {ours}");
        }
    }
}

/// RFC 4443 §2.2 a and b: the packet's destination answers, unless that is every router of a network.
#[test]
fn an_error_about_a_packet_to_us_comes_from_where_it_went() {
    let mut bed = Bed::new();
    let expiring = |to: &str| V6 { hop_limit: 1, ..V6::icmp("2001:db8:a::7", to, 200, 0, b"") };
    for (to, from) in [
        ("2001:db8::1", "2001:db8::1"),
        ("2001:db8:2::1", "2001:db8:2::1"),
        ("fe80::11", "fe80::11"),
        ("2001:db8:2::", "2001:db8::1"),
    ] {
        let packet = V6 { next_header: 89, ..expiring(to) };
        let outcome = bed.judge(0, &packet.frame());
        assert_eq!(outcome.origin, Origin::Error(DropReason::LocalNoService), "to {to}");
        assert_eq!(read(&outcome).source, from.parse::<IpAddr>().unwrap(), "to {to}");
    }
}

/// RFC 1812 §4.3.2.7 and RFC 4443 §2.4 e; `icmp::rules` has all of them.
#[test]
fn nobody_is_told_about_errors_fragments_and_groups() {
    let mut bed = Bed::new();
    let expiring = |packet: V4| V4 { ttl: 1, ..packet };
    let error = V4::icmp("198.51.100.9", 3, 1, 0, &[0x45; 28]);
    let v6_error = V6::icmp("2001:db8:a::7", "2001:db8:b::9", 1, 0, &[0x60; 48]);
    for (what, frame) in [
        ("an error", expiring(error.clone()).frame()),
        ("an error without a route", V4 { destination: [8, 8, 8, 8].into(), ..error }.frame()),
        ("a later fragment", expiring(V4 { fragment: 2, ..V4::udp("198.51.100.9", 8) }).frame()),
        ("an IPv6 error", V6 { hop_limit: 1, ..v6_error }.frame()),
    ] {
        let outcome = bed.judge(0, &frame);
        assert!(matches!(outcome.said, Said::Drop(_)), "{what}");
        assert_eq!((outcome.origin, &outcome.bytes), (Origin::Received, &frame), "{what}");
    }
    let first = expiring(V4 { fragment: 0x2000, ..V4::udp("198.51.100.9", 8) });
    assert_eq!(bed.judge(0, &first.frame()).said, Said::Transmit(0), "about a first fragment");
    let ping = expiring(V4::ping("198.51.100.9"));
    assert_eq!(bed.judge(0, &ping.frame()).said, Said::Transmit(0), "about an echo request");
}

/// RFC 1812 §4.3.2.8, RFC 4443 §2.4 f.
#[test]
fn the_rate_limit_holds_errors_back_and_counts_them() {
    let mut bed = Bed::with_errors(RateLimit::new(1, 2));
    let frame = V4::udp("8.8.8.8", 10).frame();
    let said: Vec<Said> = (0..4).map(|_| bed.judge_at(SECOND, 0, &frame).said).collect();
    let dropped = Said::Drop(DropReason::NoRoute);
    assert_eq!(said, [Said::Transmit(0), Said::Transmit(0), dropped, dropped]);
    assert_eq!(bed.forwarder.errors_suppressed(), 2);
    assert_eq!(bed.judge_at(2 * SECOND, 0, &frame).said, Said::Transmit(0));
    // What may not be answered costs nothing.
    let silent = V4 { fragment: 2, ..V4::udp("8.8.8.8", 8) }.frame();
    assert_eq!(bed.judge_at(3 * SECOND, 0, &silent).said, dropped);
    assert_eq!(bed.judge_at(3 * SECOND, 0, &frame).said, Said::Transmit(0));
}

/// A flood of packets with a TTL or hop limit of 1 uses up the budget of errors; path MTU discovery continues, within a
/// budget of its own (RFC 4443 §2.4 f).
#[test]
fn a_flood_of_expired_packets_leaves_path_mtu_discovery_its_errors() {
    let expired = [
        V4 { ttl: 1, ..V4::udp("198.51.100.9", 10) }.frame(),
        V6 { hop_limit: 1, ..V6::udp("2001:db8:b::9", 10) }.frame(),
    ];
    let big = [
        V4 { fragment: 0x4000, ..V4::udp("198.51.100.9", 1400) }.frame(),
        V6::udp("2001:db8:b::9", 1400).frame(),
    ];
    for (expired, big) in expired.iter().zip(&big) {
        let mut bed = Bed::with_errors(RateLimit::new(10, 5));
        for slot in [1, 5] {
            bed.publish(slot, AdjacencyState::Resolved, 1280);
        }
        let (mut refused, mut told, mut flooded) = (0, 0, 0);
        // 1000 expired packets a second for 10 s, and four that are too big.
        for ms in 0..10_000_u64 {
            let now_ns = SECOND + ms * 1_000_000;
            let outcome = bed.judge_at(now_ns, 0, expired);
            match outcome.said {
                Said::Transmit(0) => flooded += 1,
                said => assert_eq!(said, Said::Drop(DropReason::HopLimitExceeded)),
            }
            if ms % 250 == 0 {
                let outcome = bed.judge_at(now_ns, 0, big);
                match outcome.said {
                    Said::Transmit(0) => told += 1,
                    _ => refused += 1,
                }
            }
        }
        assert_eq!((told, refused), (40, 0), "each sender learns the MTU");
        assert!(flooded <= 105, "{flooded} errors in 10 s");
        // A flood of packets that are too big is bounded as well, and leaves the others theirs.
        let now_ns = 20 * SECOND;
        let told = (0..1000).filter(|_| bed.judge_at(now_ns, 0, big).said == Said::Transmit(0));
        assert_eq!(told.count(), 5);
        assert_eq!(bed.judge_at(now_ns, 0, expired).said, Said::Transmit(0));
    }
}

/// A port without an address to speak from sends nothing, and sends once it has one.
#[test]
fn what_nobody_can_say_costs_nothing() {
    for frame in [V4::udp("8.8.8.8", 10).frame(), V6::udp("2001::", 10).frame()] {
        let mut bed = Bed::with_errors(RateLimit::new(0, 1));
        let ports = bed.forwarder.tables.ports.clone();
        let mut without = ports.to_vec();
        for port in &mut without {
            port.ipv4.clear();
            port.ipv6.clear();
        }
        bed.forwarder.tables.ports = without.into();
        for _ in 0..3 {
            assert_eq!(bed.judge(0, &frame).said, Said::Drop(DropReason::NoRoute));
        }
        bed.forwarder.tables.ports = ports;
        assert_eq!(bed.judge(0, &frame).said, Said::Transmit(0));
        assert_eq!(bed.judge(0, &frame).said, Said::Drop(DropReason::NoRoute));
        assert_eq!(bed.forwarder.errors_suppressed(), 1);
    }
}

/// RFC 791 §3.2: what is unique per source, destination and protocol can be told apart in pieces.
#[test]
fn errors_of_ours_are_numbered() {
    let mut bed = Bed::new();
    let frame = V4::udp("8.8.8.8", 10).frame();
    let number = |bed: &mut Bed| {
        let bytes = bed.judge(0, &frame).bytes;
        ipv4::View::checked(&bytes[14..]).unwrap().identification()
    };
    let first = number(&mut bed);
    assert_eq!(number(&mut bed), first.wrapping_add(1));
}

/// A port with IPv6 only speaks with another port's IPv4 address (RFC 1812 §4.3.2.4).
#[test]
fn a_port_without_an_address_borrows_one() {
    let mut bed = Bed::new();
    let mut ports = bed.forwarder.tables.ports.to_vec();
    ports[0].ipv4.clear();
    ports[0].ipv6.clear();
    bed.forwarder.tables.ports = ports.into();
    let told = read(&bed.judge(0, &V4::udp("8.8.8.8", 10).frame()));
    assert_eq!(told.source, IpAddr::from([10, 0, 1, 1]));
    let told = read(&bed.judge(0, &V6::udp("2001::", 10).frame()));
    assert_eq!(told.source, "2001:db8:1::1".parse::<IpAddr>().unwrap());

    let mut ports = bed.forwarder.tables.ports.to_vec();
    for port in &mut ports {
        port.ipv4.clear();
        port.ipv6.clear();
    }
    bed.forwarder.tables.ports = ports.into();
    for frame in [V4::udp("8.8.8.8", 10).frame(), V6::udp("2001::", 10).frame()] {
        let outcome = bed.judge(0, &frame);
        assert_eq!(outcome.said, Said::Drop(DropReason::NoRoute), "nobody to speak as");
        assert_eq!(outcome.origin, Origin::Received);
    }
}
