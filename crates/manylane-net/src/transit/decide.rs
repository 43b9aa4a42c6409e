//! The decision: the program's twin.
//!
//! The checks have the order of this file, which is the program's. A packet that fails one is the kernel's, with that
//! verdict, and unchanged.
//!
//! | step                | verdicts of what fails it                                                    |
//! |---------------------|------------------------------------------------------------------------------|
//! | port and lease      | `NotIngress`, `Lapsed`; with a tag `UnknownVlan`, `NotIngress`                   |
//! | link header         | `Malformed`, `LinkGroup`, `NotForUs`, `NotIp`                                |
//! | IP header           | `Malformed`, `BadChecksum`, `Options`                                        |
//! | may it be forwarded | `NotForwarding`, `Martian`, `Group`, `Ttl`                                   |
//! | flow, where packets need one | `NoFlow`, `FlowPaused`                                              |
//! | route               | `NoRoute`, `Nowhere`, `Local`, `KernelRoute`; of groups `Multipath`          |
//! | neighbour           | `Unresolved`                                                                 |
//! | way back            | `ReversePath`                                                                |
//! | egress              | `SamePort`, `EgressKernel`                                                     |
//! | size                | of segments `Extension`, `Segments`; `TooBig`                                |

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::Words;

use super::Verdict;
use super::flows::{FlowsReader, Tuple, translate};
use super::layout::{self, PORT_WORDS, PORTS, RECORD_WORDS, UNKNOWN, control, flags, port, record};
use super::policy::{Found, Policy, Query, of_ipv4};
use super::writer::{self, Adjacency};
use crate::fib::{Ipv4Fib, Ipv6Fib, NextHop as NextHopMark, Packed};
use crate::forward::{HEADERS_MAX, decrement_ttl};
use crate::neighbour::Neighbour;
use crate::nexthop::{GroupId, NextHop, NextHops};
use crate::wire::ethernet::{self, HEADER_LEN as LINK_HEADER, Mac, ether_type};
use crate::wire::flow::FlowKey;
use crate::wire::ip::{Fragment, View};
use crate::wire::{icmp, icmpv6, ipv4, ipv6, protocol, tcp};

mod flow;
#[cfg(test)]
mod tests;

use flow::to_destination;

/// A readers' side of the tables, which decides as the program does.
#[derive(Clone)]
pub struct Transit {
    pub(super) ipv4: Ipv4Fib<Packed>,
    pub(super) ipv6: Ipv6Fib,
    pub(super) next_hops: NextHops,
    pub(super) record_of: Words<u32>,
    pub(super) records: Words<u32>,
    pub(super) ports: Words<u32>,
    pub(super) port_of: Words<u16>,
    pub(super) vlan_port: Words<u16>,
    pub(super) control: Words<u64>,
    /// None for readers that follow no flows.
    pub(super) flows: Option<FlowsReader>,
    pub(super) policy: Policy,
}

/// How a frame arrived, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The index of the interface; of one that has VLANs, if the frame had a tag.
    pub ifindex: u32,
    /// `CLOCK_MONOTONIC_COARSE`, in nanoseconds.
    pub now_ns: u64,
    /// Ether type and VLAN of the tag that was taken off.
    pub tag: Option<(u16, u16)>,
    /// Bytes of payload in each of the segments that it stands for; 0 when it stands for itself.
    pub gso_size: u16,
}

/// Where a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The port's number.
    pub port: u16,
    /// The index of its interface. The record may be older than the port: then that has another one now.
    pub ifindex: u32,
}

/// A port as one packet sees it.
#[derive(Clone, Copy)]
struct Port {
    number: u16,
    flags: u32,
}

