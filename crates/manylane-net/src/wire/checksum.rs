//! Ones' complement sums (RFC 1071) and their incremental update (RFC 1624).
//!
//! # The two zeros
//!
//! In ones' complement 0x0000 and 0xffff are the same number, zero. Adding bytes tells them apart
//! anyway: a sum is 0x0000 only if *every* byte was zero, and what a checksum covers never is (an IP
//! header has its version, a pseudo-header its protocol). So a sum folds to 0x0001..=0xffff, and its
//! complement, the checksum, is 0x0000..=0xfffe. From this follows:
//!
//! - A checksum computed in full is never 0xffff. UDP sends 0xffff for 0x0000, because there 0x0000
//!   says "no checksum" (RFC 768); that is the UDP writer's job, not [`Sum::finish`]'s.
//! - [`update16`] gives *the same bits* as computing in full, if what it starts from is not 0xffff:
//!   `!checksum` is then not 0x0000, so the sum in RFC 1624's equation 3 is not either. (Equation 2,
//!   of RFC 1141, gives 0xffff where the full sum gives 0x0000.)
//! - Started from 0xffff, it gives the right number, perhaps as the other zero. A receiver that verifies by summing, as
//!   [`Sum::is_valid`] does, accepts both.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A ones' complement sum in the making.
///
/// Kept in the machine's byte order: the sum of swapped words is the swapped sum (RFC 1071 §2 B), so
/// only [`Sum::fold`] and [`Sum::finish`] swap, once. At most 2^33.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum over `bytes`, an odd last one taken as the high half of a word.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum::default().plus(bytes)
    }

    /// The sum of the IPv4 pseudo-header (RFC 9293 §3.1, RFC 768). `len` counts the transport header
    /// and what follows it.
    #[inline]
    pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Sum {
        let addresses = u64::from(u32::from_ne_bytes(source.octets()))
            + u64::from(u32::from_ne_bytes(destination.octets()));
        Sum(reduce(addresses)).word(protocol.into()).word(len)
    }

    /// The sum of the IPv6 pseudo-header (RFC 8200 §8.1). `len` counts the transport header and what
    /// follows it.
    #[inline]
    pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
        let [a, b, c, d] = len.to_be_bytes();
        Sum::of(&source.octets())
            .plus(&destination.octets())
            .word(protocol.into())
            .word(u16::from_be_bytes([a, b]))
            .word(u16::from_be_bytes([c, d]))
    }

    /// Adds `bytes`. Only the last piece of a sum may have an odd length.
    #[inline]
    #[must_use]
    pub fn plus(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0;
        // 8192 chunks of less than 2^33 each stay below 2^46, so nothing overflows, and the inner
        // loop needs no carry: the compiler does it with vectors.
        for block in bytes.chunks(8 * 8192) {
            let (chunks, rest) = block.as_chunks::<8>();
            for chunk in chunks {
                sum += halves(*chunk);
            }
            let mut last = [0; 8];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            sum = reduce(sum + halves(last));
        }
        Sum(sum)
    }

    /// Adds `bytes` that stand `at` bytes behind the beginning of what is summed: for what lies in parts
    /// of any length. At an odd place each byte is in the other half of its word, and a sum of swapped
    /// words is the swapped sum (RFC 1071 §2 B).
    #[inline]
    #[must_use]
    pub fn plus_at(self, at: usize, bytes: &[u8]) -> Sum {
        if at.is_multiple_of(2) {
            return self.plus(bytes);
        }
        self.and(Sum(Sum::of(bytes).fold().swap_bytes().to_be().into()))
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub fn and(self, other: Sum) -> Sum {
        Sum(reduce(self.0 + other.0))
    }

    /// Adds one 16-bit word.
    #[inline]
    #[must_use]
    pub fn word(self, word: u16) -> Sum {
        Sum(reduce(self.0 + u64::from(word.to_be())))
    }

    /// The sum in 16 bits, *not* inverted.
    #[inline]
    pub fn fold(self) -> u16 {
        let sum = reduce(reduce(self.0)); // Below 2^32 now, in two halves.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(sum as u16)
    }

    /// The checksum: the inverted sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// Whether bytes that contain their own checksum sum up as they must.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// `checksum` after a word it covers changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold32(!checksum as u32 + !old as u32 + new as u32)
}

/// `checksum` after two words it covers, on an even offset, changed from `old` to `new`.
#[inline]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let old = !old;
    let sum = !checksum as u32 + (old >> 16) + (old & 0xffff) + (new >> 16) + (new & 0xffff);
    !fold32(sum)
}

