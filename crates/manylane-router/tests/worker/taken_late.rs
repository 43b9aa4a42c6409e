//! Devices that take later what they were given, each worker's when they like: what a worker has transmitted has
//! not left yet.

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Batch, Pool};
use manylane_io::port::{Receiver, Transmitter, memory};
use manylane_sync::handoff::{GROUP, RECEIVER};

use super::floor::{Floor, Like, NEAR, TWO};
use crate::rig::*;

/// Port 1's device: a wire from each worker. The device looks at them one after another, and not in every turn.
struct Device {
    wires: Receiver,
    pool: Pool,
    seen: Seen,
}

impl Device {
    /// One that all workers of `floor` have.
    fn of(floor: &Floor) -> Device {
        let workers = floor.workers.len();
        let (mut wires, exits) = memory::wires(PortId(1), workers, &[bell()], 1024, |_| 0);
        for (worker, exit) in floor.workers.iter().zip(exits) {
            let mut worker = worker.lock().unwrap();
            worker.work.egresses[1].transmitter = Transmitter::Memory(exit);
        }
        let (pool, seen) = (floor.hall.depot.pool_of(256), floor.seen[1].clone());
        Device { wires: Receiver::Memory(wires.remove(0)), pool, seen }
    }

    /// Takes up to `packets` packets; returns the number taken.
    fn take(&mut self, packets: usize) -> usize {
        let mut batch = Batch::with_room(packets);
        let taken = self.wires.receive(&mut self.pool, &mut batch, 0);
        let region = self.pool.region();
        let frames = batch.iter().map(|frame| region.bytes(frame).to_vec());
        self.seen.lock().unwrap().extend(frames);
        self.pool.give_back_all(&mut batch);
        taken
    }
}

/// Buckets move; packets are taken now and then. `broken`: what was noted counts as taken.
fn step_at_random(seed: u64, broken: bool) -> u64 {
    let mut floor = Floor::new(Like { workers: 3, receivers: 2, ..TWO });
    for worker in &floor.workers {
        worker.lock().unwrap().set_announces_what_is_noted(broken);
    }
    let mut device = Device::of(&floor);
    let mut random = Random(seed);
    let mut now = 0;
    for _ in 0..1500 {
        let flow = random.below(24) as u16;
        let packets = random.below(30) as usize;
        floor.send(usize::from(flow % 2), NEAR, flow, packets);
        if random.below(8) == 0 {
            let worker = [0, 1, 2, RECEIVER][random.below(4) as usize];
            let first = random.below(GROUP as u64) as usize;
            let buckets = [16, GROUP][random.below(2) as usize];
            floor.want((first..first + buckets).map(|bucket| bucket % GROUP), |_| worker);
        }
        floor.turn(random.below(3) as usize, now);
        if random.below(3) == 0 {
            device.take(random.below(65) as usize);
        }
        now += [1_000, 100_000, 1_000_000][random.below(3) as usize];
    }
    while (0..3).map(|worker| floor.turn(worker, now)).sum::<usize>() + device.take(64) > 0 {
        now += 1_000_000;
    }
    floor.assert_in_order();
    let handed =
        (0..3).map(|to| floor.counts[0].handed_to(to) + floor.counts[1].handed_to(to)).sum();
    drop(device.pool);
    floor.close();
    handed
}

#[test]
fn no_flow_is_reordered_by_devices_that_take_late() {
    let handed: u64 = (1..=8).map(|seed| step_at_random(seed, false)).sum();
    assert!(handed > 20_000, "only {handed} were handed on");
}

/// The run with the rule broken: what was transmitted counts as left.
#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_a_move_before_the_device_has_taken() {
    (1..=8).for_each(|seed| {
        step_at_random(seed, true);
    });
}
