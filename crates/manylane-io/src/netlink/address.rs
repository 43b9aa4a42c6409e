//! Addresses of a link, and permanent neighbours.

use std::net::IpAddr;

use netlink_bindings::rt_addr::{self, Ifaddrmsg};
use netlink_bindings::rt_neigh::{self, Ndmsg};

use super::{Netlink, NetlinkError};

impl Netlink {
    /// Adds an address to a link, usable at once: IPv6 skips duplicate address detection.
    pub fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix_length: u8,
    ) -> Result<(), NetlinkError> {
        let header = Ifaddrmsg {
            ifa_family: family(address),
            ifa_prefixlen: prefix_length,
            ifa_index: self.link(name)?.index,
            ..Default::default()
        };
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        let attributes = request.encode().push_local(address).push_address(address);
        if address.is_ipv6() {
            drop(attributes.push_flags(libc::IFA_F_NODAD));
        } else {
            drop(attributes);
        }
        self.change(|| format!("give {name} the address {address}/{prefix_length}"), &request)
    }

    /// Adds a permanent neighbour entry.
    pub fn add_neighbour(
        &mut self,
        name: &str,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), NetlinkError> {
        let header = Ndmsg {
            ndm_family: family(address),
            ndm_ifindex: self.link(name)?.index as i32,
            ndm_state: libc::NUD_PERMANENT,
            ..Default::default()
        };
        let mut request = rt_neigh::Request::new().set_change().op_newneigh_do(&header);
        request.encode().push_dst(address).push_lladdr(&mac);
        self.change(|| format!("make {address} a neighbour on {name}"), &request)
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    family as u8
}
