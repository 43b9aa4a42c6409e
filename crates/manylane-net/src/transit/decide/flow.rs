//! The step in front of the route where packets need a flow: whether they have one, and may follow it.

use std::net::IpAddr;

use manylane_sync::rcu::Guard;

use super::{Port, Transit, check};
use crate::transit::Verdict;
use crate::transit::flows::{Key, Tuple, entry};
use crate::transit::layout::{control, flags};
use crate::wire::ip::{Fragment, View};
use crate::wire::{ipv4, ipv6, protocol, tcp, udp};

/// A packet's entry in the flow table, and what it says.
#[derive(Clone, Copy)]
pub(super) struct Followed {
    /// The port that it was approved for.
    pub egress: u16,
    /// What leaves in place of the packet; `None` where nothing is translated.
    pub to: Option<(Tuple, [u16; 2])>,
    /// Where the packet is routed to.
    pub destination: IpAddr,
}

impl Transit {
    /// The entry that a packet follows; `None` where it needs none.
    pub(super) fn follow(
        &self,
        ingress: Port,
        packet: &View<'_>,
    ) -> Result<Option<Followed>, Verdict> {
        let word = self.control.load(control::FLOWS);
        let needs = match packet {
            View::V4(_) => word & control::FLOWS_V4 != 0,
            View::V6(_) => word & control::FLOWS_V6 != 0,
        };
        if !needs {
            return Ok(None);
        }
        let flows = self.flows.as_ref().ok_or(Verdict::NoFlow)?;
        let (tuple, closes) = transport(packet).ok_or(Verdict::NoFlow)?;
        let entry = flows.find(&Key::of(tuple), self.control.load(control::SEED));
        let entry = entry.ok_or(Verdict::NoFlow)?;
        let (state, is_closed) = flows.state(entry);
        let is_approved =
            state as u32 == (word >> 32) as u32 && u16::from((state >> 32) as u8) == ingress.number;
        check(!closes && !is_closed && is_approved, Verdict::FlowPaused)?;
        let to = flows.key(flows.other(entry)).tuple().inverted();
        let is_translated = state >> 48 & entry::TRANSLATED != 0;
        Ok(Some(Followed {
            egress: u16::from((state >> 40) as u8),
            to: is_translated.then(|| (to, flows.differences(entry))),
            destination: to.destination,
        }))
    }
}

impl Transit {
    /// The port by which a packet with these ends leaves that this port receives: the source and the ports as they arrive, the
    /// destination as it is routed. Of a group the member of this flow, whose packets have no options, traffic class or flow
    /// label here.
    pub fn egress_of(&self, guard: Guard<'_>, ingress: u16, ends: Tuple) -> Result<u16, Verdict> {
        let (bytes, ingress) = (headers(ends), self.port(ingress));
        let (packet, next_hop) = match (ends.source, ends.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                let view = ipv4::View::checked(&bytes).ok_or(Verdict::Malformed)?;
                (View::V4(view), self.route_ipv4(guard, ingress, view)?)
            }
            (IpAddr::V6(_), IpAddr::V6(_)) => {
                let view = ipv6::View::checked(&bytes).ok_or(Verdict::Malformed)?;
                (View::V6(view), self.route_ipv6(guard, ingress, view)?)
            }
            _ => return Err(Verdict::Malformed),
        };
        let neighbour = self.neighbour(guard, &packet, next_hop)?;
        Ok(self.record(neighbour)?.egress_port)
    }

    /// Checks the way back of a packet with these ends that this port receives, as far as the port does so: ends as for
    /// [`egress_of`](Transit::egress_of).
    pub fn check_way_back(
        &self,
        guard: Guard<'_>,
        ingress: u16,
        ends: Tuple,
    ) -> Result<(), Verdict> {
        let (bytes, ingress) = (headers(ends), self.port(ingress));
        if ends.is_ipv6() {
            self.check_rules_of_way_back(ingress, true)?;
            let view = ipv6::View::checked(&bytes).ok_or(Verdict::Malformed)?;
            return self.check_source6(guard, ingress, view);
        }
        self.check_rules_of_way_back(ingress, false)?;
        let view = ipv4::View::checked(&bytes).ok_or(Verdict::Malformed)?;
        let next_hop = self.route_ipv4(guard, ingress, view)?;
        let adjacency = self.record(self.neighbour(guard, &View::V4(view), next_hop)?)?;
        self.check_source(guard, ingress, &adjacency, view)
    }

    /// A rule of the firewall that looks at the way back evaluates rules of the policy in a way of its own.
    pub(super) fn check_rules_of_way_back(
        &self,
        ingress: Port,
        is_ipv6: bool,
    ) -> Result<(), Verdict> {
        let strict = if is_ipv6 { flags::RP_STRICT_V6 } else { flags::RP_STRICT };
        check(!ingress.has(strict) || self.list(is_ipv6) == 0, Verdict::KernelRoute)
    }
}

