//! Every interleaving of the crate's protocols at small sizes, under loom's memory model.
//!
//! ```sh
//! RUSTFLAGS="--cfg manylane_loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p manylane-sync --release --test loom
//! ```
//!
//! Without the cfg this file is empty. A model is explored completely, or with a bound on preemptions
//! where that would take minutes. `-- --nocapture` shows the executions of each:
//!
//! | model                                    | bound | executions |
//! |------------------------------------------|-------|------------|
//! | blocks_a, 3 attempts, 2 blocks           | none  |      2,788 |
//! | blocks_b, 4 attempts, 2 blocks           | 4     |      3,462 |
//! | blocks_c                                 | none  |         22 |
//! | blocks_d, two parties                    | 3     |      1,816 |
//! | blocks_d, three parties x 1 and 2        | 2     | 2,449 + 14,737 |
//! | counters                                 | none  |      9,472 |
//! | debt, 1; 1, early too                    | none  |    63 + 41 |
//! | debt, 2; 1, early too                    | none  |  404 + 246 |
//! | debt, 1; 2 and 2; 2                      | none  |170 + 1,612 |
//! | debt, 1; 1,1                             | none  |    182,134 |
//! | debt, 1; 1,1 early                       | none  |     55,605 |
//! | debt, 2; 1,1                             | 4     |     10,032 |
//! | debt, 2; 1,1 early                       | 4     |      8,622 |
//! | debt, 1; 2,1                             | 4     |      3,309 |
//! | debt, 1; 1,1,1                           | 4     |     53,831 |
//! | doorbell, 1 giver x 1 item               | none  |      4,950 |
//! | doorbell, 1 giver x 2                    | 4     |     12,478 |
//! | doorbell, 2 givers x 1                   | 3     |    195,546 |
//! | dst, a worker                            | none  |     91,462 |
//! | dst, and an heir                         | 3     |    140,619 |
//! | handoff_a, 1 receiver x 3 frames         | none  |      8,962 |
//! | handoff_a, batches                       | none  |      7,613 |
//! | handoff_a, receivers x 2 and 1           | 3     |      5,127 |
//! | handoff_a, receivers x 1 and 2           | 3     |      6,617 |
//! | handoff_b                                | none  |     10,550 |
//! | handoff, a queue leaves                  | none  | 17 + 9,725 |
//! | hook_a                                   | none  |     17,332 |
//! | hook_a and b, a member                   | 3     |     42,484 |
//! | hook_b, three threads                    | 3     |     35,293 |
//! | hook_c, a slot used again                | 3     |    134,745 |
//! | rcu_a, 1 reader x 2 sections             | none  |      2,628 |
//! | rcu_a, 2 readers x 1                     | 4     |     68,040 |
//! | rcu_a, 2 readers x 2                     | 3     |     61,758 |
//! | rcu_a, 2 writers, 1 reader x 2           | 3     |     54,603 |
//! | rcu_b, four ways to leave                | none  |      5,955 |
//! | rcu_c, 1 reader x 2                      | none  |      8,785 |
//! | rcu_c, 2 readers x 1                     | 3     |     21,111 |
//! | rcu_d                                    | none  |      1,767 |
//! | rcu_e, 3 objects, 1 reader x 2           | 4     |    127,169 |
//! | rcu_g, a program x 2                     | 4     |     54,465 |
//! | rcu_g, a worker and a program            | 2     |     35,192 |
//! | rcuref, 1 reader                         | none  |      1,424 |
//! | rcuref, 2 readers                        | 4     |    103,813 |
//! | ring, 3 items through 2 slots            | none  |      5,098 |
//! | ring, a batch of 3 through 2 slots       | none  |        607 |
//! | rounds, a program x 2                    | none  |     82,971 |
//! | routes                                   | none  |    183,982 |
//! | shared, 2 owners, 1 weak                 | none  |        404 |
//! | shared, 1 owner, 2 weak                  | 4     |      3,822 |
//! | shared, clones and downgrades            | none  |      7,463 |
//! | shared, unwrap, 1 weak                   | none  |         43 |
//! | shared, unwrap, 1 owner, 1 weak          | 4     |        641 |
//! | shared, unwrap of an upgrade             | none  |         69 |
//! | shared, 2 into_inner, 2 unwrap           | none  |      4 + 7 |
//! | slots_f, a worker and a program          | 3     |    195,571 |
//! | stack, a magazine goes round             | none  |        621 |
//! | stack, handed out once                   | none  |      3,645 |
//! | stack, seen by the taker                 | 3     |    124,836 |
//! | stack, several, handed out once          | none  |      1,143 |
//! | stack, several, seen by the takers       | 3     |     10,230 |
//! | words                                    | none  |        675 |
//!
//! What loom 0.7 cannot show, and what follows for these tests:
//!
//! 1. Loom treats `SeqCst` loads and stores as Acquire and Release. Loom does model `SeqCst` *fences*, so every
//!    protocol here that needs a total order takes it from a fence.
//! 2. Where plain stores and read-modify-writes meet on one word, its modification order is only partial. No word here
//!    has both but `taken` in `rcu`, where only the owner of the slot stores, `taken` in `blocks`, where only the
//!    thread that has raised it does, and the word of `RcuRef`, to which only a thread that finds it dead stores, and
//!    that it is dead.
//! 3. A failed compare-exchange reads only the newest value, and none fails spuriously.
//! 4. A load sees at most the last seven stores of its word.
//! 5. A thread that loads a word just before it writes it hides that write from loads of other threads
//!    that came earlier in the schedule (tokio-rs/loom issues 166 and 392). A model in which the
//!    threads that compare and exchange are spawned before those that only look is not concerned. Each
//!    test also names the cases it is about, as `Seen`, and fails when no execution met them.
//!
//! That the harness sees bugs is itself tested: beside each protocol stands a *twin* of it with its
//! orderings as parameters. The twin passes with the orderings of the source, and fails when one of
//! them is a step weaker (`#[should_panic]`, with the failure expected).
#![cfg(manylane_loom)]

