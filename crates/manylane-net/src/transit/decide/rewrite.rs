//! What forwarding does to a frame, and to its place in queues.

use crate::forward::decrement_ttl;
use crate::transit::Adjacency;
use crate::wire::ethernet::{self, HEADER_LEN as LINK_HEADER, ether_type};
use crate::wire::ipv4;

impl Adjacency {
    /// What forwarding does to a frame: another link header, and one hop older.
    pub(super) fn rewrite(&self, frame: &mut [u8]) {
        let ether_type = u16::from_be_bytes([frame[12], frame[13]]);
        ethernet::emit(frame, self.destination, self.source, ether_type);
        match frame.first_chunk_mut::<{ LINK_HEADER + ipv4::HEADER_LEN }>() {
            Some(head) if ether_type == ether_type::IPV4 => decrement_ttl(head),
            _ => frame[LINK_HEADER + HOP_LIMIT] -= 1, // Checked to be above 1.
        }
    }
}

/// Where IPv6's header has it.
const HOP_LIMIT: usize = 7;

/// The queueing priority that the kernel gives an IPv4 packet that it forwards (`rt_tos2priority`), by its
/// type of service: best effort, bulk, interactive, interactive bulk.
pub fn priority_ipv4(tos: u8) -> u32 {
    [0, 2, 6, 4][usize::from(tos >> 3 & 3)]
}
