//! `handoff`, when the receiver steers whole batches: a flow leaves in the order it came here too.
//!
//! The receiver does what a worker's hand-off does: buckets `follow` the map, then a batch of a group that `is_kept`
//! is kept, and any other is parted. The models are of the crate's own types; the mutants are of this caller.

use loom::sync::Arc;
use loom::thread;
use manylane_sync::handoff::{Completions, GROUP, Outgoing, RECEIVER, Steering, SteeringMap, pair};
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Seen, Watched, explore};

/// A bucket moves away under a kept frame and a batch, and back, or it waits, and moves later.
#[test]
fn handoff_a_a_flow_leaves_in_order_by_batches_too() {
    explore("handoff_a, batches", None, || batches(Caller::Right));
    for seen in [&PARTED, &WAITED, &RETURNED, &LATE] {
        seen.assert();
    }
}

static PARTED: Seen = Seen::new("a batch went to two workers");
static WAITED: Seen = Seen::new("the bucket had to wait");
static RETURNED: Seen = Seen::new("the bucket came back, and its group was kept again");
static LATE: Seen = Seen::new("the bucket moved from behind a batch");

macro_rules! mutant {
    ($name:ident, $caller:expr) => {
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            explore(stringify!($name), None, || batches($caller));
        }
    };
}

mutant!(
    mutant_a_kept_frame_that_is_counted_without_its_group_is_overtaken,
    Caller::HandsWhatIsKept
);
mutant!(mutant_a_batch_that_is_begun_too_small_is_overtaken, Caller::BeginsTooSmall);
mutant!(mutant_a_batch_that_is_not_counted_is_overtaken, Caller::CountsNoBatch);

/// What a receiver does with a batch.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Right,
    /// Counts a kept frame by `handed_all`, in place of `keep`.
    HandsWhatIsKept,
    /// Begins a batch of one frame for any number.
    BeginsTooSmall,
    /// Leaves `handed_all` out.
    CountsNoBatch,
}

/// The buckets: a flow each.
const MOVES: u8 = 0;
const STAYS: u8 = 1;

/// A flow, and the number of its frame.
type Frame = (u8, u32);

/// A receiver keeps a frame of `MOVES`, then has a batch of both flows, then a frame of `MOVES`; control wants that
/// bucket at worker 1, and back once it is there. Each worker takes two turns.
fn batches(caller: Caller) {
    let wires = Arc::new([Watched::new(0), Watched::new(0)]);
    let map = SteeringMap::new(GROUP, RECEIVER);
    let mut ends = Vec::new();
    let threads = [(); 2].map(|()| {
        let (outgoing, incoming) = pair();
        let (producer, consumer) = ring(4);
        ends.push((outgoing, producer));
        let mut account = Completions::new(1);
        account.connect(0, incoming);
        let mut worker = Worker { account, arrivals: consumer, wires: wires.clone() };
        thread::spawn(move || {
            worker.turn();
            worker.turn();
            worker
        })
    });
    let (outgoing, rings): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut receiver = Receiver::new(map, outgoing, rings, caller);
    assert!(receiver.hand_off(&[(MOVES, 1)]), "no bucket has left");
    receiver.map.want(MOVES.into(), 1);
    receiver.hand_off(&[(STAYS, 1), (MOVES, 2)]);
    let (before, _) = receiver.steering.bucket(MOVES.into());
    if before == 1 {
        receiver.map.want(MOVES.into(), RECEIVER);
        PARTED.note();
    } else {
        WAITED.note();
    }
    let kept = receiver.hand_off(&[(MOVES, 3)]);
    let (after, _) = receiver.steering.bucket(MOVES.into());
    match (before, after) {
        (1, 0) if kept => RETURNED.note(),
        (0, 1) => LATE.note(),
        _ => {}
    }
    for thread in threads {
        let mut worker = thread.join().expect("a worker does not panic");
        worker.turn();
        worker.turn();
    }
    assert_eq!(wires.each_ref().map(Watched::read), [3, 1], "frames were lost");
    if caller == Caller::Right {
        assert!(receiver.steering.is_complete(), "a count differs from what was pushed");
        assert_eq!(receiver.steering.follow(), 0, "a bucket waits for a frame that never was");
    }
}

/// Receiver 0, whose own frames worker 0 takes.
struct Receiver {
    map: SteeringMap,
    steering: Steering,
    rings: Vec<Producer<Frame>>,
    caller: Caller,
}

impl Receiver {
    fn new(
        map: SteeringMap,
        outgoing: Vec<Outgoing>,
        rings: Vec<Producer<Frame>>,
        caller: Caller,
    ) -> Receiver {
        let [own, other] = outgoing.try_into().ok().expect("there are two workers");
        let mut steering = Steering::new(map.reader(), 2, 0, own);
        steering.connect(1, other);
        Receiver { map, steering, rings, caller }
    }

    /// Hands a batch on, and says whether it was kept.
    fn hand_off(&mut self, batch: &[Frame]) -> bool {
        self.steering.follow();
        if self.steering.is_kept(0) {
            if self.caller == Caller::HandsWhatIsKept {
                self.steering.handed_all(0, batch.len());
            } else {
                self.steering.keep(0, batch.len());
            }
            push(&mut self.rings[0], batch);
            return true;
        }
        let frames = if self.caller == Caller::BeginsTooSmall { 1 } else { batch.len() };
        let mut steered = self.steering.batch(0, frames);
        let mut staged = [Vec::new(), Vec::new()];
        for &frame in batch {
            staged[usize::from(steered.worker(frame.0))].push(frame);
        }
        for (worker, frames) in staged.iter().enumerate().filter(|(_, frames)| !frames.is_empty()) {
            if self.caller != Caller::CountsNoBatch {
                self.steering.handed_all(worker as u16, frames.len());
            }
            push(&mut self.rings[worker], frames);
        }
        false
    }
}

fn push(ring: &mut Producer<Frame>, frames: &[Frame]) {
    for &frame in frames {
        ring.push(frame).expect("a ring has room for all");
    }
    ring.submit();
}

struct Worker {
    account: Completions,
    arrivals: Consumer<Frame>,
    wires: Arc<[Watched; 2]>,
}

impl Worker {
    /// Takes at most two of the waiting frames, so that a batch may be parted, transmits them, and says so.
    fn turn(&mut self) {
        let frames: Vec<Frame> = self.arrivals.pop_up_to(2).collect();
        self.arrivals.release();
        self.account.take(0, frames.len());
        for (flow, frame) in frames {
            let wire = &self.wires[usize::from(flow)];
            let last = wire.read();
            assert!(frame > last, "frame {frame} overtook {last}");
            wire.write(frame);
        }
        self.account.note();
        self.account.announce();
    }
}
