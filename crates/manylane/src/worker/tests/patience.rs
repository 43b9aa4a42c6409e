//! What a hand-off may cost: nothing is dropped for which there is room, nobody starves, and no wait is long.

use manylane_frame::vocabulary::DropReason;
use manylane_net::wire::flow::frame_hash;
use manylane_sync::handoff::{GROUP, RECEIVER, SteeringMap};

use super::handoff::{Floor, Like, NEAR, TWO};
use super::rig::*;
use crate::worker::handoff::limits;

const THREE: Like = Like { workers: 3, ..TWO };

/// Nobody looked at worker 2's ring before the batch was received: no bucket was there.
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
    floor.settle(0);
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
    floor.settle(0);
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
        floor.settle(3);
        assert_eq!(floor.assert_in_order(), 560);
        floor.close();
    }
}

fn bucket_of(flow: u16) -> usize {
    (frame_hash(&packet(NEAR, flow, 0, 4)) % GROUP as u32) as usize
}
