//! A daemon between memory ports, for tests of its clients. Needs neither root nor as many cores as workers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::{env, fs, process};

use manylane_router::config::Environment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A daemon that forwards what generators make, by IPv4 from "west" and by IPv6 from "east", to "north".
pub struct Router {
    folder: PathBuf,
    daemon: Child,
    /// What it says: kept open, so that it can.
    said: BufReader<ChildStderr>,
}

impl Router {
    pub fn start(name: &str) -> Router {
        let folder = env::temp_dir().join(format!("manylane-router-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("router.toml");
        let core = Environment::of_this_thread().cores[0];
        fs::write(&file, CONFIG.replace("CORE", &core.to_string())).unwrap();
        let (file, socket) = (file.display().to_string(), socket(&folder));
        let mut daemon =
            command(&["run", &file, "--socket", &socket]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(daemon.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "manylane: forwarding; SIGINT or SIGTERM ends it\n");
        Router { folder, daemon, said }
    }

    /// Where it listens.
    pub fn socket(&self) -> String {
        socket(&self.folder)
    }

    pub fn stop(mut self) {
        kill(Pid::from_raw(self.daemon.id() as i32), Signal::SIGTERM).unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(line.ends_with("missing 0\n"), "{line}");
        assert!(self.daemon.wait().unwrap().success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Still running only after a failed test.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const CONFIG: &str = r#"
[workers]
cores = [CORE, CORE, CORE]
[[port]]
name = "west"
driver = "memory"
workers = [1]
addresses = ["10.1.0.254/24"]
[port.generate]
source = "10.1.0.1"
destination = "10.3.0.0/16"
flows = 64
packets_per_second = 20000
[[port]]
name = "east"
driver = "memory"
workers = [1]
addresses = ["2001:db8:2::fe/64"]
[port.generate]
source = "2001:db8:2::1"
destination = "2001:db8:3::/48"
flows = 64
packets_per_second = 20000
[[port]]
name = "north"
driver = "memory"
workers = [1]
addresses = ["10.9.0.254/24", "2001:db8:9::fe/64"]
[[port]]
name = "quiet"
driver = "memory"
workers = [1]
addresses = ["10.8.0.254/24"]
[[route]]
prefix = "10.3.0.0/16"
via = "10.9.0.1"
[[route]]
prefix = "2001:db8:3::/48"
via = "2001:db8:9::1"
"#;

fn socket(folder: &Path) -> String {
    folder.join("api.sock").display().to_string()
}

pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manylane"));
    command.args(words).stdin(Stdio::null());
    command
}
