//! What the kernel says of its routing, message by message (rtnetlink(7)).

use std::net::IpAddr;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// A network device (`RTM_NEWLINK`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `vlan`, `bridge`; nothing for most hardware.
    pub kind: Option<String>,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// The largest packet, in bytes of layer 3.
    pub mtu: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// `IFLA_OPERSTATE` (RFC 2863).
    pub operstate: u8,
    /// The bridge or bond that it is a member of.
    pub master: Option<u32>,
    /// What kind that is (`IFLA_INFO_SLAVE_KIND`).
    pub member_kind: Option<String>,
    /// The device under it (VLAN, macvlan), or the peer (veth), by `IFLA_LINK`.
    pub lower: Option<u32>,
    /// Whether `lower` is a number of another namespace.
    pub lower_is_elsewhere: bool,
    /// For a VLAN device: ethertype of its tag, and the number in it.
    pub vlan: Option<(u16, u16)>,
    /// Receive and transmit queues.
    pub queues: (u32, u32),
    /// The root qdisc's kind.
    pub qdisc: String,
    /// The id of an XDP program on it.
    pub xdp: Option<u32>,
}

/// An address of ours (`RTM_NEWADDR`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// On this device.
    pub link: u32,
    /// The address itself (`IFA_LOCAL`).
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `IFA_F_*`.
    pub flags: u32,
}

/// One way of a route, or of a next-hop object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The device it leaves by; 0 when there is none.
    pub link: u32,
    /// The router it goes to, of either family (`RTA_GATEWAY`, `RTA_VIA`); none where the destination is a
    /// neighbour.
    pub gateway: Option<IpAddr>,
    /// Its weight, 1 or more.
    pub weight: u16,
    /// `RTNH_F_*`.
    pub flags: u8,
    /// Packets are wrapped on this way (`RTA_ENCAP_TYPE`).
    pub is_encapsulated: bool,
}

/// A route (`RTM_NEWROUTE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The table it is in.
    pub table: u32,
    /// The network.
    pub destination: IpAddr,
    /// The length of its prefix.
    pub prefix_len: u8,
    /// Only for packets from there (IPv6).
    pub source: Option<(IpAddr, u8)>,
    /// Only for packets with this type of service (IPv4).
    pub tos: u8,
    /// The metric.
    pub priority: u32,
    /// `RTN_*`.
    pub kind: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTM_F_*` and, for one way, `RTNH_F_*`.
    pub flags: u32,
    /// The next-hop object that says the ways; they may be repeated in `hops`.
    pub next_hop: Option<u32>,
    /// The ways: none for a blackhole, more for multipath.
    pub hops: Hops,
    /// The route's own MTU.
    pub mtu: Option<u32>,
    /// It has an end (IPv6, from a router advertisement). The kernel stops using it then, and tells of that when
    /// it comes to removing it.
    pub is_expiring: bool,
}

/// Ways of a route: one of them without an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hops {
    /// None, or one.
    One(Option<Hop>),
    /// Several.
    Many(Vec<Hop>),
}

impl Hops {
    /// All of them, in the kernel's order.
    pub fn as_slice(&self) -> &[Hop] {
        match self {
            Hops::One(hop) => hop.as_slice(),
            Hops::Many(hops) => hops,
        }
    }
}

/// A next-hop object (`RTM_NEWNEXTHOP`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its number.
    pub id: u32,
    /// Which family's, if it says.
    pub family: Option<Family>,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// What it leads to.
    pub kind: NextHopKind,
}

/// What a next-hop object leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// One way.
    Via(Hop),
    /// Nowhere, in silence.
    Blackhole,
    /// Other objects with their weights, 1 or more; `is_resilient` where buckets keep their flows.
    Group {
        /// Numbers and weights.
        members: Vec<(u32, u16)>,
        /// `NEXTHOP_GRP_TYPE_RES`.
        is_resilient: bool,
    },
    /// For bridges' tables, not for routes (`NHA_FDB`).
    Fdb,
}

/// A rule of the routing policy (`RTM_NEWRULE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whose rules it is one of.
    pub family: Family,
    /// Where in the order, small ones first.
    pub priority: u32,
    /// `FR_ACT_*`.
    pub action: u8,
    /// The table for `FR_ACT_TO_TBL`.
    pub table: u32,
    /// Packets from there.
    pub from: Option<(IpAddr, u8)>,
    /// Packets to there.
    pub to: Option<(IpAddr, u8)>,
    /// Packets that came in by this device.
    pub iif: Option<String>,
    /// Packets with this type of service; 0 for all.
    pub tos: u8,
    /// `FIB_RULE_*` flags: what matches is inverted (`FIB_RULE_INVERT`), among others.
    pub flags: u32,
    /// It asks for something else, too (mark, user, ports, protocol, exit, tunnel, l3mdev, suppression, goto), by name.
    pub others: Vec<&'static str>,
    /// The attributes behind `others`, and who made the rule (`FRA_PROTOCOL`), as the kernel says them: what tells
    /// two rules apart that are equal otherwise.
    pub rest: Vec<u8>,
}

/// A neighbour (`RTM_NEWNEIGH`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// On this device.
    pub link: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is known.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*`.
    pub state: u16,
    /// `NTF_*`.
    pub flags: u8,
}

/// Settings of a device, or of all, for one family (`RTM_NEWNETCONF`). What a message does not say is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netconf {
    /// The device; `NETCONFA_IFINDEX_ALL` (-1) and `_DEFAULT` (-2) are no device.
    pub link: i32,
    /// Whose settings.
    pub family: Family,
    /// Packets are forwarded.
    pub forwarding: Option<bool>,
    /// 0 none, 1 strict, 2 loose (RFC 3704).
    pub rp_filter: Option<u8>,
    /// Routes by a device without carrier are left out.
    pub ignore_routes_with_linkdown: Option<bool>,
}

/// Something came, changed or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link is now so; or is gone.
    Link(Link),
    /// This link is gone.
    LinkGone(u32),
    /// An address is there.
    Address(Address),
    /// It is not any more.
    AddressGone(Address),
    /// A route is there. `is_replaced`: it is instead of the one of its prefix, table, metric and type of service
    /// (`NLM_F_REPLACE`); `is_appended`: it is behind, or one more way of, what is there (`NLM_F_APPEND`).
    Route {
        /// The route.
        route: Route,
        /// `NLM_F_REPLACE`.
        is_replaced: bool,
        /// `NLM_F_APPEND`.
        is_appended: bool,
    },
    /// It is not any more.
    RouteGone(Route),
    /// A next-hop object is now so.
    NextHop(NextHop),
    /// It is not any more.
    NextHopGone(u32),
    /// A rule is there.
    Rule(Rule),
    /// It is not any more.
    RuleGone(Rule),
    /// A neighbour is now so.
    Neighbour(Neighbour),
    /// It is not any more.
    NeighbourGone(Neighbour),
    /// Settings are now so.
    Netconf(Netconf),
}

/// What to hear of (`RTNLGRP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Links.
    Links,
    /// Addresses of a family.
    Addresses(Family),
    /// Routes of a family.
    Routes(Family),
    /// Rules of a family.
    Rules(Family),
    /// Next-hop objects.
    NextHops,
    /// Neighbours of both families.
    Neighbours,
    /// Settings of a family.
    Netconf(Family),
}
