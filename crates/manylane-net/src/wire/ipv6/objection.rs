//! What a node that a packet is for finds wrong with its extension headers (RFC 8200 §4).

use super::super::ip::{Fragment, Transport};
use super::super::{be16, icmpv6, protocol, tcp, udp};
use super::{EXTENSION_HEADERS_MAX, HEADER_LEN, View, is_extension, step};

/// What a node that a packet is for finds wrong with its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// An option says: discard, and notify no sender (RFC 8200 §4.2); or leads out of its header; or the options or
    /// headers are more than any sender uses (RFC 8504 §5.3).
    Silent,
    /// A routing header of a type that is not known, or no longer (RFC 5095 §3), with segments left (RFC
    /// 8200 §4.4).
    Routing {
        /// Where its type is, counted from the start of the packet.
        pointer: u32,
    },
    /// An unknown option that demands an error (RFC 8200 §4.2).
    Option {
        /// Where it is, counted from the start of the packet.
        pointer: u32,
        /// Also of a packet to a group.
        of_groups: bool,
    },
    /// No length, or a length in a jumbogram's option that the fixed header could have counted (RFC 2675 §3).
    Length {
        /// Where the field is that says so, counted from the start of the packet.
        pointer: u32,
    },
    /// A fragment that belongs into no packet: it is not the last, and no multiple of eight bytes, or ends
    /// behind the longest packet (RFC 8200 §4.5).
    Fragment {
        /// Where the field is that says so, counted from the start of the packet.
        pointer: u32,
    },
    /// A first fragment without all of the headers, the transport's too (RFC 8200 §4.5).
    Incomplete,
    /// Hop-by-hop options elsewhere than in front: a next header that cannot be (RFC 8200 §4). Or an authentication
    /// header, which we cannot verify: to step over it would be to believe it.
    NextHeader {
        /// Where it is named, counted from the start of the packet.
        pointer: u32,
    },
}

impl View<'_> {
    /// What is wrong with a packet that [lacks a length](View::lacks_length), for every node on its way: no frame
    /// holds a jumbogram, so one that is here has lost its end ([`Objection::Silent`]) or is none.
    pub fn length_objection(&self) -> Option<Objection> {
        if !self.lacks_length() {
            return None;
        }
        let len = self.payload.get(1).map_or(0, |&len| (usize::from(len) + 1) * 8);
        let Some(options) = self.payload.get(2..len) else { return Some(Objection::Silent) };
        let Some(place) = find_option(options, JUMBO_PAYLOAD) else {
            return Some(Objection::Length { pointer: PAYLOAD_LEN_AT });
        };
        let &[_, 4, a, b, c, d, ..] = &options[place..] else { return Some(Objection::Silent) };
        let is_short = u32::from_be_bytes([a, b, c, d]) <= u16::MAX.into();
        let pointer = (HEADER_LEN + 2 + place + 2) as u32;
        Some(if is_short { Objection::Length { pointer } } else { Objection::Silent })
    }

    /// What is wrong with the extension headers in front of the transport, for the node that the packet
    /// is for. A chain that leads out of the packet is [`Chain::Malformed`](super::Chain::Malformed), and not objected to here.
    pub fn objection(&self) -> Option<Objection> {
        let first = Fragment::None;
        let (mut at, mut named_at) = (HEADER_LEN, NEXT_HEADER_AT);
        let mut protocol = self.next_header();
        for _ in 0..EXTENSION_HEADERS_MAX {
            if !is_extension(protocol) {
                return None;
            }
            let pointer = |at: usize| at as u32;
            let here = Transport { protocol, offset: at, fragment: first, final_addresses: true };
            let header = self.packet.get(at..)?;
            match protocol {
                protocol::HOP_BY_HOP if at != HEADER_LEN => {
                    return Some(Objection::NextHeader { pointer: pointer(named_at) });
                }
                protocol::AUTHENTICATION => {
                    return Some(Objection::NextHeader { pointer: pointer(named_at) });
                }
                protocol::FRAGMENT => {
                    if let Some(wrong) = self.fragment_objection(at) {
                        return Some(wrong);
                    }
                }
                protocol::ROUTING if *header.get(3)? != 0 => {
                    return Some(Objection::Routing { pointer: pointer(at + 2) });
                }
                _ => {}
            }
            let next = step(self.packet, here)?;
            if matches!(protocol, protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS)
                && let Some(wrong) = option_objection(self.packet.get(..next.offset)?, at + 2)
            {
                return Some(wrong);
            }
            if next.fragment == Fragment::Later {
                return None; // What follows is no header.
            }
            (named_at, at, protocol) = (at, next.offset, next.protocol);
        }
        if is_extension(protocol) { Some(Objection::Silent) } else { None }
    }

    /// What is wrong with the place of a fragment in its packet; its header is at `at`.
    fn fragment_objection(&self, at: usize) -> Option<Objection> {
        let header: &[u8; 8] = self.packet.get(at..)?.first_chunk()?;
        let len = (HEADER_LEN + usize::from(self.payload_len())).checked_sub(at + header.len())?;
        let (place, is_last) = (be16(header[2], header[3]) & 0xfff8, header[3] & 1 == 0);
        if place == 0 && !is_last && !self.has_transport_header() {
            return Some(Objection::Incomplete);
        }
        if !is_last && len % 8 != 0 {
            return Some(Objection::Fragment { pointer: PAYLOAD_LEN_AT });
        }
        let too_long = usize::from(place) + len > usize::from(u16::MAX);
        too_long.then_some(Objection::Fragment { pointer: at as u32 + 2 })
    }

    /// Whether the packet, whose front is here, has the header of the transport that its chain leads to; of an unknown
    /// transport, a byte.
    fn has_transport_header(&self) -> bool {
        let Some(transport) = self.chain().transport() else { return true };
        let len = match transport.protocol {
            protocol::TCP => tcp::HEADER_LEN,
            protocol::UDP => udp::HEADER_LEN,
            protocol::ICMPV6 => icmpv6::HEADER_LEN,
            _ => 1,
        };
        transport.offset + len <= HEADER_LEN + usize::from(self.payload_len())
    }

    /// Where the protocol of a transport that the chain leads to is named, counted from the start of the
    /// packet.
    pub fn named_at(&self, transport: Transport) -> u32 {
        let fragment = Fragment::None;
        let protocol = self.next_header();
        let mut here = Transport { protocol, offset: HEADER_LEN, fragment, final_addresses: true };
        let mut named_at = NEXT_HEADER_AT;
        while here.offset < transport.offset {
            let Some(next) = step(self.packet, here) else { break };
            (named_at, here) = (here.offset, next);
        }
        named_at as u32
    }
}

