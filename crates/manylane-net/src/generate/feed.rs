//! The hosts' side that sends: one feed for each receive queue of the port.

use manylane_frame::{Batch, HEADROOM, Pool};
use manylane_sync::counters::Counters;
use manylane_sync::ring::Consumer;

use super::answer::Answer;
use super::report::{ANSWERS_SENT, SENT};
use super::schedule::Schedule;
use super::template::Templates;

/// Fills one receive queue.
pub struct Feed {
    /// From every sink; only the first feed has any.
    answers: Vec<Consumer<Answer>>,
    flows: Option<Flows>,
    counters: Counters,
}

/// When a feed may have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Now.
    More,
    /// After this many nanoseconds.
    After(u64),
    /// When a sink says that it has work for a feed.
    Idle,
    /// Never again.
    Done,
}

/// The flows of one queue, sent in turn.
pub(super) struct Flows {
    templates: Templates,
    schedule: Schedule,
    frame_len: u16,
    /// The flow whose turn it is, and the sequence number it sends: all flows before it have sent theirs.
    next: usize,
    sequence: u64,
}

/// How long an answer may wait at most for the feed's next packet. The port asks a feed again only
/// after the time it named.
const ANSWER_WAIT_MAX_NS: u64 = 10_000_000;

impl Feed {
    pub(super) fn new(
        answers: Vec<Consumer<Answer>>,
        flows: Option<Flows>,
        counters: Counters,
    ) -> Feed {
        Feed { answers, flows, counters }
    }

    /// Adds answers and packets to `batch`, up to its room. `now_ns` only has to be a clock of one
    /// rate that never goes back; the stream starts with the first call.
    #[inline]
    pub fn fill(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> Pace {
        let answers = self.answer(pool, batch);
        let Some(flows) = &mut self.flows else { return answers };
        let (sent, pace) = flows.fill(pool, batch, now_ns);
        self.counters.add(SENT, sent as u64);
        match (pace, answers) {
            (_, Pace::More) => Pace::More,
            (Pace::After(wait_ns), Pace::Idle) => Pace::After(wait_ns.min(ANSWER_WAIT_MAX_NS)),
            (Pace::Done, answers) => answers,
            (pace, _) => pace,
        }
    }

    /// Sends what the sinks have queued.
    fn answer(&mut self, pool: &mut Pool, batch: &mut Batch) -> Pace {
        if self.answers.is_empty() {
            return Pace::Done;
        }
        for answers in &mut self.answers {
            while !answers.is_empty() {
                if batch.is_full() {
                    return Pace::More;
                }
                let Some(mut frame) = pool.take() else { return Pace::More };
                let answer = answers.pop().expect("it is not empty, and we alone take out");
                answers.release();
                let (region, bytes) = (pool.region(), answer.bytes());
                region.set_window(&mut frame, HEADROOM, HEADROOM + bytes.len() as u16);
                region.bytes_mut(&mut frame).copy_from_slice(bytes);
                batch.push(frame).expect("the batch is not full");
                self.counters.add(ANSWERS_SENT, 1);
            }
        }
        Pace::Idle
    }
}

impl Flows {
    pub(super) fn new(templates: Templates, schedule: Schedule, frame_len: u16) -> Flows {
        Flows { templates, schedule, frame_len, next: 0, sequence: 0 }
    }

    #[inline]
    fn fill(&mut self, pool: &mut Pool, batch: &mut Batch, now_ns: u64) -> (usize, Pace) {
        let due = self.schedule.due(batch.room(), now_ns);
        let due = pool.may_receive(due); // What is too little now is sent later.
        let before = batch.len();
        let sent = pool.take_into(batch, due);
        let frames = &mut batch.as_mut_slice()[before..];
        pool.region().view().land(frames, self.frame_len).for_each(|bytes| self.write(bytes));
        self.schedule.sent(sent);
        let pace = if self.schedule.is_over() {
            Pace::Done
        } else {
            match self.schedule.wait_ns(now_ns) {
                0 => Pace::More,
                wait_ns => Pace::After(wait_ns),
            }
        };
        (sent, pace)
    }

    #[inline(always)]
    fn write(&mut self, frame: &mut [u8]) {
        match &self.templates {
            Templates::V4(templates) => templates[self.next].write(self.sequence, frame),
            Templates::V6(templates) => templates[self.next].write(self.sequence, frame),
        }
        self.next += 1;
        if self.next == self.templates.len() {
            (self.next, self.sequence) = (0, self.sequence + 1);
        }
    }
}
