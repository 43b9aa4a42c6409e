//! Where frames end: their order is checked, their lateness counted, and each is given the extra work.

use std::hint::black_box;

use manylane::worker::Clock;
use manylane_frame::{Frame, Region};
use manylane_io::port::memory;
use manylane_sync::counters::{CounterReader, Counters};

use super::order::{Found, Order};
use super::traffic::{Reading, Stamp};
use crate::histogram;

/// What a sink counts.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum SinkCount {
    /// Frames that came late (RFC 4737).
    Reordered,
    /// Frames that came again.
    Duplicated,
    /// Buckets that had been another worker's.
    Moves,
    /// The largest n of n-reordering (a level).
    NReordering,
    /// The largest extent (a level).
    Extent,
}

const COUNTS: usize = SinkCount::Extent as usize + 1;

/// One frame in so many has its lateness counted, so that this costs next to nothing.
const SAMPLED: u64 = 8;

/// Anybody's view of a sink.
#[derive(Clone)]
pub struct SinkReader {
    /// See [`SinkCount`].
    pub counters: CounterReader,
    /// By `histogram`.
    pub late: CounterReader,
}

/// The end of one port for one worker.
pub fn sink(mut order: Order, switch: Reading, clock: Clock) -> (memory::Sink, SinkReader) {
    let mut counters = Counters::new(COUNTS);
    let mut late = histogram::counters();
    let reader = SinkReader { counters: counters.reader(), late: late.reader() };
    let mut state = 1;
    let sink = move |region: &Region, frames: &[Frame]| {
        let (now_ns, steps) = (clock.now_ns(), switch.work());
        let region = region.view();
        for frame in frames {
            let stamp = Stamp::of(region.bytes(frame));
            if let Some(found) = order.see(stamp.place, stamp.bucket) {
                count(&mut counters, found);
            }
            if stamp.due_ns > 0 && stamp.place.is_multiple_of(SAMPLED) {
                late.add(histogram::bucket(now_ns.saturating_sub(stamp.due_ns)), 1);
            }
            if steps > 0 {
                state = work(state ^ stamp.place, steps);
            }
        }
        black_box(state);
    };
    (Box::new(sink), reader)
}

#[cold]
fn count(counters: &mut Counters, found: Found) {
    match found {
        Found::Moved => counters.add(SinkCount::Moves as usize, 1),
        Found::Duplicated => counters.add(SinkCount::Duplicated as usize, 1),
        Found::Reordered { n, extent } => {
            counters.add(SinkCount::Reordered as usize, 1);
            for (level, value) in [(SinkCount::NReordering, n), (SinkCount::Extent, extent)] {
                let level = level as usize;
                counters.set(level, counters.load(level).max(value));
            }
        }
    }
}

/// So many steps, each of which needs the one before: nothing runs beside them but what little of the next
/// frame does not need their result.
#[inline(never)]
pub fn work(mut state: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        state = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    state
}
