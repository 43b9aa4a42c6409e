//! I3: whatever moves, no flow is reordered.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use manylane_frame::Batch;
use manylane_frame::vocabulary::PortId;
use manylane_io::port::memory;
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::forward::{Turn, Verdicts};
use manylane_net::neighbour::{HoldLimits, Key};
use manylane_net::wire::flow::flow_hash;

use crate::rig::*;
use manylane_worker::stats::PortCount;
use manylane_worker::worker::{Pending, Worker};

/// The `number`th host on port 1, IPv4 and IPv6 in turn.
fn host(number: u16) -> IpAddr {
    let [high, low] = (number + 2).to_be_bytes();
    if number.is_multiple_of(2) {
        [10, 1, high, low].into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, number).into()
    }
}

/// The transmitted numbers of each flow rise by one.
fn assert_in_order(seen: &[Vec<u8>]) -> HashMap<u16, u32> {
    let mut next: HashMap<u16, u32> = HashMap::new();
    for frame in seen {
        let (flow, sequence) = stamp(frame).expect("only stamped packets go there");
        let next = next.entry(flow).or_default();
        assert_eq!(sequence, *next, "flow {flow}");
        *next += 1;
    }
    next
}

/// What happens in the middle of a turn, for a test to set.
type Meddler = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;

/// The neighbour answers between two turns, between two queues, or while a batch is received: its
/// packets leave in order. Each round has a new neighbour.
#[test]
fn a_flow_keeps_its_order_when_its_neighbour_answers_at_any_step() {
    let mut hall = Hall::new(1);
    let feed = Feed::default();
    let (seen, exits) = sinks();
    let mut random = Random(1);
    // What the second queue does while it "receives", and what the first does before it does.
    let middle = Meddler::default();
    let meddle = |middle: &Meddler| {
        let middle = middle.clone();
        move || {
            if let Some(action) = &mut *middle.lock().unwrap() {
                action();
            }
        }
    };
    let (before, between) = (meddle(&middle), meddle(&middle));
    let first_feed = feed.clone();
    let first = source(0, 0, move || {
        before();
        let mut feed = first_feed.lock().unwrap();
        if feed.is_empty() { None } else { Some(feed.remove(0)) }
    });
    let second = source(0, 1, move || {
        between();
        None
    });
    let mut worker = hall.worker(vec![first, second], exits, HoldLimits::default());

    let control = Arc::new(Mutex::new(hall.control));
    for round in 0..60 {
        let key = Key { port: PortId(1), addr: host(round) };
        let now = u64::from(round) * SECOND;
        let mut sequence = 0;
        // How many calls of a source's function before the neighbour answers.
        let mut left = random.below(120);
        let shared = control.clone();
        *middle.lock().unwrap() = Some(Box::new(move || {
            if left == 0 {
                let mut control = shared.lock().unwrap();
                control.hear(now);
                control.answer(key, now);
            }
            left = left.wrapping_sub(1);
        }));
        for _ in 0..4 {
            let mut feed = feed.lock().unwrap();
            for _ in 0..20 {
                feed.push(packet(key.addr, round, sequence, 4));
                sequence += 1;
            }
            drop(feed);
            worker.turn(now);
        }
        *middle.lock().unwrap() = None;
        let mut control = control.lock().unwrap();
        control.hear(now);
        control.answer(key, now);
        drop(control);
        worker.turn(now);
        worker.turn(now);
    }
    drop(middle);
    let in_order = assert_in_order(&seen[1].lock().unwrap());
    assert_eq!(in_order.len(), 60);
    assert!(in_order.values().all(|&next| next == 80), "{in_order:?}");
    let control = Arc::into_inner(control);
    hall.control = control.expect("the sources have let go").into_inner().unwrap();
    hall.close(vec![worker]);
}

