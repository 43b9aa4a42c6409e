//! Tests of the whole mirror.

mod bounds;
mod fake;
mod links;
mod model;
mod random;
mod resolving;
mod rules;
mod why;
mod world;

use std::collections::BTreeMap;

use manylane_io::netlink::kernel::{Event, Family, Route};
use manylane_net::fib::{IpPrefix, NextHopId};
use manylane_net::nexthop::NextHop;
use manylane_net::transit::{Action, Adjacency, Rule, TableNumber};

use super::{Limits, Mirror, Port};
use crate::destination::Via;
use fake::Fake;
use world::{WORKS, address, link, neighbour, router};

/// What a prefix leads to, in words: slots by their routers, and how these are reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leads {
    To(&'static str),
    Port(u16),
    Via(Vec<(Via, Option<u32>, u16)>),
}

/// All that is written, by prefix.
pub fn written(mirror: &Mirror<Fake>) -> BTreeMap<IpPrefix, Leads> {
    let routes = &mirror.writer.routes;
    routes.iter().map(|(prefix, id)| (*prefix, leads(mirror, *id))).collect()
}

/// Where the prefixes of further tables lead.
type Further = BTreeMap<(Family, u32), BTreeMap<IpPrefix, Leads>>;

/// What is written of rules, and of the tables that they lead to, by the kernel's numbers of these.
pub fn written_policy(mirror: &Mirror<Fake>) -> ([Vec<String>; 2], Further) {
    let numbers: Vec<(Family, u32, TableNumber)> = mirror.policies.numbers().collect();
    let of = |number: TableNumber| {
        let table = numbers.iter().find(|(.., of)| *of == number).expect("it is in use");
        format!("table {}", table.1)
    };
    let rule = |rule: &Rule| {
        let action = match rule.action {
            Action::Table(number) => of(number),
            action => format!("{action:?}"),
        };
        format!("{action}: {:?}", Rule { action: Action::Kernel, ..*rule })
    };
    let rules = mirror.writer.rules.each_ref().map(|rules| rules.iter().map(rule).collect());
    let tables = numbers.iter().map(|&(family, id, number)| {
        let routes = mirror.writer.tables[&number].iter();
        let routes = routes.map(|(prefix, id)| (*prefix, leads(mirror, *id))).collect();
        ((family, id), routes)
    });
    (rules, tables.collect())
}

/// What one prefix leads to.
pub fn leads_at(mirror: &Mirror<Fake>, prefix: &str) -> Option<Leads> {
    let prefix: IpPrefix = prefix.parse().expect("well formed");
    mirror.writer.routes.get(&prefix).map(|id| leads(mirror, *id))
}

pub fn leads(mirror: &Mirror<Fake>, id: NextHopId) -> Leads {
    let vias: BTreeMap<u32, Via> = mirror.targets.slots().map(|(via, slot)| (slot, via)).collect();
    let exit =
        |destination: &Option<Adjacency>| destination.map(|destination| destination.egress_ifindex);
    let via = |slot: u32, weight: u16| (vias[&slot], exit(&mirror.writer.slots[&slot]), weight);
    match mirror.writer.words[&id] {
        NextHop::None => Leads::To("none"),
        NextHop::Via(slot) => Leads::Via(vec![via(slot, 1)]),
        NextHop::Group(group) => {
            let members = &mirror.writer.groups[&group];
            let mut members: Vec<_> =
                members.iter().map(|member| via(member.slot, member.weight)).collect();
            members.sort();
            Leads::Via(members)
        }
        NextHop::Connected(port) => Leads::Port(port.0),
        NextHop::Local => Leads::To("local"),
        NextHop::Broadcast => Leads::To("broadcast"),
        NextHop::Blackhole => Leads::To("blackhole"),
        NextHop::Unreachable => Leads::To("unreachable"),
        NextHop::Prohibit => Leads::To("prohibit"),
        NextHop::Kernel => Leads::To("kernel"),
    }
}

/// To these routers, and whether each can be sent to.
pub fn via(routers: &[(u32, &str, bool)]) -> Option<Leads> {
    let one = |&(link, gateway, works): &(u32, &str, bool)| {
        (Via { link, gateway: world::ip(gateway), mtu: 0 }, works.then_some(link), 1)
    };
    let mut members: Vec<_> = routers.iter().map(one).collect();
    members.sort();
    Some(Leads::Via(members))
}

pub fn to(what: &'static str) -> Option<Leads> {
    Some(Leads::To(what))
}

/// Three ports that work, each with a network of both families, and routers 1 and 2 there that answer.
pub fn bed() -> Mirror<Fake> {
    let mut mirror = Mirror::new(Fake::new(), Limits::default());
    mirror.set_ports(&ports(3));
    for index in 1..=3 {
        apply_event(&mut mirror, Event::Link(link(index, WORKS)));
        for family in [Family::V4, Family::V6] {
            apply_event(&mut mirror, Event::Address(address(index, router(family, index, 254))));
            apply_event(&mut mirror, world::added(connected(family, index)));
            for host in [1, 2] {
                let router = router(family, index, host);
                apply_event(&mut mirror, Event::Neighbour(neighbour(index, router, 2)));
            }
        }
    }
    catch_up(&mut mirror);
    mirror
}

/// A connected network's route.
pub fn connected(family: Family, index: u32) -> Route {
    let hop = world::hop(index, None);
    match family {
        Family::V4 => world::route(&format!("10.1.{index}.0/24"), vec![hop]),
        Family::V6 => world::route(&format!("2001:db8:{index:x}::/64"), vec![hop]),
    }
}

pub fn ports(count: u16) -> Vec<Port> {
    let port = |number| Port { link: u32::from(number), number, is_egress: true };
    (1..=count).map(port).collect()
}

pub fn apply_event(mirror: &mut Mirror<Fake>, event: Event) -> bool {
    mirror.event(&event)
}

/// Writes everything, however often the writer waits.
pub fn catch_up(mirror: &mut Mirror<Fake>) {
    for turn in 0..1000 {
        let applied = mirror.apply(turn, 3);
        mirror.writer.check();
        if applied.pending == 0 {
            assert_eq!(mirror.diff_written(), Vec::<String>::new());
            return;
        }
        mirror.writer.grace();
    }
    panic!("edits never end: {:?}", mirror.apply(1000, 3));
}
