use manylane_net::wire::ethernet::ether_type;

use super::*;

/// A device's MTU is not known before it is opened: what tags leave of it may be less than IPv6 needs.
#[test]
fn a_sub_interface_with_too_small_an_mtu_is_refused() {
    let facts = |mtu| PortFacts {
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu,
        offload: Offload::NONE,
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        link_local: Ipv6Addr::UNSPECIFIED,
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    };
    let tags =
        Tags::NONE.and(ether_type::SERVICE_VLAN, 7).and_then(|tags| tags.and(ether_type::VLAN, 8));
    let vlan = |address: &str, length, mtu| Vlan {
        name: "eth0.7.8".into(),
        tags: tags.expect("there is room for two"),
        addresses: vec![InterfaceAddress { address: address.parse().expect("one"), length }],
        mtu,
    };
    let [four, six] = [("10.3.0.1", 24), ("2001:db8:3::1", 64)];
    for (device_mtu, (address, length), mtu, needs) in [
        (1288, six, None, None),
        (1287, six, None, Some(1288)),
        (1280, six, Some(1280), None),
        (76, four, None, None),
        (75, four, None, Some(76)),
        (4, four, None, Some(76)),
    ] {
        let found = vlan_facts(PortId(0), &facts(device_mtu), &vlan(address, length, mtu));
        match (found, needs) {
            (Ok(_), None) => {}
            (Err(PortError::MtuTooSmall { port, device_mtu, .. }), Some(needs)) => {
                assert_eq!((port.as_str(), device_mtu), ("eth0.7.8", needs));
            }
            (found, _) => panic!("{device_mtu} {address}: {:?}", found.map(|facts| facts.mtu)),
        }
    }
    // The same for a port.
    let addresses = vlan(six.0, six.1, None).addresses;
    let refused = check_mtu("eth0", 1279, 0, &addresses).expect_err("it is too small").to_string();
    assert!(refused.contains("`ip link set dev ... mtu 1280`"), "{refused}");
    assert!(refused.ends_with("remove the IPv6 addresses"), "{refused}");
}
