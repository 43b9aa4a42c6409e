//! One neighbour's state, and the function that moves it.
//!
//! [`step`] knows neither the table nor a clock: the same entry, event and time give the same answer.
//! The transitions are the table at the door (`mod.rs`); this file adds what each one carries along.

use std::fmt;
use std::time::Duration;

use super::Key;
use super::adjacency::AdjacencyState;

/// What is known of one neighbour.
///
/// # Invariants
///
/// 1. `mac` is known in `Reachable`, `Stale`, `Delay`, `Probe` and `Permanent`, and in no other.
/// 2. `refusing` is set only in `Failed` and in the `Incomplete` that a pinned `Failed` returns to.
/// 3. `Stale` and `Permanent` have no `deadline`, all others have.
///
/// Only [`first`] and [`step`] make entries; `every_entry_keeps_its_invariants` watches all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The neighbour that has this state.
    pub key: Key,
    /// Where it is in the machine.
    pub state: State,
    /// Its link-layer address.
    pub mac: Option<[u8; 6]>,
    /// The neighbour advertised itself as a router (RFC 4861 §5.1, `IsRouter`).
    pub is_router: bool,
    /// Questions sent since this state began.
    pub asked: u8,
    /// Packets for it are dropped rather than held.
    pub refusing: bool,
    /// What speaks for a station being there.
    pub trust: Trust,
    /// How many next hops need the entry: while any does, it is neither removed nor reclaimed.
    pub pins: u32,
    /// When this state began.
    pub since: Duration,
    /// When the state's timer ends.
    pub deadline: Option<Duration>,
}

/// What speaks for a neighbour being there. A scan makes up addresses faster than questions may be sent: the more speaks
/// for an address, the sooner the table solicits it, and the later gives it up (RFC 6583 §7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// One packet to it.
    #[default]
    Stranger,
    /// A packet needs it again, as a scan that repeats its addresses pretends, too.
    Wanted,
    /// The packet's sender needs few neighbours.
    Modest,
    /// The neighbour spoke.
    Expected,
    /// The neighbour has answered us before, or the operator set it.
    Known,
}

/// The states of RFC 4861 §7.3.2, and two of Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The question was multicast; no station has answered yet.
    Incomplete,
    /// The neighbour answered us not long ago.
    Reachable,
    /// The address is not proven, and not in use.
    Stale,
    /// Its address is in use again, and it has a little time to show by itself that it is there.
    Delay,
    /// The neighbour is being probed.
    Probe,
    /// The neighbour did not answer.
    Failed,
    /// Set by the operator: never asked, never aged.
    Permanent,
}

/// What can happen to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet needs the address, which is unknown.
    Missing,
    /// A packet used the address while it was stale.
    Used,
    /// The deadline has come.
    Timeout,
    /// A packet showed the neighbour's address.
    Heard {
        /// The link-layer address in it; an advertisement may come without.
        mac: Option<[u8; 6]>,
        /// What packet it was.
        kind: Kind,
    },
    /// The operator set its address.
    Set([u8; 6]),
}

/// The kind of packet that showed a neighbour's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ARP reply sent to us.
    ArpReply,
    /// An ARP request for one of our addresses: its sender.
    ArpRequest,
    /// Any other ARP packet: gratuitous, or meant for another station.
    Gratuitous,
    /// A neighbour advertisement, with its flags (RFC 4861 §4.4).
    Advertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: it answers a solicitation of ours.
        solicited: bool,
        /// O: its address replaces the one we know.
        overrides: bool,
    },
    /// A neighbour solicitation for one of our addresses: its source, with the source link-layer
    /// address option (RFC 4861 §7.2.3).
    Solicitation,
}

impl Kind {
    /// Whether an unknown neighbour may enter the table this way: a station that looks for us wants to talk to us (RFC
    /// 826; RFC 4861 §7.2.3). All else is discarded without an entry (§7.2.5).
    pub fn introduces(self) -> bool {
        matches!(self, Kind::ArpRequest | Kind::Solicitation)
    }
}

