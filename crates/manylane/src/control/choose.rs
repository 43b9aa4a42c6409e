//! `driver = "auto"`: which driver serves an interface best.
//!
//! | interface                     | driver      | why                                                     |
//! |-------------------------------|-------------|---------------------------------------------------------|
//! | veth                          | `af_packet` | segments of 64 KiB and open checksums stay as they are; XDP takes neither |
//! | TAP that a program is on      | `af_packet` | alike; that program is the far end                      |
//! | TAP that no program is on     | `tap`       | alike; then we are that program, and the host the far end |
//! | any other                     | `af_xdp`    | frames straight from and to the device, without a copy if it can |

use manylane_io::interface::Interface;

use super::open::PortError;
use crate::config::{AfPacketPort, AfXdpPort, AttachMode, AutoPort, Config, Driver, TapPort};

/// The configuration with a driver for each port, by what its interface is, and with the device's MTU for
/// each port through AF_XDP that has none: what frames it needs depends on it.
pub fn choose(config: &Config) -> Result<Config, PortError> {
    let mut config = config.clone();
    for port in &mut config.ports {
        if let Driver::Auto(auto) = &port.driver {
            let (driver, why) = best(&read(&auto.interface, &port.name)?, auto);
            (port.driver, port.chosen) = (driver, Some(why));
        }
        if let (Driver::AfXdp(af_xdp), None) = (&port.driver, port.mtu) {
            let interface = read(&af_xdp.interface, &port.name)?;
            port.mtu = Some(interface.mtu.min(u16::MAX.into()) as u16);
        }
    }
    Ok(config)
}

fn read(interface: &str, port: &str) -> Result<Interface, PortError> {
    let read = Interface::read(interface);
    read.map_err(|source| PortError::Interface { port: port.into(), source })
}

fn best(interface: &Interface, auto: &AutoPort) -> (Driver, &'static str) {
    let AutoPort { interface: name, queues, multi_buffer } = auto.clone();
    match interface.driver.as_str() {
        "veth" => (
            Driver::AfPacket(AfPacketPort::new(name, queues)),
            "a veth, whose segments and checksums stay as they are",
        ),
        // A TAP has a carrier exactly while a program has one of its queues (`tun_attach`).
        "tun" if interface.is_running => (
            Driver::AfPacket(AfPacketPort::new(name, queues)),
            "a TAP that a program is on, whose segments and checksums stay as they are",
        ),
        "tun" => (
            Driver::Tap(TapPort { interface: name, queues: 1, mac: None }),
            "a TAP that no program is on, whose segments and checksums stay as they are",
        ),
        _ => (
            Driver::AfXdp(AfXdpPort { interface: name, mode: AttachMode::Auto, multi_buffer }),
            "neither a veth nor a TAP",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_interface_gets_its_driver() {
        let chosen = |driver: &str, is_running| {
            let interface = Interface {
                index: 2,
                name: "x0".into(),
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
                is_up: true,
                is_running,
                driver: driver.into(),
                receive_queues: 4,
                transmit_queues: 4,
            };
            let auto = AutoPort { interface: "x0".into(), queues: 3, multi_buffer: true };
            let (driver, why) = best(&interface, &auto);
            assert_eq!(driver.interface(), Some("x0"));
            assert!(!why.is_empty());
            (driver.name(), driver.queues())
        };
        assert_eq!(chosen("veth", true), ("af_packet", Some(3)));
        assert_eq!(chosen("veth", false), ("af_packet", Some(3)));
        assert_eq!(chosen("tun", true), ("af_packet", Some(3)));
        assert_eq!(chosen("tun", false), ("tap", Some(1)));
        assert_eq!(chosen("ixgbe", true), ("af_xdp", None));
        assert_eq!(chosen("", true), ("af_xdp", None));
    }
}
