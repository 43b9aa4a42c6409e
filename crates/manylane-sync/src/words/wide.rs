//! Many words at once, where the machine can: AVX-512 or AVX2 over the same tables.
//!
//! A batch is written twice: word by word ([`Batch::scalar`]) and side by side ([`Batch::wide`]); [`dispatch`] runs the
//! one that suits the machine. No build is for one machine only:
//! the second is compiled for AVX-512 and for AVX2 all the same, loops over arrays included, if it is
//! `inline(always)` down to the loops. A [`Wide`] is the proof that it may run.

use self::vectors::Vectors;
use super::Words;

/// What can be done in two ways, with the same result.
pub trait Batch {
    /// The result.
    type Output;

    /// On any machine.
    fn scalar(self) -> Self::Output;

    /// With vectors. To be `#[inline(always)]`, and what it calls too.
    fn wide(self, wide: impl Wide) -> Self::Output;
}

/// Runs `batch` as this machine can.
#[inline]
pub fn dispatch<B: Batch>(batch: B) -> B::Output {
    // `counted` and `loom` are to see each word.
    #[cfg(all(target_arch = "x86_64", not(any(miri, manylane_loom, manylane_counted))))]
    if let Some(wide) = x86::Avx512::detect() {
        return wide.run(batch);
    } else if let Some(wide) = x86::Avx2::detect() {
        return wide.run(batch);
    }
    batch.scalar()
}

/// Lanes of 32 bits.
pub const LANES: usize = 16;

/// The machine has vectors.
pub trait Wide: Vectors {
    /// The words at `at`, each loaded by itself, as by [`Words::load`].
    ///
    /// # Panics
    ///
    /// When one is out of bounds.
    #[inline(always)]
    fn gather(self, words: &Words<u32>, at: &[u32; LANES]) -> [u32; LANES] {
        let largest = at.iter().fold(0, |largest, &at| largest.max(at));
        assert!((largest as usize) < words.len && largest <= i32::MAX as u32, "word out of bounds");
        // SAFETY: all of `at` are below the length (just asserted) and not negative as an `i32`, and by invariants 1 to
        // 3 of `Words` each is a mapped word that is written only through an atomic.
        unsafe { self.gather_from(words.base.as_ptr().cast::<u32>(), at) }
    }

    /// Which of the eight words from `first` on are below `key`, a bit for each; each is loaded by
    /// itself, as by [`Words::load`].
    ///
    /// # Panics
    ///
    /// When the last is out of bounds.
    #[inline(always)]
    fn below(self, words: &Words<u64>, first: usize, key: u64) -> u8 {
        let last = first.checked_add(8).filter(|&end| end <= words.len);
        assert!(last.is_some(), "word out of bounds");
        // SAFETY: `first + 8 <= len` (just asserted), and so inside what is mapped, by invariant 1 of `Words`.
        let first = unsafe { words.base.as_ptr().cast::<u64>().add(first) };
        // SAFETY: eight words lie there; the rest as in `gather`.
        unsafe { self.below_from(first, key) }
    }

    /// Which of the eight 16-bit parts of the two words from `first` on, a word's low one first, are below `key`: two bits
    /// for each. Each word's part is loaded by itself.
    ///
    /// # Panics
    ///
    /// When the second is out of bounds.
    #[inline(always)]
    fn parts_below(self, words: &Words<u64>, first: usize, key: u16) -> u16 {
        let last = first.checked_add(2).filter(|&end| end <= words.len);
        assert!(last.is_some(), "word out of bounds");
        // SAFETY: `first + 2 <= len` (just asserted), and so inside what is mapped, by invariant 1 of `Words`.
        let first = unsafe { words.base.as_ptr().cast::<u64>().add(first) };
        // SAFETY: two words lie there; the rest as in `gather`.
        unsafe { self.parts_below_from(first, key) }
    }
}

impl<V: Vectors> Wide for V {}

mod vectors {
    use super::LANES;

    /// What a kind of vectors does. Nothing outside this file can name it, and so none outside has a kind of its own.
    pub trait Vectors: Copy {
        /// # Safety
        ///
        /// Each of `at` is the number of a word behind `base`, and less than 2^31.
        unsafe fn gather_from(self, base: *const u32, at: &[u32; LANES]) -> [u32; LANES];

        /// # Safety
        ///
        /// Eight words lie from `first` on.
        unsafe fn below_from(self, first: *const u64, key: u64) -> u8;

        /// # Safety
        ///
        /// Two words lie from `first` on.
        unsafe fn parts_below_from(self, first: *const u64, key: u16) -> u16;
    }
}

