//! `ring`: what was submitted arrives, whole and in order, and a slot is filled again only once it
//! is empty.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Seen, Watched, explore};

/// What the tests do with a ring of two slots: the crate's own, or a twin of it.
trait Ends: Sized {
    type Push: Push;
    type Pop: Pop;

    fn split(self) -> (Self::Push, Self::Pop);
}

trait Push: Send + 'static {
    fn push(&mut self, item: u32) -> bool;
    fn submit(&mut self);
}

trait Pop: Send + 'static {
    fn pop(&mut self) -> Option<u32>;
    fn release(&mut self);
}

/// Three items through two slots: batches, wrapping, a full ring and an empty one.
#[test]
fn ring_items_arrive_whole_and_in_order() {
    static FULL: Seen = Seen::new("the ring was full");
    static REUSED: Seen = Seen::new("a slot was filled twice while both sides ran");
    explore("ring_items_arrive_whole_and_in_order", None, || three_items(Source, &FULL, &REUSED));
    FULL.assert();
    REUSED.assert();
}

/// As above, by batches: three items into two slots, what does not fit in a second attempt.
#[test]
fn ring_batches_arrive_whole_and_in_order() {
    static SPLIT: Seen = Seen::new("a batch went in by two parts while both sides ran");
    explore("ring_batches_arrive_whole_and_in_order", None, || {
        let (mut producer, mut consumer) = ring(2);
        let thread = thread::spawn(move || {
            let mut items = (0..3).map(|item| Arc::new(Watched::new(item)));
            for attempt in 0..2 {
                if producer.push_all(&mut items) > 0 && attempt == 1 {
                    SPLIT.note();
                }
                producer.submit();
            }
            (items.len() as u32, producer)
        });
        let mut next = 0;
        let mut take = |consumer: &mut Consumer<Arc<Watched>>| {
            for item in consumer.pop_up_to(3) {
                assert_eq!(item.read(), next, "out of order");
                next += 1;
            }
            consumer.release();
        };
        take(&mut consumer);
        take(&mut consumer);
        let (left, _producer) = thread.join().expect("the producer does not panic");
        take(&mut consumer);
        assert_eq!(next + left, 3, "items were lost");
    });
    SPLIT.assert();
}

/// The items themselves are counted by loom's `Arc`, which also reports a leak.
#[test]
fn what_nobody_popped_is_dropped_once() {
    explore("what_nobody_popped_is_dropped_once", None, || {
        let item = Arc::new(());
        let (mut producer, mut consumer) = ring(2);
        let thread = {
            let item = item.clone();
            thread::spawn(move || {
                producer.push(item.clone()).expect("there is room for two");
                producer.submit();
                producer.push(item).expect("there is room for two");
            })
        };
        drop(consumer.pop());
        drop(consumer);
        thread.join().expect("the producer does not panic");
        assert_eq!(Arc::strong_count(&item), 1);
    });
}

/// A producer that sees the ring drained sees what the consumer did with the items.
#[test]
fn what_was_done_with_the_items_is_seen_by_who_sees_the_ring_drained() {
    static DRAINED: Seen = Seen::new("the producer saw the ring drained");
    explore("what_was_done_with_the_items_...", None, || {
        let done = Arc::new(Watched::new(0));
        let (mut producer, mut consumer) = ring(1);
        producer.push(()).expect("there is room for one");
        producer.submit();
        let thread = {
            let done = done.clone();
            thread::spawn(move || {
                consumer.pop().expect("it was submitted before this thread began");
                done.write(1);
                consumer.release();
            })
        };
        if producer.is_drained() {
            DRAINED.note();
            assert_eq!(done.read(), 1);
        }
        thread.join().expect("the consumer does not panic");
    });
    DRAINED.assert();
}

#[test]
fn the_twin_of_the_ring_passes() {
    static UNUSED: Seen = Seen::new("");
    explore("ring twin", None, || three_items(SOURCE, &UNUSED, &UNUSED));
}

macro_rules! mutant {
    ($name:ident, $orders:expr) => {
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            static UNUSED: Seen = Seen::new("");
            explore(stringify!($name), None, || three_items($orders, &UNUSED, &UNUSED));
        }
    };
}

