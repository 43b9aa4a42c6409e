//! What is known of some bytes, bit by bit: the registers of a rule, and the headers of a class of packets.

use std::cmp::Ordering;

/// Whether a condition holds for the packets of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// For all.
    Yes,
    /// For none.
    No,
    /// Neither is known. `asks`: the addresses, ports or mark of a flow would tell.
    Maybe { asks: bool },
}

impl Truth {
    pub(super) fn of(is_so: bool) -> Truth {
        if is_so { Truth::Yes } else { Truth::No }
    }

    pub(super) fn not(self) -> Truth {
        match self {
            Truth::Yes => Truth::No,
            Truth::No => Truth::Yes,
            maybe @ Truth::Maybe { .. } => maybe,
        }
    }

    pub(super) fn xor(self, inverts: bool) -> Truth {
        if inverts { self.not() } else { self }
    }

    pub(super) fn and(self, other: Truth) -> Truth {
        match (self, other) {
            (Truth::No, _) | (_, Truth::No) => Truth::No,
            (Truth::Yes, truth) | (truth, Truth::Yes) => truth,
            (Truth::Maybe { asks: one }, Truth::Maybe { asks: another }) => {
                Truth::Maybe { asks: one | another }
            }
        }
    }

    pub(super) fn or(self, other: Truth) -> Truth {
        self.not().and(other.not()).not()
    }
}

/// Some bytes, each bit known or not. The bytes lie in place: a question allocates no memory for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    /// 0 where a bit is not known.
    value: [u8; BYTES],
    known: [u8; BYTES],
    /// A flow would tell these bytes, the first by the lowest bit.
    asked: u64,
}

/// A part of them, or bytes that are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'b> {
    value: &'b [u8],
    known: &'b [u8],
    asked: u64,
}

impl Bits {
    /// Without a known bit.
    pub(super) const UNKNOWN: Bits = Bits { value: [0; BYTES], known: [0; BYTES], asked: 0 };

    /// Makes bytes known. Those that do not fit are left out.
    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) {
        let Some(room) = self.value.get_mut(at..) else { return };
        let length = bytes.len().min(room.len());
        room[..length].copy_from_slice(&bytes[..length]);
        self.known[at..at + length].fill(0xff);
        self.asked &= !mask(at, length);
    }

    /// Makes these bits of one byte known.
    pub(super) fn fix(&mut self, at: usize, value: u8, known: u8) {
        self.known[at] |= known;
        self.value[at] = self.value[at] & !known | value & known;
    }

    /// Makes bytes unknown; `asks`: a flow would tell them.
    pub(super) fn forget(&mut self, at: usize, length: usize, asks: bool) {
        let Some(room) = self.value.get_mut(at..) else { return };
        let length = length.min(room.len());
        room[..length].fill(0);
        self.known[at..at + length].fill(0);
        match asks {
            true => self.asked |= mask(at, length),
            false => self.asked &= !mask(at, length),
        }
    }

    /// Copies bytes, as far as they fit.
    pub(super) fn put(&mut self, at: usize, other: Part<'_>) {
        let Some(room) = self.value.get_mut(at..) else { return };
        let length = other.len().min(room.len());
        room[..length].copy_from_slice(&other.value[..length]);
        self.known[at..at + length].copy_from_slice(&other.known[..length]);
        self.asked = self.asked & !mask(at, length)
            | other.asked.checked_shl(at as u32).unwrap_or(0) & mask(at, length);
    }

    /// `(value & mask) ^ xor`, byte by byte. What `mask` or `xor` lacks is 0.
    pub(super) fn mask_xor(&mut self, at: usize, length: usize, mask: &[u8], xor: &[u8]) {
        let end = at.saturating_add(length).min(BYTES);
        for (number, at) in (at..end).enumerate() {
            let of = |bytes: &[u8]| bytes.get(number).copied().unwrap_or(0);
            self.known[at] |= !of(mask);
            self.value[at] = ((self.value[at] & of(mask)) ^ of(xor)) & self.known[at];
        }
    }

    /// Turns each `size` bytes round, where the machine's order is not the network's.
    pub(super) fn swap(&mut self, at: usize, length: usize, size: usize) {
        let end = at.saturating_add(length);
        if cfg!(target_endian = "big") || size < 2 || end > BYTES {
            return;
        }
        self.value[at..end].chunks_exact_mut(size).for_each(<[u8]>::reverse);
        self.known[at..end].chunks_exact_mut(size).for_each(<[u8]>::reverse);
        let asked = self.asked;
        for word in (at..=end - size).step_by(size) {
            for byte in 0..size {
                let is_asked = asked >> (word + size - 1 - byte) & 1;
                self.asked = self.asked & !(1 << (word + byte)) | is_asked << (word + byte);
            }
        }
    }

    /// The bytes from `at`; `None` where one of them is missing.
    pub(super) fn part(&self, at: usize, length: usize) -> Option<Part<'_>> {
        let range = at..at.checked_add(length)?;
        Some(Part {
            value: self.value.get(range.clone())?,
            known: self.known.get(range)?,
            asked: self.asked.checked_shr(at as u32).unwrap_or(0),
        })
    }
}

