//! Neighbour discovery: which station has this IPv6 address (RFC 4861).
//!
//! Solicitations and advertisements as plain values, read whole and verified or not at all. The
//! rules, with what the tests call them:
//!
//! | rule                                            | RFC 4861     |                               |
//! |-------------------------------------------------|--------------|-------------------------------|
//! | hop limit 255: no router has passed it on       | both         |                               |
//! | checksum valid, code 0, at least 24 bytes       | both         |                               |
//! | target not multicast                            | both         |                               |
//! | every option has a length                       | both         |                               |
//! | from `::`: only to a solicited-node group       | §7.1.1       | duplicate address detection   |
//! | from `::`: without source link-layer address    | §7.1.1       | it must not be learnt from    |
//! | to a group: not solicited                       | §7.1.2       |                               |
//! | no fragment header                              | RFC 6980 §5  |                               |
//! | a link-layer address is one station's           | (ours)       | as RFC 1812 §3.3.2 for ARP    |
//! | the source is no group                          | RFC 4291 §2.7|                               |

use std::net::Ipv6Addr;

use super::ethernet::{self, Mac, ether_type};
use super::ip::Fragment;
use super::{icmpv6, ipv6, protocol};

/// A frame as long as [`Solicitation::emit`] and [`Advertisement::emit`] write at most.
pub const FRAME_LEN_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + MESSAGE_LEN + OPTION_LEN;

/// The ICMPv6 header and the target.
const MESSAGE_LEN: usize = icmpv6::HEADER_LEN + 16;

/// A link-layer address option for Ethernet (RFC 2464 §6).
const OPTION_LEN: usize = 8;

/// What a message that a router passed on can no longer have (RFC 4861 §3.1).
const HOP_LIMIT: u8 = 255;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

const REDIRECTED_HEADER: u8 = 4;

/// A redirect is not longer than this (RFC 4861 §4.5).
const REDIRECT_LEN_MAX: usize = 1280;

/// Packets to `about` are better sent to `target`. Written here, never read: a router must not believe
/// one (RFC 4861 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The router that says so: its link-local address.
    pub source: Ipv6Addr,
    /// The receiver of the redirect.
    pub destination: Ipv6Addr,
    /// The better next hop: a router's link-local address, or `about` itself.
    pub target: Ipv6Addr,
    /// Where packets are for.
    pub about: Ipv6Addr,
    /// Where the target is.
    pub link_layer: Mac,
}

impl Redirect {
    /// Writes a whole Ethernet frame, to no station yet, about a packet that was forwarded: the hop it was counted is
    /// given back to the quoted bytes.
    pub fn emit(&self, buf: &mut [u8], from: Mac, packet: &[u8]) -> Option<usize> {
        const FIXED_LEN: usize = MESSAGE_LEN + 16;
        const QUOTE_AT: usize = FIXED_LEN + OPTION_LEN + OPTION_LEN;

        // In units of eight bytes, as options are.
        let room = REDIRECT_LEN_MAX - ipv6::HEADER_LEN - QUOTE_AT;
        let quote_len = packet.len().min(room) & !7;
        let message_len = QUOTE_AT + quote_len;
        let frame_len = ethernet::HEADER_LEN + ipv6::HEADER_LEN + message_len;
        let frame = buf.get_mut(..frame_len)?;
        let packet_at = ethernet::emit(frame, Mac::BROADCAST, from, ether_type::IPV6)?;
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: self.source,
            destination: self.destination,
        };
        let written = frame.get_mut(packet_at..)?;
        let message_at = header.emit(written, message_len)?;
        let message = written.get_mut(message_at..)?;
        message[icmpv6::HEADER_LEN..MESSAGE_LEN].copy_from_slice(&self.target.octets());
        message[MESSAGE_LEN..FIXED_LEN].copy_from_slice(&self.about.octets());
        let Mac([a, b, c, d, e, f]) = self.link_layer;
        let options = &mut message[FIXED_LEN..];
        options[..OPTION_LEN].copy_from_slice(&[TARGET_LINK_LAYER, 1, a, b, c, d, e, f]);
        let units = (quote_len / 8 + 1) as u8; // At most 1280 / 8.
        options[OPTION_LEN..][..OPTION_LEN].copy_from_slice(&[
            REDIRECTED_HEADER,
            units,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        let quote = &mut options[2 * OPTION_LEN..];
        quote.copy_from_slice(&packet[..quote_len]);
        if let Some(hop_limit) = quote.get_mut(7) {
            *hop_limit = hop_limit.saturating_add(1);
        }
        let (source, destination) = (self.source, self.destination);
        icmpv6::emit(message, icmpv6::kind::REDIRECT, 0, 0, source, destination)?;
        Some(frame_len)
    }
}

/// A message about neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A question: which station has this address?
    Solicitation(Solicitation),
    /// I have it.
    Advertisement(Advertisement),
}