#[path = "../../../tests/loom/mod.rs"]
mod model;

#[path = "loom/blocks.rs"]
mod blocks;
#[path = "loom/counters.rs"]
mod counters;
#[path = "loom/doorbell.rs"]
mod doorbell;
#[path = "loom/dst.rs"]
mod dst;
#[path = "loom/handoff.rs"]
mod handoff;
#[path = "loom/handoff_batch.rs"]
mod handoff_batch;
#[path = "loom/hook.rs"]
mod hook;
#[path = "loom/hook_group.rs"]
mod hook_group;
#[path = "loom/proxy.rs"]
mod proxy;
#[path = "loom/rcu.rs"]
mod rcu;
#[path = "loom/rcu_twin.rs"]
mod rcu_twin;
#[path = "loom/refcount.rs"]
mod refcount;
#[path = "loom/refcount_rcu.rs"]
mod refcount_rcu;
#[path = "loom/refcount_shared.rs"]
mod refcount_shared;
#[path = "loom/refcount_twin.rs"]
mod refcount_twin;
#[path = "loom/ring.rs"]
mod ring;
#[path = "loom/routes.rs"]
mod routes;
#[path = "loom/slots.rs"]
mod slots;
#[path = "loom/stack.rs"]
mod stack;
#[path = "loom/words.rs"]
mod words;

use model::{Seen, explore};

/// A plain value for threads to pass around. Loom watches it: an access that is not ordered with
/// another's write fails the test, with "Causality violation".
struct Watched(loom::cell::UnsafeCell<u32>);

// SAFETY: no thread reads or writes while another writes: that is what loom checks, in every execution.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(value: u32) -> Watched {
        Watched(loom::cell::UnsafeCell::new(value))
    }

    fn read(&self) -> u32 {
        // SAFETY: as for `Sync`; the pointer comes from the cell.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&self, value: u32) {
        // SAFETY: as for `Sync`; the pointer comes from the cell.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }
}
