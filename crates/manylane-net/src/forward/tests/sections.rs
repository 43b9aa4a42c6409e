//! The rules of a router by their sections: for each a packet that it is about, and what becomes of that.
//!
//! `rules.rs` has the packets that are dropped in silence, from every address; `errors.rs` the error in each case;
//! `icmp::rules` the packets about which no error is sent. Here is one line for each section, so that a rule that is
//! not kept any more is missed by its number. Sections that are not implemented are listed in docs/rules.md.

use manylane_frame::vocabulary::DropReason::{self, *};

use super::super::{AdjacencyState, Origin};
use super::bed::*;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{Mac, ether_type};
use crate::wire::ip::View;
use crate::wire::{icmp, icmpv6, protocol};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The packet leaves by port 1.
    Passes,
    /// The same in pieces.
    IsCut,
    /// The packet is for us; no answer.
    IsOurs,
    /// The packet is answered.
    IsAnswered,
    /// The packet is dropped in silence.
    Ends(DropReason),
    /// The packet is dropped, and its sender gets an error with type, code and the second word.
    IsTold(DropReason, u8, u8, u32),
}
use Then::*;

fn then(bed: &mut Bed, frame: &[u8]) -> Then {
    let outcome = bed.judge(0, frame);
    match (outcome.said, outcome.origin) {
        (Said::Transmit(1), Origin::Received) => Passes,
        (Said::Fragment(1), Origin::Received) => IsCut,
        (Said::Deliver, Origin::Received) => IsOurs,
        (Said::Transmit(0), Origin::Reply) => IsAnswered,
        (Said::Drop(reason), Origin::Received) => Ends(reason),
        (Said::Transmit(0), Origin::Error(reason)) => {
            let (kind, code, word) = match View::checked(&outcome.bytes[14..]) {
                Some(View::V4(view)) => {
                    let message = icmp::View::checked(view.payload()).expect("an error");
                    (message.kind(), message.code(), message.word())
                }
                Some(View::V6(view)) => {
                    let message = icmpv6::View::checked(view.payload()).expect("an error");
                    assert!(message.has_valid_checksum(view.source(), view.destination()));
                    (message.kind(), message.code(), message.word())
                }
                None => panic!("an error is a packet"),
            };
            IsTold(reason, kind, code, word)
        }
        other => panic!("{other:?}"),
    }
}

fn holds(table: Vec<(&str, &str, Vec<u8>, Then)>) {
    let mut bed = Bed::new();
    bed.publish(1, AdjacencyState::Resolved, 1000);
    bed.publish(5, AdjacencyState::Resolved, 1280);
    bed.publish(2, AdjacencyState::Failed, 1500);
    bed.publish(6, AdjacencyState::Failed, 1500);
    for (section, what, frame, expected) in table {
        assert_eq!(then(&mut bed, &frame), expected, "{section}: {what}");
    }
}

const FAR4: &str = "198.51.100.9";
const FAR6: &str = "2001:db8:b::9";

fn v4(change: impl FnOnce(&mut V4)) -> Vec<u8> {
    let mut packet = V4::udp(FAR4, 10);
    change(&mut packet);
    packet.frame()
}

fn to4(to: &str) -> Vec<u8> {
    v4(|p| p.destination = to.parse().expect("IPv4"))
}

fn options4(options: &[u8]) -> Vec<u8> {
    v4(|p| p.options = options.to_vec())
}

fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

/// A segment for us that opens a connection, changed after its checksum was made.
fn tcp4(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = V4::udp("10.0.0.1", 0);
    let mut segment = vec![1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0];
    let pseudo = Sum::pseudo_v4(packet.source, packet.destination, protocol::TCP, 20);
    let checksum = pseudo.plus(&segment).finish();
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    change(&mut segment);
    (packet.protocol, packet.payload) = (protocol::TCP, segment);
    packet.frame()
}

