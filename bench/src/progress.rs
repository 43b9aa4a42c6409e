//! What is measured now and how long it still takes, on standard error; and how long a question may take at most.
//!
//! On a terminal one line is drawn anew; elsewhere a line is printed every ten seconds. The thread that drives the
//! measuring threads prints between two slices, and no thread of this module runs during a slice.
//!
//! A question says its bound beforehand. Once the bound allows no further round, no further round begins, so a slow machine
//! has fewer rounds, and each figure says how many. Three rounds are measured in any case.

use std::env;
use std::io::{IsTerminal, Write};
use std::sync::PoisonError;

use crate::prelude::*;

/// How long a question may take, in seconds, and how much of that it needs after its last round.
const BOUNDS: [(&str, u64, u64); 28] = [
    ("forward", 100, 32),
    ("forward_dpdk", 90, 0),
    ("fib", 65, 0),
    ("fib_dpdk", 60, 0),
    ("tcp", 90, 2),
    ("veth/rate", 140, 2),
    ("veth/few", 120, 20),
    ("veth/gap", 40, 2),
    ("veth/full", 195, 2),
    ("veth/mirror", 80, 10),
    ("veth/churn", 80, 10),
    ("veth/stateful", 230, 2),
    ("veth/stateful_full", 240, 2),
    ("veth/admission", 160, 2),
    ("veth/stateful_end", 40, 2),
    ("veth/stateful_tcp", 80, 2),
    ("veth/observed_sflow", 90, 2),
    ("veth/observed_ipfix", 100, 2),
    ("veth/observed_capture", 130, 2),
    ("compare/neighbour", 110, 50),
    ("compare/refcount", 70, 0),
    ("compare/rcu", 60, 0),
    ("compare/rcu_dpdk", 50, 0),
    ("compare/handoff", 120, 0),
    ("compare/socket", 130, 0),
    ("compare/frame", 130, 0),
    ("compare/frame_dpdk", 80, 0),
    ("scale", 60, 0),
];
/// Of a question that the table does not have.
const OTHERWISE: (u64, u64) = (120, 0);
/// Rounds that are measured whatever the bound.
const ROUNDS_MIN: usize = 3;
/// How often a line is printed.
const TERMINAL: Duration = Duration::from_millis(500);
const PLAIN: Duration = Duration::from_secs(10);

struct State {
    /// The question.
    name: String,
    /// What is being done.
    what: String,
    /// When the question has to be over.
    end: Option<Instant>,
    /// When what is being done will be over, as far as that is known.
    expected: Option<Instant>,
    /// Whether that is known from rounds already measured; else it is the question's bound.
    is_estimate: bool,
    printed: Option<Instant>,
    /// The terminal's last line is ours.
    is_drawn: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    name: String::new(),
    what: String::new(),
    end: None,
    expected: None,
    is_estimate: false,
    printed: None,
    is_drawn: false,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a question may take, and how much of it is left for what follows its last round.
fn times(name: &str) -> (Duration, Duration) {
    let row = BOUNDS.iter().find(|row| row.0 == name);
    let (bound, tail) = row.map_or(OTHERWISE, |&(_, bound, tail)| (bound, tail));
    (Duration::from_secs(bound), Duration::from_secs(tail))
}

/// How long these questions may take together.
pub fn bound(names: &[&str]) -> Duration {
    names.iter().map(|name| times(name).0).sum()
}

/// Says how long something takes at most.
pub fn promise(name: &str, bound: Duration) {
    clear();
    eprintln!("{name}: at most {}", spoken(bound));
}

/// Begins a question: says its bound.
pub fn question(name: &str) {
    let (bound, tail) = times(name);
    promise(name, bound);
    let mut state = state();
    let now = Instant::now();
    (state.name, state.what) = (name.into(), "prepares".into());
    (state.end, state.expected) = (Some(now + bound - tail), Some(now + bound));
    (state.is_estimate, state.printed) = (false, Some(now));
}

/// Says what the question does now, which may take more than two seconds.
pub fn doing(what: &str) {
    let mut state = state();
    state.what = what.into();
    state.print();
}

/// Called between slices: prints what is being done if the last line is old.
pub fn tick() {
    let mut state = state();
    let interval = if io::stderr().is_terminal() { TERMINAL } else { PLAIN };
    if state.printed.is_none_or(|printed| printed.elapsed() >= interval) {
        state.print();
    }
}

/// Removes the line from the terminal before something else is printed.
pub fn clear() {
    let mut state = state();
    if state.is_drawn {
        state.is_drawn = false;
        eprint!("\r\x1b[K");
    }
}

impl State {
    fn print(&mut self) {
        if self.name.is_empty() {
            return; // A test, or a child.
        }
        let now = Instant::now();
        let State { name, what, .. } = &*self;
        let still = match self.expected {
            Some(end) if end > now => {
                let how = if self.is_estimate { "about" } else { "at most" };
                format!(", {how} {} still", spoken(end - now))
            }
            _ => String::new(),
        };
        if io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb") {
            eprint!("\r\x1b[K{name}: {what}{still}");
            let _ = io::stderr().flush(); // Without a reader the line is missed, and nothing else.
            self.is_drawn = true;
        } else {
            eprintln!("{name}: {what}{still}");
        }
        self.printed = Some(now);
    }
}

