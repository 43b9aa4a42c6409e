//! The words that ports (`io`) and rules (`net`) share.
//!
//! Here because both must name them and neither sees the other.

mod points;

use std::fmt;

pub use points::Points;

/// A port of the daemon, in the order of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortId(pub u16);

/// A receive queue of a port, or the transmit queue of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QueueId(pub u16);

/// A worker of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WorkerId(pub u16);

impl PortId {
    /// As a table index.
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.0)
    }
}

/// Where on its way through the daemon a packet is looked at: a capture's point of attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Point {
    /// As its port received it.
    #[default]
    Receive = 0,
    /// As its port is about to transmit it.
    Transmit = 1,
    /// Where it was dropped; the reason is known.
    Drop = 2,
    /// As `manylane accelerate` left it to the kernel; the reason is known. `manylane run` has no such packets.
    Kernel = 3,
}

impl Point {
    /// Every point, in order.
    pub const ALL: &[Point] = &[Point::Receive, Point::Transmit, Point::Drop, Point::Kernel];

    /// The stable name, as commands and JSON spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Point::Receive => "rx",
            Point::Transmit => "tx",
            Point::Drop => "drop",
            Point::Kernel => "kernel",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a port knows of the transport checksum of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Checksum {
    /// As the sender wrote it on the wire: leave it alone.
    #[default]
    Valid = 0,
    /// The checksum may be only the pseudo-header's sum, left by a sender that expected its device to complete it
    /// (Linux `CHECKSUM_PARTIAL`), and the port does not know.
    Unknown = 1,
    /// The checksum is only the pseudo-header's sum, and the next sender completes it: the sum of the bytes from
    /// `start` to the packet's end, folded and inverted, replaces the pseudo-header's sum.
    Partial {
        /// Where the transport header begins, in bytes from the start of the first frame's slot: it
        /// stays true when headers in front come and go.
        start: u16,
        /// Where the checksum is, in bytes from `start`.
        offset: u16,
    } = 2,
}

/// A packet that stands for several: what a sender left to its device to cut (TSO, USO), or what a
/// receiver has put together (GRO). Each segment gets the headers and up to `size` bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Segments {
    /// What is to be cut.
    pub kind: SegmentKind,
    /// The TCP segment carries CWR, which only the first piece may (RFC 3168 §6.1.2).
    pub ecn: bool,
    /// Payload bytes of each piece but the last.
    pub size: u16,
}

/// What a packet of [`Segments`] is, and so how it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum SegmentKind {
    /// A plain packet: nothing to cut.
    #[default]
    None = 0,
    /// TCP over IPv4: sequence number, flags and IPv4 identification advance.
    Tcp4 = 1,
    /// TCP over IPv6.
    Tcp6 = 2,
    /// UDP datagrams of one flow, over either.
    Udp = 3,
}

/// What a transmitter takes besides plain packets of one frame. Other packets are completed, cut or joined before they
/// reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Most frames of a packet: 1 for no chains.
    pub frames_max: u8,
    /// Packets with [`Checksum::Partial`].
    pub checksum: bool,
    /// Packets of [`Segments`]; only where `checksum` is taken too.
    pub segments: bool,
}

impl Offload {
    /// Ordinary packets of one frame only.
    pub const NONE: Offload = Offload { frames_max: 1, checksum: false, segments: false };
}

impl Segments {
    /// A plain packet.
    pub const NONE: Segments = Segments { kind: SegmentKind::None, ecn: false, size: 0 };

    /// Whether the packet is to be cut before it can be on a wire.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.kind != SegmentKind::None
    }
}

