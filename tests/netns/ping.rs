//! Pings of every size that fits a link, both ways, IPv4 and IPv6.

use crate::scenario::Scenario;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6, ping};

#[test]
fn pings_of_every_size_are_answered_undamaged() {
    let Some(scenario) = Scenario::start() else { return };
    let lab = &scenario.lab;
    let ways = [
        (&lab.client, SERVER_V4, 1472), // 1500 less IPv4 and ICMP headers.
        (&lab.client, SERVER_V6, 1452),
        (&lab.server, CLIENT_V4, 1472),
        (&lab.server, CLIENT_V6, 1452),
    ];
    for (host, destination, largest) in ways {
        let sizes = (0..=largest).step_by(61).chain([1, 17, 18, 19, largest - 1, largest]);
        for size in sizes {
            let report = ping(host, destination, size, 1).expect("raw sockets are to be had");
            assert_eq!(report.received, 1, "{size} bytes to {destination}: {report:?}");
        }
    }
    let ledger = scenario.finish();
    assert!(ledger.transmitted >= 8 * 25, "{ledger:#?}");
}

/// A router takes one hop, not none and not two.
#[test]
fn one_hop_is_taken() {
    use manylane_lab::{Outcome, Pinger, ping::PATIENCE};
    let Some(scenario) = Scenario::start() else { return };
    let mut pinger = Pinger::open(&scenario.lab.client, SERVER_V4).expect("sockets are to be had");
    let outcome = pinger.ask(56, PATIENCE).expect("it can be sent");
    let is_63 = matches!(outcome, Outcome::Reply { hops_left: Some(63), is_intact: true, .. });
    assert!(is_63, "{outcome:?}");
    scenario.finish();
}
