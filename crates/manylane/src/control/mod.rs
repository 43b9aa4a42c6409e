//! The control side: what is not forwarding.
//!
//! The control thread owns the writer's side of every table ([`routing`]): it applies what the workers
//! report, lets timers pass, publishes, and retires what was replaced. It waits for nobody and nobody
//! waits for it (`thread.rs`). [`daemon`] puts the whole together and takes it apart again; [`status`]
//! is what the API shows.

pub mod daemon;
pub mod open;
pub mod routing;
pub mod status;
mod thread;

pub use daemon::{Daemon, StartError, run};

use crate::config::Config;

/// Holds a configuration against the devices it names, without opening them: whether they have the
/// queues it gives owners to.
pub fn check(config: &Config) -> Result<(), open::PortError> {
    open::owners(config).map(drop)
}
