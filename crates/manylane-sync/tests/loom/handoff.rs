//! `handoff`: a flow leaves in the order it came, whatever moves. Rings are the crate's own.
//!
//! What is transmitted is a `Watched` number for each flow: two workers that transmit without an order
//! between them fail as well as two in the wrong one.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use manylane_sync::handoff::{Completions, Handed, Steering, SteeringMap, pair};
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Seen, Watched, explore};

/// What the models do with a receiver's steering of its one bucket: the crate's own, or a twin of it.
trait Steer: Send + 'static {
    /// Steers a frame, and counts it as handed on.
    fn steer(&mut self) -> usize;
}

/// And when its queue is to go to another receiver.
trait Leave: Steer {
    type Handed;
    fn handed(&self) -> Self::Handed;
    fn has_completed(&mut self, handed: &mut Self::Handed) -> bool;
}

/// What they do with a worker's account of one receiver.
trait Account: Send + 'static {
    /// Takes one frame, and holds it or not.
    fn take(&mut self, receiver: usize, hold: bool);
    fn let_go(&mut self, receiver: usize);
    fn announce(&mut self);
}

/// A bucket moves there and back under three frames of a flow, between two workers of two turns each.
#[test]
fn handoff_a_a_flow_leaves_in_the_order_it_came() {
    static MOVED: Seen = Seen::new("the bucket moved while both workers ran");
    static WAITED: Seen = Seen::new("the bucket had to wait");
    explore("handoff_a, 1 receiver x 3", None, || three_frames(source, RIGHT, &MOVED, &WAITED));
    MOVED.assert();
    WAITED.assert();
}

/// As above, when the first worker holds the frames of its first turn, until the second.
#[test]
fn handoff_b_a_held_frame_keeps_its_bucket() {
    static MOVED: Seen = Seen::new("the bucket moved while both workers ran");
    static WAITED: Seen = Seen::new("the bucket had to wait");
    explore("handoff_b", None, || {
        three_frames(source, Turn { hold: true, ..RIGHT }, &MOVED, &WAITED);
    });
    MOVED.assert();
    WAITED.assert();
}

/// Two workers, each a receiver too, hand each other three frames of one bucket, and keep their share;
/// control moves the bucket from worker 0 to worker 1. With two frames each receiver's bucket moves: the
/// first's away from itself, the second's to itself.
#[test]
fn handoff_a_also_between_two_workers_that_receive() {
    static MOVED: Seen = Seen::new("a receiver moved the bucket");
    for frames in [[2, 1], [1, 2]] {
        explore(&format!("handoff_a, receivers x {frames:?}"), PREEMPTIONS, move || {
            two_receivers(frames, RIGHT, &MOVED);
        });
        MOVED.assert();
    }
}

/// Of the two rows above, the one in which a bucket leaves another worker than its receiver.
#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_move_when_popped_overtakes_between_two_workers_that_receive() {
    let turn = Turn { announce: Announce::WhenPopped, ..RIGHT };
    explore("mutant, receivers", PREEMPTIONS, move || two_receivers([1, 2], turn, &UNUSED));
}

/// Of two workers that receive: two are enough for the mutant to be found.
const PREEMPTIONS: Option<usize> = Some(3);

/// A queue changes its receiver when all frames that it had handed on have left, even if held meanwhile.
#[test]
fn handoff_a_and_b_also_when_the_queue_changes_hands() {
    static LEFT: Seen = Seen::new("the queue left while the worker ran");
    static WAITED: Seen = Seen::new("it had to wait");
    for hold in [false, true] {
        let turn = Turn { hold, ..RIGHT };
        explore("handoff, a queue leaves", None, move || {
            queue_leaves(source, turn, &LEFT, &WAITED)
        });
        LEFT.assert();
        WAITED.assert();
    }
}

#[test]
fn the_twin_of_the_handoff_passes() {
    for hold in [false, true] {
        let turn = Turn { hold, ..RIGHT };
        explore("handoff twin", None, move || {
            three_frames(|| twin(SOURCE), turn, &UNUSED, &UNUSED);
        });
        explore("handoff twin, a queue leaves", None, move || {
            queue_leaves(|| twin(SOURCE), turn, &UNUSED, &UNUSED);
        });
    }
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $expected:literal, $ends:expr, $turn:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), None, || three_frames($ends, $turn, &UNUSED, &UNUSED));
        }
    };
}

