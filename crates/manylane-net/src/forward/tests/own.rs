//! Addresses of ours that another station may have: which questions are answered, what is reported, what is sent.

use std::net::Ipv6Addr;
use std::time::Duration;

use manylane_frame::vocabulary::{Checksum, DropReason, PortId, QueueId};

use super::super::{Key, Origin, Report};
use super::bed::*;
use super::ours::{claimed, frame_of, solicitation, who_has};
use crate::neighbour::{Claim, DuplicateDetection, Kind, OwnTable, Standing};
use crate::wire::ethernet::{self, Mac};
use crate::wire::nd::{Advertisement, Message, Solicitation};
use crate::wire::{arp, ipv4, ipv6};

const V4_OURS: &str = "10.0.0.1";
const V6_OURS: &str = "2001:db8::1";

/// Port 0's addresses are being probed, and used meanwhile or not.
fn bed(mode: DuplicateDetection) -> (Bed, OwnTable) {
    let mut bed = Bed::new();
    let ours = [V4_OURS.parse().unwrap(), V6_OURS.parse().unwrap(), link_local(0).into()];
    let keys = ours.map(|addr| Key { port: PortId(0), addr });
    let table = OwnTable::new(keys, mode, 1, Duration::ZERO);
    bed.forwarder.tables.own = table.reader();
    (bed, table)
}

fn wanted(addr: &str) -> Report {
    let key = Key { port: PortId(0), addr: addr.parse().unwrap() };
    Report::Claimed { key, mac: station(0).0, claim: Claim::Wanted }
}

fn advertised(target: Ipv6Addr, link_layer: Option<Mac>, from: Mac) -> Vec<u8> {
    let news = Advertisement { link_layer, ..Advertisement::unsolicited(target, from) };
    let mut frame = vec![0; 86];
    let len = news.emit(&mut frame, from, Mac::BROADCAST).unwrap();
    frame.truncate(len);
    frame
}

/// The table at the door of `forward::own`, for addresses that are not used yet. No question is answered.
#[test]
fn an_address_that_is_not_used_is_not_answered_for_and_every_claim_is_reported() {
    let (mut bed, _table) = bed(DuplicateDetection::Strict);
    let (ours6, them): (Ipv6Addr, Ipv6Addr) =
        (V6_OURS.parse().unwrap(), "2001:db8::2".parse().unwrap());
    let reply = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: station(0),
        sender: V4_OURS.parse().unwrap(),
        target_mac: ours(0),
        target: [10, 0, 0, 9].into(),
    };
    let looped = arp::Packet::request(ours(0), [0, 0, 0, 0].into(), V4_OURS.parse().unwrap());
    let mut looped6 = solicitation(Solicitation::detect_duplicate(ours6));
    looped6[6..12].copy_from_slice(&ours(0).0);
    let from_ours = solicitation(Solicitation::ask(station(0), ours6, link_local(0)));
    for (what, frame, heard) in [
        ("an ARP probe", who_has(V4_OURS, "0.0.0.0"), vec![wanted(V4_OURS)]),
        ("an ARP announcement", who_has(V4_OURS, V4_OURS), vec![claimed(V4_OURS)]),
        ("an ARP request from it", who_has("10.0.0.9", V4_OURS), vec![claimed(V4_OURS)]),
        ("an ARP reply from it", frame_of(&reply, ours(0)), vec![claimed(V4_OURS)]),
        ("our own probe", frame_of(&looped, Mac::BROADCAST), vec![]),
        (
            "duplicate address detection",
            solicitation(Solicitation::detect_duplicate(ours6)),
            vec![wanted(V6_OURS)],
        ),
        ("our own, looped back", looped6, vec![]),
        (
            "an advertisement",
            advertised(ours6, Some(station(0)), station(0)),
            vec![claimed(V6_OURS)],
        ),
        ("one without an address", advertised(ours6, None, station(0)), vec![claimed(V6_OURS)]),
        ("our own advertisement", advertised(ours6, Some(ours(0)), ours(0)), vec![]),
        ("a solicitation", solicitation(Solicitation::ask(station(0), them, ours6)), vec![]),
        // The target is not used either: nothing more to check.
        ("a solicitation from it", from_ours, vec![]),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (Said::Deliver, Origin::Received), "{what}");
        assert_eq!(bed.events(), heard, "{what}");
    }
    // A station that looks for it is no neighbour that we could answer, but shows its own address all the same.
    bed.judge(0, &who_has(V4_OURS, "10.0.0.9"));
    assert!(matches!(bed.events()[..], [Report::Answer { .. }]));
}

