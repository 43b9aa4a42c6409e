//! `words`: how tables are used. An index is published over a record of two words; the old record's slot is reused after
//! a grace period of the crate's own `rcu`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::{Words, WordsMut};

use super::{Seen, explore};

/// The index, and two records of two words.
const WORDS: usize = 5;

/// What the model does with a table: the crate's, or a twin of it.
trait Write {
    fn store(&mut self, at: usize, value: u32);
    fn publish(&mut self, at: usize, value: u32);
}

trait Read: Send + 'static {
    fn load(&self, at: usize) -> u32;
}

/// The writer replaces a record, and reuses its slot for a third one when it may.
#[test]
fn a_published_record_is_seen_whole() {
    static NEW: Seen = Seen::new("the reader saw the new record");
    static REUSED: Seen = Seen::new("the reader saw a record in a reused slot");
    explore("words", None, || {
        let table = WordsMut::zeroed(WORDS);
        let reader = table.reader();
        replace((table, reader), true, &NEW, &REUSED);
    });
    NEW.assert();
    REUSED.assert();
}

#[test]
fn the_twin_of_the_words_passes() {
    explore("words twin", None, || replace(twin(SOURCE), true, &UNUSED, &UNUSED));
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $orders:expr, $grace:expr) => {
        #[test]
        #[should_panic(expected = "torn")]
        fn $name() {
            explore(stringify!($name), None, || replace(twin($orders), $grace, &UNUSED, &UNUSED));
        }
    };
}

mutant!(
    mutant_a_relaxed_publish_shows_half_a_record,
    Orders { publish: Ordering::Relaxed, ..SOURCE },
    true
);
mutant!(
    mutant_a_relaxed_load_shows_half_a_record,
    Orders { load: Ordering::Relaxed, ..SOURCE },
    true
);
mutant!(mutant_a_slot_reused_at_once_shows_half_of_each_record, SOURCE, false);

fn replace(
    (mut table, readers): (impl Write, impl Read),
    grace: bool,
    new: &'static Seen,
    reused: &'static Seen,
) {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("the first fits");
    write_and_publish(&mut table, 0, 1);
    let thread = thread::spawn(move || {
        for _ in 0..2 {
            match look_up(&readers) {
                2 => new.note(),
                3 => reused.note(),
                _ => {}
            }
            reader.quiescent();
        }
    });
    let mut limbo = Limbo::new(domain, 1);
    write_and_publish(&mut table, 1, 2);
    limbo.retire(0).expect("there is room for one");
    let free = if grace { limbo.reclaim() } else { Some(0) };
    if let Some(slot) = free {
        write_and_publish(&mut table, slot, 3);
    }
    thread.join().expect("the reader does not panic");
}

fn look_up(table: &impl Read) -> u32 {
    let record = 1 + 2 * table.load(0) as usize;
    let (first, second) = (table.load(record), table.load(record + 1));
    assert!(first == second && first != 0, "torn: {first}, {second}");
    first
}

fn write_and_publish(table: &mut impl Write, slot: u32, value: u32) {
    let record = 1 + 2 * slot as usize;
    table.store(record, value);
    table.store(record + 1, value);
    table.publish(0, slot);
}

impl Write for WordsMut<u32> {
    fn store(&mut self, at: usize, value: u32) {
        WordsMut::store(self, at, value);
    }

    fn publish(&mut self, at: usize, value: u32) {
        WordsMut::publish(self, at, value);
    }
}

impl Read for Words<u32> {
    fn load(&self, at: usize) -> u32 {
        Words::load(self, at)
    }
}

/// The orderings of a table, named for the functions they stand in.
#[derive(Clone, Copy)]
struct Orders {
    load: Ordering,
    publish: Ordering,
}

const SOURCE: Orders = Orders { load: Ordering::Acquire, publish: Ordering::Release };

#[derive(Clone)]
struct Twin(Arc<[AtomicU32; WORDS]>, Orders);

fn twin(orders: Orders) -> (Twin, Twin) {
    let twin = Twin(Arc::new(std::array::from_fn(|_| AtomicU32::new(0))), orders);
    (twin.clone(), twin)
}

impl Write for Twin {
    fn store(&mut self, at: usize, value: u32) {
        self.0[at].store(value, Ordering::Relaxed);
    }

    fn publish(&mut self, at: usize, value: u32) {
        self.0[at].store(value, self.1.publish);
    }
}

impl Read for Twin {
    fn load(&self, at: usize) -> u32 {
        self.0[at].load(self.1.load)
    }
}
