//! The frames lent to the kernel, recorded by the threads that lend and reclaim them.
//!
//! One thread lends a frame and another reclaims it (a transmitter's completions arrive at the
//! owner of the queue), and workers share no cache line (I5). So each party keeps its own bit for each frame,
//! toggles it whenever it lends or reclaims the frame, and reads no other party's bits. When all have stopped, the
//! frames whose bits differ between lenders and reclaimers are those that the kernel still has: exact, at one bit
//! operation per frame on a party's own line.

use manylane_frame::Region;

/// One party's bits.
pub(super) struct Lent {
    bits: Box<[u64]>,
    shift: u32,
}

impl Lent {
    pub fn new(region: &Region) -> Lent {
        let words = (region.frames() as usize).div_ceil(64);
        Lent { bits: vec![0; words].into(), shift: region.frame_size().trailing_zeros() }
    }

    /// Toggles the bit of the frame at `address`; returns its previous value.
    ///
    /// # Panics
    ///
    /// When the address is beyond the region.
    #[inline(always)]
    pub fn toggle(&mut self, address: u64) -> bool {
        let frame = (address >> self.shift) as usize;
        let word = &mut self.bits[frame / 64];
        let bit = 1 << (frame % 64);
        *word ^= bit;
        *word & bit == 0
    }

    /// Merges another party's bits: a bit that both toggled is clear again.
    pub fn merge(&mut self, other: &Lent) {
        for (word, others) in self.bits.iter_mut().zip(&other.bits) {
            *word ^= others;
        }
    }

    /// The addresses of all frames whose bit is set.
    pub fn addresses(&self) -> Vec<u64> {
        let frames = 0..self.bits.len() as u64 * 64;
        let is_set = |frame: &u64| self.bits[*frame as usize / 64] >> (frame % 64) & 1 == 1;
        frames.filter(is_set).map(|frame| frame << self.shift).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_frame::RegionConfig;

    #[test]
    fn frames_lent_and_not_reclaimed_remain() {
        let region = Region::new(RegionConfig { frames: 100, frame_size: 2048 });
        let region = region.expect("200 KiB can be mapped");
        let mut lent = Lent::new(&region);
        let mut also_lent = Lent::new(&region);
        let mut reclaimed = Lent::new(&region);
        for _ in 0..3 {
            lent.toggle(7 * 2048 + 256);
            reclaimed.toggle(7 * 2048 + 100);
        }
        assert!(!lent.toggle(99 * 2048));
        also_lent.toggle(3 * 2048 + 1);
        also_lent.toggle(64 * 2048);
        assert!(!reclaimed.toggle(64 * 2048));

        reclaimed.merge(&lent);
        reclaimed.merge(&also_lent);
        assert_eq!(reclaimed.addresses(), [3 * 2048, 99 * 2048]);
        assert!(lent.toggle(99 * 2048), "it was set");
    }
}
