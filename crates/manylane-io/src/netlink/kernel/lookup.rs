//! What the kernel says of one packet: its route, and the state of a neighbour.

use std::io;
use std::net::IpAddr;

use netlink_bindings::rt_neigh::{Ndmsg, Request};
use netlink_bindings::rt_route::Rtmsg;

use super::super::plain::Plain;
use super::super::socket::Refusal;
use super::super::{Netlink, NetlinkError};
use super::{Family, Route, decode};

impl Netlink {
    /// The kernel's route for a packet to `destination`, which the link `ingress` receives from `source`; without these,
    /// for a packet of this host. An error is the kernel's answer, too: `EHOSTUNREACH` and `ENETUNREACH` without a route,
    /// `EXDEV` where the source is not accepted at that link, `EINVAL` for a blackhole, `EACCES` for a prohibit route.
    pub fn route_of(
        &mut self,
        destination: IpAddr,
        received: Option<(IpAddr, u32)>,
    ) -> io::Result<Route> {
        let family = family_of(destination);
        let bits = family.bits();
        let header = Rtmsg {
            rtm_family: family.number(),
            rtm_dst_len: bits,
            rtm_src_len: if received.is_some() { bits } else { 0 },
            ..Default::default()
        };
        let mut payload = header.as_slice().to_vec();
        push_address(&mut payload, libc::RTA_DST, destination);
        if let Some((source, ingress)) = received {
            push_address(&mut payload, libc::RTA_SRC, source);
            push(&mut payload, libc::RTA_IIF, &ingress.to_ne_bytes());
        }
        let request = Plain::one(libc::RTM_GETROUTE, &payload);
        self.socket.query(&request, decode::route).map_err(|refusal| refusal.source)
    }

    /// The state of a neighbour (`NUD_*`), if the kernel has an entry.
    pub fn neighbour_state(
        &mut self,
        link: u32,
        address: IpAddr,
    ) -> Result<Option<u16>, NetlinkError> {
        let step = || format!("look up the neighbour {address} on link {link}");
        self.state_of(link, address).map_err(|refusal| NetlinkError::refused(step(), refusal))
    }

    /// As [`Netlink::neighbour_state`], for a caller that says what it looks for.
    pub(super) fn state_of(&mut self, link: u32, address: IpAddr) -> Result<Option<u16>, Refusal> {
        let family = family_of(address);
        let header =
            Ndmsg { ndm_family: family.number(), ndm_ifindex: link as i32, ..Default::default() };
        let mut look = Request::new().op_getneigh_do(&header);
        look.encode().push_dst(address);
        match self.socket.query(&look, |(found, _)| Some(found.ndm_state)) {
            Ok(state) => Ok(Some(state)),
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn push_address(payload: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push(payload, kind, &address.octets()),
        IpAddr::V6(address) => push(payload, kind, &address.octets()),
    }
}

/// Appends an attribute (rtnetlink(3)), whose value has a multiple of 4 bytes.
fn push(payload: &mut Vec<u8>, kind: u16, value: &[u8]) {
    payload.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    payload.extend_from_slice(&kind.to_ne_bytes());
    payload.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Every namespace routes its loopback addresses to itself.
    #[test]
    fn the_kernel_says_where_a_packet_goes() {
        let mut netlink = Netlink::open().expect("route sockets are to be had");
        let [own, nobodys] = [1, 77].map(|host| Ipv4Addr::new(127, 0, 0, host).into());
        let route = netlink.route_of(own, None).expect("it is local");
        assert_eq!(route.kind, libc::RTN_LOCAL);
        let nobody = netlink.neighbour_state(1, nobodys);
        assert_eq!(nobody.ok(), Some(None));
    }
}
