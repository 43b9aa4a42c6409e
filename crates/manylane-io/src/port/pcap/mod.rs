//! Capture files: packets out of one, packets into one.
//!
//! What is received comes from a pcap or pcapng file, at the pace it was captured at or as fast as the
//! worker goes, once, several times or for ever. What is transmitted goes into a pcapng file with
//! nanoseconds.
//!
//! No worker touches a file. The one that is read is read and checked whole before the port is open, up
//! to a bound; a turn copies packets out of memory. For the one that is written, each worker has a *lane*:
//! buffers that it fills and a thread of the daemon's writes out ([`Writer`]). When all its buffers wait
//! for the disk, packets are lost and counted.
//!
//! ```text
//! worker ── record ──> buffer ── ring ──> Writer::run, a thread ──> file
//!    ^                                        │
//!    └───────────── ring, emptied ────────────┘
//! ```
//!
//! | type            | what it is                              | whose                         |
//! |-----------------|-----------------------------------------|-------------------------------|
//! | [`Capture`]     | a file that was read                    | shared by its receivers       |
//! | [`Receiver`]    | a place in it                           | the worker owning the queue   |
//! | [`Transmitter`] | a lane                                  | one worker                    |
//! | [`Writer`]      | the other end of all lanes, and the file| a thread of its own           |
//!
//! A packet of which the capture has only the beginning is skipped and counted, like one that is no
//! Ethernet frame or larger than 64 KiB: half a packet was on no wire (`tcprewrite --fixlen=del`; tcpreplay
//! alone would send it). A frame check sequence that was captured stays, as padding.
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
pub use writer::{FileConfig, Writer, Written};

#[cfg(test)]
mod tests;
