//! Neighbours.

use netlink_bindings::rt_neigh::{Ndmsg, OpGetneighDump};

use super::super::Neighbour;
use super::Family;

/// Decodes a neighbour. `None` for a bridge's table (`AF_BRIDGE`) and for proxied addresses (`NTF_PROXY`): they are in
/// a table of their own, and could have the address of a neighbour.
pub(in super::super) fn neighbour(payload: &[u8]) -> Option<Neighbour> {
    let (header, attributes) = OpGetneighDump::decode_request(payload);
    let family = Family::of_message(header.ndm_family)?;
    let address = attributes.get_dst().ok()?;
    let is_ours = payload.len() >= Ndmsg::len()
        && header.ndm_flags & libc::NTF_PROXY == 0
        && address.is_ipv4() == (family == Family::V4);
    is_ours.then_some(Neighbour {
        link: u32::try_from(header.ndm_ifindex).ok()?,
        address,
        mac: attributes.get_lladdr().ok().and_then(|mac| mac.try_into().ok()),
        state: header.ndm_state,
        flags: header.ndm_flags,
    })
}
