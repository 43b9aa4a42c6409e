//! A router that has just started loses nothing: not even the first question for its MAC.

use std::time::Duration;

use manylane::lab::scenario::Scenario;
use manylane::lab::{LAN_V4, LAN_V6, Outcome, Pinger, SERVER_V4, SERVER_V6};

#[test]
fn the_first_packet_is_answered_at_once() {
    for destination in [LAN_V4, LAN_V6, SERVER_V4, SERVER_V6, SERVER_V4, SERVER_V6] {
        let Some(scenario) = Scenario::start() else { return };
        let mut pinger = Pinger::open(&scenario.lab.client, destination).expect("root may");
        let outcome = pinger.ask(56, 2 * RETRY).expect("it can be sent");
        let Outcome::Reply { round_trip, .. } = outcome else {
            panic!("{destination}: {outcome:?}")
        };
        assert!(round_trip < RETRY, "{destination}: something was lost: {round_trip:?}");
        scenario.finish();
    }
}

/// After so long Linux and manylane ask for a neighbour again (RFC 4861 §10, `RETRANS_TIMER`).
const RETRY: Duration = Duration::from_secs(1);
