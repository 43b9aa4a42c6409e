//! Where frames end: the sink checks their order, counts how late they are, and gives each the extra work.

use super::order::{Found, Order};
use super::stamp::Stamp;
use crate::histogram;
use crate::prelude::*;

/// What a sink counts: late frames (RFC 4737) ...
pub const REORDERED: usize = 0;
/// ... frames received again ...
pub const DUPLICATED: usize = 1;
/// ... buckets that had been another worker's ...
pub const MOVES: usize = 2;
/// ... and as levels the largest n of n-reordering, and the largest extent.
pub const N_REORDERING: usize = 3;
/// See [`N_REORDERING`].
pub const EXTENT: usize = 4;

/// One frame in this number has its lateness counted, so that this costs next to nothing.
const SAMPLED: u64 = 8;

/// Extra work for each frame, in steps.
#[derive(Clone, Copy)]
pub struct Extra {
    /// By what stands for the device, before the worker that receives has the frame.
    pub received: u32,
    /// By the sink, on the worker that forwards.
    pub forwarded: u32,
}

impl Extra {
    /// Both in the one word that a switch has for work.
    pub fn into_word(self) -> u64 {
        u64::from(self.received) << 32 | u64::from(self.forwarded)
    }

    pub fn of(switch: &Reading) -> Extra {
        let word = switch.work();
        Extra { received: (word >> 32) as u32, forwarded: word as u32 }
    }
}

/// What a sink counts, for other threads.
#[derive(Clone)]
pub struct SinkReader {
    /// By [`REORDERED`] and so on.
    pub counters: CounterReader,
    /// By `histogram`.
    pub late: CounterReader,
}

/// The end of one port for one worker.
pub fn sink(mut order: Order, switch: Reading, clock: Clock) -> (Sink, SinkReader) {
    let mut counters = Counters::new(EXTENT + 1);
    let mut late = histogram::counters();
    let reader = SinkReader { counters: counters.reader(), late: late.reader() };
    let mut state = 1;
    let sink = move |region: &Region, frames: &[Frame]| {
        let (now_ns, steps) = (clock.now_ns(), Extra::of(&switch).forwarded);
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
                state = work(state ^ stamp.place, steps.into());
            }
        }
        black_box(state);
    };
    (Box::new(sink), reader)
}

#[cold]
fn count(counters: &mut Counters, found: Found) {
    match found {
        Found::Moved => counters.add(MOVES, 1),
        Found::Duplicated => counters.add(DUPLICATED, 1),
        Found::Reordered { n, extent } => {
            counters.add(REORDERED, 1);
            for (level, value) in [(N_REORDERING, n), (EXTENT, extent)] {
                counters.set(level, counters.load(level).max(value));
            }
        }
    }
}

/// `steps` steps, where each needs the one before: nothing runs beside them but what little of the next
/// frame does not need their result.
#[inline(never)]
pub fn work(mut state: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        state = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    state
}