/// A question: which station has `target`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The asking station; `::` in duplicate address detection.
    pub source: Ipv6Addr,
    /// The target's solicited-node group, or the target itself.
    pub destination: Ipv6Addr,
    /// The address in question.
    pub target: Ipv6Addr,
    /// Where the asker is, if it says so.
    pub link_layer: Option<Mac>,
}

/// `target` is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The answering station.
    pub source: Ipv6Addr,
    /// The asking station, or all nodes.
    pub destination: Ipv6Addr,
    /// The address in question, or that moved.
    pub target: Ipv6Addr,
    /// The station is a router.
    pub router: bool,
    /// The message answers a solicitation, so it proves that the path to the station works.
    pub solicited: bool,
    /// The message replaces what was known before.
    pub overrides: bool,
    /// Where the target is, if it says so.
    pub link_layer: Option<Mac>,
}

impl Message {
    /// Reads and verifies the message in an IPv6 packet; `None` for every other packet.
    pub fn checked(packet: &[u8]) -> Option<Message> {
        let view = ipv6::View::checked(packet)?;
        let transport = view.chain().transport()?;
        if transport.protocol != protocol::ICMPV6
            || transport.fragment != Fragment::None
            || !transport.final_addresses
        {
            return None;
        }
        let message = icmpv6::View::checked(view.packet().get(transport.offset..)?)?;
        let (target, options) = message.body().split_first_chunk::<16>()?;
        let (source, destination) = (view.source(), view.destination());
        let target = Ipv6Addr::from(*target);

        let is_valid = view.hop_limit() == HOP_LIMIT
            && message.code() == 0
            && !target.is_multicast()
            && !source.is_multicast();
        if !is_valid {
            return None;
        }
        // The checksum last: it costs a pass over the message.
        let read = match message.kind() {
            icmpv6::kind::NEIGHBOUR_SOLICITATION => {
                let link_layer = link_layer(options, SOURCE_LINK_LAYER)?;
                let solicitation = Solicitation { source, destination, target, link_layer };
                Message::Solicitation(solicitation.is_valid().then_some(solicitation)?)
            }
            icmpv6::kind::NEIGHBOUR_ADVERTISEMENT => {
                let [flags, ..] = message.word().to_be_bytes();
                let advertisement = Advertisement {
                    source,
                    destination,
                    target,
                    router: flags & 0x80 != 0,
                    solicited: flags & 0x40 != 0,
                    overrides: flags & 0x20 != 0,
                    link_layer: link_layer(options, TARGET_LINK_LAYER)?,
                };
                Message::Advertisement(advertisement.is_valid().then_some(advertisement)?)
            }
            _ => return None,
        };
        message.has_valid_checksum(source, destination).then_some(read)
    }
}

/// The first link-layer address among the options, which must all be well-formed (`None` if not).
///
/// Each step takes eight bytes or more, so it ends with the packet.
fn link_layer(options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut found = None;
    let mut rest = options;
    while let [kind, units, ..] = *rest {
        let len = usize::from(units) * 8;
        let option = rest.get(..len).filter(|option| !option.is_empty())?;
        if kind == wanted && found.is_none() {
            let address: [u8; OPTION_LEN] = option.try_into().ok()?; // Ethernet's has one unit.
            let [_, _, a, b, c, d, e, f] = address;
            let mac = Mac([a, b, c, d, e, f]);
            found = Some(mac.is_station().then_some(mac)?);
        }
        rest = rest.get(len..)?;
    }
    rest.is_empty().then_some(found)
}

