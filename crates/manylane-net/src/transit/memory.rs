//! The tables, as they are handed in: mapped, or in boxes.

use manylane_sync::words::WordsMut;

use super::layout::{
    BLOCKS4, BUCKETS, CHUNKS4, CONTROL, FURTHER, INTERFACES, NEXT_HOPS, OWN_WORDS, PORT_WORDS,
    PORTS, RECORD_WORDS, RECORDS, RULE_LISTS, RULE_WORDS, RULES, SLOTS, TABLES, VLAN_PORTS,
};
use crate::fib::{Ipv4Sizes, Ipv6Sizes, Ipv6Tables};

/// How large the tables of routes are. All others have the sizes that [`layout`](super::layout) gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The IPv4 table.
    pub ipv4: Ipv4Sizes,
    /// The IPv6 table.
    pub ipv6: Ipv6Sizes,
    /// Flows.
    pub flows: usize,
}

impl Sizes {
    /// For `long_routes` IPv4 routes longer than /24, shorter ones need no room, and `routes6` IPv6 routes.
    pub fn for_routes(long_ipv4: usize, ipv6: usize) -> Sizes {
        let (ipv4, ipv6) = (Ipv4Sizes::for_long_routes(long_ipv4), Ipv6Sizes::for_routes(ipv6));
        Sizes { ipv4, ipv6, flows: 0 }
    }
}

/// The memory of all tables; all words are 0. The names are those of the program's maps.
pub struct Memory {
    /// Next hops of IPv4's /16s, or their chunks.
    pub direct4: WordsMut<u32>,
    /// Next hops of the /24s of /16s.
    pub chunks4: WordsMut<u64>,
    /// Directories of /16s.
    pub blocks4: WordsMut<u32>,
    /// Lists of /24s.
    pub groups4: WordsMut<u32>,
    /// The lists.
    pub ranges4: WordsMut<u32>,
    /// IPv6's next hops or the way on, by bucket.
    pub direct6: WordsMut<u32>,
    /// The entries by the bits that follow.
    pub index6: WordsMut<u32>,
    /// Intervals and their words.
    pub leaves6: WordsMut<u64>,
    /// Which IPv4 addresses may be our own.
    pub own4: WordsMut<u64>,
    /// What next-hop ids mean.
    pub next_hops: WordsMut<u64>,
    /// The owners of groups' flows.
    pub buckets: WordsMut<u16>,
    /// The records of slots.
    pub record_of: WordsMut<u32>,
    /// Records of how to send.
    pub records: WordsMut<u32>,
    /// What may be done on interfaces.
    pub ports: WordsMut<u32>,
    /// The ports of interfaces.
    pub port_of: WordsMut<u16>,
    /// The ports of VLAN devices.
    pub vlan_port: WordsMut<u16>,
    /// Lease, seed, multipath, lists of rules.
    pub control: WordsMut<u64>,
    /// Lists of rules.
    pub rules: WordsMut<u64>,
    /// Where further tables are.
    pub roots: WordsMut<u64>,
    /// Their ranges.
    pub further: WordsMut<u64>,
    /// Where flows are, by their hashes.
    pub flow_index: WordsMut<u64>,
    /// Directions of flows.
    pub flow_entries: WordsMut<u64>,
    /// Their IPv6 addresses.
    pub flow_addresses: WordsMut<u64>,
}

impl Memory {
    /// Tables in boxes, which no program can read: for tests.
    pub fn zeroed(sizes: &Sizes) -> Memory {
        let ipv4 = sizes.ipv4;
        let Ipv6Tables { direct: direct6, index, leaves } = Ipv6Tables::zeroed(sizes.ipv6);
        let [flow_index, flow_entries, flow_addresses] =
            super::flows::words(sizes.flows).map(WordsMut::zeroed);
        Memory {
            flow_index,
            flow_entries,
            flow_addresses,
            direct4: WordsMut::zeroed(BLOCKS4),
            chunks4: WordsMut::zeroed(CHUNKS4),
            blocks4: WordsMut::zeroed(BLOCKS4),
            groups4: WordsMut::zeroed(ipv4.groups),
            ranges4: WordsMut::zeroed(ipv4.ranges),
            direct6,
            index6: index,
            leaves6: leaves,
            own4: WordsMut::zeroed(OWN_WORDS),
            next_hops: WordsMut::zeroed(NEXT_HOPS),
            buckets: WordsMut::zeroed(BUCKETS),
            record_of: WordsMut::zeroed(SLOTS),
            records: WordsMut::zeroed(RECORDS * RECORD_WORDS),
            ports: WordsMut::zeroed(PORTS * PORT_WORDS),
            port_of: WordsMut::zeroed(INTERFACES),
            vlan_port: WordsMut::zeroed(VLAN_PORTS),
            control: WordsMut::zeroed(CONTROL),
            rules: WordsMut::zeroed(RULE_LISTS * RULES * RULE_WORDS),
            roots: WordsMut::zeroed(TABLES),
            further: WordsMut::zeroed(FURTHER),
        }
    }
}
