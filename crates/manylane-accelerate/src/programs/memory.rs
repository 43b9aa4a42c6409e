//! The tables that the forwarding programs read, as maps that we have mapped, too.

use manylane_io::bpf::BpfError;
use manylane_io::bpf::maps::{Maps, RingReader};
use manylane_sync::words::WordsMut;

use super::sflow::{self, Sflow};
use super::{capture, samples};

/// How many words those tables have that are as large as the routes want. A lookup in one that is too short finds
/// no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Directories of /24s with longer routes (`fib/v4` of `manylane-net`).
    pub groups4: usize,
    /// Their lists.
    pub ranges4: usize,
    /// Entries by bits of IPv6 addresses (`fib/v6`).
    pub index6: usize,
    /// Leaves.
    pub leaves6: usize,
    /// Words of `flow_index`, of `flow_entries` and of `flow_addresses` (`transit/flows` of `manylane-net`).
    pub flows: [usize; 3],
}

/// The writer's side of what a program reads: one table for each name in `tables.h`, all words 0. What the words
/// mean is said in `manylane-net` (`transit`); they have one writer.
pub struct Tables {
    /// Next hops of IPv4 /16s, or their chunks.
    pub direct4: WordsMut<u32>,
    /// Next hops of the /24s of /16s.
    pub chunks4: WordsMut<u64>,
    /// Directories of IPv4 /16s.
    pub blocks4: WordsMut<u32>,
    /// Lists of IPv4 /24s.
    pub groups4: WordsMut<u32>,
    /// The lists.
    pub ranges4: WordsMut<u32>,
    /// Next hops of IPv6 buckets, or the way on.
    pub direct6: WordsMut<u32>,
    /// Next hops by the bits that follow, or the way on.
    pub index6: WordsMut<u32>,
    /// Intervals of IPv6 addresses and their words.
    pub leaves6: WordsMut<u64>,
    /// Which IPv4 addresses may be our own, by their hashes.
    pub own4: WordsMut<u64>,
    /// What next hops are.
    pub next_hops: WordsMut<u64>,
    /// Members of groups.
    pub buckets: WordsMut<u16>,
    /// Records of slots.
    pub record_of: WordsMut<u32>,
    /// The records.
    pub records: WordsMut<u32>,
    /// Ports.
    pub ports: WordsMut<u32>,
    /// Ports of interfaces.
    pub port_of: WordsMut<u16>,
    /// Ports of VLANs.
    pub vlan_port: WordsMut<u16>,
    /// Lease, seed, and what groups may be decided.
    pub control: WordsMut<u64>,
    /// Rules of the routing policy.
    pub rules: WordsMut<u64>,
    /// Where further tables begin.
    pub roots: WordsMut<u64>,
    /// Their ranges of addresses.
    pub further: WordsMut<u64>,
    /// Where flows are, by their hashes.
    pub flow_index: WordsMut<u64>,
    /// Directions of flows; programs write their last words.
    pub flow_entries: WordsMut<u64>,
    /// IPv6 addresses of flows.
    pub flow_addresses: WordsMut<u64>,
}

/// All that programs and daemon share.
pub(super) struct Created {
    pub maps: Maps,
    pub tables: Tables,
    pub counters: WordsMut<u64>,
    pub samples: WordsMut<u64>,
    pub sflow: Sflow,
    pub sketch: WordsMut<u32>,
    pub candidates: RingReader,
    pub observed: WordsMut<u64>,
}

/// Makes all tables; and for `cpus` CPUs the counters and samples, which programs write.
pub(super) fn create(sizes: &Sizes, cpus: usize) -> Result<Created, BpfError> {
    let mut maps = Maps::default();
    let [flow_index, flow_entries, flow_addresses] = sizes.flows;
    let tables = Tables {
        direct4: maps.add("direct4", 1 << 16)?,
        chunks4: maps.add("chunks4", (32 << 16) + 128)?,
        blocks4: maps.add("blocks4", 1 << 16)?,
        groups4: maps.add("groups4", sizes.groups4.max(LEAF))?,
        ranges4: maps.add("ranges4", sizes.ranges4.max(LEAF))?,
        direct6: maps.add("direct6", 1 << 16)?,
        index6: maps.add("index6", sizes.index6.max(LEAF))?,
        leaves6: maps.add("leaves6", sizes.leaves6.max(LEAF))?,
        own4: maps.add("own4", 1024)?,
        next_hops: maps.add("next_hops", 1 << 15)?,
        buckets: maps.add("buckets", 512 * 512)?,
        record_of: maps.add("record_of", 1 << 15)?,
        records: maps.add("records", 16 << 16)?,
        ports: maps.add("ports", 16 * PORTS)?,
        port_of: maps.add("port_of", 1 << 16)?,
        vlan_port: maps.add("vlan_port", PORTS * 2 * 4096)?,
        control: maps.add("control", 64)?,
        rules: maps.add("rules", 16 * 32 * 16)?,
        roots: maps.add("roots", 64)?,
        further: maps.add("further", 1 << 20)?,
        flow_index: maps.add("flow_index", flow_index.max(2 * LEAF))?,
        flow_entries: maps.add("flow_entries", flow_entries.max(2 * LEAF))?,
        flow_addresses: maps.add("flow_addresses", flow_addresses.max(LEAF))?,
    };
    let counters = maps.add("counters", cpus * PORTS * PLACES)?;
    let samples = maps.add("samples", samples::words(cpus))?;
    let sflow = sflow::create(&mut maps, cpus)?;
    let sketch = maps.add("flow_sketch", sketch_cells(sizes))?;
    let candidates = maps.add_ring("candidates", CANDIDATES_BYTES)?;
    let observed = maps.add("observed", capture::observed_words(cpus))?;
    Ok(Created { maps, tables, counters, samples, sflow, sketch, candidates, observed })
}

/// Ports, with number 0, which is no port.
pub(super) const PORTS: usize = 256;
/// Counters of a port, on a CPU.
pub(super) const PLACES: usize = 32;

/// Cells of the sketch of packets without a flow (`candidates.h`): one for each flow, and a power of two.
fn sketch_cells(sizes: &Sizes) -> usize {
    let [_, entries, _] = sizes.flows;
    (entries / 16).next_power_of_two().max(1 << 12)
}

/// Room for some 4,500 candidates.
const CANDIDATES_BYTES: u32 = 1 << 18;

/// Words of a far leaf of IPv6: the program relies on there being one.
const LEAF: usize = 8;
