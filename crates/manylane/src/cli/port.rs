//! `manylane port`: ports of a running daemon, removed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use manylane_api::{Client, DEFAULT_SOCKET, PortStatus};

use super::percent_encoded;
use crate::terminal::{done, print};

#[derive(Debug, Args)]
pub(super) struct PortOptions {
    #[command(subcommand)]
    action: PortAction,
}

#[derive(Debug, Subcommand)]
enum PortAction {
    /// Stop a port, remove its routes and neighbours, and close it; its counters stay
    Remove(PortName),
}

#[derive(Debug, Args)]
struct PortName {
    /// The name of the port
    port: String,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(PortOptions { action: PortAction::Remove(name) }: &PortOptions) -> ExitCode {
    let PortName { port, socket } = name;
    let path = format!("/v1/ports/{}", percent_encoded(port));
    match Client::new(socket).delete::<PortStatus>(&path) {
        Ok(PortStatus { name, .. }) => {
            print(&format!("{name} is being removed; `manylane show ports` tells when it is\n"))
        }
        Err(error) => done::<()>(Err(error)),
    }
}
