//! What packet sockets are described by, in the terms of packet(7): protocols, the default ring, statistics.

use super::{Reader, RingConfig};

/// Protocols of packet(7), in host byte order; any other ether type is one, too.
pub mod protocol {
    /// None: nothing is received.
    pub const NONE: u16 = 0;
    /// Every protocol (`ETH_P_ALL`).
    pub const ALL: u16 = 0x0003;
    /// IEEE 802.3 frames, which have a length in place of an ether type (`ETH_P_802_2`).
    pub const IEEE_802_2: u16 = 0x0004;
    /// IPv4 (`ETH_P_IP`).
    pub const IPV4: u16 = 0x0800;
    /// ARP (`ETH_P_ARP`).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (`ETH_P_IPV6`).
    pub const IPV6: u16 = 0x86dd;
}

/// What a socket has been given since it was last asked (packet(7), `PACKET_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that its filter let pass, lost ones included.
    pub packets: u64,
    /// Packets that found no room in its ring.
    pub lost: u64,
}

/// A socket's ring unless it requests another: half of the kernel's default of 208 KiB for each worker.
pub const RING: RingConfig = RingConfig { block_size: 32 << 10, blocks: 4, retire_ns: 1_000_000 };

impl Statistics {
    /// What lanes have counted since they were made.
    pub fn of(readers: &[Reader]) -> Statistics {
        readers.iter().map(Reader::totals).fold(Statistics::default(), |sum, lane| Statistics {
            packets: sum.packets + lane.packets + lane.lost,
            lost: sum.lost + lane.lost,
        })
    }
}
