//! Any events in any order, a side that is busy at random: in the end the tables are those of the model.

use std::net::IpAddr;

use manylane_io::netlink::kernel::{Event, Family, Hop, Hops, NextHopKind, Route, Rule};
use proptest::prelude::*;

use super::fake::Fake;
use super::model::{self, addresses, check_against_scratch, dump_of, kernels_choice, look_up};
use super::rules::check_packets;
use super::world::{self, WORKS, router};
use super::{Leads, catch_up, ports, written};
use crate::constants::{LOWER_UP, RUNNING, UP};
use crate::{Limits, Mirror, RouteAttributes};

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    Event(Box<Event>),
    /// Write this number of prefixes; these edits are busy.
    Apply(usize, u64),
    Grace,
    Ports(u16),
    /// A dump that says what the model says, but for these events.
    Resync(Vec<Event>),
}

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn a_link() -> impl Strategy<Value = u32> {
    1u32..=4
}

fn a_router(family: Family) -> impl Strategy<Value = IpAddr> {
    (a_link(), 1u8..=3).prop_map(move |(link, host)| router(family, link, host))
}

/// Nested ones, some of them networks of links, and hosts in them.
fn a_prefix(family: Family) -> impl Strategy<Value = (IpAddr, u8)> {
    let (fixed, link_len): (Vec<(&str, u8)>, u8) = match family {
        Family::V4 => (
            vec![
                ("0.0.0.0", 0),
                ("10.0.0.0", 8),
                ("10.1.0.0", 16),
                ("10.1.1.0", 25),
                ("10.1.1.1", 32),
                ("127.0.0.0", 8),
            ],
            24,
        ),
        Family::V6 => (
            vec![
                ("::", 0),
                ("2001:db8::", 32),
                ("2001:db8:1::", 48),
                ("2001:db8:1::", 65),
                ("2001:db8:1::1", 128),
                ("ff00::", 8),
            ],
            64,
        ),
    };
    let fixed: Vec<(IpAddr, u8)> =
        fixed.into_iter().map(|(text, len)| (world::ip(text), len)).collect();
    let of_link = (1u32..=4).prop_map(move |link| (router(family, link, 0), link_len));
    prop_oneof![prop::sample::select(fixed), of_link]
}

fn a_hop(family: Family) -> impl Strategy<Value = Hop> {
    let gateway = prop_oneof![
        6 => a_router(family).prop_map(Some),
        1 => a_router(Family::V6).prop_map(Some),
        2 => Just(None),
    ];
    (a_link(), gateway, 1u16..=2, 0u8..=1, prop::bool::weighted(0.03)).prop_map(
        |(link, gateway, weight, flags, is_encapsulated)| Hop {
            link,
            gateway,
            weight,
            flags,
            is_encapsulated,
        },
    )
}

prop_compose! {
    fn a_route(family: Family)(
        (destination, prefix_len) in a_prefix(family),
        table in prop_oneof![8 => Just(254u32), 2 => Just(255), 1 => Just(253), 4 => 100u32..=101],
        priority in prop_oneof![3 => Just(0u32), 1 => Just(10)],
        kind in prop_oneof![12 => Just(1u8), 2 => Just(2), 1 => 3u8..=9],
        hops in prop::collection::vec(a_hop(family), 1..4),
        next_hop in prop_oneof![3 => Just(None), 1 => (1u32..=6).prop_map(Some)],
        odd in prop_oneof![40 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(3)],
        mtu in prop_oneof![5 => Just(None), 1 => Just(Some(1400u32))],
        scope in prop_oneof![4 => Just(0u8), 1 => Just(254)],
        protocol in prop_oneof![4 => Just(4u8), 1 => Just(9)],
    ) -> Route {
        let mut hops = if kind == 1 { hops } else { Vec::new() };
        if family == Family::V6 && hops.len() > 1 {
            // The kernel joins ways by routers only.
            for hop in &mut hops {
                hop.gateway = hop.gateway.or(Some(router(family, hop.link, 1)));
            }
            hops.truncate(if protocol == 9 { 1 } else { 4 });
        }
        Route {
            table,
            destination,
            prefix_len,
            source: (odd == 1 && family == Family::V6).then_some((world::ip("2001:db8:9::"), 48)),
            tos: if odd == 2 && family == Family::V4 { 8 } else { 0 },
            priority,
            kind,
            protocol,
            scope,
            flags: 0,
            next_hop: next_hop.filter(|_| kind == 1),
            hops: match &*hops {
                [] => Hops::One(None),
                [hop] => Hops::One(Some(*hop)),
                _ => Hops::Many(hops),
            },
            mtu,
            is_expiring: odd == 3,
        }
    }
}

