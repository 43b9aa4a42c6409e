//! Errors, written in front of the packet they quote.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::TTL;
use crate::wire::{icmp, icmpv6, ipv4, ipv6, protocol};

/// What an IPv4 error needs in front of what it quotes.
pub const ERROR_HEADROOM_V4: usize = ipv4::HEADER_LEN + icmp::HEADER_LEN;

/// What an IPv6 error needs in front of what it quotes.
pub const ERROR_HEADROOM_V6: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;

/// An IPv4 error is not longer than this (RFC 1812 §4.3.2.3): every host can reassemble it.
const ERROR_LEN_MAX_V4: usize = 576;

/// An IPv6 error is not longer than this (RFC 4443 §2.4 c): every link carries it.
const ERROR_LEN_MAX_V6: usize = 1280;

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The TTL ran out (RFC 792; RFC 1812 §5.3.1); the hop limit did (RFC 4443 §3.3).
    TimeExceeded,
    /// No route (RFC 1812 §5.2.7.1; RFC 4443 §3.1 code 0).
    NetworkUnreachable,
    /// The neighbour does not answer (RFC 1812 §5.2.7.1; RFC 4443 §3.1 code 3, "address
    /// unreachable").
    HostUnreachable,
    /// For us, and no service listens (RFC 792; RFC 4443 §3.1 code 4).
    PortUnreachable,
    /// For us, and its protocol is not spoken here: *protocol unreachable* (RFC 1812 §5.2.7.1),
    /// *unrecognized next header* (RFC 8200 §4, RFC 4443 §3.4 code 1).
    ProtocolUnreachable {
        /// Where IPv6 names the protocol, counted from the start of the packet.
        pointer: u32,
    },
    /// For us, with an unknown IPv6 option that demands an error (RFC 8200 §4.2, RFC 4443 §3.4 code 2).
    UnknownOption {
        /// Where, counted from the start of the packet.
        pointer: u32,
        /// The error is due also about a packet to a group.
        of_groups: bool,
    },
    /// For us, and a first fragment without all of its headers (RFC 8200 §4.5, RFC 7112 §5: code 3).
    IncompleteHeaders,
    /// The packet was forwarded, and could have been sent straight to this router or host: *redirect for the host* (RFC
    /// 1812 §4.3.3.2). IPv6 has a message of its own ([`crate::wire::nd::Redirect`]).
    Redirect {
        /// The better next hop.
        gateway: Ipv4Addr,
    },
    /// Its source means something on its own link only, and it would leave that (RFC 4007 §9, RFC 4443
    /// §3.1 code 2).
    BeyondScope,
    /// The operator forbids it (RFC 1812 §5.2.7.1 code 13; RFC 4443 §3.1 code 1).
    Prohibited,
    /// Larger than the next link carries: *fragmentation needed* (RFC 1191 §4), *packet too big*
    /// (RFC 4443 §3.2).
    TooBig {
        /// What the next link carries.
        mtu: u32,
    },
    /// A header field is wrong (RFC 792; RFC 4443 §3.4 code 0).
    ParameterProblem {
        /// Where, counted from the start of the packet.
        pointer: u32,
    },
}

impl ErrorKind {
    /// Type, code, and the second word of the header.
    fn v4(self) -> (u8, u8, u32) {
        use icmp::{kind, time_exceeded, unreachable};
        match self {
            ErrorKind::TimeExceeded => (kind::TIME_EXCEEDED, time_exceeded::TRANSIT, 0),
            ErrorKind::NetworkUnreachable => (kind::UNREACHABLE, unreachable::NETWORK, 0),
            ErrorKind::HostUnreachable => (kind::UNREACHABLE, unreachable::HOST, 0),
            ErrorKind::PortUnreachable => (kind::UNREACHABLE, unreachable::PORT, 0),
            ErrorKind::ProtocolUnreachable { .. } => (kind::UNREACHABLE, unreachable::PROTOCOL, 0),
            ErrorKind::Redirect { gateway } => {
                (kind::REDIRECT, icmp::REDIRECT_HOST, gateway.to_bits())
            }
            // None of them is said of IPv4.
            ErrorKind::UnknownOption { .. }
            | ErrorKind::IncompleteHeaders
            | ErrorKind::BeyondScope => (kind::UNREACHABLE, unreachable::HOST, 0),
            ErrorKind::Prohibited => (kind::UNREACHABLE, unreachable::PROHIBITED, 0),
            // RFC 1191 §4: the low half of the word; no packet is larger than the half can say.
            ErrorKind::TooBig { mtu } => {
                (kind::UNREACHABLE, unreachable::FRAGMENTATION_NEEDED, mtu.min(0xffff))
            }
            // RFC 792: the high byte; what it cannot say is behind every header.
            ErrorKind::ParameterProblem { pointer } => {
                (kind::PARAMETER_PROBLEM, 0, pointer.min(0xff) << 24)
            }
        }
    }

