//! One bucket by hand; then many steps at random, with a checker that must also see broken rules.

use super::*;
use crate::ring::{Consumer, Producer, ring};

#[test]
fn a_bucket_moves_once_all_of_it_has_been_transmitted() {
    let (mut map, mut steering, mut workers) = rig();
    hand(&mut steering, 0, 0);
    workers[0].take(0, 1);
    map.want(0, 1);
    assert_eq!((look(&mut steering, 0), steering.follow()), (0, 1), "taken, and not transmitted");
    told(&mut workers[0]);
    hand(&mut steering, 0, 1);
    assert_eq!(steering.follow(), 0);
    map.want(0, 0);
    assert_eq!(look(&mut steering, 0), 1);
}

/// A batch is steered frame by frame and pushed at its end: what is counted holds its bucket, pushed or not.
#[test]
fn a_bucket_stays_from_its_first_frame_counted() {
    let (mut map, mut steering, mut workers) = rig();
    hand(&mut steering, 0, 0);
    map.want(0, 1);
    hand(&mut steering, 0, 0);
    let _ = steering.steer(0); // Dropped: nothing comes of it.
    assert_eq!(steering.follow(), 1);
    for left in [1, 0] {
        workers[0].take(0, 1);
        told(&mut workers[0]);
        assert_eq!(steering.follow(), left);
    }
    assert_eq!(look(&mut steering, 0), 1);
}

/// A bucket waits for its batch's last frame at most, and not for frames that never come.
#[test]
fn a_batch_holds_its_buckets_as_far_as_it_reaches() {
    let mut map = SteeringMap::new(GROUP, 0);
    let mut worker = Completions::new(1);
    let (outgoing, incoming) = pair();
    worker.connect(0, incoming);
    let (other, _there) = pair();
    let mut steering = Steering::new(map.reader(), 2, 0, outgoing);
    steering.connect(1, other);
    let mut batch = steering.batch(0, 3);
    assert_eq!([5, 6, 5].map(|bucket| batch.worker(bucket)), [0; 3]);
    steering.handed_all(0, 3);
    assert_eq!(steering.bucket(5), (0, 2));
    map.want(6, 1);
    worker.take(0, 2);
    told(&mut worker);
    assert_eq!(look(&mut steering, 6), 0, "the batch has not left, whatever is last in it");
    worker.take(0, 1);
    told(&mut worker);
    assert_eq!(look(&mut steering, 6), 1);
    // Dropped in place of being handed on: nothing waits for them.
    let _ = steering.batch(0, 60).worker(5);
    map.want(5, 1);
    assert_eq!(look(&mut steering, 5), 1);
}

/// Without being steered one by one, as from a queue whose frames all stay.
#[test]
fn what_the_receiver_keeps_holds_all_buckets_of_its_group() {
    let mut map = SteeringMap::new(2 * GROUP, RECEIVER);
    let mut workers = [(); 2].map(|()| Completions::new(1));
    let [own, other] = workers.each_mut().map(|worker| {
        let (outgoing, incoming) = pair();
        worker.connect(0, incoming);
        outgoing
    });
    let mut steering = Steering::new(map.reader(), 2, 0, own);
    steering.connect(1, other);
    assert!(steering.is_kept(0) && steering.steers_to(0, 0) && !steering.steers_to(0, 1));
    steering.keep(0, 3);
    map.want(7, 1);
    map.want(GROUP, 1);
    assert!(!steering.is_kept(0));
    assert_eq!([7, GROUP].map(|bucket| look(&mut steering, bucket)), [0, 1]);
    workers[0].take(0, 3);
    told(&mut workers[0]);
    assert_eq!(look(&mut steering, 7), 1);
    assert!(steering.steers_to(0, 1) && steering.steers_to(1, 1));
    map.want(7, RECEIVER);
    assert_eq!((steering.follow(), look(&mut steering, 7)), (0, 0));
    assert!(steering.is_kept(0) && !steering.is_kept(1) && !steering.steers_to(0, 1));
}

#[test]
fn buckets_do_not_wait_for_each_other() {
    let (mut map, mut steering, mut workers) = rig();
    for bucket in [0, 1] {
        hand(&mut steering, bucket, 0);
        map.want(bucket, 1);
    }
    workers[0].take(0, 1);
    told(&mut workers[0]);
    assert_eq!([0, 1].map(|bucket| look(&mut steering, bucket)), [1, 0]);
}

