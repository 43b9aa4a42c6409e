//! What a hand-off may cost: no packet is dropped that has room, no worker starves, and no wait is long.

use std::net::IpAddr;

use manylane_frame::Batch;
use manylane_frame::vocabulary::{DropReason, PortId, QueueId};
use manylane_io::port::{Receiver, Transmitter, memory};
use manylane_net::neighbour::Key;
use manylane_net::wire::flow::frame_hash;
use manylane_sync::doorbell::Wake;
use manylane_sync::handoff::{GROUP, RECEIVER, SteeringMap};

use super::floor::{Floor, Like, NEAR, TWO};
use crate::rig::*;
use manylane_worker::stats::{PortCount, WorkerCount};
use manylane_worker::worker::Worker;
use manylane_worker::worker::handoff::{STALL_MAX_NS, limits};
use manylane_worker::worker::queue_handover::Task;

const THREE: Like = Like { workers: 3, ..TWO };

/// No receiver measured worker 2's ring before the batch was received: no bucket was there.
#[test]
fn a_bucket_that_moves_in_the_middle_of_a_turn_finds_the_room_there_is() {
    let mut floor = Floor::new(THREE);
    floor.want(0..GROUP, |_| 1);
    floor.send(0, NEAR, 7, 10);
    floor.turn(0, 0);
    floor.want([bucket_of(7)], |_| 2);
    floor.turn(0, 0);
    assert_eq!(floor.counts[0].waiting(), 1, "for what worker 1 has");
    floor.turn(1, 0);
    floor.send(0, NEAR, 7, 10);
    floor.turn(0, 0);
    assert_eq!((floor.counts[0].handed_to(2), floor.dropped(DropReason::BacklogFull)), (10, 0));
    floor.turn_until_idle(0);
    assert_eq!(floor.assert_in_order(), 20);
    floor.close();
}

/// One port's batch has filled worker 1's ring when another port's bucket moves there: between the look before
/// its batch was received, which found nothing to look at there, and the batch.
#[test]
fn a_bucket_that_moves_in_the_middle_of_a_turn_finds_no_more_room_than_there_is() {
    let mut floor = Floor::new(Like { capacity: 64, ..THREE });
    let bucket = bucket_of(9);
    floor.want(0..GROUP, |_| 1);
    floor.want([2 * GROUP + bucket], |_| 2);
    floor.send(0, NEAR, 7, 64);
    let mut map = std::mem::replace(&mut floor.map, SteeringMap::new(GROUP, RECEIVER));
    let mut left = 10;
    let queue = source_in_parts(2, 0, 60, move || {
        map.want(2 * GROUP + bucket, 1);
        left = u32::checked_sub(left, 1)?;
        let mut packet = packet(NEAR, 9, 9 - left, 100); // In several frames: each is looked at.
        packet[..6].copy_from_slice(&ours(2).0);
        Some(packet)
    });
    floor.workers[0].lock().unwrap().work.queues.push(queue);
    floor.turn(0, 0);
    assert_eq!((floor.counts[0].handed_to(1), floor.counts[0].handed_to(2)), (64, 0));
    assert_eq!(floor.hall.dropped(2, DropReason::BacklogFull), 10);
    floor.turn_until_idle(0);
    assert_eq!(floor.assert_in_order(), 64);
    floor.close();
}

/// Worker 1 receives, and is handed more than it takes: in each turn it takes of both, whatever the budget.
#[test]
fn what_is_handed_on_leaves_the_queues_their_half() {
    for budget in [1, 2, 32, 64, 65, 100, 300] {
        let mut floor = Floor::new(Like { receivers: 2, ..TWO });
        floor.want(0..GROUP, |_| 1);
        for flow in 0..40 {
            floor.send(0, NEAR, flow, 4);
            floor.send(1, NEAR, 100 + flow, 10);
        }
        while floor.turn(0, 0) > 0 {}
        floor.hall.limits.publish(limits::BUDGET, budget);
        for turn in 1..=2 {
            let taken = floor.counts[1].taken_from(0);
            let left = floor.left(1);
            floor.turn(1, turn);
            let (taken, received) = (floor.counts[1].taken_from(0) - taken, left - floor.left(1));
            assert!(taken > 0 && taken <= u64::from(budget.div_ceil(2)), "{budget}: {taken}");
            assert_eq!(received, 64, "{budget}");
        }
        floor.turn_until_idle(3);
        assert_eq!(floor.assert_in_order(), 560);
        floor.close();
    }
}

