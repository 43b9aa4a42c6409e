//! AF_PACKET: frames through packet sockets, with the kernel's metadata.
//!
//! The kernel copies each packet once, directly into or out of our frames, 64 packets per system call. The kernel reports
//! incomplete checksums and unsegmented packets (`vnet`), and accepts both: hosts on veth send segments of 64 KiB, and
//! manylane forwards them whole.
//!
//! Before changing anything here read packet(7). Facts that it omits:
//!
//! - A socket with a protocol receives from socket(2) on, from all devices; and binding a socket that already receives
//!   waits for a grace period. So sockets are created with protocol 0 and bound once (`socket::Unbound`).
//! - close(2) waits for a grace period each time, whatever the socket was bound to (`packet_release`), and so does
//!   detaching a tcx program (`tcx_link_release`): close a port on a thread that no other thread waits for.
//! - The host's own stack gets a copy of each packet, and would answer and forward it too. A tcx program prevents that
//!   ([`MuteProgram`](crate::bpf::MuteProgram)); packet sockets see the packet before the program.
//! - The kernel removes 802.1Q tags before packet sockets see the packet, also on devices that cannot do it
//!   themselves (`skb_vlan_untag`). The auxiliary data holds the tag; the receiver restores it.
//! - With `PACKET_QDISC_BYPASS` the kernel drops a packet that the stack would have to segment for the device
//!   (`__dev_direct_xmit`), and no capture sees what we send. So the option is off by default.
//! - A socket cannot select a transmit queue. If XPS is set for the sender's core, the kernel uses that queue (many
//!   drivers set XPS so that each core has a queue; a pinned worker then has its own); otherwise the flow's hash
//!   (`netdev_pick_tx`, `skb_tx_hash`: the kernel records no receive queue for these packets), or with
//!   `PACKET_QDISC_BYPASS` the core's number (`packet_pick_tx_queue`). In each case a flow keeps its queue as long as
//!   it keeps its worker. By XPS the queue changes with the worker, and nothing reports when the old queue has drained;
//!   switch XPS off where flows change workers, and a flow's hash keeps it in one queue. Each worker has a socket of
//!   its own, whose buffer no other worker fills; queueing disciplines and devices have locks of their own.
//! - Members of a fanout group follow the group's `ignore_outgoing`, not their own.
//!
//! | type            | what it is                                          | owner                       |
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
