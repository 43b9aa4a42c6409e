//! Tags at ingress and at egress.
//!
//! Port 3 is VLAN 100 of port 0, port 4 VLAN 7 in service VLAN 200 of port 1, port 5 service VLAN 200 of
//! port 0. Port 3's station is slot 3, port 4's is slot 7.

use std::net::Ipv6Addr;

use manylane_frame::vocabulary::{Checksum, DropReason, Offload, PortId, QueueId};
use proptest::prelude::*;

use super::super::*;
use super::bed::*;
use crate::neighbour::{Header, Rewrite};
use crate::wire::ethernet::{Tags, ether_type};
use crate::wire::{arp, icmp};

const V100: PortId = PortId(3);
const V200_7: PortId = PortId(4);
const S200: PortId = PortId(5);

fn tags(list: &[(u16, u16)]) -> Tags {
    list.iter()
        .try_fold(Tags::NONE, |tags, &(kind, vlan)| tags.and(kind, vlan))
        .expect("two at most")
}

fn q(vlan: u16) -> Tags {
    tags(&[(ether_type::VLAN, vlan)])
}

fn q_in_ad() -> Tags {
    tags(&[(ether_type::SERVICE_VLAN, 200), (ether_type::VLAN, 7)])
}

/// `frame` with tags, and with a priority, which is not looked at.
fn tagged(frame: &[u8], tags: Tags) -> Vec<u8> {
    let mut bytes = [&frame[..12], tags.as_bytes(), &frame[12..]].concat();
    (0..tags.as_bytes().len() / 4).for_each(|tag| bytes[14 + 4 * tag] |= 0xb0);
    bytes
}

fn untagged(frame: &[u8], tags: Tags) -> Vec<u8> {
    assert_eq!(&frame[12..][..tags.as_bytes().len()], tags.as_bytes(), "these tags");
    [&frame[..12], &frame[12 + tags.as_bytes().len()..]].concat()
}

fn bed() -> Bed {
    bed_with(Offload::NONE)
}

fn bed_with(offload: Offload) -> Bed {
    let mut bed = Bed::with_frames(256, 2048, offload);
    let mut ports = bed.forwarder.tables.ports.to_vec();
    let vlans = [(V100, 0, q(100)), (V200_7, 1, q_in_ad()), (S200, 0, tags(&[(0x88a8, 200)]))];
    for (id, port, tags) in vlans {
        let mut facts = ports[port].clone();
        facts.ipv4[0].addr = [10, 0, id.0 as u8, 1].into();
        facts.ipv6 = vec![Ipv6Addr::new(0x2001, 0xdb8, id.0, 0, 0, 0, 0, 1)];
        (facts.vlan, facts.vlans) = (Some(Vlan { port: PortId(port as u16), tags }), Vec::new());
        facts.mtu = 1400;
        ports.push(facts);
        ports[port].vlans.push((tags, id));
        ports[port].vlans.sort();
    }
    bed.forwarder.tables.ports = ports.into();
    // What led to ports 2 leads to the sub-interfaces.
    bed.set(NEIGHBOUR + 2, NextHop::Via(3));
    bed.set(NEIGHBOUR + 6, NextHop::Via(7));
    for (slot, port, state) in
        [(3, V100, AdjacencyState::Resolved), (7, V200_7, AdjacencyState::Resolved)]
    {
        publish(&mut bed, slot, port, state);
    }
    bed
}

fn publish(bed: &mut Bed, slot: u32, port: PortId, state: AdjacencyState) {
    let facts = &bed.forwarder.tables.ports[port.index()];
    let (vlan, mac) = (facts.vlan.expect("a sub-interface"), facts.mac);
    let kind = if slot < 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let header = Header::tagged(station(9).0, mac.0, vlan.tags, kind);
    let key = Key { port, addr: key(slot).addr };
    let rewrite = Rewrite { key, egress: vlan.port, state, header, mtu: 1400 };
    bed.adjacencies.publish(slot, &rewrite).expect("there are records");
}

