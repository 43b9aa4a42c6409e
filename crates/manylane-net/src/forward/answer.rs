//! ICMP errors, made in the frame of the packet that caused them.
//!
//! The packet ends under its drop reason; what is in the frame afterwards was created here. Whether an
//! error may be sent at all, and what it says, are `icmp`'s rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::{Checksum, DropReason, PortId, Segments};
use manylane_frame::{Frame, Pool};
use manylane_sync::rcu::{Guard, Index};

use super::rewrite::is_ipv6;
use super::send::Link;
use super::{FORMER_MAX, Former, Forwarder, LINK_HEADER, Origin, Turn, Verdict, parts};
use crate::icmp::{self, ErrorKind};
use crate::neighbour::Neighbour;
use crate::nexthop::NextHop;
use crate::wire::{ethernet, ipv4, ipv6};

impl Forwarder {
    /// Drops a packet and tells its sender, if the rules and the rate limit allow.
    #[cold]
    pub(super) fn error<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        kind: ErrorKind,
        reason: DropReason,
    ) -> Verdict<'g> {
        if self.region.meta(frame).own {
            return Verdict::drop(reason); // No error about our own packets.
        }
        // What is quoted, and looked at before, lies in one frame.
        if !parts::gather(turn.pool, frame, LINK_HEADER + icmp::quote_len_v6(usize::MAX)) {
            return Verdict::drop(reason);
        }
        let former = self.keeps_former.then(|| self.former_of(frame, reason));
        let made = if is_ipv6(self.region.bytes(frame)) {
            self.make_ipv6_error(turn, frame, kind)
        } else {
            self.make_ipv4_error(turn, frame, kind)
        };
        let Some(link) = made else { return Verdict::drop(reason) };
        if self.former.len() < FORMER_MAX {
            self.former.extend(former);
        }
        self.mark_own(frame);
        let fate = self.send(turn, frame, Some(link));
        Verdict { fate, origin: Origin::Error(reason) }
    }

    /// Keeps what errors are made of from now on, or does not.
    pub fn keep_former(&mut self, keeps: bool) {
        self.keeps_former = keeps;
    }

    /// Whether a packet that an error was made of has not been shown yet.
    #[inline(always)]
    pub fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// Whether what errors are made of is kept.
    pub fn keeps_former(&self) -> bool {
        self.keeps_former
    }

    /// What errors were made of, oldest first, once.
    pub fn next_former(&mut self) -> Option<Former> {
        self.former.pop_front()
    }

    fn former_of(&self, frame: &Frame, reason: DropReason) -> Former {
        let meta = self.region.meta(frame);
        let bytes = self.region.bytes(frame).to_vec();
        let len = meta.packet_len() as u32; // Of 64 frames at most.
        Former { ingress: meta.ingress, queue: meta.queue, bytes, len, reason }
    }

    /// The host cannot be reached (RFC 1812 §4.3.3.1 and §5.2.7.1, RFC 4443 §3.1).
    pub(super) fn unreachable<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        reason: DropReason,
    ) -> Verdict<'g> {
        self.error(turn, frame, ErrorKind::HostUnreachable, reason)
    }

    /// Turns the frame into the error about the packet in it. Returns the link it arrived by, or `None` if no error is
    /// to be sent; then the frame is unchanged.
    fn make_ipv4_error(
        &mut self,
        turn: &mut Turn<'_, '_>,
        frame: &mut Frame,
        kind: ErrorKind,
    ) -> Option<Link> {
        let bytes = self.region.bytes(frame);
        let link = Link::of(bytes)?;
        let (packet, len) = parts::front(&self.region, frame);
        let group = ethernet::View::checked(bytes)?.destination().is_group();
        // Looking for a source may take long; what is not sent for want of one is not counted as sent.
        let sender = ipv4::View::front(packet, len)?.source();
        if !icmp::may_answer_v4(packet, group)
            || !self.errors.of(kind).has_token(turn.now_ns)
            || self.is_no_station(turn.guard, sender)
        {
            return None;
        }
        let source = self.error_source_ipv4(turn.guard, frame, sender)?;
        self.errors.of(kind).take();
        let packet_len = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(len);
        self.quote(turn.pool, frame, icmp::quote_len_v4(packet_len), icmp::ERROR_HEADROOM_V4)?;
        self.identification = self.identification.wrapping_add(1);
        let buf = self.region.bytes_mut(frame);
        icmp::emit_v4_error(&mut buf[LINK_HEADER..], kind, source, self.identification)?;
        Some(link)
    }

    /// As `make_ipv4_error`, for IPv6.
    fn make_ipv6_error(
        &mut self,
        turn: &mut Turn<'_, '_>,
        frame: &mut Frame,
        kind: ErrorKind,
    ) -> Option<Link> {
        let bytes = self.region.bytes(frame);
        let link = Link::of(bytes)?;
        let (packet, len) = parts::front(&self.region, frame);
        let group = ethernet::View::checked(bytes)?.destination().is_group();
        if !icmp::may_answer_v6(packet, group, kind) || !self.errors.of(kind).has_token(turn.now_ns)
        {
            return None;
        }
        let source = self.error_source_ipv6(turn.guard, frame)?;
        self.errors.of(kind).take();
        let view = ipv6::View::front(packet, len)?;
        let packet_len = ipv6::HEADER_LEN + usize::from(view.payload_len());
        let packet_len = if view.lacks_length() { len } else { packet_len.min(len) };
        self.quote(turn.pool, frame, icmp::quote_len_v6(packet_len), icmp::ERROR_HEADROOM_V6)?;
        let buf = self.region.bytes_mut(frame);
        icmp::emit_v6_error(&mut buf[LINK_HEADER..], kind, source)?;
        Some(link)
    }

    /// Cuts the packet to `quote_len` bytes, which its first frame has, and opens `room` in front of it, behind a
    /// link header. A partial checksum is quoted as it is: its sender knows what it left out.
    fn quote(
        &self,
        pool: &mut Pool,
        frame: &mut Frame,
        quote_len: usize,
        room: usize,
    ) -> Option<()> {
        // The headroom of a received frame is `HEADROOM` or more: this does not fail.
        self.region.push_front(frame, room as u16).ok()?;
        let bytes = self.region.bytes_mut(frame);
        bytes.copy_within(room..room + LINK_HEADER, 0);
        pool.truncate(frame, LINK_HEADER + room + quote_len);
        Some(())
    }

    /// The address an error comes from: the one that its packet was for, if that is ours; else ours on the port that it
    /// leaves by (RFC 1812 §4.3.2.4), or on any other. The first is Linux's choice, and IPv6's rule.
    fn error_source_ipv4(
        &self,
        guard: Guard<'_>,
        frame: &Frame,
        sender: Ipv4Addr,
    ) -> Option<Ipv4Addr> {
        let target = ipv4::View::quoted(&self.region.bytes(frame)[LINK_HEADER..])?.destination();
        let owns = |port: PortId| self.port(port).ipv4.iter().any(|own| own.addr == target);
        if self.port_ids().any(|port| owns(port) && self.uses(port, target)) {
            return Some(target);
        }
        self.speaker_ipv4(self.way_to(guard, frame, sender.into()))
    }

    /// The address to speak from by `port`: one that we use there, or on any other.
    pub(super) fn speaker_ipv4(&self, port: PortId) -> Option<Ipv4Addr> {
        let first = |port: PortId| {
            let mut ours = self.port(port).ipv4.iter().map(|own| own.addr);
            ours.find(|&own| self.uses(port, own))
        };
        first(port).or_else(|| self.port_ids().find_map(first))
    }

    /// The address an error comes from: the one that its packet was for, if that is ours and no other
    /// router's (RFC 4443 §2.2 a). Else as `error_source_ipv4` (§2.2 b: as for every packet of ours, RFC 6724
    /// §5 rule 5); a sender with a link-local address gets one back.
    fn error_source_ipv6(&self, guard: Guard<'_>, frame: &Frame) -> Option<Ipv6Addr> {
        let view = ipv6::View::quoted(&self.region.bytes(frame)[LINK_HEADER..])?;
        let (sender, target) = (view.source(), view.destination());
        let ingress = self.region.meta(frame).ingress;
        let is_ours = |port| self.port(port).ipv6.contains(&target) && self.uses(port, target);
        if self.port(ingress).link_local == Some(target) || self.port_ids().any(is_ours) {
            return Some(target);
        }
        if sender.is_unicast_link_local() {
            return self.port(ingress).link_local.filter(|&own| self.uses(ingress, own));
        }
        let way = self.way_to(guard, frame, sender.into());
        let first =
            |port: PortId| self.port(port).ipv6.iter().copied().find(|&own| self.uses(port, own));
        first(way).or_else(|| self.port_ids().find_map(first))
    }

    fn port_ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.tables.ports.len() as u16).map(PortId)
    }

    /// Whether no other station speaks from this address: it is the broadcast address of a network of ours, and an
    /// answer would reach all stations (RFC 1812 §4.3.2.7, §5.3.7, RFC 1122 §3.2.1.3), or it is ours.
    pub(super) fn is_no_station(&self, guard: Guard<'_>, address: Ipv4Addr) -> bool {
        let id = self.tables.ipv4.lookup(guard, address.into());
        matches!(self.tables.next_hops.load(guard, id), NextHop::Broadcast | NextHop::Local)
    }

    /// The port by which a packet to this address leaves; without a route, the ingress port of the packet in the frame.
    pub(super) fn way_to(&self, guard: Guard<'_>, frame: &Frame, to: IpAddr) -> PortId {
        let neighbour = match self.next_hop(guard, to) {
            NextHop::Via(neighbour) => neighbour,
            // The answer takes the path of the flow that it is about.
            NextHop::Group(group) => self.member(guard, frame, group),
            NextHop::Connected(port) => return port,
            _ => return self.region.meta(frame).ingress,
        };
        self.tables.adjacencies.port(self.tables.adjacencies.load(guard, neighbour))
    }

    /// Where a packet to this address goes.
    pub(super) fn next_hop<'g>(
        &self,
        guard: Guard<'g>,
        to: IpAddr,
    ) -> NextHop<Index<'g, Neighbour>> {
        let id = match to {
            IpAddr::V4(to) => self.tables.ipv4.lookup(guard, to.into()),
            IpAddr::V6(to) => self.tables.ipv6.lookup(guard, to.into()),
        };
        self.tables.next_hops.load(guard, id)
    }

    /// From here on, the packet in the frame is ours.
    pub(super) fn mark_own(&self, frame: &mut Frame) {
        let meta = self.region.meta_mut(frame);
        (meta.own, meta.checksum, meta.segments) = (true, Checksum::Valid, Segments::NONE);
    }
}
