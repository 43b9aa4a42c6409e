//! A neighbour that does not exist: packets are held, then their sender is notified.

use std::net::IpAddr;

use crate::scenario::Scenario;
use manylane_lab::scenario::{all_answered, error_of};
use manylane_lab::{IcmpError, LAN_V4, LAN_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6};

#[test]
fn the_sender_is_told_when_a_neighbour_does_not_answer() {
    let Some(scenario) = Scenario::start() else { return };
    let client = &scenario.lab.client;
    // Host unreachable (RFC 1812 §5.2.7.1); address unreachable (RFC 4443 §3.1).
    for (destination, router, code) in [("10.2.0.77", LAN_V4, 1), ("2001:db8:2::77", LAN_V6, 3)] {
        let destination: IpAddr = destination.parse().expect("an address");
        let answer = error_of(client, destination, 56, 64);
        assert_eq!(answer, (router, IcmpError::Unreachable { code }), "{destination}");
    }
    assert!(scenario.dropped("neighbour_failed") >= 2);
    assert_eq!(scenario.source().ledger().held, 0, "nothing is held for ever");
    // The silent neighbour keeps no other from being reached.
    all_answered(client, SERVER_V4, 56);
    all_answered(client, SERVER_V6, 56);
    scenario.finish();
}

/// The settings of `[neighbour]` reach the wire: the router solicits a silent neighbour as often as they say, then gives up.
#[test]
fn a_silent_neighbour_is_asked_for_as_often_as_the_configuration_says() {
    for times in [1, 2, 6] {
        // Questions to known neighbours would be counted, too.
        let more = format!(
            "[neighbour]\nmcast_solicit = {times}\nretrans_time_ms = 100\n\
             base_reachable_time_ms = 3600000\nduplicate_detection = \"off\"\n"
        );
        let router = RouterOptions { more, ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &router) else { return };
        scenario.warm_up(&[SERVER_V4, SERVER_V6]);
        for (destination, from) in [("10.2.0.77", LAN_V4), ("2001:db8:2::77", LAN_V6)] {
            let before = scenario.created("solicitation");
            let destination: IpAddr = destination.parse().expect("an address");
            let (router, _) = error_of(&scenario.lab.client, destination, 56, 64);
            assert_eq!(router, from);
            assert_eq!(scenario.created("solicitation") - before, times, "{destination}");
        }
        scenario.finish();
    }
}

/// What is held when the router stops is accounted for too.
#[test]
fn a_router_may_stop_while_it_holds_packets() {
    let Some(scenario) = Scenario::start() else { return };
    let held = ["10.2.0.77", "2001:db8:2::77"].map(|destination| {
        let destination: IpAddr = destination.parse().expect("an address");
        let mut pinger = manylane_lab::Pinger::open(&scenario.lab.client, destination)
            .expect("raw sockets are to be had");
        let patience = std::time::Duration::from_millis(100);
        pinger.ask(56, patience).expect("it can be sent")
    });
    assert_eq!(held, [manylane_lab::Outcome::Silence; 2]);
    scenario.finish();
}