/// Ingress by egress: the packet is equal, the egress port decides the tags.
#[test]
fn what_comes_with_a_tag_leaves_with_the_tags_of_its_way_out() {
    let (v4, v6) = ("198.51.100.9", "2001:db8:b::9");
    let (q4, ad6) = ("198.18.0.9", "2001:db8:c::9");
    for (in_tags, ingress) in [(Tags::NONE, 0), (q(100), V100.0), (tags(&[(0x88a8, 200)]), S200.0)]
    {
        for (frame, port, to, out) in [
            (V4::udp(v4, 10).frame(), 1, station(1), Tags::NONE),
            (V6::udp(v6, 10).frame(), 1, station(1), Tags::NONE),
            (V4::udp(q4, 10).frame(), 0, station(9), q(100)),
            (V6::udp(ad6, 10).frame(), 1, station(9), q_in_ad()),
        ] {
            for options in [false, true] {
                let mut bed = bed();
                let mut frame = frame.clone();
                if options && frame[14] == 0x45 {
                    // A router alert: by the slow path, with an equal result.
                    frame.splice(34..34, [148, 4, 0, 0]);
                    (frame[14], frame[17]) = (0x46, frame[17] + 4);
                    resum(&mut frame[14..]);
                }
                let outcome = bed.judge(0, &tagged(&frame, in_tags));
                assert_eq!(
                    (outcome.said, outcome.origin),
                    (Said::Transmit(port), Origin::Received)
                );
                let sorted: Vec<Sorted> = bed.forwarder.sorted().collect();
                let bytes = frame.len() as u64;
                let expected = Sorted { port: PortId(ingress), frames: 1, bytes };
                assert_eq!(sorted, Vec::from_iter(in_tags.any().then_some(expected)));
                let plain = untagged(&outcome.bytes, out);
                assert_eq!((&plain[..6], &plain[6..12]), (&to.0[..], &ours(port as u8).0[..]));
                assert_eq!(plain[12..14], frame[12..14]);
                // All but TTL or hop limit and IPv4's checksum.
                assert_eq!(plain[14..21], frame[14..21]);
                assert_eq!(plain[26..], frame[26..]);
            }
        }
    }
}

/// IEEE 802.1Q §6.9: what belongs to no member of the port is not let in.
#[test]
fn a_tag_that_nobody_has_is_dropped_and_vlan_0_is_no_tag() {
    use DropReason::{NotForUs, UnknownVlan};
    let packet = V4::udp("198.51.100.9", 10);
    let other = V4 { to: station(1), ..packet.clone() }.frame();
    let packet = packet.frame();
    let both = |outer: (u16, u16), inner: (u16, u16)| tagged(&packet, tags(&[outer, inner]));
    let (c, s) = (ether_type::VLAN, ether_type::SERVICE_VLAN);
    let pass = Said::Transmit(1);
    for (what, port, frame, expected) in [
        ("another VLAN", 0, tagged(&packet, q(101)), Said::Drop(UnknownVlan)),
        (
            "its number in a service tag",
            0,
            tagged(&packet, tags(&[(s, 100)])),
            Said::Drop(UnknownVlan),
        ),
        ("another port's", 1, tagged(&packet, q(100)), Said::Drop(NotForUs)),
        ("a port without any", 2, tagged(&packet, q(100)), Said::Drop(NotForUs)),
        ("the outer of two", 0, both((c, 100), (c, 9)), Said::Drop(UnknownVlan)),
        ("the inner of two", 0, both((s, 9), (c, 100)), Said::Drop(UnknownVlan)),
        ("the outer alone", 0, both((s, 200), (c, 7)), Said::Drop(UnknownVlan)),
        ("three", 0, tagged(&tagged(&packet, q(1)), both_tags()), Said::Drop(UnknownVlan)),
        ("the reserved number", 0, tagged(&packet, q(4095)), Said::Drop(UnknownVlan)),
        ("a priority alone", 0, tagged(&packet, q(0)), pass),
        ("a provider's priority", 0, tagged(&packet, tags(&[(s, 0)])), pass),
        ("a priority before a tag", 0, both((c, 0), (c, 100)), Said::Drop(UnknownVlan)),
        ("another's, in our VLAN", 0, tagged(&other, q(100)), Said::Drop(NotForUs)),
    ] {
        let mut bed = bed();
        let outcome = bed.judge(port, &frame);
        assert_eq!((outcome.said, outcome.origin), (expected, Origin::Received), "{what}");
        if expected == Said::Drop(UnknownVlan) {
            assert_eq!(outcome.bytes, frame, "{what}: changed");
            assert!(!bed.forwarder.has_sorted(), "{what}: a sub-interface's");
        }
    }
    for len in 0..packet.len() + 8 {
        let frame = both((s, 200), (c, 7));
        let outcome = bed().judge(1, &frame[..len]);
        assert!(matches!(outcome.said, Said::Drop(_)), "{len} bytes");
    }
}

