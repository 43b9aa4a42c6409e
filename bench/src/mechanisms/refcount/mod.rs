//! What does a reference cost, by the way it is counted?
//!
//! A pair is a `get` and a `put` of an object that lives, whose answers are looked at. Alone, and with a
//! second thread doing so to that very count (`_contended`: elapsed time x threads / pairs).
//!
//! | figure                    | pair                                                               |
//! |---------------------------|--------------------------------------------------------------------|
//! | `cas_ns`                  | increment unless zero by compare-and-swap, as `atomic_inc_not_zero` |
//! | `rcuref_ns`               | `RcuRef`; a guard and a `quiescent` for each 64, as in a turn        |
//! | `fetch_add_pair_ns`       | an addition and a subtraction: the floor                           |
//! | `inc_dec_pair_ns`         | `fetch_add_pair_ns`, answers not looked at                         |
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
//! Two floors stand because x86 can add without giving back what was there: enough for `sticky`,
//! which asks the processor's flags (`lock inc`), but not for `rcuref` and `debt`, whose slow paths continue
//! with the value (`lock xadd`).
//!
//! `std`'s own failures cannot be seen: `arc_failed_per_op` is of a twin. The counts without a loop have none to fail.
//!
//! Not measured here: the last `put`, more than two threads, work between `get` and `put`. Few exchanges fail on two
//! cores (a line probably stays for several operations); more cores cannot be seen here.
//!
//! Needs two cores with nothing else on them.

mod end_to_end;

use std::array;
use std::sync::Weak;

use manylane_sync::refcount::{DebtRef, RcuRef, Shared, WeakShared};

use super::{Plan, interleave};
use crate::baseline::refcount::{ArcTwin, CasRef, PairRef, StickyRef, XaddCasRef};
use crate::prelude::*;
use end_to_end::EndToEnd;

pub fn run(plan: &Plan, output: &Output) -> Result {
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
    let round = |bench: &mut Bench| {
        for (name, row) in rows {
            row.time(bench, &format!("{name}_ns"), 1)?;
        }
        for (name, row) in rows {
            let slice = row.time(bench, &format!("{name}_ns_contended"), 2)?;
            bench.push(&format!("{name}_fairness"), "x", slice.as_ref().map(Slice::fairness));
        }
        lab.failures(bench)?;
        layout(bench)?;
        end_to_end.round(bench)
    };
    interleave(plan, output, round, |rounds| rounds.ratios(&RATIOS))
}

/// Name, over, under: of neighbours in a round. The floor is the pair whose answers are looked at.
const RATIOS: [[&str; 3]; 17] = [
    ["gain_contended", "cas_ns_contended", "rcuref_ns_contended"],
    ["gain_debt_contended", "cas_ns_contended", "debt_ns_contended"],
    ["arc_over_weakshared", "arc_upgrade_ns_contended", "weakshared_upgrade_ns_contended"],
    ["cas_over_floor", "cas_ns_contended", "fetch_add_pair_ns_contended"],
    ["rcuref_over_floor", "rcuref_ns_contended", "fetch_add_pair_ns_contended"],
    ["debt_over_floor", "debt_ns_contended", "fetch_add_pair_ns_contended"],
    ["weakshared_over_floor", "weakshared_upgrade_ns_contended", "fetch_add_pair_ns_contended"],
    ["arc_over_floor", "arc_upgrade_ns_contended", "fetch_add_pair_ns_contended"],
    ["rcuref_over_cas_alone", "rcuref_ns", "cas_ns"],
    ["debt_over_cas_alone", "debt_ns", "cas_ns"],
    ["layout_gain", "layout_read_shared_ns", "layout_read_split_ns"],
    ["layout_count_gain", "layout_count_shared_ns", "layout_count_split_ns"],
    ["layout_both_gain", "layout_both_shared_ns", "layout_both_split_ns"],
    ["e2e_layout_gain", "e2e_cas_shared_ns", "e2e_cas_split_ns"],
    ["e2e_count_gain", "e2e_cas_split_ns", "e2e_rcuref_ns"],
    ["end_to_end_gain", "e2e_cas_shared_ns", "e2e_rcuref_ns"],
    ["uncounted_gain", "e2e_rcuref_ns", "e2e_guard_ns"],
];

/// One object of each kind, each with one reference more than the threads take. A count is the first word of 128 bytes
/// of its own; so are those in the blocks of `Arc` and `Shared`, whose value requires as much.
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
    fn failures(&self, bench: &mut Bench) -> Result {
        failed_per_op(bench, "cas", |failed| {
            alive(self.cas.get_counting(|| *failed += 1));
            not_last(self.cas.put());
        })?;
        failed_per_op(bench, "arc", |failed| {
            alive(self.arc_twin.get_counting(|| *failed += 1));
            not_last(self.arc_twin.put());
        })?;
        failed_per_op(bench, "xadd_cas", |failed| {
            alive(self.xadd_cas.get());
            not_last(self.xadd_cas.put_counting(|| *failed += 1));
        })
    }
}

/// What a thread does with a count, again and again.
trait Count: Sync {
    type Own;

