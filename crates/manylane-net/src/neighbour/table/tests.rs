mod scan;

use super::super::entry::{Kind, State};
use super::*;

/// The whole way of a neighbour that is there: one question, one answer, use, one check.
#[test]
fn a_neighbour_is_found_ages_and_is_checked_when_it_is_used() {
    let mut table = Table::new(TableConfig::default());
    let actions = handle(&mut table, missing(HOST), at(0));
    let [Action::Publish { slot, state: AdjacencyState::Unresolved, .. }, question] = actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(question, Action::Solicit { key: HOST, unicast: None });
    assert_eq!(table.deadline(), Some(at(1)));

    let actions = handle(&mut table, answer(HOST, MAC), ms(2));
    let resolved = |state| Action::Publish { slot, key: HOST, state, mac: Some(MAC) };
    assert_eq!(actions, [resolved(AdjacencyState::Resolved)]);

    let lifetime = table.deadline().expect("it ages") - ms(2);
    assert!((at(15)..=at(45)).contains(&lifetime), "30 s times 0.5 to 1.5, not {lifetime:?}");
    assert_eq!(tick(&mut table, lifetime), []);
    assert_eq!(tick(&mut table, at(50)), [resolved(AdjacencyState::ResolvedReport)]);
    assert_eq!(table.deadline(), None, "nobody uses it: nothing to do");

    let used = handle(&mut table, Report::Used { slot }, at(60));
    assert_eq!(used, [resolved(AdjacencyState::Resolved)]);
    assert_eq!(tick(&mut table, ms(64_999)), []);
    let question = Action::Solicit { key: HOST, unicast: Some(MAC) };
    assert_eq!(tick(&mut table, at(65)), [question]);
    assert_eq!(handle(&mut table, answer(HOST, MAC), at(65)), []);
    assert_eq!(state_of(&table, HOST), Some(State::Reachable));
}

/// What does not speak to us stays out, or one station could fill the table with what it makes up.
#[test]
fn only_who_asks_for_us_enters_uninvited() {
    let flags = |solicited| Kind::Advertisement { router: true, solicited, overrides: true };
    for kind in [Kind::ArpReply, Kind::Gratuitous, flags(false), flags(true)] {
        let mut table = Table::new(TableConfig::default());
        let report = Report::Answer { key: HOST, mac: Some(MAC), kind };
        assert_eq!(handle(&mut table, report, at(0)), [], "{kind:?}");
        assert!(table.is_empty(), "{kind:?}");
    }
    for kind in [Kind::ArpRequest, Kind::Solicitation] {
        let mut table = Table::new(TableConfig::default());
        let report = Report::Answer { key: HOST, mac: Some(MAC), kind };
        assert_eq!(handle(&mut table, report, at(0)).len(), 1, "{kind:?}");
        assert_eq!(state_of(&table, HOST), Some(State::Stale));
    }
}