    /// Type, code, and the second word of the header.
    fn v6(self) -> (u8, u8, u32) {
        use icmpv6::{kind, parameter_problem, time_exceeded, unreachable};
        match self {
            ErrorKind::TimeExceeded => (kind::TIME_EXCEEDED, time_exceeded::TRANSIT, 0),
            ErrorKind::NetworkUnreachable => (kind::UNREACHABLE, unreachable::NO_ROUTE, 0),
            // The first is not said of IPv6.
            ErrorKind::Redirect { .. } | ErrorKind::HostUnreachable => {
                (kind::UNREACHABLE, unreachable::ADDRESS, 0)
            }
            ErrorKind::PortUnreachable => (kind::UNREACHABLE, unreachable::PORT, 0),
            ErrorKind::ProtocolUnreachable { pointer } => {
                (kind::PARAMETER_PROBLEM, parameter_problem::NEXT_HEADER, pointer)
            }
            ErrorKind::UnknownOption { pointer, .. } => {
                (kind::PARAMETER_PROBLEM, parameter_problem::OPTION, pointer)
            }
            ErrorKind::IncompleteHeaders => {
                (kind::PARAMETER_PROBLEM, parameter_problem::INCOMPLETE, 0)
            }
            ErrorKind::BeyondScope => (kind::UNREACHABLE, unreachable::BEYOND_SCOPE, 0),
            ErrorKind::Prohibited => (kind::UNREACHABLE, unreachable::PROHIBITED, 0),
            ErrorKind::TooBig { mtu } => (kind::PACKET_TOO_BIG, 0, mtu),
            ErrorKind::ParameterProblem { pointer } => {
                (kind::PARAMETER_PROBLEM, parameter_problem::HEADER_FIELD, pointer)
            }
        }
    }
}

/// How much of an IPv4 packet of this length its error quotes: all, if it fits (RFC 1812 §4.3.2.3).
#[inline]
pub fn quote_len_v4(packet_len: usize) -> usize {
    packet_len.min(ERROR_LEN_MAX_V4 - ERROR_HEADROOM_V4)
}

/// How much of an IPv6 packet of this length its error quotes: all, if it fits (RFC 4443 §2.4 c).
#[inline]
pub fn quote_len_v6(packet_len: usize) -> usize {
    packet_len.min(ERROR_LEN_MAX_V6 - ERROR_HEADROOM_V6)
}

/// Writes the headers of an error about the packet quoted in `buf[28..]`, to its source.
///
/// `None`, and nothing written, if no IPv4 header is quoted or it is all too long for a packet.
#[must_use = "without headers the frame is not an error yet"]
pub fn emit_v4_error(
    buf: &mut [u8],
    kind: ErrorKind,
    source: Ipv4Addr,
    identification: u16,
) -> Option<()> {
    /// RFC 1812 §4.3.2.5: errors have the precedence of internetwork control, which is also CS6.
    const INTERNETWORK_CONTROL: u8 = 0xc0;
    /// … and the type of service of the packet they are about. Its lowest bit is ECN's today, and
    /// an error is not ECN-capable (RFC 3168 §5), so three of the four are kept.
    const TYPE_OF_SERVICE: u8 = 0x1c;

    let about = ipv4::View::quoted(buf.get(ERROR_HEADROOM_V4..)?)?;
    let header = ipv4::Header {
        tos: INTERNETWORK_CONTROL | (about.tos() & TYPE_OF_SERVICE),
        identification,
        dont_fragment: false,
        ttl: TTL,
        protocol: protocol::ICMP,
        source,
        destination: about.source(),
    };
    let payload_len = buf.len() - ipv4::HEADER_LEN;
    let message_at = header.emit(buf, payload_len)?;
    let (kind, code, word) = kind.v4();
    icmp::emit(buf.get_mut(message_at..)?, kind, code, word)?;
    Some(())
}

