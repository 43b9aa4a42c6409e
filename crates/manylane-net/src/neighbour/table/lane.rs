//! In which order questions are sent.
//!
//! All questions share one token bucket; each lane leaves a part of it to the lanes before it (RFC 6583 §7.1):
//!
//! | lane     | questions                                          | leaves of the burst |
//! |----------|----------------------------------------------------|---------------------|
//! | probe    | to a neighbour in use, that it is still there      | nothing             |
//! | known    | for what has answered before, or a next hop needs  | an eighth           |
//! | expected | the first one for what spoke                       | a quarter           |
//! | modest   | the first one for what a sender wants that wants few | three eighths     |
//! | wanted   | the first one for what is wanted again             | two fifths          |
//! | repeated | the later ones for expected and modest             | seven sixteenths    |
//! | stranger | the first one for any other address                | a half              |
//! | again    | the later ones for wanted and stranger             | a half              |
//!
//! `demand.rs` decides which is which. So a scan gets the tokens that no lane of known neighbours, of stations that spoke, or of
//! modest senders takes, whether it names each address once or many times. While the other lanes take all, each fourth
//! question is still a stranger's.

use super::super::entry::{Entry, State, Timing, Trust};

/// What a timer needs besides time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// Nothing: it asks no question.
    Quiet = 0,
    /// A token, for a question to the neighbour itself.
    Probe = 1,
    /// A token above a reserve, for a multicast question for a neighbour that is there, most likely.
    Known = 2,
    /// As above, for one that something speaks for.
    Expected = 3,
    /// As above, for one whose sender wants few.
    Modest = 4,
    /// As above, for one that is wanted again.
    Wanted = 5,
    /// As above, when an expected one or a modest sender's did not answer.
    Repeated = 6,
    /// As above, for one that only a packet names.
    Stranger = 7,
    /// As above, when a wanted one or a stranger did not answer.
    Again = 8,
}

impl Timer {
    pub const ALL: [Timer; 9] = [
        Timer::Quiet,
        Timer::Probe,
        Timer::Known,
        Timer::Expected,
        Timer::Modest,
        Timer::Wanted,
        Timer::Repeated,
        Timer::Stranger,
        Timer::Again,
    ];

    /// Whether strangers wait for these questions, within bounds.
    pub fn is_before_strangers(self) -> bool {
        use Timer::*;
        matches!(self, Known | Expected | Modest | Repeated | Wanted)
    }

    /// What the timer of an entry needs.
    pub fn of(entry: &Entry, timing: &Timing) -> Timer {
        match entry.state {
            State::Incomplete if entry.asked < timing.multicast_max => match entry.trust {
                Trust::Known => Timer::Known,
                _ if entry.pins > 0 => Timer::Known,
                Trust::Expected if entry.asked == 0 => Timer::Expected,
                Trust::Modest if entry.asked == 0 => Timer::Modest,
                Trust::Expected | Trust::Modest => Timer::Repeated,
                Trust::Wanted if entry.asked == 0 => Timer::Wanted,
                Trust::Stranger if entry.asked == 0 => Timer::Stranger,
                Trust::Wanted | Trust::Stranger => Timer::Again,
            },
            State::Delay => Timer::Probe,
            State::Probe if entry.asked < timing.unicast_max => Timer::Probe,
            _ => Timer::Quiet,
        }
    }

    /// Tokens that its question must leave in a bucket of `burst`, when `passed_over` questions that strangers waited for
    /// were sent since the last for a stranger.
    pub fn reserve(self, burst: u32, passed_over: u8) -> u32 {
        match self {
            Timer::Quiet | Timer::Probe => 0,
            Timer::Known => burst / 8,
            Timer::Expected => burst / 4,
            Timer::Modest => burst * 3 / 8,
            Timer::Wanted => burst * 2 / 5,
            Timer::Repeated => burst * 7 / 16,
            Timer::Stranger if passed_over >= PASSED_OVER_MAX => burst / 8,
            Timer::Stranger | Timer::Again => burst / 2,
        }
    }

    /// Those that ask, in the order in which they are served.
    pub fn asking() -> impl Iterator<Item = Timer> {
        Timer::ALL.into_iter().skip(1)
    }
}

/// After this number of questions that strangers waited for, one is for a stranger that waits.
pub(super) const PASSED_OVER_MAX: u8 = 3;