/// Frames wait for a neighbour, later ones are transmitted; a bucket with another mark does not wait.
#[test]
fn a_held_frame_keeps_its_bucket_and_no_other() {
    let (mut map, mut steering, mut workers) = rig();
    for bucket in [0, 0, 1] {
        hand(&mut steering, bucket, 0);
        map.want(bucket, 1);
    }
    let worker = &mut workers[0];
    worker.take(0, 3);
    worker.hold(0, 0);
    worker.hold(0, 0);
    told(worker);
    assert_eq!([0, 1].map(|bucket| look(&mut steering, bucket)), [0, 1]);
    worker.let_go(0, 0);
    told(worker);
    assert_eq!((look(&mut steering, 0), steering.is_complete()), (0, false));
    worker.let_go(0, 0);
    worker.note();
    assert_eq!(look(&mut steering, 0), 0, "let go, and not yet with its device");
    worker.announce();
    assert_eq!((look(&mut steering, 0), steering.is_complete()), (1, true));
}

/// A frame that a device takes after the report is announced when the device has it; frames received meanwhile, later.
#[test]
fn what_is_announced_is_what_was_noted() {
    let (mut map, mut steering, mut workers) = rig();
    let worker = &mut workers[0];
    hand(&mut steering, 0, 0);
    worker.take(0, 1);
    worker.hold(0, 0);
    worker.note();
    hand(&mut steering, 1, 0);
    worker.take(0, 1);
    worker.let_go(0, 0);
    worker.announce();
    map.want(0, 1);
    map.want(1, 1);
    assert_eq!([0, 1].map(|bucket| look(&mut steering, bucket)), [0, 0]);
    told(worker);
    assert_eq!([0, 1].map(|bucket| look(&mut steering, bucket)), [1, 1]);
}

#[test]
#[should_panic(expected = "a frame is held before it is let go")]
fn what_was_not_held_cannot_be_let_go() {
    let (_, _, mut workers) = rig();
    workers[0].let_go(0, 0);
}

/// A receive queue changes hands while other queues of its worker continue.
#[test]
fn what_had_been_handed_on_is_waited_for_and_nothing_later() {
    let (_, mut steering, mut workers) = rig();
    for bucket in [0, 1] {
        hand(&mut steering, bucket, 0);
    }
    let mut then = steering.handed();
    hand(&mut steering, 0, 0);
    assert!(!steering.has_completed(&mut then));
    let worker = &mut workers[0];
    worker.take(0, 2);
    worker.hold(0, 0);
    told(worker);
    assert!(!steering.has_completed(&mut then), "the first is held");
    worker.let_go(0, 0);
    worker.hold(0, 1);
    told(worker);
    assert!(steering.has_completed(&mut then), "bucket 1 was clear, and is looked at no more");
    assert!(!steering.is_complete());
}

/// Drained first, whether frames arrive for its buckets or not.
#[test]
fn a_worker_is_removed_when_nothing_of_it_is_left() {
    let (mut map, mut steering, mut workers) = rig();
    map.want(0, 1);
    hand(&mut steering, 0, 1);
    map.want(0, 0);
    assert_eq!(steering.follow(), 1);
    assert_eq!(steering.disconnect(1), Err(InUse { buckets: 1, frames: 1 }));
    workers[1].take(0, 1);
    assert!(!workers[1].disconnect(0));
    told(&mut workers[1]);
    assert!(workers[1].disconnect(0));
    assert_eq!(steering.disconnect(1), Err(InUse { buckets: 1, frames: 0 }));
    assert_eq!((steering.follow(), steering.disconnect(1)), (0, Ok(())));
    map.want(0, 1);
    assert_eq!((look(&mut steering, 0), steering.follow()), (0, 1), "nobody can go there now");
    map.want(0, 7);
    assert_eq!(look(&mut steering, 0), 0, "nor to a worker there cannot be");
    assert!(steering.is_complete());
}

#[test]
fn a_flow_leaves_in_order_whatever_moves() {
    let moves: u32 = (1..=40).map(|seed| Net::new(seed).run(Rules::default())).sum();
    assert!(moves > 1000, "only {moves} moves");
}

#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_a_move_when_popped() {
    (1..=40).for_each(|seed| {
        Net::new(seed).run(Rules { completed_when_popped: true, ..Rules::default() });
    });
}

#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_a_move_before_the_device_has_taken_what_it_was_given() {
    (1..=40).for_each(|seed| {
        Net::new(seed).run(Rules { completed_when_given: true, ..Rules::default() });
    });
}

