//! `[sockets]`: bounds of packet sockets and captures.

use std::fs;
use std::ops::RangeInclusive;

use super::error::Problem;
use super::section::Section;

/// Bounds of packet sockets. Those of one user are for users of other processes, but root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// Open sockets, fanout groups included.
    pub max: u32,
    /// Sockets of one user.
    pub per_user_max: u32,
    /// Bytes of all rings together.
    pub memory_max: u64,
    /// Bytes of one user's rings.
    pub per_user_memory_max: u64,
    /// Instructions of all filters of other processes' sockets, each counted at each of its points: the most that a
    /// packet runs through.
    pub filter_max: u32,
    /// Those of one user's sockets.
    pub per_user_filter_max: u32,
    /// Percent of a worker's time that the sockets of users may take: 100 is no bound.
    pub time_max: u32,
    /// Whether sockets of other processes may send.
    pub send: bool,
}

impl Default for SocketLimits {
    fn default() -> SocketLimits {
        let memory_max = share_of(memory_of_the_machine());
        SocketLimits {
            max: 1024,
            per_user_max: 64,
            memory_max,
            per_user_memory_max: memory_max / 2,
            filter_max: 16_384,
            per_user_filter_max: 4096,
            time_max: 50,
            send: false,
        }
    }
}

/// What [`SocketLimits::max`] may be.
const MAX: RangeInclusive<u64> = 1..=65_536;
/// What [`SocketLimits::filter_max`] may be.
const FILTER_MAX: RangeInclusive<u64> = 1..=16_777_216;
/// What [`SocketLimits::time_max`] may be.
const TIME_MAX: RangeInclusive<u64> = 1..=100;
/// What [`SocketLimits::memory_max`] may be: from a small ring up to more than any machine has.
const MEMORY_MAX: RangeInclusive<u64> = 1 << 20..=1 << 40;

pub(super) fn sockets(file: &Section<'_>) -> Result<SocketLimits, Problem> {
    let section = file.table("sockets", "[sockets]")?;
    let default = SocketLimits::default();
    let number = |key, range, default: u32| {
        let number = section.number(key, range)?;
        Ok(number.map_or(default, |number| number.into_inner()))
    };
    let bytes = |key, default: u64| {
        let bytes = section.number(key, MEMORY_MAX)?;
        Ok(bytes.map_or(default, |bytes| bytes.into_inner()))
    };
    let memory_max = bytes("memory_max", default.memory_max)?;
    Ok(SocketLimits {
        max: number("max", MAX, default.max)?,
        per_user_max: number("per_user_max", MAX, default.per_user_max)?,
        memory_max,
        per_user_memory_max: bytes("per_user_memory_max", memory_max / 2)?,
        filter_max: number("filter_max", FILTER_MAX, default.filter_max)?,
        per_user_filter_max: number(
            "per_user_filter_max",
            FILTER_MAX,
            default.per_user_filter_max,
        )?,
        time_max: number("time_max", TIME_MAX, default.time_max)?,
        send: section.boolean("send")?.unwrap_or(default.send),
    })
}

/// Bytes that rings may have of a machine with so much memory: the kernel takes none of it back while they are open.
fn share_of(memory: u64) -> u64 {
    (memory / 16).max(SHARE_MIN)
}

/// Enough for `manylane capture` on a small machine: 8 MiB for each worker.
const SHARE_MIN: u64 = 64 << 20;

/// Bytes of this machine's memory: 0 where `/proc` does not say.
fn memory_of_the_machine() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = table.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_a_share_of_the_machine() {
        assert_eq!([0, 512 << 20, 32 << 30].map(share_of), [64 << 20, 64 << 20, 2 << 30]);
        assert!(memory_of_the_machine() > 64 << 20);
        let limits = SocketLimits::default();
        assert_eq!(limits.per_user_memory_max, limits.memory_max / 2);
    }
}
