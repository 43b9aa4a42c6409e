//! One packet for each verdict, and what forwarding does to it.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_sync::rcu::{Domain, Reader};

use super::super::{Adjacency, Memory, Multipath, PortRecord, Sizes, TransitMut};
use super::*;
use crate::fib::{Limits, NextHopId};
use crate::nexthop::{Member, NextHop};
use crate::wire::checksum::Sum;
use crate::wire::{ethernet, icmp, icmpv6, protocol};
use manylane_frame::vocabulary::PortId;

mod rules;

const EVERYTHING: u32 =
    flags::INGRESS | flags::EGRESS | flags::FORWARDING_V4 | flags::FORWARDING_V6;
const IN: u32 = 11;
const OUT: u32 = 12;
const NOW: u64 = 1000;

#[test]
fn transit_is_forwarded_and_one_hop_older() {
    let mut bed = Bed::new();
    for (packet, hop_limit_at) in [(ipv4(TO), 22), (ipv6(TO6), 21)] {
        let mut frame = packet.clone();
        assert_eq!(bed.decide(&mut frame, &came()), (Verdict::Forwarded, Some(OUT)));
        assert_eq!(frame[..12], [NEXT.0, ours(2).0].concat());
        assert_eq!((frame[hop_limit_at], packet[hop_limit_at]), (63, 64));
        let mut expected = packet;
        expected[..12].copy_from_slice(&frame[..12]);
        expected[hop_limit_at] = 63;
        if hop_limit_at == 22 {
            set_checksum(&mut expected);
        }
        assert_eq!(frame, expected, "and nothing else");
    }
}

#[test]
fn ports_and_lease_come_first() {
    let mut bed = Bed::new();
    let garbage = vec![0xff; 60];
    bed.judged(Verdict::NotIngress, &garbage, Arrival { ifindex: 99, ..came() });
    bed.judged(Verdict::NotIngress, &garbage, Arrival { ifindex: 70_000, ..came() });
    bed.judged(Verdict::Lapsed, &ipv4(TO), Arrival { now_ns: NOW + 1, ..came() });
    bed.set_flags(1, EVERYTHING & !flags::INGRESS);
    bed.judged(Verdict::NotIngress, &ipv4(TO), came());
}

#[test]
fn a_tag_leads_to_another_port() {
    let mut bed = Bed::new();
    let tagged = |ether_type, vlan| Arrival { tag: Some((ether_type, vlan)), ..came() };
    bed.judged(Verdict::UnknownVlan, &ipv4(TO), tagged(ether_type::VLAN, 7));
    bed.tables.set_vlan(1, true, 7, Some(3));
    bed.judged(Verdict::NotIngress, &ipv4(TO), tagged(ether_type::SERVICE_VLAN, 7));
    bed.judged(Verdict::UnknownVlan, &ipv4(TO), tagged(ether_type::VLAN, 7));
    bed.tables.set_port(3, PortRecord { flags: EVERYTHING, ifindex: 13, mac: ours(1) });
    bed.judged(Verdict::Forwarded, &ipv4(TO), tagged(ether_type::SERVICE_VLAN, 7));
    // Priority is no part of the number.
    bed.judged(Verdict::Forwarded, &ipv4(TO), tagged(ether_type::SERVICE_VLAN, 0xf007));
}

#[test]
fn the_link_header_says_for_whom() {
    let mut bed = Bed::new();
    for (at, byte, verdict) in [
        (5, 9, Verdict::NotForUs),
        (0, 0x03, Verdict::LinkGroup),
        (13, 0x06, Verdict::NotIp),
        (13, 0xdd, Verdict::NotIp),
    ] {
        let mut frame = ipv4(TO);
        frame[at] = byte;
        bed.judged(verdict, &frame, came());
    }
    bed.judged(Verdict::Malformed, &ipv4(TO)[..13], came());
}

