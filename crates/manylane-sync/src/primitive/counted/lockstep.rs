//! Every access is a scheduling point.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use super::{Actor, Books, WORKERS_MAX, acting};

/// Accesses without an operation completed, for each worker, after which the run counts as stuck.
const PATIENCE: u64 = 1 << 16;

/// The right to run. One thread runs at a time; clones are the same baton.
#[derive(Clone)]
pub(super) struct Baton(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// One for each worker, so that passing wakes one thread.
    turns: Box<[Condvar]>,
}

struct State {
    /// The holder of the baton.
    turn: usize,
    running: Box<[bool]>,
    /// Operations that each worker has completed in the window.
    completed: Box<[u64]>,
    /// How many all together have to complete before the window opens, and inside it.
    warm_up: u64,
    counted: u64,
    /// Accesses since the last operation was completed.
    fruitless: u64,
}

impl Books {
    /// The schedule *lockstep*: a thread for each of `workers` repeats `operation`, and after each access
    /// that is entered the next worker in order has the next.
    ///
    /// Counts the accesses in a window: from the moment at which all workers together have completed `warm_up`
    /// operations, to that at which they have completed `counted` more, which is returned for each worker. Operations
    /// under way at both ends are in with a part; as many are missing from the window, so the average is that of the
    /// steady state. Afterwards the books are closed: nothing more is entered.
    ///
    /// `operation` must not wait for another worker but by what is entered (a lock would never open).
    ///
    /// # Panics
    ///
    /// When the workers only make each other fail, or `operation` panics.
    pub fn lockstep<W: Send>(
        &self,
        workers: &mut [W],
        warm_up: u64,
        counted: u64,
        operation: impl Fn(&mut W) + Sync,
    ) -> Vec<u64> {
        assert!(workers.len() <= WORKERS_MAX, "at most {WORKERS_MAX} workers");
        let baton = Baton::new(workers.len(), warm_up, counted);
        thread::scope(|scope| {
            for (number, worker) in workers.iter_mut().enumerate() {
                let (books, baton, operation) = (self.clone(), baton.clone(), &operation);
                scope.spawn(move || {
                    let runner = Runner::new(&baton, number);
                    let actor =
                        Actor { books: books.clone(), worker: number, baton: Some(baton.clone()) };
                    acting(actor, || {
                        while !books.is_closed() {
                            operation(worker);
                            runner.completed(&books);
                        }
                    });
                });
            }
        });
        baton.state().completed.to_vec()
    }
}

impl Baton {
    fn new(workers: usize, warm_up: u64, counted: u64) -> Baton {
        let state = State {
            turn: 0,
            running: vec![true; workers].into(),
            completed: vec![0; workers].into(),
            warm_up,
            counted,
            fruitless: 0,
        };
        let turns = (0..workers).map(|_| Condvar::new()).collect();
        Baton(Arc::new(Shared { state: Mutex::new(state), turns }))
    }

    /// Lets all others have an access, and returns when it is `worker`'s turn again.
    pub fn pass(&self, worker: usize) {
        let mut state = self.state();
        state.fruitless += 1;
        let patience = PATIENCE * state.running.len() as u64;
        let is_stuck = state.fruitless > patience;
        if is_stuck {
            drop(state);
            panic!("{patience} accesses, and no operation completed");
        }
        self.hand_on(&mut state, worker);
        self.wait(state, worker);
    }

    fn hand_on(&self, state: &mut State, worker: usize) {
        let workers = state.running.len();
        let next = (1..=workers).map(|step| (worker + step) % workers);
        if let Some(next) = next.into_iter().find(|&next| state.running[next]) {
            state.turn = next;
            self.0.turns[next].notify_one();
        }
    }

    fn wait(&self, state: MutexGuard<'_, State>, worker: usize) {
        let is_other = |state: &mut State| state.turn != worker;
        drop(
            self.0.turns[worker]
                .wait_while(state, is_other)
                .expect("no holder of this lock panics"),
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no holder of this lock panics")
    }
}

/// A worker's thread. When it ends, also by a panic, the others continue without it.
struct Runner<'a> {
    baton: &'a Baton,
    worker: usize,
}

impl Runner<'_> {
    /// Returns at the worker's first turn.
    fn new(baton: &Baton, worker: usize) -> Runner<'_> {
        baton.wait(baton.state(), worker);
        Runner { baton, worker }
    }

    fn completed(&self, books: &Books) {
        let mut state = self.baton.state();
        state.fruitless = 0;
        if state.warm_up > 0 {
            state.warm_up -= 1;
            if state.warm_up == 0 {
                books.clear();
            }
        } else if state.counted > 0 {
            state.completed[self.worker] += 1;
            state.counted -= 1;
            if state.counted == 0 {
                books.close();
            }
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut state = self.baton.state();
        state.running[self.worker] = false;
        self.baton.hand_on(&mut state, self.worker);
    }
}
