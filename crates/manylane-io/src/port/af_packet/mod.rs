//! AF_PACKET: frames through packet sockets, with what the kernel knows of them.
//!
//! The kernel copies each packet once, straight into or out of our frames, 64 packets a system call. It
//! tells which checksums are not complete and which packets are still to be cut (`vnet`), and takes
//! both: hosts on veth talk in segments of 64 KiB, and here they stay whole.
//!
//! Before changing anything here read packet(7). What it does not say:
//!
//! - A socket with a protocol receives from socket(2) on, from all devices; and to bind one that already
//!   receives waits for a grace period. So sockets are made with protocol 0 and bound once
//!   (`socket::Unbound`).
//! - close(2) waits for a grace period each time, whatever the socket was bound to (`packet_release`), and
//!   so does taking a tcx program away (`tcx_link_release`): to close a port is not for a thread that others
//!   wait for.
//! - The host's own stack gets its copy of every packet, and would answer and forward beside us. A tcx
//!   program takes that away ([`MuteProgram`](crate::bpf::MuteProgram)); packet sockets come before it.
//! - 802.1Q tags are taken off before packet sockets see the packet, also on devices that cannot do it
//!   themselves (`skb_vlan_untag`). The auxiliary data has them; we put them back.
//! - With `PACKET_QDISC_BYPASS` a packet that the stack would have to cut for the device is dropped
//!   (`__dev_direct_xmit`), and nobody can capture what we send. So that is off, unless asked for.
//! - A socket cannot choose a transmit queue. What it sends goes by the queue that XPS has for the sender's
//!   core, if that is set (many drivers set it so that each core has a queue: our worker's own, for it is
//!   pinned); else by the flow's hash (`netdev_pick_tx`, `skb_tx_hash`: nothing is recorded of where the
//!   packet came in), or with `PACKET_QDISC_BYPASS` by the core's number (`packet_pick_tx_queue`). Each way
//!   a flow has one queue as long as it has one worker. By XPS it changes with the worker, and nothing tells
//!   when what the old queue has been given is gone; switch XPS off where flows move, and a flow's hash keeps
//!   it in one queue. Each worker has a socket of its own, whose buffer nobody else fills; queueing
//!   disciplines and devices have locks of their own.
//! - Members of a fanout group follow the group's `ignore_outgoing`, not their own.
//!
//! | type            | what it is                                          | whose                       |
//! |-----------------|-----------------------------------------------------|-----------------------------|
//! | [`AfPacket`]    | the opened port: program, multicast                 | control thread              |
//! | [`Receiver`]    | a socket, and frames for a batch of packets         | the worker owning the queue |
//! | [`Transmitter`] | a socket that receives nothing                      | one worker, one for each    |

mod error;
mod open;
mod receiver;
mod socket;
mod transmitter;

pub use error::OpenError;
pub use open::{AfPacket, AfPacketConfig, Closed, Facts, Opened};
pub use receiver::Receiver;
pub use transmitter::{TransmitLosses, Transmitter};
