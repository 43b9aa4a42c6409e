//! The ends and the marks of connections, as the kernel tells them. Needs root.

use std::os::fd::AsFd;
use std::time::Duration;

use manylane_io::netlink::conntrack::{
    Change, Changed, Connection, Conntrack, ConntrackEvents, Event, Seen,
};
use manylane_io::poll::poll;

use crate::common;
use crate::common::connections::{Ear, Heard, IPCTNL_MSG_CT_NEW, Made, Maker, made, one, timeless};

fn open() -> (Maker, Conntrack, ConntrackEvents) {
    let conntrack = Conntrack::open().expect("root may");
    let events = ConntrackEvents::open(&conntrack, 1 << 20).expect("root may");
    (Maker::open(), conntrack, events)
}

fn read(events: &mut ConntrackEvents) -> Vec<Event> {
    let mut read = Vec::new();
    let seen = events.read(|event| read.push(event)).expect("the socket is open");
    assert_eq!(seen, Seen::All);
    read
}

fn tcp(number: u16) -> Made {
    made(libc::IPPROTO_TCP, false, number)
}

#[test]
fn a_deletion_is_told() {
    let Some(host) = common::host("deletion") else { return };
    host.run(|| {
        let (maker, mut conntrack, mut events) = open();
        let v6 = made(libc::IPPROTO_UDP, true, 1);
        let made = [tcp(1), v6];
        made.iter().for_each(|made| maker.make(made));
        let ids = made.map(|made| one(&mut conntrack, made.original).expect("it is new").id);
        assert_eq!(read(&mut events), [], "no beginnings");
        made.iter().for_each(|made| maker.delete(&made.original));
        poll(&[events.as_fd()], None).expect("the socket is open");
        let ended: Vec<_> = read(&mut events)
            .into_iter()
            .map(|event| match event {
                Event::Destroyed(Connection { original, reply, id, .. }) => (original, reply, id),
                Event::Marked(other) | Event::Began(other) => panic!("{other:?}"),
            })
            .collect();
        let expected = [0, 1].map(|which| (made[which].original, made[which].reply, ids[which]));
        assert_eq!(ended, expected);
    });
}

/// The kernel finds out when it meets the connection.
#[test]
fn an_expired_connection_is_told_when_it_is_looked_up() {
    let Some(host) = common::host("expired") else { return };
    host.run(|| {
        let (maker, mut conntrack, mut events) = open();
        let tuple = tcp(1).original;
        maker.make(&tcp(1));
        let change = Change { tuple, liberal: false, timeout: Some(Duration::ZERO) };
        assert!(conntrack.change(&[change]).expect("root may")[0].is_ok());
        assert_eq!(one(&mut conntrack, tuple), None);
        let told = read(&mut events);
        assert!(matches!(told[..], [Event::Destroyed(ended)] if ended.original == tuple));
    });
}

/// `nf_conntrack_events` 2, the default: a connection that began before a process listened has no room for events.
#[test]
fn an_older_connection_ends_in_silence_and_its_echo_says_so() {
    let Some(host) = common::host("older") else { return };
    common::setting(&host, "net/netfilter/nf_conntrack_events", "0");
    host.run(|| {
        let (maker, mut conntrack, mut events) = open();
        // A listener in any namespace makes room; here no process listens, as with 2 where none listens anywhere.
        maker.make(&tcp(1));
        manylane_io::sysctl::set("net/netfilter/nf_conntrack_events", "2").expect("root may");
        maker.make(&tcp(2));
        // A change of nothing has an echo too.
        let changes = [tcp(1), tcp(2)].map(|made| Change {
            tuple: made.original,
            liberal: false,
            timeout: None,
        });
        let answers = conntrack.change_with_echo(&changes).expect("root may");
        assert!(matches!(answers[0], Ok(Changed::Silent)), "{answers:?}");
        let found = one(&mut conntrack, tcp(2).original).expect("it is there");
        let Ok(Changed::Announcing(echo)) = answers[1] else { panic!("{answers:?}") };
        assert_eq!(timeless(echo), timeless(found));
        maker.delete(&tcp(1).original);
        maker.delete(&tcp(2).original);
        let told = read(&mut events);
        assert!(matches!(told[..], [Event::Destroyed(ended)] if ended.original == tcp(2).original));
    });
}

#[test]
fn a_mark_is_told_and_our_own_changes_are_not() {
    let Some(host) = common::host("marks") else { return };
    host.run(|| {
        let (maker, mut conntrack, mut events) = open();
        let tuple = tcp(1).original;
        maker.make(&tcp(1));
        maker.mark(&tuple, 5);
        assert_eq!(read(&mut events), [], "nobody asked for marks");
        events.hear_marks(true).expect("root may");
        let ear = Ear::open();
        let change = Change { tuple, liberal: true, timeout: None };
        assert!(conntrack.change(&[change]).expect("root may")[0].is_ok());
        assert!(conntrack.change_with_echo(&[change]).expect("root may")[0].is_ok());
        let update = Heard { message: IPCTNL_MSG_CT_NEW, is_new: false, mark: Some(5) };
        assert_eq!(ear.heard(), [update; 2], "the filter has something to stop");
        assert_eq!(read(&mut events), []);
        for mark in [7, 0] {
            maker.mark(&tuple, mark);
            let told = read(&mut events);
            let [Event::Marked(now)] = told[..] else { panic!("{told:?}") };
            assert_eq!((now.original, now.mark), (tuple, mark));
        }
        events.hear_marks(false).expect("root may");
        maker.mark(&tuple, 9);
        assert_eq!(read(&mut events), []);
    });
}

#[test]
fn lost_events_are_told() {
    let Some(host) = common::host("lost") else { return };
    host.run(|| {
        let conntrack = Conntrack::open().expect("root may");
        let mut events = ConntrackEvents::open(&conntrack, 1 << 16).expect("root may");
        let maker = Maker::open();
        for number in 0..1000 {
            maker.make(&tcp(number));
            maker.delete(&tcp(number).original);
        }
        let mut told = 0;
        assert_eq!(events.read(|_| told += 1).expect("the socket is open"), Seen::Lost);
        assert!((1..1000).contains(&told), "{told}");
        assert_eq!(read(&mut events), []);
        maker.make(&tcp(1));
        maker.delete(&tcp(1).original);
        assert_eq!(read(&mut events).len(), 1, "it hears again");
    });
}

/// The reader does something else in between.
#[test]
fn a_read_has_a_bound() {
    let Some(host) = common::host("bound") else { return };
    host.run(|| {
        let conntrack = Conntrack::open().expect("root may");
        let mut events = ConntrackEvents::open(&conntrack, 64 << 20).expect("root may");
        let maker = Maker::open();
        for number in 0..5000 {
            maker.make(&tcp(number));
            maker.delete(&tcp(number).original);
        }
        let mut told = 0;
        assert_eq!(events.read(|_| told += 1).expect("the socket is open"), Seen::More);
        assert_eq!(events.read(|_| told += 1).expect("the socket is open"), Seen::All);
        assert_eq!(told, 5000);
    });
}