/// A next hop's neighbour is refused while its port has no carrier, and looked for when the carrier is back; a static
/// one is used again; what no next hop needs is forgotten.
#[test]
fn a_port_without_a_carrier_has_no_neighbours() {
    for family in ["10.0.0", "2001:db8:"] {
        let host = |number: u16| {
            let addr = format!("{family}{}{number}", if family.contains(':') { ":" } else { "." });
            Key { port: HOST.port, addr: addr.parse().expect("an address") }
        };
        let (pinned, fixed, other) = (host(1), host(2), host(3));
        let elsewhere = Key { port: PortId(9), ..pinned };
        let mut table = Table::new(TableConfig::default());
        let mut actions = Vec::new();
        let [slot, far] = [pinned, elsewhere].map(|key| {
            let slot = table.pin(key, at(0), &mut actions).expect("there is room");
            handle(&mut table, answer(key, MAC), at(0));
            slot
        });
        let kept = table.set(fixed, MAC, at(0), &mut actions).expect("there is room");
        handle(&mut table, missing(other), at(0));
        assert!([slot, kept, far].iter().all(|&slot| table.is_resolved(slot)));

        let mut lost = Vec::new();
        table.set_carrier(HOST.port, false, at(1), &mut lost);
        let refused =
            |slot, key| Action::Publish { slot, key, state: AdjacencyState::Failed, mac: None };
        assert!(lost.contains(&refused(slot, pinned)) && lost.contains(&refused(kept, fixed)));
        let is_forgotten = |it: &Action| matches!(it, Action::Remove { key, .. } if *key == other);
        assert!(lost.len() == 3 && lost.iter().any(is_forgotten), "{lost:?}");
        assert_eq!([slot, kept, far].map(|slot| table.is_resolved(slot)), [false, false, true]);
        assert_eq!(state_of(&table, pinned), Some(State::Failed));
        for now in 2..10 {
            let of_port = |it: &Action| matches!(it, Action::Solicit { key, .. } if *key == pinned);
            assert!(!tick(&mut table, at(now)).iter().any(of_port), "nobody can hear it");
        }
        lost.clear();
        table.set_carrier(HOST.port, false, at(10), &mut lost);
        assert_eq!(lost, [], "that is known");

        let mut back = Vec::new();
        table.set_carrier(HOST.port, true, at(11), &mut back);
        let question = Action::Solicit { key: pinned, unicast: None };
        assert!(back.contains(&question), "at once: {back:?}");
        assert_eq!([slot, kept].map(|slot| table.is_resolved(slot)), [false, true]);
        handle(&mut table, answer(pinned, MAC), at(11));
        assert!(table.is_resolved(slot));
    }
}

#[test]
fn an_address_that_no_station_has_is_not_believed() {
    let mut table = Table::new(TableConfig::default());
    handle(&mut table, missing(HOST), at(0));
    let bad = [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]].map(|mac| answer(HOST, mac));
    let nobody = Key { addr: "::".parse().expect("an address"), ..HOST };
    let nobody = Report::Answer { key: nobody, mac: Some(MAC), kind: Kind::Solicitation };
    for report in bad.into_iter().chain([nobody]) {
        assert_eq!(handle(&mut table, report, at(0)), []);
    }
    assert_eq!((state_of(&table, HOST), table.len()), (Some(State::Incomplete), 1));
    assert_eq!(table.counts().invalid, 4);
}

/// A question that was not sent does not count: it has no place, or no source address.
#[test]
fn a_question_that_could_not_be_sent_does_not_count() {
    let v6 = Key { port: HOST.port, addr: "2001:db8::9".parse().expect("an address") };
    for key in [HOST, v6] {
        let family = key.addr.is_ipv6();
        let mut table = Table::new(TableConfig::default());
        table.give_places(0);
        let slot = table.pin(key, at(0), &mut Vec::new()).expect("there is room");
        for now in 1..9 {
            assert_eq!(tick(&mut table, at(now)), []);
        }
        assert_eq!((state_of(&table, key), table.deadline()), (Some(State::Incomplete), None));
        assert!(table.needs_places());
        table.give_places(1);
        assert_eq!(table.deadline(), Some(at(0)));
        let asked = |unicast| Action::Solicit { key, unicast };
        assert_eq!(tick(&mut table, at(9)), [asked(None)]);
        table.give_places(5);
        table.set_waiting(key.port, family, true);
        table.set_waiting(PortId(77), !family, true);
        assert_eq!((tick(&mut table, at(30)), table.deadline()), (vec![], None));
        assert_eq!(state_of(&table, key), Some(State::Incomplete));
        table.set_waiting(key.port, family, false);
        for now in [30, 31] {
            assert_eq!(tick(&mut table, at(now)), [asked(None)]);
        }
        let failed = tick(&mut table, at(32));
        let [Action::Publish { state: AdjacencyState::Failed, .. }] = failed[..] else {
            panic!("three questions, and none more: {failed:?}");
        };
        table.unpin(slot);
    }
}

