//! What a worker reads: the tables, and what the rules must know of a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use manylane_frame::vocabulary::{Offload, PortId};

use super::Vlan;
use crate::fib::{Ipv4Fib, Ipv6Fib};
use crate::neighbour::{Adjacencies, OwnAddresses};
use crate::nexthop::NextHops;
use crate::wire::ethernet::{Mac, Tags};

/// What a worker reads: the readers' sides of all tables.
#[derive(Clone)]
pub struct Tables {
    /// IPv4 prefixes.
    pub ipv4: Ipv4Fib,
    /// IPv6 prefixes.
    pub ipv6: Ipv6Fib,
    /// What prefixes lead to.
    pub next_hops: NextHops,
    /// Ready-made link-layer headers.
    pub adjacencies: Adjacencies,
    /// What each port is, by its id.
    pub ports: Arc<[PortFacts]>,
    /// What may be done with our own addresses.
    pub own: OwnAddresses,
}

/// What the rules must know of a port.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Our own MAC address there.
    pub mac: Mac,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// What it transmits besides plain packets of one frame.
    pub offload: Offload,
    /// Our IPv4 addresses there; the first is the source of our own packets.
    pub ipv4: Vec<Ipv4Interface>,
    /// Our IPv6 addresses there, global ones first.
    pub ipv6: Vec<Ipv6Addr>,
    /// Our IPv6 link-local address there, if the port has IPv6.
    pub link_local: Option<Ipv6Addr>,
    /// The subnet-router anycast addresses of its networks, which every router of them has (RFC 4291 §2.6.1).
    pub anycast: Vec<Ipv6Addr>,
    /// What it is, if it has no device of its own but is a sub-interface. Its MAC address and offload are
    /// those of its port.
    pub vlan: Option<Vlan>,
    /// Its sub-interfaces, sorted by their tags.
    pub vlans: Vec<(Tags, PortId)>,
}

/// An IPv4 address of ours and the network it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Interface {
    /// Our address.
    pub addr: Ipv4Addr,
    /// Bits of the network's prefix.
    pub len: u8,
}

impl Ipv4Interface {
    /// Whether `other` is in the same network.
    pub fn contains(&self, other: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
        u32::from(self.addr) & mask == u32::from(other) & mask
    }
}

impl PortFacts {
    /// Whether `address` is ours on this port.
    pub fn owns(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.ipv4.iter().any(|own| own.addr == address),
            IpAddr::V6(address) => {
                self.link_local == Some(address)
                    || self.ipv6.contains(&address)
                    || self.anycast.contains(&address)
            }
        }
    }
}
