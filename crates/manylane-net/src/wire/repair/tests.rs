use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::{ipv4, ipv6};
use super::*;

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

#[test]
fn a_partial_checksum_is_completed() {
    for (what, partial, whole) in [
        ("TCP", v4(6, tcp(7)), v4(6, tcp(7))),
        ("UDP", v4(17, udp(53, b"odd")), v4(17, udp(53, b"odd"))),
        ("TCP over IPv6", v6(6, tcp(7)), v6(6, tcp(7))),
        ("UDP over IPv6", v6(17, udp(53, b"odd")), v6(17, udp(53, b"odd"))),
    ] {
        let (mut partial, mut whole) = (partial, whole);
        fill(&mut partial, Fill::Partial);
        fill(&mut whole, Fill::Whole);
        assert_ne!(partial, whole, "{what}");
        assert_eq!(repair(&mut partial), Repair::Completed, "{what}");
        assert_eq!(partial, whole, "{what}");
    }
}

/// The claim of the door, for every value a word can have and every pseudo-header a source's last
/// word can make (a sample of them, with the one that folds to 0xffff).
#[test]
fn a_valid_checksum_is_never_changed_and_a_partial_one_always_completed() {
    let mut equal_by_accident = 0;
    for template in [v4(6, tcp(0)), v4(17, udp(53, &[0; 2]))] {
        let protocol = template[9];
        let at = 20 + template.len() - 22; // The last word of the transport.
        let field = 20 + if protocol == 6 { 16 } else { 6 };
        for source in sources(&template) {
            for word in 0..=u16::MAX {
                let mut packet = template.clone();
                packet[14..16].copy_from_slice(&source.to_be_bytes());
                packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
                fill(&mut packet, Fill::Whole);
                let whole = packet.clone();

                equal_by_accident += u32::from(repair(&mut packet) == Repair::Completed);
                assert_eq!(packet, whole, "protocol {protocol}, source {source:04x}, {word:04x}");

                fill(&mut packet, Fill::Partial);
                let folds_to_zero = packet[field..field + 2] == [0xff; 2];
                assert_eq!(repair(&mut packet), Repair::Completed);
                if folds_to_zero && whole[field..field + 2] == [0; 2] {
                    assert_eq!(packet[field..field + 2], [0xff; 2], "the other zero");
                } else {
                    assert_eq!(packet, whole);
                }
            }
        }
    }
    assert!(equal_by_accident > 0, "the accident was not reached");
}

/// A sender that writes zero as 0xffff in TCP too: odd, valid, and not ours to change.
#[test]
fn tcps_other_zero_is_left_alone() {
    let mut packet = v4(6, tcp(0));
    let source = sources(&packet)[0];
    packet[14..16].copy_from_slice(&source.to_be_bytes());
    // The pseudo-header is zero already; make the segment zero as well.
    fill(&mut packet, Fill::Whole);
    let checksum = [packet[36], packet[37]];
    let last = packet.len() - 2;
    packet[last..].copy_from_slice(&checksum);
    packet[36..38].fill(0xff);
    let before = packet.clone();
    assert_eq!(repair(&mut packet), Repair::Completed);
    assert_eq!(packet, before);
}

#[test]
fn what_is_not_partial_is_not_touched() {
    let mut no_checksum = v4(17, udp(53, b"none"));
    no_checksum[26..28].fill(0);
    let mut fragment = filled(v4(17, udp(53, b"part")), Fill::Partial);
    fragment[6] = 0x20;
    let mut later = fragment.clone();
    later[7] = 1;
    let mut short = filled(v4(17, udp(53, b"part")), Fill::Partial);
    short[25] = 13; // A length beyond the packet.
    for (what, packet) in [
        ("nothing", vec![]),
        ("no version", vec![0; 40]),
        ("UDP without checksum", no_checksum),
        ("a first fragment", fragment),
        ("a later fragment", later),
        ("a truncated datagram", short),
        ("half a TCP header", v4(6, vec![0; 17])),
        ("ICMP", v4(1, vec![0; 17])),
        ("encrypted", v4(50, vec![0; 40])),
        ("TCP", filled(v6(6, tcp(1)), Fill::Whole)),
    ] {
        let mut repaired = packet.clone();
        assert_eq!(repair(&mut repaired), Repair::Untouched, "{what}");
        assert_eq!(repaired, packet, "{what}");
    }
}

