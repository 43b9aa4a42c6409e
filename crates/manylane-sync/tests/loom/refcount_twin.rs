//! A twin of `refcount::DebtRef` with its orderings and rules as parameters: each of them is needed. And
//! two other designs: one that is not enough, to show that the model sees it, and one that is.

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use manylane_sync::refcount::DebtRef;

use super::refcount::{
    Count, Memory, ONE_ONE, ONE_TWICE, ONE_TWO, TWO_ONE, TWO_TWO_EARLY, Threads, WEAK, Weak,
    Witness, life,
};
use super::{Seen, Watched, explore};

/// Every way through the count is met with one holder and one weak thread already.
#[test]
fn the_twin_of_the_debt_counter_passes_by_every_branch() {
    for threads in [ONE_ONE, TWO_ONE, ONE_TWICE] {
        explore_twin("debt twin", None, SOURCE, threads);
    }
    SEEN.iter().for_each(Seen::assert);
    explore_twin("debt twin", Some(4), SOURCE, ONE_TWO);
}

/// Leaving as soon as more is owed only bounds the tries: without it, nothing fails.
#[test]
fn the_twin_of_the_debt_counter_may_also_stay() {
    let stays = Rules { leaves_when_more_is_owed: false, ..SOURCE };
    explore_twin("debt twin that stays", None, stays, ONE_TWICE);
    explore_twin("debt twin that stays", Some(4), stays, ONE_TWO);
}

macro_rules! mutant {
    ($name:ident, $expected:literal, $bound:expr, $rules:expr, $threads:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore_twin(stringify!($name), $bound, $rules, $threads);
        }
    };
}

