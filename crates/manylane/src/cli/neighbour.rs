//! `manylane neighbour`: neighbours of a running daemon, added and deleted.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use manylane_api::{Client, DEFAULT_SOCKET, NeighbourStatus};

use super::percent_encoded;
use crate::terminal::{SOCKET, done, print};

#[derive(Debug, Args)]
pub(super) struct NeighbourOptions {
    #[command(subcommand)]
    action: NeighbourAction,
}

#[derive(Debug, Subcommand)]
enum NeighbourAction {
    /// Set a neighbour's link-layer address permanently: no query, no timeout
    Add(AddOptions),
    /// Delete a neighbour; the next packet for it sends a new query
    Delete(NeighbourName),
}

#[derive(Debug, Args)]
struct AddOptions {
    #[command(flatten)]
    name: NeighbourName,
    /// Link-layer address of the neighbour
    mac: String,
}

#[derive(Debug, Args)]
struct NeighbourName {
    /// Name of the port that leads to the neighbour
    port: String,
    /// IP address of the neighbour
    address: String,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(NeighbourOptions { action }: &NeighbourOptions) -> ExitCode {
    let (NeighbourAction::Add(AddOptions { name, .. }) | NeighbourAction::Delete(name)) = action;
    let client = Client::new(&name.socket);
    let [port, address] = [&name.port, &name.address].map(|word| percent_encoded(word));
    let path = format!("/v1/neighbours/{port}/{address}");
    let changed = match action {
        NeighbourAction::Add(AddOptions { mac, .. }) => client.put::<NeighbourStatus>(&path, mac),
        NeighbourAction::Delete(_) => client.delete::<NeighbourStatus>(&path),
    };
    match changed {
        Ok(NeighbourStatus { port, address, mac, .. }) => print(&match (action, mac) {
            (NeighbourAction::Add(_), Some(mac)) => {
                format!("{address} on {port} is {mac}, until it is deleted or the daemon ends\n")
            }
            _ => format!("{address} on {port} is forgotten\n"),
        }),
        Err(error) => done::<()>(Err(error)),
    }
}
