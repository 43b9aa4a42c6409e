//! One mapping cut in frames of one size, with a cache line of metadata for each.
//!
//! The region is the memory of every port: the UMEM of all AF_XDP sockets, and what the others copy
//! into. The bytes of a frame and its metadata are reached only through its [`Frame`], so the type
//! system is what keeps two owners apart.
//!
//! ```text
//! frame slot:  [ headroom | head .. window: the packet .. tail | tailroom ]     frame_size bytes
//! metadata:    [ head tail next ... ingress queue ... ]                           64 bytes, elsewhere
//! ```
//!
//! A packet larger than a frame is a chain of them (`chain.rs`).

mod audit;
mod chain;
mod meta;

pub use audit::{Holder, Missing};
pub use chain::{CHAIN_MAX, Parts, PartsMut};
pub use meta::{Marks, Meta, Sample, Steered, Trace};

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex};

#[cfg(manylane_counted)]
use manylane_sync::primitive::counted::{Access, touch};
use manylane_sync::words::{prefetch, prefetch_line, prefetch_line_to_write};

use crate::frame::{FRAMES_MAX, Frame, TAG_MAX};
use crate::mapping::Mapping;
use crate::vocabulary::{Checksum, PortId, QueueId};

/// Bytes in front of a received packet: what the kernel leaves before an XDP frame
/// (`XDP_PACKET_HEADROOM`), and what the other ports leave at least, so that all frames look alike.
pub const HEADROOM: u16 = 256;

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// Number of frames, 1 to 2^24.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096, the sizes that AF_XDP takes.
    pub frame_size: u32,
}

/// Why a region was not made.
#[non_exhaustive]
#[derive(Debug)]
pub enum RegionError {
    /// The frame size is neither 2048 nor 4096.
    FrameSize(u32),
    /// The number of frames is 0 or above 2^24.
    Frames(u32),
    /// 127 regions of this process still have frames out.
    TooManyRegions,
    /// The kernel refused the memory.
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::FrameSize(size) => write!(f, "frame size {size}: take 2048 or 4096"),
            RegionError::Frames(frames) => {
                write!(f, "{frames} frames in a region: take 1 to {FRAMES_MAX}")
            }
            RegionError::TooManyRegions => {
                write!(
                    f,
                    "{TAG_MAX} frame regions are in use already: drop one, with all its frames"
                )
            }
            RegionError::Memory { bytes, source } => {
                write!(
                    f,
                    "no memory for {} MiB of frames: {source}; take fewer frames",
                    bytes >> 20
                )
            }
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RegionError::Memory { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// There is less room in front of the packet than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHeadroom {
    /// Bytes asked for.
    pub wanted: u16,
    /// Bytes there are.
    pub left: u16,
}

/// The frames of a daemon.
#[derive(Clone)]
pub struct Region {
    layout: Layout,
    owner: Arc<Mappings>,
}

/// Where a region's frames are.
///
/// # Invariants
///
/// 1. `base` points at `frames * frame_size` bytes, `frame_size` being `1 << shift`, that the region's owner keeps mapped, initialised, and
///    reached only by a [`View`] and, for lent frames, by the kernel.
/// 2. `meta` points at `frames` initialised `Meta`s that the owner keeps mapped and only a `View`
///    reaches.
/// 3. Every `Frame` with the tag `tag` belongs to this region: a tag is given to one region at a time,
///    and given back only when all its frames are at home and no clone of it is left.
/// 4. `stamps`, in debug builds, points at one word for each frame, which the owner keeps.
#[derive(Clone, Copy)]
struct Layout {
    base: NonNull<u8>,
    meta: NonNull<Meta>,
    shift: u32,
    /// Once more, for the way to a slot: a product, where a shift by a variable wants a register of its own.
    frame_size: usize,
    frames: u32,
    tag: u8,
    #[cfg(debug_assertions)]
    stamps: NonNull<audit::Stamps>,
}

/// A region, borrowed: the same reach in a few registers. Loops over frames take one, because through a
/// `&Region` each write to a frame's bytes makes the compiler load the region's fields anew.
#[derive(Clone, Copy)]
pub struct View<'r> {
    layout: Layout,
    region: PhantomData<&'r Region>,
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

struct Mappings {
    bytes: Mapping,
    _meta: Mapping,
    tag: u8,
    #[cfg(debug_assertions)]
    _stamps: Arc<audit::Stamps>,
    /// Whether a depot has taken the frames, and not all have come home.
    frames_out: Mutex<bool>,
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // No clone of the region is left to take a frame of the tag's next region for its own. Frames
        // that are still out keep the tag for ever: they would pass for the next region's.
        if !*self.frames_out.get_mut().expect("no holder of this lock panics") {
            tags()[usize::from(self.tag) - 1] = false;
        }
    }
}

