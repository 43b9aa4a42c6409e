//! Why a slice does not count, as far as the kernel knows.

use std::fs;

use crate::prelude::*;

/// How a thread spent a stretch of time, by the kernel's account.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// From begin to end.
    elapsed: Duration,
    /// On a core.
    ran: Duration,
    /// Ready to run, while another thread had the core.
    waited: Duration,
}

/// A stretch of time that has begun.
pub struct Stretch {
    begun: Instant,
    before: [Duration; 2],
}

impl Stretch {
    /// Begins one of the calling thread.
    pub fn begin() -> Stretch {
        Stretch { begun: Instant::now(), before: schedstat() }
    }

    /// Ends the stretch.
    pub fn end(self) -> Account {
        let [ran, waited] = schedstat();
        let Stretch { begun, before } = self;
        let (ran, waited) = (ran.saturating_sub(before[0]), waited.saturating_sub(before[1]));
        Account { elapsed: begun.elapsed(), ran, waited }
    }
}

/// How long this thread ran, and how long it was ready and did not run. Zero without `CONFIG_SCHED_INFO`.
fn schedstat() -> [Duration; 2] {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut ns = text.split_whitespace().map(|field| field.parse().unwrap_or(0));
    [(); 2].map(|()| Duration::from_nanos(ns.next().unwrap_or(0)))
}

impl Account {
    /// The account of a thread of another program.
    pub fn of_parts(elapsed: Duration, ran: Duration, waited: Duration) -> Account {
        Account { elapsed, ran, waited }
    }

    /// Why the thread was away from its work for `away`: what takes at least half of that time.
    pub fn why(&self, away: Duration) -> String {
        let Account { elapsed, ran, waited } = *self;
        let slept = elapsed.saturating_sub(ran + waited);
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        if ran.is_zero() {
            format!(
                "a thread was away for {}, and this kernel does not say why (CONFIG_SCHED_INFO)",
                ms(away)
            )
        } else if waited * 2 >= away {
            format!("another thread of the machine had the core for {}", ms(waited))
        } else if slept * 2 >= away {
            format!("the measured work itself slept for {}, in its own system calls", ms(slept))
        } else {
            let why = "by interrupts, by the machine's host or by a long system call of its own";
            format!("a thread was away for {}, {why}", ms(away))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_cause_is_what_takes_half_of_the_time_away() {
        let account =
            |ran, waited| Account { elapsed: 100 * MS, ran: ran * MS, waited: waited * MS };
        for (account, why) in [
            (account(80, 20), "another thread of the machine had the core for 20.0 ms"),
            (account(80, 0), "the measured work itself slept for 20.0 ms, in its own system calls"),
            (
                account(99, 1),
                "a thread was away for 20.0 ms, by interrupts, by the machine's host or by a long system call of its own",
            ),
            (
                account(0, 0),
                "a thread was away for 20.0 ms, and this kernel does not say why (CONFIG_SCHED_INFO)",
            ),
        ] {
            assert_eq!(account.why(20 * MS), why);
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to_sleep() {
        let stretch = Stretch::begin();
        let begun = Instant::now();
        while begun.elapsed() < MS {
            spin_loop();
        }
        thread::sleep(20 * MS);
        let account = stretch.end();
        assert!(
            account.elapsed >= 21 * MS && account.ran + account.waited < account.elapsed,
            "{account:?}"
        );
    }
}
