use std::collections::{BTreeSet, HashMap};

use manylane_frame::vocabulary::PortId;

use super::*;

/// The door's table is the specification: each row is walked, for both families, and each pair of state
/// and event that has no row must change and send nothing.
#[test]
fn every_row_of_the_state_table_holds_and_nothing_else_moves() {
    for key in [V4, V6] {
        let timing = OwnTiming::of(key.addr);
        let mut rows = HashMap::new();
        for [state, event, next, sends, _] in table_of_the_door() {
            let twice = rows.insert((state.clone(), event.clone()), (next, sends)).is_some();
            assert!(!twice, "{state}, {event}: two rows");
        }
        let mut unwalked: BTreeSet<_> = rows.keys().cloned().collect();
        for (before, event) in happenings(key, &timing) {
            let word = door_word(&before, event, &timing);
            let pair = (format!("`{:?}`", before.state), word.to_owned());
            let (after, sends) = step(&before, event, at(12), &timing, 500);
            check(&after);
            match rows.get(&pair) {
                Some((next, sent)) => {
                    assert_eq!(format!("`{:?}`", after.state), *next, "{before:?}, {event:?}");
                    assert_eq!(name_of(sends), *sent, "{before:?}, {event:?}");
                }
                None => assert_eq!((after, sends), (before, None), "{word} has no row"),
            }
            unwalked.remove(&pair);
        }
        assert!(unwalked.is_empty(), "rows that no example walks: {unwalked:?}");
    }
}

/// RFC 5227 §2.1.1 and §2.3: three probes 1 to 2 s apart, two seconds of silence, two announcements 2 s apart.
#[test]
fn an_ipv4_address_is_probed_thrice_and_announced_twice() {
    let sent = life_of(V4, DuplicateDetection::Strict, 500);
    let expected = [
        (500, Sends::Probe, false),
        (2000, Sends::Probe, false),
        (3500, Sends::Probe, false),
        (5500, Sends::Announcement, true),
        (7500, Sends::Announcement, true),
    ];
    assert_eq!(sent, expected);
    let longest = life_of(V4, DuplicateDetection::Strict, 1000);
    assert_eq!(longest[3], (7000, Sends::Announcement, true));
}

/// RFC 4862 §5.4.2, RFC 4861 §7.2.6: one probe, a second of silence, three advertisements a second apart.
#[test]
fn an_ipv6_address_is_probed_once_and_announced_thrice() {
    let sent = life_of(V6, DuplicateDetection::Optimistic, 200);
    let expected = [
        (200, Sends::Probe, true),
        (1200, Sends::Announcement, true),
        (2200, Sends::Announcement, true),
        (3200, Sends::Announcement, true),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn without_detection_an_address_is_announced_and_nobody_is_asked() {
    for key in [V4, V6] {
        let sent = life_of(key, DuplicateDetection::Off, 0);
        assert!(sent.iter().all(|&(_, what, in_use)| what == Sends::Announcement && in_use));
        assert_eq!(sent.len(), OwnTiming::of(key.addr).announcements.into());
    }
}

/// Another station has it: we leave it at once, probe it again after seconds without using it, and take it when no
/// station answers any more.
#[test]
fn a_duplicate_is_left_and_taken_when_it_is_free_again() {
    for (key, mode) in [
        (V4, DuplicateDetection::Strict),
        (V6, DuplicateDetection::Optimistic),
        (V6, DuplicateDetection::Strict),
    ] {
        let timing = OwnTiming::of(key.addr);
        let own = first(key, mode, at(0), &timing, 0);
        let (probed, _) = step(&own, OwnEvent::Timeout, at(0), &timing, 0);
        let used = OwnEvent::Claimed(Claim::Used);
        let (lost, sends) = step(&probed, used, at(1), &timing, 0);
        assert_eq!((lost.state, lost.in_use, sends), (OwnState::Duplicate, false, None));
        assert_eq!((lost.standing(), lost.deadline), (Standing::Unused, Some(at(6))));
        let (again, sends) = step(&lost, OwnEvent::Timeout, at(6), &timing, 0);
        assert_eq!((again.state, again.in_use, sends), (OwnState::Probing, false, None));
        let mut own = again;
        while own.state == OwnState::Probing {
            assert!(!own.in_use, "whatever the mode");
            own = step(&own, OwnEvent::Timeout, own.deadline.unwrap(), &timing, 0).0;
        }
        assert_eq!((own.state, own.standing()), (OwnState::Announcing, Standing::Ours));
    }
}

/// RFC 5227 §2.4 (c): a router's address stays, and is defended once in ten seconds, however often another station uses
/// it.
#[test]
fn an_address_in_use_is_defended_once_in_ten_seconds() {
    for key in [V4, V6] {
        let timing = OwnTiming::of(key.addr);
        let mut own = held(key);
        let mut defended = Vec::new();
        for second in 100..125 {
            let used = OwnEvent::Claimed(Claim::Used);
            let (next, sends) = step(&own, used, at(second), &timing, 0);
            assert_eq!((next.state, next.in_use), (OwnState::Held, true));
            defended.extend(sends.map(|_| second));
            own = next;
        }
        assert_eq!(defended, [100, 110, 120]);
    }
}

/// One station that answers each probe while a router starts does not take the gateway's IPv4 address from it, and two
/// that insist do not shout at each other.
#[test]
fn a_station_that_claims_the_gateway_at_start_does_not_take_it() {
    let timing = OwnTiming::of(V4.addr);
    for claim in [Claim::Used, Claim::Wanted] {
        let mut own = first(V4, DuplicateDetection::Optimistic, at(0), &timing, 0);
        let mut announced = Vec::new();
        for tenth in 0..600 {
            let now = Duration::from_millis(tenth * 100);
            let due = own.deadline.is_some_and(|due| due <= now).then_some(OwnEvent::Timeout);
            for event in due.into_iter().chain([OwnEvent::Claimed(claim)]) {
                let (next, sends) = step(&own, event, now, &timing, 0);
                check(&next);
                assert!(next.in_use, "{claim:?} at {now:?}");
                announced.extend(sends.filter(|&it| it == Sends::Announcement).map(|_| tenth));
                own = next;
            }
        }
        assert_eq!(own.state, OwnState::Held);
        match claim {
            Claim::Used => assert_eq!(announced, [0, 20, 100, 200, 300, 400, 500]),
            Claim::Wanted => assert_eq!(announced, [0, 20], "answers to its questions do the rest"),
        }
    }
}

/// What is sent, when in milliseconds, and whether the address is in use after it.
fn life_of(key: Key, mode: DuplicateDetection, draw: u32) -> Vec<(u64, Sends, bool)> {
    let timing = OwnTiming::of(key.addr);
    let mut own = first(key, mode, Duration::ZERO, &timing, draw);
    let mut sent = Vec::new();
    while let Some(now) = own.deadline {
        assert!(sent.len() < 10, "it never ends");
        let (next, sends) = step(&own, OwnEvent::Timeout, now, &timing, draw);
        sent.extend(sends.map(|sends| (now.as_millis() as u64, sends, next.in_use)));
        own = next;
        check(&own);
    }
    assert_eq!((own.state, own.in_use), (OwnState::Held, true));
    sent
}

fn check(own: &OwnAddress) {
    match own.state {
        OwnState::Announcing | OwnState::Held => assert!(own.in_use, "1: {own:?}"),
        OwnState::Duplicate => assert!(!own.in_use, "1: {own:?}"),
        OwnState::Probing => {}
    }
    assert_eq!(own.deadline.is_none(), own.state == OwnState::Held, "2: {own:?}");
}

const V4: Key =
    Key { port: PortId(1), addr: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)) };
