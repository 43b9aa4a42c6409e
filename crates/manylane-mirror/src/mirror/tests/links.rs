//! Links that go and return.

use manylane_io::netlink::kernel::NextHopKind::Via;
use manylane_io::netlink::kernel::{Event, Family, Hop, Netconf};

use super::model::dump_of;
use super::world::{
    WORKS, added, address, group, hop, ip, link, netconf, object, replaced, route, router,
};
use super::{apply_event, bed, catch_up, leads_at, to, via};
use crate::PortFacts;
use crate::constants::{HOP_DEAD, UP};

const FAR: [&str; 2] = ["192.0.2.0/24", "2001:db8:f::/48"];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Sent to a dead exit is nothing from the first edit on, before any route is written again.
#[test]
fn a_link_that_goes_down_takes_its_routes_along() {
    for (family, far) in FAMILIES.into_iter().zip(FAR) {
        let mut mirror = bed();
        let gateway = router(family, 1, 1);
        apply_event(&mut mirror, added(route(far, vec![hop(1, Some(gateway))])));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), via(&[(1, &gateway.to_string(), true)]));

        apply_event(&mut mirror, Event::Link(link(1, 0)));
        mirror.apply(0, 0);
        assert_eq!(leads_at(&mirror, far), via(&[(1, &gateway.to_string(), false)]));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), None);
        assert!(mirror.take_unconfirmed());
    }
}

/// A dump says what the model has heard already: nothing is different, and something is left to write.
#[test]
fn a_way_that_lives_again_just_before_a_dump_is_sent_by() {
    let mut mirror = bed();
    let (one, two) = (router(Family::V4, 1, 1), router(Family::V4, 2, 1));
    let dead = Hop { flags: HOP_DEAD, ..hop(1, Some(one)) };
    apply_event(&mut mirror, added(route(FAR[0], vec![dead, hop(2, Some(two))])));
    catch_up(&mut mirror);
    apply_event(&mut mirror, Event::Address(address(1, router(Family::V4, 1, 253))));
    let dump = dump_of(&mirror.kernel);
    mirror.resync(dump, &mut || {});
    catch_up(&mut mirror); // Looks whether all is written.
    let members = [(1, &*one.to_string(), true), (2, &*two.to_string(), true)];
    assert_eq!(leads_at(&mirror, FAR[0]), via(&members));
}

#[test]
fn a_dead_members_flows_go_to_the_others_and_return() {
    for (family, far) in FAMILIES.into_iter().zip(FAR) {
        let mut mirror = bed();
        let (one, two) = (router(family, 1, 1), router(family, 2, 1));
        let hops = vec![hop(1, Some(one)), hop(2, Some(two))];
        apply_event(&mut mirror, added(route(far, hops)));
        catch_up(&mut mirror);
        let both = |works| via(&[(1, &one.to_string(), works), (2, &two.to_string(), true)]);
        assert_eq!(leads_at(&mirror, far), both(true));
        for flags in [0, UP] {
            apply_event(&mut mirror, Event::Link(link(1, flags)));
            catch_up(&mut mirror);
            assert_eq!(leads_at(&mirror, far), both(false));
            apply_event(&mut mirror, Event::Link(link(1, WORKS)));
            catch_up(&mut mirror);
            assert_eq!(leads_at(&mirror, far), both(true));
        }
        // The second takes the route along: no way is left.
        apply_event(&mut mirror, Event::Link(link(1, 0)));
        apply_event(&mut mirror, Event::Link(link(2, 0)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), None);
    }
}

