//! Routes by several next hops, where one does not exist.

use std::net::IpAddr;

use crate::scenario::Scenario;
use manylane_api::RouteKind;
use manylane_io::netlink::Netlink;
use manylane_lab::scenario::all_answered;
use manylane_lab::{LabOptions, RouterOptions};

/// Flows to 16 destinations behind the server by three next hops: two are the server, and one does not exist.
#[test]
fn no_flow_goes_by_a_next_hop_that_does_not_exist_while_others_do() {
    let more = "\
        [[route]]\nprefix = \"10.50.0.0/16\"\nvia = [\"10.2.0.1\", \"10.2.0.77\", \"10.2.0.2\"]\n\
        weights = [1, 2, 1]\n\
        [[route]]\nprefix = \"2001:db8:50::/48\"\n\
        via = [\"2001:db8:2::77\", \"2001:db8:2::1\", \"2001:db8:2::2\"]\n";
    let router = RouterOptions { more: more.into(), ..RouterOptions::default() };
    let Some(scenario) = Scenario::start_with(LabOptions::default(), &router) else { return };
    let destinations: Vec<IpAddr> = (1..=8)
        .flat_map(|host| [format!("10.50.0.{host}"), format!("2001:db8:50::{host}")])
        .map(|text| text.parse().expect("an address"))
        .collect();
    let theirs = destinations.clone();
    scenario.lab.server.run(move || {
        let mut netlink = Netlink::open().expect("root may");
        for (address, length) in [("10.2.0.2", 24), ("2001:db8:2::2", 64)] {
            let address = address.parse().expect("an address");
            netlink.add_address("eth0", address, length).expect("it is new");
        }
        for address in theirs {
            let length = if address.is_ipv4() { 32 } else { 128 };
            netlink.add_address("lo", address, length).expect("it is new");
        }
    });
    // The router queries each next hop again and again: here until it has found the second.
    scenario.warm_up(&["10.2.0.2", "2001:db8:2::2"].map(|text| text.parse().expect("an address")));
    for &destination in &destinations {
        all_answered(&scenario.lab.client, destination, 56);
    }
    for route in scenario.source().routes() {
        if route.kind == RouteKind::Group {
            let share = |via: &str| {
                let member = route.group.iter().find(|member| member.via == via);
                member.expect("it is a member").share
            };
            let shares = match route.prefix.as_str() {
                "10.50.0.0/16" => ["10.2.0.1", "10.2.0.2", "10.2.0.77"].map(share),
                "2001:db8:50::/48" => {
                    ["2001:db8:2::1", "2001:db8:2::2", "2001:db8:2::77"].map(share)
                }
                other => panic!("{other}: no such group"),
            };
            assert_eq!(shares, [0.5, 0.5, 0.0], "{}", route.prefix);
        }
    }
    let ledger = scenario.finish();
    assert_eq!(ledger.dropped.get("neighbour_failed"), None, "{ledger:#?}");
}
