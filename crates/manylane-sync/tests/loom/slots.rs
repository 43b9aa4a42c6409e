//! `rcu::Slots` and `rcu::Rounds`: a slot is used again when neither the workers nor the kernel's
//! programs look at it any more.
//!
//! The kernel is a second domain: a program is a reader that is online during a section, and the call that blocks is a
//! grace period. The model looks at it once; if it is not over, the call "failed".

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use manylane_sync::rcu::{Domain, Reader, Rounds, RoundsWaiter, Slots, Ticket, rounds};

use super::{Seen, Watched, explore};

/// What the models do with rounds: the crate's, or a twin of them.
trait Request: Send + 'static {
    type Round: Copy;

    fn request(&self) -> Self::Round;
    fn is_over(&self, round: Self::Round) -> bool;
}

trait Wait: Send + 'static {
    fn run(&mut self, wait: impl FnOnce() -> bool) -> bool;
}

/// A worker, a program of the kernel, a reclaim thread, and control, which replaces a record and takes
/// a slot for a third.
#[test]
fn slots_f_a_slot_is_free_when_neither_side_looks() {
    static AGAIN: Seen = Seen::new("the slot was taken again while both sides ran");
    static REFUSED: Seen = Seen::new("there was no slot yet");
    explore("slots_f", Some(3), || {
        let (rounds, waiter) = rounds();
        let table = Arc::new(Table::new());
        let (workers, threads) = readers(&table, waiter);
        let mut slots = Slots::new(2, workers, Some(rounds));
        assert_eq!([slots.take(), slots.take()], [Some(0), Some(1)]);
        table.write_and_publish(1, 2);
        slots.retire(0);
        slots.reclaim();
        slots.reclaim();
        match slots.take() {
            Some(slot) => {
                AGAIN.note();
                table.write_and_publish(slot, 3);
            }
            None => REFUSED.note(),
        }
        drop(threads);
    });
    AGAIN.assert();
    REFUSED.assert();
}

/// The kernel's part alone, which control uses as `Slots` does.
#[test]
fn a_round_is_over_when_the_programs_that_ran_have_ended() {
    static AGAIN: Seen = Seen::new("the slot was used again while a program ran");
    explore("rounds", None, || one_side(rounds(), Begin::AfterUnpublish, &AGAIN));
    AGAIN.assert();
}

#[test]
fn the_twin_of_the_rounds_passes() {
    static AGAIN: Seen = Seen::new("the slot was used again while a program ran");
    explore("rounds twin", Some(3), || one_side(twin(SOURCE), Begin::AfterUnpublish, &AGAIN));
    AGAIN.assert();
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $model:expr) => {
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            explore(stringify!($name), None, || $model);
        }
    };
}

mutant!(
    mutant_a_round_begun_before_the_unpublish_frees_what_is_found,
    one_side(rounds(), Begin::BeforeUnpublish, &UNUSED)
);
mutant!(
    mutant_a_relaxed_request_frees_what_is_still_found,
    one_side(twin(Orders { request: Ordering::Relaxed, ..SOURCE }), Begin::AfterUnpublish, &UNUSED)
);
mutant!(
    mutant_a_relaxed_run_frees_what_is_still_found,
    one_side(twin(Orders { run: Ordering::Relaxed, ..SOURCE }), Begin::AfterUnpublish, &UNUSED)
);
mutant!(
    mutant_a_relaxed_complete_lets_control_be_first,
    one_side(
        twin(Orders { complete: Ordering::Relaxed, ..SOURCE }),
        Begin::AfterUnpublish,
        &UNUSED
    )
);
mutant!(
    mutant_a_relaxed_look_lets_control_be_first,
    one_side(twin(Orders { look: Ordering::Relaxed, ..SOURCE }), Begin::AfterUnpublish, &UNUSED)
);
mutant!(
    mutant_a_round_taken_after_the_call_frees_what_is_found,
    one_side(twin(Orders { take_after: true, ..SOURCE }), Begin::AfterUnpublish, &UNUSED)
);
mutant!(mutant_without_the_workers_grace_period_they_find_what_is_freed, only(Side::Kernel));
mutant!(mutant_without_the_kernels_grace_period_it_finds_what_is_freed, only(Side::Workers));

/// Which side is waited for.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Workers,
    Kernel,
}

/// Control waits for one side's grace period only.
fn only(side: Side) {
    let (rounds, waiter) = rounds();
    let table = Arc::new(Table::new());
    let (workers, _threads) = readers(&table, waiter);
    table.write_and_publish(1, 2);
    let over = match side {
        Side::Workers => workers.is_over(workers.start()),
        Side::Kernel => {
            let round = rounds.request();
            rounds.is_over(round)
        }
    };
    if over {
        table.write_and_publish(0, 3);
    }
}

