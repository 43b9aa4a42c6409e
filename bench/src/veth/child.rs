//! An accelerator in a process of its own: to be killed, and to be stopped while its program goes on.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{self, Child, Stdio};
use std::time::Duration;

use manylane::accelerate::{Accelerator, Options};
use manylane::api::Client;
use manylane::lab::Host;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::bed::PORTS;
use crate::tcp::{Stop, mortal};

/// A child that accelerates. Killed when dropped.
pub struct Served {
    child: Child,
    socket: PathBuf,
}

impl Served {
    /// Starts it in a router's namespace, with a lease of so many milliseconds, and waits until it forwards.
    pub fn start(router: &Host, lease_ms: u64) -> Result<Served, Stop> {
        let program = env::current_exe()?;
        let socket = env::temp_dir().join(format!("manylane-bench-{}.sock", process::id()));
        let mut command = mortal(&program.to_string_lossy());
        command.args(["veth", "--serve"]).arg(&socket).args(["--lease", &lease_ms.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = router.run(move || command.spawn())?;
        let stdout = child.stdout.take().expect("it is a pipe");
        let served = Served { child, socket };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim() {
            FORWARDS => Ok(served),
            _ => Err(Stop::Failed("the accelerator in a child did not start".into())),
        }
    }

    /// Asks its API.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Stop> {
        let client = Client::new(&self.socket).with_patience(PATIENCE);
        client.ask(path).map_err(Stop::failed)
    }

    /// Sends it a signal.
    pub fn signal(&self, number: Signal) -> Result<(), Stop> {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid is an i32"));
        kill(pid, number).map_err(Stop::failed)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// What the child does, until it is killed.
pub fn serve(socket: PathBuf, lease_ms: u64) -> io::Result<()> {
    let lease = Duration::from_millis(lease_ms);
    let stale_limit = Duration::from_secs(2).max(lease);
    let options = Options { lease, stale_limit, socket: Some(socket), ..Options::new(PORTS) };
    let accelerator = Accelerator::start(options).map_err(io::Error::other)?;
    println!("{FORWARDS}");
    while accelerator.is_alive() {
        std::thread::park();
    }
    Ok(())
}

const FORWARDS: &str = "forwards";
/// A million routes may have to be read first.
const PATIENCE: Duration = Duration::from_secs(120);
