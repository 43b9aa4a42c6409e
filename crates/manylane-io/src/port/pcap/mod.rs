//! Capture files: packets out of one, packets into one.
//!
//! The port receives the packets of a pcap or pcapng file, at the pace of their capture or as fast as the
//! worker accepts them, once, several times or for ever. Transmitted packets are written to a pcapng file with
//! nanoseconds.
//!
//! No worker touches a file. An input file is read and checked as a whole before the port opens, up
//! to a bound; a turn copies packets out of memory. For an output file, each worker has a *lane*:
//! buffers that the worker fills and a thread of the daemon writes out ([`Writer`]). When all buffers wait
//! for the disk, packets are lost and counted.
//!
//! ```text
//! worker ── record ──> buffer ── ring ──> Writer::run, a thread ──> file
//!    ^                                        │
//!    └───────────── ring, emptied ────────────┘
//! ```
//!
//! | type            | what it is                              | owner                         |
//! |-----------------|-----------------------------------------|-------------------------------|
//! | [`Capture`]     | an input file                           | shared by its receivers       |
//! | [`Receiver`]    | a position in it                        | the worker owning the queue   |
//! | [`Transmitter`] | a lane                                  | one worker                    |
//! | [`Writer`]      | the other end of all lanes, and the file| a thread of its own           |
//!
//! A truncated packet is skipped and counted, like one that is not
//! Ethernet or is larger than 64 KiB: half a packet was on no wire (`tcprewrite --fixlen=del` also skips it; tcpreplay
//! alone would send it). A captured frame check sequence stays, as padding.
//!
//! Before changing anything here read draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

mod capture;
mod error;
mod lane;
mod open;
mod receiver;
mod writer;

pub use capture::{Capture, Skipped};
pub use error::{Damage, ReadError, WriteError};
pub use lane::{Direction, LaneCounts, Transmitter, wall_clock};
pub use open::{OpenError, Opened, PcapConfig};
pub use receiver::{Receiver, ReplayConfig, Timing};
pub use writer::{FileConfig, FileCounts, Writer, Written};

#[cfg(test)]
mod tests;
