//! Commands of `manylane run` at `manylane accelerate`: each says which daemon answers, and what to do instead.

use std::process::Command;

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

#[test]
fn each_command_of_the_other_daemon_says_what_to_do_instead() {
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = Accelerated::start(topology.host("r1"), MANYLANE, &["lan", "wan"]);
    for (words, instead) in [
        (&["show", "workers"][..], "`manylane show ports`"),
        (&["show", "sockets"], "`manylane capture`"),
        (&["config", "show"], "`manylane show config`"),
        (&["config", "save"], "`manylane show config`"),
        (&["config", "apply", "/dev/null"], "`manylane show config`"),
        (&["neighbour", "add", "lan", "10.1.0.9", "02:00:00:00:00:09"], "`ip neighbour`"),
        (&["port", "remove", "lan"], "`manylane config set port.IF.tier kernel`"),
    ] {
        let mut command = Command::new(MANYLANE);
        command.args(words).arg("--socket").arg(accelerated.socket());
        let output = command.output().expect("the program is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("error: this is `manylane accelerate`: "), "{words:?}: {said}");
        assert!(said.contains(instead) && !said.contains("/v1"), "{words:?}: {said}");
    }
}
