//! A note and its route become a sample, or a dropped packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_export::sflow::{
    DiscardReason, DiscardedPacket, FlowSample, Header, Output, Router, Switch,
};
use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_net::wire::ethernet::{ADDRESSES_LEN, HEADER_LEN, Mac, Tags, VLAN_TAG_LEN};
use manylane_net::wire::ip;
use manylane_worker::sampler::{End, Note, SampleCount};

use crate::control::routing::PacketRoute;

/// What the route of a note is looked up by: source, destination, and what the packet was sent to.
pub(super) type Question = (IpAddr, IpAddr, Option<(PortId, Mac)>);

/// The question of a sample that is forwarded; `None` of any other packet.
pub(super) fn question(note: &Note, end: End) -> Option<Question> {
    let sent = match end {
        End::Leaves(device, mac) => Some((device, mac)),
        End::Waits => None,
        End::Delivered | End::Dropped(_) => return None,
    };
    let bytes = note.header();
    let link = HEADER_LEN + tags(bytes).map_or(0, |tags| tags.as_bytes().len());
    match ip::View::quoted(bytes.get(link..)?)? {
        ip::View::V4(view) => Some((view.source().into(), view.destination().into(), sent)),
        ip::View::V6(view) => Some((view.source().into(), view.destination().into(), sent)),
    }
}

/// What a sample says beside its packet.
pub(super) struct Facts<'f> {
    /// The ingress interface's number.
    pub input: u32,
    /// One packet in how many.
    pub rate: u32,
    /// What becomes of it.
    pub end: End,
    /// Its route.
    pub route: Option<&'f PacketRoute>,
    /// The interface that it leaves by, with its VLAN.
    pub output: Option<(u32, u16)>,
    /// What workers have counted of its port.
    pub count: SampleCount,
}

/// The sample of a note.
pub(super) fn flow(note: &Note, facts: &Facts<'_>) -> FlowSample {
    let Facts { input, rate, end, route, output, count } = *facts;
    let (from, priority) = vlan(note.header());
    let to = output.map_or(0, |(_, vlan)| vlan);
    let switch = Switch { from: (from.into(), priority.into()), to: (to.into(), 0) };
    FlowSample {
        input,
        output: match end {
            End::Dropped(reason) => {
                Output::Discarded(standard(reason).unwrap_or(DiscardReason::Unknown))
            }
            _ => output.map_or(Output::Unknown, |(interface, _)| Output::Interface(interface)),
        },
        rate,
        pool: count.pool as u32,
        drops: count.lost as u32,
        header: header(note),
        switch: (switch != Switch::default()).then_some(switch),
        router: route.zip(question(note, end)).map(|(route, (_, destination, _))| Router {
            next_hop: route.next_hop.unwrap_or_else(|| unspecified(destination)),
            source_len: route.source_len,
            destination_len: route.destination_len,
        }),
        translation: None,
    }
}

/// A packet that a worker dropped; `None` if the standard has no reason for it.
pub(super) fn discarded(
    note: &Note,
    input: u32,
    reason: DropReason,
    unreported: u64,
) -> Option<DiscardedPacket> {
    let reason = standard(reason)?;
    Some(DiscardedPacket { input, reason, drops: unreported as u32, header: header(note) })
}

/// The drops that are reported.
pub(super) fn reported() -> impl Iterator<Item = DropReason> {
    DropReason::ALL.iter().copied().filter(|&reason| standard(reason).is_some())
}

/// The standard's reason for a drop. Not reported is what a router meets on every link and leaves alone (frames for other
/// stations, protocols that are not routed), what ends at the router itself, and what the operator has ordered (ports,
/// queues and workers that go).
fn standard(reason: DropReason) -> Option<DiscardReason> {
    Some(match reason {
        DropReason::Truncated
        | DropReason::Ipv4HeaderInvalid
        | DropReason::Ipv4ChecksumInvalid
        | DropReason::Ipv6HeaderInvalid => DiscardReason::HeaderCorrupted,
        DropReason::UnknownVlan => DiscardReason::VlanFilter,
        DropReason::Ipv4SourceRoute => DiscardReason::SourceRouteFailed,
        DropReason::MartianSource
        | DropReason::MartianDestination
        | DropReason::DirectedBroadcast
        | DropReason::LinkLocalScope => DiscardReason::NotRoutable,
        DropReason::HopLimitExceeded => DiscardReason::TtlExceeded,
        DropReason::NoRoute => DiscardReason::DestinationUnknown,
        DropReason::Blackhole => DiscardReason::Blackhole,
        DropReason::RouteUnreachable => DiscardReason::HostUnreachable,
        DropReason::RouteProhibited => DiscardReason::Prohibited,
        DropReason::TooBig => DiscardReason::TooBig,
        DropReason::NeighbourFailed | DropReason::HoldOverflow | DropReason::HoldFull => {
            DiscardReason::NeighbourUnresolved
        }
        DropReason::TransmitRingFull
        | DropReason::NoFrame
        | DropReason::BacklogFull
        | DropReason::FlowLimit => DiscardReason::NoBufferSpace,
        DropReason::NotForUs
        | DropReason::UnknownEtherType
        | DropReason::LinkBroadcast
        | DropReason::ArpInvalid
        | DropReason::MulticastNotRouted
        | DropReason::LocalNoService
        | DropReason::LocalInvalid
        | DropReason::PortDown
        | DropReason::TooManyFragments
        | DropReason::OffloadInvalid
        | DropReason::QueueMoved
        | DropReason::WorkerRemoved
        | DropReason::Shutdown => return None,
    })
}

fn header(note: &Note) -> Header {
    Header { bytes: note.header().to_vec(), frame_len: note.len + CHECKSUM, stripped: CHECKSUM }
}

/// VLAN and priority of a received frame: of its outer tag.
fn vlan(bytes: &[u8]) -> (u16, u16) {
    let tag = tags(bytes).and_then(|_| {
        let tag = bytes.get(ADDRESSES_LEN + 2..ADDRESSES_LEN + VLAN_TAG_LEN)?;
        Some(u16::from_be_bytes([tag[0], tag[1]]))
    });
    tag.map_or((0, 0), |tag| (tag & 0xfff, tag >> 13))
}

fn tags(bytes: &[u8]) -> Option<Tags> {
    Tags::of(bytes, 2).or_else(|| Tags::of(bytes, 1))
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Ethernet's checksum, which no host sees, and the standard counts.
const CHECKSUM: u32 = 4;
