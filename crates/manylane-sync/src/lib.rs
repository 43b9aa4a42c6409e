//! What packet workers share without waiting for each other.
//!
//! | room        | what it is                                                                |
//! |-------------|---------------------------------------------------------------------------|
//! | [`rcu`]     | grace periods: when has every worker let go of what was read before?      |
//! | [`refcount`]| reference counts without a loop, and an `Arc` whose upgrade has none      |
//! | [`words`]   | tables of plain words: many readers, one writer                           |
//! | [`ring`]    | a bounded queue from one thread to one other                              |
//! | [`stack`]   | a lock-free stack of indices, for what any thread may take and give back  |
//! | [`doorbell`]| wake a sleeper, and only a sleeper                                        |
//! | [`handoff`] | which worker forwards a flow, and when that may change                    |
//! | [`hook`]    | what workers look at for each packet, changed without waiting for them    |
//! | [`blocks`]  | blocks of packets, from a writer that never waits to a reader that may be slow |
//! | [`counters`]| counters one thread writes and any thread reads                           |
//!
//! Everything here stands on [`primitive`], which exchanges the standard library's atomics for
//! loom's when it is built with `--cfg manylane_loom`. `tests/loom.rs` explores each room at small
//! sizes; the argument for an ordering stands beside the operation and names the test. With `--cfg
//! manylane_counted` they count which accesses cost another core its cache line.

// Clippy's `disallowed-types` knows a type by its definition, not by the path that names it. In this crate,
// `tests/tidy.rs` enforces the use of `primitive`.
#![allow(clippy::disallowed_types)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod blocks;
mod cache;
pub mod counters;
pub mod doorbell;
pub mod handoff;
pub mod hook;
pub mod primitive;
pub mod rcu;
pub mod refcount;
pub mod ring;
pub mod stack;
pub mod words;

pub use cache::CacheAligned;

/// The code of README.md runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
