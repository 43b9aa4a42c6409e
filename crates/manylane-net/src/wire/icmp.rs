//! ICMP for IPv4 (RFC 792): the message, not the rules ([`crate::icmp`]).

use super::be16;
use super::checksum::Sum;

/// Type, code, checksum, and four bytes that mean something else in each type.
pub const HEADER_LEN: usize = 8;

/// Message types.
pub mod kind {
    /// Answer to an echo request (RFC 792).
    pub const ECHO_REPLY: u8 = 0;
    /// The packet could not be delivered; the code says why (RFC 792).
    pub const UNREACHABLE: u8 = 3;
    /// Slow down (RFC 792; deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// A better first hop exists (RFC 792).
    pub const REDIRECT: u8 = 5;
    /// Answer me (RFC 792).
    pub const ECHO_REQUEST: u8 = 8;
    /// A router speaks (RFC 1256).
    pub const ROUTER_ADVERTISEMENT: u8 = 9;
    /// A question for routers (RFC 1256).
    pub const ROUTER_SOLICITATION: u8 = 10;
    /// The TTL or the time to reassemble ran out (RFC 792).
    pub const TIME_EXCEEDED: u8 = 11;
    /// A field of the header is wrong (RFC 792).
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// What time is it? (RFC 792).
    pub const TIMESTAMP: u8 = 13;
    /// The sender's time (RFC 792).
    pub const TIMESTAMP_REPLY: u8 = 14;
    /// Which network is this? (RFC 792; deprecated by RFC 6918).
    pub const INFORMATION_REQUEST: u8 = 15;
    /// This one (RFC 792; deprecated by RFC 6918).
    pub const INFORMATION_REPLY: u8 = 16;
    /// What is the mask? (RFC 950; deprecated by RFC 6918).
    pub const MASK_REQUEST: u8 = 17;
    /// This (RFC 950; deprecated by RFC 6918).
    pub const MASK_REPLY: u8 = 18;
    /// Is that interface up? (RFC 8335).
    pub const EXTENDED_ECHO_REQUEST: u8 = 42;
    /// So it is (RFC 8335).
    pub const EXTENDED_ECHO_REPLY: u8 = 43;
}

/// Codes of [`kind::UNREACHABLE`].
pub mod unreachable {
    /// No route to the network (RFC 792, RFC 1812 §5.2.7.1).
    pub const NETWORK: u8 = 0;
    /// The last hop does not find the host (RFC 792, RFC 1812 §5.2.7.1).
    pub const HOST: u8 = 1;
    /// The host does not speak that protocol (RFC 792).
    pub const PROTOCOL: u8 = 2;
    /// No service listens on that port (RFC 792).
    pub const PORT: u8 = 3;
    /// Too big and not to be fragmented; the MTU follows (RFC 792, RFC 1191 §4).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// The source route failed (RFC 792).
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Communication administratively prohibited (RFC 1812 §5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// The code of [`kind::REDIRECT`] that a router may still send: for a host (RFC 1812 §4.3.3.2).
pub const REDIRECT_HOST: u8 = 1;

/// Codes of [`kind::TIME_EXCEEDED`].
pub mod time_exceeded {
    /// The TTL ran out in transit (RFC 792).
    pub const TRANSIT: u8 = 0;
    /// Fragments were missing for too long (RFC 792).
    pub const REASSEMBLY: u8 = 1;
}

/// Whether this type reports about another packet and quotes its beginning (RFC 1812 §4.3.2.7 calls these errors).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        kind::UNREACHABLE
            | kind::SOURCE_QUENCH
            | kind::REDIRECT
            | kind::TIME_EXCEEDED
            | kind::PARAMETER_PROBLEM
    )
}

/// Whether this type is a question or an answer (RFC 1812 §4.3.1 calls these queries). Undefined types are neither.
#[inline]
pub const fn is_query(kind: u8) -> bool {
    matches!(
        kind,
        kind::ECHO_REPLY
            | kind::ECHO_REQUEST
            | kind::ROUTER_ADVERTISEMENT..=kind::ROUTER_SOLICITATION
            | kind::TIMESTAMP..=kind::MASK_REPLY
            | kind::EXTENDED_ECHO_REQUEST..=kind::EXTENDED_ECHO_REPLY
    )
}

/// An echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Which of the sender's pings.
    pub identifier: u16,
    /// Which packet of it.
    pub sequence: u16,
    /// To be sent back as it came.
    pub data: &'a [u8],
}

/// A checked message: its header is whole.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    message: &'a [u8],
    body: &'a [u8],
}

impl<'a> View<'a> {
    /// The message in `bytes`, all of them: ICMP has no length of its own.
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

    /// The last four bytes of the header: an MTU, a pointer, or nothing.
    #[inline]
    pub fn word(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// Whether the checksum is right.
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        Sum::of(self.message).is_valid()
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
pub fn emit(message: &mut [u8], kind: u8, code: u8, word: u32) -> Option<usize> {
    let header: &mut [u8; HEADER_LEN] = message.first_chunk_mut()?;
    header[0] = kind;
    header[1] = code;
    header[2..4].fill(0);
    header[4..].copy_from_slice(&word.to_be_bytes());
    let checksum = Sum::of(message).finish();
    let field: &mut [u8; 2] = message.get_mut(2..)?.first_chunk_mut()?;
    *field = checksum.to_be_bytes();
    Some(HEADER_LEN)
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_type_is_both_error_and_query() {
        let errors: Vec<u8> = (0..=255).filter(|&kind| is_error(kind)).collect();
        let queries: Vec<u8> = (0..=255).filter(|&kind| is_query(kind)).collect();
        assert_eq!(errors, [3, 4, 5, 11, 12]);
        assert_eq!(queries, [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43]);
    }

    #[test]
    fn only_errors_quote_and_only_echoes_echo() {
        let mut message = [0; 12];
        for kind in 0..=255 {
            emit(&mut message, kind, 0, 0x0001_0002).unwrap();
            let view = View::checked(&message).unwrap();
            assert_eq!(view.quoted().is_some(), is_error(kind));
            let expected = Echo { identifier: 1, sequence: 2, data: &[0; 4] };
            assert_eq!(view.echo(), [0, 8].contains(&kind).then_some(expected));
        }
        assert!(View::checked(&message[..7]).is_none());
        assert_eq!(emit(&mut [0; 7], 0, 0, 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_emitted_is_read_back(
            kind: u8, code: u8, word: u32, body in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut message = [&[0; 8], &body[..]].concat();
            prop_assert_eq!(emit(&mut message, kind, code, word), Some(8));
            let view = View::checked(&message).unwrap();
            prop_assert_eq!((view.kind(), view.code(), view.word()), (kind, code, word));
            prop_assert!(view.has_valid_checksum());
        }
    }
}
