//! Routes of the main table.

use std::fmt;
use std::net::IpAddr;

use netlink_bindings::rt_route::{Request, Rtmsg};

use super::address::family;
use super::{Netlink, NetlinkError};

/// A route to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network; bits beyond the prefix must be zero.
    pub destination: IpAddr,
    /// The prefix length; 0 for the default route.
    pub prefix_length: u8,
    /// The next router; `None` for a directly connected network.
    pub gateway: Option<IpAddr>,
    /// The egress link. If `None`, the kernel derives it from the gateway; a link-local gateway needs one.
    pub interface: Option<String>,
    /// What the route does with packets.
    pub kind: RouteKind,
}

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Forwards them.
    Unicast,
    /// Drops them silently.
    Blackhole,
    /// Drops them and answers "host unreachable".
    Unreachable,
    /// Drops them and answers "administratively prohibited".
    Prohibit,
}

impl Route {
    /// A route through a gateway; the kernel finds its link.
    pub fn via(destination: IpAddr, prefix_length: u8, gateway: IpAddr) -> Route {
        let kind = RouteKind::Unicast;
        Route { destination, prefix_length, gateway: Some(gateway), interface: None, kind }
    }

    /// A route of a kind that forwards nothing.
    pub fn nowhere(destination: IpAddr, prefix_length: u8, kind: RouteKind) -> Route {
        Route { destination, prefix_length, gateway: None, interface: None, kind }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RouteKind::Unicast => "",
            RouteKind::Blackhole => "blackhole ",
            RouteKind::Unreachable => "unreachable ",
            RouteKind::Prohibit => "prohibit ",
        };
        write!(f, "{kind}{}/{}", self.destination, self.prefix_length)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        match &self.interface {
            Some(interface) => write!(f, " dev {interface}"),
            None => Ok(()),
        }
    }
}

impl Netlink {
    /// Adds a route to the main table.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let scope = match route.gateway {
            None if route.destination.is_ipv4() && route.kind == RouteKind::Unicast => {
                libc::RT_SCOPE_LINK
            }
            _ => libc::RT_SCOPE_UNIVERSE,
        };
        let header = Rtmsg {
            rtm_family: family(route.destination),
            rtm_dst_len: route.prefix_length,
            rtm_table: libc::RT_TABLE_MAIN,
            rtm_protocol: libc::RTPROT_STATIC,
            rtm_scope: scope,
            rtm_type: match route.kind {
                RouteKind::Unicast => libc::RTN_UNICAST,
                RouteKind::Blackhole => libc::RTN_BLACKHOLE,
                RouteKind::Unreachable => libc::RTN_UNREACHABLE,
                RouteKind::Prohibit => libc::RTN_PROHIBIT,
            },
            ..Default::default()
        };
        let interface = route.interface.as_deref().map(|name| self.link(name)).transpose()?;
        let mut request = Request::new().set_create().set_excl().op_newroute_do(&header);
        let mut attributes = request.encode();
        if route.prefix_length > 0 {
            attributes = attributes.push_dst(route.destination);
        }
        if let Some(gateway) = route.gateway {
            attributes = attributes.push_gateway(gateway);
        }
        if let Some(interface) = interface {
            attributes = attributes.push_oif(interface.index);
        }
        drop(attributes);
        self.change(|| format!("add the route {route}"), &request)
    }
}
