//! What can be held against this machine without opening a port: MTUs, frames, queues of a TAP, and files.

use manylane_io::interface::Interface;
use manylane_io::port::af_packet::{AfPacket, AfPacketConfig};
use manylane_io::port::af_xdp::AfXdp;
use manylane_io::port::pcap::{self, Writer};
use manylane_io::port::tap::{Tap, TapConfig};

use super::interfaces::check_mtus;
use super::{PortError, mtu};
use crate::config::{Config, Driver, MEMORY_MTU, Port};

/// Whether each port's device takes packets as large as the configuration says, and packets of the device lie in frames.
pub fn check_devices(config: &Config) -> Result<(), PortError> {
    config.ports.iter().try_for_each(|port| {
        let mtu = match device_mtu(port, config.frames.size)? {
            Some(device_mtu) => mtu(port, device_mtu)?,
            None => port.mtu.unwrap_or(MEMORY_MTU).into(),
        };
        check_mtus(port, mtu)
    })
}

/// Whether captures can be read, and files for captures and copies be made. All of it stays as it is.
pub fn check_files(config: &Config) -> Result<(), PortError> {
    config.ports.iter().try_for_each(|port| {
        let name = || port.name.clone();
        if let Driver::Pcap(driver) = &port.driver {
            pcap::Opened::check(&driver.files)
                .map_err(|source| PortError::Pcap { port: name(), source })?;
        }
        let checked = port.tee.as_ref().map_or(Ok(()), |tee| Writer::check(&tee.write));
        checked.map_err(|source| PortError::Tee { port: name(), source })
    })
}

/// The MTU of a port's device, if it has one.
fn device_mtu(port: &Port, frame_size: u32) -> Result<Option<u32>, PortError> {
    let name = || port.name.clone();
    let mtu = match &port.driver {
        Driver::AfXdp(driver) => {
            let interface = Interface::read(&driver.interface)
                .map_err(|source| PortError::Interface { port: name(), source })?;
            AfXdp::check(&interface, frame_size, driver.multi_buffer)
                .map_err(|source| PortError::AfXdp { port: name(), source })?;
            interface.mtu
        }
        Driver::AfPacket(driver) => {
            AfPacket::check(&driver.interface, AfPacketConfig::default())
                .map_err(|source| PortError::AfPacket { port: name(), source })?
        }
        Driver::Tap(driver) => {
            let config = TapConfig { mac: driver.mac, ..TapConfig::default() };
            Tap::check(&driver.interface, config)
                .map_err(|source| PortError::Tap { port: name(), source })?
        }
        Driver::Auto(_) => unreachable!("`choose` has left none"),
        Driver::Pcap(_) | Driver::Memory(_) => return Ok(None),
    };
    Ok(Some(mtu))
}
