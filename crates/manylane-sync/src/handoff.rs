//! Which worker forwards a flow, and when that may change.
//!
//! A worker that receives (the *receiver*) hands frames on by flow *bucket* to the workers that forward
//! them, itself among them, over one ring for each pair. A bucket follows what control wants only when
//! all of it that the old worker was given has left by transmit: "popped" is not enough, since a worker
//! transmits at the end of its turn. After receive flow steering's rule (Linux,
//! Documentation/networking/scaling.rst), with a count of what is *completed* in place of its count of
//! what is dequeued.
//!
//! | side             | type            | does                                                         |
//! |------------------|-----------------|--------------------------------------------------------------|
//! | control          | [`SteeringMap`] | says which worker it wants for a bucket                      |
//! | receiver         | [`Steering`]    | `steer` frames, push them, count each as `handed` or `dropped` |
//! | forwarding worker| [`Completions`] | `take` what it popped, `hold` what it keeps, transmit, then `announce` |
//!
//! The position of a frame is its number in its pair's ring, from 1. *Completed* is the last position up
//! to which every frame has been transmitted, or dropped.
//!
//! | word                     | who writes                        | who reads                        |
//! |--------------------------|-----------------------------------|----------------------------------|
//! | a bucket of the map      | control (`want`)                  | receivers (`steer`)              |
//! | `completed` of a pair    | forwarding worker (`announce`)    | receiver, while a bucket waits   |
//!
//! # Guarantees
//!
//! - **A** Frames of one bucket and one receiver are transmitted in the order in which they were handed
//!   on, whatever control wants meanwhile.
//! - **B** A frame that a worker holds keeps its bucket where it is, also when later ones have left.
//!
//! Not promised: that a bucket moves soon. One that never pauses moves when its old worker has caught up
//! with it; a held frame keeps all buckets of its pair that were used since. So a worker that is to be
//! removed drops what it would hold, and a receiver whose queue changes hands first waits until
//! [`Steering::is_complete`].

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicU16, AtomicU64, Ordering};

/// What control wants: a worker for each bucket.
pub struct SteeringMap(MapReader);

/// A receiver's side of a [`SteeringMap`].
#[derive(Clone)]
pub struct MapReader(Arc<Box<[AtomicU16]>>);

impl SteeringMap {
    /// A map that wants `worker` for all of `buckets` buckets.
    pub fn new(buckets: usize, worker: u16) -> SteeringMap {
        SteeringMap(MapReader(Arc::new((0..buckets).map(|_| AtomicU16::new(worker)).collect())))
    }

    /// Asks every receiver to move `bucket` to `worker`.
    pub fn want(&mut self, bucket: usize, worker: u16) {
        // Relaxed: the word stands for itself. Who sees it late moves late; that the move keeps the
        // order is the receiver's own doing.
        self.0.0[bucket].store(worker, Ordering::Relaxed);
    }

    /// The worker that is wanted for `bucket`.
    pub fn wanted(&self, bucket: usize) -> u16 {
        self.0.wanted(bucket)
    }

    /// A side for a receiver.
    pub fn reader(&self) -> MapReader {
        self.0.clone()
    }
}

impl MapReader {
    #[inline]
    fn wanted(&self, bucket: usize) -> u16 {
        // Relaxed: as in `SteeringMap::want`.
        self.0[bucket].load(Ordering::Relaxed)
    }
}

/// The receiver's end of a pair.
pub struct Outgoing {
    shared: Arc<CacheAligned<AtomicU64>>,
    /// What `shared` was when we last looked.
    completed: u64,
    /// Position of the last frame handed on.
    handed: u64,
}

/// The forwarding worker's end of a pair.
pub struct Incoming {
    shared: Arc<CacheAligned<AtomicU64>>,
    /// What `shared` holds.
    announced: u64,
    /// Position of the last frame taken.
    taken: u64,
    /// The first and the last of the pair's held frames, as nodes, by position.
    oldest: u32,
    newest: u32,
}

