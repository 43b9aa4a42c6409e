//! Packets for ourselves: ARP, neighbour discovery, echo.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::{Checksum, DropReason, PortId, QueueId};

use super::super::{AdjacencyState, Key, Origin, Report};
use super::bed::*;
use crate::neighbour::{Claim, Kind};
use crate::wire::ethernet::{self, Mac};
use crate::wire::nd::{Advertisement, Message, Solicitation};
use crate::wire::{arp, icmp, icmpv6, ipv4, ipv6, protocol};

/// An ARP request from the station of port 0.
pub fn who_has(target: &str, sender: &str) -> Vec<u8> {
    let (target, sender) = (target.parse().unwrap(), sender.parse().unwrap());
    let packet = arp::Packet::request(station(0), sender, target);
    frame_of(&packet, Mac::BROADCAST)
}

pub fn frame_of(packet: &arp::Packet, to: Mac) -> Vec<u8> {
    let mut frame = vec![0; 60]; // As devices pad it.
    packet.emit_frame(&mut frame, to).unwrap();
    frame
}

/// The station of port 0 speaks as if it had our address.
pub fn claimed(addr: &str) -> Report {
    let key = Key { port: PortId(0), addr: addr.parse().unwrap() };
    Report::Claimed { key, mac: station(0).0, claim: Claim::Used }
}

fn answer(addr: &str, kind: Kind) -> Report {
    let key = Key { port: PortId(0), addr: addr.parse().unwrap() };
    Report::Answer { key, mac: Some(station(0).0), kind }
}

#[test]
fn who_asks_for_us_is_answered_and_remembered() {
    let mut bed = Bed::new();
    let outcome = bed.judge(0, &who_has("10.0.0.1", "10.0.0.9"));
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply));
    assert!(outcome.own && outcome.bytes.len() == arp::FRAME_LEN);
    assert_eq!((&outcome.bytes[..6], &outcome.bytes[6..12]), (&station(0).0[..], &ours(0).0[..]));
    let reply = arp::Packet::checked(&outcome.bytes[14..]).unwrap();
    let expected = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: ours(0),
        sender: [10, 0, 0, 1].into(),
        target_mac: station(0),
        target: [10, 0, 0, 9].into(),
    };
    assert_eq!(reply, expected);
    assert_eq!(bed.events(), [answer("10.0.0.9", Kind::ArpRequest)]);
}

#[test]
fn arp_that_asks_us_nothing_is_heard_and_not_answered() {
    let mut bed = Bed::new();
    let reply = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: station(0),
        sender: [10, 0, 0, 2].into(),
        target_mac: ours(0),
        target: [10, 0, 0, 1].into(),
    };
    let theirs = arp::Packet { target: [10, 0, 0, 9].into(), ..reply };
    for (what, frame, heard) in [
        ("a reply", frame_of(&reply, ours(0)), vec![answer("10.0.0.2", Kind::ArpReply)]),
        (
            "a question to others",
            who_has("10.0.0.9", "10.0.0.2"),
            vec![answer("10.0.0.2", Kind::Gratuitous)],
        ),
        (
            "an announcement",
            who_has("10.0.0.2", "10.0.0.2"),
            vec![answer("10.0.0.2", Kind::Gratuitous)],
        ),
        (
            "a reply to others",
            frame_of(&theirs, Mac::BROADCAST),
            vec![answer("10.0.0.2", Kind::Gratuitous)],
        ),
        // The target is another port's address: that is not on this link.
        (
            "a question for another port",
            who_has("10.0.1.1", "10.0.0.2"),
            vec![answer("10.0.0.2", Kind::Gratuitous)],
        ),
        ("a claim of our address", who_has("10.0.0.9", "10.0.0.1"), vec![claimed("10.0.0.1")]),
        ("a probe for another", who_has("10.0.0.9", "0.0.0.0"), vec![]),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (Said::Deliver, Origin::Received), "{what}");
        assert_eq!(bed.events(), heard, "{what}");
    }
}

/// RFC 5227 §2.4: a station that wants to take our address learns that it is taken. We learn nothing from it.
#[test]
fn our_address_is_defended() {
    let mut bed = Bed::new();
    for (sender, heard) in [("0.0.0.0", vec![]), ("10.0.0.1", vec![claimed("10.0.0.1")])] {
        let outcome = bed.judge(0, &who_has("10.0.0.1", sender));
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply), "{sender}");
        assert_eq!(bed.events(), heard, "{sender}");
    }
}

