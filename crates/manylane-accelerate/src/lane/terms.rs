//! On which terms connections may be forwarded: what the mirror's thread knows, and the lane decides by.

use std::collections::BTreeSet;
use std::net::IpAddr;

use manylane_net::transit::flows::Required;

use crate::firewall::Port;

/// What the lane decides by, beside rules, routes and conntrack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneTerms {
    /// The generation of approvals that programs follow; 0 for none.
    pub generation: u32,
    /// The families whose packets are forwarded by connection only.
    pub families: Required,
    /// Families whose reverse path programs check strictly, at each port.
    pub strict: Required,
    /// The ports that packets may enter and leave by.
    pub ports: Vec<LanePort>,
    /// The router's own addresses, each with the number of its interface.
    pub addresses: BTreeSet<(IpAddr, u32)>,
}

/// A port of the lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanePort {
    /// Its number in the tables.
    pub number: u8,
    /// Its interface.
    pub interface: Port,
}

impl LaneTerms {
    /// Whether any packet is forwarded by connection.
    pub fn is_needed(&self) -> bool {
        self.families.ipv4 || self.families.ipv6
    }

    /// Whether those of a family are.
    pub fn needs(&self, is_ipv6: bool) -> bool {
        has(self.families, is_ipv6)
    }

    /// Whether the reverse path of a family's packets is checked strictly.
    pub fn is_strict(&self, is_ipv6: bool) -> bool {
        has(self.strict, is_ipv6)
    }

    /// The interface of a port that packets may enter or leave by.
    pub fn interface(&self, number: u8) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number).map(|port| &port.interface)
    }

    /// Whether this is an address of the router.
    pub fn is_own(&self, address: IpAddr) -> bool {
        let mut owners = self.addresses.range((address, 0)..=(address, u32::MAX));
        address.is_loopback() || owners.next().is_some()
    }

    /// Whether this is no own address, or one of this interface.
    pub fn may_be_source(&self, address: IpAddr, interface: u32) -> bool {
        let mut owners = self.addresses.range((address, 0)..=(address, u32::MAX)).peekable();
        owners.peek().is_none() || owners.any(|&(_, owner)| owner == interface)
    }
}

fn has(families: Required, is_ipv6: bool) -> bool {
    if is_ipv6 { families.ipv6 } else { families.ipv4 }
}
