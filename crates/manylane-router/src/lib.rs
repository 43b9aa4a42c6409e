//! A router of its own: what `manylane run` is, without its command line.
//!
//! | Room        | Holds                                                                     | May use                     |
//! |-------------|--------------------------------------------------------------------------|-----------------------------|
//! | [`config`]  | the configuration file: keys, checks, differences                        | nothing                     |
//! | [`socket`]  | packet sockets: the hook table's one writer, and other processes' sockets | `config`                   |
//! | [`drops`]   | a file of drops, for the API                                             | `socket`                    |
//! | [`trace`]   | one trace at a time, and its stages in words                             | nothing                     |
//! | [`control`] | the control thread, tables, steering, workers' threads, what the API shows | all above                 |
//!
//! [`control::Daemon`] puts a router together and takes it apart again.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

pub mod config;
pub mod control;
pub mod drops;
pub mod socket;
pub mod trace;

#[cfg(test)]
mod message_tests;
