//! What is said of a packet.

use manylane_io::netlink::kernel::{Event, Family};

use super::world::{added, hop, ip, router, rule};
use super::{apply_event, bed, catch_up, connected, ports};
use crate::Question;

/// Link 3 is there, its network and routers are known, and it is no port, or one that the gate keeps from sending.
#[test]
fn where_the_exit_is_the_kernels_no_neighbour_is_blamed() {
    for (is_port, said) in [(false, "which is not accelerated"), (true, "through the kernel only")]
    {
        let mut mirror = bed();
        let mut some = ports(if is_port { 3 } else { 2 });
        some.iter_mut().for_each(|port| port.is_egress = port.number < 3);
        mirror.set_ports(&some);
        for (prefix, gateway) in [
            ("198.51.100.0/24", router(Family::V4, 3, 1)),
            ("2001:db8:f::/48", router(Family::V6, 3, 1)),
            // A router that has not answered.
            ("198.51.101.0/24", router(Family::V4, 3, 9)),
            ("2001:db8:e::/48", router(Family::V6, 3, 9)),
        ] {
            apply_event(
                &mut mirror,
                added(super::world::route(prefix, vec![hop(3, Some(gateway))])),
            );
        }
        catch_up(&mut mirror);
        for destination in [
            // On the link itself, known and unknown; behind a router, known and unknown.
            "10.1.3.1",
            "10.1.3.77",
            "2001:db8:3::1",
            "2001:db8:3::77",
            "198.51.100.1",
            "198.51.101.1",
            "2001:db8:f::1",
            "2001:db8:e::1",
        ] {
            let destination = ip(destination);
            let why = mirror.why(&Question { source: None, destination, ingress: None });
            assert_eq!(why.verdict, "egress_kernel", "{destination}: {why:#?}");
            assert!(why.reason.contains("eth3") && why.reason.contains(said), "{why:#?}");
            assert_eq!(why.egress, ["eth3"], "{why:#?}");
        }
        // Where packets may leave, the neighbour is what is missing.
        for destination in ["10.1.2.77", "2001:db8:2::77"] {
            let destination = ip(destination);
            let why = mirror.why(&Question { source: None, destination, ingress: None });
            assert_eq!(why.verdict, "unresolved", "{why:#?}");
        }
    }
}

#[test]
fn tables_protocols_and_scopes_have_names() {
    let mut mirror = bed();
    for (priority, table) in super::world::USUAL_RULES {
        apply_event(&mut mirror, Event::Rule(rule(Family::V4, priority, table)));
    }
    apply_event(&mut mirror, Event::RouteGone(connected(Family::V4, 1)));
    let mut connected = connected(Family::V4, 1);
    (connected.protocol, connected.scope) = (2, 253);
    apply_event(&mut mirror, added(connected));
    catch_up(&mut mirror);
    let destination = ip("10.1.1.1");
    let why = mirror.why(&Question { source: None, destination, ingress: None });
    assert_eq!(why.rule.as_deref(), Some("ip -4 rule 32766: from all lookup main"), "{why:#?}");
    let wanted = "10.1.1.0/24 dev eth1 proto kernel scope link";
    assert!(why.routes.is_empty() || why.routes == [wanted], "{why:#?}");
    let destination = ip("10.1.1.99");
    let why = mirror.why(&Question { source: None, destination, ingress: None });
    assert_eq!(why.routes, [wanted], "{why:#?}");
}
