//! What a service manager and a shell get of us: notifications, exit statuses, completions, pages of the manual.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{self, Command, Output, Stdio};
use std::time::Duration;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn a_service_manager_hears_when_it_forwards_and_when_it_ends() {
    let folder = Folder::new("notify");
    let manager = UnixDatagram::bind(folder.0.join("notify")).expect("the folder is ours");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("it is not zero");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/memory.toml");
    let mut child = Command::new(MANYLANE)
        .args(["run", examples, "--socket"])
        .arg(folder.0.join("api.sock"))
        .env("NOTIFY_SOCKET", folder.0.join("notify"))
        .env("WATCHDOG_USEC", "300000")
        .stderr(Stdio::null())
        .spawn()
        .expect("the program is there");
    let hear = |words: &str| {
        let mut message = [0; 4096];
        loop {
            let len = match manager.recv(&mut message) {
                // A child of another test has ended: SIGCHLD interrupts a wait with a timeout (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received.unwrap_or_else(|error| panic!("{words}: {error}")),
            };
            let text = String::from_utf8_lossy(&message[..len]).into_owned();
            if text.contains(words) {
                return text;
            }
        }
    };
    let ready = hear("READY=1");
    assert!(ready.contains("STATUS=forwarding; 4 of 4 ports up"), "{ready}");
    hear("WATCHDOG=1");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there");
    assert!(killed.success());
    hear("STOPPING=1");
    assert!(child.wait().expect("it is our child").success());
}

/// By which a service manager knows that trying again is in vain.
#[test]
fn what_will_not_do_another_time_either_is_status_2() {
    let folder = Folder::new("status");
    let file = folder.0.join("wrong.toml");
    fs::write(&file, "[workers]\ncount = \"many\"\n").expect("the folder is ours");
    let file = file.display().to_string();
    for arguments in [
        &["run", &file][..],
        &["accelerate"],
        &["accelerate", "lo", "--user", "no-such-user"],
        &["run", &file, "--lease"],
    ] {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn each_shell_has_completions_that_it_can_read() {
    for (shell, check) in [("bash", Some("bash")), ("zsh", None), ("fish", None)] {
        let output = output(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).expect("it is text");
        for word in ["accelerate", "port-tier", "neighbours"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if let Some(program) = check {
            let folder = Folder::new(shell);
            let file = folder.0.join("script");
            fs::write(&file, &script).expect("the folder is ours");
            let read = Command::new(program).arg("-n").arg(&file).output().expect("it is there");
            assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
        }
    }
}

#[test]
fn each_command_has_a_page() {
    let folder = Folder::new("man");
    assert!(output(&["man", &folder.0.display().to_string()]).status.success());
    let page = |name: &str| fs::read_to_string(folder.0.join(name)).expect(name);
    for (name, words) in [
        ("manylane.1", "multi\\-core packet forwarder"),
        ("manylane-run.1", "FILE.toml"),
        ("manylane-accelerate.1", "stale\\-limit"),
        ("manylane-show.1", "mirror"),
        ("manylane-config-set.1", "KEY"),
    ] {
        let text = page(name);
        assert!(
            text.contains(".TH") && text.to_lowercase().contains(&words.to_lowercase()),
            "{name}: {text}"
        );
    }
    assert!(!folder.0.join("manylane-man.1").exists(), "it is for the package alone");
}

fn output(arguments: &[&str]) -> Output {
    Command::new(MANYLANE).args(arguments).output().expect("the program is there")
}

/// A folder for one test, removed behind it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("manylane-{name}-{}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
