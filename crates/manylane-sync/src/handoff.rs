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
//! | receiver         | [`Steering`]    | `steer`s frames, counts them as `handed`, pushes them        |
//! | forwarding worker| [`Completions`] | `take`s the frames that it popped, `hold`s those that it keeps, transmits, `note`s that, and `announce`s it when the devices have them |
//!
//! The position of a frame is its number in its pair's ring, from 1. *Completed* is the last position up to which every
//! frame has been transmitted, dropped, or is held. Held frames are reported beside it, by bucket: [`MARKS`] bits for
//! each pair.
//!
//! | word                     | written by                        | read by                          |
//! |--------------------------|-----------------------------------|----------------------------------|
//! | a bucket of the map      | control (`want`)                  | receivers (`steer`)              |
//! | `completed` of a pair    | forwarding worker (`announce`)    | receiver, while a bucket waits   |
//! | `held` of a pair         | forwarding worker (`announce`)    | receiver, behind `completed`     |
//!
//! # Guarantees
//!
//! - **A** Frames of one bucket and one receiver are transmitted in the order in which they were handed
//!   on, whatever control wants meanwhile.
//! - **B** A frame that a worker holds keeps its bucket where it is, also when later ones have left, and
//!   no bucket but those that share its mark: no neighbour that is silent stops all moves.
//!
//! Not promised: that a bucket moves soon. A bucket that never pauses moves when its old worker has caught up with it.
//! So a worker that is to be removed drops the frames that it would hold, and a receiver whose queue moves first waits
//! until [`Steering::has_completed`] all that it had handed on by then; if that takes long, all workers drop what they
//! would hold of it.

mod sample;

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicU16, AtomicU64, Ordering};

pub use sample::OrderSample;

/// Wanted of a bucket: that each receiver forwards it itself.
pub const RECEIVER: u16 = u16::MAX;

/// Marks for what is held. Buckets that are equal modulo this share one.
pub const MARKS: usize = 256;

/// Buckets that are counted together ([`Steering::steers_to`]): those of a port.
pub const GROUP: usize = 256;

/// What control wants: a worker for each bucket.
pub struct SteeringMap(MapReader);

/// A receiver's side of a [`SteeringMap`].
#[derive(Clone)]
pub struct MapReader(Arc<Box<[AtomicU16]>>);

impl SteeringMap {
    /// A map that wants `worker`, or [`RECEIVER`], for all of `buckets` buckets.
    pub fn new(buckets: usize, worker: u16) -> SteeringMap {
        SteeringMap(MapReader(Arc::new((0..buckets).map(|_| AtomicU16::new(worker)).collect())))
    }

