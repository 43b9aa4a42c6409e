use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;

use super::*;

#[test]
fn an_address_is_probed_announced_and_held() {
    let mut table = OwnTable::new([V4], DuplicateDetection::Strict, 1, at(0));
    let own = table.reader();
    assert_eq!(own.standing(V4), Standing::Unused);
    let sent = run(&mut table, 20);
    let expected = [
        OwnAction::Probe(V4),
        OwnAction::Probe(V4),
        OwnAction::Probe(V4),
        OwnAction::Use(V4),
        OwnAction::Announce(V4),
        OwnAction::Announce(V4),
    ];
    assert_eq!(sent, expected);
    assert_eq!((own.standing(V4), table.deadline()), (Standing::Ours, None));
}

#[test]
fn a_conflict_is_seen_by_workers_at_once_and_kept_for_the_operator() {
    let mut table = OwnTable::new([V4, V6], DuplicateDetection::Optimistic, 1, at(0));
    let own = table.reader();
    assert_eq!([V4, V6].map(|key| own.standing(key)), [Standing::Tentative; 2]);
    let mut actions = Vec::new();
    table.hear(V6, OTHER, Claim::Used, at(0), &mut actions);
    assert_eq!(actions, [OwnAction::Leave(V6), OwnAction::Lost(V6, OTHER)]);
    assert_eq!([V4, V6].map(|key| own.standing(key)), [Standing::Tentative, Standing::Unused]);
    table.hear(V6, OTHER, Claim::Used, at(1), &mut actions);
    let shown: Vec<_> = table.addresses().map(|(own, conflicts)| (own.state, conflicts)).collect();
    let conflicts = Conflicts { heard: 2, last: Some(OTHER) };
    let nobody = Conflicts::default();
    assert_eq!(shown, [(OwnState::Probing, nobody), (OwnState::Duplicate, conflicts)]);
    // The other one goes; seconds later the address is ours.
    let actions = run(&mut table, 70);
    assert!(actions.contains(&OwnAction::Use(V6)) && actions.contains(&OwnAction::Announce(V6)));
    assert_eq!([V4, V6].map(|key| own.standing(key)), [Standing::Ours; 2]);
}

/// The link may be another one: nothing is proven of it yet.
#[test]
fn addresses_are_probed_anew_when_the_carrier_is_back() {
    use DuplicateDetection::{Off, Optimistic, Strict};
    let elsewhere = Key { port: PortId(7), ..V4 };
    for (mode, state, used) in [
        (Optimistic, OwnState::Probing, true),
        (Strict, OwnState::Probing, false),
        (Off, OwnState::Announcing, true),
    ] {
        let mut table = OwnTable::new([V4, V6, elsewhere], mode, 1, at(0));
        run(&mut table, 20);
        let mut actions = Vec::new();
        table.restart(V4.port, at(20), &mut actions);
        let left = if used { vec![] } else { vec![OwnAction::Leave(V4), OwnAction::Leave(V6)] };
        assert_eq!(actions, left, "{mode:?}");
        let states: Vec<_> = table.addresses().map(|(own, _)| (own.state, own.in_use)).collect();
        assert_eq!(states, [(state, used), (state, used), (OwnState::Held, true)], "{mode:?}");
        let sent = run(&mut table, 40);
        assert!(sent.contains(&OwnAction::Announce(V4)) && sent.contains(&OwnAction::Announce(V6)));
        assert!(!sent.contains(&OwnAction::Announce(elsewhere)), "{mode:?}");
    }
    // One that another station has is not taken from it.
    let mut table = OwnTable::new([V6], Optimistic, 1, at(0));
    let mut actions = Vec::new();
    table.hear(V6, OTHER, Claim::Used, at(0), &mut actions);
    table.restart(V6.port, at(1), &mut actions);
    assert_eq!(table.reader().standing(V6), Standing::Unused);
    assert!(run(&mut table, 20).contains(&OwnAction::Use(V6)), "it is free now");
}

/// Also of one that was never used: and not with each probe anew.
#[test]
fn the_operator_is_told_once_that_an_address_is_lost() {
    let mut table = OwnTable::new([V4], DuplicateDetection::Strict, 1, at(0));
    let mut told = Vec::new();
    for now in 0..300 {
        let mut actions = Vec::new();
        table.hear(V4, OTHER, Claim::Used, at(now), &mut actions);
        table.tick(at(now), &mut actions);
        told.extend(actions.into_iter().filter(|it| matches!(it, OwnAction::Lost(..))));
    }
    assert_eq!(told, [OwnAction::Lost(V4, OTHER)]);
    assert!(run(&mut table, 400).contains(&OwnAction::Use(V4)));
}

