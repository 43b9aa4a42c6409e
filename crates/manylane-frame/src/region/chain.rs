//! Packets larger than a frame: a first frame, which has the handle, and others that follow it.
//!
//! ```text
//! Frame ──> first frame ──next──> part ──next──> part        one packet, one owner
//!           marks, following      window         window
//! ```
//!
//! A chain travels as a frame does: the handle of its first frame stands for all, and a bit in the handle says that
//! others follow, so the fast path of single frames never looks. Bytes are reached part by part, in order; nothing is
//! copied to put a packet together.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use super::{Meta, View};
use crate::frame::Frame;

/// Most frames of a packet: 64 KiB with the least a device puts in one, and then some.
pub const CHAIN_MAX: usize = 64;

impl<'r> View<'r> {
    /// How many frames a packet of `len` bytes takes whose first window begins at `head`.
    ///
    /// # Panics
    ///
    /// When `head` is beyond the slot, or they are more than [`CHAIN_MAX`].
    #[inline]
    pub(crate) fn frames_for(self, head: u16, len: usize) -> usize {
        let frame_size = 1 << self.layout.shift;
        assert!(usize::from(head) <= frame_size, "window outside its slot");
        let frames = (usize::from(head) + len).div_ceil(frame_size).max(1);
        assert!(frames <= CHAIN_MAX, "{len} bytes are more than a chain holds");
        frames
    }

    /// Makes a packet of free frames, which are now its own: the last of `indices` first.
    /// Their number is that of [`View::frames_for`]; `pool` is the list that they are taken from.
    #[inline]
    pub(crate) fn chain(self, indices: &[u32], head: u16, len: usize, pool: u16) -> Frame {
        let frame_size = 1 << self.layout.shift;
        let (&first, parts) = indices.split_last().expect("a packet has a frame");
        let mut frame = self.take(first, pool);
        let in_first = len.min(frame_size - usize::from(head));
        self.set_window(&mut frame, head, head + in_first as u16); // A slot's bytes at most.
        let Some(&second) = parts.last() else { return frame };
        let mut left = len - in_first;
        let meta = self.whole_meta_mut(&mut frame);
        // Invariants 2 and 3 of `Meta`: the parts' handles end below, each named by the one before.
        (meta.next, meta.last) = (second + 1, parts[0]);
        (meta.following, meta.following_len) = (parts.len() as u8, left as u32);
        frame.set_chained(true);
        let mut after = parts.iter().rev().skip(1).map(|index| index + 1);
        for &index in parts.iter().rev() {
            let mut part = self.take(index, pool);
            let bytes = left.min(frame_size);
            let meta = self.whole_meta_mut(&mut part);
            (meta.head, meta.len) = (0, bytes as u16); // Invariant 1: at most the slot's bytes.
            meta.next = after.next().unwrap_or(0);
            meta.marks_mut().later = true;
            self.joined(&part, first);
            part.into_index();
            left -= bytes;
        }
        frame
    }

    /// Adds `part`, a single frame with its window set, to the end of the packet that `frame` begins.
    /// Hands it back when the packet has [`CHAIN_MAX`] frames.
    ///
    /// # Panics
    ///
    /// When other frames follow `part`.
    #[inline]
    pub fn append(self, frame: &mut Frame, mut part: Frame) -> Result<(), Frame> {
        assert!(!part.is_chained(), "a part is a single frame");
        let first = frame.index();
        let meta = self.whole_meta_mut(frame);
        if meta.frames() == CHAIN_MAX {
            return Err(part);
        }
        let part_meta = self.whole_meta_mut(&mut part);
        part_meta.marks_mut().later = true;
        let len = part_meta.len() as u32; // Of one frame.
        self.joined(&part, first);
        let index = part.into_index();
        // Invariants 2 and 3 of `Meta`: the part's handle has just ended, so its index is ours to give to
        // the last of the chain. The part itself was single: its own `next` is 0.
        if meta.following == 0 {
            meta.next = index + 1;
        } else {
            // SAFETY: `last` is of another frame than the first, since some follow, and in this chain (`Meta` invariant
            // 3), which is borrowed mutably with its frame: nothing else reaches it.
            unsafe { (*self.meta_of(meta.last).as_ptr()).next = index + 1 };
        }
        meta.last = index;
        meta.following += 1; // Below CHAIN_MAX.
        meta.following_len += len; // At most CHAIN_MAX frames' bytes.
        frame.set_chained(true);
        Ok(())
    }