impl Solicitation {
    /// The question to all stations that may have `target` (RFC 4861 §7.2.2).
    pub fn ask(station: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Solicitation {
        let destination = ipv6::solicited_node(target);
        Solicitation { source, destination, target, link_layer: Some(station) }
    }

    /// The question to the one we believe has it: is the way still good (RFC 4861 §7.3.3)?
    pub fn probe(station: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Solicitation {
        Solicitation { source, destination: target, target, link_layer: Some(station) }
    }

    /// The question before taking an address: does any station have it (RFC 4862 §5.4.2)?
    pub fn detect_duplicate(target: Ipv6Addr) -> Solicitation {
        let destination = ipv6::solicited_node(target);
        Solicitation { source: Ipv6Addr::UNSPECIFIED, destination, target, link_layer: None }
    }

    /// Writes a whole Ethernet frame. `to` matters when the destination is no group: a group has its
    /// own MAC.
    pub fn emit(&self, buf: &mut [u8], from: Mac, to: Mac) -> Option<usize> {
        let kind = icmpv6::kind::NEIGHBOUR_SOLICITATION;
        let option = self.link_layer.map(|mac| (SOURCE_LINK_LAYER, mac));
        emit(buf, (from, to), (self.source, self.destination), kind, 0, self.target, option)
    }

    /// The rules about a sender without address.
    fn is_valid(&self) -> bool {
        const GROUPS: Ipv6Addr = ipv6::solicited_node(Ipv6Addr::UNSPECIFIED);
        let to_group = self.destination.to_bits() >> 24 == GROUPS.to_bits() >> 24;
        !self.source.is_unspecified() || (to_group && self.link_layer.is_none())
    }
}

impl Advertisement {
    /// The answer of a router that has the target at `station` (RFC 4861 §7.2.4).
    pub fn answer(question: &Solicitation, station: Mac) -> Advertisement {
        let nobody = question.source.is_unspecified();
        Advertisement {
            source: question.target,
            destination: if nobody { ipv6::ALL_NODES } else { question.source },
            target: question.target,
            router: true,
            solicited: !nobody,
            overrides: true,
            link_layer: Some(station),
        }
    }

    /// The news that a router has the target at `station` (RFC 4861 §7.2.6).
    pub fn unsolicited(target: Ipv6Addr, station: Mac) -> Advertisement {
        Advertisement {
            source: target,
            destination: ipv6::ALL_NODES,
            target,
            router: true,
            solicited: false,
            overrides: true,
            link_layer: Some(station),
        }
    }

    /// Writes a whole Ethernet frame. `to` matters when the destination is no group: a group has its
    /// own MAC.
    pub fn emit(&self, buf: &mut [u8], from: Mac, to: Mac) -> Option<usize> {
        let kind = icmpv6::kind::NEIGHBOUR_ADVERTISEMENT;
        let flags = u32::from(self.router) << 31
            | u32::from(self.solicited) << 30
            | u32::from(self.overrides) << 29;
        let option = self.link_layer.map(|mac| (TARGET_LINK_LAYER, mac));
        emit(buf, (from, to), (self.source, self.destination), kind, flags, self.target, option)
    }

    fn is_valid(&self) -> bool {
        !(self.destination.is_multicast() && self.solicited)
    }
}

fn emit(
    buf: &mut [u8],
    (from, to): (Mac, Mac),
    (source, destination): (Ipv6Addr, Ipv6Addr),
    kind: u8,
    flags: u32,
    target: Ipv6Addr,
    option: Option<(u8, Mac)>,
) -> Option<usize> {
    let message_len = MESSAGE_LEN + if option.is_some() { OPTION_LEN } else { 0 };
    let frame_len = ethernet::HEADER_LEN + ipv6::HEADER_LEN + message_len;
    let frame = buf.get_mut(..frame_len)?;

    let to = if destination.is_multicast() { Mac::ipv6_multicast(destination) } else { to };
    let packet_at = ethernet::emit(frame, to, from, ether_type::IPV6)?;
    let packet = frame.get_mut(packet_at..)?;
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source,
        destination,
    };
    let message_at = header.emit(packet, message_len)?;
    let message = packet.get_mut(message_at..)?;
    message.get_mut(icmpv6::HEADER_LEN..MESSAGE_LEN)?.copy_from_slice(&target.octets());
    if let Some((option, Mac([a, b, c, d, e, f]))) = option {
        message.get_mut(MESSAGE_LEN..)?.copy_from_slice(&[option, 1, a, b, c, d, e, f]);
    }
    icmpv6::emit(message, kind, 0, flags, source, destination)?;
    Some(frame_len)
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
