//! `words`: a twin of how tables are used. (The tables themselves are std atomics, which loom does
//! not see.) An index is published over a record of two words; the old record's slot is reused after
//! a grace period of the crate's own `rcu`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo};

use super::{Seen, explore};

/// The writer replaces a record, and reuses its slot for a third one when it may.
#[test]
fn a_published_record_is_seen_whole() {
    static NEW: Seen = Seen::new("the reader saw the new record");
    static REUSED: Seen = Seen::new("the reader saw a record in a reused slot");
    explore("a_published_record_is_seen_whole", None, || {
        replace(true, Ordering::Release, &NEW, &REUSED)
    });
    NEW.assert();
    REUSED.assert();
}

#[test]
#[should_panic(expected = "torn")]
fn mutant_a_relaxed_publish_shows_half_a_record() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: relaxed publish", None, || replace(true, Ordering::Relaxed, &UNUSED, &UNUSED));
}

#[test]
#[should_panic(expected = "torn")]
fn mutant_a_slot_reused_at_once_shows_half_of_each_record() {
    static UNUSED: Seen = Seen::new("");
    explore("mutant: no grace", None, || replace(false, Ordering::Release, &UNUSED, &UNUSED));
}

fn replace(grace: bool, publish: Ordering, new: &'static Seen, reused: &'static Seen) {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("the first fits");
    let table = Arc::new(Table::new(publish));
    let thread = {
        let table = table.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                match table.look_up() {
                    2 => new.note(),
                    3 => reused.note(),
                    _ => {}
                }
                reader.quiescent();
            }
        })
    };
    let mut limbo = Limbo::new(domain, 1);
    table.write_and_publish(1, 2);
    limbo.retire(0).expect("there is room for one");
    let free = if grace { limbo.reclaim() } else { Some(0) };
    if let Some(slot) = free {
        table.write_and_publish(slot, 3);
    }
    thread.join().expect("the reader does not panic");
}

/// A word that is published, and two slots for records of two words. The orderings are those of
/// `Words::load`, `WordsMut::store` and `WordsMut::publish`.
struct Table {
    index: AtomicU32,
    records: [[AtomicU32; 2]; 2],
    publish: Ordering,
}

impl Table {
    fn new(publish: Ordering) -> Table {
        let record = |value| [AtomicU32::new(value), AtomicU32::new(value)];
        Table { index: AtomicU32::new(0), records: [record(1), record(0)], publish }
    }

    fn look_up(&self) -> u32 {
        let [first, second] = &self.records[self.index.load(Ordering::Acquire) as usize];
        let (first, second) = (first.load(Ordering::Acquire), second.load(Ordering::Acquire));
        assert!(first == second && first != 0, "torn: {first}, {second}");
        first
    }

    fn write_and_publish(&self, slot: u32, value: u32) {
        for word in &self.records[slot as usize] {
            word.store(value, Ordering::Relaxed);
        }
        self.index.store(slot, self.publish);
    }
}
