//! The `manylane` command, and what it prints.
//!
//! | Room         | Content                                                              | May use                          |
//! |--------------|----------------------------------------------------------------------|----------------------------------|
//! | [`cli`]      | the command line: options, and which room does what it says          | all below                        |
//! | [`demo`]     | `manylane demo`: a router before and after, in namespaces or memory  | `tables`, `terminal`             |
//! | [`top`]      | `manylane top`                                                       | `terminal`                       |
//! | [`trace`]    | `manylane trace`                                                     | `capture`, `terminal`            |
//! | [`capture`]  | `manylane capture`, its files, Wireshark's extcap                    | nothing                          |
//! | `tables`     | the API's answers as tables                                          | `terminal`                       |
//! | `terminal`   | results, complaints, columns                                         | nothing                          |
//!
//! The daemons are in crates of their own: `manylane run` is [`manylane_router`], `manylane accelerate` is
//! [`manylane_accelerate`]. Programs that embed a forwarder use those crates, not this one.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod capture;
pub mod cli;
pub mod demo;
mod tables;
mod terminal;
pub mod top;
pub mod trace;

#[cfg(test)]
mod message_tests;

/// Compiles the examples of `docs/embed.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embed.md")]
struct EmbedPage;
