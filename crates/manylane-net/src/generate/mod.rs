//! The far end of a memory port: hosts that send a stream, check what arrives, and answer questions.
//!
//! A port in memory has no wire. Functions supply what its receive queues deliver and take what its transmitters send;
//! this room makes the functions. The demo, the benches and the tests use them to prove order (no flow is reordered,
//! I3) and integrity, and `[port.generate]` works this way.
//!
//! | part             | one per                 | on the thread of                | verb               |
//! |------------------|-------------------------|---------------------------------|--------------------|
//! | [`Feed`]         | receive queue           | the worker that owns the queue  | [`Feed::fill`]     |
//! | [`Sink`]         | worker (transmitter)    | that worker                     | [`Sink::take`]     |
//! | [`FarEndReader`] | as many as are wanted   | any thread                      | `report`           |
//!
//! Sinks send to the first feed by a ring each, for the answers. The sinks write no memory in common; totals are summed
//! by a reader.
//!
//! | file       | what                                                                   |
//! |------------|------------------------------------------------------------------------|
//! | `stream`   | what a stream consists of: flows, their addresses and ports            |
//! | `stamp`    | the part of the payload that proves which packet it is, and that it is whole |
//! | `template` | a flow's packet, made once                                             |
//! | `schedule` | when a packet is due                                                   |
//! | `feed`     | sends: answers first, then what is due                                 |
//! | `check`    | is this a packet of a stream, and undamaged?                           |
//! | `order`    | is it in its place? RFC 4737                                           |
//! | `answer`   | ARP, neighbour discovery, echo                                         |
//! | `sink`     | receives: check, order, answer                                         |
//! | `report`   | the counters                                                           |
//!
//! Flow *f* is sent by feed *f mod queues*, so that a flow stays on one queue. Time is an argument and
//! nothing is allocated per packet. A stream may end at another far end than it began at: each sink
//! keeps its books by the stream's id, so the loss of a stream is what its sender sent less what its
//! receiver received.
//!
//! Elsewhere: `manylane-io`'s memory port calls these functions; the daemon ties them together, wakes
//! the worker of the first queue when a sink says so, and knows the configuration.

mod answer;
mod check;
mod feed;
mod order;
mod report;
mod schedule;
mod sink;
mod stamp;
mod stream;
mod template;

pub use feed::{Feed, Pace};
pub use report::{FarEndReader, FarEndReport, StreamReport};
pub use sink::Sink;
pub use stream::{Expected, FLOWS_MAX, Stream, StreamId};

use std::fmt;
use std::net::IpAddr;

use manylane_frame::HEADROOM;
use manylane_sync::counters::Counters;
use manylane_sync::ring::ring;

use crate::wire::Mac;
use order::Order;
use schedule::Schedule;
use template::Templates;

/// TTL and hop limit of what the hosts send.
pub const TTL: u8 = 64;

/// Most streams that a far end keeps books of: a port each, as many as a configuration may have.
pub const STREAMS_MAX: usize = 256;

/// Most answers that wait from one sink: a full batch of questions, four times.
const ANSWERS_MAX: usize = 256;

/// The two ends of the wire that a port in memory lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The hosts' one MAC, whatever their addresses.
    pub hosts: Mac,
    /// The port's own.
    pub router: Mac,
}

/// What a far end is to be.
#[derive(Clone, Debug)]
pub struct FarEndConfig {
    /// The stations of the far end.
    pub link: Link,
    /// What it sends; without it, only answers.
    pub stream: Option<Stream>,
    /// The streams that may arrive, its own included if it may come back.
    pub expected: Vec<Expected>,
    /// Receive queues of the port.
    pub queues: u16,
    /// Workers that transmit on the port.
    pub sinks: u16,
    /// Bytes of a frame of the region.
    pub frame_size: u32,
}

/// The hosts behind a memory port, to be taken apart: each part goes to its thread.
pub struct FarEnd {
    /// One per receive queue.
    pub feeds: Vec<Feed>,
    /// One per worker.
    pub sinks: Vec<Sink>,
    /// For all stations.
    pub reader: FarEndReader,
}