const fn fold32(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The same number in fewer bits; zero only for zero.
#[inline(always)]
const fn reduce(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[inline(always)]
const fn halves(chunk: [u8; 8]) -> u64 {
    reduce(u64::from_ne_bytes(chunk))
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes).finish(), !0xddf2);
    }

    /// RFC 1624 §4: a header whose checksum was 0xdd2f, a word that goes from 0x5555 to 0x3285.
    #[test]
    fn the_example_of_rfc_1624_comes_out() {
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn only_all_zero_bytes_sum_to_zero() {
        assert_eq!(Sum::of(&[]).fold(), 0);
        assert_eq!(Sum::of(&[0; 40]).fold(), 0);
        assert_eq!(Sum::of(&[0xff; 40]).fold(), 0xffff);
        assert_eq!(Sum::of(&[0xff, 0xfe, 0x00, 0x01]).fold(), 0xffff);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_a_word() {
        assert_eq!(Sum::of(&[0x12]).fold(), 0x1200);
        assert_eq!(Sum::of(&[0, 0, 0, 0, 0, 0, 0, 0, 0x12]).fold(), 0x1200);
    }

    #[test]
    fn more_bytes_than_any_packet_has_do_not_overflow() {
        let bytes = vec![0xff; 300_001];
        assert_eq!(Sum::of(&bytes).fold(), reference(&bytes));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_sum_is_the_simple_sum(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(Sum::of(&bytes).fold(), reference(&bytes));
        }

        #[test]
        fn a_sum_can_be_made_in_pieces(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..100usize) {
            let cut = (2 * cut).min(bytes.len());
            let (front, back) = bytes.split_at(cut);
            prop_assert_eq!(Sum::of(front).plus(back).fold(), Sum::of(&bytes).fold());
        }

        /// Parts of any length, odd ones too, as a packet's frames are.
        #[test]
        fn a_sum_can_be_made_of_parts(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        ) {
            let (mut sum, mut at) = (Sum::default(), 0);
            for part in &parts {
                sum = sum.plus_at(at, part);
                at += part.len();
            }
            prop_assert_eq!(sum.fold(), reference(&parts.concat()));
        }

        #[test]
        fn pseudo_headers_are_the_bytes_the_rfcs_draw(
            a: [u8; 16], b: [u8; 16], protocol: u8, len: u16,
        ) {
            let v4 = [&a[..4], &b[..4], &[0, protocol], &len.to_be_bytes()].concat();
            let sum = Sum::pseudo_v4(first4(a).into(), first4(b).into(), protocol, len);
            prop_assert_eq!(sum.fold(), reference(&v4));

            let len = u32::from(len) * 7;
            let v6 = [&a[..], &b[..], &len.to_be_bytes(), &[0, 0, 0, protocol]].concat();
            prop_assert_eq!(Sum::pseudo_v6(a.into(), b.into(), protocol, len).fold(), reference(&v6));
        }

        /// A version in front, as in every real header: see "The two zeros".
        #[test]
        fn an_update_gives_the_bits_of_the_full_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 20..64), at in 1..8usize, new: [u8; 4],
        ) {
            bytes[0] = 0x45;
            let before = Sum::of(&bytes).finish();
            let old = [bytes[2 * at], bytes[2 * at + 1], bytes[2 * at + 2], bytes[2 * at + 3]];

            bytes[2 * at..2 * at + 2].copy_from_slice(&new[..2]);
            let one = update16(
                before,
                u16::from_be_bytes([old[0], old[1]]),
                u16::from_be_bytes([new[0], new[1]]),
            );
            prop_assert_eq!(one, Sum::of(&bytes).finish());

            bytes[2 * at..2 * at + 4].copy_from_slice(&new);
            let two = update32(before, u32::from_be_bytes(old), u32::from_be_bytes(new));
            prop_assert_eq!(two, Sum::of(&bytes).finish());
        }

        #[test]
        fn an_update_from_either_zero_still_verifies(old: u16, word: u16, new: u16) {
            // `word` makes the sum of both a zero: 0xffff, or 0x0000 for the degenerate case.
            let word = if word % 2 == 0 { !old } else { word };
            for checksum in [Sum::default().word(old).word(word).finish(), 0xffff] {
                let valid = Sum::default().word(old).word(word).word(checksum).is_valid();
                let after = update16(checksum, old, new);
                if valid {
                    prop_assert!(Sum::default().word(new).word(word).word(after).fold() % 0xffff == 0);
                }
            }
        }
    }

    /// The definition, word by word.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn first4(bytes: [u8; 16]) -> [u8; 4] {
        [bytes[0], bytes[1], bytes[2], bytes[3]]
    }
}
