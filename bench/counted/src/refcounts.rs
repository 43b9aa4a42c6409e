//! What a reference costs when all workers take and give back one of the same living object.
//!
//! In lockstep: at each access every other worker has had one in between. `_turns` is the other end: each get with its
//! put, and no other worker between.

use manylane_sync::CacheAligned;
use manylane_sync::primitive::counted::Books;
use manylane_sync::rcu::{Domain, Reader};
use manylane_sync::refcount::{DebtRef, RcuRef, Shared};

use crate::baseline::{ArcTwin, CasRef, PairRef, StickyRef, XaddCasRef};
use crate::figure::{Output, print};

/// Counts and prints each kind of count with each number of workers.
pub fn run(workers: &[usize], quick: bool, output: &Output) {
    for &workers in workers {
        let plan = Plan { workers, quick, output };
        let cas = CacheAligned(CasRef::new(1));
        plan.count("cas", || pair(cas.get(), || cas.put()));
        let sticky = CacheAligned(StickyRef::new(1));
        plan.count("sticky", || pair(sticky.get(), || sticky.put()));
        let xadd_cas = CacheAligned(XaddCasRef::new(1));
        plan.count("xadd_cas", || pair(xadd_cas.get(), || xadd_cas.put()));
        let arc = CacheAligned(ArcTwin::new(1));
        plan.count("arc_upgrade", || pair(arc.get(), || arc.put()));
        let debt = CacheAligned(DebtRef::new(1));
        plan.count("debt", || pair(debt.get(), || debt.put(|| unreachable!("it lives"))));
        let owner = Shared::new(());
        let weak = Shared::downgrade(&owner);
        plan.count("weakshared_upgrade", || drop(weak.upgrade().expect("it lives")));
        let floor = CacheAligned(PairRef::new(1));
        plan.count("fetch_add_pair", || _ = (floor.get(), floor.put()));
        plan.rcuref();
    }
}

/// A get, and the put that goes with it.
fn pair(got: bool, put: impl FnOnce() -> bool) {
    assert!(got, "the object lives");
    assert!(!put(), "and has one more holder");
}

struct Plan<'a> {
    workers: usize,
    quick: bool,
    output: &'a Output,
}

impl Plan<'_> {
    fn count(&self, name: &str, operation: impl Fn() + Sync) {
        self.count_with(name, &mut vec![(); self.workers], |()| operation());
    }

    /// Its put takes a guard, so each worker is a reader, quiescent after each pair: a look at a line that no
    /// worker writes.
    fn rcuref(&self) {
        let domain = Domain::new(self.workers);
        let readers = (0..self.workers).map(|_| domain.register().expect("there is a place"));
        let mut readers: Vec<Reader> = readers.collect();
        let count = CacheAligned(RcuRef::new(1));
        self.count_with("rcuref", &mut readers, |reader| {
            pair(count.get(), || count.put(reader.guard()));
            reader.quiescent();
        });
    }

    fn count_with<W: Send>(&self, name: &str, workers: &mut [W], pair: impl Fn(&mut W) + Sync) {
        let n = workers.len();
        let (warm_up, operations) = (4 * n as u64, operations(n, self.quick));
        let books = Books::new();
        books.lockstep(workers, warm_up, operations, &pair);
        let total = books.total();
        assert_eq!(total.transactions(), books.busiest_line(), "{name}: all on one line");
        print(self.output, name, n, "transfers", total.transactions(), operations);
        print(self.output, name, n, "failed", total.failed, operations);
        let books = Books::new();
        books.turns(workers, 4, &pair);
        books.clear();
        books.turns(workers, 16, &pair);
        let transactions = books.total().transactions();
        print(self.output, name, n, "turns_transfers", transactions, 16 * n as u64);
    }
}

/// A number of passes that a few seconds suffice for, and at least four operations of each worker: the
/// schedule is regular, and so is what happens in it.
pub fn operations(workers: usize, quick: bool) -> u64 {
    let (passes, workers) = (1 << if quick { 12 } else { 16 }, workers as u64);
    (passes / workers).clamp(4 * workers, 64 * workers)
}
