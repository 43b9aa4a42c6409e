//! Our own addresses: whether they are ours alone, and which stations learn so.
//!
//! Duplicate address detection (RFC 5227 §2.1 for IPv4, RFC 4862 §5.4 for IPv6), what is sent after it
//! (gratuitous ARP, RFC 5227 §2.3; unsolicited advertisements, RFC 4861 §7.2.6) and the defence of an
//! address in use (RFC 5227 §2.4) are one machine for both families. [`step`] is this table as a
//! function; a test walks every row, and holds every pair that has no row to "nothing changes".
//!
//! | State        | Event        | Next         | Sends        | Why                                     |
//! |--------------|--------------|--------------|--------------|-----------------------------------------|
//! | `Probing`    | timeout      | `Probing`    | probe        | does any station have it?               |
//! | `Probing`    | last timeout | `Announcing` | announcement | none has: it is ours                    |
//! | `Probing`    | used         | `Duplicate`  | nothing      | RFC 5227 §2.1.1, RFC 4862 §5.4.4        |
//! | `Probing`    | wanted       | `Duplicate`  | nothing      | two ask at once: RFC 5227 §2.1.1, RFC 4862 §5.4.3 |
//! | `Probing`    | kept         | `Announcing` | announcement | RFC 5227 §2.4 (c): a router's address stays |
//! | `Announcing` | timeout      | `Announcing` | announcement | a station that missed the first keeps an old one |
//! | `Announcing` | last timeout | `Held`       | announcement | that is enough                          |
//! | `Announcing` | used         | `Announcing` | announcement | defended: RFC 5227 §2.4 (c)             |
//! | `Held`       | used         | `Held`       | announcement | defended: a router's address stays      |
//! | `Duplicate`  | timeout      | `Probing`    | nothing      | it may be free again                    |
//!
//! | Event        | is                                                                                |
//! |--------------|-----------------------------------------------------------------------------------|
//! | timeout      | the address's timer; *last*: nothing left to send in this state                   |
//! | used         | a packet in which another station has the address; *used again*: soon after one   |
//! | wanted       | another station probes, as we do, whether any station has it                      |
//! | kept         | one of these two, for an address that we keep whatever is found                   |
//!
//! "Used again" within [`OwnTiming::defend_gap`] of a defence has no row, so that two stations that both
//! insist do not shout at each other (RFC 5227 §2.4 (c)). Nor has "wanted" when the address is in use: the
//! ordinary answer to the question is the defence.
//!
//! # Which addresses are kept
//!
//! Any station on a link can answer our probes, and could keep a router that gives up from ever having its address. The
//! operator gave the address to a router that hosts have as their gateway, so RFC 5227 §2.4 (c) holds from the start: an
//! IPv4 address is kept, announced and defended (`optimistic`), as Linux does, which does not probe at all. RFC 4862
//! §5.4.5 leaves no such choice: an IPv6 address that is a duplicate is not used. So is an IPv4 address of an operator
//! whose choice is `strict`. Both are probed again every few seconds ([`OwnTiming::retry`]), so that they are lost only
//! while a station claims them; Linux would give up an IPv6 address until the link is down. `off` probes neither.
//!
//! Whether an address is in use while it is probed is the operator's choice, [`DuplicateDetection`]. If it
//! is, what we send must not replace what others know of its rightful owner:
//!
//! | while it is probed      | we send                                   | why                           |
//! |-------------------------|-------------------------------------------|-------------------------------|
//! | questioned, by ND       | an advertisement that does not override   | RFC 4429 §3.3                 |
//! | questioned, by ARP      | a reply: a station that broadcasts a question knows none | ARP has no such flag |
//! | to ask, by ND           | from another address, ours alone; or wait | RFC 4429 §2.2, §3.2           |
//! | to ask, by ARP          | from 0.0.0.0, as a probe                  | no station remembers that: RFC 5227 §2.1.1 |
//!
//! The last has a price: a host that is itself probing the very address that our question is for takes the question for a
//! rival's. Strict detection sends no questions meanwhile.

pub mod table;

use std::net::IpAddr;
use std::time::Duration;

use super::Key;

/// What is known of one address of ours.
///
/// # Invariants
///
/// 1. `in_use` is set in `Announcing` and `Held`, not in `Duplicate`.
/// 2. `Held` has no `deadline`, all others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address and its port.
    pub key: Key,
    /// Where it is in the machine.
    pub state: OwnState,
    /// Whether we answer for it and send from it.
    pub in_use: bool,
    /// Whether we keep it though another station claims it while it is probed.
    pub keeps: bool,
    /// Packets sent since this state began.
    pub sent: u8,
    /// When it was last defended.
    pub defended: Option<Duration>,
    /// When this state began.
    pub since: Duration,
    /// When the state's timer ends.
    pub deadline: Option<Duration>,
}

