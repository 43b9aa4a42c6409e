//! Destinations that no route leads to, or a route that says no.

use std::net::IpAddr;

use crate::scenario::Scenario;
use manylane_lab::ping::PATIENCE;
use manylane_lab::scenario::error_of;
use manylane_lab::{IcmpError, LAN_V4, LAN_V6, LabOptions, Outcome, Pinger, RouterOptions};

#[test]
fn the_sender_is_told_why_except_by_a_blackhole() {
    let more = "\
        [[route]]\nprefix = \"10.71.0.0/16\"\ntype = \"unreachable\"\n\
        [[route]]\nprefix = \"10.72.0.0/16\"\ntype = \"prohibit\"\n\
        [[route]]\nprefix = \"10.73.0.0/16\"\ntype = \"blackhole\"\n\
        [[route]]\nprefix = \"2001:db8:71::/48\"\ntype = \"unreachable\"\n\
        [[route]]\nprefix = \"2001:db8:72::/48\"\ntype = \"prohibit\"\n\
        [[route]]\nprefix = \"2001:db8:73::/48\"\ntype = \"blackhole\"\n";
    let router = RouterOptions { more: more.into(), ..RouterOptions::default() };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &router) else { return };

    // Codes: RFC 792, RFC 1812 §5.2.7.1; RFC 4443 §3.1.
    let answers = [
        ("10.70.0.1", LAN_V4, 0),      // Net unreachable: no route.
        ("10.71.0.1", LAN_V4, 1),      // Host unreachable.
        ("10.72.0.1", LAN_V4, 13),     // Communication administratively prohibited.
        ("2001:db8:70::1", LAN_V6, 0), // No route.
        ("2001:db8:71::1", LAN_V6, 0), // As Linux: no route.
        ("2001:db8:72::1", LAN_V6, 1), // Administratively prohibited.
    ];
    for (destination, router, code) in answers {
        let destination: IpAddr = destination.parse().expect("an address");
        let answer = error_of(&scenario.lab.client, destination, 56, 64);
        assert_eq!(answer, (router, IcmpError::Unreachable { code }), "{destination}");
    }
    for destination in ["10.73.0.1", "2001:db8:73::1"] {
        let destination: IpAddr = destination.parse().expect("an address");
        let mut pinger = Pinger::open(&scenario.lab.client, destination).expect("root may");
        let outcome = pinger.ask(56, PATIENCE / 4).expect("it can be sent");
        assert_eq!(outcome, Outcome::Silence, "{destination}");
    }
    let ledger = scenario.finish();
    for (reason, frames) in
        [("no_route", 2), ("route_unreachable", 2), ("route_prohibited", 2), ("blackhole", 2)]
    {
        assert_eq!(ledger.dropped.get(reason), Some(&frames), "{ledger:#?}");
    }
}
