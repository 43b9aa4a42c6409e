//! An accelerator in a process of its own: to be killed, and to be stopped while its program forwards on.

use std::env;
use std::path::Path;

use manylane_accelerate::accelerator::{Accelerator, Options};
use manylane_lab::Host;
use manylane_lab::accelerated::Accelerated;
use manylane_lab::tools::mortal;

use crate::network::PORTS;
use crate::prelude::*;

/// Starts it in a router's namespace, with a lease of `lease_ms`, and waits until it forwards.
pub fn start(router: &Host, lease_ms: u64) -> Result<Accelerated> {
    let mut command = mortal(env::current_exe()?);
    command.args(["veth", "--lease", &lease_ms.to_string()]);
    let mut started = Accelerated::spawn_command(router, command, "--serve");
    started.wait_until_it_forwards();
    Ok(started)
}

/// The child's part, until it is killed.
pub fn serve(socket: &Path, lease_ms: u64) -> Result {
    let lease = Duration::from_millis(lease_ms);
    let stale_limit = Duration::from_secs(2).max(lease);
    let socket = Some(socket.to_owned());
    let options = Options { lease, stale_limit, socket, ..Options::new(PORTS) };
    let accelerator = Accelerator::start(options)?;
    while accelerator.is_alive() {
        thread::park();
    }
    Ok(())
}
