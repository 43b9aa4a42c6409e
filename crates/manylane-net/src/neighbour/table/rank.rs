//! In which order entries are given up.

use super::super::entry::{Entry, State, Trust};

/// The rank in giving entries up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Failed,
    Stranger,
    Wanted,
    Modest,
    Expected,
    /// Known, whether it is being solicited or has failed.
    Known,
    Stale,
}

impl Rank {
    /// How little is lost with an entry; `None` for one that is never given up.
    pub fn of(entry: &Entry) -> Option<Rank> {
        match (entry.state, entry.trust) {
            (State::Failed | State::Incomplete, Trust::Known) => Some(Rank::Known),
            (State::Failed, _) => Some(Rank::Failed),
            (State::Incomplete, Trust::Expected) => Some(Rank::Expected),
            // Modest senders may be spoofed, and fill the table with what never answers: once asked, it gives way.
            (State::Incomplete, Trust::Modest) if entry.asked == 0 => Some(Rank::Modest),
            (State::Incomplete, Trust::Modest) => Some(Rank::Wanted),
            (State::Incomplete, Trust::Wanted) => Some(Rank::Wanted),
            (State::Incomplete, Trust::Stranger) => Some(Rank::Stranger),
            (State::Stale, _) => Some(Rank::Stale),
            (State::Reachable | State::Delay | State::Probe | State::Permanent, _) => None,
        }
    }
}
