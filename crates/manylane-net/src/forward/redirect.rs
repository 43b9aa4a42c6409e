//! Redirects: a sender that sends by us what it could send straight to another station of its link is notified.
//!
//! RFC 1812 §5.2.7.2 and RFC 4861 §8.2, and only if the configuration wants it: [`Forwarder::redirect`] looks at
//! packets that were forwarded already, so that without it nothing is done for them.
//!
//! | rule                                              | RFC 1812    | RFC 4861            |
//! |---------------------------------------------------|-------------|---------------------|
//! | it leaves by the port that received it            | §5.2.7.2    | §8.2                |
//! | its sender is a neighbour there                   | §5.2.7.2    | §8.2                |
//! | the next hop is one that the sender can reach     | §5.2.7.2    | a router's is link-local, §8.2 |
//! | for one host, never for a network                 | §4.3.3.2    | §4.5                |
//! | from our address that the sender knows            | §4.3.3.2    | link-local, §4.5    |
//! | not about errors, not too often                   | §4.3.2.7, §4.3.2.8 | §8.2         |

use std::net::IpAddr;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};
use manylane_frame::{Frame, HEADROOM};
use manylane_sync::rcu::Guard;

use super::{Fate, Forwarder, LINK_HEADER, Origin, Turn, Verdict};
use crate::icmp::{self, ErrorKind, RateLimit};
use crate::neighbour::Adjacency;
use crate::nexthop::NextHop;
use crate::wire::ethernet::{self, ADDRESSES_LEN, Mac, Tags, ether_type};
use crate::wire::{ip, ipv4, ipv6, nd};

impl Forwarder {
    /// Sends redirects, as `limit` allows.
    #[must_use]
    pub fn with_redirects(mut self, limit: RateLimit) -> Forwarder {
        self.redirects = Some(limit);
        self
    }

    /// Whether it does.
    #[inline(always)]
    pub fn sends_redirects(&self) -> bool {
        self.redirects.is_some()
    }