mutant!(
    mutant_a_relaxed_submit_shows_an_empty_slot,
    Orders { submit: Ordering::Relaxed, ..SOURCE }
);
mutant!(mutant_a_relaxed_look_shows_an_empty_slot, Orders { look: Ordering::Relaxed, ..SOURCE });
mutant!(
    mutant_a_relaxed_release_fills_a_full_slot,
    Orders { release: Ordering::Relaxed, ..SOURCE }
);
mutant!(mutant_a_relaxed_free_fills_a_full_slot, Orders { free: Ordering::Relaxed, ..SOURCE });

fn three_items(ends: impl Ends, full: &'static Seen, reused: &'static Seen) {
    let (mut push, mut pop) = ends.split();
    let producer = thread::spawn(move || {
        let mut sent = 0;
        // One push more than items, so that a full ring can be met and passed. The first two are one
        // batch, then each is its own.
        for attempt in 0..4 {
            if sent < 3 && push.push(sent) {
                sent += 1;
                if sent == 3 {
                    reused.note();
                }
            } else if sent < 3 {
                full.note();
            }
            if attempt > 0 {
                push.submit();
            }
        }
        (push, sent)
    });
    let mut next = 0;
    let mut take = |pop: &mut _| {
        if let Some(item) = Pop::pop(pop) {
            assert_eq!(item, next, "out of order");
            next += 1;
        }
    };
    take(&mut pop);
    pop.release();
    take(&mut pop);
    take(&mut pop);
    pop.release();
    let (_push, sent) = producer.join().expect("the producer does not panic");
    for _ in 0..3 {
        take(&mut pop);
    }
    assert_eq!(next, sent, "items were lost");
}

/// The crate's ring.
struct Source;

impl Ends for Source {
    type Push = Producer<u32>;
    type Pop = Consumer<u32>;

    fn split(self) -> (Producer<u32>, Consumer<u32>) {
        ring(2)
    }
}

impl Push for Producer<u32> {
    fn push(&mut self, item: u32) -> bool {
        Producer::push(self, item).is_ok()
    }

    fn submit(&mut self) {
        Producer::submit(self);
    }
}

impl Pop for Consumer<u32> {
    fn pop(&mut self) -> Option<u32> {
        Consumer::pop(self)
    }

    fn release(&mut self) {
        Consumer::release(self);
    }
}

/// The orderings of a ring, named for the functions they stand in.
#[derive(Clone, Copy)]
struct Orders {
    submit: Ordering,
    look: Ordering,
    release: Ordering,
    free: Ordering,
}

const SOURCE: Orders = Orders {
    submit: Ordering::Release,
    look: Ordering::Acquire,
    release: Ordering::Release,
    free: Ordering::Acquire,
};

struct Shared {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: [Watched; 2],
    orders: Orders,
}

/// One end of the twin: its own index, and what it knows of the other's.
struct TwinPush(Arc<Shared>, usize, usize);
struct TwinPop(Arc<Shared>, usize, usize);

impl Ends for Orders {
    type Push = TwinPush;
    type Pop = TwinPop;

    fn split(self) -> (TwinPush, TwinPop) {
        let shared = Arc::new(Shared {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: [Watched::new(0), Watched::new(0)],
            orders: self,
        });
        (TwinPush(shared.clone(), 0, 0), TwinPop(shared, 0, 0))
    }
}

impl Push for TwinPush {
    fn push(&mut self, item: u32) -> bool {
        let TwinPush(shared, tail, head) = self;
        if *tail - *head == 2 {
            *head = shared.head.load(shared.orders.free);
            if *tail - *head == 2 {
                return false;
            }
        }
        shared.slots[*tail % 2].write(item);
        *tail += 1;
        true
    }

    fn submit(&mut self) {
        self.0.tail.store(self.1, self.0.orders.submit);
    }
}

impl Pop for TwinPop {
    fn pop(&mut self) -> Option<u32> {
        let TwinPop(shared, head, tail) = self;
        if head == tail {
            *tail = shared.tail.load(shared.orders.look);
            if head == tail {
                return None;
            }
        }
        let item = shared.slots[*head % 2].read();
        *head += 1;
        Some(item)
    }

    fn release(&mut self) {
        self.0.head.store(self.1, self.0.orders.release);
    }
}