/// The neighbour answers while the worker judges a batch: some of its packets have a verdict to be held,
/// and those behind them one to leave. A real thread plays the control thread.
#[test]
fn a_flow_keeps_its_order_when_its_neighbour_answers_inside_a_batch() {
    answers_inside_a_batch(Hall::new(1), host, |key| key);
}

/// As above, and the other member of the group answers: the flow moves to it while the worker judges
/// a batch.
#[test]
fn a_flow_keeps_its_order_when_it_moves_inside_a_batch() {
    let mut hall = Hall::new(1);
    let mut other = HashMap::new();
    for flow in 0..FLOWS_IN_BATCHES {
        // Two of one family.
        let members = [4 * flow + flow % 2, 4 * flow + flow % 2 + 2].map(host);
        hall.control.add_group(behind(flow), &members, 0);
        let [one, two] = members.map(|addr| Key { port: PortId(1), addr });
        other.extend([(one, two), (two, one)]);
    }
    answers_inside_a_batch(hall, behind, move |key| other[&key]);
}

/// What is behind the `number`th group, IPv4 and IPv6 in turn.
fn behind(number: u16) -> IpAddr {
    if number.is_multiple_of(2) {
        [198, 18, number as u8, 9].into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0x100 + number, 0, 0, 0, 0, 9).into()
    }
}

const FLOWS_IN_BATCHES: u16 = 200;

/// One flow after the other is sent `to` its host, until `who` answers for the awaited neighbour.
fn answers_inside_a_batch(mut hall: Hall, to: fn(u16) -> IpAddr, who: impl Fn(Key) -> Key + Send) {
    /// Packets of a flow before a neighbour must have answered, and after.
    const BEFORE: u32 = 2000;
    const AFTER: u32 = 150;
    let (seen, exits) = sinks();
    let (mut flow, mut sequence, mut end) = (0, 0, u32::MAX);
    let left = seen[1].clone();
    let source = source(0, 0, move || {
        let last = left.lock().unwrap().last().and_then(|last| stamp(last));
        if end == u32::MAX && last.is_some_and(|(last, _)| last == flow) {
            end = sequence + AFTER;
        }
        if sequence == end {
            (flow, sequence, end) = (flow + 1, 0, u32::MAX);
        }
        let may = flow < FLOWS_IN_BATCHES && (end != u32::MAX || sequence < BEFORE);
        sequence += u32::from(may);
        may.then(|| packet(to(flow), flow, sequence - 1, 4))
    });
    let limits = HoldLimits { queue_frames_max: 3000, frames_max: 3000, queues_max: 8 };
    let mut worker = hall.worker(vec![source], exits, limits);
    let done = Arc::new(Mutex::new(false));
    let control = &mut hall.control;
    thread::scope(|scope| {
        let stop = done.clone();
        scope.spawn(move || {
            let mut pause = Random(7);
            while !*stop.lock().unwrap() {
                for key in control.hear(0) {
                    (0..pause.below(4000)).for_each(|_| std::hint::spin_loop());
                    control.answer(who(key), 0);
                }
                control.tick(0);
            }
        });
        let begin = Instant::now();
        let last = |seen: &Vec<Vec<u8>>| seen.last().and_then(|last| stamp(last));
        let is_done =
            || last(&seen[1].lock().unwrap()).is_some_and(|(flow, _)| flow + 1 == FLOWS_IN_BATCHES);
        while !is_done() && begin.elapsed() < Duration::from_secs(60) {
            worker.turn(0);
        }
        while worker.turn(0) > 0 {}
        *done.lock().unwrap() = true;
    });
    let in_order = assert_in_order(&seen[1].lock().unwrap());
    assert_eq!(in_order.len(), usize::from(FLOWS_IN_BATCHES));
    assert!(in_order.values().all(|&next| next > AFTER));
    hall.close(vec![worker]);
}

