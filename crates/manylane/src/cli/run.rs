//! `manylane run`: the router of a configuration file, until it is interrupted.

use std::net::SocketAddr;
use std::path::{self, PathBuf};
use std::process::ExitCode;

use clap::Args;
use manylane_api::Listen;
use manylane_io::privilege::{Keep, Privileges};
use manylane_router::config::{Environment, Version};
use manylane_router::control::{self, StartError};

use super::check::checked;
use crate::terminal::{SOCKET, USAGE, complain, done, print};

#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Configuration file, TOML
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Check the configuration against this machine, then exit
    #[arg(long)]
    check: bool,
    /// Path of the API's socket, instead of `socket` in [api]
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenOptions,
    /// User to switch to once the ports are open; needs root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

// The API's TCP listener. A doc comment would become that of the command.
#[derive(Debug, Args)]
pub(super) struct ListenOptions {
    /// Also serve the API at this TCP address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// File with the token that TCP requests must carry
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Host name that TCP requests may use for this host
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
}

/// `127.0.0.1:9176`, `[::1]:9176`.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("the address is missing; for this host alone write 127.0.0.1:{port}"),
        Err(_) => "write an IP address and a port, as 127.0.0.1:9176 or [::1]:9176".into(),
    })
}

impl ListenOptions {
    /// These options; where one is absent, the one in `below`.
    pub(in crate::cli) fn over(&self, below: Listen) -> Listen {
        Listen {
            address: self.listen.or(below.address),
            token_file: self.token_file.clone().or(below.token_file),
            host_name: self.host_name.clone().or(below.host_name),
        }
    }
}

pub(super) fn run(options: &RunOptions) -> ExitCode {
    let version = match Version::load(&options.file, &Environment::of_this_thread()) {
        Ok(version) => version,
        Err(error) => {
            complain(&error);
            return USAGE.into();
        }
    };
    let mut config = version.config.clone();
    config.listen = options.listen.over(config.listen);
    if let Err(error) = config.listen.check() {
        complain(&format_args!("error: {error}"));
        return USAGE.into();
    }
    // A configuration that the devices do not fit is as wrong as one that contradicts itself. A start reads captures
    // when it opens their ports.
    let budget = match options.check {
        true => control::check_all(&config),
        false => control::check(&config).map_err(StartError::Port),
    };
    let budget = match budget {
        Ok(budget) => budget,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    if options.check {
        return print(&checked(&options.file, &config, &budget));
    }
    let socket = options.socket.clone().unwrap_or_else(|| config.socket.clone());
    // For `config save` and `config diff`, which may run in another folder.
    let file = path::absolute(&options.file).unwrap_or_else(|_| options.file.clone());
    match Privileges::new(Keep::Forwarding, options.user.as_deref()) {
        Ok(privileges) => match control::run(config, (file, version), &socket, &privileges) {
            Err(error) if error.is_of_configuration() => {
                complain(&format_args!("error: {error}"));
                USAGE.into()
            }
            ended => done(ended),
        },
        Err(error) => {
            complain(&format_args!("error: {error}"));
            USAGE.into()
        }
    }
}