#[test]
fn a_ping_comes_back() {
    let mut bed = Bed::new();
    // To any of our addresses, at any TTL, by the way the FIB knows.
    for (to, ttl) in [("10.0.0.1", 64), ("10.0.0.1", 1), ("10.0.2.1", 0), ("10.0.1.1", 255)] {
        let ping = V4 { ttl, ..V4::ping(to) };
        let outcome = bed.judge(0, &ping.frame());
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply), "{to}");
        let view = ipv4::View::checked(&outcome.bytes[14..]).unwrap();
        assert!(view.has_valid_checksum());
        assert_eq!((view.source(), view.destination()), (to.parse().unwrap(), ping.source));
        let message = icmp::View::checked(view.payload()).unwrap();
        assert!(message.has_valid_checksum() && message.kind() == icmp::kind::ECHO_REPLY);
        assert_eq!(message.echo().unwrap().data, b"who is there");
        assert_eq!(outcome.bytes[..6], station(0).0);
    }
    for to in ["2001:db8::1", "2001:db8:2::1"] {
        let outcome = bed.judge(0, &V6::ping("2001:db8:a::7", to).frame());
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply), "{to}");
        let view = ipv6::View::checked(&outcome.bytes[14..]).unwrap();
        let (source, destination) = (view.source(), view.destination());
        assert_eq!((source, destination), (to.parse().unwrap(), "2001:db8:a::7".parse().unwrap()));
        let message = icmpv6::View::checked(view.payload()).unwrap();
        assert!(message.has_valid_checksum(source, destination));
        assert_eq!(message.kind(), icmpv6::kind::ECHO_REPLY);
    }
}

#[test]
fn a_link_local_ping_goes_back_the_way_it_came() {
    let mut bed = Bed::new();
    let ours_there = link_local(2).to_string();
    let mut frame = V6 { to: ours(2), ..V6::ping("fe80::99", &ours_there) }.frame();
    frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    let outcome = bed.judge(2, &frame);
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(2), Origin::Reply));
    assert_eq!(outcome.bytes[..6], [2, 9, 9, 9, 9, 9]);
    assert_eq!(outcome.bytes[6..12], ours(2).0);

    let padded = [&frame[..], &[0xaa; 9]].concat();
    assert_eq!(bed.judge(2, &padded).bytes, outcome.bytes, "without the padding of Ethernet");

    frame[6] |= 1; // From a group: the answer would reach every station.
    assert_eq!(bed.judge(2, &frame).said, Said::Drop(DropReason::NoRoute));
}

/// The port has no IPv6: no address on it is ours, and `::` is the unspecified address.
#[test]
fn a_port_without_ipv6_answers_for_no_link_local_address() {
    let mut bed = Bed::new();
    let mut ports = bed.forwarder.tables.ports.to_vec();
    ports[2].ipv6.clear();
    ports[2].anycast.clear();
    ports[2].link_local = None;
    bed.forwarder.tables.ports = ports.into();
    assert!(!bed.forwarder.port(PortId(2)).owns("::".parse().unwrap()));
    let target = link_local(2);
    let ping = V6 { to: ours(2), ..V6::ping("fe80::99", &target.to_string()) }.frame();
    assert_eq!(bed.judge(2, &ping).said, Said::Drop(DropReason::LinkLocalScope));
    let asker = "fe80::99".parse().unwrap();
    for question in
        [Solicitation::detect_duplicate(target), Solicitation::probe(station(2), asker, target)]
    {
        let mut frame = vec![0; 86];
        let len = question.emit(&mut frame, station(2), ours(2)).unwrap();
        frame.truncate(len);
        let outcome = bed.judge(2, &frame);
        assert_eq!(outcome.origin, Origin::Received, "{question:?}");
        assert!(!matches!(outcome.said, Said::Transmit(_)), "{question:?}");
    }
}

#[test]
fn what_is_no_whole_request_is_not_answered() {
    let mut bed = Bed::new();
    let mut damaged = V4::ping("10.0.0.1");
    damaged.payload[9] ^= 1;
    let mut damaged6 = V6::ping("2001:db8:a::7", "2001:db8::1");
    damaged6.payload[9] ^= 1;
    let fragment = V4 { fragment: 0x2000, ..V4::ping("10.0.0.1") };
    let other = V6 { next_header: 89, ..V6::ping("2001:db8:a::7", "2001:db8::1") };
    let endless = V6 { next_header: protocol::ROUTING, payload: vec![0, 9], ..other };
    let first = [protocol::UDP, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let piece6 = V6 { next_header: protocol::FRAGMENT, payload: first, ..other };
    let invalid = Said::Drop(DropReason::LocalInvalid);
    let nobody = Said::Drop(DropReason::LocalNoService);
    for (what, frame, said) in [
        ("a reply", V4::icmp("10.0.0.1", 0, 0, 1, b"").frame(), Said::Deliver),
        ("an error", V4::icmp("10.0.0.1", 3, 1, 0, &[0x45; 28]).frame(), Said::Deliver),
        ("a damaged request", damaged.frame(), invalid),
        ("ICMP without a header", V4 { payload: vec![8, 0], ..damaged }.frame(), invalid),
        ("a fragment", fragment.frame(), nobody),
        (
            "an IPv6 reply",
            V6::icmp("2001:db8:a::7", "2001:db8::1", 129, 0, b"").frame(),
            Said::Deliver,
        ),
        ("a damaged IPv6 request", damaged6.frame(), invalid),
        ("an IPv6 fragment", piece6.frame(), nobody),
        ("a header beyond the packet", endless.frame(), invalid),
        (
            "a ping to all nodes",
            V6 { to: Mac([0x33, 0x33, 0, 0, 0, 1]), ..V6::ping("fe80::7", "ff02::1") }.frame(),
            Said::Deliver,
        ),
        (
            "a ping from nobody",
            V6::ping("::", "2001:db8::1").frame(),
            Said::Drop(DropReason::MartianSource),
        ),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (said, Origin::Received), "{what}");
    }
}

