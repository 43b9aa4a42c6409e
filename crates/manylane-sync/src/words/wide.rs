//! Many words at once, where the machine can: AVX-512 over the same tables.
//!
//! A batch is written twice: word by word ([`Batch::scalar`]) and side by side ([`Batch::wide`]); [`dispatch`] runs the
//! one that suits the machine. No build is for one machine only:
//! the second is compiled for AVX-512 all the same, loops over arrays included, if it is
//! `inline(always)` down to the loops. [`Wide`] is the proof that it may run.

use super::Words;

/// What can be done in two ways, with the same result.
pub trait Batch {
    /// The result.
    type Output;

    /// On any machine.
    fn scalar(self) -> Self::Output;

    /// With AVX-512. To be `#[inline(always)]`, and what it calls too.
    fn wide(self, wide: Wide) -> Self::Output;
}

/// Runs `batch` as this machine can.
#[inline]
pub fn dispatch<B: Batch>(batch: B) -> B::Output {
    #[cfg(all(target_arch = "x86_64", not(any(miri, manylane_loom, manylane_counted))))]
    if let Some(wide) = Wide::detect() {
        // SAFETY: the features are there: that is what a `Wide` says.
        return unsafe { x86::run(batch, wide) };
    }
    batch.scalar()
}

/// The machine has AVX-512 (F, BW, DQ, VL), BMI1 and 2, LZCNT and POPCNT.
#[derive(Clone, Copy)]
pub struct Wide(());

/// Lanes of 32 bits.
pub const LANES: usize = 16;