mutant!(
    mutant_a_move_when_popped_overtakes,
    "Causality violation",
    source,
    Turn { announce: Announce::WhenPopped, ..RIGHT }
);
mutant!(
    mutant_a_held_frame_that_counts_as_completed_is_overtaken,
    "Causality violation",
    source,
    Turn { hold: true, announce: Announce::WhatIsHeld }
);
mutant!(
    mutant_a_move_without_waiting_overtakes,
    "overtook",
    || twin(Orders { waits: false, ..SOURCE }),
    RIGHT
);
mutant!(
    mutant_a_relaxed_announce_does_not_order_the_workers,
    "Causality violation",
    || twin(Orders { announce: Ordering::Relaxed, ..SOURCE }),
    RIGHT
);
mutant!(
    mutant_a_relaxed_mark_does_not_order_what_was_held,
    "Causality violation",
    || twin(Orders { mark: Ordering::Relaxed, ..SOURCE }),
    Turn { hold: true, ..RIGHT }
);
mutant!(
    mutant_a_relaxed_look_at_marks_does_not_order_what_was_held,
    "Causality violation",
    || twin(Orders { look_at_marks: Ordering::Relaxed, ..SOURCE }),
    Turn { hold: true, ..RIGHT }
);
mutant!(
    mutant_a_mark_told_behind_what_is_completed_comes_too_late,
    "Causality violation",
    || twin(Orders { marks_first: false, ..SOURCE }),
    Turn { hold: true, ..RIGHT }
);
mutant!(
    mutant_a_relaxed_look_at_completed_does_not_order_the_workers,
    "Causality violation",
    || twin(Orders { look: Ordering::Relaxed, ..SOURCE }),
    RIGHT
);

macro_rules! queue_mutant {
    ($name:ident, $expected:literal, $orders:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            let turn = Turn { hold: true, ..RIGHT };
            explore(stringify!($name), None, move || {
                queue_leaves(|| twin($orders), turn, &UNUSED, &UNUSED);
            });
        }
    };
}

queue_mutant!(
    mutant_a_queue_that_leaves_what_is_held_is_overtaken,
    "Causality violation",
    Orders { leaves: Leaves::WhenCompleted, ..SOURCE }
);
queue_mutant!(
    mutant_a_queue_that_looks_at_marks_first_misses_one,
    "Causality violation",
    Orders { leaves: Leaves::MarksFirst, ..SOURCE }
);
queue_mutant!(
    mutant_a_queue_that_leaves_by_relaxed_marks_is_not_ordered,
    "Causality violation",
    Orders { look_at_marks: Ordering::Relaxed, ..SOURCE }
);

/// When a worker says that a frame is completed.
#[derive(Clone, Copy, PartialEq)]
enum Announce {
    AfterTransmit,
    WhenPopped,
    /// After transmit, but also for held frames.
    WhatIsHeld,
}

/// How the workers do their turns.
#[derive(Clone, Copy)]
struct Turn {
    announce: Announce,
    /// Whether worker 0 holds the frames that it takes in its first turn.
    hold: bool,
}

const RIGHT: Turn = Turn { announce: Announce::AfterTransmit, hold: false };

/// A receiver that steers one bucket to 0, to 1 and back, and two workers.
fn three_frames<S: Steer, A: Account>(
    ends: impl FnOnce() -> (Wants<S>, [A; 2]),
    turn: Turn,
    moved: &'static Seen,
    waited: &'static Seen,
) {
    let (mut steering, accounts) = ends();
    let wire = Arc::new(Watched::new(0));
    let mut rings = Vec::new();
    let threads = accounts.map(|account| {
        let (producer, consumer) = ring(4);
        rings.push(producer);
        let wire = wire.clone();
        let mut worker = Worker { account, arrivals: vec![consumer], held: Vec::new() };
        let hold = turn.hold && rings.len() == 1;
        thread::spawn(move || {
            worker.turn(&[&wire], Turn { hold, ..turn });
            worker.turn(&[&wire], Turn { hold: false, ..turn });
            worker
        })
    });
    let mut last = 0;
    for (frame, wanted) in [(1, 0), (2, 1), (3, 0)] {
        let worker = steering.steer(wanted);
        if worker != last {
            moved.note();
        }
        if worker != wanted {
            waited.note();
        }
        last = worker;
        push(&mut rings[worker], frame);
    }
    for thread in threads {
        let mut worker = thread.join().expect("a worker does not panic");
        worker.turn(&[&wire], Turn { hold: false, ..turn });
    }
    assert_eq!(wire.read(), 3, "frames were lost");
}

