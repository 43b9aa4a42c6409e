//! [`Accelerator`]: this program as `manylane accelerate`, in the router's namespace.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Child, Stdio};
use std::time::Duration;

use manylane_api::accelerate::{AcceleratedLedger, AcceleratedPort, AcceleratorStatus};
use manylane_api::{Client, Setting};
use manylane_lab::Host;
use manylane_lab::crossing::{HOST_PORTS, TRANSIT_PORTS};
use manylane_lab::tools::mortal;

/// A process that accelerates the router. Dropped, it is killed by SIGKILL: that is the demo.
pub(super) struct Accelerator {
    child: Child,
    client: Client,
    socket: PathBuf,
}

impl Accelerator {
    /// Starts it; it does not forward yet.
    pub(super) fn start(router: &Host) -> Result<Accelerator, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let socket = env::temp_dir().join(format!("manylane-demo-{}.sock", process::id()));
        let mut command = mortal(program);
        command.arg("accelerate").args(HOST_PORTS).args(TRANSIT_PORTS).arg("--socket").arg(&socket);
        // Ctrl-C is for us: `drop` ends it.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = router.run(move || command.spawn());
        let child = child.map_err(|error| format!("cannot start `setpriv`: {error}"))?;
        Ok(Accelerator { child, client: Client::new(&socket).with_patience(PATIENCE), socket })
    }

    /// Whether it forwards by now.
    pub(super) fn forwards(&mut self) -> Result<bool, String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                let _ = stderr.read_to_string(&mut said); // Without it, the status has to do.
            }
            return Err(format!("`manylane accelerate` ended ({status}): {}", said.trim()));
        }
        // The child answers late while it copies a table, and not at all before its socket is there.
        let client = self.client.clone().with_patience(MOMENT);
        let status = client.ask::<AcceleratorStatus>("/v1/daemon");
        Ok(status.is_ok_and(|status| status.lease.holds))
    }

    /// Its interfaces.
    pub(super) fn ports(&self) -> Result<Vec<AcceleratedPort>, String> {
        self.ask("/v1/accelerate/ports")
    }

    /// The fate of every packet that its programs have seen.
    pub(super) fn ledger(&self) -> Result<AcceleratedLedger, String> {
        self.ask("/v1/accelerate/ledger")
    }

    /// What `manylane config set port.IF.tier TIER` does.
    pub(super) fn set_tier(&self, interface: &str, tier: &str) -> Result<(), String> {
        let path = format!("/v1/config/port.{interface}.tier");
        let set = self.client.put::<Setting>(&path, tier);
        set.map(drop).map_err(|error| error.to_string())
    }

    /// SIGKILL; returns when it has gone.
    pub(super) fn kill(self) {}

    fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.client.ask(path).map_err(|error| error.to_string())
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// A machine may be busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(100);
