//! Packets that are dropped in silence, and changes to packets that are forwarded.

use etherparse::{NetHeaders, PacketHeaders};
use manylane_frame::BATCH_MAX;
use manylane_frame::vocabulary::{Checksum, DropReason};

use super::super::{OTHER, Origin, Verdicts};
use super::bed::*;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{Mac, ether_type};
use crate::wire::{ip, protocol};

#[test]
fn a_forwarded_ipv4_packet_has_one_ttl_less_and_new_stations() {
    let mut bed = Bed::new();
    let mut sent = V4::udp("198.51.100.9", 10);
    sent.options = vec![148, 4, 0, 0]; // Router alert: by the slow path, with an equal result.
    for packet in [V4::udp("198.51.100.9", 10), sent] {
        let outcome = bed.judge(0, &packet.frame());
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(1), Origin::Received));
        let parsed = PacketHeaders::from_ethernet_slice(&outcome.bytes).expect("it is valid");
        let link = parsed.link.and_then(|link| link.ethernet2()).expect("Ethernet");
        assert_eq!((link.destination, link.source), (station(1).0, ours(1).0));
        let Some(NetHeaders::Ipv4(header, _)) = parsed.net else { panic!("no IPv4") };
        assert_eq!(header.time_to_live, 63);
        assert_eq!(header.calc_header_checksum(), header.header_checksum);
        assert_eq!(outcome.bytes[14..22], packet.frame()[14..22]);
        assert_eq!(outcome.bytes[26..], packet.frame()[26..]);
    }
}

#[test]
fn a_forwarded_ipv6_packet_has_one_hop_less_and_new_stations() {
    let mut bed = Bed::new();
    for to in ["2001:db8:b::9", "64:ff9b::192.0.2.1"] {
        let packet = V6::udp(to, 10);
        let outcome = bed.judge(0, &packet.frame());
        assert_eq!((outcome.said, outcome.origin), (Said::Transmit(1), Origin::Received), "{to}");
        let parsed = PacketHeaders::from_ethernet_slice(&outcome.bytes).expect("it is valid");
        let link = parsed.link.and_then(|link| link.ethernet2()).expect("Ethernet");
        assert_eq!((link.destination, link.source), (station(1).0, ours(1).0));
        let Some(NetHeaders::Ipv6(header, _)) = parsed.net else { panic!("no IPv6") };
        assert_eq!(header.hop_limit, 63);
        assert_eq!(outcome.bytes[22..], packet.frame()[22..]);
    }
}

/// RFC 1624 §3 and its errata are about the corner that this walks through.
#[test]
fn the_checksum_is_right_after_every_ttl_and_checksum() {
    for ttl in 2..=255 {
        for identification in 0..=u16::MAX {
            if ttl % 16 != 2 && identification % 97 != 0 {
                continue; // All of both would take a minute.
            }
            let mut head = [0; 34];
            head[14] = 0x45;
            head[18..20].copy_from_slice(&identification.to_be_bytes());
            head[22] = ttl;
            let checksum = Sum::of(&head[14..]).finish();
            head[24..26].copy_from_slice(&checksum.to_be_bytes());
            super::super::rewrite::decrement_ttl(&mut head);
            assert_eq!(head[22], ttl - 1);
            assert!(Sum::of(&head[14..]).is_valid(), "{ttl} {identification}");
        }
    }
}

#[test]
fn padding_of_short_packets_ends_here() {
    let mut bed = Bed::new();
    let (mut v4, mut v6) =
        (V4::udp("198.51.100.9", 1).frame(), V6::udp("2001:db8:b::9", 1).frame());
    for frame in [&mut v4, &mut v6] {
        let len = frame.len();
        frame.resize(len + 18, 0xee);
        assert_eq!(bed.judge(0, frame).bytes.len(), len);
    }
    let mut ping = V4::ping("10.0.0.1").frame();
    let len = ping.len();
    ping.resize(len + 18, 0xee);
    assert_eq!(bed.judge(0, &ping).bytes.len(), len, "of replies too");
}

