//! What labs run in the kernel: a generator of frames without gaps and its sink, tags on a host's link, and forwarders
//! to measure ours against.
//!
//! | Program           | Where it runs           | What it does                                       |
//! |-------------------|-------------------------|----------------------------------------------------|
//! | [`LiveGenerator`] | XDP, in test runs       | sends frames of flows by an interface              |
//! | [`LiveSink`]      | XDP of a lab's host     | counts frames and drops them                       |
//! | [`VlanLink`]      | tcx of a lab's host     | puts what the host sends into a VLAN, and takes it out |
//! | [`Yardstick`]     | XDP of a lab's router   | forwards packets as others would                   |

mod live;
mod vlan;
mod yardstick;

pub use live::{Destinations, LiveGenerator, LiveOptions, LiveSink};
pub use vlan::{Tag, VlanLink};
pub use yardstick::{Yardstick, YardstickLink};
