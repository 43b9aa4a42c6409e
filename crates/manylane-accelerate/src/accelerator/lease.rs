//! Until when packets may be forwarded by the tables: the word that programs compare with the clock.
//!
//! A stamp says that the tables are *true*, not that a thread lives. The stamp therefore counts from the moment at
//! which they were last known to be: a reading of the clock taken *before* the look that found all sockets empty.
//! A thread that is stopped between that look and the stamp (SIGSTOP, a paused machine) writes a time that has passed.
//!
//! | The tables are | Since                                        | The stamp                                        |
//! |----------------|----------------------------------------------|--------------------------------------------------|
//! | unknown        | the start                                    | none                                             |
//! | true           | all sockets were empty, all edits carried out | that moment + `limit`                            |
//! | stale          | a look that was not so                       | now + `limit`, at most the last true moment + `stale_limit` |
//! | stale, lapsed  | the clock reached the stamp                  | none, until they are true again                  |
//!
//! *Empty* is meant as it is said: the socket answered that it has nothing, within the look, after everything
//! that it had was applied. Under 10,000 changes a second a turn finds a few dozen of them, and then none: a
//! change costs microseconds, so the next one is not there yet. Where changes come faster than they can be
//! followed (a full table is loaded), a look ends at its bound and not at the end, and the tables are stale:
//! by less than a look, usually, but unprovably. Stale tables may be used for `stale_limit`, as after messages
//! were lost; then the kernel forwards until everything has been followed.
//!
//! A stale stamp prolongs a lease, and never renews one that has lapsed. So after more than `limit` without a
//! stamp, whatever the reason, the next one needs a look that found everything empty and nothing lost.

use std::io;
use std::time::Duration;

use crate::programs::Ticks;
use rustix::time::{ClockId, clock_gettime};

/// When the programs' lease ends, and what is known of the tables. Times are nanoseconds of `now`.
#[derive(Clone, Debug)]
pub struct Lease {
    limit: u64,
    stale_limit: u64,
    tables: Tables,
    until: u64,
    lapses: u64,
}

/// What is known of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// The tables have never been true.
    Unknown,
    /// The tables were true at `at`.
    True {
        /// The last moment at which the tables were known to be true.
        at: u64,
    },
    /// Something was missed, or is not carried out yet.
    Stale {
        /// The last moment at which they were true.
        since: u64,
    },
}

impl Lease {
    /// A lease that begins lapsed. A `stale_limit` below `limit` makes stale tables end a lease early.
    pub fn new(limit: Duration, stale_limit: Duration) -> Lease {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Lease {
            limit: ns(limit),
            stale_limit: ns(stale_limit),
            tables: Tables::Unknown,
            until: 0,
            lapses: 0,
        }
    }

    /// At `at`, or later, all sockets were empty, and all events read from them have been applied.
    pub fn tables_are_true(&mut self, at: u64) {
        self.tables = match self.tables {
            Tables::True { at: known } => Tables::True { at: at.max(known) },
            Tables::Unknown | Tables::Stale { .. } => Tables::True { at },
        };
    }

    /// Something was lost, or waits to be read or carried out.
    pub fn tables_are_stale(&mut self) {
        if let Tables::True { at } = self.tables {
            self.tables = Tables::Stale { since: at };
        }
    }

    /// The word for the programs at `now`: until when they may forward.
    pub fn stamp(&mut self, now: u64) -> u64 {
        let has_lapsed = self.has_lapsed(now);
        self.until = match self.tables {
            Tables::Unknown => 0,
            Tables::True { at } => at.saturating_add(self.limit),
            Tables::Stale { .. } if has_lapsed => self.until,
            Tables::Stale { since } => {
                now.saturating_add(self.limit).min(since.saturating_add(self.stale_limit))
            }
        };
        // Counted once, when found: a stopped thread finds its lapse when it continues.
        self.lapses += u64::from(has_lapsed && !self.has_lapsed(now));
        self.until
    }

    /// Whether the programs have stopped forwarding by `now`, or never began.
    pub fn has_lapsed(&self, now: u64) -> bool {
        now >= self.until
    }

    /// What is known of the tables.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Until when the last stamp lasts.
    pub fn until(&self) -> u64 {
        self.until
    }

    /// How often it was renewed after it had lapsed; the first time is the beginning.
    pub fn renewals(&self) -> u64 {
        self.lapses
    }

    /// How long to wait at most before the next stamp: a stamp may then be late three times in a row.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_nanos(self.limit / 4).max(Duration::from_millis(1))
    }
}

/// The tick of the kernel at which a lease is over that lasts until `until`: what programs compare.
pub fn in_ticks(clock: &Ticks, until: u64) -> io::Result<u64> {
    // In this order: a thread that is stopped between the two ends the lease early.
    let tick = clock.read()?;
    let left = until.saturating_sub(now()) / clock.length_ns();
    // A tick that has begun counts as whole.
    Ok(if left == 0 { 0 } else { tick.saturating_add(left) })
}

