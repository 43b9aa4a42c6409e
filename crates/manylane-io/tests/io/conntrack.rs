//! Connections are looked up, changed and listed as the kernel has them, and their ends are heard of. Needs root.

use std::time::Duration;

use manylane_io::netlink::conntrack::{Change, Changed, Conntrack, ConntrackEvents, Status, Tcp};

use crate::common;
use crate::common::connections::{Made, Maker, made, one, turned};

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
            assert_eq!(Some(found), one(&mut conntrack, made.reply));
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
            assert_eq!(answer.expect("it is there"), Changed::Announcing(found));
            assert!(found.timeout.is_some_and(|left| left <= Duration::from_secs(77)));
            if let Some(tcp) = found.tcp {
                assert_eq!(tcp.flags, [Tcp::BE_LIBERAL; 2]);
            }
        }
    });
}