/// A worker that may take from each receiver.
struct Worker<A: Account> {
    account: A,
    arrivals: Vec<Consumer<u32>>,
    /// By receiver; and whether its account knows.
    held: Vec<(usize, u32, bool)>,
}

impl<A: Account> Worker<A> {
    /// Takes the waiting frames, transmits them behind held ones, and says so. A flow is a receiver.
    fn turn(&mut self, wire: &[&Watched], turn: Turn) {
        let mut waiting: Vec<(usize, u32)> = Vec::new();
        for (receiver, frame, held) in self.held.drain(..) {
            waiting.push((receiver, frame));
            if held {
                self.account.let_go(receiver);
            }
        }
        for (receiver, ring) in self.arrivals.iter_mut().enumerate() {
            for frame in ring.pop_up_to(3) {
                let counted = turn.hold && turn.announce != Announce::WhatIsHeld;
                self.account.take(receiver, counted);
                if turn.hold {
                    self.held.push((receiver, frame, counted));
                } else {
                    waiting.push((receiver, frame));
                }
            }
            ring.release();
        }
        if turn.announce == Announce::WhenPopped {
            self.account.announce();
        }
        for (flow, frame) in waiting {
            transmit(wire[flow], frame);
        }
        self.account.announce();
    }
}

fn transmit(wire: &Watched, frame: u32) {
    let last = wire.read();
    assert!(frame > last, "frame {frame} overtook {last}");
    wire.write(frame);
}

/// A receiver hands a frame to the other worker, which may hold it for a turn; when it has left, another receives: its
/// frame is transmitted in its place.
fn queue_leaves<S: Leave, A: Account>(
    ends: impl FnOnce() -> (Wants<S>, [A; 2]),
    turn: Turn,
    left: &'static Seen,
    waited: &'static Seen,
) {
    let (mut steering, [_, account]) = ends();
    let wire = Arc::new(Watched::new(0));
    let (mut producer, consumer) = ring(2);
    assert_eq!(steering.steer(1), 1, "it has handed nothing to itself");
    push(&mut producer, 1);
    let mut handed = steering.steer.handed();
    let theirs = wire.clone();
    let worker = thread::spawn(move || {
        let mut worker = Worker { account, arrivals: vec![consumer], held: Vec::new() };
        worker.turn(&[&theirs], turn);
        worker.turn(&[&theirs], RIGHT);
        worker
    });
    let mut frames = 1;
    for _ in 0..2 {
        if steering.steer.has_completed(&mut handed) {
            left.note();
            frames = 2;
            transmit(&wire, frames);
            break;
        }
        waited.note();
    }
    let mut worker = worker.join().expect("a worker does not panic");
    worker.turn(&[&wire], RIGHT);
    assert_eq!(wire.read(), frames, "a frame was lost");
}

