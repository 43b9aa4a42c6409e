//! How to send to a neighbour, as callers know it and as a record holds it.

use crate::transit::layout::{RECORD_WORDS, record};
use crate::wire::ethernet::Mac;

/// How to send to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The index of the interface that packets leave by.
    pub egress_ifindex: u32,
    /// The port that this is.
    pub egress_port: u16,
    /// The largest IP packet, in bytes: the smaller of the interface's and the route's MTU.
    pub mtu: u32,
    /// The neighbour's MAC address.
    pub destination: Mac,
    /// Ours there.
    pub source: Mac,
}

impl Adjacency {
    /// What the words of a record say.
    pub(in crate::transit) fn of(words: &[u32; RECORD_WORDS]) -> Adjacency {
        let [destination, source] = macs(std::array::from_fn(|at| words[record::ADDRESSES + at]));
        Adjacency {
            egress_ifindex: words[record::EGRESS_INTERFACE],
            egress_port: words[record::EGRESS_PORT] as u16,
            mtu: words[record::MTU],
            destination,
            source,
        }
    }
}

/// The twelve bytes in front of an Ethernet frame, as a record holds them.
pub(super) fn address_words(destination: Mac, source: Mac) -> [u32; 3] {
    let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (destination.0, source.0);
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_ne_bytes)
}

/// Destination and source of these words.
fn macs(words: [u32; 3]) -> [Mac; 2] {
    let [[a, b, c, d], [e, f, g, h], [i, j, k, l]] = words.map(u32::to_ne_bytes);
    [Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l])]
}
