//! FRR on four accelerated routers in a diamond: OSPF between them, BGP for the hosts' networks, both with ECMP.

use crate::diamond::{Diamond, LINKS};
use manylane_lab::SERVER_V4;
use manylane_lab::daemons::Frr;

#[test]
fn traffic_follows_frr_and_flows_are_spread_at_both_hops() {
    if !Frr::is_here() {
        return;
    }
    let Some(diamond) = Diamond::make() else { return };
    let daemons = [1, 2, 3, 4].map(|router| {
        Frr::start(
            diamond.router(router),
            &[("zebra", zebra(router)), ("ospfd", &ospf(router)), ("bgpd", &bgp(router))],
        )
    });
    let shown = || daemons.iter().map(|frr| frr.ask("show ip route")).collect::<String>();
    diamond.check(&[SERVER_V4], &shown);
}

/// With next-hop objects, but where a member of a group goes and comes back: the kernel takes it out of its group by
/// itself, and zebra 8.4 does not notice that it has to put it there again.
fn zebra(router: u8) -> &'static str {
    if router == 1 { "no zebra nexthop kernel enable\n" } else { "" }
}

/// How to get to the others' loopback addresses: two ways of the same cost at each hop.
fn ospf(router: u8) -> String {
    let mut text = format!(
        "router ospf\n ospf router-id 10.255.0.{router}\n network 10.255.0.0/16 area 0\n \
         network 172.16.0.0/16 area 0\n maximum-paths 8\n timers throttle spf 10 100 1000\n timers throttle lsa all 100\n"
    );
    for (one, its, other, others, _) in LINKS {
        for (_, interface) in [(one, its), (other, others)].iter().filter(|end| end.0 == router) {
            // A veth that is set up again has another speed for zebra, and so another cost, unless it is said here.
            // A short time to find each other; a long one to give up, for busy machines: cuts are seen by the carrier.
            text += &format!(
                "interface {interface}\n ip ospf network point-to-point\n ip ospf cost 10\n \
                 ip ospf hello-interval 1\n ip ospf dead-interval 40\n"
            );
        }
    }
    text
}

/// All of them in one AS, each with each, by their loopback addresses: where a host's network is. The kernel gets the
/// ways that OSPF has to the router that says so.
fn bgp(router: u8) -> String {
    let mut text =
        format!("router bgp 65000\n bgp router-id 10.255.0.{router}\n timers bgp 3 60\n");
    for other in (1..=4).filter(|other| *other != router) {
        text += &format!(
            " neighbor 10.255.0.{other} remote-as 65000\n neighbor 10.255.0.{other} update-source lo\n \
             neighbor 10.255.0.{other} timers connect 1\n"
        );
    }
    match router {
        1 => text += " network 10.1.0.0/24\n",
        4 => text += " network 10.2.0.0/24\n",
        _ => {}
    }
    text
}