/// Each worker receives its number of frames, a turn each, and may hand them to itself or the other.
fn two_receivers(frames: [u32; 2], turn: Turn, moved: &'static Seen) {
    let mut map = SteeringMap::new(1, 0);
    let wires = Arc::new([Watched::new(0), Watched::new(0)]);
    // By receiver, then by worker.
    let pairs = [[(); 2]; 2].map(|row| row.map(|()| pair()));
    let rings = [[(); 2]; 2].map(|row| row.map(|()| ring::<u32>(2)));
    let mut accounts = [(); 2].map(|()| Completions::new(2));
    let mut arrivals: [Vec<Consumer<u32>>; 2] = [Vec::new(), Vec::new()];
    let mut receivers = Vec::new();
    for (receiver, (pairs, rings)) in pairs.into_iter().zip(rings).enumerate() {
        let mut ends = Vec::new();
        let mut producers = Vec::new();
        for (worker, (pair, ring)) in pairs.into_iter().zip(rings).enumerate() {
            accounts[worker].connect(receiver as u16, pair.1);
            arrivals[worker].push(ring.1);
            ends.push(pair.0);
            producers.push(ring.0);
        }
        let other = ends.remove(1 - receiver);
        let own = ends.remove(0);
        let mut steering = Steering::new(map.reader(), 2, receiver as u16, own);
        steering.connect(1 - receiver as u16, other);
        receivers.push((steering, producers));
    }
    let threads: Vec<_> = receivers
        .into_iter()
        .zip(accounts.into_iter().zip(arrivals))
        .enumerate()
        .map(|(own, ((mut steering, mut rings), (account, arrivals)))| {
            let wires = wires.clone();
            thread::spawn(move || {
                let mut worker = Worker { account, arrivals, held: Vec::new() };
                let wires = [&wires[0], &wires[1]];
                let mut last = None;
                for frame in 1..=frames[own] {
                    let target = Steer::steer(&mut steering);
                    if last.replace(target).is_some_and(|last| last != target) {
                        moved.note();
                    }
                    push(&mut rings[target], frame);
                    worker.turn(&wires, turn);
                }
                (worker, steering)
            })
        })
        .collect();
    map.want(0, 1);
    let ends: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect();
    let (mut workers, mut steerings): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let wires = [&wires[0], &wires[1]];
    workers.iter_mut().for_each(|worker| worker.turn(&wires, RIGHT));
    assert_eq!(wires.map(Watched::read), frames, "frames were lost");
    assert!(steerings.iter_mut().all(Steering::is_complete));
}

fn push(ring: &mut Producer<u32>, frame: u32) {
    ring.push(frame).expect("a ring has room for all");
    ring.submit();
}

/// A receiver's steering, and its inputs.
struct Wants<S> {
    map: Option<SteeringMap>,
    steer: S,
    want: fn(&mut S, &mut Option<SteeringMap>, usize),
}

impl<S: Steer> Wants<S> {
    fn steer(&mut self, wanted: usize) -> usize {
        (self.want)(&mut self.steer, &mut self.map, wanted);
        self.steer.steer()
    }
}

/// The crate's types: receiver 0 and two workers.
fn source() -> (Wants<Steering>, [Completions; 2]) {
    let map = SteeringMap::new(1, 0);
    let mut accounts = [(); 2].map(|()| Completions::new(1));
    let [own, other] = accounts.each_mut().map(|account| {
        let (outgoing, incoming) = pair();
        account.connect(0, incoming);
        outgoing
    });
    let mut steer = Steering::new(map.reader(), 2, 0, own);
    steer.connect(1, other);
    let want = |_: &mut Steering, map: &mut Option<SteeringMap>, wanted: usize| {
        map.as_mut().expect("the source has a map").want(0, wanted as u16);
    };
    (Wants { map: Some(map), steer, want }, accounts)
}

impl Steer for Steering {
    fn steer(&mut self) -> usize {
        let steered = Steering::steer(self, 0);
        let worker = steered.worker();
        steered.handed();
        worker.into()
    }
}

impl Leave for Steering {
    type Handed = Handed;

    fn handed(&self) -> Handed {
        Steering::handed(self)
    }

    fn has_completed(&mut self, handed: &mut Handed) -> bool {
        Steering::has_completed(self, handed)
    }
}

impl Account for Completions {
    fn take(&mut self, receiver: usize, hold: bool) {
        Completions::take(self, receiver as u16, 1);
        if hold {
            self.hold(receiver as u16, 0);
        }
    }

    fn let_go(&mut self, receiver: usize) {
        Completions::let_go(self, receiver as u16, 0);
    }

    fn announce(&mut self) {
        self.note();
        Completions::announce(self);
    }
}

