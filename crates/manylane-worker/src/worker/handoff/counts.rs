//! The workers' counts of their hand-off, for other threads to read.

use manylane_frame::vocabulary::PortId;
use manylane_sync::counters::{CounterReader, Counters};
use manylane_sync::handoff::GROUP;

/// What a worker counts of its hand-off.
pub(super) struct HandOffCounts {
    counters: Counters,
    shape: Shape,
}

/// A reader's view of the counts.
#[derive(Clone)]
pub struct HandOffReader {
    counters: CounterReader,
    shape: Shape,
}

#[derive(Clone, Copy)]
struct Shape {
    buckets: usize,
    workers: usize,
}

/// What is counted for each other worker.
#[derive(Clone, Copy)]
pub(super) enum PairCount {
    /// Packets handed to it.
    Out,
    /// Batches of them.
    OutBatches,
    /// Packets taken from it.
    In,
    /// Packets dropped because it had no room.
    BacklogFull,
    /// Packets dropped because their flow had taken most of its room.
    FlowLimit,
    /// Times that queues began to wait for it.
    Waits,
    /// The generation of what is wanted that was last followed, and how many ports have a bucket there since.
    Applied,
}

const PAIR_COUNTS: usize = PairCount::Applied as usize + 1;

/// What is counted for the worker itself.
#[derive(Clone, Copy)]
pub(super) enum OwnCount {
    /// Frames handed off: a packet may have several.
    FramesOut,
    /// Frames taken.
    FramesIn,
    /// Buckets that wait for what is on its way (a level).
    Waiting,
    /// Packets whose order was checked when they left.
    Sampled,
    /// Of these, those that left behind a later one of their flow.
    Reordered,
}

const OWN_COUNTS: usize = OwnCount::Reordered as usize + 1;

impl Shape {
    fn len(self) -> usize {
        self.buckets + self.workers * PAIR_COUNTS + OWN_COUNTS
    }

    fn pair(self, worker: usize, what: PairCount) -> usize {
        self.buckets + worker * PAIR_COUNTS + what as usize
    }

    fn own(self, what: OwnCount) -> usize {
        self.buckets + self.workers * PAIR_COUNTS + what as usize
    }
}

impl HandOffCounts {
    /// For a daemon of this many ports and workers.
    pub(super) fn new(ports: usize, workers: usize) -> HandOffCounts {
        let shape = Shape { buckets: ports * GROUP, workers };
        HandOffCounts { counters: Counters::new(shape.len()), shape }
    }

    pub(super) fn reader(&self) -> HandOffReader {
        HandOffReader { counters: self.counters.reader(), shape: self.shape }
    }

    /// Publishes where a bucket is, by its number among those of all ports, and its packet count.
    pub(super) fn set_bucket(&mut self, bucket: usize, (worker, frames): (u16, u32)) {
        self.counters.set(bucket, u64::from(worker) << 32 | u64::from(frames));
    }

    #[inline]
    pub(super) fn of(&mut self, worker: usize, what: PairCount, n: u64) {
        self.counters.add(self.shape.pair(worker, what), n);
    }

    /// Publishes that `ports` ports have a bucket at another worker, now that `generation` of what is wanted has
    /// been followed as far as that may be.
    pub(super) fn set_applied(&mut self, worker: usize, generation: u32, ports: u32) {
        let word = u64::from(generation) << 32 | u64::from(ports);
        self.counters.set(self.shape.pair(worker, PairCount::Applied), word);
    }

    #[inline]
    pub(super) fn own(&mut self, what: OwnCount, n: u64) {
        self.counters.add(self.shape.own(what), n);
    }

    pub(super) fn level(&mut self, what: OwnCount, value: u64) {
        self.counters.set(self.shape.own(what), value);
    }
}

/// Frames that lie between workers; `workers` names all of them.
pub fn frames_between(workers: &[HandOffReader]) -> u64 {
    let sum = |frames: fn(&HandOffReader) -> u64| workers.iter().map(frames).sum::<u64>();
    // What was taken first, for it only grows, and a hand-off is counted before it can be taken. Counters
    // order nothing, so that this may still be seen the other way round: then the frames were few.
    let taken = sum(HandOffReader::frames_in);
    sum(HandOffReader::frames_out).saturating_sub(taken)
}

impl HandOffReader {
    /// The worker that a bucket of a port has, and the packets of it steered so far, modulo 2^32; as of the
    /// last time that this was published.
    pub fn bucket(&self, port: PortId, bucket: usize) -> (u16, u32) {
        let word = self.counters.load(port.index() * GROUP + bucket);
        ((word >> 32) as u16, word as u32)
    }

    /// Packets handed to another worker.
    pub fn handed_to(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::Out)
    }

    /// Batches of these packets.
    pub fn batches_to(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::OutBatches)
    }

    /// Packets taken from another worker.
    pub fn taken_from(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::In)
    }

    /// Packets dropped because another worker had no room.
    pub fn backlog_full(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::BacklogFull)
    }

    /// Packets dropped because their flow had taken most of another worker's room.
    pub fn flow_limit(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::FlowLimit)
    }

    /// Times that queues began to wait for another worker.
    pub fn waits(&self, worker: u16) -> u64 {
        self.pair(worker, PairCount::Waits)
    }

    /// Whether no bucket goes to another worker since `generation` of what is wanted, or a later one, was
    /// followed: then all that was handed to it has left.
    pub fn sends_nothing_to(&self, worker: u16, generation: u32) -> bool {
        let word = self.pair(worker, PairCount::Applied);
        let behind = ((word >> 32) as u32).wrapping_sub(generation) as i32;
        behind >= 0 && word as u32 == 0
    }

    /// Frames handed off in all.
    pub fn frames_out(&self) -> u64 {
        self.own(OwnCount::FramesOut)
    }

    /// Frames taken in all.
    pub fn frames_in(&self) -> u64 {
        self.own(OwnCount::FramesIn)
    }

    /// Buckets that wait for what is on its way.
    pub fn waiting(&self) -> u64 {
        self.own(OwnCount::Waiting)
    }

    /// Packets whose order was checked when they left.
    pub fn sampled(&self) -> u64 {
        self.own(OwnCount::Sampled)
    }

    /// Of these, those that left behind a later one of their flow.
    pub fn reordered(&self) -> u64 {
        self.own(OwnCount::Reordered)
    }

    fn pair(&self, worker: u16, what: PairCount) -> u64 {
        self.counters.load(self.shape.pair(worker.into(), what))
    }

    fn own(&self, what: OwnCount) -> u64 {
        self.counters.load(self.shape.own(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker takes handed-off frames while both counts are read.
    #[test]
    fn there_are_never_fewer_than_no_frames_between_workers() {
        let [mut one, mut other] = [(); 2].map(|()| HandOffCounts::new(1, 2));
        let readers = [one.reader(), other.reader()];
        one.own(OwnCount::FramesOut, 10);
        other.own(OwnCount::FramesIn, 7);
        assert_eq!(frames_between(&readers), 3);
        other.own(OwnCount::FramesIn, 4); // Seen before the eleventh is seen as handed off.
        assert_eq!(frames_between(&readers), 0);
    }
}