/// RFC 1812, and what has changed it since.
#[rustfmt::skip]
#[test]
fn ipv4_is_routed_by_its_sections() {
    let dont = |len| V4 { fragment: 0x4000, ..V4::udp(FAR4, len) }.frame();
    let ours = "10.0.0.1";
    let error = V4::icmp(FAR4, 3, 1, 0, &[0x45; 28]);
    let in_broadcast = |ttl| v4(|p| (p.to, p.ttl) = (Mac::BROADCAST, ttl));
    let from4 = |from: &str| v4(|p| p.source = from.parse().expect("IPv4"));
    let of = |protocol| v4(|p| (p.destination, p.protocol) = ([10, 0, 0, 1].into(), protocol));
    holds(vec![
        ("RFC 826", "a question for us", super::ours::who_has(ours, "10.0.0.9"), IsAnswered),
        ("RFC 894", "neither IPv4, IPv6 nor ARP", in_ethernet(super::bed::ours(0), station(0), 0x88cc, &[0; 46]), Ends(UnknownEtherType)),
        ("1812 §3.3.2", "a neighbour that does not answer", to4("198.18.0.1"), IsTold(NeighbourFailed, 3, 1, 0)),
        ("1812 §4.2.2.1", "options that we need not know", options4(&[148, 4, 0, 0]), Passes),
        ("1812 §4.2.2.3", "the reserved flag", v4(|p| p.fragment = 0x8000), Passes),
        ("1812 §4.2.2.5", "a wrong checksum", with(to4(FAR4), 24, 0xaa), Ends(Ipv4ChecksumInvalid)),
        ("1812 §4.2.2.7", "too large, and may be cut", V4::udp(FAR4, 973).frame(), IsCut),
        ("1812 §4.2.3.1", "to the network's broadcast of old", to4("10.0.1.0"), Ends(DirectedBroadcast)),
        ("1191 §4", "too large, and may not", dont(973), IsTold(TooBig, 3, 4, 1000)),
        ("1191 §4", "as large as may be", dont(972), Passes),
        ("1812 §4.3.2.1", "ICMP of an unknown type, for us", V4::icmp(ours, 77, 0, 0, b"").frame(), IsOurs),
        ("1812 §4.3.2.7", "about an error", V4 { ttl: 1, ..error }.frame(), Ends(HopLimitExceeded)),
        ("1812 §4.3.2.7", "about a later fragment", v4(|p| (p.ttl, p.fragment) = (1, 2)), Ends(HopLimitExceeded)),
        ("1812 §4.3.2.7", "about a link broadcast", in_broadcast(1), Ends(LinkBroadcast)),
        ("1812 §4.3.3.5", "an option that is too long", options4(&[7, 9, 0, 0]), IsTold(Ipv4HeaderInvalid, 12, 0, 20 << 24)),
        ("1812 §4.3.3.6", "an echo request", V4::ping(ours).frame(), IsAnswered),
        ("1812 §4.3.3.8", "a timestamp request", V4::icmp(ours, 13, 0, 0, &[0; 12]).frame(), IsOurs),
        ("1812 §5.2.2", "version 6", with(to4(FAR4), 14, 0x65), Ends(Ipv4HeaderInvalid)),
        ("1812 §5.2.2", "a header of 16 bytes", with(to4(FAR4), 14, 0x44), Ends(Ipv4HeaderInvalid)),
        ("1812 §5.2.2", "shorter than its length", with(to4(FAR4), 16, 1), Ends(Ipv4HeaderInvalid)),
        ("1812 §5.2.3", "ours at TTL 1", V4 { ttl: 1, ..V4::ping(ours) }.frame(), IsAnswered),
        ("1812 §5.2.3", "ours of another port", V4::ping("10.0.2.1").frame(), IsAnswered),
        ("1812 §5.2.4.3", "no route", to4("8.8.8.8"), IsTold(NoRoute, 3, 0, 0)),
        ("1812 §5.2.7.1", "a protocol that we do not speak", of(89), IsTold(LocalNoService, 3, 2, 0)),
        ("1812 §5.2.7.1", "a port where nobody listens", V4::udp(ours, 10).frame(), IsTold(LocalNoService, 3, 3, 0)),
        ("768", "without a checksum", with(with(V4::udp(ours, 10).frame(), 40, 0), 41, 0), IsTold(LocalNoService, 3, 3, 0)),
        ("1122 §4.1.3.4", "with a wrong one", with(V4::udp(ours, 10).frame(), 41, 0x55), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "longer than its packet", with(V4::udp(ours, 10).frame(), 39, 19), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "shorter than its header", with(V4::udp(ours, 10).frame(), 39, 7), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "without a header", V4 { payload: vec![7; 7], ..V4::udp(ours, 10) }.frame(), Ends(LocalInvalid)),
        ("1122 §4.2.2.7", "TCP where nobody listens", tcp4(|_| {}), IsTold(LocalNoService, 3, 3, 0)),
        ("1122 §4.2.2.7", "with a wrong checksum", tcp4(|segment| segment[16] ^= 1), Ends(LocalInvalid)),
        ("9293 §3.1", "with a header longer than itself", tcp4(|segment| segment[12] = 0xf0), Ends(LocalInvalid)),
        ("1812 §5.2.7.1", "administratively prohibited", to4("203.0.113.129"), IsTold(RouteProhibited, 3, 13, 0)),
        ("1812 §5.2.7.1", "unreachable", to4("203.0.113.65"), IsTold(RouteUnreachable, 3, 1, 0)),
        ("1812 §5.3.1", "TTL 1", v4(|p| p.ttl = 1), IsTold(HopLimitExceeded, 11, 0, 0)),
        ("1812 §5.3.1", "TTL 0", v4(|p| p.ttl = 0), IsTold(HopLimitExceeded, 11, 0, 0)),
        ("1812 §5.3.1", "TTL 2", v4(|p| p.ttl = 2), Passes),
        ("1812 §5.3.4", "in a link broadcast", in_broadcast(64), Ends(LinkBroadcast)),
        ("1812 §5.3.5.1", "to everybody", to4("255.255.255.255"), Ends(LinkBroadcast)),
        ("2644", "to a network's broadcast", to4("10.0.1.255"), Ends(DirectedBroadcast)),
        ("1812 §4.3.2.7", "the same with a bad option", v4(|p| (p.destination, p.options) = ([10, 0, 1, 255].into(), vec![7, 9, 0, 0])), Ends(DirectedBroadcast)),
        ("1812 §4.3.2.7", "the same at TTL 1", v4(|p| (p.destination, p.ttl) = ([10, 0, 1, 255].into(), 1)), Ends(DirectedBroadcast)),
        ("1812 §4.3.2.7", "about what a broadcast sent", v4(|p| (p.source, p.ttl) = ([10, 0, 2, 255].into(), 1)), Ends(HopLimitExceeded)),
        ("1122 §3.2.1.3", "for us, from a broadcast", V4 { source: [10, 0, 2, 255].into(), ..V4::ping(ours) }.frame(), Ends(MartianSource)),
        ("1812 §5.3.7", "from 0/8", from4("0.0.0.1"), Ends(MartianSource)),
        ("1812 §5.3.7", "from loopback", from4("127.0.0.1"), Ends(MartianSource)),
        ("1812 §5.3.7", "from multicast", from4("224.0.0.1"), Ends(MartianSource)),
        ("1812 §5.3.7", "from class E", from4("240.0.0.1"), Ends(MartianSource)),
        ("1812 §5.3.7", "to 0/8", to4("0.0.0.1"), Ends(MartianDestination)),
        ("1812 §5.3.7", "to loopback", to4("127.0.0.1"), Ends(MartianDestination)),
        ("1812 §5.3.7", "to class E", to4("250.0.0.1"), Ends(MartianDestination)),
        ("1812 §5.3.10", "to multicast", to4("224.0.0.5"), Ends(MulticastNotRouted)),
        ("1812 §5.3.11", "a blackhole", to4("203.0.113.1"), Ends(Blackhole)),
        ("1812 §5.3.13.1", "an option that nobody knows", options4(&[30, 4, 0, 0]), Passes),
        ("1812 §5.3.13.5", "record route", options4(&[7, 7, 4, 0, 0, 0, 0, 0]), Passes),
        ("1812 §5.3.13.5", "with room for half an address", options4(&[7, 5, 4, 0, 0, 0, 0, 0]), IsTold(Ipv4HeaderInvalid, 12, 0, 22 << 24)),
        ("1812 §5.3.13.6", "timestamp", options4(&[68, 8, 5, 0, 0, 0, 0, 0]), Passes),
        ("1812 §5.3.13.6", "full, and nobody counts any more", options4(&[68, 4, 5, 0xf0]), IsTold(Ipv4HeaderInvalid, 12, 0, 23 << 24)),
        ("7126 §4.3", "a loose source route", options4(&[131, 3, 4, 0]), Ends(Ipv4SourceRoute)),
        ("7126 §4.4", "a strict source route", options4(&[137, 3, 4, 0]), Ends(Ipv4SourceRoute)),
        ("802.1Q §6.9", "a VLAN that is not ours", in_ethernet(super::bed::ours(0), station(0), ether_type::VLAN, &[7; 46]), Ends(UnknownVlan)),
    ]);
}