/// Where the first option of this type begins.
fn find_option(options: &[u8], kind: u8) -> Option<usize> {
    let mut at = 0;
    for _ in 0..OPTIONS_MAX {
        match *options.get(at..)? {
            [this, ..] if this == kind => return Some(at),
            [PAD_1, ..] => at += 1,
            [_, len, ..] => at += 2 + usize::from(len),
            _ => return None,
        }
    }
    None
}

/// What an option that is not known says of itself, by its two high bits, in the options that end with
/// `packet` and begin at `at` (RFC 8200 §4.2).
fn option_objection(packet: &[u8], mut at: usize) -> Option<Objection> {
    for _ in 0..OPTIONS_MAX {
        let Some(&kind) = packet.get(at) else { break };
        if kind == PAD_1 {
            at += 1;
            continue;
        }
        let pointer = at as u32;
        match kind >> 6 {
            0 => {} // Padding, router alert, and what may be skipped.
            1 => return Some(Objection::Silent),
            2 => return Some(Objection::Option { pointer, of_groups: true }),
            _ => return Some(Objection::Option { pointer, of_groups: false }),
        }
        at += 2 + usize::from(packet.get(at + 1).copied().unwrap_or(u8::MAX));
    }
    if at == packet.len() { None } else { Some(Objection::Silent) }
}

/// A byte of padding, which has no length (RFC 8200 §4.2).
const PAD_1: u8 = 0;

/// The option with the length of a jumbogram (RFC 2675 §2).
const JUMBO_PAYLOAD: u8 = 0xc2;

/// Options of a header that a node looks at, single bytes of padding included (RFC 8504 §5.3 has it
/// discard packets with more than eight others).
const OPTIONS_MAX: usize = 16;

/// Where the fixed header says how much follows.
const PAYLOAD_LEN_AT: u32 = 4;

/// Where the fixed header names the next.
const NEXT_HEADER_AT: usize = 6;