/// Both ends of the count of completed frames between a receiver and a forwarding worker, which may be
/// the same thread. The frames themselves go by a [`ring`](crate::ring), or stay in hand.
pub fn pair() -> (Outgoing, Incoming) {
    let shared = Arc::new(CacheAligned(AtomicU64::new(0)));
    let outgoing = Outgoing { shared: shared.clone(), completed: 0, handed: 0 };
    (outgoing, Incoming { shared, announced: 0, taken: 0, oldest: NIL, newest: NIL })
}

impl Outgoing {
    #[inline]
    fn has_completed(&mut self, position: u64) -> bool {
        if self.completed < position {
            // Acquire: pairs with the Release in `Completions::announce`. The old worker's transmit of
            // all frames up to the count happens before whatever we hand to the new worker, whose ring
            // passes that on. Explored by `handoff_a_a_flow_leaves_in_the_order_it_came`.
            self.completed = self.shared.load(Ordering::Acquire);
        }
        self.completed >= position
    }

    /// Frames handed on that are not completed.
    fn outstanding(&mut self) -> u64 {
        self.has_completed(self.handed);
        self.handed - self.completed
    }
}

/// A receiver's steering: where each bucket goes now.
///
/// # Invariants
///
/// 1. `buckets[b].worker` has a pair.
/// 2. Every frame of `b` that was given to another worker than that one is completed.
/// 3. `buckets[b].in_hand` frames were steered to that worker and are neither pushed nor dropped.
pub struct Steering {
    map: MapReader,
    buckets: Box<[Bucket]>,
    pairs: Box<[Option<Outgoing>]>,
}

#[derive(Clone, Copy)]
struct Bucket {
    worker: u16,
    /// Frames that `steer` sent there and of which nothing has been heard yet.
    in_hand: u32,
    /// Position, in that worker's pair, of the last frame of the bucket handed on; 0 for none.
    last: u64,
}

impl Bucket {
    /// A bucket of `worker` with nothing to wait for.
    fn of(worker: u16) -> Bucket {
        Bucket { worker, in_hand: 0, last: 0 }
    }
}

/// A worker that cannot be disconnected yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// How many buckets are still steered there.
    pub buckets: usize,
    /// How many frames handed on have not been completed.
    pub frames: u64,
}

impl Steering {
    /// Steers every bucket to the worker `own`, the receiver itself, until the map is followed.
    /// Workers are numbered below `workers_max`.
    pub fn new(map: MapReader, workers_max: u16, own: u16, pair: Outgoing) -> Steering {
        let buckets = vec![Bucket::of(own); map.0.len()].into();
        let mut pairs: Box<[Option<Outgoing>]> = (0..workers_max).map(|_| None).collect();
        pairs[usize::from(own)] = Some(pair);
        Steering { map, buckets, pairs }
    }

    /// Lets buckets move to `worker`.
    pub fn connect(&mut self, worker: u16, pair: Outgoing) {
        let place = &mut self.pairs[usize::from(worker)];
        assert!(place.is_none(), "worker {worker} is connected already");
        *place = Some(pair);
    }

    /// Ends what [`Steering::connect`] began, once no bucket is steered there and all is completed.
    pub fn disconnect(&mut self, worker: u16) -> Result<(), InUse> {
        let buckets = self.buckets.iter().filter(|bucket| bucket.worker == worker).count();
        let frames = self.pairs[usize::from(worker)].as_mut().map_or(0, Outgoing::outstanding);
        if buckets > 0 || frames > 0 {
            return Err(InUse { buckets, frames });
        }
        self.pairs[usize::from(worker)] = None;
        Ok(())
    }

    /// The worker for a frame of `bucket`: the wanted one if the bucket may move there, else the one it
    /// has. From now on the frame is in hand, and its bucket stays, until [`Steering::handed`] or
    /// [`Steering::dropped`] says what became of it; several may be, so that they are pushed together.
    #[inline]
    #[must_use = "the frame is in hand, and holds its bucket"]
    pub fn steer(&mut self, bucket: usize) -> u16 {
        let wanted = self.map.wanted(bucket);
        if wanted != self.buckets[bucket].worker {
            self.move_to(bucket, wanted);
        }
        let Bucket { worker, in_hand, .. } = &mut self.buckets[bucket];
        *in_hand += 1;
        *worker
    }

