//! manylane: a multi-core packet forwarder for Linux.
#![forbid(unsafe_code)]

#[cfg(all(test, feature = "daemon"))]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(feature = "daemon")]
#[path = "../../manylane-accelerate/src/accelerator/mod.rs"]
pub mod accelerate;
#[cfg(feature = "daemon")]
#[path = "../../manylane-api/src/lib.rs"]
pub mod api;
#[cfg(feature = "daemon")]
pub mod capture;
#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
#[path = "../../manylane-router/src/config/mod.rs"]
pub mod config;
#[cfg(feature = "daemon")]
#[path = "../../manylane-router/src/control/mod.rs"]
pub mod control;
#[cfg(feature = "daemon")]
#[path = "../../manylane-api/src/dashboard/mod.rs"]
mod dashboard;
#[cfg(feature = "daemon")]
pub mod demo;
#[cfg(feature = "daemon")]
#[path = "../../manylane-accelerate/src/gate/mod.rs"]
pub mod gate;
#[cfg(feature = "daemon")]
#[path = "../../manylane-lab/src/lib.rs"]
pub mod lab;
#[cfg(feature = "daemon")]
#[path = "../../manylane-accelerate/src/mirror/mod.rs"]
pub mod mirror;
#[cfg(feature = "daemon")]
#[path = "../../manylane-io/src/privilege.rs"]
pub mod privilege;
#[cfg(feature = "daemon")]
#[path = "../../manylane-io/src/service.rs"]
pub mod service;
#[path = "../../manylane-router/src/socket/mod.rs"]
pub mod socket;
#[cfg(feature = "daemon")]
#[path = "../../manylane-worker/src/stats.rs"]
pub mod stats;
#[cfg(feature = "daemon")]
pub mod top;
#[cfg(feature = "daemon")]
#[path = "../../manylane-router/src/trace/mod.rs"]
pub mod trace;
#[cfg(feature = "daemon")]
#[path = "../../manylane-worker/src/worker/mod.rs"]
pub mod worker;

#[cfg(all(test, feature = "daemon"))]
mod message_tests;

/// Compiles the examples of `docs/embed.md`.
#[cfg(all(doctest, feature = "daemon"))]
#[doc = include_str!("../../../docs/embed.md")]
struct EmbedPage;
