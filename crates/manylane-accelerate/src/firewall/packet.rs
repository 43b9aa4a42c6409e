//! The packets that a question is about, and what is known of their bytes at each stage of their way.

use std::net::IpAddr;

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::{Base, Hook};

use super::bits::Bits;

/// A port of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name of its interface.
    pub name: String,
    /// The number of its interface.
    pub index: u32,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    pub(super) fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }
}

/// Both ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The source port.
    pub source_port: u16,
    /// The destination address.
    pub destination: IpAddr,
    /// The destination port.
    pub destination_port: u16,
}

impl Tuple {
    /// That of a packet the other way.
    pub fn inverted(self) -> Tuple {
        Tuple {
            source: self.destination,
            source_port: self.destination_port,
            destination: self.source,
            destination_port: self.source_port,
        }
    }
}

/// One direction of a connection, as conntrack has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The tuple of packets of the original direction, as they arrive.
    pub original: Tuple,
    /// The tuple of replies, as they arrive.
    pub reply: Tuple,
    /// The question is about replies.
    pub is_reply: bool,
    /// The connection's mark, if it is known.
    pub mark: Option<u32>,
    /// The connection's zone, if it is known.
    pub zone: Option<u16>,
}

impl Flow {
    /// The tuple of its packets as they arrive.
    pub fn received(&self) -> Tuple {
        if self.is_reply { self.reply } else { self.original }
    }

    /// The tuple of its packets as they leave.
    pub fn sent(&self) -> Tuple {
        if self.is_reply { self.original.inverted() } else { self.reply.inverted() }
    }
}

/// A class of packets: those of established connections of a protocol, from one port to another; or of one flow.
///
/// What is taken for granted, and has to be checked by a forwarder of such packets: the connection is confirmed and
/// assured, and has no helper; of TCP's flags, ACK is set and SYN, FIN, RST and URG are not; the packet is whole, no
/// fragment, and has no IP options or extension headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The port by which it enters.
    pub ingress: Port,
    /// The port by which it leaves.
    pub egress: Port,
    /// IPv4 or IPv6.
    pub family: Family,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The mark that the packet has when it arrives, if that is known: 0 where no program gives it one.
    pub mark: Option<u32>,
    /// Its flow, where the question is about one.
    pub flow: Option<Flow>,
}

/// Whether connection tracking has seen the packet at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracked {
    Yes,
    NotYet,
    /// Chains of the same priority as the kernel's own.
    Unknown,
}

/// A packet at a hook.
pub(super) struct View<'p> {
    pub(super) packet: &'p Packet,
    pub(super) hook: Hook,
    pub(super) tracked: Tracked,
    /// Source, where it is known.
    source: Option<(IpAddr, u16)>,
    destination: Option<(IpAddr, u16)>,
    /// The destination is where the packet is routed to, not one that is still to be translated.
    pub(super) is_routed: bool,
    /// The IP header and the one behind it.
    bytes: Bits,
}

