//! Blocks of packets from one writer to one reader: the protocol of packet(7)'s `TPACKET_V3`.
//!
//! Each block has a status word, which says whose turn it is. The writer fills a block of its own and publishes it; the
//! reader borrows the oldest published block, and gives it back. A writer that finds the next block still with the
//! reader does not wait: the writer drops the packet and counts the loss.
//! A slow reader, or a dead one, costs it nothing.
//!
//! | side   | type       | does                                                                 |
//! |--------|------------|----------------------------------------------------------------------|
//! | writer | [`Lane`]   | is shared; hands out one [`Writer`] at a time, for a batch           |
//! | writer | [`Writer`] | takes the `block` to fill, `publish`es it                            |
//! | reader | [`Reader`] | `borrow`s a block, which goes back when the [`Borrowed`] is dropped  |
//! | reader | [`sleep`]  | announces that it sleeps, looks once more, sleeps                    |
//! | other  | [`sleeps`] | whether it does, asked after something was published                 |
//!
//! | word        | written by                | read by                                |
//! |-------------|---------------------------|----------------------------------------|
//! | `status`    | whose turn it is          | both                                   |
//! | `taken`     | every thread that wants to write | the same threads                |
//! | `published` | the writer                | the thread that wakes the reader       |
//! | `sleeps`    | the reader                | the thread that wakes it               |
//!
//! Status words and `sleeps` may lie in memory that another process maps, so the protocol is written
//! over [`Word`]: loom explores, on its own words, the code that runs on those. A reader that writes
//! anything anywhere gets nonsense and nothing else: the writer believes a status word and no more than
//! that, keeps its place in its own memory, and `taken` and `published` never lie in the reader's reach.
//!
//! # Waking a reader in another process
//!
//! The writer must not ring what the reader holds, which could make it wait. So it rings the
//! [`Doorbell`](crate::doorbell::Doorbell) of a thread of its own process, and that thread wakes the
//! reader if it [`sleeps`].
//!
//! | writer                | the thread between              | reader                       |
//! |-----------------------|---------------------------------|------------------------------|
//! | publish               | look at `published`             | `sleeps` = 1                 |
//! | ring (fence, look)    | fence, look at `sleeps`         | fence, look at the blocks    |
//! |                       | announce, fence, look again     | sleep                        |
//!
//! No wake-up is lost: `blocks_d_a_sleeping_reader_is_woken`.
//!
//! # Guarantees
//!
//! - **A** A borrowed block is whole, and not written until it is given back.
//! - **B** What is published is borrowed once, in order, and none is left out.
//! - **C** A lane has one [`Writer`] at a time, which finds the state that the one before it left.
//! - **D** A reader that sleeps by [`sleep`] is woken once a block is published.
//!
//! Each has a loom test of its letter (`blocks_a_...` to `blocks_d_...`).

use crate::primitive::{AtomicU64, Ordering, UnsafeCell, fence, foreign};

/// A word of the protocol, wherever it lies.
pub trait Word: Send + Sync {
    /// Reads it.
    fn load(&self, ordering: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, ordering: Ordering);
    /// Writes 1 if it is 0, in one step, with this ordering; whether it did.
    fn raise(&self, ordering: Ordering) -> bool;
    /// A fence between accesses to words of this kind, by the owner of this one.
    fn fence(&self, ordering: Ordering);
}

macro_rules! word {
    ($atomic:ty, $fence:path) => {
        impl Word for $atomic {
            #[inline(always)]
            #[cfg_attr(manylane_counted, track_caller)]
            fn load(&self, ordering: Ordering) -> u64 {
                <$atomic>::load(self, ordering)
            }

            #[inline(always)]
            #[cfg_attr(manylane_counted, track_caller)]
            fn store(&self, value: u64, ordering: Ordering) {
                <$atomic>::store(self, value, ordering)
            }

            #[inline(always)]
            #[cfg_attr(manylane_counted, track_caller)]
            fn raise(&self, ordering: Ordering) -> bool {
                // Relaxed when it fails: then nothing follows from it.
                self.compare_exchange(0, 1, ordering, Ordering::Relaxed).is_ok()
            }

            #[inline(always)]
            fn fence(&self, ordering: Ordering) {
                $fence(ordering)
            }
        }
    };
}

word!(AtomicU64, fence);
#[cfg(manylane_loom)] // Else they are the same.
word!(foreign::AtomicU64, foreign::fence);
#[cfg(not(manylane_loom))]
const _: fn(AtomicU64) -> foreign::AtomicU64 = |same| same;

/// The memory of the status words of a lane's blocks; the words begin as 0.
pub trait Statuses {
    /// What kind of word they are.
    type Word: Word;