#[test]
#[should_panic(expected = "overtook")]
fn the_checker_sees_a_held_frame_that_counts_as_completed() {
    (1..=40).for_each(|seed| {
        Net::new(seed).run(Rules { held_is_completed: true, ..Rules::default() });
    });
}

/// Where a frame of `bucket` would go.
fn look(steering: &mut Steering, bucket: usize) -> u16 {
    steering.steer(bucket).worker()
}

/// Hands a frame of `bucket` on, to `worker`.
fn hand(steering: &mut Steering, bucket: usize, worker: u16) {
    let steered = steering.steer(bucket);
    assert_eq!(steered.worker(), worker);
    steered.handed();
}

/// The end of a worker's turn, its devices having taken everything.
fn told(worker: &mut Completions) {
    worker.note();
    worker.announce();
}

/// Two buckets that go to worker 0, the receiver's own, and may go to worker 1.
fn rig() -> (SteeringMap, Steering, [Completions; 2]) {
    let map = SteeringMap::new(2, 0);
    let mut workers = [(); 2].map(|()| Completions::new(1));
    let mut ends = workers.each_mut().map(|worker| {
        let (outgoing, incoming) = pair();
        worker.connect(0, incoming);
        Some(outgoing)
    });
    let mut take = |worker: usize| ends[worker].take().expect("each is taken once");
    let mut steering = Steering::new(map.reader(), 2, 0, take(0));
    steering.connect(1, take(1));
    (map, steering, workers)
}

const WORKERS: usize = 3;
const BUCKETS: usize = 4;

/// What a worker does wrong.
#[derive(Clone, Copy, Default)]
struct Rules {
    completed_when_popped: bool,
    completed_when_given: bool,
    held_is_completed: bool,
}

/// Workers that receive and forward, stepped in random order by one thread. A flow is a receiver and a
/// bucket; its frames are numbered.
struct Net {
    random: u64,
    map: SteeringMap,
    workers: Vec<Worker>,
    /// The number last transmitted, by flow.
    wire: [[u32; BUCKETS]; WORKERS],
}

struct Worker {
    steering: Steering,
    rings: Vec<Producer<Frame>>,
    sent: [u32; BUCKETS],
    steered: [u16; BUCKETS],
    arrivals: Vec<Consumer<Frame>>,
    completions: Completions,
    /// Frames that wait for a neighbour, each flow's in order.
    held: Vec<Frame>,
    /// Frames that wait for the end of the turn.
    waiting: Vec<Frame>,
    /// Frames that a device has been given, and has not taken.
    given: Vec<Frame>,
}

#[derive(Clone, Copy)]
struct Frame {
    receiver: usize,
    bucket: usize,
    number: u32,
}

impl Net {
    fn new(seed: u64) -> Net {
        let map = SteeringMap::new(GROUP, 0);
        let mut completions: Vec<_> =
            (0..WORKERS).map(|_| Completions::new(WORKERS as u16)).collect();
        let mut arrivals: Vec<Vec<_>> = (0..WORKERS).map(|_| Vec::new()).collect();
        let mut receivers = Vec::new();
        for receiver in 0..WORKERS {
            let (mut rings, mut ends) = (Vec::new(), Vec::new());
            for worker in 0..WORKERS {
                let (outgoing, incoming) = pair();
                completions[worker].connect(receiver as u16, incoming);
                let (producer, consumer) = ring(8);
                arrivals[worker].push(consumer);
                rings.push(producer);
                ends.push(Some(outgoing));
            }
            let own = ends[receiver].take().expect("it was just made");
            let mut steering = Steering::new(map.reader(), WORKERS as u16, receiver as u16, own);
            for (worker, end) in ends.into_iter().enumerate() {
                end.into_iter().for_each(|end| steering.connect(worker as u16, end));
            }
            receivers.push((steering, rings));
        }
        let parts = receivers.into_iter().zip(arrivals).zip(completions);
        let workers = parts.map(|(((steering, rings), arrivals), completions)| Worker {
            steering,
            rings,
            sent: [0; BUCKETS],
            steered: [0; BUCKETS],
            arrivals,
            completions,
            held: Vec::new(),
            waiting: Vec::new(),
            given: Vec::new(),
        });
        Net { random: seed, map, workers: workers.collect(), wire: [[0; BUCKETS]; WORKERS] }
    }

