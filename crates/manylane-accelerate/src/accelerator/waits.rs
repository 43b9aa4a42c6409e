//! What the mirror's thread waits for, and for how long: most calls into the kernel take a lock that another process
//! or another network namespace may hold (RTNL), and a stamp of the lease comes behind them.
//!
//! The thread says what it does next ([`Waits::enter`]). Where the lease had lapsed when it was stamped again, the
//! activity that took longest since the stamp before is counted as the reason: without a long one the thread did not
//! run, because it was stopped or had no core.
//!
//! | Activity   | What it can wait for                                                               |
//! |------------|------------------------------------------------------------------------------------|
//! | events     | sockets, not locks; a flood ends a look at its bound                               |
//! | tables     | nothing: plain stores; grace periods are the reclaim thread's                      |
//! | dump       | the lock, for each part of the kernel's tables; steps are taken in between         |
//! | gate       | the lock, for qdiscs, filters, programs, features; nftables' mutex. Only after a change, while the kernel forwards: what is looked at each second is the poller thread's (`gate/poller.rs`) |
//! | programs   | the lock, to attach and detach; grace periods of the kernel, resets of a driver    |
//! | statistics | the lock                                                                           |
//! | neighbours | nothing: the poller thread has the kernel verify them (`gate/poller.rs`) |
//! | questions  | what the API asks: a difference reads all tables                                   |

use std::time::{Duration, Instant};

use manylane_api::accelerate::WaitStatus;

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Sleeps until something happens: no wait.
    Idle,
    Events,
    Tables,
    Dump,
    Gate,
    Programs,
    Statistics,
    Neighbours,
    Questions,
    /// Nothing of these took long: the thread did not run.
    Processor,
}

/// How long each activity took at most, and how often the lease lapsed by it.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    now: (Activity, Instant),
    /// The longest activity since the last stamp.
    since_stamp: (Activity, Duration),
    last_stamp: Instant,
    /// What counts as long.
    long: Duration,
    rows: [(Duration, u64); ACTIVITIES],
}

impl Waits {
    /// Nothing is waited for yet. A lease has a heartbeat of `long`.
    pub fn new(long: Duration) -> Waits {
        Waits {
            now: (Activity::Idle, Instant::now()),
            since_stamp: (Activity::Processor, Duration::ZERO),
            last_stamp: Instant::now(),
            long,
            rows: [(Duration::ZERO, 0); ACTIVITIES],
        }
    }

    /// The thread does this from `at` on. Returns what it did before, to be continued later.
    pub fn enter(&mut self, activity: Activity, at: Instant) -> Activity {
        let (before, since) = std::mem::replace(&mut self.now, (activity, at));
        if before != Activity::Idle {
            let took = at.saturating_duration_since(since);
            let longest = &mut self.rows[before as usize].0;
            *longest = took.max(*longest);
            if took > self.since_stamp.1 {
                self.since_stamp = (before, took);
            }
        }
        before
    }

    /// The lease was stamped at `at`; `has_lapsed` before that. Where no activity is the reason, the thread did not run for
    /// up to the time since the last stamp.
    pub fn stamped(&mut self, has_lapsed: bool, at: Instant) {
        let since = std::mem::replace(&mut self.last_stamp, at);
        let none = (Activity::Processor, Duration::ZERO);
        let (activity, took) = std::mem::replace(&mut self.since_stamp, none);
        if has_lapsed {
            let (reason, took) = match took >= self.long {
                true => (activity, took),
                false => (Activity::Processor, at.saturating_duration_since(since)),
            };
            let (longest, lapses) = &mut self.rows[reason as usize];
            (*longest, *lapses) = (took.max(*longest), *lapses + 1);
        }
    }

    /// What the thread does at `at`, and since when, if that takes long.
    pub fn current(&self, at: Instant) -> Option<String> {
        let (activity, since) = self.now;
        let took = at.saturating_duration_since(since);
        let is_long = activity != Activity::Idle && took >= self.long;
        is_long.then(|| format!("{} for {} ms", meaning(activity), took.as_millis()))
    }

