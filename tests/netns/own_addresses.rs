//! The router's own addresses answer echo requests, on the near side and on the far one.

use crate::scenario::Scenario;
use manylane_lab::scenario::all_answered;
use manylane_lab::{LAN_V4, LAN_V6, WAN_V4, WAN_V6};

#[test]
fn the_router_answers_pings() {
    let Some(scenario) = Scenario::start() else { return };
    for host in [&scenario.lab.client, &scenario.lab.server] {
        for destination in [LAN_V4, WAN_V4, LAN_V6, WAN_V6] {
            for size in [0, 1, 56, 1452] {
                all_answered(host, destination, size);
            }
        }
    }
    let ledger = scenario.finish();
    assert!(ledger.created.get("reply") >= Some(&96), "{ledger:#?}");
}