/// The operator sets and forgets neighbours while packets arrive, and some fail and return: whatever
/// becomes of the entry and its slot, what leaves leaves in order, and all of it does.
#[test]
fn a_flow_keeps_its_order_while_its_neighbour_is_set_deleted_and_found_again() {
    const FLOWS: u16 = 12;
    let mut hall = Hall::new(1);
    let (feed, (seen, exits)) = (Feed::default(), sinks());
    let limits = HoldLimits { queue_frames_max: 2000, frames_max: 3000, queues_max: 64 };
    let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, limits);
    let mut random = Random(3);
    let mut sent = [0; FLOWS as usize];
    for turn in 0..600 {
        let now = turn * SECOND / 1000;
        for _ in 0..random.below(20) {
            let flow = random.below(FLOWS.into()) as u16;
            let sequence = &mut sent[usize::from(flow)];
            feed.lock().unwrap().push(packet(host(flow), flow, *sequence, 4));
            *sequence += 1;
        }
        worker.turn(now);
        let control = &mut hall.control;
        for key in control.hear(now) {
            if random.below(3) == 0 {
                control.answer(key, now);
            }
        }
        for flow in 0..FLOWS {
            let (key, mac) = (Key { port: PortId(1), addr: host(flow) }, station(1).0);
            let now = Duration::from_nanos(now);
            match random.below(40) {
                0 => drop(control.routing.add_neighbour(key, mac, now).expect("there is room")),
                1 | 2 => drop(control.routing.delete_neighbour(key, now)), // If it exists.
                3 => control.answer(key, now.as_nanos() as u64),
                _ => {}
            }
        }
        control.tick(now);
    }
    for flow in 0..FLOWS {
        let key = Key { port: PortId(1), addr: host(flow) };
        let set = hall.control.routing.add_neighbour(key, station(1).0, Duration::from_secs(1));
        set.expect("there is room");
    }
    while worker.turn(SECOND) > 0 {}
    let in_order = assert_in_order(&seen[1].lock().unwrap());
    for (flow, &sent) in (0..).zip(&sent) {
        assert!(sent > 300, "flow {flow}");
        assert_eq!(in_order.get(&flow), Some(&sent), "flow {flow}");
    }
    hall.close(vec![worker]);
}

/// Flows of a group leave by the neighbour found first, and some of them by the other when that is found
/// too. What is held moves with its flow. Each round has a new group.
#[test]
fn flows_keep_their_order_when_they_move_to_another_member() {
    const FLOWS: u16 = 6;
    let mut hall = Hall::new(1);
    let feed = Feed::default();
    let (seen, exits) = sinks();
    let mut random = Random(3);
    let middle = Meddler::default();
    let meddle = |middle: &Meddler| {
        let middle = middle.clone();
        move || {
            if let Some(action) = &mut *middle.lock().unwrap() {
                action();
            }
        }
    };
    let (before, between) = (meddle(&middle), meddle(&middle));
    let first_feed = feed.clone();
    let first = source(0, 0, move || {
        before();
        let mut feed = first_feed.lock().unwrap();
        if feed.is_empty() { None } else { Some(feed.remove(0)) }
    });
    let second = source(0, 1, move || {
        between();
        None
    });
    let mut worker = hall.worker(vec![first, second], exits, HoldLimits::default());

    let control = Arc::new(Mutex::new(hall.control));
    let mut moves = 0;
    for round in 0..60 {
        // Two of one family, and a prefix behind them.
        let members = [4 * round + round % 2, 4 * round + round % 2 + 2].map(host);
        let to: IpAddr = match members[0] {
            IpAddr::V4(_) => [198, 18, round as u8, 9].into(),
            IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0x100 + round, 0, 0, 0, 0, 9).into(),
        };
        let now = u64::from(round) * SECOND;
        control.lock().unwrap().add_group(to, &members, now);
        let keys = members.map(|addr| Key { port: PortId(1), addr });
        let mut sequence = 0;
        // How many calls of a source's function before each answers.
        let mut left = [random.below(120), random.below(240)];
        let shared = control.clone();
        *middle.lock().unwrap() = Some(Box::new(move || {
            for (left, key) in left.iter_mut().zip(keys) {
                if *left == 0 {
                    shared.lock().unwrap().answer(key, now);
                }
                *left = left.wrapping_sub(1);
            }
        }));
        for _ in 0..4 {
            let mut feed = feed.lock().unwrap();
            for _ in 0..8 {
                feed.extend((0..FLOWS).map(|flow| packet(to, round * FLOWS + flow, sequence, 4)));
                sequence += 1;
            }
            drop(feed);
            worker.turn(now);
        }
        *middle.lock().unwrap() = None;
        for key in keys {
            control.lock().unwrap().answer(key, now);
            worker.turn(now);
        }
        worker.turn(now);
        moves = control.lock().unwrap().routing.tables().next_hops.generation();
    }
    drop(middle);
    assert!(moves > 220, "routes were added, and flows moved in most rounds, and twice: {moves}");
    let in_order = assert_in_order(&seen[1].lock().unwrap());
    assert_eq!(in_order.len(), 60 * usize::from(FLOWS));
    assert!(in_order.values().all(|&next| next == 32), "{in_order:?}");
    let control = Arc::into_inner(control);
    hall.control = control.expect("the sources have let go").into_inner().unwrap();
    hall.close(vec![worker]);
}

