//! The words of the shared tables: where each is, and what its bits say. `manylane-io`'s `fast.bpf.h` says
//! the same in C; the differential test holds both to it. All words are in the machine's byte order.

use crate::nexthop;

/// Words of `next_hops`: ids are below.
pub const NEXT_HOPS: usize = 32_768;

/// Groups of next hops.
pub const GROUPS: usize = 512;

/// Words of `buckets`, of which each group has [`nexthop::BUCKETS`].
pub const BUCKETS: usize = GROUPS * nexthop::BUCKETS;

/// Words of `record_of`: slots of neighbours are below.
pub const SLOTS: usize = 32_768;

/// Records: one for each slot, and as many for those that wait for their grace period. Record 0 is none.
pub const RECORDS: usize = 65_536;

/// Words of a record: 64 bytes, one line.
pub const RECORD_WORDS: usize = 16;

/// Ports. Port 0 is none.
pub const PORTS: usize = 256;

/// Words of a port: 64 bytes, one line.
pub const PORT_WORDS: usize = 16;

/// Words of `port_of`: interfaces with a larger index cannot be accelerated.
pub const INTERFACES: usize = 65_536;

/// VLANs of a port and a kind of tag.
pub const VLANS: usize = 4096;

/// Words of `vlan_port`.
pub const VLAN_PORTS: usize = PORTS * 2 * VLANS;

/// Words of `control`.
pub const CONTROL: usize = 64;

/// Words of `counters`, for each processor and port.
pub const COUNTERS: usize = 32;

/// The word of `vlan_port` for a tag on `port`: of 802.1ad (`is_service`) or of 802.1Q.
#[inline(always)]
pub const fn vlan(port: u16, is_service: bool, vlan: u16) -> usize {
    (port as usize * 2 + is_service as usize) * VLANS + vlan as usize
}

/// A record's words: the way out to a neighbour.
pub mod record {
    /// The index of the interface that packets leave by.
    pub const EXIT_INTERFACE: usize = 0;
    /// The port that this is, which says whether packets may leave there.
    pub const EXIT_PORT: usize = 1;
    /// The largest IP packet: the smaller of the interface's and the route's MTU.
    pub const MTU: usize = 2;
    /// Flags. None is in use at ingress.
    pub const FLAGS: usize = 3;
    /// The first of three words that hold, byte by byte, the twelve bytes in front of an Ethernet frame:
    /// destination, then source.
    pub const ADDRESSES: usize = 4;
    /// The stamp, in two places.
    pub const STAMPS: [usize; 2] = [7, 15];
}

/// A port's words: an interface, and what may be done there.
pub mod port {
    /// [`super::flags`].
    pub const FLAGS: usize = 0;
    /// The interface's index.
    pub const INTERFACE: usize = 1;
    /// The first of two words that hold, byte by byte, our MAC address there.
    pub const MAC: usize = 2;
}

/// What may be done on a port: bits of its first word.
pub mod flags {
    /// Packets that come in here may be forwarded.
    pub const ENTRY: u32 = 1;
    /// Packets may leave here.
    pub const EXIT: u32 = 2;
    /// The kernel forwards IPv4 that comes in here (sysctl `forwarding`).
    pub const FORWARDING_V4: u32 = 4;
    /// The kernel forwards IPv6 that comes in here.
    pub const FORWARDING_V6: u32 = 8;
    /// The source's route must lead out here (`rp_filter` 1, RFC 3704 §2.2). IPv4, as the sysctl.
    pub const RP_STRICT: u32 = 16;
    /// The source must have a route (`rp_filter` 2, RFC 3704 §2.4). IPv4.
    pub const RP_LOOSE: u32 = 32;
    /// The kernel may tell who sends by us what need not (`send_redirects`): in equals out is its.
    pub const REDIRECTS_V4: u32 = 64;
    /// The same for IPv6.
    pub const REDIRECTS_V6: u32 = 128;
}

/// Words of `control`.
pub mod control {
    /// Until when the tables are true, in nanoseconds of `CLOCK_MONOTONIC_COARSE`. From then on
    /// everything is the kernel's.
    pub const LEASE: usize = 0;
    /// The seed that divides flows among the members of groups.
    pub const SEED: usize = 1;
    /// What may be done about groups: the bits below.
    pub const MULTIPATH: usize = 2;

    /// IPv4 groups may be decided here.
    pub const MULTIPATH_V4: u64 = 1;
    /// IPv6 groups may be decided here.
    pub const MULTIPATH_V6: u64 = 2;
    /// IPv4's flows are told apart by ports too (`fib_multipath_hash_policy` 1).
    pub const PORTS_V4: u64 = 4;
    /// IPv6's flows are told apart by ports too.
    pub const PORTS_V6: u64 = 8;
}

/// Places of a port's row in `counters`. The numbers of verdicts are places in the row of the port of
/// entry.
pub mod counter {
    /// Bytes forwarded, in the row of the port of entry.
    pub const ENTRY_BYTES: usize = 31;
    /// Packets sent, in the row of the port they left by.
    pub const EXIT_PACKETS: usize = 30;
    /// Bytes sent, in the row of the port they left by.
    pub const EXIT_BYTES: usize = 29;
}