fn both_tags() -> Tags {
    q_in_ad()
}

/// ARP, echo and errors go back the way their cause came.
#[test]
fn answers_have_the_tags_of_the_question() {
    let mut bed = bed();
    let question = tagged(&super::ours::who_has("10.0.3.1", "10.0.3.9"), q(100));
    let outcome = bed.judge(0, &question);
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Reply));
    let reply = untagged(&outcome.bytes, q(100));
    let reply = arp::Packet::checked(&reply[14..]).expect("ARP");
    assert_eq!((reply.sender, reply.sender_mac), ([10, 0, 3, 1].into(), ours(0)));
    let key = Key { port: V100, addr: "10.0.3.9".parse().expect("an address") };
    assert!(matches!(bed.events()[..], [Report::Answer { key: heard, .. }] if heard == key));
    let question = super::ours::who_has("10.0.3.1", "10.0.3.9");
    assert_eq!(bed.judge(0, &question).said, Said::Deliver, "not an address of the port itself");

    // Answered through VLAN 100, from its address: the way back is a route's.
    let dying = V4 { ttl: 1, source: [198, 18, 0, 7].into(), ..V4::udp("198.51.100.9", 9) };
    let outcome = bed.judge(0, &tagged(&dying.frame(), q(100)));
    let reason = DropReason::HopLimitExceeded;
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(0), Origin::Error(reason)));
    let error = untagged(&outcome.bytes, q(100));
    assert_eq!((&error[26..30], error[34]), (&[10, 0, 3, 1][..], icmp::kind::TIME_EXCEEDED));

    let ping = V6::ping("fe80::7", &link_local(1).to_string());
    let ping = V6 { to: ours(1), ..ping };
    let outcome = bed.judge(1, &tagged(&ping.frame(), q_in_ad()));
    assert_eq!((outcome.said, outcome.origin), (Said::Transmit(1), Origin::Reply));
    let reply = untagged(&outcome.bytes, q_in_ad());
    assert_eq!((&reply[..6], reply[54]), (&station(0).0[..], 129), "to who asked");
}

#[test]
fn what_we_say_of_neighbours_and_of_ourselves_has_tags() {
    type Write = fn(&mut Forwarder, &mut Frame, Key) -> Option<PortId>;
    let ask: Write = |forwarder, frame, key| forwarder.solicit(frame, key, None);
    let (probe, announce): (Write, Write) = (Forwarder::probe, Forwarder::announce);
    let mut bed = bed();
    for (addr, port, device, out) in
        [("10.0.3.9", V100, 0, q(100)), ("2001:db8:4::9", V200_7, 1, q_in_ad())]
    {
        for write in [ask, probe, announce] {
            let mut frame = bed.pool.take().expect("there is one");
            bed.region.set_ingress(&mut frame, port, QueueId(0), Checksum::Valid);
            let key = Key { port, addr: addr.parse().expect("an address") };
            assert_eq!(write(&mut bed.forwarder, &mut frame, key), Some(PortId(device)));
            let packet = untagged(&bed.bytes(&frame), out);
            assert_eq!(packet[6..12], ours(device as u8).0);
            bed.pool.give_back(frame);
        }
    }
}

