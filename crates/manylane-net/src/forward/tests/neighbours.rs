//! Packets for neighbours in every state, and packets that were held for them.

use std::net::{IpAddr, Ipv6Addr};

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_sync::rcu::Index;

use super::super::{AdjacencyState, EVENTS_MAX, Key, NextHop, Origin, Report, Requester, Turn};
use super::bed::*;
use crate::wire::arp;
use crate::wire::nd::Advertisement;

#[test]
fn a_packet_for_an_unresolved_neighbour_is_held_as_it_came() {
    let mut bed = Bed::new();
    bed.publish(1, AdjacencyState::Unresolved, 1500);
    bed.publish(5, AdjacencyState::Unresolved, 1500);
    for (frame, slot, sender) in [
        (V4::udp("198.51.100.9", 10).frame(), 1, "192.0.2.7"),
        (V6::udp("2001:db8:b::9", 10).frame(), 5, "2001:db8:a::7"),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (Said::Hold(slot), Origin::Received));
        assert_eq!(outcome.bytes, frame);
        let requester = Requester::of(sender.parse().expect("an address"));
        assert_eq!(bed.events(), [Report::Missing { key: key(slot), requester }]);
        let guard = bed.reader.guard();
        assert_eq!(bed.forwarder.key(guard, Index::new(guard, slot)), key(slot));
    }
}

#[test]
fn a_stale_neighbour_is_used_and_reported_once_a_second() {
    let mut bed = Bed::new();
    bed.publish(1, AdjacencyState::ResolvedReport, 1500);
    bed.publish(5, AdjacencyState::ResolvedReport, 1500);
    for (frame, slot) in
        [(V4::udp("198.51.100.9", 10).frame(), 1), (V6::udp("2001:db8:b::9", 10).frame(), 5)]
    {
        for (now_ns, reports) in [(0, 1), (1, 0), (SECOND - 1, 0), (SECOND + 1, 1)] {
            let outcome = bed.judge_at(now_ns, 0, &frame);
            assert_eq!(outcome.said, Said::Transmit(1));
            assert_eq!(outcome.bytes[22], if slot == 1 { 63 } else { outcome.bytes[22] });
            assert_eq!(bed.events(), vec![Report::Used { slot }; reports], "{now_ns}");
        }
    }
}

#[test]
fn a_destination_nobody_asked_for_is_gleaned() {
    let mut bed = Bed::new();
    for (frame, port, addr) in [
        (V4::udp("10.0.2.77", 10).frame(), 2, "10.0.2.77"),
        (V4 { options: vec![1, 1, 1, 0], ..V4::udp("10.0.0.77", 10) }.frame(), 0, "10.0.0.77"),
        (V6::udp("2001:db8:2::77", 10).frame(), 2, "2001:db8:2::77"),
    ] {
        let outcome = bed.judge(0, &frame);
        assert_eq!((outcome.said, outcome.origin), (Said::Glean(port), Origin::Received));
        assert_eq!(outcome.bytes, frame, "it is judged again when the neighbour is known");
        let received = bed.receive(0, &outcome.bytes);
        assert_eq!(bed.forwarder.destination(&received), Some(addr.parse().unwrap()));
        bed.pool.give_back(received);
    }
}

/// The address may have gone between the lookup and the load of what it leads to.
#[test]
fn nobody_is_asked_for_by_a_slot_that_was_withdrawn() {
    let mut bed = Bed::new();
    bed.adjacencies.withdraw(1);
    assert_eq!(bed.judge(0, &V4::udp("198.51.100.9", 10).frame()).said, Said::Hold(1));
    assert_eq!(bed.events(), []);
    let guard = bed.reader.guard();
    assert!(bed.forwarder.key(guard, Index::new(guard, 1)).addr.is_unspecified());
}

#[test]
fn a_held_packet_is_judged_again_by_what_is_known_now() {
    let mut bed = Bed::new();
    for (frame, slot) in
        [(V4::udp("198.51.100.9", 10).frame(), 1), (V6::udp("2001:db8:b::9", 10).frame(), 5)]
    {
        for (state, said, origin) in [
            (AdjacencyState::Unresolved, Said::Hold(slot), Origin::Received),
            (AdjacencyState::Resolved, Said::Transmit(1), Origin::Received),
            (AdjacencyState::Failed, Said::Transmit(0), Origin::Error(DropReason::NeighbourFailed)),
        ] {
            let mut held = bed.receive(0, &frame);
            bed.publish(slot, state, 1500);
            let verdict = bed.forwarder.resume(
                &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
                &mut held,
            );
            let outcome = outcome(&bed.region, &held, &verdict);
            assert_eq!((outcome.said, outcome.origin), (said, origin));
            bed.pool.give_back(held);
        }
    }
}

