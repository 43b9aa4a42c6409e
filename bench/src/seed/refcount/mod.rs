//! What does a reference cost, by the way it is counted?
//!
//! A pair is a `get` and a `put` of an object that lives, whose answers are looked at. Alone, and with a
//! second thread doing the same to the same count (`_contended`: elapsed time x threads / pairs).
//!
//! | figure                    | pair                                                               |
//! |---------------------------|--------------------------------------------------------------------|
//! | `cas_ns`                  | increment unless zero by compare-and-swap, as `atomic_inc_not_zero` |
//! | `rcuref_ns`               | `RcuRef`; a guard and a `quiescent` for each 64, as in a turn        |
//! | `fetch_add_pair_ns`       | an addition and a subtraction: the floor                           |
//! | `inc_dec_pair_ns`         | the same, answers not looked at                                    |
//! | `debt_ns`                 | `DebtRef`                                                          |
//! | `weakshared_upgrade_ns`   | `WeakShared::upgrade` and drop                                     |
//! | `arc_upgrade_ns`          | `std::sync::Weak::upgrade` and drop                                |
//! | `sticky_ns`               | the sticky counter (needs deferred freeing)                        |
//! | `xadd_cas_ns`             | addition to get, compare-and-swap to put                           |
//! | `*_fairness`              | the slower thread's pairs for each of the faster one's             |
//! | `*_failed_per_op`         | exchanges that failed, for each pair, contended; in loops of their own |
//! | `layout_*`                | four read-mostly fields beside a count, on its line and on their own |
//! | `e2e_*`, `end_to_end_gain`, `uncounted_gain` | what all this is of the whole (`end_to_end.rs`)    |
//!
//! There are two floors because x86 can add without giving back what was there: enough for `sticky`,
//! which asks the processor's flags (`lock inc`), but not for `rcuref` and `debt`, whose slow paths go on
//! with the value (`lock xadd`).
//!
//! `std`'s own failures cannot be seen: `arc_failed_per_op` is of a twin. The counts without a loop have
//! none to fail.
//!
//! Not asked here: the last `put`, more than two threads, work between `get` and `put`. Few exchanges
//! fail on two cores (a line probably stays for several operations); more cores cannot be seen here.
//!
//! Needs two cores with nothing else on them.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

mod end_to_end;

use std::array;
use std::hint::black_box;
use std::io;
use std::sync::{Arc, Weak};

use manylane_sync::CacheAligned;
use manylane_sync::primitive::{AtomicU64, Ordering};
use manylane_sync::rcu::{Domain, Guard, Reader};
use manylane_sync::refcount::{DebtRef, RcuRef, Shared, WeakShared};

use super::{Plan, interleave};
use crate::baseline::refcount::{ArcTwin, CasRef, PairRef, StickyRef, XaddCasRef};
use crate::figure::{Output, Rounds};
use crate::threads::{BATCH, Lap, Share, Slice, Team};
use end_to_end::EndToEnd;

/// Measures and prints.
pub fn run(plan: &Plan, output: &Output) -> io::Result<()> {
    output.note(&format!(
        "ns a pair of get and put; each count on 128 bytes of its own; rcuref: with one guard and quiescent per \
         {BATCH} pairs"
    ));
    let lab = Lab::new();
    let end_to_end = EndToEnd::new()?;
    let blind = Blind(&lab.pair);
    let rows: [(&str, &dyn Row); 9] = [
        ("cas", &lab.cas),
        ("rcuref", &lab.rcuref),
        ("fetch_add_pair", &lab.pair),
        ("inc_dec_pair", &blind),
        ("debt", &lab.debt),
        ("weakshared_upgrade", &lab.weakshared),
        ("arc_upgrade", &lab.arc),
        ("sticky", &lab.sticky),
        ("xadd_cas", &lab.xadd_cas),
    ];
    let round = |team: &mut Team, rounds: &mut Rounds| {
        for (name, row) in rows {
            let slice = row.slice(team, 1)?;
            rounds.push(&format!("{name}_ns"), "ns", slice.map(|slice| slice.ns()));
        }
        for (name, row) in rows {
            let slice = row.slice(team, 2)?;
            let ns = slice.as_ref().map(Slice::ns);
            rounds.push(&format!("{name}_ns_contended"), "ns", ns);
            let fairness = slice.as_ref().map(Slice::fairness);
            rounds.push(&format!("{name}_fairness"), "x", fairness);
        }
        lab.failures(team, rounds)?;
        layout(team, rounds)?;
        end_to_end.round(team, rounds)
    };
    interleave(plan, output, round, |rounds| {
        for (name, over, under) in RATIOS {
            rounds.ratio(name, over, under);
        }
        EndToEnd::ratios(rounds);
    })
}

