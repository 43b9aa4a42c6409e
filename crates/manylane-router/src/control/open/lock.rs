//! One process forwards by an interface: locks on the interfaces of ports, before the first port is opened.

use manylane_io::interface::Interface;
use manylane_io::interface_lock::{InterfaceLock, InterfaceLocks};

use super::PortError;
use crate::config::{Config, Driver, Port};

/// For each port the lock on its interface. A TAP needs none, since the kernel gives it to one process only; captures and
/// memory have no interface.
pub fn lock(config: &Config) -> Result<Vec<Option<InterfaceLock>>, PortError> {
    let refused = |port: &Port| {
        let port = port.name.clone();
        move |source| PortError::Lock { port, source }
    };
    let mut locks = None;
    let of_port = |port: &Port| {
        let Some(name) = device(port) else { return Ok(None) };
        let interface = Interface::read(name)
            .map_err(|source| PortError::Interface { port: port.name.clone(), source })?;
        let locks = match &mut locks {
            Some(locks) => locks,
            none => none.insert(
                InterfaceLocks::open("manylane run", config.socket.parent())
                    .map_err(refused(port))?,
            ),
        };
        locks.take(name, interface.index).map(Some).map_err(refused(port))
    };
    config.ports.iter().map(of_port).collect()
}

fn device(port: &Port) -> Option<&str> {
    match &port.driver {
        Driver::Tap(_) => None,
        driver => driver.interface(),
    }
}
