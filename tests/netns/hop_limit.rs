//! A packet whose hop limit (TTL) ends at the router: its sender is notified, by the right address.

use crate::scenario::Scenario;
use manylane_lab::scenario::{all_answered, error_of};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, IcmpError, LAN_V4, LAN_V6, SERVER_V4, SERVER_V6, WAN_V4, WAN_V6,
};

#[test]
fn the_router_says_time_exceeded() {
    let Some(scenario) = Scenario::start() else { return };
    let (client, server) = (&scenario.lab.client, &scenario.lab.server);
    let ways = [
        (client, SERVER_V4, LAN_V4),
        (client, SERVER_V6, LAN_V6),
        (server, CLIENT_V4, WAN_V4),
        (server, CLIENT_V6, WAN_V6),
    ];
    for (host, destination, router) in ways {
        assert_eq!(error_of(host, destination, 56, 1), (router, IcmpError::TimeExceeded));
        // The error quotes no more than its version allows, of a packet of any size.
        assert_eq!(error_of(host, destination, 1400, 1), (router, IcmpError::TimeExceeded));
        all_answered(host, destination, 56);
    }
    let ledger = scenario.finish();
    assert_eq!(ledger.dropped.get("hop_limit_exceeded"), Some(&8), "{ledger:#?}");
    assert_eq!(ledger.created.get("error"), Some(&8), "{ledger:#?}");
}
