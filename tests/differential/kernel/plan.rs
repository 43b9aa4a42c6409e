//! Addresses and routes of both labs, and the neighbours.
//!
//! ```text
//!           hosts 1, 2              router              hosts 1, 2
//!      "lan" station ──────── lan           wan ──────── "wan" station
//!  10.1.0.0/24, 2001:db8:1::/64 MTU 1500    10.2.0.0/24, 2001:db8:2::/64 MTU 1400
//! ```
//!
//! In each link is another: VLAN 100 in lan (10.8.0.0/24, 2001:db8:8::/64, MTU 1300), and customer's VLAN 7
//! in provider's VLAN 200 in wan (10.9.0.0/24, 2001:db8:9::/64, MTU 1360), with two hosts each. The kernel's
//! router has them as links of their own, without tags, as VLAN devices would be to it.
//!
//! All MAC addresses are given, so that frames can be compared as they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_io::netlink::RouteKind;

/// A link of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Lan,
    Wan,
    /// In lan.
    Office,
    /// In wan.
    Customer,
}

impl Side {
    pub const ALL: [Side; 4] = [Side::Lan, Side::Wan, Side::Office, Side::Customer];

    /// The router's name for the link.
    pub fn name(self) -> &'static str {
        ["lan", "wan", "lan.100", "wan.200.7"][self as usize]
    }

    /// One of the others.
    pub fn other(self) -> Side {
        [Side::Wan, Side::Lan, Side::Wan, Side::Lan][self as usize]
    }

    /// The link that it is in, or itself.
    pub fn port(self) -> Side {
        [Side::Lan, Side::Wan][self as usize % 2]
    }

    /// What its frames carry between addresses and type.
    pub fn tags(self) -> &'static [u8] {
        const TAGS: [&[u8]; 4] =
            [&[], &[], &[0x81, 0, 0, 100], &[0x88, 0xa8, 0, 200, 0x81, 0, 0, 7]];
        TAGS[self as usize]
    }

    /// What its networks have where others have something else.
    fn number(self) -> u8 {
        [1, 2, 8, 9][self as usize]
    }

    /// The router's MAC address.
    pub fn router_mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 0xf1 + self.port() as u8]
    }

    /// The largest packet on the link.
    pub fn mtu(self) -> usize {
        [1500, 1400, 1300, 1360][self as usize]
    }

    /// The router's IPv4 address.
    pub fn router_v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number(), 0, 254)
    }

    /// The link's IPv4 broadcast address.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number(), 0, 255)
    }

    /// The router's IPv6 address.
    pub fn router_v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, self.number().into(), 0, 0, 0, 0, 0xfe)
    }

    /// The address of all routers of the link (RFC 4291 §2.6.1).
    pub fn routers(self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, self.number().into(), 0, 0, 0, 0, 0)
    }

    /// The router's link-local address: by its MAC address (RFC 4291 appendix A).
    pub fn router_link_local(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x00ff, 0xfe00, 0x00f1 + self.port() as u16)
    }

    /// The MAC address of host 1 or 2.
    pub fn host_mac(self, host: u8) -> [u8; 6] {
        [2, 0, 0, 0, self.number(), host]
    }

    /// The IPv4 address of host 1 or 2.
    pub fn host_v4(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number(), 0, host)
    }

    /// The IPv6 address of host 1 or 2.
    pub fn host_v6(self, host: u8) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, self.number().into(), 0, 0, 0, 0, host.into())
    }

    /// The link-local address of host 1 or 2.
    pub fn host_link_local(self, host: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, self.number().into(), host.into())
    }

    /// All hosts on the link but the router, with all addresses.
    pub fn neighbours(self) -> impl Iterator<Item = (IpAddr, [u8; 6])> {
        [1, 2].into_iter().flat_map(move |host| {
            let addresses: [IpAddr; 3] = [
                self.host_v4(host).into(),
                self.host_v6(host).into(),
                self.host_link_local(host).into(),
            ];
            addresses.map(|address| (address, self.host_mac(host)))
        })
    }
}

/// Where a route leads.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// A host on a link.
    Host(Side, u8),
    /// Nowhere.
    Nowhere(RouteKind),
}

