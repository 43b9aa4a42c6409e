//! What the workers know of ports and sub-interfaces: addresses, and MTUs that suffice for them.

use std::net::{IpAddr, Ipv6Addr};

use manylane_frame::vocabulary::PortId;
use manylane_net::forward::{Ipv4Interface, PortFacts};
use manylane_net::wire::ethernet::Mac;

use super::{OpenPort, PortError};
use crate::config::{InterfaceAddress, Port, Vlan, mtu_least};
use crate::control::routing::RoutedPort;

/// Enters our addresses on an interface, and what comes with them.
pub(super) fn add_addresses(facts: &mut PortFacts, addresses: &[InterfaceAddress]) {
    for own in addresses {
        match own.address {
            IpAddr::V4(addr) => facts.ipv4.push(Ipv4Interface { addr, len: own.length }),
            IpAddr::V6(addr) if addr.is_unicast_link_local() => facts.link_local = Some(addr),
            IpAddr::V6(addr) => {
                facts.ipv6.push(addr);
                let anycast = own.prefix().anycast().filter(|one| !facts.anycast.contains(one));
                facts.anycast.extend(anycast);
            }
        }
    }
    // An interface with IPv6, and without a configured link-local address, has that of its MAC address.
    if !facts.ipv6.is_empty() {
        facts.link_local.get_or_insert(link_local(facts.mac));
    }
}

/// What the workers know of all ports and then of all sub-interfaces, in the order of
/// [`config::interfaces`](crate::config::interfaces), and their addresses.
pub fn routed(ports: &[OpenPort]) -> Result<Vec<RoutedPort>, PortError> {
    let own = |port: &OpenPort| RoutedPort {
        facts: port.facts.clone(),
        addresses: port.config.addresses.clone(),
    };
    let mut routed: Vec<RoutedPort> = ports.iter().map(own).collect();
    for port in ports {
        check_mtus(&port.config, port.facts.mtu)?;
    }
    for (number, port) in ports.iter().enumerate() {
        for vlan in &port.config.vlans {
            let id = PortId(routed.len() as u16);
            let facts = vlan_facts(PortId(number as u16), &port.facts, vlan)?;
            routed.push(RoutedPort { facts, addresses: vlan.addresses.clone() });
            routed[number].facts.vlans.push((vlan.tags, id));
        }
        routed[number].facts.vlans.sort_unstable();
    }
    Ok(routed)
}

/// Whether a port's MTU suffices for its addresses and for its sub-interfaces.
pub(super) fn check_mtus(port: &Port, mtu: u32) -> Result<(), PortError> {
    check_mtu(&port.name, mtu, 0, &port.addresses)?;
    port.vlans.iter().try_for_each(|vlan| vlan_mtu(mtu, vlan).map(|_| ()))
}

/// The MTU of a sub-interface of a port whose own is `port_mtu`.
fn vlan_mtu(port_mtu: u32, vlan: &Vlan) -> Result<u32, PortError> {
    let least = port_mtu.saturating_sub(vlan.tags.beyond_mtu().into());
    let mtu = vlan.mtu.map_or(least, u32::from);
    if mtu > port_mtu {
        return Err(PortError::Mtu { port: vlan.name.clone(), mtu, device_mtu: port_mtu });
    }
    check_mtu(&vlan.name, mtu, vlan.tags.beyond_mtu().into(), &vlan.addresses)?;
    Ok(mtu)
}

/// What is known of a sub-interface of `port`, whose own `facts` are known.
fn vlan_facts(port: PortId, facts: &PortFacts, vlan: &Vlan) -> Result<PortFacts, PortError> {
    let mut facts = PortFacts {
        mtu: vlan_mtu(facts.mtu, vlan)?,
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        link_local: None,
        vlan: Some(manylane_net::forward::Vlan { port, tags: vlan.tags }),
        vlans: Vec::new(),
        anycast: Vec::new(),
        ..facts.clone()
    };
    add_addresses(&mut facts, &vlan.addresses);
    Ok(facts)
}

/// Whether the addresses can be used with this MTU, which is `less` than the device's.
fn check_mtu(
    name: &str,
    mtu: u32,
    less: u32,
    addresses: &[InterfaceAddress],
) -> Result<(), PortError> {
    let least = mtu_least(addresses);
    if mtu >= least.into() {
        return Ok(());
    }
    let device_mtu = u32::from(least) + less;
    Err(PortError::MtuTooSmall { port: name.into(), mtu, least, device_mtu })
}

/// The link-local address that goes with a MAC address (RFC 4291 §2.5.6 and appendix A).
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let eui64 = [a ^ 0x02, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(u64::from_be_bytes(eui64)))
}

#[cfg(test)]
mod tests {
    use manylane_frame::vocabulary::Offload;
    use manylane_net::neighbour::Key;
    use manylane_net::wire::ethernet::{Tags, ether_type};

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
            link_local: None,
            vlan: None,
            vlans: Vec::new(),
            anycast: Vec::new(),
        };
        let tags = Tags::NONE
            .and(ether_type::SERVICE_VLAN, 7)
            .and_then(|tags| tags.and(ether_type::VLAN, 8));
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
        // As above, for a port.
        let addresses = vlan(six.0, six.1, None).addresses;
        let refused =
            check_mtu("eth0", 1279, 0, &addresses).expect_err("it is too small").to_string();
        assert!(refused.contains("`ip link set dev ... mtu 1280`"), "{refused}");
        assert!(refused.ends_with("remove the IPv6 addresses"), "{refused}");
    }

    /// A link-local address is ours where IPv6 is configured, and nowhere else: not on a port that has only
    /// IPv4, nor on one that only carries tagged frames. What is ours is probed.
    #[test]
    fn a_port_without_ipv6_has_no_link_local_address() {
        let mac = Mac([2, 0, 0, 0, 0, 7]);
        let from_mac: IpAddr = "fe80::ff:fe00:7".parse().unwrap();
        let own = |text: &str, length| InterfaceAddress { address: text.parse().unwrap(), length };
        let (v4, global) = (own("10.0.0.1", 24), own("2001:db8::1", 64));
        let chosen = own("fe80::77", 64);
        for (addresses, expected) in [
            (vec![], None),
            (vec![v4], None),
            (vec![v4, global], Some(from_mac)),
            (vec![global, chosen], Some(chosen.address)),
            (vec![chosen, global], Some(chosen.address)),
            (vec![chosen], Some(chosen.address)),
        ] {
            let mut facts = PortFacts {
                mac,
                mtu: 1500,
                offload: Offload::NONE,
                ipv4: Vec::new(),
                ipv6: Vec::new(),
                link_local: None,
                vlan: None,
                vlans: Vec::new(),
                anycast: Vec::new(),
            };
            add_addresses(&mut facts, &addresses);
            assert_eq!(facts.link_local.map(IpAddr::V6), expected, "{addresses:?}");
            assert_eq!(facts.owns(from_mac), expected == Some(from_mac), "{addresses:?}");
            let port = RoutedPort { facts, addresses };
            let probed: Vec<Key> = port.own_keys(PortId(0)).collect();
            let is_link_local = |key: &&Key| key.addr.to_string().starts_with("fe80:");
            assert_eq!(probed.iter().find(is_link_local).map(|key| key.addr), expected);
        }
    }
}
