//! A worker that leaves and comes back, again and again, under traffic: no flow is reordered, and no packet is
//! dropped but for what it held.

use std::net::IpAddr;

use manylane_frame::vocabulary::DropReason;
use manylane_net::neighbour::{HoldLimits, Key};
use manylane_sync::handoff::GROUP;

use super::floor::{Floor, Like, NEAR, TWO};
use crate::rig::*;
use manylane_worker::stats::PortCount;
use manylane_worker::worker::handoff::{STALL_MAX_NS, limits};
use manylane_worker::worker::phase::{DRAIN, END, RUN};

/// Which rule of a worker's leaving is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A bucket may move when its packets have been popped.
    AnnouncesWhatIsPopped,
    /// The worker ends when it has nothing in hand, though others may still hand packets to it.
    EndsAtOnce,
    /// The worker holds packets as if it stayed.
    Holds,
}

/// The worker that leaves: it receives queue 2 of port 0 while it is there.
const LEAVER: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    There,
    Leaving { since: u32, queue_passed: bool },
    Ending,
    Away,
    Coming,
}

/// The control thread's part: buckets by number where the test has not chosen, the leaver's elsewhere while it is not
/// there.
struct Play {
    floor: Floor,
    stage: Stage,
    broken: Broken,
    assigned: Vec<u16>,
    left: u32,
}

impl Play {
    fn new(broken: Broken) -> Play {
        let like = Like {
            workers: 3,
            receivers: 3,
            capacity: 128,
            part_len: usize::MAX,
            holds: HoldLimits { queue_frames_max: 40, frames_max: 100, queues_max: 6 },
            ..TWO
        };
        let floor = Floor::new(like);
        for worker in &floor.workers {
            let broken = broken == Broken::AnnouncesWhatIsPopped;
            worker.lock().unwrap().set_announces_what_is_popped(broken);
        }
        let assigned = (0..GROUP).map(|bucket| (bucket % 3) as u16).collect();
        let mut play = Play { floor, stage: Stage::There, broken, assigned, left: 0 };
        play.publish();
        play
    }

    fn publish(&mut self) {
        let is_there = matches!(self.stage, Stage::There | Stage::Coming);
        let Play { floor, assigned, .. } = self;
        floor.want(0..GROUP, |bucket| match assigned[bucket] {
            2 if !is_there => (bucket % 2) as u16,
            worker => worker,
        });
    }

    /// What the control thread does now and then.
    fn step(&mut self, random: &mut Random) {
        if self.stage == Stage::Away {
            let counts = &self.floor.counts;
            for (other, handed) in
                (0..2).map(|other| (other, counts[usize::from(other)].handed_to(2)))
            {
                assert_eq!(counts[LEAVER].taken_from(other), handed, "left behind");
            }
        }
        match self.stage {
            Stage::There if random.below(60) == 0 => {
                self.stage = Stage::Leaving { since: 0, queue_passed: false };
                self.publish();
                let since = self.floor.hall.limits.load(limits::GENERATION);
                self.stage = Stage::Leaving { since, queue_passed: false };
                if self.broken != Broken::Holds {
                    self.floor.hall.phases[LEAVER].publish(0, DRAIN);
                }
                if self.broken != Broken::EndsAtOnce {
                    self.floor.ask(LEAVER, 2);
                }
            }
            Stage::Leaving { since, mut queue_passed } => {
                queue_passed |= !queue_passed && self.floor.pass(LEAVER, 0);
                let quit =
                    |other: usize| self.floor.counts[other].sends_nothing_to(LEAVER as u16, since);
                let cut_off = queue_passed && quit(0) && quit(1);
                self.stage = Stage::Leaving { since, queue_passed };
                if cut_off || self.broken == Broken::EndsAtOnce {
                    self.floor.hall.phases[LEAVER].publish(0, END);
                    self.stage = Stage::Ending;
                }
            }
            Stage::Ending => {
                let mut worker = self.floor.workers[LEAVER].lock().unwrap();
                if !worker.should_continue() {
                    worker.stop();
                    assert_eq!(worker.work.pool.level(), 0, "its frames are home");
                    self.stage = Stage::Away;
                    self.left += 1;
                }
            }
            Stage::Away if random.below(30) == 0 => {
                self.floor.hall.phases[LEAVER].publish(0, RUN);
                self.floor.workers[LEAVER].lock().unwrap().start();
                self.stage = Stage::Coming;
                self.publish();
                match self.broken {
                    Broken::EndsAtOnce => self.stage = Stage::There,
                    _ => self.floor.ask(0, 2),
                }
            }
            Stage::Coming if self.floor.pass(0, LEAVER) => self.stage = Stage::There,
            _ => {}
        }
    }
}

