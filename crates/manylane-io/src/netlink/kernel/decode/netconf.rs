//! Settings of devices (linux/netconf.h). A notification holds only what changed.

use netlink_bindings::utils::parse_i32;

use super::super::Netconf;
use super::{Family, attributes};

/// Decodes the settings of one device, of `all` or of `default`.
pub(in super::super) fn netconf(payload: &[u8]) -> Option<Netconf> {
    let family = Family::of_message(*payload.first()?)?;
    let mut link = None;
    let mut netconf = Netconf {
        link: 0,
        family,
        forwarding: None,
        rp_filter: None,
        ignore_routes_with_linkdown: None,
    };
    for (kind, value) in attributes(payload.get(HEADER_BYTES..)?) {
        let Some(value) = parse_i32(value) else { continue };
        match kind {
            NETCONFA_IFINDEX => link = Some(value),
            NETCONFA_FORWARDING => netconf.forwarding = Some(value != 0),
            NETCONFA_RP_FILTER => netconf.rp_filter = Some(u8::try_from(value).unwrap_or(u8::MAX)),
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => {
                netconf.ignore_routes_with_linkdown = Some(value != 0);
            }
            _ => {}
        }
    }
    Some(Netconf { link: link?, ..netconf })
}

/// `struct netconfmsg`, padded to a multiple of 4.
const HEADER_BYTES: usize = 4;

const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
