//! Groups of next hops: whose a packet is (design: flow hash over the 5-tuple, RFC 2992's concern).

use super::bed::*;
use crate::neighbour::AdjacencyState;
use crate::nexthop::{GroupId, Member, NextHop};
use crate::wire::{icmp, icmpv6, protocol};

/// 198.51.100/24 and 2001:db8:b::/48 lead to stations 0, 1 and 2 by these weights.
fn bed(weights: [u16; 3]) -> (Bed, [GroupId; 2]) {
    let mut bed = Bed::new();
    let groups = [0, 4].map(|first| {
        let members = [0, 1, 2].map(|n| Member { slot: first + n, weight: weights[n as usize] });
        bed.next_hops.add_group(&members, |_| true).expect("there are two")
    });
    bed.set(NEIGHBOUR + 1, NextHop::Group(groups[0]));
    bed.set(NEIGHBOUR + 5, NextHop::Group(groups[1]));
    (bed, groups)
}

fn v4(flow: u16) -> V4 {
    let mut packet = V4::udp("198.51.100.9", 10);
    packet.payload[..2].copy_from_slice(&flow.to_be_bytes());
    packet
}

fn v6(flow: u16) -> V6 {
    let mut packet = V6::udp("2001:db8:b::9", 10);
    packet.payload[..2].copy_from_slice(&flow.to_be_bytes());
    packet
}

/// The port that a packet leaves by: each has one member.
fn egress(bed: &mut Bed, frame: &[u8]) -> u16 {
    let said = bed.judge(0, frame).said;
    let Said::Transmit(port) = said else { panic!("{said:?}") };
    assert_eq!(bed.judge_slowly(0, frame).said, said, "by either way");
    port
}

#[test]
fn flows_are_shared_by_weight_and_each_keeps_its_member() {
    let (mut bed, _) = bed([1, 2, 5]);
    for frame in [|flow| v4(flow).frame(), |flow| v6(flow).frame()] {
        let mut flows = [0; 3];
        for flow in 0..800 {
            let port = egress(&mut bed, &frame(flow));
            assert_eq!(egress(&mut bed, &frame(flow)), port);
            flows[usize::from(port)] += 1;
        }
        for (flows, expected) in flows.into_iter().zip([100, 200, 500]) {
            assert!((expected - 60..expected + 60).contains(&flows), "{flows} of 800");
        }
    }
}

/// What a packet is, and whether packets with other bytes where ports are may take other ways.
#[test]
fn only_whole_packets_with_ports_are_told_apart_by_them() {
    let (mut bed, _) = bed([1, 1, 1]);
    let first = |flow| V4 { fragment: 0x2000, ..v4(flow) }.frame();
    let later = |flow| V4 { fragment: 0x0010, ..v4(flow) }.frame();
    let unknown = |flow| V4 { protocol: 253, ..v4(flow) }.frame();
    let fragment6 = |flow: u16| {
        let header = [protocol::UDP, 0, 0, 9, 0, 0, 0, 1];
        let payload = [&header[..], &flow.to_be_bytes(), &[0; 14]].concat();
        V6 { next_header: protocol::FRAGMENT, payload, ..v6(0) }.frame()
    };
    let unknown6 = |flow| V6 { next_header: 253, ..v6(flow) }.frame();
    let tcp = |flow| V4 { protocol: protocol::TCP, ..v4(flow) }.frame();
    type Make<'a> = &'a dyn Fn(u16) -> Vec<u8>;
    let rows: [(&str, Make<'_>, bool); 6] = [
        ("a first fragment", &first, false),
        ("a later fragment", &later, false),
        ("an unknown transport", &unknown, false),
        ("an IPv6 fragment", &fragment6, false),
        ("an unknown transport by IPv6", &unknown6, false),
        ("TCP", &tcp, true),
    ];
    for (what, frame, apart) in rows {
        let ports: Vec<u16> = (0..64).map(|flow| egress(&mut bed, &frame(flow))).collect();
        assert_eq!(ports.iter().any(|&port| port != ports[0]), apart, "{what}");
    }
    assert_eq!(egress(&mut bed, &first(1)), egress(&mut bed, &later(2)), "of one packet");
}

/// An exception of a flow, and an error about it, take the path of its fast-path packets.
#[test]
fn odd_packets_and_errors_follow_their_flow() {
    let (mut bed, _) = bed([1, 1, 1]);
    for flow in 0..64 {
        let whole = v4(flow);
        let port = egress(&mut bed, &whole.frame());
        let options = V4 { options: vec![1, 1, 1, 0], ..whole.clone() };
        assert_eq!(egress(&mut bed, &options.frame()), port);
        // From the far end of the flow in the other direction.
        let mut about =
            V4 { source: whole.destination, destination: whole.source, ..whole.clone() };
        about.payload[..4].rotate_left(2);
        let quoted = &about.frame()[14..];
        let error = V4::icmp("198.51.100.9", icmp::kind::TIME_EXCEEDED, 0, 0, quoted);
        assert_eq!(egress(&mut bed, &error.frame()), port, "flow {flow}");

        let whole = v6(flow);
        let port = egress(&mut bed, &whole.frame());
        let mut about =
            V6 { source: whole.destination, destination: whole.source, ..whole.clone() };
        about.payload[..4].rotate_left(2);
        let quoted = &about.frame()[14..];
        let kind = icmpv6::kind::TIME_EXCEEDED;
        let error = V6::icmp("2001:db8:a::8", "2001:db8:b::9", kind, 0, quoted);
        assert_eq!(egress(&mut bed, &error.frame()), port, "flow {flow}");
    }
}

#[test]
fn a_member_that_is_lost_moves_its_own_flows_and_no_other() {
    let (mut bed, _) = bed([1, 1, 1]);
    let all = |bed: &mut Bed| Vec::from_iter((0..300).map(|flow| egress(bed, &v4(flow).frame())));
    let before = all(&mut bed);
    // As control tells it: workers never find the failed adjacency by the group.
    assert!(bed.next_hops.set_resolved(1, false));
    bed.publish(1, AdjacencyState::Failed, 1500);
    let without = all(&mut bed);
    for (&before, &without) in before.iter().zip(&without) {
        assert_ne!(without, 1);
        assert!(before == 1 || without == before);
    }
    bed.publish(1, AdjacencyState::Resolved, 1500);
    bed.next_hops.set_resolved(1, true);
    assert_eq!(all(&mut bed), before);
}

/// No member has an address: flows wait for their own members, and each is requested.
#[test]
fn a_group_of_the_unresolved_holds_and_asks() {
    let (mut bed, _) = bed([1, 1, 1]);
    for slot in 0..3 {
        bed.next_hops.set_resolved(slot, false);
        bed.publish(slot, AdjacencyState::Unresolved, 1500);
    }
    let mut held = [0; 3];
    for flow in 0..60 {
        let said = bed.judge(0, &v4(flow).frame()).said;
        let Said::Hold(slot) = said else { panic!("{said:?}") };
        held[slot as usize] += 1;
    }
    assert!(held.iter().all(|&flows| flows > 5), "{held:?}");
    assert_eq!(bed.events().len(), 3, "one question each");
}
