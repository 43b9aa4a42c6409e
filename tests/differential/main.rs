//! Two implementations decide about the same random packets, and a test shows the first difference.
//!
//! | room       | compares                                                                               |
//! |------------|----------------------------------------------------------------------------------------|
//! | `kernel`   | a router of the kernel with manylane, by the packets that leave them                   |
//! | `decision` | the BPF program with its twin in `manylane-net`, by verdicts, counters and frame bytes |
//!
//! A failure names the seed and the packet. Nearly all tests need root, and print `SKIPPED` without it.

mod decision;
mod kernel;
mod random;
