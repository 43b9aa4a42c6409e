//! Hand-off: what one worker receives and another forwards is neither lost nor reordered, and a slow worker
//! costs what it may.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_net::neighbour::{HOLD_MAX_NS, HoldLimits, Key};
use manylane_net::wire::flow::{FlowKey, frame_hash};
use manylane_sync::handoff::{GROUP, RECEIVER};

use super::floor::{Floor, Like, NEAR, TWO, near};
use crate::rig::*;
use manylane_worker::stats::PortCount;
use manylane_worker::worker::handoff::{STALL_MAX_NS, limits};
use manylane_worker::worker::queue_handover::GivenUp;

#[test]
fn half_of_the_flows_are_forwarded_by_the_other() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    for flow in 0..100 {
        floor.send(0, NEAR, flow, 20);
    }
    floor.turn_until_idle(0);
    assert_eq!((floor.left(0), floor.assert_in_order()), (0, 2000));
    let handed = floor.counts[0].handed_to(1);
    assert!((600..1400).contains(&handed), "{handed}");
    assert_eq!(floor.counts[1].taken_from(0), handed);
    assert!(floor.counts[0].batches_to(1) < handed / 16, "whole batches");
    assert_eq!(floor.hall.sum(0, PortCount::Received), 2000);
    floor.close();
}

/// An attacker sends flows that all go to one worker by the public key, of both families. With a key that
/// the attacker does not know, both workers get a share.
#[test]
fn flows_made_for_one_worker_are_parted_by_a_secret_key() {
    let crafted = |&flow: &u16| frame_hash(&packet(near(flow), flow, 0, 4)) % 2 == 1;
    let by = |key| {
        let mut floor = Floor::new(Like { key, ..TWO });
        floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
        let mut counts = [[0; 2]; 2];
        for (family, of) in counts.iter_mut().enumerate() {
            let before = floor.counts[0].handed_to(1);
            let flows = (0..).filter(|flow| usize::from(flow % 2) == family).filter(crafted);
            flows.take(100).for_each(|flow| floor.send(0, near(flow), flow, 2));
            floor.turn_until_idle(0);
            let handed = floor.counts[0].handed_to(1) - before;
            *of = [200 - handed, handed];
        }
        assert_eq!(floor.assert_in_order(), 400);
        floor.close();
        counts
    };
    assert_eq!(by(FlowKey::PUBLIC), [[0, 200]; 2]);
    let shared =
        by(FlowKey::new([0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1, 0x510e_527f_ade6_82d1]));
    assert!(shared.as_flattened().iter().all(|packets| (50..150).contains(packets)), "{shared:?}");
}

/// The map says so for each: packets of the queue stay with the receiver.
#[test]
fn by_queue_nothing_is_handed_on() {
    let mut floor = Floor::new(TWO);
    for flow in 0..100 {
        floor.send(0, NEAR, flow, 20);
    }
    floor.turn_until_idle(0);
    assert_eq!((floor.assert_in_order(), floor.counts[0].handed_to(1)), (2000, 0));
    floor.close();
}

