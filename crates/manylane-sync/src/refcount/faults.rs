//! Counts that were used wrongly: overflow, underflow and references never put, counted for the whole
//! process.
//!
//! All leave the object where it is for ever: a leak, where a wrapped count would be a use after free.

use std::io::Write;
use std::sync::OnceLock;

use crate::primitive::foreign::{AtomicU64, Ordering};

/// What went wrong with a reference count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// More references than the count can hold: some code forgets to put them.
    Overflow,
    /// A reference was put that did not exist.
    Underflow,
    /// A reference was dropped, by a holder that has to put it.
    Leak,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Overflow => "a reference count overflowed: its object is never freed",
            Fault::Underflow => {
                "a reference was put that no holder had: its object may never be freed"
            }
            Fault::Leak => "a reference was dropped and not put: its object is never freed",
        })
    }
}

/// How often counts of this process were used wrongly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Counts that reached their limit.
    pub overflows: u64,
    /// Puts of references that did not exist.
    pub underflows: u64,
    /// References dropped and not put.
    pub refs_leaked: u64,
}

/// How often counts of this process were used wrongly, since it started.
pub fn faults() -> Faults {
    COUNTERS.faults()
}

/// Calls `hook` with the first fault of each kind, instead of a line on standard error. `hook` runs inside `get` or
/// `put`, on any thread.
///
/// Hands `hook` back when another is set already, or a fault has been reported to standard error.
pub fn on_fault(hook: fn(Fault)) -> Result<(), fn(Fault)> {
    COUNTERS.hook.set(hook)
}

/// Counts `fault`, and reports the first of its kind. Of others' types, those whose `put` takes a guard
/// report their [`Fault::Leak`] when they are dropped.
#[cold]
pub fn report(fault: Fault) {
    COUNTERS.report(fault);
}

static COUNTERS: FaultCounters = FaultCounters::new();

/// Where faults are counted. The standard library's atomics also under loom: no protocol needs them.
struct FaultCounters {
    overflows: AtomicU64,
    underflows: AtomicU64,
    leaks: AtomicU64,
    hook: OnceLock<fn(Fault)>,
}

impl FaultCounters {
    const fn new() -> FaultCounters {
        let [overflows, underflows, leaks] = [const { AtomicU64::new(0) }; 3];
        FaultCounters { overflows, underflows, leaks, hook: OnceLock::new() }
    }

    fn report(&self, fault: Fault) {
        let count = match fault {
            Fault::Overflow => &self.overflows,
            Fault::Underflow => &self.underflows,
            Fault::Leak => &self.leaks,
        };
        // Relaxed: a counter; the first to add is the only one that finds 0.
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.hook.get_or_init(|| say)(fault);
        }
    }

    fn faults(&self) -> Faults {
        // Relaxed: counters, for eyes.
        Faults {
            overflows: self.overflows.load(Ordering::Relaxed),
            underflows: self.underflows.load(Ordering::Relaxed),
            refs_leaked: self.leaks.load(Ordering::Relaxed),
        }
    }
}

/// `eprintln!` would panic where standard error has no reader any more. One write, so that the line is one.
fn say(fault: Fault) {
    let _ = std::io::stderr().write_all(format!("manylane: {fault}\n").as_bytes());
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_fault_is_counted_and_the_first_of_each_kind_reported() {
        static HEARD: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
        let counters = FaultCounters::new();
        let hook: fn(Fault) = |fault| HEARD.lock().expect("nobody panicked").push(fault);
        assert!(counters.hook.set(hook).is_ok());
        let underflow = Fault::Underflow;
        for fault in [underflow, Fault::Overflow, underflow, Fault::Leak, Fault::Leak, underflow] {
            counters.report(fault);
        }
        assert_eq!(counters.faults(), Faults { overflows: 1, underflows: 3, refs_leaked: 2 });
        assert_eq!(
            *HEARD.lock().expect("nobody panicked"),
            [Fault::Underflow, Fault::Overflow, Fault::Leak]
        );
        assert!(counters.hook.set(hook).is_err(), "the hook is set once");
    }
}
