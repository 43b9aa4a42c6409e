//! The decision: the program's twin.
//!
//! The checks have the order of this table, which is the program's. A packet that fails one is the kernel's, with that
//! verdict, and unchanged.
//!
//! | step                | file       | verdicts of what fails it                                                    |
//! |---------------------|------------|------------------------------------------------------------------------------|
//! | port and lease      | this one   | `NotIngress`, `Lapsed`; with a tag `UnknownVlan`, `NotIngress`               |
//! | link header         | `header`   | `Malformed`, `LinkGroup`, `NotForUs`, `NotIp`                                |
//! | IP header           | `header`   | `Malformed`, `BadChecksum`, `Options`                                        |
//! | may it be forwarded | `header`   | `NotForwarding`, `Martian`, `Group`, `Ttl`                                   |
//! | flow, where packets need one | `flow` | `NoFlow`, `FlowPaused`                                                  |
//! | route               | `route`    | `NoRoute`, `Nowhere`, `Local`, `KernelRoute`; of groups `Multipath`          |
//! | neighbour           | this one   | `Unresolved`                                                                 |
//! | way back            | `source`   | `ReversePath`                                                                |
//! | egress              | this one   | `SamePort`, `EgressKernel`                                                   |
//! | size                | this one, `segments` | of segments `Extension`, `Segments`; `TooBig`                      |
//!
//! What is forwarded is changed by `rewrite`.

use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::Words;

use super::Verdict;
use super::flows::{FlowsReader, Tuple, translate};
use super::layout::{self, PORT_WORDS, PORTS, RECORD_WORDS, control, flags, port, record};
use super::policy::Policy;
use super::writer::{self, Adjacency};
use crate::fib::{Ipv4Fib, Ipv6Fib, Packed};
use crate::neighbour::Neighbour;
use crate::nexthop::NextHops;
use crate::wire::ethernet::{Mac, ether_type};
use crate::wire::ip::View;
use crate::wire::{ipv4, ipv6};

mod flow;
mod header;
mod rewrite;
mod route;
mod segments;
mod source;
#[cfg(all(test, not(manylane_loom)))]
mod tests;

use flow::to_destination;
pub use rewrite::priority_ipv4;
use segments::headers_of_segments;

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
        self.check_rules_of_way_back(ingress, matches!(packet, View::V6(_)))?;
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
