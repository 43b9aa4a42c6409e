//! What each kind of route leads to.

use manylane_io::netlink::kernel::{Event, NextHopKind};

use super::world::{added, group, hop, ip, neighbour, object, replaced, route};
use super::{Leads, apply_event, bed, catch_up, leads_at, ports, to, via};
use crate::constants::{TABLE_DEFAULT, TABLE_LOCAL};

#[test]
fn kinds_without_a_way_are_themselves() {
    let mut mirror = bed();
    let kinds = [
        (2, "local"),
        (3, "broadcast"),
        (4, "local"),
        (5, "kernel"),
        (6, "blackhole"),
        (7, "unreachable"),
        (8, "prohibit"),
        (9, "kernel"),
        (77, "kernel"),
    ];
    for (kind, what) in kinds {
        for prefix in ["198.51.100.0/24", "2001:db8:f::/48"] {
            let mut route = route(prefix, Vec::new());
            route.kind = kind;
            apply_event(&mut mirror, added(route.clone()));
            catch_up(&mut mirror);
            assert_eq!(leads_at(&mirror, prefix), to(what), "type {kind}");
            apply_event(&mut mirror, Event::RouteGone(route));
            catch_up(&mut mirror);
            assert_eq!(leads_at(&mirror, prefix), None);
        }
    }
}

#[test]
fn what_the_program_cannot_do_is_the_kernels() {
    let mut mirror = bed();
    let mut wrapped = hop(1, Some(ip("10.1.1.1")));
    wrapped.is_encapsulated = true;
    apply_event(&mut mirror, added(route("198.51.100.0/24", vec![wrapped])));
    let on_link = vec![hop(1, None), hop(2, None)];
    apply_event(&mut mirror, added(route("198.51.101.0/24", on_link)));
    let many = (0..65).map(|host| hop(1, Some([10, 1, 1, host].into()))).collect();
    apply_event(&mut mirror, added(route("198.51.102.0/24", many)));
    apply_event(&mut mirror, Event::NextHop(object(1, NextHopKind::Via(wrapped))));
    apply_event(&mut mirror, Event::NextHop(object(2, NextHopKind::Fdb)));
    apply_event(&mut mirror, Event::NextHop(object(3, group(&[(1, 1), (4, 1)]))));
    for (id, third) in [(1, 103), (2, 104), (3, 105), (99, 106)] {
        let mut route = route(&format!("198.51.{third}.0/24"), Vec::new());
        route.next_hop = Some(id);
        apply_event(&mut mirror, added(route));
    }
    let mut by_tos = route("198.51.107.0/24", vec![hop(1, Some(ip("10.1.1.1")))]);
    apply_event(&mut mirror, added(by_tos.clone()));
    by_tos.tos = 8;
    apply_event(&mut mirror, added(by_tos));
    let mut from = route("2001:db8:f::/48", vec![hop(1, Some(ip("2001:db8:1::1")))]);
    from.source = Some((ip("2001:db8:e::"), 48));
    apply_event(&mut mirror, added(from));
    catch_up(&mut mirror);
    for third in 100..=107 {
        let prefix = format!("198.51.{third}.0/24");
        assert_eq!(leads_at(&mirror, &prefix), to("kernel"), "{prefix}");
    }
    assert_eq!(leads_at(&mirror, "2001:db8:f::/48"), to("kernel"));
}

