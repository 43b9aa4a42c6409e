//! What runs out is counted, and what needs it is the kernel's.

use manylane_io::netlink::kernel::Event;

use super::fake::Fake;
use super::world::{WORKS, added, hop, ip, link, neighbour, route};
use super::{Leads, apply_event, bed, leads_at, ports, to, via, written};
use crate::{Bounds, Dump, Limits, Mirror};

fn catch_up(mirror: &mut Mirror<Fake>) {
    for turn in 0..1000 {
        let pending = mirror.apply(turn, 7).pending;
        mirror.writer.check();
        mirror.writer.grace();
        if pending == 0 && !mirror.is_pending() {
            return;
        }
    }
    panic!("edits never end");
}

/// With one link and routers on it that answer.
fn small(bounds: Bounds, groups: usize, routes: usize) -> Mirror<Fake> {
    let mut mirror = Mirror::new(Fake::with(bounds, groups, routes), Limits::default());
    mirror.set_ports(&ports(1));
    apply_event(&mut mirror, Event::Link(link(1, WORKS)));
    for host in 1..=9 {
        apply_event(&mut mirror, Event::Neighbour(neighbour(1, [10, 1, 1, host].into(), 2)));
    }
    mirror
}

fn by(third: u8, hosts: &[u8]) -> manylane_io::netlink::kernel::Route {
    let hops = hosts.iter().map(|&host| hop(1, Some([10, 1, 1, host].into()))).collect();
    route(&format!("198.18.{third}.0/24"), hops)
}

#[test]
fn without_an_id_a_slot_or_a_group_a_prefix_is_the_kernels_until_there_is_one() {
    // Three ids are always in use.
    let bounds = Bounds { ids: 3 + 4, slots: 5 };
    let mut mirror = small(bounds, 1, 100);
    for third in 1..=6 {
        apply_event(&mut mirror, added(by(third, &[third])));
    }
    catch_up(&mut mirror);
    let kernels = |mirror: &Mirror<Fake>| {
        written(mirror).values().filter(|leads| **leads == Leads::To("kernel")).count()
    };
    assert_eq!(kernels(&mirror), 2);
    assert_eq!(mirror.status(0).starved, 2);
    assert!(mirror.is_whole(), "the kernel's are no lie");
    for third in 1..=3 {
        apply_event(&mut mirror, Event::RouteGone(by(third, &[third])));
    }
    catch_up(&mut mirror);
    assert_eq!((kernels(&mirror), mirror.status(0).starved), (0, 0));

    // Three slots are in use; a group of three needs more than are left.
    apply_event(&mut mirror, added(by(7, &[1, 2, 3])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.18.7.0/24"), to("kernel"));
    assert_eq!(mirror.status(0).starved, 1);
    apply_event(&mut mirror, Event::RouteGone(by(4, &[4])));
    catch_up(&mut mirror);
    let three = [(1, "10.1.1.1", true), (1, "10.1.1.2", true), (1, "10.1.1.3", true)];
    assert_eq!(leads_at(&mirror, "198.18.7.0/24"), via(&three));
    apply_event(&mut mirror, Event::RouteGone(by(5, &[5])));
    catch_up(&mut mirror);
    // A second group.
    apply_event(&mut mirror, added(by(8, &[1, 2])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.18.8.0/24"), to("kernel"));
    apply_event(&mut mirror, Event::RouteGone(by(7, &[1, 2, 3])));
    catch_up(&mut mirror);
    assert_eq!(leads_at(&mirror, "198.18.8.0/24"), via(&three[..2]));
    assert_eq!(mirror.status(0).starved, 0);
}

#[test]
fn a_prefix_that_does_not_fit_is_no_secret() {
    let bounds = Bounds { ids: 100, slots: 100 };
    // Both default routes, and two.
    let mut mirror = small(bounds, 1, 4);
    for third in 1..=4 {
        apply_event(&mut mirror, added(by(third, &[1])));
    }
    catch_up(&mut mirror);
    assert!(!mirror.is_whole());
    assert_eq!(mirror.status(0).refused, 2);
    assert_eq!(mirror.diff_written().len(), 2);
    apply_event(&mut mirror, Event::RouteGone(by(1, &[1])));
    catch_up(&mut mirror);
    assert_eq!(mirror.status(0).refused, 1);
    apply_event(&mut mirror, Event::RouteGone(by(4, &[1])));
    catch_up(&mut mirror);
    assert!(mirror.is_whole());
    assert_eq!(mirror.diff_written(), Vec::<String>::new());
}

#[test]
fn a_load_that_does_not_fit_is_written_as_far_as_it_does() {
    let bounds = Bounds { ids: 100, slots: 100 };
    let mut mirror = small(bounds, 1, 4);
    let mut dump = Dump::new(Limits::default());
    dump.extend((1..=4).map(|third| by(third, &[1])));
    mirror.load(dump);
    catch_up(&mut mirror);
    assert_eq!((mirror.writer.routes.len(), mirror.status(0).refused), (4, 2));
}

#[test]
fn a_model_without_room_says_so() {
    let limits = Limits { routes_max: 2, neighbours_max: 1, others_max: 1 };
    let mut mirror = Mirror::new(Fake::new(), limits);
    assert!(apply_event(&mut mirror, Event::Link(link(1, WORKS))));
    assert!(!apply_event(&mut mirror, Event::Link(link(2, WORKS))));
    assert!(!mirror.is_whole());
    assert!(apply_event(&mut mirror, Event::Link(link(1, 0))), "what is known may change");
    assert!(apply_event(&mut mirror, Event::Neighbour(neighbour(1, ip("10.1.1.1"), 2))));
    assert!(!apply_event(&mut mirror, Event::Neighbour(neighbour(1, ip("10.1.1.2"), 2))));
    let heard = (1..=3).filter(|&third| apply_event(&mut mirror, added(by(third, &[1]))));
    assert_eq!(heard.count(), 2);
    assert_eq!(mirror.status(0).overflows, 3);
}

/// Confirmed a few at a time, each not again until the kernel had time to hear.
#[test]
fn stale_neighbours_are_asked_for_in_turn() {
    let second = 1_000_000_000;
    let mut mirror = bed();
    assert_eq!(mirror.to_confirm(0).count(), 0, "they all answer");
    for host in 1..=100 {
        apply_event(&mut mirror, Event::Neighbour(neighbour(1, [10, 1, 1, host].into(), 4)));
    }
    super::catch_up(&mut mirror);
    let mut asked: Vec<_> = mirror.to_confirm(second).collect();
    assert_eq!(asked.len(), 64);
    assert_eq!(mirror.to_confirm(second + 1).count(), 0);
    asked.extend(mirror.to_confirm(2 * second));
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 100);
    assert_eq!(mirror.to_confirm(3 * second).count(), 0);
    assert_eq!(mirror.to_confirm(20 * second).count(), 64);
}