#[test]
fn headers_must_be_right() {
    let mut bed = Bed::new();
    for (packet, at, byte, verdict) in [
        (ipv4(TO), 14, 0x55, Verdict::Malformed),
        (ipv4(TO), 14, 0x44, Verdict::Malformed),
        (ipv4(TO), 16, 0xff, Verdict::Malformed),
        (ipv4(TO), 17, 19, Verdict::Malformed),
        (ipv4(TO), 24, 0x55, Verdict::BadChecksum),
        (ipv6(TO6), 14, 0x40, Verdict::Malformed),
        (ipv6(TO6), 18, 0xff, Verdict::Malformed),
        (ipv6(TO6), 20, protocol::HOP_BY_HOP, Verdict::Options),
        (ipv6(TO6), 20, protocol::ROUTING, Verdict::Options),
        (ipv6(TO6), 20, protocol::DESTINATION_OPTIONS, Verdict::Forwarded),
    ] {
        let mut frame = packet;
        frame[at] = byte;
        bed.judged(verdict, &frame, came());
    }
    for (packet, header_len) in [(ipv4(TO), 34), (ipv6(TO6), 54)] {
        bed.judged(Verdict::Malformed, &packet[..header_len - 1], came());
        // The padding of a short frame may be there, and nothing longer.
        let mut short = packet[..header_len + 4].to_vec();
        set_len(&mut short);
        short.resize(60, 0);
        bed.judged(Verdict::Forwarded, &short, came());
        short.push(0);
        bed.judged(Verdict::Malformed, &short, came());
    }
    let mut options = ipv4(TO);
    options[14] = 0x46;
    set_checksum(&mut options);
    bed.judged(Verdict::Options, &options, came());
    options[36] ^= 1;
    bed.judged(Verdict::BadChecksum, &options, came());
}

#[test]
fn some_addresses_are_not_routed() {
    let mut bed = Bed::new();
    for (from, to, verdict) in [
        ([0, 0, 0, 1], TO, Verdict::Martian),
        ([127, 0, 0, 1], TO, Verdict::Martian),
        ([224, 0, 0, 1], TO, Verdict::Martian),
        ([255; 4], TO, Verdict::Martian),
        (FROM, [0, 0, 0, 1], Verdict::Martian),
        (FROM, [127, 0, 0, 1], Verdict::Martian),
        (FROM, [240, 0, 0, 1], Verdict::Martian),
        (FROM, [255; 4], Verdict::Martian),
        (FROM, [224, 0, 0, 1], Verdict::Group),
        (FROM, TO, Verdict::Forwarded),
    ] {
        bed.judged(verdict, &ipv4_between(from, to), came());
    }
    for (from, to, verdict) in [
        ("::", TO6, Verdict::Martian),
        ("::1", TO6, Verdict::Martian),
        ("::ffff:10.0.0.1", TO6, Verdict::Martian),
        ("fe80::1", TO6, Verdict::Martian),
        ("ff02::1", TO6, Verdict::Martian),
        (FROM6, "::1", Verdict::Martian),
        (FROM6, "fe80::1", Verdict::Martian),
        (FROM6, "ff0e::1", Verdict::Group),
        (FROM6, "ff01::1", Verdict::Group),
        (FROM6, TO6, Verdict::Forwarded),
    ] {
        bed.judged(verdict, &ipv6_between(from, to), came());
    }
    for (packet, at) in [(ipv4(TO), 22), (ipv6(TO6), 21)] {
        let mut frame = packet;
        frame[at] = 1;
        set_checksum(&mut frame);
        bed.judged(Verdict::Ttl, &frame, came());
    }
    for (family, packet) in [(flags::FORWARDING_V4, ipv4(TO)), (flags::FORWARDING_V6, ipv6(TO6))] {
        bed.set_flags(1, EVERYTHING & !family);
        bed.judged(Verdict::NotForwarding, &packet, came());
    }
}