fn v6(change: impl FnOnce(&mut V6)) -> Vec<u8> {
    let mut packet = V6::udp(FAR6, 10);
    change(&mut packet);
    packet.frame()
}

fn to6(to: &str) -> Vec<u8> {
    v6(|p| p.destination = to.parse().expect("IPv6"))
}

fn from6(from: &str, to: &str) -> Vec<u8> {
    v6(|p| (p.source, p.destination) = (from.parse().expect("IPv6"), to.parse().expect("IPv6")))
}

/// With these extension headers, `first` the first of them, in front of UDP.
fn behind(to: &str, first: u8, headers: &[u8]) -> Vec<u8> {
    behind_them(V6::udp(to, 10), first, headers)
}

fn behind_them(packet: V6, first: u8, headers: &[u8]) -> Vec<u8> {
    V6 { next_header: first, payload: [headers, &packet.payload].concat(), ..packet }.frame()
}

/// Hop-by-hop options in front of UDP, and a header that counts neither (RFC 2675 §2).
fn without_length(to: &str, options: &[u8; 6]) -> Vec<u8> {
    let header = [&[protocol::UDP, 0], &options[..]].concat();
    with(with(behind(to, protocol::HOP_BY_HOP, &header), 18, 0), 19, 0)
}

/// A header of options in front of UDP: one option of this type, and padding.
fn option(kind: u8) -> [u8; 8] {
    [protocol::UDP, 0, kind, 2, 0, 0, 1, 0]
}

