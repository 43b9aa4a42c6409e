//! One mapping cut in frames of one size, with a cache line of metadata for each.
//!
//! The region is the memory of every port: the UMEM of all AF_XDP sockets, and what the others copy
//! into. The bytes of a frame and its metadata are reached only through its [`Frame`], so the type
//! system is what keeps two owners apart.
//!
//! ```text
//! frame slot:  [ headroom | head, window: the packet, len bytes | tailroom ]     frame_size bytes
//! metadata:    [ head len next ... ingress queue ... ]                            64 bytes, elsewhere
//! ```
//!
//! A packet larger than a frame is a chain of them (`chain.rs`).

mod audit;
mod chain;
mod meta;
mod spread;
mod tags;
mod view;

pub use audit::{Holder, Missing};
pub use chain::{CHAIN_MAX, Parts, PartsMut};
pub use meta::{Marks, Meta, Sample, Steered, Trace};
pub use view::{Packet, PacketMut, View};

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

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
        /// The size of the mapping.
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

/// The room in front of the packet is smaller than the header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHeadroom {
    /// Bytes wanted.
    pub wanted: u16,
    /// Bytes free.
    pub available: u16,
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

struct Mappings {
    bytes: Mapping,
    _meta: Mapping,
    tag: u8,
    #[cfg(debug_assertions)]
    _stamps: Arc<audit::Stamps>,
    /// Whether a depot has taken the frames, and not all are home again.
    frames_out: Mutex<bool>,
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // No clone of the region is left to take a frame of the tag's next region for its own. Frames
        // that are still out keep the tag for ever: they would pass for the next region's.
        if !*self.frames_out.get_mut().expect("no holder of this lock panics") {
            tags::in_use()[usize::from(self.tag) - 1] = false;
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
        let tag = tags::take().ok_or(RegionError::TooManyRegions)?;
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

    // The methods that follow forward to a view by hand. `Deref` could not: its target cannot name the lifetime of the
    // borrow, and a `View` is copied, so one of a longer lifetime would outlive the mapping. A target that is not
    // copied would be reached by reference, which is what a `View` is there to avoid.

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
                (meta.head, meta.len) = (head, meta.len + len); // The window ends where it did: invariant 1.
                Ok(())
            }
            None => Err(NoHeadroom { wanted: len, available: meta.head }),
        }
    }

    /// Closes the first `len` bytes of the packet, or all of a shorter one.
    #[inline]
    pub fn pull_front(&self, frame: &mut Frame, len: u16) {
        let meta = self.view().whole_meta_mut(frame);
        let len = len.min(meta.len);
        (meta.head, meta.len) = (meta.head + len, meta.len - len); // The window ends where it did: invariant 1.
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

#[cfg(test)]
mod tests;
