//! What a packet of a stream carries to prove its identity and integrity.
//!
//! ```text
//! UDP payload:  [ magic 4 | stream 2 | flow 4 | sequence 8 | hash 4 | pattern ... ]    big-endian
//! ```
//!
//! The hash covers the stamp and what a forwarder must not change: addresses, ports, length. A UDP
//! checksum does not notice two words that changed places, nor a repair of a damaged packet; the hash
//! does. The pattern begins where the hash leads, so it is another one in every packet.

use super::StreamId;

/// Bytes of a stamp. With Ethernet, IPv4 and UDP in front, exactly a frame of 64.
pub(super) const STAMP_LEN: usize = 22;

/// Where in the stamp the part begins that differs from packet to packet of a flow.
pub(super) const VARIABLE_AT: usize = 10;

/// Sequence and hash.
pub(super) const VARIABLE_LEN: usize = STAMP_LEN - VARIABLE_AT;

/// "mlan".
const MAGIC: [u8; 4] = *b"mlan";

/// A packet's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) stream: StreamId,
    pub(super) flow: u32,
    /// Counts from 0 in each flow.
    pub(super) sequence: u64,
}

/// What the hash covers besides the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// IPv4 addresses as numbers, too.
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) ports: [u16; 2],
    pub(super) payload_len: u16,
}

/// The part of the hash that is the same for all packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

/// The hash of one packet; the upper half stands in the stamp, all of it begins the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash(u64);

impl Stamp {
    /// The stamp at the front of a UDP payload, with its hash unchecked. `None`: not stamped.
    #[inline]
    pub(super) fn read(payload: &[u8]) -> Option<(Stamp, u32)> {
        let bytes: &[u8; STAMP_LEN] = payload.first_chunk()?;
        let [m0, m1, m2, m3, s0, s1, f0, f1, f2, f3, sequence @ .., h0, h1, h2, h3] = *bytes;
        let stamp = Stamp {
            stream: StreamId(u16::from_be_bytes([s0, s1])),
            flow: u32::from_be_bytes([f0, f1, f2, f3]),
            sequence: u64::from_be_bytes(sequence),
        };
        let hash = u32::from_be_bytes([h0, h1, h2, h3]);
        ([m0, m1, m2, m3] == MAGIC).then_some((stamp, hash))
    }

    /// The stamp's bytes, with zeros where [`variable`] goes.
    pub(super) fn constant(stream: StreamId, flow: u32) -> [u8; STAMP_LEN] {
        let mut bytes = [0; STAMP_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&stream.0.to_be_bytes());
        bytes[6..10].copy_from_slice(&flow.to_be_bytes());
        bytes
    }
}

/// The bytes of sequence and hash.
#[inline(always)]
pub(super) fn variable(sequence: u64, hash: Hash) -> [u8; VARIABLE_LEN] {
    let [a, b, c, d, e, f, g, h] = sequence.to_be_bytes();
    let [i, j, k, l] = hash.stamped().to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

impl Key {
    /// The key of a flow. Each multiplier is odd, so no single changed bit of a field is lost.
    #[inline]
    pub(super) fn new(stream: StreamId, flow: u32, ends: &Ends) -> Key {
        let [source_port, destination_port] = ends.ports.map(u64::from);
        let words = [
            u64::from(stream.0) << 32 | u64::from(flow),
            (ends.source >> 64) as u64,
            ends.source as u64,
            (ends.destination >> 64) as u64,
            ends.destination as u64,
            source_port << 32 | destination_port << 16 | u64::from(ends.payload_len),
        ];
        let mut key = 0u64;
        for (index, word) in (1..).zip(words) {
            key = key.wrapping_add(word.wrapping_mul(GOLDEN.wrapping_mul(2 * index + 1)));
        }
        Key(mix(key))
    }

    /// The hash of the flow's packet with this sequence number.
    #[inline(always)]
    pub(super) fn hash(self, sequence: u64) -> Hash {
        Hash(mix(self.0.wrapping_add(sequence.wrapping_mul(GOLDEN))))
    }
}

impl Hash {
    /// What stands in the stamp.
    #[inline(always)]
    pub(super) fn stamped(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Fills what follows the stamp.
    #[inline(always)]
    pub(super) fn fill(self, rest: &mut [u8]) {
        let mut word = self.0;
        let (chunks, end) = rest.as_chunks_mut::<8>();
        for chunk in chunks {
            *chunk = word.to_be_bytes();
            word = word.wrapping_add(GOLDEN);
        }
        for (to, from) in end.iter_mut().zip(word.to_be_bytes()) {
            *to = from;
        }
    }

    /// Whether what follows the stamp is as [`Hash::fill`] wrote it.
    #[inline(always)]
    pub(super) fn filled(self, rest: &[u8]) -> bool {
        let mut word = self.0;
        let mut differs = 0;
        let (chunks, end) = rest.as_chunks::<8>();
        for chunk in chunks {
            differs |= u64::from_be_bytes(*chunk) ^ word;
            word = word.wrapping_add(GOLDEN);
        }
        differs == 0 && end.iter().zip(word.to_be_bytes()).all(|(is, was)| *is == was)
    }
}

/// 2^64 divided by the golden ratio, made odd.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014; constants of Stafford's variant 13). With `+= GOLDEN` between calls, the
/// generator itself.
#[inline(always)]
pub(super) const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { source: 1, destination: 2, ports: [3, 4], payload_len: 5 };

    #[test]
    fn what_was_stamped_is_read_back() {
        let stamp = Stamp { stream: StreamId(0x0102), flow: 0x0304_0506, sequence: 0x0708_090a };
        let hash = Key::new(stamp.stream, stamp.flow, &ENDS).hash(stamp.sequence);
        let mut bytes = Stamp::constant(stamp.stream, stamp.flow);
        bytes[VARIABLE_AT..].copy_from_slice(&variable(stamp.sequence, hash));
        assert_eq!(Stamp::read(&bytes), Some((stamp, hash.stamped())));
        assert_eq!(Stamp::read(&bytes[..STAMP_LEN - 1]), None);
        bytes[0] ^= 1;
        assert_eq!(Stamp::read(&bytes), None);
    }

    #[test]
    fn everything_covered_moves_the_hash() {
        let hash = |stream, flow, ends: Ends, sequence| {
            Key::new(StreamId(stream), flow, &ends).hash(sequence).stamped()
        };
        let mut hashes = vec![
            hash(0, 0, ENDS, 0),
            hash(1, 0, ENDS, 0),
            hash(0, 1, ENDS, 0),
            hash(0, 0, ENDS, 1),
            hash(0, 0, Ends { source: 2, destination: 1, ..ENDS }, 0),
            hash(0, 0, Ends { source: 1 | 1 << 127, ..ENDS }, 0),
            hash(0, 0, Ends { ports: [4, 3], ..ENDS }, 0),
            hash(0, 0, Ends { payload_len: 6, ..ENDS }, 0),
        ];
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 8);
    }

    #[test]
    fn a_pattern_knows_each_of_its_bytes() {
        let hash = Key::new(StreamId(7), 8, &ENDS).hash(9);
        for len in 0..40 {
            let mut rest = vec![0; len];
            hash.fill(&mut rest);
            assert!(hash.filled(&rest));
            for at in 0..len {
                rest[at] ^= 0x10;
                assert!(!hash.filled(&rest), "byte {at} of {len}");
                rest[at] ^= 0x10;
            }
        }
    }
}
