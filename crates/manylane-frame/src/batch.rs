//! Frames handled together.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::slice;

use crate::frame::Frame;
use crate::region::{Packet, View};

/// Most frames in a batch, and so in one turn from one source.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] frames, in order.
///
/// # Invariants
///
/// 1. `len <= BATCH_MAX`, and the first `len` places hold frames that the batch owns.
pub struct Batch {
    len: usize,
    /// The length that `frames` reports for the room.
    room: usize,
    frames: [MaybeUninit<Frame>; BATCH_MAX],
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch.
    pub const fn new() -> Batch {
        Batch::with_room(BATCH_MAX)
    }

    /// An empty batch that says it is full with `frames` of them, or [`BATCH_MAX`]: to receive no more.
    pub const fn with_room(frames: usize) -> Batch {
        let room = if frames < BATCH_MAX { frames } else { BATCH_MAX };
        Batch { len: 0, room, frames: [const { MaybeUninit::uninit() }; BATCH_MAX] }
    }

    /// Adds `frame` at the end, or hands it back when the batch is full.
    #[inline(always)]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        match self.frames.get_mut(self.len) {
            Some(place) => {
                place.write(frame);
                self.len += 1; // The place is now filled: invariant 1.
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// Takes the last frame.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Frame> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: by invariant 1 the place held a frame; `len` shrank first, so it is ours alone.
        Some(unsafe { self.frames[self.len].assume_init_read() })
    }

    /// Moves all frames of `other` to the end, if all fit, else none. Returns whether they moved.
    #[inline]
    pub fn append(&mut self, other: &mut Batch) -> bool {
        let (len, more) = (self.len, other.len);
        let Some(places) = self.frames.get_mut(len..len + more) else { return false };
        // The frames of `other` for places without any: invariant 1 of both.
        places.swap_with_slice(&mut other.frames[..more]);
        (self.len, other.len) = (len + more, 0);
        true
    }