/// A member answers while the worker judges a batch: a flow's older packets have verdicts to be held for
/// the member that it leaves, and newer ones to leave by the other; with something held before, and without.
#[test]
fn a_flow_keeps_its_order_when_it_moves_in_the_middle_of_a_batch() {
    const FLOWS: u16 = 8;
    for held_before in [0, 1, 3] {
        let mut hall = Hall::new(1);
        let (feed, (seen, exits)) = (Feed::default(), sinks());
        let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
        let (to, members) = ([198, 18, 0, 9].into(), [2, 4].map(host));
        hall.control.add_group(to, &members, 0);
        let packets = |range: std::ops::Range<u32>| -> Vec<Vec<u8>> {
            range
                .flat_map(|sequence| (0..FLOWS).map(move |flow| packet(to, flow, sequence, 4)))
                .collect()
        };
        *feed.lock().unwrap() = packets(0..held_before);
        worker.turn(0);
        // As `receive` does it, with two batches in the place of one: between them is the middle.
        let Worker { reader, work } = &mut worker;
        let guard = reader.guard();
        let judged = work.forwarder.tables().next_hops.generation();
        let mut pending = Vec::new();
        for part in [held_before..held_before + 3, held_before + 3..held_before + 5] {
            *feed.lock().unwrap() = packets(part);
            let mut batch = Batch::new();
            let received = work.queues[0].receive(&mut work.pool, &mut batch, 0);
            work.stats.count(PortId(0), PortCount::Received, received as u64);
            let mut verdicts = Verdicts::new();
            work.forwarder.forward(
                &mut Turn { guard, pool: &mut work.pool, now_ns: 0 },
                &mut batch,
                &mut verdicts,
            );
            let verdicts = batch.drain().zip(verdicts.list());
            pending.extend(verdicts.map(|(frame, verdict)| Pending {
                frame,
                verdict: Some(verdict),
                prior_hold: None,
            }));
            hall.control.answer(Key { port: PortId(1), addr: members[1] }, 0);
        }
        let turn = manylane_worker::worker::Turn { guard, now_ns: 0 };
        work.release_held(turn);
        assert!(!work.is_current(judged));
        work.reroute_held(turn, pending);
        work.transmit(reader.guard());
        while worker.turn(0) > 0 {}
        let in_order = assert_in_order(&seen[1].lock().unwrap());
        assert_eq!(in_order.len(), usize::from(FLOWS));
        assert!(in_order.values().all(|&next| next == held_before + 5), "{in_order:?}");
        hall.close(vec![worker]);
    }
}