    /// Asks every receiver to move `bucket` to `worker`.
    pub fn want(&mut self, bucket: usize, worker: u16) {
        // Relaxed: the word stands for itself. A receiver that sees it late moves the bucket late; that the move keeps
        // the order is the receiver's own doing.
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

/// What both ends of a pair share.
struct Shared {
    completed: CacheAligned<AtomicU64>,
    held: CacheAligned<[AtomicU64; WORDS]>,
}

const WORDS: usize = MARKS / 64;
const _: () = assert!(GROUP == 256, "a bucket is a byte");

/// The receiver's end of a pair.
pub struct Outgoing {
    shared: Arc<Shared>,
    /// What `shared.completed` was when we last looked.
    completed: u64,
    /// Position of the last frame handed on.
    handed: u64,
}

/// The forwarding worker's end of a pair.
pub struct Incoming {
    shared: Arc<Shared>,
    /// What `shared.completed` holds.
    announced: u64,
    /// Position of the last frame taken when that was last noted.
    noted: u64,
    /// Position of the last frame taken.
    taken: u64,
    /// Frames held, by mark.
    held: Box<[u32; MARKS]>,
    /// Which of these were not 0 when that was last noted.
    noted_held: [u64; WORDS],
    /// Whether `held` has come to be 0, or has ceased to be, since `noted_held` was written.
    marks_changed: bool,
    /// Whether `shared.held` is older than `noted_held`.
    owes_marks: bool,
}

/// Both ends of the count of completed frames between a receiver and a forwarding worker, which may be one thread. The
/// frames themselves travel by a [`ring`](crate::ring), or stay in hand.
pub fn pair() -> (Outgoing, Incoming) {
    let shared = Arc::new(Shared {
        completed: CacheAligned(AtomicU64::new(0)),
        held: CacheAligned(std::array::from_fn(|_| AtomicU64::new(0))),
    });
    let outgoing = Outgoing { shared: shared.clone(), completed: 0, handed: 0 };
    let incoming = Incoming {
        shared,
        announced: 0,
        noted: 0,
        taken: 0,
        held: Box::new([0; MARKS]),
        noted_held: [0; WORDS],
        marks_changed: false,
        owes_marks: false,
    };
    (outgoing, incoming)
}

impl Outgoing {
    #[inline]
    fn has_completed(&mut self, position: u64) -> bool {
        if self.completed < position {
            // Acquire: pairs with the Release in `Completions::announce`. The old worker's transmit of
            // all frames up to the count happens before whatever we hand to the new worker, whose ring
            // passes that on. Explored by `handoff_a_a_flow_leaves_in_the_order_it_came`.
            self.completed = self.shared.completed.load(Ordering::Acquire);
        }
        self.completed >= position
    }

    /// Whether the worker holds a frame of `bucket`, of those that it has completed.
    fn holds(&self, bucket: usize) -> bool {
        let mark = bucket % MARKS;
        // Acquire: pairs with the Release stores in `Completions::announce`. By the look at `completed`
        // before, this one sees the marks of that announcement, or later ones. If the bit is set, the
        // bucket stays. If not, every frame held then has left since, and that happens before us.
        // Explored by `handoff_b_a_held_frame_keeps_its_bucket`.
        self.shared.held[mark / 64].load(Ordering::Acquire) >> (mark % 64) & 1 != 0
    }

    fn holds_any(&self) -> bool {
        // Acquire: as in `holds`.
        self.shared.held.iter().any(|word| word.load(Ordering::Acquire) != 0)
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
/// 2. Every frame of `b` that was given to another worker than that one is completed, and not held.
/// 3. `users[b / GROUP][w]` is how many buckets of that group have worker `w`.
pub struct Steering {
    map: MapReader,
    own: u16,
    buckets: Box<[Bucket]>,
    pairs: Box<[Option<Outgoing>]>,
    users: Box<[u16]>,
    /// By group, the position in our own pair of the last frame that was kept without being steered.
    kept: Box<[u64]>,
    /// By worker, how far the batch in hand reaches if all of it is his.
    reach: Box<[u64]>,
}

#[derive(Clone, Copy)]
struct Bucket {
    /// What the map said when it was last applied to the bucket: until the map changes, nothing is to be done.
    applied: u16,
    worker: u16,
    /// Frames handed on, modulo 2^32: a measure of load.
    frames: u32,
    /// The latest possible position, in that worker's pair, of the bucket's last handed-on frame: a frame steered in a
    /// batch has a position inside the batch, and none is beyond the last one handed on. 0 for none.
    last: u64,
}

/// A worker that cannot be disconnected yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// How many buckets are still steered there.
    pub buckets: usize,
    /// How many frames handed on have not been completed.
    pub frames: u64,
}

/// What had been handed on at some time and has not been seen to have left, by worker.
pub struct Handed(Box<[Unsent]>);

#[derive(Clone, Copy)]
struct Unsent {
    position: u64,
    /// Marks that may be of frames up to there.
    held: [u64; WORDS],
}

/// A frame on its way to the worker that its bucket has.
pub struct Steered<'s> {
    bucket: &'s mut Bucket,
    pair: &'s mut Outgoing,
}

/// A batch of frames on their way to the workers that their buckets have.
pub struct SteeredBatch<'s> {
    buckets: &'s mut [Bucket; GROUP],
    reach: &'s [u64],
}

impl SteeredBatch<'_> {
    /// The worker of the next frame, by its bucket.
    #[inline(always)]
    pub fn worker(&mut self, bucket: u8) -> u16 {
        let bucket = &mut self.buckets[usize::from(bucket)];
        bucket.last = self.reach[usize::from(bucket.worker)];
        bucket.frames = bucket.frames.wrapping_add(1);
        bucket.worker
    }
}