/// The orderings of a pair, named for the functions they stand in, and whether a move waits at all.
#[derive(Clone, Copy)]
struct Orders {
    announce: Ordering,
    look: Ordering,
    mark: Ordering,
    look_at_marks: Ordering,
    waits: bool,
    /// Whether held frames are reported before completed ones.
    marks_first: bool,
    leaves: Leaves,
}

/// What a queue waits for before it leaves.
#[derive(Clone, Copy, PartialEq)]
enum Leaves {
    /// Until all is completed, and no mark has been seen since.
    WhenLeft,
    /// As above, but it looks at marks before it looks at the completed count.
    MarksFirst,
    /// Held or not.
    WhenCompleted,
}

const SOURCE: Orders = Orders {
    announce: Ordering::Release,
    look: Ordering::Acquire,
    mark: Ordering::Release,
    look_at_marks: Ordering::Acquire,
    waits: true,
    marks_first: true,
    leaves: Leaves::WhenLeft,
};

/// A twin of `Steering` for one bucket.
struct TwinSteering {
    orders: Orders,
    shared: [Arc<TwinShared>; 2],
    handed: [u64; 2],
    wanted: usize,
    worker: usize,
    last: u64,
}

#[derive(Default)]
struct TwinShared {
    completed: AtomicU64,
    held: AtomicU64,
}

/// A twin of `Completions`.
struct TwinAccount {
    orders: Orders,
    shared: Arc<TwinShared>,
    taken: u64,
    held: u64,
}

fn twin(orders: Orders) -> (Wants<TwinSteering>, [TwinAccount; 2]) {
    let shared = [(); 2].map(|()| Arc::new(TwinShared::default()));
    let account = |shared| TwinAccount { orders, shared, taken: 0, held: 0 };
    let accounts = shared.clone().map(account);
    let steer = TwinSteering { orders, shared, handed: [0; 2], wanted: 0, worker: 0, last: 0 };
    let want =
        |steer: &mut TwinSteering, _: &mut Option<SteeringMap>, wanted| steer.wanted = wanted;
    (Wants { map: None, steer, want }, accounts)
}

impl Steer for TwinSteering {
    fn steer(&mut self) -> usize {
        let Orders { look, look_at_marks, waits, .. } = self.orders;
        let TwinShared { completed, held } = &*self.shared[self.worker];
        let may = || !waits || completed.load(look) >= self.last && held.load(look_at_marks) == 0;
        if self.wanted != self.worker && may() {
            (self.worker, self.last) = (self.wanted, 0);
        }
        self.handed[self.worker] += 1;
        self.last = self.handed[self.worker];
        self.worker
    }
}

impl Leave for TwinSteering {
    /// Of each worker: the last frame's position, and marks that have not been seen clear since.
    type Handed = [(u64, u64); 2];

    fn handed(&self) -> Self::Handed {
        self.handed.map(|handed| (handed, u64::MAX))
    }

    fn has_completed(&mut self, handed: &mut Self::Handed) -> bool {
        let Orders { look, look_at_marks, leaves, .. } = self.orders;
        let pairs = self.shared.iter().zip(handed);
        let left = pairs.map(|(shared, (position, marks))| {
            let TwinShared { completed, held } = &**shared;
            let mut look_at_marks = || *marks &= held.load(look_at_marks);
            if leaves == Leaves::MarksFirst {
                look_at_marks();
            }
            if completed.load(look) < *position {
                return false;
            }
            match leaves {
                Leaves::WhenLeft => look_at_marks(),
                Leaves::MarksFirst => {}
                Leaves::WhenCompleted => *marks = 0,
            }
            *marks == 0
        });
        left.fold(true, |all, left| all & left)
    }
}

impl Account for TwinAccount {
    fn take(&mut self, _: usize, hold: bool) {
        self.taken += 1;
        self.held += u64::from(hold);
    }

    fn let_go(&mut self, _: usize) {
        self.held -= 1;
    }

    fn announce(&mut self) {
        let Orders { announce, mark, marks_first, .. } = self.orders;
        let TwinShared { completed, held } = &*self.shared;
        if marks_first {
            held.store(self.held, mark);
        }
        completed.store(self.taken, announce);
        if !marks_first {
            held.store(self.held, mark);
        }
    }
}