/// N4. A scan of a /16 through us, at ten times the rate of questions, for six seconds and a half.
#[test]
fn n4_a_scan_of_a_whole_16_evicts_no_reachable_neighbour() {
    let config = TableConfig::default();
    let mut table = Table::new(config);
    let mut proven = Vec::new();
    for host in 0..100u32 {
        let key = v4(0xc633_6400 + host);
        handle(&mut table, missing(key), ms(host.into()));
        handle(&mut table, answer(key, MAC), ms(host.into()));
        assert_eq!(state_of(&table, key), Some(State::Reachable));
        proven.push(key);
    }
    // One that is stale and one that is set: they too outlive the scan.
    let stale = v4(0xc633_65fe);
    let request = Report::Answer { key: stale, mac: Some(MAC), kind: Kind::ArpRequest };
    handle(&mut table, request, at(1));
    let set = v4(0xc633_65ff);
    table.set(set, MAC, at(1), &mut Vec::new()).expect("there is room");

    let mut questions = 0;
    for host in 0..65_536u32 {
        let now = at(1) + Duration::from_micros(100) * host;
        let mut actions = handle(&mut table, missing(v4(0x0a00_0000 + host)), now);
        if host % 64 == 0 {
            actions.extend(tick(&mut table, now));
        }
        questions += actions.iter().filter(|it| matches!(it, Action::Solicit { .. })).count();
        for slot in slots_left(&actions) {
            table.free(slot);
        }
        assert!(table.len() <= config.unproven_max + 102);
    }
    assert!(questions <= 100 + 6_554, "{questions} questions in 6.55 s");
    assert!(questions > 6_000, "{questions}: the rate was not used");
    for key in proven {
        assert_eq!(state_of(&table, key), Some(State::Reachable), "{key}");
    }
    assert_eq!(state_of(&table, stale), Some(State::Stale));
    assert_eq!(state_of(&table, set), Some(State::Permanent));
    assert!(table.counts().reclaimed > 60_000 && table.counts().refused == 0);
}

/// N4, the other direction: a station on the link makes up senders, and each would be a neighbour. In both
/// families, with a table that is full of them many times over.
#[test]
fn n4_made_up_senders_evict_no_reachable_neighbour() {
    let config = TableConfig { entries_max: 256, unproven_max: 128, ..Default::default() };
    let mut table = Table::new(config);
    let v6 = |host: u32| Key {
        port: PortId(1),
        addr: IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(host))),
    };
    let mut proven = Vec::new();
    for host in 0..50 {
        for key in [v4(0xc633_6400 + host), v6(host)] {
            handle(&mut table, missing(key), ms(host.into()));
            let kind = match key.addr {
                IpAddr::V4(_) => Kind::ArpReply,
                IpAddr::V6(_) => {
                    Kind::Advertisement { router: false, solicited: true, overrides: true }
                }
            };
            let report = Report::Answer { key, mac: Some(MAC), kind };
            handle(&mut table, report, ms(host.into()));
            proven.push(key);
        }
    }
    for host in 0..20_000 {
        for (key, kind) in
            [(v4(0x0a00_0000 + host), Kind::ArpRequest), (v6(0x1_0000 + host), Kind::Solicitation)]
        {
            let report = Report::Answer { key, mac: Some(MAC), kind };
            let actions = handle(&mut table, report, at(1) + Duration::from_micros(10) * host);
            slots_left(&actions).into_iter().for_each(|slot| table.free(slot));
            assert!(table.len() <= config.entries_max);
        }
    }
    for key in proven {
        assert_eq!(state_of(&table, key), Some(State::Reachable), "{key}");
    }
    assert_eq!((table.len(), table.counts().refused), (256, 0));
}

/// Probes of neighbours with traffic have priority over searches for those that may not exist.
#[test]
fn a_scan_leaves_tokens_to_the_checks_of_used_neighbours() {
    let mut table = Table::new(TableConfig::default());
    let request = Report::Answer { key: HOST, mac: Some(MAC), kind: Kind::ArpRequest };
    let actions = handle(&mut table, request, at(0));
    let [Action::Publish { slot, .. }] = actions[..] else { panic!("{actions:?}") };
    handle(&mut table, Report::Used { slot }, at(0));
    for host in 0..4000 {
        handle(&mut table, missing(v4(0x0a00_0000 + host)), at(5));
    }
    let check = Action::Solicit { key: HOST, unicast: Some(MAC) };
    assert!(tick(&mut table, at(5)).contains(&check));
}

