//! What tests of several rooms begin with.

use manylane_io::netlink::conntrack::{Connection, Status, Tuple};

/// A connection of UDP that nothing in the kernel but conntrack looks at, by its tuples: original and reply.
pub(crate) fn connection([original, reply]: [Tuple; 2], id: u32, status: Status) -> Connection {
    Connection {
        original,
        reply,
        id,
        status,
        timeout: None,
        mark: 0,
        zone: 0,
        tcp: None,
        has_helper: false,
        has_sequence_adjustment: false,
        has_synproxy: false,
        has_master: false,
        counted: None,
    }
}
