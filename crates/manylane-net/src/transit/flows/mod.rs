//! The flow table: connections that the kernel's firewall and translation have decided about.
//!
//! Where a router filters by connection or translates addresses, a packet is forwarded only if its connection has a place
//! here, exact to both ends. What a place may hold is decided elsewhere (`manylane-accelerate`, `lane/`): this room has
//! the words, their one writer, and what a translation does to a packet.
//!
//! | file           | holds                                                          |
//! |----------------|----------------------------------------------------------------|
//! | `key.rs`       | [`Tuple`]: both ends of a packet; the words and the hash of it |
//! | `table.rs`     | [`FlowsMut`]: the writer                                       |
//! | `owners.rs`    | which entries are free, and whose the others are               |
//! | `translate.rs` | what a translation does to a frame: the program's twin         |
//!
//! # The tables
//!
//! A flow takes two entries, one for each direction: of packets as the connection's opener sends them, and of replies. The
//! table has two entries and two places of the index for each flow.
//!
//! | table                 | holds                                                                                  |
//! |-----------------------|----------------------------------------------------------------------------------------|
//! | `flow_entries: u64`   | a line for each direction: what identifies it, its translation, its state, its counters |
//! | `flow_addresses: u64` | half a line for each direction: IPv6 addresses, as they arrive                         |
//! | `flow_index: u64`     | buckets of 8 places: the upper half of a hash, and below it the entry plus one         |
//!
//! With many flows a packet waits for memory. An entry that it finds by another line is two waits, one after the other, and
//! one that it finds by its hash is one. So an entry is in a **home** of its hash, one of two lines side by side, if
//! one is free when its flow begins: seven of eight are, in a table half full. The index leads to the others, in the bucket
//! that the hash names, or in the one beside that.
//!
//! The translation of a direction is the other direction turned around; so IPv6 keeps no translated addresses.
//!
//! | words of an entry | by           | hold                                                                |
//! |-------------------|--------------|---------------------------------------------------------------------|
//! | 0 to 3            | the writer   | addresses (IPv4), ports, protocol; the other direction's entry; both translated; sums' differences |
//! | 4                 | the writer   | generation, and the ports that the flow is approved for             |
//! | 5, 6              | the programs | packets, bytes                                                      |
//! | 7                 | the programs | the last packet's tick; packets that the kernel got; whether it closes |
//!
//! Words 5 to 7 are written without atomic additions: packets of a direction arrive by one queue, so on one processor.
//! While a queue moves, two processors may count at once, and a packet may be missing from the sum; so may a packet that
//! the kernel got, which the next one makes up for. No decision hangs on a sum.
//!
//! # Concurrency
//!
//! An entry is written while its ends match no packet's, gets its ends last, and loses them first; it is used again after a
//! grace period. A reader compares the whole key, wherever it has been led. The generation is the switch: a packet follows
//! an entry whose generation is the control word's. To raise that one word stops all flows at once.
//!
//! Loom explores the writer beside a program in `explored.rs`, with mutants of both.

mod key;
mod owners;
mod table;
mod translate;

#[cfg(all(test, manylane_loom))]
mod explored;
#[cfg(test)]
mod test_connections;
#[cfg(all(test, not(manylane_loom)))]
mod tests;

pub use key::Tuple;
pub use table::{Direction, FlowNumber, FlowUse, FlowsFull, FlowsMut, NewFlow, Required};

pub(super) use key::Key;
pub(super) use table::FlowsReader;
pub(super) use translate::translate;

/// Words of an entry: one line.
pub(super) const ENTRY_WORDS: usize = 8;

/// Places of a bucket: one line.
pub(super) const BUCKET: usize = 8;

/// Words of an entry's IPv6 addresses: half a line.
pub(super) const ADDRESS_WORDS: usize = 4;

/// The most flows: an entry names that of the other direction in 22 bits.
pub const FLOWS_MAX: usize = 1 << (63 - entry::OTHER_FROM);

/// Words of `flow_index`, of `flow_entries` and of `flow_addresses`, for this many flows.
pub fn words(flows: usize) -> [usize; 3] {
    // Only entries without a home have a place: in a full table less than half of all.
    let index = (flows.max(1) * 2).next_power_of_two().max(2 * BUCKET);
    let entries = flows.max(1) * 2;
    [index, entries * ENTRY_WORDS, entries * ADDRESS_WORDS]
}

/// An entry's words.
pub(super) mod entry {
    /// IPv4 source, and destination from bit 32, as they lie in memory.
    pub const ADDRESSES: usize = 0;
    /// The ports as they lie in memory, the protocol from bit 32, bit 40 for IPv6, [`REMOVED`]; the other direction's entry
    /// from [`OTHER_FROM`].
    pub const ENDS: usize = 1;
    /// As [`ADDRESSES`], translated.
    pub const NEW_ADDRESSES: usize = 2;
    /// The ports, translated; from bit 32 what sums grow by for the addresses, from bit 48 for the ports.
    pub const NEW_PORTS: usize = 3;
    /// The generation; from bit 32 the ingress and from bit 40 the egress port; from bit 48 [`TRANSLATED`].
    pub const STATE: usize = 4;
    /// Packets forwarded.
    pub const PACKETS: usize = 5;
    /// Their bytes, from the IP header on.
    pub const BYTES: usize = 6;
    /// The last packet's tick times two, plus one if it had a payload; from bit 32 packets that the kernel got; from bit
    /// 48 whether the connection is being opened, closed or reset.
    pub const USE: usize = 7;

    /// Of [`ENDS`]: the flow was taken out.
    pub const REMOVED: u64 = 1 << 41;
    /// Of [`ENDS`]: where the other direction's entry begins.
    pub const OTHER_FROM: u32 = 42;

    /// Of [`STATE`]: addresses or ports are translated.
    pub const TRANSLATED: u64 = 1;
}
