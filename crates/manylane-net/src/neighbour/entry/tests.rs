use std::collections::{BTreeSet, HashMap};

use manylane_frame::vocabulary::PortId;

use super::*;

/// The door's table is the specification: each row is walked, and each pair of state and event that
/// has no row must change nothing.
#[test]
fn every_row_of_the_state_table_holds_and_nothing_else_moves() {
    let mut rows = HashMap::new();
    for [state, event, next, _] in table_of_the_door("State", "Next") {
        let states = if state == "any" { state_names() } else { vec![state] };
        for state in states {
            let twice = rows.insert((state.clone(), event.clone()), next.clone()).is_some();
            assert!(!twice, "{state}, {event}: two rows");
        }
    }
    let mut unwalked: BTreeSet<_> = rows.keys().cloned().collect();
    for (before, event) in happenings() {
        let pair = (name_of(before.as_ref()), door_word(before.as_ref(), event).to_owned());
        let expected = rows.get(&pair).unwrap_or(&pair.0);
        let after = happen(before.as_ref(), event);
        assert_eq!(name_of(after.as_ref()), *expected, "{before:?}, {event:?}: {}", pair.1);
        if !rows.contains_key(&pair) {
            let known = |entry: Option<Entry>| entry.map(|entry| (entry.mac, entry.deadline));
            assert_eq!(known(after), known(before), "{event:?} is {} and has no row", pair.1);
        }
        unwalked.remove(&pair);
    }
    assert!(unwalked.is_empty(), "rows that no example walks: {unwalked:?}");
}

#[test]
fn forbidden_moves_do_not_happen() {
    let rows = table_of_the_door("State", "Not to");
    assert_eq!(rows.len(), 8);
    for [state, event, tempting, _] in rows {
        let mut walked = 0;
        for (before, happening) in happenings() {
            if name_of(before.as_ref()) == state && door_word(before.as_ref(), happening) == event {
                let after = happen(before.as_ref(), happening);
                assert_ne!(name_of(after.as_ref()), tempting, "{before:?}, {happening:?}");
                walked += 1;
            }
        }
        assert!(walked > 0, "{state}, {event}: no example walks it");
    }
}

/// RFC 4861 §7.2.5, the part a name for the next state cannot say: what becomes of the address.
#[test]
fn an_advertisement_follows_its_flags() {
    let mut reachable = entry_in(State::Reachable);
    reachable.is_router = true;
    let advertise = |solicited, overrides, mac| {
        let kind = Kind::Advertisement { router: false, solicited, overrides };
        let (next, actions) = hear(&reachable, mac, kind);
        (next.state, next.mac, next.is_router, actions.publish)
    };
    // Case I: another address, no override. Nothing but the state is updated.
    assert_eq!(advertise(true, false, Some(OTHER)), (State::Stale, Some(MAC), true, true));
    assert_eq!(advertise(false, false, Some(OTHER)), (State::Stale, Some(MAC), true, true));
    // Case II: override.
    assert_eq!(advertise(true, true, Some(OTHER)), (State::Reachable, Some(OTHER), false, true));
    assert_eq!(advertise(false, true, Some(OTHER)), (State::Stale, Some(OTHER), false, true));
    // Case II: the same address, or none.
    assert_eq!(advertise(false, false, Some(MAC)), (State::Reachable, Some(MAC), false, false));
    assert_eq!(advertise(true, false, None), (State::Reachable, Some(MAC), false, false));
    assert_eq!(advertise(false, true, None), (State::Reachable, Some(MAC), false, false));
}

/// On a link with addresses, an advertisement without one cannot complete an entry (§7.2.5).
#[test]
fn an_advertisement_without_an_address_resolves_nothing() {
    let kind = Kind::Advertisement { router: true, solicited: true, overrides: true };
    let incomplete = entry_in(State::Incomplete);
    let (next, actions) = hear(&incomplete, None, kind);
    assert_eq!((next, actions), (incomplete, Actions::default()));
}