/// The headers have been looked at; the reply has none (RFC 4443 §4.2).
#[test]
fn a_ping_behind_extension_headers_comes_back_without_them() {
    let mut bed = Bed::new();
    let ping = V6::ping("2001:db8:a::7", "2001:db8::1");
    let plain = bed.judge(0, &ping.frame());
    let options = [protocol::FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
    let whole = [protocol::ICMPV6, 0, 0, 0, 0, 0, 0, 1];
    let payload = [&options[..], &whole, &ping.payload].concat();
    let behind = V6 { next_header: protocol::DESTINATION_OPTIONS, payload, ..ping };
    assert_eq!(bed.judge(0, &behind.frame()), plain);
    assert_eq!(plain.said, Said::Transmit(0));
}

/// A packet received by a large port may have to leave by a small one.
#[test]
fn an_echo_reply_too_large_for_its_way_out_is_cut_or_dropped() {
    let mut bed = Bed::new();
    bed.publish(0, AdjacencyState::Resolved, 1000);
    bed.publish(4, AdjacencyState::Resolved, 1280);
    let data = [7; 1300];
    let ping = V4::icmp("10.0.0.1", 8, 0, 1, &data);
    // The reserved flag, DF: what the request must not suffer, the reply may (RFC 791 §3.1).
    let mut numbers = [0, 0x8000, 0x4000].map(|fragment| {
        let outcome = bed.judge(0, &V4 { fragment, ..ping.clone() }.frame());
        let view = ipv4::View::quoted(&outcome.bytes[14..]).unwrap();
        assert_eq!((outcome.said, view.flags_and_offset()), (Said::Fragment(0), 0), "{fragment:x}");
        assert!(view.has_valid_checksum());
        view.identification()
    });
    numbers.sort_unstable();
    assert!(numbers[0] < numbers[1] && numbers[1] < numbers[2], "their pieces are told apart");
    let ping6 = V6::icmp("2001:db8:a::7", "2001:db8::1", 128, 0, &data);
    assert_eq!(bed.judge(0, &ping6.frame()).said, Said::Drop(DropReason::TooBig));
}

pub fn solicitation(question: Solicitation) -> Vec<u8> {
    let mut frame = vec![0; 86];
    let len = question.emit(&mut frame, station(0), ours(0)).unwrap();
    frame.truncate(len);
    frame
}

#[test]
fn a_solicitation_is_answered_by_an_advertisement() {
    let mut bed = Bed::new();
    let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let them: Ipv6Addr = "2001:db8::2".parse().unwrap();
    for (question, to_group) in [
        (Solicitation::ask(station(0), them, global), true),
        (Solicitation::ask(station(0), them, link_local(0)), true),
        (Solicitation::probe(station(0), them, global), false),
    ] {
        let frame = solicitation(question);
        assert_eq!(frame[0] == 0x33, to_group);
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply));
        assert_eq!(
            (&outcome.bytes[..6], &outcome.bytes[6..12]),
            (&station(0).0[..], &ours(0).0[..])
        );
        let expected = Advertisement {
            source: question.target,
            destination: them,
            target: question.target,
            router: true,
            solicited: true,
            overrides: true,
            link_layer: Some(ours(0)),
        };
        let read = Message::checked(&outcome.bytes[14..]);
        assert_eq!(read, Some(Message::Advertisement(expected)));
        assert_eq!(bed.events(), [answer("2001:db8::2", Kind::Solicitation)]);
    }
}