    /// Counts a frame of `bucket` that was pushed to the worker `steer` named.
    ///
    /// # Panics
    ///
    /// When none is in hand.
    #[inline]
    pub fn handed(&mut self, bucket: usize) {
        self.dropped(bucket);
        let Bucket { worker, last, .. } = &mut self.buckets[bucket];
        let pair = connected(&mut self.pairs, *worker);
        pair.handed += 1;
        *last = pair.handed;
    }

    /// Forgets a frame of `bucket` that found the ring full. It is given to no other worker.
    ///
    /// # Panics
    ///
    /// When none is in hand.
    #[inline]
    pub fn dropped(&mut self, bucket: usize) {
        let in_hand = &mut self.buckets[bucket].in_hand;
        *in_hand = in_hand.checked_sub(1).expect("a frame is steered before it goes");
    }

    /// Moves every bucket that may move, also those no frame comes for, and says how many wait.
    pub fn follow(&mut self) -> usize {
        let mut waiting = 0;
        for bucket in 0..self.buckets.len() {
            let wanted = self.map.wanted(bucket);
            waiting +=
                usize::from(self.buckets[bucket].worker != wanted && !self.move_to(bucket, wanted));
        }
        waiting
    }

    /// Whether every frame handed to any worker has been completed.
    pub fn is_complete(&mut self) -> bool {
        self.pairs.iter_mut().flatten().all(|pair| pair.outstanding() == 0)
    }

    /// Moves a bucket to another worker, if that one is there and the old one has completed the bucket.
    fn move_to(&mut self, bucket: usize, wanted: u16) -> bool {
        let Bucket { worker, in_hand, last } = self.buckets[bucket];
        let known = self.pairs.get(usize::from(wanted)).is_some_and(Option::is_some);
        let may = known && in_hand == 0 && connected(&mut self.pairs, worker).has_completed(last);
        if may {
            self.buckets[bucket] = Bucket::of(wanted);
        }
        may
    }
}

#[inline]
fn connected(pairs: &mut [Option<Outgoing>], worker: u16) -> &mut Outgoing {
    pairs[usize::from(worker)].as_mut().expect("a bucket's worker is connected: invariant 1")
}

/// A forwarding worker's account of what it took from each receiver.
///
/// Held frames are nodes of one array, linked by position: as many as the worker may hold, and nothing
/// is allocated after `new`.
///
/// # Invariants
///
/// 1. Each node is in exactly one chain: the free one, or that of one pair, from the oldest position to
///    the newest.
/// 2. Each position in a pair's chain is above `announced` and at most `taken`.
pub struct Completions {
    pairs: Box<[Option<Incoming>]>,
    nodes: Box<[Node]>,
    free: u32,
}

struct Node {
    /// [`FREE`] in the free chain.
    receiver: u32,
    position: u64,
    older: u32,
    newer: u32,
}

/// The end of a chain.
const NIL: u32 = u32::MAX;
const FREE: u32 = u32::MAX;

/// A frame that is held, and the watermark with it. Lost, it keeps its pair's buckets for ever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without `let_go` the watermark stays below this frame"]
pub struct Held(u32);

impl Completions {
    /// An account without pairs, for receivers numbered below `receivers_max` and up to `held_max`
    /// held frames.
    pub fn new(receivers_max: u16, held_max: u32) -> Completions {
        let node = |index| {
            let newer = if index + 1 < held_max { index + 1 } else { NIL };
            Node { receiver: FREE, position: 0, older: NIL, newer }
        };
        Completions {
            pairs: (0..receivers_max).map(|_| None).collect(),
            nodes: (0..held_max).map(node).collect(),
            free: if held_max > 0 { 0 } else { NIL },
        }
    }

    /// Begins an account with `receiver`.
    pub fn connect(&mut self, receiver: u16, pair: Incoming) {
        let place = &mut self.pairs[usize::from(receiver)];
        assert!(place.is_none(), "receiver {receiver} is connected already");
        *place = Some(pair);
    }