/// Seconds up to two minutes, then minutes, rounded up.
fn spoken(time: Duration) -> String {
    match time.as_millis().div_ceil(1000) {
        seconds @ 0..=120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// Rounds of a question, by number, as many as its bound allows.
pub struct Steps {
    what: String,
    count: usize,
    done: usize,
    begun: Instant,
    end: Option<Instant>,
    longest: Duration,
    last: Instant,
}

/// `count` rounds, or as many as the question's bound allows: `ROUNDS_MIN` at least.
pub fn rounds(what: &str, count: usize) -> Steps {
    let now = Instant::now();
    let (end, what) = (state().end, what.into());
    Steps { what, count, done: 0, begun: now, end, longest: Duration::ZERO, last: now }
}

impl Iterator for Steps {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let now = Instant::now();
        if self.done > 0 {
            self.longest = self.longest.max(now - self.last);
        }
        self.last = now;
        if !self.has_another(now) {
            return None;
        }
        let mut state = state();
        state.what = format!("{}, round {} of {}", self.what, self.done + 1, self.count);
        if self.done > 0 {
            let each = (now - self.begun) / self.done as u32;
            let left = each * (self.count - self.done) as u32;
            let end = now + left;
            state.is_estimate = true;
            state.expected = Some(self.end.map_or(end, |limit| limit.max(now).min(end)));
        }
        drop(state);
        tick();
        self.done += 1;
        Some(self.done - 1)
    }
}

impl Steps {
    /// Whether a further round is to begin now.
    fn has_another(&self, now: Instant) -> bool {
        let fits = self.end.is_none_or(|end| now + self.longest <= end);
        self.done < self.count && (fits || self.done < ROUNDS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(done: usize, end_in_s: u64, longest_s: u64) -> (Steps, Instant) {
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        let end = Some(begun + second * end_in_s as u32);
        let longest = second * longest_s as u32;
        (Steps { what: String::new(), count: 9, done, begun, end, longest, last: begun }, begun)
    }

    #[test]
    fn a_round_that_would_end_after_the_bound_does_not_begin() {
        let (enough, now) = steps(5, 20, 20);
        assert!(enough.has_another(now));
        let (late, now) = steps(5, 20, 21);
        assert!(!late.has_another(now));
        let (all, now) = steps(9, 20, 1);
        assert!(!all.has_another(now));
    }

    #[test]
    fn three_rounds_are_measured_whatever_the_bound() {
        let (third, now) = steps(2, 0, 60);
        assert!(third.has_another(now));
        let (fourth, now) = steps(3, 0, 60);
        assert!(!fourth.has_another(now));
    }

    #[test]
    fn a_time_is_spoken_in_seconds_or_minutes_and_rounded_up() {
        let spoken = |ms| spoken(Duration::from_millis(ms));
        assert_eq!([spoken(0), spoken(1500), spoken(120_000)], ["0 s", "2 s", "120 s"]);
        assert_eq!([spoken(120_001), spoken(600_000)], ["3 min", "10 min"]);
    }

    #[test]
    fn the_whole_run_takes_50_minutes_at_most_and_peers_five() {
        let own = crate::whole::QUESTIONS.iter().map(|question| question.bound(&[])).sum();
        let peers = crate::whole::QUESTIONS.iter().map(|question| question.peers_bound()).sum();
        let text = [own, peers].map(spoken).join(" and ");
        assert!(own <= Duration::from_secs(50 * 60), "{text}");
        assert!(peers <= Duration::from_secs(5 * 60), "{text}");
    }
}