impl Wide {
    /// Looks whether it has. Not under `manylane_counted` and `manylane_loom`, which see each word.
    #[inline]
    pub fn detect() -> Option<Wide> {
        #[cfg(all(target_arch = "x86_64", not(any(miri, manylane_loom, manylane_counted))))]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            return Some(Wide(()));
        }
        None
    }

    /// The words at `at`, each loaded by itself, as by [`Words::load`].
    ///
    /// # Panics
    ///
    /// When one is out of bounds.
    #[inline(always)]
    pub fn gather(self, words: &Words<u32>, at: &[u32; LANES]) -> [u32; LANES] {
        let largest = at.iter().fold(0, |largest, &at| largest.max(at));
        assert!((largest as usize) < words.len && largest <= i32::MAX as u32, "word out of bounds");
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: the two conditions of `gather`:
            // - the machine has AVX-512F: a `Wide` proves it;
            // - all of `at` are below the length (just asserted) and not negative as an `i32`, and by invariants 1 to 3
            //   of `Words` each is a mapped word that is written only through an atomic.
            unsafe { x86::gather(words.base.as_ptr().cast::<u32>(), at) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no `Wide` exists on this machine")
    }

    /// Which of the eight words from `first` on are below `key`, a bit for each; each is loaded by
    /// itself, as by [`Words::load`].
    ///
    /// # Panics
    ///
    /// When the last is out of bounds.
    #[inline(always)]
    pub fn below(self, words: &Words<u64>, first: usize, key: u64) -> u8 {
        let last = first.checked_add(8).filter(|&end| end <= words.len);
        assert!(last.is_some(), "word out of bounds");
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: `first + 8 <= len` (just asserted); the rest as in `gather`.
            let first = unsafe { words.base.as_ptr().cast::<u64>().add(first) };
            // SAFETY: the conditions of `below` are those of `gather`, for eight words from there.
            unsafe { x86::below(first, key) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no `Wide` exists on this machine: {key}")
    }
}

/// Assembly, not intrinsics: to the compiler those are plain reads, which a concurrent atomic store
/// must not meet. To the machine each aligned word is one access either way (AMD64 manual, volume 2,
/// §7.3.2), and every load of x86 is an Acquire. The compiler moves no load that follows a word found
/// here before it, as that one's address depends on it.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::_mm512_storeu_si512;
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512};

    use super::LANES;
    #[cfg(not(any(miri, manylane_loom, manylane_counted)))]
    use super::{Batch, Wide};

    #[cfg(not(any(miri, manylane_loom, manylane_counted)))]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
    pub fn run<B: Batch>(batch: B, wide: Wide) -> B::Output {
        batch.wide(wide)
    }

    /// # Safety
    ///
    /// 1. The machine has AVX-512F.
    /// 2. Each of `at` is the number of a word behind `base`, and less than 2^31.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub unsafe fn gather(base: *const u32, at: &[u32; LANES]) -> [u32; LANES] {
        let mut words = [0; LANES];
        // SAFETY: `at` has 64 bytes; the load needs no alignment.
        let at: __m512i = unsafe { _mm512_loadu_si512(at.as_ptr().cast()) };
        let mut gathered = _mm512_setzero_si512();
        // SAFETY: reads 16 words behind `base`, which are there, by debt 2.
        unsafe {
            asm!(
                "kxnorw {all}, {all}, {all}",
                "vpgatherdd {gathered}{{{all}}}, [{base} + {at}*4]",
                all = out(kreg) _,
                gathered = inout(zmm_reg) gathered,
                base = in(reg) base,
                at = in(zmm_reg) at,
                options(readonly, nostack, preserves_flags),
            );
        }
        // SAFETY: `words` has 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), gathered) };
        words
    }

    /// # Safety
    ///
    /// 1. The machine has AVX-512F.
    /// 2. Eight words lie from `first` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub unsafe fn below(first: *const u64, key: u64) -> u8 {
        let key = _mm512_set1_epi64(key as i64);
        let below: u8;
        // SAFETY: reads eight words from `first` on, which are there, by debt 2.
        unsafe {
            asm!(
                "vpcmpnleuq {below}, {key}, zmmword ptr [{first}]",
                below = out(kreg) below,
                key = in(zmm_reg) key,
                first = in(reg) first,
                options(readonly, nostack, preserves_flags),
            );
        }
        below
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::words::WordsMut;

    struct Sum<'a>(&'a Words<u32>, &'a Words<u64>, [u32; LANES]);

    impl Batch for Sum<'_> {
        type Output = ([u32; LANES], u8);

        fn scalar(self) -> Self::Output {
            let below = (0..8).map(|word| u8::from(self.1.load(8 + word) < 20) << word).sum();
            (self.2.map(|at| self.0.load(at as usize)), below)
        }

        #[inline(always)]
        fn wide(self, wide: Wide) -> Self::Output {
            (wide.gather(self.0, &self.2), wide.below(self.1, 8, 20))
        }
    }

    fn tables() -> (Words<u32>, Words<u64>) {
        let (mut one, mut other) = (WordsMut::zeroed(100), WordsMut::zeroed(16));
        (0..100).for_each(|at| one.store(at, at as u32 * 7));
        [3, 20, 21, u64::MAX, 1 << 63, 0, 19, 20]
            .iter()
            .zip(8..)
            .for_each(|(&word, at)| other.store(at, word));
        (one.reader(), other.reader())
    }

    #[test]
    fn both_ways_say_the_same() {
        let (one, other) = tables();
        let at = std::array::from_fn(|lane| (lane as u32 * 37 + 99) % 100);
        let expected = (at.map(|at| at * 7), 0b0110_0001);
        assert_eq!(Sum(&one, &other, at).scalar(), expected);
        assert_eq!(dispatch(Sum(&one, &other, at)), expected);
    }

    #[test]
    fn a_word_out_of_bounds_is_refused_in_both() {
        let (one, other) = tables();
        let mut at = [0; LANES];
        at[15] = 100;
        for way in [Sum::scalar, dispatch] {
            let beyond = std::panic::AssertUnwindSafe(|| way(Sum(&one, &other, at)));
            assert!(std::panic::catch_unwind(beyond).is_err());
        }
    }
}
