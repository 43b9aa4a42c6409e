//! Decoding a message into our types, for dump replies and notifications alike.
//!
//! | Table | decoded by | because |
//! |---|---|---|
//! | links, addresses, neighbours | `netlink-bindings` | |
//! | routes | [`attributes`] | the bindings do not see the family in front of an `RTA_VIA`, and leave next hops raw |
//! | rules | [`attributes`] | an unknown selector must show, and the bindings skip it |
//! | next-hop objects, settings | [`attributes`] | the bindings do not have them |
//!
//! A message of another kind or family, or a truncated one, is `None`. A route that can be decoded only in part is
//! reported as one that manylane does not forward by: its next hops count as encapsulated.

mod link;
mod neighbour;
mod netconf;
mod next_hop;
mod route;
mod rule;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_bindings::utils::IterableChunks;

use super::{Event, Family};

pub(super) use link::{address, link};
pub(super) use neighbour::neighbour;
pub(super) use netconf::netconf;
pub(super) use next_hop::next_hop;
pub(super) use route::{RTAX_MTU, RTNEXTHOP_BYTES, route};
pub(super) use rule::rule;

/// Decodes a notification; `kind` and `flags` are those of its `struct nlmsghdr`.
pub(super) fn event(kind: u16, flags: u16, payload: &[u8]) -> Option<Event> {
    Some(match kind {
        libc::RTM_NEWLINK => Event::Link(link(payload)?),
        libc::RTM_DELLINK => Event::LinkGone(link::gone(payload)?),
        libc::RTM_NEWADDR => Event::Address(address(payload)?),
        libc::RTM_DELADDR => Event::AddressGone(address(payload)?),
        libc::RTM_NEWROUTE => Event::Route {
            route: route(payload)?,
            is_replaced: flags & libc::NLM_F_REPLACE as u16 != 0,
            is_appended: flags & libc::NLM_F_APPEND as u16 != 0,
        },
        libc::RTM_DELROUTE => Event::RouteGone(route(payload)?),
        RTM_NEWNEXTHOP => Event::NextHop(next_hop(payload)?),
        RTM_DELNEXTHOP => Event::NextHopGone(next_hop::gone(payload)?),
        libc::RTM_NEWRULE => Event::Rule(rule(payload)?),
        libc::RTM_DELRULE => Event::RuleGone(rule(payload)?),
        libc::RTM_NEWNEIGH => Event::Neighbour(neighbour(payload)?),
        libc::RTM_DELNEIGH => Event::NeighbourGone(neighbour(payload)?),
        libc::RTM_NEWNETCONF => Event::Netconf(netconf(payload)?),
        _ => return None,
    })
}

/// The attributes in `bytes` (`struct nlattr`): type and value. A malformed one ends the iteration.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    IterableChunks::new(bytes).map(|(header, value)| (header.r#type, value))
}

impl Family {
    /// The family of a message; `None` for others (bridges, multicast routing).
    fn of_message(family: u8) -> Option<Family> {
        match i32::from(family) {
            libc::AF_INET => Some(Family::V4),
            libc::AF_INET6 => Some(Family::V6),
            _ => None,
        }
    }

    /// `AF_*`.
    pub(super) fn number(self) -> u8 {
        match self {
            Family::V4 => libc::AF_INET as u8,
            Family::V6 => libc::AF_INET6 as u8,
        }
    }

    /// The address that messages omit.
    fn unspecified(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Bits of an address.
    pub(super) fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// An address of this family, if `bytes` has its length.
    fn address(self, bytes: &[u8]) -> Option<IpAddr> {
        Some(match self {
            Family::V4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
            Family::V6 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        })
    }
}

/// linux/rtnetlink.h.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