/// RFC 4429 §3.3: an address that may be another's is answered for, and does not override.
#[test]
fn an_address_in_optimistic_use_is_answered_for_without_overriding() {
    let (mut bed, mut table) = bed(DuplicateDetection::Optimistic);
    let (ours6, them): (Ipv6Addr, Ipv6Addr) =
        (V6_OURS.parse().unwrap(), "2001:db8::2".parse().unwrap());
    let question = solicitation(Solicitation::ask(station(0), them, ours6));
    for (expected, seconds) in [(false, 0), (true, 30)] {
        while let Some(now) = table.deadline().filter(|&due| due <= Duration::from_secs(seconds)) {
            table.tick(now, &mut Vec::new());
        }
        if !expected {
            // A station that wants it learns that it is taken; nothing to report.
            let probe = bed.judge(0, &who_has(V4_OURS, "0.0.0.0"));
            assert_eq!((probe.said, probe.origin), (Said::Transmit(0), Origin::Reply));
            assert_eq!(bed.events(), []);
        }
        let outcome = bed.judge(0, &question);
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply));
        let Some(Message::Advertisement(told)) = Message::checked(&outcome.bytes[14..]) else {
            panic!("no advertisement");
        };
        assert_eq!((told.overrides, told.solicited), (expected, true));
        bed.events();
    }
    // In use, a station that asks from our address lays claim to it, and is answered.
    let from_ours = solicitation(Solicitation::ask(station(0), ours6, link_local(0)));
    assert_eq!(bed.judge(0, &from_ours).said, Said::Transmit(0));
    assert_eq!(bed.events(), [claimed(V6_OURS)]);
}

/// RFC 4862 §5.4: what is not ours yet, or not any more, is no source.
#[test]
fn nothing_is_sent_from_an_address_that_is_not_used() {
    let (mut bed, mut table) = bed(DuplicateDetection::Strict);
    let ask = |bed: &mut Bed, addr: &str| {
        let mut frame = bed.pool.take().unwrap();
        bed.region.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
        let key = Key { port: PortId(0), addr: addr.parse().unwrap() };
        let asked = bed.forwarder.solicit(&mut frame, key, None);
        bed.pool.give_back(frame);
        asked
    };
    let expired = [V4 { ttl: 1, ..V4::udp("198.51.100.9", 10) }.frame()];
    for addr in ["10.0.0.9", "2001:db8::9", "fe80::9"] {
        assert_eq!(ask(&mut bed, addr), None, "{addr}");
    }
    // The errors come from another port's addresses.
    let other = |bytes: &[u8]| ipv4::View::checked(&bytes[14..]).unwrap().source();
    assert_eq!(other(&bed.judge(0, &expired[0]).bytes), std::net::Ipv4Addr::new(10, 0, 1, 1));
    let expired6 = V6 { hop_limit: 1, ..V6::udp("2001:db8:b::9", 10) }.frame();
    let source = ipv6::View::checked(&bed.judge(0, &expired6).bytes[14..]).unwrap().source();
    assert_eq!(source, "2001:db8:1::1".parse::<Ipv6Addr>().unwrap());

    while let Some(now) = table.deadline() {
        table.tick(now, &mut Vec::new());
    }
    for addr in ["10.0.0.9", "2001:db8::9", "fe80::9"] {
        assert_eq!(ask(&mut bed, addr), Some(PortId(0)), "{addr}");
    }
    assert_eq!(other(&bed.judge(0, &expired[0]).bytes), std::net::Ipv4Addr::new(10, 0, 0, 1));
}