impl Port {
    fn has(self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

/// What leaves in place of a packet, and what sums grow by for its addresses and ports.
type Translation = Option<(Tuple, [u16; 2])>;

/// What has to hold, or the verdict.
fn check(holds: bool, otherwise: Verdict) -> Result<(), Verdict> {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl Transit {
    /// A readers' side that follows no flows: packets that need one have none.
    pub fn without_flows(self) -> Transit {
        Transit { flows: None, ..self }
    }

    /// Decides about a frame, without its tag, and rewrites it if it is forwarded: then the index of the
    /// interface to send it by comes too.
    pub fn decide(
        &self,
        guard: Guard<'_>,
        frame: &mut [u8],
        arrival: &Arrival,
    ) -> (Verdict, Option<u32>) {
        match self.forward(guard, frame, arrival) {
            Ok(egress) => (Verdict::Forwarded, Some(egress.ifindex)),
            Err(verdict) => (verdict, None),
        }
    }

    /// As `decide`, for a caller that sends the frame.
    #[inline]
    pub fn forward(
        &self,
        guard: Guard<'_>,
        frame: &mut [u8],
        arrival: &Arrival,
    ) -> Result<Egress, Verdict> {
        let (adjacency, to) = self.adjacency(guard, frame, arrival)?;
        if let Some((tuple, differences)) = to {
            translate(frame, tuple, differences, false);
        }
        adjacency.rewrite(frame);
        Ok(Egress { port: adjacency.egress_port, ifindex: adjacency.egress_ifindex })
    }

    /// Whether packets received by this interface may be forwarded at all: they may not while the gate judges.
    pub fn is_open(&self, ifindex: u32) -> bool {
        let has_place = (ifindex as usize) < layout::INTERFACES;
        has_place && self.port(self.port_of.load(ifindex as usize)).has(flags::INGRESS)
    }

    /// The adjacency of the neighbour to which a frame is forwarded, and what it is translated to; or why the kernel has
    /// it.
    #[inline(always)]
    fn adjacency(
        &self,
        guard: Guard<'_>,
        frame: &[u8],
        arrival: &Arrival,
    ) -> Result<(Adjacency, Translation), Verdict> {
        let ingress = self.ingress(arrival)?;
        let packet = self.addressed_to_us(ingress, frame)?;
        self.may_be_forwarded(ingress, &packet)?;
        let Some(followed) = self.follow(ingress, &packet)? else {
            return Ok((self.route_out(guard, ingress, packet, arrival, None)?, None));
        };
        // The program has no room for the policy's rules here: see `decide.h`.
        check(self.list(matches!(packet, View::V6(_))) == 0, Verdict::KernelRoute)?;
        // Route and way back see the source as it came, the destination as it is translated.
        let bytes = to_destination(&packet, followed.destination);
        let routed = match packet {
            View::V4(_) => ipv4::View::checked(&bytes).map(View::V4),
            View::V6(view) => {
                self.check_source6(guard, ingress, view)?;
                ipv6::View::checked(&bytes).map(View::V6)
            }
        };
        let routed = routed.ok_or(Verdict::Malformed)?;
        let egress = Some(followed.egress);
        Ok((self.route_out(guard, ingress, routed, arrival, egress)?, followed.to))
    }

    /// From the route of the destination on. With an `egress`, the packet follows a flow, which leaves by that port.
    #[inline(always)]
    fn route_out(
        &self,
        guard: Guard<'_>,
        ingress: Port,
        packet: View<'_>,
        arrival: &Arrival,
        egress: Option<u16>,
    ) -> Result<Adjacency, Verdict> {
        let next_hop = match packet {
            View::V4(packet) => self.route_ipv4(guard, ingress, packet)?,
            View::V6(packet) => self.route_ipv6(guard, ingress, packet)?,
        };
        let adjacency = self.record(self.neighbour(guard, &packet, next_hop)?)?;
        if let View::V4(packet) = packet {
            self.check_source(guard, ingress, &adjacency, packet)?;
        }
        check(egress.is_none_or(|egress| egress == adjacency.egress_port), Verdict::FlowPaused)?;
        let redirects = match packet {
            View::V4(_) => flags::REDIRECTS_V4,
            View::V6(_) => flags::REDIRECTS_V6,
        };
        check(
            adjacency.egress_port != ingress.number || !ingress.has(redirects),
            Verdict::SamePort,
        )?;
        check(self.port(adjacency.egress_port).has(flags::EGRESS), Verdict::EgressKernel)?;
        let len = match arrival.gso_size {
            0 => packet.packet_len(),
            size => headers_of_segments(&packet)? + usize::from(size),
        };
        check(len <= adjacency.mtu as usize, Verdict::TooBig)?;
        Ok(adjacency)
    }

    /// The ingress port, while the tables are true.
    fn ingress(&self, arrival: &Arrival) -> Result<Port, Verdict> {
        let has_place = (arrival.ifindex as usize) < layout::INTERFACES;
        let number = if has_place { self.port_of.load(arrival.ifindex as usize) } else { 0 };
        let device = self.port(number);
        check(device.has(flags::INGRESS), Verdict::NotIngress)?;
        check(arrival.now_ns < self.control.load(control::LEASE), Verdict::Lapsed)?;
        let Some((ether_type, vlan)) = arrival.tag else { return Ok(device) };
        let is_service = ether_type == ether_type::SERVICE_VLAN;
        let place = layout::vlan(device.number, is_service, vlan % layout::VLANS as u16);
        let number = self.vlan_port.load(place);
        check(number != 0, Verdict::UnknownVlan)?;
        let vlan = self.port(number);
        check(vlan.has(flags::INGRESS), Verdict::NotIngress)?;
        Ok(vlan)
    }

    /// The packet in a frame that is for us on the link, with a header that is right.
    fn addressed_to_us<'a>(&self, ingress: Port, frame: &'a [u8]) -> Result<View<'a>, Verdict> {
        let link = ethernet::View::checked(frame).ok_or(Verdict::Malformed)?;
        let destination = link.destination();
        if destination != self.mac(ingress) {
            // RFC 1812 §5.3.4: what came to all stations is not forwarded.
            let is_group = destination.is_group();
            return Err(if is_group { Verdict::LinkGroup } else { Verdict::NotForUs });
        }
        let packet = match link.ether_type() {
            ether_type::IPV4 => ipv4::View::checked(link.payload()).map(View::V4),
            ether_type::IPV6 => ipv6::View::checked(link.payload()).map(View::V6),
            _ => return Err(Verdict::NotIp),
        };
        let packet = packet.ok_or(Verdict::Malformed)?;
        // The kernel cuts off what is behind a packet. Ethernet's padding may stay, which is there again on
        // the next link; anything longer would be more than the packet's own length says.
        let is_padding = frame.len() <= ETHERNET_LEN_MIN;
        let is_cut = frame.len() == LINK_HEADER + packet.packet_len();
        check(is_padding || is_cut, Verdict::Malformed)?;
        match packet {
            View::V4(packet) => {
                check(packet.has_valid_checksum(), Verdict::BadChecksum)?;
                check(packet.header_len() == ipv4::HEADER_LEN, Verdict::Options)?;
            }
            View::V6(packet) => {
                let is_for_routers =
                    matches!(packet.next_header(), protocol::HOP_BY_HOP | protocol::ROUTING);
                check(!is_for_routers, Verdict::Options)?;
            }
        }
        Ok(packet)
    }

    /// Whether a packet may be forwarded at all, wherever to.
    fn may_be_forwarded(&self, ingress: Port, packet: &View<'_>) -> Result<(), Verdict> {
        match packet {
            View::V4(packet) => may_forward_ipv4(ingress, *packet),
            View::V6(packet) => may_forward_ipv6(ingress, *packet),
        }
    }

    /// What the route of an IPv4 packet leads to.
    fn route_ipv4<'g>(
        &self,
        guard: Guard<'g>,
        ingress: Port,
        packet: ipv4::View<'_>,
    ) -> Result<NextHop<Index<'g, Neighbour>>, Verdict> {
        let destination = packet.destination();
        let id = self.ipv4.lookup(guard, destination.to_bits());
        let id = match self.list(false) {
            0 => id,
            list => {
                let query = self.query_ipv4(ingress, packet, id);
                found(self.policy.find(guard, list, &query, &self.next_hops))?
            }
        };
        Ok(self.next_hop(guard, id))
    }

    /// As `route_ipv4`, for IPv6.
    fn route_ipv6<'g>(
        &self,
        guard: Guard<'g>,
        ingress: Port,
        packet: ipv6::View<'_>,
    ) -> Result<NextHop<Index<'g, Neighbour>>, Verdict> {
        let (source, destination) = (packet.source(), packet.destination());
        let id = self.ipv6.lookup(guard, destination.to_bits());
        let id = match self.list(true) {
            0 => id,
            list => {
                let query = Query {
                    to: destination.to_bits(),
                    from: source.to_bits(),
                    interface: self.interface(ingress),
                    tos: packet.traffic_class(),
                    merged: id.raw(),
                };
                found(self.policy.find(guard, list, &query, &self.next_hops))?
            }
        };
        Ok(self.next_hop(guard, id))
    }

    /// The list of a family's rules; 0 with only the usual ones.
    fn list(&self, is_ipv6: bool) -> usize {
        let lists = self.control.load(control::RULES);
        (lists >> (16 * u32::from(is_ipv6)) & 0xffff) as usize % layout::RULE_LISTS
    }

    fn query_ipv4(
        &self,
        ingress: Port,
        packet: ipv4::View<'_>,
        id: Index<'_, NextHopMark>,
    ) -> Query {
        Query {
            to: of_ipv4(packet.destination().to_bits()),
            from: of_ipv4(packet.source().to_bits()),
            interface: self.interface(ingress),
            tos: packet.tos(),
            merged: id.raw(),
        }
    }

    /// The neighbour that a next hop is, or one of a group, by the packet's flow.
    fn neighbour<'g>(
        &self,
        guard: Guard<'g>,
        packet: &View<'_>,
        next_hop: NextHop<Index<'g, Neighbour>>,
    ) -> Result<Index<'g, Neighbour>, Verdict> {
        match next_hop {
            NextHop::Via(neighbour) => Ok(neighbour),
            NextHop::Group(group) => self.member(guard, packet, group),
            NextHop::Connected(_) => Err(Verdict::Unresolved),
            NextHop::Local | NextHop::Broadcast => Err(Verdict::Local),
            NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit => Err(Verdict::Nowhere),
            NextHop::Kernel => Err(Verdict::KernelRoute),
            NextHop::None => Err(Verdict::NoRoute),
        }
    }

    /// The member of a group that takes a packet's flow, where that is ours to say.
    fn member<'g>(
        &self,
        guard: Guard<'g>,
        packet: &View<'_>,
        group: GroupId,
    ) -> Result<Index<'g, Neighbour>, Verdict> {
        let multipath = self.control.load(control::MULTIPATH);
        let (allowed, by_ports) = match packet {
            View::V4(_) => (control::MULTIPATH_V4, control::PORTS_V4),
            View::V6(_) => (control::MULTIPATH_V6, control::PORTS_V6),
        };
        check(multipath & allowed != 0, Verdict::Multipath)?;
        let seed = self.control.load(control::SEED);
        let hash = flow_hash(&FlowKey::seeded(seed), packet, multipath & by_ports != 0)
            .ok_or(Verdict::Multipath)?;
        Ok(self.next_hops.member_by(guard, group, seed, hash))
    }

    /// The kernel's check of an IPv4 source: never one of our own addresses, and by `rp_filter` one whose route leads
    /// out by the ingress port (strict), or anywhere (loose): RFC 3704 §2.2 and §2.4. Rules are applied to the reverse
    /// packet, which would be received where this one leaves.
    fn check_source(
        &self,
        guard: Guard<'_>,
        ingress: Port,
        adjacency: &Adjacency,
        packet: ipv4::View<'_>,
    ) -> Result<(), Verdict> {
        let id = self.ipv4.lookup(guard, packet.source().to_bits());
        // The source could be one of our own. (The program reads a filter first, which knows most that are not.)
        check(id.raw() != UNKNOWN.into(), Verdict::ReversePath)?;
        let list = self.list(false);
        let next_hop = if list == 0 {
            self.next_hop(guard, id)
        } else {
            let there = self.query_ipv4(ingress, packet, id);
            let interface = adjacency.egress_ifindex;
            let back = Query { to: there.from, from: there.to, interface, ..there };
            match self.policy.find(guard, list, &back, &self.next_hops) {
                Found::Id(id) => match self.next_hop(guard, id) {
                    // A kind of route that the kernel may refuse to take for a source's.
                    NextHop::Kernel => return Err(Verdict::ReversePath),
                    next_hop => next_hop,
                },
                Found::None | Found::Nowhere => NextHop::None,
                Found::Kernel => return Err(Verdict::ReversePath),
            }
        };
        let is_right = match next_hop {
            NextHop::Local | NextHop::Broadcast => false,
            _ if !ingress.has(flags::RP_STRICT | flags::RP_LOOSE) => true,
            NextHop::Via(_) | NextHop::Group(_) | NextHop::Connected(_)
                if !ingress.has(flags::RP_STRICT) =>
            {
                true
            }
            NextHop::Via(neighbour) => self
                .record(neighbour)
                .is_ok_and(|adjacency| adjacency.egress_port == ingress.number),
            NextHop::Connected(port) => port.0 == ingress.number,
            // Every member of a group would have to be checked.
            _ => false,
        };
        check(is_right, Verdict::ReversePath)
    }

    /// Where a rule of the firewall wants it, an IPv6 source's route leads out by the ingress port.
    fn check_source6(
        &self,
        guard: Guard<'_>,
        ingress: Port,
        packet: ipv6::View<'_>,
    ) -> Result<(), Verdict> {
        if !ingress.has(flags::RP_STRICT_V6) {
            return Ok(());
        }
        let id = self.ipv6.lookup(guard, packet.source().to_bits());
        let is_right = match self.next_hop(guard, id) {
            NextHop::Via(neighbour) => self
                .record(neighbour)
                .is_ok_and(|adjacency| adjacency.egress_port == ingress.number),
            NextHop::Connected(port) => port.0 == ingress.number,
            _ => false,
        };
        check(is_right, Verdict::ReversePath)
    }

    fn next_hop<'g>(
        &self,
        guard: Guard<'g>,
        id: Index<'g, NextHopMark>,
    ) -> NextHop<Index<'g, Neighbour>> {
        self.next_hops.load(guard, id)
    }

    /// The record of a neighbour that can be sent to.
    fn record(&self, neighbour: Index<'_, Neighbour>) -> Result<Adjacency, Verdict> {
        let number = self.record_of.load(neighbour.raw() as usize);
        let words: [u32; RECORD_WORDS] = self.records.load_array(number as usize * RECORD_WORDS);
        let [first, last] = record::STAMPS.map(|place| words[place]);
        // A record is replaced whole. One that was not, because a writer broke that rule, is none.
        check(number != 0 && first == last, Verdict::Unresolved)?;
        Ok(Adjacency::of(&words))
    }

    fn port(&self, number: u16) -> Port {
        let number = number % PORTS as u16;
        Port { number, flags: self.ports.load(usize::from(number) * PORT_WORDS + port::FLAGS) }
    }

    /// The index of a port's interface.
    fn interface(&self, Port { number, .. }: Port) -> u32 {
        self.ports.load(usize::from(number) * PORT_WORDS + port::INTERFACE)
    }

    fn mac(&self, Port { number, .. }: Port) -> Mac {
        let words = self.ports.load_array(usize::from(number) * PORT_WORDS + port::MAC);
        writer::mac(words)
    }
}