/// `ignore_routes_with_linkdown`: the route stays, and is not used until the carrier is back.
#[test]
fn without_a_carrier_a_route_is_left_out_where_that_is_set() {
    for (family, far) in FAMILIES.into_iter().zip(FAR) {
        let mut mirror = bed();
        let gateway = router(family, 1, 1);
        apply_event(&mut mirror, added(route(far, vec![hop(1, Some(gateway))])));
        let mut second = route(far, vec![hop(2, Some(router(family, 2, 1)))]);
        second.priority = 100;
        apply_event(&mut mirror, added(second));
        apply_event(&mut mirror, Event::Link(link(1, UP)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), via(&[(1, &gateway.to_string(), false)]));

        apply_event(&mut mirror, Event::Netconf(netconf(1, family, true)));
        catch_up(&mut mirror);
        let other = via(&[(2, &router(family, 2, 1).to_string(), true)]);
        assert_eq!(leads_at(&mirror, far), other);
        apply_event(&mut mirror, Event::Link(link(1, WORKS)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), via(&[(1, &gateway.to_string(), true)]));
    }
}

/// On carrier loss, and without a message about it.
#[test]
fn next_hop_objects_go_with_the_carrier_and_their_routes_with_them() {
    for (family, far) in FAMILIES.into_iter().zip(FAR) {
        let mut mirror = bed();
        let (one, two) = (router(family, 1, 1), router(family, 2, 1));
        apply_event(&mut mirror, Event::NextHop(object(1, Via(hop(1, Some(one))))));
        apply_event(&mut mirror, Event::NextHop(object(2, Via(hop(2, Some(two))))));
        apply_event(&mut mirror, Event::NextHop(object(3, group(&[(1, 1), (2, 1)]))));
        let by = |prefix: &str, id| {
            let mut route = route(prefix, Vec::new());
            route.next_hop = Some(id);
            added(route)
        };
        apply_event(&mut mirror, by(far, 3));
        let default = if family == Family::V4 { "0.0.0.0/0" } else { "::/0" };
        apply_event(&mut mirror, by(default, 1));
        catch_up(&mut mirror);
        let (one, two) = (one.to_string(), two.to_string());
        assert_eq!(leads_at(&mirror, far), via(&[(1, &one, true), (2, &two, true)]));

        apply_event(&mut mirror, Event::Link(link(1, UP)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), via(&[(2, &two, true)]));
        assert_eq!(leads_at(&mirror, default), to("none"));
        apply_event(&mut mirror, Event::Link(link(1, WORKS)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), via(&[(2, &two, true)]), "objects do not return");
        apply_event(&mut mirror, Event::Link(link(2, 0)));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, far), None);
        assert_eq!(mirror.kernel().next_hops().count(), 0);
    }
}

#[test]
fn a_device_that_is_gone_takes_ipv4_routes_along_and_leaves_ipv6_siblings() {
    let mut mirror = bed();
    for (family, far) in FAMILIES.into_iter().zip(FAR) {
        let hops = [1, 2].map(|link| hop(link, Some(router(family, link, 1))));
        apply_event(&mut mirror, added(route(far, hops.to_vec())));
    }
    apply_event(&mut mirror, Event::LinkGone(1));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, FAR[0]), None);
    assert_eq!(leads_at(&mirror, FAR[1]), via(&[(2, "2001:db8:2::1", true)]));
    assert!(mirror.kernel().neighbours().all(|neighbour| neighbour.link != 1));
}

#[test]
fn with_its_last_address_ipv4_goes_from_a_link() {
    let mut mirror = bed();
    let (one, two) = (ip("10.1.1.1"), ip("10.1.2.1"));
    apply_event(&mut mirror, added(route(FAR[0], vec![hop(1, Some(one))])));
    apply_event(
        &mut mirror,
        added(route("198.51.100.0/24", vec![hop(1, Some(one)), hop(2, Some(two))])),
    );
    apply_event(&mut mirror, Event::Address(address(1, ip("10.1.1.253"))));
    apply_event(&mut mirror, Event::AddressGone(address(1, ip("10.1.1.254"))));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, FAR[0]), via(&[(1, "10.1.1.1", true)]), "one is left");

    apply_event(&mut mirror, Event::AddressGone(address(1, ip("10.1.1.253"))));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, FAR[0]), None);
    let both = |works| via(&[(1, "10.1.1.1", works), (2, "10.1.2.1", true)]);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), both(false));
    apply_event(&mut mirror, Event::Address(address(1, ip("10.1.1.253"))));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.51.100.0/24"), both(true));
}