/// RFC 4429 §3.2: the receiver of a question remembers its sender. From an address that may be another station's, ask
/// nothing, or ask from the unspecified address.
#[test]
fn a_question_never_comes_from_an_address_that_may_be_anothers() {
    let (mut bed, mut table) = bed(DuplicateDetection::Optimistic);
    let ask = |bed: &mut Bed, addr: &str, unicast: Option<[u8; 6]>| {
        let mut frame = bed.pool.take().unwrap();
        bed.region.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
        let key = Key { port: PortId(0), addr: addr.parse().unwrap() };
        let asked = bed.forwarder.solicit(&mut frame, key, unicast);
        let bytes = asked.map(|_| bed.region.bytes(&frame)[14..].to_vec());
        bed.pool.give_back(frame);
        bytes
    };
    let arp_sender = |bytes: Option<Vec<u8>>| arp::Packet::checked(&bytes.unwrap()).unwrap().sender;
    let nd_source = |bytes: Option<Vec<u8>>| match Message::checked(&bytes?) {
        Some(Message::Solicitation(question)) => Some(question.source),
        other => panic!("{other:?}"),
    };
    for unicast in [None, Some(station(0).0)] {
        let question = ask(&mut bed, "10.0.0.9", unicast);
        assert!(arp::Packet::checked(&question.clone().unwrap()).unwrap().is_probe());
        assert_eq!(arp_sender(question), std::net::Ipv4Addr::UNSPECIFIED);
        for addr in ["2001:db8::9", "fe80::9"] {
            assert_eq!(ask(&mut bed, addr, unicast), None, "{addr}");
        }
    }
    // The answer to a question from the unspecified address is the neighbour's, as to any other.
    let answer = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: station(0),
        sender: [10, 0, 0, 9].into(),
        target_mac: ours(0),
        target: [0, 0, 0, 0].into(),
    };
    for (target_mac, kind) in [(ours(0), Kind::ArpReply), (station(1), Kind::Gratuitous)] {
        bed.judge(0, &frame_of(&arp::Packet { target_mac, ..answer }, ours(0)));
        let key = Key { port: PortId(0), addr: answer.sender.into() };
        let mac = Some(station(0).0);
        assert_eq!(bed.events(), [Report::Answer { key, mac, kind }]);
    }
    // The first that is ours alone speaks for the others.
    let (own, global) = (link_local(0), V6_OURS.parse::<Ipv6Addr>().unwrap());
    let is_ours = |table: &OwnTable, addr: std::net::IpAddr| {
        table.reader().standing(Key { port: PortId(0), addr }) == Standing::Ours
    };
    while let Some(now) = table.deadline() {
        table.tick(now, &mut Vec::new());
        let ours = [is_ours(&table, global.into()), is_ours(&table, own.into())];
        let expected =
            |order: [usize; 2]| order.into_iter().find(|&at| ours[at]).map(|at| [global, own][at]);
        assert_eq!(nd_source(ask(&mut bed, "2001:db8::9", None)), expected([0, 1]));
        assert_eq!(nd_source(ask(&mut bed, "fe80::9", None)), expected([1, 0]));
    }
    assert_eq!(arp_sender(ask(&mut bed, "10.0.0.9", None)), std::net::Ipv4Addr::new(10, 0, 0, 1));
}

/// RFC 1812 §5.3.13.5: the route a packet took names addresses that are ours, and used.
#[test]
fn an_address_that_is_not_used_is_not_written_into_a_packet() {
    let mut bed = Bed::new();
    let key = Key { port: PortId(1), addr: [10, 0, 1, 1].into() };
    let mut table = OwnTable::new([key], DuplicateDetection::Strict, 1, Duration::ZERO);
    bed.forwarder.tables.own = table.reader();
    let record = vec![7, 7, 4, 0, 0, 0, 0, 0];
    let record = V4 { options: record, ..V4::udp("198.51.100.9", 10) }.frame();
    let written = |bed: &mut Bed| {
        let outcome = bed.judge(0, &record);
        assert_eq!(outcome.said, Said::Transmit(1));
        <[u8; 4]>::try_from(&outcome.bytes[37..41]).unwrap()
    };
    assert_eq!(written(&mut bed), [10, 0, 0, 1], "another port's");
    while let Some(now) = table.deadline() {
        table.tick(now, &mut Vec::new());
    }
    assert_eq!(written(&mut bed), [10, 0, 1, 1]);
    // A timestamp is wanted of one address only: ours, as routes say, or not.
    for (wanted, pointer) in [([10, 0, 2, 1], 13), ([10, 0, 2, 9], 5), ([10, 0, 2, 255], 5)] {
        let options = [&[68, 12, 5, 3][..], &wanted, &[0; 4]].concat();
        let outcome = bed.judge(0, &V4 { options, ..V4::udp("198.51.100.9", 10) }.frame());
        assert_eq!(outcome.bytes[36], pointer, "{wanted:?}");
    }
}