mutant!(
    mutant_a_relaxed_put_lets_the_killer_be_first,
    "Causality violation",
    None,
    Rules { put: Ordering::Relaxed, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_a_relaxed_death_destroys_what_is_still_used,
    "Causality violation",
    None,
    Rules { death: Ordering::Relaxed, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_a_death_by_release_destroys_what_is_still_used,
    "Causality violation",
    None,
    Rules { death: Ordering::Release, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_settle_relaxed_frees_what_is_still_used,
    "Causality violation",
    None,
    Rules { settle: Ordering::Relaxed, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_settle_by_acquire_frees_what_is_still_used,
    "Causality violation",
    None,
    Rules { settle: Ordering::Acquire, ..SOURCE },
    ONE_ONE
);
// With one weak thread, or with two and two preemptions, something else happens to order the free.
mutant!(
    mutant_settle_without_its_fence_frees_what_is_still_used,
    "Causality violation",
    Some(4),
    Rules { settle_fence: false, ..SOURCE },
    ONE_TWO
);
mutant!(
    mutant_settle_without_its_fence_also_when_weak_handles_go_early,
    "Causality violation",
    Some(4),
    Rules { settle_fence: false, ..SOURCE },
    TWO_TWO_EARLY
);
mutant!(
    mutant_a_reviver_that_owes_nothing,
    "Causality violation",
    None,
    Rules { owes: false, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_a_killer_that_does_not_settle,
    "Causality violation",
    None,
    Rules { killer_settles: false, ..SOURCE },
    ONE_ONE
);
mutant!(
    mutant_a_settling_judged_by_what_is_owed_after_it,
    "Causality violation",
    None,
    Rules { judges_before: false, ..SOURCE },
    ONE_ONE
);

/// The only holder puts and kills in one step ([`DebtRef::put_only`]), beside another that puts.
#[test]
fn the_twin_of_an_unwrap_passes() {
    static KILLED: Seen = Seen::new("the value was taken by its only holder");
    explore("unwrap twin", None, || unwrapped(SOURCE, &KILLED));
    KILLED.assert();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_unwrap_takes_what_is_still_used() {
    static KILLED: Seen = Seen::new("the value was taken by its only holder");
    let rules = Rules { unwrap: Ordering::Relaxed, ..SOURCE };
    explore("relaxed unwrap", None, move || unwrapped(rules, &KILLED));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_an_unwrap_by_release_takes_what_is_still_used() {
    static KILLED: Seen = Seen::new("the value was taken by its only holder");
    let rules = Rules { unwrap: Ordering::Release, ..SOURCE };
    explore("unwrap by release", None, move || unwrapped(rules, &KILLED));
}

/// A relaxed put of the other holder is no better for this killer.
#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_put_lets_an_unwrap_be_first() {
    static KILLED: Seen = Seen::new("the value was taken by its only holder");
    let rules = Rules { put: Ordering::Relaxed, ..SOURCE };
    explore("relaxed put, unwrap", None, move || unwrapped(rules, &KILLED));
}

/// Two holders: one reads the value and puts, the other takes the value if it is the only one by then.
fn unwrapped(rules: Rules, killed: &'static Seen) {
    // Loom's: the drop of one orders what it frees, and nothing before.
    let twin = loom::sync::Arc::new((Twin::new(2, rules), Watched::new(1)));
    let other = twin.clone();
    thread::spawn(move || {
        other.1.assert_alive();
        other.0.put(|| ());
    });
    if twin.0.put_only() {
        killed.note();
        twin.1.end();
    } else {
        twin.0.put(|| ());
    }
}

/// The weak count that frees the memory, with the crate's count.
#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_relaxed_weak_drop_frees_what_is_still_used() {
    let weak = Weak { order: Ordering::Relaxed, ..WEAK };
    explore("relaxed weak drop", None, move || life_with(weak));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_weak_drop_without_its_fence_frees_what_is_still_used() {
    let weak = Weak { fence: false, ..WEAK };
    explore("weak drop without fence", None, move || life_with(weak));
}

fn life_with(weak: Weak) {
    life(DebtRef::new(1), ONE_ONE, weak, Witness::new());
}

/// The sticky counter (Anderson, Blelloch, Wei, PLDI 2022) is right where memory is reclaimed by other
/// means. Without, its loser touches freed memory: the model must see it.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_sticky_counter_touches_freed_memory() {
    explore("sticky 1; 1", None, || life(Sticky::new(1), ONE_ONE, WEAK, Witness::new()));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_sticky_counter_touches_freed_memory_also_with_two_holders() {
    explore("sticky 2; 1", None, || life(Sticky::new(2), TWO_ONE, WEAK, Witness::new()));
}

/// An addition to take, a compare-and-swap loop to put: right, at the price of the loop. A put touches
/// the count for the last time while it still holds its reference.
#[test]
fn a_count_with_a_loop_to_put_passes() {
    explore("loop to put, 1; 1", None, || life(LoopPut::new(1), ONE_ONE, WEAK, Witness::new()));
    explore("loop to put, 1; 2", None, || life(LoopPut::new(1), ONE_TWICE, WEAK, Witness::new()));
}

/// The thread that destroys is not always the one that touches the count last. That this is the crate's count, with its
/// watch over its own memory, shows that the watch works.
#[test]
#[should_panic(expected = "Causality violation")]
fn mutant_a_killer_that_frees_at_once_does_so_under_others() {
    explore("hasty killer", None, || {
        life(Hasty(DebtRef::new(1)), ONE_ONE, WEAK, Witness::new());
    });
}

struct Hasty(DebtRef);

impl Count for Hasty {
    fn get(&self) -> bool {
        self.0.get()
    }

    fn put(&self, destroy: impl FnOnce()) -> bool {
        let mut killer = false;
        let _ = self.0.put(|| {
            destroy();
            killer = true;
        });
        killer
    }
}

fn explore_twin(name: &str, bound: Option<usize>, rules: Rules, threads: Threads) {
    let witness = Witness::new();
    explore(&format!("{name}, {}", threads.name), bound, move || {
        life(Twin::new(threads.holders, rules), threads, WEAK, witness);
    });
}

/// Where the twin passes by.
static SEEN: [Seen; 9] = [
    Seen::new("a get revived"),
    Seen::new("a get found it dead"),
    Seen::new("a zero-hitter found it dead"),
    Seen::new("a zero-hitter found it revived"),
    Seen::new("a zero-hitter found more owed"),
    Seen::new("a zero-hitter found less owed, and tried again"),
    Seen::new("a killer owed"),
    Seen::new("another than the killer settled last"),
    Seen::new("a settling overtook the debt it was for"),
];
const REVIVED: usize = 0;
const FAILED: usize = 1;
const LEFT_DEAD: usize = 2;
const LEFT_REVIVED: usize = 3;
const LEFT_MORE: usize = 4;
const AGAIN: usize = 5;
const KILLER_OWED: usize = 6;
const OTHER_LAST: usize = 7;
const MINUS_ONE: usize = 8;

#[derive(Clone, Copy)]
struct Rules {
    put: Ordering,
    death: Ordering,
    settle: Ordering,
    settle_fence: bool,
    owes: bool,
    killer_settles: bool,
    judges_before: bool,
    leaves_when_more_is_owed: bool,
    unwrap: Ordering,
}

const SOURCE: Rules = Rules {
    put: Ordering::Release,
    death: Ordering::Acquire,
    settle: Ordering::Release,
    settle_fence: true,
    owes: true,
    killer_settles: true,
    judges_before: true,
    leaves_when_more_is_owed: true,
    unwrap: Ordering::Acquire,
};

/// Without the zones of error.
struct Twin {
    word: AtomicU64,
    memory: Memory,
    rules: Rules,
}

const REFS: u64 = (1 << 40) - 1;
const DEAD: u64 = 1 << 40;
const OWED_ONE: u64 = 1 << 41;

impl Twin {
    fn new(references: u64, rules: Rules) -> Twin {
        Twin { word: AtomicU64::new(references), memory: Memory::new(), rules }
    }

    fn word(&self) -> &AtomicU64 {
        self.memory.touch();
        &self.word
    }

    /// The last put and the death in one step, of a count that owes nothing.
    fn put_only(&self) -> bool {
        let held = self.word().load(Ordering::Relaxed);
        held == 1
            && self.word().compare_exchange(1, DEAD, self.rules.unwrap, Ordering::Relaxed).is_ok()
    }

    fn settle(&self, killer: bool) -> bool {
        let old = self.word().fetch_sub(OWED_ONE, self.rules.settle);
        let owed =
            if self.rules.judges_before { old } else { old.wrapping_sub(OWED_ONE) } / OWED_ONE;
        if old & DEAD == 0 && old / OWED_ONE == 0 {
            SEEN[MINUS_ONE].note();
        }
        if old & DEAD == 0 || owed != 0 {
            return false;
        }
        if self.rules.settle_fence {
            fence(Ordering::Acquire);
        }
        if !killer {
            SEEN[OTHER_LAST].note();
        }
        true
    }
}

impl Count for Twin {
    fn get(&self) -> bool {
        let old = self.word().fetch_add(1, Ordering::Relaxed);
        if old & DEAD != 0 {
            SEEN[FAILED].note();
            self.word().fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if old & REFS == 0 {
            SEEN[REVIVED].note();
            if self.rules.owes {
                self.word().fetch_add(OWED_ONE, Ordering::Relaxed);
            }
        }
        true
    }

    fn put(&self, destroy: impl FnOnce()) -> bool {
        let old = self.word().fetch_sub(1, self.rules.put);
        if old & REFS >= 2 {
            return false;
        }
        let mut zero = old - 1;
        loop {
            let dead = zero | DEAD;
            match self.word().compare_exchange(zero, dead, self.rules.death, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => {
                    let more = now.wrapping_sub(zero) as i64 > 0;
                    let why = match now {
                        now if now & DEAD != 0 => LEFT_DEAD,
                        now if now & REFS != 0 => LEFT_REVIVED,
                        _ if more && self.rules.leaves_when_more_is_owed => LEFT_MORE,
                        _ => {
                            SEEN[AGAIN].note();
                            zero = now;
                            continue;
                        }
                    };
                    SEEN[why].note();
                    return self.settle(false);
                }
            }
        }
        destroy();
        if zero / OWED_ONE == 0 || !self.rules.killer_settles {
            return true;
        }
        SEEN[KILLER_OWED].note();
        self.settle(true)
    }
}

/// A flag that the count is stuck at zero, and one that a reader set it and no put claimed it yet.
struct Sticky {
    word: AtomicU64,
    memory: Memory,
}

const STUCK: u64 = 1 << 63;
const UNCLAIMED: u64 = 1 << 62;

impl Sticky {
    fn new(references: u64) -> Sticky {
        Sticky { word: AtomicU64::new(references), memory: Memory::new() }
    }

    fn word(&self) -> &AtomicU64 {
        self.memory.touch();
        &self.word
    }
}

impl Count for Sticky {
    fn get(&self) -> bool {
        self.word().fetch_add(1, Ordering::Acquire) & STUCK == 0
    }

    fn put(&self, destroy: impl FnOnce()) -> bool {
        if self.word().fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        let last = match self.word().compare_exchange(0, STUCK, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => true,
            Err(now) if now & UNCLAIMED != 0 => {
                self.word().swap(STUCK, Ordering::AcqRel) & UNCLAIMED != 0
            }
            Err(_) => false,
        };
        if last {
            destroy();
        }
        last
    }
}

/// After Netty's counts: the references, or `DEAD` when the last one was put.
struct LoopPut {
    word: AtomicU64,
    memory: Memory,
}

impl LoopPut {
    fn new(references: u64) -> LoopPut {
        LoopPut { word: AtomicU64::new(references), memory: Memory::new() }
    }

    fn word(&self) -> &AtomicU64 {
        self.memory.touch();
        &self.word
    }
}

impl Count for LoopPut {
    fn get(&self) -> bool {
        self.word().fetch_add(1, Ordering::Relaxed) & DEAD == 0
    }

    fn put(&self, destroy: impl FnOnce()) -> bool {
        let mut now = self.word().load(Ordering::Relaxed);
        loop {
            let last = now == 1;
            let next = if last { DEAD } else { now - 1 };
            match self.word().compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if last => break,
                Ok(_) => return false,
                Err(other) => now = other,
            }
        }
        destroy();
        true
    }
}
