//! Where free frames are: a list in each worker, a depot between them.
//!
//! A worker takes from and gives back to its own list (its `Pool`), last in first out, so that the next
//! frame is the one whose lines are still in the cache. At its low mark, when it has fewer frames than
//! are wanted, it fetches magazines of [`MAGAZINE`] frames from the depot up to the middle of its length;
//! at its high mark, when it is full, it brings magazines there down to the middle. A frame given back
//! on another core than it was taken on so costs two shared operations for each half a list, whose
//! magazines move together, and a list that has just crossed a mark is half a length away from both.
//!
//! What is received into takes no list's last frames ([`Pool::may_receive`]): those are for packets that
//! are here already and need another frame, as when they are cut. So a region that runs dry shows as
//! packets that are not received, and not as packets that are lost half way.
//!
//! | memory              | accessed by                                                     |
//! |---------------------|-----------------------------------------------------------------|
//! | `Pool::list`        | its worker                                                      |
//! | `Depot` magazines   | the thread that popped the slot, until it pushes it ([`IndexStack`]) |

use std::cell::UnsafeCell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use manylane_sync::counters::{SharedCount, SharedLevel};
#[cfg(manylane_counted)]
use manylane_sync::primitive::counted::{Access, touch};
use manylane_sync::stack::IndexStack;

use crate::batch::Batch;
use crate::frame::Frame;
use crate::region::{Missing, Region};

/// Frames that change hands at a time.
pub const MAGAZINE: usize = 64;

/// Length of a worker's list when the configuration says nothing.
pub const HOT_LIST_DEFAULT: u32 = 1024;

/// The lengths that a worker's list can have.
pub const HOT_LIST_LENGTHS: RangeInclusive<u32> = 128..=8192;

/// Frames that a list keeps for packets that are here already.
pub const RESERVE: usize = 64;

/// With at least as many free frames in the list, receiving does not look at the depot for more.
const RECEIVE_MIN: usize = MAGAZINE / 2;

/// The free frames of a region that lie in no worker's list.
#[derive(Clone)]
pub struct Depot(Arc<Shared>);

struct Shared {
    region: Region,
    /// Slots that hold a magazine.
    full: IndexStack,
    /// Slots that hold less than one: what was left of lists that ended.
    partial: IndexStack,
    /// Slots that hold none.
    empty: IndexStack,
    slots: Box<[Slot]>,
    /// How many lists this depot has made so far.
    pools: SharedCount,
}

/// At most [`MAGAZINE`] frame indices, on lines that no other slot shares.
#[repr(C, align(64))]
struct Slot {
    indices: UnsafeCell<[u32; MAGAZINE]>,
    /// Frames in the slot. The slot's owner stores the count; the sum over all slots is the depot's number of frames,
    /// so no separate counter needs a cache line.
    len: SharedLevel,
}

#[cfg(manylane_counted)]
impl Slot {
    fn touch(&self) {
        touch(self.indices.get().cast(), size_of::<[u32; MAGAZINE]>(), Access::Write);
    }
}

