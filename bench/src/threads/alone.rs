//! A slice of the calling thread, for work that another thread cannot do.

use super::{ATTEMPTS, Share, Slice, TOLERANCE, Watch};
use crate::cause::Stretch;
use crate::prelude::*;
use crate::progress;

/// Batches of a worker between two looks at the clock: about 50 us.
const BATCHES: usize = 16;

/// Repeats `batch`, which returns how many operations it did, on this thread until a slice counts, by the rule of
/// [`Bench::slice`]: nanoseconds an operation, or the cause; and the operations of all attempts. `quick` slices always count.
#[inline(always)]
pub fn alone(
    slice: Duration,
    quick: bool,
    mut batch: impl FnMut() -> usize,
) -> (Result<f64, String>, usize) {
    let pauses = if quick { f64::INFINITY } else { TOLERANCE };
    let (mut all, mut cause) = (0, String::new());
    for _ in 0..ATTEMPTS {
        progress::tick();
        let (stretch, mut watch, mut operations) =
            (Stretch::begin(), Watch::new(Instant::now()), 0);
        while watch.look() < slice {
            for _ in 0..BATCHES {
                operations += batch();
            }
        }
        all += operations;
        let share = Share { account: stretch.end(), ..watch.share(operations as u64) };
        let one = Slice(vec![share]);
        if one.counts(TOLERANCE, pauses) {
            return (Ok(one.ns()), all);
        }
        cause = one.cause(pauses);
    }
    (Err(cause), all)
}
