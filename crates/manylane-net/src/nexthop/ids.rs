//! What each next-hop id of a forwarder leads to.
//!
//! | next-hop id            | leads to                                |
//! |------------------------|-----------------------------------------|
//! | `LOCAL` ... `PROHIBIT` | what their names say                    |
//! | `CONNECTED + port`     | the destination itself, on that port    |
//! | `GROUP + group`        | one of that group's neighbours          |
//! | `NEIGHBOUR + slot`     | that neighbour                          |

use manylane_frame::vocabulary::PortId;

use super::GroupId;
use crate::fib::NextHopId;

/// One of our own addresses.
pub const LOCAL: u16 = 1;
/// The broadcast address of a connected network.
pub const BROADCAST: u16 = 2;
/// A blackhole route.
pub const BLACKHOLE: u16 = 3;
/// An unreachable route.
pub const UNREACHABLE: u16 = 4;
/// A prohibit route.
pub const PROHIBIT: u16 = 5;
/// The first port's connected networks.
pub const CONNECTED: u16 = 16;
/// The first group.
pub const GROUP: u16 = 1024;
/// The first neighbour's slot.
pub const NEIGHBOUR: u16 = 1536;

/// Ports a forwarder can have: ids between [`CONNECTED`] and [`GROUP`].
pub const PORTS_MAX: usize = (GROUP - CONNECTED) as usize;
/// Groups of next hops that a forwarder can have: ids between [`GROUP`] and [`NEIGHBOUR`].
pub const GROUPS_MAX: usize = (NEIGHBOUR - GROUP) as usize;
/// Slots for neighbours that a forwarder can have: ids from [`NEIGHBOUR`] on.
pub const NEIGHBOURS_MAX: usize = (NextHopId::MAX.raw() - NEIGHBOUR) as usize;

/// The next-hop id of a neighbour's slot.
pub fn neighbour_id(slot: u32) -> NextHopId {
    fixed_id(NEIGHBOUR + slot as u16)
}

/// The next-hop id of a group.
pub fn group_id(group: GroupId) -> NextHopId {
    fixed_id(GROUP + group.0)
}

/// The next-hop id of the networks connected to a port.
pub fn connected_id(port: PortId) -> NextHopId {
    fixed_id(CONNECTED + port.0)
}

/// The next-hop id of this number.
///
/// # Panics
///
/// When the number is 0 or larger than the largest id.
pub fn fixed_id(raw: u16) -> NextHopId {
    NextHopId::new(raw).expect("the ids of this file are between 1 and the largest")
}
