//! Pass 3: neighbour and MTU; then TTL, checksum and link-layer header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::{Checksum, DropReason, PortId};
use manylane_frame::{CHAIN_MAX, Frame, Meta, PacketMut, Pool, View};
use manylane_sync::rcu::{Guard, Index};

use super::check::{self, Checked};
use super::{
    Fate, Forwarder, LINK_HEADER, REPORT_INTERVAL_NS, Tables, Turn, Verdict, parts, segment,
};
use crate::icmp::ErrorKind;
use crate::neighbour::{Adjacency, AdjacencyState, Neighbour, Report};
use crate::nexthop::{GroupId, NextHop};
use crate::wire::ethernet::ether_type;
use crate::wire::ipv4;
use crate::wire::repair::{Repair, repair, repair_parted};

/// Where an IPv4 packet may be cut: the flag that forbids it (RFC 791 §3.1).
const DONT_FRAGMENT: u8 = 0x40;

/// Pass 3, over fast-path packets, from place `at` of the batch on: forwards each, up to the first that
/// cannot simply be forwarded. `egress_ports` gets the port of each. Returns how many were passed on: `rewrite`
/// decides for the next one, to which nothing has been done.
///
/// A function of its own, which changes packets only: so the tables' addresses stay in registers.
#[inline(never)]
pub(super) fn pass_on(
    region: View<'_>,
    tables: &Tables,
    guard: Guard<'_>,
    frames: &mut [Frame],
    (checked, at): (&Checked, usize),
    egress_ports: &mut [u16],
) -> usize {
    let all = check::all(frames.len());
    let mut ipv6 = checked.ipv6(at) & all;
    let parts = (frames, checked.records(at), egress_ports);
    if ipv6 == 0 {
        pass_each(region, tables, guard, parts, || false)
    } else if ipv6 == all {
        pass_each(region, tables, guard, parts, || true)
    } else {
        let next = || {
            let is_ipv6 = ipv6 & 1 != 0;
            ipv6 >>= 1;
            is_ipv6
        };
        pass_each(region, tables, guard, parts, next)
    }
}

/// As `pass_on`, for frames, the records of their neighbours, and the places for their ports. `is_ipv6` is called once for
/// each; a batch is seldom of both families, and has a loop without the question if it is not.
#[inline(always)]
fn pass_each(
    region: View<'_>,
    tables: &Tables,
    guard: Guard<'_>,
    (frames, records, egress_ports): (&mut [Frame], &[u32], &mut [u16]),
    mut is_ipv6: impl FnMut() -> bool,
) -> usize {
    let len = frames.len();
    let packets = region.packets_mut(frames).zip(records).zip(egress_ports);
    for (place, ((packet, &record), egress)) in packets.enumerate() {
        let is_ipv6 = is_ipv6();
        let adjacency = tables.adjacencies.plain(Index::new(guard, record));
        let sent = adjacency.and_then(|adjacency| match is_ipv6 {
            false => pass_on_ipv4(packet, adjacency),
            true => pass_on_ipv6(packet, adjacency),
        });
        match sent {
            Some(port) => *egress = port.0,
            None => return place,
        }
    }
    len
}

/// Passes an IPv4 packet on: its next hop is a resolved neighbour, it fits the MTU, lies in one frame
/// (`check` has looked), and its checksum is complete. `None`, and nothing done, when anything else is the
/// case.
#[inline(always)]
fn pass_on_ipv4(packet: PacketMut<'_>, adjacency: Adjacency<'_>) -> Option<PortId> {
    let (packet_len, is_plain) = (packet.bytes.len(), is_plain(packet.meta()));
    let head = packet.bytes.first_chunk_mut::<34>()?;
    let total_len = u16::from_be_bytes([head[16], head[17]]);
    if !is_plain || u32::from(total_len) > adjacency.mtu() {
        return None;
    }
    decrement_ttl(head);
    write_header(head, adjacency);
    let len = LINK_HEADER + usize::from(total_len);
    if packet_len > len {
        packet.truncate(len); // Ethernet's padding of short packets ends here.
    }
    Some(adjacency.egress())
}