/// When control begins the grace period.
#[derive(Clone, Copy, PartialEq)]
enum Begin {
    AfterUnpublish,
    BeforeUnpublish,
}

/// A program that runs twice, a reclaim thread, and control.
fn one_side((rounds, waiter): (impl Request, impl Wait), begin: Begin, again: &'static Seen) {
    let table = Arc::new(Table::new());
    let kernel = Domain::new(1);
    let program = kernel.register().expect("the first fits");
    let _threads = [run_program(program, table.clone(), 2), reclaim(kernel, waiter)];
    let early = (begin == Begin::BeforeUnpublish).then(|| rounds.request());
    table.write_and_publish(1, 2);
    let round = early.unwrap_or_else(|| rounds.request());
    if rounds.is_over(round) {
        again.note();
        table.write_and_publish(0, 3);
    }
}

/// The workers' domain, and the threads: a worker of one turn, a program that runs once, the reclaim
/// thread.
fn readers(table: &Arc<Table>, waiter: impl Wait) -> (Domain, [thread::JoinHandle<()>; 3]) {
    let (workers, kernel) = (Domain::new(1), Domain::new(1));
    let mut worker = workers.register().expect("the first fits");
    let program = kernel.register().expect("the first fits");
    let worker = {
        let table = table.clone();
        thread::spawn(move || {
            table.look_up();
            worker.quiescent();
        })
    };
    (workers, [worker, run_program(program, table.clone(), 1), reclaim(kernel, waiter)])
}

/// Runs a program `times` times, and is at rest.
pub fn run_program(mut program: Reader, table: Arc<Table>, times: u32) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..times {
            table.look_up();
            program.quiescent();
        }
    })
}

fn reclaim(kernel: Domain, mut waiter: impl Wait) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        waiter.run(|| {
            let ticket: Ticket = kernel.start();
            kernel.is_over(ticket)
        });
    })
}

/// Two records and the index of the published one.
pub struct Table {
    published: AtomicU32,
    records: [Watched; 2],
}

impl Table {
    pub fn new() -> Table {
        Table { published: AtomicU32::new(0), records: [Watched::new(1), Watched::new(0)] }
    }

    pub fn look_up(&self) {
        let index = self.published.load(Ordering::Acquire);
        assert_ne!(self.records[index as usize].read(), 0, "found before it was written");
    }

    pub fn write_and_publish(&self, slot: u32, value: u32) {
        self.records[slot as usize].write(value);
        self.published.store(slot, Ordering::Release);
    }
}

impl Request for Rounds {
    type Round = manylane_sync::rcu::Round;

    fn request(&self) -> Self::Round {
        Rounds::request(self)
    }

    fn is_over(&self, round: Self::Round) -> bool {
        Rounds::is_over(self, round)
    }
}

impl Wait for RoundsWaiter {
    fn run(&mut self, wait: impl FnOnce() -> bool) -> bool {
        RoundsWaiter::run(self, || if wait() { Ok(()) } else { Err(()) }) == Ok(true)
    }
}

/// The orderings of rounds, named for the functions they stand in.
#[derive(Clone, Copy)]
struct Orders {
    request: Ordering,
    run: Ordering,
    complete: Ordering,
    look: Ordering,
    /// Whether `run` takes the newest request after the call, not before.
    take_after: bool,
}

const SOURCE: Orders = Orders {
    request: Ordering::Release,
    run: Ordering::Acquire,
    complete: Ordering::Release,
    look: Ordering::Acquire,
    take_after: false,
};

struct Shared {
    orders: Orders,
    requested: AtomicU64,
    completed: AtomicU64,
}

struct TwinRounds(Arc<Shared>);
struct TwinWaiter(Arc<Shared>);

fn twin(orders: Orders) -> (TwinRounds, TwinWaiter) {
    let (requested, completed) = (AtomicU64::new(0), AtomicU64::new(0));
    let shared = Arc::new(Shared { orders, requested, completed });
    (TwinRounds(shared.clone()), TwinWaiter(shared))
}

impl Request for TwinRounds {
    type Round = u64;

    fn request(&self) -> u64 {
        self.0.requested.fetch_add(1, self.0.orders.request) + 1
    }

    fn is_over(&self, round: u64) -> bool {
        self.0.completed.load(self.0.orders.look) >= round
    }
}

impl Wait for TwinWaiter {
    fn run(&mut self, wait: impl FnOnce() -> bool) -> bool {
        let Shared { orders, requested, completed } = &*self.0;
        let mut newest = requested.load(orders.run);
        if !orders.take_after && newest == 0 || !wait() {
            return false;
        }
        if orders.take_after {
            newest = requested.load(orders.run);
        }
        completed.store(newest, orders.complete);
        true
    }
}
