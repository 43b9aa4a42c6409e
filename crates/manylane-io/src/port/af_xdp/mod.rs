//! AF_XDP: frames exchanged directly between a device's queues and our region.
//!
//! Before changing anything here read the kernel's Documentation/networking/af_xdp.rst. Facts that it omits:
//!
//! - The kernel takes 256 bytes of each frame as headroom, so a frame has at most `frame_size - 256` of a
//!   packet. A larger one it puts into several frames (`XDP_USE_SG`: descriptors with `XDP_PKT_CONTD`, and
//!   a last one without), or drops it.
//! - The kernel sends a packet of at most 18 frames. Of a larger one, or of one with an invalid descriptor, such as an
//!   empty one, it drops the part that it has, never completes it, and treats the rest as another
//!   packet: no such packet may get on the ring. While the kernel has a part of a packet, its index may also step
//!   back over that part (`xskq_cons_cancel_n`), so these slots must not be reused yet
//!   ([`Transmitter`] keeps as many spare).
//! - Zero-copy is used for packets of one frame only: generic netlink alone reports how many a device accepts,
//!   and each would have less room (`xsk_pool_get_tailroom`). With a larger MTU the kernel copies.
//! - In copy mode the transmit ring must always be kicked, and a kick sends 32 frames at most
//!   ([`Transmitter::flush`] repeats it).
//! - A veth's receive queue is its peer's transmit queue: a queue without a socket loses nothing, but passes its
//!   packets to the kernel, which looks like loss. So every queue gets a socket.
//! - A descriptor does not show a VLAN tag that the device has removed, or that a veth's peer never
//!   inserted (`tx-vlan-offload`): frames of all VLANs look alike. So the program restores it
//!   (`bpf/xsk_tag.bpf.c`); where it cannot, a port with VLANs does not open.
//! - The four mappings hold a socket open; and a queue becomes free only some time after its socket is closed.
//!
//! | type            | what it is                                   | owner                       |
//! |-----------------|----------------------------------------------|-----------------------------|
//! | [`Umem`]        | the region as the memory of all sockets      | control thread              |
//! | [`AfXdp`]       | the opened port: XDP program, multicast      | control thread              |
//! | [`Receiver`]    | receive, fill and completion ring of a queue | the worker owning the queue |
//! | [`Transmitter`] | a transmit ring                              | one worker, one for each    |
//!
//! A worker that owns a queue of the port transmits by that queue's socket. Any other has a further
//! socket with nothing but a transmit ring, on the queue that [`Receiving`](super::Receiving) selects; its
//! completions arrive at that queue's receiver. A socket sends by the transmit queue with the
//! number of the queue that it is bound to, in every mode; in copy mode the kernel refuses a number that the device
//! does not have (`__xsk_generic_xmit`). A transmit queue beyond the receive queues is not used: completions arrive on
//! a queue's rings, and no worker would own these.
//!
//! `lent.rs` records exactly which frames are lent, so all come back when the port [closes](AfXdp::close),
//! whatever the kernel did with them.

mod bind;
mod close;
mod drain;
mod error;
mod join;
mod lent;
mod open;
mod receiver;
mod ring;
mod socket;
mod transmitter;
mod umem;

use manylane_frame::vocabulary::Checksum;

use crate::bpf::Attach;

pub use close::{Closed, DRAIN_MAX};
pub use error::{OpenError, TagsHidden};
pub use open::{AfXdp, Facts, Opened};
pub use receiver::Receiver;
pub use transmitter::{TransmitLosses, Transmitter};
pub use umem::Umem;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// Entries of each receive ring; each ring's size is a power of two.
    pub rx_ring: u32,
    /// Entries of each transmit ring.
    pub tx_ring: u32,
    /// Entries of each fill ring: frames posted for packets.
    pub fill_ring: u32,
    /// Entries of each completion ring: frames that were sent and not reclaimed yet.
    pub completion_ring: u32,
    /// What the port reports about received transport checksums. `None` decides by the driver: a veth's are
    /// [`Checksum::Unknown`], since a peer's stack leaves them to a device that does not exist.
    pub checksum: Option<Checksum>,
    /// Where the XDP program may run.
    pub attach: Attach,
    /// Whether zero-copy is tried before copying.
    pub zero_copy: bool,
    /// Whether a packet may lie in several frames, where the kernel supports it (Linux 6.6).
    pub multi_buffer: bool,
    /// Whether the port has VLANs: then it does not open where the device may hide tags.
    pub vlans: bool,
}

impl Default for AfXdpConfig {
    fn default() -> AfXdpConfig {
        AfXdpConfig {
            rx_ring: 1024,
            tx_ring: 1024,
            fill_ring: 1024,
            completion_ring: 1024,
            checksum: None,
            attach: Attach::Best,
            zero_copy: true,
            multi_buffer: true,
            vlans: false,
        }
    }
}
