//! A collector of nfdump's: `nfcapd` for IPFIX, `sfcapd` for sFlow. Both write what `nfdump` reads.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::thread;

use manylane_lab::scenario::{signal, skip, spawn_in};
use manylane_lab::tools::mortal;
use manylane_lab::{Host, tool, until};
use nix::sys::signal::Signal;

/// The collector listens at a host, and ends with its folder.
pub struct Nfdump {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Nfdump {
    /// Starts `program` at an address of a host, or prints a line that says why not.
    pub fn start((host, address): (&Host, IpAddr), program: &str, port: u16) -> Option<Nfdump> {
        // nfdump(1) has no `--version`.
        let is_there = |program: &str| Command::new(program).arg("-V").output().is_ok();
        if let Some(missing) = ["nfdump", program].into_iter().find(|one| !is_there(one)) {
            skip(format_args!("{missing} is not installed: packages nfdump and nfdump-sflow"));
            return None;
        }
        // A test has a thread of its own.
        let name = format!("manylane-{program}-{}-{:?}", process::id(), thread::current().id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join(RECORDS)).expect("the temporary folder can be written");
        let mut command = mortal(program);
        command.arg("-w").arg(folder.join(RECORDS)).args(["-t", "3600", "-b"]);
        command.arg(address.to_string()).args(["-p", &port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn_in(host, command);
        let nfdump = Nfdump { child, folder, port };
        nfdump.wait_until_read(host);
        Some(nfdump)
    }

    /// Waits until the collector has read all that its host has received. Until then a socket holds some 90 datagrams, and
    /// nothing of them is left when the collector ends.
    pub fn wait_until_read(&self, host: &Host) {
        until("the collector has read all datagrams", || {
            let socket = tool(host, &format!("ss -Hlun sport = :{}", self.port));
            let socket = socket.unwrap_or_else(|error| panic!("{error}"));
            let unread = socket.split_whitespace().nth(1).map(str::parse::<u64>);
            if unread == Some(Ok(0)) { Ok(()) } else { Err(socket) }
        });
    }

    /// Has it write all that its host has received.
    pub fn end(&mut self, host: &Host) {
        self.wait_until_read(host);
        signal(&self.child, Signal::SIGTERM);
        assert!(self.child.wait().expect("it is our child").success());
    }

    /// What `nfdump` prints of all records.
    pub fn print(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(self.folder.join(RECORDS)).args(arguments);
        let output = command.output().expect("it is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Nfdump {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Its files, in the folder.
const RECORDS: &str = "records";