/// The states of an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnState {
    /// We are probing whether another station has it ("tentative" in RFC 4862).
    Probing,
    /// No other station has it; we are announcing that we do.
    Announcing,
    /// The address is ours.
    Held,
    /// Another station has it: we neither answer for it nor send from it.
    Duplicate,
}

/// What can happen to an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEvent {
    /// The deadline has come.
    Timeout,
    /// Another station lays claim to it.
    Claimed(Claim),
}

/// How another station lays claim to an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The station speaks as the owner.
    Used,
    /// The station probes whether any station has it, to take it.
    Wanted,
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// A probe, from the unspecified address.
    Probe,
    /// An announcement, to all stations.
    Announcement,
}

/// What is done about addresses of ours that another station may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateDetection {
    /// Use them at once. An IPv6 address that turns out to be another station's while it is probed is given up; an IPv4
    /// address is kept and defended. Less than RFC 4862 demands (we send from it; as RFC 4429 has it, we replace no
    /// station's entry with it; see the door); more than Linux does for IPv4.
    #[default]
    Optimistic,
    /// Use one when no station has answered its probes: after 1 to 2 s (IPv6), 4 to 7 s (IPv4).
    Strict,
    /// Announce them, without probing.
    Off,
}

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTiming {
    /// The first packet waits up to so long, so that stations that start together do not speak together.
    pub first_delay: Duration,
    /// Probes.
    pub probes: u8,
    /// Between two probes, at least and at most.
    pub probe_gap: [Duration; 2],
    /// Between the last probe and the first announcement.
    pub probe_wait: Duration,
    /// Announcements.
    pub announcements: u8,
    /// Between two announcements.
    pub announce_gap: Duration,
    /// Between two defences.
    pub defend_gap: Duration,
    /// A duplicate is probed again after so long. RFC 5227 §1.1 has a minute for a host that tries ever new addresses;
    /// ours is the one that the operator chose, and three probes in ten seconds are no load for a link.
    pub retry: Duration,
}

impl OwnTiming {
    /// RFC 5227 §1.1: `PROBE_WAIT`, `PROBE_NUM`, `PROBE_MIN`, `PROBE_MAX`, `ANNOUNCE_WAIT`, `ANNOUNCE_NUM`,
    /// `ANNOUNCE_INTERVAL`, `DEFEND_INTERVAL`. The last is ours.
    pub const ARP: OwnTiming = OwnTiming {
        first_delay: Duration::from_secs(1),
        probes: 3,
        probe_gap: [Duration::from_secs(1), Duration::from_secs(2)],
        probe_wait: Duration::from_secs(2),
        announcements: 2,
        announce_gap: Duration::from_secs(2),
        defend_gap: Duration::from_secs(10),
        retry: Duration::from_secs(5),
    };

    /// RFC 4862 §5.1 and §5.4.2: `DupAddrDetectTransmits`, `RetransTimer`, `MAX_RTR_SOLICITATION_DELAY`; RFC
    /// 4861 §10: `MAX_NEIGHBOR_ADVERTISEMENT`. The last two are ARP's.
    pub const ND: OwnTiming = OwnTiming {
        first_delay: Duration::from_secs(1),
        probes: 1,
        probe_gap: [Duration::from_secs(1); 2],
        probe_wait: Duration::from_secs(1),
        announcements: 3,
        announce_gap: Duration::from_secs(1),
        defend_gap: Duration::from_secs(10),
        retry: Duration::from_secs(5),
    };

    /// By the address's family.
    pub fn of(address: IpAddr) -> OwnTiming {
        if address.is_ipv4() { OwnTiming::ARP } else { OwnTiming::ND }
    }

    fn probe_gap(&self, thousandths: u32) -> Duration {
        let [least, most] = self.probe_gap;
        least + (most - least) * thousandths / 1000
    }
}

/// An address on its first day. `thousandths` of the longest delay pass before the first packet.
pub fn first(
    key: Key,
    mode: DuplicateDetection,
    now: Duration,
    timing: &OwnTiming,
    thousandths: u32,
) -> OwnAddress {
    let state = match mode {
        DuplicateDetection::Off => OwnState::Announcing,
        DuplicateDetection::Optimistic | DuplicateDetection::Strict => OwnState::Probing,
    };
    OwnAddress {
        key,
        state,
        in_use: mode != DuplicateDetection::Strict,
        keeps: mode == DuplicateDetection::Optimistic && key.addr.is_ipv4(),
        sent: 0,
        defended: None,
        since: now,
        deadline: Some(now + timing.first_delay * thousandths / 1000),
    }
}