/// Bucket moves, both ways of steering, turns in the middle of others' turns, neighbours that answer late or
/// never, a route that flaps, moving groups, short holds, and frames dropped for want of places; three workers,
/// two receive.
fn walk_at_random(seed: u64, broken: bool) -> Floor {
    let like = Like {
        workers: 3,
        receivers: 2,
        capacity: 128,
        part_len: usize::MAX,
        holds: HoldLimits { queue_frames_max: 40, frames_max: 100, queues_max: 6 },
        key: FlowKey::PUBLIC,
    };
    let mut floor = Floor::new(like);
    floor.sample(1);
    for worker in &floor.workers {
        worker.lock().unwrap().set_announces_what_is_popped(broken);
    }
    let hosts: [IpAddr; 2] = [[10, 1, 0, 9].into(), [10, 1, 0, 10].into()];
    floor.hall.control.add_group([10, 9, 0, 0].into(), &hosts, 0);
    let gateways = [NEAR, hosts[0], hosts[1]];
    floor.hall.control.lead([10, 8, 0, 0].into(), NEAR);
    let mut random = Random(seed);
    let mut now = 0;
    for _ in 0..1500 {
        for _ in 0..random.below(4) {
            let flow = random.below(24) as u16;
            let to = match flow % 4 {
                0 | 1 => NEAR,
                2 => [10, 1, 1, (flow / 4) as u8].into(),
                _ if flow % 8 == 7 => [10, 8, 0, (flow / 8) as u8].into(),
                _ => [10, 9, 0, (flow / 4) as u8].into(),
            };
            let packets = random.below(30) as usize;
            floor.send(usize::from(flow % 2), to, flow, packets);
        }
        let mover = random.below(4) as u16;
        if random.below(8) == 0 {
            let worker = if mover == 3 { RECEIVER } else { mover };
            let first = random.below(GROUP as u64) as usize;
            let buckets = [1, 16, GROUP][random.below(3) as usize];
            floor.want((first..first + buckets).map(|bucket| bucket % GROUP), |_| worker);
        }
        let worker = random.below(3) as usize;
        if random.below(2) == 0 {
            floor.meddle(random.below(3) as usize, now);
        }
        floor.turn(worker, now);
        floor.hall.assert_nothing_is_missing();
        for key in floor.hall.control.hear(now) {
            if random.below(3) == 0 {
                floor.hall.control.answer(key, now);
            }
        }
        if random.below(16) == 0 {
            let addr = hosts[random.below(2) as usize];
            floor.hall.control.answer(Key { port: PortId(1), addr }, now);
        }
        if random.below(16) == 0 {
            floor.hall.control.lead([10, 8, 0, 0].into(), gateways[random.below(3) as usize]);
        }
        floor.hall.control.tick(now);
        now += [1_000, 100_000, STALL_MAX_NS, SECOND / 3][random.below(4) as usize];
    }
    floor.turn_until_idle(now);
    let full = [DropReason::BacklogFull, DropReason::HoldOverflow];
    assert!(full.iter().all(|&reason| floor.dropped(reason) > 0), "seed {seed}");
    floor
}

/// The run, checked here and by the operator's sample; returns how many packets were handed on.
fn step_at_random(seed: u64, broken: bool) -> u64 {
    let floor = walk_at_random(seed, broken);
    let came = floor.assert_in_order();
    let handed =
        (0..3).map(|to| floor.counts[0].handed_to(to) + floor.counts[1].handed_to(to)).sum();
    let (sampled, reordered) = floor.sampled();
    assert!(sampled > came as u64 / 2 && reordered == 0, "{reordered} of {sampled}");
    floor.close();
    handed
}

#[test]
fn no_flow_is_reordered_whatever_moves() {
    let handed: u64 = (1..=12).map(|seed| step_at_random(seed, false)).sum();
    assert!(handed > 20_000, "only {handed} were handed on");
}

/// The same traffic with the rule broken: a bucket may move when its packets have been popped.
#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_a_move_when_popped() {
    (1..=12).for_each(|seed| {
        step_at_random(seed, true);
    });
}

/// What the checker sees, an operator sees while it happens.
#[test]
fn an_operator_sees_a_move_when_popped() {
    let reordered: u64 = (1..=12).map(|seed| walk_at_random(seed, true).sampled().1).sum();
    assert!(reordered > 0);
}

/// One flow in N, of those steered by flow, while that is wanted.
#[test]
fn an_operator_looks_at_as_many_flows_as_wanted() {
    let mut floor = Floor::new(TWO);
    let send = |floor: &mut Floor| {
        for flow in 0..400 {
            floor.send(0, NEAR, flow, 2);
        }
        floor.turn_until_idle(0);
        let (sampled, reordered) = floor.sampled();
        assert_eq!(reordered, 0);
        sampled
    };
    floor.sample(1);
    assert_eq!(send(&mut floor), 0, "who receives forwards");
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    assert_eq!(send(&mut floor), 800);
    floor.sample(8);
    let sampled = send(&mut floor) - 800;
    assert!((40..200).contains(&sampled) && sampled % 2 == 0, "whole flows: {sampled}");
    floor.sample(0);
    assert_eq!(send(&mut floor), 800 + sampled);
    floor.sample(1);
    assert_eq!(send(&mut floor), 1600 + sampled, "what was numbered long ago is not compared");
    floor.close();
}

