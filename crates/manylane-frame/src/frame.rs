//! The handle of one frame.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

/// A frame of a [`Region`](crate::Region): the holder of the handle owns the frame's bytes and metadata.
///
/// A handle ends when the frame is given back to a pool, pushed into a ring or lent to the kernel. Dropping a handle is
/// a bug: the frame would be missing from its region. Dropped handles are counted ([`frames_leaked`]) and, in debug
/// builds, a panic.
///
/// # Invariants
///
/// 1. The lower 24 bits are an index below the frame count of the region whose tag bits 24 to 30 hold.
/// 2. No two `Frame`s of a region have the same index, and none has the index of a frame that lies in
///    a pool, is lent, or follows another in a chain.
/// 3. Bit 31 is set if, and only if, other frames of the packet follow this one (`Meta` invariant 2). So code that
///    handles single frames only, as the fast path does, need not look at the metadata.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), repr(transparent))]
#[must_use = "a frame without a holder is a leak"]
pub struct Frame(NonZeroU32, Generation);

// Batches and rings of handles are as dense as the indices themselves; only debug builds add to them.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Frame>() == 4 && size_of::<Option<Frame>>() == 4);

/// Most frames a region can have: 24 bits of index.
pub const FRAMES_MAX: u32 = 1 << 24;

/// Most regions that have frames out at a time: tags are 1 to this.
pub(crate) const TAG_MAX: u8 = 127;

const CHAINED: u32 = 1 << 31;

/// How often the frame had been taken when a handle to it was made. Release builds do not check it: it has no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(#[cfg(debug_assertions)] pub(crate) u32);

impl Frame {
    /// Makes the handle of a single frame whose index has no handle. `tag` is 1 to [`TAG_MAX`].
    ///
    /// Callers uphold invariants 1 and 2; the function is private to the crate.
    #[inline(always)]
    pub(crate) fn from_parts(tag: u8, index: u32, generation: Generation) -> Frame {
        debug_assert!(index < FRAMES_MAX);
        let tag = NonZeroU32::new(u32::from(tag) << 24).expect("a region's tag is not zero");
        Frame(tag | index, generation)
    }

    /// The frame's index in its region.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.0.get() & (FRAMES_MAX - 1)
    }

    /// In which life of the frame the handle was made.
    #[cfg(debug_assertions)]
    pub(crate) fn generation(&self) -> Generation {
        self.1
    }

    /// Whether other frames of the packet follow this one.
    #[inline(always)]
    pub fn is_chained(&self) -> bool {
        self.0.get() & CHAINED != 0
    }

    /// The tag of the frame's region.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u8 {
        (self.0.get() >> 24) as u8 & TAG_MAX
    }

    /// 0 for a single frame of the region with `tag`; anything else for others.
    #[inline(always)]
    pub(crate) fn differs(&self, tag: u8) -> u8 {
        (self.0.get() >> 24) as u8 ^ tag
    }

    /// 0 when all are of the region with `tag`, chained or not. Without a branch, so that it is vectorised.
    #[inline(always)]
    pub(crate) fn any_foreign(frames: &[Frame], tag: u8) -> u8 {
        Frame::differences(frames, tag) & TAG_MAX
    }

    /// 0 when all are single frames of the region with `tag`.
    #[inline(always)]
    pub(crate) fn any_differs(frames: &[Frame], tag: u8) -> u8 {
        Frame::differences(frames, tag)
    }

    #[inline(always)]
    fn differences(frames: &[Frame], tag: u8) -> u8 {
        let bare = u32::from(tag) << 24;
        let differences = frames.iter().fold(0, |differs, frame| differs | (frame.0.get() ^ bare));
        (differences >> 24) as u8
    }

    /// Notes whether others follow. Callers uphold invariant 3.
    #[inline(always)]
    pub(crate) fn set_chained(&mut self, chained: bool) {
        let bare = self.0.get() & !CHAINED;
        let bits = if chained { bare | CHAINED } else { bare };
        self.0 = NonZeroU32::new(bits).expect("a region's tag is not zero");
    }

    /// Ends the handle of a single frame; the index is the caller's to keep.
    #[inline(always)]
    pub(crate) fn into_index(self) -> u32 {
        debug_assert!(!self.is_chained(), "the frames that follow would be lost");
        let index = self.index();
        std::mem::forget(self);
        index
    }
}

impl Drop for Frame {
    #[cold]
    fn drop(&mut self) {
        *LEAKED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        if cfg!(debug_assertions) && !std::thread::panicking() {
            panic!("frame {} was dropped instead of given back", self.index());
        }
    }
}

/// How many frames of this process were dropped instead of given back; a chain counts as one. Anything but 0 is a bug.
pub fn frames_leaked() -> u64 {
    *LEAKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock, because only a bug comes this way.
static LEAKED: Mutex<u64> = Mutex::new(0);
