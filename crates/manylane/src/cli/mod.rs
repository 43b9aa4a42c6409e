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

mod accelerate;
mod config;
mod doctor;
mod generate;
mod show;
#[cfg(test)]
mod tests;
mod watch;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use manylane_api::{Client, DEFAULT_SOCKET, FrameLine, Listen, NeighbourStatus, PortStatus};
use manylane_io::privilege::{Keep, Privileges};
use manylane_router::config::{Config, Environment, InterfaceAddress, Version};
use manylane_router::control::{self, Budget, Line};

use crate::capture;
use crate::demo::{self, DemoOptions, Ending};
use crate::tables;
use crate::terminal::{USAGE, complain, done, print, table};
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
    Run(RunOptions),
    /// Speed up this machine's kernel router; the kernel keeps interfaces, addresses and routes
    Accelerate(accelerate::CommandOptions),
    /// Print tables of a running daemon
    Show(ShowOptions),
    /// Show live rates of a running daemon: ports, workers, drops, rings and flows
    Top(TopOptions),
    /// Print each stage of the next packets of a running daemon
    Trace(TraceOptions),
    /// Change settings or the configuration of a running daemon
    Config(config::ConfigOptions),
    /// Add or delete neighbours of a running daemon
    #[command(alias = "neigh")]
    Neighbour(NeighbourOptions),
    /// Remove ports of a running daemon
    Port(PortOptions),
    /// Capture packets of a running daemon: print lines or write a pcapng file
    Capture(capture::Options),
    /// Report which interfaces can be accelerated, what keeps the others in the kernel, and what delays
    /// packet sockets
    Doctor(doctor::DoctorOptions),
    /// Print the completion script of a shell
    Completions(generate::CompletionsOptions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(generate::ManOptions),
}

#[derive(Debug, Args)]
struct RunOptions {
    /// Configuration file, TOML
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Check the configuration against this machine, then exit
    #[arg(long)]
    check: bool,
    /// Path of the API's socket, instead of `socket` in [api]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenOptions,
    /// User to switch to once the ports are open; needs root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

// The API's TCP listener. A doc comment would become that of the command.
#[derive(Debug, Args)]
struct ListenOptions {
    /// Also serve the API at this TCP address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// File with the token that TCP requests must carry
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Host name that TCP requests may use for this host
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
}

impl ListenOptions {
    /// These options; where one is absent, the one in `below`.
    fn over(&self, below: Listen) -> Listen {
        Listen {
            address: self.listen.or(below.address),
            token_file: self.token_file.clone().or(below.token_file),
            host_name: self.host_name.clone().or(below.host_name),
        }
    }
}

#[derive(Debug, Args)]
struct ShowOptions {
    #[command(flatten)]
    question: Question,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = watch::interval)]
    watch: Option<Duration>,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, Args)]
struct Question {
    what: Noun,
    /// For `why`: the packet's source and destination address
    #[arg(value_name = "SOURCE DESTINATION", num_args = 0..=2)]
    packet: Vec<IpAddr>,
    /// For `why`: the packet's ingress interface
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// For `mirror`: list differences between the kernel and the mirror
    #[arg(long)]
    diff: bool,
}

