//! What `manylane run` may still do, once it forwards, in each of its threads: packet sockets, and nothing else. Ports
//! are removed all the same, and nothing is left in the end.

use manylane_lab::scenario::{Running, all_answered, assert_narrow, lab};
use manylane_lab::{LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tool};

/// NET_RAW.
const KEPT: u64 = 1 << 13;

#[test]
fn as_root_it_keeps_one_capability_and_does_its_work() {
    it_does_its_work(&[], 0);
}

#[test]
fn as_another_user_it_does_the_same() {
    it_does_its_work(&["--user", "nobody"], 65534);
}

fn it_does_its_work(arguments: &[&str], user: u32) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let options = RouterOptions::default();
    let running = Running::start_with(&lab, env!("CARGO_BIN_EXE_manylane"), &options, arguments);
    assert_narrow(running.pid(), KEPT, user);
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, destination, 56);
    }
    assert_narrow(running.pid(), KEPT, user);
    let (status, said) = running.terminate();
    assert!(status.success() && said.contains("missing 0"), "{status}: {said}");
    let links = tool(&lab.router, "ip -details link show").expect("ip is there");
    assert!(!links.contains("prog/xdp"), "{links}");
}