#[test]
fn the_lowest_metric_wins_and_then_the_first() {
    let mut mirror = bed();
    let by = |link: u32, metric| {
        let mut route =
            route("198.51.100.0/24", vec![hop(link, Some([10, 1, link as u8, 1].into()))]);
        route.priority = metric;
        route
    };
    let appended = |route| Event::Route { route, is_replaced: false, is_appended: true };
    apply_event(&mut mirror, added(by(1, 20)));
    apply_event(&mut mirror, added(by(2, 10)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), via(&[(2, "10.1.2.1", true)]));
    apply_event(&mut mirror, appended(by(3, 10)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), via(&[(2, "10.1.2.1", true)]));
    // In front, as `ip route prepend` does.
    apply_event(&mut mirror, added(by(1, 10)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), via(&[(1, "10.1.1.1", true)]));
    apply_event(&mut mirror, Event::RouteGone(by(1, 10)));
    apply_event(&mut mirror, Event::RouteGone(by(2, 10)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), via(&[(3, "10.1.3.1", true)]));
    apply_event(&mut mirror, Event::RouteGone(by(3, 10)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), via(&[(1, "10.1.1.1", true)]));
}

/// The kernel prefers among such by whether their routers answer (`fib_select_default`).
#[test]
fn default_routes_of_one_metric_are_the_kernels() {
    let mut mirror = bed();
    apply_event(&mut mirror, added(route("0.0.0.0/0", vec![hop(1, Some(ip("10.1.1.1")))])));
    apply_event(&mut mirror, added(route("0.0.0.0/0", vec![hop(2, Some(ip("10.1.2.1")))])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "0.0.0.0/0"), to("kernel"));
}

#[test]
fn ipv6_routes_by_routers_join_and_leave_one_another() {
    let mut mirror = bed();
    let prefix = "2001:db8:f::/48";
    let one = hop(1, Some(ip("2001:db8:1::1")));
    let two = hop(2, Some(ip("2001:db8:2::1")));
    let both = via(&[(1, "2001:db8:1::1", true), (2, "2001:db8:2::1", true)]);
    apply_event(&mut mirror, added(route(prefix, vec![one])));
    // The message about the second has both.
    apply_event(&mut mirror, added(route(prefix, vec![two, one])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, prefix), both);
    assert!(
        !apply_event(&mut mirror, added(route(prefix, vec![one, two]))),
        "the order says nothing"
    );
    apply_event(&mut mirror, Event::RouteGone(route(prefix, vec![one])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, prefix), via(&[(2, "2001:db8:2::1", true)]));
    apply_event(&mut mirror, replaced(route(prefix, vec![one, two])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, prefix), both);
    apply_event(&mut mirror, Event::RouteGone(route(prefix, vec![one, two])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, prefix), None);
}

#[test]
fn neighbours_have_routes_where_their_network_leads_to_them() {
    for (host, cover, other) in [
        ("10.1.1.1/32", "10.1.1.0/25", "10.1.2.1"),
        ("2001:db8:1::1/128", "2001:db8:1::/65", "2001:db8:2::1"),
    ] {
        let mut mirror = bed();
        let address = ip(host.split('/').next().expect("an address"));
        let own = via(&[(1, &address.to_string(), true)]);
        assert_eq!(leads_at(&mirror, host), own);
        // A longer prefix that leads elsewhere hides the network.
        let elsewhere = route(cover, vec![hop(2, Some(ip(other)))]);
        apply_event(&mut mirror, added(elsewhere.clone()));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), None);
        apply_event(&mut mirror, Event::RouteGone(elsewhere));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), own);
        // The neighbour does not answer any more: packets to it are the kernel's.
        apply_event(&mut mirror, Event::Neighbour(neighbour(1, address, 0x20)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), None);
        // On another link than its network's.
        apply_event(&mut mirror, Event::Neighbour(neighbour(3, address, 2)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), None);
        apply_event(&mut mirror, Event::Neighbour(neighbour(1, address, 4)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), own);
        mirror.set_ports(&ports(0));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, host), None, "it is on no port");
    }
}

