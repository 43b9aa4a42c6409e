//! Routing daemons in the namespaces of a lab: FRR's zebra, ospfd and bgpd, or BIRD, each with a configuration of its
//! own in a temporary folder.
//!
//! The daemons of Debian's packages `frr` and `bird2`, started in the foreground by us. Sockets and pid files
//! are in the folder: those of the machine's own daemons stay alone. FRR runs as its own user, whose change of identity
//! makes the kernel forget that it is to die with us: so each daemon has a process above it, and a process namespace,
//! which ends with that one.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::Mutex;

use manylane_io::namespace::Host;
use nix::sys::signal::Signal;

use crate::scenario::{signal, skip, spawn_in};
use crate::tools::{mortal, until};

/// FRR on one router.
pub struct Frr {
    folder: Folder,
    daemons: Vec<Daemon>,
}

impl Frr {
    /// Whether it is installed; if not, a line that says so.
    pub fn is_here() -> bool {
        are_here(&[&format!("{FRR}/zebra"), "/usr/bin/vtysh"])
    }

    /// Starts the daemons of these names, zebra first, each with its configuration.
    pub fn start(host: &Host, daemons: &[(&str, &str)]) -> Frr {
        let mut frr = Frr { folder: Folder::new(), daemons: Vec::new() };
        for (name, configuration) in daemons {
            let conf = frr.folder.write(&format!("{name}.conf"), configuration);
            let path = |file: &str| frr.folder.0.join(file).display().to_string();
            let daemon = Daemon::start(host, &Path::new(FRR).join(name), |command| {
                command.args(["-f", &conf, "-i", &path(&format!("{name}.pid"))]);
                command.args(["-z", &path("zserv"), "--vty_socket", &path("")]);
                command.args(["-P", "0", "--log", "stdout"]);
                command.stdout(frr.folder.log(name)).stderr(frr.folder.log(name));
            });
            frr.daemons.push(daemon);
            let socket = frr.folder.0.join(format!("{name}.vty"));
            until(&format!("{name} answers"), || frr.daemons_live(socket.exists()));
        }
        frr
    }

    fn daemons_live(&mut self, is_ready: bool) -> Result<(), String> {
        if let Some(ended) = self.daemons.iter_mut().find_map(Daemon::ended) {
            panic!("an FRR daemon ended ({ended}):\n{}", self.folder.logs());
        }
        if is_ready { Ok(()) } else { Err(self.folder.logs()) }
    }

    /// Runs a command of vtysh, such as `show ip route json`.
    pub fn ask(&self, question: &str) -> String {
        let output = Command::new("vtysh")
            .arg("--vty_socket")
            .arg(&self.folder.0)
            .args(["-c", question])
            .stdin(Stdio::null())
            .output()
            .expect("vtysh was there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// BIRD on one router.
pub struct Bird {
    folder: Folder,
    _daemon: Daemon,
}

impl Bird {
    /// Whether it is installed; if not, a line that says so.
    pub fn is_here() -> bool {
        are_here(&["/usr/sbin/bird", "/usr/sbin/birdc"])
    }

    /// Starts it.
    pub fn start(host: &Host, configuration: &str) -> Bird {
        let folder = Folder::new();
        let conf = folder.write("conf", configuration);
        let path = |file: &str| folder.0.join(file).display().to_string();
        let mut daemon = Daemon::start(host, Path::new("/usr/sbin/bird"), |command| {
            command.args(["-f", "-c", &conf, "-s", &path("ctl"), "-P", &path("pid")]);
            command.stdout(folder.log("bird")).stderr(folder.log("bird"));
        });
        until("bird answers", || {
            if let Some(ended) = daemon.ended() {
                panic!("bird ended ({ended}):\n{}", folder.logs());
            }
            if folder.0.join("ctl").exists() { Ok(()) } else { Err(folder.logs()) }
        });
        Bird { folder, _daemon: daemon }
    }

    /// Runs a command of birdc, such as `show route`.
    pub fn ask(&self, question: &str) -> String {
        let output = Command::new("/usr/sbin/birdc")
            .arg("-s")
            .arg(self.folder.0.join("ctl"))
            .args(question.split(' '))
            .stdin(Stdio::null())
            .output()
            .expect("birdc was there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Whether these programs are installed; if not, a line that says so. (Not all of them know `--version`.)
fn are_here(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !Path::new(program).exists());
    if let Some(program) = missing {
        skip(format_args!("{program} is not installed"));
    }
    missing.is_none()
}

/// A process that ends with us: by its own id, or, when this process dies, by the kernel.
struct Daemon(Child);

impl Daemon {
    fn start(host: &Host, program: &Path, with: impl FnOnce(&mut Command)) -> Daemon {
        let mut command = mortal("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        // The first process of a namespace has to be one that keeps its identity.
        command.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]).arg(program);
        with(&mut command);
        command.stdin(Stdio::null()).process_group(0); // Ctrl-C is for us: `drop` ends it.
        Daemon(spawn_in(host, command))
    }

    fn ended(&mut self) -> Option<String> {
        self.0.try_wait().expect("it is our child").map(|status| status.to_string())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended().is_none() {
            signal(&self.0, Signal::SIGKILL);
            let _ = self.0.wait(); // Our own child, already killed.
        }
    }
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static LAST: Mutex<u32> = Mutex::new(0);
        let mut last = LAST.lock().expect("nobody panics with the lock");
        *last += 1;
        let folder = env::temp_dir().join(format!("manylane-routing-{}-{last}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        // FRR's user makes its sockets there.
        let anybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&folder, anybody).expect("the folder is ours");
        Folder(folder)
    }

    /// Writes a file; where it is.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the folder is ours");
        path.display().to_string()
    }

    fn log(&self, name: &str) -> Stdio {
        let path = self.0.join(format!("{name}.log"));
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.expect("the folder is ours").into()
    }

    /// What the daemons have said.
    fn logs(&self) -> String {
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|ext| ext == "log"));
        logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // What stays is small, and in the temporary folder.
    }
}

/// Where Debian's package has them.
const FRR: &str = "/usr/lib/frr";
