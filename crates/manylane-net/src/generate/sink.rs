//! The hosts' side that receives: one sink for each worker of the daemon.

use manylane_frame::{Frame, Region};
use manylane_sync::counters::Counters;
use manylane_sync::ring::Producer;

use super::Link;
use super::answer::{self, Answer, Want};
use super::check::{self, Look};
use super::order::{Order, Place};
use super::report::{
    ANSWERS_LOST, CORRUPTED, DUPLICATED, HEARD, RECEIVED, REORDERED, SKIPPED, UNEXPECTED, stream_at,
};
use super::stamp::Stamp;
use super::stream::StreamId;

/// Looks at what one worker transmits.
pub struct Sink {
    link: Link,
    /// The streams and their books, in the order of the counters.
    streams: Box<[StreamId]>,
    orders: Box<[Order]>,
    answers: Producer<Answer>,
    counters: Counters,
}

impl Sink {
    pub(super) fn new(
        link: Link,
        streams: Box<[StreamId]>,
        orders: Box<[Order]>,
        answers: Producer<Answer>,
        counters: Counters,
    ) -> Sink {
        Sink { link, streams, orders, answers, counters }
    }

    /// Checks packets and answers questions.
    ///
    /// True when a feed has work: ring for the worker that owns the port's first queue.
    #[inline]
    #[must_use = "a feed that is not woken does not answer"]
    pub fn take(&mut self, region: &Region, frames: &[Frame]) -> bool {
        let mut answered = false;
        for frame in frames {
            let bytes = region.bytes(frame);
            match check::look(bytes, self.link) {
                Look::Whole(stamp) => self.book(stamp),
                Look::Damaged => self.counters.add(CORRUPTED, 1),
                Look::Foreign => answered |= self.answer(bytes),
            }
        }
        if answered {
            self.answers.submit();
        }
        answered
    }

    #[inline]
    fn book(&mut self, stamp: Stamp) {
        let flow = stamp.flow as usize;
        let index = self.streams.iter().position(|stream| *stream == stamp.stream);
        let known = index.filter(|&index| flow < self.orders[index].flows());
        let Some(index) = known else { return self.counters.add(UNEXPECTED, 1) };
        let at = stream_at(index);
        match self.orders[index].place(flow, stamp.sequence) {
            Place::Duplicated => return self.counters.add(at + DUPLICATED, 1),
            Place::Reordered => self.counters.add(at + REORDERED, 1),
            Place::InOrder { skipped: 0 } => {}
            Place::InOrder { skipped } => self.counters.add(at + SKIPPED, skipped),
        }
        self.counters.add(at + RECEIVED, 1);
    }

    /// Whether an answer was queued.
    fn answer(&mut self, frame: &[u8]) -> bool {
        match answer::want(frame, self.link.hosts) {
            Want::Answer(answer) => {
                let queued = self.answers.push(answer).is_ok();
                self.counters.add(ANSWERS_LOST, (!queued).into());
                return queued;
            }
            Want::Nothing => self.counters.add(HEARD, 1),
            Want::Unknown => self.counters.add(UNEXPECTED, 1),
        }
        false
    }
}
