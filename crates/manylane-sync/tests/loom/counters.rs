//! `counters`: sums are exact once the owner has stopped and the reader knows.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use manylane_sync::counters::Counters;

use super::{Seen, explore};

/// Two workers count; a reader adds their blocks up, while they run and after.
#[test]
fn counters_add_up_at_quiescence() {
    static BEFORE: Seen = Seen::new("the reader looked while a worker was counting");
    static AFTER: Seen = Seen::new("the reader saw a worker stop before it ended");
    explore("counters_add_up_at_quiescence", None, || {
        two_workers(Ordering::Release, &BEFORE, &AFTER)
    });
    BEFORE.assert();
    AFTER.assert();
}

/// The reader learns of the end by a pairing; without that pairing the guarantee fails.
#[test]
#[should_panic(expected = "the sum of a worker that stopped")]
fn mutant_a_reader_told_by_relaxed_misses_a_count() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: told by Relaxed", None, || two_workers(Ordering::Relaxed, &UNUSED, &UNUSED));
}

fn two_workers(stop: Ordering, before: &'static Seen, after: &'static Seen) {
    let workers = [1, 2].map(|step| {
        let mut counters = Counters::new(1);
        let reader = counters.reader();
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = stopped.clone();
        let thread = thread::spawn(move || {
            counters.add(0, step);
            counters.add(0, step);
            flag.store(true, stop);
        });
        (reader, stopped, thread, 2 * step)
    });
    for (reader, stopped, _, total) in &workers {
        // Acquire: this is how a reader learns that the owner is at rest.
        if stopped.load(Ordering::Acquire) {
            after.note();
            assert_eq!(reader.load(0), *total, "the sum of a worker that stopped");
        } else {
            let (early, late) = (reader.load(0), reader.load(0));
            assert!(early <= late && late <= *total, "a counter ran backwards: {early}, {late}");
            if early < *total {
                before.note();
            }
        }
    }
    let sum: u64 = workers
        .into_iter()
        .map(|(reader, _, thread, _)| {
            thread.join().expect("a worker does not panic");
            reader.load(0)
        })
        .sum();
    assert_eq!(sum, 6);
}