impl Steered<'_> {
    /// The worker.
    #[inline]
    pub fn worker(&self) -> u16 {
        self.bucket.worker
    }

    /// Counts the frame as handed on. The caller pushes it to that worker, in the order in which frames are counted, or
    /// keeps it if the worker is the receiver itself; before or after this call.
    #[inline]
    pub fn handed(self) {
        self.pair.handed += 1;
        self.bucket.last = self.pair.handed;
        self.bucket.frames = self.bucket.frames.wrapping_add(1);
    }
}

impl Steering {
    /// Steers every bucket to the worker `own`, the receiver itself, until the map is applied.
    /// Workers are numbered below `workers_max`.
    pub fn new(map: MapReader, workers_max: u16, own: u16, pair: Outgoing) -> Steering {
        let bucket = Bucket { applied: RECEIVER, worker: own, frames: 0, last: 0 };
        let buckets: Box<[Bucket]> = vec![bucket; map.0.len()].into();
        let mut pairs: Box<[Option<Outgoing>]> = (0..workers_max).map(|_| None).collect();
        pairs[usize::from(own)] = Some(pair);
        let groups = buckets.len().div_ceil(GROUP);
        let mut users = vec![0; groups * usize::from(workers_max)];
        for bucket in 0..buckets.len() {
            users[bucket / GROUP * usize::from(workers_max) + usize::from(own)] += 1;
        }
        let (kept, reach) = (vec![0; groups].into(), vec![0; pairs.len()].into());
        Steering { map, own, buckets, pairs, users: users.into(), kept, reach }
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

    /// The worker for a frame of `bucket`: the wanted one if the bucket may move there, else the present one. The frame
    /// keeps the bucket there only once it counts as [`handed`](Steered::handed); until then no other frame can be
    /// steered.
    #[inline]
    pub fn steer(&mut self, bucket: usize) -> Steered<'_> {
        let wanted = self.map.wanted(bucket);
        if wanted != self.buckets[bucket].applied {
            self.move_to(bucket, wanted);
        }
        let bucket = &mut self.buckets[bucket];
        let pair = connected(&mut self.pairs, bucket.worker);
        Steered { bucket, pair }
    }