    /// The number of frames.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no more fit.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many more fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.room.saturating_sub(self.len)
    }

    /// The frames, in order.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Frame] {
        // SAFETY: by invariant 1 the first `len` places are initialised, and a `MaybeUninit<Frame>` has
        // the layout of a `Frame`.
        unsafe { slice::from_raw_parts(self.frames.as_ptr().cast::<Frame>(), self.len) }
    }

    /// The frames, in order, to change.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [Frame] {
        // SAFETY: as in `as_slice`, and the batch is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.frames.as_mut_ptr().cast::<Frame>(), self.len) }
    }

    /// Whether others follow one of the frames.
    #[inline]
    pub fn has_chains(&self) -> bool {
        // Without a branch, so that it is vectorised.
        self.iter().fold(false, |chained, frame| chained | frame.is_chained())
    }

    /// The frames, in order.
    pub fn iter(&self) -> slice::Iter<'_, Frame> {
        self.as_slice().iter()
    }

    /// The frames, in order, to change.
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Frame> {
        self.as_mut_slice().iter_mut()
    }

    /// Takes all frames out, in order. What the iterator has not given when it is dropped, stays.
    #[inline(always)]
    pub fn drain(&mut self) -> Drain<'_> {
        Drain { next: 0, len: std::mem::take(&mut self.len), batch: ManuallyDrop::new(self) }
    }

    /// Takes all frames out, in order, each with what is at its place of `beside`. When `each` panics, the
    /// frames that it has not got are lost.
    ///
    /// # Panics
    ///
    /// When `beside` is not as long as the batch.
    #[inline(always)]
    pub fn drain_with<T>(&mut self, beside: &[T], mut each: impl FnMut(Frame, &T)) {
        assert_eq!(beside.len(), self.len, "something for each frame");
        let frames = &self.frames[..std::mem::take(&mut self.len)];
        for (place, value) in frames.iter().zip(beside) {
            // SAFETY: by invariant 1 the place held a frame; `len` shrank first, and each is read once.
            each(unsafe { place.assume_init_read() }, value);
        }
    }

    /// Takes all frames out, in order, when `look` has seen the packet of each; what it says goes with the frame.
    /// When one of them panics, the frames that `each` has not got are lost.
    #[inline(always)]
    pub fn drain_packets<T>(
        &mut self,
        region: View<'_>,
        mut look: impl FnMut(Packet<'_>) -> T,
        mut each: impl FnMut(Frame, T),
    ) {
        let places = &self.frames[..std::mem::take(&mut self.len)];
        // SAFETY: as in `as_slice`: by invariant 1 they held frames; `len` shrank first, so they are ours alone.
        let frames =
            unsafe { slice::from_raw_parts(places.as_ptr().cast::<Frame>(), places.len()) };
        for (place, packet) in places.iter().zip(region.packets(frames)) {
            let seen = look(packet);
            // SAFETY: the place held a frame, and each is read once; what was lent of it has ended, since `seen`
            // outlives any packet.
            each(unsafe { place.assume_init_read() }, seen);
        }
    }

    /// Adds frames at the end.
    ///
    /// # Panics
    ///
    /// When not all fit.
    #[inline(always)]
    pub fn extend(&mut self, frames: impl ExactSizeIterator<Item = Frame>) {
        let mut places = self.frames[self.len..][..frames.len()].iter_mut();
        let added = places.len();
        frames.for_each(|frame| {
            places.next().expect("an exact-size iterator keeps its word").write(frame);
        });
        self.len += added - places.len(); // These places were just filled: invariant 1.
    }

    /// Adds the frames with the given indices, as many as fit; returns how many did. `frame` makes their
    /// handles.
    #[inline(always)]
    pub(crate) fn extend_from_indices(
        &mut self,
        indices: &[u32],
        frame: impl Fn(u32) -> Frame,
    ) -> usize {
        let taken = indices.len().min(self.room());
        let places = &mut self.frames[self.len..self.len + taken];
        for (place, &index) in places.iter_mut().zip(indices) {
            place.write(frame(index));
        }
        self.len += taken; // These places were just filled: invariant 1.
        taken
    }

    /// Takes all frames out, to the end of `indices`, calling `leaves` with each; false, and the batch as
    /// it was, when one heads a chain or is of another region than that of `tag`.
    #[inline(always)]
    pub(crate) fn drain_into(
        &mut self,
        tag: u8,
        indices: &mut Vec<u32>,
        leaves: impl Fn(&Frame),
    ) -> bool {
        // In two passes without a branch in either: both are vectorised.
        if Frame::any_differs(self.as_slice(), tag) != 0 {
            return false;
        }
        self.iter().for_each(leaves);
        indices.extend(self.iter().map(Frame::index));
        self.len = 0; // The indices own the frames now; the places are forgotten, not dropped.
        true
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Each is a leak, and counted as one.
        while let Some(frame) = self.pop() {
            drop(frame);
        }
    }
}

/// The frames of a batch, by value. See [`Batch::drain`].
///
/// # Invariants
///
/// 1. The places `next..len` hold frames that the drain owns; the batch's own `len` is 0 meanwhile.
pub struct Drain<'b> {
    batch: ManuallyDrop<&'b mut Batch>,
    next: usize,
    len: usize,
}