    /// The redirect about a packet that is being passed on, if one is due: a frame of its own, and what is
    /// to become of it.
    #[cold]
    pub fn redirect<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &Frame,
        verdict: &Verdict<'g>,
    ) -> Option<(Frame, Fate<'g>)> {
        let mut limit = self.redirects.take()?;
        let now_ns = turn.now_ns;
        let made = self.make_redirect(turn, frame, verdict, || limit.allow(now_ns));
        self.redirects = Some(limit);
        let mut made = made?;
        self.identification = self.identification.wrapping_add(1); // One more, if it was IPv4's.
        let fate = self.send(turn, &mut made, None);
        Some((made, fate))
    }

    /// The redirect, if one is due and `may_say` so, in a frame of its own.
    fn make_redirect<'g>(
        &self,
        turn: &mut Turn<'g, '_>,
        frame: &Frame,
        verdict: &Verdict<'g>,
        may_say: impl FnOnce() -> bool,
    ) -> Option<Frame> {
        let ingress = self.region.meta(frame).ingress;
        let vlan = self.port(ingress).vlan;
        let device = vlan.map_or(ingress, |vlan| vlan.port);
        let tags = match verdict.fate {
            _ if verdict.origin != Origin::Received => return None,
            Fate::Transmit(port) if port == device => vlan.map_or(Tags::NONE, |vlan| vlan.tags),
            // Not yet tagged: that is done to what will be made of it.
            Fate::Fragment(port) | Fate::Prepare(port) if port == ingress => Tags::NONE,
            _ => return None,
        };
        // What carries other tags leaves by another of the device's interfaces: no packet begins there.
        let behind =
            self.region.bytes(frame).get(ADDRESSES_LEN..)?.strip_prefix(tags.as_bytes())?;
        let packet = ip::View::quoted(behind.get(2..)?)?;
        let mut made = turn.pool.take()?;
        self.region.set_ingress(&mut made, ingress, QueueId(0), Checksum::Valid);
        self.region.set_window(&mut made, HEADROOM, HEADROOM + FRAME_LEN_MAX as u16);
        self.mark_own(&mut made);
        let buf = self.region.bytes_mut(&mut made);
        let written = match packet {
            ip::View::V4(view) => self.redirect_ipv4(turn.guard, ingress, view, buf, may_say),
            ip::View::V6(view) => self.redirect_ipv6(turn.guard, ingress, view, buf, may_say),
        };
        match written {
            Some(len) => {
                turn.pool.truncate(&mut made, len);
                Some(made)
            }
            None => {
                turn.pool.give_back(made);
                None
            }
        }
    }

    /// Writes the redirect about an IPv4 packet into a frame; how long it is.
    fn redirect_ipv4(
        &self,
        guard: Guard<'_>,
        ingress: PortId,
        about: ipv4::View<'_>,
        buf: &mut [u8],
        may_say: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let (sender, destination) = (about.source(), about.destination());
        let own = *self.port(ingress).ipv4.iter().find(|own| own.contains(sender))?;
        let next = self.neighbour(guard, destination.into())?;
        let IpAddr::V4(gateway) = self.tables.adjacencies.key(next).addr else { return None };
        if !own.contains(gateway)
            || gateway == sender
            || !icmp::may_answer_v4(about.packet(), false)
            || !may_say()
        {
            return None;
        }
        let quote = &about.packet()[..icmp::quote_len_v4(about.packet().len())];
        let packet_len = icmp::ERROR_HEADROOM_V4 + quote.len();
        let packet = buf.get_mut(LINK_HEADER..LINK_HEADER + packet_len)?;
        packet[icmp::ERROR_HEADROOM_V4..].copy_from_slice(quote);
        let kind = ErrorKind::Redirect { gateway };
        icmp::emit_v4_error(packet, kind, own.addr, self.identification)?;
        ethernet::emit(buf, Mac::BROADCAST, self.port(ingress).mac, ether_type::IPV4)?;
        Some(LINK_HEADER + packet_len)
    }

    /// As `redirect_ipv4`, for IPv6. A port's facts do not include networks: a sender is a neighbour there if the FIB
    /// knows it as one.
    fn redirect_ipv6(
        &self,
        guard: Guard<'_>,
        ingress: PortId,
        about: ipv6::View<'_>,
        buf: &mut [u8],
        may_say: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let (sender, destination) = (about.source(), about.destination());
        let there = self.neighbour(guard, sender.into())?;
        let next = self.neighbour(guard, destination.into())?;
        let (from, to) = (self.tables.adjacencies.key(there), self.tables.adjacencies.key(next));
        let IpAddr::V6(target) = to.addr else { return None };
        let source = self.port(ingress).link_local.filter(|&own| self.uses(ingress, own))?;
        let is_neighbours = (from.port, from.addr) == (ingress, IpAddr::V6(sender));
        let is_reachable = target == destination || target.is_unicast_link_local();
        let kind = ErrorKind::HostUnreachable; // Any kind about which no error may be sent.
        if !is_neighbours
            || !is_reachable
            || target == sender
            || !icmp::may_answer_v6(about.packet(), false, kind)
            || !may_say()
        {
            return None;
        }
        let mut header = [0; LINK_HEADER];
        next.write_untagged(&mut header);
        let facts = self.port(ingress);
        let redirect = nd::Redirect {
            source,
            destination: sender,
            target,
            about: destination,
            link_layer: ethernet::View::checked(&header)?.destination(),
        };
        redirect.emit(buf, facts.mac, about.packet())
    }

    /// What is known of the neighbour that packets to an address go to.
    fn neighbour<'g>(&self, guard: Guard<'g>, to: IpAddr) -> Option<Adjacency<'g>> {
        match self.next_hop(guard, to) {
            NextHop::Via(slot) => Some(self.tables.adjacencies.load(guard, slot)),
            _ => None,
        }
    }
}

/// A redirect is at most an error's length, in an Ethernet frame.
const FRAME_LEN_MAX: usize = LINK_HEADER + 1280;