/// RFC 1812 §5.3.1, §5.3.7.
fn may_forward_ipv4(ingress: Port, packet: ipv4::View<'_>) -> Result<(), Verdict> {
    let (source, destination) = (packet.source(), packet.destination());
    check(ingress.has(flags::FORWARDING_V4), Verdict::NotForwarding)?;
    check(!ipv4::is_martian_source(source), Verdict::Martian)?;
    check(!ipv4::is_martian_destination(destination), Verdict::Martian)?;
    check(!destination.is_broadcast(), Verdict::Martian)?;
    check(!destination.is_multicast(), Verdict::Group)?;
    check(packet.ttl() > 1, Verdict::Ttl)
}

/// RFC 8200 §3, RFC 4291 §2.5.
fn may_forward_ipv6(ingress: Port, packet: ipv6::View<'_>) -> Result<(), Verdict> {
    let (source, destination) = (packet.source(), packet.destination());
    check(ingress.has(flags::FORWARDING_V6), Verdict::NotForwarding)?;
    check(!ipv6::is_martian_source(source), Verdict::Martian)?;
    check(!source.is_unicast_link_local(), Verdict::Martian)?;
    if destination.is_multicast() {
        return Err(Verdict::Group);
    }
    check(!ipv6::is_martian_destination(destination), Verdict::Martian)?;
    check(!destination.is_unicast_link_local(), Verdict::Martian)?;
    check(packet.hop_limit() > 1, Verdict::Ttl)
}

