//! What a configuration does to this machine that its author may not expect: sentences for the operator, no errors.

use std::net::IpAddr;

use manylane_io::interface::Interface;
use manylane_io::interface_lock::InterfaceLockError;
use manylane_io::netlink::Netlink;
use manylane_io::netlink::kernel::Address;

use super::{PortError, lock};
use crate::config::{Config, Driver, Port};

/// A sentence for each address that the kernel has on a port's interface and the configuration does not give to the port:
/// the port takes the interface's packets, so the kernel no longer answers for the address. Empty where the kernel's
/// addresses cannot be read.
pub fn silenced_addresses(config: &Config) -> Vec<String> {
    let addresses = Netlink::open().and_then(|mut netlink| netlink.dump_addresses());
    let addresses = addresses.unwrap_or_default();
    let of_port = |port: &Port| {
        // The kernel keeps a TAP for itself: its addresses are the kernel's far end.
        let (Driver::AfXdp(_) | Driver::AfPacket(_) | Driver::Auto(_)) = &port.driver else {
            return Vec::new();
        };
        let Some(name) = port.driver.interface() else { return Vec::new() };
        let Ok(interface) = Interface::read(name) else { return Vec::new() };
        let of_kernel = addresses.iter().filter(|one| one.link == interface.index);
        let silenced = of_kernel.filter(|one| {
            let is_link_local = matches!(one.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            !is_link_local && port.addresses.iter().all(|ours| ours.address != one.address)
        });
        let notice = |address: &Address| {
            let (address, len) = (address.address, address.prefix_len);
            format!(
                "interface {name} has the address {address}/{len} in the kernel, and port `{}` has not: this machine \
                 does not answer at {address} while the daemon runs; add it to the port's `addresses`, or keep another \
                 way to reach this machine",
                port.name,
            )
        };
        silenced.map(notice).collect()
    };
    config.ports.iter().flat_map(of_port).collect()
}

/// A sentence if another process forwards by an interface of the configuration's ports: a start would be refused now. Locks
/// the interfaces for as long as it looks.
pub fn taken_interface(config: &Config) -> Option<String> {
    match lock(config) {
        Err(PortError::Lock { source: InterfaceLockError::Taken { interface, owner }, .. }) => {
            let why = format!("{owner} forwards by interface {interface}");
            Some(format!("{why}: until that one is stopped, no daemon starts with this file"))
        }
        _ => None,
    }
}
