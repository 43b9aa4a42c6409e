//! Why the tables refuse an edit.

use std::io;
use std::net::IpAddr;

use manylane_net::fib::{EditError, IpPrefix};
use manylane_net::neighbour::TableFull;
use manylane_net::nexthop::GroupsFull;

/// Why the tables were not made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RoutingError {
    /// The system refused memory for the tables.
    #[error(
        "no memory for the routing tables: {0}; free some, or raise the limits of this process"
    )]
    Memory(#[source] io::Error),
    /// The FIB refused a route.
    #[error("route {prefix}: {source}")]
    Fib {
        /// The route's prefix.
        prefix: IpPrefix,
        /// Why.
        source: EditError,
    },
    /// The neighbour table refused a next hop.
    #[error("next hop: {0}")]
    Neighbour(#[source] TableFull),
    /// The routes have too many different groups of next hops.
    #[error("next hops: {0}")]
    Groups(#[source] GroupsFull),
    /// A next hop or static neighbour is ourselves.
    #[error(
        "{addr}, in a [[route]] or [[neighbour.static]], is our own address on that port: write another station's"
    )]
    Own {
        /// Its address.
        addr: IpAddr,
    },
}