/// The bits of `length` bytes from `at`.
fn mask(at: usize, length: usize) -> u64 {
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    ones.checked_shl(at as u32).unwrap_or(0)
}

impl<'b> Part<'b> {
    pub(super) fn len(&self) -> usize {
        self.value.len()
    }

    /// The bytes, if all bits of them are known.
    pub(super) fn bytes(&self) -> Option<&'b [u8]> {
        self.known.iter().all(|&byte| byte == 0xff).then_some(self.value)
    }

    /// Some of the bytes; `None` where one is missing.
    pub(super) fn part(&self, at: usize, length: usize) -> Option<Part<'b>> {
        let range = at..at.checked_add(length)?;
        let value = self.value.get(range.clone())?;
        Some(Part {
            value,
            known: &self.known[range],
            asked: self.asked.checked_shr(at as u32).unwrap_or(0),
        })
    }

    pub(super) fn maybe(&self) -> Truth {
        let open = self.known.iter().enumerate().filter(|(_, known)| **known != 0xff);
        let asks = open.into_iter().any(|(at, _)| self.asked >> at & 1 != 0);
        Truth::Maybe { asks }
    }

    fn known_or_maybe(&self) -> Truth {
        if self.bytes().is_some() { Truth::Yes } else { self.maybe() }
    }

    /// Whether these are the bytes.
    pub(super) fn equal(&self, data: &[u8]) -> Truth {
        if data.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        let bytes = self.value.iter().zip(self.known).zip(data);
        let differs =
            bytes.fold(0, |differs, ((value, known), data)| differs | (value ^ data) & known);
        if differs != 0 { Truth::No } else { self.known_or_maybe() }
    }

    /// Whether these are the bytes under a mask.
    pub(super) fn equal_masked(&self, mask: &[u8], data: &[u8]) -> Truth {
        if data.len() != self.len() || mask.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        let mut bits = Bits::UNKNOWN;
        bits.put(0, *self);
        bits.mask_xor(0, self.len(), mask, &[]);
        bits.part(0, self.len()).map_or(Truth::Maybe { asks: false }, |part| part.equal(data))
    }

    /// Whether the bytes lie between these, both included, the first byte counting most.
    pub(super) fn between(&self, low: &[u8], high: &[u8]) -> Truth {
        self.at_least(low).and(self.at_most(high))
    }

    pub(super) fn at_least(&self, low: &[u8]) -> Truth {
        if low.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        if self.value >= low {
            Truth::Yes
        } else if self.compare_most(low) == Ordering::Less {
            Truth::No
        } else {
            self.maybe()
        }
    }

    pub(super) fn at_most(&self, high: &[u8]) -> Truth {
        if high.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        if self.value > high {
            Truth::No
        } else if self.compare_most(high) != Ordering::Greater {
            Truth::Yes
        } else {
            self.maybe()
        }
    }

    /// The greatest bytes that these may be, against others.
    fn compare_most(&self, other: &[u8]) -> Ordering {
        let most = self.value.iter().zip(self.known).map(|(value, known)| value | !known);
        most.cmp(other.iter().copied())
    }
}