/// The id that rules lead to, or the verdict.
fn found(found: Found<'_>) -> Result<Index<'_, NextHopMark>, Verdict> {
    match found {
        Found::Id(id) => Ok(id),
        Found::None => Err(Verdict::NoRoute),
        Found::Nowhere => Err(Verdict::Nowhere),
        Found::Kernel => Err(Verdict::KernelRoute),
    }
}

impl Adjacency {
    /// What forwarding does to a frame: another link header, and one hop older.
    fn rewrite(&self, frame: &mut [u8]) {
        let ether_type = u16::from_be_bytes([frame[12], frame[13]]);
        ethernet::emit(frame, self.destination, self.source, ether_type);
        match frame.first_chunk_mut::<{ LINK_HEADER + ipv4::HEADER_LEN }>() {
            Some(head) if ether_type == ether_type::IPV4 => decrement_ttl(head),
            _ => frame[LINK_HEADER + HOP_LIMIT] -= 1, // Checked to be above 1.
        }
    }
}

/// The shortest Ethernet frame, without its checksum (IEEE 802.3 §3.2.8): senders pad to it.
const ETHERNET_LEN_MIN: usize = 60;

/// Where IPv6's header has it.
const HOP_LIMIT: usize = 7;

/// The hash by which a group's member is chosen; `None` for packets for which only the kernel should choose: errors,
/// which take the path of their flow, and packets with extension headers in front of their ports.
fn flow_hash(key: &FlowKey, packet: &View<'_>, by_ports: bool) -> Option<u32> {
    if matches!(packet, View::V6(view) if ipv6::is_extension(view.next_header())) {
        return None;
    }
    let transport = packet.transport()?;
    if transport.fragment != Fragment::None {
        return Some(key.address_hash(packet));
    }
    let message = packet.packet().get(transport.offset..)?;
    if by_ports && protocol::has_ports(transport.protocol) {
        return Some(key.flow_hash(packet.packet()));
    }
    let is_error = match (transport.protocol, message) {
        (protocol::ICMP, &[kind, _, _, _, _, _, _, _, ..]) => icmp::is_error(kind),
        (protocol::ICMPV6, &[kind, _, _, _, _, _, _, _, ..]) => icmpv6::is_error(kind),
        _ => false,
    };
    (!is_error).then(|| key.address_hash(packet))
}

/// The length of the headers that each segment has of a TCP packet that stands for several.
fn headers_of_segments(packet: &View<'_>) -> Result<usize, Verdict> {
    let (protocol, at) = match packet {
        View::V4(view) if view.fragment() == Fragment::None => (view.protocol(), view.header_len()),
        View::V4(_) => return Err(Verdict::Segments),
        View::V6(view) => behind_extensions(view)?,
    };
    check(protocol == protocol::TCP, Verdict::Segments)?;
    let segment = packet.packet().get(at..).and_then(tcp::View::checked);
    let segment = segment.ok_or(Verdict::Segments)?;
    let len = packet.packet_len() - segment.payload().len();
    // Behind more extensions than any sender uses, `forward` would not look for them either.
    check(LINK_HEADER + len <= HEADERS_MAX, Verdict::Extension)?;
    Ok(len)
}

/// The protocol behind a chain of extension headers, and where it begins.
fn behind_extensions(view: &ipv6::View<'_>) -> Result<(u8, usize), Verdict> {
    let (mut protocol, mut at) = (view.next_header(), ipv6::HEADER_LEN);
    for _ in 0..EXTENSION_HEADERS_MAX {
        if !ipv6::is_extension(protocol) {
            break;
        }
        // A fragment is no packet of segments; hop-by-hop options elsewhere than in front are none.
        let is_walked = !matches!(protocol, protocol::FRAGMENT | protocol::HOP_BY_HOP);
        check(is_walked, Verdict::Extension)?;
        let header = view.packet().get(at..).and_then(|header| header.first_chunk());
        let &[next, len] = header.ok_or(Verdict::Extension)?;
        at += match protocol {
            protocol::AUTHENTICATION => (usize::from(len) + 2) * 4, // RFC 4302 §2.2.
            _ => (usize::from(len) + 1) * 8,
        };
        check(at <= view.packet().len(), Verdict::Extension)?;
        protocol = next;
    }
    check(!ipv6::is_extension(protocol), Verdict::Extension)?;
    Ok((protocol, at))
}

/// Extension headers in front of TCP that are walked.
const EXTENSION_HEADERS_MAX: usize = 6;

/// The queueing priority that the kernel gives an IPv4 packet that it forwards (`rt_tos2priority`), by its
/// type of service: best effort, bulk, interactive, interactive bulk.
pub fn priority_ipv4(tos: u8) -> u32 {
    [0, 2, 6, 4][usize::from(tos >> 3 & 3)]
}
