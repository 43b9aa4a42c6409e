//! A discarded packet (sflow_drops.txt).

use super::flow::Header;
use super::writer::Writer;

/// Why a packet was discarded: the reasons of the standard that manylane knows of. Those below 256 are codes of ICMP's
/// message that a destination is unreachable (RFC 1812 §5.2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DiscardReason {
    /// `net_unreachable`
    NetUnreachable = 0,
    /// `host_unreachable`
    HostUnreachable = 1,
    /// `src_route_failed`
    SourceRouteFailed = 5,
    /// `dst_net_unknown`: no route.
    DestinationUnknown = 6,
    /// `comm_admin_prohibited`
    Prohibited = 13,
    /// `unknown`
    Unknown = 256,
    /// `ttl_exceeded`
    TtlExceeded = 257,
    /// `no_buffer_space`
    NoBufferSpace = 259,
    /// `pkt_too_big`
    TooBig = 262,
    /// `ingress_vlan_filter`
    VlanFilter = 265,
    /// `blackhole_route`
    Blackhole = 269,
    /// `ip_header_corrupted`
    HeaderCorrupted = 275,
    /// `unresolved_neigh`
    NeighbourUnresolved = 279,
    /// `non_routable_packet`
    NotRoutable = 281,
}

impl DiscardReason {
    /// As the standard spells it.
    pub fn name(self) -> &'static str {
        match self {
            DiscardReason::NetUnreachable => "net_unreachable",
            DiscardReason::HostUnreachable => "host_unreachable",
            DiscardReason::SourceRouteFailed => "src_route_failed",
            DiscardReason::DestinationUnknown => "dst_net_unknown",
            DiscardReason::Prohibited => "comm_admin_prohibited",
            DiscardReason::Unknown => "unknown",
            DiscardReason::TtlExceeded => "ttl_exceeded",
            DiscardReason::NoBufferSpace => "no_buffer_space",
            DiscardReason::TooBig => "pkt_too_big",
            DiscardReason::VlanFilter => "ingress_vlan_filter",
            DiscardReason::Blackhole => "blackhole_route",
            DiscardReason::HeaderCorrupted => "ip_header_corrupted",
            DiscardReason::NeighbourUnresolved => "unresolved_neigh",
            DiscardReason::NotRoutable => "non_routable_packet",
        }
    }
}

/// A packet that was discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedPacket {
    /// The ingress interface's number, which is the data source too.
    pub input: u32,
    /// Why.
    pub reason: DiscardReason,
    /// Discarded packets that were not reported so far, of this source.
    pub drops: u32,
    /// Its first bytes.
    pub header: Header,
}

impl DiscardedPacket {
    pub(super) fn write(&self, to: &mut Writer, sequence: u32) {
        to.part(DISCARDED_PACKET, |to| {
            to.short(sequence);
            to.short(0); // The source is an interface.
            to.short(self.input);
            to.short(self.drops);
            to.short(self.input);
            to.short(0); // No egress.
            to.short(self.reason as u32);
            to.short(1);
            self.header.write(to);
        });
    }
}

const DISCARDED_PACKET: u32 = 5;