// SAFETY: only the cells are not `Sync`. A thread reaches a slot only after it popped the slot's index from one of the
// stacks and before it pushes the index again; a stack hands an index out once, and orders the last owner's writes
// before the next owner's reads (`IndexStack`; this use of it is explored by its loom test
// `a_magazine_goes_round_whole`).
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`; nothing in it belongs to a thread.
unsafe impl Send for Shared {}

/// Another depot has the frames of the region, or had them and they are not all home.
#[derive(Debug)]
pub struct FramesTaken;

impl Depot {
    /// Takes all frames of `region`. `pools` is the most lists at a time.
    pub fn new(region: Region, pools: usize) -> Result<Depot, FramesTaken> {
        if !region.take_frames() {
            return Err(FramesTaken);
        }
        let frames = region.frames() as usize;
        // Enough for all frames in full magazines, and a partly filled one for each list that is ending.
        let slots = frames.div_ceil(MAGAZINE) + pools + 1;
        let empty =
            || Slot { indices: UnsafeCell::new([0; MAGAZINE]), len: SharedLevel::default() };
        let shared = Shared {
            full: IndexStack::new(slots as u32),
            partial: IndexStack::new(slots as u32),
            empty: IndexStack::new(slots as u32),
            slots: (0..slots).map(|_| empty()).collect(),
            pools: SharedCount::default(),
            region,
        };
        (0..slots as u32).for_each(|slot| shared.empty.push(slot));
        let depot = Depot(Arc::new(shared));
        // From the end: what is taken first lies near the region's beginning.
        let all: Vec<u32> = (0..frames as u32).rev().collect();
        depot.put(&all);
        Ok(depot)
    }

    /// A new, empty list for one thread, of the default length.
    pub fn pool(&self) -> Pool {
        self.pool_of(HOT_LIST_DEFAULT)
    }

    /// A new, empty list for one thread, of `len` frames, or of the next longer of [`HOT_LIST_LENGTHS`].
    pub fn pool_of(&self, len: u32) -> Pool {
        Pool {
            // For the longest, so that a change of length allocates nothing; and a call may add to a full
            // list what a batch holds, or a refill to one below its middle what a magazine holds.
            list: Vec::with_capacity(*HOT_LIST_LENGTHS.end() as usize + 2 * MAGAZINE),
            len: bounded(len),
            tag: self.0.region.tag(),
            number: self.0.pools.add(1) as u16,
            counts: PoolCounts::default(),
            depot: self.clone(),
        }
    }

    /// The region whose frames these are.
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// How many frames lie here; exact when no list fetches or brings any.
    pub fn frames(&self) -> u64 {
        self.0.slots.iter().map(|slot| u64::from(slot.len.load())).sum()
    }

    /// The frames that are neither in a list nor here, each with its last holder: when all lists have ended, the leaks.
    /// Only debug builds know them, one by one; for other builds see [`Depot::frames`].
    pub fn missing(&self) -> Vec<Missing> {
        self.0.region.missing()
    }

    /// Takes the frames of `magazines` magazines, or of as many as are left, onto the end of `list`. Returns false when
    /// the depot had fewer.
    fn get(&self, list: &mut Vec<u32>, mut magazines: usize) -> bool {
        while magazines > 0 {
            let wanted = magazines.min(AT_ONCE);
            let got = match self.get_from(&self.0.full, list, wanted) {
                0 => self.get_from(&self.0.partial, list, wanted),
                got => got,
            };
            if got == 0 {
                return false;
            }
            magazines -= got;
        }
        true
    }

    /// Takes the frames in up to `wanted` of a stack's slots, [`AT_ONCE`] at most; returns how many slots that were.
    fn get_from(&self, stack: &IndexStack, list: &mut Vec<u32>, wanted: usize) -> usize {
        let mut slots = [0; AT_ONCE];
        let popped = stack.pop_into(&mut slots[..wanted]);
        let popped = &slots[..popped];
        for &slot in popped {
            let slot = &self.0.slots[slot as usize];
            #[cfg(manylane_counted)]
            slot.touch();
            // SAFETY: we popped the slot and push it only below, so no other thread reaches the cell (comment at
            // `Sync`).
            let indices = unsafe { &*slot.indices.get() };
            list.extend_from_slice(&indices[..slot.len.load() as usize]);
            slot.len.set(0);
        }
        self.0.empty.push_all(popped);
        popped.len()
    }

    /// Puts frames in: the first that are no magazine, then magazines.
    fn put(&self, indices: &[u32]) {
        let (rest, full) = indices.split_at(indices.len() % MAGAZINE);
        if !rest.is_empty() {
            self.put_into(&self.0.partial, rest);
        }
        full.chunks(AT_ONCE * MAGAZINE).for_each(|indices| self.put_into(&self.0.full, indices));
    }

    /// Puts at most [`AT_ONCE`] magazines' frames into a stack's slots.
    fn put_into(&self, stack: &IndexStack, indices: &[u32]) {
        let mut slots = [0; AT_ONCE];
        let wanted = indices.len().div_ceil(MAGAZINE);
        let popped = self.0.empty.pop_into(&mut slots[..wanted]);
        let popped = &slots[..popped];
        assert_eq!(popped.len(), wanted, "the depot has a slot for every possible magazine");
        for (&slot, indices) in popped.iter().zip(indices.chunks(MAGAZINE)) {
            let slot = &self.0.slots[slot as usize];
            #[cfg(manylane_counted)]
            slot.touch();
            // SAFETY: as in `get_from`.
            let place = unsafe { &mut *slot.indices.get() };
            place[..indices.len()].copy_from_slice(indices);
            slot.len.set(indices.len() as u32);
        }
        stack.push_all(popped);
    }
}

/// Magazines that one exchange of the depot's stacks moves: half of a list of the usual length.
const AT_ONCE: usize = 8;

impl Drop for Shared {
    fn drop(&mut self) {
        let mut frames = 0;
        while let Some(slot) = self.full.pop().or_else(|| self.partial.pop()) {
            frames += self.slots[slot as usize].len.load() as usize;
        }
        if frames == self.region.frames() as usize {
            self.region.frames_are_home();
        }
    }
}

/// One thread's list of free frames.
pub struct Pool {
    list: Vec<u32>,
    /// The most that stay here.
    len: usize,
    tag: u8,
    /// The list's number, for finding a lost frame.
    number: u16,
    counts: PoolCounts,
    depot: Depot,
}

/// What a list has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Frames taken.
    pub taken: u64,
    /// Of these, frames that did not lie here when they were wanted: the others are hits.
    pub fetched: u64,
    /// Times it fetched magazines.
    pub refills: u64,
    /// Times it brought magazines.
    pub spills: u64,
    /// Times it had too little to receive into, and so had the depot: packets wait, or are lost at their
    /// device.
    pub starved: u64,
}

impl PoolCounts {
    /// Frames that lay here when they were wanted.
    pub fn hits(&self) -> u64 {
        self.taken.saturating_sub(self.fetched) // Fetched to receive into may not be taken yet.
    }
}

impl Pool {
    /// Takes a free frame; `None` when this list and the depot are empty.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if self.list.is_empty() {
            self.refill(1);
        }
        let index = self.list.pop()?;
        self.counts.taken += 1;
        Some(self.depot.region().view().take(index, self.number))
    }

    /// Takes up to `wanted` free frames, as many as the list has and as fit; returns how many.
    #[inline]
    pub fn take_into(&mut self, batch: &mut Batch, wanted: usize) -> usize {
        let wanted = wanted.min(batch.room());
        if self.list.len() < wanted {
            self.refill(wanted);
        }
        let first = self.list.len() - wanted.min(self.list.len());
        let (view, number) = (self.depot.region().view(), self.number);
        let frame = |index| view.take(index, number);
        let taken = batch.extend_from_indices(&self.list[first..], frame);
        self.list.truncate(first);
        self.counts.taken += taken as u64;
        taken
    }

    /// Takes the frames of a packet of `len` bytes: its window begins at `head` in the first, and at the start of the
    /// slot in the others. `None`, and nothing taken, when too few are free.
    ///
    /// # Panics
    ///
    /// When `head` is beyond the slot, or the packet of more frames than a chain can have.
    #[inline]
    pub fn take_packet(&mut self, head: u16, len: usize) -> Option<Frame> {
        let view = self.depot.region().view();
        let frames = view.frames_for(head, len);
        if self.list.len() < frames {
            self.refill(frames);
        }
        let rest = self.list.len().checked_sub(frames)?;
        let packet = self.depot.region().view().chain(&self.list[rest..], head, len, self.number);
        self.list.truncate(rest);
        self.counts.taken += frames as u64;
        Some(packet)
    }

    /// How many of `wanted` frames may be taken now to receive into; 0 when only the last [`RESERVE`] of this list are
    /// left. Call again after taking them: more may be free.
    #[inline]
    pub fn may_receive(&mut self, wanted: usize) -> usize {
        // In the shortest lists, the reserve ends near the middle: they refill later, so as not to look
        // at the depot each time.
        let enough = wanted.min(RECEIVE_MIN).min(self.len / 2 + 1 - RESERVE);
        if self.spare() < enough {
            self.refill_to_receive(enough, wanted);
        }
        wanted.min(self.spare())
    }

    /// As [`Pool::take_packet`], to receive into: leaves this list's last [`RESERVE`] frames.
    #[inline]
    pub fn receive_packet(&mut self, head: u16, len: usize) -> Option<Frame> {
        let frames = self.depot.region().view().frames_for(head, len);
        if self.spare() < frames {
            self.refill_to_receive(frames, frames);
            if self.spare() < frames {
                return None;
            }
        }
        self.take_packet(head, len)
    }

    #[inline(always)]
    fn spare(&self) -> usize {
        self.list.len().saturating_sub(RESERVE)
    }

    /// Gives a packet's frames back.
    #[inline]
    pub fn give_back(&mut self, frame: Frame) {
        if frame.differs(self.tag) != 0 {
            return self.give_back_chain(frame);
        }
        self.depot.region().view().given_back(&frame, self.number);
        self.list.push(frame.into_index());
        if self.list.len() > self.len {
            self.spill();
        }
    }

    /// Gives the frames of all packets of `batch` back.
    #[inline]
    pub fn give_back_all(&mut self, batch: &mut Batch) {
        let (view, number) = (self.depot.region().view(), self.number);
        let leaves = |frame: &Frame| view.given_back(frame, number);
        if !batch.drain_into(self.tag, &mut self.list, leaves) {
            while let Some(frame) = batch.pop() {
                self.give_back(frame);
            }
        }
        if self.list.len() > self.len {
            self.spill();
        }
    }

    /// Cuts the packet of `frame` to at most `len` bytes, and takes back the frames that fall empty.
    pub fn truncate(&mut self, frame: &mut Frame, len: usize) {
        let surplus = self.region().view().cut(frame, len);
        if let Some(surplus) = surplus {
            self.give_back(surplus);
        }
    }

    #[inline(never)]
    fn give_back_chain(&mut self, frame: Frame) {
        let (view, number) = (self.depot.region().view(), self.number);
        view.dissolve(frame, |frame| {
            view.given_back(&frame, number);
            self.list.push(frame.into_index());
        });
        if self.list.len() > self.len {
            self.spill();
        }
    }

    /// The region whose frames these are.
    pub fn region(&self) -> &Region {
        self.depot.region()
    }

    /// How many frames lie in this list.
    pub fn level(&self) -> usize {
        self.list.len()
    }

    /// How many frames may lie in this list.
    pub fn hot_list_len(&self) -> u32 {
        self.len as u32
    }

    /// Changes how many frames may lie in this list, to `len` or the next longer of [`HOT_LIST_LENGTHS`]. Surplus
    /// frames move to the depot.
    pub fn set_hot_list_len(&mut self, len: u32) {
        self.len = bounded(len);
        if self.list.len() > self.len {
            self.spill();
        }
    }

    /// Moves all frames to the depot: the owner takes none from this list for now.
    pub fn empty(&mut self) {
        // Join the remainder with that of a list that was emptied before: so the partly filled magazines are never more
        // than the lists that are emptied at the same time, and the depot's slots suffice.
        if !self.list.len().is_multiple_of(MAGAZINE) {
            self.depot.get_from(&self.depot.0.partial, &mut self.list, 1);
        }
        self.depot.put(&self.list);
        self.list.clear();
    }

    /// What this list has done.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// Fetches magazines up to the middle, because the list has fewer than `wanted` frames: at most half the shortest
    /// length.
    #[cold]
    fn refill(&mut self, wanted: usize) {
        let before = self.list.len();
        self.fetch(self.len / 2);
        let fetched = wanted.min(self.list.len()).saturating_sub(before);
        self.counts.fetched += fetched as u64;
    }

    /// Fetches magazines up to the middle, and until `enough` of the `wanted` frames can be received into.
    #[cold]
    fn refill_to_receive(&mut self, enough: usize, wanted: usize) {
        let before = self.spare();
        self.fetch((self.len / 2).max(RESERVE + enough));
        self.counts.fetched += wanted.min(self.spare()).saturating_sub(before) as u64;
        self.counts.starved += u64::from(self.spare() < enough);
    }

    fn fetch(&mut self, level: usize) {
        self.counts.refills += 1;
        // Those that lists left when they ended are partly filled.
        while let wanted @ 1.. = level.saturating_sub(self.list.len()).div_ceil(MAGAZINE) {
            if !self.depot.get(&mut self.list, wanted) {
                break;
            }
        }
    }

    /// Brings magazines to the depot down to the middle: the oldest, whose lines are cold.
    #[cold]
    fn spill(&mut self) {
        self.counts.spills += 1;
        let surplus = (self.list.len() - self.len / 2) / MAGAZINE * MAGAZINE;
        self.depot.put(&self.list[..surplus]);
        self.list.drain(..surplus);
    }
}

fn bounded(len: u32) -> usize {
    len.clamp(*HOT_LIST_LENGTHS.start(), *HOT_LIST_LENGTHS.end()) as usize
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests;
