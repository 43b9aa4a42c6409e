//! The lab with the kernel as its router: what fails here is not manylane's fault.

use manylane_lab::{
    CLIENT_V4, CLIENT_V6, IcmpError, LAN_V4, LAN_V6, LabOptions, Outcome, Pinger, SERVER_V4,
    SERVER_V6, ping, scenario, tcp_transfer, udp_stream,
};

#[test]
fn the_kernel_forwards_everything_that_the_other_scenarios_send() {
    let options = LabOptions { kernel_router: true, queues: 2, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };

    for (from, to) in [(&lab.client, [SERVER_V4, SERVER_V6]), (&lab.server, [CLIENT_V4, CLIENT_V6])]
    {
        for destination in to {
            for size in [0, 56, 1452, 3000, 20_000] {
                let report = ping(from, destination, size, 3).expect("raw sockets are to be had");
                assert_eq!(report.received, 3, "{size} bytes to {destination}: {report:?}");
            }
        }
    }
    for destination in [SERVER_V4, SERVER_V6] {
        let report = udp_stream(&lab.client, &lab.server, destination, 5000, 1000, 0)
            .expect("the server is reachable");
        assert!(report.is_perfect(), "{destination}: {report:?}");
        let report = tcp_transfer(&lab.client, &lab.server, destination, 16 << 20)
            .expect("the server is reachable");
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
}

#[test]
fn errors_are_told_with_their_sender() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = scenario::lab(options) else { return };
    for (destination, router) in [(SERVER_V4, LAN_V4), (SERVER_V6, LAN_V6)] {
        let mut pinger = Pinger::open(&lab.client, destination).expect("sockets are to be had");
        pinger.set_hops(1).expect("1 is a hop limit");
        let outcome = pinger.ask(56, manylane_lab::ping::PATIENCE).expect("it can be sent");
        let wanted = Outcome::Error { from: router, error: IcmpError::TimeExceeded };
        assert_eq!(outcome, wanted);
    }
}
