//! The reach to frames' bytes and metadata, borrowed from a region.

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::slice;

#[cfg(manylane_counted)]
use manylane_sync::primitive::counted::{Access, touch};
use manylane_sync::words::{prefetch_line, prefetch_line_to_write};

use super::spread::Spread;
use super::{Layout, Marks, Meta, Region, Sample, Steered, Trace};
use crate::frame::Frame;
use crate::vocabulary::{Checksum, PortId, QueueId};

/// A region, borrowed: the same reach in a few registers. Loops over frames take one, because through a
/// `&Region` each write to a frame's bytes makes the compiler load the region's fields anew.
#[derive(Clone, Copy)]
pub struct View<'r> {
    pub(super) layout: Layout,
    pub(super) region: PhantomData<&'r Region>,
}

/// The packet in one frame, with what is known of it.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    /// What is known of the frame.
    pub meta: &'a Meta,
    /// The bytes in its first frame.
    pub bytes: &'a [u8],
    /// Whether others follow that one.
    pub is_chained: bool,
}

/// The packet in one frame, to change, with what is known of it.
pub struct PacketMut<'a> {
    meta: &'a mut Meta,
    /// The bytes in its first frame, as long as they were when it was borrowed.
    pub bytes: &'a mut [u8],
}

impl PacketMut<'_> {
    /// What is known of the frame.
    #[inline(always)]
    pub fn meta(&self) -> &Meta {
        self.meta
    }

    /// Cuts the bytes in this frame to at most `len`.
    #[inline(always)]
    pub fn truncate(self, len: usize) {
        #[cfg(manylane_counted)]
        touch(std::ptr::from_ref(self.meta).cast(), size_of::<Meta>(), Access::Write);
        self.meta.truncate(len);
    }
}

