//! The words of the shared tables: where each is, and what its bits say. `manylane-io`'s `fast.bpf.h` says
//! the same in C; the differential test holds both to it. All words are in the machine's byte order.

use crate::fib::v4;
use crate::nexthop;

/// Words of `direct4` and of `blocks4`.
pub const BLOCKS4: usize = v4::BLOCKS;

/// Words of `chunks4`.
pub const CHUNKS4: usize = v4::CHUNKS;

/// The next-hop id of IPv4 addresses whose routes `chunks4` has no room for: the kernel.
pub const UNKNOWN: u16 = v4::UNKNOWN;

/// Words of `next_hops`: ids are below.
pub const NEXT_HOPS: usize = 32_768;

/// Words of `own4`: a bit for each hash of an IPv4 address.
pub const OWN_WORDS: usize = 1024;

/// The bit of `own4` for an address: the upper bits of a product (Knuth's multiplicative hash), since those depend on
/// all of it. Of its bytes as they lie in a packet, which is one instruction less.
#[inline(always)]
pub const fn own_bit(address: u32) -> usize {
    (address.swap_bytes().wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Groups of next hops.
pub const GROUPS: usize = 512;

/// Words of `buckets`; each group has [`nexthop::BUCKETS`] of them.
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

/// Lists of rules. List 0 belongs to no family: it stands for the usual rules alone.
pub const RULE_LISTS: usize = 16;

/// Rules of a list, and so of a family.
pub const RULES: usize = 32;

/// Words of a rule: two lines.
pub const RULE_WORDS: usize = 16;

/// Words of `roots`: numbers of further tables are below, those that wait for their grace period, too.
pub const TABLES: usize = 64;

/// Further tables of a family.
pub const FURTHER_TABLES: usize = 15;

/// Words of `further`.
pub const FURTHER: usize = 1 << 20;

/// Words of a range.
pub const RANGE_WORDS: usize = 3;

/// Words of `counters`, for each processor and port.
pub const COUNTERS: usize = 32;

/// The word of `vlan_port` for a tag on `port`: of 802.1ad (`is_service`) or of 802.1Q.
#[inline(always)]
pub const fn vlan(port: u16, is_service: bool, vlan: u16) -> usize {
    (port as usize * 2 + is_service as usize) * VLANS + vlan as usize
}

/// A record's words: how to send to a neighbour.
pub mod record {
    /// The index of the interface that packets leave by.
    pub const EGRESS_INTERFACE: usize = 0;
    /// The port that this is, which says whether packets may leave there.
    pub const EGRESS_PORT: usize = 1;
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
    /// Packets received here may be forwarded.
    pub const INGRESS: u32 = 1;
    /// Packets may leave here.
    pub const EGRESS: u32 = 2;
    /// The kernel forwards IPv4 received here (sysctl `forwarding`).
    pub const FORWARDING_V4: u32 = 4;
    /// The kernel forwards IPv6 received here.
    pub const FORWARDING_V6: u32 = 8;
    /// The source's route must lead out here (`rp_filter` 1, RFC 3704 §2.2). IPv4, as the sysctl.
    pub const RP_STRICT: u32 = 16;
    /// The source must have a route (`rp_filter` 2, RFC 3704 §2.4). IPv4.
    pub const RP_LOOSE: u32 = 32;
    /// The kernel may notify a sender of a straighter path (`send_redirects`): packets that leave as they arrived are
    /// its.
    pub const REDIRECTS_V4: u32 = 64;
    /// As `REDIRECTS_V4`, for IPv6.
    pub const REDIRECTS_V6: u32 = 128;
    /// A rule of the firewall wants that an IPv6 source's route leads out here, of packets that need a flow.
    pub const RP_STRICT_V6: u32 = 16384;
    /// Packets received here may be forwarded in the driver, by the program there.
    pub const DRIVER_INGRESS: u32 = 256;
    /// The device takes frames that are redirected to its driver.
    pub const DRIVER_EGRESS: u32 = 512;
    /// Also such as are in several pieces of memory.
    pub const DRIVER_EGRESS_PIECES: u32 = 2048;
    /// Packets received here may be handed up to workers, by the program in the driver.
    pub const WORKERS_INGRESS: u32 = 4096;
    /// Workers have sockets to send by.
    pub const WORKERS_EGRESS: u32 = 8192;
}

/// Words of `control`.
pub mod control {
    /// Which packets are forwarded only with a flow: the bits below; from bit 32 the generation of flows that may be
    /// followed.
    pub const FLOWS: usize = 0;
    /// The seed that divides flows among the members of groups.
    pub const SEED: usize = 1;
    /// What may be done about groups: the bits below.
    pub const MULTIPATH: usize = 2;
    /// The lists of rules that packets are routed by: IPv4's in the lower 16 bits, IPv6's in the next. 0
    /// stands for the usual rules: local, main, default, for all packets.
    pub const RULES: usize = 3;
    /// Until when packets may be forwarded, in the kernel's ticks (jiffies): which programs read with one load. From
    /// then on everything is the kernel's. From this word on the table is the lease's ([`LeaseMut`](super::super::LeaseMut)).
    pub const LEASE_TICKS: usize = 4;
    /// The same in nanoseconds of `CLOCK_MONOTONIC_COARSE`.
    pub const LEASE: usize = 5;

    /// IPv4 packets need a flow.
    pub const FLOWS_V4: u64 = 1;
    /// IPv6 packets need a flow.
    pub const FLOWS_V6: u64 = 2;

    /// IPv4 groups may be decided here.
    pub const MULTIPATH_V4: u64 = 1;
    /// IPv6 groups may be decided here.
    pub const MULTIPATH_V6: u64 = 2;
    /// IPv4's flows are distinguished by ports too (`fib_multipath_hash_policy` 1).
    pub const PORTS_V4: u64 = 4;
    /// IPv6's flows are distinguished by ports too.
    pub const PORTS_V6: u64 = 8;
}

/// A rule's words. Addresses are two words, an IPv4 one the upper half of the first.
pub mod rule {
    /// What it says, its flags, then the [`TABLE`], the type of service, and which bits of that matter.
    pub const HEAD: usize = 0;
    /// The index of the ingress interface; 0 for any.
    pub const INGRESS: usize = 1;
    /// The packets' sources, and which bits of them matter.
    pub const FROM: usize = 2;
    /// The packets' destinations, and which bits of them matter.
    pub const TO: usize = 6;

    /// In [`HEAD`]: packets match that otherwise would not.
    pub const INVERTED: u64 = 1 << 8;
    /// Where in [`HEAD`] the table's number begins, of eight bits.
    pub const TABLE: u32 = 16;
    /// Where the type of service begins, of eight bits.
    pub const TOS: u32 = 24;
    /// Where the bits of it that matter begin.
    pub const TOS_MASK: u32 = 32;

    /// The list ends.
    pub const END: u64 = 0;
    /// What the merged tables say, if that is said by the local one.
    pub const LOCAL: u64 = 1;
    /// What the merged tables say.
    pub const MERGED: u64 = 2;
    /// What a further table says.
    pub const FURTHER: u64 = 3;
    /// Nowhere.
    pub const NOWHERE: u64 = 4;
    /// The kernel's.
    pub const KERNEL: u64 = 5;
}

/// A range's words: from an address on, up to where the next range begins.
pub mod range {
    /// The address, of two words.
    pub const FIRST: usize = 0;
    /// The next-hop id; 0 for no route.
    pub const ID: usize = 2;
}

/// Places of a port's row in `counters`. The numbers of verdicts are places in the row of the ingress
/// port.
pub mod counter {
    /// Bytes forwarded, in the row of the ingress port.
    pub const INGRESS_BYTES: usize = 31;
    /// Packets sent, in the row of the port they left by.
    pub const EGRESS_PACKETS: usize = 30;
    /// Bytes sent, in the row of the port they left by.
    pub const EGRESS_BYTES: usize = 29;
}