/// Name, over, under: of neighbours in a round. The floor is the pair whose answers are looked at.
const RATIOS: [(&str, &str, &str); 13] = [
    ("gain_contended", "cas_ns_contended", "rcuref_ns_contended"),
    ("gain_debt_contended", "cas_ns_contended", "debt_ns_contended"),
    ("arc_over_weakshared", "arc_upgrade_ns_contended", "weakshared_upgrade_ns_contended"),
    ("cas_over_floor", "cas_ns_contended", "fetch_add_pair_ns_contended"),
    ("rcuref_over_floor", "rcuref_ns_contended", "fetch_add_pair_ns_contended"),
    ("debt_over_floor", "debt_ns_contended", "fetch_add_pair_ns_contended"),
    ("weakshared_over_floor", "weakshared_upgrade_ns_contended", "fetch_add_pair_ns_contended"),
    ("arc_over_floor", "arc_upgrade_ns_contended", "fetch_add_pair_ns_contended"),
    ("rcuref_over_cas_alone", "rcuref_ns", "cas_ns"),
    ("debt_over_cas_alone", "debt_ns", "cas_ns"),
    ("layout_gain", "layout_read_shared_ns", "layout_read_split_ns"),
    ("layout_count_gain", "layout_count_shared_ns", "layout_count_split_ns"),
    ("layout_both_gain", "layout_both_shared_ns", "layout_both_split_ns"),
];

/// One object of each kind, each with one reference more than the threads take. A count is the first
/// word of 128 bytes of its own; so are those in the blocks of `Arc` and `Shared`, whose value asks
/// for as much.
struct Lab {
    cas: CacheAligned<CasRef>,
    rcuref: Guarded,
    pair: CacheAligned<PairRef>,
    debt: CacheAligned<DebtRef>,
    weakshared: (Shared<Value>, WeakShared<Value>),
    arc: (Arc<Value>, Weak<Value>),
    sticky: CacheAligned<StickyRef>,
    xadd_cas: CacheAligned<XaddCasRef>,
    arc_twin: CacheAligned<ArcTwin>,
}

type Value = CacheAligned<u64>;

/// A count, and the domain whose guards its puts need.
struct Guarded {
    count: CacheAligned<RcuRef>,
    domain: Domain,
}

impl Lab {
    fn new() -> Lab {
        let shared = Shared::new(CacheAligned(7));
        let arc = Arc::new(CacheAligned(7));
        Lab {
            cas: CacheAligned(CasRef::new(1)),
            rcuref: Guarded { count: CacheAligned(RcuRef::new(1)), domain: Domain::new(2) },
            pair: CacheAligned(PairRef::new(1)),
            debt: CacheAligned(DebtRef::new(1)),
            weakshared: (shared.clone(), Shared::downgrade(&shared)),
            arc: (arc.clone(), Arc::downgrade(&arc)),
            sticky: CacheAligned(StickyRef::new(1)),
            xadd_cas: CacheAligned(XaddCasRef::new(1)),
            arc_twin: CacheAligned(ArcTwin::new(1)),
        }
    }

