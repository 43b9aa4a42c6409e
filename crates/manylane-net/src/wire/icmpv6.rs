//! ICMPv6 (RFC 4443): the message, not the rules ([`crate::icmp`]). Neighbour discovery is in
//! [`super::nd`].

use std::net::Ipv6Addr;

use super::checksum::Sum;
use super::icmp::Echo;
use super::{be16, protocol};

/// Type, code, checksum, and four bytes that mean something else in each type.
pub const HEADER_LEN: usize = 8;

/// Message types.
pub mod kind {
    /// The packet could not be delivered; the code says why (RFC 4443 §3.1).
    pub const UNREACHABLE: u8 = 1;
    /// Too big for the next link; the MTU follows (RFC 4443 §3.2).
    pub const PACKET_TOO_BIG: u8 = 2;
    /// The hop limit or the time to reassemble ran out (RFC 4443 §3.3).
    pub const TIME_EXCEEDED: u8 = 3;
    /// A field of a header is wrong (RFC 4443 §3.4).
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Answer me (RFC 4443 §4.1).
    pub const ECHO_REQUEST: u8 = 128;
    /// The answer (RFC 4443 §4.2).
    pub const ECHO_REPLY: u8 = 129;
    /// A question for routers (RFC 4861 §4.1).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// A router speaks (RFC 4861 §4.2).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// A question for an address' owner (RFC 4861 §4.3).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// I have it (RFC 4861 §4.4).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// A better first hop exists (RFC 4861 §4.5).
    pub const REDIRECT: u8 = 137;
}

/// Codes of [`kind::UNREACHABLE`], all of RFC 4443 §3.1.
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// A link-local source wants to leave its link.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The last hop does not find the node.
    pub const ADDRESS: u8 = 3;
    /// No service listens on that port.
    pub const PORT: u8 = 4;
    /// The source address failed a policy.
    pub const POLICY: u8 = 5;
    /// The route rejects.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of [`kind::TIME_EXCEEDED`] (RFC 4443 §3.3).
pub mod time_exceeded {
    /// The hop limit ran out in transit.
    pub const TRANSIT: u8 = 0;
    /// Fragments were missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`kind::PARAMETER_PROBLEM`] (RFC 4443 §3.4).
pub mod parameter_problem {
    /// A header field is wrong.
    pub const HEADER_FIELD: u8 = 0;
    /// A next header is not known.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is not known, and wants to be.
    pub const OPTION: u8 = 2;
    /// A first fragment has not all headers (RFC 7112 §5).
    pub const INCOMPLETE: u8 = 3;
}

/// Whether this type is an error: the high bit says no (RFC 4443 §2.1).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// A checked message: its header is whole.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    message: &'a [u8],
    body: &'a [u8],
}

impl<'a> View<'a> {
    /// The message in `bytes`, all of them: ICMPv6 has no length of its own.
    #[inline]
    pub fn checked(message: &'a [u8]) -> Option<View<'a>> {
        let (header, body) = message.split_first_chunk()?;
        Some(View { header, message, body })
    }

    /// The type ([`kind`]).
    #[inline]
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// The code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// The checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header[2], self.header[3])
    }

    /// The last four bytes of the header: an MTU, a pointer, flags, or nothing.
    #[inline]
    pub fn word(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// What follows the header.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Whether the checksum is right between these two (RFC 4443 §2.3).
    #[inline]
    pub fn has_valid_checksum(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        sum(self.message, source, destination).is_some_and(Sum::is_valid)
    }

    /// The echo, if it is one.
    #[inline]
    pub fn echo(&self) -> Option<Echo<'a>> {
        matches!(self.kind(), kind::ECHO_REQUEST | kind::ECHO_REPLY).then(|| Echo {
            identifier: be16(self.header[4], self.header[5]),
            sequence: be16(self.header[6], self.header[7]),
            data: self.body,
        })
    }

    /// The beginning of the packet an error is about.
    #[inline]
    pub fn quoted(&self) -> Option<&'a [u8]> {
        is_error(self.kind()).then_some(self.body)
    }
}

/// Writes the header in front of a body that is already there, `message[8..]`, checksum included.
pub fn emit(
    message: &mut [u8],
    kind: u8,
    code: u8,
    word: u32,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Option<usize> {
    u32::try_from(message.len()).ok()?;
    let header: &mut [u8; HEADER_LEN] = message.first_chunk_mut()?;
    header[0] = kind;
    header[1] = code;
    header[2..4].fill(0);
    header[4..].copy_from_slice(&word.to_be_bytes());
    let checksum = sum(message, source, destination)?.finish();
    let field: &mut [u8; 2] = message.get_mut(2..)?.first_chunk_mut()?;
    *field = checksum.to_be_bytes();
    Some(HEADER_LEN)
}

fn sum(message: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> Option<Sum> {
    let len = message.len().try_into().ok()?;
    Some(Sum::pseudo_v6(source, destination, protocol::ICMPV6, len).plus(message))
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_errors_quote_and_only_echoes_echo() {
        let mut message = [0; 12];
        for kind in 0..=255 {
            let at = Ipv6Addr::LOCALHOST;
            emit(&mut message, kind, 0, 0x0001_0002, at, at).unwrap();
            let view = View::checked(&message).unwrap();
            assert_eq!(view.quoted().is_some(), kind < 128);
            let expected = Echo { identifier: 1, sequence: 2, data: &[0; 4] };
            assert_eq!(view.echo(), [128, 129].contains(&kind).then_some(expected));
        }
        assert!(View::checked(&message[..7]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_emitted_is_read_back(
            kind: u8, code: u8, word: u32, a: [u8; 16], b: [u8; 16],
            body in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut message = [&[0; 8], &body[..]].concat();
            prop_assert_eq!(emit(&mut message, kind, code, word, a.into(), b.into()), Some(8));
            let view = View::checked(&message).unwrap();
            prop_assert_eq!((view.kind(), view.code(), view.word()), (kind, code, word));
            prop_assert_eq!(view.body(), &body);
            prop_assert!(view.has_valid_checksum(a.into(), b.into()));
        }
    }
}