impl<'r> View<'r> {
    /// The packet bytes in `frame`; without those in frames that follow ([`View::parts`]).
    #[inline(always)]
    pub fn bytes<'a>(self, frame: &'a Frame) -> &'a [u8]
    where
        'r: 'a,
    {
        let meta = self.meta(frame);
        // SAFETY: the conditions of `slice::from_raw_parts`:
        // - Valid for `len` bytes: `meta` has checked that the frame is ours, so by `Frame` invariant 1
        //   its slot is inside the mapping, and by `Meta` invariant 1 the window in its slot. The
        //   region is borrowed for 'r, which is longer than 'a.
        // - Initialised: the kernel hands out zeroed pages, and every writer writes whole bytes.
        // - Not written during 'a: by `Frame` invariant 2 this handle is the slot's only one. The handle is borrowed,
        //   so `bytes_mut` cannot be called, and the frame is not lent, so the kernel cannot write either.
        unsafe {
            slice::from_raw_parts(self.slot(frame).add(meta.head.into()).as_ptr(), meta.len())
        }
    }

    /// The packet bytes in `frame`, to change.
    #[inline(always)]
    pub fn bytes_mut<'a>(self, frame: &'a mut Frame) -> &'a mut [u8]
    where
        'r: 'a,
    {
        let (head, len) = (self.meta(frame).head, self.meta(frame).len());
        // SAFETY: as in `bytes`, and nothing else reads or writes the slot during 'a, since the only handle is borrowed
        // mutably.
        unsafe { slice::from_raw_parts_mut(self.slot(frame).add(head.into()).as_ptr(), len) }
    }

    /// The packets that begin in these frames, in their order, with what is known of each. That the frames are
    /// this region's is looked at once, for all.
    #[inline(always)]
    pub fn packets<'a>(self, frames: &'a [Frame]) -> impl ExactSizeIterator<Item = Packet<'a>>
    where
        'r: 'a,
    {
        self.check_all_ours(frames);
        frames.iter().map(move |frame| {
            self.used(frame);
            // SAFETY: the frame is ours: `check_all_ours` has looked.
            let meta = unsafe { self.known_meta(frame) };
            let slot = self.slot(frame);
            // SAFETY: as in `bytes`.
            let bytes =
                unsafe { slice::from_raw_parts(slot.add(meta.head.into()).as_ptr(), meta.len()) };
            Packet { meta, bytes, is_chained: frame.is_chained() }
        })
    }

    /// As [`View::packets`], to change.
    #[inline(always)]
    pub fn packets_mut<'a>(
        self,
        frames: &'a mut [Frame],
    ) -> impl ExactSizeIterator<Item = PacketMut<'a>>
    where
        'r: 'a,
    {
        self.check_all_ours(frames);
        frames.iter_mut().map(move |frame| {
            self.used(frame);
            let slot = self.slot(frame);
            #[cfg(manylane_counted)]
            self.touch_meta(frame, Access::Read); // Only `truncate` writes.
            // SAFETY: the frame is ours: `check_all_ours` has looked.
            let meta = unsafe { self.meta_place(frame) };
            // SAFETY: as in `bytes_mut`; the metadata lies apart from the slots (`Layout` invariants 1 and
            // 2), so that the two borrows do not meet.
            let bytes = unsafe {
                slice::from_raw_parts_mut(slot.add(meta.head.into()).as_ptr(), meta.len())
            };
            PacketMut { meta, bytes }
        })
    }

    /// Opens a window of `len` bytes in each of these frames, and gives the bytes of each to be written: for ports that
    /// receive by copying. Where the window begins, from [`HEADROOM`](crate::HEADROOM) on, depends on the frame, as far as its slot has
    /// room.
    ///
    /// At the same place of their slots, which are 2048 or 4096 bytes, all headers would lie in two or one of
    /// the 64 sets of a processor's first cache, 8 lines each: a batch would not stay there from one pass to
    /// the next. (A device with a UMEM of aligned chunks has no choice: the kernel takes the chunk of an
    /// address, not the address.)
    ///
    /// # Panics
    ///
    /// When `len` bytes do not fit behind the headroom.
    #[inline(always)]
    pub fn land<'a>(
        self,
        frames: &'a mut [Frame],
        len: u16,
    ) -> impl ExactSizeIterator<Item = &'a mut [u8]>
    where
        'r: 'a,
    {
        let spread = Spread::new(self.layout.frame_size, len);
        self.check_all_ours(frames);
        frames.iter_mut().map(move |frame| {
            self.used(frame);
            let (slot, head) = (self.slot(frame), spread.head(frame.index()));
            // SAFETY: the frame is ours: `check_all_ours` has looked. `Spread` keeps the invariants.
            unsafe { self.open_window(frame, head, len) };
            // SAFETY: as in `bytes_mut`.
            unsafe { slice::from_raw_parts_mut(slot.add(head.into()).as_ptr(), len.into()) }
        })
    }

    /// Writes what is known of the packets in these frames: of all the same.
    #[inline(always)]
    pub fn mark_all(self, frames: &mut [Frame], marks: Marks) {
        self.check_all_ours(frames);
        let word = marks.word().map_or(0, NonZeroU64::get);
        for frame in frames {
            self.used(frame);
            // SAFETY: the frame is ours: `check_all_ours` has looked.
            unsafe { self.mark(frame, marks, word) };
        }
    }

    /// Writes the marks, whose [word](Marks::word) this is, unless they are there from before.
    ///
    /// A store takes the cache line from the core that read it last, whether it changes a bit or not. Frames that
    /// circulate between two workers have the same port and queue in every life, and often the same window: their
    /// metadata then stays in both cores' caches.
    ///
    /// # Safety
    ///
    /// `frame` is of this region: it has its tag.
    #[inline(always)]
    pub(super) unsafe fn mark(self, frame: &mut Frame, marks: Marks, word: u64) {
        // SAFETY: the caller's debt.
        let meta = unsafe { self.known_meta(frame) };
        if word == 0 || meta.word != word {
            // SAFETY: the caller's debt.
            let meta = unsafe { self.known_meta_mut(frame) };
            (meta.marks, meta.word) = (marks, word);
        }
    }

    /// Sets the window, unless it is that from before; see [`View::mark`].
    ///
    /// # Safety
    ///
    /// `frame` is of this region: it has its tag. The window keeps invariant 1 of `Meta`.
    #[inline(always)]
    pub(super) unsafe fn open_window(self, frame: &mut Frame, head: u16, len: u16) {
        // SAFETY: the caller's debt.
        let meta = unsafe { self.known_meta(frame) };
        if (meta.head, meta.len) != (head, len) {
            // SAFETY: the caller's debt.
            let meta = unsafe { self.known_meta_mut(frame) };
            (meta.head, meta.len) = (head, len);
        }
    }

    /// What is known of `frame`.
    #[inline(always)]
    pub fn meta<'a>(self, frame: &'a Frame) -> &'a Meta
    where
        'r: 'a,
    {
        self.check_ours(frame);
        // SAFETY: the frame is ours: just checked.
        unsafe { self.known_meta(frame) }
    }

    /// # Safety
    ///
    /// `frame` is of this region: it has its tag.
    #[inline(always)]
    pub(super) unsafe fn known_meta<'a>(self, frame: &'a Frame) -> &'a Meta
    where
        'r: 'a,
    {
        #[cfg(manylane_counted)]
        self.touch_meta(frame, Access::Read);
        // SAFETY: the frame is ours (the caller's debt, `Layout` invariant 3), so by `Frame` invariant 1 its index is
        // below `frames`, and by `Layout` invariant 2 it has an initialised `Meta` that does not change while the
        // handle is borrowed; the region is borrowed for longer.
        unsafe { self.layout.meta.add(frame.index() as usize).as_ref() }
    }

    /// What is known of `frame` besides its window, to change.
    #[inline(always)]
    pub fn meta_mut<'a>(self, frame: &'a mut Frame) -> &'a mut Marks
    where
        'r: 'a,
    {
        self.whole_meta_mut(frame).marks_mut()
    }

    /// With the window: a caller that changes the window keeps the invariants of `Meta`.
    #[inline(always)]
    pub(super) fn whole_meta_mut<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
    where
        'r: 'a,
    {
        self.check_ours(frame);
        // SAFETY: the frame is ours: just checked.
        unsafe { self.known_meta_mut(frame) }
    }

    /// # Safety
    ///
    /// `frame` is of this region: it has its tag.
    #[inline(always)]
    pub(super) unsafe fn known_meta_mut<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
    where
        'r: 'a,
    {
        #[cfg(manylane_counted)]
        self.touch_meta(frame, Access::Write);
        // SAFETY: the caller's debt.
        unsafe { self.meta_place(frame) }
    }

    /// # Safety
    ///
    /// `frame` is of this region: it has its tag.
    #[inline(always)]
    pub(super) unsafe fn meta_place<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
    where
        'r: 'a,
    {
        // SAFETY: as in `known_meta`, and the only handle is borrowed mutably.
        unsafe { self.layout.meta.add(frame.index() as usize).as_mut() }
    }

    /// Prefetches the metadata of `frame`, and, to be written, the line of its slot with the byte at `head`; without a
    /// look at either, nor whether the frame is this region's.
    #[inline(always)]
    pub fn prefetch_packet(self, frame: &Frame, head: u16) {
        let Layout { base, meta, frame_size, .. } = self.layout;
        let index = frame.index() as usize;
        prefetch_line(meta.as_ptr().wrapping_add(index).cast());
        prefetch_line_to_write(base.as_ptr().wrapping_add(index * frame_size + usize::from(head)));
    }

    /// As `prefetch_packet`, for a packet of `len` bytes where it has [landed](View::land).
    #[inline(always)]
    pub fn prefetch_landed(self, frame: &Frame, len: u16) {
        let head = Spread::new(self.layout.frame_size, len).head(frame.index());
        self.prefetch_packet(frame, head);
    }

    /// Records how a packet that is about to be held arrived. Nothing else changes the record, not even another life of
    /// the frame: code that has not held the frame does not read it.
    #[inline(always)]
    pub fn set_steered(self, frame: &mut Frame, steered: Option<Steered>) {
        let bytes = |Steered { receiver, bucket }| [receiver + 1, bucket];
        self.whole_meta_mut(frame).steered = steered.map_or([0; 2], bytes);
    }

    /// Notes a packet's place in its flow. Nothing else changes it, not even another life of the frame.
    #[inline]
    pub fn set_sample(self, frame: &mut Frame, sample: Sample) {
        self.whole_meta_mut(frame).sample = sample;
    }

    /// Records that the packet is traced, or that it is not. Nothing else changes the record, not even another life of
    /// the frame: the tracer that has set it clears it before the packet ends.
    #[inline]
    pub fn set_trace(self, frame: &mut Frame, trace: Trace) {
        self.whole_meta_mut(frame).trace = trace;
    }

    /// Makes the bytes from `head` to `tail` of the slot the packet's bytes in this frame.
    ///
    /// # Panics
    ///
    /// When `head > tail` or `tail` is beyond the slot.
    #[inline(always)]
    pub fn set_window(self, frame: &mut Frame, head: u16, tail: u16) {
        let frame_size = 1 << self.layout.shift;
        assert!(head <= tail && u32::from(tail) <= frame_size, "window outside its slot");
        self.check_ours(frame);
        // SAFETY: the frame is ours: just checked. The invariant was asserted before.
        unsafe { self.open_window(frame, head, tail - head) };
    }

    /// Writes the origin of a frame: received by `queue` of port `ingress`, or made on its behalf.
    #[inline(always)]
    pub fn set_ingress(
        self,
        frame: &mut Frame,
        ingress: PortId,
        queue: QueueId,
        checksum: Checksum,
    ) {
        let marks = Marks::received(ingress, queue, checksum);
        self.check_ours(frame);
        // SAFETY: the frame is ours: just checked.
        unsafe { self.mark(frame, marks, marks.word().map_or(0, NonZeroU64::get)) };
    }

    /// Cuts the bytes in this frame to at most `len`; a whole packet: [`Pool::truncate`](crate::Pool::truncate).
    #[inline(always)]
    pub fn truncate(self, frame: &mut Frame, len: usize) {
        self.whole_meta_mut(frame).truncate(len);
    }

    /// The metadata changes hands with the frame.
    #[cfg(manylane_counted)]
    pub(super) fn touch_meta(self, frame: &Frame, access: Access) {
        let meta = self.layout.meta.as_ptr().wrapping_add(frame.index() as usize);
        touch(meta.cast(), size_of::<Meta>(), access);
    }

    /// Not `assert_eq`, which takes references and so keeps the whole view in memory.
    #[inline(always)]
    pub(super) fn check_ours(self, frame: &Frame) {
        if frame.tag() != self.layout.tag {
            foreign(frame.index(), frame.tag(), self.layout.tag);
        }
        self.used(frame);
    }

    #[inline(always)]
    pub(super) fn check_all_ours(self, frames: &[Frame]) {
        if Frame::any_foreign(frames, self.layout.tag) != 0 {
            frames.iter().for_each(|frame| self.check_ours(frame));
        }
    }

    #[inline(always)]
    pub(super) fn slot(self, frame: &Frame) -> NonNull<u8> {
        // SAFETY: the callers have checked the tag, so the frame is ours (`Layout` invariant 3).
        unsafe { self.slot_of(frame.index()) }
    }

    /// Where the slot of a frame begins.
    ///
    /// # Safety
    ///
    /// `index` is of a `Frame` of this region, or of a `next` or `last` in its `Meta`.
    #[inline(always)]
    pub(super) unsafe fn slot_of(self, index: u32) -> NonNull<u8> {
        // SAFETY: by `Frame` invariant 1, or `Meta` invariant 2, `index` is below `frames`, so the slot is
        // inside the mapping of `Layout` invariant 1.
        unsafe { self.layout.base.add(index as usize * self.layout.frame_size) }
    }
}

#[cold]
#[inline(never)]
fn foreign(index: u32, tag: u8, ours: u8) -> ! {
    panic!("frame {index} is from another region: of tag {tag}, and this has {ours}");
}
