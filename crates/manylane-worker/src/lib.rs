//! The worker of a packet forwarder: one thread on one core, from receive queue to transmit queue.
//!
//! | Room         | Contents                                                        | May use                      |
//! |--------------|-----------------------------------------------------------------|------------------------------|
//! | [`worker`]   | the turn, dispatch, hand-off between workers, observers         | all below                    |
//! | [`hooks`]    | packet sockets' targets, packets to send                        | nothing                      |
//! | [`recorder`] | which packets a trace follows, and where stages are recorded    | [`stage`]                    |
//! | [`sampler`]  | packets that an exporter is to see                              | nothing                      |
//! | [`stage`]    | what was done with a packet                                     | nothing                      |
//! | [`stats`]    | the ledger's counters of one worker                             | nothing                      |
//!
//! The control thread that feeds workers is `manylane-router`'s. This crate uses no crate but those below it, and no
//! `unsafe`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod hooks;
pub mod recorder;
pub mod sampler;
pub mod stage;
pub mod stats;
pub mod worker;

pub use worker::{Clock, Egress, Observers, Order, Reclaimer, Tracer, Work, Worker};