impl<'p> View<'p> {
    pub(super) fn at(packet: &'p Packet, base: &Base) -> View<'p> {
        let tracked = match (base.hook, base.priority.cmp(&PRIORITY_CONNTRACK)) {
            (Hook::Ingress | Hook::Egress, _) => Tracked::Unknown,
            (Hook::Prerouting, std::cmp::Ordering::Less) => Tracked::NotYet,
            (Hook::Prerouting, std::cmp::Ordering::Equal) => Tracked::Unknown,
            _ => Tracked::Yes,
        };
        let ends = packet.flow.map(|flow| (flow.received(), flow.sent()));
        let source = ends.and_then(|(received, sent)| {
            let before = (received.source, received.source_port);
            let after = (sent.source, sent.source_port);
            match base.hook {
                Hook::Egress => Some(after),
                Hook::Postrouting => chosen(base.priority, PRIORITY_NAT_SOURCE, before, after),
                _ => Some(before),
            }
        });
        let destination = ends.and_then(|(received, sent)| {
            let before = (received.destination, received.destination_port);
            let after = (sent.destination, sent.destination_port);
            match base.hook {
                Hook::Ingress => Some(before),
                Hook::Prerouting => chosen(base.priority, PRIORITY_NAT_DESTINATION, before, after),
                _ => Some(after),
            }
        });
        let is_behind = match base.hook {
            Hook::Ingress => false,
            Hook::Prerouting => base.priority > PRIORITY_NAT_DESTINATION,
            _ => true,
        };
        let is_untranslated =
            ends.is_some_and(|(received, sent)| received.destination == sent.destination);
        let mut view = View {
            packet,
            hook: base.hook,
            tracked,
            source,
            destination,
            is_routed: is_behind || is_untranslated,
            bytes: Bits::unknown(0, false),
        };
        view.bytes = view.headers();
        view
    }

    /// What is not known would be known of a flow.
    pub(super) fn asks(&self) -> bool {
        self.packet.flow.is_none()
    }

    pub(super) fn address(&self, is_destination: bool) -> Option<IpAddr> {
        (if is_destination { self.destination } else { self.source }).map(|end| end.0)
    }

    pub(super) fn port(&self, is_destination: bool) -> Bits {
        let end = if is_destination { self.destination } else { self.source };
        Bits::or_asked(
            end.map(|end| end.1.to_be_bytes()).as_ref().map(|port| &port[..]),
            2,
            self.asks(),
        )
    }

    /// Bytes counted from the IP header; `None` behind the header of the transport.
    pub(super) fn network(&self, offset: usize, length: usize) -> Option<Bits> {
        self.bytes.part(offset, length)
    }

    /// Bytes counted from the header of the transport.
    pub(super) fn transport(&self, offset: usize, length: usize) -> Option<Bits> {
        self.bytes.part(self.network_bytes() + offset, length)
    }

    fn network_bytes(&self) -> usize {
        match self.packet.family {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }

    pub(super) fn address_bits(&self, is_destination: bool) -> Bits {
        let length = if self.packet.family == Family::V6 { 16 } else { 4 };
        let octets = self.address(is_destination).map(octets);
        Bits::or_asked(octets.as_deref(), length, self.asks())
    }

    fn headers(&self) -> Bits {
        let protocol = self.packet.protocol;
        let transport = if protocol == Protocol::Tcp { 20 } else { 8 };
        let start = self.network_bytes();
        let mut bits = Bits::unknown(start + transport, false);
        match self.packet.family {
            Family::V4 => {
                bits.put(0, &Bits::known(&[0x45]));
                // No fragment; DF and the reserved bit are not known.
                bits.put(6, &Bits::partly(&[0, 0], &[0x3f, 0xff]));
                bits.put(9, &Bits::known(&[protocol.number()]));
                bits.put(12, &self.address_bits(false));
                bits.put(16, &self.address_bits(true));
            }
            Family::V6 => {
                bits.put(0, &Bits::partly(&[0x60], &[0xf0]));
                bits.put(6, &Bits::known(&[protocol.number()]));
                bits.put(8, &self.address_bits(false));
                bits.put(24, &self.address_bits(true));
            }
        }
        bits.put(start, &self.port(false));
        bits.put(start + 2, &self.port(true));
        if protocol == Protocol::Tcp {
            bits.put(start + 13, &Bits::partly(&[TCP_ACK], &[TCP_KNOWN]));
        }
        bits
    }
}

/// What stands before or behind the kernel's translation, at a priority.
fn chosen<T: PartialEq>(priority: i32, translation: i32, before: T, after: T) -> Option<T> {
    match priority.cmp(&translation) {
        std::cmp::Ordering::Less => Some(before),
        std::cmp::Ordering::Greater => Some(after),
        std::cmp::Ordering::Equal => (before == after).then_some(after),
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

// linux/netfilter_ipv4.h: the places of the kernel's own hooks.
const PRIORITY_CONNTRACK: i32 = -200;
const PRIORITY_NAT_DESTINATION: i32 = -100;
const PRIORITY_NAT_SOURCE: i32 = 100;
const TCP_ACK: u8 = 0x10;
/// FIN, SYN, RST, ACK, URG. PSH and those of ECN are not known.
const TCP_KNOWN: u8 = 0x37;