/// A packet that waits has lost its tags already, and is judged again as its sub-interface's.
#[test]
fn a_packet_held_in_a_vlan_leaves_with_its_tag() {
    let mut bed = bed();
    publish(&mut bed, 3, V100, AdjacencyState::Unresolved);
    let packet = V4::udp("198.18.0.9", 10).frame();
    let frame = bed.receive(0, &tagged(&packet, q(100)));
    let mut batch = Batch::new();
    batch.push(frame).expect("there is room");
    let mut verdicts = Verdicts::new();
    bed.forwarder.forward(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut batch,
        &mut verdicts,
    );
    let Fate::Hold(slot) = verdicts.list()[0].fate else { panic!("not held") };
    assert_eq!(bed.forwarder.key(bed.reader.guard(), slot).port, V100);
    let frame = batch.drain().next();
    let mut frame = frame.expect("it is held");
    assert_eq!((bed.region.meta(&frame).ingress, bed.bytes(&frame)), (V100, packet));

    publish(&mut bed, 3, V100, AdjacencyState::Resolved);
    let verdict = bed.forwarder.resume(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut frame,
    );
    let outcome = outcome(&bed.region, &frame, &verdict);
    assert_eq!(outcome.said, Said::Transmit(0));
    untagged(&outcome.bytes, q(100));
    bed.pool.give_back(frame);
}

/// Fragments, each with the tags; the largest has the sub-interface's MTU.
#[test]
fn each_piece_of_a_packet_has_the_tags() {
    let mut bed = bed();
    let mut frame = bed.receive(0, &V4::udp("198.18.0.9", 1450).frame());
    let verdict = bed.forwarder.resume(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut frame,
    );
    assert_eq!(verdict.fate, Fate::Fragment(V100));
    assert_eq!(bed.forwarder.device(V100), PortId(0));
    let mut pieces = Vec::new();
    let prepared = bed.forwarder.prepare(&mut bed.pool, frame, V100, &mut pieces);
    assert_eq!(prepared.expect("there are frames").fragments, 1);
    let lens: Vec<usize> =
        pieces.iter().map(|piece| untagged(&bed.bytes(piece), q(100)).len() - 14).collect();
    assert_eq!(lens, [1396, 1450 + 28 + 20 - 1396], "of at most 1400 bytes");
    pieces.drain(..).for_each(|piece| bed.pool.give_back(piece));

    // RFC 1191 §4: a sender that forbids it learns the sub-interface's MTU.
    let whole = V4 { fragment: 0x4000, ..V4::udp("198.18.0.9", 1450) };
    let outcome = bed.judge(0, &whole.frame());
    assert_eq!(outcome.origin, Origin::Error(DropReason::TooBig));
    assert_eq!(outcome.bytes[40..42], 1400u16.to_be_bytes());
}