#[test]
fn a_route_leads_to_a_neighbour_or_to_the_kernel() {
    let mut bed = Bed::new();
    for (next_hop, verdict) in [
        (NextHop::None, Verdict::NoRoute),
        (NextHop::Connected(PortId(2)), Verdict::Unresolved),
        (NextHop::Local, Verdict::Local),
        (NextHop::Broadcast, Verdict::Local),
        (NextHop::Blackhole, Verdict::Nowhere),
        (NextHop::Unreachable, Verdict::Nowhere),
        (NextHop::Prohibit, Verdict::Nowhere),
        (NextHop::Kernel, Verdict::KernelRoute),
        (NextHop::Via(bed.slot + 1), Verdict::Unresolved),
        (NextHop::Via(bed.slot), Verdict::Forwarded),
    ] {
        bed.tables.set_next_hop(bed.id, next_hop);
        bed.judged(verdict, &ipv4(TO), came());
        bed.judged(verdict, &ipv6(TO6), came());
    }
    bed.judged(Verdict::NoRoute, &ipv4([9, 9, 9, 9]), came());
    bed.judged(Verdict::NoRoute, &ipv6("2001:db9::1"), came());
}

#[test]
fn groups_are_divided_where_that_is_allowed() {
    let mut bed = Bed::new();
    let group = bed.tables.add_group(&[Member { slot: bed.slot, weight: 1 }]).expect("one");
    bed.tables.set_next_hop(bed.id, NextHop::Group(group));
    let only = |ipv4, ipv6| Multipath { ipv4, ipv6, ..Multipath::default() };
    for (multipath, verdict4, verdict6) in [
        (only(false, true), Verdict::Multipath, Verdict::Forwarded),
        (only(true, false), Verdict::Forwarded, Verdict::Multipath),
    ] {
        bed.tables.set_multipath(multipath);
        bed.judged(verdict4, &ipv4(TO), came());
        bed.judged(verdict6, &ipv6(TO6), came());
    }
    bed.tables.set_multipath(only(true, true));
    let mut error = ipv4(TO);
    (error[23], error[34]) = (protocol::ICMP, icmp::kind::TIME_EXCEEDED);
    set_checksum(&mut error);
    bed.judged(Verdict::Multipath, &error, came());
    let mut error = ipv6(TO6);
    (error[20], error[54]) = (protocol::ICMPV6, icmpv6::kind::PACKET_TOO_BIG);
    bed.judged(Verdict::Multipath, &error, came());
    let mut extended = ipv6(TO6);
    extended[20] = protocol::DESTINATION_OPTIONS;
    bed.judged(Verdict::Multipath, &extended, came());
}