/// An unrequested ARP reply is a way to impersonate a neighbour. The reply may name the address, as RFC 826 wants, but
/// proves nothing.
#[test]
fn an_arp_reply_proves_only_what_was_asked() {
    let (next, _) = hear(&entry_in(State::Stale), Some(MAC), Kind::ArpReply);
    assert_eq!(next.state, State::Stale);
    let not_yet_asked = Entry { asked: 0, ..entry_in(State::Incomplete) };
    let (next, _) = hear(&not_yet_asked, Some(MAC), Kind::ArpReply);
    assert_eq!((next.state, next.mac), (State::Stale, Some(MAC)));
    let (next, _) = hear(&entry_in(State::Probe), Some(OTHER), Kind::ArpReply);
    assert_eq!((next.state, next.mac), (State::Reachable, Some(OTHER)));
}

/// Fast enough for a failover: the new station is used at once, and checked while it is used.
#[test]
fn gratuitous_arp_moves_an_address_at_once() {
    let (next, actions) = hear(&entry_in(State::Reachable), Some(OTHER), Kind::Gratuitous);
    assert_eq!((next.state, next.mac), (State::Stale, Some(OTHER)));
    assert!(actions.publish);
    assert_eq!(next.adjacency_state(), AdjacencyState::ResolvedReport);
}

#[test]
fn resolution_asks_three_times_a_second_apart_and_fails_after_the_fourth() {
    let mut entry = first(KEY, Event::Missing, at(0)).expect("a packet creates an entry");
    for second in 0..3 {
        assert_eq!(entry.deadline, Some(at(second)));
        let (next, actions) = step(&entry, Event::Timeout, at(second), &TIMING);
        assert_eq!(actions.solicit, Some(Question::Everybody));
        assert!(!actions.publish, "workers see no difference");
        entry = next;
    }
    assert_eq!(entry.deadline, Some(at(3)));
    let (failed, actions) = step(&entry, Event::Timeout, at(3), &TIMING);
    assert_eq!((failed.state, actions.solicit), (State::Failed, None));
    assert!(actions.publish, "workers drop what they hold");
    assert_eq!(failed.adjacency_state(), AdjacencyState::Failed);
}

/// A stale entry is a guess worth using, so that no packet waits for a neighbour that is most likely still there; the
/// probe is sent only after the neighbour had 5 s to speak up by itself.
#[test]
fn a_used_stale_neighbour_is_asked_three_times_before_it_fails() {
    let stale = entry_in(State::Stale);
    let (delay, actions) = step(&stale, Event::Used, at(100), &TIMING);
    assert!(actions.publish, "workers stop reporting");
    assert_eq!((delay.adjacency_state(), delay.mac), (AdjacencyState::Resolved, Some(MAC)));
    let mut entry = delay;
    for second in 105..108 {
        assert_eq!(entry.deadline, Some(at(second)));
        let (next, actions) = step(&entry, Event::Timeout, at(second), &TIMING);
        assert_eq!(actions.solicit, Some(Question::Itself(MAC)));
        assert_eq!(next.state, State::Probe);
        entry = next;
    }
    let (failed, _) = step(&entry, Event::Timeout, at(108), &TIMING);
    assert_eq!((failed.state, failed.mac), (State::Failed, None));
}

/// Each of `[neighbour]`'s timers moves what it names, and that alone: seconds at which questions are sent and states end.
#[test]
fn each_timer_moves_what_it_names() {
    let usual = Timing::default();
    let seconds = Duration::from_secs;
    // Questions to all, refused from and until, forgotten; proven until; questions to itself, given up.
    assert_eq!(life(&usual), (vec![0, 1, 2], [3, 4, 63], 30, vec![35, 36, 37], 38));
    for (timing, expected) in [
        (
            Timing { retransmit: seconds(2), ..usual },
            (vec![0, 2, 4], [6, 7, 66], 30, vec![35, 37, 39], 41),
        ),
        (
            Timing { multicast_max: 5, ..usual },
            (vec![0, 1, 2, 3, 4], [5, 6, 65], 30, vec![35, 36, 37], 38),
        ),
        (Timing { unicast_max: 1, ..usual }, (vec![0, 1, 2], [3, 4, 63], 30, vec![35], 36)),
        (
            Timing { delay_first_probe: seconds(9), ..usual },
            (vec![0, 1, 2], [3, 4, 63], 30, vec![39, 40, 41], 42),
        ),
        (
            Timing { reachable: seconds(100), ..usual },
            (vec![0, 1, 2], [3, 4, 63], 100, vec![105, 106, 107], 108),
        ),
        (
            Timing { failed_lifetime: seconds(10), ..usual },
            (vec![0, 1, 2], [3, 4, 13], 30, vec![35, 36, 37], 38),
        ),
        (
            Timing { failed_hold: seconds(6), ..usual },
            (vec![0, 1, 2], [3, 9, 63], 30, vec![35, 36, 37], 38),
        ),
    ] {
        assert_eq!(life(&timing), expected, "{timing:?}");
    }
}