/// `ip route add 192.0.2.7/32 dev wan`: a network of one address, as hosters and point-to-point tunnels have it.
#[test]
fn a_neighbour_may_be_a_network_of_its_own() {
    for (prefix, router) in [("192.0.2.7/32", "10.1.2.1"), ("2001:db8:9::7/128", "2001:db8:2::1")] {
        let mut mirror = bed();
        let address = ip(prefix.split('/').next().expect("an address"));
        let own = route(prefix, vec![hop(1, None)]);
        apply_event(&mut mirror, added(own.clone()));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, prefix), Some(Leads::Port(1)), "the kernel looks for it");
        apply_event(&mut mirror, Event::Neighbour(neighbour(1, address, 2)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, prefix), via(&[(1, &address.to_string(), true)]));
        // Its own route leads to another link than the one where it is a neighbour.
        apply_event(&mut mirror, Event::RouteGone(own));
        apply_event(&mut mirror, added(route(prefix, vec![hop(2, None)])));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, prefix), Some(Leads::Port(2)));
        // A router hides it.
        apply_event(&mut mirror, Event::RouteGone(route(prefix, vec![hop(2, None)])));
        apply_event(&mut mirror, added(route(prefix, vec![hop(2, Some(ip(router)))])));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, prefix), via(&[(2, router, true)]));
    }
}

/// A connected network may be a next-hop object's, or the default route's.
#[test]
fn neighbours_follow_an_object_that_becomes_their_network() {
    let mut mirror = bed();
    apply_event(&mut mirror, Event::Neighbour(neighbour(1, ip("203.0.113.5"), 2)));
    apply_event(&mut mirror, Event::NextHop(object(1, NextHopKind::Via(hop(1, None)))));
    let mut network = route("203.0.113.0/24", Vec::new());
    network.next_hop = Some(1);
    apply_event(&mut mirror, added(network.clone()));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "203.0.113.0/24"), Some(Leads::Port(1)));
    assert_eq!(leads_at(&mirror, "203.0.113.5/32"), via(&[(1, "203.0.113.5", true)]));
    let elsewhere = NextHopKind::Via(hop(2, Some(ip("10.1.2.1"))));
    apply_event(&mut mirror, Event::NextHop(object(1, elsewhere)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "203.0.113.5/32"), None);
    apply_event(&mut mirror, Event::RouteGone(network));
    apply_event(&mut mirror, added(route("0.0.0.0/0", vec![hop(1, None)])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "203.0.113.5/32"), via(&[(1, "203.0.113.5", true)]));
}

#[test]
fn the_local_table_is_read_first() {
    let mut mirror = bed();
    let far = |prefix| route(prefix, vec![hop(1, Some(ip("10.1.1.1")))]);
    apply_event(&mut mirror, added(far("198.51.100.7/32")));
    apply_event(&mut mirror, added(far("198.51.100.64/26")));
    catch_up(&mut mirror);
    let mut local = route("198.51.100.7/32", vec![hop(9, None)]);
    (local.table, local.kind) = (TABLE_LOCAL, 2);
    apply_event(&mut mirror, added(local.clone()));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.7/32"), to("local"));
    // What lies in a prefix of it is hidden from the later ones; or not: the kernel's, by what local says.
    let mut wide = route("198.51.100.0/24", vec![hop(9, None)]);
    (wide.table, wide.kind) = (TABLE_LOCAL, 2);
    apply_event(&mut mirror, added(wide.clone()));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.64/26"), to("local"));
    apply_event(&mut mirror, Event::RouteGone(wide));
    apply_event(&mut mirror, Event::RouteGone(local));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.64/26"), via(&[(1, "10.1.1.1", true)]));
    assert_eq!(leads_at(&mirror, "198.51.100.7/32"), via(&[(1, "10.1.1.1", true)]));
    // The default table, last of all.
    let mut last = far("198.51.100.128/25");
    last.table = TABLE_DEFAULT;
    apply_event(&mut mirror, added(last));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.128/25"), via(&[(1, "10.1.1.1", true)]));
    apply_event(&mut mirror, added(far("198.51.0.0/16")));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.128/25"), to("kernel"));
    let mut elsewhere = far("203.0.113.0/24");
    elsewhere.table = 100;
    apply_event(&mut mirror, added(elsewhere));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "203.0.113.0/24"), None, "no rule reads it");
}