#[test]
fn flows_are_told_apart_by_ports_or_not() {
    let mut bed = Bed::new();
    let other = bed.tables.take_slot().expect("one");
    let way = bed.tables.adjacency(bed.slot).expect("it is resolved");
    bed.tables
        .set_slot(other, Some(Adjacency { egress_ifindex: 14, ..way }))
        .expect("there is room");
    let members = [bed.slot, other].map(|slot| Member { slot, weight: 1 });
    let group = bed.tables.add_group(&members).expect("one");
    bed.tables.set_next_hop(bed.id, NextHop::Group(group));
    bed.tables.set_seed(77);
    let mut egress_ports = |by_ports, fragment| {
        let (ipv4_ports, ipv6_ports) = (by_ports, by_ports);
        bed.tables.set_multipath(Multipath { ipv4: true, ipv6: true, ipv4_ports, ipv6_ports });
        let mut egress_ports = Vec::new();
        for port in 0..64 {
            let mut frame = ipv4(TO);
            (frame[20], frame[35]) = (fragment, port);
            set_checksum(&mut frame);
            egress_ports.push(bed.decide(&mut frame, &came()).1.expect("it is forwarded"));
            if fragment == 0 {
                let mut frame = ipv6(TO6);
                frame[55] = port;
                egress_ports.push(bed.decide(&mut frame, &came()).1.expect("it is forwarded"));
            }
        }
        egress_ports.chunks(2).map(<[u32]>::to_vec).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(egress_ports(false, 0), 1);
    assert_eq!(egress_ports(true, 0), 4, "both families, both ways");
    assert_eq!(egress_ports(true, 0x20), 1, "a fragment has no ports");
}

#[test]
fn a_source_must_be_one_that_comes_this_way() {
    let mut bed = Bed::new();
    let (back, via) = (bed.tables.take_id().expect("one"), bed.tables.take_slot().expect("one"));
    bed.tables.insert("10.1.0.0/16".parse().expect("a prefix"), back).expect("there is room");
    let way = |port: u16| Adjacency { egress_port: port, ..adjacency() };
    let group = bed.tables.add_group(&[Member { slot: via, weight: 1 }]).expect("one");
    let (off, loose, strict) = (0, flags::RP_LOOSE, flags::RP_STRICT);
    // Of a connection without a packet at hand.
    let ends = Tuple {
        source: FROM.into(),
        destination: TO.into(),
        source_port: 1,
        destination_port: 2,
        protocol: protocol::UDP,
    };
    for (next_hop, egress, right) in [
        (NextHop::None, 1, &[off][..]),
        (NextHop::Blackhole, 1, &[off]),
        (NextHop::Kernel, 1, &[off]),
        (NextHop::Local, 1, &[]),
        (NextHop::Broadcast, 1, &[]),
        (NextHop::Connected(PortId(2)), 1, &[off, loose]),
        (NextHop::Connected(PortId(1)), 1, &[off, loose, strict]),
        (NextHop::Group(group), 1, &[off, loose]),
        (NextHop::Via(via), 2, &[off, loose]),
        (NextHop::Via(via), 1, &[off, loose, strict]),
    ] {
        bed.tables.set_next_hop(back, next_hop);
        bed.tables.set_slot(via, Some(way(egress))).expect("there is room");
        for mode in [off, loose, strict] {
            bed.set_flags(1, EVERYTHING | mode);
            let is_right = right.contains(&mode);
            let verdict = if is_right { Verdict::Forwarded } else { Verdict::ReversePath };
            bed.judged(verdict, &ipv4(TO), came());
            bed.judged(Verdict::Forwarded, &ipv6(TO6), came());
            let way_back = bed.transit.check_way_back(bed.reader.guard(), 1, ends);
            assert_eq!(way_back, if is_right { Ok(()) } else { Err(verdict) });
        }
    }
}

#[test]
fn the_way_out_must_be_open_and_another() {
    let mut bed = Bed::new();
    bed.set_flags(2, EVERYTHING & !flags::EGRESS);
    bed.judged(Verdict::EgressKernel, &ipv4(TO), came());
    bed.set_flags(2, EVERYTHING);
    let back = Adjacency { egress_ifindex: IN, egress_port: 1, ..adjacency() };
    bed.tables.set_slot(bed.slot, Some(back)).expect("there is room");
    bed.judged(Verdict::Forwarded, &ipv4(TO), came());
    bed.set_flags(1, EVERYTHING | flags::REDIRECTS_V4);
    bed.judged(Verdict::SamePort, &ipv4(TO), came());
    bed.judged(Verdict::Forwarded, &ipv6(TO6), came());
    bed.set_flags(1, EVERYTHING | flags::REDIRECTS_V6);
    bed.judged(Verdict::Forwarded, &ipv4(TO), came());
    bed.judged(Verdict::SamePort, &ipv6(TO6), came());
}

#[test]
fn a_packet_must_fit_and_so_must_its_segments() {
    let mut bed = Bed::new();
    for (packet, link_and_ip) in [(tcp4(), 34), (tcp6(), 54)] {
        let len = (packet.len() - 14) as u32;
        bed.set_mtu(len);
        bed.judged(Verdict::Forwarded, &packet, came());
        bed.set_mtu(len - 1);
        bed.judged(Verdict::TooBig, &packet, came());
        // Ten bytes in each segment, behind 20 of TCP.
        let segments = Arrival { gso_size: 10, ..came() };
        bed.set_mtu(link_and_ip - 14 + 20 + 10);
        bed.judged(Verdict::Forwarded, &packet, segments);
        bed.judged(Verdict::TooBig, &packet, Arrival { gso_size: 11, ..came() });
        let mut broken = packet;
        broken[link_and_ip as usize + 12] = 0x40;
        bed.judged(Verdict::Segments, &broken, segments);
    }
    let segments = Arrival { gso_size: 10, ..came() };
    bed.judged(Verdict::Segments, &ipv4(TO), segments);
    bed.judged(Verdict::Segments, &ipv6(TO6), segments);
    for (chain, verdict) in [
        (&[protocol::DESTINATION_OPTIONS][..], Verdict::Forwarded),
        (&[protocol::DESTINATION_OPTIONS; 6], Verdict::Forwarded),
        (&[protocol::DESTINATION_OPTIONS; 7], Verdict::Extension),
        (&[protocol::FRAGMENT], Verdict::Extension),
        (&[protocol::DESTINATION_OPTIONS, protocol::HOP_BY_HOP], Verdict::Extension),
    ] {
        let mut packet = tcp6();
        let mut kind = packet[20];
        for &extension in chain.iter().rev() {
            packet.splice(54..54, [kind, 0, 0, 0, 0, 0, 0, 0]);
            kind = extension;
        }
        packet[20] = kind;
        set_len(&mut packet);
        bed.set_mtu(1500);
        bed.judged(verdict, &packet, segments);
    }
}

#[test]
fn headers_of_segments_are_not_looked_for_without_end() {
    let mut bed = Bed::new();
    // Ethernet, IPv6, the extension header, TCP: 512 bytes, and eight more.
    for (len, verdict) in [(438usize, Verdict::Forwarded), (446, Verdict::Extension)] {
        let mut packet = tcp6();
        packet.splice(54..54, vec![0; len / 8 * 8]);
        (packet[20], packet[54], packet[55]) =
            (protocol::DESTINATION_OPTIONS, protocol::TCP, (len / 8 - 1) as u8);
        set_len(&mut packet);
        bed.judged(verdict, &packet, Arrival { gso_size: 10, ..came() });
    }
}

#[test]
fn a_record_that_is_torn_is_none() {
    let mut memory = Memory::zeroed(&Sizes::for_routes(0, 0));
    // Forbidden: a write beside the writer.
    memory.records.store(500 * RECORD_WORDS + record::EGRESS_INTERFACE, OUT);
    memory.records.store(500 * RECORD_WORDS + record::STAMPS[1], 1);
    memory.record_of.store(50, 500);
    let mut bed = Bed::over(memory);
    bed.tables.set_next_hop(bed.id, NextHop::Via(50));
    bed.judged(Verdict::Unresolved, &ipv4(TO), came());
}

#[test]
fn priorities_are_those_of_the_kernel() {
    // ip_tos2prio of net/ipv4/route.c, by the four bits above the lowest.
    let kernel = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    for tos in 0..=255u8 {
        assert_eq!(priority_ipv4(tos), kernel[usize::from(tos >> 1 & 0xf)], "{tos:#x}");
    }
}

/// Port 1 receives the packets, port 2 has the neighbour.
struct Bed {
    tables: TransitMut,
    transit: Transit,
    reader: Reader,
    /// That both destinations have.
    id: NextHopId,
    /// The neighbour's.
    slot: u32,
}

impl Bed {
    fn new() -> Bed {
        Bed::over(Memory::zeroed(&Sizes::for_routes(64, 64)))
    }

    fn over(memory: Memory) -> Bed {
        let domain = Domain::new(1);
        let reader = domain.register().expect("the first fits");
        let mut tables = TransitMut::new(memory, domain, &Limits::default());
        for (port, ifindex) in [(1, IN), (2, OUT)] {
            let facts = PortRecord { flags: EVERYTHING, ifindex, mac: ours(port as u8) };
            tables.set_port(port, facts);
            assert!(tables.set_port_of(ifindex, Some(port)));
        }
        tables.set_lease(NOW + 1, 0);
        let (id, slot) = (tables.take_id().expect("one"), tables.take_slot().expect("one"));
        tables.set_slot(slot, Some(adjacency())).expect("a record is free");
        tables.set_next_hop(id, NextHop::Via(slot));
        for prefix in ["192.0.2.0/24", "2001:db8:2::/48"] {
            tables.insert(prefix.parse().expect("a prefix"), id).expect("there is room");
        }
        Bed { transit: tables.reader(), tables, reader, id, slot }
    }

    fn set_flags(&mut self, port: u16, flags: u32) {
        let facts = self.tables.port(port);
        self.tables.set_port(port, PortRecord { flags, ..facts });
    }

    fn set_mtu(&mut self, mtu: u32) {
        let way = Adjacency { mtu, ..adjacency() };
        self.tables.set_slot(self.slot, Some(way)).expect("a record is free");
    }

    fn decide(&mut self, frame: &mut [u8], arrival: &Arrival) -> (Verdict, Option<u32>) {
        self.transit.decide(self.reader.guard(), frame, arrival)
    }

    fn judged(&mut self, verdict: Verdict, frame: &[u8], arrival: Arrival) {
        let mut after = frame.to_vec();
        let (said, egress) = self.decide(&mut after, &arrival);
        assert_eq!(said, verdict, "{frame:02x?}, {arrival:?}");
        assert_eq!(egress.is_some(), verdict == Verdict::Forwarded);
        assert_eq!(after != frame, verdict == Verdict::Forwarded, "the kernel's are unchanged");
    }
}

const NEXT: Mac = Mac([2, 0, 0, 0, 1, 1]);
const FROM: [u8; 4] = [10, 1, 0, 1];
const TO: [u8; 4] = [192, 0, 2, 7];
const FROM6: &str = "2001:db8:1::1";
const TO6: &str = "2001:db8:2::7";

fn came() -> Arrival {
    Arrival { ifindex: IN, now_ns: NOW, tag: None, gso_size: 0 }
}

fn ours(port: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, port])
}