    /// Begins to steer a batch of at most `frames` frames of one group. Whatever the map wants, each frame is steered
    /// to the present worker of its bucket: for a caller that notices a changed map, and then lets buckets
    /// [`follow`](Steering::follow).
    #[inline(always)]
    pub fn batch(&mut self, group: usize, frames: usize) -> SteeredBatch<'_> {
        for (reach, pair) in self.reach.iter_mut().zip(&self.pairs) {
            *reach = pair.as_ref().map_or(0, |pair| pair.handed) + frames as u64;
        }
        let buckets = &mut self.buckets[group * GROUP..][..GROUP];
        let buckets = buckets.try_into().expect("as many as a group has");
        SteeredBatch { buckets, reach: &self.reach }
    }

    /// Counts `frames` of a batch as handed on to a worker: all that were [steered](SteeredBatch) there. The caller
    /// pushes them next.
    #[inline]
    pub fn handed_all(&mut self, worker: u16, frames: usize) {
        connected(&mut self.pairs, worker).handed += frames as u64;
    }

    /// Counts frames of any buckets of a group that stay with the receiver, where no other worker has one of these
    /// buckets or gets one before they are completed: so they need not be steered one by one.
    #[inline]
    pub fn keep(&mut self, group: usize, frames: usize) {
        let pair = connected(&mut self.pairs, self.own);
        pair.handed += frames as u64;
        self.kept[group] = pair.handed;
    }

    /// Whether the receiver has every bucket of a group, and the map wants it so.
    pub fn is_kept(&self, group: usize) -> bool {
        let buckets = &self.buckets[group * GROUP..][..GROUP];
        let kept = |(at, bucket): (usize, &Bucket)| {
            bucket.worker == self.own && self.map.wanted(group * GROUP + at) == RECEIVER
        };
        buckets.iter().enumerate().all(kept)
    }

    /// Moves every bucket that may move, also buckets without frames, and returns how many wait.
    pub fn follow(&mut self) -> usize {
        let mut waiting = 0;
        for bucket in 0..self.buckets.len() {
            let wanted = self.map.wanted(bucket);
            let follows = self.buckets[bucket].applied == wanted;
            waiting += usize::from(!follows && !self.move_to(bucket, wanted));
        }
        waiting
    }

    /// Whether a bucket of this group waits to move.
    pub fn waits(&self, group: usize) -> bool {
        let mut buckets = group * GROUP..(group + 1) * GROUP;
        buckets.any(|bucket| self.buckets[bucket].applied != self.map.wanted(bucket))
    }

    /// The worker that a bucket has, and the frames of it handed on so far, modulo 2^32.
    pub fn bucket(&self, bucket: usize) -> (u16, u32) {
        let Bucket { worker, frames, .. } = self.buckets[bucket];
        (worker, frames)
    }

    /// Whether a bucket of this group ([`GROUP`] buckets each) has this worker.
    #[inline]
    pub fn steers_to(&self, group: usize, worker: u16) -> bool {
        self.users[group * self.pairs.len() + usize::from(worker)] > 0
    }

    /// Whether every frame handed to any worker has been completed, and none is held.
    pub fn is_complete(&mut self) -> bool {
        self.pairs.iter_mut().flatten().all(|pair| pair.outstanding() == 0 && !pair.holds_any())
    }

    /// What has been handed on by now.
    pub fn handed(&self) -> Handed {
        let of_pair = |pair: &Option<Outgoing>| Unsent {
            position: pair.as_ref().map_or(0, |pair| pair.handed),
            held: [u64::MAX; WORDS],
        };
        Handed(self.pairs.iter().map(of_pair).collect())
    }

    /// Whether that has been completed since, and each mark has been seen clear after that, though later
    /// frames may be held with it now.
    pub fn has_completed(&mut self, Handed(unsent): &mut Handed) -> bool {
        let mut all = true;
        for (pair, Unsent { position, held }) in self.pairs.iter_mut().zip(unsent) {
            let Some(pair) = pair else { continue };
            if !pair.has_completed(*position) {
                all = false;
                continue;
            }
            for (held, word) in held.iter_mut().zip(pair.shared.held.iter()) {
                // Acquire: as in `Outgoing::holds`. After the look at `completed`, or a mark that was set for
                // the last of them might be missed. Explored by
                // `handoff_a_and_b_also_when_the_queue_changes_hands`.
                *held &= word.load(Ordering::Acquire);
                all &= *held == 0;
            }
        }
        all
    }

    /// Moves a bucket to another worker, if that one is there and the old one has completed the bucket.
    #[cold]
    fn move_to(&mut self, bucket: usize, wanted: u16) -> bool {
        let to = if wanted == RECEIVER { self.own } else { wanted };
        let Bucket { worker, last, .. } = self.buckets[bucket];
        if to != worker {
            let known = self.pairs.get(usize::from(to)).is_some_and(Option::is_some);
            let old = connected(&mut self.pairs, worker);
            let kept = if worker == self.own { self.kept[bucket / GROUP] } else { 0 };
            let last = last.min(old.handed).max(kept);
            if !known || !old.has_completed(last) || old.holds(bucket) {
                return false;
            }
            let first = bucket / GROUP * self.pairs.len();
            self.users[first + usize::from(worker)] -= 1;
            self.users[first + usize::from(to)] += 1;
            (self.buckets[bucket].worker, self.buckets[bucket].last) = (to, 0);
        }
        self.buckets[bucket].applied = wanted;
        true
    }
}

#[inline]
fn connected(pairs: &mut [Option<Outgoing>], worker: u16) -> &mut Outgoing {
    pairs[usize::from(worker)].as_mut().expect("a bucket's worker is connected: invariant 1")
}

/// A forwarding worker's account of the frames that it took from each receiver.
///
/// What is held is counted by receiver and mark, in arrays: nothing is allocated after `connect`.
pub struct Completions {
    pairs: Box<[Option<Incoming>]>,
}

