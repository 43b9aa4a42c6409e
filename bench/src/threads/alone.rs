//! Slices that a question measures without [`Bench`]: of the calling thread, for work that another thread cannot do, or of
//! another program.

use std::convert::Infallible;

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
    let mut all = 0;
    let Ok(judged) = judged::<Infallible>(quick, || {
        let (stretch, mut watch, mut operations) =
            (Stretch::begin(), Watch::new(Instant::now()), 0);
        while watch.look() < slice {
            for _ in 0..BATCHES {
                operations += batch();
            }
        }
        all += operations;
        let share = watch.share(operations as u64);
        Ok(Slice(vec![Share { account: stretch.end(), ..share }]))
    });
    (judged.map(|slice| slice.ns()), all)
}

/// Measures until a slice counts, by the rule of [`Bench::slice`]: the slice, or the cause. `quick` slices always count.
#[inline(always)]
pub fn judged<E>(
    quick: bool,
    mut measure: impl FnMut() -> Result<Slice, E>,
) -> Result<Result<Slice, String>, E> {
    let limit = if quick { f64::INFINITY } else { TOLERANCE };
    let mut cause = String::new();
    for _ in 0..ATTEMPTS {
        progress::tick();
        let slice = measure()?;
        if slice.counts(limit, limit) {
            return Ok(Ok(slice));
        }
        cause = slice.cause(limit);
    }
    Ok(Err(cause))
}
