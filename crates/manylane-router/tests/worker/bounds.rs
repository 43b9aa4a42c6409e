//! Each bound, and what is counted when it is reached; and what the control thread orders.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use manylane_frame::vocabulary::{
    Checksum, Created, DropReason, PortId, QueueId, SegmentKind, Segments,
};
use manylane_frame::{Batch, Frame, HEADROOM};
use manylane_io::port::Transmitter;
use manylane_io::port::memory;
use manylane_net::forward::{Turn, Verdicts};
use manylane_net::neighbour::{HOLD_MAX_NS, HoldLimits, Key, Report, State};
use manylane_net::wire::nd::{Advertisement, Solicitation};
use manylane_net::wire::{arp, icmp, ipv4};
use manylane_sync::doorbell::Wake;

use manylane_sync::rcu::Index;

use crate::rig::*;
use manylane_net::nexthop::ids::connected_id;
use manylane_worker::stats::{PortCount, WorkerCount};
use manylane_worker::worker::AwaitedNeighbour;
use manylane_worker::worker::{Order, Worker};

fn one() -> (Hall, Worker, Feed, Vec<Seen>) {
    let mut hall = Hall::new(1);
    let (feed, (seen, exits)) = (Feed::default(), sinks());
    let limits = HoldLimits { queue_frames_max: 3, frames_max: 5, queues_max: 2 };
    let worker = hall.worker(vec![fed(0, 0, &feed)], exits, limits);
    (hall, worker, feed, seen)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn frames_beyond_the_holds_bounds_are_counted() {
    let (mut hall, mut worker, feed, seen) = one();
    let send = |to: &str, sequence| feed.lock().unwrap().push(packet(addr(to), 1, sequence, 4));
    (0..4).for_each(|sequence| send("10.1.0.2", sequence));
    (0..3).for_each(|sequence| send("2001:db8:1::2", sequence)); // Two fit into all.
    send("10.1.0.3", 0); // A third queue.
    worker.turn(0);
    assert_eq!(hall.sum(0, PortCount::Held), 5);
    assert_eq!(hall.dropped(0, DropReason::HoldOverflow), 1);
    assert_eq!(hall.dropped(0, DropReason::HoldFull), 2);
    hall.assert_nothing_is_missing();

    let missing = hall.control.hear(0);
    assert!(missing.contains(&Key { port: PortId(1), addr: addr("10.1.0.2") }));
    missing.into_iter().for_each(|key| hall.control.answer(key, 0));
    worker.turn(0);
    assert_eq!(hall.sum(0, PortCount::Held), 0);
    let left: Vec<u32> =
        seen[1].lock().unwrap().iter().map(|frame| stamp(frame).unwrap().1).collect();
    assert_eq!(left, [1, 2, 3, 0, 1], "the oldest made room");
    hall.close(vec![worker]);
}

/// A scan of addresses that no station has takes every place. A packet to a station takes the place of what has waited
/// longest, and leaves when its neighbour answers.
#[test]
fn a_scan_keeps_no_packet_from_waiting_for_a_station() {
    const MS: u64 = 1_000_000;
    let (mut hall, mut worker, feed, seen) = one();
    let send = |to: &str, sequence| feed.lock().unwrap().push(packet(addr(to), 1, sequence, 4));
    for (now_ns, nobody) in
        [(0, ["10.1.0.66", "2001:db8:1::66"]), (20 * MS, ["10.1.0.67", "2001:db8:1::67"])]
    {
        nobody.iter().for_each(|to| send(to, 9));
        worker.turn(now_ns);
        hall.control.hear(now_ns);
        assert_eq!(hall.sum(0, PortCount::Held), 2, "as many queues as there may be");
    }
    for (round, station) in [(2, "10.1.0.2"), (3, "2001:db8:1::2")] {
        let now_ns = round * 20 * MS;
        send(station, 1);
        worker.turn(now_ns);
        let missing = hall.control.hear(now_ns);
        assert_eq!(missing, [Key { port: PortId(1), addr: addr(station) }]);
        missing.into_iter().for_each(|key| hall.control.answer(key, now_ns));
        worker.turn(now_ns + MS);
        assert_eq!(seen[1].lock().unwrap().len() as u64, round - 1, "{station}");
    }
    assert_eq!(
        hall.dropped(0, DropReason::HoldOverflow),
        3,
        "the oldest, one for each new neighbour"
    );
    assert_eq!(hall.dropped(0, DropReason::HoldFull), 0);
    // Within 10 ms no neighbour gives way: all may still answer.
    send("10.1.0.68", 9);
    worker.turn(100 * MS);
    send("10.1.0.69", 9);
    worker.turn(104 * MS);
    send("10.1.0.70", 9);
    worker.turn(105 * MS);
    assert_eq!(hall.dropped(0, DropReason::HoldFull), 1);
    hall.assert_nothing_is_missing();
    hall.close(vec![worker]);
}

#[test]
fn who_waits_in_vain_is_told_when_the_neighbour_has_failed() {
    let (mut hall, mut worker, feed, seen) = one();
    hall.control.set("10.0.0.2", 0);
    feed.lock().unwrap().push(packet(addr("10.1.0.2"), 1, 0, 4));
    worker.turn(0);
    hall.control.hear(0);
    for seconds in 1..5 {
        hall.control.tick(seconds * SECOND);
        worker.turn(seconds * SECOND);
    }
    assert_eq!(hall.sum(0, PortCount::Held), 0);
    assert_eq!(hall.dropped(0, DropReason::NeighbourFailed), 1);
    assert_host_unreachable(&seen[0].lock().unwrap()[0]);
    hall.close(vec![worker]);
}

/// The control thread is gone, or never heard: nothing is held for ever.
#[test]
fn who_waits_too_long_is_told_though_nobody_says_anything() {
    let (mut hall, mut worker, feed, seen) = one();
    hall.control.set("10.0.0.2", 0);
    feed.lock().unwrap().push(packet(addr("10.1.0.2"), 1, 0, 4));
    worker.turn(0);
    assert_eq!(worker.turn(HOLD_MAX_NS - 1), 0);
    assert_eq!(hall.sum(0, PortCount::Held), 1);
    assert_eq!(worker.turn(HOLD_MAX_NS), 1);
    assert_eq!(hall.sum(0, PortCount::Held), 0);
    assert_eq!(hall.dropped(0, DropReason::NeighbourFailed), 1);
    assert_eq!(hall.created(0, Created::Error), 1);
    assert_host_unreachable(&seen[0].lock().unwrap()[0]);
    hall.close(vec![worker]);
}

/// Flows of other groups move all the time, and everything that is held is judged anew each time: it is held
/// for no longer, and its neighbour is requested no more often.
#[test]
fn what_is_judged_again_keeps_its_age() {
    let mut hall = Hall::new(1);
    let (feed, (seen, exits)) = (Feed::default(), sinks());
    let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
    ["10.0.0.2", "2001:db8::2"].into_iter().for_each(|host| hall.control.set(host, 0));
    // Two unknown ones, and two with a slot.
    let silent = ["10.1.0.2", "2001:db8:1::2", "10.1.0.3", "2001:db8:1::3"].map(addr);
    for (flow, &host) in (0..).zip(&silent[2..]) {
        feed.lock().unwrap().push(packet(host, flow, 0, 4));
        worker.turn(0);
        hall.control.hear(0);
    }
    for (flow, &host) in (2..).zip(&silent[..2]) {
        feed.lock().unwrap().push(packet(host, flow, 0, 4));
    }
    worker.turn(0);
    let mut asked = [0; 4];
    let (mut steps, mut now_ns) = (0u32, 0);
    while now_ns < HOLD_MAX_NS {
        assert_eq!(hall.sum(0, PortCount::Held), 4, "at {now_ns}");
        // A group elsewhere, where one member is found, and then the other.
        let members =
            [2 * steps + 100, 2 * steps + 101].map(|host| IpAddr::from([10, 1, 1, host as u8]));
        hall.control.add_group([198, 18, steps as u8, 0].into(), &members, now_ns);
        for member in members {
            hall.control.answer(Key { port: PortId(1), addr: member }, now_ns);
            worker.turn(now_ns);
            let reported = &mut hall.control.reported[0];
            while let Some(report) = reported.pop() {
                let Report::Missing { key, .. } = report else { panic!("{report:?}") };
                let host = silent.iter().position(|&host| host == key.addr);
                asked[host.expect("nobody else is missing")] += 1; // And is not handled.
            }
            reported.release();
        }
        steps += 1;
        now_ns += SECOND / 10;
    }
    assert!(hall.control.routing.tables().next_hops.generation() >= 4 * steps, "flows moved");
    assert!(asked.iter().all(|&asked| (1..=7).contains(&asked)), "once a second: {asked:?}");
    worker.turn(HOLD_MAX_NS);
    assert_eq!(hall.sum(0, PortCount::Held), 0);
    assert_eq!(hall.dropped(0, DropReason::NeighbourFailed), 4);
    assert_eq!(seen[0].lock().unwrap().len(), 4, "each sender is told");
    hall.close(vec![worker]);
}

fn assert_host_unreachable(frame: &[u8]) {
    let view = ipv4::View::checked(&frame[14..]).unwrap();
    let message = icmp::View::checked(view.payload()).unwrap();
    assert_eq!((message.kind(), message.code()), (3, 1));
}

/// The report was lost; the packets that wait with the first must not keep its silence.
#[test]
fn a_neighbour_that_nobody_has_heard_of_is_asked_for_once_a_second() {
    let (mut hall, mut worker, feed, _) = one();
    let key = Key { port: PortId(1), addr: addr("10.1.0.2") };
    for (now_ns, asked) in [(0, 1), (1, 0), (SECOND - 1, 0), (SECOND, 1), (SECOND + 1, 0)] {
        feed.lock().unwrap().push(packet(key.addr, 1, 0, 4));
        worker.turn(now_ns);
        let mut missing = Vec::new();
        let reported = &mut hall.control.reported[0];
        while let Some(report) = reported.pop() {
            missing.push(report); // And is not handled.
        }
        reported.release();
        assert_eq!(missing.len(), asked, "{now_ns}");
    }
    hall.close(vec![worker]);
}

#[test]
fn what_finds_no_place_in_a_ring_is_dropped_and_counted() {
    let mut hall = Hall::new(1);
    hall.control.set("10.1.0.2", 1);
    let feed = Feed::default();
    let (receivers, mut wires) = memory::wires(PortId(9), 1, &[bell()], 8, |_| 0);
    let wire = Transmitter::Memory(wires.remove(0));
    let exits = vec![sink(&Seen::default()), wire, sink(&Seen::default())];
    let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
    for sequence in 0..20 {
        feed.lock().unwrap().push(packet(addr("10.1.0.2"), 1, sequence, 4));
    }
    worker.turn(0);
    let sent = hall.sum(1, PortCount::Sent);
    assert!((8..20).contains(&sent), "{sent}");
    assert_eq!(hall.dropped(0, DropReason::TransmitRingFull), 20 - sent);
    assert_eq!(hall.sum(0, PortCount::Transmitted), sent);
    let mut pool = hall.depot.pool_of(128);
    for receiver in receivers {
        assert_eq!(u64::from(receiver.close(&mut pool)), sent);
    }
    drop(pool);
    hall.close(vec![worker]);
}

/// More frames for one port than wait at once: the first leave before the turn ends.
#[test]
fn a_turn_sends_more_than_one_batch_through_a_port() {
    let mut hall = Hall::new(1);
    hall.control.set("10.1.0.2", 1);
    let (feed, other, (seen, exits)) = (Feed::default(), Feed::default(), sinks());
    let queues = vec![fed(0, 0, &feed), fed(0, 1, &other)];
    let mut worker = hall.worker(queues, exits, HoldLimits::default());
    for sequence in 0..64 {
        feed.lock().unwrap().push(packet(addr("10.1.0.2"), 0, sequence, 4));
        other.lock().unwrap().push(packet(addr("10.1.0.2"), 1, sequence, 4));
    }
    assert_eq!(worker.turn(0), 128);
    assert_eq!(seen[1].lock().unwrap().len(), 128);
    hall.close(vec![worker]);
}

/// A port hands over what its sender left to be cut; the egress port does not cut. One packet was received.
#[test]
fn every_segment_is_accounted_for() {
    segments_are_accounted_for("10.1.0.2", 34);
    segments_are_accounted_for("2001:db8:1::2", 54);
}

/// `start`: where UDP begins.
fn segments_are_accounted_for(host: &str, start: u16) {
    let (mut hall, mut worker, _, seen) = one();
    hall.control.set(host, 1);
    let bytes = packet(addr(host), 1, 0, 4004);
    let Worker { reader, work } = &mut worker;
    let region = work.pool.region().clone();
    let mut batch = Batch::new();
    let mut large: Option<Frame> = None;
    for part in bytes.chunks(1500) {
        let mut frame = work.pool.take().unwrap();
        let checksum = Checksum::Partial { start: HEADROOM + start, offset: 6 };
        region.set_ingress(&mut frame, PortId(0), QueueId(0), checksum);
        region.meta_mut(&mut frame).segments =
            Segments { kind: SegmentKind::Udp, ecn: false, size: 1000 };
        region.set_window(&mut frame, HEADROOM, HEADROOM + part.len() as u16);
        region.bytes_mut(&mut frame).copy_from_slice(part);
        match &mut large {
            Some(large) => region.view().append(large, frame).unwrap(),
            None => large = Some(frame),
        }
    }
    batch.push(large.unwrap()).unwrap();
    let mut verdicts = Verdicts::new();
    work.forwarder.forward(
        &mut Turn { guard: reader.guard(), pool: &mut work.pool, now_ns: 0 },
        &mut batch,
        &mut verdicts,
    );
    work.stats.count(PortId(0), PortCount::Received, 1);
    assert_eq!(verdicts.bytes(), bytes.len() as u64);
    let turn = manylane_worker::worker::Turn { guard: reader.guard(), now_ns: 0 };
    work.dispatch(turn, batch.pop().unwrap(), &verdicts.list()[0]);
    worker.turn(0);
    let lens: Vec<usize> = seen[1].lock().unwrap().iter().map(Vec::len).collect();
    let headers = usize::from(start) + 8;
    let last = bytes.len() - 4000;
    assert_eq!(lens, [headers + 1000, headers + 1000, headers + 1000, headers + 1000, last]);
    assert_eq!(hall.created(0, Created::Segment), 4);
    assert_eq!(hall.sum(0, PortCount::Transmitted), 5);
    hall.close(vec![worker]);
}

#[test]
fn an_order_becomes_a_question() {
    let (mut hall, mut worker, _, seen) = one();
    for (addr, unicast) in [("10.1.0.9", None), ("2001:db8:1::9", Some([2, 9, 9, 9, 9, 9]))] {
        let key = Key { port: PortId(1), addr: addr.parse().unwrap() };
        hall.control.orders[0].push(Order::Solicit { key, unicast }).unwrap();
    }
    hall.control.orders[0].submit();
    assert_eq!(worker.turn(0), 2);
    assert_eq!(hall.created(1, Created::Solicitation), 2);
    assert_eq!(hall.sum(1, PortCount::Transmitted), 2);
    let seen = seen[1].lock().unwrap();
    assert_eq!(seen[0][..6], [0xff; 6]);
    assert!(arp::Packet::checked(&seen[0][14..]).is_some());
    assert_eq!(seen[1][..6], [2, 9, 9, 9, 9, 9]);
    drop(seen);
    hall.close(vec![worker]);
}

/// What the control thread wants to be said of our own addresses is said, and counted.
#[test]
fn an_order_becomes_a_probe_or_an_announcement() {
    let (mut hall, mut worker, _, seen) = one();
    for addr in ["10.1.0.1", "2001:db8:1::1"] {
        let key = Key { port: PortId(1), addr: addr.parse().unwrap() };
        for order in [Order::Probe { key }, Order::Announce { key }] {
            hall.control.orders[0].push(order).unwrap();
        }
    }
    hall.control.orders[0].submit();
    assert_eq!(worker.turn(0), 4);
    assert_eq!(hall.created(1, Created::Solicitation), 2);
    assert_eq!(hall.created(1, Created::Announcement), 2);
    assert_eq!(hall.sum(1, PortCount::Transmitted), 4);
    let seen = seen[1].lock().unwrap();
    let arp = |at: usize| arp::Packet::checked(&seen[at][14..]).unwrap();
    assert!(arp(0).is_probe() && arp(1).is_announcement());
    let group = [0x33, 0x33, 0xff, 0, 0, 1];
    assert_eq!((&seen[2][..6], &seen[3][..6]), (&group[..], &[0x33, 0x33, 0, 0, 0, 1][..]));
    drop(seen);
    hall.close(vec![worker]);
}

/// The pool is empty: an order waits for a frame, and those behind it for their turn.
#[test]
fn an_order_waits_for_a_frame() {
    let (mut hall, mut worker, _, seen) = one();
    let mut pool = hall.depot.pool_of(256);
    let all = std::iter::from_fn(|| worker.work.pool.take().or_else(|| pool.take()));
    let mut all: Vec<Frame> = all.collect();
    for addr in ["10.1.0.2", "2001:db8:1::2"].map(addr) {
        let key = Key { port: PortId(1), addr };
        hall.control.orders[0].push(Order::Solicit { key, unicast: None }).expect("there is room");
    }
    hall.control.orders[0].submit();
    assert_eq!((worker.turn(0), worker.turn(0)), (0, 0));
    all.drain(..).for_each(|frame| worker.work.pool.give_back(frame));
    drop(pool);
    worker.turn(0);
    let questions: Vec<[u8; 2]> =
        seen[1].lock().unwrap().iter().map(|frame| [frame[12], frame[13]]).collect();
    assert_eq!(questions, [[0x08, 0x06], [0x86, 0xdd]]);
    hall.close(vec![worker]);
}

/// Linux's `unres_qlen`, of each family: the newest 101 leave, in order; the others are counted.
#[test]
fn by_default_101_packets_wait_for_a_neighbour() {
    let mut hall = Hall::new(1);
    let (feed, (seen, exits)) = (Feed::default(), sinks());
    let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
    for sequence in 0..150 {
        for (flow, to) in [(1, "10.1.0.2"), (2, "2001:db8:1::2")] {
            feed.lock().unwrap().push(packet(addr(to), flow, sequence, 4));
        }
    }
    while worker.turn(0) > 0 {}
    assert_eq!(hall.sum(0, PortCount::Held), 202);
    assert_eq!(hall.dropped(0, DropReason::HoldOverflow), 98);
    hall.assert_nothing_is_missing();
    for key in hall.control.hear(0) {
        hall.control.answer(key, 0);
    }
    worker.turn(0);
    for flow in [1, 2] {
        let seen = seen[1].lock().unwrap();
        let stamps = seen.iter().map(|frame| stamp(frame).unwrap());
        let left: Vec<u32> =
            stamps.filter(|stamp| stamp.0 == flow).map(|(_, sequence)| sequence).collect();
        assert_eq!(left, Vec::from_iter(49..150));
    }
    hall.close(vec![worker]);
}

/// Nothing comes for a minute, then a frame, and so for hours.
#[test]
fn sleeping_for_long_looks_again_every_second() {
    let (hall, mut worker, _, _) = one();
    worker.work.queues.clear();
    worker.work.state.reclaim_ns = 1_024_000_000;
    hold_for(&mut worker, addr("10.1.0.2"));
    worker.work.state.held_generation = hall.control.routing.tables().next_hops.generation();
    worker.work.state.neighbour_generation = hall.control.routing.tables().adjacencies.generation();
    worker.sleep(0);
    assert_eq!(worker.work.state.reclaim_ns, 1_024_000_000);
    hall.close(vec![worker]);
}

/// From now on the worker holds for a host of port 1, as yet nothing.
fn hold_for(worker: &mut Worker, host: IpAddr) {
    let key = Key { port: PortId(1), addr: host };
    let guard = worker.reader.guard();
    let link = Index::<()>::new(guard, connected_id(key.port).raw().into());
    let dst = worker.work.dsts.borrow(guard, link, 0).expect("each port has one");
    let dst = worker.work.dsts.hold(dst);
    worker.work.state.awaited.push(AwaitedNeighbour { key, dst, requested_ns: 0 });
}

/// Flows have moved since the held packets were looked up: the worker has work before sleep.
#[test]
fn nobody_sleeps_while_flows_have_moved() {
    for (moved, held, sleeps) in [(true, true, 0), (true, false, 1), (false, true, 1)] {
        let (hall, mut worker, _, _) = one();
        worker.work.queues.clear();
        let tables = hall.control.routing.tables();
        worker.work.state.neighbour_generation = tables.adjacencies.generation();
        worker.work.state.held_generation =
            tables.next_hops.generation().wrapping_sub(2 * u32::from(moved));
        if held {
            hold_for(&mut worker, addr("2001:db8:1::2"));
        }
        worker.work.bell.waker().wake(); // A sleeper is woken at once.
        worker.sleep(0);
        assert_eq!(hall.counted(WorkerCount::Sleeps), sleeps, "{moved} {held}");
        hall.close(vec![worker]);
    }
}

#[test]
fn a_list_follows_the_length_that_is_wanted_of_it() {
    let (mut hall, mut worker, feed, _) = one();
    hall.control.set("10.1.0.2", 1);
    (0..64).for_each(|number| feed.lock().unwrap().push(packet(addr("10.1.0.2"), 1, number, 4)));
    worker.turn(0);
    assert_eq!(worker.work.pool.hot_list_len(), 256);
    let mut other = hall.depot.pool_of(128);
    (0..100).for_each(|_| worker.work.pool.give_back(other.take().expect("most are free")));
    drop(other);
    assert!(worker.work.pool.level() > 128, "more than the first length");
    for len in [128, 8192, 8192, 129] {
        hall.hot_list_len.publish(0, len);
        worker.work.apply_settings();
        assert_eq!(worker.work.pool.hot_list_len(), len);
        assert_eq!(worker.work.pool.counts().spills, 1, "to 128, and never again");
        assert!(worker.work.pool.level() <= len as usize);
        worker.turn(0);
    }
    hall.close(vec![worker]);
}

/// Nearly all frames are elsewhere: fewer packets are received, and those that are, are cut.
#[test]
fn frames_that_run_out_are_missing_where_packets_come_in_and_nowhere_else() {
    const PACKETS: u32 = 500;
    let (mut hall, mut worker, feed, seen) = one();
    hall.control.set("10.2.0.2", 2);
    let mut elsewhere = hall.depot.pool_of(8192);
    let left = manylane_frame::RESERVE as u32 + 20;
    let taken: Vec<_> = (left..FRAMES).map(|_| elsewhere.take().expect("all are free")).collect();
    drop(elsewhere); // What its list had over goes back.
    for number in 0..PACKETS {
        feed.lock().unwrap().push(packet(addr("10.2.0.2"), 1, number, 1400)); // Two fragments each.
    }
    let mut turns = 0;
    while worker.turn(turns) > 0 {
        turns += 1;
        hall.assert_nothing_is_missing();
    }
    assert_eq!(turns, u64::from(PACKETS / 20), "20 of a batch of 64 each");
    assert!(worker.work.pool.counts().starved > 0);
    assert_eq!(hall.dropped(0, DropReason::NoFrame), 0);
    assert_eq!(seen[2].lock().unwrap().len(), 2 * PACKETS as usize);
    let mut pool = hall.depot.pool_of(8192);
    taken.into_iter().for_each(|frame| pool.give_back(frame));
    drop(pool);
    hall.close(vec![worker]);
}

/// The control thread is slower than a scan: the ring is full of neighbours that are missing. Those that
/// answer must be heard, or they would look dead.
#[test]
fn answers_are_heard_through_a_scan() {
    let mut hall = Hall::new(1);
    let (feed, back, (seen, exits)) = (Feed::default(), Feed::default(), sinks());
    let queues = vec![fed(0, 0, &feed), fed(1, 0, &back)];
    let mut worker = hall.worker(queues, exits, HoldLimits::default());
    let hosts = ["10.1.0.2", "2001:db8:1::2"];
    for host in hosts {
        feed.lock().unwrap().push(packet(addr(host), 1, 0, 4));
    }
    worker.turn(0);
    hall.control.hear(0);
    hall.control.tick(0); // Both are solicited.
    for number in 0..4000u32 {
        let host: IpAddr = match number % 2 {
            0 => [10, 1, 1 + (number / 250) as u8, (number % 250) as u8].into(),
            _ => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, number as u16).into(),
        };
        feed.lock().unwrap().push(packet(host, 2, number, 4));
    }
    while worker.turn(1) > 0 {}
    let mut reply = vec![0; 42];
    let answer = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: station(1),
        sender: [10, 1, 0, 2].into(),
        target_mac: ours(1),
        target: [10, 1, 0, 1].into(),
    };
    answer.emit_frame(&mut reply, ours(1)).unwrap();
    let mut news = vec![0; 86];
    let (our, their) = ("2001:db8:1::1".parse().unwrap(), "2001:db8:1::2".parse().unwrap());
    let question = Solicitation::ask(ours(1), our, their);
    Advertisement::answer(&question, station(1)).emit(&mut news, station(1), ours(1)).unwrap();
    back.lock().unwrap().extend([reply, news]);
    worker.turn(2);
    let reported = &mut hall.control.reported[0];
    let reports: Vec<Report> = std::iter::from_fn(|| reported.pop()).collect();
    reported.release();
    let missing = reports.iter().filter(|report| matches!(report, Report::Missing { .. })).count();
    assert!((700..1024).contains(&missing), "{missing}: as many as had places");
    assert_eq!(reports.len() - missing, 2, "and both answers");
    for report in reports {
        hall.control.routing.handle(report, Duration::ZERO, &mut hall.control.told);
    }
    for host in hosts {
        let key = Key { port: PortId(1), addr: addr(host) };
        let known = hall.control.routing.neighbours().find(|entry| entry.key == key);
        assert_eq!(known.map(|entry| entry.state), Some(State::Reachable), "{host}");
    }
    worker.turn(3);
    assert_eq!(seen[1].lock().unwrap().iter().filter(|it| stamp(it).unwrap().0 == 1).count(), 2);
    hall.close(vec![worker]);
}

