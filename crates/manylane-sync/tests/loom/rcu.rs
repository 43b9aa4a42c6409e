//! `rcu`: its guarantees, one test for each letter.
//!
//! The models are generic over the domain: the crate's here, a twin of it in `rcu_twin`.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo, Reader, Ticket};

use super::{Seen, Watched, explore};

/// What the models do with a domain.
pub trait Grace: Send + Sync + 'static {
    type Reader: Member;
    type Ticket: Copy;

    fn register(&self) -> Option<Self::Reader>;
    fn start(&self) -> Self::Ticket;
    fn is_over(&self, ticket: Self::Ticket) -> bool;
}

/// What the models do with a reader. Dropping it leaves the domain.
pub trait Member: Send + 'static {
    fn quiescent(&mut self);
    fn offline(&mut self);
    fn online(&mut self);
}

/// What a reader found before a grace period began is not freed until that reader is quiescent or
/// offline.
#[test]
fn rcu_a_what_a_reader_found_is_not_freed_before_it_is_quiescent() {
    static FREED: Seen = Seen::new("the writer freed while a reader was online");
    explore("rcu_a, 1 reader x 2", None, || found(Domain::new(1), 1, 2, &FREED));
    FREED.assert();
    explore("rcu_a, 2 readers x 1", Some(4), || found(Domain::new(2), 2, 1, &FREED));
    FREED.assert();
    explore("rcu_a, 2 readers x 2", Some(3), || found(Domain::new(2), 2, 2, &FREED));
    FREED.assert();
}

/// As above, with two writers, whose tickets a reader may confirm by one look at the token.
#[test]
fn rcu_a_also_when_two_writers_start_at_once() {
    static FREED: Seen = Seen::new("a writer freed while the reader was online");
    explore("rcu_a, 2 writers", Some(3), || {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let tables = [Arc::new(Table::new()), Arc::new(Table::new())];
        for table in &tables {
            let (domain, table) = (domain.clone(), table.clone());
            thread::spawn(move || {
                if replace_and_free(&domain, &table) {
                    FREED.note();
                }
            });
        }
        for _ in 0..2 {
            tables.iter().for_each(|table| table.find_and_read());
            reader.quiescent();
        }
    });
    FREED.assert();
}

/// What a reader did before it was quiescent happens before what the writer does after the grace
/// period is over, whichever way the reader let go.
#[test]
fn rcu_b_what_a_reader_did_is_seen_after_the_grace_period() {
    for leave in [Leave::Quiescent, Leave::Offline, Leave::OfflineAndBack, Leave::ForAnother] {
        static OVER: Seen = Seen::new("the grace period was over before the reader's thread was");
        explore(&format!("rcu_b, {leave:?}"), None, move || did(Domain::new(1), leave, &OVER));
        OVER.assert();
    }
}

/// A reader that comes online during a grace period does not find what was unpublished before it
/// began, or holds the grace period up.
#[test]
fn rcu_c_a_reader_that_comes_online_finds_the_new_or_is_waited_for() {
    static FREED: Seen = Seen::new("the writer freed while a reader came online");
    static HELD_UP: Seen = Seen::new("a reader that came online held the grace period up");
    explore("rcu_c, 1 reader x 2", None, || comes_online(Domain::new(1), 1, 2, &FREED, &HELD_UP));
    FREED.assert();
    HELD_UP.assert();
    explore("rcu_c, 2 readers x 1", Some(3), || {
        comes_online(Domain::new(2), 2, 1, &FREED, &HELD_UP);
    });
}

/// An offline reader holds nothing up: the writer waits here, and the reader waits for the writer. A
/// grace period that waited for it would be a deadlock.
#[test]
fn rcu_d_an_offline_reader_holds_nothing_up() {
    explore("rcu_d", None, || {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let table = Arc::new(Table::new());
        let over = Arc::new(Notify::new());
        let thread = {
            let (table, over) = (table.clone(), over.clone());
            thread::spawn(move || {
                table.find_and_read();
                reader.offline();
                over.wait();
                reader.online();
                table.find_and_read();
            })
        };
        table.replace(1);
        domain.synchronize();
        table.free(0);
        over.notify();
        thread.join().expect("the reader does not panic");
    });
}

/// What the limbo hands back has had a grace period that began after it was retired, whether it has a
/// ticket of its own or shares that of a batch.
#[test]
fn rcu_e_the_limbo_hands_back_what_had_its_grace_period() {
    static FIRST: Seen = Seen::new("the first object came back while the reader was online");
    static BATCH: Seen = Seen::new("a batch that began late came back while the reader was online");
    explore("rcu_e", Some(4), || {
        let domain = Domain::new(1);
        let (table, mut writer) = (table_with_reader(&domain, 2), Limbo::new(domain, 3));
        // The first begins a grace period. The others wait for the next.
        for index in 0..3 {
            table.replace(index + 1);
            writer.retire(index).expect("there is room for three");
        }
        for _ in 0..2 {
            while let Some(index) = writer.reclaim() {
                if index == 0 {
                    FIRST.note()
                } else {
                    BATCH.note()
                }
                table.free(index);
            }
        }
    });
    FIRST.assert();
    BATCH.assert();
}