/// A flood must not make a neighbour look dead that was never probed.
#[test]
fn a_question_that_waits_for_a_token_does_not_count_as_asked() {
    let config = TableConfig { questions_per_second: 1, questions_burst: 1, ..Default::default() };
    let mut table = Table::new(config);
    handle(&mut table, missing(v4(1)), at(0));
    assert_eq!(handle(&mut table, missing(HOST), at(0)).len(), 1, "published, not asked");
    let mut asked = 0;
    for second in 0..20 {
        let actions = tick(&mut table, at(second));
        asked +=
            actions.iter().filter(|it| matches!(it, Action::Solicit { key: HOST, .. })).count();
        let failed = state_of(&table, HOST) == Some(State::Failed);
        assert_eq!(failed, asked == 3 && second >= 6, "{asked} questions at {second} s");
    }
}

/// The control loop sleeps until `deadline`; one in the past that nothing can be done about would
/// make it spin.
#[test]
fn the_deadline_waits_for_a_token_too() {
    let config = TableConfig { questions_per_second: 10, questions_burst: 1, ..Default::default() };
    let mut table = Table::new(config);
    handle(&mut table, missing(v4(1)), at(1));
    handle(&mut table, missing(v4(2)), at(1));
    assert_eq!(tick(&mut table, at(1)), []);
    assert_eq!(table.deadline(), Some(ms(1100)));
    assert_eq!(tick(&mut table, ms(1100)), [Action::Solicit { key: v4(2), unicast: None }]);
}

#[test]
fn the_oldest_failed_goes_first_then_the_oldest_incomplete_then_the_stale() {
    let config = TableConfig { entries_max: 4, unproven_max: 4, ..Default::default() };
    let mut table = Table::new(config);
    let request = |host| Report::Answer { key: v4(host), mac: Some(MAC), kind: Kind::ArpRequest };
    handle(&mut table, request(1), at(0));
    handle(&mut table, missing(v4(2)), at(0));
    (0..4).for_each(|second| drop(tick(&mut table, at(second))));
    assert_eq!(state_of(&table, v4(2)), Some(State::Failed));
    handle(&mut table, missing(v4(3)), ms(3100));
    handle(&mut table, missing(v4(4)), ms(3200));

    let gone = |table: &mut Table, host| {
        let actions = handle(table, request(host), ms(3300));
        let keys = actions.iter().filter_map(|action| match action {
            Action::Remove { key, .. } => Some(*key),
            _ => None,
        });
        keys.collect::<Vec<_>>()
    };
    let order = [11, 12, 13, 14].map(|host| gone(&mut table, host));
    assert_eq!(order, [[v4(2)], [v4(3)], [v4(4)], [v4(1)]]);
}

/// Better no entry than one taken from a neighbour that is there.
#[test]
fn a_table_of_proven_neighbours_refuses_newcomers() {
    let config = TableConfig { entries_max: 2, ..Default::default() };
    let mut table = Table::new(config);
    for host in [1, 2] {
        handle(&mut table, missing(v4(host)), at(0));
        handle(&mut table, answer(v4(host), MAC), at(0));
    }
    assert_eq!(handle(&mut table, missing(v4(3)), at(0)), []);
    let refused = table.pin(v4(4), at(0), &mut Vec::new());
    assert_eq!(refused, Err(TableFull { key: v4(4), entries_max: 2 }));
    assert_eq!((table.len(), table.counts().refused), (2, 2));
}

/// A slot that a worker may still hold must not become another neighbour's.
#[test]
fn a_slot_is_not_used_again_before_it_is_given_back() {
    let config = TableConfig { entries_max: 1, spare_slots: 1, ..Default::default() };
    let mut table = Table::new(config);
    let first = handle(&mut table, missing(v4(1)), at(0));
    assert_eq!(slots_left(&first), []);
    let left = slots_left(&handle(&mut table, missing(v4(2)), at(0)));
    assert_eq!(left.len(), 1);
    assert_ne!(table.find(v4(2)).map(|(slot, _)| slot), Some(left[0]));
    assert_eq!(handle(&mut table, missing(v4(3)), at(0)), [], "no slot: nobody is given up either");
    assert_eq!(state_of(&table, v4(2)), Some(State::Incomplete));
    table.free(left[0]);
    handle(&mut table, missing(v4(3)), at(0));
    assert_eq!(table.find(v4(3)).map(|(slot, _)| slot), Some(left[0]));
}

