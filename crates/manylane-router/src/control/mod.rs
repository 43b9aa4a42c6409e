//! The control side: what is not forwarding.
//!
//! The control thread owns the writer's side of every table ([`routing`]): it applies what the workers
//! report, lets timers pass, publishes, and retires what was replaced. The control thread waits for no other thread and
//! no other thread waits for it (`thread.rs`). `worker_threads` has the workers' threads, `closing` the one in which
//! ports are closed, `sflow` what collectors of samples are sent, and `carriers` what the control thread hears of links. [`daemon`] puts the whole together and takes it apart again; [`choose`] and [`frames`] decide
//! about drivers and memory before, and [`status`] is what the API shows.

mod carriers;
pub mod choose;
mod closing;
pub mod daemon;
pub mod frames;
pub mod open;
pub mod routing;
mod sflow;
pub mod status;
mod steering;
mod thread;
pub mod transaction;
mod worker_threads;

pub use daemon::{Daemon, StartError, run};
pub use frames::{Budget, Line};

use crate::config::Config;

/// Holds a configuration against the devices it names, without opening them: whether they have the
/// queues it gives owners to, and take packets as large. Returns it with a driver for each port, and how many frames it
/// needs.
pub fn check(config: &Config) -> Result<Budget, open::PortError> {
    let config = choose::choose(config)?;
    let owners = open::owners(&config)?;
    open::check_devices(&config)?;
    Ok(Budget::new(&config, &owners))
}

/// What a configuration that [`check`] finds good does to this machine that its author may not expect, in sentences.
pub fn notices(config: &Config) -> Vec<String> {
    let mut notices = open::silenced_addresses(config);
    notices.extend(open::taken_interface(config));
    notices
}

/// As [`check`], and holds the configuration against what it names: files, which it reads as a whole, and collectors, which
/// it looks up.
pub fn check_all(config: &Config) -> Result<Budget, StartError> {
    let budget = check(config).map_err(StartError::Port)?;
    open::check_files(config).map_err(StartError::Port)?;
    sflow::resolve(config).map_err(StartError::Collector)?;
    Ok(budget)
}
