//! Connections are looked up, changed and listed as the kernel has them, and their ends are heard of. Needs root.

use std::ops::ControlFlow;
use std::time::Duration;

use manylane_io::netlink::conntrack::{
    Change, Changed, Conntrack, ConntrackEvents, Status, Tcp, Timeouts,
};

use crate::common;
use crate::common::connections::{Made, Maker, attribute, made, one, timeless, tuple, turned};

/// Both families and both protocols.
fn four() -> [Made; 4] {
    [
        made(libc::IPPROTO_TCP, false, 1),
        made(libc::IPPROTO_UDP, false, 1),
        made(libc::IPPROTO_TCP, true, 1),
        made(libc::IPPROTO_UDP, true, 1),
    ]
}

fn conntrack() -> Conntrack {
    Conntrack::open().expect("root may, and the kernel has connection tracking")
}

#[test]
fn a_connection_is_found_by_either_of_its_tuples() {
    let Some(host) = common::host("found") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        for made in four().map(|made| Made { mark: 7, ..made }) {
            maker.make(&made);
            let found = one(&mut conntrack, made.original).expect("it was just made");
            let by_reply = one(&mut conntrack, made.reply).map(timeless);
            assert_eq!(Some(timeless(found)), by_reply);
            assert_eq!((found.original, found.reply, found.mark), (made.original, made.reply, 7));
            assert!(found.status.contains(Status::CONFIRMED | Status::ASSURED), "{found:?}");
            let left = found.timeout.expect("it is not offloaded");
            assert!((Duration::from_secs(990)..=Duration::from_secs(1000)).contains(&left));
            let is_tcp = i32::from(made.original.protocol) == libc::IPPROTO_TCP;
            assert_eq!(found.tcp.map(|tcp| tcp.state), is_tcp.then_some(Tcp::ESTABLISHED));
            assert!(!found.has_helper && !found.has_synproxy && !found.has_master);
            assert!(!found.has_sequence_adjustment && found.zone == 0);
            maker.delete(&made.original);
            assert_eq!(one(&mut conntrack, made.original), None);
        }
    });
}

#[test]
fn of_ten_thousand_lookups_half_find_something() {
    let Some(host) = common::host("many") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        let all: Vec<_> =
            (0..10_000).map(|number| made(libc::IPPROTO_TCP, false, number)).collect();
        all.iter().step_by(2).for_each(|made| maker.make(made));
        let tuples: Vec<_> = all.iter().map(|made| made.original).collect();
        let found = conntrack.get(&tuples).expect("root may");
        assert_eq!(found.len(), tuples.len());
        for (index, (found, tuple)) in found.iter().zip(&tuples).enumerate() {
            let expected = (index % 2 == 0).then_some(*tuple);
            assert_eq!(found.map(|found| found.original), expected, "{index}");
        }
        let mut listed = Vec::new();
        conntrack.dump(|connection| listed.push(connection)).expect("root may");
        listed.sort_by_key(|connection| connection.original.source_port);
        let found: Vec<_> = found.into_iter().flatten().collect();
        let identity = |all: &[manylane_io::netlink::conntrack::Connection]| {
            all.iter().map(|one| (one.original, one.id)).collect::<Vec<_>>()
        };
        assert_eq!(identity(&listed), identity(&found));
        assert_eq!(conntrack.get(&[]).expect("root may"), []);
        // Some of a list, and all of one: a socket is read until that is enough.
        for enough in [1, 3000, listed.len() + 1] {
            let mut some = Vec::new();
            let conntrack = Conntrack::open().expect("root may");
            let read = conntrack.dump_until(|connection| {
                some.push(connection);
                match some.len() < enough {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            read.expect("root may");
            assert_eq!(some.len(), enough.min(listed.len()));
        }
    });
}

#[test]
fn a_liberal_connection_reads_back_as_liberal() {
    let Some(host) = common::host("liberal") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        let _events = ConntrackEvents::open(&conntrack, 1 << 20).expect("root may");
        let four = four();
        four.iter().for_each(|made| maker.make(made));
        let wanted =
            |tuple| Change { tuple, liberal: true, timeout: Some(Duration::from_secs(77)) };
        let absent = wanted(made(libc::IPPROTO_TCP, false, 9).original);
        let mut changes: Vec<_> = four.iter().map(|made| wanted(made.original)).collect();
        changes[1].tuple = turned(changes[1].tuple);
        changes.insert(2, absent);
        let answers = conntrack.change_with_echo(&changes).expect("root may");
        assert_eq!(answers.len(), 5);
        for (change, answer) in changes.iter().zip(answers) {
            if *change == absent {
                let error = answer.expect_err("there is no such connection");
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
                continue;
            }
            let found = one(&mut conntrack, change.tuple).expect("it is there");
            let Ok(Changed::Announcing(echo)) = answer else { panic!("{answer:?}") };
            assert_eq!(timeless(echo), timeless(found));
            assert!(found.timeout.is_some_and(|left| left <= Duration::from_secs(77)));
            if let Some(tcp) = found.tcp {
                assert_eq!(tcp.flags, [Tcp::BE_LIBERAL; 2]);
            }
        }
    });
}