/// A host scans a network whose hosts do not exist, all the while others talk to one that does: no
/// more frames wait for the scanned than may, and nothing of the others is lost.
#[test]
fn a_scan_of_silent_neighbours_does_not_stop_resolved_flows() {
    let mut hall = Hall::new(1);
    hall.control.set("10.1.0.2", 1);
    let (feed, (seen, exits)) = (Feed::default(), sinks());
    let limits = HoldLimits { frames_max: 1024, ..HoldLimits::default() };
    let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, limits);
    let (mut sent, mut scanned) = (0, 0);
    for turn in 0..600 {
        for _ in 0..4 {
            let host: IpAddr = match scanned % 2 {
                0 => [10, 1, 1 + (scanned / 250) as u8, (scanned % 250) as u8].into(),
                _ => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, scanned as u16).into(),
            };
            feed.lock().unwrap().push(packet(host, 2, scanned, 4));
            scanned += 1;
        }
        (0..60).for_each(|_| {
            feed.lock().unwrap().push(packet(addr("10.1.0.2"), 1, sent, 4));
            sent += 1;
        });
        worker.turn(turn);
    }
    while worker.turn(600) > 0 {} // What was received in smaller batches.
    let left = seen[1].lock().unwrap().iter().filter(|frame| stamp(frame).unwrap().0 == 1).count();
    assert_eq!(left, sent as usize);
    assert!(hall.dropped(0, DropReason::HoldFull) > 1000);
    assert!(hall.sum(0, PortCount::Held) <= 1024);
    assert_eq!(hall.dropped(0, DropReason::NoFrame), 0);
    hall.close(vec![worker]);
}
