//! Packets larger than a link: the sender's kernel fragments them, and every fragment is forwarded.

use crate::scenario::Scenario;
use manylane_lab::scenario::all_answered;
use manylane_lab::{CLIENT_V4, CLIENT_V6, SERVER_V4, SERVER_V6};

#[test]
fn fragments_are_forwarded_like_packets() {
    let Some(scenario) = Scenario::start() else { return };
    for size in [1473, 3000, 8000, 20_000] {
        for destination in [SERVER_V4, SERVER_V6] {
            all_answered(&scenario.lab.client, destination, size);
        }
        for destination in [CLIENT_V4, CLIENT_V6] {
            all_answered(&scenario.lab.server, destination, size);
        }
    }
    scenario.finish();
}
