//! `manylane capture`: what passes the daemon, on the terminal, in a file, or in Wireshark.
//!
//! The way to the daemon is behind [`Server`] and [`Source`]; [`Daemon`] takes it: to packet sockets of `manylane run`, or to
//! programs in the kernel, of `manylane accelerate` (`accelerated.rs`). A packet that the source
//! hands over goes to one of two places; each learns when nothing more waits, so that a reader of the
//! pipe sees a packet when it is there, and under load only whole buffers are written:
//!
//! - without `-w`, to the terminal: `lines.rs`, a line for each by `decode/`;
//! - with `-w`, and for Wireshark, to files: `files.rs` has names and rotation, `pcapng.rs` the blocks, without an
//!   allocation for a packet.
//!
//! `drops.rs` writes the same files in the daemon, for clients of its API.
//!
//! Options and output are tcpdump's where it has them (tcpdump(1)); what is ours is the port, point, worker
//! and drop reason in front of each line. Wireshark calls it by extcap(4) (`extcap.rs`).

mod accelerated;
mod daemon;
mod decode;
#[cfg(test)]
mod errors;
mod extcap;
mod files;
mod interrupt;
mod lines;
mod local_time;
mod options;
mod run;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use accelerated::since_1970;
pub use daemon::Daemon;
pub use interrupt::Interrupt;
pub(crate) use local_time::LocalTime;
pub use options::{Options, PointName, UsageError};
pub use run::{CaptureError, run};
pub use source::{
    Captured, OpenError, PortName, Request, SNAP_MAX, Server, Source, Statistics, Wake,
};
