//! Bytes that the receiver can compute: one seed gives the same bytes at both ends.
//!
//! Comparing every byte finds more than a hash would: also *where* the first wrong byte is.

/// An endless stream of bytes (xorshift64, Marsaglia 2003, "Xorshift RNGs").
#[derive(Clone, Debug)]
pub struct Content {
    state: u64,
}

impl Content {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Content {
        // Neighbouring seeds must not begin alike, and a state of zero would stay there.
        Content { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63 }
    }

    /// Writes the next bytes of the stream. Of the last eight, the rest is lost: only the last block
    /// of a stream may be of a length that is not a multiple of eight.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            eight.copy_from_slice(&self.state.to_le_bytes()[..eight.len()]);
        }
    }

    /// The next bytes of the stream, compared: the index of the first that is different. `scratch` is
    /// at least as long.
    pub fn difference(&mut self, bytes: &[u8], scratch: &mut [u8]) -> Option<usize> {
        let expected = &mut scratch[..bytes.len()];
        self.fill(expected);
        if bytes == expected {
            return None;
        }
        bytes.iter().zip(expected).position(|(got, wanted)| got != wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_make_the_same_bytes_and_see_one_that_differs() {
        let mut sent = [0; 1001];
        Content::new(7).fill(&mut sent);
        let mut scratch = [0; 1001];
        assert_eq!(Content::new(7).difference(&sent, &mut scratch), None);
        sent[1000] ^= 1;
        assert_eq!(Content::new(7).difference(&sent, &mut scratch), Some(1000));
    }

    #[test]
    fn blocks_continue_each_other() {
        let mut whole = [0; 64];
        Content::new(1).fill(&mut whole);
        let mut parts = [0; 64];
        let mut content = Content::new(1);
        let (one, other) = parts.split_at_mut(24);
        content.fill(one);
        content.fill(other);
        assert_eq!(whole, parts);
    }

    #[test]
    fn seeds_begin_differently() {
        let first = |seed| {
            let mut bytes = [0; 8];
            Content::new(seed).fill(&mut bytes);
            bytes
        };
        assert_ne!(first(0), first(1));
        assert_ne!(first(1), first(2));
    }
}
