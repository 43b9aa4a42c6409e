//! The command line.
//!
//! | Exit status | Meaning                                            |
//! |-------------|----------------------------------------------------|
//! | 0           | done                                               |
//! | 1           | failed at run time                                 |
//! | 2           | wrong usage, or a configuration that is not valid  |
//! | 130, 143    | `demo` ended early by SIGINT, SIGTERM              |
//!
//! Results go to standard output, complaints to standard error. A reader may close the pipe early
//! (`manylane show routes | head`): that is status 0.
//!
//! | File                         | Holds                                                              |
//! |------------------------------|--------------------------------------------------------------------|
//! | `run.rs`, `check.rs`         | `run`, and what `--check` prints of a configuration                |
//! | `accelerate.rs`              | `accelerate`                                                       |
//! | `show.rs`, `watch.rs`        | `show`: what can be shown, from which path; again and again        |
//! | `neighbour.rs`, `port.rs`    | one edit each of a running daemon                                  |
//! | `config.rs`                  | settings and configurations of a running daemon                    |
//! | `doctor/`                    | what this machine can                                              |
//! | `generate.rs`, `manual.rs`   | completions and manual pages, from the words above                 |
//! | `complete.rs`                | the words that completions look up: ports, interfaces, keys        |
//!
//! The other commands have rooms of their own (`capture`, `demo`, `top`, `trace`). This room may use all rooms.

mod accelerate;
mod check;
mod complete;
mod config;
mod doctor;
mod export;
mod flows;
mod generate;
mod manual;
mod neighbour;
mod port;
mod run;
mod show;
#[cfg(test)]
mod tests;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::capture;
use crate::demo::{self, DemoOptions, Ending};
use crate::terminal::{SOCKET, USAGE, complain, done, print};
use crate::top::{self, TopOptions};
use crate::trace::{self, TraceOptions};

/// A multi-core packet forwarder for Linux.
#[derive(Debug, Parser)]
#[command(name = "manylane", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show forwarding on this machine; needs no configuration
    Demo(DemoOptions),
    /// Forward between the ports of a configuration file until interrupted
    Run(run::RunOptions),
    /// Speed up this machine's kernel router; the kernel keeps interfaces, addresses and routes
    Accelerate(accelerate::CommandOptions),
    /// Print tables of a running daemon
    Show(show::ShowOptions),
    /// Show live rates of a running daemon: ports, workers, drops, rings and flows
    Top(TopOptions),
    /// Print each stage of the next packets of a running daemon, of accelerate also in the kernel
    Trace(TraceOptions),
    /// Change settings or the configuration of a running daemon
    Config(config::ConfigOptions),
    /// Add or delete neighbours of a running daemon
    #[command(alias = "neigh")]
    Neighbour(neighbour::NeighbourOptions),
    /// Add or remove ports of a running daemon
    Port(port::PortOptions),
    /// Capture packets of a running daemon: print lines or write a pcapng file
    Capture(capture::Options),
    /// Report which interfaces can be accelerated, and what keeps the others in the kernel
    Doctor(doctor::DoctorOptions),
    /// Print the completion script of a shell
    Completions(generate::CompletionsOptions),
    /// Print what the last of these words can be
    #[command(hide = true)]
    Complete(complete::CompleteOptions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(generate::ManOptions),
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are "errors" of status 0. Not printing them is no reason to fail.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Demo(options) => match demo::run(options) {
            // As a shell says it of a command that a signal has ended: `demo && next` stops.
            Ok(Ending::Interrupted { signal }) => (128 + signal).into(),
            result => done(result),
        },
        Command::Run(options) => run::run(&options),
        Command::Accelerate(options) => accelerate::run(&options),
        Command::Show(options) => show::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Config(options) => config::run(&options),
        Command::Neighbour(options) => neighbour::run(&options),
        Command::Port(options) => port::run(&options),
        Command::Capture(options) => capture::run(&options, &capture::Daemon::at(&options.socket)),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => generate::completions(&options),
        Command::Complete(options) => complete::complete(&options),
        Command::Man(options) => generate::man(&options),
    }
}

/// As one segment of a path (RFC 3986 §2.1, §2.3): so the daemon can say what it thinks of any key.
fn percent_encoded(text: &str) -> String {
    let of_byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(of_byte).collect()
}
