//! A link that carries less: path MTU discovery works, and IPv4 without DF is fragmented.

use crate::scenario::Scenario;
use manylane_io::sysctl;
use manylane_lab::scenario::{all_answered, error_of};
use manylane_lab::{
    IcmpError, LAN_V4, LAN_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, ping, tcp_transfer,
};

const MTU: u16 = 1400;

fn narrow() -> Option<Scenario> {
    let router = RouterOptions { wan_mtu: Some(MTU), ..RouterOptions::default() };
    Scenario::start_with(LabOptions::default(), &router)
}

#[test]
fn the_sender_learns_the_links_mtu() {
    let Some(scenario) = narrow() else { return };
    let client = &scenario.lab.client;
    let mut told = 0;
    for (destination, router, headers) in [(SERVER_V4, LAN_V4, 28), (SERVER_V6, LAN_V6, 48)] {
        let fits = usize::from(MTU) - headers;
        all_answered(client, destination, fits);
        let answer = error_of(client, destination, fits + 1, 64);
        assert_eq!(answer, (router, IcmpError::TooBig { mtu: MTU.into() }), "{destination}");
        told += 1;
        // Now the client's kernel knows, and fragments by itself. Or nearly: it shows the error to a raw
        // socket before it acts on it, so that a request may still leave whole, and be refused again.
        loop {
            let report = ping(client, destination, fits + 1, 1).expect("raw sockets are to be had");
            if report.received == 1 {
                break;
            }
            assert_eq!(report.errors, [(router, IcmpError::TooBig { mtu: MTU.into() })]);
            told += 1;
            assert!(told < 100, "the client does not learn");
        }
        all_answered(client, destination, fits + 1);
        all_answered(client, destination, 5000);
    }
    assert_eq!(scenario.dropped("too_big"), told);
    assert_eq!(scenario.created("fragment"), 0);
    scenario.finish();
}

#[test]
fn tcp_finds_the_mtu_by_itself() {
    let Some(scenario) = narrow() else { return };
    for destination in [SERVER_V4, SERVER_V6] {
        let (client, server) = (&scenario.lab.client, &scenario.lab.server);
        let report = tcp_transfer(client, server, destination, 4 << 20)
            .unwrap_or_else(|error| panic!("{destination}: {error}"));
        assert!(report.is_intact(), "{destination}: {report:?}");
    }
    assert!(scenario.dropped("too_big") > 0, "nothing was too big");
    scenario.finish();
}

#[test]
fn ipv4_without_df_is_fragmented_and_arrives() {
    let Some(scenario) = narrow() else { return };
    let client = &scenario.lab.client;
    client
        .run(|| sysctl::set("net/ipv4/ip_no_pmtu_disc", "1")) // Sockets made from now on: no DF.
        .expect("root may set it");
    for size in [1373, 1400, 1472] {
        all_answered(client, SERVER_V4, size);
    }
    assert_eq!(scenario.created("fragment"), 9, "a second fragment for each of 9 requests");
    // Fragments of the client's own are cut once more.
    all_answered(client, SERVER_V4, 5000);
    assert_eq!(scenario.dropped("too_big"), 0);
    scenario.finish();
}