/// Two lives of a neighbour that a packet needs at second 0. One never answers: the seconds of the questions to all, when
/// its packets are refused, when that ends, and when it is forgotten. The other answers at once and is used as soon as
/// it is stale: until when it is proven, the seconds of the questions to itself, and when it is given up.
fn life(timing: &Timing) -> (Vec<u64>, [u64; 3], u64, Vec<u64>, u64) {
    let unknown = first(KEY, Event::Missing, at(0)).expect("a packet creates an entry");
    let (silent, to_all, refused) = until_failed(unknown, timing);
    let held = silent.deadline.expect("it is refused for a while");
    let (open, _) = step(&silent, Event::Timeout, held, timing);
    let forgotten = open.deadline.expect("it is shown for a while");
    assert!(step(&open, Event::Timeout, forgotten, timing).1.remove);

    let answer = Event::Heard { mac: Some(MAC), kind: Kind::ArpReply };
    let asked = step(&unknown, Event::Timeout, at(0), timing).0;
    let known = step(&asked, answer, at(0), timing).0;
    let proven = known.deadline.expect("an answer proves it for a while");
    let stale = step(&known, Event::Timeout, proven, timing).0;
    assert_eq!((known.state, stale.state), (State::Reachable, State::Stale));
    let used = step(&stale, Event::Used, proven, timing).0;
    let (_, to_itself, given_up) = until_failed(used, timing);
    let ends = [refused, held.as_secs(), forgotten.as_secs()];
    (to_all, ends, proven.as_secs(), to_itself, given_up)
}

/// Lets deadlines come until the neighbour is given up: the seconds of the questions, and that second.
fn until_failed(mut entry: Entry, timing: &Timing) -> (Entry, Vec<u64>, u64) {
    let mut asked = Vec::new();
    loop {
        let now = entry.deadline.expect("what is asked for has a deadline");
        let (next, actions) = step(&entry, Event::Timeout, now, timing);
        if next.state == State::Failed {
            return (next, asked, now.as_secs());
        }
        asked.extend(actions.solicit.map(|_| now.as_secs()));
        entry = next;
    }
}

/// Dropping for a second costs less than holding for three, again and again.
#[test]
fn a_failed_neighbour_refuses_for_a_while_and_is_forgotten_later() {
    let failed = entry_in(State::Failed);
    assert_eq!(failed.adjacency_state(), AdjacencyState::Failed);
    let (same, _) = step(&failed, Event::Missing, at(10), &TIMING);
    assert_eq!(same, failed);
    let (open, actions) = step(&failed, Event::Timeout, at(11), &TIMING);
    assert!(actions.publish && !actions.remove);
    assert_eq!(open.adjacency_state(), AdjacencyState::Unresolved);
    assert_eq!(open.deadline, Some(failed.since + TIMING.failed_lifetime));
    let (_, actions) = step(&open, Event::Timeout, at(70), &TIMING);
    assert_eq!(actions, Actions { remove: true, ..Actions::default() });
    let (anew, _) = step(&open, Event::Missing, at(30), &TIMING);
    assert_eq!((anew.state, anew.deadline), (State::Incomplete, Some(at(30))));
}

