//! What IPv4 and IPv6 have in common: where the transport starts, and its pseudo-header.

use super::checksum::Sum;
use super::{ipv4, ipv6};

/// A checked packet of either version.
#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// IPv4.
    V4(ipv4::View<'a>),
    /// IPv6.
    V6(ipv6::View<'a>),
}

/// Where the transport of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its number ([`super::protocol`]).
    pub protocol: u8,
    /// Where it starts, counted from the IP header; its end is the packet's.
    pub offset: usize,
    /// Whether it is whole.
    pub fragment: Fragment,
    /// Whether the addresses in the IP header are those of the pseudo-header. The two differ while a source route or
    /// routing header has hops left (the destination is only the next hop, RFC 8200 §8.1), and with a home address
    /// option (RFC 6275 §11.3.1).
    pub final_addresses: bool,
}

/// Whether a packet is part of a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Not fragmented.
    None,
    /// A fragment header around a whole packet (RFC 6946). IPv6 only.
    Atomic,
    /// The first of several: it has the transport header, not all of the transport.
    First,
    /// A later one: no header stands at the offset.
    Later,
}

impl Fragment {
    /// Whether the whole transport is here.
    #[inline]
    pub fn is_whole(self) -> bool {
        matches!(self, Fragment::None | Fragment::Atomic)
    }
}

impl<'a> View<'a> {
    /// The packet in `bytes`, by the version it claims.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        match bytes.first()? >> 4 {
            4 => ipv4::View::checked(bytes).map(View::V4),
            6 => ipv6::View::checked(bytes).map(View::V6),
            _ => None,
        }
    }

    /// As [`View::checked`], for a packet of up to `len` bytes whose front is in `bytes`.
    #[inline]
    pub fn front(bytes: &'a [u8], len: usize) -> Option<View<'a>> {
        match bytes.first()? >> 4 {
            4 => ipv4::View::front(bytes, len).map(View::V4),
            6 => ipv6::View::front(bytes, len).map(View::V6),
            _ => None,
        }
    }

    /// As [`View::checked`], for a packet quoted in an ICMP error: its end may be missing.
    #[inline]
    pub fn quoted(bytes: &'a [u8]) -> Option<View<'a>> {
        match bytes.first()? >> 4 {
            4 => ipv4::View::quoted(bytes).map(View::V4),
            6 => ipv6::View::quoted(bytes).map(View::V6),
            _ => None,
        }
    }

    /// The whole packet, without what stood behind it.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        match self {
            View::V4(view) => view.packet(),
            View::V6(view) => view.packet(),
        }
    }

    /// The length of the whole packet, as its header says.
    #[inline]
    pub fn packet_len(&self) -> usize {
        match self {
            View::V4(view) => view.total_len().into(),
            View::V6(view) => ipv6::HEADER_LEN + usize::from(view.payload_len()),
        }
    }

    /// Where the transport is; `None` when the IPv6 extension headers lead nowhere.
    #[inline]
    pub fn transport(&self) -> Option<Transport> {
        match self {
            View::V4(view) => Some(view.transport()),
            View::V6(view) => view.chain().transport(),
        }
    }

    /// The pseudo-header's sum, from the addresses in the IP header. `None` when `len` cannot be a
    /// length in this version.
    #[inline]
    pub fn pseudo_header(&self, protocol: u8, len: usize) -> Option<Sum> {
        Some(match self {
            View::V4(view) => {
                Sum::pseudo_v4(view.source(), view.destination(), protocol, len.try_into().ok()?)
            }
            View::V6(view) => {
                Sum::pseudo_v6(view.source(), view.destination(), protocol, len.try_into().ok()?)
            }
        })
    }
}
