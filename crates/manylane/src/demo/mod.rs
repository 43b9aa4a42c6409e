//! `manylane demo`: forwarding, shown on this machine, with proof that nothing was lost.
//!
//! | Where                              | Ports                    | Traffic                                    |
//! |------------------------------------|--------------------------|--------------------------------------------|
//! | root, and the kernel has AF_XDP    | veth pairs, by AF_XDP    | ping, UDP and TCP of two hosts' kernels     |
//! | anywhere else, or with `--memory`  | memory                   | the built-in generator, both ways           |
//!
//! The demo between hosts has a second act, in which the router is the kernel, and `manylane accelerate` beside it.
//!
//! Hosts and links are a [`Lab`](manylane_lab::Lab): whatever ends the demo, nothing of it stays. In
//! both cases the same workers forward IPv4 and IPv6 by the same rules.
//!
//! | File         | Holds                                                          |
//! |--------------|----------------------------------------------------------------|
//! | `network.rs` | the demo between three hosts                                   |
//! | `accelerated.rs` | its second act: the kernel's router, accelerated           |
//! | `traffic.rs` | what its hosts send to each other, and what must be true of it |
//! | `memory.rs`  | the demo in memory                                             |
//! | `live.rs`    | the table that is shown while packets pass                     |
//! | `screen.rs`  | standard output, a terminal or not                             |
//! | `stop.rs`    | the end: by time, by signal                                    |

mod accelerated;
mod live;
mod memory;
mod network;
mod screen;
mod stop;
mod traffic;

use std::fmt;
use std::io;
use std::time::Duration;

use nix::unistd::Uid;

use crate::tables;
use crate::terminal::table::signed;
use clap::Args;
use manylane_api::Ledger;
use manylane_lab::LabError;
use manylane_router::config::ConfigError;
use manylane_router::control::StartError;

use screen::Screen;
use stop::Stop;

/// What `manylane demo` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct DemoOptions {
    /// Use in-process ports only: no privilege and no network namespaces needed
    #[arg(long)]
    pub memory: bool,
    /// Stop after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
}

/// How a demo ended in which everything was accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Complete,
    /// By a signal, before its time.
    Interrupted {
        /// Its number.
        signal: u8,
    },
}

/// Why a demo failed.
#[non_exhaustive]
#[derive(Debug)]
pub enum DemoError {
    /// The router's configuration was refused.
    Config(ConfigError),
    /// The router did not start.
    Start(StartError),
    /// Signals cannot be waited for.
    Signals(io::Error),
    /// Packets passed, and something is wrong with the result.
    Faults(Vec<String>),
}

/// Shows forwarding on this machine.
pub fn run(options: DemoOptions) -> Result<Ending, DemoError> {
    let mut screen = Screen::new();
    let lasts = Duration::from_secs(options.seconds.unwrap_or(SECONDS));
    let why_in_memory = if options.memory {
        "--memory".to_owned()
    } else {
        match network::run(lasts, &mut screen) {
            Err(NotHere::Unavailable(why)) => as_user(why),
            Err(NotHere::Failed(error)) => return Err(error),
            Ok(Ending::Complete) => return second_act(lasts, &mut screen),
            Ok(ending) => return Ok(ending),
        }
    };
    memory::run(lasts, &why_in_memory, &mut screen)
}

/// The first one was good; this machine may have less than the second one needs.
fn second_act(lasts: Duration, screen: &mut Screen) -> Result<Ending, DemoError> {
    match accelerated::run(lasts, screen) {
        Ok(ending) => Ok(ending),
        Err(NotHere::Failed(error)) => Err(error),
        Err(NotHere::Unavailable(why)) => {
            screen.say(&format!("\nNo second act: {why}."));
            Ok(Ending::Complete)
        }
    }
}

/// Why the demo between hosts was not to be had.
enum NotHere {
    /// This machine, or this user, cannot have it: take the other one.
    Unavailable(String),
    /// It could be had, and failed.
    Failed(DemoError),
}

impl From<LabError> for NotHere {
    fn from(error: LabError) -> Self {
        NotHere::Unavailable(error.to_string())
    }
}

impl From<StartError> for NotHere {
    fn from(error: StartError) -> Self {
        if error.is_unavailable() {
            NotHere::Unavailable(error.to_string())
        } else {
            NotHere::Failed(DemoError::Start(error))
        }
    }
}

impl From<DemoError> for NotHere {
    fn from(error: DemoError) -> Self {
        NotHere::Failed(error)
    }
}

fn as_user(why: String) -> String {
    if Uid::effective().is_root() { why } else { format!("not root: {why}") }
}

/// Shows what is known at the end and decides. `faults` are those of the traffic.
fn conclude(
    mut faults: Vec<String>,
    ledger: &Ledger,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Ending, DemoError> {
    screen.say(&format!("\n{}", tables::ledger(ledger)));
    if ledger.missing != 0 {
        faults.push(format!("packets missing from the ledger: {}", signed(ledger.missing)));
    }
    if ledger.frames.missing != 0 {
        faults.push(format!("frames missing from the pool: {}", signed(ledger.frames.missing)));
    }
    if !faults.is_empty() {
        return Err(DemoError::Faults(faults));
    }
    Ok(stop.signal().map_or(Ending::Complete, |signal| Ending::Interrupted { signal }))
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A bug of the demo: its configuration is not the user's.
            DemoError::Config(error) => {
                write!(f, "the demo's own configuration is wrong; please report it:\n{error}")
            }
            DemoError::Start(error) => error.fmt(f),
            DemoError::Signals(source) => {
                write!(f, "cannot wait for signals: {source}; end programs, or raise `ulimit -n`")
            }
            DemoError::Faults(faults) => {
                write!(f, "{}; please report it, with what is above", faults.join("; "))
            }
        }
    }
}

impl std::error::Error for DemoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DemoError::Config(error) => Some(error),
            DemoError::Start(error) => Some(error),
            DemoError::Signals(source) => Some(source),
            DemoError::Faults(_) => None,
        }
    }
}

/// How long a demo lasts unless told.
const SECONDS: u64 = 10;
