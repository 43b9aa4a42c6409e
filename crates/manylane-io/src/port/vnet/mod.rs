//! Packets with a header of virtio in front: what AF_PACKET and TAP ports have in common.
//!
//! By it the kernel says which checksum is still to be completed and what is to be cut in segments, and
//! is told the same, so that a packet of 64 KiB goes through as it is. Before changing anything here read
//! linux/virtio_net.h and the virtio specification 1.3, 5.1.6.
//!
//! ```text
//! first frame:  [ ... | header | packet ........ ]   others:  [ packet ........................ ]
//!                 246      256            frame_size           0                     frame_size
//! ```
//!
//! | room        | what it is                                                    |
//! |-------------|---------------------------------------------------------------|
//! | `header.rs` | the header, and what it means in our words                    |
//! | `landing.rs`| frames that a packet is received into                         |
//! | `iov.rs`    | a packet's bytes as system calls want them                    |
//! | `lost.rs`   | whose fault it is when the kernel drops what we have not read |
//!
//! The kernel reads and writes frames during a system call only, so they stay ours: nothing is lent.

mod header;
mod iov;
mod landing;
mod lost;

pub(super) use header::{HEADER, Header};
pub(super) use iov::{IOV_MAX, push_packet};
pub(super) use landing::{Landed, Landing, frames_for};
pub(super) use lost::Lost;

/// The largest packet there can be, with an Ethernet header and two tags: an IPv6 packet without a
/// jumbo payload.
pub const PACKET_MAX: u32 = 14 + 2 * 4 + 40 + 65_535;
