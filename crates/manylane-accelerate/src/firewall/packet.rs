//! The packets that a question is about, and what is known of their bytes at each stage of their way.

use std::cmp::Ordering;
use std::net::IpAddr;

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::{Base, Hook};

use super::bits::{Bits, Part};

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
    /// The connection's status as conntrack has it (`IPS_*`), if it is known. Without, what a [class](ClassKey) takes for
    /// granted holds, and what follows from the tuples; whether another connection's helper expected it is not known then.
    pub status: Option<u32>,
}

impl Flow {
    /// One direction of a connection, with nothing else known.
    pub fn new(original: Tuple, reply: Tuple, is_reply: bool) -> Flow {
        Flow { original, reply, is_reply, mark: None, zone: None, status: None }
    }

    /// The tuple of its packets as they arrive.
    pub fn received(&self) -> Tuple {
        if self.is_reply { self.reply } else { self.original }
    }

    /// Whether the kernel puts another source in the place of the original one.
    pub(super) fn is_source_translated(&self) -> bool {
        let Tuple { source, source_port, .. } = self.original;
        (source, source_port) != (self.reply.destination, self.reply.destination_port)
    }

    /// Whether it puts another destination in the place of the original one.
    pub(super) fn is_destination_translated(&self) -> bool {
        let Tuple { destination, destination_port, .. } = self.original;
        (destination, destination_port) != (self.reply.source, self.reply.source_port)
    }

    /// The tuple of its packets as they leave.
    pub fn sent(&self) -> Tuple {
        if self.is_reply { self.original.inverted() } else { self.reply.inverted() }
    }
}

/// A class of packets: those of established connections of a protocol, from one port to another.
///
/// What is taken for granted, and has to be checked by a forwarder of such packets: the connection is confirmed and
/// assured, and has no helper; of TCP's flags, ACK is set and SYN, FIN, RST and URG are not; the packet is whole, no
/// fragment, and has no IP options or extension headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassKey {
    /// The port by which they enter.
    pub ingress: Port,
    /// The port by which they leave.
    pub egress: Port,
    /// IPv4 or IPv6.
    pub family: Family,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The mark that they have when they arrive, if that is known: 0 where no program gives them one.
    pub mark: Option<u32>,
}

/// A class of packets, or those of one flow of it.
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

impl Packet {
    /// The class that it belongs to.
    pub fn class(&self) -> ClassKey {
        let Packet { ingress, egress, family, protocol, mark, .. } = self.clone();
        ClassKey { ingress, egress, family, protocol, mark }
    }
}

/// Whether connection tracking has seen the packet at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracked {
    Yes,
    NotYet,
    /// Chains of the same priority as the kernel's own.
    Unknown,
}

/// How far the connection of a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Packets of both directions were seen.
    #[default]
    Established,
    /// No reply was seen yet (`ct state new`).
    New,
    /// A rule keeps connection tracking away (`ct state untracked`).
    Untracked,
}

/// A packet at a hook.
pub(super) struct View<'p> {
    pub(super) class: &'p ClassKey,
    pub(super) flow: Option<&'p Flow>,
    pub(super) hook: Hook,
    pub(super) tracked: Tracked,
    pub(super) stage: Stage,
    /// The destination is where the packet is routed to, not one that is still to be translated.
    pub(super) is_routed: bool,
    /// The IP header and the one behind it.
    bytes: Bits,
    length: usize,
}