/// As `pass_on_ipv4`, for IPv6.
#[inline(always)]
fn pass_on_ipv6(packet: PacketMut<'_>, adjacency: Adjacency<'_>) -> Option<PortId> {
    let (packet_len, is_plain) = (packet.bytes.len(), is_plain(packet.meta()));
    let head = packet.bytes.first_chunk_mut::<54>()?;
    let len = 40 + u32::from(u16::from_be_bytes([head[18], head[19]]));
    if !is_plain || len > adjacency.mtu() {
        return None;
    }
    head[21] -= 1; // Checked to be above 1.
    write_header(head, adjacency);
    let len = LINK_HEADER + len as usize;
    if packet_len > len {
        packet.truncate(len);
    }
    Some(adjacency.egress())
}

impl Forwarder {
    /// Decides for a packet that has passed every check but its route's.
    pub(super) fn rewrite<'g, T>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        next_hop: Index<'g, T>,
    ) -> Verdict<'g> {
        match self.tables.next_hops.load(turn.guard, next_hop) {
            NextHop::Via(neighbour) => self.pass_to(turn, frame, neighbour),
            NextHop::Group(group) => {
                let neighbour = self.member(turn.guard, frame, group);
                self.pass_to(turn, frame, neighbour)
            }
            NextHop::Local if is_ipv6(self.region.bytes(frame)) => self.local_ipv6(turn, frame),
            NextHop::Local => self.local_ipv4(turn, frame),
            // The MTU and the TTL are dealt with by `resume`, when the neighbour is known.
            NextHop::Connected(port) => Verdict::received(Fate::Glean(port)),
            NextHop::Blackhole => Verdict::drop(DropReason::Blackhole),
            // RFC 2644: not forwarded, and without an answer (RFC 1812 §4.3.2.7).
            NextHop::Broadcast => Verdict::drop(DropReason::DirectedBroadcast),
            NextHop::Prohibit => {
                let reason = DropReason::RouteProhibited;
                self.error(turn, frame, ErrorKind::Prohibited, reason)
            }
            // Linux has one code of ICMPv6 for this and for no route.
            NextHop::Unreachable if is_ipv6(self.region.bytes(frame)) => {
                let reason = DropReason::RouteUnreachable;
                self.error(turn, frame, ErrorKind::NetworkUnreachable, reason)
            }
            NextHop::Unreachable => self.unreachable(turn, frame, DropReason::RouteUnreachable),
            // No kernel stands behind these ports: a route that only it can carry out leads nowhere.
            NextHop::None | NextHop::Kernel => {
                let reason = DropReason::NoRoute;
                self.error(turn, frame, ErrorKind::NetworkUnreachable, reason)
            }
        }
    }

    /// The member of a group that takes this packet's flow. An ICMP error takes the path of the flow that it is about.
    pub(super) fn member<'g>(
        &self,
        guard: Guard<'g>,
        frame: &Frame,
        group: GroupId,
    ) -> Index<'g, Neighbour> {
        let (packet, _) = parts::front(&self.region, frame);
        self.tables.next_hops.member(guard, group, packet)
    }

    /// Decides for a packet to a neighbour, whatever is known of it.
    fn pass_to<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        neighbour: Index<'g, Neighbour>,
    ) -> Verdict<'g> {
        let adjacency = self.tables.adjacencies.load(turn.guard, neighbour);
        match adjacency.state() {
            AdjacencyState::Resolved => {}
            AdjacencyState::ResolvedReport => self.report_use(neighbour, turn.now_ns),
            AdjacencyState::Unresolved => {
                self.report_missing(frame, neighbour, adjacency, turn.now_ns);
                return Verdict::received(Fate::Hold(neighbour));
            }
            AdjacencyState::Failed => {
                return self.unreachable(turn, frame, DropReason::NeighbourFailed);
            }
        }
        if is_ipv6(self.region.bytes(frame)) {
            self.leave_ipv6(turn, frame, adjacency)
        } else {
            self.leave_ipv4(turn, frame, adjacency)
        }
    }

    /// The last steps of an IPv4 packet: MTU, TTL, checksum, header.
    fn leave_ipv4<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        adjacency: Adjacency<'g>,
    ) -> Verdict<'g> {
        let Some(head) = self.region.bytes(frame).first_chunk::<34>() else {
            return Verdict::drop(DropReason::Ipv4HeaderInvalid);
        };
        let total_len = u16::from_be_bytes([head[16], head[17]]);
        let may_be_cut = head[20] & DONT_FRAGMENT == 0;
        let len = match self.trim_and_measure(turn.pool, frame, total_len.into()) {
            Ok(len) => len,
            Err(reason) => return Verdict::drop(reason),
        };
        let is_too_big = len > adjacency.mtu();
        if is_too_big && !may_be_cut {
            // RFC 1191 §4: tell the sender the MTU it must keep to.
            let kind = ErrorKind::TooBig { mtu: adjacency.mtu() };
            return self.error(turn, frame, kind, DropReason::TooBig);
        }
        let port = self.tables.adjacencies.port(adjacency);
        let Some(head) = self.region.bytes_mut(frame).first_chunk_mut::<34>() else {
            return Verdict::drop(DropReason::Ipv4HeaderInvalid);
        };
        decrement_ttl(head);
        write_untagged(head, adjacency);
        if head[14] & 0x0f > 5 {
            self.write_record_route(turn, frame, port);
        }
        Verdict::received(if is_too_big { Fate::Fragment(port) } else { self.egress(frame, port) })
    }

    /// Writes our address into the options of a packet that leaves by `port`, if its options have a place for it.
    #[cold]
    fn write_record_route(&self, turn: &Turn<'_, '_>, frame: &mut Frame, port: PortId) {
        let Some(own) = self.speaker_ipv4(port) else { return }; // No address to write in.
        let is_ours =
            |address: Ipv4Addr| matches!(self.next_hop(turn.guard, address.into()), NextHop::Local);
        let packet = &mut self.region.bytes_mut(frame)[LINK_HEADER..];
        let len = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
        if let Some(header) = packet.get_mut(..len) {
            ipv4::write_record_route(header, own, is_ours, turn.now_ns / 1_000_000);
        }
    }

    /// The last steps of an IPv6 packet: MTU, hop limit, header.
    fn leave_ipv6<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        adjacency: Adjacency<'g>,
    ) -> Verdict<'g> {
        let Some(head) = self.region.bytes(frame).first_chunk::<54>() else {
            return Verdict::drop(DropReason::Ipv6HeaderInvalid);
        };
        let packet_len = 40 + usize::from(u16::from_be_bytes([head[18], head[19]]));
        let len = match self.trim_and_measure(turn.pool, frame, packet_len) {
            Ok(len) => len,
            Err(reason) => return Verdict::drop(reason),
        };
        if len > adjacency.mtu() {
            // RFC 8200 §5: routers do not fragment. RFC 4443 §3.2.
            let kind = ErrorKind::TooBig { mtu: adjacency.mtu() };
            return self.error(turn, frame, kind, DropReason::TooBig);
        }
        let Some(head) = self.region.bytes_mut(frame).first_chunk_mut::<54>() else {
            return Verdict::drop(DropReason::Ipv6HeaderInvalid);
        };
        head[21] -= 1; // Checked to be above 1.
        write_untagged(head, adjacency);
        Verdict::received(self.egress(frame, self.tables.adjacencies.port(adjacency)))
    }

    /// Makes a packet of `len` bytes of IP ready to be measured: without Ethernet's padding, its checksum no longer
    /// unknown. Returns what the next link must carry at a time: the packet, or the largest of its segments. An error
    /// when the packet is not of the segments its port claims, or when that cannot be found out.
    fn trim_and_measure(
        &mut self,
        pool: &mut Pool,
        frame: &mut Frame,
        len: usize,
    ) -> Result<u32, DropReason> {
        if self.region.meta(frame).packet_len() > LINK_HEADER + len {
            pool.truncate(frame, LINK_HEADER + len);
        }
        if self.region.meta(frame).checksum == Checksum::Unknown {
            // Without a frame to bring them together, what the first one has of the headers must do.
            let _ = parts::gather(pool, frame, parts::HEADERS_MAX);
            self.complete_checksum(frame);
        }
        if !self.region.meta(frame).segments.any() {
            return Ok(len as u32); // At most 40 bytes above a u16.
        }
        segment::Plan::find(pool, frame).map(|plan| plan.largest() as u32) // Not above `len`.
    }

    /// Completes a transport checksum that the sender may have left to its device.
    #[cold]
    pub(super) fn complete_checksum(&mut self, frame: &mut Frame) {
        let repaired = if frame.is_chained() {
            let mut parts = self.region.view().parts_mut(frame);
            let first = parts.next().and_then(|first| first.get_mut(LINK_HEADER..));
            let mut rest = [&[][..]; CHAIN_MAX];
            rest.iter_mut().zip(parts).for_each(|(place, part)| *place = part);
            repair_parted(first.unwrap_or_default(), &rest)
        } else {
            repair(&mut self.region.bytes_mut(frame)[LINK_HEADER..])
        };
        if repaired == Repair::InnerUnknown {
            self.inner_checksum_unknown += 1;
        }
        self.region.meta_mut(frame).checksum = Checksum::Valid;
    }

    /// Reports that a stale neighbour was used, at most once a second.
    pub(super) fn report_use(&mut self, neighbour: Index<'_, Neighbour>, now_ns: u64) {
        let slot = neighbour.raw();
        if self.may_report(slot, now_ns) {
            self.report_urgent(Report::Used { slot });
        }
    }

    /// Reports that an unresolved neighbour is needed, at most once a second.
    pub(super) fn report_missing<'g>(
        &mut self,
        frame: &Frame,
        neighbour: Index<'g, Neighbour>,
        adjacency: Adjacency<'g>,
        now_ns: u64,
    ) {
        let key = self.tables.adjacencies.key(adjacency);
        // A slot that was withdrawn since the FIB led here stands for no neighbour.
        if !key.addr.is_unspecified() && self.may_report(neighbour.raw(), now_ns) {
            self.report_missing_key(frame, key);
        }
    }

    fn may_report(&mut self, slot: u32, now_ns: u64) -> bool {
        let Some(last_ns) = self.reported_ns.get_mut(slot as usize) else { return false };
        let due = *last_ns == 0 || now_ns.saturating_sub(*last_ns) >= REPORT_INTERVAL_NS;
        if due {
            *last_ns = now_ns.max(1);
        }
        due
    }
}

