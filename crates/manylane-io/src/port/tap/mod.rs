//! TAP: frames to and from the host's own stack, with what the kernel knows of them.
//!
//! What the host sends through the interface, we receive; what we transmit, the host receives. Segments
//! and checksums stay as they are (`vnet`). A frame costs a system call each way: a TAP has no calls for
//! several.
//!
//! Before changing anything here read the kernel's Documentation/networking/tuntap.rst. What it does not
//! say:
//!
//! - The interface's own MAC address is the host's end. Ours is another ([`TapConfig::mac`]), or both
//!   ends of the wire would have the same.
//! - An interface that somebody made with `multi_queue` can be opened only so, and the other way round.
//! - Left alone, the kernel moves a flow to the queue by which an answer to it was written last, past
//!   what still waits in the old one. So a program of ours chooses
//!   ([`SteerProgram`](crate::bpf::SteerProgram)).
//! - The host records by which queue a packet was written (`skb_record_rx_queue` in `tun_get_user`), and
//!   sends what it forwards by the same: the only choice there is on the way in, and
//!   [`Receiving`](super::Receiving) makes it. Several threads may write to one queue; they share no lock.
//! - A read that is too short loses the rest of the packet and does not say so.
//!
//! | type            | what it is                                 | whose                       |
//! |-----------------|--------------------------------------------|-----------------------------|
//! | [`Tap`]         | the opened port                            | control thread              |
//! | [`Receiver`]    | a queue, and frames for one packet         | the worker owning the queue |
//! | [`Transmitter`] | a way into a queue, shared with a receiver | one worker, one for each    |

mod counter;
mod device;
mod error;
mod open;
mod receiver;
mod transmitter;

pub use error::OpenError;
pub use open::{Facts, Opened, Tap, TapConfig};
pub use receiver::Receiver;
pub use transmitter::{TransmitLosses, Transmitter};
