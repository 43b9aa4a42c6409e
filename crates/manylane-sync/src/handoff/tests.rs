//! One bucket by hand; then many steps at random, with a checker that must also see broken rules.

use super::*;
use crate::ring::{Consumer, Producer, ring};

#[test]
fn a_bucket_moves_once_all_of_it_has_been_transmitted() {
    let (mut map, mut steering, mut workers) = rig();
    assert_eq!(steering.steer(0), 0);
    steering.handed(0);
    workers[0].take(0, 1);
    map.want(0, 1);
    assert_eq!((look(&mut steering, 0), steering.follow()), (0, 1), "taken, and not transmitted");
    workers[0].announce();
    assert_eq!((steering.steer(0), steering.follow()), (1, 0));
    steering.handed(0);
    map.want(0, 0);
    assert_eq!(look(&mut steering, 0), 1);
}

/// Frames that are pushed together are steered before any of them counts: what control wants between
/// two of them must not part them.
#[test]
fn a_bucket_stays_while_frames_of_it_are_in_hand() {
    let (mut map, mut steering, mut workers) = rig();
    assert_eq!(steering.steer(0), 0);
    map.want(0, 1);
    assert_eq!((steering.steer(0), steering.steer(0), steering.follow()), (0, 0, 1));
    steering.handed(0);
    steering.dropped(0);
    workers[0].take(0, 1);
    workers[0].announce();
    assert_eq!(steering.follow(), 1, "one is still in hand");
    steering.handed(0);
    assert_eq!(steering.follow(), 1, "and now it is on its way");
    workers[0].take(0, 1);
    workers[0].announce();
    assert_eq!((steering.follow(), look(&mut steering, 0)), (0, 1));
}

#[test]
#[should_panic(expected = "a frame is steered before it goes")]
fn a_frame_that_was_not_steered_is_not_counted() {
    let (_, mut steering, _) = rig();
    steering.handed(0);
}

#[test]
fn buckets_do_not_wait_for_each_other() {
    let (mut map, mut steering, mut workers) = rig();
    for bucket in [0, 1] {
        assert_eq!(steering.steer(bucket), 0);
        steering.handed(bucket);
        map.want(bucket, 1);
    }
    workers[0].take(0, 1);
    workers[0].announce();
    assert_eq!([0, 1].map(|bucket| look(&mut steering, bucket)), [1, 0]);
}

/// A frame waits for a neighbour, later ones are transmitted, and so is the one held before it.
#[test]
fn a_held_frame_keeps_its_bucket() {
    let (mut map, mut steering, mut workers) = rig();
    for _ in 0..4 {
        assert_eq!(steering.steer(0), 0);
        steering.handed(0);
    }
    map.want(0, 1);
    let worker = &mut workers[0];
    let first = worker.take(0, 4);
    let [one, three] = [0, 2].map(|place| worker.hold(0, first + place).expect("two fit"));
    assert_eq!(worker.hold(0, first + 3), None, "a third does not");
    for (held, completed) in [(one, 2), (three, 4)] {
        worker.announce();
        assert_eq!(look(&mut steering, 0), 0);
        worker.let_go(held);
        worker.announce();
        assert_eq!(steering.pairs[0].as_mut().expect("connected").outstanding(), 4 - completed);
    }
    assert_eq!(look(&mut steering, 0), 1);
}

#[test]
fn frames_may_be_held_and_let_go_in_any_order() {
    let orders: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for held_in in orders {
        for let_go_in in orders {
            let mut worker = Completions::new(1, 3);
            let (mut outgoing, incoming) = pair();
            worker.connect(0, incoming);
            worker.take(0, 3);
            let mut held = [None, None, None];
            for place in held_in {
                held[place] = worker.hold(0, place as u64 + 1);
            }
            for place in let_go_in {
                worker.let_go(held[place].take().expect("three fit, and each is let go once"));
                worker.announce();
                let completed = held.iter().take_while(|held| held.is_none()).count() as u64;
                assert!(outgoing.has_completed(completed));
                assert!(!outgoing.has_completed(completed + 1));
            }
        }
    }
}

#[test]
#[should_panic(expected = "position 1 is not between 1 and 1")]
fn what_was_announced_cannot_be_held() {
    let (_, _, mut workers) = rig();
    workers[0].take(0, 1);
    workers[0].announce();
    let _ = workers[0].hold(0, 1);
}