/// Pieces leave in the place of the packet they are of; what lay in their frames before does not count.
#[test]
fn an_operator_sees_pieces_in_order() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    floor.sample(1);
    floor.hall.control.set("10.2.0.2", 2);
    for round in 0..40 {
        for flow in 0..16 {
            let cut = packet([10, 2, 0, 2].into(), flow, round, 1400); // Port 2 carries 1280.
            floor.feeds[0].lock().unwrap().extend([cut, packet(NEAR, flow, round, 4)]);
        }
        floor.turn_until_idle(0);
    }
    assert_eq!(floor.seen[2].lock().unwrap().len(), 2 * 640);
    assert_eq!(floor.sampled(), (3 * 640, 0));
    floor.close();
}

/// Both directions of a flow have one hash; by one port, one may wait while the other passes.
#[test]
fn an_operator_sees_no_disorder_between_two_directions() {
    for (near, silent, at, len) in
        [("10.0.0.2", "10.0.0.9", 14 + 12, 4), ("2001:db8::2", "2001:db8::9", 14 + 8, 16)]
    {
        let mut floor = Floor::new(TWO);
        floor.want(0..GROUP, |_| 1);
        floor.sample(1);
        floor.hall.control.set(near, 0);
        let key = Key { port: PortId(0), addr: silent.parse().expect("an address") };
        let there = packet(key.addr, 7, 0, 4);
        let mut back = there.clone();
        back[at..at + 2 * len].rotate_left(len); // Its addresses, and then its ports.
        back[at + 2 * len..][..4].rotate_left(2);
        floor.feeds[0].lock().unwrap().extend([there, back]);
        floor.turn_until_idle(0);
        assert_eq!((floor.hall.sum(0, PortCount::Held), floor.seen()), (1, 1));
        floor.hall.control.hear(0);
        floor.hall.control.answer(key, 0);
        floor.turn_until_idle(0);
        assert_eq!((floor.seen(), floor.sampled()), (2, (2, 0)));
        floor.close();
    }
}

/// The error about a packet that waited in vain comes after one about a later packet: both are ours.
#[test]
fn an_operator_sees_no_disorder_in_errors() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    floor.sample(1);
    floor.hall.control.set("2001:db8::2", 0);
    let silent = "2001:db8:1::77".parse().expect("an address");
    let mut expired = packet(silent, 7, 1, 4);
    expired[14 + 7] = 1; // Its hop limit.
    floor.feeds[0].lock().unwrap().extend([packet(silent, 7, 0, 4), expired]);
    floor.turn_until_idle(0);
    assert_eq!((floor.hall.sum(0, PortCount::Held), floor.seen()), (1, 1));
    floor.turn_until_idle(2 * HOLD_MAX_NS);
    assert_eq!((floor.hall.sum(0, PortCount::Held), floor.seen()), (0, 2));
    assert_eq!(floor.sampled(), (0, 0));
    floor.close();
}

/// A second at a time, a hundred times: the others pause for as long as patience lasts and lose nothing, and
/// with its first turn the worker that stopped is back.
#[test]
fn a_worker_that_stops_a_hundred_times_costs_the_others_a_pause_each() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    floor.sample(1);
    let mut now = 0;
    let dropped = |floor: &Floor| {
        floor.dropped(DropReason::BacklogFull) + floor.dropped(DropReason::FlowLimit)
    };
    for round in 0..100 {
        let before = (floor.seen(), dropped(&floor));
        // The worker stops. Its ring holds 256, and then no batch that may be all for it.
        let mut waited_ns = 0;
        for _ in 0..50 {
            for flow in 0..40 {
                floor.send(0, near(flow), flow, 2);
            }
            let left = floor.left(0);
            floor.turn(0, now);
            waited_ns += if floor.left(0) == left { SECOND / 50 } else { 0 };
            now += SECOND / 50;
        }
        assert!(waited_ns <= SECOND / 50, "round {round}: waited {waited_ns} ns");
        let stopped = (floor.seen(), dropped(&floor));
        assert!(stopped.0 - before.0 > 500, "round {round}: {} came", stopped.0 - before.0);
        assert!(stopped.1 > before.1, "round {round}: what is for it is dropped");
        // A turn of it, and each turn receives a batch again: none waits or is dropped.
        let waits = floor.counts[0].waits(1);
        floor.turn(1, now);
        while floor.left(0) > 0 {
            let left = floor.left(0);
            floor.turn(0, now);
            floor.turn(1, now);
            assert!(floor.left(0) < left, "round {round}");
        }
        floor.turn_until_idle(now);
        assert_eq!((dropped(&floor), floor.counts[0].waits(1)), (stopped.1, waits));
    }
    // All that was lost is of the flows of one of them, and was in hand.
    let sent = 100 * 50 * 2;
    let mut came = [0; 40];
    for frame in floor.seen[1].lock().unwrap().iter() {
        came[usize::from(stamp(frame).expect("only stamped packets go there").0)] += 1;
    }
    let lost = came.iter().map(|came| sent - came).sum::<u64>();
    let whole = came.iter().filter(|&&came| came == sent).count();
    assert!((10..30).contains(&whole), "{whole} flows are whole");
    assert_eq!(lost, dropped(&floor));
    assert_eq!(floor.hall.sum(0, PortCount::Received), 40 * sent);
    assert_eq!(floor.sampled(), (floor.assert_in_order() as u64, 0));
    assert!(floor.counts[0].waits(1) >= 100);
    floor.close();
}

