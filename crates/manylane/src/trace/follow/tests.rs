//! Packets of all kinds, from made copies, events and drops.

use super::*;
use crate::trace::headers::tests::{echo, echo_v6, frame};
use manylane_io::netlink::nftables::TableFamily;
use manylane_io::netlink::nftables::trace::PREFIX;

pub(in crate::trace) const SEES_ALL: Sees = Sees { rules: true, drops: true };
const RECEIVE: u8 = 0;
const TRANSMIT: u8 = 1;
const KERNEL: u8 = 3;
/// Later than anything that is waited for.
const LATE: u64 = 1_000_000_000_000;

/// Sees `packet` at a point: received by port 1 on CPU 0.
pub(in crate::trace) fn see(follow: &mut Follow, time_ns: u64, point: u8, packet: &[u8]) {
    let port = if point == TRANSMIT { 2 } else { 1 };
    see_at(follow, time_ns, (point, port, 0), packet);
}

fn see_at(follow: &mut Follow, time_ns: u64, (point, port, cpu): (u8, u16, u32), packet: &[u8]) {
    let frame = frame(packet);
    let copied = Copied {
        time_ns,
        len: frame.len() as u32,
        port,
        queue: 0,
        cpu,
        point,
        verdict: if point == KERNEL { 8 } else { 0 },
        is_undecided: false,
        tag: None,
        bytes: &frame,
    };
    follow.copied(&copied, time_ns);
}

/// An event of packet 7 in a chain of our own, or in `filter`.
pub(in crate::trace) fn event(chain: &str, step: TraceStep, verdict: Verdict) -> TraceEvent {
    let is_own = [RECEIVED, DELIVERED, SENT].contains(&chain);
    TraceEvent {
        id: 7,
        family: if is_own { TableFamily::Inet } else { TableFamily::Ip },
        table: if is_own { format!("{PREFIX}1") } else { "filter".into() },
        chain: chain.into(),
        step,
        verdict,
        network: Vec::new(),
        transport: Vec::new(),
        egress: None,
    }
}

/// An event with the packet's headers.
pub(in crate::trace) fn with(event: TraceEvent, packet: &[u8]) -> TraceEvent {
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let (network, transport) = (packet[..header].to_vec(), packet[header..header + 20].to_vec());
    TraceEvent { network, transport, ..event }
}

pub(in crate::trace) fn drop_of(packet: &[u8], time_ns: u64) -> KernelDrop {
    let mut head = [0; 80];
    let len = packet.len().min(80);
    head[..len].copy_from_slice(&packet[..len]);
    let reason = "NETFILTER_DROP".into();
    KernelDrop { time_ns, reason, is_v6: packet[0] >> 4 == 6, head }
}

fn received(packet: &[u8]) -> TraceEvent {
    with(event(RECEIVED, TraceStep::Rule(2), Verdict::Continue), packet)
}

#[test]
fn a_forwarded_packet_ends_when_it_is_transmitted() {
    for (first, later) in
        [(echo(1, 1, 5, 64), echo(1, 1, 5, 63)), (echo_v6(1, 5, 64), echo_v6(1, 5, 63))]
    {
        let mut follow = Follow::new(1, None, SEES_ALL);
        see(&mut follow, 100, RECEIVE, &first);
        assert!(follow.finish(100).is_empty() && !follow.is_over());
        see(&mut follow, 103, TRANSMIT, &later);
        let packets = follow.finish(103);
        assert!(follow.is_over());
        assert_eq!((packets.len(), packets[0].number, packets[0].is_complete), (1, 1, true));
        let points: Vec<_> = packets[0].sights.iter().map(|sight| sight.point).collect();
        assert_eq!(points, [Point::Receive, Point::Transmit]);
    }
}

#[test]
fn no_more_packets_are_followed_than_were_wanted_and_only_of_the_port() {
    let mut follow = Follow::new(2, Some(1), SEES_ALL);
    see_at(&mut follow, 99, (RECEIVE, 2, 0), &echo(1, 1, 1, 64));
    for number in 2..9 {
        see(&mut follow, 100, RECEIVE, &echo(1, 1, number, 64));
    }
    assert_eq!(follow.packets.len(), 2);
    // Silence ends it.
    assert!(follow.finish(100 + PATIENCE_NS - 1).is_empty());
    let packets = follow.finish(100 + PATIENCE_NS);
    assert_eq!(packets.iter().map(|packet| packet.number).collect::<Vec<_>>(), [1, 2]);
    assert!(packets.iter().all(|packet| !packet.is_complete) && follow.is_over());
}

#[test]
fn a_drop_by_a_rule_has_the_rule_and_the_reason_whatever_is_read_first() {
    let (packet, hop) = (echo(1, 9, 5, 64), echo(1, 9, 5, 63));
    for copy_is_last in [false, true] {
        let mut follow = Follow::new(1, None, SEES_ALL);
        let copies = |follow: &mut Follow| {
            see(follow, 100, RECEIVE, &packet);
            see(follow, 101, KERNEL, &packet);
        };
        if !copy_is_last {
            copies(&mut follow);
            assert!(follow.finish(101).is_empty());
        }
        follow.dropped(drop_of(&hop, 105));
        follow.event(received(&packet), 110);
        follow.event(event(RECEIVED, TraceStep::Policy, Verdict::Accept), 110);
        let decision = event("forward", TraceStep::Rule(5), Verdict::Drop);
        follow.event(with(decision, &hop), 110);
        if copy_is_last {
            copies(&mut follow);
        }
        let packets = follow.finish(110);
        let packet = packets.first().expect("it has ended");
        assert_eq!(packet.dropped, Some((105, "NETFILTER_DROP".into())));
        let trace = packet.trace.as_ref().expect("it was seen");
        assert_eq!((trace.events.len(), trace.end), (1, Some(TraceEnd::Dropped)));
        assert!(packet.is_complete && follow.is_over());
    }
}