/// Drained first, whether frames come for its buckets or not.
#[test]
fn a_worker_is_removed_when_nothing_of_it_is_left() {
    let (mut map, mut steering, mut workers) = rig();
    map.want(0, 1);
    assert_eq!(steering.steer(0), 1);
    steering.handed(0);
    map.want(0, 0);
    assert_eq!(steering.follow(), 1);
    assert_eq!(steering.disconnect(1), Err(InUse { buckets: 1, frames: 1 }));
    workers[1].take(0, 1);
    assert!(!workers[1].disconnect(0));
    workers[1].announce();
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
fn the_checker_sees_a_held_frame_that_counts_as_completed() {
    (1..=40).for_each(|seed| {
        Net::new(seed).run(Rules { held_is_completed: true, ..Rules::default() });
    });
}

/// Where a frame of `bucket` would go.
fn look(steering: &mut Steering, bucket: usize) -> u16 {
    let worker = steering.steer(bucket);
    steering.dropped(bucket);
    worker
}

/// Two buckets that go to worker 0, the receiver's own, and may go to worker 1; each holds two frames.
fn rig() -> (SteeringMap, Steering, [Completions; 2]) {
    let map = SteeringMap::new(2, 0);
    let mut workers = [(); 2].map(|()| Completions::new(1, 2));
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
    held: Vec<(Frame, Option<Held>)>,
    /// Frames that wait for the end of the turn.
    waiting: Vec<Frame>,
}

#[derive(Clone, Copy)]
struct Frame {
    receiver: usize,
    bucket: usize,
    number: u32,
}

impl Net {
    fn new(seed: u64) -> Net {
        let map = SteeringMap::new(BUCKETS, 0);
        let mut completions: Vec<_> =
            (0..WORKERS).map(|_| Completions::new(WORKERS as u16, 6)).collect();
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
        });
        Net { random: seed, map, workers: workers.collect(), wire: [[0; BUCKETS]; WORKERS] }
    }

    /// Steps at random, then until all is transmitted. Returns the number of moves.
    fn run(mut self, rules: Rules) -> u32 {
        let mut moves = 0;
        for _ in 0..4000 {
            let worker = self.random(WORKERS);
            match self.random(5) {
                0 | 1 => moves += self.receive(worker),
                2 => self.forward(worker, rules),
                3 => self.transmit(worker),
                _ => {
                    let (bucket, wanted) = (self.random(BUCKETS), self.random(WORKERS));
                    self.map.want(bucket, wanted as u16);
                }
            }
        }
        while !self.workers.iter_mut().all(|worker| worker.steering.is_complete()) {
            for worker in 0..WORKERS {
                self.forward(worker, rules);
                self.transmit(worker);
            }
        }
        moves
    }

    /// Receives a frame and hands it on; one that finds the ring full is dropped.
    fn receive(&mut self, receiver: usize) -> u32 {
        let bucket = self.random(BUCKETS);
        let Worker { steering, rings, sent, steered, .. } = &mut self.workers[receiver];
        let worker = steering.steer(bucket);
        let moved = std::mem::replace(&mut steered[bucket], worker) != worker;
        sent[bucket] += 1;
        let frame = Frame { receiver, bucket, number: sent[bucket] };
        if rings[usize::from(worker)].push(frame).is_ok() {
            steering.handed(bucket);
            rings[usize::from(worker)].submit();
        } else {
            steering.dropped(bucket);
        }
        u32::from(moved)
    }

    /// Takes what was handed to `worker`, and holds some of it, and what comes behind that.
    fn forward(&mut self, worker: usize, rules: Rules) {
        self.release_held(worker);
        for receiver in 0..WORKERS {
            let choice = self.random(4);
            let Worker { arrivals, completions, held, waiting, .. } = &mut self.workers[worker];
            for frame in arrivals[receiver].pop_up_to(choice) {
                let position = completions.take(receiver as u16, 1);
                let behind = held.iter().any(|(held, _)| held.is_of(frame));
                if behind || frame.number.is_multiple_of(5) {
                    if rules.held_is_completed {
                        held.push((frame, None));
                    } else if let Some(mark) = completions.hold(receiver as u16, position) {
                        held.push((frame, Some(mark)));
                    }
                } else {
                    waiting.push(frame);
                }
            }
            arrivals[receiver].release();
            if rules.completed_when_popped {
                completions.announce();
            }
        }
    }

    /// A neighbour answers: what waited for it goes before anything newer.
    fn release_held(&mut self, worker: usize) {
        let answered = self.random(BUCKETS);
        let Worker { held, waiting, completions, .. } = &mut self.workers[worker];
        for (frame, mark) in held.extract_if(.., |(frame, _)| frame.bucket == answered) {
            waiting.push(frame);
            mark.into_iter().for_each(|mark| completions.let_go(mark));
        }
    }

    fn transmit(&mut self, worker: usize) {
        let Worker { waiting, completions, .. } = &mut self.workers[worker];
        for Frame { receiver, bucket, number } in waiting.drain(..) {
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
