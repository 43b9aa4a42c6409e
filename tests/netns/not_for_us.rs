//! Frames to another station's MAC: a switch may flood them to us, and they are not ours to forward.

use std::net::IpAddr;

use crate::scenario::Scenario;
use manylane_io::netlink::{Netlink, NetlinkError, Route};
use manylane_lab::{Outcome, Pinger, SERVER_V4, SERVER_V6};

#[test]
fn frames_to_another_station_are_dropped() {
    let Some(scenario) = Scenario::start() else { return };
    scenario.warm_up(&[SERVER_V4, SERVER_V6]);
    // Another router, whose MAC no host has, on the way to networks behind the real one.
    let [v4, v6]: [(IpAddr, IpAddr); 2] =
        [("10.2.0.1", "10.1.0.99"), ("2001:db8:2::1", "2001:db8:1::99")]
            .map(|(to, via)| (to.parse().expect("an address"), via.parse().expect("an address")));
    let reroute = move || -> Result<(), NetlinkError> {
        let mut netlink = Netlink::open()?;
        for ((to, via), length) in [(v4, 32), (v6, 128)] {
            netlink.add_neighbour("eth0", via, [2, 0, 0, 0, 0, 0x99])?;
            netlink.add_route(&Route::via(to, length, via))?;
        }
        Ok(())
    };
    scenario.lab.client.run(reroute).expect("root may, and the routes are new");

    let before = scenario.dropped("not_for_us");
    for destination in [SERVER_V4, SERVER_V6] {
        let mut pinger = Pinger::open(&scenario.lab.client, destination).expect("root may");
        for _ in 0..5 {
            let patience = std::time::Duration::from_millis(50);
            let outcome = pinger.ask(56, patience).expect("it can be sent");
            assert_eq!(outcome, Outcome::Silence, "{destination}");
        }
    }
    manylane_lab::until("all ten are counted", || match scenario.dropped("not_for_us") {
        counted if counted >= before + 10 => Ok(()),
        counted => Err(format!("{before} before, {counted} now")),
    });
    scenario.finish();
}