/// Buckets and queues move, turns fall in the middle of others' turns, neighbours answer late or never. Returns
/// how often the worker has left.
fn come_and_go(seed: u64, broken: Broken) -> u32 {
    let mut play = Play::new(broken);
    let mut random = Random(seed);
    let (mut now, mut sent) = (0, 0);
    for _ in 0..3000 {
        for _ in 0..random.below(4) {
            let flow = random.below(24) as u16;
            let to: IpAddr = match flow % 4 {
                0 => [10, 1, 1, (flow / 4) as u8].into(),
                _ => NEAR,
            };
            let packets = random.below(20) as usize;
            play.floor.send(usize::from(flow % 3), to, flow, packets);
            sent += packets as u64;
        }
        if random.below(8) == 0 {
            let (first, worker) = (random.below(GROUP as u64) as usize, random.below(3) as u16);
            for bucket in first..first + 32 {
                play.assigned[bucket % GROUP] = worker;
            }
            play.publish();
        }
        play.step(&mut random);
        if random.below(2) == 0 {
            play.floor.meddle(random.below(3) as usize, now);
        }
        play.floor.turn(random.below(3) as usize, now);
        play.floor.hall.assert_nothing_is_missing();
        for Key { port, addr } in play.floor.hall.control.hear(now) {
            if random.below(3) == 0 {
                play.floor.hall.control.answer(Key { port, addr }, now);
            }
        }
        play.floor.hall.control.tick(now);
        now += [1_000, 100_000, STALL_MAX_NS, SECOND / 3][random.below(4) as usize];
    }
    // All it takes to leave for the last time.
    while !matches!(play.stage, Stage::There | Stage::Away) {
        play.floor.turn_until_idle(now);
        play.step(&mut random);
        now += STALL_MAX_NS;
    }
    play.floor.turn_until_idle(now);
    // The worker that pops a packet counts it as received: a packet in an unread ring is not.
    assert_eq!(play.floor.hall.sum(0, PortCount::Received), sent, "left behind");
    play.floor.assert_in_order();
    assert!(play.floor.dropped(DropReason::WorkerRemoved) > 0 || broken != Broken::Nothing);
    let left = play.left;
    play.floor.close();
    left
}

#[test]
fn a_worker_leaves_and_comes_back_in_order() {
    let left: u32 = (1..=8).map(|seed| come_and_go(seed, Broken::Nothing)).sum();
    assert!(left > 80, "it left only {left} times");
}

#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_buckets_that_leave_when_popped() {
    (1..=8).for_each(|seed| _ = come_and_go(seed, Broken::AnnouncesWhatIsPopped));
}

#[test]
#[should_panic(expected = "left behind")]
fn the_checker_sees_a_worker_that_ends_before_all_are_quit_of_it() {
    (1..=8).for_each(|seed| _ = come_and_go(seed, Broken::EndsAtOnce));
}

/// A packet that waits for a neighbour keeps its bucket, and so the worker: without the drop, for as long as
/// packets are held.
#[test]
fn a_worker_with_held_packets_leaves_at_once() {
    for (broken, turns_max) in [(Broken::Nothing, 4), (Broken::Holds, usize::MAX)] {
        let mut play = Play::new(broken);
        play.assigned.fill(2);
        play.publish();
        play.floor.send(0, [10, 1, 7, 7].into(), 5000, 3);
        play.floor.turn_until_idle(0);
        assert_eq!(play.floor.hall.sum(0, PortCount::Held), 3);
        let mut turns = 0;
        // Seeds that take the first chance to leave.
        let mut seed = 0;
        while play.stage == Stage::There {
            seed += 1;
            play.step(&mut Random(seed));
        }
        while play.stage != Stage::Away && turns < 100 {
            play.floor.turn_until_idle(turns as u64 * STALL_MAX_NS);
            play.step(&mut Random(1));
            turns += 1;
        }
        let has_left = play.stage == Stage::Away;
        assert_eq!(has_left, broken == Broken::Nothing);
        assert!(!has_left || turns <= turns_max, "{turns}");
        let dropped = play.floor.dropped(DropReason::WorkerRemoved);
        assert_eq!(dropped, if has_left { 3 } else { 0 });
        play.floor.close();
    }
}

