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
//! | `layout_*`                | four read-mostly fields beside a count: two on its line and two on another, as in the kernel before the source's fix, and none (`layout.rs`) |
//! | `e2e_*`, `end_to_end_gain`, `uncounted_gain` | what all this is of a frame sent and received, in a loop of the bench and not in the worker (`end_to_end.rs`) |
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
mod layout;

use manylane_sync::refcount::{DebtRef, RcuRef, Shared};

use super::{Plan, interleave};
use crate::baseline::refcount::{ArcTwin, CasRef, PairRef, StickyRef, XaddCasRef};
use crate::prelude::*;
use end_to_end::EndToEnd;
use layout::{Route, Shared as SharedLine, Split, read};

pub fn run(plan: &Plan, output: &Output) -> Result {
    output.note(&format!(
        "ns a pair of get and put; each count on 128 bytes of its own; rcuref: with one guard and quiescent per \
         {BATCH} pairs"
    ));
    let (cas, arc_twin) = (count(CasRef::new(1)), count(ArcTwin::new(1)));
    let (sticky, xadd_cas) = (count(StickyRef::new(1)), count(XaddCasRef::new(1)));
    let (rcuref, debt) = (count(RcuRef::new(1)), count(DebtRef::new(1)));
    let pair = count(PairRef::new(1));
    let (shared, arc) = (Shared::new(CacheAligned(7)), Arc::new(CacheAligned(7)));
    let (weak_shared, weak) = (Shared::downgrade(&shared), Arc::downgrade(&arc));
    let domain = Domain::new(2);
    let end_to_end = EndToEnd::new()?;
    // Each loop is compiled for its count alone; what is dynamic is which loop runs.
    let rows: [(&str, &Loop<'_>); 9] = [
        ("cas", &|lap| pairs(lap, &cas, |of| held(of.get(), || of.put()))),
        ("rcuref", &|lap| {
            guarded(&domain, lap, &rcuref, |of, guard| held(of.get(), || of.put(guard)))
        }),
        ("fetch_add_pair", &|lap| {
            // More than the count ever is. Not a constant: the compiler would ask the flags, not the value.
            let limit = black_box(u64::MAX);
            pairs(lap, &pair, |of| held(of.get() < limit, || of.put() >= limit))
        }),
        // Without a look at the answers, for which the processor has cheaper instructions.
        ("inc_dec_pair", &|lap| pairs(lap, &pair, |of| _ = (of.get(), of.put()))),
        ("debt", &|lap| pairs(lap, &debt, |of| held(of.get(), || of.put(destroyed)))),
        ("weakshared_upgrade", &|lap| pairs(lap, &weak_shared, |of| upgraded(of.upgrade()))),
        ("arc_upgrade", &|lap| pairs(lap, &weak, |of| upgraded(of.upgrade()))),
        ("sticky", &|lap| pairs(lap, &sticky, |of| held(of.get(), || of.put()))),
        ("xadd_cas", &|lap| pairs(lap, &xadd_cas, |of| held(of.get(), || of.put()))),
    ];
    let round = |bench: &mut Bench| {
        for (name, row) in rows {
            bench.time(&format!("{name}_ns"), 1, |_, lap| row(&lap))?;
        }
        for (name, row) in rows {
            let slice = bench.time(&format!("{name}_ns_contended"), 2, |_, lap| row(&lap))?;
            bench.push(&format!("{name}_fairness"), "x", slice.as_ref().map(Slice::fairness));
        }
        failed_per_op(bench, "cas", |failed| {
            held(cas.get_counting(|| *failed += 1), || cas.put());
        })?;
        failed_per_op(bench, "arc", |failed| {
            held(arc_twin.get_counting(|| *failed += 1), || arc_twin.put());
        })?;
        failed_per_op(bench, "xadd_cas", |failed| {
            held(xadd_cas.get(), || xadd_cas.put_counting(|| *failed += 1));
        })?;
        layouts(bench)?;
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

/// A count with one reference more than the threads take: the first word of 128 bytes of its own. So are those in the
/// blocks of `Arc` and `Shared`, whose value requires as much.
fn count<C>(count: C) -> CacheAligned<C> {
    CacheAligned(count)
}

/// What a thread does with a count for a slice.
type Loop<'a> = dyn Fn(&Lap<'_>) -> Share + Sync + 'a;

/// `pair` has the count as an argument, and so in a register: out of a closure each pair would load where it is.
#[inline(always)]
fn pairs<C>(lap: &Lap<'_>, count: &C, pair: impl Fn(&C)) -> Share {
    lap.run(|| unrolled(|| pair(count)))
}

/// One guard and one `quiescent` for each [`BATCH`], as in a worker's turn.
#[inline(always)]
fn guarded<C>(domain: &Domain, lap: &Lap<'_>, count: &C, pair: impl Fn(&C, Guard<'_>)) -> Share {
    let mut reader = domain.register().expect("there is a place for each thread");
    lap.run(|| {
        let guard = reader.guard();
        unrolled(|| pair(count, guard));
        reader.quiescent();
    })
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

/// Users branch on the answers, so the loops do.
#[inline(always)]
fn held(got: bool, put: impl FnOnce() -> bool) {
    if !got {
        broken("the object died");
    }
    if put() {
        broken("the last reference was put");
    }
}

#[inline(always)]
fn upgraded<T>(owner: Option<T>) {
    match owner {
        Some(owner) => drop(owner),
        None => broken("the object died"),
    }
}

fn destroyed() {
    broken("it is destroyed");
}

#[cold]
fn broken(how: &str) -> ! {
    panic!("a reference is held all the time, but {how}");
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

/// Readers of the fields beside get and put of the count: in another thread, and in the thread that counts.
fn layouts(bench: &mut Bench) -> Result {
    layout(bench, "shared", &SharedLine::new(RcuRef::new(1)))?;
    layout(bench, "split", &Split::new(RcuRef::new(1)))
}

fn layout(bench: &mut Bench, place: &str, route: &impl Route<RcuRef>) -> Result {
    let (fields, count) = (route.fields(), route.count());
    let domain = Domain::new(2);
    let slice = bench.slice(2, |thread, lap| match thread {
        0 => lap.run(|| (0..BATCH).for_each(|_| _ = black_box(read(fields)))),
        _ => guarded(&domain, &lap, count, |of, guard| held(of.get(), || of.put(guard))),
    })?;
    bench.ns(&format!("layout_read_{place}_ns"), of(&slice, 0));
    bench.ns(&format!("layout_count_{place}_ns"), of(&slice, 1));
    bench.time(&format!("layout_both_{place}_ns"), 2, |_, lap| {
        guarded(&domain, &lap, count, |of, guard| {
            black_box(read(fields));
            held(of.get(), || of.put(guard));
        })
    })?;
    Ok(())
}