/// Nanoseconds of `CLOCK_MONOTONIC_COARSE`, which moves with the kernel's ticks. The clock stands still while the
/// machine is suspended, when nothing is forwarded either.
pub fn now() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, by which programs stamp their copies of packets.
pub fn now_exactly() -> u64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Since the machine started: neither part is ever negative.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 200;
    const STALE_LIMIT: u64 = 2000;

    #[test]
    fn nothing_is_forwarded_before_the_tables_are_true() {
        let mut lease = lease();
        assert_eq!(lease.stamp(ms(5)), 0);
        lease.tables_are_stale();
        assert_eq!(lease.stamp(ms(6)), 0, "what is unknown does not become stale");
        lease.tables_are_true(ms(7));
        assert_eq!(lease.stamp(ms(8)), ms(7 + LIMIT));
        assert_eq!(lease.renewals(), 1);
    }

    /// The clock was read, sockets were found empty, and then nothing ran for ten seconds.
    #[test]
    fn a_stamp_counts_from_the_look_and_not_from_its_writing() {
        let mut lease = lease();
        lease.tables_are_true(ms(0));
        lease.stamp(ms(0));
        lease.tables_are_true(ms(50));
        assert_eq!(lease.stamp(ms(10_050)), ms(50 + LIMIT));
        assert!(lease.has_lapsed(ms(10_050)));
        lease.tables_are_true(ms(10_051));
        assert_eq!(lease.stamp(ms(10_051)), ms(10_051 + LIMIT));
        assert_eq!(lease.renewals(), 2);
    }

    #[test]
    fn stale_tables_are_used_for_the_stale_limit_and_no_longer() {
        let mut lease = lease();
        lease.tables_are_true(ms(1000));
        lease.stamp(ms(1000));
        let mut last = 0;
        for now in (1050..6000).step_by(50) {
            lease.tables_are_stale();
            last = last.max(lease.stamp(ms(now)));
        }
        assert_eq!(last, ms(1000 + STALE_LIMIT));
        assert!(lease.has_lapsed(ms(1000 + STALE_LIMIT)));
        lease.tables_are_true(ms(6000));
        assert_eq!(lease.stamp(ms(6001)), ms(6000 + LIMIT));
    }

    /// SIGSTOP, and an overrun when the thread continues: within `stale_limit`, but forwarding must stop.
    #[test]
    fn a_lapsed_lease_is_not_renewed_by_stale_tables() {
        let mut lease = lease();
        lease.tables_are_true(ms(0));
        let until = lease.stamp(ms(0));
        lease.tables_are_stale();
        assert_eq!(lease.stamp(ms(LIMIT)), until, "lapsed just now");
        assert_eq!(lease.stamp(ms(LIMIT + 300)), until);
        assert_eq!(lease.tables(), Tables::Stale { since: 0 });
        lease.tables_are_true(ms(LIMIT + 400));
        assert_eq!(lease.stamp(ms(LIMIT + 400)), ms(2 * LIMIT + 400));
    }

    #[test]
    fn staleness_begins_with_the_last_true_moment_however_often_it_is_said() {
        let mut lease = lease();
        lease.tables_are_true(ms(10));
        lease.tables_are_stale();
        lease.tables_are_stale();
        assert_eq!(lease.tables(), Tables::Stale { since: ms(10) });
        lease.tables_are_true(ms(30));
        lease.tables_are_true(ms(20));
        assert_eq!(lease.tables(), Tables::True { at: ms(30) }, "what was known stays known");
    }

    /// Whatever happens in whatever order, forwarding ends within `stale_limit` of the last true moment, and
    /// within `limit` of the last stamp.
    #[test]
    fn no_order_of_events_outlasts_the_limits() {
        let mut random = 1u64;
        for _ in 0..2000 {
            let (mut lease, mut now, mut last_true) = (lease(), 1u64, None);
            for _ in 0..60 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let [what, long] = [random >> 60, (random >> 40) & 0x3ff];
                now += ms(if what & 8 == 0 { long / 20 } else { long });
                match what % 3 {
                    0 => {
                        lease.tables_are_true(now);
                        last_true = Some(now);
                    }
                    1 => lease.tables_are_stale(),
                    _ => {}
                }
                let until = lease.stamp(now);
                let bound = last_true.map_or(0, |at| at + ms(STALE_LIMIT));
                assert!(until <= bound && until <= now + ms(LIMIT), "{until} {bound} {now}");
            }
        }
    }

    #[test]
    fn the_coarse_clock_goes_on() {
        let first = now();
        while now() == first {
            std::hint::spin_loop();
        }
        assert!(now() > first);
    }

    fn lease() -> Lease {
        Lease::new(Duration::from_millis(LIMIT), Duration::from_millis(STALE_LIMIT))
    }

    fn ms(number: u64) -> u64 {
        number * 1_000_000
    }
}