/// The rules by which a frame ends without a word.
#[test]
fn what_must_not_be_forwarded_is_dropped_under_its_reason() {
    use DropReason::*;
    let mut bed = Bed::new();
    let v4 = |change: fn(&mut V4)| {
        let mut packet = V4::udp("198.51.100.9", 10);
        change(&mut packet);
        packet.frame()
    };
    let v6 = |change: fn(&mut V6)| {
        let mut packet = V6::udp("2001:db8:b::9", 10);
        change(&mut packet);
        packet.frame()
    };
    let typed = |ether_type| in_ethernet(ours(0), station(0), ether_type, &[0; 46]);
    let at = |mut frame: Vec<u8>, at: usize, byte| {
        frame[at] = byte;
        frame
    };
    let to4 = |to: &str| V4 { destination: to.parse().unwrap(), ..V4::udp("198.51.100.9", 0) };
    let to6 = |to: &str| V6 { destination: to.parse().unwrap(), ..V6::udp("2001:db8:b::9", 0) };
    let from4 = |from: &str| V4 { source: from.parse().unwrap(), ..V4::udp("198.51.100.9", 0) };
    let from6 = |from: &str| V6 { source: from.parse().unwrap(), ..V6::udp("2001:db8:b::9", 0) };
    let in_broadcast = Mac::BROADCAST;
    for (what, frame, reason) in [
        ("another station's", v4(|p| p.to = station(1)), NotForUs),
        ("another port's station", v4(|p| p.to = ours(1)), NotForUs),
        ("a group nobody listens to", v4(|p| p.to = Mac([1, 0x80, 0xc2, 0, 0, 0])), NotForUs),
        ("a tag", at(typed(ether_type::VLAN), 15, 7), UnknownVlan),
        ("a service tag", at(typed(ether_type::SERVICE_VLAN), 15, 7), UnknownVlan),
        ("LLDP", typed(0x88cc), UnknownEtherType),
        ("a length", typed(46), UnknownEtherType),
        ("ARP that is none", typed(ether_type::ARP), ArpInvalid),
        ("IPv4 that says 6", at(v4(|_| ()), 14, 0x65), Ipv4HeaderInvalid),
        ("a header of 16 bytes", at(v4(|_| ()), 14, 0x44), Ipv4HeaderInvalid),
        ("a header beyond the packet", at(v4(|_| ()), 14, 0x4f), Ipv4HeaderInvalid),
        ("a total length of 19", at(v4(|_| ()), 17, 19), Ipv4HeaderInvalid),
        ("a total length beyond the frame", at(v4(|_| ()), 16, 1), Ipv4HeaderInvalid),
        ("a wrong checksum", at(v4(|_| ()), 24, 0xaa), Ipv4ChecksumInvalid),
        ("a loose source route", v4(|p| p.options = vec![131, 3, 4, 0]), Ipv4SourceRoute),
        ("a strict source route", v4(|p| p.options = vec![1, 137, 3, 4]), Ipv4SourceRoute),
        ("from 0/8", from4("0.0.0.1").frame(), MartianSource),
        ("from loopback", from4("127.0.0.1").frame(), MartianSource),
        ("from multicast", from4("224.0.0.1").frame(), MartianSource),
        ("from class E", from4("240.0.0.1").frame(), MartianSource),
        ("from broadcast", from4("255.255.255.255").frame(), MartianSource),
        ("to 0/8", to4("0.0.0.1").frame(), MartianDestination),
        ("to loopback", to4("127.0.0.1").frame(), MartianDestination),
        ("to class E", to4("250.0.0.1").frame(), MartianDestination),
        ("to multicast", to4("224.0.0.5").frame(), MulticastNotRouted),
        ("to everybody", to4("255.255.255.255").frame(), LinkBroadcast),
        ("in a broadcast", V4 { to: in_broadcast, ..to4("198.51.100.9") }.frame(), LinkBroadcast),
        ("to a network's broadcast", to4("10.0.1.255").frame(), DirectedBroadcast),
        ("to its old broadcast", to4("10.0.1.0").frame(), DirectedBroadcast),
        ("to our own broadcast", to4("10.0.0.255").frame(), DirectedBroadcast),
        ("a dying one too", V4 { ttl: 1, ..to4("10.0.1.255") }.frame(), DirectedBroadcast),
        ("a blackhole", to4("203.0.113.1").frame(), Blackhole),
        ("IPv6 that says 4", at(v6(|_| ()), 14, 0x40), Ipv6HeaderInvalid),
        ("a payload beyond the frame", at(v6(|_| ()), 18, 1), Ipv6HeaderInvalid),
        ("from ::", from6("::").frame(), MartianSource),
        ("from ::1", from6("::1").frame(), MartianSource),
        ("from a mapped one", from6("::ffff:192.0.2.1").frame(), MartianSource),
        ("from a group", from6("ff02::1").frame(), MartianSource),
        ("to ::", to6("::").frame(), MartianDestination),
        ("to ::1", to6("::1").frame(), MartianDestination),
        ("to a mapped one", to6("::ffff:198.51.100.9").frame(), MartianDestination),
        ("to another's link-local", to6("fe80::99").frame(), LinkLocalScope),
        ("to ours of another port", to6("fe80::12").frame(), LinkLocalScope),
        ("to a group", to6("ff0e::1").frame(), MulticastNotRouted),
        ("to a group of this node", to6("ff01::1").frame(), MulticastNotRouted),
        ("in an IPv6 broadcast", v6(|p| p.to = Mac::BROADCAST), LinkBroadcast),
        ("an IPv6 blackhole", to6("2001:db8:f0::1").frame(), Blackhole),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!(
            (outcome.said, outcome.origin),
            (Said::Drop(reason), Origin::Received),
            "{what}"
        );
        assert_eq!(outcome.bytes, frame, "{what}: changed");
    }
    assert_eq!(bed.forwarder.errors_suppressed(), 0, "nobody was to be told");
    assert!(bed.events().is_empty(), "nobody was heard of");
}

