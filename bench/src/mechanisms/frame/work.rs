//! The measured loops.

use std::array;

use super::Row;
use super::scheme::Scheme;
use crate::prelude::*;

/// The most frames at a time without a look at the clock: with an allocator that calls the kernel
/// for each, more would seem a pause.
const STRETCH: usize = 64;
/// The giving side looks after this number of attempts that found nothing, and about once in [`BETWEEN_LOOKS`].
const IDLE_LOOKS: usize = 256;
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// Takes as many as are outstanding, call by call, and gives them back, call by call.
pub fn on_one_core<S: Scheme>(scheme: &mut S, row: &Row, lap: &Lap<'_>) -> Share {
    match (row.bulk, row.outstanding) {
        (1, 1) => lap.run_of(BATCH_MAX as u64, || {
            for _ in 0..BATCH_MAX {
                let frame = black_box(&mut *scheme).take();
                scheme.give_back(black_box(frame));
            }
        }),
        (1, _) => singly(scheme, row, lap),
        _ => in_calls(scheme, row, lap),
    }
}

fn singly<S: Scheme>(scheme: &mut S, row: &Row, lap: &Lap<'_>) -> Share {
    assert_eq!(row.outstanding, BATCH_MAX, "one a call is measured with 64 outstanding");
    let mut held: [Option<S::Frame>; BATCH_MAX] = array::from_fn(|_| None);
    lap.run_of(BATCH_MAX as u64, || {
        for place in black_box(&mut held) {
            *place = Some(black_box(&mut *scheme).take());
        }
        for frame in black_box(&mut held).iter_mut().filter_map(Option::take) {
            black_box(&mut *scheme).give_back(frame);
        }
    })
}

fn in_calls<S: Scheme>(scheme: &mut S, row: &Row, lap: &Lap<'_>) -> Share {
    let mut held: Vec<S::Batch> = (0..row.outstanding / row.bulk).map(|_| S::batch()).collect();
    let calls = held.len().min(STRETCH / row.bulk);
    let share = if calls == held.len() {
        lap.run_of(row.outstanding as u64, || {
            for batch in black_box(&mut held) {
                scheme.take_into(batch, row.bulk);
            }
            for batch in black_box(&mut held) {
                scheme.give_back_all(batch);
            }
        })
    } else {
        // One half of a stretch at a time: taking, until all are out, then giving back.
        let mut next = 0;
        let mut taking = true;
        lap.run_of((calls * row.bulk / 2) as u64, || {
            for batch in black_box(&mut held[next..next + calls]) {
                match taking {
                    true => scheme.take_into(batch, row.bulk),
                    false => scheme.give_back_all(batch),
                }
            }
            next += calls;
            if next == held.len() {
                (next, taking) = (0, !taking);
            }
        })
    };
    held.iter_mut().for_each(|batch| scheme.give_back_all(batch));
    share
}

/// Packets of several pieces, half a batch outstanding.
pub fn large<S: Scheme>(scheme: &mut S, len: usize, lap: &Lap<'_>) -> Share {
    let mut held: [Option<S::Frame>; BATCH_MAX / 2] = array::from_fn(|_| None);
    lap.run_of(held.len() as u64, || {
        for place in black_box(&mut held) {
            *place = Some(scheme.take_large(len));
        }
        for packet in black_box(&mut held).iter_mut().filter_map(Option::take) {
            scheme.give_back(packet);
        }
    })
}

pub struct Between<S: Scheme> {
    producer: Mutex<Option<Producer<S::Frame>>>,
    consumer: Mutex<Option<Consumer<S::Frame>>>,
    done: AtomicBool,
}

impl<S: Scheme> Between<S> {
    pub fn new(row: &Row) -> Self {
        let (producer, consumer) = ring(row.outstanding);
        Between {
            producer: Mutex::new(Some(producer)),
            consumer: Mutex::new(Some(consumer)),
            done: AtomicBool::new(false),
        }
    }
}

/// The side that takes and hands over. Waits without a pause instruction, as the peer of `peer.rs` does.
pub fn take<S: Scheme>(scheme: &mut S, row: &Row, between: &Between<S>, lap: &Lap<'_>) -> Share {
    let mut producer = end(&between.producer);
    let mut batch = S::batch();
    let share = match row.bulk {
        1 => lap.run_of(BATCH_MAX as u64, || {
            for _ in 0..BATCH_MAX {
                let mut frame = black_box(&mut *scheme).take();
                while let Err(back) = producer.push(frame) {
                    frame = back;
                }
                producer.submit();
            }
        }),
        bulk => lap.run_of(bulk as u64, || {
            black_box(&mut *scheme).take_into(&mut batch, bulk);
            // Both sides move multiples of `bulk`, as the ring's length is.
            while producer.free() < bulk {}
            let pushed = producer.push_all(&mut S::drain(&mut batch));
            assert_eq!(pushed, bulk, "the ring has room");
            producer.submit();
        }),
    };
    // Release: pairs with the Acquire in `give_back`, which so sees the last frames when it looks again.
    between.done.store(true, Ordering::Release);
    share
}

/// The side that gives back, until the other one is done and the ring is empty.
pub fn give_back<S: Scheme>(
    scheme: &mut S,
    row: &Row,
    between: &Between<S>,
    lap: &Lap<'_>,
) -> Share {
    let mut consumer = end(&between.consumer);
    let mut batch = S::batch();
    let mut frames = 0;
    let mut idle = 0;
    // As many frames between two looks as take the time for it, whatever the scheme.
    let mut stretch = STRETCH as u64;
    let mut look_at = stretch;
    let mut looked = Duration::ZERO;
    let mut watch = lap.start();
    loop {
        let received = match row.bulk {
            1 => consumer.pop().map_or(0, |frame| {
                consumer.release();
                black_box(&mut *scheme).give_back(frame);
                1
            }),
            bulk => receive(black_box(&mut *scheme), &mut consumer, &mut batch, bulk),
        };
        frames += received as u64;
        if received == 0 {
            idle += 1;
            // Acquire: see `take`.
            if between.done.load(Ordering::Acquire) && consumer.is_empty() {
                break;
            }
        }
        if frames >= look_at || idle >= IDLE_LOOKS {
            let now = watch.look();
            stretch = match now - looked < BETWEEN_LOOKS {
                true if idle == 0 => stretch * 2,
                true => stretch,
                false => (stretch / 2).max(1),
            };
            (look_at, looked, idle) = (frames + stretch, now, 0);
        }
    }
    watch.look();
    watch.share(frames)
}

#[inline(always)]
fn receive<S: Scheme>(
    scheme: &mut S,
    consumer: &mut Consumer<S::Frame>,
    batch: &mut S::Batch,
    bulk: usize,
) -> usize {
    let frames = consumer.pop_up_to(bulk);
    let received = frames.len();
    frames.for_each(|frame| S::push(batch, frame));
    if received > 0 {
        consumer.release();
        scheme.give_back_all(batch);
    }
    received
}

fn end<T>(end: &Mutex<Option<T>>) -> T {
    lock(end).take().expect("each side takes its own end, once an attempt")
}
