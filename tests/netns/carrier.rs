//! A link that loses its carrier, and gets it back.

use crate::scenario::Scenario;
use manylane_api::RouteKind;
use manylane_io::netlink::Netlink;
use manylane_lab::{CLIENT_V4, CLIENT_V6, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, until};

/// Two groups, each of a next hop on either link; and the server's link goes down and up.
#[test]
fn flows_leave_a_link_without_a_carrier_and_return_with_it() {
    let more = format!(
        "[[route]]\nprefix = \"10.50.0.0/16\"\nvia = [\"{CLIENT_V4}\", \"{SERVER_V4}\"]\n\
        [[route]]\nprefix = \"2001:db8:50::/48\"\nvia = [\"{CLIENT_V6}\", \"{SERVER_V6}\"]\n"
    );
    for drivers in [["af_xdp"; 2], ["af_packet"; 2]] {
        let router = RouterOptions { drivers, more: more.clone(), ..RouterOptions::default() };
        let Some(scenario) = Scenario::start_with(LabOptions::default(), &router) else { return };
        let source = scenario.source();
        let wait = |what: &str, servers: f64| {
            until(what, || {
                let routes = source.routes();
                let groups = routes.iter().filter(|route| route.kind == RouteKind::Group);
                let shares = groups.flat_map(|route| &route.group).map(|member| {
                    let is_servers =
                        [SERVER_V4, SERVER_V6].iter().any(|&to| member.via == to.to_string());
                    if is_servers { member.share == servers } else { member.share == 1.0 - servers }
                });
                let shares: Vec<bool> = shares.collect();
                let is_out = |prefix: &str| routes.iter().all(|route| route.prefix != prefix);
                let are_out = ["10.2.0.0/24", "2001:db8:2::/64"].map(is_out);
                match shares == [true; 4] && are_out == [servers == 0.0; 2] {
                    true => Ok(()),
                    false => Err(format!("{routes:#?}")),
                }
            });
        };
        wait("each member has its half", 0.5);
        scenario.lab.server.run(|| {
            Netlink::open().and_then(|mut netlink| netlink.set_down("eth0")).expect("root may");
        });
        wait("the client has all flows", 0.0);
        scenario.lab.server.run(|| {
            let mut netlink = Netlink::open().expect("root may");
            netlink.set_up("eth0").expect("root may");
            // The kernel has removed it with the link.
            netlink.add_address("eth0", SERVER_V6, 64).expect("it is new");
        });
        wait("each member has its half again", 0.5);
        scenario.finish();
    }
}