fn an_object_kind() -> impl Strategy<Value = NextHopKind> {
    prop_oneof![
        6 => family().prop_flat_map(a_hop).prop_map(NextHopKind::Via),
        1 => Just(NextHopKind::Blackhole),
        4 => prop::collection::vec((1u32..=4, 1u16..=2), 1..4).prop_map(|members| world::group(&members)),
        1 => Just(NextHopKind::Fdb),
    ]
}

fn flags() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(WORKS), 2 => Just(UP), 2 => Just(0), 1 => Just(UP | LOWER_UP), 1 => Just(UP | RUNNING)]
}

fn an_event() -> BoxedStrategy<Event> {
    let route = family().prop_flat_map(a_route);
    let gone = family().prop_flat_map(a_route);
    prop_oneof![
        4 => (a_link(), flags(), 0u8..3).prop_map(|(index, flags, change)| {
            let mut link = world::link(index, flags);
            link.mtu -= u32::from(change == 1) * 100;
            link.mac = link.mac.filter(|_| change < 2);
            Event::Link(link)
        }),
        1 => a_link().prop_map(Event::LinkGone),
        2 => (a_link(), family(), 253u8..).prop_map(|(link, family, host)| Event::Address(world::address(link, router(family, link, host)))),
        2 => (a_link(), family(), 253u8..).prop_map(|(link, family, host)| Event::AddressGone(world::address(link, router(family, link, host)))),
        24 => (route, any::<bool>(), any::<bool>()).prop_map(|(route, is_replaced, is_appended)| Event::Route { route, is_replaced, is_appended }),
        8 => gone.prop_map(Event::RouteGone),
        5 => (1u32..=6, an_object_kind()).prop_map(|(id, kind)| {
            // A group is of such as are none.
            let is_group = matches!(kind, NextHopKind::Group { .. });
            Event::NextHop(world::object(if is_group { 5 + id % 2 } else { id % 4 + 1 }, kind))
        }),
        1 => (1u32..=6).prop_map(Event::NextHopGone),
        8 => (a_link(), family(), 0u8..=5, prop_oneof![3 => Just(2u16), 1 => Just(4), 1 => Just(0x20)], any::<bool>())
            .prop_map(|(link, family, host, state, is_strange)| {
                let on = if is_strange { link % 4 + 1 } else { link };
                Event::Neighbour(world::neighbour(on, router(family, link, host), state))
            }),
        2 => (a_link(), family(), 0u8..=5).prop_map(|(link, family, host)| {
            Event::NeighbourGone(world::neighbour(link, router(family, link, host), 0))
        }),
        1 => (a_link(), family(), any::<bool>())
            .prop_map(|(link, family, ignores)| Event::Netconf(world::netconf(link as i32, family, ignores))),
    ]
    .boxed()
}