/// The headers of a packet with these ends, as far as they identify its flow.
fn headers(ends: Tuple) -> Vec<u8> {
    let transport = tcp::HEADER_LEN;
    let mut bytes = match (ends.source, ends.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let len = (ipv4::HEADER_LEN + transport) as u16;
            let mut bytes = vec![0x45, 0];
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, ends.protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            bytes
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V6(address) => address.octets(),
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            };
            let mut bytes = vec![0x60, 0, 0, 0];
            bytes.extend((transport as u16).to_be_bytes());
            bytes.extend([ends.protocol, 64]);
            bytes.extend(octets(source));
            bytes.extend(octets(destination));
            bytes
        }
    };
    bytes.extend(ends.source_port.to_be_bytes());
    bytes.extend(ends.destination_port.to_be_bytes());
    // Of TCP the place of its payload; of UDP, too, nothing that is read here.
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// Both ends, and whether the packet opens, closes or resets its connection; `None` for what conntrack would not take for
/// a packet of an established connection.
fn transport(packet: &View<'_>) -> Option<(Tuple, bool)> {
    let (number, at) = match packet {
        View::V4(view) if view.fragment() != Fragment::None => return None,
        View::V4(view) => (view.protocol(), ipv4::HEADER_LEN),
        View::V6(view) => (view.next_header(), ipv6::HEADER_LEN),
    };
    let bytes = packet.packet().get(at..packet.packet_len())?;
    let header: &[u8; udp::HEADER_LEN] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (source, destination) = match packet {
        View::V4(view) => (view.source().into(), view.destination().into()),
        View::V6(view) => (view.source().into(), view.destination().into()),
    };
    let (source_port, destination_port) = (word(0), word(2));
    let tuple = Tuple { source, destination, source_port, destination_port, protocol: number };
    match number {
        protocol::UDP => (usize::from(word(4)) == bytes.len()).then_some((tuple, false)),
        protocol::TCP => {
            let header: &[u8; tcp::HEADER_LEN] = bytes.first_chunk()?;
            let offset = usize::from(header[12] >> 4) * 4;
            let flags = header[13];
            let closes = flags & (FIN | SYN | RST) != 0;
            let is_plain = closes || flags & (ACK | URG) == ACK;
            ((tcp::HEADER_LEN..=bytes.len()).contains(&offset) && is_plain)
                .then_some((tuple, closes))
        }
        _ => None,
    }
}

/// A copy of a packet with another destination; its checksums are what they were.
pub(super) fn to_destination(packet: &View<'_>, destination: IpAddr) -> Vec<u8> {
    let mut bytes = packet.packet().to_vec();
    match destination {
        IpAddr::V4(address) => bytes[16..20].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes[24..40].copy_from_slice(&address.octets()),
    }
    bytes
}

// RFC 9293 §3.1.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const URG: u8 = 32;
