//! `[sockets]`: bounds of packet sockets and captures.

use std::ops::RangeInclusive;

use super::error::Problem;
use super::section::Section;

/// Bounds of packet sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// Open sockets, fanout groups included.
    pub max: u32,
    /// Sockets of one user of other processes, but root.
    pub per_user_max: u32,
    /// Bytes of all rings together.
    pub memory_max: u64,
}

impl Default for SocketLimits {
    fn default() -> SocketLimits {
        SocketLimits { max: 1024, per_user_max: 64, memory_max: 1 << 30 }
    }
}

/// What [`SocketLimits::max`] may be.
const MAX: RangeInclusive<u64> = 1..=65_536;
/// What [`SocketLimits::memory_max`] may be: from a small ring up to more than any machine has.
const MEMORY_MAX: RangeInclusive<u64> = 1 << 20..=1 << 40;

pub(super) fn sockets(file: &Section<'_>) -> Result<SocketLimits, Problem> {
    let section = file.table("sockets", "[sockets]")?;
    let default = SocketLimits::default();
    let number = |key, default: u32| {
        let number = section.number(key, MAX)?;
        Ok(number.map_or(default, |number| number.into_inner()))
    };
    let memory_max = section.number("memory_max", MEMORY_MAX)?;
    Ok(SocketLimits {
        max: number("max", default.max)?,
        per_user_max: number("per_user_max", default.per_user_max)?,
        memory_max: memory_max.map_or(default.memory_max, |bytes| bytes.into_inner()),
    })
}