    fn join(&self) -> Self::Own;

    /// [`BATCH`] pairs.
    fn batch(&self, own: &mut Self::Own);
}

/// A count's hot loop, compiled for it alone; what is dynamic is which loop runs.
trait Row {
    fn time(&self, bench: &mut Bench, name: &str, threads: usize) -> Result<Option<Slice>>;
}

impl<C: Count> Row for C {
    fn time(&self, bench: &mut Bench, name: &str, threads: usize) -> Result<Option<Slice>> {
        bench.time(name, threads, |_, lap| {
            let mut own = self.join();
            lap.run(|| self.batch(&mut own))
        })
    }
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

/// Counts whose threads have nothing of their own, with one pair of each.
macro_rules! plain_count {
    ($($count:ty: |$this:ident| $pair:block)*) => {$(
        impl Count for $count {
            type Own = ();

            fn join(&self) {}

            #[inline(always)]
            fn batch(&self, (): &mut ()) {
                let $this = self;
                unrolled(|| $pair);
            }
        }
    )*};
}

plain_count! {
    CacheAligned<CasRef>: |this| { alive(this.get()); not_last(this.put()); }
    CacheAligned<StickyRef>: |this| { alive(this.get()); not_last(this.put()); }
    CacheAligned<XaddCasRef>: |this| { alive(this.get()); not_last(this.put()); }
    CacheAligned<DebtRef>: |this| {
        alive(this.get());
        not_last(this.put(|| broken("it is destroyed")));
    }
    Blind<'_>: |this| { let _ = (this.0.get(), this.0.put()); }
    (Arc<Value>, Weak<Value>): |this| { upgraded(this.1.upgrade()); }
    (Shared<Value>, WeakShared<Value>): |this| { upgraded(this.1.upgrade()); }
}

/// A pair without a look at the answers, for which the processor has cheaper instructions.
struct Blind<'a>(&'a PairRef);

#[inline(always)]
fn upgraded<T>(owner: Option<T>) {
    match owner {
        Some(owner) => drop(owner),
        None => broken("the object died"),
    }
}

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

/// Measures what `pair` counts, for each pair.
fn failed_per_op(bench: &mut Bench, name: &str, pair: impl Fn(&mut u64) + Sync) -> Result {
    let totals = [const { CacheAligned(AtomicU64::new(0)) }; 2];
    let slice = bench.slice(2, |thread, lap| {
        let mut failed = 0;
        let share = lap.run(|| (0..BATCH).for_each(|_| pair(&mut failed)));
        totals[thread].store(failed, Ordering::Relaxed);
        share
    })?;
    let failed: u64 = totals.iter().map(|total| total.load(Ordering::Relaxed)).sum();
    let value = slice.map(|slice| failed as f64 / slice.operations() as f64);
    bench.push(&format!("{name}_failed_per_op"), "x", value);
    Ok(())
}

/// What a packet reads of a cached route beside its count, in four words.
type Fields = [AtomicU64; 4];

/// As the kernel's `dst_entry` was: the count on the line of the fields.
#[repr(C, align(128))]
struct OneLine<C>(Fields, C);

/// As it is now, and as ours are: each on lines of its own.
type TwoLines<C> = (CacheAligned<Fields>, CacheAligned<C>);

/// Readers of the fields beside get and put of the count: in another thread, and in the thread that counts.
fn layout(bench: &mut Bench) -> Result {
    let fields = || array::from_fn(|_| AtomicU64::new(7));
    let shared = OneLine(fields(), RcuRef::new(1));
    let split: TwoLines<RcuRef> = (CacheAligned(fields()), CacheAligned(RcuRef::new(1)));
    for (place, fields, count) in [("shared", &shared.0, &shared.1), ("split", &split.0, &split.1)]
    {
        let domain = Domain::new(2);
        let slice = bench.slice(2, |thread, lap| match thread {
            0 => lap.run(|| (0..BATCH).for_each(|_| read(fields))),
            _ => counting::<false>(&domain, lap, count, fields),
        })?;
        bench.ns(&format!("layout_read_{place}_ns"), of(&slice, 0));
        bench.ns(&format!("layout_count_{place}_ns"), of(&slice, 1));
        bench.time(&format!("layout_both_{place}_ns"), 2, |_, lap| {
            counting::<true>(&domain, lap, count, fields)
        })?;
    }
    Ok(())
}

/// Gets and puts; `READS` the fields before each pair.
#[inline(always)]
fn counting<const READS: bool>(
    domain: &Domain,
    lap: Lap<'_>,
    count: &RcuRef,
    fields: &Fields,
) -> Share {
    let mut reader = domain.register().expect("there is a place for each thread");
    lap.run(|| {
        let guard = reader.guard();
        for _ in 0..BATCH {
            if READS {
                read(fields);
            }
            alive(count.get());
            not_last(count.put(guard));
        }
        reader.quiescent();
    })
}

#[inline(always)]
fn read(fields: &Fields) {
    // Relaxed: plain loads that are done each time.
    black_box(fields.iter().map(|field| field.load(Ordering::Relaxed)).sum::<u64>());
}
