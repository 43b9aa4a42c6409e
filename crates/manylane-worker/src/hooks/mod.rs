//! What workers find in the hook table: packet sockets' targets, and packets to send.
//!
//! The table's one writer is the socket manager (`manylane-router`'s `socket`); workers read it once a turn.
//!
//! | file     | what                                        |
//! |----------|---------------------------------------------|
//! | `target` | what a hook matches, and its receivers      |
//! | `inject` | packets to send, from sockets to a worker   |

mod inject;
mod target;

pub use inject::{INJECTED_MAX, Injected, Injector, InjectorEnd, injector};
pub use target::{Bell, Charge, Lanes, Member, PortMatch, Target};
