//! Two daemons on the same interfaces, of either command: the second one refuses to start, and names the first.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use manylane_lab::accelerated::Accelerated;
use manylane_lab::scenario::{Running, all_answered, lab, spawn_in};
use manylane_lab::{Host, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, WAN_V4, WAN_V6};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn beside_run_no_other_daemon_takes_its_interfaces() {
    // Packet sockets are the ones that any number of programs may have.
    for driver in ["af_packet", "af_xdp"] {
        let Some(lab) = lab(LabOptions::default()) else { return };
        let options = RouterOptions { drivers: [driver; 2], ..RouterOptions::default() };
        let running = Running::start(&lab, MANYLANE, &options);
        let file = running.socket().with_file_name("lab.toml");
        let other = running.socket().with_file_name("other.sock");
        let first = format!("process {} (manylane run)", running.pid());
        for arguments in [&["run", text(&file)][..], &["accelerate", "wan"]] {
            let said = refusal(&lab.router, arguments, &other);
            assert!(said.contains(&first), "{driver}: {said}");
            assert!(said.contains("interface lan") || said.contains("interface wan"), "{said}");
        }
        assert!(!other.exists(), "a daemon that does not start leaves no socket");
        for destination in [SERVER_V4, SERVER_V6] {
            all_answered(&lab.client, destination, 56);
        }
        // A check opens no port, and tells that a start would be refused.
        let checked = start(&lab.router, &["run", "--check", text(&file)], &other);
        assert!(checked.status.success(), "{checked:?}");
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        let note = format!("note: {first} forwards by interface lan: until that one is stopped,");
        assert!(said.contains(&note), "{said}");
        running.terminate();
        Running::start(&lab, MANYLANE, &options).terminate();
    }
}

#[test]
fn beside_accelerate_no_other_daemon_takes_its_interfaces() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    let accelerated = Accelerated::start(&lab.router, MANYLANE, &["lan"]);
    let folder = accelerated.socket().with_file_name("");
    let config = |name: &str| {
        let file = folder.join(format!("{name}.toml"));
        let text = format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"af_packet\"\ninterface = \"{name}\"\n\
             addresses = [\"10.9.0.1/24\"]\n"
        );
        std::fs::write(&file, text).expect("the folder is ours");
        file
    };
    let other = folder.join("other.sock");
    let said = refusal(&lab.router, &["run", text(&config("lan"))], &other);
    let first = format!("process {} (manylane accelerate)", accelerated.pid());
    assert!(said.contains(&first) && said.contains("interface lan"), "{said}");
    // The other interface is free.
    let mut command = Command::new(MANYLANE);
    command.arg("run").arg(config("wan")).arg("--socket").arg(&other);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = spawn_in(&lab.router, command);
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let lines = stderr.lines().map(|line| line.expect("what it says is text"));
    let said: Vec<_> = lines.take_while(|line| !line.contains("manylane: forwarding")).collect();
    let _ = child.kill();
    let _ = child.wait();
    // The daemon warns of the addresses that the kernel has, and so does a check.
    let checked = start(&lab.router, &["run", "--check", text(&config("wan"))], &other);
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    for address in [WAN_V4, WAN_V6] {
        let warning = format!("interface wan has the address {address}/");
        assert_eq!(said.iter().filter(|line| line.contains(&warning)).count(), 1, "{said:?}");
        assert!(checked.contains(&format!("note: {warning}")), "{checked}");
    }
}

/// What a daemon says that does not start.
fn refusal(host: &Host, arguments: &[&str], socket: &Path) -> String {
    let output = start(host, arguments, socket);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn start(host: &Host, arguments: &[&str], socket: &Path) -> std::process::Output {
    // A daemon that does start would never end.
    let mut command = Command::new("timeout");
    command.args(["20", MANYLANE]).args(arguments).arg("--socket").arg(socket);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_in(host, command).wait_with_output().expect("it is our child")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}
