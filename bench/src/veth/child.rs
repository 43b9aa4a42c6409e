//! An accelerator in a process of its own: to be killed, and to be stopped while its program forwards on.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use manylane_accelerate::accelerator::{Accelerator, Options};
use manylane_api::Client;
use manylane_lab::Host;
use manylane_lab::load::Process;
use manylane_lab::tools::mortal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use crate::network::PORTS;
use crate::prelude::*;

/// A child that accelerates. Killed when dropped.
pub struct Served {
    process: Process,
    socket: PathBuf,
}

impl Served {
    /// Starts it in a router's namespace, with a lease of `lease_ms`, and waits until it forwards.
    pub fn start(router: &Host, lease_ms: u64) -> Result<Served> {
        let socket = env::temp_dir().join(format!("manylane-bench-{}.sock", process::id()));
        let mut command = mortal(env::current_exe()?);
        command.args(["veth", "--serve"]).arg(&socket).args(["--lease", &lease_ms.to_string()]);
        let (process, mut lines) = Process::start(router, command)?;
        let served = Served { process, socket };
        match lines.next().as_deref() {
            Some(FORWARDS) => Ok(served),
            _ => Err("the accelerator in a child did not start".into()),
        }
    }

    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        Ok(Client::new(&self.socket).with_patience(PATIENCE).ask(path)?)
    }

    pub fn signal(&self, signal: Signal) -> Result {
        let pid = Pid::from_raw(self.process.0.id().try_into().expect("a pid is an i32"));
        Ok(kill(pid, signal)?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket); // The child may have removed it.
    }
}

/// The child's part, until it is killed.
pub fn serve(socket: &Path, lease_ms: u64) -> Result {
    let lease = Duration::from_millis(lease_ms);
    let stale_limit = Duration::from_secs(2).max(lease);
    let socket = Some(socket.to_owned());
    let options = Options { lease, stale_limit, socket, ..Options::new(PORTS) };
    let accelerator = Accelerator::start(options)?;
    println!("{FORWARDS}");
    while accelerator.is_alive() {
        thread::park();
    }
    Ok(())
}

const FORWARDS: &str = "forwards";
/// The child may have to read a million routes first.
const PATIENCE: Duration = Duration::from_secs(120);