#[test]
fn padding_behind_the_packet_does_not_count() {
    let mut packet = filled(v4(6, tcp(9)), Fill::Partial);
    let whole = filled(v4(6, tcp(9)), Fill::Whole);
    packet.extend([0xaa; 5]);
    assert_eq!(repair(&mut packet), Repair::Completed);
    assert_eq!(packet[..whole.len()], whole);
    assert_eq!(packet[whole.len()..], [0xaa; 5]);
}

#[test]
fn one_level_of_every_tunnel_is_looked_into() {
    for (what, around) in tunnels() {
        for inner in [v4(6, tcp(3)), v6(6, tcp(3)), v4(17, udp(53, b"q")), v6(17, udp(53, b"q"))] {
            let (version, transport) = (inner[0] >> 4, inner.len());
            let partial = around(filled(inner.clone(), Fill::Partial));
            let whole = around(filled(inner, Fill::Whole));
            let mut packet = partial.clone();
            assert_eq!(repair(&mut packet), Repair::Completed, "{what}, {version}, {transport}");
            assert_eq!(packet, whole, "{what}, {version}, {transport}");
            assert_eq!(repair(&mut packet), accident(&whole), "{what}: a second time");
        }
    }
}

/// Linux writes the outer checksum for a complete inner packet; it must not be summed before.
#[test]
fn the_inner_checksum_is_completed_before_the_outer_is_judged() {
    let frame = |inner| [&VXLAN[..], &ethernet_frame(0x0800, inner)].concat();
    let partial = frame(filled(v4(6, tcp(3)), Fill::Partial));
    let whole = frame(filled(v4(6, tcp(3)), Fill::Whole));
    let wanted = filled(v4(17, udp(4789, &whole)), Fill::Whole);

    // Outer as it will be, inner partial.
    let mut packet = v4(17, udp(4789, &partial));
    packet[26..28].copy_from_slice(&wanted[26..28]);
    assert_eq!(repair(&mut packet), Repair::Completed);
    assert_eq!(packet, wanted);

    // Outer partial, inner whole.
    let mut packet = filled(v4(17, udp(4789, &whole)), Fill::Partial);
    assert_eq!(repair(&mut packet), Repair::Completed);
    assert_eq!(packet, wanted);
}

