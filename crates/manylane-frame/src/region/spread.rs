//! Where copied packets begin in their slots.

use super::HEADROOM;

/// Where packets of one length begin in their slots.
///
/// # Invariants
///
/// 1. `head` of any index is at least [`HEADROOM`], and at most the length below the size of a slot.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    /// The bits of an index that decide, each worth `step` times its value.
    bits: u32,
    step: u32,
}

impl Spread {
    #[inline(always)]
    pub(super) fn new(frame_size: usize, len: u16) -> Spread {
        let room = frame_size.checked_sub(usize::from(HEADROOM) + usize::from(len));
        let lines = room.expect("the packet fits its slot") / LINE + 1;
        // The lines are a power of two. A slot of half a page decides by the bits above its lowest, since a
        // neighbour's lines lie in the other half of the sets.
        let slots = PAGE / frame_size;
        let bits = ((1 << lines.ilog2()) - 1) * slots;
        Spread { bits: bits as u32, step: (LINE / slots) as u32 }
    }

    #[inline(always)]
    pub(super) fn head(self, index: u32) -> u16 {
        HEADROOM + ((index & self.bits) * self.step) as u16
    }
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Bytes after which addresses fall into the same sets of a first cache of 64.
pub(super) const PAGE: usize = 64 * LINE;