#[test]
fn a_frame_that_ends_early_is_dropped_wherever_it_ends() {
    let mut bed = Bed::new();
    for whole in [V4::udp("198.51.100.9", 100).frame(), V6::udp("2001:db8:b::9", 100).frame()] {
        for len in 0..whole.len() {
            let reason = match (len, whole[12]) {
                (..14, _) => DropReason::Truncated,
                (_, 0x08) => DropReason::Ipv4HeaderInvalid,
                _ => DropReason::Ipv6HeaderInvalid,
            };
            assert_eq!(bed.judge(0, &whole[..len]).said, Said::Drop(reason), "{len} bytes");
        }
    }
    let arp = super::ours::who_has("10.0.0.1", "10.0.0.2");
    for len in 14..42 {
        assert_eq!(bed.judge(0, &arp[..len]).said, Said::Drop(DropReason::ArpInvalid), "{len}");
    }
}

/// A packet with options takes the slow path, and leaves in its place.
#[test]
fn exceptions_and_fast_packets_of_a_batch_keep_their_places() {
    let mut bed = Bed::new();
    let frames: Vec<(u8, Vec<u8>)> = (0..64)
        .map(|number: u8| {
            let mut packet = V4::udp("198.51.100.9", 4);
            packet.payload[8] = number;
            let frame = match number % 5 {
                0 => V4 { options: vec![1, 1, 1, 0], ..packet }.frame(),
                1 => V6::udp("2001:db8:c::9", number.into()).frame(),
                2 => vec![number; 10],
                3 => V4 { destination: [198, 18, 0, number].into(), ..packet }.frame(),
                _ => packet.frame(),
            };
            (0, frame)
        })
        .collect();
    let outcomes = bed.judge_batch(SECOND, &frames);
    assert_eq!(outcomes.len(), 64);
    for (number, ((_, sent), outcome)) in (0u8..).zip(frames.iter().zip(&outcomes)) {
        let expected = match number % 5 {
            0 | 4 => Said::Transmit(1),
            1 | 3 => Said::Transmit(2),
            _ => Said::Drop(DropReason::Truncated),
        };
        assert_eq!(outcome.said, expected, "{number}");
        let (was, is) = (sent.get(26..), outcome.bytes.get(26..));
        assert_eq!(was, is, "{number}: another packet's verdict");
    }
}

/// Linux leaves only the pseudo-header's sum where it expects a device to do the rest.
#[test]
fn a_partial_checksum_is_completed_on_the_way_if_the_port_does_not_know() {
    for len in [1, 100] {
        let (v4, v6) = (V4::udp("198.51.100.9", len), V6::udp("2001:db8:b::9", len));
        let (whole4, whole6) = (v4.frame(), v6.frame());
        for (whole, offset) in [(whole4, 34), (whole6, 54)] {
            let mut partial = whole.clone();
            let view = ip::View::checked(&whole[14..]).unwrap();
            let pseudo = view.pseudo_header(protocol::UDP, whole.len() - offset).unwrap().fold();
            partial[offset + 6..offset + 8].copy_from_slice(&pseudo.to_be_bytes());

            let mut bed = Bed::new();
            assert_eq!(bed.judge(0, &partial).bytes[offset..], partial[offset..], "left alone");
            bed.checksum = Checksum::Unknown;
            assert_eq!(bed.judge(0, &partial).bytes[offset..], whole[offset..], "completed");
            assert_eq!(bed.judge(0, &whole).bytes[offset..], whole[offset..], "it was right");
            assert_eq!(bed.forwarder.inner_checksum_unknown(), 0);
        }
    }
    let mut bed = Bed::new();
    bed.checksum = Checksum::Unknown;
    let tunnel = V4 { protocol: protocol::GRE, ..V4::udp("198.51.100.9", 40) };
    assert_eq!(bed.judge(0, &tunnel.frame()).said, Said::Transmit(1));
    assert_eq!(bed.forwarder.inner_checksum_unknown(), 1);
}

#[test]
fn one_exit_is_a_port_and_that_of_the_whole_batch() {
    let mut verdicts = Verdicts::new();
    let mut one_egress = |egress_ports: &[u16]| {
        verdicts.len = egress_ports.len();
        verdicts.egress_ports[..egress_ports.len()].copy_from_slice(egress_ports);
        verdicts.one_egress()
    };
    assert_eq!(one_egress(&[]), None);
    assert_eq!(one_egress(&[2; BATCH_MAX]), Some(2));
    assert_eq!(one_egress(&[3]), Some(3), "what an earlier batch has left is not looked at");
    assert_eq!(one_egress(&[2, 2, 3]), None);
    assert_eq!(one_egress(&[OTHER; 2]), None, "no port");
}