/// Equal-cost paths must not send a third of their flows into a queue every few seconds to find out
/// that a gateway is still dead.
#[test]
fn a_dead_next_hop_is_looked_for_while_its_packets_are_refused() {
    let failed = Entry { pins: 1, ..entry_in(State::Failed) };
    let (searching, actions) = step(&failed, Event::Timeout, at(11), &TIMING);
    assert_eq!(searching.state, State::Incomplete);
    assert_eq!(searching.adjacency_state(), AdjacencyState::Failed);
    assert!(!actions.publish);
    let (searching, actions) = step(&searching, Event::Timeout, at(11), &TIMING);
    assert_eq!(actions.solicit, Some(Question::Everybody));
    assert_eq!(searching.adjacency_state(), AdjacencyState::Failed);
    let (back, actions) = hear(&searching, Some(MAC), Kind::ArpReply);
    assert_eq!((back.state, back.refusing), (State::Reachable, false));
    assert!(actions.publish);
}

/// Walks every state through every event twice, and checks what the entry's doc promises.
#[test]
fn every_entry_keeps_its_invariants() {
    for (before, event) in happenings() {
        let Some(once) = happen(before.as_ref(), event) else { continue };
        check(&once);
        for event in events() {
            happen(Some(&once), event).iter().for_each(check);
        }
    }

    fn check(entry: &Entry) {
        use State::*;
        let has_mac = matches!(entry.state, Reachable | Stale | Delay | Probe | Permanent);
        assert_eq!(entry.mac.is_some(), has_mac, "1: {entry:?}");
        let may_refuse = entry.state == Failed || (entry.state == Incomplete && entry.pins > 0);
        assert!(!entry.refusing || may_refuse, "2: {entry:?}");
        let has_timer = !matches!(entry.state, Stale | Permanent);
        assert_eq!(entry.deadline.is_some(), has_timer, "3: {entry:?}");
    }
}

const KEY: Key =
    Key { port: PortId(1), addr: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)) };
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const TIMING: Timing = Timing {
    retransmit: Duration::from_secs(1),
    multicast_max: 3,
    unicast_max: 3,
    delay_first_probe: Duration::from_secs(5),
    reachable: Duration::from_secs(30),
    failed_hold: Duration::from_secs(1),
    failed_lifetime: Duration::from_secs(60),
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn hear(entry: &Entry, mac: Option<[u8; 6]>, kind: Kind) -> (Entry, Actions) {
    step(entry, Event::Heard { mac, kind }, at(12), &TIMING)
}

/// Every state, in every shade of it that an event can tell apart, with every event.
fn happenings() -> Vec<(Option<Entry>, Event)> {
    let shades = [
        None,
        Some(Entry { asked: 1, deadline: Some(at(11)), ..blank(State::Incomplete) }),
        Some(Entry { asked: 3, deadline: Some(at(11)), ..blank(State::Incomplete) }),
        Some(entry_in(State::Reachable)),
        Some(entry_in(State::Stale)),
        Some(entry_in(State::Delay)),
        Some(entry_in(State::Probe)),
        Some(Entry { asked: 3, ..entry_in(State::Probe) }),
        Some(entry_in(State::Failed)),
        Some(Entry { refusing: false, ..entry_in(State::Failed) }),
        Some(Entry { pins: 1, ..entry_in(State::Failed) }),
        Some(entry_in(State::Permanent)),
    ];
    shades.into_iter().flat_map(|entry| events().into_iter().map(move |e| (entry, e))).collect()
}

fn events() -> Vec<Event> {
    let mut kinds = vec![Kind::ArpReply, Kind::ArpRequest, Kind::Gratuitous, Kind::Solicitation];
    for (solicited, overrides) in [(false, false), (false, true), (true, false), (true, true)] {
        kinds.push(Kind::Advertisement { router: false, solicited, overrides });
    }
    let mut events = vec![Event::Missing, Event::Used, Event::Timeout, Event::Set(OTHER)];
    for kind in kinds {
        events.extend([Some(MAC), Some(OTHER)].map(|mac| Event::Heard { mac, kind }));
        if matches!(kind, Kind::Advertisement { .. }) {
            events.push(Event::Heard { mac: None, kind });
        }
    }
    events
}

/// What the door calls `event` when it meets `entry`; "nothing" for what it does not list.
fn door_word(entry: Option<&Entry>, event: Event) -> &'static str {
    let state = entry.map(|entry| entry.state);
    let refusing = entry.is_some_and(|entry| entry.refusing);
    let asked_all = entry.is_some_and(|entry| entry.asked == 3);
    match event {
        Event::Missing if state == Some(State::Failed) && !refusing => "late missing",
        Event::Missing => "missing",
        Event::Used => "used",
        Event::Timeout if state == Some(State::Failed) => match entry {
            Some(entry) if entry.pins > 0 => "retry",
            _ if refusing => "timeout",
            _ => "last timeout",
        },
        Event::Timeout if asked_all => "last timeout",
        Event::Timeout => "timeout",
        Event::Set(_) => "set",
        Event::Heard { kind: Kind::ArpRequest | Kind::Solicitation, .. } if entry.is_none() => {
            "introduction"
        }
        Event::Heard { mac, kind } => {
            let known = entry.and_then(|entry| entry.mac);
            let asking = matches!(state, Some(State::Incomplete | State::Probe));
            let (solicited, overrides) = match kind {
                Kind::Advertisement { solicited, overrides, .. } => (solicited, overrides),
                Kind::ArpReply => (asking, true),
                _ => (false, true),
            };
            match (known, mac) {
                (None, None) => "nothing",
                (Some(known), Some(mac)) if mac != known && !overrides => "dispute",
                _ if solicited => "proof",
                (known, Some(mac)) if known != Some(mac) => "claim",
                _ => "nothing",
            }
        }
    }
}

