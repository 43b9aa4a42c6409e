//! What is known of some bytes, bit by bit: the registers of a rule, and the headers of a class of packets.

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

/// Some bytes, each bit known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    /// 0 where a bit is not known.
    value: Vec<u8>,
    known: Vec<u8>,
    /// A flow would tell this byte.
    asked: Vec<bool>,
}

impl Bits {
    /// Bytes without a known bit.
    pub(super) fn unknown(length: usize, asks: bool) -> Bits {
        Bits { value: vec![0; length], known: vec![0; length], asked: vec![asks; length] }
    }

    /// Bytes with all bits known.
    pub(super) fn known(value: &[u8]) -> Bits {
        Bits {
            value: value.to_vec(),
            known: vec![0xff; value.len()],
            asked: vec![false; value.len()],
        }
    }

    /// Bytes with the bits of `known` known, and no others.
    pub(super) fn partly(value: &[u8], known: &[u8]) -> Bits {
        let value = value.iter().zip(known).map(|(value, known)| value & known).collect();
        Bits { value, known: known.to_vec(), asked: vec![false; known.len()] }
    }

    /// These bytes, or unknown ones; `asks`: a flow would tell them.
    pub(super) fn or_asked(value: Option<&[u8]>, length: usize, asks: bool) -> Bits {
        value.map_or_else(|| Bits::unknown(length, asks), Bits::known)
    }

    /// Makes these bits of one byte known.
    pub(super) fn fix(&mut self, at: usize, value: u8, known: u8) {
        self.known[at] |= known;
        self.value[at] = self.value[at] & !known | value & known;
    }

    pub(super) fn len(&self) -> usize {
        self.value.len()
    }

    /// The bytes from `at`; `None` where one of them is missing.
    pub(super) fn part(&self, at: usize, length: usize) -> Option<Bits> {
        let range = at..at.checked_add(length)?;
        Some(Bits {
            value: self.value.get(range.clone())?.to_vec(),
            known: self.known.get(range.clone())?.to_vec(),
            asked: self.asked.get(range)?.to_vec(),
        })
    }

    /// Writes `other` at a place, as far as its bytes fit.
    pub(super) fn put(&mut self, at: usize, other: &Bits) {
        let room = self.len().saturating_sub(at).min(other.len());
        self.value[at..at + room].copy_from_slice(&other.value[..room]);
        self.known[at..at + room].copy_from_slice(&other.known[..room]);
        self.asked[at..at + room].copy_from_slice(&other.asked[..room]);
    }

    /// Filled up with zeroes to whole words of 4 bytes, as the kernel fills registers.
    pub(super) fn padded(mut self) -> Bits {
        let length = self.len().next_multiple_of(4);
        self.value.resize(length, 0);
        self.known.resize(length, 0xff);
        self.asked.resize(length, false);
        self
    }

    pub(super) fn mask_xor(&self, mask: &[u8], xor: &[u8]) -> Bits {
        let mut bits = self.clone();
        for at in 0..bits.len() {
            let (mask, xor) =
                (mask.get(at).copied().unwrap_or(0), xor.get(at).copied().unwrap_or(0));
            bits.known[at] |= !mask;
            bits.value[at] = ((bits.value[at] & mask) ^ xor) & bits.known[at];
        }
        bits
    }

    /// Each `size` bytes the other way round, where the machine's order is not the network's.
    pub(super) fn swapped(&self, size: usize) -> Bits {
        let mut bits = self.clone();
        if cfg!(target_endian = "little") && size > 1 {
            bits.value.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            bits.known.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            bits.asked.chunks_exact_mut(size).for_each(<[bool]>::reverse);
        }
        bits
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.iter().all(|&byte| byte == 0xff)
    }

    pub(super) fn maybe(&self) -> Truth {
        let open = self.known.iter().zip(&self.asked);
        Truth::Maybe { asks: open.into_iter().any(|(&known, &asked)| known != 0xff && asked) }
    }

    /// Whether these are the bytes.
    pub(super) fn equal(&self, data: &[u8]) -> Truth {
        if data.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        let differs = |at: usize| (self.value[at] ^ data[at]) & self.known[at] != 0;
        if (0..self.len()).any(differs) {
            Truth::No
        } else if self.is_known() {
            Truth::Yes
        } else {
            self.maybe()
        }
    }

    /// Whether the bytes lie between these, both included, the first byte counting most.
    pub(super) fn between(&self, low: &[u8], high: &[u8]) -> Truth {
        if low.len() != self.len() || high.len() != self.len() {
            return Truth::Maybe { asks: false };
        }
        let least = &self.value[..];
        let most: Vec<_> =
            self.value.iter().zip(&self.known).map(|(value, known)| value | !known).collect();
        if &most[..] < low || least > high {
            Truth::No
        } else if low <= least && &most[..] <= high {
            Truth::Yes
        } else {
            self.maybe()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_know_what_the_known_bits_decide() {
        let flags = Bits::partly(&[0x10], &[0x37]);
        assert_eq!(flags.equal(&[0x02]), Truth::No);
        assert_eq!(flags.equal(&[0x18]), Truth::Maybe { asks: false });
        assert_eq!(flags.mask_xor(&[0x17], &[0]).equal(&[0x10]), Truth::Yes);
        assert_eq!(flags.mask_xor(&[0x17], &[0x01]).equal(&[0x11]), Truth::Yes);
        let port = Bits::unknown(2, true);
        assert_eq!(port.between(&[0, 0], &[255, 255]), Truth::Yes);
        assert_eq!(port.between(&[0, 1], &[255, 255]), Truth::Maybe { asks: true });
        let high = Bits::partly(&[4, 0], &[0xff, 0]);
        assert_eq!(high.between(&[4, 0], &[4, 255]), Truth::Yes);
        assert_eq!(high.between(&[3, 0], &[3, 255]), Truth::No);
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