/// A flood of claims tells no more than one of them.
#[test]
fn a_claim_is_reported_once_a_second() {
    let (mut bed, _table) = bed(DuplicateDetection::Optimistic);
    bed.forwarder.heard = super::super::heard::Heard::new(&bed.forwarder.tables);
    let claims = [
        (0, who_has(V4_OURS, V4_OURS)),
        (0, advertised(V6_OURS.parse().unwrap(), Some(station(0)), station(0))),
    ];
    for (after_ns, reports) in [(0, 2), (1, 0), (SECOND - 1, 0), (SECOND, 2), (SECOND + 1, 0)] {
        let now_ns = SECOND + after_ns;
        bed.judge_batch(now_ns, &claims);
        assert_eq!(bed.events().len(), reports, "{now_ns}");
    }
}

/// A link-local address has no route that could be taken away.
#[test]
fn packets_to_a_link_local_address_that_is_not_used_are_dropped() {
    let (mut bed, mut table) = bed(DuplicateDetection::Strict);
    let ping = V6 { to: ours(0), ..V6::ping("fe80::99", &link_local(0).to_string()) }.frame();
    assert_eq!(bed.judge(0, &ping).said, Said::Drop(DropReason::LinkLocalScope));
    while let Some(now) = table.deadline() {
        table.tick(now, &mut Vec::new());
    }
    assert_eq!(bed.judge(0, &ping).said, Said::Transmit(0));
}

#[test]
fn probes_come_from_nobody_and_announcements_go_to_everybody() {
    let mut bed = Bed::new();
    let mut made = |announce: bool, addr: &str| {
        let mut frame = bed.pool.take().unwrap();
        let key = Key { port: PortId(1), addr: addr.parse().unwrap() };
        let done = match announce {
            true => bed.forwarder.announce(&mut frame, key),
            false => bed.forwarder.probe(&mut frame, key),
        };
        assert_eq!(done, Some(PortId(1)));
        let bytes = bed.region.bytes(&frame).to_vec();
        bed.pool.give_back(frame);
        let view = ethernet::View::checked(&bytes).unwrap();
        assert_eq!(view.source(), ours(1));
        (view.destination(), bytes[14..].to_vec())
    };
    let probe = |announce: bool, sender: [u8; 4], made: (Mac, Vec<u8>)| {
        assert_eq!(made.0, Mac::BROADCAST);
        let packet = arp::Packet::checked(&made.1).unwrap();
        assert_eq!((packet.sender, packet.target), (sender.into(), [10, 0, 1, 1].into()));
        assert_eq!((packet.is_announcement(), packet.is_probe()), (announce, !announce));
    };
    probe(false, [0, 0, 0, 0], made(false, "10.0.1.1"));
    probe(true, [10, 0, 1, 1], made(true, "10.0.1.1"));

    let target: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let (to, packet) = made(false, "2001:db8:1::1");
    assert_eq!(to, Mac::solicited_node(target));
    let question = Solicitation::detect_duplicate(target);
    assert_eq!(Message::checked(&packet), Some(Message::Solicitation(question)));
    let (to, packet) = made(true, "2001:db8:1::1");
    assert_eq!(to, Mac([0x33, 0x33, 0, 0, 0, 1]));
    let news = Advertisement::unsolicited(target, ours(1));
    assert_eq!(Message::checked(&packet), Some(Message::Advertisement(news)));
}