    /// For the API: those that took long or ended a lease.
    pub fn status(&self) -> Vec<WaitStatus> {
        let rows = ALL.iter().map(|&activity| (activity, self.rows[activity as usize]));
        let rows = rows.filter(|(_, (longest, lapses))| *longest >= self.long || *lapses > 0);
        let status = |(activity, (longest, lapses)): (Activity, (Duration, u64))| WaitStatus {
            activity: name(activity).into(),
            meaning: meaning(activity).into(),
            longest_ms: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
            lapses,
        };
        rows.map(status).collect()
    }
}

fn name(activity: Activity) -> &'static str {
    match activity {
        Activity::Idle => "idle",
        Activity::Events => "events",
        Activity::Tables => "tables",
        Activity::Dump => "dump",
        Activity::Gate => "gate",
        Activity::Programs => "programs",
        Activity::Statistics => "statistics",
        Activity::Neighbours => "neighbours",
        Activity::Questions => "questions",
        Activity::Processor => "processor",
    }
}

fn meaning(activity: Activity) -> &'static str {
    match activity {
        Activity::Idle => "it waits for news",
        Activity::Events => "it reads the kernel's events",
        Activity::Tables => "it writes tables",
        Activity::Dump => "it reads the kernel's tables",
        Activity::Gate => "it looks at filters, queueing disciplines and programs",
        Activity::Programs => "it attaches or detaches programs",
        Activity::Statistics => "it reads the devices' statistics",
        Activity::Neighbours => "it confirms neighbours",
        Activity::Questions => "it answers the API",
        Activity::Processor => "it does not run: it is stopped, or has no core",
    }
}

const ALL: [Activity; ACTIVITIES] = [
    Activity::Idle,
    Activity::Events,
    Activity::Tables,
    Activity::Dump,
    Activity::Gate,
    Activity::Programs,
    Activity::Statistics,
    Activity::Neighbours,
    Activity::Questions,
    Activity::Processor,
];
const ACTIVITIES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(50);

    /// Activities and how many milliseconds each took, then a stamp of a lease that had lapsed or not.
    fn turn(waits: &mut Waits, at: &mut Instant, parts: &[(Activity, u64)], has_lapsed: bool) {
        for &(activity, took) in parts {
            waits.enter(activity, *at);
            *at += Duration::from_millis(took);
        }
        waits.enter(Activity::Idle, *at);
        *at += Duration::from_secs(1);
        waits.stamped(has_lapsed, *at);
    }

    #[test]
    fn the_longest_wait_before_a_late_stamp_is_its_reason() {
        use Activity::{Events, Gate, Idle, Programs};
        let (mut waits, mut at) = (Waits::new(LONG), Instant::now());
        turn(&mut waits, &mut at, &[(Events, 1), (Gate, 20), (Idle, 9000)], false);
        assert!(waits.status().is_empty(), "nothing took long");
        turn(&mut waits, &mut at, &[(Events, 1), (Gate, 300), (Programs, 700)], true);
        turn(&mut waits, &mut at, &[(Events, 1), (Programs, 600)], true);
        turn(&mut waits, &mut at, &[(Gate, 250)], false);
        turn(&mut waits, &mut at, &[(Events, 2)], true);
        let status = waits.status();
        let rows = status.iter().map(|row| (row.activity.as_str(), row.longest_ms, row.lapses));
        assert!(
            rows.eq([("gate", 300, 0), ("programs", 700, 2), ("processor", 1002, 1)]),
            "{status:?}"
        );
    }

    #[test]
    fn what_it_waits_for_now_is_said_when_it_takes_long() {
        let (mut waits, at) = (Waits::new(LONG), Instant::now());
        assert_eq!(waits.current(at + 90 * LONG), None, "it sleeps");
        waits.enter(Activity::Gate, at);
        assert_eq!(waits.current(at + LONG / 2), None);
        let said = waits.current(at + 40 * LONG).expect("it takes long");
        assert!(said.starts_with("it looks at filters") && said.ends_with("for 2000 ms"), "{said}");
        // A step in between, and on.
        let before = waits.enter(Activity::Events, at + 40 * LONG);
        assert_eq!(before, Activity::Gate);
        waits.enter(before, at + 41 * LONG);
        assert_eq!(waits.current(at + 41 * LONG), None);
    }
}
