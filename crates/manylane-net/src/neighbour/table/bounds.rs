//! The bounds of a table, and what is counted or said where one is reached.

use std::fmt;

use crate::neighbour::Key;
use crate::neighbour::entry::Timing;

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Entries at most.
    pub entries_max: usize,
    /// Slots beyond that: how many may wait for their grace period before new entries are refused.
    pub spare_slots: usize,
    /// `Incomplete` and `Failed` entries at most, not counting pinned ones.
    pub unproven_max: usize,
    /// Questions a second, on all ports together.
    pub questions_per_second: u32,
    /// Questions at once.
    pub questions_burst: u32,
    /// The entries' timers; `reachable` is the base that each entry draws its own from.
    pub timing: Timing,
    /// What the draws begin with, and the key of what is remembered of addresses: no attacker may know it.
    pub seed: u64,
}

impl Default for TableConfig {
    fn default() -> Self {
        TableConfig {
            entries_max: 8192,
            spare_slots: 1024,
            unproven_max: 4096,
            questions_per_second: 1000,
            questions_burst: 100,
            timing: Timing::default(),
            seed: 0,
        }
    }
}

/// The table has no place for this neighbour: every entry is in use, or every free slot still waits for its grace
/// period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull {
    /// The neighbour without a place.
    pub key: Key,
    /// The table's bound.
    pub entries_max: usize,
}

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no place for neighbour {}: none of the {} entries can be given up; \
             try again, or raise the limit",
            self.key, self.entries_max
        )
    }
}

impl std::error::Error for TableFull {}

/// What reached a bound, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Entries given up for newer ones.
    pub reclaimed: u64,
    /// Neighbours that found no place.
    pub refused: u64,
    /// Answers with an address no station can have.
    pub invalid: u64,
}
