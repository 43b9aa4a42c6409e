//! Links with an MTU of 9000: packets that lie in several frames, through AF_XDP ports.

use crate::scenario;
use manylane_lab::scenario::{all_answered, assert_balanced, lab};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, tcp_transfer,
};
use manylane_router::control::Daemon;

#[test]
fn pings_and_a_transfer_of_jumbo_packets_arrive_undamaged() {
    for frame_size in [2048, 4096] {
        let Some(lab) = lab(LabOptions { mtu: 9000, ..LabOptions::default() }) else { return };
        let more = format!("[frames]\nsize = {frame_size}\n");
        let options = RouterOptions { more, ..RouterOptions::default() };
        let config = scenario::config(&lab, &options).unwrap_or_else(|error| panic!("{error}"));
        let daemon = lab.router.run(move || Daemon::start(config));
        let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        for (host, destination, largest) in [
            (&lab.client, SERVER_V4, 8972), // 9000 less IPv4 and ICMP headers.
            (&lab.client, SERVER_V6, 8952),
            (&lab.server, CLIENT_V4, 8972),
            (&lab.server, CLIENT_V6, 8952),
        ] {
            let sizes = (0..=largest).step_by(601).chain([1749, 1750, 1751, largest - 1, largest]);
            sizes.for_each(|size| all_answered(host, destination, size));
        }
        for destination in [SERVER_V4, SERVER_V6] {
            let report = tcp_transfer(&lab.client, &lab.server, destination, 16 << 20);
            let report = report.unwrap_or_else(|error| panic!("{destination}: {error}"));
            assert!(report.is_intact(), "{destination}: {report:?}");
        }
        let ledger = lab.router.run(move || daemon.stop());
        assert_balanced(&ledger);
    }
}