prop_compose! {
    fn a_rule(family: Family)(
        priority in prop_oneof![6 => 1u32..4, 1 => Just(32_766u32), 1 => Just(40_000)],
        action in prop_oneof![8 => Just(1u8), 1 => Just(6), 1 => Just(7), 1 => Just(3)],
        table in prop_oneof![6 => 100u32..=102, 2 => Just(254), 1 => Just(253), 1 => Just(255)],
        from in prop::option::weighted(0.4, a_prefix(family)),
        to in prop::option::weighted(0.3, a_prefix(family)),
        iif in prop::option::weighted(0.2, 1u32..=5),
        tos in prop_oneof![5 => Just(0u8), 1 => Just(0x10)],
        flags in prop_oneof![8 => Just(0u32), 1 => Just(2)],
        others in prop_oneof![8 => Just(vec![]), 1 => Just(vec!["mark"]), 1 => Just(vec!["l3mdev"])],
        rest in prop_oneof![4 => Just(vec![]), 1 => Just(vec![1])],
    ) -> Rule {
        let some = |net: Option<(IpAddr, u8)>| net.filter(|&(_, len)| len > 0);
        let iif = iif.map(|link| format!("eth{link}"));
        Rule { action, from: some(from), to: some(to), iif, tos, flags, others, rest, ..world::rule(family, priority, table) }
    }
}

/// Rules come and go, too; now and then the usual ones.
fn an_event_with_rules() -> BoxedStrategy<Event> {
    let usual = || {
        let which = (family(), prop::sample::select(world::USUAL_RULES.to_vec()));
        which.prop_map(|(family, (priority, table))| world::rule(family, priority, table))
    };
    prop_oneof![
        30 => an_event(),
        10 => family().prop_flat_map(a_rule).prop_map(Event::Rule),
        6 => family().prop_flat_map(a_rule).prop_map(Event::RuleGone),
        2 => usual().prop_map(Event::Rule),
        1 => usual().prop_map(Event::RuleGone),
    ]
    .boxed()
}

fn a_step(an_event: fn() -> BoxedStrategy<Event>) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => an_event().prop_map(|event| Step::Event(Box::new(event))),
        2 => (1usize..5, any::<u64>(), any::<u64>()).prop_map(|(max, one, two)| Step::Apply(max, one & two)),
        2 => Just(Step::Apply(100, 0)),
        1 => Just(Step::Grace),
        1 => (0u16..=4).prop_map(Step::Ports),
        1 => prop::collection::vec(an_event(), 0..4).prop_map(Step::Resync),
    ]
}

fn run(mirror: &mut Mirror<Fake>, steps: &[Step]) {
    for (now, step) in (0..).zip(steps) {
        match step {
            Step::Event(event) => _ = mirror.event(event),
            Step::Apply(max, busy) => {
                mirror.writer.busy = *busy;
                mirror.apply(now, *max);
                mirror.writer.busy = 0;
                check_exits(mirror);
            }
            Step::Grace => mirror.writer.grace(),
            Step::Ports(count) => mirror.set_ports(&ports(*count)),
            Step::Resync(events) => {
                let mut dump = dump_of(&mirror.kernel);
                events.iter().for_each(|event| super::model::apply_to(&mut dump.kernel, event));
                // Only a dump of its own has routes in its own order.
                let dump = dump_of(&dump.kernel);
                mirror.resync(dump, &mut || {});
            }
        }
        mirror.writer.check();
    }
}

/// However much waits, nothing is sent to where nothing can be sent.
fn check_exits(mirror: &Mirror<Fake>) {
    for destination in mirror.writer.slots.values().flatten() {
        let link = mirror.kernel.link(destination.egress_ifindex).expect("it was there");
        assert_eq!(
            link.flags & (UP | LOWER_UP),
            UP | LOWER_UP,
            "{destination:?} leads to a dead exit"
        );
        assert_eq!(link.mac, Some(destination.source.0));
        assert!(destination.mtu <= link.mtu);
        assert_eq!(destination.egress_port, mirror.ports.number(destination.egress_ifindex));
    }
}