/// What waits for a neighbour that its prefix no longer leads to does not wait for it: it leaves by the
/// new one, before anything newer.
#[test]
fn what_is_held_follows_its_route() {
    for (to, old, new) in [
        (IpAddr::from([198, 18, 0, 9]), host(2), host(4)),
        (IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 9)), host(3), host(5)),
    ] {
        let mut hall = Hall::new(1);
        let (feed, (seen, exits)) = (Feed::default(), sinks());
        let mut worker = hall.worker(vec![fed(0, 0, &feed)], exits, HoldLimits::default());
        let packets =
            |range: std::ops::Range<u32>| range.map(|sequence| packet(to, 1, sequence, 4));
        hall.control.lead(to, new);
        hall.control.answer(Key { port: PortId(1), addr: new }, 0);
        hall.control.lead(to, old);
        feed.lock().unwrap().extend(packets(0..3));
        worker.turn(0);
        assert_eq!(worker.work.holds.len(), 3);
        let generation = hall.control.routing.tables().next_hops.generation();
        hall.control.lead(to, new);
        assert_eq!(hall.control.routing.tables().next_hops.generation(), generation + 2);
        assert!(worker.work.state.awaited.iter().all(|held| worker.work.dsts.is_stale(&held.dst)));
        feed.lock().unwrap().extend(packets(3..6));
        worker.turn(0);
        assert!(worker.work.holds.is_empty() && worker.work.state.awaited.is_empty());
        assert_eq!(assert_in_order(&seen[1].lock().unwrap()), HashMap::from([(1, 6)]));
        hall.close(vec![worker]);
    }
}

/// Two workers send through one port at once, over wires to two queues.
#[test]
fn two_workers_and_their_wires_keep_the_order_of_each_flow() {
    const FLOWS: u16 = 32;
    const PACKETS: u32 = 100;
    let hash = |frame: &[u8]| flow_hash(&frame[14..]);
    let mut hall = Hall::new(2);
    hall.control.set("10.1.0.2", 1);
    let to = "10.1.0.2".parse().unwrap();
    let (receivers, wires) = memory::wires(PortId(9), 2, &[bell(), bell()], 8192, hash);
    let mut workers = Vec::new();
    for (number, wire) in (0..2u16).zip(wires) {
        let mut next = 0;
        // Each worker has every other flow, in turn.
        let queue = source(0, number, move || {
            let (flow, sequence) = (next % u32::from(FLOWS / 2), next / u32::from(FLOWS / 2));
            next += 1;
            (sequence < PACKETS).then(|| packet(to, flow as u16 * 2 + number, sequence, 4))
        });
        let [first, last] = [sink(&Seen::default()), sink(&Seen::default())];
        let exits = vec![first, Transmitter::Memory(wire), last];
        workers.push(hall.worker(vec![queue], exits, HoldLimits::default()));
    }
    let workers: Vec<_> = thread::scope(|scope| {
        let turn = |mut worker: manylane_worker::worker::Worker| {
            while worker.turn(0) > 0 {}
            worker
        };
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || turn(worker))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut pool = hall.depot.pool_of(256);
    let mut all = 0;
    for receiver in receivers {
        let mut queue = Receiver::Memory(receiver);
        let (mut seen, mut batch) = (Vec::new(), Batch::new());
        while queue.receive(&mut pool, &mut batch, 0) > 0 {
            let region = pool.region();
            for frame in batch.iter() {
                assert_eq!(region.meta(frame).ingress, PortId(9));
                seen.push(region.bytes(frame).to_vec());
            }
            pool.give_back_all(&mut batch);
        }
        all += assert_in_order(&seen).values().sum::<u32>();
    }
    assert_eq!(all, u32::from(FLOWS) * PACKETS, "the wires were long enough for all");
    drop(pool);
    hall.close(workers);
}