/// The same stop where no other worker has a share: nothing is received to be dropped, so that the port's ring
/// overflows, and with a turn of each all continues.
#[test]
fn a_worker_that_has_all_flows_and_stops_a_hundred_times_loses_nothing_in_hand() {
    const RING: usize = 512;
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    floor.sample(1);
    let (mut now, mut accepted) = (0, 0);
    for round in 0..100 {
        for _ in 0..100 {
            for flow in 0..40 {
                if floor.left(0) < RING {
                    floor.send(0, near(flow), flow, 1);
                    accepted += 1;
                } // What comes besides is lost in the port's ring.
            }
            floor.turn(0, now);
            now += SECOND / 100;
        }
        let handed = accepted - RING - floor.seen();
        assert!(floor.left(0) == RING && (193..=256).contains(&handed), "round {round}: {handed}");
        // Each turn takes a batch, and makes room for one.
        let waits = floor.counts[0].waits(1);
        floor.turn(1, now);
        while floor.left(0) > 0 {
            let (left, seen) = (floor.left(0), floor.seen());
            floor.turn(0, now);
            floor.turn(1, now);
            assert_eq!((left - floor.left(0), floor.seen() - seen), (64, 64), "round {round}");
        }
        floor.turn_until_idle(now);
        assert_eq!((floor.seen(), floor.counts[0].waits(1)), (accepted, waits));
    }
    assert_eq!((floor.assert_in_order(), floor.sampled()), (accepted, (accepted as u64, 0)));
    let dropped: u64 = DropReason::ALL.iter().map(|&reason| floor.dropped(reason)).sum();
    assert_eq!((dropped, floor.counts[0].waits(1)), (0, 100));
    floor.close();
}

/// For a worker that has no share of its own, receiving would be for the drop counter: the port keeps it.
#[test]
fn when_nobody_has_room_nothing_is_received() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    for flow in 0..100 {
        floor.send(0, NEAR, flow, 20);
    }
    let mut now = 0;
    for _ in 0..100 {
        floor.turn(0, now);
        now += STALL_MAX_NS;
    }
    assert_eq!(floor.left(0), 2000 - 256, "as many as there are places");
    assert_eq!(floor.dropped(DropReason::BacklogFull), 0);
    floor.turn(1, now);
    floor.turn(0, now);
    assert_eq!(floor.left(0), 2000 - 256 - 64, "and a batch more with a turn of each");
    floor.turn_until_idle(now);
    assert_eq!(floor.assert_in_order(), 2000);
    floor.close();
}

/// A few packets of many frames fill the room as well as many of one: a stopped worker is waited for once.
#[test]
fn chains_take_room_by_their_frames() {
    let mut floor = Floor::new(Like { capacity: 128, part_len: 46, ..TWO });
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    let mut now = 0;
    for round in 0..40 {
        for flow in 0..16 {
            let packet = packet(NEAR, flow, round, 400); // 10 frames of 46 bytes.
            floor.feeds[0].lock().unwrap().push(packet);
        }
        floor.turn(0, now);
        now += STALL_MAX_NS / 4;
    }
    assert!(floor.left(0) < 64 && floor.seen() > 200, "{} left, {}", floor.left(0), floor.seen());
    assert!(floor.dropped(DropReason::BacklogFull) + floor.dropped(DropReason::FlowLimit) > 100);
    let (packets, frames) = (floor.counts[0].handed_to(1), floor.counts[0].frames_out());
    assert_eq!(frames, 10 * packets);
    assert!(packets < 128 / 2 && frames > 128 && frames <= 128 + 128 + 64 * 9, "{packets}");
    floor.turn_until_idle(now);
    floor.assert_in_order();
    floor.close();
}

