//! The same packets through a kernel's router and through manylane, and what is different afterwards.
//!
//! | file          | holds                                                                     |
//! |---------------|---------------------------------------------------------------------------|
//! | `plan.rs`     | addresses and routes of both labs, and the neighbours                      |
//! | `twin.rs`     | a lab: a router of either kind, and the stations at its two links          |
//! | `generate.rs` | packets: which, and what is odd about them                                |
//! | `ipv4.rs`     | … of IPv4                                                                 |
//! | `ipv6.rs`     | … of IPv6                                                                 |
//! | `link.rs`     | … ARP, neighbour discovery, and oddities of Ethernet                       |
//! | `read.rs`     | what a frame says, field by field                                         |
//! | `compare.rs`  | which fields of two routers' outputs differ                               |
//! | `wanted/`     | what manylane has to send, whatever the kernel does                       |
//! | `planted.rs`  | bugs that the comparison has to find                                      |
//! | `intended.rs` | the differences that are meant, each with its reason                      |
//! | `row.rs`      | what they are made of                                                     |
//!
//! Nothing waits for time to pass. Behind each packet the stations send two marks, ordinary packets
//! that leave by either link: a router keeps its order, so what leaves between two marks was caused by
//! the packet between them, and when the last marks are there, so is everything else. A packet that a
//! router would answer only after seconds (a neighbour that is silent, a fragment that never comes) is not
//! generated: what time does is for other scenarios.

mod compare;
mod generate;
mod intended;
mod ipv4;
mod ipv6;
mod link;
mod plan;
mod planted;
mod read;
mod row;
mod twin;
mod wanted;

mod tests;