/// The tables are what a look at the model says, address by address.
fn check_lookups(mirror: &Mirror<Fake>) {
    let written = written(mirror);
    for address in addresses(&mirror.kernel) {
        let found = look_up(&written, address);
        match kernels_choice(&mirror.kernel, address) {
            None => {
                assert!(
                    matches!(found, Some(Leads::To("kernel" | "local"))),
                    "{address}: {found:?}"
                );
            }
            Some(choice) => {
                check_choice(address, found, choice, model::is_ours(&mirror.kernel, address))
            }
        }
    }
}

/// What was found for an address is what the kernel chooses, or the kernel itself.
pub fn check_choice(
    address: IpAddr,
    found: Option<&Leads>,
    choice: Option<RouteAttributes>,
    is_ours: bool,
) {
    let expected: &[&str] = match choice.as_ref().map(|attributes| attributes.kind) {
        None => &["none"],
        Some(2 | 4) => &["local"],
        Some(3) => &["broadcast"],
        Some(6) => &["blackhole"],
        Some(7) => &["unreachable"],
        Some(8) => &["prohibit"],
        Some(1) => &["blackhole"],
        Some(_) => &[],
    };
    let attributes = choice.filter(|attributes| attributes.kind == 1);
    match found {
        Some(Leads::To("kernel")) => (),
        // What lies in a prefix of local, or what main says to be ours.
        Some(Leads::To(to @ ("local" | "broadcast"))) if !expected.contains(to) => {
            assert!(is_ours, "{address}");
        }
        Some(Leads::To("blackhole")) if attributes.is_some() => {
            assert!(
                attributes.is_some_and(|attributes| attributes.next_hop.is_some()),
                "{address}"
            );
        }
        Some(Leads::To(to)) => {
            assert!(expected.contains(to) && attributes.is_none(), "{address}: {to}")
        }
        Some(Leads::Port(_)) => {
            let attributes =
                attributes.unwrap_or_else(|| panic!("{address} is on a port, and should not"));
            let is_on_link = attributes.hops.iter().any(|hop| hop.gateway.is_none());
            assert!(is_on_link || attributes.next_hop.is_some(), "{address}");
        }
        Some(Leads::Via(vias)) => {
            let attributes = attributes.unwrap_or_else(|| panic!("{address} leads to {vias:?}"));
            for (via, ..) in vias {
                let is_by = |hop: &Hop| {
                    hop.link == via.link
                        && (hop.gateway == Some(via.gateway)
                            || hop.gateway.is_none() && via.gateway == address)
                };
                let has_routes = attributes.next_hop.is_some() || attributes.hops.iter().any(is_by);
                assert!(
                    has_routes,
                    "{address} leads to {via}, the route says {:?}",
                    attributes.hops
                );
            }
        }
        None => panic!("{address} is in no prefix, not even the default one"),
    }
}

#[test]
fn whatever_happens_the_tables_say_what_the_model_says() {
    proptest!(ProptestConfig::with_cases(1500), |(steps in prop::collection::vec(a_step(an_event), 1..120))| {
        let mut mirror = Mirror::new(Fake::new(), Limits::default());
        mirror.set_ports(&ports(3));
        run(&mut mirror, &steps);
        catch_up(&mut mirror);
        check_exits(&mirror);
        check_lookups(&mirror);
        check_against_scratch(&mut mirror);
    });
}

#[test]
fn whatever_rules_there_are_a_packet_goes_by_the_table_that_the_kernel_reads() {
    proptest!(ProptestConfig::with_cases(1500), |(steps in prop::collection::vec(a_step(an_event_with_rules), 1..120))| {
        let mut mirror = Mirror::new(Fake::new(), Limits::default());
        mirror.set_ports(&ports(3));
        for family in [Family::V4, Family::V6] {
            for (priority, table) in world::USUAL_RULES {
                mirror.event(&Event::Rule(world::rule(family, priority, table)));
            }
        }
        run(&mut mirror, &steps);
        catch_up(&mut mirror);
        check_exits(&mirror);
        check_packets(&mirror);
        check_against_scratch(&mut mirror);
    });
}