/// 16 registers of 4 bytes; the headers of a packet are shorter.
const BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes with some known bits; a flow would tell the others.
    fn bits(value: &[u8], known: &[u8], asks: bool) -> Bits {
        let mut bits = Bits::UNKNOWN;
        bits.forget(0, value.len(), asks);
        (0..value.len()).for_each(|at| bits.fix(at, value[at], known[at]));
        bits
    }

    fn whole(bits: &Bits, length: usize) -> Part<'_> {
        bits.part(0, length).expect("it has them")
    }

    #[test]
    fn comparisons_know_what_the_known_bits_decide() {
        let flags = bits(&[0x10], &[0x37], false);
        assert_eq!(whole(&flags, 1).equal(&[0x02]), Truth::No);
        assert_eq!(whole(&flags, 1).equal(&[0x18]), Truth::Maybe { asks: false });
        assert_eq!(whole(&flags, 1).equal_masked(&[0x17], &[0x10]), Truth::Yes);
        let mut turned = flags;
        turned.mask_xor(0, 1, &[0x17], &[0x01]);
        assert_eq!(whole(&turned, 1).equal(&[0x11]), Truth::Yes);
        let port = bits(&[0, 0], &[0, 0], true);
        assert_eq!(whole(&port, 2).between(&[0, 0], &[255, 255]), Truth::Yes);
        assert_eq!(whole(&port, 2).between(&[0, 1], &[255, 255]), Truth::Maybe { asks: true });
        let high = bits(&[4, 0], &[0xff, 0], true);
        assert_eq!(whole(&high, 2).between(&[4, 0], &[4, 255]), Truth::Yes);
        assert_eq!(whole(&high, 2).between(&[3, 0], &[3, 255]), Truth::No);
        assert_eq!(whole(&high, 2).at_most(&[4, 7]), Truth::Maybe { asks: true });
        assert_eq!(whole(&high, 2).at_least(&[4, 1]), Truth::Maybe { asks: true });
        assert_eq!(whole(&high, 2).equal(&[4]), Truth::Maybe { asks: false });
    }

    #[test]
    fn bytes_are_asked_for_one_by_one() {
        let mut bits = Bits::UNKNOWN;
        bits.forget(4, 4, true);
        assert_eq!(bits.part(0, 4).expect("it has them").maybe(), Truth::Maybe { asks: false });
        assert_eq!(bits.part(2, 4).expect("it has them").maybe(), Truth::Maybe { asks: true });
        bits.set(4, &[1, 2, 3]);
        assert_eq!(bits.part(4, 3).and_then(|part| part.bytes()), Some(&[1, 2, 3][..]));
        assert_eq!(bits.part(4, 4).expect("it has them").maybe(), Truth::Maybe { asks: true });
        bits.swap(4, 4, 4);
        assert_eq!(bits.part(5, 3).and_then(|part| part.bytes()), Some(&[3, 2, 1][..]));
        assert_eq!(bits.part(4, 1).expect("it has them").maybe(), Truth::Maybe { asks: true });
        let copy = bits;
        bits.put(60, copy.part(4, 8).expect("it has them"));
        assert_eq!(bits.part(61, 3).and_then(|part| part.bytes()), Some(&[3, 2, 1][..]));
        assert_eq!(bits.part(60, 1).expect("it has them").maybe(), Truth::Maybe { asks: true });
        assert!(bits.part(60, 5).is_none() && bits.part(64, 0).is_some());
        // What does not fit is left out.
        bits.set(63, &[7, 8]);
        bits.set(64, &[9]);
        bits.forget(65, 1, true);
        bits.put(64, copy.part(4, 1).expect("it has it"));
        assert_eq!(bits.part(63, 1).and_then(|part| part.bytes()), Some(&[7][..]));
    }

    #[test]
    fn truths_combine() {
        let (asks, never) = (Truth::Maybe { asks: true }, Truth::Maybe { asks: false });
        assert_eq!(asks.and(Truth::No), Truth::No);
        assert_eq!(asks.and(never), asks);
        assert_eq!(never.or(Truth::Yes), Truth::Yes);
        assert_eq!(never.xor(true), never);
    }
}