/// RFC 8200, 4443, 4861, 4291 and 4007.
#[rustfmt::skip]
#[test]
fn ipv6_is_routed_by_its_sections() {
    use protocol::{
        AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, NO_NEXT_HEADER, ROUTING,
    };
    let piece = |[high, low]: [u8; 2]| [protocol::UDP, 0, high, low, 0, 0, 0, 1];
    let piece = |place: u16| piece(place.to_be_bytes());
    let ours = "2001:db8::1";
    let of = |protocol| v6(|p| (p.destination, p.next_header) = (ours.parse().unwrap(), protocol));
    let error = V6 { hop_limit: 1, ..V6::icmp("2001:db8:a::7", FAR6, 1, 0, &[0x60; 48]) };
    let odd = |kind| behind(ours, DESTINATION_OPTIONS, &option(kind));
    let group = |kind| {
        let to = Mac([0x33, 0x33, 0, 0, 0, 1]);
        let mut frame = behind("ff02::1", DESTINATION_OPTIONS, &option(kind));
        frame[..6].copy_from_slice(&to.0);
        frame
    };
    let route = |kind, left| [protocol::UDP, 0, kind, left, 0, 0, 0, 0];
    let hidden = [[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0], [protocol::UDP, 0, 1, 4, 0, 0, 0, 0]].concat();
    let many = [DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    let jumbo = |len: u32| [&[0xc2, 4], &len.to_be_bytes()[..]].concat().try_into().unwrap();
    let bad_length = |pointer| IsTold(Ipv6HeaderInvalid, 4, 0, pointer);
    let no_service = |kind, code, word| IsTold(LocalNoService, kind, code, word);
    let ping = V6::ping("2001:db8:a::7", ours);
    let invalid = |code, pointer| IsTold(LocalInvalid, 4, code, pointer);
    holds(vec![
        ("8200 §3", "version 4", with(to6(FAR6), 14, 0x40), Ends(Ipv6HeaderInvalid)),
        ("8200 §3", "shorter than its length", with(to6(FAR6), 18, 1), Ends(Ipv6HeaderInvalid)),
        ("8200 §3", "hop limit 1", v6(|p| p.hop_limit = 1), IsTold(HopLimitExceeded, 3, 0, 0)),
        ("8200 §3", "hop limit 0", v6(|p| p.hop_limit = 0), IsTold(HopLimitExceeded, 3, 0, 0)),
        ("8200 §3", "hop limit 2", v6(|p| p.hop_limit = 2), Passes),
        ("8200 §3", "ours at hop limit 1", V6 { hop_limit: 1, ..V6::ping("2001:db8:a::7", ours) }.frame(), IsAnswered),
        ("8200 §4", "options that are not ours to look at", behind(FAR6, DESTINATION_OPTIONS, &option(0xc9)), Passes),
        ("8200 §4", "a protocol that we do not speak", of(89), no_service(4, 1, 6)),
        ("8200 §4", "the same behind a header", behind(ours, DESTINATION_OPTIONS, &[89, 0, 1, 4, 0, 0, 0, 0]), no_service(4, 1, 40)),
        ("8200 §4", "hop-by-hop options that are not in front", behind(ours, DESTINATION_OPTIONS, &hidden), invalid(1, 40)),
        ("8200 §4.2", "an option to skip", odd(0x1e), no_service(1, 4, 0)),
        ("8200 §4.2", "an option to die of", odd(0x5e), Ends(LocalInvalid)),
        ("8200 §4.2", "an option to tell of", odd(0x9e), invalid(2, 42)),
        ("8200 §4.2", "an option to tell a station of", odd(0xde), invalid(2, 42)),
        ("8200 §4.2", "to tell of in a group", group(0x9e), invalid(2, 42)),
        ("8200 §4.2", "not in a group", group(0xde), Ends(LocalInvalid)),
        ("8200 §4.3", "a hop-by-hop option that is not ours", behind(FAR6, HOP_BY_HOP, &option(0xde)), Passes),
        ("8200 §4.3", "one that is", behind(ours, HOP_BY_HOP, &option(0xde)), invalid(2, 42)),
        ("8200 §4.4", "an unknown route with a way to go", behind(ours, ROUTING, &route(7, 1)), invalid(0, 42)),
        ("8200 §4.4", "and at its end", behind(ours, ROUTING, &route(7, 0)), no_service(1, 4, 0)),
        ("8200 §4.5", "a piece that is no multiple of eight bytes", behind(ours, FRAGMENT, &piece(1)), invalid(0, 4)),
        ("8200 §4.5", "a piece that ends too far away", behind(ours, FRAGMENT, &piece(0xfff0)), invalid(0, 42)),
        ("8200 §4.5", "a first piece without all headers", behind_them(V6 { payload: vec![7; 7], ..V6::udp(ours, 0) }, FRAGMENT, &piece(1)), invalid(3, 0)),
        ("8200 §4.5", "a last piece", behind(ours, FRAGMENT, &piece(8)), Ends(LocalNoService)),
        ("6946 §4", "a piece that is all", behind(ours, FRAGMENT, &piece(0)), no_service(1, 4, 0)),
        ("8200 §4", "an authentication that we cannot check", behind(ours, AUTHENTICATION, &[protocol::UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), invalid(1, 6)),
        ("8200 §4.2", "an option that leads out of its header", behind(ours, DESTINATION_OPTIONS, &[protocol::UDP, 0, 1, 5, 0, 0, 0, 0]), Ends(LocalInvalid)),
        ("4443 §4.2", "an echo request behind options", behind_them(ping.clone(), DESTINATION_OPTIONS, &[protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0]), IsAnswered),
        ("4443 §4.2", "an echo request in one piece", behind_them(ping, FRAGMENT, &[protocol::ICMPV6, 0, 0, 0, 0, 0, 0, 1]), IsAnswered),
        ("2675 §3", "a jumbogram of a length that needs none", without_length(FAR6, &jumbo(65_535)), bad_length(44)),
        ("2675 §3", "the same for us", without_length(ours, &jumbo(26)), bad_length(44)),
        ("2675 §3", "a jumbogram that has lost its end", without_length(FAR6, &jumbo(65_536)), Ends(Ipv6HeaderInvalid)),
        ("2675 §3", "options without a length", without_length(FAR6, &[1, 4, 0, 0, 0, 0]), bad_length(4)),
        ("2675 §3", "the same to a group", without_length("ff0e::1", &[1, 4, 0, 0, 0, 0]), Ends(Ipv6HeaderInvalid)),
        ("8200 §4.7", "no payload, and none named", V6 { next_header: NO_NEXT_HEADER, payload: vec![], ..V6::udp(FAR6, 0) }.frame(), Passes),
        ("5095 §3", "a source route", behind(ours, ROUTING, &route(0, 1)), invalid(0, 42)),
        ("8200 §4.7", "nothing", of(NO_NEXT_HEADER), Ends(LocalNoService)),
        ("8200 §5", "too large", V6::udp(FAR6, 1233).frame(), IsTold(TooBig, 2, 0, 1280)),
        ("8200 §5", "as large as may be", V6::udp(FAR6, 1232).frame(), Passes),
        ("8504 §5.3", "more headers than anybody sends", behind(ours, DESTINATION_OPTIONS, &many), Ends(LocalInvalid)),
        ("4443 §2.4 e.1", "about an error", error.frame(), Ends(HopLimitExceeded)),
        ("4443 §2.4 e.6", "from nobody", from6("::", FAR6), Ends(MartianSource)),
        ("4443 §3.1", "no route", to6("2001::"), IsTold(NoRoute, 1, 0, 0)),
        ("4443 §3.1", "prohibited", to6("2001:db8:f2::"), IsTold(RouteProhibited, 1, 1, 0)),
        ("4443 §3.1", "a neighbour that does not answer", to6("2001:db8:c::"), IsTold(NeighbourFailed, 1, 3, 0)),
        ("4443 §3.1", "a port where nobody listens", V6::udp(ours, 10).frame(), no_service(1, 4, 0)),
        ("8200 §8.1", "without a checksum", with(with(V6::udp(ours, 10).frame(), 60, 0), 61, 0), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "with a wrong one", with(V6::udp(ours, 10).frame(), 61, 0x55), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "longer than its packet", with(V6::udp(ours, 10).frame(), 59, 19), Ends(LocalInvalid)),
        ("1122 §4.1.3.4", "shorter than its header", with(V6::udp(ours, 10).frame(), 59, 7), Ends(LocalInvalid)),
        ("4443 §4.1", "an echo request", V6::ping("2001:db8:a::7", ours).frame(), IsAnswered),
        ("4443 §2.3", "with a wrong checksum", with(V6::ping("2001:db8:a::7", ours).frame(), 60, 9), Ends(LocalInvalid)),
        ("4861 §7.1.1", "a solicitation that has passed a router", with(solicitation(), 21, 254), IsOurs),
        ("4861 §7.2.3", "a solicitation", solicitation(), IsAnswered),
        ("4861 §8.1", "a redirect", V6::icmp("fe80::7", ours, 137, 0, &[0; 32]).frame(), IsOurs),
        ("4291 §2.5.2", "to ::", to6("::"), Ends(MartianDestination)),
        ("4291 §2.5.3", "to ::1", to6("::1"), Ends(MartianDestination)),
        ("4291 §2.5.3", "from ::1", from6("::1", FAR6), Ends(MartianSource)),
        ("4291 §2.6.1", "a subnet's routers", V6::ping("2001:db8:a::7", "2001:db8::").frame(), IsAnswered),
        ("4291 §2.5.6", "to another's link-local address", to6("fe80::99"), Ends(LinkLocalScope)),
        ("4007 §9", "off its link", from6("fe80::7", FAR6), IsTold(LinkLocalScope, 1, 2, 0)),
        ("4007 §9", "and nowhere", from6("fe80::7", "2001::"), IsTold(NoRoute, 1, 0, 0)),
        ("4291 §2.7", "from a group", from6("ff02::1", FAR6), Ends(MartianSource)),
        ("4291 §2.7", "to a group of the whole world", to6("ff0e::1"), Ends(MulticastNotRouted)),
        ("4291 §2.7", "to a group of this node", to6("ff01::1"), Ends(MulticastNotRouted)),
        ("6890 §2.2.3", "from a mapped address", from6("::ffff:192.0.2.1", FAR6), Ends(MartianSource)),
    ]);
}

/// No byte of such a packet leaves but in the error's quotation, which has all of it.
#[test]
fn a_packet_without_a_length_is_quoted_whole() {
    let mut bed = Bed::new();
    let frame = without_length(FAR6, &[0xc2, 4, 0, 0, 0, 26]);
    let outcome = bed.judge(0, &frame);
    assert_eq!(outcome.origin, Origin::Error(Ipv6HeaderInvalid));
    assert_eq!(outcome.bytes[14 + 40 + 8..], frame[14..]);
}

fn solicitation() -> Vec<u8> {
    use crate::wire::nd::Solicitation;
    let (us, them) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut frame = vec![0; 86];
    let question = Solicitation::ask(station(0), them, us);
    let len = question.emit(&mut frame, station(0), ours(0)).expect("it fits");
    frame.truncate(len);
    frame
}

/// RFC 1812 §5.3.13.5 and §5.3.13.6, RFC 791 §3.1: what a router writes in, as it leaves by port 1.
#[test]
fn a_router_writes_itself_into_options_that_ask_for_it() {
    let mut bed = Bed::new();
    let time = [0x80, 0, 0x27, 0x10]; // 10 s, by no standard.
    let entry = [[10, 0, 1, 1], time].concat();
    for (what, before, after) in [
        ("the first", vec![7, 7, 4, 0, 0, 0, 0, 0], vec![7, 7, 8, 10, 0, 1, 1, 0]),
        (
            "the next",
            vec![1, 7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0],
            vec![1, 7, 11, 12, 9, 9, 9, 9, 10, 0, 1, 1],
        ),
        ("no place", vec![7, 7, 8, 9, 9, 9, 9, 0], vec![7, 7, 8, 9, 9, 9, 9, 0]),
        ("the time", vec![68, 8, 5, 0, 0, 0, 0, 0], [&[68, 8, 9, 0], &time[..]].concat()),
        (
            "both",
            vec![68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            [&[68, 12, 13, 1], &entry[..]].concat(),
        ),
        (
            "ours",
            [68, 12, 5, 3, 10, 0, 1, 1, 0, 0, 0, 0].into(),
            [&[68, 12, 13, 3], &entry[..]].concat(),
        ),
        (
            "another's",
            [68, 12, 5, 3, 9, 9, 9, 9, 0, 0, 0, 0].into(),
            [68, 12, 5, 3, 9, 9, 9, 9, 0, 0, 0, 0].into(),
        ),
        ("one more", vec![68, 4, 5, 0x20], vec![68, 4, 5, 0x30]),
    ] {
        let outcome = bed.judge(0, &options4(&before));
        assert_eq!(outcome.said, Said::Transmit(1), "{what}");
        let Some(View::V4(view)) = View::checked(&outcome.bytes[14..]) else { panic!("no IPv4") };
        assert!(view.has_valid_checksum() && view.ttl() == 63, "{what}");
        assert_eq!(outcome.bytes[34..][..after.len()], after, "{what}");
    }
}

/// RFC 4443 §4.2, RFC 4861 §7.2.7: answered by one station, and by any other as well.
#[test]
fn an_anycast_address_is_answered_for_by_a_stations_own() {
    use crate::wire::nd::{Message, Solicitation};
    let mut bed = Bed::new();
    let one: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
    // Of any port's network; from an address of the ingress port.
    for to in ["2001:db8::", "2001:db8:2::"] {
        let outcome = bed.judge(0, &V6::ping("2001:db8:a::7", to).frame());
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply), "{to}");
        let Some(View::V6(view)) = View::checked(&outcome.bytes[14..]) else { panic!("no IPv6") };
        assert_eq!(view.source(), one);
        let message = icmpv6::View::checked(view.payload()).expect("a reply");
        assert!(message.has_valid_checksum(view.source(), view.destination()));
    }
    let (target, them) = ("2001:db8::".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut frame = vec![0; 86];
    let question = Solicitation::ask(station(0), them, target);
    let len = question.emit(&mut frame, station(0), Mac::BROADCAST).expect("it fits");
    frame.truncate(len);
    let outcome = bed.judge(0, &frame);
    let Some(Message::Advertisement(told)) = Message::checked(&outcome.bytes[14..]) else {
        panic!("no advertisement");
    };
    assert_eq!((told.target, told.source, told.overrides), (target, one, false));
}

/// RFC 1812 §4.3.2.4 and RFC 4443 §2.2 d: an error has the address of its egress port, not of the port that received
/// its cause.
#[test]
fn an_error_comes_from_the_port_it_leaves_by() {
    let mut bed = Bed::new();
    let frame = V4 { source: [198, 18, 3, 3].into(), ..V4::udp("8.8.8.8", 0) }.frame();
    let outcome = bed.judge(0, &frame);
    assert_eq!((outcome.said, &outcome.bytes[26..30]), (Said::Transmit(2), &[10, 0, 2, 1][..]));
    let frame = V6 { source: "2001:db8:c::7".parse().unwrap(), ..V6::udp("2001::", 0) }.frame();
    let outcome = bed.judge(0, &frame);
    let from: std::net::Ipv6Addr = "2001:db8:2::1".parse().unwrap();
    assert_eq!((outcome.said, &outcome.bytes[22..38]), (Said::Transmit(2), &from.octets()[..]));
}
