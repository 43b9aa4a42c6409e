//! TAP: frames to and from the host's own stack, with the kernel's metadata.
//!
//! manylane receives the packets that the host sends through the interface, and the host receives the packets that
//! manylane transmits. Segments and checksums pass unchanged (`vnet`). A frame costs one system call each way: a TAP
//! has no calls for several frames.
//!
//! Before changing anything here read the kernel's Documentation/networking/tuntap.rst. Facts that it omits:
//!
//! - The interface's own MAC address is the host's end. Ours is another ([`TapConfig::mac`]), or both
//!   ends of the wire would have one address.
//! - An interface created with `multi_queue` can only be opened with `multi_queue`, and one without only without.
//! - By default, the kernel moves a flow to the queue by which an answer to it was last written, ahead of
//!   packets that still wait in the old one. So our own program selects queues
//!   ([`SteerProgram`](crate::bpf::SteerProgram)).
//! - The host records by which queue a packet was written (`skb_record_rx_queue` in `tun_get_user`), and
//!   forwards it by the same queue: the only choice at ingress, which
//!   [`Receiving`](super::Receiving) makes. Several threads may write to one queue; they share no lock.
//! - A read into too short a buffer loses the rest of the packet silently.
//!
//! | type            | what it is                                 | owner                       |
//! |-----------------|--------------------------------------------|-----------------------------|
//! | [`Tap`]         | the opened port                            | control thread              |
//! | [`Receiver`]    | a queue, and frames for one packet         | the worker owning the queue |
//! | [`Transmitter`] | writes to a queue, shared with a receiver  | one worker, one for each    |

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
