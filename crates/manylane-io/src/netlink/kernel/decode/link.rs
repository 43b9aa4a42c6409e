//! Links and their addresses.

use std::ffi::CStr;

use netlink_bindings::rt_addr::{Ifaddrmsg, OpGetaddrDump};
use netlink_bindings::rt_link::{
    Ifinfomsg, IterableLinkAttrs, LinkinfoDataMsg, LinkinfoVlanAttrs, OpGetlinkDump,
};

use super::super::{Address, Link};
use super::Family;

/// Decodes a link. `None` for a bridge's messages about its ports (`AF_BRIDGE`) and for wireless events: neither
/// carries the whole link.
pub(in super::super) fn link(payload: &[u8]) -> Option<Link> {
    let (header, attributes) = header_and_attributes(payload)?;
    let info = attributes.get_linkinfo().ok();
    let vlan = info.as_ref().and_then(|info| match info.get_data().ok()? {
        LinkinfoDataMsg::Vlan(vlan) => {
            // An 802.1Q tag unless the kernel says otherwise (linux/if_link.h).
            let mut tag = (libc::ETH_P_8021Q as u16, None);
            for attribute in vlan.flatten() {
                match attribute {
                    LinkinfoVlanAttrs::Protocol(ethertype) => tag.0 = ethertype,
                    LinkinfoVlanAttrs::Id(id) => tag.1 = Some(id),
                    _ => {}
                }
            }
            Some((tag.0, tag.1?))
        }
        _ => None,
    });
    Some(Link {
        index: u32::try_from(header.ifi_index).ok()?,
        name: text(attributes.get_ifname().ok()?),
        kind: info.as_ref().and_then(|info| info.get_kind().ok()).map(text),
        mac: attributes.get_address().ok().and_then(|mac| mac.try_into().ok()),
        mtu: attributes.get_mtu().ok()?,
        flags: header.ifi_flags,
        operstate: attributes.get_operstate().unwrap_or(0),
        master: attributes.get_master().ok().filter(|&master| master != 0),
        member_kind: info.as_ref().and_then(|info| info.get_slave_kind().ok()).map(text),
        lower: attributes.get_link().ok().filter(|&lower| lower != 0),
        lower_is_elsewhere: attributes.get_link_netnsid().is_ok(),
        vlan,
        queues: (
            attributes.get_num_rx_queues().unwrap_or(1),
            attributes.get_num_tx_queues().unwrap_or(1),
        ),
        qdisc: attributes.get_qdisc().map(text).unwrap_or_default(),
        xdp: attributes.get_xdp().ok().and_then(|xdp| {
            // Without `IFLA_XDP_PROG_ID` the device may have several programs, one per attachment mode.
            let ids = [
                xdp.get_prog_id(),
                xdp.get_drv_prog_id(),
                xdp.get_hw_prog_id(),
                xdp.get_skb_prog_id(),
            ];
            ids.into_iter().flatten().find(|&id| id != 0)
        }),
    })
}

/// The number of a removed link. A bridge also sends `RTM_DELLINK` for a port that left it; that is not one.
pub(super) fn gone(payload: &[u8]) -> Option<u32> {
    u32::try_from(header_and_attributes(payload)?.0.ifi_index).ok()
}

fn header_and_attributes(payload: &[u8]) -> Option<(Ifinfomsg, IterableLinkAttrs<'_>)> {
    let (header, attributes) = OpGetlinkDump::decode_request(payload);
    let is_whole = payload.len() >= Ifinfomsg::len() && header.ifi_index > 0;
    (is_whole && i32::from(header.ifi_family) == libc::AF_UNSPEC).then_some((header, attributes))
}

/// A local address.
pub(in super::super) fn address(payload: &[u8]) -> Option<Address> {
    let (header, attributes) = OpGetaddrDump::decode_request(payload);
    let family = Family::of_message(header.ifa_family)?;
    let is_fitting = payload.len() >= Ifaddrmsg::len() && header.ifa_prefixlen <= family.bits();
    // On a point-to-point link `IFA_ADDRESS` is the peer's; IPv6 sends `IFA_LOCAL` only there.
    let address = attributes.get_local().or_else(|_| attributes.get_address()).ok()?;
    (is_fitting && address.is_ipv4() == (family == Family::V4)).then(|| Address {
        link: header.ifa_index,
        address,
        prefix_len: header.ifa_prefixlen,
        scope: header.ifa_scope,
        flags: attributes.get_flags().unwrap_or(header.ifa_flags.into()),
    })
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}
