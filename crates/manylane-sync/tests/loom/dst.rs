//! Records that are found in a turn and held beyond it (`nexthop::dst` in `manylane-net`): a twin of its
//! table, with the crate's own `RcuRef`, `Domain` and `Limbo`. The table keeps a reference, so that the
//! count never dies; the writer uses a record again when its grace period is over and then the table's
//! reference is the only one.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;
use manylane_sync::rcu::{Domain, Limbo, Reader};
use manylane_sync::refcount::RcuRef;

use super::{Seen, Watched, explore};

/// A worker holds what it found in its turn, passes a second reference on, and puts its own; the writer
/// withdraws the record and publishes another in its place.
#[test]
fn a_held_record_is_not_used_again() {
    for (name, heirs, preemptions) in [("a worker", 0, None), ("and an heir", 1, Some(3))] {
        let witness = Witness::new();
        explore(&format!("dst, {name}"), preemptions, move || {
            life(RcuRef::new(1), SOURCE, heirs, witness);
        });
        witness.assert();
    }
}

#[test]
fn the_twin_of_the_count_passes() {
    explore("dst twin", Some(3), || {
        life(twin(Ordering::Release), SOURCE, 0, Witness::new());
    });
}

macro_rules! mutant {
    ($name:ident, $heirs:literal, $put:expr, $rules:expr) => {
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            explore(stringify!($name), Some(3), || {
                life(twin($put), $rules, $heirs, Witness::new())
            });
        }
    };
}

mutant!(
    mutant_without_the_fence_a_holder_reads_what_comes_next,
    0,
    Ordering::Release,
    Rules { fence: false, ..SOURCE }
);
mutant!(mutant_a_relaxed_put_reads_what_comes_next, 0, Ordering::Relaxed, SOURCE);
mutant!(
    mutant_without_a_grace_period_a_finder_holds_what_comes_next,
    0,
    Ordering::Release,
    Rules { when: When::CountOnly, ..SOURCE }
);
mutant!(
    mutant_without_a_count_a_holder_reads_what_comes_next,
    0,
    Ordering::Release,
    Rules { when: When::GraceOnly, ..SOURCE }
);
mutant!(
    mutant_a_count_read_before_the_grace_period_misses_a_finder,
    0,
    Ordering::Release,
    Rules { when: When::CountThenGrace, ..SOURCE }
);

#[derive(Clone, Copy)]
struct Rules {
    when: When,
    /// The Acquire fence after the look at the count.
    fence: bool,
}

const SOURCE: Rules = Rules { when: When::GraceThenCount, fence: true };

/// What makes a record free.
#[derive(Clone, Copy, PartialEq)]
enum When {
    GraceThenCount,
    CountThenGrace,
    GraceOnly,
    CountOnly,
}

trait Count: Send + Sync + 'static {
    fn get(&self);
    fn put(&self, reader: &Reader);
    fn read(&self) -> u32;
}

impl Count for RcuRef {
    fn get(&self) {
        assert!(RcuRef::get(self), "the table keeps a reference");
    }

    fn put(&self, reader: &Reader) {
        assert!(!RcuRef::put(self, reader.guard()), "the table keeps a reference");
    }

    fn read(&self) -> u32 {
        RcuRef::read(self)
    }
}

/// A count; the tests need its live zone only.
struct Twin {
    word: AtomicU32,
    put: Ordering,
}

fn twin(put: Ordering) -> Twin {
    Twin { word: AtomicU32::new(1), put }
}

impl Count for Twin {
    fn get(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
    }

    fn put(&self, _: &Reader) {
        self.word.fetch_sub(1, self.put);
    }

    fn read(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }
}

/// What the model should have met.
#[derive(Clone, Copy)]
struct Witness {
    held: &'static Seen,
    reused: &'static Seen,
    found: &'static Seen,
}

impl Witness {
    fn new() -> Witness {
        let seen = |what| -> &'static Seen { Box::leak(Box::new(Seen::new(what))) };
        Witness {
            held: seen("a record was held when its grace period was over"),
            reused: seen("a record was used again beside a worker"),
            found: seen("a worker found the record that came next"),
        }
    }

    fn assert(self) {
        [self.held, self.reused, self.found].iter().for_each(|seen| seen.assert());
    }
}

/// One record, and the word by which it is found.
struct Table<C> {
    is_published: AtomicBool,
    facts: Watched,
    count: C,
    /// The worker has made a reference for the heir.
    bequest: AtomicBool,
}

fn life<C: Count>(count: C, rules: Rules, heirs: usize, witness: Witness) {
    let domain = Domain::new(2 + heirs);
    let table = Arc::new(Table {
        is_published: AtomicBool::new(true),
        facts: Watched::new(1),
        count,
        bequest: AtomicBool::new(false),
    });
    let mut main = domain.register().expect("there is a place for each");
    let worker = {
        let (table, mut reader) =
            (table.clone(), domain.register().expect("there is a place for each"));
        thread::spawn(move || {
            for _ in 0..2 {
                // Acquire: as `Words::load`.
                if table.is_published.load(Ordering::Acquire) {
                    table.count.get();
                    let facts = table.facts.read();
                    if facts == 2 {
                        witness.found.note();
                    }
                    reader.quiescent(); // The turn is over.
                    assert_eq!(table.facts.read(), facts, "not what was held");
                    if heirs > 0 && facts == 1 {
                        table.count.get();
                        table.bequest.store(true, Ordering::Release);
                    }
                    table.count.put(&reader);
                    if facts == 1 && heirs > 0 {
                        break; // One bequest, and fewer executions.
                    }
                }
                reader.quiescent();
            }
        })
    };
    let heir = (heirs > 0).then(|| {
        let (table, mut reader) =
            (table.clone(), domain.register().expect("there is a place for each"));
        thread::spawn(move || {
            reader.quiescent(); // No grace period waits for what it does next.
            let inherits = table.bequest.load(Ordering::Acquire);
            if inherits {
                assert_eq!(table.facts.read(), 1, "not what was held");
                table.count.put(&reader);
            }
            inherits
        })
    });

    let mut limbo = Limbo::new(domain, 1);
    // Release: as `WordsMut::publish`.
    table.is_published.store(false, Ordering::Release);
    limbo.retire(()).expect("there is room for one");
    main.offline();
    let was_alone = table.count.read() == 1;
    let mut is_over = false;
    let mut may_reuse = || {
        is_over |= limbo.reclaim().is_some();
        let alone = table.count.read() == 1;
        if is_over && !alone {
            witness.held.note();
        }
        match rules.when {
            When::GraceThenCount => is_over && alone,
            When::CountThenGrace => was_alone && is_over,
            When::GraceOnly => is_over,
            When::CountOnly => alone,
        }
    };
    let reused = may_reuse();
    if reused {
        witness.reused.note();
        if rules.fence {
            fence(Ordering::Acquire);
        }
        table.facts.write(2);
        table.is_published.store(true, Ordering::Release);
    }
    worker.join().expect("the worker does not panic");
    let inherited = heir.is_some_and(|heir| heir.join().expect("the heir does not panic"));
    if table.bequest.load(Ordering::Relaxed) && !inherited {
        main.online();
        table.count.put(&main);
        main.offline();
    }
    assert!(reused || may_reuse(), "all have put, and the record is not free");
}
