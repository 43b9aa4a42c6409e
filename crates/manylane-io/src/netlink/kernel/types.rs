//! Types for the kernel's routing messages (rtnetlink(7)).

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
    /// The kind of that device (`IFLA_INFO_SLAVE_KIND`).
    pub member_kind: Option<String>,
    /// The device below it (VLAN, macvlan), or the peer (veth), by `IFLA_LINK`.
    pub lower: Option<u32>,
    /// Whether `lower` is a number in another namespace.
    pub lower_is_elsewhere: bool,
    /// For a VLAN device: the ethertype and VLAN id of its tag.
    pub vlan: Option<(u16, u16)>,
    /// Receive and transmit queues.
    pub queues: (u32, u32),
    /// The root qdisc's kind.
    pub qdisc: String,
    /// The id of its XDP program.
    pub xdp: Option<u32>,
}

/// A local address (`RTM_NEWADDR`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The device that has it.
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

/// A next hop of a route, or of a next-hop object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The egress device; 0 for a next hop without a device.
    pub link: u32,
    /// The next router, of either family (`RTA_GATEWAY`, `RTA_VIA`); `None` where the destination is a neighbour.
    pub gateway: Option<IpAddr>,
    /// Its weight, 1 or more.
    pub weight: u16,
    /// `RTNH_F_*`.
    pub flags: u8,
    /// Packets are encapsulated (`RTA_ENCAP_TYPE`).
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
    /// The source prefix that packets must match (IPv6).
    pub source: Option<(IpAddr, u8)>,
    /// The type of service that packets must have (IPv4).
    pub tos: u8,
    /// The metric.
    pub priority: u32,
    /// `RTN_*`.
    pub kind: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTM_F_*` and, for one next hop, `RTNH_F_*`.
    pub flags: u32,
    /// The next-hop object that defines the next hops; `hops` may repeat them.
    pub next_hop: Option<u32>,
    /// The next hops: none for a blackhole, several for multipath.
    pub hops: Hops,
    /// The route's own MTU.
    pub mtu: Option<u32>,
    /// The route has a lifetime (IPv6, from a router advertisement). The kernel stops using it when it expires, but
    /// announces that only when it removes the route.
    pub is_expiring: bool,
}

/// The next hops of a route; a single one needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hops {
    /// No next hop, or one.
    One(Option<Hop>),
    /// Several.
    Many(Vec<Hop>),
}

impl Hops {
    /// All next hops, in the kernel's order.
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
    /// Its family, if the message has one.
    pub family: Option<Family>,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// The target.
    pub kind: NextHopKind,
}

/// The target of a next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// One next hop.
    Via(Hop),
    /// Drops silently.
    Blackhole,
    /// Other objects with their weights, 1 or more; `is_resilient` where hash buckets keep their flows.
    Group {
        /// Ids and weights.
        members: Vec<(u32, u16)>,
        /// `NEXTHOP_GRP_TYPE_RES`.
        is_resilient: bool,
    },
    /// For bridges' tables, not for routes (`NHA_FDB`).
    Fdb,
}

/// A policy routing rule (`RTM_NEWRULE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The family whose packets it matches.
    pub family: Family,
    /// Its position: the kernel evaluates low numbers first.
    pub priority: u32,
    /// `FR_ACT_*`.
    pub action: u8,
    /// The table for `FR_ACT_TO_TBL`.
    pub table: u32,
    /// The source prefix that packets must match.
    pub from: Option<(IpAddr, u8)>,
    /// The destination prefix that packets must match.
    pub to: Option<(IpAddr, u8)>,
    /// The ingress device.
    pub iif: Option<String>,
    /// The type of service that packets must have; 0 for any.
    pub tos: u8,
    /// `FIB_RULE_*` flags; with `FIB_RULE_INVERT` the match is inverted.
    pub flags: u32,
    /// The names of its other selectors and actions (mark, user, ports, protocol, egress interface, tunnel, l3mdev,
    /// suppression, goto).
    pub others: Vec<&'static str>,
    /// The raw attributes behind `others`, and the protocol that added the rule (`FRA_PROTOCOL`): they distinguish two
    /// otherwise equal rules.
    pub rest: Vec<u8>,
}

/// A neighbour (`RTM_NEWNEIGH`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The device.
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

/// Settings of a device, or of all, for one family (`RTM_NEWNETCONF`). A setting absent from the message is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netconf {
    /// The device, or `NETCONFA_IFINDEX_ALL` (-1), or `NETCONFA_IFINDEX_DEFAULT` (-2).
    pub link: i32,
    /// The family.
    pub family: Family,
    /// Packets are forwarded.
    pub forwarding: Option<bool>,
    /// 0 none, 1 strict, 2 loose (RFC 3704).
    pub rp_filter: Option<u8>,
    /// The kernel skips routes through a device without carrier.
    pub ignore_routes_with_linkdown: Option<bool>,
}

/// A change of the kernel's routing state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The new state of a link.
    Link(Link),
    /// A link was removed.
    LinkGone(u32),
    /// An address was added.
    Address(Address),
    /// An address was removed.
    AddressGone(Address),
    /// A route was added. `is_replaced`: it replaces one with its prefix, table, metric and type of service
    /// (`NLM_F_REPLACE`); `is_appended`: it is behind existing routes, or adds a next hop to one (`NLM_F_APPEND`).
    Route {
        /// The route.
        route: Route,
        /// `NLM_F_REPLACE`.
        is_replaced: bool,
        /// `NLM_F_APPEND`.
        is_appended: bool,
    },
    /// A route was removed.
    RouteGone(Route),
    /// The new state of a next-hop object.
    NextHop(NextHop),
    /// A next-hop object was removed.
    NextHopGone(u32),
    /// A rule was added.
    Rule(Rule),
    /// A rule was removed.
    RuleGone(Rule),
    /// The new state of a neighbour.
    Neighbour(Neighbour),
    /// A neighbour was removed.
    NeighbourGone(Neighbour),
    /// The new values of settings.
    Netconf(Netconf),
}

/// A group of events to subscribe to (`RTNLGRP_*`).
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
