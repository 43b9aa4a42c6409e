//! UDP (RFC 768).

use std::net::{SocketAddrV4, SocketAddrV6};

use super::checksum::Sum;
use super::{be16, protocol};

/// Ports, length and checksum.
pub const HEADER_LEN: usize = 8;

/// Where the checksum stands in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A checked datagram: its length fits its header and the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    datagram: &'a [u8],
}

impl<'a> View<'a> {
    /// The datagram in `bytes`, cut to its length.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let datagram = bytes.get(..be16(header[4], header[5]).into())?;
        (datagram.len() >= HEADER_LEN).then_some(View { header, datagram })
    }

    /// The port it is from; 0 if no answer is wanted.
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.header[0], self.header[1])
    }

    /// The port it is for.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.header[2], self.header[3])
    }

    /// The checksum as it stands; 0 for none, which IPv6 allows in tunnels only (RFC 6935).
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header[6], self.header[7])
    }

    /// Header and payload.
    #[inline]
    pub fn datagram(&self) -> &'a [u8] {
        self.datagram
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(HEADER_LEN..).unwrap_or_default()
    }

    /// Whether the checksum is right, given the sum of the pseudo-header. None at all is not right.
    #[inline]
    pub fn has_valid_checksum(&self, pseudo_header: Sum) -> bool {
        self.checksum() != 0 && pseudo_header.plus(self.datagram).is_valid()
    }
}

/// Writes the header in front of a payload that is already there: `datagram[8..]`.
pub fn emit_v4(
    datagram: &mut [u8],
    source: SocketAddrV4,
    destination: SocketAddrV4,
) -> Option<usize> {
    let len = u16::try_from(datagram.len()).ok()?;
    let pseudo = Sum::pseudo_v4(*source.ip(), *destination.ip(), protocol::UDP, len);
    emit(datagram, len, source.port(), destination.port(), pseudo)
}

/// As [`emit_v4`], over IPv6.
pub fn emit_v6(
    datagram: &mut [u8],
    source: SocketAddrV6,
    destination: SocketAddrV6,
) -> Option<usize> {
    let len = u16::try_from(datagram.len()).ok()?;
    let pseudo = Sum::pseudo_v6(*source.ip(), *destination.ip(), protocol::UDP, len.into());
    emit(datagram, len, source.port(), destination.port(), pseudo)
}

fn emit(
    datagram: &mut [u8],
    len: u16,
    source: u16,
    destination: u16,
    pseudo: Sum,
) -> Option<usize> {
    let header: &mut [u8; HEADER_LEN] = datagram.first_chunk_mut()?;
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[4..6].copy_from_slice(&len.to_be_bytes());
    header[6..].fill(0);
    let checksum = or_all_ones(pseudo.plus(datagram).finish());
    let field: &mut [u8; 2] = datagram.get_mut(CHECKSUM_OFFSET..)?.first_chunk_mut()?;
    *field = checksum.to_be_bytes();
    Some(HEADER_LEN)
}

/// The checksum as UDP sends it: 0 says "none", so zero is sent as the other zero.
#[inline]
pub const fn or_all_ones(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for (len, bytes, fits) in [
            (8, 8, true),
            (9, 9, true),
            (8, 9, true),
            (7, 8, false),
            (0, 8, false),
            (9, 8, false),
            (8, 7, false),
        ] {
            let mut datagram = [0, 1, 0, 2, 0, len, 0, 0, 0];
            datagram[5] = len;
            assert_eq!(View::checked(&datagram[..bytes]).is_some(), fits, "{len} in {bytes}");
        }
    }

    /// Found by counting up: the checksum passes through zero, which UDP must not send.
    #[test]
    fn a_zero_checksum_is_sent_as_all_ones() {
        let at = "192.0.2.1:7".parse().unwrap();
        let mut zeros = 0;
        for word in 0..=u16::MAX {
            let mut datagram = [0; 10];
            datagram[8..].copy_from_slice(&word.to_be_bytes());
            emit_v4(&mut datagram, at, at).unwrap();
            let view = View::checked(&datagram).unwrap();
            assert_ne!(view.checksum(), 0);
            zeros += u32::from(view.checksum() == 0xffff);
            assert!(view.has_valid_checksum(Sum::pseudo_v4(*at.ip(), *at.ip(), protocol::UDP, 10)));
        }
        assert!(zeros > 0, "the corner was not reached");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_emitted_is_read_back(
            a: [u8; 16], b: [u8; 16], from: u16, to: u16,
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut datagram = [&[0; 8], &payload[..]].concat();
            let (source, destination) = (SocketAddrV6::new(a.into(), from, 0, 0), SocketAddrV6::new(b.into(), to, 0, 0));
            prop_assert_eq!(emit_v6(&mut datagram, source, destination), Some(8));
            let view = View::checked(&datagram).unwrap();
            prop_assert_eq!((view.source_port(), view.destination_port()), (from, to));
            prop_assert_eq!(view.payload(), &payload);
            let pseudo = Sum::pseudo_v6(a.into(), b.into(), protocol::UDP, datagram.len() as u32);
            prop_assert!(view.has_valid_checksum(pseudo));
        }
    }
}