    /// Ends it. False, and nothing done, while a frame of it is not completed.
    pub fn disconnect(&mut self, receiver: u16) -> bool {
        let place = &mut self.pairs[usize::from(receiver)];
        let done = place.as_ref().is_none_or(|pair| pair.announced == pair.taken);
        if done {
            *place = None;
        }
        done
    }

    /// Counts the next `frames` frames of `receiver`, in the order of its ring, and returns the first's
    /// position. Before the next [`Completions::announce`] each is transmitted, dropped or held.
    #[inline]
    pub fn take(&mut self, receiver: u16, frames: usize) -> u64 {
        let pair = open(&mut self.pairs, u32::from(receiver));
        let first = pair.taken + 1;
        pair.taken += frames as u64;
        first
    }

    /// Keeps the watermark below a frame taken since the last `announce`. `None` when the bound is
    /// reached: then the frame is not held, but dropped. (A frame kept also keeps back all that come
    /// after it, so that a queue in order needs to hold its first only.)
    pub fn hold(&mut self, receiver: u16, position: u64) -> Option<Held> {
        let pair = open(&mut self.pairs, u32::from(receiver));
        assert!(
            pair.announced < position && position <= pair.taken,
            "position {position} is not between {} and {}",
            pair.announced,
            pair.taken
        );
        let index = self.free;
        self.free = self.nodes.get(index as usize)?.newer;
        // Frames are held in the order they were taken, or nearly: no walk, or a short one.
        let (mut older, mut newer) = (pair.newest, NIL);
        while older != NIL && self.nodes[older as usize].position > position {
            (older, newer) = (self.nodes[older as usize].older, older);
        }
        self.nodes[index as usize] = Node { receiver: u32::from(receiver), position, older, newer };
        link(pair, &mut self.nodes, older, index, newer, index);
        Some(Held(index))
    }

    /// Says that a held frame will be transmitted or dropped before the next `announce`.
    pub fn let_go(&mut self, held: Held) {
        let Held(index) = held;
        let Node { receiver, older, newer, .. } = self.nodes[index as usize];
        assert_ne!(receiver, FREE, "it was held by another worker");
        let pair = open(&mut self.pairs, receiver);
        link(pair, &mut self.nodes, older, newer, newer, older);
        self.nodes[index as usize] =
            Node { receiver: FREE, position: 0, older: NIL, newer: self.free };
        self.free = index;
    }

    /// Tells each receiver what is completed. Once a turn, after the transmit flush.
    #[inline]
    pub fn announce(&mut self) {
        for pair in self.pairs.iter_mut().flatten() {
            let completed = match self.nodes.get(pair.oldest as usize) {
                Some(held) => held.position - 1,
                None => pair.taken,
            };
            if completed != pair.announced {
                pair.announced = completed;
                // Release: pairs with the Acquire in `Outgoing::has_completed`. Our transmits are
                // sequenced before this store, so either
                // - the receiver loads first, sees the old count and leaves its buckets with us, or
                // - it loads after, and by the pairing and the other worker's ring our transmits come
                //   before that worker's.
                // Explored by `handoff_a_a_flow_leaves_in_the_order_it_came`.
                pair.shared.store(completed, Ordering::Release);
            }
        }
    }
}

#[inline]
fn open(pairs: &mut [Option<Incoming>], receiver: u32) -> &mut Incoming {
    pairs[receiver as usize].as_mut().expect("frames come from receivers that are connected")
}

/// Makes `after_older` follow `older`, and `before_newer` precede `newer`, at the ends of the chain too.
fn link(
    pair: &mut Incoming,
    nodes: &mut [Node],
    older: u32,
    after_older: u32,
    newer: u32,
    before_newer: u32,
) {
    match nodes.get_mut(older as usize) {
        Some(node) => node.newer = after_older,
        None => pair.oldest = after_older,
    }
    match nodes.get_mut(newer as usize) {
        Some(node) => node.older = before_newer,
        None => pair.newest = before_newer,
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
