//! Two threads with a ring between them and a doorbell for the one that runs out of work.
//!
//! `cargo run --release -p manylane-sync --example pipeline`

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Instant;

use manylane_sync::doorbell::{Doorbell, Wake};
use manylane_sync::ring::ring;

const ITEMS: u64 = 10_000_000;
/// Items for one `submit`, which is one store that the consumer sees.
const BATCH: u64 = 64;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

fn main() {
    let (mut producer, mut consumer) = ring::<u64>(1024);
    let (tell, told) = std::sync::mpsc::channel();
    let worker = thread::spawn(move || {
        let bell = Arc::new(Doorbell::new(Unpark(thread::current())));
        tell.send(Arc::clone(&bell)).expect("the main thread listens");
        let (mut sum, mut seen, mut slept) = (0, 0, 0);
        while seen < ITEMS {
            for item in consumer.pop_up_to(BATCH as usize) {
                (sum, seen) = (sum + item, seen + 1);
            }
            consumer.release();
            // Announce, look once more, sleep: the bell is free for the producer while we are awake.
            let has_work = || seen == ITEMS || consumer.waiting() > 0;
            slept += u64::from(bell.sleep(has_work, thread::park).is_some());
        }
        (sum, slept)
    });
    let bell = told.recv().expect("the worker sends its bell");

    let (start, mut rung) = (Instant::now(), 0_u64);
    let mut next = 0;
    while next < ITEMS {
        let mut items = next..ITEMS.min(next + BATCH);
        if producer.push_all(&mut Exact(&mut items)) == 0 {
            thread::yield_now(); // The ring is full.
            continue;
        }
        next = items.start;
        producer.submit();
        rung += u64::from(bell.ring());
    }
    let (sum, slept) = worker.join().expect("the worker does not panic");
    let ns = start.elapsed().as_nanos() as f64 / ITEMS as f64;
    println!(
        "{ITEMS} items, {ns:.1} ns each; the worker slept {slept} times and was woken {rung} times"
    );
    assert_eq!(sum, ITEMS * (ITEMS - 1) / 2);
}

/// A range of `u64`, whose length a `usize` holds here.
struct Exact<'a>(&'a mut std::ops::Range<u64>);

impl Iterator for Exact<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = (self.0.end - self.0.start) as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for Exact<'_> {}