/// One flow has most of the packets: it is dropped while the backlog is more than half full, and others
/// have the other half.
#[test]
fn an_elephant_leaves_room_for_the_others() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    let mut now = 0;
    let mut sent = 0;
    for _ in 0..400 {
        floor.send(0, NEAR, 1000, 60);
        let mouse = 1 + sent % 400;
        floor.send(0, NEAR, mouse, 4);
        sent += 1;
        floor.turn(0, now);
        if sent % 4 == 0 {
            floor.turn(1, now); // A quarter of what comes.
        }
        now += 10_000;
    }
    let limited = floor.dropped(DropReason::FlowLimit);
    assert!(limited > 1000, "only {limited} of the elephant");
    assert_eq!(floor.counts[0].flow_limit(1), limited);
    floor.turn_until_idle(now);
    floor.assert_in_order();
    let of_mice = |frame: &&Vec<u8>| stamp(frame).is_some_and(|(flow, _)| flow != 1000);
    let mice = floor.seen[1].lock().unwrap().iter().filter(of_mice).count();
    assert_eq!((mice, floor.dropped(DropReason::BacklogFull)), (1600, 0));
    floor.close();
}

/// A neighbour that never answers keeps the bucket of its packets, and no other.
#[test]
fn what_is_held_keeps_its_own_bucket_only() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    floor.send(0, [10, 1, 7, 7].into(), 5000, 1);
    for flow in 0..100 {
        floor.send(0, NEAR, flow, 3);
    }
    floor.turn_until_idle(0);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 1);
    floor.want(0..GROUP, |_| RECEIVER);
    floor.turn_until_idle(1);
    assert_eq!(floor.counts[0].waiting(), 1, "all but one have moved");
    floor.send(0, [10, 1, 7, 7].into(), 5000, 2);
    floor.turn_until_idle(2);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 3);
    let key = Key { port: PortId(1), addr: [10, 1, 7, 7].into() };
    floor.hall.control.hear(3);
    floor.hall.control.answer(key, 3);
    floor.turn_until_idle(3);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 0);
    floor.turn(0, SECOND);
    assert_eq!(floor.counts[0].waiting(), 0);
    assert_eq!(floor.assert_in_order(), 303);
    floor.close();
}

/// So does one that lay in several frames, and waits in others: by the same bucket of the same receiver.
#[test]
fn a_chain_that_is_held_keeps_its_bucket() {
    let mut floor = Floor::new(Like { part_len: 46, ..TWO });
    floor.want(0..GROUP, |_| 1);
    let far = [10, 1, 7, 7].into();
    let send = |floor: &Floor, number| {
        floor.feeds[0].lock().unwrap().push(packet(far, 5000, number, 400));
    };
    (0..3).for_each(|number| send(&floor, number));
    floor.turn_until_idle(0);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 3);
    floor.want(0..GROUP, |_| RECEIVER);
    (3..6).for_each(|number| send(&floor, number));
    floor.turn_until_idle(1);
    assert_eq!(floor.counts[0].waiting(), 1);
    floor.hall.control.hear(2);
    floor.hall.control.answer(Key { port: PortId(1), addr: far }, 2);
    floor.turn(0, 2);
    floor.turn_until_idle(2);
    assert_eq!(floor.assert_in_order(), 6);
    floor.close();
}

/// The budget of a turn, and the weight of a queue.
#[test]
fn a_turn_takes_what_it_may() {
    let mut floor = Floor::new(TWO);
    floor.send(0, NEAR, 1, 200);
    floor.hall.limits.publish(limits::WEIGHT, 16);
    floor.turn(0, 0);
    assert_eq!(floor.left(0), 184);
    floor.want(0..GROUP, |_| 1);
    floor.turn(0, 0);
    floor.turn(0, 0);
    floor.turn(0, 0);
    assert_eq!((floor.left(0), floor.counts[0].handed_to(1)), (136, 48));
    assert_eq!(floor.turn(1, 0), 16);
    floor.turn_until_idle(0);
    floor.close();
}