/// What `Limbo` would do if a batch took part in the grace period under way.
#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_batch_that_joins_the_grace_period_under_way_is_freed_early() {
    explore("rcu_e mutant", None, || {
        let domain = Domain::new(1);
        let table = table_with_reader(&domain, 2);
        table.replace(1);
        let ticket = domain.start();
        table.replace(2);
        if domain.is_over(ticket) {
            table.free(1);
        }
    });
}

/// A table that a thread looks things up in, `sections` times.
fn table_with_reader(domain: &Domain, sections: usize) -> Arc<Table> {
    let table = Arc::new(Table::new());
    let mut reader = domain.register().expect("the first fits");
    let looked_up = table.clone();
    thread::spawn(move || {
        for _ in 0..sections {
            looked_up.find_and_read();
            reader.quiescent();
        }
    });
    table
}

/// A: the writer replaces and frees while `readers` look things up, `sections` times each.
pub fn found(domain: impl Grace, readers: usize, sections: usize, freed: &'static Seen) {
    let table = Arc::new(Table::new());
    for _ in 0..readers {
        let mut reader = domain.register().expect("there is a slot for each");
        let table = table.clone();
        thread::spawn(move || {
            for _ in 0..sections {
                table.find_and_read();
                reader.quiescent();
            }
        });
    }
    if replace_and_free(&domain, &table) {
        freed.note();
    }
}

/// How a reader lets go of what it read.
#[derive(Clone, Copy, Debug)]
pub enum Leave {
    Quiescent,
    Offline,
    /// The writer may see only that it is back.
    OfflineAndBack,
    /// The reader leaves the domain, and another thread gets its slot: the writer may see only that one.
    ForAnother,
}

/// B: the reader uses something and lets go; the writer uses it once the grace period is over.
pub fn did(domain: impl Grace, leave: Leave, over: &'static Seen) {
    let domain = Arc::new(domain);
    let mut reader = domain.register().expect("the first fits");
    let used = Arc::new(Watched::new(0));
    let thread = {
        let used = used.clone();
        thread::spawn(move || {
            used.write(1);
            match leave {
                Leave::Quiescent => reader.quiescent(),
                Leave::Offline | Leave::OfflineAndBack | Leave::ForAnother => reader.offline(),
            }
            match leave {
                // A grace period that begins after the first call is over only by a second.
                Leave::Quiescent => reader.quiescent(),
                Leave::OfflineAndBack => reader.online(),
                Leave::Offline => {}
                Leave::ForAnother => return None,
            }
            Some(reader)
        })
    };
    if let Leave::ForAnother = leave {
        let domain = domain.clone();
        // The thread gets the slot only if the first has left.
        thread::spawn(move || domain.register());
    }
    let ticket = domain.start();
    if domain.is_over(ticket) {
        over.note();
        assert_eq!(used.read(), 1, "the writer does not see what the reader did");
        used.write(2);
    }
    drop(thread.join().expect("the reader does not panic"));
}

/// C: `readers` come online and look things up while the writer replaces and frees.
pub fn comes_online(
    domain: impl Grace,
    readers: usize,
    sections: usize,
    freed: &'static Seen,
    held_up: &'static Seen,
) {
    let table = Arc::new(Table::new());
    for _ in 0..readers {
        let mut reader = domain.register().expect("there is a slot for each");
        reader.offline();
        let table = table.clone();
        thread::spawn(move || {
            for _ in 0..sections {
                reader.online();
                table.find_and_read();
                reader.offline();
            }
        });
    }
    if replace_and_free(&domain, &table) {
        freed.note();
    } else {
        held_up.note();
    }
}

fn replace_and_free(domain: &impl Grace, table: &Table) -> bool {
    table.replace(1);
    let ticket = domain.start();
    // One look, as `Limbo::reclaim` does it: waiting would add executions, not cases.
    let over = domain.is_over(ticket);
    if over {
        table.free(0);
    }
    over
}

/// Slots and the index of the published one.
struct Table {
    published: AtomicUsize,
    slots: [Watched; 4],
}

const FREE: u32 = 0;

impl Table {
    fn new() -> Table {
        Table { published: AtomicUsize::new(0), slots: [1, 2, 3, 4].map(Watched::new) }
    }

    fn find_and_read(&self) {
        let index = self.published.load(Ordering::Acquire);
        let value = self.slots[index].read();
        assert_ne!(value, FREE, "used after it was freed");
    }

    fn replace(&self, index: usize) {
        self.published.store(index, Ordering::Release);
    }

    fn free(&self, index: usize) {
        self.slots[index].write(FREE);
    }
}

impl Grace for Domain {
    type Reader = Reader;
    type Ticket = Ticket;

    fn register(&self) -> Option<Reader> {
        Domain::register(self).ok()
    }

    fn start(&self) -> Ticket {
        Domain::start(self)
    }

    fn is_over(&self, ticket: Ticket) -> bool {
        Domain::is_over(self, ticket)
    }
}

impl Member for Reader {
    fn quiescent(&mut self) {
        Reader::quiescent(self);
    }

    fn offline(&mut self) {
        Reader::offline(self);
    }

    fn online(&mut self) {
        Reader::online(self);
    }
}