impl Iterator for Drain<'_> {
    type Item = Frame;

    #[inline(always)]
    fn next(&mut self) -> Option<Frame> {
        if self.next == self.len {
            return None;
        }
        let place = &self.batch.frames[self.next];
        self.next += 1;
        // SAFETY: invariant 1; `next` moved on first, so the frame is read once.
        Some(unsafe { place.assume_init_read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.next < self.len {
            // Move what is left to the front, where the batch's invariant 1 wants it.
            self.batch.frames[..self.len].rotate_left(self.next);
            self.batch.len = self.len - self.next;
        }
    }
}

/// One item for each of up to [`BATCH_MAX`] frames, in their order. Making an empty list costs nothing.
///
/// # Invariants
///
/// 1. `len <= BATCH_MAX`, and the first `len` places are initialised.
pub struct BatchList<T: Copy> {
    len: usize,
    places: [MaybeUninit<T>; BATCH_MAX],
}

impl<T: Copy> Default for BatchList<T> {
    fn default() -> Self {
        BatchList::new()
    }
}

impl<T: Copy> BatchList<T> {
    /// An empty list.
    #[inline(always)]
    pub const fn new() -> BatchList<T> {
        BatchList { len: 0, places: [const { MaybeUninit::uninit() }; BATCH_MAX] }
    }

    /// Adds `value` at the end.
    ///
    /// # Panics
    ///
    /// When the list already has [`BATCH_MAX`] items.
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        self.places[self.len].write(value);
        self.len += 1; // The place is now filled: invariant 1.
    }

    /// Forgets all values.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The values, in order.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: by invariant 1 the first `len` places are initialised, and a `MaybeUninit<T>` has the
        // layout of a `T`.
        unsafe { slice::from_raw_parts(self.places.as_ptr().cast::<T>(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Depot, Region, RegionConfig};

    #[test]
    fn frames_come_out_in_order_and_the_rest_stays() {
        let region = Region::new(RegionConfig { frames: 80, frame_size: 2048 });
        let depot = Depot::new(region.expect("160 KiB can be mapped"), 1).expect("first taker");
        let mut pool = depot.pool();
        let mut batch = Batch::new();
        assert_eq!(pool.take_into(&mut batch, 100), BATCH_MAX);
        assert!(batch.is_full());
        let order: Vec<u32> = batch.iter().map(Frame::index).collect();
        let extra = pool.take().expect("80 are more than 64");
        let extra = batch.push(extra).expect_err("the batch is full");
        pool.give_back(extra);

        let first: Vec<Frame> = batch.drain().take(3).collect();
        assert_eq!(first.iter().map(Frame::index).collect::<Vec<_>>(), order[..3]);
        assert_eq!(batch.iter().map(Frame::index).collect::<Vec<_>>(), order[3..]);
        first.into_iter().for_each(|frame| pool.give_back(frame));
        let mut frames = Vec::new();
        batch.drain_with(&order[3..], |frame, &index| {
            assert_eq!(frame.index(), index);
            frames.push(frame);
        });
        assert_eq!((batch.len(), batch.room()), (0, BATCH_MAX));

        for (frame, head) in frames.iter_mut().zip(100..) {
            pool.region().set_window(frame, head, head);
        }
        batch.extend(frames.drain(..));
        assert_eq!(batch.iter().map(Frame::index).collect::<Vec<_>>(), order[3..]);
        let (region, mut seen) = (pool.region().clone(), Vec::new());
        batch.drain_packets(
            region.view(),
            |packet| packet.meta.head(),
            |frame, head| {
                assert_eq!(region.meta(&frame).head(), head);
                seen.push(head);
                pool.give_back(frame);
            },
        );
        assert_eq!((batch.len(), seen), (0, (100..100 + 61).collect()));

        let mut batch = Batch::with_room(2);
        assert_eq!(pool.take_into(&mut batch, 100), 2);
        assert!(batch.is_full());
        pool.give_back_all(&mut batch);
    }

    #[test]
    fn a_batch_is_appended_whole_or_not_at_all() {
        let region = Region::new(RegionConfig { frames: 80, frame_size: 2048 });
        let depot = Depot::new(region.expect("160 KiB can be mapped"), 1).expect("first taker");
        let mut pool = depot.pool();
        let (mut batch, mut more) = (Batch::new(), Batch::new());
        assert_eq!((pool.take_into(&mut batch, 40), pool.take_into(&mut more, 24)), (40, 24));
        let order: Vec<u32> = batch.iter().chain(more.iter()).map(Frame::index).collect();
        assert!(batch.append(&mut more) && more.is_empty());
        assert_eq!(batch.iter().map(Frame::index).collect::<Vec<_>>(), order);
        assert!(batch.append(&mut more), "nothing fits everywhere");
        assert_eq!(pool.take_into(&mut more, 1), 1);
        assert!(!batch.append(&mut more), "65 do not fit");
        assert_eq!((batch.len(), more.len()), (64, 1));
        pool.give_back_all(&mut batch);
        pool.give_back_all(&mut more);
    }

    #[test]
    fn a_list_has_what_was_pushed() {
        let mut list = BatchList::new();
        assert!(list.as_slice().is_empty());
        (0..BATCH_MAX).for_each(|value| list.push(value));
        assert!(list.as_slice().iter().copied().eq(0..BATCH_MAX));
        list.clear();
        assert!(list.as_slice().is_empty());
    }
}
