//! Where the frames are, and what becomes of too few: with each driver of an interface.

use std::process::{Command, Output};

use crate::scenario::Scenario;
use manylane_api::{FramesStatus, Ledger};
use manylane_lab::scenario::{Running, all_answered, assert_balanced, lab};
use manylane_lab::{LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// What is shown adds up, and a length set from outside is followed, or refused with the reason.
#[test]
fn frames_are_shown_and_lists_change_their_length() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let running = Running::start(&lab, MANYLANE, &RouterOptions::default());
    all_answered(&lab.client, SERVER_V4, 56);
    let frames: FramesStatus = running.client().ask("/v1/frames").expect("it runs");
    assert_eq!((frames.hot_list_len, frames.lists[0].len), (1024, 1024), "{frames:?}");
    let needed: u64 = frames.sum.iter().map(|line| line.frames).sum();
    assert_eq!(needed, frames.ledger.total, "{frames:?}");
    for holder in ["depot", "worker 0 list", "lan to receive", "wan to transmit"] {
        let found = frames.ledger.holders.iter().any(|line| line.holder == holder);
        assert!(found, "{holder}: {frames:?}");
    }

    let output = manylane(&running, &["config", "set", "frames.hot_list_len", "128"]);
    assert_eq!(text(&output.stdout), "frames.hot_list_len = 128, until the daemon ends\n");
    // A worker that sleeps was woken; it shows its list before it sleeps again, and takes from it when
    // enough was received.
    loop {
        all_answered(&lab.client, SERVER_V4, 56);
        let frames: FramesStatus = running.client().ask("/v1/frames").expect("it runs");
        assert_eq!(frames.hot_list_len, 128);
        if frames.lists[0].len == 128 && frames.lists[0].hits > 0 {
            assert!(frames.lists[0].level <= 128, "{frames:?}");
            break;
        }
    }
    for (value, says) in [
        ("127", "frames.hot_list_len cannot be 127; choose a number from 128 to 8192\n"),
        ("many", "frames.hot_list_len cannot be many; choose a number from 128 to 8192\n"),
    ] {
        let output = manylane(&running, &["config", "set", "frames.hot_list_len", value]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).ends_with(says), "{}", text(&output.stderr));
    }
    let shown = manylane(&running, &["show", "frames"]);
    println!("{}", text(&shown.stdout));
    assert!(text(&shown.stdout).ends_with("Everything is accounted for.\n"));
    let (status, said) = running.terminate();
    assert!(status.success(), "{status}: {said}");
}

/// So few frames that rings are as short as they can be, and receivers starve under load: hosts see
/// loss and repair it, nothing is lost for want of a frame once it is here, and all is accounted for.
#[test]
fn a_pool_that_is_far_too_small_forwards_all_the_same() {
    for drivers in
        [["af_xdp"; 2], ["af_packet"; 2], ["af_packet", "af_xdp"], ["af_xdp", "af_packet"]]
    {
        let more = "[frames]\ncount = 1024\nhot_list_len = 128\n".into();
        let options = RouterOptions { drivers, more, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &options) else { return };
        scenario.warm_up(&[SERVER_V4, SERVER_V6]);
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        for destination in [SERVER_V4, SERVER_V6] {
            let report = tcp_transfer(client, server, destination, 4 << 20)
                .unwrap_or_else(|error| panic!("{drivers:?} {destination}: {error}"));
            assert!(report.is_intact(), "{drivers:?} {destination}: {report:?}");
        }
        let frames = scenario.source().frames();
        println!("{drivers:?}: {:?}", frames.lists);
        let ledger: Ledger = scenario.finish();
        assert_eq!(ledger.dropped.get("no_frame"), None, "{drivers:?}: {ledger:#?}");
        assert_balanced(&ledger);
    }
}

fn manylane(running: &Running, words: &[&str]) -> Output {
    let socket = running.socket().display().to_string();
    let mut command = Command::new(MANYLANE);
    command.args(words).args(["--socket", &socket]).output().expect("the program is there")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