/// A queue goes to and fro between two workers, under packets that the third forwards or holds, by flow and
/// by queue.
#[test]
fn a_queue_changes_hands_in_order() {
    let mut moved = 0;
    for seed in 1..=6 {
        let mut floor = Floor::new(Like { workers: 3, receivers: 2, ..TWO });
        let mut random = Random(seed);
        let (mut owner, mut asked, mut now) = (0, false, 0);
        for _ in 0..2000 {
            let flow = random.below(24) as u16 * 2;
            let to = if flow.is_multiple_of(8) { [10, 1, 1, flow as u8].into() } else { NEAR };
            let packets = random.below(20) as usize;
            floor.send(0, to, flow, packets);
            match random.below(24) {
                0 => {
                    let worker = [0, 1, 2, RECEIVER][random.below(4) as usize];
                    floor.want(0..GROUP, |_| worker);
                }
                1 => floor.want(0..GROUP, |bucket| (bucket % 3) as u16),
                2 if !asked => {
                    floor.ask(owner, 0);
                    asked = true;
                }
                _ => {}
            }
            if asked && floor.pass(owner, 1 - owner) {
                (owner, asked) = (1 - owner, false);
                moved += 1;
            }
            if random.below(2) == 0 {
                floor.meddle(random.below(3) as usize, now);
            }
            floor.turn(random.below(3) as usize, now);
            for key in floor.hall.control.hear(now) {
                if random.below(3) == 0 {
                    floor.hall.control.answer(key, now);
                }
            }
            floor.hall.control.tick(now);
            now += [1_000, 100_000, STALL_MAX_NS, SECOND / 3][random.below(4) as usize];
        }
        floor.turn_until_idle(now);
        floor.assert_in_order();
        // One may be on its way: given up, and not taken.
        if let Some(GivenUp::Queue(receiver)) = floor.handovers[owner].given_up.pop() {
            assert!(asked);
            let closed = receiver.unwrapped(&mut floor.hall.depot.pool(), &mut Vec::new());
            drop(closed);
        }
        floor.close();
    }
    assert!(moved > 60, "moved only {moved} times");
}

/// Threads, as in the daemon: receivers and forwarders run as they like, buckets move, one worker stops now
/// and then.
#[test]
fn threads_hand_on_in_order_while_buckets_move() {
    const PACKETS: usize = 120_000;
    let like = Like { workers: 3, receivers: 2, ..TWO };
    let mut floor = Floor::new(like);
    floor.want(0..GROUP, |bucket| (bucket % 3) as u16);
    let mut random = Random(7);
    for _ in 0..PACKETS / 20 {
        let flow = random.below(64) as u16;
        floor.send(usize::from(flow % 2), NEAR, flow, 20);
    }
    let feeds = floor.feeds.clone();
    let began = Instant::now();
    let gate = Arc::new(Mutex::new(()));
    let mut stops = Vec::new();
    let threads: Vec<_> = floor
        .workers
        .drain(..)
        .enumerate()
        .map(|(number, worker)| {
            let (stop, stopped) = mpsc::channel::<()>();
            stops.push(stop);
            let gate = gate.clone();
            thread::spawn(move || {
                loop {
                    if number == 2 {
                        drop(gate.lock().unwrap()); // Shut while it is to stand still.
                    }
                    if worker.lock().unwrap().turn(began.elapsed().as_nanos() as u64) == 0 {
                        if let Err(mpsc::TryRecvError::Disconnected) = stopped.try_recv() {
                            return worker;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut moves = 0;
    while feeds.iter().any(|feed| !feed.lock().unwrap().is_empty()) {
        let shut = gate.lock().unwrap();
        for _ in 0..8 {
            let (first, worker) = (random.below(GROUP as u64) as usize, random.below(3) as u16);
            floor.want((first..first + 32).map(|bucket| bucket % GROUP), |_| worker);
            moves += 1;
            thread::yield_now();
        }
        drop(shut);
        thread::yield_now();
    }
    drop(stops);
    floor.workers = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    floor.turn_until_idle(began.elapsed().as_nanos() as u64);
    let came = floor.assert_in_order();
    let dropped = floor.dropped(DropReason::BacklogFull) + floor.dropped(DropReason::FlowLimit);
    assert_eq!(came + dropped as usize, PACKETS);
    assert!(moves > 8 && floor.counts[0].handed_to(2) > 0);
    floor.close();
}
