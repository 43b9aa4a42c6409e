//! What a far end has counted, for any reader.

use manylane_sync::counters::CounterReader;

use super::stream::StreamId;

/// Indices into a feed's counters.
pub(super) const SENT: usize = 0;
pub(super) const ANSWERS_SENT: usize = 1;
pub(super) const FEED_COUNTERS: usize = 2;

/// Indices into a sink's counters; those of the streams follow, [`STREAM_COUNTERS`] for each.
pub(super) const CORRUPTED: usize = 0;
pub(super) const UNEXPECTED: usize = 1;
pub(super) const HEARD: usize = 2;
pub(super) const ANSWERS_LOST: usize = 3;
pub(super) const SINK_COUNTERS: usize = 4;

/// Indices into a sink's counters of one stream.
pub(super) const RECEIVED: usize = 0;
pub(super) const SKIPPED: usize = 1;
pub(super) const REORDERED: usize = 2;
pub(super) const DUPLICATED: usize = 3;
pub(super) const STREAM_COUNTERS: usize = 4;

/// Where the counters of the stream at `index` begin.
#[inline(always)]
pub(super) const fn stream_at(index: usize) -> usize {
    SINK_COUNTERS + index * STREAM_COUNTERS
}

/// Reads a far end's counters, from any thread, at any time.
#[derive(Clone)]
pub struct FarEndReader {
    pub(super) streams: Vec<StreamId>,
    pub(super) feeds: Vec<CounterReader>,
    pub(super) sinks: Vec<CounterReader>,
}

/// What a far end has sent and seen. While it works, the numbers are not of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FarEndReport {
    /// Packets sent of the far end's own stream.
    pub sent: u64,
    /// All streams that reach this far end, together.
    pub total: StreamReport,
    /// Packets of a stream, or packets with a wrong checksum, that are not as they were sent.
    pub corrupted: u64,
    /// Frames that are neither of an expected stream nor of a kind that the hosts know.
    pub unexpected: u64,
    /// ARP and ND messages that asked nothing.
    pub heard: u64,
    /// ARP, ND and echo requests that were answered.
    pub answers_sent: u64,
    /// Those whose answer found no room in the queue.
    pub answers_lost: u64,
    /// Each expected stream by itself, in the order they were named.
    pub streams: Vec<(StreamId, StreamReport)>,
}

/// What became of one stream's packets that reached this far end whole.
///
/// Lost is what its sender's `sent` has more than `received`, once nothing is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamReport {
    /// Packets, second copies not counted.
    pub received: u64,
    /// Sequence numbers that were missing when a later one came.
    pub skipped: u64,
    /// Packets that a later one of their flow overtook (RFC 4737 §3).
    pub reordered: u64,
    /// Second copies.
    pub duplicated: u64,
}

impl FarEndReader {
    /// The counters now.
    pub fn report(&self) -> FarEndReport {
        let sum = |readers: &[CounterReader], index: usize| -> u64 {
            readers.iter().map(|reader| reader.load(index)).sum()
        };
        let streams: Vec<_> = (0..)
            .zip(&self.streams)
            .map(|(index, &stream)| {
                let count = |counter| sum(&self.sinks, stream_at(index) + counter);
                let report = StreamReport {
                    received: count(RECEIVED),
                    skipped: count(SKIPPED),
                    reordered: count(REORDERED),
                    duplicated: count(DUPLICATED),
                };
                (stream, report)
            })
            .collect();
        FarEndReport {
            sent: sum(&self.feeds, SENT),
            total: streams.iter().fold(StreamReport::default(), |total, (_, one)| total.plus(one)),
            corrupted: sum(&self.sinks, CORRUPTED),
            unexpected: sum(&self.sinks, UNEXPECTED),
            heard: sum(&self.sinks, HEARD),
            answers_sent: sum(&self.feeds, ANSWERS_SENT),
            answers_lost: sum(&self.sinks, ANSWERS_LOST),
            streams,
        }
    }
}

impl StreamReport {
    fn plus(self, other: &StreamReport) -> StreamReport {
        StreamReport {
            received: self.received + other.received,
            skipped: self.skipped + other.skipped,
            reordered: self.reordered + other.reordered,
            duplicated: self.duplicated + other.duplicated,
        }
    }
}