#[test]
fn what_cannot_be_examined_is_said() {
    let inner = || filled(v4(6, tcp(1)), Fill::Partial);
    let mut source_route = inner();
    source_route.splice(20..20, [131, 7, 4, 10, 0, 0, 1, 0]);
    source_route[0] = 0x47;
    source_route[3] += 8;
    let routing = [&[6, 2, 4, 1, 0, 0, 0, 0][..], &[0xfd; 16], &tcp(1)].concat();
    for (what, packet) in [
        ("two tunnels", v4(4, v4(4, inner()))),
        ("VXLAN in IP", v4(4, v4(17, udp(4789, &[0; 60])))),
        ("half a packet inside", v4(4, inner()[..30].to_vec())),
        ("nothing inside", v4(41, vec![])),
        ("GRE with a route", v4(47, [&[0x40, 0, 8, 0][..], &inner()].concat())),
        ("GRE version 1", v4(47, [&[0, 1, 8, 0][..], &inner()].concat())),
        ("GRE with another protocol", v4(47, [&[0, 0, 0x88, 0x47][..], &inner()].concat())),
        ("half a GRE header", v4(47, vec![0, 0, 8])),
        ("GRE without its key", v4(47, vec![0x20, 0, 8, 0, 1])),
        ("VXLAN without network", v4(17, udp(4789, &[0; 50]))),
        ("half a VXLAN frame", v4(17, udp(4789, &VXLAN))),
        ("Geneve version 1", v4(17, udp(6081, &[0x40, 0, 8, 0, 0, 0, 0, 0]))),
        ("Geneve with long options", v4(17, udp(6081, &[0x3f, 0, 8, 0, 0, 0, 0, 0]))),
        ("three tags", v4(47, [&[0, 0, 0x65, 0x58][..], &three_tags()].concat())),
        ("a source route", source_route),
        ("a routing header", v6(43, routing)),
    ] {
        let mut repaired = packet.clone();
        assert_eq!(repair(&mut repaired), Repair::InnerUnknown, "{what}");
        assert_eq!(repaired, packet, "{what}");
    }
    let arp = [&[0, 0, 0x65, 0x58][..], &ethernet_frame(0x0806, vec![0; 28])].concat();
    assert_eq!(repair(&mut v4(47, arp)), Repair::Untouched, "ARP has nothing to complete");
}

/// A tunnel around a packet.
type Around = Box<dyn Fn(Vec<u8>) -> Vec<u8>>;

fn tunnels() -> Vec<(&'static str, Around)> {
    let ether_type = |inner: &[u8]| if inner[0] >> 4 == 4 { 0x0800u16 } else { 0x86dd };
    let ip = |inner: &[u8]| if inner[0] >> 4 == 4 { 4 } else { 41 };
    let gre = move |flags: u8, optional: usize| {
        move |inner: Vec<u8>| {
            let [a, b] = ether_type(&inner).to_be_bytes();
            [&[flags, 0, a, b][..], &vec![7; optional], &inner].concat()
        }
    };
    let bridged = move |inner: Vec<u8>| ethernet_frame(ether_type(&inner), inner);
    let tagged = move |inner: Vec<u8>| {
        let [a, b] = ether_type(&inner).to_be_bytes();
        ethernet_frame(0x88a8, [&[0, 7, 0x81, 0, 0, 8, a, b][..], &inner].concat())
    };
    let geneve = move |options: u8, inner: Vec<u8>| {
        let [a, b] = ether_type(&inner).to_be_bytes();
        let header = [options, 0, a, b, 0, 0, 1, 0];
        [&header[..], &vec![0; usize::from(options) * 4], &inner].concat()
    };
    vec![
        ("in IPv4", Box::new(move |inner| v4(ip(&inner), inner))),
        ("in IPv6", Box::new(move |inner| v6(ip(&inner), inner))),
        ("GRE", Box::new(move |inner| v4(47, gre(0, 0)(inner)))),
        ("GRE over IPv6", Box::new(move |inner| v6(47, gre(0, 0)(inner)))),
        ("GRE with key", Box::new(move |inner| v4(47, gre(0x20, 4)(inner)))),
        ("GRE with all", Box::new(move |inner| v4(47, gre(0xb0, 12)(inner)))),
        (
            "GRE with Ethernet",
            Box::new(move |inner| v4(47, [&[0, 0, 0x65, 0x58][..], &bridged(inner)].concat())),
        ),
        (
            "VXLAN",
            Box::new(move |inner| v4(17, udp(4789, &[&VXLAN[..], &bridged(inner)].concat()))),
        ),
        (
            "VXLAN over IPv6",
            Box::new(move |inner| v6(17, udp(4789, &[&VXLAN[..], &bridged(inner)].concat()))),
        ),
        (
            "VXLAN with two tags",
            Box::new(move |inner| v4(17, udp(4789, &[&VXLAN[..], &tagged(inner)].concat()))),
        ),
        ("Geneve", Box::new(move |inner| v4(17, udp(6081, &geneve(0, inner))))),
        ("Geneve with options", Box::new(move |inner| v6(17, udp(6081, &geneve(5, inner))))),
        (
            "Geneve with Ethernet",
            Box::new(move |inner| {
                let header = [0, 0, 0x65, 0x58, 0, 0, 1, 0];
                v4(17, udp(6081, &[&header[..], &bridged(inner)].concat()))
            }),
        ),
    ]
}