impl<'p> View<'p> {
    pub(super) fn at(class: &'p ClassKey, flow: Option<&'p Flow>, base: &Base) -> View<'p> {
        let tracked = match (base.hook, base.priority.cmp(&PRIORITY_CONNTRACK)) {
            (Hook::Ingress | Hook::Egress, _) => Tracked::Unknown,
            (Hook::Prerouting, Ordering::Less) => Tracked::NotYet,
            (Hook::Prerouting, Ordering::Equal) => Tracked::Unknown,
            _ => Tracked::Yes,
        };
        let ends = flow.map(|flow| (flow.received(), flow.sent()));
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
        let is_routed = is_behind || is_untranslated;
        let (bytes, length) = headers(class, source, destination, flow.is_none());
        let stage = Stage::Established;
        View { class, flow, hook: base.hook, tracked, stage, is_routed, bytes, length }
    }

    /// As above, for a packet that does not belong to an established connection: one that begins it, if it is of TCP.
    pub(super) fn of_stage(
        stage: Stage,
        class: &'p ClassKey,
        flow: Option<&'p Flow>,
        base: &Base,
    ) -> View<'p> {
        let mut view = View { stage, ..View::at(class, flow, base) };
        if let (Stage::New, Protocol::Tcp) = (stage, class.protocol) {
            view.bytes.fix(network_bytes(class.family) + 13, TCP_SYN, TCP_KNOWN);
        }
        view
    }

    /// What is not known would be known of a flow.
    pub(super) fn asks(&self) -> bool {
        self.flow.is_none()
    }

    /// Bytes counted from the IP header; `None` behind the header of the transport.
    pub(super) fn network(&self, offset: usize, length: usize) -> Option<Part<'_>> {
        let is_there = offset.checked_add(length)? <= self.length;
        is_there.then(|| self.bytes.part(offset, length)).flatten()
    }

    /// Bytes counted from the header of the transport.
    pub(super) fn transport(&self, offset: usize, length: usize) -> Option<Part<'_>> {
        self.network(network_bytes(self.class.family).checked_add(offset)?, length)
    }

    pub(super) fn port(&self, is_destination: bool) -> Option<Part<'_>> {
        self.transport(if is_destination { 2 } else { 0 }, 2)
    }

    pub(super) fn address(&self, is_destination: bool) -> Option<Part<'_>> {
        let (offset, length) = address_at(self.class.family, is_destination);
        self.network(offset, length)
    }
}

fn network_bytes(family: Family) -> usize {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

/// Offset and length of an address in the IP header.
fn address_at(family: Family, is_destination: bool) -> (usize, usize) {
    match (family, is_destination) {
        (Family::V4, false) => (12, 4),
        (Family::V4, true) => (16, 4),
        (Family::V6, false) => (8, 16),
        (Family::V6, true) => (24, 16),
    }
}

/// The headers, as far as they are known, and how long they are. `asks`: a flow would tell the ends that are not.
fn headers(
    class: &ClassKey,
    source: Option<(IpAddr, u16)>,
    destination: Option<(IpAddr, u16)>,
    asks: bool,
) -> (Bits, usize) {
    let start = network_bytes(class.family);
    let protocol = class.protocol.number();
    let mut bits = Bits::UNKNOWN;
    match class.family {
        Family::V4 => {
            bits.set(0, &[0x45]);
            // No fragment; DF and the reserved bit are not known.
            bits.fix(6, 0, 0x3f);
            bits.fix(7, 0, 0xff);
            bits.set(9, &[protocol]);
        }
        Family::V6 => {
            bits.fix(0, 0x60, 0xf0);
            bits.set(6, &[protocol]);
        }
    }
    for (is_destination, end) in [(false, source), (true, destination)] {
        let (at, length) = address_at(class.family, is_destination);
        let port_at = start + if is_destination { 2 } else { 0 };
        match end {
            Some((address, port)) => {
                bits.set(at, Octets::of(address).as_ref());
                bits.set(port_at, &port.to_be_bytes());
            }
            None => {
                bits.forget(at, length, asks);
                bits.forget(port_at, 2, asks);
            }
        }
    }
    match class.protocol {
        Protocol::Udp => (bits, start + 8),
        Protocol::Tcp => {
            bits.fix(start + 13, TCP_ACK, TCP_KNOWN);
            (bits, start + 20)
        }
    }
}

/// What stands before or behind the kernel's translation, at a priority.
fn chosen<T: PartialEq>(priority: i32, translation: i32, before: T, after: T) -> Option<T> {
    match priority.cmp(&translation) {
        Ordering::Less => Some(before),
        Ordering::Greater => Some(after),
        Ordering::Equal => (before == after).then_some(after),
    }
}

/// The bytes of an address.
pub(super) struct Octets {
    bytes: [u8; 16],
    length: usize,
}

impl Octets {
    pub(super) fn of(address: IpAddr) -> Octets {
        match address {
            IpAddr::V4(address) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                Octets { bytes, length: 4 }
            }
            IpAddr::V6(address) => Octets { bytes: address.octets(), length: 16 },
        }
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

// linux/netfilter_ipv4.h: the places of the kernel's own hooks.
const PRIORITY_CONNTRACK: i32 = -200;
const PRIORITY_NAT_DESTINATION: i32 = -100;
const PRIORITY_NAT_SOURCE: i32 = 100;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
/// FIN, SYN, RST, ACK, URG. PSH and those of ECN are not known.
const TCP_KNOWN: u8 = 0x37;