/// Nothing that control wants of a port matters to a worker that receives nothing by it.
#[test]
fn who_is_quit_of_a_worker_says_so_for_what_was_wanted_then() {
    let mut play = Play::new(Broken::Nothing);
    let since = play.floor.hall.limits.load(limits::GENERATION);
    assert!(!play.floor.counts[0].sends_nothing_to(2, since), "it has not looked");
    play.floor.turn_until_idle(0);
    assert!(!play.floor.counts[0].sends_nothing_to(2, since), "a third of the buckets are there");
    play.assigned.fill(1);
    play.publish();
    assert!(!play.floor.counts[0].sends_nothing_to(2, since), "it has not looked again");
    play.floor.turn_until_idle(STALL_MAX_NS);
    assert!(play.floor.counts[0].sends_nothing_to(2, since + 1));
    assert!(!play.floor.counts[0].sends_nothing_to(2, since + 2), "that is still to be looked at");
    assert!(!play.floor.counts[0].sends_nothing_to(1, since + 1));
    play.floor.close();
}

/// Port 0 is removed while packets of it are in rings, held, and in the middle of a turn; then port 1, by which
/// they leave: each packet leaves in its order, or is dropped for a reason.
#[test]
fn a_port_goes_with_packets_in_rings() {
    for seed in 1..=20 {
        let mut floor = Floor::new(Like { workers: 3, receivers: 2, ..TWO });
        let mut random = Random(seed);
        floor.want(0..GROUP, |bucket| (bucket % 3) as u16);
        let mut now = 0;
        let (mut queues, mut exits) = (0, 0);
        let asked = 40 + random.below(40);
        let closed = asked + 40 + random.below(40);
        let mut sent = 0;
        for step in 0..250 {
            for _ in 0..random.below(4) {
                let flow = random.below(24) as u16;
                let far = flow.is_multiple_of(6);
                let to: IpAddr = if far { [10, 1, 1, flow as u8].into() } else { NEAR };
                floor.send(usize::from(flow % 2), to, flow, random.below(20) as usize);
                sent += 1;
            }
            if step == asked {
                (0..2).for_each(|worker| floor.ask(worker, worker as u16));
            }
            if step == closed {
                floor.close_exits(1);
            }
            if random.below(2) == 0 {
                floor.meddle(random.below(3) as usize, now);
            }
            floor.turn(random.below(3) as usize, now);
            floor.hall.assert_nothing_is_missing();
            for worker in 0..3 {
                let (more_queues, more_exits) = floor.given_up(worker);
                if more_queues > 0 {
                    let ahead = |to: u16| floor.counts[worker].handed_to(to);
                    let taken = |to: u16| floor.counts[usize::from(to)].taken_from(worker as u16);
                    assert!((0..3).all(|to| ahead(to) == taken(to)), "none is in a ring");
                }
                (queues, exits) = (queues + more_queues, exits + more_exits);
            }
            for key in floor.hall.control.hear(now) {
                if random.below(3) > 0 {
                    floor.hall.control.answer(key, now);
                }
            }
            floor.hall.control.tick(now);
            now += [1_000, 100_000, STALL_MAX_NS][random.below(3) as usize];
        }
        for _ in 0..20 {
            floor.turn_until_idle(now);
            now += SECOND;
            (0..3).for_each(|worker| queues += floor.given_up(worker).0);
        }
        assert_eq!((queues, exits), (2, 3));
        let seen = floor.assert_in_order();
        assert!(sent > 100 && seen > 0);
        assert!(floor.left(0) + floor.left(1) > 0, "nothing is received any more");
        floor.close();
    }
}

/// Only a worker with old tables still forwards to it: a packet that reaches a transmitter that was given up is
/// dropped by that name.
#[test]
fn what_comes_to_a_closed_way_out_is_dropped() {
    let mut floor = Floor::new(TWO);
    floor.want(0..GROUP, |bucket| (bucket % 2) as u16);
    for flow in 0..100 {
        floor.send(0, NEAR, flow, 2);
    }
    floor.turn(0, 0);
    assert!(floor.counts[0].handed_to(1) > 10);
    let before = floor.seen() as u64;
    floor.close_exits(1);
    floor.turn_until_idle(1);
    assert_eq!((floor.given_up(0), floor.given_up(1)), ((0, 1), (0, 1)));
    assert_eq!((floor.seen() as u64, floor.left(0)), (before, 0));
    assert_eq!(floor.dropped(DropReason::PortDown), 200 - before);
    floor.close();
}