/// What `repair` says of a packet that needs none: some checksums equal the pseudo-header by chance.
fn accident(whole: &[u8]) -> Repair {
    let mut again = whole.to_vec();
    let answer = repair(&mut again);
    assert_eq!(again, whole);
    answer
}

const VXLAN: [u8; 8] = [0x08, 0, 0, 0, 0, 0, 1, 0];

/// The last words of a source address to try; the first makes the pseudo-header fold to 0xffff.
fn sources(template: &[u8]) -> [u16; 3] {
    let mut packet = template.to_vec();
    packet[14..16].fill(0);
    let zero = !pseudo(&packet).fold();
    packet[14..16].copy_from_slice(&zero.to_be_bytes());
    assert_eq!(pseudo(&packet).fold(), 0xffff);
    [zero, 0x0201, 0xfffe]
}

fn pseudo(packet: &[u8]) -> Sum {
    let view = View::checked(packet).unwrap();
    let transport = view.transport().unwrap();
    view.pseudo_header(transport.protocol, packet.len() - transport.offset).unwrap()
}

#[derive(Clone, Copy)]
enum Fill {
    Partial,
    Whole,
}

fn filled(mut packet: Vec<u8>, how: Fill) -> Vec<u8> {
    fill(&mut packet, how);
    packet
}

/// Writes the checksum of the transport, by the book.
fn fill(packet: &mut [u8], how: Fill) {
    let pseudo = pseudo(packet);
    let transport = View::checked(packet).unwrap().transport().unwrap();
    let is_udp = transport.protocol == protocol::UDP;
    let at = if is_udp { 6 } else { 16 };
    let transport = &mut packet[transport.offset..];
    transport[at..at + 2].fill(0);
    let checksum = match how {
        Fill::Partial => pseudo.fold(),
        Fill::Whole if is_udp => udp::or_all_ones(pseudo.plus(transport).finish()),
        Fill::Whole => pseudo.plus(transport).finish(),
    };
    transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn v4(protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    let (source, destination) = (A, B);
    let mut packet = [vec![0; 20], payload].concat();
    let len = packet.len() - 20;
    ipv4::Header {
        tos: 0,
        identification: 1,
        dont_fragment: true,
        ttl: 64,
        protocol,
        source,
        destination,
    }
    .emit(&mut packet, len)
    .unwrap();
    packet
}

fn v6(next_header: u8, payload: Vec<u8>) -> Vec<u8> {
    let (source, destination) = (A6, B6);
    let mut packet = [vec![0; 40], payload].concat();
    let len = packet.len() - 40;
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header,
        hop_limit: 64,
        source,
        destination,
    }
    .emit(&mut packet, len)
    .unwrap();
    packet
}

/// A segment of 22 bytes.
fn tcp(seed: u8) -> Vec<u8> {
    let mut segment = vec![seed; 22];
    segment[12] = 0x50;
    segment
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = port.to_be_bytes();
    let [c, d] = (8 + payload.len() as u16).to_be_bytes();
    [&[0xc0, 0x01, a, b, c, d, 0, 0], payload].concat()
}

fn ethernet_frame(ether_type: u16, payload: Vec<u8>) -> Vec<u8> {
    [&[2; 12][..], &ether_type.to_be_bytes(), &payload].concat()
}

fn three_tags() -> Vec<u8> {
    ethernet_frame(0x8100, [[0, 1, 0x81, 0], [0, 2, 0x81, 0], [0, 3, 8, 0], [0; 4]].concat())
}
