//! Slices of another program, which says how its threads spent them.

use serde::Deserialize;

use super::{Share, Slice};
use crate::cause::Account;
use crate::prelude::*;

/// What a thread did, in nanoseconds of the program's clock.
#[derive(Clone, Copy, Deserialize)]
pub struct Span {
    pub operations: u64,
    start: u64,
    end: u64,
    /// Pauses that are too long for the thread's own, as [`Watch`] adds them up.
    away: u64,
    /// By the kernel's account: on a core, and ready without one.
    ran: u64,
    waited: u64,
}

impl Slice {
    /// The slice of these threads.
    pub fn of_spans(spans: &[Span]) -> Slice {
        let first = spans.iter().map(|span| span.start).min().unwrap_or(0);
        let epoch = Instant::now();
        let share = |span: &Span| {
            let ns = Duration::from_nanos;
            let at = |time: u64| epoch + ns(time.saturating_sub(first));
            let [elapsed, ran, waited] =
                [span.end.saturating_sub(span.start), span.ran, span.waited].map(ns);
            Share {
                operations: span.operations,
                start: at(span.start),
                end: at(span.end.max(span.start)),
                away: ns(span.away),
                cpu: ran,
                account: Account::of_parts(elapsed, ran, waited),
            }
        };
        Slice(spans.iter().map(share).collect())
    }

    /// Makes the slice one that does not count: its work gave up.
    pub fn give_up(&mut self) {
        self.0.iter_mut().for_each(|share| share.away = Duration::MAX);
    }
}