/// RFC 4862 §5.4.3: the asking station has no address, so every station gets the answer, and nothing is learnt.
#[test]
fn duplicate_address_detection_hears_that_the_address_is_taken() {
    let mut bed = Bed::new();
    let frame = solicitation(Solicitation::detect_duplicate(link_local(0)));
    let outcome = bed.judge(0, &frame);
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply));
    assert_eq!(outcome.bytes[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let Some(Message::Advertisement(told)) = Message::checked(&outcome.bytes[14..]) else {
        panic!("no advertisement");
    };
    assert_eq!((told.destination, told.solicited), (ipv6::ALL_NODES, false));
    assert_eq!(bed.events(), []);
}

#[test]
fn a_solicitation_for_another_is_left_to_it() {
    let mut bed = Bed::new();
    let them: Ipv6Addr = "2001:db8::2".parse().unwrap();
    // The same group as ours, another address.
    let target: Ipv6Addr = "2001:db8:77::1".parse().unwrap();
    let frame = solicitation(Solicitation::ask(station(0), them, target));
    let outcome = bed.judge(0, &frame);
    assert_eq!((outcome.said, outcome.origin), (Said::Deliver, Origin::Received));
    assert_eq!(bed.events(), []);
}

#[test]
fn an_advertisement_is_reported_with_its_flags() {
    let mut bed = Bed::new();
    let them: Ipv6Addr = "2001:db8::2".parse().unwrap();
    let question = Solicitation::ask(ours(0), "2001:db8::1".parse().unwrap(), them);
    let told = Advertisement::answer(&question, station(0));
    let mut frame = vec![0; 86];
    told.emit(&mut frame, station(0), ours(0)).unwrap();
    assert_eq!(bed.judge(0, &frame).said, Said::Deliver);
    let kind = Kind::Advertisement { router: true, solicited: true, overrides: true };
    assert_eq!(bed.events(), [answer("2001:db8::2", kind)]);

    frame[21] = 254; // A router has passed it on: it proves nothing.
    assert_eq!(bed.judge(0, &frame).said, Said::Deliver);
    assert_eq!(bed.events(), []);

    // Another station claims our address.
    let conflict = Advertisement::unsolicited("2001:db8::1".parse().unwrap(), station(0));
    conflict.emit(&mut frame, station(0), Mac::BROADCAST).unwrap();
    assert_eq!(bed.judge(0, &frame).said, Said::Deliver);
    assert_eq!(bed.events(), [claimed("2001:db8::1")]);
}

#[test]
fn our_own_questions_come_from_the_address_that_can_be_answered() {
    let mut bed = Bed::new();
    let mut ask = |addr: &str, unicast: Option<[u8; 6]>| {
        let mut frame = bed.pool.take().unwrap();
        bed.region.set_ingress(&mut frame, PortId(1), QueueId(0), Checksum::Valid);
        let key = Key { port: PortId(1), addr: addr.parse().unwrap() };
        let asked = bed.forwarder.solicit(&mut frame, key, unicast);
        let bytes = bed.region.bytes(&frame).to_vec();
        bed.pool.give_back(frame);
        asked.map(|_| bytes)
    };
    for (target, unicast) in [("10.0.1.9", None), ("10.0.1.9", Some([2; 6])), ("9.9.9.9", None)] {
        let frame = ask(target, unicast).unwrap();
        assert_eq!(frame[..6], unicast.unwrap_or([0xff; 6]));
        let packet = arp::Packet::checked(&frame[14..]).unwrap();
        let own = Ipv4Addr::new(10, 0, 1, 1);
        assert_eq!((packet.sender, packet.sender_mac), (own, ours(1)));
        assert_eq!(packet.target, target.parse::<Ipv4Addr>().unwrap());
    }
    for (target, source) in [("2001:db8:1::9", "2001:db8:1::1"), ("fe80::9", "fe80::12")] {
        for unicast in [None, Some([2; 6])] {
            let frame = ask(target, unicast).unwrap();
            let view = ethernet::View::checked(&frame).unwrap();
            let to = Mac::solicited_node(target.parse().unwrap());
            assert_eq!(view.destination(), unicast.map_or(to, Mac));
            let Some(Message::Solicitation(question)) = Message::checked(&frame[14..]) else {
                panic!("no solicitation");
            };
            assert_eq!(question.source, source.parse::<Ipv6Addr>().unwrap());
            assert_eq!(question.link_layer, Some(ours(1)));
        }
    }
    let mut ports = bed.forwarder.tables.ports.to_vec();
    ports[1].ipv4.clear();
    bed.forwarder.tables.ports = ports.into();
    let mut frame = bed.pool.take().unwrap();
    let key = Key { port: PortId(1), addr: [10, 0, 1, 9].into() };
    assert!(bed.forwarder.solicit(&mut frame, key, None).is_none(), "nobody to ask as");
    bed.pool.give_back(frame);
}