macro_rules! reasons {
    (
        $(#[$type_doc:meta])*
        $type:ident {
            $( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, )+
        }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $type {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $type {
            /// Every reason, in order.
            pub const ALL: &[$type] = &[$($type::$variant),+];
            /// The number of reasons.
            pub const COUNT: usize = $type::ALL.len();

            /// The stable name, as counters and JSON spell it.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }

            /// One sentence for an operator.
            pub const fn explanation(self) -> &'static str {
                match self { $($type::$variant => concat!($($doc),+).trim_ascii()),+ }
            }

            /// As an index into a block of counters.
            #[inline(always)]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

reasons! {
    /// Why a frame ended here. One enum for every stage, so that the ledger has one list to add up.
    DropReason {
        /// The Ethernet frame is shorter than its headers say.
        Truncated = "truncated",
        /// The destination MAC is another station's, or a group that this port does not listen to.
        NotForUs = "not_for_us",
        /// The frame carries neither IPv4, IPv6 nor ARP.
        UnknownEtherType = "unknown_ether_type",
        /// The frame carries a VLAN tag and the port has no sub-interface for it.
        UnknownVlan = "unknown_vlan",
        /// An IP packet in a link-layer broadcast, which carries nothing to forward (RFC 1812 §5.3.4).
        LinkBroadcast = "link_broadcast",
        /// The ARP packet is not Ethernet/IPv4, or its sender is no station (RFC 826).
        ArpInvalid = "arp_invalid",
        /// The IPv4 version, header length or total length is wrong (RFC 1812 §5.2.2).
        Ipv4HeaderInvalid = "ipv4_header_invalid",
        /// The IPv4 header checksum does not match (RFC 1812 §5.2.2).
        Ipv4ChecksumInvalid = "ipv4_checksum_invalid",
        /// The packet carries an IPv4 source route (RFC 7126 §4.3 and §4.4).
        Ipv4SourceRoute = "ipv4_source_route",
        /// The IPv6 version or payload length is wrong (RFC 8200 §3).
        Ipv6HeaderInvalid = "ipv6_header_invalid",
        /// The source address cannot be a sender's (RFC 1812 §5.3.7, RFC 4291 §2.5 and §2.7).
        MartianSource = "martian_source",
        /// The destination address cannot be forwarded to (RFC 1812 §5.3.7, RFC 4291 §2.5.2, §2.5.3).
        MartianDestination = "martian_destination",
        /// A multicast packet: multicast is not routed here.
        MulticastNotRouted = "multicast_not_routed",
        /// A packet to the broadcast address of a connected network (RFC 2644).
        DirectedBroadcast = "directed_broadcast",
        /// A link-local address must not leave its link (RFC 4291 §2.5.6).
        LinkLocalScope = "link_local_scope",
        /// The TTL or hop limit ran out (RFC 1812 §5.3.1, RFC 8200 §3).
        HopLimitExceeded = "hop_limit_exceeded",
        /// No route leads to the destination.
        NoRoute = "no_route",
        /// The route is a blackhole: dropped in silence.
        Blackhole = "blackhole",
        /// The route is unreachable: dropped with an error to the sender.
        RouteUnreachable = "route_unreachable",
        /// The route is prohibited: dropped with an error to the sender.
        RouteProhibited = "route_prohibited",
        /// Larger than the egress port's MTU and not to be fragmented (RFC 1191 §4, RFC 8200 §5).
        TooBig = "too_big",
        /// The neighbour did not answer (RFC 1812 §3.3.2, RFC 4861 §7.2.2).
        NeighbourFailed = "neighbour_failed",
        /// Held for a neighbour, and newer packets needed its place.
        HoldOverflow = "hold_overflow",
        /// The worker holds as many frames, or for as many neighbours, as it may; or the packet alone is too
        /// large to be held.
        HoldFull = "hold_full",
        /// For one of our addresses, and nothing here speaks that protocol.
        LocalNoService = "local_no_service",
        /// For one of our addresses, and malformed, with a wrong checksum, or with extension headers that a node
        /// must refuse (RFC 8200 §4).
        LocalInvalid = "local_invalid",
        /// The egress port's transmit ring had no place.
        TransmitRingFull = "transmit_ring_full",
        /// The egress was removed.
        PortDown = "port_down",
        /// No frame was free for a copy or fragment.
        NoFrame = "no_frame",
        /// The packet lies in more frames than its egress port takes, and would not fit in as few.
        TooManyFragments = "too_many_fragments",
        /// What its port said of its checksum or segments does not fit its headers, or it is of segments
        /// inside a tunnel and its egress port does not cut them.
        OffloadInvalid = "offload_invalid",
        /// The worker that its flow belongs to had no place for it (`netdev_max_backlog`).
        BacklogFull = "backlog_full",
        /// The worker that its flow belongs to was busy, mostly with this flow.
        FlowLimit = "flow_limit",
        /// Held for a neighbour, or about to be, when its receive queue moved to another worker.
        QueueMoved = "queue_moved",
        /// Held for a neighbour, or about to be, by a worker that was removed.
        WorkerRemoved = "worker_removed",
        /// The daemon was stopping.
        Shutdown = "shutdown",
    }
}

reasons! {
    /// Why a frame began here rather than on a wire.
    Created {
        /// An ICMP error to the sender of a packet that was dropped.
        Error = "error",
        /// An answer of ours: ARP reply, neighbour advertisement, echo reply.
        Reply = "reply",
        /// A question of ours: ARP request or neighbour solicitation.
        Solicitation = "solicitation",
        /// News of ours: gratuitous ARP or unsolicited neighbour advertisement.
        Announcement = "announcement",
        /// A redirect to the sender of a packet that was passed on.
        Redirect = "redirect",
        /// A second or later fragment of a packet that was too big for its egress port.
        Fragment = "fragment",
        /// A second or later piece of a packet of segments, cut here because its egress port does not.
        Segment = "segment",
        /// What a packet socket sent.
        Injected = "injected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_explained() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(reason.explanation().ends_with('.'), "{reason}: not a sentence");
        }
        assert_eq!(
            Created::Error.explanation(),
            "An ICMP error to the sender of a packet that was dropped."
        );
    }
}