const V6: Key = Key {
    port: PortId(1),
    addr: std::net::IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(key: Key) -> OwnAddress {
    let (state, in_use) = (OwnState::Held, true);
    let (sent, defended, since, deadline) = (0, None, at(0), None);
    OwnAddress { key, state, in_use, keeps: false, sent, defended, since, deadline }
}

/// Every state, in every shade of it that an event can tell apart, with every event.
fn happenings(key: Key, timing: &OwnTiming) -> Vec<(OwnAddress, OwnEvent)> {
    let deadline = Some(at(12));
    let probing = OwnAddress { state: OwnState::Probing, deadline, ..held(key) };
    let announcing = OwnAddress { state: OwnState::Announcing, deadline, sent: 1, ..held(key) };
    let shades = [
        OwnAddress { in_use: false, ..probing },
        probing,
        OwnAddress { keeps: true, ..probing },
        OwnAddress { keeps: true, in_use: false, ..probing },
        OwnAddress { sent: timing.probes, ..probing },
        OwnAddress { sent: 0, ..announcing },
        OwnAddress { sent: timing.announcements - 1, ..announcing },
        OwnAddress { defended: Some(at(3)), ..announcing },
        held(key),
        OwnAddress { defended: Some(at(1)), ..held(key) },
        OwnAddress { defended: Some(at(3)), ..held(key) },
        OwnAddress { state: OwnState::Duplicate, in_use: false, deadline, ..held(key) },
    ];
    let events =
        [OwnEvent::Timeout, OwnEvent::Claimed(Claim::Used), OwnEvent::Claimed(Claim::Wanted)];
    shades.into_iter().flat_map(|own| events.map(|event| (own, event))).collect()
}

/// What the door calls `event` when it meets `own`, at 12 s.
fn door_word(own: &OwnAddress, event: OwnEvent, timing: &OwnTiming) -> &'static str {
    match event {
        OwnEvent::Claimed(_) if own.keeps && own.state == OwnState::Probing => "kept",
        OwnEvent::Claimed(Claim::Wanted) => "wanted",
        OwnEvent::Claimed(Claim::Used) => match own.defended {
            Some(last) if at(12) < last + timing.defend_gap => "used again",
            _ => "used",
        },
        OwnEvent::Timeout => match own.state {
            OwnState::Probing if own.sent == timing.probes => "last timeout",
            OwnState::Announcing if own.sent + 1 == timing.announcements => "last timeout",
            _ => "timeout",
        },
    }
}

fn name_of(sends: Option<Sends>) -> &'static str {
    match sends {
        None => "nothing",
        Some(Sends::Probe) => "probe",
        Some(Sends::Announcement) => "announcement",
    }
}

fn table_of_the_door() -> Vec<[String; 5]> {
    let cells = |line: &str| -> Option<[String; 5]> {
        let row = line.strip_prefix("//! |")?.trim_end().strip_suffix('|')?;
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().ok()
    };
    let lines = include_str!("../own.rs").lines().map(cells);
    let from_head = lines.skip_while(|row| row.is_none());
    let rows: Vec<_> = from_head.skip(2).map_while(|row| row).collect();
    assert_eq!(rows.len(), 10, "the door's table");
    rows
}