/// Writes the headers of an error about the packet quoted in `buf[48..]`, to its source.
///
/// `None`, and nothing written, if no IPv6 header is quoted or it is all too long for a packet.
#[must_use = "without headers the frame is not an error yet"]
pub fn emit_v6_error(buf: &mut [u8], kind: ErrorKind, source: Ipv6Addr) -> Option<()> {
    let about = ipv6::View::quoted(buf.get(ERROR_HEADROOM_V6..)?)?;
    let destination = about.source();
    let header = ipv6::Header {
        traffic_class: 0, // RFC 4443 demands none.
        flow_label: 0,
        next_header: protocol::ICMPV6,
        hop_limit: TTL,
        source,
        destination,
    };
    let payload_len = buf.len() - ipv6::HEADER_LEN;
    let message_at = header.emit(buf, payload_len)?;
    let (kind, code, word) = kind.v6();
    icmpv6::emit(buf.get_mut(message_at..)?, kind, code, word, source, destination)?;
    Some(())
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    const KINDS: [ErrorKind; 12] = [
        ErrorKind::TimeExceeded,
        ErrorKind::NetworkUnreachable,
        ErrorKind::HostUnreachable,
        ErrorKind::PortUnreachable,
        ErrorKind::Prohibited,
        ErrorKind::TooBig { mtu: 1400 },
        ErrorKind::ParameterProblem { pointer: 6 },
        ErrorKind::ProtocolUnreachable { pointer: 40 },
        ErrorKind::UnknownOption { pointer: 42, of_groups: false },
        ErrorKind::BeyondScope,
        ErrorKind::IncompleteHeaders,
        ErrorKind::Redirect { gateway: Ipv4Addr::new(192, 0, 2, 1) },
    ];

    #[test]
    fn every_kind_has_the_type_code_and_word_of_its_rfc() {
        let v4 = [
            (11, 0, 0),
            (3, 0, 0),
            (3, 1, 0),
            (3, 3, 0),
            (3, 13, 0),
            (3, 4, 1400),
            (12, 0, 0x0600_0000),
            (3, 2, 0),
            (3, 1, 0),
            (3, 1, 0),
            (3, 1, 0),
            (5, 1, 0xc000_0201),
        ];
        let v6 = [
            (3, 0, 0),
            (1, 0, 0),
            (1, 3, 0),
            (1, 4, 0),
            (1, 1, 0),
            (2, 0, 1400),
            (4, 0, 6),
            (4, 1, 40),
            (4, 2, 42),
            (1, 2, 0),
            (4, 3, 0),
            (1, 3, 0),
        ];
        for ((kind, v4), v6) in KINDS.into_iter().zip(v4).zip(v6) {
            assert_eq!(kind.v4(), v4, "{kind:?}");
            assert_eq!(kind.v6(), v6, "{kind:?}");
        }
        assert_eq!(ErrorKind::TooBig { mtu: 1 << 20 }.v4().2, 0xffff);
        assert_eq!(ErrorKind::TooBig { mtu: 1 << 20 }.v6().2, 1 << 20);
    }

    #[test]
    fn a_quote_is_as_long_as_the_error_may_be() {
        for (packet, v4, v6) in
            [(0, 0, 0), (548, 548, 548), (549, 548, 549), (1232, 548, 1232), (1500, 548, 1232)]
        {
            assert_eq!(quote_len_v4(packet), v4);
            assert_eq!(quote_len_v6(packet), v6);
        }
    }

    #[test]
    fn an_error_goes_to_the_quoted_source_with_all_checksums_right() {
        let router = Ipv4Addr::new(203, 0, 113, 1);
        let router6: Ipv6Addr = "2001:db8:9::1".parse().unwrap();
        for kind in KINDS {
            for quoted in [20, 28, 29, 548] {
                let mut buf = v4(quoted);
                emit_v4_error(&mut buf, kind, router, 77).unwrap();
                let view = ipv4::View::checked(&buf).unwrap();
                assert!(view.has_valid_checksum());
                assert_eq!(
                    (view.source(), view.destination()),
                    (router, Ipv4Addr::new(192, 0, 2, 1))
                );
                assert_eq!((view.ttl(), view.identification(), view.protocol()), (64, 77, 1));
                assert_eq!(view.packet().len(), buf.len());
                let message = icmp::View::checked(view.payload()).unwrap();
                assert!(message.has_valid_checksum());
                assert_eq!((message.kind(), message.code(), message.word()), kind.v4());
                assert_eq!(message.quoted(), Some(&v4(quoted)[28..]));
            }
            for quoted in [40, 48, 49, 1232] {
                let mut buf = v6(quoted);
                emit_v6_error(&mut buf, kind, router6).unwrap();
                let view = ipv6::View::checked(&buf).unwrap();
                let (source, destination) = (view.source(), view.destination());
                assert_eq!((source, destination), (router6, "2001:db8::1".parse().unwrap()));
                assert_eq!((view.hop_limit(), view.next_header()), (64, 58));
                assert_eq!(view.packet().len(), buf.len());
                let message = icmpv6::View::checked(view.payload()).unwrap();
                assert!(message.has_valid_checksum(source, destination));
                assert_eq!((message.kind(), message.code(), message.word()), kind.v6());
                assert_eq!(message.quoted(), Some(&v6(quoted)[48..]));
            }
        }
    }

    /// RFC 1812 §4.3.2.5, in today's bits.
    #[test]
    fn the_service_is_the_packets_the_precedence_control() {
        for (packet, error) in
            [(0x00, 0xc0), (0x10, 0xd0), (0xb8, 0xd8), (0x03, 0xc0), (0xff, 0xdc)]
        {
            let mut buf = v4(28);
            buf[29] = packet;
            emit_v4_error(&mut buf, ErrorKind::TimeExceeded, Ipv4Addr::LOCALHOST, 0).unwrap();
            assert_eq!(ipv4::View::checked(&buf).unwrap().tos(), error, "{packet:02x}");
        }
    }

    #[test]
    fn nothing_is_written_without_a_quoted_header_or_into_a_packet_too_long() {
        for mut buf in [vec![], v4(19), vec![0; 28 + 60], v6(48), v4(65508)] {
            let before = buf.clone();
            assert_eq!(emit_v4_error(&mut buf, KINDS[0], Ipv4Addr::LOCALHOST, 0), None);
            assert_eq!(buf, before);
        }
        for mut buf in [vec![], v6(39), vec![0; 48 + 60], v4(60), v6(65528)] {
            let before = buf.clone();
            assert_eq!(emit_v6_error(&mut buf, KINDS[0], Ipv6Addr::LOCALHOST), None);
            assert_eq!(buf, before);
        }
    }

    /// Room for the headers and `quoted` bytes of a long packet.
    fn v4(quoted: usize) -> Vec<u8> {
        let mut buf = vec![0; ERROR_HEADROOM_V4 + quoted.max(20)];
        ipv4::Header {
            tos: 0,
            identification: 1,
            dont_fragment: true,
            ttl: 1,
            protocol: protocol::UDP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 1),
        }
        .emit(&mut buf[ERROR_HEADROOM_V4..], 1400)
        .unwrap();
        buf.truncate(ERROR_HEADROOM_V4 + quoted);
        buf
    }

    fn v6(quoted: usize) -> Vec<u8> {
        let mut buf = vec![0; ERROR_HEADROOM_V6 + quoted.max(40)];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header: protocol::UDP,
            hop_limit: 1,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8:1::1".parse().unwrap(),
        }
        .emit(&mut buf[ERROR_HEADROOM_V6..], 1400)
        .unwrap();
        buf.truncate(ERROR_HEADROOM_V6 + quoted);
        buf
    }
}