    /// Takes a packet apart: its first frame, single, and what followed it, if anything did. The marks
    /// stay with the first.
    #[inline]
    pub fn split(self, mut frame: Frame) -> (Frame, Option<Frame>) {
        let rest = self.split_after(&mut frame);
        (frame, rest)
    }

    /// The parts of the packet, in order, the bytes in its first frame first.
    pub fn parts<'a>(self, frame: &'a Frame) -> Parts<'a>
    where
        'r: 'a,
    {
        self.check_ours(frame);
        Parts { view: self, next: frame.index() + 1, frame: PhantomData }
    }

    /// The parts of the packet, in order, to change.
    pub fn parts_mut<'a>(self, frame: &'a mut Frame) -> PartsMut<'a>
    where
        'r: 'a,
    {
        self.check_ours(frame);
        PartsMut { view: self, next: frame.index() + 1, frame: PhantomData }
    }

    /// Copies the packet's bytes from `offset` on into `to`; returns how many it copied.
    pub fn copy_to(self, frame: &Frame, mut offset: usize, to: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in self.parts(frame) {
            let from = part.get(offset..).unwrap_or_default();
            offset = offset.saturating_sub(part.len());
            let len = from.len().min(to.len() - copied);
            to[copied..copied + len].copy_from_slice(&from[..len]);
            copied += len;
            if copied == to.len() {
                break;
            }
        }
        copied
    }

    /// Cuts the packet to at most `len` bytes, and hands out the frames that fall empty; the first stays.
    pub(crate) fn cut(self, frame: &mut Frame, len: usize) -> Option<Frame> {
        let mut rest = self.split_after(frame);
        let mut left = len.saturating_sub(self.meta(frame).len());
        self.truncate(frame, len);
        while left > 0 {
            let (mut part, more) = self.split(rest?);
            self.truncate(&mut part, left);
            left -= self.meta(&part).len();
            self.append(frame, part).expect("there were as many before");
            rest = more;
        }
        rest
    }

    /// Ends the packet's handle; `leaves` gets each of its frames, single, first to last.
    #[inline]
    pub(crate) fn dissolve(self, frame: Frame, mut leaves: impl FnMut(Frame)) {
        let mut frame = frame;
        frame.set_chained(false);
        let meta = self.whole_meta_mut(&mut frame);
        let mut next = meta.next;
        (meta.next, meta.last, meta.following, meta.following_len) = (0, 0, 0, 0);
        leaves(frame);
        while let Some(index) = next.checked_sub(1) {
            // As in `split_after`: by `Meta` invariant 2 the index was the packet's to give.
            let mut part = self.parted(index);
            next = std::mem::take(&mut self.whole_meta_mut(&mut part).next);
            leaves(part);
        }
    }

    /// Takes what follows `frame` off it.
    #[inline]
    fn split_after(self, frame: &mut Frame) -> Option<Frame> {
        if !frame.is_chained() {
            self.check_ours(frame);
            return None;
        }
        let meta = self.whole_meta_mut(frame);
        let (index, last) = (meta.next - 1, meta.last);
        let (following, following_len) = (meta.following - 1, meta.following_len);
        (meta.next, meta.last, meta.following, meta.following_len) = (0, 0, 0, 0);
        frame.set_chained(false);
        // `Frame` invariants 1 and 2: by `Meta` invariant 2 the index was this frame's to give, and it no
        // longer has it.
        let mut rest = self.parted(index);
        let meta = self.whole_meta_mut(&mut rest);
        if following > 0 {
            (meta.last, meta.following) = (last, following);
            meta.following_len = following_len - meta.len() as u32;
            rest.set_chained(true);
        }
        Some(rest)
    }

    /// The metadata of a frame by its number.
    ///
    /// # Safety
    ///
    /// `index` is of a `Frame` of this region, or of a `next` or `last` in its `Meta`.
    unsafe fn meta_of(self, index: u32) -> NonNull<Meta> {
        debug_assert!(index < self.layout.frames);
        // SAFETY: by `Frame` invariant 1, or `Meta` invariant 2, `index` is below `frames`, the length of
        // the array (`Layout` invariant 2).
        unsafe { self.layout.meta.add(index as usize) }
    }
}

