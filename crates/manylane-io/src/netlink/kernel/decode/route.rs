//! Routes: the one table with up to a million entries, decoded in one pass.

use netlink_bindings::rt_route::Rtmsg;
use netlink_bindings::utils::{parse_u16, parse_u32};

use super::super::{Hop, Hops, Route};
use super::{Family, attributes};

/// Decodes a route. `None` for multicast routing, whose families are others.
pub(in super::super) fn route(payload: &[u8]) -> Option<Route> {
    let (header, bytes) = payload.split_at_checked(Rtmsg::len())?;
    let header = Rtmsg::new_from_slice(header)?;
    let family = Family::of_message(header.rtm_family)?;
    if header.rtm_dst_len.max(header.rtm_src_len) > family.bits() {
        return None;
    }
    let mut route = Route {
        table: header.rtm_table.into(),
        destination: family.unspecified(),
        prefix_len: header.rtm_dst_len,
        source: (header.rtm_src_len > 0).then_some((family.unspecified(), header.rtm_src_len)),
        tos: header.rtm_tos,
        priority: 0,
        kind: header.rtm_type,
        protocol: header.rtm_protocol,
        scope: header.rtm_scope,
        flags: header.rtm_flags,
        next_hop: None,
        hops: Hops::One(None),
        mtu: None,
        is_expiring: false,
    };
    let mut hop = empty_hop(header.rtm_flags as u8);
    let mut several = None;
    for (kind, value) in attributes(bytes) {
        match kind {
            libc::RTA_DST => route.destination = family.address(value)?,
            libc::RTA_SRC => {
                let address = family.address(value)?;
                route.source = route.source.map(|(_, prefix_len)| (address, prefix_len));
            }
            libc::RTA_TABLE => route.table = parse_u32(value)?,
            libc::RTA_PRIORITY => route.priority = parse_u32(value)?,
            libc::RTA_METRICS => route.mtu = mtu(value),
            libc::RTA_MULTIPATH => several = Some(multipath(family, value)),
            libc::RTA_CACHEINFO => route.is_expiring = expires(value),
            RTA_NH_ID => route.next_hop = Some(parse_u32(value)?),
            libc::RTA_OIF => hop.link = parse_u32(value)?,
            _ => read_hop(&mut hop, family, kind, value),
        }
    }
    route.hops = match several {
        _ if leads_nowhere(route.kind) => Hops::One(None), // IPv6 reports `lo`.
        Some(several) => match *several.as_slice() {
            [hop] => Hops::One(Some(hop)),
            _ => Hops::Many(several),
        },
        None if hop == empty_hop(hop.flags) => Hops::One(None),
        None => Hops::One(Some(hop)),
    };
    Some(route)
}

/// Reads an attribute that a route with one next hop has in common with each next hop of several.
fn read_hop(hop: &mut Hop, family: Family, kind: u16, value: &[u8]) {
    let gateway = match kind {
        libc::RTA_GATEWAY => family.address(value),
        libc::RTA_VIA => via(value),
        libc::RTA_ENCAP_TYPE => {
            hop.is_encapsulated |= parse_u16(value) != Some(LWTUNNEL_ENCAP_NONE);
            return;
        }
        _ => return,
    };
    match gateway {
        Some(gateway) => hop.gateway = Some(gateway),
        None => hop.is_encapsulated = true, // A gateway that we cannot read.
    }
}

/// `struct rtvia`: a gateway behind its family.
fn via(value: &[u8]) -> Option<std::net::IpAddr> {
    let (family, address) = value.split_first_chunk()?;
    Family::of_message(u8::try_from(u16::from_ne_bytes(*family)).ok()?)?.address(address)
}

/// Each `struct rtnexthop` with its attributes. A truncated one becomes an encapsulated next hop.
fn multipath(family: Family, mut bytes: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some((&[low, high, flags, weight, a, b, c, d], _)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let mut hop = Hop {
            link: u32::from_ne_bytes([a, b, c, d]),
            weight: u16::from(weight) + 1,
            ..empty_hop(flags)
        };
        let Some(inside) = bytes.get(RTNEXTHOP_BYTES..length) else {
            hops.push(Hop { is_encapsulated: true, ..hop });
            break;
        };
        for (kind, value) in attributes(inside) {
            read_hop(&mut hop, family, kind, value);
        }
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn mtu(metrics: &[u8]) -> Option<u32> {
    let (_, value) = attributes(metrics).find(|&(kind, _)| kind == RTAX_MTU)?;
    parse_u32(value).filter(|&mtu| mtu != 0)
}

/// Whether the route expires, by `struct rta_cacheinfo`: the third word is the signed time left; 0 is for ever.
fn expires(cacheinfo: &[u8]) -> bool {
    cacheinfo.get(8..12).is_some_and(|left| left != [0; 4])
}

fn empty_hop(flags: u8) -> Hop {
    Hop { link: 0, gateway: None, weight: 1, flags, is_encapsulated: false }
}

fn leads_nowhere(kind: u8) -> bool {
    [libc::RTN_BLACKHOLE, libc::RTN_UNREACHABLE, libc::RTN_PROHIBIT, libc::RTN_THROW]
        .contains(&kind)
}

/// linux/rtnetlink.h.
const RTA_NH_ID: u16 = 30;
/// linux/rtnetlink.h.
pub(in super::super) const RTAX_MTU: u16 = 2;
/// `struct rtnexthop`.
pub(in super::super) const RTNEXTHOP_BYTES: usize = 8;
/// linux/lwtunnel.h.
const LWTUNNEL_ENCAP_NONE: u16 = 0;