/// Nothing that applies to received packets applies to ours: not the TTL, not the answer to an error.
#[test]
fn a_packet_of_ours_that_was_held_just_leaves() {
    let mut bed = Bed::new();
    bed.publish(0, AdjacencyState::Unresolved, 1500);
    let mut ping = bed.receive(0, &V4::ping("10.0.0.1").frame());
    let guard = bed.reader.guard();
    let verdict =
        bed.forwarder.judge(&mut Turn { guard, pool: &mut bed.pool, now_ns: SECOND }, &mut ping);
    let held = outcome(&bed.region, &ping, &verdict);
    assert_eq!((held.said, held.origin), (Said::Hold(0), Origin::Reply));

    bed.publish(0, AdjacencyState::Resolved, 1500);
    let verdict = bed.forwarder.resume(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut ping,
    );
    let left = outcome(&bed.region, &ping, &verdict);
    assert_eq!((left.said, left.origin), (Said::Transmit(0), Origin::Received));
    assert_eq!(left.bytes[..6], station(0).0);
    assert_eq!(left.bytes[14..], held.bytes[14..], "TTL and all");

    bed.publish(0, AdjacencyState::Failed, 1500);
    let verdict = bed.forwarder.resume(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut ping,
    );
    assert_eq!(outcome(&bed.region, &ping, &verdict).said, Said::Drop(DropReason::NeighbourFailed));
    let verdict = bed.forwarder.give_up(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut ping,
    );
    let dropped = outcome(&bed.region, &ping, &verdict);
    assert_eq!(dropped.said, Said::Drop(DropReason::NeighbourFailed));
    assert_eq!(dropped.origin, Origin::Received, "nobody is told about ours");
    bed.pool.give_back(ping);
}

#[test]
fn who_waited_in_vain_is_told() {
    let mut bed = Bed::new();
    for frame in [V4::udp("10.0.2.77", 10).frame(), V6::udp("2001:db8:2::77", 10).frame()] {
        let mut held = bed.receive(0, &frame);
        let verdict = bed.forwarder.give_up(
            &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
            &mut held,
        );
        let told = outcome(&bed.region, &held, &verdict);
        assert_eq!(told.said, Said::Transmit(0));
        assert_eq!(told.origin, Origin::Error(DropReason::NeighbourFailed));
        bed.pool.give_back(held);
    }
}

#[test]
fn a_frame_waits_while_its_own_neighbour_is_unresolved_and_no_longer() {
    use AdjacencyState::*;
    let mut bed = Bed::new();
    let gleaned = Key { port: PortId(2), addr: [10, 0, 2, 77].into() };
    let other = Key { port: PortId(1), ..key(2) };
    // What is held, under which slot, and what is known of slots 1 and 2.
    for (what, held, slot, known, waiting) in [
        ("nobody knows it", gleaned, None, Unresolved, true),
        ("its host route leads to an unresolved one", key(2), None, Unresolved, true),
        ("its host route leads to a resolved one", key(2), None, Resolved, false),
        ("its host route leads to a stale one", key(2), None, ResolvedReport, false),
        ("its host route leads to a failed one", key(2), None, Failed, false),
        ("it is unresolved", key(1), Some(1), Unresolved, true),
        ("it is resolved", key(1), Some(1), Resolved, false),
        ("it has failed", key(1), Some(1), Failed, false),
        ("its slot is another's by now", key(2), Some(1), Unresolved, false),
        ("its address is another port's by now", other, None, Unresolved, false),
    ] {
        bed.publish(1, known, 1500);
        bed.publish(2, known, 1500);
        let guard = bed.reader.guard();
        let slot = slot.map(|slot| Index::new(guard, slot));
        assert_eq!(bed.forwarder.is_waiting(guard, held, slot), waiting, "{what}");
        bed.quiescent();
    }
    bed.publish(5, Unresolved, 1500);
    let guard = bed.reader.guard();
    assert!(bed.forwarder.is_waiting(guard, key(5), None), "an IPv6 one");
    bed.adjacencies.withdraw(1);
    let guard = bed.reader.guard();
    assert!(!bed.forwarder.is_waiting(guard, key(1), Some(Index::new(guard, 1))), "it was removed");
}