// SAFETY: the pointers are to memory that the `Arc`ed owner keeps (`Layout` invariants 1 and 2). A thread
// reaches the part of a frame only through that `Frame`, which it owns or borrows.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; `&Region` alone reaches no frame.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region. Its frames are taken by one depot at a time ([`Depot::new`](crate::Depot::new)).
    pub fn new(config: RegionConfig) -> Result<Region, RegionError> {
        let RegionConfig { frames, frame_size } = config;
        if frame_size != 2048 && frame_size != 4096 {
            return Err(RegionError::FrameSize(frame_size));
        }
        if frames == 0 || frames > FRAMES_MAX {
            return Err(RegionError::Frames(frames));
        }
        let map = |bytes: usize| {
            Mapping::new(bytes).map_err(|source| RegionError::Memory { bytes, source })
        };
        let bytes = map(frames as usize * frame_size as usize)?;
        // Zeroed memory is a valid `Meta`: an empty window, port 0, `Checksum::Valid`.
        let meta = map(frames as usize * size_of::<Meta>())?;
        let tag = take_tag().ok_or(RegionError::TooManyRegions)?;
        #[cfg(debug_assertions)]
        let stamps = Arc::new(audit::Stamps::new(frames));
        let layout = Layout {
            base: bytes.base(),
            meta: meta.base().cast(),
            shift: frame_size.trailing_zeros(),
            frame_size: frame_size as usize,
            frames,
            tag,
            #[cfg(debug_assertions)]
            stamps: NonNull::from(&*stamps),
        };
        Ok(Region {
            layout,
            owner: Arc::new(Mappings {
                bytes,
                _meta: meta,
                tag: layout.tag,
                #[cfg(debug_assertions)]
                _stamps: stamps,
                frames_out: Mutex::new(false),
            }),
        })
    }

    /// The same reach in registers, for a loop over frames.
    #[inline(always)]
    pub fn view(&self) -> View<'_> {
        View { layout: self.layout, region: PhantomData }
    }

    /// See [`View::bytes`].
    #[inline(always)]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.view().bytes(frame)
    }

    /// See [`View::bytes_mut`].
    #[inline(always)]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        self.view().bytes_mut(frame)
    }

    /// See [`View::meta`].
    #[inline(always)]
    pub fn meta<'a>(&'a self, frame: &'a Frame) -> &'a Meta {
        self.view().meta(frame)
    }

    /// See [`View::meta_mut`].
    #[inline(always)]
    pub fn meta_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut Marks {
        self.view().meta_mut(frame)
    }

    /// See [`View::set_window`].
    #[inline(always)]
    pub fn set_window(&self, frame: &mut Frame, head: u16, tail: u16) {
        self.view().set_window(frame, head, tail);
    }

    /// See [`View::set_ingress`].
    #[inline(always)]
    pub fn set_ingress(
        &self,
        frame: &mut Frame,
        ingress: PortId,
        queue: QueueId,
        checksum: Checksum,
    ) {
        self.view().set_ingress(frame, ingress, queue, checksum);
    }

    /// See [`View::set_steered`].
    #[inline(always)]
    pub fn set_steered(&self, frame: &mut Frame, steered: Option<Steered>) {
        self.view().set_steered(frame, steered);
    }

    /// See [`View::truncate`].
    #[inline]
    pub fn truncate(&self, frame: &mut Frame, len: usize) {
        self.view().truncate(frame, len);
    }

    /// Opens `len` bytes in front of the packet, for a header about to be written.
    #[inline]
    pub fn push_front(&self, frame: &mut Frame, len: u16) -> Result<(), NoHeadroom> {
        let meta = self.view().whole_meta_mut(frame);
        match meta.head.checked_sub(len) {
            Some(head) => {
                meta.head = head; // It only shrank: invariants 1 and 2 hold.
                Ok(())
            }
            None => Err(NoHeadroom { wanted: len, left: meta.head }),
        }
    }

    /// Closes the first `len` bytes of the packet, or all there are.
    #[inline]
    pub fn pull_front(&self, frame: &mut Frame, len: u16) {
        let meta = self.view().whole_meta_mut(frame);
        meta.head = meta.head.saturating_add(len).min(meta.tail); // At most `tail`: invariant 1.
    }

    /// Asks for the first cache line of the packet.
    #[inline(always)]
    pub fn prefetch(&self, frame: &Frame) {
        if let Some(first) = self.bytes(frame).first() {
            prefetch(first);
        }
    }

    /// Gives a single frame to the kernel. Returns where its bytes begin, counted from the region's
    /// start: an AF_XDP descriptor's address. The way back is [`Region::reclaim`].
    ///
    /// # Panics
    ///
    /// When others follow it: [`View::split`] them off first.
    #[inline]
    pub fn lend(&self, frame: Frame) -> u64 {
        assert!(!frame.is_chained(), "a chain is lent frame by frame");
        let head = self.meta(&frame).head;
        self.view().lent(&frame);
        (u64::from(frame.into_index()) << self.layout.shift) + u64::from(head)
    }

    /// Takes back a frame that was lent, by any address inside its slot.
    ///
    /// # Safety
    ///
    /// The frame was lent by this region and has not been reclaimed since, and the kernel is done with
    /// it.
    ///
    /// # Panics
    ///
    /// When the address is outside the region.
    #[inline]
    pub unsafe fn reclaim(&self, address: u64) -> Frame {
        let index = address >> self.layout.shift;
        assert!(index < u64::from(self.layout.frames), "address outside the region");
        // `Frame` invariant 1: just asserted. Invariant 2: the caller's debt.
        self.view().reclaimed(index as u32)
    }

    /// Bytes of a frame.
    #[inline(always)]
    pub fn frame_size(&self) -> u32 {
        1 << self.layout.shift
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.layout.frames
    }

    /// The first byte, for the kernel to map (`XDP_UMEM_REG`).
    pub fn base(&self) -> NonNull<u8> {
        self.layout.base
    }

    /// Length of all frames in bytes.
    pub fn len_bytes(&self) -> usize {
        (self.layout.frames as usize) << self.layout.shift
    }

    /// Whether huge pages back the frames, or may.
    pub fn is_huge(&self) -> bool {
        self.owner.bytes.is_huge()
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> u8 {
        self.layout.tag
    }

    /// Marks the frames as taken; false when they were already.
    pub(crate) fn take_frames(&self) -> bool {
        let mut out = self.owner.frames_out.lock().expect("no holder of this lock panics");
        !std::mem::replace(&mut out, true)
    }

    /// Notes that every frame is at home: none carries the tag any more until they are taken again.
    pub(crate) fn frames_are_home(&self) {
        *self.owner.frames_out.lock().expect("no holder of this lock panics") = false;
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
        //   its slot is inside the mapping, and by `Meta` invariants 1 and 2 the window in its slot. The
        //   region is borrowed for 'r, which is longer than 'a.
        // - Initialised: the kernel hands out zeroed pages, and every writer writes whole bytes.
        // - Not written during 'a: by `Frame` invariant 2 this handle is the slot's only one. We borrow
        //   it, so nobody can call `bytes_mut`, and it is not lent, so neither can the kernel.
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
        // SAFETY: as in `bytes`, and nobody else reads or writes the slot during 'a, since the only
        // handle is borrowed mutably.
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
            self.touch_meta(frame, Access::Read); // Only who truncates writes.
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

    /// Opens a window of `len` bytes in each of these frames, and gives the bytes of each to be written: for
    /// who receives by copying. Where the window begins, from [`HEADROOM`] on, depends on the frame, as far as
    /// its slot has room.
    ///
    /// At the same place of their slots, which are 2048 or 4096 bytes, all headers would lie in two or one of
    /// the 64 sets of a processor's first cache, 8 lines each: a batch would not stay there from one pass to
    /// the next. (A device with a UMEM of aligned chunks has no choice: the kernel takes the chunk of an
    /// address, not the address.)
    ///
    /// # Panics
    ///
    /// When there is no room for `len` bytes behind the headroom.
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
            unsafe { self.open_window(frame, head, head + len) };
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
    /// A store takes the line from the core that read it last, be anything changed by it or not. Frames that go
    /// round between two workers have the same port and queue in every life, and often the same window: their
    /// metadata then stays with both.
    ///
    /// # Safety
    ///
    /// `frame` is of this region: it has its tag.
    #[inline(always)]
    unsafe fn mark(self, frame: &mut Frame, marks: Marks, word: u64) {
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
    /// `frame` is of this region: it has its tag. The window keeps invariants 1 and 2 of `Meta`.
    #[inline(always)]
    unsafe fn open_window(self, frame: &mut Frame, head: u16, tail: u16) {
        // SAFETY: the caller's debt.
        let meta = unsafe { self.known_meta(frame) };
        if (meta.head, meta.tail) != (head, tail) {
            // SAFETY: the caller's debt.
            let meta = unsafe { self.known_meta_mut(frame) };
            (meta.head, meta.tail) = (head, tail);
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
    unsafe fn known_meta<'a>(self, frame: &'a Frame) -> &'a Meta
    where
        'r: 'a,
    {
        #[cfg(manylane_counted)]
        self.touch_meta(frame, Access::Read);
        // SAFETY: the frame is ours (the caller's debt, `Layout` invariant 3), so by `Frame` invariant 1 its
        // index is below `frames`, and by `Layout` invariant 2 there is an initialised `Meta` that
        // nobody changes while the handle is borrowed; the region is borrowed for longer.
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

    /// With the window: who changes that keeps the invariants of `Meta`.
    #[inline(always)]
    fn whole_meta_mut<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
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
    unsafe fn known_meta_mut<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
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
    unsafe fn meta_place<'a>(self, frame: &'a mut Frame) -> &'a mut Meta
    where
        'r: 'a,
    {
        // SAFETY: as in `known_meta`, and the only handle is borrowed mutably.
        unsafe { self.layout.meta.add(frame.index() as usize).as_mut() }
    }

    /// Asks for what is known of `frame`, and for the line of its slot that `head` is in, to be written; without a
    /// look at either, nor whether the frame is this region's.
    #[inline(always)]
    pub fn prefetch_packet(self, frame: &Frame, head: u16) {
        let Layout { base, meta, frame_size, .. } = self.layout;
        let index = frame.index() as usize;
        prefetch_line(meta.as_ptr().wrapping_add(index).cast());
        prefetch_line_to_write(base.as_ptr().wrapping_add(index * frame_size + usize::from(head)));
    }

    /// The same of a packet of `len` bytes where it has [landed](View::land).
    #[inline(always)]
    pub fn prefetch_landed(self, frame: &Frame, len: u16) {
        let head = Spread::new(self.layout.frame_size, len).head(frame.index());
        self.prefetch_packet(frame, head);
    }

    /// Notes how a packet came that is about to be held. Nothing else changes it, not even another life of the
    /// frame: who has not held it before does not ask.
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

    /// Notes that somebody follows the packet, or nobody. Nothing else changes it, not even another life of the
    /// frame: who has set it takes it off again before the packet ends.
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
        // SAFETY: the frame is ours: just checked. The invariants were asserted before.
        unsafe { self.open_window(frame, head, tail) };
    }

    /// Says how a frame came to be: by `queue` of port `ingress`, or on its behalf.
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
    fn touch_meta(self, frame: &Frame, access: Access) {
        let meta = self.layout.meta.as_ptr().wrapping_add(frame.index() as usize);
        touch(meta.cast(), size_of::<Meta>(), access);
    }

    /// Not `assert_eq`, which takes references and so keeps the whole view in memory.
    #[inline(always)]
    fn check_ours(self, frame: &Frame) {
        if frame.tag() != self.layout.tag {
            foreign(frame.index(), frame.tag(), self.layout.tag);
        }
        self.used(frame);
    }

    #[inline(always)]
    fn check_all_ours(self, frames: &[Frame]) {
        if Frame::any_foreign(frames, self.layout.tag) != 0 {
            frames.iter().for_each(|frame| self.check_ours(frame));
        }
    }

    #[inline(always)]
    fn slot(self, frame: &Frame) -> NonNull<u8> {
        // SAFETY: the callers have checked the tag, so the frame is ours (`Layout` invariant 3).
        unsafe { self.slot_of(frame.index()) }
    }

    /// Where the slot of a frame begins.
    ///
    /// # Safety
    ///
    /// `index` is of a `Frame` of this region, or of a `next` or `last` in its `Meta`.
    #[inline(always)]
    unsafe fn slot_of(self, index: u32) -> NonNull<u8> {
        // SAFETY: by `Frame` invariant 1, or `Meta` invariant 3, `index` is below `frames`, so the slot is
        // inside the mapping of `Layout` invariant 1.
        unsafe { self.layout.base.add(index as usize * self.layout.frame_size) }
    }
}

/// Where packets of one length begin in their slots.
///
/// # Invariants
///
/// 1. `head` of any index is at least [`HEADROOM`], and at most the length below the size of a slot.
#[derive(Clone, Copy)]
struct Spread {
    /// The bits of an index that decide, each worth `step` times its value.
    bits: u32,
    step: u32,
}

impl Spread {
    #[inline(always)]
    fn new(frame_size: usize, len: u16) -> Spread {
        let room = frame_size.checked_sub(usize::from(HEADROOM) + usize::from(len));
        let lines = room.expect("the packet fits its slot") / LINE + 1;
        // The lines are a power of two. A slot of half a page decides by the bits above its lowest, since a
        // neighbour's lines lie in the other half of the sets.
        let slots = PAGE / frame_size;
        let bits = ((1 << lines.ilog2()) - 1) * slots;
        Spread { bits: bits as u32, step: (LINE / slots) as u32 }
    }

    #[inline(always)]
    fn head(self, index: u32) -> u16 {
        HEADROOM + ((index & self.bits) * self.step) as u16
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes after which addresses fall into the same sets of a first cache of 64.
const PAGE: usize = 64 * LINE;

/// A tag that no region has.
fn take_tag() -> Option<u8> {
    let mut tags = tags();
    let free = tags.iter().position(|taken| !taken)?;
    tags[free] = true;
    Some(free as u8 + 1) // 1 to `TAG_MAX`.
}

#[cold]
#[inline(never)]
fn foreign(index: u32, tag: u8, ours: u8) -> ! {
    panic!("frame {index} is from another region: of tag {tag}, and this has {ours}");
}

/// Which of the tags are in use.
fn tags() -> std::sync::MutexGuard<'static, [bool; TAG_MAX as usize]> {
    static TAGS: Mutex<[bool; TAG_MAX as usize]> = Mutex::new([false; TAG_MAX as usize]);
    TAGS.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Depot;
    use crate::vocabulary::Segments;

    #[test]
    fn a_window_opens_in_front_and_closes_at_both_ends() {
        with_frame(|region, frame| {
            region.set_window(frame, 256, 266);
            region.bytes_mut(frame).copy_from_slice(b"0123456789");
            region.pull_front(frame, 2);
            region.truncate(frame, 5);
            assert_eq!(region.bytes(frame), b"23456");
            assert_eq!(region.push_front(frame, 1), Ok(()));
            assert_eq!(region.bytes(frame), b"123456");
            assert_eq!(region.push_front(frame, 300), Err(NoHeadroom { wanted: 300, left: 257 }));
            region.pull_front(frame, 99);
            assert!(region.meta(frame).is_empty());
        });
    }

    #[test]
    fn packets_land_on_different_lines_and_inside_their_slots() {
        for frame_size in [2048, 4096] {
            for len in [0, 60, 64, 65, 1514, frame_size - 256 - 64, frame_size - 256] {
                let spread = Spread::new(frame_size, len as u16);
                let heads: Vec<usize> = (0..128).map(|index| spread.head(index).into()).collect();
                assert!(heads.iter().all(|head| (256..=frame_size - len).contains(head)), "{len}");
                let set = |(index, head)| (index * frame_size + head) / LINE % 64;
                let sets = heads.iter().copied().enumerate().map(set);
                let sets = sets.collect::<std::collections::BTreeSet<_>>().len();
                let lines = (frame_size - 256 - len) / LINE + 1;
                let slots = PAGE / frame_size;
                assert_eq!(sets, slots << lines.ilog2(), "{frame_size} {len}");
            }
        }
    }

    #[test]
    fn who_lands_gets_the_window_that_is_set() {
        with_frame(|region, frame| {
            let frames = std::slice::from_mut(frame);
            region.view().land(frames, 64).for_each(|bytes| bytes.fill(7));
            assert_eq!(region.bytes(frame), [7; 64]);
        });
    }

    /// What is there from before is left alone only when it is the same.
    #[test]
    fn each_life_has_its_own_marks() {
        with_frame(|region, frame| {
            let queues = [3, 3, 4].map(QueueId);
            let checksums = [
                Checksum::Valid,
                Checksum::Unknown,
                Checksum::Partial { start: 34, offset: 6 },
                Checksum::Partial { start: 34, offset: 16 },
                Checksum::Valid,
            ];
            for (queue, checksum) in
                queues.iter().flat_map(|queue| checksums.map(|sum| (*queue, sum)))
            {
                for changed in [false, true] {
                    region.set_ingress(frame, PortId(7), queue, checksum);
                    let Marks { ingress, queue: its, checksum: known, own, later, segments } =
                        **region.meta(frame);
                    assert_eq!((ingress, its, known), (PortId(7), queue, checksum));
                    assert_eq!((own, later, segments), (false, false, Segments::NONE));
                    if changed {
                        let marks = region.meta_mut(frame);
                        (marks.own, marks.ingress, marks.later) = (true, PortId(9), true);
                    }
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "the packet fits its slot")]
    fn what_does_not_fit_does_not_land() {
        with_frame(|region, frame| {
            let _ = region.view().land(std::slice::from_mut(frame), 1793).len();
        });
    }

    #[test]
    #[should_panic(expected = "window outside its slot")]
    fn a_window_beyond_the_slot_is_refused() {
        with_frame(|region, frame| region.set_window(frame, 0, 2049));
    }

    #[test]
    fn a_lent_frame_comes_back_by_any_address_in_its_slot() {
        let region = region();
        let depot = Depot::new(region.clone(), 1).expect("the frames are there");
        let mut pool = depot.pool();
        let mut frame = pool.take().expect("there are frames");
        region.set_window(&mut frame, 100, 110);
        let index = frame.index();
        let address = region.lend(frame);
        assert_eq!(address, u64::from(index) * 2048 + 100);
        // SAFETY: lent above, never given to a kernel, reclaimed once.
        let frame = unsafe { region.reclaim(address + 7) };
        assert_eq!(frame.index(), index);
        pool.give_back(frame);
    }

    #[test]
    fn tags_come_back_when_all_frames_are_at_home() {
        for _ in 0..300 {
            drop(Depot::new(region(), 1).expect("the frames are there"));
            drop(region()); // Its frames were never taken.
        }
    }

    /// A frame of the next region would pass for the first one's, with an index beyond its end.
    #[test]
    fn a_region_that_somebody_still_has_keeps_its_tag() {
        let first = region();
        drop(Depot::new(first.clone(), 1).expect("the frames are there"));
        let second = region();
        assert_ne!(first.tag(), second.tag());
        drop(Depot::new(first, 1).expect("the frames are home and can be taken again"));
    }

    #[test]
    fn bad_sizes_are_refused_by_name() {
        let error = |frames, frame_size| {
            let region = Region::new(RegionConfig { frames, frame_size });
            region.err().map(|error| error.to_string())
        };
        assert_eq!(error(1, 1500), Some("frame size 1500: take 2048 or 4096".into()));
        assert_eq!(error(0, 2048), Some("0 frames in a region: take 1 to 16777216".into()));
    }

    fn region() -> Region {
        Region::new(RegionConfig { frames: 4, frame_size: 2048 }).expect("8 KiB can be mapped")
    }

    fn with_frame(test: impl FnOnce(&Region, &mut Frame)) {
        let region = region();
        let depot = Depot::new(region.clone(), 1).expect("the frames are there");
        let mut pool = depot.pool();
        let mut frame = pool.take().expect("there are frames");
        test(&region, &mut frame);
        pool.give_back(frame);
    }
}
