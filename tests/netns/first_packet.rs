//! A router that has just started loses nothing: not even the first question for its MAC.

use std::time::Duration;

use crate::scenario::Scenario;
use manylane_lab::{
    LAN_V4, LAN_V6, LabOptions, Outcome, Pinger, RouterOptions, SERVER_V4, SERVER_V6,
};

/// A router without an address of its own yet queries no neighbour: discovery forbids it (RFC 4429 §3.2).
/// The packet waits so long, and is not lost.
#[test]
fn the_first_packet_is_answered_at_once() {
    let at_once = Duration::ZERO;
    for (destination, mode, detection) in [
        (LAN_V4, "optimistic", at_once),
        (LAN_V6, "optimistic", at_once),
        (SERVER_V4, "optimistic", at_once),
        (SERVER_V6, "optimistic", DETECTION),
        (SERVER_V4, "off", at_once),
        (SERVER_V6, "off", at_once),
    ] {
        let more = format!("[neighbour]\nduplicate_detection = \"{mode}\"\n");
        let options = RouterOptions { more, ..Default::default() };
        let scenario = Scenario::start_with(LabOptions::default(), &options);
        let Some(scenario) = scenario else { return };
        let mut pinger = Pinger::open(&scenario.lab.client, destination).expect("root may");
        let outcome = pinger.ask(56, detection + 2 * RETRY).expect("it can be sent");
        let Outcome::Reply { round_trip, .. } = outcome else {
            panic!("{destination}: {outcome:?}")
        };
        let limit = detection + RETRY;
        assert!(round_trip < limit, "{destination}: something was lost: {round_trip:?}");
        scenario.finish();
    }
}

/// After this time Linux and manylane query a neighbour again (RFC 4861 §10, `RETRANS_TIMER`).
const RETRY: Duration = Duration::from_secs(1);

/// So long an IPv6 address may be probed (RFC 4862 §5.4.2: up to `MAX_RTR_SOLICITATION_DELAY`, and a second).
const DETECTION: Duration = Duration::from_secs(2);
