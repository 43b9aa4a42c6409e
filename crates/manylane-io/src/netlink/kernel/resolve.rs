//! Makes the kernel resolve a neighbour.

use std::net::IpAddr;

use netlink_bindings::rt_neigh::{Ndmsg, Request};

use super::super::{Netlink, NetlinkError};
use super::Family;

impl Netlink {
    /// Makes the kernel resolve a neighbour, or verify a stale entry, as if the kernel had a packet for the neighbour
    /// (`NTF_USE`). An answer arrives as an event, or never.
    ///
    /// A permanent entry is left alone: the request would clear its permanent state and its Ethernet address.
    pub fn resolve_neighbour(&mut self, link: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let step = || format!("resolve the neighbour {address} on link {link}");
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        let state = self.state_of(link, address);
        let state = state.map_err(|refusal| NetlinkError::refused(step(), refusal))?;
        if state.is_some_and(|state| state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0) {
            return Ok(());
        }
        let is_known = state.is_some();
        let header = Ndmsg {
            ndm_family: family.number(),
            ndm_ifindex: link as i32,
            ndm_flags: libc::NTF_USE,
            ..Default::default()
        };
        let request = Request::new().set_create();
        // An entry that another program added in between stays as it is.
        let request = if is_known { request } else { request.set_excl() };
        let mut request = request.op_newneigh_do(&header);
        request.encode().push_dst(address);
        match self.change(step, &request) {
            Err(error) if error.is_existing() => Ok(()),
            outcome => outcome,
        }
    }
}