/// Assembly, not intrinsics: to the compiler those are plain reads, which a concurrent atomic store
/// must not meet. To the machine each aligned word is one access either way (AMD64 manual, volume 2,
/// §7.3.2), and every load of x86 is an Acquire. The compiler moves no load that follows a word found
/// here before it, as that one's address depends on it.
#[cfg(all(target_arch = "x86_64", not(any(miri, manylane_loom, manylane_counted))))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::vectors::Vectors;
    use super::{Batch, LANES};

    /// A kind of vectors, by the features that the machine must have: those looked for are those compiled for.
    macro_rules! vectors {
        ($(#[$meta:meta])* $name:ident: $($feature:tt)+) => {
            $(#[$meta])*
            #[derive(Clone, Copy)]
            pub struct $name(());

            impl $name {
                /// Looks whether the machine has them.
                #[inline]
                pub fn detect() -> Option<$name> {
                    (true $(&& is_x86_feature_detected!($feature))+).then_some($name(()))
                }

                /// Runs `batch` so.
                #[inline]
                pub fn run<B: Batch>(self, batch: B) -> B::Output {
                    #[target_feature($(enable = $feature),+)]
                    fn run<B: Batch>(wide: $name, batch: B) -> B::Output {
                        batch.wide(wide)
                    }
                    // SAFETY: the machine has the features: `detect` alone makes a `self`.
                    unsafe { run(self, batch) }
                }
            }
        };
    }

    vectors! {
        /// 16 lanes of 32 bits.
        Avx512: "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx2" "bmi1" "bmi2" "lzcnt" "popcnt"
    }

    vectors! {
        /// 8 lanes of 32 bits.
        Avx2: "avx2" "bmi1" "bmi2" "lzcnt" "popcnt"
    }

    impl Vectors for Avx512 {
        #[inline(always)]
        unsafe fn gather_from(self, base: *const u32, at: &[u32; LANES]) -> [u32; LANES] {
            /// # Safety
            ///
            /// That of `gather_from`.
            #[inline]
            #[target_feature(enable = "avx512f")]
            unsafe fn gather(base: *const u32, at: &[u32; LANES]) -> [u32; LANES] {
                let mut words = [0; LANES];
                // SAFETY: `at` has 64 bytes; the load needs no alignment.
                let at: __m512i = unsafe { _mm512_loadu_si512(at.as_ptr().cast()) };
                let mut gathered = _mm512_setzero_si512();
                // SAFETY: reads 16 words behind `base`, which are there, by the caller's debt.
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
            // SAFETY: the machine has AVX-512F: `self` proves it; the rest is the caller's debt.
            unsafe { gather(base, at) }
        }

        #[inline(always)]
        unsafe fn below_from(self, first: *const u64, key: u64) -> u8 {
            /// # Safety
            ///
            /// That of `below_from`.
            #[inline]
            #[target_feature(enable = "avx512f,avx512dq")]
            unsafe fn below(first: *const u64, key: u64) -> u8 {
                let key = _mm512_set1_epi64(key as i64);
                let below: u8;
                // SAFETY: reads eight words from `first` on, which are there, by the caller's debt.
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
            // SAFETY: the machine has AVX-512F and DQ: `self` proves it; the rest is the caller's debt.
            unsafe { below(first, key) }
        }

        #[inline(always)]
        unsafe fn parts_below_from(self, first: *const u64, key: u16) -> u16 {
            // SAFETY: the machine has AVX2: `self` proves it; the rest is the caller's debt.
            unsafe { parts_below(first, key) }
        }
    }

    impl Vectors for Avx2 {
        #[inline(always)]
        unsafe fn gather_from(self, base: *const u32, at: &[u32; LANES]) -> [u32; LANES] {
            /// # Safety
            ///
            /// That of `gather_from`.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn gather(base: *const u32, at: &[u32; LANES]) -> [u32; LANES] {
                let mut words = [0; LANES];
                for (words, at) in
                    words.as_chunks_mut::<8>().0.iter_mut().zip(at.as_chunks::<8>().0)
                {
                    // SAFETY: `at` has 32 bytes; the load needs no alignment.
                    let at: __m256i = unsafe { _mm256_loadu_si256(at.as_ptr().cast()) };
                    let mut gathered = _mm256_setzero_si256();
                    // SAFETY: reads eight words behind `base`, which are there, by the caller's debt.
                    unsafe {
                        asm!(
                            "vpcmpeqd {all}, {all}, {all}",
                            "vpgatherdd {gathered}, [{base} + {at}*4], {all}",
                            all = out(ymm_reg) _,
                            gathered = inout(ymm_reg) gathered,
                            base = in(reg) base,
                            at = in(ymm_reg) at,
                            options(readonly, nostack, preserves_flags),
                        );
                    }
                    // SAFETY: `words` has 32 bytes; the store needs no alignment.
                    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), gathered) };
                }
                words
            }
            // SAFETY: the machine has AVX2: `self` proves it; the rest is the caller's debt.
            unsafe { gather(base, at) }
        }

        #[inline(always)]
        unsafe fn below_from(self, first: *const u64, key: u64) -> u8 {
            /// # Safety
            ///
            /// That of `below_from`.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn below(first: *const u64, key: u64) -> u8 {
                // Comparisons are of signed numbers: with the highest bit turned they have the order of unsigned ones.
                let sign = _mm256_set1_epi64x(i64::MIN);
                let key = _mm256_set1_epi64x(key as i64 ^ i64::MIN);
                let (low, high): (u32, u32);
                // SAFETY: reads eight words from `first` on, which are there, by the caller's debt.
                unsafe {
                    asm!(
                        "vpxor {words}, {sign}, ymmword ptr [{first}]",
                        "vpcmpgtq {words}, {key}, {words}",
                        "vmovmskpd {low:e}, {words}",
                        "vpxor {words}, {sign}, ymmword ptr [{first} + 32]",
                        "vpcmpgtq {words}, {key}, {words}",
                        "vmovmskpd {high:e}, {words}",
                        words = out(ymm_reg) _,
                        low = out(reg) low,
                        high = out(reg) high,
                        key = in(ymm_reg) key,
                        sign = in(ymm_reg) sign,
                        first = in(reg) first,
                        options(readonly, nostack, preserves_flags),
                    );
                }
                (low | high << 4) as u8
            }
            // SAFETY: the machine has AVX2: `self` proves it; the rest is the caller's debt.
            unsafe { below(first, key) }
        }

        #[inline(always)]
        unsafe fn parts_below_from(self, first: *const u64, key: u16) -> u16 {
            // SAFETY: the machine has AVX2: `self` proves it; the rest is the caller's debt.
            unsafe { parts_below(first, key) }
        }
    }

    /// # Safety
    ///
    /// That of `parts_below_from`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn parts_below(first: *const u64, key: u16) -> u16 {
        // As in `below` of AVX2.
        let sign = _mm_set1_epi16(i16::MIN);
        let key = _mm_set1_epi16(key as i16 ^ i16::MIN);
        let below: u32;
        // SAFETY: reads two words from `first` on, which are there, by the caller's debt.
        unsafe {
            asm!(
                "vpxor {words}, {sign}, xmmword ptr [{first}]",
                "vpcmpgtw {words}, {key}, {words}",
                "vpmovmskb {below:e}, {words}",
                words = out(xmm_reg) _,
                below = out(reg) below,
                key = in(xmm_reg) key,
                sign = in(xmm_reg) sign,
                first = in(reg) first,
                options(readonly, nostack, preserves_flags),
            );
        }
        below as u16
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::words::WordsMut;

    struct Sum<'a>(&'a Words<u32>, &'a Words<u64>, [u32; LANES]);

    impl Batch for Sum<'_> {
        type Output = ([u32; LANES], u8, u16);

        fn scalar(self) -> Self::Output {
            let below = (0..8).map(|word| u8::from(self.1.load(8 + word) < 20) << word).sum();
            let part = |at: usize| (self.1.load(12 + at / 4) >> (16 * (at % 4))) as u16;
            let parts = (0..8).map(|at| (u16::from(part(at) < 20) * 3) << (2 * at)).sum();
            (self.2.map(|at| self.0.load(at as usize)), below, parts)
        }

        #[inline(always)]
        fn wide(self, wide: impl Wide) -> Self::Output {
            (
                wide.gather(self.0, &self.2),
                wide.below(self.1, 8, 20),
                wide.parts_below(self.1, 12, 20),
            )
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
        // Of 1 << 63 and 0, all parts but the first word's highest are below.
        let expected = (at.map(|at| at * 7), 0b0110_0001, 0xff3f);
        assert_eq!(Sum(&one, &other, at).scalar(), expected);
        assert_eq!(dispatch(Sum(&one, &other, at)), expected);
        // Also where `dispatch` takes the wider ones.
        #[cfg(all(target_arch = "x86_64", not(any(miri, manylane_counted))))]
        if let Some(wide) = x86::Avx2::detect() {
            assert_eq!(wide.run(Sum(&one, &other, at)), expected);
        }
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