/// The static routes: prefixes in prefixes, each family with each kind. None is a default route.
pub const ROUTES: &[(&str, u8, To)] = &[
    ("10.3.0.0", 16, To::Host(Side::Wan, 1)),
    ("10.3.7.0", 24, To::Host(Side::Wan, 2)),
    ("10.3.7.128", 25, To::Nowhere(RouteKind::Blackhole)),
    ("10.3.7.200", 32, To::Host(Side::Wan, 1)),
    ("10.4.0.0", 16, To::Host(Side::Lan, 1)),
    ("10.4.7.0", 24, To::Host(Side::Lan, 2)),
    ("10.18.0.0", 16, To::Host(Side::Office, 1)),
    ("10.19.0.0", 16, To::Host(Side::Customer, 2)),
    ("172.16.0.0", 12, To::Nowhere(RouteKind::Unreachable)),
    ("172.20.0.0", 14, To::Nowhere(RouteKind::Prohibit)),
    ("172.20.5.0", 24, To::Host(Side::Wan, 2)),
    ("240.0.0.0", 4, To::Host(Side::Wan, 1)),
    ("169.254.0.0", 16, To::Host(Side::Wan, 1)),
    ("2001:db8:3::", 48, To::Host(Side::Wan, 1)),
    ("2001:db8:3:7::", 64, To::Host(Side::Wan, 2)),
    ("2001:db8:3:7:8000::", 65, To::Nowhere(RouteKind::Blackhole)),
    ("2001:db8:3:7:c000::1", 128, To::Host(Side::Wan, 1)),
    ("2001:db8:4::", 48, To::Host(Side::Lan, 1)),
    ("2001:db8:4:7::", 64, To::Host(Side::Lan, 2)),
    ("2001:db8:18::", 48, To::Host(Side::Office, 1)),
    ("2001:db8:19::", 48, To::Host(Side::Customer, 2)),
    ("2001:db8:5::", 48, To::Nowhere(RouteKind::Unreachable)),
    ("2001:db8:6::", 48, To::Nowhere(RouteKind::Prohibit)),
    ("2001:db8:6:5::", 64, To::Host(Side::Wan, 2)),
    ("fc00::", 7, To::Host(Side::Wan, 1)),
    ("::ffff:0:0", 96, To::Host(Side::Wan, 1)),
];

/// What a router of the plan does with packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The router takes the packets for itself.
    Router,
    /// The router forwards the packets.
    On,
    /// A route drops them.
    Nowhere(RouteKind),
    /// No route matches.
    None,
}

/// Where an address leads.
pub fn way(address: IpAddr) -> Way {
    if is_routers(address) || is_anycast(address) {
        return Way::Router;
    }
    let is_connected = Side::ALL.into_iter().any(|side| {
        is_in(address, side.router_v4().into(), 24) || is_in(address, side.router_v6().into(), 64)
    });
    if is_connected {
        return Way::On;
    }
    match longest(address) {
        Some((_, _, To::Host(..))) => Way::On,
        Some((_, _, To::Nowhere(kind))) => Way::Nowhere(*kind),
        None => Way::None,
    }
}

/// The link and the station that packets to an address leave by, if a neighbour is there.
pub fn next_hop(address: IpAddr) -> Option<(Side, [u8; 6])> {
    if way(address) != Way::On {
        return None;
    }
    let neighbours = || {
        let of = |side: Side| side.neighbours().map(move |(address, mac)| (address, side, mac));
        Side::ALL.into_iter().flat_map(of)
    };
    let is_connected = |side: &Side| {
        is_in(address, side.router_v4().into(), 24) || is_in(address, side.router_v6().into(), 64)
    };
    if Side::ALL.iter().any(is_connected) {
        let (_, side, mac) = neighbours().find(|&(neighbour, ..)| neighbour == address)?;
        return Some((side, mac));
    }
    match longest(address)? {
        (_, _, To::Host(side, number)) => Some((*side, side.host_mac(*number))),
        _ => None,
    }
}

/// The longest route to an address.
fn longest(address: IpAddr) -> Option<&'static (&'static str, u8, To)> {
    let routes = ROUTES.iter().filter(|(prefix, len, _)| {
        is_in(address, prefix.parse().expect("the plan is right"), *len)
    });
    routes.max_by_key(|(_, len, _)| len)
}

fn is_in(address: IpAddr, prefix: IpAddr, len: u8) -> bool {
    let (bits, prefix, width) = match (address, prefix) {
        (IpAddr::V4(address), IpAddr::V4(prefix)) => {
            (u128::from(address.to_bits()), u128::from(prefix.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(prefix)) => (address.to_bits(), prefix.to_bits(), 128),
        _ => return false,
    };
    (bits ^ prefix) >> (width - len) == 0
}

/// The address of a host in the family of `like`.
pub fn host(side: Side, host: u8, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => side.host_v4(host).into(),
        IpAddr::V6(_) => side.host_v6(host).into(),
    }
}

/// Whether the address is one of the router's.
pub fn is_routers(address: IpAddr) -> bool {
    Side::ALL.into_iter().any(|side| match address {
        IpAddr::V4(address) => address == side.router_v4(),
        IpAddr::V6(address) => address == side.router_v6() || address == side.router_link_local(),
    })
}

/// Whether it is that of all routers of a link.
pub fn is_anycast(address: IpAddr) -> bool {
    Side::ALL.into_iter().any(|side| address == side.routers())
}