/// A partial checksum's place is counted from the slot, and goes with the packet.
#[test]
fn what_is_left_to_the_device_stays_true_behind_tags() {
    let packet = V4::udp("198.18.0.9", 100).frame();
    for (offload, expected) in [
        (Offload { checksum: true, ..Offload::NONE }, Said::Transmit(0)),
        (Offload::NONE, Said::Prepare(V100.0)),
    ] {
        let mut bed = bed_with(offload);
        let start = bed.head + 4 + 34;
        bed.checksum = Checksum::Partial { start, offset: 6 };
        let mut partial = packet.clone();
        let view = crate::wire::ip::View::checked(&packet[14..]).expect("IPv4");
        let pseudo = view.pseudo_header(17, packet.len() - 34).expect("UDP").fold();
        partial[40..42].copy_from_slice(&pseudo.to_be_bytes());
        let frame = bed.receive(0, &tagged(&partial, q(100)));
        let mut batch = Batch::new();
        batch.push(frame).expect("there is room");
        let mut verdicts = Verdicts::new();
        bed.forwarder.forward(
            &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
            &mut batch,
            &mut verdicts,
        );
        let verdict = verdicts.list()[0];
        let frame = batch.drain().next().expect("it is there");
        let (said, meta) = (outcome(&bed.region, &frame, &verdict).said, bed.region.meta(&frame));
        assert_eq!(said, expected);
        assert_eq!(meta.checksum, Checksum::Partial { start, offset: 6 });
        if verdict.fate == Fate::Transmit(PortId(0)) {
            assert_eq!(start - meta.head(), 38, "the header is four bytes further");
            bed.pool.give_back(frame);
            continue;
        }
        let mut pieces = Vec::new();
        let prepared = bed.forwarder.prepare(&mut bed.pool, frame, V100, &mut pieces);
        assert!(prepared.expect("in place").completed);
        let whole = untagged(&bed.bytes(&pieces[0]), q(100));
        assert_eq!(whole[34..], packet[34..], "completed");
        pieces.drain(..).for_each(|piece| bed.pool.give_back(piece));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// By a trunk as by a port without tags, whatever is in the frame.
    #[test]
    fn a_tag_changes_nothing_but_the_port(
        kind in 0..4u8, at in 0..80usize, byte: u8, len in 14..200usize, both: bool,
    ) {
        let (tags, port, device) = if both { (q_in_ad(), V200_7, 1) } else { (q(100), V100, 0) };
        let to = ours(device);
        let mut frame = match kind {
            0 => V4 { to, ..V4::udp("198.51.100.9", 40) }.frame(),
            1 => V6 { to, ..V6::udp("2001:db8:c::9", 40) }.frame(),
            2 => V4 { to, ttl: 1, ..V4::ping("198.18.0.9") }.frame(),
            _ => V6 { to, ..V6::ping("fe80::7", &link_local(device).to_string()) }.frame(),
        };
        let at = at % frame.len();
        // Else it would have a tag more, or be another station's.
        prop_assume!(!(12..14).contains(&at) && at >= 6);
        frame[at] = byte;
        frame.truncate(len.max(18));
        let (mut one, mut other) = (bed(), bed());
        let by_tag = one.judge(device, &tagged(&frame, tags));
        let by_port = other.judge_slowly(port.0 as u8, &frame);
        prop_assert_eq!(by_tag, by_port);
        prop_assert_eq!(one.events(), other.events());
    }

    #[test]
    fn any_bytes_behind_any_tags_are_judged(bytes: Vec<u8>, count in 0..4usize) {
        let mut bed = bed();
        let mut frame = [&ours(0).0[..], &station(0).0].concat();
        for tag in 0..count {
            frame.extend([0x81, 0, 0, if tag == 0 { 100 } else { 7 }]);
        }
        frame.extend(&bytes);
        bed.judge(0, &frame);
    }
}

/// In one batch: counted by runs, in order, and each judged as what it is.
#[test]
fn a_batch_is_sorted_frame_by_frame() {
    let mut bed = bed();
    let packet = V4::udp("198.51.100.9", 10).frame();
    let frames: Vec<(u8, Vec<u8>)> =
        [Tags::NONE, q(100), q(100), q(9), tags(&[(0x88a8, 200)]), q(100)]
            .map(|tags| (0, tagged(&packet, tags)))
            .into();
    let said: Vec<Said> = bed.judge_batch(SECOND, &frames).iter().map(|one| one.said).collect();
    let pass = Said::Transmit(1);
    assert_eq!(said, [pass, pass, pass, Said::Drop(DropReason::UnknownVlan), pass, pass]);
    let counted: Vec<_> = bed.forwarder.sorted().map(|run| (run.port, run.frames)).collect();
    assert_eq!(counted, [(V100, 2), (S200, 1), (V100, 1)]);
    assert!(!bed.forwarder.has_sorted());
}