/// The parts of a packet, in order. See [`View::parts`].
pub struct Parts<'a> {
    view: View<'a>,
    /// 1 + the index of the next frame; 0 at the end.
    next: u32,
    frame: PhantomData<&'a Frame>,
}

/// The parts of a packet, in order, to change. See [`View::parts_mut`].
pub struct PartsMut<'a> {
    view: View<'a>,
    /// As in [`Parts`].
    next: u32,
    frame: PhantomData<&'a mut Frame>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let index = self.next.checked_sub(1)?;
        // SAFETY: the index is the borrowed frame's, or a `next` that it leads to (`Meta` invariant 2).
        let meta = unsafe { self.view.meta_of(index) };
        // SAFETY: the metadata belongs to the frame, which is borrowed for 'a, so it does not change.
        let meta = unsafe { meta.as_ref() };
        self.next = meta.next;
        let head = meta.head.into();
        // SAFETY: as in `View::bytes`: the slot is inside the mapping, the window inside the slot, and the
        // bytes are those of the borrowed frame or of one that has no handle but through it.
        Some(unsafe {
            slice::from_raw_parts(self.view.slot_of(index).add(head).as_ptr(), meta.len())
        })
    }
}

impl<'a> Iterator for PartsMut<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let index = self.next.checked_sub(1)?;
        // SAFETY: as in `Parts`.
        let meta = unsafe { self.view.meta_of(index) };
        // SAFETY: as in `Parts`; the frame is borrowed mutably, and we only read.
        let meta = unsafe { meta.as_ref() };
        self.next = meta.next;
        let head = meta.head.into();
        // SAFETY: as in `Parts`; the frame is borrowed mutably, and each part is given out once, since a
        // chain has no loop (`Meta` invariant 2: each has one place).
        Some(unsafe {
            slice::from_raw_parts_mut(self.view.slot_of(index).add(head).as_ptr(), meta.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::vocabulary::{Checksum, PortId, QueueId};
    use crate::{Batch, CHAIN_MAX, Depot, Frame, Pool, Region, RegionConfig};

    #[test]
    fn a_packet_in_parts_reads_as_it_was_written() {
        let mut pool = pool(8);
        let frame = packet(&mut pool, &[b"first", b"", b"second", b"third"]);
        let view = pool.region().view();
        assert!(frame.is_chained());
        assert_eq!(whole(&pool, &frame), b"firstsecondthird");
        assert_eq!((view.meta(&frame).packet_len(), view.meta(&frame).frames()), (16, 4));
        assert_eq!((view.meta(&frame).len(), view.bytes(&frame)), (5, &b"first"[..]));
        let mut some = [0; 8];
        assert_eq!(view.copy_to(&frame, 3, &mut some), 8);
        assert_eq!(&some, b"stsecond");
        assert_eq!(view.copy_to(&frame, 12, &mut some), 4);
        assert_eq!(view.copy_to(&frame, 99, &mut some), 0);
        pool.give_back(frame);
        assert_eq!(all(&mut pool), 8);
    }

    /// Around each end of a slot, and to the longest chain: the parts are full but the last, the rest is
    /// as if each part had been appended.
    #[test]
    fn a_packet_is_taken_whole() {
        let mut pool = pool(CHAIN_MAX as u32);
        let longest = CHAIN_MAX * 2048;
        for (head, len) in [(256, 0), (256, 1792), (256, 1793), (2048, 0), (2048, 1), (0, 2048)]
            .into_iter()
            .chain([(0, 2049), (256, 9000), (256, longest - 256), (0, longest)])
        {
            let mut frame = pool.take_packet(head, len).expect("all are free");
            let view = pool.region().view();
            let frames = (usize::from(head) + len).div_ceil(2048).max(1);
            let meta = view.meta(&frame);
            assert_eq!((meta.packet_len(), meta.frames(), meta.head()), (len, frames, head));
            assert_eq!(pool.level() + frames, CHAIN_MAX);
            let lens = view.parts(&frame).map(<[u8]>::len);
            let full = (1..frames).map(|part| (part * 2048).min(usize::from(head) + len));
            let ends = full
                .chain([usize::from(head) + len])
                .scan(head.into(), |from, to| Some(to - std::mem::replace(from, to)));
            assert!(lens.eq(ends), "{head} {len}");
            view.parts_mut(&mut frame).for_each(|part| part.fill(7));
            let (first, rest) = view.split(frame);
            assert_eq!(rest.as_ref().map_or(1, |rest| 1 + view.meta(rest).frames()), frames);
            assert!(rest.as_ref().is_none_or(|rest| view.meta(rest).later));
            pool.give_back(first);
            rest.into_iter().for_each(|rest| pool.give_back(rest));
            assert_eq!(all(&mut pool), CHAIN_MAX);
        }
    }

    #[test]
    fn a_packet_is_not_taken_in_part() {
        let mut pool = pool(4);
        assert!(pool.take_packet(256, 4 * 2048).is_none());
        assert_eq!((pool.level(), pool.counts().taken), (4, 0));
    }

    #[test]
    #[should_panic(expected = "more than a chain holds")]
    fn a_packet_beyond_a_chain_is_refused() {
        pool(1).take_packet(1, CHAIN_MAX * 2048);
    }

    #[test]
    fn parts_can_be_changed() {
        let mut pool = pool(4);
        let mut frame = packet(&mut pool, &[b"ab", b"cd", b"ef"]);
        for part in pool.region().view().parts_mut(&mut frame) {
            part.reverse();
        }
        assert_eq!(whole(&pool, &frame), b"badcfe");
        pool.give_back(frame);
        assert_eq!(all(&mut pool), 4);
    }

    #[test]
    fn a_packet_comes_apart_frame_by_frame() {
        let mut pool = pool(4);
        let frame = packet(&mut pool, &[b"a", b"bb", b"ccc"]);
        let view = pool.region().view();
        let (first, rest) = view.split(frame);
        let rest = rest.expect("two follow");
        assert_eq!((view.meta(&first).frames(), view.meta(&first).packet_len()), (1, 1));
        assert_eq!((view.meta(&rest).frames(), view.meta(&rest).packet_len()), (2, 5));
        assert!(!view.meta(&first).later && view.meta(&rest).later);
        let (second, rest) = view.split(rest);
        let (third, none) = view.split(rest.expect("one follows"));
        assert!(none.is_none() && !third.is_chained());
        assert_eq!(view.bytes(&third), b"ccc");
        // And together again, in another order.
        let mut again = third;
        view.append(&mut again, first).expect("there is room");
        view.append(&mut again, second).expect("there is room");
        assert_eq!(whole(&pool, &again), b"cccabb");
        pool.give_back(again);
        assert_eq!(all(&mut pool), 4);
    }

    /// Every length from nothing to more than the packet has: the bytes stay a prefix, the frames add up.
    #[test]
    fn a_packet_is_cut_anywhere() {
        let mut pool = pool(4);
        let bytes = b"0123456789";
        for len in 0..12 {
            let mut frame = packet(&mut pool, &[b"0123", b"456", b"789"]);
            pool.truncate(&mut frame, len);
            let left = len.min(10);
            assert_eq!(whole(&pool, &frame), bytes[..left]);
            let meta = pool.region().meta(&frame);
            let frames = if left <= 4 {
                1
            } else if left <= 7 {
                2
            } else {
                3
            };
            assert_eq!((meta.packet_len(), meta.frames()), (left, frames));
            assert_eq!(frame.is_chained(), frames > 1);
            pool.give_back(frame);
            assert_eq!(all(&mut pool), 4);
        }
    }

    #[test]
    fn a_chain_has_a_bound() {
        let mut pool = pool(CHAIN_MAX as u32 + 1);
        let mut frame = packet(&mut pool, &[&b"x"[..]; CHAIN_MAX]);
        let more = pool.take().expect("one is left");
        let more = pool.region().view().append(&mut frame, more).expect_err("the chain is full");
        pool.give_back(more);
        pool.give_back(frame);
        assert_eq!(all(&mut pool), CHAIN_MAX + 1);
    }

    #[test]
    fn a_batch_of_both_kinds_goes_back_whole() {
        let mut pool = pool(200);
        let mut batch = Batch::new();
        for number in 0..64 {
            let parts = &[&b"a"[..], b"b", b"c"][..1 + number % 3];
            batch.push(packet(&mut pool, parts)).expect("there is room");
        }
        pool.give_back_all(&mut batch);
        assert!(batch.is_empty());
        assert_eq!(all(&mut pool), 200);
    }

    /// A frame that was a part once is a single one in its next life.
    #[test]
    fn a_part_forgets_that_it_was_one() {
        let mut pool = pool(2);
        let frame = packet(&mut pool, &[b"a", b"b"]);
        pool.give_back(frame);
        for _ in 0..2 {
            let frame = packet(&mut pool, &[b"c"]);
            let meta = pool.region().meta(&frame);
            assert!(!meta.later && meta.packet_len() == 1);
            pool.give_back(frame);
        }
    }

    #[test]
    #[should_panic(expected = "a chain is lent frame by frame")]
    fn a_chain_is_not_lent_as_one_frame() {
        let mut pool = pool(2);
        let frame = packet(&mut pool, &[b"a", b"b"]);
        pool.region().lend(frame);
    }

    fn pool(frames: u32) -> Pool {
        let region = Region::new(RegionConfig { frames, frame_size: 2048 });
        let depot = Depot::new(region.expect("some KiB can be mapped"), 1);
        depot.expect("the frames are there").pool()
    }

    fn packet(pool: &mut Pool, parts: &[&[u8]]) -> Frame {
        let mut packet: Option<Frame> = None;
        for part in parts {
            let mut frame = pool.take().expect("there are frames");
            let view = pool.region().view();
            view.set_window(&mut frame, 256, 256 + part.len() as u16);
            view.set_ingress(&mut frame, PortId(0), QueueId(0), Checksum::Valid);
            view.bytes_mut(&mut frame).copy_from_slice(part);
            match &mut packet {
                Some(first) => view.append(first, frame).expect("there is room"),
                None => packet = Some(frame),
            }
        }
        packet.expect("there is a part")
    }

    fn whole(pool: &Pool, frame: &Frame) -> Vec<u8> {
        pool.region().view().parts(frame).flatten().copied().collect()
    }

    /// How many frames are free: each taken once and given back.
    fn all(pool: &mut Pool) -> usize {
        let frames = Vec::from_iter(std::iter::from_fn(|| pool.take()));
        let count = frames.len();
        frames.into_iter().for_each(|frame| pool.give_back(frame));
        count
    }
}
