//! IPv4, IPv6, their fragments, and UDP.

use std::fmt::{self, Write};
use std::net::IpAddr;

use etherparse::{
    IpNumber, Ipv6FragmentHeaderSlice, LaxIpPayloadSlice, LaxIpv4Slice, LaxIpv6Slice,
    UdpHeaderSlice,
};

use super::super::lines::Style;
use super::{icmp, tcp};

/// What carries a transport header.
pub(super) struct Carrier<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    protocol: IpNumber,
    /// The captured part of its payload.
    pub(super) bytes: &'a [u8],
    /// The payload's length on the wire, by the header.
    pub(super) len: usize,
}

/// A piece of a payload.
struct Piece {
    id: u32,
    offset: usize,
    len: usize,
    more: bool,
}

/// RFC 791.
pub(super) fn ipv4(text: &mut String, ip: &LaxIpv4Slice<'_>, style: Style) -> fmt::Result {
    let header = ip.header();
    let (total, payload) = (usize::from(header.total_len()), ip.payload());
    if style.verbose {
        let tos = header.dcp().value() << 2 | header.ecn().value();
        let offset = header.fragments_offset().byte_offset();
        let flags = match (header.dont_fragment(), header.more_fragments()) {
            (true, true) => "DF+",
            (true, false) => "DF",
            (false, true) => "+",
            (false, false) => "none",
        };
        write!(text, "IP (tos 0x{tos:x}, ttl {}, id {}, ", header.ttl(), header.identification())?;
        write!(text, "offset {offset}, flags [{flags}], proto {}", Protocol(header.protocol()))?;
        write!(text, " ({}), length {total}", header.protocol().0)?;
        if !header.options().is_empty() {
            write!(text, ", options of {}", header.options().len())?;
        }
        text.push_str(") ");
    } else {
        text.push_str("IP ");
    }
    let authentication = ip.extensions().auth.map_or(0, |header| header.slice().len());
    let len = total.saturating_sub(header.slice().len() + authentication);
    let carrier = Carrier {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol: payload.ip_number,
        bytes: payload.payload,
        // The sender of a segment to be cut leaves the length to the device: then all bytes here count.
        len: if total == 0 { payload.payload.len() } else { len },
    };
    let piece = header.is_fragmenting_payload().then(|| Piece {
        id: header.identification().into(),
        offset: header.fragments_offset().byte_offset().into(),
        len: carrier.len,
        more: header.more_fragments(),
    });
    let names = if authentication > 0 { "AH " } else { "" };
    whole_or_piece(text, &carrier, piece, names, style)
}

/// RFC 8200. With `stopped`, the extension headers were not read to their end.
pub(super) fn ipv6(
    text: &mut String,
    ip: &LaxIpv6Slice<'_>,
    stopped: bool,
    style: Style,
) -> fmt::Result {
    let (header, extensions) = (ip.header(), ip.extensions());
    let payload: &LaxIpPayloadSlice<'_> = ip.payload();
    let total = usize::from(header.payload_length());
    if style.verbose {
        let label = header.flow_label().value();
        write!(text, "IP6 (class 0x{:x}, flowlabel 0x{label:x}, ", header.traffic_class())?;
        write!(
            text,
            "hlim {}, next-header {} ",
            header.hop_limit(),
            Protocol(header.next_header())
        )?;
        write!(text, "({}), payload length {total}) ", header.next_header().0)?;
    } else {
        text.push_str("IP6 ");
    }
    let mut piece = None;
    let mut names = String::new();
    // `len` of the piece is known when all headers are.
    let len = total.saturating_sub(extensions.slice().len());
    // Header by header, in the captured bytes: etherparse's own walk (0.21) reads on behind the last.
    let (mut next, mut rest) = (header.next_header(), extensions.slice());
    while let [following, units, ..] = *rest {
        let (name, bytes) = match next {
            IpNumber::IPV6_HEADER_HOP_BY_HOP => ("HBH ", (usize::from(units) + 1) * 8),
            IpNumber::IPV6_ROUTE_HEADER => ("RT ", (usize::from(units) + 1) * 8),
            IpNumber::IPV6_DESTINATION_OPTIONS => ("DSTOPT ", (usize::from(units) + 1) * 8),
            IpNumber::AUTHENTICATION_HEADER => ("AH ", (usize::from(units) + 2) * 4),
            IpNumber::IPV6_FRAGMENTATION_HEADER => ("", 8), // Written at the end.
            _ => break,
        };
        if let (IpNumber::IPV6_FRAGMENTATION_HEADER, Ok(fragment)) =
            (next, Ipv6FragmentHeaderSlice::from_slice(rest))
        {
            piece = fragment.is_fragmenting_payload().then(|| Piece {
                id: fragment.identification(),
                offset: fragment.fragment_offset().byte_offset().into(),
                len,
                more: fragment.more_fragments(),
            });
        }
        names.push_str(name);
        (next, rest) = (IpNumber(following), rest.get(bytes..).unwrap_or_default());
    }
    let carrier = Carrier {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        protocol: payload.ip_number,
        bytes: payload.payload,
        len: if total == 0 { payload.payload.len() } else { len },
    };
    if stopped {
        let Carrier { source, destination, len, .. } = carrier;
        let header = Protocol(payload.ip_number);
        return write!(text, "{source} > {destination}: {names}[|{header}], length {len}");
    }
    whole_or_piece(text, &carrier, piece, &names, style)
}