/// Worker 1 holds for a neighbour that stays silent, of both receivers, and more comes for it all the time: the
/// queue is given up all the same, and takes along the packets that its worker received.
#[test]
fn a_queue_changes_hands_in_spite_of_a_silent_neighbour() {
    let mut floor = Floor::new(Like { receivers: 2, ..TWO });
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    let hosts = [7, 8, 9, 10].map(|host| IpAddr::from([10, 1, 7, host]));
    for (flow, host) in (0..).zip(hosts) {
        floor.send(0, host, flow, 3);
        floor.send(1, host, 10 + flow, 2);
    }
    floor.turn_until_idle(0);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 20);
    for (flow, host) in (0..).zip(hosts) {
        floor.send(0, host, flow, 1);
    }
    floor.turn(0, 0); // Some of it is on its way to worker 1.
    floor.ask(0, 0);
    let mut now = 0;
    while !floor.pass(0, 1) {
        assert!(now <= STALL_MAX_NS * 3 / 2, "it should be given up by now");
        (0..2).for_each(|worker| _ = floor.turn(worker, now));
        floor.hall.assert_nothing_is_missing();
        now += STALL_MAX_NS / 4;
    }
    assert!(now >= STALL_MAX_NS, "and not before the neighbours had some time to answer");
    assert_eq!(floor.dropped(DropReason::QueueMoved), 16);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 8, "what worker 1 received is still held");
    // Worker 1 has both now, and holds again, behind its own packets.
    for (flow, host) in (0..).zip(hosts) {
        floor.send(0, host, 20 + flow, 2);
    }
    floor.turn_until_idle(now);
    assert_eq!(floor.hall.sum(0, PortCount::Held), 16);
    floor.hall.control.hear(now);
    for addr in hosts {
        floor.hall.control.answer(Key { port: PortId(1), addr }, now);
    }
    floor.turn_until_idle(now);
    assert_eq!((floor.assert_in_order(), floor.hall.sum(0, PortCount::Held)), (16, 0));
    floor.close();
}

/// The neighbour answers soon enough: nothing is dropped, and the queue goes when what was held has left.
#[test]
fn a_queue_that_changes_hands_waits_a_moment_for_a_neighbour() {
    let mut floor = Floor::new(Like { receivers: 2, ..TWO });
    floor.want(0..GROUP, |_| 1);
    let addr = [10, 1, 7, 7].into();
    floor.send(0, addr, 1, 3);
    floor.turn_until_idle(0);
    floor.ask(0, 0);
    floor.turn_until_idle(STALL_MAX_NS / 2);
    assert!(!floor.pass(0, 1));
    floor.hall.control.hear(STALL_MAX_NS / 2);
    floor.hall.control.answer(Key { port: PortId(1), addr }, STALL_MAX_NS / 2);
    floor.turn(1, STALL_MAX_NS / 2);
    floor.turn(0, STALL_MAX_NS / 2);
    assert!(floor.pass(0, 1));
    assert_eq!((floor.assert_in_order(), floor.dropped(DropReason::QueueMoved)), (3, 0));
    floor.turn_until_idle(STALL_MAX_NS);
    floor.close();
}

/// The backlog never empties, and each turn adds a batch of the only flow: at no moment is it true that
/// nothing of its bucket is on its way, unless one is made.
#[test]
fn a_bucket_with_a_standing_backlog_moves() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    floor.send(0, NEAR, 7, 128);
    (0..2).for_each(|_| _ = floor.turn(0, 0));
    floor.want(0..GROUP, |_| RECEIVER);
    let (mut now, mut moved_at) = (0, None);
    for _ in 0..200 {
        floor.send(0, NEAR, 7, 64);
        (0..2).for_each(|worker| _ = floor.turn(worker, now));
        now += STALL_MAX_NS / 10;
        if floor.counts[0].waiting() == 0 {
            moved_at.get_or_insert(now);
        }
    }
    let moved_at = moved_at.expect("the bucket should have moved");
    assert!(moved_at > 5 * STALL_MAX_NS && moved_at < 12 * STALL_MAX_NS, "after {moved_at} ns");
    assert!(floor.left(0) <= 10 * 64, "{} wait in the port", floor.left(0));
    floor.turn_until_idle(now);
    assert_eq!(floor.assert_in_order(), 128 + 200 * 64);
    floor.close();
}

