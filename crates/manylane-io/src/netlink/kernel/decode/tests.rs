//! Messages that no kernel sends, and messages that one could.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::kernel::{Hop, Hops, NextHopKind};

/// Each kind of message that [`event`] reads, and the length of its header.
const KINDS: [(u16, usize); 13] = [
    (libc::RTM_NEWLINK, 16),
    (libc::RTM_DELLINK, 16),
    (libc::RTM_NEWADDR, 8),
    (libc::RTM_DELADDR, 8),
    (libc::RTM_NEWROUTE, 12),
    (libc::RTM_DELROUTE, 12),
    (RTM_NEWNEXTHOP, 8),
    (RTM_DELNEXTHOP, 8),
    (libc::RTM_NEWRULE, 12),
    (libc::RTM_DELRULE, 12),
    (libc::RTM_NEWNEIGH, 12),
    (libc::RTM_DELNEIGH, 12),
    (libc::RTM_NEWNETCONF, 4),
];

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Nested attributes, some of them with a wrong length.
fn attributes_of_any_kind() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        vec(any::<u8>(), 0..40),
        vec(any::<u8>(), 4),
        vec(any::<u8>(), 16),
        Just(b"vlan\0".to_vec()),
    ];
    leaf.prop_recursive(4, 64, 12, |inner| {
        let one = (0..70u16, any::<bool>(), inner, prop::option::weighted(0.05, any::<u16>()));
        vec(one, 0..12).prop_map(|attributes| {
            let mut bytes = Vec::new();
            for (kind, is_nested, value, lie) in attributes {
                let start = bytes.len();
                bytes.extend(attribute(kind | u16::from(is_nested) << 15, &value));
                if let Some(length) = lie {
                    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
                }
            }
            bytes
        })
    })
}

proptest! {
    #[test]
    fn random_bytes_are_not_a_message_that_harms(
        kind in 0..KINDS.len(),
        payload in vec(any::<u8>(), 0..200),
    ) {
        let _ = event(KINDS[kind].0, 0, &payload);
    }

    #[test]
    fn random_attributes_do_no_harm(
        kind in 0..KINDS.len(),
        family in prop_oneof![Just(0u8), Just(2), Just(10), any::<u8>()],
        header in vec(any::<u8>(), 16),
        attributes in attributes_of_any_kind(),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let (kind, length) = KINDS[kind];
        let mut payload = vec![family];
        payload.extend(&header[1..length]);
        payload.extend(attributes);
        if is_cut {
            payload.truncate(cut.index(payload.len()));
        }
        if let Some(Event::Route { route, .. } | Event::RouteGone(route)) = event(kind, 0, &payload) {
            let bits = if route.destination.is_ipv4() { 32 } else { 128 };
            prop_assert!(route.prefix_len <= bits);
            prop_assert!(!matches!(&route.hops, Hops::Many(hops) if hops.len() == 1));
        }
    }
}

/// `struct rtmsg` of a unicast route of the main table.
fn route_message(family: libc::c_int, prefix_len: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut payload =
        vec![family as u8, prefix_len, 0, 0, libc::RT_TABLE_MAIN, 3, 0, libc::RTN_UNICAST];
    payload.extend(0u32.to_ne_bytes());
    payload.extend(attributes.concat());
    payload
}

#[test]
fn a_gateway_of_an_unknown_family_counts_as_encapsulated() {
    let via = [&0x1cu16.to_ne_bytes()[..], &[1, 2, 3, 4]].concat();
    let attributes = [
        attribute(libc::RTA_DST, &[10, 0, 0, 0]),
        attribute(libc::RTA_OIF, &7u32.to_ne_bytes()),
        attribute(libc::RTA_VIA, &via),
    ];
    let route = route(&route_message(libc::AF_INET, 8, &attributes)).expect("an IPv4 route");
    let hop = Hop { link: 7, gateway: None, weight: 1, flags: 0, is_encapsulated: true };
    assert_eq!(route.hops.as_slice(), [hop]);
}

#[test]
fn a_truncated_next_hop_counts_as_encapsulated() {
    let whole = [&8u16.to_ne_bytes()[..], &[0, 4], &3u32.to_ne_bytes()].concat();
    let cut = [&99u16.to_ne_bytes()[..], &[0, 0], &4u32.to_ne_bytes()].concat();
    let attributes = [attribute(libc::RTA_MULTIPATH, &[whole, cut].concat())];
    let route = route(&route_message(libc::AF_INET6, 0, &attributes)).expect("a default route");
    let [first, second] = route.hops.as_slice() else { panic!("two next hops: {route:?}") };
    assert_eq!((first.link, first.weight, first.is_encapsulated), (3, 5, false));
    assert_eq!((second.link, second.is_encapsulated), (4, true));
}

#[test]
fn a_bridges_port_messages_are_not_links() {
    let mut payload = vec![0; 16];
    payload[0] = libc::AF_BRIDGE as u8;
    payload[4] = 5;
    assert_eq!(event(libc::RTM_DELLINK, 0, &payload), None, "it left a bridge, and lives");
    payload[0] = libc::AF_UNSPEC as u8;
    assert_eq!(event(libc::RTM_DELLINK, 0, &payload), Some(Event::LinkGone(5)));
}

#[test]
fn the_weights_of_a_group_have_two_bytes() {
    let member = [&9u32.to_ne_bytes()[..], &[0x2b, 0x01, 0, 0]].concat();
    let mut payload = vec![0, 0, libc::RTPROT_STATIC, 0, 0, 0, 0, 0];
    payload.extend(attribute(1, &5u32.to_ne_bytes()));
    payload.extend(attribute(2, &member));
    let object = next_hop(&payload).expect("a group");
    assert_eq!(object.kind, NextHopKind::Group { members: vec![(9, 300)], is_resilient: false });
}

#[test]
fn a_selector_of_a_later_kernel_shows_in_the_rule() {
    let mut payload = vec![libc::AF_INET as u8, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
    payload.extend(attribute(14, &u32::MAX.to_ne_bytes()));
    payload.extend(attribute(99, &[1]));
    assert_eq!(rule(&payload).expect("a rule").others, ["an unknown selector"]);
}