    /// How many exchanges fail for each pair, of two threads.
    fn failures(&self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        let value = failed_per_op(team, |failed| {
            alive(self.cas.get_counting(|| *failed += 1));
            not_last(self.cas.put());
        })?;
        rounds.push("cas_failed_per_op", "x", value);
        let value = failed_per_op(team, |failed| {
            alive(self.arc_twin.get_counting(|| *failed += 1));
            not_last(self.arc_twin.put());
        })?;
        rounds.push("arc_failed_per_op", "x", value);
        let value = failed_per_op(team, |failed| {
            alive(self.xadd_cas.get());
            not_last(self.xadd_cas.put_counting(|| *failed += 1));
        })?;
        rounds.push("xadd_cas_failed_per_op", "x", value);
        Ok(())
    }
}

/// What a thread does with a count, again and again.
trait Count: Sync {
    /// What each thread has of its own.
    type Own;

    fn join(&self) -> Self::Own;

    /// [`BATCH`] pairs.
    fn batch(&self, own: &mut Self::Own);
}

/// A count's hot loop, compiled for it alone; what is dynamic is which loop runs.
trait Row {
    fn slice(&self, team: &mut Team, threads: usize) -> io::Result<Option<Slice>>;
}

impl<C: Count> Row for C {
    fn slice(&self, team: &mut Team, threads: usize) -> io::Result<Option<Slice>> {
        team.slice(threads, |_, lap| repeat(self, &lap))
    }
}

#[inline(always)]
fn repeat<C: Count>(count: &C, lap: &Lap<'_>) -> Share {
    let mut own = count.join();
    lap.run(|| count.batch(&mut own))
}

#[inline(always)]
fn unrolled(mut pair: impl FnMut()) {
    for _ in 0..BATCH / 8 {
        pair();
        pair();
        pair();
        pair();
        pair();
        pair();
        pair();
        pair();
    }
}

/// Users branch on the answer, so the loops do.
#[inline(always)]
fn alive(got: bool) {
    if !got {
        broken("the object died");
    }
}

#[inline(always)]
fn not_last(last: bool) {
    if last {
        broken("the last reference was put");
    }
}

#[cold]
fn broken(how: &str) -> ! {
    panic!("a reference is held all the time, but {how}");
}

macro_rules! plain_count {
    ($($count:ty),*) => {$(
        impl Count for CacheAligned<$count> {
            type Own = ();

            fn join(&self) {}

            #[inline(always)]
            fn batch(&self, _: &mut ()) {
                unrolled(|| {
                    alive(self.get());
                    not_last(self.put());
                });
            }
        }
    )*};
}

plain_count!(CasRef, StickyRef, XaddCasRef);

impl Count for CacheAligned<PairRef> {
    /// More than the count ever is. Not a constant: the compiler would ask the flags, not the value.
    type Own = u64;

    fn join(&self) -> u64 {
        black_box(u64::MAX)
    }

    #[inline(always)]
    fn batch(&self, limit: &mut u64) {
        unrolled(|| {
            alive(self.get() < *limit);
            not_last(self.put() >= *limit);
        });
    }
}

/// The same without a look at the answers, for which the processor has cheaper instructions.
struct Blind<'a>(&'a PairRef);

impl Count for Blind<'_> {
    type Own = ();

    fn join(&self) {}

    #[inline(always)]
    fn batch(&self, _: &mut ()) {
        unrolled(|| {
            let _ = self.0.get();
            let _ = self.0.put();
        });
    }
}

impl Count for CacheAligned<DebtRef> {
    type Own = ();

    fn join(&self) {}

    #[inline(always)]
    fn batch(&self, _: &mut ()) {
        unrolled(|| {
            alive(self.get());
            not_last(self.put(|| broken("it is destroyed")));
        });
    }
}

impl Count for Guarded {
    type Own = Reader;

    fn join(&self) -> Reader {
        self.domain.register().expect("there is a place for each thread")
    }

