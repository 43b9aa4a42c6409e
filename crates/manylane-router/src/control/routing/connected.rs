//! What the addresses of ports mean: connected networks, their broadcasts, and which stations are on a link.

use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{IpPrefix, Ipv4Prefix, Ipv6Prefix, NextHopId};
use manylane_net::neighbour::{Key, Report};
use manylane_net::nexthop::ids::{BROADCAST, LOCAL, connected_id, fixed_id};

use super::{Routing, RoutingError};

impl Routing {
    /// Connected networks, our own addresses, and what else a network's addresses mean.
    pub(super) fn add_connected(&mut self) -> Result<(), RoutingError> {
        for port in (0..self.ports.len() as u16).map(PortId) {
            for (prefix, id) in self.connected(port) {
                self.insert(prefix, id)?;
            }
        }
        Ok(())
    }

    /// What a port's addresses mean, a later one's word before an earlier one's.
    pub(super) fn connected(&self, port: PortId) -> Vec<(IpPrefix, NextHopId)> {
        let mut routes = Vec::new();
        let addresses = self.ports[port.index()].addresses.iter();
        for own in addresses.filter(|own| !is_link_local(own.address)) {
            let network = own.prefix();
            let prefix = IpPrefix::new(network.network(), network.length())
                .expect("a network has no host bits");
            if prefix.len() < host_bits(own.address) {
                routes.push((prefix, connected_id(port)));
                routes.extend(broadcasts(prefix));
                let anycast = network.anycast();
                routes.extend(anycast.map(|anycast| (host(anycast.into()), fixed_id(LOCAL))));
            }
            routes.push((host(own.address), fixed_id(LOCAL)));
        }
        routes
    }

    /// Whether a report is about a neighbour we may have: on a connected network of its port, or
    /// link-local. Any station on a link may claim any address; the claim must not bring a route.
    pub(super) fn concerns_us(&self, report: Report) -> bool {
        let key = match report {
            Report::Missing { key, .. } | Report::Answer { key, .. } => key,
            Report::Used { .. } => return true,
            Report::Claimed { .. } => return false, // The claim is about us.
        };
        if self.neighbours.find(key).is_some() {
            return true;
        }
        self.is_neighbours(key) && !self.is_down(key.port)
    }

    /// Whether a neighbour may have this address on this port's link.
    pub(super) fn is_neighbours(&self, key: Key) -> bool {
        let Some(port) = self.ports.get(key.port.index()) else { return false };
        if self.is_removed(key.port) {
            return false;
        }
        let is_connected = is_link_local(key.addr)
            || port.addresses.iter().any(|own| own.prefix().contains(key.addr));
        is_connected || self.is_on_link(key)
    }

    /// Whether a static route says that the address is on the port's link.
    pub(super) fn is_on_link(&self, key: Key) -> bool {
        let id = match key.addr {
            IpAddr::V4(addr) => self.ipv4.lookup(addr).map(|(_, id)| id),
            IpAddr::V6(addr) => self.ipv6.lookup(addr).map(|(_, id)| id),
        };
        id == Some(connected_id(key.port))
    }
}

/// The first and last address of an IPv4 network are broadcasts (RFC 1812 §4.2.3.1, §5.3.5.2), but not in a /31
/// (RFC 3021).
fn broadcasts(prefix: IpPrefix) -> impl Iterator<Item = (IpPrefix, NextHopId)> {
    let ends = match prefix {
        IpPrefix::V4(prefix) if prefix.len() < 31 => Some([prefix.addr(), prefix.last()]),
        _ => None,
    };
    ends.into_iter().flatten().map(|end| (host(end.into()), fixed_id(BROADCAST)))
}

pub(super) fn host(address: IpAddr) -> IpPrefix {
    match address {
        IpAddr::V4(address) => IpPrefix::V4(Ipv4Prefix::host(address)),
        IpAddr::V6(address) => IpPrefix::V6(Ipv6Prefix::host(address)),
    }
}

fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether an address means something on its link only. 169.254/16 is routed like any other: RFC 3927
/// §2.7 forbids forwarding it, and an operator configures it for no other purpose.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
