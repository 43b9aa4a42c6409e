//! Random tables and random packets, through whatever decides about them.
//!
//! | file           | holds                                                                        |
//! |----------------|------------------------------------------------------------------------------|
//! | `world.rs`     | random tables, as a writer makes them, and random changes of them            |
//! | `connections.rs` | the flow table of a world                                                  |
//! | `packets.rs`   | packets for a world: ordinary, odd, malformed                                |
//! | `program.rs`   | the program in the kernel, tried on a packet; and how it differs from its twin |
//! | `driver.rs`    | the program in the driver, tried likewise                                    |
//! | `forwarder.rs` | `forward` of `manylane-net` over the same routes                             |
//! | `changes.rs`   | records that say whose they are, replaced while packets are tried            |

mod changes;
mod connections;
mod driver;
mod forwarder;
mod packets;
mod program;
mod world;

mod tests;