/// How long and how often: RFC 4861 §10, and what the RFC leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two questions (`RETRANS_TIMER`).
    pub retransmit: Duration,
    /// Multicast questions before giving up (`MAX_MULTICAST_SOLICIT`).
    pub multicast_max: u8,
    /// Questions to the neighbour itself before giving up (`MAX_UNICAST_SOLICIT`).
    pub unicast_max: u8,
    /// What a stale neighbour in use has to show by itself that it is there
    /// (`DELAY_FIRST_PROBE_TIME`).
    pub delay_first_probe: Duration,
    /// How long an answer proves anything. The table draws one for each entry from `REACHABLE_TIME` times 0.5 to 1.5
    /// (§6.3.2), so that neighbours met together are not probed together.
    pub reachable: Duration,
    /// How long a failed neighbour's packets are dropped before one may start over. Ours: one
    /// `retransmit`, so a dead host costs four seconds a round.
    pub failed_hold: Duration,
    /// How long a failed neighbour without traffic stays visible. Ours, as Linux's `gc_stale_time`.
    pub failed_lifetime: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            retransmit: Duration::from_secs(1),
            multicast_max: 3,
            unicast_max: 3,
            delay_first_probe: Duration::from_secs(5),
            reachable: Duration::from_secs(30),
            failed_hold: Duration::from_secs(1),
            failed_lifetime: Duration::from_secs(60),
        }
    }
}

/// The actions of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Send a question.
    pub solicit: Option<Question>,
    /// Workers must see something else: replace the adjacency.
    pub publish: bool,
    /// The entry has ended.
    pub remove: bool,
}

/// The receivers of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// All stations: broadcast for ARP, the solicited-node group for ND.
    Everybody,
    /// The neighbour itself.
    Itself([u8; 6]),
}

/// The entry that `event` creates without one, if it may create one.
pub fn first(key: Key, event: Event, now: Duration) -> Option<Entry> {
    let blank = Entry {
        key,
        state: State::Incomplete,
        mac: None,
        is_router: false,
        asked: 0,
        refusing: false,
        trust: Trust::Stranger,
        pins: 0,
        since: now,
        deadline: None,
    };
    match event {
        Event::Missing => Some(blank.ask(now)),
        Event::Heard { mac: Some(mac), kind } if kind.introduces() => Some(blank.stale(mac, now)),
        Event::Set(mac) => Some(blank.permanent(mac, now)),
        Event::Heard { .. } | Event::Used | Event::Timeout => None,
    }
}

/// What becomes of `entry` by `event` at `now`.
///
/// Only `Timeout` sends questions: an event that wants an answer sets a deadline that is over. So the table limits the
/// rate of questions by holding timeouts back, and a question does not count if it found no place in the ring to a
/// worker, or had no address to be sent from.
pub fn step(entry: &Entry, event: Event, now: Duration, timing: &Timing) -> (Entry, Actions) {
    let mut actions = Actions::default();
    let next = match event {
        Event::Missing if entry.state == State::Failed && !entry.refusing => entry.ask(now),
        Event::Used if entry.state == State::Stale => Entry {
            deadline: Some(now + timing.delay_first_probe),
            ..entry.enter(State::Delay, now)
        },
        Event::Missing | Event::Used => *entry,
        Event::Timeout => timeout(entry, now, timing, &mut actions),
        Event::Heard { mac, kind } => heard(entry, mac, kind, now, timing),
        Event::Set(mac) => entry.permanent(mac, now),
    };
    actions.publish = !actions.remove && next.seen_by_workers() != entry.seen_by_workers();
    (next, actions)
}

fn timeout(entry: &Entry, now: Duration, timing: &Timing, actions: &mut Actions) -> Entry {
    let again = Some(now + timing.retransmit);
    match (entry.state, entry.mac) {
        (State::Incomplete, _) if entry.asked < timing.multicast_max => {
            actions.solicit = Some(Question::Everybody);
            Entry { asked: entry.asked + 1, deadline: again, ..*entry }
        }
        (State::Delay, Some(mac)) => {
            actions.solicit = Some(Question::Itself(mac));
            Entry { asked: 1, deadline: again, ..entry.enter(State::Probe, now) }
        }
        (State::Probe, Some(mac)) if entry.asked < timing.unicast_max => {
            actions.solicit = Some(Question::Itself(mac));
            Entry { asked: entry.asked + 1, deadline: again, ..*entry }
        }
        (State::Incomplete | State::Probe, _) => Entry {
            mac: None,
            refusing: true,
            deadline: Some(now + timing.failed_hold),
            ..entry.enter(State::Failed, now)
        },
        (State::Reachable, _) => entry.enter(State::Stale, now),
        // A next hop gets its answer as soon as the neighbour sends one, without a packet to request it; until then
        // packets are still refused, so that equal-cost paths keep to the other members.
        (State::Failed, _) if entry.pins > 0 => {
            Entry { refusing: entry.refusing, ..entry.ask(now) }
        }
        (State::Failed, _) if entry.refusing => Entry {
            refusing: false,
            deadline: Some(entry.since + timing.failed_lifetime.max(timing.failed_hold)),
            ..*entry
        },
        (State::Failed, _) => {
            actions.remove = true;
            *entry
        }
        // No timer runs in these two (invariant 3), and `Delay` has an address (invariant 1).
        (State::Stale | State::Permanent | State::Delay, _) => *entry,
    }
}