    /// One guard and one `quiescent` for all, as in a worker's turn.
    #[inline(always)]
    fn batch(&self, reader: &mut Reader) {
        let guard = reader.guard();
        unrolled(|| {
            alive(self.count.get());
            not_last(self.count.put(guard));
        });
        reader.quiescent();
    }
}

macro_rules! upgraded {
    ($strong:ty, $weak:ty) => {
        impl Count for ($strong, $weak) {
            type Own = ();

            fn join(&self) {}

            #[inline(always)]
            fn batch(&self, _: &mut ()) {
                unrolled(|| match self.1.upgrade() {
                    Some(owner) => drop(owner),
                    None => broken("the object died"),
                });
            }
        }
    };
}

upgraded!(Arc<Value>, Weak<Value>);
upgraded!(Shared<Value>, WeakShared<Value>);

/// What `pair` counts, for each pair.
fn failed_per_op(team: &mut Team, pair: impl Fn(&mut u64) + Sync) -> io::Result<Option<f64>> {
    let totals = [const { CacheAligned(AtomicU64::new(0)) }; 2];
    let slice = team.slice(2, |thread, lap| {
        let mut failed = 0;
        let share = lap.run(|| {
            for _ in 0..BATCH {
                pair(&mut failed);
            }
        });
        totals[thread].store(failed, Ordering::Relaxed);
        share
    })?;
    let failed: u64 = totals.iter().map(|total| total.load(Ordering::Relaxed)).sum();
    Ok(slice.map(|slice| failed as f64 / slice.operations() as f64))
}

/// What a packet reads of a cached route beside its count, in four words.
type Fields = [AtomicU64; 4];

/// As the kernel's `dst_entry` was: the count on the line of the fields.
#[repr(C, align(128))]
struct OnOneLine {
    count: RcuRef,
    fields: Fields,
}

/// As it is now, and as ours are.
struct OnTwoLines {
    count: CacheAligned<RcuRef>,
    fields: CacheAligned<Fields>,
}

/// Readers of the fields beside get and put of the count: in another thread, and in the same.
fn layout(team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
    let fields = || array::from_fn(|_| AtomicU64::new(7));
    let shared = OnOneLine { count: RcuRef::new(1), fields: fields() };
    let split = OnTwoLines { count: CacheAligned(RcuRef::new(1)), fields: CacheAligned(fields()) };
    let places =
        [("shared", &shared.count, &shared.fields), ("split", &*split.count, &*split.fields)];
    for (place, count, fields) in places {
        let domain = Domain::new(2);
        let register = || domain.register().expect("there is a place for each thread");
        let slice = team.slice(2, |thread, lap| match thread {
            0 => lap.run(|| {
                for _ in 0..BATCH {
                    read(fields);
                }
            }),
            _ => {
                let mut reader = register();
                lap.run(|| {
                    let guard = reader.guard();
                    for _ in 0..BATCH {
                        get_and_put(count, guard);
                    }
                    reader.quiescent();
                })
            }
        })?;
        let of = |thread| slice.as_ref().map(|slice: &Slice| slice.of(thread).ns());
        rounds.push(&format!("layout_read_{place}_ns"), "ns", of(0));
        rounds.push(&format!("layout_count_{place}_ns"), "ns", of(1));

        let slice = team.slice(2, |_, lap| {
            let mut reader = register();
            lap.run(|| {
                let guard = reader.guard();
                for _ in 0..BATCH {
                    read(fields);
                    get_and_put(count, guard);
                }
                reader.quiescent();
            })
        })?;
        rounds.push(&format!("layout_both_{place}_ns"), "ns", slice.map(|slice| slice.ns()));
    }
    Ok(())
}

#[inline(always)]
fn read(fields: &Fields) {
    // Relaxed: plain loads that are done each time.
    black_box(fields.iter().map(|field| field.load(Ordering::Relaxed)).sum::<u64>());
}

#[inline(always)]
fn get_and_put(count: &RcuRef, guard: Guard<'_>) {
    alive(count.get());
    not_last(count.put(guard));
}