impl FarEnd {
    /// Makes the parts: all memory they will need.
    pub fn new(config: &FarEndConfig) -> Result<FarEnd, FarEndError> {
        config.check()?;
        let (answers_in, answers_out): (Vec<_>, Vec<_>) =
            (0..config.sinks).map(|_| ring(ANSWERS_MAX)).unzip();

        let mut answers_out = Some(answers_out);
        let feeds = (0..config.queues).map(|queue| {
            let answers = answers_out.take().unwrap_or_default(); // All to the first.
            let counters = Counters::new(report::FEED_COUNTERS);
            let reader = counters.reader();
            (Feed::new(answers, config.flows(queue), counters), reader)
        });
        let (feeds, feed_readers) = feeds.unzip();

        let streams: Vec<_> = config.expected.iter().map(|expected| expected.stream).collect();
        let books = |expected: &Expected| {
            Order::books(config.sinks.into(), expected.flows as usize).into_iter()
        };
        let mut books: Vec<_> = config.expected.iter().map(books).collect();
        let sinks = answers_in.into_iter().map(|answers| {
            let orders: Box<[_]> = books.iter_mut().filter_map(Iterator::next).collect();
            let counters = Counters::new(report::stream_at(orders.len()));
            let reader = counters.reader();
            let ids = streams.clone().into();
            (Sink::new(config.link, ids, orders, answers, counters), reader)
        });
        let (sinks, sink_readers) = sinks.unzip();

        let reader = FarEndReader { streams, feeds: feed_readers, sinks: sink_readers };
        Ok(FarEnd { feeds, sinks, reader })
    }
}

impl FarEndConfig {
    /// The feed of `queue`; `None` when fewer flows than queues exist before it.
    fn flows(&self, queue: u16) -> Option<feed::Flows> {
        let stream = self.stream.as_ref()?;
        let (queue, queues) = (u32::from(queue), u32::from(self.queues));
        let sending = queues.min(stream.flows); // Queues that have flows.
        if queue >= sending {
            return None;
        }
        let numbers = (queue..stream.flows).step_by(queues as usize);
        let templates = Templates::new(stream, self.link, numbers);
        let schedule =
            Schedule::new(stream.packets_per_second, stream.packets, queue.into(), sending.into());
        Some(feed::Flows::new(templates, schedule, stream.frame_len()))
    }

    fn check(&self) -> Result<(), FarEndError> {
        if self.queues == 0 {
            return Err(FarEndError::NoQueue);
        }
        if let Some(stream) = &self.stream {
            stream.check(self.frame_size.saturating_sub(HEADROOM.into()))?;
        }
        if self.expected.len() > STREAMS_MAX {
            return Err(FarEndError::Streams(self.expected.len()));
        }
        for (index, expected) in self.expected.iter().enumerate() {
            if expected.flows == 0 || expected.flows > FLOWS_MAX {
                return Err(FarEndError::Flows(expected.flows));
            }
            if self.expected[..index].iter().any(|other| other.stream == expected.stream) {
                return Err(FarEndError::SameStream(expected.stream));
            }
        }
        Ok(())
    }
}

/// Why the far end cannot be made.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEndError {
    /// The port has no receive queue.
    NoQueue,
    /// The stream goes from one family to the other.
    Families {
        /// Where it is from.
        source: IpAddr,
        /// Where it is to go.
        destination: IpAddr,
    },
    /// The destination's prefix has more bits than an address.
    PrefixLength {
        /// The request.
        len: u8,
        /// What the family has.
        len_max: u8,
    },
    /// A stream has no flow, or more than [`FLOWS_MAX`].
    Flows(u32),
    /// No packets in a second.
    NoRate,
    /// The stream's frames do not fit in the region's.
    FrameTooLong {
        /// Bytes of the stream's.
        len: u16,
        /// Bytes behind the headroom.
        room: u32,
    },
    /// More than [`STREAMS_MAX`] streams are expected.
    Streams(usize),
    /// Two expected streams have the same id.
    SameStream(StreamId),
}

impl fmt::Display for FarEndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FarEndError::NoQueue => write!(f, "the port has no receive queue: give it one"),
            FarEndError::Families { source, destination } => {
                write!(f, "from {source} to {destination}: take both from one family")
            }
            FarEndError::PrefixLength { len, len_max } => {
                write!(f, "prefix length {len}: an address has {len_max} bits, take no more")
            }
            FarEndError::Flows(flows) => write!(f, "{flows} flows: take 1 to {FLOWS_MAX}"),
            FarEndError::NoRate => {
                write!(f, "0 packets per second: leave the rate out for no limit")
            }
            FarEndError::FrameTooLong { len, room } => {
                write!(f, "frames of {len} bytes: the region's have room for {room}, take no more")
            }
            FarEndError::Streams(streams) => {
                write!(f, "{streams} streams expected: take at most {STREAMS_MAX}")
            }
            FarEndError::SameStream(StreamId(stream)) => {
                write!(f, "two streams have the id {stream}: give each its own")
            }
        }
    }
}

impl std::error::Error for FarEndError {}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
