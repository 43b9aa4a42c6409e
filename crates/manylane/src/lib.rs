//! manylane: a multi-core packet forwarder for Linux.
#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
pub mod cli;
pub mod config;
pub mod control;
pub mod demo;
pub mod lab;
pub mod stats;
pub mod worker;