/// A route that goes elsewhere takes what is held along.
#[test]
fn a_held_packet_takes_the_route_there_is_now() {
    let mut bed = Bed::new();
    bed.publish(1, AdjacencyState::Unresolved, 1500);
    let mut held = bed.receive(0, &V4::udp("198.51.100.9", 10).frame());
    bed.set(NEIGHBOUR + 1, NextHop::Via(2));
    let verdict = bed.forwarder.resume(
        &mut Turn { guard: bed.reader.guard(), pool: &mut bed.pool, now_ns: SECOND },
        &mut held,
    );
    assert_eq!(outcome(&bed.region, &held, &verdict).said, Said::Transmit(2));
    bed.pool.give_back(held);
}

/// One turn's reports are bounded; the next packet repeats them. Stations that ask, or answer unasked, have no share of
/// the places for answers of known neighbours; nor has one of these more than a few a second.
#[test]
fn reports_beyond_the_bound_are_forgotten() {
    let mut bed = Bed::new();
    let reply = |host: u16, port: u8| {
        let [high, low] = host.to_be_bytes();
        let answer = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: station(port),
            sender: [10, port, high, low].into(),
            target_mac: ours(port),
            target: [10, 0, port, 1].into(),
        };
        (port, super::ours::frame_of(&answer, ours(port)))
    };
    let news = |target: Ipv6Addr, port: u8| {
        let news = Advertisement::unsolicited(target, station(port));
        let mut frame = vec![0; 86];
        let len = news.emit(&mut frame, station(port), ours(port)).unwrap();
        frame.truncate(len);
        (port, frame)
    };
    let anybody = |host: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 9, host);
    for host in 0..200 {
        bed.judge_batch(SECOND, &[reply(0x0900 + host, 0)]);
        bed.judge_batch(SECOND, &[news(anybody(host), 0)]);
        bed.judge_batch(SECOND, &[(0, super::ours::who_has("10.0.0.9", "10.0.0.2"))]);
    }
    let there: Ipv6Addr = "2001:db8::2".parse().unwrap();
    for _ in 0..EVENTS_MAX {
        bed.judge_batch(SECOND, &[reply(2, 0), news(there, 0)]);
    }
    assert!(bed.forwarder.has_events());
    let urgent: Vec<Report> = bed.forwarder.urgent_events().collect();
    let known: Vec<IpAddr> = urgent
        .iter()
        .map(|event| match event {
            Report::Answer { key, .. } => key.addr,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(known, [IpAddr::from([10, 0, 0, 2]), there.into()]);
    assert_eq!(bed.events().len(), EVENTS_MAX);
    assert!(!bed.forwarder.has_events());
    for (now_ns, heard) in [(SECOND + 1, 0), (SECOND * 5 / 4, 2), (SECOND * 3 / 2, 2)] {
        bed.judge_batch(now_ns, &[reply(2, 0), news(there, 0)]);
        assert_eq!(bed.forwarder.urgent_events().count(), heard, "{now_ns}");
    }
}

/// The FIB does not lead to link-local neighbours: they are known all the same, as soon as they have a slot.
#[test]
fn an_answer_of_a_link_local_neighbour_has_its_place() {
    let mut bed = Bed::new();
    let them: Ipv6Addr = "fe80::77".parse().unwrap();
    let news = Advertisement::unsolicited(them, station(1));
    let mut frame = vec![0; 86];
    let len = news.emit(&mut frame, station(1), ours(1)).unwrap();
    frame.truncate(len);
    bed.judge(1, &frame);
    assert_eq!((bed.forwarder.urgent_events().count(), bed.events().len()), (0, 1));
    let key = Key { port: PortId(1), addr: them.into() };
    bed.publish_key(3, key, AdjacencyState::Resolved, 1500);
    let judge = |bed: &mut Bed, port, now_ns| {
        bed.judge_batch(now_ns, &[(port, frame.clone())]);
        let urgent = bed.forwarder.urgent_events().count();
        (urgent, bed.events().len())
    };
    assert_eq!(judge(&mut bed, 1, 10 * SECOND + 10_000_000), (1, 0));
    assert_eq!(judge(&mut bed, 1, 10 * SECOND + 10_000_001), (0, 1), "once is enough");
}
