//! An idle router costs next to nothing, and wakes up for the first packet.

use std::fs;
use std::thread;
use std::time::Duration;

use manylane_lab::scenario::{Running, all_answered, lab};
use manylane_lab::{LabOptions, RouterOptions, SERVER_V4, SERVER_V6, ping};

#[test]
fn an_idle_router_sleeps_and_loses_nothing_when_it_wakes() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let running = Running::start(&lab, env!("CARGO_BIN_EXE_manylane"), &RouterOptions::default());
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, destination, 56);
    }

    let before = cpu_ticks(running.pid());
    thread::sleep(Duration::from_secs(10)); // The one thing to wait for is time itself.
    let ticks = cpu_ticks(running.pid()) - before;
    // A tick is 10 ms of processor time on every Linux (`USER_HZ`), so 10 s have 1000.
    let percent = ticks as f64 / 10.0;
    println!("idle for 10 s: {percent:.1} % of a core");
    assert!(percent < 1.0, "an idle router took {percent:.1} % of a core");

    for destination in [SERVER_V4, SERVER_V6] {
        let report = ping(&lab.client, destination, 56, 1).expect("raw sockets are to be had");
        assert_eq!(report.received, 1, "the first packet to {destination}: {report:?}");
    }
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains("missing 0"), "{said}");
}

/// User and system time of a process (proc(5): fields 14 and 15 of `stat`, counted after the name,
/// which may hold anything).
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let fields: Vec<_> = fields.split(' ').collect();
    [fields[11], fields[12]].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}
