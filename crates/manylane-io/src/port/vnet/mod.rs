//! Packets with a virtio header in front, shared by AF_PACKET and TAP ports.
//!
//! By the header the kernel reports an incomplete checksum and a packet to be segmented, and we report
//! both to the kernel, so that a packet of 64 KiB passes unchanged. Before changing anything here read
//! linux/virtio_net.h and the virtio specification 1.3, 5.1.6.
//!
//! ```text
//! first frame:  [ ... | header | packet ........ ]   others:  [ packet ........................ ]
//!                 246      256            frame_size           0                     frame_size
//! ```
//!
//! | file        | what it is                                                    |
//! |-------------|---------------------------------------------------------------|
//! | `header.rs` | the header, and its meaning in our terms                      |
//! | `receive_buffer.rs`| frames posted to receive a packet                             |
//! | `iov.rs`    | a packet's bytes as system calls take them                    |
//! | `lost.rs`   | attributes the kernel's drops to a cause                      |
//!
//! The kernel accesses frames during a system call only, so they stay ours: none is lent.

mod header;
mod iov;
mod lost;
mod receive_buffer;

use manylane_frame::CHAIN_MAX;

pub(super) use header::{HEADER, Header};
pub(super) use iov::{IOV_MAX, push_packet};
pub(super) use lost::Lost;
pub(super) use receive_buffer::{ReceiveBuffer, Received, frames_for};

/// The largest possible packet, with an Ethernet header and two tags: an IPv6 packet without a
/// jumbo payload.
pub const PACKET_MAX: u32 = 14 + 2 * 4 + 40 + 65_535;
const _: () = assert!(frames_for(PACKET_MAX + 1, 2048) <= CHAIN_MAX, "no buffer is too long");

/// Checks that `packet_max` covers an interface of `mtu` and is possible; otherwise returns the smallest
/// value for that MTU.
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