/// RFC 4861 §7.2.5. ARP has no flags, so it gets them here: every ARP packet overrides, and a reply
/// is solicited while we ask. A solicitation's source (§7.2.3) overrides and proves nothing.
fn heard(entry: &Entry, mac: Option<[u8; 6]>, kind: Kind, now: Duration, timing: &Timing) -> Entry {
    let (proves, overrides, is_router) = match kind {
        Kind::ArpReply => (entry.is_asking(), true, entry.is_router),
        Kind::ArpRequest | Kind::Gratuitous | Kind::Solicitation => (false, true, entry.is_router),
        Kind::Advertisement { router, solicited, overrides } => (solicited, overrides, router),
    };
    match (entry.mac, mac) {
        _ if entry.state == State::Permanent => *entry,
        (None, None) => *entry,
        (Some(known), Some(other)) if other != known && !overrides => match entry.state {
            State::Reachable => entry.enter(State::Stale, now),
            _ => *entry,
        },
        (_, Some(mac)) if proves => Entry { is_router, ..entry.reachable(mac, now, timing) },
        (Some(known), None) if proves => Entry { is_router, ..entry.reachable(known, now, timing) },
        (known, Some(mac)) if known != Some(mac) => Entry { is_router, ..entry.stale(mac, now) },
        _ => Entry { is_router, ..*entry },
    }
}

impl Entry {
    /// How long the entry has been in its state.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// What a worker does with a packet for this neighbour.
    pub fn adjacency_state(&self) -> AdjacencyState {
        match self.state {
            State::Incomplete | State::Failed if self.refusing => AdjacencyState::Failed,
            State::Incomplete | State::Failed => AdjacencyState::Unresolved,
            State::Stale => AdjacencyState::ResolvedReport,
            State::Reachable | State::Delay | State::Probe | State::Permanent => {
                AdjacencyState::Resolved
            }
        }
    }

    /// `Failed`, without a question: its link has no carrier.
    pub(super) fn unreachable(&self, now: Duration) -> Entry {
        let failed = Entry { mac: None, is_router: false, ..self.enter(State::Failed, now) };
        Entry { refusing: true, deadline: Some(now), ..failed }
    }

    fn seen_by_workers(&self) -> (AdjacencyState, Option<[u8; 6]>) {
        (self.adjacency_state(), self.mac)
    }

    /// Whether a question of ours is out.
    fn is_asking(&self) -> bool {
        matches!(self.state, State::Incomplete | State::Probe) && self.asked > 0
    }

    fn enter(&self, state: State, now: Duration) -> Entry {
        let since = if state == self.state { self.since } else { now };
        Entry { state, since, asked: 0, refusing: false, deadline: None, ..*self }
    }

    /// `Incomplete`, with the first question due at once.
    fn ask(&self, now: Duration) -> Entry {
        Entry { mac: None, deadline: Some(now), ..self.enter(State::Incomplete, now) }
    }

    fn stale(&self, mac: [u8; 6], now: Duration) -> Entry {
        let trust = self.trust.max(Trust::Expected);
        Entry { mac: Some(mac), trust, ..self.enter(State::Stale, now) }
    }

    fn reachable(&self, mac: [u8; 6], now: Duration, timing: &Timing) -> Entry {
        Entry {
            mac: Some(mac),
            trust: Trust::Known,
            deadline: Some(now + timing.reachable),
            ..self.enter(State::Reachable, now)
        }
    }

    fn permanent(&self, mac: [u8; 6], now: Duration) -> Entry {
        Entry { mac: Some(mac), trust: Trust::Known, ..self.enter(State::Permanent, now) }
    }
}

impl State {
    /// Every state.
    pub const ALL: [State; 7] = [
        State::Incomplete,
        State::Reachable,
        State::Stale,
        State::Delay,
        State::Probe,
        State::Failed,
        State::Permanent,
    ];

    /// The stable name, as `show neighbours` and JSON spell it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Stale => "stale",
            State::Delay => "delay",
            State::Probe => "probe",
            State::Failed => "failed",
            State::Permanent => "permanent",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
