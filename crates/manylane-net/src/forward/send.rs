//! Routes packets of our own, which have no TTL to count down.

use std::net::IpAddr;

use manylane_frame::Frame;
use manylane_frame::vocabulary::DropReason;
use manylane_sync::rcu::Index;

use super::rewrite::{destination, write_untagged};
use super::{Fate, Forwarder, LINK_HEADER, Turn, parts};
use crate::neighbour::AdjacencyState;
use crate::nexthop::NextHop;
use crate::wire::ethernet::{self, Mac};
use crate::wire::ip;

impl Forwarder {
    /// Finds the egress port for a packet of our own, and writes its link-layer header. `link` has the stations of the
    /// packet that it answers, if its header still stands in front: a link-local address is answered on that link,
    /// because it means something on that link only.
    pub(super) fn send<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        link: Option<Link>,
    ) -> Fate<'g> {
        let (front, len) = parts::front(&self.region, frame);
        let Some(packet) = ip::View::front(front, len) else {
            return Fate::Drop(DropReason::Truncated);
        };
        let len = packet.packet_len();
        let may_be_cut = matches!(packet, ip::View::V4(view) if !view.dont_fragment());
        turn.pool.truncate(frame, LINK_HEADER + len); // Without the request's padding.
        let id = match (destination(self.region.bytes(frame)), link) {
            (Some(IpAddr::V4(to)), _) => self.tables.ipv4.lookup(turn.guard, to.into()).raw(),
            (Some(IpAddr::V6(to)), Some(link)) if to.is_unicast_link_local() => {
                return self.send_back(frame, link);
            }
            (Some(IpAddr::V6(to)), _) => self.tables.ipv6.lookup(turn.guard, to.into()).raw(),
            (None, _) => return Fate::Drop(DropReason::Truncated),
        };
        let id: Index<'g, ()> = Index::new(turn.guard, id);
        let neighbour = match self.tables.next_hops.load(turn.guard, id) {
            NextHop::Via(neighbour) => neighbour,
            NextHop::Group(group) => self.member(turn.guard, frame, group),
            NextHop::Connected(port) => return Fate::Glean(port),
            _ => return Fate::Drop(DropReason::NoRoute),
        };
        let adjacency = self.tables.adjacencies.load(turn.guard, neighbour);
        match adjacency.state() {
            AdjacencyState::Resolved => {}
            AdjacencyState::ResolvedReport => self.report_use(neighbour, turn.now_ns),
            AdjacencyState::Unresolved => {
                self.report_missing(frame, neighbour, adjacency, turn.now_ns);
                return Fate::Hold(neighbour);
            }
            AdjacencyState::Failed => return Fate::Drop(DropReason::NeighbourFailed),
        }
        let bytes = self.region.bytes_mut(frame);
        write_untagged(&mut bytes[..LINK_HEADER], adjacency);
        // An echo reply is as long as its request, and may leave by another port.
        match self.tables.adjacencies.port(adjacency) {
            port if len <= adjacency.mtu() as usize => self.egress(frame, port),
            port if may_be_cut => Fate::Fragment(port),
            _ => Fate::Drop(DropReason::TooBig),
        }
    }

    /// Sends a packet back to the station that sent the one before it in this frame.
    pub(super) fn send_back<'g>(&self, frame: &mut Frame, link: Link) -> Fate<'g> {
        let ingress = self.region.meta(frame).ingress;
        let source = self.port(ingress).mac;
        let bytes = self.region.bytes_mut(frame);
        match ethernet::emit(bytes, link.source, source, link.ether_type) {
            Some(_) => self.egress(frame, ingress),
            None => Fate::Drop(DropReason::Truncated),
        }
    }
}

/// The stations of a packet's link-layer header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    source: Mac,
    ether_type: u16,
}

impl Link {
    /// `None` also when the frame claims to be from a group: an answer would reach every station.
    pub(super) fn of(bytes: &[u8]) -> Option<Link> {
        let view = ethernet::View::checked(bytes)?;
        let link = Link { source: view.source(), ether_type: view.ether_type() };
        (!link.source.is_group()).then_some(link)
    }

    pub(super) fn source(self) -> Mac {
        self.source
    }
}
