//! TCP (RFC 9293 §3.1): as much as a forwarder wants to know.

use super::be16;
use super::checksum::Sum;

/// A header without options.
pub const HEADER_LEN: usize = 20;

/// Where the checksum stands in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// Flags, as in the header's 14th byte.
pub mod flags {
    /// The sender has no more to send.
    pub const FIN: u8 = 0x01;
    /// The connection opens.
    pub const SYN: u8 = 0x02;
    /// The connection is broken.
    pub const RST: u8 = 0x04;
    /// What is there so far should be given to the receiver.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The congestion window was reduced (RFC 3168 §6.1.2).
    pub const CWR: u8 = 0x80;
}

/// A checked segment: its data offset fits its header and the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    segment: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// The segment in `bytes`, all of them: TCP has no length of its own.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let payload = bytes.get(header_len..)?;
        (header_len >= HEADER_LEN).then_some(View { header, segment: bytes, payload })
    }

    /// The port it is from.
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.header[0], self.header[1])
    }

    /// The port it is for.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.header[2], self.header[3])
    }

    /// The number of its first byte.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// Its [`flags`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.header[13]
    }

    /// The checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header[16], self.header[17])
    }

    /// What follows the header and its options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is right, given the sum of the pseudo-header.
    #[inline]
    pub fn has_valid_checksum(&self, pseudo_header: Sum) -> bool {
        pseudo_header.plus(self.segment).is_valid()
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn data_offsets_that_do_not_fit_are_refused() {
        for (words, bytes, fits) in [
            (5, 20, true),
            (5, 21, true),
            (6, 24, true),
            (4, 24, false),
            (0, 24, false),
            (6, 23, false),
            (15, 59, false),
            (15, 60, true),
            (5, 19, false),
        ] {
            let mut segment = [0; 60];
            segment[12] = words << 4;
            assert_eq!(View::checked(&segment[..bytes]).is_some(), fits, "{words} in {bytes}");
        }
    }

    #[test]
    fn a_segment_is_read() {
        let mut segment = [0; 26];
        segment[..14].copy_from_slice(&[0, 80, 0x1f, 0x90, 1, 2, 3, 4, 0, 0, 0, 0, 6 << 4, 0x12]);
        let view = View::checked(&segment).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (80, 8080));
        assert_eq!(view.sequence(), 0x0102_0304);
        assert_eq!(view.flags(), flags::SYN | flags::ACK);
        assert_eq!(view.payload().len(), 2);
    }
}