/// One station claims the gateway each second, for an hour: the address stays, and the operator reads six lines of it.
#[test]
fn a_claim_to_an_address_that_is_kept_is_counted_and_seldom_told() {
    let mut table = OwnTable::new([V4], DuplicateDetection::Optimistic, 1, at(0));
    let mut actions = Vec::new();
    for now in 0..3600 {
        table.hear(V4, OTHER, Claim::Used, at(now), &mut actions);
        table.tick(at(now), &mut actions);
        assert_eq!(table.reader().standing(V4), Standing::Ours);
    }
    let count = |wanted: OwnAction| actions.iter().filter(|it| **it == wanted).count();
    assert_eq!(count(OwnAction::Kept(V4, OTHER)), 6);
    assert_eq!(count(OwnAction::Announce(V4)), 361, "at most one in ten seconds, and one more");
    assert_eq!(table.addresses().next().map(|(_, conflicts)| conflicts.heard), Some(3600));
}

/// Another station's use of an address that is not ours does not matter.
#[test]
fn a_claim_of_another_address_is_none_of_ours() {
    let mut table = OwnTable::new([V4], DuplicateDetection::Optimistic, 1, at(0));
    let mut actions = Vec::new();
    table.hear(V6, OTHER, Claim::Used, at(0), &mut actions);
    table.hear(Key { port: PortId(2), ..V4 }, OTHER, Claim::Used, at(0), &mut actions);
    assert_eq!(actions, []);
    assert_eq!(table.reader().standing(V6), Standing::Ours);
    assert_eq!(table.addresses().next().map(|(_, conflicts)| conflicts.heard), Some(0));
}

/// An address is not taken for ours by a probe that found no place on its way, nor defended by news that did.
#[test]
fn what_could_not_be_sent_moves_nothing() {
    for (key, probes) in [(V4, 3), (V6, 1)] {
        let mut table = OwnTable::new([key], DuplicateDetection::Strict, 1, at(0));
        let mut actions = Vec::new();
        table.give_places(0);
        for now in 0..20 {
            table.tick(at(now), &mut actions);
        }
        assert_eq!((&actions[..], table.deadline()), (&[][..], None));
        assert!(table.needs_places() && table.must_wait(key.port, key.addr.is_ipv6()));
        table.give_places(probes);
        assert_eq!(run(&mut table, 40), vec![OwnAction::Probe(key); probes]);
        assert_eq!(table.reader().standing(key), Standing::Unused);
        table.give_places(9);
        assert!(run(&mut table, 60).contains(&OwnAction::Use(key)));
        assert!(!table.must_wait(key.port, key.addr.is_ipv6()));
        let defence = vec![OwnAction::Kept(key, OTHER), OwnAction::Announce(key)];
        for (places, defended) in [(0, vec![]), (1, defence)] {
            table.give_places(places);
            actions.clear();
            table.hear(key, OTHER, Claim::Used, at(60), &mut actions);
            assert_eq!(actions, defended);
        }
    }
}

/// ARP can ask from the unspecified address while an address is probed and used; neighbour discovery cannot, and no
/// question is sent for a port that has given its address up.
#[test]
fn who_asks_for_neighbours_waits_for_an_address_that_may_ask() {
    use DuplicateDetection::{Off, Optimistic, Strict};
    for (mode, waits) in [(Strict, [true, true]), (Optimistic, [false, true]), (Off, [false; 2])] {
        let mut table = OwnTable::new([V4, V6], mode, 1, at(0));
        for (key, waits) in [V4, V6].into_iter().zip(waits) {
            let link = (key.port, key.addr.is_ipv6());
            assert!(table.take_changed().contains(&link) || key == V6);
            assert_eq!(table.must_wait(link.0, link.1), waits, "{mode:?} {key}");
            assert!(!table.must_wait(PortId(77), link.1));
            if mode == Strict || mode == Optimistic && key == V6 {
                table.hear(key, OTHER, Claim::Used, at(0), &mut Vec::new());
                assert_eq!(table.take_changed().into_iter().collect::<Vec<_>>(), [link]);
                assert!(
                    !table.must_wait(link.0, link.1),
                    "it is another's: there is none to wait for"
                );
            }
        }
    }
}

/// A router with many addresses must not flood its links, nor the ring to its worker, when it starts.
#[test]
fn a_thousand_addresses_are_spread_over_seconds() {
    let keys = (0..1000u32).map(|number| {
        let addr = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
        Key { port: PortId(0), addr }
    });
    let mut table = OwnTable::new(keys, DuplicateDetection::Off, 7, at(0));
    let mut actions = Vec::new();
    let mut sent = 0;
    while let Some(now) = table.deadline() {
        table.tick(now, &mut actions);
        sent += actions.len();
        assert!(actions.len() <= SENDS_BURST as usize);
        let so_far = SENDS_BURST as usize + (now.as_secs_f64() * 500.0) as usize + 1;
        assert!(sent <= so_far, "{sent} by {now:?}");
        actions.clear();
    }
    assert_eq!(sent, 2000, "none is forgotten");
}

/// Lets `seconds` pass; returns what was done in them.
fn run(table: &mut OwnTable, seconds: u64) -> Vec<OwnAction> {
    let mut actions = Vec::new();
    let end = at(seconds);
    while let Some(now) = table.deadline().filter(|&due| due <= end) {
        table.tick(now, &mut actions);
    }
    actions
}

const OTHER: [u8; 6] = [2, 9, 9, 9, 9, 9];
const V4: Key = Key { port: PortId(1), addr: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)) };
const V6: Key = Key {
    port: PortId(1),
    addr: IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
