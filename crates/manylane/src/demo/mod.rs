//! `manylane demo`: forwarding, shown on this machine, with proof that nothing was lost.
//!
//! | Act              | Needs                             | Forwarder                              | Traffic                       |
//! |------------------|-----------------------------------|----------------------------------------|-------------------------------|
//! | the first        | root, Linux 6.6                   | the kernel, then `manylane accelerate` | small packets, TCP, pings     |
//! | the second       | root                              | `manylane run`, ports by `auto`        | pings, UDP and TCP            |
//! | in memory        | nothing                           | `manylane run`, ports in memory        | the built-in generator's      |
//!
//! The act in memory is shown with `--memory`, and on machines that refuse both others. All traffic is of IPv4 and of
//! IPv6. Hosts and links are a lab ([`manylane_lab`]): whatever ends the demo, nothing of it stays.
//!
//! | File             | Holds                                                             |
//! |------------------|-------------------------------------------------------------------|
//! | `accelerated.rs` | the first act                                                     |
//! | `table.rs`       | the table of routes that it loads                                 |
//! | `beside.rs`      | its TCP and pings                                                 |
//! | `child.rs`       | its `manylane accelerate`, a process to be killed                 |
//! | `scores.rs`      | what it measures, as bars and in words                            |
//! | `ledger.rs`      | the fate of every packet that was accelerated                     |
//! | `network.rs`     | the second act                                                    |
//! | `traffic.rs`     | what its hosts send to each other, and what must be true of it    |
//! | `memory.rs`      | the act in memory                                                 |
//! | `live.rs`        | the table of ports that these two show while packets pass         |
//! | `bar.rs`         | bars and spinners                                                 |
//! | `screen.rs`      | standard output, a terminal or not                                |
//! | `stop.rs`        | the end: by time, by signal                                       |

mod accelerated;
mod bar;
mod beside;
mod child;
mod ledger;
mod live;
mod memory;
mod network;
mod scores;
mod screen;
mod stop;
mod table;
mod traffic;

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
    /// Let packets pass for N seconds in each act
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Load at most N routes, instead of the whole table of the Internet
    #[arg(long, value_name = "N")]
    pub routes: Option<usize>,
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
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The router's configuration was refused. A bug of the demo: its configuration is not the user's.
    #[error("the demo's own configuration is wrong; please report it:\n{0}")]
    Config(#[source] ConfigError),
    /// The router did not start.
    #[error("{0}")]
    Start(#[source] StartError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}; end programs, or raise `ulimit -n`")]
    Signals(#[source] io::Error),
    /// Packets passed, and something is wrong with the result.
    #[error("{}; please report it, with what is above", .0.join("; "))]
    Faults(Vec<String>),
}

/// Shows forwarding on this machine.
pub fn run(options: DemoOptions) -> Result<Ending, DemoError> {
    let mut screen = Screen::new();
    let stop = Stop::new().map_err(DemoError::Signals)?;
    let seconds = |without: u64| Duration::from_secs(options.seconds.unwrap_or(without));
    if options.memory {
        return memory::run(seconds(MEMORY_SECONDS), "--memory", &stop, &mut screen);
    }
    let first = match accelerated::run(&options, &stop, &mut screen) {
        Err(NotHere::Failed(error)) => return Err(error),
        Err(NotHere::Unavailable(why)) => {
            if Uid::effective().is_root() {
                screen.say(&format!("No first act: {why}.\n"));
            }
            None
        }
        Ok(first) => Some(first),
    };
    if let Some(Ending::Interrupted { signal }) = first.as_ref().map(|first| first.ending) {
        return Ok(Ending::Interrupted { signal });
    }
    let ending = match network::run(seconds(SECOND_ACT_SECONDS), &stop, &mut screen) {
        Ok(ending) => ending,
        Err(NotHere::Failed(error)) => return Err(error),
        Err(NotHere::Unavailable(why)) if first.is_some() => {
            screen.say(&format!("\nNo second act: {why}."));
            ended(&stop)
        }
        Err(NotHere::Unavailable(why)) => {
            memory::run(seconds(MEMORY_SECONDS), &as_user(why), &stop, &mut screen)?
        }
    };
    if ending == Ending::Complete && first.is_some() {
        screen.say(NEXT);
    }
    Ok(ending)
}

fn ended(stop: &Stop) -> Ending {
    stop.signal().map_or(Ending::Complete, |signal| Ending::Interrupted { signal })
}

/// Why an act was not to be had.
enum NotHere {
    /// This machine, or this user, cannot have it: take another one.
    Unavailable(String),
    /// The act could be had, and failed.
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
    Ok(ended(stop))
}

const NEXT: &str = "
What next?
  manylane doctor     which interfaces of this machine can be accelerated, and why
                      the others cannot
  docs/accelerate.md  how to speed up an existing Linux router, step by step
";
/// How long these acts last unless told.
const SECOND_ACT_SECONDS: u64 = 5;
const MEMORY_SECONDS: u64 = 10;
