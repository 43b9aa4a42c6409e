//! What workers tell the table, and what the table wants done.

use super::Requester;
use crate::neighbour::Key;
use crate::neighbour::adjacency::AdjacencyState;
use crate::neighbour::entry::Kind;
use crate::neighbour::own::Claim;

/// What workers tell the control thread about neighbours, by ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A packet needs this neighbour's address, which is unknown.
    Missing {
        /// The neighbour.
        key: Key,
        /// The packet's sender.
        requester: Requester,
    },
    /// A packet used a stale address.
    Used {
        /// The neighbour's slot. If it has changed hands since, one neighbour too many is probed.
        slot: u32,
    },
    /// A packet showed a neighbour's address. Not for our own addresses: a claim to one of those is
    /// [`Report::Claimed`].
    Answer {
        /// The neighbour.
        key: Key,
        /// The link-layer address in the packet; an advertisement may come without.
        mac: Option<[u8; 6]>,
        /// What packet it was.
        kind: Kind,
    },
    /// Another station lays claim to an address of ours.
    Claimed {
        /// Our address.
        key: Key,
        /// The station.
        mac: [u8; 6],
        /// How.
        claim: Claim,
    },
}

/// What the control thread has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an ARP request or a neighbour solicitation.
    Solicit {
        /// The neighbour.
        key: Key,
        /// Ask only this station; `None`: all stations.
        unicast: Option<[u8; 6]>,
    },
    /// Workers must see something else: publish the adjacency.
    Publish {
        /// Where.
        slot: u32,
        /// The neighbour.
        key: Key,
        /// What a worker does with its packets.
        state: AdjacencyState,
        /// Its link-layer address, when the state is a resolved one.
        mac: Option<[u8; 6]>,
    },
    /// The neighbour is gone: remove what leads to the slot, then withdraw it.
    Remove {
        /// Where.
        slot: u32,
        /// The neighbour.
        key: Key,
    },
}