fn whole_or_piece(
    text: &mut String,
    carrier: &Carrier<'_>,
    piece: Option<Piece>,
    names: &str,
    style: Style,
) -> fmt::Result {
    match &piece {
        Some(piece) if piece.offset > 0 => {
            let Carrier { source, destination, protocol, .. } = carrier;
            write!(text, "{source} > {destination}: {names}{}", Protocol(*protocol))?;
        }
        _ => transport(text, carrier, names, style)?,
    }
    let Some(Piece { id, offset, len, more }) = piece else { return Ok(()) };
    write!(text, " (frag {id}:{len}@{offset}{})", if more { "+" } else { "" })
}

fn transport(text: &mut String, carrier: &Carrier<'_>, names: &str, style: Style) -> fmt::Result {
    let Carrier { source, destination, protocol, bytes, len } = *carrier;
    match protocol {
        IpNumber::TCP | IpNumber::UDP => {
            let Some(&[s1, s2, d1, d2]) = bytes.first_chunk() else {
                write!(text, "{source} > {destination}: {names}")?;
                let name = if protocol == IpNumber::TCP { "tcp" } else { "udp" };
                return write!(text, "[|{name}]");
            };
            let ports = [u16::from_be_bytes([s1, s2]), u16::from_be_bytes([d1, d2])];
            write!(text, "{source}.{} > {destination}.{}: {names}", ports[0], ports[1])?;
            match protocol {
                IpNumber::TCP => tcp::tcp(text, carrier, style),
                _ => udp(text, carrier),
            }
        }
        IpNumber::ICMP => {
            write!(text, "{source} > {destination}: {names}")?;
            icmp::icmpv4(text, carrier)
        }
        IpNumber::IPV6_ICMP => {
            write!(text, "{source} > {destination}: {names}")?;
            icmp::icmpv6(text, carrier)
        }
        _ => write!(text, "{source} > {destination}: {names}{}, length {len}", Protocol(protocol)),
    }
}

/// RFC 768.
fn udp(text: &mut String, carrier: &Carrier<'_>) -> fmt::Result {
    let Ok(header) = UdpHeaderSlice::from_slice(carrier.bytes) else {
        return text.write_str("[|udp]");
    };
    match usize::from(header.length()).checked_sub(8) {
        Some(len) => write!(text, "UDP, length {len}"),
        // The length of a jumbogram, or of segments whose sender leaves it to its device.
        None if header.length() == 0 => {
            write!(text, "UDP, length {}", carrier.len.saturating_sub(8))
        }
        None => write!(text, "UDP, [bad length {} < 8]", header.length()),
    }
}

/// A protocol's name, as IANA has it.
pub(super) struct Protocol(pub(super) IpNumber);

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.keyword_str() {
            Some(name) => f.write_str(name),
            None => write!(f, "ip-proto-{}", self.0.0),
        }
    }
}
