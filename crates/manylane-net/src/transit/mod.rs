//! What the kernel's programs forward by: tables in shared memory, their writer, and the decision.
//!
//! With `manylane accelerate` a program in the kernel looks at each packet of an interface. The program forwards plain
//! *transit*, and leaves everything else to the kernel, untouched. The program reads the tables of this room, in memory
//! that both have mapped; one thread writes them, with plain stores. [`Transit`] is the program's twin: its decision
//! over these tables, in Rust, to be read and to be tested against (`tests/differential/decision/`). Both forward a
//! strict part of what
//! [`forward`](crate::forward) forwards, and alike.
//!
//! | file      | what is in it                                                                  |
//! |-----------|--------------------------------------------------------------------------------|
//! | `layout`  | words of the tables: the contract with the program                             |
//! | `memory`  | [`Memory`]: the tables, as they are handed in                                  |
//! | `writer`  | [`TransitMut`]: routes, next hops, slots, groups, ports; what waits            |
//! | `decide`  | [`Transit`]: the decision, step by step                                        |
//! | `partial` | [`has_partial_checksum`]: what the program in the driver leaves to the one behind it |
//! | `flows`   | connections that firewall and translation have decided about         |
//! | `policy`  | rules and further tables, beyond the usual ones                                |
//! | `verdict` | [`Verdict`]: what is decided about a packet, and why the kernel has it         |
//!
//! # The tables
//!
//! | map                                       | by                          | holds                                            |
//! |-------------------------------------------|-----------------------------|--------------------------------------------------|
//! | `direct4`, `chunks4`                      | IPv4 address                | a next-hop id ([`fib::v4`](crate::fib::v4))      |
//! | `blocks4`, `groups4`, `ranges4`           | as above                    | as above, where routes are longer than /24       |
//! | `direct6`, `index6`, `leaves6`            | IPv6 address                | a next-hop id ([`fib::v6`](crate::fib::v6))      |
//! | `next_hops: u64`                          | next-hop id                 | what it leads to ([`nexthop`](crate::nexthop))   |
//! | `buckets: u16`                            | group, bucket of the flow   | a neighbour's slot                               |
//! | `record_of: u32`                          | slot                        | its record; 0 without an address                 |
//! | `records: 16 x u32`                       | record                      | how to send ([`layout::record`])                 |
//! | `ports: 16 x u32`                         | port                        | what may be done there ([`layout::port`])        |
//! | `port_of: u16`                            | interface's index           | its port; 0 for none                             |
//! | `vlan_port: u16`                          | port, kind of tag, VLAN     | the VLAN device's port; 0 for none               |
//! | `control: u64`                            |                             | lease, seed, multipath ([`layout::control`])     |
//! | `rules`, `roots`, `further: u64`          | list and rule; table        | which table routes a packet (`policy`)           |
//! | `flow_index`, `flow_entries`, `flow_addresses: u64` | both ends of a packet | what its connection may do ([`flows`])  |
//! | `counters: u64`                           | processor, port, place      | what was decided: the program writes, we read    |
//!
//! A packet's way is one word at a time: of the FIB, of a next hop, of a bucket, of a slot. Each is the old
//! or the new one, never a mixture (I6). A record is never changed while it can be found: it is written
//! whole, then published by its number in `record_of`, and used again after a grace period, as a slot, a
//! next-hop id and a group are. The first and the last word of what must fit together are one number in
//! two places, the *stamp*: a torn or mixed record would show.
//!
//! # Grace periods
//!
//! Programs are no readers of a [`Domain`](manylane_sync::rcu::Domain): they are waited for by a call that
//! blocks. A [`Proxy`](manylane_sync::rcu::Proxy) stands for them, so that everything that waits here
//! covers them, and workers too.
//!
//! Elsewhere: the program and its maps are `manylane-accelerate`'s `programs`; what the kernel says of its routes
//! becomes edits in that crate's `mirror`.

mod decide;
pub mod flows;
pub mod layout;
mod lease;
mod memory;
mod own;
mod partial;
mod policy;
mod verdict;
mod writer;

#[cfg(all(test, not(manylane_loom)))]
mod tests;

pub use decide::{Arrival, Egress, Transit, priority_ipv4};
pub use lease::LeaseMut;
pub use memory::{Memory, Sizes};
pub use partial::has_partial_checksum;
pub use policy::{Action, Rule, TableNumber};
pub use verdict::Verdict;
pub use writer::{Adjacency, Multipath, PortRecord, TransitMut};
