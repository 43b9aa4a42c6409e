//! Fixed-size packet frames, and the words that ports and rules share.
//!
//! | room           | what it is                                                            |
//! |----------------|-----------------------------------------------------------------------|
//! | [`mapping`]    | anonymous memory, on huge pages where the kernel has some             |
//! | [`region`]     | one mapping cut in frames, with a line of metadata for each           |
//! | [`frame`]      | the handle of one frame: its holder owns the bytes                    |
//! | [`batch`]      | up to 64 frames handled together                                      |
//! | [`pool`]       | where free frames are: a list in each worker, a depot between them    |
//! | [`vocabulary`] | ports, queues, drop reasons                                           |
//!
//! Two invariants of the whole project live here. **I1**: a frame has exactly one owner, because a
//! [`Frame`] can be neither copied nor cloned and dropping one is counted as a leak. And the frames'
//! half of **I2**: a region's frames add up over their holders at any quiescent moment.
//!
//! A program of its own, which runs as a test: a packet larger than a frame, from a pool and back to it, and a frame that
//! is lost. The front page of `manylane-net` has a router in one program, from region and pool to the end of a turn.
//!
//! ```
#![doc = include_str!("../examples/frames.rs")]
//! ```

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod batch;
pub mod frame;
pub mod mapping;
pub mod pool;
pub mod region;
pub mod vocabulary;

pub use batch::{BATCH_MAX, Batch, BatchList};
pub use frame::{Frame, frames_leaked};
pub use mapping::Mapping;
pub use pool::{Depot, HOT_LIST_DEFAULT, HOT_LIST_LENGTHS, MAGAZINE, Pool, PoolCounts, RESERVE};
pub use region::{
    CHAIN_MAX, HEADROOM, Holder, Marks, Meta, Missing, NoHeadroom, Packet, PacketMut, Parts,
    PartsMut, Region, RegionConfig, RegionError, Sample, Steered, Trace, View,
};

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(test)]
mod message_tests;

/// The code of README.md runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
