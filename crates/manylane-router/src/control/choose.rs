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
            let listed = port.queue_owners.as_ref().map(|owners| owners.len() as u16);
            let (driver, why) = best(&read(&auto.interface, &port.name)?, auto, listed);
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

/// `listed` is how many queues the configuration has owners for, if it says: all drivers but `af_xdp`, where
/// the device says, have as many.
fn best(interface: &Interface, auto: &AutoPort, listed: Option<u16>) -> (Driver, &'static str) {
    let AutoPort { interface: name, queues, multi_buffer } = auto.clone();
    let queues = listed.unwrap_or(queues);
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
            Driver::Tap(TapPort { interface: name, queues: listed.unwrap_or(1), mac: None }),
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
        let chosen = |driver: &str, is_running, listed| {
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
                takes_tags_off: true,
            };
            let auto = AutoPort { interface: "x0".into(), queues: 3, multi_buffer: true };
            let (driver, why) = best(&interface, &auto, listed);
            assert_eq!(driver.interface(), Some("x0"));
            assert!(!why.is_empty());
            (driver.name(), driver.queues())
        };
        assert_eq!(chosen("veth", true, None), ("af_packet", Some(3)));
        assert_eq!(chosen("veth", false, Some(2)), ("af_packet", Some(2)));
        assert_eq!(chosen("tun", true, None), ("af_packet", Some(3)));
        assert_eq!(chosen("tun", false, None), ("tap", Some(1)));
        assert_eq!(chosen("tun", false, Some(2)), ("tap", Some(2)));
        assert_eq!(chosen("ixgbe", true, Some(2)), ("af_xdp", None));
        assert_eq!(chosen("", true, None), ("af_xdp", None));
    }
}