/// A bucket that a silent neighbour keeps costs its port little: at most a millisecond in eleven, and ever less.
#[test]
fn a_bucket_that_cannot_move_costs_its_port_little() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    floor.send(0, [10, 1, 7, 7].into(), 5000, 1);
    floor.turn_until_idle(0);
    floor.want(0..GROUP, |_| RECEIVER);
    let (mut now, mut withheld, mut turns) = (0, 0, 0);
    while now < SECOND {
        floor.send(0, NEAR, 7, 1);
        (0..2).for_each(|worker| _ = floor.turn(worker, now));
        withheld += u32::from(floor.left(0) > 0);
        turns += 1;
        now += STALL_MAX_NS / 10;
    }
    assert_eq!(floor.counts[0].waiting(), 1);
    assert!(withheld >= 10 && withheld < turns / 100, "{withheld} of {turns} turns");
    floor.turn_until_idle(now);
    assert_eq!(floor.assert_in_order(), turns as usize);
    floor.close();
}

/// What waits in a queue that is leaving is nothing to stay awake for.
#[test]
fn nobody_stays_awake_for_a_queue_that_is_leaving() {
    let mut floor = Floor::new(TWO);
    let addr = [10, 1, 7, 7].into();
    floor.send(0, addr, 1, 3);
    floor.turn_until_idle(0);
    let mut worker = floor.workers[0].lock().unwrap();
    let exit = wire_into(&mut worker, PortId(2));
    put(&mut worker, exit);
    drop(worker);
    assert!(floor.handovers[0].tasks.push(Task::GiveUp(PortId(2), QueueId(0))).is_ok());
    floor.handovers[0].tasks.submit();
    assert_eq!(floor.turn(0, 0), 0);
    let mut worker = floor.workers[0].lock().unwrap();
    worker.work.bell.waker().wake(); // A sleeper is woken at once.
    worker.sleep(0);
    assert_eq!(floor.hall.counted(WorkerCount::Sleeps), 1);
    drop(worker);
    floor.close();
}

/// No worker has room: the receiver naps, though packets wait in its queue, and looks again by the clock.
#[test]
fn nobody_spins_while_another_has_no_room() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |_| 1);
    let (sleeps, receiver) = (WorkerCount::Sleeps, floor.workers[0].clone());
    let mut worker = receiver.lock().unwrap();
    let exit = wire_into(&mut worker, PortId(2));
    floor.want(2 * GROUP..3 * GROUP, |_| 1);
    floor.send(0, NEAR, 7, 300);
    while worker.turn(0) > 0 {}
    put(&mut worker, exit);
    assert_eq!((worker.turn(0), floor.left(0)), (0, 300 - 256));
    for nap in 1..=3 {
        worker.sleep(0);
        assert_eq!(floor.hall.counted(sleeps), nap);
        assert_eq!((worker.turn(0), floor.hall.counted(WorkerCount::Wakeups)), (0, 0));
    }
    drop(worker);
    drop(receiver);
    floor.turn_until_idle(0);
    assert_eq!(floor.assert_in_order(), 300);
    floor.close();
}

/// Gives a worker one more queue; returns the way into it.
fn wire_into(worker: &mut Worker, port: PortId) -> Transmitter {
    let (mut receivers, mut exits) = memory::wires(port, 1, &[bell()], 64, |_| 0);
    worker.work.queues.push(Receiver::Memory(receivers.remove(0)));
    Transmitter::Memory(exits.remove(0))
}

/// Puts a packet into that queue.
fn put(worker: &mut Worker, mut exit: Transmitter) {
    let mut frame = worker.work.pool.take().expect("there are many");
    fill(worker.work.pool.region(), &mut frame, &packet(NEAR, 1, 3, 4));
    let mut batch = Batch::new();
    batch.push(frame).expect("it is empty");
    exit.transmit(&mut worker.work.pool, &mut batch, |_| {});
    exit.flush();
}

fn bucket_of(flow: u16) -> usize {
    (frame_hash(&packet(NEAR, flow, 0, 4)) % GROUP as u32) as usize
}
