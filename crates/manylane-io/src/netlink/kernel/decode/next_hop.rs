//! Next-hop objects (linux/nexthop.h).

use netlink_bindings::utils::{parse_u16, parse_u32};

use super::super::{Hop, NextHop, NextHopKind};
use super::{Family, attributes};

/// Decodes a next-hop object: one next hop, a group, or a blackhole.
pub(in super::super) fn next_hop(payload: &[u8]) -> Option<NextHop> {
    let (&[family, _scope, protocol, _, flags, ..], bytes) =
        payload.split_first_chunk::<HEADER_BYTES>()?;
    let family = Family::of_message(family);
    let mut id = None;
    let mut hop = Hop { link: 0, gateway: None, weight: 1, flags, is_encapsulated: false };
    let (mut members, mut is_resilient, mut is_blackhole, mut is_fdb) = (None, false, false, false);
    for (kind, value) in attributes(bytes) {
        match kind {
            NHA_ID => id = parse_u32(value),
            NHA_GROUP => members = Some(group(value)),
            NHA_GROUP_TYPE => is_resilient = parse_u16(value)? == NEXTHOP_GRP_TYPE_RES,
            NHA_BLACKHOLE => is_blackhole = true,
            NHA_OIF => hop.link = parse_u32(value)?,
            NHA_GATEWAY => match family.and_then(|family| family.address(value)) {
                Some(gateway) => hop.gateway = Some(gateway),
                None => hop.is_encapsulated = true,
            },
            NHA_ENCAP_TYPE => hop.is_encapsulated |= parse_u16(value) != Some(0),
            NHA_FDB => is_fdb = true,
            _ => {}
        }
    }
    let kind = match members {
        _ if is_fdb => NextHopKind::Fdb,
        Some(members) => NextHopKind::Group { members, is_resilient },
        None if is_blackhole => NextHopKind::Blackhole,
        None => NextHopKind::Via(hop),
    };
    Some(NextHop { id: id?, family, protocol, kind })
}

/// The number of a removed object.
pub(super) fn gone(payload: &[u8]) -> Option<u32> {
    let (_, value) = attributes(payload.get(HEADER_BYTES..)?).find(|&(kind, _)| kind == NHA_ID)?;
    parse_u32(value)
}

/// `struct nexthop_grp`: the weight is one more than its field; the field's high byte exists since Linux 6.12.
fn group(value: &[u8]) -> Vec<(u32, u16)> {
    let members = value.as_chunks::<8>().0.iter();
    members
        .map(|&[a, b, c, d, low, high, _, _]| {
            let weight = u16::from_le_bytes([low, high]).saturating_add(1);
            (u32::from_ne_bytes([a, b, c, d]), weight)
        })
        .collect()
}

/// `struct nhmsg`.
const HEADER_BYTES: usize = 8;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_FDB: u16 = 11;

const NEXTHOP_GRP_TYPE_RES: u16 = 1;