impl Completions {
    /// An account without pairs, for receivers numbered below `receivers_max`.
    pub fn new(receivers_max: u16) -> Completions {
        Completions { pairs: (0..receivers_max).map(|_| None).collect() }
    }

    /// Begins an account with `receiver`.
    pub fn connect(&mut self, receiver: u16, pair: Incoming) {
        let place = &mut self.pairs[usize::from(receiver)];
        assert!(place.is_none(), "receiver {receiver} is connected already");
        *place = Some(pair);
    }

    /// Ends it. False, and nothing done, while a frame of it is not completed, or is held.
    pub fn disconnect(&mut self, receiver: u16) -> bool {
        let place = &mut self.pairs[usize::from(receiver)];
        let done = place.as_ref().is_none_or(|pair| {
            pair.announced == pair.taken && pair.held.iter().all(|&frames| frames == 0)
        });
        if done {
            *place = None;
        }
        done
    }

    /// Counts the next `frames` frames of `receiver`, in the order of its ring. Before the next
    /// [`Completions::note`] each is transmitted, dropped or held.
    #[inline]
    pub fn take(&mut self, receiver: u16, frames: usize) {
        open(&mut self.pairs, receiver).taken += frames as u64;
    }

    /// Keeps a bucket where it is, for a frame of it taken since the last `note`, or let go since.
    pub fn hold(&mut self, receiver: u16, bucket: usize) {
        let pair = open(&mut self.pairs, receiver);
        let held = &mut pair.held[bucket % MARKS];
        *held += 1;
        pair.marks_changed |= *held == 1;
    }

    /// Says that a held frame will be transmitted or dropped before the next `note`.
    ///
    /// # Panics
    ///
    /// When none is held with its mark.
    pub fn let_go(&mut self, receiver: u16, bucket: usize) {
        let pair = open(&mut self.pairs, receiver);
        let held = &mut pair.held[bucket % MARKS];
        *held = held.checked_sub(1).expect("a frame is held before it is let go");
        pair.marks_changed |= *held == 0;
    }

    /// Records what is to be announced: once in a turn, after the transmit flush.
    #[inline]
    pub fn note(&mut self) {
        for pair in self.pairs.iter_mut().flatten() {
            pair.noted = pair.taken;
            if std::mem::take(&mut pair.marks_changed) {
                for (word, held) in pair.noted_held.iter_mut().zip(pair.held.chunks(64)) {
                    let bits = held.iter().enumerate();
                    *word = bits.fold(0, |word, (bit, &held)| word | u64::from(held > 0) << bit);
                }
                pair.owes_marks = true;
            }
        }
    }

    /// Tells each receiver what was noted, once the devices have taken everything that was handed to them
    /// by then.
    #[inline]
    pub fn announce(&mut self) {
        for pair in self.pairs.iter_mut().flatten() {
            if std::mem::take(&mut pair.owes_marks) {
                for (shared, &word) in pair.shared.held.iter().zip(&pair.noted_held) {
                    // Release: pairs with the Acquire in `Outgoing::holds`. A receiver that sees a bit gone sees the
                    // transmit of the frames that were held with it. Before the store below: a receiver that sees a
                    // position completed sees the marks that were set for it.
                    shared.store(word, Ordering::Release);
                }
            }
            if pair.noted != pair.announced {
                pair.announced = pair.noted;
                // Release: pairs with the Acquire in `Outgoing::has_completed`. Our transmits are
                // sequenced before this store, so either
                // - the receiver loads first, sees the old count and leaves its buckets with us, or
                // - it loads after, and by the pairing and the other worker's ring our transmits come
                //   before that worker's.
                // Explored by `handoff_a_a_flow_leaves_in_the_order_it_came`.
                pair.shared.completed.store(pair.noted, Ordering::Release);
            }
        }
    }
}

#[inline]
fn open(pairs: &mut [Option<Incoming>], receiver: u16) -> &mut Incoming {
    pairs[usize::from(receiver)].as_mut().expect("frames come from receivers that are connected")
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
