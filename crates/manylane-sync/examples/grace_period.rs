//! A control thread replaces an object while two workers read it, and frees the old one without waiting for them.
//!
//! `cargo run --release -p manylane-sync --example grace_period`

use std::sync::Arc;
use std::thread;

use manylane_sync::rcu::{Domain, Limbo};
use manylane_sync::words::WordsMut;

const EDITS: u32 = 10_000;

fn main() {
    let domain = Domain::new(2);
    // The word that readers follow, and the generation of what it stands for.
    let mut current = WordsMut::<u32>::zeroed(1);
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = domain.register().expect("the domain has two places");
            let current = Arc::new(current.reader());
            thread::spawn(move || {
                let mut turns = 0_u64;
                loop {
                    let newest = {
                        let _guard = reader.guard(); // What is read now stays until the turn ends.
                        current.load(0)
                    };
                    reader.quiescent(); // The turn has ended: nothing is held.
                    turns += 1;
                    if newest == EDITS {
                        return turns;
                    }
                }
            })
        })
        .collect();

    let mut limbo = Limbo::new(domain.clone(), 64);
    let (mut freed, mut busy) = (0_u32, 0_u32);
    for edit in 1..=EDITS {
        current.publish(0, edit);
        let mut retired = edit - 1;
        while let Err(back) = limbo.retire(retired) {
            (retired, busy) = (back, busy + 1);
            freed += std::iter::from_fn(|| limbo.reclaim()).count() as u32;
            thread::yield_now();
        }
    }
    let turns: Vec<u64> =
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect();
    freed += std::iter::from_fn(|| limbo.reclaim()).count() as u32;
    println!(
        "{EDITS} edits, {freed} objects freed, {busy} attempts found a grace period still running"
    );
    println!("turns of the workers meanwhile: {turns:?}; none of them waited");
    assert_eq!(freed, EDITS, "with all readers gone every object is free");
}