    /// Steps at random, then until all is transmitted. Returns the number of moves.
    fn run(mut self, rules: Rules) -> u32 {
        let mut moves = 0;
        for _ in 0..4000 {
            let worker = self.random(WORKERS);
            match self.random(6) {
                0 | 1 => moves += self.receive(worker),
                2 => self.forward(worker, rules),
                3 => self.transmit(worker, rules),
                4 => self.devices_take(worker),
                _ => {
                    let (bucket, wanted) = (self.random(BUCKETS), self.random(WORKERS));
                    self.map.want(bucket, wanted as u16);
                }
            }
        }
        while !self.workers.iter_mut().all(|worker| worker.steering.is_complete()) {
            for worker in 0..WORKERS {
                self.forward(worker, rules);
                self.transmit(worker, rules);
                self.devices_take(worker);
            }
        }
        moves
    }

    /// Receives a frame and hands it on; one that finds the ring full is dropped.
    fn receive(&mut self, receiver: usize) -> u32 {
        let (bucket, in_batch) = (self.random(BUCKETS), self.random(2) == 0);
        let Worker { steering, rings, sent, steered, .. } = &mut self.workers[receiver];
        if in_batch {
            let _ = steering.follow();
            let worker = steering.batch(0, 5).worker(bucket as u8); // One of five; the others are dropped.
            let moved = std::mem::replace(&mut steered[bucket], worker) != worker;
            sent[bucket] += 1;
            let frame = Frame { receiver, bucket, number: sent[bucket] };
            if rings[usize::from(worker)].push(frame).is_ok() {
                steering.handed_all(worker, 1);
                rings[usize::from(worker)].submit();
            }
            return u32::from(moved);
        }
        let way = steering.steer(bucket);
        let worker = way.worker();
        let moved = std::mem::replace(&mut steered[bucket], worker) != worker;
        sent[bucket] += 1;
        let frame = Frame { receiver, bucket, number: sent[bucket] };
        if rings[usize::from(worker)].push(frame).is_ok() {
            way.handed();
            rings[usize::from(worker)].submit();
        }
        u32::from(moved)
    }

    /// Takes what was handed to `worker`, and holds some of it, and what comes behind that.
    fn forward(&mut self, worker: usize, rules: Rules) {
        self.release_held(worker, rules);
        for receiver in 0..WORKERS {
            let choice = self.random(4);
            let Worker { arrivals, completions, held, waiting, .. } = &mut self.workers[worker];
            for frame in arrivals[receiver].pop_up_to(choice) {
                completions.take(receiver as u16, 1);
                let behind = held.iter().any(|held| held.is_of(frame));
                if behind || frame.number.is_multiple_of(5) {
                    if !rules.held_is_completed {
                        completions.hold(receiver as u16, frame.bucket);
                    }
                    held.push(frame);
                } else {
                    waiting.push(frame);
                }
            }
            arrivals[receiver].release();
            if rules.completed_when_popped {
                told(completions);
            }
        }
    }

    /// A neighbour answers: what waited for it goes before anything newer.
    fn release_held(&mut self, worker: usize, rules: Rules) {
        let answered = self.random(BUCKETS);
        let Worker { held, waiting, completions, .. } = &mut self.workers[worker];
        for frame in held.extract_if(.., |frame| frame.bucket == answered) {
            waiting.push(frame);
            if !rules.held_is_completed {
                completions.let_go(frame.receiver as u16, frame.bucket);
            }
        }
    }

    /// The end of a turn: a device has what waited, and takes it when it likes.
    fn transmit(&mut self, worker: usize, rules: Rules) {
        let Worker { waiting, given, completions, .. } = &mut self.workers[worker];
        let tell = given.is_empty() || rules.completed_when_given; // Else what is noted is older.
        given.append(waiting);
        if tell {
            completions.note();
        }
        if given.is_empty() || rules.completed_when_given {
            completions.announce();
        }
    }

    /// A device takes what it was given, which is what was noted.
    fn devices_take(&mut self, worker: usize) {
        let Worker { given, completions, .. } = &mut self.workers[worker];
        for Frame { receiver, bucket, number } in given.drain(..) {
            let last = &mut self.wire[receiver][bucket];
            assert!(number > *last, "frame {number} overtook {last}");
            *last = number;
        }
        completions.announce();
    }

    /// A number below `bound` (xorshift64).
    fn random(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as usize % bound
    }
}

impl Frame {
    fn is_of(self, other: Frame) -> bool {
        (self.receiver, self.bucket) == (other.receiver, other.bucket)
    }
}