/// Whether every port takes a packet in one frame with this metadata.
#[inline(always)]
fn is_plain(meta: &Meta) -> bool {
    (meta.checksum == Checksum::Valid) & !meta.segments.any()
}

/// Writes the neighbour's ready-made header in front of a packet, which has no tag.
#[inline(always)]
fn write_header(frame: &mut [u8], adjacency: Adjacency<'_>) {
    if let Some(header) = frame.first_chunk_mut::<LINK_HEADER>() {
        adjacency.write_ethernet(header);
    }
}

/// As `write_header`, for a packet whose tags come last ([`Forwarder::egress`]).
pub(super) fn write_untagged(frame: &mut [u8], adjacency: Adjacency<'_>) {
    if let Some(header) = frame.first_chunk_mut::<LINK_HEADER>() {
        adjacency.write_untagged(header);
    }
}

/// Whether an Ethernet frame says that it carries IPv6.
pub(super) fn is_ipv6(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&ether_type::IPV6.to_be_bytes())
}

/// The sender of the IP packet in an Ethernet frame.
pub(super) fn source(bytes: &[u8]) -> Option<IpAddr> {
    let packet = bytes.get(LINK_HEADER..)?;
    if is_ipv6(bytes) {
        let octets: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
        return Some(IpAddr::V6(Ipv6Addr::from(octets)));
    }
    let octets: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Where the IP packet in an Ethernet frame is for.
pub(super) fn destination(bytes: &[u8]) -> Option<IpAddr> {
    let packet = bytes.get(LINK_HEADER..)?;
    if is_ipv6(bytes) {
        let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
        return Some(IpAddr::V6(Ipv6Addr::from(octets)));
    }
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Counts the TTL down and keeps the header checksum right, by RFC 1141: it grows by 1 where the TTL is the lower byte of
/// its word (RFC 1071 §2), with the carry brought around; one of 0xffff is written as 0.
#[inline(always)]
pub(crate) fn decrement_ttl(head: &mut [u8; 34]) {
    head[22] -= 1; // Checked to be above 1.
    let before = u16::from_le_bytes([head[24], head[25]]);
    let carries = before >= 0xfffe;
    [head[24], head[25]] = before.wrapping_add(1 + u16::from(carries)).to_le_bytes();
}