    /// The number of blocks, at least one; always the same.
    fn count(&self) -> u32;

    /// The word of a block below `count`; always the same.
    fn status(&self, block: u32) -> &Self::Word;
}

/// The block is the writer's to fill, as `TP_STATUS_KERNEL`.
const WRITERS: u64 = 0;
/// The block is the reader's, as `TP_STATUS_USER`.
const READERS: u64 = 1;

/// The writing end of a lane of blocks: shared by all threads that may write, one at a time. `S` is the state that a
/// writer leaves for the next: how far the block in work is filled.
///
/// # Invariants
///
/// 1. `taken` is 1 while a [`Writer`] exists; at most one does.
/// 2. Only it reaches into `place`.
pub struct Lane<M: Statuses, S> {
    taken: M::Word,
    published: M::Word,
    place: UnsafeCell<Place<S>>,
    statuses: M,
}

/// Where the writer is.
struct Place<S> {
    /// The block in work, or the one that is filled next.
    block: u32,
    published: u64,
    state: S,
}

// SAFETY: `place` is the only part that is not `Sync`. Only the one writer reaches into it (invariants 1
// and 2), which may be another thread's than the last: `S: Send`.
unsafe impl<M: Statuses + Sync, S: Send> Sync for Lane<M, S> {}

impl<M: Statuses, S> Lane<M, S> {
    /// A lane without data. `taken` and `published` are words that are 0 and used for nothing else.
    pub fn new(statuses: M, taken: M::Word, published: M::Word, state: S) -> Lane<M, S> {
        let place = UnsafeCell::new(Place { block: 0, published: 0, state });
        Lane { taken, published, place, statuses }
    }

    /// The right to write, until it is dropped. `None` while another thread has it.
    #[inline]
    pub fn writer(&self) -> Option<Writer<'_, M, S>> {
        // Acquire: pairs with the Release in `Writer::drop`, so that we find `place` as the last writer
        // left it. In one step: of two that come at once, one sees the other's 1.
        // Explored by `blocks_c_one_writer_at_a_time`.
        self.taken.raise(Ordering::Acquire).then(|| Writer(self))
    }

    /// How many blocks were ever published. For the thread that wakes the reader: when this has grown, call [`sleeps`].
    #[inline]
    pub fn published(&self) -> u64 {
        // Relaxed: for what was published before, the fence in `sleeps` makes an Acquire of it.
        self.published.load(Ordering::Relaxed)
    }

    /// The lane and its reader as new, `state` included: every block is the writer's. What was published
    /// and not borrowed is gone.
    pub fn reset(&mut self, reader: &mut Reader<M>, state: S) {
        for block in 0..self.statuses.count() {
            let status = self.statuses.status(block);
            // Relaxed, both: we are both sides. A thread that gets one of them later gets it in order.
            if status.load(Ordering::Relaxed) != WRITERS {
                status.store(WRITERS, Ordering::Relaxed);
            }
        }
        reader.next = 0;
        // Relaxed, both: as above. No writer is alive, though one may have been forgotten.
        self.taken.store(0, Ordering::Relaxed);
        self.published.store(0, Ordering::Relaxed);
        // SAFETY: the pointer comes from the cell, and no other thread uses it: the lane is ours alone.
        self.place.with_mut(|place| unsafe { *place = Place { block: 0, published: 0, state } });
    }

    /// Where the status words lie.
    #[inline]
    pub fn statuses(&self) -> &M {
        &self.statuses
    }
}

/// The right to write to a [`Lane`].
pub struct Writer<'a, M: Statuses, S>(&'a Lane<M, S>);