#[test]
fn a_translated_packet_is_known_by_what_it_became() {
    let (packet, translated) = (echo(1, 1, 5, 64), echo(77, 1, 5, 63));
    let mut follow = Follow::new(1, None, SEES_ALL);
    see(&mut follow, 100, KERNEL, &packet);
    follow.event(received(&packet), 101);
    let mut sent = with(event(SENT, TraceStep::Policy, Verdict::Accept), &translated);
    sent.egress = Some(3);
    // The chain ends twice: by no rule, and by its policy.
    follow.event(TraceEvent { step: TraceStep::End, verdict: Verdict::Continue, ..sent }, 102);
    follow.event(event("forward", TraceStep::End, Verdict::Continue), 102);
    follow.event(event(SENT, TraceStep::Policy, Verdict::Accept), 102);
    // A moment is given to the device.
    assert!(follow.finish(102 + MOMENT_NS - 1).is_empty());
    follow.dropped(drop_of(&translated, 150));
    let packets = follow.finish(103);
    assert_eq!(packets[0].dropped, Some((150, "NETFILTER_DROP".into())));
    let trace = packets[0].trace.as_ref().expect("it was seen");
    assert_eq!((trace.end, trace.events.len()), (Some(TraceEnd::Sent(Some(3))), 0));
    assert!(trace.last.line().starts_with("10.1.0.77 > "), "{}", trace.last.line());
}

#[test]
fn a_flow_of_ours_that_translates_is_followed_on_its_cpu() {
    let (packet, translated) = (echo(1, 1, 5, 64), echo(77, 1, 5, 63));
    for (cpu, ended) in [(0, 1), (1, 0)] {
        let mut follow = Follow::new(1, None, SEES_ALL);
        see(&mut follow, 100, RECEIVE, &packet);
        see_at(&mut follow, 101, (TRANSMIT, 2, cpu), &translated);
        assert_eq!(follow.finish(101).len(), ended);
    }
}

#[test]
fn of_another_packet_nothing_is_taken() {
    let (packet, other) = (echo(1, 1, 5, 64), echo(1, 1, 6, 64));
    let mut follow = Follow::new(1, None, SEES_ALL);
    see(&mut follow, 100, KERNEL, &packet);
    follow.event(received(&other), 101);
    follow.event(event(DELIVERED, TraceStep::Policy, Verdict::Accept), 101);
    follow.dropped(drop_of(&other, 102));
    // The same packet, before it was sent to us.
    follow.dropped(drop_of(&packet, 99));
    assert!(follow.finish(103).is_empty());
    // Its number is used again.
    follow.event(received(&packet), 104);
    follow.event(event(DELIVERED, TraceStep::Policy, Verdict::Accept), 104);
    let packets = follow.finish(104 + MOMENT_NS);
    let trace = packets[0].trace.as_ref().expect("it was seen");
    assert_eq!((trace.end, &packets[0].dropped), (Some(TraceEnd::Delivered), &None));
}

#[test]
fn where_nothing_of_the_kernel_is_seen_nothing_is_waited_for() {
    let mut follow = Follow::new(1, None, Sees::default());
    see(&mut follow, 100, KERNEL, &echo(1, 1, 5, 64));
    let packets = follow.finish(100);
    assert!(!packets[0].is_complete && follow.is_over());
    // Without drops an end by the rules is the end.
    let mut follow = Follow::new(1, None, Sees { rules: true, drops: false });
    see(&mut follow, 100, KERNEL, &echo(1, 1, 5, 64));
    follow.event(received(&echo(1, 1, 5, 64)), 100);
    follow.event(event("forward", TraceStep::Policy, Verdict::Drop), 100);
    assert!(follow.finish(100)[0].is_complete);
}

#[test]
fn everything_has_a_bound() {
    let mut follow = Follow::new(1, None, SEES_ALL);
    for id in 0..5000u32 {
        let packet = echo(1, 1, id as u8, 64);
        follow.event(TraceEvent { id, ..received(&packet) }, 1);
        follow.dropped(drop_of(&packet, 1));
    }
    assert_eq!((follow.traces.len(), follow.drops.len()), (TRACES_MAX, DROPS_MAX));
    let packet = echo(1, 9, 5, 64);
    follow.event(received(&packet), 2);
    for _ in 0..5000 {
        follow.event(event("loop", TraceStep::Rule(1), Verdict::Continue), 2);
    }
    follow.event(event("loop", TraceStep::Rule(2), Verdict::Drop), 2);
    see(&mut follow, 3, KERNEL, &packet);
    let packets = follow.finish(LATE);
    let trace = packets[0].trace.as_ref().expect("it was seen");
    assert_eq!((trace.events.len(), trace.unlisted), (EVENTS_MAX + 1, 5000 - EVENTS_MAX));
    // What is no packet.
    follow.dropped(KernelDrop { head: [0; 80], ..drop_of(&packet, 1) });
    see(&mut follow, 4, RECEIVE, &[0x45]);
    assert!(follow.is_over());
}