fn adjacency() -> Adjacency {
    Adjacency { egress_ifindex: OUT, egress_port: 2, mtu: 1500, destination: NEXT, source: ours(2) }
}

/// A UDP packet with 40 bytes of transport, in a frame to port 1.
fn ipv4(to: [u8; 4]) -> Vec<u8> {
    ipv4_between(FROM, to)
}

fn ipv4_between(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 74];
    ethernet::emit(&mut frame, ours(1), NEXT, ether_type::IPV4).expect("it fits");
    let header = ipv4::Header {
        tos: 0,
        identification: 7,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::UDP,
        source: Ipv4Addr::from(from),
        destination: Ipv4Addr::from(to),
    };
    header.emit(&mut frame[14..], 40).expect("it fits");
    frame
}

fn ipv6(to: &str) -> Vec<u8> {
    ipv6_between(FROM6, to)
}

fn ipv6_between(from: &str, to: &str) -> Vec<u8> {
    let mut frame = vec![0; 94];
    ethernet::emit(&mut frame, ours(1), NEXT, ether_type::IPV6).expect("it fits");
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::UDP,
        hop_limit: 64,
        source: address(from),
        destination: address(to),
    };
    header.emit(&mut frame[14..], 40).expect("it fits");
    frame
}

fn tcp4() -> Vec<u8> {
    let mut frame = ipv4(TO);
    (frame[23], frame[34 + 12]) = (protocol::TCP, 0x50);
    set_checksum(&mut frame);
    frame
}

fn tcp6() -> Vec<u8> {
    let mut frame = ipv6(TO6);
    (frame[20], frame[54 + 12]) = (protocol::TCP, 0x50);
    frame
}

/// Lets the header count what is there.
fn set_len(frame: &mut [u8]) {
    let len = (frame.len() - 14) as u16;
    if frame[12..14] == ether_type::IPV4.to_be_bytes() {
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        set_checksum(frame);
    } else {
        frame[18..20].copy_from_slice(&(len - 40).to_be_bytes());
    }
}

/// Computes the checksum of an IPv4 header.
fn set_checksum(frame: &mut [u8]) {
    if frame[12..14] == ether_type::IPV4.to_be_bytes() {
        frame[24..26].fill(0);
        let header = &frame[14..14 + usize::from(frame[14] & 0xf) * 4];
        let checksum = Sum::of(header).finish();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
}