/// The kernel says of a connection why a lane has to leave it alone. A part that this kernel lacks is passed over.
#[test]
fn extensions_and_zones_are_told() {
    let Some(host) = common::host("extensions") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        let mut next = 0;
        let mut with = |more: &[Vec<u8>]| {
            next += 1;
            let made = made(libc::IPPROTO_TCP, false, next);
            match maker.try_make(&made, more) {
                Ok(()) => Some(made.original),
                Err(error) => {
                    common::skip(format!("{more:02x?}: {error}"));
                    None
                }
            }
        };
        let numbers = |number: u32| {
            (1..4).flat_map(|kind| attribute(kind, &number.to_be_bytes())).collect::<Vec<_>>()
        };
        let plain = with(&[]).expect("no part is special");
        if let Some(helped) = with(&[attribute(CTA_HELP, &attribute(1, b"ftp\0"))]) {
            let found = one(&mut conntrack, helped).expect("it was just made");
            assert!(found.has_helper && found.status.contains(Status::HELPER));
        }
        if let Some(expected) = with(&[tuple(CTA_TUPLE_MASTER, &plain)]) {
            let found = one(&mut conntrack, expected).expect("it was just made");
            assert!(found.has_master && found.status.contains(Status::EXPECTED));
        }
        if let Some(moved) = with(&[attribute(CTA_SEQ_ADJ_ORIG, &numbers(5))]) {
            let found = one(&mut conntrack, moved).expect("it was just made");
            assert!(found.has_sequence_adjustment, "{found:?}");
            assert!(found.status.contains(Status::SEQUENCE_ADJUST), "{found:?}");
        }
        if let Some(proxied) = with(&[attribute(CTA_SYNPROXY, &numbers(5))]) {
            assert!(one(&mut conntrack, proxied).expect("it was just made").has_synproxy);
        }
        let found = one(&mut conntrack, plain).expect("it was just made");
        assert!(!found.has_helper && !found.has_master && !found.has_synproxy);
        assert!(!found.has_sequence_adjustment && found.zone == 0);
    });
}

/// A request is about zone 0. The list has all.
#[test]
fn a_connection_in_another_zone_is_listed_and_not_found() {
    let Some(host) = common::host("zones") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        let made = Made { zone: 5, ..made(libc::IPPROTO_UDP, false, 1) };
        if let Err(error) = maker.try_make(&made, &[]) {
            return common::skip(format!("this kernel has no zones: {error}"));
        }
        assert_eq!(one(&mut conntrack, made.original), None);
        let mut zones = Vec::new();
        conntrack.dump(|connection| zones.push(connection.zone)).expect("root may");
        assert_eq!(zones, [5]);
    });
}

/// The kernel refuses the timeout before it looks at the flags.
#[test]
fn a_fixed_timeout_stays() {
    let Some(host) = common::host("fixed") else { return };
    host.run(|| {
        let (maker, mut conntrack) = (Maker::open(), conntrack());
        let made = made(libc::IPPROTO_TCP, false, 1);
        let fixed = Made { status: made.status | Status::FIXED_TIMEOUT.0, ..made };
        maker.make(&fixed);
        let change = |timeout| Change { tuple: made.original, liberal: true, timeout };
        let answers = conntrack.change(&[change(Some(Duration::from_secs(7)))]).expect("root may");
        let error = answers[0].as_ref().expect_err("its timeout is fixed");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        let flags = |conntrack: &mut Conntrack| {
            let found = one(conntrack, made.original).expect("it is there");
            assert!(found.timeout > Some(Duration::from_secs(900)), "{found:?}");
            found.tcp.expect("it is TCP").flags
        };
        assert_eq!(flags(&mut conntrack), [0; 2], "not changed at all");
        assert!(conntrack.change(&[change(None)]).expect("root may")[0].is_ok());
        assert_eq!(flags(&mut conntrack), [Tcp::BE_LIBERAL; 2]);
    });
}

#[test]
fn timeouts_are_those_of_the_namespace() {
    let Some(host) = common::host("timeouts") else { return };
    common::setting(&host, "net/netfilter/nf_conntrack_udp_timeout_stream", "33");
    common::setting(&host, "net/netfilter/nf_conntrack_tcp_timeout_established", "44");
    let timeouts = host.run(Timeouts::read).expect("connection tracking is there");
    assert_eq!(timeouts.udp_stream, Duration::from_secs(33));
    assert_eq!(timeouts.tcp_established, Duration::from_secs(44));
    assert!(timeouts.udp < timeouts.tcp_unacknowledged, "the kernel's own: {timeouts:?}");
}

const CTA_HELP: u16 = 5;
const CTA_TUPLE_MASTER: u16 = 14;
const CTA_SEQ_ADJ_ORIG: u16 = 15;
const CTA_SYNPROXY: u16 = 24;
