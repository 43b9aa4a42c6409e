//! manylane: a multi-core packet forwarder for Linux.
#![forbid(unsafe_code)]

#[cfg(all(test, feature = "daemon"))]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(feature = "daemon")]
pub mod accelerate;
#[cfg(feature = "daemon")]
pub mod api;
#[cfg(feature = "daemon")]
pub mod capture;
#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod control;
#[cfg(feature = "daemon")]
mod dashboard;
#[cfg(feature = "daemon")]
pub mod demo;
#[cfg(feature = "daemon")]
pub mod gate;
#[cfg(feature = "daemon")]
pub mod lab;
#[cfg(feature = "daemon")]
pub mod mirror;
#[cfg(feature = "daemon")]
pub mod privilege;
#[cfg(feature = "daemon")]
pub mod service;
pub mod socket;
#[cfg(feature = "daemon")]
pub mod stats;
#[cfg(feature = "daemon")]
pub mod top;
#[cfg(feature = "daemon")]
pub mod trace;
#[cfg(feature = "daemon")]
pub mod worker;

#[cfg(all(test, feature = "daemon"))]
mod errors;

/// Compiles the examples of `docs/embed.md`.
#[cfg(all(doctest, feature = "daemon"))]
#[doc = include_str!("../../../docs/embed.md")]
struct EmbedPage;