impl<M: Statuses, S> Writer<'_, M, S> {
    /// What the last writer left.
    #[inline(always)]
    pub fn state(&mut self) -> &mut S {
        &mut self.place().state
    }

    /// The block to fill, if it is ours: the same one until it is published. With `None` the reader
    /// still has it.
    #[inline]
    pub fn block(&mut self) -> Option<u32> {
        let block = self.place().block;
        // Acquire: pairs with the Release in `Borrowed::drop`: what the reader read there it has read
        // before we write. Explored by `blocks_a_a_borrowed_block_is_whole`.
        (self.0.statuses.status(block).load(Ordering::Acquire) == WRITERS).then_some(block)
    }

    /// Whether the block after the one in work is ours, too.
    #[inline]
    pub fn has_another(&mut self) -> bool {
        let another = after(self.place().block, self.0.statuses.count());
        // Relaxed: a look ahead. `block` orders what is done with it.
        self.0.statuses.status(another).load(Ordering::Relaxed) == WRITERS
    }

    /// Gives the block in work to the reader. To be called after [`block`](Self::block) has said that it
    /// is ours.
    #[inline]
    pub fn publish(&mut self) {
        let lane = self.0;
        let place = self.place();
        // Release: pairs with the Acquire in `Reader::borrow`: a reader that sees its turn sees the
        // block as we left it. Explored by `blocks_a_a_borrowed_block_is_whole`.
        lane.statuses.status(place.block).store(READERS, Ordering::Release);
        place.block = after(place.block, lane.statuses.count());
        place.published += 1;
        // Release: pairs with the look in `Lane::published`, and the fence in `sleeps` after it: a thread that sees
        // this count and then no sleeper has the status before that fence, as the argument in `sleep` requires. (The
        // language allows a lost wake-up with a Relaxed here; loom does not find it.)
        lane.published.store(place.published, Ordering::Release);
    }

    #[inline(always)]
    fn place(&mut self) -> &mut Place<S> {
        // SAFETY: the pointer comes from the cell, which lives as long as the lane; we are the one writer
        // (invariant 1 of `Lane`), and `&mut self` gives out one reference at a time.
        self.0.place.with_mut(|place| unsafe { &mut *place })
    }
}

impl<M: Statuses, S> Drop for Writer<'_, M, S> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Lane::writer`.
        self.0.taken.store(0, Ordering::Release);
    }
}

/// The reading end of a lane of blocks.
pub struct Reader<M: Statuses> {
    statuses: M,
    next: u32,
}

impl<M: Statuses> Reader<M> {
    /// The reader of a lane that has had no reader before. A lane has one reader.
    pub fn new(statuses: M) -> Reader<M> {
        Reader { statuses, next: 0 }
    }

    /// The oldest published block.
    #[inline]
    pub fn borrow(&mut self) -> Option<Borrowed<'_, M>> {
        // Lazily: a `Borrowed` that is dropped gives back.
        self.is_waiting().then(|| Borrowed(self))
    }

    /// Whether a block can be borrowed.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        // Acquire: pairs with the Release in `Writer::publish`.
        self.statuses.status(self.next).load(Ordering::Acquire) == READERS
    }

    /// Where the status words lie.
    #[inline]
    pub fn statuses(&self) -> &M {
        &self.statuses
    }
}

/// A block that is the reader's. Given back when this is dropped.
pub struct Borrowed<'a, M: Statuses>(&'a mut Reader<M>);

impl<M: Statuses> Borrowed<'_, M> {
    /// Which one.
    #[inline]
    pub fn block(&self) -> u32 {
        self.0.next
    }

    /// Where the status words lie.
    #[inline]
    pub fn statuses(&self) -> &M {
        &self.0.statuses
    }
}

impl<M: Statuses> Drop for Borrowed<'_, M> {
    #[inline]
    fn drop(&mut self) {
        let Reader { statuses, next } = &mut *self.0;
        // Release: pairs with the Acquire in `Writer::block`.
        statuses.status(*next).store(WRITERS, Ordering::Release);
        *next = after(*next, statuses.count());
    }
}

#[inline]
fn after(block: u32, count: u32) -> u32 {
    if block + 1 == count { 0 } else { block + 1 }
}

/// For the reader: sleeps by `wait`, unless `has_work` says that a block is waiting after all. `None`
/// when it did not sleep.
pub fn sleep<W: Word, R>(
    sleeps: &W,
    has_work: impl FnOnce() -> bool,
    wait: impl FnOnce() -> R,
) -> Option<R> {
    // Relaxed: the fence orders it.
    sleeps.store(1, Ordering::Relaxed);
    // SeqCst fence, partner of the one in the function `sleeps`:
    // - if this one is first, the look at `sleeps` after that one sees it, and we are woken;
    // - if that one is first, we see what was published before it.
    // Explored by `blocks_d_a_sleeping_reader_is_woken`.
    sleeps.fence(Ordering::SeqCst);
    let slept = if has_work() { None } else { Some(wait()) };
    // Relaxed: a thread that still sees a 1 wakes us once too often.
    sleeps.store(0, Ordering::Relaxed);
    slept
}

/// For the thread that wakes the reader: whether the reader sleeps, or is about to. Call it after publishing, or after
/// [`Lane::published`] has grown.
#[inline]
pub fn sleeps<W: Word>(sleeps: &W) -> bool {
    // SeqCst fence: partner and the two cases are at the fence in `sleep`. What was published before this
    // is what we published, or what a look at `published` has shown us: after it, the fence is an Acquire
    // too.
    sleeps.fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence. Not 0 rather than 1: a reader may write what it likes.
    sleeps.load(Ordering::Relaxed) != 0
}
