//! The mirror: the kernel's routing, written into the tables that programs forward by.
//!
//! A pure state machine: no socket, no clock, no thread. Its inputs are the kernel's events and dumps, and time as
//! an argument; a [`TableWriter`] receives edits of the tables.
//!
//! | Room             | Contents                                                                             |
//! |------------------|--------------------------------------------------------------------------------------|
//! | `kernel/`        | the model: links, addresses, routes, next-hop objects, rules, neighbours, settings; what messages mean, and what the kernel does in silence (`announce`, `links`, `objects`); changes of routes (`edit`) |
//! | `routes`, `attributes`, `rules` | a million routes of it, compactly; from devices and objects to their routes; the routing policy |
//! | `changes`        | what is to be looked at again                                                        |
//! | `resolve`, `destination` | what a prefix leads to, from the model alone                                 |
//! | `targets/`       | next-hop ids, slots, groups: what is shared, and by how many                         |
//! | `table_writer`   | the tables, as the mirror edits them                                                 |
//! | `ports`          | which devices are ports, and what may be done there                                  |
//! | `dump`           | everything that the kernel has, at one time                                          |
//! | `confirm`        | neighbours to be kept alive in the kernel                                            |
//! | `mirror/`        | model and tables together: edits, in order, again when something was busy (`write`, `policy`); the first load, and differences later (`resync`); what is shown of it (`diff`, `status`, `why`, `sampled_route`, `list`) |
//!
//! # From a message to a packet's way
//!
//! 1. [`Mirror::event`] changes the model and notes what is to be looked at: prefixes, next-hop objects, slots.
//! 2. [`Mirror::apply`] writes: first slots that lead to dead exits, so that nothing is sent there; then words of
//!    ids, by which any number of prefixes change at once; then prefixes, one by one, each to what the model
//!    says *then*. So it does not matter how often a prefix changed since.
//! 3. What a prefix is to lead to is written whole before it does, and retired after nothing does.
//!
//! | change                                     | edits                                                    |
//! |--------------------------------------------|----------------------------------------------------------|
//! | a next-hop object, whatever its routes     | one word                                                 |
//! | a default route comes, goes, changes       | one word: it always has its own id                       |
//! | a link goes down                           | a word for each neighbour there; then a route at a time  |
//! | a member of a group is dead                | its slot; the others take over its flows                 |
//!
//! After any events the tables say what they would say if they were written from the model as it is then
//! (`mirror/tests`: random events, a writer that is busy at random).
//!
//! # Bounds
//!
//! [`Limits`] bound the model, the tables' sizes what is written. A route that does not fit would leave its packets
//! to a shorter prefix: then [`Mirror::is_whole`] is false, and all ports are the kernel's. Where next-hop ids,
//! slots or groups run out, only what needs one is the kernel's. All of it is counted ([`MirrorState`](manylane_api::accelerate::MirrorState)).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod attributes;
mod changes;
mod confirm;
mod constants;
mod destination;
mod dump;
mod family;
mod kernel;
mod mirror;
mod names;
mod pause;
mod ports;
mod resolve;
mod routes;
mod rules;
mod table_writer;
mod targets;

pub use attributes::RouteAttributes;
pub use destination::{Destination, Member, Via};
pub use dump::Dump;
pub use kernel::{Kernel, Limits};
pub use mirror::{Applied, Mirror, Question, RouteEnd, RouteQuery, SampledRoute};
pub use names::neighbour_state;
pub use ports::{Port, PortFacts, port_flags};
pub use rules::{RefusedRules, refused_rules};
pub use table_writer::{Bounds, TableWriter};
