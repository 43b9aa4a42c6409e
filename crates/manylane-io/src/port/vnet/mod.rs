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

use manylane_frame::CHAIN_MAX;

pub(super) use header::{HEADER, Header};
pub(super) use iov::{IOV_MAX, push_packet};
pub(super) use landing::{Landed, Landing, frames_for};
pub(super) use lost::Lost;

/// The largest packet there can be, with an Ethernet header and two tags: an IPv6 packet without a
/// jumbo payload.
pub const PACKET_MAX: u32 = 14 + 2 * 4 + 40 + 65_535;
const _: () = assert!(frames_for(PACKET_MAX + 1, 2048) <= CHAIN_MAX, "no landing is too long");

/// Whether packets of up to `packet_max` bytes are enough for an interface of `mtu`, and not more than
/// there can be; the least that is, if not.
pub(super) fn check_packet_max(packet_max: u32, mtu: u32) -> Result<(), u32> {
    let least = mtu.saturating_add(ETHERNET_AND_TAG).min(PACKET_MAX);
    match (least..=PACKET_MAX).contains(&packet_max) {
        true => Ok(()),
        false => Err(least),
    }
}

/// An Ethernet header and one 802.1Q tag.
const ETHERNET_AND_TAG: u32 = 14 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_large_as_the_mtu_asks_and_no_larger_than_there_can_be() {
        assert_eq!(check_packet_max(1518, 1500), Ok(()));
        assert_eq!(check_packet_max(1517, 1500), Err(1518));
        assert_eq!(check_packet_max(PACKET_MAX, 1500), Ok(()));
        assert_eq!(check_packet_max(PACKET_MAX + 1, 1500), Err(1518));
        assert_eq!(check_packet_max(PACKET_MAX, u32::MAX), Ok(()));
    }
}
