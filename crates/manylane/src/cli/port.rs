//! `manylane port`: ports of a running daemon, added and removed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use manylane_api::accelerate::AcceleratedPort;
use manylane_api::{Client, DEFAULT_SOCKET, PortStatus};

use super::percent_encoded;
use crate::tables::accelerate::port_reasons;
use crate::terminal::{SOCKET, done, print};

#[derive(Debug, Args)]
pub(super) struct PortOptions {
    #[command(subcommand)]
    action: PortAction,
}

#[derive(Debug, Subcommand)]
enum PortAction {
    /// Accelerate another interface until the daemon ends; `manylane run` needs a restart for it
    Add(PortName),
    /// Stop a port, remove its routes and neighbours, and close it; its counters stay
    Remove(PortName),
}

#[derive(Debug, Args)]
struct PortName {
    /// The name of the port
    port: String,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(PortOptions { action }: &PortOptions) -> ExitCode {
    match action {
        PortAction::Add(name) => add(name),
        PortAction::Remove(name) => remove(name),
    }
}

fn add(PortName { port, socket }: &PortName) -> ExitCode {
    let path = format!("/v1/ports/{}", percent_encoded(port));
    match Client::new(socket).put::<AcceleratedPort>(&path, "") {
        Ok(port) => print(&format!(
            "{} is added, tier {}, until the daemon ends\n{}",
            port.name,
            port.tier,
            port_reasons(std::slice::from_ref(&port))
        )),
        Err(error) => done::<()>(Err(error)),
    }
}

fn remove(PortName { port, socket }: &PortName) -> ExitCode {
    let path = format!("/v1/ports/{}", percent_encoded(port));
    match Client::new(socket).delete::<PortStatus>(&path) {
        Ok(PortStatus { name, .. }) => {
            print(&format!("{name} is being removed; `manylane show ports` tells when it is\n"))
        }
        Err(error) => done::<()>(Err(error)),
    }
}