#[derive(Debug, Args)]
struct PortOptions {
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

#[derive(Debug, Args)]
struct NeighbourOptions {
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
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Noun {
    /// Ports, their addresses and counters
    Ports,
    /// Workers, their load and queues
    Workers,
    /// Routes, static and connected
    Routes,
    /// Neighbours and their link-layer addresses
    #[value(alias = "neigh")]
    Neighbours,
    /// The router's own addresses, and conflicts with other stations
    Addresses,
    /// Dropped packets by reason
    Drops,
    /// The sum of all packets and frames: received, transmitted, dropped, held, missing
    Ledger,
    /// Frames: their places, the number needed, and workers' lists
    Frames,
    /// The worker of each queue and each bucket of flows, and backlogs
    Steering,
    /// Packet sockets and captures: process, binding, packets received and lost
    Sockets,
    /// Of `accelerate`: the copy of the kernel's routing, its lag and its lease
    Mirror,
    /// The running configuration; of `accelerate`, the options of its start
    Config,
    /// Of `accelerate`: the verdict on a packet, `why SOURCE DESTINATION -i IF`
    Why,
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
        Command::Run(options) => run_file(&options),
        Command::Accelerate(options) => accelerate::run(&options),
        Command::Show(options) => show(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Config(options) => config::run(&options),
        Command::Neighbour(NeighbourOptions { action }) => neighbour(&action),
        Command::Port(PortOptions { action: PortAction::Remove(name) }) => remove_port(&name),
        Command::Capture(options) => capture::run(&options, &capture::Daemon::at(&options.socket)),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => generate::completions(&options),
        Command::Man(options) => generate::man(&options),
    }
}

fn run_file(options: &RunOptions) -> ExitCode {
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
    // A configuration that the devices do not fit is as wrong as one that contradicts itself.
    let budget = match control::check(&config) {
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
    match Privileges::new(Keep::Forwarding, options.user.as_deref()) {
        Ok(privileges) => {
            let file = (options.file.clone(), version);
            done(control::run(config, file, &socket, &privileges))
        }
        Err(error) => {
            complain(&format_args!("error: {error}"));
            USAGE.into()
        }
    }
}

/// `manylane config check`: as `run --check`.
fn check(file: &Path) -> ExitCode {
    let config = match Config::load(file, &Environment::of_this_thread()) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return USAGE.into();
        }
    };
    match control::check(&config) {
        Ok(budget) => print(&checked(file, &config, &budget)),
        Err(error) => {
            complain(&format_args!("error: {error}"));
            USAGE.into()
        }
    }
}

fn checked(file: &Path, config: &Config, budget: &Budget) -> String {
    summary(file, &budget.config) + &sum(config, budget)
}

fn show(ShowOptions { question, json, watch, socket }: &ShowOptions) -> ExitCode {
    if let Err(complaint) = question.check() {
        complain(&format_args!("error: {complaint}"));
        return USAGE.into();
    }
    let client = Client::new(socket);
    if let Some(interval) = watch {
        return watch::watch(&client, question, *json, *interval);
    }
    let text = show::place(&client, question).and_then(|place| match json {
        true => client.ask_text(&place.path).map(|json| json + "\n"),
        false => show::table(&client, question.what, &place),
    });
    match text {
        Ok(text) => print(&text),
        Err(error) => done::<()>(Err(error)),
    }
}

fn neighbour(action: &NeighbourAction) -> ExitCode {
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

fn remove_port(PortName { port, socket }: &PortName) -> ExitCode {
    let path = format!("/v1/ports/{}", percent_encoded(port));
    match Client::new(socket).delete::<PortStatus>(&path) {
        Ok(PortStatus { name, .. }) => {
            print(&format!("{name} is being removed; `manylane show ports` tells when it is\n"))
        }
        Err(error) => done::<()>(Err(error)),
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

impl Question {
    /// Whether the arguments fit the noun.
    fn check(&self) -> Result<(), &'static str> {
        match (self.what, self.packet.len(), &self.interface, self.diff) {
            (Noun::Why, 2, Some(_), false) | (Noun::Mirror, 0, None, _) => Ok(()),
            (Noun::Why, ..) => {
                Err("`show why` takes a packet: `show why SOURCE DESTINATION -i INTERFACE`")
            }
            (_, 0, None, false) => Ok(()),
            (_, _, _, true) => Err("only `show mirror` takes `--diff`"),
            _ => Err("only `show why` takes addresses and an interface"),
        }
    }

    /// Where the API answers, below its version.
    fn path(&self) -> String {
        let path = match self.what {
            Noun::Ports => "/ports",
            Noun::Workers => "/workers",
            Noun::Routes => "/routes",
            Noun::Neighbours => "/neighbours",
            Noun::Addresses => "/addresses",
            Noun::Drops => "/drops",
            Noun::Ledger => "/ledger",
            Noun::Frames => "/frames",
            Noun::Steering => "/steering",
            Noun::Sockets => "/sockets",
            Noun::Mirror if self.diff => "/mirror/diff",
            Noun::Mirror => "/mirror",
            Noun::Config => "/config",
            Noun::Why => "/why",
        };
        let interface = self.interface.iter().map(|name| percent_encoded(name));
        let more = interface
            .chain(self.packet.iter().map(|address| percent_encoded(&address.to_string())));
        more.fold(path.to_owned(), |path, word| path + "/" + &word)
    }
}

/// One line to say that the file is good, and one for each port to show how it was understood.
fn summary(file: &Path, config: &Config) -> String {
    let cores: Vec<_> = config.workers.cores.iter().map(u16::to_string).collect();
    let workers = match (config.workers.started, config.workers.count()) {
        (started, most) if started < most => format!("{started} of {most} workers"),
        (_, workers) => table::plural(workers, "worker"),
    };
    let mut text = format!(
        "{}: good; {}, {}, {workers} on core {}\n",
        file.display(),
        table::plural(config.ports.len(), "port"),
        table::plural(config.routes.len(), "route"),
        cores.join(", "),
    );
    for port in &config.ports {
        let mut on = port.driver.name().to_owned();
        if let Some(interface) = port.driver.interface() {
            on += &format!(" on {interface}");
        }
        if let Some(why) = port.chosen {
            on += &format!(": {why}");
        }
        text += &format!("  {} ({on}): {}\n", port.name, listed(&port.addresses));
        for vlan in &port.vlans {
            let (name, tags, addresses) = (&vlan.name, vlan.tags, listed(&vlan.addresses));
            text += &format!("  {name} ({tags} on {}): {addresses}\n", port.name);
        }
    }
    text
}

fn listed(addresses: &[InterfaceAddress]) -> String {
    let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    if list.is_empty() { "no addresses".into() } else { list.join(", ") }
}

/// How many frames that takes, and why.
fn sum(config: &Config, budget: &Budget) -> String {
    let shown = |line: &Line| FrameLine {
        holder: line.holder.clone(),
        formula: line.reckoning.clone(),
        frames: line.frames,
    };
    let lines: Vec<_> = budget.lines.iter().map(shown).collect();
    let size = config.frames.size;
    let memory = |frames: u64| table::bytes(frames * u64::from(size));
    let bytes = match budget.spare() {
        0 => memory(budget.frames.into()),
        spare => {
            format!(
                "{}, {} of them for `spare_queues`",
                memory(budget.frames.into()),
                memory(spare)
            )
        }
    };
    let table = tables::sum(&lines, budget.frames.into());
    format!("\nframes of {size} bytes, {bytes}:\n{table}")
}