#[test]
#[should_panic(expected = "without having been left")]
fn a_slot_in_use_cannot_be_given_back() {
    let mut table = Table::new(TableConfig::default());
    let slot = table.pin(HOST, at(0), &mut Vec::new()).expect("there is room");
    table.free(slot);
}

/// Next hops know a neighbour by its slot: neither time nor a scan nor `forget` may move it.
#[test]
fn a_pinned_neighbour_keeps_its_slot() {
    let config = TableConfig { entries_max: 4, unproven_max: 2, ..Default::default() };
    let mut table = Table::new(config);
    let slot = table.pin(HOST, at(0), &mut Vec::new()).expect("there is room");
    let same = |table: &Table| table.find(HOST).map(|(slot, _)| slot) == Some(slot);
    for second in 0..200 {
        for host in 0..4 {
            let actions = handle(&mut table, missing(v4(second * 4 + host)), at(second.into()));
            slots_left(&actions).into_iter().for_each(|slot| table.free(slot));
        }
        let actions = tick(&mut table, at(second.into()));
        slots_left(&actions).into_iter().for_each(|slot| table.free(slot));
        assert!(same(&table));
    }
    handle(&mut table, answer(HOST, MAC), at(200));
    let mut actions = Vec::new();
    assert!(table.forget(HOST, at(201), &mut actions));
    assert!(slots_left(&actions).is_empty() && same(&table));
    assert_eq!(state_of(&table, HOST), Some(State::Incomplete), "looked for anew");

    table.unpin(slot);
    for second in 202..400 {
        tick(&mut table, at(second));
    }
    assert!(table.find(HOST).is_none(), "like any other that does not answer");
}

#[test]
fn a_port_is_forgotten_and_published_alone() {
    let mut table = Table::new(TableConfig::default());
    let keys = [(1, "192.0.2.1"), (2, "192.0.2.1"), (2, "fe80::1"), (3, "fe80::1")];
    let keys = keys
        .map(|(port, addr)| Key { port: PortId(port), addr: addr.parse().expect("an address") });
    for key in keys {
        handle(&mut table, missing(key), at(0));
    }
    let mut actions = Vec::new();
    table.publish_port(PortId(2), &mut actions);
    assert_eq!(actions.len(), 2);
    actions.clear();
    table.forget_port(PortId(2), at(1), &mut actions);
    assert_eq!(slots_left(&actions).len(), 2);
    let left: Vec<_> = table.entries().map(|(_, entry)| entry.key).collect();
    assert_eq!(left, [keys[0], keys[3]]);
}

#[test]
fn what_show_neighbours_needs_is_there() {
    let mut table = Table::new(TableConfig::default());
    table.set(HOST, MAC, at(3), &mut Vec::new()).expect("there is room");
    let shown: Vec<_> = table
        .entries()
        .map(|(_, entry)| (entry.key, entry.mac, entry.state.name(), entry.age(at(10))))
        .collect();
    assert_eq!(shown, [(HOST, Some(MAC), "permanent", at(7))]);
}

const HOST: Key = v4(0xc000_0201);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

const fn v4(addr: u32) -> Key {
    Key { port: PortId(1), addr: IpAddr::V4(Ipv4Addr::from_bits(addr)) }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn missing(key: Key) -> Report {
    Report::Missing { key, requester: Requester::default() }
}

fn answer(key: Key, mac: [u8; 6]) -> Report {
    Report::Answer { key, mac: Some(mac), kind: Kind::ArpReply }
}

fn handle(table: &mut Table, report: Report, now: Duration) -> Vec<Action> {
    let mut actions = Vec::new();
    table.handle(report, now, &mut actions);
    actions
}

fn tick(table: &mut Table, now: Duration) -> Vec<Action> {
    let mut actions = Vec::new();
    table.tick(now, &mut actions);
    actions
}

fn state_of(table: &Table, key: Key) -> Option<State> {
    table.find(key).map(|(_, entry)| entry.state)
}

fn slots_left(actions: &[Action]) -> Vec<u32> {
    let left = |action: &Action| match action {
        Action::Remove { slot, .. } => Some(*slot),
        _ => None,
    };
    actions.iter().filter_map(left).collect()
}
