//! Streams of numbered datagrams: each arrives once, in order, as it was sent.

use crate::scenario::Scenario;
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, LAN_V4, LAN_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6,
    udp_stream,
};

#[test]
fn datagrams_arrive_once_in_order_byte_for_byte() {
    let Some(scenario) = start() else { return };
    scenario.warm_up(&[LAN_V4, LAN_V6]);
    let (client, server) = (&scenario.lab.client, &scenario.lab.server);
    for size in [8, 100, 1452, 4000] {
        let ways = [
            (client, server, SERVER_V4),
            (client, server, SERVER_V6),
            (server, client, CLIENT_V4),
            (server, client, CLIENT_V6),
        ];
        for (from, to, destination) in ways {
            let report = udp_stream(from, to, destination, 3000, size, 0)
                .unwrap_or_else(|error| panic!("{size} bytes to {destination}: {error}"));
            let drops = scenario.source().ledger().dropped;
            assert!(report.is_perfect(), "{size} bytes to {destination}: {report:?} {drops:?}");
        }
    }
    scenario.finish();
}

/// The beginning of a stream waits until the server has told its MAC, and stays the beginning: what
/// was held leaves before what came later. (The sender knows the router already: Linux itself
/// reorders held packets.)
#[test]
fn a_stream_to_an_unknown_neighbour_is_not_reordered() {
    for destination in [SERVER_V4, SERVER_V6] {
        for _ in 0..3 {
            let Some(scenario) = start() else { return };
            scenario.warm_up(&[LAN_V4, LAN_V6]);
            let (client, server) = (&scenario.lab.client, &scenario.lab.server);
            let report = udp_stream(client, server, destination, 500, 100, 0)
                .unwrap_or_else(|error| panic!("{destination}: {error}"));
            let drops = scenario.source().ledger().dropped;
            assert!(report.is_perfect(), "{destination}: {report:?} {drops:?}");
            scenario.finish();
        }
    }
}

/// A router that queries its neighbours from the first packet on: while its addresses are probed, an IPv6
/// stream would outgrow the room for held packets.
fn start() -> Option<Scenario> {
    let more = "[neighbour]\nduplicate_detection = \"off\"\n".into();
    Scenario::start_with(LabOptions::default(), &RouterOptions { more, ..Default::default() })
}