/// What becomes of `own` by `event` at `now`, and what is to be sent. `thousandths` is a draw from 0 to 1000.
pub fn step(
    own: &OwnAddress,
    event: OwnEvent,
    now: Duration,
    timing: &OwnTiming,
    thousandths: u32,
) -> (OwnAddress, Option<Sends>) {
    let stays = (*own, None);
    match (own.state, event) {
        (OwnState::Probing, OwnEvent::Timeout) if own.sent < timing.probes => {
            let is_last = own.sent + 1 == timing.probes;
            let gap = if is_last { timing.probe_wait } else { timing.probe_gap(thousandths) };
            (OwnAddress { deadline: Some(now + gap), ..own.sent() }, Some(Sends::Probe))
        }
        (OwnState::Probing | OwnState::Announcing, OwnEvent::Timeout) => {
            let announced = own.enter(OwnState::Announcing, now).sent();
            let next = if announced.sent < timing.announcements {
                OwnAddress { deadline: Some(now + timing.announce_gap), ..announced }
            } else {
                announced.enter(OwnState::Held, now)
            };
            (OwnAddress { in_use: true, ..next }, Some(Sends::Announcement))
        }
        (OwnState::Probing, OwnEvent::Claimed(_)) if own.keeps => {
            let announced = own.enter(OwnState::Announcing, now).sent();
            let deadline = Some(now + timing.announce_gap);
            let kept = OwnAddress { in_use: true, defended: Some(now), deadline, ..announced };
            (kept, Some(Sends::Announcement))
        }
        (OwnState::Probing, OwnEvent::Claimed(_)) => {
            let lost = own.enter(OwnState::Duplicate, now);
            (OwnAddress { in_use: false, deadline: Some(now + timing.retry), ..lost }, None)
        }
        (OwnState::Announcing | OwnState::Held, OwnEvent::Claimed(Claim::Used)) => {
            let is_soon = own.defended.is_some_and(|last| now < last + timing.defend_gap);
            if is_soon {
                return stays;
            }
            (OwnAddress { defended: Some(now), ..*own }, Some(Sends::Announcement))
        }
        // A little later than others that found it taken: they would all probe again together.
        (OwnState::Duplicate, OwnEvent::Timeout) => {
            let delay = timing.first_delay * thousandths / 1000;
            let again = own.enter(OwnState::Probing, now);
            (OwnAddress { deadline: Some(now + delay), ..again }, None)
        }
        (OwnState::Announcing | OwnState::Held, OwnEvent::Claimed(Claim::Wanted)) => stays,
        (OwnState::Duplicate, OwnEvent::Claimed(_)) => stays,
        (OwnState::Held, OwnEvent::Timeout) => stays, // No timer runs (invariant 2).
    }
}

impl OwnAddress {
    fn enter(&self, state: OwnState, now: Duration) -> OwnAddress {
        if state == self.state {
            return *self;
        }
        OwnAddress { state, sent: 0, since: now, deadline: None, ..*self }
    }

    fn sent(&self) -> OwnAddress {
        OwnAddress { sent: self.sent.saturating_add(1), ..*self }
    }

    /// What workers make of it.
    pub fn standing(&self) -> Standing {
        match (self.in_use, self.state) {
            (false, _) => Standing::Unused,
            (true, OwnState::Probing) => Standing::Tentative,
            (true, _) => Standing::Ours,
        }
    }
}

/// What a worker may do with an address of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Standing {
    /// Answer for it, send from it.
    #[default]
    Ours = 0,
    /// As `Ours`, without overriding what others know (RFC 4429 §3.3).
    Tentative = 1,
    /// Neither.
    Unused = 2,
}

impl Standing {
    pub(super) fn from_word(word: u32) -> Standing {
        match word {
            0 => Standing::Ours,
            1 => Standing::Tentative,
            _ => Standing::Unused,
        }
    }

    /// Whether the address may be used.
    pub fn is_in_use(self) -> bool {
        self != Standing::Unused
    }
}

impl OwnState {
    /// Every state.
    pub const ALL: [OwnState; 4] =
        [OwnState::Probing, OwnState::Announcing, OwnState::Held, OwnState::Duplicate];

    /// The stable name, as `show addresses` and JSON spell it.
    pub const fn name(self) -> &'static str {
        match self {
            OwnState::Probing => "probing",
            OwnState::Announcing => "announcing",
            OwnState::Held => "held",
            OwnState::Duplicate => "duplicate",
        }
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