fn happen(entry: Option<&Entry>, event: Event) -> Option<Entry> {
    let Some(entry) = entry else { return first(KEY, event, at(12)) };
    let (next, actions) = step(entry, event, at(12), &TIMING);
    (!actions.remove).then_some(next)
}

/// An entry that entered `state` at 10 s, with one question sent if it is being probed.
fn entry_in(state: State) -> Entry {
    let blank = blank(state);
    let mac = Some(MAC);
    let deadline = |seconds: u64| Some(at(10 + seconds));
    match state {
        State::Incomplete => Entry { asked: 1, deadline: deadline(1), ..blank },
        State::Reachable => Entry { mac, deadline: deadline(30), ..blank },
        State::Stale | State::Permanent => Entry { mac, ..blank },
        State::Delay => Entry { mac, deadline: deadline(5), ..blank },
        State::Probe => Entry { mac, asked: 1, deadline: deadline(1), ..blank },
        State::Failed => Entry { refusing: true, deadline: deadline(1), ..blank },
    }
}

fn blank(state: State) -> Entry {
    Entry {
        key: KEY,
        state,
        mac: None,
        is_router: false,
        asked: 0,
        refusing: false,
        trust: Trust::Stranger,
        pins: 0,
        since: at(10),
        deadline: None,
    }
}

/// As the door spells it.
fn name_of(entry: Option<&Entry>) -> String {
    entry.map_or("none".into(), |entry| format!("`{:?}`", entry.state))
}

fn state_names() -> Vec<String> {
    let states = State::ALL.iter().map(|state| format!("`{state:?}`"));
    states.chain(["none".into()]).collect()
}

/// The rows of the door's table whose first and third columns have these names.
fn table_of_the_door(first: &str, third: &str) -> Vec<[String; 4]> {
    let cells = |line: &str| -> Option<[String; 4]> {
        let row = line.strip_prefix("//! |")?.trim_end().strip_suffix('|')?;
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().ok()
    };
    let lines = include_str!("../mod.rs").lines().map(cells);
    let from_head = lines.skip_while(|row| {
        !row.as_ref().is_some_and(|[one, _, three, _]| one == first && three == third)
    });
    let rows: Vec<_> = from_head.skip(2).map_while(|row| row).collect();
    assert!(!rows.is_empty(), "the door has no table {first}, Event, {third}");
    rows
}
