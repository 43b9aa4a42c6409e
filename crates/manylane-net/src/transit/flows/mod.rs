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
//! | `translate.rs` | what a translation does to a frame: the program's twin         |
//!
//! # The tables
//!
//! A flow takes two entries side by side, one for each direction: the even one for packets as the connection's opener
//! sends them, the odd one for replies. The table has two entries and four places of the index for each flow.
//!
//! | table                 | holds                                                                                  |
//! |-----------------------|----------------------------------------------------------------------------------------|
//! | `flow_index: u64`     | buckets of 8 places: the upper half of a hash, and below it the entry plus one         |
//! | `flow_entries: u64`   | a line for each direction: what identifies it, its translation, its state, its counters |
//! | `flow_addresses: u64` | a line for each flow: IPv6 addresses of both directions, as they arrive                |
//!
//! A direction has its place in the bucket that its hash names, or in the one beside that. The translation of a direction
//! is the other direction turned around; so IPv6 keeps no translated addresses.
//!
//! | words of an entry | by           | hold                                                                |
//! |-------------------|--------------|---------------------------------------------------------------------|
//! | 0 to 3            | the writer   | addresses (IPv4), ports, protocol; both translated; sums' differences |
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
//! An entry is written while no place of the index leads to it, and used again after a grace period. A reader that follows
//! an older place compares the whole key, and finds that of another connection or its own. The generation is the switch: a
//! packet follows an entry whose generation is the control word's. To raise that one word stops all flows at once.
//!
//! Loom explores the writer beside a program in `explored.rs`, with mutants of both.

mod key;
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

/// Words of `flow_index`, of `flow_entries` and of `flow_addresses`, for this many flows.
pub fn words(flows: usize) -> [usize; 3] {
    // Half of the places are in use when all flows are.
    let index = (flows.max(1) * 4).next_power_of_two().max(2 * BUCKET);
    [index, flows.max(1) * 2 * ENTRY_WORDS, flows.max(1) * 8]
}

/// An entry's words.
pub(super) mod entry {
    /// IPv4 source, and destination from bit 32, as they lie in memory.
    pub const ADDRESSES: usize = 0;
    /// The ports as they lie in memory, the protocol from bit 32, the version from bit 40.
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

    /// Of [`STATE`]: addresses or ports are translated.
    pub const TRANSLATED: u64 = 1;
}