/// The kernel is strict about sources where it has no IPv4 address, and so are we.
#[test]
fn without_an_ipv4_address_a_loose_filter_is_strict() {
    let mut mirror = bed();
    let gate = PortFacts::default;
    let filter =
        |rp_filter| Netconf { rp_filter: Some(rp_filter), ..netconf(1, Family::V4, false) };
    let mine = || address(1, ip("10.1.1.254"));
    let mut seen = Vec::new();
    for set in [0, 1, 2] {
        apply_event(&mut mirror, Event::Netconf(filter(set)));
        let with = mirror.kernel().port_facts(1, gate()).rp_filter;
        apply_event(&mut mirror, Event::AddressGone(mine()));
        seen.push((with, mirror.kernel().port_facts(1, gate()).rp_filter));
        apply_event(&mut mirror, Event::Address(mine()));
    }
    assert_eq!(seen, [(0, 0), (1, 1), (2, 1)]);
}

/// Own addresses are ours while their device is down, in IPv4.
#[test]
fn routes_of_scope_host_stay_while_their_device_is_down() {
    let mut mirror = bed();
    let mut local = route("10.1.1.254/32", vec![hop(1, None)]);
    (local.table, local.kind, local.scope) = (255, 2, 254);
    apply_event(&mut mirror, added(local));
    apply_event(&mut mirror, Event::Link(link(1, 0)));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "10.1.1.254/32"), to("local"));
    apply_event(&mut mirror, Event::AddressGone(address(1, ip("10.1.1.254"))));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "10.1.1.254/32"), None);
}

/// However many prefixes it has, one word is written.
#[test]
fn a_next_hop_objects_replacement_is_one_word() {
    let mut mirror = bed();
    apply_event(&mut mirror, Event::NextHop(object(7, Via(hop(1, Some(ip("10.1.1.1")))))));
    for third in 0..=255 {
        let mut route = route(&format!("198.18.{third}.0/24"), Vec::new());
        route.next_hop = Some(7);
        apply_event(&mut mirror, added(route));
    }
    catch_up(&mut mirror);
    let edits = mirror.writer.edits;
    apply_event(&mut mirror, Event::NextHop(object(7, Via(hop(2, Some(ip("10.1.2.1")))))));
    // The flood of routes that comes with it says nothing new.
    for third in 0..=255 {
        let mut route = route(&format!("198.18.{third}.0/24"), vec![hop(2, Some(ip("10.1.2.1")))]);
        route.next_hop = Some(7);
        assert!(!apply_event(&mut mirror, replaced(route)));
    }
    catch_up(&mut mirror);
    assert_eq!(mirror.writer.edits, edits + 1, "the neighbour's slot was there already");
    assert_eq!(leads_at(&mirror, "198.18.77.0/24"), via(&[(2, "10.1.2.1", true)]));
}

#[test]
fn a_default_route_that_goes_and_comes_is_one_word_each_time() {
    for (family, default) in FAMILIES.into_iter().zip(["0.0.0.0/0", "::/0"]) {
        let mut mirror = bed();
        assert_eq!(leads_at(&mirror, default), to("none"));
        let gateway = router(family, 1, 1);
        let routed = route(default, vec![hop(1, Some(gateway))]);
        let edits = mirror.writer.edits;
        apply_event(&mut mirror, added(routed.clone()));
        assert_eq!(mirror.changes.len(), 1, "no neighbour is looked at");
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, default), via(&[(1, &gateway.to_string(), true)]));
        apply_event(&mut mirror, Event::RouteGone(routed));
        catch_up(&mut mirror);
        assert_eq!(leads_at(&mirror, default), to("none"));
        assert_eq!(mirror.writer.edits, edits + 2);
    }
}
