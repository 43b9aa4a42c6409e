//! A small world to make events of: few links, routers, prefixes, so that what happens meets.

use std::net::IpAddr;

use manylane_io::netlink::kernel::{
    Address, Event, Family, Hop, Hops, Link, Neighbour, Netconf, NextHop, NextHopKind, Route, Rule,
};

use crate::constants::{ACTION_TABLE, LOWER_UP, RUNNING, UP};

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("well formed")
}

/// `10.1.LINK.HOST`, or the same in IPv6.
pub fn router(family: Family, link: u32, host: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 1, link as u8, host].into(),
        Family::V6 => [0x2001, 0xdb8, link as u16, 0, 0, 0, 0, host.into()].into(),
    }
}

pub fn link(index: u32, flags: u32) -> Link {
    Link {
        index,
        name: format!("eth{index}"),
        kind: Some("veth".to_owned()),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        flags,
        operstate: 6,
        master: None,
        member_kind: None,
        lower: None,
        lower_is_elsewhere: false,
        vlan: None,
        queues: (1, 1),
        qdisc: "noqueue".to_owned(),
        xdp: None,
    }
}

pub const WORKS: u32 = UP | RUNNING | LOWER_UP;

pub fn hop(link: u32, gateway: Option<IpAddr>) -> Hop {
    Hop { link, gateway, weight: 1, flags: 0, is_encapsulated: false }
}

/// A route of the main table.
pub fn route(prefix: &str, hops: Vec<Hop>) -> Route {
    let (address, len) = prefix.split_once('/').expect("a prefix");
    let hops = match &*hops {
        [] => Hops::One(None),
        [hop] => Hops::One(Some(*hop)),
        _ => Hops::Many(hops),
    };
    Route { scope: 0, ..Route::new(ip(address), len.parse().expect("a length"), hops) }
}

pub fn added(route: Route) -> Event {
    Event::Route { route, is_replaced: false, is_appended: false }
}

pub fn replaced(route: Route) -> Event {
    Event::Route { route, is_replaced: true, is_appended: false }
}

pub fn neighbour(link: u32, address: IpAddr, state: u16) -> Neighbour {
    let host = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    Neighbour { link, address, mac: Some([6, 0, 0, 0, link as u8, host]), state, flags: 0 }
}

pub fn address(link: u32, address: IpAddr) -> Address {
    let prefix_len = if address.is_ipv4() { 24 } else { 64 };
    Address { link, address, prefix_len, scope: 0, flags: 0 }
}

pub fn object(id: u32, kind: NextHopKind) -> NextHop {
    NextHop { id, family: None, protocol: 4, kind }
}

pub fn group(members: &[(u32, u16)]) -> NextHopKind {
    NextHopKind::Group { members: members.to_vec(), is_resilient: false }
}

pub fn netconf(link: i32, family: Family, ignores: bool) -> Netconf {
    Netconf {
        link,
        family,
        forwarding: Some(true),
        rp_filter: Some(0),
        ignore_routes_with_linkdown: Some(ignores),
    }
}

/// Priorities and tables of the usual rules.
pub const USUAL_RULES: [(u32, u32); 3] = [(0, 255), (32_766, 254), (32_767, 253)];

/// A rule for all packets.
pub fn rule(family: Family, priority: u32, table: u32) -> Rule {
    Rule {
        family,
        priority,
        action: ACTION_TABLE,
        table,
        from: None,
        to: None,
        iif: None,
        tos: 0,
        flags: 0,
        others: Vec::new(),
        rest: Vec::new(),
    }
}
